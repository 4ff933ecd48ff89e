package allocatortest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/allocator"
)

// broken is a strict store with flaws. Without any it is sound, though it makes each step once and checks nothing.
type broken struct {
	*Strict
	need    func(n *allocator.Need)                                                  // loses what is asked for
	load    func(s *strictStep, rows *allocator.Rows)                                // spoils what is handed to the step
	changes func(s *strictStep, c *allocator.Changes)                                // spoils what is written
	answer  func(s *strictStep, err error) error                                     // makes up the outcome
	query   func(q *allocator.Query)                                                 // reads something else
	page    func(rows *allocator.Rows)                                               // spoils a page
	step    func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error // does it all another way
	again   func(b *broken)                                                          // comes back as something else
}

func (b *broken) Step(ctx context.Context, n allocator.Need, f func(int64, *allocator.Set) error) error {
	if b.step != nil {
		return b.step(b, ctx, n, f)
	}
	return b.plain(ctx, n, f)
}

func (b *broken) plain(ctx context.Context, n allocator.Need, f stepFunc) error {
	b.data.mu.Lock()
	defer b.data.mu.Unlock()
	if err := b.usable(ctx); err != nil {
		return err
	}
	return b.locked(n, f)
}

// locked is a step with the lock held.
func (b *broken) locked(n allocator.Need, f stepFunc) error {
	s := b.begin(&n)
	err := f(s.clock, s.set)
	if b.answer != nil {
		err = b.answer(s, err)
	}
	if err != nil || n.ReadOnly {
		return err
	}
	b.write(s)
	return nil
}

func (b *broken) begin(n *allocator.Need) *strictStep {
	if b.need != nil {
		b.need(n)
	}
	s := loadStrict(b.data.pool(n.Pool), *n, b.clock().UnixMicro())
	if b.load != nil {
		rows := s.set.Rows()
		b.load(s, &rows)
		s.set = setOf(rows)
	}
	return s
}

func setOf(rows allocator.Rows) *allocator.Set {
	set := allocator.NewSet()
	if rows.Pool != nil {
		set.AddPool(rows.Pool)
	}
	addEach(rows.Slots, set.AddSlot)
	addEach(rows.Leases, set.AddLease)
	addEach(rows.Tickets, set.AddTicket)
	addEach(rows.Groups, set.AddGroup)
	addEach(rows.Raws, set.AddRaw)
	return set
}

func addEach[R any](list []*R, add func(*R)) {
	for _, r := range list {
		add(r)
	}
}

// write stores whatever there is, as a store does that checks nothing.
func (b *broken) write(s *strictStep) {
	c := s.set.Changes()
	if b.changes != nil && c.Pool != nil {
		b.changes(s, &c)
	}
	s.put(&c)
}

func (b *broken) Page(ctx context.Context, q allocator.Query) (allocator.Rows, error) {
	if b.query != nil {
		b.query(&q)
	}
	rows, err := b.Strict.Page(ctx, q)
	if b.page != nil {
		b.page(&rows)
	}
	return rows, err
}

func (b *broken) handle() Handle {
	h := b.Handle()
	h.Store = b
	h.Again = func(testing.TB) Handle {
		c := *b
		c.Strict = b.Strict.Again()
		if b.again != nil {
			b.again(&c)
		}
		return c.handle()
	}
	return h
}

// The flaws by what they spoil.

func lost(need func(n *allocator.Need)) *broken { return &broken{need: need} }

func poolFlaw(flaw func(*allocator.PoolRow)) *broken {
	return &broken{changes: func(_ *strictStep, c *allocator.Changes) { flaw(c.Pool.New) }}
}

func slotFlaw(flaw func(*allocator.SlotRow)) *broken {
	return &broken{changes: func(_ *strictStep, c *allocator.Changes) { spoil(c.Slots, flaw) }}
}

func leaseFlaw(flaw func(*allocator.LeaseRow)) *broken {
	return &broken{changes: func(_ *strictStep, c *allocator.Changes) { spoil(c.Leases, flaw) }}
}

