package spendlimit

import (
	"cmp"
	"slices"
)

// Work is the closed set of rows of one step. An adapter fills it with the Add methods, hands it to the step's
// function, and then writes Changes (or, where the rows themselves are the store, calls Revert when the step
// failed). A Work may be used again after Reset. A row that was given to one Work, or a copy of it, must not be given to
// another: rows bear the marks of their Work. Not safe for concurrent use.
type Work struct {
	ledger   *LedgerRow
	accounts index[string, *AccountRow]
	holds    index[string, *HoldRow]
	usages   index[UsageID, *UsageRow]
	rare     bool // one of the following has something
	members  map[memberKey][]*HoldRow
	trees    map[string][]*HoldRow
	full     map[string]fullRows
	journal  map[string][]*EntryRow
	expiring map[string][]*HoldRow
	prune    map[string]pruneRows

	// A row bears the mark of the savepoint after which it was made or last changed. Marks never fall, so one from first
	// on belongs to the running step, whose changes list the row.
	mark, first uint64
	log         undoLog
	changes     Changes

	holdRows arena[HoldRow]
	entries  arena[EntryRow]
	pointers arena[*PeriodRow]
	owners   arena[*AccountRow]
	postings arena[Posting]
}

type memberKey struct {
	account string
	group   string
}

type fullRows struct {
	holds   []*HoldRow
	periods []*PeriodRow
}

type pruneRows struct {
	entries []*EntryRow
	holds   []*HoldRow
}

// Changes is what a step wrote. New rows are not repeated among the changed ones.
type Changes struct {
	NewLedger   *LedgerRow
	NewAccounts []*AccountRow
	Accounts    []*AccountRow
	NewLimits   []*LimitRow
	Limits      []*LimitRow
	NewPeriods  []*PeriodRow
	Periods     []*PeriodRow
	NewHolds    []*HoldRow
	Holds       []*HoldRow
	NewUsages   []*UsageRow
	Usages      []*UsageRow
	Entries     []*EntryRow
	// Pruned holds are to be deleted, with their usages; entries up to an account's Pruned as well.
	Pruned []*HoldRow
}

// NewWork returns an empty Work.
func NewWork() *Work {
	return &Work{
		first:    1,
		members:  map[memberKey][]*HoldRow{},
		trees:    map[string][]*HoldRow{},
		full:     map[string]fullRows{},
		journal:  map[string][]*EntryRow{},
		expiring: map[string][]*HoldRow{},
		prune:    map[string]pruneRows{},
	}
}

// Reset forgets all rows.
func (w *Work) Reset() {
	w.ledger = nil
	w.accounts.forget()
	w.holds.forget()
	w.usages.forget()
	if w.rare {
		w.rare = false
		clear(w.members)
		clear(w.trees)
		clear(w.full)
		clear(w.journal)
		clear(w.expiring)
		clear(w.prune)
	}
	w.log.forget()
	w.changes.forget()
	w.first = w.mark + 1
}

// empty is clear for a map that is mostly empty already.
func empty[K comparable, V any](m map[K]V) {
	if len(m) > 0 {
		clear(m)
	}
}

// AddLedger adds the ledger's own row, when it is stored already.
func (w *Work) AddLedger(l *LedgerRow) { w.ledger = l }

// AddAccount adds an account with its Limits, their Periods and its Due holds linked.
func (w *Work) AddAccount(a *AccountRow) { w.accounts.set(a.Name, a) }

// AddHold adds a hold with its Parent, Accounts and Lines linked.
func (w *Work) AddHold(h *HoldRow) { w.holds.set(h.Key, h) }

// AddUsage adds a usage.
func (w *Work) AddUsage(u *UsageRow) { w.usages.set(u.UsageID, u) }

// AddMembers adds the live holds of a group on an account (own or inherited). The slice is only read, during the step.
func (w *Work) AddMembers(account, group string, live []*HoldRow) {
	w.rare = true
	w.members[memberKey{account, group}] = live
}

