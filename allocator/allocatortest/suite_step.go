package allocatortest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/allocator"
)

// stepCases check what a store promises about one step.
func stepCases() []testCase {
	return []testCase{
		{"P1_StepsOfAPoolNeverOverlap", stepsNeverOverlap},
		{"P2_ClockAfterLock", clockAfterLock},
		{"P5_CreatedAtOnce", createdAtOnce},
		{"P5_GroupsMadeAtOnce", groupsMadeAtOnce},
		{"P9_FreshSetEachTime", freshSetEachTime},
		{"P9_MadeTwice", madeTwice},
		{"Step_ErrorWritesNothing", errorWritesNothing},
		{"Step_PanicWritesNothing", panicWritesNothing},
		{"Step_ReadOnlyWritesNothing", readOnlyWritesNothing},
		{"Step_ContextEndedBefore", contextEndedBefore},
		{"Step_ContextEndsInside", contextEndsInside},
		{"Step_Closed", closedStore},
		{"Step_OtherPools", otherPools},
		{"Step_SecondHandleSees", secondHandleSees},
		{"Step_ComesBack", comesBack},
		{"I16_NoEffectNoWrite", noEffectNoWrite},
	}
}

// patience is how long a step may take to show that it does not wait.
const patience = 100 * time.Millisecond

// inside runs first in a step of the case's pool, and while it is there, second in another step, from another handle if there is one.
// It waits until second runs or seems to wait for the first step.
func (e *env) inside(first func(), second func(clock int64)) {
	e.Helper()
	stores := e.stores()
	n := allocator.Need{Pool: poolName}
	comes, runs := make(chan struct{}), make(chan struct{})
	var other sync.WaitGroup
	var failed error
	var once, begun sync.Once
	e.ok(stores[0].Step(e.Context(), n, func(int64, *allocator.Set) error {
		once.Do(func() {
			other.Go(func() {
				close(comes)
				failed = stores[len(stores)-1].Step(e.Context(), n, func(clock int64, _ *allocator.Set) error {
					begun.Do(func() { close(runs) })
					second(clock)
					return nil
				})
			})
			<-comes
			select {
			case <-runs:
			case <-time.After(patience):
			}
			first()
		})
		return nil
	}))
	other.Wait()
	e.ok(failed)
}

func stepsNeverOverlap(e *env) {
	e.pool(1)
	var mu sync.Mutex
	var over, early bool
	e.inside(func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
	}, func(int64) {
		mu.Lock()
		defer mu.Unlock()
		early = early || !over
	})
	if early {
		e.Error("a step runs inside another one of its pool")
	}
}

// clockAfterLock: a step that has waited must not decide by the time before.
func clockAfterLock(e *env) {
	e.pool(1)
	var mu sync.Mutex
	var now int64
	e.inside(func() { e.clock.advance(time.Hour) }, func(clock int64) {
		mu.Lock()
		defer mu.Unlock()
		now = clock
	})
	equal(e, "clock of the step that waited", now, noon.Add(time.Hour).UnixMicro())
}

// createdAtOnce: a row that is not there can't be locked, and yet there is one pool.
func createdAtOnce(e *env) {
	const n = 6
	for round := range 3 {
		stores := e.stores()
		name := numbered("made", round)
		errs := together(n, func(i int) error {
			p := e.on(stores[i%len(stores)], name, e.holder())
			_, err := p.Create(e.Context(), allocator.Spec{Capacity: 1 + i%2, Policy: plain()})
			return err
		})
		won := e.tally(errs, allocator.ErrConfigMismatch)
		equal(e, "creates that agree", won[nil], n/2)
		p := e.on(e.store, name, e.holder())
		st := e.state(p)
		equal(e, "slots", len(e.rows(e.store, name).Slots), st.Capacity)
		e.clean(p)
	}
}

func groupsMadeAtOnce(e *env) {
	const n = 6
	e.pool(n)
	ps := e.processes(n)
	errs := together(n, func(i int) error {
		_, err := ps[i].Acquire(e.Context(), ask(numbered("a", i), 1, "new"))
		return err
	})
	equal(e, "granted", e.tally(errs)[nil], n)
	equal(e, "used", e.state(ps[0]).Used, n)
	e.clean(ps[0])
}

