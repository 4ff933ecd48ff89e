package spendlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
)

// wantInvalid wants an *InvalidError that names this field.
func (f *fixture) wantInvalid(err error, field string) {
	f.Helper()
	var bad *spendlimit.InvalidError
	if !errors.As(err, &bad) || !errors.Is(err, spendlimit.ErrInvalid) {
		f.Errorf("got error %v, want an invalid %s", err, field)
		return
	}
	if bad.Field != field {
		f.Errorf("got %v, want an invalid %s", err, field)
	}
}

// bad is one way to spoil a good call. The answer is an *InvalidError for the field, or err.
type bad[T any] struct {
	name   string
	change func(v *T)
	field  string
	err    error
}

// badNames are no names.
var badNames = map[string]string{
	"empty": "", "of 257 bytes": strings.Repeat("n", 257), "not UTF-8": "a\xffb", "with a NUL": "a\x00b",
	"with a line feed": "a\nb", "with a DEL": "a\x7fb", "with a C1 control": "a\u0085b",
}

// badName spoils a name in all ways; optional ones may be empty.
func badName[T any](field string, optional bool, set func(v *T, name string)) []bad[T] {
	var out []bad[T]
	for how, name := range badNames {
		if name == "" && optional {
			continue
		}
		out = append(out, bad[T]{field + " " + how, func(v *T) { set(v, name) }, field, nil})
	}
	return out
}

// badLabels spoils labels in all ways.
func badLabels[T any](set func(v *T, labels map[string]string)) []bad[T] {
	out := badName("Labels", false, func(v *T, name string) { set(v, map[string]string{name: "x"}) })
	out = append(out, badName("Labels", false, func(v *T, name string) { set(v, map[string]string{"x": name}) })...)
	many := map[string]string{}
	for i := range 17 {
		many[keyN("l", i)] = "x"
	}
	return append(out, bad[T]{"17 labels", func(v *T) { set(v, many) }, "Labels", nil})
}

// badAccounts spoils a list of accounts.
func badAccounts[T any](set func(v *T, accounts []string)) []bad[T] {
	var many []string
	for i := range 17 {
		many = append(many, keyN("a", i))
	}
	return append(
		badName("Accounts", false, func(v *T, name string) { set(v, names("acme", name)) }),
		bad[T]{"no accounts", func(v *T) { set(v, nil) }, "Accounts", nil},
		bad[T]{"17 accounts", func(v *T) { set(v, many) }, "Accounts", nil},
		bad[T]{"an account twice", func(v *T) { set(v, names("acme", "B", "acme")) }, "Accounts", nil},
	)
}

// badCosts are costs that fit no call.
func badCosts[T any](set func(v *T, c spendlimit.Cost)) []bad[T] {
	with := func(change func(c *spendlimit.Cost)) func(v *T) {
		return func(v *T) {
			c := total("2")
			change(&c)
			set(v, c)
		}
	}
	return []bad[T]{
		{"zero cost value", func(v *T) { set(v, spendlimit.Cost{}) }, "Cost", nil},
		{"cost below 0", func(v *T) { set(v, spendlimit.Total(-1)) }, "Cost", nil},
		{"metered below 0", with(func(c *spendlimit.Cost) { c.Metered = -1 }), "Cost.Metered", nil},
		{"unknown source", with(func(c *spendlimit.Cost) { c.Source = 9 }), "Cost.Source", nil},
	}
}

func badReasons[T any](set func(v *T, c spendlimit.Cost)) []bad[T] {
	return badName("Cost.Reason", false, func(v *T, name string) { set(v, spendlimit.Unknown(name)) })
}

// badInput spoils a good call in all these ways. Each time nothing may be written, and the good call with the same id has
// to work afterwards.
func badInput[T any](t *testing.T, good T, do func(f *fixture, v T) error, lists ...[]bad[T]) {
	t.Parallel()
	for _, cases := range lists {
		for _, tc := range cases {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				f := badFixture(t)
				v := good
				tc.change(&v)
				f.unchanged(func() {
					err := do(f, v)
					if tc.err != nil {
						f.wantErr(err, tc.err)
					} else {
						f.wantInvalid(err, tc.field)
					}
				})
				f.ok(do(f, good))
			})
		}
	}
}

// badFixture has limits on acme and B, the hold "h" of 10 with 1 recorded, and a chain of 8 holds.
func badFixture(t *testing.T) *fixture {
	f := newFixture(t)
	f.limit(daily("100"))
	f.limit(on("B", daily("100")))
	f.mustReserve(req("h", "10"))
	f.mustRecord("h", "used", "1")
	f.mustReserve(req("open", "2"))
	f.mustReserve(child("kid", "open", "1"))
	f.mustReserve(req("depth1", "1"))
	for i := 2; i <= 8; i++ {
		f.mustReserve(child(keyN("depth", i), keyN("depth", i-1), "1"))
	}
	return f
}

