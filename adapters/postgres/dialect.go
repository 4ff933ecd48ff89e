package postgres

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/stint-go/stint/adapters/internal/spendsql"
)

func dialectOf(schema string) *spendsql.Dialect {
	d := &spendsql.Dialect{
		Name:   func(table string) string { return pgx.Identifier{schema, "spend_" + table}.Sanitize() },
		Param:  "$",
		In:     func(param string) string { return "= ANY(" + param + ")" },
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
	updates := map[*spendsql.Table]string{}
	for _, t := range spendsql.Tables() {
		updates[t] = updateText(d.Name(t.Name), t)
	}
	d.Update = func(t *spendsql.Table, rows [][]any) []spendsql.Stmt {
		return []spendsql.Stmt{{SQL: updates[t], Args: arrays(t.Changing(), rows)}}
	}
	d.Insert = func(t *spendsql.Table, rows [][]any) []spendsql.Stmt {
		return []spendsql.Stmt{{SQL: inserts[t], Args: arrays(t.Columns, rows)}}
	}
	return d
}

// updateText sets the columns of many rows from arrays. The keys are compared with their array too, so that no plan can
// read the whole table for the join.
func updateText(name string, t *spendsql.Table) string {
	var set, where, names, lists []string
	for i, c := range t.Changing() {
		column := pgx.Identifier{c.Name}.Sanitize()
		names, lists = append(names, column), append(lists, fmt.Sprintf("$%d::%s[]", i+1, c.Type))
		if i < t.Keys {
			where = append(where, fmt.Sprintf("t.%s = ANY($%d) AND t.%[1]s = v.%[1]s", column, i+1))
		} else {
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
		return collect(rows, i, reflect.Value.Bool)
	case "bytea":
		return collect(rows, i, reflect.Value.Bytes)
	}
	return collect(rows, i, text)
}

// numbers are without pointers where none is NULL: those are much slower to send.
func numbers(rows [][]any, i int) any {
	list, null := make([]int64, len(rows)), false
	for n, row := range rows {
		v := reflect.ValueOf(row[i])
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		switch {
		case !v.IsValid():
			null = true
		case v.CanUint():
			list[n] = int64(v.Uint())
		default:
			list[n] = v.Int()
		}
	}
	if !null {
		return list
	}
	return collect(rows, i, func(v reflect.Value) (n *int64) {
		if v.IsValid() {
			n = new(int64)
			*n = v.Int()
		}
		return n
	})
}

func text(v reflect.Value) string {
	if v.Kind() == reflect.String {
		return v.String()
	}
	s, err := v.Interface().(interface{ Text() (string, error) }).Text()
	if err != nil {
		panic(err)
	}
	return s
}

func collect[T any](rows [][]any, i int, value func(reflect.Value) T) []T {
	out := make([]T, len(rows))
	for n, row := range rows {
		v := reflect.ValueOf(row[i])
		for v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		out[n] = value(v)
	}
	return out
}
