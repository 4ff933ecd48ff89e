package spendlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/combine"
)

// Config is the configuration of a Ledger. Unit is required.
type Config struct {
	// Name tells ledgers in one store apart; "" is "default".
	Name string
	// Unit is what the ledger counts. It is stored at first use; later another one is ErrUnit.
	Unit Unit
	// NoLimit says what becomes of a hold on an account without any limit. Refuse (the zero value) is ErrNoLimit; with
	// Allow such an account is counted but bounds nothing.
	NoLimit Policy
	// Defaults gives an account its limits when it is first touched. It must be pure: the same answer each time.
	// It is called inside a step, so it must not call the ledger.
	Defaults func(account string) []Limit
	// Observer hears of thresholds, overruns, lapses and anomalies after they are committed. It is called on the
	// goroutine of a caller, maybe on several at once, and should return fast. It may call the ledger.
	Observer func(Event)
	// Patience is the time after which a ReserveWait that waits for holds is no longer passed by a Reserve; 0 is 5 s.
	Patience time.Duration
	// Random spreads the polls of ReserveWait; nil is math/rand/v2.
	Random func() uint64
}

const (
	defaultName     = "default"
	defaultPatience = 5 * time.Second
	maxBatch        = 512
	batchDeadline   = 10 * time.Second
	endDeadline     = 5 * time.Second // of calls that must not be lost with their caller (R47)
)

// Ledger admits and counts spending against limits. No grant ever makes spent + held exceed a limit. All methods are
// safe for concurrent use; concurrent calls are combined into one store step. It starts no goroutine.
//
// Errors wrap one of three kinds: decided (ErrDenied, ErrKeyReused, an [EndedError] …), not applied (ErrUnavailable, or
// the context's own error), maybe applied (ErrUncertain). After ErrUncertain, call again with the same key or id.
type Ledger struct {
	store Store
	cfg   Config
	zones zones
	lane  *combine.Lane[command]
	batch batch
	line  queue

	reserves combine.Spare[reserve]
	settles  combine.Spare[settle]

	takes  nonces   // of leases
	within *tranche // the part of a lease that this ledger serves from memory; nil for a ledger of its own
}

// New returns a ledger on a store. It does no I/O.
func New(store Store, cfg Config) (*Ledger, error) {
	if store == nil {
		return nil, fmt.Errorf("spendlimit: new: %w", invalid("store", "nil"))
	}
	if cfg.Name == "" {
		cfg.Name = defaultName
	}
	if cfg.Patience <= 0 {
		cfg.Patience = defaultPatience
	}
	if cfg.Random == nil {
		cfg.Random = rand.Uint64
	}
	err := validateName("Config.Name", cfg.Name)
	if err == nil {
		err = cfg.Unit.validate()
	}
	if err == nil && cfg.NoLimit > Allow {
		err = invalid("Config.NoLimit", "unknown")
	}
	if err != nil {
		return nil, fmt.Errorf("spendlimit: new: %w", err)
	}
	l := &Ledger{store: store, cfg: cfg}
	l.batch = batch{ledger: l, step: l.newStep()}
	l.batch.judge = l.batch.run
	l.lane = combine.New(maxBatch, batchDeadline, l.runBatch)
	return l, nil
}

func (l *Ledger) newStep() step {
	return step{cfg: &l.cfg, zones: &l.zones, handles: arena[Hold]{chunk: 16}}
}

// Unit returns the ledger's unit.
func (l *Ledger) Unit() Unit { return l.cfg.Unit }

// call is what a command carries on its way through the lane.
type call struct {
	err    error
	events []Event
	freed  []string
	// Whoever comes second, the leader after the commit or a caller that leaves early, delivers the events.
	handed atomic.Bool
	// Of a leader: whose events it delivers when it has left the lane, where an observer may call the ledger again.
	later []*call
}

func (k *call) base() *call { return k }

// reset makes k new, for another command.
func (k *call) reset() {
	k.err, k.events, k.freed, k.later = nil, nil, k.freed[:0], nil
	if k.handed.Load() { // a store costs more
		k.handed.Store(false)
	}
}

// do runs a command that may change rows.
func (l *Ledger) do(ctx context.Context, c command) error {
	if ctx == nil {
		return invalid("ctx", "nil")
	}
	err := l.lane.Do(ctx, c)
	return l.outcome(c, err, ctx.Err())
}

