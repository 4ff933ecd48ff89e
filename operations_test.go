package stint_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/stint-go/stint/adapters/postgres"
	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/adapters/sqlite/embedded"
	"github.com/stint-go/stint/allocator"
	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit"
)

// statements are those that docs/operations.md shows for a database.
func statements(t *testing.T, database string) (list []string) {
	t.Helper()
	text, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sql ?([a-z]*)\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	for _, block := range blocks {
		switch block[1] {
		case database:
			for _, s := range strings.Split(strings.TrimSpace(block[2]), ";") {
				if s != "" {
					list = append(list, strings.TrimSpace(s))
				}
			}
		case "sqlite", "postgres":
		default:
			t.Errorf("the document has SQL for %q", block[1])
		}
	}
	return list
}

// nearLimit puts 9 of 10 USD of a limit to use: some spent in two entries, some held.
func nearLimit(t *testing.T, store spendlimit.Store) *spendlimit.Ledger {
	t.Helper()
	ctx, usd := t.Context(), spendlimit.USD.MustParse
	led, err := spendlimit.New(store, spendlimit.Config{Unit: spendlimit.USD})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := led.SetLimit(ctx, spendlimit.Limit{Account: "acme", Name: "daily", Kind: spendlimit.Day, Amount: usd("10")}, ""); err != nil {
		t.Fatal(err)
	}
	for i, cost := range []string{"1", "3"} {
		if _, err := led.Charge(ctx, spendlimit.Expense{ID: fmt.Sprint("bill ", i), Accounts: []string{"acme"}, Cost: spendlimit.Total(usd(cost))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := led.Reserve(ctx, spendlimit.Request{Key: "run-1", Accounts: []string{"acme"}, Amount: usd("5")}); err != nil {
		t.Fatal(err)
	}
	return led
}

// inUse makes a pool in which one slot is leased, one cools, one is free, and somebody waits.
func inUse(t *testing.T, store allocator.Store) {
	t.Helper()
	p, err := allocator.New(store, "worktrees", allocator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Create(t.Context(), allocator.Spec{Capacity: 3}); err != nil {
		t.Fatal(err)
	}
	for _, attempt := range []string{"run-1", "run-2"} {
		if _, err := p.Acquire(t.Context(), allocator.Request{Attempt: attempt, Group: []string{"github.com", "acme/widgets"}, Units: 1}); err != nil {
			t.Fatal(err)
		}
	}
	seen, err := p.Probe(t.Context(), 1)
	if err == nil {
		_, err = p.Reclaim(t.Context(), seen.Reclaim(allocator.ReasonForced, "a test"))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var waits sync.WaitGroup
	waits.Go(func() { _, _ = p.AcquireWait(ctx, allocator.Request{Attempt: "run-3", Units: 3}) })
	t.Cleanup(func() {
		cancel()
		waits.Wait()
	})
	for n := 0; n == 0; {
		for _, err := range p.Tickets(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
	}
}

// runs runs a statement; what is shown for people to read has to show something.
func runs(t *testing.T, query func(string) (*sql.Rows, error), statement string) {
	t.Helper()
	rows, err := query(statement)
	if err != nil {
		t.Errorf("%s: %v", statement, err)
		return
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		n++
	}
	reads := strings.HasPrefix(statement, "SELECT") || strings.HasPrefix(statement, "WITH")
	if err := rows.Err(); err != nil || reads && n == 0 {
		t.Errorf("%s: %d rows, error %v", statement, n, err)
	}
}

func TestOperationsOnSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, err := embedded.Open(t.Context(), filepath.Join(dir, "stint.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	led := nearLimit(t, db.Spend())
	inUse(t, db.Pools())
	backup := filepath.Join(dir, "stint-backup.db")
	for _, s := range statements(t, "sqlite") {
		s = strings.ReplaceAll(s, "'stint-backup.db'", "'"+backup+"'")
		runs(t, func(s string) (*sql.Rows, error) { return db.SQL().QueryContext(t.Context(), s) }, s)
	}

	// The copy is a ledger of its own, and whole.
	again, err := embedded.Open(t.Context(), backup, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	saved, err := spendlimit.New(again.Spend(), spendlimit.Config{Unit: spendlimit.USD})
	if err != nil {
		t.Fatal(err)
	}
	if diffs, err := saved.Verify(t.Context(), "acme"); err != nil || len(diffs) > 0 {
		t.Errorf("the copy: %v, %v", err, diffs)
	}
	if _, err := saved.Release(t.Context(), "run-1"); err != nil {
		t.Errorf("the copy: %v", err)
	}
	if h, err := led.Hold(t.Context(), "run-1"); err != nil || h.State != spendlimit.Open {
		t.Errorf("the file: hold %+v, error %v", h, err)
	}
}

func TestOperationsOnPostgres(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testdb.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if err := postgres.Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	db, err := postgres.New(t.Context(), pool, nil)
	if err != nil {
		t.Fatal(err)
	}
	nearLimit(t, db.Spend())
	inUse(t, db.Pools())
	std := stdlib.OpenDBFromPool(pool)
	defer std.Close()
	tx, err := std.BeginTx(t.Context(), nil) // a role is of the whole server
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	for _, s := range statements(t, "postgres") {
		runs(t, func(s string) (*sql.Rows, error) { return tx.QueryContext(t.Context(), s) }, s)
	}
	// The role that was made may look, and do nothing else.
	for _, s := range []string{
		"SET LOCAL ROLE stint_reader", "SELECT * FROM stint.spend_balance", "SELECT * FROM stint.spend_open_hold", "SELECT * FROM stint.alloc_lease", "SAVEPOINT before",
	} {
		runs(t, func(s string) (*sql.Rows, error) { return tx.QueryContext(t.Context(), s) }, s)
	}
	if _, err := tx.ExecContext(t.Context(), "SELECT * FROM stint.spend_hold"); err == nil {
		t.Error("the reader reads tables")
	}
}

// What the document says about a total that somebody has changed by hand.
func TestOperationsOnDamage(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)
	db, err := embedded.Open(t.Context(), filepath.Join(t.TempDir(), "stint.db"), &sqlite.Options{Clock: func() time.Time { return noon }})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	led := nearLimit(t, db.Spend())
	if _, err := db.SQL().ExecContext(t.Context(), "UPDATE stint_spend_period SET held = 0"); err != nil {
		t.Fatal(err)
	}
	diffs, err := led.Verify(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	lines.WriteString("```\n")
	for _, d := range diffs {
		fmt.Fprintln(&lines, d)
	}
	lines.WriteString("```\n")
	text, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), lines.String()) {
		t.Errorf("the document does not show\n%s", lines.String())
	}
	for _, c := range []struct{ damage, want string }{
		{"UPDATE stint_spend_period SET held = 0", "the stored rows contradict each other"},
		{"UPDATE stint_spend_period SET held = 5000000000; UPDATE stint_spend_limit SET carry_holds = 1", "CHECK"},
	} {
		if _, err := db.SQL().ExecContext(t.Context(), c.damage); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := led.Release(t.Context(), "run-1")
			if !errors.Is(err, spendlimit.ErrUnavailable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", c.damage, err, c.want)
			}
		}
	}
}
