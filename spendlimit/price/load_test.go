package price_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stint-go/stint/spendlimit/price"
)

func TestP1_RealFile(t *testing.T) {
	t.Parallel()
	table, problems, err := price.Load(bytes.NewReader(realData(t)))
	if err != nil || len(problems) > 0 {
		t.Fatalf("error %v, problems %v", err, problems)
	}
	if n := len(table.Models()); n != 218 {
		t.Errorf("%d models, want 218", n)
	}
}

func TestP1_NumbersAreText(t *testing.T) {
	t.Parallel()
	table := load(t, `{
		"sample_spec": {"input_cost_per_token": "USD, a number", "max_tokens": "text", "output_cost_per_token": -1},
		"m": {
			"litellm_provider": "p", "mode": "chat", "supports_vision": true, "tags": [1, {"a": [null]}],
			"input_cost_per_token": 1.5e-07,
			"output_cost_per_token": "3.3333333333333335e-05",
			"output_cost_per_image": 0.04,
			"max_tokens": "ask the vendor",
			"search_context_cost_per_query": {"search_context_size_low": "0.01", "search_context_size_huge": 7},
			"provider_specific_entry": {"fast": 6.0, "odd": true},
			"regional_processing_uplift_multiplier_eu": 1.10,
			"regional_processing_uplift_multiplier_us": null
		}
	}`)
	p := find(t, table, "m")
	for name, want := range map[string]string{
		"input_cost_per_token":                                   "0.00000015",
		"output_cost_per_token":                                  "0.000033333333333333335",
		"output_cost_per_image":                                  "0.04",
		"search_context_cost_per_query.search_context_size_low":  "0.01",
		"search_context_cost_per_query.search_context_size_huge": "7",
		"provider_specific_entry.fast":                           "6",
		"regional_processing_uplift_multiplier_eu":               "1.1",
	} {
		if d, ok := p.Rate(name); !ok || d.String() != want {
			t.Errorf("%s = %s, %v, want %s", name, d, ok, want)
		}
	}
	if raw := string(p.Raw()); !strings.HasPrefix(raw, `{`) || !strings.Contains(raw, `"mode": "chat"`) || !strings.HasSuffix(raw, "}") {
		t.Errorf("raw entry %s", raw)
	}
	clear(p.Raw()) // a copy
	if !strings.Contains(string(p.Raw()), "chat") {
		t.Error("the raw entry changed")
	}
	cost, err := p.Cost(price.Usage{Output: 1})
	wantAmount(t, cost, err, "0.000033334")
	for _, u := range []price.Usage{{Modifiers: []string{"odd"}}, {Region: "us"}} { // known, but no number
		cost, err := p.Cost(u)
		wantAmount(t, cost, err, unpriced)
	}
	wantNotFound(t, table, "sample_spec")
	if stored := p.Encode(); strings.Contains(stored, "per_image") || strings.Contains(stored, "huge") {
		t.Errorf("stored without a use: %s", stored)
	}
}

