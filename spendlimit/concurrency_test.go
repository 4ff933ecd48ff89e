package spendlimit_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/spendlimit"
)

// tally counts the outcomes of concurrent calls.
type tally struct {
	granted, replayed, denied, failed atomic.Int64
}

func (c *tally) add(h *spendlimit.Hold, err error) {
	switch {
	case err == nil && h.Replayed:
		c.replayed.Add(1)
	case err == nil:
		c.granted.Add(1)
	case errors.Is(err, spendlimit.ErrDenied):
		c.denied.Add(1)
	default:
		c.failed.Add(1)
	}
}

// want compares granted, replayed and denied; nothing else may have happened.
func (c *tally) want(t *testing.T, granted, replayed, denied int64) {
	t.Helper()
	got := [...]int64{c.granted.Load(), c.replayed.Load(), c.denied.Load(), c.failed.Load()}
	if want := [...]int64{granted, replayed, denied, 0}; got != want {
		t.Errorf("granted, replayed, denied, failed: got %d, want %d", got, want)
	}
}

func TestT1_FiftyOnTen(t *testing.T) {
	t.Parallel()
	for name, ledgers := range map[string]int{"one ledger": 1, "two ledgers on one store": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 {
				f := newFixture(t)
				f.limit(daily("10"))
				led := []*spendlimit.Ledger{f.Ledger, f.restart()}[:ledgers]
				var c tally
				concurrently(50, func(i int) { c.add(led[i%ledgers].Reserve(f.ctx, req(keyN("k", i), "1"))) })
				c.want(t, 10, 0, 40)
				f.wantBalance("acme", "day", "S 0, H 10, A 0")
			}
		})
	}
}

func TestT3_DefaultsOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		f := newFixture(t, spendlimit.Config{Defaults: func(string) []spendlimit.Limit { return []spendlimit.Limit{forever("1")} }})
		led := []*spendlimit.Ledger{f.Ledger, f.restart()}
		var c tally
		concurrently(8, func(i int) { c.add(led[i%2].Reserve(f.ctx, req(keyN("k", i), "1"))) })
		c.want(t, 1, 0, 7)
		f.wantBalance("acme", "all", "S 0, H 1, A 0")
		if got := f.kinds("acme"); got != "limit reserve" {
			t.Errorf("entries: %s", got)
		}
	}
}

func TestT4_ThreeChildrenAtOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		min    string
		grants []string
		own    string
	}{
		"exact":    {"0", []string{"1"}, "0.25"},
		"at least": {"0.1", []string{"0.25", "1"}, "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("10"))
			root := f.mustReserve(req("root", "1.25"))
			var c tally
			var mu sync.Mutex
			var grants []string
			concurrently(3, func(i int) {
				h, err := f.Reserve(f.ctx, spendlimit.Request{Key: keyN("c", i), Parent: root.Key, Amount: usd("1"), Min: usd(tc.min)})
				c.add(h, err)
				if err == nil {
					mu.Lock()
					grants = append(grants, dollars(h.Granted))
					mu.Unlock()
				}
			})
			c.want(t, int64(len(tc.grants)), 0, int64(3-len(tc.grants)))
			if slices.Sort(grants); !slices.Equal(grants, tc.grants) {
				t.Errorf("grants %v, want %v", grants, tc.grants)
			}
			if h, err := f.Hold(f.ctx, "root"); err != nil || h.Own != usd(tc.own) {
				t.Errorf("root %+v, %v", h, err)
			}
			f.wantBalance("acme", "day", "S 0, H 1.25, A 8.75")
		})
	}
}

// accounts of the random world.
var randomAccounts = names("a", "b", "c")

// world runs random commands on three accounts, each with a limit on all time and one per day.
type world struct {
	*fixture
	t    *rapid.T
	keys []string
	days []time.Time
}

