package spendlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// current returns the fingerprint in force.
func (f *fixture) current(account, limit string) string {
	f.Helper()
	return f.balance(account, limit).Fingerprint
}

// wantStale wants a *StaleError that tells the fingerprint in force.
func (f *fixture) wantStale(err error, current string) {
	f.Helper()
	var stale *spendlimit.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, spendlimit.ErrStale) || stale.Current != current {
		f.Errorf("got error %v, want stale, now %q", err, current)
	}
}

// crossed writes the thresholds of a receipt: "day 80".
func crossed(list []spendlimit.Crossing) string {
	var out []string
	for _, c := range list {
		out = append(out, fmt.Sprintf("%s %d", c.Limit, c.Threshold.Percent))
	}
	return strings.Join(out, ", ")
}

func TestT99_ACutPool(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.limit(forever("100"))
	f.mustCharge("c", "25")
	f.mustReserve(req("pool", "60"))
	f.change(forever("50"), l.Fingerprint)
	f.wantBalance("acme", "all", "S 25, H 60, A -35, cut 35")
	f.mustDeny(req("new", "1"))
	_, err := f.Shrink(f.ctx, spendlimit.Shrinkage{Hold: "pool", ID: "back", By: usd("40")})
	f.ok(err)
	b := f.balance("acme", "all")
	if b.Held != usd("20") || b.Available != usd("5") {
		t.Errorf("H %s, A %s; want 20, 5", dollars(b.Held), dollars(b.Available))
	}
	f.mustReserve(req("new", "5"))
}

func TestT100_TheSameLimitAThousandTimes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustCharge("c", "2")
	f.mustReserve(req("k", "3"))
	const want = "S 2, H 3, A 5"
	f.unchanged(func() {
		for range 500 { // the retry of the first call
			if s := f.change(daily("10"), ""); !s.Replayed {
				t.Fatal("not replayed")
			}
		}
	})
	f.wantBalance("acme", "day", want)
	for range 500 { // a change to what is in force
		f.change(daily("10"), f.current("acme", "day"))
	}
	f.wantBalance("acme", "day", want)
	f.mustDeny(req("l", "5.000000001"))
	f.mustReserve(req("l", "5"))
}

func TestT106_CompareAndSwap(t *testing.T) {
	t.Parallel()
	t.Run("two at once", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		l := f.limit(daily("10"))
		var stale, done atomic.Int32
		concurrently(2, func(i int) {
			_, err := f.SetLimit(f.ctx, daily([]string{"20", "30"}[i]), l.Fingerprint)
			switch {
			case err == nil:
				done.Add(1)
			case errors.Is(err, spendlimit.ErrStale):
				stale.Add(1)
			}
		})
		if done.Load() != 1 || stale.Load() != 1 {
			t.Errorf("%d done, %d stale; want one each", done.Load(), stale.Load())
		}
	})
	t.Run("A B A", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		a := f.limit(daily("10"))
		b := f.change(daily("20"), a.Fingerprint)
		again := f.change(daily("10"), b.Fingerprint)
		if a.Fingerprint == again.Fingerprint {
			t.Error("the fingerprint of A came back")
		}
		f.unchanged(func() {
			_, err := f.SetLimit(f.ctx, daily("30"), a.Fingerprint)
			f.wantStale(err, again.Fingerprint)
			_, err = f.SetLimit(f.ctx, daily("20"), a.Fingerprint) // the first change, said too late
			f.wantStale(err, again.Fingerprint)
			f.wantStale(f.RemoveLimit(f.ctx, "acme", "day", a.Fingerprint), again.Fingerprint)
		})
	})
}