func groupFlaw(flaw func(*allocator.GroupRow)) *broken {
	return &broken{changes: func(_ *strictStep, c *allocator.Changes) { spoil(c.Groups, flaw) }}
}

// spoil applies a flaw to what is written.
func spoil[R any](changes []allocator.Change[R], flaw func(*R)) {
	for i := range changes {
		if changes[i].New != nil {
			row := *changes[i].New
			flaw(&row)
			changes[i].New = &row
		}
	}
}

// copied is the data of a pool at this moment.
func (p *flatPool) copied() *flatPool {
	return &flatPool{row: p.row, groups: maps.Clone(p.groups), slots: maps.Clone(p.slots), leases: maps.Clone(p.leases), tickets: maps.Clone(p.tickets)}
}

// rendezvous brings steps together that a sound store keeps apart: each waits for another one, but not for ever.
type rendezvous chan struct{}

func (r rendezvous) meet() {
	select {
	case r <- struct{}{}:
	case <-r:
	case <-time.After(50 * time.Millisecond):
	}
}

// unlocked makes a store load, think and write without holding the lock in between, when the step is one of these.
func unlocked(met rendezvous, when func(b *broken, n allocator.Need) bool) *broken {
	return &broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
		b.data.mu.Lock()
		defer b.data.mu.Unlock()
		if err := b.usable(ctx); err != nil {
			return err
		}
		if n.ReadOnly || !when(b, n) {
			return b.locked(n, f)
		}
		s := b.begin(&n)
		b.data.mu.Unlock()
		if met != nil {
			met.meet()
		}
		err := f(s.clock, s.set)
		b.data.mu.Lock()
		if err == nil {
			b.write(s)
		}
		return err
	}}
}

func always(*broken, allocator.Need) bool { return true }

// isNew tells whether a step is about a group, or a pool, that has no row yet.
func isNew(b *broken, n allocator.Need) bool {
	p := b.data.pool(n.Pool)
	return p.row == nil || slices.ContainsFunc(n.Groups, func(k allocator.GroupKey) bool {
		_, ok := p.groups[k]
		return !ok
	})
}

// staleLooks makes a store answer steps that change nothing from before the last write.
func staleLooks() *broken {
	var old sync.Map // by pool
	return &broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
		b.data.mu.Lock()
		defer b.data.mu.Unlock()
		p := b.data.pool(n.Pool)
		if n.ReadOnly {
			if was, ok := old.Load(n.Pool); ok {
				p = was.(*flatPool)
			}
			s := loadStrict(p, n, b.clock().UnixMicro())
			return f(s.clock, s.set)
		}
		was := p.copied()
		err := b.locked(n, f)
		if err == nil && p.row != was.row {
			old.Store(n.Pool, was)
		}
		return err
	}}
}

// lostUpdates makes a store forget every so manieth write that it has answered.
func lostUpdates(every int64) *broken {
	var steps atomic.Int64
	return &broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
		if steps.Add(1)%every == 0 {
			n.ReadOnly = true
		}
		return b.plain(ctx, n, f)
	}}
}

// leftovers makes a store use the Set of a step that failed once more.
func leftovers() *broken {
	var left allocator.Rows
	return &broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
		flawed := *b
		flawed.load = func(_ *strictStep, rows *allocator.Rows) {
			rows.Slots = append(rows.Slots, left.Slots...)
			rows.Leases = append(rows.Leases, left.Leases...)
		}
		return flawed.plain(ctx, n, func(clock int64, set *allocator.Set) error {
			err := f(clock, set)
			if left = (allocator.Rows{}); errors.Is(err, errBoom) {
				left = set.Rows()
			}
			return err
		})
	}}
}

// sharedBuffers makes a store decode every page into the same memory.
func sharedBuffers() *broken {
	var labels []allocator.Label
	var slots []int
	return &broken{page: func(rows *allocator.Rows) {
		labels, slots = labels[:0], slots[:0]
		for _, l := range rows.Leases {
			from := len(slots)
			slots = append(slots, l.Slots...)
			l.Slots = slots[from:]
		}
		for _, r := range rows.Slots {
			from := len(labels)
			labels = append(labels, r.Attrs...)
			r.Attrs = labels[from:]
		}
	}}
}

