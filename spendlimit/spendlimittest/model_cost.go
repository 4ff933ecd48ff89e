package spendlimittest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// Cost is a [spendlimit.Cost] that can be read.
type Cost struct {
	Form      CostForm
	Amount    spendlimit.Amount // of KnownCost
	Metered   int64
	ZeroPrice bool
	Source    spendlimit.Source
}

// CostForm says which constructor makes the cost.
type CostForm uint8

const (
	KnownCost    CostForm = iota + 1 // Total
	RecordedCost                     // Recorded
	UnknownCost                      // Unknown
)

// Real is the cost to give to a ledger.
func (c Cost) Real() spendlimit.Cost {
	var out spendlimit.Cost
	switch c.Form {
	case KnownCost:
		out = spendlimit.Total(c.Amount)
	case RecordedCost:
		out = spendlimit.Recorded()
	case UnknownCost:
		out = spendlimit.Unknown("no price")
	}
	out.Metered, out.ZeroPrice, out.Source = c.Metered, c.ZeroPrice, c.Source
	return out
}

func (c Cost) anomaly() spendlimit.Anomaly {
	if c.Form == KnownCost && c.Amount == 0 && c.Metered > 0 && !c.ZeroPrice { // R48
		return spendlimit.AnomalyZeroCost
	}
	return spendlimit.NoAnomaly
}

// once runs a command with a usage id of a hold, or gives its first answer again.
func (m *Model) once(clock time.Time, hold, id, content string, out *receipt, f func(*modelHold) error) error {
	return m.step(clock, nil, []string{hold}, nil, func() (bool, error) {
		h := m.find(hold)
		if h == nil {
			return false, spendlimit.ErrNotFound
		}
		again, err := m.again(h, id, content, out)
		if again || err != nil {
			return false, err
		}
		if err := f(h); err != nil {
			return false, err
		}
		m.facts.usages = append(m.facts.usages, usageFact{hold: h, id: id, content: content, receipt: *out})
		return true, nil
	})
}

// again gives the first answer of an id that was used before.
func (m *Model) again(h *modelHold, id, content string, out *receipt) (bool, error) {
	u := m.usage(h, id)
	switch {
	case u == nil:
		return false, nil
	case u.content != content:
		return false, spendlimit.ErrKeyReused
	}
	*out = u.receipt
	out.Replayed = true
	return true, nil
}

// Usage is a [spendlimit.Usage] whose cost can be read.
type Usage struct {
	Hold, ID   string
	Cost       Cost // KnownCost or UnknownCost
	Cumulative bool
}

// Real is the usage to give to a ledger.
func (u Usage) Real() spendlimit.Usage {
	return spendlimit.Usage{Hold: u.Hold, ID: u.ID, Cost: u.Cost.Real(), Cumulative: u.Cumulative}
}

// Record answers as [spendlimit.Ledger.Record] does (R41 to R43).
func (m *Model) Record(clock time.Time, u Usage) (out receipt, err error) {
	err = m.step(clock, nil, []string{u.Hold}, nil, func() (bool, error) {
		h := m.find(u.Hold)
		if h == nil {
			return false, spendlimit.ErrNotFound
		}
		was := m.usage(h, u.ID)
		if was == nil {
			was = &usageFact{hold: h, id: u.ID, content: fmt.Sprint("record ", u.Cumulative)}
		} else if again, err := recordedBefore(*was, u); again || err != nil {
			out = was.receipt
			out.Replayed = true
			return false, err
		}
		switch m.state(h) {
		case spendlimit.Settled, spendlimit.SettledUnpriced, spendlimit.Released:
			return false, m.ended(h)
		}
		out = m.record(h, u, *was)
		return true, nil
	})
	if err != nil {
		return receipt{}, err
	}
	return out, nil
}

// recordedBefore tells whether an id that was used has nothing more to say.
func recordedBefore(was usageFact, u Usage) (bool, error) {
	unknown := u.Cost.Form == UnknownCost
	switch {
	case was.content != fmt.Sprint("record ", u.Cumulative):
		return false, spendlimit.ErrKeyReused
	case was.unpriced:
		return unknown, nil
	case !unknown && u.Cumulative:
		return u.Cost.Amount <= was.cost, nil
	case unknown || u.Cost.Amount != was.cost:
		return false, spendlimit.ErrKeyReused
	}
	return true, nil
}

