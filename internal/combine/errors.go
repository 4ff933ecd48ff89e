package combine

import (
	"errors"
	"fmt"
)

var (
	// ErrNotStarted says that the caller's context ended before its command was taken into a batch: it never runs.
	// The error wraps the context's error too.
	ErrNotStarted = errors.New("combine: not started")

	// ErrStarted says that the caller's context ended while another caller was running its command: it runs once, with a
	// result that this caller will not see. The error wraps the context's error too.
	ErrStarted = errors.New("combine: result not awaited")

	// ErrPanicked says that run panicked, or ended its goroutine, in another caller's hands: what became of the commands
	// of that batch is unknown.
	ErrPanicked = errors.New("combine: run did not return")
)

func notStarted(cause error) error { return fmt.Errorf("%w: %w", ErrNotStarted, cause) }

func started(cause error) error { return fmt.Errorf("%w: %w", ErrStarted, cause) }
