package sqlite

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stint-go/stint/adapters/internal/spendsql"
)

// dialect is SQLite's. A list is a JSON array in a text.
var dialect = spendsql.Dialect{
	Name: tableName,
	// With the plus SQLite does not look at a value to plan with it, after which it would plan anew for every value.
	Param: "+?",
	In:    func(param string) string { return "IN (SELECT value FROM json_each(" + param + "))" },
	Each:  func(param, _ string) string { return "json_each(" + param + ") AS l" },
	List: func(list any) any {
		text, err := json.Marshal(list)
		if err != nil {
			panic(fmt.Sprintf("a list of %T: %v", list, err)) // numbers and valid text always go
		}
		if string(text) == "null" {
			return "[]"
		}
		return string(text)
	},
	Insert: func(t *spendsql.Table, rows [][]any) []spendsql.Stmt { return each(inserts[t], rows) },
	Update: func(t *spendsql.Table, rows [][]any) []spendsql.Stmt { return each(updates[t], rows) },
}

// each runs a statement with every row.
func each(text string, rows [][]any) []spendsql.Stmt {
	list := make([]spendsql.Stmt, len(rows))
	for i, row := range rows {
		list[i] = spendsql.Stmt{SQL: text, Args: row}
	}
	return list
}

// reserveWriter writes nothing, but takes the place of the one writer at once; without it a transaction that has read
// may be refused it later.
const reserveWriter = "DELETE FROM stint_spend_ledger WHERE 0"

var inserts, updates, lastIDs = tableTexts()

func tableTexts() (inserts, updates, lastIDs map[*spendsql.Table]string) {
	inserts, updates, lastIDs = map[*spendsql.Table]string{}, map[*spendsql.Table]string{}, map[*spendsql.Table]string{}
	spelling := spendsql.Dialect{Name: tableName, Param: "?"} // the dialect itself needs these texts
	for _, t := range spendsql.Tables() {
		inserts[t] = "INSERT INTO " + tableName(t.Name) + " VALUES (?" + strings.Repeat(", ?", len(t.Columns)-1) + ")"
		if len(t.Changing()) > t.Keys {
			updates[t] = spelling.UpdateText(t)
		}
		if t.Keys == 1 {
			lastIDs[t] = "SELECT coalesce(max(id), 0) FROM " + tableName(t.Name)
		}
	}
	return inserts, updates, lastIDs
}

func tableName(table string) string { return "stint_spend_" + table }

// texts lists every statement of a step.
func texts(q *spendsql.Queries) []string {
	list := append(q.Texts(), reserveWriter)
	for _, texts := range []map[*spendsql.Table]string{inserts, updates, lastIDs} {
		list = slices.AppendSeq(list, maps.Values(texts))
	}
	return list
}
