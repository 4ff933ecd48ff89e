package spendlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// balancesAt writes all balances of an account at these instants.
func (f *fixture) balancesAt(account string, instants ...time.Time) string {
	f.Helper()
	var b strings.Builder
	for _, at := range instants {
		for bal, err := range f.Balances(f.ctx, account, at) {
			f.ok(err)
			fmt.Fprintf(&b, "%s %s: %s of %s, fired %v\n", bal.Limit, bal.Period, showBalance(bal), dollars(bal.InForce), bal.Fired)
		}
	}
	return b.String()
}

// seqs returns the first and the last seq of an account's journal, and wants no gap between.
func (f *fixture) seqs(account string) (first, last int64) {
	f.Helper()
	for e, err := range f.Entries(f.ctx, account, 0) {
		f.ok(err)
		if first == 0 {
			first, last = e.Seq, e.Seq-1
		}
		if e.Seq != last+1 {
			f.Errorf("%s: seq %d after %d", account, e.Seq, last)
		}
		last = e.Seq
	}
	return first, last
}

// old is what happened more than 35 days before the clock's end, young is what happened since.
func TestT107_PruneWithEverythingAround(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := daily("50")
	l.CarryHolds, l.CarryUnused, l.Thresholds = true, usd("2"), []spendlimit.Threshold{{Percent: 10}}
	f.limit(l)
	f.limit(forever("1000"))
	f.limit(on("B", weekly("50")))
	hold := func(key, amount string, ttl time.Duration) {
		f.Helper()
		r := req(key, amount)
		r.TTL = ttl
		f.mustReserve(r)
	}
	for i := range 300 { // more than one page
		f.mustCharge(keyN("c", i), "0.001")
	}
	for _, key := range []string{"released", "settled", "charged", "late at once", "late much later", "unpriced", "unpriced usage"} {
		hold(key, "2", time.Hour)
	}
	f.mustRelease("released")
	f.mustSettle("settled", total("3"))
	for _, key := range []string{"charged", "late at once", "late much later"} {
		f.mustDispatch(key)
	}
	f.mustSettle("unpriced", spendlimit.Unknown("lost"))
	_, err := f.Record(f.ctx, spendlimit.Usage{Hold: "unpriced usage", ID: "u", Cost: spendlimit.Unknown("lost")})
	f.ok(err)
	f.clock.Advance(2 * time.Hour)
	f.mustSettle("late at once", total("1"))
	f.mustCharge("much", "60") // an overrun
	f.clock.Set(d2.Add(12 * time.Hour))
	f.mustDeny(req("frozen", "1"))
	f.mustSettle("unpriced usage", total("1"))

	cut := d2.Add(36 * time.Hour)
	f.clock.Set(cut.Add(-time.Hour))
	f.mustSettle("unpriced", total("1")) // so that work goes on
	hold("root", "20", 24*time.Hour)
	f.mustReserve(spendlimit.Request{Key: "kid", Parent: "root", Amount: usd("5"), Accounts: names("B"), TTL: 24 * time.Hour})
	f.mustRecord("kid", "u", "1")
	hold("over the cut", "3", 24*time.Hour)
	f.mustDispatch("over the cut")
	f.clock.Set(cut.Add(-time.Microsecond))
	hold("ends just before", "1", time.Hour)
	f.mustRelease("ends just before")
	f.clock.Set(cut)
	hold("ends at the cut", "1", time.Hour)
	f.mustRelease("ends at the cut")
	f.clock.Set(cut.Add(time.Hour))
	f.mustSettle("over the cut", total("2"))
	f.mustSettle("kid", total("2"))
	f.mustSettle("root", total("3"))
	f.mustSettle("late much later", total("0.5"))

	f.clock.Set(cut.Add(35 * 24 * time.Hour))
	hold("alive", "4", time.Hour)
	hold("sent", "4", 24*time.Hour)
	f.mustRecord("sent", "u", "1")
	hold("due", "4", time.Second)
	hold("due and sent", "4", time.Second)
	f.mustDispatch("due and sent")
	hold("unpriced now", "1", time.Hour)
	f.mustSettle("unpriced now", spendlimit.Unknown("lost"))
	f.clock.Advance(time.Minute)

	f.verify()
	instants := []time.Time{noon, d2, cut.Add(-time.Hour), cut, cut.AddDate(0, 0, 10), f.clock.Now()}
	before := f.balancesAt("acme", instants...) + f.balancesAt("B", instants...)
	_, last := f.seqs("acme")
	f.unchanged(func() {
		err := f.Prune(f.ctx, "acme", f.clock.Now().Add(-35*24*time.Hour+time.Microsecond))
		f.wantInvalid(err, "before")
	})
	f.ok(f.Prune(f.ctx, "acme", cut))
	f.verify()
	if after := f.balancesAt("acme", instants...) + f.balancesAt("B", instants...); after != before {
		t.Errorf("balances changed from\n%s\nto\n%s", before, after)
	}
	first, lastNow := f.seqs("acme")
	if lastNow < last {
		t.Errorf("last seq %d, then %d", last, lastNow)
	}
	for e, err := range f.Entries(f.ctx, "acme", 0) {
		f.ok(err)
		if e.At.Before(cut) {
			t.Errorf("entry %d of %v is still there", e.Seq, e.At)
		}
		if e.Seq == first && (e.Kind != spendlimit.EntryReserve || e.Ref != "ends at the cut") {
			t.Errorf("the journal begins with %v %s", e.Kind, e.Ref)
		}
	}
	for key, there := range map[string]bool{
		"released": false, "settled": false, "charged": false, "ends just before": false,
		"late at once": false, "late much later": false, "unpriced": false, "unpriced usage": false,
		"over the cut": true, "ends at the cut": true, "root": true, "kid": true,
		"alive": true, "sent": true, "due": true, "due and sent": true, "unpriced now": true,
	} {
		_, err := f.Hold(f.ctx, key)
		if there {
			f.ok(err)
		} else if !errors.Is(err, spendlimit.ErrNotFound) {
			t.Errorf("%s: %v, want it forgotten", key, err)
		}
	}

	// Life goes on.
	_, err = f.Settle(f.ctx, "charged", total("1"))
	f.wantErr(err, spendlimit.ErrNotFound)
	_, err = f.Charge(f.ctx, spendlimit.Expense{ID: "even later", Accounts: names("acme"), Cost: total("1"), At: noon})
	f.ok(err)
	f.wantReceipt(f.mustSettle("unpriced now", total("0.5")), "cost 0.5, returned 0.5, late")
	f.wantReceipt(f.mustSettle("due and sent", total("1")), "cost 1, returned 3, late")
	f.mustSettle("sent", total("2"))
	f.mustSettle("alive", total("1"))
	hold("released", "1", time.Hour) // the key is forgotten
	f.verify()
	f.ok(f.Prune(f.ctx, "acme", cut))
	f.unchanged(func() { f.ok(f.Prune(f.ctx, "acme", cut)) })
}

