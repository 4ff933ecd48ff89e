package spendlimittest

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// Dump writes down every row that a store has of a ledger's accounts: limits of all generations that have periods, periods,
// holds, usages and entries, each with all its columns, one a line, in a fixed order. Two stores, or two moments, with the
// same rows give the same text. It reads what is stored: holds that are due and unswept are shown as live. An account
// without an entry is no more than a lock, and is left out. It looks twice, so nobody should write meanwhile.
func Dump(ctx context.Context, s spendlimit.Store, ledger string, accounts ...string) (string, error) {
	d := dumper{lines: map[string]string{}}
	n := spendlimit.Need{Ledger: ledger, ReadOnly: true, Accounts: accounts, All: accounts}
	for _, a := range accounts {
		n.Journal = append(n.Journal, spendlimit.JournalNeed{Account: a, Span: always})
	}
	usages := map[spendlimit.UsageID]bool{}
	err := s.Step(ctx, n, func(_ int64, w *spendlimit.Work) error {
		clear(d.lines)
		clear(usages)
		d.ledger(w.Ledger())
		for _, a := range accounts {
			d.account(w.Account(a))
			d.full(w.Full(a))
			d.journal(w.Journal(a), usages)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("dump: %w", err)
	}
	n = spendlimit.Need{Ledger: ledger, ReadOnly: true, Usages: slices.Collect(maps.Keys(usages))}
	err = s.Step(ctx, n, func(_ int64, w *spendlimit.Work) error {
		for id := range usages {
			d.usage(w.Usage(id))
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("dump: %w", err)
	}
	return d.String(), nil
}

// always is a span, in microseconds, that reaches back to before any entry.
const always = 1 << 56

// dumper collects lines by a key that sorts them: a row that is reached twice is one line.
type dumper struct{ lines map[string]string }

func (d *dumper) String() string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(d.lines)) {
		b.WriteString(key + d.lines[key] + "\n")
	}
	return b.String()
}

func (d *dumper) ledger(l *spendlimit.LedgerRow) {
	if l != nil {
		d.lines["ledger"] = columns(*l)
	}
}

func (d *dumper) account(a *spendlimit.AccountRow) {
	if a == nil || a.Seq == 0 {
		return
	}
	d.lines["account "+a.Name] = columns(*a)
	for _, l := range a.Limits {
		d.limit(l)
	}
}

func (d *dumper) limit(l *spendlimit.LimitRow) {
	d.lines[limitText(l)] = columns(*l)
}

func (d *dumper) full(holds []*spendlimit.HoldRow, periods []*spendlimit.PeriodRow) {
	for _, p := range periods {
		d.limit(p.Limit)
		d.lines[periodText(p)] = columns(*p)
	}
	for _, h := range holds {
		parent := ""
		if h.Parent != nil {
			parent = h.Parent.Key
		}
		text := fmt.Sprintf(" parent=%q accounts=%q", parent, namesOf(h.Accounts)) + columns(*h)
		for _, p := range h.Parts() {
			var lines []string
			for _, line := range p.Lines {
				lines = append(lines, periodText(line))
			}
			text += fmt.Sprintf(" part{at=%d left=%d lines=%q}", p.At, p.Left, lines)
		}
		for _, a := range h.Assumes {
			text += fmt.Sprintf(" assumes{%s %d %d}", a.Anchor.Key, a.Part, a.Amount)
		}
		d.lines["hold "+h.Key] = text
	}
}

// journal also collects the ids that entries are about.
func (d *dumper) journal(entries []*spendlimit.EntryRow, usages map[spendlimit.UsageID]bool) {
	for _, e := range entries {
		text := columns(*e)
		for _, g := range e.Postings {
			on := "account"
			if g.Period != nil {
				on = periodText(g.Period)
			}
			text += fmt.Sprintf(" posting{%s when=%d spent=%d held=%d overrun=%d}", on, g.When, g.Spent, g.Held, g.Overrun)
		}
		d.lines[fmt.Sprintf("entry %s %06d", e.Account.Name, e.Seq)] = text
		usages[spendlimit.UsageID{Hold: e.Hold, ID: e.Ref}] = true
		usages[spendlimit.UsageID{ID: e.Ref}] = true
	}
}

func (d *dumper) usage(u *spendlimit.UsageRow) {
	if u != nil {
		d.lines[fmt.Sprintf("usage %q %q", u.UsageID.Hold, u.ID)] = columns(*u)
	}
}

func limitText(l *spendlimit.LimitRow) string {
	return fmt.Sprintf("limit %s/%s#%d", l.Account.Name, l.Limit.Name, l.Gen)
}

func periodText(p *spendlimit.PeriodRow) string {
	return fmt.Sprintf("period %s/%s#%d@%s[%d,%d)", p.Limit.Account.Name, p.Limit.Limit.Name, p.Limit.Gen, p.Label, p.Start, p.End)
}

// columns prints the exported fields of a row that are not rows themselves. It goes by reflection so that a field that
// is new can't be forgotten here.
func columns(row any) string {
	var b strings.Builder
	v := reflect.ValueOf(row)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case !f.IsExported(), f.Name == "Ext", pointsAtRows(f.Type), f.Name == "Due", f.Name == "More" && f.Type.Kind() == reflect.Bool:
			continue
		}
		value := v.Field(i)
		if f.Type.Kind() == reflect.Slice && value.Len() == 0 {
			continue // stores may give an empty list back as nil
		}
		if f.Type.Kind() == reflect.Array {
			fmt.Fprintf(&b, " %s=%x", f.Name, value.Interface())
			continue
		}
		fmt.Fprintf(&b, " %s=%+v", f.Name, value.Interface())
	}
	return b.String()
}

// pointsAtRows tells whether a field leads to other rows: the dump names those by their keys.
func pointsAtRows(t reflect.Type) bool {
	if t == reflect.TypeFor[time.Time]() {
		return false
	}
	switch t.Kind() {
	case reflect.Pointer:
		return true
	case reflect.Slice:
		return pointsAtRows(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if pointsAtRows(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}
