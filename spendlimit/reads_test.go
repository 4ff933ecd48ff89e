package spendlimit_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
)

// everyCall calls each method of a ledger once; the hold "k" and the limit acme/day exist.
func everyCall(f *fixture) map[string]func(ctx context.Context) error {
	led := f.Ledger
	return map[string]func(ctx context.Context) error{
		"Reserve":     func(ctx context.Context) error { _, err := led.Reserve(ctx, req("new", "1")); return err },
		"ReserveWait": func(ctx context.Context) error { _, err := led.ReserveWait(ctx, req("new", "1")); return err },
		"Check":       func(ctx context.Context) error { _, err := led.Check(ctx, req("new", "1")); return err },
		"Dispatch":    func(ctx context.Context) error { return led.Dispatch(ctx, "k") },
		"Record": func(ctx context.Context) error {
			_, err := led.Record(ctx, spendlimit.Usage{Hold: "k", ID: "u", Cost: total("1")})
			return err
		},
		"Settle":  func(ctx context.Context) error { _, err := led.Settle(ctx, "k", total("1")); return err },
		"Release": func(ctx context.Context) error { _, err := led.Release(ctx, "k"); return err },
		"Close":   func(ctx context.Context) error { return led.Close(ctx, "k") },
		"Extend": func(ctx context.Context) error {
			_, err := led.Extend(ctx, spendlimit.Extension{Hold: "k", TTL: time.Hour})
			return err
		},
		"Grow": func(ctx context.Context) error {
			_, err := led.Grow(ctx, spendlimit.Growth{Hold: "k", ID: "g", By: 1})
			return err
		},
		"Shrink": func(ctx context.Context) error {
			_, err := led.Shrink(ctx, spendlimit.Shrinkage{Hold: "k", ID: "s", By: 1})
			return err
		},
		"Charge": func(ctx context.Context) error {
			_, err := led.Charge(ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: total("1")})
			return err
		},
		"Adjust": func(ctx context.Context) error {
			_, err := led.Adjust(ctx, spendlimit.Adjustment{ID: "a", Account: "acme", By: 1, Reason: "bill"})
			return err
		},
		"SetLimit":    func(ctx context.Context) error { _, err := led.SetLimit(ctx, weekly("50"), ""); return err },
		"RemoveLimit": func(ctx context.Context) error { return led.RemoveLimit(ctx, "acme", "day", "print") },
		"Hold":        func(ctx context.Context) error { _, err := led.Hold(ctx, "k"); return err },
		"Balances":    func(ctx context.Context) error { return only(led.Balances(ctx, "acme", time.Time{})) },
		"Holds":       func(ctx context.Context) error { return only(led.Holds(ctx, spendlimit.HoldFilter{})) },
		"Entries":     func(ctx context.Context) error { return only(led.Entries(ctx, "acme", 0)) },
		"Verify":      func(ctx context.Context) error { _, err := led.Verify(ctx, "acme"); return err },
		"Sweep":       func(ctx context.Context) error { _, err := led.Sweep(ctx, 1); return err },
		"Prune":       func(ctx context.Context) error { return led.Prune(ctx, "acme", noon.AddDate(0, 0, -40)) },
	}
}

var errMore = errors.New("the list goes on after its error")

// only returns the error that a list consists of.
func only[T any](list iter.Seq2[T, error]) error {
	var first error
	n := 0
	for _, err := range list {
		if n == 0 {
			first = err
		}
		n++
	}
	if first != nil && n != 1 {
		return errMore
	}
	return first
}

// broken is a store that always fails so.
type broken struct{ err error }

func (b broken) Step(context.Context, spendlimit.Need, func(int64, *spendlimit.Work) error) error {
	return b.err
}
func (b broken) Read(context.Context, spendlimit.Query) (spendlimit.Page, error) {
	return spendlimit.Page{}, b.err
}

// replaced runs with another store, and puts the old one back.
func (f *fixture) replaced(s spendlimit.Store, run func()) {
	old := f.store.Store
	defer func() { f.store.Store = old }()
	f.store.Store = s
	run()
}

func TestT76_NoStoreNoAnswer(t *testing.T) {
	t.Parallel()
	closed := memory.New(nil)
	closed.Close()
	schema := &spendlimit.SchemaError{Have: 1, Want: 2}
	for name, tc := range map[string]struct {
		store spendlimit.Store
		want  error
	}{
		"closed":      {closed.Spend(), spendlimit.ErrClosed},
		"schema":      {broken{schema}, spendlimit.ErrSchema},
		"unavailable": {broken{spendlimit.ErrUnavailable}, spendlimit.ErrUnavailable},
		"uncertain":   {broken{spendlimit.ErrUncertain}, spendlimit.ErrUncertain},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("10"))
			f.mustReserve(req("k", "1"))
			f.replaced(tc.store, func() {
				for name, call := range everyCall(f) {
					if err := call(f.ctx); !errors.Is(err, tc.want) || errors.Is(err, spendlimit.ErrDenied) {
						t.Errorf("%s: %v, want %v", name, err, tc.want)
					}
				}
			})
			f.wantBalance("acme", "day", "S 0, H 1, A 9")
		})
	}
}

