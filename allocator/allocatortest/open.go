package allocatortest

import (
	"testing"
	"time"

	"github.com/stint-go/stint/allocator"
)

// Open returns a handle on a fresh, empty store that takes its time from clock and from nothing else. It is called for
// several cases at once, and leaves the cleanup to t.
type Open func(t testing.TB, clock func() time.Time) Handle

// Handle is one way into a store's data, as one process has it.
type Handle struct {
	Store allocator.Store
	// Close closes the handle: every later call is ErrClosed. It may be called again. nil: the cases that close are skipped.
	Close func() error
	// Again opens another handle on the same data, beside this one or after its Close. nil: the cases that need one are skipped.
	Again func(t testing.TB) Handle
}
