package spendlimittest

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/spendlimit"
)

// actions are the random commands, by name. What is drawn more often stands here more than once.
func (w *machine) actions() map[string]func(*rapid.T) {
	all := map[string]func(*rapid.T){
		"Restart": w.restart, "Fault0": w.faulty, "Fault1": w.faulty,
		"Advance0": w.advance, "Advance1": w.advance, "StepBack": w.stepBack, "Replay0": w.replay, "Replay1": w.replay,
	}
	often := func(n int, name string, draw func(*rapid.T) command) {
		for i := range n {
			all[fmt.Sprintf("%s%d", name, i)] = func(t *rapid.T) { w.first(t, draw(t)) }
		}
	}
	onHold := func(n int, name string, draw func(*rapid.T) command) {
		often(n, name, func(t *rapid.T) command {
			if len(w.model.held()) == 0 && !w.sometimes(t, "without a live hold") {
				return w.reserve(t)
			}
			return draw(t)
		})
	}
	often(2, "SetLimit", w.unlessNarrow(w.setLimit))
	often(1, "RemoveLimit", w.unlessNarrow(w.removeLimit))
	often(12, "Reserve", w.reserve)
	often(1, "Check", w.check)
	onHold(2, "Dispatch", w.dispatch)
	onHold(3, "Record", w.record)
	onHold(3, "Settle", w.settle)
	onHold(2, "Release", w.release)
	onHold(1, "Close", w.closeHold)
	onHold(1, "Extend", w.extend)
	onHold(3, "Roll", w.roll)
	onHold(2, "Grow", w.grow)
	onHold(1, "Shrink", w.shrink)
	often(1, "Charge", w.charge)
	often(1, "Adjust", w.adjust)
	often(1, "Sweep", w.sweep)
	often(1, "Prune", w.prune)
	often(1, "Look", w.look)
	often(1, "Hold", w.holdOf)
	return all
}

// seldom tells whether something is left out: in a narrow world mostly, in others never.
func (w *machine) seldom(t *rapid.T, name string) bool {
	return w.narrow && rapid.IntRange(0, 5).Draw(t, name) < 5
}

// unlessNarrow makes room for other commands in a narrow world.
func (w *machine) unlessNarrow(draw func(*rapid.T) command) func(*rapid.T) command {
	return func(t *rapid.T) command {
		if w.seldom(t, "change of limits") {
			return w.reserve(t)
		}
		return draw(t)
	}
}

// first runs a new command.
func (w *machine) first(t *rapid.T, c command) {
	w.done = append(w.done, c)
	w.run(t, c)
}

// advance moves the clock on: by a little, by a lot, or to where something changes.
func (w *machine) advance(t *rapid.T) {
	const day = 24 * time.Hour
	d := rapid.SampledFrom([]time.Duration{
		0, 0, 0, 0, 0, time.Microsecond, time.Second, time.Second, time.Minute, time.Hour, time.Hour, day, 8 * day, 36 * day,
	}).Draw(t, "by")
	if w.seldom(t, "far") {
		d = min(d, time.Second)
	}
	if d == 0 {
		d = rapid.SampledFrom(w.edges()).Draw(t, "to").Sub(w.clock)
	}
	w.tick(t, max(d, time.Microsecond))
}

// edges are the instants to come at which something changes, each with its neighbours.
func (w *machine) edges() []time.Time {
	var out []time.Time
	add := func(at time.Time) {
		for d := -time.Microsecond; d <= time.Microsecond; d += time.Microsecond {
			if at.Add(d).After(w.clock) {
				out = append(out, at.Add(d))
			}
		}
	}
	add(w.clock.Truncate(24 * time.Hour).Add(24 * time.Hour))
	for _, h := range w.model.held() {
		add(utcMicro(w.model.expires(h)))
	}
	for _, p := range w.model.facts.periods {
		if p.end != never {
			add(utcMicro(p.end))
		}
		if until := w.model.form(p).until; until != 0 {
			add(utcMicro(until))
		}
	}
	return out
}

// stepBack is a clock that was set wrong, or is set right.
func (w *machine) stepBack(t *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{time.Microsecond, time.Second, time.Hour, 7 * 24 * time.Hour}).Draw(t, "by")
	w.tick(t, -d)
}

