package spendlimittest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// SetLimit answers as [spendlimit.Ledger.SetLimit] does (R55 to R58).
func (m *Model) SetLimit(clock time.Time, l spendlimit.Limit, expect string, opts ...spendlimit.LimitOption) (out spendlimit.LimitState, err error) {
	backfill := slices.Contains(opts, spendlimit.Backfill)
	var keys []string
	if backfill { // it changes the holds, so their accounts take part
		for _, h := range m.held() {
			if slices.Contains(payersOf(h), l.Account) {
				keys = append(keys, h.req.Key)
			}
		}
	}
	err = m.step(clock, []string{l.Account}, nil, keys, func() (bool, error) {
		l := normalLimit(l)
		have := m.limit(l.Account, l.Name)
		v := m.version(have)
		switch {
		case have == nil || v.removed:
			if expect != "" {
				return false, &spendlimit.StaleError{}
			}
			if backfill && l.Kind == spendlimit.AllTime && len(m.Entries(l.Account, 0)) < int(m.seq(l.Account)) {
				return false, badInput("Backfill", "part of the journal is gone")
			}
			have = m.create(l)
			if backfill {
				if err := m.backfill(have); err != nil {
					return false, err
				}
			}
		case v.prev == expect && sameLimit(v.cfg, l):
			out = spendlimit.LimitState{Limit: v.cfg, Fingerprint: v.print, Replayed: true}
			return false, nil
		case v.print != expect:
			return false, &spendlimit.StaleError{Current: v.print}
		case backfill:
			return false, badInput("Backfill", "the limit exists")
		case v.cfg.Kind == spendlimit.AllTime && l.Kind != spendlimit.AllTime: // R9
			return false, badInput("Kind", "a total can't change its kind")
		default:
			m.alter(have, l)
		}
		out = spendlimit.LimitState{Limit: l, Fingerprint: m.version(have).print}
		return true, nil
	})
	if err != nil {
		return spendlimit.LimitState{}, err
	}
	return out, nil
}

// normalLimit writes out the defaults of R1.
func normalLimit(l spendlimit.Limit) spendlimit.Limit {
	l.Anchor = cmp.Or(l.Anchor, 1)
	l.Zone = cmp.Or(l.Zone, "UTC")
	if l.Raise.By == 0 {
		l.Raise = spendlimit.Raise{}
	} else {
		l.Raise.Until = utcMicro(l.Raise.Until.UnixMicro())
	}
	return l
}

func calendarOf(l spendlimit.Limit) spendlimit.Calendar {
	return spendlimit.Calendar{Kind: l.Kind, WeekStart: l.WeekStart, Anchor: l.Anchor, Zone: l.Zone}
}

func sameLimit(a, b spendlimit.Limit) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// create makes a new generation of a limit, which counts from now.
func (m *Model) create(cfg spendlimit.Limit) *modelLimit {
	l := &modelLimit{account: cfg.Account, name: cfg.Name, gen: 1, since: m.now}
	if old := m.limit(l.account, l.name); old != nil {
		l.gen = old.gen + 1
	}
	m.facts.limits = append(m.facts.limits, l)
	m.become(versionFact{limit: l, cfg: normalLimit(cfg), pin: beginning})
	m.limitEntry(l)
	return l
}

// become adds a version with its fingerprint: no two are equal (R55).
func (m *Model) become(v versionFact) {
	n := 0
	for _, old := range m.facts.versions {
		if old.limit == v.limit {
			n++
		}
	}
	v.print = fmt.Sprintf("%s/%s#%d.%d", v.limit.account, v.limit.name, v.limit.gen, n+1)
	m.facts.versions = append(m.facts.versions, v)
}

func (m *Model) limitEntry(l *modelLimit) {
	m.event(modelEvent{kind: spendlimit.EntryLimit, ref: l.name, at: m.now, accounts: []string{l.account}}, func() {})
}

