package combine_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stint-go/stint/internal/combine"
	"github.com/stint-go/stint/internal/fault"
)

func TestOutcome(t *testing.T) {
	t.Parallel()
	own := errors.New("the store's own")
	for _, c := range []struct {
		err, cause error
		is, not    []error
	}{
		{combine.ErrStarted, context.Canceled, []error{fault.ErrUncertain, context.Canceled}, []error{fault.ErrUnavailable}},
		{combine.ErrNotStarted, context.Canceled, []error{context.Canceled}, []error{fault.ErrUncertain}},
		{combine.ErrPanicked, nil, []error{fault.ErrUncertain, combine.ErrPanicked}, []error{fault.ErrUnavailable}},
		{fmt.Errorf("%w: down", fault.ErrUnavailable), nil, []error{fault.ErrUnavailable}, []error{fault.ErrUncertain}},
		{own, nil, []error{fault.ErrUncertain, own}, nil},
	} {
		err := combine.Outcome(c.err, c.cause)
		for _, want := range c.is {
			if !errors.Is(err, want) {
				t.Errorf("%v: %v, want %v", c.err, err, want)
			}
		}
		for _, not := range c.not {
			if errors.Is(err, not) {
				t.Errorf("%v: %v, which is %v", c.err, err, not)
			}
		}
	}
	if err := combine.Outcome(nil, context.Canceled); err != nil {
		t.Error(err)
	}
}

// A command that a leader may still have is not used again.
func TestSpare_Done(t *testing.T) {
	t.Parallel()
	type command struct{ taken bool }
	var s combine.Spare[command]
	for range 100 { // the pool may forget some, under the race detector above all
		c := &command{taken: true}
		s.Done(c, fmt.Errorf("%w: left", fault.ErrUncertain))
		if s.Get().taken {
			t.Fatal("used again")
		}
	}
}
