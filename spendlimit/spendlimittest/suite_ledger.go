package spendlimittest

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// ledgerCases check what a ledger promises and what only a sound store lets it keep.
func ledgerCases() []testCase {
	return []testCase{
		{"T1_FiftyOnTen", fiftyOnTen},
		{"T2_EveryGrantCounts", everyGrantCounts},
		{"T3_DefaultsOnce", defaultsOnce},
		{"T5_UsedUp", usedUp},
		{"T6_R33_ExpiryActsUnswept", expiryActsUnswept},
		{"T12_OneKeyTwentyTimes", oneKeyTwentyTimes},
		{"T25_UnpricedIsStored", unpricedIsStored},
		{"T29_FiftyCharges", fiftyCharges},
		{"T30_ChildrenInOneBatch", childrenInOneBatch},
		{"T31_AllLinesOrNone", allLinesOrNone},
		{"T33_EvenSplit", evenSplit},
		{"T62_MembersAtOnce", membersAtOnce},
		{"T109_Overflow", overflow},
		{"I7_NoGaps", noGaps},
		{"I8_Replays", replaysWriteNothing},
		{"R28_TreeIsReleased", treeIsReleased},
		{"R37_GrownOnTwoDays", grownOnTwoDays},
		{"R41_UsageCountsOnce", usageCountsOnce},
		{"R46_AssumedIsReplaced", assumedIsReplaced},
		{"R58_BackfillCountsTheJournal", backfillCountsTheJournal},
		{"R59_MadeAnew", madeAnew},
		{"R60_ChargeThatCarries", chargeThatCarries},
		{"R61_FiredOnce", firedOnce},
		{"R71_RefusedAlone", refusedAlone},
		{"R76_Prune", pruneForgets},
		{"Unit_Mismatch", unitMismatch},
	}
}

// fiftyOnTen races many processes for one limit, in two ledgers at once.
func fiftyOnTen(e *env) {
	led := e.processes(6)
	other := e.on(e.store, spendlimit.Config{Name: "other"})
	e.limits(led[0], day("a", 10))
	e.limits(other, day("a", 10))
	errs := together(100, func(i int) error {
		l := led[i%len(led)]
		if i >= 50 {
			l = other
		}
		_, err := l.Reserve(e.Context(), ask(numbered("k", i), 1, "a"))
		return err
	})
	for half := range 2 {
		n := e.tally(errs[half*50:half*50+50], spendlimit.ErrDenied)
		equal(e, "granted, denied", []int{n[nil], n[spendlimit.ErrDenied]}, []int{10, 40})
	}
	e.counts(led[0], "a", 0, 10)
	e.counts(other, "a", 0, 10)
	e.clean(led[0])
	e.clean(other)
}

// everyGrantCounts reads each write, through every process.
func everyGrantCounts(e *env) {
	led := e.processes(2)
	e.limits(led[0], day("a", 1_000_000))
	for i := range 20 {
		e.reserve(led[i%2], ask(numbered("k", i), 1, "a"))
		e.counts(led[(i+1)%2], "a", 0, spendlimit.Amount(i+1))
	}
}

func defaultsOnce(e *env) {
	cfg := spendlimit.Config{Defaults: func(account string) []spendlimit.Limit { return []spendlimit.Limit{day(account, 1)} }}
	var led []*spendlimit.Ledger
	for range 4 {
		led = append(led, e.on(e.store, cfg))
	}
	n := e.tally(together(8, func(i int) error {
		_, err := led[i%4].Reserve(e.Context(), ask(numbered("k", i), 1, "a"))
		return err
	}), spendlimit.ErrDenied)
	equal(e, "granted", n[nil], 1)
	list, err := collect(led[0].Balances(e.Context(), "a", time.Time{}))
	e.ok(err)
	equal(e, "limits", len(list), 1)
	equal(e, "entries", len(e.entries(led[0], "a")), 2)
	e.clean(led[0])
}

