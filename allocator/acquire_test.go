package allocator_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/allocator"
)

func TestT1_FiveSlotsFiveProcesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(5)
	var wg sync.WaitGroup
	leases := make([]*allocator.Lease, 5)
	for i := range leases {
		p := w.process()
		wg.Go(func() { leases[i] = w.acquire(p, fmt.Sprint("run-", i)) })
	}
	wg.Wait()
	var slots, epochs []int
	for _, l := range leases {
		slots, epochs = append(slots, index(l)), append(epochs, int(l.Epoch()))
	}
	slices.Sort(slots)
	slices.Sort(epochs)
	if !slices.Equal(slots, []int{0, 1, 2, 3, 4}) || !slices.Equal(epochs, []int{1, 2, 3, 4, 5}) {
		t.Errorf("slots %v, epochs %v", slots, epochs)
	}
}

func TestT2_ThreeProcessesTwoSlots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.pool(2)
	var wg sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		p := w.process()
		wg.Go(func() { _, errs[i] = p.Acquire(w.ctx, request(fmt.Sprint("run-", i))) })
	}
	wg.Wait()
	refused := 0
	for _, err := range errs {
		if err != nil {
			refused++
			if full := w.full("third", err, allocator.ShortCapacity); full.Used != 2 || full.Capacity != 2 {
				t.Errorf("%+v", full)
			}
		}
	}
	if s := w.state(first); refused != 1 || s.Used != 2 {
		t.Errorf("%d refused, used %d", refused, s.Used)
	}
}

func TestT3_OneAttemptTwoProcesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.pool(5)
	b := w.process()
	l := w.acquire(a, "run")
	_, err := b.Acquire(w.ctx, request("run"))
	var held *allocator.HeldError
	if !errors.As(err, &held) || held.Epoch != l.Epoch() {
		t.Errorf("the other: %v", err)
	}
	w.unchanged(a, "a replay", func() {
		again := w.acquire(a, "run")
		if again != l || !again.Existing() || again.Epoch() != 1 {
			t.Errorf("again: %p, %v, epoch %d; first %p", again, again.Existing(), again.Epoch(), l)
		}
	})
	t.Run("2", func(t *testing.T) { // both find it lapsed
		w.set(61)
		e := w.probe(a, 0)
		_, err1 := a.Reclaim(w.ctx, e.Reclaim(allocator.ReasonExpired, ""))
		l2 := w.acquire(b, "steal")
		_, err2 := a.Reclaim(w.ctx, e.Reclaim(allocator.ReasonExpired, ""))
		w.want("the second", err2, allocator.ErrStale)
		if err1 != nil || !l2.Valid() {
			t.Error(err1)
		}
		_, err3 := b.Reclaim(w.ctx, e.Reclaim(allocator.ReasonForced, "b"))
		w.want("the other's", err3, allocator.ErrStale)
	})
}

func TestT4_AttemptWithOtherParams(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(5)
	r := request("a")
	r.Group = []string{"github.com", "acme/widgets"}
	if _, err := p.Acquire(w.ctx, r); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field  string
		change func(*allocator.Request)
	}{
		{"Group", func(r *allocator.Request) { r.Group = []string{"ghe", "acme/widgets"} }},
		{"Units", func(r *allocator.Request) { r.Units = 2 }},
		{"TTL", func(r *allocator.Request) { r.TTL = time.Minute }},
		{"MaxLease", func(r *allocator.Request) { r.MaxLease = 6 * time.Hour }},
		{"Owner", func(r *allocator.Request) { r.Owner = allocator.OwnerNone }},
		{"Labels", func(r *allocator.Request) { r.Labels = map[string]string{"a": "b"} }},
	} {
		other := r
		c.change(&other)
		for _, from := range []*allocator.Pool{p, w.process()} {
			w.unchanged(p, c.field, func() {
				_, err := from.Acquire(w.ctx, other)
				var mismatch *allocator.MismatchError
				if !errors.As(err, &mismatch) || !slices.Equal(mismatch.Fields, []string{c.field}) {
					t.Errorf("%s: %v", c.field, err)
				}
			})
		}
	}
}

