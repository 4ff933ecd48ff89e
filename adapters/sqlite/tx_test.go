package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

// world is a file with a table of the caller's, and limits of 10 USD and 10 tokens a day on acme.
type world struct {
	testing.TB
	sql *sql.DB
	db  *sqlite.DB
}

func newWorld(t testing.TB, driver, path string, parameters ...string) *world {
	t.Helper()
	if len(parameters) == 0 {
		parameters = settings("off")
	}
	pool := must1(pool(driver, path, parameters...))(t)
	t.Cleanup(func() { _ = pool.Close() })
	must(t, sqlite.Migrate(t.Context(), pool))
	db := must1(sqlite.New(t.Context(), pool, nil))(t)
	t.Cleanup(func() { _ = db.Close() })
	must1(pool.ExecContext(t.Context(), "CREATE TABLE IF NOT EXISTS job (id TEXT PRIMARY KEY)"))(t)
	w := &world{t, pool, db}
	for _, led := range []*spendlimit.Ledger{w.usd(db.Spend()), w.tokens(db.Spend())} {
		l := spendlimit.Limit{Account: "acme", Name: "day", Kind: spendlimit.Day, Amount: 10}
		must1(led.SetLimit(t.Context(), l, ""))(t)
	}
	return w
}

func (w *world) ledger(s spendlimit.Store, name string, u spendlimit.Unit) *spendlimit.Ledger {
	w.Helper()
	return must1(spendlimit.New(s, spendlimit.Config{Name: name, Unit: u}))(w)
}

func (w *world) usd(s spendlimit.Store) *spendlimit.Ledger { return w.ledger(s, "usd", spendlimit.USD) }
func (w *world) tokens(s spendlimit.Store) *spendlimit.Ledger {
	return w.ledger(s, "tokens", spendlimit.Tokens)
}

func (w *world) begin() *sql.Tx {
	w.Helper()
	tx := must1(w.sql.BeginTx(w.Context(), nil))(w)
	w.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// has checks how many jobs are stored, and what is held in both ledgers.
func (w *world) has(jobs int, usd, tokens spendlimit.Amount) {
	w.Helper()
	var n int
	must(w, w.sql.QueryRowContext(w.Context(), "SELECT count(*) FROM job").Scan(&n))
	held := func(led *spendlimit.Ledger) (sum spendlimit.Amount) {
		for b, err := range led.Balances(w.Context(), "acme", time.Time{}) {
			must(w, err)
			sum += b.Held
		}
		diffs, err := led.Verify(w.Context(), "acme")
		must(w, err)
		if len(diffs) > 0 {
			w.Errorf("differences %v", diffs)
		}
		return sum
	}
	u, k := held(w.usd(w.db.Spend())), held(w.tokens(w.db.Spend()))
	if n != jobs || u != usd || k != tokens {
		w.Errorf("%d jobs, held %d and %d, want %d, %d and %d", n, u, k, jobs, usd, tokens)
	}
}

// clean checks that no connection was left inside a transaction: all of them take a writer, and none is in use.
func (w *world) clean() {
	w.Helper()
	if n := w.sql.Stats().InUse; n > 0 {
		w.Errorf("%d connections in use", n)
	}
	var conns []*sql.Conn
	for range w.sql.Stats().OpenConnections {
		conns = append(conns, must1(w.sql.Conn(w.Context()))(w))
	}
	for _, c := range conns {
		for _, text := range []string{"BEGIN IMMEDIATE", "INSERT INTO job VALUES ('clean')", "ROLLBACK"} {
			must1(c.ExecContext(w.Context(), text))(w)
		}
		must(w, c.Close())
	}
}

func ask(key string, n spendlimit.Amount) spendlimit.Request {
	return spendlimit.Request{Key: key, Accounts: []string{"acme"}, Amount: n, TTL: time.Hour}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must1[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

func is(t testing.TB, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("error %v, want %v", err, w)
		}
	}
}

const addJob = "INSERT INTO job VALUES (?)"

func TestC8_OneCommitForBoth(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		w := newWorld(t, driver, path)
		for i, commit := range []bool{false, true} {
			tx := w.begin()
			must1(tx.ExecContext(t.Context(), addJob, "job"))(t)
			must1(w.usd(w.db.WithTx(tx).Spend()).Reserve(t.Context(), ask("job", 4)))(t)
			if commit {
				must(t, tx.Commit())
			} else {
				must(t, tx.Rollback())
			}
			w.has(i, 4*spendlimit.Amount(i), 0)
		}
		w.clean()
	})
}

