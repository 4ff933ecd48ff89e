package price_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/price"
)

const priceFile = `{
	"small-1": {
		"litellm_provider": "acme", "max_output_tokens": 4096,
		"input_cost_per_token": 1.5e-07, "cache_read_input_token_cost": 7.5e-08, "output_cost_per_token": 6e-07
	},
	"broken-1": {"input_cost_per_token": "free?"}
}`

func Example() {
	table, problems, err := price.Load(strings.NewReader(priceFile))
	if err != nil {
		log.Fatal(err) // one line: where, and what
	}
	fmt.Println(problems[0]) // this model has no price, the others have
	p, match, err := table.Find("acme/small-1")
	if err != nil {
		log.Fatal(err)
	}
	hold, err := p.Bound(price.Ask{Prompt: 10_000})
	if err != nil {
		log.Fatal(err)
	}
	stored := p.Encode() // with the hold, as its Price
	cost, err := price.CostOf(stored, price.Usage{Input: 2_000, CacheRead: 7_001, Output: 640})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(match.Model, match.How, spendlimit.USD.Format(hold), spendlimit.USD.Format(cost))
	_, err = p.Cost(price.Usage{AudioOut: 1})
	fmt.Println(err)
	// Output:
	// line 6: model "broken-1": input_cost_per_token: "free?" is not a number
	// small-1 provider 0.0039576 0.001209075
	// price: cost: unpriced: model "small-1": no rate output_cost_per_audio_token
}

func ExampleTable_With() {
	table, _, err := price.Load(strings.NewReader(priceFile))
	if err != nil {
		log.Fatal(err)
	}
	table, err = table.With(map[string]price.Entry{
		"house-model": entry("acme", "input_cost_per_token", "0.0000002", "output_cost_per_token", "0"),
		"default":     {Alias: "house-model"},
	})
	if err != nil {
		log.Fatal(err)
	}
	p, match, err := table.Find("default")
	if err != nil {
		log.Fatal(err)
	}
	cost, err := p.Cost(price.Usage{Input: 1_000, Output: 1_000})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(match.Model, match.How, spendlimit.USD.Format(cost))
	// Output: house-model alias 0.0002
}
