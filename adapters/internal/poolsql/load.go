package poolsql

import (
	"context"
	"slices"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/allocator"
)

// Step is the rows of one step.
type Step struct {
	Set   *allocator.Set
	Clock int64 // after the lock, in microseconds

	reader
	need *allocator.Need
	now  int64

	askSlots  []int64 // what a statement asks for
	askGroups []allocator.GroupKey

	slots  []int // of the leases that come with them
	ahead  map[int]slot
	damage []int // slots that can't be read

	ofSlots []lease
	next    *lease

	wanted []allocator.GroupKey // by leases and tickets
	groups map[allocator.GroupKey]*allocator.GroupRow
}

// lease is a lease as it was read, slot a slot: one of the two is nil.
type (
	lease struct {
		epoch, expires int64
		row            *allocator.LeaseRow
		raw            *allocator.Raw
	}
	slot struct {
		row *allocator.SlotRow
		raw *allocator.Raw
	}
)

// Load locks the pool of a need, takes the time, and reads the rows that the need names. clock is the time after the lock, given the
// database's if it has one.
//
// Where everything is asked for at once, the slots and groups of leases that are named by epochs are read ahead, and a
// second round trip is for what was not.
func Load(ctx context.Context, conn sqlrow.Conn, q *Queries, n *allocator.Need, lock bool, clock func(server int64) int64) (*Step, error) {
	s := &Step{Set: allocator.NewSet(), need: n}
	s.reader = reader{ctx: ctx, conn: conn, q: q, name: n.Pool, lease: s.takeLease, slot: s.takeSlot, ticket: s.takeTicket, group: s.takeGroup}
	var server int64
	list := []sqlrow.Stmt{s.readPool(lock)}
	if q.atOnce {
		list = append(list, sqlrow.Stmt{SQL: q.d.Now, Each: func(r sqlrow.Row) error { return r.Scan(&server) }})
		list = s.readSlots(s.readLeases(list))
	}
	err := conn.Run(ctx, list...)
	s.Clock = clock(server)
	if err != nil || s.pool == nil {
		return s, err
	}
	s.Set.AddPool(s.pool)
	if !q.atOnce {
		s.now = s.pool.Now(s.Clock)
		if err := s.run(s.readLeases(nil)); err != nil {
			return s, err
		}
		s.addNext()
		return s, s.complete(s.readSlots(nil))
	}
	s.addNext()
	s.addOfSlots()
	return s, s.complete(s.readMissing())
}

func (s *Step) run(list []sqlrow.Stmt) error {
	if len(list) == 0 {
		return nil
	}
	return s.conn.Run(s.ctx, list...)
}

// complete reads the rest, and adds what only now is known to be needed.
func (s *Step) complete(list []sqlrow.Stmt) error {
	if err := s.run(list); err != nil {
		return err
	}
	s.addOfSlots()
	for _, k := range append(s.wanted, s.need.Groups...) {
		if g := s.groups[k]; g != nil {
			s.Set.AddGroup(g)
		}
	}
	if s.need.All {
		for _, g := range s.groups {
			s.Set.AddGroup(g)
		}
	}
	return nil
}

// some tells whether there may be any of what a pool counts: where its row is known, it tells.
func (s *Step) some(count func(p *allocator.PoolRow) int) bool {
	return s.pool == nil || count(s.pool) > 0
}

func (s *Step) readLeases(list []sqlrow.Stmt) []sqlrow.Stmt {
	n := s.need
	offered := s.some(func(p *allocator.PoolRow) int { return p.Offered })
	waiting := s.some(func(p *allocator.PoolRow) int { return p.Waiting })
	holder := n.Incarnation != allocator.Incarnation{}
	s.askSlots = longs(n.Slots)

	var l, t reasons
	l.add(leaseHeld, n.All)
	l.add(leaseOfAttempt, !n.All && len(n.Attempts) > 0)
	l.add(leaseOfEpoch, len(n.Epochs) > 0)
	l.add(leaseUntaken, !n.All && n.Timely && offered)
	l.add(leaseLapsed, !n.All && n.Due > 0)
	l.add(leaseOld, !n.All && n.Due > 0)
	l.add(leaseOfHolder, !n.All && holder)
	l.add(leaseOfSlot, len(n.Slots) > 0)
	l.add(leaseNextOffer, !n.All && n.Next && offered)
	l.add(leaseNextLive, !n.All && n.Next)
	l.add(leaseForgotten, n.Purge > 0)
	t.add(ticketAll, n.All)
	t.add(ticketOfAttempt, !n.All && len(n.Attempts) > 0 && waiting)
	t.add(ticketLate, !n.All && n.Timely && waiting)
	t.add(ticketFirst, !n.All && n.Heads > 0 && waiting)
	t.add(ticketOfHolder, !n.All && holder && waiting)
	return s.read(s.read(list, leaseKind, l, s.arg), ticketKind, t, s.arg)
}

