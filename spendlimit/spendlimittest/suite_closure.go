package spendlimittest

import (
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// closureCases look at the rows that a step is handed (C1): with everything that they need, each row once, linked.
func closureCases() []testCase {
	return []testCase{
		{"C1_Missing", nothingStored},
		{"C1_Hold", holdBringsAncestors},
		{"C1_Periods", periodsAroundTimes},
		{"C1_Due", dueBringsItsAccounts},
		{"C1_DueInAChain", dueInAChain},
		{"C1_DueRaisesNow", dueRaisesNow},
		{"C1_DueAtMost1000", dueIsBounded},
		{"C1_Groups", groupsOwnAndInherited},
		{"C1_Trees", treesBringDescendants},
		{"C1_Full", fullListsHoldsAndPeriods},
		{"C1_AllPeriods", allPeriodsOfLimits},
		{"C1_Journal", journalReachesBack},
		{"C1_Expiring", expiringFirst},
		{"C1_Prune", prunePrefix},
	}
}

// family makes a tree, root on a with a child on b whose child is on c, beside a stranger on d. All live for an hour.
func (e *env) family() *spendlimit.Ledger {
	e.Helper()
	led := e.ledger()
	e.limits(led, day("a", 1000), day("b", 1000), day("c", 1000), day("d", 1000), day("e", 1000))
	e.reserve(led, ask("root", 50, "a"))
	e.reserve(led, child("kid", "root", 20, "b"))
	e.reserve(led, child("baby", "kid", 5, "c"))
	e.reserve(led, ask("stranger", 7, "d"))
	return led
}

// linked checks that a hold, its ancestors, their accounts and lines are the very rows of the work.
func (e *env) linked(w *spendlimit.Work, h *spendlimit.HoldRow) {
	e.Helper()
	for z := h; z != nil; z = z.Parent {
		if len(z.Accounts) == 0 && z.Parent == nil {
			e.Fatalf("root %s has no accounts", z.Key)
		}
		for _, a := range z.Accounts {
			if w.Account(a.Name) != a {
				e.Fatalf("hold %s: account %s is not the step's row", z.Key, a.Name)
			}
		}
		for _, p := range z.Parts() {
			for _, line := range p.Lines {
				e.line(w, z, line)
			}
		}
	}
}

func (e *env) line(w *spendlimit.Work, h *spendlimit.HoldRow, line *spendlimit.PeriodRow) {
	e.Helper()
	l := line.Limit
	if w.Account(l.Account.Name) != l.Account {
		e.Fatalf("hold %s: a line leads to another account than the step's", h.Key)
	}
	for _, have := range l.Account.Limits {
		if have.Limit.Name == l.Limit.Name && have.Gen == l.Gen && have != l {
			e.Fatalf("hold %s: limit %s is there twice", h.Key, l.Limit.Name)
		}
	}
	for _, have := range l.Periods {
		if have.Start == line.Start && have != line {
			e.Fatalf("hold %s: period %s is there twice", h.Key, line.Label)
		}
	}
	if !slices.IsSortedFunc(l.Periods, rowsByStart) {
		e.Fatalf("limit %s: periods out of order", l.Limit.Name)
	}
}

// locks checks which accounts a step has.
func (e *env) locks(w *spendlimit.Work, want ...string) {
	e.Helper()
	for _, name := range want {
		if a := w.Account(name); a == nil || a.Name != name {
			e.Fatalf("account %s is missing", name)
		}
	}
}

func nothingStored(e *env) {
	n := spendlimit.Need{
		Accounts: []string{"a"}, Holds: []string{"k"}, Usages: []spendlimit.UsageID{{ID: "u"}}, Groups: []string{"g"},
		Trees: []string{"k"}, All: []string{"a", "b"}, Expiring: []string{"a"},
		Journal: []spendlimit.JournalNeed{{Account: "a", Span: always}},
		Prune:   []spendlimit.PruneNeed{{Account: "a", Before: noon.UnixMicro(), Max: 1}},
	}
	e.look(n, func(now int64, w *spendlimit.Work) {
		equal(e, "now", now, noon.UnixMicro())
		if a := w.Account("a"); a != nil && (a.Seq != 0 || a.LastUS != 0 || len(a.Limits)+len(a.Due) > 0) {
			e.Errorf("account %+v, want none, or one that was made to lock it", a) // C3
		}
		if w.Ledger() != nil || w.Hold("k") != nil || w.Usage(spendlimit.UsageID{ID: "u"}) != nil {
			e.Error("a row that nobody wrote")
		}
	})
	equal(e, "rows after a step without changes", e.dump(), []string{""})
}

func holdBringsAncestors(e *env) {
	e.family()
	n := spendlimit.Need{Holds: []string{"baby", "root", "baby", "nobody"}}
	e.look(n, func(_ int64, w *spendlimit.Work) {
		if w.Ledger() == nil || w.Ledger().Unit != steps {
			e.Fatalf("ledger row %+v", w.Ledger())
		}
		e.locks(w, "a", "b", "c")
		baby := w.Hold("baby")
		if baby == nil || baby.Parent == nil || baby.Parent.Key != "kid" || baby.Parent.Parent != w.Hold("root") {
			e.Fatal("ancestors are not linked")
		}
		e.linked(w, baby)
		equal(e, "parts", len(baby.Parts()), 1)
		equal(e, "left of the root", baby.Parent.Parent.Part.Left, spendlimit.Amount(50))
		if w.Hold("nobody") != nil {
			e.Fatal("a hold that nobody made")
		}
	})
}

func periodsAroundTimes(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 100))
	for _, d := range []int{0, 1, 2, 5, 9} { // days with a period, from the first
		e.clock.set(noon.AddDate(0, 0, d))
		e.charge(led, numbered("u", d), 1, "a")
	}
	e.clock.set(noon.AddDate(0, 0, 7))
	at := func(d int) int64 { return noon.AddDate(0, 0, d).UnixMicro() }
	n := spendlimit.Need{Accounts: []string{"a"}, Times: []int64{at(1), at(4), at(-3)}}
	e.look(n, func(_ int64, w *spendlimit.Work) {
		a := w.Account("a")
		equal(e, "limits", len(a.Limits), 1)
		have := map[string]bool{}
		for _, p := range a.Limits[0].Periods {
			have[p.Label] = true
			if p.Limit != a.Limits[0] || a.Limits[0].Account != a {
				e.Fatal("a period leads to another limit")
			}
		}
		// Clamped to the last charge, now is day 9. The last period at or before day 4 is day 2, the next one day 5.
		for _, label := range []string{"2026-05-01", "2026-05-02", "2026-05-03", "2026-05-06", "2026-05-10"} {
			if !have[label] {
				e.Errorf("period %s is missing", label)
			}
		}
		if !slices.IsSortedFunc(a.Limits[0].Periods, rowsByStart) {
			e.Error("periods out of order")
		}
	})
}

