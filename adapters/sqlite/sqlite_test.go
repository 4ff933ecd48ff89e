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
