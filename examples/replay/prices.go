package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/stint-go/stint/spendlimit/price"
)

// builtinPrices is a price file. Its models are invented.
const builtinPrices = `{
	"demo-small": {"litellm_provider": "demo", "input_cost_per_token": 2.5e-07, "output_cost_per_token": 1e-06},
	"demo-large": {"litellm_provider": "demo", "input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05}
}`

// loadPrice finds the price of a model in a file, "" for the built-in table.
func loadPrice(file, model string) (price.Price, error) {
	if file == "" {
		return readPrice("built-in prices", strings.NewReader(builtinPrices), model)
	}
	f, err := os.Open(file)
	if err != nil {
		return price.Price{}, err
	}
	defer f.Close()
	return readPrice(file, f, model)
}

func readPrice(name string, r io.Reader, model string) (price.Price, error) {
	table, problems, err := price.Load(r)
	if err != nil {
		return price.Price{}, inFile(name, err)
	}
	p, _, err := table.Find(model)
	if err == nil {
		return p, nil
	}
	for _, problem := range problems { // those of other models don't matter here
		if problem.Model == model {
			return price.Price{}, inFile(name, problem)
		}
	}
	return price.Price{}, fmt.Errorf("%s: -model: %w", name, err)
}

// inFile puts the place of a problem in front of it, as in file:line: problem.
func inFile(name string, err error) error {
	var p price.Problem
	if !errors.As(err, &p) || p.Line == 0 {
		return fmt.Errorf("%s: %w", name, err)
	}
	line := p.Line
	p.Line = 0
	return fmt.Errorf("%s:%d: %w", name, line, p)
}
