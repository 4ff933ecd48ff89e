package spendlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
)

// leased is a fixture whose leases keep their holds in memory stores that are verified with it.
type leased struct {
	*fixture
	elapsed *clock // of the leases
	mu      sync.Mutex
	locals  []*localStore
}

// localStore remembers the ledger that it keeps.
type localStore struct {
	spendlimit.Store
	mu   sync.Mutex
	name string
}

func (s *localStore) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	s.mu.Lock()
	s.name = n.Ledger
	s.mu.Unlock()
	return s.Store.Step(ctx, n, f)
}

func newLeased(t tb, cfg ...spendlimit.Config) *leased {
	t.Helper()
	f := &leased{fixture: newFixture(t, cfg...)}
	f.elapsed = f.clock
	t.Cleanup(f.verifyLocals)
	return f
}

// local makes a lease's own store.
func (f *leased) local() spendlimit.Store {
	s := &localStore{Store: memory.New(&memory.Options{Clock: f.clock.Now}).Spend()}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.locals = append(f.locals, s)
	return s
}

// ledgerOf opens a lease's own ledger, to look at.
func (f *leased) ledgerOf(s *localStore) *spendlimit.Ledger {
	f.Helper()
	led, err := spendlimit.New(s.Store, spendlimit.Config{Name: s.name, Unit: f.cfg.Unit, NoLimit: spendlimit.Allow})
	f.ok(err)
	return led
}

func (f *leased) verifyLocals() {
	for _, s := range f.locals {
		if s.name == "" {
			continue
		}
		diffs, err := f.ledgerOf(s).Verify(context.WithoutCancel(f.ctx), "acme")
		if err != nil || len(diffs) > 0 {
			f.Errorf("verify %s: %v, %v", s.name, diffs, err)
		}
	}
}

func (f *leased) request(key, chunk string) spendlimit.LeaseRequest {
	return spendlimit.LeaseRequest{Key: key, Accounts: names("acme"), Chunk: usd(chunk), Local: f.local, Clock: f.elapsed.Now}
}

// roomy is a request that finds room scarce only below 1 per lease.
func (f *leased) roomy(key, chunk string) spendlimit.LeaseRequest {
	r := f.request(key, chunk)
	r.MinChunk = usd("1")
	return r
}

func (f *leased) mustLease(r spendlimit.LeaseRequest) *spendlimit.Lease {
	f.Helper()
	l, err := f.Lease(f.ctx, r)
	if err != nil {
		f.Fatalf("lease %s: %v", r.Key, err)
	}
	return l
}

func (f *leased) mustHold(l *spendlimit.Lease, key, amount string) *spendlimit.Hold {
	f.Helper()
	h, err := l.Reserve(f.ctx, req(key, amount))
	if err != nil {
		f.Fatalf("reserve %s in the lease: %v", key, err)
	}
	return h
}

// spend reserves locally and settles.
func (f *leased) spend(l *spendlimit.Lease, key, amount, cost string) spendlimit.Receipt {
	f.Helper()
	r, err := f.mustHold(l, key, amount).Settle(f.ctx, total(cost))
	f.ok(err)
	return r
}

func (f *leased) mustSync(l *spendlimit.Lease) spendlimit.LeaseState {
	f.Helper()
	s, err := l.Sync(f.ctx)
	f.ok(err)
	return s
}

// wantRefused wants a refusal of a local hold, for a reason.
func (f *leased) wantRefused(l *spendlimit.Lease, key, amount string, reason spendlimit.Reason) *spendlimit.DeniedError {
	f.Helper()
	h, err := l.Reserve(f.ctx, req(key, amount))
	if h != nil {
		f.Fatalf("%s was granted %s", key, dollars(h.Granted))
	}
	denied := f.denial(err)
	if denied.Reason != reason {
		f.Fatalf("reason %v, want %v: %v", denied.Reason, reason, err)
	}
	return denied
}

// pool is three leases of 40 on a pool of 100: they get 40, 40 and 20.
func pool(f *leased) []*spendlimit.Lease {
	f.Helper()
	f.limit(forever("100"))
	var all []*spendlimit.Lease
	for i := range 3 {
		all = append(all, f.mustLease(f.request(keyN("p", i+1), "40")))
	}
	return all
}

func TestT93_ChunksLeaveThePoolWhenGranted(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	pool(f)
	f.wantHold("p1", "dispatched, granted 40, own 40")
	f.wantHold("p2", "dispatched, granted 40, own 40")
	f.wantHold("p3", "dispatched, granted 20, own 20")
	var err error
	f.unchanged(func() { _, err = f.Lease(f.ctx, f.request("p4", "1")) })
	if denied := f.denial(err); denied.Reason != spendlimit.ReasonHeld || !denied.WaitHolds {
		t.Errorf("refusal %+v", denied)
	}
	f.wantBalance("acme", "all", "S 0, H 100, A 0")
}

// t94 is the pool after the first lease has reported 25 and given 15 back.
func t94(f *leased) []*spendlimit.Lease {
	f.Helper()
	all := pool(f)
	f.spend(all[0], "a", "30", "25")
	state := f.mustSync(all[0])
	if !state.Recall || state.Leases != 3 || state.Free != 0 || state.Spent != usd("25") {
		f.Errorf("state %+v", state)
	}
	return all
}

