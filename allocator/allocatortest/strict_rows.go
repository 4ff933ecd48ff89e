package allocatortest

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/stint-go/stint/allocator"
)

// flatPool is the rows of one pool, by their keys. Nothing here is shared with a step.
type flatPool struct {
	row     *allocator.PoolRow // nil before it is created
	groups  map[allocator.GroupKey]allocator.GroupRow
	slots   map[int]allocator.SlotRow
	leases  map[uint64]allocator.LeaseRow
	tickets map[int64]allocator.TicketRow
}

func newFlatPool() *flatPool {
	return &flatPool{
		groups: map[allocator.GroupKey]allocator.GroupRow{}, slots: map[int]allocator.SlotRow{},
		leases: map[uint64]allocator.LeaseRow{}, tickets: map[int64]allocator.TicketRow{},
	}
}

// The fresh functions copy a row, with all that it points at.

func freshPool(p *allocator.PoolRow) *allocator.PoolRow {
	row := *p
	return &row
}

func freshGroup(g allocator.GroupRow) allocator.GroupRow { return g }

func freshSlot(s allocator.SlotRow) allocator.SlotRow {
	s.Attrs = slices.Clone(s.Attrs)
	return s
}

func freshLease(l allocator.LeaseRow) allocator.LeaseRow {
	l.Slots = slices.Clone(l.Slots)
	l.Params.Labels = slices.Clone(l.Params.Labels)
	return l
}

func freshTicket(t allocator.TicketRow) allocator.TicketRow {
	t.Params.Labels = slices.Clone(t.Params.Labels)
	return t
}

// selected lists the rows that a database would find by looking at every one: those that are wanted, in order.
func selected[K comparable, R any](rows map[K]R, want func(R) bool, order func(a, b R) int) []R {
	var list []R
	for _, r := range rows {
		if want(r) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, order)
	return list
}

func anyRow[R any](R) bool { return true }

// The orders. Where times are equal the key decides.

func byIndex(a, b allocator.SlotRow) int { return cmp.Compare(a.Index, b.Index) }
func byCool(a, b allocator.SlotRow) int {
	return cmp.Or(cmp.Compare(a.CoolUS, b.CoolUS), byIndex(a, b))
}
func byEpoch(a, b allocator.LeaseRow) int { return cmp.Compare(a.Epoch, b.Epoch) }
func byExpiry(a, b allocator.LeaseRow) int {
	return cmp.Or(cmp.Compare(a.ExpiresUS, b.ExpiresUS), byEpoch(a, b))
}
func byAge(a, b allocator.LeaseRow) int {
	return cmp.Or(cmp.Compare(a.AcquiredUS, b.AcquiredUS), byEpoch(a, b))
}
func byEnd(a, b allocator.LeaseRow) int {
	return cmp.Or(cmp.Compare(a.End.AtUS, b.End.AtUS), byEpoch(a, b))
}
func bySeq(a, b allocator.TicketRow) int { return cmp.Compare(a.Seq, b.Seq) }
func byDeadline(a, b allocator.TicketRow) int {
	return cmp.Or(cmp.Compare(a.DeadlineUS, b.DeadlineUS), bySeq(a, b))
}
func byKey(a, b allocator.GroupRow) int { return cmp.Compare(a.Key, b.Key) }

// The states that queries look for.

func isLive(l allocator.LeaseRow) bool    { return l.Status == allocator.LeaseLive }
func isOffered(l allocator.LeaseRow) bool { return l.Status == allocator.LeaseOffered }
func isHeld(l allocator.LeaseRow) bool    { return isLive(l) || isOffered(l) }
func isEnded(l allocator.LeaseRow) bool   { return l.Status == allocator.LeaseEnded }
func isFree(s allocator.SlotRow) bool     { return s.Status == allocator.SlotFree }
func isCooling(s allocator.SlotRow) bool  { return s.Status == allocator.SlotCooling }

