package spendlimit

import (
	"errors"
	"math/bits"
)

// leaseGroup marks the central holds of leases, so that a step can count them. No caller's group has a control character.
const leaseGroup = "\x01lease"

// leaseLimit is the limit that bounds what a lease grants.
const leaseLimit = "lease"

// chunk is what one lease asks for: its bounds, and what its callers wait for.
type chunk struct{ most, least, pending Amount }

// size is the chunk that a limit with this much room gives to one of so many leases (R82); most is the caller's own bound.
func (c chunk) size(available Amount, leases int64) Amount {
	urgent := c.pending + (c.pending+1)/2
	if urgent < c.pending {
		urgent = MaxAmount
	}
	size := max(c.least, available/Amount(4*max(leases, 1)), urgent)
	return max(0, min(size, available, c.most))
}

// scarce tells whether a limit has too little room for a smallest chunk for each of its leases (R82).
func (c chunk) scarce(available Amount, leases int64) bool {
	high, low := bits.Mul64(uint64(c.least), uint64(max(leases, 1)))
	return available < 0 || high > 0 || uint64(available) < low
}

// offer is the chunk that all hard limits among some periods give together; without any it is the caller's own bound.
func (s *step) offer(c chunk, periods []*PeriodRow) (size Amount, leases int, scarce bool) {
	size = c.most
	for _, p := range periods {
		n := s.siblings(leaseGroup, p)
		leases = max(leases, n)
		if p.Mode == Hard && !p.Limit.Removed {
			available := s.available(p)
			size = min(size, c.size(available, int64(n)))
			scarce = scarce || c.scarce(available, int64(n))
		}
	}
	return size, leases, scarce
}

// leaseTerms is what a lease learns from every central answer.
type leaseTerms struct {
	now, expires int64
	end          int64 // of the first of the hold's periods to end
	own          Amount
	recorded     Amount
	leases       int  // live ones on the account, this one included
	recall       bool // room is scarce: an idle lease gives its own back (R82)
	frozen       bool // unpriced cost refuses new work (R53)
	refuse       bool // unpriced cost would
	dead         bool // the hold has lapsed
}

// terms reads them off a lease's hold, whose newest part has the periods that it grants in.
func (s *step) terms(h *HoldRow, c chunk) leaseTerms {
	t := leaseTerms{now: s.now, expires: h.ExpiresUS, own: h.Own, recorded: h.Recorded, dead: !h.State.Live()}
	periods := h.part(h.parts() - 1).Lines
	t.end = endOfFirst(periods)
	for _, p := range periods {
		t.frozen = t.frozen || p.freezes()
		t.refuse = t.refuse || p.Mode == Hard && !p.Limit.Removed && p.Limit.Limit.OnUnpriced == Refuse
	}
	_, t.leases, t.recall = s.offer(c, periods)
	return t
}

func endOfFirst(periods []*PeriodRow) int64 {
	end := maxInstant
	for _, p := range periods {
		end = min(end, p.End)
	}
	return end
}

// leaseTake is the command behind a lease's central hold: a reserve and its dispatch in one step (R77).
type leaseTake struct {
	reserve // with a chunk
	terms   leaseTerms
}

func (c *leaseTake) apply(s *step) (bool, error) {
	c.terms = leaseTerms{}
	keep, err := c.reserve.apply(s)
	if err == nil && keep {
		d := dispatch{key: c.req.Key}
		_, err = d.apply(s)
	}
	if err != nil {
		return false, err
	}
	c.terms = s.terms(s.w.holds.get(c.req.Key), *c.chunk)
	return keep, nil
}

// topUp is the command behind a lease's central grow: what is missing, and a prefetch unless room is scarce (R78, R82).
// By is what is missing, Min the smallest useful part of it; both 0: only the prefetch.
type topUp struct {
	growth
	chunk chunk
	terms leaseTerms
}

func (c *topUp) need(n *Need) {
	c.growth.need(n)
	n.Groups = append(n.Groups, leaseGroup)
}

func (c *topUp) apply(s *step) (bool, error) {
	c.receipt, c.terms = Receipt{}, leaseTerms{}
	h, err := s.readyHold(c.Hold)
	if err != nil {
		return false, err
	}
	content := digest(EntryGrow, func(e *encoder) { e.String(leaseGroup).Int(int64(c.By)).Int(int64(c.Min)) })
	u, err := s.replay(c.Hold, c.ID, EntryGrow, content)
	switch {
	case err != nil:
		return false, err
	case u != nil:
		c.receipt, c.terms = replayed(u), s.terms(h, c.chunk)
		return false, nil
	case !h.State.Live():
		return false, ended(h)
	}
	periods := h.part(h.parts() - 1).Lines
	if s.now >= endOfFirst(periods) { // T102: nothing of the new period for a lease of the old one
		return false, stopTime.refusal()
	}
	want := c.By
	if size, _, scarce := s.offer(c.chunk, periods); !scarce {
		want = max(want, size)
	}
	keep := want > 0
	if keep {
		if err := c.grow(s, h, want, max(c.Min, 1), content); err != nil {
			return false, err
		}
	}
	c.terms = s.terms(h, c.chunk)
	return keep, nil
}

// renewal is the command behind a lease's Sync: it gives back, records, extends and takes more in one step (R79, R82). On a
// hold that has lapsed it only records.
type renewal struct {
	call
	key    string
	ttl    int64
	cost   Amount // all that is known so far
	back   Amount
	backID string
	mark   string // a usage id that gets an unknown cost; "" for none
	unmark string // one whose cost has become known, as part of cost
	moreID string // of a prefetch, which may be refused; "" for none
	chunk  chunk
	terms  leaseTerms
}