func TestT94_ReportAndGiveBack(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	t94(f)
	f.wantBalance("acme", "all", "S 25, H 60, A 15")
	f.wantHold("p1", "dispatched, granted 40, recorded 25")
}

func TestT95_LapsedLease(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	all := t94(f)
	f.clock.Advance(200 * time.Second)
	f.mustSync(all[0])
	f.mustHold(all[2], "busy", "1") // else it would give all back
	f.mustSync(all[2])
	f.clock.Advance(100*time.Second + time.Microsecond)
	f.wantBalance("acme", "all", "S 65, H 20, A 15, assumed 40")
	f.wantReceipt(f.mustSettle("p2", total("10")), "cost 10, returned 30, late")
	f.wantBalance("acme", "all", "S 35, H 20, A 45")
	f.wantReceipt(f.mustSettle("p2", total("10")), "cost 10, returned 30, late, replayed")
	_, err := f.Settle(f.ctx, "p2", total("11"))
	f.wantErr(err, spendlimit.ErrSettled)
	f.wantBalance("acme", "all", "S 35, H 20, A 45")
}

func TestT96_GivenBackIsUnusableUntilKnown(t *testing.T) {
	t.Parallel()
	// start makes room scarce, so that the second step of the lease's Sync gives 50 back.
	start := func(t *testing.T) (*leased, *spendlimit.Lease) {
		f := newLeased(t)
		f.limit(forever("100"))
		l := f.mustLease(f.request("p1", "50"))
		f.mustLease(f.request("p2", "50"))
		return f, l
	}
	t.Run("applied", func(t *testing.T) {
		t.Parallel()
		f, l := start(t)
		f.store.fail(noFault, faultAfter)
		_, err := l.Sync(f.ctx)
		f.wantErr(err, spendlimit.ErrUncertain)
		f.wantRefused(l, "a", "1", spendlimit.ReasonLease)
		f.store.fail(faultBefore) // which says nothing about the first try
		_, err = l.Sync(f.ctx)
		f.wantErr(err, spendlimit.ErrUnavailable)
		f.wantRefused(l, "a", "1", spendlimit.ReasonLease)
		f.wantBalance("acme", "all", "S 0, H 50, A 50")
		f.mustSync(l)
		f.wantBalance("acme", "all", "S 0, H 50, A 50")
		f.mustHold(l, "a", "1")
		f.wantBalance("acme", "all", "S 0, H 51, A 49") // of 50, with two leases: no prefetch
	})
	t.Run("not applied", func(t *testing.T) {
		t.Parallel()
		f, l := start(t)
		f.store.fail(noFault, faultInside, faultBefore)
		_, err := l.Sync(f.ctx)
		f.wantErr(err, spendlimit.ErrUnavailable)
		f.mustHold(l, "a", "50") // without asking
		f.wantBalance("acme", "all", "S 0, H 100, A 0")
	})
}

func TestT97_CumulativeReports(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	pool(f)
	for range 10 {
		for _, cost := range []string{"30", "20", "30"} {
			_, err := f.Record(f.ctx, spendlimit.Usage{Hold: "p1", ID: "cost", Cost: total(cost), Cumulative: true})
			f.ok(err)
		}
	}
	f.wantHold("p1", "dispatched, granted 40, own 10, recorded 30")
	f.wantBalance("acme", "all", "S 30, H 70, A 0")
}

// A report that is lost, repeated or overtaken by a newer one counts once (R79).
func TestT97_ReportsOfALease(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	l := pool(f)[0]
	h := f.mustHold(l, "a", "40")
	for i, fault := range []fault{noFault, faultAfter, faultBefore, faultAfter, faultAfter, noFault} {
		_, err := h.Record(f.ctx, spendlimit.Usage{ID: "u", Cost: spendlimit.Total(usd("5") * spendlimit.Amount(i+1)), Cumulative: true})
		f.ok(err)
		f.store.fail(fault)
		l.Sync(f.ctx)
	}
	f.mustSync(l)
	f.mustSync(l)
	f.wantHold("p1", "dispatched, granted 40, own 10, recorded 30")
}

func TestT98_LocalOverrun(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("10"))
	l := f.mustLease(f.request("p1", "10"))
	f.wantReceipt(f.spend(l, "a", "10", "13"), "cost 13, excess 3, overrun 3")
	f.wantRefused(l, "b", "1", spendlimit.ReasonHeld)
	f.mustSync(l)
	f.wantBalance("acme", "all", "S 13, H 0, A -3, overrun 3")
	f.wantRefused(l, "b", "1", spendlimit.ReasonSpent)
	is := f.balance("acme", "all")
	f.change(forever("13.5"), is.Fingerprint)
	f.wantRefused(l, "b", "1", spendlimit.ReasonSpent)
	f.change(forever("14"), f.balance("acme", "all").Fingerprint)
	f.mustHold(l, "b", "1")
	f.wantBalance("acme", "all", "S 13, H 1, A 0, overrun 3")
}

// Cost above the local hold comes from the lease's free room first (R80).
func TestR80_OverrunFromFree(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("10"))
	l := f.mustLease(f.request("p1", "10"))
	f.spend(l, "a", "5", "8")
	f.wantRefused(l, "b", "3", spendlimit.ReasonHeld)
	f.mustHold(l, "b", "2")
	f.mustSync(l)
	f.wantBalance("acme", "all", "S 8, H 2, A 0")
}

