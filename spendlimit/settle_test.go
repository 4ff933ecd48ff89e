package spendlimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

func TestT7_SettleOfGoneClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("20"))
	for _, key := range []string{"settle", "record", "release", "close"} {
		f.mustReserve(req(key, "5"))
	}
	gone, cancel := context.WithCancel(f.ctx)
	cancel()
	_, err := f.Reserve(gone, req("k", "1"))
	f.wantErr(err, context.Canceled)
	_, err = f.Settle(gone, "settle", total("3"))
	f.ok(err)
	f.wantBalance("acme", "day", "S 3, H 15, A 2")
	_, err = f.Record(gone, spendlimit.Usage{Hold: "record", ID: "u", Cost: total("5")})
	f.ok(err)
	_, err = f.Release(gone, "release")
	f.ok(err)
	f.ok(f.Close(gone, "close"))
	f.wantBalance("acme", "day", "S 8, H 0, A 12")
}

func TestT8_SettleThroughFaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plan  []fault
		want  error
		again bool // the retry is a replay
	}{
		"before":             {[]fault{faultBefore}, spendlimit.ErrUnavailable, false},
		"rows changed":       {[]fault{faultInside}, spendlimit.ErrUnavailable, false},
		"answer lost":        {[]fault{faultAfter}, spendlimit.ErrUncertain, true},
		"one after another":  {[]fault{faultBefore, faultInside, faultAfter, faultInside}, spendlimit.ErrUnavailable, true},
		"answer lost, twice": {[]fault{faultAfter, faultAfter}, spendlimit.ErrUncertain, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("10"))
			f.mustReserve(req("k", "5"))
			f.store.fail(tc.plan...)
			for i := range tc.plan {
				_, err := f.Settle(f.ctx, "k", total("3"))
				f.wantErr(err, errFault)
				if i == 0 {
					f.wantErr(err, tc.want)
				}
			}
			if r := f.mustSettle("k", total("3")); r.Replayed != tc.again || r.Returned != usd("2") {
				t.Errorf("receipt %+v", r)
			}
			f.wantBalance("acme", "day", "S 3, H 0, A 7")
			if got := f.kinds("acme"); got != "limit reserve settle" {
				t.Errorf("entries: %s", got)
			}
		})
	}
}

func TestT9_StoreErrorOnReserve(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	calls := 0
	work := func() error {
		h, err := f.Reserve(f.ctx, req("k", "5"))
		if err != nil {
			if h != nil {
				t.Errorf("error %v with hold %+v", err, h)
			}
			return err
		}
		calls++
		return h.Close(f.ctx)
	}
	f.store.fail(faultBefore, faultInside)
	for range 2 {
		f.unchanged(func() {
			err := work()
			f.wantErr(err, spendlimit.ErrUnavailable)
			if errors.Is(err, spendlimit.ErrDenied) || errors.Is(err, spendlimit.ErrUncertain) {
				t.Errorf("error %v", err)
			}
		})
	}
	f.store.fail(faultAfter)
	err := work()
	f.wantErr(err, spendlimit.ErrUncertain)
	if errors.Is(err, spendlimit.ErrDenied) || errors.Is(err, spendlimit.ErrUnavailable) || calls != 0 {
		t.Errorf("error %v, %d paid calls", err, calls)
	}
	f.ok(work()) // the retry finds the hold
	f.wantBalance("acme", "day", "S 0, H 0, A 10")
	if got := f.kinds("acme"); got != "limit reserve release" || calls != 1 {
		t.Errorf("entries: %s; %d paid calls", got, calls)
	}
}

