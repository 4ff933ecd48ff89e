package allocatortest

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint/allocator"
)

// damageCases are about rows that can't be read (R22): they take nothing from anybody, give nothing to anybody, and stop nobody.
func damageCases() []testCase {
	return []testCase{
		{"R22_Lease", damagedLease},
		{"R22_LeasedSlot", damagedLeasedSlot},
		{"R22_FreeSlot", damagedFreeSlot},
		{"R22_CoolingSlot", damagedCoolingSlot},
		{"R22_Ticket", damagedTicket},
		{"R22_Pages", damagedPages},
		{"R22_TwoSlotsOfALeaseOfOne", redirected},
		{"R22_T27_SweepPassesIt", sweepPassesDamage},
		{"R22_ManyDamaged", manyDamaged},
	}
}

// damage spoils a row of the case's pool.
func (e *env) damage(table string, key int) {
	e.Helper()
	if e.handle.Damage == nil {
		e.Skip("rows of this store can't be damaged")
	}
	e.handle.Damage(e, poolName, table, int64(key))
}

// quarantined checks that a slot is listed as what can't be read, with the field and a fingerprint.
func (e *env) quarantined(p *allocator.Pool, slot int) allocator.Evidence {
	e.Helper()
	x := e.probe(p, slot)
	if x.Status != allocator.SlotQuarantined || x.Field == "" || x.Fingerprint.IsZero() || x.Verdict != allocator.VerdictUnknown || x.Lease != nil {
		e.Fatalf("evidence of slot %d: %+v", slot, x)
	}
	return x
}

// forced takes a damaged slot back: only an operator can, by exactly what was seen.
func (e *env) forced(p *allocator.Pool, x allocator.Evidence) {
	e.Helper()
	e.unchanged("a reclaim by time, or by other evidence", func() {
		_, err := p.Reclaim(e.Context(), x.Reclaim(allocator.ReasonExpired, ""))
		e.is(err, allocator.ErrNotReclaimable)
		sum := x.Fingerprint.Sum()
		sum[31]++
		r := x.Reclaim(allocator.ReasonForced, "n")
		r.Fingerprint = allocator.FingerprintOf(sum)
		_, err = p.Reclaim(e.Context(), r)
		e.is(err, allocator.ErrStale)
	})
	_, err := p.Reclaim(e.Context(), x.Reclaim(allocator.ReasonForced, "the disk broke"))
	e.ok(err)
	now := e.probe(p, x.Slot)
	equal(e, "status when taken back", now.Status, allocator.SlotCooling)
	e.unchanged("the same evidence again", func() {
		_, err := p.Reclaim(e.Context(), x.Reclaim(allocator.ReasonForced, "the disk broke"))
		e.tally([]error{err}, allocator.ErrStale, allocator.ErrNotReclaimable)
	})
}

func damagedLease(e *env) {
	p := e.pool(3, cooling(10*time.Second))
	l := e.acquire(p, "a")
	other := e.acquire(p, "b")
	before := e.state(p)
	e.damage(allocator.RawLease, int(l.Epoch()))
	x := e.quarantined(p, 0)
	equal(e, "epoch", x.Epoch, l.Epoch())
	equal(e, "used", e.state(p), before)
	e.unchanged("what its holder asks", func() {
		_, err := p.Renew(e.Context(), l.Ref(), 1)
		e.is(err, allocator.ErrCorrupt)
		_, err = p.Release(e.Context(), l.Ref())
		e.is(err, allocator.ErrCorrupt)
		_, err = p.Verify(e.Context(), 0, l.Epoch())
		e.is(err, allocator.ErrCorrupt)
	})
	_, err := p.Renew(e.Context(), other.Ref(), 1)
	e.ok(err)
	e.release(other)
	equal(e, "slot", slot(e.acquire(p, "c")), 1)
	e.clock.advance(2 * time.Hour)
	equal(e, "ended and cooling", e.sweep(p), allocator.Swept{Reclaimed: 1, Quarantined: 1})
	equal(e, "evidence", e.quarantined(p, 0), x)
	e.forced(p, x)
	e.clean(p)
	e.clock.advance(10*time.Second + time.Microsecond)
	next := e.acquireAs(p, ask("d", 3))
	equal(e, "epoch", next.Epoch(), 4)
	e.clean(p)
}

