package spendlimit

import (
	"context"
	"fmt"
	"time"
)

// Request asks for a hold: money set aside for one piece of work.
type Request struct {
	// Key names the hold for ever. A retry with the same key and content returns the same hold; a new attempt takes a new key.
	Key string
	// Accounts that pay, at most 16; each must admit the hold, all or nothing. For a child: accounts beyond its ancestors'.
	Accounts []string
	// Amount is what is wanted. Min is the smallest useful grant; 0 means all or nothing.
	Amount, Min Amount
	// Rest asks for whatever is free (Amount 0), at least Min.
	Rest bool
	// Free asks for a hold of nothing, which is granted on a used-up limit too (Amount and Min 0).
	Free bool
	// Split asks for an even share; Amount, when not 0, caps it.
	Split Split
	// Parent is the key of the hold to take the room from.
	Parent string
	// TTL is the time after which the hold lapses unless extended: 1 s to 24 h, 0 is 10 minutes.
	TTL time.Duration
	// Labels and Price are stored with the hold and are part of what the key stands for. Price holds the rates that a later
	// settle uses (package price encodes them), at most 4 KiB.
	Labels map[string]string
	Price  string
	// Unit, when not "", must be the code of the ledger's unit.
	Unit string
}

// Split names a group of holds that share evenly: a member gets available / (Slots − live members in the same period),
// rounded down, so that the parts add up to the whole in any order (R18).
type Split struct {
	Group string
	Slots int // 1 to 4096; the same for all live members
}

// State is where a hold is in its life. The zero State is no state.
type State uint8

const (
	Open            State = iota + 1
	Dispatched            // the paid call may have left
	Settled               // the true cost is known
	SettledUnpriced       // counted at the hold; the true cost may follow
	Released              // nothing was spent
	LapsedFree            // ran out of time while open: room returned
	LapsedCharged         // ran out of time while dispatched: counted as spent at the hold; the true cost may follow
)

var stateNames = [...]string{"none", "open", "dispatched", "settled", "settled-unpriced", "released", "lapsed-free", "lapsed-charged"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", s)
}

// Live tells whether a hold in this state still holds money.
func (s State) Live() bool { return s == Open || s == Dispatched }

// endError is the sentinel of an ended state.
func (s State) endError() error {
	switch s {
	case Settled, SettledUnpriced:
		return ErrSettled
	case Released:
		return ErrReleased
	default:
		return ErrLapsed
	}
}

// Cost is what a piece of work cost. Make one with Total, Recorded or Unknown; the zero Cost is invalid.
type Cost struct {
	kind   costKind
	amount Amount
	reason string
	// Metered counts the tokens or requests that were used. A cost of 0 for Metered > 0 is booked, and reported as
	// AnomalyZeroCost unless ZeroPrice says that the price is declared to be 0 (R48).
	Metered   int64
	ZeroPrice bool
	Source    Source
}

type costKind uint8

const (
	costTotal costKind = iota + 1
	costRecorded
	costUnknown
)

// Total is a known cost: in Settle, of the hold itself with its Records but without its children; in Record, of the usage.
func Total(a Amount) Cost { return Cost{kind: costTotal, amount: a} }

// Recorded settles at what was recorded.
func Recorded() Cost { return Cost{kind: costRecorded} }

// Unknown is a cost that nobody knows yet: it counts at the hold, never as zero. The reason is text of 1 to 256 bytes.
func Unknown(reason string) Cost { return Cost{kind: costUnknown, reason: reason} }

// Source says where a cost comes from.
type Source uint8

const (
	Computed Source = iota // from usage and rates
	Reported               // by the provider itself
)

func (s Source) String() string {
	if s == Reported {
		return "reported"
	}
	return "computed"
}

// Option refines the end of a hold.
type Option uint8

const (
	// Late settles a hold that was released: its true cost became known after all.
	Late Option = 1 << iota
	// NotSpent releases a dispatched hold: the caller knows that the paid call never left.
	NotSpent
	// Tree also releases the open descendants; dispatched ones stay.
	Tree
)

