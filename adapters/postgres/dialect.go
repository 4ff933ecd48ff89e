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
	d.Insert = func(t *spendsql.Table, rows [][]any) []spendsql.Stmt {
		args := make([]any, len(t.Columns))
		for i, c := range t.Columns {
			args[i] = column(c.Type, rows, i)
		}
		return []spendsql.Stmt{{SQL: inserts[t], Args: args}}
	}
	return d
}

// column is the i-th value of every row, as an array.
func column(kind string, rows [][]any, i int) any {
	switch kind {
	case "bigint":
		return collect(rows, i, func(v reflect.Value) *int64 {
			if !v.IsValid() {
				return nil
			}
			n := int64(0)
			if v.CanUint() {
				n = int64(v.Uint())
			} else {
				n = v.Int()
			}
			return &n
		})
	case "boolean":
		return collect(rows, i, reflect.Value.Bool)
	case "bytea":
		return collect(rows, i, reflect.Value.Bytes)
	}
	return collect(rows, i, text)
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
