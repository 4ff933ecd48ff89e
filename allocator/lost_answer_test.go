package allocator_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/allocator"
)

// A Close whose answer is lost ends all handles.
func TestI19_CloseWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(1)
	p, h := w.hooked()
	l := w.acquire(p, "a")
	h.once()
	err := p.Close(w.ctx, true)
	w.want("close", err, allocator.ErrUncertain)
	l2, err := w.process().Acquire(w.ctx, request("b"))
	if err == nil && l.Valid() {
		t.Errorf("two valid handles on slot %d: epochs %d (%v left), %d", index(l2), l.Epoch(), l.Left(), l2.Epoch())
	}
}

// Two Releases whose answers are lost, with an Acquire between them.
func TestI19_TwoReleasesWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(1)
	p, h := w.hooked()
	l1 := w.acquire(p, "a")
	sound := h.Store
	h.Store = failing{sound, allocator.ErrUncertain} // not applied
	_, err := l1.Release(w.ctx)
	w.want("first", err, allocator.ErrUncertain)
	h.Store = sound
	l2 := w.acquire(p, "a") // Existing
	h.once()                // applied
	_, err = l1.Release(w.ctx)
	w.want("second", err, allocator.ErrUncertain)
	b, err := w.process().Acquire(w.ctx, request("b"))
	if err == nil && l2.Valid() {
		t.Errorf("two valid handles on slot %d: epochs %d (%v left) and %d", index(b), l2.Epoch(), l2.Left(), b.Epoch())
	}
}

// An Acquire that found the lease is on its way back while it is released, and that answer is lost.
func TestI19_AReleaseWhoseAnswerIsLostMeetsAnAcquire(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(2)
	in, goOn := make(chan struct{}), make(chan struct{})
	p, h := w.hooked(func(o *allocator.Options) {
		o.Observer = func(allocator.Event) { close(in); <-goOn } // not scheduled for a while
	})
	l := w.acquire(p, "a")
	w.acquire(w.process(), "old") // lapses at 60
	w.set(40)
	if _, err := l.Renew(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.set(61)
	got := make(chan *allocator.Lease, 1)
	go func() { again, _ := p.Acquire(w.ctx, request("a")); got <- again }() // ends "old"
	<-in
	h.once()
	_, err := l.Release(w.ctx)
	w.want("release", err, allocator.ErrUncertain)
	q := w.process()
	b := w.acquire(q, "b")
	close(goOn)
	again := <-got
	if again != nil && again.Valid() && b.Valid() && index(again) == index(b) {
		t.Errorf("two valid handles on slot %d: epochs %d (%v left) and %d", index(b), again.Epoch(), again.Left(), b.Epoch())
	}
}

// A wait leaves, and what its Cancel has done is not known: a handle that it was not to touch lives on.
func TestI19_AKeptHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, ctx: t.Context(), store: memory.New(nil).Pools()}
		w.bubblePool(2)
		p, h := w.hooked(own)
		l := w.acquire(p, "a")
		time.Sleep(time.Second)
		in, goOn := make(chan struct{}), make(chan struct{})
		n := 0
		h.before = func(allocator.Need) {
			switch n++; n {
			case 2:
				close(in)
				<-goOn
			case 3:
				time.Sleep(3 * time.Second) // a slow step
			}
		}
		h.once()
		ctx, cancel := context.WithCancel(w.ctx)
		wait := w.wait(ctx, p, request("a")) // a retry by another call: its first answer gets lost
		synctest.Wait()                      // it waits for its next poll
		over := make(chan error, 2)
		go func() { _, err := p.Cancel(w.ctx, "nothing"); over <- err }()
		<-in // 2nd step
		var r allocator.Renewal
		go func() {
			var err error
			r, err = l.Renew(w.ctx)
			over <- err
		}()
		synctest.Wait() // leads the 3rd
		cancel()
		synctest.Wait() // the wait's Cancel is in it, too
		close(goOn)
		<-wait.done // after 1 s: uncertain
		for range 2 {
			if err := <-over; err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("wait: %v; renewal left %v", wait.err, r.Left)
		if _, err := p.Verify(w.ctx, index(l), l.Epoch()); err == nil && !l.Valid() {
			t.Errorf("renewed and current, but the handle is done: %v", l.Err())
		}
		h.before, h.after = nil, nil
		closed := make(chan error, 1)
		go func() { closed <- p.Close(w.ctx, true) }()
		select {
		case err := <-closed:
			t.Log("close", err)
		case <-time.After(time.Hour):
			t.Error("Close hangs")
		}
	})
}

