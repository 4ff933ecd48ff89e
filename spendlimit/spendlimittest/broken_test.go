package spendlimittest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// broken is a strict store with flaws. Without any it is sound.
type broken struct {
	*Strict
	need    func(n *spendlimit.Need)                                                  // loses what is asked for
	load    func(s *strictStep)                                                       // spoils what is handed to the step
	changes func(c *spendlimit.Changes)                                               // spoils what is written
	answer  func(s *strictStep, err error) error                                      // makes up the outcome; what it leaves in place is written
	read    func(q *spendlimit.Query)                                                 // reads something else
	page    func(p *spendlimit.Page)                                                  // spoils a page
	step    func(b *broken, ctx context.Context, n spendlimit.Need, f stepFunc) error // does it all another way
	again   func(b *broken) *broken                                                   // comes back as something else
}

func (b *broken) Step(ctx context.Context, n spendlimit.Need, f func(now int64, w *spendlimit.Work) error) error {
	if b.step != nil {
		return b.step(b, ctx, n, f)
	}
	b.data.mu.Lock()
	defer b.data.mu.Unlock()
	if err := b.usable(ctx); err != nil {
		return err
	}
	return b.locked(n, f)
}

// locked is a step with the lock held.
func (b *broken) locked(n spendlimit.Need, f stepFunc) error {
	if b.need != nil {
		b.need(&n)
	}
	s := loadStrict(b.data.ledger(n.Ledger), n, b.clock().UnixMicro())
	if b.load != nil {
		b.load(s)
	}
	err := f(s.now, s.work)
	if b.answer != nil {
		err = b.answer(s, err)
	}
	if err != nil || n.ReadOnly {
		return err
	}
	b.put(s)
	return nil
}

// put writes whatever there is, as a store does that checks nothing.
func (b *broken) put(s *strictStep) {
	c := s.work.Changes()
	if b.changes != nil {
		b.changes(c)
	}
	s.put(c)
}

func (b *broken) Read(ctx context.Context, q spendlimit.Query) (spendlimit.Page, error) {
	if b.read != nil {
		b.read(&q)
	}
	p, err := b.Strict.Read(ctx, q)
	if b.page != nil {
		b.page(&p)
	}
	return p, err
}

func (b *broken) handle() Handle {
	return Handle{Store: b, Close: b.Close, Again: func(testing.TB) Handle {
		c := *b
		c.Strict = b.Strict.Again()
		if b.again != nil {
			return b.again(&c).handle()
		}
		return c.handle()
	}}
}

// spoil applies a flaw to the new and the changed rows of a kind.
func spoil[T any](added, changed []*T, flaw func(*T)) {
	for _, row := range slices.Concat(added, changed) {
		flaw(row)
	}
}

func holdFlaw(flaw func(*spendlimit.HoldRow)) func(c *spendlimit.Changes) {
	return func(c *spendlimit.Changes) { spoil(c.NewHolds, c.Holds, flaw) }
}

func periodFlaw(flaw func(*spendlimit.PeriodRow)) func(c *spendlimit.Changes) {
	return func(c *spendlimit.Changes) { spoil(c.NewPeriods, c.Periods, flaw) }
}

// accountFlaw spoils the accounts of a step.
func accountFlaw(flaw func(s *strictStep, a *spendlimit.AccountRow)) func(*strictStep) {
	return func(s *strictStep) {
		for name := range s.locked {
			flaw(s, s.account(name))
		}
	}
}

// copied is the data of a ledger at this moment.
func (l *flatLedger) copied() *flatLedger {
	return &flatLedger{
		unit: l.unit, accounts: maps.Clone(l.accounts), limits: maps.Clone(l.limits), periods: maps.Clone(l.periods),
		holds: maps.Clone(l.holds), usages: maps.Clone(l.usages), entries: maps.Clone(l.entries),
	}
}

// rendezvous brings steps together that a sound store keeps apart: each waits for another one, but not for ever.
type rendezvous chan struct{}

func (r rendezvous) meet() {
	select {
	case r <- struct{}{}:
	case <-r:
	case <-time.After(500 * time.Millisecond):
	}
}

