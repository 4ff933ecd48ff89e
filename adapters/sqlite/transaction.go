package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/internal/fault"
)

// place is where a store works: a DB, with transactions of its own, or a Tx.
type place interface {
	// read runs f in a transaction that sees one state of the data; write runs f as the one writer, and keeps what it wrote
	// unless it fails. f may run again.
	read(ctx context.Context, f func(*conn) error) error
	write(ctx context.Context, f func(*conn) error) error
}

// read runs f in a transaction that sees one state of the data and changes nothing.
func (d *DB) read(ctx context.Context, f func(*conn) error) error {
	defer d.prepared.prepare(ctx, d.db)
	return patiently(ctx, func() error { return d.attempt(ctx, true, f) })
}

// write runs f in a transaction of the one writer, and commits unless f fails. f may run again.
func (d *DB) write(ctx context.Context, f func(*conn) error) error {
	defer d.prepared.prepare(ctx, d.db) // once the token is given back
	select {
	case d.writing <- struct{}{}:
		defer func() { <-d.writing }()
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
	return patiently(ctx, func() error { return d.attempt(ctx, false, f) })
}

// How long to wait before what was busy is tried again: at first, and at most.
const (
	firstPause = time.Millisecond
	lastPause  = 25 * time.Millisecond
)

// patiently tries again what was busy, until ctx ends. How long SQLite itself waits depends on the connection.
func patiently(ctx context.Context, try func() error) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := try()
		var busy *busyError
		if !errors.As(err, &busy) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return unavailable(fmt.Errorf("%w: %w", ctx.Err(), busy.error))
		}
	}
}

func (d *DB) attempt(ctx context.Context, reading bool, f func(*conn) error) error {
	c, err := d.begin(ctx, reading)
	if err != nil {
		return err
	}
	defer c.end()
	if reading {
		return f(c)
	}
	err = f(c)
	if err == nil {
		err = c.commit()
	}
	d.retain(c, err)
	return err
}

// conn is a connection in a transaction.
type conn struct {
	d       *DB
	conn    *sql.Conn
	tx      *sql.Tx
	reading bool
	doubt   bool     // the connection may be inside a transaction
	last    struct { // a statement that was used: most come many times in a row
		text string
		*sql.Stmt
	}
	knows   bool   // what the stores know holds, and they may add what they read and write here: see recall
	changed int64  // rows, so far
	done    func() // adds it, once the transaction is committed
	// ctx has the caller's values, and does not end: a statement that is interrupted ends its transaction, and the next one
	// would be in none. What ends is looked at between statements and rows, which are short.
	ctx  context.Context
	stop context.CancelFunc
}

func (d *DB) begin(ctx context.Context, reading bool) (*conn, error) {
	if d.closed.Load() {
		return nil, fault.ErrClosed
	}
	one, err := d.db.Conn(ctx)
	if err != nil { // a driver may say only that it was interrupted while it opened a connection
		return nil, d.failed(errors.Join(err, ctx.Err()))
	}
	c := &conn{d: d, conn: one, reading: reading, ctx: context.WithoutCancel(ctx), stop: func() {}}
	if err = c.begin(ctx); err == nil && !reading && !d.migrating {
		_, err = c.exec(ctx, reserveWriter)
	}
	if err != nil {
		c.end()
		return nil, d.failed(errors.Join(err, ctx.Err()))
	}
	return c, nil
}

// begin begins the transaction. The end of ctx ends the wait for it, but never the transaction: that would be behind our back.
func (c *conn) begin(ctx context.Context) (err error) {
	if c.reading { // which waits for nothing
		c.tx, err = c.conn.BeginTx(c.ctx, &sql.TxOptions{ReadOnly: true})
		c.doubt = err != nil
		return err
	}
	begun, stop := context.WithCancel(c.ctx)
	c.stop = stop
	late := context.AfterFunc(ctx, stop)
	c.tx, err = c.conn.BeginTx(begun, nil)
	if !late() {
		c.doubt = true
		err = errors.Join(ctx.Err(), err)
	}
	c.doubt = c.doubt || err != nil
	return err
}

