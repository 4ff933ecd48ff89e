package spendlimit

import (
	"crypto/sha256"
	"slices"

	"github.com/stint-go/stint/internal/canon"
)

type encoder = canon.Encoder

// digest covers what a usage id stands for, so that a retry is told from a reuse.
func digest(kind EntryKind, fields func(*encoder)) [sha256.Size]byte {
	var e encoder
	e.Int(int64(kind))
	fields(&e)
	return sha256.Sum256(e.Bytes())
}

func encodeLabels(e *encoder, labels []Label) {
	e.Int(int64(len(labels)))
	for _, l := range labels {
		e.String(l.Key).String(l.Value)
	}
}

func needUsage(n *Need, hold, id string) {
	n.Holds = append(n.Holds, hold)
	n.Usages = append(n.Usages, UsageID{hold, id})
}

// replay returns the row of a usage id that was used before with the same content.
func (s *step) replay(hold, id string, kind EntryKind, content [sha256.Size]byte) (*UsageRow, error) {
	u := s.w.usages.get(UsageID{hold, id})
	if u != nil && (u.Kind != kind || u.Content != content) {
		return nil, ErrKeyReused
	}
	return u, nil
}

func replayed(u *UsageRow) Receipt {
	if u == nil {
		return Receipt{}
	}
	return u.Receipt.again()
}

// again is a stored receipt for a caller who asked before.
func (r Receipt) again() Receipt {
	r.Replayed = true
	return r.apart()
}

// apart is a receipt that shares nothing with another: rows keep theirs, and callers may change their own.
func (r Receipt) apart() Receipt {
	r.Crossed = slices.Clone(r.Crossed)
	return r
}

// remember stores a usage id with its first answer.
func (s *step) remember(hold, id string, kind EntryKind, content [sha256.Size]byte, r Receipt) *UsageRow {
	u := &UsageRow{UsageID: UsageID{hold, id}, Kind: kind, Content: content, Receipt: r.apart(), mark: s.w.mark}
	s.w.usages.set(u.UsageID, u)
	s.w.changes.NewUsages = append(s.w.changes.NewUsages, u)
	return u
}

// dispatch is the command behind Dispatch (R40).
type dispatch struct {
	call
	key string
}

func (c *dispatch) need(n *Need) { n.Holds = append(n.Holds, c.key) }

func (c *dispatch) apply(s *step) (bool, error) {
	h, err := s.readyHold(c.key)
	switch {
	case err != nil:
		return false, err
	case !h.State.Live():
		return false, ended(h)
	case h.State == Dispatched:
		return false, nil
	}
	s.w.editHold(h)
	h.State = Dispatched
	_, err = s.book(&booking{kind: EntryDispatch, ref: h.Key, at: s.now, accounts: s.accountsOf(h)})
	return true, err
}

// record is the command behind Record (R41 to R43).
type record struct {
	call
	Usage
	labels  []Label
	receipt Receipt
}

func (c *record) need(n *Need) { needUsage(n, c.Hold, c.ID) }

func (c *record) apply(s *step) (bool, error) {
	c.receipt = Receipt{}
	h, err := s.readyHold(c.Hold)
	if err != nil {
		return false, err
	}
	content := digest(EntryRecord, func(e *encoder) { e.Bool(c.Cumulative) }) // labels never drop a cost
	u, err := s.replay(c.Hold, c.ID, EntryRecord, content)
	if err != nil {
		return false, err
	}
	if u != nil {
		if again, err := c.again(u); again || err != nil {
			c.receipt = replayed(u)
			return false, err
		}
	}
	late, err := c.recordable(h)
	if err != nil {
		return false, err
	}
	return true, c.book(s, h, u, content, late)
}

// again tells whether a known id adds nothing: the same cost, or a cumulative one that is not higher.
func (c *record) again(u *UsageRow) (bool, error) {
	unknown := c.Cost.kind == costUnknown
	switch {
	case u.Unpriced:
		return unknown, nil
	case unknown:
		return false, ErrKeyReused
	case c.Cumulative:
		return c.Cost.amount <= u.Cost, nil
	case c.Cost.amount != u.Cost:
		return false, ErrKeyReused
	}
	return true, nil
}

// recordable tells whether h takes a record, and whether it is late.
func (c *record) recordable(h *HoldRow) (late bool, err error) {
	switch h.State {
	case Open, Dispatched:
		return false, nil
	case LapsedFree, LapsedCharged:
		return true, nil
	}
	return false, ended(h)
}