func TestT10_EveryExit(t *testing.T) {
	t.Parallel()
	errWork := errors.New("work failed")
	for name, tc := range map[string]struct {
		work func(ctx context.Context, cancel func(), h *spendlimit.Hold) error
		want string
	}{
		"ok": {func(ctx context.Context, _ func(), h *spendlimit.Hold) error {
			if err := h.Dispatch(ctx); err != nil {
				return err
			}
			_, err := h.Settle(ctx, total("3"))
			return err
		}, "S 3, H 0, A 7"},
		"error before": {func(context.Context, func(), *spendlimit.Hold) error { return errWork }, "S 0, H 0, A 10"},
		"error mid": {func(ctx context.Context, _ func(), h *spendlimit.Hold) error {
			return errors.Join(h.Dispatch(ctx), errWork)
		}, "S 5, H 0, A 5, assumed 5"},
		"panic before": {func(context.Context, func(), *spendlimit.Hold) error { panic(errWork) }, "S 0, H 0, A 10"},
		"panic mid": {func(ctx context.Context, _ func(), h *spendlimit.Hold) error {
			panic(errors.Join(h.Dispatch(ctx), errWork))
		}, "S 5, H 0, A 5, assumed 5"},
		"cancel before": {func(ctx context.Context, cancel func(), h *spendlimit.Hold) error {
			cancel()
			return h.Dispatch(ctx)
		}, "S 0, H 0, A 10"},
		"cancel mid": {func(ctx context.Context, cancel func(), h *spendlimit.Hold) error {
			err := h.Dispatch(ctx)
			cancel()
			return errors.Join(err, ctx.Err())
		}, "S 5, H 0, A 5, assumed 5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("10"))
			f.mustReserve(req("other", "1"))
			f.mustRelease("other")
			func() {
				defer func() { _ = recover() }()
				ctx, cancel := context.WithCancel(f.ctx)
				defer cancel()
				h := f.mustReserve(req("k", "5"))
				defer func() { f.ok(h.Close(ctx)) }()
				_ = tc.work(ctx, cancel, h)
			}()
			f.wantBalance("acme", "day", tc.want)
		})
	}
}

func TestT15_ReleaseThenSettle(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "5"))
	f.wantReceipt(f.mustRelease("k"), "returned 5")
	f.unchanged(func() {
		f.wantReceipt(f.mustRelease("k"), "returned 5, replayed")
		_, err := f.Settle(f.ctx, "k", total("3"))
		f.wantErr(err, spendlimit.ErrReleased)
	})
	f.wantBalance("acme", "day", "S 0, H 0, A 10")
	f.wantReceipt(f.mustSettle("k", total("3"), spendlimit.Late), "cost 3, excess 3, late")
	f.wantBalance("acme", "day", "S 3, H 0, A 7")
	f.wantHold("k", "settled, granted 5, recorded 3")
	if got := f.kinds("acme"); got != "limit reserve release late" {
		t.Errorf("entries: %s", got)
	}
}

func TestT25_UnpricedUntilPriced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "5"))
	f.wantReceipt(f.mustSettle("k", spendlimit.Unknown("stream cut")), "assumed 5, unpriced")
	const frozen = "S 5, H 0, A 5, assumed 5, unpriced 1"
	f.wantBalance("acme", "day", frozen)

	f.Ledger = f.restart()
	f.wantBalance("acme", "day", frozen)
	d := f.mustDeny(req("new", "1"))
	if d.Reason != spendlimit.ReasonUnpriced || !errors.Is(d, spendlimit.ErrUnpriced) || d.Binding.Unpriced != 1 {
		t.Errorf("refusal %+v", d)
	}
	_, err := f.Check(f.ctx, req("new", "1"))
	f.wantErr(err, spendlimit.ErrUnpriced)

	f.wantReceipt(f.mustSettle("k", total("2")), "cost 2, returned 3, late")
	f.wantBalance("acme", "day", "S 2, H 0, A 8")
	f.mustReserve(req("new", "8"))
}

func TestT26_UnpricedElsewhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	limit := func(account string, p spendlimit.Policy) {
		f.limit(spendlimit.Limit{Account: account, Name: "day", Kind: spendlimit.Day, Amount: usd("10"), OnUnpriced: p})
	}
	limit("x", spendlimit.Refuse)
	limit("y", spendlimit.Refuse)
	limit("z", spendlimit.Allow)
	on := func(key string, accounts ...string) spendlimit.Request {
		return spendlimit.Request{Key: key, Accounts: accounts, Amount: usd("1")}
	}
	f.mustReserve(on("k", "x", "z"))
	f.mustSettle("k", spendlimit.Unknown("no price"))
	f.mustDeny(on("x", "x"))
	f.mustDeny(on("xy", "y", "x"))
	f.mustReserve(on("y", "y"))
	f.mustReserve(on("z", "z"))
	f.wantBalance("y", "day", "S 0, H 1, A 9")
	f.wantBalance("z", "day", "S 1, H 1, A 8, assumed 1, unpriced 1")
}

