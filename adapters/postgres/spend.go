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
func (d *DB) Spend() spendlimit.Store { return spendStore{d, d.spend.queries} }

// spend is the queries of the store for spendlimit.
type spend struct {
	queries *spendsql.Queries
	apart   *spendsql.Queries // for transactions of the caller
}

func newSpend(d *sqlrow.Dialect) spend {
	q := spendsql.NewQueries(d, spendFrom)
	return spend{q, q.Forgetful()}
}

// Only = is sure to be looked up in an index behind another column. A plan that is made while a table is empty may compare the
// values of a list with all rows that the index has for the columns before; a LIMIT keeps it from doing so here.
var spendFrom = spendsql.From{
	Usages: "unnest($2::text[]) AS l (id) CROSS JOIN LATERAL (SELECT * FROM {usage} WHERE ledger_id = $1 AND hold_id = 0 AND id = l.id LIMIT 1) AS u",
	UsagesOf: "unnest($2::text[], $3::text[]) AS l (hold, id) CROSS JOIN LATERAL (SELECT * FROM {usage} WHERE ledger_id = $1 AND " +
		"hold_id = (SELECT h.id FROM {hold} h WHERE h.ledger_id = $1 AND h.key = l.hold) AND id = l.id LIMIT 1) AS u",
	// The sum leaves one index to choose from, that of live members.
	Members: "{owner} o WHERE o.account_id + 0 = ANY($1) AND o.live AND o.split_group <> '' AND o.split_group = ANY($2)",
}

// spendStore is a store in a DB or in a Tx.
type spendStore struct {
	in      place
	queries *spendsql.Queries
}

var errGrown = fmt.Errorf("%w: holds on other accounts kept coming in", fault.ErrUnavailable)

// Step implements spendlimit.Store.
func (st spendStore) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	var more spendsql.Grown
	err := st.in.step(ctx, n.ReadOnly, func(c *conn) ([]sqlrow.Stmt, error) {
		load := n
		load.ReadOnly = n.ReadOnly && !c.drifts
		s, err := spendsql.Begin(ctx, c, st.queries, &load, more, nil)
		if err == nil {
			err = s.Load(c.d.now(s.Clock))
		}
		if errors.Is(err, sqlrow.ErrGrew) {
			more = s.Grown()
		}
		if err != nil {
			return nil, unavailable(err)
		}
		if err := c.judge(f(s.Now, s.Work)); err != nil || n.ReadOnly || !s.Work.Changed() {
			return nil, err
		}
		list, err := s.Statements()
		return list, unavailable(err)
	})
	if errors.Is(err, sqlrow.ErrGrew) {
		return errGrown
	}
	return err
}

// Read implements spendlimit.Store.
func (st spendStore) Read(ctx context.Context, q spendlimit.Query) (page spendlimit.Page, err error) {
	err = st.in.read(ctx, func(c *conn) error {
		if q.Kind == spendlimit.QueryEntries && c.drifts { // that takes two statements
			n := spendlimit.Need{Ledger: q.Ledger, Accounts: []string{q.Account}}
			if _, err := spendsql.Begin(ctx, c, st.queries, &n, spendsql.Grown{}, nil); err != nil {
				return unavailable(err)
			}
		}
		now, err := c.clock(ctx)
		if err == nil {
			page, err = spendsql.Read(ctx, c, st.queries, q, now)
		}
		return unavailable(err)
	})
	if err != nil {
		return spendlimit.Page{}, err
	}
	return page, nil
}
