package allocator

import (
	"cmp"
	"errors"
	"math"
	"slices"
)

// Times and bounds of the rules (fixed).
const (
	claimUS     = 10_000_000 // an offer waits so long for its waiter
	ticketUS    = 30_000_000 // a ticket whose waiter does not ask ends
	ticketLowUS = 20_000_000 // one with less left is prolonged when its waiter asks
	maxLapses   = 64         // leases ended by one step
	maxPurge    = 256        // leases forgotten by one step
)

// errMore says that a step needs rows that were not loaded; the step's need was enlarged. Nothing may be written.
var errMore = errors.New("allocator: the step needs more rows")

// command is one call in a batch. It judges before it changes: when run returns an error it has changed nothing, but for ending what
// was over by time. An error that refuses the command alone is kept by the command; run returns only what ends the whole step.
type command interface {
	need(n *Need)
	run(s *step) error
	base() *call
}

// step is the judgement of one batch.
type step struct {
	set   *Set
	loads *Need // what the store was asked for
	need  Need  // the same, enlarged with errMore; a store may make a step twice, so each time anew
	clock int64 // as the store says
	now   int64 // never goes back (R14)

	newID    func() LeaseID
	me       Incarnation
	waitHere func(attempt string, seq int64, fresh bool) bool // a waiter of this process waits with this ticket, which the step may have made

	free     []int // slots, ascending
	freeUpTo int   // up to this index all free slots are known
	lapsed   bool  // lapsed leases were ended as far as the step may
	room     bool  // something became free, or the queue changed, since the last hand-out

	granted []grant      // to tickets whose waiters wait here
	dropped []drop       // tickets of this process that ended without a lease
	ended   []*LeaseRow  // otherwise than by their holders
	over    []*LeaseRow  // of this process, that ended
	lost    []uint64     // epochs of leases that can't be read and were dropped
	swept   int          // leases ended by time
	moreDue bool         // lapsed leases are left
	thawed  int          // slots
	told    int          // of thawed: what a sweep has counted
	purged  int          // leases
	groups  []*candidate // with tickets
}

// grant is a lease that a waiting ticket got.
type grant struct {
	attempt string
	lease   *LeaseRow
	slots   []heldSlot
	leftUS  int64
}

// drop is a ticket that ended.
type drop struct {
	attempt string
	seq     int64
	cause   error
}

// apply runs commands in their order on the rows of a set. It is pure but for newID and waitHere. An error means: write nothing.
func (s *step) apply(commands []command) error {
	s.begin()
	if s.set.Pool() != nil {
		if err := s.jump(); err != nil {
			return err
		}
		if err := s.timely(); err != nil {
			return err
		}
	}
	for _, c := range commands {
		k := c.base()
		k.reset()
		if s.set.Pool() == nil {
			if _, ok := c.(*create); !ok {
				k.err = ErrNotFound
				continue
			}
		}
		if err := c.run(s); err != nil {
			if isRefusal(err) {
				k.err = err
				continue
			}
			return err
		}
		if err := s.handOut(); err != nil {
			return err
		}
	}
	s.finish()
	return nil
}

// isRefusal tells whether an error of a command is its own answer.
func isRefusal(err error) bool { return !errors.Is(err, errMore) }

func (s *step) begin() {
	s.now, s.need = s.clock, *s.loads
	s.lapsed, s.room, s.moreDue = false, false, false
	s.granted, s.dropped, s.ended, s.over, s.lost = s.granted[:0], s.dropped[:0], s.ended[:0], s.over[:0], s.lost[:0]
	s.swept, s.thawed, s.told, s.purged = 0, 0, 0, 0
	s.listFree()
	p := s.set.Pool()
	if p == nil {
		return
	}
	s.now = p.Now(s.clock)
}

// jump gives every holder the time to say that it is there, after the clock jumped: one TTL of its own, or of the pool if that is
// longer (R14).
func (s *step) jump() error {
	p := s.set.Pool()
	if s.now-p.SeenUS <= p.Policy.JumpGuard.Microseconds() || p.Used <= p.Cooling {
		return nil
	}
	if !s.need.All {
		return s.more(func(n *Need) { n.All = true })
	}
	s.pool().JumpUS = max(p.JumpUS, sum(s.now, s.longest()))
	return nil
}