// A waiter is decided, its call leaves, and others wait anew: nothing is left.
func TestR6c_AWaiterThatIsReplaced(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		p, h := w.hooked(own)
		x := w.acquire(p, "x")
		ctx, cancel := context.WithCancel(w.ctx)
		a := w.wait(ctx, p, request("a"))
		synctest.Wait()
		n := 0
		in, goOn := make(chan struct{}), make(chan struct{})
		in2, goOn2 := make(chan struct{}), make(chan struct{})
		h.before = func(allocator.Need) {
			switch n++; n {
			case 1:
				close(in)
				<-goOn
			case 2:
				close(in2)
				<-goOn2
			}
		}
		other := request("a")
		other.Labels = map[string]string{"other": "content"}
		over := make(chan struct{}, 2)
		go func() { w.release(x); over <- struct{}{} }()
		<-in
		b := w.wait(w.ctx, p, other)
		synctest.Wait()
		cancel()
		<-a.done
		close(goOn)
		<-in2 // b's poll; w is decided
		c := w.wait(w.ctx, p, other)
		synctest.Wait()
		close(goOn2)
		<-b.done
		<-c.done
		<-over
		if s := w.state(p); s.Used > 0 {
			t.Errorf("used %d: a: %v, b: %v, c: %v", s.Used, a.err, b.err, c.err)
		}
	})
}

// A call that has a ticket goes on waiting, though its waiter has a lease that ended.
func TestR6c_WokenWithATicketOfItsOwn(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		p, h := w.hooked(own)
		l := w.acquire(p, "a")
		other := w.process(own)
		ctx, cancel := context.WithCancel(w.ctx)
		q := w.wait(ctx, other, request("q")) // waits for the slot
		synctest.Wait()
		in, goOn := make(chan struct{}), make(chan struct{})
		n := 0
		h.before = func(allocator.Need) {
			if n++; n == 1 {
				close(in)
				<-goOn
			}
		}
		first := w.wait(w.ctx, p, request("a")) // a retry: it finds the lease
		<-in
		over := make(chan struct{})
		go func() { w.release(l); close(over) }()
		synctest.Wait()
		second := w.wait(w.ctx, p, request("a"))
		synctest.Wait()
		close(goOn)
		<-first.done
		<-second.done
		<-over
		<-q.done
		cancel()
		if second.err != nil {
			t.Fatal(second.err)
		}
		_, _ = q.lease.Release(w.ctx) // it may be over by now
		_, _ = second.lease.Release(w.ctx)
		if s := w.state(other); s.Waiting > 0 {
			t.Errorf("every call is over, and a ticket is left: %+v", s)
		}
		if _, err := other.Acquire(w.ctx, request("c")); err != nil {
			t.Errorf("the only slot is nobody's: %v", err)
		}
	})
}

// A call that leaves a step that is on its way is unsure, whatever others have got.
func TestR6c_WokenWhileItsStepRuns(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		p, h := w.hooked(own)
		w.acquire(p, "a")
		in, goOn := [2]chan struct{}{make(chan struct{}), make(chan struct{})}, [2]chan struct{}{make(chan struct{}), make(chan struct{})}
		n := 0
		h.before = func(allocator.Need) {
			if n++; n <= 2 {
				close(in[n-1])
				<-goOn[n-1]
			}
		}
		first := w.wait(w.ctx, p, request("a")) // a retry: it finds the lease
		<-in[0]
		var cancelled allocator.Cancelled
		var err error
		over := make(chan struct{})
		go func() { cancelled, err = p.Cancel(w.ctx, "a"); close(over) }() // leads the second step
		synctest.Wait()
		ctx, cancel := context.WithCancel(w.ctx)
		second := w.wait(ctx, p, request("a")) // is in it
		synctest.Wait()
		close(goOn[0])
		<-first.done
		<-in[1]
		cancel()
		<-second.done
		close(goOn[1])
		<-over
		synctest.Wait()
		for _, e := range []error{first.err, second.err, err} {
			if errors.Is(e, allocator.ErrUncertain) {
				return
			}
		}
		for _, x := range []*waiting{first, second} {
			if x.err != nil || x.lease.Valid() {
				t.Fatal(x.err, "valid")
			}
		}
		if s := w.state(p); s.Used > 0 || s.Waiting > 0 {
			e := w.probe(p, 0)
			t.Errorf("all calls are over (waits: nil, nil; Cancel: %v, epoch %d), no handle is valid, and epoch %d is live for its whole TTL", err, cancelled.Lease.Epoch, e.Epoch)
		}
	})
}

