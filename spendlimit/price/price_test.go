package price_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/price"
)

var unpriced, invalid = spendlimit.ErrUnpriced, spendlimit.ErrInvalid

type costCase struct {
	model string
	usage price.Usage
	want  any
}

func checkCosts(t *testing.T, table *price.Table, cases []costCase) {
	t.Helper()
	for i, c := range cases {
		t.Run(fmt.Sprintf("%d_%s", i, c.model), func(t *testing.T) {
			t.Parallel()
			cost, err := find(t, table, c.model).Cost(c.usage)
			wantAmount(t, cost, err, c.want)
		})
	}
}

func TestT111_LongContext(t *testing.T) {
	t.Parallel()
	checkCosts(t, realTable(t), []costCase{
		{"claude-sonnet-4-5", price.Usage{Input: 1_000, Output: 500}, "0.0105"},
		{"claude-sonnet-4-5", price.Usage{Input: 200_000, Output: 1_000}, "0.615"},
		{"claude-sonnet-4-5", price.Usage{Input: 200_001, Output: 1_000}, "1.222506"},
		{"claude-sonnet-4-5", price.Usage{Input: 1_000, CacheRead: 200_000}, "0.126"},
	})
}

func TestT112_RoundSums(t *testing.T) {
	t.Parallel()
	checkCosts(t, realTable(t), []costCase{
		{"claude-haiku-4-5", price.Usage{Input: 1_000_000, Output: 1_000_000}, "6"},
		{"gpt-4o", price.Usage{Input: 100_000, Output: 50_000}, "0.75"},
		{"gpt-4o", price.Usage{}, "0"},
	})
}

func TestT113_SmallestCosts(t *testing.T) {
	t.Parallel()
	checkCosts(t, realTable(t), []costCase{
		{"gpt-4o-mini", price.Usage{Input: 1}, "0.00000015"},
		{"gpt-4o-mini", price.Usage{Input: 3}, "0.00000045"},
		{"deepseek-v4-flash", price.Usage{CacheRead: 1}, "0.000000003"},
		{"deepseek-v4-flash", price.Usage{CacheRead: 1_000}, "0.0000028"},
	})
}

func TestT114_TiersAndRegions(t *testing.T) {
	t.Parallel()
	checkCosts(t, realTable(t), []costCase{
		{"gpt-5.4", price.Usage{Input: 1_000, Output: 100, Tier: price.Priority}, "0.008"},
		{"gpt-5.4", price.Usage{Input: 300_000, Tier: price.Priority}, unpriced},
		{"gpt-5.4", price.Usage{Input: 300_000, Tier: price.Flex}, "1.5"},
		{"gpt-5.4", price.Usage{Input: 1_000, Output: 100, Region: "eu"}, "0.0044"},
		{"gpt-5.4", price.Usage{Input: 1_000, Region: "mars"}, unpriced},
		{"gpt-5.4", price.Usage{Input: 1_000, Tier: "standard"}, unpriced},
		{"gpt-5.4", price.Usage{Tier: "turbo"}, unpriced},
	})
}

func TestT115_Modifiers(t *testing.T) {
	t.Parallel()
	fast := price.Usage{Input: 1_000, Output: 1_000, Modifiers: []string{"fast"}}
	checkCosts(t, realTable(t), []costCase{
		{"claude-opus-4-6", fast, "0.18"},
		{"claude-opus-4-6", price.Usage{Input: 1_000, Output: 1_000, Modifiers: []string{"fast", "us"}}, "0.198"},
		{"claude-haiku-4-5", fast, unpriced},
	})
}

func TestT116_CacheRates(t *testing.T) {
	t.Parallel()
	all, none := perMillion(), without(perMillion(), "cache_read_input_token_cost", "cache_creation_input_token_cost")
	cases := []struct {
		entry price.Entry
		usage price.Usage
		want  any
	}{
		{all, price.Usage{Input: 8, CacheRead: 2, CacheWrite5m: 3, Output: 5}, "0.0000342"},
		{all, price.Usage{Input: 100, CacheRead: 25, CacheWrite5m: 10, Output: 2}, "0.0001305"},
		{none, price.Usage{Input: 8, CacheRead: 2, CacheWrite5m: 3, Output: 5}, unpriced},
		{none, price.Usage{Input: 8, CacheRead: 2, Output: 5}, "0.00003"},
	}
	for _, c := range cases {
		cost, err := priced(t, c.entry).Cost(c.usage)
		wantAmount(t, cost, err, c.want)
	}
}