// record books what is new of a usage.
func (m *Model) record(h *modelHold, u Usage, was usageFact) receipt {
	late := !m.state(h).Live()
	kind, to := spendlimit.EntryRecord, spendlimit.Dispatched
	if late {
		kind, to = spendlimit.EntryLate, spendlimit.LapsedCharged
	}
	m.enterState(h, to)
	r := receipt{Late: late, Source: u.Cost.Source, Anomaly: u.Cost.anomaly(), Unpriced: u.Cost.Form == UnknownCost}
	done := m.event(modelEvent{kind: kind, ref: u.ID, hold: u.Hold, source: u.Cost.Source, at: m.now, cost: true, accounts: payersOf(h)}, func() {
		m.facts.usages = append(m.facts.usages, usageFact{
			hold: h, id: u.ID, content: was.content, cost: u.Cost.Amount, unpriced: r.Unpriced,
		})
		if r.Unpriced {
			return // nothing moves
		}
		r.Cost = u.Cost.Amount - was.cost
		known := min(r.Cost, m.assumed(h)) // it was counted already, without knowledge
		m.learn(h, known)
		r.Excess = m.flow(h, r.Cost-known, false)
		m.facts.records = append(m.facts.records, recordFact{h, r.Cost})
	})
	r.Own, r.Assumed, r.LiveChildren = m.own(h), m.assumed(h), m.children(h)
	r.Overrun, r.Revision, r.Crossed = done.overrun, done.seq, m.crossed
	now := *m.usage(h, u.ID)
	now.receipt = r
	m.facts.usages = append(m.facts.usages, now)
	return r
}

// Settle answers as [spendlimit.Ledger.Settle] does.
func (m *Model) Settle(clock time.Time, key string, c Cost, opts ...spendlimit.Option) (out receipt, err error) {
	err = m.step(clock, nil, []string{key}, nil, func() (bool, error) {
		h := m.find(key)
		if h == nil {
			return false, spendlimit.ErrNotFound
		}
		if c.Form == RecordedCost {
			c.Form, c.Amount = KnownCost, m.recorded(h)
			if m.openUsages(h) > 0 { // R43
				c.Form = UnknownCost
			}
		}
		state := m.state(h)
		known := c.Form == KnownCost
		switch {
		case state == spendlimit.Settled && known && c.Amount == m.recorded(h), state == spendlimit.SettledUnpriced && !known:
			out = m.change(h).receipt
			out.Replayed = true
			return false, nil
		case state == spendlimit.Settled, state == spendlimit.Released && !slices.Contains(opts, spendlimit.Late):
			return false, m.ended(h)
		case known && c.Amount < m.recorded(h):
			return false, badInput("Cost", "less than recorded")
		}
		out = m.settle(h, c)
		return true, nil
	})
	return out, err
}

// settle ends h with a cost, or replaces its end.
func (m *Model) settle(h *modelHold, c Cost) receipt {
	was := m.change(h)
	late := !was.state.Live()
	kind := spendlimit.EntrySettle
	if late {
		kind = spendlimit.EntryLate
	}
	r := receipt{Late: late, Source: c.Source, Anomaly: c.anomaly(), Unpriced: c.Form == UnknownCost}
	done := m.event(modelEvent{kind: kind, ref: h.req.Key, source: c.Source, at: m.now, cost: true, accounts: payersOf(h)}, func() {
		if r.Unpriced {
			m.settleUnknown(h, was, &r)
		} else {
			m.settleKnown(h, c.Amount, &r)
		}
	})
	r.Assumed, r.LiveChildren = m.assumed(h), m.children(h)
	r.Overrun, r.Revision, r.Crossed = done.overrun, done.seq, m.crossed
	m.answer(h, r)
	return r
}

