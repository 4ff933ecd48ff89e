package spendlimit

import (
	"context"
	"errors"
	"slices"
	"strings"
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
	c, err := l.newReserve(&r)
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
		asked := time.Now()
		h, denied, err := l.attempt(ctx, r)
		switch {
		case err == nil:
			return h, nil
		case denied == nil && ctx.Err() != nil:
			return nil, errors.Join(err, unserved(context.Background(), last))
		case denied == nil || denied.Hopeless:
			return nil, err
		}
		last = denied
		l.line.denied(w, denied, asked)
		poll.Reset(l.jitter(min(denied.RetryAfter, backoff)))
		backoff = min(2*backoff, lastPoll)
	}
}

// attempt asks once.
func (l *Ledger) attempt(ctx context.Context, r Request) (*Hold, *DeniedError, error) {
	h, err := l.ask(ctx, &r)
	if err == nil {
		return h, nil, nil
	}
	err = l.hint(ctx, r.Split.Group, err)
	var denied *DeniedError
	errors.As(err, &denied)
	return nil, denied, err
}

// unserved is the error of a waiter whose context ended.
func unserved(ctx context.Context, last *DeniedError) error {
	errs := []error{ctx.Err()}
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
	due     time.Time     // a parked one is to ask again from here on, before those behind it; zero: not known
	pressed bool          // out of patience: no Reserve may pass
}

// blocks tells whether those behind w wait for it.
func (w *waiter) blocks(now time.Time) bool {
	return !w.parked || !w.due.IsZero() && !now.Before(w.due)
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

// wake wakes the first waiters on accounts where room was freed. It may help parked ones too, in their order.
func (q *queue) wake(accounts []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	match := func(w *waiter) bool {
		return w.shares(accounts) || slices.ContainsFunc(w.tokens, func(t string) bool { return t[:1] == parentToken })
	}
	now := time.Now()
	for _, w := range q.waiters {
		if w.parked && match(w) {
			w.due = now
		}
	}
	q.wakeLocked(match)
}

func (q *queue) wakeLocked(match func(*waiter) bool) {
	now := time.Now()
	for i, w := range q.waiters {
		if match(w) && q.blocker(i, now) == nil {
			w.signal()
		}
	}
}

// first tells whether w waits for nobody. If it waits for a parked one that is due, that one gets its turn.
func (q *queue) first(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	v := q.blocker(slices.Index(q.waiters, w), time.Now())
	if v != nil && v.parked {
		v.signal()
	}
	return v == nil
}

// blocker is the first one before the i-th waiter that it waits for, or nil.
func (q *queue) blocker(i int, now time.Time) *waiter {
	for _, v := range q.waiters[:i] {
		if v.blocks(now) && v.shares(q.waiters[i].tokens) {
			return v
		}
	}
	return nil
}

// denied notes what can help w, who asked at a certain time. If that is only a reset, those behind it get their turn
// until then; it is due no later than the reset, so that they can't be quicker.
func (q *queue) denied(w *waiter, d *DeniedError, asked time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	blocked := w.blocks(now)
	w.parked, w.due = !d.WaitHolds, time.Time{}
	if d.WaitReset {
		w.due = asked.Add(d.RetryAfter - time.Microsecond) // the store's clock has whole microseconds
	}
	if blocked && !w.blocks(now) {
		q.wakeLocked(func(v *waiter) bool { return v != w && v.shares(w.tokens) })
	}
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
		if !w.pressed || w.parked {
			continue
		}
		if i := slices.IndexFunc(tokens, func(t string) bool { return slices.Contains(w.tokens, t) }); i >= 0 {
			e := &DeniedError{Reason: ReasonQueued, Account: tokens[i], WaitHolds: true, RetryAfter: fallbackRetry}
			if parent, ok := strings.CutPrefix(tokens[i], parentToken); ok {
				e.Account, e.Parent = "", parent
			}
			return e
		}
	}
	return nil
}

// hint adds to a refusal when to ask again (R66). It looks at the store again, so it is only as good as that moment.
func (l *Ledger) hint(ctx context.Context, group string, err error) error {
	var denied *DeniedError
	if !errors.As(err, &denied) || denied.Hopeless || denied.Reason == ReasonQueued || denied.Reason == ReasonLease {
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
	call
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
		n.Trees = append(n.Trees, c.denied.Parent)
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
		if _, err := s.ready([]string{b.Account}); err != nil {
			return false, err
		}
		c.after = max(c.after, c.one(s, b))
	}
	if h := s.w.holds.get(c.denied.Parent); h != nil && c.denied.Reason == ReasonParent && h.State.Live() {
		c.after = max(c.after, c.inside(s, h))
	}
	if c.after == 0 {
		c.after = fallbackRetry
	}
	return false, nil
}

// one is the first instant at which lapsing open holds free enough of b; else its end; else the last instant at which
// it is known what a dispatched hold has cost. Holds that lapse give their room to a live ancestor first.
func (c *retry) one(s *step, b Balance) time.Duration {
	free, lastDispatched := b.Available, int64(0)
	inherited := map[*HoldRow]Amount{}
	for _, h := range s.w.expiring[b.Account] {
		if !h.State.Live() || c.denied.Reason == ReasonUnpriced {
			continue
		}
		left, heir := h.lapsesInto(b)
		room := h.Own + inherited[h]
		switch {
		case left == 0 && heir == nil: // holds nothing on b
			continue
		case h.State == Dispatched:
			lastDispatched = h.ExpiresUS
			continue
		case c.denied.Reason == ReasonGroupFull && h.Group != c.group:
			continue
		case heir != nil:
			inherited[heir] += room
		}
		free += min(room, left)
		if free >= c.denied.Min || c.denied.Reason == ReasonGroupFull && left > 0 {
			return durationOf(h.ExpiresUS + 1 - s.now)
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

// inside is the first instant at which lapsing open holds below a parent give enough back to it; else its own end.
func (c *retry) inside(s *step, parent *HoldRow) time.Duration {
	below := slices.Clone(s.w.trees[parent.Key])
	slices.SortFunc(below, byExpiry)
	inherited := map[*HoldRow]Amount{}
	for _, h := range below {
		if h.State != Open || h.ExpiresUS > parent.ExpiresUS {
			continue
		}
		_, heir := h.lapsesInto(Balance{})
		inherited[heir] += h.Own + inherited[h]
		if heir == parent && parent.Own+inherited[parent] >= c.denied.Min {
			return durationOf(h.ExpiresUS + 1 - s.now)
		}
	}
	return durationOf(parent.ExpiresUS + 1 - s.now)
}

// lapsesInto tells how much of h's room can come back to the limit of b when h lapses, and which ancestor is alive then
// to take it on the accounts further up.
func (h *HoldRow) lapsesInto(b Balance) (left Amount, heir *HoldRow) {
	for z := h; z != nil; z = z.Parent {
		if z != h && z.State.Live() && z.ExpiresUS >= h.ExpiresUS {
			return left, z
		}
		for i := range z.parts() {
			if p := z.part(i); slices.ContainsFunc(p.Lines, b.counts) {
				left += p.Left
			}
		}
	}
	return left, nil
}

// counts tells whether what is held on p is held on b.
func (b Balance) counts(p *PeriodRow) bool {
	l := &p.Limit.Limit
	return l.Account == b.Account && l.Name == b.Limit && (l.CarryHolds || startOf(p).Equal(b.Start))
}

func durationOf(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
