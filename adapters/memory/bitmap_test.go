package memory

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestBitmap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var b bitmap
		var in []int
		number := rapid.OneOf(rapid.IntRange(0, 200), rapid.SampledFrom([]int{63, 64, 4095, 4096, 9999}))
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				if i := number.Draw(t, "number"); !slices.Contains(in, i) {
					b.add(i)
					in = append(in, i)
				}
			},
			"remove": func(t *rapid.T) {
				if len(in) > 0 {
					at := rapid.IntRange(0, len(in)-1).Draw(t, "which")
					b.remove(in[at])
					in = slices.Delete(in, at, at+1)
				}
			},
			"": func(t *rapid.T) {
				slices.Sort(in)
				for _, n := range []int{0, 1, 3, 10_000} {
					var got []int
					b.lowest(n, func(i int) { got = append(got, i) })
					if !slices.Equal(got, in[:min(n, len(in))]) {
						t.Errorf("the lowest %d of %v are %v", n, in, got)
					}
				}
			},
		})
	})
}
