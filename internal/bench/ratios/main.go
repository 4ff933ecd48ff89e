// Command ratios measures pairs of Reserve and Settle against each other and against bare twins, all in one process and
// interleaved, and says which figures are within their bars. It fails when a floor is missed.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
)

func main() {
	rounds := flag.Int("rounds", 5, "how often each series is measured; the medians count")
	flag.Parse()
	missed, err := run(context.Background(), max(*rounds, 1), os.Stdout, os.Stderr)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(2)
	case missed:
		os.Exit(1)
	}
}

// series is one thing to measure. Its result is the cost of a pair; the unit is the series' own.
type series struct {
	name    string
	measure func(context.Context) (int64, error)
}

// figure is the ratio of two series, with the floor that it must not be above and the target that it should reach; no
// floor means that it is only reported.
type figure struct {
	name          string
	series, per   string
	floor, target float64
}

func run(ctx context.Context, rounds int, out, progress io.Writer) (missed bool, err error) {
	results := map[string][]int64{}
	order := all()
	for round := range rounds {
		fmt.Fprintf(progress, "round %d of %d\n", round+1, rounds)
		for _, s := range order {
			runtime.GC()
			cost, err := s.measure(ctx)
			if err != nil {
				return false, fmt.Errorf("%s: %w", s.name, err)
			}
			results[s.name] = append(results[s.name], cost)
		}
		slices.Reverse(order) // so that what comes later in a round is not always the same
	}
	for _, f := range figures() {
		ratio := medianRatio(results[f.series], results[f.per])
		line, ok := f.verdict(ratio)
		fmt.Fprintln(out, line)
		missed = missed || !ok
	}
	return missed, nil
}

// medianRatio is the median of the ratios of each round.
func medianRatio(a, b []int64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = float64(a[i]) / float64(b[i])
	}
	slices.Sort(ratios)
	n := len(ratios)
	return (ratios[(n-1)/2] + ratios[n/2]) / 2
}

func (f figure) verdict(ratio float64) (line string, ok bool) {
	line = fmt.Sprintf("%s ratio %s", f.name, number(ratio))
	if f.floor == 0 {
		return line, true
	}
	word := "ok"
	if ratio > f.floor {
		word = "MISSED"
	}
	return fmt.Sprintf("%s floor %s target %s %s", line, number(f.floor), number(f.target), word), word == "ok"
}

// number writes three digits, as far as they say anything.
func number(x float64) string {
	text := strconv.FormatFloat(x, 'g', 3, 64)
	if y, err := strconv.ParseFloat(text, 64); err == nil {
		return strconv.FormatFloat(y, 'f', -1, 64)
	}
	return text
}
