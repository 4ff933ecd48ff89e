package allocatortest

import (
	"fmt"
	"reflect"

	"github.com/stint-go/stint/allocator"
)

// check finds what a database would refuse, and what no step may do.
func (s *strictStep) check(c *allocator.Changes) error {
	k := strictCheck{s: s, revs: map[int64]bool{}}
	k.untouched()
	if c.Pool == nil {
		if len(c.Groups)+len(c.Slots)+len(c.Leases)+len(c.Tickets) > 0 {
			k.fail("rows are changed without the pool's")
		}
		return k.err
	}
	k.pool(c.Pool)
	if k.err != nil {
		return k.err
	}
	k.groups(c.Groups)
	k.slots(c.Slots)
	k.leases(c.Leases)
	k.tickets(c.Tickets)
	if k.err == nil {
		k.unique(c)
	}
	return k.err
}

// strictCheck keeps the first thing that is wrong.
type strictCheck struct {
	s    *strictStep
	next *allocator.PoolRow
	from int64 // Rev of the pool before the step
	revs map[int64]bool
	err  error
}

func (k *strictCheck) fail(format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf(format, args...)
	}
}

func (k *strictCheck) expect(ok bool, format string, args ...any) {
	if !ok {
		k.fail(format, args...)
	}
}

// untouched looks whether the step has changed a row that was handed to it: changes are new rows.
func (k *strictCheck) untouched() {
	s := k.s
	k.expect(s.pool == nil || reflect.DeepEqual(s.pool, s.row), "the pool's row was changed in place")
	same(k, "group", s.hasGroup, s.groups)
	same(k, "slot", s.hasSlot, s.slots)
	same(k, "lease", s.hasLease, s.leases)
	same(k, "ticket", s.hasTicket, s.tickets)
}

func same[K comparable, R any](k *strictCheck, what string, given map[K]*R, stored map[K]R) {
	for key, row := range given {
		k.expect(reflect.DeepEqual(*row, stored[key]), "%s %v was changed in place", what, key)
	}
}

func (k *strictCheck) pool(c *allocator.Change[allocator.PoolRow]) {
	k.next = c.New
	if c.New == nil || c.Raw != nil {
		k.fail("the pool is deleted")
		return
	}
	if c.Old != k.s.pool {
		k.fail("the pool is written over one that was not loaded")
		return
	}
	p := c.New
	k.expect(p.Name == k.s.need.Pool, "the pool %q is written in a step of %q", p.Name, k.s.need.Pool)
	k.expect(p.Capacity >= 0 && p.Capacity <= 10_000, "capacity %d", p.Capacity)
	k.expect(p.Status >= allocator.PoolOpen && p.Status <= allocator.PoolDrained, "status %v of the pool", p.Status)
	k.expect(min(p.Slots, p.Used, p.Cooling, p.Offered, p.Waiting, p.Groups) >= 0, "a negative count: %+v", *p)
	if old := c.Old; old != nil {
		k.from = old.Rev
		k.expect(p.EpochSeq >= old.EpochSeq && p.TicketSeq >= old.TicketSeq && p.PurgedRev >= old.PurgedRev && p.Version >= old.Version,
			"a counter of the pool falls: %+v, was %+v", *p, *old)
	}
	k.expect(p.Rev > k.from, "rev %d of the pool, was %d", p.Rev, k.from)
}

// row checks what is the same for all kinds of rows. given is the copy that the step had, or nil.
func row[R any](k *strictCheck, what string, c allocator.Change[R], given *R, exists bool, rev func(*R) int64) {
	switch {
	case c.Raw != nil:
		had := k.s.hasRaw[c.Raw.Table+" "+c.Raw.Key]
		k.expect(had == c.Raw && c.Old == nil, "%s is written over one that was not loaded", what)
	case c.Old == nil:
		k.expect(!exists, "%s is inserted but exists", what)
	default:
		k.expect(c.Old == given, "%s is written over one that was not loaded", what)
	}
	if c.New == nil {
		return
	}
	r := rev(c.New)
	k.expect(r > k.from && r <= k.next.Rev, "%s has rev %d, want more than %d and at most the pool's %d", what, r, k.from, k.next.Rev)
	k.expect(!k.revs[r], "%s has rev %d as another row has", what, r)
	k.revs[r] = true
}

func (k *strictCheck) groups(list []allocator.Change[allocator.GroupRow]) {
	for _, c := range list {
		key := groupKey(c)
		_, exists := k.s.flatPool.groups[key]
		row(k, "group "+key.String(), c, k.s.hasGroup[key], exists, func(g *allocator.GroupRow) int64 { return g.Rev })
		if g := c.New; g != nil {
			_, ok := key.Names()
			k.expect(ok && g.Weight > 0 && g.Min >= 0 && g.Max >= -1 && g.Used >= 0 && g.Waiting >= 0, "group %+v", *g)
		}
	}
}

