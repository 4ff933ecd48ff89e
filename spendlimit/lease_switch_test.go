package spendlimit_test

import (
	"context"
	"sync"
	"testing"
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