// alter replaces a limit. The current period goes by it at once (R56), and its calendar acts from that period's end on (R9).
func (m *Model) alter(l *modelLimit, cfg spendlimit.Limit) {
	old := m.version(l)
	pin := old.pin
	if calendarOf(old.cfg) != calendarOf(cfg) && old.cfg.Kind != spendlimit.AllTime {
		pin = m.period(l, m.now).end
	}
	m.become(versionFact{limit: l, cfg: cfg, prev: old.print, pin: pin})
	for _, p := range m.rows(l) {
		if p.start <= m.now && m.now < p.end {
			m.reform(p)
			m.recut(p)
			m.fire(p)
		}
	}
	m.limitEntry(l)
}

// backfill makes a new limit count the current period's journal, and gives the holds that still hold room of it a line (R58).
func (m *Model) backfill(l *modelLimit) error {
	p := m.period(l, m.now)
	in := func(at int64) bool { return p.start <= at && at < p.end }
	var spent amount
	for _, d := range m.facts.directs {
		if d.account == l.account && d.period == nil && in(d.when) {
			spent += d.spent
		}
	}
	var parts []*modelPart
	for _, q := range m.facts.parts {
		if !in(q.at) || !slices.Contains(q.anchor.accounts, l.account) {
			continue
		}
		if m.state(q.anchor).Live() || len(m.below(q.anchor)) > 0 {
			parts = append(parts, q)
			continue
		}
		for _, c := range m.facts.counts {
			if c.part == q {
				spent += c.spent
			}
		}
	}
	m.event(modelEvent{kind: spendlimit.EntryLimit, ref: l.name, at: m.now, accounts: []string{l.account}}, func() {
		m.facts.directs = append(m.facts.directs, directFact{account: l.account, period: p, when: m.now, spent: spent})
		for _, q := range parts {
			m.facts.lines = append(m.facts.lines, lineFact{q, p})
		}
	})
	if s := m.sums(p); s.spent < s.assumed {
		return badInput("Backfill", "more was taken back than spent")
	}
	m.recut(p)
	return nil
}

// RemoveLimit answers as [spendlimit.Ledger.RemoveLimit] does (R59).
func (m *Model) RemoveLimit(clock time.Time, account, name, expect string) error {
	return m.step(clock, []string{account}, nil, nil, func() (bool, error) {
		l := m.limit(account, name)
		v := m.version(l)
		switch {
		case l == nil || v.removed && v.prev != expect:
			return false, spendlimit.ErrNotFound
		case v.removed:
			return false, nil
		case v.print != expect:
			return false, &spendlimit.StaleError{Current: v.print}
		}
		v.removed, v.prev = true, v.print
		m.become(v)
		m.limitEntry(l)
		return true, nil
	})
}

// Balances answers as [spendlimit.Ledger.Balances] does.
func (m *Model) Balances(clock time.Time, account string, at time.Time) (out []spendlimit.Balance) {
	_ = m.step(clock, []string{account}, nil, nil, func() (bool, error) {
		us := m.now
		if !at.IsZero() {
			us = at.UnixMicro()
		}
		for _, l := range m.active(account) {
			out = append(out, m.balance(m.period(l, us)))
		}
		return false, nil
	})
	return out
}

func (m *Model) balance(p *modelPeriod) spendlimit.Balance {
	m.endRaise(p, m.now)
	s, v := m.sums(p), m.version(p.limit)
	return spendlimit.Balance{
		Account: p.limit.account, Limit: p.limit.name, Kind: v.cfg.Kind, Period: p.label, Start: edgeTime(p.start), End: edgeTime(p.end),
		InForce: m.inForce(p), Spent: s.spent, Held: s.held, Available: m.available(p), Overrun: s.overrun, Cut: m.cut(p),
		Assumed: s.assumed, Unpriced: int64(m.unpricedOn(p)), Fired: m.firedOn(p), Fingerprint: v.print, Unit: m.cfg.Unit,
	}
}

// Questions about limits.

// limit returns the newest generation of a limit, removed or not, or nil.
func (m *Model) limit(account, name string) *modelLimit {
	for _, l := range slices.Backward(m.facts.limits) {
		if l.account == account && l.name == name {
			return l
		}
	}
	return nil
}