// unlocked makes a store load, think and write without holding the lock in between, when the step is one of these.
func unlocked(when func(b *broken, n spendlimit.Need) bool) *broken {
	met := make(rendezvous)
	return &broken{step: func(b *broken, ctx context.Context, n spendlimit.Need, f stepFunc) error {
		b.data.mu.Lock()
		defer b.data.mu.Unlock()
		if err := b.usable(ctx); err != nil {
			return err
		}
		if n.ReadOnly || !when(b, n) {
			return b.locked(n, f)
		}
		s := loadStrict(b.data.ledger(n.Ledger), n, b.clock().UnixMicro())
		b.data.mu.Unlock()
		met.meet()
		err := f(s.now, s.work)
		b.data.mu.Lock()
		if err == nil {
			b.put(s)
		}
		return err
	}}
}

// staleMembers makes a store count the members of a group before it takes the lock.
func staleMembers() *broken {
	met := make(rendezvous)
	return &broken{step: func(b *broken, ctx context.Context, n spendlimit.Need, f stepFunc) error {
		b.data.mu.Lock()
		defer b.data.mu.Unlock()
		old := b.data.ledger(n.Ledger).copied()
		if len(n.Groups) > 0 {
			b.data.mu.Unlock()
			met.meet()
			b.data.mu.Lock()
		}
		flawed := *b
		flawed.load = func(s *strictStep) {
			for name := range s.locked {
				for _, g := range n.Groups {
					known := slices.DeleteFunc(s.work.Members(name, g), func(h *spendlimit.HoldRow) bool {
						_, ok := old.holds[h.Key]
						return !ok
					})
					s.work.AddMembers(name, g, known)
				}
			}
		}
		return flawed.locked(n, f)
	}}
}

// staleLooks makes a store answer steps that change nothing from before the last write.
func staleLooks() *broken {
	var old sync.Map // by ledger
	return &broken{step: func(b *broken, ctx context.Context, n spendlimit.Need, f stepFunc) error {
		b.data.mu.Lock()
		defer b.data.mu.Unlock()
		l := b.data.ledger(n.Ledger)
		if n.ReadOnly {
			if was, ok := old.Load(n.Ledger); ok {
				l = was.(*flatLedger)
			}
			s := loadStrict(l, n, b.clock().UnixMicro())
			return f(s.now, s.work)
		}
		old.Store(n.Ledger, l.copied())
		return b.locked(n, f)
	}}
}

// flawed is one broken store and the case that must notice.
type flawed struct {
	name  string
	fails string
	store *broken
}

