package spendlimittest

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stint-go/stint/spendlimit"
)

// fill gives every column below v a value that is not its zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.SetUint(3)
	case reflect.String:
		v.SetString("text")
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeOf(noon) {
			v.Set(reflect.ValueOf(noon))
			return
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Name != "Ext" && !pointsAtRows(f.Type) {
				fill(v.Field(i))
			}
		}
	}
}

func filled[T any]() *T {
	row := new(T)
	fill(reflect.ValueOf(row).Elem())
	return row
}

// A column that the strict store forgets would be missing from the proof that nothing else is needed.
func TestStrictKeepsEveryColumn(t *testing.T) {
	t.Parallel()
	check := func(before, after any) {
		t.Helper()
		if d := cmp.Diff(columns(before), columns(after)); d != "" {
			t.Errorf("%T (-row +copy):\n%s", before, d)
		}
	}
	a := filled[spendlimit.AccountRow]()
	check(*a, *freshAccount(a))
	l := filled[spendlimit.LimitRow]()
	check(*l, *freshLimit(l))
	p := filled[spendlimit.PeriodRow]()
	check(*p, *freshPeriod(p))
	h := filled[spendlimit.HoldRow]()
	check(*h, *freshHold(h))
	u := filled[spendlimit.UsageRow]()
	check(*u, *freshUsage(u))
	e := filled[spendlimit.EntryRow]()
	check(*e, freshEntry(e))
}

// Work.Changes lists every row that a step has changed: whatever was loaded and is not listed is as it was.
func TestC4_ChangesAreComplete(t *testing.T) {
	t.Parallel()
	steps := 0
	store := &broken{answer: func(s *strictStep, err error) error {
		if err == nil {
			steps++
			for _, text := range unlisted(s) {
				t.Error(text)
			}
		}
		return err
	}}
	scripts := []*script{tour()}
	for seed := range uint64(12) {
		scripts = append(scripts, randomScript(seed+2000, 100))
	}
	for i, sc := range scripts {
		clock := newClock()
		b := *store
		b.Strict = NewStrict(clock.read)
		if _, err := sc.play(t.Context(), &b, clock); err != nil || t.Failed() {
			t.Fatalf("script %d: %v", i, err)
		}
	}
	if steps < 500 {
		t.Errorf("only %d steps", steps)
	}
}

// unlisted finds rows that differ from what is stored, and that the step does not list.
func unlisted(s *strictStep) (out []string) {
	c := s.work.Changes()
	now := s.copied()
	check := func(what string, listed bool, was, is any) {
		if !listed && !reflect.DeepEqual(was, is) {
			out = append(out, fmt.Sprintf("%s is changed, but not listed:\n%s", what, cmp.Diff(fmt.Sprintf("%+v", was), fmt.Sprintf("%+v", is))))
		}
	}
	for name, row := range s.accounts {
		now.putAccount(row)
		check("account "+name, slices.Contains(c.Accounts, row), s.flatLedger.accounts[name], now.accounts[name])
	}
	for id, row := range s.limits {
		now.putLimit(row)
		check(limitText(row), slices.Contains(c.Limits, row), s.flatLedger.limits[id], now.limits[id])
	}
	for id, row := range s.periods {
		now.putPeriod(row)
		check(periodText(row), slices.Contains(c.Periods, row), s.flatLedger.periods[id], now.periods[id])
	}
	for key, row := range s.holds {
		now.putHold(row)
		check("hold "+key, slices.Contains(c.Holds, row), s.flatLedger.holds[key], now.holds[key])
	}
	for _, id := range s.need.Usages {
		if was, ok := s.usages[id]; ok {
			row := s.work.Usage(id)
			check("usage "+id.ID, slices.Contains(c.Usages, row), was, *freshUsage(row))
		}
	}
	return out
}
