package allocatortest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stint-go/stint/allocator"
)

// tour is a script that makes every operation, with all that can become of it.
func tour() []*op {
	a := func(attempt string, units int) allocator.Request { return ask(attempt, units, "a") }
	rich := allocator.Request{
		Attempt: "rich", Group: []string{"a", "b"}, Units: 2, TTL: 20 * time.Second, MaxLease: time.Minute, Owner: allocator.OwnerNone,
		Labels: map[string]string{"branch": "main", "empty": ""},
	}
	policy := *plain()
	policy.Cooling, policy.TTL = 10*time.Second, 90*time.Second
	most := 3
	groups := []allocator.Group{{Key: []string{"a"}, Weight: 3, Min: 1}, {Key: []string{"c"}, Weight: 1, Max: &most}}
	return []*op{
		opCreate(scriptSpec(5)), opCreate(scriptSpec(5)), opCreate(scriptSpec(6)), opLook(0),
		opAcquire(0, a("one", 1)), opAcquire(0, a("one", 1)), opAcquire(0, a("one", 2)), opAcquire(1, a("one", 1)), opAcquire(1, rich),
		opAcquire(2, ask("none", 1)), opAcquire(2, a("too many", 6)), opAcquire(2, a("too many now", 2)), opLook(1),
		opRenew(0, 2, false), opRenew(0, 2, true), opRenew(0, 2, false), opRenew(1, 1, false), opRenew(2, 9, false),
		opQueue(2, a("two", 2)), opQueue(2, ask("three", 1, "c")), opQueue(0, a("four", 1)), opQueue(0, a("four", 2)), opAcquire(1, a("five", 1)),
		opLook(2), opRelease(0, 1), opRelease(0, 1), opAcquire(2, a("two", 2)), opQueue(2, ask("three", 1, "c")), opLook(0),
		opCancel(0, "four"), opCancel(0, "four"), opCancel(0, "one"), opAcquire(1, a("one", 1)),
		opConfigure("policy", allocator.Configuration{Policy: &policy}), opConfigure("groups", allocator.Configuration{Groups: &groups}),
		opConfigure("attrs", allocator.Configuration{Attrs: map[int]map[string]string{0: {"path": "/w/0"}}}), opResize(7),
		opConfigure("attrs", allocator.Configuration{Attrs: map[int]map[string]string{6: {"path": "/w/6"}}}), opLook(0),
		opAcquire(0, a("six", 2)), opClock(40 * time.Second), opRenew(1, 1, false), opQueue(1, a("seven", 1)), opQueue(2, a("eight", 3)),
		opClock(25 * time.Second), opReclaim(1, 0, 0), opReclaim(1, 1, allocator.ReasonForced), opReclaim(1, 2, allocator.ReasonMaxLease), opLook(1),
		opClock(time.Minute), opSweep(1, 1), opSweep(1, 100), opSweep(1, 100), opLook(1), opClock(20 * time.Second), opAcquire(0, a("nine", 3)),
		opAcquire(1, a("ten", 3)), opResize(3), opAcquire(2, a("eleven", 1)), opDead(0, true), opAcquire(2, ask("twelve", 1, "c")), opDead(0, false),
		opClock(11 * time.Second), opLook(0), opResize(8), opAcquire(2, ask("twelve", 1, "c")), opReclaim(2, 0, allocator.ReasonForced),
		opQueue(0, a("big", 8)), opLeave(1), opLook(1), opLeave(0), opCheck(false), opCheck(true),
		opAcquire(0, a("long", 1)), opAcquire(1, a("longer", 1)), opDrain(time.Hour), opAcquire(0, a("long", 1)), opAcquire(0, a("late", 1)),
		opQueue(0, a("late", 1)), opRenew(0, 1, false), opClock(time.Hour), opRenew(0, 1, false), opRebase(), opLook(2), opRelease(0, 0), opRelease(0, 1),
		opReopen(), opClock(-time.Hour), opAcquire(0, a("back", 1)), opLook(0), opRebase(), opClock(25 * time.Hour), opAcquire(1, a("jump", 7)),
		opLook(1), opClock(2 * time.Minute), opAcquire(1, a("jump", 7)), opClock(8 * 24 * time.Hour), opSweep(0, 10), opSweep(0, 10), opLook(0), opCheck(false),
	}
}