// outcome is the answer to a command that went through the lane; cause says why its caller left early, if it did.
func (l *Ledger) outcome(c command, err, cause error) error {
	k := c.base()
	for _, other := range k.later {
		l.deliver(other)
	}
	switch {
	case err == nil:
		l.deliver(k)
		return k.err
	case errors.Is(err, combine.ErrStarted) && k.handed.Swap(true):
		l.deliver(k)
	}
	return combine.Outcome(err, cause)
}

// look runs a command that changes nothing.
func (l *Ledger) look(ctx context.Context, c command) error {
	if ctx == nil {
		return invalid("ctx", "nil")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	n := Need{Ledger: l.cfg.Name, ReadOnly: true}
	c.need(&n)
	decided := errNotJudged
	for {
		err := l.store.Step(ctx, n, func(now int64, w *Work) error {
			s := l.newStep()
			s.begin(w, now)
			if decided = s.run(c); errors.Is(decided, errMoreDue) {
				return errMoreDue
			}
			return nil
		})
		if !errors.Is(err, errMoreDue) {
			if err != nil {
				return errors.Join(ErrUnavailable, err) // a look is never applied
			}
			return decided
		}
		lapsed, err := l.sweepFor(ctx, n)
		if err != nil {
			return err
		}
		l.deliver(lapsed)
	}
}

// batch is the work of the lane's leader. Only one runs at a time, so its slices are used again.
type batch struct {
	ledger   *Ledger
	need     Need
	step     step
	commands []command
	judged   bool
	judge    func(now int64, w *Work) error // b.run, made once
}

// runBatch runs commands in one store step.
func (l *Ledger) runBatch(ctx context.Context, commands []command) error {
	b := &l.batch
	b.commands = commands
	b.need.reset(l.cfg.Name)
	for _, c := range commands {
		c.need(&b.need)
	}
	leader := commands[0].base()
	b.judged = false
	err := l.store.Step(ctx, b.need, b.judge)
	for err != nil && errors.Is(err, errMoreDue) {
		var lapsed *call
		if lapsed, err = l.sweepFor(ctx, b.need); err == nil {
			leader.later = append(leader.later, lapsed)
			b.judged = false
			err = l.store.Step(ctx, b.need, b.judge)
		}
	}
	switch {
	case err != nil:
		return err
	case !b.judged:
		return errNotJudged
	}
	for _, c := range commands[1:] { // the leader itself is still here
		if k := c.base(); k.handed.Swap(true) {
			leader.later = append(leader.later, k)
		}
	}
	return nil
}

// run judges the commands in order of arrival, each on the rows that the one before it left (R71).
func (b *batch) run(now int64, w *Work) error {
	s := &b.step
	s.begin(w, now)
	s.watched = b.ledger.line.waiting.Load() > 0
	if t := b.ledger.within; t != nil {
		s.stop = t.stop() // one look at the clock per batch, inside its step
	}
	for _, c := range b.commands {
		k := c.base()
		if k.err = s.run(c); k.err != nil && errors.Is(k.err, errMoreDue) {
			return errMoreDue
		}
		k.events = s.events
		if k.freed = k.freed[:0]; len(s.freed) > 0 {
			k.freed = append(k.freed, s.freed...)
		}
	}
	b.judged = true
	return nil
}

// errNotJudged: nothing is granted on the word of a store that did not ask.
var errNotJudged = fmt.Errorf("%w: the store made a step without judging it", ErrUnavailable)

// sweepFor ends lapsed holds on the accounts of a step that has too many of them. The caller delivers what it returns.
func (l *Ledger) sweepFor(ctx context.Context, n Need) (*call, error) {
	c := &sweep{accounts: n.Accounts, keys: n.Holds, max: MaxDue}
	need := Need{Ledger: n.Ledger, Accounts: n.Accounts, Holds: n.Holds}
	err := l.store.Step(ctx, need, func(now int64, w *Work) error {
		s := l.newStep()
		s.begin(w, now)
		s.watched = true
		c.err = s.run(c)
		c.events, c.freed = s.events, append(c.freed[:0], s.freed...)
		return c.err
	})
	return &c.call, err
}

// deliver tells the observer and the waiters what a command has changed.
func (l *Ledger) deliver(k *call) {
	if len(k.freed) > 0 {
		l.line.wake(k.freed)
	}
	for _, e := range k.events {
		l.cfg.Observer(e)
	}
}

// wrap names the operation, once, at the edge.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("spendlimit: %s: %w", op, err)
}

