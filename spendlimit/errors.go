package spendlimit

import (
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint/internal/fault"
)

// Sentinel errors; each has one meaning. Test with errors.Is.
//
// Decided: the ledger looked and said no. Nothing was written, asking again gives the same answer until something else changes.
var (
	// ErrDenied: a limit has no room (see [DeniedError] for which, and when to ask again).
	ErrDenied = errors.New("denied")
	// ErrUnpriced: cost without a known price stands in the way, or a model or usage has no price.
	ErrUnpriced = errors.New("unpriced")
	// ErrNoLimit: an account has no limit, and the ledger does not allow that.
	ErrNoLimit = errors.New("no limit")
	// ErrKeyReused: the id was used before with other content.
	ErrKeyReused = errors.New("key reused with other content")
	// ErrNotFound: no hold, limit or account has this name.
	ErrNotFound = errors.New("not found")
	// ErrDispatched: the hold's paid call may have left, so it can't be released.
	ErrDispatched = errors.New("dispatched")
	// ErrSettled, ErrReleased, ErrLapsed: the hold has ended so (see [EndedError]).
	ErrSettled  = errors.New("settled")
	ErrReleased = errors.New("released")
	ErrLapsed   = errors.New("lapsed")
	// ErrStale: the limit has changed since the given fingerprint (see [StaleError]).
	ErrStale = errors.New("stale")
	// ErrUnit: an amount or a request is in another unit than the ledger.
	ErrUnit = errors.New("wrong unit")
	// ErrOverflow: a number does not fit 64 bits.
	ErrOverflow = errors.New("overflow")
	// ErrPrecision: a number has more places than the unit.
	ErrPrecision = errors.New("too precise")
	// ErrInvalid: bad input (see [InvalidError] for the field).
	ErrInvalid = fault.ErrInvalid
)

// Phases of a store failure.
var (
	// ErrUnavailable: not applied; nothing was written.
	ErrUnavailable = fault.ErrUnavailable
	// ErrUncertain: maybe applied. Call again with the same id: the answer is the true one.
	ErrUncertain = fault.ErrUncertain
	// ErrSchema: the store's tables are missing, older or newer than this library.
	ErrSchema = fault.ErrSchema
	// ErrClosed: the store handle is closed.
	ErrClosed = fault.ErrClosed
)

// InvalidError names the field of a request that is wrong: Field, in the words of the request type, e.g. "Accounts[1]", and
// Reason, both strings. It unwraps to [ErrInvalid].
type InvalidError = fault.InvalidError

func invalid(field, format string, args ...any) error { return fault.Invalid(field, format, args...) }

// Reason says why a request was refused.
type Reason uint8

const (
	ReasonSpent     Reason = iota + 1 // used up by cost
	ReasonHeld                        // used up together with what others hold
	ReasonGroupFull                   // all slots of the group are taken
	ReasonUnpriced                    // cost without a known price stands in the period
	ReasonNoLimit                     // an account has no limit
	ReasonParent                      // the parent hold has no room
	ReasonQueued                      // a waiter was here first
	ReasonLease                       // a lease is to be renewed first (see [Lease.Sync])
)

var reasonNames = [...]string{"none", "spent", "held", "group full", "unpriced", "no limit", "parent", "queued", "lease not renewed"}

func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", r)
}

// DeniedError is a refusal. It is ErrDenied; with ReasonUnpriced also ErrUnpriced, with ReasonNoLimit also ErrNoLimit.
// A refusal wrote nothing and is not remembered: the same key may ask again.
type DeniedError struct {
	Reason    Reason
	Account   string    // with ReasonNoLimit and ReasonQueued: whose
	Parent    string    // with ReasonParent: the hold without room; also whose group is full, or for whose room others wait
	Binding   Balance   // the limit with the least room (R64); zero with ReasonNoLimit, ReasonParent, ReasonQueued and ReasonLease
	Exhausted []Balance // every limit with less room than the smallest useful grant
	Wanted    Amount    // 0: whatever is free
	Min       Amount    // the smallest useful grant
	// When to ask again. RetryAfter is a hint, above 0 unless Hopeless.
	ResetAt    time.Time // end of Binding's period; the zero time if it has none
	RetryAfter time.Duration
	WaitHolds  bool // the end of other holds can help
	WaitReset  bool // the next period can help
	Hopeless   bool // neither can
}

func (e *DeniedError) Error() string {
	u := e.Binding.Unit
	switch {
	case e.Account != "":
		return fmt.Sprintf("denied: %s: account %q", e.Reason, e.Account)
	case e.Parent != "":
		return fmt.Sprintf("denied: %s: hold %q", e.Reason, e.Parent)
	case e.Binding.Limit == "":
		return fmt.Sprintf("denied: %s", e.Reason)
	}
	return fmt.Sprintf("denied: %s: limit %q of account %q in %s: limit %s, spent %s, held %s, wanted %s, at least %s %s",
		e.Reason, e.Binding.Limit, e.Binding.Account, e.Binding.Period,
		u.Format(e.Binding.InForce), u.Format(e.Binding.Spent), u.Format(e.Binding.Held), u.Format(e.Wanted), u.Format(e.Min), u.Code)
}

// Is makes errors.Is see the sentinels.
func (e *DeniedError) Is(target error) bool {
	return target == ErrDenied ||
		target == ErrUnpriced && e.Reason == ReasonUnpriced ||
		target == ErrNoLimit && e.Reason == ReasonNoLimit
}

// EndedError says how a hold has ended. It is ErrSettled, ErrReleased or ErrLapsed.
type EndedError struct {
	Hold    string
	State   State
	Receipt Receipt // of the call that ended it
}

func (e *EndedError) Error() string { return fmt.Sprintf("hold %q is %s", e.Hold, e.State) }
func (e *EndedError) Unwrap() error { return e.State.endError() }

// StaleError says that a limit is not as expected. It is ErrStale.
type StaleError struct {
	Current string // the fingerprint in force; "" if there is no such limit
}

func (e *StaleError) Error() string {
	if e.Current == "" {
		return "stale: there is no such limit"
	}
	return fmt.Sprintf("stale: the limit's fingerprint is now %q", e.Current)
}
func (e *StaleError) Unwrap() error { return ErrStale }

// SchemaError says which schema a store has and which one it must have, as the numbers Have and Want. It is ErrSchema.
type SchemaError = fault.SchemaError
