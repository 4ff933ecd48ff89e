package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/allocator"
)

type chaos struct {
	allocator.Store
	mu    sync.Mutex
	r     *rand.Rand
	fault int // one of so many
	off   bool
}

// quiet makes the store sound for a while.
func (c *chaos) quiet(off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = off
}

// heal ends all faults, but not the delays.
func (c *chaos) heal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = 0
}

func (c *chaos) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	c.mu.Lock()
	off := c.off || n.ReadOnly
	var a, b time.Duration
	kind := 0
	if !off {
		if c.r.IntN(3) == 0 {
			a = time.Duration(c.r.IntN(200)) * time.Millisecond
		}
		if c.r.IntN(3) == 0 {
			b = time.Duration(c.r.IntN(200)) * time.Millisecond
		}
		if c.fault > 0 && c.r.IntN(c.fault) == 0 {
			kind = 1 + c.r.IntN(3)
		}
	}
	c.mu.Unlock()
	time.Sleep(a)
	if kind == 1 {
		return allocator.ErrUnavailable
	}
	if kind == 2 {
		return allocator.ErrUncertain
	}
	err := c.Store.Step(ctx, n, f)
	time.Sleep(b)
	if kind == 3 && err == nil {
		return allocator.ErrUncertain
	}
	return err
}

