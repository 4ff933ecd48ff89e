package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint/allocator"
)

// Rows are damaged, deleted and contradict each other: what is sound goes on, and after repair every slot is there once.
func TestR22_RandomDamage(t *testing.T) {
	t.Parallel()
	runs := 25
	if testing.Short() {
		runs = 5
	}
	seed := uint64(time.Now().UnixNano())
	for run := range runs {
		if damageRun(t, seed+uint64(run)); t.Failed() {
			return
		}
	}
}

func damageRun(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 3))
	w := newDamaged(t)
	defer w.db.Close()
	most := 3
	var log []string
	note := func(f string, a ...any) { log = append(log, fmt.Sprintf(f, a...)) }
	p := w.pool(4, func(s *allocator.Spec) {
		if r.IntN(2) == 0 {
			s.Groups = []allocator.Group{{Key: []string{"g"}, Weight: 2, Max: &most}}
		}
	})
	procs := []*allocator.Pool{p, w.process()}
	now := int64(0)
	var leases []*allocator.Lease
	bad := func(what string, err error) {
		if errors.Is(err, allocator.ErrUncertain) || errors.Is(err, allocator.ErrUnavailable) {
			t.Errorf("seed %d: %s: %v", seed, what, err)
		}
	}
	try := func(q string) {
		res, err := w.db.SQL().ExecContext(w.ctx, q)
		n := int64(0)
		if err == nil {
			n, _ = res.RowsAffected()
		}
		note("  SQL %s -> %d %v", q, n, err)
	}
	repair := func() {
		for range 6 {
			_, err := p.Check(w.ctx, true)
			bad("check", err)
			again := false
			for i := range 6 {
				e, err := p.Probe(w.ctx, i)
				if err != nil {
					continue
				}
				if e.Status == allocator.SlotQuarantined {
					_, err := p.Reclaim(w.ctx, e.Reclaim(allocator.ReasonForced, "me"))
					note("  reclaim %d (%s): %v", i, e.Field, err)
					bad("reclaim", err)
					again = true
				}
			}
			if !again {
				break
			}
		}
		if s, err := p.Check(w.ctx, false); err != nil || s.Blocked {
			t.Errorf("seed %d: after repair: blocked %v, %v", seed, s.Blocked, err)
		}
		seen := map[int]uint64{}
		for l, err := range p.Leases(w.ctx, false) {
			if err != nil {
				t.Errorf("seed %d: leases: %v", seed, err)
				break
			}
			for _, i := range l.Slots {
				if seen[i] != 0 {
					t.Errorf("seed %d: slot %d of two leases", seed, i)
				}
				seen[i] = l.Epoch
			}
		}
	}
	for range 40 {
		q := procs[r.IntN(2)]
		a := fmt.Sprint("a", r.IntN(6))
		switch k := r.IntN(16); {
		case k < 4:
			req := units(a, 1+r.IntN(2))
			if r.IntN(2) == 0 {
				req.Group = []string{"g"}
			}
			l, err := q.Acquire(w.ctx, req)
			note("acquire %s: %v", a, err)
			bad("acquire", err)
			if err == nil {
				leases = append(leases, l)
			}
		case k < 5:
			ctx, cancel := context.WithCancel(w.ctx)
			cancel()
			_, err := q.AcquireWait(ctx, units(a, 1+r.IntN(2)))
			note("wait %s: %v", a, err)
		case k < 7 && len(leases) > 0:
			l := leases[r.IntN(len(leases))]
			_, err := l.Release(w.ctx)
			note("release %d: %v", l.Epoch(), err)
			bad("release", err)
		case k < 8 && len(leases) > 0:
			l := leases[r.IntN(len(leases))]
			_, err := l.Renew(w.ctx)
			note("renew %d: %v", l.Epoch(), err)
			bad("renew", err)
		case k < 9:
			now += int64(r.IntN(40))
			w.set(now)
			note("at %d", now)
		case k < 10:
			s, err := q.Sweep(w.ctx, 1+r.IntN(3))
			note("sweep %+v %v", s, err)
			bad("sweep", err)
		case k < 11:
			n := 1 + r.IntN(6)
			_, err := q.Resize(w.ctx, allocator.Admin{ID: fmt.Sprint(len(log)), Version: w.state(p).Version}, n)
			note("resize %d: %v", n, err)
			bad("resize", err)
		case k < 15:
			e, i := 1+r.IntN(8), r.IntN(4)
			switch r.IntN(9) {
			case 0:
				try(fmt.Sprintf("UPDATE stint_alloc_lease SET labels = '{' WHERE epoch = %d", e))
			case 1:
				try(fmt.Sprintf("UPDATE stint_alloc_slot SET attrs = '{' WHERE idx = %d", i))
			case 2:
				try(fmt.Sprintf("UPDATE stint_alloc_slot SET epoch = %d WHERE idx = %d AND state = 2", e, i))
			case 3:
				try(fmt.Sprintf("UPDATE stint_alloc_slot SET state = 1, cool_us = 0 WHERE idx = %d", i))
			case 4:
				try(fmt.Sprintf("UPDATE stint_alloc_pool SET used = %d", r.IntN(4)))
			case 5:
				try(fmt.Sprintf("UPDATE stint_alloc_group SET used = %d", r.IntN(4)))
			case 6:
				try(fmt.Sprintf("DELETE FROM stint_alloc_slot WHERE idx = %d", i))
			case 7:
				try(fmt.Sprintf("DELETE FROM stint_alloc_lease WHERE epoch = %d", e))
			case 8:
				try(fmt.Sprintf("UPDATE stint_alloc_lease SET slots = '[%d,%d]' WHERE epoch = %d AND units = 2", i, i+1, e))
			}
		default:
			note("repair")
			repair()
		}
		if t.Failed() {
			for _, x := range log {
				t.Log(x)
			}
			return
		}
	}
	note("repair, last")
	repair()
	w.set(now + 200)
	for range 3 {
		if _, err := p.Sweep(w.ctx, 100); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	if s := w.state(p); s.Used > 0 {
		t.Errorf("seed %d: used %d for ever: %+v", seed, s.Used, s)
	}
	for i := range w.state(p).Capacity {
		if _, err := p.Acquire(w.ctx, request(fmt.Sprint("a", i))); err != nil {
			t.Errorf("seed %d: last %d: %v", seed, i, err)
		}
	}
	if _, err := p.Check(w.ctx, false); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	if t.Failed() {
		for _, x := range log {
			t.Log(x)
		}
	}
}