func TestR55_Expectations(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, err := f.SetLimit(f.ctx, daily("10"), "never seen")
	f.wantStale(err, "")
	a := f.limit(daily("10"))
	f.unchanged(func() {
		_, err = f.SetLimit(f.ctx, daily("20"), "") // creates only
		f.wantStale(err, a.Fingerprint)
		if s := f.change(daily("10"), ""); !s.Replayed || s.Fingerprint != a.Fingerprint {
			t.Errorf("got %+v, want A, replayed", s)
		}
	})
	b := f.change(daily("20"), a.Fingerprint)
	f.unchanged(func() {
		if s := f.change(daily("20"), a.Fingerprint); !s.Replayed || s.Fingerprint != b.Fingerprint {
			t.Errorf("got %+v, want B, replayed", s)
		}
		for _, expect := range []string{"", "never seen"} {
			_, err = f.SetLimit(f.ctx, daily("10"), expect) // A is not in force any more
			f.wantStale(err, b.Fingerprint)
			_, err = f.SetLimit(f.ctx, daily("20"), expect) // B is, but it did not come from this one
			f.wantStale(err, b.Fingerprint)
		}
	})
	f.ok(f.RemoveLimit(f.ctx, "acme", "day", b.Fingerprint))
	f.unchanged(func() { f.ok(f.RemoveLimit(f.ctx, "acme", "day", b.Fingerprint)) })
	c := f.limit(daily("10"))
	if c.Fingerprint == a.Fingerprint || c.Fingerprint == b.Fingerprint {
		t.Error("a new generation has a fingerprint of the old one")
	}
	f.wantErr(f.RemoveLimit(f.ctx, "acme", "no such limit", b.Fingerprint), spendlimit.ErrNotFound)
}

func TestR55_TheFingerprintCoversEveryField(t *testing.T) {
	t.Parallel()
	base := spendlimit.Limit{Account: "acme", Name: "l", Kind: spendlimit.Month, Amount: usd("10")}
	seen := map[string]string{}
	for name, change := range map[string]func(l *spendlimit.Limit){
		"base":         func(*spendlimit.Limit) {},
		"account":      func(l *spendlimit.Limit) { l.Account = "other" },
		"name":         func(l *spendlimit.Limit) { l.Name = "m" },
		"kind":         func(l *spendlimit.Limit) { l.Kind = spendlimit.Day },
		"week start":   func(l *spendlimit.Limit) { l.WeekStart = spendlimit.Sunday },
		"anchor":       func(l *spendlimit.Limit) { l.Anchor = 15 },
		"zone":         func(l *spendlimit.Limit) { l.Zone = "Europe/Berlin" },
		"amount":       func(l *spendlimit.Limit) { l.Amount = usd("11") },
		"mode":         func(l *spendlimit.Limit) { l.Mode = spendlimit.Soft },
		"unpriced":     func(l *spendlimit.Limit) { l.OnUnpriced = spendlimit.Allow },
		"carry holds":  func(l *spendlimit.Limit) { l.CarryHolds = true },
		"carry unused": func(l *spendlimit.Limit) { l.CarryUnused = usd("1") },
		"thresholds":   func(l *spendlimit.Limit) { l.Thresholds = []spendlimit.Threshold{{Percent: 80}} },
		"percent":      func(l *spendlimit.Limit) { l.Thresholds = []spendlimit.Threshold{{Percent: 90}} },
		"of":           func(l *spendlimit.Limit) { l.Thresholds = []spendlimit.Threshold{{Percent: 80, Of: spendlimit.Spent}} },
		"raise":        func(l *spendlimit.Limit) { l.Raise = spendlimit.Raise{By: 1, Until: d2} },
		"raise until":  func(l *spendlimit.Limit) { l.Raise = spendlimit.Raise{By: 1, Until: d2.Add(time.Microsecond)} },
	} {
		l := base
		change(&l)
		f := newFixture(t)
		print := f.limit(l).Fingerprint
		if other, twice := seen[print]; twice {
			t.Errorf("%s and %s have the same fingerprint", name, other)
		}
		seen[print] = name
		f.unchanged(func() {
			if s := f.change(l, ""); !s.Replayed { // the same content, whatever the field
				t.Errorf("%s: not recognised", name)
			}
			if name != "base" && name != "account" && name != "name" {
				_, err := f.SetLimit(f.ctx, base, "") // other content, whatever the field
				f.wantStale(err, print)
			}
		})
	}
}

