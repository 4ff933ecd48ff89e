package price_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/stint-go/stint/spendlimit/price"
)

func TestP9_OneStepOnly(t *testing.T) {
	t.Parallel()
	table := load(t, `{
		"a": {"litellm_provider": "p", "input_cost_per_token": 1},
		"b": {"litellm_provider": "vertex_ai-language-models"},
		"c": {"litellm_provider": "openai-compatible"},
		"d": {},
		"p/a-20250101": {},
		"e-20250101": {},
		"f@20250101": {},
		"g": {}, "g@20250101": {}, "g-20250101": {},
		"-20250101": {}
	}`)
	table, err := table.With(map[string]price.Entry{"nick": {Alias: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]price.Match{
		"a":                           {Model: "a", How: price.Exact},
		"nick":                        {Model: "a", How: price.Alias},
		"p/a":                         {Model: "a", How: price.Provider},
		"vertex_ai/b":                 {Model: "b", How: price.Provider},
		"vertex_ai-language-models/b": {Model: "b", How: price.Provider},
		"openai-compatible/c":         {Model: "c", How: price.Provider},
		"p/a-20250101":                {Model: "p/a-20250101", How: price.Exact},
		"e@20250101":                  {Model: "e-20250101", How: price.DateForm},
		"g@20250101":                  {Model: "g@20250101", How: price.Exact},
		"g@20250102":                  {Model: "g", How: price.DateCut},
		"a-20240229":                  {Model: "a", How: price.DateCut},
		"a-2024-02-29":                {Model: "a", How: price.DateCut},
		"a@20240229":                  {Model: "a", How: price.DateCut},
	} {
		if _, match, err := table.Find(name); err != nil || match != want {
			t.Errorf("Find(%q) = %v, %v, want %v", name, match, err, want)
		}
	}
	for _, name := range []string{
		"A", "a ", " a", "a\x00", "p/nick", "p/a-20250102", "q/a", "P/a", "/d", "p/d", "x/p/a",
		"openai/c", "vertex_ai/a", "vertex_ai-/b", "nick-20250101", "nick@20250101",
		"a-20250229", "a-2025-02-29", "a@20250229", "a@2024-02-29", "a-2024-2-29", "a-202402290", "a_20240229", "a20240229",
		"a-20240229-20240229", "a-20240229@20240229", "-20240229", "20240229", "@20250101", "e", "f", "f-20250101",
	} {
		wantNotFound(t, table, name)
	}
}

func TestP9_DatedBrothers(t *testing.T) {
	t.Parallel()
	const base, other = `"m": {"input_cost_per_token": 1, "output_cost_per_image": 2}`, `"other": {}`
	for brother, cut := range map[string]bool{
		other: true,
		`"m-20250101": {"input_cost_per_token": 1.0}`:                                   true,
		`"m-20250101": {"output_cost_per_token": 9}`:                                    true, // no rate that both have
		`"m-20250101": {"input_cost_per_token": 2}`:                                     false,
		`"m-2025-01-01": {"input_cost_per_token": 2}`:                                   false,
		`"m@20250101": {"input_cost_per_token": 2}`:                                     false,
		`"m-20251301": {"input_cost_per_token": 2}`:                                     true, // no date, so no brother
		`"m-mini-20250101": {"input_cost_per_token": 2}`:                                true,
		`"m-20250101": {"output_cost_per_image": 3}`:                                    false,
		`"m-20250101": {"input_cost_per_token": "bad"}`:                                 false, // unknown is not equal
		`"m-20250101": {"input_cost_per_token": 2}, "m-20250102": {}`:                   false,
		`"m-20250101": {}, "m-20250102": {"input_cost_per_token": 2}, "m@20250103": {}`: false,
	} {
		table, _, err := price.Load(strings.NewReader(`{` + base + `,` + brother + `}`))
		if err != nil {
			t.Fatal(err)
		}
		_, match, err := table.Find("m-20260101")
		if cut && (err != nil || match != price.Match{Model: "m", How: price.DateCut}) || !cut && !errors.Is(err, unpriced) {
			t.Errorf("beside %s: %v, %v", brother, match, err)
		}
		changed, err := table.With(map[string]price.Entry{"m-20260202": entry("", "input_cost_per_token", "7")})
		if err != nil {
			t.Fatal(err)
		}
		wantNotFound(t, changed, "m-20260101") // the index follows an override
	}
}

// A bad entry has no price under any name, though another rule would find one.
func TestP9_BadEntryHidesNothing(t *testing.T) {
	t.Parallel()
	table, problems, err := price.Load(strings.NewReader(`{
		"m": {"input_cost_per_token": 1}, "m-20250101": {"input_cost_per_token": -1},
		"n": {"litellm_provider": "p", "input_cost_per_token": "x"}}`))
	if err != nil || len(problems) != 2 {
		t.Fatal(problems, err)
	}
	for _, name := range []string{"m-20250101", "m@20250101", "n", "p/n", "n-20250101"} {
		wantNotFound(t, table, name)
	}
}

func TestP9_TriedNames(t *testing.T) {
	t.Parallel()
	_, _, err := load(t, `{}`).Find("p/m@20250101")
	var e *price.UnpricedError
	if !errors.As(err, &e) || !slices.Equal(e.Tried, []string{"p/m@20250101", "m@20250101", "p/m-20250101", "p/m"}) {
		t.Errorf("%v", err)
	}
	const want = `price: find: unpriced: model "p/m@20250101": not in the table (tried ["p/m@20250101" "m@20250101" "p/m-20250101" "p/m"])`
	if err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestP12_With(t *testing.T) {
	t.Parallel()
	table := load(t, `{
		"m": {"litellm_provider": "p", "max_tokens": 9, "input_cost_per_token": 1, "output_cost_per_token": 2}, "n": {}}`)
	e := entry("", "input_cost_per_token", "5")
	next, err := table.With(map[string]price.Entry{"m": e, "nick": {Alias: "m"}})
	if err != nil {
		t.Fatal(err)
	}
	e.Rates["input_cost_per_token"] = decimal.New(9, 0) // a later change of the map is not seen
	for _, name := range []string{"m", "nick"} {
		p := find(t, next, name)
		cost, err := p.Cost(price.Usage{Input: 1})
		wantAmount(t, cost, err, "5")
		cost, err = p.Cost(price.Usage{Output: 1}) // the whole entry was replaced
		wantAmount(t, cost, err, unpriced)
		bound, err := p.Bound(price.Ask{})
		wantAmount(t, bound, err, invalid)
	}
	wantNotFound(t, next, "p/m")
	cost, err := find(t, table, "m").Cost(price.Usage{Input: 1})
	wantAmount(t, cost, err, "1")
	wantNotFound(t, table, "nick")

	last, err := next.With(map[string]price.Entry{"nick": entry("", "input_cost_per_token", "6"), "m": {Alias: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	cost, err = find(t, last, "nick").Cost(price.Usage{Input: 1})
	wantAmount(t, cost, err, "6")
	if _, match, err := last.Find("m"); err != nil || match != (price.Match{Model: "n", How: price.Alias}) {
		t.Errorf("alias over an entry: %v, %v", match, err)
	}
	if got := last.Models(); !slices.Equal(got, []string{"n", "nick"}) {
		t.Errorf("models %q", got)
	}
	if _, match, _ := next.Find("m"); match.How != price.Exact {
		t.Error("a table changed")
	}
}

func TestP12_BadOverrides(t *testing.T) {
	t.Parallel()
	table, _, err := price.Load(strings.NewReader(`{"m": {}, "bad": {"input_cost_per_token": "x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	table, err = table.With(map[string]price.Entry{"nick": {Alias: "m"}})
	if err != nil {
		t.Fatal(err)
	}
	mixed := entry("", "input_cost_per_token", "1")
	mixed.Alias = "m"
	for name, c := range map[string]struct {
		entry price.Entry
		want  string
	}{
		"negative": {entry("", "input_cost_per_token", "-1"), `model "negative": input_cost_per_token: -1 is negative`},
		"typo":     {entry("", "input_cost_per_tokens", "1"), `model "typo": input_cost_per_tokens: no usage has this rate`},
		"picture":  {entry("", "input_cost_per_image", "1"), `model "picture": input_cost_per_image: no usage has this rate`},
		"zeros":    {entry("", "input_cost_per_token_above_0k_tokens", "1"), `model "zeros": input_cost_per_token_above_0k_tokens: no usage has this rate`},
		"padded":   {entry("", "input_cost_per_token_above_01k_tokens", "1"), `model "padded": input_cost_per_token_above_01k_tokens: no usage has this rate`},
		"plus":     {entry("", "input_cost_per_token_above_+1k_tokens", "1"), `model "plus": input_cost_per_token_above_+1k_tokens: no usage has this rate`},
		"huge":     {entry("", "input_cost_per_token_above_9999999999k_tokens", "1"), `model "huge": input_cost_per_token_above_9999999999k_tokens: no usage has this rate`},
		"loop":     {price.Entry{Alias: "loop"}, `model "loop": alias: "loop" is not a priced model of the table`},
		"chain":    {price.Entry{Alias: "nick"}, `model "chain": alias: "nick" is not a priced model of the table`},
		"nowhere":  {price.Entry{Alias: "x"}, `model "nowhere": alias: "x" is not a priced model of the table`},
		"broken":   {price.Entry{Alias: "bad"}, `model "broken": alias: "bad" is not a priced model of the table`},
		"both":     {mixed, `model "both": alias: an alias has nothing of its own`},
		"served":   {price.Entry{Alias: "m", Provider: "p"}, `model "served": alias: an alias has nothing of its own`},
		"m":        {price.Entry{Alias: "nick"}, `model "m": alias: "nick" is not a priced model of the table`},
		"output":   {price.Entry{MaxOutput: -1}, `model "output": max_output: -1 is outside 0..2000000000`},
		"":         {price.Entry{}, `the name must be 1 to 256 bytes of UTF-8 without control characters`},
		"\xff":     {price.Entry{}, `model "\xff": the name must be 1 to 256 bytes of UTF-8 without control characters`},
	} {
		next, err := table.With(map[string]price.Entry{name: c.entry, "good": {}})
		var p price.Problem
		if next != nil || !errors.Is(err, invalid) || !errors.As(err, &p) || err.Error() != "price: with: "+c.want {
			t.Errorf("%q: %v, %v, want %s", name, next, err, c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	const text = `{"m": {"input_cost_per_token": 1}, "m2": {}}`
	table := load(t, text)
	one, two := entry("", "input_cost_per_token", "1"), entry("", "input_cost_per_token", "2")
	with := func(overrides map[string]price.Entry) *price.Table {
		next, err := table.With(overrides)
		if err != nil {
			t.Fatal(err)
		}
		return next
	}
	versions := map[string]string{
		"file":      table.Version(),
		"other":     load(t, text+"\n").Version(),
		"override":  with(map[string]price.Entry{"m": one}).Version(),
		"override2": with(map[string]price.Entry{"m": two}).Version(),
		"new":       with(map[string]price.Entry{"n": one}).Version(),
		"alias":     with(map[string]price.Entry{"n": {Alias: "m"}}).Version(),
		"alias2":    with(map[string]price.Entry{"n": {Alias: "m2"}}).Version(),
	}
	onOther, err := load(t, text+"\n").With(map[string]price.Entry{"m": one})
	if err != nil {
		t.Fatal(err)
	}
	versions["on other"] = onOther.Version()
	seen := make(map[string]bool)
	for what, v := range versions {
		if !regexp.MustCompile(`^[0-9a-f]{32}$`).MatchString(v) || seen[v] {
			t.Errorf("%s: version %q", what, v)
		}
		seen[v] = true
	}
	if load(t, text).Version() != table.Version() || with(map[string]price.Entry{"m": without(one)}).Version() != versions["override"] {
		t.Error("equal content, other version")
	}
	if with(nil).Version() != table.Version() {
		t.Error("no override, other version")
	}
	if p := find(t, with(map[string]price.Entry{"n": one}), "m"); !strings.Contains(p.Encode(), versions["new"]) {
		t.Errorf("stored without the version of its table: %s", p.Encode())
	}
}
