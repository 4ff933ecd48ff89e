package spendlimittest

import (
	"context"

	"github.com/stint-go/stint/internal/faulty"
	"github.com/stint-go/stint/spendlimit"
)

// Fault is one failure of a store: of its At-th call, steps and pages counted together from 1. Its text form, such as
// "after@7" or "unknown:42@7", is all that is needed to see the failure again.
type Fault = faulty.Fault

// FaultKind says what becomes of the call that fails.
type FaultKind = faulty.Kind

// The kinds of faults. A page is never applied, so each of them but FaultTwice fails it with ErrUnavailable.
const (
	FaultBefore  = faulty.Before  // nothing is applied: ErrUnavailable
	FaultAfter   = faulty.After   // the step is applied, and its answer is lost: ErrUncertain
	FaultUnknown = faulty.Unknown // either, by the seed, and nobody knows: ErrUncertain
	FaultCancel  = faulty.Cancel  // the step's context ends while it runs; the store says what it made of that
	FaultTwice   = faulty.Twice   // the step is made, given up and made again, as after a deadlock: no error
)

// ParseFault reads the text form of a Fault.
func ParseFault(text string) (Fault, error) { return faulty.Parse(text) }

// Plan says which calls fail. It is asked for each call, by its number from 1; the zero Fault is none.
type Plan = faulty.Plan

// PlanOf is a plan of given faults.
func PlanOf(faults ...Fault) Plan { return faulty.PlanOf(faults...) }

// PlanBySeed is a plan in which about one call of so many fails, each in a way of its own.
func PlanBySeed(seed uint64, oneOf int) Plan { return faulty.PlanBySeed(seed, oneOf) }

// Faulty is a store that fails by a plan, and else does what the store behind it does. Safe for concurrent use.
type Faulty struct {
	faulty.Injector
	store spendlimit.Store
}

// NewFaulty returns a store that fails by a plan; nil is none.
func NewFaulty(s spendlimit.Store, plan Plan) *Faulty {
	f := &Faulty{store: s}
	f.SetPlan(plan)
	return f
}

// Step implements spendlimit.Store.
func (f *Faulty) Step(ctx context.Context, n spendlimit.Need, step func(now int64, w *spendlimit.Work) error) error {
	return faulty.Step(ctx, &f.Injector, f.store.Step, n, step)
}

// Read implements spendlimit.Store.
func (f *Faulty) Read(ctx context.Context, q spendlimit.Query) (spendlimit.Page, error) {
	if err := faulty.Page(&f.Injector); err != nil {
		return spendlimit.Page{}, err
	}
	return f.store.Read(ctx, q)
}
