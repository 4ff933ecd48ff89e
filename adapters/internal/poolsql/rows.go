package poolsql

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/allocator"
)

// set is the tables of this package. The fields method of the record of each lists pointers to its columns in this order. What a
// list names comes first in each key: see the decisions on plans.
const set = sqlrow.Set("alloc")

var (
	pools = set.Table("pool", 1, 1, sqlrow.Ints("id"), sqlrow.Strings("name"), sqlrow.Ints("version", "capacity", "state", "drain_us", "ttl_us",
		"max_lease_us", "cooling_us"), sqlrow.Bools("fenced", "open_groups"), sqlrow.Ints("keep_us", "jump_guard_us", "epoch_seq", "ticket_seq", "rev",
		"purged_rev", "seen_us", "jump_us"), sqlrow.Bools("blocked"), sqlrow.Ints("slots", "used", "cooling", "offered", "waiting", "groups"),
		sqlrow.Strings("admin_id", "admin_digest", "admin_answer")).Guarded("rev")
	groups = set.Table("group", 2, 1, sqlrow.Bytes("gkey"), sqlrow.Ints("pool_id"), sqlrow.Strings("names"), sqlrow.Bools("listed"),
		sqlrow.Ints("weight", "min", "max", "used", "waiting", "rev")).Within("pool_id").Guarded("rev")
	slots = set.Table("slot", 2, 0, sqlrow.Ints("idx", "pool_id"), sqlrow.Strings("attrs"), sqlrow.Ints("state", "epoch", "cool_us", "rev")).Within("pool_id").Guarded("rev")
	// asked is what a lease or a ticket was asked for, and by whom.
	asked = slices.Concat(sqlrow.Strings("attempt"), sqlrow.Bytes("gkey"), sqlrow.Ints("units", "asked_ttl_us", "asked_max_us", "owner"),
		sqlrow.Strings("labels"), sqlrow.Bytes("incarnation"), sqlrow.Strings("host", "boot", "pidns"), sqlrow.Ints("pid", "pid_start"))
	leases = set.Table("lease", 2, 2+len(asked), sqlrow.Ints("epoch", "pool_id"), sqlrow.Bytes("lease_id"), sqlrow.Strings("slots"), asked,
		sqlrow.Ints("state", "acquired_us", "ttl_us", "expires_us", "max_us", "renew_seq", "renew_expires_us", "renew_left_us"),
		sqlrow.Bools("renew_lapsed"), sqlrow.Ints("end_reason", "end_us"), sqlrow.Strings("end_by", "end_evidence"), sqlrow.Ints("rev")).Within("pool_id").Guarded("rev")
	tickets = set.Table("ticket", 2, len(asked), sqlrow.Ints("seq", "pool_id"), asked, sqlrow.Ints("deadline_us", "rev")).Within("pool_id").Guarded("rev")
)

// Tables lists all of them, parents first.
func Tables() []*sqlrow.Table { return []*sqlrow.Table{pools, groups, slots, leases, tickets} }

// The records: a row of allocator as columns. Numbers are read as they come, so that one that can't be is still seen.

type poolRec struct {
	id                           int64
	state, capacity              int64
	ttl, most, cool, keep, guard int64 // µs
	epochs                       int64
	counts                       [6]int64
	adminID, adminDigest         string
	adminAnswer                  string
	row                          allocator.PoolRow
}

func (r *poolRec) fields() []any {
	p := &r.row
	c := &r.counts
	return []any{
		&r.id, &p.Name, &p.Version, &r.capacity, &r.state, &p.DrainUS, &r.ttl, &r.most, &r.cool, &p.Policy.Fenced, &p.Policy.OpenGroups, &r.keep, &r.guard,
		&r.epochs, &p.TicketSeq, &p.Rev, &p.PurgedRev, &p.SeenUS, &p.JumpUS, &p.Blocked, &c[0], &c[1], &c[2], &c[3], &c[4], &c[5],
		&r.adminID, &r.adminDigest, &r.adminAnswer,
	}
}

