package spendlimittest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// stepCases check what a store promises about a step and a page (C2 to C7).
func stepCases() []testCase {
	return []testCase{
		{"C3_OneIDTwoAccounts", oneIDTwoAccounts},
		{"C4_ErrorWritesNothing", errorWritesNothing},
		{"C4_PanicWritesNothing", panicWritesNothing},
		{"C4_ReadOnlyWritesNothing", readOnlyWritesNothing},
		{"C5_NowAfterLocks", nowAfterLocks},
		{"C5_T34_ClockSteps", clockSteps},
		{"C6_ContextEndedBefore", contextEndedBefore},
		{"C6_ContextEndsInside", contextEndsInside},
		{"C6_T76_Closed", closedStore},
		{"C7_TwoLedgers", twoLedgers},
		{"C7_ComesBack", comesBack},
		{"C7_AroundZero", aroundZero},
		{"R72_PagesOfHolds", pagesOfHolds},
		{"R72_PagesOfEntries", pagesOfEntries},
		{"R74_PageOfDue", pageOfDue},
		{"I11_Tour", tourAsStrict},
		{"I11_RandomScripts", scriptsAsStrict},
	}
}

// oneIDTwoAccounts: steps on different accounts share no lock, but hold keys and usage ids belong to the whole ledger.
func oneIDTwoAccounts(e *env) {
	const rounds = 10
	led := e.processes(2)
	e.limits(led[0], day("a", 1000), day("b", 1000))
	account := []string{"a", "b"}
	for i := range rounds {
		id := numbered("id", i)
		n := e.tally(together(2, func(i int) error {
			_, err := led[i].Reserve(e.Context(), ask(id, 1, account[i]))
			return err
		}), spendlimit.ErrKeyReused)
		equal(e, "reserves of one key that were granted", n[nil], 1)
		n = e.tally(together(2, func(i int) error {
			_, err := led[i].Charge(e.Context(), spendlimit.Expense{ID: id, Accounts: account[i : i+1], Cost: spendlimit.Total(1)})
			return err
		}), spendlimit.ErrKeyReused)
		equal(e, "charges of one id that were booked", n[nil], 1)
	}
	a, b := e.balance(led[0], "a", "day"), e.balance(led[0], "b", "day")
	equal(e, "held", a.Held+b.Held, rounds)
	equal(e, "spent", a.Spent+b.Spent, rounds)
	e.clean(led[0])
}

var errBoom = errors.New("boom")

// failFirst walks the tour. Each call that changes rows is made on a spoiled store first. It must fail and leave nothing
// behind: the call on the sound store is answered as the first one, and in the end the rows are as if nothing had been.
func (e *env) failFirst(step func(ctx context.Context, n spendlimit.Need, f stepFunc) error) {
	e.Helper()
	sc := tour()
	want, rows := e.reference(sc)
	good, err := newSession(e.store, sc.cfg, e.clock)
	e.ok(err)
	bad, err := newSession(&spy{e.store, step}, sc.cfg, e.clock)
	e.ok(err)
	for i, o := range sc.ops {
		if !o.quiet {
			if _, err := o.run(e.Context(), bad); err == nil {
				e.Fatalf("%s: no error", o.text)
			}
		}
		equal(e, "answer after a failure of "+o.text, good.do(e.Context(), o), want[i])
	}
	equal(e, "rows", e.dump(), rows)
}

// reference plays a script on the reference store, and returns its answers and its rows.
func (e *env) reference(sc *script) (answers, rows []string) {
	e.Helper()
	clock := newClock()
	s := NewStrict(clock.read)
	answers, err := sc.play(e.Context(), s, clock)
	e.ok(err)
	return answers, e.dumpOf(s, sc.cfg.Name)
}

func errorWritesNothing(e *env) {
	e.failFirst(func(ctx context.Context, n spendlimit.Need, f stepFunc) error {
		err := e.store.Step(ctx, n, func(now int64, w *spendlimit.Work) error {
			if err := f(now, w); err != nil || n.ReadOnly {
				return err
			}
			return errBoom
		})
		if !n.ReadOnly && err != errBoom { //nolint:errorlint // unchanged, not wrapped
			e.Errorf("the function's error came back as %v", err)
		}
		return err
	})
}

func panicWritesNothing(e *env) {
	e.failFirst(func(ctx context.Context, n spendlimit.Need, f stepFunc) (err error) {
		if n.ReadOnly {
			return e.store.Step(ctx, n, f)
		}
		defer func() {
			if r := recover(); r != errBoom {
				e.Errorf("the function's panic came out as %v", r)
			}
			err = errBoom
		}()
		return e.store.Step(ctx, n, func(now int64, w *spendlimit.Work) error {
			if err := f(now, w); err != nil {
				return err
			}
			panic(errBoom)
		})
	})
}

