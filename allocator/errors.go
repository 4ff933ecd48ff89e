package allocator

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/fault"
)

// Sentinels. Each has one meaning; test with errors.Is.
//
// Decided: the allocator looked and said no. Nothing of the call was written.
var (
	// ErrFull: no room now (see [FullError] for why, and when that can change).
	ErrFull = errors.New("full")
	// ErrDraining: the pool gives out nothing, and renews nothing after its deadline.
	ErrDraining = errors.New("draining")
	// ErrHeldByOther: another process holds, or waits for, a lease for this attempt (see [HeldError]).
	ErrHeldByOther = errors.New("held by another process")
	// ErrAttemptMismatch: the attempt, or the id of an admin call, was used with other content (see [MismatchError]).
	ErrAttemptMismatch = errors.New("used before with other content")
	// ErrStale: what was looked at has changed (see [StaleError]).
	ErrStale = errors.New("stale")
	// ErrLost: the lease is over (see [LostError]).
	ErrLost = errors.New("lost")
	// ErrLapsed: the holder's own clock says that the lease may be over. The work must stop.
	ErrLapsed = errors.New("lapsed")
	// ErrTicketLost: the place in the queue is gone, because its deadline passed unseen. Ask again.
	ErrTicketLost = errors.New("ticket lost")
	// ErrNotReclaimable: the reason of a Reclaim can't be proved.
	ErrNotReclaimable = errors.New("not reclaimable")
	// ErrBusySlot: attributes can't change while the slot is in use.
	ErrBusySlot = errors.New("slot in use")
	// ErrConfigMismatch: the pool exists with another configuration (see [ConfigError]).
	ErrConfigMismatch = errors.New("other configuration")
	// ErrNotFound: the pool was not created.
	ErrNotFound = errors.New("not found")
	// ErrInvalid: bad input (see [InvalidError] for the field).
	ErrInvalid = fault.ErrInvalid
	// ErrFingerprintVersion: a fingerprint of a version that this release does not know.
	ErrFingerprintVersion = errors.New("unknown fingerprint version")
	// ErrCorrupt: a row that the call needs can't be read (see [DamageError]), or stored rows contradict each other (see [CorruptError]). Where
	// Check has found wrong counts, nothing is granted until it has repaired them.
	ErrCorrupt = errors.New("corrupt")
)

// Phases of a store failure.
var (
	// ErrUnavailable: not applied; nothing was written.
	ErrUnavailable = fault.ErrUnavailable
	// ErrUncertain: maybe applied. Call again with the same arguments: the answer is the true one.
	ErrUncertain = fault.ErrUncertain
	// ErrSchema: the store's tables are missing, older or newer than this library.
	ErrSchema = fault.ErrSchema
	// ErrClosed: the Pool, or the store handle, is closed.
	ErrClosed = fault.ErrClosed
)

// InvalidError names the field of a request that is wrong. It is ErrInvalid.
type InvalidError = fault.InvalidError

func invalid(field, format string, args ...any) error { return fault.Invalid(field, format, args...) }

// Shortage says what there is too little of.
type Shortage uint8

// The shortages.
const (
	ShortCapacity Shortage = iota + 1 // all slots are in use
	ShortGroup                        // the group has its maximum
	ShortQueue                        // others wait, or the queue is full
	ShortCooling                      // there would be room if no slot were cooling
	ShortExcess                       // more is in use than the capacity, after a Resize
)

var shortageNames = [...]string{"unknown", "capacity", "group", "queue", "cooling", "excess"}

func (s Shortage) String() string { return nameOf(shortageNames[:], uint8(s)) }

// FullError is a refusal for lack of room. It is ErrFull.
type FullError struct {
	Reason     Shortage
	Used       int // slots in use, cooling ones included
	Cooling    int
	Capacity   int
	Ahead      int       // tickets of the group that come first
	NextChange time.Time // when a lease ends or a slot is cool again if nobody does anything; the zero time if never
}

