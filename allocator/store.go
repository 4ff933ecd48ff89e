package allocator

import (
	"context"
)

// Store keeps the rows of pools and makes steps on them atomic. It holds no rules: everything it is told to write was decided by
// this package. Adapters are in adapters/; docs/adapters.md tells how to write one, and allocatortest has the suite that it must pass.
//
// A Store is safe for concurrent use.
type Store interface {
	// Step locks the pool's row, reads the clock, loads what n asks for into an empty Set, hands it to f, and writes the Set's
	// Changes: all of them, or nothing. The pool is the lock unit: steps of one pool never overlap.
	//
	// clock is Unix microseconds, read once after the pool is locked. f is pure and may be called again on rows that were loaded
	// afresh; what earlier calls put into their Set is thrown away. When f returns an error nothing is written, and Step
	// returns that error unchanged. Failures of the store wrap ErrUnavailable when nothing was applied and ErrUncertain when the
	// commit may have been; ErrClosed and ErrSchema say so.
	Step(ctx context.Context, n Need, f func(clock int64, s *Set) error) error
	// Page reads one page of a list, as of one moment. It locks nothing. A pool that does not exist has a nil Rows.Pool.
	Page(ctx context.Context, q Query) (Rows, error)
}

// Need names the rows of a step; its slices are valid during the step only, and names may repeat. The pool's own row is always
// needed. A group that is named by any row, or in Groups, is needed too if it has a row. Where rows are asked for in an order of time,
// those of the same time go by key. The slots of a lease that can't be read are not known, and not needed.
type Need struct {
	Pool     string
	ReadOnly bool // nothing will be written: a consistent view is enough, without locks

	Attempts []string   // live and offered leases of these attempts, with their slots, and their tickets
	Epochs   []uint64   // leases with these epochs, ended ones too, with their slots
	Slots    []int      // these slots, each with the lease of its epoch where it is leased
	Groups   []GroupKey // these groups

	// Timely asks for what may be over: offers with ExpiresUS < now, tickets with DeadlineUS < now, cooling slots with CoolUS < now, the
	// earliest first, at most MaxTimely of each, with the slots of the offers. Where the pool's own counts are 0 there is nothing to
	// look for. Each of these is a candidate only: f judges.
	Timely bool
	// Due asks for live leases with ExpiresUS < now or AcquiredUS < now − the policy's MaxLease, at most so many of each kind,
	// the earliest first, with their slots.
	Due int
	// Free asks for so many free slots, those with the lowest index.
	Free int
	// Heads asks for the first tickets of every group that has some: so many of each, by seq. Where the pool's Waiting is 0 there are none.
	Heads int
	// Next asks for the live or offered lease that expires first and the cooling slot that is cool first.
	Next bool
	// Purge asks for leases that ended before now − the policy's Keep, at most so many, the earliest first.
	Purge int
	// Incarnation asks for all live and offered leases, with their slots, and all tickets of a holder, if it is not zero.
	Incarnation Incarnation
	// All asks for every slot, every live and offered lease, every ticket and every group.
	All bool
}

// MaxTimely bounds what Need.Timely asks for.
const MaxTimely = 1000

// reset empties n and keeps its slices for the next step.
func (n *Need) reset(pool string) {
	*n = Need{Pool: pool, Attempts: n.Attempts[:0], Epochs: n.Epochs[:0], Slots: n.Slots[:0], Groups: n.Groups[:0]}
}

// Query asks for a page of a list, in ascending order. Rows that can't be read are Raws, and count (a group's can't be one); slots and leases of QueryChanges
// count together.
type Query struct {
	Pool  string
	Kind  QueryKind
	After int64    // epoch, seq or rev after which to go on
	Group GroupKey // groups: after this one
	Max   int      // at most 1,000
	// Whose leases QueryOwned lists: those with this boot and namespace, if neither is "", and those with this host if it is not "".
	Boot, Namespace, Host string
}

// QueryKind is the list that a Query reads.
type QueryKind uint8

// The lists.
const (
	QueryLive    QueryKind = iota + 1 // live and offered leases, by epoch
	QueryLeases                       // all leases, ended ones too, by epoch
	QueryOwned                        // live leases whose holder is named in the Query, by epoch
	QueryTickets                      // by seq
	QueryGroups                       // by key, in byte order
	QueryChanges                      // slots and leases with rev > After, by rev
)

// Rows is an answer to a Query: rows that nobody changes. More tells that the list goes on.
type Rows struct {
	Pool    *PoolRow
	Slots   []*SlotRow
	Leases  []*LeaseRow
	Tickets []*TicketRow
	Groups  []*GroupRow
	Raws    []*Raw
	More    bool
}

