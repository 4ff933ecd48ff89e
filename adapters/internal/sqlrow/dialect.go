package sqlrow

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Dialect is what differs between databases.
type Dialect struct {
	Name    func(set Set, table string) string // quoted, in its schema
	Param   string                             // what stands before the number of a parameter
	In      func(param string) string          // a test that a parameter with a list has the value to the left
	InBytes func(param string) string          // the same for a list of []byte
	Any     func(query string) string          // a test that the query, which depends on nothing, returns the value to the left
	Each    func(param, kind string) string    // a table of the values of a list, named l with the column value
	Lock    string                             // at the end of a SELECT: locks the rows of the table named a in the order of the result
	Now     string                             // a SELECT of the time in microseconds; "" where the caller has the clock
	// Shared says that others write at the same time, and that a round trip is dear: a row is made before it is locked (C3), and what
	// can be named is read in the round trip that locks.
	Shared bool
	List   func(list any) any // a []int64, []string or [][]byte as a parameter
	// Insert and Update write rows, which have some of the columns of t, in their order and with the keys: those that are not
	// zero in all rows, and those that change in any. Values are int64, bool, string, []byte or nil. The rows of an Update of a
	// table with a Guard have one value more, what that was.
	Insert, Update func(t *Table, columns []int, rows [][]any) []Stmt
}

// Stmt is a statement with these arguments; lists among them become parameters.
func (d *Dialect) Stmt(text string, each func(Row) error, args ...any) Stmt {
	for i, a := range args {
		switch a.(type) {
		case []int64, []string, [][]byte:
			args[i] = d.List(a)
		}
	}
	return Stmt{SQL: text, Args: args, Each: each}
}

// Texts keeps statements on some columns of a table. The zero value is empty.
type Texts struct{ known sync.Map }

type textKey struct {
	table   *Table
	columns uint64 // a bit for each; a table has fewer than 64
	rows    int
}

// Of returns what build returned for these columns and so many rows at first.
func (x *Texts) Of(t *Table, columns []int, rows int, build func() string) string {
	key := textKey{table: t, rows: rows}
	for _, at := range columns {
		key.columns |= 1 << at
	}
	if text, ok := x.known.Load(key); ok {
		return text.(string)
	}
	text, _ := x.known.LoadOrStore(key, build())
	return text.(string)
}

// Text makes a statement of a template: {hold} is a table of the set, $1 a parameter, @in($1), @inbytes($1) and @any[query] tests,
// @each($1, bigint) a table, and @lock a lock.
func (d *Dialect) Text(set Set, template string) string {
	s := inBytesMark.ReplaceAllStringFunc(template, func(m string) string { return d.InBytes(inBytesMark.FindStringSubmatch(m)[1]) })
	s = inMark.ReplaceAllStringFunc(s, func(m string) string { return d.In(inMark.FindStringSubmatch(m)[1]) })
	for anyMark.MatchString(s) { // from the inside out
		s = anyMark.ReplaceAllStringFunc(s, func(m string) string { return d.Any(anyMark.FindStringSubmatch(m)[1]) })
	}
	s = eachMark.ReplaceAllStringFunc(s, func(m string) string {
		part := eachMark.FindStringSubmatch(m)
		return d.Each(part[1], part[2])
	})
	s = strings.ReplaceAll(s, "@lock", d.Lock)
	s = paramMark.ReplaceAllStringFunc(s, func(m string) string { return d.Param + m[1:] })
	// Names come last: one of a schema may have any of these marks in it.
	return tableMark.ReplaceAllStringFunc(s, func(m string) string { return d.Name(set, m[1:len(m)-1]) })
}

var (
	tableMark   = regexp.MustCompile(`\{[a-z_]+\}`)
	inBytesMark = regexp.MustCompile(`@inbytes\(([^)]*)\)`)
	inMark      = regexp.MustCompile(`@in\(([^)]*)\)`)
	anyMark     = regexp.MustCompile(`@any\[([^\[\]]*)\]`)
	eachMark    = regexp.MustCompile(`@each\(([^,]*), ([a-z]+)\)`)
	paramMark   = regexp.MustCompile(`\$[0-9]`)
)

// InsertText is INSERT INTO a table with columns, up to VALUES or SELECT.
func (d *Dialect) InsertText(t *Table, columns []int) string {
	names := make([]string, len(columns))
	for i, c := range t.Pick(columns) {
		names[i] = quoted(c.Name)
	}
	return fmt.Sprintf("INSERT INTO %s (%s)", d.Name(t.Set, t.Name), strings.Join(names, ", "))
}

// UpdateText sets columns of one row. The parameters are the columns in this order, the keys first, and then what the guard was.
func (d *Dialect) UpdateText(t *Table, columns []int) string {
	var set, where []string
	for i, c := range t.Pick(columns) {
		part := fmt.Sprintf("%s = %s%d", quoted(c.Name), d.Param, i+1)
		if i < t.Keys {
			where = append(where, part)
		} else {
			set = append(set, part)
		}
	}
	if t.Guard > 0 {
		where = append(where, fmt.Sprintf("%s = %s%d", quoted(t.Columns[t.Guard].Name), d.Param, len(columns)+1))
	}
	return fmt.Sprintf("UPDATE %s SET %s WHERE %s", d.Name(t.Set, t.Name), strings.Join(set, ", "), strings.Join(where, " AND "))
}