func (r *poolRec) pack(id int64, p *allocator.PoolRow) (err error) {
	r.id, r.row = id, *p
	r.state, r.capacity, r.epochs = int64(p.Status), int64(p.Capacity), int64(p.EpochSeq)
	r.ttl, r.most, r.cool = p.Policy.TTL.Microseconds(), p.Policy.MaxLease.Microseconds(), p.Policy.Cooling.Microseconds()
	r.keep, r.guard = p.Policy.Keep.Microseconds(), p.Policy.JumpGuard.Microseconds()
	r.counts = [6]int64{int64(p.Slots), int64(p.Used), int64(p.Cooling), int64(p.Offered), int64(p.Waiting), int64(p.Groups)}
	if a := p.Admin; a != nil {
		r.adminID, r.adminDigest = a.ID, hex.EncodeToString(a.Digest[:])
		err = sqlrow.Encode(&r.adminAnswer, answerOf(&a.Answer))
	}
	return err
}

// unpack makes a row of the record. No pool is ever quarantined: one that can't be read is an error.
func (r *poolRec) unpack() (*allocator.PoolRow, error) {
	p := new(allocator.PoolRow)
	*p = r.row
	if !narrow(&p.Status, r.state) || !narrow(&p.Capacity, r.capacity) || r.epochs < 0 {
		return nil, fmt.Errorf("pool %q can't be read: state %d, capacity %d, epoch %d", p.Name, r.state, r.capacity, r.epochs)
	}
	p.EpochSeq = uint64(r.epochs)
	for i, to := range []*int{&p.Slots, &p.Used, &p.Cooling, &p.Offered, &p.Waiting, &p.Groups} {
		if !narrow(to, r.counts[i]) {
			return nil, fmt.Errorf("pool %q can't be read: a count of %d", p.Name, r.counts[i])
		}
	}
	for _, x := range []struct {
		to *time.Duration
		us int64
	}{
		{&p.Policy.TTL, r.ttl}, {&p.Policy.MaxLease, r.most}, {&p.Policy.Cooling, r.cool}, {&p.Policy.Keep, r.keep}, {&p.Policy.JumpGuard, r.guard},
	} {
		if x.us < 0 || x.us > math.MaxInt64/1000 {
			return nil, fmt.Errorf("pool %q can't be read: %d µs in its policy", p.Name, x.us)
		}
		*x.to = time.Duration(x.us) * time.Microsecond
	}
	if r.adminID == "" {
		return p, nil
	}
	p.Admin = &allocator.AdminRow{ID: r.adminID}
	var a answer
	n, err := hex.Decode(p.Admin.Digest[:], []byte(r.adminDigest[:min(len(r.adminDigest), 2*len(p.Admin.Digest))]))
	if err == nil {
		err = sqlrow.Decode(r.adminAnswer, &a)
	}
	if err != nil || n != len(p.Admin.Digest) || len(r.adminDigest) != 2*n {
		return nil, fmt.Errorf("pool %q can't be read: its last admin call: %w", p.Name, cmp.Or(err, errDigest))
	}
	p.Admin.Answer = a.state(p.Name)
	return p, nil
}

var errDigest = fmt.Errorf("a digest of another length")

// narrow stores a number where it fits.
func narrow[T ~int | ~uint8](to *T, n int64) bool {
	*to = T(n)
	return int64(*to) == n
}

// answer is an allocator.PoolState with times that JSON may have.
type answer struct {
	Version  int64  `json:"version"`
	Capacity int    `json:"capacity"`
	Status   uint8  `json:"state"`
	DrainUS  int64  `json:"drain_us,omitempty"`
	Policy   policy `json:"policy"`
	Used     int    `json:"used"`
	Cooling  int    `json:"cooling,omitempty"`
	Offered  int    `json:"offered,omitempty"`
	Waiting  int    `json:"waiting,omitempty"`
	Excess   int    `json:"excess,omitempty"`
	Blocked  bool   `json:"blocked,omitempty"`
	Rev      int64  `json:"rev,omitempty"`
}

type policy struct {
	TTL        int64 `json:"ttl_us"`
	MaxLease   int64 `json:"max_lease_us"`
	Cooling    int64 `json:"cooling_us"`
	Fenced     bool  `json:"fenced"`
	OpenGroups bool  `json:"open_groups"`
	Keep       int64 `json:"keep_us"`
	JumpGuard  int64 `json:"jump_guard_us"`
}

