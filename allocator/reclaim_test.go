package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint/allocator"
)

func TestT8_ALiveOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(1)
	here := func(o *allocator.Options) {
		o.Holder.Boot = "b"
		o.Owners = processes{2: {Presence: allocator.Present, Start: 1}}
	}
	owner, other := w.process(here), w.process(here)
	l := w.acquire(owner, "a")
	_, err := other.Acquire(w.ctx, request("b"))
	w.full("a live owner", err, allocator.ShortCapacity)
	if e := w.probe(other, 0); e.Verdict != allocator.VerdictLive || e.Epoch != l.Epoch() {
		t.Errorf("%+v", e)
	}
	_, err = other.Acquire(w.ctx, request("a"))
	var held *allocator.HeldError
	if !errors.As(err, &held) || held.Verdict != allocator.VerdictLive {
		t.Errorf("%v", err)
	}
}

func TestR12a_DeadOwnersMakeRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(2)
	system := processes{3: {Presence: allocator.Present, Start: 1}}
	here := func(o *allocator.Options) { o.Holder.Boot, o.Owners = "b", system }
	dead, alive, other := w.process(here), w.process(here), w.process(here)
	w.acquire(dead, "a")
	w.acquire(alive, "b")
	system[2] = allocator.Process{Presence: allocator.Absent}
	if l := w.acquire(other, "c"); index(l) != 0 || l.Epoch() != 3 {
		t.Errorf("slot %d, epoch %d", index(l), l.Epoch())
	}
	// The same attempt, from the process that comes after the dead one.
	w.release(w.acquire(other, "c"))
	again := w.process(here) // pid 5
	w.acquire(again, "d")
	system[5] = allocator.Process{Presence: allocator.Present, Start: 2} // the pid is another process's now
	if l := w.acquire(other, "d"); l.Epoch() != 5 || l.Existing() {
		t.Errorf("epoch %d", l.Epoch())
	}
}

func TestT33_OnlyTheStoresEvidenceCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(1)
	here := func(o *allocator.Options) {
		o.Holder.Boot = "b"
		o.Owners = processes{2: {Presence: allocator.Present, Start: 1}}
	}
	owner, other := w.process(here), w.process(here)
	w.acquire(owner, "a")
	w.unchanged(other, "a live owner", func() {
		_, err := other.Reclaim(w.ctx, w.probe(other, 0).Reclaim(allocator.ReasonDeadOwner, ""))
		w.want("2", err, allocator.ErrNotReclaimable)
		foreign := w.process()
		_, err = foreign.Reclaim(w.ctx, w.probe(foreign, 0).Reclaim(allocator.ReasonDeadOwner, ""))
		w.want("of another boot", err, allocator.ErrNotReclaimable)
	})
}

func TestR10_ARetryGetsTheSameAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	w.acquire(p, "a")
	e := w.probe(p, 0)
	first, err := p.Reclaim(w.ctx, e.Reclaim(allocator.ReasonForced, "ops"))
	if err != nil || first.Last.End.By != "ops" || first.Last.End.Evidence != e.Fingerprint {
		t.Fatalf("%+v, %v", first, err)
	}
	w.unchanged(p, "a retry", func() {
		again, err := p.Reclaim(w.ctx, e.Reclaim(allocator.ReasonForced, "ops"))
		if err != nil || again.Last.Epoch != 1 || again.Last.End != first.Last.End {
			t.Errorf("%+v, %v", again, err)
		}
	})
	w.acquire(p, "b")
	_, err = p.Reclaim(w.ctx, e.Reclaim(allocator.ReasonForced, "ops"))
	w.want("a retry when the slot was granted again", err, allocator.ErrStale)
}

