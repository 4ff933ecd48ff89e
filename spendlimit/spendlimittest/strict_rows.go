package spendlimittest

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/stint-go/stint/spendlimit"
)

// flatLedger is the rows of one ledger. No row here points at another one: its map key, or a key beside it, says where
// a linked row would point.
type flatLedger struct {
	unit     *spendlimit.Unit // nil before first use
	accounts map[string]spendlimit.AccountRow
	limits   map[flatLimitID]spendlimit.LimitRow
	periods  map[flatPeriodID]spendlimit.PeriodRow
	holds    map[string]flatHold
	usages   map[spendlimit.UsageID]spendlimit.UsageRow
	entries  map[string][]flatEntry // by account, by seq
}

type flatLimitID struct {
	account, name string
	gen           int64
}

type flatPeriodID struct {
	limit flatLimitID
	start int64
}

type flatHold struct {
	spendlimit.HoldRow
	parent   string
	accounts []string
	parts    []flatPart
	assumes  []flatAssumption
}

type flatPart struct {
	at    int64
	left  spendlimit.Amount
	lines []flatPeriodID
}

type flatAssumption struct {
	anchor string
	part   int
	amount spendlimit.Amount
}

type flatEntry struct {
	spendlimit.EntryRow
	postings []flatPosting
}

type flatPosting struct {
	spendlimit.Posting
	period *flatPeriodID
}

func newFlatLedger() *flatLedger {
	return &flatLedger{
		accounts: map[string]spendlimit.AccountRow{}, limits: map[flatLimitID]spendlimit.LimitRow{}, periods: map[flatPeriodID]spendlimit.PeriodRow{},
		holds: map[string]flatHold{}, usages: map[spendlimit.UsageID]spendlimit.UsageRow{}, entries: map[string][]flatEntry{},
	}
}

// The fresh functions copy a row: every column, no pointer to another row, and nothing else that a step has left in it.

func freshAccount(a *spendlimit.AccountRow) *spendlimit.AccountRow {
	return &spendlimit.AccountRow{Name: a.Name, Seq: a.Seq, LastUS: a.LastUS, Pruned: a.Pruned}
}

func freshLimit(l *spendlimit.LimitRow) *spendlimit.LimitRow {
	row := &spendlimit.LimitRow{
		Gen: l.Gen, Limit: l.Limit, Rev: l.Rev, Print: l.Print, Prev: l.Prev, SinceUS: l.SinceUS, PinUS: l.PinUS,
		HeldAll: l.HeldAll, Removed: l.Removed,
	}
	row.Limit.Thresholds = slices.Clone(l.Limit.Thresholds)
	return row
}

func freshPeriod(p *spendlimit.PeriodRow) *spendlimit.PeriodRow {
	return &spendlimit.PeriodRow{
		Start: p.Start, End: p.End, Label: p.Label, Mode: p.Mode, Lim: p.Lim, Raise: p.Raise, RaiseUS: p.RaiseUS,
		Spent: p.Spent, Held: p.Held, Overrun: p.Overrun, Cut: p.Cut, CarryIn: p.CarryIn, CarryOut: p.CarryOut,
		Assumed: p.Assumed, Unpriced: p.Unpriced, Fired: slices.Clone(p.Fired),
		BaseSpent: p.BaseSpent, BaseHeld: p.BaseHeld, BaseOverrun: p.BaseOverrun,
	}
}

func freshHold(h *spendlimit.HoldRow) *spendlimit.HoldRow {
	return &spendlimit.HoldRow{
		Key: h.Key, Amount: h.Amount, Min: h.Min, Rest: h.Rest, Free: h.Free, Group: h.Group, Slots: h.Slots, TTL: h.TTL,
		Labels: slices.Clone(h.Labels), Price: h.Price, State: h.State, Granted: h.Granted, Grown: h.Grown,
		Received: h.Received, Own: h.Own, Recorded: h.Recorded, Carved: h.Carved, Covered: h.Covered,
		Returned: h.Returned, Assumed: h.Assumed, EndOwn: h.EndOwn, EndCharge: h.EndCharge, Open: h.Open,
		Marks: h.Marks, Children: h.Children, Depth: h.Depth, ExpiresUS: h.ExpiresUS, BornUS: h.BornUS,
		EndedUS: h.EndedUS, Seq: h.Seq, Binding: h.Binding, Receipt: copyReceipt(h.Receipt),
	}
}

func freshUsage(u *spendlimit.UsageRow) *spendlimit.UsageRow {
	return &spendlimit.UsageRow{
		UsageID: u.UsageID, Kind: u.Kind, Content: u.Content, Cost: u.Cost, Unpriced: u.Unpriced,
		Receipt: copyReceipt(u.Receipt),
	}
}

func freshEntry(e *spendlimit.EntryRow) spendlimit.EntryRow {
	return spendlimit.EntryRow{
		Seq: e.Seq, At: e.At, Kind: e.Kind, Ref: e.Ref, Hold: e.Hold, Reason: e.Reason, Source: e.Source,
		Labels: slices.Clone(e.Labels),
	}
}

func copyReceipt(r spendlimit.Receipt) spendlimit.Receipt {
	r.Crossed = slices.Clone(r.Crossed)
	return r
}

// The put methods take a row apart and store it.

func (l *flatLedger) putAccount(a *spendlimit.AccountRow) {
	l.accounts[a.Name] = *freshAccount(a)
	gone := func(e flatEntry) bool { return e.Seq <= a.Pruned }
	if es := l.entries[a.Name]; len(es) > 0 && gone(es[0]) {
		l.entries[a.Name] = slices.DeleteFunc(es, gone)
	}
}

