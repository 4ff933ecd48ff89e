package spendlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// What the receipts of all ends say, in every state of a hold of 10; in "dispatched" and "charged" 2 were recorded before.
func TestR46_ReceiptsOfEnds(t *testing.T) {
	t.Parallel()
	lasts := req("k", "10")
	lasts.TTL = time.Minute
	states := map[string]func(f *fixture){
		"open":       func(*fixture) {},
		"sent":       func(f *fixture) { f.mustDispatch("k") },
		"dispatched": func(f *fixture) { f.mustRecord("k", "first", "2") },
		"settled":    func(f *fixture) { f.mustSettle("k", total("6")) },
		"unpriced": func(f *fixture) {
			f.mustRecord("k", "first", "2")
			f.mustSettle("k", spendlimit.Unknown("lost"))
		},
		"released": func(f *fixture) { f.mustRelease("k") },
		"lapsed":   func(f *fixture) { f.clock.Advance(time.Minute + time.Microsecond) },
		"charged": func(f *fixture) {
			f.mustRecord("k", "first", "2")
			f.clock.Advance(time.Minute + time.Microsecond)
		},
	}
	type receipt = spendlimit.Receipt
	settle := func(c spendlimit.Cost, o ...spendlimit.Option) func(*fixture) (receipt, error) {
		return func(f *fixture) (receipt, error) { return f.Settle(f.ctx, "k", c, o...) }
	}
	release := func(o ...spendlimit.Option) func(*fixture) (receipt, error) {
		return func(f *fixture) (receipt, error) { return f.Release(f.ctx, "k", o...) }
	}
	record := func(cost string) func(*fixture) (receipt, error) {
		return func(f *fixture) (receipt, error) {
			return f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "second", Cost: total(cost)})
		}
	}
	events := map[string]func(f *fixture) (receipt, error){
		"record 3": record("3"), "record 9": record("9"),
		"settle 6": settle(total("6")), "settle 12": settle(total("12")), "settle 6 late": settle(total("6"), spendlimit.Late),
		"recorded": settle(spendlimit.Recorded()), "recorded late": settle(spendlimit.Recorded(), spendlimit.Late),
		"unknown": settle(spendlimit.Unknown("lost")), "unknown late": settle(spendlimit.Unknown("lost"), spendlimit.Late),
		"release": release(), "release not spent": release(spendlimit.NotSpent),
	}
	const table = `
open: record 3: cost 3, own 7
open: settle 6: cost 6, returned 4
open: settle 12: cost 12, excess 2
open: recorded: returned 10
open: unknown: assumed 10, unpriced
open: release: returned 10
sent: release not spent: returned 10
dispatched: record 3: cost 3, own 5
dispatched: record 9: cost 9, excess 1
dispatched: settle 6: cost 6, returned 4
dispatched: settle 12: cost 12, excess 2
dispatched: recorded: cost 2, returned 8
dispatched: unknown: assumed 8, unpriced
settled: settle 6: cost 6, returned 4, replayed
settled: recorded: cost 6, returned 4, replayed
unpriced: settle 6: cost 6, returned 4, late
unpriced: settle 12: cost 12, excess 2, late
unpriced: recorded: cost 2, returned 8, late
unpriced: unknown: assumed 8, unpriced, replayed
released: settle 6 late: cost 6, excess 6, late
released: recorded late: late
released: unknown late: excess 10, assumed 10, late, unpriced
released: release: returned 10, replayed
lapsed: record 3: cost 3, excess 3, late
lapsed: settle 6: cost 6, excess 6, late
lapsed: recorded: late
lapsed: unknown: excess 10, assumed 10, late, unpriced
lapsed: release: returned 10, replayed
charged: record 3: cost 3, assumed 5, late
charged: record 9: cost 9, excess 1, late
charged: settle 6: cost 6, returned 4, late
charged: settle 12: cost 12, excess 2, late
charged: recorded: cost 2, returned 8, late
charged: unknown: assumed 8, late, unpriced
charged: release not spent: cost 2, returned 8, late
`
	for line := range strings.Lines(strings.TrimSpace(table)) {
		cells := strings.SplitN(strings.TrimSpace(line), ": ", 3)
		t.Run(cells[0]+"/"+cells[1], func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("20"))
			f.mustReserve(lasts)
			states[cells[0]](f)
			r, err := events[cells[1]](f)
			f.ok(err)
			f.wantReceipt(r, cells[2])
		})
	}
}

func TestT60_AChargeUsesUpATotal(t *testing.T) {
	t.Parallel()
	t.Run("task", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(forever("5"))
		f.mustCharge("before", "4.95")
		if r := f.mustCharge("more", "0.10"); r.Overrun != usd("0.05") {
			t.Errorf("overrun %s", dollars(r.Overrun))
		}
		f.mustDeny(req("next", "0.000000001"))
		f.wantBalance("acme", "all", "S 5.05, H 0, A -0.05, overrun 0.05")
	})
	t.Run("nearly", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(forever("1"))
		f.mustCharge("before", "0.99")
		f.mustDeny(req("k", "0.02"))
		f.mustReserve(req("k", "0.01"))
	})
}

func TestT61_YesterdaysHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.clock.Set(d2.Add(-time.Minute))
	f.mustReserve(req("old", "10"))
	f.clock.Set(d2.Add(time.Minute))
	f.mustReserve(req("new", "10"))
	f.mustRelease("old")
	f.wantBalanceAt("acme", "day", d2, "S 0, H 10, A 0")
	f.wantBalanceAt("acme", "day", noon, "S 0, H 0, A 10")
}