// active lists the limits of an account that new work must fit, by name.
func (m *Model) active(account string) []*modelLimit {
	var out []*modelLimit
	for _, l := range m.facts.limits {
		if l.account == account && !m.version(l).removed {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b *modelLimit) int { return strings.Compare(a.name, b.name) })
	return out
}

// version returns what a limit is now.
func (m *Model) version(l *modelLimit) versionFact {
	for _, v := range slices.Backward(m.facts.versions) {
		if v.limit == l {
			return v
		}
	}
	return versionFact{}
}

// rows lists the periods of a limit that were needed so far.
func (m *Model) rows(l *modelLimit) []*modelPeriod {
	var out []*modelPeriod
	for _, p := range m.facts.periods {
		if p.limit == l {
			out = append(out, p)
		}
	}
	return out
}

// period returns the row of the period that contains at, and makes it if nobody needed it before. Rows never move, so a new one
// fills the gap between those that are there (R8, R9).
func (m *Model) period(l *modelLimit, at int64) *modelPeriod {
	v := m.version(l)
	start, end := m.bounds(calendarOf(v.cfg), at)
	if at >= v.pin {
		start = max(start, v.pin)
	} else {
		end = min(end, v.pin)
	}
	newest := true
	for _, p := range m.rows(l) {
		switch {
		case p.end <= at:
			start = max(start, p.end)
		case p.start > at:
			end, newest = min(end, p.start), false
		default:
			return p
		}
	}
	p := &modelPeriod{limit: l, start: start, end: end, label: "total"}
	if v.cfg.Kind != spendlimit.AllTime {
		p.label = utcMicro(start).In(m.zone(v.cfg.Zone)).Format(time.DateOnly)
	}
	m.facts.periods = append(m.facts.periods, p)
	m.reform(p)
	if newest && v.cfg.CarryUnused > 0 && start > l.since {
		m.carry(p, v.cfg.CarryUnused)
	}
	return p
}

// carry moves unused room of the period directly before p into p (R60).
func (m *Model) carry(p *modelPeriod, most amount) {
	var prev *modelPeriod
	for _, q := range m.rows(p.limit) {
		if q.end == p.start {
			prev = q
		}
	}
	if prev == nil {
		prev = m.unused(p)
	}
	x := min(most, max(0, m.available(prev)))
	if x == 0 {
		return
	}
	m.facts.carries = append(m.facts.carries, carryFact{prev, p, x})
	m.recut(prev)
	m.event(modelEvent{kind: spendlimit.EntryCarry, ref: p.limit.name, at: m.now, accounts: []string{p.limit.account}}, func() {})
}

// unused makes the row of the period before p. It takes nothing from the one before it.
func (m *Model) unused(p *modelPeriod) *modelPeriod {
	v := m.version(p.limit)
	v.cfg.CarryUnused = 0
	m.facts.versions = append(m.facts.versions, v)
	prev := m.period(p.limit, p.start-1)
	m.facts.versions = m.facts.versions[:len(m.facts.versions)-1]
	return prev
}

// reform makes p go by its limit as it is now.
func (m *Model) reform(p *modelPeriod) {
	cfg := m.version(p.limit).cfg
	f := formFact{period: p, mode: cfg.Mode, amount: cfg.Amount}
	if until := cfg.Raise.Until.UnixMicro(); cfg.Raise.By > 0 && min(max(m.now, p.start), p.end-1) < until { // R57
		f.raise, f.until = cfg.Raise.By, until
	}
	m.facts.forms = append(m.facts.forms, f)
}

func (m *Model) form(p *modelPeriod) formFact {
	for _, f := range slices.Backward(m.facts.forms) {
		if f.period == p {
			return f
		}
	}
	return formFact{}
}

// inForce is the limit in force in p: with its raise, and with what was carried.
func (m *Model) inForce(p *modelPeriod) amount {
	f := m.form(p)
	sum := f.amount + f.raise
	for _, c := range m.facts.carries {
		switch p {
		case c.to:
			sum += c.amount
		case c.from:
			sum -= c.amount
		}
	}
	return sum
}

