package allocator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// create makes a pool, or finds that it is there (R3).
type create struct {
	call
	name string
	spec Spec // with a Policy, and Groups by key

	state PoolState
}

func (c *create) need(n *Need) { n.All, n.Timely = true, true }

func (c *create) run(s *step) error {
	if p := s.set.Pool(); p != nil {
		have := s.spec()
		for _, raw := range s.set.raws { // what is not known differs from nothing
			if want := c.spec.Attrs[raw.Index]; raw.Table == RawSlot && want != nil {
				if have.Attrs == nil {
					have.Attrs = map[int]map[string]string{}
				}
				have.Attrs[raw.Index] = want
			}
		}
		if !sameSpec(&have, &c.spec) {
			return &ConfigError{Have: have, Want: c.spec}
		}
		c.state = p.state()
		return nil
	}
	p := &PoolRow{Name: c.name, Version: 1, Capacity: c.spec.Capacity, Status: PoolOpen, Policy: *c.spec.Policy, Slots: c.spec.Capacity, Groups: len(c.spec.Groups)}
	s.set.pool.insert("", p, nil)
	for i := range c.spec.Capacity {
		s.set.slots.insert(i, &SlotRow{Index: i, Status: SlotFree, Attrs: labelList(c.spec.Attrs[i])}, nil)
	}
	for _, g := range c.spec.Groups {
		row := listedGroup(g)
		s.set.groups.insert(row.Key, &row, nil)
	}
	c.state = p.state()
	return nil
}

func listedGroup(g Group) GroupRow {
	row := GroupRow{Key: KeyOf(g.Key...), Listed: true, Weight: g.Weight, Min: g.Min, Max: -1}
	if g.Max != nil {
		row.Max = *g.Max
	}
	return row
}

// spec is the configuration as it is now; all rows must be loaded.
func (s *step) spec() Spec {
	p := s.set.Pool()
	policy := p.Policy
	have := Spec{Capacity: p.Capacity, Policy: &policy}
	for i := range s.set.groups.list {
		if g := s.set.groups.list[i].row; g != nil && g.Listed {
			names, _ := g.Key.Names()
			group := Group{Key: names, Weight: g.Weight, Min: g.Min}
			if g.Max >= 0 {
				most := g.Max
				group.Max = &most
			}
			have.Groups = append(have.Groups, group)
		}
	}
	sortGroups(have.Groups)
	for i := range s.set.slots.list {
		if r := s.set.slots.list[i].row; r != nil && r.Status != SlotRetired && len(r.Attrs) > 0 {
			if have.Attrs == nil {
				have.Attrs = map[int]map[string]string{}
			}
			have.Attrs[r.Index] = labelMap(r.Attrs)
		}
	}
	return have
}

func sortGroups(list []Group) {
	slices.SortFunc(list, func(a, b Group) int { return cmp.Compare(KeyOf(a.Key...), KeyOf(b.Key...)) })
}

func sameSpec(a, b *Spec) bool {
	if a.Capacity != b.Capacity || *a.Policy != *b.Policy || len(a.Groups) != len(b.Groups) {
		return false
	}
	for i := range a.Groups {
		if listedGroup(a.Groups[i]) != listedGroup(b.Groups[i]) {
			return false
		}
	}
	for i := range a.Capacity {
		if !slices.Equal(labelList(a.Attrs[i]), labelList(b.Attrs[i])) {
			return false
		}
	}
	return true
}

// admin is a change of the pool by an operator (R20): compare and swap on the version, remembered by its id.
type admin struct {
	call
	id      string
	version int64
	digest  [32]byte // of the whole call
	change  func(s *step) error

	state PoolState
}

func (c *admin) need(n *Need) { n.All, n.Timely = true, true }

