package allocatortest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/allocator"
)

// CheckModel runs random commands of several processes on a pool over a new store and on a [Model], and compares after every command:
// the answer, who of those that wait was woken and with what, and all that the pool shows; and it checks the invariants. Processes crash and
// come back, replies are lost, and the clock steps, stands and jumps both ways. Every run is in a bubble of testing/synctest, so
// open must not need anything from outside. It returns how many commands it ran. The flags of package rapid say how many runs
// there are and how long each is; a failure is shrunk, printed and replayed by its seed.
func CheckModel(t *testing.T, open Open) (commands int) {
	t.Helper()
	rapid.Check(t, func(r *rapid.T) {
		var failed any
		synctest.Test(t, func(t *testing.T) {
			w := &machine{ctx: t.Context(), tb: t}
			defer func() {
				failed = recover() // rapid's own, to be passed on outside of the bubble
				w.close()
			}()
			w.begin(r, open)
			r.Repeat(w.actions(r))
			commands += w.ran
		})
		passOn(failed)
	})
	return commands
}

// passOn lets rapid see how a run ended. It tells ends apart by where they come from.
func passOn(end any) {
	switch fmt.Sprintf("%T", end) {
	case "<nil>":
	case "rapid.invalidData":
		panic(end)
	case "rapid.stopTest":
		panic(end)
	default:
		panic(end)
	}
}

// machine is a small world, where few names and times meet often.
type machine struct {
	ctx    context.Context
	tb     testing.TB
	time   machineTime
	system machineSystem
	handle Handle
	model  *Model
	spec   allocator.Spec
	eye    *machineProcess // looks, and does nothing
	procs  []*machineProcess
	born   int // processes so far

	ids        map[uint64]allocator.LeaseID
	prints     map[string]allocator.Fingerprint // by evidence
	seen       []machineEvidence
	admins     int
	rev        int64
	ran        int
	was        modelRows
	identities map[*allocator.Lease]string // what the Refs of handles say
	free       map[uint64]bool             // epochs whose handles can't know any more when they end
}

// machineTime is the clock of the store and, with a monotonic reading, of all processes.
type machineTime struct {
	mu   sync.Mutex
	us   int64
	mono time.Duration
}

func (c *machineTime) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.UnixMicro(c.us)
}

func (c *machineTime) local() (time.Time, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.UnixMicro(c.us), c.mono
}

// pass lets time pass; jump sets the wall clock only.
func (c *machineTime) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.us += d.Microseconds()
	c.mono += d
}

func (c *machineTime) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.us += d.Microseconds()
}

// machineSystem says of all boots which processes there are.
type machineSystem struct {
	mu   sync.Mutex
	pids map[string]map[int64]allocator.Process
}

func (s *machineSystem) set(boot string, pid int64, p allocator.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pids[boot] == nil {
		s.pids[boot] = map[int64]allocator.Process{}
	}
	s.pids[boot][pid] = p
}

func (s *machineSystem) on(boot string, pid int64) allocator.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pids[boot][pid]
}

// bootProber asks about one boot.
type bootProber struct {
	s    *machineSystem
	boot string
}

func (b bootProber) Process(_ context.Context, pid int64) allocator.Process {
	return b.s.on(b.boot, pid)
}

// machineProcess is one process, with what it has in memory.
type machineProcess struct {
	ModelProcess
	name    string
	pool    *allocator.Pool
	line    *line
	waiters []*machineWaiter
	handles map[uint64]*allocator.Lease
}

// machineWaiter is one AcquireWait on its way.
type machineWaiter struct {
	request allocator.Request
	ticket  int64
	cancel  context.CancelFunc
	done    chan struct{}
	lease   *allocator.Lease
	err     error
}

func (x *machineWaiter) over() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

// lost tells whether it is the waiter's ticket that ended.
func (x *machineWaiter) lost(k ModelGone) bool { return x.ticket > 0 && k.Seq == x.ticket }

// machineEvidence is what was probed at some time.
type machineEvidence struct {
	allocator.Evidence
	text string
}

// line is the way of one process to the store. It can be cut, or lose the reply to one step.
type line struct {
	allocator.Store
	mu   sync.Mutex
	cut  bool
	lose bool
	held chan struct{} // steps wait until it is closed
}

// hold lets steps wait until open is called.
func (l *line) hold() (open func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := make(chan struct{})
	l.held = held
	return func() {
		l.mu.Lock()
		l.held = nil
		l.mu.Unlock()
		close(held)
	}
}

func (l *line) wait() {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held != nil {
		<-held
	}
}

func (l *line) broken() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut
}

