package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/internal/spendsql"
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
	queries *spendsql.Queries
	apart   *spendsql.Queries // for transactions of the caller
	closed  atomic.Bool
	ids     blocks
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
	d.queries = spendsql.NewQueries(d.dialect, spendFrom)
	d.apart = d.queries.Forgetful()
	return d, nil
}

// Close makes every later call fail with ErrClosed. It leaves the pool open: that is the caller's.
func (d *DB) Close() error {
	d.closed.Store(true)
	return nil
}

// conn is a connection inside a transaction, or on the way into one: statements wait for the next that has an answer.
type conn struct {
	d    *DB
	on   sender
	wait []sqlrow.Stmt
}

// sender is a connection, or a transaction on it.
type sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// pooled is a connection that the pool lent for one transaction.
type pooled struct {
	conn
	lent *pgxpool.Conn
}

const (
	beginWriting = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
	beginReading = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	// Plans are made when the tables are still empty, and kept: without the first they would read whole tables for ever, and
	// without the second small steps would be planned anew each time.
	byIndex = "SELECT set_config('enable_seqscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)"
	// The server ends by itself what has outlived its step: a client that froze, or that the network took, keeps no lock.
	byIndexInTime = byIndex + ", set_config('statement_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $1, true)"
)

func (d *DB) begin(ctx context.Context, how string) (*pooled, error) {
	if d.closed.Load() {
		return nil, fault.ErrClosed
	}
	lent, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	return &pooled{conn{d: d, on: lent, wait: []sqlrow.Stmt{{SQL: how}, settings(ctx)}}, lent}, nil
}

// settings are those of a transaction that must end with ctx. A server that ends a statement keeps the connection, which a
// context that ends does not, so the server gets a little less time.
func settings(ctx context.Context) sqlrow.Stmt {
	deadline, ok := ctx.Deadline()
	if !ok {
		return sqlrow.Stmt{SQL: byIndex}
	}
	left := max(time.Until(deadline)*9/10, time.Millisecond)
	return sqlrow.Stmt{SQL: byIndexInTime, Args: []any{strconv.FormatInt(min(left.Milliseconds()+1, 1<<31-1), 10)}}
}

// end gives the connection back. One that is inside a transaction is rolled back; where that fails, or there is no time
// for it, the pool closes the connection, and with it the transaction ends.
func (c *pooled) end(ctx context.Context) {
	if c.lent.Conn().PgConn().TxStatus() != 'I' && !c.lent.Conn().IsClosed() && ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(ctx, rollbackTimeout)
		defer cancel()
		_, _ = c.lent.Exec(ctx, "ROLLBACK")
	}
	c.lent.Release()
}

const rollbackTimeout = 5 * time.Second

// Run implements sqlrow.Conn.
func (c *conn) Run(ctx context.Context, list ...sqlrow.Stmt) error {
	list = append(c.wait, list...)
	c.wait = nil
	_, err := c.send(ctx, list)
	return unavailable(err)
}

// send runs statements in one round trip. It returns the tag of the last one, if all were answered; an error may still
// have come after it.
func (c *conn) send(ctx context.Context, list []sqlrow.Stmt) (last pgconn.CommandTag, err error) {
	batch := new(pgx.Batch)
	for _, st := range list {
		batch.Queue(st.SQL, st.Args...)
	}
	results := c.on.SendBatch(ctx, batch)
	for _, st := range list {
		if last, err = receive(results, st); err != nil {
			_ = results.Close() // it would say the same again
			return pgconn.CommandTag{}, err
		}
	}
	return last, results.Close()
}

func receive(results pgx.BatchResults, st sqlrow.Stmt) (pgconn.CommandTag, error) {
	if st.Each == nil {
		return results.Exec()
	}
	rows, err := results.Query()
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := st.Each(rows); err != nil {
			return pgconn.CommandTag{}, err
		}
	}
	return rows.CommandTag(), rows.Err()
}

