package sqlite

import (
	"context"
	"errors"

	"github.com/stint-go/stint/adapters/internal/spendsql"
	"github.com/stint-go/stint/spendlimit"
)

// Spend returns the DB's store for spendlimit.
func (d *DB) Spend() spendlimit.Store { return spendStore{d} }

type spendStore struct{ d *DB }

// Step implements spendlimit.Store. The file has one writer, so the accounts of a step are locked from its beginning.
func (st spendStore) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	if n.ReadOnly {
		return st.d.read(ctx, func(c *conn) error {
			s, err := st.load(ctx, c, &n)
			if err == nil {
				err = f(s.Now, s.Work)
			}
			return err
		})
	}
	return st.d.write(ctx, func(c *conn) error {
		s, err := st.load(ctx, c, &n)
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
		return c.Run(ctx, list...)
	})
}

func (st spendStore) load(ctx context.Context, c *conn, n *spendlimit.Need) (*spendsql.Step, error) {
	var more []int64
	for {
		s, err := spendsql.Begin(ctx, c, st.d.queries, n, more)
		if err == nil {
			err = s.Load(st.d.clock().UnixMicro())
		}
		if !errors.Is(err, spendsql.ErrGrew) {
			return s, unavailable(err)
		}
		more = s.Grown() // each time more, and no more than there are
	}
}

// Read implements spendlimit.Store.
func (st spendStore) Read(ctx context.Context, q spendlimit.Query) (page spendlimit.Page, err error) {
	err = st.d.read(ctx, func(c *conn) error {
		page, err = spendsql.Read(ctx, c, st.d.queries, q, st.d.clock().UnixMicro())
		return unavailable(err)
	})
	if err != nil {
		return spendlimit.Page{}, err
	}
	return page, nil
}
