package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/stint-go/stint/internal/fault"
	"github.com/stint-go/stint/spendlimit"
)

// Tx is the stores of a DB inside a transaction of the caller: what they write is kept if the caller commits, together with
// the caller's own rows, and else is as if it had never been.
type Tx struct {
	d  *DB
	tx *sql.Tx
	mu sync.Mutex
}

// WithTx returns the stores inside tx, which is a transaction of the *sql.DB that the DB was made on. It should have begun
// IMMEDIATE (package embedded and ncruces do so, modernc with _txlock=immediate): one that has read before it writes is
// refused if another has written meanwhile. Make the ledgers for one transaction anew, with spendlimit.New on
// Tx.Spend, and the pools, with allocator.New on Tx.Pools.
//
// What a call returns, and what an observer hears, counts only once the commit has succeeded. A call that fails leaves the
// transaction as it was before that call. Where SQLite has given the transaction up itself (a full disk can do that) it is
// rolled back, and its Commit fails with sql.ErrTxDone. Calls after the end of the transaction are ErrClosed and
// sql.ErrTxDone. Nothing is tried again: after an error that is not a decision, roll back and begin anew.
//
// A transaction holds the file's one writer, so keep it short. On a pool with one connection, no other call of the DB is
// answered before it has ended.
func (d *DB) WithTx(tx *sql.Tx) *Tx {
	return &Tx{d: d, tx: tx}
}

// Spend returns the store for spendlimit.
func (t *Tx) Spend() spendlimit.Store { return spendStore{t} }

func (t *Tx) read(ctx context.Context, f func(*conn) error) error {
	c, err := t.enter(ctx)
	if err != nil {
		return err
	}
	defer t.mu.Unlock()
	return t.decided(f(c))
}

// enter returns the caller's connection, for one call at a time.
func (t *Tx) enter(ctx context.Context) (*conn, error) {
	switch {
	case t.d.closed.Load():
		return nil, fault.ErrClosed
	case t.tx == nil:
		return nil, fmt.Errorf("%w: %w: no transaction", fault.ErrUnavailable, fault.ErrInvalid)
	case ctx.Err() != nil:
		return nil, unavailable(ctx.Err())
	}
	t.mu.Lock()
	return &conn{d: t.d, tx: t.tx, ctx: context.WithoutCancel(ctx)}, nil
}

// write keeps what f wrote behind a savepoint, until it is known to have all succeeded.
func (t *Tx) write(ctx context.Context, f func(*conn) error) (err error) {
	c, err := t.enter(ctx)
	if err != nil {
		return err
	}
	defer t.mu.Unlock()
	if err := t.exec(c, "SAVEPOINT stint"); err != nil {
		return err
	}
	kept := false
	defer func() {
		if !kept {
			t.undo(c)
		}
	}()
	// The only statement that may wait.
	if _, err := c.exec(ctx, reserveWriter); err != nil {
		return t.decided(t.d.failed(err))
	}
	if err := f(c); err != nil {
		return t.decided(err)
	}
	if err := t.exec(c, "RELEASE stint"); err != nil {
		return err
	}
	kept = true
	return nil
}

func (t *Tx) exec(c *conn, text string) error {
	_, err := t.tx.ExecContext(c.ctx, text)
	return t.decided(t.d.failed(err))
}

// undo goes back to the savepoint. Where that is gone SQLite has rolled back everything: what the caller does next would be
// in no transaction at all, so that tx is ended too.
func (t *Tx) undo(c *conn) {
	for _, text := range []string{"ROLLBACK TO stint", "RELEASE stint"} {
		if _, err := t.tx.ExecContext(c.ctx, text); err != nil {
			_ = t.tx.Rollback()
			return
		}
	}
}

// decided turns what is busy into a failure: only the caller can begin again.
func (t *Tx) decided(err error) error {
	var busy *busyError
	if errors.As(err, &busy) {
		return fmt.Errorf("%w: the transaction did not become the writer: begin it IMMEDIATE: %w", fault.ErrUnavailable, busy.error)
	}
	return err
}
