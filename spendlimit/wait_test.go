package spendlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
)

// gate is a store whose steps that may write wait until it is opened. It notes when they come and how many holds they name.
type gate struct {
	spendlimit.Store
	blocks  func(n *spendlimit.Need) bool // nil: all that may write
	after   bool                          // wait after the commit, not before it
	reached chan struct{}                 // one signal is kept
	open    chan struct{}                 // each value lets one step through; closed: all

	mu       sync.Mutex
	began    time.Time
	deadline time.Time // of the last step's context
	batches  []int     // holds named by each step
	times    []time.Time
}

// newGate puts a gate before the fixture's store.
func newGate(f *fixture) *gate {
	g := &gate{Store: f.store.Store, reached: make(chan struct{}, 1), open: make(chan struct{})}
	f.store.Store = g
	return g
}

func (g *gate) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	if n.ReadOnly || g.blocks != nil && !g.blocks(&n) {
		return g.Store.Step(ctx, n, f)
	}
	g.note(ctx, &n)
	if g.after {
		err := g.Store.Step(ctx, n, f)
		g.wait()
		return err
	}
	g.wait()
	return g.Store.Step(ctx, n, f)
}

func (g *gate) note(ctx context.Context, n *spendlimit.Need) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.began = time.Now()
	g.deadline, _ = ctx.Deadline()
	g.batches = append(g.batches, len(n.Holds))
	g.times = append(g.times, g.began)
}

func (g *gate) wait() {
	select {
	case g.reached <- struct{}{}:
	default:
	}
	<-g.open
}

// bubble runs a test in a synctest bubble, with a store that lives in the bubble's time: nothing sleeps for real.
func bubble(t *testing.T, cfg spendlimit.Config, run func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, cfg)
		f.store.Store = memory.New(nil).Spend()
		run(t, f)
	})
}

// asked is a call that runs in a goroutine of its own.
type asked struct {
	cancel context.CancelFunc
	ended  chan struct{}
	// The answer, once it has ended.
	hold *spendlimit.Hold
	err  error
	took time.Duration
}

// done tells whether the answer is there, when everybody waits for something.
func (a *asked) done() bool {
	synctest.Wait()
	select {
	case <-a.ended:
		return true
	default:
		return false
	}
}

// wait asks in the background, and returns when everybody waits for something.
func (f *fixture) wait(r spendlimit.Request) *asked { return f.background(f.ReserveWait, r) }

func (f *fixture) background(call func(context.Context, spendlimit.Request) (*spendlimit.Hold, error), r spendlimit.Request) *asked {
	ctx, cancel := context.WithCancel(f.ctx)
	a := &asked{cancel: cancel, ended: make(chan struct{})}
	start := time.Now()
	go func() {
		a.hold, a.err = call(ctx, r)
		a.took = time.Since(start)
		close(a.ended)
	}()
	synctest.Wait()
	return a
}

// wantServed wants that a waiter has been granted its hold after this time.
func (f *fixture) wantServed(a *asked, after time.Duration) {
	f.Helper()
	switch {
	case !a.done():
		f.Errorf("still waiting; want it served after %v", after)
	case a.err != nil || a.took != after:
		f.Errorf("returned after %v with error %v; want it served after %v", a.took, a.err, after)
	}
}

func (f *fixture) wantWaiting(a *asked) {
	f.Helper()
	if a.done() {
		f.Errorf("returned %v, %v; want it to wait", a.hold, a.err)
	}
}

// wantRefused returns the refusal that a waiter came back with.
func (f *fixture) wantRefused(a *asked) *spendlimit.DeniedError {
	f.Helper()
	if !a.done() {
		f.Fatalf("still waiting; want it refused")
	}
	if a.hold != nil {
		f.Errorf("a hold beside the error")
	}
	return f.denial(a.err)
}

// wantFailed wants that a call came back with this error.
func (f *fixture) wantFailed(a *asked, target error) {
	f.Helper()
	if !a.done() {
		f.Fatalf("still waiting; want %v", target)
	}
	f.wantErr(a.err, target)
}

