// Package spendlimittest has what a [spendlimit.Store] must pass and what it can be compared with: a conformance suite
// ([Run]), a reference store ([NewStrict]), a model of a ledger ([Model]) with random commands to compare it by
// ([CheckModel]), a check of concurrent histories ([CheckLinearizable]), a store that fails on command ([NewFaulty]) and a
// dump of all rows ([Dump]).
//
//	func TestConformance(t *testing.T) {
//		spendlimittest.Run(t, func(t testing.TB, clock func() time.Time) spendlimittest.Handle {
//			db := open(t, clock) // an empty database of its own
//			return spendlimittest.Handle{Store: db.Spend(), Close: db.Close}
//		})
//	}
package spendlimittest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stint-go/stint/spendlimit"
)

// Open returns a handle on a fresh, empty store that takes its time from clock and from nothing else. It is called for
// several cases at once, and leaves the cleanup to t.
type Open func(t testing.TB, clock func() time.Time) Handle

// Handle is one way into a store's data, as one process has it.
type Handle struct {
	Store spendlimit.Store
	// Close closes the handle: every later call is ErrClosed. It may be called again. nil: the cases that close are skipped.
	Close func() error
	// Again opens another handle on the same data, beside this one or after its Close. nil: the cases that need one are skipped.
	Again func(t testing.TB) Handle
}

// Run runs the suite: every case a parallel subtest on a store of its own. The cases are named by what they check: C and I
// are contracts and invariants, R rules, T numbered cases.
func Run(t *testing.T, open Open) {
	for _, c := range cases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(newEnv(t, open))
		})
	}
}

// testCase is one named case. It reports through its env alone, so that a case can be watched while it fails.
type testCase struct {
	name string
	run  func(e *env)
}

func cases() []testCase { return slices.Concat(closureCases(), stepCases(), ledgerCases()) }

// env is the world of one case: a clock, a store, and ledgers on it that count whole steps.
type env struct {
	testing.TB
	clock  *testClock
	handle Handle
	store  spendlimit.Store
}

func newEnv(t testing.TB, open Open) *env {
	clock := newClock()
	h := open(t, clock.read)
	return &env{TB: t, clock: clock, handle: h, store: h.Store}
}

const ledgerName = "suite"

// suiteAccounts are all accounts that cases use.
var suiteAccounts = []string{"a", "b", "c", "d", "e"}

// ledger returns a new ledger on the store: as far as batches go, each is a process of its own.
func (e *env) ledger() *spendlimit.Ledger {
	e.Helper()
	return e.on(e.store, spendlimit.Config{})
}

func (e *env) on(s spendlimit.Store, cfg spendlimit.Config) *spendlimit.Ledger {
	e.Helper()
	if cfg.Name == "" {
		cfg.Name = ledgerName
	}
	if cfg.Unit == (spendlimit.Unit{}) {
		cfg.Unit = steps
	}
	led, err := spendlimit.New(s, cfg)
	e.ok(err)
	return led
}

// processes returns n ledgers, on two handles if the store can have two.
func (e *env) processes(n int) []*spendlimit.Ledger {
	e.Helper()
	stores := []spendlimit.Store{e.store}
	if e.handle.Again != nil {
		stores = append(stores, e.handle.Again(e).Store)
	}
	var out []*spendlimit.Ledger
	for i := range n {
		out = append(out, e.on(stores[i%len(stores)], spendlimit.Config{}))
	}
	return out
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) is(err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Fatalf("error %v, want %v", err, want)
	}
}