func readOnlyWritesNothing(e *env) {
	e.failFirst(func(ctx context.Context, n spendlimit.Need, f stepFunc) error {
		if n.ReadOnly {
			return e.store.Step(ctx, n, f)
		}
		n.ReadOnly = true
		e.ok(e.store.Step(ctx, n, f))
		return errBoom
	})
}

func contextEndedBefore(e *env) {
	e.failFirst(func(ctx context.Context, n spendlimit.Need, f stepFunc) error {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		err := e.store.Step(ctx, n, f)
		e.is(err, spendlimit.ErrUnavailable)
		if _, err := e.store.Read(ctx, spendlimit.Query{Ledger: n.Ledger, Kind: spendlimit.QueryHolds, Max: 1}); err == nil {
			e.Error("a page after the context's end")
		}
		return err
	})
}

// contextEndsInside: the outcome may be either, but it is said truly, and the same call again heals it.
func contextEndsInside(e *env) {
	sc := tour()
	good, err := newSession(e.store, sc.cfg, e.clock)
	e.ok(err)
	bad, err := newSession(&spy{e.store, func(ctx context.Context, n spendlimit.Need, f stepFunc) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return e.store.Step(ctx, n, func(now int64, w *spendlimit.Work) error {
			defer cancel()
			return f(now, w)
		})
	}}, sc.cfg, e.clock)
	e.ok(err)
	want, rows := e.reference(sc)
	for i, o := range sc.ops {
		if o.quiet {
			good.do(e.Context(), o)
			continue
		}
		_, err := o.run(e.Context(), bad)
		if err != nil && !errors.Is(err, spendlimit.ErrUncertain) && !errors.Is(err, spendlimit.ErrUnavailable) {
			e.Errorf("%s: %v", o.text, err)
		}
		good.prints = bad.prints // the retry expects what the first try expected
		got := good.do(e.Context(), o)
		if errors.Is(err, spendlimit.ErrUnavailable) {
			equal(e, "answer after "+o.text+" was not applied", got, want[i])
		}
	}
	equal(e, "rows", e.dump(), rows)
}

// nowAfterLocks: a step that has waited for its locks must not decide by the time before.
func nowAfterLocks(e *env) {
	e.limits(e.ledger(), day("a", 100))
	asked := make(chan struct{}, 1)
	e.clock.watch(func() {
		select {
		case asked <- struct{}{}:
		default:
		}
	})
	defer e.clock.watch(nil)
	n := spendlimit.Need{Ledger: ledgerName, Accounts: []string{"a"}}
	var second sync.WaitGroup
	var now int64
	var failed error
	first := true
	e.ok(e.store.Step(e.Context(), n, func(int64, *spendlimit.Work) error {
		if !first {
			return nil
		}
		first = false
		for len(asked) > 0 {
			<-asked
		}
		second.Go(func() {
			failed = e.store.Step(e.Context(), n, func(at int64, _ *spendlimit.Work) error {
				now = at
				return nil
			})
		})
		select {
		case <-asked: // it has looked at the clock, with the locks in the first one's hands
		case <-time.After(20 * time.Millisecond): // it waits
		}
		e.clock.advance(time.Hour)
		return nil
	}))
	second.Wait()
	e.ok(failed)
	equal(e, "now of the step that waited", now, noon.Add(time.Hour).UnixMicro())
}

// clockSteps: now never goes back behind what an account has seen, and nothing ends or opens again when the clock does.
func clockSteps(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 10), day("b", 10))
	e.reserve(led, ask("k1", 4, "a"))
	now := func(account string, want time.Time) {
		e.Helper()
		e.look(spendlimit.Need{Accounts: []string{account}}, func(now int64, _ *spendlimit.Work) {
			equal(e, "now on "+account, time.UnixMicro(now).UTC(), want)
		})
	}
	e.clock.advance(-time.Hour)
	now("a", noon)
	e.reserve(led, ask("k2", 1, "a")) // at noon, as far as this account goes
	e.clock.advance(time.Hour - 7*24*time.Hour)
	now("a", noon)
	h := e.reserve(led, ask("k3", 1, "a"))
	equal(e, "born", h.CreatedAt, noon)
	e.counts(led, "a", 0, 6)

	e.clock.set(noon.AddDate(0, 0, 7))
	e.counts(led, "a", 0, 0) // all three have lapsed, on their own day
	e.reserve(led, ask("k4", 10, "a"))
	e.clock.set(noon)
	now("a", noon.AddDate(0, 0, 7))
	now("b", noon)
	_, err := led.Reserve(e.Context(), ask("k5", 1, "a"))
	e.is(err, spendlimit.ErrDenied) // the first day does not open again
	h, err = led.Hold(e.Context(), "k1")
	e.ok(err)
	equal(e, "state", h.State, spendlimit.LapsedFree)
	last := time.Time{}
	for _, x := range e.entries(led, "a") {
		if x.At.Before(last) {
			e.Errorf("entry %d is dated before the one before it", x.Seq)
		}
		last = x.At
	}
	e.clean(led)
}

