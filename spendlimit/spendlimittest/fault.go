package spendlimittest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/stint-go/stint/spendlimit"
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

// The kinds of faults. A page is never applied, so each of them fails it with ErrUnavailable.
const (
	FaultBefore  FaultKind = iota + 1 // nothing is applied: ErrUnavailable
	FaultAfter                        // the step is applied, and its answer is lost: ErrUncertain
	FaultUnknown                      // either, by the seed, and nobody knows: ErrUncertain
	FaultCancel                       // the step's context ends while it runs; the store says what it made of that
)

var faultNames = [...]string{FaultBefore: "before", FaultAfter: "after", FaultUnknown: "unknown", FaultCancel: "cancel"}

// String returns the fault's text form.
func (f Fault) String() string {
	name := fmt.Sprintf("fault(%d)", f.Kind)
	if f.Kind >= FaultBefore && f.Kind <= FaultCancel {
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
	for f.Kind <= FaultCancel && faultNames[f.Kind] != name {
		f.Kind++
	}
	var errs [2]error
	f.At, errs[0] = strconv.Atoi(at)
	if seeded {
		f.Seed, errs[1] = strconv.ParseUint(seed, 10, 64)
	}
	if !ok || f.Kind > FaultCancel || f.At < 1 || errors.Join(errs[:]...) != nil {
		return Fault{}, fmt.Errorf("fault %q, want such as \"after@7\"", text)
	}
	return f, nil
}

// Faulty is a store that fails as it is told, and else does what the store behind it does. Safe for concurrent use.
type Faulty struct {
	store  spendlimit.Store
	mu     sync.Mutex
	calls  int
	faults []Fault
}

// NewFaulty returns a store that fails with these faults, each once.
func NewFaulty(s spendlimit.Store, faults ...Fault) *Faulty { return &Faulty{store: s, faults: faults} }

// Add makes the store fail with these faults too.
func (f *Faulty) Add(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, faults...)
}

// Calls returns how many calls there were.
func (f *Faulty) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// next counts a call, and returns its fault. The zero fault is none.
func (f *Faulty) next() Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	for _, fault := range f.faults {
		if fault.At == f.calls {
			return fault
		}
	}
	return Fault{}
}

func (f Fault) err(phase error) error { return fmt.Errorf("%w: injected: %s", phase, f) }

// Step implements spendlimit.Store.
func (f *Faulty) Step(ctx context.Context, n spendlimit.Need, step func(now int64, w *spendlimit.Work) error) error {
	fault := f.next()
	switch fault.Kind {
	case FaultBefore:
		return fault.err(spendlimit.ErrUnavailable)
	case FaultAfter:
		return errors.Join(f.store.Step(ctx, n, step), fault.err(spendlimit.ErrUncertain))
	case FaultUnknown:
		if rand.New(rand.NewPCG(fault.Seed, uint64(fault.At))).IntN(2) == 0 {
			return fault.err(spendlimit.ErrUncertain)
		}
		return errors.Join(f.store.Step(ctx, n, step), fault.err(spendlimit.ErrUncertain))
	case FaultCancel:
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return f.store.Step(ctx, n, func(now int64, w *spendlimit.Work) error {
			defer cancel()
			return step(now, w)
		})
	}
	return f.store.Step(ctx, n, step)
}

// Read implements spendlimit.Store.
func (f *Faulty) Read(ctx context.Context, q spendlimit.Query) (spendlimit.Page, error) {
	if fault := f.next(); fault.Kind != 0 {
		return spendlimit.Page{}, fault.err(spendlimit.ErrUnavailable)
	}
	return f.store.Read(ctx, q)
}