func TestT27_ZeroCostOfMeteredUsage(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cost spendlimit.Cost
		want string
	}{
		"metered":       {spendlimit.Cost{Metered: 500}, "returned 5, zero cost"},
		"declared zero": {spendlimit.Cost{Metered: 500, ZeroPrice: true}, "returned 5"},
		"nothing used":  {spendlimit.Cost{}, "returned 5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("10"))
			f.mustReserve(req("k", "5"))
			cost := total("0")
			cost.Metered, cost.ZeroPrice = tc.cost.Metered, tc.cost.ZeroPrice
			r := f.mustSettle("k", cost)
			f.wantReceipt(r, tc.want)
			f.wantBalance("acme", "day", "S 0, H 0, A 10")
			events := 0
			if r.Anomaly != spendlimit.NoAnomaly {
				events = 1
			}
			if n := f.heard(spendlimit.EventAnomaly); n != events {
				t.Errorf("%d events, want %d", n, events)
			}
		})
	}
}

func TestT32_StartFailsAfterReserve(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	errStart := errors.New("no such image")
	start := func(run func() error) (err error) {
		h := f.mustReserve(req("k", "10"))
		defer func() { err = errors.Join(err, h.Close(f.ctx)) }()
		return run()
	}
	f.wantErr(start(func() error { return errStart }), errStart)
	f.wantBalance("acme", "day", "S 0, H 0, A 10")
	f.mustReserve(req("next", "10"))
}

func TestT42_DispatchedAndClosed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	h := f.mustReserve(req("k", "5"))
	f.ok(h.Dispatch(f.ctx))
	f.ok(h.Close(f.ctx))
	f.wantBalance("acme", "day", "S 5, H 0, A 5, assumed 5")
	f.unchanged(func() { f.ok(h.Close(f.ctx)) })
	f.wantReceipt(f.mustSettle("k", total("1")), "cost 1, returned 4, late")
	f.wantBalance("acme", "day", "S 1, H 0, A 9")
	f.unchanged(func() { f.wantReceipt(f.mustSettle("k", total("1")), "cost 1, returned 4, late, replayed") })
}

func TestT43_NoMaximumKnown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("4"))
	f.mustReserve(req("a", "1"))
	f.mustReserve(req("b", "1"))
	_, err := f.Grow(f.ctx, spendlimit.Growth{Hold: "a", ID: "g", By: usd("2")})
	f.ok(err)
	f.wantBalance("acme", "day", "S 0, H 4, A 0")
	f.mustSettle("a", total("2"))
	f.wantBalance("acme", "day", "S 2, H 1, A 1")
}

func TestT44_CostAboveHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "5"))
	f.wantReceipt(f.mustSettle("k", total("8")), "cost 8, excess 3")
	f.wantBalance("acme", "day", "S 8, H 0, A 2")
	if n := f.heard(spendlimit.EventOverrun); n != 0 {
		t.Errorf("%d overruns heard of", n)
	}
}

func TestT44_CostAboveLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("a", "5"))
	f.mustReserve(req("b", "5"))
	f.wantReceipt(f.mustSettle("a", total("8")), "cost 8, excess 3, overrun 3")
	f.wantBalance("acme", "day", "S 8, H 5, A -3, overrun 3")
	if n := f.heard(spendlimit.EventOverrun); n != 1 {
		t.Errorf("%d overruns heard of", n)
	}
	f.mustDeny(req("c", "1"))
	f.mustSettle("b", total("1.5"))
	f.wantBalance("acme", "day", "S 9.5, H 0, A 0.5, overrun 3")
	f.mustDeny(req("c", "1"))
	f.mustReserve(req("c", "0.5"))
}