// A wait that lost an answer and can't give back is unsure.
func TestR6c_ALostAnswerAndNoCancel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(1)
	p, h := w.hooked()
	n := 0
	h.after = func(_ allocator.Need, err error) error {
		if n++; n == 1 {
			h.Store = failing{h.Store, allocator.ErrUnavailable}
			return allocator.ErrUncertain
		}
		return err
	}
	ctx, cancel := context.WithTimeout(w.ctx, 30*time.Millisecond)
	defer cancel()
	_, err := p.AcquireWait(ctx, request("a"))
	if s := w.state(w.process()); s.Used > 0 && !errors.Is(err, allocator.ErrUncertain) {
		t.Errorf("used %d; the error says only: %v (unavailable, which means not applied: %v)", s.Used, err, errors.Is(err, allocator.ErrUnavailable))
	}
}

// A grant comes after its waiters gave up, and is found by an Acquire: nobody takes it away again.
func TestR6c_NobodyReleasesWhatWasTaken(t *testing.T) {
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, ctx: t.Context(), store: memory.New(nil).Pools()}
			w.bubblePool(2)
			p, h := w.hooked(own)
			x, err := p.Acquire(w.ctx, units("x", 2))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(w.ctx)
			a := w.wait(ctx, p, request("a"))
			synctest.Wait()
			b := w.wait(ctx, p, request("b"))
			synctest.Wait()
			n := 0
			var lb *allocator.Lease
			got, goOn := make(chan struct{}), make(chan struct{})
			h.before = func(allocator.Need) {
				if n == 2 { // the third step
					<-goOn
				}
			}
			h.after = func(_ allocator.Need, e error) error {
				if e != nil { // it needs more rows
					return e
				}
				switch n++; n {
				case 1: // x is released, a and b are granted; the commit takes a while
					cancel()
					<-a.done // they give up after 1 s
					<-b.done
					go func() { lb, _ = p.Acquire(w.ctx, request("b")); close(got) }()
					synctest.Wait()
				case 3:
					if lost {
						return allocator.ErrUncertain
					}
				}
				return e
			}
			over := make(chan struct{})
			go func() { w.release(x); close(over) }()
			<-got
			t.Logf("waits: %v, %v; b has epoch %d, valid for %v", a.err, b.err, lb.Epoch(), lb.Left())
			if !lb.Valid() {
				t.Fatal("not the case")
			}
			close(goOn)
			<-over
			synctest.Wait()
			if !lost && !lb.Valid() {
				t.Errorf("nobody released it, and no time has passed: done, Err %v", lb.Err())
			}
			other := w.process(own)
			_, _ = other.Acquire(w.ctx, request("c"))
			l2, err := other.Acquire(w.ctx, request("d"))
			if err == nil && lb.Valid() {
				t.Errorf("two valid handles on slot %d: epochs %d and %d", index(l2), lb.Epoch(), l2.Epoch())
			}
			_ = time.Now
		})
	}
}

