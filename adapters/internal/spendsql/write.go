package spendsql

import (
	"maps"
	"slices"

	"github.com/stint-go/stint/spendlimit"
)

// Statements returns what stores the changes of the step.
func (s *Step) Statements() ([]Stmt, error) {
	c := s.Work.Changes()
	w := writer{Step: s, inserts: map[*Table][][]any{}, updates: map[*Table][][]any{}}
	if err := w.newIDs(c); err != nil {
		return nil, err
	}
	w.accounts(c)
	w.limits(c)
	w.periods(c)
	w.holds(c)
	w.usages(c)
	w.entries(c)
	w.pruned(c)
	var list []Stmt
	for _, t := range Tables() {
		if rows := w.inserts[t]; len(rows) > 0 {
			list = append(list, s.q.d.Insert(t, rows)...)
		}
	}
	for _, t := range Tables() {
		if rows := w.updates[t]; len(rows) > 0 {
			list = append(list, s.q.d.Update(t, rows)...)
		}
	}
	return append(list, w.others...), nil
}

// writer collects rows and statements: all inserts go before all updates, parents before what points at them.
type writer struct {
	*Step
	inserts, updates map[*Table][][]any
	others           []Stmt
}

func (w *writer) insert(t *Table, fields []any) { w.inserts[t] = append(w.inserts[t], fields) }

func (w *writer) update(t *Table, fields []any) {
	w.updates[t] = append(w.updates[t], append(fields[:t.Keys:t.Keys], fields[t.Keys+t.Fixed:]...))
}