// AddTree adds the live descendants of a hold, in any order.
func (w *Work) AddTree(key string, live []*HoldRow) {
	w.rare = true
	w.trees[key] = live
}

// AddFull adds the holds on an account (own or inherited) and its periods.
func (w *Work) AddFull(account string, holds []*HoldRow, periods []*PeriodRow) {
	w.rare = true
	w.full[account] = fullRows{holds, periods}
}

// AddJournal adds entries of an account, in order, up to its last one. When it is called again for the account, the
// longer list stays.
func (w *Work) AddJournal(account string, entries []*EntryRow) {
	w.rare = true
	if len(entries) > len(w.journal[account]) {
		w.journal[account] = entries
	}
}

// AddExpiring adds the live holds on an account that end first, by (ExpiresUS, Key).
func (w *Work) AddExpiring(account string, live []*HoldRow) {
	w.rare = true
	w.expiring[account] = live
}

// AddPrune adds what a PruneNeed asked for.
func (w *Work) AddPrune(account string, entries []*EntryRow, ended []*HoldRow) {
	w.rare = true
	w.prune[account] = pruneRows{entries, ended}
}

// Account, Hold and Usage return a row that was added or created, or nil.
func (w *Work) Account(name string) *AccountRow { return w.accounts.get(name) }
func (w *Work) Hold(key string) *HoldRow        { return w.holds.get(key) }
func (w *Work) Usage(id UsageID) *UsageRow      { return w.usages.get(id) }

// Ledger, Members, Tree, Full, Journal, Expiring and Pruning return what was added, as it was added: the suite of
// spendlimittest looks at it.
func (w *Work) Ledger() *LedgerRow                       { return w.ledger }
func (w *Work) Members(account, group string) []*HoldRow { return w.members[memberKey{account, group}] }
func (w *Work) Tree(key string) []*HoldRow               { return w.trees[key] }
func (w *Work) Journal(account string) []*EntryRow       { return w.journal[account] }
func (w *Work) Expiring(account string) []*HoldRow       { return w.expiring[account] }
func (w *Work) Full(a string) ([]*HoldRow, []*PeriodRow) { return w.full[a].holds, w.full[a].periods }
func (w *Work) Pruning(account string) ([]*EntryRow, []*HoldRow) {
	p := w.prune[account]
	return p.entries, p.holds
}

// Changed tells whether the step changed anything.
func (w *Work) Changed() bool { return w.log.len() > 0 || w.changes.any() }

// Changes returns what the step changed, each row once. It is valid until Reset.
func (w *Work) Changes() *Changes { return &w.changes }

// Revert takes back everything that the step changed in the rows.
func (w *Work) Revert() { w.revert(&savepoint{}) }

// savepoint is a state of the rows to come back to: a command that ends in an error leaves nothing behind.
type savepoint struct {
	log                                                           logMark
	ledger                                                        bool
	accounts, limits, periods, holds, usages, entries, prunedRows int
}

func (w *Work) save(s *savepoint) {
	w.mark++
	c := &w.changes
	s.log, s.ledger = w.log.mark(), c.NewLedger != nil
	s.accounts, s.limits, s.periods = len(c.NewAccounts), len(c.NewLimits), len(c.NewPeriods)
	s.holds, s.usages, s.entries, s.prunedRows = len(c.NewHolds), len(c.NewUsages), len(c.Entries), len(c.Pruned)
}

