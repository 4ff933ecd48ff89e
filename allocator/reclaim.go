package allocator

import (
	"context"
	"errors"
	"time"
)

// Probe looks at a slot: its evidence, the fingerprint of it, and what follows. It writes nothing (R9).
func (p *Pool) Probe(ctx context.Context, slot int) (Evidence, error) {
	if slot < 0 || slot >= maxCapacity {
		return Evidence{}, wrap("probe", invalid("slot", "%d", slot))
	}
	list, err := p.probe(ctx, []int{slot})
	if err == nil && len(list) == 0 {
		err = invalid("slot", "%d, the pool has fewer", slot)
	}
	if err != nil {
		return Evidence{}, wrap("probe", err)
	}
	return list[0], nil
}

// Probes looks at up to n slots, 1 to 1,000, from an index on, in one view. An empty list is the end.
func (p *Pool) Probes(ctx context.Context, from, n int) ([]Evidence, error) {
	if from < 0 || n < 1 || n > maxPage {
		return nil, wrap("probes", invalid("n", "%d from %d, want 1 to %d from 0 on", n, from, maxPage))
	}
	var slots []int
	for i := from; i < min(from+n, maxCapacity); i++ {
		slots = append(slots, i)
	}
	list, err := p.probe(ctx, slots)
	return list, wrap("probes", err)
}

func (p *Pool) probe(ctx context.Context, slots []int) ([]Evidence, error) {
	c := &look{slots: slots}
	if err := p.look(ctx, c); err != nil {
		return nil, err
	}
	judged := map[owned]Verdict{} // many leases may have one owner
	for i := range c.seen {
		e := &c.seen[i]
		if e.Lease == nil || e.Lease.Status != LeaseLive || e.Verdict != VerdictLive {
			continue
		}
		// Time says live: that its owner is, is not said by it.
		v, ok := judged[c.owners[i]]
		if !ok {
			v = p.judge(ctx, c.owners[i].holder, c.owners[i].owner)
			judged[c.owners[i]] = v
		}
		if v == VerdictDead {
			e.Verdict, e.Reason = VerdictDead, ReasonDeadOwner
		}
	}
	return c.seen, nil
}

// judge asks this system for the owner of a lease (R11).
func (p *Pool) judge(ctx context.Context, h Holder, owner Owner) Verdict {
	var process Process
	if askable(h, p.holder) {
		process = p.o.Owners.Process(ctx, h.PID)
	}
	return judgeOwner(h, p.holder, p.hostGiven, owner, process)
}

// Reclaimed is the answer to a Reclaim.
type Reclaimed struct {
	Last *LeaseState // the lease as it ended; nil where a row could not be read or did not fit
}

// Reclaim ends a lease that somebody else holds. In one step the evidence must be exactly what was seen, else it is ErrStale, and the
// reason is proved again from it, else it is ErrNotReclaimable. Nothing is written then. A retry gets the same answer (R10).
func (p *Pool) Reclaim(ctx context.Context, r Reclaim) (Reclaimed, error) {
	if err := r.validate(); err != nil {
		return Reclaimed{}, wrap("reclaim", err)
	}
	c := &reclaim{Reclaim: r}
	err := p.provedDead(ctx, c)
	if err == nil {
		err = p.do(ctx, c)
	}
	if errors.Is(err, ErrUncertain) && r.Epoch > 0 {
		p.unsure(r.Epoch, &LostError{})
	}
	if err != nil {
		return Reclaimed{}, wrap("reclaim", err)
	}
	var answer Reclaimed
	if c.last != nil {
		state := c.last.state(p.name)
		answer.Last = &state
		p.finish([]*LeaseRow{c.last}) // also if an earlier try has ended it
	}
	return answer, nil
}

// provedDead asks for the owner before the step: no foreign code runs inside one. The step takes the answer for exactly the holder that
// was asked for.
func (p *Pool) provedDead(ctx context.Context, c *reclaim) error {
	if c.Reason != ReasonDeadOwner {
		return nil
	}
	seen := &look{slots: []int{c.Slot}}
	if err := p.look(ctx, seen); err != nil {
		return err
	}
	if len(seen.owners) == 0 || seen.seen[0].Lease == nil || seen.seen[0].Epoch != c.Epoch {
		return nil // the step finds the first answer, or says what is there now
	}
	o := seen.owners[0]
	if p.judge(ctx, o.holder, o.owner) == VerdictDead {
		c.dead = &o.holder
	}
	return nil
}

// probeOwners ends at most so many leases whose owners are proved gone, of those that this system can judge: it asks for at most
// maxOwners a call, going on where the last one stopped (R12a).
func (p *Pool) probeOwners(ctx context.Context, most int) (gone int) {
	p.mu.Lock()
	q, ok := p.owned(p.probedTo)
	p.mu.Unlock()
	if !ok {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, ownerDeadline)
	defer cancel()
	rows, err := p.store.Page(ctx, q)
	if err == nil && q.After > 0 && len(rows.Leases) == 0 {
		q.After = 0
		rows, err = p.store.Page(ctx, q)
	}
	if err != nil || rows.Pool == nil {
		return 0
	}
	last, all := int64(0), !rows.More
	for _, l := range rows.Leases {
		if ctx.Err() != nil || gone == most {
			all = false
			break
		}
		last = int64(l.Epoch)
		if _, ended := p.probeOwner(ctx, l); ended {
			gone++
		}
	}
	if all {
		last = 0
	}
	p.mu.Lock()
	p.probedTo = last
	p.mu.Unlock()
	return gone
}