func (l *line) set(cut, lose bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.lose = cut, lose
}

func (l *line) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	if l.broken() {
		return allocator.ErrUnavailable
	}
	l.wait()
	err := l.Store.Step(ctx, n, f)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.lose && !n.ReadOnly {
		l.lose = false
		return allocator.ErrUncertain
	}
	return err
}

func (l *line) Page(ctx context.Context, q allocator.Query) (allocator.Rows, error) {
	if l.broken() {
		return allocator.Rows{}, allocator.ErrUnavailable
	}
	return l.Store.Page(ctx, q)
}

// randomBytes are ids that are all different.
type randomBytes struct {
	mu sync.Mutex
	r  *rand.ChaCha8
}

func newRandomBytes(n int) *randomBytes {
	return &randomBytes{r: rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})}
}

func (b *randomBytes) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.r.Read(p)
}

func (w *machine) begin(r *rapid.T, open Open) {
	w.time.us = 1_750_000_000_000_000
	w.system.pids = map[string]map[int64]allocator.Process{}
	w.handle = open(w.tb, w.time.now)
	w.model = NewModel()
	w.ids, w.prints, w.free = map[uint64]allocator.LeaseID{}, map[string]allocator.Fingerprint{}, map[uint64]bool{}
	w.identities = map[*allocator.Lease]string{}
	w.eye = w.process(r, "eye", "boot-1", "")
	for i := range 3 {
		w.procs = append(w.procs, w.process(r, fmt.Sprint("p", i), machineBoots[i], machineHosts[i]))
	}
	w.spec = w.drawSpec(r)
	w.run(r, command{
		text: fmt.Sprintf("create %+v", w.spec), who: w.eye,
		pool:  func(p *allocator.Pool) (any, error) { return p.Create(w.ctx, w.spec) },
		model: func(m *Model, who *ModelProcess) (any, error) { return m.Create(w.time.us, who, w.spec) },
	})
}

var (
	machineBoots = []string{"boot-1", "boot-1", "boot-2"}
	machineHosts = []string{"", "", "host"}
)

// process starts a process.
func (w *machine) process(r *rapid.T, name, boot, host string) *machineProcess {
	w.born++
	h := allocator.Holder{Boot: boot, Namespace: "1", PID: int64(w.born), Start: int64(100 + w.born), Host: host}
	h.Incarnation[0], h.Incarnation[1] = byte(w.born), byte(w.born>>8)
	w.system.set(boot, h.PID, allocator.Process{Presence: allocator.Present, Start: h.Start})
	p := &machineProcess{name: fmt.Sprint(name, ".", w.born), line: &line{Store: w.handle.Store}, handles: map[uint64]*allocator.Lease{}}
	p.ModelProcess = ModelProcess{
		Holder: h, HostGiven: host != "", Waits: p.waits, Same: p.same,
		System: func(pid int64) allocator.Process { return w.system.on(boot, pid) },
	}
	pool, err := allocator.New(p.line, modelPool, allocator.Options{
		Clock: w.time.local, Rand: newRandomBytes(w.born), Holder: &h, HostID: host, Owners: bootProber{&w.system, boot},
	})
	if err != nil {
		r.Fatal(err)
	}
	p.pool = pool
	return p
}

func (p *machineProcess) waits(attempt string) bool { return p.waiter(attempt) != nil }

func (p *machineProcess) same(r allocator.Request) bool {
	x := p.waiter(r.Attempt)
	return x != nil && newModelParams(x.request).differs(newModelParams(r)) == nil
}

func (p *machineProcess) waiter(attempt string) *machineWaiter {
	for _, x := range p.waiters {
		if x.request.Attempt == attempt {
			return x
		}
	}
	return nil
}

func (p *machineProcess) forget(x *machineWaiter) {
	p.waiters = slices.DeleteFunc(p.waiters, func(y *machineWaiter) bool { return x == y })
}

// kill ends a process as a crash does: nothing of it reaches the store any more.
func (p *machineProcess) kill() {
	p.line.set(true, false)
	for _, x := range p.waiters {
		x.cancel()
	}
	for _, x := range p.waiters {
		<-x.done
	}
	p.waiters = nil
}

func (w *machine) close() {
	for _, p := range w.procs {
		p.kill()
	}
	if w.handle.Close != nil {
		_ = w.handle.Close()
	}
}

// command is one call, to the pool and to the model.
type command struct {
	text  string
	who   *machineProcess
	pool  func(*allocator.Pool) (any, error)
	model func(*Model, *ModelProcess) (any, error)
}