// A Cancel whose answer is lost does not concern calls that began after it.
func TestI19_ALaterCall(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(4)
		p, h := w.hooked(own)
		in, goOn := [2]chan struct{}{make(chan struct{}), make(chan struct{})}, [2]chan struct{}{make(chan struct{}), make(chan struct{})}
		n := 0
		h.before = func(allocator.Need) {
			if n++; n <= 2 {
				close(in[n-1])
				<-goOn[n-1]
			}
		}
		over := make(chan struct{}, 5)
		run := func(f func()) { go func() { f(); over <- struct{}{} }() }
		run(func() { _, _ = p.Cancel(w.ctx, "nothing") }) // the first step
		<-in[0]
		run(func() { _, _ = p.Acquire(w.ctx, request("z")) }) // leads the second step, which takes a while
		synctest.Wait()
		ctx, leave := context.WithCancel(w.ctx)
		var y, a error
		run(func() { _, y = p.Cancel(ctx, "y") }) // are in it
		run(func() { _, a = p.Cancel(ctx, "a") })
		synctest.Wait()
		close(goOn[0])
		<-in[1]
		leave()
		synctest.Wait()
		w.want("y", y, allocator.ErrUncertain)
		w.want("a", a, allocator.ErrUncertain)
		var l *allocator.Lease
		var err error
		run(func() { l, err = p.Acquire(w.ctx, request("a")) }) // begins only now
		synctest.Wait()
		close(goOn[1])
		for range 5 {
			<-over
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, current := p.Verify(w.ctx, index(l), l.Epoch()); !l.Valid() && current == nil {
			t.Errorf("Acquire: nil error, its handle is done (%v), and the lease is current: nobody can know that it must be released", l.Err())
		}
	})
}

// A grant meets the end of ctx, and the Cancel fails: the caller is told that it is unsure.
func TestR6c_AGrantMeetsACancelThatFails(t *testing.T) {
	t.Parallel()
	for _, fail := range []error{allocator.ErrUnavailable, allocator.ErrUncertain} {
		w := newWorld(t)
		w.pool(1)
		p, h := w.hooked()
		x := w.acquire(p, "x")
		ctx, cancel := context.WithCancel(w.ctx)
		a := w.wait(ctx, p, request("a"))
		w.until(w.process(), 1)
		time.Sleep(20 * time.Millisecond)
		release := true
		down := false
		h.before = nil
		sound := h.Store
		h.after = func(_ allocator.Need, err error) error {
			if release { // granted to a, and not yet told
				release = false
				cancel()
				time.Sleep(50 * time.Millisecond)
				down = true
				h.Store = failing{sound, fail}
			}
			return err
		}
		w.release(x)
		<-a.done
		_ = down
		h.Store = sound
		s := w.state(w.process())
		if s.Used > s.Offered && !errors.Is(a.err, allocator.ErrUncertain) {
			t.Errorf("%v: used %d, offered %d: a live lease that nobody has, and the error is only: %v", fail, s.Used, s.Offered, a.err)
		}
	}
}

// A Cancel whose answer is lost leaves the handle of another process's lease alone.
func TestI19_AForeignLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(1)
	p, h := w.hooked()
	o := w.acquire(w.process(), "a")
	r, err := p.Renew(w.ctx, o.Ref(), 1)
	if err != nil {
		t.Fatal(err)
	}
	h.once()
	_, err = p.Cancel(w.ctx, "a")
	w.want("cancel", err, allocator.ErrUncertain)
	if _, err := p.Verify(w.ctx, 0, o.Epoch()); err != nil || !r.Lease.Valid() {
		t.Errorf("%v; the handle is done: %v", err, r.Lease.Err())
	}
}

// failing is a store whose steps fail.
type failing struct {
	allocator.Store
	err error
}

func (f failing) Step(context.Context, allocator.Need, func(int64, *allocator.Set) error) error {
	return f.err
}

