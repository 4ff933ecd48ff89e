package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/price"
)

// usd is an amount as the report shows it.
func usd(text string) spendlimit.Quantity {
	return spendlimit.USD.Quantity(spendlimit.USD.MustParse(text))
}

// play replays as the flags say, and returns the replay and its report. Every account must add up afterwards.
func play(tb rapid.TB, args ...string) (*replay, *report) {
	tb.Helper()
	ctx := context.Background()
	cfg, err := parseFlags(args, nil)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := newReplay(ctx, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	if err := r.run(ctx, func() {}); err != nil {
		tb.Fatal(err)
	}
	rep, err := r.report(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	for _, account := range r.accounts {
		if diffs, err := r.ledger.Verify(ctx, account); err != nil || len(diffs) > 0 {
			tb.Errorf("%s: %v, %v", account, err, diffs)
		}
	}
	return r, rep
}

// realFlags are those of the public trace of 8,819 calls within an hour.
func realFlags(t *testing.T, args ...string) []string {
	t.Helper()
	return append([]string{
		"-trace", sharedFile(t, "azure-llm-trace-2023-code.csv"), "-prices", sharedFile(t, "litellm-model-prices.json"),
		"-max-output", "2000", "-period", "day",
	}, args...)
}

func TestRealTrace(t *testing.T) {
	t.Parallel()
	day := func(label string, admitted, denied int, spent, peak string) *period {
		return &period{label, tally{admitted, denied, usd(spent), usd(peak)}}
	}
	for _, c := range []struct {
		model, limit, zone string
		want               []*period
	}{
		{"gpt-4o-mini", "", "UTC", []*period{day("2023-11-16", 8819, 0, "2.8565337", "2.8576299")}},
		{"gpt-4o-mini", "", "Asia/Kolkata", []*period{
			day("2023-11-16", 1966, 0, "0.6184845", "0.6196743"), day("2023-11-17", 6853, 0, "2.2380492", "2.2391454")}},
		{"claude-sonnet-4-5", "10", "UTC", []*period{day("2023-11-16", 1504, 7315, "9.969996", "9.999441")}},
		{"claude-sonnet-4-5", "10", "Asia/Kolkata", []*period{
			day("2023-11-16", 1504, 462, "9.969996", "9.999441"), day("2023-11-17", 1527, 5326, "9.970344", "9.999894")}},
	} {
		t.Run(c.model+" "+c.zone, func(t *testing.T) {
			t.Parallel()
			_, got := play(t, realFlags(t, "-model", c.model, "-limit", c.limit, "-zone", c.zone)...)
			if diff := cmp.Diff(c.want, got.Periods, cmp.AllowUnexported(period{})); diff != "" {
				t.Error(diff)
			}
			want := tally{Spent: usd("0"), Peak: usd("0")}
			for _, p := range c.want {
				want.Admitted += p.Admitted
				want.Denied += p.Denied
				want.Spent.Amount += p.Spent.Amount
				want.Peak.Amount = max(want.Peak.Amount, p.Peak.Amount)
			}
			if diff := cmp.Diff(want, got.tally); diff != "" || got.Calls != 8819 {
				t.Errorf("%d calls, %s", got.Calls, diff)
			}
		})
	}
}

// Whatever the schedule, no grant goes beyond the limit, and each call counts in its own day.
func TestRealTraceAtOnce(t *testing.T) {
	t.Parallel()
	perDay := map[string]map[string]int{"UTC": {"2023-11-16": 8819}, "Asia/Kolkata": {"2023-11-16": 1966, "2023-11-17": 6853}}
	for zone, want := range perDay {
		for round := range 3 {
			t.Run(fmt.Sprint(zone, " ", round), func(t *testing.T) {
				t.Parallel()
				_, rep := play(t, realFlags(t, "-model", "claude-sonnet-4-5", "-limit", "10", "-zone", zone, "-workers", "64")...)
				got := map[string]int{}
				for _, p := range rep.Periods {
					got[p.Period] = p.Admitted + p.Denied
					if p.Peak.Amount > usd("10").Amount || p.Spent.Amount > p.Peak.Amount || p.Peak.Amount < usd("9.9").Amount {
						t.Errorf("%s: spent %s, peak %s", p.Period, p.Spent, p.Peak)
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// The workers run calls at the same time: each step here waits for the others.
func TestWorkersRunAtOnce(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			cfg, err := parseFlags([]string{"-workers", fmt.Sprint(workers)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r, err := newReplay(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			r.calls = r.calls[:workers*2]
			for i := range r.calls {
				r.calls[i].at = r.calls[0].at
			}
			meet, arrived := make(chan struct{}), make(chan struct{}, workers)
			go func() {
				for range 2 {
					for range workers {
						<-arrived
					}
					for range workers {
						meet <- struct{}{}
					}
				}
			}()
			if err := r.run(t.Context(), func() { arrived <- struct{}{}; <-meet }); err != nil {
				t.Error(err)
			}
		})
	}
}

// An error of one call ends the replay and names the call's line. However late the failing worker is, the others, held
// until it has failed, make no further call.
func TestRunStops(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 8} {
		synctest.Test(t, func(t *testing.T) {
			cfg, err := parseFlags([]string{"-workers", strconv.Itoa(workers), "-limit", ""}, nil)
			if err != nil {
				t.Fatal(err)
			}
			r, err := newReplay(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			const bad = 1000
			r.calls[bad].output = -1
			for i := range r.calls {
				r.calls[i].at = r.calls[0].at // all at once
			}
			var made atomic.Int64
			failed, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				ended <- r.run(t.Context(), func() {
					if made.Add(1) > int64(bad+workers) {
						<-failed
					}
				})
			}()
			synctest.Wait() // every worker is held or gone: the bad call is over
			close(failed)
			err = <-ended
			if err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("built-in trace:%d: price: cost: invalid", bad+2)) {
				t.Errorf("%d workers: error %v", workers, err)
			}
			if n := made.Load(); n <= bad || n > int64(bad+2*workers) || workers == 1 && n != bad+1 {
				t.Errorf("%d workers: %d calls were made", workers, n)
			}
		})
	}
}

// world is a small trace with what a replay of it should do.
type world struct {
	calls     []call
	accounts  int
	maxOutput int64
	limit     spendlimit.Amount // −1: none
}

func drawWorld(t *rapid.T) world {
	w := world{
		accounts:  rapid.IntRange(1, 3).Draw(t, "accounts"),
		maxOutput: rapid.Int64Range(1, 8).Draw(t, "maxOutput"),
		limit:     spendlimit.Amount(rapid.Int64Range(-1, 40).Draw(t, "limit, in input tokens") * 3000),
	}
	if w.limit < 0 {
		w.limit = -1
	}
	at := time.Date(2026, time.March, 2, 21, 0, 0, 0, time.UTC)
	gaps := []time.Duration{0, 100 * time.Nanosecond, time.Minute, 20 * time.Minute, 5 * time.Hour, 40 * time.Hour}
	for i := range rapid.IntRange(1, 25).Draw(t, "calls") {
		at = at.Add(rapid.SampledFrom(gaps).Draw(t, "gap"))
		w.calls = append(w.calls, call{
			line: i + 2, at: at, prompt: rapid.Int64Range(0, 10).Draw(t, "prompt"), output: rapid.Int64Range(0, 10).Draw(t, "output"),
		})
	}
	return w
}

// flags writes the trace to a file and returns the flags for it.
func (w world) flags(t *rapid.T, dir string, workers int) []string {
	var text strings.Builder
	text.WriteString(traceHeader)
	for _, c := range w.calls {
		fmt.Fprintf(&text, "\n%s,%d,%d", c.at.Format(traceTime), c.prompt, c.output)
	}
	file := filepath.Join(dir, "trace.csv")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	limit := ""
	if w.limit >= 0 {
		limit = spendlimit.USD.Format(w.limit)
	}
	return []string{
		"-trace", file, "-model", "demo-large", "-limit", limit, "-max-output", fmt.Sprint(w.maxOutput),
		"-accounts", fmt.Sprint(w.accounts), "-workers", fmt.Sprint(workers),
	}
}

// expect is the obvious model: one call after another, in nano-dollars of demo-large.
func (w world) expect() *report {
	type key struct {
		account int
		day     string
	}
	spent := map[key]spendlimit.Amount{}
	rep := &report{Calls: len(w.calls), tally: newTally(), Periods: []*period{}}
	for i, c := range w.calls {
		k := key{i % w.accounts, c.at.Format(time.DateOnly)}
		if n := len(rep.Periods); n == 0 || rep.Periods[n-1].Period != k.day {
			rep.Periods = append(rep.Periods, &period{k.day, newTally()})
		}
		p := rep.Periods[len(rep.Periods)-1]
		peak := spent[k] + spendlimit.Amount(c.prompt*3000+w.maxOutput*15000)
		if w.limit >= 0 && peak > w.limit {
			p.Denied++
			rep.Denied++
			continue
		}
		cost := spendlimit.Amount(c.prompt*3000 + c.output*15000)
		spent[k] += cost
		for _, t := range []*tally{&p.tally, &rep.tally} {
			t.Admitted++
			t.Spent.Amount += cost
			t.Peak.Amount = max(t.Peak.Amount, peak)
		}
	}
	return rep
}

func TestOneWorkerIsTheModel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		_, got := play(t, w.flags(t, dir, 1)...)
		if diff := cmp.Diff(w.expect(), got, cmp.AllowUnexported(report{}, period{})); diff != "" {
			t.Error(diff)
		}
	})
}

// With many workers a call still counts in its own day, no hold lapses however far the trace jumps, and no peak is above
// the limit as long as no cost is above its hold.
func TestManyWorkers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for i := range w.calls {
			w.calls[i].output = min(w.calls[i].output, w.maxOutput)
		}
		want := map[string]int{}
		for _, c := range w.calls {
			want[c.at.Format(time.DateOnly)]++
		}
		r, rep := play(t, w.flags(t, dir, 8)...)
		got := map[string]int{}
		for _, p := range rep.Periods {
			got[p.Period] = p.Admitted + p.Denied
			if w.limit >= 0 && p.Peak.Amount > w.limit {
				t.Errorf("%s: peak %s is above %s", p.Period, p.Peak, spendlimit.USD.Format(w.limit))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for hold, err := range r.ledger.Holds(context.Background(), spendlimit.HoldFilter{}) {
			if err != nil || hold.State != spendlimit.Settled || hold.Price != r.rates {
				t.Errorf("hold %+v, error %v", hold, err)
			}
		}
	})
}

// Each call is dispatched after its hold was granted and before it is settled.
func TestCallIsDispatched(t *testing.T) {
	t.Parallel()
	r, rep := play(t)
	life := []spendlimit.EntryKind{spendlimit.EntryReserve, spendlimit.EntryDispatch, spendlimit.EntrySettle}
	n := -1 // the limit's own entry comes first
	for entry, err := range r.ledger.Entries(t.Context(), r.accounts[0], 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n >= 0 && entry.Kind != life[n%len(life)] {
			t.Fatalf("entry %d is a %s of %s", entry.Seq, entry.Kind, entry.Ref)
		}
		n++
	}
	if n != rep.Admitted*len(life) {
		t.Errorf("%d entries for %d calls", n, rep.Admitted)
	}
}

func TestClockNeverGoesBack(t *testing.T) {
	t.Parallel()
	var c clock
	noon := time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)
	for _, to := range []time.Time{noon, noon.Add(-time.Hour)} {
		c.advance(to)
		if got := c.now(); !got.Equal(noon) {
			t.Errorf("after %s the clock shows %s", to, got)
		}
	}
}

// The journal alone decides what a peak is: a grant counts together with what was held at that moment.
func TestPeakCountsHeld(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cfg, err := parseFlags([]string{"-limit", "10"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newReplay(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	reserve := func(key, amount string) *spendlimit.Hold {
		h, err := r.ledger.Reserve(ctx, spendlimit.Request{Key: key, Accounts: r.accounts, Amount: usd(amount).Amount})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	settle := func(h *spendlimit.Hold, amount string) {
		if _, err := h.Settle(ctx, spendlimit.Total(usd(amount).Amount)); err != nil {
			t.Fatal(err)
		}
	}
	a, b := reserve("a", "4"), reserve("b", "3")
	settle(a, "1")
	c := reserve("c", "2") // 1 spent + 5 held: below 7
	settle(b, "30")        // a cost above its hold is no grant
	settle(c, "0")
	rep, err := r.report(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := tally{Admitted: 3, Spent: usd("31"), Peak: usd("7")}
	if diff := cmp.Diff(want, rep.tally); diff != "" {
		t.Error(diff)
	}
}

func TestBuiltinPrices(t *testing.T) {
	t.Parallel()
	for _, model := range []string{"demo-small", "demo-large"} {
		p, err := loadPrice("", model)
		if err != nil {
			t.Fatal(err)
		}
		if cost, err := p.Cost(price.Usage{Input: 1, Output: 1}); err != nil || cost == 0 {
			t.Errorf("%s: cost %d, error %v", model, cost, err)
		}
	}
}