func (l *flatLedger) putLimit(row *spendlimit.LimitRow) {
	l.limits[flatLimitOf(row)] = *freshLimit(row)
}

func (l *flatLedger) putPeriod(p *spendlimit.PeriodRow) {
	l.periods[flatPeriodOf(p)] = *freshPeriod(p)
}

func (l *flatLedger) putHold(row *spendlimit.HoldRow) {
	h := flatHold{HoldRow: *freshHold(row), accounts: namesOf(row.Accounts)}
	if row.Parent != nil {
		h.parent = row.Parent.Key
	}
	for _, p := range row.Parts() {
		flat := flatPart{at: p.At, left: p.Left}
		for _, line := range p.Lines {
			flat.lines = append(flat.lines, flatPeriodOf(line))
		}
		h.parts = append(h.parts, flat)
	}
	for _, a := range row.Assumes {
		h.assumes = append(h.assumes, flatAssumption{a.Anchor.Key, a.Part, a.Amount})
	}
	l.holds[h.Key] = h
}

func (l *flatLedger) putUsage(u *spendlimit.UsageRow) {
	l.usages[u.UsageID] = *freshUsage(u)
}

func (l *flatLedger) putEntry(row *spendlimit.EntryRow) {
	e := flatEntry{EntryRow: freshEntry(row)}
	for _, g := range row.Postings {
		flat := flatPosting{Posting: g}
		if g.Period != nil {
			id := flatPeriodOf(g.Period)
			flat.period, flat.Period = &id, nil
		}
		e.postings = append(e.postings, flat)
	}
	l.entries[row.Account.Name] = append(l.entries[row.Account.Name], e)
}

// forget deletes a hold with its usages.
func (l *flatLedger) forget(key string) {
	delete(l.holds, key)
	maps.DeleteFunc(l.usages, func(id spendlimit.UsageID, _ spendlimit.UsageRow) bool { return id.Hold == key })
}

func flatLimitOf(l *spendlimit.LimitRow) flatLimitID {
	return flatLimitID{l.Account.Name, l.Limit.Name, l.Gen}
}

func flatPeriodOf(p *spendlimit.PeriodRow) flatPeriodID {
	return flatPeriodID{flatLimitOf(p.Limit), p.Start}
}

func namesOf(rows []*spendlimit.AccountRow) []string {
	var names []string
	for _, a := range rows {
		names = append(names, a.Name)
	}
	return names
}

// The rest are the queries. An index would serve each of them.

// owners names the accounts of a hold: its own and its ancestors'.
func (l *flatLedger) owners(key string) []string {
	h, ok := l.holds[key]
	if !ok {
		return nil
	}
	return append(l.owners(h.parent), h.accounts...)
}

// isOn tells whether an account is among a hold's owners.
func (l *flatLedger) isOn(h flatHold, account string) bool {
	return slices.Contains(h.accounts, account) || h.parent != "" && l.isOn(l.holds[h.parent], account)
}

func flatAny(flatHold) bool    { return true }
func flatLive(h flatHold) bool { return h.State.Live() }

// on lists the holds on an account, its own or inherited, by key.
func (l *flatLedger) on(account string, want func(flatHold) bool) []flatHold {
	var out []flatHold
	for _, h := range l.holds {
		if want(h) && l.isOn(h, account) {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b flatHold) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// below lists the live descendants of a hold.
func (l *flatLedger) below(top string) []flatHold {
	var out []flatHold
	for _, h := range l.holds {
		for up := h.parent; up != ""; up = l.holds[up].parent {
			if up == top && h.State.Live() {
				out = append(out, h)
			}
		}
	}
	slices.SortFunc(out, flatByExpiry)
	return out
}

// prunable tells whether a hold may be deleted: it ended before an instant, nothing about it is open, and no hold that
// stays says that it is its parent.
func (l *flatLedger) prunable(h flatHold, before int64) bool {
	if h.State.Live() || h.EndedUS >= before || h.Marks > 0 {
		return false
	}
	for _, child := range l.holds {
		if child.parent == h.Key {
			return false
		}
	}
	return true
}

// newestLimits lists the newest generation of each of an account's limits, by name.
func (l *flatLedger) newestLimits(account string) []flatLimitID {
	newest := map[string]flatLimitID{}
	for id := range l.limits {
		if have, ok := newest[id.name]; id.account == account && (!ok || have.gen < id.gen) {
			newest[id.name] = id
		}
	}
	var out []flatLimitID
	for _, name := range keysInOrder(newest) {
		out = append(out, newest[name])
	}
	return out
}

// around lists the last period of a limit that starts at or before an instant, and the next one.
func (l *flatLedger) around(id flatLimitID, at int64) []flatPeriodID {
	var out []flatPeriodID
	for _, p := range l.periodsOn(id.account) {
		switch {
		case p.limit != id:
		case p.start <= at:
			out = []flatPeriodID{p}
		default:
			return append(out, p)
		}
	}
	return out
}

// periodsOn lists the periods of all generations of an account's limits, by name, generation and start.
func (l *flatLedger) periodsOn(account string) []flatPeriodID {
	var out []flatPeriodID
	for id := range l.periods {
		if id.limit.account == account {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b flatPeriodID) int {
		return cmp.Or(strings.Compare(a.limit.name, b.limit.name), cmp.Compare(a.limit.gen, b.limit.gen), cmp.Compare(a.start, b.start))
	})
	return out
}

func flatByExpiry(a, b flatHold) int {
	return cmp.Or(cmp.Compare(a.ExpiresUS, b.ExpiresUS), strings.Compare(a.Key, b.Key))
}

func rowsByStart(a, b *spendlimit.PeriodRow) int { return cmp.Compare(a.Start, b.Start) }

func keysInOrder[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