// longest is the longest TTL of the live leases, or the pool's if that is longer; all rows must be loaded.
func (s *step) longest() int64 {
	p := s.set.Pool()
	longest := p.Policy.TTL.Microseconds()
	for i := range s.set.leases.list {
		if l := s.set.leases.list[i].row; l != nil && l.Status == LeaseLive {
			longest = max(longest, min(l.TTLUS, p.Policy.MaxLease.Microseconds()))
		}
	}
	return longest
}

// finish dates what was changed. A step without changes stays one.
func (s *step) finish() {
	set := s.set
	if !set.changed() {
		return
	}
	s.settle()
	p := s.pool()
	s.guardCounts(p)
	p.SeenUS = s.now
	p.Rev++ // also when no row but the pool's is changed, or rows only go
	set.date(func() int64 { p.Rev++; return p.Rev })
}

// guardCounts keeps counts that were wrong before from falling below 0. Nothing is granted then, until Check has repaired them.
func (s *step) guardCounts(p *PoolRow) {
	for _, n := range [...]*int{&p.Used, &p.Cooling, &p.Offered, &p.Waiting, &p.Groups} {
		if *n < 0 {
			*n, p.Blocked = 0, true
		}
	}
	for i := range s.set.groups.list {
		if e := &s.set.groups.list[i]; e.fresh && e.row != nil && min(e.row.Used, e.row.Waiting) < 0 {
			e.row.Used, e.row.Waiting, p.Blocked = max(0, e.row.Used), max(0, e.row.Waiting), true
		}
	}
}

// settle ends a drain when nothing is left (R19).
func (s *step) settle() {
	if p := s.set.Pool(); p.Status == PoolDraining && p.Used == 0 {
		s.pool().Status = PoolDrained
	}
}

// more enlarges the need.
func (s *step) more(enlarge func(n *Need)) error {
	enlarge(&s.need)
	return errMore
}

// Rows that are about to be changed.

func (s *step) pool() *PoolRow               { return s.set.pool.edit("") }
func (s *step) slot(i int) *SlotRow          { return s.set.slots.edit(i) }
func (s *step) lease(epoch uint64) *LeaseRow { return s.set.leases.edit(epoch) }

// group returns the row of a group to be changed; it is made if there is none yet.
func (s *step) group(k GroupKey) (*GroupRow, error) {
	if s.set.Group(k) != nil {
		return s.set.groups.edit(k), nil
	}
	p := s.set.Pool()
	if p.Groups >= maxGroups {
		if err := s.dropIdleGroups(); err != nil {
			return nil, err
		}
	}
	s.pool().Groups++
	g := &GroupRow{Key: k, Weight: 1, Max: -1}
	s.set.groups.insert(k, g, nil)
	return g, nil
}

// groupOf returns the group as it is, or as it would be.
func (s *step) groupOf(k GroupKey) GroupRow {
	if g := s.set.Group(k); g != nil {
		return *g
	}
	return GroupRow{Key: k, Weight: 1, Max: -1}
}

// dropIdleGroups makes room for a new group: those that nobody listed and nobody uses go.
func (s *step) dropIdleGroups() error {
	if !s.need.All {
		return s.more(func(n *Need) { n.All = true })
	}
	var idle []GroupKey
	for i := range s.set.groups.list {
		if g := s.set.groups.list[i].row; g != nil && !g.Listed && g.Used == 0 && g.Waiting == 0 {
			idle = append(idle, g.Key)
		}
	}
	if len(idle) == 0 {
		return invalid("Group", "the pool has %d groups in use, which is the most", maxGroups)
	}
	for _, k := range idle {
		s.set.groups.remove(k, nil)
	}
	s.pool().Groups -= len(idle)
	return nil
}

// Time.

// jumping tells that nothing is judged by time now.
func (s *step) jumping() bool {
	p := s.set.Pool()
	return p.JumpUS > 0 && s.now <= p.JumpUS
}