func TestBadInput_Reserve(t *testing.T) {
	type request = spendlimit.Request
	set := func(change func(r *request)) func(r *request) { return change }
	good := request{Key: "new", Accounts: names("acme", "B"), Amount: usd("5"), Min: usd("1")}
	badInput(t, good, func(f *fixture, r request) error {
		_, checked := f.Check(f.ctx, r)
		_, waited := error(nil), error(nil)
		if checked != nil {
			_, waited = f.ReserveWait(f.ctx, r)
		}
		_, err := f.Reserve(f.ctx, r)
		if (checked == nil) != (err == nil) || waited != nil && waited.Error() != err.Error() {
			f.Errorf("check: %v, wait: %v, reserve: %v", checked, waited, err)
		}
		return err
	},
		badName("Key", false, func(r *request, name string) { r.Key = name }),
		badName("Parent", true, func(r *request, name string) { r.Parent = name }),
		badName("Split.Group", false, func(r *request, name string) { r.Split = spendlimit.Split{Group: name, Slots: 2} }),
		badAccounts(func(r *request, accounts []string) { r.Accounts = accounts }),
		badLabels(func(r *request, labels map[string]string) { r.Labels = labels }),
		[]bad[request]{
			{"price of 4 KiB and a byte", set(func(r *request) { r.Price = strings.Repeat("p", 4<<10+1) }), "Price", nil},
			{"price not UTF-8", set(func(r *request) { r.Price = "a\xffb" }), "Price", nil},
			{"price with a NUL", set(func(r *request) { r.Price = "a\x00b" }), "Price", nil},
			{"amount below 0", set(func(r *request) { r.Amount = -1 }), "Amount", nil},
			{"amount 0", set(func(r *request) { r.Amount, r.Min = 0, 0 }), "Amount", nil},
			{"min below 0", set(func(r *request) { r.Min = -1 }), "Min", nil},
			{"min above amount", set(func(r *request) { r.Min = r.Amount + 1 }), "Min", nil},
			{"rest with amount", set(func(r *request) { r.Rest = true }), "Rest", nil},
			{"free with amount", set(func(r *request) { r.Free, r.Min = true, 0 }), "Free", nil},
			{"free with min", set(func(r *request) { r.Free, r.Amount = true, 0 }), "Free", nil},
			{"free with rest", set(func(r *request) { r.Free, r.Rest, r.Amount, r.Min = true, true, 0, 0 }), "Free", nil},
			{"free with split", set(func(r *request) {
				r.Free, r.Amount, r.Min, r.Split = true, 0, 0, spendlimit.Split{Group: "g", Slots: 2}
			}), "Free", nil},
			{"group without slots", set(func(r *request) { r.Split.Group = "g" }), "Split.Slots", nil},
			{"slots without group", set(func(r *request) { r.Split.Slots = 2 }), "Split.Group", nil},
			{"slots below 1", set(func(r *request) { r.Split = spendlimit.Split{Group: "g", Slots: -1} }), "Split.Slots", nil},
			{"4,097 slots", set(func(r *request) { r.Split = spendlimit.Split{Group: "g", Slots: 4097} }), "Split.Slots", nil},
			{"ttl below 0", set(func(r *request) { r.TTL = -time.Hour }), "TTL", nil},
			{"ttl below 1 s", set(func(r *request) { r.TTL = time.Second - 1 }), "TTL", nil},
			{"ttl above 24 h", set(func(r *request) { r.TTL = 24*time.Hour + 1 }), "TTL", nil},
			{"its own parent", set(func(r *request) { r.Parent = r.Key }), "Parent", nil},
			{"depth 9", set(func(r *request) { r.Parent, r.Amount, r.Min = "depth8", 1, 0 }), "Parent", nil},
			{"unknown parent", set(func(r *request) { r.Parent = "nobody" }), "", spendlimit.ErrNotFound},
			{"unit of another ledger", set(func(r *request) { r.Unit = "tokens" }), "", spendlimit.ErrUnit},
		})
}

// What is just inside the bounds is fine.
func TestBadInput_GoodEdges(t *testing.T) {
	t.Parallel()
	f := badFixture(t)
	long := strings.Repeat("é", 128)
	labels := map[string]string{}
	for i := range 16 {
		labels[keyN("l", i)] = long
	}
	f.limit(on(long, daily("5")))
	for i, r := range []spendlimit.Request{
		{Key: long, Accounts: names(long), Amount: 1, Labels: labels, Price: strings.Repeat("p", 4<<10), Unit: "USD"},
		{Key: "min is amount", Accounts: names("acme"), Amount: 5, Min: 5, TTL: time.Second},
		{Key: "slots", Accounts: names("acme"), Split: spendlimit.Split{Group: long, Slots: 4096}, TTL: 24 * time.Hour},
		{Key: "one slot", Accounts: names("B"), Split: spendlimit.Split{Group: "h", Slots: 1}, Rest: true, Min: 1},
		{Key: "child without accounts", Parent: "depth7", Free: true},
		{Key: "child on its parent's account", Parent: "open", Accounts: names("acme"), Amount: 1},
	} {
		if _, err := f.Reserve(f.ctx, r); err != nil {
			t.Errorf("request %d: %v", i, err)
		}
	}
	var many []string
	for i := range 16 {
		a := keyN("account", i)
		f.limit(on(a, daily("5")))
		many = append(many, a)
	}
	f.mustReserve(spendlimit.Request{Key: "16 accounts", Accounts: many, Amount: 1})
}

