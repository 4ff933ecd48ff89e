package allocator

// Set is the rows of one step. A store fills it with the Add methods, hands it to the step's function, and then writes its
// Changes. Rows that were added are never changed; a changed row is a new one. Not safe for concurrent use.
type Set struct {
	pool    rows[struct{}, PoolRow]
	groups  rows[GroupKey, GroupRow]
	slots   rows[int, SlotRow]
	leases  rows[uint64, LeaseRow]
	tickets rows[int64, TicketRow]
	raws    []*Raw
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
}

// AddPool adds the pool's row.
func (s *Set) AddPool(p *PoolRow) { s.pool.add(struct{}{}, p) }

// AddGroup adds a group. Adding a row again, of any kind, changes nothing.
func (s *Set) AddGroup(g *GroupRow) { s.groups.add(g.Key, g) }

// AddSlot adds a slot.
func (s *Set) AddSlot(r *SlotRow) { s.slots.add(r.Index, r) }

// AddLease adds a lease.
func (s *Set) AddLease(l *LeaseRow) { s.leases.add(l.Epoch, l) }

// AddTicket adds a ticket.
func (s *Set) AddTicket(t *TicketRow) { s.tickets.add(t.Seq, t) }

// AddRaw adds a row that can't be read.
func (s *Set) AddRaw(r *Raw) { s.raws = append(s.raws, r) }

// Pool returns the pool's row, or nil.
func (s *Set) Pool() *PoolRow { return s.pool.get(struct{}{}) }

// Group returns a group as it is now, or nil.
func (s *Set) Group(k GroupKey) *GroupRow { return s.groups.get(k) }

// Slot returns a slot, or nil.
func (s *Set) Slot(i int) *SlotRow { return s.slots.get(i) }

// Lease returns a lease, or nil.
func (s *Set) Lease(epoch uint64) *LeaseRow { return s.leases.get(epoch) }

// Ticket returns a ticket, or nil.
func (s *Set) Ticket(seq int64) *TicketRow { return s.tickets.get(seq) }

// Raws returns the rows that can't be read.
func (s *Set) Raws() []*Raw { return s.raws }

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
