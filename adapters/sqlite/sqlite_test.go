package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	ncruces "github.com/ncruces/go-sqlite3/driver"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// drivers open a file with each driver. The suite makes thousands of commits, so it leaves out the wait for the disk.
var drivers = map[string]func(path string) (*sql.DB, error){
	"ncruces": func(path string) (*sql.DB, error) {
		return ncruces.Open("file:" + path + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)&_pragma=foreign_keys(on)")
	},
	"modernc": func(path string) (*sql.DB, error) {
		return sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)&_pragma=foreign_keys(on)")
	},
}

// on calls test for each driver, with a way to open stores.
func on(t *testing.T, test func(t *testing.T, open spendlimittest.Open)) {
	t.Parallel()
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(t testing.TB, clock func() time.Time) spendlimittest.Handle {
				return handle(t, driver, filepath.Join(t.TempDir(), "stint.db"), clock)
			})
		})
	}
}

func handle(t testing.TB, driver func(path string) (*sql.DB, error), path string, clock func() time.Time) spendlimittest.Handle {
	db, err := driver(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := sqlite.Migrate(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.New(t.Context(), db, &sqlite.Options{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	again := func(t testing.TB) spendlimittest.Handle { return handle(t, driver, path, clock) }
	return spendlimittest.Handle{Store: s.Spend(), Close: s.Close, Again: again}
}

func TestConformance(t *testing.T) { on(t, spendlimittest.Run) }

func TestT8_EveryFaultHeals(t *testing.T) { on(t, spendlimittest.CheckFaults) }

func TestModel(t *testing.T) {
	on(t, func(t *testing.T, open spendlimittest.Open) { spendlimittest.CheckModel(t, open) })
}

func TestLinearizable(t *testing.T) { on(t, spendlimittest.CheckLinearizable) }

// What one file says of its ledgers is not true of another's.
func TestC7_TwoFiles(t *testing.T) {
	t.Parallel()
	for driver, source := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
				h := handle(t, source, filepath.Join(t.TempDir(), "stint.db"), time.Now)
				for _, name := range order {
					led, err := spendlimit.New(h.Store, spendlimit.Config{Name: name, Unit: spendlimit.Unit{Code: name}, NoLimit: spendlimit.Allow})
					if err != nil {
						t.Fatal(err)
					}
					for _, id := range []string{"1", "2"} {
						_, err := led.Charge(t.Context(), spendlimit.Expense{ID: id, Accounts: []string{"acme"}, Cost: spendlimit.Total(1)})
						if err != nil {
							t.Errorf("ledger %s, made in order %v: %v", name, order, err)
						}
					}
				}
			}
		})
	}
}