func TestT99_CutLimit(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	all := t94(f)
	f.change(forever("50"), f.balance("acme", "all").Fingerprint)
	f.wantRefused(all[0], "b", "1", spendlimit.ReasonHeld)
	f.wantBalance("acme", "all", "S 25, H 60, A -35, cut 35")
	if state := f.mustSync(all[1]); !state.Recall || state.Free != 0 {
		t.Errorf("state %+v", state)
	}
	f.wantBalance("acme", "all", "S 25, H 20, A 5, cut 35")
}

func TestT101_SmallChunks(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("15"))
	for i := range 10 {
		r := f.request(keyN("p", i), "1")
		f.mustLease(r)
	}
	r := f.request("late", "40")
	r.MinChunk = usd("16")
	l := f.mustLease(r)
	f.wantHold("late", "dispatched, granted 5, own 5")
	f.wantBalance("acme", "all", "S 0, H 15, A 0")
	f.wantRefused(l, "a", "6", spendlimit.ReasonHeld)
	r.Key = "none"
	_, err := f.Lease(f.ctx, r)
	f.denial(err)
}

// The share of one lease among many, and no prefetch when room is scarce (R82).
func TestR82_Shares(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	r := f.request("p1", "60")
	r.MinChunk = usd("2")
	one := f.mustLease(r)
	f.wantHold("p1", "dispatched, granted 25, own 25") // 100/4
	r.Key = "p2"
	f.mustLease(r)
	f.wantHold("p2", "dispatched, granted 18.75, own 18.75") // 75/4
	r.Key = "p3"
	f.mustLease(r)
	f.wantHold("p3", "dispatched, granted 7.03125, own 7.03125") // 56.25/8
	f.mustHold(one, "a", "25")
	f.mustHold(one, "b", "10") // 1.5 of what callers wait for
	f.wantHold("p1", "dispatched, granted 25, own 40")
	f.mustHold(one, "c", "5")
	f.mustHold(one, "d", "1") // 34.21875/12
	f.wantHold("p1", "dispatched, granted 25, own 42.8515625")
	f.mustCharge("big", "29")
	f.mustHold(one, "e", "1.8515625")
	f.mustHold(one, "f", "0.5") // 2.3671875 for three leases: only what is missing
	f.wantHold("p1", "dispatched, granted 25, own 43.3515625")
}

func TestT102_Midnight(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(daily("10"))
	f.clock.Set(d2.Add(-time.Minute))
	l := f.mustLease(f.request("p1", "6"))
	before := f.mustHold(l, "before", "4")
	f.clock.Set(d2.Add(-time.Microsecond))
	f.mustHold(l, "edge", "1")
	f.clock.Set(d2)
	f.wantRefused(l, "after", "1", spendlimit.ReasonLease) // though 1 is free
	if h := f.mustHold(l, "edge", "1"); !h.Replayed {
		t.Error("the retry of a granted key is another hold")
	}
	if _, err := before.Settle(f.ctx, total("3")); err != nil {
		t.Error(err)
	}
	state := f.mustSync(l)
	if state.Hold != "p1~2" || state.Old != 1 || state.Free != usd("6") {
		t.Errorf("state %+v", state)
	}
	f.wantBalanceAt("acme", "day", noon, "S 3, H 1, A 6")
	f.wantBalance("acme", "day", "S 0, H 6, A 4")
	f.spend(l, "after", "1", "0.5")
	edge, err := l.Hold(f.ctx, "edge")
	f.ok(err)
	if h := f.mustHold(l, "edge", "1"); !h.Replayed {
		t.Error("the retry of a granted key of the old period is another hold")
	}
	_, err = edge.Settle(f.ctx, total("2")) // above its hold: the old period's overrun is the old period's
	f.ok(err)
	if state = f.mustSync(l); state.Old != 0 {
		t.Errorf("state %+v", state)
	}
	f.wantBalanceAt("acme", "day", noon, "S 5, H 0, A 5")
	f.wantBalance("acme", "day", "S 0.5, H 0, A 9.5")
	f.wantHold("p1", "settled, granted 6, recorded 5")
}

// A top-up that was asked for before midnight and answered after it takes nothing from the new period.
func TestT102_TopUpOverMidnight(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.elapsed = &clock{now: noon}
	f.limit(daily("10"))
	f.clock.Set(d2.Add(-time.Minute))
	l := f.mustLease(f.request("p1", "6"))
	f.clock.Set(d2) // the lease's own clock does not see it
	f.mustHold(l, "a", "6")
	f.wantRefused(l, "b", "1", spendlimit.ReasonLease)
	f.wantBalance("acme", "day", "S 0, H 0, A 10")
	f.wantBalanceAt("acme", "day", noon, "S 0, H 6, A 4")
}