// Two answers are lost that may have ended a lease: the second takes nothing back of the first.
func TestI19_TwoDoubts(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(2)
		q := w.process(own)
		w.acquire(q, "old") // lapses at 60
		h := &hook{Store: w.store}
		store := w.store
		pg := &pager{hook: h}
		w.store = pg
		in, goOn := make(chan struct{}), make(chan struct{})
		p := w.process(own, func(o *allocator.Options) {
			o.Observer = func(allocator.Event) { close(in); <-goOn }
		})
		w.store = store
		time.Sleep(45 * time.Second)
		x := w.acquire(p, "x")
		time.Sleep(10 * time.Second) // 55
		pageIn, pageOn := make(chan struct{}), make(chan struct{})
		once := true
		pg.page = func() {
			if once {
				once = false
				close(pageIn)
				<-pageOn
			}
		}
		c1 := w.wait(w.ctx, p, request("a"))
		<-pageIn // it has a ticket, and asks for owners
		// c2 joins it and leaves its step on its way: the waiter is unsure
		step := make(chan struct{})
		n := 0
		stepIn := make(chan struct{})
		h.before = func(allocator.Need) {
			if n++; n <= 2 {
				stepIn <- struct{}{}
				<-step
			}
		}
		go func() { _, _ = p.Cancel(w.ctx, "nothing") }()
		<-stepIn
		go func() { _, _ = p.Cancel(w.ctx, "nothing2") }() // leads the next
		synctest.Wait()
		ctx2, cancel2 := context.WithCancel(w.ctx)
		c2 := w.wait(ctx2, p, request("a"))
		synctest.Wait()
		step <- struct{}{}
		<-stepIn
		cancel2()
		<-c2.done
		step <- struct{}{}
		synctest.Wait()
		w.want("c2", c2.err, allocator.ErrUncertain)
		time.Sleep(6 * time.Second) // 61: "old" is over
		w.release(x)                // a is granted, and c1 does not know yet
		var lx *allocator.Lease
		var ex error
		got := make(chan struct{})
		go func() { lx, ex = p.Acquire(w.ctx, request("a")); close(got) }() // ends "old"
		<-in
		h.before = nil
		w.release(w.acquire(p, "y")) // ends that are remembered belong to the next generation of steps from here on
		h.before = func(allocator.Need) {
			if n++; n <= 2 {
				stepIn <- struct{}{}
				<-step
			}
		}
		n = 0
		go func() { _, _ = p.Cancel(w.ctx, "nothing") }()
		<-stepIn
		go func() { _, _ = p.Cancel(w.ctx, "nothing2") }() // leads the next
		synctest.Wait()
		uctx, ucancel := context.WithCancel(w.ctx)
		udone := make(chan error, 1)
		go func() { _, err := p.Cancel(uctx, "a"); udone <- err }()
		synctest.Wait()
		close(pageOn) // c1 leaves with the lease; its Cancel, which keeps it, is in the batch, too
		synctest.Wait()
		h.after = func(_ allocator.Need, err error) error {
			if n >= 2 && err == nil {
				return allocator.ErrUncertain // applied
			}
			return err
		}
		step <- struct{}{}
		<-stepIn
		ucancel()
		w.want("cancel", <-udone, allocator.ErrUncertain)
		<-c1.done // after 1 s
		t.Log("c1", c1.err, c1.lease)
		step <- struct{}{}
		synctest.Wait()
		h.before, h.after = nil, nil
		close(goOn)
		<-got
		if ex != nil {
			t.Fatal(ex)
		}
		b := w.acquire(q, "b")
		b2 := w.acquire(q, "b2")
		for _, y := range []*allocator.Lease{b, b2} {
			if lx.Valid() && y.Valid() && index(lx) == index(y) {
				t.Errorf("two valid handles on slot %d: epochs %d (%v left) and %d", index(y), lx.Epoch(), lx.Left(), y.Epoch())
			}
		}
	})
}

// A grant meets Close and can't be given back: the caller is told that it is unsure.
func TestR13_AGrantMeetsCloseAndStays(t *testing.T) {
	for _, fail := range []error{allocator.ErrUnavailable, allocator.ErrUncertain} {
		for _, wait := range []bool{false, true} {
			t.Run("", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := &world{t: t, ctx: t.Context(), store: memory.New(nil).Pools()}
					w.bubblePool(1)
					p, h := w.hooked(own)
					n := 0
					h.after = func(_ allocator.Need, err error) error {
						if n++; n == 1 {
							_ = p.Close(w.ctx, false)
							h.Store = failing{h.Store, fail}
						}
						return err
					}
					var err error
					if wait {
						_, err = p.AcquireWait(w.ctx, request("a"))
					} else {
						_, err = p.Acquire(w.ctx, request("a"))
					}
					s := w.state(w.process(own))
					if s.Used > 0 && !errors.Is(err, allocator.ErrUncertain) {
						t.Errorf("wait %v, %v: used %d, and the error is only: %v (unavailable: %v)", wait, fail, s.Used, err, errors.Is(err, allocator.ErrUnavailable))
					}
				})
			})
		}
	}
}

