package allocator_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/allocator"
	"github.com/stint-go/stint/allocator/allocatortest"
)

func TestStep_AdminCallsEndFirstWhatIsOver(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		w.acquire(p, "a")
		down := &unavailable{Store: w.store}
		h := w.process(own).Holder()
		gone, err := allocator.New(down, "worktrees", allocator.Options{Rand: newSource(9), Holder: &h})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.ctx)
		x := w.wait(ctx, gone, request("b"))
		synctest.Wait()
		down.down.Store(true)
		cancel()
		<-x.done
		time.Sleep(31 * time.Second)
		s, err := p.Resize(w.ctx, allocator.Admin{ID: "r", Version: 1}, 2)
		if err != nil || s.Waiting != 0 || s.Used != 1 {
			t.Errorf("a ticket past its deadline was served: %+v, %v", s, err)
		}
	})
}

func TestR19_DrainedOnceTheLastSlotIsCool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1, func(s *allocator.Spec) { s.Policy.Cooling = 15 * time.Second })
	w.acquire(p, "a")
	e := w.probe(p, 0)
	if _, err := p.Reclaim(w.ctx, e.Reclaim(allocator.ReasonForced, "test")); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Drain(w.ctx, allocator.Admin{ID: "d", Version: 1}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	w.setUS(15_000_001)
	if s, err := p.Check(w.ctx, false); err != nil || s.Status != allocator.PoolDrained || s.Used != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestR18_ARetiredSlotComesBackWithTheLastEpoch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(2)
	w.acquire(p, "a")
	for i := range 3 {
		w.release(w.acquire(p, fmt.Sprint(i)))
	}
	for i, n := range []int{1, 2} {
		if _, err := p.Resize(w.ctx, allocator.Admin{ID: fmt.Sprint(i), Version: int64(1 + i)}, n); err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			w.release(w.acquire(p, "a"))
			w.release(w.acquire(p, "last"))
		}
	}
	if e := w.probe(p, 1); e.Epoch != 5 || e.Status != allocator.SlotFree {
		t.Errorf("%v, epoch %d, want 5", e.Status, e.Epoch)
	}
}

func TestR7b_TheIdentityStaysWhenThePolicyIsLowered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	ref, err := allocator.ParseRef(w.acquire(p, "a").Ref().String())
	if err != nil {
		t.Fatal(err)
	}
	policy := allocator.DefaultPolicy()
	policy.MaxLease = 5 * time.Minute
	if _, err := p.Configure(w.ctx, allocator.Admin{ID: "c", Version: 1}, allocator.Configuration{Policy: &policy}); err != nil {
		t.Fatal(err)
	}
	launcher := w.process()
	if _, err := launcher.Renew(w.ctx, ref, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := launcher.Renew(w.ctx, ref, 2); err != nil {
		t.Errorf("the Ref names the lease no more: %v", err)
	}
	w.set(301)
	_, err = launcher.Renew(w.ctx, ref, 3)
	w.want("older than the policy allows", err, allocator.ErrLost)
}

func TestR12_SweepEndsNoMoreThanItMay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(4)
	dead := processes{}
	same := func(o *allocator.Options) { o.Holder.Boot, o.Owners = "boot", dead }
	for i := range 3 {
		a := w.process(same)
		w.acquire(a, fmt.Sprint(i))
		dead[a.Holder().PID] = allocator.Process{Presence: allocator.Absent}
	}
	q := w.process(same)
	for want := 2; want >= 0; want-- {
		s, err := q.Sweep(w.ctx, 1)
		if err != nil || s.Reclaimed != 1 || w.state(p).Used != want {
			t.Errorf("%+v, %v; %d used", s, err, w.state(p).Used)
		}
	}
}

func TestR12_TheOldestFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(3)
	a, _, c := w.acquire(p, "a"), w.acquire(p, "b"), w.acquire(p, "c")
	w.set(1)
	for _, l := range []*allocator.Lease{a, c} { // b is over first, then a
		if _, err := l.Renew(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.set(2)
	}
	w.set(100)
	q := w.process()
	for _, slot := range []int{1, 0, 2} {
		if s, err := q.Sweep(w.ctx, 1); err != nil || s.Reclaimed != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		if e := w.probe(q, slot); e.Status != allocator.SlotFree {
			t.Errorf("slot %d is not the next: %v", slot, e.Status)
		}
	}
}

