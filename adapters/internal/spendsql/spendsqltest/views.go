// Package spendsqltest checks what SQL adapters have beside their store: the views for people.
package spendsqltest

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stint-go/stint/spendlimit"
)

// Views is a store with its views.
type Views struct {
	Store             spendlimit.Store
	Clock             *Clock // of the store
	SQL               *sql.DB
	Balance, OpenHold string                     // names of the views
	Time              func(column string) string // the SQL of a timestamp as RFC 3339 text in UTC, to the second
	JSON              func(column string) string // the SQL of a list as JSON text
}

// Clock is a clock that stands until it is moved.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// NewClock returns a clock that shows at.
func NewClock(at time.Time) *Clock { return &Clock{at: at} }

// Now is the time that it shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Advance moves it on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

type balance struct {
	Unit, Account, Limit, Kind, Period, Start, End      string
	Scale                                               uint8
	InForce, Spent, Held, Available, Overrun, Cut, Assd spendlimit.Amount
	Unpriced                                            int64
}

type period struct{ Account, Limit, Period string }

type hold struct {
	Key, State, Group, Parent, Born, Expires string
	BornUS, ExpiresUS                        int64
	Granted, Own, Recorded, Assumed          spendlimit.Amount
	Slots                                    int
	Accounts, Payers                         []string
	Periods                                  []period
}

// CheckViews runs a random load on a ledger, beside another one, and compares what its views show with what it says.
func CheckViews(t *testing.T, v Views) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, name := range []string{"first", "second"} {
		led, err := spendlimit.New(v.Store, spendlimit.Config{Name: name, Unit: spendlimit.USD})
		if err != nil {
			t.Fatal(err)
		}
		l := &load{t: t, led: led, clock: v.Clock, dice: rand.New(rand.NewPCG(seed, uint64(len(name)))), entries: map[string][]period{}}
		l.run()
		v.compare(l, name)
	}
	for _, statement := range []string{"UPDATE " + v.Balance + " SET spent = 0", "DELETE FROM " + v.OpenHold} {
		if _, err := v.SQL.ExecContext(t.Context(), statement); err == nil {
			t.Errorf("%s: done, want an error", statement)
		}
	}
}

// compare looks at the rows of one ledger, after all that was due has ended.
func (v *Views) compare(l *load, ledger string) {
	t, ctx := l.t, l.t.Context()
	if _, err := l.led.Sweep(ctx, 1<<20); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, row := range v.balances(t, ledger) {
		shown[row.Account+" "+row.Limit+" "+row.Period] = true
		want, ok := l.balance(row.Account, row.Limit, row.Start)
		if diff := cmp.Diff(want, row); !ok || diff != "" {
			t.Errorf("%s: the limit %s (%v) is not what the view shows: %s", row.Account, row.Limit, ok, diff)
		}
	}
	for _, account := range accounts {
		for b, err := range l.led.Balances(ctx, account, time.Time{}) {
			if err != nil {
				t.Fatal(err)
			}
			if !shown[b.Account+" "+b.Limit+" "+b.Period] && (b.Spent != 0 || b.Held != 0) {
				t.Errorf("the view does not show %+v", b)
			}
		}
	}
	want := l.holds()
	if diff := cmp.Diff(want, v.holds(t, ledger)); diff != "" {
		t.Error(diff)
	}
	if len(shown) < 10 || len(want) < 5 {
		t.Errorf("%d periods and %d open holds are too few to tell", len(shown), len(want))
	}
}