func TestT57_SecondLedgerDenied(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		w := newWorld(t, driver, path)
		tx := w.begin()
		in := w.db.WithTx(tx).Spend()
		must1(w.usd(in).Reserve(t.Context(), ask("call", 10)))(t)
		_, err := w.tokens(in).Reserve(t.Context(), ask("call", 11))
		is(t, err, spendlimit.ErrDenied)
		must(t, tx.Rollback())
		w.has(0, 0, 0)

		tx = w.begin()
		in = w.db.WithTx(tx).Spend()
		must1(w.usd(in).Reserve(t.Context(), ask("call", 10)))(t)
		must1(w.tokens(in).Reserve(t.Context(), ask("call", 10)))(t)
		must(t, tx.Commit())
		w.has(0, 10, 10)
	})
}

// A step that fails half way, after rows were written, leaves the transaction as it was before it.
func TestC8_FailedStepLeavesTheTransaction(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		w := newWorld(t, driver, path)
		// The last rows that a step writes are refused.
		must1(w.sql.ExecContext(t.Context(), `CREATE TRIGGER refuse BEFORE INSERT ON stint_spend_entry WHEN NEW.ref = 'refused'
			BEGIN SELECT RAISE(ABORT, 'refused'); END`))(t)
		tx := w.begin()
		led := w.usd(w.db.WithTx(tx).Spend())
		must1(tx.ExecContext(t.Context(), addJob, "before"))(t)
		must1(led.Reserve(t.Context(), ask("first", 2)))(t)
		_, err := led.Reserve(t.Context(), ask("refused", 3))
		is(t, err, spendlimit.ErrUnavailable)
		func() {
			defer func() { _ = recover() }()
			_ = w.db.WithTx(tx).Spend().Step(t.Context(), spendlimit.Need{Ledger: "usd"}, func(int64, *spendlimit.Work) error { panic("f") })
		}()
		must1(led.Reserve(t.Context(), ask("second", 5)))(t)
		must1(tx.ExecContext(t.Context(), addJob, "after"))(t)
		must(t, tx.Commit())
		w.has(2, 7, 0)
		_, err = w.usd(w.db.Spend()).Hold(t.Context(), "refused")
		is(t, err, spendlimit.ErrNotFound)
		w.clean()
	})
}

func TestC8_EndedTransaction(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		w := newWorld(t, driver, path)
		for _, end := range []func(*sql.Tx) error{(*sql.Tx).Commit, (*sql.Tx).Rollback} {
			tx := w.begin()
			in := w.db.WithTx(tx).Spend()
			must(t, end(tx))
			_, err := w.usd(in).Reserve(t.Context(), ask("late", 1))
			is(t, err, spendlimit.ErrClosed, sql.ErrTxDone)
			_, err = in.Read(t.Context(), spendlimit.Query{Ledger: "usd", Kind: spendlimit.QueryHolds, Max: 1})
			is(t, err, spendlimit.ErrClosed, sql.ErrTxDone)
		}
		_, err := w.usd(w.db.WithTx(nil).Spend()).Reserve(t.Context(), ask("none", 1))
		is(t, err, spendlimit.ErrUnavailable, spendlimit.ErrInvalid)
		ctx, cancel := context.WithCancel(t.Context())
		tx := must1(w.sql.BeginTx(ctx, nil))(t)
		cancel()
		_, err = w.usd(w.db.WithTx(tx).Spend()).Reserve(t.Context(), ask("cancelled", 1))
		if err != nil && !errors.Is(err, spendlimit.ErrClosed) && !errors.Is(err, spendlimit.ErrUnavailable) {
			t.Error(err)
		}
		if tx.Commit() == nil { // package sql rolls back in its own time, but never commits
			t.Error("a cancelled transaction was committed")
		}
		_ = tx.Rollback()
		w.has(0, 0, 0)
		w.clean()
	})
}

