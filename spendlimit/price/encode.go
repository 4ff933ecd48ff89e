package price

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/shopspring/decimal"

	"github.com/stint-go/stint/spendlimit"
)

// maxEncoded bounds the stored form, in bytes, as spendlimit bounds the Price of a hold (P11).
const maxEncoded = 4096

// stored is the canonical form of the rates of a Price: keys in byte order, numbers as plain text, and only what Cost
// and Bound use. Table is last, because the rest does not depend on it.
type stored struct {
	MaxOutput    int64             `json:"max_output,omitempty"`
	MissingWrite MissingWrite      `json:"missing_write,omitempty"`
	Model        string            `json:"model"`
	Provider     string            `json:"provider,omitempty"`
	Rates        map[string]string `json:"rates"`
	Table        string            `json:"table"`
}

// storedEnd is where the version goes: between the last quote and the brace.
const storedEnd = `"}`

// encode writes m without a table's version and storedEnd.
func (m *model) encode() string {
	s := stored{MaxOutput: m.max, MissingWrite: m.missing, Model: m.name, Provider: m.provider, Rates: make(map[string]string)}
	for name, d := range m.named {
		if isUsed(name) {
			s.Rates[name] = d.String()
		}
	}
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and integers only
	}
	return strings.TrimSuffix(string(text), storedEnd)
}

// Encode returns all rates that Cost and Bound use, with the matched name and the table's version, as canonical JSON
// of at most 4 KiB: what a service stores as the Price of a hold, so that settling by usage is not moved by a price
// change in between (P11). Equal prices have equal texts. The zero Price is "".
func (p Price) Encode() string {
	if p.m == nil {
		return ""
	}
	return p.m.body + p.table + storedEnd
}

// Decode reads what Encode wrote, and nothing else: any other text is [spendlimit.ErrInvalid]. No text at all, a hold
// without a Price, is an *[UnpricedError].
func Decode(text string) (Price, error) {
	if text == "" {
		return Price{}, fmt.Errorf("price: decode: %w", &UnpricedError{Reason: "no rates were stored"})
	}
	p, ok := decode(text)
	if !ok {
		return Price{}, fmt.Errorf("price: decode: %w", invalid("Price", "not the stored form of a price"))
	}
	return p, nil
}

func decode(text string) (Price, bool) {
	var s stored
	if len(text) > maxEncoded || json.Unmarshal([]byte(text), &s) != nil {
		return Price{}, false
	}
	if s.MissingWrite != "" && s.MissingWrite != InputRate {
		return Price{}, false
	}
	rates := make(map[string]decimal.Decimal, len(s.Rates))
	for name, rate := range s.Rates {
		d, err := parseRate(rate)
		if err != nil {
			return Price{}, false
		}
		rates[name] = d
	}
	m, problem := compile(s.Model, Entry{Provider: s.Provider, MaxOutput: s.MaxOutput, Rates: rates}, s.MissingWrite)
	if problem != nil {
		return Price{}, false
	}
	p := Price{m, s.Table}
	return p, p.Encode() == text // canonical, so nothing is unknown, doubled or left out
}

// CostOf is the cost of u at the rates that were stored as a hold's Price: Decode and [Price.Cost] in one.
func CostOf(holdPrice string, u Usage) (spendlimit.Amount, error) {
	p, err := Decode(holdPrice)
	if err != nil {
		return 0, err
	}
	return p.Cost(u)
}
