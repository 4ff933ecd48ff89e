package faulty

import (
	"context"
	"errors"
	"sync"

	"github.com/stint-go/stint/internal/fault"
)

// Injector counts the calls of a store, and fails them by a plan. Safe for concurrent use.
type Injector struct {
	mu   sync.Mutex
	made int
	plan Plan
}

// SetPlan changes the plan; nil, as at first, is none.
func (c *Injector) SetPlan(plan Plan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.plan = plan
}

// Calls returns how many there were.
func (c *Injector) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// next counts a call, and returns its fault.
func (c *Injector) next() Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	if c.plan == nil {
		return Fault{}
	}
	return c.plan(c.made)
}

// Page is a call that only reads. An error is the one to fail with.
func Page(c *Injector) error {
	if f := c.next(); f.Kind != 0 && f.Kind != Twice {
		return f.err(fault.ErrUnavailable)
	}
	return nil
}

// Step is a call of a store's step. N is what the step needs, S what it works on.
func Step[N, S any](ctx context.Context, c *Injector, store func(context.Context, N, func(int64, S) error) error, n N, step func(int64, S) error) error {
	switch f := c.next(); f.Kind {
	case Before:
		return f.err(fault.ErrUnavailable)
	case After, Unknown:
		lost := f.err(fault.ErrUncertain)
		if f.Applied() {
			lost = errors.Join(store(ctx, n, step), lost)
		}
		return lost
	case Cancel:
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return store(ctx, n, func(now int64, s S) error {
			defer cancel()
			return step(now, s)
		})
	case Twice:
		return twice(ctx, store, n, step)
	}
	return store(ctx, n, step)
}

var errGivenUp = errors.New("given up")

func twice[N, S any](ctx context.Context, store func(context.Context, N, func(int64, S) error) error, n N, step func(int64, S) error) error {
	err := store(ctx, n, func(now int64, s S) error {
		if err := step(now, s); err != nil {
			return err
		}
		return errGivenUp
	})
	if !errors.Is(err, errGivenUp) {
		return err
	}
	return store(ctx, n, step)
}