// touch writes back the time of the pool, whether the step changed anything or not.
func touch(s *strictStep, err error) error {
	if !s.need.ReadOnly && s.flatPool.row != nil {
		row := *s.flatPool.row
		row.SeenUS++
		s.flatPool.row = &row
	}
	return err
}

// reversedHeads hands out the last tickets of every group in place of the first.
func reversedHeads() *broken {
	return &broken{
		need: func(n *allocator.Need) { n.Timely = n.Timely && n.Heads == 0 },
		load: func(s *strictStep, rows *allocator.Rows) {
			if s.need.Heads == 0 || s.need.All {
				return
			}
			rows.Tickets = nil
			for k := range s.queues() {
				line := selected(s.tickets, func(t allocator.TicketRow) bool { return t.Params.Group == k }, func(a, b allocator.TicketRow) int { return int(b.Seq - a.Seq) })
				for _, t := range atMost(s.need.Heads, line) {
					rows.Tickets = append(rows.Tickets, &t)
				}
			}
		},
	}
}

// withoutRaws leaves out what can't be read.
func withoutRaws(table string) *broken {
	return &broken{load: func(_ *strictStep, rows *allocator.Rows) {
		rows.Raws = slices.DeleteFunc(rows.Raws, func(r *allocator.Raw) bool { return r.Table == table })
	}}
}

// guessed makes something up for a slot that can't be read.
func guessed(status allocator.SlotStatus) *broken {
	return &broken{load: func(s *strictStep, rows *allocator.Rows) {
		for _, r := range rows.Raws {
			if r.Table == allocator.RawSlot {
				stored := s.flatPool.slots[r.Index]
				stored.Status, stored.CoolUS = status, 0
				rows.Slots = append(rows.Slots, &stored)
			}
		}
		rows.Raws = slices.DeleteFunc(rows.Raws, func(r *allocator.Raw) bool { return r.Table == allocator.RawSlot })
	}}
}

// flawed is one broken store and the case that must notice.
type flawed struct {
	name  string
	fails string
	store func() *broken
}

func flawedStores() []flawed {
	return slices.Concat(flawedSteps(), flawedRows(), flawedPools(), flawedRaces(), flawedDamage())
}

func of(b *broken) func() *broken { return func() *broken { return b } }

func flawedSteps() []flawed {
	noLock := func() *broken { return unlocked(nil, always) }
	return []flawed{
		{"no lock", "P1_StepsOfAPoolNeverOverlap", noLock},
		{"clock from before the lock", "P2_ClockAfterLock", of(&broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
			early := b.clock()
			flawed := *b
			flawed.Strict = &Strict{data: b.data, clock: func() time.Time { return early }}
			return flawed.plain(ctx, n, f)
		}})},
		{"missing pools not locked", "P5_CreatedAtOnce", func() *broken { return unlocked(make(rendezvous), isNew) }},
		{"missing groups not locked", "P5_GroupsMadeAtOnce", func() *broken { return unlocked(make(rendezvous), isNew) }},
		{"set used again", "P9_FreshSetEachTime", leftovers},
		{"epochs from a sequence", "P9_MadeTwice", of(&broken{answer: func(s *strictStep, err error) error {
			if c := s.set.Changes(); errors.Is(err, errBoom) && c.Pool != nil && s.flatPool.row != nil {
				row := *s.flatPool.row
				row.EpochSeq = c.Pool.New.EpochSeq
				s.flatPool.row = &row
			}
			return err
		}})},
		{"half a step written", "Step_ErrorWritesNothing", of(&broken{answer: func(s *strictStep, err error) error {
			if errors.Is(err, errBoom) {
				c := s.set.Changes()
				c.Leases, c.Tickets = nil, nil
				s.put(&c)
			}
			return err
		}})},
		{"panic commits", "Step_PanicWritesNothing", of(&broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
			var p any
			err := b.plain(ctx, n, func(clock int64, set *allocator.Set) (err error) {
				defer func() { p = recover() }()
				return f(clock, set)
			})
			if p != nil {
				panic(p)
			}
			return err
		}})},
		{"read-only kept", "Step_ReadOnlyWritesNothing", of(lost(func(n *allocator.Need) { n.ReadOnly = false }))},
		{"ended context ignored", "Step_ContextEndedBefore", of(&broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
			return b.plain(context.WithoutCancel(ctx), n, f)
		}})},
		{"applied and said not to be", "Step_ContextEndsInside", of(&broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
			err := b.plain(ctx, n, f)
			if err == nil && ctx.Err() != nil {
				return errors.Join(allocator.ErrUnavailable, ctx.Err())
			}
			return err
		}})},
		{"closed and open", "Step_Closed", of(&broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
			return b.Again().Step(ctx, n, f)
		}})},
		{"update by index alone", "Step_OtherPools", of(&broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
			flawed := *b
			flawed.changes = func(_ *strictStep, c *allocator.Changes) {
				for _, p := range b.data.pools {
					for _, x := range c.Slots {
						if _, ok := p.slots[x.New.Index]; ok {
							p.slots[x.New.Index] = freshSlot(*x.New)
						}
					}
				}
			}
			return flawed.plain(ctx, n, f)
		}})},
		{"rows of other pools", "Step_OtherPools", of(lost(func(n *allocator.Need) { n.Pool = strings.ToLower(n.Pool) }))},
		{"stale reads", "Step_SecondHandleSees", staleLooks},
		{"last commit lost", "Step_ComesBack", of(&broken{again: func(b *broken) {
			for _, p := range b.data.pools {
				for k := range p.leases {
					delete(p.leases, k)
					break
				}
			}
		}})},
		{"every step leaves a trace", "I16_NoEffectNoWrite", of(&broken{answer: touch})},
	}
}

