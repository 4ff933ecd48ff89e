package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/internal/spendsql"
	"github.com/stint-go/stint/spendlimit"
)

// Options are the options of a DB; the zero value has all defaults.
type Options struct {
	// Schema is where the tables are; "" is "stint". Any name of at most 63 bytes will do, it is quoted.
	Schema string

	clock func() time.Time // for tests; nil is the server's
}

const defaultSchema = "stint"

func (o *Options) schema() (string, error) {
	if o == nil || o.Schema == "" {
		return defaultSchema, nil
	}
	if len(o.Schema) > 63 {
		return "", fmt.Errorf("%w: Schema of %d bytes, at most 63", spendlimit.ErrInvalid, len(o.Schema))
	}
	return o.Schema, nil
}

// DB is the stores in one schema. Safe for concurrent use.
type DB struct {
	pool    *pgxpool.Pool
	clock   func() time.Time
	dialect *spendsql.Dialect
	queries *spendsql.Queries
	closed  atomic.Bool
	ids     blocks
}

// New returns a DB on a pool. It checks the schema: a database that was not migrated is ErrSchema.
func New(ctx context.Context, pool *pgxpool.Pool, o *Options) (*DB, error) {
	if pool == nil {
		return nil, fmt.Errorf("postgres: new: %w: no pool", spendlimit.ErrInvalid)
	}
	schema, err := o.schema()
	if err == nil {
		err = check(ctx, pool, schema)
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: new: %w", err)
	}
	d := &DB{pool: pool, dialect: dialectOf(schema)}
	if o != nil && o.clock != nil {
		d.clock, d.dialect.Now = o.clock, ""
	}
	d.queries = spendsql.NewQueries(d.dialect)
	d.ids.next = "SELECT nextval('" + literal(d.dialect.Name("ids")) + "')"
	return d, nil
}

// Close makes every later call fail with ErrClosed. It leaves the pool open: that is the caller's.
func (d *DB) Close() error {
	d.closed.Store(true)
	return nil
}

// conn is a connection in a transaction, or on the way to one: statements wait for the next that has an answer.
type conn struct {
	d    *DB
	one  *pgxpool.Conn
	wait []spendsql.Stmt
}

const (
	beginWriting = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	beginReading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	// Plans are made when the tables are still empty, and kept: without this they would read whole tables for ever.
	byIndex = "SET LOCAL enable_seqscan = off"
)

func (d *DB) begin(ctx context.Context, how string) (*conn, error) {
	if d.closed.Load() {
		return nil, spendlimit.ErrClosed
	}
	one, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	return &conn{d: d, one: one, wait: []spendsql.Stmt{{SQL: how}, {SQL: byIndex}}}, nil
}

// end gives the connection back. One that is inside a transaction is rolled back; where that fails the pool closes it.
func (c *conn) end(ctx context.Context) {
	if status := c.one.Conn().PgConn().TxStatus(); status != 'I' && !c.one.Conn().IsClosed() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_, _ = c.one.Exec(ctx, "ROLLBACK")
	}
	c.one.Release()
}

const rollbackTimeout = 5 * time.Second

// Run implements spendsql.Conn.
func (c *conn) Run(ctx context.Context, list ...spendsql.Stmt) error {
	list = append(c.wait, list...)
	c.wait = nil
	return unavailable(c.send(ctx, list))
}

// send runs statements in one round trip.
func (c *conn) send(ctx context.Context, list []spendsql.Stmt) (err error) {
	batch := new(pgx.Batch)
	for _, st := range list {
		batch.Queue(st.SQL, st.Args...)
	}
	results := c.one.SendBatch(ctx, batch)
	defer func() { err = errors.Join(err, results.Close()) }()
	for _, st := range list {
		if err := receive(results, st); err != nil {
			return err
		}
	}
	return nil
}

func receive(results pgx.BatchResults, st spendsql.Stmt) error {
	if st.Each == nil {
		_, err := results.Exec()
		return err
	}
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := st.Each(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// commit sends the last statements and COMMIT. It does not say that nothing was applied unless that is sure.
func (c *conn) commit(ctx context.Context, list []spendsql.Stmt) error {
	list = append(append(c.wait, list...), spendsql.Stmt{SQL: "COMMIT"})
	c.wait = nil
	err := c.send(ctx, list)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused), c.one.Conn().PgConn().TxStatus() == 'E':
		return errors.Join(spendlimit.ErrUnavailable, err) // the server answered, and rolls back
	}
	return errors.Join(spendlimit.ErrUncertain, err)
}

// blocks hands out ids from blocks that only this process has.
type blocks struct {
	next string // a SELECT of the first id of another block

	mu         sync.Mutex
	from, upto int64
}

const blockSize = 1000 // as the sequence is made

// NewIDs implements spendsql.Conn.
func (c *conn) NewIDs(ctx context.Context, _ *spendsql.Table, n int) ([]int64, error) {
	b := &c.d.ids
	b.mu.Lock()
	defer b.mu.Unlock()
	ids := make([]int64, 0, n)
	for len(ids) < n {
		if b.from == b.upto {
			var first int64
			err := c.Run(ctx, spendsql.Stmt{SQL: b.next, Each: func(r spendsql.Row) error { return r.Scan(&first) }})
			if err != nil {
				return nil, err
			}
			b.from, b.upto = first, first+blockSize
		}
		ids = append(ids, b.from)
		b.from++
	}
	return ids, nil
}

// unavailable says of a failure that nothing was applied.
func unavailable(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, spendlimit.ErrUnavailable), errors.Is(err, spendlimit.ErrClosed), errors.Is(err, spendlimit.ErrInvalid), errors.Is(err, spendlimit.ErrSchema):
		return err
	}
	return errors.Join(spendlimit.ErrUnavailable, err)
}

// lost tells whether the transaction lost against another one: the same once more may succeed.
func lost(err error) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case "40001", "40P01", "23505": // serialization, deadlock; two processes made the same row
		return true
	}
	return false
}
