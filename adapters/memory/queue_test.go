package memory

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestQueue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := queue[int]{order: cmp.Compare[int]}
		var in []*place[int]
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				p := &place[int]{of: rapid.IntRange(0, 9).Draw(t, "of")}
				q.add(p, rapid.Int64Range(0, 5).Draw(t, "ends"))
				in = append(in, p)
			},
			"move": func(t *rapid.T) {
				if len(in) > 0 {
					q.move(rapid.SampledFrom(in).Draw(t, "which"), rapid.Int64Range(0, 5).Draw(t, "ends"))
				}
			},
			"remove": func(t *rapid.T) {
				if len(in) > 0 {
					i := rapid.IntRange(0, len(in)-1).Draw(t, "which")
					q.remove(in[i])
					in = slices.Delete(in, i, i+1)
				}
			},
			"": func(t *rapid.T) {
				slices.SortFunc(in, q.compare)
				for _, now := range []int64{0, 3, math.MaxInt64} {
					var want []int
					for _, p := range in {
						if p.ends < now {
							want = append(want, p.of)
						}
					}
					for _, n := range []int{0, 1, 100} {
						got, more := q.before(now, n)
						if !slices.Equal(got, want[:min(n, len(want))]) || more != (len(want) > n) {
							t.Errorf("%v and %v before %d, want %v of %v", got, more, now, n, want)
						}
					}
				}
				if got := slices.Sorted(q.all); len(got) != len(in) {
					t.Errorf("%v, want %d", got, len(in))
				}
			},
		})
	})
}