func closedStore(e *env) {
	if e.handle.Close == nil {
		e.Skip("the handle can't be closed")
	}
	led := e.family()
	for range 2 {
		e.ok(e.handle.Close())
		_, err := led.Reserve(e.Context(), ask("k", 1, "a"))
		e.is(err, spendlimit.ErrClosed)
		_, err = led.Check(e.Context(), ask("k", 1, "a"))
		e.is(err, spendlimit.ErrClosed)
		_, err = led.Settle(e.Context(), "root", spendlimit.Total(1))
		e.is(err, spendlimit.ErrClosed)
		_, err = collect(led.Holds(e.Context(), spendlimit.HoldFilter{}))
		e.is(err, spendlimit.ErrClosed)
		_, err = led.Sweep(e.Context(), 1)
		e.is(err, spendlimit.ErrClosed)
	}
}

// twoLedgers: everything may have the same name in another ledger.
func twoLedgers(e *env) {
	sc := tour()
	other := tour()
	other.cfg.Name = "other"
	_, err := sc.play(e.Context(), e.store, e.clock)
	e.ok(err)
	want := e.dump()
	clock := e.clock.read()
	e.clock.set(noon)
	_, err = other.play(e.Context(), e.store, e.clock)
	e.ok(err)
	equal(e, "rows of the first ledger", e.dump(), want)
	other.cfg.Name = ledgerName // the dump says the ledger's name once
	equal(e, "rows of the second ledger", renamed(e.dumpOf(e.store, "other")), want)

	// Lists and sweeps stay inside as well.
	led := e.on(e.store, spendlimit.Config{Name: "third"})
	list, err := collect(led.Holds(e.Context(), spendlimit.HoldFilter{}))
	e.ok(err)
	equal(e, "holds of a third ledger", len(list), 0)
	e.clock.set(clock.Add(24 * time.Hour))
	ended, err := led.Sweep(e.Context(), 100)
	e.ok(err)
	equal(e, "ended by a sweep of a third ledger", ended, 0)
}

func renamed(dump []string) []string {
	out := slices.Clone(dump)
	for i := range out {
		out[i] = strings.Replace(out[i], "ledger Name=other", "ledger Name="+ledgerName, 1)
	}
	return out
}

// comesBack: what was written is there for the next process, to the last column.
func comesBack(e *env) {
	if e.handle.Again == nil || e.handle.Close == nil {
		e.Skip("the data can't be opened again")
	}
	sc := tour()
	run, err := newSession(e.store, sc.cfg, e.clock)
	e.ok(err)
	for i, o := range sc.ops {
		if i%10 == 9 {
			before := e.dump()
			e.ok(e.handle.Close())
			e.handle = e.handle.Again(e)
			e.store = e.handle.Store
			equal(e, "rows after opening again", e.dump(), before)
			prints := run.prints
			run, err = newSession(e.store, sc.cfg, e.clock)
			e.ok(err)
			run.prints = prints
		}
		run.do(e.Context(), o)
	}
	_, rows := e.reference(sc)
	equal(e, "rows", e.dump(), rows)
	e.clean(run.led)
}

// aroundZero: no number is out of the question for an instant, least of all the one that a clock for tests may begin with.
func aroundZero(e *env) {
	led := e.ledger()
	for i, account := range []string{"a", "b"} {
		e.clock.set(time.UnixMicro(int64(i - 1))) // the last microsecond of a day, the first of the next
		e.limits(led, day(account, 10))
		e.reserve(led, ask("of "+account, 4, account))
		b := e.balance(led, account, "day")
		equal(e, "held", b.Held, 4)
		equal(e, "period", b.Period, []string{"1969-12-31", "1970-01-01"}[i])
	}
	e.clean(led)
}

