package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"
)

// statements are prepared statements. Most of them are known from the beginning. Texts that differ by what a step changes
// are prepared once they were used, and between transactions, because that takes a connection, and a pool may have one.
type statements struct {
	mu     sync.RWMutex
	known  map[string]*sql.Stmt // nil: is to be prepared
	wanted []string
	closed bool
}

// maxStatements bounds them; what comes later is never prepared.
const maxStatements = 500

// find returns the statement, or nil and remembers that it is wanted.
func (s *statements) find(text string) *sql.Stmt {
	s.mu.RLock()
	st, ok := s.known[text]
	s.mu.RUnlock()
	if ok {
		return st
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known[text]; !ok && len(s.known) < maxStatements {
		if s.known == nil {
			s.known = map[string]*sql.Stmt{}
		}
		s.known[text] = nil
		s.wanted = append(s.wanted, text)
	}
	return nil
}

// prepareTime bounds how long prepare waits, for a connection above all: it only saves time later.
const prepareTime = 50 * time.Millisecond

// prepare prepares what was wanted, if a connection is free. What fails may be wanted again.
func (s *statements) prepare(ctx context.Context, db *sql.DB) {
	s.mu.RLock()
	none := len(s.wanted) == 0
	s.mu.RUnlock()
	if none {
		return
	}
	if pool := db.Stats(); pool.MaxOpenConnections > 0 && pool.InUse >= pool.MaxOpenConnections {
		return
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), prepareTime)
	defer stop()
	s.mu.Lock()
	list := s.wanted
	s.wanted = nil
	s.mu.Unlock()
	for _, text := range list {
		if s.add(ctx, db, text) != nil {
			s.mu.Lock()
			delete(s.known, text)
			s.mu.Unlock()
		}
	}
}

// add prepares a statement.
func (s *statements) add(ctx context.Context, db *sql.DB, text string) error {
	st, err := db.PrepareContext(ctx, text)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return st.Close() //nolint:sqlclosecheck // else close does
	}
	if s.known == nil {
		s.known = map[string]*sql.Stmt{}
	}
	s.known[text] = st
	return nil
}

func (s *statements) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, st := range s.known {
		if st != nil {
			errs = append(errs, st.Close())
		}
	}
	s.known = nil
	return errors.Join(errs...)
}
