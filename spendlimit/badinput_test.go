package spendlimit_test

import (
	"errors"

	"github.com/stint-go/stint/spendlimit"
)

// wantInvalid wants an *InvalidError that names this field.
func (f *fixture) wantInvalid(err error, field string) {
	f.Helper()
	var bad *spendlimit.InvalidError
	if !errors.As(err, &bad) || !errors.Is(err, spendlimit.ErrInvalid) {
		f.Errorf("got error %v, want an invalid %s", err, field)
		return
	}
	if bad.Field != field {
		f.Errorf("got %v, want an invalid %s", err, field)
	}
}
