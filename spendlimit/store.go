package spendlimit

import (
	"context"
	"slices"
	"time"
)

// Store keeps the rows of ledgers and makes steps on them atomic. It holds no rules: everything it is told to
// write was decided by this package. Adapters are in adapters/; docs/adapters.md tells how to write one, and
// spendlimittest has the suite that it must pass.
//
// A Store is safe for concurrent use.
type Store interface {
	// Step loads the closed set of rows that n needs, locks it, hands it to f and writes what f changed:
	// all of it, or nothing. The lock unit is the account row; accounts are locked in byte order of their names (C2, C3).
	//
	// now is Unix microseconds, read once after the locks, and never below LastUS of a locked account (C5).
	// f is pure and may be called again on fresh rows. When f returns an error, nothing is written and Step
	// returns that error unchanged. Failures of the store itself wrap ErrUnavailable when nothing was applied and
	// ErrUncertain when the commit may have been (C6); ErrClosed and ErrSchema say so.
	Step(ctx context.Context, n Need, f func(now int64, w *Work) error) error
	// Read returns one page of a list. It locks nothing.
	Read(ctx context.Context, q Query) (Page, error)
}

// Bounds of what a step loads per account.
const (
	MaxDue      = 1000 // lapsed holds; when there are more, the ledger ends those first
	MaxExpiring = 256  // live holds that a refusal looks at for its retry hint (R66)
)

// Need names the rows of a step; its slices are valid during the step only. Names may repeat. A hold brings its
// ancestors and their accounts; an account brings its limits, the periods around now and around Times, and its due holds
// with all that these need.
type Need struct {
	Ledger   string
	ReadOnly bool // f's changes are to be discarded; locks are not needed, a consistent view is
	Accounts []string
	Holds    []string
	Usages   []UsageID
	Groups   []string // the live members of these groups on every account of the step
	Trees    []string // holds whose live descendants are needed, with all that these need
	Times    []int64  // instants besides now: per limit the last period that starts at or before it, and the next one
	// All names accounts of which all holds (own or inherited), with all that the live ones need, and all periods are
	// needed, those of earlier generations too.
	All []string
	// Periods names accounts of which all periods of the limits in force are needed.
	Periods []string
	// Journal names accounts of which entries are needed.
	Journal []JournalNeed
	// Expiring names accounts of which the live holds (own or inherited) that end first are needed, at most MaxExpiring each.
	Expiring []string
	// Prune names accounts of which the oldest entries and ended holds are needed.
	Prune []PruneNeed
}

// reset empties n, and keeps its slices for the next step.
func (n *Need) reset(ledger string) {
	n.Ledger = ledger
	n.Accounts, n.Holds = n.Accounts[:0], n.Holds[:0]
	n.Usages, n.Groups = n.Usages[:0], n.Groups[:0]
	n.Trees, n.Times = n.Trees[:0], n.Times[:0]
	n.All, n.Periods, n.Journal, n.Expiring, n.Prune = nil, nil, nil, nil, nil
}

// JournalNeed asks for the entries of an account that were written at now − Span or later, Span in microseconds.
type JournalNeed struct {
	Account string
	Span    int64
}

// PruneNeed asks for the longest prefix of an account's journal with At < Before, and for the holds on the account
// (own or inherited) that ended before it, have no marks, and are no stored hold's parent; at most Max of each.
type PruneNeed struct {
	Account string
	Before  int64
	Max     int
}

// Query asks for a page of a list, in ascending order.
type Query struct {
	Ledger  string
	Kind    QueryKind
	Account string // holds: "" is all accounts, else own or inherited
	Live    bool   // holds: only open and dispatched rows, as stored
	// Where to go on: after this key, or this seq.
	AfterKey string
	AfterSeq int64
	Max      int
}

// QueryKind is the list that a Query reads.
type QueryKind uint8