// What can't be true is no ground to decide on: never A = limit.
func TestT76_DamagedRow(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(p *spendlimit.PeriodRow){
		"held below 0":  func(p *spendlimit.PeriodRow) { p.Held = -5 },
		"spent below 0": func(p *spendlimit.PeriodRow) { p.Spent = -5 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("10"))
			f.mustReserve(req("k", "4"))
			row := f.row("k").Part.Lines[0]
			f.damaged(func() func() {
				was := *row
				damage(row)
				return func() { *row = was }
			}, func() {
				for name, call := range map[string]func() error{
					"reserve":  func() error { _, err := f.Reserve(f.ctx, req("new", "6")); return err },
					"rest":     func() error { _, err := f.Reserve(f.ctx, rest("new")); return err },
					"check":    func() error { _, err := f.Check(f.ctx, req("new", "6")); return err },
					"balances": func() error { return only(f.Balances(f.ctx, "acme", time.Time{})) },
					"release":  func() error { _, err := f.Release(f.ctx, "k"); return err },
				} {
					if err := call(); !errors.Is(err, spendlimit.ErrUnavailable) || errors.Is(err, spendlimit.ErrDenied) {
						t.Errorf("%s: %v, want unavailable", name, err)
					}
				}
			})
			f.wantHold("k", "open, granted 4, own 4")
			f.wantBalance("acme", "day", "S 0, H 4, A 6")
		})
	}
}

// tamper is a store that damages rows inside each step, and mends them after it.
type tamper struct {
	spendlimit.Store
	damage func() (mend func())
	look   func(w *spendlimit.Work)
}

func (s *tamper) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	return s.Store.Step(ctx, n, func(now int64, w *spendlimit.Work) error {
		if s.look != nil {
			s.look(w)
		}
		if s.damage != nil {
			defer s.damage()()
		}
		return f(now, w)
	})
}

// damaged runs while the rows are damaged in each step.
func (f *fixture) damaged(damage func() (mend func()), run func()) {
	f.replaced(&tamper{Store: f.store.Store, damage: damage}, run)
}

// row returns a hold's row in the memory store.
func (f *fixture) row(key string) (h *spendlimit.HoldRow) {
	f.Helper()
	f.replaced(&tamper{Store: f.store.Store, look: func(w *spendlimit.Work) { h = w.Hold(key) }}, func() {
		_, err := f.Hold(f.ctx, key)
		f.ok(err)
	})
	return h
}

func TestR62_CheckDecidesAsReserve(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]spendlimit.Request{
		"exact":      req("k", "4"),
		"all":        req("k", "5"),
		"too much":   req("k", "5.000000001"),
		"at least":   {Key: "k", Accounts: names("acme"), Amount: usd("9"), Min: usd("3")},
		"not enough": {Key: "k", Accounts: names("acme"), Amount: usd("9"), Min: usd("6")},
		"rest":       rest("k"),
		"share":      share("k", "g", 4),
		"two":        {Key: "k", Accounts: names("B", "acme"), Amount: usd("9"), Min: usd("1"), TTL: time.Hour},
		"child":      child("k", "P", "2"),
		"big child":  child("k", "P", "3"),
		"no limit":   {Key: "k", Accounts: names("nobody"), Amount: 1},
		"no parent":  child("k", "nobody", "1"),
		"frozen":     {Key: "k", Accounts: names("frozen"), Amount: 1},
		"replay":     req("P", "2"),
		"reuse":      req("P", "3"),
		"invalid":    req("", "3"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("10"))
			f.limit(on("B", daily("3")))
			f.limit(on("frozen", daily("3")))
			f.mustCharge("c", "3")
			f.mustReserve(req("P", "2"))
			f.mustReserve(spendlimit.Request{Key: "lost", Accounts: names("frozen"), Amount: 1})
			f.mustSettle("lost", spendlimit.Unknown("lost"))
			var offer spendlimit.Offer
			var checked error
			f.unchanged(func() { offer, checked = f.Check(f.ctx, r) })
			h, err := f.Reserve(f.ctx, r)
			if err != nil {
				if want := strings.Replace(err.Error(), "reserve", "check", 1); checked == nil || checked.Error() != want {
					t.Errorf("check: %v\nreserve: %v", checked, err)
				}
				return
			}
			f.ok(checked)
			if offer.Amount != h.Granted || offer.Binding != h.Binding || !offer.ExpiresAt.Equal(h.ExpiresAt) {
				t.Errorf("offered %+v, granted %+v", offer, h)
			}
		})
	}
}