func answerOf(s *allocator.PoolState) answer {
	p := &s.Policy
	a := answer{
		Version: s.Version, Capacity: s.Capacity, Status: uint8(s.Status), Used: s.Used, Cooling: s.Cooling, Offered: s.Offered,
		Waiting: s.Waiting, Excess: s.Excess, Blocked: s.Blocked, Rev: s.Rev,
		Policy: policy{
			p.TTL.Microseconds(), p.MaxLease.Microseconds(), p.Cooling.Microseconds(), p.Fenced, p.OpenGroups, p.Keep.Microseconds(), p.JumpGuard.Microseconds(),
		},
	}
	if !s.DrainDeadline.IsZero() {
		a.DrainUS = s.DrainDeadline.UnixMicro()
	}
	return a
}

func (a *answer) state(pool string) allocator.PoolState {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	p := &a.Policy
	s := allocator.PoolState{
		Name: pool, Version: a.Version, Capacity: a.Capacity, Status: allocator.PoolStatus(a.Status), Used: a.Used, Cooling: a.Cooling, Offered: a.Offered,
		Waiting: a.Waiting, Excess: a.Excess, Blocked: a.Blocked, Rev: a.Rev,
		Policy: allocator.Policy{
			TTL: us(p.TTL), MaxLease: us(p.MaxLease), Cooling: us(p.Cooling), Fenced: p.Fenced, OpenGroups: p.OpenGroups, Keep: us(p.Keep), JumpGuard: us(p.JumpGuard),
		},
	}
	if a.DrainUS != 0 {
		s.DrainDeadline = time.UnixMicro(a.DrainUS).UTC()
	}
	return s
}

type groupRec struct {
	key     []byte
	pool    int64
	names   string // for people
	least   int64
	most    *int64 // nil: no limit
	used    int64
	waiting int64
	listed  bool
	weight  int64
	rev     int64
}

func (r *groupRec) fields() []any {
	return []any{&r.key, &r.pool, &r.names, &r.listed, &r.weight, &r.least, &r.most, &r.used, &r.waiting, &r.rev}
}

func (r *groupRec) pack(pool int64, g *allocator.GroupRow) error {
	*r = groupRec{
		key: []byte(g.Key), pool: pool, listed: g.Listed, weight: g.Weight, least: int64(g.Min), used: int64(g.Used), waiting: int64(g.Waiting), rev: g.Rev,
	}
	if g.Max >= 0 {
		most := int64(g.Max)
		r.most = &most
	}
	names, _ := g.Key.Names()
	return sqlrow.Encode(&r.names, names)
}

// unpack makes a row of the record. No group is ever quarantined: what its limits are is not known, so that nothing can be granted.
func (r *groupRec) unpack() (*allocator.GroupRow, error) {
	g := &allocator.GroupRow{Key: allocator.GroupKey(r.key), Listed: r.listed, Weight: r.weight, Max: -1, Rev: r.rev}
	ok := narrow(&g.Min, r.least) && narrow(&g.Used, r.used) && narrow(&g.Waiting, r.waiting)
	if r.most != nil {
		ok = ok && narrow(&g.Max, *r.most) && g.Max >= 0
	}
	if !ok {
		return nil, fmt.Errorf("group %v can't be read", g.Key)
	}
	return g, nil
}

type slotRec struct {
	index, pool              int64
	attrs                    string
	state, epoch, cools, rev int64
}

func (r *slotRec) fields() []any {
	return []any{&r.index, &r.pool, &r.attrs, &r.state, &r.epoch, &r.cools, &r.rev}
}

func (r *slotRec) pack(pool int64, s *allocator.SlotRow) error {
	r.index, r.pool, r.state, r.epoch, r.cools, r.rev = int64(s.Index), pool, int64(s.Status), int64(s.Epoch), s.CoolUS, s.Rev
	return encodeLabels(&r.attrs, s.Attrs)
}

// unpack returns the row, or the raw one if it can't be.
func (r *slotRec) unpack() (*allocator.SlotRow, *allocator.Raw) {
	s := &allocator.SlotRow{Index: int(r.index), Epoch: uint64(r.epoch), CoolUS: r.cools, Rev: r.rev}
	var field string
	switch {
	case !narrow(&s.Status, r.state):
		field = "state"
	case decodeLabels(r.attrs, &s.Attrs) != nil:
		field = "attrs"
	default:
		field = s.Check()
	}
	if field == "" {
		return s, nil
	}
	raw := rawOf(slots, r.fields(), field, r.rev)
	raw.Table, raw.Index, raw.Key = allocator.RawSlot, s.Index, strconv.FormatInt(r.index, 10)
	return nil, raw
}

