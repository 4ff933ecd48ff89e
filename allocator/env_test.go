package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/allocator"
)

// clock is an injected clock, in seconds from 0 of the spec's cases.
type clock struct {
	mu sync.Mutex
	us int64
}

const epochUS = 1_750_000_000_000_000

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.UnixMicro(c.us)
}

// local is the clock of the processes, which agrees with the store's.
func (c *clock) local() (time.Time, time.Duration) {
	now := c.now()
	return now, time.Duration(now.UnixMicro()-epochUS) * time.Microsecond
}

func (c *clock) set(seconds int64) { c.setUS(seconds * 1_000_000) }

func (c *clock) setUS(us int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.us = epochUS + us
}

// at is a time of the spec's cases.
func at(seconds int64) time.Time { return time.UnixMicro(epochUS + seconds*1_000_000).UTC() }

// world is a store and its time.
type world struct {
	t     *testing.T
	ctx   context.Context
	store allocator.Store
	*clock
	next uint64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ctx: t.Context(), clock: &clock{us: epochUS}}
	w.store = memory.New(&memory.Options{Clock: w.now}).Pools()
	return w
}

// source is a replayable source of bytes.
type source struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (s *source) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range b {
		b[i] = byte(s.r.Uint32())
	}
	return len(b), nil
}

func newSource(seed uint64) io.Reader { return &source{r: rand.New(rand.NewPCG(seed, 1))} }

// processes is a fake system: pids and their start times.
type processes map[int64]allocator.Process

func (p processes) Process(_ context.Context, pid int64) allocator.Process { return p[pid] }

// process opens the pool as another process does. Each one lives on a host of its own, unless a change says otherwise.
func (w *world) process(change ...func(*allocator.Options)) *allocator.Pool {
	w.t.Helper()
	w.next++
	h := allocator.Holder{Boot: fmt.Sprintf("boot-%d", w.next), Namespace: "1", PID: int64(w.next), Start: 1}
	h.Incarnation[15] = byte(w.next)
	h.Incarnation[14] = byte(w.next >> 8)
	o := allocator.Options{Clock: w.local, Rand: newSource(w.next), Holder: &h, Owners: processes{}}
	for _, c := range change {
		c(&o)
	}
	p, err := allocator.New(w.store, "worktrees", o)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// pool makes the pool of the spec's cases.
func (w *world) pool(capacity int, change ...func(*allocator.Spec)) *allocator.Pool {
	w.t.Helper()
	policy := allocator.DefaultPolicy()
	policy.Cooling = 0
	s := allocator.Spec{Capacity: capacity, Policy: &policy}
	for _, c := range change {
		c(&s)
	}
	p := w.process()
	if _, err := p.Create(w.ctx, s); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func request(attempt string) allocator.Request { return allocator.Request{Attempt: attempt, Units: 1} }

func (w *world) acquire(p *allocator.Pool, attempt string) *allocator.Lease {
	w.t.Helper()
	l, err := p.Acquire(w.ctx, request(attempt))
	if err != nil {
		w.t.Fatalf("acquire %s: %v", attempt, err)
	}
	return l
}

func (w *world) release(l *allocator.Lease) {
	w.t.Helper()
	if _, err := l.Release(w.ctx); err != nil {
		w.t.Fatalf("release: %v", err)
	}
}

func (w *world) state(p *allocator.Pool) allocator.PoolState {
	w.t.Helper()
	s, err := p.State(w.ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// rev is the pool's revision: the same one means that nothing was written.
func (w *world) rev(p *allocator.Pool) int64 { return w.state(p).Rev }

// unchanged checks that a call writes nothing.
func (w *world) unchanged(p *allocator.Pool, what string, call func()) {
	w.t.Helper()
	before := w.rev(p)
	call()
	if after := w.rev(p); after != before {
		w.t.Errorf("%s wrote: rev %d, was %d", what, after, before)
	}
}

func (w *world) probe(p *allocator.Pool, slot int) allocator.Evidence {
	w.t.Helper()
	e, err := p.Probe(w.ctx, slot)
	if err != nil {
		w.t.Fatalf("probe %d: %v", slot, err)
	}
	return e
}

func (w *world) want(what string, err, want error) {
	w.t.Helper()
	if !errors.Is(err, want) {
		w.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func (w *world) full(what string, err error, reason allocator.Shortage) *allocator.FullError {
	w.t.Helper()
	var full *allocator.FullError
	if !errors.As(err, &full) || full.Reason != reason {
		w.t.Fatalf("%s: %v, want full: %v", what, err, reason)
	}
	return full
}

func index(l *allocator.Lease) int { return l.Slots()[0].Index }

// unavailable is a store that can be down.
type unavailable struct {
	allocator.Store
	down atomic.Bool
}

func (u *unavailable) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	if u.down.Load() {
		return allocator.ErrUnavailable
	}
	return u.Store.Step(ctx, n, f)
}

func (u *unavailable) Page(ctx context.Context, q allocator.Query) (allocator.Rows, error) {
	if u.down.Load() {
		return allocator.Rows{}, allocator.ErrUnavailable
	}
	return u.Store.Page(ctx, q)
}
