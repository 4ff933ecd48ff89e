package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit"
)

// inTime runs a call whose caller waits for 300 ms. It fails the test if the call takes much longer, or if its error
// leaves open whether it was applied.
func inTime(t *testing.T, what string, call func(ctx context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := call(ctx)
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("%s: took %v", what, took)
	}
	if !errors.Is(err, spendlimit.ErrUnavailable) || errors.Is(err, spendlimit.ErrUncertain) || errors.Is(err, spendlimit.ErrDenied) {
		t.Errorf("%s: error %v", what, err)
	}
	return err
}

// The server itself refuses: each way has its own code, none shows a password, and all say that nothing was applied.
func TestT76_RefusedByTheServer(t *testing.T) {
	t.Parallel()
	dsn, _ := testdb.PostgresWithPassword(t)
	admin := newPool(t, dsn)
	if err := Migrate(t.Context(), admin, nil); err != nil {
		t.Fatal(err)
	}
	const secret = "hunter2hunter2"
	sql(t, admin, "CREATE ROLE nobody LOGIN PASSWORD '"+secret+"'; CREATE ROLE crowd LOGIN PASSWORD '"+secret+"' CONNECTION LIMIT 0")
	for _, test := range []struct{ name, dsn, code string }{
		{"wrong password", "password=" + secret, "28P01"},
		{"no such role", "user=none password=" + secret, "28P01"}, // which says the same, on purpose
		{"no such database", "dbname=none", "3D000"},
		{"too many connections", "user=crowd password=" + secret, "53300"},
		{"no rights", "user=nobody password=" + secret, "42501"},
	} {
		pool := newPool(t, dsn+" "+test.dsn)
		for what, call := range map[string]func(context.Context) error{
			"new":     func(ctx context.Context) error { _, err := New(ctx, pool, nil); return err },
			"migrate": func(ctx context.Context) error { return Migrate(ctx, pool, &Options{Schema: "other"}) },
		} {
			err := inTime(t, test.name+": "+what, call)
			if code(err) != test.code || strings.Contains(fmt.Sprint(err), secret) {
				t.Errorf("%s: %s: %v, want %s", test.name, what, err, test.code)
			}
		}
	}
}

// A password that is changed under a process that runs: it refuses, and goes on when it has the right one.
func TestT76_PasswordChanged(t *testing.T) {
	t.Parallel()
	dsn, _ := testdb.PostgresWithPassword(t)
	admin := newPool(t, dsn)
	if err := Migrate(t.Context(), admin, nil); err != nil {
		t.Fatal(err)
	}
	sql(t, admin, "CREATE ROLE service LOGIN SUPERUSER PASSWORD 'first'")
	var password atomic.Value // the pool connects in goroutines of its own
	password.Store("first")
	pool := newPool(t, dsn+" user=service", func(cfg *pgxpool.Config) {
		cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			c.Password = password.Load().(string)
			return nil
		}
	})
	led := newLedger(t, pool, nil)
	setLimit(t, led, "a", 10)
	reserve(t, led, "before", 1, "a")

	sql(t, admin, "ALTER ROLE service PASSWORD 'second'")
	reserve(t, led, "connected", 1, "a")
	pool.Reset()
	err := inTime(t, "reserve", func(ctx context.Context) error { _, err := led.Reserve(ctx, hold("refused", 1, "a")); return err })
	if code(err) != "28P01" {
		t.Errorf("error %v", err)
	}
	password.Store("second")
	reserve(t, led, "after", 1, "a")
	wants(t, led, "a", 3)
}

// calls are those of a ledger that end with their caller's context. There is a hold "k" on account a.
func calls(led *spendlimit.Ledger) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"reserve":      func(ctx context.Context) error { _, err := led.Reserve(ctx, hold("new", 1, "a")); return err },
		"reserve wait": func(ctx context.Context) error { _, err := led.ReserveWait(ctx, hold("new", 1, "a")); return err },
		"check":        func(ctx context.Context) error { _, err := led.Check(ctx, hold("new", 1, "a")); return err },
		"dispatch":     func(ctx context.Context) error { return led.Dispatch(ctx, "k") },
		"set limit": func(ctx context.Context) error {
			_, err := led.SetLimit(ctx, spendlimit.Limit{Account: "a", Name: "new", Kind: spendlimit.AllTime, Amount: 1}, "")
			return err
		},
		"charge": func(ctx context.Context) error {
			_, err := led.Charge(ctx, spendlimit.Expense{ID: "c", Accounts: []string{"a"}, Cost: spendlimit.Total(1)})
			return err
		},
		"hold":   func(ctx context.Context) error { _, err := led.Hold(ctx, "k"); return err },
		"sweep":  func(ctx context.Context) error { _, err := led.Sweep(ctx, 10); return err },
		"verify": func(ctx context.Context) error { _, err := led.Verify(ctx, "a"); return err },
		"holds": func(ctx context.Context) error {
			for _, err := range led.Holds(ctx, spendlimit.HoldFilter{}) {
				return err
			}
			return nil
		},
		"entries": func(ctx context.Context) error {
			for _, err := range led.Entries(ctx, "a", 0) {
				return err
			}
			return nil
		},
		"balances": func(ctx context.Context) error {
			for _, err := range led.Balances(ctx, "a", time.Time{}) {
				return err
			}
			return nil
		},
	}
}

