package spendlimit

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// LeaseRequest asks for a lease: room that this process takes from the ledger in large pieces, and gives out in small
// ones from memory.
type LeaseRequest struct {
	// Key names the lease's first hold on the ledger, for ever; the next ones are Key~2, Key~3 …, one per period of the limits.
	// 1 to 240 bytes. Each process, and each start of it, takes a key of its own.
	Key string
	// Accounts that pay, 1 to 16; each must admit what the lease takes.
	Accounts []string
	// Chunk is the most that the lease takes at once and keeps unused, and the largest hold that it serves; above 0.
	Chunk Amount
	// MinChunk, at most Chunk, is the smallest piece worth taking while there is room for it. Where the limits' room, shared
	// by all leases, asks for less than Chunk, the lease takes less, down to MinChunk (R82). 0 is Chunk: pieces of one size.
	MinChunk Amount
	// TTL is the time after which the lease's hold lapses unless Sync renews it: 15 s to 24 h, 0 is 5 minutes. The lease
	// grants nothing in the last 5 s of it.
	TTL time.Duration
	// Local makes an empty store for the lease's own holds, which lives as long as this process; it is called at least once
	// per period. Required: func() spendlimit.Store { return memory.New(nil).Spend() }.
	Local func() Store
	// Clock measures how long ago the lease was renewed; nil is time.Now. Only differences count, by the monotonic clock and by
	// the other one: the larger, so that neither a clock that steps back nor a machine that sleeps makes a lease last longer.
	Clock func() time.Time
}

// Bounds of leases.
const (
	defaultLeaseTTL = 5 * time.Minute
	minLeaseTTL     = 15 * time.Second
	leaseMargin     = 5 * time.Second // before its hold lapses, a lease grants nothing more (R78)
	maxLeaseKey     = 240
	maxServed       = 1 << 15 // holds on one local store, which keeps them all
	leaseLabel      = "stint:lease"
)

func (r *LeaseRequest) validate(unit Unit) error {
	if err := validateName("Key", r.Key); err != nil {
		return err
	}
	switch {
	case len(r.Key) > maxLeaseKey:
		return invalid("Key", "%d bytes, at most %d", len(r.Key), maxLeaseKey)
	case r.Chunk <= 0:
		return invalid("Chunk", "not above 0")
	case r.MinChunk < 0:
		return invalid("MinChunk", "negative")
	case r.MinChunk > r.Chunk:
		return invalid("MinChunk", "above Chunk")
	case r.TTL < minLeaseTTL || r.TTL > maxTTL:
		return invalid("TTL", "%v, want 0 or %v to %v", r.TTL, minLeaseTTL, maxTTL)
	case r.Local == nil:
		return invalid("Local", "nil")
	}
	central := Request{Key: r.Key, Accounts: r.Accounts, Amount: r.Chunk}
	return central.validate(unit)
}

// Lease serves small holds from memory, inside a hold that it has on the ledger and keeps alive. What it takes from the
// ledger counts there as held from that moment, used or not, so no limit is ever exceeded by it; when the process dies,
// that counts as spent until somebody settles the hold with the true cost.
//
// Its holds are those of [Ledger], with the same methods, and with keys of their own: they live in memory, and are
// forgotten some time after they end. Their costs reach the ledger with the next Sync. The lease starts no goroutine: either
// [Lease.Run] runs in one of the caller's, or the caller calls [Lease.Sync] at least every TTL/3. An Observer must not call
// the lease. Safe for concurrent use.
type Lease struct {
	central *Ledger
	req     LeaseRequest  // Accounts sorted, defaults filled in
	nonce   string        // tells this lease's holds from those of another process with the same key
	wire    chan struct{} // one central call at a time
	pending atomic.Int64  // wanted by the callers that wait for the wire
	current atomic.Pointer[tranche]
	old     atomic.Pointer[[]*tranche] // those that have holds left; never changed in place
	low     chan struct{}              // to Run: most of the room may be used
	closed  atomic.Bool

	// Under the wire:
	next   int      // number of the next tranche
	unsure bool     // its hold may have been taken already
	opened *tranche // without a hold yet, or the newest one
}

// LeaseState is what a lease has, as of the Sync that returned it.
type LeaseState struct {
	Hold   string // key of its hold on the ledger; "" while it has none
	Spent  Amount // known and assumed cost of the holds in Hold
	Held   Amount // by live holds in Hold
	Free   Amount // what Reserve can grant without asking the ledger
	Leases int    // live leases on the account, this one included
	Recall bool   // room is scarce: an idle lease gives back what is free (R82)
	Old    int    // holds on the ledger from before Hold that still have live or unpriced local holds
}

