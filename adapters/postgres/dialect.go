package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stint-go/stint/adapters/internal/spendsql"
)

func dialectOf(schema string) *spendsql.Dialect {
	d := &spendsql.Dialect{
		Name:  func(table string) string { return pgx.Identifier{schema, "spend_" + table}.Sanitize() },
		Param: "$",
		In:    func(param string) string { return "= ANY(" + param + ")" },
		Any:   func(query string) string { return "= ANY(ARRAY(" + query + "))" },
		// An array's text differs from JSON in its brackets alone.
		Elements: func(column string) string {
			return "unnest(translate(" + column + ", '[]', '{}')::bigint[]) AS e(value)"
		},
		Each:   func(param, kind string) string { return fmt.Sprintf("unnest(%s::%s[]) AS l(value)", param, kind) },
		Lock:   "FOR UPDATE OF a",
		Now:    "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
		Shared: true,
		List:   func(list any) any { return list },
	}
	inserts := map[*spendsql.Table]string{}
	for _, t := range spendsql.Tables() {
		columns := make([]string, len(t.Columns))
		for i, c := range t.Columns {
			columns[i] = fmt.Sprintf("$%d::%s[]", i+1, c.Type)
		}
		inserts[t] = d.InsertText(t) + " SELECT * FROM unnest(" + strings.Join(columns, ", ") + ")"
		if t.Name == "account" {
			inserts[t] += " ON CONFLICT (name, ledger_id) DO NOTHING"
		}
	}
	updates := new(spendsql.Texts)
	d.Update = func(t *spendsql.Table, columns []int, rows [][]any) []spendsql.Stmt {
		list := t.Pick(columns)
		text := updates.Of(t, columns, func() string { return updateText(d.Name(t.Name), t, list) })
		return []spendsql.Stmt{{SQL: text, Args: arrays(list, rows)}}
	}
	d.Insert = func(t *spendsql.Table, rows [][]any) []spendsql.Stmt {
		return []spendsql.Stmt{{SQL: inserts[t], Args: arrays(t.Columns, rows)}}
	}
	return d
}

// updateText sets the columns of many rows from arrays. The keys are compared with their array too, so that no plan can
// read the whole table for the join.
func updateText(name string, t *spendsql.Table, columns []spendsql.Column) string {
	var set, where, names, lists []string
	for i, c := range columns {
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
	return fmt.Sprintf("UPDATE %s AS t SET %s FROM unnest(%s) AS v (%s) WHERE %s", name, strings.Join(set, ", "),
		strings.Join(lists, ", "), strings.Join(names, ", "), strings.Join(where, " AND "))
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
