package spendlimittest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// Reserve answers as [spendlimit.Ledger.Reserve] does.
func (m *Model) Reserve(clock time.Time, r spendlimit.Request) (*spendlimit.Hold, error) {
	var out spendlimit.Hold
	err := m.step(clock, r.Accounts, []string{r.Key, r.Parent}, nil, func() (bool, error) {
		h, again, err := m.admit(r)
		if err != nil {
			return false, err
		}
		out = m.show(h)
		out.Replayed = again
		if !again {
			out.Crossed = m.crossed
		}
		return !again, nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// Check answers as [spendlimit.Ledger.Check] does.
func (m *Model) Check(clock time.Time, r spendlimit.Request) (out spendlimit.Offer, err error) {
	err = m.step(clock, r.Accounts, []string{r.Key, r.Parent}, nil, func() (bool, error) {
		h, _, err := m.admit(r)
		if err == nil {
			out = spendlimit.Offer{Amount: h.granted, Binding: h.binding, ExpiresAt: utcMicro(m.expires(h))}
		}
		return false, err
	})
	return out, err
}

// admit answers a request: with the hold of its key, or with a new one.
func (m *Model) admit(r spendlimit.Request) (h *modelHold, again bool, err error) {
	parent := m.find(r.Parent)
	h = &modelHold{req: r, ttl: ttlMicros(r.TTL), parent: parent, born: m.now}
	for _, a := range slices.Sorted(slices.Values(r.Accounts)) {
		if parent == nil || !slices.Contains(payersOf(parent), a) { // R26
			h.accounts = append(h.accounts, a)
		}
	}
	if old := m.find(r.Key); old != nil {
		switch {
		case contentOf(old) != contentOf(h):
			return nil, false, spendlimit.ErrKeyReused
		case !m.state(old).Live():
			return nil, false, m.ended(old)
		}
		return old, true, nil
	}
	switch {
	case r.Parent != "" && parent == nil:
		return nil, false, spendlimit.ErrNotFound
	case parent != nil && !m.state(parent).Live(): // R29
		return nil, false, m.ended(parent)
	case len(chainOf(h)) > 8: // R30
		return nil, false, badInput("Parent", "too deep")
	}
	lines, err := m.current(h.accounts)
	if err == nil {
		h.granted, h.binding, err = m.decide(wishOf(h, lines))
	}
	if err != nil {
		return nil, false, err
	}
	m.grant(h, lines)
	return h, false, nil
}

func ttlMicros(d time.Duration) int64 { return cmp.Or(d, 10*time.Minute).Microseconds() } // R32

// contentOf is what a key stands for.
func contentOf(h *modelHold) string {
	r := h.req
	parent := r.Parent
	if h.parent != nil {
		parent = h.parent.req.Key
	}
	return fmt.Sprintf("%q %q %d %d %t %t %v %d %v %q",
		h.accounts, parent, r.Amount, r.Min, r.Rest, r.Free, r.Split, h.ttl, r.Labels, r.Price)
}

// current returns the current period of every limit of the accounts.
func (m *Model) current(accounts []string) ([]*modelPeriod, error) {
	var lines []*modelPeriod
	for _, a := range accounts {
		limits := m.active(a)
		if len(limits) == 0 && m.cfg.NoLimit == spendlimit.Refuse { // R10
			return nil, &spendlimit.DeniedError{Reason: spendlimit.ReasonNoLimit, Account: a, Hopeless: true}
		}
		for _, l := range limits {
			lines = append(lines, m.period(l, m.now))
		}
	}
	return lines, nil
}

// modelAsk is a wish for room.
type modelAsk struct {
	want, need amount // want: everything means whatever is free
	accounts   []string
	lines      []*modelPeriod
	ancestors  []*modelHold // their periods must not be frozen either
	parent     *modelHold   // whose own room it takes
	credit     map[*modelPeriod]amount
	split      spendlimit.Split
	free       bool
}

// everything is more than there ever is.
const everything amount = math.MaxInt64

// wishOf turns a request into an ask (R12 to R15, R18).
func wishOf(h *modelHold, lines []*modelPeriod) modelAsk {
	r := h.req
	a := modelAsk{
		want: r.Amount, need: r.Amount, accounts: h.accounts, lines: lines, ancestors: chainOf(h)[1:], parent: h.parent,
		split: r.Split, free: r.Free,
	}
	if r.Amount == 0 {
		a.want = everything
	}
	if r.Min > 0 || r.Amount == 0 || r.Split.Group != "" {
		a.need = max(r.Min, 1)
	}
	return a
}

// decide judges an ask: all limits and the parent compose (R11).
func (m *Model) decide(a modelAsk) (amount, spendlimit.Binding, error) {
	none := spendlimit.Binding{}
	if !m.agreeing(a) { // R23
		return 0, none, spendlimit.ErrKeyReused
	}
	if m.frozen(a) { // R53
		return 0, none, m.refuse(a, spendlimit.ReasonUnpriced)
	}
	if m.full(a) { // R19
		return 0, none, m.refuse(a, spendlimit.ReasonGroupFull)
	}
	if a.free { // R15
		return 0, none, nil
	}
	grant, binding := a.want, none
	if a.parent != nil {
		if room := m.parentRoom(a); room < grant {
			grant, binding = room, spendlimit.Binding{Parent: a.parent.req.Key}
		}
	}
	if p := m.tightest(a); p != nil && m.room(a, p) < grant {
		grant, binding = m.room(a, p), spendlimit.Binding{Account: p.limit.account, Limit: p.limit.name}
	}
	switch {
	case grant < a.need && binding.Parent != "":
		e := m.refuse(a, spendlimit.ReasonParent)
		e.Parent = binding.Parent
		return 0, none, e
	case grant < a.need:
		return 0, none, m.refuse(a, 0)
	case grant == everything:
		return 0, none, badInput("Rest", "nothing bounds it")
	}
	return grant, binding, nil
}

// tightest returns the hard limit with the least room (R64), or nil.
func (m *Model) tightest(a modelAsk) *modelPeriod {
	hard := slices.DeleteFunc(slices.Clone(a.lines), func(p *modelPeriod) bool { return m.form(p).mode == spendlimit.Soft })
	if len(hard) == 0 {
		return nil
	}
	return slices.MinFunc(hard, func(p, q *modelPeriod) int {
		return cmp.Or(
			cmp.Compare(m.room(a, p), m.room(a, q)), cmp.Compare(q.end, p.end),
			strings.Compare(p.limit.account, q.limit.account), strings.Compare(p.limit.name, q.limit.name),
		)
	})
}

// room is what a limit gives to an ask: all that is available, or an even share of it (R18).
func (m *Model) room(a modelAsk, p *modelPeriod) amount {
	free := m.available(p) + a.credit[p]
	if a.split.Group == "" {
		return free
	}
	return floorDiv(free, a.split.Slots-len(m.siblings(a, p)))
}

func (m *Model) parentRoom(a modelAsk) amount {
	if a.split.Group == "" {
		return m.own(a.parent)
	}
	return floorDiv(m.own(a.parent), a.split.Slots-len(m.twins(a)))
}

// floorDiv divides, and rounds down below zero too.
func floorDiv(n amount, by int) amount {
	q := n / amount(by)
	if q*amount(by) > n {
		q--
	}
	return q
}

// siblings are the live members of the group with a line on p.
func (m *Model) siblings(a modelAsk, p *modelPeriod) []*modelHold {
	return slices.DeleteFunc(m.held(), func(h *modelHold) bool { return h.req.Split.Group != a.split.Group || !m.hasLine(h, p) })
}

// twins are the parent's live children in the group.
func (m *Model) twins(a modelAsk) []*modelHold {
	return slices.DeleteFunc(m.held(), func(h *modelHold) bool { return h.req.Split.Group != a.split.Group || h.parent != a.parent })
}

// agreeing tells whether all live members of the group, on the asker's accounts or below its parent, say the same number of
// slots.
func (m *Model) agreeing(a modelAsk) bool {
	if a.split.Group == "" {
		return true
	}
	return !slices.ContainsFunc(m.held(), func(h *modelHold) bool {
		sibling := a.parent != nil && h.parent == a.parent ||
			slices.ContainsFunc(a.accounts, func(account string) bool { return slices.Contains(h.accounts, account) })
		return sibling && h.req.Split.Group == a.split.Group && h.req.Split.Slots != a.split.Slots
	})
}

// frozen tells whether cost without a price stands in a period that the ask, or an ancestor, counts against.
func (m *Model) frozen(a modelAsk) bool {
	lines := slices.Clone(a.lines)
	for _, z := range a.ancestors {
		for _, p := range m.partsOf(z) {
			lines = append(lines, m.linesOf(p)...)
		}
	}
	return slices.ContainsFunc(lines, func(p *modelPeriod) bool {
		v := m.version(p.limit)
		return !v.removed && v.cfg.OnUnpriced == spendlimit.Refuse && m.form(p).mode == spendlimit.Hard && m.unpricedOn(p) > 0
	})
}

func (m *Model) full(a modelAsk) bool {
	if a.split.Group == "" {
		return false
	}
	return a.parent != nil && len(m.twins(a)) >= a.split.Slots ||
		slices.ContainsFunc(a.lines, func(p *modelPeriod) bool { return len(m.siblings(a, p)) >= a.split.Slots })
}

// refuse makes the error of a refusal (R63 to R65). Without a reason it is a limit's lack of room.
func (m *Model) refuse(a modelAsk, r spendlimit.Reason) *spendlimit.DeniedError {
	e := &spendlimit.DeniedError{Reason: r, Wanted: a.want, Min: a.need}
	if a.want == everything {
		e.Wanted = 0
	}
	if r == spendlimit.ReasonUnpriced || r == spendlimit.ReasonGroupFull {
		return e
	}
	for _, p := range a.lines {
		if m.form(p).mode == spendlimit.Soft || m.room(a, p) >= a.need {
			continue
		}
		e.Exhausted = append(e.Exhausted, m.balance(p))
		if holds, reset := m.helps(p, a.need); !holds && !reset {
			e.Hopeless = true
		}
	}
	if r == spendlimit.ReasonParent {
		return e
	}
	p := m.tightest(a)
	e.Binding, e.Reason, e.ResetAt = m.balance(p), spendlimit.ReasonSpent, edgeTime(p.end)
	holds, reset := m.helps(p, a.need)
	if holds {
		e.Reason = spendlimit.ReasonHeld
	}
	e.WaitHolds, e.WaitReset = holds && !e.Hopeless, reset && !e.Hopeless
	return e
}

// helps tells what could make room for n on p: the end of holds, or the next period (R17, R65).
func (m *Model) helps(p *modelPeriod, n amount) (holds, reset bool) {
	spent, cfg := m.sums(p).spent, m.version(p.limit).cfg
	next := cfg.Amount + min(cfg.CarryUnused, max(0, m.inForce(p)-spent))
	if cfg.Raise.By > 0 && cfg.Raise.Until.UnixMicro() > p.end {
		next += cfg.Raise.By
	}
	held := m.inForce(p) - spent - m.available(p)
	return spent+n <= m.inForce(p) && held > 0, p.end != never && n <= next
}

// grant makes the hold.
func (m *Model) grant(h *modelHold, lines []*modelPeriod) {
	f := &m.facts
	f.holds = append(f.holds, h)
	f.expiries = append(f.expiries, expiryFact{h, m.now + h.ttl})
	m.enterState(h, spendlimit.Open)
	out := m.event(modelEvent{kind: spendlimit.EntryReserve, ref: h.req.Key, at: m.now, labels: h.req.Labels, accounts: payersOf(h)}, func() {
		m.give(h, h.granted)
		if len(h.accounts) > 0 {
			f.counts = append(f.counts, countFact{hold: h, part: m.partOn(h, lines), held: h.granted})
		}
	})
	h.seq = out.seq
}

// give moves room into h, out of its parent.
func (m *Model) give(h *modelHold, n amount) {
	m.move(h, n)
	if h.parent != nil {
		m.move(h.parent, -n)
	}
}

// partOn returns the newest part of h if it is on these periods, else a new one.
func (m *Model) partOn(h *modelHold, lines []*modelPeriod) *modelPart {
	if all := m.partsOf(h); len(all) > 0 {
		if last := all[len(all)-1]; slices.Equal(m.linesOf(last), lines) {
			return last
		}
	}
	p := &modelPart{anchor: h, at: m.now}
	m.facts.parts = append(m.facts.parts, p)
	for _, l := range lines {
		m.facts.lines = append(m.facts.lines, lineFact{p, l})
	}
	return p
}

// show is a hold as users see it.
func (m *Model) show(h *modelHold) spendlimit.Hold {
	c := m.change(h)
	out := spendlimit.Hold{
		Key: h.req.Key, Parent: h.req.Parent, Accounts: h.accounts, State: c.state, Granted: h.granted, Own: m.own(h),
		Recorded: m.recorded(h), Assumed: m.assumed(h), Group: h.req.Split.Group, Slots: h.req.Split.Slots,
		Labels: maps.Clone(h.req.Labels), Price: h.req.Price, Binding: h.binding,
		CreatedAt: utcMicro(h.born), ExpiresAt: utcMicro(m.expires(h)), Revision: h.seq,
	}
	if c.ended != 0 {
		out.EndedAt = utcMicro(c.ended)
	}
	return out
}

// Hold answers as [spendlimit.Ledger.Hold] does.
func (m *Model) Hold(clock time.Time, key string) (*spendlimit.Hold, error) {
	all := m.look(clock, []string{key})
	if len(all) == 0 {
		return nil, spendlimit.ErrNotFound
	}
	return all[0], nil
}

// Holds answers as [spendlimit.Ledger.Holds] does, for lists of one page.
func (m *Model) Holds(clock time.Time, f spendlimit.HoldFilter) []*spendlimit.Hold {
	var keys []string
	for _, h := range m.facts.holds {
		on := f.Account == "" || slices.Contains(payersOf(h), f.Account)
		if on && m.find(h.req.Key) == h && (!f.Live || m.state(h).Live()) {
			keys = append(keys, h.req.Key)
		}
	}
	slices.Sort(keys)
	return slices.DeleteFunc(m.look(clock, keys), func(h *spendlimit.Hold) bool { return f.Live && !h.State.Live() })
}

func (m *Model) look(clock time.Time, keys []string) (out []*spendlimit.Hold) {
	_ = m.step(clock, nil, keys, nil, func() (bool, error) {
		for _, k := range keys {
			if h := m.find(k); h != nil {
				v := m.show(h)
				out = append(out, &v)
			}
		}
		return false, nil
	})
	return out
}

// Dispatch answers as [spendlimit.Ledger.Dispatch] does.
func (m *Model) Dispatch(clock time.Time, key string) error {
	return m.step(clock, nil, []string{key}, nil, func() (bool, error) {
		h := m.find(key)
		switch {
		case h == nil:
			return false, spendlimit.ErrNotFound
		case !m.state(h).Live():
			return false, m.ended(h)
		case m.state(h) == spendlimit.Dispatched:
			return false, nil
		}
		m.event(modelEvent{kind: spendlimit.EntryDispatch, ref: key, at: m.now, accounts: payersOf(h)}, func() {
			m.enterState(h, spendlimit.Dispatched)
		})
		return true, nil
	})
}

// Grow answers as [spendlimit.Ledger.Grow] does (R37).
func (m *Model) Grow(clock time.Time, g spendlimit.Growth) (out receipt, err error) {
	err = m.once(clock, g.Hold, g.ID, fmt.Sprint("grow ", g.By, g.Min), &out, func(h *modelHold) error {
		if !m.state(h).Live() {
			return m.ended(h)
		}
		lines, err := m.current(h.accounts)
		if err != nil {
			return err
		}
		grant, _, err := m.decide(modelAsk{want: g.By, need: cmp.Or(g.Min, g.By), lines: lines, ancestors: chainOf(h)[1:], parent: h.parent})
		if err != nil {
			return err
		}
		done := m.event(modelEvent{kind: spendlimit.EntryGrow, ref: g.ID, hold: g.Hold, at: m.now, accounts: payersOf(h)}, func() {
			m.give(h, grant)
			if len(h.accounts) > 0 {
				m.facts.counts = append(m.facts.counts, countFact{hold: h, part: m.partOn(h, lines), held: grant})
			}
		})
		out = receipt{Granted: grant, Own: m.own(h), LiveChildren: m.children(h), Crossed: m.crossed, Revision: done.seq}
		return nil
	})
	return out, err
}

// Shrink answers as [spendlimit.Ledger.Shrink] does (R38).
func (m *Model) Shrink(clock time.Time, s spendlimit.Shrinkage) (out receipt, err error) {
	err = m.once(clock, s.Hold, s.ID, fmt.Sprint("shrink ", s.By), &out, func(h *modelHold) error {
		switch {
		case !m.state(h).Live():
			return m.ended(h)
		case s.By > m.own(h):
			return badInput("By", "more than its own")
		}
		done := m.event(modelEvent{kind: spendlimit.EntryShrink, ref: s.ID, hold: s.Hold, at: m.now, accounts: payersOf(h)}, func() {
			m.giveBack(h, s.By)
		})
		out = receipt{Returned: s.By, Own: m.own(h), LiveChildren: m.children(h), Crossed: m.crossed, Revision: done.seq}
		return nil
	})
	return out, err
}

// Extend answers as [spendlimit.Ledger.Extend] does (R35, R36).
func (m *Model) Extend(clock time.Time, e spendlimit.Extension) (out receipt, err error) {
	if e.Roll {
		err = m.once(clock, e.Hold, e.ID, fmt.Sprint("roll ", ttlMicros(e.TTL), e.Min), &out, func(h *modelHold) error {
			if !m.state(h).Live() {
				return m.ended(h)
			}
			out, err = m.roll(h, e)
			return err
		})
		return out, err
	}
	err = m.step(clock, nil, []string{e.Hold}, nil, func() (bool, error) {
		h := m.find(e.Hold)
		switch {
		case h == nil:
			return false, spendlimit.ErrNotFound
		case !m.state(h).Live():
			return false, m.ended(h)
		}
		out = receipt{Own: m.own(h), LiveChildren: m.children(h)}
		if !m.prolong(h, e.TTL) {
			return false, nil
		}
		out.Revision = m.event(modelEvent{kind: spendlimit.EntryExtend, ref: e.Hold, at: m.now, accounts: payersOf(h)}, func() {}).seq
		out.Crossed = m.crossed
		return true, nil
	})
	return out, err
}

// prolong gives h more time, never less and at most 30 days in all, and tells whether that changed anything.
func (m *Model) prolong(h *modelHold, d time.Duration) bool {
	at := min(m.now+ttlMicros(d), h.born+(30*24*time.Hour).Microseconds())
	if at <= m.expires(h) {
		return false
	}
	m.facts.expiries = append(m.facts.expiries, expiryFact{h, at})
	return true
}

// roll moves what is left of an anchor into the current periods. What does not fit is given back; the room of live children
// must fit.
func (m *Model) roll(h *modelHold, e spendlimit.Extension) (receipt, error) {
	if len(h.accounts) == 0 {
		return receipt{}, badInput("Roll", "no accounts of its own")
	}
	lines, err := m.current(h.accounts)
	if err != nil {
		return receipt{}, err
	}
	var left amount
	for _, p := range m.partsOf(h) {
		left += m.left(p)
	}
	if e.Min > left {
		return receipt{}, badInput("Min", "more than is left")
	}
	grant := amount(0)
	if left > 0 {
		if grant, err = m.decideRoll(h, lines, left, e.Min); err != nil {
			return receipt{}, err
		}
	}
	done := m.event(modelEvent{kind: spendlimit.EntryRoll, ref: e.ID, hold: e.Hold, at: m.now, accounts: payersOf(h)}, func() {
		m.prolong(h, e.TTL)
		if left > 0 {
			m.shift(h, m.partOn(h, lines))
			m.giveBack(h, left-grant)
		}
	})
	return receipt{
		Granted: grant, Returned: left - grant, Own: m.own(h), LiveChildren: m.children(h), Crossed: m.crossed, Revision: done.seq,
	}, nil
}

// decideRoll asks for what is left of h in the current periods: at least least, and all that live children hold.
func (m *Model) decideRoll(h *modelHold, lines []*modelPeriod, left, least amount) (amount, error) {
	a := modelAsk{want: left, need: left, lines: lines, ancestors: chainOf(h)[1:], credit: map[*modelPeriod]amount{}}
	if least > 0 {
		a.need = max(least, left-m.own(h))
	}
	for _, l := range lines {
		a.credit[l] = m.credit(h, l)
	}
	grant, _, err := m.decide(a)
	return grant, err
}

// shift moves what is left in all parts of h to one of them.
func (m *Model) shift(h *modelHold, to *modelPart) {
	for _, p := range m.partsOf(h) {
		n := m.left(p)
		m.facts.counts = append(m.facts.counts, countFact{hold: h, part: p, held: -n}, countFact{hold: h, part: to, held: n})
	}
}

// credit is what h holds of the room of l already: a roll moves it, so it is no obstacle.
func (m *Model) credit(h *modelHold, l *modelPeriod) (sum amount) {
	all := m.version(l.limit).cfg.CarryHolds
	for _, p := range m.partsOf(h) {
		if slices.ContainsFunc(m.linesOf(p), func(q *modelPeriod) bool { return q == l || all && q.limit == l.limit }) {
			sum += m.left(p)
		}
	}
	return sum
}
