package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/allocator"
)

func TestT30_LongWorkWithKeep(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		l := w.acquire(p, "run")
		ctx, stop := context.WithCancel(w.ctx)
		kept := make(chan error, 1)
		go func() { kept <- l.Keep(ctx) }()
		for range 30 { // the work blocks for 5 minutes at a time
			time.Sleep(5 * time.Minute)
			if !l.Valid() {
				t.Fatal("not valid")
			}
			if v, err := p.Verify(w.ctx, 0, l.Epoch()); err != nil {
				t.Fatalf("%+v, %v", v, err)
			}
		}
		stop()
		if err := <-kept; err != nil {
			t.Error(err)
		}
		if l.Err() != nil || !l.Valid() {
			t.Error("the end of the context released or lost the lease")
		}
		if e := w.probe(p, 0); e.Epoch != 1 || e.Lease.RenewSeq < 400 || e.Lease.RenewSeq > 520 {
			t.Errorf("epoch %d, %d renewals", e.Epoch, e.Lease.RenewSeq)
		}
		w.release(l)
		<-l.Done()
		if err := l.Keep(w.ctx); err != nil {
			t.Errorf("keep after a release: %v", err)
		}
	})
}

func TestT13_KeepUntilTheOldest(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		start := time.Now()
		l := w.acquire(p, "run")
		err := l.Keep(w.ctx)
		w.want("keep", err, allocator.ErrLapsed)
		if d := time.Since(start) - (6*time.Hour - 6*time.Second); d < 0 || d > time.Millisecond {
			t.Errorf("done after %v", d)
		}
		select {
		case <-l.Done():
		default:
			t.Error("Done is open")
		}
		if e := w.probe(p, 0); e.Lease.ExpiresAt != e.Lease.MaxUntil {
			t.Errorf("%+v", e.Lease)
		}
		time.Sleep(6*time.Second + time.Microsecond)
		_, err = p.Renew(w.ctx, l.Ref(), uint64(w.probe(p, 0).Lease.RenewSeq)+1)
		var lost *allocator.LostError
		if !errors.As(err, &lost) || lost.Reason != allocator.ReasonMaxLease {
			t.Errorf("renew: %v", err)
		}
	})
}

// slow is a store whose answers take a while.
type slow struct {
	allocator.Store
	delay atomic.Int64
}

func (s *slow) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	time.Sleep(time.Duration(s.delay.Load()))
	return s.Store.Step(ctx, n, f)
}

func TestT31_TheDeadlineCountsFromTheRequest(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		store := &slow{Store: w.store}
		h := w.process(own).Holder()
		p, err := allocator.New(store, "worktrees", allocator.Options{Holder: &h})
		if err != nil {
			t.Fatal(err)
		}
		l := w.acquire(p, "run")
		if left := l.Left(); left != 54*time.Second { // ttl 60 s, margin 6 s
			t.Errorf("left %v", left)
		}
		store.delay.Store(int64(5 * time.Second)) // there, and the step comes at its end: so it counts 5 s that it did not have to
		r, err := l.Renew(w.ctx)
		if err != nil || r.Lapsed {
			t.Fatal(err)
		}
		if left := l.Left(); left != 49*time.Second {
			t.Errorf("left %v", left)
		}
	})
}

func TestT31_TheMonotonicClockStandsStill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(1)
	var wall, monotonic atomic.Int64
	wall.Store(epochUS * 1000)
	p := w.process(func(o *allocator.Options) {
		o.Clock = func() (time.Time, time.Duration) {
			return time.Unix(0, wall.Load()), time.Duration(monotonic.Load())
		}
	})
	for _, c := range []struct{ wall, monotonic time.Duration }{{120 * time.Second, 0}, {0, 120 * time.Second}, {-time.Hour, 55 * time.Second}} {
		l := w.acquire(p, fmt.Sprint(c))
		if !l.Valid() || l.Left() != 54*time.Second {
			t.Errorf("left %v", l.Left())
		}
		wall.Add(int64(c.wall))
		monotonic.Add(int64(c.monotonic))
		if l.Valid() || l.Left() != 0 {
			t.Errorf("%+v: still valid", c)
		}
		select {
		case <-l.Done():
			t.Error("Done closed by time without Keep")
		default:
		}
		w.release(l)
		select {
		case <-l.Done():
		default:
			t.Error("Done is open after the release")
		}
	}
}

func TestR24_KeepWhileTheStoreIsDown(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		store := &unavailable{Store: w.store}
		h := w.process(own).Holder()
		p, err := allocator.New(store, "worktrees", allocator.Options{Holder: &h})
		if err != nil {
			t.Fatal(err)
		}
		l := w.acquire(p, "run")
		kept := make(chan error, 1)
		go func() { kept <- l.Keep(w.ctx) }()
		time.Sleep(10 * time.Second)
		store.down.Store(true)
		time.Sleep(40 * time.Second) // less than is left
		if !l.Valid() {
			t.Fatal("gave up too early")
		}
		store.down.Store(false)
		time.Sleep(10 * time.Second)
		if left := l.Left(); left < 30*time.Second {
			t.Errorf("left %v", left)
		}
		store.down.Store(true)
		start := time.Now()
		err = <-kept
		w.want("keep", err, allocator.ErrLapsed)
		w.want("and why", err, allocator.ErrUnavailable)
		if d := time.Since(start); d > 54*time.Second {
			t.Errorf("after %v", d)
		}
		if l.Valid() || !errors.Is(l.Err(), allocator.ErrLapsed) {
			t.Error("still valid")
		}
	})
}