func (k *strictCheck) slots(list []allocator.Change[allocator.SlotRow]) {
	for _, c := range list {
		key := slotKey(c)
		_, exists := k.s.flatPool.slots[key]
		row(k, fmt.Sprint("slot ", key), c, k.s.hasSlot[key], exists, func(s *allocator.SlotRow) int64 { return s.Rev })
		s := c.New
		if s == nil {
			continue
		}
		k.expect(s.Index == key && key >= 0 && key < k.next.Slots, "slot %d under the key %d of %d", s.Index, key, k.next.Slots)
		k.expect(s.Check() == "", "%s of slot %+v", s.Check(), *s)
		k.expect(s.Epoch <= k.next.EpochSeq, "slot %d has epoch %d, the pool is at %d", key, s.Epoch, k.next.EpochSeq)
		k.expect(c.Old == nil || s.Epoch >= c.Old.Epoch, "the epoch of slot %d falls", key)
	}
}

func (k *strictCheck) leases(list []allocator.Change[allocator.LeaseRow]) {
	for _, c := range list {
		key := leaseKey(c)
		_, exists := k.s.flatPool.leases[key]
		row(k, fmt.Sprint("lease ", key), c, k.s.hasLease[key], exists, func(l *allocator.LeaseRow) int64 { return l.Rev })
		l := c.New
		if l == nil {
			k.expect(c.Old == nil || isEnded(*c.Old), "lease %d is deleted but did not end", key)
			continue
		}
		k.expect(l.Epoch == key, "lease %d under the key %d", l.Epoch, key)
		k.expect(l.Check() == "", "%s of lease %+v", l.Check(), *l)
		k.lease(c)
	}
}

// lease checks what never changes.
func (k *strictCheck) lease(c allocator.Change[allocator.LeaseRow]) {
	l, old := c.New, c.Old
	switch {
	case c.Raw != nil:
	case old == nil:
		k.expect(k.s.row == nil || l.Epoch > k.s.row.EpochSeq, "lease %d is new, but the pool was at %d", l.Epoch, k.from)
		k.expect(l.Epoch <= k.next.EpochSeq, "lease %d is new, but the pool is at %d", l.Epoch, k.next.EpochSeq)
	default:
		k.expect(!isEnded(*old), "lease %d is changed after its end", l.Epoch)
		k.expect(l.ID == old.ID && l.Attempt == old.Attempt && l.Holder == old.Holder && reflect.DeepEqual(l.Slots, old.Slots) &&
			reflect.DeepEqual(l.Params, old.Params), "lease %d has another identity: %+v, was %+v", l.Epoch, *l, *old)
	}
}

func (k *strictCheck) tickets(list []allocator.Change[allocator.TicketRow]) {
	for _, c := range list {
		key := ticketKey(c)
		_, exists := k.s.flatPool.tickets[key]
		row(k, fmt.Sprint("ticket ", key), c, k.s.hasTicket[key], exists, func(t *allocator.TicketRow) int64 { return t.Rev })
		if t := c.New; t != nil {
			k.expect(t.Seq > 0 && t.Seq <= k.next.TicketSeq && t.Attempt != "" && t.Params.Units > 0 && t.DeadlineUS >= 0 &&
				t.Holder.Incarnation != allocator.Incarnation{}, "ticket %+v", *t)
			k.expect(c.Old != nil || k.s.row == nil || t.Seq > k.s.row.TicketSeq, "ticket %d is new, but the pool was further", t.Seq)
		}
	}
}

// unique checks the unique keys, as they would be after the step.
func (k *strictCheck) unique(c *allocator.Changes) {
	after := newFlatPool()
	copyRows(after.leases, k.s.flatPool.leases)
	copyRows(after.tickets, k.s.flatPool.tickets)
	putRows(after.leases, c.Leases, leaseKey, freshLease)
	putRows(after.tickets, c.Tickets, ticketKey, freshTicket)
	attempts, slots := map[string]uint64{}, map[int]uint64{}
	for _, l := range after.leases {
		if !isHeld(l) || l.Check() != "" {
			continue
		}
		k.expect(attempts[l.Attempt] == 0, "attempt %q has the leases %d and %d", l.Attempt, attempts[l.Attempt], l.Epoch)
		attempts[l.Attempt] = l.Epoch
		for _, i := range l.Slots {
			k.expect(slots[i] == 0, "slot %d has the leases %d and %d", i, slots[i], l.Epoch)
			slots[i] = l.Epoch
		}
	}
	queued := map[string]int64{}
	for _, t := range after.tickets {
		k.expect(queued[t.Attempt] == 0, "attempt %q has the tickets %d and %d", t.Attempt, queued[t.Attempt], t.Seq)
		queued[t.Attempt] = t.Seq
	}
}

func copyRows[K comparable, R any](to, from map[K]R) {
	for k, r := range from {
		to[k] = r
	}
}
