package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"

	"github.com/stint-go/stint/adapters/internal/migrate"
	"github.com/stint-go/stint/internal/fault"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

func migrations() []migrate.File { return migrate.Files(migrationFiles) }

const createMigrations = `CREATE TABLE IF NOT EXISTS stint_migration (
	version INTEGER PRIMARY KEY,
	name TEXT NOT NULL,
	checksum TEXT NOT NULL
) STRICT`

// Migrate creates the tables of this package, or brings those of an older release up to date, all of it or nothing. It
// may run in several processes at once. Tables of a newer release, or of an altered one, are ErrSchema and stay as they are.
func Migrate(ctx context.Context, db *sql.DB) error {
	if err := applyAll(ctx, db); err != nil {
		return fmt.Errorf("sqlite: migrate: %w", err)
	}
	return nil
}

func applyAll(ctx context.Context, db *sql.DB) error {
	if db == nil {
		return fmt.Errorf("%w: no database", fault.ErrInvalid)
	}
	d := &DB{db: db, writing: make(chan struct{}, 1), migrating: true}
	return d.write(ctx, func(c *conn) error {
		// The second writes nothing, but makes sure that this is a writer from now on.
		for _, text := range []string{createMigrations, reserveWriter} {
			if _, err := c.tx.ExecContext(c.ctx, text); err != nil {
				return d.failed(err)
			}
		}
		have, err := applied(c.ctx, c.tx)
		if err != nil {
			return d.failed(err)
		}
		for i, m := range migrations()[have:] {
			if err := ctx.Err(); err != nil {
				return unavailable(err)
			}
			_, err := c.tx.ExecContext(c.ctx, m.Text)
			if err == nil {
				_, err = c.tx.ExecContext(c.ctx, "INSERT INTO stint_migration VALUES (?, ?, ?)", have+i+1, m.Name, m.Checksum)
			}
			if err != nil {
				return d.failed(fmt.Errorf("%s: %w", m.Name, err))
			}
		}
		return nil
	})
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// applied counts the migrations in the database. Each must be one of ours.
func applied(ctx context.Context, q querier) (int, error) {
	rows, err := q.QueryContext(ctx, "SELECT version, name, checksum FROM stint_migration ORDER BY version") //nolint:rowserrcheck // Applied does
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	return migrate.Applied(rows, migrations())
}

// checkSchema finds out whether the tables are those of this release.
func checkSchema(ctx context.Context, db *sql.DB) error {
	var there int
	err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'stint_migration'").Scan(&there)
	if err != nil {
		return err
	}
	have := 0
	if there > 0 {
		if have, err = applied(ctx, db); err != nil {
			return err
		}
	}
	return migrate.Complete(have, migrations())
}
