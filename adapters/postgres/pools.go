package postgres

import (
	"context"

	"github.com/stint-go/stint/adapters/internal/poolsql"
	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/allocator"
)

// Pools returns the DB's store for allocator.
func (d *DB) Pools() allocator.Store { return poolStore{d, d.pools} }

// Pools returns the store for allocator.
func (t *Tx) Pools() allocator.Store { return poolStore{t, t.d.pools} }

func newPools(d *sqlrow.Dialect) *poolsql.Queries {
	return poolsql.NewQueries(d, poolsql.From{
		Mine: "r.pool_id + 0 = @pool",           // the sum has no index
		By:   func(string) string { return "" }, // each statement leaves one index to choose from
		// Each index by itself: it is the first column of the key.
		All: "r.idx = ANY(ARRAY(SELECT generate_series(0, 9999)))",
		// A text that is no list, which a damaged row may have, must not end the step.
		OfEpochs: "r.idx = ANY(ARRAY(SELECT n.value::bigint FROM {lease} l, json_array_elements_text(" +
			`CASE WHEN l.slots ~ '^\[[0-9]{1,5}(,[0-9]{1,5})*\]$' THEN l.slots ELSE '[]' END::json) n WHERE l.epoch = ANY($epochs) AND l.pool_id = @pool))`,
		Heads: "CROSS JOIN LATERAL (SELECT * FROM {ticket} h WHERE h.pool_id = @pool AND h.gkey = k.gkey ORDER BY h.seq LIMIT $heads + 0) AS r",
	})
}

// poolStore is a store in a DB or in a Tx.
type poolStore struct {
	in      place
	queries *poolsql.Queries
}

// Step implements allocator.Store.
func (st poolStore) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	return st.in.step(ctx, n.ReadOnly, func(c *conn) ([]sqlrow.Stmt, error) {
		s, err := poolsql.Load(ctx, c, st.queries, &n, !n.ReadOnly || c.drifts, c.d.now)
		if err != nil {
			return nil, unavailable(err)
		}
		if err := c.judge(f(s.Clock, s.Set)); err != nil || n.ReadOnly {
			return nil, err
		}
		list, err := s.Statements()
		return list, unavailable(err)
	})
}

// Page implements allocator.Store.
func (st poolStore) Page(ctx context.Context, q allocator.Query) (rows allocator.Rows, err error) {
	err = st.in.read(ctx, func(c *conn) error {
		rows, err = poolsql.Page(ctx, c, st.queries, q, c.drifts)
		return unavailable(err)
	})
	if err != nil {
		return allocator.Rows{}, err
	}
	return rows, nil
}
