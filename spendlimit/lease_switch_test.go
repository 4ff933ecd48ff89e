package spendlimit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// hooked is a store that calls a function, once, before its next step.
type hooked struct {
	spendlimit.Store
	mu   sync.Mutex
	hook func()
}

func (s *hooked) before(hook func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

func (s *hooked) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	s.mu.Lock()
	hook := s.hook
	s.hook = nil
	s.mu.Unlock()
	if hook != nil {
		hook()
	}
	return s.Store.Step(ctx, n, f)
}

// Two calls for one key at the same time never get one hold: each lease would be told that its room is its own (R77).
func TestR77_TwoLeasesAtOnce(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	store := &hooked{Store: f.store}
	led, err := spendlimit.New(store, f.cfg)
	f.ok(err)
	second := make(chan error, 1)
	store.before(func() {
		go func() {
			_, err := led.Lease(f.ctx, f.request("p1", "40"))
			second <- err
		}()
		select { // it is refused at once, or waits for the batch that is under way
		case err := <-second:
			second <- err
		case <-time.After(100 * time.Millisecond):
		}
	})
	_, err = led.Lease(f.ctx, f.request("p1", "40"))
	f.ok(err)
	f.wantErr(<-second, spendlimit.ErrKeyReused)
	f.wantBalance("acme", "all", "S 0, H 40, A 60")
}

// A lease that was asked for without an answer can still be had after somebody asked for another one with its key (R77).
func TestR77_AskedForOtherwiseMeanwhile(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	f.store.fail(faultAfter)
	_, err := f.Lease(f.ctx, f.request("p1", "40"))
	f.wantErr(err, spendlimit.ErrUncertain)
	_, err = f.Lease(f.ctx, f.request("p1", "50"))
	f.wantErr(err, spendlimit.ErrKeyReused)
	f.mustLease(f.request("p1", "40"))
	f.wantBalance("acme", "all", "S 0, H 40, A 60")
}

// A Sync that ends with its caller before it was sent leaves the room usable (R79).
func TestT96_EndedBeforeItWasSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newLeased(t)
		f.limit(forever("100"))
		store := &hooked{Store: f.store}
		led, err := spendlimit.New(store, f.cfg)
		f.ok(err)
		l, err := led.Lease(f.ctx, f.request("p1", "10"))
		f.ok(err)
		for i := range 5 {
			f.mustHold(l, keyN("a", i), "10")
		}
		for i := range 5 {
			h, err := l.Hold(f.ctx, keyN("a", i))
			f.ok(err)
			_, err = h.Release(f.ctx)
			f.ok(err)
		}
		f.mustLease(f.request("p2", "50"))
		f.wantBalance("acme", "all", "S 0, H 100, A 0")

		busy := make(chan struct{})
		store.before(func() { <-busy })
		go led.Charge(f.ctx, spendlimit.Expense{ID: "busy", Accounts: names("other"), Cost: total("1")})
		synctest.Wait()
		ctx, cancel := context.WithCancel(f.ctx)
		ended := make(chan error)
		go func() {
			_, err := l.Sync(ctx) // to give 40 back; it waits behind the charge
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, spendlimit.ErrUncertain) {
			t.Errorf("sync: %v", err)
		}
		close(busy)
		synctest.Wait()
		for i := range 5 {
			f.mustHold(l, keyN("b", i), "10")
		}
		f.wantBalance("acme", "all", "S 0, H 100, A 0")
	})
}

// The retry of a granted key is answered by the hold that it names, though the lease takes its next one meanwhile (R77).
func TestR77_RetryWhileTheHoldIsReplaced(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(daily("10"))
	var first *hooked
	r := f.request("p1", "4")
	r.Local = func() spendlimit.Store {
		s := &hooked{Store: f.local()}
		if first == nil {
			first = s
		}
		return s
	}
	l := f.mustLease(r)
	_, err := f.mustHold(l, "long", "1").Extend(f.ctx, spendlimit.Extension{TTL: 24 * time.Hour})
	f.ok(err)
	f.clock.Set(d2)
	f.mustSync(l)
	f.mustHold(l, "k", "1")
	_, err = f.mustHold(l, "k", "1").Extend(f.ctx, spendlimit.Extension{TTL: 24 * time.Hour})
	f.ok(err)
	first.before(func() { // it is asked for every key, while its hold lives
		f.clock.Set(d2.Add(12 * time.Hour))
		f.mustSync(l)
	})
	if h := f.mustHold(l, "k", "1"); !h.Replayed {
		t.Error("the retry of a granted key is another hold")
	}
}