// I2: after every command the money held on an account is what its live holds have. With I4.
func TestT11_HeldIsWhatLiveHoldsHave(t *testing.T) {
	t.Parallel()
	commands := 100 // in each of rapid's 100 runs
	if raceDetector {
		commands = 25
	}
	rapid.Check(t, func(t *rapid.T) {
		w := &world{fixture: newFixture(t), t: t, days: []time.Time{noon}}
		for _, account := range randomAccounts {
			w.limit(spendlimit.Limit{Account: account, Name: "all", Kind: spendlimit.AllTime, Amount: 200})
			w.limit(spendlimit.Limit{Account: account, Name: "day", Kind: spendlimit.Day, Amount: 20, CarryUnused: 5})
		}
		for range commands {
			if err := w.command(); errors.Is(err, spendlimit.ErrUnavailable) || errors.Is(err, spendlimit.ErrUncertain) {
				t.Fatalf("the rows are damaged: %v", err)
			}
			w.compare()
		}
	})
}

func (w *world) pick(what string, n int) int { return rapid.IntRange(0, n-1).Draw(w.t, what) }

func (w *world) amount() spendlimit.Amount { return spendlimit.Amount(1 + w.pick("amount", 12)) }

func (w *world) key() string {
	if len(w.keys) == 0 {
		return "none"
	}
	recent := w.keys[max(0, len(w.keys)-8):]
	return recent[w.pick("key", len(recent))]
}

// command runs one command; its refusal is fine.
func (w *world) command() error {
	id := keyN("u", w.pick("id", 1000))
	var err error
	switch w.pick("command", 16) {
	case 0, 1, 2, 3:
		err = w.reserve()
	case 4:
		err = w.Dispatch(w.ctx, w.key())
	case 5, 6:
		_, err = w.Record(w.ctx, spendlimit.Usage{Hold: w.key(), ID: id, Cost: w.cost(), Cumulative: w.pick("cumulative", 2) == 1})
	case 7, 8:
		_, err = w.Settle(w.ctx, w.key(), w.cost(), [][]spendlimit.Option{nil, {spendlimit.Late}}[w.pick("late", 2)]...)
	case 9:
		options := [][]spendlimit.Option{nil, {spendlimit.NotSpent}, {spendlimit.Tree}, {spendlimit.Tree, spendlimit.NotSpent}}
		_, err = w.Release(w.ctx, w.key(), options[w.pick("options", len(options))]...)
	case 10:
		err = w.Close(w.ctx, w.key())
	case 11:
		e := spendlimit.Extension{Hold: w.key(), TTL: time.Minute}
		if w.pick("roll", 2) == 1 {
			e.Roll, e.ID, e.Min = true, id, spendlimit.Amount(w.pick("min", 4))
		}
		_, err = w.Extend(w.ctx, e)
	case 12:
		_, err = w.Grow(w.ctx, spendlimit.Growth{Hold: w.key(), ID: id, By: w.amount(), Min: 1})
	case 13:
		_, err = w.Shrink(w.ctx, spendlimit.Shrinkage{Hold: w.key(), ID: id, By: w.amount()})
	case 14:
		account := randomAccounts[w.pick("account", 3)]
		if w.pick("adjust", 2) == 1 {
			_, err = w.Adjust(w.ctx, spendlimit.Adjustment{ID: id, Account: account, By: -w.amount(), Reason: "random"})
		} else {
			_, err = w.Charge(w.ctx, spendlimit.Expense{ID: id, Accounts: names(account), Cost: spendlimit.Total(w.amount())})
		}
	case 15:
		w.advance()
	}
	return err
}

func (w *world) reserve() error {
	r := spendlimit.Request{Key: keyN("k", len(w.keys)), TTL: time.Minute}
	first := w.pick("account", 3)
	r.Accounts = randomAccounts[first : first+1+w.pick("more", 3-first)]
	if w.pick("child", 2) == 1 && len(w.keys) > 0 {
		r.Parent = w.key()
		r.Accounts = r.Accounts[:w.pick("extra", 2)]
	}
	switch w.pick("form", 4) {
	case 0:
		r.Rest = true
	case 1:
		r.Split = spendlimit.Split{Group: "g", Slots: 3}
	case 2:
		r.Amount, r.Min = w.amount(), 1
	default:
		r.Amount = w.amount()
	}
	h, err := w.Reserve(w.ctx, r)
	if err == nil {
		w.keys = append(w.keys, h.Key)
	}
	return err
}