func (c *record) book(s *step, h *HoldRow, u *UsageRow, content [sha256.Size]byte, late bool) error {
	s.w.editHold(h)
	switch h.State {
	case Open:
		h.State = Dispatched
	case LapsedFree:
		h.State = LapsedCharged
	}
	r := Receipt{Late: late, Source: c.Cost.Source, Anomaly: c.Cost.anomaly()}
	unknown := c.Cost.kind == costUnknown
	cost := c.Cost.amount
	if u != nil {
		cost -= u.Cost // cumulative: only what is new; an unpriced id has 0
	}
	switch {
	case unknown:
		h.Open++
		s.markUnpriced(h, 1)
	case u != nil && u.Unpriced:
		h.Open--
		s.markUnpriced(h, -1)
	}
	if !unknown {
		r.Cost = cost
		h.Recorded = s.add(h.Recorded, cost)
		known := min(cost, h.Assumed) // a late cost replaces what was assumed for it
		s.know(h, known)
		r.Excess = s.flow(h, cost-known, false)
	}
	b, err := s.book(&booking{
		kind: lateKind(EntryRecord, late), ref: c.ID, hold: h.Key, reason: c.Cost.reason, source: c.Cost.Source,
		labels: c.labels, at: s.now, cost: true, accounts: s.accountsOf(h),
	})
	if err != nil {
		return err
	}
	r.Unpriced, r.Own, r.Assumed, r.LiveChildren = unknown, h.Own, h.Assumed, h.Children
	r.Overrun, r.Revision, r.Crossed = b.overrun, b.seq, s.crossed
	c.receipt = r
	if u == nil {
		u = s.remember(c.Hold, c.ID, EntryRecord, content, r)
	} else {
		s.w.editUsage(u)
		u.Receipt = r.apart()
	}
	u.Unpriced, u.Cost = unknown, c.Cost.amount
	s.noteAnomaly(r, h)
	return nil
}

func lateKind(kind EntryKind, late bool) EntryKind {
	if late {
		return EntryLate
	}
	return kind
}

func (c Cost) anomaly() Anomaly {
	if c.kind == costTotal && c.amount == 0 && c.Metered > 0 && !c.ZeroPrice {
		return AnomalyZeroCost
	}
	return NoAnomaly
}

func (s *step) noteAnomaly(r Receipt, h *HoldRow) {
	if r.Anomaly != NoAnomaly {
		s.tell(Event{Kind: EventAnomaly, Hold: h.Key, Account: s.accountsOf(h)[0].Name, Anomaly: r.Anomaly})
	}
}

// know turns n of what h was assumed to have cost into known cost, oldest part first; spent stays as it is.
func (s *step) know(h *HoldRow, n Amount) {
	s.takeAssumed(h, n, false, func(use Amount) change { return change{assumed: -use} })
}

// refund takes n of what h was assumed to have cost back out of spent, newest part first (R46).
func (s *step) refund(h *HoldRow, n Amount) {
	s.takeAssumed(h, n, true, func(use Amount) change { return change{assumed: -use, spent: -use} })
}

// takeAssumed takes n from the assumptions of h, for every anchor on the way up.
func (s *step) takeAssumed(h *HoldRow, n Amount, newest bool, what func(Amount) change) {
	if n == 0 {
		return
	}
	s.w.editHold(h)
	h.Assumed -= n
	for z := h; z != nil; z = z.Parent {
		rest := n
		for i := range h.Assumes {
			if newest {
				i = len(h.Assumes) - 1 - i
			}
			as := &h.Assumes[i]
			use := min(rest, as.Amount)
			if as.Anchor != z || use == 0 {
				continue
			}
			as.Amount -= use
			rest -= use
			s.postPart(z, z.part(as.Part), what(use))
		}
	}
}

// settle is the command behind Settle.
type settle struct {
	call
	key     string
	cost    Cost
	late    bool
	receipt Receipt
}

func (c *settle) need(n *Need) { n.Holds = append(n.Holds, c.key) }

func (c *settle) apply(s *step) (bool, error) {
	c.receipt = Receipt{}
	h, err := s.readyHold(c.key)
	if err != nil {
		return false, err
	}
	cost := c.effective(h)
	if done, err := c.settled(h, cost); done || err != nil {
		return false, err
	}
	if cost.kind == costTotal && cost.amount < h.Recorded {
		return false, invalid("Cost", "below what is recorded; a correction is an Adjust")
	}
	return true, c.book(s, h, cost)
}