func flawedRows() []flawed {
	asStrict := func(name string, b *broken) flawed { return flawed{name, "Need_AsStrict", of(b)} }
	return []flawed{
		asStrict("tickets of an attempt not loaded", &broken{load: func(s *strictStep, rows *allocator.Rows) {
			rows.Tickets = slices.DeleteFunc(rows.Tickets, func(t *allocator.TicketRow) bool { return slices.Contains(s.need.Attempts, t.Attempt) })
		}}),
		asStrict("offers taken for live", &broken{load: func(s *strictStep, rows *allocator.Rows) {
			if s.need.Due > 0 {
				for _, l := range selected(s.leases, isOffered, byEpoch) {
					rows.Leases = append(rows.Leases, &l)
				}
			}
		}}),
		asStrict("due by age forgotten", &broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
			flawed := *b
			flawed.load = func(s *strictStep, rows *allocator.Rows) {
				if s.need.Due > 0 && !s.need.All && len(s.need.Attempts)+len(s.need.Epochs)+len(s.need.Slots) == 0 {
					rows.Leases = slices.DeleteFunc(rows.Leases, func(l *allocator.LeaseRow) bool { return isLive(*l) && l.ExpiresUS >= s.now })
				}
			}
			return flawed.plain(ctx, n, f)
		}}),
		asStrict("purge by one more", lost(func(n *allocator.Need) { n.Purge += min(n.Purge, 1) })),
		asStrict("slots without their leases", &broken{load: func(s *strictStep, rows *allocator.Rows) {
			if len(s.need.Slots) > 0 {
				rows.Leases = nil
			}
		}}),
		asStrict("next not loaded", lost(func(n *allocator.Need) { n.Next = false })),
		asStrict("incarnation not loaded", lost(func(n *allocator.Need) { n.Incarnation = allocator.Incarnation{} })),
		asStrict("groups of leases not loaded", &broken{load: func(s *strictStep, rows *allocator.Rows) {
			if len(s.need.Epochs) > 0 {
				rows.Groups = nil
			}
		}}),
		{"missing pool made up", "Need_Missing", of(&broken{load: func(s *strictStep, rows *allocator.Rows) {
			if rows.Pool == nil {
				rows.Pool = &allocator.PoolRow{}
			}
		}})},
		{"absent equals absent", "Page_AsStrict", of(&broken{query: func(q *allocator.Query) {
			if q.Kind == allocator.QueryOwned && q.Namespace == "" {
				q.Kind = allocator.QueryLive
			}
		}})},
		{"list ends with its first page", "Page_More", of(&broken{page: func(rows *allocator.Rows) { rows.More = false }})},
		{"page begins with the last one's end", "Page_More", of(&broken{query: func(q *allocator.Query) { q.After-- }})},
		{"answer to a renewal not stored", "I11_TourAsStrict", of(leaseFlaw(func(l *allocator.LeaseRow) { l.Renewed = allocator.RenewRow{} }))},
		{"note of the operator not stored", "I11_TourAsStrict", of(leaseFlaw(func(l *allocator.LeaseRow) { l.End.By = "" }))},
		{"one buffer for all pages", "Rows_NeverChange", sharedBuffers},
		{"milliseconds", "Rows_TimesToTheMicrosecond", of(leaseFlaw(func(l *allocator.LeaseRow) { l.ExpiresUS = l.ExpiresUS / 1000 * 1000 }))},
		{"times are floats", "Rows_TimesToTheMicrosecond", of(leaseFlaw(func(l *allocator.LeaseRow) {
			l.MaxUS = int64(float32(l.MaxUS)) //nolint:forbidigo // that is the flaw
		}))},
		{"text trimmed", "Rows_Names", of(leaseFlaw(func(l *allocator.LeaseRow) { l.Attempt = strings.TrimSpace(l.Attempt) }))},
		{"case folded", "Rows_Names", of(lost(func(n *allocator.Need) { n.Pool = strings.ToLower(n.Pool) }))},
		{"empty taken for none", "Rows_Labels", of(leaseFlaw(func(l *allocator.LeaseRow) {
			l.Params.Labels = slices.DeleteFunc(slices.Clone(l.Params.Labels), func(x allocator.Label) bool { return x.Value == "" })
		}))},
	}
}

