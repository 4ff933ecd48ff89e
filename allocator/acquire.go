package allocator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Polls of a waiter, which sees other processes' changes only so (R6b).
const (
	firstPoll = 100 * time.Millisecond
	lastPoll  = 2 * time.Second
)

// waiter is the place of one attempt in the queue, for all calls of this process that wait with it. Its fields are guarded by p.mu.
type waiter struct {
	params   *Params // of the first call: those that differ are refused by the step
	calls    int
	ticket   int64         // that the attempt has; 0: none that is known
	unsure   bool          // an answer was lost: there may be a ticket or a lease that nobody knows
	promised bool          // a step may have given a lease to the ticket
	wake     chan struct{} // closed when lease or err is set
	lease    *Lease
	served   bool // it came from the ticket
	err      error
	leaving  chan struct{} // not nil while what there may be is being given back; closed when it is
}

// decided tells that the wait is over: later calls wait anew. p.mu is held.
func (w *waiter) decided() bool { return w.lease != nil || w.err != nil }

// end wakes the waiter with an error. p.mu is held.
func (w *waiter) end(err error) {
	if !w.decided() {
		w.err = err
		close(w.wake)
	}
}

// waitsHere tells whether a call of this process waits with a ticket of the attempt. Of a fresh one, which a step has just made, its
// waiter hears only after the step.
func (p *Pool) waitsHere(attempt string, seq int64, fresh bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waiters[attempt]
	if w == nil || w.leaving != nil || w.decided() || !fresh && w.ticket != seq {
		return false
	}
	w.promised = true
	return true
}

// seat gives waiters the tickets that a step has made for them, before the next step may serve them.
func (p *Pool) seat(commands []command) {
	for _, c := range commands {
		if a, ok := c.(*acquire); ok && a.waiter != nil && a.queued != nil && a.err == nil {
			p.mu.Lock()
			a.waiter.ticket = a.queued.Seq
			p.mu.Unlock()
		}
	}
}