func TestR56_RaiseAndCut(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.limit(daily("10"))
	f.mustCharge("c", "6")
	f.clock.Set(d2.Add(time.Hour))
	f.mustCharge("d", "2")
	f.mustReserve(req("k", "6"))
	l = f.change(daily("5"), l.Fingerprint)
	f.wantBalance("acme", "day", "S 2, H 6, A -3, cut 3")
	f.wantBalanceAt("acme", "day", noon, "S 6, H 0, A 4") // a stored period never moves
	if d := f.mustDeny(req("new", "1")); !d.WaitHolds || d.Reason != spendlimit.ReasonHeld {
		t.Errorf("got %+v, want held", d)
	}
	l = f.change(daily("6"), l.Fingerprint)
	f.wantBalance("acme", "day", "S 2, H 6, A -2, cut 2")
	f.wantReceipt(f.mustSettle("k", total("6")), "cost 6")
	f.wantBalance("acme", "day", "S 8, H 0, A -2, cut 2")
	f.change(daily("20"), l.Fingerprint)
	f.wantBalance("acme", "day", "S 8, H 0, A 12")
	f.clock.Advance(24 * time.Hour)
	f.wantBalance("acme", "day", "S 0, H 0, A 20")
}

func TestR57_EndOfARaise(t *testing.T) {
	t.Parallel()
	raised := func(until time.Time) spendlimit.Limit {
		l := daily("10")
		l.Raise = spendlimit.Raise{By: usd("5"), Until: until}
		return l
	}
	t.Run("within the period it is a cut", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		end := noon.Add(time.Hour)
		f.limit(raised(end))
		f.mustCharge("c", "3")
		r := req("k", "10")
		r.TTL = 3 * time.Hour
		f.mustReserve(r)
		f.wantBalance("acme", "day", "S 3, H 10, A 2")
		f.clock.Set(end.Add(-time.Microsecond))
		f.mustReserve(req("last", "1"))
		f.clock.Set(end)
		f.wantBalance("acme", "day", "S 3, H 11, A -4, cut 4")
		f.mustDeny(req("too late", "1"))
		f.wantReceipt(f.mustSettle("k", total("10")), "cost 10") // no overrun: there was room when it was granted
		f.wantBalance("acme", "day", "S 13, H 1, A -4, cut 4")
		f.mustRelease("last")
		f.clock.Set(d2)
		f.wantBalance("acme", "day", "S 0, H 0, A 10")
	})
	t.Run("in the middle of the next period", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(raised(d2.Add(time.Hour)))
		f.mustCharge("c", "1")
		f.clock.Set(d2)
		f.wantBalanceAt("acme", "day", noon, "S 1, H 0, A 14") // the whole of D1 was raised
		f.wantBalance("acme", "day", "S 0, H 0, A 15")
		f.mustReserve(spendlimit.Request{Key: "k", Accounts: names("acme"), Amount: usd("12"), TTL: 2 * time.Hour})
		f.clock.Set(d2.Add(time.Hour))
		f.wantBalance("acme", "day", "S 0, H 12, A -2, cut 2")
		f.wantBalanceAt("acme", "day", noon, "S 1, H 0, A 14")
	})
	t.Run("over before it is used", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(raised(noon))
		f.wantBalance("acme", "day", "S 0, H 0, A 10")
	})
	t.Run("a period to come", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(raised(d2.Add(time.Hour)))
		f.wantBalanceAt("acme", "day", d2, "S 0, H 0, A 15") // begins raised
		f.wantBalanceAt("acme", "day", d2.AddDate(0, 0, 1), "S 0, H 0, A 10")
	})
	t.Run("a lapse before its end is judged before it", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(raised(noon.Add(time.Hour)))
		f.mustReserve(req("k", "15"))
		f.clock.Set(noon.Add(2 * time.Hour)) // k lapsed after 10 minutes
		f.wantBalance("acme", "day", "S 0, H 0, A 10")
	})
}

