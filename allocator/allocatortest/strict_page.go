package allocatortest

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/stint-go/stint/allocator"
)

// Page implements allocator.Store.
func (s *Strict) Page(ctx context.Context, q allocator.Query) (allocator.Rows, error) {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return allocator.Rows{}, err
	}
	p := s.data.pool(q.Pool)
	b := pageOf{max: q.Max}
	if p.row != nil {
		b.rows.Pool = freshPool(p.row)
	}
	after := func(l allocator.LeaseRow) bool { return int64(l.Epoch) > q.After }
	switch q.Kind {
	case allocator.QueryLive:
		fill(&b, selected(p.leases, func(l allocator.LeaseRow) bool { return after(l) && isHeld(l) }, byEpoch), b.lease)
	case allocator.QueryLeases:
		fill(&b, selected(p.leases, after, byEpoch), b.lease)
	case allocator.QueryOwned:
		fill(&b, selected(p.leases, func(l allocator.LeaseRow) bool { return after(l) && isLive(l) && owned(l.Holder, q) }, byEpoch), b.lease)
	case allocator.QueryTickets:
		fill(&b, selected(p.tickets, func(t allocator.TicketRow) bool { return t.Seq > q.After }, bySeq), b.ticket)
	case allocator.QueryGroups:
		fill(&b, selected(p.groups, func(g allocator.GroupRow) bool { return g.Key > q.Group }, byKey), b.group)
	case allocator.QueryChanges:
		fill(&b, p.changes(q.After), func(c flatChange) { c.add(&b) })
	default:
		return allocator.Rows{}, fmt.Errorf("%w: unknown query", allocator.ErrInvalid)
	}
	return b.rows, nil
}

// owned tells whether a query names a holder. Absent is not equal to absent.
func owned(h allocator.Holder, q allocator.Query) bool {
	here := q.Boot != "" && q.Namespace != "" && h.Boot == q.Boot && h.Namespace == q.Namespace
	return here || q.Host != "" && h.Host == q.Host
}

// pageOf collects a page.
type pageOf struct {
	max  int
	rows allocator.Rows
}

func fill[R any](b *pageOf, list []R, add func(R)) {
	for _, r := range atMost(b.max, list) {
		add(r)
	}
	b.rows.More = len(list) > b.max
}

func (b *pageOf) lease(l allocator.LeaseRow) {
	if raw := rawLease(&l); raw != nil {
		b.rows.Raws = append(b.rows.Raws, raw)
		return
	}
	l = freshLease(l)
	b.rows.Leases = append(b.rows.Leases, &l)
}

func (b *pageOf) slot(s allocator.SlotRow) {
	if raw := rawSlot(&s); raw != nil {
		b.rows.Raws = append(b.rows.Raws, raw)
		return
	}
	s = freshSlot(s)
	b.rows.Slots = append(b.rows.Slots, &s)
}

func (b *pageOf) ticket(t allocator.TicketRow) {
	if raw := rawTicket(&t); raw != nil {
		b.rows.Raws = append(b.rows.Raws, raw)
		return
	}
	t = freshTicket(t)
	b.rows.Tickets = append(b.rows.Tickets, &t)
}

func (b *pageOf) group(g allocator.GroupRow) { b.rows.Groups = append(b.rows.Groups, &g) }

// flatChange is a slot or a lease.
type flatChange struct {
	rev int64
	add func(*pageOf)
}

// changes lists slots and leases that were changed after a rev, in order.
func (p *flatPool) changes(after int64) []flatChange {
	var list []flatChange
	for _, s := range p.slots {
		list = append(list, flatChange{s.Rev, func(b *pageOf) { b.slot(s) }})
	}
	for _, l := range p.leases {
		list = append(list, flatChange{l.Rev, func(b *pageOf) { b.lease(l) }})
	}
	list = slices.DeleteFunc(list, func(c flatChange) bool { return c.rev <= after })
	slices.SortFunc(list, func(a, b flatChange) int { return cmp.Compare(a.rev, b.rev) })
	return list
}
