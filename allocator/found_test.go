package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/allocator"
)

// hooked is a pool of a new process on a store that can be tampered with.
func (w *world) hooked(change ...func(*allocator.Options)) (*allocator.Pool, *hook) {
	w.t.Helper()
	h := &hook{Store: w.store}
	store := w.store
	w.store = h
	defer func() { w.store = store }()
	return w.process(change...), h
}

// once makes the answer to the first step that writes, or may, get lost; the step is applied.
func (h *hook) once() {
	lost := false
	h.after = func(_ allocator.Need, err error) error {
		if !lost && err == nil {
			lost = true
			return allocator.ErrUncertain
		}
		return err
	}
}

// until waits until so many wait.
func (w *world) until(p *allocator.Pool, waiting int) {
	w.t.Helper()
	for range 10_000 {
		if w.state(p).Waiting == waiting {
			return
		}
		time.Sleep(time.Millisecond)
	}
	w.t.Fatalf("%d never wait", waiting)
}

func TestR22_ADamagedTicketHoldsUpNobody(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	a := w.pool(1)
	l := w.acquire(a, "held") // of another group
	ctx, cancel := context.WithTimeout(w.ctx, 4*time.Second)
	defer cancel()
	first := w.wait(ctx, w.process(), units("first", 1, "g"))
	w.until(a, 1)
	x := w.wait(ctx, w.process(), units("second", 1, "g"))
	w.until(a, 2)
	w.exec(`UPDATE stint_alloc_ticket SET labels = '{' WHERE seq = 1`)
	w.release(l)
	if s := w.state(a); s.Used == 0 {
		t.Error("I11: a slot is free, and the sound ticket that fits is not served")
	}
	<-first.done
	<-x.done
	if x.err != nil {
		t.Errorf("polled for 4 s beside a free slot: %v", x.err)
	}
}

func TestR6c_AWaitThatLeavesAfterALostAnswer(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{false, true} {
		w := newWorld(t)
		a := w.pool(1)
		if full {
			w.acquire(a, "x")
		}
		p, h := w.hooked()
		h.once()
		ctx, cancel := context.WithTimeout(w.ctx, 30*time.Millisecond) // before the first poll
		_, err := p.AcquireWait(ctx, request("a"))
		cancel()
		s := w.state(a)
		if left := s.Used + s.Waiting; (left > 1 || !full && left > 0) && !errors.Is(err, allocator.ErrUncertain) {
			t.Errorf("%v, which says not applied; used %d, waiting %d", err, s.Used, s.Waiting)
		}
	}
}

func TestR2a_AWaitWithOtherContent(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		w.acquire(w.process(own), "x") // never renewed
		p := w.process(own)
		time.Sleep(59 * time.Second)
		x := w.wait(w.ctx, p, request("a"))
		synctest.Wait()
		time.Sleep(time.Second + time.Microsecond) // x is over
		r := request("a")
		r.Labels = map[string]string{"other": "content"}
		_, err := p.AcquireWait(w.ctx, r)
		w.want("R2a", err, allocator.ErrAttemptMismatch)
		<-x.done
	})
}

func TestI19_ForcedDamagedLease(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	p := w.pool(1)
	l := w.acquire(p, "a")
	w.exec(`UPDATE stint_alloc_lease SET labels = '{' WHERE epoch = 1`)
	if _, err := p.Reclaim(w.ctx, w.probe(p, 0).Reclaim(allocator.ReasonForced, "me")); err != nil {
		t.Fatal(err)
	}
	w.set(1)
	l2 := w.acquire(p, "b")
	if l.Valid() && l2.Valid() && index(l) == index(l2) {
		t.Errorf("one process, two valid handles on slot %d: epochs %d and %d", index(l), l.Epoch(), l2.Epoch())
	}
}

func TestR22_AHandOutThatCantBeMade(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	a := w.pool(2)
	l0, l1 := w.acquire(a, "0"), w.acquire(a, "1")
	w.release(l0)
	w.exec(`UPDATE stint_alloc_slot SET epoch = 1000 WHERE idx = 0`) // a free slot, above the pool's counter
	ctx, cancel := context.WithCancel(w.ctx)
	x := w.wait(ctx, w.process(), units("two", 2))
	w.until(a, 1)
	if _, err := l1.Release(w.ctx); err != nil {
		t.Errorf("a sound lease can't be released: %v (uncertain: %v)", err, errors.Is(err, allocator.ErrUncertain))
	}
	if _, err := a.Check(w.ctx, false); err == nil {
		t.Error("Check finds nothing")
	}
	cancel()
	<-x.done
}

