package spendlimittest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// Strict is the reference store, and the template for adapters: it works as a database would, slowly and plainly. It
// keeps flat rows, with keys where rows point at each other. For each step it links fresh copies of exactly the rows
// that the Need names, runs the step twice, as if the first try had to be given up (C4), and writes exactly what
// [spendlimit.Work.Changes] lists. A change of a row that the step has not locked, an insert of a row that exists and an
// update of one that doesn't fail the step with ErrUnavailable.
//
// A Strict is one handle on the data. Safe for concurrent use.
type Strict struct {
	data   *flatTables
	clock  func() time.Time
	closed bool
}

// flatTables is the data behind all handles.
type flatTables struct {
	mu      sync.Mutex
	ledgers map[string]*flatLedger
}

// NewStrict returns a handle on an empty store. A nil clock is time.Now.
func NewStrict(clock func() time.Time) *Strict {
	if clock == nil {
		clock = time.Now
	}
	return &Strict{data: &flatTables{ledgers: map[string]*flatLedger{}}, clock: clock}
}

// Again returns another handle on the same data, which outlive every handle.
func (s *Strict) Again() *Strict { return &Strict{data: s.data, clock: s.clock} }

// Close makes every later call on this handle fail with ErrClosed.
func (s *Strict) Close() error {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	s.closed = true
	return nil
}

func (s *Strict) usable(ctx context.Context) error {
	if s.closed {
		return spendlimit.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(spendlimit.ErrUnavailable, err)
	}
	return nil
}

func (t *flatTables) ledger(name string) *flatLedger {
	l := t.ledgers[name]
	if l == nil {
		l = newFlatLedger()
		t.ledgers[name] = l
	}
	return l
}

// Step implements spendlimit.Store.
func (s *Strict) Step(ctx context.Context, n spendlimit.Need, f func(now int64, w *spendlimit.Work) error) error {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	var step *strictStep
	var err error
	for range 2 { // the first try is given up, as if a lock had been lost
		step = loadStrict(s.data.ledger(n.Ledger), n, s.clock().UnixMicro()) // the clock after the locks, once (C5)
		err = f(step.now, step.work)
	}
	if err != nil || n.ReadOnly {
		return err
	}
	return step.write(step.work.Changes())
}

// strictStep is one step's way from flat rows to linked ones: each row once, whoever points at it.
type strictStep struct {
	*flatLedger
	need     spendlimit.Need
	now      int64
	locked   map[string]bool // the accounts that this step may change
	work     *spendlimit.Work
	accounts map[string]*spendlimit.AccountRow
	limits   map[flatLimitID]*spendlimit.LimitRow
	periods  map[flatPeriodID]*spendlimit.PeriodRow
	holds    map[string]*spendlimit.HoldRow
}

func loadStrict(l *flatLedger, n spendlimit.Need, clock int64) *strictStep {
	s := &strictStep{
		flatLedger: l, need: n, locked: map[string]bool{}, work: spendlimit.NewWork(),
		accounts: map[string]*spendlimit.AccountRow{},
		limits:   map[flatLimitID]*spendlimit.LimitRow{},
		periods:  map[flatPeriodID]*spendlimit.PeriodRow{},
		holds:    map[string]*spendlimit.HoldRow{},
	}
	s.lock(clock)
	s.link()
	return s
}

// lock finds the accounts of the step, and its now (C1, C2, C5): those that the need names, those of the holds that it
// names, and those of every hold on any of them that is due. Each account can raise now, which can make more holds due.
func (s *strictStep) lock(clock int64) {
	for _, name := range s.need.Accounts {
		s.lockName(name)
	}
	for _, key := range s.need.Holds {
		s.lockOwners(key)
	}
	for _, key := range s.need.Trees {
		for _, h := range s.below(key) {
			s.lockOwners(h.Key)
		}
	}
	for _, name := range s.need.All {
		for _, h := range s.on(name, flatLive) {
			s.lockOwners(h.Key)
		}
	}
	for size := -1; size < len(s.locked); {
		size = len(s.locked)
		s.now = clock
		for name := range s.locked {
			s.now = max(s.now, s.flatLedger.accounts[name].LastUS)
		}
		for _, name := range keysInOrder(s.locked) {
			due, _ := s.due(name)
			for _, h := range due {
				s.lockOwners(h.Key)
			}
		}
	}
}

