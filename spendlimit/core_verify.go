package spendlimit

import "fmt"

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
	call
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
	a := s.w.accounts.get(c.account)
	if a == nil {
		return false, ErrNotFound
	}
	rows := s.w.full[c.account]
	c.journal(a, s.w.journal[c.account], rows.periods)
	c.periods(a, rows)
	c.holds(rows.holds)
	return false, nil
}

func (c *verify) check(rule, subject string, have, want int64) {
	if have != want {
		c.out = append(c.out, Difference{Rule: rule, Subject: subject, Have: have, Want: want})
	}
}

func (c *verify) atLeast0(name, subject string, have Amount) {
	if have < 0 {
		c.check(name+" ≥ 0", subject, int64(have), 0)
	}
}

func (p *PeriodRow) subject() string {
	return fmt.Sprintf("limit %q #%d period %s", p.Limit.Limit.Name, p.Limit.Gen, p.Label)
}

// journal: I1 and I7.
func (c *verify) journal(a *AccountRow, entries []*EntryRow, periods []*PeriodRow) {
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
	left, unpriced := map[*PeriodRow]Amount{}, map[*PeriodRow]int64{}
	for _, h := range rows.holds {
		h.eachLine(func(part *Part, p *PeriodRow) { left[p] += part.Left })
		if n := int64(h.unpriced()); n > 0 {
			for p := range h.periods() {
				unpriced[p] += n
			}
		}
	}
	held := map[*LimitRow]Amount{}
	for _, p := range rows.periods {
		held[p.Limit] += p.Held
		c.check("held = Σ left", p.subject(), int64(p.Held), int64(left[p]))
		c.check("unpriced = Σ holds and usages", p.subject(), p.Unpriced, unpriced[p])
		for _, n := range []struct {
			name   string
			amount Amount
		}{{"spent", p.Spent}, {"held", p.Held}, {"overrun", p.Overrun}, {"cut", p.Cut}, {"assumed", p.Assumed}} {
			c.atLeast0(n.name, p.subject(), n.amount)
		}
		if p.Mode == Hard && p.over()-p.Overrun > p.Cut { // the sum of the right side may not fit
			c.check("spent + held ≤ limit + overrun + cut", p.subject(), int64(p.Spent+p.Held), int64(p.Lim+p.Overrun+p.Cut))
		}
	}
	for _, l := range a.Limits {
		if !l.Limit.CarryHolds {
			held[l] = 0
		}
		c.check("held of all periods = Σ held", fmt.Sprintf("limit %q #%d", l.Limit.Name, l.Gen), int64(l.HeldAll), int64(held[l]))
	}
}

func (h *HoldRow) eachLine(f func(*Part, *PeriodRow)) {
	for i := range h.parts() {
		for _, p := range h.part(i).Lines {
			f(h.part(i), p)
		}
	}
}

// periods are those that h has a line on, its own or an ancestor's.
func (h *HoldRow) periods() map[*PeriodRow]bool {
	set := map[*PeriodRow]bool{}
	for z := h; z != nil; z = z.Parent {
		z.eachLine(func(_ *Part, p *PeriodRow) { set[p] = true })
	}
	return set
}

// unpriced counts the open usages, or the hold itself when it was settled so: it stands for them (R43).
func (h *HoldRow) unpriced() int {
	if h.State == SettledUnpriced {
		return 1
	}
	return h.Open
}

// holds: I3.
func (c *verify) holds(holds []*HoldRow) {
	own, marks, children := map[*HoldRow]Amount{}, map[*HoldRow]int{}, map[*HoldRow]int{}
	for _, h := range holds {
		n := h.unpriced()
		for z := h; z != nil; z = z.Parent {
			own[z] += h.Own
			marks[z] += n
		}
		if h.Parent != nil && h.State.Live() {
			children[h.Parent]++
		}
	}
	for _, h := range holds {
		subject := fmt.Sprintf("hold %q", h.Key)
		c.check("granted + grown + received = own + carved + covered + returned + assumed", subject,
			int64(h.Granted+h.Grown+h.Received), int64(h.Own+h.Carved+h.Covered+h.Returned+h.EndCharge))
		c.atLeast0("own", subject, h.Own)
		c.check("marks = unpriced below", subject, int64(h.Marks), int64(marks[h]))
		c.check("children = live children", subject, int64(h.Children), int64(children[h]))
		if h.parts() > 0 {
			var left Amount
			for i := range h.parts() {
				left += h.part(i).Left
			}
			c.check("Σ left = Σ own", subject, int64(left), int64(own[h]))
		}
	}
}