func TestT117_BoundByWrites(t *testing.T) {
	t.Parallel()
	p := priced(t, perMillion())
	for writes, want := range map[price.CacheWrites]string{price.Writes5m: "0.000258", price.NoWrites: "0.000149"} {
		bound, err := p.Bound(price.Ask{Prompt: 109, MaxOutput: 10, CacheWrites: writes})
		wantAmount(t, bound, err, want)
	}
}

func TestT118_BoundOfRealModel(t *testing.T) {
	t.Parallel()
	p := find(t, realTable(t), "claude-sonnet-4-5")
	for _, c := range []struct {
		ask  price.Ask
		want any
	}{
		{price.Ask{Prompt: 10_000, MaxOutput: 1_000}, "0.045"},
		{price.Ask{Prompt: 10_000, MaxOutput: 1_000, CacheWrites: price.Writes5m}, "0.0525"},
		{price.Ask{Prompt: 10_000, MaxOutput: 1_000, CacheWrites: price.Writes1h}, "0.075"},
		{price.Ask{Prompt: 10_000}, "0.99"},
		{price.Ask{Prompt: 200_000, MaxOutput: 1_000}, "0.615"},
		{price.Ask{Prompt: 200_001, MaxOutput: 1_000}, "1.222506"},
	} {
		bound, err := p.Bound(c.ask)
		wantAmount(t, bound, err, c.want)
	}
}

func TestT119_Names(t *testing.T) {
	t.Parallel()
	table := realTable(t)
	for name, want := range map[string]price.Match{
		"gpt-4o-2024-05-13":           {Model: "gpt-4o-2024-05-13", How: price.Exact},
		"gpt-4o-mini-2024-09-01":      {Model: "gpt-4o-mini", How: price.DateCut},
		"claude-sonnet-4-5@20250929":  {Model: "claude-sonnet-4-5-20250929", How: price.DateForm},
		"anthropic/claude-sonnet-4-5": {Model: "claude-sonnet-4-5", How: price.Provider},
		"vertex_ai/gemini-2.5-pro":    {Model: "gemini-2.5-pro", How: price.Provider},
	} {
		p, match, err := table.Find(name)
		if err != nil || match != want || p.Model() != want.Model {
			t.Errorf("Find(%q) = %v, %v, %v, want %v", name, p.Model(), match, err, want)
		}
	}
	cost, err := find(t, table, "gpt-4o-2024-05-13").Cost(price.Usage{Input: 1_000, Output: 1_000})
	wantAmount(t, cost, err, "0.02")
	for _, name := range []string{
		"gpt-4o-2025-03-01", "openai/claude-sonnet-4-5", "GPT-4o", "gpt-4o-2024-13-01",
		"vertex/gemini-2.5-pro", "/gpt-4o", "gpt-4o-min", "gpt-4o-", "", strings.Repeat("x", 10_000),
	} {
		wantNotFound(t, table, name)
	}
}

func wantNotFound(t *testing.T, table *price.Table, name string) {
	t.Helper()
	p, match, err := table.Find(name)
	var e *price.UnpricedError
	if !errors.As(err, &e) || !errors.Is(err, unpriced) || match != (price.Match{}) || p.Model() != "" {
		t.Errorf("Find(%.40q) = %q, %v, %v, want an UnpricedError alone", name, p.Model(), match, err)
	} else if !strings.HasPrefix(name, e.Model) || len(e.Tried) == 0 || len(err.Error()) > 1_000 {
		t.Errorf("Find(%.40q): model %q, tried %q", name, e.Model, e.Tried)
	}
}

func TestT120_ZeroIsAPrice(t *testing.T) {
	t.Parallel()
	table := realTable(t)
	checkCosts(t, table, []costCase{
		{"gemini-flash-experimental", price.Usage{Input: 5_000, Output: 5_000}, "0"},
		{"gpt-image-1", price.Usage{Output: 5}, unpriced},
		{"gpt-image-1", price.Usage{ImageOut: 5}, "0.0002"},
	})
	wantNotFound(t, table, "no-such-model")
}