// An expensive account's steps hang, and another process goes on with the other account.
func TestT66_ASlowStoreForOneAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(on("X", daily("10")))
	f.limit(on("Y", daily("10")))
	g := newGate(f)
	g.blocks = func(n *spendlimit.Need) bool { return len(n.Accounts) > 0 && n.Accounts[0] == "X" }
	done := make(chan error)
	go func() {
		_, err := f.Reserve(f.ctx, spendlimit.Request{Key: "x", Accounts: names("X"), Amount: 1})
		done <- err
	}()
	<-g.reached
	if _, err := f.restart().Reserve(f.ctx, spendlimit.Request{Key: "y", Accounts: names("Y"), Amount: 1}); err != nil {
		t.Errorf("Y waits for X: %v", err)
	}
	close(g.open)
	f.ok(<-done)
}

func TestT67_AChargeBetweenTwoStarts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("1"))
	f.mustReserve(req("first", "0.5"))
	f.mustCharge("elsewhere", "0.4")
	d := f.mustDeny(req("second", "0.5"))
	if d.Binding.Available != usd("0.1") {
		t.Errorf("available %s, want 0.1", dollars(d.Binding.Available))
	}
}

func TestT72_HoldOverMidnight(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, l spendlimit.Limit) *fixture {
		f := newFixture(t)
		f.limit(l)
		f.clock.Set(d2.Add(-time.Minute))
		r := req("k", "10")
		r.TTL = time.Hour
		f.mustReserve(r)
		f.mustRecord("k", "u", "4")
		f.clock.Set(d2.Add(10 * time.Minute))
		return f
	}
	t.Run("roll", func(t *testing.T) {
		t.Parallel()
		f := setup(t, daily("10"))
		r, err := f.Extend(f.ctx, spendlimit.Extension{Hold: "k", Roll: true, ID: "r"})
		f.ok(err)
		f.wantReceipt(r, "granted 6, own 6")
		f.wantBalanceAt("acme", "day", noon, "S 4, H 0, A 6")
		f.wantBalanceAt("acme", "day", d2, "S 0, H 6, A 4")
		f.mustSettle("k", total("7"))
		f.wantBalanceAt("acme", "day", noon, "S 4, H 0, A 6")
		f.wantBalanceAt("acme", "day", d2, "S 3, H 0, A 7")
	})
	t.Run("carry holds", func(t *testing.T) {
		t.Parallel()
		l := daily("10")
		l.CarryHolds = true
		f := setup(t, l)
		f.wantBalanceAt("acme", "day", d2, "S 0, H 0, A 4")
		f.mustDeny(req("other", "4.000000001"))
		f.mustSettle("k", total("7"))
		f.wantBalanceAt("acme", "day", noon, "S 7, H 0, A 3")
		f.wantBalanceAt("acme", "day", d2, "S 0, H 0, A 10")
	})
}

func TestT73_CallsWhileThereIsRoom(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	h := f.mustReserve(req("k", "5"))
	calls := 0
	var last spendlimit.Receipt
	for own := h.Own; own > 0; own = last.Own {
		last = f.mustRecord("k", keyN("call", calls), "3")
		calls++
	}
	if calls != 2 || last.Excess != usd("1") {
		t.Errorf("%d calls, excess %s; want 2, 1", calls, dollars(last.Excess))
	}
	f.wantHold("k", "dispatched, granted 5, recorded 6")
	f.wantBalance("acme", "day", "S 6, H 0, A 4")
}

func TestT74_SettleWhileACallIsInFlight(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "5"))
	f.mustRecord("k", "first", "1")
	f.mustSettle("k", spendlimit.Recorded())
	f.unchanged(func() {
		_, err := f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "in flight", Cost: total("2")})
		f.wantErr(err, spendlimit.ErrSettled)
	})
	f.mustCharge("in flight", "2")
	f.wantBalance("acme", "day", "S 3, H 0, A 7")

	f.mustReserve(req("l", "5")) // the right order
	f.mustRecord("l", "first", "1")
	f.mustRecord("l", "in flight", "2")
	f.wantReceipt(f.mustSettle("l", spendlimit.Recorded()), "cost 3, returned 2")
	f.wantBalance("acme", "day", "S 6, H 0, A 4")
}

func TestT75_Labels(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "5"))
	u := spendlimit.Usage{Hold: "k", ID: "u", Cost: total("1"), Labels: map[string]string{"nobody lists this": "x"}}
	_, err := f.Record(f.ctx, u)
	f.ok(err)
	f.wantBalance("acme", "day", "S 1, H 4, A 5")
	u.ID, u.Labels = "v", map[string]string{"k": strings.Repeat("x", 257)}
	f.unchanged(func() {
		_, err := f.Record(f.ctx, u)
		f.wantInvalid(err, "Labels")
	})
	u.Labels = nil
	_, err = f.Record(f.ctx, u)
	f.ok(err)
	f.wantBalance("acme", "day", "S 2, H 3, A 5")
}

func TestT77_NeverUnlimited(t *testing.T) {
	t.Parallel()
	t.Run("no limit", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.mustCharge("c", "1") // now the account is known
		d := f.mustDeny(req("k", "1"))
		if d.Reason != spendlimit.ReasonNoLimit || d.Account != "acme" || !d.Hopeless || d.RetryAfter != 0 {
			t.Errorf("got %+v", d)
		}
		f.wantErr(d, spendlimit.ErrNoLimit)
	})
	for _, text := range []string{"abc", "-3", "nan", "inf", "NaN", "Inf", ""} {
		t.Run("limit "+text, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			amount, err := spendlimit.USD.Parse(text)
			if err == nil {
				l := daily("0")
				l.Amount = amount
				_, err = f.SetLimit(f.ctx, l, "")
			}
			f.wantErr(err, spendlimit.ErrInvalid)
			_, err = f.Reserve(f.ctx, req("k", "1"))
			f.wantErr(err, spendlimit.ErrNoLimit)
		})
	}
	t.Run("limit 0", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("0"))
		if d := f.mustDeny(req("k", "0.000000001")); !d.Hopeless {
			t.Errorf("got %+v, want hopeless", d)
		}
		f.mustReserve(spendlimit.Request{Key: "free", Accounts: names("acme"), Free: true})
	})
}

