package spendlimit_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

func TestT18_RaiseActsAtOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	state := f.limit(daily("5"))
	f.mustCharge("c", "6")
	f.mustDeny(req("k", "1"))
	f.change(daily("20"), state.Fingerprint)
	f.mustReserve(req("k", "1"))
	f.wantBalance("acme", "day", "S 6, H 1, A 13, overrun 1")
}

func TestT19_RaiseEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	state := f.limit(daily("10"))
	f.mustCharge("c", "10")
	until := noon.Add(time.Hour)
	l := daily("10")
	l.Raise = spendlimit.Raise{By: usd("10"), Until: until}
	f.change(l, state.Fingerprint)
	f.clock.Set(until.Add(-step))
	f.mustReserve(lasting("k", "1", time.Hour))
	f.wantBalance("acme", "day", "S 10, H 1, A 9")
	f.clock.Set(until)
	f.mustDeny(req("late", "1"))
	f.wantBalance("acme", "day", "S 10, H 1, A -1, cut 1")
	f.wantReceipt(f.mustSettle("k", total("1")), "cost 1")
	f.wantBalance("acme", "day", "S 11, H 0, A -1, cut 1")
	f.clock.Set(d2)
	f.wantBalance("acme", "day", "S 0, H 0, A 10")
}

func TestT20_CutBelowUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	state := f.limit(daily("10"))
	f.mustReserve(req("k", "8"))
	state = f.change(daily("5"), state.Fingerprint)
	f.wantBalance("acme", "day", "S 0, H 8, A -3, cut 3")
	f.wantHold("k", "open, granted 8, own 8")
	f.mustDeny(req("new", "1"))
	f.wantReceipt(f.mustSettle("k", total("8")), "cost 8")
	f.wantBalance("acme", "day", "S 8, H 0, A -3, cut 3")
	f.change(daily("20"), state.Fingerprint)
	f.wantBalance("acme", "day", "S 8, H 0, A 12")
}

// What an account has spent does not depend on whose keys or which labels it was spent with.
func TestT21_OtherOwnerSameAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	for i, owner := range []string{"ann", "ben", "ann"} {
		r := req(keyN(owner, i), "3")
		r.Labels = map[string]string{"owner": owner}
		f.mustReserve(r)
		f.mustSettle(r.Key, total("3"))
	}
	f.wantBalance("acme", "day", "S 9, H 0, A 1")
}

func TestT24_OncePerDay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	eighty := spendlimit.Threshold{Percent: 80}
	hard, soft := daily("10"), daily("10")
	soft.Name, soft.Mode = "soft", spendlimit.Soft
	hard.Thresholds, soft.Thresholds = []spendlimit.Threshold{eighty}, []spendlimit.Threshold{eighty}
	f.limit(hard)
	f.limit(soft)
	crossed := 0
	for day := range 2 {
		for i := range 5 { // up and down again, each time by another process
			f.Ledger = f.restart()
			k := keyN("k", 10*day+i)
			h := f.mustReserve(req(k, "8"))
			crossed += len(h.Crossed)
			for _, c := range h.Crossed {
				if c.Account != "acme" || c.Threshold != eighty || c.Period != f.clock.Now().Format(time.DateOnly) {
					t.Errorf("crossing %+v", c)
				}
			}
			f.mustRelease(k)
		}
		if fired := f.balance("acme", "soft").Fired; !slices.Equal(fired, []spendlimit.Threshold{eighty}) {
			t.Errorf("fired %v", fired)
		}
		if want, heard := 2*(day+1), f.heard(spendlimit.EventCrossed); crossed != want || heard != want {
			t.Errorf("day %d: %d in receipts, %d heard, want %d", day, crossed, heard, want)
		}
		f.clock.Advance(24 * time.Hour)
	}
}

func TestT24_AtEightyPercentExactly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := daily("10")
	l.Thresholds = []spendlimit.Threshold{{Percent: 80}, {Percent: 80, Of: spendlimit.Spent}}
	f.limit(l)
	if h := f.mustReserve(req("k", "7.999999999")); len(h.Crossed) != 0 {
		t.Errorf("crossed %v", h.Crossed)
	}
	if h := f.mustReserve(req("step", "0.000000001")); len(h.Crossed) != 1 || h.Crossed[0].Threshold.Of != spendlimit.SpentAndHeld {
		t.Errorf("crossed %v", h.Crossed)
	}
	f.mustSettle("step", total("0.000000001"))
	if r := f.mustSettle("k", total("7.999999999")); len(r.Crossed) != 1 || r.Crossed[0].Threshold.Of != spendlimit.Spent {
		t.Errorf("crossed %v", r.Crossed)
	}
}

