package bench

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/ncruces/go-sqlite3/driver"

	"github.com/stint-go/stint/adapters/postgres"
	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/adapters/sqlite/embedded"
)

// SQLite is a ledger, and pools, in a file of its own.
type SQLite struct {
	Ledger
	Store *sqlite.DB
	DB    *sql.DB
	close []func() error
}

// OpenSQLite makes a file at path with synchronous=FULL, and a pair on each account.
func OpenSQLite(ctx context.Context, path string, accounts []string) (*SQLite, error) {
	db, err := embedded.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	s := &SQLite{DB: db.SQL(), close: []func() error{db.Close}}
	return s, s.begin(ctx, db.DB, accounts)
}

// OpenSQLiteNormal is OpenSQLite with synchronous=NORMAL, which may lose the last commits with the power.
func OpenSQLiteNormal(ctx context.Context, path string, accounts []string) (*SQLite, error) {
	source := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: url.Values{"_pragma": {
		"busy_timeout(10000)", "journal_mode(wal)", "synchronous(normal)", "foreign_keys(on)", "trusted_schema(off)",
	}}.Encode()}
	db, err := driver.Open(source.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	s := &SQLite{DB: db, close: []func() error{db.Close}}
	if err := sqlite.Migrate(ctx, db); err != nil {
		return s, err
	}
	d, err := sqlite.New(ctx, db, nil)
	if err != nil {
		return s, err
	}
	s.close = append(s.close, d.Close)
	return s, s.begin(ctx, d, accounts)
}

func (s *SQLite) begin(ctx context.Context, d *sqlite.DB, accounts []string) (err error) {
	s.Store = d
	if s.Ledger, err = NewLedger(ctx, d.Spend(), accounts, 1); err == nil {
		err = Touch(ctx, s, accounts)
	}
	return err
}

// Close closes the file.
func (s *SQLite) Close() error { return closeAll(s.close) }

// Postgres is a ledger, and pools, in a schema of its own.
type Postgres struct {
	Ledger
	Store *postgres.DB
	Pool  *pgxpool.Pool
}

// OpenPostgres makes a schema, and a pair on each account.
func OpenPostgres(ctx context.Context, dsn, schema string, accounts []string) (*Postgres, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	p := &Postgres{Pool: pool}
	if err := postgres.Migrate(ctx, pool, &postgres.Options{Schema: schema}); err != nil {
		return p, err
	}
	if err := p.join(ctx, schema, accounts); err != nil {
		return p, err
	}
	return p, Touch(ctx, p, accounts)
}

// JoinPostgres is OpenPostgres for one more process.
func JoinPostgres(ctx context.Context, dsn, schema string, accounts []string) (*Postgres, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	p := &Postgres{Pool: pool}
	return p, p.join(ctx, schema, accounts)
}

func (p *Postgres) join(ctx context.Context, schema string, accounts []string) error {
	d, err := postgres.New(ctx, p.Pool, &postgres.Options{Schema: schema})
	if err == nil {
		p.Store = d
		p.Ledger, err = NewLedger(ctx, d.Spend(), accounts, 1)
	}
	return err
}

// Close closes the connections.
func (p *Postgres) Close() error {
	p.Pool.Close()
	return nil
}

// DropSchema deletes what OpenPostgres made.
func DropSchema(ctx context.Context, dsn, schema string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+pgx.Identifier{schema}.Sanitize()+" CASCADE")
	return errors.Join(err, conn.Close(ctx))
}

func closeAll(list []func() error) (err error) {
	for i := len(list) - 1; i >= 0; i-- {
		err = errors.Join(err, list[i]())
	}
	return err
}
