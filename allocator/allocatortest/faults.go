package allocatortest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
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
	quiet  bool
}

func forgetRevs(rows *allocator.Rows) {
	rows.Pool.Rev, rows.Pool.PurgedRev = 0, 0
	for _, r := range rows.Slots {
		r.Rev = 0
	}
	for _, r := range rows.Leases {
		r.Rev = 0
	}
	for _, r := range rows.Tickets {
		r.Rev = 0
	}
	for _, r := range rows.Groups {
		r.Rev = 0
	}
}

// traced plays a script whose i-th operation has the plan that pick gives it. The caller is one who calls again with the same
// arguments whenever something failed on the way, until nothing does.
func traced(t testing.TB, ops []*op, open Open, blind bool, pick func(i int) Plan) []trace {
	t.Helper()
	e := newEnv(t, open)
	faulty := NewFaulty(e.store, nil)
	s := newSession(t, poolName, faulty, e.store, e.clock)
	s.blind = blind
	s.begin()
	var out []trace
	for i, o := range ops {
		if o.clock != nil {
			o.clock(e.clock)
			continue
		}
		begin := faulty.Calls()
		made := o.call(s)
		text, err := healed(faulty, begin, pick(i), made)
		x := trace{answer: o.text + " -> " + forgetFirst(answer(text, err)), calls: faulty.Calls() - begin, quiet: o.quiet}
		if i%20 == 0 || i == len(ops)-1 {
			rows := e.rows(e.store, poolName)
			forgetRevs(&rows)
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
	defer faulty.SetPlan(nil)
	for try := range most {
		failed := false
		faulty.SetPlan(func(call int) Fault {
			if plan == nil || try == most-1 {
				return Fault{}
			}
			f := plan(call - begin)
			failed = failed || f.Kind != 0
			return f
		})
		if text, err = made(); !failed {
			break
		}
	}
	return text, err
}

// CheckFaults lets every kind of fault happen at every call of a long list of operations, and random ones in random lists, and
// fails unless whoever calls again gets the same answer and leaves the same rows as if nothing had happened: one lease, one epoch.
func CheckFaults(t *testing.T, open Open) {
	t.Helper()
	ops := tourOfWrites()
	want := traced(t, ops, open, false, noPlan)
	most := 0 // calls of an operation that writes; a look makes no more than twice as many
	for _, w := range want {
		if !w.quiet {
			most = max(most, w.calls)
		}
	}
	for kind := FaultBefore; kind <= FaultTwice; kind++ {
		for call := 1; call <= most; call++ {
			if call > 2 && kind > FaultAfter { // few operations make so many calls
				break
			}
			first, second := Fault{Kind: kind, At: call, Seed: uint64(call)}, Fault{Kind: kind, At: call + most, Seed: uint64(call)}
			t.Run(first.String(), func(t *testing.T) {
				t.Parallel()
				sameTraces(t, want, traced(t, ops, open, false, func(int) Plan { return PlanOf(first, second) }))
			})
		}
	}
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			// Without sight of other processes: else those that are gone go in another order, and others get what they had.
			ops := randomScript(1000+seed, 100)
			want := traced(t, ops, open, true, noPlan)
			sameTraces(t, want, traced(t, ops, open, true, func(i int) Plan { return PlanBySeed(1000*seed+uint64(i), 3) }))
		})
	}
}

// tourOfWrites is the tour with one look, since looks take longer than all else.
func tourOfWrites() []*op {
	last := opLook(1)
	ops := slices.DeleteFunc(tour(), func(o *op) bool { return o.quiet && strings.HasSuffix(o.text, "looks") })
	return append(ops, last)
}

func noPlan(int) Plan { return nil }

func sameTraces(t *testing.T, want, got []trace) {
	t.Helper()
	for i, w := range want {
		if d := cmp.Diff(w.answer, got[i].answer); d != "" {
			t.Fatalf("answer %d (-want +got):\n%s", i, d)
		}
		if reflect.DeepEqual(w.rows, got[i].rows) { // much faster
			continue
		}
		if d := cmp.Diff(w.rows, got[i].rows, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("rows after %d, %s (-want +got):\n%s", i, w.answer, d)
		}
	}
}
