package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/stint-go/stint/adapters/internal/spendsql"
	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/internal/fault"
	"github.com/stint-go/stint/spendlimit"
)

// Spend returns the DB's store for spendlimit.
func (d *DB) Spend() spendlimit.Store { return spendStore{d} }

type spendStore struct{ d *DB }

// Only = is sure to be looked up in an index behind another column. A plan that is made while a table is empty may compare the
// values of a list with all rows that the index has for the columns before; a LIMIT keeps it from doing so here.
var spendFrom = spendsql.From{
	Usages: "unnest($2::text[]) AS l (id) CROSS JOIN LATERAL (SELECT * FROM {usage} WHERE ledger_id = $1 AND hold_id = 0 AND id = l.id LIMIT 1) AS u",
	UsagesOf: "unnest($2::text[], $3::text[]) AS l (hold, id) CROSS JOIN LATERAL (SELECT * FROM {usage} WHERE ledger_id = $1 AND " +
		"hold_id = (SELECT h.id FROM {hold} h WHERE h.ledger_id = $1 AND h.key = l.hold) AND id = l.id LIMIT 1) AS u",
	// The sum leaves one index to choose from, that of live members.
	Members: "{owner} o WHERE o.account_id + 0 = ANY($1) AND o.live AND o.split_group <> '' AND o.split_group = ANY($2)",
}

// judge is what a step calls.
type judge = func(now int64, w *spendlimit.Work) error

// maxGrown is how often a step whose accounts grew while it looked for them begins again (C2).
const maxGrown = 4

var errGrown = fmt.Errorf("%w: holds on other accounts kept coming in", fault.ErrUnavailable)

// Step implements spendlimit.Store.
func (st spendStore) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	var more spendsql.Grown
	for tries, grown := 0, 0; ; {
		judged := false
		s, err := st.try(ctx, &n, more, func(now int64, w *spendlimit.Work) error {
			err := f(now, w)
			judged = err != nil
			return err
		})
		switch {
		case err == nil || judged: // f's own error goes back as it is
			return err
		case errors.Is(err, sqlrow.ErrGrew):
			if grown++; grown > maxGrown {
				return errGrown
			}
			more = s.Grown()
		case !st.d.again(ctx, tries, err):
			return err
		default:
			tries++
		}
	}
}

func (st spendStore) try(ctx context.Context, n *spendlimit.Need, more spendsql.Grown, f judge) (*spendsql.Step, error) {
	how := beginWriting
	if n.ReadOnly {
		how = beginReading
	}
	c, err := st.d.begin(ctx, how)
	if err != nil {
		return nil, err
	}
	defer c.end(ctx)
	s, list, err := c.step(ctx, st.d.queries, n, more, f)
	if err != nil || len(list) == 0 {
		return s, err
	}
	return s, c.commit(ctx, list)
}

// step locks, loads and judges. It returns the statements that store what was changed.
func (c *conn) step(ctx context.Context, q *spendsql.Queries, n *spendlimit.Need, more spendsql.Grown, f judge) (*spendsql.Step, []sqlrow.Stmt, error) {
	s, err := spendsql.Begin(ctx, c, q, n, more, nil)
	if err == nil {
		err = s.Load(c.d.now(s.Clock))
	}
	if err != nil {
		return s, nil, unavailable(err)
	}
	if err := f(s.Now, s.Work); err != nil || n.ReadOnly || !s.Work.Changed() {
		return s, nil, err
	}
	list, err := s.Statements()
	return s, list, unavailable(err)
}

// now is the time of a step, given the server's.
func (d *DB) now(server int64) int64 {
	if d.clock != nil {
		return d.clock().UnixMicro()
	}
	return server
}

// Read implements spendlimit.Store.
func (st spendStore) Read(ctx context.Context, q spendlimit.Query) (spendlimit.Page, error) {
	c, err := st.d.begin(ctx, beginReading)
	if err != nil {
		return spendlimit.Page{}, err
	}
	defer c.end(ctx)
	return c.read(ctx, st.d.queries, q)
}

func (c *conn) read(ctx context.Context, queries *spendsql.Queries, q spendlimit.Query) (spendlimit.Page, error) {
	var server int64
	if now := c.d.dialect.Now; now != "" {
		if err := c.Run(ctx, sqlrow.Stmt{SQL: now, Each: func(r sqlrow.Row) error { return r.Scan(&server) }}); err != nil {
			return spendlimit.Page{}, err
		}
	}
	page, err := spendsql.Read(ctx, c, queries, q, c.d.now(server))
	if err != nil {
		return spendlimit.Page{}, unavailable(err)
	}
	return page, nil
}
