package allocatortest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint/allocator"
)

// poolCases are rules and numbered cases, one call after the other.
func poolCases() []testCase {
	return []testCase{
		{"R1_LowestFree", lowestFree},
		{"R1_EverySlotOfALease", everySlot},
		{"R5_SharesOfGroups", shares},
		{"R6_InOrderOfTickets", orderOfTickets},
		{"R12_SweepInSteps", sweepInSteps},
		{"R13_Leave", leave},
		{"R16_T36_Cooling", coolingSlots},
		{"R20_AdminCalls", adminCalls},
		{"R21_T35_Attributes", attributes},
		{"R25_T37_Watch", watch},
		{"More_HeadsAndSlots", moreHeads},
		{"More_ManyDue", moreDue},
		{"More_IdleGroups", moreGroups},
		{"T4_Mismatch", mismatch},
		{"T5_T6_OldEvidence", oldEvidence},
		{"T14_EpochsAfterResize", resize},
		{"T24_ClockSteps", clockSteps},
		{"T27_BlankAttempt", blankAttempt},
		{"T35_Purge", purge},
	}
}

func lowestFree(e *env) {
	const n = 130 // more than two words of bits
	p := e.pool(n)
	var leases []*allocator.Lease
	for i := range n {
		leases = append(leases, e.acquire(p, numbered("a", i)))
		equal(e, "slot", slot(leases[i]), i)
	}
	for _, i := range []int{129, 64, 63, 0, 100} {
		e.release(leases[i])
	}
	l := e.acquireAs(p, ask("three", 3))
	var got []int
	for _, s := range l.Slots() {
		got = append(got, s.Index)
	}
	equal(e, "slots", got, []int{0, 63, 64})
	equal(e, "slot", slot(e.acquire(p, "x")), 100)
	_, err := p.Acquire(e.Context(), ask("two", 2))
	e.full(err, allocator.ShortCapacity)
	e.clean(p)
}

func everySlot(e *env) {
	p := e.pool(6)
	one, l := e.acquire(p, "one"), e.acquireAs(p, ask("many", 4))
	for _, s := range l.Slots() {
		x := e.probe(p, s.Index)
		equal(e, "epoch", x.Epoch, l.Epoch())
		equal(e, "slots of the lease", x.Lease.Slots, []int{1, 2, 3, 4})
	}
	e.release(l)
	for i := 1; i < 6; i++ {
		equal(e, "status", e.probe(p, i).Status, allocator.SlotFree)
	}
	equal(e, "status", e.probe(p, 0).Status, allocator.SlotLeased)
	e.release(one)
	equal(e, "used", e.state(p).Used, 0)
	e.clean(p)
}

// queue takes a place in the queue for a process that is not seen after it.
func (e *env) queue(h allocator.Holder, r allocator.Request) {
	e.Helper()
	_, queued, err := firstStep(e.Context(), e.store, func(s allocator.Store) *allocator.Pool { return e.on(s, poolName, h) }, r)
	if !queued {
		e.Fatalf("%s: %v, want a place in the queue", r.Attempt, err)
	}
}

// offered lists the attempts that have an offer, in the order in which they got it.
func (e *env) offered() (list []string) {
	e.Helper()
	for _, l := range e.pages(e.store, allocator.Query{Pool: poolName, Kind: allocator.QueryLive, Max: 1000}).Leases {
		if l.Status == allocator.LeaseOffered {
			list = append(list, l.Attempt)
		}
	}
	return list
}

// orderOfTickets: a group is served in the order of its tickets, large requests included (R6, T17).
func orderOfTickets(e *env) {
	p := e.pool(3)
	held := e.acquireAs(p, ask("held", 2))
	h := e.holder()
	e.queue(h, ask("w9", 2))
	e.queue(h, ask("w8", 1))
	e.queue(h, ask("w1", 1))
	for i := range 6 {
		e.queue(h, ask(numbered("x", 9-i), 1))
	}
	_, err := p.Acquire(e.Context(), ask("x", 1))
	e.full(err, allocator.ShortQueue) // though there is room for it
	list, err := collect(p.Tickets(e.Context()))
	e.ok(err)
	equal(e, "tickets", len(list), 9)
	for i, attempt := range []string{"w9", "w8", "w1"} {
		equal(e, "ticket", list[i].Attempt, attempt)
	}
	e.release(held)
	equal(e, "offers", e.offered(), []string{"w9", "w8"})
	_, err = e.on(e.store, poolName, h).Cancel(e.Context(), "w9")
	e.ok(err)
	equal(e, "offers", e.offered(), []string{"w8", "w1", "x0009"})
	e.clean(p)
}