func (w *machine) tick(t *rapid.T, d time.Duration) {
	w.clock = w.clock.Add(d)
	w.was = w.compare(t, command{text: fmt.Sprint("clock ", d)})
}

// replay runs an earlier command again.
func (w *machine) replay(t *rapid.T) {
	recent := w.done
	if rapid.Bool().Draw(t, "recent") {
		recent = recent[max(0, len(recent)-8):]
	}
	w.run(t, recent[rapid.IntRange(0, len(recent)-1).Draw(t, "command")])
}

// The commands.

func (w *machine) setLimit(t *rapid.T) command {
	account, name := w.account(t), rapid.SampledFrom([]string{"l1", "l2", "l3", "l4"}).Draw(t, "limit")
	return w.limitOf(t, account, name, w.expect(t, account, name))
}

func (w *machine) limitOf(t *rapid.T, account, name, expect string) command {
	kinds := []spendlimit.Kind{spendlimit.Day, spendlimit.Day, spendlimit.Week, spendlimit.Month, spendlimit.AllTime}
	l := spendlimit.Limit{
		Account:     account,
		Name:        name,
		Kind:        rapid.SampledFrom(kinds).Draw(t, "kind"),
		WeekStart:   rapid.SampledFrom([]spendlimit.Weekday{spendlimit.Monday, spendlimit.Monday, spendlimit.Thursday}).Draw(t, "week start"),
		Anchor:      rapid.SampledFrom([]int{0, 0, 1, 15}).Draw(t, "anchor"),
		Zone:        rapid.SampledFrom([]string{"", "", "", "Asia/Shanghai", "America/New_York"}).Draw(t, "zone"),
		Amount:      most - w.amount(t, "below most"),
		CarryHolds:  w.sometimes(t, "carry holds"),
		CarryUnused: w.mostly0(t, "carry unused"),
	}
	if w.sometimes(t, "soft") {
		l.Mode = spendlimit.Soft
	}
	if w.sometimes(t, "allow unpriced") {
		l.OnUnpriced = spendlimit.Allow
	}
	if w.sometimes(t, "thresholds") {
		l.Thresholds = []spendlimit.Threshold{{Percent: 50}, {Percent: 100}, {Percent: 80, Of: spendlimit.Spent}}
	}
	if w.sometimes(t, "raised") {
		in := rapid.SampledFrom([]time.Duration{time.Second, time.Hour, 36 * time.Hour}).Draw(t, "for")
		l.Raise = spendlimit.Raise{By: 1 + w.amount(t, "raise"), Until: w.clock.Add(in)}
	}
	if have := w.model.limit(l.Account, l.Name); have != nil && w.sometimes(t, "same calendar") {
		old := w.model.version(have).cfg
		l.Kind, l.WeekStart, l.Anchor, l.Zone = old.Kind, old.WeekStart, old.Anchor, old.Zone
	}
	var opts []spendlimit.LimitOption
	if w.sometimes(t, "backfill") {
		opts = append(opts, spendlimit.Backfill)
	}
	return command{
		text: fmt.Sprintf("SetLimit %+v expect %q %v", l, expect, opts),
		ledger: func(w *machine) (any, error) {
			s, err := w.led.SetLimit(w.ctx, l, w.print(expect), opts...)
			w.fresh = s.Fingerprint
			return s, err
		},
		model: func(w *machine) (any, error) {
			s, err := w.model.SetLimit(w.clock, l, expect, opts...)
			if err == nil && !s.Replayed {
				w.prints[s.Fingerprint] = w.fresh
			}
			return s, err
		},
	}
}

// expect draws the model's fingerprint of a limit: mostly the one in force.
func (w *machine) expect(t *rapid.T, account, name string) string {
	l := w.model.limit(account, name)
	if l == nil {
		return rapid.SampledFrom([]string{"", "", "", "no such limit"}).Draw(t, "expect")
	}
	now := w.model.version(l)
	out := []string{now.print, now.print, now.print, now.prev, ""}
	if now.removed {
		out = append(out, "", "", "")
	}
	return rapid.SampledFrom(out).Draw(t, "expect")
}

// print is the ledger's fingerprint for one of the model.
func (w *machine) print(name string) string {
	if p, ok := w.prints[name]; ok {
		return p
	}
	return name
}