// freshSetEachTime: nothing of a step that failed is in the next one's Set.
func freshSetEachTime(e *env) {
	p := e.pool(3)
	e.acquire(p, "a")
	for range 2 {
		err := e.store.Step(e.Context(), allocator.Need{Pool: poolName, All: true}, func(int64, *allocator.Set) error { return errBoom })
		e.is(err, errBoom)
		rows := e.loaded(e.store, allocator.Need{Pool: poolName})
		equal(e, "rows of a step that needs only the pool", len(rows.Slots)+len(rows.Leases)+len(rows.Groups)+len(rows.Raws), 0)
		if rows.Pool == nil {
			e.Fatal("the pool is not loaded")
		}
	}
}

var errBoom = errors.New("boom")

// madeTwice: a step whose first try had to be given up is made again, as a database asks for.
func madeTwice(e *env) {
	twice := &spy{Store: e.store, step: func(ctx context.Context, n allocator.Need, f stepFunc) error {
		_ = e.store.Step(ctx, n, func(clock int64, set *allocator.Set) error {
			_ = f(clock, set)
			return errBoom
		})
		return e.store.Step(ctx, n, f)
	}}
	e.playAsStrict(poolName, tour(), twice)
}

// playAsStrict plays a script on a store and on the reference store, and compares answers and rows.
func (e *env) playAsStrict(pool string, ops []*op, on allocator.Store) {
	e.Helper()
	clock := newClock()
	strict := NewStrict(clock.read)
	a, b := newSession(e, pool, on, e.store, e.clock), newSession(e, pool, strict, strict, clock)
	for _, o := range ops {
		if o.clock != nil {
			o.clock(e.clock)
			o.clock(clock)
			continue
		}
		equal(e, "answer to "+o.text, a.do(o), b.do(o))
	}
	equal(e, "rows", e.rows(e.store, pool), e.rows(strict, pool))
}

// failFirst plays the tour. Each operation that may write is made on a spoiled store first. It must fail and leave nothing behind: the
// same operation on the sound store is then answered as on the reference store, where nothing had failed.
func (e *env) failFirst(step func(ctx context.Context, n allocator.Need, f stepFunc) error) {
	e.Helper()
	strict := NewStrict(e.clock.read)
	good, want := newSession(e, poolName, e.store, e.store, e.clock), newSession(e, poolName, strict, strict, e.clock)
	spoiled := &spy{Store: e.store, step: step}
	for _, o := range tourOfWrites() {
		if o.clock != nil {
			o.clock(e.clock)
			continue
		}
		if !o.quiet {
			bad := newSession(e, poolName, spoiled, e.store, e.clock)
			bad.inherit(good)
			if text, err := o.call(bad)(); err == nil {
				e.Fatalf("%s: no error, %s", o.text, text)
			}
		}
		equal(e, "answer after a failure of "+o.text, good.do(o), want.do(o))
	}
	equal(e, "rows", e.rows(e.store, poolName), e.rows(strict, poolName))
}

func errorWritesNothing(e *env) {
	e.failFirst(func(ctx context.Context, n allocator.Need, f stepFunc) error {
		if n.ReadOnly {
			return e.store.Step(ctx, n, f)
		}
		err := e.store.Step(ctx, n, func(clock int64, set *allocator.Set) error {
			if err := f(clock, set); err != nil {
				return err
			}
			return errBoom
		})
		if err == nil || errors.Is(err, errBoom) && err != errBoom { //nolint:errorlint // unchanged, not wrapped
			e.Errorf("the function's error came back as %v", err)
		}
		return err
	})
}

func panicWritesNothing(e *env) {
	e.failFirst(func(ctx context.Context, n allocator.Need, f stepFunc) (err error) {
		if n.ReadOnly {
			return e.store.Step(ctx, n, f)
		}
		defer func() {
			if r := recover(); r != nil {
				if r != errBoom {
					e.Errorf("the function's panic came out as %v", r)
				}
				err = errBoom
			}
		}()
		err = e.store.Step(ctx, n, func(clock int64, set *allocator.Set) error {
			if err := f(clock, set); err != nil {
				return err
			}
			panic(errBoom)
		})
		if err == nil {
			e.Error("the function's panic is lost")
		}
		return err
	})
}

