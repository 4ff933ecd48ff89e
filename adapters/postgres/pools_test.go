package postgres

import (
	"context"
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
				change(t, map[string]string{
					allocator.RawSlot:   "UPDATE {schema}.alloc_slot SET attrs = 'x' WHERE idx = $1",
					allocator.RawLease:  "UPDATE {schema}.alloc_lease SET slots = '[' WHERE epoch = $1",
					allocator.RawTicket: "UPDATE {schema}.alloc_ticket SET labels = 'x' WHERE seq = $1",
				}[table]+ofPool, key, pool)
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

// The two modes that differ most are enough: what is sent is like spendlimit's, which runs in all.
func TestPools(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			if mode != pgx.QueryExecModeCacheStatement {
				slow(t)
			}
			allocatortest.Run(t, poolsInMode(t, mode))
		})
	}
}

// slow is for tests that CI runs without the race detector too.
func slow(t *testing.T) {
	if raceDetector {
		t.Skip("runs without -race")
	}
}

func TestPools_T23_EveryFaultHeals(t *testing.T) {
	slow(t)
	allocatortest.CheckFaults(t, poolsInMode(t, modes[0]))
}

func TestPools_Linearizable(t *testing.T) {
	allocatortest.CheckLinearizable(t, poolsInMode(t, modes[0]))
}

// The server's clock makes a step in fewer round trips. Here it is a row, which is set before each step.
func TestPools_ServerClock(t *testing.T) {
	slow(t)
	s := schemasInMode(t, modes[0])
	allocatortest.Run(t, func(t testing.TB, clock func() time.Time) allocatortest.Handle {
		o := &Options{Schema: s.lend(t)}
		table := pgx.Identifier{o.Schema, "clock"}.Sanitize()
		sql(t, s.pool, "CREATE TABLE IF NOT EXISTS "+table+" (id bigint PRIMARY KEY, us bigint)")
		sql(t, s.pool, "INSERT INTO "+table+" VALUES (1, 0) ON CONFLICT DO NOTHING")
		var handle func(t testing.TB) allocatortest.Handle
		handle = func(t testing.TB) allocatortest.Handle {
			d := newDB(t, s.pool, o)
			d.dialect.Now = "SELECT c.us FROM " + table + " c WHERE c.id = 1"
			d.pools = newPools(d.dialect)
			set := func(ctx context.Context) {
				_, _ = s.pool.Exec(context.WithoutCancel(ctx), "UPDATE "+table+" SET us = $1", clock().UnixMicro())
			}
			return allocatortest.Handle{Store: rowClock{d.Pools(), clock, set}, Close: d.Close, Again: handle}
		}
		return handle(t)
	})
}

// rowClock is a store that takes its time from a row.
type rowClock struct {
	allocator.Store
	clock func() time.Time
	set   func(context.Context)
}

// Step implements allocator.Store. The clock may move while the step waits.
func (s rowClock) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	s.set(ctx)
	return s.Store.Step(ctx, n, func(_ int64, set *allocator.Set) error { return f(s.clock().UnixMicro(), set) })
}

// The suite, with every step in a transaction of the caller.
func TestPools_C8_Conformance(t *testing.T) {
	slow(t)
	s := schemasInMode(t, modes[0])
	allocatortest.Run(t, func(t testing.TB, clock func() time.Time) allocatortest.Handle {
		o := &Options{Schema: s.lend(t), Clock: clock}
		var handle func(t testing.TB) allocatortest.Handle
		handle = func(t testing.TB) allocatortest.Handle {
			d := newDB(t, s.pool, o)
			return allocatortest.Handle{Store: poolsInTx{eachInTx{d}}, Close: d.Close, Again: handle}
		}
		return handle(t)
	})
}

// poolsInTx makes every call in a transaction of its own.
type poolsInTx struct{ each eachInTx }

// Step implements allocator.Store.
func (s poolsInTx) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	for try := 0; ; try++ {
		err := s.each.in(ctx, func(t *Tx) error { return t.Pools().Step(ctx, n, f) })
		if err == nil || !s.each.d.again(ctx, try, err) {
			return err
		}
	}
}

// Page implements allocator.Store.
func (s poolsInTx) Page(ctx context.Context, q allocator.Query) (rows allocator.Rows, err error) {
	err = s.each.in(ctx, func(t *Tx) error {
		rows, err = t.Pools().Page(ctx, q)
		return err
	})
	return rows, err
}
