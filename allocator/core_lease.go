package allocator

import (
	"cmp"
	"fmt"
	"slices"
)

// call is what every command has.
type call struct {
	err    error
	events []Event // of its batch, if its caller leads it
}

func (k *call) base() *call { return k }
func (k *call) reset()      { k.err, k.events = nil, k.events[:0] }

// acquire asks for a lease, or for a place in the queue.
type acquire struct {
	call
	attempt string
	params  Params
	holder  *Holder
	wait    bool
	waiter  *waiter // whose call it is, nil if it does not wait
	ticket  int64   // that the waiter has; 0: none yet
	unsure  bool    // the last answer to it was lost

	lease    *LeaseRow  // the answer
	slots    []heldSlot // of it
	leftUS   int64      // from the step to its end
	mostUS   int64      // beyond which nothing prolongs it
	existing bool
	claimed  bool       // it was an offer until now
	queued   *TicketRow // or this
	again    bool       // or neither: lapsed leases are left, so that it is worth to ask again
}

func (c *acquire) need(n *Need) {
	n.Timely = true
	n.Attempts = append(n.Attempts, c.attempt)
	n.Groups = append(n.Groups, c.params.Group)
	n.Due = max(n.Due, maxLapses+1)
	n.Free += c.params.Units
	n.Heads = max(n.Heads, 1)
}

func (c *acquire) run(s *step) error {
	c.lease, c.slots, c.existing, c.claimed, c.queued, c.again = nil, c.slots[:0], false, false, nil, false
	err := c.judge(s)
	if err == nil && c.lease != nil {
		c.slots, err = s.appendSlots(c.slots, c.lease)
		c.leftUS, c.mostUS = s.left(c.lease), s.set.Pool().maxUntil(c.lease)
	}
	return err
}

// heldSlot is what a handle keeps of a slot.
type heldSlot struct {
	index int
	attrs []Label
}

// appendSlots adds a lease's slots.
func (s *step) appendSlots(list []heldSlot, l *LeaseRow) ([]heldSlot, error) {
	for _, i := range l.Slots {
		r := s.set.Slot(i)
		if r == nil && !s.knows(i) {
			return list, s.more(func(n *Need) { n.Slots = append(n.Slots, l.Slots...) })
		}
		h := heldSlot{index: i}
		if r != nil { // else its row can't be read, which takes the slot from nobody
			h.attrs = r.Attrs
		}
		list = append(list, h)
	}
	return list, nil
}

// left is how long a lease is its holder's, if nobody renews it.
func (s *step) left(l *LeaseRow) int64 {
	p := s.set.Pool()
	end := p.expires(l)
	if s.jumping() {
		end = max(end, p.JumpUS)
	}
	return end - s.now
}

func (c *acquire) judge(s *step) error {
	// What is wrong writes nothing, not even a sweep.
	if l := s.set.live(c.attempt); (l == nil || s.overdue(l) != 0) && s.set.waiting(c.attempt) == nil {
		if err := c.within(s); err != nil {
			return err
		}
	}
	if err := s.lapse(maxLapses); err != nil {
		return err
	}
	if l := s.set.live(c.attempt); l != nil {
		why := s.overdue(l)
		if why == 0 {
			return c.replay(s, l)
		}
		// R2c: lapsed, but more were due than the step may end.
		if err := s.end(l, s.lapseOf(l)); err != nil {
			return err
		}
		if err := s.handOut(); err != nil {
			return err
		}
	}
	if err := s.damaged(c.attempt); err != nil {
		return err
	}
	p := s.set.Pool()
	switch {
	case p.Status != PoolOpen:
		return ErrDraining
	case p.Blocked:
		return errBlocked
	}
	if t := s.set.waiting(c.attempt); t != nil {
		return c.rejoin(s, t)
	}
	if c.ticket > 0 {
		return ErrTicketLost
	}
	if err := c.within(s); err != nil { // of an attempt whose lease is over only now
		return err
	}
	return c.enter(s)
}

// damaged says that an attempt may have a lease or a ticket that can't be read: nobody gets another one for it.
func (s *step) damaged(attempt string) error {
	for _, r := range s.set.raws {
		for _, c := range r.Columns {
			if c.Name == "attempt" && string(c.Value) == attempt {
				return r.damage()
			}
		}
	}
	return nil
}

func (r *Raw) damage() error { return &DamageError{r.Table, r.Key, r.Field} }

var errBlocked = fmt.Errorf("%w: nothing is granted until Check has repaired the counts", ErrCorrupt)

