package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	ncruces "github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/ext/serdes"
	modernc "modernc.org/sqlite"

	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

// ways is a store that takes another way to the same file with each step: two DBs on one pool, one on another, transactions of the
// caller that are committed or not, and statements by hand. Each must see what the others wrote.
type ways struct {
	spendlimit.Store // for reads
	pool             *sql.DB
	dbs              []*sqlite.DB

	mu   sync.Mutex
	dice *rand.Rand
}

func (w *ways) roll(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dice.IntN(n)
}

func (w *ways) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	db := w.dbs[w.roll(len(w.dbs))]
	switch w.roll(4) {
	case 0:
		return w.within(ctx, n, f, true)
	case 1: // does not happen
		if err := w.within(ctx, n, f, false); err != nil {
			return err
		}
	case 2: // the same rows, but who knows
		if _, err := w.pool.ExecContext(context.WithoutCancel(ctx), "UPDATE stint_spend_period SET held = held"); err != nil {
			return err
		}
	}
	return db.Spend().Step(ctx, n, f)
}

func (w *ways) within(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error, commit bool) error {
	tx, err := w.pool.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := w.dbs[0].WithTx(tx).Spend().Step(ctx, n, f); err != nil || !commit {
		return err
	}
	return tx.Commit()
}

func TestKnown_AnyWay(t *testing.T) {
	slow(t)
	t.Parallel()
	for name, driver := range drivers {
		open := func(t testing.TB, clock func() time.Time) spendlimittest.Handle {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			path := filepath.Join(t.TempDir(), "stint.db")
			w := &ways{dice: rand.New(rand.NewPCG(seed, 0))}
			for range 2 {
				pool, err := driver(path)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = pool.Close() })
				if err := sqlite.Migrate(t.Context(), pool); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					db, err := sqlite.New(t.Context(), pool, &sqlite.Options{Clock: clock})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() { _ = db.Close() })
					w.dbs = append(w.dbs, db)
				}
				if w.pool == nil {
					w.pool = pool
				}
			}
			w.Store = w.dbs[0].Spend()
			return spendlimittest.Handle{Store: w}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("model", func(t *testing.T) {
				t.Parallel()
				spendlimittest.CheckModel(t, open)
			})
			spendlimittest.Run(t, open)
		})
	}
}

// A row that was changed by hand on the very connection is read anew.
func TestKnown_ByHand(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		pool := must1(pool(driver, path, settings("off")...))(t)
		defer pool.Close()
		pool.SetMaxOpenConns(1)
		must(t, sqlite.Migrate(t.Context(), pool))
		db := must1(sqlite.New(t.Context(), pool, nil))(t)
		defer db.Close()
		led := must1(spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.Requests}))(t)
		must1(led.SetLimit(t.Context(), spendlimit.Limit{Account: "a", Name: "all", Kind: spendlimit.AllTime, Amount: 10}, ""))(t)
		for i, key := range []string{"one", "two", "three"} {
			must1(led.Reserve(t.Context(), spendlimit.Request{Key: key, Accounts: []string{"a"}, Amount: 1}))(t)
			must1(pool.ExecContext(t.Context(), "UPDATE stint_spend_period SET spent = spent + 2"))(t)
			for b, err := range led.Balances(t.Context(), "a", time.Time{}) {
				must(t, err)
				if want := spendlimit.Amount(2 * (i + 1)); b.Spent != want {
					t.Errorf("spent %d, want %d", b.Spent, want)
				}
			}
		}
		_, err := led.Reserve(t.Context(), spendlimit.Request{Key: "too much", Accounts: []string{"a"}, Amount: 2})
		is(t, err, spendlimit.ErrDenied)
	})
}

