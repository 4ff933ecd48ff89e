package faulty_test

import (
	"testing"

	"github.com/stint-go/stint/internal/faulty"
)

func TestFaultText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]faulty.Fault{
		"before@1":                       {Kind: faulty.Before, At: 1},
		"after@7":                        {Kind: faulty.After, At: 7},
		"cancel@12":                      {Kind: faulty.Cancel, At: 12},
		"twice@2":                        {Kind: faulty.Twice, At: 2},
		"unknown:18446744073709551615@3": {Kind: faulty.Unknown, At: 3, Seed: 1<<64 - 1},
	} {
		got, err := faulty.Parse(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "after", "after@", "after@0", "after@-1", "later@1", "@1", "unknown:@1", "unknown:x@1"} {
		if f, err := faulty.Parse(text); err == nil {
			t.Errorf("%q is read as %+v", text, f)
		}
	}
}
