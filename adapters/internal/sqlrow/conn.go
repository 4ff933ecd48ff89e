package sqlrow

import (
	"context"
	"errors"
)

// Row is a row of a result.
type Row interface{ Scan(into ...any) error }

// Stmt is a statement, with what to do with each row of its result.
type Stmt struct {
	SQL  string
	Args []any
	Each func(Row) error // nil: it has none
	// Rows is how many rows it has to change: with any other number it is an error, and nothing of the step is kept. 0: any number.
	Rows int
}

// ErrChanged says that a row is not as it was loaded: somebody has written past the locks, or the rows are damaged.
var ErrChanged = errors.New("a row is not as it was loaded")

// Conn is a connection inside a transaction.
type Conn interface {
	// Run runs statements in order, in one round trip where there are any. Each error that it returns is the first one's.
	Run(ctx context.Context, list ...Stmt) error
	// NewIDs returns n ids that no row of the table has or will have.
	NewIDs(ctx context.Context, t *Table, n int) ([]int64, error)
}

// ErrGrew says that a step needs more than it has locked: it has to begin again and lock that too.
var ErrGrew = errors.New("the step needs more rows than it has locked")

// ErrGone says that a row is not there to which another one points. It may have been deleted between two statements of a step: then
// nothing points at it in the next try.
var ErrGone = errors.New("pointed at but not stored")