// showDenied writes a refusal: "held by acme/day; exhausted acme/day acme/week; holds reset; 12h0m0s".
func showDenied(d *spendlimit.DeniedError) string {
	by := d.Binding.Account + "/" + d.Binding.Limit
	if d.Parent != "" {
		by = "parent " + d.Parent
	}
	var exhausted, help []string
	for _, b := range d.Exhausted {
		exhausted = append(exhausted, b.Account+"/"+b.Limit)
	}
	slices.Sort(exhausted)
	for _, flag := range []struct {
		name string
		set  bool
	}{{"holds", d.WaitHolds}, {"reset", d.WaitReset}, {"hopeless", d.Hopeless}} {
		if flag.set {
			help = append(help, flag.name)
		}
	}
	return fmt.Sprintf("%v by %s; exhausted %s; %s; %v", d.Reason, by, strings.Join(exhausted, " "), strings.Join(help, " "), d.RetryAfter)
}

// The clock shows Friday noon: the day ends in 12 h, the week in 60 h.
func TestR64_R65_R66_RefusalsSayWhatHelps(t *testing.T) { // R17, too
	t.Parallel()
	hold := func(f *fixture, key, amount string, ttl time.Duration, accounts ...string) {
		f.Helper()
		if len(accounts) == 0 {
			accounts = names("acme")
		}
		f.mustReserve(spendlimit.Request{Key: key, Accounts: accounts, Amount: usd(amount), TTL: ttl})
	}
	both := spendlimit.Request{Key: "k", Accounts: names("acme", "B"), Amount: usd("1")}
	for name, tc := range map[string]struct {
		setup func(f *fixture)
		ask   spendlimit.Request
		want  string
	}{
		"spent": {func(f *fixture) {
			f.limit(daily("10"))
			f.mustCharge("c", "10")
		}, req("k", "1"), "spent by acme/day; exhausted acme/day; reset; 12h0m0s"},
		"held": {func(f *fixture) {
			f.limit(daily("10"))
			hold(f, "h", "10", time.Hour)
		}, req("k", "1"), "held by acme/day; exhausted acme/day; holds reset; 1h0m0.000001s"},
		"held by what may be spent": {func(f *fixture) {
			f.limit(daily("10"))
			hold(f, "h", "10", time.Hour)
			f.mustDispatch("h")
		}, req("k", "1"), "held by acme/day; exhausted acme/day; holds reset; 12h0m0s"},
		"held for ever by what may be spent": {func(f *fixture) {
			f.limit(forever("10"))
			hold(f, "h", "5", time.Hour)
			hold(f, "i", "5", 2*time.Hour)
			f.mustDispatch("h")
			f.mustDispatch("i")
		}, req("k", "1"), "held by acme/all; exhausted acme/all; holds; 2h0m0.000001s"},
		"several holds have to lapse": {func(f *fixture) {
			f.limit(forever("10"))
			hold(f, "h", "5", time.Hour)
			hold(f, "i", "2", 3*time.Hour)
			hold(f, "j", "3", 2*time.Hour)
		}, req("k", "8"), "held by acme/all; exhausted acme/all; holds; 2h0m0.000001s"},
		"spent for ever": {func(f *fixture) {
			f.limit(forever("10"))
			f.mustCharge("c", "10")
		}, req("k", "1"), "spent by acme/all; exhausted acme/all; hopeless; 0s"},
		"above the limit": {func(f *fixture) {
			f.limit(daily("10"))
		}, req("k", "11"), "spent by acme/day; exhausted acme/day; hopeless; 0s"},
		"above the limit, at least": {func(f *fixture) {
			f.limit(daily("10"))
			f.mustCharge("c", "5")
		}, spendlimit.Request{Key: "k", Accounts: names("acme"), Amount: usd("11"), Min: usd("6")},
			"spent by acme/day; exhausted acme/day; reset; 12h0m0s"},
		"a raise that lasts": {func(f *fixture) {
			l := daily("10")
			l.Raise = spendlimit.Raise{By: usd("5"), Until: d2.Add(time.Microsecond)}
			f.limit(l)
			f.mustCharge("c", "8")
		}, req("k", "15"), "spent by acme/day; exhausted acme/day; reset; 12h0m0s"},
		"a raise that does not last": {func(f *fixture) {
			l := daily("10")
			l.Raise = spendlimit.Raise{By: usd("5"), Until: d2}
			f.limit(l)
			f.mustCharge("c", "8")
		}, req("k", "11"), "spent by acme/day; exhausted acme/day; hopeless; 0s"},
		"tomorrow carries more": {func(f *fixture) {
			l := daily("10")
			l.CarryUnused = usd("5")
			f.limit(l)
			f.mustCharge("c", "8")
		}, req("k", "12"), "spent by acme/day; exhausted acme/day; reset; 12h0m0s"},
		"tomorrow does not carry enough": {func(f *fixture) {
			l := daily("10")
			l.CarryUnused = usd("5")
			f.limit(l)
			f.mustCharge("c", "8")
		}, req("k", "12.000000001"), "spent by acme/day; exhausted acme/day; hopeless; 0s"},
		"the lowest binds": {func(f *fixture) {
			f.limit(daily("10"))
			f.limit(on("B", daily("11")))
			f.mustCharge("c", "11")
			f.mustCharge("d", "11", "B")
		}, both, "spent by acme/day; exhausted B/day acme/day; reset; 12h0m0s"},
		"the lowest binds, not the last": {func(f *fixture) {
			f.limit(daily("11"))
			f.limit(on("B", daily("10")))
			f.mustCharge("c", "11")
			f.mustCharge("d", "11", "B")
		}, both, "spent by B/day; exhausted B/day acme/day; reset; 12h0m0s"},
		"of equals the later end": {func(f *fixture) {
			f.limit(daily("10"))
			f.limit(weekly("10"))
			f.mustCharge("c", "10")
		}, req("k", "1"), "spent by acme/week; exhausted acme/day acme/week; reset; 60h0m0s"},
		"of equals the first account": {func(f *fixture) {
			f.limit(daily("10"))
			f.limit(on("B", daily("10")))
			f.mustCharge("c", "10", "acme", "B")
		}, both, "spent by B/day; exhausted B/day acme/day; reset; 12h0m0s"},
		"of equals the first name": {func(f *fixture) {
			l := daily("10")
			l.Name = "a day"
			f.limit(daily("10"))
			f.limit(l)
			f.mustCharge("c", "10")
		}, req("k", "1"), "spent by acme/a day; exhausted acme/a day acme/day; reset; 12h0m0s"},
		"only what has too little": {func(f *fixture) {
			f.limit(daily("10"))
			f.limit(weekly("100"))
			soft := daily("1")
			soft.Name, soft.Mode = "soft", spendlimit.Soft
			f.limit(soft)
			f.mustCharge("c", "10")
		}, req("k", "1"), "spent by acme/day; exhausted acme/day; reset; 12h0m0s"},
		"hopeless if one is": {func(f *fixture) {
			f.limit(daily("10"))
			f.limit(on("B", forever("11")))
			f.mustCharge("c", "12")
			f.mustCharge("d", "11", "B")
		}, both, "spent by acme/day; exhausted B/all acme/day; hopeless; 0s"},
		"the flags of what binds, the time of all": {func(f *fixture) {
			f.limit(daily("10"))
			f.limit(on("B", forever("10")))
			f.mustCharge("c", "11")
			hold(f, "h", "10", 24*time.Hour, "B")
		}, both, "spent by acme/day; exhausted B/all acme/day; reset; 24h0m0.000001s"},
		"a day that is longer than a hold": {func(f *fixture) {
			f.limit(daily("10"))
			f.limit(on("B", forever("10")))
			f.mustCharge("c", "11")
			hold(f, "h", "10", time.Hour, "B")
		}, both, "spent by acme/day; exhausted B/all acme/day; reset; 12h0m0s"},
		"yesterday's holds free nothing today": {func(f *fixture) {
			f.limit(daily("10"))
			f.clock.Set(d2.Add(-time.Minute))
			hold(f, "old", "10", 2*time.Minute)
			f.clock.Set(d2)
			hold(f, "new", "10", time.Hour)
		}, req("k", "1"), "held by acme/day; exhausted acme/day; holds reset; 1h0m0.000001s"},
		"yesterday's holds count with CarryHolds": {func(f *fixture) {
			l := daily("10")
			l.CarryHolds = true
			f.limit(l)
			f.clock.Set(d2.Add(-time.Minute))
			hold(f, "old", "10", 2*time.Minute)
			f.clock.Set(d2)
		}, req("k", "1"), "held by acme/day; exhausted acme/day; holds reset; 1m0.000001s"},
		"a child's extra account": {func(f *fixture) {
			f.limit(daily("100"))
			f.limit(on("B", forever("10")))
			hold(f, "root", "50", 2*time.Hour)
			kid := child("kid", "root", "10", "B")
			kid.TTL = time.Hour
			f.mustReserve(kid)
		}, both, "held by B/all; exhausted B/all; holds; 1h0m0.000001s"},
		"children lapse into their parent": {func(f *fixture) {
			f.limit(forever("10"))
			hold(f, "root", "10", 2*time.Hour)
			kid := child("kid", "root", "4")
			kid.TTL = time.Hour
			f.mustReserve(kid)
		}, req("k", "7"), "held by acme/all; exhausted acme/all; holds; 2h0m0.000001s"},
		"children outlive their parent": {func(f *fixture) {
			f.limit(forever("10"))
			hold(f, "root", "10", time.Hour)
			kid := child("kid", "root", "4")
			kid.TTL = 2 * time.Hour
			f.mustReserve(kid)
		}, req("k", "7"), "held by acme/all; exhausted acme/all; holds; 2h0m0.000001s"},
		"orphans lapse into the limit": {func(f *fixture) {
			f.limit(forever("10"))
			hold(f, "root", "10", 2*time.Hour)
			kid := child("kid", "root", "4")
			kid.TTL = time.Hour
			f.mustReserve(kid)
			f.mustSettle("root", total("6"))
		}, req("k", "1"), "held by acme/all; exhausted acme/all; holds; 1h0m0.000001s"},
		"at most 256 holds are looked at": {func(f *fixture) {
			f.limit(daily("0.0000003"))
			for i := range 300 {
				hold(f, keyN("h", i), "0.000000001", time.Hour+time.Duration(i)*time.Second)
			}
		}, req("k", "0.000000257"), "held by acme/day; exhausted acme/day; holds reset; 12h0m0s"},
		"the 256th hold": {func(f *fixture) {
			f.limit(daily("0.0000003"))
			for i := range 300 {
				hold(f, keyN("h", i), "0.000000001", time.Hour+time.Duration(i)*time.Second)
			}
		}, req("k", "0.000000256"), "held by acme/day; exhausted acme/day; holds reset; 1h4m15.000001s"},
		"unpriced": {func(f *fixture) {
			f.limit(daily("10"))
			hold(f, "h", "1", time.Hour)
			hold(f, "open", "1", time.Hour)
			f.mustSettle("h", spendlimit.Unknown("lost"))
		}, req("k", "1"), "unpriced by acme/day; exhausted acme/day; reset; 12h0m0s"},
		"unpriced for ever": {func(f *fixture) {
			f.limit(forever("10"))
			hold(f, "h", "1", time.Hour)
			f.mustSettle("h", spendlimit.Unknown("lost"))
		}, req("k", "1"), "unpriced by acme/all; exhausted acme/all; ; 1s"},
		"the parent": {func(f *fixture) {
			f.limit(daily("100"))
			hold(f, "P", "10", time.Hour)
			kid := child("kid", "P", "6")
			kid.TTL = 30 * time.Minute
			f.mustReserve(kid)
		}, child("k", "P", "5"), "parent by parent P; exhausted ; holds; 30m0.000001s"},
		"the parent is too small": {func(f *fixture) {
			f.limit(daily("100"))
			hold(f, "P", "10", time.Hour)
			f.mustReserve(child("kid", "P", "6"))
		}, child("k", "P", "11"), "parent by parent P; exhausted ; hopeless; 0s"},
		"the parent has no children": {func(f *fixture) {
			f.limit(daily("100"))
			hold(f, "P", "10", time.Hour)
			f.mustRecord("P", "u", "6")
		}, child("k", "P", "5"), "parent by parent P; exhausted ; hopeless; 0s"},
		"the parent's children have spent it": {func(f *fixture) {
			f.limit(daily("100"))
			hold(f, "P", "10", time.Hour)
			f.mustReserve(child("spender", "P", "8"))
			f.mustSettle("spender", total("8"))
			f.mustReserve(child("kid", "P", "1"))
		}, child("k", "P", "3"), "parent by parent P; exhausted ; hopeless; 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			tc.setup(f)
			if got := showDenied(f.mustDeny(tc.ask)); got != tc.want {
				t.Errorf("\n got %s\nwant %s", got, tc.want)
			}
		})
	}
}

