package memory

import "sort"

// list is a long append-only list. It grows by chunks: nothing is ever copied to make room.
type list[T any] struct {
	chunks  [][]T
	dropped int // in the first chunk
}

const chunk = 512

func (l *list[T]) append(v T) {
	last := len(l.chunks) - 1
	if last < 0 || len(l.chunks[last]) == chunk {
		l.chunks = append(l.chunks, make([]T, 0, chunk))
		last++
	}
	l.chunks[last] = append(l.chunks[last], v)
}

func (l *list[T]) len() int {
	if len(l.chunks) == 0 {
		return 0
	}
	last := len(l.chunks) - 1
	return last*chunk + len(l.chunks[last]) - l.dropped
}

func (l *list[T]) at(i int) *T {
	i += l.dropped
	return &l.chunks[i/chunk][i%chunk]
}

// copy returns the elements from the i-th to before the j-th.
func (l *list[T]) copy(i, j int) []T {
	out := make([]T, 0, max(0, j-i))
	for ; i < j; i++ {
		out = append(out, *l.at(i))
	}
	return out
}

// search returns the first index for which f is true, where it is false before and true after.
func (l *list[T]) search(f func(*T) bool) int {
	return sort.Search(l.len(), func(i int) bool { return f(l.at(i)) })
}

// drop forgets the first n.
func (l *list[T]) drop(n int) {
	var none T
	for i := range n {
		*l.at(i) = none
	}
	l.dropped += n
	l.chunks = l.chunks[l.dropped/chunk:]
	l.dropped %= chunk
}

// filter keeps only the elements that f wants, in order.
func (l *list[T]) filter(f func(*T) bool) {
	var kept list[T]
	for i := range l.len() {
		if v := l.at(i); f(v) {
			kept.append(*v)
		}
	}
	*l = kept
}
