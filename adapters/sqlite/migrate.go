package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"

	"github.com/stint-go/stint/spendlimit"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// migration is one file of migrations/: they are numbered from 1 on, and never change once released.
type migration struct{ name, text, checksum string }

func migrations() []migration {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql") // in order of their names
	if err != nil {
		panic(err)
	}
	list := make([]migration, len(names))
	for i, name := range names {
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		list[i] = migration{name[len("migrations/"):], string(text), hex.EncodeToString(sum[:])}
	}
	return list
}

const createMigrations = `CREATE TABLE IF NOT EXISTS stint_migration (
	version INTEGER PRIMARY KEY,
	name TEXT NOT NULL,
	checksum TEXT NOT NULL
) STRICT`

// Migrate creates the tables of this package, or brings those of an older release up to date, all of it or nothing. It
// may run in several processes at once. Tables of a newer release, or of an altered one, are ErrSchema and stay as they are.
func Migrate(ctx context.Context, db *sql.DB) error {
	if err := migrate(ctx, db); err != nil {
		return fmt.Errorf("sqlite: migrate: %w", err)
	}
	return nil
}

func migrate(ctx context.Context, db *sql.DB) error {
	if db == nil {
		return fmt.Errorf("%w: no database", spendlimit.ErrInvalid)
	}
	d := &DB{db: db, writing: make(chan struct{}, 1)}
	return d.write(ctx, func(c *conn) error {
		// The second writes nothing, but makes sure that this is a writer from now on.
		for _, text := range []string{createMigrations, "DELETE FROM stint_migration WHERE 0"} {
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
			_, err := c.tx.ExecContext(c.ctx, m.text)
			if err == nil {
				_, err = c.tx.ExecContext(c.ctx, "INSERT INTO stint_migration VALUES (?, ?, ?)", have+i+1, m.name, m.checksum)
			}
			if err != nil {
				return d.failed(fmt.Errorf("%s: %w", m.name, err))
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
	rows, err := q.QueryContext(ctx, "SELECT version, name, checksum FROM stint_migration ORDER BY version")
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	ours, have := migrations(), 0
	for rows.Next() {
		var version int
		var m migration
		if err := rows.Scan(&version, &m.name, &m.checksum); err != nil {
			return 0, err
		}
		have++
		if version != have || have <= len(ours) && (m.name != ours[have-1].name || m.checksum != ours[have-1].checksum) {
			return 0, fmt.Errorf("%w: migration %d (%s) is not the one of this release", spendlimit.ErrSchema, version, m.name)
		}
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if have > len(ours) {
		return 0, &spendlimit.SchemaError{Have: have, Want: len(ours)}
	}
	return have, nil
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
	if want := len(migrations()); have != want {
		return fmt.Errorf("%w: call Migrate first", &spendlimit.SchemaError{Have: have, Want: want})
	}
	return nil
}
