package spendlimittest_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

func TestModelOnMemory(t *testing.T) {
	t.Parallel()
	spendlimittest.CheckModel(t, func(clock func() time.Time) spendlimit.Store {
		return memory.New(&memory.Options{Clock: clock}).Spend()
	})
}