func usedUp(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 5))
	e.charge(led, "u", 5, "a")
	e.unchanged("refusals", func() {
		_, err := led.Reserve(e.Context(), ask("k", 1, "a"))
		e.is(err, spendlimit.ErrDenied)
		_, err = led.Check(e.Context(), ask("k", 1, "a"))
		e.is(err, spendlimit.ErrDenied)
		_, err = led.Reserve(e.Context(), ask("k", 1, "a", "b")) // b has no limit, and no row
		e.is(err, spendlimit.ErrNoLimit)
	})
}

func expiryActsUnswept(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 10), day("b", 10))
	r := ask("k1", 10, "a", "b")
	r.TTL = time.Minute
	e.reserve(led, r)
	e.clock.advance(time.Minute)
	_, err := led.Reserve(e.Context(), ask("k2", 1, "a"))
	e.is(err, spendlimit.ErrDenied) // it lives at its last instant
	e.clock.advance(time.Microsecond)
	e.unchanged("reads", func() { e.counts(led, "a", 0, 0) })
	e.reserve(led, ask("k3", 10, "a"))
	e.counts(led, "a", 0, 10)
	e.counts(led, "b", 0, 0)
	_, err = led.Settle(e.Context(), "k1", spendlimit.Total(3))
	e.ok(err)
	e.counts(led, "b", 3, 0)
	e.clean(led)
}

func oneKeyTwentyTimes(e *env) {
	led := e.processes(5)
	e.limits(led[0], day("a", 100))
	e.reserve(led[0], ask("k", 4, "a"))
	again := make([]bool, 20)
	call := func(key string) func(i int) error {
		return func(i int) error {
			h, err := led[i%5].Reserve(e.Context(), ask(key, 4, "a"))
			if err == nil {
				again[i] = h.Replayed
			}
			return err
		}
	}
	e.unchanged("replays", func() {
		e.tally(together(20, call("k")))
		equal(e, "first answers", slices.Contains(again, false), false)
	})
	e.tally(together(20, call("l")))
	first := 0
	for _, replayed := range again {
		if !replayed {
			first++
		}
	}
	equal(e, "first answers", first, 1)
	e.counts(led[0], "a", 0, 8)
	equal(e, "entries", len(e.entries(led[0], "a")), 3)
	e.clean(led[0])
}

func unpricedIsStored(e *env) {
	led := e.processes(2)
	e.limits(led[0], day("a", 100))
	e.reserve(led[0], ask("k", 5, "a"))
	_, err := led[0].Settle(e.Context(), "k", spendlimit.Unknown("no price"))
	e.ok(err)
	_, err = led[1].Reserve(e.Context(), ask("l", 1, "a"))
	e.is(err, spendlimit.ErrUnpriced)
	b := e.balance(led[1], "a", "day")
	equal(e, "unpriced, spent, assumed", []int64{b.Unpriced, int64(b.Spent), int64(b.Assumed)}, []int64{1, 5, 5})
	_, err = led[1].Settle(e.Context(), "k", spendlimit.Total(2))
	e.ok(err)
	e.reserve(led[0], ask("l", 1, "a"))
	b = e.balance(led[0], "a", "day")
	equal(e, "unpriced, spent, assumed", []int64{b.Unpriced, int64(b.Spent), int64(b.Assumed)}, []int64{0, 2, 0})
	e.clean(led[0])
}

func fiftyCharges(e *env) {
	led := e.processes(5)
	e.limits(led[0], day("a", 10), day("b", 10))
	e.tally(together(50, func(i int) error {
		accounts := [][]string{{"a", "b"}, {"b", "a"}, {"a"}, {"b"}}[i%4]
		_, err := led[i%5].Charge(e.Context(), spendlimit.Expense{ID: numbered("u", i), Accounts: accounts, Cost: spendlimit.Total(1)})
		return err
	}))
	for account, want := range map[string]int{"a": 38, "b": 38} {
		list := e.entries(led[0], account)
		equal(e, "entries of "+account, len(list), 1+want)
		for i, x := range list {
			equal(e, "seq", x.Seq, int64(i+1))
		}
		b := e.balance(led[0], account, "day")
		equal(e, "spent, overrun", [2]spendlimit.Amount{b.Spent, b.Overrun}, [2]spendlimit.Amount{spendlimit.Amount(want), spendlimit.Amount(want - 10)})
	}
	e.clean(led[0])
}