func (c *admin) run(s *step) error {
	p := s.set.Pool()
	switch {
	case p.Admin != nil && p.Admin.ID == c.id && p.Admin.Digest == c.digest:
		c.state = p.Admin.Answer
		return nil
	case p.Admin != nil && p.Admin.ID == c.id:
		return &MismatchError{Fields: []string{"ID"}}
	case p.Version != c.version:
		return &StaleError{Version: p.Version}
	}
	if err := c.change(s); err != nil {
		return err
	}
	p = s.pool()
	p.Version++
	if err := s.handOut(); err != nil { // so that the answer says how it is after it
		return err
	}
	s.settle()
	c.state = p.state()
	c.state.Rev = 0 // known only after the step
	p.Admin = &AdminRow{ID: c.id, Digest: c.digest, Answer: c.state}
	return nil
}

// resize changes the capacity (R18). No lease is touched; free slots beyond it retire, and others do when they become free.
func (s *step) resize(n int) error {
	if have := s.highest(); have > s.set.Pool().Slots {
		return &CorruptError{What: "the number of known slots", Stored: int64(s.set.Pool().Slots), Actual: int64(have)}
	}
	p := s.pool()
	p.Capacity = n
	for i := range s.set.slots.list {
		switch r := s.set.slots.list[i].row; {
		case r == nil:
		case r.Status == SlotFree && r.Index >= n:
			s.slot(r.Index).Status = SlotRetired
		case r.Status == SlotRetired && r.Index < n:
			r = s.slot(r.Index)
			r.Status, r.Epoch = SlotFree, p.EpochSeq
		}
	}
	for ; p.Slots < n; p.Slots++ { // no slot is ever removed, so that these are new
		s.set.slots.insert(p.Slots, &SlotRow{Index: p.Slots, Status: SlotFree, Epoch: p.EpochSeq}, nil)
	}
	s.listFree()
	for _, t := range s.allTickets() {
		if t.Params.Units > n {
			s.drop(t, invalid("Units", "%d, the capacity is %d", t.Params.Units, n))
		}
	}
	s.room = true
	return nil
}

func (s *step) allTickets() []*TicketRow {
	var list []*TicketRow
	for i := range s.set.tickets.list {
		if t := s.set.tickets.list[i].row; t != nil {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *TicketRow) int { return cmp.Compare(a.Seq, b.Seq) })
	return list
}

// drain stops grants, and renewals after a deadline if there is one (R19).
func (s *step) drain(deadline int64) error {
	for _, t := range s.allTickets() {
		s.drop(t, ErrDraining)
	}
	p := s.pool()
	p.Status, p.DrainUS = PoolDraining, deadline
	return nil
}

func (s *step) reopen() error {
	p := s.pool()
	p.Status, p.DrainUS = PoolOpen, 0
	s.room = true
	return nil
}

// configure changes what a Spec has besides the capacity.
func (s *step) configure(c *Configuration) error {
	for _, i := range slices.Sorted(maps.Keys(c.Attrs)) { // R21
		r := s.set.Slot(i)
		switch {
		case r == nil && i >= s.set.Pool().Slots:
			return invalid("Attrs", "slot %d, the pool has %d", i, s.set.Pool().Slots)
		case r == nil || r.Status != SlotFree && r.Status != SlotRetired:
			return fmt.Errorf("%w: slot %d", ErrBusySlot, i)
		}
	}
	if c.Groups != nil {
		if err := validateGroups(*c.Groups, s.set.Pool().Capacity); err != nil {
			return err
		}
		if err := s.list(*c.Groups); err != nil {
			return err
		}
		for _, t := range s.allTickets() {
			g := s.groupOf(t.Params.Group)
			err := g.within(t.Params.Units)
			if g.Max == 0 {
				err = invalid("Group", "%v is closed", g.Key)
			}
			if err != nil {
				s.drop(t, err)
			}
		}
	}
	for i, attrs := range c.Attrs {
		s.slot(i).Attrs = labelList(attrs)
	}
	if c.Policy != nil {
		s.pool().Policy = *c.Policy
	}
	s.room = true
	return nil
}