func readOnlyWritesNothing(e *env) {
	e.failFirst(func(ctx context.Context, n allocator.Need, f stepFunc) error {
		if n.ReadOnly {
			return e.store.Step(ctx, n, f)
		}
		n.ReadOnly = true
		if err := e.store.Step(ctx, n, f); err != nil {
			return err
		}
		return errBoom
	})
}

func contextEndedBefore(e *env) {
	e.failFirst(func(ctx context.Context, n allocator.Need, f stepFunc) error {
		if n.ReadOnly {
			return e.store.Step(ctx, n, f)
		}
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		err := e.store.Step(ctx, n, f)
		e.is(err, allocator.ErrUnavailable)
		if _, err := e.store.Page(ctx, allocator.Query{Pool: n.Pool, Kind: allocator.QueryLive, Max: 1}); err == nil {
			e.Error("a page after the context's end")
		}
		return err
	})
}

// contextEndsInside: the outcome may be either, but it is said truly.
func contextEndsInside(e *env) {
	e.pool(50)
	p := e.on(&spy{Store: e.store, step: func(ctx context.Context, n allocator.Need, f stepFunc) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		return e.store.Step(ctx, n, func(clock int64, set *allocator.Set) error {
			defer cancel()
			return f(clock, set)
		})
	}}, poolName, e.holder())
	for i := range 10 {
		before := e.rows(e.store, poolName)
		_, err := p.Acquire(e.Context(), ask(numbered("a", i), 1))
		after := e.rows(e.store, poolName)
		switch {
		case err == nil:
			equal(e, "leases after a grant", len(after.Leases), len(before.Leases)+1)
		case errors.Is(err, allocator.ErrUnavailable):
			equal(e, "rows after ErrUnavailable", after, before)
		default:
			e.is(err, allocator.ErrUncertain)
		}
	}
	e.clean(e.process())
}

func closedStore(e *env) {
	if e.handle.Close == nil {
		e.Skip("the handle can't be closed")
	}
	p := e.pool(2)
	l := e.acquire(p, "a")
	for range 2 {
		e.ok(e.handle.Close())
		_, err := p.Acquire(e.Context(), ask("b", 1))
		e.is(err, allocator.ErrClosed)
		_, err = l.Release(e.Context())
		e.is(err, allocator.ErrClosed)
		_, err = p.Probe(e.Context(), 0)
		e.is(err, allocator.ErrClosed)
		_, err = collect(p.Leases(e.Context(), false))
		e.is(err, allocator.ErrClosed)
	}
}

// otherPools: everything may have the same name, number and time in another pool.
func otherPools(e *env) {
	scripts := map[string][]*op{poolName: tour(), poolName + " 2": randomScript(7, 60), "Suite": tour()}
	were := map[string]allocator.Rows{}
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		e.clock.set(noon)
		e.playAsStrict(name, scripts[name], e.store)
		for other, rows := range were {
			equal(e, "rows of "+other, e.rows(e.store, other), rows)
		}
		were[name] = e.rows(e.store, name)
	}
}

func secondHandleSees(e *env) {
	p := e.pool(3)
	stores := e.stores()
	other := e.on(stores[len(stores)-1], poolName, e.holder())
	for i := range 10 {
		l := e.acquire(p, numbered("a", i))
		equal(e, "status after a grant", e.probe(other, 0).Status, allocator.SlotLeased)
		_, err := other.Verify(e.Context(), 0, l.Epoch())
		e.ok(err)
		_, err = other.Acquire(e.Context(), ask(numbered("a", i), 1))
		e.is(err, allocator.ErrHeldByOther)
		_, err = l.Renew(e.Context())
		e.ok(err)
		list, err := collect(other.Leases(e.Context(), false))
		e.ok(err)
		equal(e, "renewals", list[0].RenewSeq, 1)
		_, err = other.Release(e.Context(), l.Ref())
		e.ok(err)
		equal(e, "status after a release", e.probe(p, 0).Status, allocator.SlotFree)
	}
}

