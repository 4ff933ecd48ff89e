package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stint-go/stint/allocator"
)

// Slots are the slots of a pool, if nothing else is said.
const Slots = 128

// Pools is a Subject: a pair acquires a slot of the pool that is named like the account, and releases it.
type Pools struct{ pools map[string]*allocator.Pool }

// NewPools makes a pool of so many slots for each name.
func NewPools(ctx context.Context, store allocator.Store, names []string, slots int) (Pools, error) {
	p := Pools{map[string]*allocator.Pool{}}
	for _, name := range names {
		pool, err := allocator.New(store, name, allocator.Options{})
		if err == nil {
			_, err = pool.Create(ctx, allocator.Spec{Capacity: slots})
		}
		if err != nil {
			return Pools{}, err
		}
		p.pools[name] = pool
	}
	return p, nil
}

// Pair implements Subject.
func (p Pools) Pair(ctx context.Context, key string, names []string) error {
	l, err := p.pools[names[0]].Acquire(ctx, allocator.Request{Attempt: key, Units: 1})
	if err == nil {
		_, err = l.Release(ctx)
	}
	return err
}

// Hold takes n slots for good, many at a time.
func (p Pools) Hold(ctx context.Context, name string, n int) error {
	errs := make([]error, min(n, 256))
	var done sync.WaitGroup
	for first := range errs {
		done.Go(func() {
			for i := first; i < n && errs[first] == nil; i += len(errs) {
				_, errs[first] = p.pools[name].Acquire(ctx, allocator.Request{Attempt: fmt.Sprint("held-", i), Units: 1, TTL: allocator.DefaultPolicy().MaxLease})
			}
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

// Pool returns the pool of a name.
func (p Pools) Pool(name string) *allocator.Pool { return p.pools[name] }

// Renewals is a Subject: a pair is two renewals.
type Renewals struct{ free chan *allocator.Lease }

// NewRenewals takes so many leases of a pool.
func NewRenewals(ctx context.Context, p *allocator.Pool, leases int) (Renewals, error) {
	r := Renewals{make(chan *allocator.Lease, leases)}
	for i := range leases {
		l, err := p.Acquire(ctx, allocator.Request{Attempt: fmt.Sprint("renewed-", i), Units: 1})
		if err != nil {
			return Renewals{}, err
		}
		r.free <- l
	}
	return r, nil
}

// Pair implements Subject.
func (r Renewals) Pair(ctx context.Context, _ string, _ []string) error {
	l := <-r.free
	_, err := l.Renew(ctx)
	if err == nil {
		_, err = l.Renew(ctx)
	}
	r.free <- l
	return err
}

// SlotTwin is the least that could lease slots: a free list and a map by attempt behind a mutex, with no rule at all.
type SlotTwin struct {
	mu      sync.Mutex
	free    []int
	held    map[string]int
	expires map[int]time.Time
}

// NewSlotTwin returns a Subject with so many slots.
func NewSlotTwin(slots int) *SlotTwin {
	t := &SlotTwin{held: map[string]int{}, expires: map[int]time.Time{}}
	for i := range slots {
		t.free = append(t.free, i)
	}
	return t
}

// Pair implements Subject.
func (t *SlotTwin) Pair(_ context.Context, key string, _ []string) error {
	t.acquire(key)
	t.release(key)
	return nil
}

func (t *SlotTwin) acquire(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.free) - 1
	t.held[key], t.free = t.free[last], t.free[:last]
}

func (t *SlotTwin) release(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, t.held[key])
	delete(t.held, key)
}

// RenewTwin is a Subject that writes one time for each renewal.
type RenewTwin struct {
	twin *SlotTwin
	free chan int
}

// NewRenewTwin returns one with so many leases.
func NewRenewTwin(leases int) RenewTwin {
	r := RenewTwin{NewSlotTwin(leases), make(chan int, leases)}
	for i := range leases {
		r.free <- i
	}
	return r
}

// Pair implements Subject.
func (r RenewTwin) Pair(context.Context, string, []string) error {
	slot := <-r.free
	r.renew(slot)
	r.renew(slot)
	r.free <- slot
	return nil
}

func (r RenewTwin) renew(slot int) {
	r.twin.mu.Lock()
	defer r.twin.mu.Unlock()
	r.twin.expires[slot] = time.Now().Add(time.Minute)
}

// HandOver is a Subject whose callers share the slots of a pool that has fewer of them: each waits for its turn, or asks every 100 ms.
type HandOver struct {
	Pools
	Waiting bool
}

// Pair implements Subject.
func (h HandOver) Pair(ctx context.Context, key string, names []string) error {
	p, r := h.pools[names[0]], allocator.Request{Attempt: key, Units: 1}
	take := p.AcquireWait
	if !h.Waiting {
		take = func(ctx context.Context, r allocator.Request) (*allocator.Lease, error) {
			for {
				l, err := p.Acquire(ctx, r)
				if !errors.Is(err, allocator.ErrFull) {
					return l, err
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	l, err := take(ctx, r)
	if err == nil {
		_, err = l.Release(ctx)
	}
	return err
}
