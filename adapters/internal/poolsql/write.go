package poolsql

import (
	"slices"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/allocator"
)

// Statements returns what stores the changes of the step: what goes, then what changes, then what is new, so that an attempt that lost its
// lease or ticket may have another one.
func (s *Step) Statements() ([]sqlrow.Stmt, error) {
	c := s.Set.Changes()
	if c.Pool == nil {
		return nil, nil
	}
	w := writer{Step: s}
	for _, add := range []func(*allocator.Changes) error{w.pool, w.groups, w.slots, w.leases, w.tickets} {
		if err := add(&c); err != nil {
			return nil, err
		}
	}
	return slices.Concat(w.drops, w.Updates(s.q.d, Tables()...), w.Inserts(s.q.d, Tables()...)), nil
}

type writer struct {
	*Step
	sqlrow.Writer
	drops []sqlrow.Stmt
}

// drop deletes rows, as they were read.
func (w *writer) drop(st *statement, rows int, keys any, revs []int64) {
	if rows == 0 {
		return
	}
	drop := w.stmt(st, nil, func(name string) any {
		if name == "keys" {
			return keys
		}
		return revs
	})
	drop.Rows = rows
	w.drops = append(w.drops, drop)
}

func (w *writer) pool(c *allocator.Changes) error {
	var stored, r poolRec
	if c.Pool.Old == nil {
		ids, err := w.conn.NewIDs(w.ctx, pools, 1)
		if err != nil {
			return err
		}
		w.id = ids[0]
		if err := r.pack(w.id, c.Pool.New); err != nil {
			return err
		}
		w.Insert(pools, r.fields())
		return nil
	}
	if err := stored.pack(w.id, c.Pool.Old); err != nil {
		return err
	}
	if err := r.pack(w.id, c.Pool.New); err != nil {
		return err
	}
	w.Update(pools, stored.fields(), r.fields())
	return nil
}

// record is a row as columns.
type record interface{ fields() []any }

// put writes a change of a row that is not deleted. pack makes a record, of all columns where the row is new.
func put[R any](w *writer, t *sqlrow.Table, c *allocator.Change[R], pack func(row *R, all bool) (record, error)) error {
	r, err := pack(c.New, c.Old == nil)
	if err != nil {
		return err
	}
	if c.Old == nil {
		w.Insert(t, r.fields())
		return nil
	}
	stored, err := pack(c.Old, false)
	if err == nil {
		w.Update(t, stored.fields(), r.fields())
	}
	return err
}

func (w *writer) groups(c *allocator.Changes) error {
	var keys [][]byte
	var revs []int64
	for i := range c.Groups {
		g := &c.Groups[i]
		if g.New == nil {
			keys, revs = append(keys, []byte(g.Old.Key)), append(revs, g.Old.Rev)
			continue
		}
		err := put(w, groups, g, func(row *allocator.GroupRow, _ bool) (record, error) {
			r := new(groupRec)
			return r, r.pack(w.id, row)
		})
		if err != nil {
			return err
		}
	}
	w.drop(w.q.dropGroups, len(keys), keys, revs)
	return nil
}

// slots are never deleted. One that can't be read is replaced.
func (w *writer) slots(c *allocator.Changes) error {
	for i := range c.Slots {
		s := &c.Slots[i]
		if s.Raw != nil {
			w.drop(w.q.dropSlot, 1, int64(s.Raw.Index), nil)
		}
		err := put(w, slots, s, func(row *allocator.SlotRow, _ bool) (record, error) {
			r := new(slotRec)
			return r, r.pack(w.id, row)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) leases(c *allocator.Changes) error {
	var epochs, revs []int64
	for i := range c.Leases {
		l := &c.Leases[i]
		if l.Raw != nil {
			w.drop(w.q.dropLease, 1, int64(l.Raw.Epoch), nil)
		}
		if l.New == nil {
			if l.Old != nil {
				epochs, revs = append(epochs, int64(l.Old.Epoch)), append(revs, l.Old.Rev)
			}
			continue
		}
		err := put(w, leases, l, func(row *allocator.LeaseRow, all bool) (record, error) {
			r := new(leaseRec)
			return r, r.pack(w.id, row, all)
		})
		if err != nil {
			return err
		}
	}
	w.drop(w.q.dropLeases, len(epochs), epochs, revs)
	return nil
}

func (w *writer) tickets(c *allocator.Changes) error {
	var seqs, revs []int64
	for i := range c.Tickets {
		t := &c.Tickets[i]
		if t.Raw != nil {
			w.drop(w.q.dropTicket, 1, t.Raw.Seq, nil)
		}
		if t.New == nil {
			if t.Old != nil {
				seqs, revs = append(seqs, t.Old.Seq), append(revs, t.Old.Rev)
			}
			continue
		}
		err := put(w, tickets, t, func(row *allocator.TicketRow, all bool) (record, error) {
			r := new(ticketRec)
			return r, r.pack(w.id, row, all)
		})
		if err != nil {
			return err
		}
	}
	w.drop(w.q.dropTickets, len(seqs), seqs, revs)
	return nil
}
