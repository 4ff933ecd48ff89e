package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/price"
)

// replay is a trace with the ledger that it runs through.
type replay struct {
	cfg      config
	trace    string // name for messages
	calls    []call
	price    price.Price
	rates    string // the price as stored with each hold
	clock    *clock
	ledger   *spendlimit.Ledger
	name     string // of the ledger
	close    func() error
	accounts []string

	mu     sync.Mutex
	denied map[string]int // by period
}

// newReplay reads the input and opens a ledger with one limit per account. The caller closes it.
func newReplay(ctx context.Context, cfg config) (*replay, error) {
	r := &replay{cfg: cfg, clock: new(clock), denied: map[string]int{}}
	var err error
	if r.price, err = loadPrice(cfg.prices, cfg.model); err != nil {
		return nil, err
	}
	r.rates = r.price.Encode()
	if r.trace, r.calls, err = loadTrace(cfg.trace); err != nil {
		return nil, err
	}
	if len(r.calls) > 0 {
		r.clock.advance(r.calls[0].at)
	}
	store, close, err := cfg.store.open(ctx, r.clock)
	if err != nil {
		return nil, err
	}
	r.close, r.name = close, newLedgerName()
	r.ledger, err = spendlimit.New(store, spendlimit.Config{Name: r.name, Unit: spendlimit.USD})
	if err == nil {
		err = r.setLimits(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, close())
	}
	return r, nil
}

func (r *replay) setLimits(ctx context.Context) error {
	for i := range max(1, min(r.cfg.accounts, len(r.calls))) {
		limit := r.cfg.budget
		limit.Account = fmt.Sprintf("account-%d", i+1)
		_, err := r.ledger.SetLimit(ctx, limit, "")
		var invalid *spendlimit.InvalidError
		switch {
		case errors.As(err, &invalid) && invalid.Field == "Zone":
			return fmt.Errorf("-zone: %s", invalid.Reason)
		case err != nil:
			return err
		}
		r.accounts = append(r.accounts, limit.Account)
	}
	return nil
}

// window is how far apart calls that run at the same time may be in the trace. Every time zone of today has its
// midnights on a quarter of an hour, so no call slips into the day after its own.
const window = 15 * time.Minute

// run makes all calls, and step after each. It starts the calls of a window when those of the window before have ended.
func (r *replay) run(ctx context.Context, step func()) error {
	for first := 0; first < len(r.calls); {
		end, start := first, r.calls[first].at.Truncate(window)
		for end < len(r.calls) && r.calls[end].at.Truncate(window).Equal(start) {
			end++
		}
		if err := r.runTogether(ctx, first, end, step); err != nil {
			return err
		}
		first = end
	}
	return nil
}

// runTogether makes the calls from first up to end: the workers take them in order, each one call at a time.
func (r *replay) runTogether(ctx context.Context, first, end int, step func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	next.Store(int64(first))
	var workers sync.WaitGroup
	for range min(r.cfg.workers, end-first) {
		workers.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= end {
					return
				}
				if err := r.call(ctx, i); err != nil {
					cancel(fmt.Errorf("%s:%d: %w", r.trace, r.calls[i].line, err))
				}
				step()
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}

// call is what a service does around each paid call: hold the most that it may cost, say that it leaves, settle what it
// did cost. A denied call is dropped.
func (r *replay) call(ctx context.Context, i int) error {
	c := r.calls[i]
	r.clock.advance(c.at)
	bound, err := r.price.Bound(price.Ask{Prompt: c.prompt, MaxOutput: r.cfg.maxOutput})
	if err != nil {
		return err
	}
	hold, err := r.ledger.Reserve(ctx, spendlimit.Request{
		Key:      fmt.Sprintf("call-%d", i+1),
		Accounts: []string{r.accounts[i%len(r.accounts)]},
		Amount:   bound,
		Free:     bound == 0, // a model may cost nothing
		Price:    r.rates,
		TTL:      2 * window, // of the trace's time
	})
	var denied *spendlimit.DeniedError
	if errors.As(err, &denied) {
		r.drop(denied)
		return nil
	}
	if err != nil {
		return err
	}
	defer hold.Close(ctx) // whatever happens below, the hold ends; after Settle this does nothing

	if err := hold.Dispatch(ctx); err != nil {
		return err // then the call must not be sent
	}
	used := price.Usage{Input: c.prompt, Output: c.output} // here goes the paid call; the trace has its answer

	cost, err := r.price.Cost(used)
	if err != nil {
		return err
	}
	_, err = hold.Settle(ctx, spendlimit.Total(cost))
	return err
}

func (r *replay) drop(denied *spendlimit.DeniedError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.denied[denied.Binding.Period]++
}

// clock is the ledger's time: that of the latest call so far.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(to time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if to.After(c.at) {
		c.at = to
	}
}
