package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	if got := median([]float64{9, 2, 4}); got != 4 {
		t.Errorf("odd: %v", got)
	}
	if got := median([]float64{3, 100, 9, 1}); got != 6 {
		t.Errorf("even: %v", got)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	costs := func(cost int64) prepare {
		return func(context.Context, int) (trial, error) {
			return trial{measure: func(_ context.Context, turn int) (int64, error) {
				if turn == 3 {
					return 1_000_000, nil // noise
				}
				return cost, nil
			}}, nil
		}
	}
	for _, test := range []struct {
		per    int64
		skip   error
		want   string
		status int
	}{
		{2, nil, "M1 ratio 4.5 floor 5 target 1 ok\nX1 ratio 4.5 floor 5 target 1 ok\nwide ratio 0.222\n", within},
		{1, nil, "M1 ratio 9 floor 5 target 1 MISSED\nX1 ratio 9 floor 5 target 1 MISSED\nwide ratio 0.111\n", missed},
		{2, fmt.Errorf("%w: no luck", errSkipped), "M1 ratio 4.5 floor 5 target 1 ok\nX1 ratio 4.5 floor 5 target 1 ok\nwide skipped: no luck\n", skipped},
		{1, errSkipped, "M1 ratio 9 floor 5 target 1 MISSED\nX1 ratio 9 floor 5 target 1 MISSED\nwide skipped\n", missed},
		{2, io.EOF, "", failed},
	} {
		var out strings.Builder
		wide := versus(costs(test.per), costs(9), turns)
		if test.skip != nil {
			wide = func(context.Context) ([]float64, error) { return nil, test.skip }
		}
		list := []figure{
			{names: "M1 X1", measure: versus(costs(9), costs(test.per), turns), bar: atMost(5, 1)},
			{names: "wide", measure: wide},
		}
		status, err := run(t.Context(), list, 2, &out, io.Discard)
		if out.String() != test.want || status != test.status || (err != nil) != (status == failed) {
			t.Errorf("run = %v, %v, %q; want %v, %q", status, err, out.String(), test.status, test.want)
		}
	}
}

func TestVersus_ClosesBoth(t *testing.T) {
	t.Parallel()
	closed := 0
	side := func(prepared, measured error) prepare {
		return func(context.Context, int) (trial, error) {
			return trial{
				func(context.Context, int) (int64, error) { return 1, measured },
				func() error { closed++; return nil },
			}, prepared
		}
	}
	for name, test := range map[string]struct{ subject, per prepare }{
		"well":                 {side(nil, nil), side(nil, nil)},
		"not measured":         {side(nil, nil), side(nil, io.EOF)},
		"the second not ready": {side(nil, nil), side(io.EOF, nil)},
	} {
		closed = 0
		if _, err := versus(test.subject, test.per, 1)(t.Context()); (err == nil) != (name == "well") || closed != 2 {
			t.Errorf("%s: %v, %d closed", name, err, closed)
		}
	}
}

func TestRun_Rounds(t *testing.T) {
	t.Parallel()
	n := 0
	count := func(context.Context) ([]float64, error) { n++; return []float64{1}, nil }
	if _, err := run(t.Context(), []figure{{names: "G1", measure: count, rounds: 2}}, 5, io.Discard, io.Discard); err != nil || n != 2 {
		t.Errorf("measured %d times, %v", n, err)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		bar   *bar
		ratio float64
		want  string
		ok    bool
	}{
		{atMost(40, 12), 23.14, "ratio 23.1 floor 40 target 12 ok", true},
		{atMost(40, 12), 40, "ratio 40 floor 40 target 12 ok", true},
		{atMost(1.5, 1.1), 1.5001, "ratio 1.5 floor 1.5 target 1.1 MISSED", false},
		{atMost(0.3, 0.15), 0.0711, "ratio 0.0711 floor 0.3 target 0.15 ok", true},
		{atMost(40, 12), 1234.5, "ratio 1230 floor 40 target 12 MISSED", false},
		{atLeast(8, 18), 19.23, "ratio 19.2 floor 8 target 18 ok", true},
		{atLeast(8, 18), 8, "ratio 8 floor 8 target 18 ok", true},
		{atLeast(0.7, 0.9), 0.6999, "ratio 0.7 floor 0.7 target 0.9 MISSED", false},
		{atMost(0, 0), 0, "ratio 0 floor 0 target 0 ok", true},
		{atMost(0, 0), 1, "ratio 1 floor 0 target 0 MISSED", false},
		{nil, 99, "ratio 99", true},
	} {
		if got, ok := test.bar.verdict(test.ratio); got != test.want || ok != test.ok {
			t.Errorf("verdict(%v) = %q, %v; want %q, %v", test.ratio, got, ok, test.want, test.ok)
		}
	}
}
