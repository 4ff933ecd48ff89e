//go:build !unix

package allocatortest

import (
	"errors"
	"os"
)

func lock(*os.File) error { return errors.ErrUnsupported }
