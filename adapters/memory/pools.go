package memory

import (
	"cmp"
	"context"
	"fmt"

	"github.com/stint-go/stint/allocator"
)

// Pools returns the DB's store for allocator.
func (db *DB) Pools() allocator.Store { return poolStore{db} }

type poolStore struct{ db *DB }

// pool is the rows of one pool, and indexes of them. A row never changes: a step that changes one puts another in its place.
type pool struct {
	name    string
	row     *allocator.PoolRow
	groups  map[allocator.GroupKey]*allocator.GroupRow
	slots   []*slotPlace
	leases  leases
	tickets map[int64]*ticketPlace
	set     *allocator.Set

	held    map[string]*leasePlace  // live and offered leases by attempt
	queued  map[string]*ticketPlace // tickets by attempt
	lines   map[allocator.GroupKey]*line
	waiting []*line // those with tickets

	free     bitmap
	cooling  queue[*slotPlace]
	expiring queue[*leasePlace] // live leases by expiry
	aging    queue[*leasePlace] // live leases by the time at which they were taken
	offers   queue[*leasePlace] // by expiry
	ended    queue[*leasePlace] // by end
	deadline queue[*ticketPlace]
	history  history
}

// slotPlace is a slot's row and its place in the indexes.
type slotPlace struct {
	row  *allocator.SlotRow
	cool place[*slotPlace]
	change
}

// leasePlace is a lease's row and its place in the indexes.
type leasePlace struct {
	row  *allocator.LeaseRow
	ends place[*leasePlace] // in expiring, offers or ended
	age  place[*leasePlace] // in aging
	change
}

// ticketPlace is a ticket's row and its place in the indexes.
type ticketPlace struct {
	row  *allocator.TicketRow
	ends place[*ticketPlace]
}

func bySlot(a, b *slotPlace) int     { return cmp.Compare(a.row.Index, b.row.Index) }
func byEpoch(a, b *leasePlace) int   { return cmp.Compare(a.row.Epoch, b.row.Epoch) }
func byTicket(a, b *ticketPlace) int { return cmp.Compare(a.row.Seq, b.row.Seq) }

// Step implements allocator.Store.
func (st poolStore) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	st.db.mu.Lock()
	defer st.db.mu.Unlock()
	if err := st.db.usable(ctx); err != nil {
		return err
	}
	p := st.db.pools.pool(n.Pool)
	defer p.set.Reset() // also when f panics
	clock := st.db.now()
	if p.row != nil {
		p.load(&n, p.row.Now(clock))
	}
	if err := f(clock, p.set); err != nil || n.ReadOnly {
		return err
	}
	return p.write(p.set.Changes())
}

// pools is the rows of allocator. The zero value is empty.
type pools struct {
	pools map[string]*pool
	last  *pool // the one of the last step
}

// pool returns the pool of a name, which has no row before it is created.
func (x *pools) pool(name string) *pool {
	if x.last != nil && x.last.name == name {
		return x.last
	}
	p := x.pools[name]
	if p == nil {
		p = newPool(name)
		if x.pools == nil {
			x.pools = map[string]*pool{}
		}
		x.pools[name] = p
	}
	x.last = p
	return p
}

func newPool(name string) *pool {
	leases := queue[*leasePlace]{order: byEpoch}
	return &pool{
		name: name, set: allocator.NewSet(), groups: map[allocator.GroupKey]*allocator.GroupRow{}, tickets: map[int64]*ticketPlace{},
		held: map[string]*leasePlace{}, queued: map[string]*ticketPlace{}, lines: map[allocator.GroupKey]*line{},
		expiring: leases, aging: leases, offers: leases, ended: leases,
		cooling: queue[*slotPlace]{order: bySlot}, deadline: queue[*ticketPlace]{order: byTicket},
	}
}

// load puts the rows that n names into the set.
func (p *pool) load(n *allocator.Need, now int64) {
	p.set.AddPool(p.row)
	for _, a := range n.Attempts {
		p.addWhole(p.held[a])
		p.addTicket(p.queued[a])
	}
	for _, e := range n.Epochs {
		p.addWhole(p.leases.get(e))
	}
	for _, i := range n.Slots {
		if s := p.slot(i); s != nil {
			p.addSlotWhole(s)
		}
	}
	for _, k := range n.Groups {
		p.addGroup(k)
	}
	if n.Timely {
		p.loadTimely(now)
	}
	if n.Due > 0 {
		addDue(&p.expiring, now, n.Due, p.addWhole)
		addDue(&p.aging, now-p.row.Policy.MaxLease.Microseconds(), n.Due, p.addWhole)
	}
	if n.Free > 0 {
		p.free.lowest(n.Free, func(i int) { p.set.AddSlot(p.slots[i].row) })
	}
	p.loadHeads(n.Heads)
	if n.Next || n.Purge > 0 || n.All || n.Incarnation != (allocator.Incarnation{}) {
		p.loadRare(n, now)
	}
}

func (p *pool) loadTimely(now int64) {
	addDue(&p.offers, now, allocator.MaxTimely, p.addWhole)
	addDue(&p.deadline, now, allocator.MaxTimely, p.addTicket)
	addDue(&p.cooling, now, allocator.MaxTimely, p.addSlot)
}