// childrenInOneBatch: siblings see what each has taken, in one batch and in several processes.
func childrenInOneBatch(e *env) {
	led := e.processes(3)
	e.limits(led[0], day("a", 1000), day("b", 1000))
	for round := range 6 {
		root := numbered("root", round)
		e.reserve(led[0], ask(root, 10, "a"))
		take := func(led *spendlimit.Ledger, i int) error {
			r := child(numbered(root, i), root, 6)
			if i%2 == 0 {
				r.Accounts = []string{"b"}
			}
			_, err := led.Reserve(e.Context(), r)
			return err
		}
		var errs []error
		if round%2 == 0 {
			errs = e.gathered(6, take)
		} else {
			errs = together(6, func(i int) error { return take(led[i%3], i) })
		}
		equal(e, "granted", e.tally(errs, spendlimit.ErrDenied)[nil], 1)
	}
	e.counts(led[0], "a", 0, 60)
	e.clean(led[0])
}

func allLinesOrNone(e *env) {
	led := e.ledger()
	week, all := day("a", 100), day("b", 3)
	week.Name, week.Kind = "week", spendlimit.Week
	all.Name, all.Kind = "all", spendlimit.AllTime
	e.limits(led, day("a", 100), week, day("b", 100), all)
	lines := func(n spendlimit.Amount) {
		e.Helper()
		for _, l := range [][2]string{{"a", "day"}, {"a", "week"}, {"b", "day"}, {"b", "all"}} {
			equal(e, "held of "+l[0]+"/"+l[1], e.balance(led, l[0], l[1]).Held, n)
		}
	}
	e.unchanged("a hold that one of four limits refuses", func() {
		_, err := led.Reserve(e.Context(), ask("k", 4, "a", "b"))
		e.is(err, spendlimit.ErrDenied)
	})
	e.reserve(led, ask("k", 3, "b", "a"))
	lines(3)
	_, err := led.Release(e.Context(), "k")
	e.ok(err)
	lines(0)
	e.clean(led)
}

func (e *env) member(led *spendlimit.Ledger, key string, slots int, accounts ...string) (*spendlimit.Hold, error) {
	return led.Reserve(e.Context(), spendlimit.Request{Key: key, Accounts: accounts, Split: spendlimit.Split{Group: "g", Slots: slots}})
}

func evenSplit(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 100))
	n := map[spendlimit.Amount]int{}
	for i := range 7 {
		h, err := e.member(led, numbered("k", i), 7, "a")
		e.ok(err)
		n[h.Granted]++
	}
	equal(e, "grants", n, map[spendlimit.Amount]int{14: 5, 15: 2})
	_, err := e.member(led, "k7", 7, "a")
	e.is(err, spendlimit.ErrDenied)
	e.counts(led, "a", 0, 100)
	e.clean(led)
}

// membersAtOnce: each counts the others, whichever process they come from.
func membersAtOnce(e *env) {
	led := e.processes(8)
	e.limits(led[0], day("a", 80), day("b", 1000))
	granted := make([]spendlimit.Amount, 8)
	e.tally(together(8, func(i int) error {
		h, err := e.member(led[i], numbered("k", i), 8, "a", "b")
		if err == nil {
			granted[i] = h.Granted
		}
		return err
	}))
	equal(e, "grants", granted, []spendlimit.Amount{10, 10, 10, 10, 10, 10, 10, 10})
	e.clean(led[0])
}

func overflow(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 1))
	e.charge(led, "u1", 1<<53+1, "a") // no float keeps it
	equal(e, "spent", e.balance(led, "a", "day").Spent, 1<<53+1)
	e.charge(led, "u2", math.MaxInt64-1-(1<<53+1), "a")
	full := e.balance(led, "a", "day")
	equal(e, "spent", full.Spent, math.MaxInt64-1)
	equal(e, "overrun", full.Overrun, math.MaxInt64-2)
	e.unchanged("a sum above 63 bits", func() {
		_, err := led.Charge(e.Context(), spendlimit.Expense{ID: "u3", Accounts: []string{"a"}, Cost: spendlimit.Total(2)})
		e.is(err, spendlimit.ErrOverflow)
	})
	e.charge(led, "u3", 1, "a") // the id was not used up
	equal(e, "spent", e.balance(led, "a", "day").Spent, math.MaxInt64)
	e.clean(led)
}

