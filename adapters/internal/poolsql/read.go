package poolsql

import (
	"context"
	"fmt"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/allocator"
	"github.com/stint-go/stint/internal/fault"
)

// reader reads rows of one pool.
type reader struct {
	ctx  context.Context
	conn sqlrow.Conn
	q    *Queries
	name string
	id   int64              // 0: not stored yet
	pool *allocator.PoolRow // nil: not stored yet

	// Where rows go. A lease, slot or ticket that can't be read comes as a Raw, and so a nil row.
	lease  func(why int, epoch, expires int64, l *allocator.LeaseRow, raw *allocator.Raw)
	slot   func(why int, i int, s *allocator.SlotRow, raw *allocator.Raw)
	ticket func(seq int64, t *allocator.TicketRow, raw *allocator.Raw)
	group  func(g *allocator.GroupRow)
}

// readPool reads the pool's row, and locks it.
func (r *reader) readPool(lock bool) sqlrow.Stmt {
	text := r.q.poolSeen
	if lock {
		text = r.q.pool
	}
	return r.q.d.Stmt(text, func(row sqlrow.Row) error {
		rec := new(poolRec)
		err := row.Scan(rec.fields()...)
		if err == nil {
			r.id = rec.id
			r.pool, err = rec.unpack()
		}
		return err
	}, r.name)
}

// read appends the statement that reads rows for reasons, if there are any. arg returns what they depend on.
func (r *reader) read(list []sqlrow.Stmt, k *kind, why reasons, arg func(name string) any) []sqlrow.Stmt {
	if why == 0 {
		return list
	}
	return append(list, r.stmt(r.q.read(k, why), r.each(k), arg))
}

// stmt gives a statement its parameters.
func (r *reader) stmt(st *statement, each func(sqlrow.Row) error, arg func(name string) any) sqlrow.Stmt {
	args := make([]any, len(st.names))
	for i, name := range st.names {
		switch {
		case name != "pool":
			args[i] = arg(name)
		case r.q.atOnce:
			args[i] = r.name
		default:
			args[i] = r.id
		}
	}
	return r.q.d.Stmt(st.text, each, args...)
}

// each reads rows of a kind, one after the other into the same record.
func (r *reader) each(k *kind) func(sqlrow.Row) error {
	var reason int
	switch k.table {
	case leases:
		rec := new(leaseRec)
		return scan(&reason, rec.fields(), func() error {
			l, raw := rec.unpack()
			r.lease(reason, rec.epoch, rec.row.ExpiresUS, l, raw)
			return nil
		})
	case slots:
		rec := new(slotRec)
		return scan(&reason, rec.fields(), func() error {
			s, raw := rec.unpack()
			r.slot(reason, int(rec.index), s, raw)
			return nil
		})
	case tickets:
		rec := new(ticketRec)
		return scan(&reason, rec.fields(), func() error {
			t, raw := rec.unpack()
			r.ticket(rec.seq, t, raw)
			return nil
		})
	case groups:
		rec := new(groupRec)
		return scan(&reason, rec.fields(), func() error {
			g, err := rec.unpack()
			if err == nil {
				r.group(g)
			}
			return err
		})
	}
	panic(fmt.Sprintf("a table %s", k.table.Name))
}

func scan(reason *int, fields []any, then func() error) func(sqlrow.Row) error {
	into := append([]any{reason}, fields...)
	return func(row sqlrow.Row) error {
		if err := row.Scan(into...); err != nil {
			return err
		}
		return then()
	}
}

var errQuery = fmt.Errorf("%w: unknown query", fault.ErrInvalid)