func pagesOfHolds(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 1000), day("b", 1000))
	var want, live []string
	for i := range 20 {
		key := numbered("k", (i*7)%20)
		if i == 0 {
			e.reserve(led, ask(key, 50, "a"))
			continue
		}
		e.reserve(led, child(key, "k0000", 1, "b"))
	}
	for i := range 20 {
		key := numbered("k", i)
		want = append(want, key)
		if i%3 == 2 {
			_, err := led.Release(e.Context(), key)
			e.ok(err)
		} else {
			live = append(live, key)
		}
	}
	e.reserve(led, ask("z", 1, "b"))
	read := func(q spendlimit.Query) []string {
		e.Helper()
		q.Ledger, q.Kind = ledgerName, spendlimit.QueryHolds
		var out []string
		for {
			page, err := e.store.Read(e.Context(), q)
			e.ok(err)
			if len(page.Keys) > q.Max || page.More && len(page.Keys) != q.Max {
				e.Fatalf("a page of %d, at most %d, more %v", len(page.Keys), q.Max, page.More)
			}
			out = append(out, page.Keys...)
			if !page.More {
				return out
			}
			q.AfterKey = page.Keys[len(page.Keys)-1]
		}
	}
	for _, size := range []int{1, 4, 5, 20, 21, 100} {
		what := fmt.Sprint(" in pages of ", size)
		equal(e, "holds on a"+what, read(spendlimit.Query{Account: "a", Max: size}), want)
		equal(e, "live holds on a"+what, read(spendlimit.Query{Account: "a", Live: true, Max: size}), live)
		equal(e, "holds on b"+what, read(spendlimit.Query{Account: "b", Max: size}), append(want[1:20:20], "z"))
		equal(e, "all holds"+what, read(spendlimit.Query{Max: size}), append(want[:20:20], "z"))
		equal(e, "holds on nothing"+what, read(spendlimit.Query{Account: "c", Max: size}), nil)
	}
}

func pagesOfEntries(e *env) {
	const n = 300 // more than a ledger reads at once
	led := e.ledger()
	e.limits(led, day("a", 1000), day("b", 1000))
	e.tally(e.gathered(n, func(led *spendlimit.Ledger, i int) error {
		x := spendlimit.Expense{ID: numbered("u", i), Accounts: []string{"a"}, Cost: spendlimit.Total(1)}
		_, err := led.Charge(e.Context(), x)
		return err
	}))
	list := e.entries(led, "a")
	equal(e, "entries", len(list), n+1)
	for i, x := range list {
		equal(e, "seq", x.Seq, int64(i+1))
	}
	q := spendlimit.Query{Ledger: ledgerName, Kind: spendlimit.QueryEntries, Account: "a", AfterSeq: 7, Max: 2}
	page, err := e.store.Read(e.Context(), q)
	e.ok(err)
	equal(e, "page", []any{len(page.Entries), page.Entries[0].Seq, page.Entries[1].Seq, page.More}, []any{2, int64(8), int64(9), true})
	q.AfterSeq = n - 1
	page, err = e.store.Read(e.Context(), q)
	e.ok(err)
	equal(e, "last page", []any{len(page.Entries), page.More}, []any{2, false})
	equal(e, "account, limit", page.Entries[1].Account.Name+" "+page.Entries[1].Postings[1].Period.Limit.Limit.Name, "a day")
}

func pageOfDue(e *env) {
	led := e.family()
	for i, accounts := range [][]string{{"a", "b"}, {"b"}, {"c"}, {"c", "d"}} {
		r := ask(numbered("k", 9-i), 1, accounts...)
		r.TTL = time.Minute + time.Duration(i/2)*time.Second
		e.reserve(led, r)
	}
	_, err := led.Release(e.Context(), "k0007")
	e.ok(err)
	e.clock.advance(time.Minute + time.Second) // the last instant of the second two
	due := func(limit int) []string {
		e.Helper()
		page, err := e.store.Read(e.Context(), spendlimit.Query{Ledger: ledgerName, Kind: spendlimit.QueryDue, Max: limit})
		e.ok(err)
		return page.Keys
	}
	equal(e, "due", due(10), []string{"k0008", "k0009"})
	equal(e, "due, at most 1", due(1), []string{"k0008"})
	e.clock.advance(time.Microsecond)
	equal(e, "due", due(10), []string{"k0008", "k0009", "k0006"})
	ended, err := led.Sweep(e.Context(), 2)
	e.ok(err)
	equal(e, "ended", ended, 2)
	equal(e, "due after a sweep", due(10), []string{"k0006"})
}

// sameAsStrict plays a script on the store and on the reference store: equal answers, equal rows (I11).
func (e *env) sameAsStrict(sc *script) {
	e.Helper()
	want, rows := e.reference(sc)
	got, err := sc.play(e.Context(), e.store, e.clock)
	e.ok(err)
	equal(e, "answers", got, want)
	equal(e, "rows", e.dumpOf(e.store, sc.cfg.Name), rows)
	e.clean(e.on(e.store, sc.cfg))
}

func tourAsStrict(e *env) { e.sameAsStrict(tour()) }

// scriptsAsStrict keeps each script in a ledger of its own.
func scriptsAsStrict(e *env) {
	for seed := range uint64(5) {
		sc := randomScript(seed, 100)
		sc.cfg.Name = fmt.Sprint("random ", seed)
		e.clock.set(noon)
		e.sameAsStrict(sc)
	}
}
