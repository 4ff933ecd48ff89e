package spendlimit

import (
	"slices"
	"testing"
)

// A refused command leaves no row in the list of what to write.
func TestChangesListOnlyWhatStays(t *testing.T) {
	t.Parallel()
	w, a, b := NewWork(), &AccountRow{Name: "a"}, &AccountRow{Name: "b"}
	for step := int64(1); step <= 2; step++ { // marks of the first step say nothing in the second
		var at savepoint
		w.save(&at)
		w.editAccount(a)
		a.Seq = step
		w.save(&at)
		w.editAccount(b)
		w.editAccount(a)
		a.Seq, b.Seq = 9, 9
		if got := w.Changes().Accounts; !slices.Equal(got, []*AccountRow{a, b}) {
			t.Errorf("step %d: changed %v, want both once", step, got)
		}
		w.revert(&at)
		if got := w.Changes().Accounts; !slices.Equal(got, []*AccountRow{a}) || a.Seq != step || b.Seq != 0 {
			t.Errorf("step %d: changed %v, a %d, b %d after the revert; want a alone", step, got, a.Seq, b.Seq)
		}
		w.Reset()
		if w.Changed() || len(w.Changes().Accounts) > 0 {
			t.Errorf("step %d: changes after the reset", step)
		}
	}
}