// within checks what only the pool knows of a request.
func (c *acquire) within(s *step) error {
	p := s.set.Pool()
	most := p.Policy.MaxLease.Microseconds()
	switch {
	case p.Status != PoolOpen:
		return ErrDraining
	case c.params.Units > p.Capacity && p.Capacity > 0:
		return invalid("Units", "%d, the capacity is %d", c.params.Units, p.Capacity)
	case c.params.MaxUS > most:
		return invalid("MaxLease", "%v, the pool's is %v", micros(c.params.MaxUS), p.Policy.MaxLease)
	case cmp.Or(c.params.TTLUS, p.Policy.TTL.Microseconds()) > cmp.Or(c.params.MaxUS, most):
		return invalid("TTL", "above MaxLease")
	}
	g := s.groupOf(c.params.Group)
	if !p.Policy.OpenGroups && !g.Listed {
		return invalid("Group", "%v is not one of the pool's", c.params.Group)
	}
	return g.within(c.params.Units)
}

// within tells whether so many units can ever fit. A maximum of 0 closes the group, as a capacity of 0 closes the pool.
func (g *GroupRow) within(units int) error {
	if g.Max > 0 && units > g.Max {
		return invalid("Units", "%d, the group's maximum is %d", units, g.Max)
	}
	return nil
}

// replay answers with the lease that the attempt has (R2).
func (c *acquire) replay(s *step, l *LeaseRow) error {
	if err := c.params.mismatch(&l.Params); err != nil {
		return err
	}
	if l.Holder.Incarnation != c.holder.Incarnation {
		return &HeldError{Epoch: l.Epoch}
	}
	if l.Status == LeaseOffered {
		l = s.lease(l.Epoch)
		l.Status = LeaseLive
		s.start(l)
		s.pool().Offered--
		c.claimed = true
	}
	c.lease, c.existing = l, true
	return nil
}

// mismatch names what differs from an earlier request of the attempt (R2a).
func (q *Params) mismatch(p *Params) error {
	var fields []string
	for _, f := range []struct {
		name string
		same bool
	}{
		{"Group", q.Group == p.Group},
		{"Units", q.Units == p.Units},
		{"TTL", q.TTLUS == p.TTLUS},
		{"MaxLease", q.MaxUS == p.MaxUS},
		{"Owner", q.Owner == p.Owner},
		{"Labels", slices.Equal(q.Labels, p.Labels)},
	} {
		if !f.same {
			fields = append(fields, f.name)
		}
	}
	if fields == nil {
		return nil
	}
	return &MismatchError{Fields: fields}
}

// rejoin is for an attempt that waits already.
func (c *acquire) rejoin(s *step, t *TicketRow) error {
	if err := c.params.mismatch(&t.Params); err != nil {
		return err
	}
	switch {
	case t.Holder.Incarnation != c.holder.Incarnation:
		return &HeldError{}
	case c.ticket > 0 && t.Seq != c.ticket:
		return ErrTicketLost // this is the place of another call
	case !c.wait:
		return s.full(s.groupOf(t.Params.Group), ShortQueue)
	}
	if t.DeadlineUS-s.now < ticketLowUS {
		t = s.set.tickets.edit(t.Seq)
		t.DeadlineUS = s.now + ticketUS
	}
	c.queued = t
	return nil
}

// enter grants, queues or refuses a new attempt.
func (c *acquire) enter(s *step) error {
	g := s.groupOf(c.params.Group)
	if g.Waiting > 0 { // R6
		return c.line(s, g, ShortQueue)
	}
	slots, short, err := s.fits(&g, c.params.Units)
	switch {
	case err != nil:
		return err
	case short == 0:
		c.lease, err = s.grant(c.attempt, &c.params, c.holder, slots, LeaseLive)
		return err
	case s.moreDue && s.swept > 0:
		c.again = true
		return nil
	}
	return c.line(s, g, short)
}

// line takes a ticket, or refuses.
func (c *acquire) line(s *step, g GroupRow, short Shortage) error {
	p := s.set.Pool()
	switch {
	case !c.wait:
		return s.full(g, short)
	case p.Capacity == 0: // closed: c.params.Units never fit
		return s.full(g, ShortCapacity)
	case g.Max == 0:
		return s.full(g, ShortGroup)
	case p.Waiting >= maxTickets:
		return s.full(g, ShortQueue)
	case p.TicketSeq >= maxCounter:
		return &CorruptError{What: "the last ticket", Stored: maxCounter, Actual: maxCounter}
	}
	row, err := s.group(g.Key)
	if err != nil {
		return err
	}
	pool := s.pool()
	pool.TicketSeq++
	pool.Waiting++
	row.Waiting++
	c.queued = &TicketRow{Seq: pool.TicketSeq, Attempt: c.attempt, Params: c.params, Holder: *c.holder, DeadlineUS: s.now + ticketUS}
	s.set.tickets.insert(pool.TicketSeq, c.queued, nil)
	s.room = s.room || short == ShortQueue // it may fit, if nobody that can be read is before it
	return nil
}

