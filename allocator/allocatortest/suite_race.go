package allocatortest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/allocator"
)

// raceCases are numbered cases in which several processes are at work at once.
func raceCases() []testCase {
	return []testCase{
		{"T1_AsManyAsSlots", asManyAsSlots},
		{"T2_OneTooMany", oneTooMany},
		{"T3_OneAttemptTwice", oneAttemptTwice},
		{"T3_OneLapsedLeaseStolenTwice", stolenTwice},
		{"T12_OneRenewalTwice", oneRenewalTwice},
		{"T19_WaiterBeforeNewcomer", waiterFirst},
		{"T26_NeverTwoOnASlot", neverTwo},
		{"T34_WaitersInOrder", waitersInOrder},
		{"R10_OneReclaimWins", oneReclaimWins},
	}
}

func asManyAsSlots(e *env) {
	const n = 5
	e.pool(n)
	ps := e.processes(n)
	for round := range 4 {
		leases := make([]*allocator.Lease, n)
		e.tally(together(n, func(i int) (err error) {
			leases[i], err = ps[i].Acquire(e.Context(), ask(numbered("a", i), 1))
			return err
		}))
		var slots, epochs []int
		for _, l := range leases {
			slots, epochs = append(slots, slot(l)), append(epochs, int(l.Epoch()))
		}
		slices.Sort(slots)
		slices.Sort(epochs)
		equal(e, "slots", slots, []int{0, 1, 2, 3, 4})
		equal(e, "epochs", epochs, []int{round*n + 1, round*n + 2, round*n + 3, round*n + 4, round*n + 5})
		e.tally(together(n, func(i int) error {
			_, err := leases[i].Release(e.Context())
			return err
		}))
	}
	equal(e, "used", e.state(ps[0]).Used, 0)
	e.clean(ps[0])
}

func oneTooMany(e *env) {
	p := e.pool(2)
	ps := e.processes(3)
	for round := range 4 {
		leases := make([]*allocator.Lease, 3)
		n := e.tally(together(3, func(i int) (err error) {
			leases[i], err = ps[i].Acquire(e.Context(), ask(numbered("a", i), 1))
			return err
		}), allocator.ErrFull)
		equal(e, "granted, full", []int{n[nil], n[allocator.ErrFull]}, []int{2, 1})
		equal(e, "used", e.state(p).Used, 2)
		for _, l := range leases {
			if l != nil {
				e.release(l)
			}
		}
		equal(e, "round, epoch", e.rows(e.store, poolName).Pool.EpochSeq, uint64(2*round+2))
	}
	e.clean(p)
}

func oneAttemptTwice(e *env) {
	p := e.pool(4)
	ps := e.processes(2)
	for round := range 8 {
		attempt := numbered("a", round)
		leases := make([]*allocator.Lease, 2)
		n := e.tally(together(2, func(i int) (err error) {
			leases[i], err = ps[i].Acquire(e.Context(), ask(attempt, 1))
			return err
		}), allocator.ErrHeldByOther)
		equal(e, "granted, held by the other", []int{n[nil], n[allocator.ErrHeldByOther]}, []int{1, 1})
		for i, l := range leases {
			if l == nil {
				continue
			}
			e.unchanged("the winner again", func() {
				again, err := ps[i].Acquire(e.Context(), ask(attempt, 1))
				e.ok(err)
				equal(e, "epoch", again.Epoch(), l.Epoch())
				equal(e, "existing", again.Existing(), true)
			})
			e.release(l)
		}
	}
	e.clean(p)
}

func stolenTwice(e *env) {
	p := e.pool(1)
	ps := e.processes(2)
	for round := range 6 {
		e.acquire(p, "old")
		e.clock.advance(time.Minute + time.Microsecond)
		seen := e.probe(p, 0)
		var leases [2]*allocator.Lease
		n := e.tally(together(2, func(i int) error {
			_, err := ps[i].Reclaim(e.Context(), seen.Reclaim(allocator.ReasonExpired, ""))
			if err != nil {
				return err
			}
			leases[i], err = ps[i].Acquire(e.Context(), ask(numbered("new", i), 1))
			return err
		}), allocator.ErrFull, allocator.ErrStale)
		equal(e, "granted", n[nil], 1)
		for _, l := range leases {
			if l != nil {
				equal(e, "epoch", l.Epoch(), uint64(2*round+2))
				e.release(l)
			}
		}
	}
	e.clean(p)
}

// oneRenewalTwice: the same renewal from two sides is one renewal, with one answer.
func oneRenewalTwice(e *env) {
	p := e.pool(1)
	ps := e.processes(2)
	l := e.acquire(p, "a")
	for seq := uint64(1); seq <= 8; seq++ {
		e.clock.advance(time.Second)
		answers := make([]allocator.Renewal, 2)
		e.tally(together(2, func(i int) (err error) {
			answers[i], err = ps[i].Renew(e.Context(), l.Ref(), seq)
			return err
		}))
		equal(e, "expiry", answers[0].ExpiresAt, answers[1].ExpiresAt)
		equal(e, "renewals", e.probe(p, 0).Lease.RenewSeq, int64(seq))
	}
}

// oneReclaimWins: of two who end one lease for two reasons one is told that it was too late.
func oneReclaimWins(e *env) {
	p := e.pool(1)
	ps := e.processes(2)
	for range 6 {
		e.acquire(p, "a")
		e.clock.advance(time.Minute + time.Microsecond)
		seen := e.probe(p, 0)
		why := []allocator.Reason{allocator.ReasonExpired, allocator.ReasonForced}
		n := e.tally(together(2, func(i int) error {
			_, err := ps[i].Reclaim(e.Context(), seen.Reclaim(why[i], "n"))
			return err
		}), allocator.ErrStale)
		equal(e, "won, too late", []int{n[nil], n[allocator.ErrStale]}, []int{1, 1})
	}
	e.clean(p)
}

