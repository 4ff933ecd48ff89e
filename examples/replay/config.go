package main

import (
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/stint-go/stint/spendlimit"
)

// config is what the flags say.
type config struct {
	trace     string // file; "" is the built-in trace
	prices    string // file; "" is the built-in table
	model     string
	budget    spendlimit.Limit // of each account, which it doesn't name yet
	maxOutput int64            // tokens
	workers   int
	accounts  int
	store     storeName
	json      bool
}

const (
	builtinModel = "demo-large"
	builtinLimit = "5"
	maxTokens    = 2_000_000_000 // of one side of one call, the most that package price takes
)

// parseFlags prints help on stdout, when asked for it.
func parseFlags(args []string, stdout io.Writer) (config, error) {
	cfg := config{budget: spendlimit.Limit{Name: "budget"}}
	limit, store, schema := "", "", ""
	fs := flag.NewFlagSet("replay", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are printed once, by main
	fs.StringVar(&cfg.trace, "trace", "", "CSV `file` of calls: "+traceHeader+" (default: a built-in trace)")
	fs.StringVar(&cfg.prices, "prices", "", "price `file` in the LiteLLM format (default: a built-in table of demo-small and demo-large)")
	fs.StringVar(&cfg.model, "model", builtinModel, "`name` of the model that all calls are priced as")
	fs.StringVar(&limit, "limit", "", "`USD` per account and period; '' is no limit (default "+builtinLimit+" on the built-in trace, else no limit)")
	fs.TextVar(&cfg.budget.Kind, "period", spendlimit.Day, "`kind` of period: day, week, month or total")
	fs.StringVar(&cfg.budget.Zone, "zone", "UTC", "IANA `name` of the time zone whose midnights count")
	fs.Int64Var(&cfg.maxOutput, "max-output", 2000, "output `tokens` to hold money for, per call")
	fs.IntVar(&cfg.workers, "workers", 1, "`number` of calls at the same time")
	fs.IntVar(&cfg.accounts, "accounts", 1, "`number` of accounts that take turns to pay, each with its own limit")
	fs.StringVar(&store, "store", "memory", "`place` to keep the ledger in: memory, sqlite:FILE or postgres:DSN; a file or a database keeps each run as a ledger of its own")
	fs.StringVar(&schema, "schema", "stint_replay", "`name` of the schema on Postgres, whose tables are made if they are not there")
	fs.BoolVar(&cfg.json, "json", false, "print one JSON object")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stdout, "Usage of replay:")
			fs.SetOutput(stdout)
			fs.PrintDefaults()
		}
		return cfg, err
	}
	if fs.NArg() > 0 {
		return cfg, errors.New("unexpected argument: a value with spaces needs quotes") // no word of it: it may be of a DSN, and a password
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["limit"] && !given["trace"] {
		limit = builtinLimit
	}
	var err error
	if cfg.store, err = parseStore(store); err != nil {
		return cfg, err
	}
	if given["schema"] && cfg.store.kind != "postgres" {
		return cfg, errors.New("-schema: only -store postgres:DSN has one")
	}
	cfg.store.schema = schema
	return cfg, cfg.check(limit, given)
}

// check also reads the limit. given has the flags that were given, empty or not.
func (c *config) check(limit string, given map[string]bool) error {
	switch {
	case given["trace"] && c.trace == "":
		return errors.New("-trace: no file name")
	case given["prices"] && c.prices == "":
		return errors.New("-prices: no file name")
	case given["prices"] && !given["model"]:
		return errors.New("-model: missing, and -prices needs it")
	case c.maxOutput < 1 || c.maxOutput > maxTokens:
		return fmt.Errorf("-max-output: %d is outside 1..%d", c.maxOutput, maxTokens)
	case c.workers < 1:
		return fmt.Errorf("-workers: %d, want at least 1", c.workers)
	case c.accounts < 1:
		return fmt.Errorf("-accounts: %d, want at least 1", c.accounts)
	}
	if limit == "" {
		c.budget.Mode = spendlimit.Soft // counts, but refuses nothing
		return nil
	}
	var err error
	if c.budget.Amount, err = spendlimit.USD.Parse(limit); err != nil {
		return fmt.Errorf("-limit: %w", err)
	}
	if c.budget.Amount < 0 {
		return fmt.Errorf("-limit: %q is negative", limit)
	}
	return nil
}