// scriptSpec is the pool of a script.
func scriptSpec(capacity int) allocator.Spec {
	policy := plain()
	policy.Cooling, policy.MaxLease = 5*time.Second, 10*time.Minute
	return allocator.Spec{
		Capacity: capacity, Policy: policy, Groups: []allocator.Group{{Key: []string{"b"}, Weight: 2, Min: 1}, {Key: []string{"a"}, Weight: 1}},
		Attrs: map[int]map[string]string{1: {"path": "/w/1", "port": "8001"}},
	}
}

func drawAttempt(d *rand.Rand) string { return fmt.Sprint("t", d.IntN(40)) }

func drawGroup(d *rand.Rand) []string {
	return [][]string{nil, {"a"}, {"b"}, {"a", "b"}}[d.IntN(4)]
}

func drawRequest(d *rand.Rand) allocator.Request {
	r := ask(drawAttempt(d), 1+d.IntN(3), drawGroup(d)...)
	if d.IntN(2) == 0 {
		r.TTL = 5 * time.Second
	}
	if d.IntN(5) == 0 {
		r.Labels = map[string]string{"b": fmt.Sprint(d.IntN(2)), "a": ""}
	}
	r.Owner = allocator.Owner(d.IntN(2))
	return r
}

// drawOp draws an operation of a random script. The pool has few slots and little time, so that all states are met.
func drawOp(d *rand.Rand) *op {
	who := d.IntN(scriptProcesses)
	switch n := d.IntN(100); {
	case n < 22:
		return opAcquire(who, drawRequest(d))
	case n < 38:
		return opQueue(who, drawRequest(d))
	case n < 48:
		return opRenew(who, d.IntN(8), d.IntN(3) == 0)
	case n < 60:
		return opRelease(who, d.IntN(8))
	case n < 64:
		return opCancel(who, drawAttempt(d))
	case n < 70:
		return opReclaim(who, d.IntN(12), []allocator.Reason{0, 0, 0, allocator.ReasonForced, allocator.ReasonMaxLease}[d.IntN(5)])
	case n < 73:
		return opDead(d.IntN(scriptProcesses), d.IntN(3) == 0)
	case n < 83:
		return opClock(time.Duration(d.IntN(8_000_000)) * time.Microsecond)
	case n < 86:
		return opSweep(who, 1+d.IntN(4))
	case n < 88:
		return opLook(who)
	}
	return drawRare(d, who)
}

func drawRare(d *rand.Rand, who int) *op {
	switch d.IntN(14) {
	case 0, 1, 2:
		return opResize(3 + d.IntN(10))
	case 3:
		return opLeave(who)
	case 4:
		return opDrain(time.Duration(d.IntN(2)) * time.Hour)
	case 5, 6:
		return opReopen()
	case 7:
		return opRebase()
	case 8:
		return opCheck(d.IntN(2) == 0)
	case 9:
		attrs := map[int]map[string]string{d.IntN(10): {"n": fmt.Sprint(d.IntN(10))}}
		return opConfigure("attrs", allocator.Configuration{Attrs: attrs})
	case 10:
		groups := []allocator.Group{{Key: []string{"a"}, Weight: 1 + d.Int64N(3), Min: d.IntN(2)}}
		return opConfigure("groups", allocator.Configuration{Groups: &groups})
	}
	return opClock([]time.Duration{-time.Hour, time.Minute, 10 * time.Minute, 25 * time.Hour, 8 * 24 * time.Hour, 8 * 24 * time.Hour}[d.IntN(6)])
}

// randomScript is made by its seed.
func randomScript(seed uint64, n int) []*op {
	d := rand.New(rand.NewPCG(seed, 1))
	ops := []*op{opCreate(scriptSpec(3 + d.IntN(8)))}
	for range n {
		ops = append(ops, drawOp(d))
	}
	return ops
}