// A key that the lease has granted is not granted again by the ledger, for more than Chunk.
func TestR77_KeyOfALocalHoldAskedForMore(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	l := f.mustLease(f.request("p1", "10"))
	f.mustHold(l, "k", "1")
	_, err := l.Reserve(f.ctx, req("k", "11"))
	f.wantErr(err, spendlimit.ErrKeyReused)
	f.wantBalance("acme", "all", "S 0, H 10, A 90")
}

// A lease that has all the room there is gives it back before it asks for its next hold.
func TestR79_NextHoldFromItsOwnRoom(t *testing.T) {
	t.Parallel()
	t.Run("midnight", func(t *testing.T) {
		t.Parallel()
		f := newLeased(t)
		f.limit(daily("100"))
		f.limit(forever("10"))
		f.clock.Set(d2.Add(-time.Minute))
		l := f.mustLease(f.request("p1", "10"))
		f.spend(l, "a", "1", "1")
		live := f.mustHold(l, "live", "2")
		f.clock.Set(d2)
		if state := f.mustSync(l); state.Hold != "p1~2" || state.Free != usd("7") || state.Old != 1 {
			t.Errorf("state %+v", state)
		}
		f.wantBalance("acme", "all", "S 1, H 9, A 0")
		_, err := live.Settle(f.ctx, total("2"))
		f.ok(err)
		f.mustSync(l) // idle, and room is scarce
		f.wantBalance("acme", "all", "S 3, H 0, A 7")
		f.wantBalanceAt("acme", "day", noon, "S 3, H 0, A 97")
	})
	t.Run("lapsed", func(t *testing.T) {
		t.Parallel()
		f := newLeased(t)
		f.limit(forever("10"))
		l := f.mustLease(f.request("p1", "10"))
		f.spend(l, "a", "10", "1")
		f.clock.Advance(301 * time.Second)
		if state := f.mustSync(l); state.Hold != "p1~2" || state.Free != usd("9") || state.Old != 0 {
			t.Errorf("state %+v", state)
		}
		f.wantBalance("acme", "all", "S 1, H 9, A 0")
	})
	t.Run("full store", func(t *testing.T) {
		t.Parallel()
		f := newLeased(t)
		f.limit(forever("10"))
		l := f.mustLease(f.request("p1", "10"))
		live := f.mustHold(l, "live", "1")
		for i := range 1 << 15 {
			f.spend(l, keyN("k", i), "0.1", "0.000000001")
		}
		if state := f.mustSync(l); state.Hold != "p1~2" || state.Free != usd("8.999967232") {
			t.Errorf("state %+v", state)
		}
		_, err := live.Settle(f.ctx, total("1"))
		f.ok(err)
		if state := f.mustSync(l); state.Old != 0 {
			t.Errorf("state %+v", state)
		}
	})
}

// old is a lease that has just taken its second hold, because the first one's 30 days are about to end: two local holds
// of 3 live on in that.
func old(t *testing.T) (f *leased, l *spendlimit.Lease, a, b *spendlimit.Hold) {
	f = newLeased(t)
	f.limit(forever("100"))
	r := f.request("p1", "10")
	r.TTL = 24 * time.Hour
	l = f.mustLease(r)
	for f.clock.Now().Before(noon.Add(30*24*time.Hour - 16*time.Hour)) {
		f.mustSync(l)
		f.clock.Advance(8 * time.Hour)
	}
	long := func(key string) *spendlimit.Hold {
		r := req(key, "3")
		r.TTL = 24 * time.Hour
		h, err := l.Reserve(f.ctx, r)
		f.ok(err)
		return h
	}
	a, b = long("a"), long("b")
	if state := f.mustSync(l); state.Hold != "p1~2" || state.Old != 1 {
		t.Fatalf("state %+v", state)
	}
	return f, l, a, b
}

