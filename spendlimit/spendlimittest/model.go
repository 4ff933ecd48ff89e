package spendlimittest

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

type (
	amount  = spendlimit.Amount
	state   = spendlimit.State
	receipt = spendlimit.Receipt
)

// Model is a ledger that is slow and obvious, to compare a real one with. It remembers facts in the order in which they
// happened, and nothing else: each number is summed anew over all facts whenever somebody asks, so there is no counter that
// could be wrong. A command that is to leave no trace is undone by forgetting its facts.
//
// Each command takes the store's clock and answers as the ledger's method of the same name. Fingerprints of limits are
// tokens of the model's own. Input that a ledger refuses by its form alone is outside the model. Not safe for concurrent use.
type Model struct {
	cfg   spendlimit.Config
	facts modelFacts
	zones map[string]*time.Location
	days  map[localDay]int64

	// Of the running command.
	now     int64
	crossed []spendlimit.Crossing
}

// NewModel returns the model of a new ledger. It heeds the config's NoLimit and Defaults.
func NewModel(cfg spendlimit.Config) *Model {
	return &Model{cfg: cfg, zones: map[string]*time.Location{}, days: map[localDay]int64{}}
}

// modelFacts only ever grow at their ends, so an older value of this struct is an older state.
type modelFacts struct {
	limits   []*modelLimit
	versions []versionFact
	periods  []*modelPeriod
	forms    []formFact
	cuts     []cutFact
	carries  []carryFact
	fired    []firedFact

	holds    []*modelHold
	states   []stateFact
	expiries []expiryFact
	rooms    []roomFact
	records  []recordFact
	parts    []*modelPart
	lines    []lineFact
	counts   []countFact
	directs  []directFact
	overruns []overrunFact
	usages   []usageFact

	entries   []spendlimit.Entry
	forgotten []*modelHold
	pruned    []prunedFact
}

// modelLimit is one generation of a limit: removing and creating it again makes another one.
type modelLimit struct {
	account, name string
	gen           int
	since         int64
}

// versionFact is what a limit became.
type versionFact struct {
	limit   *modelLimit
	cfg     spendlimit.Limit
	print   string
	prev    string
	pin     int64 // the calendar acts from here on (R9)
	removed bool
}

// modelPeriod is a stored row: it never moves.
type modelPeriod struct {
	limit      *modelLimit
	start, end int64
	label      string
}

// formFact says that from now on a period goes by a version of its limit. until is where its raise ends, 0 without one.
type formFact struct {
	period *modelPeriod
	mode   spendlimit.Mode
	amount amount
	raise  amount
	until  int64
}

// cutFact is the room in use that a change of the limit in force took away. It stays until the next change.
type cutFact struct {
	period *modelPeriod
	amount amount
}

// carryFact is unused room that moved to the next period (R60).
type carryFact struct {
	from, to *modelPeriod
	amount   amount
}

// firedFact is a threshold that a period has reached.
type firedFact struct {
	period    *modelPeriod
	threshold spendlimit.Threshold
}

// modelHold is what was asked and what was granted.
type modelHold struct {
	req      spendlimit.Request // accounts sorted, without inherited ones
	ttl      int64
	parent   *modelHold
	accounts []string
	granted  amount
	binding  spendlimit.Binding
	born     int64
	seq      int64
}

// stateFact is a new state of a hold. Receipt, ended and own are those of its last end.
type stateFact struct {
	hold    *modelHold
	state   state
	receipt receipt
	ended   int64
	own     amount
}

// expiryFact is the last instant at which a hold lives, until the next fact.
type expiryFact struct {
	hold *modelHold
	at   int64
}

// roomFact is a change of a hold's own room.
type roomFact struct {
	hold   *modelHold
	amount amount
}

// recordFact is known cost of a hold.
type recordFact struct {
	hold   *modelHold
	amount amount
}

// modelPart is the share of an anchor that counts against one set of periods.
type modelPart struct {
	anchor *modelHold
	at     int64
}

// lineFact makes a part count against a period.
type lineFact struct {
	part   *modelPart
	period *modelPeriod
}

