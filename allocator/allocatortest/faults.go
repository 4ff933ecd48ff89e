package allocatortest

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stint-go/stint/allocator"
)

// trace is what can be seen of one operation: its answer, every now and then the rows after it, and how many calls it made on
// the store.
type trace struct {
	answer string
	rows   *allocator.Rows
	calls  int
}

// again matches what an answer to the second asking says otherwise: that it is one, what was there to cancel and to sweep, and how
// much was seen in the queue.
var again = regexp.MustCompile(`existing=(true|false)|already=(true|false)|swept .*|cancelled .*`)

// traced plays a script whose i-th operation has the plan that pick gives it. The caller is one who calls again with the same
// arguments whenever something failed on the way, until nothing does.
func traced(t testing.TB, ops []*op, open Open, pick func(i int) Plan) []trace {
	t.Helper()
	e := newEnv(t, open)
	faulty := NewFaulty(e.store, nil)
	s := newSession(t, poolName, faulty, e.store, e.clock)
	var out []trace
	for i, o := range ops {
		if o.clock != nil {
			o.clock(e.clock)
			continue
		}
		begin := faulty.Calls()
		made := o.call(s)
		text, err := healed(faulty, begin, pick(i), made)
		x := trace{answer: o.text + " -> " + again.ReplaceAllString(answer(text, err), ""), calls: faulty.Calls() - begin}
		if i%20 == 0 || i == len(ops)-1 {
			rows := e.rows(e.store, poolName)
			x.rows = &rows
		}
		out = append(out, x)
	}
	e.clean(s.eye)
	return out
}

// healed makes a call whose store calls, counted from its own first one, fail by a plan, and makes it again while some did.
func healed(faulty *Faulty, begin int, plan Plan, made call) (text string, err error) {
	const most = 10
	for range most {
		failed := false
		if plan != nil {
			faulty.SetPlan(func(call int) Fault {
				f := plan(call - begin)
				failed = failed || f.Kind != 0
				return f
			})
		}
		if text, err = made(); !failed {
			break
		}
	}
	faulty.SetPlan(nil)
	if plan != nil {
		return made() // whatever came of it, the same call is answered truly
	}
	return text, err
}

// CheckFaults lets every kind of fault happen at every call of a long list of operations, and random ones in random lists, and
// fails unless whoever calls again gets the same answer and leaves the same rows as if nothing had happened: one lease, one epoch.
func CheckFaults(t *testing.T, open Open) {
	t.Helper()
	ops := tour()
	want := traced(t, ops, open, func(int) Plan { return nil })
	most := 0
	for _, w := range want {
		most = max(most, w.calls)
	}
	for kind := FaultBefore; kind <= FaultTwice; kind++ {
		for call := 1; call <= most; call++ {
			fault := Fault{Kind: kind, At: call, Seed: uint64(call)}
			sameTraces(t, fault.String(), ops, want, traced(t, ops, open, func(int) Plan { return PlanOf(fault) }))
		}
	}
	for seed := range uint64(4) {
		ops := randomScript(1000+seed, 100)
		want := traced(t, ops, open, func(int) Plan { return nil })
		got := traced(t, ops, open, func(i int) Plan { return PlanBySeed(1000*seed+uint64(i), 3) })
		sameTraces(t, "faults by seed", ops, want, got)
	}
}

func sameTraces(t *testing.T, what string, ops []*op, want, got []trace) {
	t.Helper()
	for i, w := range want {
		if d := cmp.Diff(w.answer, got[i].answer); d != "" {
			t.Fatalf("%s, answer %d (-want +got):\n%s", what, i, d)
		}
		if d := cmp.Diff(w.rows, got[i].rows, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%s, rows after %d, of %d operations (-want +got):\n%s", what, i, len(ops), d)
		}
	}
}