// A tranche that was replaced grants nothing more: neither what was free in it nor what its holds give back (R78).
func TestR78_ReplacedHoldGrantsNothing(t *testing.T) {
	t.Parallel()
	f, l, a, b := old(t)
	for i := range 2 {
		f.wantBalance("acme", "all", []string{"S 0, H 16, A 84", "S 1, H 13, A 86"}[i])
		if i == 0 {
			_, err := b.Settle(f.ctx, total("1"))
			f.ok(err)
		}
		_, err := a.Grow(f.ctx, spendlimit.Growth{ID: keyN("g", i), By: usd("1")})
		if denied := f.denial(err); denied.Reason != spendlimit.ReasonLease {
			t.Errorf("grow: %v", err)
		}
		_, err = l.Reserve(f.ctx, spendlimit.Request{Key: keyN("child", i), Parent: "a", Amount: usd("1")})
		if denied := f.denial(err); denied.Reason != spendlimit.ReasonLease {
			t.Errorf("child: %v", err)
		}
		f.mustSync(l)
	}
	f.spend(l, "c", "1", "1")
	_, err := a.Settle(f.ctx, total("3"))
	f.ok(err)
	f.mustSync(l)
	f.wantHold("p1", "settled, granted 10, recorded 4")
	f.wantBalance("acme", "all", "S 5, H 9, A 86")
}

// The next hold is taken while the old one lives yet, so that a lease which is renewed in time never refuses for its age.
func TestR30_NextHoldBeforeTheLastOneEnds(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	r := f.request("p1", "10")
	r.TTL = 24 * time.Hour
	l := f.mustLease(r)
	var state spendlimit.LeaseState
	for i := range 35 * 3 {
		f.clock.Advance(8*time.Hour - time.Nanosecond)
		f.spend(l, keyN("k", i), "0.5", "0.5")
		f.clock.Advance(time.Nanosecond)
		state = f.mustSync(l)
	}
	if state.Hold != "p1~2" || state.Old != 0 {
		t.Errorf("state %+v", state)
	}
	f.wantHold("p1", "settled, granted 10, recorded 44")
	f.wantBalance("acme", "all", "S 52.5, H 1.5, A 46")
}

// What a top-up without an answer has taken is asked for before anything is given back: else its late answer would make
// usable what is being given back (R79).
func TestR79_TopUpWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	l := f.mustLease(f.roomy("p1", "10"))
	var holds []*spendlimit.Hold
	for i := range 5 {
		holds = append(holds, f.mustHold(l, keyN("a", i), "10"))
	}
	f.store.fail(faultAfter)
	_, err := l.Reserve(f.ctx, req("b", "10"))
	f.wantErr(err, spendlimit.ErrUncertain)
	for _, h := range holds {
		_, err := h.Release(f.ctx)
		f.ok(err)
	}
	for _, plan := range [][]fault{{faultBefore, faultLost}, {noFault, faultBefore}} {
		f.store.fail(plan...)
		if _, err = l.Sync(f.ctx); err == nil {
			t.Errorf("a Sync without an error")
		}
	}
	f.store.fail(faultBefore) // of a top-up
	var out spendlimit.Amount
	for i := range 9 {
		if h, err := l.Reserve(f.ctx, req(keyN("c", i), "10")); err == nil {
			out += h.Granted
		}
	}
	f.store.fail()
	f.mustSync(l)
	if b := f.balance("acme", "all"); b.Held < out || out < usd("50") {
		t.Errorf("%s are out, the ledger says %s", dollars(out), showBalance(b))
	}
}

// A lease that was taken without an answer, long ago, lives no longer than its hold (R78).
func TestR78_TermOfAnOldAnswer(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.elapsed = &clock{now: noon}
	f.limit(forever("100"))
	f.store.fail(faultAfter)
	_, err := f.Lease(f.ctx, f.request("p1", "40"))
	f.wantErr(err, spendlimit.ErrUncertain)
	f.clock.Advance(200 * time.Second)
	l := f.mustLease(f.request("p1", "40"))
	f.elapsed.Advance(95*time.Second - 1)
	f.mustHold(l, "a", "1")
	f.elapsed.Advance(1)
	f.wantRefused(l, "b", "1", spendlimit.ReasonLease)
}