// A ledger that was first used in a transaction that was rolled back is not known afterwards.
func TestC8_NothingIsRememberedOfARollback(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		w := newWorld(t, driver, path)
		allow := func(s spendlimit.Store, name string) *spendlimit.Ledger {
			return must1(spendlimit.New(s, spendlimit.Config{Name: name, Unit: spendlimit.USD, NoLimit: spendlimit.Allow}))(t)
		}
		tx := w.begin()
		for _, key := range []string{"a", "b"} { // the second step reads what the first wrote
			must1(allow(w.db.WithTx(tx).Spend(), "first").Reserve(t.Context(), ask(key, 1)))(t)
		}
		must(t, tx.Rollback())
		must1(allow(w.db.Spend(), "second").Reserve(t.Context(), ask("k", 1)))(t) // gets the ids of what was rolled back
		must1(allow(w.db.Spend(), "first").Reserve(t.Context(), ask("k", 2)))(t)
		for name, want := range map[string]spendlimit.Amount{"first": 2, "second": 1} {
			if h := must1(allow(w.db.Spend(), name).Hold(t.Context(), "k"))(t); h.Granted != want {
				t.Errorf("ledger %s: granted %d, want %d", name, h.Granted, want)
			}
		}
	})
}

// In a transaction that has read before another wrote, and can't write any more, the error says what to do.
func TestC8_DeferredTransaction(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		w := newWorld(t, driver, path, "_txlock=deferred", "_pragma=busy_timeout(50)", "_pragma=journal_mode(wal)", "_pragma=foreign_keys(on)")
		tx := w.begin()
		var n int
		must(t, tx.QueryRowContext(t.Context(), "SELECT count(*) FROM job").Scan(&n))
		must1(w.usd(w.db.Spend()).Reserve(t.Context(), ask("other", 1)))(t)
		_, err := w.usd(w.db.WithTx(tx).Spend()).Reserve(t.Context(), ask("mine", 1))
		is(t, err, spendlimit.ErrUnavailable)
		if want := "begin it IMMEDIATE"; err == nil || !contains(err, want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		must(t, tx.Rollback())
		w.has(0, 1, 0)
		w.clean()
	})
}

// The suite, with every step in a transaction of its own.
func TestC8_Conformance(t *testing.T) {
	slow(t)
	onDrivers(t, func(t *testing.T, driver, _ string) {
		spendlimittest.Run(t, func(t testing.TB, clock func() time.Time) spendlimittest.Handle {
			return inTx(t, driver, filepath.Join(t.TempDir(), "stint.db"), clock)
		})
	})
}

func inTx(t testing.TB, driver, path string, clock func() time.Time) spendlimittest.Handle {
	pool := must1(pool(driver, path, settings("off")...))(t)
	t.Cleanup(func() { _ = pool.Close() })
	must(t, sqlite.Migrate(t.Context(), pool))
	db := must1(sqlite.New(t.Context(), pool, &sqlite.Options{Clock: clock}))(t)
	again := func(t testing.TB) spendlimittest.Handle { return inTx(t, driver, path, clock) }
	return spendlimittest.Handle{Store: txStore{pool, db}, Close: db.Close, Again: again}
}

type txStore struct {
	sql *sql.DB
	db  *sqlite.DB
}

func (s txStore) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	return s.tx(func(in *sqlite.Tx) error { return in.Spend().Step(ctx, n, f) })
}

func (s txStore) Read(ctx context.Context, q spendlimit.Query) (page spendlimit.Page, err error) {
	err = s.tx(func(in *sqlite.Tx) error {
		page, err = in.Spend().Read(ctx, q)
		return err
	})
	return page, err
}

func (s txStore) tx(do func(*sqlite.Tx) error) error {
	tx, err := s.sql.Begin()
	if err != nil {
		return errors.Join(spendlimit.ErrUnavailable, err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := do(s.db.WithTx(tx)); err != nil {
		return err
	}
	return tx.Commit()
}
