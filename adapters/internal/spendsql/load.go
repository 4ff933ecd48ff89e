package spendsql

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/spendlimit"
)

// errGone says that a hold is not there. An ended hold may be pruned by a step on any one of its accounts, between two statements of
// a step on another.
var errGone = fmt.Errorf("a hold is %w", sqlrow.ErrGone)

// Grown is accounts that a step has to lock beside those that its need tells of.
type Grown struct {
	ids   []int64
	names []string // of those that have to be made first
}

// Step is one step's way from records to linked rows and back: each row once, whoever points at it. The records stay as they
// are stored; the rows are the work's.
type Step struct {
	Work  *spendlimit.Work
	Now   int64
	Clock int64 // the time after the locks, where the database says it

	ctx    context.Context
	conn   sqlrow.Conn
	q      *Queries
	need   *spendlimit.Need
	ledger int64          // 0: not stored yet
	locked map[int64]bool // accounts, by id
	grown  map[int64]bool // those that have to be
	toMake []string       // those that have to be made before

	// What was read, by id, and what has been linked of it.
	records struct {
		accounts map[int64]*accountRec
		limits   map[int64]*limitRec
		periods  map[int64]*periodRec
		holds    map[int64]*holdRec
		usages   map[spendlimit.UsageID]*usageRec
		byKey    map[string]*holdRec
		byName   map[string]*accountRec
	}
	accounts map[int64]*spendlimit.AccountRow
	limits   map[int64]*spendlimit.LimitRow
	periods  map[int64]*spendlimit.PeriodRow
	holds    map[int64]*spendlimit.HoldRow
	ids      struct { // of rows that have no place for it
		limits  map[*spendlimit.LimitRow]int64
		periods map[*spendlimit.PeriodRow]int64
	}

	made   map[string]int64        // accounts that were made to be locked
	state  map[int64]*accountState // of locked accounts with limits
	latest int64                   // the latest start of the newest period of a limit
	cache  *Cache
	saved  saved
	want   []int64    // holds that have yet to be read
	mine   []int64    // holds that the step may change: all their accounts must be locked
	finish []func()   // links the lists, once all rows are there
	posted []int64    // periods of postings
	lists  []*[]int64 // of holds that the step may change if they are live
}

// Begin locks the accounts that a need tells of, and more, and reads what can be named before they are known.
// What is in the cache is not read. A dialect with Shared has none.
func Begin(ctx context.Context, conn sqlrow.Conn, q *Queries, n *spendlimit.Need, more Grown, cache *Cache) (*Step, error) {
	s := newStep(ctx, conn, q, n)
	if cache != nil {
		s.cache = cache
	}
	l, err := s.findLedger()
	if err != nil {
		return s, err
	}
	if l.id == 0 {
		return s, s.run(s.now()...)
	}
	s.ledger = l.id
	s.Work.AddLedger(&l.row)
	if err := s.createAccounts(more.names); err != nil {
		return s, err
	}
	ids, err := s.find(more.ids)
	if err != nil {
		return s, err
	}
	return s, s.lock(ids)
}

type ledgerRec struct {
	id  int64
	row spendlimit.LedgerRow
}

// findLedger knows ledgers that were read before: their rows never change.
func (s *Step) findLedger() (l ledgerRec, err error) {
	if s.q.known != nil {
		if known, ok := s.q.known.Load(s.need.Ledger); ok {
			return known.(ledgerRec), nil
		}
	}
	err = s.run(s.stmt(s.q.ledger, func(r sqlrow.Row) error {
		return r.Scan(&l.id, &l.row.Name, &l.row.Unit.Code, &l.row.Unit.Scale)
	}, s.need.Ledger))
	if err == nil && l.id != 0 && s.q.known != nil {
		s.q.known.Store(s.need.Ledger, l)
	}
	return l, err
}