func TestBadInput_Record(t *testing.T) {
	type usage = spendlimit.Usage
	badInput(t, usage{Hold: "h", ID: "new", Cost: total("2")}, func(f *fixture, u usage) error {
		_, err := f.Record(f.ctx, u)
		return err
	},
		badName("Hold", false, func(u *usage, name string) { u.Hold = name }),
		badName("ID", false, func(u *usage, name string) { u.ID = name }),
		badLabels(func(u *usage, labels map[string]string) { u.Labels = labels }),
		badCosts(func(u *usage, c spendlimit.Cost) { u.Cost = c }),
		badReasons(func(u *usage, c spendlimit.Cost) { u.Cost = c }),
		[]bad[usage]{
			{"recorded", func(u *usage) { u.Cost = spendlimit.Recorded() }, "Cost", nil},
			{"unknown hold", func(u *usage) { u.Hold = "nobody" }, "", spendlimit.ErrNotFound},
			{"known id, other cost", func(u *usage) { u.ID = "used" }, "", spendlimit.ErrKeyReused},
			{"overflow", func(u *usage) { u.Cost = spendlimit.Total(math.MaxInt64) }, "", spendlimit.ErrOverflow},
		})
}

func TestBadInput_Settle(t *testing.T) {
	type call struct {
		hold string
		cost spendlimit.Cost
		opts []spendlimit.Option
	}
	badInput(t, call{hold: "h", cost: total("2")}, func(f *fixture, c call) error {
		_, err := f.Settle(f.ctx, c.hold, c.cost, c.opts...)
		return err
	},
		badName("Hold", false, func(c *call, name string) { c.hold = name }),
		badCosts(func(c *call, cost spendlimit.Cost) { c.cost = cost }),
		badReasons(func(c *call, cost spendlimit.Cost) { c.cost = cost }),
		[]bad[call]{
			{"below what is recorded", func(c *call) { c.cost = spendlimit.Total(usd("1") - 1) }, "Cost", nil},
			{"unknown hold", func(c *call) { c.hold = "nobody" }, "", spendlimit.ErrNotFound},
			{"option of release", func(c *call) { c.opts = []spendlimit.Option{spendlimit.Tree} }, "Option", nil},
			{"option 0", func(c *call) { c.opts = []spendlimit.Option{0} }, "Option", nil},
			{"overflow", func(c *call) { c.hold, c.cost = "open", spendlimit.Total(math.MaxInt64) }, "", spendlimit.ErrOverflow},
		})
}

func TestBadInput_Release(t *testing.T) {
	type call struct {
		hold string
		opts []spendlimit.Option
	}
	badInput(t, call{hold: "open"}, func(f *fixture, c call) error {
		_, err := f.Release(f.ctx, c.hold, c.opts...)
		return err
	},
		badName("Hold", false, func(c *call, name string) { c.hold = name }),
		[]bad[call]{
			{"unknown hold", func(c *call) { c.hold = "nobody" }, "", spendlimit.ErrNotFound},
			{"option of settle", func(c *call) { c.opts = []spendlimit.Option{spendlimit.Late} }, "Option", nil},
		})
}

func TestBadInput_Keys(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(f *fixture, key string) error{
		"Hold":  func(f *fixture, key string) error { return f.Dispatch(f.ctx, key) },
		"Hold ": func(f *fixture, key string) error { return f.Close(f.ctx, key) },
		"key":   func(f *fixture, key string) error { _, err := f.Hold(f.ctx, key); return err },
	} {
		t.Run(name, func(t *testing.T) {
			badInput(t, "open", do,
				badName(strings.TrimSpace(name), false, func(key *string, name string) { *key = name }),
				[]bad[string]{{"unknown hold", func(key *string) { *key = "nobody" }, "", spendlimit.ErrNotFound}})
		})
	}
}

func TestBadInput_Extend(t *testing.T) {
	type ext = spendlimit.Extension
	badInput(t, ext{Hold: "h", ID: "new", Roll: true}, func(f *fixture, e ext) error {
		_, err := f.Extend(f.ctx, e)
		return err
	},
		badName("Hold", false, func(e *ext, name string) { e.Hold = name }),
		badName("ID", false, func(e *ext, name string) { e.ID = name }),
		[]bad[ext]{
			{"unknown hold", func(e *ext) { e.Hold = "nobody" }, "", spendlimit.ErrNotFound},
			{"known id", func(e *ext) { e.ID = "used" }, "", spendlimit.ErrKeyReused},
			{"min below 0", func(e *ext) { e.Min = -1 }, "Min", nil},
			{"id without roll", func(e *ext) { e.Roll = false }, "Roll", nil},
			{"min without roll", func(e *ext) { e.Roll, e.ID, e.Min = false, "", 1 }, "Roll", nil},
			{"roll of a hold without accounts", func(e *ext) { e.Hold = "kid" }, "Roll", nil},
			{"ttl below 0", func(e *ext) { e.TTL = -1 }, "TTL", nil},
			{"ttl below 1 s", func(e *ext) { e.TTL = time.Second - 1 }, "TTL", nil},
			{"ttl above 24 h", func(e *ext) { e.TTL = 24*time.Hour + 1 }, "TTL", nil},
		})
}

