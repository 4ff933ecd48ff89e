package combine

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Lane combines concurrent calls of Do into batches that run one after the other. New is the only way to make one.
type Lane[C any] struct {
	max   int
	limit time.Duration
	run   func(ctx context.Context, batch []C) error
	calls sync.Pool // of *call[C]

	state atomic.Uint32 // whether there is a leader, or a call that was told to lead; nobody is queued otherwise
	mu    sync.Mutex
	queue queue[C]

	// The rest belongs to the leader, who hands it on together with the lead.
	ctx       *batchContext
	batch     []C
	followers []*call[C] // all of the batch but the leader
	gather    bool       // the next batch is worth waiting for company, see lead
}

// The states of a Lane. A caller and a leader who meet nobody come and go without the lock.
const (
	free    uint32 = iota
	led            // by somebody; changes to any other state
	awaited        // led, and somebody may be queued; changes under the lock only
)

// New returns a Lane that calls run with 1 to max commands, in order of arrival, never twice at the same time. It panics
// if max or limit is not positive or run is nil.
//
// The context of a batch is detached from its callers: it has none of their values and does not end when one of them
// goes. It ends limit after run first looked at it, or at the latest of the callers' deadlines if each of them has one
// and that is sooner. run must end soon after its context.
//
// An error of run is the error of every command in the batch. A command that is refused alone carries its own refusal.
// When run returns, ctx and batch are used again: run must keep neither. It must not call Do of its own Lane.
func New[C any](max int, limit time.Duration, run func(ctx context.Context, batch []C) error) *Lane[C] {
	if max < 1 || limit <= 0 || run == nil {
		panic("combine: New needs a positive max, a positive limit and a run")
	}
	return &Lane[C]{
		max:   max,
		limit: limit,
		run:   run,
		calls: sync.Pool{New: func() any { return newCall[C]() }},
		ctx:   new(batchContext),
	}
}

// Do runs c in a batch and returns what run returned for it, as it is. It may be called from many goroutines.
//
// If ctx ends first there are three cases. Before c is in a batch, Do returns at once with an error that wraps
// ErrNotStarted and ctx.Err(). When c is in the batch of another caller, Do returns at once with an error that wraps
// ErrStarted and ctx.Err(); c still belongs to that batch then, so this caller must leave it alone. When the batch is
// this caller's own to run, Do stays until it is done.
//
// A panic of run goes on in the goroutine that runs the batch; the other callers of the batch get ErrPanicked.
func (l *Lane[C]) Do(ctx context.Context, c C) error {
	if err := ctx.Err(); err != nil {
		return notStarted(err)
	}
	b := boundOf(ctx)
	w := l.enter(c, b)
	if w == nil {
		return l.lead(ctx, c, b, false)
	}
	var o outcome
	select {
	case o = <-w.wake:
	case <-ctx.Done():
		return l.leave(ctx, w, b, ctx.Err())
	}
	return l.follow(ctx, w, b, o)
}

// DoWithin is Do for a caller that must not be stopped by its context, but waits for limit at most: the command of a
// caller that is gone. What Do says of the context's end holds for the limit's, as context.DeadlineExceeded.
func (l *Lane[C]) DoWithin(limit time.Duration, c C) error {
	ctx, b := context.Background(), bound{in: limit}
	w := l.enter(c, b)
	if w == nil {
		return l.lead(ctx, c, b, false)
	}
	w.timer.Reset(limit)
	var o outcome
	select {
	case o = <-w.wake:
		w.timer.Stop() // now: follow gives w, and with it the timer, to others
	case <-w.timer.C:
		return l.leave(ctx, w, b, context.DeadlineExceeded)
	}
	return l.follow(ctx, w, b, o)
}

