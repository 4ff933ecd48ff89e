package price_test

import (
	"encoding/json"
	"errors"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/price"
)

// world is one entry, kept as the texts of the file, and a slow and plain reading of the pricing rules over them.
type world struct {
	provider  string
	inputRate bool
	rates     map[string]string
}

func (w world) load(t *rapid.T) price.Price {
	fields := map[string]any{"litellm_provider": w.provider}
	nested := map[string]map[string]string{"provider_specific_entry": {}, "search_context_cost_per_query": {}}
	for name, text := range w.rates {
		if outer, inner, ok := strings.Cut(name, "."); ok {
			nested[outer][inner] = text
		} else {
			fields[name] = json.Number(text)
		}
	}
	for name, inner := range nested {
		fields[name] = inner
	}
	text, err := json.Marshal(map[string]any{"m": fields})
	if err != nil {
		t.Fatal(err)
	}
	var config price.Config
	if w.inputRate {
		config.MissingWrite = price.InputRate
	}
	table, problems, err := config.Load(strings.NewReader(string(text)))
	if err != nil || len(problems) > 0 {
		t.Fatalf("%s: %v, %v", text, err, problems)
	}
	p, _, err := table.Find("m")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func suffix(tier price.Tier) string {
	return map[price.Tier]string{"": "", "batch": "_batches", "flex": "_flex", "priority": "_priority"}[tier]
}

var aboveName = regexp.MustCompile(`_above_(\d+)k_tokens(_[a-z]+)?$`)

// above is the N of P6, 0 for the base rates.
func (w world) above(tokens int64, tier price.Tier) int64 {
	var top int64
	for name := range w.rates {
		m := aboveName.FindStringSubmatch(name)
		if m == nil || m[2] != "" && m[2] != suffix(tier) {
			continue
		}
		if n, _ := strconv.ParseInt(m[1], 10, 64); tokens > n*1000 {
			top = max(top, n)
		}
	}
	return top
}

// rate is "" when there is none.
func (w world) rate(base string, n int64, tier price.Tier) string {
	var names []string
	if n > 0 {
		names = append(names, base+"_above_"+strconv.FormatInt(n, 10)+"k_tokens")
	}
	for _, name := range append(names, base) {
		if text, ok := w.rates[name+suffix(tier)]; ok {
			return text
		}
		if text, ok := w.rates[name]; ok {
			if tier == "priority" {
				return ""
			}
			return text
		}
	}
	switch base {
	case "cache_read_input_token_cost", "input_cost_per_image_token":
		return w.rate("input_cost_per_token", n, tier)
	case "cache_read_input_audio_token_cost":
		return w.rate("input_cost_per_audio_token", n, tier)
	case "output_cost_per_reasoning_token":
		return w.rate("output_cost_per_token", n, tier)
	case "cache_creation_input_token_cost":
		if w.provider == "openai" || w.inputRate {
			return w.rate("input_cost_per_token", n, tier)
		}
	}
	return ""
}

// cost is in nano-dollars, rounded up; false when something has no price.
func (w world) cost(u price.Usage) (*big.Int, bool) {
	n := w.above(u.Input+u.CacheRead+u.CacheReadAudio+u.CacheWrite5m+u.CacheWrite1h+u.AudioIn+u.ImageIn, u.Tier)
	sum, known := new(big.Rat), true
	number := func(text string) *big.Rat {
		r, ok := new(big.Rat).SetString(text)
		known = known && ok
		if !ok {
			return new(big.Rat)
		}
		return r
	}
	add := func(count int64, text string) {
		if count > 0 {
			sum.Add(sum, new(big.Rat).Mul(new(big.Rat).SetInt64(count), number(text)))
		}
	}
	add(u.Input, w.rate("input_cost_per_token", n, u.Tier))
	add(u.CacheRead, w.rate("cache_read_input_token_cost", n, u.Tier))
	add(u.CacheReadAudio, w.rate("cache_read_input_audio_token_cost", n, u.Tier))
	add(u.CacheWrite5m, w.rate("cache_creation_input_token_cost", n, u.Tier))
	add(u.CacheWrite1h, w.rate("cache_creation_input_token_cost_above_1hr", n, u.Tier))
	add(u.Output-u.Reasoning, w.rate("output_cost_per_token", n, u.Tier))
	add(u.Reasoning, w.rate("output_cost_per_reasoning_token", n, u.Tier))
	add(u.AudioIn, w.rate("input_cost_per_audio_token", n, u.Tier))
	add(u.AudioOut, w.rate("output_cost_per_audio_token", n, u.Tier))
	add(u.ImageIn, w.rate("input_cost_per_image_token", n, u.Tier))
	add(u.ImageOut, w.rate("output_cost_per_image_token", n, u.Tier))
	add(u.VideoOut, w.rate("output_cost_per_video_token", n, u.Tier))
	add(u.ServerUses.Low, w.rates["search_context_cost_per_query.search_context_size_low"])
	add(u.ServerUses.Medium, w.rates["search_context_cost_per_query.search_context_size_medium"])
	add(u.ServerUses.High, w.rates["search_context_cost_per_query.search_context_size_high"])
	if u.Region != "" {
		sum.Mul(sum, number(w.rates["regional_processing_uplift_multiplier_"+u.Region]))
	}
	for _, m := range u.Modifiers {
		sum.Mul(sum, number(w.rates["provider_specific_entry."+m]))
	}
	sum.Mul(sum, new(big.Rat).SetInt64(1_000_000_000))
	q, r := new(big.Int).QuoRem(sum.Num(), sum.Denom(), new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q, known
}

var bases = []string{
	"input_cost_per_token", "output_cost_per_token", "cache_read_input_token_cost", "cache_read_input_audio_token_cost",
	"cache_creation_input_token_cost", "cache_creation_input_token_cost_above_1hr", "output_cost_per_reasoning_token",
	"input_cost_per_audio_token", "output_cost_per_audio_token", "input_cost_per_image_token", "output_cost_per_image_token",
	"output_cost_per_video_token",
}

var tiers = []price.Tier{price.Standard, price.Batch, price.Flex, price.Priority}

func drawRate(t *rapid.T) string {
	return strconv.Itoa(rapid.IntRange(0, 9_999).Draw(t, "mantissa")) +
		rapid.SampledFrom([]string{"", ".25", "e-3", ".5e-06", ".75E-9", "e-12", ".125e-25"}).Draw(t, "end")
}

// drawWorld gives most classes a base rate, and as many others as the stored form has room for.
func drawWorld(t *rapid.T) world {
	w := world{
		provider:  rapid.SampledFrom([]string{"openai", "anthropic"}).Draw(t, "provider"),
		inputRate: rapid.Bool().Draw(t, "inputRate"),
		rates:     make(map[string]string),
	}
	var others []string
	for _, base := range bases {
		if rapid.IntRange(0, 9).Draw(t, base) < 9 {
			w.rates[base] = drawRate(t)
		}
		for _, tier := range tiers {
			if tier != price.Standard {
				others = append(others, base+suffix(tier))
			}
			others = append(others, base+"_above_1k_tokens"+suffix(tier), base+"_above_3k_tokens"+suffix(tier))
		}
	}
	for _, size := range []string{"low", "medium", "high"} {
		others = append(others, "search_context_cost_per_query.search_context_size_"+size)
	}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(others), 0, 30, rapid.ID).Draw(t, "rates") {
		w.rates[name] = drawRate(t)
	}
	for _, name := range []string{"regional_processing_uplift_multiplier_eu", "provider_specific_entry.fast", "provider_specific_entry.us"} {
		if rapid.Bool().Draw(t, name) {
			w.rates[name] = rapid.SampledFrom([]string{"1.1", "6.0", "0.5", "1.000001"}).Draw(t, "multiplier")
		}
	}
	return w
}

func drawCount(t *rapid.T, name string, most int64) int64 {
	if most == 0 || !rapid.SampledFrom([]bool{false, false, false, false, true}).Draw(t, name+" used") {
		return 0
	}
	return rapid.Int64Range(0, most).Draw(t, name)
}

func drawModifiers(t *rapid.T) []string {
	return rapid.SampledFrom([][]string{nil, nil, nil, {"fast"}, {"us", "fast"}}).Draw(t, "modifiers")
}

func drawUsage(t *rapid.T) price.Usage {
	most := rapid.SampledFrom([]int64{1_000, 3_500, 2_000_000_000}).Draw(t, "most")
	count := func(name string) int64 { return drawCount(t, name, most) }
	u := price.Usage{
		Input: count("input"), CacheRead: count("read"), CacheReadAudio: count("readAudio"),
		CacheWrite5m: count("write5m"), CacheWrite1h: count("write1h"), Output: count("output"),
		AudioIn: count("audioIn"), AudioOut: count("audioOut"), ImageIn: count("imageIn"), ImageOut: count("imageOut"), VideoOut: count("videoOut"),
		ServerUses: price.Searches{Low: count("low"), Medium: count("medium"), High: count("high")},
		Tier:       rapid.SampledFrom(tiers).Draw(t, "tier"),
		Region:     rapid.SampledFrom([]string{"", "", "", "eu", "us"}).Draw(t, "region"),
		Modifiers:  drawModifiers(t),
	}
	u.Reasoning = drawCount(t, "reasoning", u.Output)
	return u
}

// With random rates and usages the cost is the model's, and it is unpriced exactly when the model says so.
func TestP5_CostIsTheModels(t *testing.T) {
	t.Parallel()
	var priced, unknown int
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		p := w.load(t)
		stored := decoded(t, p)
		for range 10 {
			u := drawUsage(t)
			want, known := w.cost(u)
			for _, p := range []price.Price{p, stored} {
				got, err := p.Cost(u)
				switch {
				case !known && !errors.Is(err, spendlimit.ErrUnpriced):
					t.Fatalf("got %d, %v, want unpriced", got, err)
				case known && !want.IsInt64() && !errors.Is(err, spendlimit.ErrOverflow):
					t.Fatalf("got %d, %v, want overflow of %s", got, err, want)
				case known && want.IsInt64() && (err != nil || int64(got) != want.Int64()):
					t.Fatalf("got %d, %v, want %s", got, err, want)
				}
			}
			if known {
				priced++
			} else {
				unknown++
			}
		}
	})
	t.Logf("%d priced, %d unpriced", priced, unknown)
	if priced == 0 || unknown == 0 {
		t.Errorf("%d priced and %d unpriced cases: the test looks at one side only", priced, unknown)
	}
}