func noGaps(e *env) {
	led := e.family()
	_, err := led.Settle(e.Context(), "baby", spendlimit.Total(3))
	e.ok(err)
	_, err = led.Reserve(e.Context(), ask("k", 2000, "a"))
	e.is(err, spendlimit.ErrDenied)
	for account, want := range map[string][]spendlimit.EntryKind{
		"a": {spendlimit.EntryLimit, spendlimit.EntryReserve, spendlimit.EntryReserve, spendlimit.EntryReserve, spendlimit.EntrySettle},
		"b": {spendlimit.EntryLimit, spendlimit.EntryReserve, spendlimit.EntryReserve, spendlimit.EntrySettle},
		"c": {spendlimit.EntryLimit, spendlimit.EntryReserve, spendlimit.EntrySettle},
		"d": {spendlimit.EntryLimit, spendlimit.EntryReserve},
	} {
		var got []spendlimit.EntryKind
		for i, x := range e.entries(led, account) {
			equal(e, "seq", x.Seq, int64(i+1))
			got = append(got, x.Kind)
		}
		equal(e, "entries of "+account, got, want)
	}
	after, err := collect(led.Entries(e.Context(), "a", 3))
	e.ok(err)
	equal(e, "entries after 3", len(after), 2)
}

// replaysWriteNothing walks the tour, and makes each call that changes rows a second time (I8).
func replaysWriteNothing(e *env) {
	sc := tour()
	want, rows := e.reference(sc)
	run, err := newSession(e.store, sc.cfg, e.clock)
	e.ok(err)
	for i, o := range sc.ops {
		equal(e, "answer", run.do(e.Context(), o), want[i])
		if !o.quiet {
			run.do(e.Context(), o)
		}
	}
	equal(e, "rows", e.dump(), rows)
}

func treeIsReleased(e *env) {
	led := e.family()
	e.ok(led.Dispatch(e.Context(), "baby"))
	e.reserve(led, child("twin", "kid", 3))
	_, err := led.Release(e.Context(), "root", spendlimit.Tree)
	e.ok(err)
	states := map[string]spendlimit.State{}
	for h, err := range led.Holds(e.Context(), spendlimit.HoldFilter{Account: "a"}) {
		e.ok(err)
		states[h.Key] = h.State
	}
	equal(e, "states", states, map[string]spendlimit.State{
		"root": spendlimit.Released, "kid": spendlimit.Released, "twin": spendlimit.Released, "baby": spendlimit.Dispatched,
	})
	e.counts(led, "a", 0, 5)
	e.counts(led, "b", 0, 5)
	e.counts(led, "c", 0, 5)
	e.clean(led)
}

// grownOnTwoDays: a hold has a part per day, and each keeps its own lines.
func grownOnTwoDays(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 10))
	r := ask("k", 4, "a")
	r.TTL = 24 * time.Hour
	e.reserve(led, r)
	e.clock.advance(13 * time.Hour)
	_, err := led.Grow(e.Context(), spendlimit.Growth{Hold: "k", ID: "g", By: 5})
	e.ok(err)
	e.counts(led, "a", 0, 5)
	_, err = led.Settle(e.Context(), "k", spendlimit.Total(6)) // the old part first
	e.ok(err)
	e.counts(led, "a", 2, 0)
	list, err := collect(led.Balances(e.Context(), "a", noon))
	e.ok(err)
	equal(e, "spent, held on the first day", [2]spendlimit.Amount{list[0].Spent, list[0].Held}, [2]spendlimit.Amount{4, 0})
	e.clean(led)
}