func TestR22_ATicketsTTLOverflows(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	a := w.pool(1)
	l := w.acquire(a, "0")
	ctx, cancel := context.WithCancel(w.ctx)
	x := w.wait(ctx, a, request("b"))
	w.until(a, 1)
	w.exec(`UPDATE stint_alloc_ticket SET asked_ttl_us = 9223372036854775807`)
	if _, err := l.Release(w.ctx); err != nil {
		t.Errorf("a sound lease can't be released: %v", err)
	}
	cancel()
	<-x.done
}

func TestR22_ALeasesTTLOverflows(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	a := w.pool(2)
	w.acquire(a, "0")
	w.exec(`UPDATE stint_alloc_lease SET ttl_us = 9223372036854775807`)
	if _, err := a.Rebase(w.ctx, allocator.Admin{ID: "r", Version: 1}, "clock"); err != nil {
		t.Error(err)
	}
}

func TestR22_ALeaseThatNoSlotLeadsTo(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	a := w.pool(2)
	w.acquire(a, "a")
	w.exec(`UPDATE stint_alloc_slot SET attrs = '{' WHERE idx = 0`)
	w.exec(`UPDATE stint_alloc_lease SET labels = '{' WHERE epoch = 1`)
	if _, err := a.Reclaim(w.ctx, w.probe(a, 0).Reclaim(allocator.ReasonForced, "me")); err != nil {
		t.Fatal(err)
	}
	w.set(1000)
	listed := false
	for i := range 2 {
		listed = listed || w.probe(a, i).Status == allocator.SlotQuarantined
	}
	_, err := a.Check(w.ctx, true)
	if _, refused := a.Acquire(w.ctx, request("a")); refused != nil && !listed && err == nil {
		t.Errorf("attempt a is refused for ever, and neither Probe nor Check knows of it: %v", refused)
	}
}

func TestObserver_OfAWaitThatLeaves(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.bubblePool(1)
		l := w.acquire(a, "x")
		store := &unavailable{Store: w.store}
		holder := w.process(own).Holder()
		var p *allocator.Pool
		var again error
		called := false
		o := allocator.Options{Holder: &holder, Owners: processes{}, Observer: func(e allocator.Event) {
			if called {
				return
			}
			called = true
			ctx, cancel := context.WithTimeout(w.ctx, time.Hour)
			defer cancel()
			_, again = p.Acquire(ctx, request(e.Lease.Attempt))
		}}
		var err error
		if p, err = allocator.New(store, "worktrees", o); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.ctx)
		x := w.wait(ctx, p, request("a"))
		synctest.Wait()
		store.down.Store(true)
		w.release(l) // an offer that a does not hear of
		time.Sleep(11 * time.Second)
		store.down.Store(false)
		cancel()
		<-x.done
		if !called || errors.Is(again, context.DeadlineExceeded) {
			t.Errorf("called %v; its Acquire, which does not wait, hung for an hour: %v", called, again)
		}
	})
}

func TestR6c_APanicWhileLeaving(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		w.acquire(w.process(own), "x")
		p, h := w.hooked(own)
		ctx, cancel := context.WithCancel(w.ctx)
		over := make(chan struct{})
		go func() {
			defer close(over)
			defer func() { _ = recover() }() // as net/http does
			_, _ = p.AcquireWait(ctx, request("a"))
		}()
		synctest.Wait()
		h.before = func(allocator.Need) { panic("driver") }
		cancel()
		<-over
		h.before = nil
		late, stop := context.WithTimeout(w.ctx, time.Hour)
		defer stop()
		if _, err := p.Acquire(late, request("a")); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an Acquire, which does not wait, hung for an hour: %v", err)
		}
	})
}

func TestWait_AfterACancel(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		p := w.process(own)
		w.acquire(p, "x")
		bad := 0
		for range 20 {
			x := w.wait(w.ctx, p, request("a"))
			synctest.Wait()
			if c, err := p.Cancel(w.ctx, "a"); err != nil || !c.Ticket {
				t.Fatal(c, err)
			}
			ctx, cancel := context.WithTimeout(w.ctx, time.Second)
			if _, err := p.AcquireWait(ctx, request("a")); errors.Is(err, allocator.ErrTicketLost) { // anew
				bad++
			}
			cancel()
			<-x.done
		}
		if bad > 0 {
			t.Errorf("%d of 20 new calls: ErrTicketLost at once, without having had a ticket", bad)
		}
	})
}

