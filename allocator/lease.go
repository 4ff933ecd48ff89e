package allocator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is a handle on a lease that this process has: the right to its slots until a time. Safe for concurrent use.
//
// Valid says at every moment whether this process may still work. Run Keep, in a goroutine of its own, to keep it so;
// Done closes when the work must stop.
type Lease struct {
	pool  *Pool
	row   *LeaseRow // as it was granted
	slots []heldSlot
	first [1]heldSlot // room for the slot of most

	mu       sync.Mutex
	latest   *LeaseRow     // as it was seen last: Rebase dates a lease anew
	sent     instant       // of the request that was answered last
	left     time.Duration // from then on
	expires  int64
	most     int64 // no renewal prolongs it beyond
	seq      int64
	existing bool
	keeping  bool
	ended    bool
	err      error
	done     chan struct{} // made when somebody asks
}

// margin is how long before its end a lease is given up by its holder: ttl/10, at least 1 s.
func (l *LeaseRow) margin() time.Duration { return max(micros(l.TTLUS)/10, time.Second) }

// newLease makes the handle of a lease that lives for left from an instant before the store's now.
func (p *Pool) newLease(row *LeaseRow, slots []heldSlot, expires, left, most int64, sent instant) *Lease {
	l := &Lease{pool: p, row: row, latest: row, sent: sent, left: micros(left) - row.margin(), expires: expires, most: most, seq: row.RenewSeq}
	l.slots = append(l.first[:0], slots...)
	return l
}

// register returns the process's one handle for a lease: this one, or the one that it has already. Calls that wait for the attempt get
// it, too: else the last of them would give the lease back when it leaves.
// generation is that of the step which made it.
func (p *Pool) register(l *Lease, existing bool, generation int) *Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	l = p.one(l, existing, generation)
	mine := l.row.Holder.Incarnation == p.holder.Incarnation // Renew makes handles of leases of others, too
	if w := p.waiters[l.row.Attempt]; mine && w != nil && w.leaving == nil && !w.decided() && l.open() && w.params.mismatch(&l.row.Params) == nil {
		w.lease, w.taken = l, true
		close(w.wake)
	}
	return l
}

// one is register without its news. p.mu is held.
func (p *Pool) one(l *Lease, existing bool, generation int) *Lease {
	attempt := l.row.Attempt
	old := p.leases[attempt]
	if old != nil && old != l && old.row.ID == l.row.ID && old.row.Epoch == l.row.Epoch && old.open() {
		old.mu.Lock()
		old.existing = old.existing || existing
		if l.seq >= old.seq {
			old.latest, old.most = l.latest, l.most
		}
		old.mu.Unlock()
		return old
	}
	if p.over.has(generation, endedKey{epoch: l.row.Epoch}) || p.over.has(generation, endedKey{attempt: attempt}) || old != nil && old.row.Epoch > l.row.Epoch { // it ended while its handle was made
		l.end(&LostError{})
		return l
	}
	if old != nil && old != l { // an attempt has one lease
		old.end(&LostError{CurrentEpoch: l.row.Epoch})
	}
	l.mu.Lock()
	l.existing = l.existing || existing
	l.mu.Unlock()
	p.leases[attempt] = l
	if len(p.leases) > p.tidyAt {
		for a, old := range p.leases {
			if old.forgotten() {
				delete(p.leases, a)
			}
		}
		p.leases[attempt] = l
		p.tidyAt = 2*len(p.leases) + 64
	}
	return l
}

// forgotten tells that the lease was over long ago and nobody cares: twice its time has passed since it was last renewed.
func (l *Lease) forgotten() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended || l.pool.since(l.sent) > 2*(l.left+l.row.margin())
}

func (l *Lease) open() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.ended
}

// Ref names the lease for other processes.
func (l *Lease) Ref() Ref {
	l.mu.Lock()
	latest := l.latest
	l.mu.Unlock()
	r := l.ref()
	r.Identity = latest.Identity(l.pool.name)
	return r
}

func (l *Lease) ref() Ref { return Ref{Pool: l.pool.name, ID: l.row.ID, Epoch: l.row.Epoch} }

// Attempt returns what the lease is for.
func (l *Lease) Attempt() string { return l.row.Attempt }

// Epoch returns the fencing token: of all leases of the pool that were granted before, each has a lower one. Give it to whatever
// the work changes, which refuses a lower one than it has seen (R17).
func (l *Lease) Epoch() uint64 { return l.row.Epoch }

// Slots returns the lease's slots, by index, with their attributes.
func (l *Lease) Slots() []Slot {
	list := make([]Slot, len(l.slots))
	for i, h := range l.slots {
		list[i] = Slot{Index: h.index, Attrs: labelMap(h.attrs)}
	}
	return list
}