// Lease takes a piece of the accounts' room, at most r.Chunk, to serve holds from memory (R77). It is refused as a Reserve is,
// with a [DeniedError], when there is no room at all. After ErrUncertain call again with the same key on this Ledger;
// the key of another lease is ErrKeyReused, so that no two processes share one.
func (l *Ledger) Lease(ctx context.Context, r LeaseRequest) (*Lease, error) {
	if r.TTL == 0 {
		r.TTL = defaultLeaseTTL
	}
	if r.Clock == nil {
		r.Clock = time.Now
	}
	err := r.validate(l.cfg.Unit)
	if err == nil && ctx == nil {
		err = invalid("ctx", "nil")
	}
	if err != nil {
		return nil, wrap("lease", err)
	}
	r.MinChunk = cmp.Or(r.MinChunk, r.Chunk)
	r.Accounts = sorted(r.Accounts)
	lease := &Lease{central: l, req: r, wire: make(chan struct{}, 1), low: make(chan struct{}, 1), next: 1}
	lease.old.Store(new([]*tranche))
	if lease.nonce, lease.unsure, err = l.takes.begin(r.Key); err != nil {
		return nil, wrap("lease", err)
	}
	err = lease.take(ctx)
	again := lease.unsure && errors.Is(err, ErrKeyReused) // with other content: the first take stays as unknown as it was
	l.takes.end(r.Key, again || err != nil && undecided(err))
	if err != nil {
		return nil, wrap("lease", l.hint(ctx, "", err))
	}
	return lease, nil
}

// nonces remembers those of takes that are under way, and of those whose answer is not known, so that the same process can
// ask again.
type nonces struct {
	mu sync.Mutex
	of map[string]*nonce
}

type nonce struct {
	text string
	busy bool
}

// begin also tells whether the key was asked for before. Two that ask at once would get one hold. The text is not of
// Config.Random, which may be the same in two processes.
func (n *nonces) begin(key string) (text string, again bool, _ error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	have, again := n.of[key]
	switch {
	case !again:
		have = &nonce{text: rand.Text()}
		if n.of == nil {
			n.of = map[string]*nonce{}
		}
		n.of[key] = have
	case have.busy:
		return "", false, ErrKeyReused
	}
	have.busy = true
	return have.text, again, nil
}

func (n *nonces) end(key string, unknown bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of[key].busy = false; !unknown {
		delete(n.of, key)
	}
}

// Reserve is [Ledger.Reserve], from memory where it can be. If the lease has too little free, it takes what is missing, and
// a prefetch, from the ledger; its refusal is final only after the ledger's. It grants nothing, and refuses with ReasonLease,
// when its last renewal was sent TTL − 5 s ago and when a period of its limits has ended since; and it takes nothing from the
// ledger while the answer to a Sync is not known (R78).
//
// What the lease can't serve goes to the ledger itself: more than Chunk, a Rest, a Split, other accounts than the lease's,
// and children of the ledger's holds. A child of a local hold has no accounts of its own.
func (l *Lease) Reserve(ctx context.Context, r Request) (*Hold, error) {
	for {
		current := l.current.Load() // before the old ones, so that a tranche that is replaced meanwhile is asked too
		t, err := l.home(ctx, &r, current)
		switch {
		case err != nil:
			return nil, wrap("reserve", err)
		case t == nil:
			return l.central.Reserve(ctx, r)
		}
		h, err := t.reserve(ctx, &r)
		if t != current || !t.gone(err) {
			return h, wrap("reserve", err)
		}
	}
}

// home is the tranche that answers a request: its key's, its parent's, or the current one; nil: the ledger does.
func (l *Lease) home(ctx context.Context, r *Request, current *tranche) (*tranche, error) {
	switch {
	case ctx == nil:
		return nil, invalid("ctx", "nil")
	case l.closed.Load():
		return nil, ErrClosed
	}
	old := *l.old.Load()
	for _, t := range old {
		if t.has(ctx, r.Key) {
			return t, nil
		}
	}
	if l.serves(r) {
		if current != nil {
			return current, nil
		}
		return nil, cmp.Or(r.validate(l.central.cfg.Unit), stopTime.refusal())
	}
	if current != nil {
		if current.has(ctx, r.Key) { // with other content
			return current, nil
		}
		old = append(slices.Clip(old), current)
	}
	if r.Parent == "" {
		return nil, nil
	}
	for _, t := range old {
		if !t.has(ctx, r.Parent) {
			continue
		}
		if slices.ContainsFunc(r.Accounts, func(a string) bool { return !slices.Contains(l.req.Accounts, a) }) {
			return nil, invalid("Accounts", "a child of a lease's hold has none of its own")
		}
		return t, nil
	}
	return nil, nil
}

