package allocatortest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/allocator"
)

// rowCases check what a store hands out and keeps.
func rowCases() []testCase {
	return []testCase{
		{"Need_AsStrict", needsAsStrict},
		{"Need_Missing", needOfNothing},
		{"Page_AsStrict", pagesAsStrict},
		{"Page_More", pagesOfLeases},
		{"I11_TourAsStrict", tourAsStrict},
		{"Rows_NeverChange", rowsNeverChange},
		{"Rows_TimesToTheMicrosecond", timesToTheMicrosecond},
		{"Rows_Names", names},
		{"Rows_Labels", labels},
	}
}

// lockstep plays random scripts on the store and on the reference store, one operation after the other, and hands both to look after
// each of them.
func (e *env) lockstep(seed uint64, n int, look func(d *rand.Rand, strict allocator.Store)) {
	e.Helper()
	e.clock.set(noon)
	strict := NewStrict(e.clock.read)
	name := numbered("script ", int(seed))
	a, b := newSession(e, name, e.store, e.store, e.clock), newSession(e, name, strict, strict, e.clock)
	d := rand.New(rand.NewPCG(seed, 2))
	for i, o := range randomScript(seed, n) {
		if o.clock != nil {
			o.clock(e.clock)
			continue
		}
		equal(e, fmt.Sprintf("seed %d, answer %d to %s", seed, i, o.text), a.do(o), b.do(o))
		look(d, strict)
	}
	equal(e, fmt.Sprintf("seed %d, rows", seed), e.rows(e.store, name), e.rows(strict, name))
	e.clean(a.eye)
}

// needsAsStrict: a step is handed exactly what its need says.
func needsAsStrict(e *env) {
	for seed := range uint64(5) {
		e.lockstep(seed, 120, func(d *rand.Rand, strict allocator.Store) {
			n := drawNeed(d)
			n.Pool = numbered("script ", int(seed))
			equal(e, fmt.Sprintf("seed %d, rows of %+v", seed, n), e.loaded(e.store, n), e.loaded(strict, n))
		})
	}
}

// pagesAsStrict: a page is exactly what its query says.
func pagesAsStrict(e *env) {
	for seed := uint64(100); seed < 104; seed++ {
		e.lockstep(seed, 120, func(d *rand.Rand, strict allocator.Store) {
			q := drawQuery(d)
			q.Pool = numbered("script ", int(seed))
			equal(e, fmt.Sprintf("seed %d, page of %+v", seed, q), e.page(e.store, q), e.page(strict, q))
		})
	}
}

// tourAsStrict: a script that meets everything has the same answers and leaves the same rows.
func tourAsStrict(e *env) { e.playAsStrict(poolName, tour(), e.store) }

// needOfNothing: what is not there is not made up, nor is it an error.
func needOfNothing(e *env) {
	every := allocator.Need{
		Pool: "nobody's", Attempts: []string{"a", "a"}, Epochs: []uint64{1}, Slots: []int{0, 0}, Groups: []allocator.GroupKey{allocator.KeyOf()},
		Timely: true, Due: 1, Free: 1, Heads: 1, Next: true, Purge: 1, Incarnation: allocator.Incarnation{1}, All: true,
	}
	for _, every.ReadOnly = range []bool{true, false} {
		equal(e, "rows of a pool that is not there", e.loaded(e.store, every), allocator.Rows{})
	}
	for kind := allocator.QueryLive; kind <= allocator.QueryChanges; kind++ {
		equal(e, "page of a pool that is not there", e.page(e.store, allocator.Query{Pool: "nobody's", Kind: kind, Max: 1}), allocator.Rows{})
	}
	e.pool(0)
	every.Pool = poolName
	rows := e.loaded(e.store, every)
	equal(e, "capacity", rows.Pool.Capacity, 0)
	rows.Pool = nil
	equal(e, "rows of an empty pool", rows, allocator.Rows{})
	_, err := e.store.Page(e.Context(), allocator.Query{Pool: poolName, Max: 1})
	e.is(err, allocator.ErrInvalid)
}