func TestP3_OneBadEntry(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 65)
	for bad, want := range map[string]string{
		`{"input_cost_per_token": -1e-9}`:                                                   `input_cost_per_token: -0.000000001 is negative`,
		`{"output_cost_per_image": -1}`:                                                     `output_cost_per_image: -1 is negative`,
		`{"input_cost_per_token": true}`:                                                    `input_cost_per_token: not a number`,
		`{"input_cost_per_token": null}`:                                                    `input_cost_per_token: not a number`,
		`{"input_cost_per_token": {"a": [1]}}`:                                              `input_cost_per_token: not a number`,
		`{"input_cost_per_token": [1, {}]}`:                                                 `input_cost_per_token: not a number`,
		`{"input_cost_per_token": "$3"}`:                                                    `input_cost_per_token: "$3" is not a number`,
		`{"input_cost_per_token": ""}`:                                                      `input_cost_per_token: "" is not a number`,
		`{"input_cost_per_token": "+1"}`:                                                    `input_cost_per_token: "+1" is not a number`,
		`{"input_cost_per_token": " 1"}`:                                                    `input_cost_per_token: " 1" is not a number`,
		`{"input_cost_per_token": "1 "}`:                                                    `input_cost_per_token: "1 " is not a number of at most 30 places`,
		`{"input_cost_per_token": ".5"}`:                                                    `input_cost_per_token: ".5" is not a number`,
		`{"input_cost_per_token": "0x10"}`:                                                  `input_cost_per_token: "0x10" is not a number`,
		`{"input_cost_per_token": "Infinity"}`:                                              `input_cost_per_token: "Infinity" is not a number`,
		`{"input_cost_per_token": ` + long + `}`:                                            `input_cost_per_token: too long: 65 bytes, at most 64`,
		`{"input_cost_per_token": 1e-31}`:                                                   `input_cost_per_token: exponent -31 is outside -30..30`,
		`{"input_cost_per_token": 1e31}`:                                                    `input_cost_per_token: exponent 31 is outside -30..30`,
		`{"input_cost_per_token": 1e-2000000}`:                                              `input_cost_per_token: "1e-2000000" is not a number of at most 30 places`,
		`{"input_cost_per_token": 1e-99999999999999999999}`:                                 `input_cost_per_token: "1e-99999999999999999999" is not a number of at most 30 places`,
		`{"provider_specific_entry": {"fast": -6}}`:                                         `provider_specific_entry.fast: -6 is negative`,
		`{"provider_specific_entry": {"fast": "x"}}`:                                        `provider_specific_entry.fast: "x" is not a number`,
		`{"regional_processing_uplift_multiplier_eu": 0}`:                                   `regional_processing_uplift_multiplier_eu: a multiplier must be above 0`,
		`{"search_context_cost_per_query": {"search_context_size_low": false}}`:             `search_context_cost_per_query.search_context_size_low: not a number`,
		`{"search_context_cost_per_query": {"x": 1}, "search_context_cost_per_query.x": 2}`: `search_context_cost_per_query.x: given twice, flat and nested`,
		`{"cache_read_input_token_cost": 1, "input_cost_per_token_cache_hit": 2}`:           `input_cost_per_token_cache_hit: 2 differs from cache_read_input_token_cost, which is 1`,
		`{"litellm_provider": "` + strings.Repeat("p", 257) + `"}`:                          `provider: must be at most 256 bytes of UTF-8 without control characters`,
		`{"provider_specific_entry": {"\n": 6}}`:                                            "provider_specific_entry.\n: the name must be 1 to 256 bytes of UTF-8 without control characters",
		`{"output_cost_per_token": "y", "input_cost_per_token": "x"}`:                       `output_cost_per_token: "y" is not a number`, // the first
		`"text"`: `want an object of fields`,
		`null`:   `want an object of fields`,
		`[{}]`:   `want an object of fields`,
	} {
		text := "{\"first\": {},\n\n\"bad\": " + bad + ",\n\"last\": {\"input_cost_per_token\": 1}}"
		table, problems, err := price.Load(strings.NewReader(text))
		if err != nil || len(problems) != 1 {
			t.Errorf("%s: error %v, problems %v", bad, err, problems)
			continue
		}
		if got := problems[0].Error(); got != `line 3: model "bad": `+want {
			t.Errorf("%s: problem %s, want %s", bad, got, want)
		}
		if _, _, err := table.Find("bad"); !errors.Is(err, unpriced) || !strings.HasSuffix(err.Error(), "its entry is bad: "+want) {
			t.Errorf("%s: Find: %v", bad, err)
		}
		cost, err := find(t, table, "last").Cost(price.Usage{Input: 1})
		wantAmount(t, cost, err, "1")
	}
}

