package memory

import (
	"cmp"
	"container/heap"
	"slices"
)

// queue holds things that end at a time, the first to end on top. order tells which of two that end at the same time is first.
type queue[T any] struct {
	places []*place[T]
	order  func(a, b T) int
}

// place is a thing in a queue. The time is the one that the queue has heard of: a step may have changed several things, and the
// queue must hear of them one at a time.
type place[T any] struct {
	of   T
	ends int64
	at   int // in the queue
}

func (q *queue[T]) add(p *place[T], ends int64) {
	p.ends = ends
	heap.Push((*byEnd[T])(q), p)
}

func (q *queue[T]) move(p *place[T], ends int64) {
	p.ends = ends
	heap.Fix((*byEnd[T])(q), p.at)
}

func (q *queue[T]) remove(p *place[T]) { heap.Remove((*byEnd[T])(q), p.at) }

// all yields everything, in no order.
func (q *queue[T]) all(yield func(T) bool) {
	for _, p := range q.places {
		if !yield(p.of) {
			return
		}
	}
}

// before lists at most n things that end before now, in order, and tells whether there are more.
func (q *queue[T]) before(now int64, n int) ([]T, bool) {
	if len(q.places) == 0 || q.places[0].ends >= now {
		return nil, false
	}
	var due []*place[T]
	var walk func(i int)
	walk = func(i int) {
		if i >= len(q.places) || q.places[i].ends >= now {
			return
		}
		due = append(due, q.places[i])
		walk(2*i + 1)
		walk(2*i + 2)
	}
	walk(0)
	slices.SortFunc(due, q.compare)
	list := make([]T, min(n, len(due)))
	for i := range list {
		list[i] = due[i].of
	}
	return list, len(due) > n
}

func (q *queue[T]) compare(a, b *place[T]) int {
	if a.ends != b.ends {
		return cmp.Compare(a.ends, b.ends)
	}
	return q.order(a.of, b.of)
}

// byEnd is what package heap needs of a queue.
type byEnd[T any] queue[T]

func (q *byEnd[T]) Len() int           { return len(q.places) }
func (q *byEnd[T]) Less(i, j int) bool { return (*queue[T])(q).compare(q.places[i], q.places[j]) < 0 }

func (q *byEnd[T]) Swap(i, j int) {
	q.places[i], q.places[j] = q.places[j], q.places[i]
	q.places[i].at, q.places[j].at = i, j
}

func (q *byEnd[T]) Push(x any) {
	p := x.(*place[T])
	p.at = len(q.places)
	q.places = append(q.places, p)
}

func (q *byEnd[T]) Pop() any {
	last := q.places[len(q.places)-1]
	q.places[len(q.places)-1] = nil
	q.places = q.places[:len(q.places)-1]
	return last
}
