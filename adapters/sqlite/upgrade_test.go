package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/spendlimit"
)

// dumpEnv names a file for a dump in the schema of this release: once, when the release is made, for testdata.
const dumpEnv = "STINT_TEST_DUMP"

// Every release brings the file of every older one up to date. testdata has a dump per schema, with the same rows: on acme with
// 10 USD a day, an open hold of 2, a dispatched one of 3 with 1 recorded, 0.5 settled and 0.25 charged.
func TestC9_Upgrade(t *testing.T) {
	if file := os.Getenv(dumpEnv); file != "" {
		dump(t, file)
	}
	dumps := must1(filepath.Glob("testdata/v*.sql"))(t)
	if len(dumps) == 0 {
		t.Fatal("no dumps")
	}
	onDrivers(t, func(t *testing.T, driver, path string) {
		for i, file := range dumps {
			text := must1(os.ReadFile(file))(t)
			pool := must1(pool(driver, fmt.Sprint(path, i), settings("off")...))(t)
			defer pool.Close()
			must1(pool.ExecContext(t.Context(), string(text)))(t)
			must(t, sqlite.Migrate(t.Context(), pool))
			must(t, sqlite.Migrate(t.Context(), pool)) // and again, which changes nothing
			noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
			db := must1(sqlite.New(t.Context(), pool, &sqlite.Options{Clock: func() time.Time { return noon }}))(t)
			defer db.Close()
			led := must1(spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.USD}))(t)
			check := func(spent, held string) {
				t.Helper()
				for b, err := range led.Balances(t.Context(), "acme", time.Time{}) {
					must(t, err)
					if s, h := spendlimit.USD.Format(b.Spent), spendlimit.USD.Format(b.Held); s != spent || h != held {
						t.Errorf("%s: spent %s, held %s, want %s and %s", file, s, h, spent, held)
					}
				}
				if diffs := must1(led.Verify(t.Context(), "acme"))(t); len(diffs) > 0 {
					t.Errorf("%s: differences %v", file, diffs)
				}
			}
			check("1.75", "4")
			must1(led.Release(t.Context(), "open"))(t)
			must1(led.Settle(t.Context(), "dispatched", spendlimit.Total(spendlimit.USD.MustParse("4"))))(t)
			_, err := led.Settle(t.Context(), "settled", spendlimit.Total(1))
			is(t, err, spendlimit.ErrSettled)
			check("4.75", "0")
		}
	})
}

func dump(t *testing.T, file string) {
	ctx, usd := t.Context(), spendlimit.USD.MustParse
	pool := must1(pool("ncruces", filepath.Join(t.TempDir(), "stint.db"), settings("off")...))(t)
	defer pool.Close()
	must(t, sqlite.Migrate(ctx, pool))
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	db := must1(sqlite.New(ctx, pool, &sqlite.Options{Clock: func() time.Time { return noon }}))(t)
	defer db.Close()
	led := must1(spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.USD}))(t)
	must1(led.SetLimit(ctx, spendlimit.Limit{
		Account: "acme", Name: "day", Kind: spendlimit.Day, Amount: usd("10"), Thresholds: []spendlimit.Threshold{{Percent: 50}},
	}, ""))(t)
	for key, amount := range map[string]string{"open": "2", "dispatched": "3", "settled": "1"} {
		must1(led.Reserve(ctx, spendlimit.Request{Key: key, Accounts: []string{"acme"}, Amount: usd(amount), TTL: time.Hour, Labels: map[string]string{"run": "7"}}))(t)
	}
	must(t, led.Dispatch(ctx, "dispatched"))
	must1(led.Record(ctx, spendlimit.Usage{Hold: "dispatched", ID: "call", Cost: spendlimit.Total(usd("1"))}))(t)
	must1(led.Settle(ctx, "settled", spendlimit.Total(usd("0.5"))))(t)
	must1(led.Charge(ctx, spendlimit.Expense{ID: "bill", Accounts: []string{"acme"}, Cost: spendlimit.Total(usd("0.25"))}))(t)

	var out strings.Builder
	list := func(query string) (texts []string) {
		rows := must1(pool.QueryContext(ctx, query))(t)
		defer rows.Close()
		for rows.Next() {
			var text string
			must(t, rows.Scan(&text))
			texts = append(texts, text)
		}
		must(t, rows.Err())
		return texts
	}
	for _, text := range list("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid") {
		out.WriteString(text + ";\n")
	}
	for _, table := range list("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid") {
		columns := list("SELECT 'quote(\"' || name || '\")' FROM pragma_table_info('" + table + "')")
		for _, row := range list("SELECT concat_ws(', ', " + strings.Join(columns, ", ") + ") FROM " + table) {
			out.WriteString("INSERT INTO " + table + " VALUES (" + row + ");\n")
		}
	}
	must(t, os.WriteFile(file, []byte(out.String()), 0o600))
}
