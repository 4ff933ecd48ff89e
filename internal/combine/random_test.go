package combine_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/combine"
)

// TestT104_RandomCancels lets callers come and go as the scheduler likes, and holds what each of them was told against
// what was done.
func TestT104_RandomCancels(t *testing.T) {
	t.Parallel()
	const callers, each, max = 32, 400, 8
	seed := rand.Uint64()
	t.Logf("seed %d", seed)

	lane := combine.New(max, limit, moodyRun(t, max, rand.New(rand.NewPCG(seed, callers))))
	cancels := make(chan context.CancelFunc, callers)
	var canceller sync.WaitGroup
	canceller.Go(func() {
		for cancel := range cancels {
			cancel()
		}
	})
	calls := make([][]*caller, callers)
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(seed, uint64(i)))
			for range each {
				c := &caller{}
				calls[i] = append(calls[i], c)
				ctx, cancel := moodyContext(t, dice, cancels)
				c.do(ctx, lane)
				cancel()
				yield(dice.IntN(3))
			}
		})
	}
	all.Wait() // all leaders are among the callers, so every batch is over
	close(cancels)
	canceller.Wait()

	seen := map[string]int{}
	for _, c := range slices.Concat(calls...) {
		told := c.told()
		seen[told]++
		switch told {
		case "ok", "failed", "panicked", "panic", "started":
			mustRun(t, c, 1)
		case "not started":
			mustRun(t, c, 0)
		default:
			t.Error(told)
		}
	}
	if len(seen) != 6 {
		t.Errorf("not every outcome was seen: %v", seen)
	}
	var next caller
	next.do(t.Context(), lane)
	mustRun(t, &next, 1)
}

// moodyRun succeeds, fails or panics, after a while.
func moodyRun(t *testing.T, max int, dice *rand.Rand) func(context.Context, []*command) error {
	var alone sync.Mutex
	return func(ctx context.Context, batch []*command) error {
		if !alone.TryLock() {
			t.Error("two batches at once")
			return nil
		}
		defer alone.Unlock()
		if len(batch) < 1 || len(batch) > max {
			t.Errorf("a batch of %d", len(batch))
		}
		for _, c := range batch {
			c.runs.Add(1)
		}
		if dice.IntN(2) == 0 {
			ctx.Done()
		}
		yield(dice.IntN(20))
		switch dice.IntN(20) {
		case 0:
			panic(errStore)
		case 1:
			return errStore
		}
		return nil
	}
}

// moodyContext ends never, soon, or has ended.
func moodyContext(t *testing.T, dice *rand.Rand, cancels chan<- context.CancelFunc) (context.Context, context.CancelFunc) {
	switch dice.IntN(8) {
	case 0, 1:
		return t.Context(), func() {}
	case 2, 3, 4:
		return context.WithTimeout(t.Context(), time.Duration(dice.IntN(200))*time.Microsecond)
	case 5:
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return ctx, cancel
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancels <- cancel
	return ctx, cancel
}

func yield(n int) {
	for range n {
		runtime.Gosched()
	}
}
