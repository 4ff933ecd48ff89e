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

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, open := range drivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spendlimittest.Run(t, func(t testing.TB, clock func() time.Time) spendlimittest.Handle {
				path := filepath.Join(t.TempDir(), "stint.db")
				var handle func(t testing.TB) spendlimittest.Handle
				handle = func(t testing.TB) spendlimittest.Handle {
					db, err := open(path)
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
					return spendlimittest.Handle{Store: s.Spend(), Close: s.Close, Again: handle}
				}
				return handle(t)
			})
		})
	}
}