func (e *env) sweep(p *allocator.Pool) allocator.Swept {
	e.Helper()
	s, err := p.Sweep(e.Context(), 1000)
	e.ok(err)
	return s
}

func damagedLeasedSlot(e *env) {
	p := e.pool(3, cooling(10*time.Second))
	l := e.acquireAs(p, ask("a", 2))
	e.damage(allocator.RawSlot, 1)
	x := e.quarantined(p, 1)
	e.release(l) // what can be freed is
	equal(e, "slot", slot(e.acquire(p, "b")), 0)
	equal(e, "slot", slot(e.acquire(p, "b2")), 2)
	_, err := p.Acquire(e.Context(), ask("c", 1))
	e.full(err, allocator.ShortCapacity)
	equal(e, "evidence", e.quarantined(p, 1), x)
	e.forced(p, x)
	e.clean(p)
	_, err = p.Verify(e.Context(), 0, l.Epoch())
	e.is(err, allocator.ErrStale)
	e.clock.advance(10*time.Second + time.Microsecond)
	if got := e.acquireAs(p, ask("c", 1)); got.Epoch() <= l.Epoch() {
		e.Errorf("epoch %d", got.Epoch())
	}
	e.clean(p)
}

func damagedFreeSlot(e *env) {
	p := e.pool(3, cooling(10*time.Second))
	e.damage(allocator.RawSlot, 0)
	x := e.quarantined(p, 0)
	equal(e, "slot", slot(e.acquire(p, "a")), 1)
	_, err := p.Check(e.Context(), false)
	e.is(err, allocator.ErrCorrupt) // it counts as used from now on
	_, err = p.Acquire(e.Context(), ask("b", 1))
	e.is(err, allocator.ErrCorrupt)
	st, err := p.Check(e.Context(), true)
	e.ok(err)
	equal(e, "used", st.Used, 2)
	equal(e, "slot", slot(e.acquire(p, "b")), 2)
	_, err = p.Acquire(e.Context(), ask("c", 1))
	e.full(err, allocator.ShortCapacity)
	equal(e, "evidence", e.quarantined(p, 0), x)
	e.forced(p, x)
	e.clock.advance(10*time.Second + time.Microsecond)
	equal(e, "slot", slot(e.acquire(p, "c")), 0)
	e.clean(p)
}

func damagedCoolingSlot(e *env) {
	p := e.pool(2, cooling(10*time.Second))
	e.acquireAs(p, ask("a", 2))
	e.clock.advance(time.Minute + time.Microsecond)
	equal(e, "ended", e.sweep(p).Reclaimed, 1)
	e.damage(allocator.RawSlot, 0)
	e.clock.advance(time.Hour)
	x := e.quarantined(p, 0)
	equal(e, "slot", slot(e.acquire(p, "b")), 1)
	_, err := p.Acquire(e.Context(), ask("c", 1))
	e.tally([]error{err}, allocator.ErrFull)
	equal(e, "evidence", e.quarantined(p, 0), x)
	e.forced(p, x)
	e.clean(p)
}