// settleKnown counts total as the cost of h, in place of what was recorded and assumed.
func (m *Model) settleKnown(h *modelHold, total amount, r *receipt) {
	cost := total - m.recorded(h)
	known := min(cost, m.assumed(h))
	m.learn(h, known)
	refuted := m.assumed(h)
	m.refute(h, refuted)
	r.Cost = total
	r.Excess = m.flow(h, cost-known, false)
	m.facts.records = append(m.facts.records, recordFact{h, cost})
	r.Returned = refuted + m.own(h)
	if m.state(h).Live() {
		m.end(h, spendlimit.Settled, m.now)
		m.giveBack(h, m.own(h))
	} else {
		m.enterState(h, spendlimit.Settled)
	}
}

// settleUnknown counts h at its own room: for a hold that ended free, the room that it had then (R52).
func (m *Model) settleUnknown(h *modelHold, was stateFact, r *receipt) {
	switch was.state {
	case spendlimit.Open, spendlimit.Dispatched:
		own := m.own(h)
		m.end(h, spendlimit.SettledUnpriced, m.now)
		m.flow(h, own, true)
	case spendlimit.Released, spendlimit.LapsedFree:
		m.enterState(h, spendlimit.SettledUnpriced)
		r.Excess = m.flow(h, was.own, true)
	default:
		m.enterState(h, spendlimit.SettledUnpriced)
	}
}

// Release answers as [spendlimit.Ledger.Release] does.
func (m *Model) Release(clock time.Time, key string, opts ...spendlimit.Option) (out receipt, err error) {
	tree, notSpent := slices.Contains(opts, spendlimit.Tree), slices.Contains(opts, spendlimit.NotSpent)
	var also []string
	if h := m.find(key); h != nil && tree {
		for _, d := range m.below(h) {
			also = append(also, d.req.Key)
		}
	}
	err = m.step(clock, nil, []string{key}, also, func() (bool, error) {
		h := m.find(key)
		if h == nil {
			return false, spendlimit.ErrNotFound
		}
		state := m.state(h)
		switch {
		case state == spendlimit.Released, state == spendlimit.LapsedFree:
			out = m.change(h).receipt
			out.Replayed = true
			return false, nil
		case state == spendlimit.LapsedCharged && notSpent:
			out = m.settle(h, Cost{Form: KnownCost, Amount: m.recorded(h)})
			return true, nil
		case !state.Live():
			return false, m.ended(h)
		case state == spendlimit.Dispatched && !(notSpent && m.recorded(h) == 0 && m.openUsages(h) == 0):
			return false, spendlimit.ErrDispatched
		}
		if tree {
			m.releaseBelow(h)
		}
		out = m.release(h)
		return true, nil
	})
	return out, err
}

// releaseBelow releases the open holds under h, the deepest first.
func (m *Model) releaseBelow(h *modelHold) {
	all := m.below(h)
	slices.SortFunc(all, func(a, b *modelHold) int { return cmp.Or(len(chainOf(b))-len(chainOf(a)), m.byExpiry(a, b)) })
	for _, d := range all {
		if m.state(d) == spendlimit.Open {
			m.release(d)
		}
	}
}

func (m *Model) release(h *modelHold) receipt {
	r := receipt{Returned: m.own(h)}
	m.end(h, spendlimit.Released, m.now)
	return m.finish(h, r, spendlimit.EntryRelease, func() { m.giveBack(h, r.Returned) })
}

func (m *Model) finish(h *modelHold, r receipt, kind spendlimit.EntryKind, do func()) receipt {
	done := m.event(modelEvent{kind: kind, ref: h.req.Key, at: m.now, accounts: payersOf(h)}, do)
	r.Assumed, r.LiveChildren, r.Revision, r.Crossed = m.assumed(h), m.children(h), done.seq, m.crossed
	m.answer(h, r)
	return r
}

// Close answers as [spendlimit.Ledger.Close] does.
func (m *Model) Close(clock time.Time, key string) error {
	return m.step(clock, nil, []string{key}, nil, func() (bool, error) {
		h := m.find(key)
		switch {
		case h == nil:
			return false, spendlimit.ErrNotFound
		case m.state(h) == spendlimit.Open:
			m.release(h)
		case m.state(h) == spendlimit.Dispatched:
			own := m.own(h)
			m.end(h, spendlimit.LapsedCharged, m.now)
			m.finish(h, receipt{}, spendlimit.EntryLapse, func() { m.flow(h, own, true) })
		default:
			return false, nil
		}
		return true, nil
	})
}

