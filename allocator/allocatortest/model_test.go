package allocatortest_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/allocator/allocatortest"
)

func onMemory(_ testing.TB, clock func() time.Time) allocatortest.Handle {
	return allocatortest.Handle{Store: memory.New(&memory.Options{Clock: clock}).Pools()}
}

func TestModelOnMemory(t *testing.T) {
	t.Parallel()
	allocatortest.CheckModel(t, onMemory)
}

func TestModelOnStrict(t *testing.T) {
	t.Parallel()
	allocatortest.CheckModel(t, onStrict)
}