// maxUntil is when a lease ends whatever is renewed: no stored time above the policy is trusted (R7b).
func (p *PoolRow) maxUntil(l *LeaseRow) int64 {
	if l.Status == LeaseOffered {
		return l.MaxUS
	}
	return min(l.MaxUS, sum(l.AcquiredUS, p.Policy.MaxLease.Microseconds()))
}

func (p *PoolRow) expires(l *LeaseRow) int64 { return min(l.ExpiresUS, p.maxUntil(l)) }

// over says by which reason a live lease is over at a time, if it is (R10a): at the very instant it is not.
func (p *PoolRow) over(l *LeaseRow, now int64) Reason {
	switch {
	case now > p.maxUntil(l):
		return ReasonMaxLease
	case now > p.expires(l):
		return ReasonExpired
	}
	return 0
}

// overdue is over while time counts.
func (s *step) overdue(l *LeaseRow) Reason {
	if s.jumping() || l.Status != LeaseLive {
		return 0
	}
	return s.set.Pool().over(l, s.now)
}

func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Slots.

// listFree collects the free slots that were loaded.
func (s *step) listFree() {
	s.free = s.free[:0]
	for i := range s.set.slots.list {
		if r := s.set.slots.list[i].row; r != nil && r.Status == SlotFree {
			s.free = append(s.free, r.Index)
		}
	}
	slices.Sort(s.free)
	// Unreadable slots may have taken places among the free ones that were asked for.
	switch n := s.need.Free - s.unreadable(RawSlot); {
	case s.need.All || n >= 0 && len(s.free) < n:
		s.freeUpTo = math.MaxInt
	case n <= 0:
		s.freeUpTo = -1
	default:
		s.freeUpTo = s.free[n-1]
	}
}

// unreadable counts the rows of a table that were loaded and can't be read.
func (s *step) unreadable(table string) int {
	n := 0
	for _, r := range s.set.raws {
		if r.Table == table {
			n++
		}
	}
	return n
}

// lowest returns the u free slots with the lowest index, or nil if there are fewer.
func (s *step) lowest(u int) ([]int, error) {
	if len(s.free) < u || s.free[u-1] > s.freeUpTo {
		if s.freeUpTo != math.MaxInt {
			return nil, s.more(func(n *Need) { n.Free = 2*n.Free + u + 8 })
		}
		return nil, nil
	}
	return s.free[:u], nil
}

// freed makes a slot free, or retired if the capacity has no place for it.
func (s *step) freed(r *SlotRow) {
	r.CoolUS = 0
	if r.Index >= s.set.Pool().Capacity {
		r.Status = SlotRetired
		return
	}
	r.Status = SlotFree
	at, _ := slices.BinarySearch(s.free, r.Index)
	s.free = slices.Insert(s.free, at, r.Index)
}

// Room.

// fits says what there is too little of for u slots, or 0 and the slots (R4).
func (s *step) fits(g *GroupRow, u int) (slots []int, short Shortage, err error) {
	p := s.set.Pool()
	switch {
	case g.Max >= 0 && u > g.Max-g.Used:
		return nil, ShortGroup, nil
	case p.Used > p.Capacity:
		return nil, ShortExcess, nil
	case u > p.Capacity-p.Used:
		if u <= p.Capacity-p.Used+p.Cooling {
			return nil, ShortCooling, nil
		}
		return nil, ShortCapacity, nil
	}
	slots, err = s.lowest(u)
	if err == nil && slots == nil {
		short = ShortCapacity
	}
	return slots, short, err
}

