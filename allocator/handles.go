package allocator

// newLease makes the handle of a lease that lives for left from an instant before the store's now.
func (p *Pool) newLease(row *LeaseRow, slots []heldSlot, expires, left, most int64, sent instant) *Lease {
	l := &Lease{pool: p, row: row, latest: row, sent: sent, left: micros(left) - row.margin(), expires: expires, most: most, seq: row.RenewSeq}
	l.slots = append(l.first[:0], slots...)
	return l
}

// register returns the process's one handle for a lease: this one, or the one that it has already. Calls that wait for the attempt get
// it, too: else the last of them would give the lease back when it leaves. The generation is that of the step which made it.
func (p *Pool) register(l *Lease, existing bool, generation int) *Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	l = p.one(l, existing, generation)
	mine := l.row.Holder.Incarnation == p.holder.Incarnation // Renew makes handles of leases of others, too
	if w := p.waiters[l.row.Attempt]; mine && w != nil && w.leaving == nil && !w.decided() && l.open() && w.params.mismatch(&l.row.Params) == nil {
		w.lease, w.taken = l, true
		close(w.wake)
	}
	return l
}

// one is register without its news. p.mu is held.
func (p *Pool) one(l *Lease, existing bool, generation int) *Lease {
	attempt := l.row.Attempt
	old := p.leases[attempt]
	if old != nil && old != l && old.row.ID == l.row.ID && old.row.Epoch == l.row.Epoch && old.open() {
		old.mu.Lock()
		old.existing = old.existing || existing
		if l.seq >= old.seq {
			old.latest, old.most = l.latest, l.most
		}
		old.mu.Unlock()
		return old
	}
	if p.over.has(generation, endedKey{epoch: l.row.Epoch}) || p.over.has(generation, endedKey{attempt: attempt}) || old != nil && old.row.Epoch > l.row.Epoch { // it ended while its handle was made
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
		p.over.add(endedKey{epoch: l.Epoch})
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
func (p *Pool) expect() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over.expect()
}

func (p *Pool) settled(generation int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over.settled(generation)
}

// ended remembers leases that end while steps are on their way that may make a handle of them: until all of these are settled. Steps
// are counted by generations, of which there are two: while those of the old one are on their way, new ones belong to the other.
type ended struct {
	now   int // the generation of new steps
	steps [2]int
	over  [2]map[endedKey]bool
}

// endedKey is a lease by its epoch; or any lease of an attempt, if nobody knows whether one has ended.
type endedKey struct {
	epoch   uint64
	attempt string
}

func (e *ended) expect() int {
	e.steps[e.now]++
	return e.now
}

func (e *ended) settled(generation int) {
	e.steps[generation]--
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
func (e *ended) add(key endedKey) {
	if e.steps[0]+e.steps[1] == 0 {
		return
	}
	if e.over[e.now] == nil {
		e.over[e.now] = map[endedKey]bool{}
	}
	e.over[e.now][key] = true
	e.turn()
}

// has tells whether a lease ended since a step of this generation began, or shortly before.
func (e *ended) has(generation int, key endedKey) bool {
	return e.over[generation][key] || e.over[e.now][key]
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
