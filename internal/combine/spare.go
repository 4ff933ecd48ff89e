package combine

import (
	"errors"
	"sync"

	"github.com/stint-go/stint/internal/fault"
)

// Spare keeps commands to use again: those that every piece of work needs are most of what a call would allocate. The zero value
// is empty. Safe for concurrent use.
type Spare[C any] struct{ pool sync.Pool }

// Get returns a command that is to be overwritten.
func (s *Spare[C]) Get() *C {
	if c, ok := s.pool.Get().(*C); ok {
		return c
	}
	return new(C)
}

// Done takes c back, unless its call ended with an error after which a leader may still have it.
func (s *Spare[C]) Done(c *C, err error) {
	if !errors.Is(err, fault.ErrUncertain) {
		s.Put(c)
	}
}

// Put takes c back, unless nil. A command whose caller left early must not be put back: a leader may still have it.
func (s *Spare[C]) Put(c *C) {
	if c != nil {
		s.pool.Put(c)
	}
}
