package main

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/internal/bench"
	"github.com/stint-go/stint/spendlimit"
)

// A store keeps every hold and entry, so each measurement begins with a fresh one and makes a bounded number of pairs.
const (
	pairs     = 20_000
	many      = 1024 // accounts
	openHolds = 100_000
	pastDays  = 3650
	entries   = 1_000_000
)

// figures lists the ratios to report: first those without a bar.
func figures() []figure {
	var list []figure
	for _, g := range grid() {
		list = append(list, figure{name: g.name() + "÷twin", series: g.name(), per: g.twin()})
	}
	return append(list,
		figure{name: "refused÷granted", series: "refused", per: "granted"},
		figure{name: "2accounts×3limits÷1×1", series: "wide", per: "hot/1"},
		figure{name: "depth4÷root", series: "child", per: "hot/1"},
		figure{"M1", "hot/1", "twin/hot/1", 40, 12},
		figure{"X1", "hot/64", "twin/hot/64", 40, 12},
		figure{"M2", "allocations", "one", 12, 3},
		figure{"M3", "hot/64", "hot/1", 6, 4},
		figure{"G1", "holds/many", "holds/few", 1.5, 1.1},
		figure{"G1d", "days/many", "days/few", 1.5, 1.1},
		figure{"X11", "entries/many", "entries/few", 1.5, 1.1},
		figure{"X2", "steps", "decimals", 0.3, 0.15},
	)
}

// all lists what is measured in a round; what is compared stands close together.
func all() []series {
	var list []series
	add := func(name string, measure func(context.Context) (int64, error)) {
		list = append(list, series{name, measure})
	}
	for _, g := range grid() {
		add(g.twin(), g.measureTwin)
		add(g.name(), g.measure)
	}
	add("allocations", allocations)
	add("one", func(context.Context) (int64, error) { return thousandths, nil })
	add("granted", ask(1))
	add("refused", ask(bench.Limit+1))
	add("wide", wide)
	add("child", child)
	add("holds/few", holds(10))
	add("holds/many", holds(openHolds))
	add("days/few", days(1))
	add("days/many", days(pastDays))
	add("entries/few", journal(1000))
	add("entries/many", journal(entries))
	add("steps", func(ctx context.Context) (int64, error) { return timed(ctx, one(), bench.NewSmallSteps()) })
	add("decimals", func(ctx context.Context) (int64, error) { return timed(ctx, one(), bench.NewSmallDecimal()) })
	return list
}

// cell is one of the grid's: so many callers on so many accounts.
type cell struct{ callers, accounts int }

func grid() []cell {
	return []cell{{1, 1}, {8, 1}, {64, 1}, {1, many}, {8, many}, {64, many}}
}

func (c cell) name() string {
	if c.accounts == 1 {
		return fmt.Sprintf("hot/%d", c.callers)
	}
	return fmt.Sprintf("%d/%d", c.accounts, c.callers)
}

func (c cell) twin() string { return "twin/" + c.name() }

func (c cell) load() bench.Load {
	return bench.Load{Callers: c.callers, Accounts: c.accounts, Pairs: pairs}
}

func (c cell) measure(ctx context.Context) (int64, error) {
	led, err := fresh(ctx, nil, c.accounts, 1)
	if err != nil {
		return 0, err
	}
	return timed(ctx, c.load(), led)
}

func (c cell) measureTwin(ctx context.Context) (int64, error) {
	plan := c.load().Plan()
	runtime.GC()
	return plan.Time(ctx, bench.NewTwin(bench.Accounts(c.accounts)), 20) // about as long as the ledger takes
}

// one is a single caller on one account.
func one() bench.Load { return cell{1, 1}.load() }

// fresh returns a ledger on an empty store, with n limits on each account.
func fresh(ctx context.Context, clock func() time.Time, accounts, n int) (bench.Ledger, error) {
	return bench.NewLedger(ctx, memory.New(&memory.Options{Clock: clock}).Spend(), bench.Accounts(accounts), n)
}

