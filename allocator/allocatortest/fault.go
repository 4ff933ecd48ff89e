package allocatortest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/stint-go/stint/allocator"
)

// Fault is one failure of a store: of its At-th call, steps and pages counted together from 1. Its text form, such as
// "after@7" or "unknown:42@7", is all that is needed to see the failure again.
type Fault struct {
	Kind FaultKind
	At   int
	Seed uint64 // decides a FaultUnknown
}

// FaultKind says what becomes of the call that fails.
type FaultKind uint8

// The kinds of faults. A page is never applied, so each of them but FaultTwice fails it with ErrUnavailable.
const (
	FaultBefore  FaultKind = iota + 1 // nothing is applied: ErrUnavailable
	FaultAfter                        // the step is applied, and its answer is lost: ErrUncertain
	FaultUnknown                      // either, by the seed, and nobody knows: ErrUncertain
	FaultCancel                       // the step's context ends while it runs; the store says what it made of that
	FaultTwice                        // the step is made, given up and made again, as after a deadlock: no error
)

var faultNames = [...]string{FaultBefore: "before", FaultAfter: "after", FaultUnknown: "unknown", FaultCancel: "cancel", FaultTwice: "twice"}

// String returns the fault's text form.
func (f Fault) String() string {
	name := fmt.Sprintf("fault(%d)", f.Kind)
	if f.Kind >= FaultBefore && f.Kind <= FaultTwice {
		name = faultNames[f.Kind]
	}
	if f.Seed != 0 {
		name += ":" + strconv.FormatUint(f.Seed, 10)
	}
	return name + "@" + strconv.Itoa(f.At)
}

// ParseFault reads what String returns.
func ParseFault(text string) (Fault, error) {
	what, at, ok := strings.Cut(text, "@")
	name, seed, seeded := strings.Cut(what, ":")
	f := Fault{Kind: FaultBefore}
	for f.Kind <= FaultTwice && faultNames[f.Kind] != name {
		f.Kind++
	}
	var errs [2]error
	f.At, errs[0] = strconv.Atoi(at)
	if seeded {
		f.Seed, errs[1] = strconv.ParseUint(seed, 10, 64)
	}
	if !ok || f.Kind > FaultTwice || f.At < 1 || errors.Join(errs[:]...) != nil {
		return Fault{}, fmt.Errorf("fault %q, want such as \"after@7\"", text)
	}
	return f, nil
}

// applied tells whether a step with this fault is made.
func (f Fault) applied() bool {
	return f.Kind == FaultAfter || f.Kind == FaultUnknown && rand.New(rand.NewPCG(f.Seed, uint64(f.At))).IntN(2) == 1
}

func (f Fault) err(phase error) error { return fmt.Errorf("%w: injected: %s", phase, f) }

// Plan says which calls fail. It is asked for each call, by its number from 1; the zero Fault is none.
type Plan func(call int) Fault

// PlanOf is a plan of given faults.
func PlanOf(faults ...Fault) Plan {
	return func(call int) Fault {
		for _, f := range faults {
			if f.At == call {
				return f
			}
		}
		return Fault{}
	}
}

// PlanBySeed is a plan in which about one call of so many fails, each in a way of its own.
func PlanBySeed(seed uint64, oneOf int) Plan {
	return func(call int) Fault {
		d := rand.New(rand.NewPCG(seed, uint64(call)))
		if d.IntN(oneOf) > 0 {
			return Fault{}
		}
		return Fault{Kind: FaultBefore + FaultKind(d.IntN(int(FaultTwice))), At: call, Seed: 1 + d.Uint64N(1000)}
	}
}

// Faulty is a store that fails as it is told, and else does what the store behind it does. Safe for concurrent use.
type Faulty struct {
	store allocator.Store
	mu    sync.Mutex
	calls int
	plan  Plan
}

// NewFaulty returns a store that fails by a plan; nil is none.
func NewFaulty(s allocator.Store, plan Plan) *Faulty { return &Faulty{store: s, plan: plan} }

// SetPlan changes the plan.
func (f *Faulty) SetPlan(plan Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = plan
}

// Calls returns how many calls there were.
func (f *Faulty) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// next counts a call, and returns its fault.
func (f *Faulty) next() Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.plan == nil {
		return Fault{}
	}
	return f.plan(f.calls)
}

// Step implements allocator.Store.
func (f *Faulty) Step(ctx context.Context, n allocator.Need, step func(clock int64, s *allocator.Set) error) error {
	switch fault := f.next(); fault.Kind {
	case FaultBefore:
		return fault.err(allocator.ErrUnavailable)
	case FaultAfter, FaultUnknown:
		lost := fault.err(allocator.ErrUncertain)
		if fault.applied() {
			lost = errors.Join(f.store.Step(ctx, n, step), lost)
		}
		return lost
	case FaultCancel:
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return f.store.Step(ctx, n, func(clock int64, s *allocator.Set) error {
			defer cancel()
			return step(clock, s)
		})
	case FaultTwice:
		return f.twice(ctx, n, step)
	}
	return f.store.Step(ctx, n, step)
}

var errGivenUp = errors.New("given up")

func (f *Faulty) twice(ctx context.Context, n allocator.Need, step stepFunc) error {
	err := f.store.Step(ctx, n, func(clock int64, s *allocator.Set) error {
		if err := step(clock, s); err != nil {
			return err
		}
		return errGivenUp
	})
	if !errors.Is(err, errGivenUp) {
		return err
	}
	return f.store.Step(ctx, n, step)
}

// Page implements allocator.Store.
func (f *Faulty) Page(ctx context.Context, q allocator.Query) (allocator.Rows, error) {
	if fault := f.next(); fault.Kind != 0 && fault.Kind != FaultTwice {
		return allocator.Rows{}, fault.err(allocator.ErrUnavailable)
	}
	return f.store.Page(ctx, q)
}
