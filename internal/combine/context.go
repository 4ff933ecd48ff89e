package combine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// batchContext is the context of a batch: a deadline, no values, no parent. Reading the clock and setting a timer cost
// more than a whole batch in memory, so both wait until run asks for them: the limit counts from the first look, or the
// second at Err.
//
// One that was asked for no more than one Err serves the next batch too; else the next batch gets a new one. So a run
// that breaks the rules, and holds on to ctx after its return, is late at worst.
type batchContext struct {
	state atomic.Uint32
	limit atomic.Int64 // how long the batch may take, from the first look on

	mu       sync.Mutex
	ended    bool            // known once somebody looks
	latest   time.Time       // the latest deadline among the callers; zero if one of them has none
	deadline time.Time       // zero before the first look
	timed    context.Context // nil before the first need of Done
	cancel   context.CancelFunc
}

// The states of a batchContext.
const (
	idle   uint32 = iota // between two batches, and nobody looks
	fresh                // in a batch without a deadline: nothing can be over yet, so that one Err is free
	asked                // in a batch, and another Err needs the clock
	looked               // the fields count, under the lock; no other state comes after it
)

// begin begins a batch, or reports that the context is used up. Only then does the state change: whoever looks before is
// of another batch, and uses it up; whoever looks later finds what belongs to this one.
func (c *batchContext) begin(b bound, max time.Duration) bool {
	if b.at != c.latest { // nobody else writes it
		c.mu.Lock()
		c.latest = b.at
		c.mu.Unlock()
	}
	limit := max
	if b.in > 0 {
		limit = min(max, b.in)
	}
	if int64(limit) != c.limit.Load() {
		c.limit.Store(int64(limit))
	}
	first := fresh
	if !b.at.IsZero() {
		first = asked
	}
	return c.state.CompareAndSwap(idle, first)
}

// end ends the batch and reports whether somebody may have waited for something.
func (c *batchContext) end() bool {
	if c.state.CompareAndSwap(fresh, idle) || c.state.CompareAndSwap(asked, idle) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.timed == nil {
		return false
	}
	c.cancel()
	return true
}

// look takes the lock, which gives the fields their meaning.
func (c *batchContext) look() {
	c.mu.Lock()
	if c.state.Swap(looked) == idle {
		c.ended = true
	}
}

func (c *batchContext) Deadline() (time.Time, bool) {
	c.look()
	defer c.mu.Unlock()
	return c.due(), true
}

func (c *batchContext) Done() <-chan struct{} {
	c.look()
	defer c.mu.Unlock()
	return c.timer().Done()
}

func (c *batchContext) Err() error {
	if c.state.CompareAndSwap(fresh, asked) {
		return nil
	}
	c.look()
	defer c.mu.Unlock()
	if c.timed == nil && !c.ended && time.Until(c.due()) > 0 {
		return nil
	}
	return c.timer().Err()
}

// Value has no values of its own; it lets the context package find the timer, so that a derived context needs no
// goroutine to watch this one.
func (c *batchContext) Value(key any) any {
	c.look()
	defer c.mu.Unlock()
	if c.timed == nil {
		return nil
	}
	return c.timed.Value(key)
}

func (c *batchContext) due() time.Time {
	if c.deadline.IsZero() {
		c.deadline = time.Now().Add(time.Duration(c.limit.Load()))
		if !c.latest.IsZero() && c.latest.Before(c.deadline) {
			c.deadline = c.latest
		}
	}
	return c.deadline
}

func (c *batchContext) timer() context.Context {
	if c.timed == nil {
		c.timed, c.cancel = context.WithDeadline(context.Background(), c.due())
		if c.ended {
			c.cancel()
		}
	}
	return c.timed
}

// bound is how long a caller waits at most: until an instant, or for a while. The zero bound is none.
type bound struct {
	at time.Time
	in time.Duration
}

func boundOf(ctx context.Context) bound {
	at, _ := ctx.Deadline()
	return bound{at: at}
}

// later returns the bound that lasts longer. The clock is read only to compare an instant with a while.
func (b bound) later(c bound) bound {
	switch {
	case b == bound{} || c == bound{}:
		return bound{}
	case b.in > 0 && c.in > 0:
		return bound{in: max(b.in, c.in)}
	case b.in > 0:
		b = bound{at: time.Now().Add(b.in)}
	case c.in > 0:
		c = bound{at: time.Now().Add(c.in)}
	}
	if b.at.After(c.at) {
		return b
	}
	return c
}
