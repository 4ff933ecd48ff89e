package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/stint-go/stint/spendlimit"
)

// report is the outcome of a replay.
type report struct {
	Calls int `json:"calls"`
	tally
	Periods []*period `json:"periods"`
}

// period is the outcome of one period, over all accounts.
type period struct {
	Period string `json:"period"`
	tally
}

type tally struct {
	Admitted int                 `json:"admitted"`
	Denied   int                 `json:"denied"`
	Spent    spendlimit.Quantity `json:"spent"`
	Peak     spendlimit.Quantity `json:"peak"` // largest spent + held of one account after any grant
}

// report reads it from the journal, which has every change of an account in the order in which it was made: so the peaks
// are exact, however many calls ran at the same time.
func (r *replay) report(ctx context.Context) (*report, error) {
	b := builder{replay: r, periods: map[string]*period{}}
	for label, n := range r.denied {
		b.period(label).Denied = n
	}
	for _, account := range r.accounts {
		if err := b.read(ctx, account); err != nil {
			return nil, err
		}
	}
	rep := &report{Calls: len(r.calls), tally: newTally(), Periods: []*period{}}
	for _, label := range slices.Sorted(maps.Keys(b.periods)) {
		p := b.periods[label]
		rep.Periods = append(rep.Periods, p)
		rep.Admitted += p.Admitted
		rep.Denied += p.Denied
		rep.Peak.Amount = max(rep.Peak.Amount, p.Peak.Amount)
		if err := rep.spend(p.Spent.Amount); err != nil {
			return nil, err
		}
	}
	return rep, nil
}

func newTally() tally {
	none := spendlimit.USD.Quantity(0)
	return tally{Spent: none, Peak: none}
}

func (t *tally) spend(a spendlimit.Amount) (err error) {
	t.Spent.Amount, err = t.Spent.Amount.Add(a)
	return err
}

// builder gathers the periods of a report, by label.
type builder struct {
	*replay
	periods map[string]*period
}

func (b *builder) period(label string) *period {
	p := b.periods[label]
	if p == nil {
		p = &period{Period: label, tally: newTally()}
		b.periods[label] = p
	}
	return p
}

// read adds the journal of one account.
func (b *builder) read(ctx context.Context, account string) error {
	used := map[string]spendlimit.Amount{} // spent + held, by period
	for entry, err := range b.ledger.Entries(ctx, account, 0) {
		if err != nil {
			return err
		}
		for _, change := range entry.Postings {
			used[change.Period] += change.Spent + change.Held // in bounds, as the ledger has checked
			if err := b.period(change.Period).spend(change.Spent); err != nil {
				return err
			}
		}
		if entry.Kind != spendlimit.EntryReserve {
			continue
		}
		label, err := b.periodOf(ctx, entry)
		if err != nil {
			return err
		}
		p := b.period(label)
		p.Admitted++
		p.Peak.Amount = max(p.Peak.Amount, used[label])
	}
	return nil
}

// periodOf is the label of the period that a grant counts in. A hold of nothing changed none, so its time tells.
func (b *builder) periodOf(ctx context.Context, grant spendlimit.Entry) (string, error) {
	if len(grant.Postings) > 0 {
		return grant.Postings[0].Period, nil
	}
	for balance, err := range b.ledger.Balances(ctx, grant.Account, grant.At) {
		return balance.Period, err // there is one limit
	}
	return "", spendlimit.ErrNotFound
}

func (rep *report) writeJSON(w io.Writer) error {
	out, err := json.Marshal(rep)
	if err != nil {
		return err
	}
	_, err = w.Write(append(out, '\n'))
	return err
}

func (rep *report) writeTable(w io.Writer, r *replay) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, priced as %s: %s\neach call holds the price of its prompt and of %d output tokens\n\n",
		r.trace, r.price.Model(), r.cfg.describe(), r.cfg.maxOutput)
	t := tabwriter.NewWriter(&out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "period\tcalls\tadmitted\tdenied\tspent, USD\tpeak, USD\t")
	row := func(label string, n tally) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\t%s\n",
			label, n.Admitted+n.Denied, n.Admitted, n.Denied, money(n.Spent), money(n.Peak), r.cfg.gauge(n.Peak.Amount))
	}
	for _, p := range rep.Periods {
		row(p.Period, p.tally)
	}
	row("all", rep.tally)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(&out, "\npeak: the most that was spent + held, on one account, right after a grant")
	_, err := io.WriteString(w, out.String())
	return err
}

// describe says in words what the ledger was told to do.
func (c *config) describe() string {
	limit, period, each := "no limit", "in total", ""
	if c.budget.Mode == spendlimit.Hard {
		limit = fmt.Sprintf("limit %s USD", spendlimit.USD.Format(c.budget.Amount))
	}
	if c.budget.Kind != spendlimit.AllTime {
		period = fmt.Sprintf("per %s in %s", c.budget.Kind, cmp.Or(c.budget.Zone, "UTC"))
	}
	if c.accounts > 1 {
		each = fmt.Sprintf(", for each of %d accounts", c.accounts)
	}
	return limit + " " + period + each
}

// money writes an exact amount, with blanks for trailing zeros so that the points line up.
func money(q spendlimit.Quantity) string {
	short, full := q.String(), q.Unit.Decimal(q.Amount).StringFixed(int32(q.Unit.Scale))
	return short + strings.Repeat(" ", len(full)-len(short))
}

// gauge draws which part of the limit a peak is.
func (c *config) gauge(peak spendlimit.Amount) string {
	const cells = 20
	if c.budget.Mode == spendlimit.Soft || c.budget.Amount == 0 {
		return ""
	}
	full := min(cells, int(cells*float64(peak)/float64(c.budget.Amount)+0.5))
	return strings.Repeat("█", full) + strings.Repeat("░", cells-full)
}
