package bench

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// SQLiteTwin makes a transaction of every call, as package sql is meant to be used: BeginTx, prepared statements in the
// transaction, Commit. A mutex spares it the fight for the file.
type SQLiteTwin struct {
	db     *sql.DB
	ledger int64
	close  []func() error

	mu                   sync.Mutex
	lock, room, open     *sql.Stmt
	account, held, spent *sql.Stmt
	hold, ended          *sql.Stmt
	owner, done, entry   *sql.Stmt
}

// NewSQLiteTwin returns a twin on a file in which a [Ledger] has made a pair on each account.
func NewSQLiteTwin(ctx context.Context, db *sql.DB) (*SQLiteTwin, error) {
	t := &SQLiteTwin{db: db}
	x := newTwinTexts(func(template string) string {
		return strings.ReplaceAll(tableMark.ReplaceAllString(template, "stint_spend_$1"), "$", "+?") // as in the adapter: planned once
	})
	for text, st := range map[string]**sql.Stmt{
		x.lock: &t.lock, x.room: &t.room, x.open: &t.open, x.account: &t.account, x.held: &t.held, x.spent: &t.spent,
		x.hold: &t.hold, x.ended: &t.ended, x.owner: &t.owner, x.done: &t.done, x.entry: &t.entry,
	} {
		var err error
		*st, err = db.PrepareContext(ctx, text) //nolint:sqlclosecheck // Close does
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t.close = append(t.close, (*st).Close)
	}
	return t, db.QueryRowContext(ctx, "SELECT id FROM stint_spend_ledger").Scan(&t.ledger)
}

// Close closes the statements.
func (t *SQLiteTwin) Close() error { return closeAll(t.close) }

// Pair implements Subject.
func (t *SQLiteTwin) Pair(ctx context.Context, key string, accounts []string) error {
	err := t.transaction(ctx, func(x *sqliteCall) { t.reserve(x, key, accounts[0]) })
	if err == nil {
		err = t.transaction(ctx, func(x *sqliteCall) { t.settle(x, key, accounts[0]) })
	}
	return err
}

// sqliteCall is a transaction; after its first error it does nothing.
type sqliteCall struct {
	ctx context.Context
	tx  *sql.Tx
	err error
}

func (x *sqliteCall) exec(st *sql.Stmt, args ...any) (id int64) {
	if x.err != nil {
		return 0
	}
	var result sql.Result
	if result, x.err = x.tx.StmtContext(x.ctx, st).ExecContext(x.ctx, args...); x.err == nil { //nolint:sqlclosecheck // the transaction does
		id, x.err = result.LastInsertId()
	}
	return id
}

func (x *sqliteCall) get(st *sql.Stmt, args []any, into ...any) {
	if x.err == nil {
		x.err = x.tx.StmtContext(x.ctx, st).QueryRowContext(x.ctx, args...).Scan(into...) //nolint:sqlclosecheck // the transaction does
	}
}

func (t *SQLiteTwin) transaction(ctx context.Context, f func(*sqliteCall)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	x := &sqliteCall{ctx: ctx, tx: tx}
	f(x)
	if x.err != nil {
		return errors.Join(x.err, tx.Rollback())
	}
	return tx.Commit()
}

// next is the account's next entry.
func (t *SQLiteTwin) next(x *sqliteCall, name string) (account, seq, now int64) {
	x.get(t.lock, []any{t.ledger, name}, &account, &seq, &now)
	return account, seq + 1, max(now, time.Now().UnixMicro())
}

func (t *SQLiteTwin) reserve(x *sqliteCall, key, name string) {
	account, seq, now := t.next(x, name)
	var period, room int64
	x.get(t.room, []any{t.ledger, name, now}, &period, &room)
	if x.err == nil && room < amount {
		x.err = spendlimit.ErrDenied
	}
	expires := now + ttl.Microseconds()
	x.exec(t.account, account, seq, now)
	x.exec(t.held, period, amount)
	hold := x.exec(t.hold, nil, t.ledger, key, ids(account), amount, now, seq, expires, ids(period))
	x.exec(t.owner, account, hold, expires)
	x.exec(t.entry, account, seq, now, reserved, key, postings(now, 0, amount, period))
}

func (t *SQLiteTwin) settle(x *sqliteCall, key, name string) {
	account, seq, now := t.next(x, name)
	var hold, state, own, born, period int64
	x.get(t.open, []any{t.ledger, key}, &hold, &state, &own, &born, &period)
	if x.err == nil && (state != int64(spendlimit.Open) || own < cost) {
		x.err = spendlimit.ErrInvalid
	}
	x.exec(t.account, account, seq, now)
	x.exec(t.spent, period, own, cost)
	x.exec(t.ended, hold, cost, own-cost, now, settledReceipt(seq))
	x.exec(t.done, account, hold)
	x.exec(t.entry, account, seq, now, settled, key, postings(born, cost, -own, period))
}