func newStep(ctx context.Context, conn sqlrow.Conn, q *Queries, n *spendlimit.Need) *Step {
	s := &Step{
		Work: spendlimit.NewWork(), ctx: ctx, conn: conn, q: q, need: n, locked: map[int64]bool{}, grown: map[int64]bool{},
		accounts: map[int64]*spendlimit.AccountRow{}, limits: map[int64]*spendlimit.LimitRow{}, periods: map[int64]*spendlimit.PeriodRow{},
		holds: map[int64]*spendlimit.HoldRow{}, state: map[int64]*accountState{}, made: map[string]int64{},
		latest: math.MinInt64, cache: new(Cache),
	}
	s.records.accounts, s.records.limits, s.records.periods = map[int64]*accountRec{}, map[int64]*limitRec{}, map[int64]*periodRec{}
	s.records.usages = map[spendlimit.UsageID]*usageRec{}
	s.records.holds, s.records.byKey, s.records.byName = map[int64]*holdRec{}, map[string]*holdRec{}, map[string]*accountRec{}
	s.ids.limits, s.ids.periods = map[*spendlimit.LimitRow]int64{}, map[*spendlimit.PeriodRow]int64{}
	return s
}

func (s *Step) stmt(text string, each func(sqlrow.Row) error, args ...any) sqlrow.Stmt {
	return s.q.d.Stmt(text, each, args...)
}

func (s *Step) run(list ...sqlrow.Stmt) error {
	if len(list) == 0 {
		return nil
	}
	return s.conn.Run(s.ctx, list...)
}

// liveStates lists the states that spendlimit calls live.
var liveStates = func() (list []int64) {
	for state := range spendlimit.State(64) {
		if state.Live() {
			list = append(list, int64(state))
		}
	}
	return list
}()

// find adds the accounts of holds that are not named by their keys. The accounts of a hold never change, so that they can be
// found before they are locked (C2).
func (s *Step) find(ids []int64) ([]int64, error) {
	ids = slices.Clone(ids)
	each := func(r sqlrow.Row) error {
		list, err := readOwners(r)
		ids = append(ids, list...)
		return err
	}
	var list []sqlrow.Stmt
	if len(s.need.Trees) > 0 {
		list = append(list, s.stmt(s.q.ownersBelow, each, s.ledger, s.need.Trees, liveStates))
	}
	if len(s.need.All) > 0 {
		list = append(list, s.stmt(s.q.ownersLive, each, s.ledger, s.need.All))
	}
	err := s.run(list...)
	slices.Sort(ids)
	return slices.Compact(ids), err
}

func readOwners(r sqlrow.Row) ([]int64, error) {
	var text string
	if err := r.Scan(&text); err != nil {
		return nil, err
	}
	return sqlrow.ParseIDs(text)
}

// lock locks the accounts: those that the need names, those of the holds that it names, and those with ids. What it names
// is read on the way.
func (s *Step) lock(ids []int64) error {
	n := s.need
	text := s.q.accounts
	if n.ReadOnly {
		text = s.q.accountsSeen
	}
	if s.q.d.Shared {
		for _, key := range n.Holds {
			ids = append(ids, s.q.hints.of(nameOf{s.ledger, key})...)
		}
		slices.Sort(ids)
		ids = slices.Compact(ids)
		list := append([]sqlrow.Stmt{s.stmt(text, s.readLocked, s.ledger, n.Accounts, ids)}, s.now()...)
		list = append(list, s.stmt(s.q.state, s.readState, s.ledger, n.Accounts, ids))
		return s.run(append(list, s.readHoldsNamed(n.Holds)...)...)
	}
	if err := s.run(s.readHoldsNamed(s.takeHolds(n.Holds))...); err != nil {
		return err
	}
	for _, h := range s.records.holds {
		ids = append(ids, h.ownerIDs...)
	}
	names, ids := s.takeAccounts(n.Accounts, ids)
	if len(names)+len(ids) == 0 {
		return nil
	}
	var read []int64
	each := func(r sqlrow.Row) error {
		id, err := s.readAccount(r)
		read = append(read, id)
		return err
	}
	if err := s.run(s.stmt(text, each, s.ledger, names, ids)); err != nil || len(read) == 0 {
		return err
	}
	return s.run(s.stmt(s.q.state, s.readState, read))
}

