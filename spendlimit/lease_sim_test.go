package spendlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

// leaseWorld is ten processes with a lease each on one account, in one thread: the seed decides everything.
type leaseWorld struct {
	*testing.T
	ctx      context.Context
	dice     *rand.Rand
	clock    *clock
	store    spendlimit.Store
	central  *spendlimit.Ledger // of the one who looks on, whose answers are never lost
	procs    []*process
	dead     []*process
	seed     uint64
	ops      int
	reserves int
	granted  int
	crashes  int
	charged  spendlimit.Amount
	over     bool // everything is verified
}

const (
	simForever = 50_000
	simDay     = 30_000
	simProcs   = 10
)

// process is one start of a program.
type process struct {
	world  *leaseWorld
	key    string
	ledger *spendlimit.Ledger
	lease  *spendlimit.Lease // nil until it got one
	locals []*localStore
	live   []*spendlimit.Hold
	spent  spendlimit.Amount // by holds that have ended, as it was told
	holds  int
}

// doubling is a store to which one step in twenty is delivered twice; the second answer counts.
type doubling struct {
	spendlimit.Store
	dice *rand.Rand
}

func (d *doubling) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	err := d.Store.Step(ctx, n, f)
	if err == nil && !n.ReadOnly && d.dice.IntN(20) == 0 {
		err = d.Store.Step(ctx, n, f)
	}
	return err
}

func newLeaseWorld(t *testing.T, seed uint64) *leaseWorld {
	t.Helper()
	w := &leaseWorld{T: t, ctx: t.Context(), dice: rand.New(rand.NewPCG(seed, 103)), clock: &clock{now: noon}, seed: seed}
	w.store = memory.New(&memory.Options{Clock: w.clock.Now}).Spend()
	w.central = w.open(w.store)
	for _, l := range []spendlimit.Limit{
		{Account: "acme", Name: "all", Kind: spendlimit.AllTime, Amount: simForever},
		{Account: "acme", Name: "day", Kind: spendlimit.Day, Amount: simDay},
	} {
		_, err := w.central.SetLimit(w.ctx, l, "")
		w.check(err)
	}
	for range simProcs {
		w.procs = append(w.procs, w.start())
	}
	return w
}

func (w *leaseWorld) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("seed %d, op %d: %v", w.seed, w.ops, err)
	}
}

func (w *leaseWorld) open(s spendlimit.Store) *spendlimit.Ledger {
	led, err := spendlimit.New(s, spendlimit.Config{Unit: spendlimit.Tokens, Random: w.dice.Uint64})
	w.check(err)
	return led
}

// start begins a process whose answers are lost one time in twenty.
func (w *leaseWorld) start() *process {
	p := &process{world: w, key: fmt.Sprintf("p%d", len(w.procs)+len(w.dead)+1)}
	var faults []spendlimittest.Fault
	for call := range 40_000 {
		if w.dice.IntN(20) == 0 {
			kind := []spendlimittest.FaultKind{
				spendlimittest.FaultAfter, spendlimittest.FaultAfter, spendlimittest.FaultUnknown, spendlimittest.FaultBefore,
			}[w.dice.IntN(4)]
			faults = append(faults, spendlimittest.Fault{Kind: kind, At: call + 1, Seed: w.dice.Uint64()})
		}
	}
	p.ledger = w.open(spendlimittest.NewFaulty(&doubling{w.store, w.dice}, spendlimittest.PlanOf(faults...)))
	return p
}

func (p *process) request() spendlimit.LeaseRequest {
	return spendlimit.LeaseRequest{
		Key: p.key, Accounts: names("acme"), Chunk: 500, MinChunk: 20, TTL: 2 * time.Minute, Clock: p.world.clock.Now,
		Local: func() spendlimit.Store {
			s := &localStore{Store: memory.New(&memory.Options{Clock: p.world.clock.Now}).Spend()}
			p.locals = append(p.locals, s)
			return s
		},
	}
}

// expected tells whether a call may fail so.
func (p *process) expected(err error) bool {
	return err == nil || errors.Is(err, spendlimit.ErrDenied) || errors.Is(err, spendlimit.ErrUncertain) || errors.Is(err, spendlimit.ErrUnavailable)
}