func dueBringsItsAccounts(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 1000), day("b", 1000), day("c", 1000), day("d", 1000))
	e.reserve(led, ask("root", 50, "a"))
	short := func(r spendlimit.Request, ttl time.Duration) {
		r.TTL = ttl
		e.reserve(led, r)
	}
	short(child("kid", "root", 20, "b"), time.Minute)
	short(child("plain", "root", 1), 30*time.Second)
	short(ask("bridge", 5, "b", "c"), 2*time.Minute)
	short(ask("edge", 5, "c"), 10*time.Minute)
	short(ask("later", 5, "c"), 20*time.Minute)
	short(ask("seven", 1, "a"), 7*time.Minute)
	e.reserve(led, ask("far", 1, "d"))
	e.clock.advance(10 * time.Minute)
	e.charge(led, "u", 1, "d") // d has seen a later time than the clock shows from now on
	e.clock.advance(-5 * time.Minute)
	n := spendlimit.Need{Accounts: []string{"a"}, Holds: []string{"far"}}
	e.look(n, func(now int64, w *spendlimit.Work) {
		equal(e, "now", now, noon.Add(10*time.Minute).UnixMicro())
		e.locks(w, "a", "b", "c", "d")
		equal(e, "due on a", keys(w.Account("a").Due), []string{"plain", "kid", "seven"})
		equal(e, "due on b", keys(w.Account("b").Due), []string{"kid", "bridge"})
		equal(e, "due on c", keys(w.Account("c").Due), []string{"bridge"}) // edge lives at its very last instant
		equal(e, "due on d", keys(w.Account("d").Due), []string{})
		for _, name := range []string{"a", "b", "c", "d"} {
			equal(e, "more due on "+name, w.Account(name).More, false)
			for _, h := range w.Account(name).Due {
				e.linked(w, h)
			}
		}
	})
}

