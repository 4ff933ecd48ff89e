package spendlimittest_test

import (
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

func onMemory(clock func() time.Time) spendlimit.Store {
	return memory.New(&memory.Options{Clock: clock}).Spend()
}

func onStrict(clock func() time.Time) spendlimit.Store { return spendlimittest.NewStrict(clock) }

func TestModelOnMemory(t *testing.T) {
	t.Parallel()
	spendlimittest.CheckModel(t, onMemory)
}

func TestModelOnStrict(t *testing.T) {
	t.Parallel()
	spendlimittest.CheckModel(t, onStrict)
}
