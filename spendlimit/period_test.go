package spendlimit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/internal/names"
)

// nasty lists zones that moved their clocks at midnight, over midnight, by odd amounts, across the date line,
// or with offsets of whole seconds.
var nasty = []string{
	"UTC", "Africa/Cairo", "Africa/Casablanca", "Africa/Monrovia", "America/Asuncion", "America/Caracas",
	"America/Goose_Bay", "America/Havana", "America/New_York", "America/Nuuk", "America/Santiago",
	"America/Sao_Paulo", "America/Scoresbysund", "America/St_Johns", "Antarctica/Casey", "Antarctica/Troll",
	"Asia/Amman", "Asia/Beirut", "Asia/Gaza", "Asia/Kathmandu", "Asia/Pyongyang", "Asia/Shanghai", "Asia/Tehran",
	"Atlantic/Azores", "Australia/Lord_Howe", "Europe/Berlin", "Europe/Dublin", "Pacific/Apia", "Pacific/Fakaofo",
	"Pacific/Kanton", "Pacific/Kiritimati", "Pacific/Kwajalein", "Pacific/Tongatapu",
}

func mustZone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := loadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func instant(t testing.TB, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

func showInstant(us int64) string { return time.UnixMicro(us).UTC().Format(time.RFC3339Nano) }

// wantPeriod checks the period of at against literal bounds and label.
func wantPeriod(t *testing.T, c Calendar, at, start, end, name string) {
	t.Helper()
	gotStart, gotEnd, gotName := c.period(mustZone(t, c.Zone), instant(t, at))
	got := fmt.Sprintf("[%s, %s) %s", showInstant(gotStart), showInstant(gotEnd), gotName)
	if want := fmt.Sprintf("[%s, %s) %s", start, end, name); got != want {
		t.Errorf("%+v at %s:\n got %s\nwant %s", c, at, got, want)
	}
}

func TestR1_Validate(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		calendar Calendar
		field    string // "" is valid
	}{
		"only a kind":     {Calendar{Kind: Day}, ""},
		"all fields":      {Calendar{Kind: Month, WeekStart: Sunday, Anchor: 28, Zone: "Asia/Shanghai"}, ""},
		"total":           {Calendar{Kind: AllTime}, ""},
		"zero kind":       {Calendar{}, "Kind"},
		"kind above":      {Calendar{Kind: AllTime + 1}, "Kind"},
		"week start":      {Calendar{Kind: Week, WeekStart: Sunday + 1}, "WeekStart"},
		"anchor below":    {Calendar{Kind: Month, Anchor: -1}, "Anchor"},
		"anchor above":    {Calendar{Kind: Month, Anchor: 29}, "Anchor"},
		"zone":            {Calendar{Kind: Day, Zone: "Mars/Olympus"}, "Zone"},
		"an unused field": {Calendar{Kind: Day, Anchor: 29}, "Anchor"},
	} {
		err := tc.calendar.validate()
		var bad *InvalidError
		switch {
		case tc.field == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.field != "" && (!errors.As(err, &bad) || bad.Field != tc.field):
			t.Errorf("%s: got %v, want an InvalidError on %s", name, err, tc.field)
		}
	}
}

