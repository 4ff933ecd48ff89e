package allocator

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/combine"
	"github.com/stint-go/stint/internal/fault"
)

// Options are the options of a Pool; the zero value has all defaults.
type Options struct {
	// Clock is this process's own time, by which a handle knows when its lease may be over. It decides nothing in the store. Both of
	// its readings count, because a monotonic clock may stand still while a laptop sleeps. nil is the system's.
	Clock func() (wall time.Time, monotonic time.Duration)
	// Rand is where ids and the spread of polls come from; nil is crypto/rand.
	Rand io.Reader
	// Holder is this incarnation of the process; nil is a new one. Pools of one process should share one: [ThisProcess]. For one pool
	// a process should have one Pool: two with one Holder take each other's leases for their own.
	Holder *Holder
	// HostID is the operator's name for this host. Only such a name proves that the host was booted anew since a lease was taken, so
	// no two hosts may have the same, and cloned images must not carry it.
	HostID string
	// BootID replaces the id of this boot, for systems that have no random one. It must change with every boot, and never
	// be that of another host. All processes of a host give the same one, or none does: to those with one HostID, another boot id says that
	// the host was booted anew.
	BootID string
	// Owners asks this system for processes; nil is [System].
	Owners OwnerProber
	// Observer hears of leases that ended otherwise than by their holders, after it is committed. It is called on the goroutine of a
	// caller, maybe on several at once, and should return fast. It may call the pool. An event is lost with its process, or with a caller that
	// left before the answer: what ended is in Leases.
	Observer func(Event)
}

// Event is one thing that an Observer hears of.
type Event struct {
	Pool  string
	Lease LeaseState // that ended
}

const (
	maxBatch      = 512
	batchDeadline = 10 * time.Second
	leaveDeadline = time.Second // of calls that must not be lost with their caller (R6c)
	ownerDeadline = time.Second // of an owner pass (R12a)
	maxOwners     = 64
)

// Pool leases the slots of one pool. All methods are safe for concurrent use; concurrent calls are combined into one store step. It
// starts no goroutine.
//
// Errors wrap one of three kinds: decided (ErrFull, ErrStale …), not applied (ErrUnavailable, or the context's own
// error), maybe applied (ErrUncertain). After ErrUncertain call again with the same arguments: the answer is the true one.
type Pool struct {
	store     Store
	name      string
	o         Options
	holder    Holder
	hostGiven bool
	closed    atomic.Bool
	gone      atomic.Bool // what this incarnation had is given back
	lane      *combine.Lane[command]
	batch     batch

	acquires combine.Spare[acquire]
	renews   combine.Spare[renew]
	releases combine.Spare[release]

	here     atomic.Int64 // calls that wait
	mu       sync.Mutex
	leases   map[string]*Lease // handles by attempt
	tidyAt   int               // how many handles are too many
	waiters  map[string]*waiter
	over     ended // own leases
	probedTo int64 // epoch up to which owners were asked
	random   sync.Mutex
	lastID   LeaseID // scratch of newID
}

// New returns the pool of this name on a store. It does no I/O but ask the system for this process; the pool itself is made by
// Create, once for all processes.
func New(s Store, pool string, o Options) (*Pool, error) {
	p, err := newPool(s, pool, o)
	if err != nil {
		return nil, fmt.Errorf("allocator: new: %w", err)
	}
	return p, nil
}