func (w *world) cost() spendlimit.Cost {
	switch w.pick("cost", 4) {
	case 0:
		return spendlimit.Unknown("random")
	case 1:
		return spendlimit.Recorded()
	}
	return spendlimit.Total(spendlimit.Amount(w.pick("cost", 15)))
}

func (w *world) advance() {
	now := w.clock.Now()
	midnight := now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	next := []time.Time{now.Add(time.Microsecond), now.Add(time.Second), now.Add(time.Minute), midnight.Add(-time.Second), midnight}
	w.clock.Set(next[w.pick("time", len(next))])
	if today := w.clock.Now(); today.Truncate(24*time.Hour) != now.Truncate(24*time.Hour) {
		w.days = append(w.days, today)
	}
}

func (w *world) compare() {
	for _, account := range randomAccounts {
		var own, days spendlimit.Amount
		for h, err := range w.Holds(w.ctx, spendlimit.HoldFilter{Account: account, Live: true}) {
			w.ok(err)
			own += h.Own
		}
		for _, day := range w.days {
			b := w.balanceAt(account, "day", day)
			days += b.Held
			if b.Spent < 0 || b.Held < 0 || b.Spent+b.Held > b.InForce+b.Overrun+b.Cut {
				w.Errorf("%s, %s: %s of %d", account, b.Period, showBalance(b), b.InForce)
			}
		}
		if all := w.balance(account, "all").Held; all != own || days != own {
			w.Fatalf("%s: live holds have %d; held %d in all, %d by day", account, own, all, days)
		}
	}
}

func TestT12_SameKeyTwentyTimes(t *testing.T) {
	t.Parallel()
	for range 20 {
		f := newFixture(t)
		f.limit(daily("10"))
		led := []*spendlimit.Ledger{f.Ledger, f.restart()}
		var c tally
		concurrently(20, func(i int) { c.add(led[i%2].Reserve(f.ctx, req("k", "3"))) })
		c.want(t, 1, 19, 0)
		f.wantBalance("acme", "day", "S 0, H 3, A 7")
		if got := f.kinds("acme"); got != "limit reserve" {
			t.Errorf("entries: %s", got)
		}
	}
}

func TestT24_OnceForAll(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hard, soft := daily("10"), daily("10")
	soft.Name, soft.Mode = "soft", spendlimit.Soft
	hard.Thresholds = []spendlimit.Threshold{{Percent: 80}}
	soft.Thresholds = hard.Thresholds
	f.limit(hard)
	f.limit(soft)
	led := []*spendlimit.Ledger{f.Ledger, f.restart()}
	for day := range 2 {
		var crossed atomic.Int64
		concurrently(10, func(i int) {
			h, err := led[i%2].Reserve(f.ctx, req(keyN("k", 10*day+i), "1"))
			if err != nil {
				t.Error(err)
				return
			}
			crossed.Add(int64(len(h.Crossed)))
		})
		if want, heard := 2*(day+1), f.heard(spendlimit.EventCrossed); crossed.Load() != 2 || heard != want {
			t.Errorf("day %d: %d in answers, want 2; %d heard, want %d", day, crossed.Load(), heard, want)
		}
		f.clock.Advance(24 * time.Hour)
	}
}