func TestT5_OldEvidence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.pool(1)
	for i := range 6 { // epochs 1 to 6
		w.release(w.acquire(a, fmt.Sprint(i)))
	}
	w.acquire(a, "crashed") // 7
	w.set(61)
	f0 := w.probe(a, 0)
	if f0.Verdict != allocator.VerdictExpired || f0.Epoch != 7 {
		t.Fatalf("%+v", f0)
	}
	b := w.process()
	l := w.acquire(b, "next")
	if l.Epoch() != 8 {
		t.Fatal(l.Epoch())
	}
	w.unchanged(a, "reclaim on old evidence", func() {
		for _, why := range []allocator.Reason{allocator.ReasonExpired, allocator.ReasonForced, allocator.ReasonDeadOwner, allocator.ReasonMaxLease} {
			_, err := a.Reclaim(w.ctx, f0.Reclaim(why, "x"))
			w.want(why.String(), err, allocator.ErrStale)
		}
		// With the new epoch and the old fingerprint too.
		r := f0.Reclaim(allocator.ReasonForced, "x")
		r.Epoch = 8
		_, err := a.Reclaim(w.ctx, r)
		w.want("old fingerprint", err, allocator.ErrStale)
	})
	f1 := w.probe(a, 0)
	w.setUS(121_000_000)
	_, err := a.Reclaim(w.ctx, f1.Reclaim(allocator.ReasonExpired, ""))
	w.want("at its expiry", err, allocator.ErrNotReclaimable)
	w.setUS(121_000_001)
	if _, err := a.Reclaim(w.ctx, f1.Reclaim(allocator.ReasonExpired, "")); err != nil {
		t.Errorf("1 µs later: %v", err)
	}
	if l := w.acquire(a, "third"); l.Epoch() != 9 {
		t.Errorf("epoch %d", l.Epoch())
	}
}

func TestT6_FrozenClock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	l1 := w.acquire(p, "a")
	f1, ref1 := w.probe(p, 0), l1.Ref()
	w.release(l1)
	l2 := w.acquire(p, "a")
	w.unchanged(p, "old evidence", func() {
		_, err := p.Reclaim(w.ctx, f1.Reclaim(allocator.ReasonForced, "x"))
		w.want("reclaim", err, allocator.ErrStale)
		_, err = p.Release(w.ctx, ref1)
		w.want("release", err, allocator.ErrStale)
	})
	if !l2.Valid() || w.probe(p, 0).Epoch != 2 {
		t.Error("the second lease is gone")
	}
}

func TestT7_TheVeryInstant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		us   int64
		keep bool // renewed before
		want allocator.Reason
	}{
		{60_000_000, false, 0},
		{60_000_001, false, allocator.ReasonExpired},
		{21_600_000_000, true, 0},
		{21_600_000_001, true, allocator.ReasonMaxLease},
	} {
		w := newWorld(t)
		p := w.pool(1)
		l := w.acquire(p, "a")
		if c.keep {
			for s := int64(50); s < 21_600; s += 50 {
				w.setUS(s * 1e6)
				if _, err := l.Renew(w.ctx); err != nil {
					t.Fatal(err)
				}
			}
			w.setUS(21_599_000_000)
			if _, err := l.Renew(w.ctx); err != nil {
				t.Fatal(err)
			}
		}
		w.setUS(c.us)
		e := w.probe(p, 0)
		if e.Reason != c.want {
			t.Errorf("at %d: %v, want %v", c.us, e.Reason, c.want)
		}
		for _, why := range []allocator.Reason{allocator.ReasonExpired, allocator.ReasonMaxLease} {
			if why != c.want {
				_, err := p.Reclaim(w.ctx, e.Reclaim(why, ""))
				w.want(fmt.Sprint(c.us, " ", why), err, allocator.ErrNotReclaimable)
			}
		}
		_, err := p.Acquire(w.ctx, request("b"))
		if (err == nil) != (c.want != 0) {
			t.Errorf("at %d: acquire %v", c.us, err)
		}
	}
}

