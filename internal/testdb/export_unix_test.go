//go:build unix

package testdb

import "testing"

const (
	Given    = given
	Required = required
)

var (
	Programs     = programs
	WithDatabase = withDatabase
)

// PostgresFrom is Postgres with a server that is started with the programs in a pattern of directories.
func PostgresFrom(t testing.TB, debian string) string {
	return database(t, func() (server, error) { return start(debian, trust) })
}

// PgBouncerFrom is PgBouncer with a program that may be in one more place.
func PgBouncerFrom(t testing.TB, dsn, debian string) string {
	pooled, _ := bounce(t, dsn, 0, debian)
	return pooled
}

// Launch begins to start a server and returns its directory.
func Launch(bin string) (string, error) {
	c, err := launch(script, password, bin, trust)
	if err != nil {
		return "", err
	}
	return c.dir, nil
}