func (w *machine) removeLimit(t *rapid.T) command {
	account, name := w.account(t), "l1"
	if all := w.model.active(account); len(all) > 0 {
		name = rapid.SampledFrom(all).Draw(t, "limit").name
	}
	expect := w.expect(t, account, name)
	return command{
		text:   fmt.Sprintf("RemoveLimit %s/%s expect %q", account, name, expect),
		ledger: func(w *machine) (any, error) { return nil, w.led.RemoveLimit(w.ctx, account, name, w.print(expect)) },
		model:  func(w *machine) (any, error) { return nil, w.model.RemoveLimit(w.clock, account, name, expect) },
	}
}

func (w *machine) reserve(t *rapid.T) command {
	r := w.request(t)
	return command{
		text: fmt.Sprintf("Reserve %+v", r),
		ledger: func(w *machine) (any, error) {
			h, err := w.led.Reserve(w.ctx, r)
			return orNil(h, err), err
		},
		model: func(w *machine) (any, error) {
			h, err := w.model.Reserve(w.clock, r)
			return orNil(h, err), err
		},
	}
}

// orNil makes no hold an empty answer.
func orNil(h *spendlimit.Hold, err error) any {
	if err != nil {
		return nil
	}
	return h
}

func (w *machine) check(t *rapid.T) command {
	r := w.request(t)
	return command{
		text:   fmt.Sprintf("Check %+v", r),
		ledger: func(w *machine) (any, error) { return w.led.Check(w.ctx, r) },
		model:  func(w *machine) (any, error) { return w.model.Check(w.clock, r) },
	}
}

// request draws one of the forms: exact, at least Min, Rest, Free, each with a parent and a split where that fits.
func (w *machine) request(t *rapid.T) spendlimit.Request {
	w.keys++
	r := spendlimit.Request{Key: fmt.Sprintf("k%02d", w.keys), TTL: w.ttl(t)}
	if rapid.IntRange(0, 19).Draw(t, "old key") == 19 {
		r.Key = w.hold(t)
	}
	if w.child(t) {
		r.Parent = w.hold(t)
		r.Accounts = rapid.SampledFrom([][]string{nil, nil, {"a"}, {"b"}, {"c"}, {"b", "c"}}).Draw(t, "accounts")
	} else {
		r.Accounts = w.accounts(t)
	}
	if r.Parent == r.Key {
		r.Parent, r.Accounts = "", w.accounts(t)
	}
	switch form := rapid.SampledFrom([]string{"exact", "exact", "min", "rest", "free"}).Draw(t, "form"); form {
	case "exact":
		r.Amount = w.some(t, "amount")
		if w.trees && r.Parent == "" {
			r.Amount = most / 2
		}
	case "min":
		r.Amount = w.some(t, "amount")
		r.Min = spendlimit.Amount(rapid.IntRange(0, int(r.Amount)).Draw(t, "min"))
	case "rest":
		r.Rest, r.Min = true, w.mostly0(t, "min")
	case "free":
		r.Free = true
		return r
	}
	if w.sometimes(t, "split") {
		r.Split = spendlimit.Split{
			Group: rapid.SampledFrom([]string{"g1", "g1", "g2", "g3"}).Draw(t, "group"),
			Slots: rapid.SampledFrom([]int{2, 2, 2, 2, 2, 2, 3, 1}).Draw(t, "slots"),
		}
		if w.seldom(t, "other group") {
			r.Split = spendlimit.Split{Group: "g1", Slots: 2}
		}
	}
	if w.sometimes(t, "labels") {
		r.Labels, r.Price = map[string]string{"run": "1"}, "rates"
	}
	return r
}

// child tells whether a request is to have a parent.
func (w *machine) child(t *rapid.T) bool {
	if len(w.model.held()) == 0 {
		return rapid.IntRange(0, 9).Draw(t, "no parent") == 9
	}
	of := 4
	if w.trees {
		of = 2
	}
	return rapid.IntRange(1, of).Draw(t, "child") == of
}

func (w *machine) dispatch(t *rapid.T) command {
	key := w.hold(t)
	return command{
		text:   "Dispatch " + key,
		ledger: func(w *machine) (any, error) { return nil, w.led.Dispatch(w.ctx, key) },
		model:  func(w *machine) (any, error) { return nil, w.model.Dispatch(w.clock, key) },
	}
}

