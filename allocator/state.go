package allocator

import "fmt"

// The zero value of every state is unknown, which blocks. Numbers are what stores keep; text is what fingerprints hold.

// PoolStatus is the state of a pool.
type PoolStatus uint8

// The states of a pool.
const (
	PoolOpen     PoolStatus = iota + 1
	PoolDraining            // no new lease
	PoolDrained             // and none is left
)

// SlotStatus is the state of a slot.
type SlotStatus uint8

// The states of a slot.
const (
	SlotFree        SlotStatus = iota + 1
	SlotLeased                 // or offered
	SlotCooling                // kept out of use for a while after a reclaim
	SlotRetired                // its index is not below the capacity
	SlotQuarantined            // its row, or that of its lease, is damaged; never stored
)

// LeaseStatus is the state of a lease.
type LeaseStatus uint8

// The states of a lease. One whose time ran out is still live, as long as nobody ended it.
const (
	LeaseOffered LeaseStatus = iota + 1 // to the ticket of another process, which has ten seconds to claim it
	LeaseLive
	LeaseEnded
)

// Reason says why a lease ended. The last four are also the reasons of a Reclaim.
type Reason uint8

// The reasons.
const (
	ReasonReleased  Reason = iota + 1
	ReasonUnclaimed        // an offer that nobody took
	ReasonExpired          // not renewed in time
	ReasonMaxLease         // as old as a lease may get
	ReasonDeadOwner        // its holder is proved gone
	ReasonForced           // by an operator
)

// Verdict is what a probe says of a lease.
type Verdict uint8

// The verdicts. Only VerdictExpired and VerdictDead allow a Reclaim without force.
const (
	VerdictUnknown Verdict = iota
	VerdictLive
	VerdictExpired
	VerdictDead
)

// Owner says whose life a lease is bound to.
type Owner uint8

// The owners.
const (
	OwnerSelf Owner = iota // this process: once it is proved gone, the lease may be reclaimed
	OwnerNone              // nobody's: for a launcher that hands the work to a child. Only time ends the lease
)

var (
	poolStatusNames  = [...]string{"unknown", "open", "draining", "drained"}
	slotStatusNames  = [...]string{"unknown", "free", "leased", "cooling", "retired", "quarantined"}
	leaseStatusNames = [...]string{"unknown", "offered", "live", "ended"}
	reasonNames      = [...]string{"unknown", "released", "unclaimed", "expired", "max lease", "dead owner", "forced"}
	verdictNames     = [...]string{"unknown", "live", "expired", "dead"}
	ownerNames       = [...]string{"self", "none"}
)

func (s PoolStatus) String() string  { return nameOf(poolStatusNames[:], uint8(s)) }
func (s SlotStatus) String() string  { return nameOf(slotStatusNames[:], uint8(s)) }
func (s LeaseStatus) String() string { return nameOf(leaseStatusNames[:], uint8(s)) }
func (r Reason) String() string      { return nameOf(reasonNames[:], uint8(r)) }
func (v Verdict) String() string     { return nameOf(verdictNames[:], uint8(v)) }
func (o Owner) String() string       { return nameOf(ownerNames[:], uint8(o)) }

func nameOf(names []string, n uint8) string {
	if int(n) < len(names) {
		return names[n]
	}
	return fmt.Sprintf("unknown(%d)", n)
}

// VerifyStatus says whether an epoch may use a slot.
type VerifyStatus uint8

// The answers. Only VerifyCurrent is a yes.
const (
	VerifyUnknown VerifyStatus = iota
	VerifyCurrent
	VerifyLapsed // it is the last one granted, but its time is over
	VerifyStale  // it is not that of the slot's lease
)

func (s VerifyStatus) String() string {
	return nameOf([]string{"unknown", "current", "lapsed", "stale"}, uint8(s))
}