func TestT10_TheAcquireSweepsWithItsOwnNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.pool(1)
	b := w.process()
	w.acquire(b, "peer")
	w.set(3700)
	l := w.acquire(a, "worker")
	if l.Epoch() != 2 {
		t.Errorf("epoch %d", l.Epoch())
	}
	for old, err := range a.Leases(w.ctx, true) {
		if err != nil {
			t.Fatal(err)
		}
		if old.Epoch == 1 && (old.End.Reason != allocator.ReasonExpired || !old.End.At.Equal(at(3700)) || old.End.Evidence.IsZero()) {
			t.Errorf("%+v", old.End)
		}
	}
}

func TestT11_TheOldHolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.pool(1)
	b := w.process()
	la := w.acquire(a, "A")
	w.set(61)
	if _, err := a.Reclaim(w.ctx, w.probe(a, 0).Reclaim(allocator.ReasonExpired, "")); err != nil {
		t.Fatal(err)
	}
	lb := w.acquire(b, "B")
	w.unchanged(a, "the old holder", func() {
		_, err := a.Release(w.ctx, la.Ref())
		w.want("release", err, allocator.ErrStale)
		_, err = a.Renew(w.ctx, la.Ref(), 1)
		var lost *allocator.LostError
		if !errors.As(err, &lost) || lost.CurrentEpoch != 2 || lost.Reason != allocator.ReasonExpired {
			t.Errorf("renew: %v", err)
		}
		v, err := a.Verify(w.ctx, 0, 1)
		w.want("verify", err, allocator.ErrStale)
		if v.Status != allocator.VerifyStale || v.Current != 2 {
			t.Errorf("verify: %+v", v)
		}
	})
	if v, err := a.Verify(w.ctx, 0, lb.Epoch()); err != nil || v.Status != allocator.VerifyCurrent {
		t.Errorf("verify: %+v, %v", v, err)
	}
}

func TestT12_Renew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.pool(1)
	l := w.acquire(a, "A")
	ref := l.Ref()
	w.set(75)
	r, err := a.Renew(w.ctx, ref, 1)
	if err != nil || !r.Lapsed || !r.ExpiresAt.Equal(at(135)) || r.Lease.Epoch() != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	w.set(80)
	w.unchanged(a, "a replay", func() {
		again, err := a.Renew(w.ctx, ref, 1)
		if err != nil || again.ExpiresAt != r.ExpiresAt || again.Lapsed != r.Lapsed || again.Left != r.Left {
			t.Errorf("again: %+v, %v", again, err)
		}
	})
	for seq := uint64(2); seq <= 5; seq++ {
		if _, err := a.Renew(w.ctx, ref, seq); err != nil {
			t.Fatal(err)
		}
	}
	w.unchanged(a, "wrong numbers", func() {
		for _, seq := range []uint64{4, 7} {
			_, err := a.Renew(w.ctx, ref, seq)
			var stale *allocator.StaleError
			if !errors.As(err, &stale) || stale.Seq != 5 {
				t.Errorf("%d: %v", seq, err)
			}
		}
	})
	w.set(141)
	w.acquire(w.process(), "B")
	_, err = a.Renew(w.ctx, ref, 6)
	w.want("after another's grant", err, allocator.ErrLost)
}

func TestT13_TheOldest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	l := w.acquire(p, "A")
	var last allocator.Renewal
	for s := int64(20); s <= 21_600; s += 20 {
		w.set(s)
		var err error
		if last, err = l.Renew(w.ctx); err != nil {
			t.Fatalf("at %v: %v", s, err)
		}
	}
	if !last.ExpiresAt.Equal(at(21_600)) {
		t.Errorf("expires %v", last.ExpiresAt)
	}
	w.setUS(21_600_000_001)
	_, err := p.Renew(w.ctx, l.Ref(), 1081)
	var lost *allocator.LostError
	if !errors.As(err, &lost) || lost.Reason != allocator.ReasonMaxLease {
		t.Errorf("%v", err)
	}
}

