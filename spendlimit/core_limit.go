package spendlimit

import (
	"slices"
	"strings"
	"time"
)

// limit returns the newest generation of a limit, removed or not, or nil.
func (a *AccountRow) limit(name string) *LimitRow {
	if i, ok := a.find(name); ok {
		return a.Limits[i]
	}
	return nil
}

func (a *AccountRow) find(name string) (int, bool) {
	return slices.BinarySearchFunc(a.Limits, name, func(l *LimitRow, name string) int { return strings.Compare(l.Limit.Name, name) })
}

// createLimit writes a new limit, or a new generation of a removed one. It counts from now (R58).
func (s *step) createLimit(a *AccountRow, l Limit) (*LimitRow, error) {
	active := 0
	for _, have := range a.Limits {
		if !have.Removed {
			active++
		}
	}
	if active >= maxLimits {
		return nil, invalid("Limit", "account %q has %d limits already", a.Name, active)
	}
	zone, err := s.zones.load(l.Zone)
	if err != nil {
		return nil, err
	}
	row := &LimitRow{Account: a, Gen: 1, Limit: l, Rev: 1, SinceUS: s.now, PinUS: minInstant, zone: zone, mark: s.w.mark}
	s.w.editAccount(a)
	limits := slices.Clone(a.Limits)
	i, found := a.find(l.Name)
	if found {
		row.Gen = limits[i].Gen + 1
		limits[i] = row
	} else {
		limits = slices.Insert(limits, i, row)
	}
	a.Limits = limits
	row.Print = l.fingerprint(row.Gen, row.Rev)
	s.w.changes.NewLimits = append(s.w.changes.NewLimits, row)
	s.free(a)
	_, err = s.book(&booking{kind: EntryLimit, ref: l.Name, reason: "set", at: s.now, accounts: []*AccountRow{a}})
	return row, err
}

// setLimit is the command behind SetLimit (R55 to R58).
type setLimit struct {
	call
	limit    Limit // validated, normal
	expect   string
	backfill bool
	state    LimitState
}

func (c *setLimit) need(n *Need) {
	n.Accounts = append(n.Accounts, c.limit.Account)
	if c.limit.CarryHolds {
		n.Periods = append(n.Periods, c.limit.Account)
	}
	if c.backfill {
		n.All = append(n.All, c.limit.Account)
		n.Journal = append(n.Journal, JournalNeed{Account: c.limit.Account, Span: c.limit.Kind.longest()})
	}
}

func (c *setLimit) apply(s *step) (bool, error) {
	accounts, err := s.ready([]string{c.limit.Account})
	if err != nil {
		return false, err
	}
	a := accounts[0]
	row := a.limit(c.limit.Name)
	keep := true
	switch {
	case row == nil || row.Removed:
		if c.expect != "" {
			return false, &StaleError{}
		}
		if c.backfill && c.limit.Kind == AllTime && a.Pruned > 0 {
			return false, invalid("Backfill", "the journal of account %q does not go back to its beginning any more", a.Name)
		}
		if row, err = s.createLimit(a, c.limit); err == nil && c.backfill {
			err = s.backfill(a, row)
		}
	case row.Prev == c.expect && row.Limit.equal(&c.limit):
		keep = false // the change in force, said again
	case row.Print != c.expect:
		return false, &StaleError{Current: row.Print}
	case c.backfill:
		return false, invalid("Backfill", "the limit exists and counts already")
	default:
		err = s.changeLimit(row, c.limit)
	}
	if err != nil {
		return false, err
	}
	c.state = LimitState{Limit: row.Limit, Fingerprint: row.Print, Replayed: !keep}
	c.state.Limit.Thresholds = slices.Clone(row.Limit.Thresholds)
	return keep, nil
}

// changeLimit replaces a limit. Amount, raise and thresholds act on the current period at once (R56); another
// calendar acts from its end on (R9).
func (s *step) changeLimit(row *LimitRow, l Limit) error {
	s.w.editLimit(row)
	old := row.Limit.calendar()
	if old.Kind == AllTime && l.Kind != AllTime {
		return invalid("Kind", "an AllTime limit can't change its kind")
	}
	if old != l.calendar() && old.Kind != AllTime {
		zone, err := s.zones.load(l.Zone)
		if err != nil {
			return err
		}
		p, err := s.period(row, s.now) // under the old calendar
		if err != nil {
			return err
		}
		row.PinUS, row.zone = p.End, zone
	}
	if err := s.carryHolds(row, l.CarryHolds); err != nil {
		return err
	}
	row.Prev = row.Print
	row.Limit = l
	row.Rev++
	row.Print = l.fingerprint(row.Gen, row.Rev)
	at := inCalendar(s.now)
	if i := row.before(at); i >= 0 && at < row.Periods[i].End {
		p := row.Periods[i]
		s.w.editPeriod(p)
		if err := p.setForce(&row.Limit, s.now); err != nil {
			return err
		}
		p.recut()
		s.fire(p)
	}
	s.free(row.Account)
	_, err := s.book(&booking{kind: EntryLimit, ref: l.Name, reason: "changed", at: s.now, accounts: []*AccountRow{row.Account}})
	return err
}

