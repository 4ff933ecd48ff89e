package allocatortest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/allocator"
)

func machineGroups() [][]string { return [][]string{{}, {"a"}, {"b"}, {"a", "b"}} }

// actions are those of one run. A run leaves some out, so that the others meet more often.
func (w *machine) actions(r *rapid.T) map[string]func(*rapid.T) {
	list := map[string]func(*rapid.T){
		"acquire":     w.acquire,
		"wait":        w.wait,
		"crowd":       w.crowd,
		"poll":        w.poll,
		"release":     w.release,
		"edge of":     w.edge,
		"edge of one": w.edge,
		"together":    w.together,
	}
	often := map[string]func(*rapid.T){
		"renew": w.renew, "reclaim": w.reclaim, "sweep": w.sweep, "leave": w.leave, "resize": w.resize, "configure": w.configure,
		"crash": w.crash, "step": w.step, "drain": w.drain, "cancel": w.cancel, "jump": w.jump, "rebase": w.rebase,
	}
	seldom := map[string]func(*rapid.T){
		"verify": w.verify, "probe": w.probe, "check": w.check, "create": w.create, "shut down": w.shutDown,
	}
	for _, name := range slices.Sorted(maps.Keys(often)) {
		if rapid.Bool().Draw(r, name) {
			list[name] = often[name]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(seldom)) {
		if rapid.IntRange(0, 3).Draw(r, name) == 3 {
			list[name] = seldom[name]
		}
	}
	return list
}

func (w *machine) drawSpec(r *rapid.T) allocator.Spec {
	s := allocator.Spec{Capacity: rapid.IntRange(0, 4).Draw(r, "capacity"), Policy: w.drawPolicy(r)}
	s.Groups = w.drawGroups(r, s.Capacity)
	if s.Capacity > 0 && rapid.Bool().Draw(r, "attrs") {
		s.Attrs = map[int]map[string]string{0: {"path": "/0"}}
	}
	return s
}

func (w *machine) drawPolicy(r *rapid.T) *allocator.Policy {
	p := allocator.DefaultPolicy()
	p.TTL = rapid.SampledFrom([]time.Duration{time.Minute, 10 * time.Second}).Draw(r, "ttl")
	p.MaxLease = rapid.SampledFrom([]time.Duration{6 * time.Hour, 90 * time.Second, max(p.TTL, 15*time.Second)}).Draw(r, "max lease")
	p.Cooling = rapid.SampledFrom([]time.Duration{15 * time.Second, 0, time.Hour}).Draw(r, "cooling")
	p.Fenced = rapid.IntRange(0, 4).Draw(r, "fenced") == 0
	p.OpenGroups = rapid.IntRange(0, 4).Draw(r, "open groups") > 0
	p.Keep = rapid.SampledFrom([]time.Duration{7 * 24 * time.Hour, 24 * time.Hour}).Draw(r, "keep")
	p.JumpGuard = rapid.SampledFrom([]time.Duration{24 * time.Hour, 30 * time.Minute, 2 * time.Minute}).Draw(r, "jump guard")
	return &p
}

func (w *machine) drawGroups(r *rapid.T, capacity int) (list []allocator.Group) {
	spare := capacity
	for _, key := range machineGroups() {
		if !rapid.Bool().Draw(r, "listed") {
			continue
		}
		g := allocator.Group{Key: key, Weight: rapid.Int64Range(1, 3).Draw(r, "weight"), Min: rapid.IntRange(0, spare).Draw(r, "min")}
		if rapid.Bool().Draw(r, "limited") {
			most := rapid.IntRange(g.Min, capacity).Draw(r, "max")
			g.Max = &most
		}
		spare -= g.Min
		list = append(list, g)
	}
	return list
}

func (w *machine) who(r *rapid.T) *machineProcess {
	return w.procs[rapid.IntRange(0, len(w.procs)-1).Draw(r, "who")]
}

func (w *machine) attempt(r *rapid.T) string {
	return rapid.SampledFrom([]string{"x", "y", "z", "u", "v", "w", "t"}).Draw(r, "attempt")
}

// request draws what is asked for: mostly the same for one attempt, so that retries meet.
func (w *machine) request(r *rapid.T) allocator.Request {
	q := allocator.Request{Attempt: w.attempt(r), Units: 1}
	q.Group = machineGroups()[int(q.Attempt[0])%3]
	if q.Attempt == "z" {
		q.Units = 2
	}
	if rapid.IntRange(0, 5).Draw(r, "usual") > 0 {
		return q
	}
	q.Units = rapid.IntRange(1, 3).Draw(r, "units")
	q.Group = rapid.SampledFrom(machineGroups()).Draw(r, "group")
	q.TTL = rapid.SampledFrom([]time.Duration{0, 5 * time.Second, 2 * time.Minute}).Draw(r, "ttl")
	q.MaxLease = rapid.SampledFrom([]time.Duration{0, 30 * time.Second, 3 * time.Minute}).Draw(r, "max lease")
	if q.TTL > q.MaxLease && q.MaxLease > 0 {
		q.TTL = 0
	}
	q.Owner = rapid.SampledFrom([]allocator.Owner{allocator.OwnerSelf, allocator.OwnerNone}).Draw(r, "owner")
	if rapid.Bool().Draw(r, "labelled") {
		q.Labels = map[string]string{"l": "v"}
	}
	return q
}

// part is a command that can be one of several in a step. plain makes its answer comparable; once is what the model does in
// the step, and says of it.
type part struct {
	text  string
	pool  func(*allocator.Pool) (any, error)
	plain func(any) any
	once  func(*Model, *ModelProcess) (step func() error, answer func() any)
}

// command is a part that is alone in its step.
func (w *machine) command(p *machineProcess, a part, model func(*Model, *ModelProcess) (any, error)) command {
	return command{
		text: a.text, who: p, model: model,
		pool: func(pool *allocator.Pool) (any, error) {
			got, err := a.pool(pool)
			if err != nil {
				return nil, err
			}
			return a.plain(got), nil
		},
	}
}

// alone runs a part, or twice if its reply is lost.
func (w *machine) alone(r *rapid.T, p *machineProcess, a part, model func(*Model, *ModelProcess) (any, error)) {
	w.maybeTwice(r, w.command(p, a, model), func(m *Model, who *ModelProcess) {
		step, _ := a.once(m, who)
		m.step(w.time.us, who, step)
	})
}

func (w *machine) acquire(r *rapid.T) {
	p, q := w.who(r), w.request(r)
	w.alone(r, p, w.acquirePart(r, p, q), func(m *Model, who *ModelProcess) (any, error) { return m.Acquire(w.time.us, who, q) })
}

func (w *machine) acquirePart(r *rapid.T, p *machineProcess, q allocator.Request) part {
	return part{
		text:  fmt.Sprintf("acquire %+v", q),
		pool:  func(pool *allocator.Pool) (any, error) { return pool.Acquire(w.ctx, q) },
		plain: func(got any) any { return w.granted(r, p, got.(*allocator.Lease)) },
		once: func(m *Model, _ *ModelProcess) (func() error, func() any) {
			g := &ModelGrant{}
			return m.acquire(g, q, false, 0), func() any { return *g }
		},
	}
}

// maybeTwice loses the reply to some commands.
func (w *machine) maybeTwice(r *rapid.T, c command, once func(*Model, *ModelProcess)) {
	if rapid.IntRange(0, 9).Draw(r, "reply") == 9 && once != nil && len(c.who.waiters) == 0 {
		w.runTwice(r, c, once)
		return
	}
	w.run(r, c)
}

// wait begins to wait.
func (w *machine) wait(r *rapid.T) {
	p, q := w.who(r), w.request(r)
	if p.waits(q.Attempt) {
		r.Skip("it waits already")
	}
	w.waitFor(r, p, q)
}

// crowd makes many wait.
func (w *machine) crowd(r *rapid.T) {
	for range rapid.IntRange(2, 5).Draw(r, "crowd") {
		if p, q := w.who(r), w.request(r); !p.waits(q.Attempt) {
			w.waitFor(r, p, q)
		}
	}
}

func (w *machine) waitFor(r *rapid.T, p *machineProcess, q allocator.Request) {
	w.log(r, p, fmt.Sprintf("wait for %+v", q))
	ctx, cancel := context.WithCancel(w.ctx)
	x := &machineWaiter{request: q, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(x.done)
		x.lease, x.err = p.pool.AcquireWait(ctx, q)
	}()
	synctest.Wait()
	p.waiters = append(p.waiters, x)
	w.turn(r, p, x)
	w.collect(r, command{text: "wait for " + q.Attempt, who: p})
	w.compare(r, "wait for "+q.Attempt)
}

// turn is what the model does when a waiter asks.
func (w *machine) turn(r *rapid.T, p *machineProcess, x *machineWaiter) {
	g, err := w.model.Poll(w.time.us, &p.ModelProcess, x.request, x.ticket)
	woken := slices.ContainsFunc(w.model.Woken, func(k ModelWoken) bool { return k.Attempt == x.request.Attempt })
	gone := slices.ContainsFunc(w.model.Gone, x.lost)
	switch {
	case woken || gone: // collect sees to it
	case err == nil && g.Seq > 0:
		x.ticket = g.Seq
	default:
		if x.ticket > 0 {
			g.Existing = false // it is what was waited for
		}
		w.woken(r, p, x.request.Attempt, g, err)
	}
}

// machinePoll is longer than a waiter waits between two turns.
const machinePoll = 2500 * time.Millisecond

// poll lets time pass, in which all that wait in one process ask, and nobody else reaches the store.
func (w *machine) poll(r *rapid.T) {
	p := w.who(r)
	if len(p.waiters) == 0 {
		r.Skip("nobody waits")
	}
	w.log(r, p, "its waiters poll")
	w.time.pass(machinePoll)
	for _, other := range w.procs {
		other.line.set(other != p, false)
	}
	time.Sleep(machinePoll)
	synctest.Wait()
	for _, other := range w.procs {
		other.line.set(false, false)
	}
	var woken []ModelWoken
	var gone []ModelGone
	for _, x := range slices.Clone(p.waiters) {
		done := slices.ContainsFunc(woken, func(k ModelWoken) bool { return k.Attempt == x.request.Attempt }) ||
			slices.ContainsFunc(gone, x.lost)
		if !done {
			w.turn(r, p, x)
			woken, gone = append(woken, w.model.Woken...), append(gone, w.model.Gone...)
		}
	}
	w.model.Woken, w.model.Gone = woken, gone
	w.collect(r, command{text: "poll", who: p})
	w.compare(r, "poll")
}

// leave ends the context of one that waits.
func (w *machine) leave(r *rapid.T) {
	p := w.who(r)
	if len(p.waiters) == 0 {
		r.Skip("nobody waits")
	}
	x := p.waiters[rapid.IntRange(0, len(p.waiters)-1).Draw(r, "waiter")]
	w.log(r, p, "the waiter for "+x.request.Attempt+" leaves")
	if rapid.Bool().Draw(r, "cut") { // its ticket stays, and nobody waits with it
		p.line.set(true, false)
		x.cancel()
		synctest.Wait()
		p.line.set(false, false)
		w.woken(r, p, x.request.Attempt, ModelGrant{}, context.Canceled)
		w.collect(r, command{text: "leave", who: p})
		w.compare(r, "leave")
		return
	}
	x.cancel()
	synctest.Wait()
	waiters := slices.Clone(p.waiters)
	p.forget(x) // it does not wait while it leaves
	_, _, _ = w.model.Cancel(w.time.us, &p.ModelProcess, x.request.Attempt)
	p.waiters = waiters
	w.woken(r, p, x.request.Attempt, ModelGrant{}, context.Canceled)
	w.collect(r, command{text: "leave", who: p})
	w.compare(r, "leave")
}

type cancelled struct {
	Lease  uint64
	Ticket bool
}

func (w *machine) cancel(r *rapid.T) {
	p, attempt := w.who(r), w.attempt(r)
	w.run(r, w.command(p, w.cancelPart(attempt), func(m *Model, who *ModelProcess) (any, error) {
		lease, ticket, err := m.Cancel(w.time.us, who, attempt)
		return cancelled{lease, ticket}, err
	}))
}

func (w *machine) cancelPart(attempt string) part {
	return part{
		text: "cancel " + attempt,
		pool: func(p *allocator.Pool) (any, error) { return p.Cancel(w.ctx, attempt) },
		plain: func(got any) any {
			c := got.(allocator.Cancelled)
			answer := cancelled{Ticket: c.Ticket}
			if c.Lease != nil {
				answer.Lease = c.Lease.Epoch
			}
			return answer
		},
		once: func(m *Model, who *ModelProcess) (func() error, func() any) {
			c := &cancelled{}
			return m.cancel(&c.Lease, &c.Ticket, who, attempt), func() any { return *c }
		},
	}
}

// ref draws a lease that somebody has or had, the later ones more often, and maybe its text.
func (w *machine) ref(r *rapid.T) (allocator.Ref, ModelRef) {
	epochs := slices.Sorted(maps.Keys(w.ids))
	if len(epochs) == 0 {
		r.Skip("no lease")
	}
	epoch := epochs[len(epochs)-1-min(len(epochs)-1, rapid.IntRange(0, 5).Draw(r, "lease"))]
	for _, p := range w.procs {
		// Whether a handle has heard of a Rebase, which changes what its Ref says, is not modelled.
		if l := p.handles[epoch]; l != nil && w.unchanged(l, epoch) && rapid.Bool().Draw(r, "text") {
			ref, err := allocator.ParseRef(l.Ref().String())
			if err != nil {
				r.Fatal(err)
			}
			return ref, ModelRef{epoch, w.identities[l]}
		}
	}
	return allocator.Ref{Pool: modelPool, ID: w.ids[epoch], Epoch: epoch}, ModelRef{Epoch: epoch}
}

// unchanged tells whether a handle's lease is what it was at its grant.
func (w *machine) unchanged(h *allocator.Lease, epoch uint64) bool {
	l := w.model.byEpoch(epoch)
	return l == nil || l.identity() == w.identities[h]
}

func (w *machine) renew(r *rapid.T) {
	p := w.who(r)
	ref, name := w.ref(r)
	seq := w.seq(r, ref.Epoch)
	w.alone(r, p, w.renewPart(r, p, ref, name, seq), func(m *Model, who *ModelProcess) (any, error) { return m.Renew(w.time.us, who, name, seq) })
}

// seq draws the number of a renewal, mostly the right one.
func (w *machine) seq(r *rapid.T, epoch uint64) int64 {
	if l := w.model.byEpoch(epoch); l != nil {
		return max(1, l.Seq+rapid.SampledFrom([]int64{1, 1, 1, 0, 2, -1}).Draw(r, "seq"))
	}
	return 1
}

func (w *machine) renewPart(r *rapid.T, p *machineProcess, ref allocator.Ref, name ModelRef, seq int64) part {
	return part{
		text: fmt.Sprintf("renew %+v, number %d", name, seq),
		pool: func(pool *allocator.Pool) (any, error) { return pool.Renew(w.ctx, ref, uint64(seq)) },
		plain: func(got any) any {
			a := got.(allocator.Renewal)
			w.granted(r, p, a.Lease)
			return ModelRenewal{Expires: a.ExpiresAt.UnixMicro(), Left: a.Left.Microseconds(), Lapsed: a.Lapsed}
		},
		once: func(m *Model, _ *ModelProcess) (func() error, func() any) {
			a := &ModelRenewal{}
			return m.renew(a, name, seq), func() any { return *a }
		},
	}
}

// released is the answer to a Release.
type released struct {
	Already bool
	Last    allocator.LeaseState
}

func (w *machine) release(r *rapid.T) {
	p := w.who(r)
	ref, name := w.ref(r)
	w.alone(r, p, w.releasePart(r, ref, name), func(m *Model, who *ModelProcess) (any, error) {
		already, err := m.Release(w.time.us, who, name)
		if err != nil {
			return nil, err
		}
		return released{already, m.byEpoch(ref.Epoch).show()}, nil
	})
}

func (w *machine) releasePart(r *rapid.T, ref allocator.Ref, name ModelRef) part {
	return part{
		text: fmt.Sprintf("release %+v", name),
		pool: func(p *allocator.Pool) (any, error) { return p.Release(w.ctx, ref) },
		plain: func(got any) any {
			a := got.(allocator.Released)
			w.plain(r, &a.Last)
			return released{a.AlreadyReleased, a.Last}
		},
		once: func(m *Model, _ *ModelProcess) (func() error, func() any) {
			already := new(bool)
			return m.release(already, name), func() any { return released{*already, m.byEpoch(ref.Epoch).show()} }
		},
	}
}

// together runs some commands in one step, after a step with another one. No owner may be dead, because asking for owners is not
// in the order of the commands.
func (w *machine) together(r *rapid.T) {
	p := w.who(r)
	if slices.ContainsFunc(w.model.Leases, func(l modelLease) bool { return p.judgeable(&l) && p.judge(&l) == allocator.VerdictDead }) {
		r.Skip("an owner is dead")
	}
	var parts []part
	asked := map[string]bool{}
	for range rapid.IntRange(2, 4).Draw(r, "commands") {
		parts = append(parts, w.part(r, p, asked))
	}
	got, errs := w.runTogether(r, p, parts)
	answers := make([]func() any, len(parts))
	steps := make([]func() error, len(parts))
	for i, a := range parts {
		steps[i], answers[i] = a.once(w.model, &p.ModelProcess)
	}
	wantErrs := w.model.step(w.time.us, &p.ModelProcess, steps[0])
	woken, gone := w.model.Woken, w.model.Gone
	wantErrs = append(wantErrs, w.model.step(w.time.us, &p.ModelProcess, steps[1:]...)...)
	w.model.Woken, w.model.Gone = append(woken, w.model.Woken...), append(gone, w.model.Gone...)
	for i, a := range parts {
		c := command{text: a.text + ", with others", who: p}
		w.sameNews(wantErrs[i], errs[i])
		if errs[i] != nil || wantErrs[i] != nil {
			w.judge(r, c, nil, wantErrs[i], nil, errs[i])
			continue
		}
		w.judge(r, c, answers[i](), nil, w.asOf(a.plain(got[i]), answers[i]()), nil)
	}
	w.collect(r, command{text: "together", who: p})
	w.compare(r, "together")
}

// asOf takes for right what a handle says of itself whose lease a later command of the step ended: which of the calls came first at
// the handle is not in the order of the commands.
func (w *machine) asOf(got, want any) any {
	g, ok := got.(ModelGrant)
	if l := w.model.byEpoch(g.Epoch); ok && l != nil && !l.held() {
		g.Existing = want.(ModelGrant).Existing
		return g
	}
	return got
}

// sameNews takes for right what commands in one step are told about others: the holder was asked while they went on, and the next change
// was looked for before they were judged.
func (w *machine) sameNews(want, got error) {
	if held := (*allocator.HeldError)(nil); errors.As(got, &held) {
		held.Verdict = allocator.VerdictUnknown
	}
	var a, b *allocator.FullError
	if errors.As(want, &a) && errors.As(got, &b) && a.NextChange.IsZero() == b.NextChange.IsZero() {
		b.NextChange = a.NextChange
	}
}

// part draws one of several commands.
func (w *machine) part(r *rapid.T, p *machineProcess, asked map[string]bool) part {
	kind := rapid.IntRange(0, 6).Draw(r, "kind")
	if kind >= 3 && len(w.ids) > 0 {
		ref, name := w.ref(r)
		if kind == 3 {
			return w.renewPart(r, p, ref, name, w.seq(r, ref.Epoch))
		}
		return w.releasePart(r, ref, name)
	}
	q := w.request(r)
	if kind == 0 || p.waits(q.Attempt) || asked[q.Attempt] {
		return w.cancelPart(q.Attempt)
	}
	asked[q.Attempt] = true
	return w.acquirePart(r, p, q)
}

// runTogether holds up the step of the first command until all others have come.
func (w *machine) runTogether(r *rapid.T, p *machineProcess, parts []part) (got []any, errs []error) {
	got, errs = make([]any, len(parts)), make([]error, len(parts))
	open := p.line.hold()
	var wg sync.WaitGroup
	for i, a := range parts {
		w.log(r, p, a.text+", with others")
		wg.Go(func() { got[i], errs[i] = a.pool(p.pool) })
		synctest.Wait()
	}
	open()
	wg.Wait()
	return got, errs
}

func (w *machine) verify(r *rapid.T) {
	slot := rapid.IntRange(0, 5).Draw(r, "slot")
	epoch := max(1, uint64(rapid.IntRange(0, int(w.model.Epoch)).Draw(r, "epoch")))
	if slot < len(w.model.Slots) && rapid.Bool().Draw(r, "current") {
		epoch = max(1, w.model.Slots[slot].Epoch)
	}
	w.run(r, command{
		text: fmt.Sprintf("verify slot %d, epoch %d", slot, epoch), who: w.who(r),
		pool:  func(p *allocator.Pool) (any, error) { return p.Verify(w.ctx, slot, epoch) },
		model: func(m *Model, who *ModelProcess) (any, error) { return m.Verify(w.time.us, who, slot, epoch) },
	})
}

// probe keeps what it sees for a later reclaim.
func (w *machine) probe(r *rapid.T) {
	p := w.who(r)
	if len(w.model.Slots) == 0 {
		r.Skip("no slots")
	}
	slot := rapid.IntRange(0, len(w.model.Slots)-1).Draw(r, "slot")
	var seen allocator.Evidence
	w.run(r, command{
		text: fmt.Sprint("probe ", slot), who: p,
		pool: func(pool *allocator.Pool) (any, error) {
			e, err := pool.Probe(w.ctx, slot)
			seen = e
			return []any{e.Verdict, e.Reason}, err
		},
		model: func(m *Model, who *ModelProcess) (any, error) {
			e := m.Probes(w.time.us, who)[slot]
			return []any{e.Verdict, e.Reason}, nil
		},
	})
	w.seen = append(w.seen, machineEvidence{seen, w.model.Evidence(slot)})
}

func (w *machine) reclaim(r *rapid.T) {
	if rapid.IntRange(0, 2).Draw(r, "fresh") > 0 || len(w.seen) == 0 {
		w.probe(r)
	}
	e := w.seen[len(w.seen)-1-min(len(w.seen)-1, rapid.IntRange(0, 4).Draw(r, "evidence"))]
	why := e.Reason
	if why == 0 || rapid.IntRange(0, 3).Draw(r, "other reason") == 0 {
		why = rapid.SampledFrom([]allocator.Reason{
			allocator.ReasonExpired, allocator.ReasonMaxLease, allocator.ReasonDeadOwner, allocator.ReasonForced,
		}).Draw(r, "reason")
	}
	note := ""
	if why == allocator.ReasonForced {
		note = "operator"
	}
	q := e.Evidence.Reclaim(why, note)
	c := command{
		text: fmt.Sprintf("reclaim %v of %s", why, e.text), who: w.who(r),
		pool: func(p *allocator.Pool) (any, error) {
			a, err := p.Reclaim(w.ctx, q)
			if err != nil || a.Last == nil {
				return nil, err
			}
			return a.Last.Epoch, nil
		},
		model: func(m *Model, who *ModelProcess) (any, error) { return m.Reclaim(w.time.us, who, q, e.text) },
	}
	w.maybeTwice(r, c, func(m *Model, who *ModelProcess) { _, _ = m.Reclaim(w.time.us, who, q, e.text) })
}

func (w *machine) sweep(r *rapid.T) {
	limit := rapid.SampledFrom([]int{1, 2, 10_000}).Draw(r, "limit")
	w.run(r, command{
		text: fmt.Sprint("sweep ", limit), who: w.who(r),
		pool:  func(p *allocator.Pool) (any, error) { return p.Sweep(w.ctx, limit) },
		model: func(m *Model, who *ModelProcess) (any, error) { return m.Sweep(w.time.us, who, limit), nil },
	})
}

// admin draws the id and the version of a change: mostly right ones.
func (w *machine) admin(r *rapid.T) allocator.Admin {
	a := allocator.Admin{Version: w.model.Version}
	if rapid.IntRange(0, 5).Draw(r, "version") == 0 {
		a.Version = max(1, a.Version-1)
	}
	if rapid.IntRange(0, 5).Draw(r, "id") > 0 {
		w.admins++
	}
	a.ID = fmt.Sprint("admin-", w.admins)
	return a
}

// change is an admin call.
func (w *machine) change(r *rapid.T, text string, pool func(*allocator.Pool, allocator.Admin) (allocator.PoolState, error), model func(*Model, *ModelProcess, allocator.Admin) (allocator.PoolState, error)) {
	a := w.admin(r)
	c := command{
		text: fmt.Sprintf("%s %+v", text, a), who: w.who(r),
		pool:  func(p *allocator.Pool) (any, error) { return pool(p, a) },
		model: func(m *Model, who *ModelProcess) (any, error) { return model(m, who, a) },
	}
	w.maybeTwice(r, c, func(m *Model, who *ModelProcess) { _, _ = model(m, who, a) })
}

func (w *machine) resize(r *rapid.T) {
	n := rapid.IntRange(0, 5).Draw(r, "capacity")
	w.change(r, fmt.Sprint("resize to ", n),
		func(p *allocator.Pool, a allocator.Admin) (allocator.PoolState, error) { return p.Resize(w.ctx, a, n) },
		func(m *Model, who *ModelProcess, a allocator.Admin) (allocator.PoolState, error) {
			return m.Resize(w.time.us, who, a, n)
		})
}

// drain drains or reopens.
func (w *machine) drain(r *rapid.T) {
	if w.model.Status != allocator.PoolOpen && rapid.IntRange(0, 3).Draw(r, "reopen") > 0 || rapid.IntRange(0, 5).Draw(r, "reopen") == 0 {
		w.change(r, "reopen",
			func(p *allocator.Pool, a allocator.Admin) (allocator.PoolState, error) { return p.Reopen(w.ctx, a) },
			func(m *Model, who *ModelProcess, a allocator.Admin) (allocator.PoolState, error) {
				return m.Reopen(w.time.us, who, a)
			})
		return
	}
	var deadline time.Time
	if d := rapid.SampledFrom([]time.Duration{0, -time.Second, 25 * time.Second}).Draw(r, "deadline"); d != 0 {
		deadline = w.time.now().Add(d)
	}
	w.change(r, fmt.Sprint("drain until ", deadline),
		func(p *allocator.Pool, a allocator.Admin) (allocator.PoolState, error) {
			return p.Drain(w.ctx, a, deadline)
		},
		func(m *Model, who *ModelProcess, a allocator.Admin) (allocator.PoolState, error) {
			return m.Drain(w.time.us, who, a, deadline)
		})
}

func (w *machine) configure(r *rapid.T) {
	var c allocator.Configuration
	switch rapid.IntRange(0, 2).Draw(r, "what") {
	case 0:
		c.Policy = w.drawPolicy(r)
		w.excuse()
	case 1:
		list := w.drawGroups(r, w.model.Capacity)
		c.Groups = &list
	case 2:
		c.Attrs = map[int]map[string]string{rapid.IntRange(0, 5).Draw(r, "slot"): {"path": rapid.SampledFrom([]string{"/a", "/b"}).Draw(r, "path")}}
	}
	w.change(r, fmt.Sprintf("configure %+v", c),
		func(p *allocator.Pool, a allocator.Admin) (allocator.PoolState, error) {
			return p.Configure(w.ctx, a, c)
		},
		func(m *Model, who *ModelProcess, a allocator.Admin) (allocator.PoolState, error) {
			return m.Configure(w.time.us, who, a, c)
		})
}

func (w *machine) rebase(r *rapid.T) {
	w.excuse()
	w.change(r, "rebase",
		func(p *allocator.Pool, a allocator.Admin) (allocator.PoolState, error) {
			return p.Rebase(w.ctx, a, "the clock was wrong")
		},
		func(m *Model, who *ModelProcess, a allocator.Admin) (allocator.PoolState, error) {
			return m.Rebase(w.time.us, who, a, "the clock was wrong")
		})
}

// check recounts (I13).
func (w *machine) check(r *rapid.T) {
	repair := rapid.Bool().Draw(r, "repair")
	w.run(r, command{
		text: "check", who: w.who(r),
		pool:  func(p *allocator.Pool) (any, error) { return p.Check(w.ctx, repair) },
		model: func(m *Model, who *ModelProcess) (any, error) { return m.Check(w.time.us, who), nil },
	})
}

func (w *machine) create(r *rapid.T) {
	s := w.spec
	if rapid.IntRange(0, 3).Draw(r, "other") == 0 {
		s = w.drawSpec(r)
	}
	w.run(r, command{
		text: fmt.Sprintf("create %+v", s), who: w.who(r),
		pool:  func(p *allocator.Pool) (any, error) { return p.Create(w.ctx, s) },
		model: func(m *Model, who *ModelProcess) (any, error) { return m.Create(w.time.us, who, s) },
	})
}

// crash kills a process and starts another one in its place. What the system says of the dead one is not always a proof.
func (w *machine) crash(r *rapid.T) {
	i := rapid.IntRange(0, len(w.procs)-1).Draw(r, "process")
	p := w.procs[i]
	left := rapid.SampledFrom([]allocator.Process{
		{Presence: allocator.Absent}, {Presence: allocator.Present, Start: 7}, {Presence: allocator.Present}, {Presence: allocator.PresenceUnknown},
	}).Draw(r, "left")
	w.log(r, p, fmt.Sprintf("crashes, and leaves %+v", left))
	w.system.set(p.Holder.Boot, p.Holder.PID, left)
	w.replace(r, i)
}

func (w *machine) replace(r *rapid.T, i int) {
	w.procs[i].kill()
	boot := machineBoots[i]
	if i == 2 && rapid.Bool().Draw(r, "reboot") {
		boot = fmt.Sprint("boot-", 10+w.born)
	}
	w.procs[i] = w.process(r, fmt.Sprint("p", i), boot, machineHosts[i])
	w.compare(r, "replace")
}

// shutDown closes a process in order, in which nobody waits.
func (w *machine) shutDown(r *rapid.T) {
	i := rapid.IntRange(0, len(w.procs)-1).Draw(r, "process")
	if len(w.procs[i].waiters) > 0 {
		r.Skip("somebody waits")
	}
	release := rapid.Bool().Draw(r, "release")
	w.run(r, command{
		text: fmt.Sprint("close, release ", release), who: w.procs[i],
		pool: func(p *allocator.Pool) (any, error) { return nil, p.Close(w.ctx, release) },
		model: func(m *Model, who *ModelProcess) (any, error) {
			if release {
				m.Close(w.time.us, who)
			}
			return nil, nil
		},
	})
	w.system.set(w.procs[i].Holder.Boot, w.procs[i].Holder.PID, allocator.Process{Presence: allocator.Absent})
	w.replace(r, i)
}

// Time.

// excuse says that the handles that there are need not know when their leases end.
func (w *machine) excuse() {
	for epoch := range w.ids {
		w.free[epoch] = true
	}
}

func (w *machine) step(r *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{
		time.Microsecond, time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 25 * time.Hour,
	}).Draw(r, "step")
	w.time.pass(d)
	w.compare(r, "a step of time")
}

