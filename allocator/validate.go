package allocator

import (
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stint-go/stint/internal/names"
)

// Bounds of what comes in.
const (
	maxGroupParts = 4
	maxLabels     = 16
	maxLabelValue = 1 << 10
	maxAttrs      = 4 << 10 // keys and values together
	maxCapacity   = 10_000
	maxWeight     = 1_000_000
	maxGroups     = 1024
	maxTickets    = 10_000
	maxSweep      = 10_000
	maxNote       = 1 << 10

	minTTL, maxTTL     = 5 * time.Second, 24 * time.Hour
	maxMaxLease        = 30 * 24 * time.Hour
	maxCooling         = time.Hour
	minKeep, maxKeep   = 24 * time.Hour, 90 * 24 * time.Hour
	minGuard, maxGuard = time.Minute, 30 * 24 * time.Hour

	maxCounter = math.MaxInt64
	maxYear    = 9999
)

// validateName accepts valid UTF-8 of 1 to 256 bytes without control characters that is not spaces alone.
func validateName(field, s string) error {
	if reason := names.Check(s); reason != "" {
		return invalid(field, "%s", reason)
	}
	if (s[0] <= ' ' || s[0] >= utf8.RuneSelf) && strings.TrimFunc(s, unicode.IsSpace) == "" {
		return invalid(field, "blank")
	}
	return nil
}

func validateGroup(field string, names []string) error {
	if len(names) > maxGroupParts {
		return invalid(field, "%d names, at most %d", len(names), maxGroupParts)
	}
	for _, n := range names {
		if err := validateName(field, n); err != nil {
			return err
		}
	}
	return nil
}

func validateLabels(field string, labels map[string]string) error {
	if len(labels) > maxLabels {
		return invalid(field, "%d pairs, at most %d", len(labels), maxLabels)
	}
	for k, v := range labels {
		if err := validateName(field, k); err != nil {
			return err
		}
		switch {
		case len(v) > maxLabelValue:
			return invalid(field, "a value of %d bytes, at most %d", len(v), maxLabelValue)
		case !utf8.ValidString(v), strings.ContainsRune(v, 0):
			return invalid(field, "a value is not text")
		}
	}
	return nil
}

func validateAttrs(attrs map[string]string) error {
	size := 0
	for k, v := range attrs {
		size += len(k) + len(v)
	}
	if size > maxAttrs {
		return invalid("Attrs", "%d bytes, at most %d", size, maxAttrs)
	}
	if len(attrs) > maxLabels {
		return invalid("Attrs", "%d pairs, at most %d", len(attrs), maxLabels)
	}
	for k, v := range attrs {
		if err := validateName("Attrs", k); err != nil {
			return err
		}
		if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
			return invalid("Attrs", "a value is not text")
		}
	}
	return nil
}

// validateSpan accepts whole microseconds within bounds. Nothing is ever rounded.
func validateSpan(field string, d, least, most time.Duration) error {
	switch {
	case d < least || d > most:
		return invalid(field, "%v, want %v to %v", d, least, most)
	case d%time.Microsecond != 0:
		return invalid(field, "%v is not a whole number of microseconds", d)
	}
	return nil
}

func (p *Policy) validate() error {
	for _, x := range []struct {
		field          string
		d, least, most time.Duration
	}{
		{"Policy.TTL", p.TTL, minTTL, maxTTL},
		{"Policy.MaxLease", p.MaxLease, p.TTL, maxMaxLease},
		{"Policy.Cooling", p.Cooling, 0, maxCooling},
		{"Policy.Keep", p.Keep, minKeep, maxKeep},
		{"Policy.JumpGuard", p.JumpGuard, minGuard, maxGuard},
	} {
		if err := validateSpan(x.field, x.d, x.least, x.most); err != nil {
			return err
		}
	}
	if p.JumpGuard < 2*p.TTL {
		return invalid("Policy.JumpGuard", "%v, want at least twice the TTL", p.JumpGuard)
	}
	return nil
}

func validateCapacity(n int) error {
	if n < 0 || n > maxCapacity {
		return invalid("Capacity", "%d, want 0 to %d", n, maxCapacity)
	}
	return nil
}

// validateGroups checks the listed groups of a pool against its capacity.
func validateGroups(groups []Group, capacity int) error {
	if len(groups) > maxGroups {
		return invalid("Groups", "%d, at most %d", len(groups), maxGroups)
	}
	var keys []GroupKey
	mins := 0
	for _, g := range groups {
		if err := validateGroup("Groups", g.Key); err != nil {
			return err
		}
		switch {
		case g.Weight < 1 || g.Weight > maxWeight:
			return invalid("Groups", "weight %d, want 1 to %d", g.Weight, maxWeight)
		case g.Min < 0:
			return invalid("Groups", "negative minimum")
		case g.Max != nil && (*g.Max < 0 || *g.Max > capacity):
			return invalid("Groups", "maximum %d, want 0 to the capacity", *g.Max)
		case g.Max != nil && g.Min > *g.Max:
			return invalid("Groups", "minimum %d above maximum %d", g.Min, *g.Max)
		case g.Min > capacity-mins:
			return invalid("Groups", "the minima are above the capacity")
		}
		mins += g.Min
		keys = append(keys, KeyOf(g.Key...))
	}
	slices.Sort(keys)
	if len(slices.Compact(keys)) < len(groups) {
		return invalid("Groups", "a group twice")
	}
	return nil
}