func TestR1_ZeroValues(t *testing.T) {
	t.Parallel()
	want := Calendar{Kind: Week, WeekStart: Monday, Anchor: 1, Zone: "UTC"}
	if got := (Calendar{Kind: Week}).normal(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := want.normal(); got != want {
		t.Errorf("a normal calendar became %+v", got)
	}
	// A calendar need not be normal to be used.
	wantPeriod(t, Calendar{Kind: Month}, "2026-05-14T12:00:00Z", "2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z", "2026-05-01")
}

func TestKindText(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Kind]string{Day: "day", Week: "week", Month: "month", AllTime: "total"} {
		text, err := kind.MarshalText()
		if err != nil || string(text) != want || kind.String() != want {
			t.Errorf("Kind %d: got %q, %v and %q, want %q", uint8(kind), text, err, kind, want)
		}
		var back Kind
		if err := back.UnmarshalText(text); err != nil || back != kind {
			t.Errorf("%q: got %v, %v", text, back, err)
		}
	}
	for _, kind := range []Kind{0, AllTime + 1} {
		if _, err := kind.MarshalText(); !errors.Is(err, ErrInvalid) {
			t.Errorf("Kind %d: got %v, want ErrInvalid", uint8(kind), err)
		}
		if got, want := kind.String(), map[Kind]string{0: "Kind(0)", 5: "Kind(5)"}[kind]; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, text := range []string{"", "Day", "days", "Kind(0)", "Kind(5)"} {
		kind := Week
		if err := kind.UnmarshalText([]byte(text)); !errors.Is(err, ErrInvalid) || kind != Week {
			t.Errorf("%q: got %v, %v, want ErrInvalid and no change", text, kind, err)
		}
	}
}

func TestWeekdayString(t *testing.T) {
	t.Parallel()
	var got []string
	for w := Monday; w <= Sunday+1; w++ {
		got = append(got, w.String())
	}
	const want = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday Weekday(7)"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

func TestR2_Day(t *testing.T) {
	t.Parallel()
	c := Calendar{Kind: Day, Zone: "Asia/Shanghai"}
	for _, at := range []string{"2026-04-30T16:00:00Z", "2026-05-01T03:00:00Z", "2026-05-01T15:59:59.999999Z"} {
		wantPeriod(t, c, at, "2026-04-30T16:00:00Z", "2026-05-01T16:00:00Z", "2026-05-01")
	}
}

func TestR3_Week(t *testing.T) {
	t.Parallel()
	monday := Calendar{Kind: Week, WeekStart: Monday}
	for _, at := range []string{"2026-09-07T00:00:00Z", "2026-09-10T12:00:00Z", "2026-09-13T23:59:59.999999Z"} {
		wantPeriod(t, monday, at, "2026-09-07T00:00:00Z", "2026-09-14T00:00:00Z", "2026-09-07")
	}
	wantPeriod(t, monday, "2026-10-01T12:00:00Z", "2026-09-28T00:00:00Z", "2026-10-05T00:00:00Z", "2026-09-28")
	wantPeriod(t, monday, "2026-09-29T12:00:00Z", "2026-09-28T00:00:00Z", "2026-10-05T00:00:00Z", "2026-09-28")
	for start, first := range map[Weekday]string{
		Monday: "2026-09-28", Tuesday: "2026-09-29", Wednesday: "2026-09-30", Thursday: "2026-10-01",
		Friday: "2026-09-25", Saturday: "2026-09-26", Sunday: "2026-09-27",
	} {
		_, _, got := Calendar{Kind: Week, WeekStart: start}.period(time.UTC, instant(t, "2026-10-01T12:00:00Z"))
		if got != first {
			t.Errorf("week of Thursday 2026-10-01 from %v: got %s, want %s", start, got, first)
		}
	}
}

func TestR4_Month(t *testing.T) {
	t.Parallel()
	c := Calendar{Kind: Month, Anchor: 15}
	wantPeriod(t, c, "2026-05-14T23:59:59.999999Z", "2026-04-15T00:00:00Z", "2026-05-15T00:00:00Z", "2026-04-15")
	wantPeriod(t, c, "2026-05-15T00:00:00Z", "2026-05-15T00:00:00Z", "2026-06-15T00:00:00Z", "2026-05-15")
	// Over the end of the year, and in a zone with a clock change inside.
	wantPeriod(t, c, "2027-01-14T00:00:00Z", "2026-12-15T00:00:00Z", "2027-01-15T00:00:00Z", "2026-12-15")
	c.Zone = "Europe/Berlin"
	wantPeriod(t, c, "2026-03-15T12:00:00Z", "2026-03-14T23:00:00Z", "2026-04-14T22:00:00Z", "2026-03-15")
}

func TestR5_Total(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"", "Pacific/Apia"} {
		for _, at := range []string{"0001-01-01T00:00:00Z", "2026-05-01T12:00:00Z", "9999-12-31T23:59:58.999999Z"} {
			wantPeriod(t, Calendar{Kind: AllTime, Zone: zone}, at, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "total")
		}
	}
}

// A leap year's 366th day is where the bounds that package time reports for rule-driven years go wrong.
func TestR6_LastDayOfLeapYear(t *testing.T) {
	t.Parallel()
	wantPeriod(t, Calendar{Kind: Day, Zone: "Europe/Berlin"}, "2048-12-31T12:00:00Z",
		"2048-12-30T23:00:00Z", "2048-12-31T23:00:00Z", "2048-12-31")
	wantPeriod(t, Calendar{Kind: Day, Zone: "America/New_York"}, "2048-12-31T12:00:00Z",
		"2048-12-31T05:00:00Z", "2049-01-01T05:00:00Z", "2048-12-31")
	wantPeriod(t, Calendar{Kind: Day, Zone: "Australia/Lord_Howe"}, "2048-12-31T12:00:00Z",
		"2048-12-30T13:00:00Z", "2048-12-31T13:00:00Z", "2048-12-31")
	noon, change := instant(t, "2048-12-31T12:00:00Z")/1e6, instant(t, "2049-03-28T01:00:00Z")/1e6
	if offset, until := offsetAt(mustZone(t, "Europe/Berlin"), noon); offset != 3600 || until <= noon || until > change {
		t.Errorf("offset %d until %d, want 3600 until some time after %d and up to %d", offset, until, noon, change)
	}
}

// A week or a month that would start on a date which the zone left out starts with the next date.
func TestR6_MissingFirstDate(t *testing.T) {
	t.Parallel()
	wantPeriod(t, Calendar{Kind: Week, WeekStart: Friday, Zone: "Pacific/Apia"}, "2012-01-01T00:00:00Z",
		"2011-12-30T10:00:00Z", "2012-01-05T10:00:00Z", "2011-12-31")
	wantPeriod(t, Calendar{Kind: Week, WeekStart: Friday, Zone: "Pacific/Apia"}, "2011-12-30T09:59:59.999999Z",
		"2011-12-23T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-23")
	wantPeriod(t, Calendar{Kind: Month, Anchor: 21, Zone: "Pacific/Kwajalein"}, "1993-09-01T00:00:00Z",
		"1993-08-21T12:00:00Z", "1993-09-20T12:00:00Z", "1993-08-22")
	if _, exists := firstInstant(mustZone(t, "Pacific/Kwajalein"), 1993, time.August, 21); exists {
		t.Error("Kwajalein had no 1993-08-21")
	}
}

func TestR6_EndsOfTime(t *testing.T) {
	t.Parallel()
	const minute = int64(time.Minute / time.Microsecond)
	for _, loc := range []*time.Location{
		time.UTC, mustZone(t, "Pacific/Kiritimati"), mustZone(t, "America/Nuuk"),
		time.FixedZone("midnight at maxInstant", 1),
	} {
		for kind := Day; kind <= AllTime; kind++ {
			c := Calendar{Kind: kind}
			for _, at := range []int64{-1 << 63, minInstant - 1, minInstant} {
				if start, end, _ := c.period(loc, at); start != minInstant || end <= start {
					t.Errorf("%v %v: the first period is [%s, %s)", loc, kind, showInstant(start), showInstant(end))
				}
			}
			for _, at := range []int64{maxInstant - 1, maxInstant, 1<<63 - 1} {
				if start, end, _ := c.period(loc, at); end != maxInstant || start >= maxInstant-minute {
					t.Errorf("%v %v: the last period is [%s, %s)", loc, kind, showInstant(start), showInstant(end))
				}
			}
		}
	}
}

func TestR7_Zone(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"": "UTC", "UTC": "UTC", "Asia/Kathmandu": "Asia/Kathmandu"} {
		loc, err := loadZone(name)
		if err != nil || loc.String() != want {
			t.Errorf("%q: got %v, %v, want %s", name, loc, err, want)
		}
	}
	for _, name := range []string{
		"Local", "Mars/Olympus", "utc ", " ", "\x00", "Europe", "Europe/", "Europe//Berlin", "./UTC", "Europe/../UTC",
		"../zoneinfo/UTC", "/usr/share/zoneinfo/UTC", `Europe\Berlin`, `\UTC`, "localtime", "posixrules",
		"posix/Europe/Berlin", "right/Europe/Berlin", "+08:00", "UTC+8", "zone.tab", strings.Repeat("a", 300),
	} {
		var bad *InvalidError
		loc, err := loadZone(name)
		if !errors.As(err, &bad) || bad.Field != "Zone" || loc != nil {
			t.Errorf("%q: got %v, %v, want an InvalidError on Zone", name, loc, err)
		} else if len(err.Error()) > names.Max {
			t.Errorf("%q: the error repeats all of an overlong name", name)
		}
	}
}

