//go:build unix

package allocatortest

import (
	"os"
	"syscall"
)

// lock takes the system's lock on a file, or fails at once.
func lock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
