package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/postgres"
	"github.com/stint-go/stint/adapters/sqlite/embedded"
	"github.com/stint-go/stint/spendlimit"
)

// database keeps the runs and the ledger. Its statements have parameters $1, $2 … in order, which both databases take.
type database interface {
	// Spend is the ledger's store, for calls that belong to no transaction.
	Spend() spendlimit.Store
	// commit calls book with the ledger's store inside a transaction, and runs the statement that it returns in the same
	// one: both are kept, or, when one fails, neither. An error of the database wraps ErrUnavailable or ErrUncertain, as
	// those of a ledger do.
	commit(ctx context.Context, book func(spendlimit.Store) (statement, error)) error
	// find reads one row; sql.ErrNoRows if there is none.
	find(ctx context.Context, query string, arg any, into ...any) error
	Close() error
}

// statement changes rows of runs.
type statement struct {
	text string
	args []any
}

const createRuns = `CREATE TABLE IF NOT EXISTS runs (
	id TEXT PRIMARY KEY,
	idempotency_key TEXT NOT NULL UNIQUE,
	account TEXT NOT NULL,
	state TEXT NOT NULL,
	estimated_cost BIGINT NOT NULL, -- nano-dollars
	cost BIGINT,
	created_us BIGINT NOT NULL
)`

const setUpTime = 30 * time.Second

// open opens a database and makes its tables. Errors don't have its place, which may contain a password.
func open(ctx context.Context, name storeName) (database, error) {
	ctx, cancel := context.WithTimeout(ctx, setUpTime)
	defer cancel()
	if name.kind == "postgres" {
		db, err := openPostgres(ctx, name.place)
		if err != nil {
			return nil, fmt.Errorf("-store: %w", err)
		}
		return db, nil
	}
	db, err := openSQLite(ctx, name.place)
	if err != nil {
		return nil, fmt.Errorf("-store: %w", err)
	}
	return db, nil
}

// unavailable says of a failure that nothing was applied.
func unavailable(err error) error {
	if err == nil || errors.Is(err, sql.ErrNoRows) {
		return err
	}
	return errors.Join(spendlimit.ErrUnavailable, err)
}

// uncertain says of a failed commit that it may have been applied.
func uncertain(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(spendlimit.ErrUncertain, err)
}

type sqliteDB struct {
	*embedded.DB
	// writing holds one token: a file has one writer, so that transactions wait here for each other.
	writing chan struct{}
}

func openSQLite(ctx context.Context, file string) (*sqliteDB, error) {
	db, err := embedded.Open(ctx, file, nil)
	if err != nil {
		return nil, err
	}
	if _, err := db.SQL().ExecContext(ctx, createRuns); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &sqliteDB{db, make(chan struct{}, 1)}, nil
}

func (d *sqliteDB) commit(ctx context.Context, book func(spendlimit.Store) (statement, error)) error {
	select {
	case d.writing <- struct{}{}:
		defer func() { <-d.writing }()
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
	tx, err := d.SQL().BeginTx(ctx, nil)
	if err != nil {
		return unavailable(err)
	}
	defer func() { _ = tx.Rollback() }()
	st, err := book(d.WithTx(tx).Spend())
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, st.text, st.args...); err != nil {
		return unavailable(err)
	}
	return uncertain(tx.Commit())
}

func (d *sqliteDB) find(ctx context.Context, query string, arg any, into ...any) error {
	return unavailable(d.SQL().QueryRowContext(ctx, query, arg).Scan(into...))
}

type postgresDB struct {
	*postgres.DB
	pool *pgxpool.Pool
}

func openPostgres(ctx context.Context, dsn string) (*postgresDB, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	// The error has the DSN; and so has the name of the database, if it is a part of a password with a slash that is not escaped.
	if err != nil || strings.Contains(cfg.ConnConfig.Database, "@") {
		return nil, errors.New("the DSN of Postgres can't be read")
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	d := &postgresDB{pool: pool}
	err = postgres.Migrate(ctx, pool, nil)
	if err == nil {
		d.DB, err = postgres.New(ctx, pool, nil)
	}
	if err == nil {
		err = d.createRuns(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return d, nil
}

const setUpLock = 0x72756e73 // any number: processes that make the table at once wait for each other

func (d *postgresDB) createRuns(ctx context.Context) error {
	return pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", setUpLock); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, createRuns)
		return err
	})
}

const maxTries = 5 // of a transaction that loses against others

func (d *postgresDB) commit(ctx context.Context, book func(spendlimit.Store) (statement, error)) error {
	for tries := 1; ; tries++ {
		if err := d.try(ctx, book); tries == maxTries || !lost(err) {
			return err
		}
	}
}

// lost tells whether a transaction was rolled back because of another one: begun anew it may succeed.
func lost(err error) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case "40001", "40P01", "23505": // serialization, deadlock; two made the same row
		return true
	}
	return false
}

func (d *postgresDB) try(ctx context.Context, book func(spendlimit.Store) (statement, error)) error {
	tx, err := d.pool.Begin(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	st, err := book(d.WithTx(tx).Spend())
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, st.text, st.args...); err != nil {
		return unavailable(err)
	}
	return uncertain(tx.Commit(ctx))
}

func (d *postgresDB) find(ctx context.Context, query string, arg any, into ...any) error {
	return unavailable(d.pool.QueryRow(ctx, query, arg).Scan(into...))
}

func (d *postgresDB) Close() error {
	err := d.DB.Close()
	d.pool.Close()
	return err
}