func TestR76_UnpricedHoldsStay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("unpriced", "4"))
	f.mustSettle("unpriced", spendlimit.Unknown("lost"))
	f.clock.Advance(50 * 24 * time.Hour)
	f.ok(f.Prune(f.ctx, "acme", f.clock.Now().AddDate(0, 0, -35)))
	f.wantBalanceAt("acme", "day", noon, "S 4, H 0, A 6, assumed 4, unpriced 1")
	f.wantReceipt(f.mustSettle("unpriced", total("1")), "cost 1, returned 3, late") // its price can still be posted
	f.wantBalanceAt("acme", "day", noon, "S 1, H 0, A 9")
}

// The first entries of the journal go, never one out of its middle.
func TestR76_ThePrefixAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.clock.Advance(24 * time.Hour)
	f.mustCharge("c", "1")
	f.clock.Advance(-24 * time.Hour) // the store's time does not go back
	f.mustCharge("d", "1")
	before := noon.Add(24 * time.Hour)
	f.clock.Advance(60 * 24 * time.Hour)
	f.ok(f.Prune(f.ctx, "acme", before))
	if first, last := f.seqs("acme"); first != 2 || last != 3 {
		t.Errorf("entries %d to %d are left, want 2 to 3", first, last)
	}
}

// A parent that ended long ago stays as long as its child is stored; what the child still costs is counted as ever.
func TestR76_AChildThatEndedLater(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(forever("100"))
	r := req("root", "10")
	r.TTL = 24 * time.Hour
	f.mustReserve(r)
	kid := child("kid", "root", "4")
	kid.TTL = 24 * time.Hour
	f.mustReserve(kid)
	f.mustDispatch("kid")
	f.mustSettle("root", total("1"))
	f.clock.Advance(60 * 24 * time.Hour)
	f.ok(f.Prune(f.ctx, "acme", noon.Add(time.Hour)))
	f.verify()
	f.wantReceipt(f.mustSettle("kid", total("3")), "cost 3, returned 1, late")
	f.wantBalance("acme", "all", "S 4, H 0, A 96")
}

