package allocator_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/allocator"
)

// asked is a system that knows every process to be there, and notes whom it was asked for.
type asked struct {
	mu   sync.Mutex
	pids []int64
	slow bool // answers only when nobody waits any more
}

func (a *asked) Process(ctx context.Context, pid int64) allocator.Process {
	a.mu.Lock()
	a.pids = append(a.pids, pid)
	a.mu.Unlock()
	if a.slow {
		<-ctx.Done()
	}
	return allocator.Process{Presence: allocator.Present, Start: 1}
}

func (a *asked) take() []int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	pids := a.pids
	a.pids = nil
	slices.Sort(pids)
	return pids
}

// An owner pass asks for at most 64 owners, and the next one goes on where it stopped.
func TestR12a_AtMost64Owners(t *testing.T) {
	t.Parallel()
	const n = 100
	w := newWorld(t)
	w.pool(n)
	here := func(o *allocator.Options) { o.Holder.Boot = "b" }
	var holders []int64
	for i := range n {
		p := w.process(here)
		w.acquire(p, fmt.Sprint("a", i))
		holders = append(holders, p.Holder().PID)
	}
	system := &asked{}
	other := w.process(here, func(o *allocator.Options) { o.Owners = system })
	for _, want := range [][]int64{holders[:64], holders[64:], holders[:64]} {
		w.unchanged(other, "an owner pass", func() {
			_, err := other.Acquire(w.ctx, request("x"))
			w.full("x", err, allocator.ShortCapacity)
		})
		if got := system.take(); !slices.Equal(got, want) {
			t.Errorf("asked for %d: %v", len(got), got)
		}
	}
}

// An owner pass takes a second at most, however slow the system answers.
func TestR12a_AtMostASecond(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(2)
		here := func(o *allocator.Options) { o.Holder.Boot = "b" }
		w.acquire(w.process(own, here), "a")
		w.acquire(w.process(own, here), "b")
		system := &asked{slow: true}
		other := w.process(own, here, func(o *allocator.Options) { o.Owners = system })
		start := time.Now()
		_, err := other.Acquire(w.ctx, request("x"))
		w.full("x", err, allocator.ShortCapacity)
		if took := time.Since(start); took != time.Second || len(system.take()) != 1 {
			w.t.Errorf("%v", took)
		}
	})
}

// A waiter leaves while the store is down: its ticket ends by its deadline, and holds up nobody then.
func TestR6c_ACancelThatFailsEndsByTheDeadline(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		l := w.acquire(p, "a")
		store := &unavailable{Store: w.store}
		w.store = store
		waiter := w.process(own)
		ctx, cancel := context.WithCancel(w.ctx)
		x := w.wait(ctx, waiter, request("b"))
		synctest.Wait()
		store.down.Store(true)
		cancel()
		<-x.done
		w.want("wait", x.err, context.Canceled)
		store.down.Store(false)
		if s := w.state(p); s.Waiting != 1 {
			w.t.Fatalf("%d waiting", s.Waiting)
		}
		w.release(l) // makes it an offer
		time.Sleep(10*time.Second + time.Microsecond)
		w.release(w.acquire(p, "c"))

		l = w.acquire(p, "d")
		ctx, cancel = context.WithCancel(w.ctx)
		x = w.wait(ctx, waiter, request("e"))
		synctest.Wait()
		store.down.Store(true)
		cancel()
		<-x.done
		store.down.Store(false)
		time.Sleep(30*time.Second + time.Microsecond)
		w.release(l)
		w.release(w.acquire(p, "f"))
		if s := w.state(p); s.Waiting != 0 {
			w.t.Errorf("%d waiting", s.Waiting)
		}
	})
}

// An Observer hears of what ended otherwise than by its holder, once it is committed, and may call the pool.
func TestObserver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(3)
	var heard []string
	var observer *allocator.Pool
	observer = w.process(func(o *allocator.Options) {
		o.Observer = func(e allocator.Event) {
			v, _ := observer.Verify(w.ctx, e.Lease.Slots[0], e.Lease.Epoch)
			heard = append(heard, fmt.Sprint(e.Pool, " ", e.Lease.Attempt, " ", e.Lease.End.Reason, " ", v.Status))
		}
	})
	p := w.process()
	w.release(w.acquire(observer, "own"))
	w.acquire(p, "lapsed")
	forced := w.acquire(p, "forced")
	if _, err := observer.Reclaim(w.ctx, w.probe(p, index(forced)).Reclaim(allocator.ReasonForced, "n")); err != nil {
		t.Fatal(err)
	}
	w.set(61)
	w.acquire(p, "x") // another process ends it: its own Observer would hear
	w.set(122)
	w.acquire(observer, "y")
	want := []string{"worktrees forced forced stale", "worktrees x expired stale"}
	if !slices.Equal(heard, want) {
		t.Errorf("%q, want %q", heard, want)
	}
}
