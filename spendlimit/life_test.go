package spendlimit_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// lives brings a hold k of 5, on a limit of 10, into every state of section 1 of the spec; in two of them 2 are recorded.
var lives = map[string]func(f *fixture){
	"open":       func(*fixture) {},
	"dispatched": func(f *fixture) { f.mustDispatch("k") },
	"recorded":   func(f *fixture) { f.mustRecord("k", "u0", "2") },
	"settled":    func(f *fixture) { f.mustSettle("k", total("3")) },
	"unpriced":   func(f *fixture) { f.mustSettle("k", spendlimit.Unknown("lost")) },
	"released":   func(f *fixture) { f.mustRelease("k") },
	"lapsed":     func(f *fixture) { f.clock.Advance(time.Hour) },
	"charged": func(f *fixture) {
		f.mustDispatch("k")
		f.clock.Advance(time.Hour)
	},
	"charged+2": func(f *fixture) {
		f.mustRecord("k", "u0", "2")
		f.clock.Advance(time.Hour)
	},
}

// sentinels are what a refused cell of the table says.
var sentinels = map[string]error{
	"ErrSettled": spendlimit.ErrSettled, "ErrReleased": spendlimit.ErrReleased, "ErrLapsed": spendlimit.ErrLapsed,
	"ErrDispatched": spendlimit.ErrDispatched, "ErrKeyReused": spendlimit.ErrKeyReused, "ErrInvalid": spendlimit.ErrInvalid,
}

