package spendlimit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stint-go/stint/spendlimit"
)

const step = time.Microsecond

// wantPeriod compares the label and the bounds of the period that contains an instant.
func (f *fixture) wantPeriod(limit string, instant time.Time, want string) {
	f.Helper()
	b := f.balanceAt("acme", limit, instant)
	end := "never"
	if !b.End.IsZero() {
		end = b.End.Format(time.RFC3339)
	}
	if got := fmt.Sprintf("%s [%s, %s)", b.Period, b.Start.Format(time.RFC3339), end); got != want {
		f.Errorf("period of %s at %v:\n got %s\nwant %s", limit, instant, got, want)
	}
}

// lasting is a request with a TTL.
func lasting(key, amount string, ttl time.Duration) spendlimit.Request {
	r := req(key, amount)
	r.TTL = ttl
	return r
}

func TestT6_ForgottenHoldsLapse(t *testing.T) {
	t.Parallel()
	for name, sweep := range map[string]bool{"swept": true, "not swept": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("1"))
			for i := range 1000 {
				f.mustReserve(lasting(keyN("k", i), "0.001", time.Minute))
			}
			f.mustDeny(req("early", "0.001"))
			f.clock.Advance(61 * time.Second)
			if sweep {
				if n, err := f.Sweep(f.ctx, 5000); n != 1000 || err != nil {
					t.Fatalf("swept %d, %v", n, err)
				}
			}
			f.wantBalance("acme", "day", "S 0, H 0, A 1")
			f.mustReserve(req("new", "1"))
			f.wantHold("k999", "lapsed-free, granted 0.001")
			if n := f.heard(spendlimit.EventLapsed); n != 1000 {
				t.Errorf("%d events, want 1000", n)
			}
		})
	}
}

func TestT17_LapsedWhileAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(lasting("k", "4", time.Minute))
	led := f.restart()
	f.clock.Advance(time.Minute)
	f.ok(led.Dispatch(f.ctx, "k")) // the last instant of its life
	f.clock.Advance(step)
	f.wantErr(led.Dispatch(f.ctx, "k"), spendlimit.ErrLapsed)
	f.wantBalance("acme", "day", "S 4, H 0, A 6, assumed 4")
}

func TestT22_DayOfShanghai(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := daily("10")
	l.Zone = "Asia/Shanghai"
	f.limit(l)
	f.mustCharge("c", "10")
	midnight := at("2026-05-01T16:00:00Z")
	f.clock.Set(midnight.Add(-time.Nanosecond))
	f.mustDeny(req("k", "1"))
	f.wantPeriod("day", time.Time{}, "2026-05-01 [2026-04-30T16:00:00Z, 2026-05-01T16:00:00Z)")
	f.clock.Set(midnight)
	f.mustReserve(req("k", "1"))
	f.wantPeriod("day", time.Time{}, "2026-05-02 [2026-05-01T16:00:00Z, 2026-05-02T16:00:00Z)")
}

func TestT23_FirstUseInTheAfternoon(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	day := daily("10")
	day.Zone = "America/New_York"
	f.limit(day)
	f.limit(spendlimit.Limit{
		Account: "acme", Name: "week", Kind: spendlimit.Week, WeekStart: spendlimit.Sunday, Zone: "America/New_York", Amount: usd("50"),
	})
	f.clock.Set(at("2026-05-06T15:43:00-04:00")) // a Wednesday
	f.mustReserve(req("k", "1"))
	f.wantPeriod("day", time.Time{}, "2026-05-06 [2026-05-06T04:00:00Z, 2026-05-07T04:00:00Z)")
	f.wantPeriod("week", time.Time{}, "2026-05-03 [2026-05-03T04:00:00Z, 2026-05-10T04:00:00Z)")
}

