// Package bench measures what one pair costs, a Reserve and its Settle: on a ledger, and on bare twins that show how much
// of it is inherent. The program in ratios compares them.
package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
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
	pairs   int
	callers [][]pair
}

type pair struct {
	key      string
	accounts []string
}

// Plans cuts the load into n plans, one after the other. The same load has the same pairs each time.
func (l Load) Plans(n int) []Plan {
	accounts := Accounts(l.Accounts)
	draw := rand.New(rand.NewPCG(1, 2))
	plans := make([]Plan, n)
	for i := range plans {
		plans[i].callers = make([][]pair, l.Callers)
	}
	for i := range l.Pairs {
		p, at := &plans[i*n/l.Pairs], draw.IntN(len(accounts))
		caller := &p.callers[p.pairs%l.Callers]
		*caller = append(*caller, pair{fmt.Sprintf("run-%d", i), accounts[at : at+1]})
		p.pairs++
	}
	return plans
}

// Accounts returns n names.
func Accounts(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("account-%04d", i)
	}
	return names
}

// Run puts the load on s, so many times, and waits for its end. Only a Subject that forgets keys takes a load more than once.
func (p Plan) Run(ctx context.Context, s Subject, times int) error {
	if len(p.callers) == 1 {
		return loop(ctx, s, p.callers[0], times)
	}
	errs := make([]error, len(p.callers))
	var done sync.WaitGroup
	for i, pairs := range p.callers {
		done.Go(func() { errs[i] = loop(ctx, s, pairs, times) })
	}
	done.Wait()
	return errors.Join(errs...)
}

func loop(ctx context.Context, s Subject, pairs []pair, times int) error {
	for range times {
		for _, p := range pairs {
			if err := s.Pair(ctx, p.key, p.accounts); err != nil {
				return err
			}
		}
	}
	return nil
}

// Time is Run with a watch: it returns picoseconds per pair.
func (p Plan) Time(ctx context.Context, s Subject, times int) (int64, error) {
	start := time.Now()
	err := p.Run(ctx, s, times)
	return time.Since(start).Nanoseconds() * 1000 / int64(p.pairs*times), err
}

// Allocations is Run with a count: it returns heap objects per thousand pairs.
func (p Plan) Allocations(ctx context.Context, s Subject) (int64, error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := p.Run(ctx, s, 1)
	runtime.ReadMemStats(&after)
	return int64(after.Mallocs-before.Mallocs) * 1000 / int64(p.pairs), err
}

// P50 runs the load with one caller, and returns the median time of a pair in picoseconds.
func (p Plan) P50(ctx context.Context, s Subject) (int64, error) {
	times := make([]int64, 0, p.pairs)
	for _, pairs := range p.callers {
		for i := range pairs {
			start := time.Now()
			if err := loop(ctx, s, pairs[i:i+1], 1); err != nil {
				return 0, err
			}
			times = append(times, time.Since(start).Nanoseconds()*1000)
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// Tally is what a load did in a while.
type Tally struct {
	Pairs   int
	Elapsed time.Duration
	Times   []time.Duration // of each pair
	Ends    []time.Duration // of each pair, from the beginning on
}

// During puts the load on s for a while, and waits for the pairs that are under way. Its keys begin with a name that no
// other run on s may have.
func (l Load) During(ctx context.Context, s Subject, name string, while time.Duration) (Tally, error) {
	accounts := Accounts(l.Accounts)
	parts, errs := make([]Tally, l.Callers), make([]error, l.Callers)
	var done sync.WaitGroup
	start := time.Now()
	for i := range parts {
		done.Go(func() {
			draw := rand.New(rand.NewPCG(uint64(start.UnixNano()), uint64(i)))
			for n, at := 0, time.Duration(0); at < while && errs[i] == nil; n++ {
				account := draw.IntN(len(accounts))
				errs[i] = s.Pair(ctx, fmt.Sprintf("%s-%d-%d", name, i, n), accounts[account:account+1])
				end := time.Since(start)
				parts[i].Times, parts[i].Ends = append(parts[i].Times, end-at), append(parts[i].Ends, end)
				at = end
			}
		})
	}
	done.Wait()
	t := Tally{Elapsed: time.Since(start)}
	for _, p := range parts {
		t.Times, t.Ends = append(t.Times, p.Times...), append(t.Ends, p.Ends...)
	}
	t.Pairs = len(t.Times)
	return t, errors.Join(errs...)
}

// Rate is pairs per hour.
func (t Tally) Rate() int64 { return int64(float64(t.Pairs) / t.Elapsed.Hours()) }

// P99 is the time in nanoseconds within which 99 of 100 pairs were done.
func (t Tally) P99() int64 {
	slices.Sort(t.Times)
	return t.Times[len(t.Times)*99/100].Nanoseconds()
}

// Touch makes a pair on each account, so that all rows are there that later pairs share.
func Touch(ctx context.Context, s Subject, accounts []string) error {
	errs := make([]error, len(accounts))
	var done sync.WaitGroup
	for i := range accounts {
		done.Go(func() { errs[i] = s.Pair(ctx, "touch-"+accounts[i], accounts[i:i+1]) })
	}
	done.Wait()
	return errors.Join(errs...)
}