// effective resolves Recorded.
func (c *settle) effective(h *HoldRow) Cost {
	cost := c.cost
	if cost.kind == costRecorded {
		if h.Open > 0 {
			cost.kind, cost.reason = costUnknown, "a recorded usage has no price yet" // R43
		} else {
			cost.kind, cost.amount = costTotal, h.Recorded
		}
	}
	return cost
}

// settled answers a settle of a hold that has ended in a way that stays.
func (c *settle) settled(h *HoldRow, cost Cost) (done bool, err error) {
	switch {
	case h.State == Settled && cost.kind == costTotal && cost.amount == h.Recorded,
		h.State == SettledUnpriced && cost.kind == costUnknown:
		c.receipt = h.Receipt.again()
		return true, nil
	case h.State == Settled, h.State == Released && !c.late:
		return true, ended(h)
	}
	return false, nil
}

// book ends h with a cost. A provisional end is replaced; that and a cost after the end are late.
func (c *settle) book(s *step, h *HoldRow, cost Cost) error {
	s.w.editHold(h)
	late := !h.State.Live()
	r := Receipt{Late: late, Source: cost.Source, Anomaly: cost.anomaly()}
	was := h.State
	if cost.kind == costUnknown {
		s.settleUnknown(h, was, &r)
	} else {
		s.settleKnown(h, cost.amount, &r)
	}
	b, err := s.book(&booking{
		kind: lateKind(EntrySettle, late), ref: h.Key, reason: cost.reason, source: cost.Source,
		at: s.now, cost: true, accounts: s.accountsOf(h),
	})
	if err != nil {
		return err
	}
	r.Assumed, r.LiveChildren = h.Assumed, h.Children
	r.Overrun, r.Revision, r.Crossed = b.overrun, b.seq, s.crossed
	h.Receipt = r
	c.receipt = r.apart()
	s.noteAnomaly(r, h)
	return nil
}

// settleKnown books total as the true cost of h: first in place of what was assumed, the rest as cost.
func (s *step) settleKnown(h *HoldRow, total Amount, r *Receipt) {
	r.Cost = total
	cost := total - h.Recorded
	known := min(cost, h.Assumed)
	s.know(h, known)
	r.Returned = h.Assumed
	s.refund(h, h.Assumed)
	r.Excess = s.flow(h, cost-known, false)
	h.Recorded = total
	s.markUnpriced(h, -h.unpriced())
	h.Open = 0
	if h.State.Live() {
		h.EndOwn = h.Own
		s.end(h, Settled, s.now)
		r.Returned += s.returnOwn(h)
		return
	}
	h.State = Settled
}

// settleUnknown counts h at its own room, which for a hold that ended free is the room it had then (R52).
func (s *step) settleUnknown(h *HoldRow, was State, r *Receipt) {
	switch was {
	case Open, Dispatched:
		h.EndOwn = h.Own
		s.end(h, SettledUnpriced, s.now)
		s.assumeOwn(h)
	case Released, LapsedFree:
		r.Excess = s.flow(h, h.EndOwn, true)
		h.Assumed = h.EndOwn
	}
	s.markUnpriced(h, 1-h.Open)
	h.State = SettledUnpriced // Open stays, so that Recorded, said again, is still unknown
	r.Unpriced = true
}

// release is the command behind Release and Close.
type release struct {
	call
	key      string
	notSpent bool
	tree     bool
	closing  bool // Close: dispatched is charged, ended is fine
	receipt  Receipt
}

func (c *release) need(n *Need) {
	n.Holds = append(n.Holds, c.key)
	if c.tree {
		n.Trees = append(n.Trees, c.key)
	}
}

func (c *release) apply(s *step) (bool, error) {
	c.receipt = Receipt{}
	h, err := s.readyHold(c.key)
	if err != nil {
		return false, err
	}
	switch {
	case c.closing && !h.State.Live():
		return false, nil
	case c.closing && h.State == Dispatched:
		return true, c.charge(s, h)
	case h.State == Released, h.State == LapsedFree:
		c.receipt = h.Receipt.again()
		return false, nil
	case h.State == LapsedCharged && c.notSpent:
		settle := settle{key: c.key, cost: Total(h.Recorded)}
		err := settle.book(s, h, settle.cost)
		c.receipt = settle.receipt
		return true, err
	case !h.State.Live():
		return false, ended(h)
	case h.State == Dispatched && !(c.notSpent && h.Recorded == 0 && h.Open == 0):
		return false, ErrDispatched
	}
	return true, c.release(s, h)
}