// timely does what is due by time in every step: offers and tickets past their end go, cooled slots are free again.
func (s *step) timely() error {
	p := s.set.Pool()
	if !s.need.Timely {
		return nil
	}
	if p.Offered > 0 {
		var over []*LeaseRow
		for i := range s.set.leases.list {
			if l := s.set.leases.list[i].row; l != nil && l.Status == LeaseOffered && s.now > l.ExpiresUS {
				over = append(over, l)
			}
		}
		slices.SortFunc(over, func(a, b *LeaseRow) int { return cmp.Compare(a.Epoch, b.Epoch) })
		for _, l := range over {
			if err := s.end(l, EndRow{Reason: ReasonUnclaimed, AtUS: s.now}); err != nil {
				return err
			}
		}
	}
	if p.Waiting > 0 {
		var over []*TicketRow
		for i := range s.set.tickets.list {
			if t := s.set.tickets.list[i].row; t != nil && s.now > t.DeadlineUS {
				over = append(over, t)
			}
		}
		slices.SortFunc(over, func(a, b *TicketRow) int { return cmp.Compare(a.Seq, b.Seq) })
		for _, t := range over {
			s.drop(t, ErrTicketLost)
		}
	}
	if p.Cooling > 0 {
		for i := range s.set.slots.list {
			if r := s.set.slots.list[i].row; r != nil && r.Status == SlotCooling && s.now > r.CoolUS {
				s.thaw(r)
			}
		}
	}
	s.settle()
	return s.handOut()
}

func (s *step) thaw(r *SlotRow) {
	s.freed(s.slot(r.Index))
	p := s.pool()
	p.Cooling--
	p.Used--
	s.thawed++
	s.room = true
}

// drop ends a ticket.
func (s *step) drop(t *TicketRow, cause error) {
	s.set.tickets.remove(t.Seq, nil)
	s.pool().Waiting--
	if g := s.set.Group(t.Params.Group); g != nil {
		s.set.groups.edit(g.Key).Waiting--
	}
	s.room = true
	if t.Holder.Incarnation == s.me {
		s.dropped = append(s.dropped, drop{t.Attempt, t.Seq, cause})
	}
}

// lapse ends the leases whose time is over, the oldest first, at most so many (R12). It is called before the first command that
// wants room.
func (s *step) lapse(most int) error {
	if s.lapsed {
		return nil
	}
	s.lapsed = true
	if s.jumping() {
		return nil
	}
	var due []*LeaseRow
	for i := range s.set.leases.list {
		if l := s.set.leases.list[i].row; l != nil && s.overdue(l) != 0 {
			due = append(due, l)
		}
	}
	// Unreadable rows took places among the loaded ones: that stops no other.
	if raws := s.unreadable(RawLease); raws > 0 && !s.need.All && len(due) <= most && len(due)+raws >= s.need.Due {
		return s.more(func(n *Need) { n.Due += raws + maxLapses })
	}
	p := s.set.Pool()
	slices.SortFunc(due, func(a, b *LeaseRow) int {
		return cmp.Or(cmp.Compare(p.expires(a), p.expires(b)), cmp.Compare(a.Epoch, b.Epoch))
	})
	if s.moreDue = len(due) > most; s.moreDue {
		due = due[:most]
	}
	for _, l := range due {
		if err := s.end(l, s.lapseOf(l)); err != nil {
			return err
		}
		s.swept++
	}
	return s.handOut()
}

// lapseOf is how a lease ends whose time is over.
func (s *step) lapseOf(l *LeaseRow) EndRow {
	p := s.set.Pool()
	return EndRow{Reason: p.over(l, s.now), AtUS: s.now, Evidence: l.Evidence(p.Name).Sum()}
}

// end ends a live or offered lease. Its slots are free at once when its holder said so, when nobody had it, or where no slot
// needs to cool; else they cool (R16). A slot that does not carry its epoch, because its row is damaged, is left as it is: quarantined. The
// only error is that more rows are needed.
func (s *step) end(l *LeaseRow, e EndRow) error {
	for _, i := range l.Slots {
		if s.set.Slot(i) == nil && !s.knows(i) {
			return s.more(func(n *Need) { n.Slots = append(n.Slots, l.Slots...) })
		}
	}
	p := s.pool()
	cools := e.Reason != ReasonReleased && e.Reason != ReasonUnclaimed && !p.Policy.Fenced && p.Policy.Cooling > 0
	for _, i := range l.Slots {
		if r := s.set.Slot(i); r == nil || r.Status != SlotLeased || r.Epoch != l.Epoch {
			continue
		}
		r := s.slot(i)
		if cools {
			r.Status, r.CoolUS = SlotCooling, s.now+p.Policy.Cooling.Microseconds()
			p.Cooling++
			continue
		}
		s.freed(r)
		p.Used--
	}
	if l.Status == LeaseOffered {
		p.Offered--
	}
	if g := s.set.Group(l.Params.Group); g != nil {
		s.set.groups.edit(g.Key).Used -= len(l.Slots)
	}
	row := s.lease(l.Epoch)
	row.Status, row.End = LeaseEnded, e
	s.note(row)
	s.room = true
	return nil
}