func (w *machine) record(t *rapid.T) command {
	u := Usage{Hold: w.hold(t), ID: w.id(t), Cumulative: rapid.Bool().Draw(t, "cumulative")}
	u.Cost = w.cost(t, KnownCost, KnownCost, KnownCost, KnownCost, KnownCost, UnknownCost)
	return command{
		text:   fmt.Sprintf("Record %+v", u),
		ledger: func(w *machine) (any, error) { return w.led.Record(w.ctx, u.Real()) },
		model:  func(w *machine) (any, error) { return w.model.Record(w.clock, u) },
	}
}

func (w *machine) settle(t *rapid.T) command {
	key, c := w.hold(t), w.cost(t, KnownCost, KnownCost, KnownCost, RecordedCost, RecordedCost, UnknownCost)
	var opts []spendlimit.Option
	if rapid.Bool().Draw(t, "late") {
		opts = append(opts, spendlimit.Late)
	}
	return command{
		text:   fmt.Sprintf("Settle %s %+v %v", key, c, opts),
		ledger: func(w *machine) (any, error) { return w.led.Settle(w.ctx, key, c.Real(), opts...) },
		model:  func(w *machine) (any, error) { return w.model.Settle(w.clock, key, c, opts...) },
	}
}

func (w *machine) release(t *rapid.T) command {
	key := w.hold(t)
	opts := rapid.SampledFrom([][]spendlimit.Option{
		{spendlimit.Tree}, nil, {spendlimit.NotSpent}, {spendlimit.Tree}, {spendlimit.NotSpent, spendlimit.Tree},
	}).Draw(t, "options")
	return command{
		text:   fmt.Sprintf("Release %s %v", key, opts),
		ledger: func(w *machine) (any, error) { return w.led.Release(w.ctx, key, opts...) },
		model:  func(w *machine) (any, error) { return w.model.Release(w.clock, key, opts...) },
	}
}

func (w *machine) closeHold(t *rapid.T) command {
	key := w.hold(t)
	return command{
		text:   "Close " + key,
		ledger: func(w *machine) (any, error) { return nil, w.led.Close(w.ctx, key) },
		model:  func(w *machine) (any, error) { return nil, w.model.Close(w.clock, key) },
	}
}

func (w *machine) extend(t *rapid.T) command {
	return w.extension(spendlimit.Extension{Hold: w.hold(t), TTL: w.ttl(t)})
}

func (w *machine) roll(t *rapid.T) command {
	return w.extension(spendlimit.Extension{Hold: w.hold(t), TTL: w.ttl(t), Roll: true, ID: w.id(t), Min: w.mostly0(t, "min")})
}

func (w *machine) extension(e spendlimit.Extension) command {
	return command{
		text:   fmt.Sprintf("Extend %+v", e),
		ledger: func(w *machine) (any, error) { return w.led.Extend(w.ctx, e) },
		model:  func(w *machine) (any, error) { return w.model.Extend(w.clock, e) },
	}
}

func (w *machine) grow(t *rapid.T) command {
	g := spendlimit.Growth{Hold: w.hold(t), ID: w.id(t), By: w.some(t, "by")}
	g.Min = spendlimit.Amount(rapid.IntRange(0, int(g.By)).Draw(t, "min"))
	return command{
		text:   fmt.Sprintf("Grow %+v", g),
		ledger: func(w *machine) (any, error) { return w.led.Grow(w.ctx, g) },
		model:  func(w *machine) (any, error) { return w.model.Grow(w.clock, g) },
	}
}

func (w *machine) shrink(t *rapid.T) command {
	s := spendlimit.Shrinkage{Hold: w.hold(t), ID: w.id(t), By: 1 + w.mostly0(t, "by")}
	return command{
		text:   fmt.Sprintf("Shrink %+v", s),
		ledger: func(w *machine) (any, error) { return w.led.Shrink(w.ctx, s) },
		model:  func(w *machine) (any, error) { return w.model.Shrink(w.clock, s) },
	}
}

func (w *machine) charge(t *rapid.T) command {
	e := Expense{ID: w.id(t), Accounts: w.accounts(t), Cost: w.cost(t, KnownCost), At: w.at(t)}
	return command{
		text:   fmt.Sprintf("Charge %+v", e),
		ledger: func(w *machine) (any, error) { return w.led.Charge(w.ctx, e.Real()) },
		model: func(w *machine) (any, error) {
			r, err := w.model.Charge(w.clock, e)
			w.know(r, err, e.Accounts)
			return r, err
		},
	}
}