// full is a refusal for lack of room (R1a).
func (s *step) full(g GroupRow, short Shortage) error {
	switch {
	case s.need.All:
	case s.nextMoved(): // what was loaded as the next change is no more, or later
		return s.more(func(n *Need) { n.All = true })
	case !s.need.Next:
		return s.more(func(n *Need) { n.Next = true })
	}
	p := s.set.Pool()
	next := s.nextChange()
	if next == 0 && p.Used > 0 && !s.need.All { // what was loaded was given back
		return s.more(func(n *Need) { n.All = true })
	}
	return &FullError{
		Reason: short, Used: p.Used, Cooling: p.Cooling, Capacity: p.Capacity, Ahead: g.Waiting, NextChange: timeOf(next),
	}
}

// nextMoved tells whether the step has changed what was to end first.
func (s *step) nextMoved() bool {
	var lease *entry[uint64, LeaseRow]
	for i := range s.set.leases.list {
		e := &s.set.leases.list[i]
		if e.old == nil || e.old.Status == LeaseEnded {
			continue
		}
		if lease == nil || e.old.ExpiresUS < lease.old.ExpiresUS || e.old.ExpiresUS == lease.old.ExpiresUS && e.key < lease.key {
			lease = e
		}
	}
	return lease != nil && lease.fresh || s.thawed > 0
}

// nextChange is when something ends by time alone, or 0.
func (s *step) nextChange() int64 {
	p := s.set.Pool()
	next := int64(0)
	sooner := func(at int64) {
		if next == 0 || at < next {
			next = at
		}
	}
	for i := range s.set.leases.list {
		switch l := s.set.leases.list[i].row; {
		case l == nil || l.Status == LeaseEnded:
		case l.Status == LeaseOffered: // a jump of the clock does not keep it
			sooner(l.ExpiresUS)
		default:
			sooner(max(p.expires(l), p.JumpUS))
		}
	}
	for i := range s.set.slots.list {
		if r := s.set.slots.list[i].row; r != nil && r.Status == SlotCooling {
			sooner(r.CoolUS)
		}
	}
	return next
}

// cancel gives back what an attempt of this incarnation has: its lease, or its place in the queue.
type cancel struct {
	call
	attempt string
	holder  Incarnation
	keep    uint64 // a lease with this epoch stays

	lease  *LeaseRow
	ticket bool
	upTo   uint64 // leases with no higher epoch were judged
}

func (c *cancel) need(n *Need) {
	n.Timely = true
	n.Attempts = append(n.Attempts, c.attempt)
	n.Heads = max(n.Heads, 1)
}

func (c *cancel) run(s *step) error {
	c.lease, c.ticket, c.upTo = nil, false, s.set.Pool().EpochSeq
	if l := s.set.live(c.attempt); l != nil && l.Holder.Incarnation == c.holder && l.Epoch != c.keep {
		if err := s.end(l, EndRow{Reason: ReasonReleased, AtUS: s.now}); err != nil {
			return err
		}
		c.lease = s.set.Lease(l.Epoch)
	}
	if t := s.set.waiting(c.attempt); t != nil && t.Holder.Incarnation == c.holder {
		s.drop(t, ErrTicketLost)
		c.ticket = true
	}
	if c.lease == nil && !c.ticket {
		return s.damaged(c.attempt)
	}
	return nil
}

// leave gives back all that this incarnation has (R13).
type leave struct {
	call
	holder Incarnation
}

func (c *leave) need(n *Need) {
	n.Timely, n.Incarnation = true, c.holder
	n.Heads = max(n.Heads, 1)
}

func (c *leave) run(s *step) error {
	var tickets []*TicketRow
	for i := range s.set.tickets.list {
		if t := s.set.tickets.list[i].row; t != nil && t.Holder.Incarnation == c.holder {
			tickets = append(tickets, t)
		}
	}
	for _, t := range tickets {
		s.drop(t, ErrClosed)
	}
	var leases []*LeaseRow
	for i := range s.set.leases.list {
		if l := s.set.leases.list[i].row; l != nil && l.Status != LeaseEnded && l.Holder.Incarnation == c.holder {
			leases = append(leases, l)
		}
	}
	slices.SortFunc(leases, func(a, b *LeaseRow) int { return cmp.Compare(a.Epoch, b.Epoch) })
	for _, l := range leases {
		if err := s.end(l, EndRow{Reason: ReasonReleased, AtUS: s.now}); err != nil {
			return err
		}
	}
	return nil
}