// Expense is a [spendlimit.Expense] whose cost can be read.
type Expense struct {
	ID       string
	Accounts []string
	Cost     Cost // KnownCost
	At       time.Time
}

// Real is the expense to give to a ledger.
func (e Expense) Real() spendlimit.Expense {
	return spendlimit.Expense{ID: e.ID, Accounts: e.Accounts, Cost: e.Cost.Real(), At: e.At}
}

// Charge answers as [spendlimit.Ledger.Charge] does (R49).
func (m *Model) Charge(clock time.Time, e Expense) (out receipt, err error) {
	accounts := slices.Sorted(slices.Values(e.Accounts))
	id := fmt.Sprint("charge ", accounts, e.Cost.Amount, e.Cost.Source, e.At.UnixMicro())
	err = m.step(clock, accounts, nil, nil, func() (bool, error) {
		again, err := m.again(nil, e.ID, id, &out)
		if again || err != nil {
			return false, err
		}
		at, err := m.instant(e.At)
		if err != nil {
			return false, err
		}
		for _, a := range accounts {
			m.need(a, at)
		}
		done := m.event(modelEvent{kind: spendlimit.EntryCharge, ref: e.ID, source: e.Cost.Source, at: m.now, cost: true, accounts: accounts}, func() {
			for _, a := range accounts {
				m.spendAt(a, at, e.Cost.Amount)
			}
		})
		out = receipt{
			Cost: e.Cost.Amount, Overrun: done.overrun, Source: e.Cost.Source, Anomaly: e.Cost.anomaly(), Crossed: m.crossed, Revision: done.seq,
		}
		m.facts.usages = append(m.facts.usages, usageFact{id: e.ID, content: id, receipt: out})
		return true, nil
	})
	return out, err
}

// instant is when a charge or an adjustment counts.
func (m *Model) instant(at time.Time) (int64, error) {
	switch {
	case at.IsZero():
		return m.now, nil
	case at.UnixMicro() > m.now:
		return 0, badInput("At", "in the future")
	}
	return at.UnixMicro(), nil
}

// need makes the rows of an account's periods that contain at.
func (m *Model) need(account string, at int64) {
	for _, l := range m.active(account) {
		m.period(l, at)
	}
}

// spendAt counts n in an account and in its periods that contain at.
func (m *Model) spendAt(account string, at int64, n amount) {
	m.facts.directs = append(m.facts.directs, directFact{account: account, when: at, spent: n})
	for _, l := range m.active(account) {
		m.facts.directs = append(m.facts.directs, directFact{account: account, period: m.period(l, at), when: at, spent: n})
	}
}

// Adjust answers as [spendlimit.Ledger.Adjust] does (R50).
func (m *Model) Adjust(clock time.Time, a spendlimit.Adjustment) (out receipt, err error) {
	id := fmt.Sprintf("adjust %q %q %d %d %q", a.Account, a.Hold, a.At.UnixMicro(), a.By, a.Reason)
	var accounts, keys []string
	if a.Hold == "" {
		accounts = []string{a.Account}
	} else {
		keys = []string{a.Hold}
	}
	err = m.step(clock, accounts, keys, nil, func() (bool, error) {
		again, err := m.again(nil, a.ID, id, &out)
		if again || err != nil {
			return false, err
		}
		h := m.find(a.Hold)
		if a.Hold != "" && h == nil {
			return false, spendlimit.ErrNotFound
		}
		at, err := m.instant(a.At)
		if err != nil {
			return false, err
		}
		if h != nil {
			accounts = slices.DeleteFunc(payersOf(h), func(p string) bool { return a.Account != "" && a.Account != p })
			if len(accounts) == 0 {
				return false, badInput("Account", "does not pay for the hold")
			}
		} else {
			m.need(a.Account, at)
		}
		done := m.event(modelEvent{kind: spendlimit.EntryAdjust, ref: a.ID, hold: a.Hold, at: m.now, cost: true, accounts: accounts}, func() {
			if h != nil {
				m.adjustHold(h, accounts, a.By)
			} else {
				m.spendAt(a.Account, at, a.By)
			}
		})
		for _, p := range m.facts.periods {
			if s := m.sums(p); s.spent < s.assumed { // what is assumed is taken back by its hold alone
				return false, badInput("By", "more than is known to be spent")
			}
		}
		out = receipt{Cost: a.By, Overrun: done.overrun, Crossed: m.crossed, Revision: done.seq}
		m.facts.usages = append(m.facts.usages, usageFact{id: a.ID, content: id, receipt: out})
		return true, nil
	})
	return out, err
}