func TestBadInput_Grow(t *testing.T) {
	type growth = spendlimit.Growth
	badInput(t, growth{Hold: "h", ID: "new", By: usd("2")}, func(f *fixture, g growth) error {
		_, err := f.Grow(f.ctx, g)
		return err
	},
		badName("Hold", false, func(g *growth, name string) { g.Hold = name }),
		badName("ID", false, func(g *growth, name string) { g.ID = name }),
		[]bad[growth]{
			{"unknown hold", func(g *growth) { g.Hold = "nobody" }, "", spendlimit.ErrNotFound},
			{"known id", func(g *growth) { g.ID = "used" }, "", spendlimit.ErrKeyReused},
			{"by 0", func(g *growth) { g.By = 0 }, "By", nil},
			{"by below 0", func(g *growth) { g.By = -1 }, "By", nil},
			{"min below 0", func(g *growth) { g.Min = -1 }, "Min", nil},
			{"min above by", func(g *growth) { g.Min = g.By + 1 }, "Min", nil},
		})
}

func TestBadInput_Shrink(t *testing.T) {
	type shrinkage = spendlimit.Shrinkage
	badInput(t, shrinkage{Hold: "h", ID: "new", By: usd("9")}, func(f *fixture, s shrinkage) error {
		_, err := f.Shrink(f.ctx, s)
		return err
	},
		badName("Hold", false, func(s *shrinkage, name string) { s.Hold = name }),
		badName("ID", false, func(s *shrinkage, name string) { s.ID = name }),
		[]bad[shrinkage]{
			{"unknown hold", func(s *shrinkage) { s.Hold = "nobody" }, "", spendlimit.ErrNotFound},
			{"known id", func(s *shrinkage) { s.ID = "used" }, "", spendlimit.ErrKeyReused},
			{"by 0", func(s *shrinkage) { s.By = 0 }, "By", nil},
			{"by below 0", func(s *shrinkage) { s.By = -1 }, "By", nil},
			{"by above own", func(s *shrinkage) { s.By = usd("9") + 1 }, "By", nil},
		})
}

func TestBadInput_Charge(t *testing.T) {
	type expense = spendlimit.Expense
	badInput(t, expense{ID: "new", Accounts: names("acme", "B"), Cost: total("2"), At: noon}, func(f *fixture, e expense) error {
		_, err := f.Charge(f.ctx, e)
		return err
	},
		badName("ID", false, func(e *expense, name string) { e.ID = name }),
		badAccounts(func(e *expense, accounts []string) { e.Accounts = accounts }),
		badLabels(func(e *expense, labels map[string]string) { e.Labels = labels }),
		badCosts(func(e *expense, c spendlimit.Cost) { e.Cost = c }),
		[]bad[expense]{
			{"recorded", func(e *expense) { e.Cost = spendlimit.Recorded() }, "Cost", nil},
			{"unknown", func(e *expense) { e.Cost = spendlimit.Unknown("lost") }, "Cost", nil},
			{"in the future", func(e *expense) { e.At = noon.Add(time.Microsecond) }, "At", nil},
			{"overflow", func(e *expense) { e.Cost = spendlimit.Total(math.MaxInt64) }, "", spendlimit.ErrOverflow},
		})
}

func TestBadInput_Adjust(t *testing.T) {
	type adj = spendlimit.Adjustment
	badInput(t, adj{ID: "new", Account: "acme", By: usd("2"), Reason: "bill"}, func(f *fixture, a adj) error {
		_, err := f.Adjust(f.ctx, a)
		return err
	},
		badName("ID", false, func(a *adj, name string) { a.ID = name }),
		badName("Account", false, func(a *adj, name string) { a.Account = name }),
		badName("Account", true, func(a *adj, name string) { a.Account, a.Hold = name, "h" }),
		badName("Hold", true, func(a *adj, name string) { a.Hold = name }),
		badName("Reason", false, func(a *adj, name string) { a.Reason = name }),
		[]bad[adj]{
			{"unknown hold", func(a *adj) { a.Hold = "nobody" }, "", spendlimit.ErrNotFound},
			{"by 0", func(a *adj) { a.By = 0 }, "By", nil},
			{"below 0", func(a *adj) { a.By = -usd("1") - 1 }, "By", nil},
			{"below 0 in the hold's periods", func(a *adj) { a.Hold, a.By = "h", -usd("1")-1 }, "By", nil},
			{"in the future", func(a *adj) { a.At = noon.Add(time.Microsecond) }, "At", nil},
			{"at with hold", func(a *adj) { a.Hold, a.At = "h", noon }, "At", nil},
			{"overflow", func(a *adj) { a.By = math.MaxInt64 }, "", spendlimit.ErrOverflow},
		})
}

