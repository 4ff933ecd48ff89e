package spendlimit_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

func TestT80_TheTreeAndTheOthers(t *testing.T) {
	t.Parallel()
	t.Run("the tree spends its own room", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.mustReserve(req("root", "10"))
		f.mustReserve(child("c", "root", "5"))
		f.mustSettle("c", total("5"))
		f.mustDeny(req("other", "0.000000001"))
		f.mustGrant(spendlimit.Request{Key: "more", Parent: "root", Rest: true}, "5")
	})
	t.Run("others see what the root left", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.mustReserve(req("root", "3"))
		f.mustRecord("root", "u", "1")
		f.mustReserve(child("c", "root", "2"))
		f.wantBalance("acme", "day", "S 1, H 2, A 7")
		f.mustGrant(rest("other"), "7")
	})
}

func TestT81_ChildrenShareTheRoot(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("root", "4"))
	granted := make([]spendlimit.Amount, 2)
	concurrently(2, func(i int) {
		r := child(keyN("c", i), "root", "4")
		r.Min = usd("0.1")
		h, err := f.Reserve(f.ctx, r)
		if err != nil {
			f.denial(err)
			return
		}
		granted[i] = h.Granted
	})
	if sum := granted[0] + granted[1]; sum != usd("4") {
		t.Errorf("children hold %s together, want 4", dollars(sum))
	}
	f.wantHold("root", "open, granted 4")
	f.wantBalance("acme", "day", "S 0, H 4, A 6")
}

func TestT82_ChildWithAnExtraAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("100"))
	f.limit(on("g2", daily("10")))
	f.mustReserve(spendlimit.Request{Key: "others", Accounts: names("g2"), Amount: usd("7")})
	f.mustReserve(req("root", "50"))
	r := child("c", "root", "9", "g2")
	r.Min = usd("1")
	f.wantBinding(f.mustGrant(r, "3"), "g2/day")
}

func TestR24_ChildTakesFromItsParent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("20"))
	f.mustReserve(req("P", "10"))
	h := f.mustReserve(child("c", "P", "4"))
	if h.Parent != "P" || len(h.Accounts) != 0 {
		t.Errorf("parent %q, accounts %v", h.Parent, h.Accounts)
	}
	f.wantHold("P", "open, granted 10, own 6")
	f.wantHold("c", "open, granted 4, own 4")
	f.wantBalance("acme", "day", "S 0, H 10, A 10") // nothing more is held
	d := f.mustDeny(child("d", "P", "7"))           // P has 6, the day has 10
	if d.Reason != spendlimit.ReasonParent || d.Parent != "P" || d.Wanted != usd("7") {
		t.Errorf("got %+v, want refused by P", d)
	}
	f.mustRelease("c")
	f.wantHold("P", "open, granted 10, own 10")
	f.mustReserve(child("d", "P", "7"))
}

func TestR25_CostOfAChild(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("root", "10"))
	f.mustReserve(child("c", "root", "4"))
	f.wantReceipt(f.mustSettle("c", total("3")), "cost 3, returned 1")
	f.wantBalance("acme", "day", "S 3, H 7, A 0")
	f.wantHold("root", "open, granted 10, own 7")
	f.wantReceipt(f.mustSettle("root", total("0")), "returned 7") // its children's cost is not its own
	f.wantBalance("acme", "day", "S 3, H 0, A 7")
}

func TestR26_ExtraAccounts(t *testing.T) {
	t.Parallel()
	t.Run("the cost counts once on each", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.limit(on("B", daily("10")))
		f.mustReserve(req("root", "10"))
		h := f.mustReserve(child("c", "root", "4", "acme", "B")) // acme is the root's already
		if len(h.Accounts) != 1 || h.Accounts[0] != "B" {
			t.Errorf("accounts %v, want B alone", h.Accounts)
		}
		f.wantBalance("acme", "day", "S 0, H 10, A 0")
		f.wantBalance("B", "day", "S 0, H 4, A 6")
		f.mustRecord("c", "u", "1")
		f.wantBalance("B", "day", "S 1, H 3, A 6")
		f.wantReceipt(f.mustSettle("c", total("3")), "cost 3, returned 1")
		f.wantBalance("acme", "day", "S 3, H 7, A 0")
		f.wantBalance("B", "day", "S 3, H 0, A 7")
	})
	t.Run("a grandchild does not add it again", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.limit(on("B", daily("10")))
		f.mustReserve(req("root", "10"))
		f.mustReserve(child("c", "root", "4", "B"))
		f.mustReserve(child("d", "c", "3", "acme", "B"))
		f.wantBalance("B", "day", "S 0, H 4, A 6")
		f.mustSettle("d", total("2"))
		f.wantBalance("acme", "day", "S 2, H 8, A 0")
		f.wantBalance("B", "day", "S 2, H 2, A 6")
		f.mustRelease("c")
		f.wantBalance("acme", "day", "S 2, H 8, A 0")
		f.wantBalance("B", "day", "S 2, H 0, A 8")
	})
	t.Run("all must admit", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.limit(on("B", daily("3")))
		f.mustReserve(req("root", "10"))
		d := f.mustDeny(child("c", "root", "4", "B"))
		if d.Binding.Account != "B" || len(d.Exhausted) != 1 {
			t.Errorf("bound by %s of %d, want B alone", d.Binding.Account, len(d.Exhausted))
		}
		f.wantHold("root", "open, granted 10, own 10")
	})
	t.Run("costs above the child fall on both", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.limit(on("B", daily("4")))
		f.mustReserve(req("root", "10"))
		f.mustReserve(child("c", "root", "4", "B"))
		f.wantReceipt(f.mustSettle("c", total("6")), "cost 6, overrun 2") // covered by the root, but B had 4
		f.wantBalance("acme", "day", "S 6, H 4, A 0")
		f.wantBalance("B", "day", "S 6, H 0, A -2, overrun 2")
	})
}

