package spendlimit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint/internal/canon"
)

// Limit is a ceiling on what one account may spend in one period. Its identity is (Account, Name).
type Limit struct {
	Account string
	Name    string

	Kind      Kind
	WeekStart Weekday // for Week; zero is Monday
	Anchor    int     // for Month: its first day, 1 to 28; zero is 1
	Zone      string  // IANA name; "" is UTC

	Amount     Amount // 0 is a real limit: nothing but Free holds is admitted
	Mode       Mode
	OnUnpriced Policy
	// CarryHolds counts live holds of earlier periods against the current one too.
	CarryHolds bool
	// CarryUnused moves up to this much unused room of the directly preceding period into a new one. A preceding
	// period that was never used counts as wholly unused.
	CarryUnused Amount
	Thresholds  []Threshold
	Raise       Raise
}

// Mode says what a limit does when it is used up.
type Mode uint8

const (
	Hard Mode = iota // refuses
	Soft             // counts and warns, but refuses nothing
)

// Policy says whether a limit admits new work while its period has cost without a known price.
type Policy uint8

const (
	Refuse Policy = iota
	Allow
)

// Raise adds By to a limit while now is before Until.
type Raise struct {
	By    Amount
	Until time.Time
}

// Threshold fires once per limit and period, when what it counts reaches Percent (1 to 1000) of the limit in force.
type Threshold struct {
	Percent int
	Of      ThresholdBase
}

// ThresholdBase is what a threshold counts.
type ThresholdBase uint8

const (
	SpentAndHeld ThresholdBase = iota
	Spent
)

// Bounds of a limit and of an account's limits.
const (
	maxLimits     = 16
	maxThresholds = 8
	maxPercent    = 1000
)

func (l *Limit) calendar() Calendar {
	return Calendar{Kind: l.Kind, WeekStart: l.WeekStart, Anchor: l.Anchor, Zone: l.Zone}
}

// normal returns l with every zero that means a default written out, and its own copy of the thresholds.
func (l Limit) normal() Limit {
	c := l.calendar().normal()
	l.Anchor, l.Zone = c.Anchor, c.Zone
	l.Thresholds = slices.Clone(l.Thresholds)
	if l.Raise.By == 0 {
		l.Raise = Raise{}
	} else {
		l.Raise.Until = timeOf(micros(l.Raise.Until))
	}
	return l
}

func (l *Limit) validate() error {
	for _, n := range []struct{ field, name string }{{"Account", l.Account}, {"Name", l.Name}} {
		if err := validateName(n.field, n.name); err != nil {
			return err
		}
	}
	if err := l.calendar().normal().validate(); err != nil {
		return err
	}
	switch {
	case l.Amount < 0:
		return invalid("Amount", "negative")
	case l.CarryUnused < 0:
		return invalid("CarryUnused", "negative")
	case l.Mode > Soft:
		return invalid("Mode", "unknown")
	case l.OnUnpriced > Allow:
		return invalid("OnUnpriced", "unknown")
	case len(l.Thresholds) > maxThresholds:
		return invalid("Thresholds", "%d, at most %d", len(l.Thresholds), maxThresholds)
	case l.Raise.By < 0:
		return invalid("Raise.By", "negative")
	case l.Raise.By > 0 && l.Raise.Until.IsZero():
		return invalid("Raise.Until", "missing")
	}
	for i, t := range l.Thresholds {
		if t.Percent < 1 || t.Percent > maxPercent {
			return invalid(fmt.Sprintf("Thresholds[%d].Percent", i), "%d, want 1 to %d", t.Percent, maxPercent)
		}
		if t.Of > Spent {
			return invalid(fmt.Sprintf("Thresholds[%d].Of", i), "unknown")
		}
		if slices.Contains(l.Thresholds[:i], t) {
			return invalid(fmt.Sprintf("Thresholds[%d]", i), "twice")
		}
	}
	top, err := l.Amount.Add(l.Raise.By)
	if err == nil {
		_, err = top.Add(l.CarryUnused)
	}
	return err
}

// fingerprint covers every field, the generation and the revision, so that A→B→A is seen (R55).
func (l *Limit) fingerprint(gen, rev int64) string {
	var e canon.Encoder
	e.String("spendlimit/limit/1").String(l.Account).String(l.Name)
	e.Int(int64(l.Kind)).Int(int64(l.WeekStart)).Int(int64(l.Anchor)).String(l.Zone)
	e.Int(int64(l.Amount)).Int(int64(l.Mode)).Int(int64(l.OnUnpriced)).Bool(l.CarryHolds).Int(int64(l.CarryUnused))
	e.Int(int64(len(l.Thresholds)))
	for _, t := range l.Thresholds {
		e.Int(int64(t.Percent)).Int(int64(t.Of))
	}
	e.Int(int64(l.Raise.By)).Int(micros(l.Raise.Until))
	e.Int(gen).Int(rev)
	sum := sha256.Sum256(e.Bytes())
	return hex.EncodeToString(sum[:])
}

func (l *Limit) equal(m *Limit) bool {
	a, b := *l, *m
	a.Thresholds, b.Thresholds = nil, nil
	return a.Account == b.Account && a.Name == b.Name && a.calendar() == b.calendar() && a.Amount == b.Amount &&
		a.Mode == b.Mode && a.OnUnpriced == b.OnUnpriced && a.CarryHolds == b.CarryHolds && a.CarryUnused == b.CarryUnused &&
		a.Raise.By == b.Raise.By && a.Raise.Until.Equal(b.Raise.Until) && slices.Equal(l.Thresholds, m.Thresholds)
}

// reached tells whether a threshold is reached: counted × 100 ≥ limit × percent, in 128 bits (R61).
func (t Threshold) reached(spent, held, limit Amount) bool {
	counted := spent
	if t.Of == SpentAndHeld {
		counted += held // the sum was checked when it was written
	}
	return !less128(uint64(counted), 100, uint64(max(limit, 0)), uint64(t.Percent))
}

// LimitState is a limit as stored.
type LimitState struct {
	Limit       Limit
	Fingerprint string // what SetLimit and RemoveLimit expect
	Replayed    bool   // this very change was made before
}

// LimitOption changes how SetLimit creates a limit.
type LimitOption uint8

// Backfill makes a new limit count what the account spent and holds since the start of the current period (R58).
const Backfill LimitOption = 1

// Balance is the state of one limit in one period.
type Balance struct {
	Account     string
	Limit       string // its name
	Kind        Kind
	Period      string    // label: local date of the period's first day
	Start, End  time.Time // [Start, End); the zero time where an AllTime limit has neither
	InForce     Amount    // the limit, with raise and carried room
	Spent       Amount    // true cost, and cost counted without knowledge
	Held        Amount    // set aside by live holds
	Available   Amount    // InForce − Spent − Held; negative when it is
	Overrun     Amount    // cost for which there was no room
	Cut         Amount    // room in use that a cut of the limit took away
	Assumed     Amount    // the part of Spent that is counted without knowledge
	Unpriced    int64     // holds and usages without a known price
	Fired       []Threshold
	Fingerprint string
	Unit        Unit
}