func TestT34_ClockSteps(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	const hour, week = time.Hour, 7 * 24 * time.Hour
	f.mustReserve(lasting("a", "4", hour))

	f.clock.Advance(-hour)
	if h := f.mustReserve(lasting("b", "2", hour)); !h.CreatedAt.Equal(noon) {
		t.Errorf("created at %v, before what the account has seen", h.CreatedAt)
	}
	f.clock.Advance(-week)
	f.wantPeriod("day", time.Time{}, "2026-05-01 [2026-05-01T00:00:00Z, 2026-05-02T00:00:00Z)")
	f.mustDeny(req("c", "5")) // no other day was opened
	f.wantHold("a", "open, granted 4, own 4")

	f.clock.Set(noon.Add(week))
	f.mustReserve(lasting("d", "10", hour))
	f.wantPeriod("day", time.Time{}, "2026-05-08 [2026-05-08T00:00:00Z, 2026-05-09T00:00:00Z)")
	f.wantHold("a", "lapsed-free, granted 4")

	f.clock.Advance(-week)
	f.mustDeny(req("e", "1"))
	f.wantBalance("acme", "day", "S 0, H 10, A 0")
	f.wantBalanceAt("acme", "day", noon, "S 0, H 0, A 10")
	f.wantHold("a", "lapsed-free, granted 4")
	f.wantHold("d", "open, granted 10, own 10")
	f.clock.Set(noon.Add(week + hour))
	f.wantHold("d", "open, granted 10, own 10")
	f.clock.Advance(step)
	f.wantHold("d", "lapsed-free, granted 10")

	last := time.Time{}
	for e, err := range f.Entries(f.ctx, "acme", 0) {
		f.ok(err)
		if e.At.Before(last) {
			t.Errorf("entry %d at %v is before the one before it, at %v", e.Seq, e.At, last)
		}
		last = e.At
	}
}

func TestT41_ZoneChangedAtNoon(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	state := f.limit(daily("10"))
	f.mustCharge("before", "1")
	l := daily("10")
	l.Zone = "America/Los_Angeles"
	f.change(l, state.Fingerprint)
	f.mustCharge("after", "2")
	f.clock.Set(d2)
	f.mustCharge("between", "3")
	f.clock.Set(at("2026-05-02T07:00:00Z"))
	f.mustCharge("new", "4")

	f.wantPeriod("day", noon, "2026-05-01 [2026-05-01T00:00:00Z, 2026-05-02T00:00:00Z)")
	f.wantBalanceAt("acme", "day", d2.Add(-step), "S 3, H 0, A 7")
	f.wantPeriod("day", d2, "2026-05-01 [2026-05-02T00:00:00Z, 2026-05-02T07:00:00Z)")
	f.wantBalanceAt("acme", "day", at("2026-05-02T06:59:59.999999Z"), "S 3, H 0, A 7")
	f.wantPeriod("day", f.clock.Now(), "2026-05-02 [2026-05-02T07:00:00Z, 2026-05-03T07:00:00Z)")
	f.wantBalance("acme", "day", "S 4, H 0, A 6")
}

func TestT50_DayOfAdjustAndCharge(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustCharge("c1", "5")
	f.clock.Set(d2)
	f.mustCharge("c2", "2") // exactly at midnight
	_, err := f.Adjust(f.ctx, spendlimit.Adjustment{ID: "a", Account: "acme", At: noon, By: usd("-1.5"), Reason: "refund"})
	f.ok(err)
	f.wantBalanceAt("acme", "day", d2.Add(-step), "S 3.5, H 0, A 6.5")
	f.wantBalance("acme", "day", "S 2, H 0, A 8")

	f.mustReserve(req("k", "1"))
	f.mustSettle("k", total("1"))
	f.clock.Advance(24 * time.Hour)
	_, err = f.Adjust(f.ctx, spendlimit.Adjustment{ID: "b", Hold: "k", By: usd("0.5"), Reason: "bill"})
	f.ok(err)
	f.wantBalanceAt("acme", "day", d2, "S 3.5, H 0, A 6.5")
	f.wantBalance("acme", "day", "S 0, H 0, A 10")
}

func TestT51_StalledPastExpiry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(lasting("k", "10", time.Minute))
	f.clock.Advance(time.Minute + step)
	f.mustReserve(req("k2", "9"))
	f.unchanged(func() {
		_, err := f.Extend(f.ctx, spendlimit.Extension{Hold: "k", TTL: time.Hour})
		f.wantErr(err, spendlimit.ErrLapsed)
		f.wantErr(f.Dispatch(f.ctx, "k"), spendlimit.ErrLapsed)
	})
	f.wantReceipt(f.mustSettle("k", total("3")), "cost 3, excess 3, overrun 2, late")
	f.wantHold("k2", "open, granted 9, own 9")
	f.wantBalance("acme", "day", "S 3, H 9, A -2, overrun 2")
}