func (e *FullError) Error() string {
	text := fmt.Sprintf("full: %s: %d of %d slots used, %d of them cooling, %d waiting before", e.Reason, e.Used, e.Capacity, e.Cooling, e.Ahead)
	if !e.NextChange.IsZero() {
		text += ", next change at " + e.NextChange.Format(time.RFC3339Nano)
	}
	return text
}
func (e *FullError) Unwrap() error { return ErrFull }

// HeldError says that another incarnation holds, or waits for, a lease for the attempt. It is ErrHeldByOther.
type HeldError struct {
	Epoch   uint64  // of its lease; 0: it waits
	Verdict Verdict // what is known of it
}

func (e *HeldError) Error() string {
	if e.Epoch == 0 {
		return "held by another process: it waits in the queue"
	}
	return fmt.Sprintf("held by another process: epoch %d, %s", e.Epoch, e.Verdict)
}
func (e *HeldError) Unwrap() error { return ErrHeldByOther }

// MismatchError says in which fields a call differs from the earlier one with the same id. It is ErrAttemptMismatch.
type MismatchError struct{ Fields []string }

func (e *MismatchError) Error() string {
	return "used before with other content: " + strings.Join(e.Fields, ", ")
}
func (e *MismatchError) Unwrap() error { return ErrAttemptMismatch }

// StaleError says what is there now. It is ErrStale.
type StaleError struct {
	Epoch   uint64 // of the slot or lease now; 0: not known
	Seq     int64  // of the last renewal
	Version int64  // of the pool
}

func (e *StaleError) Error() string {
	switch {
	case e.Version > 0:
		return fmt.Sprintf("stale: the version is now %d", e.Version)
	case e.Seq > 0:
		return fmt.Sprintf("stale: the last renewal was %d", e.Seq)
	case e.Epoch > 0:
		return fmt.Sprintf("stale: the epoch is now %d", e.Epoch)
	}
	return "stale"
}
func (e *StaleError) Unwrap() error { return ErrStale }

// LostError says how a lease was lost. It is ErrLost.
type LostError struct {
	Reason       Reason // 0: nothing is known of the lease any more
	CurrentEpoch uint64 // of its first slot now; 0: not known
}

func (e *LostError) Error() string {
	text := "lost"
	if e.Reason != 0 {
		text += ": " + e.Reason.String()
	}
	if e.CurrentEpoch != 0 {
		text += fmt.Sprintf(", the slot's epoch is now %d", e.CurrentEpoch)
	}
	return text
}
func (e *LostError) Unwrap() error { return ErrLost }

// ConfigError says that a pool exists with another configuration. It is ErrConfigMismatch.
type ConfigError struct{ Have, Want Spec }

func (e *ConfigError) Error() string {
	return "other configuration: " + e.Have.text() + "; want " + e.Want.text()
}
func (e *ConfigError) Unwrap() error { return ErrConfigMismatch }

// DrainError says what is left when the deadline of a drain has passed. Nothing was killed. It is ErrDraining.
type DrainError struct{ Left []LeaseState }

func (e *DrainError) Error() string {
	if len(e.Left) == 0 {
		return "draining: no lease is left, but slots that cool or can't be read"
	}
	return fmt.Sprintf("draining: %d leases are left", len(e.Left))
}
func (e *DrainError) Unwrap() error { return ErrDraining }

// CorruptError names a number that is not what the rows say, or, where the two are equal, a counter that can't go on. It is ErrCorrupt.
type CorruptError struct {
	What           string
	Stored, Actual int64
}

func (e *CorruptError) Error() string {
	if e.Stored == e.Actual {
		return fmt.Sprintf("corrupt: %s is %d, and can't go on", e.What, e.Stored)
	}
	return fmt.Sprintf("corrupt: %s is %d, the rows say %d", e.What, e.Stored, e.Actual)
}
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// DamageError names a stored row that can't be read, or does not fit the others. It is ErrCorrupt.
type DamageError struct {
	Table string // RawSlot, RawLease or RawTicket
	Key   string // index, epoch or seq
	Field string // what is wrong; "row": there is none
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("corrupt: %s %s can't be read: %s", e.Table, e.Key, e.Field)
}
func (e *DamageError) Unwrap() error { return ErrCorrupt }