func TestR76_OtherAccountsStay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.limit(on("B", daily("10")))
	f.mustReserve(spendlimit.Request{Key: "both", Accounts: names("acme", "B"), Amount: usd("4")})
	f.mustSettle("both", total("3"))
	f.mustCharge("c", "1", "B")
	f.clock.Advance(60 * 24 * time.Hour)
	cut := f.clock.Now().AddDate(0, 0, -35)
	f.ok(f.Prune(f.ctx, "acme", cut))
	if got := f.kinds("B"); got != "limit reserve settle charge" {
		t.Errorf("entries of B: %s", got)
	}
	if got := f.kinds("acme"); got != "" {
		t.Errorf("entries of acme: %s", got)
	}
	f.verify()
	f.ok(f.Prune(f.ctx, "B", cut))
	f.wantBalanceAt("B", "day", noon, "S 4, H 0, A 6")
	f.ok(f.Prune(f.ctx, "nobody", cut))
}

// Prunes of several accounts, and of one account twice, in one batch.
func TestR76_InOneBatch(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
		accounts := names("acme", "B", "C")
		for i, a := range accounts {
			f.limit(on(a, daily("10")))
			for j := range 5 * (i + 1) {
				f.mustCharge(fmt.Sprint(a, j), "0.1", a)
			}
		}
		start := time.Now()
		time.Sleep(60 * 24 * time.Hour)
		g := newGate(f)
		first := f.background(f.Reserve, spendlimit.Request{Key: "first", Accounts: accounts, Free: true})
		var pruned []*asked
		for _, a := range append(slices.Clone(accounts), "acme") {
			pruned = append(pruned, f.background(func(ctx context.Context, _ spendlimit.Request) (*spendlimit.Hold, error) {
				return nil, f.Prune(ctx, a, start.AddDate(0, 0, 1))
			}, spendlimit.Request{}))
		}
		close(g.open)
		f.wantServed(first, 0)
		for _, p := range pruned {
			f.wantServed(p, 0)
		}
		for i, a := range accounts {
			f.wantBalanceAt(a, "day", start, fmt.Sprintf("S %s, H 0, A %s", []string{"0.5", "1", "1.5"}[i], []string{"9.5", "9", "8.5"}[i]))
			if got := f.entryCount(a); got != 1 {
				t.Errorf("%s: %d entries left, want 1", a, got)
			}
		}
	})
}