// run gives a command to both and compares.
func (w *machine) run(r *rapid.T, c command) {
	w.log(r, c.who, c.text)
	got, err := c.pool(c.who.pool)
	want, wantErr := c.model(w.model, &c.who.ModelProcess)
	w.judge(r, c, want, wantErr, got, err)
	w.collect(r, c)
	w.compare(r, c.text)
}

// runTwice loses the reply to a command, which is then said again (I14). once is what the model does for the lost one.
func (w *machine) runTwice(r *rapid.T, c command, once func(*Model, *ModelProcess)) {
	w.log(r, c.who, c.text+", and the reply is lost")
	c.who.line.set(false, true)
	_, err := c.pool(c.who.pool)
	lost := errors.Is(err, allocator.ErrUncertain)
	c.who.line.set(false, false)
	if !lost {
		r.Fatalf("%s: %v, though the reply is lost", c.text, err)
	}
	once(w.model, &c.who.ModelProcess) // whoever it woke does not hear of it
	w.compare(r, c.text)
	w.run(r, c)
}

func (w *machine) log(r *rapid.T, who *machineProcess, text string) {
	w.ran++
	r.Logf("%s %s: %s", w.time.now().UTC().Format("01-02T15:04:05.000000"), who.name, text)
}

// judge compares two answers.
func (w *machine) judge(r *rapid.T, c command, want any, wantErr error, got any, err error) {
	w.sameHint(wantErr, err)
	if d := diff(fault(wantErr), fault(err)); d != "" {
		r.Fatalf("%s: error (-model +pool):\n%s\nmodel: %v\npool: %v", c.text, d, wantErr, err)
	}
	if err != nil {
		return
	}
	if s, ok := got.(allocator.PoolState); ok {
		s.Rev = 0
		got = s
	}
	if d := diff(want, got); d != "" {
		r.Fatalf("%s: answer (-model +pool):\n%s", c.text, d)
	}
}

// sameHint takes the hint of a refusal for the right one where leases end before or after their own time: a store finds the lease
// that comes first by that.
func (w *machine) sameHint(want, got error) {
	var a, b *allocator.FullError
	if !errors.As(want, &a) || !errors.As(got, &b) {
		return
	}
	for i := range w.model.Leases {
		if l := &w.model.Leases[i]; l.live() && (w.model.ceiling(l) < l.Expires || w.model.Jump > l.Expires) {
			b.NextChange = a.NextChange
		}
	}
}

// fault is the part of an error that the rules fix.
func fault(err error) any {
	var full *allocator.FullError
	var held *allocator.HeldError
	var lost *allocator.LostError
	var mismatch *allocator.MismatchError
	var stale *allocator.StaleError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &full):
		return *full
	case errors.As(err, &held):
		return *held
	case errors.As(err, &lost):
		return *lost
	case errors.As(err, &mismatch):
		return *mismatch
	case errors.As(err, &stale) && stale.Seq > 0:
		return fmt.Sprint("stale: the last renewal is ", stale.Seq)
	case errors.As(err, &stale) && stale.Version > 0:
		return fmt.Sprint("stale: the version is ", stale.Version)
	}
	for _, known := range []error{
		allocator.ErrAttemptMismatch, allocator.ErrDraining, allocator.ErrStale, allocator.ErrLapsed, allocator.ErrTicketLost, allocator.ErrNotReclaimable,
		allocator.ErrBusySlot, allocator.ErrConfigMismatch, allocator.ErrNotFound, allocator.ErrInvalid, context.Canceled,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return err.Error()
}

// collect looks who of those that wait was woken by a command, and by what.
func (w *machine) collect(r *rapid.T, c command) {
	synctest.Wait()
	for _, x := range w.model.Woken {
		w.woken(r, c.who, x.Attempt, ModelGrant{Epoch: x.Epoch, Existing: x.Existing}, nil)
	}
	for _, x := range w.model.Gone {
		if k := c.who.waiter(x.Attempt); x.Cause != nil && k != nil && k.lost(x) {
			w.woken(r, c.who, x.Attempt, ModelGrant{}, x.Cause)
		}
	}
	w.model.Woken, w.model.Gone = nil, nil
	for _, p := range w.procs {
		for _, x := range p.waiters {
			if x.over() {
				r.Fatalf("%s: the waiter for %s of %s ended: %v", c.text, x.request.Attempt, p.name, x.err)
			}
		}
	}
}

