// Package price turns token usage into exact amounts of money.
//
// A [Table] is read from the public LiteLLM price file: model names and their rates in USD per token. [Table.Find] gives
// the [Price] of a model, [Price.Bound] the amount to hold before a call, [Price.Cost] its true cost afterwards. All
// arithmetic is decimal and exact; a result is rounded up, once, to the nine places of [spendlimit.USD].
//
// Unknown is not zero: a model, rate, tier, region or modifier without a number is [spendlimit.ErrUnpriced], never a
// guess. A rate of 0 is a price, and its cost is known.
//
//	table, problems, err := price.Load(file)
//	if err != nil {
//		return err // one line: where, and what
//	}
//	for _, p := range problems {
//		log.Print(p) // this model has no price, the others have
//	}
//	p, _, err := table.Find("claude-sonnet-4-5")
//	if err != nil {
//		return err
//	}
//	hold, err := p.Bound(price.Ask{Prompt: 10_000, MaxOutput: 1_000})
//	stored := p.Encode() // with the hold, as its Price
//	// … the call …
//	cost, err := price.CostOf(stored, price.Usage{Input: 9_000, Output: 700})
//
// Everything here is immutable and safe for any number of goroutines. Find, Cost and Bound take about a microsecond;
// CostOf reads the stored text first, so a process that still has the Price better calls its Cost.
package price
