package spendlimit_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stint-go/stint/spendlimit"
)

// flaky is a store of which one step in ten fails, in some way.
type flaky struct {
	spendlimit.Store
	mu   sync.Mutex
	dice *rand.Rand
}

func (s *flaky) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	s.mu.Lock()
	roll := s.dice.IntN(40)
	s.mu.Unlock()
	switch {
	case n.ReadOnly:
	case roll == 0:
		return errors.Join(spendlimit.ErrUnavailable, errFault)
	case roll == 1:
		return errors.Join(spendlimit.ErrUncertain, errFault)
	case roll <= 3:
		return errors.Join(s.Store.Step(ctx, n, f), spendlimit.ErrUncertain, errFault)
	}
	for range 4 {
		runtime.Gosched() // so that others come in between
	}
	return s.Store.Step(ctx, n, f)
}

// crowd is several callers of several leases on one account, over stores that fail, on both sides of a midnight.
type crowd struct {
	*leased
	seed   uint64
	leases []*spendlimit.Lease
	cost   atomic.Int64 // of all holds, as it was acknowledged
	grants atomic.Int64
	over   atomic.Bool
}

const (
	crowdLeases  = 3
	crowdCallers = 4 // of each lease
	crowdCalls   = 150
)

func newCrowd(t *testing.T, seed uint64) *crowd {
	c := &crowd{leased: newLeased(t), seed: seed}
	c.clock.Set(d2.Add(-time.Minute))
	c.limit(forever("700"))
	c.limit(daily("400"))
	for i := range crowdLeases {
		led, err := spendlimit.New(&flaky{Store: c.store, dice: rand.New(rand.NewPCG(seed, uint64(i)))}, c.cfg)
		c.ok(err)
		r := c.request(keyN("p", i), "4")
		r.MinChunk = usd("0.5")
		var l *spendlimit.Lease
		c.again(func() error { l, err = led.Lease(c.ctx, r); return err })
		c.leases = append(c.leases, l)
	}
	return c
}

// again calls until the answer is known to be good.
func (c *crowd) again(call func() error) {
	c.Helper()
	for range 100 {
		err := call()
		if err == nil {
			return
		}
		if !errors.Is(err, spendlimit.ErrUnavailable) && !errors.Is(err, spendlimit.ErrUncertain) {
			c.Errorf("seed %d: %v", c.seed, err)
			return
		}
	}
	c.Errorf("seed %d: a hundred failures", c.seed)
}

// work makes holds, some at a time so that there is much to give back when they end, at no more than they hold.
func (c *crowd) work(lease, caller int) {
	dice := rand.New(rand.NewPCG(c.seed, uint64(100+10*lease+caller)))
	var live []*spendlimit.Hold
	for i := range crowdCalls {
		if lease == 0 && caller == 0 && i == crowdCalls/2 {
			c.clock.Set(d2)
		}
		if h := c.hold(c.leases[lease], fmt.Sprintf("%d/%d/%d", lease, caller, i), dice); h != nil {
			c.grants.Add(1)
			live = append(live, h)
		}
		if i%5 < 4 {
			continue
		}
		for _, h := range live {
			c.end(h, dice)
		}
		live = live[:0]
	}
}

func (c *crowd) end(h *spendlimit.Hold, dice *rand.Rand) {
	room := h.Granted
	if dice.IntN(8) == 0 {
		if r, err := h.Grow(c.ctx, spendlimit.Growth{ID: "g", By: usd("1")}); err == nil {
			room += r.Granted
		}
	}
	spent := room * spendlimit.Amount(min(dice.IntN(16), 8)) / 8 // every other time all of it
	switch dice.IntN(8) {
	case 0:
		_, err := h.Release(c.ctx)
		c.ok(err)
		return
	case 1, 2:
		_, err := h.Record(c.ctx, spendlimit.Usage{ID: "u", Cost: spendlimit.Total(spent / 2), Cumulative: true})
		c.ok(err)
	}
	_, err := h.Settle(c.ctx, spendlimit.Total(spent))
	c.ok(err)
	c.cost.Add(int64(spent))
}

// hold reserves, and calls again for a while if it is not told. A refusal is nil.
func (c *crowd) hold(l *spendlimit.Lease, key string, dice *rand.Rand) *spendlimit.Hold {
	r := req(key, "1")
	r.Amount, r.TTL = usd("0.5")*spendlimit.Amount(1+dice.IntN(8)), time.Hour
	denied := 0
	for range 20 {
		h, err := l.Reserve(c.ctx, r)
		if err == nil {
			return h
		}
		if errors.Is(err, spendlimit.ErrDenied) {
			if denied++; denied == 3 {
				return nil
			}
			if denied == 2 { // those beside may not have had their turn, and then only this one fetches more
				if _, err := l.Sync(c.ctx); err != nil && !errors.Is(err, spendlimit.ErrDenied) &&
					!errors.Is(err, spendlimit.ErrUnavailable) && !errors.Is(err, spendlimit.ErrUncertain) {
					c.Errorf("seed %d: sync: %v", c.seed, err)
				}
			}
			time.Sleep(100 * time.Microsecond) // maybe the next Sync helps
			continue
		}
		if !errors.Is(err, spendlimit.ErrUnavailable) && !errors.Is(err, spendlimit.ErrUncertain) {
			c.Errorf("seed %d: reserve %s: %v", c.seed, key, err)
		}
	}
	return nil
}

