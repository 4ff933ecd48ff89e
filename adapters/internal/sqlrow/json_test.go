package sqlrow

import (
	"math"
	"slices"
	"testing"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	for _, ids := range [][]int64{nil, {1}, {3, 1, 2}, {math.MaxInt64, math.MinInt64, 0}} {
		text := string(AppendIDs(nil, ids))
		got, err := ParseIDs(text)
		if err != nil || !slices.Equal(got, ids) {
			t.Errorf("%v became %s became %v, %v", ids, text, got, err)
		}
	}
	for _, text := range []string{"", "[", "]", "1", "1]", "[1", "[1,]", "[,]", "[1;2]", "[a]", "[9223372036854775808]", "{1}", "[[1]]", "[1.5]"} {
		if ids, err := ParseIDs(text); err == nil {
			t.Errorf("%q was read as %v", text, ids)
		}
	}
}
