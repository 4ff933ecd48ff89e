package allocatortest

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/stint-go/stint/allocator"
)

// loaded returns what a store loads for a need: copies that nobody else has.
func (e *env) loaded(s allocator.Store, n allocator.Need) allocator.Rows {
	e.Helper()
	var rows allocator.Rows
	e.ok(s.Step(e.Context(), n, func(_ int64, set *allocator.Set) error {
		rows = copied(set.Rows())
		return nil
	}))
	return rows
}

// rows returns every row that a store has of a pool, leases that ended and rows that can't be read too. Nobody should write
// meanwhile, since it looks twice.
func (e *env) rows(s allocator.Store, pool string) allocator.Rows {
	e.Helper()
	rows := e.loaded(s, allocator.Need{Pool: pool, ReadOnly: true, All: true})
	list := e.pages(s, allocator.Query{Pool: pool, Kind: allocator.QueryLeases, Max: 1000})
	rows.Leases = list.Leases
	rows.Raws = append(rows.Raws, list.Raws...)
	byName := func(a, b *allocator.Raw) int { return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Key, b.Key)) }
	slices.SortFunc(rows.Raws, byName)
	rows.Raws = slices.CompactFunc(rows.Raws, func(a, b *allocator.Raw) bool { return byName(a, b) == 0 })
	return rows
}

// pages reads a list page by page. It does not do for changes, where slots and leases count together.
func (e *env) pages(s allocator.Store, q allocator.Query) (all allocator.Rows) {
	e.Helper()
	for {
		rows := e.page(s, q)
		n := len(rows.Leases) + len(rows.Tickets) + len(rows.Groups) + len(rows.Raws)
		if n > q.Max || rows.More && n < q.Max {
			e.Fatalf("a page of %d, at most %d, more %v", n, q.Max, rows.More)
		}
		all.Pool = rows.Pool
		all.Leases = append(all.Leases, rows.Leases...)
		all.Tickets = append(all.Tickets, rows.Tickets...)
		all.Groups = append(all.Groups, rows.Groups...)
		all.Raws = append(all.Raws, rows.Raws...)
		if !rows.More {
			return all
		}
		after, group := lastOf(rows)
		if after <= q.After && group <= q.Group {
			e.Fatalf("a page after %d %v ends at %d %v", q.After, q.Group, after, group)
		}
		q.After, q.Group = after, group
	}
}

// lastOf is after which row a list goes on.
func lastOf(rows allocator.Rows) (after int64, group allocator.GroupKey) {
	for _, l := range rows.Leases {
		after = max(after, int64(l.Epoch))
	}
	for _, r := range rows.Raws {
		after = max(after, int64(r.Epoch), r.Seq)
	}
	for _, t := range rows.Tickets {
		after = max(after, t.Seq)
	}
	for _, g := range rows.Groups {
		group = max(group, g.Key)
	}
	return after, group
}

// copied is rows with all that they point at.
func copied(rows allocator.Rows) allocator.Rows {
	out := allocator.Rows{More: rows.More}
	if rows.Pool != nil {
		out.Pool = freshPool(rows.Pool)
	}
	out.Slots = copies(rows.Slots, freshSlot)
	out.Leases = copies(rows.Leases, freshLease)
	out.Tickets = copies(rows.Tickets, freshTicket)
	out.Groups = copies(rows.Groups, freshGroup)
	out.Raws = copies(rows.Raws, freshRaw)
	return out
}

func copies[R any](list []*R, fresh func(R) R) []*R {
	var out []*R
	for _, r := range list {
		c := fresh(*r)
		out = append(out, &c)
	}
	return out
}

func freshRaw(r allocator.Raw) allocator.Raw {
	r.Columns = slices.Clone(r.Columns)
	for i := range r.Columns {
		r.Columns[i].Value = slices.Clone(r.Columns[i].Value)
	}
	return r
}

// drawNeed draws what a step of a script's pool might ask for: some of it is there.
func drawNeed(d *rand.Rand) allocator.Need {
	n := allocator.Need{Pool: poolName, ReadOnly: d.IntN(2) == 0}
	on := func() bool { return d.IntN(4) == 0 }
	count := func(most int) int {
		if on() {
			return d.IntN(most)
		}
		return 0
	}
	if on() {
		n.Attempts = []string{drawAttempt(d), drawAttempt(d), drawAttempt(d)}
	}
	if on() {
		n.Epochs = []uint64{uint64(d.IntN(30)), uint64(d.IntN(200)), uint64(d.IntN(200))}
	}
	if on() {
		n.Slots = []int{d.IntN(6), d.IntN(30), 9999}
	}
	if on() {
		n.Groups = []allocator.GroupKey{allocator.KeyOf(drawGroup(d)...), allocator.KeyOf("nobody")}
	}
	if on() {
		n.Incarnation[0] = byte(1 + d.IntN(scriptProcesses+1))
	}
	n.Timely, n.Next, n.All = on(), on(), d.IntN(30) == 0
	n.Due, n.Free, n.Heads, n.Purge = count(6), count(10), count(4), count(6)
	return n
}

// drawQuery is like drawNeed.
func drawQuery(d *rand.Rand) allocator.Query {
	q := allocator.Query{Pool: poolName, Kind: allocator.QueryKind(1 + d.IntN(int(allocator.QueryChanges))), Max: 1 + d.IntN(12)}
	switch d.IntN(3) {
	case 0:
		q.After, q.Group = int64(d.IntN(20)), allocator.KeyOf(drawGroup(d)...)
	case 1:
		q.After = int64(d.IntN(300))
	}
	q.Boot = []string{"", "boot", "Boot"}[d.IntN(3)]
	q.Namespace = []string{"", "ns", "nobody"}[d.IntN(3)]
	q.Host = []string{"", "host", "nobody"}[d.IntN(3)]
	return q
}

// page reads one page: a copy.
func (e *env) page(s allocator.Store, q allocator.Query) allocator.Rows {
	e.Helper()
	rows, err := s.Page(e.Context(), q)
	e.ok(err)
	return copied(rows)
}