// shares: among groups the weights rule, and the maxima (R5, T16).
func shares(e *env) {
	most := 1
	p := e.pool(10, func(s *allocator.Spec) {
		s.Groups = []allocator.Group{{Key: []string{"a"}, Weight: 3}, {Key: []string{"b"}, Weight: 1}, {Key: []string{"c"}, Weight: 1, Max: &most}}
	})
	held := e.acquireAs(p, ask("held", 10, "d"))
	h := e.holder()
	for i := range 10 {
		e.queue(h, ask(numbered("c", i), 1, "c"))
		e.queue(h, ask(numbered("b", i), 1, "b"))
		e.queue(h, ask(numbered("a", i), 1, "a"))
	}
	e.release(held)
	groups := map[string]int{}
	for _, attempt := range e.offered() {
		groups[attempt[:1]]++
	}
	equal(e, "offers by group", groups, map[string]int{"a": 7, "b": 2, "c": 1})
	e.clean(p)
}

// sweepInSteps: one sweep ends more leases than one step may, the oldest first.
func sweepInSteps(e *env) {
	const n = 150
	p := e.pool(n)
	for i := range n {
		e.acquire(p, numbered("a", i))
		if i == 99 {
			e.clock.advance(time.Second)
		}
	}
	e.unchanged("a sweep with nothing due", func() { _, err := p.Sweep(e.Context(), 10); e.ok(err) })
	e.clock.set(noon.Add(time.Minute + time.Microsecond)) // the first 100 are over
	swept, err := p.Sweep(e.Context(), 70)
	e.ok(err)
	equal(e, "ended", swept.Reclaimed, 70)
	list, err := collect(p.Leases(e.Context(), false))
	e.ok(err)
	equal(e, "first that is left", list[0].Attempt, numbered("a", 70))
	swept, err = p.Sweep(e.Context(), 1000)
	e.ok(err)
	equal(e, "ended", swept.Reclaimed, 30)
	list, err = collect(p.Leases(e.Context(), false))
	e.ok(err)
	equal(e, "left", len(list), 50)
	equal(e, "first that is left", list[0].Attempt, numbered("a", 100))
	e.clean(p)
}

func leave(e *env) {
	p := e.pool(4)
	e.acquire(p, "stays")
	h := e.holder()
	other := e.on(e.store, poolName, h)
	e.acquire(other, "goes")
	e.acquireAs(other, ask("goes too", 2))
	e.queue(h, ask("waits", 1))
	e.ok(other.Close(e.Context(), true))
	st := e.state(p)
	equal(e, "used, waiting", [2]int{st.Used, st.Waiting}, [2]int{1, 0})
	equal(e, "slot", slot(e.acquire(p, "next")), 1)
	e.clean(p)
}

func coolingSlots(e *env) {
	p := e.pool(2, cooling(15*time.Second))
	e.acquireAs(p, ask("a", 2))
	e.clock.set(noon.Add(time.Minute + time.Microsecond))
	_, err := p.Acquire(e.Context(), ask("b", 1))
	e.full(err, allocator.ShortCooling)
	equal(e, "cooling", e.state(p).Cooling, 2)
	e.clock.advance(15 * time.Second)
	_, err = p.Acquire(e.Context(), ask("b", 1))
	e.full(err, allocator.ShortCooling)
	e.clock.advance(time.Microsecond)
	equal(e, "slot", slot(e.acquire(p, "b")), 0)
	equal(e, "cooling", e.state(p).Cooling, 0)
	e.clean(p)
}