// leaseCost is the usage id of a lease's cumulative cost.
const leaseCost = "cost"

func (c *renewal) need(n *Need) {
	n.Holds = append(n.Holds, c.key)
	n.Groups = append(n.Groups, leaseGroup)
	for _, id := range []string{c.backID, leaseCost, c.mark, c.unmark, c.moreID} {
		if id != "" {
			n.Usages = append(n.Usages, UsageID{c.key, id})
		}
	}
}

func (c *renewal) apply(s *step) (bool, error) {
	c.terms = leaseTerms{}
	h, err := s.readyHold(c.key)
	if err != nil {
		return false, err
	}
	var parts []command
	live := h.State.Live()
	if live && c.back > 0 { // first: it is at most what was left before this cost
		parts = append(parts, &shrinkage{Shrinkage: Shrinkage{Hold: c.key, ID: c.backID, By: c.back}})
	}
	if c.cost > 0 {
		parts = append(parts, &record{Usage: Usage{Hold: c.key, ID: leaseCost, Cost: Total(c.cost), Cumulative: true}})
	}
	if c.mark != "" {
		parts = append(parts, &record{Usage: Usage{Hold: c.key, ID: c.mark, Cost: Unknown("a local hold has no price yet")}})
	}
	if c.unmark != "" {
		parts = append(parts, &record{Usage: Usage{Hold: c.key, ID: c.unmark, Cost: Total(0)}})
	}
	if live {
		parts = append(parts, &extension{Extension: Extension{Hold: c.key}, ttl: c.ttl})
	}
	keep := false
	for _, part := range parts {
		kept, err := part.apply(s)
		if err != nil {
			return false, err
		}
		keep = keep || kept
	}
	if live && c.moreID != "" {
		more := topUp{growth: growth{Growth: Growth{Hold: c.key, ID: c.moreID}}, chunk: c.chunk}
		kept, err := more.apply(s)
		if err != nil && !errors.Is(err, ErrDenied) {
			return false, err
		}
		keep = keep || kept
	}
	if !live && h.State != LapsedFree && h.State != LapsedCharged {
		return false, ended(h)
	}
	c.terms = s.terms(h, c.chunk)
	return keep, nil
}

// tally is the command by which a lease takes stock of its local holds, on its own ledger. It sets the limit that bounds
// them, or cuts it down so that no more than keep is free, and tells what it found.
type tally struct {
	call
	account string
	limit   Amount // below 0: as it is
	keep    Amount // below 0: all
	policy  Policy
	live    bool // whether there are live holds is asked for

	out localState
}

// localState is what a lease's own ledger says.
type localState struct {
	limit    Amount
	known    Amount // cost, without what is assumed
	assumed  Amount
	held     Amount
	free     Amount
	back     Amount // by how much the limit was cut
	unpriced int64
	live     bool
}

func (c *tally) need(n *Need) {
	n.Accounts = append(n.Accounts, c.account)
	if c.live {
		n.Expiring = append(n.Expiring, c.account)
	}
}

func (c *tally) apply(s *step) (bool, error) {
	c.out = localState{}
	accounts, err := s.ready([]string{c.account})
	if err != nil {
		return false, err
	}
	if c.limit >= 0 {
		if err := c.set(s, accounts[0], c.limit); err != nil {
			return false, err
		}
	}
	row := accounts[0].limit(leaseLimit)
	if row == nil {
		return false, ErrNotFound
	}
	p, err := s.period(row, s.now)
	if err != nil {
		return false, err
	}
	o := &c.out
	if free := s.available(p); c.keep >= 0 && free > c.keep {
		o.back = free - c.keep
		if err := c.set(s, accounts[0], row.Limit.Amount-o.back); err != nil {
			return false, err
		}
	}
	o.limit, o.known, o.assumed, o.held = p.Lim, p.Spent-p.Assumed, p.Assumed, p.Held
	o.free, o.unpriced = max(0, s.available(p)), p.Unpriced
	for _, h := range s.w.expiring[c.account] {
		o.live = o.live || h.State.Live()
	}
	return true, nil
}

// set makes the limit, or changes it.
func (c *tally) set(s *step, a *AccountRow, amount Amount) error {
	l := Limit{Account: c.account, Name: leaseLimit, Kind: AllTime, Amount: amount, OnUnpriced: c.policy}.normal()
	row := a.limit(leaseLimit)
	set := setLimit{limit: l}
	if row != nil {
		if row.Limit.equal(&l) {
			return nil
		}
		set.expect = row.Print
	}
	_, err := set.apply(s)
	return err
}

// stop says why a ledger within a lease grants nothing now.
type stop uint8

const (
	stopTime   stop = iota + 1 // it is to be renewed first
	stopFrozen                 // unpriced cost stands in its period
	stopAll                    // its hold is settled: nothing may change any more
)

// refusal is made anew for each caller, who may change it.
func (s stop) refusal() error {
	switch s {
	case stopTime:
		return &DeniedError{Reason: ReasonLease, RetryAfter: fallbackRetry}
	case stopFrozen:
		return &DeniedError{Reason: ReasonUnpriced, RetryAfter: fallbackRetry}
	case stopAll:
		return ErrClosed
	}
	return nil
}
