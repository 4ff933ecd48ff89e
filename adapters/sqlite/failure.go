package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/stint-go/stint/internal/fault"
)

// Result codes of SQLite that mean something of their own here.
const (
	codeError    = 1
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeConflict = 19 // a constraint
	codeNotADB   = 26
)

// hints say what to do.
var hints = map[int]string{
	codeBusy:     "another connection kept the file locked: look for a long transaction",
	codeLocked:   "another connection kept the file locked: look for a long transaction",
	codeReadOnly: "the file can't be written: give this process the right to write it and its directory",
	codeCorrupt:  "the file is damaged: restore it from a backup",
	codeFull:     "no room is left: free some on the disk, or raise max_page_count",
	codeCantOpen: "the file can't be opened: see whether it and its directory are there and open to this process",
	codeNotADB:   "the file is not a SQLite database: name another",
}

// codeOf finds the primary result code in the error of a driver, which has a method Code that returns it, each driver as a
// type of its own. 0 is none.
func codeOf(err error) int {
	if err == nil {
		return 0
	}
	if m := reflect.ValueOf(err).MethodByName("Code"); m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
		switch v := m.Call(nil)[0]; {
		case v.CanInt():
			return int(v.Int() & 0xff) // the rest makes it an extended code
		case v.CanUint():
			return int(v.Uint() & 0xff)
		}
	}
	switch e := err.(type) { //nolint:errorlint // this is a walk over the whole tree
	case interface{ Unwrap() error }:
		return codeOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if code := codeOf(one); code != 0 {
				return code
			}
		}
	}
	return 0
}

// busyError is a failure that may be over soon. Nothing was applied.
type busyError struct{ error }

func (e *busyError) Unwrap() error { return e.error }

// failed says of what was surely not applied why.
func (d *DB) failed(err error) error {
	if err == nil || fault.HasPhase(err) || errors.Is(err, fault.ErrInvalid) {
		return err
	}
	code := codeOf(err)
	switch {
	case d.closed.Load(), errors.Is(err, errPoolClosed()):
		return fmt.Errorf("%w: %w", fault.ErrClosed, err)
	case errors.Is(err, sql.ErrTxDone):
		return fmt.Errorf("%w: the transaction was committed or rolled back before: %w", fault.ErrClosed, err)
	case code == codeBusy, code == codeLocked:
		return &busyError{err}
	case code == codeError: // a statement that was good before
		return fmt.Errorf("%w: the tables were altered: %w", fault.ErrSchema, err)
	}
	return unavailable(err)
}

// unavailable says that nothing was applied, and what to do.
func unavailable(err error) error {
	if hint := hints[codeOf(err)]; hint != "" {
		return fmt.Errorf("%w: %s: %w", fault.ErrUnavailable, hint, err)
	}
	return fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
}

// errPoolClosed is the error of a *sql.DB that was closed. Package sql has it, but not by a name.
var errPoolClosed = sync.OnceValue(func() error {
	db := sql.OpenDB(nowhere{})
	err := db.Close()
	if err == nil {
		_, err = db.Conn(context.Background())
	}
	return err
})

type nowhere struct{}

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nil, driver.ErrBadConn }
func (nowhere) Driver() driver.Driver                        { return nil }
