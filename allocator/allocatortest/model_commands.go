package allocatortest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stint-go/stint/allocator"
)

// ModelGrant is the answer to an Acquire, and to one call of AcquireWait: a lease, or a place in the queue.
type ModelGrant struct {
	Epoch    uint64 // 0: queued
	Existing bool
	Seq      int64 // of the ticket
}

// Create makes the pool, or finds it (R3).
func (m *Model) Create(clock int64, who *ModelProcess, s allocator.Spec) (answer allocator.PoolState, err error) {
	err = m.step(clock, who, func() error {
		if m.Created {
			if !m.same(s) {
				return allocator.ErrConfigMismatch
			}
			answer = m.State()
			return nil
		}
		m.Created, m.Version, m.Capacity, m.Status, m.Policy, m.Groups = true, 1, s.Capacity, allocator.PoolOpen, *s.Policy, slices.Clone(s.Groups)
		for i := range s.Capacity {
			m.Slots = append(m.Slots, modelSlot{Attrs: maps.Clone(s.Attrs[i])})
		}
		answer = m.State()
		return nil
	})[0]
	return answer, err
}

func (m *Model) same(s allocator.Spec) bool {
	if s.Capacity != m.Capacity || *s.Policy != m.Policy || len(s.Groups) != len(m.Groups) {
		return false
	}
	for _, g := range s.Groups {
		if h, ok := m.group(g.Key); !ok || fmt.Sprint(g.Weight, g.Min, mostOf(g)) != fmt.Sprint(h.Weight, h.Min, mostOf(h)) {
			return false
		}
	}
	for i := range m.Capacity {
		if !maps.Equal(m.Slots[i].Attrs, s.Attrs[i]) {
			return false
		}
	}
	return true
}

func mostOf(g allocator.Group) int {
	if g.Max == nil {
		return -1
	}
	return *g.Max
}

// Acquire asks, and once more after an owner pass that ended something (R12a).
func (m *Model) Acquire(clock int64, who *ModelProcess, r allocator.Request) (ModelGrant, error) {
	return m.ask(clock, who, r, false, 0)
}

// Poll is one turn of AcquireWait: had is the ticket that the waiter has had, or 0.
func (m *Model) Poll(clock int64, who *ModelProcess, r allocator.Request, had int64) (ModelGrant, error) {
	return m.ask(clock, who, r, true, had)
}

func (m *Model) ask(clock int64, who *ModelProcess, r allocator.Request, wait bool, had int64) (g ModelGrant, err error) {
	var woken []ModelWoken
	var gone []ModelGone
	for again, probed := true, false; again; {
		err = m.step(clock, who, m.acquire(&g, r, wait, had))[0]
		woken, gone = append(woken, m.Woken...), append(gone, m.Gone...)
		held, isHeld := err.(*allocator.HeldError) //nolint:errorlint // the model wraps nothing
		_, isFull := err.(*allocator.FullError)    //nolint:errorlint // the model wraps nothing
		m.Woken, m.Gone = nil, nil
		if g.Epoch > 0 && !wait && who.Same(r) { // one handle for all
			woken = also(woken, gone, ModelWoken{Attempt: r.Attempt, Epoch: g.Epoch, Existing: g.Existing}, who.Holder.Incarnation)
		}
		switch {
		case probed:
			again = false
		case isHeld:
			held.Verdict, again = m.holderPass(clock, who, held.Epoch)
			probed = !wait
		case isFull && !wait, g.Seq > 0:
			had, probed = max(had, g.Seq), true
			again = m.ownerPass(clock, who, modelSweepMax) > 0
		default:
			again = false
		}
		woken, gone = append(woken, m.Woken...), append(gone, m.Gone...)
	}
	m.Woken, m.Gone = woken, gone
	return g, err
}

// also adds one that was woken by a call that did not wait, unless its ticket has ended before.
func also(woken []ModelWoken, gone []ModelGone, k ModelWoken, me allocator.Incarnation) []ModelWoken {
	if slices.ContainsFunc(gone, func(g ModelGone) bool { return g.Attempt == k.Attempt && g.Holder == me }) {
		return woken
	}
	woken = slices.DeleteFunc(woken, func(o ModelWoken) bool { return o.Attempt == k.Attempt })
	return append(woken, k)
}

