package memory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/allocator"
)

func BenchmarkPools(b *testing.B) {
	p, err := allocator.New(memory.New(nil).Pools(), "bench", allocator.Options{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := p.Create(b.Context(), allocator.Spec{Capacity: 128}); err != nil {
		b.Fatal(err)
	}
	for _, callers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint("callers=", callers), func(b *testing.B) {
			b.ReportAllocs()
			pairs(b, callers, func(ctx context.Context, attempt string) error {
				l, err := p.Acquire(ctx, allocator.Request{Attempt: attempt, Units: 1})
				if err == nil {
					_, err = l.Release(ctx)
				}
				return err
			})
		})
	}
	var mu sync.Mutex
	free, held := make([]int, 128), map[string]int{}
	for i := range free {
		free[i] = i
	}
	b.Run("twin", func(b *testing.B) {
		pairs(b, 1, func(_ context.Context, attempt string) error {
			mu.Lock()
			held[attempt] = free[len(free)-1]
			free = free[:len(free)-1]
			mu.Unlock()
			mu.Lock()
			free = append(free, held[attempt])
			delete(held, attempt)
			mu.Unlock()
			return nil
		})
	})
}

func pairs(b *testing.B, callers int, pair func(context.Context, string) error) {
	var wg sync.WaitGroup
	for c := range callers {
		attempts := make([]string, 64)
		for i := range attempts {
			attempts[i] = fmt.Sprint("run-", c, "-", i)
		}
		wg.Go(func() {
			for i := c; i < b.N; i += callers {
				if err := pair(b.Context(), attempts[i%64]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
