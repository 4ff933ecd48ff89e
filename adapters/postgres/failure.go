package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/internal/fault"
)

// unavailable says of a failure that nothing was applied.
func unavailable(err error) error {
	if err == nil || fault.HasPhase(err) || errors.Is(err, fault.ErrInvalid) || errors.Is(err, sqlrow.ErrGrew) {
		return err
	}
	switch code(err) {
	case "22012": // see exactly
		return fmt.Errorf("%w: %w: %w", fault.ErrUnavailable, sqlrow.ErrChanged, err)
	case "42P01", "42703", "3F000": // table, column, schema is missing
		return errors.Join(fault.ErrSchema, err)
	}
	return errors.Join(fault.ErrUnavailable, err)
}

// code is the SQLSTATE of an error, if the server sent it.
func code(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Tries of a step that loses against others.
const maxTries = 8

// again tells whether the n-th try of a step, from 0 on, surely was not applied and may succeed now, and waits a little before.
func (d *DB) again(ctx context.Context, n int, err error) bool {
	if n+1 >= maxTries || errors.Is(err, fault.ErrUncertain) {
		return false
	}
	code := code(err)
	switch {
	case code == "40001", code == "40P01": // serialization, deadlock
	case code == "23505": // two processes made the same row
		d.ids.forget()
	case errors.Is(err, sqlrow.ErrGone): // somebody pruned it, or the rows are damaged
		if n > 1 {
			return false
		}
	case code == "0A000": // the tables were changed under a prepared statement, which pgx makes anew
		if n > 0 {
			return false
		}
	default:
		return false
	}
	most := time.Duration(min(250, 20<<n)) * time.Millisecond
	timer := time.NewTimer(most/2 + rand.N(most/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