// judgeable tells whether a lease is one whose owner a process can judge.
func (w *ModelProcess) judgeable(l *modelLease) bool {
	h := l.Holder
	return l.live() && (h.Boot == w.Holder.Boot && h.Namespace == w.Holder.Namespace || w.HostGiven && h.Host == w.Holder.Host)
}

// ownerPass ends leases whose owners are proved gone, each in a step of its own (R12a).
func (m *Model) ownerPass(clock int64, who *ModelProcess, most int) (ended int) {
	var woken []ModelWoken
	var gone []ModelGone
	last := uint64(0)
	for _, l := range m.toAsk(who) {
		if ended == most {
			who.asked = last
			break
		}
		last = l.Epoch
		if who.judge(&l) != allocator.VerdictDead {
			continue
		}
		err := m.step(clock, who, func() error {
			_, err := m.reclaim(l.Epoch, l.Slots[0], l.evidence(), allocator.ReasonDeadOwner, "", true)
			return err
		})[0]
		woken, gone = append(woken, m.Woken...), append(gone, m.Gone...)
		if err == nil {
			ended++
		}
	}
	m.Woken, m.Gone = woken, gone
	return ended
}

// toAsk lists the leases whose owners a pass asks for: it goes on where the last one has stopped.
func (m *Model) toAsk(who *ModelProcess) (list []modelLease) {
	after := who.asked
	who.asked = 0
	for _, l := range m.Leases {
		if who.judgeable(&l) && l.Epoch > after {
			list = append(list, l)
		}
	}
	if after > 0 && len(list) == 0 {
		return m.toAsk(who)
	}
	return list
}

// holderPass judges the owner of one lease (R2b).
func (m *Model) holderPass(clock int64, who *ModelProcess, epoch uint64) (v allocator.Verdict, ended bool) {
	l := m.byEpoch(epoch)
	if l == nil || !who.judgeable(l) {
		return allocator.VerdictUnknown, false
	}
	v = who.judge(l)
	if v == allocator.VerdictDead {
		ended = m.step(clock, who, func() error {
			_, err := m.reclaim(l.Epoch, l.Slots[0], l.evidence(), allocator.ReasonDeadOwner, "", true)
			return err
		})[0] == nil
	}
	return v, ended
}

// acquire is Acquire in a step, or what AcquireWait does in one.
func (m *Model) acquire(g *ModelGrant, r allocator.Request, wait bool, had int64) func() error {
	p := newModelParams(r)
	return func() (err error) {
		*g = ModelGrant{}
		if !m.Created {
			return allocator.ErrNotFound
		}
		mine := func(l *modelLease) bool { return l.held() && l.Attempt == r.Attempt }
		if l := m.lease(mine); (l == nil || m.over(l) != 0) && m.ticket(r.Attempt) == nil { // bad arguments write nothing (R12)
			switch {
			case m.Status != allocator.PoolOpen:
				return allocator.ErrDraining
			case p.Units > m.Capacity && m.Capacity > 0, !m.allowed(p):
				return allocator.ErrInvalid
			}
		}
		m.sweepFirst()
		if known, err := m.known(g, r.Attempt, p); known || err != nil {
			return err
		}
		if m.Status != allocator.PoolOpen {
			return allocator.ErrDraining
		}
		if t := m.ticket(r.Attempt); t != nil {
			return m.rejoin(g, t, p, wait, had)
		}
		switch {
		case had > 0:
			return allocator.ErrTicketLost
		case p.Units > m.Capacity && m.Capacity > 0, !m.allowed(p):
			return allocator.ErrInvalid
		case len(m.queue(p.Group)) == 0 && m.fits(p):
			g.Epoch = m.grant(r.Attempt, p, m.who.Holder).Epoch
			return nil
		case wait && m.Capacity > 0 && !m.closed(p.Group):
			m.Ticket++
			m.Tickets = append(m.Tickets, modelTicket{Seq: m.Ticket, Attempt: r.Attempt, Params: p, Holder: m.who.Holder, Deadline: m.now + modelQueued})
			g.Seq = m.Ticket
			return nil
		}
		return m.full(p, wait)
	}
}