func TestT121_BadOverridesAndEntries(t *testing.T) {
	t.Parallel()
	table, problems, err := price.Load(strings.NewReader(`{
		"good": {"input_cost_per_token": 1e-06},
		"negative": {"input_cost_per_token": -1},
		"nan": {"input_cost_per_token": "NaN"}
	}`))
	if err != nil || len(problems) != 2 {
		t.Fatalf("error %v, problems %v", err, problems)
	}
	for i, want := range []price.Problem{
		{Line: 3, Model: "negative", Field: "input_cost_per_token", Reason: "-1 is negative"},
		{Line: 4, Model: "nan", Field: "input_cost_per_token", Reason: `"NaN" is not a number`},
	} {
		if problems[i] != want {
			t.Errorf("problem %+v, want %+v", problems[i], want)
		}
		wantNotFound(t, table, want.Model)
	}
	if got := table.Models(); !slices.Equal(got, []string{"good"}) {
		t.Errorf("models %q", got)
	}

	before := table.Version()
	next, err := table.With(map[string]price.Entry{"good": perMillion(), "bad": entry("", "input_cost_per_token", "-1")})
	if !errors.Is(err, invalid) || next != nil {
		t.Errorf("With a bad override: %v, %v", next, err)
	}
	cost, err := find(t, table, "good").Cost(price.Usage{Input: 1, Output: 0})
	wantAmount(t, cost, err, "0.000001")
	if _, err := find(t, table, "good").Cost(price.Usage{Output: 1}); !errors.Is(err, unpriced) || table.Version() != before {
		t.Errorf("the old table changed: %v", err)
	}
}

func TestP2_EveryNameHasItsUsage(t *testing.T) {
	t.Parallel()
	for name, u := range map[string]price.Usage{
		"input_cost_per_token":                                     {Input: 7},
		"input_cost_per_token_batches":                             {Input: 7, Tier: price.Batch},
		"input_cost_per_token_flex":                                {Input: 7, Tier: price.Flex},
		"input_cost_per_token_priority":                            {Input: 7, Tier: price.Priority},
		"output_cost_per_token":                                    {Output: 7},
		"output_cost_per_reasoning_token":                          {Output: 7, Reasoning: 7},
		"cache_read_input_token_cost":                              {CacheRead: 7},
		"input_cost_per_token_cache_hit":                           {CacheRead: 7},
		"input_cost_per_token_cache_hit_flex":                      {CacheRead: 7, Tier: price.Flex},
		"cache_read_input_audio_token_cost":                        {CacheReadAudio: 7},
		"cache_creation_input_token_cost":                          {CacheWrite5m: 7},
		"cache_creation_input_token_cost_above_1hr":                {CacheWrite1h: 7},
		"cache_creation_input_token_cost_above_1hr_priority":       {CacheWrite1h: 7, Tier: price.Priority},
		"input_cost_per_audio_token":                               {AudioIn: 7},
		"output_cost_per_audio_token":                              {AudioOut: 7},
		"input_cost_per_image_token":                               {ImageIn: 7},
		"output_cost_per_image_token":                              {ImageOut: 7},
		"output_cost_per_video_token":                              {VideoOut: 7},
		"search_context_cost_per_query.search_context_size_low":    {ServerUses: price.Searches{Low: 7}},
		"search_context_cost_per_query.search_context_size_medium": {ServerUses: price.Searches{Medium: 7}},
		"search_context_cost_per_query.search_context_size_high":   {ServerUses: price.Searches{High: 7}},
	} {
		p := priced(t, entry("", name, "3"))
		cost, err := p.Cost(u)
		wantAmount(t, cost, err, "21")
		if d, ok := p.Rate(name); !ok || d.String() != "3" {
			t.Errorf("Rate(%q) = %s, %v", name, d, ok)
		}
	}
	for name, u := range map[string]price.Usage{ // above 1,000 tokens, and at 1,000 no rate
		"input_cost_per_token_above_1k_tokens":                              {Input: 1_001},
		"input_cost_per_token_above_1k_tokens_priority":                     {Input: 1_001, Tier: price.Priority},
		"cache_creation_input_token_cost_above_1hr_above_1k_tokens_batches": {CacheWrite1h: 1_001, Tier: price.Batch},
	} {
		p := priced(t, entry("", name, "3"))
		cost, err := p.Cost(u)
		wantAmount(t, cost, err, "3003")
		u.Input, u.CacheWrite1h = min(u.Input, 1_000), min(u.CacheWrite1h, 1_000)
		cost, err = p.Cost(u)
		wantAmount(t, cost, err, unpriced)
	}
}

func TestP2_CacheHitMustAgree(t *testing.T) {
	t.Parallel()
	pair := func(hit string) map[string]price.Entry {
		return map[string]price.Entry{"m": entry("", "cache_read_input_token_cost", "2", "input_cost_per_token_cache_hit", hit)}
	}
	if _, err := load(t, `{}`).With(pair("2.0")); err != nil {
		t.Error(err)
	}
	if _, err := load(t, `{}`).With(pair("3")); !errors.Is(err, invalid) {
		t.Errorf("two prices of one thing: %v", err)
	}
}