// note keeps a lease that ended for those who must hear of it.
func (s *step) note(l *LeaseRow) {
	if l.End.Reason != ReasonReleased {
		s.ended = append(s.ended, l)
	}
	if l.Holder.Incarnation == s.me {
		s.over = append(s.over, l)
	}
}

// knows tells whether a slot's row was looked for: it then is missing, or unreadable.
func (s *step) knows(i int) bool {
	return s.need.All || slices.Contains(s.need.Slots, i) || slices.ContainsFunc(s.set.raws, func(r *Raw) bool { return r.Table == RawSlot && r.Index == i })
}

// candidate is a group with tickets.
type candidate struct {
	key   GroupKey
	heads []*TicketRow // by seq
}

// handOut gives room to tickets until nothing more fits (R5, R6). Among the groups whose first ticket fits, those with less than
// their minimum come first, then those that would have the least for their weight; a first ticket that does not fit holds up its
// own group only.
func (s *step) handOut() error {
	if !s.room {
		return nil
	}
	s.room = false
	p := s.set.Pool()
	if p.Waiting == 0 || p.Status != PoolOpen || p.Blocked {
		return nil
	}
	if s.need.Heads == 0 && !s.need.All {
		return s.more(func(n *Need) { n.Heads = 1 })
	}
	if s.unreadable(RawTicket) > 0 && !s.need.All && p.Used < p.Capacity { // whose tickets are behind it is not known
		return s.more(func(n *Need) { n.All = true })
	}
	s.listHeads()
	for s.set.Pool().Used < p.Capacity { // else nobody fits, whoever is next
		var best *candidate
		var slots []int
		for _, c := range s.groups {
			if len(c.heads) == 0 {
				if s.set.Group(c.key).Waiting > 0 && !s.need.All {
					return s.more(func(n *Need) { n.Heads = 2*n.Heads + 1 })
				}
				continue
			}
			g := s.set.Group(c.key)
			fit, short, err := s.fits(g, c.heads[0].Params.Units)
			if err != nil {
				return err
			}
			if short == 0 && (best == nil || s.before(c, best)) {
				best, slots = c, fit
			}
		}
		if best == nil {
			return nil
		}
		switch err := s.serve(best.heads[0], slots); {
		case errors.Is(err, ErrCorrupt): // nothing can be granted: that hurts no other command
			return nil
		case err != nil:
			return err
		}
		best.heads = best.heads[1:]
	}
	return nil
}

// listHeads lists the groups that wait, with those of their tickets that are surely the first: a ticket that was loaded because it
// was named is among them only where all before it are.
func (s *step) listHeads() {
	s.groups = s.groups[:0]
	byKey := map[GroupKey]*candidate{}
	for i := range s.set.groups.list {
		if g := s.set.groups.list[i].row; g != nil && g.Waiting > 0 {
			c := &candidate{key: g.Key}
			byKey[g.Key] = c
			s.groups = append(s.groups, c)
		}
	}
	for _, t := range s.allTickets() {
		if c := byKey[t.Params.Group]; c != nil {
			c.heads = append(c.heads, t)
		}
	}
	for _, c := range s.groups {
		c.heads = c.heads[:s.sure(c)]
	}
}

// sure counts the tickets of a group that are surely its first: all if all of them were loaded, else those that were asked for.
func (s *step) sure(c *candidate) int {
	if s.need.All || len(c.heads) >= s.set.Group(c.key).Waiting {
		return len(c.heads)
	}
	// Heads of them were loaded as the first; of these the step may have taken some since.
	return max(0, min(len(c.heads), s.need.Heads-s.taken(c.key)))
}