// R8 and R9: a changed limit's next row starts at the stored end and takes its end from the new calendar.
func TestT41_PeriodAtTheOldEnd(t *testing.T) {
	t.Parallel()
	wantPeriod(t, Calendar{Kind: Day}, "2026-05-01T12:00:00Z", "2026-05-01T00:00:00Z", "2026-05-02T00:00:00Z", "2026-05-01")
	wantPeriod(t, Calendar{Kind: Day, Zone: "America/Los_Angeles"}, "2026-05-02T00:00:00Z",
		"2026-05-01T07:00:00Z", "2026-05-02T07:00:00Z", "2026-05-01")
}

func TestT22_Shanghai(t *testing.T) {
	t.Parallel()
	c := Calendar{Kind: Day, Zone: "Asia/Shanghai"}
	wantPeriod(t, c, "2026-05-01T15:59:59.999999999Z", "2026-04-30T16:00:00Z", "2026-05-01T16:00:00Z", "2026-05-01")
	wantPeriod(t, c, "2026-05-01T16:00:00Z", "2026-05-01T16:00:00Z", "2026-05-02T16:00:00Z", "2026-05-02")
}

func TestT23_FirstUseInTheAfternoon(t *testing.T) {
	t.Parallel()
	// 15:43 on Thursday 2026-10-01, in UTC and in New York (UTC-4).
	wantPeriod(t, Calendar{Kind: Day}, "2026-10-01T15:43:00Z", "2026-10-01T00:00:00Z", "2026-10-02T00:00:00Z", "2026-10-01")
	wantPeriod(t, Calendar{Kind: Day, Zone: "America/New_York"}, "2026-10-01T19:43:00Z",
		"2026-10-01T04:00:00Z", "2026-10-02T04:00:00Z", "2026-10-01")
	wantPeriod(t, Calendar{Kind: Week, WeekStart: Sunday}, "2026-10-01T15:43:00Z",
		"2026-09-27T00:00:00Z", "2026-10-04T00:00:00Z", "2026-09-27")
	wantPeriod(t, Calendar{Kind: Week, WeekStart: Sunday, Zone: "America/New_York"}, "2026-10-01T19:43:00Z",
		"2026-09-27T04:00:00Z", "2026-10-04T04:00:00Z", "2026-09-27")
}