func TestT29_FiftyCharges(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	led := []*spendlimit.Ledger{f.Ledger, f.restart()}
	accounts := names("a", "b")
	var mu sync.Mutex
	ids := map[int64]string{} // by revision, which is the seq on the first account
	concurrently(50, func(i int) {
		id := keyN("c", i)
		r, err := led[i%2].Charge(f.ctx, spendlimit.Expense{ID: id, Accounts: accounts, Cost: total("0.1")})
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		ids[r.Revision] = id
		mu.Unlock()
	})
	for _, account := range accounts {
		n, seen := int64(0), map[string]bool{}
		for e, err := range f.Entries(f.ctx, account, 0) {
			f.ok(err)
			n++
			seen[e.Ref] = true
			if e.Seq != n || e.Kind != spendlimit.EntryCharge || e.Spent != usd("0.1") || account == "a" && ids[n] != e.Ref {
				t.Errorf("entry %d of %s: %+v, revision of %s", n, account, e, ids[n])
			}
		}
		if n != 50 || len(seen) != 50 {
			t.Errorf("%s: %d entries of %d charges", account, n, len(seen))
		}
	}
}

// gated is a store whose writing steps wait until the gate opens.
type gated struct {
	spendlimit.Store
	gate  chan struct{}
	steps atomic.Int64
}

func (g *gated) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	if !n.ReadOnly {
		g.steps.Add(1)
		<-g.gate
	}
	return g.Store.Step(ctx, n, f)
}

func TestT30_ChildrenInOneBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.limit(daily("20"))
		f.mustReserve(req("root", "10"))
		g := &gated{Store: f.store.Store, gate: make(chan struct{})}
		f.store.Store = g
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, err := f.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: total("1")}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // the charge is in the store; what comes now is one batch
		var c tally
		for i := range 2 {
			calls.Go(func() {
				c.add(f.Reserve(f.ctx, spendlimit.Request{Key: keyN("child", i), Parent: "root", Amount: usd("6")}))
			})
		}
		synctest.Wait()
		close(g.gate)
		calls.Wait()
		c.want(t, 1, 0, 1)
		if n := g.steps.Load(); n != 2 {
			t.Errorf("%d steps, want 2", n)
		}
		f.wantHold("root", "open, granted 10, own 4")
		f.wantBalance("acme", "day", "S 1, H 10, A 9")
	})
}

// threeLimits is an account with the limits 1, 2, 3 of which 2 is close to the largest number.
func threeLimits(t *testing.T) *fixture {
	f := newFixture(t)
	limit := func(name string) {
		f.limit(spendlimit.Limit{Account: "acme", Name: name, Kind: spendlimit.AllTime, Amount: spendlimit.MaxAmount, Mode: spendlimit.Soft})
	}
	limit("2")
	f.mustCharge("much", dollars(spendlimit.MaxAmount-2))
	limit("1")
	limit("3")
	return f
}

func TestT31_SecondLimitFails(t *testing.T) {
	t.Parallel()
	f := threeLimits(t)
	f.unchanged(func() {
		_, err := f.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: spendlimit.Total(3)})
		f.wantErr(err, spendlimit.ErrOverflow)
		_, err = f.Reserve(f.ctx, spendlimit.Request{Key: "k", Accounts: names("acme"), Amount: 3})
		f.wantErr(err, spendlimit.ErrOverflow)
	})
	_, err := f.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: spendlimit.Total(2)}) // the id is free
	f.ok(err)
	for limit, spent := range map[string]spendlimit.Amount{"1": 2, "2": spendlimit.MaxAmount, "3": 2} {
		if b := f.balance("acme", limit); b.Spent != spent || b.Held != 0 {
			t.Errorf("limit %s: %s", limit, showBalance(b))
		}
	}
}

// In a batch with others the refused command alone leaves nothing behind.
func TestT31_SecondLimitFailsInBatch(t *testing.T) {
	t.Parallel()
	f := threeLimits(t)
	var failed atomic.Int64
	concurrently(30, func(i int) {
		cost := spendlimit.Total(spendlimit.Amount(3 * (i % 2))) // 3 does not fit
		_, err := f.Charge(f.ctx, spendlimit.Expense{ID: keyN("c", i), Accounts: names("acme"), Cost: cost})
		switch {
		case errors.Is(err, spendlimit.ErrOverflow):
			failed.Add(1)
		case err != nil:
			t.Error(err)
		}
	})
	if n := failed.Load(); n != 15 {
		t.Errorf("%d failed, want 15", n)
	}
	f.wantBalance("acme", "1", "S 0, H 0, A "+dollars(spendlimit.MaxAmount))
}