func TestR7_ZoneNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(forever("10"))
	for _, zone := range []string{"Local", "Mars/Olympus_Mons", "../etc/passwd", "europe berlin", "+02:00"} {
		l := daily("10")
		l.Zone = zone
		f.unchanged(func() {
			if _, err := f.SetLimit(f.ctx, l, ""); !errors.Is(err, spendlimit.ErrInvalid) {
				t.Errorf("zone %q: error %v", zone, err)
			}
		})
	}
	if state := f.limit(daily("10")); state.Limit.Zone != "UTC" {
		t.Errorf("no zone became %q", state.Limit.Zone)
	}
}

// Berlin's clock shows 02:30 twice on 2026-10-25. What counts is the instant, in whatever zone it is written.
func TestR7_InstantsNotWallClocks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	berlin, err := time.LoadLocation("Europe/Berlin")
	f.ok(err)
	l := daily("10")
	l.Zone = "Europe/Berlin"
	f.limit(l)
	first := at("2026-10-25T02:30:00+02:00")
	f.clock.Set(first.In(berlin))
	f.mustReserve(lasting("k", "4", 59*time.Minute))
	f.clock.Set(first.Add(59 * time.Minute).In(berlin))
	f.wantHold("k", "open, granted 4, own 4")
	f.clock.Set(first.Add(time.Hour).In(berlin)) // 02:30 again
	f.wantHold("k", "lapsed-free, granted 4")
	f.mustCharge("c", "1")
	_, err = f.Charge(f.ctx, spendlimit.Expense{
		ID: "d", Accounts: names("acme"), Cost: total("2"), At: first.In(time.FixedZone("", -11*60*60)),
	})
	f.ok(err)
	f.wantPeriod("day", time.Time{}, "2026-10-25 [2026-10-24T22:00:00Z, 2026-10-25T23:00:00Z)")
	f.wantBalance("acme", "day", "S 3, H 0, A 7")
}

func TestR8_PeriodsAreNew(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	state := f.limit(daily("10"))
	f.mustCharge("c", "8")
	f.clock.Set(noon.AddDate(1, 0, 0))
	f.wantPeriod("day", time.Time{}, "2027-05-01 [2027-05-01T00:00:00Z, 2027-05-02T00:00:00Z)")
	f.unchanged(func() { f.wantBalance("acme", "day", "S 0, H 0, A 10") }) // shown, not written
	f.mustReserve(req("k", "9"))
	f.wantBalance("acme", "day", "S 0, H 9, A 1")
	f.change(daily("20"), state.Fingerprint)
	f.wantPeriod("day", noon, "2026-05-01 [2026-05-01T00:00:00Z, 2026-05-02T00:00:00Z)")
	f.wantBalanceAt("acme", "day", noon, "S 8, H 0, A 2")
	f.wantBalance("acme", "day", "S 0, H 9, A 11")
}

