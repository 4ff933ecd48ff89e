package spendsql

import (
	"context"
	"fmt"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/internal/fault"
	"github.com/stint-go/stint/spendlimit"
)

// Read answers a query. The connection gives all statements one view of the data; clock is in microseconds.
func Read(ctx context.Context, conn sqlrow.Conn, q *Queries, query spendlimit.Query, clock int64) (spendlimit.Page, error) {
	switch query.Kind {
	case spendlimit.QueryHolds:
		return readKeys(ctx, conn, q, query)
	case spendlimit.QueryDue:
		var page spendlimit.Page
		err := conn.Run(ctx, sqlrow.Stmt{SQL: q.listDue, Args: []any{query.Ledger, clock, query.Max}, Each: func(r sqlrow.Row) error {
			var expires int64
			var key string
			err := r.Scan(&expires, &key)
			page.Keys = append(page.Keys, key)
			return err
		}})
		return page, err
	case spendlimit.QueryEntries:
		return readEntries(ctx, conn, q, query)
	}
	return spendlimit.Page{}, fmt.Errorf("%w: unknown query", fault.ErrInvalid)
}

func readKeys(ctx context.Context, conn sqlrow.Conn, q *Queries, query spendlimit.Query) (spendlimit.Page, error) {
	var page spendlimit.Page
	st := sqlrow.Stmt{
		SQL: q.listHolds, Args: []any{query.Ledger, query.AfterKey, query.Live, query.Max + 1, q.d.List(liveStates)},
		Each: func(r sqlrow.Row) error {
			var key string
			err := r.Scan(&key)
			page.Keys = append(page.Keys, key)
			return err
		},
	}
	if query.Account != "" {
		st.SQL, st.Args[4] = q.listHoldsOn, query.Account
	}
	err := conn.Run(ctx, st)
	if len(page.Keys) > query.Max {
		page.Keys, page.More = page.Keys[:query.Max], true
	}
	return page, err
}

func readEntries(ctx context.Context, conn sqlrow.Conn, q *Queries, query spendlimit.Query) (spendlimit.Page, error) {
	var page spendlimit.Page
	s := newStep(ctx, conn, q, &spendlimit.Need{Ledger: query.Ledger})
	j := new(journal)
	err := s.run(s.stmt(q.listEntries, func(r sqlrow.Row) error { return s.readEntry(r, j, &j.account) }, query.Ledger, query.Account, query.AfterSeq, query.Max+1))
	if err != nil || len(j.entries) == 0 {
		return page, err
	}
	if len(j.entries) > query.Max {
		j.entries, page.More = j.entries[:query.Max], true
	}
	if err := s.readPointedAt(); err != nil {
		return page, err
	}
	if err := s.readAccounts(j.account); err != nil {
		return page, err
	}
	for _, e := range s.linkEntries(j) {
		page.Entries = append(page.Entries, e.Detach())
	}
	return page, nil
}
