package allocatortest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/stint-go/stint/allocator"
)

// Share takes a slot and gives it back, so many times, in competition with other processes. While it has a slot it holds a lock of the
// system on a file for it, which the system takes away when the process ends, however it ends: a witness that no store can talk
// out of it. An error says that two had a slot at once, or that a call failed.
func Share(ctx context.Context, p *allocator.Pool, dir, name string, times int) error {
	for i := range times {
		l, err := take(ctx, p, fmt.Sprint(name, "-", i))
		if err != nil {
			return err
		}
		if err := alone(dir, l); err != nil {
			return err
		}
		if _, err := l.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

func take(ctx context.Context, p *allocator.Pool, attempt string) (*allocator.Lease, error) {
	for {
		l, err := p.Acquire(ctx, allocator.Request{Attempt: attempt, Units: 1})
		if !errors.Is(err, allocator.ErrFull) {
			return l, err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// alone is the work: short, and with the slot's lock.
func alone(dir string, l *allocator.Lease) (err error) {
	slot := l.Slots()[0].Index
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint("slot-", slot)), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }() // which gives the lock back
	if err := lock(f); err != nil {
		return fmt.Errorf("slot %d, epoch %d: somebody else works there: %w", slot, l.Epoch(), err)
	}
	if !l.Valid() {
		return fmt.Errorf("slot %d, epoch %d: the lease was over before the work began", slot, l.Epoch())
	}
	time.Sleep(200 * time.Microsecond)
	return nil
}

// SharedPool makes the pool that [Share] is called on.
func SharedPool(ctx context.Context, store allocator.Store) (*allocator.Pool, error) {
	p, err := allocator.New(store, "shared", allocator.Options{})
	if err != nil {
		return nil, err
	}
	policy := allocator.DefaultPolicy()
	policy.Cooling = 0
	_, err = p.Create(ctx, allocator.Spec{Capacity: SharedSlots, Policy: &policy})
	return p, err
}

// SharedSlots is how many slots that pool has.
const SharedSlots = 5

// CheckShared checks that nothing of a shared pool is left behind by processes that are gone. It returns how many leases there were.
func CheckShared(ctx context.Context, p *allocator.Pool) (leases uint64, err error) {
	for range 10 { // an owner pass asks for some at a time
		if _, err := p.Sweep(ctx, 100); err != nil {
			return 0, err
		}
	}
	s, err := p.Check(ctx, false)
	if err == nil && (s.Used > 0 || s.Waiting > 0) {
		err = fmt.Errorf("%d slots are lost, %d wait", s.Used, s.Waiting)
	}
	if err != nil {
		return 0, err
	}
	l, err := p.Acquire(ctx, allocator.Request{Attempt: "all", Units: SharedSlots})
	if err != nil {
		return 0, err
	}
	_, err = l.Release(ctx)
	return l.Epoch() - 1, err
}
