package spendsql

import (
	"context"
	"fmt"
	"regexp"
	"strings"
)

// Row is a row of a result.
type Row interface{ Scan(into ...any) error }

// Stmt is a statement, with what to do with each row of its result.
type Stmt struct {
	SQL  string
	Args []any
	Each func(Row) error // nil: it has none
}

// Conn is a connection inside a transaction.
type Conn interface {
	// Run runs statements in order, in one round trip where there are any. Each error that it returns is the first one's.
	Run(ctx context.Context, list ...Stmt) error
	// NewIDs returns n ids that no row of the table has or will have.
	NewIDs(ctx context.Context, t *Table, n int) ([]int64, error)
}

// Dialect is what differs in the text of statements.
type Dialect struct {
	Name   func(table string) string       // quoted, in its schema
	Param  string                          // what stands before the number of a parameter
	In     func(param string) string       // a test that a parameter with a list has the value to the left
	Each   func(param, kind string) string // a table of the values of a list, named l with the column value
	Lock   string                          // at the end of a SELECT: locks the rows in the order of the result
	Now    string                          // a SELECT of the time in microseconds; "" where the caller has the clock
	Shared bool                            // others write at the same time: an account is made before it is locked (C3)
	List   func(list any) any              // a []int64 or []string as a parameter
	Insert func(t *Table, rows [][]any) []Stmt
	Update func(t *Table, rows [][]any) []Stmt // rows have the columns of t.Changing
}

// text makes a statement of a template: {hold} is a table, $1 a parameter, @in($1) a test, @each($1, bigint) a table and @lock
// a lock.
func (d *Dialect) text(template string) string {
	s := inMark.ReplaceAllStringFunc(template, func(m string) string { return d.In(inMark.FindStringSubmatch(m)[1]) })
	s = eachMark.ReplaceAllStringFunc(s, func(m string) string {
		part := eachMark.FindStringSubmatch(m)
		return d.Each(part[1], part[2])
	})
	s = strings.ReplaceAll(s, "@lock", d.Lock)
	s = paramMark.ReplaceAllStringFunc(s, func(m string) string { return d.Param + m[1:] })
	// Names come last: one of a schema may have any of these marks in it.
	return tableMark.ReplaceAllStringFunc(s, func(m string) string { return d.Name(m[1 : len(m)-1]) })
}

var (
	tableMark = regexp.MustCompile(`\{[a-z]+\}`)
	inMark    = regexp.MustCompile(`@in\(([^)]*)\)`)
	eachMark  = regexp.MustCompile(`@each\(([^,]*), ([a-z]+)\)`)
	paramMark = regexp.MustCompile(`\$[0-9]`)
)

// list is the columns of a table behind a name.
func (t *Table) list(behind string) string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = behind + "." + quoted(c.Name)
	}
	return strings.Join(names, ", ")
}

func quoted(name string) string { return `"` + name + `"` }

// InsertText is INSERT INTO a table with the columns in their order, up to VALUES or SELECT.
func (d *Dialect) InsertText(t *Table) string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = quoted(c.Name)
	}
	return fmt.Sprintf("INSERT INTO %s (%s)", d.Name(t.Name), strings.Join(names, ", "))
}

// UpdateText sets the columns of one row. The parameters are those of [Table.Changing] in their order.
func (d *Dialect) UpdateText(t *Table) string {
	var set, where []string
	for i, c := range t.Changing() {
		part := fmt.Sprintf("%s = %s%d", quoted(c.Name), d.Param, i+1)
		if i < t.Keys {
			where = append(where, part)
		} else {
			set = append(set, part)
		}
	}
	return fmt.Sprintf("UPDATE %s SET %s WHERE %s", d.Name(t.Name), strings.Join(set, ", "), strings.Join(where, " AND "))
}
