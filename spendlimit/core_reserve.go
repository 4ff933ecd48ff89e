package spendlimit

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
)

// ask is a wish for room: of a reserve, a grow or a roll.
type ask struct {
	want   Amount // MaxAmount: whatever is free
	need   Amount // the smallest useful grant
	lines  []line // the asker's own
	parent *HoldRow
	inside Amount // room that the parent (for a roll: nobody) can give; used with parent only
	group  string
	slots  int
}

// line is a period that the asker would count against. credit is room on it that the asker holds already and moves.
type line struct {
	period *PeriodRow
	credit Amount
}

// verdict is the answer to an ask.
type verdict struct {
	grant   Amount
	binding *Binding // nil: nothing cut it
}

func (v verdict) cut() (b Binding) {
	if v.binding != nil {
		b = *v.binding
	}
	return b
}

// currentLines returns the current period of every limit of the accounts (R11). The slice is valid until the next call.
func (s *step) currentLines(accounts []*AccountRow) ([]line, error) {
	lines := s.lines[:0]
	for _, a := range accounts {
		n := len(lines)
		for _, l := range a.Limits {
			if l.Removed {
				continue
			}
			p, err := s.period(l, s.now)
			if err != nil {
				return nil, err
			}
			lines = append(lines, line{period: p})
		}
		if len(lines) == n && s.cfg.NoLimit == Refuse {
			return nil, &DeniedError{Reason: ReasonNoLimit, Account: a.Name, Hopeless: true}
		}
	}
	s.lines = lines
	return lines, nil
}

// decide judges an ask. All limits compose: the grant is the minimum over them, the parent and the want (R11 to R19).
func (s *step) decide(a *ask) (verdict, error) {
	if p := s.frozen(a); p != nil {
		return verdict{}, s.unpriced(a, p)
	}
	if err := s.groupFull(a); err != nil {
		return verdict{}, err
	}
	room, cut := a.want, (*Binding)(nil)
	if a.parent != nil {
		if own := a.parentShare(s); own < room {
			room, cut = own, &Binding{Parent: a.parent.Key}
		}
	}
	least, tightest := Amount(math.MaxInt64), -1
	for i, l := range a.lines {
		if l.period.Mode == Soft {
			continue
		}
		free := s.share(a, l)
		if tightest < 0 || free < least || free == least && before(l.period, a.lines[tightest].period) {
			least, tightest = free, i
		}
	}
	if tightest >= 0 && least < room {
		p := a.lines[tightest].period
		room, cut = least, &Binding{Account: p.Limit.Account.Name, Limit: p.Limit.Limit.Name}
	}
	if room < a.need {
		return verdict{}, s.denied(a, cut)
	}
	if a.want == MaxAmount && a.need < MaxAmount && tightest < 0 && a.parent == nil {
		return verdict{}, invalid("Rest", "no hard limit and no parent bounds it")
	}
	return verdict{grant: room, binding: cut}, nil
}

// before orders limits with the same room: the later end binds, then account and name in byte order (R64).
func before(p, q *PeriodRow) bool {
	return cmp.Or(
		cmp.Compare(q.End, p.End),
		strings.Compare(p.Limit.Account.Name, q.Limit.Account.Name),
		strings.Compare(p.Limit.Limit.Name, q.Limit.Limit.Name),
	) < 0
}

// frozen returns a period with unpriced cost that refuses new work: one of the asker's own, or one of its
// ancestors' (R53).
func (s *step) frozen(a *ask) *PeriodRow {
	for _, l := range a.lines {
		if l.period.freezes() {
			return l.period
		}
	}
	for z := a.parent; z != nil; z = z.Parent {
		for i := range z.parts() {
			for _, p := range z.part(i).Lines {
				if p.freezes() {
					return p
				}
			}
		}
	}
	return nil
}

func (p *PeriodRow) freezes() bool {
	l := p.Limit
	return p.Unpriced > 0 && !l.Removed && p.Mode == Hard && l.Limit.OnUnpriced == Refuse
}