// deliver hands what a step gave to tickets to their waiters (R6a).
func (p *Pool) deliver(granted []grant, dropped []drop, sent instant) {
	for _, g := range granted {
		l := p.newLease(g.lease, g.slots, g.lease.ExpiresUS, g.leftUS, g.lease.MaxUS, sent)
		p.mu.Lock()
		// A waiter that has just left gives the lease back with its Cancel, which comes after this step, or says that it is unsure.
		if w := p.waiters[g.attempt]; w != nil && w.leaving == nil && !w.decided() {
			w.lease, w.served, w.ticket = p.one(l, false, p.over.latest()), true, 0
			close(w.wake)
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range dropped {
		if w := p.waiters[d.attempt]; w != nil && w.leaving == nil && w.ticket == d.seq { // not an older one that nobody waited with
			w.ticket = 0
			w.end(d.cause)
		}
	}
}

func (p *Pool) newAcquire(r *Request) (*acquire, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	c := p.acquires.Get()
	c.reset()
	c.attempt, c.holder = r.Attempt, &p.holder
	c.params = Params{
		Group: KeyOf(r.Group...), Units: r.Units, TTLUS: r.TTL.Microseconds(), MaxUS: r.MaxLease.Microseconds(), Owner: r.Owner, Labels: labelList(r.Labels),
	}
	c.wait, c.waiter, c.ticket, c.unsure = false, nil, 0, false
	return c, nil
}

// Acquire leases the free slots with the lowest indices, or refuses with a [FullError] at once. Leases whose time is over are ended
// first, and so are those whose owner is proved gone, where there is no room. A retry with the same attempt and content gets the same lease
// (Existing); the same attempt from another process is a [HeldError]: a lease is never shared. A grant that arrives when its
// time is over here is given back, as ErrLapsed; one that another call of this process ended meanwhile is done already.
func (p *Pool) Acquire(ctx context.Context, r Request) (*Lease, error) {
	c, err := p.newAcquire(&r)
	if err != nil {
		return nil, wrap("acquire", err)
	}
	l, err := p.ask(ctx, c)
	p.acquires.Done(c, err)
	return l, wrap("acquire", err)
}

// ask asks once, and once more if that can help.
func (p *Pool) ask(ctx context.Context, c *acquire) (*Lease, error) {
	l, err := p.askOnce(ctx, c)
	if err == nil {
		return l, nil
	}
	if held := (*HeldError)(nil); errors.As(err, &held) {
		v, ended := p.probeHolder(ctx, held.Epoch)
		held.Verdict = v
		if !ended {
			return nil, err
		}
	} else if !errors.Is(err, ErrFull) || p.probeOwners(ctx, maxOwners) == 0 {
		return nil, err
	}
	return p.askOnce(ctx, c)
}

func (p *Pool) askOnce(ctx context.Context, c *acquire) (*Lease, error) {
	for {
		if err := p.stay(ctx, c.attempt); err != nil {
			return nil, err
		}
		if l, err := p.tryOnce(ctx, c); err != nil || !c.again {
			return l, err
		}
	}
}

// tryOnce makes one step, and the handle of what it granted.
func (p *Pool) tryOnce(ctx context.Context, c *acquire) (*Lease, error) {
	f := p.expect()
	defer p.settled(f)
	sent := p.instant()
	if err := p.do(ctx, c); err != nil {
		return nil, err
	}
	return p.take(c, sent, f)
}

// take makes the handle of what was granted, or nil where there is a ticket.
func (p *Pool) take(c *acquire, sent instant, f flight) (*Lease, error) {
	if c.lease == nil {
		return nil, nil //nolint:nilnil // queued
	}
	l := p.newLease(c.lease, c.slots, c.lease.ExpiresUS, c.leftUS, c.mostUS, sent)
	switch fresh := !c.existing || c.claimed; {
	case fresh && l.remains() == 0:
		return nil, p.refuse(l, ErrLapsed)
	case fresh && p.closed.Load(): // Close did not know of it
		return nil, p.refuse(l, ErrClosed)
	case p.closed.Load():
		return nil, ErrClosed
	}
	return p.register(l, c.existing, f), nil
}

// refuse gives back a lease that came too late (R24).
func (p *Pool) refuse(l *Lease, why error) error {
	err := p.doDetached(leaveDeadline, &release{ref: l.ref()})
	if err == nil || errors.Is(err, ErrStale) {
		return why
	}
	return fmt.Errorf("%w: %w: %w", ErrUncertain, why, err)
}

// stay waits until nobody is giving back what this attempt has.
func (p *Pool) stay(ctx context.Context, attempt string) error {
	if ctx == nil {
		return invalid("ctx", "nil")
	}
	for {
		p.mu.Lock()
		var leaving chan struct{}
		if w := p.waiters[attempt]; w != nil {
			leaving = w.leaving
		}
		p.mu.Unlock()
		if leaving == nil {
			return nil
		}
		select {
		case <-leaving:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// AcquireWait is Acquire that waits for room: in the order of arrival within its group, large requests included. It ends without a lease when
// ctx does, when the pool drains, when the request can never fit, or when this process was not seen for 30 s (ErrTicketLost). The last call that
// leaves gives back what the attempt has. Where it can't tell whether a lease is left, its error is ErrUncertain: call again, or Cancel; a
// ticket that is left ends after 30 s.
func (p *Pool) AcquireWait(ctx context.Context, r Request) (*Lease, error) {
	c, err := p.newAcquire(&r)
	if err != nil {
		return nil, wrap("acquire", err)
	}
	c.wait = true
	l, err := p.await(ctx, c) // c is not used again: a poll that was left early may still have it
	return l, wrap("acquire", err)
}

func (p *Pool) await(ctx context.Context, c *acquire) (*Lease, error) {
	p.here.Add(1)
	if err := p.enter(ctx, c); err != nil {
		p.here.Add(-1)
		return nil, err
	}
	left := false
	defer func() {
		if !left { // a prober panicked
			_ = p.exit(c, nil, ErrUncertain)
		}
	}()
	l, err := p.queue(ctx, c)
	left = true
	return l, p.exit(c, l, err)
}

// enter joins the waiter of an attempt.
func (p *Pool) enter(ctx context.Context, c *acquire) error {
	for {
		if err := p.stay(ctx, c.attempt); err != nil {
			return err
		}
		p.mu.Lock()
		w := p.waiters[c.attempt]
		if w == nil || w.leaving == nil && w.decided() {
			w = newWaiter(c)
			p.waiters[c.attempt] = w
		}
		if w.leaving == nil {
			w.calls++
			c.waiter = w
			p.mu.Unlock()
			return nil
		}
		p.mu.Unlock()
	}
}

// exit takes a call out of the queue. The last one gives back what there may be but its own lease: a ticket, or a lease that nobody took.
func (p *Pool) exit(c *acquire, l *Lease, cause error) error {
	p.here.Add(-1)
	back := &cancel{attempt: c.attempt, holder: p.holder.Incarnation}
	w := c.waiter
	p.mu.Lock()
	for x := p.waiters[c.attempt]; x != nil && x != w && x.leaving != nil; x = p.waiters[c.attempt] {
		p.mu.Unlock() // its Cancel may have come before the ticket of this call
		<-x.leaving
		p.mu.Lock()
	}
	w.unsure = w.unsure || c.unsure || errors.Is(cause, ErrUncertain)
	mine := p.vacate(w, c.attempt)
	switch h := p.leases[c.attempt]; {
	case l != nil:
		back.keep = l.row.Epoch
	case h != nil && h.taken && h.open(): // another call works with it
		back.keep = h.row.Epoch
	}
	p.mu.Unlock()
	if !mine {
		return cause
	}
	// A grant that met the end of ctx is released by this too.
	err := p.outcome(back, p.leave(w, back), context.DeadlineExceeded)
	p.doubt(c.attempt, back.keep, err)
	p.mu.Lock()
	unsure := w.unsure || w.promised || errors.Is(err, ErrUncertain)
	p.mu.Unlock()
	switch {
	case l != nil || err == nil:
		return cause
	case unsure && cause != nil:
		return fmt.Errorf("%w: %w: %w", ErrUncertain, cause, err)
	case unsure || cause == nil:
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return cause // a ticket ends by its deadline
}

// vacate takes a call out of a waiter, and tells whether it is for it to give back what there may be. p.mu is held.
func (p *Pool) vacate(w *waiter, attempt string) (mine bool) {
	if w.calls--; w.calls > 0 {
		return false
	}
	untaken := w.lease != nil && !w.lease.taken && w.lease.open()
	mine = w.ticket > 0 || w.unsure || untaken
	switch other := p.waiters[attempt]; {
	case other != nil && other != w: // calls that came later go on with it
		other.unsure = other.unsure || w.unsure || untaken
		other.ticket = max(other.ticket, w.ticket)
		other.promised = other.promised || w.promised
		return false
	case mine:
		w.leaving = make(chan struct{})
		p.waiters[attempt] = w
	default:
		delete(p.waiters, attempt)
	}
	return mine
}

// waitAnew goes on with a call that has a ticket, though its waiter was woken by what was before.
func (p *Pool) waitAnew(c *acquire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := c.waiter
	if !old.decided() {
		return
	}
	w := p.waiters[c.attempt]
	switch {
	case w == nil || w.leaving == nil && w.decided():
		w = newWaiter(c)
		p.waiters[c.attempt] = w
	case w.leaving != nil: // the call ends with what woke it, and gives its ticket back after that one has
		return
	}
	w.calls++
	w.ticket = max(w.ticket, c.queued.Seq)
	w.promised = w.promised || old.promised
	if c.waiter = w; old.ticket == c.queued.Seq {
		old.ticket = 0
	}
	p.vacate(old, c.attempt)
}

func newWaiter(c *acquire) *waiter { return &waiter{params: &c.params, wake: make(chan struct{})} }

// doubt ends the handle of an attempt after a call that may have ended the lease, if its answer says no more. Those of calls that are on
// their way are ended when they are made. A lease with the epoch keep was not meant.
func (p *Pool) doubt(attempt string, keep uint64, err error) {
	if !errors.Is(err, ErrUncertain) {
		return
	}
	p.mu.Lock()
	p.over.add(endedKey{attempt: attempt}, keep)
	h := p.leases[attempt]
	p.mu.Unlock()
	if h != nil && h.row.Epoch != keep && p.own(h.row) {
		h.finish(&LostError{})
	}
}

// leave gives back what a waiter may have. Nobody else asks for the attempt meanwhile, but whoever hears of the outcome may.
func (p *Pool) leave(w *waiter, c *cancel) error {
	defer func() { // also if the store panics
		p.mu.Lock()
		delete(p.waiters, c.attempt)
		p.mu.Unlock()
		close(w.leaving)
	}()
	return p.lane.DoWithin(leaveDeadline, c)
}

// queue asks until there is a lease or an end.
func (p *Pool) queue(ctx context.Context, c *acquire) (*Lease, error) {
	poll := firstPoll
	var probed bool
	var at instant // of the last owner pass
	for {
		l, err := p.poll(ctx, c)
		held := (*HeldError)(nil)
		switch {
		case l != nil, errors.Is(err, ErrLapsed):
			return l, err
		case err == nil && c.queued != nil:
			p.waitAnew(c)
		case err == nil: // again
			continue
		case errors.Is(err, ErrAttemptMismatch):
			return nil, err
		case errors.As(err, &held):
			v, ended := p.probeHolder(ctx, held.Epoch)
			if held.Verdict = v; !ended {
				return p.woken(c, err)
			}
			continue
		case ctx.Err() != nil || !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUncertain):
			return p.woken(c, err)
		}
		if !probed || p.since(at) >= lastPoll {
			gone := p.probeOwners(ctx, maxOwners)
			probed, at = true, p.instant()
			if gone > 0 {
				continue
			}
		}
		timer := time.NewTimer(p.spread(poll))
		poll = min(poll+poll/2, lastPoll)
		select {
		case <-c.waiter.wake:
			timer.Stop()
			return p.woken(c, nil)
		case <-ctx.Done():
			timer.Stop()
			return p.woken(c, ctx.Err())
		case <-timer.C:
		}
	}
}

// poll makes one step of a wait. The answer is a lease, a ticket of the waiter, an error, or none of them: ask again.
func (p *Pool) poll(ctx context.Context, c *acquire) (*Lease, error) {
	f := p.expect()
	defer p.settled(f)
	w := c.waiter
	p.mu.Lock()
	c.ticket = w.ticket
	p.mu.Unlock()
	sent := p.instant()
	err := p.do(ctx, c)
	p.mu.Lock()
	c.unsure = errors.Is(err, ErrUncertain) || err != nil && c.unsure
	if (errors.Is(err, ErrTicketLost) || err == nil && c.lease != nil) && w.ticket == c.ticket {
		w.ticket = 0
	}
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	l, err := p.take(c, sent, f)
	c.unsure = err != nil // it is given back then, unless that failed
	p.mu.Lock()
	served := c.ticket > 0 || w.served && w.lease == l
	p.mu.Unlock()
	if l == nil || !served {
		return l, err
	}
	l.waited()
	return p.inTime(l)
}

// inTime refuses the lease of a ticket if it is over. Of all that wait for it, one gives it back. It may be done already, if another
// call of this process released it meanwhile.
func (p *Pool) inTime(l *Lease) (*Lease, error) {
	switch {
	case l.Left() > 0:
		return l, nil
	case l.finishAs(ErrLapsed):
		return nil, p.refuse(l, ErrLapsed)
	case l.Err() != nil:
		return nil, l.Err()
	}
	return l, nil
}

// waited says that the lease came from the caller's own ticket: it is new to it.
func (l *Lease) waited() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.existing = false
}

// woken is what a step gave to the waiter, or else the caller's own reason to stop.
func (p *Pool) woken(c *acquire, cause error) (*Lease, error) {
	p.mu.Lock()
	l, err := c.waiter.lease, c.waiter.err
	p.mu.Unlock()
	switch {
	case errors.Is(cause, ErrUncertain): // a step of this call may still be on its way
		return nil, cause
	case l == nil && err == nil:
		return nil, cause
	case l == nil:
		return nil, err
	}
	if err := c.params.mismatch(&l.row.Params); err != nil { // of a call with other content
		return nil, err
	}
	p.mu.Lock()
	l.taken = true
	p.mu.Unlock()
	return p.inTime(l)
}

// Cancelled is the answer to a Cancel.
type Cancelled struct {
	Lease  *LeaseState // that was released
	Ticket bool        // a place in the queue was given up
}

// Cancel gives back what this incarnation has for an attempt: its lease, or its place in the queue. There may be nothing, which is
// no error. What another process has is left alone.
func (p *Pool) Cancel(ctx context.Context, attempt string) (Cancelled, error) {
	err := validateName("attempt", attempt)
	if err != nil {
		return Cancelled{}, wrap("cancel", err)
	}
	c := &cancel{attempt: attempt, holder: p.holder.Incarnation}
	if err := p.do(ctx, c); err != nil {
		p.doubt(attempt, 0, err)
		return Cancelled{}, wrap("cancel", err)
	}
	answer := Cancelled{Ticket: c.ticket}
	if c.lease != nil {
		state := c.lease.state(p.name)
		answer.Lease = &state
	}
	// There is no lease of the attempt by now, whichever try of this call has ended it.
	p.mu.Lock()
	l := p.leases[attempt]
	p.mu.Unlock()
	if l != nil && l.row.Epoch <= c.upTo && l.row.Holder.Incarnation == p.holder.Incarnation {
		l.finish(nil)
	}
	return answer, nil
}
