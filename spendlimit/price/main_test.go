package price_test

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shopspring/decimal"
	"go.uber.org/goleak"

	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/price"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const realFile = "../../../shared/data/litellm-model-prices.json"

var readReal = sync.OnceValues(func() ([]byte, error) { return os.ReadFile(realFile) })

// realData is the public price file, which lies beside the project where it is tested.
func realData(tb testing.TB) []byte {
	tb.Helper()
	data, err := readReal()
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
		tb.Skip("no ../shared/data/litellm-model-prices.json beside the project")
	}
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

var loadReal = sync.OnceValues(func() (*price.Table, []price.Problem) {
	data, _ := readReal()
	table, problems, _ := price.Load(bytes.NewReader(data))
	return table, problems
})

// realTable is one table for all tests.
func realTable(tb testing.TB) *price.Table {
	tb.Helper()
	realData(tb)
	table, problems := loadReal()
	if table == nil || len(problems) > 0 {
		tb.Fatalf("the price file: table %v, problems %v", table, problems)
	}
	return table
}

// load reads a table that must be good.
func load(tb testing.TB, text string) *price.Table {
	tb.Helper()
	table, problems, err := price.Load(strings.NewReader(text))
	if err != nil || len(problems) > 0 {
		tb.Fatalf("Load: %v, problems %v", err, problems)
	}
	return table
}

func find(tb testing.TB, table *price.Table, name string) price.Price {
	tb.Helper()
	p, _, err := table.Find(name)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// entry makes an entry of a provider from pairs of a rate name and its number.
func entry(provider string, pairs ...string) price.Entry {
	e := price.Entry{Provider: provider, Rates: make(map[string]decimal.Decimal)}
	for pair := range slices.Chunk(pairs, 2) {
		e.Rates[pair[0]] = decimal.RequireFromString(pair[1])
	}
	return e
}

// priced is the price of one entry that has no other model beside it.
func priced(tb testing.TB, e price.Entry) price.Price {
	tb.Helper()
	table, err := new(price.Table).With(map[string]price.Entry{"m": e})
	if err != nil {
		tb.Fatal(err)
	}
	return find(tb, table, "m")
}

// perMillion are the rates of T116 and T117: 1, 0.1, 2 and 4 USD per million tokens.
func perMillion() price.Entry {
	return entry("other",
		"input_cost_per_token", "0.000001", "cache_read_input_token_cost", "0.0000001",
		"cache_creation_input_token_cost", "0.000002", "output_cost_per_token", "0.000004")
}

func without(e price.Entry, names ...string) price.Entry {
	e.Rates = maps.Clone(e.Rates)
	for _, name := range names {
		delete(e.Rates, name)
	}
	return e
}

// wantAmount checks an amount against plain text, or an error if want is one.
func wantAmount(tb testing.TB, got spendlimit.Amount, err error, want any) {
	tb.Helper()
	switch want := want.(type) {
	case error:
		if !errors.Is(err, want) {
			tb.Errorf("got %s and error %v, want error %v", spendlimit.USD.Format(got), err, want)
		}
		if got != 0 {
			tb.Errorf("amount %s beside the error %v", spendlimit.USD.Format(got), err)
		}
	case string:
		if err != nil {
			tb.Errorf("error %v, want %s", err, want)
		} else if got != spendlimit.USD.MustParse(want) {
			tb.Errorf("got %s, want %s", spendlimit.USD.Format(got), want)
		}
	}
}
