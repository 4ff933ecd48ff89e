package combine_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/combine"
)

// BenchmarkDo measures closed loops of callers over two kinds of run: one that changes a map, and one that flushes a
// file to disk. The twin has a mutex in place of the lane: one command per run.
func BenchmarkDo(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("memory/callers=%d", n), func(b *testing.B) { benchLane(b, n, addAll(b)) })
		b.Run(fmt.Sprintf("memory/callers=%d/twin", n), func(b *testing.B) { benchTwin(b, n, addAll(b)) })
	}
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("disk/callers=%d", n), func(b *testing.B) { benchLane(b, n, flush(b)) })
		b.Run(fmt.Sprintf("disk/callers=%d/twin", n), func(b *testing.B) { benchTwin(b, n, flush(b)) })
	}
}

type runFunc = func(ctx context.Context, batch []*int64) error

func benchLane(b *testing.B, callers int, run runFunc) {
	var batches int64
	lane := combine.New(512, 10*time.Second, func(ctx context.Context, batch []*int64) error {
		batches++
		return run(ctx, batch)
	})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	benchLoop(b, callers, func(c *int64) error { return lane.Do(ctx, c) })
	b.ReportMetric(float64(b.N)/float64(batches), "cmds/batch")
}

func benchTwin(b *testing.B, callers int, run runFunc) {
	var mu sync.Mutex
	batch := make([]*int64, 1)
	benchLoop(b, callers, func(c *int64) error {
		mu.Lock()
		defer mu.Unlock()
		batch[0] = c
		return run(b.Context(), batch)
	})
}

func benchLoop(b *testing.B, callers int, do func(*int64) error) {
	b.ReportAllocs()
	var left atomic.Int64
	left.Store(int64(b.N))
	var callersDone sync.WaitGroup
	for range callers {
		callersDone.Go(func() {
			c := new(int64)
			for left.Add(-1) >= 0 {
				*c = 1
				if err := do(c); err != nil {
					b.Error(err)
				}
			}
		})
	}
	callersDone.Wait()
}

func addAll(*testing.B) runFunc {
	sums := map[string]int64{"a": 0}
	return func(_ context.Context, batch []*int64) error {
		for _, c := range batch {
			sums["a"] += *c
		}
		return nil
	}
}

func flush(b *testing.B) runFunc {
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	row := make([]byte, 128)
	return func(ctx context.Context, batch []*int64) error {
		ctx.Done() // as anything that waits does
		for range batch {
			if _, err := f.Write(row); err != nil {
				return err
			}
		}
		return f.Sync()
	}
}