// countFact is what a hold did to a part of an anchor: to all periods that the part has a line on.
type countFact struct {
	hold    *modelHold
	part    *modelPart
	spent   amount
	held    amount
	assumed amount
}

// directFact is spending without a hold: of an account as a whole (period nil) or in one of its periods.
type directFact struct {
	account string
	period  *modelPeriod
	when    int64
	spent   amount
}

// overrunFact is cost for which a period had no room.
type overrunFact struct {
	period *modelPeriod
	amount amount
}

// usageFact is an id that was used, and what it has come to. The last fact of an id holds.
type usageFact struct {
	hold     *modelHold // nil of a charge or an adjustment
	id       string
	content  string
	cost     amount
	unpriced bool
	receipt  receipt
}

// prunedFact is how far an account's journal was pruned.
type prunedFact struct {
	account string
	seq     int64
	at      int64
}

// step runs a command as one step on the accounts and on those of the holds: at the store's clock, but never before an entry
// on any of these accounts (C5), and after every hold on them that is due has lapsed (R33). The accounts of the holds in also
// take part, but need not be up to date. Unless f wants its facts kept, they are forgotten.
func (m *Model) step(clock time.Time, accounts, keys, also []string, f func() (keep bool, err error)) error {
	before := m.facts
	m.crossed = nil
	due := m.enter(clock.UnixMicro(), m.with(accounts, keys), m.with(nil, also))
	for _, a := range accounts {
		m.firstTouch(a)
	}
	for _, h := range due {
		m.lapse(h)
	}
	keep, err := f()
	if !keep || err != nil {
		m.facts = before
	}
	return err
}

// with adds the accounts of holds.
func (m *Model) with(accounts, keys []string) []string {
	accounts = slices.Clone(accounts)
	for _, k := range keys {
		if h := m.find(k); h != nil {
			accounts = append(accounts, payersOf(h)...)
		}
	}
	return accounts
}

// enter sets now, and lists the holds on the accounts that are due then.
func (m *Model) enter(clock int64, accounts, also []string) []*modelHold {
	m.now = clock
	for was := clock - 1; was < m.now; {
		was = m.now
		_, all := m.due(append(slices.Clip(accounts), also...))
		for _, a := range all {
			m.now = max(m.now, m.last(a))
		}
	}
	due, _ := m.due(accounts)
	return due
}

// due lists the holds on the accounts that are due, by expiry and key. Each of these brings its accounts.
func (m *Model) due(accounts []string) (due []*modelHold, all []string) {
	all = slices.Compact(slices.Sorted(slices.Values(accounts)))
	for n := -1; n < len(all); {
		n, due = len(all), nil
		for _, h := range m.held() {
			if m.expires(h) < m.now && slices.ContainsFunc(payersOf(h), func(a string) bool { return slices.Contains(all, a) }) {
				due = append(due, h)
				all = append(all, payersOf(h)...)
			}
		}
		slices.Sort(all)
		all = slices.Compact(all)
	}
	slices.SortFunc(due, m.byExpiry)
	return due, all
}

func (m *Model) byExpiry(a, b *modelHold) int {
	return cmp.Or(cmp.Compare(m.expires(a), m.expires(b)), strings.Compare(a.req.Key, b.req.Key))
}

// firstTouch gives an account its default limits (R10).
func (m *Model) firstTouch(account string) {
	if m.seq(account) > 0 || m.cfg.Defaults == nil {
		return
	}
	for _, l := range m.cfg.Defaults(account) {
		l.Account = account
		m.create(l)
	}
}

// lapse ends a hold whose time is over: open gives its room back, dispatched counts as spent (R33).
func (m *Model) lapse(h *modelHold) {
	at := m.expires(h) + 1
	own, to := m.own(h), spendlimit.LapsedFree
	if m.state(h) == spendlimit.Dispatched {
		to = spendlimit.LapsedCharged
	}
	m.end(h, to, at)
	r := receipt{}
	out := m.event(modelEvent{kind: spendlimit.EntryLapse, ref: h.req.Key, at: at, accounts: payersOf(h)}, func() {
		if to == spendlimit.LapsedCharged {
			m.flow(h, own, true)
		} else {
			r.Returned = own
			m.giveBack(h, own)
		}
	})
	r.Assumed, r.LiveChildren, r.Revision = m.assumed(h), m.children(h), out.seq
	m.answer(h, r)
}

