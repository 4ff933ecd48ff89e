package spendlimittest

import (
	"errors"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stint-go/stint/spendlimit"
)

// trace is what can be seen of one op: its answer, every now and then the rows after it, and how many calls it made on the
// store.
type trace struct {
	answer, rows string
	calls        int
}

// again matches what an answer to the second asking says otherwise: that it is one, and for lack of an id, what a reserve
// has crossed, at which revision an extend came, and how many holds a sweep has ended.
var again = regexp.MustCompile(`Replayed:(true|false)|replayed=(true|false) crossed=.* |Revision:\d+}$|^\d+$`)

// traced plays a script whose i-th op has the fault that pick gives it. The caller is one who calls again with the same id
// when the answer is "not applied" or "maybe applied".
func traced(t *testing.T, sc *script, open Open, pick func(i int) Fault) []trace {
	t.Helper()
	clock := newClock()
	store := open(t, clock.read).Store
	faulty := NewFaulty(store, nil)
	run, err := newSession(faulty, sc.cfg, clock)
	if err != nil {
		t.Fatal(err)
	}
	var out []trace
	for i, o := range sc.ops {
		before := faulty.Calls()
		fault := pick(i)
		if fault.Kind != 0 {
			fault.At += before
			faulty.SetPlan(PlanOf(fault))
		}
		v, err := o.run(t.Context(), run)
		if fault.Kind != 0 && (errors.Is(err, spendlimit.ErrUnavailable) || errors.Is(err, spendlimit.ErrUncertain)) {
			v, err = o.run(t.Context(), run)
		}
		rows := ""
		if i%25 == 0 || i == len(sc.ops)-1 { // writing all down takes longer than anything else here
			var dumpErr error
			if rows, dumpErr = Dump(t.Context(), store, sc.cfg.Name, suiteAccounts...); dumpErr != nil {
				t.Fatal(dumpErr)
			}
		}
		out = append(out, trace{o.text + " -> " + again.ReplaceAllString(answer(v, err), ""), rows, faulty.Calls() - before})
	}
	return out
}

// CheckFaults lets every kind of fault happen at every call of a long list of operations, and fails unless whoever calls
// again gets the same answer and leaves the same rows as if nothing had happened. A run that has healed goes on like one
// without a fault, so it can have the next.
func CheckFaults(t *testing.T, open Open) {
	t.Helper()
	want := traced(t, tour(), open, func(int) Fault { return Fault{} })
	most := 0
	for _, w := range want {
		most = max(most, w.calls)
	}
	for kind := FaultBefore; kind <= FaultTwice; kind++ {
		for call := 1; call <= most; call++ {
			heals(t, open, want, Fault{Kind: kind, At: call, Seed: uint64(call)})
		}
	}
}

// heals fails the At-th call of every op that has so many.
func heals(t *testing.T, open Open, want []trace, fault Fault) {
	t.Helper()
	got := traced(t, tour(), open, func(i int) Fault {
		if want[i].calls < fault.At {
			return Fault{}
		}
		return fault
	})
	for i, w := range want {
		if d := cmp.Diff([]string{w.answer, w.rows}, []string{got[i].answer, got[i].rows}); d != "" {
			t.Fatalf("%v of op %d (-want +got):\n%s", fault, i, d)
		}
	}
}
