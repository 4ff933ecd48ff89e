package spendlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// tranche is one hold of a lease on the central ledger, and the local ledger that gives it out. Its fields belong to
// whoever has the lease's wire, but for the atomic ones.
//
// Every central answer says what the hold has left and what is recorded on it. Their sum bounds what local holds may
// spend and hold, so the local limit is always set to it: a loss or a repetition of an answer leaves no mark.
type tranche struct {
	lease *Lease
	key   string
	local *Ledger
	shut  atomic.Bool // local changes nothing any more

	term   atomic.Pointer[term] // how long it grants; nil: not at all
	used   atomic.Int64         // granted since the last central answer, as far as it is known
	base   atomic.Int64         // what was free then
	served atomic.Int64         // holds

	terms    leaseTerms  // of the last central answer
	last     localState  // of the last look
	unsent   *notice     // a sync whose answer is not known
	order    *order      // a grow whose answer is not known
	ids      int         // of usages, so far
	mark     string      // the usage that stands for unpriced local holds; "" for none
	retired  atomic.Bool // another one grants, or none
	settling bool        // shut, and the settle of the central hold was sent
	ended    bool        // somebody else has ended the central hold
}

// term is how long a tranche may grant without another central answer.
type term struct {
	sent   time.Time // before its last renewal was
	lives  time.Duration
	frozen bool
}

// left is what remains of it, by the monotonic clock and by the other one.
func (m *term) left(now time.Time) time.Duration {
	return m.lives - max(now.Sub(m.sent), now.Round(0).Sub(m.sent.Round(0)))
}

// notice is what a Sync tells the central ledger. A second try says the same.
type notice struct {
	cost         Amount
	back         Amount // has left the local free before this is sent (R79)
	backID       string
	mark, unmark string
	moreID       string // of a prefetch
	uncertain    bool   // an earlier try may have been applied
}

// order is what a grow asks for. A second try asks the same.
type order struct {
	id        string
	by, min   Amount
	uncertain bool
}

// stop says why the tranche may not grant now (R53, R78, T102).
func (t *tranche) stop() stop {
	switch m := t.term.Load(); {
	case t.shut.Load():
		return stopAll
	case m == nil || m.left(t.lease.req.Clock()) <= 0:
		return stopTime
	case m.frozen:
		return stopFrozen
	}
	return 0
}

// renewed starts a new term, from the time before its renewal was sent. Nothing is granted in the last 5 s of the hold's
// life, nor after the first of its periods has ended. What the store's clock says counts only as a difference.
func (t *tranche) renewed(sent time.Time) {
	lives := min(ttlMicros(t.lease.req.TTL), t.terms.expires-t.terms.now) - int64(leaseMargin/time.Microsecond)
	if t.terms.end != maxInstant {
		lives = min(lives, t.terms.end-t.terms.now)
	}
	t.term.Store(&term{sent: sent, lives: durationOf(lives), frozen: t.terms.frozen})
}

// freeze keeps the term, and notes whether unpriced cost refuses new work.
func (t *tranche) freeze(frozen bool) {
	if m := t.term.Load(); m != nil && m.frozen != frozen {
		t.term.Store(&term{m.sent, m.lives, frozen})
	}
}

// gone tells whether err is but the answer of a tranche that was replaced meanwhile.
func (t *tranche) gone(err error) bool {
	var denied *DeniedError
	return t.retired.Load() && (errors.Is(err, ErrClosed) || errors.As(err, &denied) && denied.Reason == ReasonLease)
}

// over tells whether the tranche can't be renewed any more.
func (t *tranche) over() bool {
	m := t.term.Load()
	return t.terms.dead || m == nil || m.lives <= 0
}

// aging tells whether it is time for the next tranche: the local store is full enough, or the hold's life ends soon.
func (t *tranche) aging() bool {
	return t.served.Load() >= maxServed || t.terms.expires-t.terms.now < ttlMicros(t.lease.req.TTL)
}

// idle tells whether nobody uses what is free.
func (t *tranche) idle() bool { return t.last.held == 0 && t.lease.pending.Load() == 0 }

// over tells whether all holds have ended with a known cost.
func (o localState) over() bool { return !o.live && o.assumed == 0 && o.unpriced == 0 }

