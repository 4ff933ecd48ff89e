package spendlimit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
)

// Amounts leave as decimal strings in the ledger's unit (§3).
func TestJSONAmountsAreStrings(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	led, err := spendlimit.New(memory.New(&memory.Options{Clock: func() time.Time { return now }}).Spend(), spendlimit.Config{Unit: spendlimit.USD})
	if err != nil {
		t.Fatal(err)
	}
	_, err = led.SetLimit(t.Context(), spendlimit.Limit{
		Account: "acme", Name: "run", Kind: spendlimit.AllTime, Amount: spendlimit.USD.MustParse("12.5"),
		Thresholds: []spendlimit.Threshold{{Percent: 1, Of: spendlimit.Spent}},
	}, "")
	if err != nil {
		t.Fatal(err)
	}
	h, err := led.Reserve(t.Context(), spendlimit.Request{Key: "k", Accounts: []string{"acme"}, Amount: spendlimit.USD.MustParse("0.000000001")})
	if err != nil {
		t.Fatal(err)
	}
	var all []any
	all = append(all, h)
	for b, err := range led.Balances(t.Context(), "acme", time.Time{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	for e, err := range led.Entries(t.Context(), "acme", 1) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"granted":"0.000000001"`, `"in_force":"12.5"`, `"available":"12.499999999"`, `"start":null,"end":null`, `"unpriced":0`,
		`"kind":"total"`, `"kind":"reserve"`, `"held":"0.000000001"`, `"ended_at":null`, `"fired":[]`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if _, err := json.Marshal(spendlimit.Request{Amount: 1}); err == nil {
		t.Error("a bare amount was marshalled")
	}
}