// Questions about holds.

// find returns the hold of a key, unless it was pruned.
func (m *Model) find(key string) *modelHold {
	for _, h := range m.facts.holds {
		if h.req.Key == key && !slices.Contains(m.facts.forgotten, h) {
			return h
		}
	}
	return nil
}

// chainOf is h and its ancestors.
func chainOf(h *modelHold) []*modelHold {
	var out []*modelHold
	for ; h != nil; h = h.parent {
		out = append(out, h)
	}
	return out
}

// payersOf are the accounts of h and its ancestors, by name.
func payersOf(h *modelHold) []string {
	var out []string
	for _, z := range chainOf(h) {
		out = append(out, z.accounts...)
	}
	slices.Sort(out)
	return out
}

func rootOf(h *modelHold) *modelHold {
	all := chainOf(h)
	return all[len(all)-1]
}

// held lists the live holds.
func (m *Model) held() []*modelHold {
	var out []*modelHold
	for _, h := range m.facts.holds {
		if m.state(h).Live() {
			out = append(out, h)
		}
	}
	return out
}

// below lists the live holds under top.
func (m *Model) below(top *modelHold) []*modelHold {
	var out []*modelHold
	for _, h := range m.held() {
		if h != top && slices.Contains(chainOf(h), top) {
			out = append(out, h)
		}
	}
	return out
}

// children counts the live children.
func (m *Model) children(h *modelHold) int {
	n := 0
	for _, c := range m.held() {
		if c.parent == h {
			n++
		}
	}
	return n
}

// change returns the last one of h.
func (m *Model) change(h *modelHold) stateFact {
	for _, c := range slices.Backward(m.facts.states) {
		if c.hold == h {
			return c
		}
	}
	return stateFact{}
}

func (m *Model) state(h *modelHold) state { return m.change(h).state }

func (m *Model) expires(h *modelHold) int64 {
	for _, e := range slices.Backward(m.facts.expiries) {
		if e.hold == h {
			return e.at
		}
	}
	return 0
}

// own is the room of h that is neither spent, nor given to live children, nor returned.
func (m *Model) own(h *modelHold) (sum amount) {
	for _, r := range m.facts.rooms {
		if r.hold == h {
			sum += r.amount
		}
	}
	return sum
}

func (m *Model) recorded(h *modelHold) (sum amount) {
	for _, r := range m.facts.records {
		if r.hold == h {
			sum += r.amount
		}
	}
	return sum
}

// assumed is the cost of h that is counted without knowledge: each anchor above it has counted the same.
func (m *Model) assumed(h *modelHold) (sum amount) {
	for _, c := range m.facts.counts {
		if c.hold == h && c.part.anchor == rootOf(h) {
			sum += c.assumed
		}
	}
	return sum
}

// openUsages counts the usages of h that wait for a price. Settled with a known cost it waits for nothing; settled without, the
// hold stands for its usages (R43).
func (m *Model) openUsages(h *modelHold) int {
	if m.state(h) == spendlimit.Settled {
		return 0
	}
	open := map[string]bool{}
	for _, u := range m.facts.usages {
		if u.hold == h {
			open[u.id] = u.unpriced
		}
	}
	n := 0
	for _, is := range open {
		if is {
			n++
		}
	}
	return n
}

// unpricedOf counts the holds and usages without a price that h stands for.
func (m *Model) unpricedOf(h *modelHold) int {
	if m.state(h) == spendlimit.SettledUnpriced {
		return 1
	}
	return m.openUsages(h)
}

// partsOf lists the parts of an anchor, oldest first.
func (m *Model) partsOf(h *modelHold) []*modelPart {
	var out []*modelPart
	for _, p := range m.facts.parts {
		if p.anchor == h {
			out = append(out, p)
		}
	}
	return out
}

func (m *Model) linesOf(p *modelPart) []*modelPeriod {
	var out []*modelPeriod
	for _, l := range m.facts.lines {
		if l.part == p {
			out = append(out, l.period)
		}
	}
	return out
}