// enter makes the caller the leader, or gives it a place in the queue if there is one already.
func (l *Lane[C]) enter(c C, b bound) *call[C] {
	if l.state.CompareAndSwap(free, led) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.state.Load() != awaited && !l.state.CompareAndSwap(led, awaited) {
		if l.state.CompareAndSwap(free, led) { // the leader has gone
			return nil
		}
	}
	w := l.calls.Get().(*call[C])
	w.command = c
	w.bound = b
	l.queue.push(w)
	return w
}

// leave ends the wait of a caller whose time is over.
func (l *Lane[C]) leave(ctx context.Context, w *call[C], b bound, cause error) error {
	if l.withdraw(w) {
		l.recycle(w)
		return notStarted(cause)
	}
	select {
	case o := <-w.wake: // came in between: a true result says more than ErrStarted, and a lead must be handed on
		if o.lead {
			l.recycle(w)
			l.handOn()
			return notStarted(cause)
		}
		return l.follow(ctx, w, b, o)
	default:
		return started(cause) // a leader still has w, so it is left to the garbage collector
	}
}

// follow takes the outcome of a wait.
func (l *Lane[C]) follow(ctx context.Context, w *call[C], b bound, o outcome) error {
	c := w.command
	l.recycle(w)
	if o.lead {
		return l.lead(ctx, c, b, true)
	}
	return o.err
}

// withdraw takes w out of the queue, or reports that it has left it.
func (l *Lane[C]) withdraw(w *call[C]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !w.queued {
		return false
	}
	l.queue.remove(w)
	return true
}

// recycle is for a call that nobody can wake any more.
func (l *Lane[C]) recycle(w *call[C]) {
	var none C
	w.command = none
	l.calls.Put(w)
}

// lead runs one batch with c at its head. It is called by the leader, who is not the leader any more when it returns.
// Others can be waiting only if the caller has waited too.
//
// If the last batch had followers and waited for something, they are about to come again while this one would leave
// without them; two passes of the scheduler let them join. With 64 callers and a disk flush per batch that makes batches
// of 60 instead of 32. In memory the passes would cost more than they save.
func (l *Lane[C]) lead(ctx context.Context, c C, b bound, waited bool) error {
	if l.gather {
		runtime.Gosched()
		runtime.Gosched()
	}
	if waited || l.gather {
		if err := ctx.Err(); err != nil {
			l.handOn()
			return notStarted(err)
		}
		return l.serve(l.take(c, b))
	}
	l.batch = append(l.batch, c)
	return l.serve(b)
}

// take puts c and the commands that wait into the batch. It returns the bound that lasts longest.
func (l *Lane[C]) take(c C, b bound) bound {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batch = append(l.batch, c)
	for len(l.batch) < l.max {
		w := l.queue.pop()
		if w == nil {
			break
		}
		l.batch = append(l.batch, w.command)
		l.followers = append(l.followers, w)
		b = b.later(w.bound)
	}
	return b
}

// serve runs the batch.
func (l *Lane[C]) serve(b bound) (err error) {
	if !l.ctx.begin(b, l.limit) {
		l.ctx = new(batchContext)
		l.ctx.begin(b, l.limit)
	}
	err = ErrPanicked // stands if run does not return
	defer func() { l.finish(err) }()
	err = l.run(l.ctx, l.batch)
	return err
}

// finish gives the followers their outcome and hands on the lead.
func (l *Lane[C]) finish(err error) {
	waited := l.ctx.end()
	l.gather = waited && len(l.followers) > 0
	for i, w := range l.followers {
		w.wake <- outcome{err: err} // from here on w is its caller's
		l.followers[i] = nil
	}
	var none C
	for i := range l.batch {
		l.batch[i] = none
	}
	l.followers, l.batch = l.followers[:0], l.batch[:0]
	l.handOn()
}

// handOn makes the first in the queue the leader.
func (l *Lane[C]) handOn() {
	if l.state.CompareAndSwap(led, free) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.queue.pop(); w != nil {
		w.wake <- outcome{lead: true}
		return
	}
	l.state.Store(free)
}
