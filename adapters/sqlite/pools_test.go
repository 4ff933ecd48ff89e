package sqlite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/allocator"
	"github.com/stint-go/stint/allocator/allocatortest"
)

// onPools calls test for each driver, with a way to open stores.
func onPools(t *testing.T, test func(t *testing.T, open allocatortest.Open)) {
	t.Parallel()
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(t testing.TB, clock func() time.Time) allocatortest.Handle {
				return poolHandle(t, driver, filepath.Join(t.TempDir(), "stint.db"), clock)
			})
		})
	}
}

func poolHandle(t testing.TB, driver func(path string) (*sql.DB, error), path string, clock func() time.Time) allocatortest.Handle {
	db := must1(driver(path))(t)
	t.Cleanup(func() { _ = db.Close() })
	must(t, sqlite.Migrate(t.Context(), db))
	s := must1(sqlite.New(t.Context(), db, &sqlite.Options{Clock: clock}))(t)
	t.Cleanup(func() { _ = s.Close() })
	change := func(t testing.TB, text string, args ...any) {
		t.Helper()
		result := must1(db.ExecContext(t.Context(), text, args...))(t)
		if n := must1(result.RowsAffected())(t); n != 1 {
			t.Fatalf("%s: %d rows", text, n)
		}
	}
	const ofPool = " AND pool_id = (SELECT id FROM stint_alloc_pool WHERE name = ?)"
	return allocatortest.Handle{
		Store: s.Pools(), Close: s.Close, Again: func(t testing.TB) allocatortest.Handle { return poolHandle(t, driver, path, clock) },
		Damage: func(t testing.TB, pool, table string, key int64) {
			t.Helper()
			change(t, map[string]string{
				allocator.RawSlot:   "UPDATE stint_alloc_slot SET attrs = 'x' WHERE idx = ?",
				allocator.RawLease:  "UPDATE stint_alloc_lease SET slots = '[' WHERE epoch = ?",
				allocator.RawTicket: "UPDATE stint_alloc_ticket SET labels = 'x' WHERE seq = ?",
			}[table]+ofPool, key, pool)
		},
		Redirect: func(t testing.TB, pool string, slot int, epoch uint64) {
			t.Helper()
			change(t, "UPDATE stint_alloc_slot SET epoch = ? WHERE idx = ?"+ofPool, int64(epoch), slot, pool)
		},
	}
}

func TestPools(t *testing.T) {
	slow(t)
	onPools(t, allocatortest.Run)
}

func TestPools_T23_EveryFaultHeals(t *testing.T) {
	slow(t)
	onPools(t, func(t *testing.T, open allocatortest.Open) { allocatortest.CheckFaults(t, open) })
}

func TestPools_Linearizable(t *testing.T) {
	slow(t)
	onPools(t, func(t *testing.T, open allocatortest.Open) { allocatortest.CheckLinearizable(t, open) })
}

// The suite, with every step in a transaction of its own.
func TestPools_C8_Conformance(t *testing.T) {
	slow(t)
	onDrivers(t, func(t *testing.T, driver, _ string) {
		allocatortest.Run(t, func(t testing.TB, clock func() time.Time) allocatortest.Handle {
			return poolsInTx(t, driver, filepath.Join(t.TempDir(), "stint.db"), clock)
		})
	})
}

func poolsInTx(t testing.TB, driver, path string, clock func() time.Time) allocatortest.Handle {
	pool := must1(pool(driver, path, settings("off")...))(t)
	t.Cleanup(func() { _ = pool.Close() })
	must(t, sqlite.Migrate(t.Context(), pool))
	db := must1(sqlite.New(t.Context(), pool, &sqlite.Options{Clock: clock}))(t)
	again := func(t testing.TB) allocatortest.Handle { return poolsInTx(t, driver, path, clock) }
	return allocatortest.Handle{Store: poolTxStore{txStore{pool, db}}, Close: db.Close, Again: again}
}

type poolTxStore struct{ each txStore }

func (s poolTxStore) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	return s.each.tx(func(in *sqlite.Tx) error { return in.Pools().Step(ctx, n, f) })
}

func (s poolTxStore) Page(ctx context.Context, q allocator.Query) (rows allocator.Rows, err error) {
	err = s.each.tx(func(in *sqlite.Tx) error {
		rows, err = in.Pools().Page(ctx, q)
		return err
	})
	return rows, err
}