// damagedTicket: a place in the queue that can't be read gets nothing and holds up nobody behind it, until repair removes it.
func damagedTicket(e *env) {
	p := e.pool(2)
	held, h := e.acquireAs(p, ask("held", 2)), e.holder()
	e.queue(h, ask("w1", 1))
	e.queue(h, ask("w2", 1))
	e.queue(h, ask("other", 1, "g"))
	e.damage(allocator.RawTicket, 1)
	ctx, cancel := context.WithTimeout(e.Context(), 10*time.Second)
	defer cancel()
	e.unchanged("what its waiter asks", func() {
		w := e.on(e.store, poolName, h)
		_, err := w.AcquireWait(ctx, ask("w1", 1))
		e.is(err, allocator.ErrCorrupt)
		_, err = w.Cancel(e.Context(), "w1")
		e.is(err, allocator.ErrCorrupt)
	})
	list, err := collect(p.Tickets(e.Context()))
	e.ok(err)
	equal(e, "tickets, with the one that can't be read", []int{len(list), e.state(p).Waiting}, []int{2, 3})
	e.release(held)
	equal(e, "offers", e.offered(), []string{"w2", "other"})
	w := e.on(e.store, poolName, h)
	e.release(e.acquire(w, "w2"))
	e.release(e.acquireAs(w, ask("other", 1, "g")))

	e.unchanged("a look", func() {
		_, err := p.Check(e.Context(), false)
		e.is(err, allocator.ErrCorrupt)
		var damage *allocator.DamageError
		if !errors.As(err, &damage) || damage.Table != allocator.RawTicket || damage.Key != "1" || damage.Field == "" {
			e.Fatalf("error %v", err)
		}
	})
	_, err = p.Acquire(e.Context(), ask("x", 1)) // its group has a queue
	e.full(err, allocator.ShortQueue)
	e.release(e.acquireAs(p, ask("x", 1, "g")))
	l, err := p.AcquireWait(ctx, ask("x", 1)) // which holds up nobody
	e.ok(err)
	e.release(l)
	e.clock.advance(31 * time.Second)
	equal(e, "swept", e.sweep(p), allocator.Swept{Quarantined: 1})
	equal(e, "waiting", e.state(p).Waiting, 1)

	st, err := p.Check(e.Context(), true)
	e.ok(err)
	equal(e, "waiting", st.Waiting, 0)
	e.clean(p)
	e.release(e.acquire(p, "w1"))

	// Who is behind it goes by the order, also where the last of them asks.
	held = e.acquireAs(p, ask("held", 2))
	for _, r := range []allocator.Request{ask("first", 2), ask("a", 1), ask("b", 2), ask("c", 2)} {
		e.queue(h, r)
	}
	e.release(held)
	list, err = collect(p.Tickets(e.Context()))
	e.ok(err)
	e.damage(allocator.RawTicket, int(list[0].Seq))
	e.clock.advance(10*time.Second + time.Microsecond) // nobody took the offer
	e.queue(h, ask("c", 2))
	equal(e, "offers", e.offered(), []string{"b"})
}

// damagedPages: rows that can't be read are in the lists, at their place, and count.
func damagedPages(e *env) {
	p := e.pool(6)
	for i := range 5 {
		e.acquire(p, numbered("a", i))
	}
	e.damage(allocator.RawLease, 2)
	e.damage(allocator.RawLease, 5)
	e.damage(allocator.RawSlot, 5)
	for size := 1; size < 7; size++ {
		for _, kind := range []allocator.QueryKind{allocator.QueryLive, allocator.QueryLeases} {
			rows := e.pages(e.store, allocator.Query{Pool: poolName, Kind: kind, Max: size})
			equal(e, "leases, of them unreadable", []int{len(rows.Leases), len(rows.Raws)}, []int{3, 2})
			for i, epoch := range []uint64{2, 5} {
				r := rows.Raws[i]
				equal(e, "table and epoch", []any{r.Table, r.Epoch}, []any{allocator.RawLease, epoch})
				if r.Field == "" || len(r.Columns) == 0 || r.Rev == 0 {
					e.Errorf("unreadable row %+v", *r)
				}
			}
		}
	}
	rows := e.page(e.store, allocator.Query{Pool: poolName, Kind: allocator.QueryChanges, Max: 100})
	equal(e, "slots, leases, unreadable", []int{len(rows.Slots), len(rows.Leases), len(rows.Raws)}, []int{5, 3, 3})
	e.queue(e.holder(), ask("w1", 1))
	e.queue(e.holder(), ask("w2", 1))
	e.damage(allocator.RawTicket, 1)
	for size := 1; size < 4; size++ {
		line := e.pages(e.store, allocator.Query{Pool: poolName, Kind: allocator.QueryTickets, Max: size})
		equal(e, "tickets, of them unreadable", []int{len(line.Tickets), len(line.Raws)}, []int{1, 1})
		if r := line.Raws[0]; r.Table != allocator.RawTicket || r.Seq != 1 || r.Field == "" || len(r.Columns) == 0 {
			e.Errorf("unreadable row %+v", *r)
		}
	}
	same := e.page(e.store, allocator.Query{Pool: poolName, Kind: allocator.QueryChanges, Max: 100})
	equal(e, "unreadable rows seen again", same.Raws, rows.Raws)
}