func (v *Views) balances(t *testing.T, ledger string) (list []balance) {
	v.query(t, fmt.Sprintf(`SELECT unit, scale, account, "limit", kind, period, %s, %s, in_force, spent, held, available, overrun, cut, assumed, unpriced
		FROM %s WHERE ledger = '%s' AND NOT removed`, v.Time("start_at"), v.Time("end_at"), v.Balance, ledger),
		func(rows *sql.Rows) error {
			var b balance
			err := rows.Scan(&b.Unit, &b.Scale, &b.Account, &b.Limit, &b.Kind, &b.Period, &b.Start, &b.End, &b.InForce, &b.Spent, &b.Held,
				&b.Available, &b.Overrun, &b.Cut, &b.Assd, &b.Unpriced)
			list = append(list, b)
			return err
		})
	return list
}

func (v *Views) holds(t *testing.T, ledger string) (list []hold) {
	v.query(t, fmt.Sprintf(`SELECT key, state, "group", coalesce(parent, ''), %s, %s, born_us, expires_us, granted, own, recorded, assumed, slots, %s, %s, %s
		FROM %s WHERE ledger = '%s'`, v.Time("born_at"), v.Time("expires_at"), v.JSON("accounts"), v.JSON("payers"), v.JSON("periods"),
		v.OpenHold, ledger),
		func(rows *sql.Rows) error {
			var h hold
			var accounts, payers, periods string
			err := rows.Scan(&h.Key, &h.State, &h.Group, &h.Parent, &h.Born, &h.Expires, &h.BornUS, &h.ExpiresUS, &h.Granted, &h.Own, &h.Recorded,
				&h.Assumed, &h.Slots, &accounts, &payers, &periods)
			if err == nil {
				err = errors.Join(json.Unmarshal([]byte(accounts), &h.Accounts), json.Unmarshal([]byte(payers), &h.Payers),
					json.Unmarshal([]byte(periods), &h.Periods))
			}
			sortPeriods(h.Periods)
			list = append(list, h)
			return err
		})
	slices.SortFunc(list, func(a, b hold) int { return strings.Compare(a.Key, b.Key) })
	return list
}

func (v *Views) query(t *testing.T, text string, each func(*sql.Rows) error) {
	t.Helper()
	rows, err := v.SQL.QueryContext(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

func sortPeriods(list []period) {
	slices.SortFunc(list, func(a, b period) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
}

// CheckUntouched: a view shows what is stored. A raise that has ended and a hold whose time is over are shown until a
// step touches them.
func CheckUntouched(t *testing.T, v Views) {
	ctx := t.Context()
	led, err := spendlimit.New(v.Store, spendlimit.Config{Name: "untouched", Unit: spendlimit.Tokens})
	if err != nil {
		t.Fatal(err)
	}
	limit := spendlimit.Limit{
		Account: "acme", Name: "ever", Kind: spendlimit.AllTime, Amount: 100, Raise: spendlimit.Raise{By: 11, Until: v.Clock.Now().Add(time.Hour)},
	}
	if _, err := led.SetLimit(ctx, limit, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := led.Reserve(ctx, spendlimit.Request{Key: "a", Accounts: []string{"acme"}, Amount: 5, TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	v.Clock.Advance(2 * time.Hour)
	see := func(when string, spent, inForce, held spendlimit.Amount, open int) {
		b, holds := v.balances(t, "untouched"), v.holds(t, "untouched")
		if len(b) != 1 || b[0].InForce != inForce || b[0].Spent != spent || b[0].Held != held || b[0].Available != inForce-spent-held || len(holds) != open {
			t.Errorf("%s: balances %+v, open holds %+v", when, b, holds)
		}
	}
	see("before a step", 0, 111, 5, 1)
	for b, err := range led.Balances(ctx, "acme", time.Time{}) {
		if err != nil || b.InForce != 100 || b.Held != 0 {
			t.Errorf("the ledger says %+v, error %v", b, err)
		}
	}
	see("after a look", 0, 111, 5, 1)
	if _, err := led.Charge(ctx, spendlimit.Expense{ID: "b", Accounts: []string{"acme"}, Cost: spendlimit.Total(1)}); err != nil {
		t.Fatal(err)
	}
	see("after a step", 1, 100, 0, 0)
}
