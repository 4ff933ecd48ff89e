package allocatortest_test

import (
	"testing"

	"github.com/stint-go/stint/allocator/allocatortest"
)

func TestLinearizable(t *testing.T) {
	t.Parallel()
	allocatortest.CheckLinearizable(t, onStrict)
}
