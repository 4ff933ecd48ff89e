package allocator

import (
	"cmp"
	"slices"
)

// Set is the rows of one step. A store fills it with the Add methods, hands it to the step's function, and then writes its
// Changes. Rows that were added are never changed; a changed row is a new one. Not safe for concurrent use.
type Set struct {
	pool    rows[string, PoolRow] // one, by ""
	groups  rows[GroupKey, GroupRow]
	slots   rows[int, SlotRow]
	leases  rows[uint64, LeaseRow]
	tickets rows[int64, TicketRow]
	raws    []*Raw

	attempts   map[string]uint64 // epochs by attempt, of the first attemptsOf leases
	attemptsOf int
}

// Change is one row that a step wrote. Old is nil for a new row, New for one to be deleted. Raw is set where a row that can't be
// read goes: Old is nil then, and its key is the Raw's.
type Change[R any] struct {
	Old, New *R
	Raw      *Raw
}

// Changes is what a step wrote, each row once. Every row but the pool's is found by its key and its old Rev.
type Changes struct {
	Pool    *Change[PoolRow] // nil: nothing was written
	Groups  []Change[GroupRow]
	Slots   []Change[SlotRow]
	Leases  []Change[LeaseRow]
	Tickets []Change[TicketRow]
}

// NewSet returns an empty Set.
func NewSet() *Set { return &Set{} }

// Reset forgets all rows.
func (s *Set) Reset() {
	s.pool.reset()
	s.groups.reset()
	s.slots.reset()
	s.leases.reset()
	s.tickets.reset()
	s.raws = s.raws[:0]
	if s.attemptsOf = 0; len(s.attempts) > 0 {
		clear(s.attempts)
	}
}

// AddPool adds the pool's row.
func (s *Set) AddPool(p *PoolRow) { s.pool.add("", p) }

// AddGroup adds a group. Adding a row again, of any kind, changes nothing.
func (s *Set) AddGroup(g *GroupRow) { s.groups.add(g.Key, g) }

// AddSlot adds a slot.
func (s *Set) AddSlot(r *SlotRow) { s.slots.add(r.Index, r) }

// AddLease adds a lease.
func (s *Set) AddLease(l *LeaseRow) { s.leases.add(l.Epoch, l) }

// AddTicket adds a ticket.
func (s *Set) AddTicket(t *TicketRow) { s.tickets.add(t.Seq, t) }

// AddRaw adds a row that can't be read.
func (s *Set) AddRaw(r *Raw) {
	for _, other := range s.raws {
		if other.Table == r.Table && other.Key == r.Key {
			return
		}
	}
	s.raws = append(s.raws, r)
}

// Pool returns the pool's row, or nil.
func (s *Set) Pool() *PoolRow { return s.pool.get("") }

// Group returns a group as it is now, or nil.
func (s *Set) Group(k GroupKey) *GroupRow { return s.groups.get(k) }

// Slot returns a slot, or nil.
func (s *Set) Slot(i int) *SlotRow { return s.slots.get(i) }

// Lease returns a lease, or nil.
func (s *Set) Lease(epoch uint64) *LeaseRow { return s.leases.get(epoch) }

// Ticket returns a ticket, or nil.
func (s *Set) Ticket(seq int64) *TicketRow { return s.tickets.get(seq) }

// Rows lists what the Set has now, each kind by its key: the suite of allocatortest compares it.
func (s *Set) Rows() Rows {
	return Rows{
		Pool: s.Pool(), Slots: s.slots.sorted(), Leases: s.leases.sorted(), Tickets: s.tickets.sorted(), Groups: s.groups.sorted(),
		Raws: slices.Clone(s.raws),
	}
}

// Changes returns what was changed; it is valid until Reset.
func (s *Set) Changes() Changes {
	c := Changes{
		Groups:  s.groups.changes(),
		Slots:   s.slots.changes(),
		Leases:  s.leases.changes(),
		Tickets: s.tickets.changes(),
	}
	if pool := s.pool.changes(); len(pool) > 0 {
		c.Pool = &pool[0]
	}
	return c
}

// Recycle takes the old rows of the pool, of groups and of slots back that the step has changed, to use them for later changes. Only
// a store that keeps the rows themselves may call it, after it has put the new ones in their places, and only if nobody else
// has the old ones.
func (s *Set) Recycle() {
	s.pool.recycle()
	s.groups.recycle()
	s.slots.recycle()
}

// changed tells whether there are any.
func (s *Set) changed() bool {
	return s.pool.changed+s.groups.changed+s.slots.changed+s.leases.changed+s.tickets.changed > 0
}

// date gives every changed row a revision of its own, in the order of keys: in whatever order a store loads rows, they get the same.
func (s *Set) date(next func() int64) {
	dateRows(&s.groups, func(g *GroupRow) { g.Rev = next() })
	dateRows(&s.slots, func(r *SlotRow) { r.Rev = next() })
	dateRows(&s.leases, func(l *LeaseRow) { l.Rev = next() })
	dateRows(&s.tickets, func(t *TicketRow) { t.Rev = next() })
}

func dateRows[K cmp.Ordered, R any](x *rows[K, R], date func(*R)) {
	if x.changed == 0 {
		return
	}
	list := x.order[:0]
	for i := range x.list {
		if e := &x.list[i]; e.fresh && e.row != nil {
			list = append(list, e)
		}
	}
	if len(list) == 1 {
		date(list[0].row)
		x.order = list[:0]
		return
	}
	slices.SortFunc(list, func(a, b *entry[K, R]) int { return cmp.Compare(a.key, b.key) })
	for _, e := range list {
		date(e.row)
	}
	clear(list)
	x.order = list
}

// live returns the live or offered lease of an attempt, or nil.
func (s *Set) live(attempt string) *LeaseRow {
	list := s.leases.list
	if len(list) > few { // read each row into the map once
		if s.attempts == nil {
			s.attempts = map[string]uint64{}
		}
		for ; s.attemptsOf < len(list); s.attemptsOf++ {
			if l := list[s.attemptsOf].row; l != nil && l.Status != LeaseEnded {
				s.attempts[l.Attempt] = l.Epoch
			}
		}
		l := s.Lease(s.attempts[attempt])
		if l == nil || l.Status == LeaseEnded {
			return nil
		}
		return l
	}
	for i := range list {
		if l := list[i].row; l != nil && l.Status != LeaseEnded && l.Attempt == attempt {
			return l
		}
	}
	return nil
}

// waiting returns the ticket of an attempt, or nil.
func (s *Set) waiting(attempt string) *TicketRow {
	for i := range s.tickets.list {
		if t := s.tickets.list[i].row; t != nil && t.Attempt == attempt {
			return t
		}
	}
	return nil
}