// Reserve sets money aside, or refuses with a [DeniedError]. What is granted is granted by every limit of every account
// and by the parent, or by none. A retry with the same key and content returns the same hold, Replayed; a hold that has
// ended is an [EndedError] and a nil hold.
func (l *Ledger) Reserve(ctx context.Context, r Request) (*Hold, error) {
	c, err := l.newReserve(&r)
	if err == nil {
		c.queued = l.line.ahead(tokens(&c.req))
		err = l.do(ctx, c)
	}
	if err != nil {
		l.reserves.Done(c, err)
		return nil, wrap("reserve", l.hint(ctx, r.Split.Group, err))
	}
	h := l.handle(c)
	l.reserves.Done(c, nil)
	return h, nil
}

// ask is Reserve, but that it passes all waiters, and that its refusal has no hint.
func (l *Ledger) ask(ctx context.Context, r *Request) (*Hold, error) {
	c, err := l.newReserve(r)
	if err == nil {
		err = l.do(ctx, c)
	}
	if err != nil {
		l.reserves.Done(c, err)
		return nil, err
	}
	h := l.handle(c)
	l.reserves.Done(c, nil)
	return h, nil
}

// handle makes the caller's hold of a granted request.
func (l *Ledger) handle(c *reserve) *Hold {
	h := c.hold
	h.Labels, h.ledger = maps.Clone(c.req.Labels), l
	return h
}

// Check decides as Reserve would at this moment, and writes nothing. It promises nothing.
func (l *Ledger) Check(ctx context.Context, r Request) (Offer, error) {
	c, err := l.newReserve(&r)
	if err == nil {
		c.dry = true
		err = l.look(ctx, c)
	}
	if err != nil {
		return Offer{}, wrap("check", l.hint(ctx, r.Split.Group, err))
	}
	return c.offer, nil
}

func (l *Ledger) newReserve(r *Request) (*reserve, error) {
	if err := r.validate(l.cfg.Unit); err != nil {
		return nil, err
	}
	c := l.reserves.Get()
	c.reset()
	c.req = *r
	c.labels, c.ttl, c.dry, c.queued = labelList(r.Labels), ttlMicros(r.TTL), false, nil
	c.sorted = append(c.sorted[:0], r.Accounts...)
	if len(c.sorted) > 1 {
		slices.Sort(c.sorted)
	}
	c.req.Accounts = c.sorted
	return c, nil
}

// Dispatch says that the paid call of a hold is about to leave. No answer, or an error: don't send (R40).
func (l *Ledger) Dispatch(ctx context.Context, key string) error {
	err := validateName("Hold", key)
	if err == nil {
		err = l.do(ctx, &dispatch{key: key})
	}
	return wrap("dispatch", err)
}

// Record books a part of a hold's cost, once per usage id: it moves from held to spent. It runs on when ctx ends, for at
// most 5 s, so that a gone client never loses a cost.
func (l *Ledger) Record(ctx context.Context, u Usage) (Receipt, error) {
	c := &record{Usage: u, labels: labelList(u.Labels)}
	err := u.validate()
	if err == nil {
		err = l.doEnding(ctx, c)
	}
	if err != nil {
		return Receipt{}, wrap("record", err)
	}
	return c.receipt, nil
}

// Settle ends a hold with its true cost, whatever it is, and returns the rest. Cost above the hold is booked in full and
// reported as Excess, and as Overrun where a limit had no room; that is no error. An Unknown cost counts at the hold, and
// freezes the limits that refuse unpriced work until Settle is called again with the Total. Options: Late. It runs on when
// ctx ends, for at most 5 s.
func (l *Ledger) Settle(ctx context.Context, key string, cost Cost, opts ...Option) (r Receipt, err error) {
	c := l.settles.Get()
	c.reset()
	c.key, c.late = key, false
	c.cost = cost
	set, err := options("settle", opts, Late)
	if err == nil {
		c.late = set&Late != 0
		err = validateEnd(key, cost)
	}
	if err == nil {
		err = l.doEnding(ctx, c)
	}
	if err != nil {
		l.settles.Done(c, err)
		return Receipt{}, wrap("settle", err)
	}
	r = c.receipt
	l.settles.Done(c, nil)
	return r, nil
}

