package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/adapters/sqlite/embedded"
	"github.com/stint-go/stint/allocator"
)

// hook is a store whose steps can be tampered with.
type hook struct {
	allocator.Store
	after  func(n allocator.Need, err error) error
	before func(n allocator.Need)
}

func (h *hook) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	if h.before != nil && !n.ReadOnly {
		h.before(n)
	}
	err := h.Store.Step(ctx, n, f)
	if h.after != nil && !n.ReadOnly {
		return h.after(n, err)
	}
	return err
}

// A lease in use by another call of the process is ended when an AcquireWait of the same attempt leaves uncertain.
func TestR6c_WaitLeavesUncertain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(1)
	h := &hook{Store: w.store}
	p := w.process()
	holder := p.Holder()
	q, err := allocator.New(h, "worktrees", allocator.Options{Clock: w.local, Holder: &holder, Owners: processes{}})
	if err != nil {
		t.Fatal(err)
	}
	l := w.acquire(q, "a") // somebody works with it
	ctx, cancel := context.WithCancel(w.ctx)
	once := false
	h.after = func(n allocator.Need, err error) error {
		if !once {
			once = true
			cancel()
			return allocator.ErrUncertain // reply lost; nothing was even written (a replay)
		}
		return err
	}
	_, err = q.AcquireWait(ctx, request("a")) // a retry that runs into its deadline
	t.Logf("wait: %v", err)
	v, verr := q.Verify(w.ctx, 0, l.Epoch())
	t.Logf("verify %v %v; handle valid %v", v, verr, l.Valid())
	other := w.process()
	l2, err2 := other.Acquire(w.ctx, request("b"))
	if err2 == nil && l.Valid() && l2.Valid() {
		t.Errorf("two valid handles on slot %d: epochs %d and %d", index(l2), l.Epoch(), l2.Epoch())
	}
}

// Close(release) between the step of an Acquire and its register.
func TestR13_CloseBeforeRegister(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"close", "cancel"} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.pool(1)
			h := &hook{Store: w.store}
			p := w.process(func(o *allocator.Options) {
				o.Clock = func() (time.Time, time.Duration) { return w.local() }
			})
			holder := p.Holder()
			stepped := make(chan struct{})
			goOn := make(chan struct{})
			var arm, blocked atomic.Bool
			q, err := allocator.New(h, "worktrees", allocator.Options{Clock: func() (time.Time, time.Duration) {
				if arm.Load() && blocked.CompareAndSwap(false, true) {
					close(stepped)
					<-goOn // the goroutine is not scheduled for a while
				}
				return w.local()
			}, Holder: &holder, Owners: processes{}})
			if err != nil {
				t.Fatal(err)
			}
			h.after = func(_ allocator.Need, err error) error { arm.Store(true); return err }
			var l *allocator.Lease
			var aerr error
			done := make(chan struct{})
			go func() { defer close(done); l, aerr = q.Acquire(w.ctx, request("a")) }()
			<-stepped
			if what == "close" {
				if err := q.Close(w.ctx, true); err != nil {
					t.Fatal(err)
				}
			} else if c, err := q.Cancel(w.ctx, "a"); err != nil || c.Lease == nil {
				t.Fatal(c, err)
			}
			close(goOn)
			<-done
			l2 := w.acquire(w.process(), "b")
			if aerr == nil && l.Valid() && l2.Valid() {
				t.Errorf("valid handles with epochs %d and %d", l.Epoch(), l2.Epoch())
			}
		})
	}
}

// Keep after Rebase.
func TestR14_KeepAfterRebase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var offset atomic.Int64
		store := memory.New(&memory.Options{Clock: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }}).Pools()
		w := &world{t: t, ctx: t.Context(), store: store}
		p := w.bubblePool(1)
		l := w.acquire(p, "a")
		offset.Store(int64(10 * 24 * time.Hour))
		if _, err := p.Rebase(w.ctx, allocator.Admin{ID: "r", Version: 1}, "clock was wrong"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		kept := make(chan error, 1)
		go func() { kept <- l.Keep(ctx) }()
		time.Sleep(5 * time.Minute) // MaxLease is 6 h from the Rebase
		if !l.Valid() {
			t.Errorf("Keep gave up 5 min after a Rebase, of 6 h: %v; stored: %+v", l.Err(), w.probe(p, 0).Lease)
		}
		cancel()
		<-kept
	})
}