// Callers may change what they got: nobody else's answer is changed by it, neither the first nor a later one.
func TestR61_ReceiptsShareNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := daily("10")
	for percent := 10; percent <= 40; percent += 10 {
		l.Thresholds = append(l.Thresholds, spendlimit.Threshold{Percent: percent, Of: spendlimit.Spent})
	}
	f.limit(l)
	f.mustReserve(req("settled", "5"))
	f.mustReserve(req("recorded", "5"))
	for n, call := range []func() spendlimit.Receipt{ // each of the first three crosses when it is first made
		func() spendlimit.Receipt { return f.mustSettle("settled", total("1")) },
		func() spendlimit.Receipt { return f.mustCharge("charged", "1", "acme") },
		func() spendlimit.Receipt { return f.mustRecord("recorded", "u", "1") },
		func() spendlimit.Receipt {
			_, err := f.Settle(f.ctx, "settled", total("2"))
			var ended *spendlimit.EndedError
			if !errors.As(err, &ended) {
				t.Fatal(err)
			}
			return ended.Receipt
		},
	} {
		for i := range 3 {
			r := call()
			if len(r.Crossed) != 1 || r.Crossed[0].Account != "acme" {
				t.Fatalf("call %d, answer %d: crossed %+v", n, i, r.Crossed)
			}
			r.Crossed[0].Account = "mine"
		}
	}
}

func TestT53_CarryUnused(t *testing.T) {
	t.Parallel()
	carry := daily("100")
	carry.CarryUnused = usd("40")
	for name, tc := range map[string]struct {
		spent         string
		today, before string
	}{
		"60 spent": {"60", "S 0, H 0, A 140", "S 60, H 0, A 0"},
		"nothing":  {"0", "S 0, H 0, A 140", "S 0, H 0, A 60"},
		"75 spent": {"75", "S 0, H 0, A 125", "S 75, H 0, A 0"},
		"used up":  {"100", "S 0, H 0, A 100", "S 100, H 0, A 0"},
		"overrun":  {"101", "S 0, H 0, A 100", "S 101, H 0, A -1, overrun 1"},
		"no row":   {"", "S 0, H 0, A 140", "S 0, H 0, A 60"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(carry)
			if tc.spent != "" {
				f.mustCharge("c", tc.spent)
			}
			f.clock.Set(d2)
			f.wantBalance("acme", "day", tc.today)
			f.mustReserve(req("k", "1"))
			f.mustRelease("k")
			f.wantBalance("acme", "day", tc.today)
			f.wantBalanceAt("acme", "day", noon, tc.before)
		})
	}
}

func TestT53_LateCostAfterCarry(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	carry := daily("100")
	carry.CarryUnused = usd("40")
	f.limit(carry)
	f.mustCharge("c", "60")
	f.mustReserve(lasting("late", "20", time.Minute)) // lapses
	f.clock.Set(d2)
	f.mustReserve(spendlimit.Request{Key: "k", Accounts: names("acme"), Rest: true})
	f.wantBalance("acme", "day", "S 0, H 140, A 0")
	f.wantReceipt(f.mustSettle("late", total("20")), "cost 20, excess 20, overrun 20, late")
	f.wantBalanceAt("acme", "day", noon, "S 80, H 0, A -20, overrun 20")
	f.wantBalance("acme", "day", "S 0, H 140, A 0")
}

func TestT57_WrongUnit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	r := req("k", "1")
	r.Unit = "tokens"
	f.unchanged(func() {
		_, err := f.Reserve(f.ctx, r)
		f.wantErr(err, spendlimit.ErrUnit)
	})
	for _, unit := range []spendlimit.Unit{spendlimit.Tokens, {Code: "USD", Scale: 6}} {
		other, err := spendlimit.New(f.store, spendlimit.Config{Unit: unit})
		f.ok(err)
		f.unchanged(func() {
			_, err := other.Reserve(f.ctx, spendlimit.Request{Key: "k", Accounts: names("acme"), Amount: 1})
			f.wantErr(err, spendlimit.ErrUnit)
			_, err = other.Check(f.ctx, spendlimit.Request{Key: "k", Accounts: names("new"), Amount: 1})
			f.wantErr(err, spendlimit.ErrUnit)
			_, err = other.Settle(f.ctx, "k", spendlimit.Total(1))
			f.wantErr(err, spendlimit.ErrUnit)
			_, err = other.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: spendlimit.Total(1)})
			f.wantErr(err, spendlimit.ErrUnit)
			for _, err := range other.Balances(f.ctx, "acme", time.Time{}) {
				f.wantErr(err, spendlimit.ErrUnit)
			}
		})
	}
	r.Unit = "USD"
	f.mustReserve(r)

	tokens, err := spendlimit.New(f.store, spendlimit.Config{Name: "tokens", Unit: spendlimit.Tokens}) // another ledger
	f.ok(err)
	_, err = tokens.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: spendlimit.Total(500)})
	f.ok(err)
	f.wantBalance("acme", "day", "S 0, H 1, A 9")
}

