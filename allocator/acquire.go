package allocator

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// Polls of a waiter, which sees other processes' changes only so (R6b).
const (
	firstPoll = 100 * time.Millisecond
	lastPoll  = 2 * time.Second
)

// waiter is the place of one attempt in the queue, for all calls of this process that wait with it.
type waiter struct {
	calls   int
	ticket  int64
	wake    chan struct{} // closed when lease or err is set
	lease   *Lease
	err     error
	leaving chan struct{} // not nil while the ticket is being given back; closed when it is
}

// end wakes the waiter with an error. p.mu is held.
func (w *waiter) end(err error) {
	if w.lease == nil && w.err == nil {
		w.err = err
		close(w.wake)
	}
}

// waitsHere tells whether a call of this process waits for the attempt.
func (p *Pool) waitsHere(attempt string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waiters[attempt]
	return w != nil && w.leaving == nil
}

// deliver hands what a step gave to tickets to their waiters (R6a).
func (p *Pool) deliver(granted []grant, dropped []drop, sent instant) {
	for _, g := range granted {
		l := p.newLease(g.lease, g.slots, g.lease.ExpiresUS, g.leftUS, g.lease.MaxUS, sent)
		p.mu.Lock()
		// A waiter that has just left gives the lease back with its Cancel, which comes after this step.
		if w := p.waiters[g.attempt]; w != nil && w.leaving == nil && w.lease == nil && w.err == nil {
			w.lease = l
			close(w.wake)
		}
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range dropped {
		if w := p.waiters[d.attempt]; w != nil && w.leaving == nil && w.ticket == d.seq { // not an older one that nobody waited with
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
	c.wait, c.ticket = false, 0
	return c, nil
}

// Acquire leases the free slots with the lowest indices, or refuses with a [FullError] at once. Leases whose time is over are ended
// first, and so are those whose owner is proved gone, where there is no room. A retry with the same attempt and content gets the same lease
// (Existing); the same attempt from another process is a [HeldError]: a lease is never shared. A grant that arrives when its
// time is over here is given back, as ErrLapsed.
func (p *Pool) Acquire(ctx context.Context, r Request) (*Lease, error) {
	c, err := p.newAcquire(&r)
	if err != nil {
		return nil, wrap("acquire", err)
	}
	p.expect()
	defer p.settled()
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
		sent := p.instant()
		if err := p.do(ctx, c); err != nil {
			return nil, err
		}
		if !c.again {
			return p.take(c, sent)
		}
	}
}

// take makes the handle of what was granted, or nil where there is a ticket.
func (p *Pool) take(c *acquire, sent instant) (*Lease, error) {
	if c.lease == nil {
		return nil, nil //nolint:nilnil // queued
	}
	l := p.newLease(c.lease, c.slots, c.lease.ExpiresUS, c.leftUS, c.mostUS, sent)
	if l.remains() == 0 && (!c.existing || c.claimed) {
		return nil, p.refuse(l)
	}
	return p.register(l, c.existing), nil // done already, if another call of this process ended it meanwhile
}

// refuse gives back a lease that came too late (R24).
func (p *Pool) refuse(l *Lease) error {
	err := p.doDetached(leaveDeadline, &release{ref: l.ref()})
	if errors.Is(err, ErrStale) {
		err = nil
	}
	return errors.Join(ErrLapsed, err)
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
// ctx does, when the pool drains, when the request can never fit, or when this process was not seen for 30 s (ErrTicketLost).
func (p *Pool) AcquireWait(ctx context.Context, r Request) (*Lease, error) {
	c, err := p.newAcquire(&r)
	if err != nil {
		return nil, wrap("acquire", err)
	}
	c.wait = true
	p.expect()
	defer p.settled()
	l, err := p.await(ctx, c) // c is not used again: a poll that was left early may still have it
	return l, wrap("acquire", err)
}

func (p *Pool) await(ctx context.Context, c *acquire) (*Lease, error) {
	p.here.Add(1)
	w, err := p.enter(ctx, c.attempt)
	if err != nil {
		p.here.Add(-1)
		return nil, err
	}
	left := false
	defer func() {
		if !left { // a prober panicked
			_ = p.exit(w, c.attempt, nil, ErrUncertain)
		}
	}()
	l, err := p.queue(ctx, c, w)
	left = true
	return l, p.exit(w, c.attempt, l, err)
}

// enter joins the waiter of an attempt.
func (p *Pool) enter(ctx context.Context, attempt string) (*waiter, error) {
	for {
		if err := p.stay(ctx, attempt); err != nil {
			return nil, err
		}
		p.mu.Lock()
		w := p.waiters[attempt]
		if w == nil {
			w = &waiter{wake: make(chan struct{})}
			p.waiters[attempt] = w
		}
		if w.leaving == nil {
			w.calls++
			p.mu.Unlock()
			return w, nil
		}
		p.mu.Unlock()
	}
}

// exit takes a call out of the queue. The last one gives the ticket back, unless it has a lease, or there is none.
func (p *Pool) exit(w *waiter, attempt string, l *Lease, cause error) error {
	p.here.Add(-1)
	p.mu.Lock()
	w.calls--
	last := w.calls == 0
	mine := last && l == nil && (w.ticket > 0 || errors.Is(cause, ErrUncertain)) && !errors.Is(cause, ErrTicketLost)
	c := &cancel{attempt: attempt, holder: p.holder.Incarnation}
	if h := p.leases[attempt]; h != nil && h.open() {
		c.keep = h.row.Epoch // another call works with it
	}
	switch {
	case last && mine:
		w.leaving = make(chan struct{})
	case last:
		delete(p.waiters, attempt)
	}
	p.mu.Unlock()
	if !mine {
		return cause
	}
	// A grant that met the end of ctx is released by this too.
	err := p.doDetached(leaveDeadline, c)
	p.mu.Lock()
	delete(p.waiters, attempt)
	p.mu.Unlock()
	close(w.leaving)
	if err != nil && cause == nil {
		return err
	}
	return cause
}

// queue asks until there is a lease or an end.
func (p *Pool) queue(ctx context.Context, c *acquire, w *waiter) (*Lease, error) {
	poll := firstPoll
	var probed bool
	var at instant // of the last owner pass
	for {
		p.mu.Lock()
		c.ticket = w.ticket
		p.mu.Unlock()
		sent := p.instant()
		err := p.do(ctx, c)
		held := (*HeldError)(nil)
		switch {
		case err == nil && c.lease != nil:
			l, err := p.take(c, sent)
			if l != nil && c.ticket > 0 {
				l.waited()
			}
			return l, err
		case err == nil && c.queued != nil:
			p.mu.Lock()
			w.ticket = c.queued.Seq
			p.mu.Unlock()
		case err == nil: // again
			continue
		case errors.As(err, &held):
			v, ended := p.probeHolder(ctx, held.Epoch)
			if held.Verdict = v; !ended {
				return p.woken(w, err)
			}
			continue
		case ctx.Err() != nil || !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUncertain):
			return p.woken(w, err)
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
		case <-w.wake:
			timer.Stop()
			return p.woken(w, nil)
		case <-ctx.Done():
			timer.Stop()
			return p.woken(w, ctx.Err())
		case <-timer.C:
		}
	}
}

// waited says that the lease came from the caller's own ticket: it is new to it.
func (l *Lease) waited() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.existing = false
}

// woken is what a step gave to the waiter, or else the caller's own reason to stop.
func (p *Pool) woken(w *waiter, cause error) (*Lease, error) {
	p.mu.Lock()
	l, err := w.lease, w.err
	p.mu.Unlock()
	switch {
	case l == nil && err == nil:
		return nil, cause
	case l == nil:
		return nil, err
	case l.Left() > 0:
		return p.register(l, false), nil
	case l.finishAs(ErrLapsed): // of all that wait for it, one gives it back
		return nil, p.refuse(l)
	}
	return nil, cmp.Or(l.Err(), ErrLapsed)
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