func TestR1a_NextChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(2)
	w.acquire(p, "a")
	w.set(30)
	w.acquire(p, "b")
	w.set(61)
	_, err := p.Acquire(w.ctx, units("c", 2))
	if full := w.full("after a sweep", err, allocator.ShortCapacity); !full.NextChange.Equal(at(90)) {
		t.Errorf("next change %v", full.NextChange)
	}
}

// The lease of two calls that wait for one attempt is not given back because one of them leaves.
func TestR6c_ACallLeavesWhenAnotherHasTheLease(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.bubblePool(1), w.process(own)
		l := w.acquire(a, "a")
		ctx, cancel := context.WithCancel(w.ctx)
		x := w.wait(ctx, b, request("b"))
		synctest.Wait()
		time.Sleep(time.Second) // its polls come seldom by now
		y := w.wait(w.ctx, b, request("b"))
		synctest.Wait()
		w.release(l) // an offer
		<-y.done
		cancel()
		<-x.done
		if y.err != nil || !y.lease.Valid() {
			t.Fatalf("%v", y.err)
		}
		if e := w.probe(a, 0); e.Status != allocator.SlotLeased {
			t.Errorf("the lease of the other call was given back: %v; it says %v", x.err, e.Status)
		}
	})
}

func TestR6c_TheWaiterLeavesWhenAnAcquireHasTheLease(t *testing.T) {
	bubble(t, func(w *world) {
		a, b := w.bubblePool(1), w.process(own)
		l := w.acquire(a, "a")
		ctx, cancel := context.WithCancel(w.ctx)
		x := w.wait(ctx, b, request("b"))
		synctest.Wait()
		w.release(l) // an offer
		y := w.acquire(b, "b")
		synctest.Wait()
		if !x.over() || x.lease != y {
			t.Errorf("the call that waits does not have the lease: %v", x.err)
		}
		cancel()
		<-x.done
		if e := w.probe(a, 0); e.Status != allocator.SlotLeased {
			t.Errorf("the lease was given back: the slot is %v", e.Status)
		}
	})
}

func TestR24_AReplayedRenewalDoesNotBeginAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	l := w.acquire(p, "a")
	w.set(10)
	first, err := w.process().Renew(w.ctx, l.Ref(), 1) // the process itself does not hear of it
	if err != nil {
		t.Fatal(err)
	}
	w.set(60)
	again, err := p.Renew(w.ctx, l.Ref(), 1)
	if err != nil || !again.ExpiresAt.Equal(first.ExpiresAt) || again.Left != first.Left || l.Left() != 4*time.Second {
		t.Errorf("%v; until %v, was %v; %v and %v left", err, again.ExpiresAt, first.ExpiresAt, again.Left, l.Left())
	}
}

// abandon leaves a ticket in the store that nobody waits with any more, and returns its process.
func (w *world) abandon(attempt string) *allocator.Pool {
	w.t.Helper()
	store := &unavailable{Store: w.store}
	h := w.process(own).Holder()
	p, err := allocator.New(store, "worktrees", allocator.Options{Rand: newSource(9), Holder: &h})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	x := w.wait(ctx, p, request(attempt))
	synctest.Wait()
	store.down.Store(true)
	cancel()
	<-x.done
	store.down.Store(false)
	return p
}

func TestR6b_ATicketThatNobodyWaitsWithGetsAnOffer(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		l := w.acquire(p, "a")
		q := w.abandon("b")
		if _, err := q.Release(w.ctx, l.Ref()); err != nil { // its own step hands out
			t.Fatal(err)
		}
		if s := w.state(p); s.Offered != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestR13_CloseGivesUpTickets(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		w.acquire(p, "a")
		q := w.abandon("b")
		if err := q.Close(w.ctx, true); err != nil {
			t.Fatal(err)
		}
		if s := w.state(p); s.Waiting != 0 || s.Used != 1 {
			t.Errorf("%+v", s)
		}
	})
}