func TestBadInput_SetLimit(t *testing.T) {
	type call struct {
		spendlimit.Limit
		expect string
		opts   []spendlimit.LimitOption
	}
	many := make([]spendlimit.Threshold, 9)
	for i := range many {
		many[i].Percent = i + 1
	}
	percent := func(n int) func(*call) {
		return func(c *call) { c.Thresholds = []spendlimit.Threshold{{Percent: 50}, {Percent: n}} }
	}
	badInput(t, call{Limit: weekly("50")}, func(f *fixture, c call) error {
		_, err := f.SetLimit(f.ctx, c.Limit, c.expect, c.opts...)
		return err
	},
		badName("Account", false, func(c *call, name string) { c.Account = name }),
		badName("Name", false, func(c *call, name string) { c.Name = name }),
		badName("Zone", true, func(c *call, name string) { c.Zone = name }),
		[]bad[call]{
			{"kind 0", func(c *call) { c.Kind = 0 }, "Kind", nil},
			{"unknown kind", func(c *call) { c.Kind = spendlimit.AllTime + 1 }, "Kind", nil},
			{"week start", func(c *call) { c.WeekStart = spendlimit.Sunday + 1 }, "WeekStart", nil},
			{"anchor 29", func(c *call) { c.Anchor = 29 }, "Anchor", nil},
			{"anchor below 0", func(c *call) { c.Anchor = -1 }, "Anchor", nil},
			{"unknown zone", func(c *call) { c.Zone = "Middle/Earth" }, "Zone", nil},
			{"local zone", func(c *call) { c.Zone = "Local" }, "Zone", nil},
			{"zone as a path", func(c *call) { c.Zone = "../UTC" }, "Zone", nil},
			{"amount below 0", func(c *call) { c.Amount = -1 }, "Amount", nil},
			{"carry below 0", func(c *call) { c.CarryUnused = -1 }, "CarryUnused", nil},
			{"unknown mode", func(c *call) { c.Mode = 9 }, "Mode", nil},
			{"unknown policy", func(c *call) { c.OnUnpriced = 9 }, "OnUnpriced", nil},
			{"9 thresholds", func(c *call) { c.Thresholds = many }, "Thresholds", nil},
			{"percent 0", percent(0), "Thresholds[1].Percent", nil},
			{"percent below 0", percent(-1), "Thresholds[1].Percent", nil},
			{"percent 1001", percent(1001), "Thresholds[1].Percent", nil},
			{"threshold of something", func(c *call) { c.Thresholds = []spendlimit.Threshold{{Percent: 50, Of: 9}} }, "Thresholds[0].Of", nil},
			{"threshold twice", percent(50), "Thresholds[1]", nil},
			{"raise without until", func(c *call) { c.Raise.By = 1 }, "Raise.Until", nil},
			{"raise below 0", func(c *call) { c.Raise = spendlimit.Raise{By: -1, Until: d2} }, "Raise.By", nil},
			{"overflow with raise", func(c *call) {
				c.Amount, c.Raise = math.MaxInt64, spendlimit.Raise{By: 1, Until: d2}
			}, "", spendlimit.ErrOverflow},
			{"overflow with carry", func(c *call) { c.Amount, c.CarryUnused = math.MaxInt64, 1 }, "", spendlimit.ErrOverflow},
			{"expects another", func(c *call) { c.expect = "another" }, "", spendlimit.ErrStale},
		})
}

func TestBadInput_LimitsOfAnAccount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 16 {
		l := daily("10")
		l.Name = keyN("l", i)
		f.limit(l)
	}
	f.unchanged(func() {
		_, err := f.SetLimit(f.ctx, daily("10"), "")
		f.wantInvalid(err, "Limit")
	})
	f.ok(f.RemoveLimit(f.ctx, "acme", "l7", f.current("acme", "l7")))
	f.limit(daily("10"))
}

func TestBadInput_LimitOption(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.unchanged(func() {
		for _, opt := range []spendlimit.LimitOption{0, spendlimit.Backfill + 1} {
			_, err := f.SetLimit(f.ctx, daily("10"), "", opt)
			f.wantInvalid(err, "LimitOption")
		}
	})
}

func TestBadInput_BackfillOfARow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := f.limit(daily("10"))
	f.mustCharge("c", "1")
	f.unchanged(func() {
		_, err := f.SetLimit(f.ctx, daily("20"), l.Fingerprint, spendlimit.Backfill)
		f.wantInvalid(err, "Backfill")
	})
	f.change(daily("20"), l.Fingerprint)
}

