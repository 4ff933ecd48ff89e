package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/stint-go/stint/adapters/internal/spendsql"
	"github.com/stint-go/stint/spendlimit"
)

// Spend returns the DB's store for spendlimit.
func (d *DB) Spend() spendlimit.Store { return spendStore{d} }

type spendStore struct{ d *DB }

// Tries of a step that lost against others, and of one whose accounts grew while it looked for them (C2).
const (
	maxLost  = 10
	maxGrown = 4
)

// Step implements spendlimit.Store.
func (st spendStore) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	var more []int64
	for losses, grown := 0, 0; ; {
		s, err := st.try(ctx, &n, more, f)
		switch {
		case errors.Is(err, spendsql.ErrGrew) && grown < maxGrown:
			grown++
			more = s.Grown()
		case lost(err) && losses < maxLost && ctx.Err() == nil:
			losses++
		case errors.Is(err, spendsql.ErrGrew):
			return fmt.Errorf("%w: holds on other accounts kept coming in", spendlimit.ErrUnavailable)
		default:
			return err
		}
	}
}

func (st spendStore) try(ctx context.Context, n *spendlimit.Need, more []int64, f func(int64, *spendlimit.Work) error) (*spendsql.Step, error) {
	how := beginWriting
	if n.ReadOnly {
		how = beginReading
	}
	c, err := st.d.begin(ctx, how)
	if err != nil {
		return nil, err
	}
	defer c.end(ctx)
	s, err := spendsql.Begin(ctx, c, st.d.queries, n, more)
	if err == nil {
		err = s.Load(st.now(s))
	}
	if err != nil {
		return s, err
	}
	if err := f(s.Now, s.Work); err != nil || n.ReadOnly || !s.Work.Changed() {
		return s, err
	}
	list, err := s.Statements()
	if err != nil {
		return s, err
	}
	return s, c.commit(ctx, list)
}

// now is the time after the locks.
func (st spendStore) now(s *spendsql.Step) int64 {
	if st.d.clock != nil {
		return st.d.clock().UnixMicro()
	}
	return s.Clock
}

// Read implements spendlimit.Store.
func (st spendStore) Read(ctx context.Context, q spendlimit.Query) (spendlimit.Page, error) {
	c, err := st.d.begin(ctx, beginReading)
	if err != nil {
		return spendlimit.Page{}, err
	}
	defer c.end(ctx)
	var now int64
	if st.d.clock != nil {
		now = st.d.clock().UnixMicro()
	} else if err := c.Run(ctx, spendsql.Stmt{SQL: st.d.dialect.Now, Each: func(r spendsql.Row) error { return r.Scan(&now) }}); err != nil {
		return spendlimit.Page{}, err
	}
	page, err := spendsql.Read(ctx, c, st.d.queries, q, now)
	if err != nil {
		return spendlimit.Page{}, unavailable(err)
	}
	return page, nil
}