// end gives the connection back. What was not committed is rolled back, and nobody else gets a connection that may still be
// inside a transaction.
func (c *conn) end() {
	if c.tx != nil {
		if err := c.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			c.doubt = true
		}
	}
	if c.doubt && !c.idle() {
		_ = c.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	c.stop()
	_ = c.conn.Close()
}

// idle tells whether the connection is surely outside of any transaction. SQLite may have rolled back itself.
func (c *conn) idle() bool {
	if c.reading {
		return false // a driver may have set it to read only for the time being
	}
	for _, text := range []string{"BEGIN", "ROLLBACK"} { // which is an error inside of one
		if _, err := c.conn.ExecContext(c.ctx, text); err != nil {
			return false
		}
	}
	return true
}

// commit does not say that nothing was applied unless that is sure. The first three codes leave the transaction open, and the
// driver rolls it back; after the fourth the last page of the transaction was not written, which makes it void.
func (c *conn) commit() error {
	err := c.tx.Commit()
	if err == nil {
		return nil
	}
	c.doubt = true
	switch codeOf(err) {
	case codeBusy, codeLocked, codeConflict, codeFull:
		return c.d.failed(err)
	}
	return fmt.Errorf("%w: %w", fault.ErrUncertain, err)
}

// Run implements sqlrow.Conn. A statement without Each is an INSERT, UPDATE or DELETE: the rows that it changes are counted.
func (c *conn) Run(ctx context.Context, list ...sqlrow.Stmt) error {
	for _, st := range list {
		if err := c.run(ctx, st); err != nil {
			return c.d.failed(err)
		}
	}
	return nil
}

// prepared returns the statement in this transaction, or nil.
func (c *conn) prepared(text string) *sql.Stmt {
	if c.last.text != text || c.last.Stmt == nil {
		c.last.text, c.last.Stmt = text, nil
		if st := c.d.prepared.find(text); st != nil {
			c.last.Stmt = c.tx.StmtContext(c.ctx, st) //nolint:sqlclosecheck // the transaction does
		}
	}
	return c.last.Stmt
}

func (c *conn) exec(ctx context.Context, text string, args ...any) (sql.Result, error) {
	if st := c.prepared(text); st != nil { //nolint:sqlclosecheck // the transaction does
		return st.ExecContext(ctx, args...)
	}
	return c.tx.ExecContext(ctx, text, args...)
}

func (c *conn) query(text string, args ...any) (*sql.Rows, error) {
	if st := c.prepared(text); st != nil { //nolint:sqlclosecheck // the transaction does
		return st.QueryContext(c.ctx, args...)
	}
	return c.tx.QueryContext(c.ctx, text, args...)
}

func (c *conn) run(ctx context.Context, st sqlrow.Stmt) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if st.Each == nil {
		result, err := c.exec(c.ctx, st.SQL, st.Args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		c.changed += n
		if err == nil && st.Rows > 0 && n != int64(st.Rows) {
			err = fmt.Errorf("%w: %d rows changed, want %d", sqlrow.ErrChanged, n, st.Rows)
		}
		return err
	}
	rows, err := c.query(st.SQL, st.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for r := (row{rows: rows}); rows.Next(); {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := st.Each(&r); err != nil {
			return err
		}
	}
	return rows.Err()
}

// NewIDs implements sqlrow.Conn: there is one writer, so the next ids are those above the last.
func (c *conn) NewIDs(ctx context.Context, t *sqlrow.Table, n int) ([]int64, error) {
	var last int64
	err := c.Run(ctx, sqlrow.Stmt{SQL: lastID(t), Each: func(r sqlrow.Row) error { return r.Scan(&last) }})
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = last + 1 + int64(i)
	}
	return ids, err
}
