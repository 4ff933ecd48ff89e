package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
)

func dialectOf(schema string) *sqlrow.Dialect {
	d := &sqlrow.Dialect{
		Name: func(set sqlrow.Set, table string) string {
			return pgx.Identifier{schema, string(set) + "_" + table}.Sanitize()
		},
		Param:   "$",
		In:      func(param string) string { return "= ANY(" + param + ")" },
		InBytes: func(param string) string { return "= ANY(" + param + ")" },
		Any:     func(query string) string { return "= ANY(ARRAY(" + query + "))" },
		Each:    func(param, kind string) string { return fmt.Sprintf("unnest(%s::%s[]) AS l(value)", param, kind) },
		Lock:    "FOR UPDATE OF a",
		Now:     "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		Shared:  true,
		List:    func(list any) any { return list },
	}
	inserted, updated := new(sqlrow.Texts), new(sqlrow.Texts)
	d.Insert = func(t *sqlrow.Table, columns []int, rows [][]any) []sqlrow.Stmt {
		return statements(inserted, t, columns, rows, insertOne(d), insertMany(d))
	}
	d.Update = func(t *sqlrow.Table, columns []int, rows [][]any) []sqlrow.Stmt {
		many := updateMany(d)
		if t.Single {
			many = nil
		}
		return updates(updated, t, columns, rows, d.UpdateText, many)
	}
	return d
}

type build = func(t *sqlrow.Table, columns []int) string

// statements writes all rows with one statement, but where one for each is better: a single row needs no arrays, which are slower.
func statements(texts *sqlrow.Texts, t *sqlrow.Table, columns []int, rows [][]any, one, many build) (list []sqlrow.Stmt) {
	if len(rows) == 1 || many == nil {
		text := texts.Of(t, columns, 1, func() string { return one(t, columns) })
		for _, row := range rows {
			list = append(list, sqlrow.Stmt{SQL: text, Args: row})
		}
		return list
	}
	text := texts.Of(t, columns, 2, func() string { return many(t, columns) })
	kinds := t.Pick(columns)
	if len(rows[0]) > len(columns) {
		kinds = append(kinds, t.Columns[t.Guard])
	}
	return []sqlrow.Stmt{{SQL: text, Args: arrays(kinds, rows)}}
}

// updates are the statements that change rows. Those of a table with a guard change all of them, or the step fails.
func updates(texts *sqlrow.Texts, t *sqlrow.Table, columns []int, rows [][]any, one, many build) []sqlrow.Stmt {
	list := statements(texts, t, columns, rows, one, many)
	if t.Scope > 0 && len(list) < len(rows) {
		list[0].Args[t.Scope] = rows[0][t.Scope]
	}
	if t.Guard > 0 {
		for i := range list {
			list[i].Rows = len(rows) / len(list)
		}
	}
	return list
}

func insertOne(d *sqlrow.Dialect) build {
	return func(t *sqlrow.Table, columns []int) string {
		list := make([]string, len(columns))
		for i := range columns {
			list[i] = fmt.Sprint("$", i+1)
		}
		return d.InsertText(t, columns) + " VALUES (" + strings.Join(list, ", ") + ")" + unlessMade(t)
	}
}

func insertMany(d *sqlrow.Dialect) build {
	return func(t *sqlrow.Table, columns []int) string {
		list := make([]string, len(columns))
		for i, c := range t.Pick(columns) {
			list[i] = fmt.Sprintf("$%d::%s[]", i+1, c.Type)
		}
		return d.InsertText(t, columns) + " SELECT * FROM unnest(" + strings.Join(list, ", ") + ")" + unlessMade(t)
	}
}

func unlessMade(t *sqlrow.Table) string {
	if len(t.Made) == 0 {
		return ""
	}
	return " ON CONFLICT (" + strings.Join(t.Made, ", ") + ") DO NOTHING"
}

// updateMany sets the columns of many rows from arrays. The first key is compared with its array too, so that no plan can
// read the whole table for the join.
func updateMany(d *sqlrow.Dialect) build {
	return func(t *sqlrow.Table, columns []int) string {
		var set, where, names, lists []string
		for i, c := range t.Pick(columns) {
			column := pgx.Identifier{c.Name}.Sanitize()
			if i > 0 && i == t.Scope {
				where = append(where, fmt.Sprintf("t.%s = $%d::%s", column, i+1, c.Type))
				continue
			}
			names, lists = append(names, column), append(lists, fmt.Sprintf("$%d::%s[]", i+1, c.Type))
			switch {
			case i == 0:
				where = append(where, fmt.Sprintf("t.%s = ANY($1) AND t.%[1]s = v.%[1]s", column))
			case i < t.Keys: // a first key has few rows
				where = append(where, fmt.Sprintf("t.%s = v.%[1]s", column))
			default:
				set = append(set, column+" = v."+column)
			}
		}
		if t.Guard > 0 {
			guard := t.Columns[t.Guard]
			names, lists = append(names, "was"), append(lists, fmt.Sprintf("$%d::%s[]", len(columns)+1, guard.Type))
			where = append(where, fmt.Sprintf("t.%s = v.was", pgx.Identifier{guard.Name}.Sanitize()))
		}
		return fmt.Sprintf("UPDATE %s AS t SET %s FROM unnest(%s) AS v (%s) WHERE %s", d.Name(t.Set, t.Name), strings.Join(set, ", "),
			strings.Join(lists, ", "), strings.Join(names, ", "), strings.Join(where, " AND "))
	}
}

// arrays is rows as an array for each column.
func arrays(columns []sqlrow.Column, rows [][]any) []any {
	args := make([]any, len(columns))
	for i, c := range columns {
		args[i] = column(c.Type, rows, i)
	}
	return args
}

// column is the i-th value of every row, as an array.
func column(kind string, rows [][]any, i int) any {
	switch kind {
	case "bigint":
		return numbers(rows, i)
	case "boolean":
		return collect[bool](rows, i)
	case "bytea":
		return collect[[]byte](rows, i)
	}
	return collect[string](rows, i)
}

// numbers are without pointers where none is NULL: those are much slower to send.
func numbers(rows [][]any, i int) any {
	for _, row := range rows {
		if row[i] == nil {
			return nullable(rows, i)
		}
	}
	return collect[int64](rows, i)
}

func nullable(rows [][]any, i int) []*int64 {
	out := make([]*int64, len(rows))
	for n, row := range rows {
		if v, ok := row[i].(int64); ok {
			out[n] = &v
		}
	}
	return out
}

func collect[T any](rows [][]any, i int) []T {
	out := make([]T, len(rows))
	for n, row := range rows {
		out[n] = row[i].(T)
	}
	return out
}