// carryHolds keeps the sum of what is held in all periods of a limit from now on, or no more (R39). Most limits never need it.
func (s *step) carryHolds(row *LimitRow, on bool) error {
	if on && row.Limit.CarryHolds {
		return nil
	}
	row.HeldAll = 0
	if on {
		for _, p := range row.Periods { // all of them: see need
			row.HeldAll = s.add(row.HeldAll, p.Held)
		}
	}
	return s.broken
}

// backfill makes a new limit count the current period's journal, and gives the live holds granted in it a line (R58).
func (s *step) backfill(a *AccountRow, row *LimitRow) error {
	p, err := s.period(row, s.now)
	if err != nil {
		return err
	}
	var sums change
	in := func(at int64) bool { return p.Start <= at && at < p.End }
	sum := func(entries []*EntryRow) {
		for _, e := range entries {
			for _, g := range e.Postings {
				if e.Account == a && g.Period == nil && in(g.When) {
					sums.spent = s.add(sums.spent, g.Spent)
				}
			}
		}
	}
	sum(s.w.journal[a.Name])
	sum(s.w.changes.Entries)
	for _, h := range s.liveOn(a) {
		if !slices.Contains(h.Accounts, a) {
			continue
		}
		s.w.editHold(h)
		for i := range h.parts() {
			part := h.part(i)
			if !in(part.At) {
				continue
			}
			part.Lines = append(slices.Clip(part.Lines), p)
			sums.held = s.add(sums.held, part.Left)
			sums.assumed = s.add(sums.assumed, s.assumedOn(a, h, i))
		}
		if h.hasLine(p) {
			sums.unpriced += int64(h.Marks)
		}
	}
	if sums.spent < sums.assumed { // I6: the assumed part may be taken back yet
		return invalid("Backfill", "more was taken back than is known to be spent")
	}
	s.post(a, p, 0, sums)
	_, err = s.book(&booking{kind: EntryLimit, ref: row.Limit.Name, reason: "backfill", at: s.now, accounts: []*AccountRow{a}})
	if err == nil {
		p.recut()
	}
	return err
}

// assumedOn is what holds on a, ended ones too, have assumed on the i-th part of an anchor.
func (s *step) assumedOn(a *AccountRow, anchor *HoldRow, i int) (sum Amount) {
	for _, h := range append(slices.Clip(s.w.full[a.Name].holds), s.w.changes.NewHolds...) {
		for _, as := range h.Assumes {
			if as.Anchor == anchor && as.Part == i {
				sum = s.add(sum, as.Amount)
			}
		}
	}
	return sum
}

// liveOn lists the holds on a that have room left in a part: live anchors, and ended ones with live descendants.
func (s *step) liveOn(a *AccountRow) []*HoldRow {
	var out []*HoldRow
	add := func(h *HoldRow) {
		for z := h; z != nil; z = z.Parent {
			if !slices.Contains(out, z) {
				out = append(out, z)
			}
		}
	}
	for _, h := range s.w.full[a.Name].holds {
		if h.State.Live() {
			add(h)
		}
	}
	for _, h := range s.w.changes.NewHolds {
		if h.on(a) && h.State.Live() {
			add(h)
		}
	}
	return out
}

// removeLimit is the command behind RemoveLimit (R59).
type removeLimit struct {
	call
	account, name, expect string
}

func (c *removeLimit) need(n *Need) { n.Accounts = append(n.Accounts, c.account) }