func TestT58_FirstLimitCountsFromNow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.mustCharge("c", "50")
	f.limit(daily("10"))
	f.wantBalance("acme", "day", "S 0, H 0, A 10")
	f.mustReserve(req("k", "1"))
}

func TestT58_Backfill(t *testing.T) {
	t.Parallel()
	f := newFixture(t, spendlimit.Config{NoLimit: spendlimit.Allow})
	f.clock.Advance(-24 * time.Hour)
	f.mustCharge("yesterday", "7")
	f.mustReserve(lasting("old", "2", 24*time.Hour))
	f.clock.Set(noon.Add(-time.Hour))
	f.mustCharge("c", "50")
	f.mustReserve(lasting("live", "3", 4*time.Hour))
	f.mustRecord("live", "u", "1")
	f.mustReserve(req("gone", "4"))
	f.mustRelease("gone")
	f.clock.Set(noon.Add(-step))
	f.limit(daily("10"), spendlimit.Backfill)
	f.wantBalance("acme", "day", "S 51, H 2, A -43, cut 43")
	f.mustDeny(req("k", "1"))
	f.mustSettle("live", total("2"))
	f.mustSettle("old", total("2")) // of yesterday
	f.wantBalance("acme", "day", "S 52, H 0, A -42, cut 43")
}

func TestR1_Identity(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	limit := func(account, name, amount string) {
		f.limit(spendlimit.Limit{Account: account, Name: name, Kind: spendlimit.Day, Amount: usd(amount)})
	}
	limit("acme", "day", "10")
	limit("acme", "other", "20")
	limit("beta", "day", "30")
	f.mustCharge("c", "1")
	f.wantBalance("acme", "day", "S 1, H 0, A 9")
	f.wantBalance("acme", "other", "S 1, H 0, A 19")
	f.wantBalance("beta", "day", "S 0, H 0, A 30")
	f.unchanged(func() {
		_, err := f.SetLimit(f.ctx, daily("11"), "") // creates only
		f.wantErr(err, spendlimit.ErrStale)
	})
}

func TestR1_Defaults(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	week := spendlimit.Limit{Account: "acme", Name: "week", Kind: spendlimit.Week, Amount: usd("10")}
	month := spendlimit.Limit{Account: "acme", Name: "month", Kind: spendlimit.Month, Amount: usd("10")}
	f.limit(week)
	state := f.limit(month)
	if l := state.Limit; l.Zone != "UTC" || l.Anchor != 1 || l.Mode != spendlimit.Hard || l.OnUnpriced != spendlimit.Refuse || l.WeekStart != spendlimit.Monday {
		t.Errorf("limit %+v", l)
	}
	f.wantPeriod("week", noon, "2026-04-27 [2026-04-27T00:00:00Z, 2026-05-04T00:00:00Z)")
	f.wantPeriod("month", noon, "2026-05-01 [2026-05-01T00:00:00Z, 2026-06-01T00:00:00Z)")
	// The defaults, said aloud, are the same limit: the change in force once more.
	month.Zone, month.Anchor = "UTC", 1
	f.unchanged(func() {
		if again := f.limit(month); !again.Replayed || again.Fingerprint != state.Fingerprint {
			t.Errorf("again: %+v", again)
		}
	})
}

func TestR1_SoftRefusesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := daily("10")
	l.Mode = spendlimit.Soft
	f.limit(l)
	f.mustReserve(req("k", "12"))
	f.wantBalance("acme", "day", "S 0, H 12, A -2")
	f.mustSettle("k", spendlimit.Unknown("no price"))
	f.mustReserve(req("l", "12")) // neither full nor frozen
	f.wantBalance("acme", "day", "S 12, H 12, A -14, assumed 12, unpriced 1")
}

func TestR1_ZeroIsALimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("0"))
	d := f.mustDeny(req("k", "0.000000001"))
	if !d.Hopeless || d.RetryAfter != 0 {
		t.Errorf("refusal %+v", d)
	}
	f.mustDeny(spendlimit.Request{Key: "rest", Accounts: names("acme"), Rest: true})
	f.mustReserve(spendlimit.Request{Key: "free", Accounts: names("acme"), Free: true})
	f.wantReceipt(f.mustCharge("c", "1"), "cost 1, overrun 1")
}