// Release ends a hold unspent. A dispatched hold is ErrDispatched unless NotSpent is given and nothing was recorded. With
// Tree its open descendants are released too. It runs on when ctx ends, for at most 5 s.
func (l *Ledger) Release(ctx context.Context, key string, opts ...Option) (Receipt, error) {
	c := &release{key: key}
	set, err := options("release", opts, NotSpent|Tree)
	if err == nil {
		c.notSpent, c.tree = set&NotSpent != 0, set&Tree != 0
		err = validateName("Hold", key)
	}
	if err == nil {
		err = l.doEnding(ctx, c)
	}
	if err != nil {
		return Receipt{}, wrap("release", err)
	}
	return c.receipt, nil
}

// Close ends a hold that has not ended: open is released; dispatched is charged at the hold, and a later Settle corrects
// it. On an ended hold it does nothing. Made for defer; it runs on when ctx ends, for at most 5 s.
func (l *Ledger) Close(ctx context.Context, key string) error {
	err := validateName("Hold", key)
	if err == nil {
		err = l.doEnding(ctx, &release{key: key, closing: true})
	}
	return wrap("close", err)
}

// doEnding runs a command that must not be lost with its caller (R47).
func (l *Ledger) doEnding(ctx context.Context, c command) error {
	if ctx == nil {
		return invalid("ctx", "nil")
	}
	return l.outcome(c, l.lane.DoWithin(endDeadline, c), context.DeadlineExceeded)
}

// Extend gives a hold more time, never less and at most 30 days in all. With Roll it moves what is left into the current
// periods, which may cut it down to Min or refuse; a refusal changes nothing.
func (l *Ledger) Extend(ctx context.Context, e Extension) (Receipt, error) {
	c := &extension{Extension: e, ttl: ttlMicros(e.TTL)}
	err := e.validate()
	if err == nil {
		err = l.do(ctx, c)
	}
	if err != nil {
		return Receipt{}, wrap("extend", l.hint(ctx, "", err))
	}
	return c.receipt, nil
}

// Grow asks for more room in a live hold; it is checked like a Reserve against the current periods, for a child against
// its parent.
func (l *Ledger) Grow(ctx context.Context, g Growth) (Receipt, error) {
	var c *growth
	try := func() error {
		c = &growth{Growth: g}
		return l.do(ctx, c)
	}
	err := g.validate()
	if err == nil {
		if err = try(); err != nil && l.within != nil {
			err = l.within.serve(ctx, err, g.By, cmp.Or(g.Min, g.By), try)
		}
	}
	if err != nil {
		return Receipt{}, wrap("grow", l.hint(ctx, "", err))
	}
	return c.receipt, nil
}

// Shrink gives back part of a live hold's own room.
func (l *Ledger) Shrink(ctx context.Context, s Shrinkage) (Receipt, error) {
	c := &shrinkage{Shrinkage: s}
	err := s.validate()
	if err == nil {
		err = l.do(ctx, c)
	}
	if err != nil {
		return Receipt{}, wrap("shrink", err)
	}
	return c.receipt, nil
}

// Charge books a cost without a hold. It is never refused for lack of room.
func (l *Ledger) Charge(ctx context.Context, e Expense) (Receipt, error) {
	c := &expense{Expense: e, at: instantOf(e.At), labels: labelList(e.Labels)}
	err := e.validate()
	if err == nil {
		c.Accounts = sorted(e.Accounts)
		err = l.do(ctx, c)
	}
	if err != nil {
		return Receipt{}, wrap("charge", err)
	}
	return c.receipt, nil
}

// Adjust books a signed correction. A result below zero in any period is ErrInvalid and writes nothing.
func (l *Ledger) Adjust(ctx context.Context, a Adjustment) (Receipt, error) {
	c := &adjustment{Adjustment: a, at: instantOf(a.At)}
	err := a.validate()
	if err == nil {
		err = l.do(ctx, c)
	}
	if err != nil {
		return Receipt{}, wrap("adjust", err)
	}
	return c.receipt, nil
}

