package spendlimittest_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

func TestLinearizableOnMemory(t *testing.T) {
	t.Parallel()
	spendlimittest.CheckLinearizable(t, onMemory)
}

func TestLinearizableOnStrict(t *testing.T) {
	t.Parallel()
	spendlimittest.CheckLinearizable(t, onStrict)
}

// A checker that is never wrong is right only if it can say no.
func TestHistoryOfABrokenStore(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(spendlimit.Store) spendlimit.Store{
		"lost writes": func(s spendlimit.Store) spendlimit.Store { return &lostWrites{Store: s} },
		"stale reads": func(s spendlimit.Store) spendlimit.Store { return &staleReads{Store: s, seen: map[string][]counters{}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, err := spendlimittest.RecordHistory(t, func(t testing.TB, clock func() time.Time) spendlimittest.Handle {
				return spendlimittest.Handle{Store: broken(spendlimittest.NewStrict(clock))}
			}, 1)
			if err != nil {
				t.Fatal(err)
			}
			if h.Linearizable() {
				t.Errorf("nobody saw that the store is broken:\n%s", h)
			}
		})
	}
}

// lostWrites overwrites what others wrote meanwhile, as without a lock: now and then a step that was answered is gone.
type lostWrites struct {
	spendlimit.Store
	calls atomic.Int64
}

func (b *lostWrites) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	const every = 10
	if b.calls.Add(1)%every == 0 {
		n.ReadOnly = true
	}
	return b.Store.Step(ctx, n, f)
}

// staleReads answers reads from what was true some reads ago, as a replica would.
type staleReads struct {
	spendlimit.Store
	mu   sync.Mutex
	seen map[string][]counters // by account
}

type counters struct{ spent, held spendlimit.Amount }

func (b *staleReads) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	const lag = 3
	if !n.ReadOnly || len(n.Accounts) != 1 {
		return b.Store.Step(ctx, n, f)
	}
	return b.Store.Step(ctx, n, func(now int64, w *spendlimit.Work) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, l := range w.Account(n.Accounts[0]).Limits {
			for _, p := range l.Periods {
				seen := append(b.seen[n.Accounts[0]], counters{p.Spent, p.Held})
				b.seen[n.Accounts[0]] = seen
				old := seen[max(0, len(seen)-1-lag)]
				p.Spent, p.Held = old.spent, old.held
			}
		}
		return f(now, w)
	})
}