// edge goes to the very moment of something that the model has in store, or just beyond.
func (w *machine) edge(r *rapid.T) {
	var edges []int64
	m := w.model
	for i := range m.Leases {
		l := &m.Leases[i]
		if l.held() {
			edges = append(edges, l.Expires, l.Most, m.ceiling(l))
		} else {
			edges = append(edges, l.End.At.UnixMicro()+m.Policy.Keep.Microseconds())
		}
	}
	for _, t := range m.Tickets {
		edges = append(edges, t.Deadline, t.Deadline-modelRefresh-machinePoll.Microseconds())
	}
	for _, s := range m.Slots {
		edges = append(edges, s.Cool)
	}
	edges = append(edges, m.Jump, m.DrainAt, m.Seen+m.Policy.JumpGuard.Microseconds())
	edges = slices.DeleteFunc(edges, func(at int64) bool { return at < w.time.us })
	if len(edges) == 0 {
		r.Skip("no edges")
	}
	slices.Sort(edges)
	at := edges[min(len(edges)-1, rapid.IntRange(0, 7).Draw(r, "edge"))] + rapid.Int64Range(0, 1).Draw(r, "beyond")
	w.time.pass(time.Duration(at-w.time.us) * time.Microsecond)
	w.compare(r, "an edge of time")
}

// jump sets the clocks of all, which then are wrong, or right again.
func (w *machine) jump(r *rapid.T) {
	day := 24 * time.Hour
	d := rapid.SampledFrom([]time.Duration{-time.Hour, time.Hour, -7 * day, 7 * day, -time.Microsecond, -time.Minute}).Draw(r, "jump")
	if d < 0 { // what a handle took for over is not over again
		w.excuse()
	}
	w.time.jump(d)
	w.compare(r, "a jump of the clock")
}