func flawedPools() []flawed {
	return []flawed{
		{"highest free", "R1_LowestFree", of(&broken{load: func(s *strictStep, rows *allocator.Rows) {
			free := selected(s.flatPool.slots, isFree, byIndex)
			if n := s.need.Free; n > 0 && len(free) > n && !s.need.All {
				rows.Slots = slices.DeleteFunc(rows.Slots, func(r *allocator.SlotRow) bool { return isFree(*r) })
				for _, r := range free[len(free)-n:] {
					rows.Slots = append(rows.Slots, &r)
				}
			}
		}})},
		{"lost update of a slot", "R1_EverySlotOfALease", of(&broken{changes: func(_ *strictStep, c *allocator.Changes) {
			if len(c.Slots) > 1 && c.Slots[0].Old != nil {
				c.Slots = c.Slots[:len(c.Slots)-1]
			}
		}})},
		{"weights not stored", "R5_SharesOfGroups", of(groupFlaw(func(g *allocator.GroupRow) { g.Weight = 1 }))},
		{"maximum 0 for none", "R5_SharesOfGroups", of(groupFlaw(func(g *allocator.GroupRow) { g.Max = max(g.Max, 0) }))},
		{"ticket order reversed", "R6_InOrderOfTickets", reversedHeads},
		{"latest lapse first", "R12_SweepInSteps", of(&broken{load: func(s *strictStep, rows *allocator.Rows) {
			late := selected(s.leases, func(l allocator.LeaseRow) bool { return isLive(l) && l.ExpiresUS < s.now }, func(a, b allocator.LeaseRow) int { return byExpiry(b, a) })
			if s.need.Due > 0 && !s.need.All && len(late) > s.need.Due {
				rows.Leases = nil
				for _, l := range late[:s.need.Due] {
					rows.Leases = append(rows.Leases, &l)
					for _, i := range l.Slots {
						r := s.flatPool.slots[i]
						rows.Slots = append(rows.Slots, &r)
					}
				}
			}
		}})},
		{"tickets of a process not loaded", "R13_Leave", of(&broken{load: func(s *strictStep, rows *allocator.Rows) {
			if s.need.Incarnation != (allocator.Incarnation{}) {
				rows.Tickets = nil
			}
		}})},
		{"cool a moment early", "R16_T36_Cooling", of(slotFlaw(func(r *allocator.SlotRow) { r.CoolUS = max(0, r.CoolUS-1) }))},
		{"admin calls not stored", "R20_AdminCalls", of(poolFlaw(func(p *allocator.PoolRow) { p.Admin = nil }))},
		{"attributes not updated", "R21_T35_Attributes", of(&broken{changes: func(s *strictStep, c *allocator.Changes) {
			for i, x := range c.Slots {
				if x.Old != nil {
					row := *x.New
					row.Attrs = x.Old.Attrs
					c.Slots[i].New = &row
				}
			}
		}})},
		{"purged revision not stored", "R25_T37_Watch", of(poolFlaw(func(p *allocator.PoolRow) { p.PurgedRev = 0 }))},
		{"only five tickets", "More_HeadsAndSlots", of(&broken{load: func(_ *strictStep, rows *allocator.Rows) { rows.Tickets = atMost(5, rows.Tickets) }})},
		{"only ten due", "More_ManyDue", of(&broken{load: func(s *strictStep, rows *allocator.Rows) {
			n := 0
			rows.Leases = slices.DeleteFunc(rows.Leases, func(l *allocator.LeaseRow) bool {
				if isLive(*l) && l.ExpiresUS < s.now {
					n++
				}
				return n > 10
			})
		}})},
		{"idle groups left out", "More_IdleGroups", of(&broken{load: func(_ *strictStep, rows *allocator.Rows) {
			rows.Groups = slices.DeleteFunc(rows.Groups, func(g *allocator.GroupRow) bool { return !g.Listed && g.Used == 0 })
		}})},
		{"attempts not loaded", "T4_Mismatch", of(lost(func(n *allocator.Need) { n.Attempts = nil }))},
		{"renewals not counted", "T5_T6_OldEvidence", of(leaseFlaw(func(l *allocator.LeaseRow) { l.RenewSeq, l.ExpiresUS = 0, l.AcquiredUS+l.TTLUS }))},
		{"epoch counter restored after Resize", "T14_EpochsAfterResize", of(&broken{changes: func(s *strictStep, c *allocator.Changes) {
			if old := c.Pool.Old; old != nil && old.Capacity != c.Pool.New.Capacity {
				c.Pool.New.EpochSeq = 0
				for _, r := range s.flatPool.slots {
					c.Pool.New.EpochSeq = max(c.Pool.New.EpochSeq, r.Epoch)
				}
				c.Pool.New.EpochSeq--
			}
		}})},
		{"time seen not stored", "T24_ClockSteps", of(poolFlaw(func(p *allocator.PoolRow) { p.SeenUS = 0 }))},
		{"looks leave a trace", "T27_BlankAttempt", of(&broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
			err := b.plain(ctx, n, f)
			if p := b.data.pool(n.Pool); n.ReadOnly && p.row != nil {
				row := *p.row
				row.SeenUS++
				p.row = &row
			}
			return err
		}})},
		{"kept no longer than until", "T35_Purge", of(&broken{step: func(b *broken, ctx context.Context, n allocator.Need, f stepFunc) error {
			flawed := *b
			flawed.changes = func(s *strictStep, c *allocator.Changes) {
				for _, x := range c.Leases {
					if x.New == nil { // every lease of the attempt goes
						maps.DeleteFunc(s.leases, func(_ uint64, l allocator.LeaseRow) bool { return l.Attempt == x.Old.Attempt })
					}
				}
			}
			return flawed.plain(ctx, n, f)
		}})},
	}
}

