package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/internal/poolsql"
	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/internal/fault"
)

// Options are the options of a DB; the zero value has all defaults.
type Options struct {
	// Schema is where the tables are; "" is "stint". Any name of at most 63 bytes without control characters will do, it is
	// quoted; the server keeps names that begin with pg_ to itself.
	Schema string

	// Clock is the time of every step; it must be safe for concurrent use. nil, the default, is the server's clock, on which
	// all processes agree without doing anything for it: a fleet must leave it nil. A clock is for simulations and tests. All
	// processes on the schema must then agree on the time by themselves, because an account's time never goes back: one clock
	// that is ahead moves it for all of them, for good.
	Clock func() time.Time
}

const defaultSchema = "stint"

func (o *Options) schema() (string, error) {
	if o == nil || o.Schema == "" {
		return defaultSchema, nil
	}
	switch {
	case len(o.Schema) > 63:
		return "", fmt.Errorf("%w: Schema of %d bytes, at most 63", fault.ErrInvalid, len(o.Schema))
	case !utf8.ValidString(o.Schema), strings.ContainsFunc(o.Schema, unicode.IsControl):
		return "", fmt.Errorf("%w: Schema is not UTF-8 text without control characters", fault.ErrInvalid)
	case strings.HasPrefix(o.Schema, "pg_"):
		return "", fmt.Errorf("%w: Schema %q: names in pg_ are the server's", fault.ErrInvalid, o.Schema)
	}
	return o.Schema, nil
}

// DB is the stores in one schema. Safe for concurrent use.
type DB struct {
	pool    *pgxpool.Pool
	clock   func() time.Time
	dialect *sqlrow.Dialect
	closed  atomic.Bool
	ids     blocks
	spend   spend
	pools   *poolsql.Queries
}

// New returns a DB on a pool. It checks the schema: a database that was not migrated is ErrSchema.
func New(ctx context.Context, pool *pgxpool.Pool, o *Options) (*DB, error) {
	if pool == nil {
		return nil, fmt.Errorf("postgres: new: %w: no pool", fault.ErrInvalid)
	}
	schema, err := o.schema()
	if err == nil {
		err = check(ctx, pool, schema, migrations())
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: new: %w", err)
	}
	d := &DB{pool: pool, dialect: dialectOf(schema)}
	if o != nil && o.Clock != nil {
		d.clock, d.dialect.Now = o.Clock, ""
	}
	d.spend, d.pools = newSpend(d.dialect), newPools(d.dialect)
	return d, nil
}

// Close makes every later call fail with ErrClosed. It leaves the pool open: that is the caller's.
func (d *DB) Close() error {
	d.closed.Store(true)
	return nil
}