// readHoldsNamed reads holds by their keys, and the usages of the step.
func (s *Step) readHoldsNamed(keys []string) []sqlrow.Stmt {
	list := s.readUsages()
	if len(keys) > 0 {
		list = append(list, s.stmt(s.q.holdsByKey, s.readHold, s.ledger, keys))
	}
	return list
}

// takeHolds takes holds from the cache, and returns the keys of the others.
func (s *Step) takeHolds(keys []string) (others []string) {
	for _, key := range keys {
		if h := s.cache.byKey[nameOf{s.ledger, key}]; h != nil {
			s.addHold(h)
		} else {
			others = append(others, key)
		}
	}
	return others
}

// takeAccounts takes accounts from the cache, and returns the names and ids of the others.
func (s *Step) takeAccounts(names []string, ids []int64) (otherNames []string, otherIDs []int64) {
	for _, name := range names {
		if !s.take(s.cache.byName[nameOf{s.ledger, name}]) {
			otherNames = append(otherNames, name)
		}
	}
	for _, id := range ids {
		if !s.take(s.cache.accounts[id]) {
			otherIDs = append(otherIDs, id)
		}
	}
	return otherNames, otherIDs
}

func (s *Step) take(a *accountState) bool {
	if a == nil {
		return false
	}
	s.addAccount(a.account)
	s.state[a.account.id] = a
	for i, m := range a.limits {
		s.records.limits[m.id] = m
		s.addNewest(a.newest[i])
	}
	return true
}

func (s *Step) addAccount(a *accountRec) {
	s.records.accounts[a.id], s.records.byName[a.row.Name], s.locked[a.id] = a, a, true
}

func (s *Step) addNewest(p *periodRec) {
	if p != nil {
		s.records.periods[p.id] = p
		s.latest = max(s.latest, p.row.Start)
	}
}

func (s *Step) readLocked(r sqlrow.Row) error {
	_, err := s.readAccount(r)
	return err
}

// readAccount reads an account of the step.
func (s *Step) readAccount(r sqlrow.Row) (int64, error) {
	a := new(accountRec)
	if err := r.Scan(a.fields()...); err != nil {
		return 0, err
	}
	switch {
	case a.ledger != s.ledger: // a hint from before a crash: see hints
		return a.id, nil
	case s.made[a.row.Name] == a.id: // for the step it is not there yet
		return a.id, nil
	}
	delete(s.made, a.row.Name) // somebody else was faster
	s.addAccount(a)
	return a.id, nil
}

// readState reads a limit in force with its newest period. An account that came in after the locks were taken is not the step's.
func (s *Step) readState(r sqlrow.Row) error {
	m, p := new(limitRec), new(periodRec)
	var first int64
	var newest *int64
	fields := append(append([]any{&first}, m.fields()...), append([]any{&newest}, p.fields()[1:]...)...)
	if err := r.Scan(fields...); err != nil {
		return err
	}
	if !s.locked[m.account] {
		return nil
	}
	if newest == nil {
		p = nil
	} else {
		p.id = *newest
		if err := p.unpack(); err != nil {
			return err
		}
	}
	a := s.state[m.account]
	if a == nil {
		a = &accountState{account: s.records.accounts[m.account], first: first}
		s.state[m.account] = a
	}
	a.limits, a.newest = append(a.limits, m), append(a.newest, p)
	s.records.limits[m.id] = m
	s.addNewest(p)
	return m.unpack()
}

