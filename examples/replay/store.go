package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/adapters/sqlite/embedded"
	"github.com/stint-go/stint/spendlimit"
)

// storeName is what -store says: a kind, for some with a place behind a colon.
type storeName struct{ kind, place string }

// parseStore reads the value of -store. Its messages have the kind alone: behind it may be a password.
func parseStore(text string) (storeName, error) {
	kind, place, _ := strings.Cut(text, ":")
	switch kind {
	case "memory":
		if text != kind {
			return storeName{}, errors.New("-store: memory takes no place, want memory alone")
		}
	case "sqlite":
		if place == "" {
			return storeName{}, errors.New("-store: sqlite needs a file, want sqlite:FILE")
		}
	case "postgres", "postgresql":
		return storeName{}, errors.New("-store: on Postgres the time is the server's, which no trace can set; want memory or sqlite:FILE")
	default:
		return storeName{}, fmt.Errorf("-store: %.20q is unknown, want memory or sqlite:FILE", kind)
	}
	return storeName{kind, place}, nil
}

// open opens the store, with the trace's time as its clock. close closes it.
func (n storeName) open(ctx context.Context, c *clock) (store spendlimit.Store, close func() error, err error) {
	if n.kind == "memory" {
		return memory.New(&memory.Options{Clock: c.now}).Spend(), func() error { return nil }, nil
	}
	db, err := embedded.Open(ctx, n.place, &sqlite.Options{Clock: c.now})
	if err != nil {
		return nil, nil, fmt.Errorf("-store: %w", err)
	}
	return db.Spend(), db.Close, nil
}

// newLedgerName is a name that no other run has: what they leave in the same file stays apart.
func newLedgerName() string { return "replay-" + rand.Text() }