func TestP4_Counts(t *testing.T) {
	t.Parallel()
	p := priced(t, entry("", "input_cost_per_token", "0", "output_cost_per_token", "0"))
	fields := []struct {
		name string
		set  func(*price.Usage, int64)
	}{
		{"Input", func(u *price.Usage, n int64) { u.Input = n }},
		{"CacheRead", func(u *price.Usage, n int64) { u.CacheRead = n }},
		{"CacheReadAudio", func(u *price.Usage, n int64) { u.CacheReadAudio = n }},
		{"CacheWrite5m", func(u *price.Usage, n int64) { u.CacheWrite5m = n }},
		{"CacheWrite1h", func(u *price.Usage, n int64) { u.CacheWrite1h = n }},
		{"Output", func(u *price.Usage, n int64) { u.Output = n }},
		{"Reasoning", func(u *price.Usage, n int64) { u.Reasoning = n }},
		{"AudioIn", func(u *price.Usage, n int64) { u.AudioIn = n }},
		{"AudioOut", func(u *price.Usage, n int64) { u.AudioOut = n }},
		{"ImageIn", func(u *price.Usage, n int64) { u.ImageIn = n }},
		{"ImageOut", func(u *price.Usage, n int64) { u.ImageOut = n }},
		{"VideoOut", func(u *price.Usage, n int64) { u.VideoOut = n }},
		{"ServerUses.Low", func(u *price.Usage, n int64) { u.ServerUses.Low = n }},
		{"ServerUses.Medium", func(u *price.Usage, n int64) { u.ServerUses.Medium = n }},
		{"ServerUses.High", func(u *price.Usage, n int64) { u.ServerUses.High = n }},
	}
	for _, f := range fields {
		for _, n := range []int64{-1, 2_000_000_001, -1 << 63} {
			var u price.Usage
			f.set(&u, n)
			cost, err := p.Cost(u)
			wantAmount(t, cost, err, invalid)
			var e *spendlimit.InvalidError
			if !errors.As(err, &e) || e.Field != "Usage."+f.name {
				t.Errorf("%s = %d: %v", f.name, n, err)
			}
		}
	}
	for _, c := range []struct {
		usage price.Usage
		want  any
	}{
		{price.Usage{Input: 2_000_000_000, Output: 2_000_000_000, Reasoning: 2_000_000_000}, "0"},
		{price.Usage{Output: 1, Reasoning: 2}, invalid},
		{price.Usage{Modifiers: []string{"x", "x"}}, unpriced}, // x is looked up before it is doubled
		{price.Usage{Modifiers: make([]string, 17)}, invalid},
	} {
		cost, err := p.Cost(c.usage)
		wantAmount(t, cost, err, c.want)
	}
	doubled := priced(t, entry("", "provider_specific_entry.x", "2"))
	cost, err := doubled.Cost(price.Usage{Modifiers: []string{"x", "x"}})
	wantAmount(t, cost, err, invalid)
}

func TestP5_RoundedUpOnce(t *testing.T) {
	t.Parallel()
	e := entry("", "input_cost_per_token", "0.0000000001", "output_cost_per_token", "0.0000000004",
		"regional_processing_uplift_multiplier_eu", "1.1", "provider_specific_entry.fast", "6",
		"search_context_cost_per_query.search_context_size_low", "0.01")
	p := priced(t, e)
	for _, c := range []struct {
		usage price.Usage
		want  any
	}{
		{price.Usage{Input: 1}, "0.000000001"},
		{price.Usage{Input: 10}, "0.000000001"},
		{price.Usage{Input: 11}, "0.000000002"},
		{price.Usage{Input: 6, Output: 1}, "0.000000001"},     // each alone would round up: 0.000000002
		{price.Usage{Input: 10, Region: "eu"}, "0.000000002"}, // 0.0000000011
		{price.Usage{Input: 9, Region: "eu"}, "0.000000001"},  // 0.00000000099, not 1.1 × 0.000000001
		{price.Usage{Input: 5, Modifiers: []string{"fast"}}, "0.000000003"},
		{price.Usage{ServerUses: price.Searches{Low: 3}, Region: "eu"}, "0.033"},
		{price.Usage{ServerUses: price.Searches{High: 1}}, unpriced},
		{price.Usage{ServerUses: price.Searches{Medium: 1}}, unpriced},
	} {
		cost, err := p.Cost(c.usage)
		wantAmount(t, cost, err, c.want)
	}
}