func (w *Work) revert(s *savepoint) {
	w.mark++
	w.log.revert(&s.log)
	c := &w.changes
	c.Accounts = mine(c.Accounts, func(a *AccountRow) bool { return a.mark >= w.first })
	c.Limits = mine(c.Limits, func(l *LimitRow) bool { return l.mark >= w.first })
	c.Periods = mine(c.Periods, func(p *PeriodRow) bool { return p.mark >= w.first })
	c.Holds = mine(c.Holds, func(h *HoldRow) bool { return h.mark >= w.first })
	c.Usages = mine(c.Usages, func(u *UsageRow) bool { return u.mark >= w.first })
	if c.NewLedger != nil && !s.ledger {
		c.NewLedger, w.ledger = nil, nil
	}
	for _, a := range c.NewAccounts[s.accounts:] {
		w.accounts.set(a.Name, nil)
	}
	for _, h := range c.NewHolds[s.holds:] {
		w.holds.set(h.Key, nil)
	}
	for _, u := range c.NewUsages[s.usages:] {
		w.usages.set(u.UsageID, nil)
	}
	c.NewAccounts = c.NewAccounts[:s.accounts]
	c.NewLimits = c.NewLimits[:s.limits]
	c.NewPeriods = c.NewPeriods[:s.periods]
	c.NewHolds = c.NewHolds[:s.holds]
	c.NewUsages = c.NewUsages[:s.usages]
	c.Entries = c.Entries[:s.entries]
	c.Pruned = c.Pruned[:s.prunedRows]
}

// mine cuts the rows off a list of changed ones that are as they were before the step.
func mine[T any](changed []*T, is func(*T) bool) []*T {
	for len(changed) > 0 && !is(changed[len(changed)-1]) {
		changed = changed[:len(changed)-1]
	}
	return changed
}

// newEntry returns an entry of the step that is yet to be filled.
func (w *Work) newEntry() *EntryRow {
	e := &w.entries.take(1)[0]
	w.changes.Entries = append(w.changes.Entries, e)
	return e
}

func (c *Changes) any() bool {
	return c.NewLedger != nil || len(c.NewAccounts)+len(c.NewLimits)+len(c.NewPeriods)+len(c.NewHolds)+len(c.NewUsages)+len(c.Entries)+len(c.Pruned) > 0
}

// forget empties the slices in place, which costs no write barriers. What they pointed to stays reachable until it is
// written over, which is soon.
func (c *Changes) forget() {
	c.NewLedger = nil
	c.NewAccounts, c.Accounts = c.NewAccounts[:0], c.Accounts[:0]
	c.NewLimits, c.Limits = c.NewLimits[:0], c.Limits[:0]
	c.NewPeriods, c.Periods = c.NewPeriods[:0], c.Periods[:0]
	c.NewHolds, c.Holds = c.NewHolds[:0], c.Holds[:0]
	c.NewUsages, c.Usages = c.NewUsages[:0], c.Usages[:0]
	c.Entries, c.Pruned = c.Entries[:0], c.Pruned[:0]
}

// Each edit method keeps the row's image at its first change since the last savepoint, and lists the row at its first
// change in the step.

func (w *Work) editAccount(a *AccountRow) {
	if a.mark == w.mark {
		return
	}
	if a.mark < w.first {
		w.changes.Accounts = append(w.changes.Accounts, a)
	}
	w.log.accounts = keep(w.log.accounts, a)
	a.mark = w.mark
}

func (w *Work) editLimit(l *LimitRow) {
	if l.mark == w.mark {
		return
	}
	if l.mark < w.first {
		w.changes.Limits = append(w.changes.Limits, l)
	}
	w.log.limits = keep(w.log.limits, l)
	l.mark = w.mark
}

func (w *Work) editPeriod(p *PeriodRow) {
	if p.mark == w.mark {
		return
	}
	if p.mark < w.first {
		w.changes.Periods = append(w.changes.Periods, p)
	}
	w.log.periods = keep(w.log.periods, p)
	p.mark = w.mark
}

func (w *Work) editHold(h *HoldRow) {
	if h.mark == w.mark {
		return
	}
	if h.mark < w.first {
		w.changes.Holds = append(w.changes.Holds, h)
	}
	w.log.holds = keep(w.log.holds, h)
	if len(h.More)+len(h.Assumes) > 0 { // these are changed in place
		old := &w.log.holds[len(w.log.holds)-1].old
		old.More, old.Assumes = slices.Clone(h.More), slices.Clone(h.Assumes)
	}
	h.mark = w.mark
}

