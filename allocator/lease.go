package allocator

import (
	"context"
	"errors"
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
	taken    bool // by a call; guarded by the pool's mu
	keeping  bool
	ended    bool
	err      error
	done     chan struct{} // made when somebody asks
}

// margin is how long before its end a lease is given up by its holder: ttl/10, at least 1 s.
func (l *LeaseRow) margin() time.Duration { return max(micros(l.TTLUS)/10, time.Second) }

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

// Done is closed when the lease was released or lost, or may have been, or, while Keep runs, when its time is over here. It never opens
// again: after it the handle serves Release only.
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
// or ErrUncertain call it again; after the latter Done is closed, for the slot may be another's.
func (l *Lease) Release(ctx context.Context) (Released, error) {
	r, err := l.pool.release(ctx, l.ref())
	switch {
	case err == nil:
		l.finish(nil)
	case errors.Is(err, ErrStale):
		l.finish(lost(err))
	case errors.Is(err, ErrUncertain):
		l.pool.unsure(l.Epoch(), nil)
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
	f := p.expect()
	defer p.settled(f)
	c := p.renews.Get()
	c.reset()
	c.ref, c.seq = ref, seq
	sent := p.instant()
	if err := p.do(ctx, c); err != nil {
		p.renews.Done(c, err)
		return Renewal{}, err
	}
	defer p.renews.Put(c)
	if p.closed.Load() {
		return Renewal{}, ErrClosed
	}
	expires, left := c.renewed.ExpiresUS, c.leftUS
	if l == nil || !l.open() {
		l = p.newLease(c.lease, c.slots, expires, left, c.mostUS, sent)
	}
	l = p.register(l, false, f)
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
	case errors.Is(err, ErrUncertain):
		p.unsure(ref.Epoch, &LostError{})
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
