package allocatortest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/stint-go/stint/allocator"
)

// Model is one pool that is slow and obvious, to compare a real one with. It keeps leases, tickets and slots as plain lists
// in the order in which they came, and counts anew whenever somebody asks: there is no counter or index that could be wrong.
//
// Each command takes the store's clock and the process that calls, and answers as the Pool's method of the same name, without the name
// of the operation in errors. Ids of leases and fingerprints are the real pool's affair: evidence is a text here. Input that is refused by
// its form alone is outside the model. Not safe for concurrent use.
type Model struct {
	modelRows

	// Of the running step.
	now   int64
	clock int64
	who   *ModelProcess
	swept bool
	rest  int // rows that the step may still sweep
	Woken []ModelWoken
	Gone  []ModelGone
}

// modelRows is all that is stored.
type modelRows struct {
	Created  bool
	Version  int64
	Capacity int
	Status   allocator.PoolStatus
	DrainAt  int64
	Policy   allocator.Policy
	Groups   []allocator.Group // listed
	Epoch    uint64            // the last one
	Ticket   int64             // the last one
	Seen     int64
	Jump     int64
	Admin    modelAdmin

	Slots   []modelSlot // by index
	Leases  []modelLease
	Tickets []modelTicket
}

// ModelProcess is one incarnation of a process as the rules see it.
type ModelProcess struct {
	Holder    allocator.Holder
	HostGiven bool
	System    func(pid int64) allocator.Process
	Waits     func(attempt string) bool      // here
	Same      func(r allocator.Request) bool // that waits here asks for the same

	asked uint64 // epoch up to which owners were asked, if the last pass did not come to the end
}

// ModelWoken is a ticket of this process that got its lease; ModelGone one of any process that ended without.
type (
	ModelWoken struct {
		Attempt  string
		Epoch    uint64
		Existing bool // by a call that did not wait
	}
	ModelGone struct {
		Attempt string
		Seq     int64
		Holder  allocator.Incarnation
		Cause   error
	}
)

// superseded tells that a slot of the lease was given to a later one.
func (m *Model) superseded(l *modelLease) bool {
	return slices.ContainsFunc(l.Slots, func(i int) bool { return m.Slots[i].Epoch > l.Epoch })
}

type modelAdmin struct {
	ID, Content string
	Answer      allocator.PoolState
}

type modelSlot struct {
	Attrs map[string]string
	Epoch uint64
	Cool  int64 // 0: it does not cool
}

type modelParams struct {
	Group    []string
	Units    int
	TTL, Max int64 // 0: the pool's
	Owner    allocator.Owner
	Labels   map[string]string
}

type modelLease struct {
	Epoch                        uint64
	Slots                        []int
	Status                       allocator.LeaseStatus
	Attempt                      string
	Params                       modelParams
	Holder                       allocator.Holder
	Acquired, TTL, Expires, Most int64
	Seq                          int64
	Renewed                      ModelRenewal // the answer to Seq
	End                          allocator.End
	Evidence                     string // of the end
}

type modelTicket struct {
	Seq      int64
	Attempt  string
	Params   modelParams
	Holder   allocator.Holder
	Deadline int64
}

// ModelRenewal is the answer to a Renew.
type ModelRenewal struct {
	Expires, Left int64
	Lapsed        bool
}

const (
	modelOffer    = 10_000_000
	modelQueued   = 30_000_000
	modelRefresh  = 20_000_000
	modelSweepMax = 64
)

// NewModel returns the model of a pool that is not created.
func NewModel() *Model { return &Model{} }

func newModelParams(r allocator.Request) modelParams {
	return modelParams{
		Group: slices.Clone(r.Group), Units: r.Units, TTL: r.TTL.Microseconds(), Max: r.MaxLease.Microseconds(), Owner: r.Owner, Labels: maps.Clone(r.Labels),
	}
}

