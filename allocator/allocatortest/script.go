package allocatortest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/allocator"
)

// scriptProcesses is how many processes a script has.
const scriptProcesses = 3

// op is one operation of a script: what a process asks of a pool, or a move of the clock.
type op struct {
	text string
	// call settles what the arguments are, by what the session has met so far, and returns the call, which may be made again.
	call  func(s *session) call
	clock func(c *testClock) // for all sessions at once
	quiet bool               // writes nothing
}

// call makes a call of a Pool and describes the answer.
type call func() (string, error)

// session is some processes at work on one pool. Two sessions on two stores that play one script are told the same and leave the
// same rows, ids and revisions too.
type session struct {
	testing.TB
	ctx   context.Context
	name  string
	clock *testClock
	store allocator.Store // what the processes use
	ids   idSource
	eye   *allocator.Pool // sees the store as it is
	pools []*allocator.Pool
	dead  deadProcesses
	blind bool            // nobody can tell whether a process is gone
	refs  []allocator.Ref // of leases, as they were granted
	seqs  map[uint64]uint64
	calls int // of admin calls
}

// newSession returns a session whose processes use a store that may fail; sound is the same one without failures.
func newSession(t testing.TB, name string, store, sound allocator.Store, clock *testClock) *session {
	t.Helper()
	ids := newIDs()
	s := &session{
		TB: t, ctx: t.Context(), name: name, clock: clock, ids: ids, store: &sourced{Store: store, ids: ids}, seqs: map[uint64]uint64{}, dead: deadProcesses{},
	}
	s.eye = s.open(sound, scriptProcesses)
	s.begin()
	return s
}

// begin opens the pool for all processes.
func (s *session) begin() {
	s.pools = nil
	for who := range scriptProcesses {
		s.pools = append(s.pools, s.open(s.store, who))
	}
}

// open opens the pool as one of the processes. The first two are on the host that the system knows; the second and the last have
// a host that their operator named.
func (s *session) open(store allocator.Store, who int) *allocator.Pool {
	s.Helper()
	h := allocator.Holder{Boot: "boot", Namespace: "ns", PID: int64(1 + who), Start: 7}
	h.Incarnation[0] = byte(1 + who)
	o := allocator.Options{Clock: s.clock.local, Rand: s.ids.Reader, Holder: &h, Owners: s.dead}
	if who > 0 {
		o.HostID = "host"
	}
	if s.blind {
		o.Owners, o.HostID = nobodyKnows{}, ""
	}
	if who == scriptProcesses-1 {
		h.Boot, h.Namespace = "Boot", "" // as before the host was booted anew
	}
	p, err := allocator.New(store, s.name, o)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// deadProcesses is a system on which some processes are gone.
type deadProcesses map[int64]bool

func (d deadProcesses) Process(_ context.Context, pid int64) allocator.Process {
	if d[pid] {
		return allocator.Process{Presence: allocator.Absent}
	}
	return allocator.Process{Presence: allocator.Present, Start: 7}
}

// idSource is a source of bytes that a step winds to a place of its own, which depends on the pool's last epoch alone. So
// ids are the same however often a store makes a step, or fails before it is made. A pool reads it without a buffer of its own, since
// it is one.
type idSource struct{ *bufio.Reader }

func newIDs() idSource { return idSource{bufio.NewReaderSize(rand.NewChaCha8([32]byte{1}), 4096)} }

func (s idSource) wind(epoch uint64) {
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], epoch)
	s.Reset(rand.NewChaCha8(seed))
}

// sourced is a store whose steps wind a source.
type sourced struct {
	allocator.Store
	ids idSource
}

// Step implements allocator.Store.
func (s *sourced) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	if n.ReadOnly {
		return s.Store.Step(ctx, n, f)
	}
	return s.Store.Step(ctx, n, func(clock int64, set *allocator.Set) error {
		if p := set.Pool(); p != nil {
			s.ids.wind(p.EpochSeq)
		}
		return f(clock, set)
	})
}

// inherit makes s go on where another session is.
func (s *session) inherit(from *session) {
	s.refs, s.seqs, s.dead, s.calls = from.refs, from.seqs, from.dead, from.calls
}