// left is the room of a part that is still held.
func (m *Model) left(p *modelPart) (sum amount) {
	for _, c := range m.facts.counts {
		if c.part == p {
			sum += c.held
		}
	}
	return sum
}

func (m *Model) hasLine(h *modelHold, p *modelPeriod) bool {
	return slices.ContainsFunc(m.partsOf(h), func(q *modelPart) bool { return slices.Contains(m.linesOf(q), p) })
}

// usage returns what an id has come to, or nil.
func (m *Model) usage(h *modelHold, id string) *usageFact {
	for i := len(m.facts.usages) - 1; i >= 0; i-- {
		if u := &m.facts.usages[i]; u.hold == h && u.id == id {
			return u
		}
	}
	return nil
}

// Questions about accounts.

// journal lists all entries of an account, pruned ones too.
func (m *Model) journal(account string) []spendlimit.Entry {
	var out []spendlimit.Entry
	for _, e := range m.facts.entries {
		if e.Account == account {
			out = append(out, e)
		}
	}
	return out
}

func (m *Model) seq(account string) (n int64) {
	for i := range m.facts.entries {
		if m.facts.entries[i].Account == account {
			n++
		}
	}
	return n
}

// last is when the account was last written.
func (m *Model) last(account string) (at int64) {
	for i := range m.facts.entries {
		if e := &m.facts.entries[i]; e.Account == account {
			at = e.At.UnixMicro()
		}
	}
	for _, p := range m.facts.pruned {
		if p.account == account {
			at = max(at, p.at)
		}
	}
	return at
}

// modelSums are the totals of a period or of an account.
type modelSums struct{ spent, held, assumed, overrun amount }

// sums adds up everything that counts against a period.
func (m *Model) sums(p *modelPeriod) (s modelSums) {
	for _, l := range m.facts.lines {
		if l.period != p {
			continue
		}
		for _, c := range m.facts.counts {
			if c.part == l.part {
				s.spent, s.held, s.assumed = s.spent+c.spent, s.held+c.held, s.assumed+c.assumed
			}
		}
	}
	for _, d := range m.facts.directs {
		if d.period == p {
			s.spent += d.spent
		}
	}
	for _, o := range m.facts.overruns {
		if o.period == p {
			s.overrun += o.amount
		}
	}
	return s
}

// total adds up everything that an account pays for.
func (m *Model) total(account string) (s modelSums) {
	for _, c := range m.facts.counts {
		if slices.Contains(c.part.anchor.accounts, account) {
			s.spent, s.held = s.spent+c.spent, s.held+c.held
		}
	}
	for _, d := range m.facts.directs {
		if d.account == account && d.period == nil {
			s.spent += d.spent
		}
	}
	return s
}

// unpricedOn counts the unpriced holds and usages with a line on p, their own or an ancestor's (I6).
func (m *Model) unpricedOn(p *modelPeriod) (n int) {
	for _, h := range m.facts.holds {
		if slices.ContainsFunc(chainOf(h), func(z *modelHold) bool { return m.hasLine(z, p) }) {
			n += m.unpricedOf(h)
		}
	}
	return n
}

// What happens to holds.

// end moves a hold into an ended state; its own room must go somewhere next.
func (m *Model) end(h *modelHold, to state, at int64) {
	m.facts.states = append(m.facts.states, stateFact{hold: h, state: to, ended: at, own: m.own(h)})
}

// enterState changes the state alone.
func (m *Model) enterState(h *modelHold, to state) {
	c := m.change(h)
	c.hold, c.state = h, to
	m.facts.states = append(m.facts.states, c)
}

// answer notes the receipt of a hold's end.
func (m *Model) answer(h *modelHold, r receipt) {
	c := m.change(h)
	c.receipt = r
	m.facts.states = append(m.facts.states, c)
}

func (m *Model) move(h *modelHold, n amount) { m.facts.rooms = append(m.facts.rooms, roomFact{h, n}) }

