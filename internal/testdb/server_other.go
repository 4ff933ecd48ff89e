//go:build !unix

package testdb

// start does not start a server on this system.
func start(string) (server, error) { return server{}, ErrMissing }