// A cost that comes in the batch that prunes its hold comes too late, as it would in the next one.
func TestR76_LateInTheBatchThatPrunes(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
		f.limit(forever("10"))
		f.mustReserve(req("old", "5"))
		time.Sleep(40 * 24 * time.Hour)
		f.mustReserve(req("first", "1")) // ends the old one
		g := newGate(f)
		leads := f.background(f.Reserve, req("leads", "1"))
		pruned := f.background(func(ctx context.Context, _ spendlimit.Request) (*spendlimit.Hold, error) {
			return nil, f.Prune(ctx, "acme", time.Now().AddDate(0, 0, -36))
		}, spendlimit.Request{})
		late := f.background(func(ctx context.Context, _ spendlimit.Request) (*spendlimit.Hold, error) {
			_, err := f.Settle(ctx, "old", spendlimit.Unknown("no answer"))
			return nil, err
		}, spendlimit.Request{})
		close(g.open)
		f.wantServed(leads, 0)
		f.wantServed(pruned, 0)
		f.wantFailed(late, spendlimit.ErrNotFound)
		f.wantBalance("acme", "all", "S 0, H 2, A 8")
	})
}

func (f *fixture) entryCount(account string) int {
	f.Helper()
	n, err := length(f.Entries(f.ctx, account, 0))
	f.ok(err)
	return n
}

func TestR74_SweepBeyondOneStep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := daily("10")
	f.limit(l)
	f.limit(on("B", l))
	const n = 600 // on each of two accounts
	for i := range n {
		r := spendlimit.Request{Key: keyN("a", i), Accounts: names("acme"), Amount: 1, TTL: time.Minute}
		f.mustReserve(r)
		r.Key, r.Accounts = keyN("b", i), names("B")
		f.mustReserve(r)
	}
	f.mustReserve(spendlimit.Request{Key: "alive", Accounts: names("acme", "B"), Amount: 1, TTL: time.Hour})
	f.clock.Advance(time.Minute + time.Microsecond)
	want := f.balancesAt("acme", time.Time{}) + f.balancesAt("B", time.Time{}) + keys(f, spendlimit.HoldFilter{Live: true})
	if !strings.HasSuffix(want, "\nalive") {
		t.Errorf("before the sweep: %s", want)
	}
	for _, step := range []struct{ max, ended int }{{0, 0}, {-1, 0}, {7, 7}, {1001, 1001}, {10000, 2*n - 1008}, {10000, 0}} {
		wrote := f.store.writes()
		got, err := f.Sweep(f.ctx, step.max)
		f.ok(err)
		if got != step.ended {
			t.Errorf("sweep of %d ended %d, want %d", step.max, got, step.ended)
		}
		if step.ended == 0 && f.store.writes() != wrote {
			t.Errorf("sweep of %d wrote", step.max)
		}
		if after := f.balancesAt("acme", time.Time{}) + f.balancesAt("B", time.Time{}) + keys(f, spendlimit.HoldFilter{Live: true}); after != want {
			t.Errorf("sweep of %d changed an answer from\n%s\nto\n%s", step.max, want, after)
		}
	}
	if heard := f.heard(spendlimit.EventLapsed); heard != 2*n {
		t.Errorf("%d lapses heard, want %d", heard, 2*n)
	}
}

// What writes nothing writes no lapse either, though it has to see it (I8).
func TestR74_ReplaysLeaveLapsesToOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.limit(daily("10"))
	short := req("due", "1")
	short.TTL = time.Second
	f.mustReserve(short)
	f.mustReserve(req("k", "2"))
	f.mustReserve(req("gone", "1"))
	f.mustRecord("k", "u", "1")
	f.mustSettle("gone", total("1"))
	f.mustCharge("c", "1")
	f.clock.Advance(time.Minute)
	f.unchanged(func() {
		f.mustReserve(req("k", "2"))
		f.mustDispatch("k")
		f.mustRecord("k", "u", "1")
		f.mustSettle("gone", total("1"))
		f.ok(f.Close(f.ctx, "gone"))
		f.mustRelease("due")
		f.mustCharge("c", "1")
		f.change(l.Limit, "")
		f.mustDeny(req("new", "10"))
	})
	f.mustCharge("d", "1")
	if got, want := f.kinds("acme"), "limit reserve reserve reserve record settle charge lapse charge"; got != want {
		t.Errorf("entries %s, want %s", got, want)
	}
}

