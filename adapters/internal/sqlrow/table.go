package sqlrow

import (
	"slices"
	"strings"
)

// Set is the tables of one package; it is in all of their names.
type Set string

// Table is a table with its columns, in the order in which rows are written and read. The default of a column is its type's zero.
type Table struct {
	Set     Set
	Name    string // in the set
	Columns []Column
	Keys    int // so many of the columns, from the first on, tell rows apart
	Fixed   int // so many behind the keys never change
	// Single: an UPDATE is of one row, because the first key alone has too many.
	Single bool
	// Scope is a key behind the first one that is the same in all rows of a step. 0: there is none.
	Scope int
	// Guard is a column behind the keys that every change of a row gives another number: an UPDATE is of the row as it was read. 0: there is none.
	Guard int
	// Made are columns by which another process may have made the same row meanwhile: an INSERT leaves that one as it is.
	Made []string
}

// Table returns a table of the set.
func (s Set) Table(name string, keys, fixed int, columns ...[]Column) *Table {
	return &Table{Set: s, Name: name, Keys: keys, Fixed: fixed, Columns: slices.Concat(columns...)}
}

// OneByOne sets Single.
func (t *Table) OneByOne() *Table {
	t.Single = true
	return t
}

// Within sets Scope.
func (t *Table) Within(column string) *Table {
	t.Scope = t.index(column)
	return t
}

// Guarded sets Guard.
func (t *Table) Guarded(column string) *Table {
	t.Guard = t.index(column)
	return t
}

func (t *Table) index(column string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == column })
}

// UnlessMade sets Made.
func (t *Table) UnlessMade(columns ...string) *Table {
	t.Made = columns
	return t
}

// Pick lists the columns with these indexes.
func (t *Table) Pick(indexes []int) []Column {
	list := make([]Column, len(indexes))
	for i, at := range indexes {
		list[i] = t.Columns[at]
	}
	return list
}

// Column is a column with its type in Postgres.
type Column struct{ Name, Type string }

// Ints are columns of numbers, Strings, Bools and Bytes of the other types.
func Ints(names ...string) []Column    { return typed("bigint", names) }
func Strings(names ...string) []Column { return typed("text", names) }
func Bools(names ...string) []Column   { return typed("boolean", names) }
func Bytes(names ...string) []Column   { return typed("bytea", names) }

func typed(kind string, names []string) []Column {
	list := make([]Column, len(names))
	for i, n := range names {
		list[i] = Column{n, kind}
	}
	return list
}

// List is the columns of a table behind a name.
func (t *Table) List(behind string) string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = behind + "." + quoted(c.Name)
	}
	return strings.Join(names, ", ")
}

// ListOrNone is List for the right side of a LEFT JOIN, without the first column: zero values stand for a row that is not there.
func (t *Table) ListOrNone(behind string) string {
	names := make([]string, len(t.Columns)-1)
	for i, c := range t.Columns[1:] {
		none := "0"
		if c.Type == "text" {
			none = "''"
		}
		names[i] = "coalesce(" + behind + "." + quoted(c.Name) + ", " + none + ")"
	}
	return strings.Join(names, ", ")
}

func quoted(name string) string { return `"` + name + `"` }
