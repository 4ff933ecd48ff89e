package spendsql

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/spendlimit"
)

// set is the tables of this package. The fields method of the record of each lists pointers to its columns in this order.
const set = sqlrow.Set("spend")

var (
	ledgers  = set.Table("ledger", 1, 3, sqlrow.Ints("id"), sqlrow.Strings("name", "unit"), sqlrow.Ints("scale"))
	accounts = set.Table("account", 1, 2, sqlrow.Ints("id", "ledger_id"), sqlrow.Strings("name"), sqlrow.Ints("seq", "last_us", "pruned")).
			UnlessMade("name", "ledger_id")
	limits = set.Table("limit", 1, 3,
		sqlrow.Ints("id", "account_id"), sqlrow.Strings("name"), sqlrow.Ints("gen", "kind", "week_start", "anchor"), sqlrow.Strings("zone"),
		sqlrow.Ints("amount", "mode", "on_unpriced"), sqlrow.Bools("carry_holds"), sqlrow.Ints("carry_unused"), sqlrow.Strings("thresholds"),
		sqlrow.Ints("raise_by", "raise_until_us", "rev"), sqlrow.Strings("print", "prev"), sqlrow.Ints("since_us", "pin_us", "held_all"),
		sqlrow.Bools("removed"))
	periods = set.Table("period", 1, 2,
		sqlrow.Ints("id", "limit_id", "start_us", "end_us"), sqlrow.Strings("label"),
		sqlrow.Ints("mode", "in_force", "raised", "raised_until_us", "spent", "held", "overrun", "cut", "carry_in", "carry_out", "assumed", "unpriced"),
		sqlrow.Strings("fired"), sqlrow.Ints("base_spent", "base_held", "base_overrun"))
	holds = set.Table("hold", 1, 14,
		sqlrow.Ints("id", "ledger_id"), sqlrow.Strings("key"), sqlrow.Ints("parent_id"), sqlrow.Strings("owners", "accounts"),
		sqlrow.Ints("amount", "min"), sqlrow.Bools("rest", "free"), sqlrow.Strings("split_group"), sqlrow.Ints("slots", "ttl_us"),
		sqlrow.Strings("labels", "price"),
		sqlrow.Ints("state", "granted", "grown", "received", "own", "recorded", "carved", "covered", "returned", "assumed", "end_own", "end_charge",
			"open_usages", "marks", "children", "depth", "expires_us", "born_us", "ended_us", "seq"),
		sqlrow.Strings("bound_account", "bound_limit", "bound_parent", "receipt"), sqlrow.Ints("part_us", "part_left"),
		sqlrow.Strings("periods", "more_parts", "assumes"))
	owners = set.Table("owner", 2, 0, sqlrow.Ints("hold_id", "account_id"), sqlrow.Bools("live"), sqlrow.Ints("expires_us"), sqlrow.Strings("split_group"))
	usages = set.Table("usage", 3, 0, sqlrow.Ints("ledger_id", "hold_id"), sqlrow.Strings("id"), sqlrow.Ints("kind"), sqlrow.Bytes("content"),
		sqlrow.Ints("cost"), sqlrow.Bools("unpriced"), sqlrow.Strings("receipt")).OneByOne()
	entries = set.Table("entry", 2, 0, sqlrow.Ints("account_id", "seq", "at_us", "kind"), sqlrow.Strings("ref", "hold", "reason"),
		sqlrow.Ints("source"), sqlrow.Strings("labels", "postings"))
)

// Tables lists all of them, parents first.
func Tables() []*sqlrow.Table {
	return []*sqlrow.Table{ledgers, accounts, limits, periods, holds, owners, usages, entries}
}

// The records: a row of spendlimit beside the keys and texts that stand for its pointers and lists. Texts are packed before
// a record is written, and unpacked after it was read.

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
	return sqlrow.EncodeList(&r.thresholds, row.Limit.Thresholds)
}

func (r *limitRec) unpack() error {
	l := &r.row.Limit
	if r.until != nil {
		l.Raise.Until = time.UnixMicro(*r.until).UTC()
	}
	return sqlrow.Decode(r.thresholds, &l.Thresholds)
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
	return sqlrow.EncodeList(&r.fired, row.Fired)
}

func (r *periodRec) unpack() error { return sqlrow.Decode(r.fired, &r.row.Fired) }

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
	if r.ownerIDs, err = sqlrow.ParseIDs(r.owners); err != nil {
		return err
	}
	if r.accountIDs = r.ownerIDs; r.accounts != r.owners {
		if r.accountIDs, err = sqlrow.ParseIDs(r.accounts); err != nil {
			return err
		}
	}
	if r.periodIDs, err = sqlrow.ParseIDs(r.periods); err != nil {
		return err
	}
	var of receipt
	if err = sqlrow.Decode(r.receipt, &of); err != nil {
		return err
	}
	h.Receipt = of.row()
	if err = sqlrow.Decode(r.labels, &h.Labels); err != nil {
		return err
	}
	if err = sqlrow.Decode(r.more, &r.later); err != nil {
		return err
	}
	return sqlrow.Decode(r.assumes, &r.assumptions)
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
	err := sqlrow.Decode(r.receipt, &of)
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
	return sqlrow.Decode(r.labels, &r.row.Labels)
}

// posting is the id of a period, or 0, and what comes behind it in spendlimit's.
type posting [5]int64
