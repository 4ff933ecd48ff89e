package spendlimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Polls of a waiter: other processes' changes are seen only so (R69).
const (
	firstPoll = 100 * time.Millisecond
	lastPoll  = 2 * time.Second
	// fallbackRetry is the hint where nothing is known about when it could help.
	fallbackRetry = time.Second
)

// ReserveWait is Reserve that waits while it is denied: until it is granted, until nothing can help (a Hopeless
// [DeniedError], at once), or until ctx ends (an error that wraps ctx.Err() and the last DeniedError; nothing is held).
// Waiters of one process with a common account are served in order of arrival; one that only the next period can help
// does not block the others.
func (l *Ledger) ReserveWait(ctx context.Context, r Request) (*Hold, error) {
	c, err := l.newReserve(r)
	if err == nil && ctx == nil {
		err = invalid("ctx", "nil")
	}
	if err != nil {
		return nil, wrap("reserve", err)
	}
	w := l.line.enter(tokens(&c.req))
	defer l.line.leave(w)
	h, err := l.wait(ctx, r, w)
	return h, wrap("reserve", err)
}

func (l *Ledger) wait(ctx context.Context, r Request, w *waiter) (*Hold, error) {
	patience := time.NewTimer(l.cfg.Patience)
	defer patience.Stop()
	poll := time.NewTimer(0)
	defer poll.Stop()
	var last *DeniedError
	for backoff := firstPoll; ; {
		select {
		case <-ctx.Done():
			return nil, unserved(ctx, last)
		case <-patience.C:
			l.line.press(w)
			continue
		case <-w.turn:
		case <-poll.C:
		}
		if !l.line.first(w) {
			continue // woken when it is
		}
		h, denied, err := l.attempt(ctx, r)
		switch {
		case err == nil:
			return h, nil
		case denied == nil && ctx.Err() != nil:
			return nil, errors.Join(err, unserved(nil, last))
		case denied == nil || denied.Hopeless:
			return nil, err
		}
		last = denied
		l.line.park(w, !denied.WaitHolds)
		poll.Reset(l.jitter(min(denied.RetryAfter, backoff)))
		backoff = min(2*backoff, lastPoll)
	}
}

// attempt asks once.
func (l *Ledger) attempt(ctx context.Context, r Request) (*Hold, *DeniedError, error) {
	c, err := l.newReserve(r)
	if err == nil {
		err = l.do(ctx, c)
	}
	if err == nil {
		return l.handle(c), nil, nil
	}
	err = l.hint(ctx, r.Split.Group, err)
	var denied *DeniedError
	errors.As(err, &denied)
	return nil, denied, err
}

// unserved is the error of a waiter whose context ended.
func unserved(ctx context.Context, last *DeniedError) error {
	var errs []error
	if ctx != nil {
		errs = append(errs, ctx.Err())
	}
	if last != nil {
		errs = append(errs, last)
	}
	return errors.Join(errs...)
}

// jitter is d × a factor from 0.5 to 1.5.
func (l *Ledger) jitter(d time.Duration) time.Duration {
	return d/2 + time.Duration(l.cfg.Random()%uint64(max(d, 1)))
}

// tokens are what a request waits on: its accounts, and its parent's room.
func tokens(r *Request) []string {
	if r.Parent == "" {
		return r.Accounts
	}
	return append(slices.Clip(r.Accounts), parentToken+r.Parent)
}

// parentToken starts with a byte that no account name has.
const parentToken = "\x00"

// queue holds the waiters of one process in order of arrival (R68).
type queue struct {
	waiting atomic.Int64 // how many; read without the lock
	mu      sync.Mutex
	waiters []*waiter
}

type waiter struct {
	tokens  []string
	turn    chan struct{} // one signal is kept
	parked  bool          // only a reset can help: it keeps its place and blocks nobody
	pressed bool          // out of patience: no Reserve may pass
}

func (w *waiter) signal() {
	select {
	case w.turn <- struct{}{}:
	default:
	}
}

func (w *waiter) shares(tokens []string) bool {
	return slices.ContainsFunc(w.tokens, func(t string) bool { return slices.Contains(tokens, t) })
}

// enter puts a waiter at the end.
func (q *queue) enter(tokens []string) *waiter {
	w := &waiter{tokens: tokens, turn: make(chan struct{}, 1)}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters = append(q.waiters, w)
	q.waiting.Store(int64(len(q.waiters)))
	return w
}

// leave takes a waiter out and wakes those behind it.
func (q *queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiters, w); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	q.waiting.Store(int64(len(q.waiters)))
	q.wakeLocked(func(v *waiter) bool { return v.shares(w.tokens) })
}