// timed measures a load with everything prepared and no garbage left from before.
func timed(ctx context.Context, l bench.Load, s bench.Subject) (int64, error) {
	plan := l.Plan()
	runtime.GC()
	return plan.Time(ctx, s, 1)
}

// p50 measures the median pair of one caller.
func p50(ctx context.Context, s bench.Subject) (int64, error) {
	plan := one().Plan()
	runtime.GC()
	return plan.P50(ctx, s)
}

const thousandths = 1000

// allocations counts the heap objects of a pair, in thousandths.
func allocations(ctx context.Context) (int64, error) {
	led, err := fresh(ctx, nil, 1, 1)
	if err != nil {
		return 0, err
	}
	plan := one().Plan()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = plan.Run(ctx, led)
	runtime.ReadMemStats(&after)
	return int64(after.Mallocs-before.Mallocs) * thousandths / pairs, err
}

// ask measures a Reserve alone.
func ask(amount spendlimit.Amount) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		led, err := fresh(ctx, nil, 1, 1)
		if err != nil {
			return 0, err
		}
		return timed(ctx, one(), bench.Ask{Ledger: led, Amount: amount})
	}
}

// wide measures pairs on 2 accounts with 3 limits each.
func wide(ctx context.Context) (int64, error) {
	led, err := fresh(ctx, nil, 2, 3)
	if err != nil {
		return 0, err
	}
	return timed(ctx, one(), bench.Wide{Ledger: led, Accounts: bench.Accounts(2)})
}

// child measures pairs of holds at depth 4.
func child(ctx context.Context) (int64, error) {
	led, err := fresh(ctx, nil, 1, 1)
	if err != nil {
		return 0, err
	}
	request := spendlimit.Request{Accounts: bench.Accounts(1)}
	for _, key := range []string{"1", "2", "3"} {
		request.Key, request.Amount = key, bench.Limit
		if _, err := led.Reserve(ctx, request); err != nil {
			return 0, err
		}
		request = spendlimit.Request{Parent: key}
	}
	return timed(ctx, one(), bench.Child{Ledger: led, Parent: "3"})
}

// holds measures pairs beside n open holds on the same account.
func holds(n int) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		led, err := fresh(ctx, nil, 1, 1)
		if err == nil {
			err = led.Hold(ctx, bench.Accounts(1)[0], n)
		}
		if err != nil {
			return 0, err
		}
		return p50(ctx, led)
	}
}

// start is where clocks that are set begin.
func start() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC) }

// days measures pairs after n days with a pair on each.
func days(n int) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		now := start()
		led, err := fresh(ctx, func() time.Time { return now }, 1, 1)
		if err != nil {
			return 0, err
		}
		for i := range n {
			if err := led.Pair(ctx, fmt.Sprintf("day/%d", i), bench.Accounts(1)); err != nil {
				return 0, err
			}
			now = now.AddDate(0, 0, 1)
		}
		return p50(ctx, led)
	}
}

// journal measures pairs after n entries. Each of these is an Extend, on a clock that goes on with every step, because
// it keeps nothing but its entry.
func journal(n int) func(context.Context) (int64, error) {
	return func(ctx context.Context) (int64, error) {
		now := start()
		tick := func() time.Time {
			now = now.Add(time.Microsecond)
			return now
		}
		led, err := fresh(ctx, tick, 1, 1)
		if err != nil {
			return 0, err
		}
		account := bench.Accounts(1)
		h, err := led.Reserve(ctx, spendlimit.Request{Key: "long", Accounts: account, Amount: 1})
		if err != nil {
			return 0, err
		}
		for range n {
			if _, err := h.Extend(ctx, spendlimit.Extension{}); err != nil {
				return 0, err
			}
		}
		return p50(ctx, led)
	}
}
