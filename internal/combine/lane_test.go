package combine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"

	"github.com/stint-go/stint/internal/combine"
)

func TestDo_LoneCallerRunsAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, 512, func(t *testing.T, s *stage) {
		c := s.call(t.Context())
		mustRun(t, c, 1)
		mustWait(t, c)
		s.finish(nil)
		mustReturn(t, c)
	})
}

func TestDo_ReturnsTheErrorOfRunAsItIs(t *testing.T) {
	t.Parallel()
	inBubble(t, 512, func(t *testing.T, s *stage) {
		s.calls(4)
		s.finish(fails)
		s.finish(fails) // the batch of the other three
		for _, c := range s.callers {
			if mustReturn(t, c, errStore); c.err != errStore {
				t.Fatalf("caller %d: got %v, want it not wrapped", c.id, c.err)
			}
		}
		s.calls(1)
		s.finish(nil)
		mustReturn(t, s.callers[4])
	})
}

func TestR71_OrderOfArrivalAndLargestBatch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		max  int
		want [][]int
	}{
		{1, [][]int{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}},
		{3, [][]int{{0}, {1, 2, 3}, {4, 5, 6}, {7}}},
		{7, [][]int{{0}, {1, 2, 3, 4, 5, 6, 7}}},
		{512, [][]int{{0}, {1, 2, 3, 4, 5, 6, 7}}},
	} {
		t.Run(fmt.Sprint(test.max), func(t *testing.T) {
			t.Parallel()
			inBubble(t, test.max, func(t *testing.T, s *stage) {
				s.calls(8)
				for range test.want {
					s.finish(nil)
				}
				if diff := cmp.Diff(test.want, s.batches); diff != "" {
					t.Fatal(diff)
				}
				for _, c := range s.callers {
					mustReturn(t, c)
				}
			})
		})
	}
}

// A leader serves its own batch only; whoever came in the meantime is served by the first of them.
func TestDo_LeaderHandsOn(t *testing.T) {
	t.Parallel()
	inBubble(t, 512, func(t *testing.T, s *stage) {
		s.calls(3)
		s.finish(nil)
		mustReturn(t, s.callers[0])
		mustWait(t, s.callers[1])
		s.finish(panics)
		if s.callers[1].panicked == nil {
			t.Fatal("the first waiter did not run the second batch")
		}
		s.calls(1)
		s.finish(nil)
		mustReturn(t, s.callers[3])
	})
}

func TestDo_ContextEndedAtEntry(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("busy=%t", busy), func(t *testing.T) {
			t.Parallel()
			inBubble(t, 512, func(t *testing.T, s *stage) {
				if busy {
					s.calls(1)
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				late := lateContext{ctx, cancel, make(chan struct{})}
				defer close(late.hold)
				mustReturn(t, s.call(late), combine.ErrNotStarted, context.Canceled) // without a place in the queue
				if busy {
					s.finish(nil)
				}
				mustRun(t, s.callers[len(s.callers)-1], 0)
			})
		})
	}
}

func TestT108_ContextEndsWhileQueued(t *testing.T) {
	t.Parallel()
	for _, gone := range [][]int{
		{1}, {2}, {3}, {4},
		{1, 2}, {2, 1}, {2, 3}, {3, 2}, {4, 3}, {1, 4}, {4, 1},
		{1, 2, 3, 4}, {4, 3, 2, 1}, {2, 4, 1, 3},
	} {
		t.Run(fmt.Sprint(gone), func(t *testing.T) {
			t.Parallel()
			inBubble(t, 512, func(t *testing.T, s *stage) {
				s.calls(5)
				for _, id := range gone {
					s.cancel(s.callers[id])
					mustReturn(t, s.callers[id], combine.ErrNotStarted, context.Canceled)
				}
				s.calls(1) // a place in the queue after a gap
				s.finish(nil)
				s.finish(nil)
				var stayed []int
				for _, c := range s.callers[1:] {
					if slices.Contains(gone, c.id) {
						mustRun(t, c, 0)
						continue
					}
					stayed = append(stayed, c.id)
					mustReturn(t, c)
				}
				if diff := cmp.Diff([][]int{{0}, stayed}, s.batches); diff != "" {
					t.Fatal(diff)
				}
			})
		})
	}
}