func TestR27_ChildCostsMoreThanItsHold(t *testing.T) {
	t.Parallel()
	t.Run("the root is used up", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.mustReserve(req("root", "10"))
		f.mustReserve(child("c", "root", "5"))
		f.mustReserve(child("d", "root", "5"))
		f.wantReceipt(f.mustSettle("c", total("8")), "cost 8, excess 3, overrun 3")
		f.wantBalance("acme", "day", "S 8, H 5, A -3, overrun 3")
		f.wantHold("d", "open, granted 5, own 5")
	})
	t.Run("the ancestors cover it, nearest first", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("20"))
		f.mustReserve(req("root", "10"))
		f.mustReserve(child("mid", "root", "6"))
		f.mustReserve(child("leaf", "mid", "4"))
		f.wantReceipt(f.mustSettle("leaf", total("7")), "cost 7")
		f.wantHold("mid", "open, granted 6")          // 2 of 2
		f.wantHold("root", "open, granted 10, own 3") // 1 of 4
		f.wantBalance("acme", "day", "S 7, H 3, A 10")
	})
}

func TestR28_ParentEndsFirst(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end     func(f *fixture) spendlimit.Receipt
		receipt string
		balance string
	}{
		"settled": {
			func(f *fixture) spendlimit.Receipt { return f.mustSettle("P", total("1")) },
			"cost 1, returned 5, children 1", "S 1, H 4, A 15",
		},
		"released": {
			func(f *fixture) spendlimit.Receipt { return f.mustRelease("P") },
			"returned 6, children 1", "S 0, H 4, A 16",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("20"))
			f.mustReserve(req("P", "10"))
			f.mustReserve(child("c", "P", "4"))
			f.wantReceipt(tc.end(f), tc.receipt)
			f.wantBalance("acme", "day", tc.balance)
			f.wantHold("c", "open, granted 4, own 4")

			f.unchanged(func() {
				if _, err := f.Reserve(f.ctx, child("d", "P", "1")); err == nil {
					t.Error("a new child on an ended parent")
				}
				_, err := f.Grow(f.ctx, spendlimit.Growth{Hold: "P", ID: "g", By: 1})
				var ended *spendlimit.EndedError
				if !errors.As(err, &ended) || ended.Hold != "P" {
					t.Errorf("grow of an ended parent: %v", err)
				}
			})
			f.wantReceipt(f.mustSettle("c", total("3")), "cost 3, returned 1") // to the limit, not to P
			f.wantHold("P", name+", granted 10"+map[string]string{"settled": ", recorded 1"}[name])
			b := f.balance("acme", "day")
			if b.Held != 0 {
				t.Errorf("held %s after all have ended", dollars(b.Held))
			}
		})
	}
	t.Run("a child's excess has no parent to cover it", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("20"))
		f.mustReserve(req("P", "10"))
		f.mustReserve(child("c", "P", "4"))
		f.mustRelease("P")
		f.wantReceipt(f.mustSettle("c", total("6")), "cost 6, excess 2")
		f.wantBalance("acme", "day", "S 6, H 0, A 14")
	})
	t.Run("room goes to the nearest live ancestor", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("20"))
		f.mustReserve(req("root", "10"))
		f.mustReserve(child("mid", "root", "6"))
		f.mustReserve(child("leaf", "mid", "4"))
		f.mustRelease("mid")
		f.mustRelease("leaf")
		f.wantHold("root", "open, granted 10, own 10")
		f.wantBalance("acme", "day", "S 0, H 10, A 10")
	})
}