func (s *strictStep) lockName(name string) {
	if _, ok := s.flatLedger.accounts[name]; ok {
		s.locked[name] = true
	}
}

func (s *strictStep) lockOwners(key string) {
	for _, name := range s.owners(key) {
		s.lockName(name)
	}
}

// due lists the live holds on an account whose time is over, at most MaxDue, and tells whether there are more.
func (s *strictStep) due(account string) ([]flatHold, bool) {
	due := s.on(account, func(h flatHold) bool { return h.State.Live() && h.ExpiresUS < s.now })
	slices.SortFunc(due, flatByExpiry)
	return due[:min(len(due), spendlimit.MaxDue)], len(due) > spendlimit.MaxDue
}

// link fills the work.
func (s *strictStep) link() {
	if s.unit != nil {
		s.work.AddLedger(&spendlimit.LedgerRow{Name: s.need.Ledger, Unit: *s.unit})
	}
	for _, name := range keysInOrder(s.locked) {
		s.linkAccount(name)
	}
	for _, key := range s.need.Holds {
		if _, ok := s.flatLedger.holds[key]; ok {
			s.work.AddHold(s.hold(key))
		}
	}
	for _, id := range s.need.Usages {
		if u, ok := s.usages[id]; ok {
			s.work.AddUsage(freshUsage(&u))
		}
	}
	for _, name := range keysInOrder(s.locked) {
		for _, g := range s.need.Groups {
			members := s.on(name, func(h flatHold) bool { return h.State.Live() && h.Group == g })
			s.work.AddMembers(name, g, s.linkAll(members))
		}
	}
	s.linkRare()
}

// linkRare adds what only few commands need.
func (s *strictStep) linkRare() {
	for _, key := range s.need.Trees {
		s.work.AddTree(key, s.linkAll(s.below(key)))
	}
	for _, name := range s.need.Expiring {
		live := s.on(name, flatLive)
		slices.SortFunc(live, flatByExpiry)
		s.work.AddExpiring(name, s.linkAll(live[:min(len(live), spendlimit.MaxExpiring)]))
	}
	for _, name := range s.need.All {
		var periods []*spendlimit.PeriodRow
		for _, id := range s.periodsOn(name) {
			periods = append(periods, s.period(id))
		}
		s.work.AddFull(name, s.linkAll(s.on(name, flatAny)), periods)
	}
	for _, j := range s.need.Journal {
		entries := s.entriesOf(j.Account, func(e flatEntry) bool { return e.At >= s.now-j.Span })
		s.work.AddJournal(j.Account, entries)
	}
	for _, p := range s.need.Prune {
		entries := s.entriesOf(p.Account, func(e flatEntry) bool { return e.At < p.Before })
		ended := s.on(p.Account, func(h flatHold) bool { return s.prunable(h, p.Before) })
		s.work.AddPrune(p.Account, entries[:min(len(entries), p.Max)], s.linkAll(ended[:min(len(ended), p.Max)]))
	}
}

// linkAccount adds an account with the newest generation of its limits, their periods around now and the needed times,
// and its due holds.
func (s *strictStep) linkAccount(name string) {
	a := s.account(name)
	for _, id := range s.newestLimits(name) {
		a.Limits = append(a.Limits, s.limit(id))
		for _, at := range append([]int64{s.now}, s.need.Times...) {
			for _, p := range s.around(id, at) {
				s.period(p)
			}
		}
	}
	if slices.Contains(s.need.Periods, name) {
		for _, id := range s.periodsOn(name) {
			s.period(id)
		}
	}
	due, more := s.due(name)
	a.Due, a.More = s.linkAll(due), more
	s.work.AddAccount(a)
}

func (s *strictStep) linkAll(holds []flatHold) []*spendlimit.HoldRow {
	var out []*spendlimit.HoldRow
	for _, h := range holds {
		out = append(out, s.hold(h.Key))
	}
	return out
}

func (s *strictStep) account(name string) *spendlimit.AccountRow {
	row := s.accounts[name]
	if row == nil {
		flat := s.flatLedger.accounts[name]
		row = freshAccount(&flat)
		s.accounts[name] = row
	}
	return row
}