// woken takes the waiter for an attempt out, which must have ended in one way.
func (w *machine) woken(r *rapid.T, p *machineProcess, attempt string, want ModelGrant, wantErr error) {
	x := p.waiter(attempt)
	switch {
	case x == nil:
		r.Fatalf("nobody waits for %s in %s", attempt, p.name)
	case !x.over():
		r.Fatalf("the waiter for %s of %s was not woken with %+v, %v", attempt, p.name, want, wantErr)
	}
	p.forget(x)
	x.cancel()
	w.sameHint(wantErr, x.err)
	if d := diff(fault(wantErr), fault(x.err)); d != "" {
		r.Fatalf("the waiter for %s of %s: error (-model +pool):\n%s", attempt, p.name, d)
	}
	if wantErr == nil {
		if d := diff(want, w.granted(r, p, x.lease)); d != "" {
			r.Fatalf("the waiter for %s of %s (-model +pool):\n%s", attempt, p.name, d)
		}
	}
}

// granted takes a handle and says what it is.
func (w *machine) granted(r *rapid.T, p *machineProcess, l *allocator.Lease) ModelGrant {
	epoch := l.Epoch()
	if old := p.handles[epoch]; old != nil && old != l && old.Err() == nil && old.Valid() {
		r.Fatalf("two handles for epoch %d in %s", epoch, p.name)
	}
	p.handles[epoch] = l
	return ModelGrant{Epoch: epoch, Existing: l.Existing()}
}

// compare looks at everything that the pool shows.
func (w *machine) compare(r *rapid.T, text string) {
	w.compareState(r, text)
	w.compareSlots(r, text)
	w.compareLeases(r, text)
	w.compareTickets(r, text)
	w.compareGroups(r, text)
	w.identify()
	w.invariants(r, text)
	w.was = w.model.clone()
}

// identify keeps what new handles say in their Refs.
func (w *machine) identify() {
	for _, p := range w.procs {
		for epoch, h := range p.handles {
			if l := w.model.byEpoch(epoch); l != nil && w.identities[h] == "" {
				w.identities[h] = l.identity()
			}
		}
	}
}

func (w *machine) compareState(r *rapid.T, text string) {
	s, err := w.eye.pool.State(w.ctx)
	if err != nil {
		r.Fatalf("%s: state: %v", text, err)
	}
	if written := !reflect.DeepEqual(w.was, w.model.modelRows); written != (s.Rev > w.rev) || s.Rev < w.rev { // I16
		r.Fatalf("%s: I16: rev %d, was %d, but written is %t", text, s.Rev, w.rev, written)
	}
	w.rev, s.Rev = s.Rev, 0
	if d := diff(w.model.State(), s); d != "" {
		r.Fatalf("%s: state (-model +pool):\n%s", text, d)
	}
}

func (w *machine) compareSlots(r *rapid.T, text string) {
	got, err := w.eye.pool.Probes(w.ctx, 0, 1000)
	if err != nil {
		r.Fatalf("%s: probes: %v", text, err)
	}
	for i := range got {
		w.learn(r, w.model.Evidence(i), got[i].Fingerprint)
		got[i].Fingerprint = allocator.Fingerprint{}
		if l := got[i].Lease; l != nil {
			w.plain(r, l)
		}
	}
	if d := diff(w.model.Probes(w.time.us, &w.eye.ModelProcess), got); d != "" {
		r.Fatalf("%s: probes (-model +pool):\n%s", text, d)
	}
}

// learn pairs evidence with its fingerprint: equal ⇔ equal (I12).
func (w *machine) learn(r *rapid.T, text string, print allocator.Fingerprint) {
	if known, ok := w.prints[text]; ok && known != print {
		r.Fatalf("I12: two fingerprints of %s", text)
	}
	w.prints[text] = print
	for other, p := range w.prints {
		if p == print && other != text {
			r.Fatalf("I12: one fingerprint of %s and %s", text, other)
		}
	}
}

// plain takes out of a lease what the model does not know, and checks that.
func (w *machine) plain(r *rapid.T, l *allocator.LeaseState) {
	if id, ok := w.ids[l.Epoch]; ok && id != l.ID {
		r.Fatalf("I2: two leases have epoch %d", l.Epoch)
	}
	for epoch, id := range w.ids {
		if id == l.ID && epoch != l.Epoch {
			r.Fatalf("two epochs of one lease: %d, %d", epoch, l.Epoch)
		}
	}
	w.ids[l.Epoch], l.ID = l.ID, allocator.LeaseID{}
	l.End.Evidence = allocator.Fingerprint{}
}

func (w *machine) compareLeases(r *rapid.T, text string) {
	got := listed(r, w.eye.pool.Leases(w.ctx, true))
	var want []allocator.LeaseState
	for i := range w.model.Leases {
		want = append(want, w.model.Leases[i].show())
	}
	for i := range got {
		if i < len(want) {
			w.checkEnd(r, &w.model.Leases[i], got[i].End.Evidence)
		}
		w.plain(r, &got[i])
	}
	if d := diff(want, got); d != "" {
		r.Fatalf("%s: leases (-model +pool):\n%s", text, d)
	}
}

