package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	ncruces "github.com/ncruces/go-sqlite3/driver"
)

// No statement of a pool reads the leases that ended, or all slots, to find some. SQLite makes the same plans whatever is in the tables.
func TestPlans_PoolsReadWhatIsNeeded(t *testing.T) {
	t.Parallel()
	all := []string{ // those that are for all that a pool has, and indexes of few rows
		"stint_alloc_slot r WHERE true AND", "stint_alloc_ticket r WHERE r.pool_id = +?1 AND r.incarnation", "stint_alloc_ticket r WHERE r.pool_id = +?1)",
		"stint_alloc_group r WHERE r.pool_id = +?1 AND r.weight > 0)",
	}
	ordered := regexp.MustCompile(`USING (COVERING )?INDEX stint_alloc_(slot_free|slot_cooling|lease_expiry|ticket_queue) \(pool_id=\?( AND state=\?)?\)`)
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
		for _, text := range newPools().Texts() {
			var args []any
			for n := 1; strings.Contains(text, fmt.Sprint("?", n)); n++ {
				args = append(args, "[]")
			}
			for _, step := range plan(t, db, text, args) {
				whole := strings.HasPrefix(step, "SCAN ") && !strings.Contains(step, " VIRTUAL TABLE ") && step != "SCAN q" && step != "SCAN CONSTANT ROW"
				most := strings.Contains(step, "(pool_id=?)") && !ordered.MatchString(step)
				if whole || most && !slices.ContainsFunc(all, func(part string) bool { return strings.Contains(text, part) }) {
					t.Errorf("%s: %s\n%s", driver, step, text)
				}
			}
		}
	}
}
