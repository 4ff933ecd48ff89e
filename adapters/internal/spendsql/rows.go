package spendsql

import (
	"encoding/json"
	"fmt"
	"slices"
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

// Pick lists the columns with these indexes.
func (t *Table) Pick(indexes []int) []Column {
	list := make([]Column, len(indexes))
	for i, at := range indexes {
		list[i] = t.Columns[at]
	}
	return list
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
		texts("periods", "more_parts", "assumes"))...)
	owners = table("owner", 2, 0, join(ints("hold_id", "account_id"), bools("live"), ints("expires_us"), texts("split_group"))...)
	usages = table("usage", 3, 0, join(ints("ledger_id", "hold_id"), texts("id"), ints("kind"), typed("bytea", []string{"content"}), ints("cost"),
		bools("unpriced"), texts("receipt"))...)
	entries = table("entry", 2, 0, join(ints("account_id", "seq", "at_us", "kind"), texts("ref", "hold", "reason"), ints("source"),
		texts("labels", "postings"))...)
)

// Tables lists all of them, parents first.
func Tables() []*Table {
	return []*Table{ledgers, accounts, limits, periods, holds, owners, usages, entries}
}

// The records: a row of spendlimit beside the keys and texts that stand for its pointers and lists. Texts are packed before
// a record is written, and unpacked after it was read. Fields are pointers to the plain types that drivers know: *int64,
// *int, *uint8, *bool, *string, *[]byte, and **int64 where a column may be NULL.

// value is what a field points at, as an int64, a bool, a string, a []byte or nil.
func value(field any) any {
	switch p := field.(type) {
	case *int64:
		return *p
	case *string:
		return *p
	case *bool:
		return *p
	case *uint8:
		return int64(*p)
	case *int:
		return int64(*p)
	case *[]byte:
		return *p
	case **int64:
		if *p == nil {
			return nil
		}
		return **p
	}
	panic(fmt.Sprintf("a field of type %T", field))
}

// zero tells whether a field points at the default of its column.
func zero(field any) bool {
	switch p := field.(type) {
	case *int64:
		return *p == 0
	case *string:
		return *p == ""
	case *bool:
		return !*p
	case *uint8:
		return *p == 0
	case *int:
		return *p == 0
	case **int64:
		return *p == nil
	}
	return false
}

// same tells whether two fields of a column point at equal values.
func same(a, b any) bool {
	switch a := a.(type) {
	case *int64:
		return *a == *b.(*int64)
	case *string:
		return *a == *b.(*string)
	case *[]byte:
		return string(*a) == string(*b.(*[]byte))
	}
	return value(a) == value(b)
}

type accountRec struct {
	id, ledger int64
	row        spendlimit.AccountRow
}

func (r *accountRec) fields() []any {
	return []any{&r.id, &r.ledger, &r.row.Name, &r.row.Seq, &r.row.LastUS, &r.row.Pruned}
}

type limitRec struct {
	id, account int64
	until       *int64 // of the raise
	thresholds  string
	row         spendlimit.LimitRow
}

func (r *limitRec) fields() []any {
	l := &r.row.Limit
	return []any{
		&r.id, &r.account, &l.Name, &r.row.Gen, (*uint8)(&l.Kind), (*uint8)(&l.WeekStart), &l.Anchor, &l.Zone, (*int64)(&l.Amount),
		(*uint8)(&l.Mode), (*uint8)(&l.OnUnpriced), &l.CarryHolds, (*int64)(&l.CarryUnused), &r.thresholds, (*int64)(&l.Raise.By), &r.until,
		&r.row.Rev, &r.row.Print, &r.row.Prev, &r.row.SinceUS, &r.row.PinUS, (*int64)(&r.row.HeldAll), &r.row.Removed,
	}
}

func (r *limitRec) pack(row *spendlimit.LimitRow) error {
	r.row = row.Plain()
	r.until = nil
	if at := row.Limit.Raise.Until; !at.IsZero() {
		us := at.UnixMicro()
		r.until = &us
	}
	return encodeList(&r.thresholds, row.Limit.Thresholds)
}

func (r *limitRec) unpack() error {
	l := &r.row.Limit
	if r.until != nil {
		l.Raise.Until = time.UnixMicro(*r.until).UTC()
	}
	return decode(r.thresholds, &l.Thresholds)
}

type periodRec struct {
	id, limit int64
	fired     string
	row       spendlimit.PeriodRow
}

func (r *periodRec) fields() []any {
	p := &r.row
	return []any{
		&r.id, &r.limit, &p.Start, &p.End, &p.Label, (*uint8)(&p.Mode), (*int64)(&p.Lim), (*int64)(&p.Raise), &p.RaiseUS, (*int64)(&p.Spent),
		(*int64)(&p.Held), (*int64)(&p.Overrun), (*int64)(&p.Cut), (*int64)(&p.CarryIn), (*int64)(&p.CarryOut), (*int64)(&p.Assumed), &p.Unpriced,
		&r.fired, (*int64)(&p.BaseSpent), (*int64)(&p.BaseHeld), (*int64)(&p.BaseOverrun),
	}
}