// renew calls Sync, sometimes for a caller that leaves early.
func (c *crowd) renew(lease int) {
	dice := rand.New(rand.NewPCG(c.seed, uint64(200+lease)))
	for !c.over.Load() {
		ctx, cancel := context.WithCancel(c.ctx)
		if dice.IntN(4) == 0 {
			go func() { runtime.Gosched(); cancel() }()
		}
		_, err := c.leases[lease].Sync(ctx)
		cancel()
		time.Sleep(time.Duration(dice.IntN(100)) * time.Microsecond)
		for _, expected := range []error{spendlimit.ErrDenied, spendlimit.ErrUnavailable, spendlimit.ErrUncertain, context.Canceled} {
			if errors.Is(err, expected) {
				err = nil
			}
		}
		if err != nil {
			c.Errorf("seed %d: sync: %v", c.seed, err)
		}
	}
}

// watch wants that no limit is ever exceeded.
func (c *crowd) watch() {
	for !c.over.Load() {
		for _, at := range []time.Time{{}, noon} {
			for b, err := range c.Balances(c.ctx, "acme", at) {
				if err != nil || b.Spent+b.Held > b.InForce {
					c.Errorf("seed %d: %s: %s, %v", c.seed, b.Limit, showBalance(b), err)
				}
			}
		}
		time.Sleep(50 * time.Microsecond) // and leaves a lonely processor to the others
	}
}

// wantCovered wants that no lease has given out more than it had: each cost was set aside on the ledger before.
func (c *crowd) wantCovered() {
	c.Helper()
	for e, err := range c.Entries(c.ctx, "acme", 0) {
		c.ok(err)
		if e.Kind != spendlimit.EntryRecord && e.Kind != spendlimit.EntrySettle && e.Kind != spendlimit.EntryLate {
			continue
		}
		for _, p := range e.Postings {
			if p.Spent+p.Held > 0 {
				c.Errorf("seed %d: entry %d, %s of %s: %s spent, %s held", c.seed, e.Seq, e.Kind, e.Hold, dollars(p.Spent), dollars(p.Held))
			}
		}
	}
}

// Many callers of leases, Syncs beside them, and a store that fails: in the end the ledger knows exactly what was spent, and
// no limit was ever exceeded (I12).
func TestI12_ManyCallersOverAFailingStore(t *testing.T) {
	t.Parallel()
	seeds := uint64(6)
	if testing.Short() || raceDetector {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, seed)
			var callers, others sync.WaitGroup
			others.Go(c.watch)
			for i := range c.leases {
				others.Go(func() { c.renew(i) })
				for j := range crowdCallers {
					callers.Go(func() { c.work(i, j) })
				}
			}
			callers.Wait()
			c.over.Store(true)
			others.Wait()
			for _, l := range c.leases {
				c.again(func() error { return l.Close(c.ctx) })
			}
			spent := spendlimit.Amount(c.cost.Load())
			c.wantBalance("acme", "all", fmt.Sprintf("S %s, H 0, A %s", dollars(spent), dollars(usd("700")-spent)))
			for h, err := range c.Holds(c.ctx, spendlimit.HoldFilter{}) {
				if err != nil || h.State != spendlimit.Settled {
					t.Errorf("seed %d: %v, %v", seed, h, err)
				}
			}
			c.wantCovered()
			t.Logf("seed %d: %d grants", seed, c.grants.Load())
			if c.grants.Load() < crowdLeases*crowdCallers { // how many depends on how busy the machine is
				t.Errorf("seed %d: too few grants to tell", seed)
			}
		})
	}
}

// small is what a lease must look like from outside: so many holds on one limit. It is a value, so that states compare.
type small struct {
	spent, held int
	holds       [smallKeys]smallHold
}

type smallHold struct {
	granted, cost int
	ended         bool
}

const (
	smallKeys    = 40
	smallCallers = 6
	smallCalls   = 40
	smallLimit   = 12
)

// smallAsk is a call: of Reserve for n, of Settle at n, or of Sync.
type smallAsk struct {
	what   string
	key, n int
}

// smallAnswer is what it was told: of a hold how much was granted or what it has cost, of a Sync all that is spent and held.
type smallAnswer struct {
	word  string
	value [2]int
}