// The answer of one call does not make sure what another call has lost.
func TestR6c_AnOlderAnswer(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(2)
		q := w.process(own)
		w.acquire(q, "old") // lapses at 60
		in, goOn := make(chan struct{}), make(chan struct{})
		p, h := w.hooked(own, func(o *allocator.Options) {
			o.Observer = func(allocator.Event) { close(in); <-goOn }
		})
		time.Sleep(61 * time.Second)
		b := w.wait(w.ctx, p, request("a")) // ends "old", gets a lease, and is not scheduled for a while
		<-in
		if _, err := p.Cancel(w.ctx, "a"); err != nil {
			t.Fatal(err)
		}
		lost := false
		h.after = func(_ allocator.Need, err error) error {
			if !lost && err == nil {
				lost = true
				go func() { close(goOn) }()
				return allocator.ErrUncertain
			}
			return err
		}
		ctx, cancel := context.WithCancel(w.ctx)
		a := w.wait(ctx, p, request("a")) // gets a lease; the answer is lost
		synctest.Wait()
		<-b.done
		if a.over() {
			t.Fatal("not the case", a.err)
		}
		cancel()
		<-a.done
		t.Log("a:", a.err, "b:", b.err, b.lease.Valid())
		if s := w.state(q); s.Used > 0 && !errors.Is(a.err, allocator.ErrUncertain) && !b.lease.Valid() && (a.lease == nil || !a.lease.Valid()) {
			e := w.probe(q, 0)
			t.Errorf("all calls are over (%v, %v), no handle is valid, and epoch %d is live", a.err, b.err, e.Epoch)
		}
	})
}

// Handles that are being made while a Close loses its answer are ended.
func TestI19_CloseWhoseAnswerIsLostMeetsAcquires(t *testing.T) {
	t.Parallel()
	for rounds := range 2000 {
		w := newWorld(t)
		const n = 60
		w.pool(n)
		p, h := w.hooked()
		var lose atomic.Bool
		h.after = func(_ allocator.Need, err error) error {
			if lose.Load() && err == nil {
				return allocator.ErrUncertain
			}
			return err
		}
		got := make(chan *allocator.Lease, n)
		for i := range n {
			go func() {
				l, _ := p.Acquire(w.ctx, request(string(rune('A'+i))))
				got <- l
			}()
		}
		if rounds%2 == 0 {
			time.Sleep(time.Duration(rounds%100) * time.Microsecond)
		}
		lose.Store(true)
		err := p.Close(w.ctx, true)
		if !errors.Is(err, allocator.ErrUncertain) {
			t.Fatal(err)
		}
		q := w.process()
		for range n {
			if l := <-got; l != nil && l.Valid() {
				if _, err := q.Verify(w.ctx, index(l), l.Epoch()); err != nil {
					t.Fatalf("round %d: epoch %d is valid (%v): %v", rounds, l.Epoch(), l.Left(), err)
				}
			}
		}
	}
}

// A ticket that is made behind the Cancel of another waiter is not left.
func TestR6c_ATicketBesideACancel(t *testing.T) {
	for range 200 {
		ok := true
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, ctx: t.Context(), store: memory.New(nil).Pools()}
			w.bubblePool(1)
			q := w.process(own)
			start := time.Now()
			var block atomic.Bool
			clockIn, clockOn := make(chan struct{}), make(chan struct{})
			p, h := w.hooked(func(o *allocator.Options) {
				o.Holder.Boot = ""
				o.Clock = func() (time.Time, time.Duration) {
					if block.CompareAndSwap(true, false) {
						close(clockIn)
						<-clockOn
					}
					return time.Now(), time.Since(start)
				}
			})
			x := w.acquire(p, "x")
			in0, goOn0 := make(chan struct{}), make(chan struct{})
			n0 := 0
			h.before = func(allocator.Need) {
				if n0++; n0 == 1 {
					close(in0)
					<-goOn0
				}
			}
			c0 := w.wait(w.ctx, p, request("a"))
			<-in0
			block.Store(true)
			c1 := w.wait(w.ctx, p, request("a")) // not scheduled before its first step
			<-clockIn
			close(goOn0)
			synctest.Wait()
			z := w.wait(w.ctx, q, request("z"))
			synctest.Wait()
			w.release(x)
			<-c0.done
			w.release(c0.lease) // z has an offer
			<-z.done
			ctx2, cancel2 := context.WithCancel(w.ctx)
			c2 := w.wait(ctx2, p, request("a"))
			synctest.Wait() // it has a ticket
			in, goOn := make(chan struct{}), make(chan struct{})
			n := 0
			h.before = func(allocator.Need) {
				if n++; n == 1 {
					close(in)
					<-goOn
				}
			}
			go func() { _, _ = p.Cancel(w.ctx, "nothing") }()
			<-in
			go func() { _, _ = p.Cancel(w.ctx, "nothing") }() // leads the next.
			synctest.Wait()
			cancel2()
			synctest.Wait()
			close(clockOn)
			synctest.Wait()
			close(goOn)
			<-c1.done
			<-c2.done
			synctest.Wait()
			if s := w.state(q); s.Waiting > 0 {
				ok = false
				t.Errorf("all calls are over (%v; %v; %v), and a ticket is left", c0.err, c1.err, c2.err)
			}
		})
		if !ok {
			return
		}
	}
}

