package allocator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
)

// OwnerProber asks a system about its processes.
type OwnerProber interface {
	// Process tells what the system says of a pid, in the pid namespace of the calling process, at one moment of the call.
	//
	// Absent is a proof: at that moment no process, zombie or thread had this pid. Present means that one had it, be it the
	// holder or a later one; Start tells them apart, and is 0 where it is not known or can't be compared with what another
	// process saw. All else is PresenceUnknown: not permitted, not readable, a zombie (its other threads or its children may
	// still use what it held), a pid that is not one, a context that has ended, a system that can't tell.
	//
	// It is safe for concurrent use. An Absent or a Start that is wrong takes a lease from a live holder: what is not sure
	// has to be unknown.
	Process(ctx context.Context, pid int64) Process
}

// System returns the prober of the system that this program runs on. On Linux it reads /proc, which has to be that of
// this process's own pid namespace; elsewhere every answer is unknown.
//
// It trusts that equal boot ids mean one running kernel. Virtual machines resumed from one snapshot share theirs, and a
// process restored from a checkpoint has another start time than before: neither is to be judged by it.
func System() OwnerProber { return newSystem() }

// ThisProcess returns a holder with a new incarnation, so call it once in the life of a process. The 16 bytes are read from
// random; nil is crypto/rand. An error is that of random, or says that all bytes were zero.
//
// Boot, Namespace, PID and Start are those of this process as far as the system tells; what it does not tell is empty or
// 0, which proves nothing: then only time ends a lease. On Linux they are the kernel's random boot id, the inode of the
// pid namespace, and clock ticks since boot; Start is 0 in a time namespace of its own. Elsewhere all four are unknown. Host
// is empty: only an operator names it.
func ThisProcess(random io.Reader) (Holder, error) {
	if random == nil {
		random = rand.Reader
	}
	h := newSystem().self()
	if _, err := io.ReadFull(random, h.Incarnation[:]); err != nil {
		return Holder{}, fmt.Errorf("allocator: new incarnation: %w", err)
	}
	if h.Incarnation == (Incarnation{}) {
		return Holder{}, errors.New("allocator: new incarnation: the random bytes are all zero")
	}
	return h, nil
}