func TestWait_TwoCallsTheFirstReleases(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		p := w.process(own)
		for range 3 {
			l := w.acquire(p, "x")
			answers := make(chan error, 2)
			for range 2 {
				go func() {
					l, err := p.AcquireWait(w.ctx, request("a"))
					if err == nil {
						_, err = l.Release(w.ctx)
					}
					answers <- err
				}()
			}
			synctest.Wait()
			w.release(l)
			for range 2 {
				if err := <-answers; err != nil {
					t.Errorf("the other call: %v", err) // lapsed
				}
			}
		}
	})
}

func TestWait_IsNotWokenByAnEndedLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(1)
	stepped, goOn := make(chan struct{}), make(chan struct{})
	var arm, blocked atomic.Bool
	q, h := w.hooked(func(o *allocator.Options) {
		o.Clock = func() (time.Time, time.Duration) {
			if arm.Load() && blocked.CompareAndSwap(false, true) {
				close(stepped)
				<-goOn // not scheduled for a while
			}
			return w.local()
		}
	})
	h.after = func(_ allocator.Need, err error) error { arm.Store(true); return err }
	go func() { _, _ = q.Acquire(w.ctx, request("a")) }()
	<-stepped // granted, and not yet back
	if c, err := q.Cancel(w.ctx, "a"); err != nil || c.Lease == nil {
		t.Fatal(c, err)
	}
	w.acquire(w.process(), "other")
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	x := w.wait(ctx, q, request("a"))
	w.until(q, 1)
	close(goOn)
	<-x.done
	w.want("it should wait on", x.err, context.DeadlineExceeded)
}

func TestI19_AStaleReleaseEndsNoHandle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	l := w.acquire(p, "a")
	ref := l.Ref() // with the identity
	w.set(10)
	if _, err := p.Rebase(w.ctx, allocator.Admin{ID: "r", Version: 1}, "the clock was wrong"); err != nil {
		t.Fatal(err)
	}
	_, err := p.Release(w.ctx, ref)
	w.want("release", err, allocator.ErrStale)
	if _, err := p.Verify(w.ctx, 0, l.Epoch()); err == nil && !l.Valid() {
		t.Errorf("nothing was released, the lease is current, but its handle is done: %v", l.Err())
	}
}

func TestLease_ARenewalIsNotExisting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.acquire(w.pool(1), "a")
	if _, err := l.Renew(w.ctx); err != nil || l.Existing() {
		t.Errorf("%v; existing %v, which no Acquire has found", err, l.Existing())
	}
}

func TestLease_ManyHandles(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"renew", "sweep"} {
		w := newWorld(t)
		p := w.pool(1000)
		l := w.acquire(p, "a")
		w.set(55) // the handle's own deadline is over, the lease is not
		for i := range 100 {
			w.acquire(p, fmt.Sprint(i))
		}
		if what == "renew" {
			if r, err := l.Renew(w.ctx); err != nil || !l.Valid() {
				t.Errorf("renewed (%v, %v left), but it is not valid; the same handle: %v", err, r.Left, r.Lease == l)
			}
			continue
		}
		w.set(61)
		if s, err := p.Sweep(w.ctx, 1); err != nil || s.Reclaimed != 1 {
			t.Fatal(s, err)
		}
		select {
		case <-l.Done():
		default:
			t.Error("this process has ended the lease, but Done is open")
		}
	}
}