func (s *strictStep) limit(id flatLimitID) *spendlimit.LimitRow {
	row := s.limits[id]
	if row == nil {
		flat := s.flatLedger.limits[id]
		row = freshLimit(&flat)
		row.Account = s.account(id.account)
		s.limits[id] = row
	}
	return row
}

func (s *strictStep) period(id flatPeriodID) *spendlimit.PeriodRow {
	row := s.periods[id]
	if row == nil {
		flat := s.flatLedger.periods[id]
		row = freshPeriod(&flat)
		row.Limit = s.limit(id.limit)
		row.Limit.Periods = append(row.Limit.Periods, row)
		slices.SortFunc(row.Limit.Periods, rowsByStart)
		s.periods[id] = row
	}
	return row
}

func (s *strictStep) hold(key string) *spendlimit.HoldRow {
	row := s.holds[key]
	if row != nil {
		return row
	}
	h := s.flatLedger.holds[key]
	row = freshHold(&h.HoldRow)
	s.holds[key] = row
	if h.parent != "" {
		row.Parent = s.hold(h.parent)
	}
	for _, name := range h.accounts {
		row.Accounts = append(row.Accounts, s.account(name))
	}
	for i, p := range h.parts {
		part := spendlimit.Part{At: p.at, Left: p.left}
		for _, id := range p.lines {
			part.Lines = append(part.Lines, s.period(id))
		}
		if i == 0 {
			row.Part = part
		} else {
			row.More = append(row.More, part)
		}
	}
	for _, a := range h.assumes {
		row.Assumes = append(row.Assumes, spendlimit.Assumption{Anchor: s.hold(a.anchor), Part: a.part, Amount: a.amount})
	}
	return row
}

// entriesOf links the entries of an account, in order.
func (s *strictStep) entriesOf(account string, want func(flatEntry) bool) []*spendlimit.EntryRow {
	var out []*spendlimit.EntryRow
	for _, e := range s.entries[account] {
		if !want(e) {
			continue
		}
		row := freshEntry(&e.EntryRow)
		row.Account = s.account(account)
		for _, g := range e.postings {
			if g.period != nil {
				g.Period = s.period(*g.period)
			}
			row.Postings = append(row.Postings, g.Posting)
		}
		out = append(out, &row)
	}
	return out
}

// write stores what the step changed: all of it, or nothing.
func (s *strictStep) write(c *spendlimit.Changes) error {
	if err := s.check(c); err != nil {
		return fmt.Errorf("%w: strict store: %w", spendlimit.ErrUnavailable, err)
	}
	s.put(c)
	return nil
}

func (s *strictStep) put(c *spendlimit.Changes) {
	if c.NewLedger != nil {
		s.unit = &c.NewLedger.Unit
	}
	for _, a := range slices.Concat(c.NewAccounts, c.Accounts) {
		s.putAccount(a)
	}
	for _, l := range slices.Concat(c.NewLimits, c.Limits) {
		s.putLimit(l)
	}
	for _, p := range slices.Concat(c.NewPeriods, c.Periods) {
		s.putPeriod(p)
	}
	for _, h := range slices.Concat(c.NewHolds, c.Holds) {
		s.putHold(h)
	}
	for _, u := range slices.Concat(c.NewUsages, c.Usages) {
		s.putUsage(u)
	}
	for _, e := range c.Entries {
		s.putEntry(e)
	}
	for _, h := range c.Pruned {
		s.forget(h.Key)
	}
}

