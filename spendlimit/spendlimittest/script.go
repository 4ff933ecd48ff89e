package spendlimittest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// A script is a list of calls on a ledger that can be run again and again, on any store, with the same answers.
type script struct {
	cfg spendlimit.Config
	ops []*op
}

// op is one call. Its answer depends on what was called before and on the clock, on nothing else.
type op struct {
	text string
	// alone: it looks before it writes, so it can't share a batch with its neighbours.
	alone bool
	// quiet: it changes no row.
	quiet bool
	run   func(ctx context.Context, s *session) (any, error)
}

// session is one run of a script.
type session struct {
	led   *spendlimit.Ledger
	clock *testClock
	// prints are the fingerprints that changes of limits expect; a retry must expect the same one.
	prints map[*spendlimit.Limit]string
}

func newSession(s spendlimit.Store, cfg spendlimit.Config, clock *testClock) (*session, error) {
	led, err := spendlimit.New(s, cfg)
	return &session{led: led, clock: clock, prints: map[*spendlimit.Limit]string{}}, err
}

// do runs one op, and writes down what was called and answered.
func (s *session) do(ctx context.Context, o *op) string {
	return o.text + " -> " + answer(o.run(ctx, s))
}

// play runs a script one by one.
func (sc *script) play(ctx context.Context, s spendlimit.Store, clock *testClock) ([]string, error) {
	run, err := newSession(s, sc.cfg, clock)
	if err != nil {
		return nil, err
	}
	var answers []string
	for _, o := range sc.ops {
		answers = append(answers, run.do(ctx, o))
	}
	return answers, nil
}

// answer writes down what a call returned, but for the hints of a refusal: they look at a later moment.
func answer(v any, err error) string {
	var denied *spendlimit.DeniedError
	var ended *spendlimit.EndedError
	switch {
	case errors.As(err, &denied):
		d := *denied
		d.RetryAfter = 0
		type plain spendlimit.DeniedError // without its text
		return fmt.Sprintf("denied %+v", plain(d))
	case errors.As(err, &ended):
		return fmt.Sprintf("ended %s %s %+v", ended.Hold, ended.State, ended.Receipt)
	case err != nil:
		return err.Error()
	}
	if h, ok := v.(*spendlimit.Hold); ok {
		return holdText(h)
	}
	return fmt.Sprintf("%+v", v)
}

func holdText(h *spendlimit.Hold) string {
	return fmt.Sprintf("hold %s parent=%q accounts=%q %s granted=%d own=%d recorded=%d assumed=%d group=%q/%d labels=%v price=%q binding=%+v created=%v expires=%v ended=%v replayed=%v crossed=%+v rev=%d",
		h.Key, h.Parent, h.Accounts, h.State, h.Granted, h.Own, h.Recorded, h.Assumed, h.Group, h.Slots, h.Labels, h.Price,
		h.Binding, h.CreatedAt, h.ExpiresAt, h.EndedAt, h.Replayed, h.Crossed, h.Revision)
}