// readSlots also reads groups. Of those that leases want it asks for more than is needed.
func (s *Step) readSlots(list []sqlrow.Stmt) []sqlrow.Stmt {
	n := s.need
	cooling := s.some(func(p *allocator.PoolRow) int { return p.Cooling })
	s.askSlots, s.askGroups = longs(n.Slots, s.slots), slices.Concat(n.Groups, s.wanted)
	for _, l := range s.ofSlots {
		if l.row != nil {
			s.askGroups = append(s.askGroups, l.row.Params.Group)
		}
	}
	ahead := s.q.atOnce && !n.All && len(n.Epochs) > 0

	var i, g reasons
	i.add(slotAll, n.All)
	i.add(slotNamed, !n.All && len(s.askSlots) > 0)
	i.add(slotFree, !n.All && n.Free > 0)
	i.add(slotCooled, !n.All && n.Timely && cooling)
	i.add(slotNext, !n.All && n.Next && cooling)
	i.add(slotOfEpoch, ahead)
	g.add(groupAll, n.All)
	g.add(groupNamed, !n.All && len(s.askGroups) > 0)
	g.add(groupOfEpoch, ahead)
	return s.read(s.read(list, slotKind, i, s.arg), groupKind, g, s.arg)
}

// readMissing reads the slots and groups that no reason has led to.
func (s *Step) readMissing() (list []sqlrow.Stmt) {
	if s.need.All {
		return nil
	}
	s.askSlots, s.askGroups = nil, nil
	for _, i := range s.slots {
		switch at, ok := s.ahead[i]; {
		case s.Set.Slot(i) != nil, slices.Contains(s.damage, i), slices.Contains(s.need.Slots, i):
		case ok:
			s.addSlot(i, at)
		default:
			s.askSlots = append(s.askSlots, int64(i))
		}
	}
	for _, k := range s.wanted {
		if s.groups[k] == nil && !slices.Contains(s.need.Groups, k) {
			s.askGroups = append(s.askGroups, k)
		}
	}
	var i, g reasons
	i.add(slotNamed, len(s.askSlots) > 0)
	g.add(groupNamed, len(s.askGroups) > 0)
	return s.read(s.read(list, slotKind, i, s.arg), groupKind, g, s.arg)
}

func longs(lists ...[]int) []int64 {
	var out []int64
	for _, list := range lists {
		for _, n := range list {
			out = append(out, int64(n))
		}
	}
	return out
}

// arg returns what a reason depends on.
func (s *Step) arg(name string) any {
	n := s.need
	switch name {
	case "now":
		return s.now
	case "attempts":
		return n.Attempts
	case "epochs":
		out := make([]int64, len(n.Epochs))
		for i, e := range n.Epochs {
			out[i] = int64(e)
		}
		return out
	case "slots":
		return s.askSlots
	case "groups":
		out := make([][]byte, len(s.askGroups))
		for i, k := range s.askGroups {
			out[i] = []byte(k)
		}
		return out
	case "incarnation":
		return n.Incarnation[:]
	case "due":
		return int64(n.Due)
	case "free":
		return int64(n.Free)
	case "heads":
		return int64(n.Heads)
	case "purge":
		return int64(n.Purge)
	}
	panic("a parameter " + name)
}

func (s *Step) takeLease(why int, epoch, expires int64, row *allocator.LeaseRow, raw *allocator.Raw) {
	l := lease{epoch, expires, row, raw}
	switch why {
	case leaseOfSlot:
		s.ofSlots = append(s.ofSlots, l)
	case leaseNextOffer, leaseNextLive:
		if f := s.next; f == nil || l.expires < f.expires || l.expires == f.expires && l.epoch < f.epoch {
			s.next = &l
		}
	default:
		s.addLease(l)
		if row != nil && why != leaseForgotten {
			s.slots = append(s.slots, row.Slots...)
		}
	}
}

func (s *Step) addLease(l lease) {
	if l.raw != nil {
		s.Set.AddRaw(l.raw)
		return
	}
	s.Set.AddLease(l.row)
	s.want(l.row.Params.Group)
}

func (s *Step) addNext() {
	if s.next != nil {
		s.addLease(*s.next)
	}
}

// addOfSlots adds the leases of the slots that the need names, where these are sound.
func (s *Step) addOfSlots() {
	for _, i := range s.need.Slots {
		slot := s.Set.Slot(i)
		if slot == nil || slot.Status != allocator.SlotLeased {
			continue
		}
		for _, l := range s.ofSlots {
			if l.epoch == int64(slot.Epoch) {
				s.addLease(l)
			}
		}
	}
}

func (s *Step) takeSlot(why, i int, row *allocator.SlotRow, raw *allocator.Raw) {
	if why != slotOfEpoch {
		s.addSlot(i, slot{row, raw})
		return
	}
	if s.ahead == nil {
		s.ahead = map[int]slot{}
	}
	s.ahead[i] = slot{row, raw}
}

func (s *Step) addSlot(i int, x slot) {
	if x.raw != nil {
		s.Set.AddRaw(x.raw)
		s.damage = append(s.damage, i)
		return
	}
	s.Set.AddSlot(x.row)
}

func (s *Step) takeTicket(_ int64, t *allocator.TicketRow, raw *allocator.Raw) {
	if raw != nil {
		s.Set.AddRaw(raw)
		return
	}
	s.Set.AddTicket(t)
	s.want(t.Params.Group)
}

func (s *Step) want(k allocator.GroupKey) {
	if !slices.Contains(s.wanted, k) {
		s.wanted = append(s.wanted, k)
	}
}

func (s *Step) takeGroup(g *allocator.GroupRow) {
	if s.groups == nil {
		s.groups = map[allocator.GroupKey]*allocator.GroupRow{}
	}
	s.groups[g.Key] = g
}