// Calls of two processes on few attempts, all at once, on a store that is slow and in one of two runs fails: no handle is valid
// without its lease, and no lease or ticket is left that nobody knows of.
func TestRandomCalls(t *testing.T) {
	t.Parallel()
	runs := 400
	if testing.Short() {
		runs = 60
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("STINT_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
		runs = 1
	}
	for run := range runs {
		ok := true
		synctest.Test(t, func(t *testing.T) { ok = randomCalls(t, seed+uint64(run)) })
		if !ok {
			return
		}
	}
}

func randomCalls(t *testing.T, seed uint64) (ok bool) {
	ok = true
	fault := 0
	if seed%2 == 1 {
		fault = 6
	}
	fail := func(format string, args ...any) {
		ok = false
		t.Errorf("seed %d: %s", seed, fmt.Sprintf(format, args...))
	}
	w := &world{t: t, ctx: t.Context(), store: memory.New(nil).Pools()}
	r := rand.New(rand.NewPCG(seed, 7))
	capacity := 1 + r.IntN(3)
	admin := w.bubblePool(capacity)
	c := &chaos{Store: w.store, r: rand.New(rand.NewPCG(seed, 9)), fault: fault}
	store := w.store
	w.store = c
	var om sync.Mutex
	or := rand.New(rand.NewPCG(seed, 11))
	obs := func(o *allocator.Options) {
		o.Observer = func(allocator.Event) {
			om.Lock()
			d := time.Duration(or.IntN(3)) * time.Duration(or.IntN(400)) * time.Millisecond
			om.Unlock()
			time.Sleep(d)
		}
	}
	procs := []*allocator.Pool{w.process(own, obs), w.process(own, obs)}
	foreign := map[uint64]bool{}
	w.store = store
	type key struct {
		p *allocator.Pool
		a string
	}
	var mu sync.Mutex
	unsure := map[key]bool{}
	handles := map[*allocator.Lease]*allocator.Pool{}
	note := func(p *allocator.Pool, a string, l *allocator.Lease, err error) {
		mu.Lock()
		defer mu.Unlock()
		if l != nil {
			handles[l] = p
		}
		if errors.Is(err, allocator.ErrUncertain) {
			unsure[key{p, a}] = true
		}
	}
	groups := [][]string{nil, {"g"}, {"g", "h"}, {"i"}}
	verNo := 0
	for round := range 12 {
		var wg sync.WaitGroup
		calls := 3 + r.IntN(8)
		cancels := []context.CancelFunc{}
		var log []string
		for range calls {
			p := procs[r.IntN(len(procs))]
			pi := 0
			if p == procs[1] {
				pi = 1
			}
			ai := r.IntN(4)
			a := fmt.Sprint("a", ai)
			req := units(a, 1+ai%min(2, capacity), groups[ai]...)
			if r.IntN(12) == 0 {
				req.Labels = map[string]string{"x": "y"}
			}
			ctx, cancel := context.WithCancel(w.ctx)
			if r.IntN(2) == 0 {
				ctx, cancel = context.WithTimeout(w.ctx, time.Duration(1+r.IntN(1500))*time.Millisecond)
			}
			cancels = append(cancels, cancel)
			delay := time.Duration(r.IntN(4)) * time.Duration(r.IntN(200)) * time.Millisecond
			kind := r.IntN(16)
			named := refs(&mu, handles, a, r)
			keepFor := time.Duration(r.IntN(90)) * time.Second
			var held *allocator.Lease
			mu.Lock()
			for l, q := range handles {
				if q == p && l.Attempt() == a && (held == nil || l.Epoch() > held.Epoch()) {
					held = l
				}
			}
			mu.Unlock()
			wg.Go(func() {
				time.Sleep(delay)
				var err error
				var l *allocator.Lease
				what := ""
				switch {
				case kind < 2:
					what = "acquire"
					l, err = p.Acquire(ctx, req)
				case kind < 6:
					what = "wait"
					l, err = p.AcquireWait(ctx, req)
				case kind < 7:
					what = "cancel"
					_, err = p.Cancel(ctx, a)
				case kind < 9 && held != nil:
					what = "release"
					_, err = held.Release(ctx)
				case kind == 10 && named != nil:
					what = "prelease"
					mu.Lock()
					if named.Holder != p {
						foreign[named.Ref.Epoch] = true
					}
					mu.Unlock()
					_, err = p.Release(ctx, named.Ref)
				case kind == 11 && named != nil:
					what = "prenew"
					mu.Lock()
					if named.Holder != p {
						foreign[named.Ref.Epoch] = true
					}
					mu.Unlock()
					var rn allocator.Renewal
					rn, err = p.Renew(ctx, named.Ref, named.Seq)
					if named.Holder == p {
						l = rn.Lease
					}
				case kind == 12 && held != nil:
					what = "keep"
					valid := held.Valid()
					kctx, kcancel := context.WithTimeout(w.ctx, keepFor)
					go func() {
						defer kcancel()
						kerr := held.Keep(kctx)
						if kctx.Err() != nil || errors.Is(kerr, allocator.ErrLapsed) {
							note(p, a, nil, allocator.ErrUncertain)
						}
						if kctx.Err() == nil && !errors.Is(kerr, allocator.ErrInvalid) {
							select {
							case <-held.Done():
							default:
								fail("Keep ended with %v, and Done is open", kerr)
							}
						}
						if valid && kctx.Err() == nil && errors.Is(kerr, allocator.ErrInvalid) {
							return
						}
					}()
				case kind == 13:
					what = "drain"
					s := w.state(admin)
					mu.Lock()
					verNo++
					id := fmt.Sprint("adm", verNo)
					mu.Unlock()
					if s.Status == allocator.PoolOpen {
						var dl time.Time
						if keepFor%2 == 0 {
							dl = time.Now().Add(time.Second)
						}
						_, _ = admin.Drain(w.ctx, allocator.Admin{ID: id, Version: s.Version}, dl)
						time.Sleep(keepFor / 100)
						s = w.state(admin)
					}
					_, err = admin.Reopen(w.ctx, allocator.Admin{ID: id + "r", Version: s.Version})
				case kind < 15 && held == nil:
					what = "wait"
					l, err = p.AcquireWait(ctx, req)
				case held != nil:
					what = "renew"
					var rn allocator.Renewal
					rn, err = held.Renew(ctx)
					l = rn.Lease
				}
				note(p, a, l, err)
				mu.Lock()
				e := uint64(0)
				if l != nil {
					e = l.Epoch()
				}
				log = append(log, fmt.Sprintf("%v p%d %s %s -> %d %v", time.Now().Format("05.000"), pi, what, a, e, err))
				mu.Unlock()
			})
		}
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		for _, cancel := range cancels {
			cancel()
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			fail("round %d: stuck calls", round)
			panic("stuck")
		}
		synctest.Wait()
		// quiescent
		for l, p := range copyOf(&mu, handles) {
			if !l.Valid() || marked(&mu, foreign, l.Epoch()) {
				continue
			}
			for _, s := range l.Slots() {
				if _, err := admin.Verify(w.ctx, s.Index, l.Epoch()); err != nil {
					fail("round %d: handle of %s epoch %d (p%v) is valid, but %v", round, l.Attempt(), l.Epoch(), p == procs[1], err)
				}
			}
		}
		for l, err := range admin.Leases(w.ctx, false) {
			if err != nil {
				t.Fatal(err)
			}
			if l.Status != allocator.LeaseLive {
				continue
			}
			found := false
			for h, p := range copyOf(&mu, handles) {
				if h.Epoch() == l.Epoch && h.Valid() && p.Holder().Incarnation == l.Holder.Incarnation {
					found = true
				}
			}
			for _, p := range procs {
				if p.Holder().Incarnation == l.Holder.Incarnation && marked(&mu, unsure, key{p, l.Attempt}) {
					found = true
				}
			}
			if !found && !marked(&mu, foreign, l.Epoch) && time.Since(l.ExpiresAt.Add(-8*time.Second)) < 0 {
				fail("round %d: live lease of %s epoch %d p%v acquired %v without a handle, and nobody said uncertain", round, l.Attempt, l.Epoch, l.Holder.Incarnation == procs[1].Holder().Incarnation, l.AcquiredAt)
			}
		}
		if s := w.state(admin); s.Waiting > 0 {
			some := false
			for x, err := range admin.Tickets(w.ctx) {
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range procs {
					if p.Holder().Incarnation == x.Holder.Incarnation && marked(&mu, unsure, key{p, x.Attempt}) {
						some = true
					}
				}
				if !some && fault == 0 {
					fail("round %d: a ticket of %s is left", round, x.Attempt)
				}
			}
		}
		if s, err := admin.Check(w.ctx, false); err != nil {
			fail("round %d: %v %+v", round, err, s)
		}
		if s := w.state(admin); s.Status != allocator.PoolOpen {
			if _, err := admin.Reopen(w.ctx, allocator.Admin{ID: fmt.Sprint("q", round), Version: s.Version}); err != nil {
				t.Fatal(err)
			}
		}
		if !ok {
			for _, x := range log {
				t.Log(x)
			}
			return ok
		}
		if r.IntN(4) == 0 { // all quiet: release what is there
			c.quiet(true)
			for _, p := range procs {
				for i := range 4 {
					if _, err := p.Cancel(w.ctx, fmt.Sprint("a", i)); err != nil {
						fail("%v", err)
					}
				}
			}
			c.quiet(false)
			forget(&mu, unsure)
			time.Sleep(11 * time.Second)
			if _, err := admin.Sweep(w.ctx, 10); err != nil {
				t.Fatal(err)
			}
			if s := w.state(admin); s.Used+s.Waiting > 0 {
				fail("round %d: after all cancels used %d, waiting %d", round, s.Used, s.Waiting)
			}
			for l := range copyOf(&mu, handles) {
				if l.Valid() && !marked(&mu, foreign, l.Epoch()) {
					fail("round %d: valid after all is over: %s %d", round, l.Attempt(), l.Epoch())
				}
			}
			forget(&mu, handles)
		}
		if r.IntN(6) == 0 {
			time.Sleep(time.Duration(r.IntN(70)) * time.Second)
		}
	}
	c.quiet(true)
	// no stuck waiter: all wait, everybody releases.
	var wg sync.WaitGroup
	for _, p := range procs {
		for i := range 4 {
			wg.Go(func() {
				a := fmt.Sprint("z", i, p == procs[1])
				l, err := p.AcquireWait(w.ctx, units(a, 1+i%min(2, capacity), groups[i%2]...))
				if err != nil {
					fail("last: %v", err)
					return
				}
				time.Sleep(time.Second)
				if _, err := l.Release(w.ctx); err != nil {
					fail("last: %v", err)
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		fail("stuck waiters: %+v", w.state(admin))
		panic("stuck")
	}
	c.quiet(false)
	if r.IntN(2) == 0 {
		c.heal()
	}
	for _, p := range procs {
		for i := range 4 {
			_, _ = p.Cancel(w.ctx, fmt.Sprint("a", i))
		}
	}
	forget(&mu, handles)
	forget(&mu, unsure)
	time.Sleep(400 * time.Second)
	for pi, p := range procs {
		release := r.IntN(3) > 0
		var wg sync.WaitGroup
		var log []string
		for range 4 + r.IntN(8) {
			ai := r.IntN(4)
			a := fmt.Sprint("c", ai)
			delay := time.Duration(r.IntN(4)) * time.Duration(r.IntN(200)) * time.Millisecond
			kind := r.IntN(4)
			ctx, cancel := context.WithTimeout(w.ctx, time.Duration(1+r.IntN(3000))*time.Millisecond)
			wg.Go(func() {
				defer cancel()
				time.Sleep(delay)
				began := time.Now().Format("05.000")
				var l *allocator.Lease
				var err error
				if kind == 0 {
					l, err = p.Acquire(ctx, units(a, 1, groups[ai]...))
				} else {
					l, err = p.AcquireWait(ctx, units(a, 1, groups[ai]...))
				}
				if l != nil && kind == 1 {
					time.Sleep(delay)
					_, e := l.Release(ctx)
					note(p, a, nil, e)
				}
				note(p, a, l, err)
				mu.Lock()
				log = append(log, fmt.Sprintf("%v-%v %d %s %v %v", began, time.Now().Format("05.000"), kind, a, l != nil && l.Valid(), err))
				mu.Unlock()
			})
		}
		time.Sleep(time.Duration(r.IntN(800)) * time.Millisecond)
		before := time.Now()
		mu.Lock()
		log = append(log, time.Now().Format("05.000")+" close")
		mu.Unlock()
		err := p.Close(w.ctx, release)
		for try := 0; err != nil && try < 20; try++ {
			err = p.Close(w.ctx, release)
		}
		took := time.Since(before)
		wg.Wait()
		synctest.Wait()
		for l, q := range copyOf(&mu, handles) {
			if q == p && l.Valid() {
				if release && err == nil {
					fail("close(%v): valid handle %d", release, l.Epoch())
				}
				if _, err := admin.Verify(w.ctx, l.Slots()[0].Index, l.Epoch()); err != nil {
					fail("close(%v): handle of %s epoch %d is valid, but %v", release, l.Attempt(), l.Epoch(), err)
				}
			}
		}
		for l, err := range admin.Leases(w.ctx, false) {
			if err != nil {
				t.Fatal(err)
			}
			if l.Status != allocator.LeaseLive || l.Holder.Incarnation != p.Holder().Incarnation || marked(&mu, unsure, key{p, l.Attempt}) {
				continue
			}
			found := false
			for h := range copyOf(&mu, handles) {
				found = found || h.Epoch() == l.Epoch && h.Valid()
			}
			if !found && time.Since(l.ExpiresAt.Add(-8*time.Second)) < 0 {
				fail("close(%v) p%d took %v: a live lease of %s epoch %d acquired %v expires %v fault %d", release, pi, took, l.Attempt, l.Epoch, l.AcquiredAt, l.ExpiresAt, c.fault)
			}
		}
		for x, err := range admin.Tickets(w.ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if x.Holder.Incarnation == p.Holder().Incarnation && c.fault == 0 && !marked(&mu, unsure, key{p, x.Attempt}) {
				fail("close(%v) p%d: a ticket of %s", release, pi, x.Attempt)
			}
		}
		if !ok {
			for _, x := range log {
				t.Log(x)
			}
		}
	}
	return ok
}

func copyOf[K comparable, V any](mu *sync.Mutex, m map[K]V) map[K]V {
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(m)
}

func marked[K comparable](mu *sync.Mutex, m map[K]bool, key K) bool {
	mu.Lock()
	defer mu.Unlock()
	return m[key]
}

func forget[K comparable, V any](mu *sync.Mutex, m map[K]V) {
	mu.Lock()
	defer mu.Unlock()
	clear(m)
}

type named struct {
	Ref    allocator.Ref
	Holder *allocator.Pool
	Seq    uint64
}

func refs(mu *sync.Mutex, handles map[*allocator.Lease]*allocator.Pool, a string, r *rand.Rand) *named {
	mu.Lock()
	defer mu.Unlock()
	var best *allocator.Lease
	for l := range handles {
		if l.Attempt() == a && (best == nil || l.Epoch() > best.Epoch()) {
			best = l
		}
	}
	if best == nil {
		return nil
	}
	return &named{best.Ref(), handles[best], uint64(1 + r.IntN(3))}
}
