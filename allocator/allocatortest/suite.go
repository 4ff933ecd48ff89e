package allocatortest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/stint-go/stint/allocator"
)

// Open returns a handle on a fresh, empty store that takes its time from clock and from nothing else. It is called for
// several cases at once, and leaves the cleanup to t.
type Open func(t testing.TB, clock func() time.Time) Handle

// Handle is one way into a store's data, as one process has it. The cases that need a function that is nil are skipped.
type Handle struct {
	Store allocator.Store
	// Close closes the handle: every later call is ErrClosed. It may be called again.
	Close func() error
	// Again opens another handle on the same data, beside this one or after its Close.
	Again func(t testing.TB) Handle
	// Damage spoils the stored row of a table, [allocator.RawSlot], [allocator.RawLease] or [allocator.RawTicket], so that it can't be read
	// any more. Its state and its times stay, so that it is found wherever it was found before. The key is the slot's index, the
	// lease's epoch or the ticket's seq.
	Damage func(t testing.TB, pool, table string, key int64)
	// Redirect makes a stored slot that is leased name the lease of another epoch, which does not list it.
	Redirect func(t testing.TB, pool string, slot int, epoch uint64)
}

// Run runs the suite: every case a parallel subtest on a store of its own. The cases are named by what they check: P are the
// pitfalls of a store, I invariants, R rules, T numbered cases; Step, Need and Page are promises of [allocator.Store].
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

func cases() []testCase {
	return slices.Concat(stepCases(), rowCases(), poolCases(), raceCases(), damageCases())
}

// env is the world of one case: a clock, a store, and processes that use it.
type env struct {
	testing.TB
	clock  *testClock
	handle Handle
	store  allocator.Store
	pids   atomic.Int64
}

func newEnv(t testing.TB, open Open) *env {
	clock := newClock()
	h := open(t, clock.read)
	return &env{TB: t, clock: clock, handle: h, store: h.Store}
}

const poolName = "suite"

// noon is when most cases begin: not on a whole second, so that nothing that rounds stays unseen.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 123_457_000, time.UTC)

// testClock is an injected clock.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *testClock { return &testClock{now: noon} }

