package postgres

import (
	"context"
	"sync"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
)

// blocks hands out ids from blocks that only this process has, one for each set of tables. The zero value has none.
type blocks struct {
	mu sync.Mutex
	of map[sqlrow.Set]*block
}

type block struct{ from, upto int64 }

const blockSize = 1000 // as the sequence is made

// take takes up to n ids, fewer at the end of a block.
func (b *blocks) take(set sqlrow.Set, ids []int64, n int) []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	for left := b.block(set); n > 0 && left.from < left.upto; n-- {
		ids = append(ids, left.from)
		left.from++
	}
	return ids
}

// put brings the rest of a block that was fetched, unless another one came first: ids are plenty.
func (b *blocks) put(set sqlrow.Set, rest block) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if left := b.block(set); left.from == left.upto {
		*left = rest
	}
}

func (b *blocks) block(set sqlrow.Set) *block {
	left := b.of[set]
	if left == nil {
		if b.of == nil {
			b.of = map[sqlrow.Set]*block{}
		}
		left = new(block)
		b.of[set] = left
	}
	return left
}

// forget drops the blocks: a server that crashed may give one out again, if no step of its has been committed before.
func (b *blocks) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.of)
}

// NewIDs implements sqlrow.Conn. Each set of tables has a sequence, named ids; a sequence is not rolled back, so a block stays ours
// whatever becomes of the transaction.
func (c *conn) NewIDs(ctx context.Context, t *sqlrow.Table, n int) ([]int64, error) {
	ids := c.d.ids.take(t.Set, make([]int64, 0, n), n)
	for len(ids) < n {
		var first int64
		next := sqlrow.Stmt{SQL: "SELECT nextval($1::text::regclass)", Args: []any{c.d.dialect.Name(t.Set, "ids")}}
		next.Each = func(r sqlrow.Row) error { return r.Scan(&first) }
		if err := c.Run(ctx, next); err != nil {
			return nil, err
		}
		upto := first + min(int64(n-len(ids)), blockSize)
		for id := first; id < upto; id++ {
			ids = append(ids, id)
		}
		c.d.ids.put(t.Set, block{upto, first + blockSize})
	}
	return ids, nil
}