func TestT79_WeeksAcrossMonths(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ spent, now string }{
		"tuesday and thursday": {"2026-09-29T12:00:00Z", "2026-10-01T12:00:00Z"},
		"monday and sunday":    {"2026-02-23T00:00:00Z", "2026-03-01T23:59:59Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.clock.Set(at(tc.spent))
			f.limit(weekly("10"))
			f.mustCharge("c", "9")
			f.clock.Set(at(tc.now))
			f.wantBalance("acme", "week", "S 9, H 0, A 1")
			f.mustGrant(rest("k"), "1")
		})
	}
}

func TestT83_TheTightestLimitBinds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(weekly("12"))
	f.mustCharge("before the day counts", "9")
	f.limit(daily("10"))
	f.mustCharge("c", "2")
	f.wantBinding(f.mustGrant(rest("k"), "1"), "acme/week")
	f.mustRelease("k")
	r := rest("l")
	r.Min = usd("1.5")
	d := f.mustDeny(r)
	if len(d.Exhausted) != 1 || d.Binding.Limit != "week" {
		t.Errorf("exhausted %v, binding %s; want week alone", d.Exhausted, d.Binding.Limit)
	}
	r.Min = usd("8.5")
	if d := f.mustDeny(r); len(d.Exhausted) != 2 || d.Binding.Limit != "week" {
		t.Errorf("exhausted %v, binding %s; want both, week binds", d.Exhausted, d.Binding.Limit)
	}
}

func TestT84_LastLimitRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.limit(daily("10"))
	f.limit(on("other", daily("10")))
	f.ok(f.RemoveLimit(f.ctx, "acme", "day", l.Fingerprint))
	d := f.mustDeny(spendlimit.Request{Key: "k", Accounts: names("acme", "other"), Amount: usd("1")})
	if d.Reason != spendlimit.ReasonNoLimit || d.Account != "acme" {
		t.Errorf("got %+v, want no limit on acme", d)
	}
}

func TestT85_AtOnce(t *testing.T) {
	t.Parallel()
	// atOnce asks n times at once and returns what was granted.
	atOnce := func(f *fixture, n int, amount, least string) []string {
		granted := make([]string, n)
		concurrently(n, func(i int) {
			r := req(keyN("k", i), amount)
			r.Min = usd(least)
			h, err := f.Reserve(f.ctx, r)
			if err != nil {
				f.denial(err)
				return
			}
			granted[i] = dollars(h.Granted)
		})
		return granted
	}
	for name, tc := range map[string]struct {
		limit, amount, least string
		n                    int
		want                 map[string]int
	}{
		"two":      {"5", "4", "0.1", 2, map[string]int{"4": 1, "1": 1}},
		"eight":    {"5", "1", "0", 8, map[string]int{"1": 5, "": 3}},
		"sixty":    {"1", "0.10", "0", 64, map[string]int{"0.1": 10, "": 54}},
		"leftover": {"5", "4", "2", 2, map[string]int{"4": 1, "": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily(tc.limit))
			got := map[string]int{}
			for _, g := range atOnce(f, tc.n, tc.amount, tc.least) {
				got[g]++
			}
			if fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestT86_OneStep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("5"))
	f.mustCharge("c", "4.999999999")
	f.mustReserve(req("k", "0.000000001"))
	f.mustDeny(req("l", "0.000000001"))
	_, err := spendlimit.USD.Parse("4.9999999995")
	f.wantErr(err, spendlimit.ErrPrecision)
}

func TestT87_CostAboveTheHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("other", "3"))
	f.mustReserve(req("k", "2"))
	f.wantReceipt(f.mustSettle("k", total("2.5")), "cost 2.5, excess 0.5")
	f.wantHold("other", "open, granted 3, own 3")
	f.wantBalance("acme", "day", "S 2.5, H 3, A 4.5")
}

func TestT88_LateSettleAfterALapse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ limit, cost, receipt, balance string }{
		"below":   {"10", "3", "cost 3, returned 1, late", "S 3, H 0, A 7"},
		"above":   {"10", "6", "cost 6, excess 2, late", "S 6, H 0, A 4"},
		"no room": {"5", "6", "cost 6, excess 2, overrun 1, late", "S 6, H 0, A -1, overrun 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily(tc.limit))
			f.mustReserve(req("k", "4"))
			f.mustDispatch("k")
			f.clock.Advance(time.Hour)
			f.wantReceipt(f.mustSettle("k", total(tc.cost)), tc.receipt)
			f.wantBalance("acme", "day", tc.balance)
			if got, want := f.kinds("acme"), "limit reserve dispatch lapse late"; got != want {
				t.Errorf("entries %s, want %s", got, want)
			}
		})
	}
}

func TestT89_AKeyNamesOneHoldForEver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "4"))
	f.mustRelease("k")
	h, err := f.Reserve(f.ctx, req("k", "4"))
	var ended *spendlimit.EndedError
	if h != nil || !errors.As(err, &ended) || !errors.Is(err, spendlimit.ErrReleased) || ended.Hold != "k" {
		t.Fatalf("got %v, %v; want no hold, released", h, err)
	}
	f.wantReceipt(ended.Receipt, "returned 4")
	f.mustReserve(req("k2", "4"))
}

func TestT90_SettleTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "4"))
	first := f.mustSettle("k", total("3"))
	f.unchanged(func() {
		again := f.mustSettle("k", total("3"))
		f.wantReceipt(again, "cost 3, returned 1, replayed")
		if again.Revision != first.Revision {
			t.Errorf("revision %d, then %d", first.Revision, again.Revision)
		}
		_, err := f.Settle(f.ctx, "k", total("3.5"))
		var ended *spendlimit.EndedError
		if !errors.As(err, &ended) || !errors.Is(err, spendlimit.ErrSettled) || ended.Receipt.Cost != usd("3") {
			t.Errorf("got %v, want settled at 3", err)
		}
	})
}

