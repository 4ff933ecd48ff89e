package combine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/combine"
)

// solo runs one command in a lane of its own.
func solo(ctx context.Context, run func(ctx context.Context)) error {
	lane := combine.New(1, limit, func(ctx context.Context, _ []int) error {
		run(ctx)
		return nil
	})
	return lane.Do(ctx, 1)
}

func TestR71_DeadlineOfABatch(t *testing.T) {
	t.Parallel()
	const none = time.Duration(0)
	for _, test := range []struct {
		name    string
		callers []time.Duration // their deadlines, from one second before the batch begins
		want    time.Duration   // from the beginning of the batch
	}{
		{"none", []time.Duration{none}, limit},
		{"one, shorter", []time.Duration{3 * time.Second}, 2 * time.Second},
		{"one, longer", []time.Duration{time.Minute}, limit},
		{"the latest is the last", []time.Duration{3 * time.Second, 2 * time.Second, 5 * time.Second}, 4 * time.Second},
		{"the latest is the first", []time.Duration{5 * time.Second, 2 * time.Second, 3 * time.Second}, 4 * time.Second},
		{"the first has none", []time.Duration{none, 2 * time.Second, 3 * time.Second}, limit},
		{"one between has none", []time.Duration{2 * time.Second, none, 3 * time.Second}, limit},
		{"the last has none", []time.Duration{2 * time.Second, 3 * time.Second, none}, limit},
		{"the latest is longer", []time.Duration{3 * time.Second, time.Minute}, limit},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 512, func(t *testing.T, s *stage) {
				s.calls(1)
				for _, d := range test.callers {
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if d != none {
						ctx, cancel = context.WithTimeout(ctx, d)
					}
					defer cancel()
					s.call(ctx)
				}
				time.Sleep(time.Second)
				s.finish(nil)
				begin := time.Now()
				deadline, ok := s.running.Deadline()
				if got := deadline.Sub(begin); !ok || got != test.want {
					t.Fatalf("deadline after %v, want %v", got, test.want)
				}
				<-s.running.Done()
				if got := time.Since(begin); got != test.want {
					t.Fatalf("done after %v, want %v", got, test.want)
				}
				if err := s.running.Err(); err != context.DeadlineExceeded {
					t.Fatalf("got %v", err)
				}
				s.finish(nil)
			})
		})
	}
}

func TestDo_LoneCallerIsNotHeldByADeadStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lane := combine.New(512, limit, func(ctx context.Context, _ []int) error {
			<-ctx.Done()
			return ctx.Err()
		})
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := lane.Do(ctx, 1); err != context.DeadlineExceeded {
			t.Errorf("got %v, want the error of run", err)
		}
		if got := time.Since(begin); got != 50*time.Millisecond {
			t.Errorf("held for %v", got)
		}
	})
}

func TestBatchContext_IsbatchContextFromTheCaller(t *testing.T) {
	t.Parallel()
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, 1))
	err := solo(ctx, func(ctx context.Context) {
		cancel()
		for range 2 { // before and after Done is asked for
			if err := ctx.Err(); err != nil {
				t.Errorf("ended with its caller: %v", err)
			}
			if v := ctx.Value(key{}); v != nil {
				t.Errorf("has the caller's value %v", v)
			}
			ctx.Done()
		}
	})
	if err != nil {
		t.Errorf("a leader whose context ends gets %v, want its true result", err)
	}
}

// A run that asks only for Err, again and again, ends in time too.
func TestBatchContext_ErrWithoutDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		err := solo(t.Context(), func(ctx context.Context) {
			begin := time.Now()
			for ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			if got := time.Since(begin); got != limit+time.Millisecond { // it counts from the second look
				t.Errorf("ended after %v", got)
			}
			if err := ctx.Err(); err != context.DeadlineExceeded {
				t.Errorf("got %v", err)
			}
			<-ctx.Done()
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestBatchContext_EndsWithTheBatch(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(context.Context){
		"never looked at": func(context.Context) {},
		"Err":             func(ctx context.Context) { _ = ctx.Err() },
		"Done":            func(ctx context.Context) { ctx.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var kept context.Context
			if err := solo(t.Context(), func(ctx context.Context) { use(ctx); kept = ctx }); err != nil {
				t.Fatal(err)
			}
			for range 2 { // before and after Done is asked for
				if err := kept.Err(); err != context.Canceled {
					t.Errorf("got %v", err)
				}
				<-kept.Done()
			}
		})
	}
}

func TestBatchContext_DerivedContextEndsWithTheBatch(t *testing.T) {
	t.Parallel()
	var derived context.Context
	var cancel context.CancelFunc
	if err := solo(t.Context(), func(ctx context.Context) { derived, cancel = context.WithCancel(ctx) }); err != nil {
		t.Fatal(err)
	}
	defer cancel()
	<-derived.Done()
	if err := context.Cause(derived); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Each batch starts afresh, whatever the one before did with its context.
func TestBatchContext_EachBatchHasItsOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var kept context.Context
		use := func(context.Context) {}
		lane := combine.New(1, limit, func(ctx context.Context, _ []int) error {
			begin := time.Now()
			if err := ctx.Err(); err != nil {
				t.Errorf("ended at the beginning: %v", err)
			}
			if deadline, _ := ctx.Deadline(); deadline.Sub(begin) != limit {
				t.Errorf("deadline after %v", deadline.Sub(begin))
			}
			use(ctx)
			return nil
		})
		do := func(with func(context.Context)) {
			use = with
			if err := lane.Do(t.Context(), 1); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		do(func(context.Context) {})
		do(func(ctx context.Context) { time.Sleep(2 * limit); _ = ctx.Err() })
		do(func(ctx context.Context) { ctx.Done(); kept = ctx })
		do(func(context.Context) {
			if kept.Err() != context.Canceled {
				t.Error("the context of an earlier batch came to life")
			}
		})
	})
}