func (p *process) step() {
	w := p.world
	if p.lease == nil {
		l, err := p.ledger.Lease(w.ctx, p.request())
		if !p.expected(err) {
			w.check(err)
		}
		p.lease = l
		w.reserves++ // of the whole limit, maybe
		return
	}
	switch n := w.dice.IntN(1000); {
	case n < 450:
		p.reserve()
	case n < 900:
		p.settle()
	case n < 920 && len(p.live) > 0:
		h := p.live[w.dice.IntN(len(p.live))]
		_, err := h.Grow(w.ctx, spendlimit.Growth{ID: keyN("g", w.ops), By: 1})
		if !p.expected(err) && !errors.Is(err, spendlimit.ErrLapsed) {
			w.check(err)
		}
	case n < 985:
		_, err := p.lease.Sync(w.ctx)
		if !p.expected(err) {
			w.check(err)
		}
	case n == 985 && w.dice.IntN(40) == 0:
		p.close()
	case n == 986 && w.dice.IntN(10) == 0:
		w.crashes++
		p.crash()
	}
}

func (p *process) reserve() {
	w := p.world
	w.reserves++
	p.holds++
	h, err := p.lease.Reserve(w.ctx, spendlimit.Request{
		Key: fmt.Sprintf("%s/%d", p.key, p.holds), Accounts: names("acme"), Amount: spendlimit.Amount(1 + w.dice.IntN(5)), TTL: time.Hour,
	})
	if !p.expected(err) {
		w.check(err)
	}
	if err == nil {
		w.granted++
		p.live = append(p.live, h)
		if w.dice.IntN(2) == 0 {
			w.check(h.Dispatch(w.ctx))
		}
	}
}

// settle ends one of the live holds: most cost at most what was held.
func (p *process) settle() {
	w := p.world
	if len(p.live) == 0 {
		return
	}
	i := w.dice.IntN(len(p.live))
	h := p.live[i]
	p.live = slices.Delete(p.live, i, i+1)
	cost := spendlimit.Amount(w.dice.IntN(int(h.Granted) + 1))
	switch w.dice.IntN(40) {
	case 0:
		cost = h.Granted + spendlimit.Amount(w.dice.IntN(4))
	case 1:
		_, err := h.Release(w.ctx, spendlimit.NotSpent)
		if err != nil && !errors.Is(err, spendlimit.ErrLapsed) {
			w.check(err)
		}
		return
	}
	_, err := h.Settle(w.ctx, spendlimit.Total(cost))
	if errors.Is(err, spendlimit.ErrClosed) { // it had lapsed while open, and all that the lease knew is settled
		_, err = w.central.Charge(w.ctx, spendlimit.Expense{ID: h.Key, Accounts: names("acme"), Cost: spendlimit.Total(cost)})
		w.check(err)
		w.charged += cost
		return
	}
	w.check(err)
	p.spent += cost
}

// close ends the process in order.
func (p *process) close() {
	w := p.world
	for len(p.live) > 0 {
		p.settle()
	}
	var err error
	for range 50 {
		if err = p.lease.Close(w.ctx); err == nil {
			break
		}
	}
	w.check(err)
	var recorded spendlimit.Amount
	for _, h := range p.central() {
		recorded += h.Recorded
		if h.State != spendlimit.Settled {
			w.Errorf("seed %d: hold %s of a closed lease is %s", w.seed, h.Key, h.State)
		}
	}
	if recorded != p.spent { // I12
		w.Errorf("seed %d, op %d: %s recorded %d, its holds cost %d", w.seed, w.ops, p.key, recorded, p.spent)
	}
	w.replace(p)
}

// crash leaves everything as it is. Somebody may know later what the process has spent.
func (p *process) crash() {
	w := p.world
	w.replace(p)
	if w.dice.IntN(2) == 0 {
		return
	}
	w.clock.Advance(3 * time.Minute)
	for _, h := range p.central() {
		if b, ok := p.local(h.Key); ok && h.State == spendlimit.LapsedCharged {
			_, err := w.central.Settle(w.ctx, h.Key, spendlimit.Total(b.Spent+b.Held))
			w.check(err)
		}
	}
}

func (w *leaseWorld) replace(p *process) {
	w.dead = append(w.dead, p)
	p.live = nil
	w.procs[slices.Index(w.procs, p)] = w.start()
}

// central lists the holds of the process's lease on the central ledger.
func (p *process) central() (list []*spendlimit.Hold) {
	for h, err := range p.world.central.Holds(p.world.ctx, spendlimit.HoldFilter{}) {
		p.world.check(err)
		if name, _, _ := strings.Cut(h.Key, "~"); name == p.key {
			list = append(list, h)
		}
	}
	return list
}

