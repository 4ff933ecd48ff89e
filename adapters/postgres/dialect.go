package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stint-go/stint/adapters/internal/spendsql"
)

func dialectOf(schema string) *spendsql.Dialect {
	d := &spendsql.Dialect{
		Name:   func(table string) string { return pgx.Identifier{schema, "spend_" + table}.Sanitize() },
		Param:  "$",
		In:     func(param string) string { return "= ANY(" + param + ")" },
		Any:    func(query string) string { return "= ANY(ARRAY(" + query + "))" },
		Each:   func(param, kind string) string { return fmt.Sprintf("unnest(%s::%s[]) AS l(value)", param, kind) },
		Lock:   "FOR UPDATE OF a",
		Now:    "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		Shared: true,
		List:   func(list any) any { return list },
		// Only = is sure to be looked up in an index behind another column. A plan that is made while a table is empty may compare the
		// values of a list with all rows that the index has for the columns before; a LIMIT keeps it from doing so here.
		Usages: "unnest($2::text[]) AS l (id) CROSS JOIN LATERAL (SELECT * FROM {usage} WHERE ledger_id = $1 AND hold_id = 0 AND id = l.id LIMIT 1) AS u",
		UsagesOf: "unnest($2::text[], $3::text[]) AS l (hold, id) CROSS JOIN LATERAL (SELECT * FROM {usage} WHERE ledger_id = $1 AND " +
			"hold_id = (SELECT h.id FROM {hold} h WHERE h.ledger_id = $1 AND h.key = l.hold) AND id = l.id LIMIT 1) AS u",
		// The sum leaves one index to choose from, that of live members.
		Members: "{owner} o WHERE o.account_id + 0 = ANY($1) AND o.live AND o.split_group <> '' AND o.split_group = ANY($2)",
	}
	inserts, updates := new(spendsql.Texts), new(spendsql.Texts)
	d.Insert = func(t *spendsql.Table, columns []int, rows [][]any) []spendsql.Stmt {
		return statements(inserts, t, columns, rows, insertOne(d), insertMany(d))
	}
	d.Update = func(t *spendsql.Table, columns []int, rows [][]any) []spendsql.Stmt {
		many := updateMany(d)
		if t.Name == "usage" { // more keys than a list finds by index
			many = nil
		}
		return statements(updates, t, columns, rows, d.UpdateText, many)
	}
	return d
}

type build = func(t *spendsql.Table, columns []int) string

// statements writes all rows with one statement, but where one for each is better: a single row needs no arrays, which are slower.
func statements(texts *spendsql.Texts, t *spendsql.Table, columns []int, rows [][]any, one, many build) (list []spendsql.Stmt) {
	if len(rows) == 1 || many == nil {
		text := texts.Of(t, columns, 1, func() string { return one(t, columns) })
		for _, row := range rows {
			list = append(list, spendsql.Stmt{SQL: text, Args: row})
		}
		return list
	}
	text := texts.Of(t, columns, 2, func() string { return many(t, columns) })
	return []spendsql.Stmt{{SQL: text, Args: arrays(t.Pick(columns), rows)}}
}

func insertOne(d *spendsql.Dialect) build {
	return func(t *spendsql.Table, columns []int) string {
		list := make([]string, len(columns))
		for i := range columns {
			list[i] = fmt.Sprint("$", i+1)
		}
		return d.InsertText(t, columns) + " VALUES (" + strings.Join(list, ", ") + ")" + unlessMade(t)
	}
}

func insertMany(d *spendsql.Dialect) build {
	return func(t *spendsql.Table, columns []int) string {
		list := make([]string, len(columns))
		for i, c := range t.Pick(columns) {
			list[i] = fmt.Sprintf("$%d::%s[]", i+1, c.Type)
		}
		return d.InsertText(t, columns) + " SELECT * FROM unnest(" + strings.Join(list, ", ") + ")" + unlessMade(t)
	}
}

// unlessMade is for accounts that another process may make at the same time.
func unlessMade(t *spendsql.Table) string {
	if t.Name == "account" {
		return " ON CONFLICT (name, ledger_id) DO NOTHING"
	}
	return ""
}

// updateMany sets the columns of many rows from arrays. The keys are compared with their array too, so that no plan can
// read the whole table for the join.
func updateMany(d *spendsql.Dialect) build {
	return func(t *spendsql.Table, columns []int) string {
		var set, where, names, lists []string
		for i, c := range t.Pick(columns) {
			column := pgx.Identifier{c.Name}.Sanitize()
			names, lists = append(names, column), append(lists, fmt.Sprintf("$%d::%s[]", i+1, c.Type))
			switch {
			case i == 1 && t.Name == "owner": // its columns are few for each hold
				where = append(where, fmt.Sprintf("t.%s = v.%[1]s", column))
			case i < t.Keys:
				where = append(where, fmt.Sprintf("t.%s = ANY($%d) AND t.%[1]s = v.%[1]s", column, i+1))
			default:
				set = append(set, column+" = v."+column)
			}
		}
		return fmt.Sprintf("UPDATE %s AS t SET %s FROM unnest(%s) AS v (%s) WHERE %s", d.Name(t.Name), strings.Join(set, ", "),
			strings.Join(lists, ", "), strings.Join(names, ", "), strings.Join(where, " AND "))
	}
}

// arrays is rows as an array for each column.
func arrays(columns []spendsql.Column, rows [][]any) []any {
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
