package allocator

import (
	"context"
	"iter"
	"time"
)

const maxPage = 1000

// page reads one page of a list.
func (p *Pool) page(ctx context.Context, q Query) (Rows, error) {
	switch {
	case ctx == nil:
		return Rows{}, invalid("ctx", "nil")
	case p.closed.Load():
		return Rows{}, ErrClosed
	}
	q.Pool, q.Max = p.name, maxPage
	rows, err := p.store.Page(ctx, q)
	if err == nil && rows.Pool == nil {
		err = ErrNotFound
	}
	return rows, err
}

// Leases lists the live and offered leases, by epoch; with ended, those that ended too and are not yet forgotten. Each page is
// a view of its own. Rows that can't be read are not among them: Probes lists their slots.
func (p *Pool) Leases(ctx context.Context, ended bool) iter.Seq2[LeaseState, error] {
	kind := QueryLive
	if ended {
		kind = QueryLeases
	}
	return func(yield func(LeaseState, error) bool) {
		for l, err := range p.leasesBy(ctx, kind) {
			if !yield(l, wrap("leases", err)) {
				return
			}
		}
	}
}

func (p *Pool) leasesBy(ctx context.Context, kind QueryKind) iter.Seq2[LeaseState, error] {
	return func(yield func(LeaseState, error) bool) {
		for q := (Query{Kind: kind}); ; {
			rows, err := p.page(ctx, q)
			if err != nil {
				yield(LeaseState{}, err)
				return
			}
			for _, l := range rows.Leases {
				if !yield(l.state(p.name), nil) {
					return
				}
				q.After = int64(l.Epoch)
			}
			for _, raw := range rows.Raws {
				q.After = max(q.After, int64(raw.Epoch))
			}
			if !rows.More {
				return
			}
		}
	}
}

// TicketState is a place in the queue.
type TicketState struct {
	Seq      int64
	Attempt  string
	Group    []string
	Units    int
	Holder   Holder
	Deadline time.Time
}

// Tickets lists who waits, in the order of arrival. Rows that can't be read are not among them: Check tells of them.
func (p *Pool) Tickets(ctx context.Context) iter.Seq2[TicketState, error] {
	return func(yield func(TicketState, error) bool) {
		for q := (Query{Kind: QueryTickets}); ; {
			rows, err := p.page(ctx, q)
			if err != nil {
				yield(TicketState{}, wrap("tickets", err))
				return
			}
			for _, t := range rows.Tickets {
				group, _ := t.Params.Group.Names()
				s := TicketState{Seq: t.Seq, Attempt: t.Attempt, Group: group, Units: t.Params.Units, Holder: t.Holder, Deadline: timeOf(t.DeadlineUS)}
				if !yield(s, nil) {
					return
				}
				q.After = t.Seq
			}
			for _, raw := range rows.Raws {
				q.After = max(q.After, raw.Seq)
			}
			if !rows.More {
				return
			}
		}
	}
}

// GroupState is one group at one moment.
type GroupState struct {
	Group
	Listed  bool
	Used    int // slots leased or offered
	Waiting int // tickets
}

// Groups lists the groups that are listed, and others that were used.
func (p *Pool) Groups(ctx context.Context) iter.Seq2[GroupState, error] {
	return func(yield func(GroupState, error) bool) {
		for q := (Query{Kind: QueryGroups}); ; {
			rows, err := p.page(ctx, q)
			if err != nil {
				yield(GroupState{}, wrap("groups", err))
				return
			}
			for _, g := range rows.Groups {
				names, _ := g.Key.Names()
				s := GroupState{Group: Group{Key: names, Weight: g.Weight, Min: g.Min}, Listed: g.Listed, Used: g.Used, Waiting: g.Waiting}
				if g.Max >= 0 {
					most := g.Max
					s.Max = &most
				}
				if !yield(s, nil) {
					return
				}
				q.Group = g.Key
			}
			if !rows.More || len(rows.Groups) == 0 {
				return
			}
		}
	}
}

// Changed is the latest state of a slot or a lease that changed.
type Changed struct {
	Rev    int64 // where to go on
	Slot   *SlotState
	Lease  *LeaseState
	Relist bool // nothing else: leases were forgotten since; list anew, and go on from this Rev
}

// SlotState is a slot at one moment.
type SlotState struct {
	Index     int
	Status    SlotStatus
	Epoch     uint64
	CoolUntil time.Time
	Attrs     map[string]string
}

// Watch yields slots and leases that changed after fromRev, in the order of their last change, until ctx ends; what changes
// often is seen in its latest state only, and what can't be read not at all. It polls, and is a hint: only a step decides.
func (p *Pool) Watch(ctx context.Context, fromRev int64) iter.Seq2[Changed, error] {
	return func(yield func(Changed, error) bool) {
		if fromRev < 0 {
			yield(Changed{}, wrap("watch", invalid("fromRev", "%d", fromRev)))
			return
		}
		q := Query{Kind: QueryChanges, After: fromRev}
		for poll := firstPoll; ; {
			rows, err := p.page(ctx, q)
			if err != nil {
				yield(Changed{}, wrap("watch", err))
				return
			}
			// fromRev 0 begins with everything that is there, so that nothing is missed.
			if q.After > 0 && q.After < rows.Pool.PurgedRev {
				q.After = rows.Pool.PurgedRev
				if !yield(Changed{Rev: q.After, Relist: true}, nil) {
					return
				}
				continue
			}
			list := p.changes(&rows)
			for _, c := range list {
				if !yield(c, nil) {
					return
				}
				q.After = c.Rev
			}
			for _, raw := range rows.Raws {
				q.After = max(q.After, raw.Rev)
			}
			if rows.More {
				continue
			}
			if poll = min(poll+poll/2, lastPoll); len(list) > 0 {
				poll = firstPoll
			}
			timer := time.NewTimer(p.spread(poll))
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
	}
}

// changes merges two lists by rev.
func (p *Pool) changes(rows *Rows) []Changed {
	list := make([]Changed, 0, len(rows.Slots)+len(rows.Leases))
	slots, leases := rows.Slots, rows.Leases
	for len(slots)+len(leases) > 0 {
		if len(leases) == 0 || len(slots) > 0 && slots[0].Rev < leases[0].Rev {
			r := slots[0]
			s := &SlotState{Index: r.Index, Status: r.Status, Epoch: r.Epoch, CoolUntil: timeOf(r.CoolUS), Attrs: labelMap(r.Attrs)}
			list, slots = append(list, Changed{Rev: r.Rev, Slot: s}), slots[1:]
			continue
		}
		l := leases[0].state(p.name)
		list, leases = append(list, Changed{Rev: leases[0].Rev, Lease: &l}), leases[1:]
	}
	return list
}
