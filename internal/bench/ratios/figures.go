package main

import (
	"context"
	"fmt"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/internal/bench"
	"github.com/stint-go/stint/spendlimit"
)

// A store keeps every hold and entry, so each round begins with a fresh one and makes a bounded number of pairs.
const (
	pairs     = 20_000
	many      = 1024 // accounts
	openHolds = 100_000
	pastDays  = 3650
	entries   = 1_000_000
)

// figures lists what to measure in memory: first the grid and others without a bar.
func figures() []figure {
	var list []figure
	add := func(names string, subject, per prepare, bar *bar) {
		list = append(list, figure{names: names, measure: versus(subject, per, turns), bar: bar})
	}
	for _, accounts := range []int{1, many} {
		for _, callers := range []int{1, 8, 64} {
			add(fmt.Sprintf("accounts=%d,callers=%d÷twin", accounts, callers), library(callers, accounts), twin(callers, accounts), nil)
		}
	}
	small := timed(load(1, 1), func(context.Context) (bench.Subject, error) { return bench.NewSmallSteps(), nil })
	decimals := timed(load(1, 1), func(context.Context) (bench.Subject, error) { return bench.NewSmallDecimal(), nil })
	add("library÷same-rows-unbatched", library(1, 1), small, nil)
	add("refused÷granted", timed(load(1, 1), ask(bench.Limit+1)), timed(load(1, 1), ask(1)), nil)
	add("2-accounts-3-limits÷1-1", timed(load(1, 1), wide), library(1, 1), nil)
	add("depth-4÷root", timed(load(1, 1), child), library(1, 1), nil)
	add("M1", library(1, 1), twin(1, 1), atMost(70, 12)) // docs/decisions.md says why not 40
	add("X1", library(64, 1), twin(64, 1), atMost(40, 12))
	add("M2", allocations, one, atMost(12, 3))
	add("M3", library(64, 1), library(1, 1), atMost(6, 4))
	add("X10", timed(load(1, 1), lease), library(1, 1), atMost(5, 2))
	add("X10-64", timed(load(64, 1), lease), library(64, 1), atMost(5, 2))
	add("G1", p50(holds(openHolds)), p50(holds(10)), atMost(1.5, 1.1))
	add("G1d", p50(days(pastDays)), p50(days(1)), atMost(1.5, 1.1))
	add("X11", p50(journal(entries)), p50(journal(1000)), atMost(1.5, 1.1))
	add("X2", small, decimals, atMost(0.3, 0.15))
	return list
}

func load(callers, accounts int) bench.Load {
	return bench.Load{Callers: callers, Accounts: accounts, Pairs: pairs}
}

// setup makes what is measured.
type setup func(context.Context) (bench.Subject, error)

// measured puts a load on what s makes, a part of it in each turn.
func measured(l bench.Load, s setup, by func(context.Context, bench.Plan, bench.Subject) (int64, error)) prepare {
	return func(ctx context.Context, turns int) (trial, error) {
		subject, err := s(ctx)
		plans := l.Plans(turns)
		return trial{measure: func(ctx context.Context, turn int) (int64, error) { return by(ctx, plans[turn], subject) }}, err
	}
}

func timed(l bench.Load, s setup) prepare {
	return measured(l, s, func(ctx context.Context, p bench.Plan, s bench.Subject) (int64, error) { return p.Time(ctx, s, 1) })
}

func p50(s setup) prepare {
	return measured(load(1, 1), s, func(ctx context.Context, p bench.Plan, s bench.Subject) (int64, error) { return p.P50(ctx, s) })
}

func library(callers, accounts int) prepare {
	return timed(load(callers, accounts), func(ctx context.Context) (bench.Subject, error) { return fresh(ctx, nil, accounts, 1) })
}

// twin takes its load often, to be timed for about as long as the library.
func twin(callers, accounts int) prepare {
	s := func(context.Context) (bench.Subject, error) { return bench.NewTwin(bench.Accounts(accounts)), nil }
	return measured(load(callers, accounts), s, func(ctx context.Context, p bench.Plan, s bench.Subject) (int64, error) {
		return p.Time(ctx, s, 20)
	})
}