func TestConfigure_CopiesThePolicy(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(2)
		p, h := w.hooked(own)
		var entered, open [2]chan struct{}
		for i := range entered {
			entered[i], open[i] = make(chan struct{}), make(chan struct{})
		}
		var n atomic.Int32
		h.before = func(allocator.Need) {
			if i := n.Add(1) - 1; i < 2 {
				close(entered[i])
				<-open[i]
			}
		}
		over := make(chan struct{}, 3)
		go func() { _, _ = p.Cancel(w.ctx, "1"); over <- struct{}{} }()
		<-entered[0]
		go func() { _, _ = p.Cancel(w.ctx, "2"); over <- struct{}{} }() // leads the second batch
		synctest.Wait()
		policy := allocator.DefaultPolicy()
		ctx, cancel := context.WithCancel(w.ctx)
		go func() {
			_, err := p.Configure(ctx, allocator.Admin{ID: "c", Version: 1}, allocator.Configuration{Policy: &policy})
			w.want("configure", err, allocator.ErrUncertain)
			policy.TTL = -1 // the call is over: the policy is the caller's again
			over <- struct{}{}
		}()
		synctest.Wait()
		close(open[0])
		<-entered[1]
		cancel()
		synctest.Wait()
		close(open[1])
		for range 3 {
			<-over
		}
		if s := w.state(p); s.Policy.TTL != time.Minute {
			t.Errorf("version %d, a TTL of %v is stored, which no validation has seen", s.Version, s.Policy.TTL)
		}
	})
}

// gate is a pool whose steps can be held, so that calls gather in one batch.
type gate struct {
	p             *allocator.Pool
	entered, open chan struct{}
	armed         atomic.Bool
}

func (w *world) gate() *gate {
	p, h := w.hooked(own)
	g := &gate{p: p, entered: make(chan struct{}), open: make(chan struct{})}
	h.before = func(allocator.Need) {
		if g.armed.CompareAndSwap(true, false) {
			close(g.entered)
			<-g.open
		}
	}
	return g
}

// batch runs calls in one step, in this order.
func (g *gate) batch(w *world, calls ...func()) {
	g.armed.Store(true)
	over := make(chan struct{}, len(calls)+1)
	go func() { _, _ = g.p.Cancel(w.ctx, "nothing"); over <- struct{}{} }()
	<-g.entered
	for _, c := range calls {
		go func() { c(); over <- struct{}{} }()
		synctest.Wait()
	}
	close(g.open)
	for range len(calls) + 1 {
		<-over
	}
}

func TestR1a_NextChangeAfterARenewalInTheSameStep(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(2)
		g := w.gate()
		l1 := w.acquire(g.p, "1")
		time.Sleep(10 * time.Second)
		w.acquire(g.p, "2")
		time.Sleep(40 * time.Second)
		want := w.probe(g.p, 1).Lease.ExpiresAt // 70 s
		var err error
		g.batch(w, func() { _, _ = l1.Renew(w.ctx) }, func() { _, err = g.p.Acquire(w.ctx, request("3")) })
		if full := w.full("acquire", err, allocator.ShortCapacity); !full.NextChange.Equal(want) {
			t.Errorf("NextChange %v, want %v", full.NextChange, want)
		}
	})
}

func TestSweep_TwoInOneStep(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(10)
		g := w.gate()
		for i := range 4 {
			w.acquire(g.p, fmt.Sprint(i))
		}
		time.Sleep(61 * time.Second)
		var a, b allocator.Swept
		g.batch(w, func() { a, _ = g.p.Sweep(w.ctx, 100) }, func() { b, _ = g.p.Sweep(w.ctx, 1) })
		if a.Reclaimed+b.Reclaimed != 4 || b.Reclaimed > 1 {
			t.Errorf("%+v and %+v: 4 leases were over, and the limit of the second is 1", a, b)
		}
	})
}

func TestSweep_PurgesBehindADamagedLease(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	p := w.pool(1)
	for i := range 300 {
		w.release(w.acquire(p, fmt.Sprint(i)))
	}
	w.exec(`UPDATE stint_alloc_lease SET labels = '{' WHERE epoch = 1`)
	w.set(8 * day)
	if s, err := p.Sweep(w.ctx, 1); err != nil || s.Purged != 299 {
		t.Errorf("%+v, %v; want 299 purged", s, err)
	}
}

