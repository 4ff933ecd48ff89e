package spendlimittest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
)

func openMemory(clock *testClock) spendlimit.Store {
	return memory.New(&memory.Options{Clock: clock.read}).Spend()
}

func openStrict(clock *testClock) spendlimit.Store { return NewStrict(clock.read) }

func TestT8_EveryFaultHeals(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]Open{
		"memory": func(_ testing.TB, clock func() time.Time) Handle {
			return Handle{Store: memory.New(&memory.Options{Clock: clock}).Spend()}
		},
		"strict": func(_ testing.TB, clock func() time.Time) Handle { return Handle{Store: NewStrict(clock)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			CheckFaults(t, open)
		})
	}
}

// T9: a store that fails is not a refusal, and a hold that may not exist is not a hold.
func TestT9_FaultIsNoRefusal(t *testing.T) {
	t.Parallel()
	for kind, want := range map[FaultKind]error{
		FaultBefore: spendlimit.ErrUnavailable, FaultAfter: spendlimit.ErrUncertain, FaultUnknown: spendlimit.ErrUncertain,
	} {
		led, err := spendlimit.New(NewFaulty(openMemory(newClock()), PlanOf(Fault{Kind: kind, At: 1})), spendlimit.Config{Unit: steps})
		if err != nil {
			t.Fatal(err)
		}
		h, err := led.Reserve(t.Context(), ask("k", 1, "a"))
		if h != nil || !errors.Is(err, want) || errors.Is(err, spendlimit.ErrDenied) {
			t.Errorf("kind %d: hold %v, error %v", kind, h, err)
		}
	}
}

// The seed decides an unknown outcome: the same one each time, and both do come.
func TestFaultUnknownIsDecidedBySeed(t *testing.T) {
	t.Parallel()
	applied := map[bool]int{}
	for seed := range uint64(20) {
		var first bool
		for try := range 2 {
			store := openMemory(newClock())
			led, err := spendlimit.New(NewFaulty(store, PlanOf(Fault{Kind: FaultUnknown, At: 1, Seed: seed})), spendlimit.Config{Unit: steps, NoLimit: spendlimit.Allow})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := led.Reserve(t.Context(), ask("k", 1, "a")); !errors.Is(err, spendlimit.ErrUncertain) {
				t.Fatal(err)
			}
			_, err = led.Hold(t.Context(), "k")
			if try == 0 {
				first = err == nil
				applied[first]++
			} else if (err == nil) != first {
				t.Error(fmt.Sprint("seed ", seed, " has two outcomes"))
			}
		}
	}
	if applied[true] == 0 || applied[false] == 0 {
		t.Errorf("outcomes %v", applied)
	}
}