func TestT108_ContextEndsWhileItsBatchRuns(t *testing.T) {
	t.Parallel()
	inBubble(t, 512, func(t *testing.T, s *stage) {
		s.calls(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		timed := s.call(ctx)
		s.calls(1)
		s.finish(nil)

		time.Sleep(time.Second)
		synctest.Wait()
		mustReturn(t, timed, combine.ErrStarted, context.DeadlineExceeded)
		mustRun(t, timed, 1)

		leader, follower := s.callers[1], s.callers[3]
		s.cancel(leader)
		mustWait(t, leader)
		s.finish(nil)
		mustReturn(t, leader)
		mustReturn(t, follower)
		mustRun(t, timed, 1)
	})
}

// A place in the queue that its leader can still touch is not given to anybody else.
func TestDo_AbandonedCallIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	for range 50 {
		inBubble(t, 512, func(t *testing.T, s *stage) {
			s.calls(3)
			s.finish(nil)
			s.cancel(s.callers[2])
			mustReturn(t, s.callers[2], combine.ErrStarted)
			s.calls(2)
			s.finish(nil)
			for _, c := range s.callers[3:] {
				mustWait(t, c)
				mustRun(t, c, 1)
			}
			s.finish(fails)
			for _, c := range s.callers[3:] {
				mustReturn(t, c, errStore)
			}
		})
	}
}

// lateContext holds up its caller between entering the queue and waiting, and has ended when it lets go.
type lateContext struct {
	context.Context
	end  context.CancelFunc
	hold chan struct{}
}

func (c lateContext) Done() <-chan struct{} {
	<-c.hold
	c.end()
	return c.Context.Done()
}

// callLate queues a caller that begins to wait at resume: at one glance it then finds its context ended, and whatever
// the test has done to it until then.
func (s *stage) callLate(ctx context.Context) (c *caller, resume func()) {
	ctx, cancel := context.WithCancel(ctx)
	late := lateContext{ctx, cancel, make(chan struct{})}
	return s.call(late), func() { close(late.hold); synctest.Wait() }
}

// Which of two ready events a select takes is a matter of chance; the outcome must not be.
const tosses = 40

func TestDo_LeadAndEndOfContextAtOnce(t *testing.T) {
	t.Parallel()
	for range tosses {
		inBubble(t, 512, func(t *testing.T, s *stage) {
			s.calls(1)
			late, resume := s.callLate(t.Context())
			s.calls(1)
			s.finish(nil) // hands on to late
			resume()
			mustReturn(t, late, combine.ErrNotStarted, context.Canceled)
			s.finish(nil)
			mustReturn(t, s.callers[2])
			mustRun(t, late, 0)
		})
	}
}

func TestDo_LeadAndEndOfContextAtOnce_NobodyElse(t *testing.T) {
	t.Parallel()
	for range tosses {
		inBubble(t, 512, func(t *testing.T, s *stage) {
			s.calls(1)
			late, resume := s.callLate(t.Context())
			s.finish(nil)
			resume()
			mustReturn(t, late, combine.ErrNotStarted, context.Canceled)
			s.calls(1)
			s.finish(nil)
			mustReturn(t, s.callers[2])
		})
	}
}

func TestT108_ContextEndsAfterCommit(t *testing.T) {
	t.Parallel()
	for range tosses {
		inBubble(t, 512, func(t *testing.T, s *stage) {
			s.calls(2)
			late, resume := s.callLate(t.Context())
			s.finish(nil)
			s.finish(nil) // the batch of 1 and late
			resume()
			mustReturn(t, late)
			mustRun(t, late, 1)
		})
	}
}

func TestDo_RunDoesNotReturn(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		end  func() error
		want any
	}{
		{"panic", panics, errStore},
		{"Goexit", exits, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, 3, func(t *testing.T, s *stage) {
				s.calls(7)
				s.finish(test.end) // a leader alone
				if s.callers[0].panicked != test.want || !s.callers[0].returned {
					t.Fatalf("the leader's goroutine got panic %v, want %v", s.callers[0].panicked, test.want)
				}
				s.finish(test.end) // a leader with followers
				if s.callers[1].panicked != test.want || !s.callers[1].returned {
					t.Fatalf("the leader's goroutine got panic %v, want %v", s.callers[1].panicked, test.want)
				}
				mustReturn(t, s.callers[2], combine.ErrPanicked)
				mustReturn(t, s.callers[3], combine.ErrPanicked)
				s.finish(nil)
				for _, c := range s.callers[4:] {
					mustReturn(t, c)
				}
				for _, c := range s.callers {
					mustRun(t, c, 1)
				}
			})
		})
	}
}