// charge ends a dispatched hold as if its time were over.
func (c *release) charge(s *step, h *HoldRow) error {
	s.w.editHold(h)
	h.EndOwn = h.Own
	s.end(h, LapsedCharged, s.now)
	s.assumeOwn(h)
	return c.book(s, h, EntryLapse, Receipt{})
}

// release ends a hold, after its open descendants if asked to (R28).
func (c *release) release(s *step, h *HoldRow) error {
	if c.tree {
		below := slices.Clone(s.w.trees[h.Key])
		for _, n := range s.w.changes.NewHolds {
			if n.Under(h) {
				below = append(below, n)
			}
		}
		slices.SortFunc(below, deepestFirst)
		for _, d := range below {
			if d.State != Open {
				continue
			}
			if err := c.free(s, d); err != nil {
				return err
			}
		}
	}
	return c.free(s, h)
}

func (c *release) free(s *step, h *HoldRow) error {
	s.w.editHold(h)
	h.EndOwn = h.Own
	s.end(h, Released, s.now)
	return c.book(s, h, EntryRelease, Receipt{Returned: s.returnOwn(h)})
}

func (c *release) book(s *step, h *HoldRow, kind EntryKind, r Receipt) error {
	b, err := s.book(&booking{kind: kind, ref: h.Key, at: s.now, accounts: s.accountsOf(h)})
	if err != nil {
		return err
	}
	r.Assumed, r.LiveChildren, r.Revision, r.Crossed = h.Assumed, h.Children, b.seq, s.crossed
	h.Receipt = r
	c.receipt = r.apart()
	return nil
}

func deepestFirst(a, b *HoldRow) int {
	if a.Depth != b.Depth {
		return b.Depth - a.Depth
	}
	return byExpiry(a, b)
}

// expense is the command behind Charge (R49).
type expense struct {
	call
	Expense // Accounts sorted
	at      int64
	labels  []Label
	receipt Receipt
}

func (c *expense) need(n *Need) {
	n.Accounts = append(n.Accounts, c.Accounts...)
	n.Usages = append(n.Usages, UsageID{ID: c.ID})
	if c.at != 0 {
		n.Times = append(n.Times, c.at)
	}
}

func (c *expense) apply(s *step) (bool, error) {
	c.receipt = Receipt{}
	accounts, err := s.ready(c.Accounts)
	if err != nil {
		return false, err
	}
	content := digest(EntryCharge, func(e *encoder) {
		e.Int(int64(c.Cost.amount)).Int(int64(c.Cost.Source)).Int(c.at).Int(int64(len(c.Accounts)))
		for _, a := range c.Accounts {
			e.String(a)
		}
		encodeLabels(e, c.labels)
	})
	if u, err := s.replay("", c.ID, EntryCharge, content); u != nil || err != nil {
		c.receipt = replayed(u)
		return false, err
	}
	at, err := s.instant(c.at)
	if err != nil {
		return false, err
	}
	if err := s.spendAt(accounts, at, c.Cost.amount); err != nil {
		return false, err
	}
	b, err := s.book(&booking{
		kind: EntryCharge, ref: c.ID, source: c.Cost.Source, labels: c.labels, at: s.now, cost: true, accounts: accounts,
	})
	if err != nil {
		return false, err
	}
	c.receipt = Receipt{
		Cost: c.Cost.amount, Overrun: b.overrun, Source: c.Cost.Source, Anomaly: c.Cost.anomaly(), Crossed: s.crossed, Revision: b.seq,
	}
	if c.receipt.Anomaly != NoAnomaly {
		s.tell(Event{Kind: EventAnomaly, Account: accounts[0].Name, Anomaly: c.receipt.Anomaly})
	}
	s.remember("", c.ID, EntryCharge, content, c.receipt)
	return true, nil
}

// instant is the time that a charge or an adjustment counts at: 0 is now; the future is refused.
func (s *step) instant(at int64) (int64, error) {
	switch {
	case at == 0:
		return s.now, nil
	case at > s.now:
		return 0, invalid("At", "in the future")
	}
	return at, nil
}

