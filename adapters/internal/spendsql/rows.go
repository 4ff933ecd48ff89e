package spendsql

import (
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// Table is a table with its columns, in the order in which rows are written and read.
type Table struct {
	Name    string
	Columns []Column
	Keys    int // so many of the columns, from the first on, tell rows apart
	Fixed   int // so many behind the keys never change
}

// Changing lists the columns of an update: the keys and all that may change.
func (t *Table) Changing() []Column {
	return append(t.Columns[:t.Keys:t.Keys], t.Columns[t.Keys+t.Fixed:]...)
}

// Column is a column with its type in Postgres.
type Column struct{ Name, Type string }

func table(name string, keys, fixed int, columns ...Column) *Table {
	return &Table{Name: name, Keys: keys, Fixed: fixed, Columns: columns}
}

func ints(names ...string) []Column  { return typed("bigint", names) }
func texts(names ...string) []Column { return typed("text", names) }
func bools(names ...string) []Column { return typed("boolean", names) }

func typed(kind string, names []string) []Column {
	list := make([]Column, len(names))
	for i, n := range names {
		list[i] = Column{n, kind}
	}
	return list
}

func join(lists ...[]Column) (all []Column) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// The tables. The fields method of the record of each lists pointers to its columns in this order.
var (
	ledgers  = table("ledger", 1, 3, join(ints("id"), texts("name", "unit"), ints("scale"))...)
	accounts = table("account", 1, 2, join(ints("id", "ledger_id"), texts("name"), ints("seq", "last_us", "pruned"))...)
	limits   = table("limit", 1, 3, join(
		ints("id", "account_id"), texts("name"), ints("gen", "kind", "week_start", "anchor"), texts("zone"), ints("amount", "mode", "on_unpriced"),
		bools("carry_holds"), ints("carry_unused"), texts("thresholds"), ints("raise_by", "raise_until_us", "rev"), texts("print", "prev"),
		ints("since_us", "pin_us", "held_all"), bools("removed"))...)
	periods = table("period", 1, 2, join(
		ints("id", "limit_id", "start_us", "end_us"), texts("label"), ints("mode", "in_force", "raised", "raised_until_us", "spent", "held", "overrun", "cut",
			"carry_in", "carry_out", "assumed", "unpriced"), texts("fired"), ints("base_spent", "base_held", "base_overrun"))...)
	holds = table("hold", 1, 14, join(
		ints("id", "ledger_id"), texts("key"), ints("parent_id"), texts("owners", "accounts"), ints("amount", "min"), bools("rest", "free"),
		texts("split_group"), ints("slots", "ttl_us"), texts("labels", "price"), ints("state", "granted", "grown", "received", "own", "recorded",
			"carved", "covered", "returned", "assumed", "end_own", "end_charge", "open_usages", "marks", "children", "depth", "expires_us",
			"born_us", "ended_us", "seq"), texts("bound_account", "bound_limit", "bound_parent", "receipt"), ints("part_us", "part_left"),
		texts("more_parts", "assumes"))...)
	lines   = table("line", 3, 0, ints("hold_id", "part", "n", "period_id")...)
	owners  = table("owner", 2, 0, join(ints("account_id", "hold_id"), bools("live"), ints("expires_us"), texts("split_group"))...)
	usages  = table("usage", 3, 0, join(ints("ledger_id", "hold_id"), texts("id"), ints("kind"), typed("bytea", []string{"content"}), ints("cost"), bools("unpriced"), texts("receipt"))...)
	entries = table("entry", 2, 0, join(ints("account_id", "seq", "at_us", "kind"), texts("ref", "hold", "reason"), ints("source"), texts("labels"))...)
	posts   = table("posting", 3, 0, ints("account_id", "seq", "n", "period_id", "counts_us", "spent", "held", "overrun")...)
)

// Tables lists all of them, parents first.
func Tables() []*Table {
	return []*Table{ledgers, accounts, limits, periods, holds, lines, owners, usages, entries, posts}
}

// The records: a row of spendlimit beside the keys that stand for its pointers.

type accountRec struct {
	id, ledger int64
	pruned     int64 // as it is stored
	row        spendlimit.AccountRow
}

func (r *accountRec) fields() []any {
	return []any{&r.id, &r.ledger, &r.row.Name, &r.row.Seq, &r.row.LastUS, &r.row.Pruned}
}

type limitRec struct {
	id, account int64
	until       *int64 // of the raise
	thresholds  jsonOf[[]spendlimit.Threshold]
	row         spendlimit.LimitRow
}

func (r *limitRec) fields() []any {
	l := &r.row.Limit
	return []any{
		&r.id, &r.account, &l.Name, &r.row.Gen, &l.Kind, &l.WeekStart, &l.Anchor, &l.Zone, &l.Amount, &l.Mode, &l.OnUnpriced,
		&l.CarryHolds, &l.CarryUnused, &r.thresholds, &l.Raise.By, &r.until, &r.row.Rev, &r.row.Print, &r.row.Prev,
		&r.row.SinceUS, &r.row.PinUS, &r.row.HeldAll, &r.row.Removed,
	}
}

// pack fills the columns that stand for something else.
func (r *limitRec) pack() {
	l := &r.row.Limit
	r.thresholds.value = l.Thresholds
	if !l.Raise.Until.IsZero() {
		us := l.Raise.Until.UnixMicro()
		r.until = &us
	}
}

func (r *limitRec) unpack() {
	l := &r.row.Limit
	l.Thresholds = r.thresholds.value
	if r.until != nil {
		l.Raise.Until = time.UnixMicro(*r.until).UTC()
	}
}

type periodRec struct {
	id, limit int64
	fired     jsonOf[[]spendlimit.Threshold]
	row       spendlimit.PeriodRow
}

func (r *periodRec) fields() []any {
	p := &r.row
	return []any{
		&r.id, &r.limit, &p.Start, &p.End, &p.Label, &p.Mode, &p.Lim, &p.Raise, &p.RaiseUS, &p.Spent, &p.Held, &p.Overrun, &p.Cut,
		&p.CarryIn, &p.CarryOut, &p.Assumed, &p.Unpriced, &r.fired, &p.BaseSpent, &p.BaseHeld, &p.BaseOverrun,
	}
}

type holdRec struct {
	id, ledger int64
	parent     *int64
	owners     jsonOf[[]int64] // the accounts of the hold and its ancestors
	accounts   jsonOf[[]int64] // its own, by name
	labels     jsonOf[[]spendlimit.Label]
	receipt    jsonOf[receipt]
	more       jsonOf[[]part]
	assumes    jsonOf[[]assumption]
	lines      []lineRec
	stored     struct { // what is in the tables now
		live    bool
		expires int64
	}
	row spendlimit.HoldRow
}

func (r *holdRec) fields() []any {
	h := &r.row
	return []any{
		&r.id, &r.ledger, &h.Key, &r.parent, &r.owners, &r.accounts, &h.Amount, &h.Min, &h.Rest, &h.Free, &h.Group, &h.Slots, &h.TTL,
		&r.labels, &h.Price, &h.State, &h.Granted, &h.Grown, &h.Received, &h.Own, &h.Recorded, &h.Carved, &h.Covered, &h.Returned,
		&h.Assumed, &h.EndOwn, &h.EndCharge, &h.Open, &h.Marks, &h.Children, &h.Depth, &h.ExpiresUS, &h.BornUS, &h.EndedUS, &h.Seq,
		&h.Binding.Account, &h.Binding.Limit, &h.Binding.Parent, &r.receipt, &h.Part.At, &h.Part.Left, &r.more, &r.assumes,
	}
}

// part is a later part of a hold; the first has columns of its own.
type part struct {
	At   int64 `json:"at"`
	Left int64 `json:"left"`
}

type assumption struct {
	Anchor int64 `json:"anchor"`
	Part   int   `json:"part"`
	Amount int64 `json:"amount"`
}

type lineRec struct{ hold, part, n, period int64 }

func (r *lineRec) fields() []any { return []any{&r.hold, &r.part, &r.n, &r.period} }

type usageRec struct {
	ledger, hold int64 // hold is 0 for a usage without one
	content      []byte
	receipt      jsonOf[receipt]
	row          spendlimit.UsageRow
}

func (r *usageRec) fields() []any {
	u := &r.row
	return []any{&r.ledger, &r.hold, &u.ID, &u.Kind, &r.content, &u.Cost, &u.Unpriced, &r.receipt}
}

type entryRec struct {
	account int64
	labels  jsonOf[[]spendlimit.Label]
	row     spendlimit.EntryRow
}

func (r *entryRec) fields() []any {
	e := &r.row
	return []any{&r.account, &e.Seq, &e.At, &e.Kind, &e.Ref, &e.Hold, &e.Reason, &e.Source, &r.labels}
}

type postRec struct {
	account, seq, n int64
	period          *int64
	row             spendlimit.Posting
}

func (r *postRec) fields() []any {
	return []any{&r.account, &r.seq, &r.n, &r.period, &r.row.When, &r.row.Spent, &r.row.Held, &r.row.Overrun}
}