// addDue adds at most n things of a queue that end before a time.
func addDue[T any](q *queue[T], before int64, n int, add func(T)) {
	list, _ := q.before(before, n)
	for _, x := range list {
		add(x)
	}
}

func (p *pool) loadHeads(n int) {
	for _, l := range p.waiting {
		for _, t := range l.tickets[:min(n, len(l.tickets))] {
			p.addTicket(t)
		}
	}
}

// loadRare adds what only few commands need.
func (p *pool) loadRare(n *allocator.Need, now int64) {
	if n.Next {
		p.loadNext()
	}
	addDue(&p.ended, now-p.row.Policy.Keep.Microseconds(), n.Purge, p.addLease)
	if n.Incarnation != (allocator.Incarnation{}) {
		p.loadAll(n.Incarnation)
	}
	if !n.All {
		return
	}
	p.loadAll(allocator.Incarnation{})
	for _, s := range p.slots {
		p.addSlot(s)
	}
	for k := range p.groups {
		p.addGroup(k)
	}
}

func (p *pool) loadNext() {
	live, offer := p.expiring.first(), p.offers.first()
	switch {
	case live != nil && (offer == nil || p.expiring.compare(live, offer) < 0):
		p.addLease(live.of)
	case offer != nil:
		p.addLease(offer.of)
	}
	if cool := p.cooling.first(); cool != nil {
		p.addSlot(cool.of)
	}
}

// loadAll adds the live and offered leases and the tickets of a holder, or all of them.
func (p *pool) loadAll(of allocator.Incarnation) {
	every := of == allocator.Incarnation{}
	for _, l := range p.held {
		if every || l.row.Holder.Incarnation == of {
			p.addWhole(l)
		}
	}
	for _, t := range p.tickets {
		if every || t.row.Holder.Incarnation == of {
			p.addTicket(t)
		}
	}
}

// addWhole adds a lease with its slots. A missing row is none.
func (p *pool) addWhole(l *leasePlace) {
	if l == nil {
		return
	}
	p.addLease(l)
	for _, i := range l.row.Slots {
		if s := p.slot(i); s != nil {
			p.addSlot(s)
		}
	}
}

func (p *pool) addLease(l *leasePlace) {
	if l != nil {
		p.set.AddLease(l.row)
		p.addGroup(l.row.Params.Group)
	}
}

func (p *pool) addTicket(t *ticketPlace) {
	if t != nil {
		p.set.AddTicket(t.row)
		p.addGroup(t.row.Params.Group)
	}
}

func (p *pool) addGroup(k allocator.GroupKey) {
	if g := p.groups[k]; g != nil {
		p.set.AddGroup(g)
	}
}

func (p *pool) addSlot(s *slotPlace) { p.set.AddSlot(s.row) }

// addSlotWhole adds a slot with the lease that it has.
func (p *pool) addSlotWhole(s *slotPlace) {
	p.addSlot(s)
	if s.row.Status == allocator.SlotLeased {
		p.addLease(p.leases.get(s.row.Epoch))
	}
}

func (p *pool) slot(i int) *slotPlace {
	if i < 0 || i >= len(p.slots) || p.slots[i].row == nil {
		return nil
	}
	return p.slots[i]
}

// write applies what a step changed: all of it, or nothing.
func (p *pool) write(c allocator.Changes) error {
	if c.Pool == nil {
		return nil
	}
	if what := p.lost(&c); what != "" {
		return fmt.Errorf("%w: memory: %s is not as it was loaded", allocator.ErrUnavailable, what)
	}
	p.row = c.Pool.New
	for i := range c.Groups {
		p.putGroup(&c.Groups[i])
	}
	for i := range c.Slots {
		p.putSlot(&c.Slots[i])
	}
	for i := range c.Leases {
		p.putLease(&c.Leases[i])
	}
	for i := range c.Tickets {
		p.putTicket(&c.Tickets[i])
	}
	p.set.Recycle() // Page hands out copies
	return nil
}

// lost finds a row that is not the one that the step had.
func (p *pool) lost(c *allocator.Changes) string {
	switch {
	case p.row != c.Pool.Old:
		return "the pool"
	case differ(c.Groups, p.group):
		return "a group"
	case differ(c.Slots, p.slotRow):
		return "a slot"
	case differ(c.Leases, p.leaseRow):
		return "a lease"
	case differ(c.Tickets, p.ticketRow):
		return "a ticket"
	}
	return ""
}

func differ[R any](changes []allocator.Change[R], stored func(*R) *R) bool {
	for i := range changes {
		c := &changes[i]
		if c.Raw != nil || stored(cmp.Or(c.New, c.Old)) != c.Old {
			return true
		}
	}
	return false
}

// The rows that are stored with the key of a row, or nil.

func (p *pool) group(g *allocator.GroupRow) *allocator.GroupRow { return p.groups[g.Key] }

func (p *pool) slotRow(s *allocator.SlotRow) *allocator.SlotRow {
	if at := p.slot(s.Index); at != nil {
		return at.row
	}
	return nil
}

func (p *pool) leaseRow(l *allocator.LeaseRow) *allocator.LeaseRow {
	if at := p.leases.get(l.Epoch); at != nil {
		return at.row
	}
	return nil
}

func (p *pool) ticketRow(t *allocator.TicketRow) *allocator.TicketRow {
	if at := p.tickets[t.Seq]; at != nil {
		return at.row
	}
	return nil
}