func flawedStores() []flawed {
	lost := func(need func(n *spendlimit.Need)) *broken { return &broken{need: need} }
	always := func(_ *broken, n spendlimit.Need) bool { return len(n.Holds)+len(n.Usages) > 0 }
	missing := func(b *broken, n spendlimit.Need) bool {
		return slices.ContainsFunc(n.Accounts, func(name string) bool {
			_, ok := b.data.ledger(n.Ledger).accounts[name]
			return !ok
		})
	}
	return []flawed{
		// What a step is handed.
		{"unknown holds made up", "C1_Missing", &broken{load: func(s *strictStep) {
			for _, key := range s.need.Holds {
				if s.work.Hold(key) == nil {
					s.work.AddHold(&spendlimit.HoldRow{Key: key})
				}
			}
		}}},
		{"a hold linked twice", "C1_Hold", &broken{load: func(s *strictStep) {
			for _, key := range s.need.Holds {
				if h := s.work.Hold(key); h != nil {
					twin := *h
					s.work.AddHold(&twin)
				}
			}
		}}},
		{"periods around now only", "C1_Periods", lost(func(n *spendlimit.Need) { n.Times = nil })},
		{"inherited due holds left out", "C1_Due", &broken{load: accountFlaw(func(_ *strictStep, a *spendlimit.AccountRow) {
			a.Due = slices.DeleteFunc(a.Due, func(h *spendlimit.HoldRow) bool { return !slices.Contains(h.Accounts, a) })
		})}},
		{"gives up on many accounts", "C1_DueInAChain", &broken{answer: func(s *strictStep, err error) error {
			if len(s.locked) > 5 {
				return spendlimit.ErrUnavailable
			}
			return err
		}}},
		{"due holds don't raise now", "C1_DueRaisesNow", &broken{load: func(s *strictStep) {
			s.now = noon.Add(5 * time.Minute).UnixMicro()
		}}},
		{"more due not said", "C1_DueAtMost1000", &broken{load: accountFlaw(func(_ *strictStep, a *spendlimit.AccountRow) { a.More = false })}},
		{"inherited members left out", "C1_Groups", &broken{load: accountFlaw(func(s *strictStep, a *spendlimit.AccountRow) {
			for _, g := range s.need.Groups {
				own := slices.DeleteFunc(s.work.Members(a.Name, g), func(h *spendlimit.HoldRow) bool { return !slices.Contains(h.Accounts, a) })
				s.work.AddMembers(a.Name, g, own)
			}
		})}},
		{"children not loaded", "C1_Trees", lost(func(n *spendlimit.Need) { n.Trees = nil })},
		{"periods of other days left out", "C1_AllPeriods", lost(func(n *spendlimit.Need) { n.Periods = nil })},
		{"earlier generations left out", "C1_Full", &broken{load: accountFlaw(func(s *strictStep, a *spendlimit.AccountRow) {
			holds, periods := s.work.Full(a.Name)
			s.work.AddFull(a.Name, holds, slices.DeleteFunc(periods, func(p *spendlimit.PeriodRow) bool { return !slices.Contains(a.Limits, p.Limit) }))
		})}},
		{"journal without its edge", "C1_Journal", lost(func(n *spendlimit.Need) {
			n.Journal = slices.Clone(n.Journal)
			for i := range n.Journal {
				n.Journal[i].Span--
			}
		})},
		{"expiring in order of keys", "C1_Expiring", &broken{load: accountFlaw(func(s *strictStep, a *spendlimit.AccountRow) {
			slices.SortFunc(s.work.Expiring(a.Name), func(x, y *spendlimit.HoldRow) int { return int(x.Key[len(x.Key)-1]) - int(y.Key[len(y.Key)-1]) })
		})}},
		{"prune up to its edge", "C1_Prune", lost(func(n *spendlimit.Need) {
			n.Prune = slices.Clone(n.Prune)
			for i := range n.Prune {
				n.Prune[i].Before++
			}
		})},

		// What a step does.
		{"no lock", "T1_FiftyOnTen", unlocked(always)},
		{"no lock on entries", "T29_FiftyCharges", unlocked(always)},
		{"no lock over ids", "C3_OneIDTwoAccounts", unlocked(always)},
		{"missing accounts not locked", "T3_DefaultsOnce", unlocked(missing)},
		{"error commits", "C4_ErrorWritesNothing", &broken{answer: func(s *strictStep, err error) error {
			if errors.Is(err, errBoom) {
				s.put(s.work.Changes())
			}
			return err
		}}},
		{"error lost", "C4_ErrorWritesNothing", &broken{answer: func(*strictStep, error) error { return nil }}},
		{"panic commits", "C4_PanicWritesNothing", &broken{step: func(b *broken, ctx context.Context, n spendlimit.Need, f stepFunc) error {
			b.data.mu.Lock()
			defer b.data.mu.Unlock()
			return b.locked(n, func(now int64, w *spendlimit.Work) (err error) {
				defer func() {
					if recover() != nil {
						err = nil
					}
				}()
				return f(now, w)
			})
		}}},
		{"read-only kept", "C4_ReadOnlyWritesNothing", lost(func(n *spendlimit.Need) { n.ReadOnly = false })},
		{"now before the lock", "C5_NowAfterLocks", &broken{step: func(b *broken, ctx context.Context, n spendlimit.Need, f stepFunc) error {
			early := b.clock()
			b.data.mu.Lock()
			defer b.data.mu.Unlock()
			flawed := *b
			flawed.Strict = &Strict{data: b.data, clock: func() time.Time { return early }}
			return flawed.locked(n, f)
		}}},
		{"clock not clamped", "C5_T34_ClockSteps", &broken{step: func(b *broken, ctx context.Context, n spendlimit.Need, f stepFunc) error {
			b.data.mu.Lock()
			defer b.data.mu.Unlock()
			return b.locked(n, func(_ int64, w *spendlimit.Work) error { return f(b.clock().UnixMicro(), w) })
		}}},
		{"last_us not stored", "C5_T34_ClockSteps", &broken{changes: func(c *spendlimit.Changes) {
			spoil(c.NewAccounts, c.Accounts, func(a *spendlimit.AccountRow) { a.LastUS = 0 })
		}}},
		{"ended context ignored", "C6_ContextEndedBefore", &broken{step: func(b *broken, ctx context.Context, n spendlimit.Need, f stepFunc) error {
			return b.Strict.Step(context.WithoutCancel(ctx), n, f)
		}}},
		{"applied and said not to be", "C6_ContextEndsInside", &broken{step: func(b *broken, ctx context.Context, n spendlimit.Need, f stepFunc) error {
			err := b.Strict.Step(ctx, n, f)
			if err == nil && ctx.Err() != nil {
				return errors.Join(spendlimit.ErrUnavailable, ctx.Err())
			}
			return err
		}}},
		{"closed and open", "C6_T76_Closed", &broken{step: func(b *broken, ctx context.Context, n spendlimit.Need, f stepFunc) error {
			return b.Again().Step(ctx, n, f)
		}}},
		{"ledgers share rows", "C7_TwoLedgers", lost(func(n *spendlimit.Need) { n.Ledger = "all" })},
		{"zero taken for nothing", "C7_AroundZero", &broken{answer: func(s *strictStep, err error) error {
			if slices.ContainsFunc(s.work.Changes().NewPeriods, func(p *spendlimit.PeriodRow) bool { return p.Start == 0 || p.End == 0 }) {
				return errBoom
			}
			return err
		}}},
		{"last commits lost", "C7_ComesBack", &broken{again: func(b *broken) *broken {
			for _, l := range b.data.ledgers {
				for key := range l.holds {
					delete(l.holds, key)
					break
				}
			}
			return b
		}}},
		{"stale reads", "T2_EveryGrantCounts", staleLooks()},
		{"batch all or nothing", "R71_RefusedAlone", &broken{answer: func(s *strictStep, err error) error {
			if len(s.need.Holds) > 1 && slices.ContainsFunc(s.need.Holds, func(key string) bool { return s.work.Hold(key) == nil }) {
				return spendlimit.ErrUnavailable
			}
			return err
		}}},
		{"refusals leave a trace", "T5_UsedUp", &broken{answer: touch}},
		{"replays leave a trace", "I8_Replays", &broken{answer: touch}},

		// What is written.
		{"lost write of line 2", "T31_AllLinesOrNone", &broken{changes: func(c *spendlimit.Changes) {
			if len(c.Periods) > 1 {
				c.Periods = slices.Delete(slices.Clone(c.Periods), 1, 2)
			}
		}}},
		{"expiry ignored", "T6_R33_ExpiryActsUnswept", &broken{load: accountFlaw(func(_ *strictStep, a *spendlimit.AccountRow) { a.Due = nil })}},
		{"replay writes again", "T12_OneKeyTwentyTimes", lost(func(n *spendlimit.Need) {
			if len(n.Accounts) > 0 {
				n.Holds = nil
			}
		})},
		{"unpriced not stored", "T25_UnpricedIsStored", &broken{changes: periodFlaw(func(p *spendlimit.PeriodRow) { p.Unpriced = 0 })}},
		{"carved room not stored", "T30_ChildrenInOneBatch", &broken{changes: func(c *spendlimit.Changes) { c.Holds = nil }}},
		{"group not loaded", "T33_EvenSplit", lost(func(n *spendlimit.Need) { n.Groups = nil })},
		{"group count unlocked", "T62_MembersAtOnce", staleMembers()},
		{"overflow wraps", "T109_Overflow", &broken{changes: periodFlaw(func(p *spendlimit.PeriodRow) {
			if p.Spent == 1<<63-2 {
				p.Spent += 2
			}
		})}},
		{"amounts are floats", "T109_Overflow", &broken{changes: periodFlaw(func(p *spendlimit.PeriodRow) {
			p.Spent = spendlimit.Amount(float64(p.Spent)) //nolint:forbidigo // that is the flaw
		})}},
		{"entry lost", "I7_NoGaps", &broken{changes: func(c *spendlimit.Changes) {
			if len(c.Entries) > 1 {
				c.Entries = slices.Delete(slices.Clone(c.Entries), 1, 2)
			}
		}}},
		{"journal gap", "I7_NoGaps", &broken{changes: func(c *spendlimit.Changes) {
			c.Entries = slices.Clone(c.Entries)
			for i := range c.Entries {
				if e := *c.Entries[i]; e.Kind == spendlimit.EntrySettle {
					e.Seq++
					c.Entries[i] = &e
				}
			}
		}}},
		{"tree not loaded", "R28_TreeIsReleased", lost(func(n *spendlimit.Need) { n.Trees = nil })},
		{"later parts not stored", "R37_GrownOnTwoDays", &broken{changes: holdFlaw(func(h *spendlimit.HoldRow) { h.More = nil })}},
		{"usage id not unique", "R41_UsageCountsOnce", lost(func(n *spendlimit.Need) { n.Usages = nil })},
		{"assumptions not stored", "R46_AssumedIsReplaced", &broken{changes: holdFlaw(func(h *spendlimit.HoldRow) { h.Assumes = nil })}},
		{"receipt of the end not stored", "R46_AssumedIsReplaced", &broken{changes: holdFlaw(func(h *spendlimit.HoldRow) { h.Receipt = spendlimit.Receipt{} })}},
		{"journal not loaded", "R58_BackfillCountsTheJournal", lost(func(n *spendlimit.Need) { n.Journal = nil })},
		{"generations mixed up", "R59_MadeAnew", &broken{changes: func(c *spendlimit.Changes) {
			for _, l := range c.NewLimits {
				l.Gen = 1
			}
		}}},
		{"carried room not stored", "R60_ChargeThatCarries", &broken{changes: periodFlaw(func(p *spendlimit.PeriodRow) { p.Lim = p.Limit.Limit.Amount })}},
		{"fired set not stored", "R61_FiredOnce", &broken{changes: periodFlaw(func(p *spendlimit.PeriodRow) { p.Fired = nil })}},
		{"usages of pruned holds kept", "R76_Prune", &broken{answer: func(s *strictStep, err error) error {
			c := s.work.Changes()
			for _, h := range c.Pruned {
				delete(s.flatLedger.holds, h.Key)
			}
			c.Pruned = nil
			return err
		}}},
		{"unit not stored", "Unit_Mismatch", &broken{changes: func(c *spendlimit.Changes) { c.NewLedger = nil }}},
		{"price not stored", "I11_Tour", &broken{changes: holdFlaw(func(h *spendlimit.HoldRow) { h.Price = "" })}},
		{"raise not stored", "I11_RandomScripts", &broken{changes: periodFlaw(func(p *spendlimit.PeriodRow) { p.Raise = 0 })}},

		// What is listed.
		{"list ends with its first page", "R72_PagesOfHolds", &broken{page: func(p *spendlimit.Page) { p.More = false }}},
		{"page begins with the last one's end", "R72_PagesOfEntries", &broken{read: func(q *spendlimit.Query) { q.AfterSeq-- }}},
		{"due in order of keys", "R74_PageOfDue", &broken{page: func(p *spendlimit.Page) { slices.Sort(p.Keys) }}},
	}
}