// collect reads a list to its end, or to its error.
func collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var out []T
	for v, err := range list {
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

// The ops, by what they call.

func opReserve(r spendlimit.Request) *op {
	return &op{text: fmt.Sprintf("reserve %+v", r), run: func(ctx context.Context, s *session) (any, error) {
		h, err := s.led.Reserve(ctx, r)
		if err != nil {
			return nil, err
		}
		return h, nil
	}}
}

func opDispatch(key string) *op {
	return &op{text: "dispatch " + key, run: func(ctx context.Context, s *session) (any, error) {
		return nil, s.led.Dispatch(ctx, key)
	}}
}

func opRecord(u spendlimit.Usage) *op {
	return &op{text: fmt.Sprintf("record %+v", u), run: func(ctx context.Context, s *session) (any, error) {
		return s.led.Record(ctx, u)
	}}
}

func opSettle(key string, c spendlimit.Cost, opts ...spendlimit.Option) *op {
	return &op{text: fmt.Sprintf("settle %s %+v %v", key, c, opts), run: func(ctx context.Context, s *session) (any, error) {
		return s.led.Settle(ctx, key, c, opts...)
	}}
}

func opRelease(key string, opts ...spendlimit.Option) *op {
	return &op{text: fmt.Sprintf("release %s %v", key, opts), run: func(ctx context.Context, s *session) (any, error) {
		return s.led.Release(ctx, key, opts...)
	}}
}

func opClose(key string) *op {
	return &op{text: "close " + key, run: func(ctx context.Context, s *session) (any, error) {
		return nil, s.led.Close(ctx, key)
	}}
}

func opExtend(e spendlimit.Extension) *op {
	return &op{text: fmt.Sprintf("extend %+v", e), run: func(ctx context.Context, s *session) (any, error) {
		return s.led.Extend(ctx, e)
	}}
}

func opGrow(g spendlimit.Growth) *op {
	return &op{text: fmt.Sprintf("grow %+v", g), run: func(ctx context.Context, s *session) (any, error) {
		return s.led.Grow(ctx, g)
	}}
}

func opShrink(sh spendlimit.Shrinkage) *op {
	return &op{text: fmt.Sprintf("shrink %+v", sh), run: func(ctx context.Context, s *session) (any, error) {
		return s.led.Shrink(ctx, sh)
	}}
}

func opCharge(x spendlimit.Expense) *op {
	return &op{text: fmt.Sprintf("charge %+v", x), run: func(ctx context.Context, s *session) (any, error) {
		return s.led.Charge(ctx, x)
	}}
}

func opAdjust(a spendlimit.Adjustment) *op {
	return &op{text: fmt.Sprintf("adjust %+v", a), run: func(ctx context.Context, s *session) (any, error) {
		return s.led.Adjust(ctx, a)
	}}
}

func opCreate(l spendlimit.Limit, opts ...spendlimit.LimitOption) *op {
	return &op{text: fmt.Sprintf("create %+v %v", l, opts), run: func(ctx context.Context, s *session) (any, error) {
		return s.led.SetLimit(ctx, l, "", opts...)
	}}
}

func opChange(l spendlimit.Limit) *op {
	return &op{text: fmt.Sprintf("change %+v", l), alone: true, run: func(ctx context.Context, s *session) (any, error) {
		expect, err := s.print(ctx, &l)
		if err != nil {
			return nil, err
		}
		return s.led.SetLimit(ctx, l, expect)
	}}
}

func opRemove(l spendlimit.Limit) *op {
	return &op{text: "remove " + l.Account + "/" + l.Name, alone: true, run: func(ctx context.Context, s *session) (any, error) {
		expect, err := s.print(ctx, &l)
		if err != nil {
			return nil, err
		}
		return nil, s.led.RemoveLimit(ctx, l.Account, l.Name, expect)
	}}
}

// print looks up what a change of a limit has to expect, once per run.
func (s *session) print(ctx context.Context, l *spendlimit.Limit) (string, error) {
	if p, ok := s.prints[l]; ok {
		return p, nil
	}
	list, err := collect(s.led.Balances(ctx, l.Account, time.Time{}))
	if err != nil {
		return "", err
	}
	s.prints[l] = "none"
	for _, b := range list {
		if b.Limit == l.Name {
			s.prints[l] = b.Fingerprint
		}
	}
	return s.prints[l], nil
}

func opCheck(r spendlimit.Request) *op {
	return &op{text: fmt.Sprintf("check %+v", r), alone: true, quiet: true, run: func(ctx context.Context, s *session) (any, error) {
		return s.led.Check(ctx, r)
	}}
}

func opBalances(account string, at time.Time) *op {
	return &op{text: "balances " + account + at.Format(" 01-02"), alone: true, quiet: true, run: func(ctx context.Context, s *session) (any, error) {
		return collect(s.led.Balances(ctx, account, at))
	}}
}

func opHolds(f spendlimit.HoldFilter) *op {
	return &op{text: fmt.Sprintf("holds %+v", f), alone: true, quiet: true, run: func(ctx context.Context, s *session) (any, error) {
		list, err := collect(s.led.Holds(ctx, f))
		var lines []string
		for _, h := range list {
			lines = append(lines, holdText(h))
		}
		return strings.Join(lines, "; "), err
	}}
}

func opEntries(account string) *op {
	return &op{text: "entries " + account, alone: true, quiet: true, run: func(ctx context.Context, s *session) (any, error) {
		return collect(s.led.Entries(ctx, account, 0))
	}}
}

// opVerify's answer is empty unless the rows contradict each other.
func opVerify(account string) *op {
	return &op{text: "verify " + account, alone: true, quiet: true, run: func(ctx context.Context, s *session) (any, error) {
		diffs, err := s.led.Verify(ctx, account)
		if errors.Is(err, spendlimit.ErrNotFound) {
			return nil, nil
		}
		var found []string
		for _, d := range diffs {
			found = append(found, d.String())
		}
		slices.Sort(found)
		return found, err
	}}
}

func opSweep(limit int) *op {
	return &op{text: fmt.Sprint("sweep ", limit), alone: true, run: func(ctx context.Context, s *session) (any, error) {
		return s.led.Sweep(ctx, limit)
	}}
}

func opPrune(account string, before time.Time) *op {
	return &op{text: "prune " + account + before.Format(" 01-02"), alone: true, run: func(ctx context.Context, s *session) (any, error) {
		return nil, s.led.Prune(ctx, account, before)
	}}
}

func opWait(d time.Duration) *op {
	return &op{text: "clock " + d.String(), alone: true, quiet: true, run: func(_ context.Context, s *session) (any, error) {
		s.clock.advance(d)
		return nil, nil
	}}
}

// tour is a script that calls everything, so that every column of every row gets a value, and works on the way.
func tour() *script {
	total, hour, days := spendlimit.Total, time.Hour, 24*time.Hour
	thrift := spendlimit.Limit{Account: "a", Name: "day", Kind: spendlimit.Day, Amount: 100, Thresholds: []spendlimit.Threshold{{Percent: 10}, {Percent: 5, Of: spendlimit.Spent}}}
	week := spendlimit.Limit{Account: "a", Name: "week", Kind: spendlimit.Week, WeekStart: spendlimit.Sunday, Zone: "Asia/Kathmandu", Amount: 200, CarryUnused: 7}
	all := spendlimit.Limit{Account: "b", Name: "all", Kind: spendlimit.AllTime, Amount: 500, Raise: spendlimit.Raise{By: 20, Until: noon.Add(2 * days)}}
	soft := spendlimit.Limit{Account: "c", Name: "month", Kind: spendlimit.Month, Anchor: 15, Amount: 5, Mode: spendlimit.Soft, OnUnpriced: spendlimit.Allow, CarryHolds: true}
	low, wide := thrift, week
	low.Amount, wide.Zone = 8, "Europe/Berlin"
	split := func(key string) spendlimit.Request {
		r := ask(key, 5, "a")
		r.Split = spendlimit.Split{Group: "g", Slots: 3}
		return r
	}
	rich := ask("k1", 10, "a", "b")
	rich.Labels, rich.Price = map[string]string{"model": "m", "run": "r"}, "rates"
	least := spendlimit.Request{Key: "k2", Accounts: []string{"a"}, Amount: 30, Min: 2, TTL: hour}
	rest := spendlimit.Request{Key: "rest", Parent: "k2", Rest: true, TTL: hour}
	free := spendlimit.Request{Key: "free", Accounts: []string{"a"}, Free: true}
	short := func(key string, accounts ...string) spendlimit.Request {
		r := ask(key, 6, accounts...)
		r.TTL = time.Minute
		return r
	}
	long := func(key string, n spendlimit.Amount, accounts ...string) spendlimit.Request {
		r := ask(key, n, accounts...)
		r.TTL = days
		return r
	}
	usage := func(hold, id string, c spendlimit.Cost) spendlimit.Usage {
		return spendlimit.Usage{Hold: hold, ID: id, Cost: c, Labels: map[string]string{"call": id}}
	}
	cumulative := func(hold, id string, n spendlimit.Amount) spendlimit.Usage {
		return spendlimit.Usage{Hold: hold, ID: id, Cost: total(n), Cumulative: true}
	}
	reported := total(3)
	reported.Source, reported.Metered = spendlimit.Reported, 12
	adjust := func(id, account, hold string, by spendlimit.Amount) *op {
		return opAdjust(spendlimit.Adjustment{ID: id, Account: account, Hold: hold, By: by, Reason: "bill"})
	}
	unknown := spendlimit.Unknown("no price")
	return &script{cfg: spendlimit.Config{Name: ledgerName, Unit: steps}, ops: []*op{
		// Limits and grants.
		opCreate(thrift), opCreate(week), opCreate(all), opCreate(soft),
		opReserve(rich), opReserve(least), opReserve(rest), opReserve(free),
		opReserve(child("c1", "k1", 4, "c")), opReserve(split("g1")), opReserve(split("g2")),
		opCheck(ask("k9", 3, "a", "c")), opHolds(spendlimit.HoldFilter{Account: "a", Live: true}),
		// Costs on the way.
		opDispatch("k1"), opRecord(usage("k1", "u1", total(2))), opRecord(cumulative("k1", "u2", 3)), opRecord(cumulative("k1", "u2", 5)),
		opRecord(usage("c1", "u1", unknown)), opRecord(usage("c1", "u1", reported)),
		opExtend(spendlimit.Extension{Hold: "k1", TTL: 2 * hour}),
		opGrow(spendlimit.Growth{Hold: "k2", ID: "g", By: 3}), opShrink(spendlimit.Shrinkage{Hold: "k2", ID: "s", By: 1}),
		// Ends.
		opSettle("c1", total(8)), opSettle("k1", total(12)), opRelease("g1"), opClose("g2"), opRelease("free"),
		opDispatch("k2"), opClose("k2"), opClose("rest"), opSettle("k2", total(9)),
		opReserve(ask("k3", 7, "a", "b")), opSettle("k3", unknown), opBalances("a", time.Time{}), opSettle("k3", total(4)),
		opReserve(ask("k4", 7, "b")), opRelease("k4"), opSettle("k4", total(2), spendlimit.Late),
		// Costs without holds.
		opCharge(spendlimit.Expense{ID: "u1", Accounts: []string{"a", "b", "d"}, Cost: total(5), Labels: map[string]string{"k": "v"}}),
		opCharge(spendlimit.Expense{ID: "u2", Accounts: []string{"a"}, Cost: total(90), At: noon.Add(-days)}),
		adjust("u3", "a", "", -1), adjust("u4", "", "k1", 2), adjust("u5", "b", "k1", 1),
		// Limits that change.
		opReserve(ask("k5", 6, "a")), opChange(low), opSettle("k5", total(7)), opChange(thrift), opChange(wide),
		opCreate(day("d", 50), spendlimit.Backfill),
		// Time.
		opReserve(short("t1", "a")), opReserve(short("t2", "a", "b")), opReserve(short("t3", "d")), opDispatch("t2"),
		opRecord(usage("t2", "u1", total(1))), opWait(hour), opSweep(100),
		opRecord(usage("t2", "u2", total(3))), opSettle("t2", total(9)), opSettle("t1", unknown), opSettle("t1", total(1)),
		// Over midnight, twice.
		opReserve(long("n1", 8, "a", "b")), opReserve(long("n2", 8, "b")), opRecord(usage("n1", "u1", total(1))),
		opReserve(child("n3", "n1", 2)), opDispatch("n3"), opWait(13 * hour),
		opExtend(spendlimit.Extension{Hold: "n1", TTL: days, Roll: true, ID: "r"}), opGrow(spendlimit.Growth{Hold: "n1", ID: "g", By: 4, Min: 1}),
		opWait(12 * hour), opGrow(spendlimit.Growth{Hold: "n1", ID: "g2", By: 4}),
		opRecord(usage("n1", "u2", unknown)), opBalances("a", noon), opSettle("n1", spendlimit.Recorded()), opSettle("n1", total(11)),
		opRecord(usage("n3", "u1", total(1))), opSettle("n3", unknown), opSettle("n3", total(2)),
		// Trees, and a limit made anew.
		opReserve(ask("p1", 20, "a")), opReserve(child("p2", "p1", 10, "d")), opReserve(child("p3", "p2", 5)), opReserve(child("p4", "p1", 5)),
		opDispatch("p4"), opRelease("p1", spendlimit.Tree), opSettle("p4", total(6)),
		opReserve(ask("q1", 5, "a")), opRemove(thrift), opCreate(day("a", 70)), opReserve(ask("q2", 6, "a")), opSettle("q1", total(5)),
		opWait(40 * days), opReserve(ask("q3", 5, "a", "b", "c", "d")), opPrune("a", noon.Add(2*days)), opPrune("b", noon.Add(3*days)),
		opEntries("a"), opEntries("b"), opVerify("a"), opVerify("b"), opVerify("c"), opVerify("d"),
	}}
}

// dice makes random scripts of a small world: there most collisions happen.
type dice struct {
	*rand.Rand
	ops       []*op
	keys, ids int // how many were named
}

func newDice(seed uint64) *dice { return &dice{Rand: rand.New(rand.NewPCG(seed, 0))} }

// randomScript returns n random ops after the limits of the world.
func randomScript(seed uint64, n int) *script {
	d := newDice(seed)
	sc := &script{cfg: spendlimit.Config{Name: "random", Unit: steps}}
	if d.IntN(3) == 0 {
		sc.cfg.NoLimit = spendlimit.Allow
	}
	for _, l := range d.limits() {
		d.ops = append(d.ops, opCreate(l))
	}
	for len(d.ops) < n {
		d.ops = append(d.ops, d.op())
	}
	sc.ops = d.ops
	for _, a := range worldAccounts {
		sc.ops = append(sc.ops, opVerify(a))
	}
	return sc
}

var worldAccounts = []string{"a", "b", "c"}

// limits draws the world's limits.
func (d *dice) limits() []spendlimit.Limit {
	all := []spendlimit.Limit{
		{Account: "a", Name: "day", Kind: spendlimit.Day, Thresholds: []spendlimit.Threshold{{Percent: 80}, {Percent: 50, Of: spendlimit.Spent}}},
		{Account: "a", Name: "all", Kind: spendlimit.AllTime},
		{Account: "b", Name: "week", Kind: spendlimit.Week, WeekStart: spendlimit.Sunday, CarryUnused: 3},
		{Account: "b", Name: "soft", Kind: spendlimit.Day, Zone: "Asia/Kathmandu", Mode: spendlimit.Soft, Thresholds: []spendlimit.Threshold{{Percent: 100}}},
		{Account: "c", Name: "month", Kind: spendlimit.Month, Anchor: 15, Zone: "Europe/Berlin", OnUnpriced: spendlimit.Allow},
		{Account: "c", Name: "day", Kind: spendlimit.Day, CarryHolds: true},
	}
	for i := range all {
		all[i].Amount = spendlimit.Amount(20 + d.IntN(130))
		if d.IntN(4) == 0 {
			all[i].Raise = spendlimit.Raise{By: 5, Until: noon.Add(time.Duration(d.IntN(72)) * time.Hour)}
		}
	}
	return all
}

func (d *dice) limit() spendlimit.Limit {
	all := d.limits()
	l := all[d.IntN(len(all))]
	if d.IntN(3) == 0 {
		l.OnUnpriced = spendlimit.Allow
	}
	if d.IntN(4) == 0 && l.Kind != spendlimit.AllTime {
		l.Zone = []string{"UTC", "America/St_Johns", "Pacific/Apia"}[d.IntN(3)]
	}
	return l
}

func pick[T any](d *dice, from ...T) T { return from[d.IntN(len(from))] }

// key names one of the last holds, or rarely one that there isn't yet.
func (d *dice) key() string { return fmt.Sprintf("k%03d", max(0, d.keys-6+d.IntN(7))) }

// newKey names a new hold, or rarely one that there is.
func (d *dice) newKey() string {
	if d.chance(1, 12) {
		return d.key()
	}
	d.keys++
	return fmt.Sprintf("k%03d", d.keys)
}

// id names a new usage, or rarely one of the last.
func (d *dice) id() string {
	if !d.chance(1, 8) {
		d.ids++
	}
	return fmt.Sprintf("u%03d", max(0, d.ids-d.IntN(3)))
}

func (d *dice) amount() spendlimit.Amount {
	return spendlimit.Amount(d.IntN(13))
}
func (d *dice) account() string      { return pick(d, worldAccounts...) }
func (d *dice) group() string        { return pick(d, "g", "h") }
func (d *dice) ttl() time.Duration   { return pick(d, 0, time.Second, time.Minute, 24*time.Hour) }
func (d *dice) chance(n, m int) bool { return d.IntN(m) < n }

func (d *dice) accounts() []string {
	list := slices.Clone(worldAccounts)
	d.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:1+d.IntN(2)]
}