// A retry at the hinted time is granted, and just before it is not.
func TestR66_TheHintIsExact(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(forever("10"))
	for i, ttl := range []time.Duration{3 * time.Hour, time.Hour, 2 * time.Hour} {
		r := req(keyN("h", i), "3")
		r.TTL = ttl
		f.mustReserve(r)
	}
	d := f.mustDeny(req("k", "6"))
	f.clock.Advance(d.RetryAfter - time.Microsecond)
	f.mustDeny(req("k", "6"))
	f.clock.Advance(time.Microsecond)
	f.mustReserve(req("k", "6"))
}

func TestR63_WhatARefusalSays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustCharge("c", "4")
	f.mustReserve(req("h", "5"))
	r := req("k", "3")
	r.Min = usd("2")
	d := f.mustDeny(r)
	b := d.Binding
	if b.Account != "acme" || b.Limit != "day" || b.Kind != spendlimit.Day || b.Period != "2026-05-01" ||
		!b.Start.Equal(at("2026-05-01T00:00:00Z")) || !b.End.Equal(d2) || b.InForce != usd("10") || b.Spent != usd("4") || b.Held != usd("5") || b.Available != usd("1") {
		t.Errorf("binding %+v", b)
	}
	if len(d.Exhausted) != 1 || showBalance(d.Exhausted[0]) != "S 4, H 5, A 1" || d.Wanted != usd("3") || d.Min != usd("2") || !d.ResetAt.Equal(d2) {
		t.Errorf("refusal %+v", d)
	}
	const want = `denied: held: limit "day" of account "acme" in 2026-05-01: limit 10, spent 4, held 5, wanted 3, at least 2 USD`
	if d.Error() != want {
		t.Errorf("text\n got %s\nwant %s", d.Error(), want)
	}
}