// The rows. A row that a step was given is never changed by it: what a step changes is a new row. A store may use rows of the pool, of groups and of
// slots again after the step (see [Set.Recycle]). All times are Unix microseconds in
// UTC, all durations microseconds. Rev is a number of the pool that every changed row gets anew, so that no two changes have the same one.

// PoolRow is the lock unit, and the source of every epoch.
type PoolRow struct {
	Name      string
	Version   int64 // counts what operators change
	Capacity  int   // 0 to 10,000; 0 is closed
	Status    PoolStatus
	DrainUS   int64 // deadline of a drain; 0: none
	Policy    Policy
	EpochSeq  uint64 // the last epoch given out; never falls
	TicketSeq int64
	Rev       int64
	PurgedRev int64 // the highest Rev of a lease that was purged
	SeenUS    int64 // now of the last step that wrote
	JumpUS    int64 // until when nothing is judged by time, after the clock jumped
	Blocked   bool  // Check found wrong counts: no grants until they are repaired

	// Counts of what rows there are.
	Slots   int // known slots: 0 to Slots−1
	Used    int // leased, offered, cooling and quarantined slots
	Cooling int
	Offered int // leases
	Waiting int // tickets
	Groups  int // group rows

	Admin *AdminRow // the last change by an operator; nil: none yet. It never changes
}

// AdminRow remembers the last admin call, so that a retry gets its answer.
type AdminRow struct {
	ID     string
	Digest [32]byte // of the content
	Answer PoolState
}

// GroupRow is one group.
type GroupRow struct {
	Key     GroupKey
	Listed  bool // by the pool's Spec; others come and go
	Weight  int64
	Min     int
	Max     int // −1: no limit
	Used    int // leased and offered slots
	Waiting int // tickets
	Rev     int64
}

// SlotRow is one slot.
type SlotRow struct {
	Index  int
	Attrs  []Label // by key
	Status SlotStatus
	Epoch  uint64 // of its last grant; where it is leased, the epoch of that lease
	CoolUS int64  // until when it cools
	Rev    int64
}

// Label is one pair of labels or attributes.
type Label struct{ Key, Value string }

// Params is what a lease was asked for. A retry must ask for the same.
type Params struct {
	Group  GroupKey
	Units  int
	TTLUS  int64 // 0: the pool's
	MaxUS  int64 // longest life; 0: the pool's
	Owner  Owner
	Labels []Label // by key
}

// LeaseRow is one lease. ID, Slots, Epoch, Attempt, Params and Holder never change.
type LeaseRow struct {
	ID      LeaseID
	Epoch   uint64 // its key in the pool
	Slots   []int  // ascending
	Status  LeaseStatus
	Attempt string
	Params  Params
	Holder  Holder

	AcquiredUS int64
	TTLUS      int64
	ExpiresUS  int64
	MaxUS      int64 // ExpiresUS never goes beyond
	RenewSeq   int64
	Renewed    RenewRow // the answer to the renewal with RenewSeq

	End EndRow // zero until it ended
	Rev int64
}

// RenewRow is the answer to a renewal.
type RenewRow struct {
	ExpiresUS int64
	LeftUS    int64
	Lapsed    bool
}

// EndRow says how a lease ended.
type EndRow struct {
	Reason   Reason
	AtUS     int64
	By       string   // the operator's note of Forced
	Evidence [32]byte // sum of the fingerprint that was judged; zero where nobody had to judge
}

// TicketRow is a place in the queue of a group.
type TicketRow struct {
	Seq        int64
	Attempt    string
	Params     Params
	Holder     Holder
	DeadlineUS int64
	Rev        int64
}

// Raw is a row that can't be read, or breaks a rule that every row keeps: it is listed and counts as used, and its stored bytes stay
// as they are.
type Raw struct {
	Table   string // "slot", "lease" or "ticket"
	Index   int    // of the slot
	Epoch   uint64 // of the lease
	Seq     int64  // of the ticket
	Key     string // Index, Epoch or Seq in decimal
	Field   string // what is wrong with it
	Columns []RawColumn
	Rev     int64
}

// RawColumn is one stored value.
type RawColumn struct {
	Name  string
	Type  string // "int", "text", "blob" or "null"
	Value []byte // of "int": 8 bytes, big-endian
}

// The tables of a Raw.
const (
	RawSlot   = "slot"
	RawLease  = "lease"
	RawTicket = "ticket"
)

// Now is the time of a step: it never goes back within a pool (R14).
func (p *PoolRow) Now(clock int64) int64 { return max(clock, p.SeenUS) }
