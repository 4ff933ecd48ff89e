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
	return database(t, func() (server, error) { return start(debian) })
}

// Launch begins to start a server and returns its directory.
func Launch(bin string) (string, error) {
	c, err := launch(bin)
	if err != nil {
		return "", err
	}
	return c.dir, nil
}