func TestR58_CountsFromNow(t *testing.T) {
	t.Parallel()
	f := newFixture(t, spendlimit.Config{NoLimit: spendlimit.Allow})
	f.mustCharge("c", "3")
	f.mustReserve(req("k", "5"))
	f.limit(daily("10"))
	f.wantBalance("acme", "day", "S 0, H 0, A 10")
	f.mustSettle("k", total("4")) // it has no line here
	f.wantBalance("acme", "day", "S 0, H 0, A 10")
}

func TestR58_BackfillCountsLiveHolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, spendlimit.Config{NoLimit: spendlimit.Allow})
	f.mustCharge("yesterday", "50")
	f.mustReserve(spendlimit.Request{Key: "old", Accounts: names("acme"), Amount: usd("7"), TTL: 24 * time.Hour})
	f.clock.Set(d2.Add(time.Hour))
	f.mustCharge("today", "3")
	_, err := f.Charge(f.ctx, spendlimit.Expense{ID: "late bill", Accounts: names("acme"), Cost: total("9"), At: noon})
	f.ok(err)
	f.mustReserve(req("root", "10"))
	f.mustRecord("root", "u", "2")
	f.mustReserve(child("kid", "root", "4"))
	f.mustReserve(req("gone", "5"))
	f.mustSettle("gone", total("1"))
	f.mustReserve(req("unpriced", "1"))
	_, err = f.Record(f.ctx, spendlimit.Usage{Hold: "unpriced", ID: "u", Cost: spendlimit.Unknown("no price")})
	f.ok(err)
	f.mustReserve(spendlimit.Request{Key: "elsewhere", Accounts: names("other"), Amount: usd("8")})

	f.limit(daily("20"), spendlimit.Backfill)
	f.wantBalance("acme", "day", "S 6, H 9, A 5, unpriced 1")
	f.wantBalanceAt("acme", "day", noon, "S 0, H 0, A 20")
	f.unchanged(func() {
		if s := f.change(daily("20"), "", spendlimit.Backfill); !s.Replayed {
			t.Error("a retry counted again")
		}
	})

	f.mustRecord("unpriced", "u", "1")
	f.wantReceipt(f.mustSettle("kid", total("1")), "cost 1, returned 3")
	f.wantBalance("acme", "day", "S 8, H 7, A 5")
	_, err = f.Grow(f.ctx, spendlimit.Growth{Hold: "root", ID: "g", By: usd("1")})
	f.ok(err)
	f.wantReceipt(f.mustSettle("root", total("5")), "cost 5, returned 5")
	f.wantBalance("acme", "day", "S 11, H 0, A 9")
	f.mustSettle("old", total("7")) // yesterday's
	f.wantBalance("acme", "day", "S 11, H 0, A 9")
	f.mustDeny(req("new", "9.000000001"))
}

func TestR58_BackfillBeyondTheLimitIsACut(t *testing.T) {
	t.Parallel()
	f := newFixture(t, spendlimit.Config{NoLimit: spendlimit.Allow})
	f.mustCharge("c", "8")
	f.mustReserve(req("k", "7"))
	f.limit(daily("10"), spendlimit.Backfill)
	f.wantBalance("acme", "day", "S 8, H 7, A -5, cut 5")
	f.mustDeny(req("new", "0.000000001"))
	f.mustRelease("k")
	f.mustReserve(req("new", "2"))
}

