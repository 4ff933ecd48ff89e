package spendlimit_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/spendlimit"
)

func TestT2_EveryGrantCounts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	held := spendlimit.Amount(0)
	for i := range 1000 {
		f.mustReserve(req(keyN("k", i), "0.01"))
		held += usd("0.01")
		if got := f.balance("acme", "day").Held; got != held {
			t.Fatalf("after %d grants: held %s, want %s", i+1, dollars(got), dollars(held))
		}
	}
	f.mustDeny(req("one more", "0.01"))
}

func TestT5_UsedUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustCharge("c", "10")
	f.mustDeny(req("run-2", "1"))
	f.unchanged(func() {
		_, err := f.Check(f.ctx, req("run-3", "1"))
		f.denial(err)
	})
	f.wantBalance("acme", "day", "S 10, H 0, A 0")
}

func TestT12_SameKeyAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	first := f.mustReserve(req("k", "3"))
	f.unchanged(func() {
		again := f.mustReserve(req("k", "3"))
		if first.Replayed || !again.Replayed {
			t.Errorf("replayed: first %v, again %v", first.Replayed, again.Replayed)
		}
		if again.Granted != first.Granted || !again.ExpiresAt.Equal(first.ExpiresAt) || again.Revision != first.Revision {
			t.Errorf("got %+v, want %+v", again, first)
		}
	})
	f.wantBalance("acme", "day", "S 0, H 3, A 7")
}

func TestT13_HeldCountsInCheck(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "9"))
	_, err := f.Check(f.ctx, req("check", "2"))
	if d := f.denial(err); d.Reason != spendlimit.ReasonHeld || !d.WaitHolds {
		t.Errorf("reason %v, wait for holds %v", d.Reason, d.WaitHolds)
	}
}

func TestT14_SixthDenied(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("5000"))
	for i := range 5 {
		f.mustReserve(req(keyN("k", i), "1000"))
	}
	f.mustDeny(req("k5", "1000"))
	f.wantBalance("acme", "day", "S 0, H 5000, A 0")
}

func TestT16_DeniedKeyIsFree(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("other", "10"))
	f.mustDeny(req("k", "4"))
	_, err := f.Settle(f.ctx, "k", total("4"))
	f.wantErr(err, spendlimit.ErrNotFound)
	f.wantBalance("acme", "day", "S 0, H 10, A 0")
	f.mustRelease("other")
	if h := f.mustReserve(req("k", "5")); h.Replayed {
		t.Error("the denied request was remembered")
	}
	f.wantBalance("acme", "day", "S 0, H 5, A 5")
}

func TestT28_FreeHoldOnUsedUpLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustCharge("c", "10")
	f.mustReserve(spendlimit.Request{Key: "free", Accounts: names("acme"), Free: true})
	f.wantHold("free", "open, granted 0")
	f.mustDeny(req("step", "0.000000001"))
}

func TestT33_SplitOfHundredOverSeven(t *testing.T) {
	t.Parallel()
	if grants, want := splitAll(newFixture(t), 100, 7), []spendlimit.Amount{14, 14, 14, 14, 14, 15, 15}; !slices.Equal(grants, want) {
		t.Errorf("grants %d, want %d", grants, want)
	}
}

// I9: the parts add up to the whole and differ by at most one step. They are rounded down, so the larger ones come last.
func TestT33_SplitIsEven(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 40).Draw(t, "slots")
		whole := spendlimit.Amount(rapid.Int64Range(int64(slots), 1<<50).Draw(t, "whole"))
		grants := splitAll(newFixture(t), whole, slots)
		sum := spendlimit.Amount(0)
		for _, g := range grants {
			sum += g
		}
		floor := whole / spendlimit.Amount(slots)
		if first, last := grants[0], grants[slots-1]; sum != whole || first != floor || last-first > 1 || !slices.IsSorted(grants) {
			t.Errorf("%d over %d: %d, sum %d", whole, slots, grants, sum)
		}
	})
}

// splitAll lets all members of a group take their shares of a limit.
func splitAll(f *fixture, whole spendlimit.Amount, slots int) []spendlimit.Amount {
	f.limit(spendlimit.Limit{Account: "acme", Name: "all", Kind: spendlimit.AllTime, Amount: whole})
	r := spendlimit.Request{Accounts: names("acme"), Split: spendlimit.Split{Group: "g", Slots: slots}}
	var grants []spendlimit.Amount
	for i := range slots {
		r.Key = keyN("k", i)
		grants = append(grants, f.mustReserve(r).Granted)
	}
	r.Key = "one too many"
	if d := f.mustDeny(r); d.Reason != spendlimit.ReasonGroupFull {
		f.Errorf("member %d: reason %v", slots+1, d.Reason)
	}
	return grants
}

