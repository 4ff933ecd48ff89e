package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/adapters/internal/spendsql"
	"github.com/stint-go/stint/spendlimit"
)

// Options are the options of a DB; the zero value has all defaults.
type Options struct {
	// Clock is the time of all steps; nil is time.Now. Processes on one file share the machine's clock.
	Clock func() time.Time
}

// DB is the stores in one file. Safe for concurrent use.
type DB struct {
	db     *sql.DB
	clock  func() time.Time
	closed atomic.Bool
	// writing holds one token: a file has one writer, and those of this process need not fight for it.
	writing  chan struct{}
	prepared map[string]*sql.Stmt // every statement of a step
	queries  *spendsql.Queries
}

// New returns a DB on db, which should be opened with write-ahead logging, synchronous=FULL and a busy timeout of some
// seconds (package embedded does). It checks the schema: a database that was not migrated is ErrSchema.
func New(ctx context.Context, db *sql.DB, o *Options) (*DB, error) {
	if db == nil {
		return nil, fmt.Errorf("sqlite: new: %w: no database", spendlimit.ErrInvalid)
	}
	d := &DB{db: db, clock: time.Now, writing: make(chan struct{}, 1), prepared: map[string]*sql.Stmt{}, queries: spendsql.NewQueries(&dialect)}
	if o != nil && o.Clock != nil {
		d.clock = o.Clock
	}
	if err := check(ctx, db); err != nil {
		return nil, fmt.Errorf("sqlite: new: %w", err)
	}
	for _, text := range texts(d.queries) {
		st, err := db.PrepareContext(ctx, text)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("sqlite: new: %w", unavailable(err)), d.Close())
		}
		d.prepared[text] = st
	}
	return d, nil
}

// Close makes every later call fail with ErrClosed. It leaves the *sql.DB open: that is the caller's.
func (d *DB) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	var errs []error
	for _, st := range d.prepared {
		errs = append(errs, st.Close())
	}
	return errors.Join(errs...)
}

// read runs f in a transaction that sees one state of the data and changes nothing.
func (d *DB) read(ctx context.Context, f func(*conn) error) error {
	c, err := d.begin(ctx, true)
	if err != nil {
		return err
	}
	defer c.end()
	return f(c)
}

// write runs f in a transaction of the one writer, and commits unless f fails.
func (d *DB) write(ctx context.Context, f func(*conn) error) error {
	select {
	case d.writing <- struct{}{}:
		defer func() { <-d.writing }()
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
	c, err := d.begin(ctx, false)
	if err != nil {
		return err
	}
	defer c.end()
	if err := f(c); err != nil {
		return err
	}
	return c.commit()
}

// conn is a connection in a transaction.
type conn struct {
	d    *DB
	conn *sql.Conn
	tx   *sql.Tx
}

func (d *DB) begin(ctx context.Context, reading bool) (*conn, error) {
	if d.closed.Load() {
		return nil, spendlimit.ErrClosed
	}
	one, err := d.db.Conn(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	c := &conn{d: d, conn: one}
	// Without ctx, whose end would roll back behind our back; the statements have it.
	c.tx, err = one.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{ReadOnly: reading})
	if err == nil && !reading {
		err = c.Run(ctx, spendsql.Stmt{SQL: reserveWriter})
	}
	if err != nil {
		c.end()
		return nil, unavailable(err)
	}
	return c, nil
}

// end gives the connection back; what was not committed is rolled back.
func (c *conn) end() {
	if c.tx != nil {
		if err := c.tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			_ = c.conn.Raw(func(any) error { return driver.ErrBadConn }) // nobody shall get it inside a transaction
		}
	}
	_ = c.conn.Close()
}

// commit does not say that nothing was applied unless that is sure.
func (c *conn) commit() error {
	if err := c.tx.Commit(); err != nil {
		return errors.Join(spendlimit.ErrUncertain, err)
	}
	return nil
}

// Run implements spendsql.Conn.
func (c *conn) Run(ctx context.Context, list ...spendsql.Stmt) error {
	for _, st := range list {
		if err := c.run(ctx, st); err != nil {
			return unavailable(err)
		}
	}
	return nil
}

func (c *conn) run(ctx context.Context, st spendsql.Stmt) error {
	prepared := c.tx.StmtContext(ctx, c.d.prepared[st.SQL])
	if st.Each == nil {
		_, err := prepared.ExecContext(ctx, st.Args...)
		return err
	}
	rows, err := prepared.QueryContext(ctx, st.Args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := st.Each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// NewIDs implements spendsql.Conn: there is one writer, so the next ids are those above the last.
func (c *conn) NewIDs(ctx context.Context, t *spendsql.Table, n int) ([]int64, error) {
	var last int64
	err := c.Run(ctx, spendsql.Stmt{SQL: lastIDs[t], Each: func(r spendsql.Row) error { return r.Scan(&last) }})
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = last + 1 + int64(i)
	}
	return ids, err
}

// unavailable says of a failure that nothing was applied.
func unavailable(err error) error {
	for _, known := range []error{nil, spendlimit.ErrUnavailable, spendlimit.ErrUncertain, spendlimit.ErrClosed, spendlimit.ErrInvalid, spendlimit.ErrSchema} {
		if errors.Is(err, known) {
			return err
		}
	}
	return errors.Join(spendlimit.ErrUnavailable, err)
}