// newIDs gives every new row its id.
func (w *writer) newIDs(c *spendlimit.Changes) error {
	give := func(t *Table, n int, set func(i int, id int64)) error {
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
		w.insert(ledgers, []any{w.ledger, w.need.Ledger, c.NewLedger.Unit.Code, c.NewLedger.Unit.Scale})
	}
	var unmade []*spendlimit.AccountRow
	for _, a := range c.NewAccounts {
		if id, ok := w.created[a.Name]; ok {
			a.Ext = id
		} else {
			unmade = append(unmade, a)
		}
	}
	if err := give(accounts, len(unmade), func(i int, id int64) { unmade[i].Ext = id }); err != nil {
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
	fields := func(a *spendlimit.AccountRow) []any {
		return []any{accountID(a), w.ledger, a.Name, a.Seq, a.LastUS, a.Pruned}
	}
	for _, a := range c.NewAccounts {
		if _, ok := w.created[a.Name]; ok {
			delete(w.created, a.Name)
			w.update(accounts, fields(a))
		} else {
			w.insert(accounts, fields(a))
		}
	}
	if len(w.created) > 0 { // the step left them alone
		w.others = append(w.others, w.stmt(w.q.dropAccounts, nil, slices.Sorted(maps.Values(w.created))))
	}
	for _, a := range c.Accounts {
		w.update(accounts, fields(a))
	}
}

func (w *writer) limits(c *spendlimit.Changes) {
	fields := func(l *spendlimit.LimitRow) []any {
		r := limitRec{id: w.ids.limits[l], account: accountID(l.Account), row: *l}
		r.pack()
		return r.fields()
	}
	for _, l := range c.NewLimits {
		w.insert(limits, fields(l))
	}
	for _, l := range c.Limits {
		w.update(limits, fields(l))
	}
}

func (w *writer) periods(c *spendlimit.Changes) {
	fields := func(p *spendlimit.PeriodRow) []any {
		r := periodRec{id: w.ids.periods[p], limit: w.ids.limits[p.Limit], row: *p}
		r.fired.value = p.Fired
		return r.fields()
	}
	for _, p := range c.NewPeriods {
		w.insert(periods, fields(p))
	}
	for _, p := range c.Periods {
		w.update(periods, fields(p))
	}
}

func (w *writer) holds(c *spendlimit.Changes) {
	for _, h := range c.NewHolds {
		r := holdOf(h)
		w.fill(r, h)
		w.insert(holds, r.fields())
		for _, a := range r.owners.value {
			w.insert(owners, []any{a, r.id, h.State.Live(), h.ExpiresUS, h.Group})
		}
		w.newLines(r, h)
	}
	ended := map[bool][]int64{} // by whether they live
	for _, h := range c.Holds {
		r := holdOf(h)
		w.fill(r, h)
		w.update(holds, r.fields())
		live := h.State.Live()
		switch {
		case h.ExpiresUS != r.stored.expires:
			w.others = append(w.others, w.stmt(w.q.moves, nil, live, h.ExpiresUS, r.id))
		case live != r.stored.live:
			ended[live] = append(ended[live], r.id)
		}
		w.newLines(r, h)
	}
	for live, ids := range ended {
		w.others = append(w.others, w.stmt(w.q.ends, nil, live, ids))
	}
}

// fill brings the columns that stand for pointers in line with the row.
func (w *writer) fill(r *holdRec, h *spendlimit.HoldRow) {
	if &r.row != h {
		r.row = *h
	}
	r.receipt.value = receiptOf(&h.Receipt)
	r.labels.value = h.Labels
	if r.owners.value == nil {
		w.own(r, h)
	}
	r.more.value, r.assumes.value = nil, nil
	for _, p := range h.More {
		r.more.value = append(r.more.value, part{p.At, int64(p.Left)})
	}
	for _, a := range h.Assumes {
		r.assumes.value = append(r.assumes.value, assumption{holdOf(a.Anchor).id, a.Part, int64(a.Amount)})
	}
}

// own says whose a new hold is; that never changes.
func (w *writer) own(r *holdRec, h *spendlimit.HoldRow) {
	for _, a := range h.Accounts {
		r.accounts.value = append(r.accounts.value, accountID(a))
	}
	r.owners.value = r.accounts.value
	if h.Parent != nil {
		r.parent = &holdOf(h.Parent).id
		r.owners.value = slices.Concat(r.accounts.value, holdOf(h.Parent).owners.value)
	}
}

// newLines writes the lines that are not stored yet. A part may get more, behind those that it has.
func (w *writer) newLines(r *holdRec, h *spendlimit.HoldRow) {
	stored := map[int64]int{}
	for _, n := range r.lines {
		stored[n.part]++
	}
	for i, p := range h.Parts() {
		for n := stored[int64(i)]; n < len(p.Lines); n++ {
			w.insert(lines, []any{r.id, i, n, w.ids.periods[p.Lines[n]]})
		}
	}
}

func (w *writer) usages(c *spendlimit.Changes) {
	fields := func(u *spendlimit.UsageRow) []any {
		r := usageRec{ledger: w.ledger, content: u.Content[:], row: *u}
		r.receipt.value = receiptOf(&u.Receipt)
		if u.Hold != "" {
			r.hold = holdOf(w.Work.Hold(u.Hold)).id
		}
		return r.fields()
	}
	for _, u := range c.NewUsages {
		w.insert(usages, fields(u))
	}
	for _, u := range c.Usages {
		w.update(usages, fields(u))
	}
}

func (w *writer) entries(c *spendlimit.Changes) {
	for _, e := range c.Entries {
		r := entryRec{account: accountID(e.Account), row: *e}
		r.labels.value = e.Labels
		w.insert(entries, r.fields())
		for n, p := range e.Postings {
			g := postRec{account: r.account, seq: e.Seq, n: int64(n), row: p}
			if p.Period != nil {
				id := w.ids.periods[p.Period]
				g.period = &id
			}
			w.insert(posts, g.fields())
		}
	}
}

func (w *writer) pruned(c *spendlimit.Changes) {
	for _, a := range c.Accounts {
		if rec := w.records.accounts[accountID(a)]; a.Pruned > rec.pruned {
			w.others = append(w.others,
				w.stmt(w.q.dropEntries, nil, rec.id, a.Pruned), w.stmt(w.q.dropPostings, nil, rec.id, a.Pruned))
		}
	}
	if len(c.Pruned) == 0 {
		return
	}
	var ids []int64
	for _, h := range c.Pruned {
		ids = append(ids, holdOf(h).id)
	}
	w.others = append(w.others,
		w.stmt(w.q.dropUsages, nil, w.ledger, ids), w.stmt(w.q.dropLines, nil, ids), w.stmt(w.q.dropOwners, nil, ids),
		w.stmt(w.q.dropHolds, nil, ids))
}
