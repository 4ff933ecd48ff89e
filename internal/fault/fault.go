// Package fault is how calls fail that no package decides alone: bad input, and what became of a step that a store could not
// finish. The packages export what is here under names of their own, so that errors.Is works with any of these.
package fault

import (
	"errors"
	"fmt"
)

// ErrInvalid: bad input.
var ErrInvalid = errors.New("invalid")

// Phases of a store failure.
var (
	// ErrUnavailable: not applied; nothing was written.
	ErrUnavailable = errors.New("unavailable")
	// ErrUncertain: maybe applied.
	ErrUncertain = errors.New("uncertain")
	// ErrSchema: the store's tables are missing, older or newer than this library. Nothing was written.
	ErrSchema = errors.New("wrong schema")
	// ErrClosed: the store handle is closed. Nothing was written.
	ErrClosed = errors.New("closed")
)

// HasPhase tells whether the failure of a step says if it was applied.
func HasPhase(err error) bool {
	for _, phase := range []error{ErrUnavailable, ErrUncertain, ErrClosed, ErrSchema} {
		if errors.Is(err, phase) {
			return true
		}
	}
	return false
}

// OrUncertain makes sure that the failure of a step says whether it was applied: what does not say so may have been.
func OrUncertain(err error) error {
	if err == nil || HasPhase(err) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}

// InvalidError is bad input in one field. It is ErrInvalid.
type InvalidError struct {
	Field  string // in the words of the request type, e.g. "Accounts[1]"
	Reason string
}

func (e *InvalidError) Error() string { return fmt.Sprintf("invalid %s: %s", e.Field, e.Reason) }
func (e *InvalidError) Unwrap() error { return ErrInvalid }

// Invalid returns an InvalidError.
func Invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// SchemaError says which schema a store has and which one it must have. It is ErrSchema.
type SchemaError struct{ Have, Want int }

func (e *SchemaError) Error() string {
	return fmt.Sprintf("wrong schema: have version %d, want %d", e.Have, e.Want)
}
func (e *SchemaError) Unwrap() error { return ErrSchema }