func TestR28_ReleaseTree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("20"))
	f.limit(on("B", daily("20")))
	f.mustReserve(req("root", "10"))
	f.mustReserve(child("a", "root", "4", "B"))
	f.mustReserve(child("b under a", "a", "1"))
	f.mustReserve(child("c", "root", "3"))
	f.mustDispatch("c")
	f.mustReserve(child("d under c", "c", "1"))
	f.mustReserve(req("stranger", "1"))
	r := f.mustRelease("root", spendlimit.Tree)
	f.wantReceipt(r, "returned 7, children 1")
	for key, want := range map[string]string{
		"root": "released, granted 10", "a": "released, granted 4", "b under a": "released, granted 1",
		"c": "dispatched, granted 3, own 3", "d under c": "released, granted 1", "stranger": "open, granted 1, own 1",
	} {
		f.wantHold(key, want)
	}
	f.wantBalance("acme", "day", "S 0, H 4, A 16")
	f.wantBalance("B", "day", "S 0, H 0, A 20")
	var ended []string
	for e, err := range f.Entries(f.ctx, "acme", 0) {
		f.ok(err)
		if e.Kind == spendlimit.EntryRelease {
			ended = append(ended, e.Ref)
		}
	}
	if want := []string{"b under a", "d under c", "a", "root"}; !slices.Equal(ended, want) { // the deepest first
		t.Errorf("released %q, want %q", ended, want)
	}
	f.wantReceipt(f.mustSettle("c", total("2")), "cost 2, returned 1")
	f.wantBalance("acme", "day", "S 2, H 1, A 17")
}

func TestR29_NoChildOnAnEndedParent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func(f *fixture)
		want error
	}{
		"settled":          {func(f *fixture) { f.mustSettle("P", total("1")) }, spendlimit.ErrSettled},
		"settled unpriced": {func(f *fixture) { f.mustSettle("P", spendlimit.Unknown("lost")) }, spendlimit.ErrSettled},
		"released":         {func(f *fixture) { f.mustRelease("P") }, spendlimit.ErrReleased},
		"lapsed open":      {func(f *fixture) { f.clock.Advance(time.Hour) }, spendlimit.ErrLapsed},
		"lapsed dispatched": {func(f *fixture) {
			f.mustDispatch("P")
			f.clock.Advance(time.Hour)
		}, spendlimit.ErrLapsed},
		"closed dispatched": {func(f *fixture) {
			f.mustDispatch("P")
			f.ok(f.Close(f.ctx, "P"))
		}, spendlimit.ErrLapsed},
		"missing": {func(*fixture) {}, spendlimit.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("20"))
			if name != "missing" {
				f.mustReserve(req("P", "10"))
			}
			tc.end(f)
			h, err := f.Reserve(f.ctx, child("c", "P", "1"))
			f.wantErr(err, tc.want)
			if h != nil || errors.Is(err, spendlimit.ErrDenied) {
				t.Errorf("hold %v, error %v", h, err)
			}
			_, err = f.Hold(f.ctx, "c")
			f.wantErr(err, spendlimit.ErrNotFound)
		})
	}
}

func TestR30_Depth(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("20"))
	f.mustReserve(req("1", "10"))
	for depth := 2; depth <= 8; depth++ {
		f.mustReserve(child(keyN("", depth), keyN("", depth-1), "10"))
	}
	f.unchanged(func() {
		_, err := f.Reserve(f.ctx, child("9", "8", "1"))
		f.wantInvalid(err, "Parent")
	})
	f.wantReceipt(f.mustSettle("8", total("12")), "cost 12, excess 2") // through all eight
	f.wantBalance("acme", "day", "S 12, H 0, A 8")
}

func TestR30_ChildOutlivesItsParent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("20"))
	r := req("P", "10")
	r.TTL = time.Minute
	f.mustReserve(r)
	c := child("c", "P", "4")
	c.TTL = time.Hour
	f.mustReserve(c)
	f.clock.Advance(2 * time.Minute)
	f.wantHold("P", "lapsed-free, granted 10")
	f.wantHold("c", "open, granted 4, own 4")
	f.wantBalance("acme", "day", "S 0, H 4, A 16")
	f.clock.Advance(time.Hour)
	f.wantHold("c", "lapsed-free, granted 4")
	f.wantBalance("acme", "day", "S 0, H 0, A 20")
}

func TestR31_PeriodsOfAChild(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.limit(on("B", daily("10")))
	f.clock.Set(d2.Add(-time.Minute))
	f.mustReserve(req("root", "10"))
	f.clock.Set(d2.Add(time.Minute))
	f.mustReserve(child("c", "root", "4", "B"))
	f.wantBalanceAt("acme", "day", noon, "S 0, H 10, A 0") // the root's day, whatever the clock
	f.wantBalanceAt("acme", "day", d2, "S 0, H 0, A 10")
	f.wantBalanceAt("B", "day", noon, "S 0, H 0, A 10")
	f.wantBalanceAt("B", "day", d2, "S 0, H 4, A 6") // its own day
	f.mustSettle("c", total("5"))
	f.wantBalanceAt("acme", "day", noon, "S 5, H 5, A 0")
	f.wantBalanceAt("acme", "day", d2, "S 0, H 0, A 10")
	f.wantBalanceAt("B", "day", d2, "S 5, H 0, A 5")
}