func TestR22_CheckOfADamagedOffer(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	a := w.pool(2)
	l := w.acquire(a, "a")
	w.acquire(a, "c")
	store := &unavailable{Store: w.store}
	holder := w.process().Holder()
	b, err := allocator.New(store, "worktrees", allocator.Options{Clock: w.local, Holder: &holder, Owners: processes{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	x := w.wait(ctx, b, request("b"))
	w.until(a, 1)
	store.down.Store(true)
	w.release(l) // an offer, epoch 3
	w.exec(`UPDATE stint_alloc_lease SET labels = '{' WHERE epoch = 3`)
	if s, err := a.Check(w.ctx, false); err != nil || s.Blocked {
		t.Errorf("blocked %v: %v", s.Blocked, err)
	}
	cancel()
	<-x.done
}

func TestR24_KeepAfterAStaleRelease(t *testing.T) {
	bubble(t, func(w *world) {
		a, p := w.bubblePool(1), w.process(own)
		l := w.acquire(p, "a")
		kept := make(chan error, 1)
		go func() { kept <- l.Keep(w.ctx) }()
		synctest.Wait()
		if _, err := a.Reclaim(w.ctx, w.probe(a, 0).Reclaim(allocator.ReasonForced, "me")); err != nil {
			t.Fatal(err)
		}
		_, err := l.Release(w.ctx)
		w.want("release", err, allocator.ErrStale)
		if err := <-kept; !errors.Is(err, allocator.ErrLost) && !errors.Is(err, allocator.ErrLapsed) {
			t.Errorf("Keep: %v, want nil, ErrLapsed or a LostError", err)
		}
	})
}

func TestR12_AnInvalidAcquireWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(2)
	w.acquire(p, "a")
	w.acquire(p, "b")
	w.set(61)
	w.unchanged(p, "an invalid Acquire", func() {
		_, err := p.Acquire(w.ctx, units("a", 3))
		w.want("3 of 2", err, allocator.ErrInvalid)
	})
}

func TestR3_CreateBesideADamagedSlot(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	policy := allocator.DefaultPolicy()
	spec := allocator.Spec{Capacity: 1, Attrs: map[int]map[string]string{0: {"path": "/srv/0"}}, Policy: &policy}
	a := w.process()
	if _, err := a.Create(w.ctx, spec); err != nil {
		t.Fatal(err)
	}
	w.exec(`UPDATE stint_alloc_slot SET attrs = '{' WHERE idx = 0`)
	if _, err := w.process().Create(w.ctx, spec); err != nil {
		t.Errorf("the same spec: %.60v", err)
	}
}

func TestR14_AJumpAndALongTTL(t *testing.T) {
	t.Parallel()
	w := newWorld(t)            // the store's clock
	mine := &clock{us: epochUS} // the holder's own, which is right all the time
	w.pool(1)
	p, b := w.process(func(o *allocator.Options) { o.Clock = mine.local }), w.process()
	r := request("a")
	r.TTL = time.Hour
	l, err := p.Acquire(w.ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	w.set(25 * 3600) // a jump beyond JumpGuard
	_, err = b.Acquire(w.ctx, request("b"))
	w.want("in the step of the jump", err, allocator.ErrFull)
	w.setUS(25*3600*1e6 + 60_000_001) // a minute later; Keep would renew after 18 min
	mine.set(60)
	if l2, err := b.Acquire(w.ctx, request("b")); err == nil && l.Valid() {
		t.Errorf("two holders: epochs %d (valid for %v more) and %d", l.Epoch(), l.Left(), l2.Epoch())
	}
}

// A ticket that was left over is granted while a call that does not know of it leaves.
func TestR6c_AnOldTicketIsGrantedToACallThatLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(1)
	p, h := w.hooked()
	x := w.acquire(p, "x")
	ctx, cancel := context.WithCancel(w.ctx)
	first := w.wait(ctx, p, request("a"))
	w.until(w.process(), 1)
	sound := h.Store
	down := &unavailable{Store: sound}
	down.down.Store(true)
	h.Store = down
	cancel()
	<-first.done
	h.Store = sound
	ctx, cancel = context.WithCancel(w.ctx)
	defer cancel()
	var second *waiting
	armed := true
	h.before = func(allocator.Need) {
		if armed {
			second = w.wait(ctx, p, request("a"))
			time.Sleep(50 * time.Millisecond)
		}
	}
	h.after = func(_ allocator.Need, err error) error {
		if armed {
			armed = false
			cancel()
			<-second.done
		}
		return err
	}
	w.release(x)
	if s := w.state(w.process()); second.err != nil && s.Used > s.Offered {
		t.Errorf("a grant is dropped: %v", second.err)
	}
}

// The Cancel of a wait that leaves ends a lease that an Acquire is about to return, and its answer is lost.
func TestI19_AWaitLeavesWhileAnAcquireIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(1)
	p, h := w.hooked()
	x := w.acquire(w.process(), "x")
	ctx, cancel := context.WithCancel(w.ctx)
	wait := w.wait(ctx, p, request("a"))
	w.until(w.process(), 1)
	time.Sleep(20 * time.Millisecond)
	in, goOn := make(chan struct{}), make(chan struct{})
	n := 0
	h.before = func(allocator.Need) {
		if n++; n == 1 {
			close(in)
			<-goOn
		}
	}
	go func() { _, _ = p.Acquire(w.ctx, request("lead")) }()
	<-in
	w.release(x) // the slot is offered to the ticket
	var l *allocator.Lease
	got := make(chan struct{})
	go func() {
		defer close(got)
		l, _ = p.Acquire(w.ctx, request("a"))
	}()
	time.Sleep(20 * time.Millisecond)
	h.after = func(n allocator.Need, err error) error { // of the Cancel
		if err == nil && len(n.Attempts) == 1 && n.Attempts[0] == "a" && len(n.Groups) == 0 {
			return allocator.ErrUncertain
		}
		return err
	}
	h.before = func(n allocator.Need) {
		if ctx.Err() == nil && n.Attempts[0] == "a" {
			cancel()
			time.Sleep(30 * time.Millisecond)
		}
	}
	close(goOn)
	<-got
	<-wait.done
	if b, err := w.process().Acquire(w.ctx, request("b")); l != nil && l.Valid() && err == nil {
		t.Errorf("two valid handles: epochs %d and %d", l.Epoch(), b.Epoch())
	}
}

// stuck is a store whose steps, once armed, answer late and don't care for their contexts.
type stuck struct {
	allocator.Store
	armed atomic.Bool
}

func (s *stuck) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	if s.armed.Load() {
		time.Sleep(time.Minute)
	}
	return s.Store.Step(ctx, n, f)
}