// list replaces the listed groups. One that is listed no more lives on as an open one while it is used.
func (s *step) list(groups []Group) error {
	listed := map[GroupKey]GroupRow{}
	for _, g := range groups {
		row := listedGroup(g)
		listed[row.Key] = row
	}
	var gone []GroupKey
	more := len(listed)
	for i := range s.set.groups.list {
		g := s.set.groups.list[i].row
		if g == nil {
			continue
		}
		if _, ok := listed[g.Key]; ok {
			more--
			continue
		}
		if g.Used == 0 && g.Waiting == 0 {
			gone = append(gone, g.Key)
		}
	}
	if s.set.Pool().Groups-len(gone)+more > maxGroups {
		return invalid("Groups", "more than %d with those that are in use", maxGroups)
	}
	for i := range s.set.groups.list {
		if g := s.set.groups.list[i].row; g != nil && g.Listed {
			g = s.set.groups.edit(g.Key)
			g.Listed, g.Weight, g.Min, g.Max = false, 1, 0, -1
		}
	}
	for _, k := range gone {
		s.set.groups.remove(k, nil)
	}
	s.pool().Groups += more - len(gone)
	for _, g := range groups {
		row := listedGroup(g)
		if s.set.Group(row.Key) == nil {
			s.set.groups.insert(row.Key, &row, nil)
			continue
		}
		g := s.set.groups.edit(row.Key)
		g.Listed, g.Weight, g.Min, g.Max = true, row.Weight, row.Min, row.Max
	}
	return nil
}

// rebase dates everything anew from the clock as it is, back or forth, after a clock was wrong (R14). Epochs stay.
func (s *step) rebase() error {
	p := s.pool()
	// What a holder was told before still counts from now on: its own TTL, or what was left of the time after a jump.
	protected := max(s.longest(), p.JumpUS-s.now)
	if s.now = s.clock; p.Used > p.Cooling {
		p.JumpUS = sum(s.now, protected)
	} else {
		p.JumpUS = 0
	}
	for i := range s.set.leases.list {
		if l := s.set.leases.list[i].row; l != nil && l.Status != LeaseEnded {
			s.start(s.lease(l.Epoch))
		}
	}
	for i := range s.set.slots.list {
		if r := s.set.slots.list[i].row; r != nil && r.Status == SlotCooling {
			s.slot(r.Index).CoolUS = s.now + p.Policy.Cooling.Microseconds()
		}
	}
	for _, t := range s.allTickets() {
		s.set.tickets.edit(t.Seq).DeadlineUS = s.now + ticketUS
	}
	return nil
}

// sweep ends what is due and forgets what ended long ago.
type sweep struct {
	call
	max int // leases to end

	reclaimed, thawed, purged int
	more                      bool
	raws                      []*Raw
}

func (c *sweep) need(n *Need) {
	n.Timely = true
	n.Heads = max(n.Heads, 1)
	n.Due = max(n.Due, maxLapses+1)
	n.Purge = max(n.Purge, maxPurge)
}

func (c *sweep) run(s *step) error {
	swept, purged := s.swept, s.purged
	if err := s.lapse(min(c.max, maxLapses)); err != nil {
		return err
	}
	if err := s.forget(); err != nil {
		return err
	}
	c.reclaimed, c.thawed, c.purged = s.swept-swept, s.thawed-s.told, s.purged-purged
	s.told = s.thawed // by the first sweep of the step
	c.more = s.moreDue && s.swept > 0 || s.purged == maxPurge
	c.raws = append(c.raws[:0], s.set.raws...)
	return nil
}

// forget removes leases that ended long ago.
func (s *step) forget() error {
	keep := s.set.Pool().Policy.Keep.Microseconds()
	for i := 0; i < len(s.set.leases.list) && s.purged < maxPurge; i++ {
		e := &s.set.leases.list[i]
		if l := e.row; l != nil && e.old != nil && !e.fresh && l.Status == LeaseEnded && s.now-l.End.AtUS > keep {
			p := s.pool()
			p.PurgedRev = max(p.PurgedRev, l.Rev)
			s.set.leases.remove(l.Epoch, nil)
			s.purged++
		}
	}
	// Unreadable rows took places among the loaded ones: that stops no other, but for very many of them.
	if raws := s.unreadable(RawLease); raws > 0 && s.purged < maxPurge && s.purged+raws >= s.need.Purge && s.need.Purge < 16*maxPurge {
		return s.more(func(n *Need) { n.Purge *= 2 })
	}
	return nil
}