func decoded(t *rapid.T, p price.Price) price.Price {
	back, err := price.Decode(p.Encode())
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// Whatever is used within what was asked for is priced and costs no more than the bound.
func TestP10_BoundHolds(t *testing.T) {
	t.Parallel()
	var bounded int
	rapid.Check(t, func(t *rapid.T) {
		p := drawWorld(t).load(t)
		a := price.Ask{
			Prompt: rapid.Int64Range(0, 5_000).Draw(t, "prompt"), MaxOutput: rapid.Int64Range(1, 5_000).Draw(t, "maxOutput"),
			CacheWrites: rapid.SampledFrom([]price.CacheWrites{price.NoWrites, price.NoWrites, price.Writes5m, price.Writes1h}).Draw(t, "writes"),
			Tier:        rapid.SampledFrom([]price.Tier{"", "", "", "batch", "flex", "priority"}).Draw(t, "tier"),
			AudioIn:     rapid.Bool().Draw(t, "audioIn"), AudioOut: rapid.Bool().Draw(t, "audioOut"),
			ImageIn: rapid.Bool().Draw(t, "imageIn"), ImageOut: rapid.Bool().Draw(t, "imageOut"), VideoOut: rapid.Bool().Draw(t, "videoOut"),
			ServerUses: price.Searches{High: drawCount(t, "searches", 5)},
			Modifiers:  drawModifiers(t),
		}
		bound, err := p.Bound(a)
		if err != nil {
			if !errors.Is(err, spendlimit.ErrUnpriced) && !errors.Is(err, spendlimit.ErrOverflow) {
				t.Fatal(err)
			}
			return
		}
		bounded++
		in, out := a.Prompt, a.MaxOutput
		take := func(name string, left *int64, can bool) int64 {
			if !can {
				return 0
			}
			n := drawCount(t, name, *left)
			*left -= n
			return n
		}
		u := price.Usage{
			CacheRead: take("read", &in, true), CacheReadAudio: take("readAudio", &in, a.AudioIn),
			CacheWrite5m: take("write5m", &in, a.CacheWrites >= price.Writes5m), CacheWrite1h: take("write1h", &in, a.CacheWrites == price.Writes1h),
			AudioIn: take("audioIn", &in, a.AudioIn), ImageIn: take("imageIn", &in, a.ImageIn),
			AudioOut: take("audioOut", &out, a.AudioOut), ImageOut: take("imageOut", &out, a.ImageOut), VideoOut: take("videoOut", &out, a.VideoOut),
			ServerUses: a.ServerUses, Tier: a.Tier, Modifiers: a.Modifiers,
		}
		u.Input = rapid.SampledFrom([]int64{in, in / 2}).Draw(t, "input")
		u.Output = rapid.SampledFrom([]int64{out, out / 2}).Draw(t, "output")
		u.Reasoning = drawCount(t, "reasoning", u.Output)
		if cost, err := p.Cost(u); err != nil || cost > bound || cost < 0 {
			t.Fatalf("usage %+v costs %d, %v above the bound %d of %+v", u, cost, err, bound, a)
		}
	})
	t.Logf("%d bounded", bounded)
	if bounded == 0 {
		t.Error("no case had a bound")
	}
}