func (w *machine) adjust(t *rapid.T) command {
	a := spendlimit.Adjustment{ID: w.id(t), By: w.some(t, "by"), Reason: "bill"}
	if rapid.Bool().Draw(t, "down") {
		a.By = -a.By
	}
	if w.sometimes(t, "of a hold") {
		a.Hold = w.hold(t)
	} else {
		a.At = w.at(t)
	}
	if a.Hold == "" || rapid.Bool().Draw(t, "one account") {
		a.Account = w.account(t)
	}
	return command{
		text:   fmt.Sprintf("Adjust %+v", a),
		ledger: func(w *machine) (any, error) { return w.led.Adjust(w.ctx, a) },
		model: func(w *machine) (any, error) {
			r, err := w.model.Adjust(w.clock, a)
			accounts := []string{a.Account}
			if a.Account == "" {
				accounts = payersOf(w.model.find(a.Hold))
			}
			w.know(r, err, accounts)
			return r, err
		},
	}
}

// know adds a cost without a hold to what is known of the accounts.
func (w *machine) know(r spendlimit.Receipt, err error, accounts []string) {
	if err != nil || r.Replayed {
		return
	}
	for _, a := range accounts {
		w.direct[a] += r.Cost
	}
}

// sweep only writes down what has happened anyway. Where a clock was set back, writing it down makes it later, though.
func (w *machine) sweep(t *rapid.T) command {
	most := rapid.SampledFrom([]int{1, 100}).Draw(t, "most")
	return command{
		text: fmt.Sprint("Sweep ", most),
		ledger: func(w *machine) (any, error) {
			n, err := w.led.Sweep(w.ctx, most)
			if is := w.read(t); !w.setBack() { // I8
				is.journals = w.was.journals
				w.unchanged(t, command{text: "Sweep"}, w.was, is)
			}
			return n, err
		},
		model: func(w *machine) (any, error) { return w.model.Sweep(w.clock, most), nil },
	}
}

// setBack tells whether the clock is behind an entry.
func (w *machine) setBack() bool {
	return slices.ContainsFunc(machineAccounts(), func(a string) bool { return w.model.last(a) > w.clock.UnixMicro() })
}

func (w *machine) prune(t *rapid.T) command {
	account := w.account(t)
	before := w.clock.Add(-rapid.SampledFrom([]time.Duration{0, 35 * 24 * time.Hour, 36 * 24 * time.Hour, 43 * 24 * time.Hour}).Draw(t, "age"))
	return command{
		text:   fmt.Sprintf("Prune %s %v", account, before),
		ledger: func(w *machine) (any, error) { return nil, w.led.Prune(w.ctx, account, before) },
		model:  func(w *machine) (any, error) { return nil, w.model.Prune(w.clock, account, before) },
	}
}

// look is a read that is not among those after every command.
func (w *machine) look(t *rapid.T) command {
	account, at := w.account(t), w.at(t)
	if !at.IsZero() {
		return command{
			text:   fmt.Sprintf("Balances %s %v", account, at),
			ledger: func(w *machine) (any, error) { return listed(t, w.led.Balances(w.ctx, account, at)), nil },
			model:  func(w *machine) (any, error) { return w.model.Balances(w.clock, account, at), nil },
		}
	}
	f := spendlimit.HoldFilter{Account: account, Live: rapid.Bool().Draw(t, "live")}
	return command{
		text:   fmt.Sprintf("Holds %+v", f),
		ledger: func(w *machine) (any, error) { return bare(listed(t, w.led.Holds(w.ctx, f))), nil },
		model:  func(w *machine) (any, error) { return bare(w.model.Holds(w.clock, f)), nil },
	}
}

func (w *machine) holdOf(t *rapid.T) command {
	key := w.hold(t)
	return command{
		text: "Hold " + key,
		ledger: func(w *machine) (any, error) {
			h, err := w.led.Hold(w.ctx, key)
			return orNil(h, err), err
		},
		model: func(w *machine) (any, error) {
			h, err := w.model.Hold(w.clock, key)
			return orNil(h, err), err
		},
	}
}

