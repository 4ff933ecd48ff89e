package sqlite

import (
	"context"

	"github.com/stint-go/stint/adapters/internal/poolsql"
	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/allocator"
)

// Pools returns the DB's store for allocator.
func (d *DB) Pools() allocator.Store { return poolStore{d} }

// Pools returns the store for allocator.
func (t *Tx) Pools() allocator.Store { return poolStore{t} }

func newPools() *poolsql.Queries {
	return poolsql.NewQueries(&dialect, poolsql.From{
		All:  "true",
		Mine: "r.pool_id = @pool",
		By:   func(index string) string { return "INDEXED BY " + tableName("alloc", index) },
		Heads: "CROSS JOIN {ticket} r WHERE r.pool_id = @pool AND r.gkey = k.gkey AND " +
			"r.seq IN (SELECT h.seq FROM {ticket} h WHERE h.pool_id = @pool AND h.gkey = k.gkey ORDER BY h.seq LIMIT $heads + 0)",
	})
}

// poolStore is a store in a DB or in a Tx.
type poolStore struct{ in place }

// Step implements allocator.Store. The file has one writer, so the pool is locked from the beginning.
func (st poolStore) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	load := func(c *conn) (*poolsql.Step, error) {
		s, err := poolsql.Load(ctx, c, c.d.pools, &n, false, func(int64) int64 { return c.d.clock().UnixMicro() })
		if err != nil {
			return nil, c.d.failed(err)
		}
		return s, f(s.Clock, s.Set)
	}
	if n.ReadOnly {
		return st.in.read(ctx, func(c *conn) error {
			_, err := load(c)
			return err
		})
	}
	return st.in.write(ctx, func(c *conn) error {
		s, err := load(c)
		if err != nil {
			return err
		}
		var list []sqlrow.Stmt
		if list, err = s.Statements(); err != nil || len(list) == 0 {
			return c.d.failed(err)
		}
		return c.Run(ctx, list...)
	})
}

// Page implements allocator.Store.
func (st poolStore) Page(ctx context.Context, q allocator.Query) (rows allocator.Rows, err error) {
	err = st.in.read(ctx, func(c *conn) error {
		rows, err = poolsql.Page(ctx, c, c.d.pools, q, false)
		return c.d.failed(err)
	})
	if err != nil {
		return allocator.Rows{}, err
	}
	return rows, nil
}