// Another calendar acts from the end of the current period on. 2026-05-01 is a Friday.
func TestR9_NewCalendar(t *testing.T) {
	t.Parallel()
	day := daily("10")
	week, month := day, day
	week.Kind, month.Kind = spendlimit.Week, spendlimit.Month
	sunday, ides, berlin := week, month, day
	sunday.WeekStart, ides.Anchor, berlin.Zone = spendlimit.Sunday, 15, "Europe/Berlin"
	losAngeles := day
	losAngeles.Zone = "America/Los_Angeles"
	for name, tc := range map[string]struct {
		old           spendlimit.Limit
		news          []spendlimit.Limit
		current, next string
	}{
		"day to week": {day, []spendlimit.Limit{week},
			"2026-05-01 [2026-05-01T00:00:00Z, 2026-05-02T00:00:00Z)", "2026-05-02 [2026-05-02T00:00:00Z, 2026-05-04T00:00:00Z)"},
		"day to month": {day, []spendlimit.Limit{month},
			"2026-05-01 [2026-05-01T00:00:00Z, 2026-05-02T00:00:00Z)", "2026-05-02 [2026-05-02T00:00:00Z, 2026-06-01T00:00:00Z)"},
		"week to day": {week, []spendlimit.Limit{day},
			"2026-04-27 [2026-04-27T00:00:00Z, 2026-05-04T00:00:00Z)", "2026-05-04 [2026-05-04T00:00:00Z, 2026-05-05T00:00:00Z)"},
		"week start": {week, []spendlimit.Limit{sunday},
			"2026-04-27 [2026-04-27T00:00:00Z, 2026-05-04T00:00:00Z)", "2026-05-04 [2026-05-04T00:00:00Z, 2026-05-10T00:00:00Z)"},
		"anchor": {month, []spendlimit.Limit{ides},
			"2026-05-01 [2026-05-01T00:00:00Z, 2026-06-01T00:00:00Z)", "2026-06-01 [2026-06-01T00:00:00Z, 2026-06-15T00:00:00Z)"},
		"zone further east": {day, []spendlimit.Limit{berlin},
			"2026-05-01 [2026-05-01T00:00:00Z, 2026-05-02T00:00:00Z)", "2026-05-02 [2026-05-02T00:00:00Z, 2026-05-02T22:00:00Z)"},
		"two changes in a day": {day, []spendlimit.Limit{losAngeles, week},
			"2026-05-01 [2026-05-01T00:00:00Z, 2026-05-02T00:00:00Z)", "2026-05-02 [2026-05-02T00:00:00Z, 2026-05-04T00:00:00Z)"},
	} {
		for _, used := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, used %v", name, used), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				state := f.limit(tc.old)
				if used {
					f.mustCharge("c", "1")
				}
				for _, l := range tc.news {
					state = f.change(l, state.Fingerprint)
				}
				f.wantPeriod("day", time.Time{}, tc.current)
				next := f.balance("acme", "day").End
				f.wantPeriod("day", next, tc.next)
				f.clock.Set(next)
				f.mustCharge("d", "1") // writes the row
				f.wantPeriod("day", time.Time{}, tc.next)
				f.wantPeriod("day", next.Add(-step), tc.current)
			})
		}
	}
}

func TestR9_TotalStaysTotal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	state := f.limit(forever("10"))
	l := forever("10")
	l.Kind = spendlimit.Day
	f.unchanged(func() {
		_, err := f.SetLimit(f.ctx, l, state.Fingerprint)
		f.wantErr(err, spendlimit.ErrInvalid)
	})
	f.wantPeriod("all", time.Time{}, "total [0001-01-01T00:00:00Z, never)")
}

func TestR32_TTL(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	for ttl, want := range map[time.Duration]time.Duration{0: 10 * time.Minute, time.Second: time.Second, 24 * time.Hour: 24 * time.Hour} {
		if h := f.mustReserve(lasting("ttl "+ttl.String(), "1", ttl)); !h.ExpiresAt.Equal(noon.Add(want)) {
			t.Errorf("TTL %v: expires at %v", ttl, h.ExpiresAt)
		}
	}
	for _, ttl := range []time.Duration{-1, time.Second - 1, 24*time.Hour + 1} {
		f.unchanged(func() {
			_, err := f.Reserve(f.ctx, lasting("bad", "1", ttl))
			f.wantErr(err, spendlimit.ErrInvalid)
			_, err = f.Extend(f.ctx, spendlimit.Extension{Hold: "ttl 0s", TTL: ttl})
			f.wantErr(err, spendlimit.ErrInvalid)
		})
	}
}

// Nobody sweeps: every read and every step sees for itself that a hold's time is over.
func TestR33_ExpiryActsOnItsOwn(t *testing.T) {
	t.Parallel()
	for name, see := range map[string]func(f *fixture){
		"Balances": func(f *fixture) { f.wantBalance("acme", "day", "S 4, H 0, A 6, assumed 4") },
		"Hold": func(f *fixture) {
			f.wantHold("open", "lapsed-free, granted 6")
			f.wantHold("sent", "lapsed-charged, granted 4, assumed 4")
		},
		"Holds": func(f *fixture) {
			for h, err := range f.Holds(f.ctx, spendlimit.HoldFilter{Account: "acme", Live: true}) {
				f.Errorf("lists %+v, %v", h, err)
			}
		},
		"Check": func(f *fixture) {
			offer, err := f.Check(f.ctx, req("k", "6"))
			if offer.Amount != usd("6") || err != nil {
				f.Errorf("offers %+v, %v", offer, err)
			}
		},
		"Reserve":      func(f *fixture) { f.mustReserve(req("k", "6")) },
		"Reserve less": func(f *fixture) { f.mustReserve(req("k", "1")) },
		"Reserve more": func(f *fixture) {
			if d := f.mustDeny(req("k", "7")); d.WaitHolds || d.Binding.Available != usd("6") {
				f.Errorf("refusal %+v", d)
			}
		},
		"Charge": func(f *fixture) { f.wantReceipt(f.mustCharge("c", "6"), "cost 6") },
		"Verify": func(f *fixture) { f.verify() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("10"))
			f.mustReserve(lasting("open", "6", time.Minute))
			f.mustReserve(lasting("sent", "4", time.Minute))
			f.mustDispatch("sent")
			f.clock.Advance(time.Minute)
			f.wantBalance("acme", "day", "S 0, H 10, A 0")
			f.clock.Advance(time.Hour)
			see(f)
			if ended, err := f.Hold(f.ctx, "open"); err != nil || !ended.EndedAt.Equal(noon.Add(time.Minute+step)) {
				t.Errorf("ended %+v, %v", ended, err)
			}
		})
	}
}

