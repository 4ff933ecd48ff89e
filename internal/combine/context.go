package combine

import (
	"context"
	"sync"
	"time"
)

// Detached is a context with a deadline of its own, no values and no parent: of a batch, or of a call that must not be
// lost with its caller. Reading the clock and setting a timer cost more than a whole batch in memory, so both wait until
// somebody asks for them: the limit counts from the first look, or the second at Err.
//
// It serves batch after batch until somebody asks for Done; everything derived from a context asks for Done. The mutex
// keeps a run that breaks the rules, and holds on to ctx after its return, from being worse than late.
type Detached struct {
	limit time.Duration

	mu       sync.Mutex
	asked    bool // for Err, once
	ended    bool
	latest   time.Time       // the latest deadline among the callers; zero if one of them has none
	deadline time.Time       // zero before the first look
	timed    context.Context // nil before the first need of Done
	cancel   context.CancelFunc
}

func (c *Detached) begin(latest time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked, c.ended, c.latest, c.deadline = false, false, latest, time.Time{}
}

// end ends the batch and reports whether the context is used up.
func (c *Detached) end() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.timed == nil {
		return false
	}
	c.cancel()
	return true
}

func (c *Detached) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.due(), true
}

func (c *Detached) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.timer().Done()
}

func (c *Detached) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil && !c.ended {
		if !c.asked && c.latest.IsZero() {
			c.asked = true // nothing can be over yet: most runs ask once, and need no clock
			return nil
		}
		if time.Until(c.due()) > 0 {
			return nil
		}
	}
	return c.timer().Err()
}

// Value has no values of its own; it lets the context package find the timer, so that a derived context needs no
// goroutine to watch this one.
func (c *Detached) Value(key any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		return nil
	}
	return c.timed.Value(key)
}

func (c *Detached) due() time.Time {
	if c.deadline.IsZero() {
		c.deadline = time.Now().Add(c.limit)
		if !c.latest.IsZero() && c.latest.Before(c.deadline) {
			c.deadline = c.latest
		}
	}
	return c.deadline
}

func (c *Detached) timer() context.Context {
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(context.Background(), c.due())
		if c.ended {
			c.cancel()
		}
	}
	return c.timed
}

// later returns the later of two deadlines. The zero time is no deadline, which is later than any.
func later(a, b time.Time) time.Time {
	switch {
	case a.IsZero() || b.IsZero():
		return time.Time{}
	case a.After(b):
		return a
	}
	return b
}

// Start makes c live until Stop, for limit at most.
func (c *Detached) Start(limit time.Duration) {
	c.limit = limit
	c.begin(time.Time{})
}

// Stop ends c.
func (c *Detached) Stop() { c.end() }