// allDay is a hold on acme that does not lapse during a test.
func allDay(key, amount string) spendlimit.Request {
	r := req(key, amount)
	r.TTL = 24 * time.Hour
	return r
}

// half makes every poll come after half its time.
func half() uint64 { return 0 }

func TestT104_ABigWaiterIsNotPassedForEver(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
		f.limit(forever("10"))
		f.mustReserve(allDay("holder", "8"))
		big := f.wait(allDay("big", "9"))
		time.Sleep(5*time.Second - time.Microsecond)
		f.mustReserve(allDay("kept", "1")) // may pass
		f.mustReserve(req("small", "1"))
		f.mustRelease("small")
		time.Sleep(2 * time.Microsecond)
		synctest.Wait()
		for range 3 {
			d := f.mustDeny(req("small two", "1"))
			if d.Reason != spendlimit.ReasonQueued || d.Account != "acme" || !d.WaitHolds || d.Hopeless || d.RetryAfter <= 0 {
				t.Errorf("got %+v, want queued", d)
			}
			time.Sleep(time.Second)
		}
		if h := f.mustReserve(allDay("kept", "1")); !h.Replayed { // what is granted is granted
			t.Error("not replayed")
		}
		f.mustReserve(child("of the holder", "holder", "1")) // takes nothing that the waiter waits for
		f.mustRelease("of the holder")
		f.limit(on("other", forever("10")))
		f.mustReserve(spendlimit.Request{Key: "elsewhere", Accounts: names("other"), Amount: 1})

		f.mustRelease("kept")
		f.wantWaiting(big)
		f.mustRelease("holder")
		f.wantServed(big, time.Since(f.start()))
		f.mustReserve(req("small two", "1"))
	})
}

// start is when a bubble's time begins.
func (f *fixture) start() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

func TestT104_PatienceIsConfigured(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{Patience: time.Minute}, func(t *testing.T, f *fixture) {
		f.limit(forever("10"))
		f.mustReserve(allDay("holder", "8"))
		big := f.wait(req("big", "9"))
		time.Sleep(time.Minute - time.Microsecond)
		f.mustReserve(req("small", "1"))
		time.Sleep(time.Second)
		if d := f.mustDeny(req("small two", "1")); d.Reason != spendlimit.ReasonQueued {
			t.Errorf("got %v, want queued", d)
		}
		big.cancel()
		synctest.Wait()
		f.mustReserve(req("small two", "1")) // nobody is passed any more
	})
}

// A thousand waiters that give up at random times, while others hold and release: whoever has not given up is served.
func TestT104_RandomCancelsLeaveNobodyStuck(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
		f.limit(forever("10"))
		f.limit(on("other", forever("5")))
		random := rand.New(rand.NewPCG(1, 2))
		var wg sync.WaitGroup
		var mu sync.Mutex
		served, gaveUp := 0, 0
		for i := range 1000 {
			r := spendlimit.Request{Key: keyN("k", i), Accounts: names("acme"), Amount: usd("1") * spendlimit.Amount(1+random.IntN(5))}
			if i%3 == 0 {
				r.Accounts = names("acme", "other")
			}
			patience := time.Duration(random.Int64N(int64(20 * time.Second)))
			works := time.Duration(random.Int64N(int64(200 * time.Millisecond)))
			arrives := time.Duration(random.Int64N(int64(10 * time.Second)))
			stays := i%10 == 0
			wg.Go(func() {
				time.Sleep(arrives)
				ctx, cancel := context.WithCancel(f.ctx)
				defer cancel()
				if !stays {
					defer time.AfterFunc(patience, cancel).Stop()
				}
				_, err := f.ReserveWait(ctx, r)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					served++
					time.AfterFunc(works, func() { f.mustRelease(r.Key) })
				case errors.Is(err, context.Canceled) && !stays:
					gaveUp++
				default:
					t.Errorf("%s: %v", r.Key, err)
				}
			})
		}
		wg.Wait() // a stuck waiter would be a deadlock of the bubble
		time.Sleep(time.Second)
		if served < 100 || gaveUp < 100 || served+gaveUp != 1000 {
			t.Errorf("%d served, %d gave up: not the crowd that this test is about", served, gaveUp)
		}
		f.wantBalance("acme", "all", "S 0, H 0, A 10")
		f.wantServed(f.wait(req("last", "10")), 0)
	})
}