// commit sends the last statements and COMMIT. It does not say that nothing was applied unless that is sure.
func (c *pooled) commit(ctx context.Context, list []sqlrow.Stmt) error {
	list = append(append(c.wait, list...), sqlrow.Stmt{SQL: "COMMIT"})
	c.wait = nil
	last, err := c.send(ctx, list)
	switch {
	case last.String() == "COMMIT":
		return nil // whatever came after it: a server that shuts down answers first
	case err == nil:
		return fmt.Errorf("%w: the server answered COMMIT with %s", fault.ErrUnavailable, last)
	case undone(err), !c.lent.Conn().IsClosed() && c.lent.Conn().PgConn().TxStatus() != 'I':
		return unavailable(err) // it was refused, or has not left
	}
	return errors.Join(fault.ErrUncertain, err)
}

// undone tells of a failure after COMMIT was sent whether it surely was not applied. An error that ends one statement
// ends its transaction; one that ends the connection may come from a pooler, which knows no more than we do.
func undone(err error) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return pgconn.SafeToRetry(err) // nothing was sent
	}
	return e.SeverityUnlocalized == "ERROR" && !strings.HasPrefix(e.Code, "08") && e.Code != "40003"
}

// blocks hands out ids from blocks that only this process has.
type blocks struct {
	mu         sync.Mutex
	from, upto int64
}

const blockSize = 1000 // as the sequence is made

// take takes up to n ids, fewer at the end of a block.
func (b *blocks) take(ids []int64, n int) []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ; n > 0 && b.from < b.upto; n-- {
		ids = append(ids, b.from)
		b.from++
	}
	return ids
}

// put brings the rest of a block that was fetched, unless another one came first: ids are plenty.
func (b *blocks) put(from, upto int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.from == b.upto {
		b.from, b.upto = from, upto
	}
}

// forget drops the block: a server that crashed may give it out again, if no step of its has been committed before.
func (b *blocks) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.from = b.upto
}

// NewIDs implements sqlrow.Conn. A sequence is not rolled back, so a block stays ours whatever becomes of the transaction.
func (c *conn) NewIDs(ctx context.Context, t *sqlrow.Table, n int) ([]int64, error) {
	ids := c.d.ids.take(make([]int64, 0, n), n)
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
		c.d.ids.put(upto, first+blockSize)
	}
	return ids, nil
}

// unavailable says of a failure that nothing was applied.
func unavailable(err error) error {
	for _, known := range []error{
		nil, fault.ErrUnavailable, fault.ErrUncertain, fault.ErrClosed, fault.ErrInvalid, fault.ErrSchema, sqlrow.ErrGrew,
	} {
		if errors.Is(err, known) {
			return err
		}
	}
	switch code(err) {
	case "42P01", "42703", "3F000": // table, column, schema is missing
		return errors.Join(fault.ErrSchema, err)
	}
	return errors.Join(fault.ErrUnavailable, err)
}

// code is the SQLSTATE of an error, if the server sent it.
func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Tries of a step that loses against others.
const maxTries = 8

// again tells whether the n-th try of a step, from 0 on, surely was not applied and may succeed now, and waits a little before.
func (d *DB) again(ctx context.Context, n int, err error) bool {
	if n+1 >= maxTries || errors.Is(err, fault.ErrUncertain) {
		return false
	}
	code := code(err)
	switch {
	case code == "40001", code == "40P01": // serialization, deadlock
	case code == "23505": // two processes made the same row
		d.ids.forget()
	case errors.Is(err, sqlrow.ErrGone): // somebody pruned it, or the rows are damaged
		if n > 1 {
			return false
		}
	case code == "0A000": // the tables were changed under a prepared statement, which pgx makes anew
		if n > 0 {
			return false
		}
	default:
		return false
	}
	most := time.Duration(min(250, 20<<n)) * time.Millisecond
	timer := time.NewTimer(most/2 + rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