// A renewal that hangs does not keep Done open.
func TestR24_DoneClosesWhileARenewalHangs(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		s := &stuck{Store: w.store}
		w.store = s
		l := w.acquire(w.process(own), "a")
		kept := make(chan error, 1)
		go func() { kept <- l.Keep(w.ctx) }()
		start := time.Now()
		s.armed.Store(true)
		<-l.Done()
		if d := time.Since(start); d != 54*time.Second || !errors.Is(l.Err(), allocator.ErrLapsed) {
			t.Errorf("after %v: %v", d, l.Err())
		}
		w.want("keep", <-kept, allocator.ErrLapsed)
	})
}

// What a holder was told after a jump counts through a Rebase.
func TestR14_RebaseTakesNothingBack(t *testing.T) {
	t.Parallel()
	for _, jump := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var off atomic.Int64
			clock := func() time.Time { return time.Now().Add(time.Duration(off.Load())) }
			w := &world{t: t, ctx: t.Context(), store: memory.New(&memory.Options{Clock: clock}).Pools()}
			p := w.bubblePool(2, func(s *allocator.Spec) { s.Policy.JumpGuard = 2 * time.Minute })
			r := request("a")
			r.TTL = 5 * time.Second
			w.acquire(p, "other")
			if jump {
				off.Store(int64(7 * 24 * time.Hour))
			} else {
				time.Sleep(3 * time.Minute)
			}
			l, err := p.Acquire(w.ctx, r)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			off.Store(0)
			if _, err := w.process(own).Rebase(w.ctx, allocator.Admin{ID: "r", Version: 1}, "the clock was wrong"); err != nil {
				t.Fatal(err)
			}
			for range 70 {
				time.Sleep(time.Second)
				if l2, err := w.process(own).Acquire(w.ctx, request("b")); err == nil {
					if index(l2) == index(l) && l.Valid() {
						t.Errorf("two valid handles, the first for %v more", l.Left())
					}
					return
				}
			}
			t.Error("never freed")
		})
	}
}