func TestBadInput_Lists(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]struct {
		field string
		call  func(f *fixture, name string) error
	}{
		"remove limit's account": {"account", func(f *fixture, name string) error { return f.RemoveLimit(f.ctx, name, "day", "x") }},
		"remove limit's name":    {"name", func(f *fixture, name string) error { return f.RemoveLimit(f.ctx, "acme", name, "x") }},
		"balances":               {"account", func(f *fixture, name string) error { return only(f.Balances(f.ctx, name, time.Time{})) }},
		"entries":                {"account", func(f *fixture, name string) error { return only(f.Entries(f.ctx, name, 0)) }},
		"verify":                 {"account", func(f *fixture, name string) error { _, err := f.Verify(f.ctx, name); return err }},
		"prune":                  {"account", func(f *fixture, name string) error { return f.Prune(f.ctx, name, noon.AddDate(0, 0, -40)) }},
		"holds": {"Account", func(f *fixture, name string) error {
			if name == "" {
				name = "\x00"
			}
			return only(f.Holds(f.ctx, spendlimit.HoldFilter{Account: name}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := badFixture(t)
			f.unchanged(func() {
				for _, bad := range badNames {
					f.wantInvalid(do.call(f, bad), do.field)
				}
			})
		})
	}
}

func TestBadInput_Prune(t *testing.T) {
	t.Parallel()
	f := badFixture(t)
	f.clock.Advance(100 * 24 * time.Hour)
	limit := f.clock.Now().Add(-35 * 24 * time.Hour)
	f.unchanged(func() { f.wantInvalid(f.Prune(f.ctx, "acme", limit.Add(time.Microsecond)), "before") })
	f.ok(f.Prune(f.ctx, "acme", limit))
}

// An id keeps the content of its first use, whichever part of it another call changes.
func TestBadInput_OtherContent(t *testing.T) {
	t.Parallel()
	t.Run("hold", func(t *testing.T) {
		type request = spendlimit.Request
		first := request{
			Key: "k", Accounts: names("acme", "B"), Amount: usd("5"), Min: usd("1"), TTL: time.Hour,
			Labels: map[string]string{"a": "1"}, Price: "rates", Split: spendlimit.Split{Group: "g", Slots: 2},
		}
		reuse[request](t, first, func(f *fixture, r request) error { _, err := f.Reserve(f.ctx, r); return err }, map[string]func(r *request){
			"accounts":      func(r *request) { r.Accounts = names("acme") },
			"amount":        func(r *request) { r.Amount++ },
			"min":           func(r *request) { r.Min++ },
			"rest":          func(r *request) { r.Rest, r.Amount = true, 0 },
			"free":          func(r *request) { *r = request{Key: "k", Accounts: r.Accounts, Free: true, TTL: r.TTL} },
			"group":         func(r *request) { r.Split.Group = "h" },
			"slots":         func(r *request) { r.Split.Slots = 3 },
			"no split":      func(r *request) { r.Split = spendlimit.Split{} },
			"parent":        func(r *request) { r.Parent = "h" },
			"ttl":           func(r *request) { r.TTL = time.Minute },
			"label's value": func(r *request) { r.Labels = map[string]string{"a": "2"} },
			"label's key":   func(r *request) { r.Labels = map[string]string{"b": "1"} },
			"no labels":     func(r *request) { r.Labels = nil },
			"price":         func(r *request) { r.Price = "other rates" },
		})
	})
	t.Run("charge", func(t *testing.T) {
		type expense = spendlimit.Expense
		first := expense{ID: "i", Accounts: names("acme", "B"), Cost: total("1"), At: noon, Labels: map[string]string{"a": "1"}}
		reuse[expense](t, first, func(f *fixture, e expense) error { _, err := f.Charge(f.ctx, e); return err }, map[string]func(e *expense){
			"accounts": func(e *expense) { e.Accounts = names("acme") },
			"cost":     func(e *expense) { e.Cost = total("2") },
			"source":   func(e *expense) { e.Cost.Source = spendlimit.Reported },
			"at":       func(e *expense) { e.At = noon.Add(-time.Hour) },
			"now":      func(e *expense) { e.At = time.Time{} },
			"labels":   func(e *expense) { e.Labels = nil },
		})
	})
	t.Run("adjust", func(t *testing.T) {
		type adj = spendlimit.Adjustment
		first := adj{ID: "i", Account: "acme", By: usd("1"), At: noon, Reason: "bill"}
		reuse[adj](t, first, func(f *fixture, a adj) error { _, err := f.Adjust(f.ctx, a); return err }, map[string]func(a *adj){
			"account": func(a *adj) { a.Account = "B" },
			"hold":    func(a *adj) { a.Hold, a.At = "h", time.Time{} },
			"by":      func(a *adj) { a.By++ },
			"at":      func(a *adj) { a.At = noon.Add(-time.Hour) },
			"reason":  func(a *adj) { a.Reason = "another bill" },
		})
	})
	t.Run("grow", func(t *testing.T) {
		type growth = spendlimit.Growth
		reuse[growth](t, growth{Hold: "h", ID: "i", By: usd("2"), Min: usd("1")},
			func(f *fixture, g growth) error { _, err := f.Grow(f.ctx, g); return err }, map[string]func(g *growth){
				"by":  func(g *growth) { g.By++ },
				"min": func(g *growth) { g.Min++ },
			})
	})
	t.Run("shrink", func(t *testing.T) {
		type shrinkage = spendlimit.Shrinkage
		reuse[shrinkage](t, shrinkage{Hold: "h", ID: "i", By: usd("2")},
			func(f *fixture, s shrinkage) error { _, err := f.Shrink(f.ctx, s); return err }, map[string]func(s *shrinkage){
				"by": func(s *shrinkage) { s.By++ },
			})
	})
	t.Run("roll", func(t *testing.T) {
		type ext = spendlimit.Extension
		reuse[ext](t, ext{Hold: "h", ID: "i", Roll: true, Min: usd("2"), TTL: time.Hour},
			func(f *fixture, e ext) error { _, err := f.Extend(f.ctx, e); return err }, map[string]func(e *ext){
				"min": func(e *ext) { e.Min++ },
				"ttl": func(e *ext) { e.TTL = 2 * time.Hour },
			})
	})
	t.Run("another kind of call", func(t *testing.T) {
		t.Parallel()
		f := badFixture(t)
		f.ok(grow(f, "h")) // the id g
		f.mustCharge("c", "1")
		f.unchanged(func() {
			_, err := f.Record(f.ctx, spendlimit.Usage{Hold: "h", ID: "g", Cost: total("1")})
			f.wantErr(err, spendlimit.ErrKeyReused)
			_, err = f.Shrink(f.ctx, spendlimit.Shrinkage{Hold: "h", ID: "g", By: usd("1")})
			f.wantErr(err, spendlimit.ErrKeyReused)
			_, err = f.Adjust(f.ctx, spendlimit.Adjustment{ID: "c", Account: "acme", By: usd("1"), Reason: "bill"})
			f.wantErr(err, spendlimit.ErrKeyReused)
		})
	})
}

// reuse makes the first call, and then each changed one with the same id.
func reuse[T any](t *testing.T, first T, do func(f *fixture, v T) error, changes map[string]func(v *T)) {
	t.Parallel()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := badFixture(t)
			f.ok(do(f, first))
			other := first
			change(&other)
			f.unchanged(func() {
				f.wantErr(do(f, other), spendlimit.ErrKeyReused)
				f.ok(do(f, first)) // the retry of the first call
			})
		})
	}
}

