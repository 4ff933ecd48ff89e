package main

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/postgres"
	"github.com/stint-go/stint/adapters/sqlite/embedded"
	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit"
)

// What a limit admits does not depend on the store, and runs on one file don't mix.
func TestStoresAgree(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "replay.db")
	onFile := []string{"-store", "sqlite:" + file}
	ledgers := []string{agrees(t, file, nil, onFile), agrees(t, file, oneDenied, onFile)}
	db, err := embedded.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	verify(t, db.Spend(), ledgers)
}

// Nor do runs in one database.
func TestStoresAgree_Postgres(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	loose := dsn + " synchronous_commit=off" // nothing crashes here
	if strings.Contains(dsn, "://") {
		loose = dsn + "&synchronous_commit=off"
	}
	for _, c := range []struct {
		schema, place string
		flags         []string
	}{
		{"stint_replay", `the schema "stint_replay" of the database`, nil},
		{`my "own"`, `the schema "my \"own\"" of the database`, []string{"-schema", `my "own"`}},
	} {
		store := append(c.flags, "-store", "postgres:"+loose)
		ledgers := []string{agrees(t, c.place, sample, store), agrees(t, c.place, oneDenied, store)}
		db, err := postgres.New(t.Context(), pool, &postgres.Options{Schema: c.schema})
		if err != nil {
			t.Fatal(err)
		}
		verify(t, db.Spend(), ledgers)
	}
}

// oneDenied and sample are runs on files of agrees.
var (
	oneDenied = []string{"-json", "-trace", "trace.csv", "-limit", "0.02"}
	sample    = []string{"-json", "-trace", "sample.csv", "-limit", "1", "-zone", "Asia/Kolkata", "-accounts", "2"}
)

// sampleTrace is every 16th call of the built-in trace: each is several round trips.
func sampleTrace() string {
	var text strings.Builder
	text.WriteString(traceHeader + "\n")
	for i, c := range synthetic() {
		if i%16 == 0 {
			fmt.Fprintf(&text, "%s,%d,%d\n", c.at.Format(traceTime), c.prompt*4, c.output)
		}
	}
	return text.String()
}

// agrees runs a trace in memory and on a store that stays at a place, and returns the ledger that it leaves there.
func agrees(t *testing.T, place string, run, store []string) (ledger string) {
	t.Helper()
	files := map[string]string{"trace.csv": goodTrace, "sample.csv": sampleTrace()}
	want, _, _ := execute(t, files, run...)
	stdout, stderr, status := execute(t, files, append(slices.Clone(run), store...)...)
	if diff := cmp.Diff(want, stdout); diff != "" || status != 0 {
		t.Errorf("%q: status %d, stderr %q, %s", run, status, stderr, diff)
	}
	told := regexp.MustCompile(`^replay: ledger (replay-[A-Z2-7]+) is in ` + regexp.QuoteMeta(place) + "\n$").FindStringSubmatch(stderr)
	if told == nil {
		t.Fatalf("stderr %q", stderr)
	}
	return told[1]
}

// verify checks that each run has left a ledger of its own that adds up.
func verify(t *testing.T, store spendlimit.Store, ledgers []string) {
	t.Helper()
	seen := map[string]bool{}
	for _, name := range ledgers {
		if seen[name] {
			t.Errorf("two runs used %s", name)
		}
		seen[name] = true
		led, err := spendlimit.New(store, spendlimit.Config{Name: name, Unit: spendlimit.USD})
		if err != nil {
			t.Fatal(err)
		}
		diffs, err := led.Verify(t.Context(), "account-1")
		if err != nil || len(diffs) > 0 || entries(t, led) == 0 {
			t.Errorf("%s: %d entries, %v, %v", name, entries(t, led), err, diffs)
		}
	}
}

func entries(t *testing.T, led *spendlimit.Ledger) (n int) {
	t.Helper()
	for _, err := range led.Entries(context.Background(), "account-1", 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// Many calls at once go through the file, or the database, too: all are decided, and none beyond the limit.
func TestManyAtOnce(t *testing.T) {
	for name, store := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "replay.db") },
		"postgres": func(t *testing.T) string { return "postgres:" + testdb.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, rep := play(t, "-store", store(t), "-workers", "32", "-limit", "1", "-accounts", "3")
			if err := r.close(); err != nil {
				t.Error(err)
			}
			if rep.Admitted+rep.Denied != rep.Calls || rep.Peak.Amount > usd("1").Amount {
				t.Errorf("%+v", rep)
			}
		})
	}
}