// now reads the database's clock, if it has one.
func (s *Step) now() []sqlrow.Stmt {
	if s.q.d.Now == "" {
		return nil
	}
	return []sqlrow.Stmt{s.stmt(s.q.d.Now, func(r sqlrow.Row) error { return r.Scan(&s.Clock) })}
}

// createAccounts makes accounts that are missing, because a row that is not there can't be locked (C3). Whoever makes the
// same one waits here, before anything is locked.
func (s *Step) createAccounts(names []string) error {
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	names = slices.Compact(names)
	ids, err := s.conn.NewIDs(s.ctx, accounts, len(names))
	if err != nil {
		return err
	}
	var w sqlrow.Writer
	for i, name := range names {
		s.made[name] = ids[i]
		made := accountRec{id: ids[i], ledger: s.ledger, row: spendlimit.AccountRow{Name: name}}
		w.Insert(accounts, made.fields())
	}
	return s.run(w.List(s.q.d, accounts)...)
}

// Load reads the rest of the rows of the step, and links them. clock is the time after the locks, in microseconds (C5). It is
// ErrGrew when other accounts turn out to be needed.
func (s *Step) Load(clock int64) error {
	s.Now = clock
	for id := range s.locked {
		s.Now = max(s.Now, s.records.accounts[id].row.LastUS)
	}
	if s.ledger == 0 {
		return nil
	}
	if s.q.d.Shared && !s.need.ReadOnly {
		for _, name := range s.need.Accounts {
			if _, ok := s.made[name]; !ok && s.records.byName[name] == nil {
				s.toMake = append(s.toMake, name)
			}
		}
		if len(s.toMake) > 0 {
			return sqlrow.ErrGrew
		}
	}
	if err := s.readNamed(); err != nil {
		return err
	}
	if err := s.readHolds(); err != nil {
		return err
	}
	if err := s.readPointedAt(); err != nil {
		return err
	}
	if len(s.grown) > 0 {
		return s.follow()
	}
	s.link()
	return nil
}

// follow is ErrGrew, once it has looked for the accounts to which holds lead that are due on the missing accounts, and on those, and
// so on: the step begins again once, not once for each account on the way.
func (s *Step) follow() error {
	looked := map[int64]bool{}
	for {
		var ids []int64
		for id := range s.grown {
			if !looked[id] {
				ids, looked[id] = append(ids, id), true
			}
		}
		if len(ids) == 0 {
			return sqlrow.ErrGrew
		}
		err := s.run(s.stmt(s.q.ownersDue, func(r sqlrow.Row) error {
			list, err := readOwners(r)
			for _, owner := range list {
				if !s.locked[owner] {
					s.grown[owner] = true
				}
			}
			return err
		}, ids, s.Now))
		if err != nil {
			return err
		}
	}
}

// Grown lists the accounts of the step and those that it turned out to need. Those that it has made are taken back with it, so
// that they have to be made again.
func (s *Step) Grown() Grown {
	return Grown{
		ids:   slices.Concat(slices.Collect(maps.Keys(s.locked)), slices.Collect(maps.Keys(s.grown))),
		names: slices.Concat(s.toMake, slices.Collect(maps.Keys(s.made))),
	}
}