// known answers where the attempt has a lease (R2, R2a, R2b).
func (m *Model) known(g *ModelGrant, attempt string, p modelParams) (bool, error) {
	l := m.lease(func(l *modelLease) bool { return l.held() && l.Attempt == attempt })
	switch {
	case l == nil:
		return false, nil
	case p.differs(l.Params) != nil:
		return true, &allocator.MismatchError{Fields: p.differs(l.Params)}
	case l.Holder.Incarnation != m.who.Holder.Incarnation:
		return true, &allocator.HeldError{Epoch: l.Epoch}
	case !l.live():
		m.begin(l)
	}
	g.Epoch, g.Existing = l.Epoch, true
	return true, nil
}

// rejoin answers where it has a ticket.
func (m *Model) rejoin(g *ModelGrant, t *modelTicket, p modelParams, wait bool, had int64) error {
	switch {
	case p.differs(t.Params) != nil:
		return &allocator.MismatchError{Fields: p.differs(t.Params)}
	case t.Holder.Incarnation != m.who.Holder.Incarnation:
		return &allocator.HeldError{}
	case had > 0 && t.Seq != had:
		return allocator.ErrTicketLost
	case !wait:
		return m.full(p, wait)
	case t.Deadline-m.now < modelRefresh:
		t.Deadline = m.now + modelQueued
	}
	g.Seq = t.Seq
	return nil
}

// allowed tells whether the pool has such leases, whatever is free.
func (m *Model) allowed(p modelParams) bool {
	most := m.Policy.MaxLease.Microseconds()
	life := cmp.Or(p.Max, most)
	g, listed := m.group(p.Group)
	if most := mostOf(g); most > 0 && p.Units > most {
		return false
	}
	return (listed || m.Policy.OpenGroups) && life <= most && cmp.Or(p.TTL, m.Policy.TTL.Microseconds()) <= life
}

// closed tells whether a group has a maximum of 0.
func (m *Model) closed(group []string) bool {
	g, _ := m.group(group)
	return mostOf(g) == 0
}

// full says what there is too little of (R1a).
func (m *Model) full(p modelParams, wait bool) error {
	cooling := len(m.in(allocator.SlotCooling))
	e := &allocator.FullError{Used: m.used(), Cooling: cooling, Capacity: m.Capacity, Ahead: len(m.queue(p.Group))}
	g, _ := m.group(p.Group)
	switch {
	case wait && m.Capacity > 0:
		e.Reason = allocator.ShortGroup // closed
	case wait:
		e.Reason = allocator.ShortCapacity // closed
	case e.Ahead > 0:
		e.Reason = allocator.ShortQueue
	case g.Max != nil && m.groupUsed(p.Group)+p.Units > *g.Max:
		e.Reason = allocator.ShortGroup
	case m.used() > m.Capacity:
		e.Reason = allocator.ShortExcess
	case m.used()-cooling+p.Units <= m.Capacity:
		e.Reason = allocator.ShortCooling
	default:
		e.Reason = allocator.ShortCapacity
	}
	next := int64(0)
	for _, at := range m.changes() {
		if next == 0 || at < next {
			next = at
		}
	}
	e.NextChange = modelTime(next)
	return e
}

// changes are the times at which something ends if nobody does anything.
func (m *Model) changes() (list []int64) {
	for i := range m.Leases {
		if l := &m.Leases[i]; l.held() {
			at := min(l.Expires, m.ceiling(l))
			if l.live() {
				at = max(at, m.Jump)
			}
			list = append(list, at)
		}
	}
	for _, s := range m.Slots {
		if s.Cool > 0 {
			list = append(list, s.Cool)
		}
	}
	return list
}

// Cancel gives back what the caller's incarnation has for an attempt (R8).
func (m *Model) Cancel(clock int64, who *ModelProcess, attempt string) (lease uint64, ticket bool, err error) {
	err = m.step(clock, who, m.cancel(&lease, &ticket, who, attempt))[0]
	return lease, ticket, err
}

func (m *Model) cancel(lease *uint64, ticket *bool, who *ModelProcess, attempt string) func() error {
	return func() error {
		*lease, *ticket = m.leave(func(a string, h allocator.Holder) bool {
			return a == attempt && h.Incarnation == who.Holder.Incarnation
		})
		return nil
	}
}

// Close gives back all that the caller's incarnation has (R13).
func (m *Model) Close(clock int64, who *ModelProcess) {
	m.step(clock, who, func() error {
		m.leave(func(_ string, h allocator.Holder) bool { return h.Incarnation == who.Holder.Incarnation })
		return nil
	})
}

