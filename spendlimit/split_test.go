package spendlimit_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
)

// on returns the limit moved to another account.
func on(account string, l spendlimit.Limit) spendlimit.Limit {
	l.Account = account
	return l
}

// weekly is the limit acme/week.
func weekly(amount string) spendlimit.Limit {
	return spendlimit.Limit{Account: "acme", Name: "week", Kind: spendlimit.Week, Amount: usd(amount)}
}

// share asks for an even share on acme.
func share(key, group string, slots int) spendlimit.Request {
	return spendlimit.Request{Key: key, Accounts: names("acme"), Split: spendlimit.Split{Group: group, Slots: slots}}
}

// rest asks for whatever is free.
func rest(key string, accounts ...string) spendlimit.Request {
	if len(accounts) == 0 {
		accounts = names("acme")
	}
	return spendlimit.Request{Key: key, Accounts: accounts, Rest: true}
}

// child asks for room in another hold.
func child(key, parent, amount string, accounts ...string) spendlimit.Request {
	return spendlimit.Request{Key: key, Parent: parent, Amount: usd(amount), Accounts: accounts}
}

// mustGrant wants a grant of exactly this amount.
func (f *fixture) mustGrant(r spendlimit.Request, want string) *spendlimit.Hold {
	f.Helper()
	h := f.mustReserve(r)
	if got := dollars(h.Granted); got != want {
		f.Errorf("%s: granted %s, want %s", r.Key, got, want)
	}
	return h
}

// wantBinding wants the limit, as account/limit, or the parent that cut a grant.
func (f *fixture) wantBinding(h *spendlimit.Hold, want string) {
	f.Helper()
	if got := bindingText(h.Binding); got != want {
		f.Errorf("%s: bound by %q, want %q", h.Key, got, want)
	}
}

func bindingText(b spendlimit.Binding) string {
	if b.Parent != "" {
		return "parent " + b.Parent
	}
	return strings.Trim(b.Account+"/"+b.Limit, "/")
}

func TestT59_RestOnTwoAccounts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		total       string // of the task; "" is no limit
		want, bound string
	}{
		"total 7":  {"7", "1", "task/all"},
		"total 20": {"20", "4", "user/day"},
		"no total": {"", "4", "user/day"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, spendlimit.Config{NoLimit: spendlimit.Allow})
			f.limit(on("user", daily("10")))
			f.mustCharge("user so far", "6", "user")
			if tc.total != "" {
				f.limit(on("task", forever(tc.total)))
			}
			f.mustCharge("task so far", "6", "task")
			f.wantBinding(f.mustGrant(rest("k", "task", "user"), tc.want), tc.bound)
		})
	}
}

func TestT62_FourSlots(t *testing.T) {
	t.Parallel()
	t.Run("one after another", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		for _, i := range []int{2, 0, 3, 1} {
			f.mustGrant(share(keyN("slot", i), "g", 4), "2.5")
		}
		f.wantBalance("acme", "day", "S 0, H 10, A 0")
	})
	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		concurrently(4, func(i int) {
			if h, err := f.Reserve(f.ctx, share(keyN("slot", i), "g", 4)); err != nil || h.Granted != usd("2.5") {
				f.Errorf("slot %d: %+v, %v", i, h, err)
			}
		})
		f.wantBalance("acme", "day", "S 0, H 10, A 0")
	})
}

func TestT63_GroupIsSizedByTheCaller(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("2"))
	for i := range 2 {
		f.mustGrant(share(keyN("m", i), "g", 2), "1")
	}
	for i := range 2 {
		f.mustSettle(keyN("m", i), total("0"))
	}
	f.mustGrant(share("alone", "g", 1), "2")
}

func TestT64_R22_SiblingsOfYesterdayDoNotCount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.clock.Set(d2.Add(-time.Minute))
	f.mustGrant(share("old", "g", 4), "2.5")
	f.clock.Set(d2)
	for i := range 4 {
		f.mustGrant(share(keyN("new", i), "g", 4), "2.5")
	}
	if d := f.mustDeny(share("fifth", "g", 4)); d.Reason != spendlimit.ReasonGroupFull {
		t.Errorf("reason %v, want group full", d.Reason)
	}
}

func TestT65_TwoGroups(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustGrant(share("a1", "a", 2), "5")
	f.mustGrant(share("b1", "b", 1), "5")
	f.wantReceipt(f.mustRelease("b1"), "returned 5")
	f.wantReceipt(f.mustRelease("b1"), "returned 5, replayed")
	f.wantHold("b1", "released, granted 5")
	f.wantHold("a1", "open, granted 5, own 5")
	f.wantBalance("acme", "day", "S 0, H 5, A 5")
	f.mustGrant(share("a2", "a", 2), "5") // a1 counts as sibling: 5 / (2 − 1)
}

