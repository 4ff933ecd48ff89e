package bench

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// transaction runs a function in a transaction of its own.
type transaction func(ctx context.Context, f func(poolCall) error) error

// poolTwin is a Subject, and with renewals another one.
type poolTwin struct {
	texts *poolTexts
	pools map[string]int64 // ids by name
	in    transaction
	free  chan int64 // epochs of leases to renew; nil: a pair acquires and releases
}

// Pair implements Subject.
func (t poolTwin) Pair(ctx context.Context, key string, names []string) error {
	pool := t.pools[names[0]]
	if t.free != nil {
		return t.renewTwice(ctx, pool)
	}
	var epoch int64
	err := t.in(ctx, func(c poolCall) (err error) {
		epoch, err = t.texts.acquire(c, pool, key)
		return err
	})
	if err == nil {
		err = t.in(ctx, func(c poolCall) error { return t.texts.release(c, pool, epoch) })
	}
	return err
}

func (t poolTwin) renewTwice(ctx context.Context, pool int64) error {
	epoch := <-t.free
	defer func() { t.free <- epoch }()
	renew := func(c poolCall) error { return t.texts.prolong(c, pool, epoch) }
	err := t.in(ctx, renew)
	if err == nil {
		err = t.in(ctx, renew)
	}
	return err
}

// know looks up the ids of pools.
func (t *poolTwin) know(id func(name string, id *int64) error, names []string) error {
	t.pools = map[string]int64{}
	for _, name := range names {
		var found int64
		if err := id(name, &found); err != nil {
			return err
		}
		t.pools[name] = found
	}
	return nil
}

// hold takes so many leases of the first pool to renew.
func (t *poolTwin) hold(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	free := make(chan int64, n)
	for i := range n {
		err := t.in(ctx, func(c poolCall) error {
			epoch, err := t.texts.acquire(c, t.pools[Accounts(1)[0]], "renewed-twin-"+string(rune('A'+i)))
			free <- epoch
			return err
		})
		if err != nil {
			return err
		}
	}
	t.free = free
	return nil
}

// SQLitePoolTwin makes a transaction of every call with BeginTx, prepared statements and Commit. A mutex spares it the fight for the file.
type SQLitePoolTwin struct {
	poolTwin
	close []func() error
}

// NewSQLitePoolTwin returns a twin on a file in which [Pools] of these names have made a pair each. With leases its pairs are
// renewals of so many leases of the first one.
func NewSQLitePoolTwin(ctx context.Context, db *sql.DB, names []string, leases int) (*SQLitePoolTwin, error) {
	t := &SQLitePoolTwin{}
	var mu sync.Mutex
	prepared := map[string]*sql.Stmt{}
	var err error
	t.texts = newPoolTexts(func(template string) string {
		text := strings.ReplaceAll(tableMark.ReplaceAllString(template, "stint_alloc_$1"), "$", "+?")
		st, e := db.PrepareContext(ctx, text) //nolint:sqlclosecheck // Close does
		if err = errors.Join(err, e); e == nil {
			prepared[text] = st
			t.close = append(t.close, st.Close)
		}
		return text
	})
	if err == nil {
		err = t.know(func(name string, id *int64) error {
			return db.QueryRowContext(ctx, "SELECT id FROM stint_alloc_pool WHERE name = ?", name).Scan(id)
		}, names)
	}
	t.in = func(ctx context.Context, f func(poolCall) error) error {
		mu.Lock()
		defer mu.Unlock()
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		c := &sqlitePoolCall{ctx: ctx, tx: tx, prepared: prepared}
		if err := errors.Join(f(c), c.err); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
	if err == nil {
		err = t.hold(ctx, leases)
	}
	return t, err
}

// Close closes the statements.
func (t *SQLitePoolTwin) Close() error { return closeAll(t.close) }

type sqlitePoolCall struct {
	ctx      context.Context
	tx       *sql.Tx
	prepared map[string]*sql.Stmt
	err      error
}

func (c *sqlitePoolCall) get(text string, args []any, into ...any) {
	if c.err == nil {
		c.err = c.tx.StmtContext(c.ctx, c.prepared[text]).QueryRowContext(c.ctx, args...).Scan(into...) //nolint:sqlclosecheck // the transaction does
	}
}

func (c *sqlitePoolCall) exec(text string, args ...any) {
	if c.err == nil {
		_, c.err = c.tx.StmtContext(c.ctx, c.prepared[text]).ExecContext(c.ctx, args...) //nolint:sqlclosecheck // the transaction does
	}
}

func (c *sqlitePoolCall) read() error { return c.err }

// PostgresPoolTwin makes a transaction of every call that locks the pool first. It takes two round trips: one to lock and read, one to write
// and commit.
type PostgresPoolTwin struct {
	poolTwin
	conns *pgxpool.Pool
}

// NewPostgresPoolTwin is like [NewSQLitePoolTwin], over 64 connections.
func NewPostgresPoolTwin(ctx context.Context, dsn, schema string, names []string, leases int) (*PostgresPoolTwin, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 64
	config.ConnConfig.RuntimeParams["enable_seqscan"] = "off" // plans are made while the tables are small
	t := &PostgresPoolTwin{}
	if t.conns, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	quoted := strings.ReplaceAll(pgx.Identifier{schema}.Sanitize(), "$", "$$")
	t.texts = newPoolTexts(func(template string) string { return tableMark.ReplaceAllString(template, quoted+".alloc_$1") })
	t.texts.pool += " FOR UPDATE"
	err = t.know(func(name string, id *int64) error {
		return t.conns.QueryRow(ctx, "SELECT id FROM "+pgx.Identifier{schema, "alloc_pool"}.Sanitize()+" WHERE name = $1", name).Scan(id)
	}, names)
	if err != nil {
		return t, err
	}
	t.in = func(ctx context.Context, f func(poolCall) error) error {
		conn, err := t.conns.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		x := &postgresCall{ctx: ctx, conn: conn}
		x.batch.Queue("BEGIN")
		if err = f(postgresPoolCall{x}); err == nil {
			x.batch.Queue("COMMIT")
			err = x.send()
		}
		if err != nil {
			_, _ = conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
		}
		return err
	}
	return t, t.hold(ctx, leases)
}

// Close closes the connections.
func (t *PostgresPoolTwin) Close() error {
	t.conns.Close()
	return nil
}

type postgresPoolCall struct{ *postgresCall }

func (c postgresPoolCall) exec(text string, args ...any) { c.batch.Queue(text, args...) }
func (c postgresPoolCall) read() error                   { return c.send() }
