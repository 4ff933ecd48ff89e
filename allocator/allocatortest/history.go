package allocatortest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stint-go/stint/allocator"
)

// CheckLinearizable lets several processes work on two pools of a new store at once, while calls fail now and then, writes
// down what they asked and were told, and fails unless there is one order of all calls of a pool, each between its beginning and its
// end, that explains every answer. A call that nobody knows the outcome of may have been applied at any time after its beginning, or never.
func CheckLinearizable(t *testing.T, open Open) {
	t.Helper()
	for seed := range uint64(6) {
		if err := RecordHistory(t, open, seed).Check(); err != nil {
			t.Fatalf("history %d: %v", seed, err)
		}
	}
}

// History is what concurrent callers were told.
type History struct {
	ops []porcupine.Operation
}

const (
	historyProcesses = 4
	historyCallers   = 3 // of each process
	historyCalls     = 20
	historySlots     = 3
	historyPatience  = 20 * time.Second
)

// historyCall is one call, and historyAnswer what it was told.
type historyCall struct {
	kind    historyKind
	pool    string
	holder  int    // acquire
	attempt string // acquire
	epoch   uint64 // of the lease: renew, release, reclaim
	slot    int    // probe, reclaim
	seq     int64  // renew: its number; reclaim: that of the last renewal that was seen
}

type historyKind uint8

const (
	callAcquire historyKind = iota
	callRenew
	callRelease
	callReclaim
	callProbe
)

var callNames = [...]string{"acquire", "renew", "release", "reclaim", "probe"}

type historyAnswer struct {
	what  string // "" of a call whose outcome nobody knows
	epoch uint64
	slot  int
	seq   int64
}

// RecordHistory lets callers work on a new store. The seed says what is asked; the order is chance.
func RecordHistory(t testing.TB, open Open, seed uint64) *History {
	t.Helper()
	r := newRecorder(t, open, seed)
	var all sync.WaitGroup
	start := make(chan struct{})
	for client := range historyProcesses * historyCallers {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(seed, uint64(client)))
			<-start
			for range historyCalls {
				r.call(t.Context(), client, dice)
			}
		})
	}
	close(start)
	all.Wait()
	return &History{r.ops}
}

// historyRecorder is what the callers of a history share.
type historyRecorder struct {
	tick  atomic.Int64
	pools []map[string]*allocator.Pool // of each process, by name

	mu   sync.Mutex
	ops  []porcupine.Operation
	refs map[string][]allocator.Ref      // leases that somebody heard of, by pool
	seen map[string][]allocator.Evidence // of leases
}

func historyPools() []string { return []string{"one", "two"} }

func newRecorder(t testing.TB, open Open, seed uint64) *historyRecorder {
	t.Helper()
	e := newEnv(t, open)
	r := &historyRecorder{refs: map[string][]allocator.Ref{}, seen: map[string][]allocator.Evidence{}}
	policy := plain()
	policy.Fenced = true
	stores := e.stores()
	for i := range historyProcesses {
		h := e.holder()
		failing := NewFaulty(stores[i%len(stores)], PlanBySeed(seed*100+uint64(i), 15))
		mine := map[string]*allocator.Pool{}
		for _, name := range historyPools() {
			_, err := e.on(e.store, name, h).Create(t.Context(), allocator.Spec{Capacity: historySlots, Policy: policy})
			e.ok(err)
			mine[name] = e.on(failing, name, h)
		}
		r.pools = append(r.pools, mine)
	}
	return r
}