func TestT68_ExactRests(t *testing.T) {
	t.Parallel()
	t.Run("rest", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("1.28"))
		f.mustCharge("c", "0.118")
		f.mustGrant(rest("first"), "1.162")
		f.mustDeny(rest("second"))
	})
	t.Run("split", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("2.1"))
		f.mustCharge("c", "0.031331")
		for i := range 2 {
			f.mustGrant(share(keyN("m", i), "g", 2), "1.0343345")
		}
		f.wantBalance("acme", "day", "S 0.031331, H 2.068669, A 0")
		f.mustDeny(share("third", "g", 2))
	})
	t.Run("ten charges", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("1"))
		for i := range 10 {
			f.mustCharge(keyN("c", i), "0.10")
		}
		f.mustDeny(req("k", "0.000000001"))
	})
}

// A's steps on a share of 2.50 that costs 2.50, and B asking for the rest before, between and after them.
func TestT69_RestBetweenRecordAndSettle(t *testing.T) {
	t.Parallel()
	steps := []func(*fixture){
		func(f *fixture) { f.mustDispatch("A") },
		func(f *fixture) { f.mustRecord("A", "u", "1") },
		func(f *fixture) { f.mustRecord("A", "v", "1.5") },
		func(f *fixture) { f.mustSettle("A", spendlimit.Recorded()) },
	}
	for when := range len(steps) + 1 {
		f := newFixture(t)
		f.limit(daily("10"))
		f.mustGrant(share("A", "g", 4), "2.5")
		for i, step := range steps {
			if i == when {
				f.mustGrant(rest("B"), "7.5")
			}
			step(f)
		}
		if when == len(steps) {
			f.mustGrant(rest("B"), "7.5")
		}
		f.wantBalance("acme", "day", "S 2.5, H 7.5, A 0")
	}

	t.Run("at once", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.mustGrant(share("A", "g", 4), "2.5")
		concurrently(2, func(i int) {
			if i == 0 {
				for _, step := range steps {
					step(f)
				}
				return
			}
			if h, err := f.Reserve(f.ctx, rest("B")); err != nil || h.Granted != usd("7.5") {
				f.Errorf("B: %+v, %v", h, err)
			}
		})
	})
}

func TestT70_ReleaseASlotTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	for i := range 4 {
		f.mustGrant(share(keyN("slot", i), "g", 4), "2.5")
	}
	f.mustRelease("slot1")
	f.unchanged(func() { f.mustRelease("slot1") })
	f.wantBalance("acme", "day", "S 0, H 7.5, A 2.5")
}

// The clock crosses midnight each time that it is read: a step that read it twice would see no sibling on D2.
func TestT71_OneNowPerStep(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	now, running := d2.Add(-time.Second), false
	read := func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		was := now
		if running {
			now = d2.Add(time.Second)
		}
		return was
	}
	f := newFixture(t)
	f.store.Store = memory.New(&memory.Options{Clock: read}).Spend()
	f.limit(daily("10"))
	for i := range 3 {
		f.mustGrant(share(keyN("m", i), "g", 4), "2.5")
	}
	mu.Lock()
	running = true
	mu.Unlock()
	h := f.mustGrant(share("m3", "g", 4), "2.5")
	if !h.CreatedAt.Before(d2) {
		t.Errorf("created at %v, want before midnight", h.CreatedAt)
	}
	f.wantBalanceAt("acme", "day", noon, "S 0, H 10, A 0")
	f.wantBalanceAt("acme", "day", d2, "S 0, H 0, A 10")
}

func TestT78_RestAfterAShare(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustGrant(share("m", "g", 4), "2.5")
	f.mustGrant(rest("first"), "7.5")
	d := f.mustDeny(rest("second"))
	if d.Reason != spendlimit.ReasonHeld || d.Binding.Held != usd("10") {
		t.Errorf("denied for %v with H %s, want held, H 10", d.Reason, dollars(d.Binding.Held))
	}
}

