package memory

import (
	"cmp"
	"slices"

	"github.com/stint-go/stint/allocator"
)

func (p *pool) putGroup(c *allocator.Change[allocator.GroupRow]) {
	if c.New == nil {
		delete(p.groups, c.Old.Key)
		return
	}
	p.groups[c.New.Key] = c.New
}

func (p *pool) putSlot(c *allocator.Change[allocator.SlotRow]) {
	if c.Old != nil {
		p.dropSlot(p.slots[c.Old.Index])
	}
	if c.New == nil {
		return
	}
	for len(p.slots) <= c.New.Index {
		s := &slotPlace{}
		s.slot, s.cool.of = s, s
		p.slots = append(p.slots, s)
	}
	s := p.slots[c.New.Index]
	s.row = c.New
	p.history.add(&s.change, s.row.Rev)
	switch s.row.Status {
	case allocator.SlotFree:
		p.free.add(s.row.Index)
	case allocator.SlotCooling:
		p.cooling.add(&s.cool, s.row.CoolUS)
	}
}

func (p *pool) dropSlot(s *slotPlace) {
	switch s.row.Status {
	case allocator.SlotFree:
		p.free.remove(s.row.Index)
	case allocator.SlotCooling:
		p.cooling.remove(&s.cool)
	}
	s.remove()
	s.row = nil
}

func (p *pool) putLease(c *allocator.Change[allocator.LeaseRow]) {
	switch {
	case c.Old == nil:
		p.indexLease(p.leases.add(c.New))
	case c.New == nil:
		l := p.leases.get(c.Old.Epoch)
		p.dropLease(l)
		l.remove()
		p.leases.remove(l)
	default:
		l := p.leases.get(c.Old.Epoch)
		if c.Old.Status == allocator.LeaseLive && c.New.Status == allocator.LeaseLive {
			p.renew(l, c.New)
			return
		}
		p.dropLease(l)
		l.row = c.New
		p.indexLease(l)
	}
}

func (p *pool) indexLease(l *leasePlace) {
	p.history.add(&l.change, l.row.Rev)
	switch l.row.Status {
	case allocator.LeaseLive:
		p.expiring.add(&l.ends, l.row.ExpiresUS)
		p.aging.add(&l.age, l.row.AcquiredUS)
	case allocator.LeaseOffered:
		p.offers.add(&l.ends, l.row.ExpiresUS)
	case allocator.LeaseEnded:
		p.ended.add(&l.ends, l.row.End.AtUS)
		return
	}
	p.held[l.row.Attempt] = l
	p.leases.hold(l)
}

func (p *pool) dropLease(l *leasePlace) {
	switch l.row.Status {
	case allocator.LeaseLive:
		p.expiring.remove(&l.ends)
		p.aging.remove(&l.age)
	case allocator.LeaseOffered:
		p.offers.remove(&l.ends)
	case allocator.LeaseEnded:
		p.ended.remove(&l.ends)
		return
	}
	p.leases.letGo(l)
	if p.held[l.row.Attempt] == l { // else the attempt has a new lease already
		delete(p.held, l.row.Attempt)
	}
}

// renew takes over the row of a lease that stays live.
func (p *pool) renew(l *leasePlace, row *allocator.LeaseRow) {
	l.row = row
	p.history.add(&l.change, row.Rev)
	p.expiring.move(&l.ends, row.ExpiresUS)
	p.aging.move(&l.age, row.AcquiredUS)
}

func (p *pool) putTicket(c *allocator.Change[allocator.TicketRow]) {
	switch {
	case c.Old == nil:
		t := &ticketPlace{row: c.New}
		t.ends.of = t
		p.tickets[c.New.Seq] = t
		p.queued[c.New.Attempt] = t
		p.deadline.add(&t.ends, c.New.DeadlineUS)
		p.enqueue(t)
	case c.New == nil:
		t := p.tickets[c.Old.Seq]
		delete(p.tickets, c.Old.Seq)
		if p.queued[c.Old.Attempt] == t { // else the attempt has a new ticket already
			delete(p.queued, c.Old.Attempt)
		}
		p.deadline.remove(&t.ends)
		p.dequeue(t)
	default:
		t := p.tickets[c.Old.Seq]
		t.row = c.New
		p.deadline.move(&t.ends, c.New.DeadlineUS)
	}
}

// line is the tickets of a group, by seq.
type line struct {
	key     allocator.GroupKey
	tickets []*ticketPlace
	place   int // among the lines
}

func (p *pool) enqueue(t *ticketPlace) {
	key := t.row.Params.Group
	l := p.lines[key]
	if l == nil {
		l = &line{key: key, place: len(p.waiting)}
		p.lines[key] = l
		p.waiting = append(p.waiting, l)
	}
	l.tickets = append(l.tickets, t) // seq only grows
}

