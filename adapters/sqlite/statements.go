package sqlite

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/stint-go/stint/adapters/internal/spendsql"
	"github.com/stint-go/stint/adapters/internal/sqlrow"
)

// dialect is SQLite's. A list is a JSON array in a text.
var dialect = sqlrow.Dialect{
	Name: tableName,
	// With the plus SQLite does not look at a value to plan with it, after which it would plan anew for every value.
	Param:   "+?",
	In:      func(param string) string { return "IN (SELECT value FROM json_each(" + param + "))" },
	InBytes: func(param string) string { return "IN (SELECT unhex(value) FROM json_each(" + param + "))" },
	Any:     func(query string) string { return "IN (" + query + ")" },
	Each:    func(param, _ string) string { return "json_each(" + param + ") AS l" },
	List: func(list any) any {
		if bytes, ok := list.([][]byte); ok {
			digits := make([]string, len(bytes))
			for i, b := range bytes {
				digits[i] = hex.EncodeToString(b)
			}
			list = digits
		}
		text, err := json.Marshal(list)
		if err != nil {
			panic(fmt.Sprintf("a list of %T: %v", list, err)) // numbers and valid text always go
		}
		if string(text) == "null" {
			return "[]"
		}
		return string(text)
	},
	Insert: insert,
	Update: update,
}

// sizes are how many rows are inserted by one statement: the fewer sizes, the fewer statements to prepare.
var sizes = []int{16, 4, 1}

var inserts, updates sqlrow.Texts

func insert(t *sqlrow.Table, columns []int, rows [][]any) (list []sqlrow.Stmt) {
	for _, size := range sizes {
		if len(rows) < size {
			continue
		}
		text := inserts.Of(t, columns, size, func() string { return insertText(t, columns, size) })
		for ; len(rows) >= size; rows = rows[size:] {
			list = append(list, sqlrow.Stmt{SQL: text, Args: concat(rows[:size])})
		}
	}
	return list
}

// spelling spells columns; the dialect itself needs it.
var spelling = sqlrow.Dialect{Name: tableName, Param: "?"}

// insertText inserts OR FAIL: after a failure the whole step is taken back, so that SQLite need not keep what it takes to take back
// the statement alone.
func insertText(t *sqlrow.Table, columns []int, rows int) string {
	row := "(?" + strings.Repeat(", ?", len(columns)-1) + ")"
	return strings.Replace(spelling.InsertText(t, columns), "INSERT", "INSERT OR FAIL", 1) + " VALUES " + row + strings.Repeat(", "+row, rows-1)
}

func concat(rows [][]any) []any {
	list := make([]any, 0, len(rows)*len(rows[0]))
	for _, row := range rows {
		list = append(list, row...)
	}
	return list
}

func update(t *sqlrow.Table, columns []int, rows [][]any) []sqlrow.Stmt {
	text := updates.Of(t, columns, 1, func() string { return spelling.UpdateText(t, columns) })
	list := make([]sqlrow.Stmt, len(rows))
	for i, row := range rows {
		list[i] = sqlrow.Stmt{SQL: text, Args: row}
		if t.Guard > 0 {
			list[i].Rows = 1
		}
	}
	return list
}

// reserveWriter writes nothing, but takes the place of the one writer at once; without it a transaction that has read
// may be refused it later.
const reserveWriter = "DELETE FROM stint_migration WHERE 0"

func lastID(t *sqlrow.Table) string {
	return "SELECT coalesce(max(id), 0) FROM " + tableName(t.Set, t.Name)
}

func tableName(set sqlrow.Set, table string) string { return "stint_" + string(set) + "_" + table }

// texts lists the statements that are sure to be used; others depend on what changes.
func (d *DB) texts() []string {
	list := []string{reserveWriter, dataVersion, schemaVersion, totalChanges}
	return append(list, textsOf(d.spend.queries.Texts(), spendsql.Tables())...)
}

// textsOf lists those of a store: its queries, and what all of its tables need.
func textsOf(queries []string, tables []*sqlrow.Table) []string {
	list := slices.Clone(queries)
	for _, t := range tables {
		all := make([]int, len(t.Columns))
		for i := range all {
			all[i] = i
		}
		list = append(list, insertText(t, all, 1))
		if t.Keys == 1 {
			list = append(list, lastID(t))
		}
	}
	return list
}
