// Package testdb gives tests, and the program in internal/bench/ratios, databases that they may do anything to.
package testdb

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The environment that Postgres looks at.
const (
	given    = "STINT_TEST_POSTGRES"          // the DSN of a server and a user who may create databases; empty: start a server
	required = "STINT_TEST_POSTGRES_REQUIRED" // not empty: a test fails where it would skip
)

// Postgres returns the DSN of a new, empty database for the test alone, which is dropped at the end of the test, whoever
// is connected. A process that is killed leaves its databases on a given server; a server that it started goes with it.
//
// Without a given server and without an installed one (13 or newer) the test is skipped, or fails if the environment
// requires Postgres. A process that a test starts shares the test's server by its DSN in STINT_TEST_POSTGRES.
func Postgres(t testing.TB) string {
	t.Helper()
	return database(t, shared)
}

// shared is the one server of this process. Each test process that needs one starts its own, in about a second: no lock
// between processes, nobody to decide who stops it, and what one package's tests do to it harms no other's.
var shared = sync.OnceValues(func() (server, error) {
	if dsn := os.Getenv(given); dsn != "" {
		return server{dsn: dsn}, nil
	}
	return start(debian, trust)
})

const debian = "/usr/lib/postgresql/*/bin"

// PostgresWithPassword starts a server of the test's own that asks for a password, and returns its DSN with the password,
// and what ends the server before the test does. It needs the installed programs, whatever server is given.
func PostgresWithPassword(t testing.TB) (dsn string, stop func()) {
	t.Helper()
	s, err := start(debian, scram)
	skipOrFail(t, err)
	stop = sync.OnceFunc(func() { _ = s.life.Close() })
	t.Cleanup(stop)
	return s.dsn, stop
}

// PgBouncer returns a DSN that leads to the same database as another one, through a pgbouncer of the test's own: each
// transaction goes over any of four connections. It keeps up to so many prepared statements on each of these, which it
// can from version 1.21 on; prepares tells whether it does.
//
// Without an installed one the test is skipped, or fails if the environment requires Postgres.
func PgBouncer(t testing.TB, dsn string, prepared int) (pooled string, prepares bool) {
	t.Helper()
	return bounce(t, dsn, prepared, "/usr/sbin/pgbouncer")
}

func bounce(t testing.TB, dsn string, prepared int, debian string) (pooled string, prepares bool) {
	t.Helper()
	to, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	s, prepares, err := startPooler(debian, to, prepared)
	skipOrFail(t, err)
	t.Cleanup(func() { _ = s.life.Close() })
	return s.dsn, prepares
}

var errNoPooler = errors.New("no pgbouncer: neither on PATH nor in /usr/sbin")

// skipOrFail skips the test if a program is missing, and fails it for any other reason.
func skipOrFail(t testing.TB, err error) {
	t.Helper()
	missing := errors.Is(err, ErrMissing) || errors.Is(err, errNoPooler)
	switch {
	case missing && os.Getenv(required) == "":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

type server struct {
	dsn  string
	life io.Closer // of a server of our own, which ends when this is closed: at the latest with this process
}

// ErrMissing says that there is no Postgres to be had.
var ErrMissing = errors.New("no Postgres: neither " + given + " nor initdb and postgres on PATH or in /usr/lib/postgresql")

// Open returns the DSN of a new, empty database and what drops it, whoever is connected. It is [Postgres] for a program.
func Open() (dsn string, drop func() error, err error) {
	s, err := shared()
	if err != nil {
		return "", nil, err
	}
	return s.database()
}

func database(t testing.TB, get func() (server, error)) string {
	t.Helper()
	s, err := get()
	skipOrFail(t, err)
	dsn, drop, err := s.database()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Error(err)
		}
	})
	return dsn
}

func (s server) database() (dsn string, drop func() error, err error) {
	name := "stint_test_" + strings.ToLower(rand.Text())
	drop = func() error { return s.exec("DROP DATABASE " + name + " WITH (FORCE)") }
	return withDatabase(s.dsn, name), drop, s.exec("CREATE DATABASE " + name + " TEMPLATE template0")
}

func (s server) exec(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// withDatabase is the DSN with another database: of what is said twice, the last counts.
func withDatabase(dsn, name string) string {
	separator := " "
	if strings.HasPrefix(dsn, "postgres") { // a URL
		separator = "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
	}
	return dsn + separator + "dbname=" + name
}