// A sum above 64 bits in one line refuses the whole command.
func TestBadInput_Overflow(t *testing.T) {
	t.Parallel()
	soft := daily("10")
	soft.Mode = spendlimit.Soft
	both := names("acme", "B")
	for name, call := range map[string]func(f *fixture) error{
		"reserve": func(f *fixture) error {
			_, err := f.Reserve(f.ctx, spendlimit.Request{Key: "new", Accounts: both, Amount: usd("9")})
			return err
		},
		"grow": func(f *fixture) error {
			_, err := f.Grow(f.ctx, spendlimit.Growth{Hold: "k", ID: "g", By: usd("9")})
			return err
		},
		"record": func(f *fixture) error {
			_, err := f.Record(f.ctx, spendlimit.Usage{Hold: "k", ID: "u", Cost: total("9")})
			return err
		},
		"settle": func(f *fixture) error { _, err := f.Settle(f.ctx, "k", total("9")); return err },
		"charge": func(f *fixture) error {
			_, err := f.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: both, Cost: total("9")})
			return err
		},
		"adjust": func(f *fixture) error {
			_, err := f.Adjust(f.ctx, spendlimit.Adjustment{ID: "a", Account: "acme", By: usd("9"), Reason: "bill"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(soft)
			f.limit(on("B", soft))
			f.mustReserve(spendlimit.Request{Key: "k", Accounts: both, Amount: usd("1")})
			_, err := f.Charge(f.ctx, spendlimit.Expense{ID: "big", Accounts: names("acme"), Cost: spendlimit.Total(math.MaxInt64 - usd("5"))})
			f.ok(err)
			f.unchanged(func() { f.wantErr(call(f), spendlimit.ErrOverflow) })
			f.wantBalance("B", "day", "S 0, H 1, A 9")
		})
	}
	_, err := spendlimit.USD.FromDecimal(decimal.New(1, 10), spendlimit.Exact)
	if !errors.Is(err, spendlimit.ErrOverflow) {
		t.Errorf("decimal too large: %v", err)
	}
	_, err = spendlimit.USD.FromDecimal(decimal.New(1, -10), spendlimit.Exact)
	if !errors.Is(err, spendlimit.ErrPrecision) {
		t.Errorf("decimal with too many places: %v", err)
	}
}

// What was carried in belongs to an older version of the limit, so the sum with a new amount may not fit.
func TestBadInput_OverflowOfTheLimitInForce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := daily("1")
	l.Amount, l.CarryUnused = 1<<62, 1<<62-1
	state := f.limit(l)
	f.clock.Set(d2)
	f.mustReserve(req("k", "1"))
	l.Amount, l.CarryUnused = math.MaxInt64, 0
	f.unchanged(func() {
		_, err := f.SetLimit(f.ctx, l, state.Fingerprint)
		f.wantErr(err, spendlimit.ErrOverflow)
	})
}

// limit + overrun + cut may be more than int64 holds; each alone is right.
func TestI4_SumsBeyondInt64(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	state := f.limit(forever("0"))
	_, err := f.Charge(f.ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: spendlimit.Total(math.MaxInt64)})
	f.ok(err)
	l := forever("0")
	l.Amount = math.MaxInt64
	state = f.change(l, state.Fingerprint)
	f.verify()
	_, err = f.Adjust(f.ctx, spendlimit.Adjustment{ID: "a", Account: "acme", By: -math.MaxInt64, Reason: "bill"})
	f.ok(err)
	l.Thresholds = []spendlimit.Threshold{{Percent: 100}}
	f.change(l, state.Fingerprint)
	if b := f.balance("acme", "all"); b.Cut != 0 || b.Available != math.MaxInt64 {
		t.Errorf("got cut %d, available %d", b.Cut, b.Available)
	}
}

// The parts of a hold, and what its children have, must fit one amount together: all of it may come back to its own room.
func TestR37_GrowBeyondInt64(t *testing.T) {
	t.Parallel()
	f := newFixture(t, spendlimit.Config{NoLimit: spendlimit.Allow})
	f.mustReserve(spendlimit.Request{Key: "k", Accounts: names("acme"), Amount: math.MaxInt64})
	f.mustReserve(spendlimit.Request{Key: "child", Parent: "k", Amount: math.MaxInt64 - 1})
	f.limit(daily("10")) // from now on another part
	f.unchanged(func() {
		_, err := f.Grow(f.ctx, spendlimit.Growth{Hold: "k", ID: "g", By: usd("1")})
		f.wantErr(err, spendlimit.ErrOverflow)
	})
	f.mustRelease("child")
	f.wantHold("k", "open, granted 9223372036.854775807, own 9223372036.854775807")
}