func TestP3_BadFile(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                    `line 1: bad JSON: unexpected end of JSON input`,
		`[]`:                                  `line 1: want a JSON object of models`,
		`"x"`:                                 `line 1: want a JSON object of models`,
		`null`:                                `line 1: want a JSON object of models`,
		"{\n\"a\": {},\n}":                    `line 3: bad JSON: invalid character '}' looking for beginning of object key string`,
		"{\"a\": {}}\n{}":                     `line 2: bad JSON: invalid character '{' after top-level value`,
		"{\"a\":\n{\"x\": NaN}}":              `line 2: bad JSON: invalid character 'N' looking for beginning of value`,
		"{\"a\":\n{\"x\": 01}}":               `line 2: bad JSON: invalid character '1' after object key:value pair`,
		"{\n\"a\": \"\xff\"}":                 `line 2: not valid UTF-8`,
		"{\"a\": {},\n\"b\": {},\n\"a\": {}}": `line 3: model "a": listed twice`,
		"{\"a\": {},\n\"\\u0061\": {}}":       `line 2: model "a": listed twice`,
		"{\"a\": {\"input_cost_per_token\": 1,\n\"input_cost_per_token\": 1}}": `line 2: model "a": input_cost_per_token: given twice`,
		"{\"a\": {\"mode\": 1,\n\"mode\": 1}}":                                 `line 2: model "a": mode: given twice`,
		"{\"a\": {\"x\": [[{\"y\": 1,\n\"y\": 2}]]}}":                          `line 2: model "a": y: given twice`,
		"{\"a\": {\"provider_specific_entry\": {\"y\": 1,\n\"y\": 2}}}":        `line 2: model "a": y: given twice`,
		"{\"a\": 1,\n\"a\": 1}":                                                `line 2: model "a": listed twice`,
		"{\"sample_spec\": {\"y\": 1,\n\"y\": 2}}":                             `line 2: model "sample_spec": y: given twice`,
	} {
		table, problems, err := price.Load(strings.NewReader(text))
		var p price.Problem
		if table != nil || problems != nil || !errors.As(err, &p) || !errors.Is(err, invalid) {
			t.Errorf("%q: table %v, problems %v, error %v", text, table, problems, err)
			continue
		}
		if got := err.Error(); got != "price: load: "+want {
			t.Errorf("%q: error %s, want %s", text, got, want)
		}
	}
}

func TestP3_Limits(t *testing.T) {
	t.Parallel()
	models := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%q: {},\n", fmt.Sprint("m", i))
		}
		return "{" + b.String() + `"sample_spec": {}}`
	}
	if _, _, err := price.Load(strings.NewReader(models(50_001))); err == nil || err.Error() != "price: load: line 50001: more than 50000 models" {
		t.Errorf("50,001 models: %v", err)
	}
	spaces := func(n int) io.Reader {
		return io.MultiReader(strings.NewReader("{}"), strings.NewReader(strings.Repeat(" ", n-2)))
	}
	if _, _, err := price.Load(spaces(32<<20 + 1)); !errors.Is(err, invalid) || err.Error() != "price: load: more than 32 MiB" {
		t.Errorf("32 MiB and 1 byte: %v", err)
	}
	for name, ok := range map[string]bool{strings.Repeat("x", 256): true, strings.Repeat("x", 257): false, "": false, `a\u0000`: false} {
		_, problems, err := price.Load(strings.NewReader(`{"` + name + `": {}}`))
		if err != nil || ok != (len(problems) == 0) {
			t.Errorf("name %.20q: %v, %v", name, problems, err)
		}
	}
	deep := strings.Repeat(`[`, 1_000_000)
	if _, _, err := price.Load(strings.NewReader(`{"a": {"x": ` + deep)); !errors.Is(err, invalid) {
		t.Errorf("deep nesting: %v", err)
	}
	down := errors.New("disk on fire")
	if table, _, err := price.Load(iotest.ErrReader(down)); table != nil || !errors.Is(err, down) || errors.Is(err, invalid) {
		t.Errorf("failing reader: %v, %v", table, err)
	}
}

// The stored form has room for 4 KiB; an entry that needs more has no price.
func TestP11_TooManyRatesToStore(t *testing.T) {
	t.Parallel()
	entry := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"modifier-%02d": 1.5,`, i)
		}
		return `{"m": {"provider_specific_entry": {` + b.String() + `"x": 2}}}`
	}
	stored := len(find(t, load(t, entry(80)), "m").Encode())
	each := stored - len(find(t, load(t, entry(79)), "m").Encode())
	most := 80 + (4096-stored)/each
	if n := len(find(t, load(t, entry(most)), "m").Encode()); n > 4096 {
		t.Errorf("%d bytes stored", n)
	}
	_, problems, err := price.Load(strings.NewReader(entry(most + 1)))
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Reason, "to store, at most 4096") {
		t.Errorf("%v, %v", problems, err)
	}
}