// flow is E(u): the true (or assumed) cost u of h is taken from h's own room, then its parent's, up to the root, and counted on
// every anchor on the way. What no room covered is the excess.
func (m *Model) flow(h *modelHold, u amount, assumed bool) (excess amount) {
	var covered amount
	for _, z := range chainOf(h) {
		if take := min(u-covered, m.own(z)); take > 0 {
			m.move(z, -take)
			covered += take
		}
		if len(z.accounts) > 0 {
			m.spend(h, z, u, covered, assumed)
		}
	}
	return u - covered
}

// spend counts a cost u of h on the anchor z: what was covered reduces what is left, oldest part first; the rest goes to
// the newest part.
func (m *Model) spend(h, z *modelHold, u, covered amount, assumed bool) {
	parts := m.partsOf(z)
	rest := covered
	for i, p := range parts {
		use := min(rest, m.left(p))
		rest -= use
		c := countFact{hold: h, part: p, spent: use, held: -use}
		if i == len(parts)-1 {
			c.spent += u - covered
		}
		if assumed {
			c.assumed = c.spent
		}
		if c.spent > 0 {
			m.facts.counts = append(m.facts.counts, c)
		}
	}
}

// giveBack returns own room of h to the nearest live ancestor, above the root to the limits, newest part first.
func (m *Model) giveBack(h *modelHold, n amount) {
	m.move(h, -n)
	for _, z := range chainOf(h) {
		if z != h && m.state(z).Live() {
			m.move(z, n)
			return
		}
		rest := n
		for _, p := range slices.Backward(m.partsOf(z)) {
			use := min(rest, m.left(p))
			rest -= use
			if use > 0 {
				m.facts.counts = append(m.facts.counts, countFact{hold: h, part: p, held: -use})
			}
		}
	}
}

// learn turns n of what h was assumed to have cost into known cost, oldest part first: spent stays.
func (m *Model) learn(h *modelHold, n amount) {
	for _, z := range chainOf(h) {
		rest := n
		for _, p := range m.partsOf(z) {
			use := min(rest, m.assumedOn(h, p))
			rest -= use
			if use > 0 {
				m.facts.counts = append(m.facts.counts, countFact{hold: h, part: p, assumed: -use})
			}
		}
	}
}

// refute takes n of what h was assumed to have cost back, newest part first (R46).
func (m *Model) refute(h *modelHold, n amount) {
	for _, z := range chainOf(h) {
		rest := n
		for _, p := range slices.Backward(m.partsOf(z)) {
			use := min(rest, m.assumedOn(h, p))
			rest -= use
			if use > 0 {
				m.facts.counts = append(m.facts.counts, countFact{hold: h, part: p, spent: -use, assumed: -use})
			}
		}
	}
}

func (m *Model) assumedOn(h *modelHold, p *modelPart) (sum amount) {
	for _, c := range m.facts.counts {
		if c.hold == h && c.part == p {
			sum += c.assumed
		}
	}
	return sum
}

// The journal.

// modelEvent is one thing that happened, with what its entries say.
type modelEvent struct {
	kind      spendlimit.EntryKind
	ref, hold string
	source    spendlimit.Source
	labels    map[string]string
	at        int64 // when it counts
	cost      bool  // a true cost: it may raise overrun
	accounts  []string
}

type modelOutcome struct {
	seq     int64 // of the entry on the first account
	overrun amount
}

// event looks at every period before and after do, and writes down the difference: overrun (only for true costs), thresholds,
// and one entry per account.
func (m *Model) event(e modelEvent, do func()) modelOutcome {
	m.endRaises(e)
	before, totals, unpriced := map[*modelPeriod]modelSums{}, map[string]modelSums{}, map[*modelPeriod]int{}
	for _, p := range m.facts.periods {
		before[p], unpriced[p] = m.sums(p), m.unpricedOn(p)
	}
	for _, a := range e.accounts {
		totals[a] = m.total(a)
	}
	from := m.facts
	do()
	var out modelOutcome
	for _, p := range m.facts.periods {
		over := max(0, m.over(p, m.sums(p))-m.over(p, before[p]))
		if e.cost && over > 0 {
			m.facts.overruns = append(m.facts.overruns, overrunFact{p, over})
			out.overrun = max(out.overrun, over)
		}
		if m.touched(p, from) || m.unpricedOn(p) != unpriced[p] {
			m.fire(p)
		}
	}
	for i, a := range e.accounts {
		seq := m.write(e, a, before, totals[a])
		if i == 0 {
			out.seq = seq
		}
	}
	return out
}

