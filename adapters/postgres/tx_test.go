package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

// eachInTx makes every call in a transaction of its own, as a caller would who has nothing else to write.
type eachInTx struct{ d *DB }

func (s eachInTx) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	for try := 0; ; try++ {
		err := s.in(ctx, func(t *Tx) error { return t.Spend().Step(ctx, n, f) })
		if err == nil || !s.d.again(ctx, try, err) {
			return err
		}
	}
}

func (s eachInTx) Read(ctx context.Context, q spendlimit.Query) (page spendlimit.Page, err error) {
	err = s.in(ctx, func(t *Tx) error {
		page, err = t.Spend().Read(ctx, q)
		return err
	})
	return page, err
}

func (s eachInTx) in(ctx context.Context, f func(*Tx) error) error {
	if s.d.closed.Load() {
		return spendlimit.ErrClosed
	}
	tx, err := s.d.pool.Begin(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := f(s.d.WithTx(tx)); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return errors.Join(spendlimit.ErrUncertain, err)
	}
	return nil
}

func TestC8_Conformance(t *testing.T) {
	s := &schemas{pool: newPool(t, testdb.Postgres(t), loose)}
	spendlimittest.Run(t, func(t testing.TB, clock func() time.Time) spendlimittest.Handle {
		o := &Options{Schema: s.lend(t), Clock: clock}
		var handle func(t testing.TB) spendlimittest.Handle
		handle = func(t testing.TB) spendlimittest.Handle {
			d := newDB(t, s.pool, o)
			return spendlimittest.Handle{Store: eachInTx{d}, Close: d.Close, Again: handle}
		}
		return handle(t)
	})
}

// room is a database with a ledger on which account a has a limit of 10.
type room struct {
	*DB
	led *spendlimit.Ledger
}

func newRoom(t *testing.T, change ...func(*pgxpool.Config)) room {
	t.Helper()
	pool := newPool(t, testdb.Postgres(t), change...)
	if err := Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	sql(t, pool, "CREATE TABLE run (name text PRIMARY KEY)")
	r := room{DB: newDB(t, pool, nil)}
	r.led = ledgerOn(t, r.Spend(), spendlimit.Config{})
	setLimit(t, r.led, "a", 10)
	return r
}

func setLimit(t testing.TB, led *spendlimit.Ledger, account string, n spendlimit.Amount) {
	t.Helper()
	if _, err := led.SetLimit(t.Context(), spendlimit.Limit{Account: account, Name: "all", Kind: spendlimit.AllTime, Amount: n}, ""); err != nil {
		t.Fatal(err)
	}
}

func hold(key string, n spendlimit.Amount, accounts ...string) spendlimit.Request {
	return spendlimit.Request{Key: key, Accounts: accounts, Amount: n, TTL: time.Hour}
}

func reserve(t testing.TB, led *spendlimit.Ledger, key string, n spendlimit.Amount, accounts ...string) {
	t.Helper()
	if _, err := led.Reserve(t.Context(), hold(key, n, accounts...)); err != nil {
		t.Fatal(err)
	}
}

// wants checks what is held on an account, and that all totals are right.
func wants(t testing.TB, led *spendlimit.Ledger, account string, held spendlimit.Amount) {
	t.Helper()
	for b, err := range led.Balances(t.Context(), account, time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		if b.Held != held {
			t.Errorf("%s: held %d, want %d", account, b.Held, held)
		}
	}
	diffs, err := led.Verify(t.Context(), account)
	if err != nil || len(diffs) > 0 {
		t.Errorf("%s: %v, %v", account, diffs, err)
	}
}