// serves tells whether a root is the lease's own to grant.
func (l *Lease) serves(r *Request) bool {
	if r.Parent != "" || r.Rest || r.Split != (Split{}) || r.Amount > l.req.Chunk || len(r.Accounts) != len(l.req.Accounts) {
		return false
	}
	for _, a := range r.Accounts {
		if !slices.Contains(l.req.Accounts, a) {
			return false
		}
	}
	return true
}

// Hold returns a hold of the lease, or of its ledger, as it is now.
func (l *Lease) Hold(ctx context.Context, key string) (*Hold, error) {
	current := l.current.Load() // before the old ones, as above
	list := *l.old.Load()
	if current != nil {
		list = append(slices.Clip(list), current)
	}
	for _, t := range list {
		if h, err := t.local.Hold(ctx, key); !errors.Is(err, ErrNotFound) {
			return h, err
		}
	}
	return l.central.Hold(ctx, key)
}

// Sync renews the lease: in one step of the ledger it records what its holds have cost so far, gives back what is free
// beyond Chunk, and extends its hold (R79). An idle lease gives back all that is free when room is scarce. When a period of
// the limits has ended or the hold has lapsed, the lease takes a new hold, and the old one stays until the last of its local
// holds has ended. With most of its room used it takes more, in the same step.
//
// What is given back can't be granted from before it is sent until the answer is known: after ErrUncertain call again.
// A [DeniedError] says that there is no room for a new hold; the lease goes on with what it has, if anything.
func (l *Lease) Sync(ctx context.Context) (LeaseState, error) {
	if err := l.lock(ctx); err != nil {
		return LeaseState{}, wrap("sync", err)
	}
	defer l.unlock()
	return l.sync(ctx)
}

func (l *Lease) sync(ctx context.Context) (LeaseState, error) {
	if l.closed.Load() {
		return LeaseState{}, wrap("sync", ErrClosed)
	}
	err := l.renew(ctx)
	var drained error
	for _, t := range *l.old.Load() {
		drained = errors.Join(drained, l.drain(ctx, t))
		if l.current.Load() == nil && errors.Is(err, ErrDenied) { // what was given back may be enough
			err = l.take(ctx)
		}
	}
	err = errors.Join(err, drained)
	state, lookErr := l.state(ctx)
	return state, wrap("sync", errors.Join(l.central.hint(ctx, "", err), lookErr))
}

// renew keeps the current tranche going, or replaces it.
func (l *Lease) renew(ctx context.Context) error {
	t := l.current.Load()
	if t != nil {
		if err := t.sync(ctx, l.req.Chunk); err != nil && !t.ended {
			return err
		}
		switch {
		case t.ended || t.over():
			l.replace(nil)
		case t.aging():
			err := l.take(ctx)
			if errors.Is(err, ErrDenied) { // it may have the room itself
				if err = t.sync(ctx, 0); err == nil {
					err = l.take(ctx)
				}
			}
			return err
		case t.terms.recall && t.idle():
			return t.sync(ctx, 0)
		}
	}
	if l.current.Load() != nil {
		return nil
	}
	return l.take(ctx)
}

// Run calls Sync whenever it is due: every TTL/3, when 80 % of the room is used, when a period of the limits has ended, and
// again soon after a failure of the store. It returns when ctx ends, with its error; when the lease is closed, with nil;
// and with an error of Sync that trying again can't cure.
func (l *Lease) Run(ctx context.Context) error {
	if ctx == nil {
		return wrap("run", invalid("ctx", "nil"))
	}
	retry := firstPoll
	timer := time.NewTimer(l.pause(nil, retry))
	defer timer.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.low:
			if worn, lowErr := l.syncWorn(ctx); worn {
				err = lowErr
				break
			}
			continue
		case <-timer.C:
			_, err = l.Sync(ctx)
		}
		switch {
		case errors.Is(err, ErrClosed):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUncertain) && !errors.Is(err, ErrDenied):
			return err
		}
		if retry = min(2*retry, lastPoll); err == nil {
			retry = firstPoll
		}
		timer.Reset(l.pause(err, retry))
	}
}