// taken counts the tickets of a group that this step has taken out of the queue.
func (s *step) taken(k GroupKey) int {
	n := 0
	for i := range s.set.tickets.list {
		if e := &s.set.tickets.list[i]; e.row == nil && e.old != nil && e.old.Params.Group == k {
			n++
		}
	}
	return n
}

// before is the order of R5.
func (s *step) before(a, b *candidate) bool {
	x, y := s.set.Group(a.key), s.set.Group(b.key)
	if x, y := x.Used < x.Min, y.Used < y.Min; x != y {
		return x
	}
	// Lowest (used + units) / weight, without a division: all of it is far below 2⁶³.
	p := int64(x.Used+a.heads[0].Params.Units) * y.Weight
	q := int64(y.Used+b.heads[0].Params.Units) * x.Weight
	if p != q {
		return p < q
	}
	return a.heads[0].Seq < b.heads[0].Seq
}

// serve gives slots to a ticket: as a lease if its waiter waits here (R6a), else as an offer (R6b).
func (s *step) serve(t *TicketRow, slots []int) error {
	here := t.Holder.Incarnation == s.me && s.waitHere != nil && s.waitHere(t.Attempt, t.Seq, s.set.tickets.find(t.Seq).old == nil)
	status := LeaseOffered
	if here {
		status = LeaseLive
	}
	l, err := s.grant(t.Attempt, &t.Params, &t.Holder, slots, status)
	if err != nil {
		return err
	}
	s.set.tickets.remove(t.Seq, nil)
	s.pool().Waiting--
	s.set.groups.edit(t.Params.Group).Waiting--
	if here {
		g := grant{attempt: t.Attempt, lease: l, leftUS: s.left(l)}
		g.slots, err = s.appendSlots(nil, l)
		s.granted = append(s.granted, g)
	}
	return err
}

// grant makes a lease (R1): one new epoch, put on all its slots, and nothing of any earlier lease.
func (s *step) grant(attempt string, p *Params, h *Holder, slots []int, status LeaseStatus) (*LeaseRow, error) {
	if s.set.Pool().EpochSeq >= maxCounter {
		return nil, &CorruptError{What: "the last epoch", Stored: maxCounter, Actual: maxCounter}
	}
	next := s.set.Pool().EpochSeq + 1
	for _, i := range slots { // an epoch that was given out before is never given out again
		if r := s.set.Slot(i); r.Epoch >= next {
			return nil, &CorruptError{What: "the last epoch", Stored: int64(next) - 1, Actual: int64(r.Epoch)}
		}
	}
	g, err := s.group(p.Group)
	if err != nil {
		return nil, err
	}
	pool := s.pool()
	pool.EpochSeq++
	l := &LeaseRow{
		ID: s.newID(), Epoch: pool.EpochSeq, Slots: slices.Clone(slots), Status: status, Attempt: attempt, Params: *p, Holder: *h,
		TTLUS: cmp.Or(p.TTLUS, pool.Policy.TTL.Microseconds()),
	}
	s.start(l)
	for _, i := range l.Slots {
		r := s.slot(i)
		r.Status, r.Epoch, r.CoolUS = SlotLeased, l.Epoch, 0
	}
	s.free = slices.DeleteFunc(s.free, func(i int) bool { return slices.Contains(l.Slots, i) })
	pool.Used += len(l.Slots)
	g.Used += len(l.Slots)
	if status == LeaseOffered {
		pool.Offered++
	}
	s.set.leases.insert(l.Epoch, l, nil)
	return l, nil
}

// start dates a lease that begins to live, or is offered.
func (s *step) start(l *LeaseRow) {
	l.AcquiredUS = s.now
	if l.Status == LeaseOffered {
		l.ExpiresUS, l.MaxUS = s.now+claimUS, s.now+claimUS
		return
	}
	most := s.set.Pool().Policy.MaxLease.Microseconds()
	if l.Params.MaxUS > 0 {
		most = min(most, l.Params.MaxUS)
	}
	l.MaxUS = sum(s.now, most)
	l.ExpiresUS = min(sum(s.now, l.TTLUS), l.MaxUS)
}