// ending are those that must not be lost with their caller: they have 5 s of their own (R47).
func ending(led *spendlimit.Ledger) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"settle":  func(ctx context.Context) error { _, err := led.Settle(ctx, "k", spendlimit.Total(1)); return err },
		"release": func(ctx context.Context) error { _, err := led.Release(ctx, "k"); return err },
		"record": func(ctx context.Context) error {
			_, err := led.Record(ctx, spendlimit.Usage{Hold: "k", ID: "u", Cost: spendlimit.Total(1)})
			return err
		},
	}
}

// The server goes while calls are under way, and stays away: they end, and so do all later ones.
func TestT76_DeadServer(t *testing.T) {
	t.Parallel()
	dsn, stop := testdb.PostgresWithPassword(t)
	pool := newPool(t, dsn)
	if err := Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	led := newLedger(t, pool, nil)
	setLimit(t, led, "a", 1_000_000)
	reserve(t, led, "k", 1, "a")
	began := make(chan struct{}, 4)
	var all sync.WaitGroup
	for caller := range cap(began) {
		all.Go(func() {
			for n := range 100_000 {
				_, err := led.Reserve(t.Context(), hold(fmt.Sprint(caller, " ", n), 1, "a")) // without a deadline
				if n == 0 {
					began <- struct{}{}
				}
				if err != nil {
					if errors.Is(err, spendlimit.ErrUnavailable) == errors.Is(err, spendlimit.ErrUncertain) {
						t.Errorf("under way: %v", err)
					}
					return
				}
			}
			t.Error("the server did not go")
		})
	}
	for range cap(began) {
		<-began
	}
	stop()
	start := time.Now()
	all.Wait()
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("under way: took %v", took)
	}
	for _, list := range []map[string]func(context.Context) error{calls(led), ending(led)} {
		for what, call := range list {
			_ = inTime(t, what, call)
		}
	}
	_ = inTime(t, "migrate", func(ctx context.Context) error { return Migrate(ctx, pool, nil) })
	_ = inTime(t, "new", func(ctx context.Context) error { _, err := New(ctx, pool, nil); return err })
}

// The only connection of a pool is taken, by a transaction of the caller that may even wait for this very call: each
// ends with its caller's time, or with its own.
func TestC6_APoolOfOneIsTaken(t *testing.T) {
	t.Parallel()
	r := newRoom(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	reserve(t, r.led, "k", 1, "a")
	tx := begin(t, r.DB, pgx.TxOptions{})
	txExec(t, tx, "SELECT 1")
	var all sync.WaitGroup
	own := func() *spendlimit.Ledger { return ledgerOn(t, r.Spend(), spendlimit.Config{}) } // no call waits for another one
	for what := range calls(nil) {
		all.Go(func() {
			if err := inTime(t, what, calls(own())[what]); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: error %v", what, err)
			}
		})
	}
	for what := range ending(nil) {
		all.Go(func() {
			start := time.Now()
			err := ending(own())[what](t.Context())
			if took := time.Since(start); took > 7*time.Second {
				t.Errorf("%s: took %v", what, took)
			}
			if !errors.Is(err, spendlimit.ErrUnavailable) || errors.Is(err, spendlimit.ErrUncertain) {
				t.Errorf("%s: error %v", what, err)
			}
		})
	}
	all.Go(func() { _ = inTime(t, "migrate", func(ctx context.Context) error { return Migrate(ctx, r.pool, nil) }) })
	all.Go(func() {
		_ = inTime(t, "new", func(ctx context.Context) error { _, err := New(ctx, r.pool, nil); return err })
	})
	all.Wait()
	commit(t, tx)
	wants(t, r.led, "a", 1)
	if _, err := r.led.Settle(t.Context(), "k", spendlimit.Total(1)); err != nil {
		t.Error(err)
	}
}