// dueInAChain: each due hold brings an account with the next one. That is no reason to begin a step again for each of them, for
// whoever gives up after a few times would never get further.
func dueInAChain(e *env) {
	led := e.ledger()
	const n = 12
	for i := range n + 1 {
		e.limits(led, day(numbered("a", i), 10))
	}
	for i := range n {
		e.reserve(led, ask(numbered("k", i), 1, numbered("a", i), numbered("a", i+1)))
	}
	e.clock.advance(2 * time.Hour)
	e.look(spendlimit.Need{Accounts: []string{numbered("a", 0)}}, func(_ int64, w *spendlimit.Work) {
		for i := range n + 1 {
			e.locks(w, numbered("a", i))
		}
	})
	e.reserve(led, ask("whole", 10, numbered("a", 0)))
	e.counts(led, numbered("a", 0), 0, 10)
	e.counts(led, numbered("a", n), 0, 0)
	e.clean(led)
}

// dueRaisesNow: an account that only a due hold brings may have seen a later time, at which more is due.
func dueRaisesNow(e *env) {
	led := e.family()
	for key, ttl := range map[string]time.Duration{"bridge": time.Minute, "seven": 7 * time.Minute, "eleven": 11 * time.Minute} {
		r := ask(key, 1, "e")
		if key == "bridge" {
			r.Accounts = append(r.Accounts, "b")
		}
		r.TTL = ttl
		e.reserve(led, r)
	}
	e.clock.advance(10 * time.Minute)
	_, err := led.Release(e.Context(), "root", spendlimit.Tree) // writes b, without a look at what is due there
	e.ok(err)
	e.clock.advance(-5 * time.Minute)
	e.look(spendlimit.Need{Accounts: []string{"e"}}, func(now int64, w *spendlimit.Work) {
		e.locks(w, "b", "e")
		equal(e, "now", now, noon.Add(10*time.Minute).UnixMicro())
		equal(e, "due on e", keys(w.Account("e").Due), []string{"bridge", "seven"})
	})
}

// many makes n holds of 1 on a, of which the later ones by key end first.
func (e *env) many(n int) {
	e.Helper()
	e.tally(e.gathered(n, func(led *spendlimit.Ledger, i int) error {
		r := ask(numbered("k", i), 1, "a")
		r.TTL = time.Minute - time.Duration(i/2)*time.Millisecond
		_, err := led.Reserve(e.Context(), r)
		return err
	}))
}

func dueIsBounded(e *env) {
	const n = spendlimit.MaxDue + 60
	led := e.ledger()
	e.limits(led, day("a", n))
	e.many(n)
	e.clock.advance(time.Hour)
	e.look(spendlimit.Need{Accounts: []string{"a"}}, func(_ int64, w *spendlimit.Work) {
		due := w.Account("a").Due
		equal(e, "due, more", fmt.Sprint(len(due), w.Account("a").More), fmt.Sprint(spendlimit.MaxDue, true))
		equal(e, "first due", keys(due[:4]), []string{numbered("k", n-2), numbered("k", n-1), numbered("k", n-4), numbered("k", n-3)})
	})
	// R33: a refusal would need all of them to have lapsed.
	e.reserve(led, ask("whole", n, "a"))
	e.counts(led, "a", 0, n)
	e.clean(led)
}