// differs names what two requests of one attempt disagree about (R2a).
func (p modelParams) differs(q modelParams) (fields []string) {
	for _, f := range []struct {
		name string
		same bool
	}{
		{"Group", slices.Equal(p.Group, q.Group)},
		{"Units", p.Units == q.Units},
		{"TTL", p.TTL == q.TTL},
		{"MaxLease", p.Max == q.Max},
		{"Owner", p.Owner == q.Owner},
		{"Labels", maps.Equal(p.Labels, q.Labels)},
	} {
		if !f.same {
			fields = append(fields, f.name)
		}
	}
	return fields
}

// The state, counted anew.

func (l *modelLease) held() bool { return l.Status != allocator.LeaseEnded }
func (l *modelLease) live() bool { return l.Status == allocator.LeaseLive }

// on returns the live or offered lease of a slot, or nil.
func (m *Model) on(slot int) *modelLease {
	return m.lease(func(l *modelLease) bool { return l.held() && slices.Contains(l.Slots, slot) })
}

func (m *Model) lease(is func(*modelLease) bool) *modelLease {
	for i := range m.Leases {
		if is(&m.Leases[i]) {
			return &m.Leases[i]
		}
	}
	return nil
}

func (m *Model) byEpoch(epoch uint64) *modelLease {
	return m.lease(func(l *modelLease) bool { return l.Epoch == epoch })
}

func (m *Model) ticket(attempt string) *modelTicket {
	for i := range m.Tickets {
		if m.Tickets[i].Attempt == attempt {
			return &m.Tickets[i]
		}
	}
	return nil
}

func (m *Model) status(slot int) allocator.SlotStatus {
	switch {
	case m.on(slot) != nil:
		return allocator.SlotLeased
	case m.Slots[slot].Cool > 0:
		return allocator.SlotCooling
	case slot >= m.Capacity:
		return allocator.SlotRetired
	}
	return allocator.SlotFree
}

// in counts and lists the slots that have a status.
func (m *Model) in(s allocator.SlotStatus) (list []int) {
	for i := range m.Slots {
		if m.status(i) == s {
			list = append(list, i)
		}
	}
	return list
}

func (m *Model) used() int { return len(m.in(allocator.SlotLeased)) + len(m.in(allocator.SlotCooling)) }

func (m *Model) groupUsed(group []string) (n int) {
	for _, l := range m.Leases {
		if l.held() && slices.Equal(l.Params.Group, group) {
			n += len(l.Slots)
		}
	}
	return n
}

// group returns what is said of a group, and whether it is listed.
func (m *Model) group(key []string) (allocator.Group, bool) {
	for _, g := range m.Groups {
		if slices.Equal(g.Key, key) {
			return g, true
		}
	}
	return allocator.Group{Key: key, Weight: 1}, false
}

// queue lists the tickets of a group.
func (m *Model) queue(group []string) (list []modelTicket) {
	for _, t := range m.Tickets {
		if slices.Equal(t.Params.Group, group) {
			list = append(list, t)
		}
	}
	return list
}

// State returns the pool, without its Rev.
func (m *Model) State() allocator.PoolState {
	s := allocator.PoolState{
		Name: modelPool, Version: m.Version, Capacity: m.Capacity, Status: m.Status, DrainDeadline: modelTime(m.DrainAt), Policy: m.Policy,
		Used: m.used(), Cooling: len(m.in(allocator.SlotCooling)), Waiting: len(m.Tickets), Excess: max(0, m.used()-m.Capacity),
	}
	for _, l := range m.Leases {
		if l.Status == allocator.LeaseOffered {
			s.Offered++
		}
	}
	return s
}

const modelPool = "worktrees"