// Nothing is granted from TTL − 5 s after the send time of the last renewal on, by the lease's own clock (R78).
func TestR78_LastSeconds(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.elapsed = &clock{now: noon}
	f.limit(forever("100"))
	l := f.mustLease(f.request("p1", "40"))
	last := f.mustHold(l, "early", "1")
	const stop = 295 * time.Second
	step := func(d time.Duration) { f.elapsed.Advance(d); f.clock.Advance(d) }
	step(stop - time.Nanosecond)
	f.mustHold(l, "a", "1")
	step(time.Nanosecond)
	f.wantRefused(l, "b", "1", spendlimit.ReasonLease)
	if h := f.mustHold(l, "a", "1"); !h.Replayed {
		t.Error("the retry of a granted key is another hold")
	}
	if _, err := last.Grow(f.ctx, spendlimit.Growth{ID: "g", By: usd("1")}); !errors.Is(err, spendlimit.ErrDenied) {
		t.Errorf("grow: %v", err)
	}
	f.ok(last.Dispatch(f.ctx)) // what was granted goes on
	_, err := last.Settle(f.ctx, total("1"))
	f.ok(err)
	f.mustSync(l)
	f.mustHold(l, "b", "1")
	step(stop)
	f.wantRefused(l, "c", "1", spendlimit.ReasonLease)
	f.elapsed.Advance(-time.Hour) // a clock that steps back, as none does that is monotonic
	f.mustHold(l, "c", "1")
	f.wantBalance("acme", "all", "S 1, H 39, A 60")
}

// slow is a store whose next steps take a while, before and after they are made.
type slow struct {
	spendlimit.Store
	before, after func()
}

func (s *slow) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	s.before()
	defer s.after()
	return s.Store.Step(ctx, n, f)
}

// The term counts from the time before the renewal is sent, not from its answer (R78).
func TestR78_SendTime(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	delay := func() { f.clock.Advance(20 * time.Second) }
	led, err := spendlimit.New(&slow{f.store, func() {}, delay}, f.cfg)
	f.ok(err)
	l, err := led.Lease(f.ctx, f.roomy("p1", "40"))
	f.ok(err)
	f.clock.Advance(275*time.Second - 1)
	f.mustHold(l, "a", "1")
	f.clock.Advance(1)
	f.wantRefused(l, "b", "1", spendlimit.ReasonLease)
	sent := f.clock.Now()
	f.mustSync(l)
	f.clock.Set(sent.Add(295*time.Second - 1))
	f.mustHold(l, "b", "1")
	f.clock.Set(sent.Add(295 * time.Second))
	f.wantRefused(l, "c", "1", spendlimit.ReasonLease)
}

// A lease that was not renewed in time goes on with a new hold; costs and late settles of the old one stay right (R81).
func TestR81_LapsedAndRenewed(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	l := f.mustLease(f.roomy("p1", "40"))
	h := f.mustHold(l, "a", "10")
	_, err := h.Extend(f.ctx, spendlimit.Extension{TTL: time.Hour})
	f.ok(err)
	f.spend(l, "b", "5", "4")
	f.clock.Advance(301 * time.Second)
	f.wantBalance("acme", "all", "S 25, H 0, A 75, assumed 25")
	state := f.mustSync(l)
	if state.Hold != "p1~2" || state.Old != 1 {
		t.Errorf("state %+v", state)
	}
	f.wantBalance("acme", "all", "S 25, H 18.75, A 56.25, assumed 21")
	f.spend(l, "c", "5", "1")
	_, err = h.Settle(f.ctx, total("7"))
	f.ok(err)
	f.mustSync(l)
	f.wantHold("p1", "settled, granted 25, recorded 11")
	f.wantBalance("acme", "all", "S 12, H 17.75, A 70.25")
}

// More than Chunk, shares, the rest and other accounts go to the central ledger (R78).
func TestR78_CentralRequests(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	f.limit(spendlimit.Limit{Account: "other", Name: "all", Kind: spendlimit.AllTime, Amount: usd("5")})
	l := f.mustLease(f.request("p1", "10"))
	for i, r := range []spendlimit.Request{
		{Accounts: names("acme"), Amount: usd("10.000000001")},
		{Accounts: names("acme", "other"), Amount: usd("1")},
		{Accounts: names("other"), Amount: usd("1")},
		{Accounts: names("acme"), Split: spendlimit.Split{Group: "g", Slots: 10}, Amount: usd("2")},
		{Accounts: names("other"), Rest: true},
	} {
		r.Key = keyN("big", i)
		h, err := l.Reserve(f.ctx, r)
		f.ok(err)
		central, err := f.Hold(f.ctx, r.Key)
		f.ok(err)
		if found, err := l.Hold(f.ctx, r.Key); err != nil || found.Granted != h.Granted || h.Granted != central.Granted {
			t.Errorf("%s: %v, %v", r.Key, found, err)
		}
	}
	f.wantHold("p1", "dispatched, granted 10, own 10")
	f.mustHold(l, "small", "10")
	if _, err := f.Hold(f.ctx, "small"); !errors.Is(err, spendlimit.ErrNotFound) {
		t.Errorf("a local hold is on the central ledger: %v", err)
	}
}

