package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/allocator/allocatortest"
)

func TestPools_Model(t *testing.T) {
	slow(t)
	onDrivers(t, func(t *testing.T, driver, _ string) {
		allocatortest.CheckModel(t, func(t testing.TB, clock func() time.Time) allocatortest.Handle {
			return poolHandle(t, drivers[driver], filepath.Join(t.TempDir(), "stint.db"), clock)
		})
	})
}

func poolHandle(t testing.TB, driver func(path string) (*sql.DB, error), path string, clock func() time.Time) allocatortest.Handle {
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
	return allocatortest.Handle{Store: s.Pools(), Close: s.Close}
}