// A later jump shortens no protection.
func TestR14_AJumpShortensNoJump(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(2, func(s *allocator.Spec) {
			s.Policy.TTL, s.Policy.MaxLease, s.Policy.JumpGuard = 24*time.Hour, 24*time.Hour, 48*time.Hour
		})
		r := request("x")
		r.TTL = 5 * time.Second
		if _, err := p.Acquire(w.ctx, r); err != nil {
			t.Fatal(err)
		}
		time.Sleep(49 * time.Hour)
		r.Attempt = "a"
		l, err := p.Acquire(w.ctx, r) // takes it for a jump, and is told that it has a day
		if err != nil || l.Left() < 20*time.Hour {
			t.Fatal(l.Left(), err)
		}
		short := allocator.DefaultPolicy()
		short.Cooling, short.JumpGuard = 0, 2*time.Minute
		if _, err := p.Configure(w.ctx, allocator.Admin{ID: "c", Version: 1}, allocator.Configuration{Policy: &short}); err != nil {
			t.Fatal(err)
		}
		other := w.process(own)
		for i := range 10 {
			time.Sleep([]time.Duration{3 * time.Minute, 61 * time.Second}[i%2])
			_, _ = other.Acquire(w.ctx, request(fmt.Sprint("b", i)))
			if _, err := other.Verify(w.ctx, index(l), l.Epoch()); err != nil && l.Valid() {
				t.Fatalf("valid for %v more, but %v", l.Left(), err)
			}
		}
	})
}

// An attempt has one lease: the handle of an earlier one ends when the process gets another.
func TestI19_TheOldHandleOfAnAttempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	l1 := w.acquire(p, "a")
	if _, err := w.process().Release(w.ctx, l1.Ref()); err != nil {
		t.Fatal(err)
	}
	l2 := w.acquire(p, "a")
	if l1 == l2 || l1.Valid() || !l2.Valid() {
		t.Errorf("valid %v and %v", l1.Valid(), l2.Valid())
	}
	w.want("the old one", l1.Err(), allocator.ErrLost)
}

// What can never fit its group does not wait, and stops waiting when the group is made smaller.
func TestR5_MoreThanTheGroupsMaximum(t *testing.T) {
	bubble(t, func(w *world) {
		one, none := 1, 0
		groups := func(g, closed *int) []allocator.Group {
			return []allocator.Group{{Key: []string{"g"}, Weight: 1, Max: g}, {Key: []string{"closed"}, Weight: 1, Max: closed}}
		}
		p := w.bubblePool(4, func(s *allocator.Spec) { s.Groups = groups(&one, &none) })
		_, err := p.AcquireWait(w.ctx, units("a", 2, "g"))
		w.want("2 of 1", err, allocator.ErrInvalid)
		_, err = p.AcquireWait(w.ctx, units("a", 1, "closed"))
		w.full("of a closed group", err, allocator.ShortGroup)

		two := 2
		version := w.state(p).Version
		set := func(id string, g *int) {
			list := groups(g, &none)
			if _, err := p.Configure(w.ctx, allocator.Admin{ID: id, Version: version}, allocator.Configuration{Groups: &list}); err != nil {
				t.Fatal(err)
			}
			version++
		}
		set("1", &two)
		w.acquire(p, "h")
		held, err := p.Acquire(w.ctx, units("held", 1, "g"))
		if err != nil {
			t.Fatal(err)
		}
		x := w.wait(w.ctx, p, units("x", 2, "g"))
		synctest.Wait()
		y := w.wait(w.ctx, p, units("y", 1, "g"))
		synctest.Wait()
		set("2", &one)
		<-x.done
		w.want("what was 2 of 2", x.err, allocator.ErrInvalid)
		w.release(held)
		<-y.done
		if y.err != nil {
			t.Error(y.err)
		}
	})
}

// slowContext lets a call wait between the look whether the pool is closed and its step.
type slowContext struct {
	context.Context
	in, goOn chan struct{}
	once     atomic.Bool
}

func (c *slowContext) Err() error {
	if c.once.CompareAndSwap(false, true) {
		close(c.in)
		<-c.goOn
	}
	return c.Context.Err()
}

// An Acquire that meets Close leaves nothing behind.
func TestR13_AnAcquireMeetsClose(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	c := &slowContext{Context: w.ctx, in: make(chan struct{}), goOn: make(chan struct{})}
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, err = p.Acquire(c, request("a"))
	}()
	<-c.in
	_ = p.Close(w.ctx, true)
	close(c.goOn)
	<-done
	w.want("acquire", err, allocator.ErrClosed)
	if s := w.state(w.process()); s.Used > 0 {
		t.Error("a lease is left that nobody can release")
	}
}