func usageCountsOnce(e *env) {
	led := e.processes(4)
	e.limits(led[0], day("a", 1000), day("b", 1000))
	e.reserve(led[0], ask("k", 100, "a"))
	e.reserve(led[0], ask("l", 100, "a"))
	record := func(i int, hold string, n spendlimit.Amount) error {
		_, err := led[i%4].Record(e.Context(), spendlimit.Usage{Hold: hold, ID: "u", Cost: spendlimit.Total(n)})
		return err
	}
	e.tally(together(12, func(i int) error { return record(i, "k", 3) }))
	e.counts(led[0], "a", 3, 197)
	e.unchanged("the same usage again", func() {
		e.ok(record(1, "k", 3))
		e.is(record(2, "k", 4), spendlimit.ErrKeyReused)
	})
	e.ok(record(0, "l", 5)) // another hold's
	e.counts(led[0], "a", 8, 192)
	e.tally(together(12, func(i int) error {
		_, err := led[i%4].Charge(e.Context(), spendlimit.Expense{ID: "u", Accounts: []string{"b"}, Cost: spendlimit.Total(7)})
		return err
	}))
	e.counts(led[0], "b", 7, 0)
	e.unchanged("a charge's id with other content", func() {
		_, err := led[1].Adjust(e.Context(), spendlimit.Adjustment{ID: "u", Account: "b", By: 1, Reason: "bill"})
		e.is(err, spendlimit.ErrKeyReused)
	})
	e.clean(led[0])
}

// assumedIsReplaced: what was assumed for a cost is remembered part by part, until the true cost comes.
func assumedIsReplaced(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 10), day("b", 10))
	e.reserve(led, ask("k", 8, "a"))
	e.reserve(led, child("kid", "k", 5, "b"))
	e.ok(led.Dispatch(e.Context(), "kid"))
	e.ok(led.Close(e.Context(), "kid"))
	e.counts(led, "b", 5, 0)
	e.counts(led, "a", 5, 3)
	r, err := led.Settle(e.Context(), "kid", spendlimit.Total(2))
	e.ok(err)
	equal(e, "returned", r.Returned, 3)
	e.counts(led, "b", 2, 0)
	e.counts(led, "a", 2, 3)
	_, err = led.Reserve(e.Context(), child("kid", "k", 5, "b"))
	var ended *spendlimit.EndedError
	if !errors.As(err, &ended) {
		e.Fatalf("error %v, want an EndedError", err)
	}
	equal(e, "the receipt of the end", ended.Receipt, r)
	e.clean(led)
}

func backfillCountsTheJournal(e *env) {
	led := e.on(e.store, spendlimit.Config{NoLimit: spendlimit.Allow})
	e.charge(led, "u", 3, "a")
	e.reserve(led, ask("k", 2, "a", "b"))
	_, err := led.SetLimit(e.Context(), day("a", 10), "", spendlimit.Backfill)
	e.ok(err)
	e.counts(led, "a", 3, 2)
	_, err = led.Settle(e.Context(), "k", spendlimit.Total(4))
	e.ok(err)
	e.counts(led, "a", 7, 0)
	e.clean(led)
}

// madeAnew: holds end on the generation of a limit that they were granted on.
func madeAnew(e *env) {
	led := e.family()
	e.old(led)
	e.counts(led, "a", 3, 0)
	_, err := led.Settle(e.Context(), "root", spendlimit.Total(9))
	e.ok(err)
	e.counts(led, "a", 3, 0)
	e.clean(led)
}

// chargeThatCarries: the first charge of a week on two accounts moves unused room of the second one's last week.
func chargeThatCarries(e *env) {
	led := e.ledger()
	week := day("b", 100)
	week.Kind, week.CarryUnused = spendlimit.Week, 40
	e.limits(led, day("a", 100), week)
	e.charge(led, "u1", 70, "b")
	e.clock.advance(7 * 24 * time.Hour)
	e.charge(led, "u2", 5, "a", "b")
	equal(e, "limit in force", e.balance(led, "b", "day").InForce, 130)
	e.counts(led, "a", 5, 0)
	e.counts(led, "b", 5, 0)
	e.clean(led)
}