func TestT27_BadInputSweepsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(3)
	for i := range 3 {
		w.acquire(p, fmt.Sprint(i))
	}
	w.set(61)
	w.unchanged(p, "bad input", func() {
		for _, attempt := range []string{"", " ", "\t", "a\x00", "\xff", "a\n"} {
			_, err := p.Acquire(w.ctx, request(attempt))
			w.want(attempt, err, allocator.ErrInvalid)
		}
	})
	t.Run("2", func(t *testing.T) {
		if s, err := p.Sweep(w.ctx, 100); err != nil || s.Reclaimed != 3 {
			t.Errorf("%+v, %v", s, err)
		}
		w.unchanged(p, "a sweep with nothing to do", func() {
			if s, err := p.Sweep(w.ctx, 10_000); err != nil || s != (allocator.Swept{}) {
				t.Errorf("%+v, %v", s, err)
			}
		})
	})
}

func TestSweep_AsManyAsItMay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(300)
	for i := range 300 {
		w.acquire(p, fmt.Sprint(i))
	}
	w.set(61)
	for _, limit := range []int{1, 10, 100} {
		if s, err := p.Sweep(w.ctx, limit); err != nil || s.Reclaimed != limit {
			t.Errorf("%d: %+v, %v", limit, s, err)
		}
	}
	// An Acquire ends at most 64, the oldest first, and finds room.
	if l := w.acquire(p, "next"); index(l) != 0 {
		t.Errorf("slot %d", index(l))
	}
	if s := w.state(p); s.Used != 300-111-64+1 {
		t.Errorf("used %d", s.Used)
	}
	// Where that is not enough it goes on.
	if _, err := p.Acquire(w.ctx, units("all", 299)); err != nil {
		t.Error(err)
	}
}

func TestSweep_Purge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(2)
	l := w.acquire(p, "run")
	ref := l.Ref()
	w.release(l)
	r, err := p.Release(w.ctx, ref)
	if err != nil || !r.AlreadyReleased || r.Last.Attempt != "run" || r.Last.Epoch != 1 || r.Last.End.Reason != allocator.ReasonReleased {
		t.Errorf("%+v, %v", r, err)
	}
	const week = 7 * 24 * 3600
	w.set(week)
	w.acquire(p, "run")
	if s, err := p.Sweep(w.ctx, 1); err != nil || s.Purged != 0 {
		t.Errorf("at Keep: %+v, %v", s, err)
	}
	w.setUS(week*1_000_000 + 1)
	if s, err := p.Sweep(w.ctx, 1); err != nil || s.Purged != 1 {
		t.Errorf("past Keep: %+v, %v", s, err)
	}
	_, err = p.Release(w.ctx, ref)
	w.want("T35: release after the purge", err, allocator.ErrStale)
	if e := w.probe(p, 0); e.Lease == nil || e.Lease.Attempt != "run" || e.Epoch != 2 {
		t.Errorf("T35: the live one: %+v", e)
	}
}

func TestT35_Attributes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(2, func(s *allocator.Spec) {
		s.Attrs = map[int]map[string]string{0: {"path": "/srv/a"}, 1: {"path": "/srv/b"}}
	})
	l := w.acquire(p, "run")
	if a := l.Slots()[0].Attrs["path"]; a != "/srv/a" {
		t.Error(a)
	}
	change := func(slot int) error {
		_, err := p.Configure(w.ctx, allocator.Admin{ID: fmt.Sprint("c", slot), Version: w.state(p).Version}, allocator.Configuration{Attrs: map[int]map[string]string{slot: {"path": "/srv/c"}}})
		return err
	}
	w.unchanged(p, "attributes of a leased slot", func() { w.want("leased", change(0), allocator.ErrBusySlot) })
	if err := change(1); err != nil {
		t.Error(err)
	}
	l2 := w.acquire(p, "run-2")
	if a := l2.Slots()[0].Attrs["path"]; a != "/srv/c" {
		t.Error(a)
	}
	l2.Slots()[0].Attrs["path"] = "mine"
	if a := l2.Slots()[0].Attrs["path"]; a != "/srv/c" {
		t.Error("aliased")
	}
	r := request("x")
	r.Group = []string{"a", ""}
	_, err := p.Acquire(w.ctx, r)
	w.want("empty part", err, allocator.ErrInvalid)
}

