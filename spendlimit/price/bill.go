package price

import (
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"github.com/stint-go/stint/spendlimit"
)

// maxModifiers bounds the modifiers of one call.
const maxModifiers = 16

// bill adds up one call exactly; it is rounded once, at its end.
type bill struct {
	*model
	tier Tier
	usd  decimal.Decimal
}

func (p Price) bill(t Tier) (*bill, error) {
	switch {
	case p.m == nil:
		return nil, &UnpricedError{Reason: "zero Price"}
	case t != Standard && t != Batch && t != Flex && t != Priority: // P7
		return nil, &UnpricedError{Model: p.m.name, Reason: fmt.Sprintf("unknown tier %q", clip(string(t)))}
	}
	return &bill{model: p.m, tier: t}, nil
}

// level is the largest threshold that tokens on the input side are strictly above, 0 when none (P6).
func (b *bill) level(tokens int64) int64 {
	levels := b.levels[b.tier]
	if i, _ := slices.BinarySearch(levels, tokens); i > 0 {
		return levels[i-1]
	}
	return 0
}

// rate finds the rate of c at a level: the level's own, else the base rate (P6); of each, the tier's, else for batch
// and flex the standard one (P7); with neither, what stands in for it (P8).
func (b *bill) rate(c class, above int64) (decimal.Decimal, error) {
	for level := above; ; level = 0 {
		if r, ok := b.rates[key{c, b.tier, level}]; ok {
			return r, nil
		}
		if r, ok := b.rates[key{c, Standard, level}]; ok {
			if b.tier == Priority {
				return r, b.unpriced(key{c, b.tier, level}.String())
			}
			return r, nil
		}
		if level == 0 {
			break
		}
	}
	if other, ok := b.standIn(c); ok {
		return b.rate(other, above)
	}
	return decimal.Decimal{}, b.unpriced(key{c, b.tier, 0}.String())
}

// standIn is the class whose rate a class without any takes (P8).
func (b *bill) standIn(c class) (class, bool) {
	switch c {
	case cacheRead, imageIn:
		return input, true
	case cacheReadAudio:
		return audioIn, true
	case reasoning:
		return output, true
	case write5m:
		return input, b.provider == "openai" || b.missing == InputRate
	}
	return 0, false
}

// highest is the highest rate that a token of one of the classes can have in a call of at most prompt tokens.
func (b *bill) highest(cs []class, prompt int64) (decimal.Decimal, error) {
	var top decimal.Decimal
	for _, c := range cs {
		for level := b.level(prompt); ; level = b.level(level) {
			r, err := b.rate(c, level)
			if err != nil {
				return top, err
			}
			if r.GreaterThan(top) {
				top = r
			}
			if level == 0 {
				break
			}
		}
	}
	return top, nil
}

func (b *bill) add(n int64, rate decimal.Decimal) {
	b.usd = b.usd.Add(rate.Mul(decimal.NewFromInt(n)))
}

// total adds the searches, multiplies by what was asked for, and rounds up (P5). request names the caller's type.
func (b *bill) total(request string, s Searches, region string, modifiers []string) (spendlimit.Amount, error) {
	if err := b.searches(request, s); err != nil {
		return 0, err
	}
	if region != "" {
		if err := b.multiply(regionPrefix + region); err != nil {
			return 0, err
		}
	}
	if len(modifiers) > maxModifiers {
		return 0, invalid(request+".Modifiers", "%d, at most %d", len(modifiers), maxModifiers)
	}
	for i, modifier := range modifiers {
		if slices.Contains(modifiers[:i], modifier) {
			return 0, invalid(fmt.Sprintf("%s.Modifiers[%d]", request, i), "given twice")
		}
		if err := b.multiply(modifierPrefix + modifier); err != nil {
			return 0, err
		}
	}
	return spendlimit.USD.FromDecimal(b.usd.RoundUp(int32(spendlimit.USD.Scale)), spendlimit.Exact)
}

func (b *bill) searches(request string, s Searches) error {
	for _, use := range [...]struct {
		field, rate string
		n           int64
	}{{"Low", searchLow, s.Low}, {"Medium", searchMedium, s.Medium}, {"High", searchHigh, s.High}} {
		if use.n < 0 || use.n > maxCount {
			return badCount(request+".ServerUses."+use.field, use.n)
		}
		if use.n == 0 {
			continue
		}
		rate, ok := b.named[use.rate]
		if !ok {
			return b.unpriced(use.rate)
		}
		b.add(use.n, rate)
	}
	return nil
}

func (b *bill) multiply(name string) error {
	by, ok := b.named[name]
	if !ok {
		return b.unpriced(clip(name))
	}
	b.usd = b.usd.Mul(by)
	return nil
}

func (b *bill) unpriced(rate string) error {
	return &UnpricedError{Model: b.name, Tried: []string{rate}, Reason: "no rate " + rate}
}