func TestR24_KeepLearnsOfTheLoss(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		l := w.acquire(p, "run")
		kept := make(chan error, 1)
		go func() { kept <- l.Keep(w.ctx) }()
		if _, err := p.Reclaim(w.ctx, w.probe(p, 0).Reclaim(allocator.ReasonForced, "an operator")); err != nil {
			t.Fatal(err)
		}
		var lost *allocator.LostError
		if err := <-kept; !errors.As(err, &lost) || lost.Reason != allocator.ReasonForced {
			t.Errorf("%v", err)
		}
		<-l.Done()
	})
}

func TestR24_KeepRunsOnce(t *testing.T) {
	bubble(t, func(w *world) {
		l := w.acquire(w.bubblePool(1), "run")
		ctx, stop := context.WithCancel(w.ctx)
		kept := make(chan error, 1)
		go func() { kept <- l.Keep(ctx) }()
		synctest.Wait()
		w.want("twice", l.Keep(w.ctx), allocator.ErrInvalid)
		stop()
		if err := <-kept; err != nil {
			t.Error(err)
		}
	})
}

func TestR24_SomebodyElseRenews(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		l := w.acquire(p, "run")
		other := w.process(own)
		for seq := uint64(1); seq <= 3; seq++ {
			if _, err := other.Renew(w.ctx, l.Ref(), seq); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithTimeout(w.ctx, 3*time.Minute)
		defer stop()
		if err := l.Keep(ctx); err != nil {
			t.Error(err)
		}
		if !l.Valid() {
			t.Error("not valid")
		}
	})
}

func TestT21_AGrantThatComesTooLate(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		// The answer takes longer than the lease lives.
		store := &late{Store: w.store}
		h := w.process(own).Holder()
		p, err := allocator.New(store, "worktrees", allocator.Options{Holder: &h})
		if err != nil {
			t.Fatal(err)
		}
		store.delay.Store(int64(9 * time.Second))
		r := request("run")
		r.TTL = 5 * time.Second
		_, err = p.Acquire(w.ctx, r)
		w.want("acquire", err, allocator.ErrLapsed)
		if s := w.state(p); s.Used != 0 {
			t.Errorf("not given back: %+v", s)
		}
	})
}

// late is a store whose first answers are late: the step is long over.
type late struct {
	allocator.Store
	delay atomic.Int64
}

func (s *late) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	err := s.Store.Step(ctx, n, f)
	if !n.ReadOnly {
		time.Sleep(time.Duration(s.delay.Swap(0)))
	}
	return err
}

func TestT29_Close(t *testing.T) {
	bubble(t, func(w *world) {
		watcher := w.bubblePool(3)
		p := w.process(own)
		h := p.Holder()
		l := w.acquire(p, "a")
		w.acquire(p, "b")
		w.acquire(watcher, "other")
		x := w.wait(w.ctx, p, request("c"))
		synctest.Wait()
		// A restart frees nothing.
		again, err := allocator.New(w.store, "worktrees", allocator.Options{Holder: &h})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Close(w.ctx, false); err != nil {
			t.Fatal(err)
		}
		if s := w.state(watcher); s.Used != 3 {
			t.Errorf("freed: %+v", s)
		}
		if err := p.Close(w.ctx, true); err != nil {
			t.Fatal(err)
		}
		<-x.done
		w.want("the waiter", x.err, allocator.ErrClosed)
		<-l.Done()
		if s := w.state(watcher); s.Used != 1 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		for ended, err := range watcher.Leases(w.ctx, true) {
			if err != nil {
				t.Fatal(err)
			}
			if ended.Attempt != "other" && ended.End.Reason != allocator.ReasonReleased {
				t.Errorf("%+v", ended)
			}
		}
		_, err = p.Acquire(w.ctx, request("d"))
		w.want("closed", err, allocator.ErrClosed)
		if err := p.Close(w.ctx, true); err != nil {
			t.Errorf("again: %v", err)
		}
	})
}

func TestCloseThatFailedGivesBackWhenCalledAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	watcher := w.pool(1)
	store := &unavailable{Store: w.store}
	h := allocator.Holder{Incarnation: allocator.Incarnation{1}}
	p, err := allocator.New(store, "worktrees", allocator.Options{Clock: w.local, Holder: &h})
	if err != nil {
		t.Fatal(err)
	}
	w.acquire(p, "a")
	store.down.Store(true)
	w.want("a store that is down", p.Close(w.ctx, true), allocator.ErrUnavailable)
	store.down.Store(false)
	if err := p.Close(w.ctx, true); err != nil || w.state(watcher).Used != 0 {
		t.Errorf("%v, %+v", err, w.state(watcher))
	}
}
