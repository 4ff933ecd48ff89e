package main

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/stint-go/stint/adapters/sqlite/embedded"
	"github.com/stint-go/stint/spendlimit"
)

// What a limit admits does not depend on the store, and runs on one file don't mix.
func TestStoresAgree(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "replay.db")
	told := regexp.MustCompile(`^replay: ledger (replay-[A-Z2-7]+) is in ` + regexp.QuoteMeta(file) + "\n$")
	ledgers := map[string]bool{}
	for _, args := range [][]string{nil, {"-trace", "trace.csv", "-limit", "0.02"}} {
		files := map[string]string{"trace.csv": goodTrace}
		want, _, _ := execute(t, files, args...)
		stdout, stderr, status := execute(t, files, append(args, "-store", "sqlite:"+file)...)
		if diff := cmp.Diff(want, stdout); diff != "" || status != 0 {
			t.Errorf("%q: status %d, stderr %q, %s", args, status, stderr, diff)
		}
		name := told.FindStringSubmatch(stderr)
		if name == nil {
			t.Fatalf("stderr %q", stderr)
		}
		ledgers[name[1]] = true
	}
	if len(ledgers) != 2 {
		t.Errorf("the runs used the ledgers %v", ledgers)
	}
	db, err := embedded.Open(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name := range ledgers {
		led, err := spendlimit.New(db.Spend(), spendlimit.Config{Name: name, Unit: spendlimit.USD})
		if err != nil {
			t.Fatal(err)
		}
		if diffs, err := led.Verify(t.Context(), "account-1"); err != nil || len(diffs) > 0 {
			t.Errorf("%s: %v, %v", name, err, diffs)
		}
	}
}

// Many calls at once go through the file too: all are decided, and none beyond the limit.
func TestFileAtOnce(t *testing.T) {
	t.Parallel()
	store := "sqlite:" + filepath.Join(t.TempDir(), "replay.db")
	r, rep := play(t, "-store", store, "-workers", "32", "-limit", "1", "-accounts", "3")
	if err := r.close(); err != nil {
		t.Error(err)
	}
	if rep.Admitted+rep.Denied != rep.Calls || rep.Peak.Amount > usd("1").Amount {
		t.Errorf("%+v", rep)
	}
}
