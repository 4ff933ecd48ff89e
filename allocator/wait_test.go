package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/allocator"
)

// bubble runs a test in which time passes as soon as everybody waits; all clocks are the bubble's own.
func bubble(t *testing.T, f func(w *world)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, ctx: t.Context(), store: memory.New(nil).Pools()}
		f(w)
	})
}

// own takes the world's clock out of the options, for a bubble.
func own(o *allocator.Options) { o.Clock = nil }

// waiting is an AcquireWait on its way.
type waiting struct {
	lease *allocator.Lease
	err   error
	done  chan struct{}
}

func (w *world) wait(ctx context.Context, p *allocator.Pool, r allocator.Request) *waiting {
	x := &waiting{done: make(chan struct{})}
	go func() {
		defer close(x.done)
		x.lease, x.err = p.AcquireWait(ctx, r)
	}()
	return x
}

func (x *waiting) over() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

func (w *world) bubblePool(capacity int, change ...func(*allocator.Spec)) *allocator.Pool {
	w.t.Helper()
	policy := allocator.DefaultPolicy()
	policy.Cooling = 0
	s := allocator.Spec{Capacity: capacity, Policy: &policy}
	for _, c := range change {
		c(&s)
	}
	p := w.process(own)
	if _, err := p.Create(w.ctx, s); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func units(attempt string, n int, group ...string) allocator.Request {
	return allocator.Request{Attempt: attempt, Units: n, Group: group}
}

func TestWait_SameProcessIsWokenAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		l := w.acquire(p, "a")
		x := w.wait(w.ctx, p, request("b"))
		synctest.Wait()
		if x.over() || w.state(p).Waiting != 1 {
			t.Fatal("does not wait")
		}
		before := time.Now()
		w.release(l)
		<-x.done
		if x.err != nil || x.lease.Epoch() != 2 || x.lease.Existing() || time.Since(before) > 0 {
			t.Errorf("%v after %v", x.err, time.Since(before))
		}
	})
}

func TestWait_OtherProcessClaimsItsOffer(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.bubblePool(1)
		b := w.process(own)
		l := w.acquire(a, "a")
		x := w.wait(w.ctx, b, request("b"))
		synctest.Wait()
		w.release(l)
		if s := w.state(a); s.Offered != 1 || s.Waiting != 0 || s.Used != 1 {
			t.Errorf("%+v", s)
		}
		before := time.Now()
		<-x.done
		if x.err != nil || x.lease.Epoch() != 2 || x.lease.Existing() || time.Since(before) > 2200*time.Millisecond {
			t.Errorf("%v after %v", x.err, time.Since(before))
		}
		if e := w.probe(a, 0); e.Lease.Status != allocator.LeaseLive || !e.Lease.AcquiredAt.After(before.Add(-time.Microsecond)) {
			t.Errorf("%+v", e.Lease)
		}
		if s := w.state(a); s.Offered != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestT14_Resize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(5)
	var leases []*allocator.Lease
	for i := range 5 {
		leases = append(leases, w.acquire(p, fmt.Sprint(i)))
	}
	s, err := p.Resize(w.ctx, allocator.Admin{ID: "r1", Version: 1}, 2)
	if err != nil || s.Excess != 3 || s.Used != 5 || s.Version != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	_, err = p.Acquire(w.ctx, request("x"))
	w.full("above", err, allocator.ShortExcess)
	for _, l := range leases[:4] {
		w.release(l)
	}
	if s := w.state(p); s.Used != 1 {
		t.Errorf("used %d", s.Used)
	}
	if l := w.acquire(p, "x"); index(l) != 0 || l.Epoch() != 6 {
		t.Errorf("slot %d, epoch %d", index(l), l.Epoch())
	}
	_, err = p.Acquire(w.ctx, request("y"))
	w.full("at capacity", err, allocator.ShortCapacity)
	if s, err = p.Resize(w.ctx, allocator.Admin{ID: "r2", Version: 2}, 5); err != nil || s.Used != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	for i, want := range []int{1, 2, 3} {
		if l := w.acquire(p, fmt.Sprint("z", i)); index(l) != want || l.Epoch() != uint64(7+i) {
			t.Errorf("slot %d, epoch %d", index(l), l.Epoch())
		}
	}
	again, err := p.Resize(w.ctx, allocator.Admin{ID: "r2", Version: 2}, 5)
	if err != nil || again != s {
		t.Errorf("again: %+v, %v", again, err)
	}
	_, err = p.Resize(w.ctx, allocator.Admin{ID: "r2", Version: 2}, 6)
	w.want("other content", err, allocator.ErrAttemptMismatch)
	_, err = p.Resize(w.ctx, allocator.Admin{ID: "r3", Version: 2}, 6)
	var stale *allocator.StaleError
	if !errors.As(err, &stale) || stale.Version != 3 {
		t.Errorf("old version: %v", err)
	}
}