// checkEnd compares the fingerprint that an end rests on.
func (w *machine) checkEnd(r *rapid.T, l *modelLease, print allocator.Fingerprint) {
	if l.Evidence == "" {
		if !print.IsZero() {
			r.Fatalf("epoch %d ended with evidence, by %v", l.Epoch, l.End.Reason)
		}
		return
	}
	w.learn(r, l.Evidence, print)
}

// diff tells how two answers differ, or "".
func diff(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(allocator.Fingerprint{}))
}

func listed[T any](r *rapid.T, list iter.Seq2[T, error]) (out []T) {
	for v, err := range list {
		if err != nil {
			r.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

func (w *machine) compareTickets(r *rapid.T, text string) {
	var want []allocator.TicketState
	for _, t := range w.model.Tickets {
		want = append(want, allocator.TicketState{
			Seq: t.Seq, Attempt: t.Attempt, Group: t.Params.Group, Units: t.Params.Units, Holder: t.Holder, Deadline: modelTime(t.Deadline),
		})
	}
	if d := diff(want, listed(r, w.eye.pool.Tickets(w.ctx))); d != "" {
		r.Fatalf("%s: tickets (-model +pool):\n%s", text, d)
	}
}

// compareGroups wants every group that is listed or has something. Others may be there, with nothing.
func (w *machine) compareGroups(r *rapid.T, text string) {
	seen := map[string]bool{}
	for _, g := range listed(r, w.eye.pool.Groups(w.ctx)) {
		known, isListed := w.model.group(g.Key)
		want := allocator.GroupState{Group: known, Listed: isListed, Used: w.model.groupUsed(g.Key), Waiting: len(w.model.queue(g.Key))}
		if d := diff(want, g); d != "" {
			r.Fatalf("%s: group (-model +pool):\n%s", text, d)
		}
		seen[fmt.Sprintf("%q", g.Key)] = true
	}
	for _, g := range machineGroups() {
		_, isListed := w.model.group(g)
		if (isListed || w.model.groupUsed(g) > 0 || len(w.model.queue(g)) > 0) && !seen[fmt.Sprintf("%q", g)] {
			r.Fatalf("%s: group %q is not there", text, g)
		}
	}
}

// invariants checks what must be true whatever was said. The model keeps to what it must itself: so this is about it, too.
func (w *machine) invariants(r *rapid.T, text string) {
	m, was := w.model, &Model{modelRows: w.was}
	broken := func(name string, is bool) {
		if is {
			r.Fatalf("%s: %s", text, name)
		}
	}
	for i := range m.Slots {
		n := 0
		for _, l := range m.Leases {
			if l.held() && slices.Contains(l.Slots, i) {
				n++
			}
		}
		broken("I1", n > 1)
	}
	for i, l := range m.Leases {
		broken("I2", i > 0 && l.Epoch <= m.Leases[i-1].Epoch)
		before := was.byEpoch(l.Epoch)
		broken("I2: an epoch is used again", before == nil && l.Epoch <= was.Epoch)
		broken("I6", before != nil && !before.held() && l.held())
		g, listed := m.group(l.Params.Group)
		broken("I10", before == nil && listed && g.Max != nil && l.held() && m.groupUsed(g.Key) > *g.Max)
	}
	broken("I4", m.used() > m.Capacity && m.used() > was.used() && m.Capacity == was.Capacity)
	for _, t := range m.Tickets {
		broken("I11", m.Status == allocator.PoolOpen && m.queue(t.Params.Group)[0].Seq == t.Seq && m.fits(t.Params))
	}
	w.checkHandles(r, text)
}

// checkHandles is I19: a handle that is valid has its lease, and time left.
func (w *machine) checkHandles(r *rapid.T, text string) {
	w.model.look(w.time.us, &w.eye.ModelProcess, func() {
		for _, p := range w.procs {
			for epoch, h := range p.handles {
				l := w.model.byEpoch(epoch)
				if !h.Valid() || w.free[epoch] || l == nil || l.End.Reason == allocator.ReasonReleased || l.End.Reason == allocator.ReasonForced || l.End.Reason == allocator.ReasonDeadOwner {
					continue
				}
				if !l.live() || w.model.lapsed(l) && !w.model.guarded() {
					r.Fatalf("%s: I19: the handle of epoch %d in %s is valid, the lease is %+v", text, epoch, p.name, *l)
				}
			}
		}
	})
}
