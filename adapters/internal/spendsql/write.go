package spendsql

import (
	"maps"
	"slices"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/spendlimit"
)

// Statements returns what stores the changes of the step.
func (s *Step) Statements() ([]sqlrow.Stmt, error) {
	c := s.Work.Changes()
	w := writer{Step: s}
	if err := w.newIDs(c); err != nil {
		return nil, err
	}
	w.accounts(c)
	for _, add := range []func(*spendlimit.Changes) error{w.limits, w.periods, w.holds, w.usages, w.entries} {
		if err := add(c); err != nil {
			return nil, err
		}
	}
	w.pruned(c)
	for _, p := range c.NewPeriods {
		w.saved.others = append(w.saved.others, accountID(p.Limit.Account))
	}
	for _, l := range c.NewLimits {
		w.saved.others = append(w.saved.others, accountID(l.Account))
	}
	return w.List(s.q.d, Tables()...), nil
}

type writer struct {
	*Step
	sqlrow.Writer
}

// newIDs gives every new row its id.
func (w *writer) newIDs(c *spendlimit.Changes) error {
	give := func(t *sqlrow.Table, n int, set func(i int, id int64)) error {
		if n == 0 {
			return nil
		}
		ids, err := w.conn.NewIDs(w.ctx, t, n)
		for i, id := range ids {
			set(i, id)
		}
		return err
	}
	if c.NewLedger != nil {
		if err := give(ledgers, 1, func(_ int, id int64) { w.ledger = id }); err != nil {
			return err
		}
		unit := c.NewLedger.Unit
		w.Insert(ledgers, []any{&w.ledger, &w.need.Ledger, &unit.Code, &unit.Scale})
	}
	var others []*spendlimit.AccountRow
	for _, a := range c.NewAccounts {
		if id, ok := w.made[a.Name]; ok {
			a.Ext = id
		} else {
			others = append(others, a)
		}
	}
	if err := give(accounts, len(others), func(i int, id int64) { others[i].Ext = id }); err != nil {
		return err
	}
	if err := give(limits, len(c.NewLimits), func(i int, id int64) { w.ids.limits[c.NewLimits[i]] = id }); err != nil {
		return err
	}
	if err := give(periods, len(c.NewPeriods), func(i int, id int64) { w.ids.periods[c.NewPeriods[i]] = id }); err != nil {
		return err
	}
	return give(holds, len(c.NewHolds), func(i int, id int64) { c.NewHolds[i].Ext = &holdRec{id: id, ledger: w.ledger} })
}

func accountID(a *spendlimit.AccountRow) int64 { return a.Ext.(int64) }
func holdOf(h *spendlimit.HoldRow) *holdRec    { return h.Ext.(*holdRec) }

func (w *writer) accounts(c *spendlimit.Changes) {
	record := func(a *spendlimit.AccountRow) *accountRec {
		return &accountRec{
			accountID(a), w.ledger, spendlimit.AccountRow{Name: a.Name, Seq: a.Seq, LastUS: a.LastUS, Pruned: a.Pruned},
		}
	}
	for _, a := range c.NewAccounts {
		r := record(a)
		if _, ok := w.made[a.Name]; ok {
			delete(w.made, a.Name)
			made := accountRec{r.id, r.ledger, spendlimit.AccountRow{Name: a.Name}}
			w.Update(accounts, made.fields(), r.fields())
		} else {
			w.Insert(accounts, r.fields())
		}
	}
	if len(w.made) > 0 { // the step left them alone
		w.Then(w.stmt(w.q.dropAccounts, nil, slices.Sorted(maps.Values(w.made))))
	}
	for _, a := range c.Accounts {
		r := record(a)
		w.Update(accounts, w.records.accounts[r.id].fields(), r.fields())
		w.saved.accounts = append(w.saved.accounts, r)
	}
}

func (w *writer) limits(c *spendlimit.Changes) error {
	for _, l := range c.NewLimits {
		r := limitRec{id: w.ids.limits[l], account: accountID(l.Account)}
		if err := r.pack(l); err != nil {
			return err
		}
		w.Insert(limits, r.fields())
	}
	for _, l := range c.Limits {
		stored := w.records.limits[w.ids.limits[l]]
		r := *stored
		if err := r.pack(l); err != nil {
			return err
		}
		w.Update(limits, stored.fields(), r.fields())
		w.saved.limits = append(w.saved.limits, &r)
	}
	return nil
}

func (w *writer) periods(c *spendlimit.Changes) error {
	for _, p := range c.NewPeriods {
		r := periodRec{id: w.ids.periods[p], limit: w.ids.limits[p.Limit]}
		if err := r.pack(p); err != nil {
			return err
		}
		w.Insert(periods, r.fields())
	}
	for _, p := range c.Periods {
		stored := w.records.periods[w.ids.periods[p]]
		r := *stored
		if err := r.pack(p); err != nil {
			return err
		}
		w.Update(periods, stored.fields(), r.fields())
		w.saved.periods = append(w.saved.periods, &r)
	}
	return nil
}