func TestR14_RefAfterRebase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	l := w.acquire(p, "a")
	w.set(10)
	if _, err := p.Rebase(w.ctx, allocator.Admin{ID: "r", Version: 1}, "clock was wrong"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Renew(w.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := w.process().Renew(w.ctx, l.Ref(), 2); err != nil {
		t.Errorf("a Ref made after the Rebase by the live handle: %v", err)
	}
	a, err := p.Acquire(w.ctx, request("a"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.process().Release(w.ctx, a.Ref()); err != nil {
		t.Errorf("after another Acquire: %v", err)
	}
}

// SQL damage.
type damaged struct {
	*world
	db *embedded.DB
}

func newDamaged(t *testing.T) *damaged {
	t.Helper()
	c := &clock{us: epochUS}
	db, err := embedded.Open(t.Context(), filepath.Join(t.TempDir(), "db"), &sqlite.Options{Clock: c.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &damaged{&world{t: t, ctx: t.Context(), clock: c, store: db.Pools()}, db}
}

func (d *damaged) exec(text string) {
	d.t.Helper()
	r, err := d.db.SQL().ExecContext(d.ctx, text)
	if err != nil {
		d.t.Fatal(err)
	}
	if n, _ := r.RowsAffected(); n != 1 {
		d.t.Fatal("rows", n)
	}
}

// An unclaimed offer whose slot can't be read.
func TestR22_OfferOfADamagedSlot(t *testing.T) {
	w := newDamaged(t)
	a := w.pool(2)
	l := w.acquire(a, "a")
	good := w.acquire(a, "good")
	store := &unavailable{Store: w.store}
	holder := w.process().Holder()
	b, err := allocator.New(store, "worktrees", allocator.Options{Clock: w.local, Holder: &holder, Owners: processes{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	x := w.wait(ctx, b, request("b"))
	for w.state(a).Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	store.down.Store(true) // b is as good as dead: it never claims its offer
	w.release(l)
	if w.state(a).Offered != 1 {
		t.Fatal("nothing is offered")
	}
	w.exec(`UPDATE stint_alloc_slot SET attrs = '{' WHERE idx = 0`)
	w.set(11)
	cancel()
	<-x.done
	_, err = good.Renew(w.ctx)
	if err != nil {
		t.Errorf("renew of a sound lease: %v", err)
	}
	_, err = a.Sweep(w.ctx, 100)
	if err != nil {
		t.Errorf("sweep: %v", err)
	}
	e := w.probe(a, 0)
	_, err = a.Reclaim(w.ctx, e.Reclaim(allocator.ReasonForced, "x"))
	if err != nil {
		t.Errorf("reclaim forced: %v", err)
	}
	_, err = a.Check(w.ctx, true)
	if err != nil {
		t.Errorf("check: %v", err)
	}
}

func TestR22_AttemptOfADamagedLease(t *testing.T) {
	w := newDamaged(t)
	a := w.pool(2)
	w.acquire(a, "a")
	w.exec(`UPDATE stint_alloc_lease SET labels = '{' WHERE epoch = 1`)
	_, err := a.Acquire(w.ctx, request("a"))
	t.Logf("%v", err)
	if errors.Is(err, allocator.ErrUncertain) || errors.Is(err, allocator.ErrUnavailable) {
		t.Errorf("not decided, so a caller repeats it for ever, and its whole batch fails each time: %v", err)
	}
	if err == nil {
		t.Errorf("a second lease of the attempt")
	}
}

func TestR22_SweepOfADamagedSlot(t *testing.T) {
	w := newDamaged(t)
	a := w.pool(2)
	w.acquire(a, "a")
	w.set(1)
	w.acquire(a, "b")
	w.set(100)
	w.exec(`UPDATE stint_alloc_slot SET attrs = '{' WHERE idx = 0`)
	ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
	defer cancel()
	s, err := a.Sweep(ctx, 1)
	if err != nil {
		t.Errorf("sweep(1): %+v, %v", s, err)
	}
}

// 64 leases whose slots can't be read hold up all others.
func TestR22_ManyDamagedSlots(t *testing.T) {
	w := newDamaged(t)
	a := w.pool(70)
	for i := range 70 {
		if i == 64 {
			w.set(1)
		}
		w.acquire(a, fmt.Sprint(i))
	}
	if _, err := w.db.SQL().Exec(`UPDATE stint_alloc_slot SET attrs = '{' WHERE idx < 64`); err != nil {
		t.Fatal(err)
	}
	w.set(100)
	if _, err := a.Acquire(w.ctx, request("new")); err != nil {
		t.Errorf("6 sound leases are over, but: %v", err)
	}
}

func TestR22_MissingSlotRow(t *testing.T) {
	w := newDamaged(t)
	a := w.pool(3)
	w.acquire(a, "0")
	w.acquire(a, "1")
	l := w.acquire(a, "2")
	w.exec(`DELETE FROM stint_alloc_slot WHERE idx = 0`)
	if _, err := a.Check(w.ctx, true); err != nil {
		t.Fatal(err)
	}
	s := w.state(a)
	t.Logf("%+v", s)
	if _, err := a.Resize(w.ctx, allocator.Admin{ID: "r", Version: s.Version}, 4); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		l2, err := w.process().Acquire(w.ctx, request(fmt.Sprint("x", i)))
		if err != nil {
			t.Log(err)
			break
		}
		t.Logf("granted slot %d epoch %d", index(l2), l2.Epoch())
		if index(l2) == index(l) && l.Valid() {
			t.Errorf("two live leases on slot %d: epochs %d and %d", index(l), l.Epoch(), l2.Epoch())
		}
	}
}

// A claimed offer that arrives too late.
func TestT21_AClaimThatComesTooLate(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.bubblePool(1)
		l := w.acquire(a, "a")
		store := &late{Store: w.store}
		h := w.process(own).Holder()
		p, err := allocator.New(store, "worktrees", allocator.Options{Holder: &h})
		if err != nil {
			t.Fatal(err)
		}
		r := request("run")
		r.TTL = 5 * time.Second
		x := w.wait(w.ctx, p, r)
		synctest.Wait()
		w.release(l)
		store.delay.Store(int64(9 * time.Second))
		<-x.done
		if !errors.Is(x.err, allocator.ErrLapsed) {
			t.Errorf("%v; valid %v, status %v", x.err, x.lease.Valid(), w.probe(a, 0).Lease.Status)
		}
	})
}

// T5 with the reason that the evidence gives.
func TestT5_SweptAndGrantedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.pool(1)
	w.acquire(a, "crashed")
	w.set(61)
	f0 := w.probe(a, 0)
	l := w.acquire(w.process(), "next")
	r, err := a.Reclaim(w.ctx, f0.Reclaim(f0.Reason, ""))
	if !errors.Is(err, allocator.ErrStale) {
		t.Errorf("reclaim on old evidence, while epoch %d is live: %+v, %v", l.Epoch(), r.Last, err)
	}
}

// A command that a leader still has is used again.
func TestR26_CommandUsedAgain(t *testing.T) {
	bubble(t, commandUsedAgain)
}

func commandUsedAgain(w *world) {
	t := w.t
	for try := range 10 {
		w.store = memory.New(nil).Pools()
		setup := w.bubblePool(3)
		h := &hook{Store: w.store}
		holder := w.process(own).Holder()
		p, err := allocator.New(h, "worktrees", allocator.Options{Holder: &holder, Owners: processes{}})
		if err != nil {
			t.Fatal(err)
		}
		l := w.acquire(p, "a")
		w.acquire(p, "a2")
		w.acquire(p, "a3")
		ctx, cancel := context.WithCancel(w.ctx)
		x := w.wait(ctx, p, request("b"))
		for w.state(setup).Waiting == 0 {
			time.Sleep(time.Millisecond)
		}
		var steps atomic.Int32
		entered := []chan struct{}{make(chan struct{}), make(chan struct{})}
		goOn := []chan struct{}{make(chan struct{}), make(chan struct{})}
		h.before = func(allocator.Need) {
			if n := steps.Add(1) - 1; n < 2 {
				close(entered[n])
				<-goOn[n]
			}
		}
		// The first batch hands the slot over to b.
		go func() { _, _ = l.Release(w.ctx) }()
		<-entered[0]
		// The second has a leader, and b's poll behind it.
		lead := make(chan struct{})
		go func() { defer close(lead); _, _ = p.Acquire(w.ctx, request("leader")) }()
		time.Sleep(400 * time.Millisecond) // b has polled
		close(goOn[0])
		<-entered[1]
		cancel()
		<-x.done
		if x.err != nil {
			t.Logf("try %d: %v", try, x.err)
			close(goOn[1])
			<-lead
			continue
		}
		// b has its lease and its call is over; its command is in the second batch.
		q := make(chan error, 1)
		go func() { _, err := p.Acquire(w.ctx, units("q", 1, "other group")); q <- err }()
		close(goOn[1])
		<-lead
		w.full("q", <-q, allocator.ShortCapacity)
		for l, err := range setup.Leases(w.ctx, false) {
			if err != nil || l.Attempt == "q" || len(l.Group) > 0 {
				t.Errorf("%+v, %v", l, err)
			}
		}
	}
}

// Close(release) that meets one damaged slot has ended other leases, and their handles stay valid.
func TestR13_CloseWithADamagedSlot(t *testing.T) {
	w := newDamaged(t)
	a := w.pool(3)
	p := w.process()
	l1 := w.acquire(p, "1")
	w.acquire(p, "2")
	w.acquire(p, "3")
	w.exec(`UPDATE stint_alloc_slot SET attrs = '{' WHERE idx = 1`)
	err := p.Close(w.ctx, true)
	t.Logf("close: %v", err)
	if l, err := a.Acquire(w.ctx, request("x")); err == nil && index(l) == index(l1) && l.Valid() && l1.Valid() {
		t.Errorf("two valid handles on slot %d: epochs %d and %d", index(l), l1.Epoch(), l.Epoch())
	}
	_ = p.Close(w.ctx, true)
	if e := w.probe(a, 2); e.Status == allocator.SlotLeased {
		t.Errorf("the lease behind the damaged one is never given back: %v", e.Lease.Status)
	}
}

// Of two calls that wait, one gets a lease that is over, and no error.
func TestR24_TwoCallsAGrantTooLate(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		store := &late{Store: w.store}
		h := w.process(own).Holder()
		p, err := allocator.New(store, "worktrees", allocator.Options{Holder: &h, Owners: processes{}})
		if err != nil {
			t.Fatal(err)
		}
		l := w.acquire(p, "a")
		r := request("b")
		r.TTL = 5 * time.Second
		x, y := w.wait(w.ctx, p, r), w.wait(w.ctx, p, r)
		synctest.Wait()
		store.delay.Store(int64(9 * time.Second))
		w.release(l)
		<-x.done
		<-y.done
		for _, z := range []*waiting{x, y} {
			if z.err == nil && !z.lease.Valid() {
				t.Errorf("a lease that is over and released, and no error")
			}
		}
		t.Log(x.err, y.err)
	})
}

// An end of its own lease that the process learns of only when it asks again, or does itself: the handle stays valid.
func TestI19_HandleAfterUncertain(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"cancel", "release", "reclaim"} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.pool(1)
			h := &hook{Store: w.store}
			holder := w.process().Holder()
			p, err := allocator.New(h, "worktrees", allocator.Options{Clock: w.local, Holder: &holder, Owners: processes{}})
			if err != nil {
				t.Fatal(err)
			}
			l := w.acquire(p, "a")
			e := w.probe(p, 0)
			lost := what != "reclaim"
			h.after = func(_ allocator.Need, err error) error {
				if lost {
					lost = false
					return allocator.ErrUncertain
				}
				return err
			}
			call := func() error {
				switch what {
				case "cancel":
					_, err := p.Cancel(w.ctx, "a")
					return err
				case "release":
					_, err := p.Release(w.ctx, l.Ref())
					return err
				}
				_, err := p.Reclaim(w.ctx, e.Reclaim(allocator.ReasonForced, "x"))
				return err
			}
			if what != "reclaim" {
				w.want("first", call(), allocator.ErrUncertain)
			}
			if what == "release" {
				w.acquire(w.process(), "b")
				w.want("again", call(), allocator.ErrStale)
			} else {
				if err := call(); err != nil {
					t.Fatal(err)
				}
				w.acquire(w.process(), "b")
			}
			if l.Valid() {
				t.Errorf("%s: the handle is valid, and epoch 2 is granted", what)
			}
		})
	}
}
