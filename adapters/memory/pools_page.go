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
		rows.Leases, rows.More = page(p.heldLeases(), q, leaseKey)
	case allocator.QueryOwned:
		rows.Leases, rows.More = page(p.owned(q), q, leaseKey)
	case allocator.QueryLeases:
		rows.Leases, rows.More = p.pageLeases(q)
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

func leaseKey(l *allocator.LeaseRow) int64 { return int64(l.Epoch) }

// page takes the rows after a key, in order.
func page[R any](list []*R, q allocator.Query, key func(*R) int64) ([]*R, bool) {
	list = slices.DeleteFunc(list, func(r *R) bool { return key(r) <= q.After })
	slices.SortFunc(list, func(a, b *R) int { return cmp.Compare(key(a), key(b)) })
	return list[:min(len(list), q.Max)], len(list) > q.Max
}

func (p *pool) heldLeases() []*allocator.LeaseRow {
	var list []*allocator.LeaseRow
	for _, l := range p.held {
		list = append(list, l.row)
	}
	return list
}

func (p *pool) owned(q allocator.Query) []*allocator.LeaseRow {
	return slices.DeleteFunc(p.heldLeases(), func(l *allocator.LeaseRow) bool {
		h := &l.Holder
		here := q.Boot != "" && q.Namespace != "" && h.Boot == q.Boot && h.Namespace == q.Namespace
		return l.Status != allocator.LeaseLive || !here && (q.Host == "" || h.Host != q.Host)
	})
}

func (p *pool) pageLeases(q allocator.Query) (list []*allocator.LeaseRow, more bool) {
	p.leases.after(uint64(q.After), func(l *leasePlace) bool {
		if more = len(list) == q.Max; !more {
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