// readNamed reads what can be named now that the accounts and the time are known: periods around the instants of the step, where
// the newest is not the one, the ids of holds that are due, and what else the need asks for.
func (s *Step) readNamed() error {
	n, locked := s.need, slices.Sorted(maps.Keys(s.locked))
	var list []sqlrow.Stmt
	add := func(st sqlrow.Stmt) { list = append(list, st) }
	for _, at := range append([]int64{s.Now}, n.Times...) {
		if s.latest > at { // else the newest period of each limit is the last that starts at or before it, and none comes next
			add(s.stmt(s.q.around, func(r sqlrow.Row) error { _, err := s.readPeriod(r); return err }, locked, at))
		}
	}
	var due, unlimited []int64
	for _, id := range locked {
		switch a := s.state[id]; {
		case a == nil:
			unlimited = append(unlimited, id)
		case a.first < s.Now:
			due = append(due, id)
		}
	}
	if len(unlimited) > 0 {
		add(s.stmt(s.q.dueOn, func(r sqlrow.Row) error {
			var id int64
			err := r.Scan(&id)
			due = append(due, id)
			return err
		}, unlimited, s.Now))
	}
	if len(n.Groups) > 0 && len(locked) > 0 {
		s.listMembers(add, locked)
	}
	for _, key := range n.Trees {
		below := s.holdList(add, s.q.below, s.ledger, []string{key}, liveStates)
		s.lists = append(s.lists, below)
		s.finish = append(s.finish, func() { s.Work.AddTree(key, s.linkAll(*below)) })
	}
	for _, name := range n.Expiring {
		if a := s.records.byName[name]; a != nil {
			first := s.holdList(add, s.q.expiring, a.id)
			s.finish = append(s.finish, func() { s.Work.AddExpiring(name, s.linkAll(*first)) })
		}
	}
	for _, name := range n.All {
		if a := s.records.byName[name]; a != nil {
			s.listAll(add, a)
		}
	}
	for _, name := range n.Periods {
		if a := s.records.byName[name]; a != nil {
			add(s.stmt(s.q.periodsOf, func(r sqlrow.Row) error { _, err := s.readPeriod(r); return err }, a.id))
		}
	}
	for _, j := range n.Journal {
		if a := s.records.byName[j.Account]; a != nil {
			found := s.listEntries(add, s.q.journal, a.id, s.Now-j.Span)
			s.finish = append(s.finish, func() { s.Work.AddJournal(j.Account, s.linkEntries(found)) })
		}
	}
	for _, p := range n.Prune {
		if a := s.records.byName[p.Account]; a != nil {
			found := s.listEntries(add, s.q.oldest, a.id, p.Before, p.Max)
			ended := s.holdList(add, s.q.prunable, a.id, p.Before, p.Max)
			s.finish = append(s.finish, func() { s.Work.AddPrune(p.Account, s.linkEntries(found), s.linkAll(*ended)) })
		}
	}
	if err := s.run(list...); err != nil {
		return err
	}
	list = nil
	for _, id := range due {
		s.listDue(add, id)
	}
	return s.run(list...)
}

// holdList reads ids of holds, and wants the holds.
func (s *Step) holdList(add func(sqlrow.Stmt), text string, args ...any) *[]int64 {
	ids := new([]int64)
	add(s.stmt(text, func(r sqlrow.Row) error {
		var id int64
		err := r.Scan(&id)
		*ids = append(*ids, id)
		s.want = append(s.want, id)
		return err
	}, args...))
	return ids
}

func (s *Step) listDue(add func(sqlrow.Stmt), account int64) {
	due := new([]int64)
	add(s.stmt(s.q.due, func(r sqlrow.Row) error {
		var id int64
		err := r.Scan(&id)
		if *due = append(*due, id); len(*due) <= spendlimit.MaxDue {
			s.want, s.mine = append(s.want, id), append(s.mine, id)
		}
		return err
	}, account, s.Now))
	s.finish = append(s.finish, func() {
		a := s.account(account)
		a.Due, a.More = s.linkAll((*due)[:min(len(*due), spendlimit.MaxDue)]), len(*due) > spendlimit.MaxDue
	})
}

func (s *Step) listMembers(add func(sqlrow.Stmt), locked []int64) {
	type group struct {
		account int64
		name    string
	}
	members := map[group][]int64{}
	add(s.stmt(s.q.members, func(r sqlrow.Row) error {
		var g group
		var id int64
		err := r.Scan(&g.account, &id, &g.name)
		members[g] = append(members[g], id)
		s.want = append(s.want, id)
		return err
	}, locked, s.need.Groups))
	s.finish = append(s.finish, func() {
		for g, ids := range members {
			slices.Sort(ids)
			s.Work.AddMembers(s.account(g.account).Name, g.name, s.linkAll(ids))
		}
	})
}