// find returns the lease of a Ref, or how it is not there.
func (s *step) find(r Ref) (*LeaseRow, error) {
	if r.Pool != s.set.Pool().Name {
		return nil, &StaleError{}
	}
	for _, raw := range s.set.raws {
		if raw.Table == RawLease && raw.Epoch == r.Epoch {
			return nil, raw.damage()
		}
	}
	l := s.set.Lease(r.Epoch)
	if l == nil || l.ID != r.ID || !r.Identity.IsZero() && l.Identity(r.Pool) != r.Identity {
		return nil, &StaleError{}
	}
	return l, nil
}

// current is the epoch of a lease's first slot now.
func (s *step) current(l *LeaseRow) uint64 {
	if r := s.set.Slot(l.Slots[0]); r != nil {
		return r.Epoch
	}
	return 0
}

// superseded tells whether a slot of a lease was granted again.
func (s *step) superseded(l *LeaseRow) bool {
	return slices.ContainsFunc(l.Slots, func(i int) bool {
		r := s.set.Slot(i)
		return r != nil && r.Epoch > l.Epoch
	})
}

// renew prolongs a lease (R7).
type renew struct {
	call
	ref Ref
	seq int64

	lease   *LeaseRow // the answer
	slots   []heldSlot
	renewed RenewRow
	leftUS  int64 // from this step on: less than what a stored answer says (R24)
	mostUS  int64
}

func (c *renew) need(n *Need) {
	n.Timely = true
	n.Epochs = append(n.Epochs, c.ref.Epoch)
	n.Heads = max(n.Heads, 1)
}

func (c *renew) run(s *step) error {
	c.lease = nil
	l, err := s.find(c.ref)
	switch {
	case err != nil:
		if stale := (*StaleError)(nil); asStale(err, &stale) { // R7c
			return &LostError{CurrentEpoch: stale.Epoch}
		}
		return err
	case l.Status == LeaseEnded:
		return &LostError{Reason: l.End.Reason, CurrentEpoch: s.current(l)}
	case l.Status != LeaseLive:
		return &StaleError{Epoch: l.Epoch}
	case s.current(l) > l.Epoch:
		return &LostError{CurrentEpoch: s.current(l)}
	case c.seq == l.RenewSeq: // R7a
		return c.answer(s, l)
	case c.seq != l.RenewSeq+1:
		return &StaleError{Epoch: l.Epoch, Seq: l.RenewSeq}
	}
	p := s.set.Pool()
	most := p.maxUntil(l)
	switch {
	case p.Status != PoolOpen && p.DrainUS > 0 && s.now > p.DrainUS: // R19
		return ErrDraining
	case s.now > most && !s.jumping(): // R7b
		return &LostError{Reason: ReasonMaxLease, CurrentEpoch: s.current(l)}
	}
	old := p.expires(l)
	expires := min(max(old, sum(s.now, l.TTLUS)), most)
	l = s.lease(l.Epoch)
	l.ExpiresUS = expires
	l.RenewSeq++
	l.Renewed = RenewRow{ExpiresUS: expires, LeftUS: s.left(l), Lapsed: s.now > old}
	return c.answer(s, l)
}

func (c *renew) answer(s *step, l *LeaseRow) (err error) {
	c.lease, c.renewed, c.leftUS, c.mostUS = l, l.Renewed, s.left(l), s.set.Pool().maxUntil(l)
	c.slots, err = s.appendSlots(c.slots[:0], l)
	return err
}

func asStale(err error, target **StaleError) bool {
	e, ok := err.(*StaleError) //nolint:errorlint // it is never wrapped here
	*target = e
	return ok
}

// release ends the caller's own lease (R8).
type release struct {
	call
	ref Ref

	last    *LeaseRow
	already bool
}

func (c *release) need(n *Need) {
	n.Timely = true
	n.Epochs = append(n.Epochs, c.ref.Epoch)
	n.Heads = max(n.Heads, 1)
}

func (c *release) run(s *step) error {
	c.last, c.already = nil, false
	l, err := s.find(c.ref)
	switch {
	case err != nil:
		return err
	case l.Status == LeaseEnded && l.End.Reason == ReasonReleased && !s.superseded(l):
		c.last, c.already = l, true
		return nil
	case l.Status != LeaseLive:
		return &StaleError{Epoch: s.current(l)}
	}
	if err := s.end(l, EndRow{Reason: ReasonReleased, AtUS: s.now}); err != nil {
		return err
	}
	c.last = s.set.Lease(l.Epoch)
	return nil
}
