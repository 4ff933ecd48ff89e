package spendlimit

import (
	"fmt"
	"io/fs"
	"math"
	"strings"
	"time"
)

// The calendar covers the years 1 to 9999, so that every bound can be shown as RFC 3339 text in UTC.
// An instant outside is taken as the nearest one inside.
const (
	minInstant int64 = -62_135_596_800_000_000 // 0001-01-01T00:00:00Z; where an AllTime period starts
	maxInstant int64 = 253_402_300_799_000_000 // 9999-12-31T23:59:59Z; as the end of a period: it never ends
)

// inCalendar returns at, or the nearest instant that a period contains.
func inCalendar(at int64) int64 { return min(max(at, minInstant), maxInstant-1) }

// Kind is the length of a limit's period. The zero Kind is invalid.
type Kind uint8

// The kinds. An AllTime period never ends.
const (
	Day Kind = iota + 1
	Week
	Month
	AllTime
)

// String returns "day", "week", "month" or "total".
func (k Kind) String() string {
	switch k {
	case Day:
		return "day"
	case Week:
		return "week"
	case Month:
		return "month"
	case AllTime:
		return "total"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// MarshalText writes what String returns; an unknown kind is ErrInvalid.
func (k Kind) MarshalText() ([]byte, error) {
	if k < Day || k > AllTime {
		return nil, invalid("Kind", "unknown kind %d", uint8(k))
	}
	return []byte(k.String()), nil
}

// UnmarshalText reads what MarshalText writes; anything else is ErrInvalid and leaves k as it was.
func (k *Kind) UnmarshalText(text []byte) error {
	for known := Day; known <= AllTime; known++ {
		if string(text) == known.String() {
			*k = known
			return nil
		}
	}
	return invalid("Kind", "want day, week, month or total")
}

// Weekday is a day of the week. Unlike [time.Weekday] its zero value is Monday.
type Weekday uint8

// The days of the week.
const (
	Monday Weekday = iota
	Tuesday
	Wednesday
	Thursday
	Friday
	Saturday
	Sunday
)

const daysPerWeek = 7

// String returns the English name.
func (w Weekday) String() string {
	if w > Sunday {
		return fmt.Sprintf("Weekday(%d)", uint8(w))
	}
	return time.Weekday((w + 1) % daysPerWeek).String()
}

// Calendar says how time is cut into periods. Periods are half-open, and together they cover all time without
// gap or overlap.
type Calendar struct {
	Kind      Kind
	WeekStart Weekday // first day of a Week
	Anchor    int     // first day of a Month, 1 to 28; 0 is 1
	Zone      string  // IANA name of the time zone whose midnights count; "" is UTC
}

// normal returns c with the defaults of R1 written out.
func (c Calendar) normal() Calendar {
	if c.Anchor == 0 {
		c.Anchor = 1
	}
	if c.Zone == "" {
		c.Zone = "UTC"
	}
	return c
}

// maxAnchor is the last day that every month has.
const maxAnchor = 28

// validate checks all fields, whether c's kind uses them or not. It reads the time zone data.
func (c Calendar) validate() error {
	c = c.normal()
	switch {
	case c.Kind < Day || c.Kind > AllTime:
		return invalid("Kind", "unknown kind %d", uint8(c.Kind))
	case c.WeekStart > Sunday:
		return invalid("WeekStart", "%d is outside 0..%d", uint8(c.WeekStart), uint8(Sunday))
	case c.Anchor < 1 || c.Anchor > maxAnchor:
		return invalid("Anchor", "%d is outside 1..%d", c.Anchor, maxAnchor)
	}
	_, err := loadZone(c.Zone)
	return err
}

// loadZone loads an IANA time zone; "" is UTC. Everything else is ErrInvalid (R7): an unknown name, a path, and
// the names that mean another zone, or other seconds, on another machine.
func loadZone(name string) (*time.Location, error) {
	if name == "" {
		return time.UTC, nil
	}
	if err := validateName("Zone", name); err != nil {
		return nil, err
	}
	if !fs.ValidPath(name) {
		return nil, invalid("Zone", "%q is not the name of a time zone", name)
	}
	switch area, _, _ := strings.Cut(name, "/"); area {
	case "Local", "localtime", "posixrules", "posix", "right":
		return nil, invalid("Zone", "%q is not the same on every machine", name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, invalid("Zone", "%q is unknown, or there is no time zone data (see package time/tzdata)", name)
	}
	return loc, nil
}

// period returns the bounds of the period that contains at, and its label: the local date of its first day, or
// "total". c is valid and loc is its zone.
func (c Calendar) period(loc *time.Location, at int64) (start, end int64, name string) {
	if c.Kind == AllTime { // R5
		return minInstant, maxInstant, "total"
	}
	at = inCalendar(at)
	y, m, d := dayOf(loc, at)
	months, days := 0, 1 // the period's length; R2
	switch c.Kind {
	case Week: // R3
		d -= int(weekday(y, m, d)+daysPerWeek-c.WeekStart) % daysPerWeek
		days = daysPerWeek
	case Month: // R4
		anchor := c.normal().Anchor
		if d < anchor {
			m--
		}
		d = anchor
		months, days = 1, 0
	}
	start, _ = firstInstant(loc, y, m, d)
	end, _ = firstInstant(loc, y, m+time.Month(months), d+days)
	start, end = max(start, minInstant), min(end, maxInstant)
	return start, end, label(loc, start)
}

// dayOf returns the date whose day contains at: the last one whose first instant has come. That is the local
// date, but for the hours that a clock change puts back before a midnight which has passed: they stay with the
// date that had begun (R6).
func dayOf(loc *time.Location, at int64) (y int, m time.Month, d int) {
	y, m, d = localDate(loc, at)
	for {
		tomorrow, _ := firstInstant(loc, y, m, d+1)
		if tomorrow > at {
			return y, m, d
		}
		y, m, d = time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC).Date()
	}
}

// firstInstant returns the smallest instant whose local date is the given date or a later one, and whether it
// is the given one: zones that crossed the date line have left out a date (R6). Days and months outside their
// range are carried over as time.Date does.
//
// It looks at the spans of equal offset one after another, so a midnight that is missing, comes twice, or lies
// between several changes needs no case of its own. time.Date is used in UTC only, for the arithmetic of dates.
func firstInstant(loc *time.Location, y int, m time.Month, d int) (us int64, exists bool) {
	const (
		maxOffset     = 26 * 60 * 60 // every offset is smaller (RFC 8536, section 3.2)
		secondsPerDay = 24 * 60 * 60
	)
	midnight := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() // on the local clock
	for t := midnight - maxOffset; ; {
		offset, until := offsetAt(loc, t)
		if first := max(t, midnight-offset); first < until {
			return time.Unix(first, 0).UnixMicro(), first+offset < midnight+secondsPerDay
		}
		t = until
	}
}

// offsetAt returns the zone's offset at t and a later instant before which it does not change; all in seconds.
func offsetAt(loc *time.Location, t int64) (offset, until int64) {
	at := time.Unix(t, 0).In(loc)
	_, off := at.Zone()
	_, end := at.ZoneBounds()
	switch {
	case end.IsZero():
		return int64(off), math.MaxInt64
	case end.Unix() <= t:
		// Past the zone's last listed change, ZoneBounds ends every year after 365 days. On the 366th the
		// offset holds until the year's end, which is the next midnight in UTC.
		return int64(off), at.Truncate(24 * time.Hour).Add(24 * time.Hour).Unix()
	}
	return int64(off), end.Unix()
}

// localDate returns the date that a clock in loc shows. It can go back when a clock is put back over midnight.
func localDate(loc *time.Location, at int64) (y int, m time.Month, d int) {
	return time.UnixMicro(at).In(loc).Date()
}

// label returns the local date of at as text: "2026-05-01".
func label(loc *time.Location, at int64) string {
	return time.UnixMicro(at).In(loc).Format(time.DateOnly)
}

// weekday returns the day of the week of a date, which is the same in all zones.
func weekday(y int, m time.Month, d int) Weekday {
	return Weekday((time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Weekday() + daysPerWeek - 1) % daysPerWeek)
}