func (s *Step) listAll(add func(sqlrow.Stmt), a *accountRec) {
	holds := s.holdList(add, s.q.on, a.id)
	s.lists = append(s.lists, holds)
	var periods []int64
	add(s.stmt(s.q.periodsOf, func(r sqlrow.Row) error {
		p, err := s.readPeriod(r)
		if err == nil {
			periods = append(periods, p.id)
		}
		return err
	}, a.id))
	s.finish = append(s.finish, func() {
		var rows []*spendlimit.PeriodRow
		for _, id := range periods {
			rows = append(rows, s.period(id))
		}
		s.Work.AddFull(a.row.Name, s.linkAll(*holds), rows)
	})
}

// journal is entries of one account.
type journal struct {
	account int64
	entries []*entryRec
}

func (s *Step) listEntries(add func(sqlrow.Stmt), text string, account int64, args ...any) *journal {
	j := &journal{account: account}
	add(s.stmt(text, func(r sqlrow.Row) error { return s.readEntry(r, j) }, append([]any{account}, args...)...))
	return j
}

// readEntry reads the next entry of a journal; before are columns that come before its own.
func (s *Step) readEntry(r sqlrow.Row, j *journal, before ...any) error {
	e := new(entryRec)
	j.entries = append(j.entries, e)
	if err := r.Scan(append(before, e.fields()...)...); err != nil {
		return err
	}
	if err := e.unpack(); err != nil {
		return fmt.Errorf("entry %d: %w", e.row.Seq, err)
	}
	for _, p := range e.posts {
		if p[0] != 0 {
			s.posted = append(s.posted, p[0])
		}
	}
	return nil
}

func (s *Step) readHold(r sqlrow.Row) error {
	h := new(holdRec)
	if err := r.Scan(h.fields()...); err != nil {
		return err
	}
	if err := h.unpack(); err != nil {
		return fmt.Errorf("hold %d: %w", h.id, err)
	}
	if s.q.d.Shared && h.row.State.Live() {
		s.q.hints.add(nameOf{h.ledger, h.row.Key}, h.ownerIDs)
	}
	s.addHold(h)
	return nil
}

func (s *Step) addHold(h *holdRec) {
	s.records.holds[h.id], s.records.byKey[h.row.Key] = h, h
	if h.parent != nil {
		s.want = append(s.want, *h.parent)
	}
	for _, a := range h.assumptions {
		s.want = append(s.want, a.Anchor)
	}
}

// readHolds reads the other holds that are wanted, and those that these point at, until none is missing.
func (s *Step) readHolds() error {
	for {
		ids := sqlrow.Missing(s.records.holds, s.want)
		ids = slices.DeleteFunc(ids, func(id int64) bool {
			h := s.cache.holds[id]
			if h != nil {
				s.addHold(h)
			}
			return h != nil
		})
		if len(sqlrow.Missing(s.records.holds, s.want)) == 0 {
			break
		}
		if len(ids) == 0 { // the cache had all of them, but they want others
			continue
		}
		before := len(s.records.holds)
		if err := s.run(s.stmt(s.q.holdsByID, s.readHold, ids)); err != nil {
			return err
		}
		if len(s.records.holds) == before {
			return fmt.Errorf("%w: %d", errGone, ids[0])
		}
	}
	for _, key := range s.need.Holds {
		if h := s.records.byKey[key]; h != nil {
			s.mine = append(s.mine, h.id)
		}
	}
	for _, list := range s.lists {
		for _, id := range *list {
			if s.records.holds[id].row.State.Live() {
				s.mine = append(s.mine, id)
			}
		}
	}
	for _, id := range s.mine {
		for _, owner := range s.records.holds[id].ownerIDs {
			if !s.locked[owner] {
				s.grown[owner] = true
			}
		}
	}
	return nil
}

