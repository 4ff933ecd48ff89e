package main

import (
	"context"
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
			return func(_ context.Context, turn int) (int64, error) {
				if turn == 3 {
					return 1_000_000, nil // noise
				}
				return cost, nil
			}, nil
		}
	}
	for _, test := range []struct {
		per    int64
		want   string
		missed bool
	}{
		{2, "M1 ratio 4.5 floor 5 target 1 ok\nwide ratio 0.222\n", false},
		{1, "M1 ratio 9 floor 5 target 1 MISSED\nwide ratio 0.111\n", true},
	} {
		var out strings.Builder
		list := []figure{{"M1", costs(9), costs(test.per), 5, 1}, {name: "wide", subject: costs(test.per), per: costs(9)}}
		missed, err := run(t.Context(), list, 2, &out, io.Discard)
		if out.String() != test.want || missed != test.missed || err != nil {
			t.Errorf("run = %v, %v, %q; want %v, %q", missed, err, out.String(), test.missed, test.want)
		}
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		figure figure
		ratio  float64
		want   string
		ok     bool
	}{
		{figure{name: "M1", floor: 40, target: 12}, 23.14, "M1 ratio 23.1 floor 40 target 12 ok", true},
		{figure{name: "M1", floor: 40, target: 12}, 40, "M1 ratio 40 floor 40 target 12 ok", true},
		{figure{name: "G1", floor: 1.5, target: 1.1}, 1.5001, "G1 ratio 1.5 floor 1.5 target 1.1 MISSED", false},
		{figure{name: "X2", floor: 0.3, target: 0.15}, 0.0711, "X2 ratio 0.0711 floor 0.3 target 0.15 ok", true},
		{figure{name: "M1", floor: 40, target: 12}, 1234.5, "M1 ratio 1230 floor 40 target 12 MISSED", false},
		{figure{name: "wide"}, 99, "wide ratio 99", true},
	} {
		if got, ok := test.figure.verdict(test.ratio); got != test.want || ok != test.ok {
			t.Errorf("verdict(%v) = %q, %v; want %q, %v", test.ratio, got, ok, test.want, test.ok)
		}
	}
}
