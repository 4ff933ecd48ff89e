package sqlite

import (
	"context"
	"errors"

	"github.com/stint-go/stint/adapters/internal/spendsql"
	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/spendlimit"
)

// Spend returns the DB's store for spendlimit.
func (d *DB) Spend() spendlimit.Store { return spendStore{d} }

// spend is the queries of the store for spendlimit, and what it knows.
type spend struct {
	queries *spendsql.Queries
	apart   *spendsql.Queries // for transactions in which nobody looks whether what is known still holds, or which may be rolled back
	cache   spendsql.Cache
}

func newSpend() spend {
	q := spendsql.NewQueries(&dialect, spendsql.From{})
	return spend{queries: q, apart: q.Forgetful()}
}

// in returns what a step in the transaction uses.
func (s *spend) in(c *conn) (*spendsql.Queries, *spendsql.Cache) {
	if c.knows {
		return s.queries, &s.cache
	}
	return s.apart, nil
}

// spendStore is a store in a DB or in a Tx.
type spendStore struct{ in place }

// Step implements spendlimit.Store. The file has one writer, so the accounts of a step are locked from its beginning.
func (st spendStore) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	if n.ReadOnly {
		return st.in.read(ctx, func(c *conn) error {
			s, err := c.loadSpend(ctx, &n)
			if err == nil {
				err = f(s.Now, s.Work)
			}
			return err
		})
	}
	return st.in.write(ctx, func(c *conn) error {
		if err := c.recall(); err != nil {
			return err
		}
		s, err := c.loadSpend(ctx, &n)
		if err == nil {
			err = f(s.Now, s.Work)
		}
		if err != nil || !s.Work.Changed() {
			return err
		}
		list, err := s.Statements()
		if err != nil {
			return err
		}
		c.done = s.Remember
		return c.Run(ctx, list...)
	})
}

func (c *conn) loadSpend(ctx context.Context, n *spendlimit.Need) (*spendsql.Step, error) {
	queries, cache := c.d.spend.in(c)
	var more spendsql.Grown
	for {
		s, err := spendsql.Begin(ctx, c, queries, n, more, cache)
		if err == nil {
			err = s.Load(c.d.clock().UnixMicro())
		}
		if !errors.Is(err, sqlrow.ErrGrew) {
			return s, c.d.failed(err)
		}
		more = s.Grown() // each time more, and no more than there are
	}
}

// Read implements spendlimit.Store.
func (st spendStore) Read(ctx context.Context, q spendlimit.Query) (page spendlimit.Page, err error) {
	err = st.in.read(ctx, func(c *conn) error {
		queries, _ := c.d.spend.in(c)
		page, err = spendsql.Read(ctx, c, queries, q, c.d.clock().UnixMicro())
		return c.d.failed(err)
	})
	if err != nil {
		return spendlimit.Page{}, err
	}
	return page, nil
}