const (
	QueryHolds   QueryKind = iota + 1 // keys of holds, by key
	QueryDue                          // keys of live holds with ExpiresUS < now on any account, by (ExpiresUS, key); no paging
	QueryEntries                      // entries of one account, by seq
)

// Page is an answer to a Query: copies that nobody else changes. More tells that the list goes on.
type Page struct {
	Keys    []string
	Entries []EntryRow
	More    bool
}

// The rows. Rows point at each other; what an adapter stores in place of a pointer is the key of the row it
// points to. Times are Unix microseconds UTC.

// LedgerRow says what a ledger counts; it is stored at first use.
type LedgerRow struct {
	Name string
	Unit Unit
}

// AccountRow is the lock unit of a ledger.
type AccountRow struct {
	Name   string
	Seq    int64 // of its last entry; entries count 1, 2, 3 …
	LastUS int64 // now of the last step that wrote it; never falls
	Pruned int64 // entries up to this Seq are gone

	Limits []*LimitRow // the newest generation of each name, removed ones included, by name
	Due    []*HoldRow  // live holds on this account (own or inherited) with ExpiresUS < now, by (ExpiresUS, Key), at most MaxDue
	More   bool        // there are more due holds than MaxDue
	Ext    any         // the adapter's own
	mark   uint64
}

// LimitRow is one generation of a limit: removing and creating it again makes a new one.
type LimitRow struct {
	Account *AccountRow
	Gen     int64
	Limit   Limit // Account and Name included; normalised: no zero means a default
	Rev     int64 // counts changes
	Print   string
	Prev    string // the fingerprint before the last change
	SinceUS int64  // when this generation was created
	PinUS   int64  // end of the period in which the calendar last changed; the next one starts there at the earliest (R9)
	HeldAll Amount // Σ Held over all its periods while it has CarryHolds, else 0
	Removed bool

	Periods []*PeriodRow // those loaded, by start
	zone    *time.Location
	mark    uint64
}

// PeriodRow is one period of one limit, with its running totals.
type PeriodRow struct {
	Limit        *LimitRow
	Start, End   int64 // [Start, End)
	Label        string
	Mode         Mode
	Lim          Amount // in force: amount, raise, carried in, less carried out
	Raise        Amount // the part of Lim that ends at RaiseUS
	RaiseUS      int64
	Spent, Held  Amount
	Overrun, Cut Amount
	CarryIn      Amount
	CarryOut     Amount
	Assumed      Amount // the part of Spent that is counted without knowledge
	Unpriced     int64  // unpriced holds and usages with a line on this period
	Fired        []Threshold
	// The totals of pruned entries.
	BaseSpent, BaseHeld, BaseOverrun Amount
	mark                             uint64
}

// Plain returns a copy of l that leads to no other row and was in no Work: what a store may keep from one step to the next.
func (l *LimitRow) Plain() LimitRow {
	p := *l
	p.Account, p.Periods, p.mark = nil, nil, 0
	return p
}

// Plain is like [LimitRow.Plain].
func (p *PeriodRow) Plain() PeriodRow {
	q := *p
	q.Limit, q.mark = nil, 0
	return q
}

// Plain is like [LimitRow.Plain]; More and Assumes, which lead to other rows, are left out.
func (h *HoldRow) Plain() HoldRow {
	p := *h
	p.Parent, p.Accounts, p.Part.Lines, p.More, p.Assumes, p.Ext, p.mark = nil, nil, nil, nil, nil, nil, 0
	return p
}

// Part is the share of an anchor's room that counts against one set of periods.
type Part struct {
	At    int64 // when it was granted
	Left  Amount
	Lines []*PeriodRow // never changed in place
}

// Assumption says which part of which anchor an assumed cost was counted on.
type Assumption struct {
	Anchor *HoldRow
	Part   int
	Amount Amount
}

