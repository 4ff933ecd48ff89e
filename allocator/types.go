package allocator

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Spec is how a pool is to be made.
type Spec struct {
	Capacity int     // 0 to 10,000 slots; 0 is closed
	Policy   *Policy // nil: DefaultPolicy
	Groups   []Group
	Attrs    map[int]map[string]string // attributes of slots, by index; at most 16 pairs and 4 KiB each
}

// Policy is how a pool treats its leases. Start from [DefaultPolicy]. All durations are whole microseconds.
type Policy struct {
	TTL        time.Duration // how long a lease lives between two renewals: 5 s to 24 h
	MaxLease   time.Duration // age at which a lease ends, renewed or not: TTL to 30 days
	Cooling    time.Duration // how long a slot is kept out of use after a reclaim: 0 to 1 h
	Fenced     bool          // every resource checks epochs: no slot cools
	OpenGroups bool          // a group that is not listed has weight 1; else it is ErrInvalid
	Keep       time.Duration // how long an ended lease is remembered: 1 to 90 days
	// A clock that moves further than this between two steps has jumped: 1 min to 30 days, at least twice the TTL. Make it longer than the
	// pool is ever left alone: each of two calls that are further apart takes the time between them for a jump, and ends nothing.
	JumpGuard time.Duration
}

// DefaultPolicy returns the defaults.
func DefaultPolicy() Policy {
	return Policy{
		TTL: time.Minute, MaxLease: 6 * time.Hour, Cooling: 15 * time.Second, OpenGroups: true,
		Keep: 7 * 24 * time.Hour, JumpGuard: 24 * time.Hour,
	}
}

// Group is the share of a group that is known beforehand. Where groups wait, the one with the lowest use for its weight is
// served first, and before that any that has less than its minimum.
type Group struct {
	Key    []string // at most 4 names
	Weight int64    // 1 to 1,000,000
	Min    int      // a priority: no idle slot is held back for it
	Max    *int     // nil: none
}

// PoolState is a pool at one moment.
type PoolState struct {
	Name          string
	Version       int64 // for the next admin call
	Capacity      int
	Status        PoolStatus
	DrainDeadline time.Time // the zero time: none
	Policy        Policy
	Used          int // slots leased, offered, cooling or quarantined
	Cooling       int
	Offered       int
	Waiting       int  // tickets
	Excess        int  // slots in use above the capacity
	Blocked       bool // nothing is granted until Check has repaired the counts
	Rev           int64
}

// Request asks for a lease.
type Request struct {
	// Attempt is the caller's id for one piece of work: 1 to 256 bytes of text. A retry with the same attempt gets the same lease.
	Attempt  string
	Group    []string      // at most 4 names of 1 to 256 bytes
	Units    int           // slots, 1 to the capacity
	TTL      time.Duration // 0: the pool's; else 5 s to 24 h
	MaxLease time.Duration // longest life; 0: the pool's, which is also the most
	Owner    Owner
	Labels   map[string]string // at most 16 pairs; keys of 1 to 256 bytes, values up to 1 KiB
}

// LeaseState is a lease at one moment.
type LeaseState struct {
	Pool       string
	ID         LeaseID
	Epoch      uint64 // the fencing token: it rises with every grant of the pool
	Slots      []int
	Status     LeaseStatus
	Attempt    string
	Group      []string
	Owner      Owner
	Labels     map[string]string
	Holder     Holder
	AcquiredAt time.Time
	TTL        time.Duration
	ExpiresAt  time.Time
	MaxUntil   time.Time
	RenewSeq   int64
	End        End
}

// End says how a lease ended; the zero End is that of one that did not.
type End struct {
	Reason   Reason
	At       time.Time
	By       string      // the operator's note
	Evidence Fingerprint // that was judged; zero where nobody had to judge
}

// Slot is a slot of a lease.
type Slot struct {
	Index int
	Attrs map[string]string
}

// Ref names a lease: enough to renew, verify and release it from anywhere. It is not a secret.
type Ref struct {
	Pool     string
	ID       LeaseID
	Epoch    uint64
	Identity Fingerprint // zero within one process
}

const refPrefix = "r1."