// SetLimit creates a limit (expect "") or replaces the one with the given fingerprint; another one in force is a
// [StaleError]. A raise or a cut acts on the current period at once; a cut below use kills nothing.
func (l *Ledger) SetLimit(ctx context.Context, limit Limit, expect string, opts ...LimitOption) (LimitState, error) {
	c := &setLimit{expect: expect, backfill: slices.Contains(opts, Backfill)}
	err := limit.validate()
	if slices.ContainsFunc(opts, func(o LimitOption) bool { return o != Backfill }) {
		err = invalid("LimitOption", "unknown")
	}
	if err == nil {
		c.limit = limit.normal()
		err = l.do(ctx, c)
	}
	if err != nil {
		return LimitState{}, wrap("set limit", err)
	}
	return c.state, nil
}

// RemoveLimit removes the limit with the given fingerprint. Holds that count against it still end on its periods.
func (l *Ledger) RemoveLimit(ctx context.Context, account, name, expect string) error {
	err := validateName("account", account)
	if err == nil {
		err = validateName("name", name)
	}
	if err == nil {
		err = l.do(ctx, &removeLimit{account: account, name: name, expect: expect})
	}
	return wrap("remove limit", err)
}

// Hold returns a hold as it is now.
func (l *Ledger) Hold(ctx context.Context, key string) (*Hold, error) {
	c := &lookup{keys: []string{key}}
	err := validateName("key", key)
	if err == nil {
		err = l.look(ctx, c)
	}
	switch {
	case err != nil:
		return nil, wrap("hold", err)
	case len(c.out) == 0:
		return nil, wrap("hold", ErrNotFound)
	}
	c.out[0].ledger = l
	return c.out[0], nil
}

// Balances lists the limits of an account in their periods that contain at (the zero time: now), by name. A period that
// nobody has used is shown with zeros.
func (l *Ledger) Balances(ctx context.Context, account string, at time.Time) iter.Seq2[Balance, error] {
	return func(yield func(Balance, error) bool) {
		c := &balances{account: account, at: instantOf(at)}
		err := validateName("account", account)
		if err == nil {
			err = l.look(ctx, c)
		}
		if err != nil {
			yield(Balance{}, wrap("balances", err))
			return
		}
		for _, b := range c.out {
			if !yield(b, nil) {
				return
			}
		}
	}
}

const pageSize = 256

// Holds lists holds by key, each as it is when its page is read.
func (l *Ledger) Holds(ctx context.Context, f HoldFilter) iter.Seq2[*Hold, error] {
	return func(yield func(*Hold, error) bool) {
		if f.Account != "" {
			if err := validateName("Account", f.Account); err != nil {
				yield(nil, wrap("holds", err))
				return
			}
		}
		q := Query{Ledger: l.cfg.Name, Kind: QueryHolds, Account: f.Account, Live: f.Live, Max: pageSize}
		for page, err := range l.pages(ctx, &q) {
			c := &lookup{keys: page.Keys}
			if err == nil {
				err = l.look(ctx, c)
			}
			if err != nil {
				yield(nil, wrap("holds", err))
				return
			}
			for _, h := range c.out {
				h.ledger = l
				if f.Live && !h.State.Live() {
					continue
				}
				if !yield(h, nil) {
					return
				}
			}
		}
	}
}

// pages reads a list page by page.
func (l *Ledger) pages(ctx context.Context, q *Query) iter.Seq2[Page, error] {
	return func(yield func(Page, error) bool) {
		for {
			if ctx == nil {
				yield(Page{}, invalid("ctx", "nil"))
				return
			}
			page, err := l.store.Read(ctx, *q)
			if !yield(page, err) || err != nil || !page.More {
				return
			}
			if n := len(page.Keys); n > 0 {
				q.AfterKey = page.Keys[n-1]
			}
			if n := len(page.Entries); n > 0 {
				q.AfterSeq = page.Entries[n-1].Seq
			}
		}
	}
}