func TestT14_WaiterOfTwoUnits(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(3)
		if _, err := p.Acquire(w.ctx, units("a", 2)); err != nil {
			t.Fatal(err)
		}
		x := w.wait(w.ctx, p, units("b", 2))
		synctest.Wait()
		if _, err := p.Resize(w.ctx, allocator.Admin{ID: "r", Version: 1}, 4); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !x.over() || x.err != nil {
			t.Errorf("not granted in the step of the Resize: %v", x.err)
		}
		y := w.wait(w.ctx, p, units("c", 2))
		synctest.Wait()
		if _, err := p.Resize(w.ctx, allocator.Admin{ID: "r2", Version: 2}, 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !y.over() {
			t.Error("still waits for what can never be")
		}
		w.want("never", y.err, allocator.ErrInvalid)
	})
}

func TestT15_Drain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(3)
	var leases []*allocator.Lease
	for i := range 3 {
		leases = append(leases, w.acquire(p, fmt.Sprint(i)))
	}
	s, err := p.Drain(w.ctx, allocator.Admin{ID: "d", Version: 1}, time.Time{})
	if err != nil || s.Status != allocator.PoolDraining {
		t.Fatalf("%+v, %v", s, err)
	}
	_, err = p.Acquire(w.ctx, request("new"))
	w.want("new", err, allocator.ErrDraining)
	_, err = p.AcquireWait(w.ctx, request("new"))
	w.want("new, waiting", err, allocator.ErrDraining)
	if l := w.acquire(p, "0"); l != leases[0] {
		t.Error("no replay")
	}
	for i, l := range leases {
		w.set(int64(10 * (i + 1)))
		w.release(l)
		if want := []allocator.PoolStatus{allocator.PoolDraining, allocator.PoolDraining, allocator.PoolDrained}[i]; w.state(p).Status != want {
			t.Errorf("after %d: %v", i, w.state(p).Status)
		}
	}
	if err := p.WaitDrained(w.ctx); err != nil {
		t.Errorf("drained: %v", err)
	}
	t.Run("with a deadline", func(t *testing.T) {
		if _, err := p.Reopen(w.ctx, allocator.Admin{ID: "o", Version: 2}); err != nil {
			t.Fatal(err)
		}
		w.set(0)
		w.set(30)
		l := w.acquire(p, "left")
		ref := l.Ref()
		if _, err := p.Drain(w.ctx, allocator.Admin{ID: "d2", Version: 3}, at(55)); err != nil {
			t.Fatal(err)
		}
		w.set(55)
		if _, err := p.Renew(w.ctx, ref, 1); err != nil {
			t.Errorf("at the deadline: %v", err)
		}
		w.set(56)
		w.unchanged(p, "a renewal past the deadline", func() {
			_, err := p.Renew(w.ctx, ref, 2)
			w.want("renew", err, allocator.ErrDraining)
		})
		err := p.WaitDrained(w.ctx)
		var drain *allocator.DrainError
		if !errors.As(err, &drain) || len(drain.Left) != 1 || drain.Left[0].Attempt != "left" {
			t.Errorf("%v", err)
		}
		if e := w.probe(p, 0); e.Lease == nil || e.Lease.Status != allocator.LeaseLive {
			t.Errorf("killed: %+v", e)
		}
	})
}