// The largest amount is an amount like any other, wanted exactly or found as the rest.
func TestR12_LargestAmount(t *testing.T) {
	t.Parallel()
	l := forever("0")
	l.Amount = math.MaxInt64
	for _, r := range []spendlimit.Request{{Amount: math.MaxInt64}, {Rest: true}} {
		f := newFixture(t)
		f.limit(l)
		r.Key, r.Accounts = "k", names("acme")
		if h := f.mustReserve(r); h.Granted != math.MaxInt64 {
			t.Errorf("granted %d", h.Granted)
		}
		f.mustDeny(req("b", "0.000000001"))
	}
}

func TestBadInput_AnotherUnit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.limit(daily("10"))
	f.mustReserve(req("k", "4"))
	f.mustReserve(spendlimit.Request{Key: "due", Accounts: names("acme"), Amount: 1, TTL: time.Second})
	f.clock.Advance(time.Minute)
	for _, unit := range []spendlimit.Unit{spendlimit.Tokens, {Code: "USD", Scale: 2}} {
		g := &fixture{tb: f.tb, ctx: f.ctx, cfg: spendlimit.Config{Unit: unit}, store: f.store, clock: f.clock}
		g.Ledger = g.restart()
		f.unchanged(func() {
			for name, call := range everyCall(g) {
				if err := call(f.ctx); !errors.Is(err, spendlimit.ErrUnit) {
					t.Errorf("%s in %v: %v, want another unit", name, unit, err)
				}
			}
		})
	}
}

func TestBadInput_Nil(t *testing.T) {
	t.Parallel()
	t.Run("context", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		f.mustReserve(req("k", "4"))
		var none context.Context
		f.unchanged(func() {
			for name, call := range everyCall(f) {
				t.Run(name, func(*testing.T) { f.wantInvalid(call(none), "ctx") })
			}
		})
	})
	t.Run("store", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		_, err := spendlimit.New(nil, spendlimit.Config{Unit: spendlimit.USD})
		f.wantInvalid(err, "store")
	})
	t.Run("hold", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		for _, h := range []*spendlimit.Hold{nil, {}, {Key: "not from a ledger"}} {
			f.wantInvalid(h.Dispatch(f.ctx), "Hold")
			f.wantInvalid(h.Close(f.ctx), "Hold")
			_, err := h.Record(f.ctx, spendlimit.Usage{ID: "u", Cost: total("1")})
			f.wantInvalid(err, "Hold")
			_, err = h.Settle(f.ctx, total("1"))
			f.wantInvalid(err, "Hold")
			_, err = h.Release(f.ctx)
			f.wantInvalid(err, "Hold")
			_, err = h.Extend(f.ctx, spendlimit.Extension{})
			f.wantInvalid(err, "Hold")
			_, err = h.Grow(f.ctx, spendlimit.Growth{ID: "g", By: 1})
			f.wantInvalid(err, "Hold")
			_, err = h.Shrink(f.ctx, spendlimit.Shrinkage{ID: "s", By: 1})
			f.wantInvalid(err, "Hold")
		}
	})
}

// A context that has ended: its error, and nothing applied. Ends are not lost with their caller (R47).
func TestBadInput_ContextEnded(t *testing.T) {
	t.Parallel()
	ends := map[string]bool{"Record": true, "Settle": true, "Release": true, "Close": true}
	names := everyCall(newFixture(t))
	for name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.limit(daily("10"))
			f.mustReserve(req("k", "4"))
			ctx, cancel := context.WithCancel(f.ctx)
			cancel()
			call := everyCall(f)[name]
			if ends[name] {
				f.ok(call(ctx))
				return
			}
			f.unchanged(func() { f.wantErr(call(ctx), context.Canceled) })
		})
	}
}

func TestBadInput_Config(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	store := memory.New(nil).Spend()
	for how, name := range badNames {
		if name == "" {
			continue // the default
		}
		_, err := spendlimit.New(store, spendlimit.Config{Name: name, Unit: spendlimit.USD})
		if err == nil {
			t.Errorf("a ledger's name %s", how)
		}
		f.wantInvalid(err, "Config.Name")
	}
	_, err := spendlimit.New(store, spendlimit.Config{})
	f.wantInvalid(err, "Unit.Code")
	_, err = spendlimit.New(store, spendlimit.Config{Unit: spendlimit.Unit{Code: "x", Scale: 13}})
	f.wantInvalid(err, "Unit.Scale")
	_, err = spendlimit.New(store, spendlimit.Config{Unit: spendlimit.USD, NoLimit: spendlimit.Allow + 1})
	f.wantInvalid(err, "Config.NoLimit")
}

// Bad defaults of an account are an error of whoever touches it, and leave nothing.
func TestBadInput_Defaults(t *testing.T) {
	t.Parallel()
	for field, second := range map[string]spendlimit.Limit{"Kind": {Name: "bad"}, "Defaults": daily("6")} {
		f := newFixture(t, spendlimit.Config{Defaults: func(account string) []spendlimit.Limit {
			return []spendlimit.Limit{daily("5"), second}
		}})
		f.unchanged(func() {
			_, err := f.Reserve(f.ctx, req("k", "1"))
			f.wantInvalid(err, field)
		})
		if got := fmt.Sprint(f.entryCount("acme")); got != "0" {
			t.Errorf("%s entries", got)
		}
	}
}
