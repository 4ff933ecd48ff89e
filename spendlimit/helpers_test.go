package spendlimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tb is what *testing.T and *rapid.T have in common.
type tb interface {
	rapid.TB
	Cleanup(func())
	Context() context.Context
}

// noon of D1 is where every fixture's clock starts; d2 is the first instant of D2.
var (
	noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	d2   = time.Date(2026, 5, 2, 0, 0, 0, 0, time.UTC)
)

func usd(text string) spendlimit.Amount  { return spendlimit.USD.MustParse(text) }
func dollars(a spendlimit.Amount) string { return spendlimit.USD.Format(a) }
func total(text string) spendlimit.Cost  { return spendlimit.Total(usd(text)) }
func names(accounts ...string) []string  { return accounts }
func keyN(prefix string, i int) string   { return fmt.Sprintf("%s%d", prefix, i) }

// at reads RFC 3339 text.
func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t
}

// daily is the limit acme/day, forever the limit acme/all, req a request for exactly this amount on acme.

func daily(amount string) spendlimit.Limit {
	return spendlimit.Limit{Account: "acme", Name: "day", Kind: spendlimit.Day, Amount: usd(amount)}
}

func forever(amount string) spendlimit.Limit {
	return spendlimit.Limit{Account: "acme", Name: "all", Kind: spendlimit.AllTime, Amount: usd(amount)}
}

func req(key, amount string) spendlimit.Request {
	return spendlimit.Request{Key: key, Accounts: names("acme"), Amount: usd(amount)}
}

// clock is the injected time. Safe for concurrent use.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// Advance moves the clock, back too.
func (c *clock) Advance(d time.Duration) { c.Set(c.Now().Add(d)) }

// fixture is a USD ledger on a fresh memory store with a clock that the test sets. When the test ends, the rows of every
// account that it touched are verified.
type fixture struct {
	*spendlimit.Ledger
	tb
	ctx   context.Context
	cfg   spendlimit.Config
	clock *clock
	store *probe

	mu     sync.Mutex
	events []spendlimit.Event
}

// newFixture takes at most one configuration; its Unit may be left out.
func newFixture(t tb, cfg ...spendlimit.Config) *fixture {
	t.Helper()
	f := &fixture{tb: t, ctx: t.Context(), clock: &clock{now: noon}}
	f.store = &probe{Store: memory.New(&memory.Options{Clock: f.clock.Now}).Spend(), used: map[string]bool{}}
	if len(cfg) > 0 {
		f.cfg = cfg[0]
	}
	if f.cfg.Unit == (spendlimit.Unit{}) {
		f.cfg.Unit = spendlimit.USD
	}
	if f.cfg.Observer == nil {
		f.cfg.Observer = f.observe
	}
	f.Ledger = f.restart()
	t.Cleanup(f.verify)
	return f
}

// restart returns another ledger on the same store, as another process would have.
func (f *fixture) restart() *spendlimit.Ledger {
	f.Helper()
	led, err := spendlimit.New(f.store, f.cfg)
	if err != nil {
		f.Fatalf("new: %v", err)
	}
	return led
}

// verify compares the rows of all accounts (I1 to I4, I6, I7).
func (f *fixture) verify() {
	f.Helper()
	for _, account := range f.store.accounts() {
		diffs, err := f.Verify(context.WithoutCancel(f.ctx), account)
		if err != nil && !errors.Is(err, spendlimit.ErrNotFound) { // not found: nothing was ever written
			f.Errorf("verify %s: %v", account, err)
		}
		for _, d := range diffs {
			f.Errorf("verify %s: %v", account, d)
		}
	}
}

func (f *fixture) observe(e spendlimit.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, e)
}

// heard counts the events of a kind so far.
func (f *fixture) heard(kind spendlimit.EventKind) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, e := range f.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// limit creates a limit.
func (f *fixture) limit(l spendlimit.Limit, opts ...spendlimit.LimitOption) spendlimit.LimitState {
	f.Helper()
	return f.change(l, "", opts...)
}

// change replaces the limit with this fingerprint.
func (f *fixture) change(l spendlimit.Limit, expect string, opts ...spendlimit.LimitOption) spendlimit.LimitState {
	f.Helper()
	state, err := f.SetLimit(f.ctx, l, expect, opts...)
	if err != nil {
		f.Fatalf("set limit %s/%s: %v", l.Account, l.Name, err)
	}
	return state
}

func (f *fixture) mustReserve(r spendlimit.Request) *spendlimit.Hold {
	f.Helper()
	h, err := f.Reserve(f.ctx, r)
	if err != nil {
		f.Fatalf("reserve %s: %v", r.Key, err)
	}
	return h
}

// mustDeny returns the refusal of a request, which has to leave the rows as they are (R67).
func (f *fixture) mustDeny(r spendlimit.Request) *spendlimit.DeniedError {
	f.Helper()
	var err error
	f.unchanged(func() { _, err = f.Reserve(f.ctx, r) })
	return f.denial(err)
}