// redirected: a slot whose lease does not list it is nobody's, and the lease is not hurt by it.
func redirected(e *env) {
	p := e.pool(3, cooling(10*time.Second))
	a := e.acquire(p, "a")
	b := e.acquire(p, "b")
	if e.handle.Redirect == nil {
		e.Skip("slots of this store can't be redirected")
	}
	e.handle.Redirect(e, poolName, slot(b), a.Epoch())
	x := e.quarantined(p, 1)
	equal(e, "status of the slot of the lease", e.probe(p, 0).Status, allocator.SlotLeased)
	_, err := p.Verify(e.Context(), 1, a.Epoch())
	e.is(err, allocator.ErrCorrupt)
	_, err = p.Verify(e.Context(), 0, a.Epoch())
	e.ok(err)
	e.release(b) // it has no slot to free
	equal(e, "evidence", e.quarantined(p, 1), x)
	_, err = p.Renew(e.Context(), a.Ref(), 1)
	e.ok(err)
	e.forced(p, x)
	_, err = p.Verify(e.Context(), 0, a.Epoch())
	e.ok(err)
	e.release(a)
	e.clock.advance(10*time.Second + time.Microsecond)
	equal(e, "slots", len(e.acquireAs(p, ask("c", 3)).Slots()), 3)
	e.clean(p)
}

// sweepPassesDamage: one row that can't be read stops none of the others.
func sweepPassesDamage(e *env) {
	const n = 100
	p := e.pool(n, cooling(10*time.Second))
	for i := range n {
		e.acquire(p, numbered("a", i))
	}
	e.damage(allocator.RawLease, 7)
	e.clock.advance(time.Minute + time.Microsecond)
	equal(e, "swept", e.sweep(p), allocator.Swept{Reclaimed: n - 1, Quarantined: 1})
	st := e.state(p)
	equal(e, "used, cooling", []int{st.Used, st.Cooling}, []int{n, n - 1})
	x := e.quarantined(p, 6)
	e.clock.advance(10*time.Second + time.Microsecond)
	equal(e, "slots", len(e.acquireAs(p, ask("b", n-1)).Slots()), n-1)
	_, err := p.Acquire(e.Context(), ask("c", 1))
	e.full(err, allocator.ShortCapacity)
	e.forced(p, x)
	e.clean(p)
	e.clock.advance(10*time.Second + time.Microsecond)
	equal(e, "slot", slot(e.acquire(p, "c")), 6)
	e.clean(p)
}

// manyDamaged: nor do more of them than a step looks at.
func manyDamaged(e *env) {
	const n, bad = 150, 70
	p := e.pool(n)
	for i := range n {
		e.acquire(p, numbered("a", i))
	}
	for i := range bad {
		e.damage(allocator.RawLease, i+1)
	}
	e.clock.advance(time.Minute + time.Microsecond)
	equal(e, "slot", slot(e.acquire(p, "b")), bad)
	equal(e, "ended", e.sweep(p).Reclaimed, n-bad-64)
	equal(e, "used", e.state(p).Used, bad+1)
}
