package spendlimittest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/spendlimit"
)

// CheckModel runs random commands on a ledger over a new store and on a [Model], and compares after every command: the answer,
// all balances, all holds, the journal, and the invariants I1 to I8 and I10. Between commands the clock is set on and back,
// the ledger is made anew, and the store fails. It returns how many commands it ran. The flags of package rapid say how many
// runs there are and how long each is; a failure is shrunk, printed and replayed by its seed.
func CheckModel(t *testing.T, open Open) (commands int) {
	t.Helper()
	rapid.Check(t, func(r *rapid.T) {
		w := newMachine(r, t, open)
		defer w.close()
		for _, a := range machineAccounts() {
			w.first(r, w.limitOf(r, a, "l1", ""))
		}
		r.Repeat(w.actions())
		commands += w.ran
	})
	return commands
}

// machine is a small world, where few names and amounts meet often.
type machine struct {
	ctx   context.Context
	clock time.Time
	cfg   spendlimit.Config
	tb    testing.TB
	used  Handle
	store *Faulty // over the handle's
	led   *spendlimit.Ledger
	model *Model

	prints map[string]string // model's fingerprint of a limit → the ledger's
	done   []command
	narrow bool // most is about one account, and its limits change seldom
	trees  bool // many holds have a parent
	ran    int
	keys   int // handed out
	was    world
	direct map[string]spendlimit.Amount // charged and adjusted, by account
	fresh  string                       // the fingerprint that the ledger has just made
}

// command is one call, to the ledger and to the model.
type command struct {
	text   string
	ledger func(*machine) (any, error)
	model  func(*machine) (any, error)
}

// world is what the reads of a ledger say.
type world struct {
	now      map[string][]spendlimit.Balance // by account
	rows     map[string][]spendlimit.Balance // the periods that were needed so far
	holds    []spendlimit.Hold
	journals map[string][]spendlimit.Entry
}

func machineAccounts() []string { return []string{"a", "b", "c"} }

