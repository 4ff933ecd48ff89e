package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/stint-go/stint/allocator"
	"github.com/stint-go/stint/allocator/allocatortest"
)

// openPools opens stores, each in a schema that is empty.
func (s *schemas) openPools(t testing.TB, clock func() time.Time) allocatortest.Handle {
	o := &Options{Schema: s.lend(t), Clock: clock}
	change := func(t testing.TB, text string, args ...any) {
		t.Helper()
		text = strings.ReplaceAll(text, "{schema}", pgx.Identifier{o.Schema}.Sanitize())
		if tag, err := s.pool.Exec(t.Context(), text, args...); err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%s: %v, %v", text, tag, err)
		}
	}
	const ofPool = " AND pool_id = (SELECT id FROM {schema}.alloc_pool WHERE name = $2)"
	var handle func(t testing.TB) allocatortest.Handle
	handle = func(t testing.TB) allocatortest.Handle {
		d := newDB(t, s.pool, o)
		return allocatortest.Handle{
			Store: d.Pools(), Close: d.Close, Again: handle,
			Damage: func(t testing.TB, pool, table string, key int64) {
				t.Helper()
				if table == allocator.RawSlot {
					change(t, "UPDATE {schema}.alloc_slot SET attrs = 'x' WHERE idx = $1"+ofPool, key, pool)
				} else {
					change(t, "UPDATE {schema}.alloc_lease SET slots = '[' WHERE epoch = $1"+ofPool, key, pool)
				}
			},
			Redirect: func(t testing.TB, pool string, slot int, epoch uint64) {
				t.Helper()
				change(t, "UPDATE {schema}.alloc_slot SET epoch = $3 WHERE idx = $1"+ofPool, slot, pool, int64(epoch))
			},
		}
	}
	return handle(t)
}

func poolsInMode(t testing.TB, mode pgx.QueryExecMode) allocatortest.Open {
	return schemasInMode(t, mode).openPools
}

func TestPools(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			if raceDetector && mode != pgx.QueryExecModeCacheStatement && mode != pgx.QueryExecModeSimpleProtocol {
				t.Skip("runs without -race")
			}
			allocatortest.Run(t, poolsInMode(t, mode))
		})
	}
}

func TestPools_T23_EveryFaultHeals(t *testing.T) {
	allocatortest.CheckFaults(t, poolsInMode(t, modes[0]))
}

func TestPools_Linearizable(t *testing.T) {
	allocatortest.CheckLinearizable(t, poolsInMode(t, modes[0]))
}
