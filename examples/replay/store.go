package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/adapters/postgres"
	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/adapters/sqlite/embedded"
	"github.com/stint-go/stint/spendlimit"
)

// storeName is what -store says: a kind, for some with a place behind a colon. Postgres has a schema too.
type storeName struct{ kind, place, schema string }

// parseStore reads the value of -store. Its messages have nothing of it: anywhere in a DSN may be a password.
func parseStore(text string) (storeName, error) {
	kind, place, _ := strings.Cut(text, ":")
	switch {
	case kind == "memory" && text != kind:
		return storeName{}, errors.New("-store: memory takes no place, want memory alone")
	case kind == "sqlite" && place == "":
		return storeName{}, errors.New("-store: sqlite needs a file, want sqlite:FILE")
	case kind == "postgres" && place == "":
		return storeName{}, errors.New("-store: postgres needs a DSN, want postgres:DSN")
	case kind == "postgres" && strings.HasPrefix(place, "//"):
		place = text // a URL is a DSN as it is
	case kind != "memory" && kind != "sqlite" && kind != "postgres":
		return storeName{}, errors.New("-store: unknown, want memory, sqlite:FILE or postgres:DSN")
	}
	return storeName{kind: kind, place: place}, nil
}

// where says where the ledger stays, if it does. It has no DSN, which may contain a password.
func (n storeName) where() string {
	if n.kind == "postgres" {
		return fmt.Sprintf("the schema %q of the database", n.schema)
	}
	return n.place
}

// open opens the store, with the trace's time as its clock. close closes it.
func (n storeName) open(ctx context.Context, c *clock) (store spendlimit.Store, close func() error, err error) {
	switch n.kind {
	case "memory":
		return memory.New(&memory.Options{Clock: c.now}).Spend(), func() error { return nil }, nil
	case "sqlite":
		var db *embedded.DB
		if db, err = embedded.Open(ctx, n.place, &sqlite.Options{Clock: c.now}); err == nil {
			return db.Spend(), db.Close, nil
		}
	default:
		if store, close, err = n.openPostgres(ctx, c); err == nil {
			return store, close, nil
		}
	}
	return nil, nil, fmt.Errorf("-store: %w", err)
}

const setUpTime = 30 * time.Second

func (n storeName) openPostgres(ctx context.Context, c *clock) (store spendlimit.Store, close func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, setUpTime)
	defer cancel()
	cfg, err := pgxpool.ParseConfig(n.place)
	// The error has the DSN; and so has the name of the database, if it is a part of a password with a slash that is not escaped.
	if err != nil || strings.Contains(cfg.ConnConfig.Database, "@") {
		return nil, nil, errors.New("the DSN of Postgres can't be read")
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	// The clock follows the trace: in a schema and a ledger of their own it moves nobody else's time.
	o := &postgres.Options{Schema: n.schema, Clock: c.now}
	var db *postgres.DB
	if err = postgres.Migrate(ctx, pool, o); err == nil {
		db, err = postgres.New(ctx, pool, o)
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return db.Spend(), func() error {
		defer pool.Close()
		return db.Close()
	}, nil
}

// newLedgerName is a name that no other run has: what they leave in the same file or database stays apart.
func newLedgerName() string { return "replay-" + rand.Text() }
