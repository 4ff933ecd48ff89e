package spendlimit_test

import (
	"fmt"
	"testing"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/internal/bench"
	"github.com/stint-go/stint/spendlimit"
)

// BenchmarkPair is a Reserve and its Settle on the memory store. A store keeps every hold and entry, so it is renewed
// every so often. internal/bench/ratios compares the same loads with each other.
func BenchmarkPair(b *testing.B) {
	const perStore = 50_000
	for _, accounts := range []int{1, 1024} {
		for _, callers := range []int{1, 8, 64} {
			b.Run(fmt.Sprintf("accounts=%d/callers=%d", accounts, callers), func(b *testing.B) {
				b.ReportAllocs()
				b.StopTimer()
				for left := b.N; left > 0; left -= perStore {
					led, err := bench.NewLedger(b.Context(), memory.New(nil).Spend(), bench.Accounts(accounts), 1)
					if err != nil {
						b.Fatal(err)
					}
					plan := bench.Load{Callers: callers, Accounts: accounts, Pairs: min(left, perStore)}.Plans(1)[0]
					b.StartTimer()
					err = plan.Run(b.Context(), led, 1)
					b.StopTimer()
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkLease is a pair inside a lease of so many holds, on a ledger in memory.
func BenchmarkLease(b *testing.B) {
	const perStore = 50_000
	local := func() spendlimit.Store { return memory.New(nil).Spend() }
	for _, holds := range []int{100, 1000, 10_000} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("holds=%d/callers=%d", holds, callers), func(b *testing.B) {
				b.ReportAllocs()
				b.StopTimer()
				for left := b.N; left > 0; left -= perStore {
					led, err := bench.NewLedger(b.Context(), memory.New(nil).Spend(), bench.Accounts(1), 1)
					if err != nil {
						b.Fatal(err)
					}
					lease, err := bench.NewLease(b.Context(), led, bench.Accounts(1)[0], holds, local)
					if err != nil {
						b.Fatal(err)
					}
					plan := bench.Load{Callers: callers, Accounts: 1, Pairs: min(left, perStore)}.Plans(1)[0]
					b.StartTimer()
					err = plan.Run(b.Context(), lease, 1)
					b.StopTimer()
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