func TestP5_Overflow(t *testing.T) {
	t.Parallel()
	p := priced(t, entry("", "input_cost_per_token", "9223372036.854775807", "output_cost_per_token", "1e30", "provider_specific_entry.x", "1e30"))
	for _, c := range []struct {
		usage price.Usage
		want  any
	}{
		{price.Usage{Input: 1}, "9223372036.854775807"},
		{price.Usage{Input: 2}, spendlimit.ErrOverflow},
		{price.Usage{Output: 2_000_000_000, Modifiers: []string{"x"}}, spendlimit.ErrOverflow},
	} {
		cost, err := p.Cost(c.usage)
		wantAmount(t, cost, err, c.want)
	}
	bound, err := p.Bound(price.Ask{Prompt: 1, MaxOutput: 1})
	wantAmount(t, bound, err, spendlimit.ErrOverflow)
}

func TestP6_LargestThresholdForAll(t *testing.T) {
	t.Parallel()
	p := priced(t, entry("",
		"input_cost_per_token", "1", "input_cost_per_token_above_1k_tokens", "2", "input_cost_per_token_above_3k_tokens", "3",
		"output_cost_per_token", "10", "output_cost_per_token_above_1k_tokens", "20",
		"cache_read_input_token_cost", "0", "cache_read_input_audio_token_cost", "0",
		"cache_creation_input_token_cost", "0", "cache_creation_input_token_cost_above_1hr", "0",
		"input_cost_per_audio_token", "0", "input_cost_per_image_token", "0", "output_cost_per_audio_token", "0"))
	for _, c := range []struct {
		usage price.Usage
		want  any
	}{
		{price.Usage{Input: 1_000, Output: 1}, "1010"},
		{price.Usage{Input: 1_001, Output: 1}, "2022"},
		{price.Usage{Input: 3_000, Output: 1}, "6020"},
		{price.Usage{Input: 3_001, Output: 1}, "9013"}, // output has no rate above 3,000: its base rate, not that above 1,000
		// every class of the input side counts, none of the output side
		{price.Usage{CacheRead: 1_001, Output: 1}, "20"},
		{price.Usage{CacheReadAudio: 1_001, Output: 1}, "20"},
		{price.Usage{CacheWrite5m: 1_001, Output: 1}, "20"},
		{price.Usage{CacheWrite1h: 1_001, Output: 1}, "20"},
		{price.Usage{AudioIn: 1_001, Output: 1}, "20"},
		{price.Usage{ImageIn: 1_001, Output: 1}, "20"},
		{price.Usage{AudioOut: 1_001, Output: 1}, "10"},
		{price.Usage{Input: 1, Output: 2_000}, "20001"},
	} {
		cost, err := p.Cost(c.usage)
		wantAmount(t, cost, err, c.want)
	}
}

// A threshold that only another tier has must not hide the standard one below it.
func TestP6_ThresholdsOfOtherTiers(t *testing.T) {
	t.Parallel()
	p := priced(t, entry("", "input_cost_per_token", "1", "input_cost_per_token_above_1k_tokens", "2",
		"input_cost_per_token_above_3k_tokens_priority", "9"))
	cost, err := p.Cost(price.Usage{Input: 4_000})
	wantAmount(t, cost, err, "8000")
	cost, err = p.Cost(price.Usage{Input: 4_000, Tier: price.Priority})
	wantAmount(t, cost, err, "36000")
}

func TestP7_Tiers(t *testing.T) {
	t.Parallel()
	p := priced(t, entry("",
		"input_cost_per_token", "4", "input_cost_per_token_batches", "2", "input_cost_per_token_flex", "3", "input_cost_per_token_priority", "8",
		"input_cost_per_token_above_1k_tokens", "6", "input_cost_per_token_above_1k_tokens_batches", "5",
		"output_cost_per_token", "7", "output_cost_per_audio_token_priority", "1",
		"cache_read_input_token_cost", "1"))
	for _, c := range []struct {
		usage price.Usage
		want  any
	}{
		{price.Usage{Input: 1, Tier: price.Batch}, "2"},
		{price.Usage{Input: 1, Tier: price.Flex}, "3"},
		{price.Usage{Input: 1, Tier: price.Priority}, "8"},
		{price.Usage{Output: 1, Tier: price.Flex}, "7"},
		{price.Usage{Output: 1, Tier: price.Priority}, unpriced},
		{price.Usage{CacheRead: 1, Tier: price.Priority}, unpriced}, // a standard rate is there, so nothing stands in
		{price.Usage{Input: 2_000, Tier: price.Batch}, "10000"},
		{price.Usage{Input: 2_000, Tier: price.Flex}, "12000"}, // the standard rate above, not the flex rate below
		{price.Usage{Input: 2_000, Tier: price.Priority}, unpriced},
		{price.Usage{AudioOut: 1}, unpriced}, // a priority rate is no standard one
	} {
		cost, err := p.Cost(c.usage)
		wantAmount(t, cost, err, c.want)
	}
}