// Usage is a part of a hold's cost, counted once per ID.
type Usage struct {
	Hold string
	ID   string
	Cost Cost // Total or Unknown
	// Cumulative says that Cost is the cost so far of this ID: higher adds the difference, equal or lower changes nothing.
	Cumulative bool
	Labels     map[string]string
}

// Extension gives a hold more time and, with Roll, moves what is left of it into the current periods.
type Extension struct {
	Hold string
	TTL  time.Duration // from now; 0 is 10 minutes
	// Roll needs an ID. Min is the smallest useful amount in the current periods; 0 means all that is left.
	Roll bool
	ID   string
	Min  Amount
}

// Growth asks for more room in a hold.
type Growth struct {
	Hold    string
	ID      string
	By, Min Amount // Min 0 means all of By
}

// Shrinkage gives back part of a hold's own room.
type Shrinkage struct {
	Hold string
	ID   string
	By   Amount
}

// Expense is a cost without a hold. It is never refused for lack of room.
type Expense struct {
	ID       string
	Accounts []string
	Cost     Cost      // Total
	At       time.Time // the zero time is now; not in the future
	Labels   map[string]string
}

// Adjustment is a signed correction. It is booked in the period of Account that contains At (zero: now), or in the periods of Hold.
type Adjustment struct {
	ID      string
	Account string // with Hold: only this account's periods; "" is all of the hold's
	At      time.Time
	Hold    string
	By      Amount // not 0
	Reason  string // 1 to 256 bytes
}

// Receipt is the answer to a call that moved money. Amounts are of that call.
type Receipt struct {
	Cost         Amount // the cost that the call was about, where it is known
	Granted      Amount // room gained by a grow, or moved by a roll
	Returned     Amount // room that went back to the parent or the limits
	Excess       Amount // true cost that neither the hold nor its ancestors covered
	Overrun      Amount // the largest part of it for which a limit had no room
	Assumed      Amount // cost counted without knowledge
	Own          Amount // what the hold has left
	LiveChildren int
	Late         bool // the hold had ended before
	Unpriced     bool // the true cost is still to come
	Replayed     bool // the same call was answered before; this is the first answer
	Anomaly      Anomaly
	Source       Source
	Crossed      []Crossing
	Revision     int64 // seq of the entry on the first of the accounts, in byte order of their names
}

// Anomaly marks a cost that looks wrong but was booked.
type Anomaly uint8

const (
	NoAnomaly       Anomaly = iota
	AnomalyZeroCost         // metered usage with a cost of 0
)

// Crossing is a threshold that was reached.
type Crossing struct {
	Account, Limit string
	Period         string
	Start          time.Time
	Threshold      Threshold
}

// Binding names what cut a grant: a limit of an account, or the parent's room. The zero Binding: nothing did.
type Binding struct{ Account, Limit, Parent string }

// Hold is a handle on a hold, with its state as of the call that returned it. Its methods are those of [Ledger]
// that take a key; they do not change the fields. Safe for concurrent use.
type Hold struct {
	Key       string
	Parent    string
	Accounts  []string // its own, in byte order
	State     State
	Granted   Amount
	Own       Amount // room neither spent, nor given to live children, nor returned
	Recorded  Amount // known cost
	Assumed   Amount // cost counted without knowledge
	Group     string
	Slots     int
	Labels    map[string]string
	Price     string
	Binding   Binding
	CreatedAt time.Time
	ExpiresAt time.Time // lives up to and including this instant
	EndedAt   time.Time
	Replayed  bool
	Crossed   []Crossing
	Revision  int64 // seq of its reserve entry on the first account in byte order

	ledger  *Ledger
	account [1]string // where Accounts are, when there is one, as in most holds
}

// Dispatch says that the paid call is about to leave. No answer, or an error: don't send (R40).
func (h *Hold) Dispatch(ctx context.Context) error {
	if !h.usable() {
		return errNilHold
	}
	return h.ledger.Dispatch(ctx, h.Key)
}

