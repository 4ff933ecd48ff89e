package spendlimittest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stint-go/stint/spendlimit"
)

// CheckLinearizable lets callers work on two hot accounts of a new store at once, writes down what they asked and were
// told, and fails unless there is one order of all calls, each between its beginning and its end, in which a [Model] would
// have told them the same.
func CheckLinearizable(t *testing.T, open Open) {
	t.Helper()
	for seed := range uint64(8) {
		h, err := RecordHistory(t, open, seed)
		if err != nil {
			t.Fatal(err)
		}
		if !h.Linearizable() {
			t.Fatalf("history %d is not linearizable:\n%s", seed, h)
		}
	}
}

// History is what concurrent callers of a ledger asked and were told.
type History struct {
	cfg spendlimit.Config
	ops []porcupine.Operation
}

// historyAsk is one call. It is about one account, and about a hold on it at most.
type historyAsk struct {
	account string
	text    string
	ledger  func(context.Context, *spendlimit.Ledger) (any, error)
	model   func(*Model) (any, error)
}

// historyAnswer is what it was told.
type historyAnswer struct {
	answer   any
	fault    any
	revision int64 // of the entry that the call wrote; 0 if it wrote none
}

// historyNow is when everything happens.
func historyNow() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }

const (
	historyCallers = 12
	historyCalls   = 30 // of each caller
	historyLimit   = 12
)

// RecordHistory lets callers work on a new store. The seed says what is asked; the order is chance.
func RecordHistory(t testing.TB, open Open, seed uint64) (*History, error) {
	ctx := t.Context()
	h := &History{cfg: spendlimit.Config{Unit: spendlimit.Requests}}
	led, err := spendlimit.New(open(t, historyNow).Store, h.cfg)
	if err != nil {
		return nil, err
	}
	for _, l := range historyLimits() {
		if _, err := led.SetLimit(ctx, l, ""); err != nil {
			return nil, err
		}
	}
	var (
		tick  atomic.Int64
		mu    sync.Mutex
		all   sync.WaitGroup
		start = make(chan struct{})
	)
	for caller := range historyCallers {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(seed, uint64(caller)))
			<-start
			for call := range historyCalls {
				q := drawAsk(dice, call)
				op := porcupine.Operation{ClientId: caller, Input: q, Call: tick.Add(1)}
				op.Output = answerOf(q.ledger(ctx, led))
				op.Return = tick.Add(1)
				mu.Lock()
				h.ops = append(h.ops, op)
				mu.Unlock()
			}
		})
	}
	close(start)
	all.Wait()
	return h, nil
}

func historyLimits() []spendlimit.Limit {
	return []spendlimit.Limit{
		{Account: "a", Name: "day", Kind: spendlimit.Day, Amount: historyLimit},
		{Account: "b", Name: "total", Kind: spendlimit.AllTime, Amount: 2 * historyLimit},
	}
}

// answerOf writes an answer down.
func answerOf(answer any, err error) historyAnswer {
	var w machine // which knows no fingerprints
	out := historyAnswer{answer: tidy(w.plain(answer)), fault: tidy(w.fault(err))}
	switch a := answer.(type) {
	case *spendlimit.Hold:
		if err == nil && !a.Replayed {
			out.revision = a.Revision
		}
	case spendlimit.Receipt:
		if !a.Replayed {
			out.revision = a.Revision
		}
	}
	if err != nil {
		out.answer = nil
	}
	return out
}

// drawAsk draws a caller's next call. All callers are about the same few keys at about the same time.
func drawAsk(dice *rand.Rand, call int) historyAsk {
	account := []string{"a", "b"}[dice.IntN(2)]
	key := fmt.Sprintf("%s%02d", account, call/3+dice.IntN(4))
	n := spendlimit.Amount(dice.IntN(4))
	switch dice.IntN(12) {
	case 0, 1, 2:
		return askReserve(account, key)
	case 3, 4:
		return askSettle(account, key, n)
	case 5:
		return historyAsk{
			account, "release " + key,
			func(ctx context.Context, l *spendlimit.Ledger) (any, error) { return l.Release(ctx, key) },
			func(m *Model) (any, error) { return m.Release(historyNow(), key) },
		}
	case 6:
		return askRecord(account, key, n)
	case 7:
		x := spendlimit.Adjustment{ID: key, Account: account, By: -n - 1, Reason: "bill"}
		return historyAsk{
			account, fmt.Sprintf("adjust %s by %d", key, x.By),
			func(ctx context.Context, l *spendlimit.Ledger) (any, error) { return l.Adjust(ctx, x) },
			func(m *Model) (any, error) { return m.Adjust(historyNow(), x) },
		}
	case 8:
		return askCharge(account, key)
	}
	return askBalance(account)
}

func askReserve(account, key string) historyAsk {
	r := spendlimit.Request{Key: key, Accounts: []string{account}, Amount: 2}
	return historyAsk{
		account, "reserve " + key,
		func(ctx context.Context, l *spendlimit.Ledger) (any, error) {
			h, err := l.Reserve(ctx, r)
			return orNil(h, err), err
		},
		func(m *Model) (any, error) {
			h, err := m.Reserve(historyNow(), r)
			return orNil(h, err), err
		},
	}
}

