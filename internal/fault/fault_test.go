package fault_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stint-go/stint/internal/fault"
)

func TestOrUncertain(t *testing.T) {
	t.Parallel()
	for _, phase := range []error{fault.ErrUnavailable, fault.ErrUncertain, fault.ErrClosed, fault.ErrSchema, &fault.SchemaError{Have: 1, Want: 2}} {
		err := fmt.Errorf("store: %w", phase)
		if got := fault.OrUncertain(err); got != err { //nolint:errorlint // the very one
			t.Errorf("%v became %v", err, got)
		}
	}
	for _, other := range []error{errors.New("broken"), fault.Invalid("Key", "empty")} {
		if got := fault.OrUncertain(other); !errors.Is(got, fault.ErrUncertain) || !errors.Is(got, other) {
			t.Errorf("%v became %v", other, got)
		}
	}
	if err := fault.OrUncertain(nil); err != nil {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err, is error
		text    string
	}{
		{fault.Invalid("Accounts[1]", "%d bytes", 3), fault.ErrInvalid, "invalid Accounts[1]: 3 bytes"},
		{&fault.SchemaError{Have: 1, Want: 2}, fault.ErrSchema, "wrong schema: have version 1, want 2"},
	} {
		if !errors.Is(test.err, test.is) || test.err.Error() != test.text {
			t.Errorf("%q, want %q that is %q", test.err, test.text, test.is)
		}
	}
}