func flawedRaces() []flawed {
	var list []flawed
	for _, name := range []string{
		"T1_AsManyAsSlots", "T2_OneTooMany", "T3_OneAttemptTwice", "T3_OneLapsedLeaseStolenTwice", "T26_NeverTwoOnASlot", "R10_OneReclaimWins",
	} {
		list = append(list, flawed{"no lock, " + name, name, func() *broken { return unlocked(make(rendezvous), always) }})
	}
	return append(list, []flawed{
		{"answer to a renewal not stored, asked twice", "T12_OneRenewalTwice", of(leaseFlaw(func(l *allocator.LeaseRow) { l.Renewed = allocator.RenewRow{} }))},
		{"waiting not counted", "T19_WaiterBeforeNewcomer", of(groupFlaw(func(g *allocator.GroupRow) { g.Waiting = 0 }))},
		{"ticket order reversed, woken", "T34_WaitersInOrder", reversedHeads},
	}...)
}

func flawedDamage() []flawed {
	return []flawed{
		{"unreadable leases left out", "R22_Lease", of(withoutRaws(allocator.RawLease))},
		{"unreadable slots left out", "R22_LeasedSlot", of(withoutRaws(allocator.RawSlot))},
		{"unreadable tickets left out", "R22_Ticket", of(withoutRaws(allocator.RawTicket))},
		{"unreadable slots are free", "R22_FreeSlot", of(guessed(allocator.SlotFree))},
		{"unreadable slots are free after cooling", "R22_CoolingSlot", of(guessed(allocator.SlotFree))},
		{"unreadable rows don't count", "R22_Pages", of(&broken{page: func(rows *allocator.Rows) { rows.Raws = nil }})},
		{"slots joined by their leases", "R22_TwoSlotsOfALeaseOfOne", of(&broken{load: func(s *strictStep, rows *allocator.Rows) {
			rows.Slots = slices.DeleteFunc(rows.Slots, func(r *allocator.SlotRow) bool {
				l, ok := s.leases[r.Epoch]
				return r.Status == allocator.SlotLeased && ok && !slices.Contains(l.Slots, r.Index)
			})
		}})},
		{"due rows dropped when one is unreadable", "R22_T27_SweepPassesIt", of(&broken{load: func(s *strictStep, rows *allocator.Rows) {
			if len(rows.Raws) > 0 && s.need.Due > 0 {
				rows.Leases = nil
			}
		}})},
		{"gives up on many", "R22_ManyDamaged", of(&broken{answer: func(s *strictStep, err error) error {
			if len(s.hasRaw) > 64 {
				return fmt.Errorf("%w: rows can't be read", allocator.ErrUnavailable)
			}
			return err
		}})},
	}
}