// The rates of the hold, not those of today, price its usage.
func TestT91_RatesOfTheReserve(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	rates := map[string]string{"model": `{"per_call":"2"}`}
	r := req("k", "4")
	r.Price = rates["model"]
	f.mustReserve(r)
	rates["model"] = `{"per_call":"3"}`
	h, err := f.restart().Hold(f.ctx, "k")
	f.ok(err)
	if h.Price != `{"per_call":"2"}` {
		t.Errorf("price %s", h.Price)
	}
	r.Price = rates["model"]
	_, err = f.Reserve(f.ctx, r) // R16: part of what the key stands for
	f.wantErr(err, spendlimit.ErrKeyReused)
}

func TestT92_EdgesOfALife(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		dispatch   bool
		live, over string
		balances   [2]string
	}{
		"open": {
			false, "open, granted 4, own 4", "lapsed-free, granted 4",
			[2]string{"S 0, H 4, A 6", "S 0, H 0, A 10"},
		},
		"dispatched": {
			true, "dispatched, granted 4, own 4", "lapsed-charged, granted 4, assumed 4",
			[2]string{"S 0, H 4, A 6", "S 4, H 0, A 6, assumed 4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("10"))
			h := f.mustReserve(req("k", "4"))
			if tc.dispatch {
				f.mustDispatch("k")
			}
			f.clock.Set(h.ExpiresAt)
			f.wantHold("k", tc.live)
			f.wantBalance("acme", "day", tc.balances[0])
			f.clock.Advance(time.Microsecond)
			f.wantHold("k", tc.over)
			f.wantBalance("acme", "day", tc.balances[1])
			ended, err := f.Hold(f.ctx, "k")
			f.ok(err)
			if want := h.ExpiresAt.Add(time.Microsecond); !ended.EndedAt.Equal(want) {
				t.Errorf("ended at %v, want %v", ended.EndedAt, want)
			}
		})
	}
}

// Without a lease: what is reserved before midnight is settled in the old period.
func TestT102_SettleAfterMidnight(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.clock.Set(d2.Add(-time.Minute))
	f.mustReserve(req("k", "4"))
	f.clock.Set(d2.Add(time.Minute))
	f.mustSettle("k", total("5"))
	f.wantBalanceAt("acme", "day", noon, "S 5, H 0, A 5")
	f.wantBalanceAt("acme", "day", d2, "S 0, H 0, A 10")
}

func TestT109_Overflow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := daily("10")
	l.Amount = spendlimit.MaxAmount
	f.limit(l)
	_, err := f.Charge(f.ctx, spendlimit.Expense{ID: "big", Accounts: names("acme"), Cost: spendlimit.Total(math.MaxInt64 - 1)})
	f.ok(err)
	two := spendlimit.Expense{ID: "two", Accounts: names("acme", "other"), Cost: spendlimit.Total(2)}
	f.unchanged(func() {
		_, err := f.Charge(f.ctx, two)
		f.wantErr(err, spendlimit.ErrOverflow)
	})
	two.Cost = spendlimit.Total(1)
	_, err = f.Charge(f.ctx, two) // the id was not used up
	f.ok(err)
	_, err = spendlimit.Tokens.Parse("9223372036854775808")
	f.wantErr(err, spendlimit.ErrOverflow)
}

func TestR40_DispatchIsStoredFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "4"))
	f.store.fail(faultBefore)
	f.wantErr(f.Dispatch(f.ctx, "k"), spendlimit.ErrUnavailable)
	f.wantHold("k", "open, granted 4, own 4")
	f.store.fail(faultAfter)
	f.wantErr(f.Dispatch(f.ctx, "k"), spendlimit.ErrUncertain)
	f.unchanged(func() { f.mustDispatch("k") }) // asking again says how it went
	f.wantHold("k", "dispatched, granted 4, own 4")
	if got, want := f.kinds("acme"), "limit reserve dispatch"; got != want {
		t.Errorf("entries %s, want %s", got, want)
	}
}

func TestR41_AUsageCountsOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("20"))
	f.mustReserve(req("k", "10"))
	first := f.mustRecord("k", "u", "3")
	f.wantReceipt(first, "cost 3, own 7")
	f.wantBalance("acme", "day", "S 3, H 7, A 10")
	f.unchanged(func() {
		f.wantReceipt(f.mustRecord("k", "u", "3"), "cost 3, own 7, replayed")
		for _, other := range []spendlimit.Cost{total("4"), spendlimit.Unknown("lost")} {
			_, err := f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "u", Cost: other})
			f.wantErr(err, spendlimit.ErrKeyReused)
		}
	})
	f.mustReserve(req("l", "5")) // ids are a hold's own
	f.mustRecord("l", "u", "1")
	f.mustSettle("k", spendlimit.Recorded())
	f.unchanged(func() { f.wantReceipt(f.mustRecord("k", "u", "3"), "cost 3, own 7, replayed") }) // after the end, too
}

func TestR42_Cumulative(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("100"))
	f.mustReserve(req("k", "50"))
	sofar := func(cost string) (spendlimit.Receipt, error) {
		return f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "u", Cost: total(cost), Cumulative: true})
	}
	for _, step := range []struct {
		cost     string
		receipt  string
		recorded string
	}{
		{"30", "cost 30, own 20", "30"},
		{"20", "cost 30, own 20, replayed", "30"},
		{"30", "cost 30, own 20, replayed", "30"},
		{"45", "cost 15, own 5", "45"},
		{"45", "cost 15, own 5, replayed", "45"},
	} {
		r, err := sofar(step.cost)
		f.ok(err)
		f.wantReceipt(r, step.receipt)
		h, err := f.Hold(f.ctx, "k")
		f.ok(err)
		if dollars(h.Recorded) != step.recorded {
			t.Errorf("after %s: recorded %s, want %s", step.cost, dollars(h.Recorded), step.recorded)
		}
	}
	f.wantBalance("acme", "day", "S 45, H 5, A 50")

	f.unchanged(func() { // the form is fixed by the first use
		_, err := f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "u", Cost: total("45")})
		f.wantErr(err, spendlimit.ErrKeyReused)
	})
	f.mustRecord("k", "v", "1")
	_, err := f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "v", Cost: total("2"), Cumulative: true})
	f.wantErr(err, spendlimit.ErrKeyReused)
	f.wantReceipt(f.mustSettle("k", spendlimit.Recorded()), "cost 46, returned 4")
}