// spendAt counts n, which may be negative, in the periods of accounts that contain at.
func (s *step) spendAt(accounts []*AccountRow, at int64, n Amount) error {
	var periods []*PeriodRow // all made before the first is changed: making one may book a carry
	for _, a := range accounts {
		for _, l := range a.Limits {
			if l.Removed {
				continue
			}
			p, err := s.period(l, at)
			if err != nil {
				return err
			}
			periods = append(periods, p)
		}
	}
	for _, a := range accounts {
		s.post(a, nil, at, change{spent: n})
	}
	for _, p := range periods {
		s.post(p.Limit.Account, p, 0, change{spent: n})
	}
	return nil
}

// adjustment is the command behind Adjust (R50).
type adjustment struct {
	call
	Adjustment
	at      int64
	receipt Receipt
}

func (c *adjustment) need(n *Need) {
	n.Usages = append(n.Usages, UsageID{ID: c.ID})
	if c.Hold != "" {
		n.Holds = append(n.Holds, c.Hold)
		return
	}
	n.Accounts = append(n.Accounts, c.Account)
	if c.at != 0 {
		n.Times = append(n.Times, c.at)
	}
}

func (c *adjustment) apply(s *step) (bool, error) {
	c.receipt = Receipt{}
	content := digest(EntryAdjust, func(e *encoder) {
		e.String(c.Account).String(c.Hold).Int(c.at).Int(int64(c.By)).String(c.Reason)
	})
	if u, err := s.replay("", c.ID, EntryAdjust, content); u != nil || err != nil {
		c.receipt = replayed(u)
		return false, err
	}
	accounts, err := c.post(s)
	if err != nil {
		return false, err
	}
	b, err := s.book(&booking{
		kind: EntryAdjust, ref: c.ID, hold: c.Hold, reason: c.Reason, at: s.now, cost: true, accounts: accounts,
	})
	if err != nil {
		return false, err
	}
	c.receipt = Receipt{Cost: c.By, Overrun: b.overrun, Crossed: s.crossed, Revision: b.seq}
	s.remember("", c.ID, EntryAdjust, content, c.receipt)
	return true, nil
}

// post counts the correction in the periods of At, or of the hold's newest part.
func (c *adjustment) post(s *step) ([]*AccountRow, error) {
	if c.Hold == "" {
		accounts, err := s.ready([]string{c.Account})
		if err != nil {
			return nil, err
		}
		at, err := s.instant(c.at)
		if err != nil {
			return nil, err
		}
		return accounts, s.spendAt(accounts, at, c.By)
	}
	h, err := s.readyHold(c.Hold)
	if err != nil {
		return nil, err
	}
	var accounts []*AccountRow
	for z := h; z != nil; z = z.Parent {
		if z.parts() == 0 {
			continue
		}
		p := z.part(z.parts() - 1)
		for _, a := range z.Accounts {
			if c.Account != "" && c.Account != a.Name {
				continue
			}
			accounts = append(accounts, a)
			s.post(a, nil, p.At, change{spent: c.By})
			for _, line := range p.Lines {
				if line.Limit.Account == a {
					s.post(a, line, 0, change{spent: c.By})
				}
			}
		}
	}
	if len(accounts) == 0 {
		return nil, invalid("Account", "does not pay for the hold")
	}
	slices.SortFunc(accounts, byName)
	return accounts, nil
}

// sweep ends lapsed holds on the accounts of some of them (R74).
type sweep struct {
	call
	accounts []string
	keys     []string
	max      int
	ended    int
}

func (c *sweep) need(n *Need) {
	n.Accounts = append(n.Accounts, c.accounts...)
	n.Holds = append(n.Holds, c.keys...)
}

func (c *sweep) apply(s *step) (bool, error) {
	c.ended = 0
	var accounts []*AccountRow
	add := func(a *AccountRow) {
		if a != nil && !slices.Contains(accounts, a) {
			accounts = append(accounts, a)
		}
	}
	for _, name := range c.accounts {
		add(s.w.accounts.get(name))
	}
	for _, key := range c.keys {
		if h := s.w.holds.get(key); h != nil {
			for _, a := range s.accountsOf(h) {
				add(a)
			}
		}
	}
	due, _ := s.dueOn(accounts)
	for _, h := range due[:min(len(due), c.max)] {
		if err := s.lapse(h); err != nil {
			return false, err
		}
		c.ended++
	}
	return c.ended > 0, nil
}