// comesBack: what was written is there for the next process, to the last column.
func comesBack(e *env) {
	if e.handle.Again == nil || e.handle.Close == nil {
		e.Skip("the data can't be opened again")
	}
	run := newSession(e, poolName, e.store, e.store, e.clock)
	for i, o := range tour() {
		if o.clock != nil {
			o.clock(e.clock)
			continue
		}
		run.do(o)
		if i%10 == 9 {
			before := e.rows(e.store, poolName)
			e.ok(e.handle.Close())
			e.handle = e.handle.Again(e)
			e.store = e.handle.Store
			equal(e, "rows after opening again", e.rows(e.store, poolName), before)
			next := newSession(e, poolName, e.store, e.store, e.clock)
			next.inherit(run)
			run = next
		}
	}
}

// noEffectNoWrite: a call that changes nothing leaves every byte, revisions too.
func noEffectNoWrite(e *env) {
	p := e.pool(2)
	other := e.process()
	l := e.acquire(p, "a")
	old := e.acquire(p, "b")
	stale := e.probe(p, 1)
	_, err := p.Renew(e.Context(), l.Ref(), 1)
	e.ok(err)
	e.release(old)
	quiet := map[string]func() error{
		"a replay of a grant":       func() error { _, err := p.Acquire(e.Context(), ask("a", 1)); return err },
		"another process's attempt": func() error { _, err := other.Acquire(e.Context(), ask("a", 1)); return err },
		"another request":           func() error { _, err := p.Acquire(e.Context(), ask("a", 1, "g")); return err },
		"no room":                   func() error { _, err := p.Acquire(e.Context(), ask("c", 2)); return err },
		"a replay of a renewal":     func() error { _, err := p.Renew(e.Context(), l.Ref(), 1); return err },
		"a renewal out of order":    func() error { _, err := p.Renew(e.Context(), l.Ref(), 5); return err },
		"a second release":          func() error { _, err := p.Release(e.Context(), old.Ref()); return err },
		"old evidence":              func() error { _, err := p.Reclaim(e.Context(), stale.Reclaim(allocator.ReasonForced, "n")); return err },
		"evidence of a live lease": func() error {
			_, err := p.Reclaim(e.Context(), e.probe(p, 0).Reclaim(allocator.ReasonExpired, ""))
			return err
		},
		"a sweep":                   func() error { _, err := p.Sweep(e.Context(), 10); return err },
		"a check":                   func() error { _, err := p.Check(e.Context(), true); return err },
		"a cancel of nothing":       func() error { _, err := p.Cancel(e.Context(), "nobody"); return err },
		"a create of what is there": func() error { e.create(p, 2); return nil },
		"looks":                     func() error { _, err := newSession(e, poolName, e.store, e.store, e.clock).look(p); return err },
		"an old version":            func() error { _, err := p.Resize(e.Context(), allocator.Admin{ID: "x", Version: 9}, 1); return err },
		"attributes of a slot in use": func() error {
			_, err := p.Configure(e.Context(), e.admin(p, "y"), allocator.Configuration{Attrs: map[int]map[string]string{0: {"k": "v"}}})
			return err
		},
	}
	for what, call := range quiet {
		e.clock.advance(time.Microsecond)
		e.unchanged(what, func() { e.tally([]error{call()}, refusals()...) })
	}
}

// refusals are the errors that mean that the allocator looked and said no.
func refusals() []error {
	return []error{
		allocator.ErrFull, allocator.ErrDraining, allocator.ErrHeldByOther, allocator.ErrAttemptMismatch, allocator.ErrStale, allocator.ErrLost,
		allocator.ErrLapsed, allocator.ErrTicketLost, allocator.ErrNotReclaimable, allocator.ErrBusySlot, allocator.ErrConfigMismatch,
		allocator.ErrNotFound, allocator.ErrInvalid,
	}
}