// More holds are due than one step ends: a refusal may not come before the last of them.
func TestR33_ManyDue(t *testing.T) {
	t.Parallel()
	const n = 2*spendlimit.MaxDue + 500
	for name, ask := range map[string]func(f *fixture) error{
		"Reserve": func(f *fixture) error { _, err := f.Reserve(f.ctx, req("k", "2.5")); return err },
		"Check":   func(f *fixture) error { _, err := f.Check(f.ctx, req("k", "2.5")); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(forever("2.5"))
			for i := range n {
				f.mustReserve(req(keyN("k", i), "0.001"))
			}
			f.clock.Advance(time.Hour)
			f.ok(ask(f))
		})
	}
}

// A hold of yesterday: whatever becomes of it today is yesterday's (R34), and today starts whole.
func TestR34_DayTag(t *testing.T) {
	t.Parallel()
	const today = "S 0, H 10, A 0"
	for name, tc := range map[string]struct {
		end  func(f *fixture)
		want string // yesterday's balance
	}{
		"record":         {func(f *fixture) { f.mustRecord("k", "u", "4") }, "S 4, H 6, A 0"},
		"settle":         {func(f *fixture) { f.mustSettle("k", total("7")) }, "S 7, H 0, A 3"},
		"settle above":   {func(f *fixture) { f.mustSettle("k", total("12")) }, "S 12, H 0, A -2, overrun 2"},
		"settle unknown": {func(f *fixture) { f.mustSettle("k", spendlimit.Unknown("lost")) }, "S 10, H 0, A 0, assumed 10, unpriced 1"},
		"release":        {func(f *fixture) { f.mustRelease("k") }, "S 0, H 0, A 10"},
		"close":          {func(f *fixture) { f.ok(f.Close(f.ctx, "k")) }, "S 0, H 0, A 10"},
		"shrink": {func(f *fixture) {
			_, err := f.Shrink(f.ctx, spendlimit.Shrinkage{Hold: "k", ID: "s", By: usd("4")})
			f.ok(err)
		}, "S 0, H 6, A 4"},
		"lapse open": {func(f *fixture) { f.clock.Advance(time.Hour) }, "S 0, H 0, A 10"},
		"lapse dispatched": {func(f *fixture) {
			f.mustDispatch("k")
			f.clock.Advance(time.Hour)
		}, "S 10, H 0, A 0, assumed 10"},
		"late settle": {func(f *fixture) {
			f.clock.Advance(36 * time.Hour)
			f.mustSettle("k", total("3"))
		}, "S 3, H 0, A 7"},
		"late refund": {func(f *fixture) {
			f.mustDispatch("k")
			f.clock.Advance(36 * time.Hour)
			f.wantReceipt(f.mustSettle("k", total("3")), "cost 3, returned 7, late")
		}, "S 3, H 0, A 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("10"))
			f.clock.Set(d2.Add(-time.Minute))
			f.mustReserve(lasting("k", "10", time.Hour))
			f.clock.Set(d2)
			f.wantBalance("acme", "day", "S 0, H 0, A 10")
			f.mustReserve(lasting("today", "10", 24*time.Hour))
			tc.end(f)
			f.wantBalanceAt("acme", "day", noon, tc.want)
			if f.clock.Now().Before(d2.Add(24 * time.Hour)) {
				f.wantBalanceAt("acme", "day", d2, today)
			} else {
				f.wantBalanceAt("acme", "day", d2, "S 0, H 0, A 10")
			}
		})
	}
}