func TestP8_StandIns(t *testing.T) {
	t.Parallel()
	only := entry("other", "input_cost_per_token", "2", "output_cost_per_token", "5", "input_cost_per_audio_token", "9")
	openai := only
	openai.Provider = "openai"
	for _, c := range []struct {
		entry price.Entry
		usage price.Usage
		want  any
	}{
		{only, price.Usage{CacheRead: 1}, "2"},
		{only, price.Usage{CacheReadAudio: 1}, "9"},
		{only, price.Usage{ImageIn: 1}, "2"},
		{only, price.Usage{Output: 3, Reasoning: 2}, "15"},
		{only, price.Usage{CacheWrite5m: 1}, unpriced},
		{openai, price.Usage{CacheWrite5m: 1}, "2"},
		{openai, price.Usage{CacheWrite1h: 1}, unpriced},
		{only, price.Usage{AudioOut: 1}, unpriced},
		{only, price.Usage{ImageOut: 1}, unpriced},
		{only, price.Usage{VideoOut: 1}, unpriced},
		{entry("", "output_cost_per_token", "1"), price.Usage{Input: 1}, unpriced},
		{entry("", "output_cost_per_token", "1"), price.Usage{CacheRead: 1}, unpriced},
		{entry("", "input_cost_per_token", "1"), price.Usage{Output: 1}, unpriced},
		{entry("", "output_cost_per_reasoning_token", "3", "output_cost_per_token", "1"), price.Usage{Output: 5, Reasoning: 2}, "9"},
		{entry("", "input_cost_per_token", "1", "input_cost_per_token_above_1k_tokens", "2"), price.Usage{CacheRead: 2_000}, "4000"},
		{price.Entry{}, price.Usage{}, "0"},
	} {
		cost, err := priced(t, c.entry).Cost(c.usage)
		wantAmount(t, cost, err, c.want)
	}
}

func TestP8_MissingWriteAsInput(t *testing.T) {
	t.Parallel()
	config := price.Config{MissingWrite: price.InputRate}
	table, _, err := config.Load(strings.NewReader(`{"m": {"litellm_provider": "other", "input_cost_per_token": 2}}`))
	if err != nil {
		t.Fatal(err)
	}
	table, err = table.With(map[string]price.Entry{"n": entry("other", "input_cost_per_token", "3")})
	if err != nil {
		t.Fatal(err)
	}
	for model, want := range map[string]string{"m": "2", "n": "3"} {
		p := find(t, table, model)
		cost, err := p.Cost(price.Usage{CacheWrite5m: 1})
		wantAmount(t, cost, err, want)
		cost, err = price.CostOf(p.Encode(), price.Usage{CacheWrite5m: 1}) // the rule is stored with the rates
		wantAmount(t, cost, err, want)
		cost, err = p.Cost(price.Usage{CacheWrite1h: 1})
		wantAmount(t, cost, err, unpriced)
	}
	if _, _, err := (price.Config{MissingWrite: "output_rate"}).Load(strings.NewReader(`{}`)); !errors.Is(err, invalid) {
		t.Errorf("unknown rule: %v", err)
	}
}

