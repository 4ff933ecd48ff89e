package sqlite

import (
	"database/sql"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	ncruces "github.com/ncruces/go-sqlite3/driver"
	_ "modernc.org/sqlite"
)

// No statement reads a whole table, nor all holds of an account, to find some. SQLite makes the same plans whatever is in the tables:
// nobody runs ANALYZE.
func TestPlans_ReadWhatIsNeeded(t *testing.T) {
	all := []string{ // those that are for all of what an account has, or for a page of it
		"SELECT h.owners FROM stint_spend_account", "SELECT o.hold_id FROM stint_spend_owner o WHERE o.account_id = +?1 ORDER BY", "SELECT h.id FROM stint_spend_owner",
		"SELECT h.key", "SELECT DISTINCT o.expires_us",
	}
	parameter := regexp.MustCompile(`\?[1-9]`)
	for driver, open := range map[string]func(string) (*sql.DB, error){
		"ncruces": func(source string) (*sql.DB, error) { return ncruces.Open(source) },
		"modernc": func(source string) (*sql.DB, error) { return sql.Open("sqlite", source) },
	} {
		db, err := open("file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "file")) + "?_pragma=journal_mode(wal)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := Migrate(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		d, err := New(t.Context(), db, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for _, text := range d.spend.queries.Texts() {
			numbers := map[string]bool{}
			var args []any
			for _, p := range parameter.FindAllString(text, -1) {
				if !numbers[p] {
					numbers[p], args = true, append(args, "[]")
				}
			}
			for _, step := range plan(t, db, text, args) {
				whole := strings.HasPrefix(step, "SCAN ") && !strings.Contains(step, " VIRTUAL TABLE ") && step != "SCAN tree"
				most := strings.HasSuffix(step, "(ledger_id=?)") || strings.Contains(step, " o USING PRIMARY KEY (account_id=?)")
				if whole || most && !slices.ContainsFunc(all, func(begin string) bool { return strings.HasPrefix(text, begin) }) {
					t.Errorf("%s: %s\n%s", driver, step, text)
				}
			}
		}
		const open = "SELECT * FROM stint_spend_open_hold"
		for _, step := range plan(t, db, open, nil) {
			if strings.HasPrefix(step, "SCAN h") {
				t.Errorf("%s: %s: the holds that have ended too\n%s", driver, step, open)
			}
		}
	}
}

func plan(t *testing.T, db *sql.DB, text string, args []any) (steps []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	if err := rows.Err(); err != nil || len(steps) == 0 {
		t.Fatalf("%s: %d steps, %v", text, len(steps), err)
	}
	return steps
}