// over is how much is in use beyond the limit in force.
func (m *Model) over(p *modelPeriod, s modelSums) amount { return max(0, s.spent+s.held-m.inForce(p)) }

// touched tells whether something was counted on p, be it zero, since from.
func (m *Model) touched(p *modelPeriod, from modelFacts) bool {
	lines := func(q *modelPart) bool { return slices.Contains(m.linesOf(q), p) }
	return slices.ContainsFunc(m.facts.counts[len(from.counts):], func(c countFact) bool { return lines(c.part) }) ||
		slices.ContainsFunc(m.facts.directs[len(from.directs):], func(d directFact) bool { return d.period == p }) ||
		slices.ContainsFunc(m.facts.lines[len(from.lines):], func(l lineFact) bool { return l.period == p })
}

func (m *Model) write(e modelEvent, account string, before map[*modelPeriod]modelSums, total modelSums) int64 {
	now := m.total(account)
	row := spendlimit.Entry{
		Account: account, Seq: m.seq(account) + 1, At: utcMicro(m.now), Kind: e.kind, Ref: e.ref, Hold: e.hold,
		Source: e.source, Labels: e.labels, Spent: now.spent - total.spent, Held: now.held - total.held, Unit: m.cfg.Unit,
	}
	for _, p := range m.facts.periods {
		s, was := m.sums(p), before[p]
		moved := s.spent != was.spent || s.held != was.held || s.overrun != was.overrun
		if p.limit.account != account || !moved {
			continue
		}
		row.Postings = append(row.Postings, spendlimit.LimitPosting{
			Limit: p.limit.name, Period: p.label, Start: edgeTime(p.start),
			Spent: s.spent - was.spent, Held: s.held - was.held, Overrun: s.overrun - was.overrun,
		})
	}
	m.facts.entries = append(m.facts.entries, row)
	return row.Seq
}

// fire notes the thresholds that p has reached for the first time (R61).
func (m *Model) fire(p *modelPeriod) {
	s := m.sums(p)
	for _, t := range m.version(p.limit).cfg.Thresholds {
		counted := s.spent
		if t.Of == spendlimit.SpentAndHeld {
			counted += s.held
		}
		if counted*100 < max(0, m.inForce(p))*amount(t.Percent) || slices.Contains(m.firedOn(p), t) {
			continue
		}
		m.facts.fired = append(m.facts.fired, firedFact{p, t})
		m.crossed = append(m.crossed, spendlimit.Crossing{
			Account: p.limit.account, Limit: p.limit.name, Period: p.label, Start: edgeTime(p.start), Threshold: t,
		})
	}
}

func (m *Model) firedOn(p *modelPeriod) []spendlimit.Threshold {
	var out []spendlimit.Threshold
	for _, f := range m.facts.fired {
		if f.period == p {
			out = append(out, f.threshold)
		}
	}
	return out
}

// Edges of time: a Total has neither start nor end.
const (
	beginning int64 = -1 << 62
	never     int64 = 1 << 62
)

func utcMicro(us int64) time.Time { return time.UnixMicro(us).UTC() }

// edgeTime shows the start or end of a period.
func edgeTime(us int64) time.Time {
	if us == beginning || us == never {
		return time.Time{}
	}
	return utcMicro(us)
}

// ended is the error of a call that needs a live hold.
func (m *Model) ended(h *modelHold) error {
	c := m.change(h)
	return &spendlimit.EndedError{Hold: h.req.Key, State: c.state, Receipt: c.receipt}
}

// badInput is ErrInvalid with its field.
func badInput(field, reason string) error {
	return &spendlimit.InvalidError{Field: field, Reason: reason}
}

// Entries answers as [spendlimit.Ledger.Entries] does.
func (m *Model) Entries(account string, after int64) []spendlimit.Entry {
	for _, p := range m.facts.pruned {
		if p.account == account {
			after = max(after, p.seq)
		}
	}
	all := m.journal(account)
	return all[min(max(0, after), int64(len(all))):]
}