func TestT37_Watch(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(1)
		for i := range 500 { // two changes each
			w.release(w.acquire(p, fmt.Sprint(i)))
		}
		items, last := 0, int64(0)
		var slot *allocator.SlotState
		ctx, stop := context.WithTimeout(w.ctx, time.Second)
		defer stop()
		for c, err := range p.Watch(ctx, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if c.Rev <= last {
				t.Errorf("rev %d after %d", c.Rev, last)
			}
			last = c.Rev
			if items++; c.Slot != nil {
				slot = c.Slot
			}
		}
		if items > 1000 || slot == nil || slot.Epoch != 500 || slot.Status != allocator.SlotFree {
			t.Errorf("%d items, %+v", items, slot)
		}
		time.Sleep(8 * 24 * time.Hour)
		if s, err := p.Sweep(w.ctx, 10_000); err != nil || s.Purged != 500 {
			t.Fatalf("%+v, %v", s, err)
		}
		for c, err := range p.Watch(w.ctx, 5) {
			if err != nil || !c.Relist {
				t.Errorf("%+v, %v", c, err)
			}
			break
		}
	})
}

func TestWatch_SeesWhatComes(t *testing.T) {
	bubble(t, func(w *world) {
		p := w.bubblePool(2)
		state := w.state(p)
		ctx, stop := context.WithCancel(w.ctx)
		defer stop()
		seen := make(chan allocator.Changed, 10)
		go func() {
			defer close(seen)
			for c, err := range p.Watch(ctx, state.Rev) {
				if err != nil {
					return
				}
				seen <- c
			}
		}()
		time.Sleep(time.Minute)
		w.acquire(p, "a")
		c := <-seen
		if c.Slot == nil || c.Slot.Status != allocator.SlotLeased {
			t.Errorf("%+v", c)
		}
		if c = <-seen; c.Lease == nil || c.Lease.Attempt != "a" {
			t.Errorf("%+v", c)
		}
	})
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(5)
	l := w.acquire(p, "held")
	ref, e := l.Ref(), w.probe(p, 0)
	long := string(make([]byte, 257))
	bad := func(change func(*allocator.Request)) func() error {
		return func() error {
			r := request("a")
			change(&r)
			_, err := p.Acquire(w.ctx, r)
			return err
		}
	}
	admin := func(call func(a allocator.Admin) error) func() error {
		return func() error { return call(allocator.Admin{ID: "x", Version: 1}) }
	}
	labels := map[string]string{}
	for i := range 17 {
		labels[fmt.Sprint(i)] = ""
	}
	for name, c := range map[string]struct {
		call func() error
		want error
	}{
		"group of 5":         {bad(func(r *allocator.Request) { r.Group = []string{"a", "b", "c", "d", "e"} }), allocator.ErrInvalid},
		"17 labels":          {bad(func(r *allocator.Request) { r.Labels = labels }), allocator.ErrInvalid},
		"label of 1025":      {bad(func(r *allocator.Request) { r.Labels = map[string]string{"a": string(make([]byte, 1025))} }), allocator.ErrInvalid},
		"label with NUL":     {bad(func(r *allocator.Request) { r.Labels = map[string]string{"a": "\x00"} }), allocator.ErrInvalid},
		"long attempt":       {bad(func(r *allocator.Request) { r.Attempt = long }), allocator.ErrInvalid},
		"units 0":            {bad(func(r *allocator.Request) { r.Units = 0 }), allocator.ErrInvalid},
		"ttl 4 s":            {bad(func(r *allocator.Request) { r.TTL = 4 * time.Second }), allocator.ErrInvalid},
		"ttl 25 h":           {bad(func(r *allocator.Request) { r.TTL = 25 * time.Hour }), allocator.ErrInvalid},
		"ttl -1":             {bad(func(r *allocator.Request) { r.TTL = -1 }), allocator.ErrInvalid},
		"ttl in ns":          {bad(func(r *allocator.Request) { r.TTL = 10*time.Second + 1 }), allocator.ErrInvalid},
		"ttl above max":      {bad(func(r *allocator.Request) { r.TTL, r.MaxLease = time.Minute, 30*time.Second }), allocator.ErrInvalid},
		"ttl above policy's": {bad(func(r *allocator.Request) { r.TTL = 7 * time.Hour }), allocator.ErrInvalid},
		"max above policy's": {bad(func(r *allocator.Request) { r.MaxLease = 7 * time.Hour }), allocator.ErrInvalid},
		"owner":              {bad(func(r *allocator.Request) { r.Owner = 9 }), allocator.ErrInvalid},
		"nil ctx": {func() error {
			_, err := p.Acquire(nil, request("a")) //nolint:staticcheck // the case
			return err
		}, allocator.ErrInvalid},
		"resize -1":             {admin(func(a allocator.Admin) error { _, err := p.Resize(w.ctx, a, -1); return err }), allocator.ErrInvalid},
		"resize 10,001":         {admin(func(a allocator.Admin) error { _, err := p.Resize(w.ctx, a, 10_001); return err }), allocator.ErrInvalid},
		"admin without id":      {func() error { _, err := p.Resize(w.ctx, allocator.Admin{Version: 1}, 3); return err }, allocator.ErrInvalid},
		"admin without version": {func() error { _, err := p.Resize(w.ctx, allocator.Admin{ID: "x"}, 3); return err }, allocator.ErrInvalid},
		"sweep 0":               {func() error { _, err := p.Sweep(w.ctx, 0); return err }, allocator.ErrInvalid},
		"sweep 10,001":          {func() error { _, err := p.Sweep(w.ctx, 10_001); return err }, allocator.ErrInvalid},
		"not created": {func() error {
			q, err := allocator.New(w.store, "none", allocator.Options{})
			if err == nil {
				_, err = q.Acquire(w.ctx, request("a"))
			}
			return err
		}, allocator.ErrNotFound},
		"ref of another pool":   {func() error { r := ref; r.Pool = "other"; _, err := p.Release(w.ctx, r); return err }, allocator.ErrStale},
		"renew of another pool": {func() error { r := ref; r.Pool = "other"; _, err := p.Renew(w.ctx, r, 1); return err }, allocator.ErrStale},
		"zero ref":              {func() error { _, err := p.Release(w.ctx, allocator.Ref{}); return err }, allocator.ErrInvalid},
		"epoch 0":               {func() error { r := ref; r.Epoch = 0; _, err := p.Release(w.ctx, r); return err }, allocator.ErrInvalid},
		"renew seq 0":           {func() error { _, err := p.Renew(w.ctx, ref, 0); return err }, allocator.ErrInvalid},
		"other id":              {func() error { r := ref; r.ID[0] ^= 1; _, err := p.Release(w.ctx, r); return err }, allocator.ErrStale},
		"other identity": {func() error {
			r := ref
			r.Epoch, r.Identity = 1, allocator.Fingerprint{}
			r.ID[3]++
			_, err := p.Release(w.ctx, r)
			return err
		}, allocator.ErrStale},
		"no fingerprint": {func() error {
			_, err := p.Reclaim(w.ctx, allocator.Reclaim{Reason: allocator.ReasonForced, Note: "x"})
			return err
		}, allocator.ErrInvalid},
		"no reason": {func() error { _, err := p.Reclaim(w.ctx, e.Reclaim(0, "x")); return err }, allocator.ErrInvalid},
		"released":  {func() error { _, err := p.Reclaim(w.ctx, e.Reclaim(allocator.ReasonReleased, "x")); return err }, allocator.ErrInvalid},
		"no note":   {func() error { _, err := p.Reclaim(w.ctx, e.Reclaim(allocator.ReasonForced, "")); return err }, allocator.ErrInvalid},
		"identity": {func() error {
			r := e.Reclaim(allocator.ReasonForced, "x")
			r.Fingerprint = ref.Identity
			_, err := p.Reclaim(w.ctx, r)
			return err
		}, allocator.ErrInvalid},
		"verify -1":      {func() error { _, err := p.Verify(w.ctx, -1, 1); return err }, allocator.ErrInvalid},
		"verify epoch 0": {func() error { _, err := p.Verify(w.ctx, 0, 0); return err }, allocator.ErrInvalid},
		"verify slot 5":  {func() error { _, err := p.Verify(w.ctx, 5, 1); return err }, allocator.ErrStale},
		"probe 5":        {func() error { _, err := p.Probe(w.ctx, 5); return err }, allocator.ErrInvalid},
	} {
		w.unchanged(p, name, func() { w.want(name, c.call(), c.want) })
	}
	for name, change := range map[string]func(*allocator.Spec){
		"ttl above max": func(s *allocator.Spec) { s.Policy.MaxLease = time.Second },
		"cooling":       func(s *allocator.Spec) { s.Policy.Cooling = -1 },
		"minima": func(s *allocator.Spec) {
			s.Groups = []allocator.Group{{Key: []string{"a"}, Weight: 1, Min: 3}, {Key: []string{"b"}, Weight: 1, Min: 3}}
		},
		"min above max":   func(s *allocator.Spec) { one := 1; s.Groups = []allocator.Group{{Weight: 1, Min: 2, Max: &one}} },
		"twice":           func(s *allocator.Spec) { s.Groups = []allocator.Group{{Weight: 1}, {Weight: 1}} },
		"attrs of 4 KiB":  func(s *allocator.Spec) { s.Attrs = map[int]map[string]string{0: {"a": string(make([]byte, 4<<10))}} },
		"attrs of slot 5": func(s *allocator.Spec) { s.Attrs = map[int]map[string]string{5: {}} },
	} {
		policy := allocator.DefaultPolicy()
		s := allocator.Spec{Capacity: 5, Policy: &policy}
		change(&s)
		_, err := p.Create(w.ctx, s)
		w.want(name, err, allocator.ErrInvalid)
	}
	if _, err := allocator.New(w.store, "p", allocator.Options{Holder: &allocator.Holder{}}); !errors.Is(err, allocator.ErrInvalid) {
		t.Errorf("zero incarnation: %v", err)
	}
}