// A member of yesterday is no sibling today (R22).
func TestR34_GroupStartsWhole(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	r := lasting("a", "0", time.Hour)
	r.Split = spendlimit.Split{Group: "g", Slots: 4}
	f.clock.Set(d2.Add(-time.Minute))
	f.mustReserve(r)
	f.clock.Set(d2)
	for _, key := range []string{"b", "c", "d", "e"} {
		r.Key = key
		f.mustReserve(r)
		f.wantHold(key, "open, granted 2.5, own 2.5")
	}
}

func TestR35_NeverShorter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	h := f.mustReserve(lasting("k", "4", time.Hour))
	f.unchanged(func() {
		_, err := h.Extend(f.ctx, spendlimit.Extension{TTL: time.Minute})
		f.ok(err)
	})
	_, err := h.Extend(f.ctx, spendlimit.Extension{TTL: 2 * time.Hour})
	f.ok(err)
	f.clock.Advance(2 * time.Hour)
	f.wantHold("k", "open, granted 4, own 4")
	f.clock.Advance(step)
	f.wantHold("k", "lapsed-free, granted 4")
}

func TestR35_LifeOfThirtyDays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(forever("10"))
	h := f.mustReserve(lasting("k", "4", 24*time.Hour))
	end := noon.AddDate(0, 0, 30)
	for f.clock.Now().Before(end) {
		_, err := h.Extend(f.ctx, spendlimit.Extension{TTL: 24 * time.Hour})
		f.ok(err)
		f.clock.Advance(23 * time.Hour)
	}
	f.clock.Set(end)
	f.wantHold("k", "open, granted 4, own 4")
	f.clock.Advance(step)
	f.wantHold("k", "lapsed-free, granted 4")
}

// rollFixture has a dispatched hold of 10 of D1, of which 4 are spent, on a day limit and a week limit; it is 00:10 on D2.
func rollFixture(t *testing.T) *fixture {
	f := newFixture(t)
	f.limit(daily("10"))
	f.limit(spendlimit.Limit{Account: "acme", Name: "week", Kind: spendlimit.Week, Amount: usd("20")})
	f.clock.Set(d2.Add(-time.Minute))
	f.mustReserve(lasting("k", "10", 30*time.Minute))
	f.mustRecord("k", "u", "4")
	f.clock.Set(d2.Add(10 * time.Minute))
	return f
}

func (f *fixture) roll(min string) (spendlimit.Receipt, error) {
	return f.Extend(f.ctx, spendlimit.Extension{Hold: "k", ID: "roll", Roll: true, TTL: time.Hour, Min: usd(min)})
}

func TestR36_RollWhole(t *testing.T) {
	t.Parallel()
	f := rollFixture(t)
	r, err := f.roll("0")
	f.ok(err)
	f.wantReceipt(r, "granted 6, own 6")
	f.wantBalanceAt("acme", "day", noon, "S 4, H 0, A 6")
	f.wantBalance("acme", "day", "S 0, H 6, A 4")
	f.wantBalance("acme", "week", "S 4, H 6, A 10")
	f.unchanged(func() {
		r, err = f.roll("0")
		f.ok(err)
		f.wantReceipt(r, "granted 6, own 6, replayed")
		_, err = f.roll("1")
		f.wantErr(err, spendlimit.ErrKeyReused)
	})
	f.clock.Advance(time.Hour) // the new expiry
	f.mustSettle("k", total("9"))
	f.wantBalanceAt("acme", "day", noon, "S 4, H 0, A 6")
	f.wantBalance("acme", "day", "S 5, H 0, A 5")
	f.wantBalance("acme", "week", "S 9, H 0, A 11")
}

func TestR36_RollCut(t *testing.T) {
	t.Parallel()
	f := rollFixture(t)
	f.mustCharge("c", "5")
	for _, min := range []string{"0", "6"} {
		f.unchanged(func() {
			_, err := f.roll(min)
			f.denial(err)
		})
	}
	r, err := f.roll("5")
	f.ok(err)
	f.wantReceipt(r, "granted 5, returned 1, own 5")
	f.wantBalanceAt("acme", "day", noon, "S 4, H 0, A 6")
	f.wantBalance("acme", "day", "S 5, H 5, A 0")
	f.wantBalance("acme", "week", "S 9, H 5, A 6")
	f.wantHold("k", "dispatched, granted 10, own 5, recorded 4")
}

