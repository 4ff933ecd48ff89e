package spendsqltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// load is a random load on a ledger.
type load struct {
	t       *testing.T
	led     *spendlimit.Ledger
	clock   *Clock
	dice    *rand.Rand
	keys    []string
	entries map[string][]period // the periods that each hold has counted in, by key
	n       int
}

var accounts = []string{"acme", `b "quoted", 'twice'`, "ünï"}

func (l *load) run() {
	for _, account := range accounts {
		for _, limit := range []spendlimit.Limit{
			{Name: "daily", Kind: spendlimit.Day, Amount: 50_000 + l.amount(90_000), Zone: "Europe/Berlin"},
			{Name: "weekly", Kind: spendlimit.Week, Amount: 200_000 + l.amount(200_000), CarryHolds: true},
			{Name: "monthly", Kind: spendlimit.Month, Amount: 600_000, Raise: spendlimit.Raise{By: 50_000, Until: l.clock.Now().AddDate(9, 0, 0)}},
			{Name: "ever", Kind: spendlimit.AllTime, Amount: spendlimit.MaxAmount, Mode: spendlimit.Soft},
		} {
			limit.Account, limit.OnUnpriced = account, spendlimit.Allow
			_, err := l.led.SetLimit(l.t.Context(), limit, "")
			l.check(err)
		}
	}
	for range 250 {
		l.step()
	}
	l.clock.Advance(10 * time.Hour)
	for range 20 { // some are left open
		l.reserve()
	}
}

func (l *load) amount(below int64) spendlimit.Amount {
	return spendlimit.Amount(1 + l.dice.Int64N(below))
}

func (l *load) id() string {
	l.n++
	return fmt.Sprintf("id %d", l.n)
}

// key is one of the last holds.
func (l *load) key() string {
	return l.keys[len(l.keys)-1-l.dice.IntN(min(len(l.keys), 12))]
}

// check stops the test at an error that is not the ledger's own decision.
func (l *load) check(err error) {
	l.t.Helper()
	for _, decided := range []error{
		nil, spendlimit.ErrDenied, spendlimit.ErrSettled, spendlimit.ErrReleased, spendlimit.ErrLapsed, spendlimit.ErrDispatched, spendlimit.ErrInvalid,
	} {
		if errors.Is(err, decided) {
			return
		}
	}
	l.t.Fatal(err)
}

func (l *load) step() {
	ctx, led := l.t.Context(), l.led
	var err error
	switch n := l.dice.IntN(24); {
	case n < 9 || len(l.keys) == 0:
		l.reserve()
	case n < 11:
		l.clock.Advance(time.Duration(l.dice.Int64N(int64(9 * time.Hour))))
	case n < 14:
		err = led.Dispatch(ctx, l.key())
	case n == 14:
		_, err = led.Record(ctx, spendlimit.Usage{Hold: l.key(), ID: l.id(), Cost: spendlimit.Total(l.amount(3000))})
	case n == 15:
		_, err = led.Record(ctx, spendlimit.Usage{Hold: l.key(), ID: l.id(), Cost: spendlimit.Unknown("no price yet")})
	case n < 18:
		_, err = led.Settle(ctx, l.key(), spendlimit.Total(l.amount(12_000)))
	case n == 18:
		_, err = led.Release(ctx, l.key())
	case n == 19:
		_, err = led.Grow(ctx, spendlimit.Growth{Hold: l.key(), ID: l.id(), By: l.amount(2000)})
	case n == 20:
		_, err = led.Extend(ctx, spendlimit.Extension{Hold: l.key(), TTL: 20 * time.Hour, Roll: true, ID: l.id(), Min: 1})
	case n == 21:
		_, err = led.Charge(ctx, spendlimit.Expense{ID: l.id(), Accounts: accounts[:1], Cost: spendlimit.Total(l.amount(5000))})
	case n == 22:
		err = l.cut()
	default:
		err = l.remove()
	}
	l.check(err)
}

func (l *load) reserve() {
	r := spendlimit.Request{Key: "hold " + l.id(), Amount: l.amount(9000), Min: 1, TTL: time.Hour + time.Duration(l.dice.Int64N(int64(20*time.Hour)))}
	for _, account := range accounts {
		if l.dice.IntN(2) == 0 {
			r.Accounts = append(r.Accounts, account)
		}
	}
	switch {
	case len(l.keys) > 0 && l.dice.IntN(4) == 0:
		r.Parent, r.TTL = l.key(), time.Hour
		if h, err := l.led.Hold(l.t.Context(), r.Parent); err != nil || !h.State.Live() {
			l.check(err)
			return
		}
		r.Accounts = slices.DeleteFunc(r.Accounts, func(a string) bool { return slices.Contains(l.payers(r.Parent), a) })
	case len(r.Accounts) == 0:
		r.Accounts = accounts[:1]
	case l.dice.IntN(3) == 0:
		r.Split = spendlimit.Split{Group: "team", Slots: 4}
	}
	_, err := l.led.Reserve(l.t.Context(), r)
	if l.check(err); err == nil {
		l.keys = append(l.keys, r.Key)
	}
}

