package combine

import (
	"errors"
	"fmt"

	"github.com/stint-go/stint/internal/fault"
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

// Outcome says what an error of Do means to whoever asked for the command: that it was not applied, or that nobody knows. cause is why its
// caller left early, nil if it did not. Errors of run that say neither are ErrUncertain.
func Outcome(err, cause error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrStarted):
		if cause == nil {
			return fault.ErrUncertain
		}
		return fmt.Errorf("%w: %w", fault.ErrUncertain, cause)
	case errors.Is(err, ErrNotStarted) && cause != nil:
		return cause
	case errors.Is(err, ErrPanicked):
		return fmt.Errorf("%w: %w", fault.ErrUncertain, err)
	}
	return fault.OrUncertain(err)
}

func notStarted(cause error) error { return fmt.Errorf("%w: %w", ErrNotStarted, cause) }

func started(cause error) error { return fmt.Errorf("%w: %w", ErrStarted, cause) }
