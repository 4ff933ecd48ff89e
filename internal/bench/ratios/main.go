// Command ratios measures pairs of Reserve and Settle against each other and against bare twins, in one process and by
// turns, and says which figures are within their bars. It fails when a floor is missed.
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

// heap is what the process holds beside the stores, in bytes, as a service would. With next to nothing Go would collect
// every few milliseconds, and return the memory of one round to the system only to fault it in again in the next: the
// store would be measured as little as the twin. Its pages are never touched.
const heap = 256 << 20

func main() {
	rounds := flag.Int("rounds", 5, "how often each figure is measured on fresh stores; the medians count")
	flag.Parse()
	held := make([]byte, heap)
	defer runtime.KeepAlive(held)
	missed, err := run(context.Background(), figures(), max(*rounds, 1), os.Stdout, os.Stderr)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "ratios:", err)
		os.Exit(2)
	case missed:
		os.Exit(1)
	}
}

// figure is a ratio to measure, with the floor that it must not be above and the target that it should reach. Without a
// floor it is only reported.
type figure struct {
	name          string
	subject, per  prepare
	floor, target float64
}

// prepare makes everything anew for turns measurements.
type prepare func(ctx context.Context, turns int) (trial, error)

// trial measures once, and returns a cost; the unit is its own. It is called with 0, 1, 2 … below turns.
type trial func(ctx context.Context, turn int) (int64, error)

// turns is how often the two sides of a figure take turns in a round: often, so that both see the same machine.
const turns = 5

func run(ctx context.Context, list []figure, rounds int, out, progress io.Writer) (missed bool, err error) {
	ratios := make([][]float64, len(list))
	for round := range rounds {
		fmt.Fprintf(progress, "round %d of %d\n", round+1, rounds)
		for i, f := range list {
			some, err := f.measure(ctx)
			if err != nil {
				return false, fmt.Errorf("%s: %w", f.name, err)
			}
			ratios[i] = append(ratios[i], some...)
		}
	}
	for i, f := range list {
		line, ok := f.verdict(median(ratios[i]))
		fmt.Fprintln(out, line)
		missed = missed || !ok
	}
	return missed, nil
}

// measure returns the ratio of each turn.
func (f figure) measure(ctx context.Context) ([]float64, error) {
	subject, err := f.subject(ctx, turns)
	if err != nil {
		return nil, err
	}
	per, err := f.per(ctx, turns)
	if err != nil {
		return nil, err
	}
	var ratios []float64
	for turn := range turns {
		var cost [2]int64
		for i := range cost {
			side := (i + turn) % 2 // so that none is always the first
			runtime.GC()           // nor pays for the other's garbage
			if cost[side], err = [2]trial{subject, per}[side](ctx, turn); err != nil {
				return nil, err
			}
		}
		ratios = append(ratios, float64(cost[0])/float64(cost[1]))
	}
	return ratios, nil
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
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