func (s *Spec) validate() error {
	if err := validateCapacity(s.Capacity); err != nil {
		return err
	}
	if s.Policy != nil {
		if err := s.Policy.validate(); err != nil {
			return err
		}
	}
	if err := validateGroups(s.Groups, s.Capacity); err != nil {
		return err
	}
	for i, attrs := range s.Attrs {
		if i < 0 || i >= s.Capacity {
			return invalid("Attrs", "slot %d, want 0 to %d", i, s.Capacity-1)
		}
		if err := validateAttrs(attrs); err != nil {
			return err
		}
	}
	return nil
}

func (c *Configuration) validate() error {
	if c.Policy != nil {
		if err := c.Policy.validate(); err != nil {
			return err
		}
	}
	for i, attrs := range c.Attrs {
		if i < 0 || i >= maxCapacity {
			return invalid("Attrs", "slot %d", i)
		}
		if err := validateAttrs(attrs); err != nil {
			return err
		}
	}
	return nil
}

func (r *Request) validate() error {
	if err := validateName("Attempt", r.Attempt); err != nil {
		return err
	}
	if err := validateGroup("Group", r.Group); err != nil {
		return err
	}
	if r.Units < 1 {
		return invalid("Units", "%d, want 1 or more", r.Units)
	}
	if r.TTL != 0 {
		if err := validateSpan("TTL", r.TTL, minTTL, maxTTL); err != nil {
			return err
		}
	}
	if r.MaxLease != 0 {
		if err := validateSpan("MaxLease", r.MaxLease, max(r.TTL, minTTL), maxMaxLease); err != nil {
			return err
		}
	}
	if r.Owner > OwnerNone {
		return invalid("Owner", "unknown")
	}
	return validateLabels("Labels", r.Labels)
}

func (r *Reclaim) validate() error {
	switch {
	case r.Slot < 0 || r.Slot >= maxCapacity:
		return invalid("Slot", "%d", r.Slot)
	case r.Fingerprint.IsZero() || r.Fingerprint.kind != kindEvidence:
		return invalid("Fingerprint", "not that of evidence")
	case r.Reason < ReasonExpired || r.Reason > ReasonForced:
		return invalid("Reason", "%v", r.Reason)
	case r.Reason == ReasonForced && r.Note == "":
		return invalid("Note", "empty: Forced needs to say who and why")
	case len(r.Note) > maxNote || !utf8.ValidString(r.Note) || strings.ContainsRune(r.Note, 0):
		return invalid("Note", "not text of at most %d bytes", maxNote)
	}
	return nil
}

// Check tells which field of a stored row can't be, or "". A row with such a field is to be added as a [Raw] (R22).
func (l *LeaseRow) Check() string {
	switch {
	case l.ID == LeaseID{}:
		return "lease_id"
	case l.Epoch == 0 || l.Epoch > maxCounter:
		return "epoch"
	case l.Status < LeaseOffered || l.Status > LeaseEnded:
		return "state"
	case !ascending(l.Slots):
		return "slots"
	case l.Params.Units != len(l.Slots):
		return "units"
	case validateName("", l.Attempt) != nil:
		return "attempt"
	case l.Holder.Incarnation == Incarnation{}:
		return "incarnation"
	case l.AcquiredUS < 0:
		return "acquired_us"
	case l.TTLUS <= 0:
		return "ttl_us"
	case l.ExpiresUS < 0 || l.ExpiresUS > l.MaxUS:
		return "expires_us"
	case l.RenewSeq < 0:
		return "renew_seq"
	case (l.Status == LeaseEnded) != (l.End.Reason >= ReasonReleased && l.End.Reason <= ReasonForced):
		return "end_reason"
	}
	if _, ok := l.Params.Group.Names(); !ok {
		return "gkey"
	}
	return ""
}

// Check is like [LeaseRow.Check].
func (t *TicketRow) Check() string {
	switch {
	case t.Seq < 1:
		return "seq"
	case t.Params.Units < 1 || t.Params.Units > maxCapacity:
		return "units"
	case t.Params.TTLUS < 0:
		return "asked_ttl_us"
	case t.Params.MaxUS < 0:
		return "asked_max_us"
	case t.Params.Owner > OwnerNone:
		return "owner"
	case validateName("", t.Attempt) != nil:
		return "attempt"
	case t.Holder.Incarnation == Incarnation{}:
		return "incarnation"
	case t.DeadlineUS < 0:
		return "deadline_us"
	}
	if _, ok := t.Params.Group.Names(); !ok {
		return "gkey"
	}
	return ""
}

func ascending(slots []int) bool {
	for i, n := range slots {
		if n < 0 || n >= maxCapacity || i > 0 && n <= slots[i-1] {
			return false
		}
	}
	return len(slots) > 0
}

// Check is like [LeaseRow.Check].
func (s *SlotRow) Check() string {
	switch {
	case s.Status < SlotFree || s.Status > SlotRetired:
		return "state"
	case s.Epoch > maxCounter || s.Epoch == 0 && s.Status == SlotLeased:
		return "epoch"
	case s.CoolUS < 0 || (s.Status == SlotCooling) != (s.CoolUS > 0):
		return "cool_us"
	}
	return ""
}