func TestT105_AParkedWaiterBlocksNobody(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{Random: half}, func(t *testing.T, f *fixture) {
		f.limit(daily("10"))
		time.Sleep(24*time.Hour - time.Minute)
		f.mustCharge("c", "7")
		first := f.wait(allDay("first", "5"))
		f.wantServed(f.wait(allDay("small", "2")), 0)
		time.Sleep(6 * time.Second)          // longer than any patience
		f.mustReserve(allDay("direct", "1")) // not queued either: the first waits for the reset alone
		time.Sleep(time.Minute - 7*time.Second)
		f.wantWaiting(first)
		later := f.wait(allDay("later", "7")) // keeps behind the first
		time.Sleep(time.Second + time.Millisecond)
		if !first.done() || first.err != nil || first.hold.CreatedAt.Before(f.start().Add(24*time.Hour)) {
			t.Errorf("first: %v, %v; want it served at midnight", first.hold, first.err)
		}
		f.wantWaiting(later)
		f.mustRelease("first")
		f.wantServed(later, time.Second+time.Millisecond)
	})
}

func TestT108_ContextEnds(t *testing.T) {
	t.Parallel()
	t.Run("while queued", func(t *testing.T) {
		t.Parallel()
		bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
			f.limit(daily("10"))
			g := newGate(f)
			first := f.background(f.Reserve, req("first", "1"))
			queued := f.background(f.Reserve, req("queued", "1"))
			queued.cancel()
			f.wantFailed(queued, context.Canceled)
			if errors.Is(queued.err, spendlimit.ErrUncertain) {
				t.Errorf("got %v, want it certain", queued.err)
			}
			close(g.open)
			f.wantServed(first, 0)
			_, err := f.Hold(f.ctx, "queued")
			f.wantErr(err, spendlimit.ErrNotFound)
			f.wantBalance("acme", "day", "S 0, H 1, A 9")
		})
	})
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("while its batch commits, written %v", after), func(t *testing.T) {
			t.Parallel()
			bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
				f.limit(daily("10"))
				g := newGate(f)
				g.after = after
				first := f.background(f.Reserve, req("first", "1"))
				leads := f.background(f.Reserve, req("leads", "1"))
				follows := f.background(f.Reserve, req("follows", "1"))
				g.open <- struct{}{}
				f.wantServed(first, 0)
				follows.cancel()
				f.wantFailed(follows, context.Canceled)
				f.wantFailed(follows, spendlimit.ErrUncertain)
				close(g.open)
				f.wantServed(leads, 0)
				if h := f.mustReserve(req("follows", "1")); !h.Replayed { // asking again gives the hold
					t.Error("not replayed")
				}
				f.wantBalance("acme", "day", "S 0, H 3, A 7")
			})
		})
	}
	t.Run("after the commit", func(t *testing.T) {
		t.Parallel()
		bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
			f.limit(daily("10"))
			g := newGate(f)
			g.after = true
			a := f.background(f.Reserve, req("k", "1"))
			a.cancel()
			f.wantWaiting(a) // it runs its own batch: it stays to know
			close(g.open)
			f.wantServed(a, 0)
		})
	})
	t.Run("before it began", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.limit(daily("10"))
		ctx, cancel := context.WithCancel(f.ctx)
		cancel()
		f.unchanged(func() {
			_, err := f.Reserve(ctx, req("k", "1"))
			f.wantErr(err, context.Canceled)
		})
	})
}