func modelTime(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// show is a lease without what the model does not know: its id, and the fingerprint of its end.
func (l *modelLease) show() allocator.LeaseState {
	return allocator.LeaseState{
		Pool: modelPool, Epoch: l.Epoch, Slots: slices.Clone(l.Slots), Status: l.Status, Attempt: l.Attempt, Group: l.Params.Group, Owner: l.Params.Owner,
		Labels: l.Params.Labels, Holder: l.Holder, AcquiredAt: modelTime(l.Acquired), TTL: time.Duration(l.TTL) * time.Microsecond,
		ExpiresAt: modelTime(l.Expires), MaxUntil: modelTime(l.Most), RenewSeq: l.Seq, End: l.End,
	}
}

// evidence is what the fingerprint of a lease stands for (§2).
func (l *modelLease) evidence() string {
	return fmt.Sprintf("lease %v %v %d %s %+v %+v %d %d %d %d %d", l.Slots, l.Status, l.Epoch, l.Attempt, l.Params, l.Holder, l.Acquired, l.TTL, l.Expires, l.Most, l.Seq)
}

// identity is what its identity fingerprint stands for.
func (l *modelLease) identity() string {
	return fmt.Sprintf("identity %v %d %s %+v %+v %d %d %d", l.Slots, l.Epoch, l.Attempt, l.Params, l.Holder, l.Acquired, l.TTL, l.Most)
}

// ModelRef names a lease. Identity is "" within a process.
type ModelRef struct {
	Epoch    uint64
	Identity string
}

// named returns the lease of a Ref, or nil.
func (m *Model) named(r ModelRef) *modelLease {
	l := m.byEpoch(r.Epoch)
	if l != nil && r.Identity != "" && r.Identity != l.identity() {
		return nil
	}
	return l
}

// Evidence is what a fingerprint of the slot stands for now.
func (m *Model) Evidence(slot int) string {
	if l := m.on(slot); l != nil {
		return l.evidence()
	}
	return fmt.Sprintf("slot %d %v %d %d", slot, m.status(slot), m.Slots[slot].Epoch, m.Slots[slot].Cool)
}

// Time.

// guarded tells that nothing is judged by time, because the clock has jumped (R14).
func (m *Model) guarded() bool { return m.now <= m.Jump }

// ceiling is when a lease is as old as it may get: the smaller of what was stored and what the policy says (R7b).
func (m *Model) ceiling(l *modelLease) int64 {
	if l.Status == allocator.LeaseOffered {
		return l.Most
	}
	return min(l.Most, l.Acquired+m.Policy.MaxLease.Microseconds())
}

func (m *Model) lapsed(l *modelLease) bool { return l.live() && m.now > min(l.Expires, m.ceiling(l)) }

// over is the reason for which time ends a lease now, or 0 (R10a).
func (m *Model) over(l *modelLease) allocator.Reason {
	switch {
	case !m.lapsed(l) || m.guarded():
		return 0
	case m.now > m.ceiling(l):
		return allocator.ReasonMaxLease
	}
	return allocator.ReasonExpired
}

// Steps.

// step runs commands on the pool. What they change is dated by seen; where they change nothing, nothing is.
func (m *Model) step(clock int64, who *ModelProcess, commands ...func() error) (errs []error) {
	m.Woken, m.Gone = nil, nil
	before := m.clone()
	m.enter(clock, who)
	if m.Created {
		m.Jump = m.guard()
		m.timely()
		m.handOut()
	}
	for _, c := range commands {
		errs = append(errs, c())
		m.settle()
	}
	if !reflect.DeepEqual(before, m.modelRows) {
		m.Seen = m.now
	}
	return errs
}

func (m *Model) enter(clock int64, who *ModelProcess) {
	m.clock, m.now, m.who, m.swept, m.rest = clock, max(clock, m.Seen), who, false, modelSweepMax
}

// look runs f with the time of a step that writes nothing.
func (m *Model) look(clock int64, who *ModelProcess, f func()) {
	before := m.clone()
	m.enter(clock, who)
	m.Jump = m.guard()
	f()
	m.modelRows = before
}

// guard is until when time judges nothing.
func (m *Model) guard() int64 {
	if m.lease((*modelLease).held) != nil && m.clock-m.Seen > m.Policy.JumpGuard.Microseconds() {
		return max(m.Jump, m.now+m.longest())
	}
	return m.Jump
}

// longest is how long the most patient of the live leases may be silent, at least the policy's TTL.
func (m *Model) longest() int64 {
	d := m.Policy.TTL.Microseconds()
	for i := range m.Leases {
		if l := &m.Leases[i]; l.live() {
			d = max(d, min(l.TTL, m.Policy.MaxLease.Microseconds()))
		}
	}
	return d
}

func (r *modelRows) clone() modelRows {
	c := *r
	c.Slots, c.Leases, c.Tickets, c.Groups = slices.Clone(r.Slots), slices.Clone(r.Leases), slices.Clone(r.Tickets), slices.Clone(r.Groups)
	return c
}

// timely ends what its own time ends (b).
func (m *Model) timely() {
	for i := range m.Leases {
		if l := &m.Leases[i]; l.Status == allocator.LeaseOffered && m.now > l.Expires {
			m.end(l, allocator.ReasonUnclaimed, "", "")
		}
	}
	m.drop(allocator.ErrTicketLost, func(t modelTicket) bool { return m.now > t.Deadline })
	for i := range m.Slots {
		if s := &m.Slots[i]; s.Cool > 0 && m.now > s.Cool {
			s.Cool = 0
		}
	}
	m.settle()
}

// settle is what follows from every change: a pool that drains and has nothing left is drained (R19).
func (m *Model) settle() {
	if m.Status == allocator.PoolDraining && m.used() == 0 {
		m.Status = allocator.PoolDrained
	}
}

func (m *Model) drop(cause error, is func(modelTicket) bool) {
	m.Tickets = slices.DeleteFunc(slices.Clone(m.Tickets), func(t modelTicket) bool {
		if is(t) {
			m.Gone = append(m.Gone, ModelGone{t.Attempt, t.Seq, t.Holder.Incarnation, cause})
			return true
		}
		return false
	})
}

// end ends a lease. Its slots cool, unless the holder asked for the end, or never came for what it was offered (R16).
func (m *Model) end(l *modelLease, why allocator.Reason, by, evidence string) {
	l.Status = allocator.LeaseEnded
	l.End = allocator.End{Reason: why, At: modelTime(m.now), By: by}
	l.Evidence = evidence
	if why == allocator.ReasonReleased || why == allocator.ReasonUnclaimed || m.Policy.Fenced || m.Policy.Cooling == 0 {
		return
	}
	for _, i := range l.Slots {
		m.Slots[i].Cool = m.now + m.Policy.Cooling.Microseconds()
	}
}

// fits is R4, but for tickets that are before.
func (m *Model) fits(p modelParams) bool {
	g, _ := m.group(p.Group)
	return m.used()+p.Units <= m.Capacity && p.Units <= len(m.in(allocator.SlotFree)) && (g.Max == nil || m.groupUsed(p.Group)+p.Units <= *g.Max)
}

// grant makes a lease of the free slots with the lowest indices (R1).
func (m *Model) grant(attempt string, p modelParams, h allocator.Holder) *modelLease {
	m.Epoch++
	l := modelLease{Epoch: m.Epoch, Slots: m.in(allocator.SlotFree)[:p.Units], Status: allocator.LeaseLive, Attempt: attempt, Params: p, Holder: h}
	for _, i := range l.Slots {
		m.Slots[i].Epoch = m.Epoch
	}
	l.TTL = cmp.Or(p.TTL, m.Policy.TTL.Microseconds())
	m.begin(&l)
	m.Leases = append(m.Leases, l)
	return &m.Leases[len(m.Leases)-1]
}

// begin dates a lease that begins to live now.
func (m *Model) begin(l *modelLease) {
	most := m.Policy.MaxLease.Microseconds()
	l.Status, l.Acquired = allocator.LeaseLive, m.now
	l.Most = m.now + min(most, cmp.Or(l.Params.Max, most))
	l.Expires = min(m.now+l.TTL, l.Most)
}

// offer dates one that is offered.
func (m *Model) offer(l *modelLease) {
	l.Status, l.Acquired, l.Expires, l.Most = allocator.LeaseOffered, m.now, m.now+modelOffer, m.now+modelOffer
}

// handOut gives what is free to tickets until no head fits (R5, R6).
func (m *Model) handOut() {
	for m.Status == allocator.PoolOpen {
		t, ok := m.next()
		if !ok {
			return
		}
		m.Tickets = slices.DeleteFunc(slices.Clone(m.Tickets), func(o modelTicket) bool { return o.Seq == t.Seq })
		l := m.grant(t.Attempt, t.Params, t.Holder)
		if t.Holder.Incarnation == m.who.Holder.Incarnation && m.who.Waits(t.Attempt) {
			m.Woken = append(m.Woken, ModelWoken{Attempt: t.Attempt, Epoch: l.Epoch})
			continue
		}
		m.offer(l)
	}
}

// next is the head that comes first of those that fit.
func (m *Model) next() (modelTicket, bool) {
	var heads []modelTicket
	for _, t := range m.Tickets {
		if m.queue(t.Params.Group)[0].Seq == t.Seq && m.fits(t.Params) {
			heads = append(heads, t)
		}
	}
	if len(heads) == 0 {
		return modelTicket{}, false
	}
	return slices.MinFunc(heads, m.before), true
}

// before: groups below their minimum, then the lowest use for the weight, then the oldest.
func (m *Model) before(a, b modelTicket) int {
	below := func(t modelTicket) int {
		if g, _ := m.group(t.Params.Group); m.groupUsed(t.Params.Group) < g.Min {
			return 0
		}
		return 1
	}
	share := func(t, other modelTicket) int64 { // crosswise
		g, _ := m.group(other.Params.Group)
		return int64(m.groupUsed(t.Params.Group)+t.Params.Units) * g.Weight
	}
	return cmp.Or(cmp.Compare(below(a), below(b)), cmp.Compare(share(a, b), share(b, a)), cmp.Compare(a.Seq, b.Seq))
}

// sweep ends lapsed leases, those first that are over first, as many as the step may, and at most limit.
func (m *Model) sweep(limit int) (ended int) {
	var due []*modelLease
	for i := range m.Leases {
		if m.over(&m.Leases[i]) != 0 {
			due = append(due, &m.Leases[i])
		}
	}
	slices.SortStableFunc(due, func(a, b *modelLease) int {
		return cmp.Compare(min(a.Expires, m.ceiling(a)), min(b.Expires, m.ceiling(b)))
	})
	n := min(len(due), limit, m.rest)
	for _, l := range due[:n] {
		m.end(l, m.over(l), "", l.evidence())
	}
	m.rest -= n
	m.settle()
	m.handOut()
	return n
}

// sweepFirst is the sweep before the first command of a step that looks for room (c).
func (m *Model) sweepFirst() {
	if !m.swept {
		m.swept = true
		m.sweep(modelSweepMax)
	}
}

// judge is R11.
func (w *ModelProcess) judge(l *modelLease) allocator.Verdict {
	h, me := l.Holder, w.Holder
	switch {
	case l.Params.Owner != allocator.OwnerSelf, h.Boot == "", me.Boot == "":
		return allocator.VerdictUnknown
	case h.Boot != me.Boot:
		if w.HostGiven && h.Host == me.Host {
			return allocator.VerdictDead
		}
		return allocator.VerdictUnknown
	case h.Namespace == "", h.Namespace != me.Namespace, h.PID <= 0:
		return allocator.VerdictUnknown
	}
	switch p := w.System(h.PID); {
	case p.Presence == allocator.Absent:
		return allocator.VerdictDead
	case p.Presence != allocator.Present, p.Start == 0, h.Start == 0:
		return allocator.VerdictUnknown
	case p.Start != h.Start:
		return allocator.VerdictDead
	}
	return allocator.VerdictLive
}