// instant is 0, or a time around noon of the first day.
func (d *dice) instant() time.Time {
	if d.chance(2, 3) {
		return time.Time{}
	}
	return noon.Add(time.Duration(d.IntN(100)-80) * time.Hour)
}

func (d *dice) labels() map[string]string {
	if d.chance(1, 4) {
		return map[string]string{"model": "m", "run": "r"}
	}
	return nil
}

func (d *dice) cost() spendlimit.Cost {
	c := spendlimit.Total(d.amount())
	c.Metered = int64(d.IntN(2))
	if d.chance(1, 5) {
		c.Source = spendlimit.Reported
	}
	return c
}

func (d *dice) request() spendlimit.Request {
	r := spendlimit.Request{Key: d.newKey(), Accounts: d.accounts(), TTL: d.ttl(), Labels: d.labels()}
	if d.chance(1, 5) {
		r.Price = "rates"
	}
	if d.chance(1, 3) {
		r.Parent = d.key()
		if d.chance(1, 2) {
			r.Accounts = nil
		}
	}
	switch d.IntN(8) {
	case 0:
		r.Rest, r.Min = true, d.amount()
	case 1:
		r.Free = true
	case 2, 3:
		r.Split = spendlimit.Split{Group: d.group(), Slots: 2 + len(d.ops)/40%3}
		r.Amount = pick(d, 0, d.amount())
	case 4:
		r.Amount = 1 + d.amount()
		r.Min = 1
	default:
		r.Amount = 1 + d.amount()
	}
	return r
}