func TestT45_RetryAfterPeriodEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustCharge("c", "10")
	d := f.mustDeny(req("k", "1"))
	if d.Reason != spendlimit.ReasonSpent || d.WaitHolds || !d.WaitReset || d.RetryAfter != 12*time.Hour || !d.ResetAt.Equal(d2) {
		t.Errorf("refusal %+v", d)
	}
}

func TestT45_RetryAfterSecondHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	for key, ttl := range map[string]time.Duration{"a": 30 * time.Second, "b": 90 * time.Second} {
		r := req(key, "5")
		r.TTL = ttl
		f.mustReserve(r)
	}
	d := f.mustDeny(req("k", "6"))
	if want := 90*time.Second + time.Microsecond; d.Reason != spendlimit.ReasonHeld || !d.WaitHolds || d.RetryAfter != want {
		t.Errorf("refusal %+v, want RetryAfter %v", d, want)
	}
	f.clock.Advance(d.RetryAfter - time.Microsecond)
	f.mustDeny(req("k", "6"))
	f.clock.Advance(time.Microsecond)
	f.mustReserve(req("k", "6"))
}

func TestR66_RetryAfterInsideAParent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	r := req("p", "10")
	r.TTL = time.Hour
	f.mustReserve(r)
	child := func(key, parent, amount string, ttl time.Duration) spendlimit.Request {
		return spendlimit.Request{Key: key, Parent: parent, Amount: usd(amount), TTL: ttl}
	}
	f.mustReserve(child("a", "p", "4", 3*time.Minute))
	f.mustReserve(child("below a", "a", "1", time.Minute)) // a inherits it first
	f.mustReserve(child("b", "p", "2", 2*time.Minute))
	f.mustReserve(child("sent", "p", "4", time.Minute))
	f.mustDispatch("sent")
	for _, test := range []struct {
		amount string
		after  time.Duration
	}{{"2", 2 * time.Minute}, {"6", 3 * time.Minute}, {"7", time.Hour}} {
		d := f.mustDeny(child("k", "p", test.amount, time.Minute))
		if want := test.after + time.Microsecond; d.Reason != spendlimit.ReasonParent || d.RetryAfter != want {
			t.Errorf("%s: %+v, want RetryAfter %v", test.amount, d, want)
		}
	}
	f.clock.Advance(3 * time.Minute)
	f.mustDeny(child("k", "p", "6", time.Minute))
	f.clock.Advance(time.Microsecond)
	f.mustReserve(child("k", "p", "6", time.Minute))
}

func TestR11_AllOrNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.limit(spendlimit.Limit{Account: "acme", Name: "week", Kind: spendlimit.Week, Amount: usd("12")})
	f.limit(spendlimit.Limit{Account: "run", Name: "all", Kind: spendlimit.AllTime, Amount: usd("4")})
	both := spendlimit.Request{Key: "k", Accounts: names("run", "acme"), Amount: usd("5")}

	if d := f.mustDeny(both); d.Binding.Account != "run" || d.Binding.Limit != "all" {
		t.Errorf("binding %s/%s", d.Binding.Account, d.Binding.Limit)
	}
	both.Amount = usd("3")
	if h := f.mustReserve(both); h.Binding != (spendlimit.Binding{}) {
		t.Errorf("binding %+v of a grant that nothing cut", h.Binding)
	}
	f.wantBalance("acme", "day", "S 0, H 3, A 7")
	f.wantBalance("acme", "week", "S 0, H 3, A 9")
	f.wantBalance("run", "all", "S 0, H 3, A 1")

	rest := spendlimit.Request{Key: "rest", Accounts: names("acme", "run"), Rest: true}
	if h := f.mustReserve(rest); h.Granted != usd("1") || h.Binding != (spendlimit.Binding{Account: "run", Limit: "all"}) {
		t.Errorf("granted %s, binding %+v", dollars(h.Granted), h.Binding)
	}
}

