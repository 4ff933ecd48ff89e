package memory

import (
	"cmp"
	"container/heap"
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

// first returns what ends first, or nil.
func (q *queue[T]) first() *place[T] {
	if len(q.places) == 0 {
		return nil
	}
	return q.places[0]
}

// before lists at most n things that end before now, in order, and tells whether there are more. It looks at no more than
// some twice as many, however many there are.
func (q *queue[T]) before(now int64, n int) ([]T, bool) {
	if len(q.places) == 0 || q.places[0].ends >= now {
		return nil, false
	}
	next := due[T]{queue: q, at: []int{0}}
	var list []T
	for len(list) < n && len(next.at) > 0 {
		at := next.at[0]
		list = append(list, q.places[at].of)
		heap.Pop(&next)
		for child := 2*at + 1; child <= 2*at+2; child++ {
			if child < len(q.places) && q.places[child].ends < now {
				heap.Push(&next, child)
			}
		}
	}
	return list, len(next.at) > 0
}

// due is a heap of positions in a queue: of the things that were not looked at yet, those that may be next.
type due[T any] struct {
	queue *queue[T]
	at    []int
}

func (d *due[T]) Len() int { return len(d.at) }
func (d *due[T]) Less(i, j int) bool {
	return d.queue.compare(d.queue.places[d.at[i]], d.queue.places[d.at[j]]) < 0
}
func (d *due[T]) Swap(i, j int) { d.at[i], d.at[j] = d.at[j], d.at[i] }
func (d *due[T]) Push(x any)    { d.at = append(d.at, x.(int)) }

func (d *due[T]) Pop() any {
	last := d.at[len(d.at)-1]
	d.at = d.at[:len(d.at)-1]
	return last
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