// op draws the next op.
func (d *dice) op() *op {
	switch n := d.IntN(100); {
	case n < 26:
		return opReserve(d.request())
	case n < 52:
		return d.ending()
	case n < 68:
		return d.moving()
	case n < 78:
		return d.spending()
	case n < 84:
		return d.limiting()
	case n < 90:
		return d.reading()
	case n < 93 && len(d.ops) > 10:
		return d.ops[10+d.IntN(len(d.ops)-10)] // said again
	case n < 95:
		return pick(d, opSweep(1+d.IntN(3)), opPrune(d.account(), noon.Add(time.Duration(d.IntN(9))*24*time.Hour)))
	}
	return opWait(pick(d, time.Microsecond, time.Second, 10*time.Minute, 10*time.Minute, time.Hour, 12*time.Hour,
		24*time.Hour, 24*time.Hour, 8*24*time.Hour, 37*24*time.Hour, -time.Hour, -7*24*time.Hour))
}

func (d *dice) ending() *op {
	key := d.key()
	switch d.IntN(10) {
	case 0, 1, 2:
		return opDispatch(key)
	case 3, 4:
		u := spendlimit.Usage{Hold: key, ID: d.id(), Cost: d.cost(), Cumulative: d.chance(1, 3), Labels: d.labels()}
		if d.chance(1, 5) {
			u.Cost = spendlimit.Unknown("no price")
		}
		return opRecord(u)
	case 5, 6, 7:
		var opts []spendlimit.Option
		if d.chance(1, 3) {
			opts = append(opts, spendlimit.Late)
		}
		return opSettle(key, pick(d, d.cost(), d.cost(), spendlimit.Recorded(), spendlimit.Unknown("no price")), opts...)
	case 8:
		var opts []spendlimit.Option
		for _, o := range []spendlimit.Option{spendlimit.NotSpent, spendlimit.Tree} {
			if d.chance(1, 2) {
				opts = append(opts, o)
			}
		}
		return opRelease(key, opts...)
	}
	return opClose(key)
}