// call makes a call and writes it down, unless it was not applied.
func (r *historyRecorder) call(ctx context.Context, client int, dice *rand.Rand) {
	c, do := r.draw(dice, client%historyProcesses)
	op := porcupine.Operation{ClientId: client, Input: c, Call: r.tick.Add(1)}
	a, err := do(ctx, r.pools[client%historyProcesses][c.pool])
	op.Output, op.Return = a, r.tick.Add(1)
	switch {
	case errors.Is(err, allocator.ErrUnavailable):
		return
	case errors.Is(err, allocator.ErrUncertain) && c.kind == callProbe:
		return
	case errors.Is(err, allocator.ErrUncertain):
		op.Output, op.Return = historyAnswer{}, math.MaxInt64
	case err != nil:
		op.Output = refusalOf(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
}

// refusalOf writes a refusal down.
func refusalOf(err error) historyAnswer {
	var held *allocator.HeldError
	var stale *allocator.StaleError
	var lost *allocator.LostError
	switch {
	case errors.As(err, &held):
		return historyAnswer{what: "held", epoch: held.Epoch}
	case errors.As(err, &stale):
		return historyAnswer{what: "stale", epoch: stale.Epoch, seq: stale.Seq}
	case errors.As(err, &lost):
		return historyAnswer{what: "lost, " + lost.Reason.String(), epoch: lost.CurrentEpoch}
	case errors.Is(err, allocator.ErrFull):
		return historyAnswer{what: "full"}
	}
	return historyAnswer{what: err.Error()}
}

type historyDo func(context.Context, *allocator.Pool) (historyAnswer, error)

// draw draws a caller's next call. All callers are about the same few attempts and leases at about the same time.
func (r *historyRecorder) draw(dice *rand.Rand, holder int) (historyCall, historyDo) {
	c := historyCall{pool: historyPools()[dice.IntN(2)], holder: holder, slot: dice.IntN(historySlots)}
	r.mu.Lock()
	defer r.mu.Unlock()
	refs, seen := r.refs[c.pool], r.seen[c.pool]
	n := dice.IntN(12)
	switch {
	case n < 2 && len(refs) > 0:
		return r.drawRelease(c, refs[max(0, len(refs)-1-dice.IntN(4))])
	case n < 5 && len(refs) > 0:
		return r.drawRenew(c, refs[max(0, len(refs)-1-dice.IntN(4))], 1+dice.Int64N(3))
	case n < 7 && len(seen) > 0:
		return r.drawReclaim(c, seen[max(0, len(seen)-1-dice.IntN(4))])
	case n < 9:
		return r.drawProbe(c)
	}
	c.kind, c.attempt = callAcquire, fmt.Sprint("a", dice.IntN(5))
	return c, func(ctx context.Context, p *allocator.Pool) (historyAnswer, error) {
		l, err := p.Acquire(ctx, ask(c.attempt, 1))
		if err != nil {
			return historyAnswer{}, err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.refs[c.pool] = append(r.refs[c.pool], l.Ref())
		return historyAnswer{what: "granted", epoch: l.Epoch(), slot: slot(l)}, nil
	}
}

func (r *historyRecorder) drawRelease(c historyCall, ref allocator.Ref) (historyCall, historyDo) {
	c.kind, c.epoch = callRelease, ref.Epoch
	return c, func(ctx context.Context, p *allocator.Pool) (historyAnswer, error) {
		x, err := p.Release(ctx, ref)
		if x.AlreadyReleased {
			return historyAnswer{what: "already"}, err
		}
		return historyAnswer{what: "released"}, err
	}
}

func (r *historyRecorder) drawRenew(c historyCall, ref allocator.Ref, seq int64) (historyCall, historyDo) {
	c.kind, c.epoch, c.seq = callRenew, ref.Epoch, seq
	return c, func(ctx context.Context, p *allocator.Pool) (historyAnswer, error) {
		_, err := p.Renew(ctx, ref, uint64(seq))
		return historyAnswer{what: "renewed"}, err
	}
}

func (r *historyRecorder) drawReclaim(c historyCall, x allocator.Evidence) (historyCall, historyDo) {
	c.kind, c.epoch, c.slot, c.seq = callReclaim, x.Epoch, x.Slot, x.Lease.RenewSeq
	return c, func(ctx context.Context, p *allocator.Pool) (historyAnswer, error) {
		_, err := p.Reclaim(ctx, x.Reclaim(allocator.ReasonForced, "n"))
		return historyAnswer{what: "reclaimed"}, err
	}
}

func (r *historyRecorder) drawProbe(c historyCall) (historyCall, historyDo) {
	c.kind = callProbe
	return c, func(ctx context.Context, p *allocator.Pool) (historyAnswer, error) {
		x, err := p.Probe(ctx, c.slot)
		if err != nil {
			return historyAnswer{}, err
		}
		a := historyAnswer{what: x.Status.String(), epoch: x.Epoch}
		if x.Lease != nil {
			a.seq = x.Lease.RenewSeq
			r.mu.Lock()
			defer r.mu.Unlock()
			r.seen[c.pool] = append(r.seen[c.pool], x)
		}
		return a, nil
	}
}

// Check returns an error unless one order explains all answers.
func (h *History) Check() error {
	result := porcupine.CheckOperationsTimeout(porcupine.Model{
		Partition: byPool,
		Init:      func() any { return historyState{} },
		Step: func(state, input, output any) (bool, any) {
			a, next := state.(historyState).apply(input.(historyCall))
			told := output.(historyAnswer)
			return told.what == "" || told == a, next
		},
		Equal: func(a, b any) bool { return a.(historyState).equal(b.(historyState)) },
	}, h.ops, historyPatience)
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("not decided in %v:\n%s", historyPatience, h)
	}
	return fmt.Errorf("no order explains it:\n%s", h)
}

// byPool parts a history: no call is about two pools.
func byPool(ops []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, op := range ops {
		name := op.Input.(historyCall).pool
		parts[name] = append(parts[name], op)
	}
	return slices.Collect(maps.Values(parts))
}

// historyState is a pool as the model has it: no time passes, and no slot cools.
type historyState struct {
	slots  [historySlots]historySlot
	leases []historyLease // epoch 1 first; never changed in place
}

type historySlot struct {
	epoch  uint64
	leased bool
}

type historyLease struct {
	attempt string
	holder  int
	slot    int
	seq     int64
	end     allocator.Reason // 0: live
}

func (s historyState) equal(o historyState) bool {
	return s.slots == o.slots && slices.Equal(s.leases, o.leases)
}

// apply is what a call is told, and what the pool is after it.
func (s historyState) apply(c historyCall) (historyAnswer, historyState) {
	switch c.kind {
	case callAcquire:
		return s.acquire(c)
	case callProbe:
		x := s.slots[c.slot]
		if !x.leased {
			return historyAnswer{what: "free", epoch: x.epoch}, s
		}
		return historyAnswer{what: "leased", epoch: x.epoch, seq: s.leases[x.epoch-1].seq}, s
	}
	if int(c.epoch) > len(s.leases) { // before the grant that the caller has heard of
		return historyAnswer{what: "too early"}, s
	}
	l := s.leases[c.epoch-1]
	current := s.slots[l.slot].epoch
	switch c.kind {
	case callRenew:
		return s.renew(c, l, current)
	case callRelease:
		switch {
		case l.end == 0:
			return historyAnswer{what: "released"}, s.ended(c.epoch, allocator.ReasonReleased)
		case l.end == allocator.ReasonReleased && current == c.epoch:
			return historyAnswer{what: "already"}, s
		}
		return historyAnswer{what: "stale", epoch: current}, s
	}
	switch { // reclaim
	case l.end == 0 && l.seq == c.seq:
		return historyAnswer{what: "reclaimed"}, s.ended(c.epoch, allocator.ReasonForced)
	case l.end == allocator.ReasonForced && l.seq == c.seq && current == c.epoch:
		return historyAnswer{what: "reclaimed"}, s
	}
	return historyAnswer{what: "stale", epoch: current}, s
}

func (s historyState) acquire(c historyCall) (historyAnswer, historyState) {
	for i, l := range s.leases {
		switch epoch := uint64(i + 1); {
		case l.end != 0 || l.attempt != c.attempt:
		case l.holder != c.holder:
			return historyAnswer{what: "held", epoch: epoch}, s
		default:
			return historyAnswer{what: "granted", epoch: epoch, slot: l.slot}, s
		}
	}
	for i := range s.slots {
		if s.slots[i].leased {
			continue
		}
		s.leases = append(slices.Clone(s.leases), historyLease{attempt: c.attempt, holder: c.holder, slot: i})
		s.slots[i] = historySlot{epoch: uint64(len(s.leases)), leased: true}
		return historyAnswer{what: "granted", epoch: s.slots[i].epoch, slot: i}, s
	}
	return historyAnswer{what: "full"}, s
}

func (s historyState) renew(c historyCall, l historyLease, current uint64) (historyAnswer, historyState) {
	switch {
	case l.end != 0:
		return historyAnswer{what: "lost, " + l.end.String(), epoch: current}, s
	case c.seq == l.seq:
		return historyAnswer{what: "renewed"}, s
	case c.seq != l.seq+1:
		return historyAnswer{what: "stale", epoch: c.epoch, seq: l.seq}, s
	}
	l.seq++
	s.leases = slices.Clone(s.leases)
	s.leases[c.epoch-1] = l
	return historyAnswer{what: "renewed"}, s
}

func (s historyState) ended(epoch uint64, why allocator.Reason) historyState {
	s.leases = slices.Clone(s.leases)
	s.leases[epoch-1].end = why
	s.slots[s.leases[epoch-1].slot].leased = false
	return s
}

// String lists the calls as they began, with when each was under way.
func (h *History) String() string {
	var b strings.Builder
	ops := slices.SortedFunc(slices.Values(h.ops), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, op := range ops {
		c := op.Input.(historyCall)
		fmt.Fprintf(&b, "%4d to %4d, caller %2d: %s %+v: %+v\n", op.Call, op.Return, op.ClientId, callNames[c.kind], c, op.Output)
	}
	return b.String()
}
