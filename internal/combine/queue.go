package combine

import "time"

// call is the place of one caller who waits. It is used again once neither the caller nor a leader can touch it.
type call[C any] struct {
	command C
	bound   bound
	timer   *time.Timer  // of a caller without a context; stopped
	wake    chan outcome // with room for the one outcome, so that a leader never waits for a caller

	queued     bool // in the queue: not yet in a batch, not yet leader
	prev, next *call[C]
}

func newCall[C any]() *call[C] {
	w := &call[C]{wake: make(chan outcome, 1), timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	return w
}

// outcome ends the wait of a call: its batch is done, or it is the leader now.
type outcome struct {
	lead bool
	err  error
}

// queue holds calls in order of arrival. Every method takes constant time: a crowd that gives up at once stays cheap.
type queue[C any] struct{ first, last *call[C] }

func (q *queue[C]) push(w *call[C]) {
	w.queued, w.prev = true, q.last
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
}

// pop returns nil when nobody waits.
func (q *queue[C]) pop() *call[C] {
	w := q.first
	if w != nil {
		q.remove(w)
	}
	return w
}

func (q *queue[C]) remove(w *call[C]) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.queued, w.prev, w.next = false, nil, nil
}