// reclaim ends a lease that somebody else holds: in one step the evidence is what was seen, and the reason is proved (R10).
type reclaim struct {
	call
	Reclaim
	// With DeadOwner: whose owner was found dead, before the step.
	dead *Holder

	last *LeaseRow // nil where the row could not be read
}

func (c *reclaim) need(n *Need) {
	n.Timely = true
	n.Slots = append(n.Slots, c.Slot)
	if c.Epoch > 0 {
		n.Epochs = append(n.Epochs, c.Epoch)
	}
	n.Heads = max(n.Heads, 1)
}

func (c *reclaim) run(s *step) error {
	c.last = nil
	if raw := s.rawOf(c.Slot); raw != nil {
		return c.force(s, raw)
	}
	name := s.set.Pool().Name
	r, l := s.set.Slot(c.Slot), s.set.Lease(c.Epoch)
	switch {
	case r != nil && r.Epoch == c.Epoch && s.broken(r) != "":
		if r.Evidence(name) != c.Fingerprint {
			return &StaleError{Epoch: r.Epoch}
		}
		return c.mend(s, r)
	case l != nil && l.Status == LeaseEnded && slices.Contains(l.Slots, c.Slot):
		if !s.superseded(l) && l.End.Reason == c.Reason && l.End.Evidence == c.Fingerprint.Sum() {
			c.last = l // the answer of the first try
			return nil
		}
		return &StaleError{Epoch: epochIn(r)}
	case r == nil || r.Epoch != c.Epoch:
		return &StaleError{Epoch: epochIn(r)}
	case r.Status != SlotLeased:
		if r.Evidence(name) != c.Fingerprint {
			return &StaleError{Epoch: r.Epoch}
		}
		return ErrNotReclaimable
	case l.Evidence(name) != c.Fingerprint:
		return &StaleError{Epoch: r.Epoch}
	}
	if err := c.prove(s, l); err != nil {
		return err
	}
	if err := s.end(l, EndRow{Reason: c.Reason, AtUS: s.now, By: c.Note, Evidence: c.Fingerprint.Sum()}); err != nil {
		return err
	}
	c.last = s.set.Lease(l.Epoch)
	return nil
}

func epochIn(r *SlotRow) uint64 {
	if r == nil {
		return 0
	}
	return r.Epoch
}

// prove proves the reason from the row and this step's time (R10a).
func (c *reclaim) prove(s *step, l *LeaseRow) error {
	if l.Status != LeaseLive {
		return ErrNotReclaimable
	}
	switch why := s.overdue(l); c.Reason {
	case ReasonForced:
		return nil
	case ReasonMaxLease:
		if why == ReasonMaxLease {
			return nil
		}
	case ReasonExpired: // named MaxLease when both hold
		if why == ReasonExpired {
			return nil
		}
	case ReasonDeadOwner:
		if c.dead != nil && *c.dead == l.Holder && l.Params.Owner == OwnerSelf {
			return nil
		}
	}
	return ErrNotReclaimable
}