func TestR43_UnknownUsage(t *testing.T) {
	t.Parallel()
	unknown := func(f *fixture, id string) spendlimit.Receipt {
		f.Helper()
		r, err := f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: id, Cost: spendlimit.Unknown("no price")})
		f.ok(err)
		return r
	}
	setup := func(t *testing.T) *fixture {
		f := newFixture(t)
		f.limit(daily("20"))
		f.mustReserve(req("k", "10"))
		f.wantReceipt(unknown(f, "u"), "own 10, unpriced")
		f.wantBalance("acme", "day", "S 0, H 10, A 10, unpriced 1") // nothing moved
		f.wantHold("k", "dispatched, granted 10, own 10")
		return f
	}
	t.Run("priced by its id", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.unchanged(func() { f.wantReceipt(unknown(f, "u"), "own 10, unpriced, replayed") })
		f.mustRecord("k", "other", "1")
		f.wantBalance("acme", "day", "S 1, H 9, A 10, unpriced 1")
		f.wantReceipt(f.mustRecord("k", "u", "3"), "cost 3, own 6")
		f.wantBalance("acme", "day", "S 4, H 6, A 10")
		f.unchanged(func() { f.wantReceipt(f.mustRecord("k", "u", "3"), "cost 3, own 6, replayed") })
	})
	t.Run("Total prices them all", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		unknown(f, "v")
		f.wantBalance("acme", "day", "S 0, H 10, A 10, unpriced 2")
		f.wantReceipt(f.mustSettle("k", total("4")), "cost 4, returned 6")
		f.wantBalance("acme", "day", "S 4, H 0, A 16")
	})
	t.Run("Recorded acts as Unknown", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		unknown(f, "v")
		f.mustRecord("k", "w", "1")
		f.wantReceipt(f.mustSettle("k", spendlimit.Recorded()), "assumed 9, unpriced")
		f.wantBalance("acme", "day", "S 10, H 0, A 10, assumed 9, unpriced 1") // the hold's one stands for both
		f.wantReceipt(f.mustSettle("k", total("4")), "cost 4, returned 6, late")
		f.wantBalance("acme", "day", "S 4, H 0, A 16")
	})
	t.Run("Unknown folds them in", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.mustSettle("k", spendlimit.Unknown("all lost"))
		f.wantBalance("acme", "day", "S 10, H 0, A 10, assumed 10, unpriced 1")
	})
	t.Run("lapsed, then priced", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		f.clock.Advance(time.Hour)
		f.wantBalance("acme", "day", "S 10, H 0, A 10, assumed 10, unpriced 1")
		f.wantReceipt(f.mustSettle("k", total("3")), "cost 3, returned 7, late")
		f.wantBalance("acme", "day", "S 3, H 0, A 17")
	})
	t.Run("an open usage stands in the way of NotSpent", func(t *testing.T) {
		t.Parallel()
		f := setup(t)
		_, err := f.Release(f.ctx, "k", spendlimit.NotSpent)
		f.wantErr(err, spendlimit.ErrDispatched)
	})
}

func TestR44_CostBelowTheHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "5"))
	f.wantReceipt(f.mustSettle("k", total("3")), "cost 3, returned 2")
	f.mustReserve(req("l", "5"))
	f.wantReceipt(f.mustSettle("l", total("0")), "returned 5")
	f.wantHold("l", "settled, granted 5")
	f.wantBalance("acme", "day", "S 3, H 0, A 7")
}

func TestR45_NothingIsGrantedUntilItFits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("A", "5"))
	f.mustReserve(req("B", "5"))
	f.wantReceipt(f.mustSettle("A", total("8")), "cost 8, excess 3, overrun 3")
	f.wantBalance("acme", "day", "S 8, H 5, A -3, overrun 3")
	f.mustDeny(req("next", "0.000000001"))
	_, err := f.Shrink(f.ctx, spendlimit.Shrinkage{Hold: "B", ID: "s", By: usd("3")})
	f.ok(err)
	f.mustDeny(req("next", "0.000000001")) // S + H is 10
	f.mustRelease("B")
	f.mustGrant(rest("next"), "2")
}

func TestR46_LateCostInItsOwnPeriod(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.limit(weekly("50"))
	f.clock.Set(d2.Add(-time.Minute))
	f.mustReserve(req("k", "6"))
	f.mustDispatch("k")
	f.clock.Set(d2.Add(time.Hour))
	f.mustReserve(req("today", "10"))
	f.wantBalanceAt("acme", "day", noon, "S 6, H 0, A 4, assumed 6")
	f.wantReceipt(f.mustSettle("k", total("2")), "cost 2, returned 4, late")
	f.wantBalanceAt("acme", "day", noon, "S 2, H 0, A 8") // room comes back there
	f.wantBalanceAt("acme", "day", d2, "S 0, H 10, A 0")
	f.wantBalance("acme", "week", "S 2, H 10, A 38")
	if b := f.balanceAt("acme", "day", noon); b.Period != "2026-05-01" {
		t.Errorf("period %s", b.Period)
	}
}