func (s *Step) readLimit(r sqlrow.Row) (*limitRec, error) {
	m := new(limitRec)
	if err := r.Scan(m.fields()...); err != nil {
		return nil, err
	}
	s.records.limits[m.id] = m
	return m, m.unpack()
}

func (s *Step) readPeriod(r sqlrow.Row) (*periodRec, error) {
	p := new(periodRec)
	if err := r.Scan(p.fields()...); err != nil {
		return nil, err
	}
	s.records.periods[p.id] = p
	return p, p.unpack()
}

// readPointedAt reads the periods of holds and postings that are not there yet, and what these point at.
func (s *Step) readPointedAt() error {
	if ids := s.periodsPointedAt(); len(ids) > 0 {
		err := s.run(s.stmt(s.q.periodsByID, func(r sqlrow.Row) error { _, err := s.readPeriod(r); return err }, ids))
		if err == nil {
			err = sqlrow.Dangling("period", sqlrow.Missing(s.records.periods, ids))
		}
		if err != nil {
			return err
		}
	}
	var limits []int64
	for _, p := range s.records.periods {
		limits = append(limits, p.limit)
	}
	if ids := sqlrow.Missing(s.records.limits, limits); len(ids) > 0 {
		err := s.run(s.stmt(s.q.limitsByID, func(r sqlrow.Row) error { _, err := s.readLimit(r); return err }, ids))
		if err == nil {
			err = sqlrow.Dangling("limit", sqlrow.Missing(s.records.limits, ids))
		}
		if err != nil {
			return err
		}
	}
	return s.readOtherAccounts()
}

func (s *Step) periodsPointedAt() []int64 {
	ids := s.posted
	for _, h := range s.records.holds {
		ids = append(ids, h.points()...)
	}
	return sqlrow.Missing(s.records.periods, ids)
}

// readUsages reads the usages that the need names.
func (s *Step) readUsages() []sqlrow.Stmt {
	var loose, ids, keys []string
	for _, u := range s.need.Usages {
		if u.Hold == "" {
			loose = append(loose, u.ID)
		} else {
			ids, keys = append(ids, u.ID), append(keys, u.Hold)
		}
	}
	each := func(r sqlrow.Row) error {
		u := new(usageRec)
		if err := r.Scan(append(u.fields(), &u.row.Hold)...); err != nil {
			return err
		}
		row, err := u.unpack()
		if err == nil && slices.Contains(s.need.Usages, row.UsageID) { // not the id of one with the hold of another
			s.records.usages[row.UsageID] = u
			s.Work.AddUsage(row)
		}
		return err
	}
	var list []sqlrow.Stmt
	if len(loose) > 0 {
		list = append(list, s.stmt(s.q.usages, each, s.ledger, loose))
	}
	if len(ids) > 0 {
		list = append(list, s.stmt(s.q.usagesOf, each, s.ledger, keys, ids))
	}
	return list
}

// readOtherAccounts reads the accounts of rows that are only looked at.
func (s *Step) readOtherAccounts() error {
	var ids []int64
	for _, m := range s.records.limits {
		ids = append(ids, m.account)
	}
	for _, h := range s.records.holds {
		ids = append(ids, h.accountIDs...)
	}
	return s.readAccounts(ids...)
}

func (s *Step) readAccounts(ids ...int64) error {
	if ids = sqlrow.Missing(s.records.accounts, ids); len(ids) == 0 {
		return nil
	}
	err := s.run(s.stmt(s.q.accountsByID, func(r sqlrow.Row) error {
		a := new(accountRec)
		err := r.Scan(a.fields()...)
		s.records.accounts[a.id] = a
		return err
	}, ids))
	if err != nil {
		return err
	}
	return sqlrow.Dangling("account", sqlrow.Missing(s.records.accounts, ids))
}

