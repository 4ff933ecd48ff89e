package spendlimittest

import (
	"fmt"
	"strings"
	"os"
	"strconv"
	"testing"

	"github.com/stint-go/stint/adapters/memory"
)

func TestTmp3(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SEED"))
	lo, hi := uint64(0), uint64(3000)
	if n > 0 { lo, hi = uint64(n), uint64(n)+1 }
	for seed := lo; seed<hi; seed++ {
		sc := randomScript(seed, 150)
		c := newClock()
		st := memory.New(&memory.Options{Clock: c.read}).Spend()
		s, _ := newSession(st, sc.cfg, c)
		for i, o := range sc.ops {
			before, _ := Dump(t.Context(), st, "random", "a", "b", "c")
			a := s.do(t.Context(), o)
			if n > 0 { fmt.Println(o.text, "->", a) }
			if strings.Contains(a, "contradict") {
				if n > 0 { fmt.Println(before) }
				fmt.Printf("seed %d op %d %s -> %s\n", seed, i, o.text, a)
				break
			}
			bad := false
			for _, acc := range worldAccounts {
				if v := s.do(t.Context(), opVerify(acc)); v != "<nil>" && v != "[]" {
					fmt.Printf("seed %d op %d %s -> %s\n%s\n", seed, i, o.text, a, v)
					bad = true
				}
			}
			if bad { break }
		}
	}
}