func TestT79_WeekOverTheMonthEnd(t *testing.T) {
	t.Parallel()
	week := Calendar{Kind: Week}
	for _, at := range []string{"2026-09-29T12:00:00Z", "2026-10-01T12:00:00Z"} {
		wantPeriod(t, week, at, "2026-09-28T00:00:00Z", "2026-10-05T00:00:00Z", "2026-09-28")
	}
	for _, at := range []string{"2026-02-23T00:00:00Z", "2026-03-01T12:00:00Z"} {
		wantPeriod(t, week, at, "2026-02-23T00:00:00Z", "2026-03-02T00:00:00Z", "2026-02-23")
	}
}

// localDay is one row of the clock-change tables: the day of a date, by its first instant and its length.
type localDay struct {
	zone, date, start string
	length            time.Duration
}

func checkDays(t *testing.T, days []localDay) {
	t.Helper()
	for _, day := range days {
		loc := mustZone(t, day.zone)
		date, err := time.Parse(time.DateOnly, day.date)
		if err != nil {
			t.Fatal(err)
		}
		first, exists := firstInstant(loc, date.Year(), date.Month(), date.Day())
		if !exists || showInstant(first) != day.start {
			t.Errorf("%s %s: first instant %s (exists: %v), want %s", day.zone, day.date, showInstant(first), exists, day.start)
		}
		end := instant(t, day.start) + day.length.Microseconds()
		for _, at := range []int64{instant(t, day.start), end - 1} {
			wantPeriod(t, Calendar{Kind: Day, Zone: day.zone}, showInstant(at), day.start, showInstant(end), day.date)
		}
	}
}

