package sqlite_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/allocator/allocatortest"
)

// share is a child that takes slots and gives them back.
func share(ctx context.Context, db *sqlite.DB, path, name string) error {
	p, err := allocatortest.SharedPool(ctx, db.Pools())
	if err != nil {
		return err
	}
	return allocatortest.Share(ctx, p, filepath.Dir(path), name, 1000)
}

// Processes that are killed at random leave no slot in two hands, and none lost.
func TestT26_KilledHolders(t *testing.T) {
	slow(t)
	onDrivers(t, func(t *testing.T, driver, path string) {
		db := must1(pool(driver, path, settings("full")...))(t)
		defer db.Close()
		must(t, sqlite.Migrate(t.Context(), db))
		store := must1(sqlite.New(t.Context(), db, nil))(t)
		defer store.Close()
		p := must1(allocatortest.SharedPool(t.Context(), store.Pools()))(t)
		allocatortest.KillHolders(t, loadTime(), func(name string) *exec.Cmd {
			return childCommand(t.Context(), "share", driver, path, name)
		})
		if leases := must1(allocatortest.CheckShared(t.Context(), p))(t); leases < 5 {
			t.Errorf("no more than %d leases", leases)
		}
	})
}
