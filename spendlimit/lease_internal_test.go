package spendlimit

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"
)

func TestT101_ChunkSize(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		c         chunk
		available Amount
		leases    int64
		size      Amount
		scarce    bool
	}{
		{chunk{most: 100, least: 16}, 5, 10, 5, true},
		{chunk{most: 100, least: 16}, 0, 10, 0, true},
		{chunk{most: 100, least: 16}, -5, 1, 0, true},
		{chunk{most: 100, least: 16}, 80, 0, 20, false}, // taken as 1
		{chunk{most: 100, least: 16}, 160, 10, 16, false},
		{chunk{most: 100, least: 16}, 159, 10, 16, true},
		{chunk{most: 100, least: 16}, 4000, 10, 100, false},
		{chunk{most: 90, least: 16}, 4000, 10, 90, false},
		{chunk{most: 100, least: 16, pending: 33}, 1000, 10, 50, false}, // 49.5, rounded up
		{chunk{most: 100, least: 1, pending: MaxAmount}, 1000, 10, 100, false},
		{chunk{most: MaxAmount, least: MaxAmount}, MaxAmount, math.MaxInt32, MaxAmount, true},
	} {
		size, scarce := test.c.size(test.available, test.leases), test.c.scarce(test.available, test.leases)
		if size != test.size || scarce != test.scarce {
			t.Errorf("%+v of %d for %d leases: %d, scarce %v; want %d, %v", test.c, test.available, test.leases, size, scarce, test.size, test.scarce)
		}
	}
}

// A chunk is never more than there is, nor than its caller's bound, and nothing divides by zero (R82).
func TestR82_ChunkSizeIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.Int64Range(1, math.MaxInt64)
		c := chunk{most: Amount(amount.Draw(t, "most")), pending: Amount(rapid.Int64Min(0).Draw(t, "pending"))}
		c.least = min(c.most, Amount(amount.Draw(t, "least")))
		available, leases := Amount(rapid.Int64().Draw(t, "available")), rapid.Int64Range(0, 1<<31).Draw(t, "leases")
		size := c.size(available, leases)
		if size < 0 || size > c.most || size > max(0, available) {
			t.Fatalf("%+v of %d for %d leases: %d", c, available, leases, size)
		}
		if !c.scarce(available, leases) && size < c.least {
			t.Fatalf("%+v of %d for %d leases: %d, though room is not scarce", c, available, leases, size)
		}
	})
}

// A term is over by the monotonic clock or by the other one, whichever is further on: the first may stand still while a
// machine sleeps, and the second may be put back (R78).
func TestR78_BothClocks(t *testing.T) {
	t.Parallel()
	sent := time.Now()
	// later is a reading with its own advance of each clock: a Time counts both, in its second word the monotonic one.
	later := func(wall, monotonic time.Duration) time.Time {
		at := sent.Add(wall)
		(*[2]int64)(unsafe.Pointer(&at))[1] += int64(monotonic - wall)
		if at.Sub(sent) != monotonic || at.Round(0).Sub(sent.Round(0)) != wall {
			t.Fatal("a Time is not made as it was")
		}
		return at
	}
	m := &term{sent: sent, lives: time.Minute}
	for _, test := range []struct{ wall, monotonic, left time.Duration }{
		{20 * time.Second, 20 * time.Second, 40 * time.Second},
		{time.Hour, 20 * time.Second, time.Minute - time.Hour}, // it slept
		{-time.Hour, 20 * time.Second, 40 * time.Second},       // it was set
		{20 * time.Second, 0, 40 * time.Second},
	} {
		if left := m.left(later(test.wall, test.monotonic)); left != test.left {
			t.Errorf("%v and %v later: %v left, want %v", test.wall, test.monotonic, left, test.left)
		}
	}
}