// do makes one operation and describes the answer.
func (s *session) do(o *op) string {
	text, err := o.call(s)()
	return o.text + " -> " + answer(text, err)
}

// answer describes the answer to a call.
func answer(text string, err error) string {
	if err == nil {
		return text
	}
	out := fmt.Sprintf("%s error: %v", text, err)
	var full *allocator.FullError
	if errors.As(err, &full) {
		out += " until " + stamp(full.NextChange)
	}
	return out
}

// firstOnly is what the same call may answer otherwise when it is made once more. Revisions are among it: leases of processes that are gone
// end one by one, and in another order where one of them had to wait.
func firstOnly(x ...any) string {
	return "\x01" + fmt.Sprint(x...) + "\x02"
}

// forgetFirst takes out of an answer what firstOnly has put there.
func forgetFirst(text string) string {
	var b strings.Builder
	for {
		head, rest, ok := strings.Cut(text, "\x01")
		b.WriteString(head)
		if !ok {
			return b.String()
		}
		_, text, _ = strings.Cut(rest, "\x02")
	}
}

func stateText(st allocator.PoolState) string {
	rev := st.Rev
	st.Rev = 0
	return fmt.Sprintf("%+v", st) + firstOnly(" rev ", rev)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// ref returns a lease that was granted not long ago: the pick-th last one.
func (s *session) ref(pick int) allocator.Ref {
	if len(s.refs) == 0 {
		return allocator.Ref{Pool: s.name, ID: allocator.LeaseID{1}, Epoch: 1}
	}
	return s.refs[max(0, len(s.refs)-1-pick)]
}

// took notes a lease.
func (s *session) took(l *allocator.Lease) string {
	r := l.Ref()
	known := false
	for _, x := range s.refs {
		known = known || x.Epoch == r.Epoch
	}
	if !known {
		s.refs = append(s.refs, r)
	}
	return fmt.Sprintf("lease %s epoch %d slots %v left %v%s", r.ID, r.Epoch, l.Slots(), l.Left(), firstOnly(" existing ", l.Existing()))
}

// The operations.

func opClock(d time.Duration) *op {
	return &op{text: fmt.Sprint("clock ", d), clock: func(c *testClock) { c.advance(d) }}
}

// opDead changes whether the system says that a process is gone.
func opDead(who int, dead bool) *op {
	return &op{text: fmt.Sprint(who, " is gone: ", dead), quiet: true, call: func(s *session) call {
		return func() (string, error) {
			s.dead[int64(1+who)] = dead
			return "", nil
		}
	}}
}

func opCreate(spec allocator.Spec) *op {
	return &op{text: "create", call: func(s *session) call {
		return func() (string, error) {
			st, err := s.pools[0].Create(s.ctx, spec)
			return stateText(st), err
		}
	}}
}

func opAcquire(who int, r allocator.Request) *op {
	return &op{text: fmt.Sprintf("%d acquires %+v", who, r), call: func(s *session) call {
		return func() (string, error) {
			l, err := s.pools[who].Acquire(s.ctx, r)
			if err != nil {
				return "", err
			}
			return s.took(l), nil
		}
	}}
}

// opQueue is an AcquireWait whose process is not seen any more after the first step: the ticket is left behind. Another one of the same
// process comes back to it.
func opQueue(who int, r allocator.Request) *op {
	return &op{text: fmt.Sprintf("%d waits for %+v", who, r), call: func(s *session) call {
		return func() (string, error) {
			l, queued, err := firstStep(s.ctx, s.store, func(on allocator.Store) *allocator.Pool { return s.open(on, who) }, r)
			switch {
			case l != nil:
				return s.took(l), nil
			case queued:
				return "queued", nil
			}
			return "", err
		}
	}}
}

// firstStep makes the first step of an AcquireWait on a store, and what comes after it fails.
func firstStep(ctx context.Context, on allocator.Store, open func(allocator.Store) *allocator.Pool, r allocator.Request) (l *allocator.Lease, queued bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const most = 10 // tries, should the store never load what the step needs
	var failed error
	gone, tries := false, 0
	p := open(&spy{
		Store: on,
		step: func(inner context.Context, n allocator.Need, f stepFunc) error {
			if gone {
				return allocator.ErrClosed
			}
			var own error // of the step itself, which needs more rows then
			err := on.Step(inner, n, func(clock int64, set *allocator.Set) error {
				own = f(clock, set)
				return own
			})
			if tries++; own == nil || !errors.Is(err, own) || tries == most {
				gone, failed = true, err
				cancel()
			}
			return err
		},
		page: func(context.Context, allocator.Query) (allocator.Rows, error) {
			return allocator.Rows{}, allocator.ErrClosed
		},
	})
	l, err = p.AcquireWait(ctx, r)
	if failed != nil {
		return nil, false, failed
	}
	return l, gone && errors.Is(err, context.Canceled), err
}

// opRenew renews a lease; again asks once more for what was answered last.
func opRenew(who, pick int, again bool) *op {
	return &op{text: fmt.Sprintf("%d renews the last but %d, again %v", who, pick, again), call: func(s *session) call {
		ref := s.ref(pick)
		seq := s.seqs[ref.Epoch] + 1
		if again && seq > 1 {
			seq--
		}
		return func() (string, error) {
			r, err := s.pools[who].Renew(s.ctx, ref, seq)
			if err != nil {
				return "", err
			}
			s.seqs[ref.Epoch] = max(seq, s.seqs[ref.Epoch])
			return fmt.Sprintf("epoch %d until %s left %v lapsed %v", r.Lease.Epoch(), stamp(r.ExpiresAt), r.Left, r.Lapsed), nil
		}
	}}
}

func opRelease(who, pick int) *op {
	return &op{text: fmt.Sprintf("%d releases the last but %d", who, pick), call: func(s *session) call {
		ref := s.ref(pick)
		return func() (string, error) {
			r, err := s.pools[who].Release(s.ctx, ref)
			if errors.Is(err, allocator.ErrStale) { // also where the slot was granted again since the first try (T6)
				return "released" + firstOnly(" ", err), nil
			}
			return "released" + firstOnly(" already ", r.AlreadyReleased, " ", r.Last), err
		}
	}}
}

func opCancel(who int, attempt string) *op {
	return &op{text: fmt.Sprintf("%d cancels %s", who, attempt), call: func(s *session) call {
		return func() (string, error) {
			c, err := s.pools[who].Cancel(s.ctx, attempt)
			text := "cancelled" + firstOnly(" ticket ", c.Ticket)
			if c.Lease != nil {
				text += firstOnly(" ", *c.Lease)
			}
			return text, err
		}
	}}
}

// opLeave ends a process in good order.
func opLeave(who int) *op {
	return &op{text: fmt.Sprintf("%d leaves", who), call: func(s *session) call {
		p := s.open(s.store, who)
		return func() (string, error) { return "", p.Close(s.ctx, true) }
	}}
}

// opAdmin is a change by an operator.
func opAdmin(text string, change func(s *session, a allocator.Admin) (allocator.PoolState, error)) *op {
	return &op{text: text, call: func(s *session) call {
		st, err := s.eye.State(s.ctx)
		if err != nil {
			s.Fatal(err)
		}
		s.calls++
		a := allocator.Admin{ID: fmt.Sprint("admin ", s.calls), Version: st.Version}
		return func() (string, error) {
			st, err := change(s, a)
			return stateText(st), err
		}
	}}
}

func opResize(n int) *op {
	return opAdmin(fmt.Sprint("resize to ", n), func(s *session, a allocator.Admin) (allocator.PoolState, error) {
		return s.pools[0].Resize(s.ctx, a, n)
	})
}

// opDrain drains until so long after noon; 0 is without end.
func opDrain(after time.Duration) *op {
	return opAdmin(fmt.Sprint("drain until ", after), func(s *session, a allocator.Admin) (allocator.PoolState, error) {
		until := time.Time{}
		if after > 0 {
			until = noon.Add(after)
		}
		return s.pools[1].Drain(s.ctx, a, until)
	})
}

func opReopen() *op {
	return opAdmin("reopen", func(s *session, a allocator.Admin) (allocator.PoolState, error) { return s.pools[0].Reopen(s.ctx, a) })
}

func opRebase() *op {
	return opAdmin("rebase", func(s *session, a allocator.Admin) (allocator.PoolState, error) {
		return s.pools[2].Rebase(s.ctx, a, "the clock was wrong")
	})
}

func opConfigure(text string, c allocator.Configuration) *op {
	return opAdmin("configure "+text, func(s *session, a allocator.Admin) (allocator.PoolState, error) {
		return s.pools[0].Configure(s.ctx, a, c)
	})
}

func opSweep(who, limit int) *op {
	return &op{text: fmt.Sprintf("%d sweeps %d", who, limit), call: func(s *session) call {
		return func() (string, error) {
			r, err := s.pools[who].Sweep(s.ctx, limit)
			return "swept" + firstOnly(" ", r), err
		}
	}}
}

func opCheck(repair bool) *op {
	return &op{text: fmt.Sprint("check, repair ", repair), call: func(s *session) call {
		return func() (string, error) {
			st, err := s.pools[0].Check(s.ctx, repair)
			return stateText(st), err
		}
	}}
}

// opReclaim ends what is seen on a slot, for a reason; 0 is the one that the probe names.
func opReclaim(who, slot int, why allocator.Reason) *op {
	return &op{text: fmt.Sprintf("%d reclaims slot %d as %v", who, slot, why), call: func(s *session) call {
		seen, err := s.eye.Probe(s.ctx, slot)
		if err != nil {
			return func() (string, error) { return "", err }
		}
		reason := why
		if reason == 0 {
			reason = seen.Reason
		}
		return func() (string, error) {
			r, err := s.pools[who].Reclaim(s.ctx, seen.Reclaim(reason, "it hangs"))
			if r.Last == nil {
				return "reclaimed", err
			}
			return fmt.Sprintf("reclaimed %+v", *r.Last), err
		}
	}}
}

// opLook reads all that can be read.
func opLook(who int) *op {
	return &op{text: fmt.Sprintf("%d looks", who), quiet: true, call: func(s *session) call {
		return func() (string, error) { return s.look(s.pools[who]) }
	}}
}

func (s *session) look(p *allocator.Pool) (string, error) {
	var b strings.Builder
	note := func(x any, err error) error {
		fmt.Fprintf(&b, "\n  %+v", x)
		return err
	}
	probes, err := p.Probes(s.ctx, 0, 1000)
	for i := range probes {
		x := &probes[i]
		_ = note(fmt.Sprintf("slot %d %v epoch %d cool %s %v %v %v", x.Slot, x.Status, x.Epoch, stamp(x.CoolUntil), x.Fingerprint, x.Verdict, x.Reason), nil)
	}
	errs := []error{
		err, note(s.state(p)), note(collect(p.Leases(s.ctx, true))), note(collect(p.Leases(s.ctx, false))),
		note(collect(p.Tickets(s.ctx))), note(s.groups(p)),
	}
	for i := range 3 {
		v, err := p.Verify(s.ctx, i, s.ref(i).Epoch)
		_ = note(fmt.Sprint(v, err), nil)
		if errors.Is(err, allocator.ErrUnavailable) {
			errs = append(errs, err)
		}
	}
	return b.String(), errors.Join(errs...)
}

func (s *session) state(p *allocator.Pool) (string, error) {
	st, err := p.State(s.ctx)
	return stateText(st), err
}

func (s *session) groups(p *allocator.Pool) (string, error) {
	var b strings.Builder
	for g, err := range p.Groups(s.ctx) {
		if err != nil {
			return "", err
		}
		most := -1
		if g.Max != nil {
			most = *g.Max
		}
		fmt.Fprintf(&b, "%q weight %d min %d max %d listed %v used %d waiting %d; ", g.Key, g.Weight, g.Min, most, g.Listed, g.Used, g.Waiting)
	}
	return b.String(), nil
}