// The grant is the least of the want, of what every hard limit has and of what the parent has (R11), judged by the
// form of the request: exact (R12), at least Min (R13), the rest (R14).
func TestR11_R12_R13_R14_LeastRoom(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := newFixture(t)
		steps := rapid.Int64Range(0, 12)
		rooms := map[spendlimit.Binding]spendlimit.Amount{}
		var r spendlimit.Request
		for i := range rapid.IntRange(1, 3).Draw(t, "accounts") {
			account := keyN("a", i)
			r.Accounts = append(r.Accounts, account)
			spent := spendlimit.Amount(steps.Draw(t, "spent"))
			for j := range rapid.IntRange(1, 3).Draw(t, "limits") {
				l := spendlimit.Limit{Account: account, Name: keyN("l", j), Kind: spendlimit.AllTime, Amount: spendlimit.Amount(steps.Draw(t, "limit"))}
				if j > 0 && rapid.Bool().Draw(t, "soft") {
					l.Mode = spendlimit.Soft
				} else {
					rooms[spendlimit.Binding{Account: account, Limit: l.Name}] = l.Amount - spent
				}
				f.limit(l)
			}
			f.mustCharge("c"+account, dollars(spent), account)
		}
		if own := spendlimit.Amount(steps.Draw(t, "parent")); own > 0 {
			f.limit(spendlimit.Limit{Account: "p", Name: "all", Kind: spendlimit.AllTime, Amount: own})
			f.mustReserve(spendlimit.Request{Key: "p", Accounts: names("p"), Rest: true})
			r.Parent = "p"
			rooms[spendlimit.Binding{Parent: "p"}] = own
		}

		room := slices.Min(slices.Collect(maps.Values(rooms)))
		r.Amount = spendlimit.Amount(steps.Draw(t, "amount"))
		grant, least := min(r.Amount, room), r.Amount
		switch {
		case r.Amount == 0:
			r.Rest = true
			r.Min = spendlimit.Amount(steps.Draw(t, "min"))
			grant, least = room, max(r.Min, 1)
		case rapid.Bool().Draw(t, "less is fine"):
			r.Min = spendlimit.Amount(rapid.Int64Range(1, int64(r.Amount)).Draw(t, "min"))
			least = r.Min
		}

		r.Key = "k"
		offer, err := f.Check(f.ctx, r)
		if grant < least {
			f.denial(err)
			f.mustDeny(r)
			return
		}
		f.ok(err)
		h := f.mustReserve(r)
		if offer.Amount != grant || h.Granted != grant || h.Own != grant || h.Binding != offer.Binding {
			t.Errorf("offer %+v, hold %+v, want %d", offer, h, grant)
		}
		cut := r.Rest || grant < r.Amount
		if named, ok := rooms[h.Binding]; cut != ok || ok && named != grant {
			t.Errorf("binding %+v, rooms %v, grant %d of %d", h.Binding, rooms, grant, r.Amount)
		}
	})
}

func TestR12_RoomExactly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("a", "6"))
	f.mustDeny(req("b", "4.000000001"))
	f.mustReserve(req("b", "4"))
	f.wantBalance("acme", "day", "S 0, H 10, A 0")
}

func TestR13_AtLeastMin(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	r := req("a", "8")
	r.Min = usd("3")
	f.mustReserve(r)
	f.wantHold("a", "open, granted 8, own 8")
	r.Key = "b"
	f.mustDeny(r) // 2 are free
	r.Key, r.Min = "c", usd("2")
	f.mustReserve(r)
	f.wantHold("c", "open, granted 2, own 2")
}

func TestR14_Rest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustCharge("c", "7.5")
	rest := spendlimit.Request{Key: "a", Accounts: names("acme"), Rest: true, Min: usd("2.6")}
	f.mustDeny(rest)
	rest.Min = usd("2.5")
	f.mustReserve(rest)
	f.wantHold("a", "open, granted 2.5, own 2.5")
	f.mustDeny(spendlimit.Request{Key: "b", Accounts: names("acme"), Rest: true}) // not even a step
}

func TestR15_NothingWanted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	for name, r := range map[string]spendlimit.Request{
		"no form":         {},
		"Free and Amount": {Free: true, Amount: 1},
		"Free and Min":    {Free: true, Min: 1},
		"Free and Rest":   {Free: true, Rest: true},
		"Free and Split":  {Free: true, Split: spendlimit.Split{Group: "g", Slots: 2}},
		"Rest and Amount": {Rest: true, Amount: 1},
		"Min over Amount": {Amount: 1, Min: 2},
	} {
		r.Key, r.Accounts = "k", names("acme")
		f.unchanged(func() {
			if _, err := f.Reserve(f.ctx, r); !errors.Is(err, spendlimit.ErrInvalid) {
				t.Errorf("%s: error %v", name, err)
			}
		})
	}
}

func TestR15_FreeOnFrozenLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "1"))
	f.mustSettle("k", spendlimit.Unknown("no answer"))
	d := f.mustDeny(spendlimit.Request{Key: "free", Accounts: names("acme"), Free: true})
	if !errors.Is(d, spendlimit.ErrUnpriced) {
		t.Errorf("refusal %v", d)
	}
}