// adminCalls: the last call is remembered, by whoever asks (R20).
func adminCalls(e *env) {
	p := e.pool(2)
	other := e.processes(2)[1]
	first, err := p.Resize(e.Context(), allocator.Admin{ID: "r1", Version: 1}, 5)
	e.ok(err)
	e.unchanged("the same call again", func() {
		again, err := other.Resize(e.Context(), allocator.Admin{ID: "r1", Version: 1}, 5)
		e.ok(err)
		equal(e, "answer", again, first)
	})
	_, err = other.Resize(e.Context(), allocator.Admin{ID: "r1", Version: 1}, 6)
	e.is(err, allocator.ErrAttemptMismatch)
	_, err = other.Resize(e.Context(), allocator.Admin{ID: "r2", Version: 1}, 6)
	e.is(err, allocator.ErrStale)
	until := noon.Add(time.Hour)
	drained, err := p.Drain(e.Context(), allocator.Admin{ID: "d", Version: 2}, until)
	e.ok(err)
	again, err := other.Drain(e.Context(), allocator.Admin{ID: "d", Version: 2}, until)
	e.ok(err)
	equal(e, "answer", again, drained)
	equal(e, "deadline", again.DrainDeadline, until)
}

func attributes(e *env) {
	p := e.pool(2)
	l := e.acquire(p, "a")
	set := func(slot int, value string) error {
		_, err := p.Configure(e.Context(), e.admin(p, value), allocator.Configuration{Attrs: map[int]map[string]string{slot: {"path": value}}})
		return err
	}
	e.unchanged("attributes of a leased slot", func() { e.is(set(0, "x"), allocator.ErrBusySlot) })
	e.unchanged("an empty name in a group", func() {
		_, err := p.Acquire(e.Context(), ask("b", 1, "a", ""))
		e.is(err, allocator.ErrInvalid)
	})
	e.ok(set(1, "y"))
	e.release(l)
	e.ok(set(0, "z"))
	equal(e, "attributes", e.acquireAs(p, ask("b", 2)).Slots(), []allocator.Slot{{Index: 0, Attrs: map[string]string{"path": "z"}}, {Index: 1, Attrs: map[string]string{"path": "y"}}})
}

// watch: a reader sees the last state of everything, in the order of revisions, and hears when something was forgotten.
func watch(e *env) {
	const n = 60
	p := e.pool(2)
	var last uint64
	for range n {
		l := e.acquire(p, "a")
		last = l.Epoch()
		e.release(l)
	}
	read := func(from int64) (list []allocator.Changed) {
		for c, err := range p.Watch(e.Context(), from) {
			e.ok(err)
			if len(list) > 0 && c.Rev <= list[len(list)-1].Rev {
				e.Fatalf("rev %d after %d", c.Rev, list[len(list)-1].Rev)
			}
			if list = append(list, c); c.Lease != nil && c.Lease.Epoch == last {
				return list
			}
		}
		return list
	}
	list := read(0)
	equal(e, "changes", len(list), n+2)
	at := slices.IndexFunc(list, func(c allocator.Changed) bool { return c.Slot != nil && c.Slot.Index == 0 })
	equal(e, "last state of the slot", *list[at].Slot, allocator.SlotState{Status: allocator.SlotFree, Epoch: last})

	e.clock.advance(8 * 24 * time.Hour)
	_, err := p.Sweep(e.Context(), 1)
	e.ok(err)
	last = e.acquire(p, "b").Epoch()
	list = read(1)
	equal(e, "list anew", list[0].Relist, true)
	if rest := read(list[0].Rev); rest[0].Relist {
		e.Error("to be listed anew twice")
	}
	e.unchanged("a watch", func() { read(0) })
}

// moreHeads: a step finds that it serves more tickets, with more slots, than it had asked for.
func moreHeads(e *env) {
	const n = 40
	p := e.pool(n)
	held := e.acquireAs(p, ask("held", n))
	h := e.holder()
	var want []string
	for i := range n - 3 {
		want = append(want, numbered("w", n-i))
		e.queue(h, ask(want[i], 1))
	}
	e.release(held)
	equal(e, "offers", e.offered(), want)
	for i, l := range e.pages(e.store, allocator.Query{Pool: poolName, Kind: allocator.QueryLive, Max: 1000}).Leases {
		equal(e, "slots", l.Slots, []int{i})
	}
	e.clean(p)
}