// R47: an end has 5 s of its own, and says whether it was begun when they are over.
// The leader tells the observer for a caller that did not wait for its answer.
func TestR61_EventsOfACallerThatLeft(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
		l := daily("10")
		l.Thresholds = []spendlimit.Threshold{{Percent: 50}}
		f.limit(l)
		g := newGate(f)
		f.background(f.Reserve, req("first", "1"))
		f.background(f.Reserve, req("leads", "1"))
		left := f.background(func(ctx context.Context, _ spendlimit.Request) (*spendlimit.Hold, error) {
			_, err := f.Charge(ctx, spendlimit.Expense{ID: "c", Accounts: names("acme"), Cost: total("5")})
			return nil, err
		}, spendlimit.Request{})
		g.open <- struct{}{}
		synctest.Wait()
		left.cancel()
		f.wantFailed(left, spendlimit.ErrUncertain)
		close(g.open)
		synctest.Wait()
		f.mustCharge("c", "5") // the retry is told its answer, not the observer again
		if n := f.heard(spendlimit.EventCrossed); n != 1 {
			t.Errorf("%d heard, want 1", n)
		}
	})
}

func TestR47_EndsBehindAStoreThatHangs(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
		f.limit(daily("10"))
		f.mustReserve(req("k", "4"))
		g := newGate(f)
		hangs := f.background(f.Reserve, req("hangs", "1"))
		ends := map[string]*asked{}
		for name, call := range everyCall(f) {
			if name == "Record" || name == "Settle" || name == "Release" || name == "Close" {
				ends[name] = f.background(func(ctx context.Context, _ spendlimit.Request) (*spendlimit.Hold, error) {
					return nil, call(ctx)
				}, spendlimit.Request{})
				ends[name].cancel() // it goes on
				f.wantWaiting(ends[name])
			}
		}
		time.Sleep(5 * time.Second)
		for name, a := range ends {
			f.wantFailed(a, context.DeadlineExceeded)
			if errors.Is(a.err, spendlimit.ErrUncertain) || a.took != 5*time.Second {
				t.Errorf("%s: %v after %v, want it not begun after 5 s", name, a.err, a.took)
			}
		}
		close(g.open)
		f.wantServed(hangs, 5*time.Second)
		f.wantHold("k", "open, granted 4, own 4")
	})
}

func TestR68_OrderOfArrival(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
		f.limit(forever("10"))
		f.limit(on("other", forever("10")))
		f.mustReserve(allDay("holder", "10"))
		var waiters []*asked
		for i := range 5 {
			waiters = append(waiters, f.wait(allDay(keyN("w", i), []string{"10", "6", "4", "5", "5"}[i])))
		}
		f.wantServed(f.wait(spendlimit.Request{Key: "elsewhere", Accounts: names("other"), Amount: usd("1")}), 0)
		f.mustRelease("holder")
		f.wantServed(waiters[0], 0)
		for _, w := range waiters[1:] {
			f.wantWaiting(w)
		}
		f.mustRelease("w0") // room for two, in their order
		f.wantServed(waiters[1], 0)
		f.wantServed(waiters[2], 0)
		f.wantWaiting(waiters[3])
		f.mustRelease("w2") // 4 free: the next in line needs 5, and nobody passes it
		f.wantWaiting(waiters[3])
		f.wantWaiting(waiters[4])
		small := f.wait(allDay("small", "1"))
		f.wantWaiting(small)
		f.mustRelease("w1")
		f.wantServed(waiters[3], 0)
		f.wantServed(waiters[4], 0)
		small.cancel()
	})
}

// A head that stood in the way steps aside when only the reset can help it any more.
func TestR68_AHeadParks(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{Random: half}, func(t *testing.T, f *fixture) {
		f.limit(daily("10"))
		f.mustReserve(allDay("holder", "6"))
		head := f.wait(req("head", "8"))
		small := f.wait(req("small", "1"))
		time.Sleep(3 * time.Second)
		f.wantWaiting(small) // 4 are free, but it is not its turn
		f.mustCharge("c", "3")
		time.Sleep(time.Second)
		f.wantWaiting(head)
		f.wantServed(small, 3550*time.Millisecond) // the head's next poll
	})
}

