package sqlrow

import "fmt"

// Writer collects what a step stores. The zero value is empty.
//
// A row is a list of fields, which point at its columns in their order: *int64, *int, *uint8, *bool, *string, *[]byte, and
// **int64 where a column may be NULL.
type Writer struct {
	inserts, updates map[*Table]*rows
	others           []Stmt
}

// rows are rows of one table, as fields, and which columns have to be written for any of them.
type rows struct {
	fields [][]any
	guards []any // of updates of a table with a guard: what it was
	needed []bool
}

// of returns the rows of a table.
func of(all *map[*Table]*rows, t *Table) *rows {
	r := (*all)[t]
	if r == nil {
		if *all == nil {
			*all = map[*Table]*rows{}
		}
		r = &rows{needed: make([]bool, len(t.Columns))}
		(*all)[t] = r
	}
	return r
}

// pick takes what is needed from the rows.
func (r *rows) pick(t *Table) (columns []int, values [][]any) {
	for i, needed := range r.needed {
		if needed || i < t.Keys {
			columns = append(columns, i)
		}
	}
	for n, fields := range r.fields {
		row := make([]any, len(columns), len(columns)+1)
		for i, at := range columns {
			row[i] = Value(fields[at])
		}
		if len(r.guards) > 0 {
			row = append(row, r.guards[n])
		}
		values = append(values, row)
	}
	return columns, values
}

// Insert adds a new row. Columns that are zero are left out: that is their default.
func (w *Writer) Insert(t *Table, fields []any) {
	r := of(&w.inserts, t)
	r.fields = append(r.fields, fields)
	for i, f := range fields {
		r.needed[i] = r.needed[i] || !zero(f)
	}
}

// Update changes a row from what is stored, unless that is the same.
func (w *Writer) Update(t *Table, stored, fields []any) {
	first := true
	for i := t.Keys + t.Fixed; i < len(fields); i++ {
		if same(stored[i], fields[i]) {
			continue
		}
		r := of(&w.updates, t)
		r.needed[i] = true
		if first {
			r.fields, first = append(r.fields, fields), false
			if t.Guard > 0 {
				r.guards = append(r.guards, Value(stored[t.Guard]))
			}
		}
	}
}

// Then adds a statement that comes behind all inserts and updates.
func (w *Writer) Then(st Stmt) { w.others = append(w.others, st) }

// List makes the statements: all inserts go before all updates, each in the order of the tables, in which a table comes before
// those that point at it.
func (w *Writer) List(d *Dialect, tables ...*Table) []Stmt {
	return append(append(w.Inserts(d, tables...), w.Updates(d, tables...)...), w.others...)
}

// Inserts makes the statements for new rows.
func (w *Writer) Inserts(d *Dialect, tables ...*Table) (list []Stmt) {
	for _, t := range tables {
		if r := w.inserts[t]; r != nil {
			columns, values := r.pick(t)
			list = append(list, d.Insert(t, columns, values)...)
		}
	}
	return list
}

// Updates makes the statements for changed rows.
func (w *Writer) Updates(d *Dialect, tables ...*Table) (list []Stmt) {
	for _, t := range tables {
		if r := w.updates[t]; r != nil {
			columns, values := r.pick(t)
			list = append(list, d.Update(t, columns, values)...)
		}
	}
	return list
}

// Value is what a field points at, as an int64, a bool, a string, a []byte or nil.
func Value(field any) any {
	switch p := field.(type) {
	case *int64:
		return *p
	case *string:
		return *p
	case *bool:
		return *p
	case *uint8:
		return int64(*p)
	case *int:
		return int64(*p)
	case *[]byte:
		return *p
	case **int64:
		if *p == nil {
			return nil
		}
		return **p
	}
	panic(fmt.Sprintf("a field of type %T", field))
}

// zero tells whether a field points at the default of its column.
func zero(field any) bool {
	switch p := field.(type) {
	case *int64:
		return *p == 0
	case *string:
		return *p == ""
	case *bool:
		return !*p
	case *uint8:
		return *p == 0
	case *int:
		return *p == 0
	case **int64:
		return *p == nil
	}
	return false
}

// same tells whether two fields of a column point at equal values.
func same(a, b any) bool {
	switch a := a.(type) {
	case *int64:
		return *a == *b.(*int64)
	case *string:
		return *a == *b.(*string)
	case *[]byte:
		return string(*a) == string(*b.(*[]byte))
	}
	return Value(a) == Value(b)
}