// look is a tally that changes nothing. lookAll asks for live holds too.
func look() *tally    { return &tally{limit: -1, keep: -1} }
func lookAll() *tally { return &tally{limit: -1, keep: -1, live: true} }

// take takes stock of the local ledger. The end of a caller's context leaves nothing half done.
func (t *tranche) take(ctx context.Context, c *tally) (localState, error) {
	ctx = context.WithoutCancel(ctx)
	c.account = t.lease.req.Accounts[0]
	if t.terms.refuse {
		c.policy = Refuse
	} else {
		c.policy = Allow
	}
	n := Need{Ledger: t.key}
	c.need(&n)
	for {
		err := t.local.store.Step(ctx, n, func(now int64, w *Work) error {
			s := t.local.newStep()
			s.begin(w, now)
			err := s.run(c)
			c.events = s.events
			return err
		})
		if errors.Is(err, errMoreDue) {
			var lapsed *call
			if lapsed, err = t.local.sweepFor(ctx, n); err == nil {
				t.local.deliver(lapsed)
				continue
			}
		}
		if err != nil {
			return localState{}, err
		}
		t.local.deliver(&c.call)
		t.last = c.out
		t.used.Store(0)
		t.base.Store(int64(c.out.free))
		return c.out, nil
	}
}

// learn takes over a central answer.
func (t *tranche) learn(ctx context.Context, terms leaseTerms) error {
	t.terms = terms
	t.freeze(terms.frozen)
	limit, err := terms.own.Add(terms.recorded)
	if err == nil {
		_, err = t.take(ctx, &tally{limit: limit, keep: -1})
	}
	return err
}

// has tells whether the tranche knows a key.
func (t *tranche) has(ctx context.Context, key string) bool {
	_, err := t.local.Hold(context.WithoutCancel(ctx), key)
	return err == nil
}

// reserve grants a local hold.
func (t *tranche) reserve(ctx context.Context, r *Request) (*Hold, error) {
	h, err := t.local.ask(ctx, r)
	if err != nil {
		if h, err = t.reserveMore(ctx, r, err); err != nil {
			return nil, err
		}
	}
	if h.Replayed {
		return h, nil
	}
	used, base, served := t.used.Add(int64(h.Granted)), t.base.Load(), t.served.Add(1)
	if used/4 >= base/5 && base > 0 || served >= maxServed {
		select {
		case t.lease.low <- struct{}{}:
		default:
		}
	}
	return h, nil
}

func (t *tranche) reserveMore(ctx context.Context, r *Request, err error) (h *Hold, _ error) {
	return h, t.serve(ctx, err, r.Amount, cmp.Or(r.Min, r.Amount), func() (err error) {
		h, err = t.local.ask(ctx, r)
		return err
	})
}

// serve goes on after a local refusal for lack of room: it takes what is missing from the central ledger, and tries again.
// The refusal is final only when the central ledger has refused too (R78).
func (t *tranche) serve(ctx context.Context, err error, want, need Amount, try func() error) error {
	if _, ok := missing(err); !ok {
		return err
	}
	l := t.lease
	l.pending.Add(int64(want))
	defer l.pending.Add(-int64(want))
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	for {
		err := try()
		free, ok := missing(err)
		if !ok {
			return err
		}
		by, err := want.Sub(free)
		if err == nil {
			err = t.grow(ctx, by, need-free) // need ≤ want
		}
		if err != nil {
			return t.final(ctx, err, want, need)
		}
	}
}

// missing tells whether an error is a refusal of the lease's own limit, and how much that has free.
func missing(err error) (free Amount, ok bool) {
	var denied *DeniedError
	if !errors.As(err, &denied) || denied.Reason != ReasonSpent && denied.Reason != ReasonHeld {
		return 0, false
	}
	return denied.Binding.Available, true
}

// final is the central refusal in the caller's words.
func (t *tranche) final(ctx context.Context, err error, want, need Amount) error {
	err = t.lease.central.hint(ctx, "", err)
	var denied *DeniedError
	if errors.As(err, &denied) {
		denied.Wanted, denied.Min = want, need
	}
	return err
}