// Local holds do all that others do.
func TestR77_LocalHolds(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	l := f.mustLease(f.request("p1", "40"))
	parent := f.mustHold(l, "parent", "20")
	child, err := l.Reserve(f.ctx, spendlimit.Request{Key: "child", Parent: "parent", Amount: usd("15")})
	f.ok(err)
	_, err = l.Reserve(f.ctx, spendlimit.Request{Key: "child2", Parent: "parent", Amount: usd("15")})
	if denied := f.denial(err); denied.Reason != spendlimit.ReasonParent {
		t.Errorf("refusal %+v", denied)
	}
	_, err = l.Reserve(f.ctx, spendlimit.Request{Key: "child3", Parent: "parent", Accounts: names("other"), Amount: usd("1")})
	f.wantErr(err, spendlimit.ErrInvalid)
	_, err = l.Reserve(f.ctx, spendlimit.Request{Key: "child4", Parent: "nobody", Amount: usd("1")})
	f.wantErr(err, spendlimit.ErrNotFound)
	f.ok(child.Dispatch(f.ctx))
	_, err = child.Record(f.ctx, spendlimit.Usage{ID: "u", Cost: total("3")})
	f.ok(err)
	_, err = child.Release(f.ctx)
	f.wantErr(err, spendlimit.ErrDispatched)
	_, err = child.Settle(f.ctx, spendlimit.Recorded())
	f.ok(err)
	_, err = parent.Shrink(f.ctx, spendlimit.Shrinkage{ID: "s", By: usd("2")})
	f.ok(err)
	_, err = parent.Extend(f.ctx, spendlimit.Extension{TTL: time.Hour})
	f.ok(err)
	_, err = parent.Grow(f.ctx, spendlimit.Growth{ID: "g", By: usd("30")}) // 22 are free
	f.ok(err)
	f.wantHold("p1", "dispatched, granted 40, own 80") // 8 are missing: 40 more
	_, err = parent.Release(f.ctx)
	f.ok(err)
	state := f.mustSync(l)
	if state.Spent != usd("3") || state.Held != 0 || state.Free != usd("40") {
		t.Errorf("state %+v", state)
	}
	f.wantBalance("acme", "all", "S 3, H 40, A 57")
	free, err := l.Reserve(f.ctx, spendlimit.Request{Key: "free", Accounts: names("acme"), Free: true})
	f.ok(err)
	_, err = free.Settle(f.ctx, total("1"))
	f.ok(err)
	some, err := l.Reserve(f.ctx, spendlimit.Request{Key: "some", Accounts: names("acme"), Amount: usd("40"), Min: usd("1")})
	f.ok(err)
	if some.Granted != usd("39") {
		t.Errorf("granted %s", dollars(some.Granted))
	}
	f.ok(l.Close(f.ctx))
	f.wantBalance("acme", "all", "S 4, H 0, A 96")
}

// A grant of at least Min takes what the central ledger still has.
func TestR78_AtLeast(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("15"))
	l := f.mustLease(f.request("p1", "10"))
	f.mustHold(l, "a", "8")
	ask := spendlimit.Request{Key: "b", Accounts: names("acme"), Amount: usd("10"), Min: usd("8")}
	_, err := l.Reserve(f.ctx, ask)
	if denied := f.denial(err); denied.Wanted != usd("10") || denied.Min != usd("8") || denied.RetryAfter <= 0 {
		t.Errorf("refusal %+v", denied)
	}
	ask.Min = usd("7")
	h, err := l.Reserve(f.ctx, ask)
	f.ok(err)
	if h.Granted != usd("7") {
		t.Errorf("granted %s", dollars(h.Granted))
	}
	f.wantBalance("acme", "all", "S 0, H 15, A 0")
}

// Unpriced cost of a local hold freezes the central limit, and is priced with it (R52 to R54).
func TestR52_UnpricedLocalCost(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	l := f.mustLease(f.roomy("p1", "40"))
	other := f.mustLease(f.roomy("p2", "10"))
	h := f.mustHold(l, "a", "10")
	_, err := h.Settle(f.ctx, spendlimit.Unknown("no price"))
	f.ok(err)
	f.wantRefused(l, "b", "1", spendlimit.ReasonUnpriced)
	f.mustSync(l)
	f.mustSync(l)
	f.wantBalance("acme", "all", "S 0, H 35, A 65, unpriced 1")
	f.mustHold(other, "c", "1") // it does not know yet
	f.mustSync(other)
	f.wantRefused(other, "d", "1", spendlimit.ReasonUnpriced)
	_, err = h.Settle(f.ctx, total("12"))
	f.ok(err)
	f.mustSync(l)
	f.wantBalance("acme", "all", "S 12, H 23, A 65")
	f.mustSync(other)
	f.mustHold(other, "d", "1")
	f.mustHold(l, "b", "1")
}

// Where the central limit admits new work in spite of unpriced cost, so does the lease.
func TestR53_LeaseOnUnpricedAllow(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	limit := forever("100")
	limit.OnUnpriced = spendlimit.Allow
	f.limit(limit)
	l := f.mustLease(f.request("p1", "40"))
	_, err := f.mustHold(l, "a", "10").Settle(f.ctx, spendlimit.Unknown("no price"))
	f.ok(err)
	f.mustHold(l, "b", "1")
	f.mustSync(l)
	f.mustHold(l, "c", "1")
	f.ok(l.Close(f.ctx))
	f.wantBalance("acme", "all", "S 10, H 0, A 90, assumed 10, unpriced 1")
	f.mustSettle("p1", total("3"))
	f.wantBalance("acme", "all", "S 3, H 0, A 97")
}