// cut sets a limit to another amount, below what is in use or not.
func (l *load) cut() error {
	for b, err := range l.led.Balances(l.t.Context(), accounts[1], time.Time{}) {
		if err != nil || b.Limit != "daily" {
			continue
		}
		limit := spendlimit.Limit{Account: b.Account, Name: b.Limit, Kind: b.Kind, Amount: l.amount(90_000), Zone: "Europe/Berlin", OnUnpriced: spendlimit.Allow}
		_, err := l.led.SetLimit(l.t.Context(), limit, b.Fingerprint)
		return err
	}
	return nil
}

// remove removes a limit, or makes it again.
func (l *load) remove() error {
	for b, err := range l.led.Balances(l.t.Context(), accounts[2], time.Time{}) {
		if err == nil && b.Limit == "weekly" {
			return l.led.RemoveLimit(l.t.Context(), b.Account, b.Limit, b.Fingerprint)
		}
	}
	limit := spendlimit.Limit{Account: accounts[2], Name: "weekly", Kind: spendlimit.Week, Amount: l.amount(200_000), OnUnpriced: spendlimit.Allow}
	_, err := l.led.SetLimit(l.t.Context(), limit, "")
	return err
}

// balance is what the ledger says about a limit in the period that starts at an instant.
func (l *load) balance(account, limit, start string) (balance, bool) {
	at, err := time.Parse(time.RFC3339, start)
	if err != nil {
		l.t.Fatal(err)
	}
	for b, err := range l.led.Balances(l.t.Context(), account, at) {
		if err != nil {
			l.t.Fatal(err)
		}
		if b.Limit != limit {
			continue
		}
		if b.End.IsZero() {
			b.End = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
		}
		return balance{
			Unit: b.Unit.Code, Scale: b.Unit.Scale, Account: b.Account, Limit: b.Limit, Kind: b.Kind.String(), Period: b.Period,
			Start: b.Start.Format(time.RFC3339), End: b.End.Format(time.RFC3339), InForce: b.InForce, Spent: b.Spent, Held: b.Held,
			Available: b.Available, Overrun: b.Overrun, Cut: b.Cut, Assd: b.Assumed, Unpriced: b.Unpriced,
		}, true
	}
	return balance{}, false
}

// holds is what the ledger says about its open holds.
func (l *load) holds() (list []hold) {
	l.readEntries()
	for _, periods := range l.entries {
		sortPeriods(periods)
	}
	for h, err := range l.led.Holds(l.t.Context(), spendlimit.HoldFilter{Live: true}) {
		if err != nil {
			l.t.Fatal(err)
		}
		row := hold{
			Key: h.Key, State: h.State.String(), Group: h.Group, Parent: h.Parent, Born: h.CreatedAt.Format(time.RFC3339),
			Expires: h.ExpiresAt.Format(time.RFC3339), BornUS: h.CreatedAt.UnixMicro(), ExpiresUS: h.ExpiresAt.UnixMicro(),
			Granted: h.Granted, Own: h.Own, Recorded: h.Recorded, Assumed: h.Assumed, Slots: h.Slots,
			Accounts: append([]string{}, h.Accounts...), Payers: l.payers(h.Key), Periods: append([]period{}, slices.Compact(l.entries[h.Key])...),
		}
		list = append(list, row)
	}
	slices.SortFunc(list, func(a, b hold) int { return strings.Compare(a.Key, b.Key) })
	return list
}

// payers are the accounts of a hold and its ancestors.
func (l *load) payers(key string) (list []string) {
	for key != "" {
		h, err := l.led.Hold(l.t.Context(), key)
		if err != nil {
			l.t.Fatal(err)
		}
		list = append(list, h.Accounts...)
		key = h.Parent
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// readEntries finds the periods of holds in the journal: those in which a grant moved money for them.
func (l *load) readEntries() {
	for _, account := range accounts {
		for e, err := range l.led.Entries(l.t.Context(), account, 0) {
			if err != nil {
				l.t.Fatal(err)
			}
			key := e.Ref
			switch e.Kind {
			case spendlimit.EntryReserve:
			case spendlimit.EntryGrow, spendlimit.EntryRoll:
				key = e.Hold
			default:
				continue
			}
			for _, p := range e.Postings {
				if p.Held > 0 {
					l.entries[key] = append(l.entries[key], period{account, p.Limit, p.Period})
				}
			}
		}
	}
}