func TestP10_Bound(t *testing.T) {
	t.Parallel()
	e := entry("other",
		"input_cost_per_token", "2", "output_cost_per_token", "5", "output_cost_per_reasoning_token", "7",
		"cache_read_input_token_cost", "3", "input_cost_per_audio_token", "9", "input_cost_per_image_token", "8",
		"output_cost_per_audio_token", "11", "output_cost_per_image_token", "12", "output_cost_per_video_token", "13",
		"input_cost_per_token_above_1k_tokens", "1", "regional_processing_uplift_multiplier_eu", "1.5",
		"provider_specific_entry.fast", "6", "search_context_cost_per_query.search_context_size_high", "0.5")
	known := e
	known.MaxOutput = 100
	hump := entry("", "input_cost_per_token", "1", "output_cost_per_token", "0",
		"input_cost_per_token_above_1k_tokens", "9", "input_cost_per_token_above_3k_tokens", "2")
	odd := entry("other", "input_cost_per_token", "1", "output_cost_per_token", "0", "input_cost_per_audio_token", "2",
		"cache_read_input_audio_token_cost", "3", "cache_creation_input_token_cost", "7", "cache_creation_input_token_cost_above_1hr", "5")
	for _, c := range []struct {
		entry price.Entry
		ask   price.Ask
		want  any
	}{
		{e, price.Ask{Prompt: 10, MaxOutput: 10}, "100"}, // reads and reasoning may cost more than the usual token
		{e, price.Ask{Prompt: 0, MaxOutput: 10}, "70"},
		{e, price.Ask{Prompt: 10, MaxOutput: 10, AudioIn: true}, "160"},
		{e, price.Ask{Prompt: 10, MaxOutput: 10, ImageIn: true}, "150"},
		{e, price.Ask{Prompt: 10, MaxOutput: 10, AudioOut: true}, "140"},
		{e, price.Ask{Prompt: 10, MaxOutput: 10, ImageOut: true}, "150"},
		{e, price.Ask{Prompt: 10, MaxOutput: 10, VideoOut: true}, "160"},
		{e, price.Ask{Prompt: 2_000, MaxOutput: 10}, "6070"}, // a cheaper rate above 1,000 bounds nothing: fewer may come
		{e, price.Ask{Prompt: 10, MaxOutput: 10, Region: "eu"}, "150"},
		{e, price.Ask{Prompt: 10, MaxOutput: 10, Modifiers: []string{"fast"}}, "600"},
		{e, price.Ask{Prompt: 10, MaxOutput: 10, ServerUses: price.Searches{High: 2}}, "101"},
		{e, price.Ask{Prompt: 10, MaxOutput: 10, ServerUses: price.Searches{Low: 1}}, unpriced},
		{e, price.Ask{Prompt: 10, MaxOutput: 10, Region: "us"}, unpriced},
		{e, price.Ask{Prompt: 10, MaxOutput: 10, Tier: "turbo"}, unpriced},
		{e, price.Ask{Prompt: 10, MaxOutput: 10, Tier: price.Priority}, unpriced},
		{e, price.Ask{Prompt: 10, MaxOutput: 10, CacheWrites: price.Writes5m}, unpriced},
		{odd, price.Ask{Prompt: 10, MaxOutput: 1, AudioIn: true}, "30"}, // audio from the cache
		{odd, price.Ask{Prompt: 10, MaxOutput: 1, CacheWrites: price.Writes5m}, "70"},
		{odd, price.Ask{Prompt: 10, MaxOutput: 1, CacheWrites: price.Writes1h}, "70"}, // the short writes too
		{hump, price.Ask{Prompt: 1_000, MaxOutput: 1}, "1000"},
		{hump, price.Ask{Prompt: 4_000, MaxOutput: 1}, "36000"}, // 3,000 tokens would be the dearest
		{e, price.Ask{Prompt: 10}, invalid},
		{known, price.Ask{Prompt: 10}, "730"},
		{known, price.Ask{Prompt: 10, MaxOutput: 10}, "100"},
		{e, price.Ask{Prompt: -1, MaxOutput: 10}, invalid},
		{e, price.Ask{Prompt: 2_000_000_001, MaxOutput: 10}, invalid},
		{e, price.Ask{Prompt: 1, MaxOutput: -1}, invalid},
		{e, price.Ask{Prompt: 1, MaxOutput: 2_000_000_001}, invalid},
		{e, price.Ask{Prompt: 1, MaxOutput: 1, CacheWrites: 3}, invalid},
		{e, price.Ask{Prompt: 1, MaxOutput: 1, ServerUses: price.Searches{Low: -1}}, invalid},
	} {
		bound, err := priced(t, c.entry).Bound(c.ask)
		wantAmount(t, bound, err, c.want)
	}
}

func TestP10_MaxTokensOfTheFile(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]any{
		`"max_output_tokens": 3, "max_tokens": 9`:        "3",
		`"max_tokens": 9`:                                "9",
		`"max_output_tokens": "3", "max_tokens": 9`:      "9",
		`"max_tokens": "9"`:                              invalid,
		`"max_output_tokens": -3`:                        invalid,
		`"max_output_tokens": 3.5`:                       invalid,
		`"max_output_tokens": 2000000001`:                invalid,
		`"max_output_tokens": null, "max_tokens": [[9]]`: invalid,
	} {
		p := find(t, load(t, `{"m": {"output_cost_per_token": 1, `+fields+`}}`), "m")
		bound, err := p.Bound(price.Ask{})
		wantAmount(t, bound, err, want)
	}
}

func TestZeroPrice(t *testing.T) {
	t.Parallel()
	var p price.Price
	cost, err := p.Cost(price.Usage{})
	wantAmount(t, cost, err, unpriced)
	bound, err := p.Bound(price.Ask{MaxOutput: 1})
	wantAmount(t, bound, err, unpriced)
	if _, ok := p.Rate("input_cost_per_token"); ok || p.Model() != "" || p.Encode() != "" || p.Raw() != nil {
		t.Error("the zero Price knows something")
	}
}