// probeOwner asks for the owner of a live lease, and ends the lease if the owner is proved gone.
func (p *Pool) probeOwner(ctx context.Context, l *LeaseRow) (v Verdict, ended bool) {
	if l.Holder.Incarnation == p.holder.Incarnation {
		return VerdictLive, false // it is this process that asks
	}
	v = p.judge(ctx, l.Holder, l.Params.Owner)
	if v != VerdictDead || l.Status != LeaseLive {
		return v, false
	}
	holder := l.Holder
	c := &reclaim{Reclaim: Reclaim{Slot: l.Slots[0], Epoch: l.Epoch, Fingerprint: l.Evidence(p.name), Reason: ReasonDeadOwner}, dead: &holder}
	return v, p.do(ctx, c) == nil
}

// probeHolder is probeOwner for the lease of one epoch.
func (p *Pool) probeHolder(ctx context.Context, epoch uint64) (v Verdict, ended bool) {
	q, ok := p.owned(int64(epoch) - 1)
	if !ok || epoch == 0 {
		return VerdictUnknown, false
	}
	ctx, cancel := context.WithTimeout(ctx, ownerDeadline)
	defer cancel()
	q.Max = 1
	rows, err := p.store.Page(ctx, q)
	if err != nil || len(rows.Leases) == 0 || rows.Leases[0].Epoch != epoch {
		return VerdictUnknown, false
	}
	return p.probeOwner(ctx, rows.Leases[0])
}

// owned asks for the leases whose owners this system can judge, and tells whether there can be any.
func (p *Pool) owned(after int64) (Query, bool) {
	q := Query{Pool: p.name, Kind: QueryOwned, After: after, Boot: p.holder.Boot, Namespace: p.holder.Namespace, Max: maxOwners}
	if p.hostGiven {
		q.Host = p.holder.Host
	}
	return q, p.holder.Boot != ""
}

// Swept is the answer to a Sweep.
type Swept struct {
	Reclaimed   int // leases ended, by time or because their owner is gone
	Thawed      int // slots that are cool again
	Purged      int // ended leases that were forgotten
	Quarantined int // rows met that can't be read: see Probes and Check
}

// Sweep ends at most limit leases whose time is over or whose owner is proved gone, and forgets those that ended long ago. limit is 1
// to 10,000. Nobody needs to call it for the pool to be right: every Acquire does as much as it needs. Where there is
// nothing to do it writes nothing.
func (p *Pool) Sweep(ctx context.Context, limit int) (Swept, error) {
	if limit < 1 || limit > maxSweep {
		return Swept{}, wrap("sweep", invalid("limit", "%d, want 1 to %d", limit, maxSweep))
	}
	var s Swept
	raws := map[string]bool{}
	for more := true; more; {
		c := &sweep{max: limit - s.Reclaimed}
		if err := p.do(ctx, c); err != nil {
			return s, wrap("sweep", err)
		}
		s.Reclaimed += c.reclaimed
		s.Thawed += c.thawed
		s.Purged += c.purged
		for _, r := range c.raws {
			raws[r.Table+r.Key] = true
		}
		more = c.more && s.Reclaimed < limit
	}
	if s.Reclaimed < limit {
		s.Reclaimed += p.probeOwners(ctx, limit-s.Reclaimed)
	}
	s.Quarantined = len(raws)
	return s, nil
}

// WaitDrained waits until nothing of a draining pool is in use. Past the deadline of the drain it is a [DrainError] that lists the
// leases that are left; nothing is killed.
func (p *Pool) WaitDrained(ctx context.Context) error {
	for poll := firstPoll; ; poll = min(poll+poll/2, lastPoll) {
		if _, err := p.Sweep(ctx, maxSweep); err != nil {
			return err
		}
		c := &look{}
		if err := p.look(ctx, c); err != nil {
			return wrap("wait drained", err)
		}
		switch {
		case c.state.Status == PoolDrained:
			return nil
		case c.state.Status != PoolDraining:
			return wrap("wait drained", invalid("pool", "it is %v", c.state.Status))
		case !c.state.DrainDeadline.IsZero() && c.now > c.state.DrainDeadline.UnixMicro():
			left, err := p.left(ctx)
			return wrap("wait drained", errors.Join(err, &DrainError{Left: left}))
		}
		timer := time.NewTimer(p.spread(poll))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return wrap("wait drained", ctx.Err())
		}
	}
}

// left lists the live leases.
func (p *Pool) left(ctx context.Context) ([]LeaseState, error) {
	var list []LeaseState
	for l, err := range p.leasesBy(ctx, QueryLive) {
		if err != nil {
			return list, err
		}
		list = append(list, l)
	}
	return list, nil
}
