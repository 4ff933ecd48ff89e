package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/adapters/internal/poolsql"
	"github.com/stint-go/stint/internal/fault"
)

// Options are the options of a DB; the zero value has all defaults.
type Options struct {
	// Clock is the time of all steps; nil is time.Now. Processes on one file share the machine's clock.
	Clock func() time.Time
}

// DB is the stores in one file. Safe for concurrent use.
type DB struct {
	db     *sql.DB
	clock  func() time.Time
	closed atomic.Bool
	// writing holds one token: a file has one writer, and those of this process need not fight for it.
	writing  chan struct{}
	prepared statements
	seen     seen // of whoever has the token, as what the stores know is
	spend    spend
	pools    *poolsql.Queries
	// Nothing is known of a database in memory: another one may be put in place, and nothing tells.
	inMemory  bool
	migrating bool // there may be no tables yet
}

// New returns a DB on db, which must be opened with write-ahead logging, and should be with synchronous=FULL (less may lose
// the last commits when the power fails), foreign keys on, and transactions that begin IMMEDIATE; package embedded does all
// that. How long to wait for other processes is up to the context of each call, with or without a busy timeout.
//
// It checks the schema: a database that was not migrated, by this release, is ErrSchema.
func New(ctx context.Context, db *sql.DB, o *Options) (*DB, error) {
	d, err := open(ctx, db, o)
	if err != nil {
		return nil, fmt.Errorf("sqlite: new: %w", err)
	}
	return d, nil
}

func open(ctx context.Context, db *sql.DB, o *Options) (*DB, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: no database", fault.ErrInvalid)
	}
	d := &DB{db: db, clock: time.Now, writing: make(chan struct{}, 1), spend: newSpend(), pools: newPools()}
	if o != nil && o.Clock != nil {
		d.clock = o.Clock
	}
	if err := patiently(ctx, func() error { return d.failed(d.check(ctx)) }); err != nil {
		return nil, err
	}
	for _, text := range d.texts() { // which needs the tables as they should be
		if err := patiently(ctx, func() error { return d.failed(d.prepared.add(ctx, db, text)) }); err != nil {
			_ = d.Close()
			return nil, err
		}
	}
	return d, nil
}

// check looks at the settings that nothing works without, and at the schema.
func (d *DB) check(ctx context.Context) error {
	var mode string
	if err := d.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	switch {
	case mode == "wal":
		return checkSchema(ctx, d.db)
	case mode == "memory" && d.db.Stats().MaxOpenConnections == 1:
		d.inMemory = true
		return checkSchema(ctx, d.db)
	case mode == "memory":
		return fmt.Errorf("%w: each connection has a database of its own in memory: call SetMaxOpenConns(1), or use a file", fault.ErrInvalid)
	}
	return fmt.Errorf("%w: journal_mode is %q: open the file with _pragma=journal_mode(wal)", fault.ErrInvalid, mode)
}

// Close makes every later call fail with ErrClosed. It leaves the *sql.DB open: that is the caller's.
func (d *DB) Close() error {
	if d.closed.Swap(true) {
		return nil
	}
	return d.prepared.close()
}