func equal[T any](e *env, what string, got, want T) {
	e.Helper()
	if d := cmp.Diff(want, got); d != "" {
		e.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

// limits creates limits.
func (e *env) limits(led *spendlimit.Ledger, limits ...spendlimit.Limit) {
	e.Helper()
	for _, l := range limits {
		_, err := led.SetLimit(e.Context(), l, "")
		e.ok(err)
	}
}

// day is a limit on an account's day in UTC.
func day(account string, n spendlimit.Amount) spendlimit.Limit {
	return spendlimit.Limit{Account: account, Name: "day", Kind: spendlimit.Day, Amount: n}
}

// ask is a request for exactly n on accounts, for an hour.
func ask(key string, n spendlimit.Amount, accounts ...string) spendlimit.Request {
	return spendlimit.Request{Key: key, Accounts: accounts, Amount: n, TTL: time.Hour}
}

// child is a request for exactly n of a hold.
func child(key, parent string, n spendlimit.Amount, accounts ...string) spendlimit.Request {
	r := ask(key, n, accounts...)
	r.Parent = parent
	return r
}

func (e *env) reserve(led *spendlimit.Ledger, r spendlimit.Request) *spendlimit.Hold {
	e.Helper()
	h, err := led.Reserve(e.Context(), r)
	e.ok(err)
	return h
}

func (e *env) charge(led *spendlimit.Ledger, id string, n spendlimit.Amount, accounts ...string) spendlimit.Receipt {
	e.Helper()
	r, err := led.Charge(e.Context(), spendlimit.Expense{ID: id, Accounts: accounts, Cost: spendlimit.Total(n)})
	e.ok(err)
	return r
}

// balance returns the present period of a limit.
func (e *env) balance(led *spendlimit.Ledger, account, limit string) spendlimit.Balance {
	e.Helper()
	list, err := collect(led.Balances(e.Context(), account, time.Time{}))
	e.ok(err)
	for _, b := range list {
		if b.Limit == limit {
			return b
		}
	}
	e.Fatalf("account %s has no limit %s", account, limit)
	return spendlimit.Balance{}
}

// counts checks what is spent and held in the present period of an account's limit "day".
func (e *env) counts(led *spendlimit.Ledger, account string, spent, held spendlimit.Amount) {
	e.Helper()
	b := e.balance(led, account, "day")
	equal(e, "spent and held of "+account, [2]spendlimit.Amount{b.Spent, b.Held}, [2]spendlimit.Amount{spent, held})
}

func (e *env) entries(led *spendlimit.Ledger, account string) []spendlimit.Entry {
	e.Helper()
	list, err := collect(led.Entries(e.Context(), account, 0))
	e.ok(err)
	return list
}

func (e *env) dump() []string {
	e.Helper()
	return e.dumpOf(e.store, ledgerName)
}

func (e *env) dumpOf(s spendlimit.Store, ledger string) []string {
	e.Helper()
	text, err := Dump(e.Context(), s, ledger, suiteAccounts...)
	e.ok(err)
	return strings.Split(text, "\n")
}

// unchanged checks that do leaves every row as it is, byte for byte (I8).
func (e *env) unchanged(what string, do func()) {
	e.Helper()
	before := e.dump()
	do()
	equal(e, "rows after "+what, e.dump(), before)
}

// clean checks that all running totals are the sums over the rows.
func (e *env) clean(led *spendlimit.Ledger) {
	e.Helper()
	for _, a := range suiteAccounts {
		diffs, err := led.Verify(e.Context(), a)
		if errors.Is(err, spendlimit.ErrNotFound) {
			continue
		}
		e.ok(err)
		for _, d := range diffs {
			e.Errorf("account %s: %v", a, d)
		}
	}
}

// together runs n calls at once, behind a barrier, and returns their errors.
func together(n int, call func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() {
			<-start
			errs[i] = call(i)
		})
	}
	close(start)
	done.Wait()
	return errs
}

// gathered runs n calls of one process at once, so that they share a batch: the first one's step waits until the others
// stand behind it, as far as that can be seen.
func (e *env) gathered(n int, call func(led *spendlimit.Ledger, i int) error) []error {
	e.Helper()
	var here atomic.Int32
	led := e.on(&spy{e.store, func(ctx context.Context, need spendlimit.Need, f stepFunc) error {
		for int(here.Load()) < n {
			runtime.Gosched()
		}
		for range 100 {
			runtime.Gosched()
		}
		return e.store.Step(ctx, need, f)
	}}, spendlimit.Config{})
	return together(n, func(i int) error {
		here.Add(1)
		return call(led, i)
	})
}

// tally counts errors by the first of the kinds that they are. Anything else fails the case.
func (e *env) tally(errs []error, kinds ...error) map[error]int {
	e.Helper()
	n := map[error]int{}
	for _, err := range errs {
		i := slices.IndexFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
		switch {
		case err == nil:
			n[nil]++
		case i < 0:
			e.Fatal(err)
		default:
			n[kinds[i]]++
		}
	}
	return n
}

// stepFunc is what a ledger hands to a step.
type stepFunc = func(now int64, w *spendlimit.Work) error

// spy is a store with a hand in its steps.
type spy struct {
	spendlimit.Store
	step func(ctx context.Context, n spendlimit.Need, f stepFunc) error
}

// Step implements spendlimit.Store.
func (s *spy) Step(ctx context.Context, n spendlimit.Need, f func(now int64, w *spendlimit.Work) error) error {
	return s.step(ctx, n, f)
}

// look runs a step that changes nothing, once with locks and once without.
func (e *env) look(n spendlimit.Need, f func(now int64, w *spendlimit.Work)) {
	e.Helper()
	n.Ledger = ledgerName
	for _, n.ReadOnly = range []bool{false, true} {
		e.ok(e.store.Step(e.Context(), n, func(now int64, w *spendlimit.Work) error {
			f(now, w)
			return nil
		}))
	}
}

// keys names the holds of a list.
func keys(holds []*spendlimit.HoldRow) []string {
	out := []string{}
	for _, h := range holds {
		out = append(out, h.Key)
	}
	return out
}

func numbered(prefix string, i int) string { return fmt.Sprintf("%s%04d", prefix, i) }
