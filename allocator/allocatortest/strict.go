package allocatortest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/allocator"
)

// Strict is the reference store, and the template for adapters: it works as a database would, slowly and plainly. It
// keeps flat rows. For each step it hands out fresh copies of exactly the rows that the Need names, runs the step twice, as if
// the first try had to be given up, and writes exactly what [allocator.Set.Changes] lists. A change that a database would
// refuse fails the step with ErrUnavailable: an insert of a row that exists, an update of one that was not loaded or has another Rev,
// an attempt with two leases. So does a change that no step may make, such as an epoch that falls.
//
// A Strict is one handle on the data. Safe for concurrent use.
type Strict struct {
	data   *flatPools
	clock  func() time.Time
	closed bool
}

// flatPools is the data behind all handles.
type flatPools struct {
	mu    sync.Mutex
	pools map[string]*flatPool
}

// NewStrict returns a handle on an empty store. A nil clock is time.Now.
func NewStrict(clock func() time.Time) *Strict {
	if clock == nil {
		clock = time.Now
	}
	return &Strict{data: &flatPools{pools: map[string]*flatPool{}}, clock: clock}
}

// Again returns another handle on the same data, which outlive every handle.
func (s *Strict) Again() *Strict { return &Strict{data: s.data, clock: s.clock} }

// Close makes every later call on this handle fail with ErrClosed.
func (s *Strict) Close() error {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	s.closed = true
	return nil
}

// SpoilSlot changes a stored slot as no step would. A row that can't be after that is loaded as a Raw. It tells whether
// there is such a slot.
func (s *Strict) SpoilSlot(pool string, index int, spoil func(*allocator.SlotRow)) bool {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	return spoilRow(s.data.pool(pool).slots, index, spoil)
}

// SpoilLease is like SpoilSlot.
func (s *Strict) SpoilLease(pool string, epoch uint64, spoil func(*allocator.LeaseRow)) bool {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	return spoilRow(s.data.pool(pool).leases, epoch, spoil)
}

// SpoilTicket is like SpoilSlot.
func (s *Strict) SpoilTicket(pool string, seq int64, spoil func(*allocator.TicketRow)) bool {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	return spoilRow(s.data.pool(pool).tickets, seq, spoil)
}

// SpoilPool is like SpoilSlot: for counts that are not what the rows say. Pools are never loaded as a Raw.
func (s *Strict) SpoilPool(pool string, spoil func(*allocator.PoolRow)) bool {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	row := s.data.pool(pool).row
	if row != nil {
		spoil(row)
	}
	return row != nil
}

func spoilRow[K comparable, R any](rows map[K]R, key K, spoil func(*R)) bool {
	row, ok := rows[key]
	if ok {
		spoil(&row)
		rows[key] = row
	}
	return ok
}

func (s *Strict) usable(ctx context.Context) error {
	if s.closed {
		return allocator.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(allocator.ErrUnavailable, err)
	}
	return nil
}

func (d *flatPools) pool(name string) *flatPool {
	p := d.pools[name]
	if p == nil {
		p = newFlatPool()
		d.pools[name] = p
	}
	return p
}

// Step implements allocator.Store.
func (s *Strict) Step(ctx context.Context, n allocator.Need, f func(clock int64, set *allocator.Set) error) error {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	var step *strictStep
	var err error
	for range 2 { // the first try is given up, as if a lock had been lost
		step = loadStrict(s.data.pool(n.Pool), n, s.clock().UnixMicro()) // the clock after the lock
		err = f(step.clock, step.set)
	}
	if err != nil || n.ReadOnly {
		return err
	}
	return step.write()
}

// strictStep is one step: the stored rows, and the copies of them that it has.
type strictStep struct {
	*flatPool
	need       allocator.Need
	clock, now int64
	set        *allocator.Set

	pool      *allocator.PoolRow
	hasGroup  map[allocator.GroupKey]*allocator.GroupRow
	hasSlot   map[int]*allocator.SlotRow
	hasLease  map[uint64]*allocator.LeaseRow
	hasTicket map[int64]*allocator.TicketRow
	hasRaw    map[string]*allocator.Raw // by table and key
}

func loadStrict(p *flatPool, n allocator.Need, clock int64) *strictStep {
	s := &strictStep{
		flatPool: p, need: n, clock: clock, now: clock, set: allocator.NewSet(),
		hasGroup: map[allocator.GroupKey]*allocator.GroupRow{}, hasSlot: map[int]*allocator.SlotRow{}, hasLease: map[uint64]*allocator.LeaseRow{},
		hasTicket: map[int64]*allocator.TicketRow{}, hasRaw: map[string]*allocator.Raw{},
	}
	if p.row != nil {
		s.pool = freshPool(p.row)
		s.set.AddPool(s.pool)
		s.now = p.row.Now(clock)
		s.loadNamed()
		s.loadCandidates()
		s.loadRare()
	}
	return s
}