// share is the room of one line: all that is available, or the even share of a group's member (R18). The credit
// counts as available.
func (s *step) share(a *ask, l line) Amount {
	free := s.available(l.period)
	if sum, err := free.Add(l.credit); err == nil {
		free = sum
	}
	if a.group == "" {
		return free
	}
	return floorDiv(free, int64(a.slots-s.siblings(a.group, l.period)))
}

// parentShare is the room that the parent gives.
func (a *ask) parentShare(s *step) Amount {
	if a.group == "" {
		return a.inside
	}
	return floorDiv(a.inside, int64(a.slots-s.siblingsIn(a.group, a.parent)))
}

// floorDiv rounds down, below zero too.
func floorDiv(a Amount, n int64) Amount {
	q := a / Amount(n)
	if a%Amount(n) < 0 {
		q--
	}
	return q
}

// siblings counts the live members of a group with a line on p: members of another period are not siblings (R22).
func (s *step) siblings(group string, p *PeriodRow) int {
	n := 0
	for h := range s.members(group, p.Limit.Account) {
		if h.hasLine(p) {
			n++
		}
	}
	return n
}

// siblingsIn counts the live children of a parent in a group.
func (s *step) siblingsIn(group string, parent *HoldRow) int {
	n := 0
	for h := range s.members(group, parent.root().Accounts[0]) {
		if h.Parent == parent {
			n++
		}
	}
	return n
}

// members yields the live members of a group on an account.
func (s *step) members(group string, a *AccountRow) func(func(*HoldRow) bool) {
	return func(yield func(*HoldRow) bool) {
		for _, h := range s.w.members[memberKey{a.Name, group}] {
			if h.State.Live() && !yield(h) {
				return
			}
		}
		for _, h := range s.w.changes.NewHolds {
			if h.Group == group && h.State.Live() && h.on(a) && !yield(h) {
				return
			}
		}
	}
}

// on tells whether a pays for h, itself or through an ancestor.
func (h *HoldRow) on(a *AccountRow) bool {
	for z := h; z != nil; z = z.Parent {
		if slices.Contains(z.Accounts, a) {
			return true
		}
	}
	return false
}

func (h *HoldRow) hasLine(p *PeriodRow) bool { return h.lineBefore(h.parts(), p) }

func (h *HoldRow) root() *HoldRow {
	for h.Parent != nil {
		h = h.Parent
	}
	return h
}