// Room goes back to the newest part first, cost comes from the oldest (section 1).
func TestR46_ReturnNewestPartFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.clock.Set(d2.Add(-time.Minute))
	f.mustReserve(req("k", "6"))
	f.clock.Set(d2.Add(time.Minute))
	_, err := f.Grow(f.ctx, spendlimit.Growth{Hold: "k", ID: "g", By: usd("3")})
	f.ok(err)
	for _, step := range []struct{ by, old, new string }{
		{"2", "S 0, H 6, A 4", "S 0, H 1, A 9"},
		{"3", "S 0, H 4, A 6", "S 0, H 0, A 10"},
	} {
		_, err := f.Shrink(f.ctx, spendlimit.Shrinkage{Hold: "k", ID: step.by, By: usd(step.by)})
		f.ok(err)
		f.wantBalanceAt("acme", "day", noon, step.old)
		f.wantBalanceAt("acme", "day", d2, step.new)
	}
	f.wantReceipt(f.mustSettle("k", total("7")), "cost 7, excess 3") // the rest falls on the newest part's day
	f.wantBalanceAt("acme", "day", noon, "S 4, H 0, A 6")
	f.wantBalanceAt("acme", "day", d2, "S 3, H 0, A 7")
}

// What was assumed is taken out of the newest part first.
func TestR46_RefundNewestPartFirst(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.clock.Set(d2.Add(-time.Minute))
	f.mustReserve(req("k", "6"))
	f.clock.Set(d2.Add(time.Minute))
	_, err := f.Grow(f.ctx, spendlimit.Growth{Hold: "k", ID: "g", By: usd("3")})
	f.ok(err)
	f.wantBalanceAt("acme", "day", noon, "S 0, H 6, A 4")
	f.wantBalanceAt("acme", "day", d2, "S 0, H 3, A 7")
	f.mustRecord("k", "u", "1") // the oldest part pays
	f.wantBalanceAt("acme", "day", noon, "S 1, H 5, A 4")
	f.clock.Advance(time.Hour)
	f.wantBalanceAt("acme", "day", noon, "S 6, H 0, A 4, assumed 5")
	f.wantBalanceAt("acme", "day", d2, "S 3, H 0, A 7, assumed 3")
	f.wantReceipt(f.mustSettle("k", total("5")), "cost 5, returned 4, late")
	f.wantBalanceAt("acme", "day", noon, "S 5, H 0, A 5")
	f.wantBalanceAt("acme", "day", d2, "S 0, H 0, A 10")
}

func TestR47_AGoneClientLosesNoCost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("20"))
	for _, k := range []string{"settled", "recorded", "released", "closed"} {
		f.mustReserve(req(k, "4"))
	}
	f.mustDispatch("closed")
	gone, cancel := context.WithCancel(f.ctx)
	cancel()
	_, err := f.Settle(gone, "settled", total("3"))
	f.ok(err)
	_, err = f.Record(gone, spendlimit.Usage{Hold: "recorded", ID: "u", Cost: total("1")})
	f.ok(err)
	_, err = f.Release(gone, "released")
	f.ok(err)
	f.ok(f.Close(gone, "closed"))
	f.wantBalance("acme", "day", "S 8, H 3, A 9, assumed 4")
	f.wantErr(f.Dispatch(gone, "recorded"), context.Canceled) // no paid call for a client that is gone
}

func TestR47_OwnDeadline(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("20"))
	f.mustReserve(req("k", "4"))
	g := newGate(f)
	close(g.open)
	gone, cancel := context.WithCancel(f.ctx)
	cancel()
	_, err := f.Settle(gone, "k", total("3"))
	f.ok(err)
	const look = 100 * time.Millisecond // the deadline counts from the store's first look at it
	if left := g.deadline.Sub(g.began); left <= 4*time.Second || left > 5*time.Second+look {
		t.Errorf("the store has %v, want 5 s", left)
	}
}

func TestR48_ZeroCostOfMeteredWork(t *testing.T) {
	t.Parallel()
	zero := func(free bool) spendlimit.Cost {
		c := spendlimit.Total(0)
		c.Metered, c.ZeroPrice = 500, free
		return c
	}
	for name, call := range map[string]func(f *fixture, c spendlimit.Cost) (spendlimit.Receipt, error){
		"settle": func(f *fixture, c spendlimit.Cost) (spendlimit.Receipt, error) { return f.Settle(f.ctx, "k", c) },
		"record": func(f *fixture, c spendlimit.Cost) (spendlimit.Receipt, error) {
			return f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "u", Cost: c})
		},
		"charge": func(f *fixture, c spendlimit.Cost) (spendlimit.Receipt, error) {
			return f.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: c})
		},
	} {
		for _, free := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/declared %v", name, free), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				f.limit(daily("10"))
				f.mustReserve(req("k", "4"))
				r, err := call(f, zero(free))
				f.ok(err)
				want := 1
				if free {
					want = 0
				}
				if (r.Anomaly == spendlimit.AnomalyZeroCost) == free || f.heard(spendlimit.EventAnomaly) != want {
					t.Errorf("anomaly %v, %d events, want %d", r.Anomaly, f.heard(spendlimit.EventAnomaly), want)
				}
			})
		}
	}
}