// What was found on one connection tells nothing about another, even if its counters are the same.
func TestKnown_AnotherConnection(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		ctx := t.Context()
		pool := must1(pool(driver, path, settings("off")...))(t)
		defer pool.Close()
		pool.SetMaxOpenConns(2)
		must(t, sqlite.Migrate(ctx, pool))
		db := must1(sqlite.New(ctx, pool, nil))(t)
		defer db.Close()
		led := must1(spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.Requests}))(t)
		must1(led.SetLimit(ctx, spendlimit.Limit{Account: "a", Name: "all", Kind: spendlimit.AllTime, Amount: 1_000_000}, ""))(t)
		ask := func(c *sql.Conn, text string) (n int) {
			must(t, c.QueryRowContext(ctx, text).Scan(&n))
			return n
		}
		version := func(c *sql.Conn) int { return ask(c, "PRAGMA data_version") }
		changes := func(c *sql.Conn) int { return ask(c, "SELECT total_changes()") }
		write := func(c *sql.Conn, text string) { must1(c.ExecContext(ctx, text))(t) }
		const one, twenty, spend = "UPDATE pad SET n = n + 1 WHERE rowid = 1", "UPDATE pad SET n = n + 1", "UPDATE stint_spend_period SET spent = spent + 1"
		must1(pool.ExecContext(ctx, "CREATE TABLE pad AS WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 20) SELECT n FROM c"))(t)
		must1(led.Reserve(ctx, spendlimit.Request{Key: "first", Accounts: []string{"a"}, Amount: 1}))(t)

		a, b := must1(pool.Conn(ctx))(t), must1(pool.Conn(ctx))(t)
		// What a's step commits moves b's version on by one.
		for range 100 {
			switch {
			case version(b)+1 > version(a):
				write(b, one)
			case version(b)+1 < version(a), changes(a) < changes(b)+10:
				write(a, twenty)
			}
		}
		seen := version(a)
		must(t, a.Close()) // so that it is the free one
		must1(led.Reserve(ctx, spendlimit.Request{Key: "on a", Accounts: []string{"a"}, Amount: 1}))(t)
		a = must1(pool.Conn(ctx))(t)
		spent := 0
		for ; changes(b) < changes(a); spent++ {
			write(b, spend)
		}
		if a, b := changes(a), changes(b); a != b || spent == 0 {
			t.Fatalf("%d and %d changes, %d spent: the counters differ", a, b, spent)
		}
		if v := version(b); v != seen {
			t.Fatalf("versions %d and %d", v, seen)
		}
		must(t, b.Close())
		must1(led.Charge(ctx, spendlimit.Expense{ID: "on b", Accounts: []string{"a"}, Cost: spendlimit.Total(1)}))(t)
		must(t, a.Close())
		for b, err := range led.Balances(ctx, "a", time.Time{}) {
			must(t, err)
			if b.Spent != spendlimit.Amount(spent+1) {
				t.Errorf("spent %d, want %d", b.Spent, spent+1)
			}
		}
	})
}

// Rows come into a file without a change that SQLite counts: by a backup that is restored, and under another table's name.
func TestKnown_Replaced(t *testing.T) {
	t.Parallel()
	for how, replace := range map[string]func(t *testing.T, pool *sql.DB, backup string){"restored": restore, "renamed": rename} {
		t.Run(how, func(t *testing.T) {
			onDrivers(t, func(t *testing.T, driver, path string) {
				ctx := t.Context()
				pool := must1(pool(driver, path, settings("off")...))(t)
				defer pool.Close()
				pool.SetMaxOpenConns(1)
				must(t, sqlite.Migrate(ctx, pool))
				db := must1(sqlite.New(ctx, pool, nil))(t)
				defer db.Close()
				led := must1(spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.Requests}))(t)
				must1(led.SetLimit(ctx, spendlimit.Limit{Account: "a", Name: "all", Kind: spendlimit.AllTime, Amount: 10}, ""))(t)
				must1(led.Charge(ctx, spendlimit.Expense{ID: "all but one", Accounts: []string{"a"}, Cost: spendlimit.Total(9)}))(t)
				backup := path + ".backup"
				must1(pool.ExecContext(ctx, "VACUUM INTO ?", backup))(t)
				must1(pool.ExecContext(ctx, "CREATE TABLE backup AS SELECT * FROM stint_spend_period"))(t)
				must1(led.Adjust(ctx, spendlimit.Adjustment{ID: "back", Account: "a", By: -9, Reason: "test"}))(t)
				must1(led.Reserve(ctx, spendlimit.Request{Key: "before", Accounts: []string{"a"}, Amount: 1}))(t)
				must1(led.Release(ctx, "before"))(t) // all of it is known by now

				replace(t, pool, backup)
				_, err := led.Reserve(ctx, spendlimit.Request{Key: "too much", Accounts: []string{"a"}, Amount: 2})
				is(t, err, spendlimit.ErrDenied)
			})
		})
	}
}

func restore(t *testing.T, pool *sql.DB, backup string) {
	c := must1(pool.Conn(t.Context()))(t)
	defer c.Close()
	must(t, c.Raw(func(one any) error {
		switch one := one.(type) {
		case ncruces.Conn:
			return one.Raw().Restore("main", backup)
		case interface {
			NewRestore(source string) (*modernc.Backup, error)
		}:
			b, err := one.NewRestore(backup)
			if err != nil {
				return err
			}
			_, err = b.Step(-1)
			return errors.Join(err, b.Finish())
		}
		return fmt.Errorf("a connection of type %T", one)
	}))
}