// What a deleted journal said can't be counted: a limit over all time that says it counts all would let too much through.
func TestR58_BackfillNeedsTheJournal(t *testing.T) {
	t.Parallel()
	f := newFixture(t, spendlimit.Config{NoLimit: spendlimit.Allow})
	f.mustCharge("c", "8")
	f.clock.Advance(100 * 24 * time.Hour)
	f.mustCharge("d", "1")
	f.ok(f.Prune(f.ctx, "acme", f.clock.Now().AddDate(0, 0, -35)))
	f.unchanged(func() {
		_, err := f.SetLimit(f.ctx, forever("10"), "", spendlimit.Backfill)
		f.wantInvalid(err, "Backfill")
	})
	month := spendlimit.Limit{Account: "acme", Name: "month", Kind: spendlimit.Month, Amount: usd("10")}
	f.limit(month, spendlimit.Backfill) // this month's entries are all there
	f.wantBalance("acme", "month", "S 1, H 0, A 9")
}

func TestR59_RemoveLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.limit(daily("10"))
	f.limit(weekly("50"))
	f.mustReserve(req("k", "10"))
	f.mustDeny(req("new", "1"))
	f.ok(f.RemoveLimit(f.ctx, "acme", "day", l.Fingerprint))
	f.mustReserve(req("new", "1")) // the day is not seen any more
	f.wantBalance("acme", "week", "S 0, H 11, A 39")
	f.wantReceipt(f.mustSettle("k", total("12")), "cost 12, excess 2, overrun 2") // its line ends on its row
	var day spendlimit.LimitPosting
	for e, err := range f.Entries(f.ctx, "acme", 0) {
		f.ok(err)
		for _, p := range e.Postings {
			if p.Limit == "day" {
				day = p
			}
		}
	}
	if day.Spent != usd("12") || day.Held != usd("-10") || day.Overrun != usd("2") {
		t.Errorf("the removed limit's last posting is %+v", day)
	}
	for b, err := range f.Balances(f.ctx, "acme", time.Time{}) {
		f.ok(err)
		if b.Limit == "day" {
			t.Error("a removed limit is listed")
		}
	}

	f.limit(daily("10")) // a new generation counts from now
	f.wantBalance("acme", "day", "S 0, H 0, A 10")
}

func TestR59_TheLastLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	soft := daily("10")
	soft.Mode = spendlimit.Soft
	s := f.limit(soft)
	l := f.limit(weekly("50"))
	f.ok(f.RemoveLimit(f.ctx, "acme", "week", l.Fingerprint))
	f.mustReserve(req("k", "100")) // a soft limit is a limit, and refuses nothing
	f.ok(f.RemoveLimit(f.ctx, "acme", "day", s.Fingerprint))
	if d := f.mustDeny(req("l", "1")); d.Reason != spendlimit.ReasonNoLimit {
		t.Errorf("got %+v, want no limit", d)
	}
}