func TestR7_ARenewalNeverShortens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store := allocatortest.NewStrict(w.now)
	w.store = store
	p := w.pool(1)
	l := w.acquire(p, "a")
	store.SpoilLease("worktrees", l.Epoch(), func(r *allocator.LeaseRow) { r.ExpiresUS += 3_600_000_000 })
	if r, err := p.Renew(w.ctx, allocator.Ref{Pool: "worktrees", ID: l.Ref().ID, Epoch: l.Epoch()}, 1); err != nil || !r.ExpiresAt.Equal(at(3660)) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestSweep_PurgesAfterKeep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	w.release(w.acquire(p, "a"))
	for _, c := range []struct{ us, purged int64 }{{7 * day * 1_000_000, 0}, {7*day*1_000_000 + 1, 1}} {
		w.setUS(c.us)
		if s, err := p.Sweep(w.ctx, 1); err != nil || s.Purged != int(c.purged) {
			t.Errorf("at %d µs: %+v, %v", c.us, s, err)
		}
	}
}

func TestR10_AnOfferIsNotReclaimed(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		l := w.acquire(p, "a")
		w.abandon("b")
		w.release(l)
		e := w.probe(p, 0)
		w.unchanged(p, "a reclaim of an offer", func() {
			_, err := p.Reclaim(w.ctx, e.Reclaim(allocator.ReasonForced, "test"))
			w.want("of an offer", err, allocator.ErrNotReclaimable)
		})
	})
}

func TestR10_ARetryHasTheSameEvidence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	l := w.acquire(p, "a")
	old := w.probe(p, 0)
	if _, err := l.Renew(w.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Reclaim(w.ctx, w.probe(p, 0).Reclaim(allocator.ReasonForced, "test")); err != nil {
		t.Fatal(err)
	}
	_, err := p.Reclaim(w.ctx, old.Reclaim(allocator.ReasonForced, "test"))
	w.want("with older evidence", err, allocator.ErrStale)
}

func TestR17_VerifyToTheMicrosecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	l := w.acquire(p, "a")
	for _, c := range []struct {
		us     int64
		status allocator.VerifyStatus
		err    error
	}{{60_000_000, allocator.VerifyCurrent, nil}, {60_000_001, allocator.VerifyLapsed, allocator.ErrLapsed}} {
		w.setUS(c.us)
		v, err := p.Verify(w.ctx, 0, l.Epoch())
		w.want("verify", err, c.err)
		if v.Status != c.status {
			t.Errorf("at %d µs: %v", c.us, v.Status)
		}
	}
}

// A process that waits for an attempt does not get the lease of another one because it renews that one's by its Ref.
func TestR2b_AWaiterGetsNoLeaseOfAnotherProcess(t *testing.T) {
	bubble(t, func(w *world) {
		a, b, c := w.bubblePool(1), w.process(own), w.process(own)
		w.acquire(a, "a")
		ctx, cancel := context.WithCancel(w.ctx)
		down := &unavailable{Store: w.store}
		h := b.Holder()
		b, err := allocator.New(down, "worktrees", allocator.Options{Rand: newSource(9), Holder: &h})
		if err != nil {
			t.Fatal(err)
		}
		x := w.wait(ctx, b, request("b"))
		synctest.Wait()
		down.down.Store(true) // its ticket ends unseen
		time.Sleep(61 * time.Second)
		l := w.acquire(c, "b")
		down.down.Store(false)
		if _, err := b.Renew(w.ctx, l.Ref(), 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if x.over() && x.err == nil {
			t.Error("it has the lease of another process")
		}
		cancel()
		<-x.done
	})
}

func TestR6c_TheEndOfAnOldTicketIsNotThatOfANewOne(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		l := w.acquire(p, "a")
		q := w.abandon("b")
		time.Sleep(31 * time.Second)
		x := w.wait(w.ctx, q, request("b")) // its step ends the old ticket
		synctest.Wait()
		if x.over() {
			t.Fatalf("does not wait: %v", x.err)
		}
		w.release(l)
		<-x.done
		if x.err != nil {
			t.Error(x.err)
		}
	})
}
