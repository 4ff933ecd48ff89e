package memory

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/stint-go/stint/internal/fault"
	"github.com/stint-go/stint/spendlimit"
)

// Spend returns the DB's store for spendlimit.
func (db *DB) Spend() spendlimit.Store { return spendStore{db} }

type spendStore struct{ db *DB }

// ledger is the rows of one ledger. The rows themselves are handed to steps; a failed step is reverted.
type ledger struct {
	name     string
	row      *spendlimit.LedgerRow
	accounts map[string]*account
	holds    map[string]*spendlimit.HoldRow
	usages   map[spendlimit.UsageID]*spendlimit.UsageRow
	work     *spendlimit.Work
	locked   []*account // of the running step
	slots    []slot     // the next ones to hand out
}

// account is an account's row with what belongs to it. Its row's Ext points back here.
type account struct {
	row     *spendlimit.AccountRow
	limits  []*spendlimit.LimitRow    // every generation
	holds   list[*spendlimit.HoldRow] // every hold on the account, own or inherited
	live    queue[*spendlimit.HoldRow]
	groups  map[string][]*spendlimit.HoldRow // live members
	entries list[*spendlimit.EntryRow]
	pruned  int64 // entries up to this seq are gone
	locked  bool
}

// slot is a hold's place in the indexes of its accounts, in the order of owners.
type slot struct {
	live  bool
	first [2]place[*spendlimit.HoldRow] // in the queues of the first two accounts
	more  []place[*spendlimit.HoldRow]
}

func (s *slot) place(i int) *place[*spendlimit.HoldRow] {
	if i < len(s.first) {
		return &s.first[i]
	}
	return &s.more[i-len(s.first)]
}

// Step implements spendlimit.Store.
func (st spendStore) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	st.db.mu.Lock()
	defer st.db.mu.Unlock()
	if err := st.db.usable(ctx); err != nil {
		return err
	}
	l := st.db.spend.ledger(n.Ledger)
	kept := false
	defer func() { // also when f panics
		if !kept {
			l.work.Revert()
		}
		l.unlock()
		l.work.Reset()
	}()
	now := l.load(&n, st.db.now())
	if err := f(now, l.work); err != nil || n.ReadOnly {
		return err
	}
	kept = true
	if l.work.Changed() {
		l.apply(l.work.Changes())
	}
	return nil
}

// spend is the rows of spendlimit. The zero value is empty.
type spend struct {
	ledgers map[string]*ledger
	last    *ledger // the one of the last step
}

func (s *spend) ledger(name string) *ledger {
	if s.last != nil && s.last.name == name {
		return s.last
	}
	l := s.ledgers[name]
	if l == nil {
		l = &ledger{
			name:     name,
			accounts: map[string]*account{},
			holds:    map[string]*spendlimit.HoldRow{},
			usages:   map[spendlimit.UsageID]*spendlimit.UsageRow{},
			work:     spendlimit.NewWork(),
		}
		if s.ledgers == nil {
			s.ledgers = map[string]*ledger{}
		}
		s.ledgers[name] = l
	}
	s.last = l
	return l
}

// load puts the rows that n names into the work, and returns the step's now.
func (l *ledger) load(n *spendlimit.Need, clock int64) int64 {
	w := l.work
	if l.row != nil {
		w.AddLedger(l.row)
	}
	for _, name := range n.Accounts {
		if a := l.accounts[name]; a != nil {
			l.lock(a)
		}
	}
	for _, key := range n.Holds {
		if h := l.holds[key]; h != nil {
			w.AddHold(h)
			l.lockAll(h)
		}
	}
	for _, id := range n.Usages {
		if u := l.usages[id]; u != nil {
			w.AddUsage(u)
		}
	}
	rare := len(n.Groups)+len(n.Trees)+len(n.All)+len(n.Journal)+len(n.Expiring)+len(n.Prune) > 0
	if rare {
		l.lockRare(n)
	}
	now := l.loadDue(clock)
	if rare {
		l.loadRare(n, now)
	}
	return now
}