// askedRec is what leases and tickets have in common.
type askedRec struct {
	attempt           string
	group             []byte
	units, ttl, most  int64
	owner             int64
	labels            string
	incarnation       []byte
	host, boot, pidns string
	pid, start        int64
}

func (r *askedRec) fields() []any {
	return []any{
		&r.attempt, &r.group, &r.units, &r.ttl, &r.most, &r.owner, &r.labels, &r.incarnation, &r.host, &r.boot, &r.pidns, &r.pid, &r.start,
	}
}

func (r *askedRec) pack(attempt string, p *allocator.Params, h *allocator.Holder) error {
	*r = askedRec{
		attempt: attempt, group: []byte(p.Group), units: int64(p.Units), ttl: p.TTLUS, most: p.MaxUS, owner: int64(p.Owner),
		incarnation: h.Incarnation[:], host: h.Host, boot: h.Boot, pidns: h.Namespace, pid: h.PID, start: h.Start,
	}
	return encodeLabels(&r.labels, p.Labels)
}

// unpack returns the column that can't be read, or "".
func (r *askedRec) unpack(p *allocator.Params, h *allocator.Holder) string {
	*p = allocator.Params{Group: allocator.GroupKey(r.group), TTLUS: r.ttl, MaxUS: r.most}
	*h = allocator.Holder{Host: r.host, Boot: r.boot, Namespace: r.pidns, PID: r.pid, Start: r.start}
	switch {
	case !narrow(&p.Units, r.units):
		return "units"
	case !narrow(&p.Owner, r.owner):
		return "owner"
	case decodeLabels(r.labels, &p.Labels) != nil:
		return "labels"
	case copy(h.Incarnation[:], r.incarnation) != len(r.incarnation) || len(r.incarnation) != len(h.Incarnation):
		return "incarnation"
	}
	return ""
}

type leaseRec struct {
	epoch, pool int64
	id          []byte
	slots       string
	asked       askedRec
	state       int64
	reason      int64
	evidence    string
	row         allocator.LeaseRow // the rest
}

func (r *leaseRec) fields() []any {
	l := &r.row
	return slices.Concat([]any{&r.epoch, &r.pool, &r.id, &r.slots}, r.asked.fields(), []any{
		&r.state, &l.AcquiredUS, &l.TTLUS, &l.ExpiresUS, &l.MaxUS, &l.RenewSeq, &l.Renewed.ExpiresUS, &l.Renewed.LeftUS, &l.Renewed.Lapsed,
		&r.reason, &l.End.AtUS, &l.End.By, &r.evidence, &l.Rev,
	})
}

// pack takes a row; fixed are the columns that never change, which an update need not have.
func (r *leaseRec) pack(pool int64, l *allocator.LeaseRow, fixed bool) error {
	r.row = *l
	r.epoch, r.pool, r.state, r.reason = int64(l.Epoch), pool, int64(l.Status), int64(l.End.Reason)
	if l.End.Evidence != [32]byte{} {
		r.evidence = allocator.FingerprintOf(l.End.Evidence).String()
	}
	if !fixed {
		return nil
	}
	r.id = l.ID[:]
	ids := make([]int64, len(l.Slots))
	for i, n := range l.Slots {
		ids[i] = int64(n)
	}
	r.slots = string(sqlrow.AppendIDs(nil, ids))
	return r.asked.pack(l.Attempt, &l.Params, &l.Holder)
}

// unpack returns the row, or the raw one if it can't be.
func (r *leaseRec) unpack() (*allocator.LeaseRow, *allocator.Raw) {
	l := new(allocator.LeaseRow)
	*l = r.row
	l.Epoch, l.Attempt = uint64(r.epoch), r.asked.attempt
	field := r.read(l)
	if field == "" {
		field = l.Check()
	}
	if field == "" {
		return l, nil
	}
	raw := rawOf(leases, r.fields(), field, l.Rev)
	raw.Table, raw.Epoch, raw.Key = allocator.RawLease, l.Epoch, strconv.FormatUint(l.Epoch, 10)
	return nil, raw
}