// rawSlot returns a row that can't be, or nil for a sound one.
func rawSlot(s *allocator.SlotRow) *allocator.Raw {
	field := s.Check()
	if field == "" {
		return nil
	}
	return &allocator.Raw{
		Table: allocator.RawSlot, Index: s.Index, Key: strconv.Itoa(s.Index), Field: field, Rev: s.Rev,
		Columns: inOrder(
			number("state", int64(s.Status)), number("epoch", int64(s.Epoch)), number("cool_us", s.CoolUS),
			blob("attrs", pairs(s.Attrs)), number("rev", s.Rev),
		),
	}
}

// rawLease is like rawSlot.
func rawLease(l *allocator.LeaseRow) *allocator.Raw {
	field := l.Check()
	if field == "" {
		return nil
	}
	var slots []byte
	for _, i := range l.Slots {
		slots = binary.BigEndian.AppendUint64(slots, uint64(i))
	}
	return &allocator.Raw{
		Table: allocator.RawLease, Epoch: l.Epoch, Key: strconv.FormatUint(l.Epoch, 10), Field: field, Rev: l.Rev,
		Columns: inOrder(
			append(asked(l.Attempt, &l.Params, &l.Holder),
				blob("lease_id", l.ID[:]), blob("slots", slots), number("state", int64(l.Status)),
				number("acquired_us", l.AcquiredUS), number("ttl_us", l.TTLUS), number("expires_us", l.ExpiresUS), number("max_us", l.MaxUS),
				number("renew_seq", l.RenewSeq), number("renew_expires_us", l.Renewed.ExpiresUS), number("renew_left_us", l.Renewed.LeftUS),
				truth("renew_lapsed", l.Renewed.Lapsed), number("end_reason", int64(l.End.Reason)), number("end_us", l.End.AtUS),
				text("end_by", l.End.By), blob("end_evidence", l.End.Evidence[:]), number("rev", l.Rev))...,
		),
	}
}

// rawTicket is like rawSlot.
func rawTicket(t *allocator.TicketRow) *allocator.Raw {
	field := t.Check()
	if field == "" {
		return nil
	}
	return &allocator.Raw{
		Table: allocator.RawTicket, Seq: t.Seq, Key: strconv.FormatInt(t.Seq, 10), Field: field, Rev: t.Rev,
		Columns: inOrder(append(asked(t.Attempt, &t.Params, &t.Holder), number("deadline_us", t.DeadlineUS), number("rev", t.Rev))...),
	}
}

// asked is the columns that leases and tickets have.
func asked(attempt string, p *allocator.Params, h *allocator.Holder) []allocator.RawColumn {
	return []allocator.RawColumn{
		text("attempt", attempt), blob("gkey", []byte(p.Group)), number("units", int64(p.Units)), number("asked_ttl_us", p.TTLUS),
		number("asked_max_us", p.MaxUS), number("owner", int64(p.Owner)), blob("labels", pairs(p.Labels)),
		blob("incarnation", h.Incarnation[:]), text("host", h.Host), text("boot", h.Boot), text("pidns", h.Namespace),
		number("pid", h.PID), number("pid_start", h.Start),
	}
}

func inOrder(columns ...allocator.RawColumn) []allocator.RawColumn {
	slices.SortFunc(columns, func(a, b allocator.RawColumn) int { return cmp.Compare(a.Name, b.Name) })
	return columns
}

func number(name string, n int64) allocator.RawColumn {
	return allocator.RawColumn{Name: name, Type: "int", Value: binary.BigEndian.AppendUint64(nil, uint64(n))}
}

func truth(name string, b bool) allocator.RawColumn {
	if b {
		return number(name, 1)
	}
	return number(name, 0)
}

// text of no length is null, as a database has it.
func text(name, s string) allocator.RawColumn {
	if s == "" {
		return allocator.RawColumn{Name: name, Type: "null"}
	}
	return allocator.RawColumn{Name: name, Type: "text", Value: []byte(s)}
}

func blob(name string, b []byte) allocator.RawColumn {
	return allocator.RawColumn{Name: name, Type: "blob", Value: slices.Clone(b)}
}

func pairs(list []allocator.Label) []byte {
	var b []byte
	for _, l := range list {
		for _, s := range []string{l.Key, l.Value} {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	return b
}