// A grant to a ticket meets Close, and is found by a poll.
func TestR13_AGrantMeetsCloseAndAPoll(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		p, h := w.hooked(own)
		x := w.acquire(p, "x")
		a := w.wait(w.ctx, p, request("a"))
		synctest.Wait() // it has a ticket
		n := 0
		h.after = func(_ allocator.Need, err error) error {
			if err != nil {
				return err
			}
			if n++; n == 1 { // x is released, a is granted, and not yet told
				time.Sleep(200 * time.Millisecond) // the next poll waits for the lane
				_ = p.Close(w.ctx, false)
			}
			return err
		}
		w.release(x)
		<-a.done
		synctest.Wait()
		if s := w.state(w.process(own)); s.Used > 0 && !errors.Is(a.err, allocator.ErrUncertain) {
			t.Errorf("all calls are over (%v), nobody has a handle, and a lease is live for its whole TTL: %+v", a.err, w.probe(w.process(own), 0))
		}
	})
}

// A Reclaim of an own lease whose answer is lost ends the handle.
func TestI19_AReclaimWhoseAnswerIsLost(t *testing.T) {
	w := newWorld(t)
	w.pool(1)
	p, h := w.hooked()
	l := w.acquire(p, "a")
	e := w.probe(p, 0)
	h.once()
	_, err := p.Reclaim(w.ctx, allocator.Reclaim{Slot: 0, Epoch: e.Epoch, Fingerprint: e.Fingerprint, Reason: allocator.ReasonForced, Note: "n"})
	t.Log(err)
	if _, v := p.Verify(w.ctx, 0, l.Epoch()); v != nil && l.Valid() {
		t.Errorf("valid for %v, but %v", l.Left(), v)
	}
}

// A call that waits anew is unsure of what its earlier waiter was promised.
func TestR6c_APromiseIsCarriedOver(t *testing.T) {
	bubble(t, func(w *world) {
		w.bubblePool(1)
		p, h := w.hooked(own)
		x := w.acquire(p, "x")
		in, goOn := make(chan struct{}), make(chan struct{})
		n := 0
		h.before = func(allocator.Need) {
			if n++; n == 1 {
				close(in)
				<-goOn
			}
		}
		m := 0
		h.after = func(_ allocator.Need, err error) error {
			if err != nil {
				return err
			}
			if m++; m == 2 { // a has a ticket, x is released, a is granted
				_ = p.Close(w.ctx, false)
				h.Store = failing{h.Store, allocator.ErrUnavailable}
			}
			return err
		}
		go func() { _, _ = p.Cancel(w.ctx, "nothing") }()
		<-in
		a := w.wait(w.ctx, p, request("a"))
		synctest.Wait()
		go func() { _, _ = x.Release(w.ctx) }()
		synctest.Wait()
		close(goOn)
		<-a.done
		synctest.Wait()
		if s := w.state(w.process(own)); s.Used > s.Offered && !errors.Is(a.err, allocator.ErrUncertain) {
			t.Errorf("used %d, and only: %v", s.Used, a.err)
		}
	})
}

// pager is a store whose pages can be held up.
type pager struct {
	*hook
	page func()
}

func (p *pager) Page(ctx context.Context, q allocator.Query) (allocator.Rows, error) {
	if p.page != nil {
		p.page()
	}
	return p.hook.Page(ctx, q)
}
