package spendsql

import (
	"math"
	"slices"
	"testing"
)

func TestPostings(t *testing.T) {
	t.Parallel()
	for _, list := range [][]posting{{}, {{0, 5, 1, -1, 0}}, {{7, 0, math.MaxInt64, math.MinInt64, 1}, {0, -9, 0, 0, 0}}} {
		r := entryRec{postings: string(appendPostings(nil, list))}
		if err := r.unpack(); err != nil || !slices.Equal(r.posts, list) {
			t.Errorf("%v became %s became %v, %v", list, r.postings, r.posts, err)
		}
	}
	for _, text := range []string{"", "[", "[[1,2,3,4,5]", `[["1",2,3,4,5]]`, "[[9223372036854775808,0,0,0,0]]"} {
		r := entryRec{postings: text}
		if err := r.unpack(); err == nil {
			t.Errorf("%q was read as %v", text, r.posts)
		}
	}
}