// endRaises ends the raises on the accounts of an event that are over by then: like a cut (R57).
func (m *Model) endRaises(e modelEvent) {
	for _, p := range m.facts.periods {
		if slices.Contains(e.accounts, p.limit.account) {
			m.endRaise(p, e.at)
		}
	}
}

// endRaise ends a raise that is over at an instant. A raise that lasts to the end of a period stays in that period.
func (m *Model) endRaise(p *modelPeriod, at int64) {
	if f := m.form(p); f.raise > 0 && f.until <= at && f.until < p.end {
		f.raise = 0
		m.facts.forms = append(m.facts.forms, f)
		m.recut(p)
	}
}

// recut sets the cut after the limit in force has changed (I4).
func (m *Model) recut(p *modelPeriod) {
	s := m.sums(p)
	m.facts.cuts = append(m.facts.cuts, cutFact{p, max(0, s.spent+s.held-m.inForce(p)-s.overrun)})
}

func (m *Model) cut(p *modelPeriod) amount {
	for _, c := range slices.Backward(m.facts.cuts) {
		if c.period == p {
			return c.amount
		}
	}
	return 0
}

// available is what a new hold may take: limit − spent − held, of all periods with CarryHolds (R39).
func (m *Model) available(p *modelPeriod) amount {
	m.endRaise(p, m.now)
	s := m.sums(p)
	if m.version(p.limit).cfg.CarryHolds {
		s.held = 0
		for _, q := range m.rows(p.limit) {
			s.held += m.sums(q).held
		}
	}
	return m.inForce(p) - s.spent - s.held
}

// The calendar.

// zone loads a zone, once.
func (m *Model) zone(name string) *time.Location {
	if m.zones[name] == nil {
		loc, err := time.LoadLocation(name)
		if err != nil {
			panic(err)
		}
		m.zones[name] = loc
	}
	return m.zones[name]
}

// bounds returns the period that contains at (R2 to R6).
func (m *Model) bounds(c spendlimit.Calendar, at int64) (start, end int64) {
	if c.Kind == spendlimit.AllTime {
		return beginning, never
	}
	today := m.dateOf(c.Zone, at)
	for m.firstInstant(c.Zone, today.AddDate(0, 0, 1)) <= at { // hours that were put back before midnight
		today = today.AddDate(0, 0, 1)
	}
	first, next := today, today.AddDate(0, 0, 1)
	switch c.Kind {
	case spendlimit.Week:
		for spendlimit.Weekday((first.Weekday()+6)%7) != c.WeekStart {
			first = first.AddDate(0, 0, -1)
		}
		next = first.AddDate(0, 0, 7)
	case spendlimit.Month:
		for first.Day() != c.Anchor {
			first = first.AddDate(0, 0, -1)
		}
		next = first.AddDate(0, 1, 0)
	}
	return m.firstInstant(c.Zone, first), m.firstInstant(c.Zone, next)
}

// dateOf returns the local date of an instant, as a midnight in UTC.
func (m *Model) dateOf(zone string, at int64) time.Time {
	y, mo, d := time.UnixMicro(at).In(m.zone(zone)).Date()
	return time.Date(y, mo, d, 0, 0, 0, 0, time.UTC)
}

type localDay struct {
	zone string
	date time.Time
}

// firstInstant returns the first quarter of an hour whose local date is date or later. Since 2012 clocks have changed on
// quarters only.
func (m *Model) firstInstant(zone string, date time.Time) int64 {
	const farthest = 15 * time.Hour // no zone is farther from UTC
	day := localDay{zone, date}
	if at, ok := m.days[day]; ok {
		return at
	}
	t := date.Add(-farthest)
	for m.dateOf(zone, t.UnixMicro()).Before(date) {
		t = t.Add(15 * time.Minute)
	}
	m.days[day] = t.UnixMicro()
	return t.UnixMicro()
}
