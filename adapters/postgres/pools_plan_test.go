package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/allocator"
	"github.com/stint-go/stint/internal/testdb"
)

// A step of a pool reads the rows that it needs, whatever else there is. The plans are made while the tables are nearly empty.
func TestPlans_PoolsReadWhatIsNeeded(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testdb.Postgres(t), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	if err := Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	d := newDB(t, pool, nil)
	n := 0
	work := func(p *allocator.Pool) {
		t.Helper()
		n++
		attempt := fmt.Sprint("work ", n)
		l, err := p.Acquire(t.Context(), allocator.Request{Attempt: attempt, Units: 2, Group: []string{"g"}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Renew(t.Context(), l.Ref(), 1)
		_, err2 := p.Verify(t.Context(), l.Slots()[0].Index, l.Epoch())
		_, err3 := p.Probe(t.Context(), l.Slots()[0].Index)
		_, err4 := p.Acquire(t.Context(), allocator.Request{Attempt: attempt, Units: 2, Group: []string{"g"}})
		_, err5 := p.Sweep(t.Context(), 10)
		_, err6 := l.Release(t.Context())
		_, err7 := p.State(t.Context())
		if err := errors.Join(err, err2, err3, err4, err5, err6, err7); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup // batches
		for i := range 8 {
			all.Go(func() {
				l, err := p.Acquire(t.Context(), allocator.Request{Attempt: fmt.Sprint(attempt, " of ", i), Units: 1, Group: []string{fmt.Sprint(i % 2)}})
				if err == nil {
					_, err = l.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		// A full pool, and one who waits.
		l, err = p.Acquire(t.Context(), allocator.Request{Attempt: attempt + " all", Units: 16, Group: []string{"g"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = p.Acquire(t.Context(), allocator.Request{Attempt: attempt + " more", Units: 1}); !errors.Is(err, allocator.ErrFull) {
			t.Fatal(err)
		}
		waits, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err = p.AcquireWait(waits, allocator.Request{Attempt: attempt + " waits", Units: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if _, err = l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	open := func(name string, capacity int) *allocator.Pool {
		p, err := allocator.New(d.Pools(), name, allocator.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Create(t.Context(), allocator.Spec{Capacity: capacity}); err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := open("first", 16)
	work(first)
	read := func() int {
		t.Helper()
		sql(t, pool, "SELECT pg_stat_force_next_flush()") // the statistics are this connection's
		return ask[int](t, pool, "SELECT ((SELECT sum(seq_tup_read) FROM pg_stat_user_tables) + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes))::bigint")
	}
	before := read()
	work(first)
	few := read() - before

	// The same pool with 9,996 slots more, a live lease on each, and 10,000 leases that ended; and other pools with the same rows.
	const ended = "FROM stint.alloc_lease l, generate_series(1, 9984) AS n WHERE l.state = 3 AND l.epoch = 1"
	for _, text := range []string{
		"INSERT INTO stint.alloc_pool SELECT (json_populate_record(p, json_build_object('id', p.id + n, 'name', 'other ' || n))).* FROM stint.alloc_pool p, generate_series(1, 50) AS n",
		"INSERT INTO stint.alloc_slot (idx, pool_id, state, epoch) SELECT s.idx, s.pool_id + n, 1, s.epoch FROM stint.alloc_slot s, generate_series(1, 50) AS n",
		"INSERT INTO stint.alloc_lease SELECT (json_populate_record(l, json_build_object('epoch', l.epoch + 1000 * n))).* " + ended,
		"INSERT INTO stint.alloc_lease SELECT (json_populate_record(l, json_build_object('epoch', 1000000000 + n, 'state', 2, 'end_reason', 0, 'attempt', 'other' || n, " +
			"'slots', '[' || n + 15 || ']', 'expires_us', l.max_us, 'boot', 'another'))).* " + ended,
		"INSERT INTO stint.alloc_slot (idx, pool_id, state, epoch) SELECT n + 15, l.pool_id, 2, 1000000000 + n " + ended,
		"INSERT INTO stint.alloc_group (gkey, pool_id, names, weight) SELECT decode('01010474', 'hex') || convert_to(lpad(n::text, 3, '0'), 'UTF8'), l.pool_id, '', 1 " + ended + " AND n < 1000",
		"INSERT INTO stint.alloc_group (gkey, pool_id, names, weight, waiting) SELECT '\\x01010171', l.pool_id, '', 1, 1000 " + ended + " AND n = 1",
		"INSERT INTO stint.alloc_ticket (seq, pool_id, attempt, gkey, units, incarnation, deadline_us) SELECT 1000 + n, l.pool_id, 'waits ' || n, '\\x01010171', 9999, l.incarnation, 1::bigint << 60 " + ended + " AND n <= 1000",
		"UPDATE stint.alloc_pool SET waiting = 1000, ticket_seq = 2000000000, groups = 1004, capacity = 10000, slots = 10000, used = 9984, epoch_seq = 2000000000 WHERE name = 'first'",
	} {
		sql(t, pool, text)
	}
	before = read()
	work(first)
	got := read() - before
	t.Logf("%d rows among few, %d among many: %s", few, got, ask[string](t, pool, "SELECT string_agg(indexrelname || ' ' || idx_tup_read, ', ' ORDER BY idx_tup_read DESC) FROM pg_stat_user_indexes"))
	if got > 2*few+100 {
		t.Errorf("%d rows were read where %d were before", got, few)
	}
}