func TestT35_Berlin(t *testing.T) {
	t.Parallel()
	checkDays(t, []localDay{
		{"Europe/Berlin", "2026-03-29", "2026-03-28T23:00:00Z", 23 * time.Hour},
		{"Europe/Berlin", "2026-10-25", "2026-10-24T22:00:00Z", 25 * time.Hour},
	})
	c := Calendar{Kind: Day, Zone: "Europe/Berlin"}
	wantPeriod(t, c, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z", "2026-03-29")
	wantPeriod(t, c, "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z", "2026-10-25")
}

func TestT36_Santiago(t *testing.T) {
	t.Parallel()
	checkDays(t, []localDay{
		{"America/Santiago", "2026-04-04", "2026-04-04T03:00:00Z", 25 * time.Hour},
		{"America/Santiago", "2026-09-06", "2026-09-06T04:00:00Z", 23 * time.Hour}, // 01:00 local, midnight is missing
	})
}

func TestT37_CairoHavanaBeirut(t *testing.T) {
	t.Parallel()
	checkDays(t, []localDay{
		{"Africa/Cairo", "2026-04-24", "2026-04-23T22:00:00Z", 23 * time.Hour},
		{"Africa/Cairo", "2026-10-29", "2026-10-28T21:00:00Z", 25 * time.Hour},
		{"America/Havana", "2026-03-08", "2026-03-08T05:00:00Z", 23 * time.Hour},
		{"America/Havana", "2026-11-01", "2026-11-01T04:00:00Z", 25 * time.Hour}, // the first of two midnights
		{"Asia/Beirut", "2026-03-29", "2026-03-28T22:00:00Z", 23 * time.Hour},
	})
}

func TestT38_Apia(t *testing.T) {
	t.Parallel()
	checkDays(t, []localDay{
		{"Pacific/Apia", "2011-12-29", "2011-12-29T10:00:00Z", 24 * time.Hour}, // ends 12-30T10:00Z
		{"Pacific/Apia", "2011-12-31", "2011-12-30T10:00:00Z", 24 * time.Hour},
	})
	first, exists := firstInstant(mustZone(t, "Pacific/Apia"), 2011, time.December, 30)
	if exists || showInstant(first) != "2011-12-30T10:00:00Z" {
		t.Errorf("2011-12-30: first instant %s (exists: %v), want none on that date", showInstant(first), exists)
	}
}

func TestT39_StJohns(t *testing.T) {
	t.Parallel()
	checkDays(t, []localDay{
		{"America/St_Johns", "2010-11-06", "2010-11-06T02:30:00Z", 24 * time.Hour},
		{"America/St_Johns", "2010-11-07", "2010-11-07T02:30:00Z", 25 * time.Hour},
	})
	// At 00:01 the clock went back to 23:01 of the 6th. The minute before and the hour after belong to the 7th.
	for _, at := range []string{"2010-11-07T02:30:30Z", "2010-11-07T02:31:00Z", "2010-11-07T03:29:59.999999Z"} {
		for _, c := range []Calendar{
			{Kind: Day, Zone: "America/St_Johns"},
			{Kind: Week, WeekStart: Sunday, Zone: "America/St_Johns"},
			{Kind: Month, Anchor: 7, Zone: "America/St_Johns"},
		} {
			start, _, name := c.period(mustZone(t, c.Zone), instant(t, at))
			if name != "2010-11-07" || showInstant(start) != "2010-11-07T02:30:00Z" {
				t.Errorf("%v at %s: period %s from %s, want 2010-11-07 from 02:30Z", c.Kind, at, name, showInstant(start))
			}
		}
	}
}

func TestT40_LordHoweKathmandu(t *testing.T) {
	t.Parallel()
	checkDays(t, []localDay{
		{"Australia/Lord_Howe", "2026-04-05", "2026-04-04T13:00:00Z", 24*time.Hour + 30*time.Minute},
		{"Australia/Lord_Howe", "2026-10-04", "2026-10-03T13:30:00Z", 23*time.Hour + 30*time.Minute},
		{"Asia/Kathmandu", "2026-05-01", "2026-04-30T18:15:00Z", 24 * time.Hour},
	})
}

// slowFirst finds the first instant of a date by looking at the clock, minute by minute and then second by
// second: no zone has kept an offset for less than a minute. date is midnight as if it were UTC.
func slowFirst(loc *time.Location, date time.Time) int64 {
	reached := func(sec int64) bool {
		_, offset := time.Unix(sec, 0).In(loc).Zone()
		return sec+int64(offset) >= date.Unix()
	}
	sec := date.Add(-16 * time.Hour).Unix()
	for !reached(sec) {
		sec += 60
	}
	for reached(sec - 1) {
		sec--
	}
	return time.Unix(sec, 0).UnixMicro()
}

// slowPeriod walks over the dates around at, one by one, and cuts wherever c says that a period starts.
func slowPeriod(c Calendar, loc *time.Location, at int64) (start, end int64, name string) {
	startsPeriod := func(date time.Time) bool {
		switch c.Kind {
		case Week:
			return date.Weekday().String() == c.WeekStart.String()
		case Month:
			return date.Day() == c.Anchor
		}
		return true
	}
	y, m, d := time.UnixMicro(at).In(loc).Date()
	date := time.Date(y, m, d+2, 0, 0, 0, 0, time.UTC) // surely later than at
	for !startsPeriod(date) {
		date = date.AddDate(0, 0, 1)
	}
	for ; ; date = date.AddDate(0, 0, -1) {
		if !startsPeriod(date) {
			continue
		}
		start = slowFirst(loc, date)
		if start <= at {
			return start, end, time.UnixMicro(start).In(loc).Format("2006-01-02")
		}
		end = start
	}
}

// offsetChanges lists the instants, to the microsecond, at which the zone's offset changed in the years 1970 to
// 2099, by looking at every sixth hour.
func offsetChanges(loc *time.Location) []int64 {
	offset := func(sec int64) int {
		_, off := time.Unix(sec, 0).In(loc).Zone()
		return off
	}
	const step = 6 * 60 * 60
	changes := []int64{0}
	for lo := int64(0); lo < time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).Unix(); lo += step {
		was := offset(lo)
		if offset(lo+step) == was {
			continue
		}
		before, after := lo, lo+step
		for after-before > 1 {
			if mid := (before + after) / 2; offset(mid) == was {
				before = mid
			} else {
				after = mid
			}
		}
		changes = append(changes, time.Unix(after, 0).UnixMicro())
	}
	return changes
}

