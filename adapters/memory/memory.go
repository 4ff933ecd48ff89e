// Package memory keeps the rows of stint's packages in this process: for tests, for a service that may forget, and as
// the store inside a lease. It promises no durability.
//
//	db := memory.New(nil)
//	led, err := spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.USD})
package memory

import (
	"sync"
	"time"
)

// Options configures a DB. nil is fine.
type Options struct {
	// Clock is the time of every step; nil is time.Now. A clock that steps back is held at the latest time that a row has seen.
	Clock func() time.Time
}

// DB holds everything in memory behind one mutex. Safe for concurrent use.
type DB struct {
	mu      sync.Mutex
	clock   func() time.Time
	closed  bool
	ledgers map[string]*ledger
	last    *ledger // the one of the last step

	pools    map[string]*pool
	lastPool *pool
}

// New returns an empty DB.
func New(o *Options) *DB {
	db := &DB{clock: time.Now, ledgers: map[string]*ledger{}, pools: map[string]*pool{}}
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