// denial returns the refusal in an error.
func (f *fixture) denial(err error) *spendlimit.DeniedError {
	f.Helper()
	var denied *spendlimit.DeniedError
	if !errors.As(err, &denied) || !errors.Is(err, spendlimit.ErrDenied) {
		f.Fatalf("got %v, want a refusal", err)
	}
	return denied
}

func (f *fixture) mustDispatch(k string) {
	f.Helper()
	f.ok(f.Dispatch(f.ctx, k))
}

func (f *fixture) mustSettle(k string, c spendlimit.Cost, opts ...spendlimit.Option) spendlimit.Receipt {
	f.Helper()
	r, err := f.Settle(f.ctx, k, c, opts...)
	if err != nil {
		f.Fatalf("settle %s: %v", k, err)
	}
	return r
}

func (f *fixture) mustRelease(k string, opts ...spendlimit.Option) spendlimit.Receipt {
	f.Helper()
	r, err := f.Release(f.ctx, k, opts...)
	if err != nil {
		f.Fatalf("release %s: %v", k, err)
	}
	return r
}

func (f *fixture) mustRecord(k, id, cost string) spendlimit.Receipt {
	f.Helper()
	r, err := f.Record(f.ctx, spendlimit.Usage{Hold: k, ID: id, Cost: total(cost)})
	if err != nil {
		f.Fatalf("record %s/%s: %v", k, id, err)
	}
	return r
}

// mustCharge spends now, without a hold.
func (f *fixture) mustCharge(id, cost string, accounts ...string) spendlimit.Receipt {
	f.Helper()
	if len(accounts) == 0 {
		accounts = names("acme")
	}
	r, err := f.Charge(f.ctx, spendlimit.Expense{ID: id, Accounts: accounts, Cost: total(cost)})
	if err != nil {
		f.Fatalf("charge %s: %v", id, err)
	}
	return r
}

func (f *fixture) ok(err error) {
	f.Helper()
	if err != nil {
		f.Fatalf("%v", err)
	}
}

// wantErr wants an error that is target.
func (f *fixture) wantErr(err, target error) {
	f.Helper()
	if !errors.Is(err, target) {
		f.Fatalf("got error %v, want %v", err, target)
	}
}

// balance returns a limit's current period.
func (f *fixture) balance(account, limit string) spendlimit.Balance {
	f.Helper()
	return f.balanceAt(account, limit, time.Time{})
}

func (f *fixture) balanceAt(account, limit string, at time.Time) spendlimit.Balance {
	f.Helper()
	for b, err := range f.Balances(f.ctx, account, at) {
		f.ok(err)
		if b.Limit == limit {
			return b
		}
	}
	f.Fatalf("account %s has no limit %s", account, limit)
	return spendlimit.Balance{}
}

// wantBalance compares all totals of a limit's current period, as showBalance writes them.
func (f *fixture) wantBalance(account, limit, want string) {
	f.Helper()
	f.wantBalanceAt(account, limit, time.Time{}, want)
}

func (f *fixture) wantBalanceAt(account, limit string, at time.Time, want string) {
	f.Helper()
	if got := showBalance(f.balanceAt(account, limit, at)); got != want {
		f.Errorf("%s/%s:\n got %s\nwant %s", account, limit, got, want)
	}
}

// showBalance writes spent, held and available, and whatever else is not 0: "S 3, H 5, A 2, overrun 1".
func showBalance(b spendlimit.Balance) string {
	s := fmt.Sprintf("S %s, H %s, A %s", b.Unit.Format(b.Spent), b.Unit.Format(b.Held), b.Unit.Format(b.Available))
	s += nonZero("overrun", b.Overrun) + nonZero("cut", b.Cut) + nonZero("assumed", b.Assumed)
	if b.Unpriced != 0 {
		s += fmt.Sprintf(", unpriced %d", b.Unpriced)
	}
	return s
}

func nonZero(name string, a spendlimit.Amount) string {
	if a == 0 {
		return ""
	}
	return fmt.Sprintf(", %s %s", name, dollars(a))
}

// wantReceipt compares a receipt as showReceipt writes it.
func (f *fixture) wantReceipt(r spendlimit.Receipt, want string) {
	f.Helper()
	if got := showReceipt(r); got != want {
		f.Errorf("receipt:\n got %s\nwant %s", got, want)
	}
}

// showReceipt writes what is not 0, in the order of the type: "cost 3, returned 2, late".
func showReceipt(r spendlimit.Receipt) string {
	s := nonZero("cost", r.Cost) + nonZero("granted", r.Granted) + nonZero("returned", r.Returned) + nonZero("excess", r.Excess) +
		nonZero("overrun", r.Overrun) + nonZero("assumed", r.Assumed) + nonZero("own", r.Own)
	if r.LiveChildren != 0 {
		s += fmt.Sprintf(", children %d", r.LiveChildren)
	}
	for _, flag := range []struct {
		name string
		set  bool
	}{{"late", r.Late}, {"unpriced", r.Unpriced}, {"replayed", r.Replayed}, {"zero cost", r.Anomaly == spendlimit.AnomalyZeroCost}} {
		if flag.set {
			s += ", " + flag.name
		}
	}
	return strings.TrimPrefix(s, ", ")
}