// force takes a slot back whose row, or whose lease's row, can't be read. Whoever may hold the slot loses it.
func (c *reclaim) force(s *step, raw *Raw) error {
	name := s.set.Pool().Name
	switch {
	case raw.Evidence(name) != c.Fingerprint:
		return &StaleError{}
	case c.Reason != ReasonForced:
		return ErrNotReclaimable
	case !s.need.All:
		return s.more(func(n *Need) { n.All = true })
	}
	s.set.raws = slices.DeleteFunc(s.set.raws, func(r *Raw) bool { return r == raw })
	if raw.Table == RawSlot {
		s.set.slots.insert(raw.Index, &SlotRow{Index: raw.Index, Status: SlotLeased, Epoch: s.set.Pool().EpochSeq}, raw)
		return c.mend(s, s.set.Slot(raw.Index))
	}
	s.dropLease(raw)
	for i := range s.set.slots.list {
		if r := s.set.slots.list[i].row; r != nil && r.Status == SlotLeased && r.Epoch == raw.Epoch {
			s.cool(r.Index)
		}
	}
	return s.recount()
}

// mend takes back a slot that can't be read, or does not fit its lease. Where a live lease lists it, the slot is that lease's again: nobody
// has looked at the lease, which may be in use.
func (c *reclaim) mend(s *step, r *SlotRow) error {
	switch {
	case c.Reason != ReasonForced:
		return ErrNotReclaimable
	case !s.need.All:
		return s.more(func(n *Need) { n.All = true })
	}
	if s.adopt(r.Index, EndRow{Reason: ReasonForced, AtUS: s.now, By: c.Note}) == nil {
		s.cool(r.Index)
	}
	return s.recount()
}

// cool takes a slot out of use for a while, whatever it was.
func (s *step) cool(i int) {
	r := s.slot(i)
	r.Status, r.CoolUS = SlotCooling, s.now+max(s.set.Pool().Policy.Cooling.Microseconds(), 1)
}

// broken says how a slot and its lease don't fit, or "" (R22).
func (s *step) broken(r *SlotRow) string {
	if r.Status != SlotLeased {
		return ""
	}
	l := s.set.Lease(r.Epoch)
	switch {
	case l == nil:
		return "lease"
	case l.Status == LeaseEnded:
		return "lease"
	case !slices.Contains(l.Slots, r.Index):
		return "lease"
	}
	return ""
}

// highest is how many slots there must be.
func (s *step) highest() int {
	n := s.set.Pool().Slots
	for i := range s.set.slots.list {
		if r := s.set.slots.list[i].row; r != nil {
			n = max(n, r.Index+1)
		}
	}
	return n
}

func (s *step) isRaw(i int) bool {
	return slices.ContainsFunc(s.set.raws, func(r *Raw) bool { return r.Table == RawSlot && r.Index == i })
}

func (s *step) restore(i int) {
	row := &SlotRow{Index: i, Status: SlotLeased, Epoch: s.set.Pool().EpochSeq}
	for j := range s.set.leases.list {
		if l := s.set.leases.list[j].row; l != nil && l.Status != LeaseEnded && slices.Contains(l.Slots, i) {
			row.Epoch = l.Epoch
			s.set.slots.insert(i, row, nil)
			return
		}
	}
	s.set.slots.insert(i, row, nil)
	s.cool(i)
}

// check recounts.
type check struct {
	call
	repair bool

	wrong   []error
	damaged []error // tickets, and leases that no slot leads to: others are listed by Probes
	state   PoolState
}

func (c *check) need(n *Need) { n.All, n.Timely = true, true }