// sameSlots refuses a member that says another size than a live one (R23).
func (s *step) sameSlots(a *ask, accounts []*AccountRow) error {
	check := func(h *HoldRow) error {
		if h.Slots != a.slots {
			return ErrKeyReused
		}
		return nil
	}
	for _, acc := range accounts {
		for h := range s.members(a.group, acc) {
			if slices.Contains(h.Accounts, acc) {
				if err := check(h); err != nil {
					return err
				}
			}
		}
	}
	if a.parent != nil {
		for h := range s.members(a.group, a.parent.root().Accounts[0]) {
			if h.Parent == a.parent {
				if err := check(h); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// groupFull refuses a member beyond the group's slots (R19).
func (s *step) groupFull(a *ask) error {
	if a.group == "" {
		return nil
	}
	for _, l := range a.lines {
		if s.siblings(a.group, l.period) >= a.slots {
			e := s.refusal(a, ReasonGroupFull)
			e.bind(s.balance(l.period))
			e.WaitHolds = true
			return e
		}
	}
	if a.parent != nil && s.siblingsIn(a.group, a.parent) >= a.slots {
		e := s.refusal(a, ReasonGroupFull)
		e.Parent, e.WaitHolds = a.parent.Key, true
		return e
	}
	return nil
}

func (s *step) refusal(a *ask, r Reason) *DeniedError {
	e := &DeniedError{Reason: r, Wanted: a.want, Min: max(a.need, 0)}
	e.Binding.Unit = s.cfg.Unit
	if a.want == MaxAmount {
		e.Wanted = 0
	}
	return e
}

func (e *DeniedError) bind(b Balance) {
	e.Binding = b
	e.ResetAt = b.End
}

func (s *step) unpriced(a *ask, p *PeriodRow) error {
	e := s.refusal(a, ReasonUnpriced)
	e.bind(s.balance(p))
	e.Exhausted = []Balance{e.Binding}
	e.WaitReset = p.End != maxInstant
	return e
}

// denied says why there was too little room, and what waiting can help (R63 to R65).
func (s *step) denied(a *ask, cut *Binding) error {
	e := s.refusal(a, ReasonSpent)
	var binding *PeriodRow
	var least Amount
	for _, l := range a.lines {
		p := l.period
		if p.Mode == Soft {
			continue
		}
		free := s.share(a, l)
		if free >= a.need {
			continue
		}
		b := s.balance(p)
		e.Exhausted = append(e.Exhausted, b)
		if binding == nil || free < least || free == least && before(p, binding) {
			binding, least = p, free
			e.bind(b)
		}
		if holds, reset := s.helps(p, a.need); !holds && !reset {
			e.Hopeless = true
		}
	}
	switch {
	case cut != nil && cut.Parent != "":
		e.Reason, e.Parent = ReasonParent, cut.Parent
		e.WaitHolds = a.parent.State.Live() && a.parent.Children > 0 && a.need <= a.parent.Own+a.parent.below()
		e.Hopeless = e.Hopeless || !e.WaitHolds
		if binding == nil {
			e.Binding = Balance{Unit: s.cfg.Unit}
		}
	default:
		e.WaitHolds, e.WaitReset = s.helps(binding, a.need)
		if e.WaitHolds {
			e.Reason = ReasonHeld
		}
	}
	if e.Hopeless {
		e.WaitHolds, e.WaitReset = false, false
	}
	return e
}

// below is the room of h's live descendants; where h has no parts that tell, the most that it can be.
func (h *HoldRow) below() Amount {
	if h.parts() == 0 {
		return h.Carved - h.Received
	}
	sum := -h.Own
	for i := range h.parts() {
		sum += h.part(i).Left
	}
	return sum
}

// helps tells whether the end of holds, or the next period, can make room for need on p (R17, R65).
func (s *step) helps(p *PeriodRow, need Amount) (holds, reset bool) {
	free := p.Lim - p.Spent // but for what is held
	holds = need <= free && s.available(p) < free
	if p.End == maxInstant {
		return holds, false
	}
	l := &p.Limit.Limit
	next := l.Amount + min(l.CarryUnused, max(0, p.Lim-p.Spent))
	if micros(l.Raise.Until) > p.End {
		next += l.Raise.By
	}
	return holds, need <= next
}

// reserve is the command behind Reserve and Check.
type reserve struct {
	call
	req    Request // validated; Accounts sorted
	labels []Label // by key
	ttl    int64   // microseconds
	dry    bool    // Check
	queued error   // somebody else's turn: only a retry of a granted key goes on
	chunk  *chunk  // of a lease: how much is wanted
	sorted []string

	hold  *Hold // the answer
	offer Offer
}

func (c *reserve) need(n *Need) {
	n.Accounts = append(n.Accounts, c.req.Accounts...)
	n.Holds = append(n.Holds, c.req.Key)
	if c.req.Parent != "" {
		n.Holds = append(n.Holds, c.req.Parent)
	}
	if c.req.Split.Group != "" {
		n.Groups = append(n.Groups, c.req.Split.Group)
	}
}

func (c *reserve) apply(s *step) (bool, error) {
	c.hold, c.offer = nil, Offer{}
	accounts, err := s.ready(c.req.Accounts)
	if err != nil {
		return false, err
	}
	parent, err := c.parent(s)
	h := s.w.holds.get(c.req.Key)
	if err != nil && (h == nil || !errors.Is(err, ErrNotFound)) { // a key that was used before answers for itself
		return false, err
	}
	accounts = withoutInherited(accounts, parent)
	if h != nil {
		return false, c.again(s, h, accounts)
	}
	if c.queued != nil {
		return false, c.queued
	}
	if err := s.stop.refusal(); err != nil {
		return false, err
	}
	if parent != nil && !parent.State.Live() {
		return false, ended(parent)
	}
	if parent != nil && parent.Depth >= maxDepth {
		return false, invalid("Parent", "depth %d, at most %d", parent.Depth+1, maxDepth)
	}
	lines, err := s.currentLines(accounts)
	if err != nil {
		return false, err
	}
	v, err := c.judge(s, parent, accounts, lines)
	if err != nil {
		return false, err
	}
	if c.dry {
		c.offer = Offer{Amount: v.grant, Binding: v.cut(), ExpiresAt: timeOf(s.now + c.ttl)}
		return false, nil
	}
	return true, c.grant(s, parent, accounts, lines, v)
}

// parent finds the parent, whatever its state, after its due holds have lapsed.
func (c *reserve) parent(s *step) (*HoldRow, error) {
	if c.req.Parent == "" {
		return nil, nil
	}
	return s.readyHold(c.req.Parent)
}

// withoutInherited leaves out the accounts that an ancestor already has (R26).
func withoutInherited(accounts []*AccountRow, parent *HoldRow) []*AccountRow {
	if parent == nil {
		return accounts
	}
	return slices.DeleteFunc(accounts, parent.on)
}

// again answers a key that was used before.
func (c *reserve) again(s *step, h *HoldRow, accounts []*AccountRow) error {
	if err := s.lapseDue(s.accountsOf(h)); err != nil {
		return err
	}
	r := &c.req
	same := h.parentKey() == r.Parent && slices.Equal(h.Accounts, accounts) && h.Amount == r.Amount && h.Min == r.Min &&
		h.Rest == r.Rest && h.Free == r.Free && h.Group == r.Split.Group && h.Slots == r.Split.Slots &&
		h.TTL == c.ttl && h.Price == r.Price && slices.Equal(h.Labels, c.labels)
	switch {
	case !same:
		return ErrKeyReused
	case !h.State.Live():
		return ended(h)
	}
	if c.dry {
		c.offer = Offer{Amount: h.Granted, Binding: h.Binding, ExpiresAt: timeOf(h.ExpiresUS)}
		return nil
	}
	c.hold = h.view(&s.handles.take(1)[0])
	c.hold.Replayed = true
	return nil
}

func (h *HoldRow) parentKey() string {
	if h.Parent == nil {
		return ""
	}
	return h.Parent.Key
}

// ended is the error of a call that needs a live hold.
func ended(h *HoldRow) error {
	return &EndedError{Hold: h.Key, State: h.State, Receipt: h.Receipt.apart()}
}

// judge turns the request into an ask (R12 to R15, R18).
func (c *reserve) judge(s *step, parent *HoldRow, accounts []*AccountRow, lines []line) (verdict, error) {
	r := &c.req
	a := &ask{want: r.Amount, need: r.Amount, lines: lines, parent: parent, group: r.Split.Group, slots: r.Split.Slots}
	if parent != nil {
		a.inside = parent.Own
	}
	switch {
	case c.chunk != nil:
		size, _, _ := s.offer(*c.chunk, s.cut(lines))
		a.want, a.need, a.group = max(size, 1), 1, "" // leases don't share evenly
	case r.Free:
		a.want, a.need = 0, math.MinInt64 // granted on a used-up limit, refused on a frozen one
	case r.Rest || r.Amount == 0:
		a.want, a.need = MaxAmount, max(r.Min, 1)
	case r.Min > 0 || a.group != "":
		a.need = max(r.Min, 1)
	}
	if a.group != "" {
		if err := s.sameSlots(a, accounts); err != nil {
			return verdict{}, err
		}
	}
	v, err := s.decide(a)
	if r.Free && err == nil {
		v = verdict{}
	}
	return v, err
}

// grant writes the hold.
func (c *reserve) grant(s *step, parent *HoldRow, accounts []*AccountRow, lines []line, v verdict) error {
	r := &c.req
	h := &s.w.holdRows.take(1)[0] // filled in place: a literal would be written twice
	h.Key, h.Parent, h.Labels, h.Price = r.Key, parent, c.labels, r.Price
	h.Amount, h.Min, h.Rest, h.Free = r.Amount, r.Min, r.Rest, r.Free
	h.Group, h.Slots, h.TTL = r.Split.Group, r.Split.Slots, c.ttl
	h.State, h.Granted, h.Own, h.Depth = Open, v.grant, v.grant, 1
	if v.binding != nil {
		h.Binding = *v.binding
	}
	h.BornUS, h.ExpiresUS, h.mark = s.now, s.now+c.ttl, s.w.mark
	s.w.holds.set(h.Key, h)
	s.w.changes.NewHolds = append(s.w.changes.NewHolds, h)
	if parent != nil {
		s.w.editHold(parent)
		h.Depth = parent.Depth + 1
		parent.Own -= v.grant
		parent.Carved = s.add(parent.Carved, v.grant)
		parent.Children++
	}
	if len(accounts) > 0 {
		h.Accounts = s.w.owners.take(len(accounts))
		copy(h.Accounts, accounts)
		h.Part.At, h.Part.Left, h.Part.Lines = s.now, v.grant, s.cut(lines)
		s.postPart(h, &h.Part, change{held: v.grant})
	}
	b, err := s.book(&booking{kind: EntryReserve, ref: h.Key, at: s.now, accounts: s.accountsOf(h), labels: c.labels})
	if err != nil {
		return err
	}
	h.Seq = b.seq
	c.hold = h.view(&s.handles.take(1)[0])
	c.hold.Crossed = s.crossed
	return nil
}

// cut copies the periods of lines into a slice that lives with a row.
func (s *step) cut(lines []line) []*PeriodRow {
	out := s.w.pointers.take(len(lines))
	for i, l := range lines {
		out[i] = l.period
	}
	return out
}

// view fills v with the public state of h, without its labels, which the caller of a reserve has already.
func (h *HoldRow) view(v *Hold) *Hold {
	v.Key, v.State, v.Granted, v.Own, v.Recorded, v.Assumed = h.Key, h.State, h.Granted, h.Own, h.Recorded, h.Assumed
	v.Group, v.Slots, v.Price, v.Revision = h.Group, h.Slots, h.Price, h.Seq
	v.Binding = h.Binding
	v.CreatedAt = timeOf(h.BornUS)
	v.ExpiresAt = timeOf(h.ExpiresUS)
	if h.EndedUS != 0 {
		v.EndedAt = timeOf(h.EndedUS)
	}
	if h.Parent != nil {
		v.Parent = h.Parent.Key
	}
	for i, a := range h.Accounts {
		if i == 0 {
			v.Accounts = v.account[:0]
		}
		v.Accounts = append(v.Accounts, a.Name)
	}
	return v
}

// full adds what view leaves out.
func (h *HoldRow) full() *Hold {
	v := h.view(new(Hold))
	v.Labels = labelMap(h.Labels)
	return v
}

// growth is the command behind Grow (R37).
type growth struct {
	call
	Growth
	receipt Receipt
}

func (c *growth) need(n *Need) { needUsage(n, c.Hold, c.ID) }

func (c *growth) apply(s *step) (bool, error) {
	c.receipt = Receipt{}
	h, err := s.readyHold(c.Hold)
	if err != nil {
		return false, err
	}
	content := digest(EntryGrow, func(e *encoder) { e.Int(int64(c.By)).Int(int64(c.Min)) })
	if u, err := s.replay(c.Hold, c.ID, EntryGrow, content); u != nil || err != nil {
		c.receipt = replayed(u)
		return false, err
	}
	if !h.State.Live() {
		return false, ended(h)
	}
	if err := s.stop.refusal(); err != nil {
		return false, err
	}
	need := c.By
	if c.Min > 0 {
		need = c.Min
	}
	err = c.grow(s, h, c.By, need, content)
	return err == nil, err
}

// grow gives a live hold more room, at least need.
func (c *growth) grow(s *step, h *HoldRow, want, need Amount, content [32]byte) error {
	lines, err := s.currentLines(h.Accounts)
	if err != nil {
		return err
	}
	a := &ask{want: want, need: need, lines: lines, parent: h.Parent}
	if h.Parent != nil {
		a.inside = h.Parent.Own
	}
	v, err := s.decide(a)
	if err != nil {
		return err
	}
	c.take(s, h, lines, v.grant)
	b, err := s.book(&booking{kind: EntryGrow, ref: c.ID, hold: h.Key, at: s.now, accounts: s.accountsOf(h)})
	if err != nil {
		return err
	}
	c.receipt = Receipt{Granted: v.grant, Own: h.Own, LiveChildren: h.Children, Crossed: s.crossed, Revision: b.seq}
	s.remember(c.Hold, c.ID, EntryGrow, content, c.receipt)
	return nil
}

// take moves the grant into the hold: from its parent, and onto its own lines.
func (c *growth) take(s *step, h *HoldRow, lines []line, grant Amount) {
	s.w.editHold(h)
	h.Own = s.add(h.Own, grant)
	h.Grown = s.add(h.Grown, grant)
	if h.Parent != nil {
		s.w.editHold(h.Parent)
		h.Parent.Own -= grant
		h.Parent.Carved = s.add(h.Parent.Carved, grant)
	}
	if len(h.Accounts) > 0 {
		p := s.partOn(h, lines)
		p.Left = s.add(p.Left, grant)
		s.postPart(h, p, change{held: grant})
		var left Amount
		for i := range h.parts() {
			left = s.add(left, h.part(i).Left) // all of it may come back to h.Own
		}
	}
}

// partOn returns the newest part of h if it has exactly these lines, else a new part.
func (s *step) partOn(h *HoldRow, lines []line) *Part {
	p := h.part(h.parts() - 1)
	if slices.EqualFunc(p.Lines, lines, func(have *PeriodRow, l line) bool { return have == l.period }) {
		return p
	}
	if h.Marks > 0 {
		for _, l := range lines {
			if !h.hasLine(l.period) {
				s.post(l.period.Limit.Account, l.period, 0, change{unpriced: int64(h.Marks)})
			}
		}
	}
	h.More = append(h.More, Part{At: s.now, Lines: s.cut(lines)})
	return &h.More[len(h.More)-1]
}

// shrinkage is the command behind Shrink (R38).
type shrinkage struct {
	call
	Shrinkage
	receipt Receipt
}

func (c *shrinkage) need(n *Need) { needUsage(n, c.Hold, c.ID) }

func (c *shrinkage) apply(s *step) (bool, error) {
	c.receipt = Receipt{}
	h, err := s.readyHold(c.Hold)
	if err != nil {
		return false, err
	}
	content := digest(EntryShrink, func(e *encoder) { e.Int(int64(c.By)) })
	if u, err := s.replay(c.Hold, c.ID, EntryShrink, content); u != nil || err != nil {
		c.receipt = replayed(u)
		return false, err
	}
	switch {
	case !h.State.Live():
		return false, ended(h)
	case c.By > h.Own:
		return false, invalid("By", "more than the hold's own room")
	}
	s.w.editHold(h)
	h.Own -= c.By
	h.Returned += c.By
	s.giveBack(h, c.By)
	b, err := s.book(&booking{kind: EntryShrink, ref: c.ID, hold: h.Key, at: s.now, accounts: s.accountsOf(h)})
	if err != nil {
		return false, err
	}
	c.receipt = Receipt{Returned: c.By, Own: h.Own, LiveChildren: h.Children, Crossed: s.crossed, Revision: b.seq}
	s.remember(c.Hold, c.ID, EntryShrink, content, c.receipt)
	return true, nil
}

// extension is the command behind Extend (R35, R36).
type extension struct {
	call
	Extension
	ttl     int64
	receipt Receipt
}

func (c *extension) need(n *Need) {
	if c.Roll {
		needUsage(n, c.Hold, c.ID)
		return
	}
	n.Holds = append(n.Holds, c.Hold)
}

func (c *extension) apply(s *step) (bool, error) {
	c.receipt = Receipt{}
	h, err := s.readyHold(c.Hold)
	if err != nil {
		return false, err
	}
	content := digest(EntryRoll, func(e *encoder) { e.Int(c.ttl).Int(int64(c.Min)) })
	if c.Roll {
		if u, err := s.replay(c.Hold, c.ID, EntryRoll, content); u != nil || err != nil {
			c.receipt = replayed(u)
			return false, err
		}
	}
	if !h.State.Live() {
		return false, ended(h)
	}
	expires := max(h.ExpiresUS, min(s.now+c.ttl, h.BornUS+maxLife))
	if !c.Roll && expires == h.ExpiresUS {
		c.receipt = Receipt{Own: h.Own, LiveChildren: h.Children}
		return false, nil // never shorter: nothing to change
	}
	kind, ref, of := EntryExtend, h.Key, ""
	var r Receipt
	if c.Roll {
		kind, ref, of = EntryRoll, c.ID, h.Key
		if r, err = c.roll(s, h); err != nil {
			return false, err
		}
	}
	s.w.editHold(h)
	h.ExpiresUS = expires
	b, err := s.book(&booking{kind: kind, ref: ref, hold: of, at: s.now, accounts: s.accountsOf(h)})
	if err != nil {
		return false, err
	}
	r.Own, r.LiveChildren, r.Crossed, r.Revision = h.Own, h.Children, s.crossed, b.seq
	c.receipt = r
	if c.Roll {
		s.remember(c.Hold, c.ID, EntryRoll, content, r)
	}
	return true, nil
}

// roll moves what is left of an anchor's parts into the current periods, and gives back what does not fit. The room
// of live children can't be cut.
func (c *extension) roll(s *step, h *HoldRow) (Receipt, error) {
	if len(h.Accounts) == 0 {
		return Receipt{}, invalid("Roll", "the hold has no accounts of its own; roll the one that has")
	}
	lines, err := s.currentLines(h.Accounts)
	if err != nil {
		return Receipt{}, err
	}
	var left Amount
	for i := range h.parts() {
		left += h.part(i).Left
	}
	switch {
	case c.Min > left:
		return Receipt{}, invalid("Min", "more than what is left")
	case left == 0:
		return Receipt{}, nil // all spent: nothing to move
	}
	for i := range lines {
		lines[i].credit = h.leftOn(lines[i].period)
	}
	a := &ask{want: left, need: left, lines: lines}
	if c.Min > 0 {
		a.need = max(c.Min, left-h.Own)
	}
	if p := s.frozen(&ask{parent: h.Parent}); p != nil { // decide looks at the own lines only
		return Receipt{}, s.unpriced(a, p)
	}
	v, err := s.decide(a)
	if err != nil {
		return Receipt{}, err
	}
	s.w.editHold(h)
	for i := range h.parts() {
		p := h.part(i)
		s.postPart(h, p, change{held: -p.Left})
		p.Left = 0
	}
	p := s.partOn(h, lines)
	p.Left = left
	s.postPart(h, p, change{held: left})
	lost := left - v.grant
	h.Own -= lost
	h.Returned += lost
	s.giveBack(h, lost)
	return Receipt{Granted: v.grant, Returned: lost}, nil
}

// leftOn is the room of h that a roll would free on p: that of its parts with a line on p, or with CarryHolds on any
// period of the limit.
func (h *HoldRow) leftOn(p *PeriodRow) Amount {
	var sum Amount
	for i := range h.parts() {
		part := h.part(i)
		if slices.ContainsFunc(part.Lines, func(q *PeriodRow) bool {
			return q == p || p.Limit.Limit.CarryHolds && q.Limit == p.Limit
		}) {
			sum += part.Left
		}
	}
	return sum
}

const (
	maxDepth = 8
	maxLife  = int64(30 * 24 * time.Hour / time.Microsecond)
)