// HoldRow is one hold. An anchor (a hold with Accounts) has parts; a child without accounts of its own has none.
type HoldRow struct {
	Key      string
	Parent   *HoldRow
	Accounts []*AccountRow // own: the root's, or those that a child added; by name; never changed
	// The rest of what the key stands for.
	Amount, Min Amount
	Rest, Free  bool
	Group       string
	Slots       int
	TTL         int64 // microseconds
	Labels      []Label
	Price       string

	State     State
	Granted   Amount // at Reserve
	Grown     Amount
	Received  Amount // returned by descendants
	Own       Amount // room neither spent, nor given to live children, nor returned
	Recorded  Amount // known cost so far
	Carved    Amount // given to children
	Covered   Amount // costs that this hold's room paid for
	Returned  Amount
	Assumed   Amount // counted without knowledge, now
	EndOwn    Amount // own at its end
	EndCharge Amount // the part of EndOwn that was counted as assumed at its end
	Open      int    // unpriced usages
	Marks     int    // unpriced holds and usages at and below this hold
	Children  int    // live children
	Depth     int    // 1 for a root
	ExpiresUS int64
	BornUS    int64
	EndedUS   int64
	Seq       int64 // of its reserve entry on its first account
	Binding   Binding
	Receipt   Receipt // of the call that ended it

	Part    Part   // the first part
	More    []Part // later ones
	Assumes []Assumption
	Ext     any // the adapter's own
	mark    uint64
}

// Label is one pair of a hold's labels.
type Label struct{ Key, Value string }

// UsageID names a usage: a Record, Grow, Shrink or Roll of a hold, or a Charge or Adjust (Hold is then empty).
type UsageID struct{ Hold, ID string }

// UsageRow remembers one usage id.
type UsageRow struct {
	UsageID
	Kind     EntryKind
	Content  [32]byte // digest of what the id stands for
	Cost     Amount   // so far
	Unpriced bool
	Receipt  Receipt // the answer to the call that last changed it
	mark     uint64
}

// EntryRow is one journal row: what one command did to one account. Never changed.
type EntryRow struct {
	Account  *AccountRow
	Seq      int64
	At       int64
	Kind     EntryKind
	Source   Source
	Ref      string // hold key, usage id or limit name
	Hold     string // the hold, when Ref is a usage id
	Reason   string
	Labels   []Label
	Postings []Posting
}

// Posting is a change of one period. With a nil Period it is the account's own total, counted at the instant When:
// from these a limit that comes later is backfilled.
type Posting struct {
	Period  *PeriodRow
	When    int64
	Spent   Amount
	Held    Amount
	Overrun Amount
}

// Detach returns a copy that shares nothing with rows that may still change.
func (e EntryRow) Detach() EntryRow {
	e.Account = &AccountRow{Name: e.Account.Name}
	e.Postings = slices.Clone(e.Postings)
	for i := range e.Postings {
		p := e.Postings[i].Period
		if p == nil {
			continue
		}
		l := &LimitRow{Account: e.Account, Gen: p.Limit.Gen, Limit: Limit{Account: e.Account.Name, Name: p.Limit.Limit.Name}}
		e.Postings[i].Period = &PeriodRow{Limit: l, Start: p.Start, End: p.End, Label: p.Label}
	}
	return e
}

// On tells whether an account of this name pays for h, itself or through an ancestor.
func (h *HoldRow) On(account string) bool {
	for z := h; z != nil; z = z.Parent {
		for _, a := range z.Accounts {
			if a.Name == account {
				return true
			}
		}
	}
	return false
}

// Under tells whether top is an ancestor of h.
func (h *HoldRow) Under(top *HoldRow) bool {
	for z := h.Parent; z != nil; z = z.Parent {
		if z == top {
			return true
		}
	}
	return false
}

// Parts lists the parts of an anchor; a hold without accounts has none.
func (h *HoldRow) Parts() []Part {
	if len(h.Accounts) == 0 {
		return nil
	}
	return append([]Part{h.Part}, h.More...)
}