func TestT29_AHostThatWasBootedAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(3)
	host := func(boot string, given bool) func(*allocator.Options) {
		return func(o *allocator.Options) {
			if o.Holder.Boot = boot; given {
				o.HostID = "host-a"
			} else {
				o.Holder.Host = "host-a" // as an image may carry it
			}
		}
	}
	before := w.process(host("boot-1", true))
	for i := range 3 {
		w.acquire(before, fmt.Sprint(i))
	}
	image := w.process(host("boot-2", false))
	_, err := image.Acquire(w.ctx, request("x"))
	w.full("host not given", err, allocator.ShortCapacity)
	after := w.process(host("boot-2", true))
	if e := w.probe(after, 0); e.Verdict != allocator.VerdictDead || e.Reason != allocator.ReasonDeadOwner {
		t.Errorf("%+v", e)
	}
	if s, err := after.Sweep(w.ctx, 10); err != nil || s.Reclaimed != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestR2b_TheHolderIsAskedForHoweverManyThereAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(200)
	system := processes{2: {Presence: allocator.Present, Start: 1}}
	here := func(o *allocator.Options) { o.Holder.Boot, o.Owners = "b", system }
	alive, dead, other := w.process(here), w.process(here), w.process(here)
	for i := range 150 {
		w.acquire(alive, fmt.Sprint(i))
	}
	w.acquire(dead, "run")
	_, err := other.Acquire(w.ctx, request("run"))
	var held *allocator.HeldError
	if !errors.As(err, &held) || held.Verdict != allocator.VerdictUnknown {
		t.Errorf("%v", err)
	}
	system[3] = allocator.Process{Presence: allocator.Absent}
	if l := w.acquire(other, "run"); l.Epoch() != 152 {
		t.Errorf("epoch %d", l.Epoch())
	}
}