// A slot that is marked as free while a live lease lists it: Check finds it, and repair gives it back.
func TestR22_CheckFindsASlotThatIsFreeAndLeased(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	p := w.pool(2)
	l := w.acquire(p, "a")
	w.exec("UPDATE stint_alloc_slot SET state = 1 WHERE idx = 0")
	_, err := p.Check(w.ctx, false)
	w.want("check", err, allocator.ErrCorrupt)
	_, err = w.process().Acquire(w.ctx, request("b"))
	w.want("nothing is granted", err, allocator.ErrCorrupt)
	if _, err := p.Check(w.ctx, true); err != nil {
		t.Fatal(err)
	}
	if l2 := w.acquire(w.process(), "b"); index(l2) != 1 {
		t.Errorf("slot %d", index(l2))
	}
	if _, err := p.Verify(w.ctx, 0, l.Epoch()); err != nil {
		t.Error(err)
	}
	if _, err := p.Check(w.ctx, false); err != nil {
		t.Error(err)
	}
}

// Two live leases list one slot: repair keeps the newer one, as a resource that checks epochs does.
func TestR22_CheckFindsTwoLeasesOfOneSlot(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	p := w.pool(2)
	w.acquire(p, "a")
	w.exec("UPDATE stint_alloc_slot SET state = 1 WHERE idx = 0")
	w.exec("UPDATE stint_alloc_pool SET used = 0")
	l2 := w.acquire(w.process(), "b")
	if index(l2) != 0 {
		t.Fatalf("slot %d", index(l2))
	}
	_, err := p.Check(w.ctx, false)
	w.want("check", err, allocator.ErrCorrupt)
	if _, err := p.Check(w.ctx, true); err != nil {
		t.Fatal(err)
	}
	var live []string
	for l, err := range p.Leases(w.ctx, false) {
		if err != nil {
			t.Fatal(err)
		}
		live = append(live, l.Attempt)
	}
	if len(live) != 1 || live[0] != "b" {
		t.Errorf("live: %q", live)
	}
	if _, err := p.Check(w.ctx, false); err != nil {
		t.Error(err)
	}
}

// The forced reclaim of a slot whose row can't be read ends no lease: that was not looked at.
func TestR10_ADamagedSlotOfALiveLease(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	p := w.pool(3)
	l, err := p.Acquire(w.ctx, units("a", 3))
	if err != nil {
		t.Fatal(err)
	}
	w.exec("UPDATE stint_alloc_slot SET attrs = '{' WHERE idx = 1")
	e := w.probe(w.process(), 1)
	for i := int64(1); i < 5; i++ {
		w.set(i * 20)
		if _, err := l.Renew(w.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.process().Reclaim(w.ctx, e.Reclaim(allocator.ReasonForced, "80 s ago")); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := p.Verify(w.ctx, i, l.Epoch()); err != nil {
			t.Errorf("slot %d: %v", i, err)
		}
	}
	if _, err := p.Check(w.ctx, false); err != nil {
		t.Error(err)
	}
}

// Counts that are too low stop grants, and nothing else.
func TestR22_CountsThatAreTooLow(t *testing.T) {
	t.Parallel()
	w := newDamaged(t)
	p := w.pool(2)
	l := w.acquire(p, "a")
	w.exec("UPDATE stint_alloc_pool SET used = 0")
	w.exec("UPDATE stint_alloc_group SET used = 0")
	w.release(l)
	_, err := p.Acquire(w.ctx, request("b"))
	w.want("acquire", err, allocator.ErrCorrupt)
	if _, err := p.Check(w.ctx, true); err != nil {
		t.Fatal(err)
	}
	w.release(w.acquire(p, "b"))
}

// Repair leaves an unreadable lease in the count of its group.
func TestR22_RepairKeepsAGroupsMaximum(t *testing.T) {
	t.Parallel()
	most := 1
	w := newDamaged(t)
	p := w.pool(3, func(s *allocator.Spec) { s.Groups = []allocator.Group{{Key: []string{"g"}, Weight: 1, Max: &most}} })
	if _, err := p.Acquire(w.ctx, units("a", 1, "g")); err != nil {
		t.Fatal(err)
	}
	w.exec("UPDATE stint_alloc_lease SET labels = '{' WHERE epoch = 1")
	w.exec("UPDATE stint_alloc_pool SET used = 2")
	if _, err := p.Check(w.ctx, true); err != nil {
		t.Fatal(err)
	}
	_, err := p.Acquire(w.ctx, units("b", 1, "g"))
	w.full("b", err, allocator.ShortGroup)
}
