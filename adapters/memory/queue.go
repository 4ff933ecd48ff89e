package memory

// queue holds things by a time, the earliest first, and by a key where times are equal. Each thing remembers its place, so
// that it can be moved and removed: a heap.
type queue[T any] struct {
	items []item[T]
	front *queue[int] // scratch of before
}

type item[T any] struct {
	at    int64
	key   int64
	value T
	place *int // where the thing remembers its place; nil: nowhere
}

func (a *item[T]) before(b *item[T]) bool { return a.at < b.at || a.at == b.at && a.key < b.key }

func (q *queue[T]) len() int { return len(q.items) }

func (q *queue[T]) push(at, key int64, value T, place *int) {
	q.items = append(q.items, item[T]{})
	q.up(len(q.items)-1, item[T]{at, key, value, place})
}

// move gives the thing at a place another time.
func (q *queue[T]) move(i int, at int64) {
	moved := q.items[i]
	moved.at = at
	q.fix(i, moved)
}

func (q *queue[T]) remove(i int) {
	end := len(q.items) - 1
	last := q.items[end]
	q.items[end] = item[T]{}
	q.items = q.items[:end]
	if i < end {
		q.fix(i, last)
	}
}

// fix puts a thing near i, where there is a gap.
func (q *queue[T]) fix(i int, it item[T]) {
	if i > 0 && it.before(&q.items[(i-1)/2]) {
		q.up(i, it)
		return
	}
	for {
		child := 2*i + 1
		if child >= len(q.items) {
			break
		}
		if right := child + 1; right < len(q.items) && q.items[right].before(&q.items[child]) {
			child = right
		}
		if !q.items[child].before(&it) {
			break
		}
		q.set(i, q.items[child])
		i = child
	}
	q.set(i, it)
}

func (q *queue[T]) up(i int, it item[T]) {
	for i > 0 && it.before(&q.items[(i-1)/2]) {
		q.set(i, q.items[(i-1)/2])
		i = (i - 1) / 2
	}
	q.set(i, it)
}

func (q *queue[T]) set(i int, it item[T]) {
	q.items[i] = it
	if it.place != nil {
		*it.place = i
	}
}

// before hands out at most n things with a time before limit, in order. It looks at no more than twice as many.
func (q *queue[T]) before(limit int64, n int, f func(T)) {
	if len(q.items) == 0 || q.items[0].at >= limit || n <= 0 {
		return
	}
	if q.front == nil {
		q.front = &queue[int]{}
	}
	q.look(0, limit)
	for ; n > 0 && q.front.len() > 0; n-- {
		i := q.front.items[0].value
		q.front.remove(0)
		f(q.items[i].value)
		q.look(2*i+1, limit)
		q.look(2*i+2, limit)
	}
	q.front.items = q.front.items[:0]
}

func (q *queue[T]) look(i int, limit int64) {
	if i < len(q.items) && q.items[i].at < limit {
		q.front.push(q.items[i].at, q.items[i].key, i, nil)
	}
}

// first returns the earliest item, or nil.
func (q *queue[T]) first() *item[T] {
	if len(q.items) == 0 {
		return nil
	}
	return &q.items[0]
}