func TestR81_Close(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	l := f.mustLease(f.request("p1", "40"))
	f.spend(l, "a", "10", "4")
	open, sent := f.mustHold(l, "open", "5"), f.mustHold(l, "sent", "6")
	f.ok(sent.Dispatch(f.ctx))
	f.store.fail(faultAfter)
	f.wantErr(l.Close(f.ctx), spendlimit.ErrUncertain)
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	f.ok(l.Close(ctx)) // a gone client loses no cost
	f.ok(l.Close(f.ctx))
	f.wantBalance("acme", "all", "S 10, H 0, A 90, assumed 6")
	f.wantHold("p1", "lapsed-charged, granted 40, recorded 4, assumed 6")
	_, err := open.Settle(f.ctx, total("1"))
	f.wantErr(err, spendlimit.ErrReleased)
	f.ok(open.Close(f.ctx))
	_, err = sent.Settle(f.ctx, total("1"))
	f.wantErr(err, spendlimit.ErrClosed) // to be said to the ledger
	_, err = l.Reserve(f.ctx, req("b", "1"))
	f.wantErr(err, spendlimit.ErrClosed)
	_, err = l.Sync(f.ctx)
	f.wantErr(err, spendlimit.ErrClosed)
	f.ok(l.Run(f.ctx))
	f.wantReceipt(f.mustSettle("p1", total("9")), "cost 9, returned 1, late")
	f.wantBalance("acme", "all", "S 9, H 0, A 91")
}

// A hold that was taken without an answer, and never used, is not charged: neither when it has lapsed before the lease can
// ask again, nor when the lease is closed.
func TestR81_TakenWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(f *leased, l *spendlimit.Lease){
		"lapsed": func(f *leased, l *spendlimit.Lease) {
			f.clock.Advance(301 * time.Second)
			f.wantBalance("acme", "day", "S 6, H 0, A 4, assumed 6")
			if state := f.mustSync(l); state.Hold != "p1~3" {
				f.Errorf("state %+v", state)
			}
			f.wantBalance("acme", "day", "S 0, H 6, A 4")
			f.ok(l.Close(f.ctx))
		},
		"closed": func(f *leased, l *spendlimit.Lease) { f.ok(l.Close(f.ctx)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newLeased(t)
			f.limit(daily("10"))
			f.clock.Set(d2.Add(-time.Minute))
			l := f.mustLease(f.request("p1", "6"))
			f.clock.Set(d2)
			f.store.fail(noFault, faultAfter)
			_, err := l.Sync(f.ctx)
			f.wantErr(err, spendlimit.ErrUncertain)
			f.wantBalance("acme", "day", "S 0, H 6, A 4")
			end(f, l)
			f.wantBalance("acme", "day", "S 0, H 0, A 10")
			f.wantBalanceAt("acme", "day", noon, "S 0, H 0, A 10")
		})
	}
	t.Run("first", func(t *testing.T) {
		t.Parallel()
		f := newLeased(t)
		f.limit(daily("10"))
		f.store.fail(faultAfter)
		_, err := f.Lease(f.ctx, f.request("p1", "6"))
		f.wantErr(err, spendlimit.ErrUncertain)
		f.clock.Advance(301 * time.Second)
		f.mustLease(f.request("p1", "6"))
		f.wantBalance("acme", "day", "S 0, H 6, A 4")
		f.wantHold("p1~2", "dispatched, granted 6, own 6")
	})
}

// Two processes never share a lease by using one key; one process may ask again after an uncertain answer.
func TestR77_KeyOfALease(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	for _, fault := range []fault{faultAfter, faultBefore} { // what is not known stays so
		f.store.fail(fault)
		_, err := f.Lease(f.ctx, f.request("p1", "40"))
		if !errors.Is(err, spendlimit.ErrUncertain) && !errors.Is(err, spendlimit.ErrUnavailable) {
			t.Errorf("lease: %v", err)
		}
		_, err = f.restart().Lease(f.ctx, f.request("p1", "40"))
		f.wantErr(err, spendlimit.ErrKeyReused)
	}
	f.mustLease(f.request("p1", "40"))
	_, err := f.Lease(f.ctx, f.request("p1", "40"))
	f.wantErr(err, spendlimit.ErrKeyReused)
	f.store.fail(faultInside)
	_, err = f.Lease(f.ctx, f.request("p2", "40"))
	f.wantErr(err, spendlimit.ErrUnavailable)
	f.mustLease(f.request("p2", "40"))
	_, err = f.Lease(f.ctx, f.request("p2", "40"))
	f.wantErr(err, spendlimit.ErrKeyReused)
	_, err = f.restart().Lease(f.ctx, f.request("p2", "40"))
	f.wantErr(err, spendlimit.ErrKeyReused)
	f.wantBalance("acme", "all", "S 0, H 80, A 20")
}

// Processes may spread their polls alike, or a process as it did before it was started again: their leases are still two.
func TestR77_KeyOfALeaseWithTheSameRandom(t *testing.T) {
	t.Parallel()
	f := newLeased(t, spendlimit.Config{Random: func() uint64 { return 4 }})
	f.limit(forever("100"))
	first := f.mustLease(f.request("p1", "40"))
	_, err := first.Reserve(f.ctx, req("h", "40"))
	f.ok(err)
	second, err := f.restart().Lease(f.ctx, f.request("p1", "40"))
	if err == nil {
		_, twice := second.Reserve(f.ctx, req("h2", "40"))
		f.Errorf("the same 40 is asked for twice: %v", twice)
	}
	f.wantErr(err, spendlimit.ErrKeyReused)
}