func (c *removeLimit) apply(s *step) (bool, error) {
	accounts, err := s.ready([]string{c.account})
	if err != nil {
		return false, err
	}
	row := accounts[0].limit(c.name)
	switch {
	case row == nil:
		return false, ErrNotFound
	case row.Removed && row.Prev == c.expect:
		return false, nil
	case row.Removed:
		return false, ErrNotFound
	case row.Print != c.expect:
		return false, &StaleError{Current: row.Print}
	}
	s.w.editLimit(row)
	row.Removed, row.Prev = true, row.Print
	s.free(row.Account)
	_, err = s.book(&booking{kind: EntryLimit, ref: c.name, reason: "removed", at: s.now, accounts: accounts})
	return true, err
}

// balances is the command behind Balances. It shows periods that nobody used yet, and writes nothing.
type balances struct {
	call
	account string
	at      int64 // 0: now
	out     []Balance
}

func (c *balances) need(n *Need) {
	n.Accounts = append(n.Accounts, c.account)
	if c.at != 0 {
		n.Times = append(n.Times, c.at)
	}
}

func (c *balances) apply(s *step) (bool, error) {
	c.out = nil
	accounts, err := s.ready([]string{c.account})
	if err != nil {
		return false, err
	}
	at := c.at
	if at == 0 {
		at = s.now
	}
	for _, l := range accounts[0].Limits {
		if l.Removed {
			continue
		}
		p, err := s.period(l, at)
		if err != nil {
			return false, err
		}
		b := s.balance(p)
		b.Fired = slices.Clone(b.Fired)
		c.out = append(c.out, b)
	}
	return false, nil
}

// lookup is the command behind Hold and Holds.
type lookup struct {
	call
	keys []string
	out  []*Hold
}

func (c *lookup) need(n *Need) { n.Holds = append(n.Holds, c.keys...) }

func (c *lookup) apply(s *step) (bool, error) {
	c.out = nil
	for _, key := range c.keys {
		if s.w.holds.get(key) == nil {
			continue // pruned since it was listed
		}
		if _, err := s.readyHold(key); err != nil {
			return false, err
		}
	}
	for _, key := range c.keys {
		if h := s.w.holds.get(key); h != nil {
			c.out = append(c.out, h.full())
		}
	}
	return false, nil
}

// prune is the command behind Prune (R76).
type prune struct {
	call
	account string
	before  int64
	max     int
	more    bool
}

func (c *prune) need(n *Need) {
	n.Accounts = append(n.Accounts, c.account)
	n.Prune = append(n.Prune, PruneNeed{Account: c.account, Before: c.before, Max: c.max})
}

const minPruneAge = int64(35 * 24 * time.Hour / time.Microsecond)

func (c *prune) apply(s *step) (bool, error) {
	if c.before > s.now-minPruneAge {
		return false, invalid("before", "younger than 35 days")
	}
	a := s.w.accounts.get(c.account)
	if a == nil {
		return false, nil
	}
	before := len(s.w.changes.Entries)
	if err := s.lapseDue([]*AccountRow{a}); err != nil {
		return false, err
	}
	lapsed := len(s.w.changes.Entries) > before
	rows := s.w.prune[c.account]
	entries, holds := 0, 0
	for _, e := range rows.entries {
		if e.Seq > a.Pruned && e.At < c.before {
			s.foldIn(e)
			s.w.editAccount(a)
			a.Pruned = e.Seq
			a.LastUS = s.now
			entries++
		}
	}
	for _, h := range rows.holds {
		if h.prunable(c.before) && !slices.Contains(s.w.changes.Pruned, h) {
			s.w.changes.Pruned = append(s.w.changes.Pruned, h)
			holds++
		}
	}
	// What has just lapsed is in the next page. A hold that is gone may have been the last to need its parent.
	c.more = entries == c.max || holds > 0 || lapsed
	return entries+holds > 0 || lapsed, nil
}

// prunable tells whether h ended before an instant and nothing needs its row.
func (h *HoldRow) prunable(before int64) bool {
	return !h.State.Live() && h.EndedUS < before && h.Children == 0 && h.Marks == 0
}

// longest is a span that no period of this kind exceeds, however its clock is changed.
func (k Kind) longest() int64 {
	const day = int64(24 * time.Hour / time.Microsecond)
	switch k {
	case Day:
		return 4 * day
	case Week:
		return 10 * day
	case Month:
		return 34 * day
	}
	return maxInstant
}

// foldIn adds an entry's postings to the base totals of their periods.
func (s *step) foldIn(e *EntryRow) {
	for _, g := range e.Postings {
		if g.Period == nil {
			continue
		}
		s.w.editPeriod(g.Period)
		g.Period.BaseSpent += g.Spent
		g.Period.BaseHeld += g.Held
		g.Period.BaseOverrun += g.Overrun
	}
}