func (w *writer) holds(c *spendlimit.Changes) error {
	for _, h := range c.NewHolds { // parents come before their children
		r := holdOf(h)
		w.own(r, h)
		if err := sqlrow.EncodeList(&r.labels, h.Labels); err != nil {
			return err
		}
		if err := w.pack(r, h); err != nil {
			return err
		}
		w.Insert(holds, r.fields())
		for _, a := range r.ownerIDs {
			w.Insert(owners, ownerFields(r, a))
		}
		w.saved.holds = append(w.saved.holds, r)
		if w.q.d.Shared {
			w.q.hints.add(nameOf{r.ledger, h.Key}, r.ownerIDs)
		}
	}
	for _, h := range c.Holds {
		stored := holdOf(h)
		r := *stored
		if err := w.pack(&r, h); err != nil {
			return err
		}
		w.Update(holds, stored.fields(), r.fields())
		w.saved.holds = append(w.saved.holds, &r)
		if stored.row.State.Live() != h.State.Live() || stored.row.ExpiresUS != h.ExpiresUS {
			for _, a := range r.ownerIDs {
				w.Update(owners, ownerFields(stored, a), ownerFields(&r, a))
			}
		}
	}
	return nil
}

func ownerFields(r *holdRec, account int64) []any {
	live := r.row.State.Live()
	return []any{&r.id, &account, &live, &r.row.ExpiresUS, &r.row.Group}
}

// pack brings the columns of a record in line with a row.
func (w *writer) pack(r *holdRec, h *spendlimit.HoldRow) error {
	r.row = h.Plain()
	if r.receipt = ""; !h.State.Live() {
		if err := sqlrow.Encode(&r.receipt, receiptOf(&h.Receipt)); err != nil {
			return err
		}
	}
	r.periodIDs = w.periodIDs(h.Part.Lines)
	r.periods = string(sqlrow.AppendIDs(nil, r.periodIDs))
	r.later, r.assumptions = nil, nil
	for _, p := range h.More {
		r.later = append(r.later, part{p.At, int64(p.Left), w.periodIDs(p.Lines)})
	}
	if err := sqlrow.EncodeList(&r.more, r.later); err != nil {
		return err
	}
	for _, a := range h.Assumes {
		r.assumptions = append(r.assumptions, assumption{holdOf(a.Anchor).id, a.Part, int64(a.Amount)})
	}
	return sqlrow.EncodeList(&r.assumes, r.assumptions)
}

func (w *writer) periodIDs(lines []*spendlimit.PeriodRow) []int64 {
	ids := make([]int64, len(lines))
	for i, p := range lines {
		ids[i] = w.ids.periods[p]
	}
	return ids
}

// own says whose a new hold is; that never changes.
func (w *writer) own(r *holdRec, h *spendlimit.HoldRow) {
	for _, a := range h.Accounts {
		r.accountIDs = append(r.accountIDs, accountID(a))
	}
	r.ownerIDs = r.accountIDs
	if h.Parent != nil {
		up := holdOf(h.Parent)
		r.parent = &up.id
		r.ownerIDs = slices.Concat(r.accountIDs, up.ownerIDs)
	}
	r.accounts = string(sqlrow.AppendIDs(nil, r.accountIDs))
	r.owners = string(sqlrow.AppendIDs(nil, r.ownerIDs))
}

func (w *writer) usages(c *spendlimit.Changes) error {
	record := func(u *spendlimit.UsageRow) (*usageRec, error) {
		r := &usageRec{ledger: w.ledger, content: u.Content[:], row: *u}
		if u.Hold != "" {
			r.hold = holdOf(w.Work.Hold(u.Hold)).id
		}
		return r, sqlrow.Encode(&r.receipt, receiptOf(&u.Receipt))
	}
	for _, u := range c.NewUsages {
		r, err := record(u)
		if err != nil {
			return err
		}
		w.Insert(usages, r.fields())
	}
	for _, u := range c.Usages {
		r, err := record(u)
		if err != nil {
			return err
		}
		w.Update(usages, w.records.usages[u.UsageID].fields(), r.fields())
	}
	return nil
}

func (w *writer) entries(c *spendlimit.Changes) error {
	for _, e := range c.Entries {
		r := entryRec{account: accountID(e.Account), row: *e}
		if err := sqlrow.EncodeList(&r.labels, e.Labels); err != nil {
			return err
		}
		for _, p := range e.Postings {
			to := posting{0, p.When, int64(p.Spent), int64(p.Held), int64(p.Overrun)}
			if p.Period != nil {
				to[0] = w.ids.periods[p.Period]
			}
			r.posts = append(r.posts, to)
		}
		r.postings = string(appendPostings(nil, r.posts))
		w.Insert(entries, r.fields())
	}
	return nil
}

func (w *writer) pruned(c *spendlimit.Changes) {
	for _, a := range c.Accounts {
		if rec := w.records.accounts[accountID(a)]; a.Pruned > rec.row.Pruned {
			w.Then(w.stmt(w.q.dropEntries, nil, rec.id, a.Pruned))
		}
	}
	if len(c.Pruned) == 0 {
		return
	}
	w.saved.pruned = true
	var ids, payers []int64
	for _, h := range c.Pruned {
		ids, payers = append(ids, holdOf(h).id), append(payers, holdOf(h).ownerIDs...)
	}
	slices.Sort(payers)
	w.Then(w.stmt(w.q.dropUsages, nil, w.ledger, ids))
	w.Then(w.stmt(w.q.dropOwners, nil, slices.Compact(payers), ids))
	w.Then(w.stmt(w.q.dropHolds, nil, ids))
}
