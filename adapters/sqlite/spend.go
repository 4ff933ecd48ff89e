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

// spendStore is a store in a DB or in a Tx.
type spendStore struct {
	in interface {
		// read runs f in a transaction that sees one state of the data; write runs f as the one writer, and keeps what it
		// wrote unless it fails.
		read(ctx context.Context, f func(*conn) error) error
		write(ctx context.Context, f func(*conn) error) error
	}
}

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
	var more spendsql.Grown
	for {
		s, err := spendsql.Begin(ctx, c, c.queries, n, more, c.cache)
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
		page, err = spendsql.Read(ctx, c, c.queries, q, c.d.clock().UnixMicro())
		return c.d.failed(err)
	})
	if err != nil {
		return spendlimit.Page{}, err
	}
	return page, nil
}