// The lease's hold may be ended by somebody else: its room is gone, and the lease takes a new hold.
func TestR81_SettledByAnother(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	l := f.mustLease(f.request("p1", "40"))
	h := f.mustHold(l, "a", "10")
	f.mustSettle("p1", total("2"))
	_, err := l.Sync(f.ctx)
	f.wantErr(err, spendlimit.ErrSettled) // what its holds cost is to be charged
	_, err = h.Settle(f.ctx, total("1"))
	f.wantErr(err, spendlimit.ErrClosed)
	f.mustHold(l, "b", "1")
	f.wantBalance("acme", "all", "S 2, H 40, A 58")
}

// A local store keeps all its holds, so a lease takes a new one every so often.
func TestR77_NewStoreNowAndThen(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	l := f.mustLease(f.request("p1", "1"))
	live := f.mustHold(l, "live", "0.5")
	for i := range 1 << 15 {
		f.spend(l, keyN("k", i), "0.1", "0.000000001")
	}
	state := f.mustSync(l)
	if state.Hold != "p1~2" || state.Old != 1 || len(f.locals) != 2 {
		t.Errorf("state %+v, %d stores", state, len(f.locals))
	}
	f.mustHold(l, "more", "0.1")
	_, err := live.Settle(f.ctx, total("0.2"))
	f.ok(err)
	if state = f.mustSync(l); state.Old != 0 {
		t.Errorf("state %+v", state)
	}
	f.wantHold("p1", "settled, granted 1, recorded 0.200032768")
}

// A lease outlives the longest life of a hold.
func TestR30_LeaseOutlivesHolds(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	r := f.request("p1", "1")
	r.TTL = 24 * time.Hour
	l := f.mustLease(r)
	hold := ""
	for day := range 70 {
		if state := f.mustSync(l); state.Hold != hold {
			hold = state.Hold
			t.Logf("day %d: %s", day, hold)
		}
		f.spend(l, keyN("k", day), "0.5", "0.5")
		f.clock.Advance(23 * time.Hour)
	}
	if hold != "p1~3" {
		t.Errorf("hold %s", hold)
	}
	f.ok(l.Close(f.ctx))
	f.wantBalance("acme", "all", "S 35, H 0, A 65")
}

// Run renews in time, follows the days, takes more before the room is used up, and ends with its context or the lease.
func TestR79_Run(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newLeased(t)
		f.store.Store = memory.New(nil).Spend()
		f.limit(daily("100"))
		r := f.request("p1", "10")
		r.Local, r.Clock = func() spendlimit.Store { return memory.New(nil).Spend() }, nil
		l := f.mustLease(r)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		for hour := range 50 {
			time.Sleep(time.Hour - time.Duration(hour)*time.Second)
			f.spend(l, keyN("h", hour), "1", "1")
		}
		if b := f.balance("acme", "day"); b.Held+b.Spent == 0 || b.Held > usd("10") {
			t.Errorf("balance %s", showBalance(b))
		}
		calls := f.store.writes()
		for i := range 9 {
			f.mustHold(l, keyN("x", i), "1")
		}
		synctest.Wait()
		if f.store.writes() == calls {
			t.Error("most of the room is used, and Run took no more")
		}
		f.store.fail(faultBefore, faultAfter, faultBefore, faultBefore)
		time.Sleep(120 * time.Second)
		f.mustHold(l, "after faults", "0.1")
		f.clock.Set(time.Now())
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
		go func() { done <- l.Run(t.Context()) }()
		synctest.Wait()
		f.ok(l.Close(t.Context()))
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
}

// Callers that wait for room share the grows that fetch it.
func TestR78_ManyCallers(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("1000"))
	l := f.mustLease(f.request("p1", "50"))
	concurrently(8, func(i int) {
		for j := range 100 {
			h, err := l.Reserve(f.ctx, req(fmt.Sprintf("%d/%d", i, j), "1"))
			if err != nil {
				t.Error(err)
				return
			}
			if j%2 == 0 {
				_, err = h.Settle(f.ctx, total("0.5"))
			} else {
				err = h.Dispatch(f.ctx)
			}
			if err != nil {
				t.Error(err)
			}
			if j%25 == 0 {
				if _, err := l.Sync(f.ctx); err != nil {
					t.Error(err)
				}
			}
		}
	})
	if n := f.store.writes(); n > 200 {
		t.Errorf("%d central steps for 800 local pairs", n)
	}
	f.ok(l.Close(f.ctx))
	f.wantBalance("acme", "all", "S 600, H 0, A 400, assumed 400")
}