// Entries lists the journal of an account after a seq, oldest first.
func (l *Ledger) Entries(ctx context.Context, account string, after int64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		err := validateName("account", account)
		if err == nil {
			err = l.look(ctx, &lookup{}) // of nothing: whether the ledger is in this unit
		}
		if err != nil {
			yield(Entry{}, wrap("entries", err))
			return
		}
		q := Query{Ledger: l.cfg.Name, Kind: QueryEntries, Account: account, AfterSeq: after, Max: pageSize}
		for page, err := range l.pages(ctx, &q) {
			if err != nil {
				yield(Entry{}, wrap("entries", err))
				return
			}
			for _, e := range page.Entries {
				if !yield(e.public(l.cfg.Unit), nil) {
					return
				}
			}
		}
	}
}

// public is the entry as users see it.
func (e *EntryRow) public(u Unit) Entry {
	out := Entry{
		Account: e.Account.Name, Seq: e.Seq, At: timeOf(e.At), Kind: e.Kind, Ref: e.Ref, Hold: e.Hold, Reason: e.Reason,
		Source: e.Source, Labels: labelMap(e.Labels), Unit: u,
	}
	for _, g := range e.Postings {
		if g.Period == nil {
			out.Spent += g.Spent
			out.Held += g.Held
			continue
		}
		out.Postings = append(out.Postings, LimitPosting{
			Limit: g.Period.Limit.Limit.Name, Period: g.Period.Label, Start: startOf(g.Period),
			Spent: g.Spent, Held: g.Held, Overrun: g.Overrun,
		})
	}
	return out
}

// Verify compares the running totals of an account with the sums over its rows, and returns every difference. It
// repairs nothing. It reads the account's whole journal in one consistent view.
func (l *Ledger) Verify(ctx context.Context, account string) ([]Difference, error) {
	c := &verify{account: account}
	err := validateName("account", account)
	if err == nil {
		err = l.look(ctx, c)
	}
	if err != nil {
		return nil, wrap("verify", err)
	}
	return c.out, nil
}

// Sweep ends at most max lapsed holds, and says how many. Holds lapse without it: it changes no answer, and only keeps
// steps on accounts with many forgotten holds short.
func (l *Ledger) Sweep(ctx context.Context, max int) (int, error) {
	ended := 0
	for ended < max {
		n, err := l.sweepPage(ctx, min(max-ended, pageSize))
		ended += n
		if err != nil || n == 0 {
			return ended, wrap("sweep", err)
		}
	}
	return ended, nil
}

func (l *Ledger) sweepPage(ctx context.Context, max int) (int, error) {
	if ctx == nil {
		return 0, invalid("ctx", "nil")
	}
	page, err := l.store.Read(ctx, Query{Ledger: l.cfg.Name, Kind: QueryDue, Max: max})
	if err != nil || len(page.Keys) == 0 {
		return 0, err
	}
	c := &sweep{keys: page.Keys, max: max}
	if err := l.do(ctx, c); err != nil {
		return 0, err
	}
	return c.ended, nil
}

// Prune deletes the oldest entries of an account and the holds on it that ended before the given time, at least 35 days
// ago. Totals stay; the keys of deleted holds are forgotten.
func (l *Ledger) Prune(ctx context.Context, account string, before time.Time) error {
	if err := validateName("account", account); err != nil {
		return wrap("prune", err)
	}
	for {
		c := &prune{account: account, before: micros(before), max: pageSize}
		if err := l.do(ctx, c); err != nil || !c.more {
			return wrap("prune", err)
		}
	}
}

func sorted(names []string) []string {
	out := make([]string, len(names))
	copy(out, names)
	if len(out) > 1 {
		slices.Sort(out)
	}
	return out
}

func labelList(m map[string]string) []Label {
	if len(m) == 0 {
		return nil
	}
	out := make([]Label, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, Label{k, m[k]})
	}
	return out
}

func labelMap(list []Label) map[string]string {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]string, len(list))
	for _, l := range list {
		m[l.Key] = l.Value
	}
	return m
}

// instantOf turns the zero time into 0, which is now. The instant 0 itself becomes 1: no period ends between them.
func instantOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	if us := micros(t); us != 0 {
		return us
	}
	return 1
}

const defaultTTL = 10 * time.Minute

func ttlMicros(d time.Duration) int64 {
	if d == 0 {
		d = defaultTTL
	}
	return int64(d / time.Microsecond)
}