// moreDue: an Acquire that needs all the room there is goes on ending leases until it has it.
func moreDue(e *env) {
	const n = 150
	p := e.pool(n)
	for i := range n {
		e.acquire(p, numbered("a", i))
	}
	e.clock.advance(time.Minute + time.Microsecond)
	equal(e, "slots", len(e.acquireAs(p, ask("all", n)).Slots()), n)
	equal(e, "used", e.state(p).Used, n)
	e.clean(p)
}

// moreGroups: when there are as many groups as may be, those that are idle make room.
func moreGroups(e *env) {
	const most = 1024
	var list []allocator.Group
	for i := range most - 2 {
		list = append(list, allocator.Group{Key: []string{numbered("listed", i)}, Weight: 1})
	}
	p := e.pool(3, func(s *allocator.Spec) { s.Groups = list })
	e.acquireAs(p, ask("a", 1, "used"))
	e.release(e.acquireAs(p, ask("b", 1, "idle")))
	e.acquireAs(p, ask("c", 1, "new"))
	var open []string
	for g, err := range p.Groups(e.Context()) {
		e.ok(err)
		if !g.Listed {
			open = append(open, g.Key...)
		}
	}
	slices.Sort(open)
	equal(e, "groups that nobody listed", open, []string{"new", "used"})
	e.clean(p)
}

// mismatch is for an attempt that comes back with other content, in one batch and one after the other.
func mismatch(e *env) {
	p := e.pool(4)
	e.acquireAs(p, ask("a", 1, "github.com", "acme/widgets"))
	e.unchanged("the attempt of another group", func() {
		_, err := p.Acquire(e.Context(), ask("a", 1, "ghe", "acme/widgets"))
		e.is(err, allocator.ErrAttemptMismatch)
	})
	acquire := func(group string) func(*allocator.Pool) error {
		return func(p *allocator.Pool) error {
			_, err := p.Acquire(e.Context(), ask("b", 1, group))
			return err
		}
	}
	n := e.tally(e.gathered(e.holder(), acquire("x"), acquire("y")), allocator.ErrAttemptMismatch)
	equal(e, "granted of two", n[nil], 1)
	equal(e, "used", e.state(p).Used, 2)
}

// oldEvidence: what was seen of an earlier lease ends no later one, though the clock stands and all names are the same.
func oldEvidence(e *env) {
	p := e.pool(1)
	old := e.acquire(p, "a")
	seen := e.probe(p, 0)
	_, err := p.Renew(e.Context(), old.Ref(), 1)
	e.ok(err)
	reclaim := func(x allocator.Evidence, want error) {
		e.Helper()
		e.unchanged("old evidence", func() {
			_, err := p.Reclaim(e.Context(), x.Reclaim(allocator.ReasonForced, "n"))
			e.is(err, want)
		})
	}
	reclaim(seen, allocator.ErrStale)
	renewed := e.probe(p, 0)
	e.release(old)
	reclaim(renewed, allocator.ErrStale)
	l := e.acquire(p, "a")
	reclaim(seen, allocator.ErrStale)
	reclaim(renewed, allocator.ErrStale)
	e.unchanged("an old ref", func() {
		_, err := p.Release(e.Context(), old.Ref())
		e.is(err, allocator.ErrStale)
		_, err = p.Renew(e.Context(), old.Ref(), 2)
		e.is(err, allocator.ErrLost)
	})
	_, err = p.Verify(e.Context(), 0, l.Epoch())
	e.ok(err)
	r := e.probe(p, 0).Reclaim(allocator.ReasonForced, "it hangs")
	first, err := p.Reclaim(e.Context(), r)
	e.ok(err)
	e.unchanged("the same reclaim", func() {
		again, err := e.process().Reclaim(e.Context(), r)
		e.ok(err)
		equal(e, "answer", *again.Last, *first.Last)
	})
	equal(e, "note", first.Last.End.By, "it hangs")
	equal(e, "evidence", first.Last.End.Evidence, r.Fingerprint)
	equal(e, "epoch", e.acquire(p, "b").Epoch(), 3)
}