func (s small) step(q smallAsk) (smallAnswer, small) {
	h := s.holds[q.key]
	switch {
	case q.what == "sync":
		return smallAnswer{"ok", [2]int{s.spent, s.held}}, s
	case q.what == "reserve" && h.ended:
		return smallAnswer{word: "ended"}, s
	case q.what == "reserve" && h.granted > 0:
		return smallAnswer{"replayed", [2]int{h.granted}}, s
	case q.what == "reserve" && s.spent+s.held+q.n > smallLimit:
		return smallAnswer{word: "denied"}, s
	case q.what == "reserve":
		s.held += q.n
		s.holds[q.key] = smallHold{granted: q.n}
		return smallAnswer{"ok", [2]int{q.n}}, s
	case h.granted == 0:
		return smallAnswer{word: "not found"}, s
	case h.ended && h.cost != q.n:
		return smallAnswer{word: "ended"}, s
	case h.ended:
		return smallAnswer{"replayed", [2]int{q.n}}, s
	}
	s.spent, s.held = s.spent+q.n, s.held-h.granted
	s.holds[q.key] = smallHold{h.granted, q.n, true}
	return smallAnswer{"ok", [2]int{q.n}}, s
}

// ask makes the call of a lease.
func (q smallAsk) ask(f *leased, l *spendlimit.Lease) smallAnswer {
	word := func(err error, replayed bool) string {
		switch {
		case err == nil && replayed:
			return "replayed"
		case err == nil:
			return "ok"
		case errors.Is(err, spendlimit.ErrSettled):
			return "ended"
		case errors.Is(err, spendlimit.ErrDenied):
			return "denied"
		case errors.Is(err, spendlimit.ErrNotFound):
			return "not found"
		}
		return err.Error()
	}
	key := keyN("k", q.key)
	switch q.what {
	case "reserve":
		h, err := l.Reserve(f.ctx, spendlimit.Request{Key: key, Accounts: names("acme"), Amount: spendlimit.Amount(q.n)})
		if err != nil {
			return smallAnswer{word: word(err, false)}
		}
		return smallAnswer{word(nil, h.Replayed), [2]int{int(h.Granted)}}
	case "settle":
		h, err := l.Hold(f.ctx, key)
		if err != nil {
			return smallAnswer{word: word(err, false)}
		}
		r, err := h.Settle(f.ctx, spendlimit.Total(spendlimit.Amount(q.n)))
		return smallAnswer{word(err, r.Replayed), [2]int{int(r.Cost)}}
	}
	s, err := l.Sync(f.ctx)
	return smallAnswer{word(err, false), [2]int{int(s.Spent), int(s.Held)}}
}

// recordLease lets callers work on a lease of an account whose whole limit they may use, and writes down what they were told.
func recordLease(t *testing.T, seed uint64) (ops []porcupine.Operation) {
	f := newLeased(t, spendlimit.Config{Unit: spendlimit.Requests})
	f.limit(spendlimit.Limit{Account: "acme", Name: "all", Kind: spendlimit.AllTime, Amount: smallLimit})
	l := f.mustLease(spendlimit.LeaseRequest{
		Key: "p1", Accounts: names("acme"), Chunk: 4, MinChunk: 1, Local: f.local, Clock: f.clock.Now,
	})
	var mu sync.Mutex
	var tick atomic.Int64
	concurrently(smallCallers, func(caller int) {
		dice := rand.New(rand.NewPCG(seed, uint64(caller)))
		for call := range smallCalls {
			q := smallAsk{what: "sync"}
			switch n := dice.IntN(10); {
			case n < 5:
				q = smallAsk{"reserve", (call + dice.IntN(4)) % smallKeys, 1 + dice.IntN(3)}
				q.n = 1 + q.key%3 // a key stands for one amount
			case n < 9:
				q = smallAsk{"settle", (call + dice.IntN(4)) % smallKeys, dice.IntN(2)}
			}
			op := porcupine.Operation{ClientId: caller, Input: q, Call: tick.Add(1)}
			op.Output = q.ask(f, l)
			op.Return = tick.Add(1)
			mu.Lock()
			ops = append(ops, op)
			mu.Unlock()
		}
	})
	return ops
}

func linearizable(ops []porcupine.Operation) bool {
	return porcupine.CheckOperations(porcupine.Model{
		Init: func() any { return small{} },
		Step: func(state, input, output any) (bool, any) {
			answer, next := state.(small).step(input.(smallAsk))
			return answer == output.(smallAnswer), next
		},
	}, ops)
}

// One order of all calls explains what the callers of a lease were told, though its room is taken and given back
// meanwhile: top-ups and Syncs can't be seen from outside.
func TestLease_Linearizable(t *testing.T) {
	t.Parallel()
	words := map[string]int{}
	for seed := range uint64(12) {
		ops := recordLease(t, seed)
		if !linearizable(ops) {
			t.Errorf("history %d is not linearizable: %+v", seed, ops)
		}
		forged := false
		for i, op := range ops {
			a := op.Output.(smallAnswer)
			words[op.Input.(smallAsk).what+" "+a.word]++
			if op.Input.(smallAsk).what != "sync" || a.value[0] < 3 || forged {
				continue
			}
			wrong := slices.Clone(ops)
			wrong[i].Output = smallAnswer{"ok", [2]int{a.value[0] - 3, a.value[1]}}
			if forged = true; linearizable(wrong) {
				t.Errorf("history %d is linearizable with a lost update", seed)
			}
		}
	}
	t.Log(words)
	for _, word := range []string{"sync ok", "reserve ok", "reserve denied", "reserve replayed", "settle ok"} {
		if words[word] == 0 {
			t.Errorf("no %s", word)
		}
	}
}