func (m *Model) leave(is func(string, allocator.Holder) bool) (lease uint64, ticket bool) {
	for i := range m.Leases {
		if l := &m.Leases[i]; l.held() && is(l.Attempt, l.Holder) {
			m.end(l, allocator.ReasonReleased, "", "")
			lease = l.Epoch
		}
	}
	n := len(m.Tickets)
	m.drop(allocator.ErrTicketLost, func(t modelTicket) bool { return is(t.Attempt, t.Holder) })
	ticket = len(m.Tickets) < n
	m.settle()
	m.handOut()
	return lease, ticket
}

// Renew prolongs the lease of a Ref (R7).
func (m *Model) Renew(clock int64, who *ModelProcess, ref ModelRef, seq int64) (r ModelRenewal, err error) {
	err = m.step(clock, who, m.renew(&r, ref, seq))[0]
	return r, err
}

func (m *Model) renew(r *ModelRenewal, ref ModelRef, seq int64) func() error {
	return func() error {
		l := m.named(ref)
		switch {
		case l == nil:
			return &allocator.LostError{}
		case l.Status == allocator.LeaseOffered:
			return allocator.ErrStale
		case !l.live():
			return &allocator.LostError{Reason: l.End.Reason, CurrentEpoch: m.Slots[l.Slots[0]].Epoch}
		case seq == l.Seq:
			*r = l.Renewed
			return nil
		case seq != l.Seq+1:
			return &allocator.StaleError{Epoch: l.Epoch, Seq: l.Seq}
		case m.Status != allocator.PoolOpen && m.DrainAt > 0 && m.now > m.DrainAt:
			return allocator.ErrDraining
		case m.now > m.ceiling(l) && !m.guarded():
			return &allocator.LostError{Reason: allocator.ReasonMaxLease, CurrentEpoch: l.Epoch}
		}
		lapsed := m.now > min(l.Expires, m.ceiling(l))
		ttl := min(l.TTL, m.Policy.MaxLease.Microseconds())
		l.Expires = min(max(l.Expires, m.now+ttl), m.ceiling(l))
		l.Seq++
		l.Renewed = ModelRenewal{Expires: l.Expires, Left: m.left(l), Lapsed: lapsed}
		*r = l.Renewed
		return nil
	}
}

// left is how long the lease is its holder's from now on.
func (m *Model) left(l *modelLease) int64 {
	end := min(l.Expires, m.ceiling(l))
	if m.guarded() {
		end = max(end, m.Jump)
	}
	return end - m.now
}

// Release ends the lease of a Ref (R8).
func (m *Model) Release(clock int64, who *ModelProcess, ref ModelRef) (already bool, err error) {
	err = m.step(clock, who, m.release(&already, ref))[0]
	return already, err
}

func (m *Model) release(already *bool, ref ModelRef) func() error {
	return func() error {
		l := m.named(ref)
		switch {
		case l != nil && l.live():
			m.end(l, allocator.ReasonReleased, "", "")
			m.settle()
			m.handOut()
			return nil
		case l != nil && l.End.Reason == allocator.ReasonReleased && !m.superseded(l):
			*already = true
			return nil
		}
		return allocator.ErrStale
	}
}

// Verify is R17.
func (m *Model) Verify(clock int64, who *ModelProcess, slot int, epoch uint64) (v allocator.Verification, err error) {
	m.look(clock, who, func() {
		if slot >= len(m.Slots) {
			v, err = allocator.Verification{Status: allocator.VerifyStale}, allocator.ErrStale
			return
		}
		v.Current = m.Slots[slot].Epoch
		switch l := m.on(slot); {
		case l == nil, l.Epoch != epoch, !l.live():
			v.Status, err = allocator.VerifyStale, allocator.ErrStale
		case m.over(l) != 0:
			v.Status, err = allocator.VerifyLapsed, allocator.ErrLapsed
		default:
			v.Status = allocator.VerifyCurrent
		}
	})
	return v, err
}

// Probes looks at all slots (R9). The fingerprints are left to Evidence.
func (m *Model) Probes(clock int64, who *ModelProcess) (list []allocator.Evidence) {
	m.look(clock, who, func() {
		for i, s := range m.Slots {
			e := allocator.Evidence{Slot: i, Status: m.status(i), Epoch: s.Epoch, CoolUntil: modelTime(s.Cool)}
			if l := m.on(i); l != nil {
				state := l.show()
				e.Lease = &state
				e.Verdict, e.Reason = m.verdict(l)
			}
			list = append(list, e)
		}
	})
	return list
}

