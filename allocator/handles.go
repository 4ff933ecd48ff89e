package allocator

// newLease makes the handle of a lease that lives for left from an instant before the store's now.
func (p *Pool) newLease(row *LeaseRow, slots []heldSlot, expires, left, most int64, sent instant) *Lease {
	l := &Lease{pool: p, row: row, latest: row, sent: sent, left: micros(left) - row.margin(), expires: expires, most: most, seq: row.RenewSeq}
	l.slots = append(l.first[:0], slots...)
	return l
}

// register returns the process's one handle for a lease: this one, or the one that it has already. Calls that wait for the attempt get
// it, too: else the last of them would give the lease back when it leaves. The flight is that of the step which made it.
func (p *Pool) register(l *Lease, existing bool, f flight) *Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	l = p.one(l, existing, f)
	l.taken = true
	if w := p.waiters[l.row.Attempt]; p.own(l.row) && w != nil && w.leaving == nil && !w.decided() && l.open() && w.params.mismatch(&l.row.Params) == nil {
		w.lease = l
		close(w.wake)
	}
	return l
}

// own tells whether a lease is of this incarnation: Renew makes handles of leases of others, too.
func (p *Pool) own(l *LeaseRow) bool { return l.Holder.Incarnation == p.holder.Incarnation }

// one is register without its news. p.mu is held.
func (p *Pool) one(l *Lease, existing bool, f flight) *Lease {
	attempt := l.row.Attempt
	old := p.leases[attempt]
	if old == l && l.open() {
		return l
	}
	if old != nil && old != l && old.row.ID == l.row.ID && old.row.Epoch == l.row.Epoch && old.open() {
		old.mu.Lock()
		old.existing = old.existing || existing
		if l.seq >= old.seq {
			old.latest, old.most = l.latest, l.most
		}
		old.mu.Unlock()
		return old
	}
	if p.endedSince(f, l.row) || old != nil && old.row.Epoch > l.row.Epoch { // while its handle was made
		l.end(&LostError{})
		return l
	}
	if old != nil && old != l { // an attempt has one lease
		old.end(&LostError{CurrentEpoch: l.row.Epoch})
	}
	l.mu.Lock()
	l.existing = l.existing || existing
	l.mu.Unlock()
	p.leases[attempt] = l
	if len(p.leases) > p.tidyAt {
		for a, old := range p.leases {
			if old.forgotten() {
				delete(p.leases, a)
			}
		}
		p.leases[attempt] = l
		p.tidyAt = 2*len(p.leases) + 64
	}
	return l
}

// endedSince tells whether a lease has ended, or may have, since a step began. p.mu is held.
func (p *Pool) endedSince(f flight, l *LeaseRow) bool {
	if p.over.has(f, endedKey{epoch: l.Epoch}, 0) {
		return true
	}
	return p.own(l) && (p.over.has(f, endedKey{attempt: l.Attempt}, l.Epoch) || p.over.has(f, endedKey{}, 0))
}

// forgotten tells that the lease was over long ago and nobody cares: twice its time has passed since it was last renewed.
func (l *Lease) forgotten() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended || l.pool.since(l.sent) > 2*(l.left+l.row.margin())
}

// finish closes the handles of leases that ended, and remembers them for calls that are about to make one.
func (p *Pool) finish(over []*LeaseRow) {
	for _, l := range over {
		p.mu.Lock()
		h := p.leases[l.Attempt]
		p.over.add(endedKey{epoch: l.Epoch}, 0)
		p.mu.Unlock()
		if h != nil && h.row.Epoch == l.Epoch {
			h.finish(l.cause())
		}
	}
}

// handle returns the handle of a lease, if this process has one.
func (p *Pool) handle(is func(*LeaseRow) bool) *Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.leases {
		if is(l.row) {
			return l
		}
	}
	return nil
}

// unsure closes the handle of a lease after a call that was to end it and whose answer is lost: the slot may be another's by now.
func (p *Pool) unsure(epoch uint64, cause error) {
	p.mu.Lock()
	p.over.add(endedKey{epoch: epoch}, 0)
	p.mu.Unlock()
	if l := p.handle(func(l *LeaseRow) bool { return l.Epoch == epoch }); l != nil {
		l.finish(cause)
	}
}

// finishThe closes the handle of a Ref.
func (p *Pool) finishThe(ref Ref, cause error) {
	if l := p.handle(func(l *LeaseRow) bool { return l.Epoch == ref.Epoch && l.ID == ref.ID }); l != nil {
		l.finish(cause)
	}
}

// cause is what a handle says of the end of its lease.
func (l *LeaseRow) cause() error {
	if l.End.Reason == ReasonReleased {
		return nil
	}
	return &LostError{Reason: l.End.Reason}
}

// expect begins a step that may make a handle; it ends with settled.
func (p *Pool) expect() flight {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over.expect()
}

func (p *Pool) settled(f flight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over.settled(f)
}

// ended remembers leases that end while steps are on their way that may make a handle of them: until all of these are settled. Steps
// are counted by generations, of which there are two: while those of the old one are on their way, new ones belong to the other.
type ended struct {
	clock uint64 // counts steps, and ends
	now   int    // the generation of new steps
	steps [2]int
	over  [2]map[endedKey]endedAt
}

// flight is a step on its way, with the time at which it began.
type flight struct {
	generation int
	began      uint64
}

// endedKey is a lease by its epoch; or any lease of an attempt, or of all, if nobody knows whether one has ended.
type endedKey struct {
	epoch   uint64
	attempt string
}

// endedAt says when it was, and of an attempt which lease was not meant.
type endedAt struct{ when, keep uint64 }

func (e *ended) expect() flight {
	e.steps[e.now]++
	return e.latest()
}

// latest is a step that begins now.
func (e *ended) latest() flight {
	e.clock++
	return flight{e.now, e.clock}
}

func (e *ended) settled(f flight) {
	e.steps[f.generation]--
	e.turn()
}

// turn begins a new generation, if the old one is settled and there is something to forget.
func (e *ended) turn() {
	old := 1 - e.now
	if e.steps[old] > 0 {
		return
	}
	clear(e.over[old])
	if len(e.over[e.now]) > 0 {
		e.now = old
	}
}

// add remembers what ended.
func (e *ended) add(key endedKey, keep uint64) {
	if e.steps[0]+e.steps[1] == 0 {
		return
	}
	if e.over[e.now] == nil {
		e.over[e.now] = map[endedKey]endedAt{}
	}
	if old, ok := e.over[e.now][key]; ok && old.keep != keep {
		keep = 0 // both of them
	}
	e.clock++
	e.over[e.now][key] = endedAt{e.clock, keep}
	e.turn()
}

// has tells whether something ended since a step began; keep is the epoch of the lease that is asked for, if the key is an attempt.
func (e *ended) has(f flight, key endedKey, keep uint64) bool {
	for _, over := range e.over {
		if at, ok := over[key]; ok && at.when > f.began && (keep == 0 || at.keep != keep) {
			return true
		}
	}
	return false
}

// finish closes Done, once.
func (l *Lease) finish(cause error) { l.finishAs(cause) }

// finishAs is finish that tells whether it was this call that did it.
func (l *Lease) finishAs(cause error) (first bool) {
	if !l.end(cause) {
		return false
	}
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leases[l.row.Attempt] == l {
		delete(p.leases, l.row.Attempt)
	}
	return true
}

// end closes Done, and tells whether it was this call that did it.
func (l *Lease) end(cause error) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.ended, l.err = true, cause
	if l.done != nil {
		close(l.done)
	}
	return true
}
