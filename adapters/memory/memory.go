// Package memory keeps the rows of stint's packages in this process: for tests, for a service that may forget, and as
// the store inside a lease. It promises no durability.
//
//	db := memory.New(nil)
//	led, err := spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.USD})
package memory

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stint-go/stint/internal/fault"
)

// Options configures a DB. nil is fine.
type Options struct {
	// Clock is the time of every step; nil is time.Now. A clock that steps back is held at the latest time that a row has seen.
	Clock func() time.Time
}

// DB holds everything in memory behind one mutex. Safe for concurrent use.
type DB struct {
	mu     sync.Mutex
	clock  func() time.Time
	closed bool
	spend  spend
	pools  pools
}

// New returns an empty DB.
func New(o *Options) *DB {
	db := &DB{clock: time.Now}
	if o != nil && o.Clock != nil {
		db.clock = o.Clock
	}
	return db
}

// Close makes every later call fail with the package's ErrClosed.
func (db *DB) Close() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.closed = true
}

// usable is for a caller that has the mutex.
func (db *DB) usable(ctx context.Context) error {
	if db.closed {
		return fault.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(fault.ErrUnavailable, err)
	}
	return nil
}

func (db *DB) now() int64 { return db.clock().UnixMicro() }