// pause is the time until Run calls Sync again.
func (l *Lease) pause(err error, retry time.Duration) time.Duration {
	wait := l.req.TTL / 3
	var denied *DeniedError
	switch {
	case errors.As(err, &denied):
		wait = min(wait, max(denied.RetryAfter, retry))
	case err != nil:
		wait = min(wait, retry)
	}
	if t := l.current.Load(); t != nil {
		if m := t.term.Load(); m != nil {
			wait = min(wait, max(m.left(l.req.Clock()), firstPoll/10))
		}
	}
	return wait
}

// syncWorn is Sync where 80 % of the current tranche's room is used. It looks with the wire in its hand, so that no caller
// fetches the room first.
func (l *Lease) syncWorn(ctx context.Context) (worn bool, err error) {
	if l.lock(ctx) != nil {
		return false, nil
	}
	defer l.unlock()
	if worn = l.worn(ctx); worn {
		_, err = l.sync(ctx)
	}
	return worn, err
}

// worn tells whether 80 % of the current tranche's room is used.
func (l *Lease) worn(ctx context.Context) bool {
	t := l.current.Load()
	if t == nil {
		return true
	}
	base := Amount(t.base.Load())
	o, err := t.take(ctx, look())
	t.base.Store(int64(base))
	if err == nil && o.free > base/5 && !t.aging() {
		t.used.Store(int64(base - o.free)) // what was granted and not spent is free again
		return false
	}
	return true
}

// Close ends the lease: it grants nothing more, and its hold on the ledger is settled with what its holds have cost. Live
// local holds are closed, as [Hold.Close] does: open ones are released; dispatched ones count as spent at what they held,
// and so does cost that nobody knows, until the hold on the ledger is settled with the true cost. Later calls that would
// change a local hold are ErrClosed. It runs on when ctx ends, for at most 5 s; after an error call again.
func (l *Lease) Close(ctx context.Context) error {
	if ctx == nil {
		return wrap("close", invalid("ctx", "nil"))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endDeadline)
	defer cancel()
	if err := l.lock(ctx); err != nil {
		return wrap("close", err)
	}
	defer l.unlock()
	l.closed.Store(true)
	select {
	case l.low <- struct{}{}: // Run is to see it
	default:
	}
	l.replace(nil)
	var errs []error
	if l.unsure { // what it may have taken would be charged
		if err := l.take(ctx); err == nil {
			l.replace(nil)
		} else if undecided(err) {
			errs = append(errs, err)
		}
	}
	for _, t := range *l.old.Load() {
		errs = append(errs, l.end(ctx, t))
	}
	return wrap("close", errors.Join(errs...))
}

