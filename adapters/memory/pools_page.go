package memory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/stint-go/stint/allocator"
)

// Page implements allocator.Store.
func (st poolStore) Page(ctx context.Context, q allocator.Query) (allocator.Rows, error) {
	st.db.mu.Lock()
	defer st.db.mu.Unlock()
	if err := st.db.usable(ctx); err != nil {
		return allocator.Rows{}, err
	}
	p := st.db.pools.pool(q.Pool)
	rows := allocator.Rows{Pool: copied(p.row)}
	switch q.Kind {
	case allocator.QueryLive:
		rows.Leases, rows.More = pageOf(p.leases.heldAfter, q, func(*allocator.LeaseRow) bool { return true })
	case allocator.QueryOwned:
		rows.Leases, rows.More = pageOf(p.leases.heldAfter, q, func(l *allocator.LeaseRow) bool { return owned(l, &q) })
	case allocator.QueryLeases:
		rows.Leases, rows.More = pageOf(p.leases.after, q, func(*allocator.LeaseRow) bool { return true })
	case allocator.QueryTickets:
		var list []*allocator.TicketRow
		for _, t := range p.tickets {
			list = append(list, t.row)
		}
		rows.Tickets, rows.More = page(list, q, func(t *allocator.TicketRow) int64 { return t.Seq })
	case allocator.QueryGroups:
		rows.Groups, rows.More = p.pageGroups(q)
	case allocator.QueryChanges:
		p.pageChanges(q, &rows)
	default:
		return allocator.Rows{}, errors.Join(allocator.ErrInvalid, errors.New("unknown query"))
	}
	return rows, nil
}

// copied is for rows that steps use again.
func copied[R any](row *R) *R {
	if row == nil {
		return nil
	}
	c := *row
	return &c
}

// page takes the rows after a key, in order.
func page[R any](list []*R, q allocator.Query, key func(*R) int64) ([]*R, bool) {
	list = slices.DeleteFunc(list, func(r *R) bool { return key(r) <= q.After })
	slices.SortFunc(list, func(a, b *R) int { return cmp.Compare(key(a), key(b)) })
	return list[:min(len(list), q.Max)], len(list) > q.Max
}

func owned(l *allocator.LeaseRow, q *allocator.Query) bool {
	h := &l.Holder
	here := q.Boot != "" && q.Namespace != "" && h.Boot == q.Boot && h.Namespace == q.Namespace
	return l.Status == allocator.LeaseLive && (here || q.Host != "" && h.Host == q.Host)
}

// pageOf takes the leases after the query's epoch that are wanted, in order.
func pageOf(after func(uint64, func(*leasePlace) bool), q allocator.Query, want func(*allocator.LeaseRow) bool) (list []*allocator.LeaseRow, more bool) {
	after(uint64(q.After), func(l *leasePlace) bool {
		if !want(l.row) {
			return true
		}
		if more = len(list) == q.Max; !more {
			if list == nil {
				list = make([]*allocator.LeaseRow, 0, min(q.Max, blockSize))
			}
			list = append(list, l.row)
		}
		return !more
	})
	return list, more
}

func (p *pool) pageGroups(q allocator.Query) (list []*allocator.GroupRow, more bool) {
	for _, k := range slices.Sorted(maps.Keys(p.groups)) {
		switch {
		case k <= q.Group:
		case len(list) == q.Max:
			return list, true
		default:
			list = append(list, copied(p.groups[k]))
		}
	}
	return list, false
}

func (p *pool) pageChanges(q allocator.Query, rows *allocator.Rows) {
	n := 0
	p.history.after(q.After, func(c *change) bool {
		if rows.More = n == q.Max; rows.More {
			return false
		}
		if n++; c.slot != nil {
			rows.Slots = append(rows.Slots, copied(c.slot.row))
		} else {
			rows.Leases = append(rows.Leases, c.lease.row)
		}
		return true
	})
}
