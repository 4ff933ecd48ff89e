package spendlimit

import (
	"fmt"
	"slices"
)

// Difference is one place where the rows of an account contradict each other.
type Difference struct {
	Rule    string // what should hold, e.g. "held = Σ left"
	Subject string // limit and period, hold key, or entry
	Have    int64
	Want    int64
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s: have %d, want %d", d.Subject, d.Rule, d.Have, d.Want)
}

// verify is the command behind Verify: every sum over the rows that has a running total (R75). Whether a grant fitted
// at its time can't be seen in the rows afterwards.
type verify struct {
	account string
	out     []Difference
}

func (c *verify) need(n *Need) {
	n.Accounts = append(n.Accounts, c.account)
	n.All = append(n.All, c.account)
	n.Journal = append(n.Journal, JournalNeed{Account: c.account, Span: maxInstant})
}

func (c *verify) apply(s *step) (bool, error) {
	c.out = nil
	a := s.w.accounts[c.account]
	if a == nil {
		return false, ErrNotFound
	}
	rows := s.w.full[c.account]
	c.journal(a, s.w.journal[c.account], rows.periods)
	c.periods(a, rows)
	for _, h := range rows.holds {
		c.hold(h, rows.holds)
	}
	return false, nil
}

func (c *verify) check(rule, subject string, have, want int64) {
	if have != want {
		c.out = append(c.out, Difference{Rule: rule, Subject: subject, Have: have, Want: want})
	}
}

func (c *verify) atMost(rule, subject string, have, most int64) {
	if have > most {
		c.out = append(c.out, Difference{Rule: rule, Subject: subject, Have: have, Want: most})
	}
}

func (p *PeriodRow) subject() string {
	return fmt.Sprintf("limit %q #%d period %s", p.Limit.Limit.Name, p.Limit.Gen, p.Label)
}

// journal: I1 and I7.
func (c *verify) journal(a *AccountRow, entries []EntryRow, periods []*PeriodRow) {
	type sum struct{ spent, held, overrun Amount }
	sums := map[*PeriodRow]sum{}
	want := a.Pruned
	for _, e := range entries {
		want++
		c.check("seq without gaps", fmt.Sprintf("entry %d", e.Seq), e.Seq, want)
		for _, g := range e.Postings {
			t := sums[g.Period]
			sums[g.Period] = sum{t.spent + g.Spent, t.held + g.Held, t.overrun + g.Overrun}
		}
	}
	c.check("seq = last entry", "account", a.Seq, want)
	for _, p := range periods {
		t := sums[p]
		c.check("spent = base + Σ postings", p.subject(), int64(p.Spent), int64(p.BaseSpent+t.spent))
		c.check("held = base + Σ postings", p.subject(), int64(p.Held), int64(p.BaseHeld+t.held))
		c.check("overrun = base + Σ postings", p.subject(), int64(p.Overrun), int64(p.BaseOverrun+t.overrun))
	}
}

// periods: I2, I4 and I6.
func (c *verify) periods(a *AccountRow, rows fullRows) {
	all := map[*LimitRow]Amount{}
	for _, p := range rows.periods {
		all[p.Limit] += p.Held
		var left Amount
		var unpriced int64
		for _, h := range rows.holds {
			for i := range h.parts() {
				if part := h.part(i); slices.Contains(part.Lines, p) {
					left += part.Left
				}
			}
			for z := h; z != nil; z = z.Parent {
				if z.hasLine(p) {
					unpriced += int64(h.unpriced())
				}
			}
		}
		c.check("held = Σ left", p.subject(), int64(p.Held), int64(left))
		c.check("unpriced = Σ holds and usages", p.subject(), p.Unpriced, unpriced)
		for name, n := range map[string]Amount{"spent": p.Spent, "held": p.Held, "overrun": p.Overrun, "cut": p.Cut, "assumed": p.Assumed} {
			c.atMost(name+" ≥ 0", p.subject(), int64(-n), 0)
		}
		if p.Mode == Hard {
			c.atMost("spent + held ≤ limit + overrun + cut", p.subject(), int64(p.Spent+p.Held), int64(p.Lim+p.Overrun+p.Cut))
		}
	}
	for _, l := range a.Limits {
		c.check("held of all periods = Σ held", fmt.Sprintf("limit %q #%d", l.Limit.Name, l.Gen), int64(l.HeldAll), int64(all[l]))
	}
}

// unpriced counts the hold itself when it was settled so, and its open usages.
func (h *HoldRow) unpriced() int {
	n := h.Open
	if h.State == SettledUnpriced {
		n++
	}
	return n
}

// hold: I3.
func (c *verify) hold(h *HoldRow, holds []*HoldRow) {
	subject := fmt.Sprintf("hold %q", h.Key)
	c.check("granted + grown + received = own + carved + covered + returned + assumed", subject,
		int64(h.Granted+h.Grown+h.Received), int64(h.Own+h.Carved+h.Covered+h.Returned+h.EndCharge))
	c.atMost("own ≥ 0", subject, int64(-h.Own), 0)
	var left, own Amount
	marks := h.unpriced()
	for i := range h.parts() {
		left += h.part(i).Left
	}
	own = h.Own
	for _, d := range holds {
		if d.Under(h) {
			own += d.Own
			marks += d.unpriced()
		}
	}
	if h.parts() > 0 {
		c.check("Σ left = Σ own", subject, int64(left), int64(own))
	}
	c.check("marks = unpriced below", subject, int64(h.Marks), int64(marks))
}
