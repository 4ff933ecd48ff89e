package allocatortest_test

import (
	"testing"

	"github.com/stint-go/stint/allocator/allocatortest"
)

func TestT23_EveryFaultHeals(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]allocatortest.Open{"memory": onMemory, "strict": onStrict} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allocatortest.CheckFaults(t, open)
		})
	}
}

func TestFaultText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]allocatortest.Fault{
		"before@1":                       {Kind: allocatortest.FaultBefore, At: 1},
		"after@7":                        {Kind: allocatortest.FaultAfter, At: 7},
		"cancel@12":                      {Kind: allocatortest.FaultCancel, At: 12},
		"twice@2":                        {Kind: allocatortest.FaultTwice, At: 2},
		"unknown:18446744073709551615@3": {Kind: allocatortest.FaultUnknown, At: 3, Seed: 1<<64 - 1},
	} {
		got, err := allocatortest.ParseFault(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "after", "after@", "after@0", "after@-1", "later@1", "@1", "unknown:@1", "unknown:x@1"} {
		if f, err := allocatortest.ParseFault(text); err == nil {
			t.Errorf("%q is read as %+v", text, f)
		}
	}
}
