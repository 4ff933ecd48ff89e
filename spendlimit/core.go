package spendlimit

import (
	"cmp"
	"errors"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// step runs commands on the rows of one store step. It is pure: time, rows and configuration come in, changes of
// rows and results go out. Its slices are used again by the next step. core.go has the mechanics; the commands are in core_reserve.go, core_cost.go and core_limit.go.
type step struct {
	w     *Work
	now   int64
	cfg   *Config
	zones *zones

	deltas []delta
	broken error // an arithmetic failure of the running event
	due    []*HoldRow
	rows   []*AccountRow
	owners []*AccountRow
	lines  []line

	handles arena[Hold] // for callers, who may keep one for long: in small chunks
	crossed []Crossing
	events  []Event
	watched bool     // somebody waits for room
	freed   []string // accounts on which the command freed room, when watched
	stop    stop     // of a ledger within a lease: why nothing is granted (R78)
}

// command is one call on a ledger. apply may run again on fresh rows, so it sets its whole result anew.
type command interface {
	base() *call
	need(n *Need)
	// apply reports whether its changes are to be kept: a replay, a dry run or an error leaves no trace.
	apply(s *step) (keep bool, err error)
}

// errMoreDue asks the ledger to end lapsed holds first: there are more than one step can take (R33).
var errMoreDue = errors.New("more lapsed holds than one step can end")

// begin starts on the rows of another step.
func (s *step) begin(w *Work, now int64) {
	s.w, s.now = w, now
	s.forgetDeltas()
}

// run applies one command, all of it or nothing.
func (s *step) run(c command) error {
	s.crossed, s.events, s.freed = nil, nil, s.freed[:0]
	var at savepoint
	s.w.save(&at)
	keep, err := false, s.ledgerRow()
	if err == nil {
		keep, err = c.apply(s)
	}
	if keep && err == nil && s.stop == stopAll {
		err = ErrClosed // a replay is answered
	}
	if err != nil || !keep {
		s.w.revert(&at)
		s.forgetDeltas()
		s.events, s.freed = nil, s.freed[:0]
	}
	return err
}

// ledgerRow checks the ledger's unit, or stores it at first use.
func (s *step) ledgerRow() error {
	if s.w.ledger == nil {
		s.w.ledger = &LedgerRow{Name: s.cfg.Name, Unit: s.cfg.Unit}
		s.w.changes.NewLedger = s.w.ledger
		return nil
	}
	if s.w.ledger.Unit != s.cfg.Unit {
		return ErrUnit
	}
	return nil
}

// account returns the row of an account. The first touch makes it, with its default limits (R10).
func (s *step) account(name string) (*AccountRow, error) {
	a := s.w.accounts.get(name)
	if a == nil {
		a = &AccountRow{Name: name, mark: s.w.mark}
		s.w.accounts.set(name, a)
		s.w.changes.NewAccounts = append(s.w.changes.NewAccounts, a)
	}
	if a.Seq == 0 && s.cfg.Defaults != nil {
		for _, l := range s.cfg.Defaults(name) {
			l.Account = name
			if err := l.validate(); err != nil {
				return nil, err
			}
			if a.limit(l.Name) != nil {
				return nil, invalid("Defaults", "limit %q twice", l.Name)
			}
			if _, err := s.createLimit(a, l.normal()); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

// ready returns the rows of accounts after every hold on them that is due has lapsed (R33). The slice is valid until
// the next call.
func (s *step) ready(names []string) ([]*AccountRow, error) {
	s.rows = s.rows[:0]
	for _, n := range names {
		a, err := s.account(n)
		if err != nil {
			return nil, err
		}
		s.rows = append(s.rows, a)
	}
	return s.rows, s.lapseDue(s.rows)
}

// readyHold returns a hold after every hold on its accounts that is due has lapsed. One that an earlier command of the
// step has pruned is gone already: what was written on it now could never be corrected.
func (s *step) readyHold(key string) (*HoldRow, error) {
	h := s.w.holds.get(key)
	if h == nil || slices.Contains(s.w.changes.Pruned, h) {
		return nil, ErrNotFound
	}
	return h, s.lapseDue(s.accountsOf(h))
}

// accountsOf returns the accounts of h and its ancestors, by name. The slice is only read, until the next call.
func (s *step) accountsOf(h *HoldRow) []*AccountRow {
	if h.Parent == nil {
		return h.Accounts
	}
	s.owners = s.owners[:0]
	for z := h; z != nil; z = z.Parent {
		s.owners = append(s.owners, z.Accounts...)
	}
	if len(s.owners) > 1 {
		slices.SortFunc(s.owners, byName)
	}
	return s.owners
}

func byName(a, b *AccountRow) int { return strings.Compare(a.Name, b.Name) }

// lapseDue ends the holds on the accounts that are due, and on the accounts that these touch, in order of expiry.
func (s *step) lapseDue(accounts []*AccountRow) error {
	if !slices.ContainsFunc(accounts, func(a *AccountRow) bool { return len(a.Due) > 0 }) {
		return nil
	}
	due, complete := s.dueOn(accounts)
	if !complete {
		return errMoreDue
	}
	for _, h := range due {
		if err := s.lapse(h); err != nil {
			return err
		}
	}
	return nil
}

// dueOn lists the due holds by (expiry, key). When an account has more than its row lists, the list ends where
// the first of them might be missing.
func (s *step) dueOn(accounts []*AccountRow) (due []*HoldRow, complete bool) {
	seen := slices.Clone(accounts)
	var end *HoldRow
	due = s.due[:0]
	for i := 0; i < len(seen); i++ {
		if a := seen[i]; a.More {
			if last := a.Due[len(a.Due)-1]; end == nil || byExpiry(last, end) < 0 {
				end = last
			}
		}
		for _, h := range seen[i].Due {
			if !h.State.Live() || h.ExpiresUS >= s.now {
				continue
			}
			due = append(due, h)
			for z := h; z != nil; z = z.Parent {
				for _, a := range z.Accounts {
					if !slices.Contains(seen, a) {
						seen = append(seen, a)
					}
				}
			}
		}
	}
	slices.SortFunc(due, byExpiry)
	due = slices.Compact(due)
	if end != nil {
		due = slices.DeleteFunc(due, func(h *HoldRow) bool { return byExpiry(h, end) > 0 })
	}
	s.due = due
	return due, end == nil
}

func byExpiry(a, b *HoldRow) int {
	return cmp.Or(cmp.Compare(a.ExpiresUS, b.ExpiresUS), strings.Compare(a.Key, b.Key))
}

// lapse ends a hold whose time is over: open gives its room back, dispatched counts as spent, because time alone
// never proves that money was not spent.
func (s *step) lapse(h *HoldRow) error {
	s.w.editHold(h)
	h.EndOwn = h.Own
	if h.State == Open {
		s.end(h, LapsedFree, h.ExpiresUS+1)
		s.returnOwn(h)
	} else {
		s.end(h, LapsedCharged, h.ExpiresUS+1)
		s.assumeOwn(h)
	}
	h.Receipt = Receipt{Returned: h.EndOwn - h.EndCharge, Assumed: h.Assumed, LiveChildren: h.Children}
	b, err := s.book(&booking{kind: EntryLapse, ref: h.Key, at: h.ExpiresUS + 1, accounts: s.accountsOf(h)})
	h.Receipt.Revision = b.seq
	s.tell(Event{Kind: EventLapsed, Hold: h.Key, Account: s.accountsOf(h)[0].Name, Amount: h.EndOwn, Assumed: h.Assumed})
	return err
}

// end puts h into an ended state.
func (s *step) end(h *HoldRow, state State, at int64) {
	s.w.editHold(h)
	if h.State.Live() && h.Parent != nil {
		s.w.editHold(h.Parent)
		h.Parent.Children--
	}
	h.State = state
	h.EndedUS = at
}

// returnOwn gives all of h's own room back.
func (s *step) returnOwn(h *HoldRow) Amount {
	own := h.Own
	s.w.editHold(h)
	h.Own = 0
	h.Returned += own
	s.giveBack(h, own)
	return own
}

// assumeOwn counts all of h's own room as spent, without knowledge.
func (s *step) assumeOwn(h *HoldRow) {
	own := h.Own
	s.flow(h, own, true)
	h.Covered -= own
	h.EndCharge = own
	h.Assumed += own
}

// flow takes the cost u of h from h's own room, then its parent's, up to the root, and counts it on the lines of every
// anchor on the way. It returns the excess: what no room covered (R25, R27).
func (s *step) flow(h *HoldRow, u Amount, assumed bool) (excess Amount) {
	var covered Amount
	for z := h; z != nil; z = z.Parent {
		if take := min(u-covered, z.Own); take > 0 {
			s.w.editHold(z)
			z.Own -= take
			z.Covered += take
			covered += take
		}
		if len(z.Accounts) > 0 {
			s.count(h, z, u, covered, assumed)
		}
	}
	return u - covered
}

// count books a cost u of h, of which covered was set aside below the anchor z, on z's parts: what was set aside
// oldest part first, the rest on the newest.
func (s *step) count(h, z *HoldRow, u, covered Amount, assumed bool) {
	s.w.editHold(z)
	rest := u - covered
	for i := range z.parts() {
		p := z.part(i)
		use := min(p.Left, covered)
		p.Left -= use
		covered -= use
		spent := use
		if i == z.parts()-1 {
			spent += rest
		}
		if spent == 0 {
			continue
		}
		c := change{spent: spent, held: -use}
		if assumed {
			c.assumed = spent
			s.w.editHold(h)
			h.Assumes = append(h.Assumes, Assumption{Anchor: z, Part: i, Amount: spent})
		}
		s.postPart(z, p, c)
	}
}

// giveBack returns room of h to its nearest live ancestor, above the root to the limits, newest part first.
func (s *step) giveBack(h *HoldRow, room Amount) {
	if room == 0 {
		return
	}
	for z := h; z != nil; z = z.Parent {
		if z != h && z.State.Live() {
			s.w.editHold(z)
			z.Own += room
			z.Received += room
			for _, a := range s.accountsOf(z) {
				s.free(a)
			}
			return
		}
		if len(z.Accounts) == 0 {
			continue
		}
		s.w.editHold(z)
		rest := room
		for i := z.parts() - 1; i >= 0 && rest > 0; i-- {
			p := z.part(i)
			use := min(p.Left, rest)
			p.Left -= use
			rest -= use
			if use > 0 {
				s.postPart(z, p, change{held: -use})
			}
		}
	}
}

// markUnpriced adds n unpriced holds or usages at h to every period that h has a line on (R52).
func (s *step) markUnpriced(h *HoldRow, n int) {
	if n == 0 {
		return
	}
	for z := h; z != nil; z = z.Parent {
		s.w.editHold(z)
		z.Marks += n
		for i := range z.parts() {
			for _, p := range z.part(i).Lines {
				if !z.lineBefore(i, p) {
					s.post(p.Limit.Account, p, 0, change{unpriced: int64(n)})
				}
			}
		}
	}
}

// lineBefore tells whether a part before the i-th has a line on p.
func (h *HoldRow) lineBefore(i int, p *PeriodRow) bool {
	for j := range i {
		if slices.Contains(h.part(j).Lines, p) {
			return true
		}
	}
	return false
}

// parts is the number of an anchor's parts; a hold without accounts has none.
func (h *HoldRow) parts() int {
	if len(h.Accounts) == 0 {
		return 0
	}
	return 1 + len(h.More)
}

func (h *HoldRow) part(i int) *Part {
	if i == 0 {
		return &h.Part
	}
	return &h.More[i-1]
}

// change is what is added to the totals of one period, or to those of an account itself.
type change struct {
	spent, held, assumed Amount
	unpriced             int64
}

// delta is the whole change that the running event makes in one period, or, with a nil period, in an account's own
// total at an instant.
type delta struct {
	account *AccountRow
	period  *PeriodRow
	when    int64
	change
	overrun Amount
}

// postPart counts c on every line of a part, and on the own total of every account of its anchor.
func (s *step) postPart(anchor *HoldRow, p *Part, c change) {
	for _, a := range anchor.Accounts {
		s.post(a, nil, p.At, c)
	}
	for _, line := range p.Lines {
		s.post(line.Limit.Account, line, 0, c)
	}
}

// post adds c to the running event: one sum per period and per account and instant.
func (s *step) post(a *AccountRow, p *PeriodRow, when int64, c change) {
	for i := range s.deltas {
		if d := &s.deltas[i]; d.period == p && d.account == a && d.when == when {
			s.plus(&d.change, c)
			return
		}
	}
	s.deltas = append(s.deltas, delta{account: a, period: p, when: when, change: c})
}

func (s *step) plus(sum *change, c change) {
	sum.spent = s.add(sum.spent, c.spent)
	sum.held = s.add(sum.held, c.held)
	sum.assumed = s.add(sum.assumed, c.assumed)
	sum.unpriced += c.unpriced
}

// add is checked; the last failure is kept for book, which refuses the event.
func (s *step) add(a, b Amount) Amount {
	sum := a + b
	if overflows(a, b, sum) {
		s.broken = overflowError{a, b}
	}
	return sum
}

// booking is the journal side of an event.
type booking struct {
	kind     EntryKind
	ref      string
	hold     string
	reason   string
	source   Source
	labels   []Label
	at       int64 // when it counts: now, or the instant a hold lapsed
	cost     bool  // true cost: may raise overrun
	accounts []*AccountRow
}

// holdKey is the hold that the event is about, if any.
func (b *booking) holdKey() string {
	switch {
	case b.hold != "":
		return b.hold
	case b.kind == EntryCharge, b.kind == EntryAdjust, b.kind == EntryLimit, b.kind == EntryCarry:
		return ""
	}
	return b.ref
}

type booked struct {
	seq     int64  // of the entry on the first account
	overrun Amount // the largest of any period
}

// book ends an event: it applies the sums to the periods, with every addition checked, and writes one entry per
// account (R73).
func (s *step) book(b *booking) (booked, error) {
	defer s.forgetDeltas()
	var out booked
	for i := range s.deltas {
		if d := &s.deltas[i]; d.period != nil {
			if err := s.apply(d, b); err != nil {
				return out, err
			}
			out.overrun = max(out.overrun, d.overrun)
		}
	}
	if s.broken != nil {
		return out, s.broken
	}
	for i, a := range b.accounts {
		seq := s.write(a, b)
		if i == 0 {
			out.seq = seq
		}
	}
	return out, nil
}

func (s *step) forgetDeltas() { s.deltas, s.broken = s.deltas[:0], nil }

// apply changes one period by d.
func (s *step) apply(d *delta, b *booking) error {
	p := d.period
	s.endRaise(p, b.at)
	s.w.editPeriod(p)
	before := p.over()
	p.Spent = s.add(p.Spent, d.spent)
	p.Held = s.add(p.Held, d.held)
	p.Assumed = s.add(p.Assumed, d.assumed)
	p.Unpriced += d.unpriced
	use := s.add(p.Spent, p.Held)
	switch {
	case s.broken != nil:
		return s.broken
	case p.Spent < p.Assumed && b.kind == EntryAdjust: // I6: what is assumed may be taken back by its hold yet
		return invalid("By", "more than is known to be spent in limit %q", p.Limit.Limit.Name)
	case p.Spent < 0 || p.Held < 0 || p.Assumed < 0 || p.Unpriced < 0:
		return errCorrupt
	}
	if b.cost {
		d.overrun = max(0, max(0, use-p.Lim)-before)
		p.Overrun = s.add(p.Overrun, d.overrun)
	}
	if d.overrun > 0 {
		s.tell(Event{Kind: EventOverrun, Account: p.Limit.Account.Name, Limit: p.Limit.Limit.Name, Hold: b.holdKey(), Period: p.Label, Amount: d.overrun})
	}
	if d.held != 0 && p.Limit.Limit.CarryHolds {
		s.w.editLimit(p.Limit)
		p.Limit.HeldAll = s.add(p.Limit.HeldAll, d.held)
	}
	if d.spent+d.held < 0 || d.unpriced < 0 {
		s.free(p.Limit.Account)
	}
	s.fire(p)
	return s.broken
}

// errCorrupt: the rows contradict each other. Nothing is decided on them.
var errCorrupt = errors.Join(ErrUnavailable, errors.New("the stored rows contradict each other; Verify tells where"))

// free notes that an account has more room now.
func (s *step) free(a *AccountRow) {
	if s.watched && !slices.Contains(s.freed, a.Name) {
		s.freed = append(s.freed, a.Name)
	}
}

// write appends the account's entry for the running event.
func (s *step) write(a *AccountRow, b *booking) int64 {
	s.w.editAccount(a)
	a.Seq++
	a.LastUS = s.now
	e := s.w.newEntry()
	e.Account, e.Seq, e.At, e.Kind, e.Ref, e.Hold = a, a.Seq, s.now, b.kind, b.ref, b.hold
	e.Reason, e.Source, e.Labels = b.reason, b.source, b.labels
	room := s.w.postings.most(len(s.deltas))
	n := 0
	for i := range s.deltas {
		if d := &s.deltas[i]; d.account == a && d.moves() {
			p := &room[n]
			p.Period, p.When, p.Spent, p.Held, p.Overrun = d.period, d.when, d.spent, d.held, d.overrun
			n++
		}
	}
	e.Postings = s.w.postings.take(n)
	return a.Seq
}

func (d *delta) moves() bool { return d.spent != 0 || d.held != 0 || d.overrun != 0 }

// fire notes the thresholds that p has reached and had not before (R61).
func (s *step) fire(p *PeriodRow) {
	for _, t := range p.Limit.Limit.Thresholds {
		if !t.reached(p.Spent, p.Held, p.Lim) || slices.Contains(p.Fired, t) {
			continue
		}
		s.w.editPeriod(p)
		p.Fired = append(slices.Clip(p.Fired), t)
		c := Crossing{
			Account: p.Limit.Account.Name, Limit: p.Limit.Limit.Name, Period: p.Label, Start: startOf(p), Threshold: t,
		}
		s.crossed = append(s.crossed, c)
		s.tell(Event{Kind: EventCrossed, Account: c.Account, Limit: c.Limit, Period: c.Period, Crossing: c})
	}
}

func (s *step) tell(e Event) {
	if s.cfg.Observer != nil {
		e.At = timeOf(s.now)
		s.events = append(s.events, e)
	}
}

// less128 tells whether a × b < c × d.
func less128(a, b, c, d uint64) bool {
	ah, al := bits.Mul64(a, b)
	ch, cl := bits.Mul64(c, d)
	return ah < ch || ah == ch && al < cl
}

// available is limit in force − spent − held; below 0 when it is (R39 counts the holds of all periods).
func (s *step) available(p *PeriodRow) Amount {
	s.endRaise(p, s.now)
	held := p.Held
	if p.Limit.Limit.CarryHolds {
		held = p.Limit.HeldAll
	}
	a, err := (p.Lim - p.Spent).Sub(held)
	if err != nil {
		return math.MinInt64
	}
	return a
}

// endRaise takes a raise out of the limit in force once its time is over (R57).
func (s *step) endRaise(p *PeriodRow, at int64) {
	if p.Raise > 0 && at >= p.RaiseUS && p.RaiseUS < p.End {
		s.w.editPeriod(p)
		p.Lim -= p.Raise
		p.Raise = 0
		p.recut()
	}
}

// recut sets the cut after the limit in force has changed (I4).
func (p *PeriodRow) recut() { p.Cut = max(0, p.over()-p.Overrun) }

// over is what is in use beyond the limit in force.
func (p *PeriodRow) over() Amount { return max(0, p.Spent+p.Held-p.Lim) }

// period returns the row of the period of l that contains at, and makes it if there is none (R8).
func (s *step) period(l *LimitRow, at int64) (*PeriodRow, error) {
	at = inCalendar(at)
	i := l.before(at)
	if i >= 0 && at < l.Periods[i].End {
		p := l.Periods[i]
		if p.Spent < 0 || p.Held < 0 {
			return nil, errCorrupt
		}
		return p, nil
	}
	p, err := s.newPeriod(l, i, at)
	if err != nil || l.Limit.CarryUnused == 0 || i+1 != len(l.Periods)-1 {
		return p, err
	}
	return p, s.carry(l, p)
}

// before returns the index of the last period that starts at or before at, or -1.
func (l *LimitRow) before(at int64) int {
	n := len(l.Periods)
	if n > 0 && l.Periods[n-1].Start <= at {
		return n - 1
	}
	i, found := slices.BinarySearchFunc(l.Periods, at, func(p *PeriodRow, at int64) int { return cmp.Compare(p.Start, at) })
	if found {
		return i
	}
	return i - 1
}

// newPeriod makes the row of the period that contains at; i is the index of the row before it. Stored rows never
// move: the new one fills the gap between them (R8, R9).
func (s *step) newPeriod(l *LimitRow, i int, at int64) (*PeriodRow, error) {
	if l.zone == nil {
		zone, err := s.zones.load(l.Limit.Zone)
		if err != nil {
			return nil, err
		}
		l.zone = zone
	}
	start, end, name := l.Limit.calendar().period(l.zone, at)
	first := start
	if at >= l.PinUS {
		start = max(start, l.PinUS)
	} else {
		end = min(end, l.PinUS)
	}
	if i >= 0 {
		start = max(start, l.Periods[i].End)
	}
	if i+1 < len(l.Periods) {
		end = min(end, l.Periods[i+1].Start)
	}
	if start != first && l.Limit.Kind != AllTime {
		name = label(l.zone, start)
	}
	p := &PeriodRow{Limit: l, Start: start, End: end, Label: name, mark: s.w.mark}
	if err := p.setForce(&l.Limit, s.now); err != nil {
		return nil, err
	}
	s.w.editLimit(l)
	if i+1 == len(l.Periods) {
		l.Periods = append(l.Periods, p)
	} else {
		l.Periods = slices.Insert(slices.Clone(l.Periods), i+1, p)
	}
	s.w.changes.NewPeriods = append(s.w.changes.NewPeriods, p)
	return p, nil
}

// setForce puts the limit in force at now, or at the instant of the period next to it, into p.
func (p *PeriodRow) setForce(l *Limit, now int64) error {
	p.Mode = l.Mode
	p.Raise, p.RaiseUS = 0, 0
	if until := micros(l.Raise.Until); l.Raise.By > 0 && min(max(now, p.Start), p.End-1) < until {
		p.Raise, p.RaiseUS = l.Raise.By, until
	}
	lim, err := (l.Amount + p.Raise).Add(p.CarryIn - p.CarryOut) // what was carried in belongs to an older version of l
	p.Lim = lim
	return err
}

// carry moves unused room of the period directly before p into p: +x here, −x there (R60).
func (s *step) carry(l *LimitRow, p *PeriodRow) error {
	if p.Start <= l.SinceUS {
		return nil // the limit did not exist before
	}
	i := l.before(p.Start - 1)
	var prev *PeriodRow
	if i >= 0 && l.Periods[i].End == p.Start {
		prev = l.Periods[i]
	} else {
		var err error
		if prev, err = s.newPeriod(l, i, p.Start-1); err != nil {
			return err
		}
	}
	x := min(l.Limit.CarryUnused, max(0, s.available(prev)))
	if x == 0 {
		return nil
	}
	s.w.editPeriod(prev)
	s.w.editPeriod(p)
	prev.CarryOut += x
	prev.Lim -= x
	prev.recut()
	p.CarryIn = x
	p.Lim += x
	_, err := s.book(&booking{kind: EntryCarry, ref: l.Limit.Name, at: s.now, accounts: []*AccountRow{l.Account}})
	return err
}

// balance shows a period.
func (s *step) balance(p *PeriodRow) Balance {
	available := s.available(p)
	b := Balance{
		Account: p.Limit.Account.Name, Limit: p.Limit.Limit.Name, Kind: p.Limit.Limit.Kind, Period: p.Label,
		Available: available, InForce: p.Lim, Spent: p.Spent, Held: p.Held, Overrun: p.Overrun, Cut: p.Cut,
		Assumed: p.Assumed, Unpriced: p.Unpriced, Fired: p.Fired, Fingerprint: p.Limit.Print, Unit: s.cfg.Unit,
	}
	b.Start, b.End = startOf(p), endOf(p)
	return b
}

// Instants at the edges of an AllTime period are shown as the zero time.
func startOf(p *PeriodRow) time.Time {
	if p.Start == minInstant {
		return time.Time{}
	}
	return timeOf(p.Start)
}

func endOf(p *PeriodRow) time.Time {
	if p.End == maxInstant {
		return time.Time{}
	}
	return timeOf(p.End)
}

// micros takes an instant outside the calendar as the nearest one inside: beyond, UnixMicro is not defined everywhere.
func micros(t time.Time) int64 {
	switch {
	case t.Before(timeOf(minInstant)):
		return minInstant
	case t.After(timeOf(maxInstant)):
		return maxInstant
	}
	return t.UnixMicro()
}

func timeOf(us int64) time.Time { return time.UnixMicro(us).UTC() }