func newMachine(t *rapid.T, tb testing.TB, open Open) *machine {
	starts := []string{"2026-03-07T23:59:58Z", "2026-05-14T12:00:00Z", "2026-10-31T15:59:00Z"}
	start, err := time.Parse(time.RFC3339, rapid.SampledFrom(starts).Draw(t, "start"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := drawConfig(t)
	w := &machine{
		ctx: context.Background(), clock: start, cfg: cfg, tb: tb, model: NewModel(cfg),
		narrow: rapid.Bool().Draw(t, "narrow"), trees: rapid.Bool().Draw(t, "trees"),
		prints: map[string]string{"": ""}, direct: map[string]spendlimit.Amount{},
	}
	w.begin(t, open(tb, func() time.Time { return w.clock }))
	w.was = w.read(t)
	w.compareBalances(t, w.was) // learns the fingerprints of the default limits
	return w
}

func drawConfig(t *rapid.T) spendlimit.Config {
	cfg := spendlimit.Config{Unit: spendlimit.Requests}
	cfg.NoLimit = rapid.SampledFrom([]spendlimit.Policy{spendlimit.Refuse, spendlimit.Refuse, spendlimit.Allow}).Draw(t, "no limit")
	if rapid.Bool().Draw(t, "defaults") {
		cfg.Defaults = func(account string) []spendlimit.Limit {
			if account != "c" {
				return nil
			}
			return []spendlimit.Limit{{Name: "l1", Kind: spendlimit.Day, Amount: 12}, {Name: "l2", Kind: spendlimit.AllTime, Amount: 40}}
		}
	}
	return cfg
}

// begin makes a ledger on a handle.
func (w *machine) begin(t *rapid.T, h Handle) {
	w.used, w.store = h, NewFaulty(h.Store, nil)
	led, err := spendlimit.New(w.store, w.cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.led = led
}

func (w *machine) close() {
	if w.used.Close != nil {
		_ = w.used.Close()
	}
}

// restart goes on with another ledger, on a handle of its own where the store has more than one.
func (w *machine) restart(t *rapid.T) {
	h := w.used
	if h.Again != nil {
		h = w.used.Again(w.tb)
		w.close()
	}
	w.begin(t, h)
}

// run gives a command to both and compares.
func (w *machine) run(t *rapid.T, c command) {
	w.log(t, c.text)
	got, err := c.ledger(w)
	want, wantErr := c.model(w)
	w.judge(t, c, want, wantErr, got, err)
	is := w.compare(t, c)
	if idle(got, err) { // I8
		w.unchanged(t, c, w.was, is)
	}
	w.was = is
}

func (w *machine) log(t *rapid.T, text string) {
	w.ran++
	t.Logf("%s %s", w.clock.Format("2006-01-02T15:04:05.000000"), text)
}

// judge compares two answers.
func (w *machine) judge(t *rapid.T, c command, want any, wantErr error, got any, err error) {
	if diff := different(w.fault(wantErr), w.fault(err)); diff != "" {
		t.Fatalf("%s: error (-model +ledger):\n%s\nmodel: %v\nledger: %v", c.text, diff, wantErr, err)
	}
	if diff := different(w.plain(want), w.plain(got)); err == nil && diff != "" {
		t.Fatalf("%s: answer (-model +ledger):\n%s", c.text, diff)
	}
	var denied *spendlimit.DeniedError
	if errors.As(err, &denied) && (denied.RetryAfter > 0) == denied.Hopeless { // R66
		t.Fatalf("%s: %v: hopeless %t, but retry after %v", c.text, err, denied.Hopeless, denied.RetryAfter)
	}
}

// runFaulty lets the store fail in a command, which is then said again: what was not applied is done now, and what was
// applied is not done twice.
func (w *machine) runFaulty(t *rapid.T, c command, kind FaultKind) {
	fault := Fault{Kind: kind, At: w.store.Calls() + 1}
	w.log(t, c.text+" with fault "+fault.String())
	w.store.SetPlan(PlanOf(fault))
	_, err := c.ledger(w)
	switch {
	case kind == FaultBefore && errors.Is(err, spendlimit.ErrUnavailable):
		w.unchanged(t, c, w.was, w.compare(t, c))
		w.run(t, c)
		return
	case kind != FaultAfter || !errors.Is(err, spendlimit.ErrUncertain):
		t.Fatalf("%s with fault %s: %v", c.text, fault, err)
	}
	got, err := c.ledger(w)
	_, _ = c.model(w)
	want, wantErr := c.model(w)
	w.judge(t, c, want, wantErr, got, err)
	w.was = w.compare(t, c)
}

// different tells how two answers differ, in what they say: the order of sets says nothing.
func different(want, got any) string {
	if want, got := tidy(want), tidy(got); !reflect.DeepEqual(want, got) {
		return cmp.Diff(want, got, cmp.AllowUnexported(world{}, historyAnswer{}), cmpopts.IgnoreUnexported(spendlimit.Hold{}))
	}
	return ""
}

// tidy puts the sets of an answer in order, and leaves empty ones out.
func tidy(v any) any {
	switch v := v.(type) {
	case spendlimit.Receipt:
		v.Crossed = ordered(v.Crossed)
		return v
	case spendlimit.EndedError:
		v.Receipt.Crossed = ordered(v.Receipt.Crossed)
		return v
	case spendlimit.LimitState:
		v.Limit.Thresholds = ordered(v.Limit.Thresholds)
		return v
	case []spendlimit.Balance:
		return each(v, func(b *spendlimit.Balance) { b.Fired = ordered(b.Fired) })
	case []spendlimit.Hold:
		return each(v, func(h *spendlimit.Hold) {
			h.Crossed, h.Accounts = ordered(h.Crossed), ordered(h.Accounts)
			if len(h.Labels) == 0 {
				h.Labels = nil
			}
		})
	case []spendlimit.Entry:
		return each(v, func(e *spendlimit.Entry) {
			e.Postings = ordered(e.Postings)
			if len(e.Labels) == 0 {
				e.Labels = nil
			}
		})
	}
	return v
}

func each[T any](list []T, do func(*T)) []T {
	if len(list) == 0 {
		return nil
	}
	list = slices.Clone(list)
	for i := range list {
		do(&list[i])
	}
	return list
}

func ordered[T any](set []T) []T {
	if len(set) == 0 {
		return nil
	}
	set = slices.Clone(set)
	if len(set) > 1 {
		slices.SortFunc(set, func(a, b T) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
	return set
}

// bare is holds without their ledger.
func bare(holds []*spendlimit.Hold) []spendlimit.Hold {
	var out []spendlimit.Hold
	for _, h := range holds {
		out = append(out, spendlimit.Hold{
			Key: h.Key, Parent: h.Parent, Accounts: h.Accounts, State: h.State, Granted: h.Granted, Own: h.Own, Recorded: h.Recorded,
			Assumed: h.Assumed, Group: h.Group, Slots: h.Slots, Labels: h.Labels, Price: h.Price, Binding: h.Binding,
			CreatedAt: h.CreatedAt, ExpiresAt: h.ExpiresAt, EndedAt: h.EndedAt, Replayed: h.Replayed, Crossed: h.Crossed, Revision: h.Revision,
		})
	}
	return out
}

// plain puts the model's names of fingerprints into an answer.
func (w *machine) plain(v any) any {
	switch v := v.(type) {
	case *spendlimit.Hold:
		return bare([]*spendlimit.Hold{v})
	case spendlimit.LimitState:
		v.Fingerprint = w.name(v.Fingerprint)
		return v
	case []spendlimit.Balance:
		v = slices.Clone(v)
		for i := range v {
			v[i].Fingerprint = w.name(v[i].Fingerprint)
		}
		return v
	}
	return v
}

// name is the model's name of a fingerprint of the ledger.
func (w *machine) name(print string) string {
	for name, p := range w.prints {
		if p == print {
			return name
		}
	}
	return print
}

// fault is the part of an error that the spec fixes.
func (w *machine) fault(err error) any {
	var denied *spendlimit.DeniedError
	var ended *spendlimit.EndedError
	var stale *spendlimit.StaleError
	switch {
	case errors.As(err, &denied):
		return w.refusal(*denied)
	case errors.As(err, &ended):
		return *ended
	case errors.As(err, &stale):
		return spendlimit.StaleError{Current: w.name(stale.Current)}
	case err == nil:
		return nil
	}
	for _, known := range []error{
		spendlimit.ErrKeyReused, spendlimit.ErrNotFound, spendlimit.ErrDispatched, spendlimit.ErrInvalid,
		spendlimit.ErrOverflow, spendlimit.ErrUnavailable, spendlimit.ErrUncertain,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

// refusal leaves out hints, and limits that the spec does not choose.
func (w *machine) refusal(e spendlimit.DeniedError) any {
	switch e.Reason {
	case spendlimit.ReasonSpent, spendlimit.ReasonHeld:
		e.Binding.Fingerprint = ""
		e.Exhausted = slices.Clone(e.Exhausted)
		for i := range e.Exhausted {
			e.Exhausted[i].Fingerprint = ""
		}
		e.RetryAfter = 0
		return fmt.Sprintf("%+v", struct{ spendlimit.DeniedError }{e})
	case spendlimit.ReasonNoLimit:
		return fmt.Sprint(e.Reason, e.Account)
	case spendlimit.ReasonParent:
		return fmt.Sprint(e.Reason, e.Parent)
	}
	return e.Reason.String()
}

// compare looks at everything that the ledger shows, after a command.
func (w *machine) compare(t *rapid.T, c command) world {
	is := w.read(t)
	w.compareBalances(t, is)
	if diff := different(bare(w.model.Holds(w.clock, spendlimit.HoldFilter{})), is.holds); diff != "" {
		t.Fatalf("%s: holds (-model +ledger):\n%s", c.text, diff)
	}
	for _, a := range machineAccounts() {
		if diff := different(w.model.Entries(a, 0), is.journals[a]); diff != "" {
			t.Fatalf("%s: entries of %s (-model +ledger):\n%s", c.text, a, diff)
		}
	}
	w.invariants(t, is)
	return is
}

// unchanged wants the ledger to say what it said before a command.
func (w *machine) unchanged(t *rapid.T, c command, was, is world) {
	if diff := different(was, is); diff != "" {
		t.Fatalf("%s did nothing, but changed (-before +after):\n%s", c.text, diff)
	}
}

func (w *machine) compareBalances(t *rapid.T, is world) {
	for _, a := range machineAccounts() {
		want := w.model.Balances(w.clock, a, time.Time{})
		w.learn(t, want, is.now[a])
		if diff := different(w.plain(want), w.plain(is.now[a])); diff != "" {
			t.Fatalf("balances of %s (-model +ledger):\n%s", a, diff)
		}
		var rows []spendlimit.Balance
		for _, at := range w.model.instants(a) {
			rows = append(rows, w.model.Balances(w.clock, a, at)...)
		}
		if diff := different(w.plain(rows), w.plain(is.rows[a])); diff != "" {
			t.Fatalf("old balances of %s (-model +ledger):\n%s", a, diff)
		}
	}
}

// learn pairs fingerprints that are seen for the first time. Each stands for one state of one limit (R55).
func (w *machine) learn(t *rapid.T, want, got []spendlimit.Balance) {
	for i := range min(len(want), len(got)) {
		name, print := want[i].Fingerprint, got[i].Fingerprint
		if _, known := w.prints[name]; known {
			continue
		}
		if other := w.name(print); other != print {
			t.Fatalf("%s has the fingerprint of %s", name, other)
		}
		w.prints[name] = print
	}
}

// instants lists one in each period of an account's limits that was needed so far: its first, where it has one.
func (m *Model) instants(account string) []time.Time {
	seen := map[int64]bool{}
	for _, l := range m.active(account) {
		for _, p := range m.rows(l) {
			switch {
			case p.start != beginning:
				seen[p.start] = true
			case p.end != never:
				seen[p.end-1] = true
			default:
				seen[1] = true
			}
		}
	}
	var out []time.Time
	for _, at := range slices.Sorted(maps.Keys(seen)) {
		out = append(out, utcMicro(at))
	}
	return out
}

// read asks the ledger for everything.
func (w *machine) read(t *rapid.T) world {
	is := world{
		now: map[string][]spendlimit.Balance{}, rows: map[string][]spendlimit.Balance{}, journals: map[string][]spendlimit.Entry{},
	}
	for _, a := range machineAccounts() {
		is.now[a] = listed(t, w.led.Balances(w.ctx, a, time.Time{}))
		for _, at := range w.model.instants(a) {
			is.rows[a] = append(is.rows[a], listed(t, w.led.Balances(w.ctx, a, at))...)
		}
		is.journals[a] = listed(t, w.led.Entries(w.ctx, a, 0))
		for i := range is.journals[a] {
			is.journals[a][i].Reason = "" // text
		}
	}
	is.holds = bare(listed(t, w.led.Holds(w.ctx, spendlimit.HoldFilter{})))
	return is
}

func listed[T any](t *rapid.T, list iter.Seq2[T, error]) (out []T) {
	for v, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// invariants checks what must be true of a ledger whatever it was told.
func (w *machine) invariants(t *rapid.T, is world) {
	for _, a := range machineAccounts() {
		w.checkJournal(t, a, is)
		if len(is.journals[a]) == 0 {
			continue
		}
		diffs, err := w.led.Verify(w.ctx, a) // I1 to I3, I6, I7
		if err != nil || len(diffs) > 0 {
			t.Fatalf("verify of %s: %v %v", a, diffs, err)
		}
		for _, b := range is.rows[a] {
			w.checkBalance(t, b)
		}
		w.checkKnown(t, a, is)
	}
}

// idle tells whether an answer says that nothing has happened.
func idle(got any, err error) bool {
	if err != nil {
		return true
	}
	switch v := got.(type) {
	case *spendlimit.Hold:
		return v.Replayed
	case spendlimit.Receipt:
		return v.Replayed
	case spendlimit.LimitState:
		return v.Replayed
	case spendlimit.Offer, []spendlimit.Balance, []spendlimit.Hold, []spendlimit.Entry:
		return true
	}
	return false
}

func (w *machine) checkBalance(t *rapid.T, b spendlimit.Balance) {
	l := w.model.version(w.model.limit(b.Account, b.Limit)).cfg
	if l.Mode == spendlimit.Hard && w.model.modeOf(b) == spendlimit.Hard && b.Spent+b.Held > b.InForce+b.Overrun+b.Cut { // I4
		t.Fatalf("I4: %+v", b)
	}
	for name, n := range map[string]spendlimit.Amount{
		"spent": b.Spent, "held": b.Held, "overrun": b.Overrun, "cut": b.Cut, "assumed": b.Assumed, "unpriced": spendlimit.Amount(b.Unpriced),
	} {
		if n < 0 { // I6
			t.Fatalf("I6: %s below 0: %+v", name, b)
		}
	}
	for _, was := range w.was.rows[b.Account] {
		same := was.Limit == b.Limit && was.Start.Equal(b.Start) &&
			strings.HasPrefix(w.name(was.Fingerprint), generation(w.name(b.Fingerprint)))
		if same && b.Overrun < was.Overrun {
			t.Fatalf("I6: overrun fell from %+v to %+v", was, b)
		}
	}
}

// generation is what the model's fingerprints of one generation of a limit have in common.
func generation(print string) string {
	head, _, _ := strings.Cut(print, ".")
	return head + "."
}

// modeOf is the mode that a period goes by.
func (m *Model) modeOf(b spendlimit.Balance) spendlimit.Mode {
	for _, p := range m.rows(m.limit(b.Account, b.Limit)) {
		if edgeTime(p.start).Equal(b.Start) {
			return m.form(p).mode
		}
	}
	return spendlimit.Soft
}

// checkJournal looks at the new entries of an account.
func (w *machine) checkJournal(t *rapid.T, account string, is world) {
	journal := is.journals[account]
	ends := map[string]int{}
	var seen int64
	if was := w.was.journals[account]; len(was) > 0 {
		seen = was[len(was)-1].Seq
	}
	for i, e := range journal {
		if i > 0 && (e.Seq != journal[i-1].Seq+1 || e.At.Before(journal[i-1].At)) { // I7
			t.Fatalf("I7: %+v comes after %+v", e, journal[i-1])
		}
		if e.Kind == spendlimit.EntrySettle || e.Kind == spendlimit.EntryRelease || e.Kind == spendlimit.EntryLapse {
			if ends[e.Ref]++; ends[e.Ref] > 1 && len(w.model.facts.forgotten) == 0 { // else the key may be another hold's
				t.Fatalf("I7: hold %s has ended twice", e.Ref)
			}
		}
		if e.Seq > seen {
			w.checkGrant(t, e, is)
		}
	}
}

// checkGrant is I5: room that was granted fitted at that moment, and no such entry changes overrun.
func (w *machine) checkGrant(t *rapid.T, e spendlimit.Entry, is world) {
	grant := e.Kind == spendlimit.EntryReserve || e.Kind == spendlimit.EntryGrow || e.Kind == spendlimit.EntryRoll
	for _, g := range e.Postings {
		if g.Overrun != 0 && (grant || e.Kind == spendlimit.EntryExtend || e.Kind == spendlimit.EntryRelease || e.Kind == spendlimit.EntryLapse) {
			t.Fatalf("I5: %+v changed overrun", e)
		}
		for _, b := range is.rows[e.Account] {
			l := w.model.version(w.model.limit(b.Account, b.Limit)).cfg
			on := b.Limit == g.Limit && b.Start.Equal(g.Start) && e.At.Equal(w.clock)
			if on && grant && g.Held > 0 && l.Mode == spendlimit.Hard && b.Available < 0 {
				t.Fatalf("I5: %+v did not fit: %+v", e, b)
			}
		}
	}
}

// checkKnown is I10: all known cost of an account is in every limit that was there from the start.
func (w *machine) checkKnown(t *rapid.T, account string, is world) {
	if len(w.model.facts.forgotten) > 0 {
		return
	}
	known := w.direct[account]
	for _, h := range is.holds {
		if slices.Contains(payersOf(w.model.find(h.Key)), account) {
			known += h.Recorded
		}
	}
	for _, l := range w.model.active(account) {
		if l.gen > 1 || !w.model.fromStart(l) {
			continue
		}
		var sum spendlimit.Amount
		seen := map[time.Time]bool{}
		for _, b := range is.rows[account] {
			if b.Limit == l.name && !seen[b.Start] {
				sum += b.Spent - b.Assumed
				seen[b.Start] = true
			}
		}
		if sum != known {
			t.Fatalf("I10: limit %s of %s counts %d, known are %d", l.name, account, sum, known)
		}
	}
}

// fromStart tells whether nothing but limits was written on the account before l was made.
func (m *Model) fromStart(l *modelLimit) bool {
	for _, e := range m.journal(l.account) {
		switch {
		case e.Kind != spendlimit.EntryLimit:
			return false
		case e.Ref == l.name:
			return true
		}
	}
	return false
}
