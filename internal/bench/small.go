package bench

import (
	"context"
	"errors"
	"sync"

	"github.com/shopspring/decimal"

	"github.com/stint-go/stint/spendlimit"
)

// Small is spendlimit's core cut down to one account with one limit, over any kind of number: the same sums, and a hold
// and two journal entries kept per pair, but no time, undo, checks of requests or batching. Two of them differ in nothing
// but what a number costs.
type Small[N Number[N]] struct {
	mu           sync.Mutex
	zero         N
	amount, cost N
	period       smallPeriod[N]
	holds        map[string]*smallHold[N]
	journal      []smallEntry[N]
	deltas       [2]smallDelta[N] // of the account, of the period
}

// Number is what Small counts in.
type Number[N any] interface {
	Add(N) N
	Sub(N) N
	Cmp(N) int
}

type smallPeriod[N any] struct{ lim, spent, held, assumed, overrun, heldAll N }

type smallHold[N any] struct {
	granted, own, left, recorded, covered, returned, assumed N
	settled                                                  bool
}

type smallDelta[N any] struct{ spent, held, assumed, overrun N }

type smallEntry[N any] struct {
	seq      int
	ref      string
	postings [2]smallDelta[N]
}

// NewSmallSteps counts in checked int64 steps, as the library does.
func NewSmallSteps() *Small[Steps] {
	return newSmall(Steps(0), amount, cost, Steps(Limit))
}

// NewSmallDecimal counts in decimals.
func NewSmallDecimal() *Small[decimal.Decimal] {
	d := func(n spendlimit.Amount) decimal.Decimal { return spendlimit.USD.Decimal(n) }
	return newSmall(d(0), d(amount), d(cost), d(Limit))
}

func newSmall[N Number[N]](zero, amount, cost, limit N) *Small[N] {
	d := smallDelta[N]{zero, zero, zero, zero}
	return &Small[N]{
		zero: zero, amount: amount, cost: cost,
		period: smallPeriod[N]{limit, zero, zero, zero, zero, zero},
		holds:  map[string]*smallHold[N]{},
		deltas: [2]smallDelta[N]{d, d},
	}
}

// Pair implements Subject.
func (s *Small[N]) Pair(_ context.Context, key string, _ []string) error {
	if err := s.reserve(key); err != nil {
		return err
	}
	return s.settle(key)
}

func (s *Small[N]) reserve(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.period
	grant := s.min(s.amount, p.lim.Sub(p.spent).Sub(p.held))
	if s.holds[key] != nil || grant.Cmp(s.amount) < 0 {
		return spendlimit.ErrDenied
	}
	s.holds[key] = &smallHold[N]{grant, grant, grant, s.zero, s.zero, s.zero, s.zero, false}
	s.post(smallDelta[N]{s.zero, grant, s.zero, s.zero})
	return s.book(key, false)
}

func (s *Small[N]) settle(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holds[key]
	if h == nil || h.settled || s.cost.Cmp(h.recorded) < 0 {
		return spendlimit.ErrNotFound
	}
	cost := s.cost.Sub(h.recorded)
	s.flow(h, cost.Sub(s.min(cost, h.assumed)))
	h.recorded, h.settled = s.cost, true
	own := h.own
	h.own, h.returned = s.zero, h.returned.Add(own)
	back := s.min(h.left, own)
	h.left = h.left.Sub(back)
	s.post(smallDelta[N]{s.zero, s.zero.Sub(back), s.zero, s.zero})
	return s.book(key, true)
}

// flow takes a cost from the hold's room; what it does not cover is spent all the same.
func (s *Small[N]) flow(h *smallHold[N], cost N) {
	take := s.min(cost, h.own)
	h.own, h.covered = h.own.Sub(take), h.covered.Add(take)
	use := s.min(h.left, take)
	h.left = h.left.Sub(use)
	s.post(smallDelta[N]{use.Add(cost.Sub(take)), s.zero.Sub(use), s.zero, s.zero})
}

// post adds to the running sums of the account and of the period.
func (s *Small[N]) post(d smallDelta[N]) {
	for i := range s.deltas {
		sum := &s.deltas[i]
		sum.spent, sum.held, sum.assumed = sum.spent.Add(d.spent), sum.held.Add(d.held), sum.assumed.Add(d.assumed)
	}
}

// book applies the sums to the period and writes the entry.
func (s *Small[N]) book(key string, cost bool) error {
	p, d := &s.period, &s.deltas[1]
	before := s.over()
	p.spent, p.held, p.assumed = p.spent.Add(d.spent), p.held.Add(d.held), p.assumed.Add(d.assumed)
	if p.spent.Cmp(s.zero) < 0 || p.held.Cmp(s.zero) < 0 || p.assumed.Cmp(s.zero) < 0 {
		return errors.New("below zero")
	}
	if cost {
		d.overrun = s.max(s.over().Sub(before))
		p.overrun = p.overrun.Add(d.overrun)
	}
	p.heldAll = p.heldAll.Add(d.held)
	s.journal = append(s.journal, smallEntry[N]{len(s.journal) + 1, key, s.deltas})
	none := smallDelta[N]{s.zero, s.zero, s.zero, s.zero}
	s.deltas = [2]smallDelta[N]{none, none}
	return nil
}

func (s *Small[N]) over() N {
	return s.max(s.period.spent.Add(s.period.held).Sub(s.period.lim))
}

func (s *Small[N]) max(a N) N {
	if a.Cmp(s.zero) < 0 {
		return s.zero
	}
	return a
}

func (s *Small[N]) min(a, b N) N {
	if a.Cmp(b) < 0 {
		return a
	}
	return b
}

// Steps is an Amount as a Number. Its sums are checked; one that does not fit panics.
type Steps spendlimit.Amount

// Add returns s + t.
func (s Steps) Add(t Steps) Steps { return fits(spendlimit.Amount(s).Add(spendlimit.Amount(t))) }

// Sub returns s − t.
func (s Steps) Sub(t Steps) Steps { return fits(spendlimit.Amount(s).Sub(spendlimit.Amount(t))) }

// Cmp is below, at or above 0 as s is below, at or above t.
func (s Steps) Cmp(t Steps) int {
	switch {
	case s < t:
		return -1
	case s > t:
		return 1
	}
	return 0
}

func fits(a spendlimit.Amount, err error) Steps {
	if err != nil {
		panic(err)
	}
	return Steps(a)
}
