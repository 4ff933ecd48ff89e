// Package faulty makes stores fail as they are told, for the test kits of the packages that have stores.
package faulty

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// Fault is one failure of a store: of its At-th call, steps and pages counted together from 1. Its text form, such as
// "after@7" or "unknown:42@7", is all that is needed to see the failure again.
type Fault struct {
	Kind Kind
	At   int
	Seed uint64 // decides an Unknown
}

// Kind says what becomes of the call that fails.
type Kind uint8

// The kinds of faults. A page is never applied, so each of them but Twice fails it with ErrUnavailable.
const (
	Before  Kind = iota + 1 // nothing is applied: ErrUnavailable
	After                   // the step is applied, and its answer is lost: ErrUncertain
	Unknown                 // either, by the seed, and nobody knows: ErrUncertain
	Cancel                  // the step's context ends while it runs; the store says what it made of that
	Twice                   // the step is made, given up and made again, as after a deadlock: no error
)

var names = [...]string{Before: "before", After: "after", Unknown: "unknown", Cancel: "cancel", Twice: "twice"}

// String returns the fault's text form.
func (f Fault) String() string {
	name := fmt.Sprintf("fault(%d)", f.Kind)
	if f.Kind >= Before && f.Kind <= Twice {
		name = names[f.Kind]
	}
	if f.Seed != 0 {
		name += ":" + strconv.FormatUint(f.Seed, 10)
	}
	return name + "@" + strconv.Itoa(f.At)
}

// Parse reads what String returns.
func Parse(text string) (Fault, error) {
	what, at, ok := strings.Cut(text, "@")
	name, seed, seeded := strings.Cut(what, ":")
	f := Fault{Kind: Before}
	for f.Kind <= Twice && names[f.Kind] != name {
		f.Kind++
	}
	var errs [2]error
	f.At, errs[0] = strconv.Atoi(at)
	if seeded {
		f.Seed, errs[1] = strconv.ParseUint(seed, 10, 64)
	}
	if !ok || f.Kind > Twice || f.At < 1 || errors.Join(errs[:]...) != nil {
		return Fault{}, fmt.Errorf("fault %q, want such as \"after@7\"", text)
	}
	return f, nil
}

// Applied tells whether a step with this fault is made.
func (f Fault) Applied() bool {
	return f.Kind == After || f.Kind == Unknown && rand.New(rand.NewPCG(f.Seed, uint64(f.At))).IntN(2) == 1
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
		return Fault{Kind: Before + Kind(d.IntN(int(Twice))), At: call, Seed: 1 + d.Uint64N(1000)}
	}
}