func TestP11_StoredRates(t *testing.T) {
	t.Parallel()
	table := realTable(t)
	usage := price.Usage{Input: 1_000, CacheRead: 300_000, Output: 500, Reasoning: 20}
	for _, name := range table.Models() {
		p := find(t, table, name)
		text := p.Encode()
		if len(text) > 4096 || !strings.Contains(text, table.Version()) || !strings.Contains(text, strconv.Quote(name)) {
			t.Errorf("%s: stored as %s", name, text)
		}
		back, err := price.Decode(text)
		if err != nil || back.Encode() != text || back.Model() != name {
			t.Errorf("%s: decoded as %s, %v", name, back.Encode(), err)
		}
		want, wantErr := p.Cost(usage)
		got, err := price.CostOf(text, usage)
		if got != want || errors.Is(err, unpriced) != errors.Is(wantErr, unpriced) {
			t.Errorf("%s: cost %d, %v from the stored rates, want %d, %v", name, got, err, want, wantErr)
		}
		bound, _ := p.Bound(price.Ask{Prompt: 500_000})
		if got, _ := back.Bound(price.Ask{Prompt: 500_000}); got != bound {
			t.Errorf("%s: bound %d from the stored rates, want %d", name, got, bound)
		}
	}
}

func TestT91_StoredRatesOutliveAPriceChange(t *testing.T) {
	t.Parallel()
	old, err := load(t, `{}`).With(map[string]price.Entry{"m": entry("", "input_cost_per_token", "1")})
	if err != nil {
		t.Fatal(err)
	}
	stored := find(t, old, "m").Encode()
	next, err := old.With(map[string]price.Entry{"m": entry("", "input_cost_per_token", "2")})
	if err != nil {
		t.Fatal(err)
	}
	cost, err := price.CostOf(stored, price.Usage{Input: 3})
	wantAmount(t, cost, err, "3")
	cost, err = price.CostOf(find(t, next, "m").Encode(), price.Usage{Input: 3})
	wantAmount(t, cost, err, "6")
}

func TestP11_DecodeRefusesAllElse(t *testing.T) {
	t.Parallel()
	good := priced(t, entry("p", "input_cost_per_token", "0.5", "provider_specific_entry.<&>", "2")).Encode()
	if _, err := price.Decode(good); err != nil {
		t.Fatal(err)
	}
	replace := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%q is not in %s", old, good)
		}
		return strings.Replace(good, old, new, 1)
	}
	for _, text := range []string{
		"x", "{}", "null", good + " ", good + good, good[1:],
		replace(`"0.5"`, `"0.50"`), replace(`"0.5"`, `"-0.5"`), replace(`"0.5"`, `0.5`), replace(`"0.5"`, `"5e-1"`),
		replace(`"0.5"`, `"1e-2000000"`), replace(`"0.5"`, `"x"`), replace(`"model":"m"`, `"model":""`),
		replace(`"model":"m"`, `"model":"m","model":"m"`), replace(`"model"`, `"extra":1,"model"`),
		replace(`"model"`, `"missing_write":"output_rate","model"`), replace(`"model"`, `"max_output":-1,"model"`),
		replace(`input_cost_per_token`, `input_cost_per_image`), strings.ToUpper(good), replace(`"table":"`, `"table":"`+strings.Repeat("0", 4096)), strings.Repeat("[", 4097),
	} {
		if _, err := price.Decode(text); !errors.Is(err, invalid) {
			t.Errorf("Decode(%.200q): %v", text, err)
		}
	}
	cost, err := price.CostOf("", price.Usage{})
	wantAmount(t, cost, err, unpriced)
	cost, err = price.CostOf("{}", price.Usage{})
	wantAmount(t, cost, err, invalid)
}

func TestP1_BoundsOfARate(t *testing.T) {
	t.Parallel()
	big, _ := decimal.NewFromString("1" + strings.Repeat("0", 80))
	for i, c := range []struct {
		rate decimal.Decimal
		ok   bool
	}{
		{decimal.New(1, -30), true}, {decimal.New(1, -31), false},
		{decimal.New(1, 30), true}, {decimal.New(1, 31), false},
		{decimal.New(1, 2_000_000_000), false}, {decimal.New(1, -2_000_000_000), false},
		{decimal.New(-1, -30), false}, {decimal.New(0, 0), true}, {big, false},
	} {
		e := price.Entry{Rates: map[string]decimal.Decimal{"input_cost_per_token": c.rate}}
		table, err := load(t, `{}`).With(map[string]price.Entry{"m": e})
		if c.ok != (err == nil) || !c.ok && (!errors.Is(err, invalid) || table != nil) {
			t.Errorf("case %d: %v", i, err)
		}
	}
}