func TestR60_CarryUnused(t *testing.T) {
	t.Parallel()
	carrying := func(amount, most string) spendlimit.Limit {
		l := daily(amount)
		l.CarryUnused = usd(most)
		return l
	}
	for name, tc := range map[string]struct {
		use      func(f *fixture)
		old, new string
	}{
		"little left":  {func(f *fixture) { f.mustCharge("c", "90") }, "S 90, H 0, A 0", "S 0, H 0, A 110"},
		"much left":    {func(f *fixture) { f.mustCharge("c", "10") }, "S 10, H 0, A 50", "S 0, H 0, A 140"},
		"nothing left": {func(f *fixture) { f.mustCharge("c", "100") }, "S 100, H 0, A 0", "S 0, H 0, A 100"},
		"overrun":      {func(f *fixture) { f.mustCharge("c", "120") }, "S 120, H 0, A -20, overrun 20", "S 0, H 0, A 100"},
		"held": {func(f *fixture) {
			f.mustReserve(spendlimit.Request{Key: "k", Accounts: names("acme"), Amount: usd("70"), TTL: 24 * time.Hour})
		}, "S 0, H 70, A 0", "S 0, H 0, A 130"},
		"unused": {func(*fixture) {}, "S 0, H 0, A 60", "S 0, H 0, A 140"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(carrying("100", "40"))
			tc.use(f)
			f.clock.Set(d2)
			f.wantBalance("acme", "day", tc.new) // not written yet
			f.mustReserve(spendlimit.Request{Key: "first today", Accounts: names("acme"), Free: true})
			f.wantBalance("acme", "day", tc.new)
			f.wantBalanceAt("acme", "day", noon, tc.old)
			if got := f.kinds("acme"); strings.Contains(got, "carry") == (name == "nothing left" || name == "overrun") {
				t.Errorf("entries %s", got)
			}
			f.mustReserve(spendlimit.Request{Key: "second today", Accounts: names("acme"), Free: true})
			f.wantBalance("acme", "day", tc.new) // moved once
		})
	}
	t.Run("room given back later stays in the old period", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(carrying("100", "40"))
		f.mustReserve(spendlimit.Request{Key: "k", Accounts: names("acme"), Amount: usd("70"), TTL: 24 * time.Hour})
		f.clock.Set(d2)
		f.mustCharge("c", "1")
		f.mustSettle("k", total("50"))
		f.wantBalanceAt("acme", "day", noon, "S 50, H 0, A 20")
		f.wantBalance("acme", "day", "S 1, H 0, A 129")
	})
	t.Run("only from the period directly before", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(carrying("100", "40"))
		f.mustCharge("c", "100")
		f.clock.Set(d2.AddDate(0, 0, 3))
		f.wantBalance("acme", "day", "S 0, H 0, A 140") // nobody used the day before
	})
	t.Run("what was carried in is carried on", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(carrying("100", "40"))
		f.mustCharge("c", "60")
		f.clock.Set(d2)
		f.mustCharge("d", "110") // of 140
		f.clock.Set(d2.AddDate(0, 0, 1))
		f.wantBalance("acme", "day", "S 0, H 0, A 130")
	})
	t.Run("a new limit has no period before", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(carrying("100", "40"))
		f.wantBalance("acme", "day", "S 0, H 0, A 100")
	})
}

