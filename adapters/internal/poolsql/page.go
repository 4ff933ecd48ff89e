package poolsql

import (
	"cmp"
	"context"
	"slices"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/allocator"
)

// Page answers a query. The connection gives all statements one view of the data, or the pool is locked.
func Page(ctx context.Context, conn sqlrow.Conn, q *Queries, query allocator.Query, lock bool) (allocator.Rows, error) {
	if query.Kind < allocator.QueryLive || query.Kind > allocator.QueryChanges {
		return allocator.Rows{}, errQuery
	}
	p := page{query: query}
	p.reader = reader{ctx: ctx, conn: conn, q: q, name: query.Pool, lease: p.takeLease, slot: p.takeSlot, ticket: p.takeTicket, group: p.takeGroup}
	list := []sqlrow.Stmt{p.readPool(lock)}
	if q.atOnce {
		list = p.reads(list)
	}
	err := conn.Run(ctx, list...)
	if err == nil && !q.atOnce && p.pool != nil {
		if list = p.reads(nil); len(list) > 0 {
			err = conn.Run(ctx, list...)
		}
	}
	p.rows.Pool = p.pool
	p.cut()
	return p.rows, err
}

// page is an answer on the way. Each of its rows has a place in the order.
type page struct {
	reader
	query allocator.Query
	rows  allocator.Rows
	found []found
}

// found is one row of a list.
type found struct {
	at  int64
	add func(*allocator.Rows)
}

func (p *page) reads(list []sqlrow.Stmt) []sqlrow.Stmt {
	var l, s, t, g reasons
	q := &p.query
	switch q.Kind {
	case allocator.QueryLive:
		l.add(pageHeld, true)
	case allocator.QueryLeases:
		l.add(pageLeases, true)
	case allocator.QueryOwned:
		l.add(pageHere, q.Boot != "" && q.Namespace != "")
		l.add(pageHost, q.Host != "")
	case allocator.QueryTickets:
		t.add(pageTickets, true)
	case allocator.QueryGroups:
		g.add(pageGroups, true)
	case allocator.QueryChanges:
		l.add(pageMoved, true)
		l.add(pageEnded, true)
		s.add(pageSlots, true)
	}
	list = p.read(list, leaseKind, l, p.arg)
	list = p.read(list, slotKind, s, p.arg)
	list = p.read(list, ticketKind, t, p.arg)
	return p.read(list, groupKind, g, p.arg)
}

func (p *page) arg(name string) any {
	q := &p.query
	switch name {
	case "after":
		return q.After
	case "max":
		return int64(q.Max) + 1 // one more, to see whether there are more
	case "boot":
		return q.Boot
	case "pidns":
		return q.Namespace
	case "host":
		return q.Host
	case "group":
		return []byte(q.Group)
	}
	panic("a parameter " + name)
}

func (p *page) add(at int64, add func(*allocator.Rows)) { p.found = append(p.found, found{at, add}) }

func (p *page) takeLease(_ int, epoch, _ int64, l *allocator.LeaseRow, raw *allocator.Raw) {
	at := epoch
	if p.query.Kind == allocator.QueryChanges {
		at = revOf(l, raw)
	}
	p.add(at, func(r *allocator.Rows) {
		if raw != nil {
			r.Raws = append(r.Raws, raw)
		} else {
			r.Leases = append(r.Leases, l)
		}
	})
}

func revOf(l *allocator.LeaseRow, raw *allocator.Raw) int64 {
	if raw != nil {
		return raw.Rev
	}
	return l.Rev
}

func (p *page) takeSlot(_, _ int, s *allocator.SlotRow, raw *allocator.Raw) {
	if raw != nil {
		p.add(raw.Rev, func(r *allocator.Rows) { r.Raws = append(r.Raws, raw) })
		return
	}
	p.add(s.Rev, func(r *allocator.Rows) { r.Slots = append(r.Slots, s) })
}

func (p *page) takeTicket(seq int64, t *allocator.TicketRow, raw *allocator.Raw) {
	p.add(seq, func(r *allocator.Rows) {
		if raw != nil {
			r.Raws = append(r.Raws, raw)
		} else {
			r.Tickets = append(r.Tickets, t)
		}
	})
}

func (p *page) takeGroup(g *allocator.GroupRow) { // they come in order
	p.add(int64(len(p.found)), func(r *allocator.Rows) { r.Groups = append(r.Groups, g) })
}

// cut puts the rows in order.
func (p *page) cut() {
	slices.SortStableFunc(p.found, func(a, b found) int { return cmp.Compare(a.at, b.at) })
	if p.query.Kind == allocator.QueryOwned { // for both reasons
		p.found = slices.CompactFunc(p.found, func(a, b found) bool { return a.at == b.at })
	}
	if p.rows.More = len(p.found) > p.query.Max; p.rows.More {
		p.found = p.found[:p.query.Max]
	}
	for _, f := range p.found {
		f.add(&p.rows)
	}
}
