package combine_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-go/stint/internal/combine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = 10 * time.Second

// command counts how often it ran.
type command struct {
	id   int
	runs atomic.Int32
}

// stage is a lane whose batches end when the test says so. It lives in a synctest bubble: each of its methods returns
// when every goroutine is at rest, so that tests may read all fields.
type stage struct {
	lane    *combine.Lane[*command]
	callers []*caller
	batches [][]int           // the ids of every batch that began
	running context.Context   // of the batch that runs; nil for none
	end     chan func() error // ends the batch that runs
}

func newStage(max int) *stage {
	s := &stage{end: make(chan func() error)}
	s.lane = combine.New(max, limit, s.run)
	return s
}

func (s *stage) run(ctx context.Context, batch []*command) error {
	ids := make([]int, len(batch))
	for i, c := range batch {
		c.runs.Add(1)
		ids[i] = c.id
	}
	s.batches = append(s.batches, ids)
	s.running = ctx
	defer func() { s.running = nil }()
	if end := <-s.end; end != nil {
		return end()
	}
	return nil
}

// caller is one call of Do and what became of it.
type caller struct {
	command
	cancel   context.CancelFunc
	returned bool
	err      error // of Do
	panicked any
}

// do calls Do and keeps what comes back, if need be a panic.
func (c *caller) do(ctx context.Context, lane *combine.Lane[*command]) {
	defer func() {
		c.panicked = recover()
		c.returned = true
	}()
	c.err = lane.Do(ctx, &c.command)
}

// told names what the caller knows of its command.
func (c *caller) told() string {
	ended := errors.Is(c.err, context.Canceled) || errors.Is(c.err, context.DeadlineExceeded)
	switch {
	case c.panicked != nil:
		return "panic"
	case c.err == nil:
		return "ok"
	case c.err == errStore:
		return "failed"
	case c.err == combine.ErrPanicked:
		return "panicked"
	case errors.Is(c.err, combine.ErrNotStarted) && ended:
		return "not started"
	case errors.Is(c.err, combine.ErrStarted) && ended:
		return "started"
	}
	return c.err.Error()
}

// call starts a caller; its id is its place in s.callers.
func (s *stage) call(ctx context.Context) *caller {
	c := &caller{command: command{id: len(s.callers)}, cancel: func() {}}
	s.callers = append(s.callers, c)
	go c.do(ctx, s.lane)
	synctest.Wait()
	return c
}

// calls starts n callers that the test can cancel.
func (s *stage) calls(n int) {
	for range n {
		ctx, cancel := context.WithCancel(context.Background())
		s.call(ctx).cancel = cancel
	}
}

func (s *stage) cancel(c *caller) {
	c.cancel()
	synctest.Wait()
}

// finish ends the running batch with end, in the leader's goroutine; nil is success.
func (s *stage) finish(end func() error) {
	s.end <- end
	synctest.Wait()
}

// close lets every caller go.
func (s *stage) close() {
	close(s.end)
	for _, c := range s.callers {
		c.cancel()
	}
	synctest.Wait()
}

// The ways in which a batch ends.
var errStore = errors.New("store")

func fails() error  { return errStore }
func panics() error { panic(errStore) }
func exits() error  { runtime.Goexit(); return nil }

func inBubble(t *testing.T, max int, test func(t *testing.T, s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(max)
		defer s.close()
		test(t, s)
	})
}

// mustReturn fails unless c came back with an error that is all of want; no want is success.
func mustReturn(t *testing.T, c *caller, want ...error) {
	t.Helper()
	if !c.returned {
		t.Fatalf("caller %d has not returned, want %v", c.id, want)
	}
	if len(want) == 0 && c.err != nil {
		t.Fatalf("caller %d: got %v, want success", c.id, c.err)
	}
	for _, w := range want {
		if !errors.Is(c.err, w) {
			t.Fatalf("caller %d: got %v, want %v", c.id, c.err, w)
		}
	}
}

func mustRun(t *testing.T, c *caller, want int32) {
	t.Helper()
	if got := c.runs.Load(); got != want {
		t.Fatalf("command %d ran %d times, want %d", c.id, got, want)
	}
}

func mustWait(t *testing.T, c *caller) {
	t.Helper()
	if c.returned {
		t.Fatalf("caller %d returned %v, want it to wait", c.id, c.err)
	}
}