// The term is the lease's own TTL, though somebody has given its hold more time (R78).
func TestR78_TermOfAnExtendedHold(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	l := f.mustLease(f.request("p1", "40"))
	_, err := f.Extend(f.ctx, spendlimit.Extension{Hold: "p1", TTL: time.Hour})
	f.ok(err)
	f.mustSync(l)
	f.clock.Advance(295*time.Second - 1)
	f.mustHold(l, "a", "1")
	f.clock.Advance(1)
	f.wantRefused(l, "b", "1", spendlimit.ReasonLease)
}

// A lease that has lapsed reports what its holds have cost, though it had more free than it keeps (R81).
func TestR81_LapsedWithTooMuchFree(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	l := f.mustLease(f.roomy("p1", "10"))
	var holds []*spendlimit.Hold
	for i := range 5 {
		holds = append(holds, f.mustHold(l, keyN("a", i), "10"))
	}
	for _, h := range holds {
		_, err := h.Settle(f.ctx, total("1"))
		f.ok(err)
	}
	f.clock.Advance(301 * time.Second)
	f.mustSync(l)
	f.wantHold("p1", "settled, granted 10, recorded 5")
	f.wantBalance("acme", "all", "S 5, H 10, A 85")
}

// A Reserve that finds its tranche replaced and settled goes to the next one: the lease is not closed (R78).
func TestR78_ReserveWhileTheHoldIsSettled(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(daily("10"))
	var newest *hooked
	r := f.request("p1", "4")
	r.Local = func() spendlimit.Store {
		newest = &hooked{Store: f.local()}
		return newest
	}
	l := f.mustLease(r)
	newest.before(func() {
		f.clock.Set(d2)
		if state := f.mustSync(l); state.Hold != "p1~2" || state.Old != 0 {
			t.Errorf("state %+v", state)
		}
	})
	f.spend(l, "a", "1", "1")
	newest.before(func() { f.ok(l.Close(f.ctx)) })
	_, err := l.Reserve(f.ctx, req("b", "1"))
	f.wantErr(err, spendlimit.ErrClosed)
}

// A Sync with most of the room used records, extends and takes more in one step (R79, R82).
func TestR79_MoreInTheSameStep(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	l := f.mustLease(f.request("p1", "10"))
	f.spend(l, "a", "5", "4")
	f.mustHold(l, "b", "4")
	steps := f.store.writes()
	f.clock.Advance(time.Second)
	f.store.fail(faultAfter)
	_, err := l.Sync(f.ctx)
	f.wantErr(err, spendlimit.ErrUncertain)
	if n := f.store.writes() - steps; n != 1 {
		t.Errorf("%d steps", n)
	}
	f.wantHold("p1", "dispatched, granted 10, own 16, recorded 4")
	if state := f.mustSync(l); state.Free != usd("12") {
		t.Errorf("state %+v", state)
	}
	f.wantBalance("acme", "all", "S 4, H 16, A 80")
}

// Run takes more when 80 % of the room is used, though most of what was granted came back (R79).
func TestR79_RunAtFourFifths(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newLeased(t)
		f.limit(forever("1000"))
		r := f.request("p1", "10")
		r.Clock = nil
		l := f.mustLease(r)
		done := make(chan error)
		go func() { done <- l.Run(t.Context()) }()
		for i := range 16 {
			synctest.Wait()
			f.wantHold("p1", "dispatched, granted 10, own 10")
			f.spend(l, keyN("k", i), "1", "0.5")
		}
		f.mustHold(l, "last", "1") // 2 of 10 were free
		synctest.Wait()
		f.wantHold("p1", "dispatched, granted 10, own 12, recorded 8")
		f.ok(l.Close(f.ctx))
		f.ok(<-done)
	})
}

// What refuses new work refuses a prefetch, and does not keep a Sync from recording (R53, R79).
func TestR79_PrefetchRefused(t *testing.T) {
	t.Parallel()
	f := newLeased(t)
	f.limit(forever("100"))
	l := f.mustLease(f.request("p1", "10"))
	f.spend(l, "a", "9", "9")
	f.mustReserve(req("unpriced", "1"))
	f.mustSettle("unpriced", spendlimit.Unknown("no price"))
	f.mustSync(l)
	f.wantHold("p1", "dispatched, granted 10, own 1, recorded 9")
	f.wantRefused(l, "b", "1", spendlimit.ReasonUnpriced)
}