func TestT16_Groups(t *testing.T) {
	bubble(t, func(w *world) {
		group := func(name string, weight int64, min int, max *int) allocator.Group {
			return allocator.Group{Key: []string{name}, Weight: weight, Min: min, Max: max}
		}
		one := 1
		for _, c := range []struct {
			name     string
			capacity int
			groups   []allocator.Group
			demand   map[string]int
			want     map[string]int
		}{
			{"weights", 4, []allocator.Group{group("A", 3, 0, nil), group("B", 1, 0, nil)}, map[string]int{"A": 9, "B": 9}, map[string]int{"A": 3, "B": 1}},
			{"maximum", 4, []allocator.Group{group("A", 1, 0, &one), group("B", 1, 0, nil)}, map[string]int{"A": 9, "B": 9}, map[string]int{"A": 1, "B": 3}},
			{"2", 10, []allocator.Group{group("A", 3, 0, nil), group("B", 1, 0, nil), group("C", 1, 0, nil)}, map[string]int{"A": 10, "B": 10, "C": 1}, map[string]int{"A": 7, "B": 2, "C": 1}},
		} {
			w.store = memory.New(nil).Pools()
			p := w.bubblePool(c.capacity, func(s *allocator.Spec) { s.Groups = c.groups })
			all, err := p.Acquire(w.ctx, units("all", c.capacity, "other"))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(w.ctx)
			var list []*waiting
			for i := range 10 {
				for _, g := range []string{"A", "B", "C"} {
					if i < c.demand[g] {
						list = append(list, w.wait(ctx, p, units(fmt.Sprint(g, i), 1, g)))
						synctest.Wait()
					}
				}
			}
			w.release(all)
			synctest.Wait()
			got := map[string]int{}
			for _, x := range list {
				if x.over() && x.err == nil {
					got[x.lease.Attempt()[:1]]++
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
			if c.name == "weights" { // a group below its minimum is next
				if _, err := p.Configure(w.ctx, allocator.Admin{ID: "c", Version: 1}, allocator.Configuration{Groups: &[]allocator.Group{c.groups[0], c.groups[1], group("C", 1, 1, nil)}}); err != nil {
					t.Fatal(err)
				}
				x := w.wait(ctx, p, units("C0", 1, "C"))
				synctest.Wait()
				for _, y := range list {
					if y.over() && y.lease.Attempt()[:1] == "A" {
						w.release(y.lease)
						break
					}
				}
				synctest.Wait()
				if !x.over() {
					t.Error("the group below its minimum waits")
				}
			}
			cancel()
			for _, x := range list {
				<-x.done
			}
			synctest.Wait()
			if s := w.state(p); s.Waiting != 0 {
				t.Errorf("%s: %d still wait", c.name, s.Waiting)
			}
		}
	})
}

func TestT17_LargeRequests(t *testing.T) {
	bubble(t, func(w *world) {
		for _, second := range []string{"g", "other"} {
			w.store = memory.New(nil).Pools()
			p := w.bubblePool(3)
			if _, err := p.Acquire(w.ctx, units("used", 2)); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(w.ctx)
			x := w.wait(ctx, p, units("two", 2, "g"))
			synctest.Wait()
			y := w.wait(w.ctx, p, units("one", 1, second))
			synctest.Wait()
			if y.over() != (second == "other") {
				t.Errorf("%s: over %v", second, y.over())
			}
			cancel()
			<-x.done
			synctest.Wait()
			if !y.over() || y.err != nil {
				t.Errorf("%s: not granted when the first one left: %v", second, y.err)
			}
			w.want("cancelled", x.err, context.Canceled)
		}
	})
}

func TestT18_RandomCancels(t *testing.T) {
	t.Parallel()
	w := &world{t: t, ctx: t.Context(), store: memory.New(nil).Pools()}
	pools := []*allocator.Pool{w.bubblePool(3), w.process(own), w.process(own)}
	rounds := 10_000
	if testing.Short() {
		rounds = 200
	}
	var grants, cancels atomic.Int64
	random := newSource(18).(*source)
	var wg sync.WaitGroup
	limit := make(chan struct{}, 40)
	for i := range rounds {
		limit <- struct{}{}
		var b [3]byte
		_, _ = random.Read(b[:])
		p := pools[int(b[0])%len(pools)]
		wg.Go(func() {
			defer func() { <-limit }()
			ctx, cancel := context.WithTimeout(w.ctx, time.Duration(b[1])*20*time.Microsecond)
			defer cancel()
			l, err := p.AcquireWait(ctx, units(fmt.Sprint("run-", i), 1+int(b[2])%2, fmt.Sprint(b[2]%3)))
			if errors.Is(err, context.DeadlineExceeded) {
				cancels.Add(1)
				return
			}
			grants.Add(1)
			if err == nil {
				_, err = l.Release(w.ctx)
			}
			if err != nil {
				t.Errorf("run-%d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if t.Logf("%d grants, %d cancels", grants.Load(), cancels.Load()); grants.Load() == 0 || cancels.Load() == 0 {
		t.Error("too few of one kind to tell")
	}
	s := w.state(pools[0])
	if s.Used != 0 || s.Waiting != 0 || s.Offered != 0 {
		t.Errorf("left behind: %+v", s)
	}
	if _, err := pools[0].Check(w.ctx, false); err != nil {
		t.Error(err)
	}
	if l, err := pools[0].Acquire(w.ctx, units("all", 3)); err != nil || len(l.Slots()) != 3 {
		t.Errorf("a slot is lost: %v", err)
	}
}

func TestT20_TheHeadDies(t *testing.T) {
	bubble(t, func(w *world) {
		for _, offered := range []bool{false, true} {
			w.store = memory.New(nil).Pools()
			a := w.bubblePool(1)
			l := w.acquire(a, "a")
			// The head's process dies: it asked once and never again.
			dead := w.process(own)
			ctx, cancel := context.WithCancel(w.ctx)
			broken := &unavailable{Store: w.store}
			h := dead.Holder()
			head, err := allocator.New(broken, "worktrees", allocator.Options{Rand: newSource(9), Holder: &h})
			if err != nil {
				t.Fatal(err)
			}
			x := w.wait(ctx, head, request("head"))
			synctest.Wait()
			broken.down.Store(true)
			y := w.wait(w.ctx, w.process(own), request("next"))
			synctest.Wait()
			start := time.Now()
			if offered {
				w.release(l)
			} else {
				go func() {
					_ = l.Keep(ctx)
				}()
				time.Sleep(25 * time.Second)
				if y.over() {
					t.Fatal("too early")
				}
				time.Sleep(6 * time.Second)
				w.release(l)
				start = time.Now().Add(-10 * time.Second)
			}
			<-y.done
			if y.err != nil || time.Since(start) < 10*time.Second || time.Since(start) > 13*time.Second {
				t.Errorf("offered %v: %v after %v", offered, y.err, time.Since(start))
			}
			if want := uint64(2); offered {
				if y.lease.Epoch() != want+1 {
					t.Errorf("epoch %d", y.lease.Epoch())
				}
			} else if y.lease.Epoch() != want {
				t.Errorf("epoch %d", y.lease.Epoch())
			}
			cancel()
			<-x.done
		}
	})
}

func TestT21_ClockOfTheWaiterStops(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		l := w.acquire(p, "a")
		store := &unavailable{Store: w.store}
		h := w.process(own).Holder()
		q, err := allocator.New(store, "worktrees", allocator.Options{Rand: newSource(9), Holder: &h})
		if err != nil {
			t.Fatal(err)
		}
		x := w.wait(w.ctx, q, request("b"))
		synctest.Wait()
		store.down.Store(true)
		for range 31 { // the others live on
			time.Sleep(time.Second)
			if _, err := l.Renew(w.ctx); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.Sweep(w.ctx, 1); err != nil {
			t.Fatal(err)
		}
		store.down.Store(false)
		<-x.done
		w.want("after the stop", x.err, allocator.ErrTicketLost)
		w.release(l)
		if s := w.state(p); s.Used != 0 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestT34_OldestFirst(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.bubblePool(2)
		var list []*waiting
		for i := range 5 {
			list = append(list, w.wait(w.ctx, w.process(own), request(fmt.Sprint(i))))
			synctest.Wait()
		}
		if s := w.state(a); s.Used != 2 || s.Waiting != 3 {
			t.Fatalf("%+v", s)
		}
		// Nobody renews and nobody sweeps: the waiters' own polls end the leases.
		start := time.Now()
		for i := 2; i < 4; i++ {
			<-list[i].done
		}
		if d := time.Since(start); d < time.Minute || d > time.Minute+4400*time.Millisecond {
			t.Errorf("after %v", d)
		}
		if list[2].err != nil || list[3].err != nil || list[2].lease.Epoch() != 3 || list[3].lease.Epoch() != 4 {
			t.Errorf("%v, %v", list[2].err, list[3].err)
		}
		<-list[4].done
	})
}

func TestWait_SameAttemptTwice(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		l := w.acquire(p, "a")
		ctx, cancel := context.WithCancel(w.ctx)
		x := w.wait(ctx, p, request("b"))
		y := w.wait(w.ctx, p, request("b"))
		synctest.Wait()
		cancel() // the last waiter keeps the ticket
		<-x.done
		if s := w.state(p); s.Waiting != 1 {
			t.Errorf("%+v", s)
		}
		z := w.wait(w.ctx, p, request("b"))
		synctest.Wait()
		w.release(l)
		<-y.done
		<-z.done
		if y.err != nil || z.err != nil || y.lease != z.lease {
			t.Errorf("%v, %v; %p, %p", y.err, z.err, y.lease, z.lease)
		}
	})
}

func TestWait_Drain(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.bubblePool(1)
		w.acquire(a, "a")
		x, y := w.wait(w.ctx, a, request("b")), w.wait(w.ctx, w.process(own), request("c"))
		synctest.Wait()
		if _, err := a.Drain(w.ctx, allocator.Admin{ID: "d", Version: 1}, time.Time{}); err != nil {
			t.Fatal(err)
		}
		<-x.done
		<-y.done
		w.want("here", x.err, allocator.ErrDraining)
		w.want("elsewhere", y.err, allocator.ErrDraining)
	})
}

func TestTickets(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.bubblePool(1)
		w.acquire(a, "a")
		ctx, cancel := context.WithCancel(w.ctx)
		for i := range 3 {
			w.wait(ctx, a, units(fmt.Sprint(i), 1, "g"))
			synctest.Wait()
		}
		var attempts []string
		for ticket, err := range a.Tickets(w.ctx) {
			if err != nil {
				t.Fatal(err)
			}
			attempts = append(attempts, ticket.Attempt)
		}
		if !slices.Equal(attempts, []string{"0", "1", "2"}) {
			t.Error(strings.Join(attempts, " "))
		}
		_, err := a.Acquire(w.ctx, units("d", 1, "g"))
		if full := w.full("behind them", err, allocator.ShortQueue); full.Ahead != 3 {
			t.Errorf("%+v", full)
		}
		cancel()
		synctest.Wait()
	})
}

// counted is a store that counts its steps.
type counted struct {
	allocator.Store
	steps atomic.Int64
}

func (c *counted) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	c.steps.Add(1)
	return c.Store.Step(ctx, n, f)
}

// A step that fills the pool looks for no more tickets.
func TestWait_HandOverTakesOneStep(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.bubblePool(1)
		l := w.acquire(a, "a")
		store := &counted{Store: w.store}
		w.store = store
		b := w.process(own)
		ctx, cancel := context.WithCancel(w.ctx)
		var waits []*waiting
		for i := range 3 {
			waits = append(waits, w.wait(ctx, b, request(fmt.Sprint(i))))
			synctest.Wait()
		}
		before := store.steps.Load()
		if _, err := b.Release(w.ctx, l.Ref()); err != nil {
			t.Fatal(err)
		}
		if n := store.steps.Load() - before; n != 1 {
			t.Errorf("%d steps", n)
		}
		cancel()
		for _, x := range waits {
			<-x.done
		}
	})
}
