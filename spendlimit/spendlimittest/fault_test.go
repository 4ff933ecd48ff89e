package spendlimittest

import (
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
)

func openMemory(clock *testClock) spendlimit.Store {
	return memory.New(&memory.Options{Clock: clock.read}).Spend()
}

func openStrict(clock *testClock) spendlimit.Store { return NewStrict(clock.read) }

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
func traced(t *testing.T, sc *script, open func(*testClock) spendlimit.Store, pick func(i int) Fault) []trace {
	t.Helper()
	clock := newClock()
	store := open(clock)
	faulty := NewFaulty(store)
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
			faulty.Add(fault)
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

// At every call of a long list of operations, every kind of fault: whoever calls again gets the same answer and leaves the
// same rows as if nothing had happened. A run that has healed goes on like one without a fault, so it can have the next.
func TestT8_EveryFaultHeals(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testClock) spendlimit.Store{"memory": openMemory, "strict": openStrict} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := traced(t, tour(), open, func(int) Fault { return Fault{} })
			most := 0
			for _, w := range want {
				most = max(most, w.calls)
			}
			for kind := FaultBefore; kind <= FaultCancel; kind++ {
				for call := 1; call <= most; call++ {
					heals(t, open, want, Fault{Kind: kind, At: call, Seed: uint64(call)})
				}
			}
		})
	}
}

// heals fails the At-th call of every op that has so many.
func heals(t *testing.T, open func(*testClock) spendlimit.Store, want []trace, fault Fault) {
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

// T9: a store that fails is not a refusal, and a hold that may not exist is not a hold.
func TestT9_FaultIsNoRefusal(t *testing.T) {
	t.Parallel()
	for kind, want := range map[FaultKind]error{
		FaultBefore: spendlimit.ErrUnavailable, FaultAfter: spendlimit.ErrUncertain, FaultUnknown: spendlimit.ErrUncertain,
	} {
		led, err := spendlimit.New(NewFaulty(openMemory(newClock()), Fault{Kind: kind, At: 1}), spendlimit.Config{Unit: steps})
		if err != nil {
			t.Fatal(err)
		}
		h, err := led.Reserve(t.Context(), ask("k", 1, "a"))
		if h != nil || !errors.Is(err, want) || errors.Is(err, spendlimit.ErrDenied) {
			t.Errorf("kind %d: hold %v, error %v", kind, h, err)
		}
	}
}

func TestFaultText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Fault{
		"before@1":                       {Kind: FaultBefore, At: 1},
		"after@7":                        {Kind: FaultAfter, At: 7},
		"cancel@12":                      {Kind: FaultCancel, At: 12},
		"unknown:18446744073709551615@3": {Kind: FaultUnknown, At: 3, Seed: 1<<64 - 1},
	} {
		got, err := ParseFault(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "after", "after@", "after@0", "after@-1", "later@1", "@1", "unknown:@1", "unknown:x@1"} {
		if f, err := ParseFault(text); err == nil {
			t.Errorf("%q is read as %+v", text, f)
		}
	}
}

// The seed decides an unknown outcome: the same one each time, and both do come.
func TestFaultUnknownIsDecidedBySeed(t *testing.T) {
	t.Parallel()
	applied := map[bool]int{}
	for seed := range uint64(20) {
		var first bool
		for try := range 2 {
			store := openMemory(newClock())
			led, err := spendlimit.New(NewFaulty(store, Fault{Kind: FaultUnknown, At: 1, Seed: seed}), spendlimit.Config{Unit: steps, NoLimit: spendlimit.Allow})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := led.Reserve(t.Context(), ask("k", 1, "a")); !errors.Is(err, spendlimit.ErrUncertain) {
				t.Fatal(err)
			}
			_, err = led.Hold(t.Context(), "k")
			if try == 0 {
				first = err == nil
				applied[first]++
			} else if (err == nil) != first {
				t.Error(fmt.Sprint("seed ", seed, " has two outcomes"))
			}
		}
	}
	if applied[true] == 0 || applied[false] == 0 {
		t.Errorf("outcomes %v", applied)
	}
}