func askSettle(account, key string, n spendlimit.Amount) historyAsk {
	c := Cost{Form: KnownCost, Amount: n}
	return historyAsk{
		account, fmt.Sprintf("settle %s at %d", key, n),
		func(ctx context.Context, l *spendlimit.Ledger) (any, error) { return l.Settle(ctx, key, c.Real()) },
		func(m *Model) (any, error) { return m.Settle(historyNow(), key, c) },
	}
}

func askRecord(account, key string, n spendlimit.Amount) historyAsk {
	u := Usage{Hold: key, ID: "u", Cost: Cost{Form: KnownCost, Amount: n}, Cumulative: true}
	return historyAsk{
		account, fmt.Sprintf("record %s at %d", key, n),
		func(ctx context.Context, l *spendlimit.Ledger) (any, error) { return l.Record(ctx, u.Real()) },
		func(m *Model) (any, error) { return m.Record(historyNow(), u) },
	}
}

func askCharge(account, id string) historyAsk {
	x := Expense{ID: id, Accounts: []string{account}, Cost: Cost{Form: KnownCost, Amount: 1}}
	return historyAsk{
		account, "charge " + id,
		func(ctx context.Context, l *spendlimit.Ledger) (any, error) { return l.Charge(ctx, x.Real()) },
		func(m *Model) (any, error) { return m.Charge(historyNow(), x) },
	}
}

func askBalance(account string) historyAsk {
	return historyAsk{
		account, "balance of " + account,
		func(ctx context.Context, l *spendlimit.Ledger) (any, error) {
			for b, err := range l.Balances(ctx, account, time.Time{}) {
				b.Fingerprint = ""
				return b, err
			}
			return nil, nil
		},
		func(m *Model) (any, error) {
			b := m.Balances(historyNow(), account, time.Time{})[0]
			b.Fingerprint = ""
			return b, nil
		},
	}
}

// Linearizable tells whether one order explains all answers.
func (h *History) Linearizable() bool {
	return porcupine.CheckOperations(porcupine.Model{
		Partition: byAccount,
		Init:      func() any { return h.begin() },
		Step: func(state, input, output any) (bool, any) {
			return state.(*Model).explains(input.(historyAsk), output.(historyAnswer))
		},
		Equal: func(a, b any) bool { return reflect.DeepEqual(a.(*Model).facts.entries, b.(*Model).facts.entries) },
	}, h.ops)
}

// byAccount parts a history: no call is about two accounts.
func byAccount(ops []porcupine.Operation) [][]porcupine.Operation {
	parts := map[string][]porcupine.Operation{}
	for _, op := range ops {
		a := op.Input.(historyAsk).account
		parts[a] = append(parts[a], op)
	}
	return slices.Collect(maps.Values(parts))
}

// begin is the ledger before the first call.
func (h *History) begin() *Model {
	m := NewModel(h.cfg)
	for _, l := range historyLimits() {
		if _, err := m.SetLimit(historyNow(), l, ""); err != nil {
			panic(err)
		}
	}
	return m
}

// explains tells whether the model gives this answer too, and what it is then.
func (m *Model) explains(q historyAsk, a historyAnswer) (bool, *Model) {
	if a.revision != 0 && a.revision != m.seq(q.account)+1 {
		return false, nil // it was not next
	}
	next := m.fork()
	if diff := different(a, answerOf(q.model(next))); diff != "" {
		return false, nil
	}
	return true, next
}

// fork is a model of its own with the same past.
func (m *Model) fork() *Model {
	f := m.facts
	return &Model{cfg: m.cfg, zones: m.zones, days: m.days, facts: modelFacts{
		limits: slices.Clip(f.limits), versions: slices.Clip(f.versions), periods: slices.Clip(f.periods), forms: slices.Clip(f.forms),
		cuts: slices.Clip(f.cuts), carries: slices.Clip(f.carries), fired: slices.Clip(f.fired),
		holds: slices.Clip(f.holds), states: slices.Clip(f.states), expiries: slices.Clip(f.expiries), rooms: slices.Clip(f.rooms),
		records: slices.Clip(f.records), parts: slices.Clip(f.parts), lines: slices.Clip(f.lines), counts: slices.Clip(f.counts),
		directs: slices.Clip(f.directs), overruns: slices.Clip(f.overruns), usages: slices.Clip(f.usages),
		entries: slices.Clip(f.entries), forgotten: slices.Clip(f.forgotten), pruned: slices.Clip(f.pruned),
	}}
}

// String lists the calls as they began, with when each was under way.
func (h *History) String() string {
	var b strings.Builder
	ops := slices.SortedFunc(slices.Values(h.ops), func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, op := range ops {
		out := op.Output.(historyAnswer)
		fmt.Fprintf(&b, "%4d to %4d, caller %2d: %s: %+v %v\n", op.Call, op.Return, op.ClientId, op.Input.(historyAsk).text, out.answer, out.fault)
	}
	return b.String()
}
