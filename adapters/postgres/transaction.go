package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/internal/fault"
)

// place is where a store works: a DB, with transactions of its own, or a Tx.
type place interface {
	// step runs f in a transaction and keeps what the statements that it returns write, unless it is only looking. f runs again
	// after ErrGrew, at most maxGrown times, and where what was lost against others may succeed now.
	step(ctx context.Context, looking bool, f func(*conn) ([]sqlrow.Stmt, error)) error
	// read runs f once, in a transaction that changes nothing.
	read(ctx context.Context, f func(*conn) error) error
}

// maxGrown is how often a step that found out that it needs more begins again (C2).
const maxGrown = 4

func (d *DB) step(ctx context.Context, looking bool, f func(*conn) ([]sqlrow.Stmt, error)) error {
	for tries, grown := 0, 0; ; {
		judged, err := d.try(ctx, looking, f)
		switch {
		case err == nil, judged:
			return err
		case errors.Is(err, sqlrow.ErrGrew):
			if grown++; grown > maxGrown {
				return err
			}
		case !d.again(ctx, tries, err):
			return err
		default:
			tries++
		}
	}
}

// try also tells whether the error is that of the function that the step is for.
func (d *DB) try(ctx context.Context, looking bool, f func(*conn) ([]sqlrow.Stmt, error)) (judged bool, err error) {
	how := beginWriting
	if looking {
		how = beginReading
	}
	c, err := d.begin(ctx, how)
	if err != nil {
		return false, err
	}
	defer c.end(ctx)
	list, err := f(&c.conn)
	if err != nil || looking || len(list) == 0 {
		return c.judged, err
	}
	return false, c.commit(ctx, list)
}

func (d *DB) read(ctx context.Context, f func(*conn) error) error {
	c, err := d.begin(ctx, beginReading)
	if err != nil {
		return err
	}
	defer c.end(ctx)
	return f(&c.conn)
}

// conn is a connection inside a transaction, or on the way into one: statements wait for the next that has an answer.
type conn struct {
	d    *DB
	on   sender
	wait []sqlrow.Stmt
	// drifts: each statement sees other data, so that a look has to lock what it looks at.
	drifts bool
	judged bool // with an error: see judge
}

// judge takes the answer of the function that a step is for. If that is an error it is the step's, whatever error it is.
func (c *conn) judge(err error) error {
	c.judged = err != nil
	return err
}

// clock is the time, where there is nothing to read along with it.
func (c *conn) clock(ctx context.Context) (int64, error) {
	var server int64
	if now := c.d.dialect.Now; now != "" {
		if err := c.Run(ctx, sqlrow.Stmt{SQL: now, Each: func(r sqlrow.Row) error { return r.Scan(&server) }}); err != nil {
			return 0, err
		}
	}
	return c.d.now(server), nil
}

// now is the time, given the server's.
func (d *DB) now(server int64) int64 {
	if d.clock != nil {
		return d.clock().UnixMicro()
	}
	return server
}

// sender is a connection, or a transaction on it.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// pooled is a connection that the pool lent for one transaction.
type pooled struct {
	conn
	lent *pgxpool.Conn
}

const (
	beginWriting = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	beginReading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	// Plans are made when the tables are still empty, and kept: without the first they would read whole tables for ever, and
	// without the second small steps would be planned anew each time.
	byIndex = "SELECT set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"
	// The server ends by itself what has outlived its step: a client that froze, or that the network took, keeps no lock.
	byIndexInTime = byIndex + ", set_config('statement_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $1, true)"
)

func (d *DB) begin(ctx context.Context, how string) (*pooled, error) {
	if d.closed.Load() {
		return nil, fault.ErrClosed
	}
	lent, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	return &pooled{conn{d: d, on: lent, wait: []sqlrow.Stmt{{SQL: how}, settings(ctx)}}, lent}, nil
}