// Existing tells whether an Acquire found that the attempt has this lease already.
func (l *Lease) Existing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.existing
}

// Left returns how long the work may go on without a renewal: never negative. It counts from when the last request was sent, and ends
// a margin before the lease does (ttl/10, at least 1 s), so that this process stops before another one starts.
func (l *Lease) Left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remains()
}

func (l *Lease) remains() time.Duration {
	if l.ended {
		return 0
	}
	return max(0, l.left-l.pool.since(l.sent))
}

// Valid tells whether the lease is this process's now. It needs no Keep and asks no store.
func (l *Lease) Valid() bool { return l.Left() > 0 }

// Done is closed when the lease was released or lost, or, while Keep runs, when its time is over here. It never opens again: after it
// the handle serves Release only.
func (l *Lease) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.ended {
			close(l.done)
		}
	}
	return l.done
}

// Err says why Done is closed: nil after a release, and before.
func (l *Lease) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// finish closes the handles of leases that ended, and remembers them for calls that are about to make one.
func (p *Pool) finish(over []*LeaseRow) {
	for _, l := range over {
		p.mu.Lock()
		h := p.leases[l.Attempt]
		p.over.add(endedKey{epoch: l.Epoch})
		p.mu.Unlock()
		if h != nil && h.row.Epoch == l.Epoch {
			h.finish(l.cause())
		}
	}
}

// handle returns the handle of a lease, if this process has one.
func (p *Pool) handle(is func(*LeaseRow) bool) *Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.leases {
		if is(l.row) {
			return l
		}
	}
	return nil
}

// finishThe closes the handle of a Ref.
func (p *Pool) finishThe(ref Ref, cause error) {
	if l := p.handle(func(l *LeaseRow) bool { return l.Epoch == ref.Epoch && l.ID == ref.ID }); l != nil {
		l.finish(cause)
	}
}

// cause is what a handle says of the end of its lease.
func (l *LeaseRow) cause() error {
	if l.End.Reason == ReasonReleased {
		return nil
	}
	return &LostError{Reason: l.End.Reason}
}

// expect begins a step that may make a handle; it ends with settled.
func (p *Pool) expect() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over.expect()
}

func (p *Pool) settled(generation int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over.settled(generation)
}

// ended remembers leases that end while steps are on their way that may make a handle of them: until all of these are settled. Steps
// are counted by generations, of which there are two: while those of the old one are on their way, new ones belong to the other.
type ended struct {
	now   int // the generation of new steps
	steps [2]int
	over  [2]map[endedKey]bool
}

// endedKey is a lease by its epoch; or any lease of an attempt, if nobody knows whether one has ended.
type endedKey struct {
	epoch   uint64
	attempt string
}

func (e *ended) expect() int {
	e.steps[e.now]++
	return e.now
}

func (e *ended) settled(generation int) {
	e.steps[generation]--
	e.turn()
}

// turn begins a new generation, if the old one is settled and there is something to forget.
func (e *ended) turn() {
	old := 1 - e.now
	if e.steps[old] > 0 {
		return
	}
	clear(e.over[old])
	if len(e.over[e.now]) > 0 {
		e.now = old
	}
}

// add remembers what ended.
func (e *ended) add(key endedKey) {
	if e.steps[0]+e.steps[1] == 0 {
		return
	}
	if e.over[e.now] == nil {
		e.over[e.now] = map[endedKey]bool{}
	}
	e.over[e.now][key] = true
	e.turn()
}

// has tells whether a lease ended since a step of this generation began, or shortly before.
func (e *ended) has(generation int, key endedKey) bool {
	return e.over[generation][key] || e.over[e.now][key]
}

// finish closes Done, once.
func (l *Lease) finish(cause error) { l.finishAs(cause) }

// finishAs is finish that tells whether it was this call that did it.
func (l *Lease) finishAs(cause error) (first bool) {
	if !l.end(cause) {
		return false
	}
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leases[l.row.Attempt] == l {
		delete(p.leases, l.row.Attempt)
	}
	return true
}

// end closes Done, and tells whether it was this call that did it.
func (l *Lease) end(cause error) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.ended, l.err = true, cause
	if l.done != nil {
		close(l.done)
	}
	return true
}

// renewed takes the answer to a renewal that was sent at an instant.
func (l *Lease) renewed(c *renew, sent instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.seq > l.seq || c.seq == l.seq && l.pool.since(sent) < l.pool.since(l.sent) {
		l.seq, l.expires, l.sent, l.left = c.seq, c.renewed.ExpiresUS, sent, micros(c.leftUS)-l.row.margin()
		l.latest, l.most = c.lease, c.mostUS
	}
}

