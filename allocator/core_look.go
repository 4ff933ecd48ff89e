package allocator

import "strconv"

// look reads: the state of the pool, and evidence of slots. It writes nothing.
type look struct {
	call
	slots []int
	all   bool

	state  PoolState
	now    int64
	seen   []Evidence
	owners []owned // beside seen: whose owner may be asked
}

// owned is whose life a lease is bound to.
type owned struct {
	holder Holder
	owner  Owner
}

func (c *look) need(n *Need) {
	n.Slots = append(n.Slots, c.slots...)
	n.All = n.All || c.all
}

func (c *look) run(s *step) error {
	c.seen, c.owners = c.seen[:0], c.owners[:0]
	c.state, c.now = s.set.Pool().state(), s.now
	for _, i := range c.slots {
		if i >= s.set.Pool().Slots {
			break
		}
		e, o := s.evidence(i)
		c.seen, c.owners = append(c.seen, e), append(c.owners, o)
	}
	return nil
}

// evidence is what is known of a slot (R9). Only the owner is left to ask.
func (s *step) evidence(i int) (Evidence, owned) {
	p := s.set.Pool()
	r := s.set.Slot(i)
	e := Evidence{Slot: i, Status: SlotQuarantined}
	if raw := s.rawOf(i); raw != nil {
		e.Field, e.Fingerprint = raw.Field, raw.Evidence(p.Name)
		e.Epoch = epochIn(r)
		return e, owned{}
	}
	if r == nil {
		e.Field = "row"
		return e, owned{}
	}
	e.Epoch = r.Epoch
	if e.Field = s.broken(r); e.Field != "" {
		e.Fingerprint = r.Evidence(p.Name)
		return e, owned{}
	}
	e.Status, e.CoolUntil = r.Status, timeOf(r.CoolUS)
	if r.Status != SlotLeased {
		e.Fingerprint = r.Evidence(p.Name)
		return e, owned{}
	}
	l := s.set.Lease(r.Epoch)
	state := l.state(p.Name)
	e.Lease, e.Fingerprint = &state, l.Evidence(p.Name)
	e.Verdict = VerdictLive
	if e.Reason = s.overdue(l); e.Reason != 0 {
		e.Verdict = VerdictExpired
	}
	return e, owned{l.Holder, l.Params.Owner}
}

// rawOf returns the row that can't be read and keeps a slot out of use, if there is one: the slot's own, or that of its lease.
func (s *step) rawOf(i int) *Raw {
	r := s.set.Slot(i)
	for _, raw := range s.set.raws {
		if raw.Table == RawSlot && raw.Index == i || raw.Table == RawLease && r != nil && r.Status == SlotLeased && raw.Epoch == r.Epoch {
			return raw
		}
	}
	return nil
}

// verify tells whether an epoch is the one that may use a slot now (R17).
type verify struct {
	call
	index int
	epoch uint64

	answer Verification
}

func (c *verify) need(n *Need) { n.Slots = append(n.Slots, c.index) }

func (c *verify) run(s *step) error {
	c.answer = Verification{}
	if c.index >= s.set.Pool().Slots {
		c.answer.Status = VerifyStale
		return nil
	}
	if raw := s.rawOf(c.index); raw != nil {
		return raw.damage()
	}
	r := s.set.Slot(c.index)
	if r == nil {
		return &DamageError{RawSlot, strconv.Itoa(c.index), "row"}
	}
	if field := s.broken(r); field != "" {
		return &DamageError{RawSlot, strconv.Itoa(c.index), field}
	}
	c.answer.Current = r.Epoch
	l := s.set.Lease(r.Epoch)
	switch {
	case r.Epoch != c.epoch || r.Status != SlotLeased || l.Status != LeaseLive:
		c.answer.Status = VerifyStale
	case s.overdue(l) != 0:
		c.answer.Status = VerifyLapsed
	default:
		c.answer.Status = VerifyCurrent
	}
	return nil
}
