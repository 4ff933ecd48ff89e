package memory_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/allocator/allocatortest"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	spendlimittest.Run(t, func(_ testing.TB, clock func() time.Time) spendlimittest.Handle {
		db := memory.New(&memory.Options{Clock: clock})
		return spendlimittest.Handle{Store: db.Spend(), Close: func() error { db.Close(); return nil }}
	})
}

func openPools(_ testing.TB, clock func() time.Time) allocatortest.Handle {
	db := memory.New(&memory.Options{Clock: clock})
	return allocatortest.Handle{Store: db.Pools(), Close: func() error { db.Close(); return nil }}
}

func TestPools(t *testing.T) {
	t.Parallel()
	allocatortest.Run(t, openPools)
}

func TestPools_T23_EveryFaultHeals(t *testing.T) {
	t.Parallel()
	allocatortest.CheckFaults(t, openPools)
}

func TestPools_Linearizable(t *testing.T) {
	t.Parallel()
	allocatortest.CheckLinearizable(t, openPools)
}