// What wants nothing, or whatever is free, has no number to show.
func TestR63_NoNumberWanted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("lost", "10"))
	if d := f.mustDeny(rest("k")); d.Wanted != 0 || d.Min != 1 {
		t.Errorf("rest: wanted %d, at least %d; want 0, 1", d.Wanted, d.Min)
	}
	f.mustSettle("lost", spendlimit.Unknown("lost"))
	if d := f.mustDeny(spendlimit.Request{Key: "k", Accounts: names("acme"), Free: true}); d.Wanted != 0 || d.Min != 0 {
		t.Errorf("free: wanted %d, at least %d; want 0, 0", d.Wanted, d.Min)
	}
}

func TestR67_RefusalsAreNotRemembered(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("h", "10"))
	f.mustDeny(req("k", "4"))
	_, err := f.Hold(f.ctx, "k")
	f.wantErr(err, spendlimit.ErrNotFound)
	f.mustRelease("h")
	f.mustReserve(req("k", "5")) // with other content, too
	f.mustDeny(spendlimit.Request{Key: "new", Accounts: names("unknown account"), Amount: 1})
	if got := f.kinds("unknown account"); got != "" {
		t.Errorf("a refusal left %s", got)
	}
}

func TestR72_Balances(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.limit(weekly("50"))
	f.limit(forever("100"))
	f.unchanged(func() { // a period that nobody has used is shown, and not written
		f.wantBalance("acme", "day", "S 0, H 0, A 10")
		f.wantBalanceAt("acme", "day", noon.AddDate(1, 0, 0), "S 0, H 0, A 10")
		f.wantBalanceAt("acme", "day", noon.AddDate(-1, 0, 0), "S 0, H 0, A 10")
	})
	f.mustCharge("c", "12")
	f.mustReserve(spendlimit.Request{Key: "free", Accounts: names("acme"), Free: true})
	var got []string
	for b, err := range f.Balances(f.ctx, "acme", time.Time{}) {
		f.ok(err)
		got = append(got, fmt.Sprintf("%s %v %s [%s, %s) of %s: %s", b.Limit, b.Kind, b.Period,
			b.Start.Format(time.RFC3339), b.End.Format(time.RFC3339), dollars(b.InForce), showBalance(b)))
		if b.Account != "acme" || b.Unit != spendlimit.USD || b.Fingerprint == "" {
			t.Errorf("%+v", b)
		}
	}
	want := []string{
		"all total total [0001-01-01T00:00:00Z, 0001-01-01T00:00:00Z) of 100: S 12, H 0, A 88",
		"day day 2026-05-01 [2026-05-01T00:00:00Z, 2026-05-02T00:00:00Z) of 10: S 12, H 0, A -2, overrun 2",
		"week week 2026-04-27 [2026-04-27T00:00:00Z, 2026-05-04T00:00:00Z) of 50: S 12, H 0, A 38",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for range f.Balances(f.ctx, "acme", time.Time{}) {
		break // a reader may stop
	}
}

// A hold whose time is over is shown as ended by every read, swept or not.
func TestR72_ReadsSeeLapses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("open", "1"))
	f.mustReserve(req("sent", "2"))
	f.mustDispatch("sent")
	f.clock.Advance(time.Hour)
	f.unchanged(func() {
		f.wantBalance("acme", "day", "S 2, H 0, A 8, assumed 2")
		f.wantHold("open", "lapsed-free, granted 1")
		f.wantHold("sent", "lapsed-charged, granted 2, assumed 2")
		if got := keys(f, spendlimit.HoldFilter{Account: "acme", Live: true}); got != "" {
			t.Errorf("alive: %s", got)
		}
	})
}