func TestR61_Thresholds(t *testing.T) {
	t.Parallel()
	watched := func(mode spendlimit.Mode, list ...spendlimit.Threshold) spendlimit.Limit {
		l := daily("10")
		l.Mode, l.Thresholds = mode, list
		return l
	}
	for _, mode := range []spendlimit.Mode{spendlimit.Hard, spendlimit.Soft} {
		t.Run(fmt.Sprint("mode ", mode), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(watched(mode, spendlimit.Threshold{Percent: 50}, spendlimit.Threshold{Percent: 80}, spendlimit.Threshold{Percent: 60, Of: spendlimit.Spent}))
			for _, step := range []struct {
				do   func() []spendlimit.Crossing
				want string
			}{
				{func() []spendlimit.Crossing { return f.mustReserve(req("k", "4.999999999")).Crossed }, ""},
				{func() []spendlimit.Crossing { return f.mustReserve(req("l", "0.000000001")).Crossed }, "day 50"},
				{func() []spendlimit.Crossing { return f.mustReserve(req("m", "2")).Crossed }, ""}, // nothing is spent
				{func() []spendlimit.Crossing { return f.mustRelease("m").Crossed }, ""},
				{func() []spendlimit.Crossing { return f.mustSettle("k", total("4.999999999")).Crossed }, ""},
				{func() []spendlimit.Crossing { return f.mustCharge("c", "4").Crossed }, "day 80, day 60"},
				{func() []spendlimit.Crossing { return f.mustCharge("d", "1").Crossed }, ""},
			} {
				if got := crossed(step.do()); got != step.want {
					t.Errorf("crossed %q, want %q", got, step.want)
				}
			}
			if n := f.heard(spendlimit.EventCrossed); n != 3 {
				t.Errorf("%d heard, want 3", n)
			}
			if fired := f.balance("acme", "day").Fired; len(fired) != 3 {
				t.Errorf("fired %v", fired)
			}
			f.clock.Set(d2)
			if got := crossed(f.mustCharge("e", "9").Crossed); got != "day 50, day 80, day 60" {
				t.Errorf("on D2 crossed %q", got)
			}
		})
	}
	t.Run("going down and up again", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(watched(spendlimit.Hard, spendlimit.Threshold{Percent: 80}))
		for i := range 5 {
			f.mustReserve(req(keyN("k", i), "9"))
			f.mustRelease(keyN("k", i))
		}
		if n := f.heard(spendlimit.EventCrossed); n != 1 {
			t.Errorf("%d heard, want 1", n)
		}
	})
	t.Run("on any process", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(watched(spendlimit.Soft, spendlimit.Threshold{Percent: 80}))
		ledgers := []*spendlimit.Ledger{f.Ledger, f.restart(), f.restart(), f.restart()}
		concurrently(4, func(i int) {
			_, err := ledgers[i].Charge(f.ctx, spendlimit.Expense{ID: keyN("c", i), Accounts: names("acme"), Cost: total("9")})
			f.ok(err)
		})
		if n := f.heard(spendlimit.EventCrossed); n != 1 {
			t.Errorf("%d heard, want 1", n)
		}
	})
	t.Run("a cut can cross", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		l := watched(spendlimit.Hard, spendlimit.Threshold{Percent: 80})
		s := f.limit(l)
		f.mustCharge("c", "4")
		l.Amount = usd("5")
		f.change(l, s.Fingerprint)
		if n := f.heard(spendlimit.EventCrossed); n != 1 {
			t.Errorf("%d heard, want 1", n)
		}
	})
	t.Run("of a raised limit", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		l := watched(spendlimit.Hard, spendlimit.Threshold{Percent: 80})
		l.Raise = spendlimit.Raise{By: usd("10"), Until: noon.Add(time.Hour)}
		f.limit(l)
		if got := crossed(f.mustCharge("c", "8").Crossed); got != "" {
			t.Errorf("crossed %q of a limit of 20", got)
		}
		f.clock.Advance(2 * time.Hour)
		if got := crossed(f.mustCharge("d", "0.1").Crossed); got != "day 80" {
			t.Errorf("crossed %q of a limit of 10", got)
		}
	})
	t.Run("amounts beyond 64 bits when multiplied", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		l := watched(spendlimit.Soft, spendlimit.Threshold{Percent: 99}, spendlimit.Threshold{Percent: 1000})
		l.Amount = math.MaxInt64
		f.limit(l)
		const percent99 = math.MaxInt64/100*99 + 7 // ⌈0.99 × (2⁶³ − 1)⌉
		r, err := f.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: spendlimit.Total(percent99 - 1)})
		f.ok(err)
		if got := crossed(r.Crossed); got != "" {
			t.Errorf("one step below crossed %q", got)
		}
		if got := crossed(f.mustCharge("d", "0.000000001").Crossed); got != "day 99" {
			t.Errorf("crossed %q", got)
		}
		l = on("B", watched(spendlimit.Soft, spendlimit.Threshold{Percent: 300}))
		l.Amount = 1 << 62 // × 300 is 0 in 64 bits
		f.limit(l)
		if got := crossed(f.mustCharge("e", "1", "B").Crossed); got != "" {
			t.Errorf("crossed %q", got)
		}
	})
}

