package allocatortest_test

import (
	"testing"

	"github.com/stint-go/stint/allocator/allocatortest"
)

func TestLinearizable(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]allocatortest.Open{"memory": onMemory, "strict": onStrict} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			allocatortest.CheckLinearizable(t, open)
		})
	}
}