// adjustHold counts n in the newest periods of a hold, those of the given accounts.
func (m *Model) adjustHold(h *modelHold, accounts []string, n amount) {
	for _, z := range chainOf(h) {
		parts := m.partsOf(z)
		if len(parts) == 0 {
			continue
		}
		newest := parts[len(parts)-1]
		for _, a := range z.accounts {
			if !slices.Contains(accounts, a) {
				continue
			}
			m.facts.directs = append(m.facts.directs, directFact{account: a, when: newest.at, spent: n})
			for _, p := range m.linesOf(newest) {
				if p.limit.account == a {
					m.facts.directs = append(m.facts.directs, directFact{account: a, period: p, when: newest.at, spent: n})
				}
			}
		}
	}
}

// Sweep answers as [spendlimit.Ledger.Sweep] does: it only writes down what has happened anyway (R74).
func (m *Model) Sweep(clock time.Time, most int) (ended int) {
	for ended < most {
		keys := m.overdue(clock.UnixMicro())
		if len(keys) == 0 {
			return ended
		}
		m.now = clock.UnixMicro()
		m.crossed = nil
		for _, h := range m.enter(clock.UnixMicro(), m.with(nil, keys), nil) {
			if ended < most {
				m.lapse(h)
				ended++
			}
		}
	}
	return ended
}

// overdue lists the live holds whose time is over on one of their accounts.
func (m *Model) overdue(clock int64) (keys []string) {
	for _, h := range m.held() {
		for _, a := range payersOf(h) {
			if m.expires(h) < max(clock, m.last(a)) {
				keys = append(keys, h.req.Key)
				break
			}
		}
	}
	return keys
}

// Prune answers as [spendlimit.Ledger.Prune] does, for journals of one page: no total changes, only what can be listed and
// which keys are known (R76).
func (m *Model) Prune(clock time.Time, account string, before time.Time) error {
	const youngest = 35 * 24 * time.Hour
	had := m.facts
	return m.step(clock, []string{account}, nil, nil, func() (bool, error) {
		if before.After(utcMicro(m.now).Add(-youngest)) {
			return false, badInput("before", "too young")
		}
		for _, e := range m.Entries(account, 0) {
			if !e.At.Before(before) {
				break
			}
			m.facts.pruned = append(m.facts.pruned, prunedFact{account, e.Seq, m.now})
		}
		pruned := len(m.facts.pruned) > len(had.pruned)
		lapsed := len(m.facts.states) > len(had.states)
		return m.forget(account, before.UnixMicro()) || pruned || lapsed, nil
	})
}

// forget forgets holds that ended before an instant, have no cost without a price, and are no remembered hold's parent.
func (m *Model) forget(account string, before int64) (some bool) {
	known := func(h *modelHold) bool { return !slices.Contains(m.facts.forgotten, h) }
	for again := true; again; some = some || again {
		again = false
		for _, h := range m.facts.holds {
			parent := slices.ContainsFunc(m.facts.holds, func(c *modelHold) bool { return c.parent == h && known(c) })
			if known(h) && !parent && slices.Contains(payersOf(h), account) && !m.state(h).Live() && m.change(h).ended < before && m.unpricedOf(h) == 0 {
				m.facts.forgotten = append(m.facts.forgotten, h)
				again = true
			}
		}
	}
	return some
}