// check finds what a database would refuse, and what would be lost between two steps at once (C2).
func (s *strictStep) check(c *spendlimit.Changes) error {
	k := strictCheck{s: s, created: map[string]bool{}}
	k.insert("ledger", c.NewLedger != nil && s.unit != nil)
	for _, a := range c.NewAccounts {
		_, exists := s.flatLedger.accounts[a.Name]
		k.insert("account "+a.Name, exists)
		k.created[a.Name] = slices.Contains(s.need.Accounts, a.Name)
	}
	for _, a := range slices.Concat(c.NewAccounts, c.Accounts) {
		k.mine(a.Name)
	}
	for _, l := range c.NewLimits {
		_, exists := s.flatLedger.limits[flatLimitOf(l)]
		k.insert("limit "+l.Limit.Name, exists)
	}
	for _, l := range slices.Concat(c.NewLimits, c.Limits) {
		k.mine(l.Account.Name)
	}
	for _, p := range c.NewPeriods {
		_, exists := s.flatLedger.periods[flatPeriodOf(p)]
		k.insert("period "+p.Label, exists)
	}
	for _, p := range slices.Concat(c.NewPeriods, c.Periods) {
		k.mine(p.Limit.Account.Name)
	}
	for _, h := range c.NewHolds {
		_, exists := s.flatLedger.holds[h.Key]
		k.insert("hold "+h.Key, exists)
	}
	for _, h := range slices.Concat(c.NewHolds, c.Holds) {
		for z := h; z != nil; z = z.Parent {
			k.mine(namesOf(z.Accounts)...)
		}
	}
	for _, u := range c.NewUsages {
		_, exists := s.usages[u.UsageID]
		k.insert("usage "+u.ID, exists)
	}
	k.journal(c.Entries)
	return k.err
}

// strictCheck keeps the first thing that is wrong.
type strictCheck struct {
	s       *strictStep
	created map[string]bool
	err     error
}

func (k *strictCheck) fail(format string, args ...any) {
	if k.err == nil {
		k.err = fmt.Errorf(format, args...)
	}
}

func (k *strictCheck) insert(what string, exists bool) {
	if exists {
		k.fail("%s is inserted but exists", what)
	}
}

func (k *strictCheck) mine(accounts ...string) {
	for _, name := range accounts {
		if !k.s.locked[name] && !k.created[name] {
			k.fail("a row of account %q is changed but not locked", name)
		}
	}
}

func (k *strictCheck) journal(entries []*spendlimit.EntryRow) {
	last := map[string]int64{}
	for _, e := range entries {
		name := e.Account.Name
		k.mine(name)
		if _, seen := last[name]; !seen {
			last[name] = k.s.flatLedger.accounts[name].Seq
		}
		if last[name]++; e.Seq != last[name] {
			k.fail("entry %d of account %q, want %d", e.Seq, name, last[name])
		}
	}
}

// Read implements spendlimit.Store.
func (s *Strict) Read(ctx context.Context, q spendlimit.Query) (spendlimit.Page, error) {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return spendlimit.Page{}, err
	}
	l := s.data.ledger(q.Ledger)
	switch q.Kind {
	case spendlimit.QueryHolds:
		return l.readHolds(q), nil
	case spendlimit.QueryDue:
		return l.readDue(q, s.clock().UnixMicro()), nil
	case spendlimit.QueryEntries:
		return l.readEntries(q), nil
	}
	return spendlimit.Page{}, fmt.Errorf("%w: unknown query", spendlimit.ErrInvalid)
}

func (l *flatLedger) readHolds(q spendlimit.Query) spendlimit.Page {
	var keys []string
	for key, h := range l.holds {
		if key > q.AfterKey && (q.Account == "" || l.isOn(h, q.Account)) && (!q.Live || h.State.Live()) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return spendlimit.Page{Keys: keys[:min(len(keys), q.Max)], More: len(keys) > q.Max}
}

func (l *flatLedger) readDue(q spendlimit.Query, clock int64) spendlimit.Page {
	var due []flatHold
	for _, h := range l.holds {
		now := clock
		for _, name := range l.owners(h.Key) {
			now = max(now, l.accounts[name].LastUS)
		}
		if h.State.Live() && h.ExpiresUS < now {
			due = append(due, h)
		}
	}
	slices.SortFunc(due, flatByExpiry)
	var page spendlimit.Page
	for _, h := range due[:min(len(due), q.Max)] {
		page.Keys = append(page.Keys, h.Key)
	}
	return page
}

func (l *flatLedger) readEntries(q spendlimit.Query) spendlimit.Page {
	var page spendlimit.Page
	linked := loadStrict(l, spendlimit.Need{Ledger: q.Ledger}, 0).entriesOf(q.Account, func(e flatEntry) bool { return e.Seq > q.AfterSeq })
	for _, e := range linked[:min(len(linked), q.Max)] {
		page.Entries = append(page.Entries, e.Detach())
	}
	page.More = len(linked) > q.Max
	return page
}