// wantHold compares a hold as showHold writes it.
func (f *fixture) wantHold(k, want string) {
	f.Helper()
	h, err := f.Hold(f.ctx, k)
	f.ok(err)
	if got := showHold(h); got != want {
		f.Errorf("hold %s:\n got %s\nwant %s", k, got, want)
	}
}

// showHold writes a hold's state and amounts: "dispatched, granted 10, own 6, recorded 4".
func showHold(h *spendlimit.Hold) string {
	return h.State.String() + ", granted " + dollars(h.Granted) + nonZero("own", h.Own) + nonZero("recorded", h.Recorded) + nonZero("assumed", h.Assumed)
}

// unchanged wants that what it runs writes no row (I8).
func (f *fixture) unchanged(run func()) {
	f.Helper()
	accounts, writes := f.store.accounts(), f.store.writes()
	before := f.dump(accounts)
	run()
	if n := f.store.writes() - writes; n != 0 {
		f.Errorf("%d steps wrote, want none", n)
	}
	if after := f.dump(accounts); after != before {
		f.Errorf("rows changed from\n%s\nto\n%s", before, after)
	}
}

// dump is everything that can be read of some accounts, as text.
func (f *fixture) dump(accounts []string) string {
	f.Helper()
	var b strings.Builder
	for _, account := range accounts {
		for bal, err := range f.Balances(f.ctx, account, time.Time{}) {
			fmt.Fprintf(&b, "%+v %v\n", bal, err)
		}
		for e, err := range f.Entries(f.ctx, account, 0) {
			fmt.Fprintf(&b, "%+v %v\n", e, err)
		}
		for h, err := range f.Holds(f.ctx, spendlimit.HoldFilter{Account: account}) {
			f.ok(err)
			fmt.Fprintf(&b, "%s %s until %v\n", h.Key, showHold(h), h.ExpiresAt)
		}
	}
	return b.String()
}

// kinds lists the kinds of an account's entries, in order; it wants their seqs to be 1, 2, 3 … (R73).
func (f *fixture) kinds(account string) string {
	f.Helper()
	var kinds []string
	for e, err := range f.Entries(f.ctx, account, 0) {
		f.ok(err)
		kinds = append(kinds, e.Kind.String())
		if e.Seq != int64(len(kinds)) {
			f.Errorf("%s: entry %d has seq %d", account, len(kinds), e.Seq)
		}
	}
	return strings.Join(kinds, " ")
}

// concurrently runs f in n goroutines that start together behind a barrier, and waits for them.
func concurrently(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			ready.Done()
			<-start
			f(i)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
}

// probe is a store that remembers the accounts in use, counts the steps that wrote, and fails when told to.
type probe struct {
	spendlimit.Store

	mu    sync.Mutex
	used  map[string]bool
	wrote int
	plan  []fault
}

// fault is the way in which a step fails.
type fault int

const (
	noFault     fault = iota
	faultBefore       // refused before it began
	faultInside       // broken off when its rows were changed, but not written
	faultAfter        // written, but the answer was lost
	faultLost         // not written, and nobody knows
)

var errFault = errors.New("injected fault")

// fail makes the next steps that may write fail so.
func (p *probe) fail(plan ...fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.plan = plan
}

func (p *probe) next(n *spendlimit.Need) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range n.Accounts {
		p.used[a] = true
	}
	if n.ReadOnly || len(p.plan) == 0 {
		return noFault
	}
	f := p.plan[0]
	p.plan = p.plan[1:]
	return f
}

func (p *probe) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	fault := p.next(&n)
	switch fault {
	case faultBefore:
		return errors.Join(spendlimit.ErrUnavailable, errFault)
	case faultLost:
		return errors.Join(spendlimit.ErrUncertain, errFault)
	}
	err := p.Store.Step(ctx, n, func(now int64, w *spendlimit.Work) error {
		err := f(now, w)
		if err == nil && fault == faultInside {
			return errors.Join(spendlimit.ErrUnavailable, errFault)
		}
		if err == nil && !n.ReadOnly && w.Changed() {
			p.mu.Lock()
			p.wrote++
			p.mu.Unlock()
		}
		return err
	})
	if err == nil && fault == faultAfter {
		return errors.Join(spendlimit.ErrUncertain, errFault)
	}
	return err
}

func (p *probe) accounts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for a := range p.used {
		out = append(out, a)
	}
	slices.Sort(out)
	return out
}

func (p *probe) writes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wrote
}
