package price

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/shopspring/decimal"

	"github.com/stint-go/stint/internal/fault"
	"github.com/stint-go/stint/spendlimit"
)

// Price is what one model costs. It never changes, whatever happens to its table. The zero Price prices nothing.
type Price struct {
	m     *model
	table string // version
}

// Model is the exact name of the entry.
func (p Price) Model() string {
	if p.m == nil {
		return ""
	}
	return p.m.name
}

// Rate returns a number of the entry by the file's name for it, such as output_cost_per_image. Rates per image, second
// or character have no class in [Usage]: a service that meters such work computes its cost and settles that, or settles
// as unknown. A decoded Price knows only the rates that Cost and Bound use.
func (p Price) Rate(name string) (decimal.Decimal, bool) {
	if p.m == nil {
		return decimal.Decimal{}, false
	}
	d, ok := p.m.named[canonicalName(name)]
	return d, ok
}

// Raw returns the entry as it was read, with the fields that this package does not use; nil for entries of [Table.With]
// and decoded ones.
func (p Price) Raw() json.RawMessage {
	if p.m == nil {
		return nil
	}
	return bytes.Clone(p.m.raw)
}

// Searches counts web searches by the size of their context.
type Searches struct{ Low, Medium, High int64 }

// Usage is what one call used. The classes of tokens are disjoint, except that Reasoning is a part of Output: a token
// that was read from the cache is not in Input, an audio token not in Output (P4). Each count is 0 to 2,000,000,000.
type Usage struct {
	Input          int64
	CacheRead      int64
	CacheReadAudio int64
	CacheWrite5m   int64
	CacheWrite1h   int64
	Output         int64
	Reasoning      int64
	AudioIn        int64
	AudioOut       int64
	ImageIn        int64
	ImageOut       int64
	VideoOut       int64
	ServerUses     Searches
	Tier           Tier
	Region         string   // "" for none; else the entry must have its uplift
	Modifiers      []string // such as "fast"; the entry must have each
}

func (u Usage) counts() [numClasses]int64 {
	return [numClasses]int64{
		input: u.Input, cacheRead: u.CacheRead, cacheReadAudio: u.CacheReadAudio,
		write5m: u.CacheWrite5m, write1h: u.CacheWrite1h,
		output: u.Output, reasoning: u.Reasoning,
		audioIn: u.AudioIn, audioOut: u.AudioOut, imageIn: u.ImageIn, imageOut: u.ImageOut, videoOut: u.VideoOut,
	}
}

// inputSide is what the thresholds of P6 are compared with.
func (u Usage) inputSide() int64 {
	return u.Input + u.CacheRead + u.CacheReadAudio + u.CacheWrite5m + u.CacheWrite1h + u.AudioIn + u.ImageIn
}

// Cost is the exact cost of u in USD, rounded up once to the ninth place (P5). So 0 for a usage that is not empty means
// rates of 0: the declared zero price that a settlement may state. A class that was used and has no rate, an unknown
// tier, region, modifier or search size is an *[UnpricedError]; a bad count is [spendlimit.ErrInvalid]; a cost beyond 64
// bits is [spendlimit.ErrOverflow].
func (p Price) Cost(u Usage) (spendlimit.Amount, error) {
	cost, err := p.cost(u)
	if err != nil {
		return 0, fmt.Errorf("price: cost: %w", err)
	}
	return cost, nil
}

func (p Price) cost(u Usage) (spendlimit.Amount, error) {
	counts := u.counts()
	for c, n := range counts {
		if n < 0 || n > maxCount {
			return 0, badCount("Usage."+classes[c].field, n)
		}
	}
	if u.Reasoning > u.Output {
		return 0, invalid("Usage.Reasoning", "%d is above Output, %d", u.Reasoning, u.Output)
	}
	counts[output] -= u.Reasoning
	b, err := p.bill(u.Tier)
	if err != nil {
		return 0, err
	}
	above := b.level(u.inputSide())
	for c, n := range counts {
		if n == 0 {
			continue
		}
		rate, err := b.rate(class(c), above)
		if err != nil {
			return 0, err
		}
		b.add(n, rate)
	}
	return b.total("Usage", u.ServerUses, u.Region, u.Modifiers)
}

// CacheWrites says which writes to the provider's cache a call may cause.
type CacheWrites uint8

const (
	NoWrites CacheWrites = iota
	Writes5m
	Writes1h // and those of 5 minutes
)

// Ask describes a call before it is made.
type Ask struct {
	Prompt      int64 // upper bound of all tokens on the input side
	MaxOutput   int64 // upper bound of all tokens on the output side; 0 takes the model's own
	CacheWrites CacheWrites
	Tier        Tier

	// What the call may carry besides text.
	AudioIn, AudioOut, ImageIn, ImageOut, VideoOut bool

	// As in Usage.
	ServerUses Searches
	Region     string
	Modifiers  []string
}

// Bound is what to hold in USD before a call is made: each token at the highest rate that it may have, rounded up once
// (P10). No usage within a, with the same tier, region and modifiers, costs more or is unpriced. Without a.MaxOutput and
// without a maximum of the model's own the error is [spendlimit.ErrInvalid]: no guess is made. Other errors are those of
// [Price.Cost].
func (p Price) Bound(a Ask) (spendlimit.Amount, error) {
	bound, err := p.bound(a)
	if err != nil {
		return 0, fmt.Errorf("price: bound: %w", err)
	}
	return bound, nil
}

func (p Price) bound(a Ask) (spendlimit.Amount, error) {
	switch {
	case a.Prompt < 0 || a.Prompt > maxCount:
		return 0, badCount("Ask.Prompt", a.Prompt)
	case a.MaxOutput < 0 || a.MaxOutput > maxCount:
		return 0, badCount("Ask.MaxOutput", a.MaxOutput)
	case a.CacheWrites > Writes1h:
		return 0, invalid("Ask.CacheWrites", "%d is unknown", a.CacheWrites)
	}
	b, err := p.bill(a.Tier)
	if err != nil {
		return 0, err
	}
	if a.MaxOutput == 0 {
		a.MaxOutput = p.m.max
	}
	if a.MaxOutput == 0 {
		return 0, invalid("Ask.MaxOutput", "0, and the table has no output maximum for model %q", p.m.name)
	}
	in, out := a.sides()
	if a.Prompt > 0 {
		rate, err := b.highest(in, a.Prompt)
		if err != nil {
			return 0, err
		}
		b.add(a.Prompt, rate)
	}
	rate, err := b.highest(out, a.Prompt)
	if err != nil {
		return 0, err
	}
	b.add(a.MaxOutput, rate)
	return b.total("Ask", a.ServerUses, a.Region, a.Modifiers)
}

// sides are the classes that may occur on the input and on the output side.
func (a Ask) sides() (in, out []class) {
	in, out = []class{input, cacheRead}, []class{output, reasoning}
	if a.CacheWrites >= Writes5m {
		in = append(in, write5m)
	}
	if a.CacheWrites == Writes1h {
		in = append(in, write1h)
	}
	if a.AudioIn {
		in = append(in, audioIn, cacheReadAudio)
	}
	if a.ImageIn {
		in = append(in, imageIn)
	}
	if a.AudioOut {
		out = append(out, audioOut)
	}
	if a.ImageOut {
		out = append(out, imageOut)
	}
	if a.VideoOut {
		out = append(out, videoOut)
	}
	return in, out
}

func badCount(field string, n int64) error {
	return invalid(field, "%d is outside 0..%d", n, maxCount)
}

func invalid(field, format string, args ...any) error {
	return fault.Invalid(field, format, args...)
}