func TestR49_Charge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.limit(weekly("15"))
	f.limit(on("other", daily("10")))
	charge := func(id, cost string, at time.Time, accounts ...string) spendlimit.Receipt {
		f.Helper()
		r, err := f.Charge(f.ctx, spendlimit.Expense{ID: id, Accounts: accounts, Cost: total(cost), At: at})
		f.ok(err)
		return r
	}
	f.wantReceipt(charge("now", "4", time.Time{}, "acme", "other"), "cost 4")
	f.clock.Set(d2.Add(time.Hour))
	f.wantReceipt(charge("past", "8", noon, "acme"), "cost 8, overrun 2")
	f.wantBalanceAt("acme", "day", noon, "S 12, H 0, A -2, overrun 2")
	f.wantBalance("acme", "day", "S 0, H 0, A 10")
	f.wantBalance("acme", "week", "S 12, H 0, A 3")
	f.wantReceipt(charge("none left", "5", time.Time{}, "acme"), "cost 5, overrun 2")
	f.wantBalance("acme", "week", "S 17, H 0, A -2, overrun 2")
	f.wantBalanceAt("other", "day", noon, "S 4, H 0, A 6")

	f.unchanged(func() {
		f.wantReceipt(charge("past", "8", noon, "acme"), "cost 8, overrun 2, replayed")
		_, err := f.Charge(f.ctx, spendlimit.Expense{ID: "later", Accounts: names("acme"), Cost: total("1"), At: f.clock.Now().Add(time.Microsecond)})
		f.wantInvalid(err, "At")
	})
	charge("later", "1", f.clock.Now(), "acme") // this instant is not the future
	charge("nobody limits it", "1", time.Time{}, "unlimited")
	if got := f.kinds("unlimited"); got != "charge" {
		t.Errorf("entries %s", got)
	}
	if n := f.heard(spendlimit.EventOverrun); n != 3 {
		t.Errorf("%d overruns heard, want 3", n)
	}
}

func TestR50_Adjust(t *testing.T) {
	t.Parallel()
	adjust := func(f *fixture, a spendlimit.Adjustment) spendlimit.Receipt {
		f.Helper()
		a.Reason = "bill"
		r, err := f.Adjust(f.ctx, a)
		f.ok(err)
		return r
	}
	t.Run("of an account, in the period of At", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.mustCharge("c", "3")
		f.clock.Set(d2.Add(time.Hour))
		f.mustCharge("d", "1")
		f.wantReceipt(adjust(f, spendlimit.Adjustment{ID: "a", Account: "acme", At: noon, By: usd("-3")}), "cost -3")
		f.wantBalanceAt("acme", "day", noon, "S 0, H 0, A 10")
		f.wantReceipt(adjust(f, spendlimit.Adjustment{ID: "b", Account: "acme", By: usd("11")}), "cost 11, overrun 2")
		f.wantBalance("acme", "day", "S 12, H 0, A -2, overrun 2")
		f.wantReceipt(adjust(f, spendlimit.Adjustment{ID: "c2", Account: "acme", By: usd("-12")}), "cost -12")
		f.wantBalance("acme", "day", "S 0, H 0, A 10, overrun 2") // overrun never falls
	})
	t.Run("below 0 in any line", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(weekly("50"))
		f.mustCharge("c", "3")
		f.clock.Set(d2.Add(time.Hour))
		f.limit(daily("10"))
		f.mustCharge("d", "1")
		bad := spendlimit.Adjustment{ID: "a", Account: "acme", By: usd("-2"), Reason: "bill"} // week 4, day 1
		f.unchanged(func() {
			_, err := f.Adjust(f.ctx, bad)
			f.wantInvalid(err, "By")
		})
		bad.By = usd("-1")
		_, err := f.Adjust(f.ctx, bad)
		f.ok(err)
		f.wantBalance("acme", "week", "S 3, H 0, A 47")
	})
	t.Run("of a hold, in its periods", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.limit(on("B", daily("10")))
		f.mustReserve(req("root", "8"))
		f.mustReserve(child("c", "root", "4", "B"))
		f.mustSettle("c", total("3"))
		f.clock.Set(d2.Add(time.Hour))
		adjust(f, spendlimit.Adjustment{ID: "both", Hold: "c", By: usd("2")})
		f.wantBalanceAt("acme", "day", noon, "S 5, H 0, A 5")
		f.wantBalanceAt("B", "day", noon, "S 5, H 0, A 5")
		adjust(f, spendlimit.Adjustment{ID: "one", Hold: "c", Account: "B", By: usd("-1")})
		f.wantBalanceAt("acme", "day", noon, "S 5, H 0, A 5")
		f.wantBalanceAt("B", "day", noon, "S 4, H 0, A 6")
		f.wantBalance("acme", "day", "S 0, H 0, A 10")
		f.wantBalance("B", "day", "S 0, H 0, A 10")
		f.unchanged(func() {
			_, err := f.Adjust(f.ctx, spendlimit.Adjustment{ID: "none", Hold: "c", Account: "X", By: 1, Reason: "bill"})
			f.wantInvalid(err, "Account")
		})
	})
}

func TestR51_Source(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "5"))
	reported := total("3")
	reported.Source = spendlimit.Reported
	r, err := f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "u", Cost: reported})
	f.ok(err)
	s := f.mustSettle("k", total("3"))
	c, err := f.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: reported})
	f.ok(err)
	if r.Source != spendlimit.Reported || s.Source != spendlimit.Computed || c.Source != spendlimit.Reported {
		t.Errorf("receipts say %v, %v, %v", r.Source, s.Source, c.Source)
	}
	var got []spendlimit.Source
	for e, err := range f.Entries(f.ctx, "acme", 2) {
		f.ok(err)
		got = append(got, e.Source)
	}
	if fmt.Sprint(got) != fmt.Sprint([]spendlimit.Source{spendlimit.Reported, spendlimit.Computed, spendlimit.Reported}) {
		t.Errorf("entries say %v", got)
	}
}

func TestR52_UnknownCostCountsInEveryPeriod(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.limit(weekly("20"))
	f.limit(on("B", forever("10")))
	f.limit(on("C", forever("10")))
	f.mustReserve(spendlimit.Request{Key: "root", Accounts: names("acme", "B"), Amount: usd("8")})
	f.mustReserve(child("c", "root", "4", "C"))
	f.mustRecord("c", "u", "1")
	f.mustSettle("c", spendlimit.Unknown("crash"))
	f.Ledger = f.restart() // stored: a restart doesn't forget it
	f.wantBalance("acme", "day", "S 4, H 4, A 2, assumed 3, unpriced 1")
	f.wantBalance("acme", "week", "S 4, H 4, A 12, assumed 3, unpriced 1")
	f.wantBalance("B", "all", "S 4, H 4, A 2, assumed 3, unpriced 1")
	f.wantBalance("C", "all", "S 4, H 0, A 6, assumed 3, unpriced 1")
	for e, err := range f.Entries(f.ctx, "C", 3) {
		f.ok(err)
		if e.Kind != spendlimit.EntrySettle || e.Reason != "crash" {
			t.Errorf("entry %v with reason %q", e.Kind, e.Reason)
		}
	}
	f.mustSettle("c", total("2"))
	f.wantBalance("acme", "day", "S 2, H 4, A 4")
	f.wantBalance("acme", "week", "S 2, H 4, A 14")
	f.wantBalance("B", "all", "S 2, H 4, A 4")
	f.wantBalance("C", "all", "S 2, H 0, A 8")
}