// waiterFirst: a release in a batch never feeds an Acquire that comes past a ticket.
func waiterFirst(e *env) {
	p := e.pool(1)
	waiter, h := e.holder(), e.holder()
	waiting := e.on(e.store, poolName, waiter)
	for round := range 12 {
		held := e.acquire(p, "held")
		e.queue(waiter, ask("first", 1))
		e.tally(e.gathered(h, func(p *allocator.Pool) error {
			_, err := p.Release(e.Context(), held.Ref())
			return err
		}, func(p *allocator.Pool) error {
			_, err := p.Acquire(e.Context(), ask("newcomer", 1))
			return err
		}), allocator.ErrFull)
		equal(e, "offers", e.offered(), []string{"first"})
		l := e.acquire(waiting, "first")
		equal(e, "epoch", l.Epoch(), uint64(2*round+2))
		e.release(l)
	}
	e.clean(p)
}

// waitersInOrder: those who wait in one process are woken with their leases, the longest wait first.
func waitersInOrder(e *env) {
	const n = 5
	p := e.pool(2)
	got := make(chan *allocator.Lease, n)
	var calls sync.WaitGroup
	ctx, cancel := context.WithCancel(e.Context())
	defer calls.Wait()
	defer cancel()
	held := []*allocator.Lease{e.acquire(p, "h0"), e.acquire(p, "h1")}
	for i := range n {
		calls.Go(func() {
			l, err := p.AcquireWait(ctx, ask(numbered("w", i), 1))
			if err != nil {
				e.Errorf("waiter %d: %v", i, err)
			}
			got <- l
		})
		for e.state(p).Waiting < i+1 {
			if e.Failed() {
				return
			}
			runtime.Gosched()
		}
	}
	for i := range n {
		e.release(held[0])
		l := <-got
		if l == nil {
			return
		}
		equal(e, "woken", l.Attempt(), numbered("w", i))
		held = append(held[1:], l)
	}
	e.clean(p)
}

// witness knows, besides the store, who is at work on a slot.
type witness struct {
	at []atomic.Int64
}

// neverTwo: processes take slots, give them back or die with them, and nobody ever finds another at work on its slot. A witness that the
// store knows nothing of looks.
func neverTwo(e *env) {
	const slots, workers, rounds = 5, 8, 25
	p := e.pool(slots)
	w := &witness{at: make([]atomic.Int64, slots)}
	stores := e.stores()
	dead := &graveyard{}
	e.tally(together(workers, func(i int) error { return w.work(e, stores[i%len(stores)], dead, i, rounds) }))
	e.ok(func() error { _, err := e.undertaker(e.store, dead, e.holder()).Sweep(e.Context(), 1000); return err }())
	equal(e, "used", e.state(p).Used, 0)
	for i := range slots {
		equal(e, "status", e.probe(p, i).Status, allocator.SlotFree)
	}
	epochs := map[uint64]bool{}
	list, err := collect(p.Leases(e.Context(), true))
	e.ok(err)
	for _, l := range list {
		epochs[l.Epoch] = true
	}
	equal(e, "epochs", len(epochs), int(e.rows(e.store, poolName).Pool.EpochSeq))
	e.clean(p)
}

// work is one process after the other.
func (w *witness) work(e *env, s allocator.Store, dead *graveyard, worker, rounds int) error {
	h := e.mortal()
	p := e.undertaker(s, dead, h)
	for i := range rounds {
		l, err := p.Acquire(e.Context(), ask(numbered(numbered("w", worker)+"-", i), 1))
		if errors.Is(err, allocator.ErrFull) {
			continue
		}
		if err != nil {
			return err
		}
		at := &w.at[slot(l)]
		if !at.CompareAndSwap(0, h.PID) {
			return errors.New("another one is at work on the slot")
		}
		runtime.Gosched()
		if !at.CompareAndSwap(h.PID, 0) {
			return errors.New("another one came to work on the slot")
		}
		if (i+worker)%6 == 0 { // it dies, and a new process takes its place
			dead.add(h.PID)
			h = e.mortal()
			p = e.undertaker(s, dead, h)
			continue
		}
		if _, err := l.Release(e.Context()); err != nil {
			return err
		}
	}
	return nil
}

// mortal is a process that the system knows.
func (e *env) mortal() allocator.Holder {
	h := e.holder()
	h.Boot, h.Namespace = "boot", "ns"
	return h
}

// undertaker opens the pool for a process that can tell who is dead.
func (e *env) undertaker(s allocator.Store, dead *graveyard, h allocator.Holder) *allocator.Pool {
	h.Boot, h.Namespace = "boot", "ns"
	return e.on(s, poolName, h, func(o *allocator.Options) { o.Owners = dead })
}

// graveyard is a system that knows which of its processes are gone. Safe for concurrent use.
type graveyard struct{ pids sync.Map }

func (g *graveyard) add(pid int64) { g.pids.Store(pid, true) }

// Process implements allocator.OwnerProber.
func (g *graveyard) Process(_ context.Context, pid int64) allocator.Process {
	if _, gone := g.pids.Load(pid); gone {
		return allocator.Process{Presence: allocator.Absent}
	}
	return allocator.Process{Presence: allocator.Present, Start: 1}
}