func (m *Model) verdict(l *modelLease) (allocator.Verdict, allocator.Reason) {
	switch why := m.over(l); {
	case why != 0:
		return allocator.VerdictExpired, why
	case l.live() && m.who.judge(l) == allocator.VerdictDead:
		return allocator.VerdictDead, allocator.ReasonDeadOwner
	}
	return allocator.VerdictLive, 0
}

// Reclaim ends a lease that somebody else holds (R10). It returns the epoch of the lease.
func (m *Model) Reclaim(clock int64, who *ModelProcess, r allocator.Reclaim, evidence string) (epoch uint64, err error) {
	dead := false
	if l := m.on(r.Slot); l != nil && r.Reason == allocator.ReasonDeadOwner {
		dead = who.judge(l) == allocator.VerdictDead
	}
	err = m.step(clock, who, func() (err error) {
		epoch, err = m.reclaim(r.Epoch, r.Slot, evidence, r.Reason, r.Note, dead)
		return err
	})[0]
	return epoch, err
}

func (m *Model) reclaim(epoch uint64, slot int, evidence string, why allocator.Reason, note string, dead bool) (uint64, error) {
	if l := m.byEpoch(epoch); l != nil && !l.held() && slices.Contains(l.Slots, slot) {
		if l.Evidence == evidence && l.End.Reason == why && !m.superseded(l) {
			return l.Epoch, nil
		}
		return 0, allocator.ErrStale
	}
	switch l := m.on(slot); {
	case slot >= len(m.Slots), m.Evidence(slot) != evidence:
		return 0, allocator.ErrStale
	case l == nil, !l.live(), !m.proved(l, why, dead):
		return 0, allocator.ErrNotReclaimable
	default:
		m.end(l, why, note, evidence)
		m.settle()
		m.handOut()
		return l.Epoch, nil
	}
}

// proved is R10a.
func (m *Model) proved(l *modelLease, why allocator.Reason, dead bool) bool {
	switch why {
	case allocator.ReasonExpired, allocator.ReasonMaxLease:
		return m.over(l) == why
	case allocator.ReasonDeadOwner:
		return dead
	}
	return why == allocator.ReasonForced
}

// Sweep ends what time or death has ended, and forgets what ended long ago (R12).
func (m *Model) Sweep(clock int64, who *ModelProcess, limit int) (s allocator.Swept) {
	var woken []ModelWoken
	var gone []ModelGone
	for more := true; more; {
		cooled := m.cooled(clock)
		m.step(clock, who, func() error {
			m.swept = true
			n := m.sweep(limit - s.Reclaimed)
			s.Reclaimed += n
			more = n > 0 && s.Reclaimed < limit
			s.Purged += m.purge()
			return nil
		})
		s.Thawed += cooled
		woken, gone = append(woken, m.Woken...), append(gone, m.Gone...)
	}
	s.Reclaimed += m.ownerPass(clock, who, min(modelSweepMax, limit-s.Reclaimed))
	m.Woken, m.Gone = append(woken, m.Woken...), append(gone, m.Gone...)
	return s
}

// cooled counts the slots that the next step finds cool.
func (m *Model) cooled(clock int64) (n int) {
	for _, s := range m.Slots {
		if s.Cool > 0 && max(clock, m.Seen) > s.Cool {
			n++
		}
	}
	return n
}

func (m *Model) purge() int {
	n := len(m.Leases)
	m.Leases = slices.DeleteFunc(slices.Clone(m.Leases), func(l modelLease) bool {
		return !l.held() && l.End.At.UnixMicro() < m.now-m.Policy.Keep.Microseconds()
	})
	return n - len(m.Leases)
}

// admin is R20.
func (m *Model) admin(clock int64, who *ModelProcess, a allocator.Admin, content string, change func() error) (s allocator.PoolState, err error) {
	content = fmt.Sprint(a.Version, " ", content)
	err = m.step(clock, who, func() error {
		switch {
		case !m.Created:
			return allocator.ErrNotFound
		case m.Admin.ID == a.ID && m.Admin.Content != content:
			return &allocator.MismatchError{Fields: []string{"ID"}}
		case m.Admin.ID == a.ID:
			s = m.Admin.Answer
			return nil
		case m.Version != a.Version:
			return &allocator.StaleError{Version: m.Version}
		}
		if err := change(); err != nil {
			return err
		}
		m.Version++
		m.settle()
		m.handOut()
		s = m.State()
		m.Admin = modelAdmin{ID: a.ID, Content: content, Answer: s}
		return nil
	})[0]
	return s, err
}