// The week is wholly taken; what the hold has of it, it keeps.
func TestR36_SamePeriodNetsToZero(t *testing.T) {
	t.Parallel()
	f := rollFixture(t)
	_, err := f.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: total("10"), At: noon})
	f.ok(err)
	f.wantBalance("acme", "week", "S 14, H 6, A 0")
	r, err := f.roll("0")
	f.ok(err)
	f.wantReceipt(r, "granted 6, own 6")
	f.wantBalance("acme", "day", "S 0, H 6, A 4")
	f.wantBalance("acme", "week", "S 14, H 6, A 0")
}

func TestR36_ChildrenAreNotCut(t *testing.T) {
	t.Parallel()
	f := rollFixture(t)
	f.mustReserve(spendlimit.Request{Key: "child", Parent: "k", Amount: usd("4"), TTL: time.Hour})
	f.mustCharge("c", "7") // leaves 3 on D2, less than the child's room
	f.unchanged(func() {
		_, err := f.roll("1")
		f.denial(err)
	})
	_, err := f.Adjust(f.ctx, spendlimit.Adjustment{ID: "a", Account: "acme", By: usd("-2"), Reason: "refund"})
	f.ok(err)
	r, err := f.roll("1")
	f.ok(err)
	f.wantReceipt(r, "granted 5, returned 1, own 1, children 1")
	f.wantHold("child", "open, granted 4, own 4")
	f.mustSettle("child", total("4"))
	f.wantBalanceAt("acme", "day", noon, "S 4, H 0, A 6")
	f.wantBalance("acme", "day", "S 9, H 1, A 0")
}

func TestR37_GrowInNewPeriod(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.clock.Set(d2.Add(-time.Minute))
	f.mustReserve(lasting("k", "10", time.Hour))
	f.clock.Set(d2)
	f.mustCharge("c", "6")
	grow := spendlimit.Growth{Hold: "k", ID: "g", By: usd("5")}
	f.unchanged(func() {
		_, err := f.Grow(f.ctx, grow)
		f.denial(err)
	})
	grow.Min = usd("2")
	r, err := f.Grow(f.ctx, grow)
	f.ok(err)
	f.wantReceipt(r, "granted 4, own 14")
	f.unchanged(func() {
		r, err = f.Grow(f.ctx, grow)
		f.ok(err)
		f.wantReceipt(r, "granted 4, own 14, replayed")
	})
	grow.By = usd("6")
	_, err = f.Grow(f.ctx, grow)
	f.wantErr(err, spendlimit.ErrKeyReused)
	f.wantBalanceAt("acme", "day", noon, "S 0, H 10, A 0")
	f.wantBalance("acme", "day", "S 6, H 4, A 0")

	f.mustSettle("k", total("11")) // the older part first
	f.wantBalanceAt("acme", "day", noon, "S 10, H 0, A 0")
	f.wantBalance("acme", "day", "S 7, H 0, A 3")
}

func TestR37_GrowFromParent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("root", "10"))
	f.mustReserve(spendlimit.Request{Key: "child", Parent: "root", Amount: usd("4")})
	f.unchanged(func() {
		_, err := f.Grow(f.ctx, spendlimit.Growth{Hold: "child", ID: "g", By: usd("7")})
		if d := f.denial(err); d.Reason != spendlimit.ReasonParent || d.Parent != "root" {
			t.Errorf("refusal %+v", d)
		}
	})
	_, err := f.Grow(f.ctx, spendlimit.Growth{Hold: "child", ID: "g", By: usd("6")})
	f.ok(err)
	f.wantHold("root", "open, granted 10")
	f.wantHold("child", "open, granted 4, own 10")
	f.wantBalance("acme", "day", "S 0, H 10, A 0")
}

func TestR38_ShrinkAtMostOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "10"))
	f.mustReserve(spendlimit.Request{Key: "child", Parent: "k", Amount: usd("4")})
	shrink := spendlimit.Shrinkage{Hold: "k", ID: "s", By: usd("6.000000001")}
	f.unchanged(func() {
		_, err := f.Shrink(f.ctx, shrink)
		f.wantErr(err, spendlimit.ErrInvalid)
	})
	shrink.By = usd("6")
	r, err := f.Shrink(f.ctx, shrink)
	f.ok(err)
	f.wantReceipt(r, "returned 6, children 1")
	f.unchanged(func() {
		r, err = f.Shrink(f.ctx, shrink)
		f.ok(err)
		f.wantReceipt(r, "returned 6, children 1, replayed")
	})
	f.wantBalance("acme", "day", "S 0, H 4, A 6")
	_, err = f.Shrink(f.ctx, spendlimit.Shrinkage{Hold: "child", ID: "s", By: usd("1")}) // to its parent
	f.ok(err)
	f.wantHold("k", "open, granted 10, own 1")
	f.wantBalance("acme", "day", "S 0, H 4, A 6")
}