func (l *ledger) lock(a *account) {
	if !a.locked {
		a.locked = true
		l.locked = append(l.locked, a)
		l.work.AddAccount(a.row)
	}
}

func (l *ledger) lockAll(h *spendlimit.HoldRow) {
	for z := h; z != nil; z = z.Parent {
		for _, a := range z.Accounts {
			l.lock(a.Ext.(*account))
		}
	}
}

// lockRare locks the accounts of holds that only few commands need, and may change.
func (l *ledger) lockRare(n *spendlimit.Need) {
	for _, key := range n.Trees {
		if h := l.holds[key]; h != nil {
			for _, d := range l.below(h) {
				l.lockAll(d)
			}
		}
	}
	for _, name := range n.All {
		if a := l.accounts[name]; a != nil {
			for h := range a.live.all {
				l.lockAll(h)
			}
		}
	}
}

func (l *ledger) unlock() {
	for i, a := range l.locked {
		a.locked = false
		a.row.Due, a.row.More = nil, false
		l.locked[i] = nil
	}
	l.locked = l.locked[:0]
}

// loadDue lists the due holds of every locked account, and locks the accounts that these touch too. Every account can
// raise now, which can make more holds due.
func (l *ledger) loadDue(clock int64) int64 {
	now := clock
	for i := 0; i < len(l.locked); i++ {
		now = max(now, l.locked[i].row.LastUS)
	}
	for i := 0; i < len(l.locked); i++ {
		a := l.locked[i]
		a.row.Due, a.row.More = a.live.before(now, spendlimit.MaxDue)
		for _, h := range a.row.Due {
			l.lockAll(h)
		}
		if i == len(l.locked)-1 {
			if again := l.latest(now); again > now {
				now, i = again, -1
			}
		}
	}
	return now
}

func (l *ledger) latest(now int64) int64 {
	for _, a := range l.locked {
		now = max(now, a.row.LastUS)
	}
	return now
}

func (l *ledger) loadGroups(n *spendlimit.Need) {
	for _, a := range l.locked {
		for _, g := range n.Groups {
			if members := a.groups[g]; len(members) > 0 {
				l.work.AddMembers(a.row.Name, g, members)
			}
		}
	}
}

// loadRare adds what only few commands need.
func (l *ledger) loadRare(n *spendlimit.Need, now int64) {
	w := l.work
	l.loadGroups(n)
	for _, key := range n.Trees {
		if h := l.holds[key]; h != nil {
			w.AddTree(key, l.below(h))
		}
	}
	for _, name := range n.Expiring {
		if a := l.accounts[name]; a != nil {
			live, _ := a.live.before(math.MaxInt64, spendlimit.MaxExpiring)
			w.AddExpiring(name, live)
		}
	}
	for _, name := range n.All {
		if a := l.accounts[name]; a != nil {
			w.AddFull(name, a.holds.copy(0, a.holds.len()), a.periods())
		}
	}
	for _, j := range n.Journal {
		if a := l.accounts[j.Account]; a != nil {
			from := a.entries.search(func(e **spendlimit.EntryRow) bool { return (*e).At >= now-j.Span })
			w.AddJournal(j.Account, a.entries.copy(from, a.entries.len()))
		}
	}
	for _, p := range n.Prune {
		if a := l.accounts[p.Account]; a != nil {
			entries, holds := a.prunable(p)
			w.AddPrune(p.Account, entries, holds)
		}
	}
}

func (l *ledger) below(top *spendlimit.HoldRow) []*spendlimit.HoldRow {
	var out []*spendlimit.HoldRow
	root := top
	for root.Parent != nil {
		root = root.Parent
	}
	for h := range root.Accounts[0].Ext.(*account).live.all {
		if h.Under(top) {
			out = append(out, h)
		}
	}
	return out
}

func (a *account) periods() []*spendlimit.PeriodRow {
	var out []*spendlimit.PeriodRow
	for _, l := range a.limits {
		out = append(out, l.Periods...)
	}
	return out
}