// A waiter on two accounts stands in both lines.
func TestR68_CommonAccounts(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
		f.limit(forever("10"))
		f.limit(on("B", forever("10")))
		f.mustReserve(allDay("holder", "10"))
		both := f.wait(spendlimit.Request{Key: "both", Accounts: names("acme", "B"), Amount: usd("5"), TTL: time.Hour})
		behind := f.wait(spendlimit.Request{Key: "behind", Accounts: names("B"), Amount: usd("5")})
		f.wantWaiting(behind) // B has room, but the line is kept
		f.mustRelease("holder")
		f.wantServed(both, 0)
		f.wantServed(behind, 0)
	})
}

// Waiters for a parent's room are woken by its other children.
func TestR68_WaitersOnAParent(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
		f.limit(forever("10"))
		f.mustReserve(allDay("P", "10"))
		kid := child("kid", "P", "8")
		kid.TTL = time.Hour
		f.mustReserve(kid)
		w := f.wait(child("w", "P", "5"))
		f.wantWaiting(w)
		time.Sleep(6 * time.Second)
		_, err := f.Reserve(f.ctx, child("small", "P", "1"))
		if d := f.denial(err); d.Reason != spendlimit.ReasonQueued || d.Parent != "P" || d.Account != "" {
			t.Errorf("got %+v, want queued behind a child of P", d)
		}
		f.mustRelease("kid")
		f.wantServed(w, 6*time.Second)
	})
}

// Every step that makes room wakes the head of the line at once, without a poll.
func TestR69_WokenAtOnce(t *testing.T) {
	t.Parallel()
	for name, frees := range map[string]func(f *fixture) error{
		"release": func(f *fixture) error { _, err := f.Release(f.ctx, "holder"); return err },
		"close":   func(f *fixture) error { return f.Close(f.ctx, "holder") },
		"settle":  func(f *fixture) error { _, err := f.Settle(f.ctx, "holder", total("1")); return err },
		"shrink": func(f *fixture) error {
			_, err := f.Shrink(f.ctx, spendlimit.Shrinkage{Hold: "holder", ID: "s", By: usd("5")})
			return err
		},
		"refund": func(f *fixture) error {
			_, err := f.Adjust(f.ctx, spendlimit.Adjustment{ID: "a", Account: "acme", By: usd("-2"), Reason: "refund"})
			return err
		},
		"late settle": func(f *fixture) error { _, err := f.Settle(f.ctx, "lapsed", total("0")); return err },
		"raise": func(f *fixture) error {
			_, err := f.SetLimit(f.ctx, daily("12"), f.current("acme", "day"))
			return err
		},
		"remove": func(f *fixture) error { return f.RemoveLimit(f.ctx, "acme", "day", f.current("acme", "day")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, spendlimit.Config{Random: half}, func(t *testing.T, f *fixture) {
				f.limit(daily("10"))
				f.limit(weekly("100"))
				f.mustCharge("c", "2")
				f.mustReserve(req("lapsed", "2"))
				f.mustDispatch("lapsed")
				time.Sleep(time.Hour)
				f.mustReserve(allDay("holder", "6"))
				w := f.wait(req("w", "2"))
				time.Sleep(3 * time.Second)
				f.wantWaiting(w)
				f.ok(frees(f))
				f.wantServed(w, 3*time.Second)
			})
		})
	}
}

// R54: when the last price is known, work is admitted at once, though no room was freed.
func TestR69_WokenByAPrice(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{Random: half}, func(t *testing.T, f *fixture) {
		f.limit(daily("10"))
		f.mustReserve(allDay("lost", "4"))
		f.mustSettle("lost", spendlimit.Unknown("lost"))
		w := f.wait(req("w", "2"))
		time.Sleep(3 * time.Second)
		f.wantWaiting(w)
		f.mustSettle("lost", total("4"))
		f.wantServed(w, 3*time.Second)
	})
}

// polls runs a waiter that is never served and returns the times between its looks at the store.
func polls(t *testing.T, random func() uint64, d time.Duration) []time.Duration {
	var gaps []time.Duration
	bubble(t, spendlimit.Config{Random: random}, func(t *testing.T, f *fixture) {
		f.limit(forever("10"))
		f.mustReserve(allDay("holder", "10"))
		g := newGate(f)
		close(g.open)
		w := f.wait(req("w", "1"))
		time.Sleep(d)
		w.cancel()
		synctest.Wait()
		for i := range g.times[1:] {
			gaps = append(gaps, g.times[i+1].Sub(g.times[i]))
		}
	})
	return gaps
}