// Every field of a request is part of what its key stands for.
func TestR16_KeyContent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("100"))
	f.limit(spendlimit.Limit{Account: "run", Name: "all", Kind: spendlimit.AllTime, Amount: usd("100")})
	f.mustReserve(req("root", "10"))
	base := spendlimit.Request{
		Key: "k", Accounts: names("acme"), Amount: 9, Min: 3, Split: spendlimit.Split{Group: "g", Slots: 2},
		TTL: time.Minute, Labels: map[string]string{"model": "m"}, Price: `{"in":"1"}`,
	}
	h := f.mustReserve(base)
	if h.Price != base.Price || !maps.Equal(h.Labels, base.Labels) || h.Group != "g" || h.Slots != 2 {
		t.Errorf("hold %+v", h)
	}
	stored, err := f.Hold(f.ctx, "k")
	f.ok(err)
	if stored.Price != base.Price || !maps.Equal(stored.Labels, base.Labels) {
		t.Errorf("stored %+v", stored)
	}
	for field, change := range map[string]func(*spendlimit.Request){
		"Accounts":    func(r *spendlimit.Request) { r.Accounts = names("acme", "run") },
		"Amount":      func(r *spendlimit.Request) { r.Amount = 8 },
		"Min":         func(r *spendlimit.Request) { r.Min = 2 },
		"Rest":        func(r *spendlimit.Request) { r.Amount, r.Rest = 0, true },
		"Split.Group": func(r *spendlimit.Request) { r.Split.Group = "h" },
		"Split.Slots": func(r *spendlimit.Request) { r.Split.Slots = 3 },
		"no Split":    func(r *spendlimit.Request) { r.Split = spendlimit.Split{} },
		"Parent":      func(r *spendlimit.Request) { r.Parent = "root" },
		"TTL":         func(r *spendlimit.Request) { r.TTL = 2 * time.Minute },
		"Labels":      func(r *spendlimit.Request) { r.Labels = map[string]string{"model": "n"} },
		"no Labels":   func(r *spendlimit.Request) { r.Labels = nil },
		"Price":       func(r *spendlimit.Request) { r.Price = `{"in":"2"}` },
	} {
		r := base
		change(&r)
		f.unchanged(func() {
			if _, err := f.Reserve(f.ctx, r); !errors.Is(err, spendlimit.ErrKeyReused) {
				t.Errorf("other %s: error %v", field, err)
			}
		})
	}
	f.mustRelease("k")
	changed := base
	changed.Amount = 8
	_, err = f.Reserve(f.ctx, changed) // reuse is seen after the end too
	f.wantErr(err, spendlimit.ErrKeyReused)
	_, err = f.Reserve(f.ctx, base)
	f.wantErr(err, spendlimit.ErrReleased)
}

func TestR17_MoreThanTheLimit(t *testing.T) {
	t.Parallel()
	raised := func(until time.Time) spendlimit.Limit {
		l := daily("10")
		l.Raise = spendlimit.Raise{By: usd("10"), Until: until}
		return l
	}
	carrying := daily("10")
	carrying.CarryUnused = usd("5")
	for name, tc := range map[string]struct {
		limit    spendlimit.Limit
		spent    string
		want     string
		hopeless bool
	}{
		"day":                      {daily("10"), "0", "10.000000001", true},
		"total":                    {forever("10"), "0", "11", true},
		"total used up":            {forever("10"), "10", "1", true},
		"fits tomorrow":            {daily("10"), "1", "10", false},
		"raised tomorrow too":      {raised(d2.Add(time.Hour)), "10", "15", false},
		"raise ends with the day":  {raised(d2), "10", "15", true},
		"raised, but not so much":  {raised(d2.Add(time.Hour)), "10", "20.1", true},
		"room carried to tomorrow": {carrying, "3", "15", false},
		"not so much room carried": {carrying, "3", "15.1", true},
		"less is left to carry":    {carrying, "7", "13.1", true},
		"what is left to carry":    {carrying, "7", "13", false},
		"nothing is left to carry": {carrying, "11", "10.1", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(tc.limit)
			f.mustCharge("c", tc.spent)
			d := f.mustDeny(req("k", tc.want))
			if d.Hopeless != tc.hopeless || d.WaitReset == tc.hopeless || d.WaitHolds || (d.RetryAfter == 0) != tc.hopeless {
				t.Errorf("refusal %+v, want hopeless %v", d, tc.hopeless)
			}
		})
	}
}