// Resize is R18.
func (m *Model) Resize(clock int64, who *ModelProcess, a allocator.Admin, n int) (allocator.PoolState, error) {
	return m.admin(clock, who, a, fmt.Sprint("resize ", n), func() error {
		for i := range m.Slots {
			if m.status(i) == allocator.SlotRetired && i < n {
				m.Slots[i].Epoch = m.Epoch
			}
		}
		for len(m.Slots) < n {
			m.Slots = append(m.Slots, modelSlot{Epoch: m.Epoch})
		}
		m.Capacity = n
		m.drop(allocator.ErrInvalid, func(t modelTicket) bool { return t.Params.Units > n })
		return nil
	})
}

// Drain is R19.
func (m *Model) Drain(clock int64, who *ModelProcess, a allocator.Admin, deadline time.Time) (allocator.PoolState, error) {
	at := int64(0)
	if !deadline.IsZero() {
		at = deadline.UnixMicro()
	}
	return m.admin(clock, who, a, fmt.Sprint("drain ", at), func() error {
		m.Status, m.DrainAt = allocator.PoolDraining, at
		m.drop(allocator.ErrDraining, func(modelTicket) bool { return true })
		return nil
	})
}

// Reopen undoes a Drain.
func (m *Model) Reopen(clock int64, who *ModelProcess, a allocator.Admin) (allocator.PoolState, error) {
	return m.admin(clock, who, a, "reopen", func() error {
		m.Status, m.DrainAt = allocator.PoolOpen, 0
		return nil
	})
}

// Configure is R21. The groups fit the capacity.
func (m *Model) Configure(clock int64, who *ModelProcess, a allocator.Admin, c allocator.Configuration) (allocator.PoolState, error) {
	text := fmt.Sprint("configure ", c.Attrs)
	if c.Policy != nil {
		text += fmt.Sprintf(" %+v", *c.Policy)
	}
	if c.Groups != nil {
		for _, g := range *c.Groups {
			text += fmt.Sprint(" ", g.Key, g.Weight, g.Min, mostOf(g))
		}
	}
	return m.admin(clock, who, a, text, func() error {
		for i := range c.Attrs {
			if i >= len(m.Slots) {
				return allocator.ErrInvalid
			}
			if s := m.status(i); s == allocator.SlotLeased || s == allocator.SlotCooling {
				return allocator.ErrBusySlot
			}
		}
		for i, attrs := range c.Attrs {
			m.Slots[i].Attrs = maps.Clone(attrs)
		}
		if c.Policy != nil {
			m.Policy = *c.Policy
		}
		if c.Groups != nil {
			m.Groups = slices.Clone(*c.Groups)
			m.drop(allocator.ErrInvalid, func(t modelTicket) bool {
				g, _ := m.group(t.Params.Group)
				most := mostOf(g)
				return most >= 0 && t.Params.Units > most
			})
		}
		return nil
	})
}

// Rebase dates everything anew from the clock (R14).
func (m *Model) Rebase(clock int64, who *ModelProcess, a allocator.Admin, reason string) (allocator.PoolState, error) {
	return m.admin(clock, who, a, "rebase "+reason, func() error {
		protected := max(m.longest(), m.Jump-m.now)
		if m.now, m.Jump = m.clock, 0; m.lease((*modelLease).held) != nil {
			m.Jump = m.now + protected
		}
		for i := range m.Leases {
			switch l := &m.Leases[i]; l.Status {
			case allocator.LeaseLive:
				m.begin(l)
			case allocator.LeaseOffered:
				m.offer(l)
			}
		}
		for i := range m.Tickets {
			m.Tickets[i].Deadline = m.now + modelQueued
		}
		for i := range m.Slots {
			if m.Slots[i].Cool > 0 {
				m.Slots[i].Cool = m.now + m.Policy.Cooling.Microseconds()
			}
		}
		return nil
	})
}

// Check finds nothing wrong, and changes no more than every step does.
func (m *Model) Check(clock int64, who *ModelProcess) (s allocator.PoolState) {
	m.step(clock, who, func() error {
		s = m.State()
		return nil
	})
	return s
}