// local is what the process itself knows of one of these holds. A store whose take went unanswered has nothing.
func (p *process) local(key string) (found spendlimit.Balance, ok bool) {
	w := p.world
	for _, s := range p.locals {
		if s.name != key {
			continue
		}
		led, err := spendlimit.New(s.Store, spendlimit.Config{Name: s.name, Unit: spendlimit.Tokens, NoLimit: spendlimit.Allow})
		w.check(err)
		if w.over {
			diffs, err := led.Verify(w.ctx, "acme")
			if err != nil || len(diffs) > 0 {
				w.Errorf("seed %d, op %d: verify %s: %v, %v", w.seed, w.ops, key, diffs, err)
			}
		}
		for b, err := range led.Balances(w.ctx, "acme", time.Time{}) {
			w.check(err)
			found, ok = b, true
		}
	}
	return found, ok
}

// verify checks the invariants: I1 to I7 by Verify and by the limits, I12 by sums.
func (w *leaseWorld) verify() {
	w.Helper()
	diffs, err := w.central.Verify(w.ctx, "acme")
	w.check(err)
	if len(diffs) > 0 {
		w.Fatalf("seed %d, op %d: %v", w.seed, w.ops, diffs)
	}
	for _, at := range []time.Time{{}, noon} {
		for b, err := range w.central.Balances(w.ctx, "acme", at) {
			w.check(err)
			if b.Spent+b.Held > b.InForce+b.Overrun {
				w.Fatalf("seed %d, op %d: %s: %s", w.seed, w.ops, b.Limit, showBalance(b))
			}
		}
	}
	known, assumed := w.charged, spendlimit.Amount(0)
	procs := map[string]*process{}
	for _, p := range append(slices.Clone(w.dead), w.procs...) {
		procs[p.key] = p
	}
	for h, err := range w.central.Holds(w.ctx, spendlimit.HoldFilter{}) { // all of them are leases'
		w.check(err)
		known += h.Recorded
		assumed += h.Assumed
		name, _, _ := strings.Cut(h.Key, "~")
		b, ok := procs[name].local(h.Key)
		if ok && h.State != spendlimit.Settled && b.InForce > h.Own+h.Recorded+h.Assumed {
			w.Fatalf("seed %d, op %d: %s may give out %d, but has %d + %d + %d", w.seed, w.ops, h.Key, b.InForce, h.Own, h.Recorded, h.Assumed)
		}
		if use := b.Spent + b.Held - b.Overrun; use > h.Own+h.Recorded+h.Assumed {
			w.Fatalf("seed %d, op %d: %s gave out %d, but has %s", w.seed, w.ops, h.Key, use, showHold(h))
		}
	}
	for b, err := range w.central.Balances(w.ctx, "acme", time.Time{}) { // I10
		w.check(err)
		if b.Limit == "all" && (b.Spent-b.Assumed != known || b.Assumed != assumed) {
			w.Fatalf("seed %d, op %d: spent %d with %d assumed, holds have %d and %d", w.seed, w.ops, b.Spent, b.Assumed, known, assumed)
		}
	}
}

func (w *leaseWorld) run(reserves int) {
	for w.reserves < reserves {
		w.ops++
		w.clock.Advance(time.Duration(w.dice.IntN(300)) * time.Millisecond)
		if w.dice.IntN(20_000) == 0 {
			w.clock.Advance(time.Duration(1+w.dice.IntN(12)) * time.Hour)
		}
		w.procs[w.dice.IntN(len(w.procs))].step()
		if w.ops%(reserves/10) == 0 {
			w.verify()
		}
	}
	for _, p := range slices.Clone(w.procs) {
		if p.lease != nil {
			p.close()
		}
	}
	w.over = true
	w.verify()
	w.Logf("seed %d: %d of %d holds granted, %d crashes, %d leases", w.seed, w.granted, w.reserves, w.crashes, len(w.dead))
}

func TestT103_TenProcesses(t *testing.T) {
	t.Parallel()
	for seed, reserves := range map[uint64]int{1: 100_000, 2: 10_000, 3: 10_000, 4: 10_000} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			want := 1 // crashes
			if testing.Short() || raceDetector {
				reserves, want = reserves/10, 0
			}
			w := newLeaseWorld(t, seed)
			w.run(reserves)
			if w.granted < reserves/10 || w.crashes < want {
				t.Errorf("%d holds granted, %d crashes", w.granted, w.crashes)
			}
		})
	}
}
