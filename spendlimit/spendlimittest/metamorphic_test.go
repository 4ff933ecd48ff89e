package spendlimittest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/stint-go/stint/spendlimit"
)

// One list of operations, on two stores, one by one and in batches however split: equal answers, equal rows.
func TestI11_BatchesAndStores(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			sc := randomScript(seed+1000, 80)
			// A step's now is the latest that any of its accounts has seen (C5). Behind a clock that has gone back, company in a
			// batch can make it later; everything else is the same.
			sc.ops = slices.DeleteFunc(sc.ops, func(o *op) bool { return strings.HasPrefix(o.text, "clock -") })
			clock := newClock()
			store := openMemory(clock)
			answers, err := sc.play(t.Context(), store, clock)
			if err != nil {
				t.Fatal(err)
			}
			want := append(answers, dumpLines(t, store, sc)...)
			for _, a := range answers {
				if strings.HasPrefix(a, "verify") && !strings.HasSuffix(a, "-> <nil>") && !strings.HasSuffix(a, "-> []") {
					t.Error(a)
				}
			}
			check := func(what string, got []string) {
				t.Helper()
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("%s (-memory, one by one, +this):\n%s", what, d)
				}
			}
			clock = newClock()
			store = openStrict(clock)
			answers, err = sc.play(t.Context(), store, clock)
			if err != nil {
				t.Fatal(err)
			}
			check("strict, one by one", append(answers, dumpLines(t, store, sc)...))
			for split := range uint64(2) {
				check(fmt.Sprint("memory, split by ", split), inBatches(t, sc, openMemory, split))
				check(fmt.Sprint("strict, split by ", split), inBatches(t, sc, openStrict, split))
			}
		})
	}
}

func dumpLines(t *testing.T, s spendlimit.Store, sc *script) []string {
	t.Helper()
	text, err := Dump(t.Context(), s, sc.cfg.Name, worldAccounts...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(text, "\n")
}

// inBatches plays a script in batches of random length, and returns the answers and the rows.
func inBatches(t *testing.T, sc *script, open func(*testClock) spendlimit.Store, split uint64) (out []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(split, uint64(len(sc.ops))))
		clock := newClock()
		g := &gate{Store: open(clock)}
		run, err := newSession(g, sc.cfg, clock)
		if err != nil {
			t.Fatal(err)
		}
		for rest := sc.ops; len(rest) > 0; {
			n, most := 1, 1+random.IntN(12)
			for !rest[0].alone && n < min(len(rest), most) && !rest[n].alone {
				n++
			}
			if n == 1 {
				out = append(out, run.do(t.Context(), rest[0]))
			} else {
				out = append(out, g.batch(t, run, rest[:n])...)
			}
			rest = rest[n:]
		}
		out = append(out, dumpLines(t, g.Store, sc)...)
	})
	return out
}

// gate is a store that can be shut, so that calls gather behind the step that stands before it.
type gate struct {
	spendlimit.Store
	mu    sync.Mutex
	shut  chan struct{}
	steps int // that may write
}

func (g *gate) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	g.mu.Lock()
	shut := g.shut
	if !n.ReadOnly {
		g.steps++
	}
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
	return g.Store.Step(ctx, n, f)
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut, g.steps = make(chan struct{}), 0
}

func (g *gate) open() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
	return g.steps
}

// batch runs ops in one step, in their order: they queue up, one after the other, behind a call that changes nothing.
func (g *gate) batch(t *testing.T, run *session, ops []*op) []string {
	t.Helper()
	out := make([]string, len(ops))
	var calls sync.WaitGroup
	g.close()
	calls.Go(func() { run.do(t.Context(), opDispatch("nobody")) })
	synctest.Wait()
	for i, o := range ops {
		calls.Go(func() { out[i] = run.do(t.Context(), o) })
		synctest.Wait()
	}
	before := g.open()
	calls.Wait()
	if after := g.steps; before != 1 || after > 2 {
		t.Errorf("%d calls took %d steps", len(ops), after-1)
	}
	return out
}