func TestR53_UnpricedFreezes(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, l spendlimit.Limit) *fixture {
		f := newFixture(t)
		f.limit(l)
		f.limit(on("B", forever("100")))
		f.mustReserve(req("k", "10"))
		f.mustReserve(child("kid", "k", "4", "B"))
		f.mustReserve(spendlimit.Request{Key: "b", Accounts: names("B"), Amount: usd("1")})
		f.mustReserve(req("lost", "1"))
		f.mustSettle("lost", spendlimit.Unknown("lost"))
		return f
	}
	blocked := map[string]func(f *fixture) error{
		"reserve": func(f *fixture) error { _, err := f.Reserve(f.ctx, req("new", "1")); return err },
		"rest":    func(f *fixture) error { _, err := f.Reserve(f.ctx, rest("new")); return err },
		"free": func(f *fixture) error {
			_, err := f.Reserve(f.ctx, spendlimit.Request{Key: "new", Accounts: names("acme"), Free: true})
			return err
		},
		"split":               func(f *fixture) error { _, err := f.Reserve(f.ctx, share("new", "g", 2)); return err },
		"child":               func(f *fixture) error { _, err := f.Reserve(f.ctx, child("new", "k", "1")); return err },
		"child on B":          func(f *fixture) error { _, err := f.Reserve(f.ctx, child("new", "k", "1", "B")); return err },
		"check":               func(f *fixture) error { _, err := f.Check(f.ctx, req("new", "1")); return err },
		"grow":                func(f *fixture) error { return grow(f, "k") },
		"grow a child":        func(f *fixture) error { return grow(f, "kid") },
		"roll":                func(f *fixture) error { return roll(f, "k") },
		"roll a child's part": func(f *fixture) error { return roll(f, "kid") },
	}
	for name, call := range blocked {
		t.Run("blocks "+name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, forever("100"))
			f.unchanged(func() {
				err := call(f)
				f.wantErr(err, spendlimit.ErrUnpriced)
				if d := f.denial(err); d.Reason != spendlimit.ReasonUnpriced || d.Binding.Limit != "all" || d.Binding.Unpriced != 1 {
					t.Errorf("got %+v", d)
				}
			})
		})
		t.Run("allows "+name, func(t *testing.T) {
			t.Parallel()
			l := forever("100")
			l.OnUnpriced = spendlimit.Allow
			f := setup(t, l)
			f.ok(call(f))
		})
	}
	for name, call := range map[string]func(f *fixture) error{
		"settle": func(f *fixture) error { _, err := f.Settle(f.ctx, "k", total("1")); return err },
		"record": func(f *fixture) error {
			_, err := f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "u", Cost: total("1")})
			return err
		},
		"extend": func(f *fixture) error {
			_, err := f.Extend(f.ctx, spendlimit.Extension{Hold: "k", TTL: time.Hour})
			return err
		},
		"release":       func(f *fixture) error { _, err := f.Release(f.ctx, "k"); return err },
		"other account": func(f *fixture) error { return grow(f, "b") },
		"shrink": func(f *fixture) error {
			_, err := f.Shrink(f.ctx, spendlimit.Shrinkage{Hold: "k", ID: "s", By: 1})
			return err
		},
		"charge": func(f *fixture) error {
			_, err := f.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: total("1")})
			return err
		},
	} {
		t.Run(name+" goes on", func(t *testing.T) {
			t.Parallel()
			f := setup(t, forever("100"))
			f.ok(call(f))
		})
	}
	t.Run("only in its period", func(t *testing.T) {
		t.Parallel()
		f := setup(t, daily("100"))
		f.mustDeny(req("new", "1"))
		f.clock.Set(d2)
		f.mustReserve(req("new", "1"))
	})
	t.Run("a soft limit refuses nothing", func(t *testing.T) {
		t.Parallel()
		l := daily("100")
		l.Mode = spendlimit.Soft
		f := setup(t, l)
		f.mustReserve(req("new", "1"))
	})
}

func grow(f *fixture, k string) error {
	_, err := f.Grow(f.ctx, spendlimit.Growth{Hold: k, ID: "g", By: usd("1")})
	return err
}

func roll(f *fixture, k string) error {
	_, err := f.Extend(f.ctx, spendlimit.Extension{Hold: k, ID: "r", Roll: true})
	return err
}

func TestR54_APriceAtLast(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("20"))
	f.mustReserve(req("ended", "5"))
	f.mustReserve(req("alive", "5"))
	f.mustSettle("ended", spendlimit.Unknown("lost"))
	_, err := f.Record(f.ctx, spendlimit.Usage{Hold: "alive", ID: "u", Cost: spendlimit.Unknown("no price")})
	f.ok(err)
	f.wantBalance("acme", "day", "S 5, H 5, A 10, assumed 5, unpriced 2")
	f.mustRecord("alive", "u", "2")
	f.mustDeny(req("new", "1")) // one is left
	f.wantReceipt(f.mustSettle("ended", total("7")), "cost 7, excess 2, late")
	f.wantBalance("acme", "day", "S 9, H 3, A 8")
	f.mustReserve(req("new", "1"))
}