// Record books a part of the cost; u.Hold is set to this hold. See [Ledger.Record].
func (h *Hold) Record(ctx context.Context, u Usage) (Receipt, error) {
	if !h.usable() {
		return Receipt{}, errNilHold
	}
	u.Hold = h.Key
	return h.ledger.Record(ctx, u)
}

// Settle ends the hold with its true cost. See [Ledger.Settle].
func (h *Hold) Settle(ctx context.Context, c Cost, opts ...Option) (Receipt, error) {
	if !h.usable() {
		return Receipt{}, errNilHold
	}
	return h.ledger.Settle(ctx, h.Key, c, opts...)
}

// Release ends the hold unspent. See [Ledger.Release].
func (h *Hold) Release(ctx context.Context, opts ...Option) (Receipt, error) {
	if !h.usable() {
		return Receipt{}, errNilHold
	}
	return h.ledger.Release(ctx, h.Key, opts...)
}

// Close ends the hold if it has not ended: open is released, dispatched is charged at the hold. Made for defer.
func (h *Hold) Close(ctx context.Context) error {
	if !h.usable() {
		return errNilHold
	}
	return h.ledger.Close(ctx, h.Key)
}

// Extend gives the hold more time; e.Hold is set to this hold. See [Ledger.Extend].
func (h *Hold) Extend(ctx context.Context, e Extension) (Receipt, error) {
	if !h.usable() {
		return Receipt{}, errNilHold
	}
	e.Hold = h.Key
	return h.ledger.Extend(ctx, e)
}

// Grow asks for more room; g.Hold is set to this hold. See [Ledger.Grow].
func (h *Hold) Grow(ctx context.Context, g Growth) (Receipt, error) {
	if !h.usable() {
		return Receipt{}, errNilHold
	}
	g.Hold = h.Key
	return h.ledger.Grow(ctx, g)
}

// Shrink gives back room; s.Hold is set to this hold. See [Ledger.Shrink].
func (h *Hold) Shrink(ctx context.Context, s Shrinkage) (Receipt, error) {
	if !h.usable() {
		return Receipt{}, errNilHold
	}
	s.Hold = h.Key
	return h.ledger.Shrink(ctx, s)
}

var errNilHold = invalid("Hold", "nil, or not from a Ledger")

func (h *Hold) usable() bool { return h != nil && h.ledger != nil }

// Offer is what a Reserve would grant.
type Offer struct {
	Amount    Amount
	Binding   Binding
	ExpiresAt time.Time
}

// Entry is one journal row: what one command did to one account.
type Entry struct {
	Account  string
	Seq      int64 // 1, 2, 3 … per account, without gaps
	At       time.Time
	Kind     EntryKind
	Ref      string // hold key, usage id or limit name
	Hold     string // the hold, when Ref is a usage id
	Reason   string
	Source   Source
	Labels   map[string]string
	Spent    Amount // change of what the account spent
	Held     Amount // change of what it holds
	Postings []LimitPosting
	Unit     Unit
}

// LimitPosting is an entry's change of one period of one limit.
type LimitPosting struct {
	Limit  string
	Period string // label
	Start  time.Time
	Spent  Amount
	Held   Amount
	// Overrun is what this entry added to the period's overrun.
	Overrun Amount
}

// EntryKind is the kind of a journal row.
type EntryKind uint8

const (
	EntryReserve EntryKind = iota + 1
	EntryDispatch
	EntryRecord
	EntrySettle
	EntryLate
	EntryRelease
	EntryLapse
	EntryExtend
	EntryGrow
	EntryShrink
	EntryRoll
	EntryCharge
	EntryAdjust
	EntryLimit
	EntryCarry
)

var entryNames = [...]string{"none", "reserve", "dispatch", "record", "settle", "late", "release", "lapse", "extend", "grow", "shrink", "roll", "charge", "adjust", "limit", "carry"}

func (k EntryKind) String() string {
	if int(k) < len(entryNames) {
		return entryNames[k]
	}
	return fmt.Sprintf("EntryKind(%d)", k)
}

// HoldFilter selects holds to list. The zero filter is all of them.
type HoldFilter struct {
	Account string // on this account, its own or inherited
	Live    bool   // only those that still hold money
}