// keys lists the keys of holds.
func keys(f *fixture, filter spendlimit.HoldFilter) string {
	f.Helper()
	var out []string
	for h, err := range f.Holds(f.ctx, filter) {
		f.ok(err)
		out = append(out, h.Key)
	}
	return strings.Join(out, " ")
}

func TestR72_Holds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.limit(on("B", daily("10")))
	f.mustReserve(req("a1", "1"))
	f.mustReserve(req("a2", "1"))
	f.mustReserve(spendlimit.Request{Key: "b1", Accounts: names("B"), Amount: usd("1")})
	f.mustReserve(spendlimit.Request{Key: "both", Accounts: names("acme", "B"), Amount: usd("2")})
	f.mustReserve(child("kid", "a1", "0.5", "B"))
	f.mustReserve(child("kid's kid", "kid", "0.1"))
	f.mustRelease("a2")
	f.mustDispatch("b1")
	for want, filter := range map[string]spendlimit.HoldFilter{
		"a1 a2 b1 both kid kid's kid": {},
		"a1 b1 both kid kid's kid":    {Live: true},
		"a1 a2 both kid kid's kid":    {Account: "acme"}, // own or inherited
		"b1 both kid kid's kid":       {Account: "B", Live: true},
		"":                            {Account: "nobody"},
	} {
		if got := keys(f, filter); got != want {
			t.Errorf("%+v: got %s, want %s", filter, got, want)
		}
	}
	for h, err := range f.Holds(f.ctx, spendlimit.HoldFilter{Account: "acme"}) {
		f.ok(err)
		f.mustDispatch(h.Key) // the handle works, and a reader may stop
		f.wantReceipt(must(h.Settle(f.ctx, total("0.3"))), "cost 0.3, returned 0.2, children 1")
		break
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestR72_HoldShowsItsContent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.limit(on("B", daily("10")))
	r := spendlimit.Request{
		Key: "k", Accounts: names("acme", "B"), Amount: usd("4"), Split: spendlimit.Split{Group: "g", Slots: 5}, TTL: time.Hour,
		Labels: map[string]string{"task": "7"}, Price: "rates",
	}
	granted := f.mustGrant(r, "2") // 10 / 5
	f.wantBinding(granted, "B/day")
	r.Labels["task"] = "8" // the ledger keeps its own
	h, err := f.Hold(f.ctx, "k")
	f.ok(err)
	for _, h := range []*spendlimit.Hold{granted, h} {
		got := fmt.Sprint(h.Key, " ", h.Accounts, " ", h.Group, " ", h.Slots, " ", h.Labels, " ", h.Price, " ", h.Revision)
		if want := "k [B acme] g 5 map[task:7] rates 2"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if !h.CreatedAt.Equal(noon) || !h.ExpiresAt.Equal(noon.Add(time.Hour)) || !h.EndedAt.IsZero() {
			t.Errorf("times %v, %v, %v", h.CreatedAt, h.ExpiresAt, h.EndedAt)
		}
	}
}