func TestR74_SweepOfOneAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	for i := range 1300 { // more than a step lists
		f.mustReserve(spendlimit.Request{Key: keyN("h", i), Accounts: names("acme"), Amount: 1, TTL: time.Minute})
	}
	f.clock.Advance(time.Hour)
	n, err := f.Sweep(f.ctx, 10000)
	f.ok(err)
	if heard := f.heard(spendlimit.EventLapsed); n != 1300 || heard != 1300 {
		t.Errorf("swept %d, heard of %d, want 1300", n, heard)
	}
}

// With more due holds than one step can end, every read and every refusal still sees all of them ended (R33).
func TestR74_ReadsWithoutASweep(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(f *fixture){
		"balances": func(f *fixture) { f.wantBalance("acme", "day", "S 0, H 0, A 0.0000013") },
		"hold":     func(f *fixture) { f.wantHold("h7", "lapsed-free, granted 0.000000001") },
		"holds": func(f *fixture) {
			if got := keys(f, spendlimit.HoldFilter{Live: true}); got != "" {
				f.Errorf("alive: %s", got)
			}
		},
		"refusal": func(f *fixture) {
			_, err := f.Reserve(f.ctx, req("new", "0.0000014"))
			if d := f.denial(err); d.Binding.Held != 0 {
				f.Errorf("refused with H %s", dollars(d.Binding.Held))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("0.0000013"))
			for i := range 1300 {
				f.mustReserve(spendlimit.Request{Key: keyN("h", i), Accounts: names("acme"), Amount: 1, TTL: time.Minute})
			}
			f.clock.Advance(time.Hour)
			call(f)
		})
	}
}

