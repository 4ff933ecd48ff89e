package spendlimittest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stint-go/stint/adapters/memory"
)

func TestTmp(t *testing.T) {
	for seed := range uint64(2000) {
		sc := randomScript(seed, 150)
		c1, c2 := newClock(), newClock()
		m := memory.New(&memory.Options{Clock: c1.read}).Spend()
		s := NewStrict(c2.read)
		a1, err1 := sc.play(t.Context(), m, c1)
		a2, err2 := sc.play(t.Context(), s, c2)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		d1, err1 := Dump(t.Context(), m, "random", "a", "b", "c")
		d2, err2 := Dump(t.Context(), s, "random", "a", "b", "c")
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if d := cmp.Diff(a1, a2); d != "" {
			t.Errorf("seed %d: answers %s", seed, d)
		}
		if d := cmp.Diff(d1, d2); d != "" {
			t.Errorf("seed %d: rows %s", seed, d)
		}
		if t.Failed() {
			return
		}
	}
}