func TestR39_CarryHolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := daily("10")
	l.CarryHolds = true
	f.limit(l)
	f.clock.Set(d2.Add(-time.Minute))
	f.mustReserve(lasting("k", "10", time.Hour))
	f.clock.Set(d2)
	f.wantBalance("acme", "day", "S 0, H 0, A 0")
	if d := f.mustDeny(req("new", "0.000000001")); d.Reason != spendlimit.ReasonHeld || !d.WaitHolds {
		t.Errorf("refusal %+v", d)
	}
	f.mustRecord("k", "u", "4")
	f.wantBalanceAt("acme", "day", noon, "S 4, H 6, A 0")
	f.wantBalance("acme", "day", "S 0, H 0, A 4")
	f.mustSettle("k", total("4"))
	f.wantBalanceAt("acme", "day", noon, "S 4, H 0, A 6")
	f.mustReserve(req("new", "10"))
	f.wantBalance("acme", "day", "S 0, H 10, A 0")
}

// A limit may begin to carry holds, and stop, while some are held.
func TestR39_CarryHoldsFromNowOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	plain := daily("10")
	carrying := plain
	carrying.CarryHolds = true
	state := f.limit(plain)
	f.clock.Set(d2.Add(-time.Minute))
	f.mustReserve(lasting("k", "4", time.Hour))
	f.clock.Set(d2)
	f.mustReserve(lasting("l", "3", time.Hour))
	f.wantBalance("acme", "day", "S 0, H 3, A 7")
	state = f.change(carrying, state.Fingerprint)
	f.wantBalance("acme", "day", "S 0, H 3, A 3")
	f.mustSettle("k", total("1"))
	f.wantBalance("acme", "day", "S 0, H 3, A 7")
	state = f.change(plain, state.Fingerprint)
	f.mustSettle("l", total("1"))
	f.wantBalance("acme", "day", "S 1, H 0, A 9")
	f.change(carrying, state.Fingerprint)
	f.wantBalance("acme", "day", "S 1, H 0, A 9")
	f.mustReserve(req("all", "9"))
	f.verify()
}

// A clock outside the years 1 to 9999 stays in the calendar's first or last period, which is one row: else each hold
// would find a new one.
func TestR8_ClockOutsideTheCalendar(t *testing.T) {
	t.Parallel()
	for _, year := range []int{-5000, 0, 10000, 200000} {
		f := newFixture(t)
		f.clock.Set(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC))
		state := f.limit(daily("10"))
		f.limit(forever("20"))
		f.mustReserve(req("a", "10"))
		f.mustDeny(req("b", "10"))
		f.wantBalance("acme", "day", "S 0, H 10, A 0")
		f.change(daily("25"), state.Fingerprint) // acts on the period of the hold
		f.mustReserve(req("c", "10"))
		f.mustDeny(req("d", "5")) // by the total
		f.wantBalance("acme", "day", "S 0, H 20, A 5")
	}
}

// At counts in the period that contains it, at the edges of the calendar and at the instant 0 too.
func TestR49_EdgesOfAt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	charge := func(id string, at time.Time) error {
		_, err := f.Charge(f.ctx, spendlimit.Expense{ID: id, Accounts: names("acme"), Cost: total("1"), At: at})
		return err
	}
	year := func(n int) time.Time { return time.Date(n, 1, 1, 0, 0, 0, 0, time.UTC) }
	f.ok(charge("before", year(-3)))
	f.ok(charge("before too", year(0)))
	f.wantBalanceAt("acme", "day", year(-1), "S 2, H 0, A 8")
	f.ok(charge("zero", time.Unix(0, 0)))
	f.wantBalanceAt("acme", "day", at("1970-01-01T12:00:00Z"), "S 1, H 0, A 9")
	f.wantBalance("acme", "day", "S 0, H 0, A 10")
	f.unchanged(func() { f.wantErr(charge("future", year(300_000)), spendlimit.ErrInvalid) })
}