func firedOnce(e *env) {
	led := e.processes(4)
	l := day("a", 10)
	l.Thresholds = []spendlimit.Threshold{{Percent: 80}, {Percent: 100, Of: spendlimit.Spent}}
	e.limits(led[0], l)
	for d := range 2 {
		crossed := make([]int, 12)
		e.tally(together(12, func(i int) error {
			r, err := led[i%4].Charge(e.Context(), spendlimit.Expense{ID: numbered("u", 100*d+i), Accounts: []string{"a"}, Cost: spendlimit.Total(1)})
			crossed[i] = len(r.Crossed)
			return err
		}))
		sum := 0
		for _, n := range crossed {
			sum += n
		}
		equal(e, "crossings", sum, 2)
		equal(e, "fired", e.balance(led[0], "a", "day").Fired, l.Thresholds)
		_, err := led[1].Adjust(e.Context(), spendlimit.Adjustment{ID: numbered("a", d), Account: "a", By: -9, Reason: "bill"})
		e.ok(err)
		equal(e, "crossings", len(e.charge(led[2], numbered("v", d), 9, "a").Crossed), 0)
		e.clock.advance(24 * time.Hour)
	}
}

// refusedAlone: one call of a batch that is refused changes nothing for the others.
func refusedAlone(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 1000), day("b", 1000))
	for round := range 4 {
		n := e.tally(e.gathered(16, func(led *spendlimit.Ledger, i int) error {
			r := ask(numbered(numbered("k", round), i), 1, "a")
			if i%4 == 0 {
				r.Amount = 5000
			}
			_, err := led.Reserve(e.Context(), r)
			return err
		}), spendlimit.ErrDenied)
		equal(e, "granted, denied", []int{n[nil], n[spendlimit.ErrDenied]}, []int{12, 4})
		e.counts(led, "a", 0, spendlimit.Amount(12*(round+1)))
	}
	e.clean(led)
}

func pruneForgets(e *env) {
	led := e.family()
	for _, key := range []string{"baby", "kid", "root"} {
		_, err := led.Settle(e.Context(), key, spendlimit.Total(2))
		e.ok(err)
	}
	record := spendlimit.Usage{Hold: "late", ID: "u", Cost: spendlimit.Total(1)}
	e.reserve(led, ask("late", 3, "a"))
	_, err := led.Record(e.Context(), record)
	e.ok(err)
	e.clock.advance(40 * 24 * time.Hour)
	e.charge(led, "u", 1, "a")
	cut := noon.Add(2 * time.Hour)
	e.ok(led.Prune(e.Context(), "a", cut))
	list, err := collect(led.Balances(e.Context(), "a", noon))
	e.ok(err)
	equal(e, "spent on the first day", list[0].Spent, 9) // 2 for each of three, and late at its hold
	first := e.entries(led, "a")[0]
	equal(e, "first entry", first.Kind, spendlimit.EntryLapse)
	e.clean(led)
	// Keys, and the usages of the keys, may be used anew.
	e.reserve(led, ask("root", 3, "b"))
	e.reserve(led, ask("late", 3, "b"))
	record.Cost = spendlimit.Total(2)
	_, err = led.Record(e.Context(), record)
	e.ok(err)
	e.clean(led)
}

func unitMismatch(e *env) {
	led := e.family()
	want := e.dump()
	for _, unit := range []spendlimit.Unit{{Code: "step", Scale: 1}, {Code: "STEP"}, spendlimit.USD} {
		other := e.on(e.store, spendlimit.Config{Unit: unit})
		_, err := other.Reserve(e.Context(), ask("k", 1, "a"))
		e.is(err, spendlimit.ErrUnit)
		_, err = other.Settle(e.Context(), "root", spendlimit.Total(1))
		e.is(err, spendlimit.ErrUnit)
		_, err = collect(other.Balances(e.Context(), "a", time.Time{}))
		e.is(err, spendlimit.ErrUnit)
	}
	equal(e, "rows", e.dump(), want)
	e.counts(led, "a", 0, 50)
}