// String returns the text form, which [ParseRef] reads: base64url of length-prefixed fields.
func (r Ref) String() string {
	b := addText(nil, r.Pool)
	b = addBytes(b, r.ID[:])
	b = addInt(b, int64(r.Epoch))
	if r.Identity.IsZero() {
		b = append(b, absent)
	} else {
		b = addBytes(b, r.Identity.sum[:])
	}
	return refPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// MarshalText is String; the zero Ref is empty.
func (r Ref) MarshalText() ([]byte, error) {
	if r == (Ref{}) {
		return nil, nil
	}
	return []byte(r.String()), nil
}

// UnmarshalText is ParseRef; the empty text is the zero Ref.
func (r *Ref) UnmarshalText(text []byte) (err error) {
	if *r = (Ref{}); len(text) > 0 {
		*r, err = ParseRef(string(text))
	}
	return err
}

// ParseRef reads the text form of a Ref. Anything that String would not write is ErrInvalid.
func ParseRef(s string) (Ref, error) {
	bad := invalid("Ref", "not the text of a Ref")
	text, ok := strings.CutPrefix(s, refPrefix)
	if !ok {
		return Ref{}, bad
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return Ref{}, bad
	}
	var fields [4][]byte
	for i := range fields {
		if fields[i], b, ok = cutField(b); !ok {
			return Ref{}, bad
		}
	}
	r := Ref{Pool: string(fields[0])}
	if len(b) != 0 || len(fields[1]) != len(r.ID) || len(fields[2]) != 8 || validateName("Ref", r.Pool) != nil {
		return Ref{}, bad
	}
	copy(r.ID[:], fields[1])
	r.Epoch = binary.BigEndian.Uint64(fields[2])
	if fields[3] != nil {
		if len(fields[3]) != 32 {
			return Ref{}, bad
		}
		r.Identity.kind = kindIdentity
		copy(r.Identity.sum[:], fields[3])
	}
	if r.String() != s {
		return Ref{}, bad
	}
	return r, r.validate()
}

// cutField takes a field off b. An absent one is nil.
func cutField(b []byte) (field, rest []byte, ok bool) {
	if len(b) == 0 || b[0] > 1 {
		return nil, nil, false
	}
	if b[0] == absent {
		return nil, b[1:], true
	}
	n, size := binary.Uvarint(b[1:])
	if size <= 0 || n > uint64(len(b)-1-size) {
		return nil, nil, false
	}
	b = b[1+size:]
	return b[:n:n], b[n:], true
}

func (r Ref) validate() error {
	switch {
	case r.ID == LeaseID{}:
		return invalid("Ref.ID", "zero")
	case r.Epoch == 0 || r.Epoch > maxCounter:
		return invalid("Ref.Epoch", "%d", r.Epoch)
	}
	return nil
}

// Evidence is what a probe saw of a slot: the stored fields on which a decision would rest, and a verdict.
type Evidence struct {
	Slot        int
	Status      SlotStatus
	Epoch       uint64
	CoolUntil   time.Time
	Lease       *LeaseState // nil if there is none, or it can't be read
	Fingerprint Fingerprint // of all this
	Verdict     Verdict
	Reason      Reason // of VerdictExpired and VerdictDead: what a Reclaim may give
	Field       string // of a quarantined slot: what is wrong
}

// Reclaim returns the request that ends just what was seen, and nothing that came after it.
func (e Evidence) Reclaim(why Reason, note string) Reclaim {
	return Reclaim{Slot: e.Slot, Epoch: e.Epoch, Fingerprint: e.Fingerprint, Reason: why, Note: note}
}

// Reclaim asks to end a lease that somebody else holds, by the evidence that was seen.
type Reclaim struct {
	Slot        int
	Epoch       uint64      // of the slot; with Slot it says where to look
	Fingerprint Fingerprint // of the evidence
	Reason      Reason      // one of the last four; it is proved again
	Note        string      // of Forced: who and why, at least 1 byte
}

// labelList is the canonical form of labels.
func labelList(m map[string]string) []Label {
	if len(m) == 0 {
		return nil
	}
	list := make([]Label, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, Label{k, m[k]})
	}
	return list
}

func labelMap(list []Label) map[string]string {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]string, len(list))
	for _, l := range list {
		m[l.Key] = l.Value
	}
	return m
}

// text says what a pool is configured as.
func (s *Spec) text() string {
	list := make([]string, len(s.Groups))
	for i, g := range s.Groups {
		most := "no maximum"
		if g.Max != nil {
			most = fmt.Sprint("at most ", *g.Max)
		}
		list[i] = fmt.Sprintf("%q weight %d, at least %d, %s", g.Key, g.Weight, g.Min, most)
	}
	return fmt.Sprintf("capacity %d, policy %+v, groups [%s], attributes %v", s.Capacity, *s.Policy, strings.Join(list, "; "), s.Attrs)
}

func clonePointer[T any](x *T) *T {
	if x == nil {
		return nil
	}
	c := *x
	return &c
}

func cloneGroups(list []Group) []Group {
	list = slices.Clone(list)
	for i := range list {
		list[i].Key, list[i].Max = slices.Clone(list[i].Key), clonePointer(list[i].Max)
	}
	return list
}

func cloneAttrs(attrs map[int]map[string]string) map[int]map[string]string {
	attrs = maps.Clone(attrs)
	for i, m := range attrs {
		attrs[i] = maps.Clone(m)
	}
	return attrs
}

func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// state returns the lease for people.
func (l *LeaseRow) state(pool string) LeaseState {
	group, _ := l.Params.Group.Names()
	s := LeaseState{
		Pool: pool, ID: l.ID, Epoch: l.Epoch, Slots: slices.Clone(l.Slots), Status: l.Status, Attempt: l.Attempt,
		Group: group, Owner: l.Params.Owner, Labels: labelMap(l.Params.Labels), Holder: l.Holder,
		AcquiredAt: timeOf(l.AcquiredUS), TTL: micros(l.TTLUS), ExpiresAt: timeOf(l.ExpiresUS), MaxUntil: timeOf(l.MaxUS),
		RenewSeq: l.RenewSeq,
	}
	if l.Status == LeaseEnded {
		s.End = End{Reason: l.End.Reason, At: timeOf(l.End.AtUS), By: l.End.By}
		if l.End.Evidence != [32]byte{} {
			s.End.Evidence = FingerprintOf(l.End.Evidence)
		}
	}
	return s
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// state returns the pool for people.
func (p *PoolRow) state() PoolState {
	return PoolState{
		Name: p.Name, Version: p.Version, Capacity: p.Capacity, Status: p.Status, DrainDeadline: timeOf(p.DrainUS), Policy: p.Policy,
		Used: p.Used, Cooling: p.Cooling, Offered: p.Offered, Waiting: p.Waiting, Excess: max(0, p.Used-p.Capacity), Blocked: p.Blocked, Rev: p.Rev,
	}
}

// Verification is the answer to a Verify.
type Verification struct {
	Status  VerifyStatus
	Current uint64 // the slot's epoch
}

// Configuration is what Configure changes; nil fields stay as they are.
type Configuration struct {
	Policy *Policy
	Groups *[]Group                  // the listed groups, all of them
	Attrs  map[int]map[string]string // of slots that are free or retired
}
