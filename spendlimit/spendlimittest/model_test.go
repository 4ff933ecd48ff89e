package spendlimittest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

func onMemory(_ testing.TB, clock func() time.Time) spendlimittest.Handle {
	db := memory.New(&memory.Options{Clock: clock})
	return spendlimittest.Handle{Store: db.Spend(), Close: func() error { db.Close(); return nil }}
}

func onStrict(_ testing.TB, clock func() time.Time) spendlimittest.Handle {
	return strictHandle(spendlimittest.NewStrict(clock))
}

// Each command is followed by a comparison of everything, with I2 in it. The clock steps back and forth between them (T34).
func TestT11_TenThousandRandomCommands(t *testing.T) {
	t.Parallel()
	for ran := 0; ran < 10_000; {
		n := spendlimittest.CheckModel(t, onMemory)
		if n == 0 {
			t.Fatal("no commands")
		}
		ran += n
	}
}

func TestModelOnStrict(t *testing.T) {
	t.Parallel()
	spendlimittest.CheckModel(t, onStrict)
}

// T69: A holds 2.50 of 10, records 2 and settles at 2 to 4 while B asks for the rest, uses it all and settles. However their
// calls are mixed, B gets 7.50 while A holds, and exactly what A has left over afterwards.
func TestT69_RestBetweenRecordAndSettle(t *testing.T) {
	t.Parallel()
	for _, cost := range []string{"2", "2.5", "4"} {
		for _, order := range mixes("", 3, 3) {
			t.Run(cost+" "+order, func(t *testing.T) {
				t.Parallel()
				for name, open := range map[string]spendlimittest.Open{"memory": onMemory, "strict": onStrict} {
					restInterleaved(t, name, open, order, spendlimit.USD.MustParse(cost))
				}
			})
		}
	}
}

// mixes lists all orders of a calls of A and b calls of B.
func mixes(done string, a, b int) (all []string) {
	if a+b == 0 {
		return []string{done}
	}
	if a > 0 {
		all = mixes(done+"A", a-1, b)
	}
	if b > 0 {
		all = append(all, mixes(done+"B", a, b-1)...)
	}
	return all
}

func restInterleaved(t *testing.T, name string, open spendlimittest.Open, order string, cost spendlimit.Amount) {
	ctx, usd := t.Context(), spendlimit.USD.MustParse
	led, err := spendlimit.New(open(t, time.Now).Store, spendlimit.Config{Unit: spendlimit.USD})
	must(t, err)
	must2(led.SetLimit(ctx, spendlimit.Limit{Account: "acme", Name: "total", Kind: spendlimit.AllTime, Amount: usd("10")}, ""))(t)
	must2(led.Reserve(ctx, spendlimit.Request{Key: "A", Accounts: []string{"acme"}, Amount: usd("2.5")}))(t)

	free, granted := usd("7.5"), spendlimit.Amount(0)
	calls := map[rune][]func(){
		'A': {
			func() { must(t, led.Dispatch(ctx, "A")) },
			func() {
				must2(led.Record(ctx, spendlimit.Usage{Hold: "A", ID: "call", Cost: spendlimit.Total(usd("2"))}))(t)
			},
			func() {
				must2(led.Settle(ctx, "A", spendlimit.Total(cost)))(t)
				free = usd("10") - cost
			},
		},
		'B': {
			func() {
				h, err := led.Reserve(ctx, spendlimit.Request{Key: "B", Accounts: []string{"acme"}, Rest: true})
				must(t, err)
				if granted = h.Granted; granted != free {
					t.Errorf("%s: B got %s, free were %s", name, spendlimit.USD.Format(granted), spendlimit.USD.Format(free))
				}
			},
			func() { must(t, led.Dispatch(ctx, "B")) },
			func() { must2(led.Settle(ctx, "B", spendlimit.Total(granted)))(t) },
		},
	}
	for _, who := range order {
		calls[who][0]()
		calls[who] = calls[who][1:]
	}
	for b, err := range led.Balances(ctx, "acme", time.Time{}) {
		must(t, err)
		if b.Spent != cost+granted || b.Held != 0 || b.Overrun != max(0, b.Spent-b.InForce) {
			t.Errorf("%s: in the end %+v", name, b)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must2 is must for calls with an answer.
func must2[T any](_ T, err error) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		must(t, err)
	}
}

// I9: members of one group who come alone, in any order, share evenly and use all up.
func TestI9_EvenSplit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		room := spendlimit.Amount(rapid.Int64Range(1, 1_000_000).Draw(t, "room"))
		slots := rapid.IntRange(1, 20).Draw(t, "slots")
		room = max(room, spendlimit.Amount(slots)) // nobody is granted nothing
		led, err := spendlimit.New(memory.New(nil).Spend(), spendlimit.Config{Unit: spendlimit.Requests})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := led.SetLimit(t.Context(), spendlimit.Limit{Account: "a", Name: "l", Kind: spendlimit.AllTime, Amount: room}, ""); err != nil {
			t.Fatal(err)
		}
		var parts []spendlimit.Amount
		var sum spendlimit.Amount
		for _, key := range rapid.Permutation(keysOf(slots)).Draw(t, "order") {
			h, err := led.Reserve(t.Context(), spendlimit.Request{
				Key: key, Accounts: []string{"a"}, Split: spendlimit.Split{Group: "g", Slots: slots},
			})
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, h.Granted)
			sum += h.Granted
		}
		if sum != room || slices.Max(parts)-slices.Min(parts) > 1 {
			t.Fatalf("%d over %d: %v", room, slots, parts)
		}
	})
}

func keysOf(n int) []string {
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprint("k", i))
	}
	return keys
}

// A hold that is due brings its accounts, and with them the holds that are due there, also when an account was named twice.
func TestR33_ModelLapsesWhatLapsesTouch(t *testing.T) {
	t.Parallel()
	m := spendlimittest.NewModel(spendlimit.Config{Unit: spendlimit.USD, NoLimit: spendlimit.Allow})
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for _, r := range []spendlimit.Request{
		{Key: "parent", Accounts: []string{"b"}, Amount: 4, TTL: 24 * time.Hour},
		{Key: "root", Accounts: []string{"a"}, Amount: 4},
		{Key: "child", Accounts: []string{"b"}, Parent: "root", Amount: 1},
	} {
		if _, err := m.Reserve(now, r); err != nil {
			t.Fatal(err)
		}
	}
	r := spendlimit.Request{Key: "later", Accounts: []string{"b", "c"}, Parent: "parent", Amount: 1}
	if _, err := m.Reserve(now.Add(time.Hour), r); err != nil {
		t.Fatal(err)
	}
	var lapsed []string
	for _, e := range m.Entries("a", 0) {
		if e.Kind == spendlimit.EntryLapse {
			lapsed = append(lapsed, e.Ref)
		}
	}
	if !slices.Equal(lapsed, []string{"child", "root"}) {
		t.Errorf("lapsed on a: %v, want both", lapsed)
	}
}