func TestR69_Polls(t *testing.T) {
	t.Parallel()
	ms := func(n ...int) (out []time.Duration) {
		for _, n := range n {
			out = append(out, time.Duration(n)*time.Millisecond)
		}
		return out
	}
	if got, want := polls(t, half, 6*time.Second), ms(50, 100, 200, 400, 800, 1000, 1000, 1000, 1000); !slices.Equal(got, want) {
		t.Errorf("polled after %v, want %v", got, want)
	}
	random := rand.New(rand.NewPCG(3, 4))
	got := polls(t, random.Uint64, time.Minute)
	backoff, low, high := 100*time.Millisecond, false, false
	for _, gap := range got {
		percent := 100 * gap / backoff
		if percent < 50 || percent >= 150 {
			t.Errorf("polled after %v, want 0.5 to 1.5 times %v", gap, backoff)
		}
		low, high = low || percent < 80, high || percent > 120
		backoff = min(2*backoff, 2*time.Second)
	}
	if len(got) < 20 || !low || !high {
		t.Errorf("polls are not spread: %v", got)
	}
}

func TestR69_PollsNoLaterThanTheHint(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{Random: half}, func(t *testing.T, f *fixture) {
		f.limit(forever("10"))
		r := req("holder", "10")
		r.TTL = time.Hour
		f.mustReserve(r)
		time.Sleep(time.Hour - 30*time.Millisecond)
		w := f.wait(req("w", "10"))
		time.Sleep(30*time.Millisecond + 10*time.Microsecond)
		if !w.done() || w.err != nil { // the first poll alone would come after 50 ms
			t.Errorf("error %v; want it served as soon as the holder lapsed", w.err)
		}
	})
}

func TestR69_OtherProcessesAreSeenByPolls(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{Random: half}, func(t *testing.T, f *fixture) {
		f.limit(forever("10"))
		f.mustReserve(allDay("holder", "10"))
		w := f.wait(req("w", "1"))
		time.Sleep(3 * time.Second)
		_, err := f.restart().Release(f.ctx, "holder")
		f.ok(err)
		f.wantWaiting(w)
		f.Ledger = f.restart() // whatever else is done here wakes nobody there
		time.Sleep(time.Second)
		f.wantServed(w, 3550*time.Millisecond)
	})
}