// Each broken store fails the case that is there for it, and each case has a store that fails it. On the same store
// without the flaw every case passes.
func TestBrokenStoresFail(t *testing.T) {
	t.Parallel()
	stores := flawedStores()
	for _, c := range cases() {
		if !slices.ContainsFunc(stores, func(f flawed) bool { return f.fails == c.name }) {
			t.Errorf("no store fails case %s", c.name)
		}
		t.Run("sound/"+c.name, func(t *testing.T) {
			t.Parallel()
			if failed, log := observe(t, c, &broken{}); failed {
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
			for range 50 { // a race is not lost each time
				if failed, log := observe(t, cases()[i], f.store()); failed {
					t.Log(log)
					return
				}
			}
			t.Errorf("%s passes", f.fails)
		})
	}
}

// A checker that is never wrong is right only if it can say no.
func TestHistoryOfABrokenStore(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func() *broken{
		"stale reads": staleLooks,
		"lost update": func() *broken { return lostUpdates(10) },
		"no lock":     func() *broken { return unlocked(make(rendezvous), always) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := RecordHistory(t, func(_ testing.TB, clock func() time.Time) Handle { return on(store(), clock) }, 1)
			if h.Check() == nil {
				t.Errorf("nobody saw that the store is broken:\n%s", h)
			}
		})
	}
}

func on(b *broken, clock func() time.Time) Handle {
	c := *b
	c.Strict = NewStrict(clock)
	return c.handle()
}

// observe runs a case and tells whether it failed, without failing itself.
func observe(t *testing.T, c testCase, store *broken) (failed bool, log string) {
	r := &recorder{TB: t}
	var done sync.WaitGroup
	done.Go(func() { // FailNow ends the goroutine
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
		}()
		c.run(newEnv(r, func(_ testing.TB, clock func() time.Time) Handle { return on(store, clock) }))
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