// Periods equal those of the slow model, and every instant is in exactly one of them.
func TestR6_MatchesClock(t *testing.T) {
	t.Parallel()
	locs, changes := map[string]*time.Location{}, map[string][]int64{}
	for _, zone := range nasty {
		locs[zone] = mustZone(t, zone)
		changes[zone] = offsetChanges(locs[zone])
	}
	lastYear := instant(t, "2099-12-31T00:00:00Z")
	nearby := (49 * time.Hour).Microseconds()
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(nasty).Draw(t, "zone")
		loc := locs[zone]
		at := rapid.Int64Range(0, lastYear).Draw(t, "at")
		if rapid.Bool().Draw(t, "nearAChange") {
			at = rapid.SampledFrom(changes[zone]).Draw(t, "change") + rapid.Int64Range(-nearby, nearby).Draw(t, "by")
		}
		c := Calendar{
			Kind:      rapid.SampledFrom([]Kind{Day, Week, Month}).Draw(t, "kind"),
			WeekStart: Weekday(rapid.IntRange(0, 6).Draw(t, "weekStart")),
			Anchor:    rapid.IntRange(1, 28).Draw(t, "anchor"),
		}
		start, end, name := c.period(loc, at)
		wantStart, wantEnd, wantName := slowPeriod(c, loc, at)
		if start != wantStart || end != wantEnd || name != wantName {
			t.Fatalf("%v %+v at %s:\n got [%s, %s) %s\nwant [%s, %s) %s", loc, c, showInstant(at),
				showInstant(start), showInstant(end), name, showInstant(wantStart), showInstant(wantEnd), wantName)
		}
		if at < start || at >= end {
			t.Fatalf("%s is not in [%s, %s)", showInstant(at), showInstant(start), showInstant(end))
		}
		for _, inside := range []int64{start, end - 1} {
			if s, e, n := c.period(loc, inside); s != start || e != end || n != name {
				t.Fatalf("%s is in [%s, %s) %s", showInstant(inside), showInstant(s), showInstant(e), n)
			}
		}
		if next, _, _ := c.period(loc, end); next != end {
			t.Fatalf("the period after %s starts at %s", showInstant(end), showInstant(next))
		}
		if _, before, _ := c.period(loc, start-1); before != start {
			t.Fatalf("the period before %s ends at %s", showInstant(start), showInstant(before))
		}
	})
}

