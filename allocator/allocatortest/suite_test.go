package allocatortest_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-go/stint/allocator/allocatortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func onStrict(_ testing.TB, clock func() time.Time) allocatortest.Handle {
	return allocatortest.NewStrict(clock).Handle()
}

func TestStrict(t *testing.T) {
	t.Parallel()
	allocatortest.Run(t, onStrict)
}
