//go:build !unix

package testdb

import "github.com/jackc/pgx/v5"

// start does not start a server on this system.
func start(_, _ string) (server, error) { return server{}, ErrMissing }

// startPooler does not start one either.
func startPooler(string, *pgx.ConnConfig, int) (server, bool, error) {
	return server{}, false, errNoPooler
}

const trust, scram = "", ""