// lock takes the wire.
func (l *Lease) lock(ctx context.Context) error {
	if ctx == nil {
		return invalid("ctx", "nil")
	}
	select {
	case l.wire <- struct{}{}:
		return nil
	default:
	}
	select {
	case l.wire <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Lease) unlock() { <-l.wire }

func (l *Lease) chunk() chunk {
	return chunk{most: l.req.Chunk, least: l.req.MinChunk, pending: Amount(l.pending.Load())}
}

// take makes the next tranche the current one.
func (l *Lease) take(ctx context.Context) error {
	for {
		key := l.req.Key
		if l.next > 1 {
			key = fmt.Sprintf("%s~%d", key, l.next)
		}
		size := l.chunk()
		c := &leaseTake{reserve: reserve{
			req: Request{
				Key: key, Accounts: l.req.Accounts, Amount: l.req.Chunk, Min: l.req.MinChunk, Split: Split{Group: leaseGroup, Slots: 1},
			},
			labels: []Label{{leaseLabel, l.nonce}}, ttl: ttlMicros(l.req.TTL), chunk: &size,
		}}
		t, err := l.open(key)
		if err != nil {
			return err
		}
		sent := l.req.Clock()
		err = l.central.do(ctx, c)
		var gone *EndedError
		if errors.As(err, &gone) && l.unsure { // taken without an answer, never used, and lapsed since
			if _, err := l.central.Release(ctx, key, NotSpent); undecided(err) {
				return err
			}
			l.next, l.unsure = l.next+1, false
			continue
		}
		if err != nil {
			l.unsure = l.unsure || errors.Is(err, ErrUncertain)
			return err
		}
		if err := t.learn(ctx, c.terms); err != nil {
			l.unsure = true
			return err
		}
		t.renewed(sent)
		l.next, l.unsure = l.next+1, false
		l.replace(t)
		return nil
	}
}

// open makes the local ledger of a tranche. One that was refused serves the next try.
func (l *Lease) open(key string) (*tranche, error) {
	if l.opened != nil && l.opened.key == key {
		return l.opened, nil
	}
	store := l.req.Local()
	if store == nil {
		return nil, invalid("Local", "it made no store")
	}
	t := &tranche{lease: l, key: key}
	cfg := Config{Name: key, Unit: l.central.cfg.Unit, NoLimit: Allow, Patience: l.central.cfg.Patience, Random: l.central.cfg.Random}
	if tell := l.central.cfg.Observer; tell != nil {
		cfg.Observer = func(e Event) {
			if e.Kind == EventLapsed || e.Kind == EventAnomaly { // the limits are the central ledger's to tell about
				tell(e)
			}
		}
	}
	local, err := New(store, cfg)
	if err != nil {
		return nil, err
	}
	local.within = t
	t.local = local
	l.opened = t
	return t, nil
}

// replace ends the granting of the current tranche, if any, and makes next the current one; nil: none. Whoever loads the
// current one and then the old ones finds every key that was granted before.
func (l *Lease) replace(next *tranche) {
	if t := l.current.Load(); t != nil {
		l.old.Store(new(append(slices.Clone(*l.old.Load()), t)))
		t.retired.Store(true)
		t.term.Store(nil)
	}
	l.current.Store(next)
}

// forget drops a tranche of which the ledger knows all.
func (l *Lease) forget(t *tranche) {
	t.shut.Store(true)
	l.old.Store(new(slices.DeleteFunc(slices.Clone(*l.old.Load()), func(o *tranche) bool { return o == t })))
}

// drain gives back what a retired tranche has free, and settles it once all its holds have ended with a known cost.
func (l *Lease) drain(ctx context.Context, t *tranche) error {
	if t.settling {
		return l.settle(ctx, t)
	}
	if err := t.sync(ctx, 0); err != nil {
		return l.lost(t, err)
	}
	o, err := t.take(ctx, lookAll())
	if err != nil || !o.over() {
		return err
	}
	t.shut.Store(true)
	if o, err = t.take(ctx, lookAll()); err != nil || !o.over() { // something came between the two looks
		t.shut.Store(false)
		return err
	}
	return l.settle(ctx, t)
}

// end closes what a retired tranche has left, and its hold on the ledger.
func (l *Lease) end(ctx context.Context, t *tranche) error {
	if t.settling {
		return l.settle(ctx, t)
	}
	if !t.shut.Load() {
		for h, err := range t.local.Holds(ctx, HoldFilter{Live: true}) {
			if err == nil {
				err = t.local.Close(ctx, h.Key)
			}
			if err != nil {
				return err
			}
		}
	}
	t.shut.Store(true)
	if err := t.sync(ctx, 0); err != nil {
		return l.lost(t, err)
	}
	if o, err := t.take(ctx, lookAll()); err != nil || o.over() {
		if err != nil {
			return err
		}
		return l.settle(ctx, t)
	}
	// It is charged at what is left of it, which is what the local holds are assumed to have cost.
	err := l.central.Close(ctx, t.key)
	if err == nil {
		l.forget(t)
	}
	return err
}

// settle ends the hold of a shut tranche with what its local holds have cost, as of the last look.
func (l *Lease) settle(ctx context.Context, t *tranche) error {
	t.settling = true
	_, err := l.central.Settle(ctx, t.key, Total(t.last.known))
	if err == nil {
		l.forget(t)
		return nil
	}
	var gone *EndedError
	t.ended = errors.As(err, &gone)
	return l.lost(t, err)
}

// lost drops a tranche whose hold somebody else has ended: there is nobody to tell what more its local holds cost.
func (l *Lease) lost(t *tranche, err error) error {
	if t.ended {
		l.forget(t)
	}
	return err
}

// state looks at the current tranche.
func (l *Lease) state(ctx context.Context) (LeaseState, error) {
	s := LeaseState{Old: len(*l.old.Load())}
	t := l.current.Load()
	if t == nil {
		return s, nil
	}
	o, err := t.take(ctx, look())
	s.Hold, s.Spent, s.Held, s.Free = t.key, o.known+o.assumed, o.held, o.free
	s.Leases, s.Recall = t.terms.leases, t.terms.recall
	return s, err
}