func (c *check) run(s *step) error {
	c.wrong, c.damaged = nil, nil
	for _, raw := range s.set.raws {
		if raw.Table == RawTicket || s.orphan(raw) {
			c.damaged = append(c.damaged, raw.damage())
		}
	}
	counted := s.count()
	p := s.set.Pool()
	for _, x := range []struct {
		what         string
		stored, real int
	}{
		{"used slots", p.Used, counted.pool.Used},
		{"cooling slots", p.Cooling, counted.pool.Cooling},
		{"known slots", p.Slots, counted.pool.Slots},
		{"tickets", p.Waiting, counted.pool.Waiting},
		{"groups", p.Groups, counted.pool.Groups},
	} {
		c.compare(x.what, x.stored, x.real)
	}
	if p.Offered < counted.pool.Offered || s.unreadable(RawLease) == 0 { // one may be an offer
		c.compare("offered leases", p.Offered, counted.pool.Offered)
	}
	if p.EpochSeq < counted.pool.EpochSeq {
		c.wrong = append(c.wrong, &CorruptError{What: "the last epoch", Stored: int64(p.EpochSeq), Actual: int64(counted.pool.EpochSeq)})
	}
	for _, i := range s.stray() {
		c.wrong = append(c.wrong, &DamageError{RawSlot, strconv.Itoa(i), "lease"})
	}
	for _, g := range counted.groups {
		have := s.groupOf(g.Key)
		if used := fmt.Sprintf("used slots of group %v", g.Key); have.Used < g.Used || s.unreadable(RawLease) == 0 {
			c.compare(used, have.Used, g.Used) // an unreadable lease is of some group
		}
		if waiting := fmt.Sprintf("tickets of group %v", g.Key); have.Waiting < g.Waiting || s.unreadable(RawTicket) == 0 {
			c.compare(waiting, have.Waiting, g.Waiting)
		}
	}
	switch {
	case c.repair && (len(c.wrong) > 0 || len(c.damaged) > 0 || p.Blocked):
		s.dropTickets()
		if err := s.recount(); err != nil {
			return err
		}
		s.pool().Blocked = false
		s.room = true
	case len(c.wrong) > 0 && !p.Blocked:
		s.pool().Blocked = true
	}
	c.state = s.set.Pool().state()
	return nil
}