func groupsOwnAndInherited(e *env) {
	led := e.family()
	member := func(r spendlimit.Request) {
		r.Split, r.Amount = spendlimit.Split{Group: "g", Slots: 3}, 2
		e.reserve(led, r)
	}
	member(ask("m1", 0, "a", "b"))
	member(child("m2", "kid", 0))
	member(child("m3", "stranger", 0, "a"))
	member(ask("m4", 0, "a"))
	_, err := led.Release(e.Context(), "m4")
	e.ok(err)
	n := spendlimit.Need{Accounts: []string{"a"}, Holds: []string{"kid"}, Groups: []string{"g", "none"}}
	e.look(n, func(_ int64, w *spendlimit.Work) {
		for account, want := range map[string][]string{"a": {"m1", "m2", "m3"}, "b": {"m1", "m2"}} {
			members := w.Members(account, "g")
			got := keys(members)
			slices.Sort(got)
			equal(e, "members on "+account, got, want)
			for _, m := range members {
				if m.Key == "m2" && m.Parent != w.Hold("kid") {
					e.Error("m2 has another parent than the step")
				}
				if m.Key == "m1" && (m.Accounts[0] != w.Account("a") || m.Part.Lines[0].Limit != w.Account("a").Limits[0]) {
					e.Error("m1 is not linked")
				}
			}
		}
		equal(e, "members of no group", len(w.Members("a", "none")), 0)
	})
}

func treesBringDescendants(e *env) {
	led := e.family()
	e.reserve(led, child("gone", "kid", 1))
	e.reserve(led, child("twin", "kid", 1, "d"))
	_, err := led.Release(e.Context(), "gone")
	e.ok(err)
	e.clock.advance(time.Minute)
	e.charge(led, "u", 1, "c") // c has seen a later time
	e.clock.advance(-time.Minute)
	n := spendlimit.Need{Holds: []string{"root"}, Trees: []string{"root"}}
	e.look(n, func(now int64, w *spendlimit.Work) {
		equal(e, "now", now, noon.Add(time.Minute).UnixMicro())
		below := w.Tree("root")
		got := keys(below)
		slices.Sort(got)
		equal(e, "live descendants", got, []string{"baby", "kid", "twin"})
		e.locks(w, "a", "b", "c", "d")
		for _, h := range below {
			e.linked(w, h)
			if !h.Under(w.Hold("root")) {
				e.Errorf("%s is not below the root", h.Key)
			}
		}
	})
}

// old makes a limit anew, so that the family's holds on a count against its first generation.
func (e *env) old(led *spendlimit.Ledger) {
	e.Helper()
	e.ok(led.RemoveLimit(e.Context(), "a", "day", e.balance(led, "a", "day").Fingerprint))
	e.limits(led, day("a", 500))
	e.charge(led, "new", 3, "a")
}

// A limit that begins to carry holds must know what is held in all of its periods (R39).
func allPeriodsOfLimits(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 1000))
	for i := range 4 {
		e.reserve(led, spendlimit.Request{Key: fmt.Sprint("k", i), Accounts: []string{"a"}, Amount: 5, TTL: 24 * time.Hour})
		e.clock.advance(23 * time.Hour)
	}
	e.look(spendlimit.Need{Accounts: []string{"a"}, Periods: []string{"a"}}, func(_ int64, w *spendlimit.Work) {
		got := []string{}
		for _, p := range w.Account("a").Limits[0].Periods {
			got = append(got, fmt.Sprintf("%s %d", p.Label, p.Held))
		}
		equal(e, "periods of the limit", got, []string{"2026-05-01 0", "2026-05-02 0", "2026-05-03 5", "2026-05-04 5"})
	})
}

func fullListsHoldsAndPeriods(e *env) {
	led := e.family()
	e.reserve(led, ask("gone", 1, "a"))
	_, err := led.Release(e.Context(), "gone")
	e.ok(err)
	e.old(led)
	e.look(spendlimit.Need{Accounts: []string{"a"}, All: []string{"a"}}, func(_ int64, w *spendlimit.Work) {
		all, periods := w.Full("a")
		names := keys(all)
		slices.Sort(names)
		equal(e, "holds on a", names, []string{"baby", "gone", "kid", "root"})
		e.locks(w, "a", "b", "c") // a backfill changes the live ones
		got := []string{}
		for _, p := range periods {
			got = append(got, fmt.Sprintf("%d %s %d %d", p.Limit.Gen, p.Label, p.Spent, p.Held))
		}
		slices.Sort(got)
		equal(e, "periods of a", got, []string{"1 2026-05-01 0 50", "2 2026-05-01 3 0"})
		equal(e, "newest generation", w.Account("a").Limits[0].Gen, int64(2))
		for _, h := range all {
			e.linked(w, h)
			if h.Key == "root" && !slices.Contains(periods, h.Part.Lines[0]) {
				e.Error("the root's line is not among the periods")
			}
		}
	})
}

