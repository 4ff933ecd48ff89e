package main

import (
	"context"
	"fmt"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/internal/bench"
)

// poolFigures lists what to measure of package allocator in memory. One hot pool, if nothing else is said.
func poolFigures() []figure {
	var list []figure
	add := func(names string, subject, per prepare, bar *bar) {
		list = append(list, figure{names: names, measure: versus(subject, per, turns), bar: bar})
	}
	for _, callers := range []int{1, 8, 64} {
		pair, renew := atMost(90, 8), atMost(60, 5) // docs/decisions.md says why not 20 and 12, 15 and 10
		add(fmt.Sprintf("pool/memory/%d", callers), timed(load(callers, 1), slots), often(load(callers, 1), slotTwin), pair)
		add(fmt.Sprintf("renew/memory/%d", callers), timed(load(callers, 1), renewals), often(load(callers, 1), renewTwin), renew)
	}
	add("pool/memory/64÷1", timed(load(64, 1), slots), timed(load(1, 1), slots), atMost(6, 1))
	add("pool/memory/allocations", allocated(slots), one, atMost(9.5, 6))
	add("pool/memory/10000-slots", p50(slotsBeside(10_000)), p50(slotsBeside(10)), atMost(1.5, 1.1))
	add("sweep/memory/10000-slots÷reading", few(idleSweep), few(reading), atMost(5, 1))
	return list
}

func slots(ctx context.Context) (bench.Subject, error) { return freshPools(ctx, bench.Slots) }

func slotTwin(context.Context) (bench.Subject, error) { return bench.NewSlotTwin(bench.Slots), nil }

func renewals(ctx context.Context) (bench.Subject, error) {
	p, err := freshPools(ctx, bench.Slots)
	if err != nil {
		return nil, err
	}
	return bench.NewRenewals(ctx, p.Pool(hotPool), 64)
}

func renewTwin(context.Context) (bench.Subject, error) { return bench.NewRenewTwin(64), nil }

var hotPool = bench.Accounts(1)[0]

func freshPools(ctx context.Context, slots int) (bench.Pools, error) {
	return bench.NewPools(ctx, memory.New(nil).Pools(), bench.Accounts(1), slots)
}

// often is for twins: they take their load often, to be timed for about as long as the library.
func often(l bench.Load, s setup) prepare {
	return measured(l, s, func(ctx context.Context, p bench.Plan, s bench.Subject) (int64, error) { return p.Time(ctx, s, 20) })
}

func allocated(s setup) prepare {
	return measured(load(1, 1), s, func(ctx context.Context, p bench.Plan, s bench.Subject) (int64, error) { return p.Allocations(ctx, s) })
}

// few is p50 of what takes long.
func few(s setup) prepare {
	return measured(bench.Load{Callers: 1, Accounts: 1, Pairs: 20 * turns}, s, func(ctx context.Context, p bench.Plan, s bench.Subject) (int64, error) {
		return p.P50(ctx, s)
	})
}

// slotsBeside is a pool with so many live slots, and some free ones.
func slotsBeside(n int) setup {
	return func(ctx context.Context) (bench.Subject, error) {
		p, err := freshPools(ctx, min(n+8, 10_000))
		if err == nil {
			err = p.Hold(ctx, hotPool, min(n, 10_000-8))
		}
		return p, err
	}
}

// each is a Subject that calls a function.
type each func(ctx context.Context) error

func (f each) Pair(ctx context.Context, _ string, _ []string) error { return f(ctx) }

// idleSweep sweeps 10,000 slots where there is nothing to do.
func idleSweep(ctx context.Context) (bench.Subject, error) {
	p, err := slotsBeside(10_000)(ctx)
	if err != nil {
		return nil, err
	}
	pool := p.(bench.Pools).Pool(hotPool)
	return each(func(ctx context.Context) error {
		s, err := pool.Sweep(ctx, 10_000)
		if err == nil && s.Reclaimed+s.Thawed+s.Purged > 0 {
			err = fmt.Errorf("the sweep had something to do: %+v", s)
		}
		return err
	}), nil
}

// reading reads 10,000 slots.
func reading(ctx context.Context) (bench.Subject, error) {
	p, err := slotsBeside(10_000)(ctx)
	if err != nil {
		return nil, err
	}
	pool := p.(bench.Pools).Pool(hotPool)
	return each(func(ctx context.Context) error {
		for from := 0; from < 10_000; from += 1000 {
			if _, err := pool.Probes(ctx, from, 1000); err != nil {
				return err
			}
		}
		return nil
	}), nil
}