func TestLease_BadInput(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	long := make([]byte, 241)
	for i := range long {
		long[i] = 'k'
	}
	for field, change := range map[string]func(*spendlimit.LeaseRequest){
		"Key: empty":       func(r *spendlimit.LeaseRequest) { r.Key = "" },
		"Key: long":        func(r *spendlimit.LeaseRequest) { r.Key = string(long) },
		"Key: control":     func(r *spendlimit.LeaseRequest) { r.Key = "a\n" },
		"Accounts: none":   func(r *spendlimit.LeaseRequest) { r.Accounts = nil },
		"Accounts: twice":  func(r *spendlimit.LeaseRequest) { r.Accounts = names("a", "a") },
		"Accounts: empty":  func(r *spendlimit.LeaseRequest) { r.Accounts = names("") },
		"Chunk: 0":         func(r *spendlimit.LeaseRequest) { r.Chunk = 0 },
		"Chunk: negative":  func(r *spendlimit.LeaseRequest) { r.Chunk = -1 },
		"MinChunk":         func(r *spendlimit.LeaseRequest) { r.MinChunk = -1 },
		"MinChunk: larger": func(r *spendlimit.LeaseRequest) { r.MinChunk = r.Chunk + 1 },
		"TTL: short":       func(r *spendlimit.LeaseRequest) { r.TTL = 15*time.Second - 1 },
		"TTL: negative":    func(r *spendlimit.LeaseRequest) { r.TTL = -1 },
		"TTL: long":        func(r *spendlimit.LeaseRequest) { r.TTL = 24*time.Hour + 1 },
		"Local: nil":       func(r *spendlimit.LeaseRequest) { r.Local = nil },
	} {
		r := f.request("p1", "10")
		change(&r)
		var err error
		f.unchanged(func() { _, err = f.Lease(f.ctx, r) })
		var bad *spendlimit.InvalidError
		if !errors.As(err, &bad) || len(bad.Field) < 3 || bad.Field[:3] != field[:3] {
			t.Errorf("%s: %v", field, err)
		}
	}
	f.unchanged(func() {
		_, err := f.Lease(nil, f.request("p1", "10")) //nolint:staticcheck // what it does with a nil context
		f.wantErr(err, spendlimit.ErrInvalid)
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		_, err = f.Lease(ctx, f.request("p1", "10"))
		f.wantErr(err, context.Canceled)
	})
	l := f.mustLease(f.request("p1", "10"))
	for _, r := range []spendlimit.Request{
		{}, {Key: "k", Accounts: names("acme")}, {Key: "k", Accounts: names("acme"), Amount: -1}, {Key: "", Accounts: names("acme"), Amount: 1},
		{Key: "k", Accounts: names("acme"), Amount: 1, Min: 2}, {Key: "k", Accounts: names("acme"), Amount: 1, TTL: 1},
	} {
		_, err := l.Reserve(f.ctx, r)
		f.wantErr(err, spendlimit.ErrInvalid)
	}
	_, err := l.Reserve(nil, req("k", "1")) //nolint:staticcheck // as above
	f.wantErr(err, spendlimit.ErrInvalid)
	_, err = l.Sync(nil) //nolint:staticcheck // as above
	f.wantErr(err, spendlimit.ErrInvalid)
	f.wantErr(l.Run(nil), spendlimit.ErrInvalid)   //nolint:staticcheck // as above
	f.wantErr(l.Close(nil), spendlimit.ErrInvalid) //nolint:staticcheck // as above
	_, err = l.Hold(f.ctx, "nobody")
	f.wantErr(err, spendlimit.ErrNotFound)
	f.mustHold(l, "k", "1")
	_, err = l.Reserve(f.ctx, req("k", "2"))
	f.wantErr(err, spendlimit.ErrKeyReused)
	_, err = f.Lease(f.ctx, spendlimit.LeaseRequest{Key: "none", Accounts: names("acme"), Chunk: 1, Local: func() spendlimit.Store { return nil }})
	f.wantErr(err, spendlimit.ErrInvalid)
	if slices.Contains(f.store.accounts(), "") {
		t.Error("an account without a name was asked for")
	}
}

// Whatever step of the ledger fails, in whatever way, calling again leads to the same end (T8, R79).
func TestR79_EveryFaultHeals(t *testing.T) {
	t.Parallel()
	life := func(t *testing.T, plan ...fault) (steps int) {
		f := newLeased(t)
		f.limit(daily("10"))
		f.clock.Set(d2.Add(-time.Minute))
		f.store.fail(plan...)
		again := func(try func() error) {
			t.Helper()
			var err error
			for range 3 {
				if err = try(); err == nil {
					return
				}
			}
			t.Errorf("%v: %v", plan, err)
		}
		var l *spendlimit.Lease
		again(func() (err error) { l, err = f.Lease(f.ctx, f.request("p1", "4")); return err })
		if l == nil {
			return 0
		}
		holds := map[string]*spendlimit.Hold{}
		hold := func(key, amount string) {
			again(func() (err error) {
				if holds[key], err = l.Reserve(f.ctx, req(key, amount)); errors.Is(err, spendlimit.ErrDenied) {
					_, err = l.Sync(f.ctx)
					err = errors.Join(err, errors.New("denied"))
				}
				return err
			})
		}
		sync := func() { again(func() error { _, err := l.Sync(f.ctx); return err }) }
		settle := func(key, cost string) {
			t.Helper()
			_, err := holds[key].Settle(f.ctx, total(cost))
			f.ok(err)
		}
		hold("a", "3")
		hold("b", "3") // takes more
		settle("a", "4")
		sync()
		hold("c", "1")
		settle("c", "0")
		sync()
		hold("d", "2")
		f.clock.Set(d2)
		sync() // and a new hold
		hold("e", "1")
		settle("b", "1")
		settle("d", "2.5")
		settle("e", "0.5")
		sync()
		again(func() error { return l.Close(f.ctx) })
		f.wantBalanceAt("acme", "day", noon, "S 7.5, H 0, A 2.5")
		f.wantBalance("acme", "day", "S 0.5, H 0, A 9.5")
		return f.store.writes()
	}
	steps := life(t)
	if steps < 10 {
		t.Fatalf("%d steps", steps)
	}
	for k := range steps + 5 {
		for _, kind := range []fault{faultBefore, faultInside, faultAfter} {
			life(t, append(make([]fault, k), kind)...)
			life(t, append(make([]fault, k), kind, kind)...)
		}
	}
}
