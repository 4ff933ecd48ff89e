package spendlimit

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint/internal/names"
)

// validateName accepts what names.Check does, as the name of an account, key, group, usage, label or the like.
func validateName(field, s string) error {
	if why := names.Check(s); why != "" {
		return &InvalidError{Field: field, Reason: why}
	}
	return nil
}

// Bounds of requests, beyond those of names.
const (
	maxAccounts = 16
	maxLabels   = 16
	maxPrice    = 4 << 10
	maxSlots    = 4096
	minTTL      = time.Second
	maxTTL      = 24 * time.Hour
)

func (r *Request) validate(unit Unit) error {
	if err := validateName("Key", r.Key); err != nil {
		return err
	}
	if r.Unit != "" && r.Unit != unit.Code {
		return fmt.Errorf("%w: the request is in %q, the ledger in %q", ErrUnit, r.Unit, unit.Code)
	}
	if r.Parent == "" && len(r.Accounts) == 0 {
		return invalid("Accounts", "none")
	}
	if err := validateAccounts(r.Accounts); err != nil {
		return err
	}
	if r.Parent != "" {
		if err := validateName("Parent", r.Parent); err != nil {
			return err
		}
		if r.Parent == r.Key {
			return invalid("Parent", "the hold itself")
		}
	}
	if err := r.validateAmounts(); err != nil {
		return err
	}
	if err := validateTTL(r.TTL); err != nil {
		return err
	}
	if len(r.Price) > maxPrice {
		return invalid("Price", "%d bytes, at most %d", len(r.Price), maxPrice)
	}
	if r.Price != "" && (!utf8.ValidString(r.Price) || strings.ContainsRune(r.Price, 0)) {
		return invalid("Price", "not text")
	}
	return validateLabels(r.Labels)
}

func (r *Request) validateAmounts() error {
	split := r.Split != Split{}
	if split {
		if err := validateName("Split.Group", r.Split.Group); err != nil {
			return err
		}
		if r.Split.Slots < 1 || r.Split.Slots > maxSlots {
			return invalid("Split.Slots", "%d, want 1 to %d", r.Split.Slots, maxSlots)
		}
	}
	switch {
	case r.Amount < 0:
		return invalid("Amount", "negative")
	case r.Min < 0:
		return invalid("Min", "negative")
	case r.Amount > 0 && r.Min > r.Amount:
		return invalid("Min", "above Amount")
	case r.Rest && r.Amount > 0:
		return invalid("Rest", "with an Amount")
	case r.Free && (r.Amount > 0 || r.Min > 0 || r.Rest || split):
		return invalid("Free", "with anything wanted")
	case r.Amount == 0 && !r.Rest && !r.Free && !split:
		return invalid("Amount", "0 without Rest, Split or Free")
	}
	return nil
}

func validateAccounts(names []string) error {
	if len(names) > maxAccounts {
		return invalid("Accounts", "%d, at most %d", len(names), maxAccounts)
	}
	for i, n := range names {
		if err := validateName("Accounts", n); err != nil {
			return err
		}
		if slices.Contains(names[:i], n) {
			return invalid("Accounts", "an account twice")
		}
	}
	return nil
}

func validateLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return invalid("Labels", "%d, at most %d", len(labels), maxLabels)
	}
	if len(labels) == 0 { // a range over a map costs, even if there is none
		return nil
	}
	for k, v := range labels {
		if err := validateName("Labels", k); err != nil {
			return err
		}
		if err := validateName("Labels", v); err != nil {
			return err
		}
	}
	return nil
}

func validateTTL(d time.Duration) error {
	if d != 0 && (d < minTTL || d > maxTTL) {
		return invalid("TTL", "%v, want 0 or %v to %v", d, minTTL, maxTTL)
	}
	return nil
}

// validate checks a cost by itself; allowed are the forms that the call takes.
func (c Cost) validate(allowed ...costKind) error {
	switch {
	case c.kind == 0:
		return invalid("Cost", "the zero Cost; use Total, Recorded or Unknown")
	case !slices.Contains(allowed, c.kind):
		return invalid("Cost", "this form of cost does not fit the call")
	case c.amount < 0:
		return invalid("Cost", "negative")
	case c.Metered < 0:
		return invalid("Cost.Metered", "negative")
	case c.Source > Reported:
		return invalid("Cost.Source", "unknown")
	case c.kind == costUnknown:
		return validateName("Cost.Reason", c.reason)
	}
	return nil
}

func validateEnd(key string, c Cost) error {
	if err := validateName("Hold", key); err != nil {
		return err
	}
	return c.validate(costTotal, costRecorded, costUnknown)
}

func (u *Usage) validate() error {
	if err := validateIDs(u.Hold, u.ID); err != nil {
		return err
	}
	if err := u.Cost.validate(costTotal, costUnknown); err != nil {
		return err
	}
	return validateLabels(u.Labels)
}

func validateIDs(hold, id string) error {
	if err := validateName("Hold", hold); err != nil {
		return err
	}
	return validateName("ID", id)
}

func (e *Extension) validate() error {
	if err := validateName("Hold", e.Hold); err != nil {
		return err
	}
	switch {
	case e.Min < 0:
		return invalid("Min", "negative")
	case !e.Roll && (e.Min > 0 || e.ID != ""):
		return invalid("Roll", "ID and Min are for Roll")
	case e.Roll:
		if err := validateName("ID", e.ID); err != nil {
			return err
		}
	}
	return validateTTL(e.TTL)
}

func (g *Growth) validate() error {
	if err := validateIDs(g.Hold, g.ID); err != nil {
		return err
	}
	switch {
	case g.By <= 0:
		return invalid("By", "not above 0")
	case g.Min < 0:
		return invalid("Min", "negative")
	case g.Min > g.By:
		return invalid("Min", "above By")
	}
	return nil
}

func (s *Shrinkage) validate() error {
	if err := validateIDs(s.Hold, s.ID); err != nil {
		return err
	}
	if s.By <= 0 {
		return invalid("By", "not above 0")
	}
	return nil
}

func (e *Expense) validate() error {
	if err := validateName("ID", e.ID); err != nil {
		return err
	}
	if len(e.Accounts) == 0 {
		return invalid("Accounts", "none")
	}
	if err := validateAccounts(e.Accounts); err != nil {
		return err
	}
	if err := e.Cost.validate(costTotal); err != nil {
		return err
	}
	return validateLabels(e.Labels)
}

func (a *Adjustment) validate() error {
	if err := validateName("ID", a.ID); err != nil {
		return err
	}
	if a.Hold != "" {
		if err := validateName("Hold", a.Hold); err != nil {
			return err
		}
		if !a.At.IsZero() {
			return invalid("At", "with Hold")
		}
	}
	if a.Account != "" || a.Hold == "" {
		if err := validateName("Account", a.Account); err != nil {
			return err
		}
	}
	if a.By == 0 {
		return invalid("By", "0")
	}
	return validateName("Reason", a.Reason)
}

// options merges the options of a call and refuses those that it does not take.
func options(call string, opts []Option, allowed Option) (Option, error) {
	var set Option
	for _, o := range opts {
		if o == 0 || o&^allowed != 0 {
			return 0, invalid("Option", "%d is not for %s", o, call)
		}
		set |= o
	}
	return set, nil
}
