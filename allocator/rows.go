package allocator

import (
	"cmp"
	"slices"
)

// rows are the rows of one kind in a Set. Most steps have few, which are looked through; a large batch uses a map.
type rows[K cmp.Ordered, R any] struct {
	list    []entry[K, R]
	many    map[K]int // positions, once there are more than few
	changed int
	order   []*entry[K, R] // scratch
	written []Change[R]    // scratch of changes
	spare   []*R           // rows that nobody has any more
}

// entry is a row as it was loaded and as it is. A nil old is a new row, a nil row one that is deleted.
type entry[K cmp.Ordered, R any] struct {
	key      K
	old, row *R
	fresh    bool // row is this step's own
	raw      *Raw // what the row replaces
}

const few = 8

func (x *rows[K, R]) find(key K) *entry[K, R] {
	if len(x.list) <= few {
		for i := range x.list {
			if x.list[i].key == key {
				return &x.list[i]
			}
		}
		return nil
	}
	if i, ok := x.many[key]; ok {
		return &x.list[i]
	}
	return nil
}

func (x *rows[K, R]) get(key K) *R {
	if e := x.find(key); e != nil {
		return e.row
	}
	return nil
}

func (x *rows[K, R]) add(key K, row *R) {
	if x.find(key) == nil {
		x.push(entry[K, R]{key: key, old: row, row: row})
	}
}

func (x *rows[K, R]) push(e entry[K, R]) {
	x.list = append(x.list, e)
	switch n := len(x.list); {
	case n == few+1:
		if x.many == nil {
			x.many = map[K]int{}
		}
		for i := range x.list {
			x.many[x.list[i].key] = i
		}
	case n > few:
		x.many[e.key] = n - 1
	}
}

// edit returns the row of a key to be changed: a copy, at its first change in a step.
func (x *rows[K, R]) edit(key K) *R {
	e := x.find(key)
	if !e.fresh {
		x.changed++
		row := x.fresh()
		*row = *e.row
		e.row, e.fresh = row, true
	}
	return e.row
}

func (x *rows[K, R]) fresh() *R {
	if n := len(x.spare); n > 0 {
		row := x.spare[n-1]
		x.spare = x.spare[:n-1]
		return row
	}
	return new(R)
}

// recycle keeps the rows that were changed, to be used again.
func (x *rows[K, R]) recycle() {
	for i := range x.list {
		if e := &x.list[i]; e.fresh && e.old != nil && len(x.spare) < cap(x.list) {
			x.spare = append(x.spare, e.old)
		}
	}
}

// insert adds a new row. Where there was one of this key that is deleted, it takes its place.
func (x *rows[K, R]) insert(key K, row *R, raw *Raw) {
	x.changed++
	if e := x.find(key); e != nil {
		e.row, e.fresh, e.raw = row, true, raw
		return
	}
	x.push(entry[K, R]{key: key, row: row, fresh: true, raw: raw})
}

// remove deletes a row; raw stands for one that can't be read.
func (x *rows[K, R]) remove(key K, raw *Raw) {
	x.changed++
	if e := x.find(key); e != nil {
		e.row, e.fresh, e.raw = nil, true, raw
		return
	}
	x.push(entry[K, R]{key: key, fresh: true, raw: raw})
}

// changes lists what differs from what was loaded.
func (x *rows[K, R]) changes() []Change[R] {
	if x.changed == 0 {
		return nil
	}
	list := x.written[:0]
	for i := range x.list {
		if e := &x.list[i]; e.fresh && (e.old != nil || e.row != nil || e.raw != nil) {
			list = append(list, Change[R]{Old: e.old, New: e.row, Raw: e.raw})
		}
	}
	x.written = list
	return list
}

// sorted lists the rows by key.
func (x *rows[K, R]) sorted() []*R {
	var keys []K
	for i := range x.list {
		if x.list[i].row != nil {
			keys = append(keys, x.list[i].key)
		}
	}
	slices.Sort(keys)
	list := make([]*R, len(keys))
	for i, k := range keys {
		list[i] = x.get(k)
	}
	return list
}

func (x *rows[K, R]) reset() {
	clear(x.list)
	clear(x.written)
	x.list, x.written, x.changed = x.list[:0], x.written[:0], 0
	if len(x.many) > 0 {
		clear(x.many)
	}
}