// pagesOfLeases: pages of any size make up the whole list, in order, each row once.
func pagesOfLeases(e *env) {
	const n = 23
	p := e.pool(n)
	var all, live []uint64
	for i := range n {
		l := e.acquireAs(p, ask(numbered("a", n-i), 1, numbered("g", i%7)))
		all = append(all, l.Epoch())
		if i%3 == 2 {
			e.release(l)
		} else {
			live = append(live, l.Epoch())
		}
	}
	epochs := func(rows allocator.Rows) (list []uint64) {
		for _, l := range rows.Leases {
			list = append(list, l.Epoch)
		}
		return list
	}
	for _, size := range []int{1, 4, n - 1, n, n + 1} {
		q := allocator.Query{Pool: poolName, Max: size}
		what := fmt.Sprint(" in pages of ", size)
		q.Kind = allocator.QueryLeases
		equal(e, "all leases"+what, epochs(e.pages(e.store, q)), all)
		q.Kind = allocator.QueryLive
		equal(e, "live leases"+what, epochs(e.pages(e.store, q)), live)
		q.Kind = allocator.QueryGroups
		groups := e.pages(e.store, q).Groups
		equal(e, "groups"+what, len(groups), 7)
		if !slices.IsSortedFunc(groups, byGroup) {
			e.Errorf("groups%s are out of order", what)
		}
		equal(e, "changes"+what, e.changes(p, size), n+len(all))
	}
}

func byGroup(a, b *allocator.GroupRow) int { return strings.Compare(string(a.Key), string(b.Key)) }

// changes reads the list of changes in pages and checks its order. It returns how many there are.
func (e *env) changes(p *allocator.Pool, size int) int {
	e.Helper()
	n, last := 0, int64(0)
	for {
		rows := e.page(e.store, allocator.Query{Pool: p.Name(), Kind: allocator.QueryChanges, After: last, Max: size})
		var revs []int64
		for _, r := range rows.Slots {
			revs = append(revs, r.Rev)
		}
		if !slices.IsSorted(revs) {
			e.Fatalf("changes of slots are out of order: %v", revs)
		}
		for _, l := range rows.Leases {
			revs = append(revs, l.Rev)
		}
		slices.Sort(revs)
		if len(revs) > size || rows.More && len(revs) < size || len(revs) > 0 && revs[0] <= last {
			e.Fatalf("revs %v after %d, at most %d, more %v", revs, last, size, rows.More)
		}
		n += len(revs)
		if !rows.More {
			return n
		}
		last = revs[len(revs)-1]
	}
}

// rowsNeverChange: the rows of a page, the leases and tickets of a step, and the lists in its slots stay as they were handed out,
// whatever comes later.
func rowsNeverChange(e *env) {
	run := newSession(e, poolName, e.store, e.store, e.clock)
	var given, were []allocator.Rows
	keep := func(rows allocator.Rows) { given, were = append(given, rows), append(were, copied(rows)) }
	for _, o := range tour() {
		if o.clock != nil {
			o.clock(e.clock)
			continue
		}
		run.do(o)
		e.ok(e.store.Step(e.Context(), allocator.Need{Pool: poolName, All: true}, func(_ int64, set *allocator.Set) error {
			rows := set.Rows()
			kept := allocator.Rows{Leases: rows.Leases, Tickets: rows.Tickets}
			for _, r := range rows.Slots { // the row itself is the store's again after the step
				kept.Slots = append(kept.Slots, &allocator.SlotRow{Attrs: r.Attrs})
			}
			keep(kept)
			return nil
		}))
		for kind := allocator.QueryLive; kind <= allocator.QueryChanges; kind++ {
			rows, err := e.store.Page(e.Context(), allocator.Query{Pool: poolName, Kind: kind, Max: 1000})
			e.ok(err)
			keep(rows)
		}
	}
	for i := range given {
		equal(e, "rows that were handed out", given[i], were[i])
	}
}

// timesToTheMicrosecond: no time is rounded, whatever the clock.
func timesToTheMicrosecond(e *env) {
	e.clock.set(time.Date(2200, 2, 28, 23, 59, 59, 999_999_999, time.UTC))
	now := e.clock.read().UnixMicro()
	p := e.pool(3, cooling(7_000_001*time.Microsecond))
	r := ask("a", 1)
	r.TTL, r.MaxLease = 5_000_003*time.Microsecond, 7_000_007*time.Microsecond
	e.acquireAs(p, r)
	rows := e.rows(e.store, poolName)
	l := rows.Leases[0]
	equal(e, "times", [4]int64{l.AcquiredUS, l.TTLUS, l.ExpiresUS, l.MaxUS}, [4]int64{now, 5_000_003, now + 5_000_003, now + 7_000_007})
	equal(e, "times asked for", [2]int64{l.Params.TTLUS, l.Params.MaxUS}, [2]int64{5_000_003, 7_000_007})
	equal(e, "cooling", rows.Pool.Policy.Cooling, 7_000_001*time.Microsecond)
	equal(e, "seen", rows.Pool.SeenUS, now)

	e.clock.advance(5_000_003 * time.Microsecond)
	e.unchanged("a sweep at the very instant of the end", func() { _, err := p.Sweep(e.Context(), 1); e.ok(err) })
	e.clock.advance(time.Microsecond)
	_, err := p.Sweep(e.Context(), 1)
	e.ok(err)
	rows = e.rows(e.store, poolName)
	equal(e, "end", rows.Leases[0].End.AtUS, now+5_000_004)
	equal(e, "cool until", rows.Slots[0].CoolUS, now+12_000_005)
}