// stray lists slots, by index, that are not marked as those of the live or offered lease that lists them. Two leases that list one
// are found so, too.
func (s *step) stray() []int {
	var list []int
	for _, l := range s.heldLeases() {
		for _, i := range l.Slots {
			if r := s.set.Slot(i); r != nil && (r.Status != SlotLeased || r.Epoch != l.Epoch) {
				list = append(list, i)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// heldLeases lists the live and offered leases, the newest first.
func (s *step) heldLeases() []*LeaseRow {
	var list []*LeaseRow
	for i := range s.set.leases.list {
		if l := s.set.leases.list[i].row; l != nil && l.Status != LeaseEnded {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b *LeaseRow) int { return cmp.Compare(b.Epoch, a.Epoch) })
	return list
}

// adopt marks a slot as that of the newest lease that lists it, and ends older ones: it was granted again. Without such a lease it
// returns nil and changes nothing.
func (s *step) adopt(i int, end EndRow) *LeaseRow {
	var newest *LeaseRow
	for _, l := range s.heldLeases() {
		switch {
		case !slices.Contains(l.Slots, i):
		case newest == nil:
			newest = l
			r := s.slot(i)
			r.Status, r.Epoch, r.CoolUS = SlotLeased, l.Epoch, 0
		default:
			end.Evidence = l.Evidence(s.set.Pool().Name).Sum()
			row := s.lease(l.Epoch)
			row.Status, row.End = LeaseEnded, end
			s.note(row)
			for _, other := range l.Slots {
				if o := s.set.Slot(other); o != nil && o.Status == SlotLeased && o.Epoch == l.Epoch {
					s.cool(other)
				}
			}
		}
	}
	return newest
}

// dropTickets removes the tickets that can't be read. Their waiters ask anew.
func (s *step) dropTickets() {
	s.set.raws = slices.DeleteFunc(s.set.raws, func(r *Raw) bool {
		if r.Table == RawTicket {
			s.set.tickets.remove(r.Seq, r)
		}
		return r.Table == RawTicket
	})
}

// orphan tells of a lease that can't be read that no slot leads to. While a slot can't be read it may be the one.
func (s *step) orphan(raw *Raw) bool {
	return raw.Table == RawLease && s.unreadable(RawSlot) == 0 && !slices.ContainsFunc(s.set.slots.list, func(e entry[int, SlotRow]) bool {
		return e.row != nil && e.row.Status == SlotLeased && e.row.Epoch == raw.Epoch
	})
}

// dropLease removes a lease that can't be read.
func (s *step) dropLease(raw *Raw) {
	s.set.leases.remove(raw.Epoch, raw)
	s.lost = append(s.lost, raw.Epoch)
}

func (c *check) compare(what string, stored, actual int) {
	if stored != actual {
		c.wrong = append(c.wrong, &CorruptError{What: what, Stored: int64(stored), Actual: int64(actual)})
	}
}

// counts are what the rows say.
type counts struct {
	pool   PoolRow
	groups []*GroupRow // by key
}

func (s *step) count() counts {
	var c counts
	groups := map[GroupKey]*GroupRow{}
	of := func(k GroupKey) *GroupRow {
		if groups[k] == nil {
			groups[k] = &GroupRow{Key: k}
			c.groups = append(c.groups, groups[k])
		}
		return groups[k]
	}
	for i := range s.set.groups.list {
		if g := s.set.groups.list[i].row; g != nil {
			of(g.Key)
		}
	}
	for i := range s.set.slots.list {
		r := s.set.slots.list[i].row
		if r == nil {
			continue
		}
		c.pool.Slots++
		c.pool.EpochSeq = max(c.pool.EpochSeq, r.Epoch)
		switch r.Status {
		case SlotLeased:
			c.pool.Used++
		case SlotCooling:
			c.pool.Used++
			c.pool.Cooling++
		}
	}
	for _, raw := range s.set.raws {
		switch {
		case raw.Table == RawSlot && s.set.Slot(raw.Index) == nil:
			c.pool.Slots++
			c.pool.Used++
		case raw.Table == RawTicket:
			c.pool.Waiting++
		}
	}
	for i := range s.set.leases.list {
		if l := s.set.leases.list[i].row; l != nil && l.Status != LeaseEnded {
			c.pool.EpochSeq = max(c.pool.EpochSeq, l.Epoch)
			of(l.Params.Group).Used += len(l.Slots)
			if l.Status == LeaseOffered {
				c.pool.Offered++
			}
		}
	}
	for i := range s.set.tickets.list {
		if t := s.set.tickets.list[i].row; t != nil {
			c.pool.Waiting++
			of(t.Params.Group).Waiting++
		}
	}
	c.pool.Groups = len(c.groups)
	slices.SortFunc(c.groups, func(a, b *GroupRow) int { return cmp.Compare(a.Key, b.Key) })
	return c
}

// recount writes what the rows say into the counts. A slot whose row is missing gets one again: that of the lease that names it, or a
// cooling one.
func (s *step) recount() error {
	for i := range s.highest() {
		if s.set.Slot(i) == nil && !s.isRaw(i) {
			s.restore(i)
		}
	}
	for _, i := range s.stray() {
		s.adopt(i, EndRow{Reason: ReasonForced, AtUS: s.now, By: "repair"})
	}
	s.set.raws = slices.DeleteFunc(s.set.raws, func(r *Raw) bool {
		if !s.orphan(r) {
			return false
		}
		s.dropLease(r)
		return true
	})
	c := s.count()
	p := s.pool()
	p.Used, p.Cooling, p.Slots, p.Offered = c.pool.Used, c.pool.Cooling, c.pool.Slots, c.pool.Offered
	p.Waiting, p.Groups, p.EpochSeq = c.pool.Waiting, c.pool.Groups, max(p.EpochSeq, c.pool.EpochSeq)
	for _, g := range c.groups {
		have := s.set.Group(g.Key)
		if have == nil {
			s.set.groups.insert(g.Key, &GroupRow{Key: g.Key, Weight: 1, Max: -1, Used: g.Used, Waiting: g.Waiting}, nil)
			continue
		}
		used := g.Used
		if s.unreadable(RawLease) > 0 { // it is of some group
			used = max(used, have.Used)
		}
		if have.Used != used || have.Waiting != g.Waiting {
			have = s.set.groups.edit(g.Key)
			have.Used, have.Waiting = used, g.Waiting
		}
	}
	s.listFree()
	s.room = true
	return nil
}
