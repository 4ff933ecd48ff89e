package allocator

import "testing"

// The verdict alone: that time frees a lease whose owner is not dead is for the tests of the pool.
func TestT9_Owner(t *testing.T) {
	t.Parallel()
	me := Holder{Incarnation: Incarnation{1}, Host: "host-a", Boot: "boot-1", Namespace: "4026531836", PID: 100, Start: 1000}
	holder := func(change func(*Holder)) Holder {
		h := Holder{Incarnation: Incarnation{2}, Host: "host-a", Boot: "boot-1", Namespace: "4026531836", PID: 4242, Start: 123456}
		if change != nil {
			change(&h)
		}
		return h
	}
	otherBoot := func(h *Holder) { h.Boot = "boot-2" }
	gone, same, reused := Process{Presence: Absent}, Process{Presence: Present, Start: 123456}, Process{Presence: Present, Start: 123457}
	for _, row := range []struct {
		name  string
		h     Holder
		given bool // the host
		owner Owner
		p     Process
		want  Verdict
	}{
		{"(a) other boot, absent pid", holder(otherBoot), false, OwnerSelf, gone, VerdictUnknown},
		{"(b) other boot, existing pid", holder(otherBoot), false, OwnerSelf, same, VerdictUnknown},
		{"(b) other boot, pid with other start", holder(otherBoot), false, OwnerSelf, reused, VerdictUnknown},
		{"(c) same boot and namespace, live pid", holder(nil), false, OwnerSelf, same, VerdictLive},
		{"(d) same, absent pid", holder(nil), false, OwnerSelf, gone, VerdictDead},
		{"(d) start unknown", holder(func(h *Holder) { h.Start = 0 }), false, OwnerSelf, gone, VerdictDead},
		{"(e) same, pid reused", holder(nil), false, OwnerSelf, reused, VerdictDead},
		{"(e) start unknown in the row", holder(func(h *Holder) { h.Start = 0 }), false, OwnerSelf, same, VerdictUnknown},
		{"(e) start unknown to the system", holder(nil), false, OwnerSelf, Process{Presence: Present}, VerdictUnknown},
		{"(f) permission denied", holder(nil), false, OwnerSelf, Process{}, VerdictUnknown},
		{"(g) other namespace, absent pid", holder(func(h *Holder) { h.Namespace = "4026532300" }), false, OwnerSelf, gone, VerdictUnknown},
		{"(g) no namespace", holder(func(h *Holder) { h.Namespace = "" }), false, OwnerSelf, gone, VerdictUnknown},
		{"(h) host given, boot differs", holder(otherBoot), true, OwnerSelf, Process{}, VerdictDead},
		{"(h) no boot in the row", holder(func(h *Holder) { h.Boot = "" }), true, OwnerSelf, gone, VerdictUnknown},
		{"(h) other host", holder(func(h *Holder) { h.Host, h.Boot = "host-b", "boot-2" }), true, OwnerSelf, gone, VerdictUnknown},
		{"(i) host not given, boot differs", holder(otherBoot), false, OwnerSelf, Process{}, VerdictUnknown},
		{"(j) no pid in the row", holder(func(h *Holder) { h.PID = 0 }), false, OwnerSelf, gone, VerdictUnknown},
		{"(k) zombie", holder(nil), false, OwnerSelf, Process{}, VerdictUnknown},
		{"(l) owner none, absent pid", holder(nil), true, OwnerNone, gone, VerdictUnknown},
		{"(l) owner none, boot differs", holder(otherBoot), true, OwnerNone, Process{}, VerdictUnknown},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if got := judgeOwner(row.h, me, row.given, row.owner, row.p); got != row.want {
				t.Errorf("%v, want %v", got, row.want)
			}
		})
	}
}

// Every combination of inputs: dead is exactly one of the two proofs of R11, and a system that does not know the holder's
// process is never needed.
func TestR11_OnlyProofsAreDead(t *testing.T) {
	t.Parallel()
	var (
		texts  = []string{"", "a", "b"}
		pids   = []int64{-1, 0, 4242}
		starts = []int64{-1, 0, 7, 8}
	)
	seen := map[string]int{}
	check := func(h, me Holder, given bool, owner Owner, p Process) {
		self := owner == OwnerSelf
		rebooted := self && given && h.Host != "" && h.Host == me.Host && h.Boot != "" && me.Boot != "" && h.Boot != me.Boot
		visible := self && h.Boot != "" && h.Boot == me.Boot && h.Namespace != "" && h.Namespace == me.Namespace && h.PID > 0
		compared := visible && p.Presence == Present && h.Start > 0 && p.Start > 0
		want := VerdictUnknown
		switch {
		case rebooted:
			seen["rebooted"]++
			want = VerdictDead
		case visible && p.Presence == Absent:
			seen["absent"]++
			want = VerdictDead
		case compared && p.Start != h.Start:
			seen["reused"]++
			want = VerdictDead
		case compared:
			seen["live"]++
			want = VerdictLive
		}
		if got := judgeOwner(h, me, given, owner, p); got != want {
			t.Fatalf("%+v seen by %+v (host given %v), %v, %+v: %v, want %v", h, me, given, owner, p, got, want)
		}
		if !askable(h, me) && judgeOwner(h, me, given, owner, Process{}) != want {
			t.Fatalf("%+v seen by %+v: %+v counts though it is not askable", h, me, p)
		}
	}
	var processes []Process
	for presence := PresenceUnknown; presence <= Present+1; presence++ {
		for _, start := range starts {
			processes = append(processes, Process{presence, start})
		}
	}
	var holders, observers []Holder
	for _, host := range texts {
		for _, boot := range texts {
			for _, namespace := range texts {
				observers = append(observers, Holder{Host: host, Boot: boot, Namespace: namespace, PID: 100, Start: 8})
				for _, pid := range pids {
					for _, start := range starts {
						holders = append(holders, Holder{Host: host, Boot: boot, Namespace: namespace, PID: pid, Start: start})
					}
				}
			}
		}
	}
	for _, me := range observers {
		for _, h := range holders {
			for _, p := range processes {
				for owner := OwnerSelf; owner <= OwnerNone+1; owner++ {
					check(h, me, true, owner, p)
					check(h, me, false, owner, p)
				}
			}
		}
	}
	for _, kind := range []string{"rebooted", "absent", "reused", "live"} {
		if seen[kind] == 0 {
			t.Errorf("no combination is %s", kind)
		}
	}
}