func TestR5_TotalNeverEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	run := func(account string) spendlimit.Limit {
		l := forever("7")
		l.Account = account
		return l
	}
	f.limit(run("run-1"))
	f.limit(run("run-2"))
	f.mustCharge("c", "6", "run-1")
	f.clock.Set(noon.AddDate(50, 0, 0))
	rest := spendlimit.Request{Key: "k1", Accounts: names("run-1"), Rest: true}
	if h := f.mustReserve(rest); h.Granted != usd("1") {
		t.Errorf("granted %s", dollars(h.Granted))
	}
	f.wantBalance("run-1", "all", "S 6, H 1, A 0")
	if b := f.balance("run-1", "all"); !b.Start.IsZero() || !b.End.IsZero() || b.Period != "total" {
		t.Errorf("period %+v", b)
	}
	rest.Key, rest.Accounts = "k2", names("run-2") // earlier runs count by themselves
	if h := f.mustReserve(rest); h.Granted != usd("7") {
		t.Errorf("granted %s", dollars(h.Granted))
	}
}

func TestR10_NoLimitRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	for _, accounts := range [][]string{{"new"}, {"acme", "new"}} {
		d := f.mustDeny(spendlimit.Request{Key: "k", Accounts: accounts, Amount: 1})
		if !errors.Is(d, spendlimit.ErrNoLimit) || d.Reason != spendlimit.ReasonNoLimit || d.Account != "new" {
			t.Errorf("refusal %+v", d)
		}
		_, err := f.Check(f.ctx, spendlimit.Request{Key: "k", Accounts: accounts, Amount: 1})
		f.wantErr(err, spendlimit.ErrNoLimit)
	}
	f.mustCharge("c", "3", "new") // recorded all the same
	if got := f.kinds("new"); got != "charge" {
		t.Errorf("entries: %s", got)
	}
}

func TestR10_NoLimitAllowed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, spendlimit.Config{NoLimit: spendlimit.Allow})
	h := f.mustReserve(spendlimit.Request{Key: "k", Accounts: names("new"), Amount: usd("1000")})
	if h.Granted != usd("1000") || h.Binding != (spendlimit.Binding{}) {
		t.Errorf("hold %+v", h)
	}
	f.wantReceipt(f.mustSettle("k", total("900")), "cost 900, returned 100")
	if got := f.kinds("new"); got != "reserve settle" {
		t.Errorf("entries: %s", got)
	}
	var spent, held spendlimit.Amount
	for e, err := range f.Entries(f.ctx, "new", 0) {
		f.ok(err)
		spent, held = spent+e.Spent, held+e.Held
	}
	if spent != usd("900") || held != 0 {
		t.Errorf("spent %s, held %s", dollars(spent), dollars(held))
	}
	f.limit(daily("10")) // one limit is enough to bound a request
	f.mustDeny(spendlimit.Request{Key: "l", Accounts: names("acme", "new"), Amount: usd("11")})
	f.mustReserve(spendlimit.Request{Key: "l", Accounts: names("acme", "new"), Amount: usd("10")})
}

func TestR10_DefaultsAreWrittenOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, spendlimit.Config{Defaults: func(account string) []spendlimit.Limit {
		if account == "stranger" {
			return nil
		}
		return []spendlimit.Limit{{Name: "day", Kind: spendlimit.Day, Amount: usd("10")}}
	}})
	f.unchanged(func() { f.wantBalance("acme", "day", "S 0, H 0, A 10") }) // shown before it is written
	f.mustDeny(req("k", "11"))
	if got := f.kinds("acme"); got != "" {
		t.Errorf("a refusal wrote %s", got)
	}
	f.mustReserve(req("k", "10"))
	f.mustDeny(req("l", "1"))
	f.mustRelease("k")
	f.ok(f.RemoveLimit(f.ctx, "acme", "day", f.balance("acme", "day").Fingerprint))
	if d := f.mustDeny(req("l", "1")); d.Reason != spendlimit.ReasonNoLimit {
		t.Errorf("the limit came back: %+v", d)
	}
	f.mustDeny(spendlimit.Request{Key: "l", Accounts: names("stranger"), Amount: 1})

	plain, err := spendlimit.New(f.store, spendlimit.Config{Unit: spendlimit.USD})
	f.ok(err)
	_, err = plain.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: names("known"), Cost: total("1")})
	f.ok(err)
	f.mustDeny(spendlimit.Request{Key: "l", Accounts: names("known"), Amount: 1}) // not its first touch
	if got := f.kinds("acme"); got != "limit reserve release limit" {
		t.Errorf("entries: %s", got)
	}
}
