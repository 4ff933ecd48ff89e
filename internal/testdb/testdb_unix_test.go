//go:build unix

package testdb_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/stint-go/stint/internal/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func query[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) (v T) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPostgres_EachCallHasItsOwn(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			one, other := connect(t, testdb.Postgres(t)), connect(t, testdb.Postgres(t))
			for _, conn := range []*pgx.Conn{one, other} {
				const tables = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
				if n := query[int](t, conn, tables); n != 0 {
					t.Errorf("%d relations in a new database", n)
				}
				if _, err := conn.Exec(t.Context(), "CREATE TABLE a (n int)"); err != nil {
					t.Error(err)
				}
			}
			if _, err := one.Exec(t.Context(), "INSERT INTO a VALUES (1)"); err != nil {
				t.Error(err)
			}
			if n := query[int](t, other, "SELECT count(*) FROM a"); n != 0 {
				t.Error("sees the row of another database")
			}
		})
	}
}

func TestPostgres_DroppedAtTheEnd(t *testing.T) {
	t.Parallel()
	outerT, outer := t, connect(t, testdb.Postgres(t))
	const exists = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
	var name string
	t.Run("inner", func(t *testing.T) {
		forgotten := connect(outerT, testdb.Postgres(t)) // open beyond the test
		name = query[string](t, forgotten, "SELECT current_database()")
		if !query[bool](t, outer, exists, name) {
			t.Error("not on the same server")
		}
	})
	if query[bool](t, outer, exists, name) {
		t.Errorf("%s is still there", name)
	}
}

func TestPostgres_SyncsToDisk(t *testing.T) {
	t.Parallel()
	conn := connect(t, testdb.Postgres(t))
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got := query[string](t, conn, "SELECT current_setting($1)", setting); got != "on" {
			t.Errorf("%s is %s", setting, got)
		}
	}
}

func TestWithDatabase(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"host=/tmp user=a",
		"host=/tmp user=a dbname=old",
		"postgres://a@%2Ftmp",
		"postgres://a@%2Ftmp/old",
		"postgresql://a@/old?host=/tmp&dbname=older",
	} {
		c, err := pgx.ParseConfig(testdb.WithDatabase(dsn, "new"))
		if err != nil {
			t.Error(err)
		} else if c.Database != "new" || c.Host != "/tmp" || c.User != "a" {
			t.Errorf("%s became %s", dsn, c.ConnString())
		}
	}
}