func (c *testClock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// local is the clock of the processes, which agrees with the store's.
func (c *testClock) local() (time.Time, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, c.now.Sub(noon)
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *testClock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// process opens the pool as another process does, of which the system knows nothing.
func (e *env) process() *allocator.Pool {
	e.Helper()
	return e.on(e.store, poolName, e.holder())
}

func (e *env) holder() allocator.Holder {
	pid := e.pids.Add(1)
	h := allocator.Holder{PID: pid, Start: 1}
	h.Incarnation[14], h.Incarnation[15] = byte(pid>>8), byte(pid)
	return h
}

func (e *env) on(s allocator.Store, pool string, h allocator.Holder, change ...func(*allocator.Options)) *allocator.Pool {
	e.Helper()
	o := allocator.Options{Clock: e.clock.local, Holder: &h, Owners: nobodyKnows{}}
	for _, c := range change {
		c(&o)
	}
	p, err := allocator.New(s, pool, o)
	e.ok(err)
	return p
}

// nobodyKnows is a system that can't tell anything of a process.
type nobodyKnows struct{}

func (nobodyKnows) Process(context.Context, int64) allocator.Process { return allocator.Process{} }

// stores returns the ways into the store: two if there can be two.
func (e *env) stores() []allocator.Store {
	e.Helper()
	if e.handle.Again == nil {
		return []allocator.Store{e.store}
	}
	return []allocator.Store{e.store, e.handle.Again(e).Store}
}

// processes returns n processes, on two handles if the store can have two.
func (e *env) processes(n int) []*allocator.Pool {
	e.Helper()
	stores := e.stores()
	var out []*allocator.Pool
	for i := range n {
		out = append(out, e.on(stores[i%len(stores)], poolName, e.holder()))
	}
	return out
}

// plain is the policy of most cases: no slot cools.
func plain() *allocator.Policy {
	p := allocator.DefaultPolicy()
	p.Cooling = 0
	return &p
}

func (e *env) create(p *allocator.Pool, capacity int, change ...func(*allocator.Spec)) {
	e.Helper()
	s := allocator.Spec{Capacity: capacity, Policy: plain()}
	for _, c := range change {
		c(&s)
	}
	_, err := p.Create(e.Context(), s)
	e.ok(err)
}

// pool makes the case's pool, and returns a process that uses it.
func (e *env) pool(capacity int, change ...func(*allocator.Spec)) *allocator.Pool {
	e.Helper()
	p := e.process()
	e.create(p, capacity, change...)
	return p
}

func cooling(d time.Duration) func(*allocator.Spec) {
	return func(s *allocator.Spec) { s.Policy.Cooling = d }
}

func ask(attempt string, units int, group ...string) allocator.Request {
	return allocator.Request{Attempt: attempt, Units: units, Group: group}
}

func (e *env) acquire(p *allocator.Pool, attempt string) *allocator.Lease {
	e.Helper()
	return e.acquireAs(p, ask(attempt, 1))
}

func (e *env) acquireAs(p *allocator.Pool, r allocator.Request) *allocator.Lease {
	e.Helper()
	l, err := p.Acquire(e.Context(), r)
	if err != nil {
		e.Fatalf("acquire %s: %v", r.Attempt, err)
	}
	return l
}

func (e *env) release(l *allocator.Lease) {
	e.Helper()
	_, err := l.Release(e.Context())
	e.ok(err)
}

func (e *env) probe(p *allocator.Pool, slot int) allocator.Evidence {
	e.Helper()
	x, err := p.Probe(e.Context(), slot)
	e.ok(err)
	return x
}

func (e *env) state(p *allocator.Pool) allocator.PoolState {
	e.Helper()
	s, err := p.State(e.Context())
	e.ok(err)
	return s
}

func (e *env) admin(p *allocator.Pool, id string) allocator.Admin {
	e.Helper()
	return allocator.Admin{ID: id, Version: e.state(p).Version}
}

func slot(l *allocator.Lease) int { return l.Slots()[0].Index }

// clean checks that all counts are what the rows say (I13).
func (e *env) clean(p *allocator.Pool) {
	e.Helper()
	_, err := p.Check(e.Context(), false)
	e.ok(err)
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

// full checks that err is a FullError for a reason.
func (e *env) full(err error, why allocator.Shortage) {
	e.Helper()
	var full *allocator.FullError
	if !errors.As(err, &full) || full.Reason != why {
		e.Fatalf("error %v, want full: %v", err, why)
	}
}

func equal[T any](e *env, what string, got, want T) {
	e.Helper()
	if reflect.DeepEqual(got, want) { // much faster
		return
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(allocator.Fingerprint{})); d != "" {
		e.Fatalf("%s (-want +got):\n%s", what, d)
	}
}

// unchanged checks that do leaves every row as it is.
func (e *env) unchanged(what string, do func()) {
	e.Helper()
	before := e.rows(e.store, poolName)
	do()
	equal(e, "rows after "+what, e.rows(e.store, poolName), before)
}

func collect[T any](list iter.Seq2[T, error]) (out []T, err error) {
	for x, err := range list {
		if err != nil {
			return out, err
		}
		out = append(out, x)
	}
	return out, nil
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

// gathered runs calls of one process at once, so that they share a batch: the first one's step waits until the others
// stand behind it, as far as that can be seen. The first command of the batch may be any of them.
func (e *env) gathered(h allocator.Holder, calls ...func(p *allocator.Pool) error) []error {
	e.Helper()
	var here atomic.Int32
	p := e.on(&spy{Store: e.store, step: func(ctx context.Context, n allocator.Need, f stepFunc) error {
		for int(here.Load()) < len(calls) {
			runtime.Gosched()
		}
		for range 100 {
			runtime.Gosched()
		}
		return e.store.Step(ctx, n, f)
	}}, poolName, h)
	return together(len(calls), func(i int) error {
		here.Add(1)
		return calls[i](p)
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

// stepFunc is what a pool hands to a step.
type stepFunc = func(clock int64, s *allocator.Set) error

// spy is a store with a hand in its steps and, if page is not nil, its pages.
type spy struct {
	allocator.Store
	step func(ctx context.Context, n allocator.Need, f stepFunc) error
	page func(ctx context.Context, q allocator.Query) (allocator.Rows, error)
}

// Step implements allocator.Store.
func (s *spy) Step(ctx context.Context, n allocator.Need, f func(clock int64, set *allocator.Set) error) error {
	if s.step == nil {
		return s.Store.Step(ctx, n, f)
	}
	return s.step(ctx, n, f)
}

// Page implements allocator.Store.
func (s *spy) Page(ctx context.Context, q allocator.Query) (allocator.Rows, error) {
	if s.page == nil {
		return s.Store.Page(ctx, q)
	}
	return s.page(ctx, q)
}

func numbered(prefix string, i int) string { return fmt.Sprintf("%s%04d", prefix, i) }