// Each formula of section 6 over the rows, broken in one row, is named with the row that breaks it.
func TestR75_VerifyFindsDamage(t *testing.T) {
	t.Parallel()
	type rows struct {
		account *spendlimit.AccountRow
		limit   *spendlimit.LimitRow
		period  *spendlimit.PeriodRow
		root    *spendlimit.HoldRow
		kid     *spendlimit.HoldRow
	}
	const period, root, kid = `limit "day" #1 period 2026-05-01`, `hold "root"`, `hold "kid"`
	for name, tc := range map[string]struct {
		damage func(r rows)
		want   string // one of the differences
	}{
		"spent":          {func(r rows) { r.period.Spent++ }, period + ": spent = base + Σ postings: have 3000000001, want 3000000000"},
		"held":           {func(r rows) { r.period.Held++ }, period + ": held = base + Σ postings: have 7000000001, want 7000000000"},
		"overrun":        {func(r rows) { r.period.Overrun++ }, period + ": overrun = base + Σ postings: have 1, want 0"},
		"base spent":     {func(r rows) { r.period.BaseSpent++ }, period + ": spent = base + Σ postings: have 3000000000, want 3000000001"},
		"base held":      {func(r rows) { r.period.BaseHeld++ }, period + ": held = base + Σ postings: have 7000000000, want 7000000001"},
		"base overrun":   {func(r rows) { r.period.BaseOverrun++ }, period + ": overrun = base + Σ postings: have 0, want 1"},
		"held and left":  {func(r rows) { r.period.Held++ }, period + ": held = Σ left: have 7000000001, want 7000000000"},
		"held for ever":  {func(r rows) { r.limit.HeldAll++ }, `limit "day" #1: held of all periods = Σ held: have 1, want 0`},
		"held by carry":  {func(r rows) { r.limit.Limit.CarryHolds = true }, `limit "day" #1: held of all periods = Σ held: have 0, want 7000000000`},
		"unpriced":       {func(r rows) { r.period.Unpriced++ }, period + ": unpriced = Σ holds and usages: have 1, want 0"},
		"above limit":    {func(r rows) { r.period.Lim = 1 }, period + ": spent + held ≤ limit + overrun + cut: have 10000000000, want 1"},
		"negative cut":   {func(r rows) { r.period.Cut = -2 }, period + ": cut ≥ 0: have -2, want 0"},
		"negative guess": {func(r rows) { r.period.Assumed = -1 }, period + ": assumed ≥ 0: have -1, want 0"},
		"seq":            {func(r rows) { r.account.Seq++ }, "account: seq = last entry: have 5, want 4"},
		"pruned":         {func(r rows) { r.account.Pruned++ }, "entry 1: seq without gaps: have 1, want 2"},
		"left":           {func(r rows) { r.root.Part.Left++ }, root + ": Σ left = Σ own: have 7000000001, want 7000000000"},
		"own":            {func(r rows) { r.kid.Own++ }, root + ": Σ left = Σ own: have 7000000000, want 7000000001"},
		"negative own":   {func(r rows) { r.kid.Own = -1 }, kid + ": own ≥ 0: have -1, want 0"},
		"granted":        {func(r rows) { r.kid.Granted++ }, kid + ": granted + grown + received = own + carved + covered + returned + assumed: have 4000000001, want 4000000000"},
		"grown":          {func(r rows) { r.kid.Grown++ }, kid + ": granted + grown + received = own + carved + covered + returned + assumed: have 4000000001, want 4000000000"},
		"received":       {func(r rows) { r.root.Received++ }, root + ": granted + grown + received = own + carved + covered + returned + assumed: have 10000000001, want 10000000000"},
		"carved":         {func(r rows) { r.root.Carved++ }, root + ": granted + grown + received = own + carved + covered + returned + assumed: have 10000000000, want 10000000001"},
		"covered":        {func(r rows) { r.kid.Covered++ }, kid + ": granted + grown + received = own + carved + covered + returned + assumed: have 4000000000, want 4000000001"},
		"returned":       {func(r rows) { r.kid.Returned++ }, kid + ": granted + grown + received = own + carved + covered + returned + assumed: have 4000000000, want 4000000001"},
		"end charge":     {func(r rows) { r.kid.EndCharge++ }, kid + ": granted + grown + received = own + carved + covered + returned + assumed: have 4000000000, want 4000000001"},
		"marks":          {func(r rows) { r.root.Marks++ }, root + ": marks = unpriced below: have 1, want 0"},
		"open usages":    {func(r rows) { r.kid.Open++ }, kid + ": marks = unpriced below: have 0, want 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("20"))
			f.mustReserve(req("root", "10"))
			f.mustReserve(child("kid", "root", "4"))
			f.mustRecord("kid", "u", "3")
			r := rows{root: f.row("root"), kid: f.row("kid")}
			r.period, r.account = r.root.Part.Lines[0], r.root.Accounts[0]
			r.limit = r.period.Limit
			damage := func() func() {
				account, limit, period, root, kid := *r.account, *r.limit, *r.period, *r.root, *r.kid
				tc.damage(r)
				return func() { *r.account, *r.limit, *r.period, *r.root, *r.kid = account, limit, period, root, kid }
			}
			f.damaged(damage, func() {
				f.unchanged(func() { // it repairs nothing
					diffs, err := f.Verify(f.ctx, "acme")
					f.ok(err)
					var got []string
					for _, d := range diffs {
						got = append(got, d.String())
					}
					if !slices.Contains(got, tc.want) {
						t.Errorf("got\n%s\nwant among them\n%s", strings.Join(got, "\n"), tc.want)
					}
				})
			})
		})
	}
}

func TestR75_VerifyIsSilentOnSoundRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("20"))
	f.mustReserve(req("k", "10"))
	diffs, err := f.Verify(f.ctx, "acme")
	f.ok(err)
	if len(diffs) != 0 {
		t.Errorf("found %v", diffs)
	}
	_, err = f.Verify(f.ctx, "nobody")
	f.wantErr(err, spendlimit.ErrNotFound)
}