// One period after the other from 1970 to 2037: no gap, no overlap, labels in order and each used once.
func TestR6_Tiles(t *testing.T) {
	t.Parallel()
	until := instant(t, "2038-01-01T00:00:00Z")
	longest := map[Kind]time.Duration{Day: 49 * time.Hour, Week: 193 * time.Hour, Month: 32 * 24 * time.Hour}
	for _, zone := range nasty {
		loc := mustZone(t, zone)
		for kind, limit := range longest {
			c := Calendar{Kind: kind, Anchor: 15}
			at, _, _ := c.period(loc, 0)
			for last := ""; at < until; {
				start, end, name := c.period(loc, at)
				if start != at || end <= start || end-start > limit.Microseconds() || name <= last {
					t.Fatalf("%v %v: after %s at %s came [%s, %s) %s", loc, kind, last, showInstant(at),
						showInstant(start), showInstant(end), name)
				}
				at, last = end, name
			}
		}
	}
}

func BenchmarkPeriod(b *testing.B) {
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/St_Johns"} {
		for kind := Day; kind <= Month; kind++ {
			b.Run(fmt.Sprint(zone, "/", kind), func(b *testing.B) {
				loc, c := mustZone(b, zone), Calendar{Kind: kind}
				at := instant(b, "2028-03-26T12:00:00Z")
				for b.Loop() {
					c.period(loc, at)
				}
			})
		}
	}
}