// loadNamed adds the rows that the need names.
func (s *strictStep) loadNamed() {
	for _, a := range s.need.Attempts {
		s.addWhole(selected(s.leases, func(l allocator.LeaseRow) bool { return isHeld(l) && l.Attempt == a }, byEpoch))
		s.addTickets(selected(s.tickets, func(t allocator.TicketRow) bool { return t.Attempt == a }, bySeq))
	}
	for _, e := range s.need.Epochs {
		s.addWhole(selected(s.leases, func(l allocator.LeaseRow) bool { return l.Epoch == e }, byEpoch))
	}
	for _, i := range s.need.Slots {
		if slot := s.addSlot(i); slot != nil && slot.Status == allocator.SlotLeased {
			s.addLease(slot.Epoch)
		}
	}
	for _, k := range s.need.Groups {
		s.addGroup(k)
	}
}

// loadCandidates adds what a step may find to do. Whether it is to be done is not asked here.
func (s *strictStep) loadCandidates() {
	if s.need.Timely {
		late := func(l allocator.LeaseRow) bool { return isOffered(l) && l.ExpiresUS < s.now }
		s.addWhole(atMost(allocator.MaxTimely, selected(s.leases, late, byExpiry)))
		gone := func(t allocator.TicketRow) bool { return t.DeadlineUS < s.now }
		s.addTickets(atMost(allocator.MaxTimely, selected(s.tickets, gone, byDeadline)))
		cool := func(x allocator.SlotRow) bool { return isCooling(x) && x.CoolUS < s.now }
		s.addSlots(atMost(allocator.MaxTimely, selected(s.slots, cool, byCool)))
	}
	lapsed := func(l allocator.LeaseRow) bool { return isLive(l) && l.ExpiresUS < s.now }
	s.addWhole(atMost(s.need.Due, selected(s.leases, lapsed, byExpiry)))
	born := s.now - s.row.Policy.MaxLease.Microseconds()
	old := func(l allocator.LeaseRow) bool { return isLive(l) && l.AcquiredUS < born }
	s.addWhole(atMost(s.need.Due, selected(s.leases, old, byAge)))

	s.addSlots(atMost(s.need.Free, selected(s.slots, isFree, byIndex)))
	for k := range s.queues() {
		line := selected(s.tickets, func(t allocator.TicketRow) bool { return t.Params.Group == k }, bySeq)
		s.addTickets(atMost(s.need.Heads, line))
	}
}

func (s *strictStep) queues() map[allocator.GroupKey]bool {
	keys := map[allocator.GroupKey]bool{}
	for _, t := range s.tickets {
		keys[t.Params.Group] = true
	}
	return keys
}

// loadRare adds what only few commands need.
func (s *strictStep) loadRare() {
	if s.need.Next {
		s.addLeases(atMost(1, selected(s.leases, isHeld, byExpiry)))
		s.addSlots(atMost(1, selected(s.slots, isCooling, byCool)))
	}
	before := s.now - s.row.Policy.Keep.Microseconds()
	ended := func(l allocator.LeaseRow) bool { return isEnded(l) && l.End.AtUS < before }
	s.addLeases(atMost(s.need.Purge, selected(s.leases, ended, byEnd)))

	if who := s.need.Incarnation; who != (allocator.Incarnation{}) {
		s.addWhole(selected(s.leases, func(l allocator.LeaseRow) bool { return isHeld(l) && l.Holder.Incarnation == who }, byEpoch))
		s.addTickets(selected(s.tickets, func(t allocator.TicketRow) bool { return t.Holder.Incarnation == who }, bySeq))
	}
	if s.need.All {
		s.addWhole(selected(s.leases, isHeld, byEpoch))
		s.addSlots(selected(s.slots, anyRow, byIndex))
		s.addTickets(selected(s.tickets, anyRow, bySeq))
		for k := range s.groups {
			s.addGroup(k)
		}
	}
}

func atMost[R any](n int, list []R) []R { return list[:min(n, len(list))] }

func (s *strictStep) addGroup(k allocator.GroupKey) {
	if g, ok := s.groups[k]; ok && s.hasGroup[k] == nil {
		row := freshGroup(g)
		s.hasGroup[k] = &row
		s.set.AddGroup(&row)
	}
}

// addSlot returns the slot if there is a sound one.
func (s *strictStep) addSlot(i int) *allocator.SlotRow {
	stored, ok := s.slots[i]
	if !ok {
		return nil
	}
	if s.hasSlot[i] != nil || s.addRaw(rawSlot(&stored)) {
		return s.hasSlot[i]
	}
	row := freshSlot(stored)
	s.hasSlot[i] = &row
	s.set.AddSlot(&row)
	return &row
}

func (s *strictStep) addSlots(list []allocator.SlotRow) {
	for _, x := range list {
		s.addSlot(x.Index)
	}
}