// faulty runs a command whose first answer is lost, with or without what it did.
func (w *machine) faulty(t *rapid.T) {
	draw := rapid.SampledFrom([]int{0, 0, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11}).Draw(t, "command")
	c := []func(*rapid.T) command{
		w.reserve, w.dispatch, w.record, w.settle, w.release, w.closeHold, w.extend, w.roll, w.grow, w.charge, w.adjust, w.setLimit,
	}[draw](t)
	kind := rapid.SampledFrom([]FaultKind{FaultAfter, FaultBefore}).Draw(t, "fault")
	w.runFaulty(t, c, kind)
}

// The things that commands are about.

func (w *machine) account(t *rapid.T) string {
	if w.seldom(t, "other account") {
		return machineAccounts()[0]
	}
	return rapid.SampledFrom(machineAccounts()).Draw(t, "account")
}

func (w *machine) accounts(t *rapid.T) []string {
	if w.seldom(t, "other accounts") {
		return machineAccounts()[:1]
	}
	return rapid.SampledFrom([][]string{{"a"}, {"a"}, {"b"}, {"c"}, {"a", "b"}, {"c", "b"}, {"a", "b", "c"}}).Draw(t, "accounts")
}

// hold draws a key: mostly of a live hold, else of one of the last.
func (w *machine) hold(t *rapid.T) string {
	const few = 8
	keys := []string{"missing"}
	live := w.model.held()
	if len(live) > 0 && rapid.IntRange(0, 9).Draw(t, "not live") < 9 {
		live = live[max(0, len(live)-few):]
		return live[rapid.IntRange(0, len(live)-1).Draw(t, "hold")].req.Key
	}
	for _, h := range w.model.facts.holds[max(0, len(w.model.facts.holds)-few):] {
		keys = append(keys, h.req.Key)
	}
	return rapid.SampledFrom(keys).Draw(t, "key")
}

// id draws a usage id that is rather new.
func (w *machine) id(t *rapid.T) string {
	return fmt.Sprintf("u%03d", len(w.done)+rapid.IntRange(0, 9).Draw(t, "id"))
}

const most = 20

func (w *machine) amount(t *rapid.T, name string) spendlimit.Amount {
	return spendlimit.Amount(rapid.IntRange(0, most).Draw(t, name))
}

// some is an amount above 0: often a small one.
func (w *machine) some(t *rapid.T, name string) spendlimit.Amount {
	return 1 + spendlimit.Amount(rapid.IntRange(0, rapid.SampledFrom([]int{4, 4, most}).Draw(t, "up to")).Draw(t, name))
}

func (w *machine) mostly0(t *rapid.T, name string) spendlimit.Amount {
	return spendlimit.Amount(max(0, rapid.IntRange(-10, 8).Draw(t, name)))
}

func (w *machine) sometimes(t *rapid.T, name string) bool {
	return rapid.IntRange(0, 2).Draw(t, name) == 2
}

func (w *machine) ttl(t *rapid.T) time.Duration {
	return rapid.SampledFrom([]time.Duration{24 * time.Hour, 0, time.Second, time.Minute, 24 * time.Hour, 24 * time.Hour}).Draw(t, "ttl")
}

// at draws an instant for a cost without a hold: now, or some time ago.
func (w *machine) at(t *rapid.T) time.Time {
	if rapid.IntRange(0, 2).Draw(t, "now") < 2 {
		return time.Time{}
	}
	const day = 24 * time.Hour
	return w.clock.Add(-rapid.SampledFrom([]time.Duration{0, time.Second, day, 3 * day, 9 * day, -time.Hour}).Draw(t, "ago"))
}

func (w *machine) cost(t *rapid.T, forms ...CostForm) Cost {
	c := Cost{
		Form:   rapid.SampledFrom(forms).Draw(t, "cost"),
		Source: rapid.SampledFrom([]spendlimit.Source{spendlimit.Computed, spendlimit.Reported}).Draw(t, "source"),
	}
	if c.Form == KnownCost {
		c.Amount = w.some(t, "cost amount") - 1
		c.Metered = int64(rapid.IntRange(0, 1).Draw(t, "metered"))
		c.ZeroPrice = w.sometimes(t, "zero price")
	}
	return c
}
