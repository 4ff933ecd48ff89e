package sqlite_test

import (
	"testing"

	"github.com/stint-go/stint/allocator/allocatortest"
)

func TestPools_Model(t *testing.T) {
	slow(t)
	onPools(t, func(t *testing.T, open allocatortest.Open) { allocatortest.CheckModel(t, open) })
}