// A million settles of a tenth of a cent, in ledgers of which each goes on from the sum of the one before. The race
// detector would take a minute for what no two goroutines do: with it there are fewer.
func TestT52_ManySmallCosts(t *testing.T) {
	t.Parallel()
	const settles = 1000
	ledgers := 1000
	if raceDetector {
		ledgers = 10
	}
	spent := spendlimit.Amount(0)
	for range ledgers {
		f := newFixture(t)
		f.limit(forever("2000"))
		f.mustCharge("so far", dollars(spent))
		for i := range settles {
			k := keyN("k", i)
			f.mustReserve(req(k, "0.002"))
			f.mustSettle(k, total("0.001"))
		}
		spent = f.balance("acme", "all").Spent
	}
	text, err := json.Marshal(spendlimit.USD.Quantity(spent))
	if want := strconv.Quote(strconv.Itoa(ledgers)); string(text) != want || err != nil {
		t.Errorf("spent %s, %v, want %s", text, err, want)
	}
}

func TestT54_AdjustDown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("80"))
	f.mustCharge("c", "80")
	f.mustDeny(req("k", "1"))
	r, err := f.Adjust(f.ctx, spendlimit.Adjustment{ID: "a1", Account: "acme", By: usd("-76.16"), Reason: "counted twice"})
	f.ok(err)
	f.wantBalance("acme", "day", "S 3.84, H 0, A 76.16")
	var last spendlimit.Entry
	for e, err := range f.Entries(f.ctx, "acme", r.Revision-1) {
		f.ok(err)
		last = e
	}
	if last.Kind != spendlimit.EntryAdjust || last.Ref != "a1" || last.Reason != "counted twice" || last.Spent != usd("-76.16") || last.Seq != r.Revision {
		t.Errorf("entry %+v", last)
	}
	f.mustReserve(req("k", "1"))
	f.unchanged(func() {
		_, err := f.Adjust(f.ctx, spendlimit.Adjustment{ID: "a2", Account: "acme", By: usd("-4"), Reason: "too much"})
		f.wantErr(err, spendlimit.ErrInvalid)
	})
	_, err = f.Adjust(f.ctx, spendlimit.Adjustment{ID: "a2", Account: "acme", By: usd("-3.84"), Reason: "the id is free"})
	f.ok(err)
	f.wantBalance("acme", "day", "S 0, H 1, A 79")
}

func TestT55_ShrunkRoomIsGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("50"))
	f.mustReserve(req("k", "48"))
	_, err := f.Shrink(f.ctx, spendlimit.Shrinkage{Hold: "k", ID: "s", By: usd("32")})
	f.ok(err)
	f.wantHold("k", "open, granted 48, own 16")
	f.mustReserve(req("other", "30"))
	f.unchanged(func() {
		_, err := f.Grow(f.ctx, spendlimit.Growth{Hold: "k", ID: "g", By: usd("32")})
		f.denial(err)
	})
	f.wantBalance("acme", "day", "S 0, H 46, A 4")
}

func TestT56_BillTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("1000"))
	f.mustCharge("c", "26.74")
	f.clock.Advance(24 * time.Hour)
	bill := spendlimit.Adjustment{ID: "bill/acme/2026-05-01/1", Account: "acme", At: noon, By: usd("743.26"), Reason: "bill"}
	_, err := f.Adjust(f.ctx, bill)
	f.ok(err)
	f.wantBalanceAt("acme", "day", noon, "S 770, H 0, A 230")
	f.unchanged(func() {
		r, err := f.Adjust(f.ctx, bill)
		f.ok(err)
		f.wantReceipt(r, "cost 743.26, replayed")
		other := bill
		other.By = usd("743.27")
		_, err = f.Adjust(f.ctx, other)
		f.wantErr(err, spendlimit.ErrKeyReused)
	})
	f.wantBalanceAt("acme", "day", noon, "S 770, H 0, A 230")
	f.wantBalance("acme", "day", "S 0, H 0, A 1000")
}