func (a *account) prunable(p spendlimit.PruneNeed) ([]*spendlimit.EntryRow, []*spendlimit.HoldRow) {
	n := a.entries.search(func(e **spendlimit.EntryRow) bool { return (*e).At >= p.Before })
	parents := map[*spendlimit.HoldRow]bool{}
	for i := range a.holds.len() {
		parents[(*a.holds.at(i)).Parent] = true
	}
	var holds []*spendlimit.HoldRow
	for i := range a.holds.len() {
		if h := *a.holds.at(i); len(holds) < p.Max && !h.State.Live() && h.EndedUS < p.Before && h.Marks == 0 && !parents[h] {
			holds = append(holds, h)
		}
	}
	return a.entries.copy(0, min(n, p.Max)), holds
}

// apply takes over what a step created, and brings the indexes up to date.
func (l *ledger) apply(c *spendlimit.Changes) {
	if c.NewLedger != nil {
		l.row = c.NewLedger
	}
	for _, row := range c.NewAccounts {
		a := &account{row: row, groups: map[string][]*spendlimit.HoldRow{}, live: queue[*spendlimit.HoldRow]{order: byKey}}
		row.Ext = a
		l.accounts[row.Name] = a
	}
	for _, row := range c.NewLimits {
		a := row.Account.Ext.(*account)
		a.limits = append(a.limits, row)
	}
	for _, h := range c.NewHolds {
		l.holds[h.Key] = h
		l.adopt(h)
		l.index(h)
	}
	for _, h := range c.Holds {
		l.index(h)
	}
	for _, u := range c.NewUsages {
		l.usages[u.UsageID] = u
	}
	for _, e := range c.Entries {
		a := e.Account.Ext.(*account)
		a.entries.append(e)
	}
	for _, row := range c.Accounts {
		if a := row.Ext.(*account); a.pruned < row.Pruned {
			a.pruned = row.Pruned
			a.drop(row.Pruned)
		}
	}
	if len(c.Pruned) > 0 {
		l.forget(c.Pruned)
	}
}

// adopt gives a new hold its place in its accounts.
func (l *ledger) adopt(h *spendlimit.HoldRow) {
	if len(l.slots) == 0 {
		l.slots = make([]slot, 128)
	}
	s := &l.slots[0]
	l.slots = l.slots[1:]
	h.Ext = s
	n := 0
	for a := range owners(h) {
		a.holds.append(h)
		n++
	}
	if n > len(s.first) {
		s.more = make([]place[*spendlimit.HoldRow], n-len(s.first))
	}
	for i := range n {
		s.place(i).of = h
	}
}

// owners yields the accounts of a hold and its ancestors.
func owners(h *spendlimit.HoldRow) func(func(*account) bool) {
	return func(yield func(*account) bool) {
		for z := h; z != nil; z = z.Parent {
			for _, a := range z.Accounts {
				if !yield(a.Ext.(*account)) {
					return
				}
			}
		}
	}
}

// index brings the queues and groups in line with a hold that was changed.
func (l *ledger) index(h *spendlimit.HoldRow) {
	s := h.Ext.(*slot)
	live := h.State.Live()
	if live == s.live && (!live || h.ExpiresUS == s.first[0].ends) {
		return
	}
	was := s.live
	s.live = live
	i := 0
	for a := range owners(h) {
		switch {
		case live && !was:
			a.live.add(s.place(i), h.ExpiresUS)
		case was && !live:
			a.live.remove(s.place(i))
		case live:
			a.live.move(s.place(i), h.ExpiresUS)
		}
		if h.Group != "" && live != was {
			a.member(h, live)
		}
		i++
	}
}

func (a *account) member(h *spendlimit.HoldRow, live bool) {
	if live {
		a.groups[h.Group] = append(a.groups[h.Group], h)
		return
	}
	rest := slices.DeleteFunc(a.groups[h.Group], func(m *spendlimit.HoldRow) bool { return m == h })
	if len(rest) == 0 {
		delete(a.groups, h.Group)
		return
	}
	a.groups[h.Group] = rest
}