// read returns the column that can't be read, or "".
func (r *leaseRec) read(l *allocator.LeaseRow) string {
	if field := r.asked.unpack(&l.Params, &l.Holder); field != "" {
		return field
	}
	ids, err := sqlrow.ParseIDs(r.slots)
	if err != nil {
		return "slots"
	}
	l.Slots = make([]int, len(ids))
	for i, id := range ids {
		if !narrow(&l.Slots[i], id) {
			return "slots"
		}
	}
	switch {
	case copy(l.ID[:], r.id) != len(r.id) || len(r.id) != len(l.ID):
		return "lease_id"
	case !narrow(&l.Status, r.state):
		return "state"
	case !narrow(&l.End.Reason, r.reason):
		return "end_reason"
	}
	if r.evidence != "" {
		f, err := allocator.ParseFingerprint(r.evidence)
		if err != nil || !strings.HasPrefix(r.evidence, "e") {
			return "end_evidence"
		}
		l.End.Evidence = f.Sum()
	}
	return ""
}

type ticketRec struct {
	seq, pool     int64
	asked         askedRec
	deadline, rev int64
}

func (r *ticketRec) fields() []any {
	return slices.Concat([]any{&r.seq, &r.pool}, r.asked.fields(), []any{&r.deadline, &r.rev})
}

func (r *ticketRec) pack(pool int64, t *allocator.TicketRow, fixed bool) error {
	r.seq, r.pool, r.deadline, r.rev = t.Seq, pool, t.DeadlineUS, t.Rev
	if !fixed {
		return nil
	}
	return r.asked.pack(t.Attempt, &t.Params, &t.Holder)
}

// unpack returns the row, or the raw one if it can't be.
func (r *ticketRec) unpack() (*allocator.TicketRow, *allocator.Raw) {
	t := &allocator.TicketRow{Seq: r.seq, Attempt: r.asked.attempt, DeadlineUS: r.deadline, Rev: r.rev}
	field := r.asked.unpack(&t.Params, &t.Holder)
	if field == "" {
		field = t.Check()
	}
	if field == "" {
		return t, nil
	}
	raw := rawOf(tickets, r.fields(), field, r.rev)
	raw.Table, raw.Seq, raw.Key = allocator.RawTicket, r.seq, strconv.FormatInt(r.seq, 10)
	return nil, raw
}

// rawOf lists the columns of a row but its keys.
func rawOf(t *sqlrow.Table, fields []any, field string, rev int64) *allocator.Raw {
	raw := &allocator.Raw{Field: field, Rev: rev}
	for i := t.Keys; i < len(fields); i++ {
		c := allocator.RawColumn{Name: t.Columns[i].Name}
		switch v := sqlrow.Value(fields[i]).(type) {
		case int64:
			c.Type, c.Value = "int", binary.BigEndian.AppendUint64(nil, uint64(v))
		case bool:
			c.Type, c.Value = "int", make([]byte, 8)
			if v {
				c.Value[7] = 1
			}
		case string:
			c.Type, c.Value = "text", []byte(v)
		case []byte:
			c.Type, c.Value = "blob", slices.Clone(v)
		default:
			c.Type = "null"
		}
		raw.Columns = append(raw.Columns, c)
	}
	slices.SortFunc(raw.Columns, func(a, b allocator.RawColumn) int { return cmp.Compare(a.Name, b.Name) })
	return raw
}

// Labels are a JSON object, for people to look into.

func encodeLabels(text *string, list []allocator.Label) error {
	if len(list) == 0 {
		*text = ""
		return nil
	}
	m := make(map[string]string, len(list))
	for _, l := range list {
		m[l.Key] = l.Value
	}
	out, err := json.Marshal(m)
	*text = string(out)
	return err
}

func decodeLabels(text string, list *[]allocator.Label) error {
	var m map[string]string
	if err := sqlrow.Decode(text, &m); err != nil || len(m) == 0 {
		return err
	}
	*list = make([]allocator.Label, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		*list = append(*list, allocator.Label{Key: k, Value: m[k]})
	}
	return nil
}