func newPool(s Store, name string, o Options) (*Pool, error) {
	if s == nil {
		return nil, invalid("store", "nil")
	}
	if err := validateName("pool", name); err != nil {
		return nil, err
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	o.Rand = bufio.NewReaderSize(o.Rand, 512) // ids are short
	if o.Clock == nil {
		o.Clock = systemClock(time.Now())
	}
	if o.Owners == nil {
		o.Owners = System()
	}
	p := &Pool{store: s, name: name, o: o, leases: map[string]*Lease{}, waiters: map[string]*waiter{}}
	if o.Holder != nil {
		p.holder = *o.Holder
	} else {
		h, err := ThisProcess(o.Rand)
		if err != nil {
			return nil, err
		}
		p.holder = h
	}
	if o.HostID != "" {
		p.holder.Host, p.hostGiven = o.HostID, true
	}
	if o.BootID != "" {
		p.holder.Boot = o.BootID
	}
	if err := p.holder.validate(); err != nil {
		return nil, err
	}
	p.batch = batch{pool: p, step: step{newID: p.newID, me: p.holder.Incarnation, waitHere: p.waitsHere, set: NewSet()}}
	p.batch.judge = p.batch.run
	p.lane = combine.New(maxBatch, batchDeadline, p.runBatch)
	return p, nil
}

func (h *Holder) validate() error {
	if h.Incarnation == (Incarnation{}) {
		return invalid("Holder.Incarnation", "zero")
	}
	for _, f := range []struct{ field, value string }{{"Holder.Host", h.Host}, {"Holder.Boot", h.Boot}, {"Holder.Namespace", h.Namespace}} {
		if f.value == "" {
			continue
		}
		if err := validateName(f.field, f.value); err != nil {
			return err
		}
	}
	if h.PID < 0 || h.Start < 0 {
		return invalid("Holder.PID", "negative")
	}
	return nil
}

// systemClock counts from an instant that has both readings.
func systemClock(start time.Time) func() (time.Time, time.Duration) {
	return func() (time.Time, time.Duration) {
		now := time.Now()
		return now.Round(0), now.Sub(start)
	}
}

// Name returns the pool's name.
func (p *Pool) Name() string { return p.name }

// Holder returns who this process is.
func (p *Pool) Holder() Holder { return p.holder }

// newID makes the id of a lease.
func (p *Pool) newID() LeaseID {
	p.random.Lock()
	defer p.random.Unlock()
	if _, err := io.ReadFull(p.o.Rand, p.lastID[:]); err != nil {
		panic(fmt.Sprintf("allocator: no randomness: %v", err)) // as crypto/rand itself
	}
	if p.lastID == (LeaseID{}) {
		panic("allocator: no randomness: all zeros")
	}
	return p.lastID
}

// spread returns d, 10 % more or less.
func (p *Pool) spread(d time.Duration) time.Duration {
	id := p.newID()
	return d - d/10 + d/5*time.Duration(id[0])/255
}

// instant is a moment on this process's clock.
type instant struct {
	wall      time.Time
	monotonic time.Duration
}

func (p *Pool) instant() instant {
	w, m := p.o.Clock()
	return instant{w, m}
}

// since is how long ago an instant was: the longer of what both clocks say.
func (p *Pool) since(i instant) time.Duration {
	now := p.instant()
	return max(now.wall.Sub(i.wall), now.monotonic-i.monotonic)
}

// batch is the work of the lane's leader. Only one runs at a time, so its slices are used again.
type batch struct {
	pool     *Pool
	need     Need
	step     step
	commands []command
	judge    func(clock int64, s *Set) error // b.run, made once
	judged   bool
	sent     instant
	// What the last step met: the next one asks for it at once.
	waiting, short bool
}

// runBatch runs commands in one store step.
func (p *Pool) runBatch(ctx context.Context, commands []command) error {
	b := &p.batch
	b.commands = commands
	b.need.reset(p.name)
	for _, c := range commands {
		c.need(&b.need)
	}
	if b.waiting {
		b.need.Free += 4
	}
	b.need.Next = b.short
	if p.here.Load() > 0 {
		b.sent = p.instant() // before any now of the store
	}
	if err := p.steps(ctx, &b.need, &b.step, b.judge, &b.judged); err != nil {
		return err
	}
	b.done()
	return nil
}

// maxMore is how often a step that finds that it needs more rows asks for them, before it takes the whole pool.
const maxMore = 3

// steps makes a step, again and again while it needs more rows.
func (p *Pool) steps(ctx context.Context, n *Need, s *step, judge func(int64, *Set) error, judged *bool) error {
	for try := 0; ; try++ {
		*judged = false
		s.loads = n
		err := p.store.Step(ctx, *n, judge)
		switch {
		case err == nil && !*judged:
			return errNotJudged
		case !errors.Is(err, errMore):
			return err
		case n.All && try > maxMore+2:
			return fmt.Errorf("%w: the store does not load what a step needs", ErrUnavailable)
		}
		*n = s.need
		n.All = n.All || try >= maxMore
	}
}

// errNotJudged: nothing is granted on the word of a store that did not ask.
var errNotJudged = fmt.Errorf("%w: the store made a step without judging it", ErrUnavailable)

func (b *batch) run(clock int64, set *Set) error {
	s := &b.step
	s.set, s.clock = set, clock
	if err := s.apply(b.commands); err != nil {
		return err
	}
	b.judged = true
	p := set.Pool()
	b.waiting = p != nil && p.Waiting > 0
	return nil
}

// done hands out what a committed step gave to others than its callers.
func (b *batch) done() {
	s := &b.step
	b.short = false
	for _, c := range b.commands {
		b.short = b.short || errors.Is(c.base().err, ErrFull)
	}
	b.pool.seat(b.commands)
	if len(s.granted)+len(s.dropped) > 0 {
		b.pool.deliver(s.granted, s.dropped, b.sent)
	}
	if len(s.over) > 0 {
		b.pool.finish(s.over)
	}
	for _, epoch := range s.lost {
		if l := b.pool.handle(func(l *LeaseRow) bool { return l.Epoch == epoch }); l != nil {
			l.finish(&LostError{Reason: ReasonForced})
		}
	}
	if b.pool.o.Observer != nil {
		leader := b.commands[0].base()
		for _, l := range s.ended {
			leader.events = append(leader.events, Event{Pool: b.pool.name, Lease: l.state(b.pool.name)})
		}
	}
}

// do runs a command that may change rows.
func (p *Pool) do(ctx context.Context, c command) error {
	switch {
	case ctx == nil:
		return invalid("ctx", "nil")
	case p.closed.Load():
		return ErrClosed
	}
	return p.outcome(c, p.lane.Do(ctx, c), ctx.Err())
}

// doDetached runs a command that must not be lost with its caller.
func (p *Pool) doDetached(limit time.Duration, c command) error {
	return p.outcome(c, p.lane.DoWithin(limit, c), context.DeadlineExceeded)
}

// outcome is the answer to a command that went through the lane; cause says why its caller left early, if it did.
func (p *Pool) outcome(c command, err, cause error) error {
	if err != nil {
		return combine.Outcome(err, cause)
	}
	k := c.base()
	for _, e := range k.events {
		p.o.Observer(e)
	}
	return k.err
}

// look runs a command that changes nothing, beside the lane.
func (p *Pool) look(ctx context.Context, c command) error {
	switch {
	case ctx == nil:
		return invalid("ctx", "nil")
	case p.closed.Load():
		return ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	n := Need{Pool: p.name, ReadOnly: true}
	c.need(&n)
	s := step{newID: p.newID, me: p.holder.Incarnation}
	judged := false
	err := p.steps(ctx, &n, &s, func(clock int64, set *Set) error {
		s.set, s.clock = set, clock
		judged = true
		return s.apply([]command{c})
	}, &judged)
	if err != nil && !fault.HasPhase(err) {
		return errors.Join(ErrUnavailable, err) // a look is never applied
	}
	if err != nil {
		return err
	}
	return c.base().err
}

// wrap names the operation, once, at the edge.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("allocator: %s: %w", op, err)
}

// Create makes the pool, or finds that it exists with the same Spec; with another one it is a [ConfigError], and the pool stays as
// it is. Capacity, policy and groups are state of the pool: no other call takes a capacity of its own (R3).
func (p *Pool) Create(ctx context.Context, spec Spec) (PoolState, error) {
	err := spec.validate()
	if err != nil {
		return PoolState{}, wrap("create", err)
	}
	if spec.Policy == nil {
		policy := DefaultPolicy()
		spec.Policy = &policy
	}
	// The caller's own may change as soon as it is back, and a leader may still work for it.
	spec.Policy, spec.Groups, spec.Attrs = clonePointer(spec.Policy), cloneGroups(spec.Groups), cloneAttrs(spec.Attrs)
	sortGroups(spec.Groups)
	c := &create{name: p.name, spec: spec}
	if err := p.do(ctx, c); err != nil {
		return PoolState{}, wrap("create", err)
	}
	return c.state, nil
}

// State returns the pool as it is. It writes nothing.
func (p *Pool) State(ctx context.Context) (PoolState, error) {
	c := &look{}
	if err := p.look(ctx, c); err != nil {
		return PoolState{}, wrap("state", err)
	}
	return c.state, nil
}

// Admin identifies a change of the pool by an operator (R20). The version is the one that was looked at, from [PoolState]; if
// the pool has another one by now the call is a [StaleError]. A retry with the same ID and content gets the first answer, as
// long as no other change came after it.
type Admin struct {
	ID      string // of the call, chosen by the caller: 1 to 256 bytes
	Version int64
}

func (p *Pool) admin(ctx context.Context, op string, a Admin, content any, change func(*step) error) (PoolState, error) {
	err := validateName("ID", a.ID)
	if err == nil && a.Version < 1 {
		err = invalid("Version", "%d", a.Version)
	}
	if err != nil {
		return PoolState{}, wrap(op, err)
	}
	text, err := json.Marshal([]any{op, a.Version, content})
	if err != nil {
		return PoolState{}, wrap(op, err)
	}
	c := &admin{id: a.ID, version: a.Version, digest: sha256.Sum256(text), change: change}
	if err := p.do(ctx, c); err != nil {
		return PoolState{}, wrap(op, err)
	}
	return c.state, nil
}

// Resize changes the capacity, also below what is in use: no lease is touched, nothing is granted until there is room again, and
// slots beyond the capacity retire as they become free (R18). Waiting requests that can't fit any more end with ErrInvalid.
func (p *Pool) Resize(ctx context.Context, a Admin, capacity int) (PoolState, error) {
	if err := validateCapacity(capacity); err != nil {
		return PoolState{}, wrap("resize", err)
	}
	return p.admin(ctx, "resize", a, capacity, func(s *step) error { return s.resize(capacity) })
}

// Drain stops grants. Leases live on and may be renewed, until the deadline if there is one; one in the past refuses renewals from
// now on. Nothing is ended (R19).
func (p *Pool) Drain(ctx context.Context, a Admin, deadline time.Time) (PoolState, error) {
	at := int64(0)
	switch {
	case deadline.Year() > maxYear:
		return PoolState{}, wrap("drain", invalid("deadline", "in the year %d", deadline.Year()))
	case !deadline.IsZero():
		at = max(deadline.UnixMicro(), 1)
	}
	return p.admin(ctx, "drain", a, at, func(s *step) error { return s.drain(at) })
}

// Reopen ends a drain.
func (p *Pool) Reopen(ctx context.Context, a Admin) (PoolState, error) {
	return p.admin(ctx, "reopen", a, nil, (*step).reopen)
}

// Configure changes the policy, the listed groups, and attributes of slots. Attributes of a slot in use are ErrBusySlot (R21).
// A policy rules live leases too: none lives longer than its MaxLease. A holder learns of a lower one with its next renewal, so
// lower it in pools whose resources check epochs, or drain first.
func (p *Pool) Configure(ctx context.Context, a Admin, c Configuration) (PoolState, error) {
	if err := c.validate(); err != nil {
		return PoolState{}, wrap("configure", err)
	}
	c.Policy, c.Attrs = clonePointer(c.Policy), cloneAttrs(c.Attrs)
	if c.Groups != nil {
		groups := cloneGroups(*c.Groups)
		c.Groups = &groups
	}
	return p.admin(ctx, "configure", a, c, func(s *step) error { return s.configure(&c) })
}

// Rebase dates all leases, tickets and cooling slots anew from the store's clock, after that clock was wrong: each has its whole
// time again. The reason is for the record of the call only (R14).
func (p *Pool) Rebase(ctx context.Context, a Admin, reason string) (PoolState, error) {
	if err := validateName("reason", reason); err != nil {
		return PoolState{}, wrap("rebase", err)
	}
	return p.admin(ctx, "rebase", a, reason, (*step).rebase)
}

// Check recounts the pool from its rows. A difference is ErrCorrupt, a [CorruptError] for each number, and stops grants until it is
// repaired: with repair, what the rows say is written (the error is nil then). A ticket that can't be read is ErrCorrupt too, a
// [DamageError], and so is a lease that can't be read and that no slot leads to. They stop nothing but their attempts, and a ticket
// those of its group that don't wait; repair deletes them.
func (p *Pool) Check(ctx context.Context, repair bool) (PoolState, error) {
	c := &check{repair: repair}
	if err := p.do(ctx, c); err != nil {
		return PoolState{}, wrap("check", err)
	}
	if repair || len(c.wrong)+len(c.damaged) == 0 {
		return c.state, nil
	}
	return c.state, wrap("check", errors.Join(slices.Concat(c.damaged, c.wrong)...))
}

// Close makes every later call of this Pool fail with ErrClosed. With release, it gives back what this incarnation has: its leases and
// its places in queues. Without, nothing is freed by it: leases end by time, or when their owner is proved gone (R13).
// After an error that is ErrUnavailable or ErrUncertain call it again.
func (p *Pool) Close(ctx context.Context, release bool) error {
	p.closed.Store(true)
	p.mu.Lock()
	for _, w := range p.waiters {
		w.end(ErrClosed)
	}
	p.mu.Unlock()
	if !release || p.gone.Load() {
		return nil
	}
	if ctx == nil {
		return wrap("close", invalid("ctx", "nil"))
	}
	c := &leave{holder: p.holder.Incarnation}
	err := p.outcome(c, p.lane.Do(ctx, c), ctx.Err())
	if err == nil || errors.Is(err, ErrUncertain) {
		p.finishOwn() // this try or an earlier one has given back what they are handles of, or may have
	}
	if err != nil {
		return wrap("close", err)
	}
	p.gone.Store(true)
	return nil
}

// finishOwn closes all handles of this incarnation's leases.
func (p *Pool) finishOwn() {
	var list []*Lease
	p.mu.Lock()
	p.over.add(endedKey{}, 0)
	for _, l := range p.leases {
		if p.own(l.row) {
			list = append(list, l)
		}
	}
	p.mu.Unlock()
	for _, l := range list {
		l.finish(nil)
	}
}