func (p *pool) dequeue(t *ticketPlace) {
	l := p.lines[t.row.Params.Group]
	i, _ := slices.BinarySearchFunc(l.tickets, t.row.Seq, func(x *ticketPlace, seq int64) int { return int(x.row.Seq - seq) })
	if i == 0 {
		l.tickets[0] = nil
		l.tickets = l.tickets[1:]
	} else {
		l.tickets = slices.Delete(l.tickets, i, i+1)
	}
	if len(l.tickets) > 0 {
		return
	}
	last := p.waiting[len(p.waiting)-1]
	p.waiting[l.place], last.place = last, l.place
	p.waiting[len(p.waiting)-1] = nil
	p.waiting = p.waiting[:len(p.waiting)-1]
	delete(p.lines, l.key)
}

// leases keeps leases by epoch. Epochs are given out one after the other, so neighbours share a block.
type leases struct {
	blocks map[uint64]*block
	last   *block   // that was looked at
	held   []*block // by number: those with leases that are live or offered
}

const blockSize = 64

type block struct {
	number uint64
	count  int
	held   int                   // live and offered leases
	leases [blockSize]leasePlace // without a row where there is none
}

func (x *leases) block(epoch uint64) *block {
	number := epoch / blockSize
	if x.last == nil || x.last.number != number {
		b := x.blocks[number]
		if b == nil {
			return nil
		}
		x.last = b
	}
	return x.last
}

func (x *leases) get(epoch uint64) *leasePlace {
	if b := x.block(epoch); b != nil && b.leases[epoch%blockSize].row != nil {
		return &b.leases[epoch%blockSize]
	}
	return nil
}

func (x *leases) add(row *allocator.LeaseRow) *leasePlace {
	b := x.block(row.Epoch)
	if b == nil {
		b = &block{number: row.Epoch / blockSize}
		if x.blocks == nil {
			x.blocks = map[uint64]*block{}
		}
		x.blocks[b.number], x.last = b, b
	}
	b.count++
	l := &b.leases[row.Epoch%blockSize]
	l.row, l.lease, l.ends.of, l.age.of = row, l, l, l
	return l
}

func (x *leases) remove(l *leasePlace) {
	b := x.block(l.row.Epoch)
	l.row = nil
	if b.count--; b.count == 0 {
		delete(x.blocks, b.number)
		x.last = nil
	}
}

// hold says that a lease is live or offered, letGo that it is no more.
func (x *leases) hold(l *leasePlace) {
	b := x.block(l.row.Epoch)
	if b.held++; b.held == 1 {
		at, _ := x.heldFrom(b.number)
		x.held = slices.Insert(x.held, at, b) // last, as epochs grow
	}
}

func (x *leases) letGo(l *leasePlace) {
	b := x.block(l.row.Epoch)
	if b.held--; b.held == 0 {
		at, _ := x.heldFrom(b.number)
		x.held = slices.Delete(x.held, at, at+1)
	}
}

func (x *leases) heldFrom(number uint64) (int, bool) {
	return slices.BinarySearchFunc(x.held, number, func(b *block, n uint64) int { return cmp.Compare(b.number, n) })
}

// heldAfter hands out live and offered leases with a higher epoch, in order, until f has enough.
func (x *leases) heldAfter(epoch uint64, f func(*leasePlace) bool) {
	at, _ := x.heldFrom(epoch / blockSize)
	for _, b := range x.held[at:] {
		for i := range b.leases {
			if l := &b.leases[i]; l.row != nil && l.row.Epoch > epoch && l.row.Status != allocator.LeaseEnded && !f(l) {
				return
			}
		}
	}
}

// after hands out leases with a higher epoch, in order, until f has enough.
func (x *leases) after(epoch uint64, f func(*leasePlace) bool) {
	var numbers []uint64
	for n := range x.blocks {
		if n >= epoch/blockSize {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	for _, n := range numbers {
		b := x.blocks[n]
		for i := range b.leases {
			if l := &b.leases[i]; l.row != nil && l.row.Epoch > epoch && !f(l) {
				return
			}
		}
	}
}

// history is the slots and leases in the order of their last change: a ring.
type history struct{ root change }

// change is a row's place in the history.
type change struct {
	rev        int64
	slot       *slotPlace
	lease      *leasePlace
	prev, next *change
}

// add puts a row where its rev belongs. The rows of a step may come in any order.
func (h *history) add(c *change, rev int64) {
	if h.root.next == nil {
		h.root.next, h.root.prev = &h.root, &h.root
	}
	c.remove()
	c.rev = rev
	at := h.root.prev
	for at != &h.root && at.rev > rev {
		at = at.prev
	}
	c.prev, c.next = at, at.next
	c.prev.next, c.next.prev = c, c
}

func (c *change) remove() {
	if c.next != nil {
		c.prev.next, c.next.prev = c.next, c.prev
		c.prev, c.next = nil, nil
	}
}

// after hands out what was changed later, in order, until f has enough.
func (h *history) after(rev int64, f func(*change) bool) {
	if h.root.next == nil {
		return
	}
	c := h.root.prev
	for c != &h.root && c.rev > rev {
		c = c.prev
	}
	for c = c.next; c != &h.root && f(c); c = c.next {
	}
}
