package price_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/price"
)

// FuzzLoad: no input panics, no cost of a loaded table is negative, and every price survives being stored.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `[]`, `{"a": {}}`, `{"a": {"input_cost_per_token": -1}}`, `{"a": {"input_cost_per_token": "1e-2000000"}}`,
		`{"a": {"input_cost_per_token": 1e30, "output_cost_per_token": "0.5"}, "a-20250101": {"max_tokens": 5}}`,
		`{"a": {"litellm_provider": "openai", "cache_read_input_token_cost_above_200k_tokens_priority": 3e-07}}`,
		`{"a": {"search_context_cost_per_query": {"search_context_size_low": 1}, "provider_specific_entry": {"fast": 6}}}`,
		`{"a": {"x": [[{}], {"y": 1, "y": 2}]}}`, `{"a": {"mode": "\ud800"}, "a": 1}`, "{\"\xff\": 1}",
	} {
		f.Add([]byte(seed))
	}
	if data, err := os.ReadFile(realFile); err == nil {
		f.Add(data[:min(len(data), 2_000)])
	}
	usages := []price.Usage{
		{Input: 1, CacheRead: 1, Output: 1}, {Input: 2_000_000_000, Output: 2_000_000_000, Reasoning: 1},
		{CacheWrite5m: 3, CacheWrite1h: 4, AudioIn: 5, Tier: price.Priority}, {ImageOut: 1, Tier: price.Batch},
		{ServerUses: price.Searches{Low: 1}, Modifiers: []string{"fast"}},
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		table, problems, err := price.Load(bytes.NewReader(data))
		if err != nil {
			if table != nil || problems != nil || !errors.Is(err, spendlimit.ErrInvalid) {
				t.Fatalf("%v beside the error %v", problems, err)
			}
			return
		}
		for _, name := range table.Models() {
			p := find(t, table, name)
			if back, err := price.Decode(p.Encode()); err != nil || back.Encode() != p.Encode() {
				t.Fatalf("%q: stored %s, error %v", name, p.Encode(), err)
			}
			for _, u := range usages {
				if cost, err := p.Cost(u); cost < 0 || err != nil && cost != 0 {
					t.Fatalf("%q: cost %d, %v", name, cost, err)
				}
			}
			if bound, err := p.Bound(price.Ask{Prompt: 300_000, CacheWrites: price.Writes1h}); bound < 0 || err != nil && bound != 0 {
				t.Fatalf("%q: bound %d, %v", name, bound, err)
			}
		}
	})
}

// FuzzDecode: only what Encode wrote is read.
func FuzzDecode(f *testing.F) {
	for _, e := range []price.Entry{{}, perMillion()} {
		f.Add(priced(f, e).Encode())
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := price.Decode(text)
		if err == nil && (p.Encode() != text || len(text) > 4096) {
			t.Fatalf("%q was read as %q", text, p.Encode())
		}
		if cost, err := p.Cost(price.Usage{Input: 7, Output: 7}); cost < 0 || err != nil && cost != 0 {
			t.Fatalf("cost %d, %v", cost, err)
		}
	})
}
