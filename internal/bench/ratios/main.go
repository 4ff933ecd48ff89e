// Command ratios measures pairs of Reserve and Settle against each other and against bare twins, in one process and by
// turns, and says which figures are within their bars.
//
// The exit status is 0 if all are, 1 if a floor is missed, 2 after an error, and 3 if figures were skipped, as those of
// Postgres are where there is none: it starts an installed server for itself, or takes the one whose DSN is in
// STINT_TEST_POSTGRES. SQLite's files go to the directory for temporary files (TMPDIR), which should be on a disk.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// heap is what the process holds beside the stores, in bytes, as a service would. With next to nothing Go would collect
// every few milliseconds, and return the memory of one round to the system only to fault it in again in the next: the
// store would be measured as little as the twin. Its pages are never touched.
const heap = 256 << 20

func main() {
	rounds := flag.Int("rounds", 5, "how often each figure is measured on fresh stores; the medians count")
	only := flag.String("only", "", "a regular expression: measure only the figures with such a name")
	contending := flag.String("contend", "", "for the program itself: be the second process on this schema")
	flag.Parse()
	if *contending != "" {
		os.Exit(contendAsked(*contending))
	}
	held := make([]byte, heap)
	defer runtime.KeepAlive(held)
	os.Exit(measureAll(*only, max(*rounds, 1)))
}

// The exit status: a figure that could not be measured is no success.
const (
	within = iota
	missed
	failed
	skipped
)

func measureAll(only string, rounds int) (status int) {
	pattern, err := regexp.Compile(only)
	if err != nil {
		return fail(err)
	}
	stores, err := newStores()
	if err != nil {
		return fail(err)
	}
	list := slices.DeleteFunc(slices.Concat(figures(), poolFigures(), stores.figures(), stores.poolFigures()), func(f figure) bool { return !pattern.MatchString(f.names) })
	status, err = run(context.Background(), list, rounds, os.Stdout, os.Stderr)
	if err = errors.Join(err, stores.close()); err != nil {
		return fail(err)
	}
	return status
}

func fail(err error) (status int) {
	fmt.Fprintln(os.Stderr, "ratios:", err)
	return failed
}

// figure is a ratio to measure.
type figure struct {
	names   string // one or more, with spaces between: lists of figures have some in common
	measure func(context.Context) (ratios []float64, err error)
	bar     *bar // nil: the ratio is only reported
	rounds  int  // at most so many; 0: all
}

// bar is what a ratio is held to: the floor that it must keep to and the target that it should reach.
type bar struct {
	floor, target float64
	least         bool // more is better
}

func atMost(floor, target float64) *bar  { return &bar{floor, target, false} }
func atLeast(floor, target float64) *bar { return &bar{floor, target, true} }

// prepare makes everything anew for turns measurements.
type prepare func(ctx context.Context, turns int) (trial, error)

// trial measures, and then cleans up.
type trial struct {
	// measure is called with 0, 1, 2 … below turns, and returns a cost or a rate; the unit is its own.
	measure func(ctx context.Context, turn int) (int64, error)
	close   func() error // may be nil
}

// turns is how often the two sides of a figure take turns in a round: often, so that both see the same machine.
const turns = 5

// errSkipped says why a figure can't be measured here.
var errSkipped = errors.New("skipped")

func run(ctx context.Context, list []figure, rounds int, out, progress io.Writer) (status int, err error) {
	ratios, skips := make([][]float64, len(list)), make([]error, len(list))
	for round := range rounds {
		fmt.Fprintf(progress, "round %d of %d\n", round+1, rounds)
		for i, f := range list {
			if skips[i] != nil || f.rounds > 0 && round >= f.rounds {
				continue
			}
			some, err := f.measure(ctx)
			switch {
			case errors.Is(err, errSkipped):
				skips[i] = err
			case err != nil:
				return failed, fmt.Errorf("%s: %w", f.names, err)
			}
			ratios[i] = append(ratios[i], some...)
		}
	}
	for i, f := range list {
		for name := range strings.FieldsSeq(f.names) {
			if skips[i] != nil {
				fmt.Fprintln(out, name, skips[i])
				if status == within {
					status = skipped
				}
				continue
			}
			line, ok := f.bar.verdict(median(ratios[i]))
			fmt.Fprintln(out, name, line)
			if !ok {
				status = missed
			}
		}
	}
	return status, nil
}

// versus returns the ratio of each of so many turns.
func versus(subject, per prepare, turns int) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) (ratios []float64, err error) {
		var sides [2]trial
		defer func() {
			for _, s := range sides {
				if s.close != nil {
					err = errors.Join(err, s.close())
				}
			}
		}()
		for i, p := range []prepare{subject, per} {
			if sides[i], err = p(ctx, turns); err != nil {
				return nil, err
			}
		}
		for turn := range turns {
			var got [2]int64
			for i := range got {
				side := (i + turn) % 2 // so that none is always the first
				runtime.GC()           // nor pays for the other's garbage
				if got[side], err = sides[side].measure(ctx, turn); err != nil {
					return nil, err
				}
			}
			ratios = append(ratios, float64(got[0])/float64(got[1]))
		}
		return ratios, nil
	}
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

func (b *bar) verdict(ratio float64) (line string, ok bool) {
	line = "ratio " + number(ratio)
	if b == nil {
		return line, true
	}
	word := "ok"
	if b.least && ratio < b.floor || !b.least && ratio > b.floor {
		word = "MISSED"
	}
	return fmt.Sprintf("%s floor %s target %s %s", line, number(b.floor), number(b.target), word), word == "ok"
}

// number writes three digits, as far as they say anything.
func number(x float64) string {
	text := strconv.FormatFloat(x, 'g', 3, 64)
	if y, err := strconv.ParseFloat(text, 64); err == nil {
		return strconv.FormatFloat(y, 'f', -1, 64)
	}
	return text
}