func TestPrograms(t *testing.T) {
	path, debian := t.TempDir(), t.TempDir()
	install := func(dir string, programs ...string) string {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range programs {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	want := func(want string) {
		t.Helper()
		if got, err := testdb.Programs(debian + "/*/bin"); got != want || (err == nil) != (want != "") {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	t.Setenv("PATH", ":"+path)
	want("")
	install(path, "initdb")
	want("")
	install(filepath.Join(debian, "9.6", "bin"), "initdb", "postgres")
	nine := install(filepath.Join(debian, "9", "bin"), "initdb", "postgres")
	want(nine)
	seventeen := install(filepath.Join(debian, "17", "bin"), "initdb", "postgres")
	install(filepath.Join(debian, "18", "bin"), "postgres")
	want(seventeen)
	install(path, "postgres")
	want(path)
}

// child runs one of the tests for children in a process of its own and returns how it ended and what it printed.
func child(t *testing.T, what string, env ...string) (status int, out string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), append([]string{testdb.Given + "=", "TESTDB_CHILD=" + what}, env...)...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

// TestChild is what a child does.
func TestChild(t *testing.T) {
	kill := func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) }
	switch os.Getenv("TESTDB_CHILD") {
	case "finds nothing":
		testdb.PostgresFrom(t, "/nonexistent/*/bin")
	case "finds no pooler":
		testdb.PgBouncerFrom(t, "host=/tmp", "/nonexistent/pgbouncer")
	case "prints its DSN":
		fmt.Println("DSN", testdb.Postgres(t))
	case "ends":
		report(t)
	case "is killed":
		report(t)
		kill()
	case "is killed behind a pooler":
		dsn, _ := testdb.PgBouncer(t, testdb.Postgres(t), 0)
		fmt.Println("DIR", connect(t, dsn).Config().Host)
		kill()
	case "is killed early":
		dir, err := testdb.Launch(anyPrograms(t))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("DIR", dir)
		kill()
	}
}

// report prints the directory of the server and the number of its process.
func report(t *testing.T) {
	conn := connect(t, testdb.Postgres(t))
	data := query[string](t, conn, "SELECT current_setting('data_directory')")
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, _, _ := strings.Cut(string(text), "\n")
	fmt.Println("DIR", filepath.Dir(data))
	fmt.Println("PID", pid)
}

func anyPrograms(t *testing.T) string {
	t.Helper()
	bin, err := testdb.Programs("/usr/lib/postgresql/*/bin")
	if err != nil {
		if os.Getenv("STINT_TEST_POSTGRES_REQUIRED") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return bin
}

func word(t *testing.T, out, name string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` (.+)$`).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("no %s in\n%s", name, out)
	}
	return found[1]
}

func TestPostgres_SkipsOrFailsWithoutAServer(t *testing.T) {
	t.Parallel()
	for what, reason := range map[string]string{
		"finds nothing":   "no Postgres: neither STINT_TEST_POSTGRES nor initdb and postgres",
		"finds no pooler": "no pgbouncer: neither on PATH nor in /usr/sbin",
	} {
		for _, test := range []struct {
			required, result string
			status           int
		}{
			{"", "--- SKIP: TestChild", 0},
			{"1", "--- FAIL: TestChild", 1},
		} {
			status, out := child(t, what, "PATH=", testdb.Required+"="+test.required)
			if status != test.status || !strings.Contains(out, test.result) || !strings.Contains(out, reason) {
				t.Errorf("%s, required=%q: status %d\n%s", what, test.required, status, out)
			}
		}
	}
}

func TestPostgres_FailsWithTheServersWords(t *testing.T) {
	t.Parallel()
	bin, err := os.MkdirTemp("", "testdb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(bin) })
	if err := os.Chmod(bin, 0o755); err != nil { // for the user that the server runs as
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\necho broken on purpose >&2\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	status, out := child(t, "prints its DSN", "PATH="+bin+":/bin:/usr/bin", testdb.Required+"=")
	if status != 1 || !strings.Contains(out, "--- FAIL: TestChild") || !strings.Contains(out, "broken on purpose") {
		t.Errorf("status %d\n%s", status, out)
	}
}

func TestPostgres_UsesAGivenServer(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	conn := connect(t, dsn)
	_, out := child(t, "prints its DSN", testdb.Given+"="+dsn)
	got, err := pgx.ParseConfig(word(t, out, "DSN"))
	if err != nil {
		t.Fatal(err)
	}
	own := conn.Config()
	if got.Host != own.Host || got.Port != own.Port || got.Database == own.Database {
		t.Errorf("given %s, got %s", dsn, got.ConnString())
	}
	if query[bool](t, conn, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", got.Database) {
		t.Errorf("%s is still there", got.Database)
	}
}

func TestPostgres_NothingStays(t *testing.T) {
	t.Parallel()
	anyPrograms(t)
	for _, how := range []string{"ends", "is killed", "is killed early", "is killed behind a pooler"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(how, "pooler") {
				testdb.PgBouncer(t, testdb.Postgres(t), 0) // skips without one
			}
			_, out := child(t, how)
			dir, pid := word(t, out, "DIR"), 0
			if how == "ends" || how == "is killed" { // of a pooler, and of a server that has not begun, the directory says enough
				pid, _ = strconv.Atoi(word(t, out, "PID"))
			}
			gone := func() bool {
				_, err := os.Stat(dir)
				return errors.Is(err, os.ErrNotExist) && (pid == 0 || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH))
			}
			for end := time.Now().Add(30 * time.Second); !gone(); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("server %d or its directory %s stays", pid, dir)
				}
			}
		})
	}
}

func TestPostgresWithPassword(t *testing.T) {
	t.Parallel()
	dsn, stop := testdb.PostgresWithPassword(t)
	connect(t, dsn)
	_, err := pgx.Connect(t.Context(), dsn+" password=wrong")
	if refused := (*pgconn.PgError)(nil); !errors.As(err, &refused) || refused.Code != "28P01" {
		t.Errorf("error %v", err)
	}
	stop()
	if _, err := pgx.Connect(t.Context(), dsn); err == nil {
		t.Error("it answers after its end")
	}
}

func TestPgBouncer(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	direct := connect(t, dsn)
	for _, prepared := range []int{0, 10} {
		pooled, prepares := testdb.PgBouncer(t, dsn, prepared)
		if prepares && prepared == 0 {
			t.Error("keeps none, and says so")
		}
		// More clients than there are connections to the server, which are lent by transaction.
		pids := map[int]bool{}
		for range 8 {
			conn := connect(t, pooled+" default_query_exec_mode=exec")
			if a, b := query[string](t, conn, "SELECT current_database()"), query[string](t, direct, "SELECT current_database()"); a != b {
				t.Errorf("leads to %s, want %s", a, b)
			}
			pids[query[int](t, conn, "SELECT pg_backend_pid()")] = true
		}
		if len(pids) > 4 {
			t.Errorf("%d connections to the server", len(pids))
		}
	}
}