// When its batches wait for something, callers who come again at once share every batch, not every second one.
func TestDo_GathersCallersWhoComeAgain(t *testing.T) {
	t.Parallel()
	const callers, each = 8, 100
	synctest.Test(t, func(t *testing.T) {
		batches := 0
		lane := combine.New(512, limit, func(ctx context.Context, batch []int) error {
			batches++
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
			return nil
		})
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range each {
					if err := lane.Do(t.Context(), i); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if perBatch := callers * each / batches; perBatch < callers*3/4 {
			t.Errorf("%d commands per batch of %d callers", perBatch, callers)
		}
	})
}

// A lane at rest holds on to no command, whatever became of it.
func TestLane_KeepsNoCommand(t *testing.T) {
	t.Parallel()
	inBubble(t, 512, func(t *testing.T, s *stage) {
		s.calls(5)
		s.cancel(s.callers[1])
		s.finish(nil)
		s.cancel(s.callers[4])
		s.finish(nil)
		var commands []weak.Pointer[caller]
		for _, c := range s.callers {
			commands = append(commands, weak.Make(c))
		}
		s.callers = nil
		runtime.GC()
		for id, c := range commands {
			if c.Value() != nil {
				t.Errorf("command %d is still reachable", id)
			}
		}
		runtime.KeepAlive(s.lane)
	})
}

func TestDo_LoneCallerAllocatesNothing(t *testing.T) {
	lane := combine.New(512, limit, func(context.Context, []*command) error { return nil })
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	c := new(command)
	allocs := testing.AllocsPerRun(1000, func() {
		if err := lane.Do(ctx, c); err != nil {
			t.Error(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations per call", allocs)
	}
}

// Neither the lane nor a context derived from that of a batch starts a goroutine. There are many of them, because
// goroutines of other tests may end meanwhile.
func TestDo_StartsNoGoroutine(t *testing.T) {
	const many = 100
	before := runtime.NumGoroutine()
	for range many {
		var now int
		lane := combine.New(512, limit, func(ctx context.Context, batch []int) error {
			for range many {
				_, cancel := context.WithCancel(ctx)
				defer cancel()
			}
			now = runtime.NumGoroutine()
			return nil
		})
		if err := lane.Do(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if now > before+many/2 {
			t.Fatalf("%d goroutines, %d before", now, before)
		}
	}
}

func TestNew_RefusesNonsense(t *testing.T) {
	t.Parallel()
	run := func(context.Context, []int) error { return nil }
	for name, build := range map[string]func(){
		"max":   func() { combine.New(0, limit, run) },
		"limit": func() { combine.New(1, 0, run) },
		"run":   func() { combine.New[int](1, limit, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			build()
		})
	}
}

func TestErrors_AreApart(t *testing.T) {
	t.Parallel()
	all := []error{combine.ErrNotStarted, combine.ErrStarted, combine.ErrPanicked}
	for i, a := range all {
		for j, b := range all {
			if errors.Is(a, b) != (i == j) {
				t.Errorf("errors.Is(%v, %v)", a, b)
			}
		}
	}
}

// The timer of a call that was used again belongs to its new caller: the old one, who leads in the meantime, must not
// stop it.
func TestDoWithin_TimerOfACallThatIsUsedAgain(t *testing.T) {
	t.Parallel()
	const rounds = 20 // a pool may hand out a fresh call instead, and with the race detector often does
	for range rounds {
		inBubble(t, 1, func(t *testing.T, s *stage) {
			within := func() *caller {
				c := &caller{command: command{id: len(s.callers)}, cancel: func() {}}
				s.callers = append(s.callers, c)
				go func() {
					c.err = s.lane.DoWithin(5*time.Second, &c.command)
					c.returned = true
				}()
				synctest.Wait()
				return c
			}
			s.calls(1)
			within()
			s.calls(1)
			s.finish(nil) // the second leads now, its call is free
			last := within()
			s.finish(nil) // the second returns, the third leads
			time.Sleep(5 * time.Second)
			synctest.Wait()
			mustReturn(t, last, combine.ErrNotStarted, context.DeadlineExceeded)
		})
	}
}