// touch writes back the time of every account of a step, whether the step changed anything or not.
func touch(s *strictStep, err error) error {
	for name := range s.locked {
		if a := s.flatLedger.accounts[name]; !s.need.ReadOnly {
			a.LastUS++
			s.flatLedger.accounts[name] = a
		}
	}
	return err
}

// Each broken store fails the case that is there for it, and each case has a store that fails it. On the same store
// without the flaw every case passes.
func TestT47_BrokenStoresFail(t *testing.T) {
	t.Parallel()
	stores := flawedStores()
	for _, c := range cases() {
		if !slices.ContainsFunc(stores, func(f flawed) bool { return f.fails == c.name }) {
			t.Errorf("no store fails case %s", c.name)
		}
		t.Run("sound/"+c.name, func(t *testing.T) {
			t.Parallel()
			if failed, log := watch(t, c, &broken{}); failed {
				t.Errorf("the sound store fails: %s", log)
			}
		})
	}
	for _, f := range stores {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(cases(), func(c testCase) bool { return c.name == f.fails })
			if i < 0 {
				t.Fatalf("there is no case %s", f.fails)
			}
			failed, log := watch(t, cases()[i], f.store)
			if !failed {
				t.Errorf("%s passes", f.fails)
			}
			t.Log(log)
		})
	}
}

// watch runs a case and tells whether it failed, without failing itself.
func watch(t *testing.T, c testCase, store *broken) (failed bool, log string) {
	r := &recorder{TB: t}
	var done sync.WaitGroup
	done.Go(func() { // FailNow ends the goroutine
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
		}()
		c.run(newEnv(r, func(_ testing.TB, clock func() time.Time) Handle {
			b := *store
			b.Strict = NewStrict(clock)
			return b.handle()
		}))
	})
	done.Wait()
	return r.Failed(), r.log
}

// recorder is a testing.TB that remembers failures. Safe for concurrent use.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	failed bool
	log    string
}

func (r *recorder) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
	r.log += text + "\n"
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Fail()                             { r.fail("") }
func (r *recorder) FailNow()                          { r.fail(""); runtime.Goexit() }
func (r *recorder) Error(args ...any)                 { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.fail(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (r *recorder) Helper() {}
