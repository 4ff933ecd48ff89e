// Package embedded opens a SQLite file with everything set right, on a driver that needs no cgo.
package embedded

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/ncruces/go-sqlite3/driver"

	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/internal/fault"
)

// DB is a file with its connections.
type DB struct {
	*sqlite.DB
	sql *sql.DB
}

// Open opens the file at path, and makes it if there is none: readable by its owner alone, as are the files that SQLite
// makes beside it. A file that is there keeps its mode. Each connection has write-ahead logging, every commit on the disk
// before it is acknowledged (synchronous=FULL), a log of some 32 MiB before it is moved into the file, foreign keys, transactions that begin IMMEDIATE, and up to 10 s of patience
// with other processes. Open brings the tables up to date ([sqlite.Migrate]).
//
// The path is one of the operating system's, absolute or relative to the working directory; no character in it means
// anything to SQLite. A database in memory (":memory:", "") is ErrInvalid: nothing would be left of it. The file must be on
// a disk of this machine: locks of network file systems are not reliable.
//
// Errors are ErrInvalid for what can't be a path of a file, ErrSchema for the tables of a newer or altered release, and
// else ErrUnavailable.
func Open(ctx context.Context, path string, o *sqlite.Options) (*DB, error) {
	db, err := open(ctx, path, o)
	if err != nil {
		return nil, fmt.Errorf("embedded: open %q: %w", path, err)
	}
	return db, nil
}

func open(ctx context.Context, path string, o *sqlite.Options) (*DB, error) {
	path, err := create(path)
	if err != nil {
		return nil, err
	}
	connector, err := new(driver.SQLite).OpenConnector(source(filepath.ToSlash(path)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
	}
	pool := sql.OpenDB(private{connector, path})
	conns := max(4, runtime.NumCPU())
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns) // a new one has to prepare every statement anew
	if err := sqlite.Migrate(ctx, pool); err != nil {
		_ = pool.Close()
		return nil, err
	}
	db, err := sqlite.New(ctx, pool, o)
	if err != nil {
		_ = pool.Close()
		return nil, err
	}
	return &DB{db, pool}, nil
}

// create makes sure that the file is there, and a database or empty. It returns its absolute path.
func create(path string) (string, error) {
	switch {
	case path == "" || strings.HasPrefix(path, ":memory:"):
		return "", fmt.Errorf("%w: a database in memory would be lost: name a file", fault.ErrInvalid)
	case strings.HasPrefix(path, "file:"):
		return "", fmt.Errorf("%w: give the path alone, without file: and parameters", fault.ErrInvalid)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("%w: a path has no zero byte", fault.ErrInvalid)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	switch {
	case err == nil:
		defer f.Close()
		return path, isDatabase(f)
	case errors.Is(err, syscall.EISDIR) || isDirectory(path):
		return "", fmt.Errorf("%w: this is a directory: name a file in it", fault.ErrInvalid)
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: make the directory first: %w", fault.ErrUnavailable, err)
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("%w: give this process the right to write the file and its directory: %w", fault.ErrUnavailable, err)
	}
	return "", fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
}

func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

const header = "SQLite format 3\x00"

func isDatabase(f *os.File) error {
	start := make([]byte, len(header))
	n, err := io.ReadFull(f, start)
	switch {
	case n == 0 && errors.Is(err, io.EOF):
		return nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
	case string(start) != header:
		return fmt.Errorf("%w: the file is not a SQLite database: name another", fault.ErrUnavailable)
	}
	return nil
}

// private gives the file that connections share their memory in the mode of the database. The driver leaves that to the umask,
// and the file goes with the last connection.
type private struct {
	sqldriver.Connector
	path string
}

// Connect implements driver.Connector.
func (p private) Connect(ctx context.Context) (sqldriver.Conn, error) {
	info, err := os.Stat(p.path)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(p.path+"-shm", os.O_RDWR|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err == nil {
		err = errors.Join(f.Chmod(info.Mode().Perm()), f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return p.Connector.Connect(ctx)
}

// source is the name of a file, which has slashes, for the driver. One that begins with a drive letter stays as it is.
func source(path string) string {
	escaped := path
	if strings.HasPrefix(path, "//") {
		escaped = "//" + path // else the first part of the path is taken for a host
	}
	parameters := url.Values{
		"modeof":  {path}, // of the write-ahead log too
		"_txlock": {"immediate"},
		"_pragma": {"busy_timeout(10000)", "journal_mode(wal)", "synchronous(full)", "foreign_keys(on)", "trusted_schema(off)",
			"wal_autocheckpoint(8000)"}, // pages of 4 KiB: some 32 MiB beside the file
	}
	// SQLite knows no plus sign for a space.
	return "file:" + (&url.URL{Path: escaped}).EscapedPath() + "?" + strings.ReplaceAll(parameters.Encode(), "+", "%20")
}

// SQL returns the connections, for the caller's own tables in the same file.
func (d *DB) SQL() *sql.DB { return d.sql }

// Close closes the DB and its connections.
func (d *DB) Close() error { return errors.Join(d.DB.Close(), d.sql.Close()) }