// Release gives the lease back, also after Done. Whatever comes of it, the work must have stopped. After an error that is ErrUnavailable
// or ErrUncertain call it again.
func (l *Lease) Release(ctx context.Context) (Released, error) {
	r, err := l.pool.release(ctx, l.ref())
	switch {
	case err == nil:
		l.finish(nil)
	case errors.Is(err, ErrStale):
		l.finish(lost(err))
	case errors.Is(err, ErrUncertain): // it may be another's by now
		l.finish(nil)
	}
	return r, wrap("release", err)
}

// lost is what a handle says when its lease is stale.
func lost(err error) error {
	l := &LostError{}
	if stale := (*StaleError)(nil); errors.As(err, &stale) {
		l.CurrentEpoch = stale.Epoch
	}
	return l
}

// Renew prolongs the lease once, for those who don't run Keep.
func (l *Lease) Renew(ctx context.Context) (Renewal, error) {
	r, err := l.renew(ctx)
	return r, wrap("renew", err)
}

func (l *Lease) renew(ctx context.Context) (Renewal, error) {
	l.mu.Lock()
	seq := l.seq + 1
	ended, cause := l.ended, l.err
	l.mu.Unlock()
	if ended {
		return Renewal{}, errors.Join(ErrLost, cause)
	}
	r, err := l.pool.renew(ctx, l.ref(), seq, l)
	switch stale := (*StaleError)(nil); {
	case errors.Is(err, ErrLost):
		l.finish(err)
	case errors.As(err, &stale): // somebody else renews with the same Ref
		l.mu.Lock()
		l.seq = max(l.seq, stale.Seq)
		l.mu.Unlock()
	}
	return r, err
}

const (
	firstRetry = 250 * time.Millisecond
	// A renewal is sent when this part of the time left has passed.
	renewPart = 3
)

// Keep renews the lease until ctx ends or the lease does, and closes Done when it does. Run it in a goroutine of its own, never behind
// the work: it is what makes Done close in time. It returns nil when ctx ended or the lease was released; else ErrLapsed
// when the time is over here, or a [LostError]. The end of ctx does not release.
func (l *Lease) Keep(ctx context.Context) error {
	if ctx == nil {
		return wrap("keep", invalid("ctx", "nil"))
	}
	l.mu.Lock()
	busy := l.keeping
	l.keeping = true
	l.mu.Unlock()
	if busy {
		return wrap("keep", invalid("Keep", "runs already"))
	}
	defer func() {
		l.mu.Lock()
		l.keeping = false
		l.mu.Unlock()
	}()
	return wrap("keep", l.keep(ctx))
}

func (l *Lease) keep(ctx context.Context) error {
	var last error // of a renewal
	retry := firstRetry
	timer := time.NewTimer(l.pause())
	defer timer.Stop()
	// A renewal may be on its way for longer than the lease lasts.
	end := newAlarm(l)
	defer end.stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.Done():
			return l.Err()
		case <-timer.C:
		}
		left := l.Left()
		if left == 0 {
			l.lapse(last)
			return l.Err()
		}
		if l.oldest() {
			timer.Reset(left)
			continue
		}
		limited, cancel := context.WithTimeout(ctx, left)
		_, err := l.renew(limited)
		cancel()
		switch {
		case err == nil:
			last, retry = nil, firstRetry
			end.because(nil)
			timer.Reset(l.pause())
		case errors.Is(err, ErrLost):
			return l.Err()
		default:
			last = err
			end.because(err)
			// Twice as often as the time left needs, so that a store that is back in time is asked in time.
			timer.Reset(min(retry, max(l.Left()/2, firstRetry), l.Left()))
			retry = min(2*retry, max(firstRetry, micros(l.row.TTLUS)/10))
		}
	}
}

// lapse closes Done when the time is over here.
func (l *Lease) lapse(why error) {
	if why == nil {
		l.finish(ErrLapsed)
		return
	}
	l.finish(fmt.Errorf("%w: %w", ErrLapsed, why))
}

// alarm closes Done of a lease in time.
type alarm struct {
	lease *Lease
	mu    sync.Mutex
	why   error       // of the last renewal
	timer *time.Timer // nil: stopped
}

func newAlarm(l *Lease) *alarm {
	a := &alarm{lease: l}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(l.Left(), a.ring)
	return a
}

func (a *alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer == nil {
		return
	}
	if left := a.lease.Left(); left > 0 { // it was renewed
		a.timer.Reset(left)
		return
	}
	a.lease.lapse(a.why)
}

func (a *alarm) because(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.why = err
}

func (a *alarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer.Stop()
	a.timer = nil
}

