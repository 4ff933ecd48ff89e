package price_test

import (
	"bytes"
	"testing"

	"github.com/stint-go/stint/spendlimit/price"
)

// BenchmarkCall is what one call needs: Find, Bound and Cost.
func BenchmarkCall(b *testing.B) {
	table := realTable(b)
	b.ReportAllocs()
	for b.Loop() {
		p, _, err := table.Find("claude-sonnet-4-5")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Bound(price.Ask{Prompt: 10_000, MaxOutput: 1_000}); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Cost(price.Usage{Input: 9_000, CacheRead: 1_000, Output: 700}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCostOf(b *testing.B) {
	stored := find(b, realTable(b), "claude-sonnet-4-5").Encode()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := price.CostOf(stored, price.Usage{Input: 9_000, CacheRead: 1_000, Output: 700}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoad(b *testing.B) {
	data := realData(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := price.Load(bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
}