// What each event does to a hold in each state. A cell is the state and the balance that it leads to, with " late" when the
// receipt says so; or an error that leaves everything as it is; or "same": no error, nothing changed.
func TestLifeOfHold(t *testing.T) {
	t.Parallel()
	settle := func(c spendlimit.Cost, opts ...spendlimit.Option) func(*fixture) (spendlimit.Receipt, error) {
		return func(f *fixture) (spendlimit.Receipt, error) { return f.Settle(f.ctx, "k", c, opts...) }
	}
	release := func(opts ...spendlimit.Option) func(*fixture) (spendlimit.Receipt, error) {
		return func(f *fixture) (spendlimit.Receipt, error) { return f.Release(f.ctx, "k", opts...) }
	}
	reserve := func(amount string) func(*fixture) (spendlimit.Receipt, error) {
		return func(f *fixture) (spendlimit.Receipt, error) {
			h, err := f.Reserve(f.ctx, lasting("k", amount, time.Minute))
			if (h == nil) != (err != nil) {
				f.Errorf("hold %+v with error %v", h, err)
			}
			return spendlimit.Receipt{Replayed: h != nil && h.Replayed}, err
		}
	}
	const (
		settled3   = "settled: S 3, H 0, A 7"
		settled2   = "settled: S 2, H 0, A 8"
		settled0   = "settled: S 0, H 0, A 10"
		unpriced   = "settled-unpriced: S 5, H 0, A 5, assumed 5, unpriced 1"
		unpriced3  = "settled-unpriced: S 5, H 0, A 5, assumed 3, unpriced 1"
		releasedTo = "released: S 0, H 0, A 10"
		charged    = "lapsed-charged: S 5, H 0, A 5, assumed 5"
	)
	// ended is what most events meet in an ended state.
	ended := map[string]string{"settled unpriced": "ErrSettled", "released": "ErrReleased", "lapsed charged charged+2": "ErrLapsed"}
	with := func(m, cells map[string]string) map[string]string {
		all := maps.Clone(m)
		maps.Copy(all, cells)
		return all
	}
	for event, tc := range map[string]struct {
		do    func(f *fixture) (spendlimit.Receipt, error)
		cells map[string]string
	}{
		"Reserve, same": {reserve("5"), with(ended, map[string]string{"open dispatched recorded": "same"})},
		"Reserve, other": {reserve("4"), map[string]string{
			"open dispatched recorded settled unpriced released lapsed charged charged+2": "ErrKeyReused",
		}},
		"Dispatch": {
			func(f *fixture) (spendlimit.Receipt, error) { return spendlimit.Receipt{}, f.Dispatch(f.ctx, "k") },
			with(ended, map[string]string{"open": "dispatched: S 0, H 5, A 5", "dispatched recorded": "same"}),
		},
		"Record 1": {
			func(f *fixture) (spendlimit.Receipt, error) {
				return f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "u", Cost: total("1")})
			},
			map[string]string{
				"open dispatched": "dispatched: S 1, H 4, A 5", "recorded": "dispatched: S 3, H 2, A 5",
				"settled unpriced": "ErrSettled", "released": "ErrReleased",
				"lapsed":    "lapsed-charged: S 1, H 0, A 9 late",
				"charged":   "lapsed-charged: S 5, H 0, A 5, assumed 4 late",
				"charged+2": "lapsed-charged: S 5, H 0, A 5, assumed 2 late",
			},
		},
		"Record 7": {
			func(f *fixture) (spendlimit.Receipt, error) {
				return f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "u", Cost: total("7")})
			},
			map[string]string{
				"open dispatched": "dispatched: S 7, H 0, A 3", "recorded": "dispatched: S 9, H 0, A 1",
				"settled unpriced": "ErrSettled", "released": "ErrReleased",
				"lapsed": "lapsed-charged: S 7, H 0, A 3 late", "charged": "lapsed-charged: S 7, H 0, A 3 late",
				"charged+2": "lapsed-charged: S 9, H 0, A 1 late",
			},
		},
		"Settle Total(3)": {settle(total("3")), map[string]string{
			"open dispatched recorded": settled3, "settled": "same", "released": "ErrReleased",
			"unpriced lapsed charged charged+2": settled3 + " late",
		}},
		"Settle Total(3), Late": {settle(total("3"), spendlimit.Late), map[string]string{
			"open dispatched recorded": settled3, "settled": "same",
			"released unpriced lapsed charged charged+2": settled3 + " late",
		}},
		"Settle Total(7)": {settle(total("7")), map[string]string{
			"open dispatched recorded": "settled: S 7, H 0, A 3", "settled": "ErrSettled", "released": "ErrReleased",
			"unpriced lapsed charged charged+2": "settled: S 7, H 0, A 3 late",
		}},
		"Settle Total(1)": {settle(total("1")), map[string]string{
			"open dispatched": "settled: S 1, H 0, A 9", "recorded charged+2": "ErrInvalid", "settled": "ErrSettled",
			"released": "ErrReleased", "unpriced lapsed charged": "settled: S 1, H 0, A 9 late",
		}},
		"Settle Recorded": {settle(spendlimit.Recorded()), map[string]string{
			"open dispatched": settled0, "recorded": settled2, "settled": "same", "released": "ErrReleased",
			"unpriced lapsed charged": settled0 + " late", "charged+2": settled2 + " late",
		}},
		"Settle Recorded, Late": {settle(spendlimit.Recorded(), spendlimit.Late), map[string]string{
			"open dispatched": settled0, "recorded": settled2, "settled": "same",
			"released unpriced lapsed charged": settled0 + " late", "charged+2": settled2 + " late",
		}},
		"Settle Unknown": {settle(spendlimit.Unknown("?")), map[string]string{
			"open dispatched": unpriced, "recorded": unpriced3, "settled": "ErrSettled", "unpriced": "same",
			"released": "ErrReleased", "lapsed charged": unpriced + " late", "charged+2": unpriced3 + " late",
		}},
		"Settle Unknown, Late": {settle(spendlimit.Unknown("?"), spendlimit.Late), map[string]string{
			"open dispatched": unpriced, "recorded": unpriced3, "settled": "ErrSettled", "unpriced": "same",
			"released lapsed charged": unpriced + " late", "charged+2": unpriced3 + " late",
		}},
		"Release": {release(), map[string]string{
			"open": releasedTo, "dispatched recorded": "ErrDispatched", "settled unpriced": "ErrSettled",
			"released lapsed": "same", "charged charged+2": "ErrLapsed",
		}},
		"Release, NotSpent": {release(spendlimit.NotSpent), map[string]string{
			"open dispatched": releasedTo, "recorded": "ErrDispatched", "settled unpriced": "ErrSettled",
			"released lapsed": "same", "charged": settled0 + " late", "charged+2": settled2 + " late",
		}},
		"Close": {
			func(f *fixture) (spendlimit.Receipt, error) { return spendlimit.Receipt{}, f.Close(f.ctx, "k") },
			map[string]string{
				"open": releasedTo, "dispatched": charged, "recorded": "lapsed-charged: S 5, H 0, A 5, assumed 3",
				"settled unpriced released lapsed charged charged+2": "same",
			},
		},
		"Extend": {
			func(f *fixture) (spendlimit.Receipt, error) {
				return f.Extend(f.ctx, spendlimit.Extension{Hold: "k", TTL: time.Minute})
			},
			with(ended, map[string]string{"open dispatched recorded": "same"}), // not later than it was
		},
		"Grow": {
			func(f *fixture) (spendlimit.Receipt, error) {
				return f.Grow(f.ctx, spendlimit.Growth{Hold: "k", ID: "u", By: usd("1")})
			},
			with(ended, map[string]string{
				"open": "open: S 0, H 6, A 4", "dispatched": "dispatched: S 0, H 6, A 4", "recorded": "dispatched: S 2, H 4, A 4",
			}),
		},
		"Shrink": {
			func(f *fixture) (spendlimit.Receipt, error) {
				return f.Shrink(f.ctx, spendlimit.Shrinkage{Hold: "k", ID: "u", By: usd("1")})
			},
			with(ended, map[string]string{
				"open": "open: S 0, H 4, A 6", "dispatched": "dispatched: S 0, H 4, A 6", "recorded": "dispatched: S 2, H 2, A 6",
			}),
		},
		"time": {
			func(f *fixture) (spendlimit.Receipt, error) {
				f.clock.Advance(time.Hour)
				return spendlimit.Receipt{}, nil
			},
			map[string]string{
				"open": "lapsed-free: S 0, H 0, A 10", "dispatched": charged, "recorded": "lapsed-charged: S 5, H 0, A 5, assumed 3",
				"settled unpriced released lapsed charged charged+2": "same",
			},
		},
	} {
		seen := 0
		for states, cell := range tc.cells {
			for _, state := range strings.Fields(states) {
				seen++
				t.Run(event+"/"+state, func(t *testing.T) {
					t.Parallel()
					f := newFixture(t)
					f.limit(daily("10"))
					f.mustReserve(lasting("k", "5", time.Minute))
					lives[state](f)
					f.wantCell(cell, tc.do)
				})
			}
		}
		if seen != len(lives) {
			t.Errorf("%s: %d states in %v, want %v", event, seen, tc.cells, slices.Sorted(maps.Keys(lives)))
		}
	}
}

func (f *fixture) wantCell(cell string, do func(f *fixture) (spendlimit.Receipt, error)) {
	f.Helper()
	refusal := sentinels[cell]
	if refusal != nil || cell == "same" {
		f.unchanged(func() {
			if _, err := do(f); !errors.Is(err, refusal) {
				f.Errorf("got error %v, want %v", err, refusal)
			}
		})
		return
	}
	r, err := do(f)
	f.ok(err)
	h, err := f.Hold(f.ctx, "k")
	f.ok(err)
	got := h.State.String() + ": " + showBalance(f.balance("acme", "day"))
	if r.Late {
		got += " late"
	}
	if got != cell {
		f.Errorf("\n got %s\nwant %s", got, cell)
	}
}

// An ended hold tells in its error how it ended.
func TestEndedErrorHasTheReceipt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "5"))
	f.mustSettle("k", total("3"))
	_, err := f.Reserve(f.ctx, req("k", "5"))
	var ended *spendlimit.EndedError
	if !errors.As(err, &ended) || ended.Hold != "k" || ended.State != spendlimit.Settled {
		t.Fatalf("error %v", err)
	}
	f.wantReceipt(ended.Receipt, "cost 3, returned 2")
}