func TestR72_Paging(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	const n = 600 // more than two pages
	for i := range n {
		f.mustReserve(spendlimit.Request{Key: fmt.Sprintf("k%03d", i), Accounts: names("acme"), Amount: 1})
	}
	list := strings.Fields(keys(f, spendlimit.HoldFilter{Account: "acme"}))
	if len(list) != n || !slices.IsSorted(list) || len(slices.Compact(list)) != n {
		t.Errorf("%d holds, want %d different ones in order", len(list), n)
	}
	if got := len(strings.Fields(f.kinds("acme"))); got != n+1 {
		t.Errorf("%d entries, want %d", got, n+1)
	}
	for _, after := range []int64{0, 1, 255, 256, 257, n, n + 1, n + 100} {
		seq := after
		for e, err := range f.Entries(f.ctx, "acme", after) {
			f.ok(err)
			if seq++; e.Seq != seq {
				t.Fatalf("after %d: seq %d, want %d", after, e.Seq, seq)
			}
		}
		if want := max(after, n+1); seq != want {
			t.Errorf("after %d: the last is %d, want %d", after, seq, want)
		}
	}
	seen := 0
	for range f.Entries(f.ctx, "acme", 0) {
		if seen++; seen == 300 {
			break
		}
	}
	for range f.Holds(f.ctx, spendlimit.HoldFilter{}) {
		if seen++; seen == 600 {
			break
		}
	}
}

// A list breaks off with its error when a later page fails.
func TestR72_APageFails(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	for i := range 300 {
		f.mustReserve(spendlimit.Request{Key: keyN("k", i), Accounts: names("acme"), Amount: 1})
	}
	lists := map[string]func() (int, error){
		"entries": func() (int, error) { return length(f.Entries(f.ctx, "acme", 0)) },
		"holds":   func() (int, error) { return length(f.Holds(f.ctx, spendlimit.HoldFilter{})) },
	}
	for name, list := range lists {
		f.replaced(&secondPageFails{Store: f.store.Store}, func() {
			if n, err := list(); n != 256 || !errors.Is(err, spendlimit.ErrUnavailable) {
				t.Errorf("%s: %d, then %v; want 256, then unavailable", name, n, err)
			}
		})
	}
}