func (d *dice) moving() *op {
	key := d.key()
	switch d.IntN(4) {
	case 0:
		return opExtend(spendlimit.Extension{Hold: key, TTL: d.ttl()})
	case 1:
		return opExtend(spendlimit.Extension{Hold: key, TTL: d.ttl(), Roll: true, ID: d.id(), Min: d.amount()})
	case 2:
		return opGrow(spendlimit.Growth{Hold: key, ID: d.id(), By: 1 + d.amount(), Min: spendlimit.Amount(d.IntN(2))})
	}
	return opShrink(spendlimit.Shrinkage{Hold: key, ID: d.id(), By: 1 + d.amount()/2})
}

func (d *dice) spending() *op {
	if d.chance(1, 2) {
		return opCharge(spendlimit.Expense{ID: d.id(), Accounts: d.accounts(), Cost: d.cost(), At: d.instant(), Labels: d.labels()})
	}
	a := spendlimit.Adjustment{ID: d.id(), By: d.amount() - 6, Reason: "bill"}
	if a.By == 0 {
		a.By = 1
	}
	if d.chance(1, 2) {
		a.Hold = d.key()
	} else {
		a.Account, a.At = d.account(), d.instant()
	}
	return opAdjust(a)
}

func (d *dice) limiting() *op {
	l := d.limit()
	switch d.IntN(4) {
	case 0:
		return opRemove(l)
	case 1:
		return opCreate(l, spendlimit.Backfill)
	case 2:
		return opCreate(l)
	}
	return opChange(l)
}

func (d *dice) reading() *op {
	switch d.IntN(4) {
	case 0:
		return opCheck(d.request())
	case 1:
		return opBalances(d.account(), d.instant())
	case 2:
		return opHolds(spendlimit.HoldFilter{Account: pick(d, "", d.account()), Live: d.chance(1, 2)})
	}
	return opVerify(d.account())
}

// noon is where the clock of a case starts.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// steps is a unit without places.
var steps = spendlimit.Unit{Code: "step"}

// testClock is a clock that only the test moves. Safe for concurrent use.
type testClock struct {
	mu     sync.Mutex
	now    time.Time
	looked func()
}

func newClock() *testClock { return &testClock{now: noon} }

func (c *testClock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.looked != nil {
		c.looked()
	}
	return c.now
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func (c *testClock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// watch makes the clock tell of each look at it.
func (c *testClock) watch(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = f
}
