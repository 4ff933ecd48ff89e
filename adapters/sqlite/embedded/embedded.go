// Package embedded opens a SQLite file with everything set right, on a driver that needs no cgo.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"

	"database/sql"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/spendlimit"
)

// DB is a file with its connections.
type DB struct {
	*sqlite.DB
	sql *sql.DB
}

// Open opens the file at path, and makes it if there is none: readable by its owner alone, with write-ahead logging,
// every commit on the disk before it is acknowledged (synchronous=FULL), and up to 10 s of patience with other processes.
// It brings the tables up to date ([sqlite.Migrate]).
func Open(ctx context.Context, path string, o *sqlite.Options) (*DB, error) {
	db, err := open(ctx, path, o)
	if err != nil {
		return nil, fmt.Errorf("embedded: open %s: %w", path, err)
	}
	return db, nil
}

func open(ctx context.Context, path string, o *sqlite.Options) (*DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, errors.Join(spendlimit.ErrUnavailable, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) // SQLite gives its other files the mode of this one
	if err != nil {
		return nil, errors.Join(spendlimit.ErrUnavailable, err)
	}
	if err := f.Close(); err != nil {
		return nil, errors.Join(spendlimit.ErrUnavailable, err)
	}
	pool, err := driver.Open(source(path))
	if err != nil {
		return nil, errors.Join(spendlimit.ErrUnavailable, err)
	}
	pool.SetMaxOpenConns(max(4, runtime.NumCPU()))
	if err := sqlite.Migrate(ctx, pool); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	db, err := sqlite.New(ctx, pool, o)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return &DB{db, pool}, nil
}

func source(path string) string {
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	u.RawQuery = url.Values{"_pragma": {
		"busy_timeout(10000)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(on)", "trusted_schema(off)",
	}}.Encode()
	return u.String()
}

// SQL returns the connections, for the caller's own tables in the same file.
func (d *DB) SQL() *sql.DB { return d.sql }

// Close closes the DB and its connections.
func (d *DB) Close() error { return errors.Join(d.DB.Close(), d.sql.Close()) }
