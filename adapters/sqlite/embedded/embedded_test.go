package embedded_test

import (
	"bytes"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/stint-go/stint/adapters/sqlite/embedded"
	"github.com/stint-go/stint/spendlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string) *embedded.DB {
	t.Helper()
	db, err := embedded.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func charge(t *testing.T, db *embedded.DB) {
	t.Helper()
	led, err := spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.USD})
	if err == nil {
		_, err = led.Charge(t.Context(), spendlimit.Expense{ID: "c", Accounts: []string{"acme"}, Cost: spendlimit.Total(1)})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSettingsOnEveryConnection(t *testing.T) {
	t.Parallel()
	pool := open(t, filepath.Join(t.TempDir(), "stint.db")).SQL()
	var conns []*sql.Conn
	for range pool.Stats().MaxOpenConnections {
		c, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	if len(conns) < 4 {
		t.Fatalf("%d connections", len(conns))
	}
	for i, c := range conns {
		for name, want := range map[string]string{
			"busy_timeout": "10000", "journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "trusted_schema": "0",
		} {
			var got string
			if err := c.QueryRowContext(t.Context(), "PRAGMA "+name).Scan(&got); err != nil || got != want {
				t.Errorf("connection %d: %s is %s, want %s; error %v", i, name, got, want, err)
			}
		}
	}
}

// No character of a path means anything, and the file is where the path says.
func TestPaths(t *testing.T) {
	t.Parallel()
	names := []string{"with space.db", "a#b.db", "100%.db", "%41.db", "a+b&c=d;e.db", "ü.db", "'quoted'.db", "[a].db"}
	if runtime.GOOS != "windows" {
		names = append(names, "what?.db", "a?mode=memory", "back\\slash.db", "\"quoted\".db", "line\nbreak.db")
	}
	for _, name := range names {
		dir := t.TempDir()
		charge(t, open(t, filepath.Join(dir, name)))
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if rest, ok := strings.CutPrefix(f.Name(), name); !ok || rest != "" && rest != "-wal" && rest != "-shm" {
				t.Errorf("%q made %q", name, f.Name())
			}
		}
	}
}

func TestRelativePath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	db, err := embedded.Open(t.Context(), "./here.db", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir()) // the connections that come later open the same file
	charge(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "here.db")); err != nil {
		t.Error(err)
	}
}

// Nobody else can read the files.
func TestPrivate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("files have no mode")
	}
	dir := t.TempDir()
	charge(t, open(t, filepath.Join(dir, "stint.db")))
	for _, name := range []string{"stint.db", "stint.db-wal", "stint.db-shm"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o600 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
}

func TestBadPaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := bytes.Repeat([]byte("this is not a database\n"), 400)
	if err := os.WriteFile(filepath.Join(dir, "text"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		kind error
		hint string
	}{
		"":                              {spendlimit.ErrInvalid, "in memory"},
		":memory:":                      {spendlimit.ErrInvalid, "in memory"},
		"file:x.db?mode=memory":         {spendlimit.ErrInvalid, "the path alone"},
		"a\x00b":                        {spendlimit.ErrInvalid, "zero byte"},
		dir:                             {spendlimit.ErrInvalid, "name a file in it"},
		filepath.Join(dir, "none", "x"): {spendlimit.ErrUnavailable, "make the directory first"},
		filepath.Join(dir, "text"):      {spendlimit.ErrUnavailable, "not a SQLite database"},
		filepath.Join(dir, "text", "x"): {spendlimit.ErrUnavailable, ""},
	} {
		db, err := embedded.Open(t.Context(), path, nil)
		if db != nil || !errors.Is(err, want.kind) || !strings.Contains(err.Error(), want.hint) {
			t.Errorf("%q: error %v, want %v with %q", path, err, want.kind, want.hint)
		}
	}
	if now, err := os.ReadFile(filepath.Join(dir, "text")); err != nil || !bytes.Equal(now, text) {
		t.Errorf("the text was changed; error %v", err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Errorf("files %v, error %v", list, err)
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	switch {
	case os.Getuid() != 0 && runtime.GOOS != "windows":
		if err := os.Chmod(dir, 0o500); err != nil {
			t.Fatal(err)
		}
	case runtime.GOOS == "linux":
		dir = "/sys" // where root can make no files either
	default:
		t.Skip("everything can be written")
	}
	_, err := embedded.Open(t.Context(), filepath.Join(dir, "stint.db"), nil)
	if !errors.Is(err, spendlimit.ErrUnavailable) || dir != "/sys" && !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v", err)
	}
}
