package allocator_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stint-go/stint/allocator"
	"github.com/stint-go/stint/allocator/allocatortest"
)

const day = 24 * 3600

// course is how far the clock is off in each turn of 20 seconds.
type course struct {
	name   string
	off    func(turn int) (seconds int64)
	rebase int // turn in which an operator dates all anew, before anybody else; 0: none
	jump   int // turn in which the clock goes on by more than JumpGuard, so that all may be too old one TTL later; 0: none
}

func courses() []course {
	week := func(from, to int) func(int) int64 {
		return func(turn int) int64 {
			if turn >= from && turn < to {
				return 7 * day
			}
			return 0
		}
	}
	back := func(from, to int) func(int) int64 { return func(turn int) int64 { return -week(from, to)(turn) } }
	return []course{
		{name: "right", off: week(0, 0)},
		{name: "frozen", off: func(turn int) int64 { return -20 * int64(turn) }},
		{name: "a week back", off: back(5, 100)},
		{name: "a week back, then right", off: back(5, 30), rebase: 30},
		{name: "a week back, taken for right, then right", off: back(5, 30), rebase: 6, jump: 30},
		{name: "a week on", off: week(5, 100), jump: 5},
		{name: "a week on, then right", off: week(5, 30), jump: 5, rebase: 30},
		{name: "a saw of an hour", off: func(turn int) int64 { return -3600 * int64(turn%2) }},
	}
}

// A holder that renews every 20 s keeps its lease however the clock moves, at least for one TTL, and nobody else gets its slot.
func TestT24_TheClockMoves(t *testing.T) {
	t.Parallel()
	for _, c := range courses() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			admin := w.pool(2)
			w.acquire(w.process(), "dead") // nobody can tell
			h := &renewing{p: w.process()}
			h.lease = w.acquire(h.p, "live")
			other := w.process()
			version := int64(1)
			for turn := 1; turn <= 60; turn++ {
				w.set(20*int64(turn) + c.off(turn))
				if turn == c.rebase {
					if _, err := admin.Rebase(w.ctx, allocator.Admin{ID: "r", Version: 1}, "the clock was wrong"); err != nil {
						t.Fatal(err)
					}
					version++
				}
				got, err := other.Acquire(w.ctx, request("other"))
				if err == nil && h.lease.Valid() && index(got) == index(h.lease) {
					t.Fatalf("turn %d: two holders of slot %d", turn, index(got))
				}
				if lost := h.renew(w); lost != nil && (c.jump == 0 || turn <= c.jump+3) {
					t.Fatalf("turn %d: %v", turn, lost)
				}
			}
			w.usable(admin, version)
		})
	}
}

// renewing is a holder that lives on.
type renewing struct {
	p     *allocator.Pool
	lease *allocator.Lease
	seq   uint64
}

// renew renews, or takes another lease if that one is lost.
func (h *renewing) renew(w *world) (lost error) {
	h.seq++
	ref := allocator.Ref{Pool: "worktrees", ID: h.lease.Ref().ID, Epoch: h.lease.Epoch()} // Rebase changes the identity
	_, err := h.p.Renew(w.ctx, ref, h.seq)
	if !errors.Is(err, allocator.ErrLost) {
		return err
	}
	if l, again := h.p.Acquire(w.ctx, request("live")); again == nil {
		h.lease, h.seq = l, 0
	}
	return err
}

// usable checks that a pool of two slots is as new once it is dated anew and two minutes have passed.
func (w *world) usable(admin *allocator.Pool, version int64) {
	w.t.Helper()
	w.set(60 * 20)
	if _, err := admin.Rebase(w.ctx, allocator.Admin{ID: "last", Version: version}, "the clock was wrong"); err != nil {
		w.t.Fatal(err)
	}
	w.setUS(60*20_000_000 + 60_000_001)
	if l, err := w.process().Acquire(w.ctx, units("all", 2)); err != nil || len(l.Slots()) != 2 {
		w.t.Errorf("not usable: %v", err)
	}
}

// The owner is asked whatever the clock says.
func TestT24_TheDeadAreFoundByAClockThatStands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pool(1)
	dead := processes{}
	same := func(o *allocator.Options) { o.Holder.Boot, o.Owners = "boot", dead }
	a := w.process(same)
	w.acquire(a, "a")
	w.set(-7 * day)
	b := w.process(same)
	if _, err := b.Acquire(w.ctx, request("b")); !errors.Is(err, allocator.ErrFull) {
		t.Fatal(err)
	}
	dead[a.Holder().PID] = allocator.Process{Presence: allocator.Absent}
	w.acquire(b, "b")
}

func TestT24_AnIdlePool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	w.acquire(w.process(), "crashed")
	us := int64(25 * 3600 * 1_000_000)
	for _, c := range []struct {
		after int64
		want  error
	}{{0, allocator.ErrFull}, {1_000_000, allocator.ErrFull}, {60_000_000, allocator.ErrFull}, {60_000_001, nil}} {
		w.setUS(us + c.after)
		_, err := p.Acquire(w.ctx, request("next"))
		w.want(fmt.Sprint(c.after, " µs after the jump"), err, c.want)
	}
}

// A row may say what it likes: nothing lives longer than the policy's MaxLease.
func TestT13_AStoredTimeOf68Years(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	store := allocatortest.NewStrict(w.now)
	w.store = store
	p := w.pool(1)
	l := w.acquire(p, "a")
	const years = 68 * 365 * day * 1_000_000
	store.SpoilLease("worktrees", l.Epoch(), func(r *allocator.LeaseRow) {
		r.TTLUS, r.ExpiresUS, r.MaxUS = years, r.AcquiredUS+years, r.AcquiredUS+years
	})
	w.set(21_600)
	r, err := p.Renew(w.ctx, allocator.Ref{Pool: "worktrees", ID: l.Ref().ID, Epoch: l.Epoch()}, 1)
	if err != nil || !r.ExpiresAt.Equal(at(21_600)) || r.Left != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if e := w.probe(p, 0); e.Verdict != allocator.VerdictLive {
		t.Errorf("%v", e.Verdict)
	}
	w.setUS(21_600_000_001)
	if e := w.probe(p, 0); e.Verdict != allocator.VerdictExpired || e.Reason != allocator.ReasonMaxLease {
		t.Errorf("%v, %v", e.Verdict, e.Reason)
	}
	w.acquire(w.process(), "b")
}

// A clock that jumps less than JumpGuard is taken at its word.
func TestR14_WithinTheGuard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.pool(1)
	w.acquire(w.process(), "a")
	w.set(day)
	if l := w.acquire(p, "b"); l.Epoch() != 2 {
		t.Errorf("epoch %d", l.Epoch())
	}
	w.set(2*day + 1)
	_, err := p.Acquire(w.ctx, request("c"))
	w.full("beyond it", err, allocator.ShortCapacity)
}
