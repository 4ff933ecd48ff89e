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

func onStrict(_ testing.TB, clock func() time.Time) allocatortest.Handle {
	s := allocatortest.NewStrict(clock)
	return allocatortest.Handle{Store: s, Close: s.Close}
}

func TestModelOnMemory(t *testing.T) {
	t.Parallel()
	allocatortest.CheckModel(t, onMemory)
}

func TestModelOnStrict(t *testing.T) {
	t.Parallel()
	allocatortest.CheckModel(t, onStrict)
}
