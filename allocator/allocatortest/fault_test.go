package allocatortest_test

import (
	"errors"
	"testing"

	"github.com/stint-go/stint/allocator"
	"github.com/stint-go/stint/allocator/allocatortest"
)

func TestT23_EveryFaultHeals(t *testing.T) {
	t.Parallel()
	allocatortest.CheckFaults(t, onStrict)
}

// The seed decides a plan and an unknown outcome: the same each time, and all of them do come.
func TestPlanBySeed(t *testing.T) {
	t.Parallel()
	kinds := map[allocatortest.FaultKind]int{}
	applied := map[bool]int{}
	for call := 1; call <= 200; call++ {
		fault := allocatortest.PlanBySeed(7, 2)(call)
		if fault != allocatortest.PlanBySeed(7, 2)(call) {
			t.Fatalf("call %d has two faults", call)
		}
		if kinds[fault.Kind]++; fault.Kind == allocatortest.FaultUnknown {
			applied[grantedBehind(t, fault.Seed)]++
		}
	}
	if len(kinds) != int(allocatortest.FaultTwice)+1 || len(applied) != 2 {
		t.Errorf("kinds %v, applied %v", kinds, applied)
	}
}

// grantedBehind tells whether an Acquire whose outcome nobody knows was applied.
func grantedBehind(t *testing.T, seed uint64) bool {
	t.Helper()
	store := allocatortest.NewStrict(nil)
	sound, err := allocator.New(store, "p", allocator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sound.Create(t.Context(), allocator.Spec{Capacity: 1}); err != nil {
		t.Fatal(err)
	}
	plan := allocatortest.PlanOf(allocatortest.Fault{Kind: allocatortest.FaultUnknown, At: 1, Seed: seed})
	p, err := allocator.New(allocatortest.NewFaulty(store, plan), "p", allocator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := p.Acquire(t.Context(), allocator.Request{Attempt: "a", Units: 1})
	if l != nil || !errors.Is(err, allocator.ErrUncertain) || errors.Is(err, allocator.ErrFull) {
		t.Fatalf("lease %v, error %v", l, err)
	}
	st, err := sound.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st.Used == 1
}