// What overflows while a limit begins to carry holds does not refuse the next command of the batch.
func TestT31_CarryHoldsFailsInBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		l := daily("0")
		l.Amount, l.Mode = spendlimit.MaxAmount, spendlimit.Soft
		state := f.limit(l)
		for i, at := range []time.Time{d2.Add(-time.Minute), d2} {
			f.clock.Set(at)
			f.mustReserve(spendlimit.Request{Key: keyN("k", i), Accounts: names("acme"), Amount: spendlimit.MaxAmount - 1, TTL: time.Hour})
		}
		f.limit(spendlimit.Limit{Account: "other", Name: "all", Kind: spendlimit.AllTime, Amount: 10})
		g := &gated{Store: f.store.Store, gate: make(chan struct{})}
		f.store.Store = g
		charge := func(id string) {
			if _, err := f.Charge(f.ctx, spendlimit.Expense{ID: id, Accounts: names("other"), Cost: spendlimit.Total(1)}); err != nil {
				t.Error(err)
			}
		}
		var calls sync.WaitGroup
		calls.Go(func() { charge("first") })
		synctest.Wait() // it is in the store; what comes now is one batch
		calls.Go(func() {
			l.CarryHolds = true
			_, err := f.SetLimit(f.ctx, l, state.Fingerprint)
			f.wantErr(err, spendlimit.ErrOverflow)
		})
		synctest.Wait()
		calls.Go(func() { charge("second") })
		synctest.Wait()
		close(g.gate)
		calls.Wait()
		if n := g.steps.Load(); n != 2 {
			t.Errorf("%d steps, want 2", n)
		}
	})
}

func TestT31_StoreFailsHalfway(t *testing.T) {
	t.Parallel()
	for _, how := range []fault{faultBefore, faultInside} {
		f := newFixture(t)
		for _, account := range names("a", "b", "c") {
			f.limit(spendlimit.Limit{Account: account, Name: "day", Kind: spendlimit.Day, Amount: usd("10")})
		}
		r := spendlimit.Request{Key: "k", Accounts: names("a", "b", "c"), Amount: usd("4")}
		f.store.fail(how)
		f.unchanged(func() {
			_, err := f.Reserve(f.ctx, r)
			f.wantErr(err, spendlimit.ErrUnavailable)
		})
		f.mustReserve(r)
		for _, account := range r.Accounts {
			f.wantBalance(account, "day", "S 0, H 4, A 6")
		}
	}
}

func TestT46_ParentAndChildReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.limit(daily("10"))
		f.mustReserve(req("root", "10"))
		f.mustReserve(spendlimit.Request{Key: "first", Parent: "root", Amount: usd("8")})
		ctx, cancel := context.WithCancel(f.ctx)
		var calls sync.WaitGroup
		var errs [2]error
		child := spendlimit.Request{Key: "child", Parent: "root", Amount: usd("3")}
		for i, r := range []spendlimit.Request{req("parent", "1"), child} {
			calls.Go(func() { _, errs[i] = f.ReserveWait(ctx, r) })
			synctest.Wait()
		}
		_, err := f.Reserve(ctx, child) // at once, whoever waits
		if d := f.denial(err); d.Reason != spendlimit.ReasonParent {
			t.Errorf("refusal %+v", d)
		}
		time.Sleep(time.Minute) // on the test's clock: both poll
		cancel()
		calls.Wait()
		for _, err := range errs {
			f.wantErr(err, context.Canceled)
			f.denial(err)
		}
		f.wantBalance("acme", "day", "S 0, H 10, A 0")
		f.wantHold("root", "open, granted 10, own 2")
	})
}