func TestT22_Bounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.process()
	for _, n := range []int{-1, 10_001} {
		_, err := p.Create(w.ctx, allocator.Spec{Capacity: n})
		w.want(fmt.Sprint(n), err, allocator.ErrInvalid)
	}
	closed, err := allocator.New(w.store, "closed", allocator.Options{Clock: w.local})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := closed.Create(w.ctx, allocator.Spec{}); err != nil {
		t.Fatal(err)
	}
	_, err = closed.Acquire(w.ctx, request("a"))
	w.full("closed", err, allocator.ShortCapacity)
	_, err = closed.AcquireWait(w.ctx, request("a"))
	w.full("closed, wait", err, allocator.ShortCapacity)

	p = w.pool(5)
	for _, units := range []int{0, -1, 6} {
		r := request("a")
		r.Units = units
		w.unchanged(p, "units", func() {
			_, err := p.Acquire(w.ctx, r)
			w.want(fmt.Sprint(units), err, allocator.ErrInvalid)
			_, err = p.AcquireWait(w.ctx, r)
			w.want(fmt.Sprint(units), err, allocator.ErrInvalid)
		})
	}
	for _, weight := range []int64{0, -1, 1_000_001} {
		_, err := p.Create(w.ctx, allocator.Spec{Capacity: 5, Groups: []allocator.Group{{Key: []string{"a"}, Weight: weight}}})
		w.want(fmt.Sprint("weight ", weight), err, allocator.ErrInvalid)
	}
	t.Run("2", func(t *testing.T) {
		policy := allocator.DefaultPolicy()
		policy.Cooling = 0
		_, err := w.process().Create(w.ctx, allocator.Spec{Capacity: 4, Policy: &policy})
		var config *allocator.ConfigError
		if !errors.As(err, &config) || config.Have.Capacity != 5 || config.Want.Capacity != 4 {
			t.Errorf("%v", err)
		}
		if s := w.state(p); s.Capacity != 5 {
			t.Errorf("capacity %d", s.Capacity)
		}
		if _, err := w.process().Create(w.ctx, allocator.Spec{Capacity: 5, Policy: &policy}); err != nil {
			t.Errorf("the same: %v", err)
		}
	})
}

func TestT36_Cooling(t *testing.T) {
	t.Parallel()
	for _, fenced := range []bool{false, true} {
		w := newWorld(t)
		w.pool(1, func(s *allocator.Spec) { s.Policy.Cooling, s.Policy.Fenced = 15*time.Second, fenced })
		dead := w.process(func(o *allocator.Options) { o.Holder.Boot = "b" })
		alive := w.process(func(o *allocator.Options) { o.Holder.Boot = "b"; o.Owners = processes{2: {Presence: allocator.Absent}} })
		w.acquire(dead, "a")
		w.set(10)
		if fenced {
			if l := w.acquire(alive, "b"); l.Epoch() != 2 {
				t.Errorf("fenced: %d", l.Epoch())
			}
			continue
		}
		_, err := alive.Acquire(w.ctx, request("b"))
		w.full("reclaimed", err, allocator.ShortCooling)
		w.set(25)
		_, err = alive.Acquire(w.ctx, request("b"))
		if full := w.full("cooling", err, allocator.ShortCooling); !full.NextChange.Equal(at(25)) || full.Cooling != 1 {
			t.Errorf("%+v", full)
		}
		w.setUS(25_000_001)
		if l := w.acquire(alive, "b"); l.Epoch() != 2 {
			t.Errorf("cool: %d", l.Epoch())
		}
	}
}
