// Package bench measures what one pair costs, a Reserve and its Settle: on a ledger, and on bare twins that show how much
// of it is inherent. The program in ratios compares them.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Subject is what a load is put on. It is safe for concurrent use.
type Subject interface {
	// Pair reserves and settles once. key is new in every pair; accounts is one of the load's.
	Pair(ctx context.Context, key string, accounts []string) error
}

// Load is a closed loop: each caller begins its next pair when its last one is done.
type Load struct {
	Callers  int
	Accounts int // pairs go to these at random; 1 is one hot account
	Pairs    int // of all callers together
}

// Plan is a load with its names made, so that making them is not measured.
type Plan struct {
	pairs   int64
	callers [][]pair
}

type pair struct {
	key      string
	accounts []string
}

// Plan draws the same pairs for the same load each time.
func (l Load) Plan() Plan {
	accounts := Accounts(l.Accounts)
	draw := rand.New(rand.NewPCG(1, 2))
	p := Plan{pairs: int64(l.Pairs), callers: make([][]pair, l.Callers)}
	for i := range l.Pairs {
		own := &p.callers[i%l.Callers]
		at := draw.IntN(len(accounts))
		*own = append(*own, pair{fmt.Sprintf("run-%d", i), accounts[at : at+1]})
	}
	return p
}

// Accounts returns n names.
func Accounts(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("account-%04d", i)
	}
	return names
}

// Run puts the load on s and waits for its end.
func (p Plan) Run(ctx context.Context, s Subject) error {
	if len(p.callers) == 1 {
		return loop(ctx, s, p.callers[0])
	}
	errs := make([]error, len(p.callers))
	var done sync.WaitGroup
	for i, pairs := range p.callers {
		done.Go(func() { errs[i] = loop(ctx, s, pairs) })
	}
	done.Wait()
	return errors.Join(errs...)
}

func loop(ctx context.Context, s Subject, pairs []pair) error {
	for _, p := range pairs {
		if err := s.Pair(ctx, p.key, p.accounts); err != nil {
			return err
		}
	}
	return nil
}

// Time runs the load so many times with a watch, and returns picoseconds per pair. Only a Subject that forgets keys can take
// a load more than once.
func (p Plan) Time(ctx context.Context, s Subject, times int) (int64, error) {
	start := time.Now()
	for range times {
		if err := p.Run(ctx, s); err != nil {
			return 0, err
		}
	}
	return time.Since(start).Nanoseconds() * 1000 / (p.pairs * int64(times)), nil
}

// P50 runs the load with one caller, and returns the median time of a pair in picoseconds.
func (p Plan) P50(ctx context.Context, s Subject) (int64, error) {
	times := make([]int64, 0, p.pairs)
	for _, pairs := range p.callers {
		for _, pair := range pairs {
			start := time.Now()
			if err := s.Pair(ctx, pair.key, pair.accounts); err != nil {
				return 0, err
			}
			times = append(times, time.Since(start).Nanoseconds()*1000)
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}