// addLease returns the lease if there is a sound one.
func (s *strictStep) addLease(epoch uint64) *allocator.LeaseRow {
	stored, ok := s.leases[epoch]
	if !ok {
		return nil
	}
	if s.hasLease[epoch] != nil || s.addRaw(rawLease(&stored)) {
		return s.hasLease[epoch]
	}
	row := freshLease(stored)
	s.hasLease[epoch] = &row
	s.set.AddLease(&row)
	s.addGroup(row.Params.Group)
	return &row
}

func (s *strictStep) addLeases(list []allocator.LeaseRow) {
	for _, l := range list {
		s.addLease(l.Epoch)
	}
}

// addWhole adds leases with their slots.
func (s *strictStep) addWhole(list []allocator.LeaseRow) {
	for _, l := range list {
		if row := s.addLease(l.Epoch); row != nil {
			for _, i := range row.Slots {
				s.addSlot(i)
			}
		}
	}
}

func (s *strictStep) addTickets(list []allocator.TicketRow) {
	for _, t := range list {
		if s.hasTicket[t.Seq] == nil && !s.addRaw(rawTicket(&t)) {
			row := freshTicket(t)
			s.hasTicket[t.Seq] = &row
			s.set.AddTicket(&row)
			s.addGroup(row.Params.Group)
		}
	}
}

// addRaw adds a row that can't be, and tells whether there is one.
func (s *strictStep) addRaw(r *allocator.Raw) bool {
	if r == nil {
		return false
	}
	if key := r.Table + " " + r.Key; s.hasRaw[key] == nil {
		s.hasRaw[key] = r
		s.set.AddRaw(r)
	}
	return true
}

// write stores what the step changed: all of it, or nothing.
func (s *strictStep) write() error {
	c := s.set.Changes()
	if err := s.check(&c); err != nil {
		return fmt.Errorf("%w: strict store: %w", allocator.ErrUnavailable, err)
	}
	s.put(&c)
	return nil
}

func (s *strictStep) put(c *allocator.Changes) {
	if c.Pool == nil {
		return
	}
	s.row = freshPool(c.Pool.New)
	putRows(s.groups, c.Groups, groupKey, freshGroup)
	putRows(s.slots, c.Slots, slotKey, freshSlot)
	putRows(s.leases, c.Leases, leaseKey, freshLease)
	putRows(s.tickets, c.Tickets, ticketKey, freshTicket)
}

func putRows[K comparable, R any](rows map[K]R, changes []allocator.Change[R], key func(allocator.Change[R]) K, fresh func(R) R) {
	for _, c := range changes {
		if c.New == nil {
			delete(rows, key(c))
		} else {
			rows[key(c)] = fresh(*c.New)
		}
	}
}

// The keys of changed rows.

func groupKey(c allocator.Change[allocator.GroupRow]) allocator.GroupKey { return either(c).Key }

func ticketKey(c allocator.Change[allocator.TicketRow]) int64 {
	if c.Raw != nil {
		return c.Raw.Seq
	}
	return either(c).Seq
}

func slotKey(c allocator.Change[allocator.SlotRow]) int {
	if c.Raw != nil {
		return c.Raw.Index
	}
	return either(c).Index
}

func leaseKey(c allocator.Change[allocator.LeaseRow]) uint64 {
	if c.Raw != nil {
		return c.Raw.Epoch
	}
	return either(c).Epoch
}

func either[R any](c allocator.Change[R]) *R {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

// Handle returns the handle as the suite uses it.
func (s *Strict) Handle() Handle {
	return Handle{
		Store: s,
		Close: s.Close,
		Again: func(testing.TB) Handle { return s.Again().Handle() },
		Damage: func(t testing.TB, pool, table string, key int64) {
			t.Helper()
			if !s.damage(pool, table, key) {
				t.Fatalf("no %s %d in pool %s", table, key, pool)
			}
		},
		Redirect: func(t testing.TB, pool string, slot int, epoch uint64) {
			t.Helper()
			if !s.SpoilSlot(pool, slot, func(r *allocator.SlotRow) { r.Epoch = epoch }) {
				t.Fatalf("no slot %d in pool %s", slot, pool)
			}
		},
	}
}

// damage spoils a row so that it is found as before.
func (s *Strict) damage(pool, table string, key int64) bool {
	switch table {
	case allocator.RawLease:
		return s.SpoilLease(pool, uint64(key), func(l *allocator.LeaseRow) { l.Slots = append(l.Slots, l.Slots...) })
	case allocator.RawTicket:
		return s.SpoilTicket(pool, key, func(t *allocator.TicketRow) { t.Params.Owner = 99 })
	}
	return s.SpoilSlot(pool, int(key), func(r *allocator.SlotRow) { r.CoolUS = -1 - r.CoolUS })
}