func allocations(ctx context.Context, turns int) (trial, error) {
	s := func(ctx context.Context) (bench.Subject, error) { return fresh(ctx, nil, 1, 1) }
	count := func(ctx context.Context, p bench.Plan, s bench.Subject) (int64, error) { return p.Allocations(ctx, s) }
	return measured(load(1, 1), s, count)(ctx, turns)
}

// one is one allocation a pair.
func one(context.Context, int) (trial, error) {
	return trial{measure: func(context.Context, int) (int64, error) { return 1000, nil }}, nil
}

// fresh returns a ledger on an empty store, with n limits on each account.
func fresh(ctx context.Context, clock func() time.Time, accounts, n int) (bench.Ledger, error) {
	return bench.NewLedger(ctx, memory.New(&memory.Options{Clock: clock}).Spend(), bench.Accounts(accounts), n)
}

// lease makes pairs inside a lease of 10,000 holds.
func lease(ctx context.Context) (bench.Subject, error) {
	led, err := fresh(ctx, nil, 1, 1)
	if err != nil {
		return nil, err
	}
	return bench.NewLease(ctx, led, bench.Accounts(1)[0], 10_000, func() spendlimit.Store { return memory.New(nil).Spend() })
}

// ask makes a Reserve alone.
func ask(amount spendlimit.Amount) setup {
	return func(ctx context.Context) (bench.Subject, error) {
		led, err := fresh(ctx, nil, 1, 1)
		return bench.Ask{Ledger: led, Amount: amount}, err
	}
}

// wide makes pairs on 2 accounts with 3 limits each.
func wide(ctx context.Context) (bench.Subject, error) {
	led, err := fresh(ctx, nil, 2, 3)
	return bench.Wide{Ledger: led, Accounts: bench.Accounts(2)}, err
}

// child makes pairs of holds at depth 4.
func child(ctx context.Context) (bench.Subject, error) {
	led, err := fresh(ctx, nil, 1, 1)
	request := spendlimit.Request{Accounts: bench.Accounts(1)}
	for _, key := range []string{"1", "2", "3"} {
		if err == nil {
			request.Key, request.Amount = key, bench.Limit
			_, err = led.Reserve(ctx, request)
		}
		request = spendlimit.Request{Parent: key}
	}
	return bench.Child{Ledger: led, Parent: "3"}, err
}

// holds makes pairs beside n open holds on the same account.
func holds(n int) setup {
	return func(ctx context.Context) (bench.Subject, error) {
		led, err := fresh(ctx, nil, 1, 1)
		if err == nil {
			err = led.Hold(ctx, bench.Accounts(1)[0], n)
		}
		return led, err
	}
}

// start is where clocks that are set begin.
func start() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// days makes pairs after n days with a pair on each.
func days(n int) setup {
	return func(ctx context.Context) (bench.Subject, error) {
		now := start()
		led, err := fresh(ctx, func() time.Time { return now }, 1, 1)
		for i := 0; i < n && err == nil; i++ {
			err = led.Pair(ctx, fmt.Sprintf("day/%d", i), bench.Accounts(1))
			now = now.AddDate(0, 0, 1)
		}
		return led, err
	}
}

// journal makes pairs after n entries. Each of these is an Extend, on a clock that goes on with every step, because it
// keeps nothing but its entry.
func journal(n int) setup {
	return func(ctx context.Context) (bench.Subject, error) {
		now := start()
		tick := func() time.Time {
			now = now.Add(time.Microsecond)
			return now
		}
		led, err := fresh(ctx, tick, 1, 1)
		if err != nil {
			return nil, err
		}
		h, err := led.Reserve(ctx, spendlimit.Request{Key: "long", Accounts: bench.Accounts(1), Amount: 1})
		for i := 0; i < n && err == nil; i++ {
			_, err = h.Extend(ctx, spendlimit.Extension{})
		}
		return led, err
	}
}