// wake wakes the first waiters on accounts where room was freed.
func (q *queue) wake(accounts []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeLocked(func(w *waiter) bool {
		return w.shares(accounts) || slices.ContainsFunc(w.tokens, func(t string) bool { return t[:1] == parentToken })
	})
}

func (q *queue) wakeLocked(match func(*waiter) bool) {
	for i, w := range q.waiters {
		if match(w) && q.firstLocked(i) {
			w.signal()
		}
	}
}

// first tells whether no unparked waiter before w shares anything with it.
func (q *queue) first(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.firstLocked(slices.Index(q.waiters, w))
}

func (q *queue) firstLocked(i int) bool {
	return !slices.ContainsFunc(q.waiters[:i], func(v *waiter) bool { return !v.parked && v.shares(q.waiters[i].tokens) })
}

// park notes whether only a reset can help w; if so, those behind it get their turn.
func (q *queue) park(w *waiter, parked bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if parked && !w.parked {
		defer q.wakeLocked(func(v *waiter) bool { return v != w && v.shares(w.tokens) })
	}
	w.parked = parked
}

// press notes that w has run out of patience.
func (q *queue) press(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.pressed = true
}

// ahead refuses a Reserve that would pass a waiter on holds which has run out of patience.
func (q *queue) ahead(tokens []string) error {
	if q.waiting.Load() == 0 {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.waiters {
		if w.pressed && !w.parked && w.shares(tokens) {
			return &DeniedError{Reason: ReasonQueued, Account: tokens[0], WaitHolds: true, RetryAfter: fallbackRetry}
		}
	}
	return nil
}

// hint adds to a refusal when to ask again (R66). It looks at the store again, so it is only as good as that moment.
func (l *Ledger) hint(ctx context.Context, group string, err error) error {
	var denied *DeniedError
	if !errors.As(err, &denied) || denied.Hopeless || denied.Reason == ReasonQueued {
		return err
	}
	denied.RetryAfter = fallbackRetry
	h := &retry{denied: denied, group: group}
	if l.look(ctx, h) == nil {
		denied.RetryAfter = max(h.after, time.Microsecond)
	}
	return err
}

// retry is the command behind hint: the first instant at which lapsing holds, or the period's end, could help.
type retry struct {
	denied *DeniedError
	group  string
	after  time.Duration
}

func (c *retry) need(n *Need) {
	for _, b := range c.limits() {
		n.Accounts = append(n.Accounts, b.Account)
		n.Expiring = append(n.Expiring, b.Account)
	}
	if c.denied.Reason == ReasonParent {
		n.Holds = append(n.Holds, c.denied.Parent)
	}
}

// limits are those that refused.
func (c *retry) limits() []Balance {
	if c.denied.Reason == ReasonGroupFull && c.denied.Binding.Account != "" {
		return []Balance{c.denied.Binding}
	}
	return c.denied.Exhausted
}

func (c *retry) apply(s *step) (bool, error) {
	c.after = 0
	for _, b := range c.limits() {
		c.after = max(c.after, c.one(s, b))
	}
	if h := s.w.holds[c.denied.Parent]; h != nil && c.denied.Reason == ReasonParent && h.State.Live() {
		c.after = max(c.after, durationOf(h.ExpiresUS+1-s.now))
	}
	if c.after == 0 {
		c.after = fallbackRetry
	}
	return false, nil
}

func (c *retry) one(s *step, b Balance) time.Duration {
	free, lastDispatched := b.Available, int64(0)
	if c.denied.WaitHolds {
		for _, h := range s.w.expiring[b.Account] {
			if !h.counts(b) || h.ExpiresUS < s.now {
				continue
			}
			if h.State == Dispatched {
				lastDispatched = h.ExpiresUS
				continue
			}
			free += h.Own
			if c.denied.Reason == ReasonGroupFull && h.Group == c.group || c.denied.Reason != ReasonGroupFull && free >= c.denied.Min {
				return durationOf(h.ExpiresUS + 1 - s.now)
			}
		}
	}
	switch {
	case !b.End.IsZero():
		return durationOf(micros(b.End) - s.now)
	case lastDispatched > 0:
		return durationOf(lastDispatched + 1 - s.now)
	}
	return 0
}

// counts tells whether h gives its room back to the limit of b when it lapses.
func (h *HoldRow) counts(b Balance) bool {
	if h.Parent != nil && h.Parent.State.Live() {
		return false
	}
	for i := range h.parts() {
		for _, p := range h.part(i).Lines {
			if p.Limit.Account.Name == b.Account && p.Limit.Limit.Name == b.Limit {
				return true
			}
		}
	}
	return false
}

func durationOf(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