func TestR18_EvenSplit(t *testing.T) {
	t.Parallel()
	t.Run("the last slot takes the remainder", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		for i, want := range []string{"3.333333333", "3.333333333", "3.333333334"} {
			f.mustGrant(share(keyN("m", i), "g", 3), want)
		}
		f.wantBalance("acme", "day", "S 0, H 10, A 0")
	})
	t.Run("the least share of all limits", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.limit(weekly("6"))
		f.wantBinding(f.mustGrant(share("m", "g", 4), "1.5"), "acme/week")
	})
	t.Run("each limit counts its own siblings", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.limit(weekly("8"))
		f.mustGrant(share("friday", "g", 4), "2")
		f.clock.Set(d2) // Saturday: no sibling today (10 / 4), one in this week ((8 − 2) / 3)
		f.wantBinding(f.mustGrant(share("saturday", "g", 4), "2"), "acme/week")
	})
	t.Run("Amount caps a share and Min bounds it", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		r := share("capped", "g", 4)
		r.Amount = usd("2")
		f.mustGrant(r, "2")
		r = share("wants too much", "g", 4)
		r.Amount, r.Min = usd("5"), usd("2.7")
		d := f.mustDeny(r) // (10 − 2) / 3 = 2.666666666
		if d.Min != usd("2.7") || d.Wanted != usd("5") {
			t.Errorf("wanted %s, at least %s", dollars(d.Wanted), dollars(d.Min))
		}
		r.Min = usd("2.6")
		f.mustGrant(r, "2.666666666")
	})
	t.Run("Rest has no own want", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		r := share("m", "g", 4)
		r.Rest = true
		f.mustGrant(r, "2.5")
	})
	t.Run("a parent's children", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("100"))
		f.mustReserve(req("P", "10"))
		f.mustReserve(req("Q", "10"))
		inGroup := func(key, parent string) spendlimit.Request {
			return spendlimit.Request{Key: key, Parent: parent, Split: spendlimit.Split{Group: "g", Slots: 3}}
		}
		f.mustGrant(inGroup("q1", "Q"), "3.333333333") // no sibling of P's children
		f.mustGrant(inGroup("p1", "P"), "3.333333333")
		f.mustGrant(inGroup("p2", "P"), "3.333333333")
		f.wantBinding(f.mustGrant(inGroup("p3", "P"), "3.333333334"), "parent P")
		d := f.mustDeny(inGroup("p4", "P"))
		if d.Reason != spendlimit.ReasonGroupFull || d.Parent != "P" || !d.WaitHolds || d.Hopeless {
			t.Errorf("got %+v, want P's group full", d)
		}
		f.wantBalance("acme", "day", "S 0, H 20, A 80")
	})
}

func TestR19_GroupFull(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	r := share("m0", "g", 2)
	r.Amount = usd("1")
	f.mustGrant(r, "1")
	r.Key = "m1"
	f.mustGrant(r, "1")
	r.Key = "m2"
	other := req("no member", "1")
	other.TTL = time.Minute
	f.mustReserve(other)
	d := f.mustDeny(r) // 7 are free, but no slot is
	if d.Reason != spendlimit.ReasonGroupFull || !d.WaitHolds || d.WaitReset || d.Hopeless {
		t.Errorf("got %+v, want group full, waiting for holds helps", d)
	}
	if d.RetryAfter != 10*time.Minute+time.Microsecond { // when m0 lapses, not when another hold does
		t.Errorf("retry after %v", d.RetryAfter)
	}
	f.mustRelease("m0")
	f.mustGrant(r, "1")
}

func TestR20_OthersAreNoSiblings(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("ungrouped", "2"))
	f.mustGrant(share("other", "h", 4), "2")
	f.mustGrant(share("m0", "g", 2), "3") // (10 − 2 − 2) / 2
	f.mustGrant(share("m1", "g", 2), "3")
}

func TestR21_AnEndedMemberLeavesItsSlot(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f *fixture){
		"settled": func(f *fixture) { f.mustSettle("m0", total("0.5")) },
		"lapsed": func(f *fixture) {
			f.mustRecord("m0", "u", "0.5")
			_, err := f.Shrink(f.ctx, spendlimit.Shrinkage{Hold: "m0", ID: "s", By: usd("2")})
			f.ok(err)
			for i := 1; i < 4; i++ {
				_, err := f.Extend(f.ctx, spendlimit.Extension{Hold: keyN("m", i), TTL: time.Hour})
				f.ok(err)
			}
			f.clock.Advance(11 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("10"))
			for i := range 4 {
				f.mustGrant(share(keyN("m", i), "g", 4), "2.5")
			}
			end(f)
			f.mustGrant(share("next", "g", 4), "2") // (10 − 0.5 − 7.5) / 1
		})
	}
}

func TestR23_AnotherSize(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustGrant(share("m0", "g", 4), "2.5")
	f.unchanged(func() {
		_, err := f.Reserve(f.ctx, share("m1", "g", 3))
		f.wantErr(err, spendlimit.ErrKeyReused)
	})
	f.mustGrant(share("m1", "g", 4), "2.5") // the key was not used up
	f.mustRelease("m0")
	f.mustRelease("m1")
	f.mustGrant(share("m2", "g", 1), "10") // nobody alive says otherwise
}

// Whatever the order in which members come and go, the grants of a full group add up to what was free.
func TestR18_PartsAddUpToTheWhole(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2, 3, 4, 5, 6}, {6, 5, 4, 3, 2, 1, 0}, {3, 6, 0, 5, 1, 4, 2}} {
		f := newFixture(t)
		f.limit(daily("0.0000001")) // 100 steps
		var got []spendlimit.Amount
		for _, i := range order {
			got = append(got, f.mustReserve(share(keyN("m", i), "g", 7)).Granted)
		}
		if slices.Max(got)-slices.Min(got) > 1 {
			t.Errorf("order %v: parts %v differ by more than a step", order, got)
		}
		f.wantBalance("acme", "day", "S 0, H 0.0000001, A 0")
		if _, err := f.Reserve(f.ctx, share("late", "g", 7)); !errors.Is(err, spendlimit.ErrDenied) {
			t.Errorf("an eighth of seven: %v", err)
		}
	}
}