func begin(t testing.TB, d *DB, o pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := d.pool.BeginTx(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func in(t testing.TB, d *DB, tx pgx.Tx) *spendlimit.Ledger {
	return ledgerOn(t, d.WithTx(tx).Spend(), spendlimit.Config{})
}

func txExec(t testing.TB, tx pgx.Tx, sql string, args ...any) {
	t.Helper()
	if _, err := tx.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func commit(t testing.TB, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func isNot(t testing.TB, err, kind error) {
	t.Helper()
	if errors.Is(err, kind) {
		t.Fatalf("error %v is %v", err, kind)
	}
}

func TestC8_OneCommitForRunAndBudget(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	var held spendlimit.Amount
	for i, nested := range []bool{false, true} {
		for _, keep := range []bool{false, true} {
			key := fmt.Sprint("run ", i)
			outer := begin(t, r.DB, pgx.TxOptions{})
			tx := outer
			if nested {
				var err error
				if tx, err = outer.Begin(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			txExec(t, tx, "INSERT INTO run VALUES ($1)", key)
			reserve(t, ledgerOn(t, r.WithTx(tx).Spend(), spendlimit.Config{NoLimit: spendlimit.Allow}), key, 4, "a", "new "+key)
			if keep {
				commit(t, tx)
				held += 4
			} else if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if nested {
				commit(t, outer)
			}
			if there := ask[int](t, r.pool, "SELECT count(*) FROM run WHERE name = $1", key) == 1; there != keep {
				t.Fatalf("the run is there: %v, want %v", there, keep)
			}
			if _, err := r.led.Hold(t.Context(), key); (err == nil) != keep {
				t.Fatalf("the hold: %v, want it %v", err, keep)
			}
			wants(t, r.led, "a", held)
		}
	}
}

// Whatever a step fails of, the caller's transaction goes on as if it had not been.
func TestC8_AFailedStepLeavesTheTransaction(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	setLimit(t, r.led, "b", 10)
	lock := begin(t, r.DB, pgx.TxOptions{})
	txExec(t, lock, "SELECT FROM stint.spend_account WHERE name = 'b' FOR UPDATE")

	tx := begin(t, r.DB, pgx.TxOptions{})
	txExec(t, tx, "INSERT INTO run VALUES ('r')")
	txExec(t, tx, "SET LOCAL lock_timeout = '50ms'")
	led := in(t, r.DB, tx)
	_, err := led.Reserve(t.Context(), hold("too much", 11, "a"))
	is(t, err, spendlimit.ErrDenied)
	_, err = led.Reserve(t.Context(), hold("waits", 1, "a", "b"))
	is(t, err, spendlimit.ErrUnavailable)
	if code(err) != "55P03" {
		t.Errorf("error %v, want one of the lock", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = r.WithTx(tx).Spend().Step(t.Context(), spendlimit.Need{Ledger: "default", Accounts: []string{"made"}}, func(int64, *spendlimit.Work) error { panic("f") })
	}()
	reserve(t, led, "fits", 3, "a")
	wants(t, led, "a", 3)
	commit(t, tx)
	wants(t, r.led, "a", 3)
	if n := ask[int](t, r.pool, "SELECT count(*) FROM run"); n != 1 {
		t.Error("the run is not there")
	}
	if n := ask[int](t, r.pool, "SELECT count(*) FROM stint.spend_account WHERE name = 'made'"); n != 0 {
		t.Error("a step that panicked made an account")
	}
}

func TestC8_ATransactionThatHasEnded(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	for name, end := range map[string]func(pgx.Tx) error{
		"committed":        func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
		"rolled back":      func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
		"committed by SQL": func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), "COMMIT"); return err },
	} {
		tx := begin(t, r.DB, pgx.TxOptions{})
		led := in(t, r.DB, tx)
		if err := end(tx); err != nil {
			t.Fatal(err)
		}
		_, err := led.Reserve(t.Context(), hold("k", 1, "a"))
		is(t, err, spendlimit.ErrClosed)
		isNot(t, err, spendlimit.ErrUncertain)
		if name != "committed by SQL" {
			is(t, err, pgx.ErrTxClosed)
		}
		for _, err = range led.Entries(t.Context(), "a", 0) {
			is(t, err, spendlimit.ErrClosed)
		}
	}
	failed := begin(t, r.DB, pgx.TxOptions{})
	_, _ = failed.Exec(t.Context(), "SELECT 1/0")
	_, err := in(t, r.DB, failed).Reserve(t.Context(), hold("k", 1, "a"))
	is(t, err, spendlimit.ErrUnavailable)
	isNot(t, err, spendlimit.ErrClosed)
	if failed.Conn().IsClosed() {
		t.Error("a transaction that had failed lost its connection")
	}
	_, err = in(t, r.DB, nil).Reserve(t.Context(), hold("k", 1, "a"))
	is(t, err, spendlimit.ErrInvalid)
	tx := begin(t, r.DB, pgx.TxOptions{})
	_ = r.Close()
	_, err = in(t, r.DB, tx).Reserve(t.Context(), hold("k", 1, "a"))
	is(t, err, spendlimit.ErrClosed)
}

// What was read of a ledger before its transaction was rolled back, wholly or to a savepoint, has never been.
func TestC8_ALedgerThatWasRolledBack(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	tokens := spendlimit.Config{Name: "tokens", Unit: spendlimit.Tokens}
	tx := begin(t, r.DB, pgx.TxOptions{})
	led := ledgerOn(t, r.WithTx(tx).Spend(), tokens)
	txExec(t, tx, "SAVEPOINT mine")
	setLimit(t, led, "a", 5)
	reserve(t, led, "k", 5, "a") // reads the ledger
	txExec(t, tx, "ROLLBACK TO SAVEPOINT mine")
	setLimit(t, led, "a", 6)
	reserve(t, led, "k", 6, "a")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	led = ledgerOn(t, r.Spend(), tokens)
	setLimit(t, led, "a", 7)
	reserve(t, led, "k", 7, "a")
	wants(t, led, "a", 7)
}

func TestC8_TheCallersSettingsStay(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	const settings = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings WHERE name LIKE 'enable%' OR name LIKE '%timeout'"
	tx := begin(t, r.DB, pgx.TxOptions{})
	led := in(t, r.DB, tx)
	for _, scan := range []string{"on", "off"} {
		txExec(t, tx, "SET LOCAL enable_seqscan = "+scan)
		var before, after string
		if err := tx.QueryRow(t.Context(), settings).Scan(&before); err != nil {
			t.Fatal(err)
		}
		reserve(t, led, "k"+scan, 1, "a")
		_, err := led.Reserve(t.Context(), hold("denied", 100, "a"))
		is(t, err, spendlimit.ErrDenied)
		if err := tx.QueryRow(t.Context(), settings).Scan(&after); err != nil {
			t.Fatal(err)
		}
		if before != after {
			t.Errorf("settings\n%s\nwere\n%s", after, before)
		}
	}
}

// Reads in a transaction see what it wrote, in every isolation, and one state of the data.
func TestC8_Reads(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	reserve(t, r.led, "before", 1, "a")
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		tx := begin(t, r.DB, pgx.TxOptions{IsoLevel: level})
		led := in(t, r.DB, tx)
		reserve(t, led, "mine", 2, "a")
		wants(t, led, "a", 3)
		var kinds []spendlimit.EntryKind
		for e, err := range led.Entries(t.Context(), "a", 0) {
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, e.Kind)
		}
		if want := []spendlimit.EntryKind{spendlimit.EntryLimit, spendlimit.EntryReserve, spendlimit.EntryReserve}; !slices.Equal(kinds, want) {
			t.Errorf("%s: entries %v, want %v", level, kinds, want)
		}
		if _, err := led.Check(t.Context(), hold("ask", 7, "a", "other")); !errors.Is(err, spendlimit.ErrNoLimit) {
			t.Errorf("%s: %v", level, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	tx := begin(t, r.DB, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	wants(t, in(t, r.DB, tx), "a", 1)
	if n := ask[int](t, r.pool, "SELECT count(*) FROM stint.spend_account"); n != 1 {
		t.Errorf("%d accounts: reading made one", n)
	}
}

// A snapshot that is older than what others wrote decides nothing.
func TestC8_AnOldSnapshotIsRefused(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	tx := begin(t, r.DB, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	txExec(t, tx, "SELECT 1")
	reserve(t, r.led, "theirs", 8, "a")
	_, err := in(t, r.DB, tx).Reserve(t.Context(), hold("mine", 8, "a"))
	is(t, err, spendlimit.ErrUnavailable)
	if code(err) != "40001" {
		t.Errorf("error %v, want a serialization failure", err)
	}
	wants(t, r.led, "a", 8)
}

func TestC8_AContextThatEndsInside(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	lock := begin(t, r.DB, pgx.TxOptions{})
	txExec(t, lock, "SELECT FROM stint.spend_account WHERE name = 'a' FOR UPDATE")
	tx := begin(t, r.DB, pgx.TxOptions{})
	txExec(t, tx, "INSERT INTO run VALUES ('r')")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := r.WithTx(tx).Spend().Step(ctx, spendlimit.Need{Ledger: "default", Accounts: []string{"a"}}, func(int64, *spendlimit.Work) error { return nil })
	is(t, err, spendlimit.ErrUnavailable)
	is(t, err, context.DeadlineExceeded)
	if err := tx.Commit(t.Context()); err == nil {
		t.Error("committed after a step that was broken off")
	}
}

func TestT57_TwoLedgersBothOrNone(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	_, err := r.led.Reserve(t.Context(), spendlimit.Request{Key: "k", Accounts: []string{"a"}, Amount: 1, Unit: "tokens"})
	is(t, err, spendlimit.ErrUnit)
	dollars, tokens := spendlimit.Config{Name: "usd", Unit: spendlimit.USD}, spendlimit.Config{Name: "tokens", Unit: spendlimit.Tokens}
	usd, tok := ledgerOn(t, r.Spend(), dollars), ledgerOn(t, r.Spend(), tokens)
	setLimit(t, usd, "a", 10)
	setLimit(t, tok, "a", 10)
	both := func(n spendlimit.Amount) error {
		tx := begin(t, r.DB, pgx.TxOptions{})
		if _, err := ledgerOn(t, r.WithTx(tx).Spend(), dollars).Reserve(t.Context(), hold("k", 4, "a")); err != nil {
			return err
		}
		if _, err := ledgerOn(t, r.WithTx(tx).Spend(), tokens).Reserve(t.Context(), hold("k", n, "a")); err != nil {
			return errors.Join(err, tx.Rollback(t.Context()))
		}
		return tx.Commit(t.Context())
	}
	is(t, both(11), spendlimit.ErrDenied)
	wants(t, usd, "a", 0)
	wants(t, tok, "a", 0)
	if err := both(5); err != nil {
		t.Fatal(err)
	}
	wants(t, usd, "a", 4)
	wants(t, tok, "a", 5)
}