// resize: epochs go on where slots come back or are new (I2).
func resize(e *env) {
	p := e.pool(5)
	var leases []*allocator.Lease
	for i := range 5 {
		leases = append(leases, e.acquire(p, numbered("a", i)))
	}
	resize := func(n int) allocator.PoolState {
		st, err := p.Resize(e.Context(), e.admin(p, fmt.Sprint(n)), n)
		e.ok(err)
		return st
	}
	equal(e, "excess", resize(2).Excess, 3)
	for _, l := range leases[:4] {
		e.release(l)
	}
	l := e.acquire(p, "b")
	equal(e, "slot, epoch", []int{slot(l), int(l.Epoch())}, []int{0, 6})
	_, err := p.Acquire(e.Context(), ask("c", 1))
	e.full(err, allocator.ShortCapacity)
	equal(e, "status", e.probe(p, 3).Status, allocator.SlotRetired)
	resize(7)
	for i, want := range []int{1, 2, 3, 5, 6} {
		before := e.probe(p, want).Epoch
		l := e.acquire(p, numbered("d", i))
		equal(e, "slot, epoch", []int{slot(l), int(l.Epoch())}, []int{want, 7 + i})
		if before >= l.Epoch() {
			e.Errorf("the epoch of slot %d was %d before %d", want, before, l.Epoch())
		}
	}
	resize(0)
	resize(7)
	e.release(leases[4])
	equal(e, "epoch", e.acquire(p, "x").Epoch(), 12)
	e.clean(p)
}

// clockSteps: within a pool time never goes back, and each pool has its own.
func clockSteps(e *env) {
	p := e.pool(2)
	e.clock.advance(time.Hour)
	l := e.acquire(p, "a")
	e.clock.advance(-7 * 24 * time.Hour)
	list, err := collect(e.process().Leases(e.Context(), false))
	e.ok(err)
	other := e.acquire(p, "b")
	renewed, err := p.Renew(e.Context(), other.Ref(), 1)
	e.ok(err)
	equal(e, "expiry", renewed.ExpiresAt, list[0].ExpiresAt)
	equal(e, "seen", e.rows(e.store, poolName).Pool.SeenUS, noon.Add(time.Hour).UnixMicro())
	rebased, err := p.Rebase(e.Context(), e.admin(p, "r"), "the clock was wrong")
	e.ok(err)
	equal(e, "used", rebased.Used, 2)
	rows := e.rows(e.store, poolName)
	equal(e, "seen", rows.Pool.SeenUS, e.clock.read().UnixMicro())
	equal(e, "acquired", rows.Leases[0].AcquiredUS, e.clock.read().UnixMicro())
	equal(e, "epoch", rows.Leases[0].Epoch, l.Epoch())
}

// blankAttempt: what is not valid sweeps nothing.
func blankAttempt(e *env) {
	p := e.pool(3)
	for i := range 3 {
		e.acquire(p, numbered("a", i))
	}
	e.clock.advance(time.Hour)
	for _, attempt := range []string{"", " ", "\x00", "a\n", "\xff"} {
		e.unchanged("a bad attempt", func() {
			_, err := p.Acquire(e.Context(), ask(attempt, 1))
			e.is(err, allocator.ErrInvalid)
		})
	}
}

// purge forgets leases that ended long ago, and nothing else.
func purge(e *env) {
	p := e.pool(2)
	old := e.acquire(p, "a")
	state := e.probe(p, 0).Lease
	released, err := p.Release(e.Context(), old.Ref())
	e.ok(err)
	want := *state
	want.Status = allocator.LeaseEnded
	want.End = allocator.End{Reason: allocator.ReasonReleased, At: noon.Truncate(time.Microsecond)}
	equal(e, "last state", released.Last, want)
	keep := allocator.DefaultPolicy().Keep
	e.clock.advance(keep)
	live := e.acquire(p, "a")
	e.unchanged("a sweep when it was kept just so long", func() { _, err := p.Sweep(e.Context(), 10); e.ok(err) })
	e.clock.advance(time.Microsecond)
	swept, err := p.Sweep(e.Context(), 10)
	e.ok(err)
	equal(e, "purged", swept.Purged, 1)
	_, err = p.Verify(e.Context(), 0, live.Epoch())
	e.ok(err)
	rows := e.rows(e.store, poolName)
	equal(e, "leases", len(rows.Leases), 1)
	_, err = p.Release(e.Context(), old.Ref())
	e.is(err, allocator.ErrStale)
	e.release(live)
	e.clean(p)
}