func rename(t *testing.T, pool *sql.DB, _ string) {
	for _, text := range []string{
		"PRAGMA foreign_keys = off", "PRAGMA legacy_alter_table = on", // else the tables that point at it follow
		"ALTER TABLE stint_spend_period RENAME TO gone", "ALTER TABLE backup RENAME TO stint_spend_period",
	} {
		must1(pool.ExecContext(t.Context(), text))(t)
	}
}

// A backup may have given its ledgers other ids.
func TestKnown_RestoredLedgers(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		ctx := t.Context()
		ledgers := func(path string, names ...string) (*sql.DB, map[string]*spendlimit.Ledger) {
			pool := must1(pool(driver, path, settings("off")...))(t)
			t.Cleanup(func() { _ = pool.Close() })
			pool.SetMaxOpenConns(1)
			must(t, sqlite.Migrate(ctx, pool))
			db := must1(sqlite.New(ctx, pool, nil))(t)
			t.Cleanup(func() { _ = db.Close() })
			all := map[string]*spendlimit.Ledger{}
			for _, name := range names {
				led := must1(spendlimit.New(db.Spend(), spendlimit.Config{Name: name, Unit: spendlimit.Requests}))(t)
				must1(led.SetLimit(ctx, spendlimit.Limit{Account: "a", Name: "all", Kind: spendlimit.AllTime, Amount: 10}, ""))(t)
				must1(led.Charge(ctx, spendlimit.Expense{ID: "c", Accounts: []string{"a"}, Cost: spendlimit.Total(spendlimit.Amount(len(name)))}))(t)
				all[name] = led
			}
			return pool, all
		}
		ledgers(path+".backup", "one", "three")
		pool, all := ledgers(path, "three", "one")
		restore(t, pool, path+".backup")
		spent := func(name string, want spendlimit.Amount) {
			for b, err := range all[name].Balances(ctx, "a", time.Time{}) {
				must(t, err)
				if b.Spent != want {
					t.Errorf("%s: spent %d, want %d", name, b.Spent, want)
				}
			}
		}
		spent("one", 3)
		spent("three", 5)
		must1(all["one"].Charge(ctx, spendlimit.Expense{ID: "d", Accounts: []string{"a"}, Cost: spendlimit.Total(1)}))(t)
		spent("one", 4)
		spent("three", 5)
	})
}

// A database in memory may be another one on the same connection, and nothing tells.
func TestKnown_Deserialized(t *testing.T) {
	t.Parallel()
	for driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			ctx := t.Context()
			pool := must1(pool(driver, ":memory:", "_txlock=immediate"))(t)
			defer pool.Close()
			pool.SetMaxOpenConns(1)
			must(t, sqlite.Migrate(ctx, pool))
			db := must1(sqlite.New(ctx, pool, nil))(t)
			defer db.Close()
			led := must1(spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.Requests}))(t)
			must1(led.SetLimit(ctx, spendlimit.Limit{Account: "a", Name: "all", Kind: spendlimit.AllTime, Amount: 10}, ""))(t)
			must1(led.Charge(ctx, spendlimit.Expense{ID: "all but one", Accounts: []string{"a"}, Cost: spendlimit.Total(9)}))(t)
			raw := func(do func(one any) error) {
				c := must1(pool.Conn(ctx))(t)
				defer c.Close()
				must(t, c.Raw(do))
			}
			var image []byte
			raw(func(one any) (err error) {
				if one, ok := one.(ncruces.Conn); ok {
					image, err = serdes.Serialize(one.Raw(), "main")
					return err
				}
				image, err = one.(interface{ Serialize() ([]byte, error) }).Serialize()
				return err
			})
			must1(led.Adjust(ctx, spendlimit.Adjustment{ID: "back", Account: "a", By: -9, Reason: "test"}))(t)
			must1(led.Reserve(ctx, spendlimit.Request{Key: "before", Accounts: []string{"a"}, Amount: 1}))(t)
			must1(led.Release(ctx, "before"))(t)
			raw(func(one any) error {
				if one, ok := one.(ncruces.Conn); ok {
					return serdes.Deserialize(one.Raw(), "main", image)
				}
				return one.(interface{ Deserialize(image []byte) error }).Deserialize(image)
			})
			_, err := led.Reserve(ctx, spendlimit.Request{Key: "too much", Accounts: []string{"a"}, Amount: 2})
			is(t, err, spendlimit.ErrDenied)
		})
	}
}