// grow asks the central ledger for more room, unless the answer to an earlier call is not known. Without an error the
// caller looks again.
func (t *tranche) grow(ctx context.Context, by, min Amount) error {
	switch {
	case t.unsent != nil || t.retired.Load() || t.stop() == stopTime:
		return stopTime.refusal()
	case t.order == nil:
		t.order = &order{id: t.id("grow"), by: by, min: min}
	}
	return t.sendOrder(ctx)
}

func (t *tranche) id(what string) string {
	t.ids++
	return fmt.Sprintf("%s-%d", what, t.ids)
}

// sendOrder sends the order, if there is one.
func (t *tranche) sendOrder(ctx context.Context) error {
	o := t.order
	if o == nil {
		return nil
	}
	c := &topUp{growth: growth{Growth: Growth{Hold: t.key, ID: o.id, By: o.by, Min: o.min}}, chunk: t.lease.chunk()}
	err := t.lease.central.do(ctx, c)
	if o.uncertain = o.uncertain || errors.Is(err, ErrUncertain); o.uncertain && undecided(err) {
		return err
	}
	t.order = nil
	var denied *DeniedError
	var gone *EndedError
	switch {
	case err == nil:
		return t.learn(ctx, c.terms)
	case errors.As(err, &gone):
		t.term.Store(nil)
		return stopTime.refusal()
	case errors.As(err, &denied) && denied.Reason != ReasonLease:
		t.terms.recall = true
		t.freeze(denied.Reason == ReasonUnpriced)
	}
	return err
}

// undecided tells whether an error leaves open what became of a call's earlier tries.
func undecided(err error) bool {
	for _, e := range []error{ErrUnavailable, ErrUncertain, ErrClosed, ErrSchema, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// sync tells the central ledger what local holds have cost, gives back what is free beyond keep, and renews (R79).
func (t *tranche) sync(ctx context.Context, keep Amount) error {
	if err := t.sendOrder(ctx); t.order != nil {
		return err
	}
	if t.unsent == nil {
		n, err := t.write(ctx, keep)
		if err != nil {
			return err
		}
		t.unsent = n
	}
	n := t.unsent
	c := &renewal{
		key: t.key, ttl: ttlMicros(t.lease.req.TTL), cost: n.cost, back: n.back, backID: n.backID, mark: n.mark, unmark: n.unmark,
		moreID: n.moreID, chunk: t.lease.chunk(),
	}
	sent := t.lease.req.Clock()
	err := t.lease.central.do(ctx, c)
	if n.uncertain = n.uncertain || errors.Is(err, ErrUncertain); n.uncertain && undecided(err) {
		return err
	}
	t.unsent = nil
	if err != nil { // not applied
		return errors.Join(err, t.keep(ctx, err, n))
	}
	switch {
	case n.mark != "":
		t.mark = n.mark
	case n.unmark != "":
		t.mark = ""
	}
	if err := t.learn(ctx, c.terms); err != nil {
		return err
	}
	switch {
	case c.terms.dead:
		t.term.Store(nil)
	case !t.retired.Load():
		t.renewed(sent)
	}
	return nil
}

// write takes what is to be given back out of the local free, and notes it with the cost of the same moment.
func (t *tranche) write(ctx context.Context, keep Amount) (*notice, error) {
	base := Amount(t.base.Load())
	o, err := t.take(ctx, &tally{limit: -1, keep: keep})
	if err != nil {
		return nil, err
	}
	n := &notice{cost: o.known, back: o.back}
	switch {
	case n.back > 0:
		n.backID = t.id("back")
	case base > 0 && o.free <= base/5 && !t.retired.Load():
		n.moreID = t.id("more")
	}
	switch {
	case o.unpriced > 0 && t.mark == "":
		n.mark = t.id("unpriced")
	case o.unpriced == 0:
		n.unmark = t.mark
	}
	return n, nil
}

// keep makes what was not given back usable again.
func (t *tranche) keep(ctx context.Context, err error, n *notice) error {
	var gone *EndedError
	if errors.As(err, &gone) || errors.Is(err, ErrNotFound) {
		t.ended = true
		t.term.Store(nil)
		return nil
	}
	if n.back == 0 {
		return nil
	}
	_, err = t.take(ctx, &tally{limit: t.last.limit + n.back, keep: -1})
	return err
}
