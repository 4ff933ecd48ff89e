package postgres

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/internal/migrate"
	"github.com/stint-go/stint/internal/fault"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

func migrations() []migrate.File { return migrate.Files(migrationFiles) }

// migrationLock is the key of the advisory lock under which tables are made: any number that others will hardly use.
const migrationLock int64 = 0x7374696e74 // "stint"

// Migrate creates the tables in their schema, or brings those of an older release up to date, all of it or nothing. It may
// run in several processes at once. Tables of a newer release, or of an altered one, are ErrSchema and stay as they are.
// It needs a role that may create the schema, or tables in it if it is there.
func Migrate(ctx context.Context, pool *pgxpool.Pool, o *Options) error {
	if err := applyAll(ctx, pool, o, migrations()); err != nil {
		return fmt.Errorf("postgres: migrate: %w", err)
	}
	return nil
}

func applyAll(ctx context.Context, pool *pgxpool.Pool, o *Options, list []migrate.File) error {
	if pool == nil {
		return fmt.Errorf("%w: no pool", fault.ErrInvalid)
	}
	schema, err := o.schema()
	if err != nil {
		return err
	}
	lent, err := pool.Acquire(ctx)
	if err != nil {
		return unavailable(err)
	}
	c := &pooled{conn{on: lent}, lent}
	defer c.end(ctx)
	// Not the isolation that the database may have as its default: others are seen that were waited for.
	if err := c.exec(ctx, beginWriting); err != nil {
		return err
	}
	if err := c.exec(ctx, "SELECT pg_advisory_xact_lock($1)", migrationLock); err != nil {
		return err
	}
	quoted := pgx.Identifier{schema}.Sanitize()
	if err := c.createSchema(ctx, schema, quoted); err != nil {
		return err
	}
	have, err := applied(ctx, lent, schema, list)
	if err != nil {
		return err
	}
	for i, m := range list[have:] {
		if err := c.exec(ctx, strings.ReplaceAll(m.Text, "{schema}", quoted)); err != nil {
			return fmt.Errorf("%s: %w", m.Name, err)
		}
		if err := c.exec(ctx, "INSERT INTO "+quoted+".migration VALUES ($1, $2, $3)", have+i+1, m.Name, m.Checksum); err != nil {
			return err
		}
	}
	return c.commit(ctx, nil)
}

// exec runs text that may be many statements, which only the simple protocol can.
func (c *pooled) exec(ctx context.Context, sql string, args ...any) error {
	_, err := c.lent.Exec(ctx, sql, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
	return unavailable(err)
}

// createSchema makes what is not there of the schema and the list of its migrations.
func (c *pooled) createSchema(ctx context.Context, schema, quoted string) error {
	var there bool // asking first, because IF NOT EXISTS needs the right to create one even where it exists
	err := c.lent.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)", schema).Scan(&there)
	if err != nil {
		return unavailable(err)
	}
	if !there {
		if err := c.exec(ctx, "CREATE SCHEMA "+quoted); err != nil {
			return err
		}
	}
	if there, err = exists(ctx, c.lent, schema); err != nil || there {
		return err
	}
	return c.exec(ctx, "CREATE TABLE "+quoted+".migration (version bigint PRIMARY KEY, name text NOT NULL, checksum text NOT NULL)")
}

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func exists(ctx context.Context, q querier, schema string) (there bool, err error) {
	err = q.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = $1 AND tablename = 'migration')", schema).Scan(&there)
	return there, unavailable(err)
}

// applied counts the migrations in the database. Each must be one of ours.
func applied(ctx context.Context, q querier, schema string, ours []migrate.File) (int, error) {
	rows, err := q.Query(ctx, "SELECT version, name, checksum FROM "+pgx.Identifier{schema, "migration"}.Sanitize()+" ORDER BY version")
	if err != nil {
		return 0, unavailable(err)
	}
	defer rows.Close()
	have, err := migrate.Applied(rows, ours)
	return have, unavailable(err)
}

// check finds out whether the tables are those of this release.
func check(ctx context.Context, q querier, schema string, ours []migrate.File) error {
	there, err := exists(ctx, q, schema)
	have := 0
	if err == nil && there {
		have, err = applied(ctx, q, schema, ours)
	}
	if err != nil {
		return err
	}
	return migrate.Complete(have, ours)
}