// pause is how long to wait before the next renewal.
func (l *Lease) pause() time.Duration {
	left := l.Left()
	return min(left, l.pool.spread(left/renewPart))
}

// oldest tells that no renewal can prolong the lease: it is as old as it may get.
func (l *Lease) oldest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expires >= l.most
}

// Renewal is the answer to a Renew.
type Renewal struct {
	Lease     *Lease    // the handle: a new one if the process had none, or one that is done
	ExpiresAt time.Time // on the store's clock
	Left      time.Duration
	// Lapsed says that the lease was over when it was renewed, though nobody had taken it. The holder had no right
	// meanwhile and must check its work.
	Lapsed bool
}

// Renew prolongs the lease of a Ref by its ttl from the store's now, up to its longest life; the epoch stays. seq is the number of the
// renewal, 1, 2, 3 …: a retry with the same number gets the same answer. A lease that is over is a [LostError].
func (p *Pool) Renew(ctx context.Context, ref Ref, seq uint64) (Renewal, error) {
	err := ref.validate()
	if err == nil && (seq == 0 || seq > maxCounter) {
		err = invalid("seq", "%d", seq)
	}
	if err != nil {
		return Renewal{}, wrap("renew", err)
	}
	r, err := p.renew(ctx, ref, int64(seq), nil)
	return r, wrap("renew", err)
}

// renew renews for a handle; nil: for whoever has the Ref.
func (p *Pool) renew(ctx context.Context, ref Ref, seq int64, l *Lease) (Renewal, error) {
	if ref.Pool != p.name {
		return Renewal{}, &StaleError{}
	}
	generation := p.expect()
	defer p.settled(generation)
	c := p.renews.Get()
	c.reset()
	c.ref, c.seq = ref, seq
	sent := p.instant()
	if err := p.do(ctx, c); err != nil {
		p.renews.Done(c, err)
		return Renewal{}, err
	}
	defer p.renews.Put(c)
	expires, left := c.renewed.ExpiresUS, c.leftUS
	if l == nil || !l.open() {
		l = p.newLease(c.lease, c.slots, expires, left, c.mostUS, sent)
	}
	l = p.register(l, false, generation)
	l.renewed(c, sent)
	return Renewal{Lease: l, ExpiresAt: timeOf(expires), Left: micros(c.renewed.LeftUS), Lapsed: c.renewed.Lapsed}, nil
}

// Released is the answer to a Release.
type Released struct {
	Last            LeaseState // the lease as it ended
	AlreadyReleased bool       // by an earlier call
}

// Release ends the lease of a Ref. A lease that ended in another way, or another lease in its place, is ErrStale; nothing but
// this very lease is ever released (R8).
func (p *Pool) Release(ctx context.Context, ref Ref) (Released, error) {
	if err := ref.validate(); err != nil {
		return Released{}, wrap("release", err)
	}
	r, err := p.release(ctx, ref)
	switch {
	case err == nil: // also if an earlier try has released it
		p.finishThe(ref, nil)
	case errors.Is(err, ErrStale) && ref.Identity.IsZero(): // else it may be only the identity that is another one
		p.finishThe(ref, lost(err))
	case errors.Is(err, ErrUncertain): // it may be another's by now
		p.finishThe(ref, &LostError{})
	}
	return r, wrap("release", err)
}

func (p *Pool) release(ctx context.Context, ref Ref) (Released, error) {
	if ref.Pool != p.name {
		return Released{}, &StaleError{}
	}
	c := p.releases.Get()
	c.reset()
	c.ref = ref
	if err := p.do(ctx, c); err != nil {
		p.releases.Done(c, err)
		return Released{}, err
	}
	defer p.releases.Put(c)
	return Released{Last: c.last.state(p.name), AlreadyReleased: c.already}, nil
}

// Verify tells whether the epoch is that of the lease which may use the slot now: VerifyCurrent with a nil error. VerifyLapsed
// comes with ErrLapsed, VerifyStale with a [StaleError]. A resource asks this before it takes a result, or keeps the
// highest epoch that it has seen and refuses lower ones (R17).
func (p *Pool) Verify(ctx context.Context, slot int, epoch uint64) (Verification, error) {
	var err error
	switch {
	case slot < 0:
		err = invalid("slot", "%d", slot)
	case epoch == 0:
		err = invalid("epoch", "0")
	}
	c := &verify{index: slot, epoch: epoch}
	if err == nil {
		err = p.look(ctx, c)
	}
	if err == nil {
		switch c.answer.Status {
		case VerifyCurrent:
		case VerifyLapsed:
			err = ErrLapsed
		default:
			err = &StaleError{Epoch: c.answer.Current}
		}
	}
	return c.answer, wrap("verify", err)
}