func journalReachesBack(e *env) {
	led := e.ledger()
	e.limits(led, day("a", 100))
	for i := range 5 {
		e.charge(led, numbered("u", i), 1, "a")
		e.clock.advance(time.Hour)
	}
	e.clock.advance(-time.Hour)
	refs := func(entries []*spendlimit.EntryRow) (out []string) {
		for _, x := range entries {
			out = append(out, x.Ref)
		}
		return out
	}
	span := func(d time.Duration) spendlimit.Need {
		return spendlimit.Need{Accounts: []string{"a"}, Journal: []spendlimit.JournalNeed{{Account: "a", Span: d.Microseconds()}}}
	}
	e.look(span(2*time.Hour), func(_ int64, w *spendlimit.Work) {
		entries := w.Journal("a")
		equal(e, "entries", refs(entries), []string{"u0002", "u0003", "u0004"})
		for _, x := range entries {
			if x.Account != w.Account("a") {
				e.Error("an entry leads to another account")
			}
		}
	})
	e.look(span(2*time.Hour-time.Microsecond), func(_ int64, w *spendlimit.Work) {
		equal(e, "entries", refs(w.Journal("a")), []string{"u0003", "u0004"})
	})
	both := span(time.Hour)
	both.Journal = append([]spendlimit.JournalNeed{{Account: "a", Span: always}}, both.Journal...)
	e.look(both, func(_ int64, w *spendlimit.Work) {
		equal(e, "entries", refs(w.Journal("a")), []string{"day", "u0000", "u0001", "u0002", "u0003", "u0004"})
	})
}

func expiringFirst(e *env) {
	const n = spendlimit.MaxExpiring + 5
	led := e.ledger()
	e.limits(led, day("a", n), day("b", n))
	e.many(n)
	r := ask("first", 1, "b")
	r.TTL = time.Second
	e.reserve(led, r)
	e.look(spendlimit.Need{Accounts: []string{"a"}, Expiring: []string{"a"}}, func(_ int64, w *spendlimit.Work) {
		got := w.Expiring("a")
		equal(e, "expiring", len(got), spendlimit.MaxExpiring)
		equal(e, "the first", keys(got[:2]), []string{numbered("k", n-1), numbered("k", n-3)})
		if got[0].Part.Lines[0].Limit.Account != w.Account("a") {
			e.Error("a hold is not linked")
		}
	})
}

func prunePrefix(e *env) {
	led := e.family()
	end := func(key string) {
		_, err := led.Settle(e.Context(), key, spendlimit.Total(1))
		e.ok(err)
		e.clock.advance(time.Minute)
	}
	end("baby") // +0
	end("root") // +1, with its child alive
	end("kid")  // +2
	e.charge(led, "u", 1, "a")
	prune := func(at time.Duration, limit int) spendlimit.Need {
		p := spendlimit.PruneNeed{Account: "a", Before: noon.Add(at).UnixMicro(), Max: limit}
		return spendlimit.Need{Accounts: []string{"a"}, Prune: []spendlimit.PruneNeed{p}}
	}
	check := func(n spendlimit.Need, entries int, holds ...string) {
		e.Helper()
		e.look(n, func(_ int64, w *spendlimit.Work) {
			gotEntries, gotHolds := w.Pruning("a")
			equal(e, "entries to prune", len(gotEntries), entries)
			equal(e, "holds to prune", keys(gotHolds), append([]string{}, holds...))
			for i, x := range gotEntries {
				equal(e, "seq", x.Seq, int64(i+1))
				for _, g := range x.Postings {
					if g.Period != nil && g.Period.Limit != w.Account("a").Limits[0] {
						e.Error("a posting is not linked")
					}
				}
			}
		})
	}
	check(prune(0, 100), 0)
	check(prune(time.Microsecond, 100), 5, "baby") // limit, root, kid, baby, baby's end
	check(prune(time.Minute, 100), 5, "baby")
	check(prune(time.Minute, 3), 3, "baby")
	check(prune(2*time.Minute, 100), 6, "baby") // the root's row is needed as long as its child's is there
	check(prune(3*time.Minute, 100), 7, "baby")
}