// drop deletes the entries up to a seq.
func (a *account) drop(pruned int64) {
	if a.entries.len() > 0 && (*a.entries.at(0)).Seq <= pruned {
		a.entries.drop(a.entries.search(func(e **spendlimit.EntryRow) bool { return (*e).Seq > pruned }))
	}
}

// forget deletes holds with their usages.
func (l *ledger) forget(pruned []*spendlimit.HoldRow) {
	gone := map[*spendlimit.HoldRow]bool{}
	keys := map[string]bool{}
	for _, h := range pruned {
		gone[h], keys[h.Key] = true, true
		delete(l.holds, h.Key)
	}
	accounts := map[*account]bool{}
	for _, h := range pruned {
		for a := range owners(h) {
			accounts[a] = true
		}
	}
	for a := range accounts {
		a.holds.filter(func(h **spendlimit.HoldRow) bool { return !gone[*h] })
	}
	for id := range l.usages {
		if id.Hold != "" && keys[id.Hold] {
			delete(l.usages, id)
		}
	}
}

// Read implements spendlimit.Store.
func (st spendStore) Read(ctx context.Context, q spendlimit.Query) (spendlimit.Page, error) {
	st.db.mu.Lock()
	defer st.db.mu.Unlock()
	if err := st.db.usable(ctx); err != nil {
		return spendlimit.Page{}, err
	}
	l := st.db.spend.ledger(q.Ledger)
	switch q.Kind {
	case spendlimit.QueryHolds:
		return l.readHolds(q), nil
	case spendlimit.QueryDue:
		return l.readDue(q, st.db.now()), nil
	case spendlimit.QueryEntries:
		return l.readEntries(q), nil
	}
	return spendlimit.Page{}, errors.Join(fault.ErrInvalid, errors.New("unknown query"))
}

func (l *ledger) readHolds(q spendlimit.Query) spendlimit.Page {
	var keys []string
	take := func(h *spendlimit.HoldRow) {
		if h.Key > q.AfterKey && (!q.Live || h.State.Live()) {
			keys = append(keys, h.Key)
		}
	}
	if a := l.accounts[q.Account]; a != nil {
		for i := range a.holds.len() {
			take(*a.holds.at(i))
		}
	} else if q.Account == "" {
		for _, h := range l.holds {
			take(h)
		}
	}
	slices.Sort(keys)
	more := len(keys) > q.Max
	return spendlimit.Page{Keys: keys[:min(len(keys), q.Max)], More: more}
}

func (l *ledger) readDue(q spendlimit.Query, now int64) spendlimit.Page {
	var due []*spendlimit.HoldRow
	for _, a := range l.accounts {
		some, _ := a.live.before(max(now, a.row.LastUS), q.Max)
		due = append(due, some...)
	}
	slices.SortFunc(due, byExpiry)
	due = slices.Compact(due)
	var page spendlimit.Page
	for _, h := range due[:min(len(due), q.Max)] {
		page.Keys = append(page.Keys, h.Key)
	}
	return page
}

func (l *ledger) readEntries(q spendlimit.Query) spendlimit.Page {
	var page spendlimit.Page
	a := l.accounts[q.Account]
	if a == nil {
		return page
	}
	from := a.entries.search(func(e **spendlimit.EntryRow) bool { return (*e).Seq > q.AfterSeq })
	to := min(a.entries.len(), from+q.Max)
	page.More = to < a.entries.len()
	for i := from; i < to; i++ {
		page.Entries = append(page.Entries, (*a.entries.at(i)).Detach())
	}
	return page
}

func byKey(a, b *spendlimit.HoldRow) int { return strings.Compare(a.Key, b.Key) }

func byExpiry(a, b *spendlimit.HoldRow) int {
	return cmp.Or(cmp.Compare(a.ExpiresUS, b.ExpiresUS), byKey(a, b))
}