func (w *Work) editUsage(u *UsageRow) {
	if u.mark == w.mark {
		return
	}
	if u.mark < w.first {
		w.changes.Usages = append(w.changes.Usages, u)
	}
	w.log.usages = keep(w.log.usages, u)
	u.mark = w.mark
}

// undoLog holds the images of changed rows, oldest first.
type undoLog struct {
	accounts []image[AccountRow]
	limits   []image[LimitRow]
	periods  []image[PeriodRow]
	holds    []image[HoldRow]
	usages   []image[UsageRow]
}

type image[T any] struct {
	row *T
	old T
}

// keep adds the image of a row, which is copied only once: into its place.
func keep[T any](images []image[T], row *T) []image[T] {
	n := len(images)
	if n == cap(images) {
		images = slices.Grow(images, 1)
	}
	images = images[:n+1]
	i := &images[n]
	i.row = row
	i.old = *row // alone: as one of several it would be copied twice
	return images
}

type logMark struct{ accounts, limits, periods, holds, usages int }

func (l *undoLog) mark() logMark {
	return logMark{len(l.accounts), len(l.limits), len(l.periods), len(l.holds), len(l.usages)}
}

func (l *undoLog) len() int {
	return len(l.accounts) + len(l.limits) + len(l.periods) + len(l.holds) + len(l.usages)
}

func (l *undoLog) revert(m *logMark) {
	l.accounts = restore(l.accounts, m.accounts)
	l.limits = restore(l.limits, m.limits)
	l.periods = restore(l.periods, m.periods)
	l.holds = restore(l.holds, m.holds)
	l.usages = restore(l.usages, m.usages)
}

func (l *undoLog) forget() {
	l.accounts = l.accounts[:0]
	l.limits = l.limits[:0]
	l.periods = l.periods[:0]
	l.holds = l.holds[:0]
	l.usages = l.usages[:0]
}

func restore[T any](images []image[T], n int) []image[T] {
	for i := len(images) - 1; i >= n; i-- {
		*images[i].row = images[i].old
	}
	return images[:n]
}

// arena hands out small slices cut from large ones: rows that live as long as their neighbours cost one
// allocation in many. What keeps one of a chunk keeps the chunk.
type arena[T any] struct {
	free  []T
	chunk int // 0: arenaChunk
}

const arenaChunk = 128

// most shows the next n, of which as many as are needed can be taken.
func (a *arena[T]) most(n int) []T {
	if n > len(a.free) {
		a.free = make([]T, max(n, cmp.Or(a.chunk, arenaChunk)))
	}
	return a.free[:n]
}

func (a *arena[T]) take(n int) []T {
	s := a.most(n)[:n:n]
	a.free = a.free[n:]
	return s
}

// index finds rows by key. Most steps have one or two of a kind, which are looked through; a large batch uses a map.
type index[K comparable, R any] struct {
	rows []keyed[K, R]
	many map[K]int // positions, once there are more than few
}

type keyed[K comparable, R any] struct {
	key K
	row R
}

const few = 8

func (x *index[K, R]) find(key K) int {
	if len(x.rows) <= few {
		for i := range x.rows {
			if x.rows[i].key == key {
				return i
			}
		}
		return -1
	}
	if i, ok := x.many[key]; ok {
		return i
	}
	return -1
}

func (x *index[K, R]) get(key K) (row R) {
	if i := x.find(key); i >= 0 {
		row = x.rows[i].row
	}
	return row
}

func (x *index[K, R]) set(key K, row R) {
	if i := x.find(key); i >= 0 {
		x.rows[i].row = row
		return
	}
	x.rows = append(x.rows, keyed[K, R]{key, row})
	switch n := len(x.rows); {
	case n == few+1:
		if x.many == nil {
			x.many = map[K]int{}
		}
		for i := range x.rows {
			x.many[x.rows[i].key] = i
		}
	case n > few:
		x.many[key] = n - 1
	}
}

func (x *index[K, R]) forget() {
	x.rows = x.rows[:0]
	empty(x.many)
}
