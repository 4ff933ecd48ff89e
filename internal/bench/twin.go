package bench

import (
	"context"
	"sync"
)

// Twin is the least that could keep count: numbers in a map behind a mutex, without holds, journal or limits.
type Twin struct {
	mu   sync.Mutex
	used map[string]int64
}

// NewTwin returns a Subject that knows the accounts.
func NewTwin(accounts []string) *Twin {
	t := &Twin{used: map[string]int64{}}
	for _, a := range accounts {
		t.used[a] = 0
	}
	return t
}

// Pair implements Subject with two updates.
func (t *Twin) Pair(_ context.Context, _ string, accounts []string) error {
	t.add(accounts[0], amount)
	t.add(accounts[0], cost-amount)
	return nil
}

func (t *Twin) add(account string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used[account] += n
}