// length counts what a list has before its error.
func length[T any](list iter.Seq2[T, error]) (n int, last error) {
	for _, err := range list {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

type secondPageFails struct {
	spendlimit.Store
	pages int
}

func (s *secondPageFails) Read(ctx context.Context, q spendlimit.Query) (spendlimit.Page, error) {
	if s.pages++; s.pages > 1 {
		return spendlimit.Page{}, spendlimit.ErrUnavailable
	}
	return s.Store.Read(ctx, q)
}

func TestR73_Journal(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := daily("10")
	l.CarryUnused = usd("5")
	f.limit(l)
	f.mustReserve(spendlimit.Request{Key: "k", Accounts: names("acme"), Amount: usd("4"), TTL: 24 * time.Hour, Labels: map[string]string{"task": "7"}})
	f.mustDispatch("k")
	_, err := f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "u", Cost: total("1"), Labels: map[string]string{"call": "1"}})
	f.ok(err)
	f.mustReserve(req("r", "1"))
	f.mustRelease("r")
	f.mustReserve(req("l", "1"))
	f.mustDispatch("l")
	f.clock.Advance(11 * time.Hour)
	_, err = f.Extend(f.ctx, spendlimit.Extension{Hold: "k", TTL: 24 * time.Hour})
	f.ok(err)
	f.mustSettle("l", total("2"))
	f.ok(grow(f, "k"))
	_, err = f.Shrink(f.ctx, spendlimit.Shrinkage{Hold: "k", ID: "s", By: usd("0.5")})
	f.ok(err)
	f.clock.Set(d2.Add(time.Hour))
	f.ok(roll(f, "k"))
	f.mustCharge("c", "1")
	_, err = f.Adjust(f.ctx, spendlimit.Adjustment{ID: "a", Account: "acme", By: usd("-1"), Reason: "refund"})
	f.ok(err)
	f.mustSettle("k", spendlimit.Recorded())
	var got []string
	for e, err := range f.Entries(f.ctx, "acme", 0) {
		f.ok(err)
		line := fmt.Sprintf("%d %v %s", e.Seq, e.Kind, e.Ref)
		if e.Hold != "" {
			line += " of " + e.Hold
		}
		line += nonZero("S", e.Spent) + nonZero("H", e.Held)
		for _, p := range e.Postings {
			line += fmt.Sprintf("; %s %s%s%s%s", p.Limit, p.Period, nonZero("S", p.Spent), nonZero("H", p.Held), nonZero("overrun", p.Overrun))
		}
		if len(e.Labels) > 0 {
			line += fmt.Sprint(" ", e.Labels)
		}
		if e.Reason != "" {
			line += " because " + e.Reason
		}
		got = append(got, line)
	}
	want := []string{
		"1 limit day because set",
		"2 reserve k, H 4; day 2026-05-01, H 4 map[task:7]",
		"3 dispatch k",
		"4 record u of k, S 1, H -1; day 2026-05-01, S 1, H -1 map[call:1]",
		"5 reserve r, H 1; day 2026-05-01, H 1",
		"6 release r, H -1; day 2026-05-01, H -1",
		"7 reserve l, H 1; day 2026-05-01, H 1",
		"8 dispatch l",
		"9 lapse l, S 1, H -1; day 2026-05-01, S 1, H -1",
		"10 extend k",
		"11 late l, S 1; day 2026-05-01, S 1",
		"12 grow g of k, H 1; day 2026-05-01, H 1",
		"13 shrink s of k, H -0.5; day 2026-05-01, H -0.5",
		"14 carry day",
		"15 roll r of k; day 2026-05-01, H -3.5; day 2026-05-02, H 3.5",
		"16 charge c, S 1; day 2026-05-02, S 1",
		"17 adjust a, S -1; day 2026-05-02, S -1 because refund",
		"18 settle k, H -3.5; day 2026-05-02, H -3.5",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Results carry the seq of their entry on the first account: nothing else was written since, if the next one follows.
func TestR73_Revision(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.limit(on("B", daily("10")))
	f.mustCharge("only B", "1", "B")
	h := f.mustReserve(spendlimit.Request{Key: "k", Accounts: names("acme", "B"), Amount: usd("1")})
	if h.Revision != 3 { // of B
		t.Errorf("reserve has revision %d, want 3", h.Revision)
	}
	if r := f.mustRecord("k", "u", "0.5"); r.Revision != 4 {
		t.Errorf("record has revision %d, want 4", r.Revision)
	}
	if r := f.mustSettle("k", spendlimit.Recorded()); r.Revision != 5 {
		t.Errorf("settle has revision %d, want 5", r.Revision)
	}
	if r := f.mustCharge("c", "1"); r.Revision != 5 { // of acme
		t.Errorf("charge has revision %d, want 5", r.Revision)
	}
}

// idle is a store that says yes without asking.
type idle struct{ spendlimit.Store }

func (idle) Step(context.Context, spendlimit.Need, func(int64, *spendlimit.Work) error) error {
	return nil
}

// Nothing is granted on the word of a store that did not judge the step.
func TestStoreThatDoesNotJudge(t *testing.T) {
	t.Parallel()
	led, err := spendlimit.New(idle{}, spendlimit.Config{Unit: spendlimit.USD})
	if err != nil {
		t.Fatal(err)
	}
	if h, err := led.Reserve(t.Context(), req("k", "1")); h != nil || !errors.Is(err, spendlimit.ErrUnavailable) {
		t.Errorf("%v, %v", h, err)
	}
	if _, err := led.Settle(t.Context(), "k", total("1")); !errors.Is(err, spendlimit.ErrUnavailable) {
		t.Errorf("settle: %v", err)
	}
	if _, err := led.Verify(t.Context(), "acme"); !errors.Is(err, spendlimit.ErrUnavailable) {
		t.Errorf("verify: %v", err)
	}
}