// link fills the work.
func (s *Step) link() {
	for id := range s.locked {
		a := s.account(id)
		if state := s.state[id]; state != nil {
			for _, m := range state.limits {
				a.Limits = append(a.Limits, s.limit(m.id))
			}
		}
		s.Work.AddAccount(a)
	}
	for id := range s.records.periods {
		s.period(id)
	}
	for _, key := range s.need.Holds {
		if h := s.records.byKey[key]; h != nil {
			s.Work.AddHold(s.hold(h.id))
		}
	}
	for _, f := range s.finish {
		f()
	}
}

func (s *Step) linkAll(ids []int64) []*spendlimit.HoldRow {
	var out []*spendlimit.HoldRow
	for _, id := range ids {
		out = append(out, s.hold(id))
	}
	return out
}

func (s *Step) account(id int64) *spendlimit.AccountRow {
	row := s.accounts[id]
	if row == nil {
		r := &s.records.accounts[id].row
		row = &spendlimit.AccountRow{Name: r.Name, Seq: r.Seq, LastUS: r.LastUS, Pruned: r.Pruned, Ext: id}
		s.accounts[id] = row
	}
	return row
}

func (s *Step) limit(id int64) *spendlimit.LimitRow {
	row := s.limits[id]
	if row == nil {
		rec := s.records.limits[id]
		row = new(spendlimit.LimitRow)
		*row = rec.row
		row.Account = s.account(rec.account)
		row.Limit.Account = row.Account.Name
		s.limits[id], s.ids.limits[row] = row, id
	}
	return row
}

func (s *Step) period(id int64) *spendlimit.PeriodRow {
	row := s.periods[id]
	if row == nil {
		rec := s.records.periods[id]
		row = new(spendlimit.PeriodRow)
		*row = rec.row
		row.Limit = s.limit(rec.limit)
		i, _ := slices.BinarySearchFunc(row.Limit.Periods, row.Start, func(p *spendlimit.PeriodRow, at int64) int { return cmp.Compare(p.Start, at) })
		row.Limit.Periods = slices.Insert(row.Limit.Periods, i, row)
		s.periods[id], s.ids.periods[row] = row, id
	}
	return row
}

func (s *Step) hold(id int64) *spendlimit.HoldRow {
	row := s.holds[id]
	if row != nil {
		return row
	}
	rec := s.records.holds[id]
	row = new(spendlimit.HoldRow)
	*row = rec.row
	s.holds[id] = row
	row.Ext = rec
	if rec.parent != nil {
		row.Parent = s.hold(*rec.parent)
	}
	for _, a := range rec.accountIDs {
		row.Accounts = append(row.Accounts, s.account(a))
	}
	row.Part.Lines = s.lines(rec.periodIDs)
	for _, p := range rec.later {
		row.More = append(row.More, spendlimit.Part{At: p.At, Left: spendlimit.Amount(p.Left), Lines: s.lines(p.Periods)})
	}
	for _, a := range rec.assumptions {
		row.Assumes = append(row.Assumes, spendlimit.Assumption{Anchor: s.hold(a.Anchor), Part: a.Part, Amount: spendlimit.Amount(a.Amount)})
	}
	return row
}

func (s *Step) lines(ids []int64) []*spendlimit.PeriodRow {
	list := make([]*spendlimit.PeriodRow, len(ids))
	for i, id := range ids {
		list[i] = s.period(id)
	}
	return list
}

func (s *Step) linkEntries(j *journal) []*spendlimit.EntryRow {
	var out []*spendlimit.EntryRow
	for _, e := range j.entries {
		row := &e.row
		row.Account = s.account(j.account)
		for _, p := range e.posts {
			to := spendlimit.Posting{When: p[1], Spent: spendlimit.Amount(p[2]), Held: spendlimit.Amount(p[3]), Overrun: spendlimit.Amount(p[4])}
			if p[0] != 0 {
				to.Period = s.period(p[0])
			}
			row.Postings = append(row.Postings, to)
		}
		out = append(out, row)
	}
	return out
}
