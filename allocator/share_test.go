package allocator_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/allocator"
)

// Where all groups want more than there is, each gets its share by weight: no group could have one more slot and still have less for
// its weight than another one has. A group at its maximum is out of it.
func TestT16_SharesAreByWeight(t *testing.T) {
	bubble(t, func(w *world) {
		for seed := range uint64(40) {
			w.store = memory.New(nil).Pools()
			shareOut(t, w, rand.New(rand.NewPCG(seed, 16)), fmt.Sprint("seed ", seed))
		}
	})
}

func shareOut(t *testing.T, w *world, r *rand.Rand, name string) {
	capacity := 1 + r.IntN(16)
	var groups []allocator.Group
	for i := range 2 + r.IntN(3) {
		g := allocator.Group{Key: []string{fmt.Sprint(i)}, Weight: 1 + r.Int64N(5)}
		if r.IntN(4) == 0 {
			most := r.IntN(capacity + 1)
			g.Max = &most
		}
		groups = append(groups, g)
	}
	p := w.bubblePool(capacity, func(s *allocator.Spec) { s.Groups = groups })
	all, err := p.Acquire(w.ctx, units("all", capacity, "other"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	var list []*waiting
	for _, i := range r.Perm(capacity * len(groups)) { // each group wants all of it
		list = append(list, w.wait(ctx, p, units(fmt.Sprint(i), 1, fmt.Sprint(i%len(groups)))))
		synctest.Wait()
	}
	w.release(all)
	synctest.Wait()
	used := map[string]int{}
	for g, err := range p.Groups(w.ctx) {
		if err != nil {
			t.Fatal(err)
		}
		used[g.Key[0]] = g.Used
	}
	checkShares(t, name, capacity, groups, used)
	cancel()
	for _, x := range list {
		<-x.done
	}
}

func checkShares(t *testing.T, name string, capacity int, groups []allocator.Group, used map[string]int) {
	sum, limited := 0, 0
	for _, a := range groups {
		n := used[a.Key[0]]
		sum += n
		if a.Max != nil {
			limited += *a.Max
			if n > *a.Max {
				t.Errorf("%s: %v has %d, above its maximum of %d", name, a.Key, n, *a.Max)
			}
		} else {
			limited += capacity
		}
		for _, b := range groups {
			m := used[b.Key[0]]
			if b.Max != nil && m == *b.Max {
				continue
			}
			if int64(n)*b.Weight > int64(m+1)*a.Weight {
				t.Errorf("%s: weights %d and %d have %d and %d", name, a.Weight, b.Weight, n, m)
			}
		}
	}
	if sum != min(capacity, limited) {
		t.Errorf("%s: %d of %d are given out", name, sum, min(capacity, limited))
	}
}