// settings are those of a transaction that must end with ctx. A server that ends a statement keeps the connection, which a
// context that ends does not, so the server gets a little less time.
func settings(ctx context.Context) sqlrow.Stmt {
	deadline, ok := ctx.Deadline()
	if !ok {
		return sqlrow.Stmt{SQL: byIndex}
	}
	left := max(time.Until(deadline)*9/10, time.Millisecond)
	return sqlrow.Stmt{SQL: byIndexInTime, Args: []any{strconv.FormatInt(min(left.Milliseconds()+1, 1<<31-1), 10)}}
}

// end gives the connection back. One that is inside a transaction is rolled back; where that fails, or there is no time
// for it, the pool closes the connection, and with it the transaction ends.
func (c *pooled) end(ctx context.Context) {
	if c.lent.Conn().PgConn().TxStatus() != 'I' && !c.lent.Conn().IsClosed() && ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(ctx, rollbackTimeout)
		defer cancel()
		_, _ = c.lent.Exec(ctx, "ROLLBACK")
	}
	c.lent.Release()
}

const rollbackTimeout = 5 * time.Second

// Run implements sqlrow.Conn.
func (c *conn) Run(ctx context.Context, list ...sqlrow.Stmt) error {
	list = append(c.wait, list...)
	c.wait = nil
	_, err := c.send(ctx, list)
	return unavailable(err)
}

// send runs statements in one round trip. It returns the tag of the last one, if all were answered; an error may still
// have come after it.
func (c *conn) send(ctx context.Context, list []sqlrow.Stmt) (last pgconn.CommandTag, err error) {
	batch := new(pgx.Batch)
	for i := range list {
		if list[i].Rows > 0 {
			list[i] = exactly(list[i])
		}
		batch.Queue(list[i].SQL, list[i].Args...)
	}
	results := c.on.SendBatch(ctx, batch)
	for _, st := range list {
		if last, err = receive(results, st); err != nil {
			_ = results.Close() // it would say the same again
			return pgconn.CommandTag{}, err
		}
	}
	return last, results.Close()
}

// exactly makes the server itself count the rows that a statement changes: COMMIT is on its way with it. Another number than the right
// one is a division by zero.
func exactly(st sqlrow.Stmt) sqlrow.Stmt {
	text := fmt.Sprintf("WITH changed AS (%s RETURNING 1) SELECT 1 / (count(*) = $%d::bigint)::int FROM changed", st.SQL, len(st.Args)+1)
	return sqlrow.Stmt{SQL: text, Args: append(st.Args[:len(st.Args):len(st.Args)], int64(st.Rows))}
}

func receive(results pgx.BatchResults, st sqlrow.Stmt) (pgconn.CommandTag, error) {
	if st.Each == nil {
		return results.Exec()
	}
	rows, err := results.Query()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := st.Each(rows); err != nil {
			return pgconn.CommandTag{}, err
		}
	}
	return rows.CommandTag(), rows.Err()
}

// commit sends the last statements and COMMIT. It does not say that nothing was applied unless that is sure.
func (c *pooled) commit(ctx context.Context, list []sqlrow.Stmt) error {
	list = append(append(c.wait, list...), sqlrow.Stmt{SQL: "COMMIT"})
	c.wait = nil
	last, err := c.send(ctx, list)
	switch {
	case last.String() == "COMMIT":
		return nil // whatever came after it: a server that shuts down answers first
	case err == nil:
		return fmt.Errorf("%w: the server answered COMMIT with %s", fault.ErrUnavailable, last)
	case undone(err), !c.lent.Conn().IsClosed() && c.lent.Conn().PgConn().TxStatus() != 'I':
		return unavailable(err) // it was refused, or has not left
	}
	return errors.Join(fault.ErrUncertain, err)
}

// undone tells of a failure after COMMIT was sent whether it surely was not applied. An error that ends one statement
// ends its transaction; one that ends the connection may come from a pooler, which knows no more than we do.
func undone(err error) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return pgconn.SafeToRetry(err) // nothing was sent
	}
	return e.SeverityUnlocalized == "ERROR" && !strings.HasPrefix(e.Code, "08") && e.Code != "40003"
}