// An observer hears only of what was committed, and of each event once.
func TestR61_EventsAfterTheCommit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := daily("10")
	l.Thresholds = []spendlimit.Threshold{{Percent: 50}}
	f.limit(l)
	big := spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: total("12")}
	for _, fault := range []fault{faultBefore, faultInside} {
		f.store.fail(fault)
		_, err := f.Charge(f.ctx, big)
		f.wantErr(err, spendlimit.ErrUnavailable)
	}
	if len(f.events) != 0 {
		t.Errorf("heard %+v of steps that failed", f.events)
	}
	for range 2 {
		_, err := f.Charge(f.ctx, big)
		f.ok(err)
	}
	f.mustDeny(req("k", "1"))
	if x, o := f.heard(spendlimit.EventCrossed), f.heard(spendlimit.EventOverrun); x != 1 || o != 1 {
		t.Errorf("%d crossings and %d overruns, want 1 each", x, o)
	}
}

// An observer may call the ledger, whoever it is that tells it.
func TestR61_ObserversMayCall(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		on  spendlimit.EventKind
		run func(f *fixture)
	}{
		"of a caller who has left": {spendlimit.EventCrossed, func(f *fixture) {
			g := newGate(f)
			f.background(f.Reserve, req("first", "1"))
			leads := f.background(f.Reserve, req("leads", "1"))
			left := f.background(f.Reserve, req("left", "5"))
			g.open <- struct{}{}
			synctest.Wait()
			left.cancel()
			f.wantFailed(left, spendlimit.ErrUncertain)
			close(g.open)
			f.wantServed(leads, 0)
		}},
		"of more lapses than one step takes": {spendlimit.EventLapsed, func(f *fixture) {
			for i := range spendlimit.MaxDue + 1 {
				f.mustReserve(spendlimit.Request{Key: keyN("k", i), Accounts: names("acme"), Amount: 1, TTL: time.Minute})
			}
			time.Sleep(2 * time.Minute)
			f.mustReserve(req("after", "1"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f *fixture
			calls := 0
			observe := func(e spendlimit.Event) {
				if e.Kind != test.on || calls > 0 {
					return
				}
				calls++
				ctx, cancel := context.WithTimeout(f.ctx, time.Second)
				defer cancel()
				if _, err := f.Charge(ctx, spendlimit.Expense{ID: "c", Accounts: names("other"), Cost: total("1")}); err != nil {
					t.Errorf("charge: %v", err)
				}
			}
			bubble(t, spendlimit.Config{Observer: observe}, func(t *testing.T, inside *fixture) {
				f = inside
				l := daily("10")
				l.Thresholds = []spendlimit.Threshold{{Percent: 50}}
				f.limit(l)
				test.run(f)
			})
			if calls != 1 {
				t.Errorf("%d calls, want 1", calls)
			}
		})
	}
}

func TestR61_WhatEventsSay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := daily("10")
	l.Thresholds = []spendlimit.Threshold{{Percent: 50}}
	f.limit(l)
	f.mustReserve(req("open", "1"))
	f.mustReserve(req("sent", "2"))
	f.mustDispatch("sent")
	f.clock.Advance(time.Hour)
	f.mustReserve(req("k", "1"))
	f.mustSettle("k", total("12"))
	day, now := "2026-05-01", f.clock.Now()
	want := []spendlimit.Event{
		{Kind: spendlimit.EventLapsed, At: now, Account: "acme", Hold: "open", Amount: usd("1")},
		{Kind: spendlimit.EventLapsed, At: now, Account: "acme", Hold: "sent", Amount: usd("2"), Assumed: usd("2")},
		{Kind: spendlimit.EventOverrun, At: now, Account: "acme", Limit: "day", Period: day, Hold: "k", Amount: usd("4")},
		{Kind: spendlimit.EventCrossed, At: now, Account: "acme", Limit: "day", Period: day, Crossing: spendlimit.Crossing{
			Account: "acme", Limit: "day", Period: day, Start: at("2026-05-01T00:00:00Z"), Threshold: spendlimit.Threshold{Percent: 50},
		}},
	}
	if !slices.Equal(f.events, want) {
		t.Errorf("heard\n%+v\nwant\n%+v", f.events, want)
	}
}
