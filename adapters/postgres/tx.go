package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/internal/fault"
	"github.com/stint-go/stint/spendlimit"
)

// Tx is the stores inside a transaction of the caller.
type Tx struct {
	d    *DB
	tx   pgx.Tx
	turn chan struct{} // holds a token: a transaction does one thing at a time
}

// WithTx returns the stores inside a transaction that the caller began on the same database, so that it commits its own
// rows and these together. Make a ledger or a pool on it, use it, commit; then make another one for the next transaction.
//
//   - An answer holds only once the caller has committed. Until then its accounts and pools are locked, so that others wait.
//   - A step that fails leaves the transaction as it was before, and usable, unless the connection is gone. Nothing is tried
//     again: after a deadlock or, above READ COMMITTED, a serialization failure the caller begins anew.
//   - Several calls lock their accounts in the order of the calls: transactions that lock in different orders may deadlock.
//   - A context that ends while a statement runs closes the connection, as always with pgx.
//   - A transaction that has ended is [spendlimit.ErrClosed].
func (d *DB) WithTx(tx pgx.Tx) *Tx { return &Tx{d, tx, make(chan struct{}, 1)} }

// Spend returns the store for spendlimit.
func (t *Tx) Spend() spendlimit.Store { return spendStore{t, t.d.spend.apart} }

func (t *Tx) step(ctx context.Context, looking bool, f func(*conn) ([]sqlrow.Stmt, error)) error {
	for grown := 0; ; grown++ {
		err := t.within(ctx, func(c *txConn) error {
			list, err := f(&c.conn)
			if err != nil || looking || len(list) == 0 {
				return err
			}
			return c.keep(ctx, list)
		})
		if grown == maxGrown || !errors.Is(err, sqlrow.ErrGrew) {
			return err
		}
	}
}

func (t *Tx) read(ctx context.Context, f func(*conn) error) error {
	return t.within(ctx, func(c *txConn) error { return f(&c.conn) })
}

// txConn is the caller's connection behind a savepoint.
type txConn struct {
	conn
	tx    pgx.Tx
	scan  string // the caller's settings of enable_seqscan and plan_cache_mode
	plans string
	kept  bool
}

const (
	savepoint = "SAVEPOINT stint_step"
	release   = "RELEASE SAVEPOINT stint_step"
	undo      = "ROLLBACK TO SAVEPOINT stint_step"

	undoTimeout = time.Second // beyond the end of the step's context
)

// within runs f behind a savepoint, to which it goes back unless f keeps what it did.
func (t *Tx) within(ctx context.Context, f func(c *txConn) error) error {
	switch {
	case t.tx == nil:
		return fmt.Errorf("%w: no transaction", fault.ErrInvalid)
	case t.d.closed.Load():
		return fault.ErrClosed
	}
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
	c := &txConn{conn: conn{d: t.d, on: t.tx}, tx: t.tx}
	var isolation string
	err := c.Run(ctx, sqlrow.Stmt{SQL: savepoint}, sqlrow.Stmt{
		SQL:  "SELECT current_setting('enable_seqscan'), current_setting('plan_cache_mode'), current_setting('transaction_isolation')",
		Each: func(r sqlrow.Row) error { return r.Scan(&c.scan, &c.plans, &isolation) },
	}, sqlrow.Stmt{SQL: byIndex})
	if err != nil {
		return ended(err)
	}
	c.drifts = isolation != "repeatable read" && isolation != "serializable"
	defer c.end(ctx)
	return f(c)
}

// ended tells a transaction that is over from one that failed.
func ended(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) || code(err) == "25P01" { // no active transaction
		return fmt.Errorf("%w: the transaction was committed or rolled back: %w", fault.ErrClosed, err)
	}
	return err
}

// keep stores the changes. The caller's statements find its settings as they were.
func (c *txConn) keep(ctx context.Context, list []sqlrow.Stmt) error {
	settings := sqlrow.Stmt{SQL: "SELECT set_config('enable_seqscan', $1, true), set_config('plan_cache_mode', $2, true)", Args: []any{c.scan, c.plans}}
	err := c.Run(ctx, append(list, settings, sqlrow.Stmt{SQL: release})...)
	c.kept = err == nil
	return err
}

// end takes back what was not kept. Where that fails it closes the connection: half a step must not be committed.
func (c *txConn) end(ctx context.Context) {
	if c.kept || c.tx.Conn().IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if _, err := c.send(ctx, []sqlrow.Stmt{{SQL: undo}, {SQL: release}}); err != nil {
		_ = c.tx.Conn().Close(ctx)
	}
}
