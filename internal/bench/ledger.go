package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// What a pair moves.
const (
	amount = 250_000_000 // $0.25
	cost   = 190_000_000
	Limit  = spendlimit.MaxAmount / 4 // of each day
)

// Ledger is a Subject.
type Ledger struct{ *spendlimit.Ledger }

// NewLedger returns a ledger on a store, with accounts of n day limits each.
func NewLedger(ctx context.Context, store spendlimit.Store, accounts []string, n int) (Ledger, error) {
	led, err := spendlimit.New(store, spendlimit.Config{Unit: spendlimit.USD})
	if err != nil {
		return Ledger{}, err
	}
	l := Ledger{led}
	return l, l.add(ctx, accounts, n)
}

// Add gives more accounts a day limit each.
func (l Ledger) Add(ctx context.Context, accounts ...string) error { return l.add(ctx, accounts, 1) }

func (l Ledger) add(ctx context.Context, accounts []string, n int) error {
	errs := make([]error, len(accounts))
	var done sync.WaitGroup
	for i, account := range accounts {
		done.Go(func() {
			for day := 0; day < n && errs[i] == nil; day++ {
				limit := spendlimit.Limit{Account: account, Name: fmt.Sprintf("day-%d", day), Kind: spendlimit.Day, Amount: Limit}
				_, errs[i] = l.SetLimit(ctx, limit, "")
			}
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

// Pair implements Subject.
func (l Ledger) Pair(ctx context.Context, key string, accounts []string) error {
	return l.pair(ctx, spendlimit.Request{Key: key, Accounts: accounts, Amount: amount})
}

func (l Ledger) pair(ctx context.Context, r spendlimit.Request) error {
	h, err := l.Reserve(ctx, r)
	if err != nil {
		return err
	}
	_, err = h.Settle(ctx, spendlimit.Total(cost))
	return err
}

// Lease is a Subject whose pairs are on one account, inside a lease.
type Lease struct{ *spendlimit.Lease }

// NewLease returns a lease of so many holds at once on an account of led, with local holds in stores that local makes.
func NewLease(ctx context.Context, led Ledger, account string, holds int, local func() spendlimit.Store) (Lease, error) {
	l, err := led.Lease(ctx, spendlimit.LeaseRequest{
		Key: "lease", Accounts: []string{account}, Chunk: amount * spendlimit.Amount(holds), TTL: 24 * time.Hour, Local: local,
	})
	return Lease{l}, err
}

// Pair implements Subject.
func (l Lease) Pair(ctx context.Context, key string, accounts []string) error {
	h, err := l.Reserve(ctx, spendlimit.Request{Key: key, Accounts: accounts, Amount: amount})
	if err != nil {
		return err
	}
	_, err = h.Settle(ctx, spendlimit.Total(cost))
	return err
}

// Hold makes n open holds on an account, many at a time.
func (l Ledger) Hold(ctx context.Context, account string, n int) error {
	errs := make([]error, min(n, 512))
	var done sync.WaitGroup
	for first := range errs {
		done.Go(func() {
			for i := first; i < n && errs[first] == nil; i += len(errs) {
				r := spendlimit.Request{Key: fmt.Sprintf("open/%d", i), Accounts: []string{account}, Amount: 1, TTL: 24 * time.Hour}
				_, errs[first] = l.Reserve(ctx, r)
			}
		})
	}
	done.Wait()
	return errors.Join(errs...)
}

// Wide is a Subject whose pairs are on all of its accounts at once.
type Wide struct {
	Ledger
	Accounts []string
}

// Pair implements Subject.
func (w Wide) Pair(ctx context.Context, key string, _ []string) error {
	return w.pair(ctx, spendlimit.Request{Key: key, Accounts: w.Accounts, Amount: amount})
}

// Child is a Subject whose pairs take their room from a hold.
type Child struct {
	Ledger
	Parent string
}

// Pair implements Subject.
func (c Child) Pair(ctx context.Context, key string, _ []string) error {
	return c.pair(ctx, spendlimit.Request{Key: key, Parent: c.Parent, Amount: amount})
}

// Ask is a Subject that only reserves, whether granted or denied.
type Ask struct {
	Ledger
	Amount spendlimit.Amount
}

// Pair implements Subject with half a pair.
func (a Ask) Pair(ctx context.Context, key string, accounts []string) error {
	_, err := a.Reserve(ctx, spendlimit.Request{Key: key, Accounts: accounts, Amount: a.Amount})
	if errors.Is(err, spendlimit.ErrDenied) {
		return nil
	}
	return err
}
