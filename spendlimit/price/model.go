package price

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"github.com/stint-go/stint/internal/names"
)

// Entry is what a table knows of one model; see [Table.With].
type Entry struct {
	// Alias is the exact name of another model; then all else must be empty.
	Alias string
	// Provider is who serves the model, in the words of the file (litellm_provider).
	Provider string
	// MaxOutput is the most output tokens of one call, 0 when not known.
	MaxOutput int64
	// Rates are in USD per token or use, by the file's field names, such as input_cost_per_token_above_200k_tokens.
	// Nested fields are joined by a point: "provider_specific_entry.fast". 0 is a price; a missing rate is not.
	Rates map[string]decimal.Decimal
}

// MissingWrite says what 5-minute cache writes cost on a model without a rate for them (P8). The zero value is
// [spendlimit.ErrUnpriced], but for provider "openai", whose writes are input.
type MissingWrite string

// InputRate prices such writes as plain input, whoever the provider is.
const InputRate MissingWrite = "input_rate"

const maxCount = 2_000_000_000 // of one class of one call (P4)

// model is one checked entry. It never changes and knows no table, so tables share it.
type model struct {
	name     string
	provider string
	max      int64                      // output tokens, 0 when not known
	rates    map[key]decimal.Decimal    // token rates
	named    map[string]decimal.Decimal // all rates by canonicalName, those without a use included
	levels   map[Tier][]int64           // thresholds that matter in the tier, rising, in tokens
	missing  MissingWrite
	body     string // stored form without the table's version
	raw      []byte // as read from the file
	problem  *Problem
}

// compile checks e (P1, P3).
func compile(name string, e Entry, missing MissingWrite) (*model, *Problem) {
	bad := func(field, format string, args ...any) (*model, *Problem) {
		return nil, &Problem{Model: name, Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case !validName(name):
		return bad("", "the name must be 1 to %d bytes of UTF-8 without control characters", names.Max)
	case e.Provider != "" && !validName(e.Provider):
		return bad("provider", "must be at most %d bytes of UTF-8 without control characters", names.Max)
	case e.MaxOutput < 0 || e.MaxOutput > maxCount:
		return bad("max_output", "%d is outside 0..%d", e.MaxOutput, maxCount)
	}
	m := &model{
		name: name, provider: e.Provider, max: e.MaxOutput, missing: missing,
		rates: make(map[key]decimal.Decimal), named: make(map[string]decimal.Decimal, len(e.Rates)),
	}
	for _, field := range slices.Sorted(maps.Keys(e.Rates)) {
		if err := m.set(field, e.Rates[field]); err != nil {
			return bad(field, "%v", err)
		}
	}
	m.align()
	m.levels = levels(m.rates)
	m.body = m.encode()
	if n := len(m.body) + versionLen + len(storedEnd); n > maxEncoded {
		return bad("", "its rates take %d bytes to store, at most %d", n, maxEncoded)
	}
	return m, nil
}

func (m *model) set(field string, d decimal.Decimal) error {
	if !validName(field) {
		return fmt.Errorf("the name must be 1 to %d bytes of UTF-8 without control characters", names.Max)
	}
	if err := checkRate(field, d); err != nil {
		return err
	}
	name := canonicalName(field)
	if other, ok := m.named[name]; ok && !other.Equal(d) {
		return fmt.Errorf("%s differs from %s, which is %s", d, name, other)
	}
	m.named[name] = d
	return nil
}

// align gives all numbers the same exponent, at most 0: sums then need no rescaling, and texts are plain.
func (m *model) align() {
	var places int32
	for _, d := range m.named {
		places = max(places, -d.Exponent())
	}
	for name, d := range m.named {
		d = d.RoundUp(places) // exact: no number has more places
		m.named[name] = d
		if k, ok := parseKey(name); ok {
			m.rates[k] = d
		}
	}
}

// levels gives each tier the thresholds of its own rates and of the standard ones, which it may fall back on.
func levels(rates map[key]decimal.Decimal) map[Tier][]int64 {
	l := make(map[Tier][]int64)
	for k := range rates {
		if k.above == 0 {
			continue
		}
		for _, t := range []Tier{Standard, Batch, Flex, Priority} {
			if (k.tier == Standard || k.tier == t) && !slices.Contains(l[t], k.above) {
				l[t] = append(l[t], k.above)
			}
		}
	}
	for _, l := range l {
		slices.Sort(l)
	}
	return l
}

// servedBy is the provider rule of P9.
func (m *model) servedBy(provider string) bool {
	return m.provider == provider && provider != "" ||
		provider == "vertex_ai" && strings.HasPrefix(m.provider, "vertex_ai-")
}

// agrees reports whether both models have equal rates, where both have one. A bad entry agrees with nothing.
func (m *model) agrees(o *model) bool {
	if m.problem != nil || o.problem != nil {
		return false
	}
	for name, d := range m.named {
		if other, ok := o.named[name]; ok && !d.Equal(other) {
			return false
		}
	}
	return true
}

func validName(s string) bool { return names.Check(s) == "" }