func (r *periodRec) pack(row *spendlimit.PeriodRow) error {
	r.row = row.Plain()
	return encodeList(&r.fired, row.Fired)
}

func (r *periodRec) unpack() error { return decode(r.fired, &r.row.Fired) }

type holdRec struct {
	id, ledger                      int64
	parent                          *int64
	owners, accounts                string // ids: those of the hold and its ancestors; its own, by name
	labels, receipt                 string
	periods, more, assumes          string  // of its first part, of later ones; by what the texts of part and assumption say
	ownerIDs, accountIDs, periodIDs []int64 // what the texts say
	later                           []part
	assumptions                     []assumption
	row                             spendlimit.HoldRow
}

func (r *holdRec) fields() []any {
	h := &r.row
	return []any{
		&r.id, &r.ledger, &h.Key, &r.parent, &r.owners, &r.accounts, (*int64)(&h.Amount), (*int64)(&h.Min), &h.Rest, &h.Free, &h.Group, &h.Slots,
		&h.TTL, &r.labels, &h.Price, (*uint8)(&h.State), (*int64)(&h.Granted), (*int64)(&h.Grown), (*int64)(&h.Received), (*int64)(&h.Own),
		(*int64)(&h.Recorded), (*int64)(&h.Carved), (*int64)(&h.Covered), (*int64)(&h.Returned), (*int64)(&h.Assumed), (*int64)(&h.EndOwn),
		(*int64)(&h.EndCharge), &h.Open, &h.Marks, &h.Children, &h.Depth, &h.ExpiresUS, &h.BornUS, &h.EndedUS, &h.Seq, &h.Binding.Account,
		&h.Binding.Limit, &h.Binding.Parent, &r.receipt, &h.Part.At, (*int64)(&h.Part.Left), &r.periods, &r.more, &r.assumes,
	}
}

// part is a later part of a hold; the first has columns of its own.
type part struct {
	At      int64   `json:"at"`
	Left    int64   `json:"left"`
	Periods []int64 `json:"periods"`
}

type assumption struct {
	Anchor int64 `json:"anchor"`
	Part   int   `json:"part"`
	Amount int64 `json:"amount"`
}

// unpack reads the texts. What is left to do is to link the row.
func (r *holdRec) unpack() (err error) {
	h := &r.row
	if r.ownerIDs, err = parseIDs(r.owners); err != nil {
		return err
	}
	if r.accountIDs = r.ownerIDs; r.accounts != r.owners {
		if r.accountIDs, err = parseIDs(r.accounts); err != nil {
			return err
		}
	}
	if r.periodIDs, err = parseIDs(r.periods); err != nil {
		return err
	}
	var of receipt
	if err = decode(r.receipt, &of); err != nil {
		return err
	}
	h.Receipt = of.row()
	if err = decode(r.labels, &h.Labels); err != nil {
		return err
	}
	if err = decode(r.more, &r.later); err != nil {
		return err
	}
	return decode(r.assumes, &r.assumptions)
}

// points lists the periods that the parts of the hold count against.
func (r *holdRec) points() []int64 {
	ids := slices.Clone(r.periodIDs)
	for _, p := range r.later {
		ids = append(ids, p.Periods...)
	}
	return ids
}

type usageRec struct {
	ledger, hold int64 // hold is 0 for a usage without one
	content      []byte
	receipt      string
	row          spendlimit.UsageRow
}

func (r *usageRec) fields() []any {
	u := &r.row
	return []any{&r.ledger, &r.hold, &u.ID, (*uint8)(&u.Kind), &r.content, (*int64)(&u.Cost), &u.Unpriced, &r.receipt}
}

// unpack makes a row of the record.
func (r *usageRec) unpack() (*spendlimit.UsageRow, error) {
	row := new(spendlimit.UsageRow)
	*row = r.row
	if copy(row.Content[:], r.content) != len(row.Content) {
		return nil, fmt.Errorf("usage %q has a digest of %d bytes", row.ID, len(r.content))
	}
	var of receipt
	err := decode(r.receipt, &of)
	row.Receipt = of.row()
	return row, err
}

type entryRec struct {
	account          int64
	labels, postings string
	posts            []posting
	row              spendlimit.EntryRow
}

func (r *entryRec) fields() []any {
	e := &r.row
	return []any{&r.account, &e.Seq, &e.At, (*uint8)(&e.Kind), &e.Ref, &e.Hold, &e.Reason, (*uint8)(&e.Source), &r.labels, &r.postings}
}

func (r *entryRec) unpack() error {
	if err := json.Unmarshal([]byte(r.postings), &r.posts); err != nil {
		return err
	}
	return decode(r.labels, &r.row.Labels)
}

// posting is the id of a period, or 0, and what comes behind it in spendlimit's.
type posting [5]int64
