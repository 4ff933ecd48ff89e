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