// names: text is kept byte for byte, and only equal bytes are equal.
func names(e *env) {
	list := []string{
		"a", "A", "a ", " a", "ä", "a\u0308", "Ä", "ß", "SS", "'", `"`, `\`, "''", "%", "_", "?", "$1", ":x", "a;--", "\u00a0a", "a\u200b", "\U0001F600", "１", "1", "01",
		"1.0", "1e3", "null", "NULL", "true", strings.Repeat("x", 256), strings.Repeat("x", 255), strings.Repeat("\U0001F600", 64), "\ufffd",
	}
	p := e.pool(2*len(list), func(s *allocator.Spec) { s.Attrs = map[int]map[string]string{0: {`it's "x"`: `\'"`, "empty": ""}} })
	for i, x := range list {
		l := e.acquireAs(p, ask(x, 1, x))
		equal(e, "slot of "+x, slot(l), i)
	}
	e.acquireAs(p, ask("of no group", 1))
	e.acquireAs(p, ask("of four", 1, "a", "a ", "'", "ä"))
	for _, x := range list {
		rows := e.loaded(e.store, allocator.Need{Pool: poolName, Attempts: []string{x}})
		if len(rows.Leases) != 1 || rows.Leases[0].Attempt != x || rows.Leases[0].Params.Group != allocator.KeyOf(x) || len(rows.Groups) != 1 {
			e.Fatalf("rows of attempt %q: %d leases, %d groups", x, len(rows.Leases), len(rows.Groups))
		}
	}
	groups := e.pages(e.store, allocator.Query{Pool: poolName, Kind: allocator.QueryGroups, Max: 5}).Groups
	equal(e, "groups", len(groups), len(list)+2)
	if !slices.IsSortedFunc(groups, byGroup) {
		e.Error("groups are not in the order of their bytes")
	}
	equal(e, "attributes", e.acquireOf(p, 0).Attrs, map[string]string{`it's "x"`: `\'"`, "empty": ""})
	for i, x := range list {
		other := e.on(e.store, x, e.holder())
		_, err := other.Create(e.Context(), allocator.Spec{Capacity: i})
		e.ok(err)
	}
	for i, x := range list {
		equal(e, "capacity of pool "+x, e.state(e.on(e.store, x, e.holder())).Capacity, i)
	}
	e.clean(p)
}

// acquireOf returns the slot of the lease that has it.
func (e *env) acquireOf(p *allocator.Pool, index int) allocator.Slot {
	e.Helper()
	x := e.probe(p, index)
	if x.Lease == nil {
		e.Fatalf("slot %d has no lease", index)
	}
	r, err := p.Renew(e.Context(), allocator.Ref{Pool: poolName, ID: x.Lease.ID, Epoch: x.Epoch}, 1)
	e.ok(err)
	return r.Lease.Slots()[0]
}

// labels: pairs are kept as they were given, whatever the caller makes of them later.
func labels(e *env) {
	most := map[string]string{}
	for i := range 16 {
		most[numbered("k", i)] = strings.Repeat("v", 1<<10)
	}
	for i, want := range []map[string]string{nil, {"": ""}, {"a": "", "A": "x", "b": "\n\t'\"\\"}, most} {
		delete(want, "")
		p := e.on(e.store, numbered("labels", i), e.holder())
		attrs := map[string]string{"path": fmt.Sprint("/w/", i)}
		e.create(p, 1, func(s *allocator.Spec) { s.Attrs = map[int]map[string]string{0: attrs} })
		r := ask("a", 1)
		r.Labels = maps.Clone(want)
		l := e.acquireAs(p, r)
		r.Labels = nil
		clear(attrs)
		clear(l.Slots()[0].Attrs)
		list, err := collect(p.Leases(e.Context(), false))
		e.ok(err)
		equal(e, "labels", list[0].Labels, want)
		clear(list[0].Labels)
		r.Labels = want
		equal(e, "existing", e.acquireAs(p, r).Existing(), true)
		equal(e, "attributes", l.Slots()[0].Attrs, map[string]string{"path": fmt.Sprint("/w/", i)})
	}
}
