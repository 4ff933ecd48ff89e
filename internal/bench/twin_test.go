package bench_test

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stint-go/stint/internal/bench"
	"github.com/stint-go/stint/internal/testdb"
)

var tables = []string{"ledger", "account", "limit", "period", "hold", "line", "owner", "usage", "entry", "posting"}

// rows is every row of the tables, with instants as "t" and ids as the order in which they come up.
func rows(t *testing.T, query func(table string) (columns []string, rows [][]any)) []string {
	t.Helper()
	ids := map[string]string{}
	id := func(id string) string {
		if _, ok := ids[id]; !ok {
			ids[id] = fmt.Sprint("#", len(ids))
		}
		return ids[id]
	}
	number := regexp.MustCompile(`[0-9]+`)
	var out []string
	for _, table := range tables {
		columns, rows := query(table)
		for _, row := range rows {
			line := table
			for i, c := range columns {
				value := fmt.Sprint(row[i])
				switch {
				case row[i] == nil:
				case c == "postings":
					value = "see posting"
				case c == "owners", c == "accounts", c == "periods":
					value = number.ReplaceAllStringFunc(value, id)
				case strings.HasSuffix(c, "id"):
					value = id(table[:1] + value)
				case strings.HasSuffix(c, "_us") && c != "ttl_us" && value != "0":
					value = "t"
				}
				line += fmt.Sprintf(" %s=%s", c, value)
			}
			out = append(out, line)
		}
	}
	return out
}

func pairs(t *testing.T, s bench.Subject) {
	t.Helper()
	for i := range 3 {
		if err := s.Pair(t.Context(), fmt.Sprint("pair-", i), bench.Accounts(2)[i%2:i%2+1]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSQLiteTwin_WritesTheRowsOfTheLibrary(t *testing.T) {
	t.Parallel()
	run := func(twin bool) []string {
		lib, err := bench.OpenSQLite(t.Context(), filepath.Join(t.TempDir(), "file"), bench.Accounts(2)[:1])
		if err == nil {
			err = oneMore(t.Context(), lib)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer lib.Close()
		if twin {
			tw, err := bench.NewSQLiteTwin(t.Context(), lib.DB)
			if err != nil {
				t.Fatal(err)
			}
			pairs(t, tw)
			if err := tw.Close(); err != nil {
				t.Error(err)
			}
		} else {
			pairs(t, lib)
		}
		return rows(t, func(table string) (columns []string, list [][]any) {
			r, err := lib.DB.Query("SELECT * FROM stint_spend_" + table + " ORDER BY 1, 2, 3")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			columns, _ = r.Columns()
			for r.Next() {
				row := make([]any, len(columns))
				into := make([]any, len(columns))
				for i := range row {
					into[i] = &row[i]
				}
				if err := r.Scan(into...); err != nil {
					t.Fatal(err)
				}
				list = append(list, row)
			}
			return columns, list
		})
	}
	if diff := cmp.Diff(run(false), run(true)); diff != "" {
		t.Error(diff)
	}
}

// oneMore makes the rows of a second account, in an order that does not depend on the scheduler.
func oneMore(ctx context.Context, led interface {
	bench.Subject
	Add(context.Context, ...string) error
}) error {
	more := bench.Accounts(2)[1:]
	if err := led.Add(ctx, more...); err != nil {
		return err
	}
	return bench.Touch(ctx, led, more)
}

func TestPostgresTwins_WriteTheRowsOfTheLibrary(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	run := func(schema string, twin func(*bench.PostgresTwin) bench.Subject) []string {
		lib, err := bench.OpenPostgres(t.Context(), dsn, schema, bench.Accounts(2)[:1])
		if err == nil {
			err = oneMore(t.Context(), lib)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer lib.Close()
		if twin != nil {
			tw, err := bench.NewPostgresTwin(t.Context(), dsn, schema, 2)
			if err != nil {
				t.Fatal(err)
			}
			defer tw.Close()
			pairs(t, twin(tw))
		} else {
			pairs(t, lib)
		}
		return rows(t, func(table string) (columns []string, list [][]any) {
			r, err := lib.Pool.Query(t.Context(), fmt.Sprintf("SELECT * FROM %q.spend_%s ORDER BY 1, 2, 3", schema, table))
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for _, f := range r.FieldDescriptions() {
				columns = append(columns, f.Name)
			}
			for r.Next() {
				row, err := r.Values()
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, row)
			}
			return columns, list
		})
	}
	want := run("library", nil)
	for name, twin := range map[string]func(*bench.PostgresTwin) bench.Subject{
		"FOR UPDATE":    func(p *bench.PostgresTwin) bench.Subject { return bench.NewForUpdate(p) },
		"one statement": func(p *bench.PostgresTwin) bench.Subject { return bench.NewOneStatement(p) },
	} {
		if diff := cmp.Diff(want, run(name, twin)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