func TestR70_Ends(t *testing.T) {
	t.Parallel()
	t.Run("hopeless", func(t *testing.T) {
		t.Parallel()
		bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
			f.limit(forever("10"))
			w := f.wait(req("w", "11"))
			if !f.wantRefused(w).Hopeless || w.took != 0 {
				t.Errorf("got %v after %v, want hopeless at once", w.err, w.took)
			}
		})
	})
	t.Run("becomes hopeless", func(t *testing.T) {
		t.Parallel()
		bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
			f.limit(forever("10"))
			f.mustReserve(allDay("holder", "10"))
			w := f.wait(req("w", "5"))
			f.mustSettle("holder", total("6"))
			if !f.wantRefused(w).Hopeless {
				t.Errorf("got %v, want hopeless when 4 are left for ever", w.err)
			}
		})
	})
	t.Run("context", func(t *testing.T) {
		t.Parallel()
		bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
			f.limit(forever("10"))
			f.mustReserve(allDay("holder", "10"))
			ctx, cancel := context.WithTimeout(f.ctx, 7*time.Second)
			defer cancel()
			h, err := f.ReserveWait(ctx, req("w", "5"))
			if h != nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, %v", h, err)
			}
			if d := f.denial(err); d.Reason != spendlimit.ReasonHeld || d.Binding.Held != usd("10") {
				t.Errorf("last refusal %+v", d)
			}
			if took := time.Since(f.start()); took != 7*time.Second {
				t.Errorf("took %v", took)
			}
			f.wantBalance("acme", "all", "S 0, H 10, A 0")
			_, err = f.Hold(f.ctx, "w")
			f.wantErr(err, spendlimit.ErrNotFound)
		})
	})
	t.Run("a grant that won the race is returned", func(t *testing.T) {
		t.Parallel()
		bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
			f.limit(forever("10"))
			g := newGate(f)
			g.after = true
			w := f.wait(req("w", "5"))
			w.cancel()
			f.wantWaiting(w)
			close(g.open)
			f.wantServed(w, 0)
		})
	})
	t.Run("a cancelled head wakes the next", func(t *testing.T) {
		t.Parallel()
		bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
			f.limit(forever("10"))
			f.mustReserve(allDay("holder", "8"))
			big := f.wait(req("big", "9"))
			next := f.wait(req("next", "2"))
			f.wantWaiting(next)
			time.Sleep(time.Second)
			big.cancel()
			f.wantServed(next, time.Second)
		})
	})
	t.Run("a store failure", func(t *testing.T) {
		t.Parallel()
		bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
			f.limit(forever("10"))
			f.store.fail(faultBefore)
			w := f.wait(req("w", "5"))
			f.wantFailed(w, spendlimit.ErrUnavailable)
			if errors.Is(w.err, spendlimit.ErrDenied) {
				t.Errorf("got %v, which is no refusal", w.err)
			}
		})
	})
	t.Run("a key in use", func(t *testing.T) {
		t.Parallel()
		bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
			f.limit(forever("10"))
			f.mustReserve(req("k", "5"))
			w := f.wait(req("k", "5"))
			f.wantServed(w, 0)
			if !w.hold.Replayed {
				t.Error("not replayed")
			}
			f.mustRelease("k")
			w = f.wait(req("k", "5"))
			f.wantFailed(w, spendlimit.ErrReleased)
		})
	})
}

func TestR71_Batches(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
		l := daily("0")
		l.Amount = 300
		f.limit(l)
		g := newGate(f)
		const n = 520
		var calls []*asked
		for i := range n {
			calls = append(calls, f.background(f.Reserve, spendlimit.Request{Key: keyN("k", i), Accounts: names("acme"), Amount: 1}))
		}
		close(g.open)
		synctest.Wait()
		if fmt.Sprint(g.batches) != "[1 512 7]" {
			t.Errorf("batches of %v, want at most 512", g.batches)
		}
		for i, c := range calls { // in order of arrival, and each refusal alone
			if !c.done() || (c.err == nil) != (i < 300) {
				t.Fatalf("call %d: %v", i, c.err)
			}
		}
		if left := g.deadline.Sub(g.began); left != 10*time.Second {
			t.Errorf("the store has %v, want 10 s", left)
		}
	})
}

// Each command of a batch is judged on what the one before left, and one that is refused changes nothing for the others.
func TestR71_JudgedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	bubble(t, spendlimit.Config{}, func(t *testing.T, f *fixture) {
		f.limit(daily("10"))
		g := newGate(f)
		first := f.background(f.Reserve, spendlimit.Request{Key: "first", Accounts: names("acme"), Free: true})
		var calls []*asked
		for i, amount := range []string{"6", "6", "5", "4", "0.000000001"} {
			calls = append(calls, f.background(f.Reserve, req(keyN("k", i), amount)))
		}
		calls = append(calls, f.background(f.Reserve, child("kid", "k0", "4")), f.background(f.Reserve, child("too big", "k0", "3")))
		close(g.open)
		f.wantServed(first, 0)
		for i, granted := range []bool{true, false, false, true, false, true, false} {
			if !calls[i].done() || (calls[i].err == nil) != granted {
				t.Errorf("call %d: %v, want granted %v", i, calls[i].err, granted)
			}
		}
		if len(g.batches) != 2 {
			t.Errorf("%d steps, want 2", len(g.batches))
		}
		f.wantBalance("acme", "day", "S 0, H 10, A 0")
		f.wantHold("k0", "open, granted 6, own 2")
	})
}
