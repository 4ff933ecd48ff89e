package sqlite_test

import (
	"database/sql"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(childEnv) != "" {
		child()
		return
	}
	// A hundred runs of the model take minutes: ask for them with -rapid.checks=100.
	asked := os.Getenv("RAPID_CHECKS") != ""
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "rapid.checks" })
	if !asked {
		if err := flag.Set("rapid.checks", "8"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// drivers open a file with each driver. The suite makes thousands of commits, so it leaves out the wait for the disk.
var drivers = map[string]func(path string) (*sql.DB, error){
	"ncruces": func(path string) (*sql.DB, error) { return pool("ncruces", path, settings("off")...) },
	"modernc": func(path string) (*sql.DB, error) { return pool("modernc", path, settings("off")...) },
}

func settings(synchronous string) []string {
	return []string{
		"_txlock=immediate", "_pragma=busy_timeout(10000)", "_pragma=journal_mode(wal)", "_pragma=synchronous(" + synchronous + ")",
		"_pragma=foreign_keys(on)",
	}
}

// pool opens a file with parameters for the driver.
func pool(driver, path string, parameters ...string) (*sql.DB, error) {
	db, err := sql.Open(map[string]string{"ncruces": "sqlite3", "modernc": "sqlite"}[driver], "file:"+path+"?"+strings.Join(parameters, "&"))
	if err == nil {
		db.SetMaxOpenConns(4)
		db.SetMaxIdleConns(4)
	}
	return db, err
}

// onDrivers calls test for each driver, with a path for a file.
func onDrivers(t *testing.T, test func(t *testing.T, driver, path string)) {
	t.Parallel()
	for driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, driver, filepath.Join(t.TempDir(), "stint.db"))
		})
	}
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

// slow skips what makes one call after the other, and takes ten times as long under the race detector, which finds nothing there.
func slow(t *testing.T) {
	if raceDetector {
		t.Skip("runs without -race")
	}
}

func TestT8_EveryFaultHeals(t *testing.T) {
	slow(t)
	on(t, spendlimittest.CheckFaults)
}

func TestModel(t *testing.T) {
	slow(t)
	on(t, func(t *testing.T, open spendlimittest.Open) { spendlimittest.CheckModel(t, open) })
}

func TestLinearizable(t *testing.T) {
	on(t, func(t *testing.T, open spendlimittest.Open) {
		if !raceDetector {
			spendlimittest.CheckLinearizable(t, open)
			return
		}
		h, err := spendlimittest.RecordHistory(t, open, 1)
		if err != nil {
			t.Fatal(err)
		}
		if !h.Linearizable() {
			t.Fatalf("not linearizable:\n%s", h)
		}
	})
}

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
