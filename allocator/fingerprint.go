package allocator

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// Fingerprint is a hash over evidence: SHA-256 of the canonical bytes in docs/formats.md. Equal evidence has equal
// fingerprints, and any change, a renewal too, changes it. The zero Fingerprint is none.
type Fingerprint struct {
	kind byte // of evidence: one of the kinds; 0 in the zero value
	sum  [32]byte
}

// Kinds of fingerprints, as in their text.
const (
	kindEvidence = 'e'
	kindIdentity = 'i'
	kindParams   = 'p'
)

// version of all formats (fixed).
const version = 1

// String returns the text form: the kind, the version, and 64 lower-case hexadecimal digits; "" for the zero Fingerprint.
func (f Fingerprint) String() string {
	if f.kind == 0 {
		return ""
	}
	return fmt.Sprintf("%c%d:%x", f.kind, version, f.sum)
}

// MarshalText is String; the zero Fingerprint is empty.
func (f Fingerprint) MarshalText() ([]byte, error) {
	if f.IsZero() {
		return nil, nil
	}
	return []byte(f.String()), nil
}

// UnmarshalText is ParseFingerprint; the empty text is the zero Fingerprint.
func (f *Fingerprint) UnmarshalText(text []byte) (err error) {
	if *f = (Fingerprint{}); len(text) > 0 {
		*f, err = ParseFingerprint(string(text))
	}
	return err
}

// IsZero tells whether f is none.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// ParseFingerprint reads the text form, exactly as String writes it. Another version is ErrFingerprintVersion, anything else
// ErrInvalid: neither is ever taken for "changed".
func ParseFingerprint(s string) (Fingerprint, error) {
	head, digits, ok := strings.Cut(s, ":")
	if !ok || len(head) < 2 || !strings.ContainsRune("eip", rune(head[0])) || strings.Trim(head[1:], "0123456789") != "" || head[1] == '0' {
		return Fingerprint{}, invalid("Fingerprint", "want e1:, i1: or p1: and 64 hexadecimal digits")
	}
	if head[1:] != "1" {
		return Fingerprint{}, fmt.Errorf("%w: %q", ErrFingerprintVersion, head)
	}
	f := Fingerprint{kind: head[0]}
	if len(digits) != 64 || strings.Trim(digits, "0123456789abcdef") != "" {
		return Fingerprint{}, invalid("Fingerprint", "want 64 lower-case hexadecimal digits")
	}
	if _, err := hex.Decode(f.sum[:], []byte(digits)); err != nil {
		return Fingerprint{}, invalid("Fingerprint", "not hexadecimal")
	}
	return f, nil
}

// FingerprintOf returns the evidence fingerprint with this sum: for stores, which keep the sum alone.
func FingerprintOf(sum [32]byte) Fingerprint { return Fingerprint{kind: kindEvidence, sum: sum} }

// Sum returns the hash.
func (f Fingerprint) Sum() [32]byte { return f.sum }

// The canonical encoding. A field is 0 when absent, else 1, the length and the bytes; a list is one field that holds
// the count and then each element as a field.

const absent = 0

func addHead(b []byte, n int) []byte { return binary.AppendUvarint(append(b, 1), uint64(n)) }

func addText(b []byte, s string) []byte { return append(addHead(b, len(s)), s...) }

func addInt(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(addHead(b, 8), uint64(n)) }

func addBytes(b, v []byte) []byte { return append(addHead(b, len(v)), v...) }

// orAbsent is for text that is never empty, and numbers that are never 0.
func textOrAbsent(b []byte, s string) []byte {
	if s == "" {
		return append(b, absent)
	}
	return addText(b, s)
}

func intOrAbsent(b []byte, n int64) []byte {
	if n == 0 {
		return append(b, absent)
	}
	return addInt(b, n)
}

// addSlots adds a list of numbers: each takes 10 bytes.
func addSlots(b []byte, slots []int) []byte {
	b = addHead(b, uvarintLen(len(slots))+10*len(slots))
	b = binary.AppendUvarint(b, uint64(len(slots)))
	for _, n := range slots {
		b = addInt(b, int64(n))
	}
	return b
}

func uvarintLen(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}

func addDomain(b []byte, domain string) []byte {
	return addInt(addText(b, "stint.allocator."+domain), version)
}

func fingerprint(kind byte, preimage []byte) Fingerprint {
	return Fingerprint{kind: kind, sum: sha256.Sum256(preimage)}
}

// preimageSize is enough for most.
const preimageSize = 512

// appendParams is the preimage of a request's parameters.
func (p *Params) appendPreimage(b []byte) []byte {
	b = addDomain(b, "params")
	b = append(addHead(b, len(p.Group)), p.Group...)
	b = addInt(b, int64(p.Units))
	b = intOrAbsent(b, p.TTLUS)
	b = intOrAbsent(b, p.MaxUS)
	b = addText(b, p.Owner.String())
	size := uvarintLen(2 * len(p.Labels))
	for _, l := range p.Labels {
		size += 2 + uvarintLen(len(l.Key)) + len(l.Key) + uvarintLen(len(l.Value)) + len(l.Value)
	}
	b = binary.AppendUvarint(addHead(b, size), uint64(2*len(p.Labels)))
	for _, l := range p.Labels {
		b = addText(addText(b, l.Key), l.Value)
	}
	return b
}

// Fingerprint is the fingerprint of what was asked for: equal for every retry of one request.
func (p *Params) Fingerprint() Fingerprint {
	return fingerprint(kindParams, p.appendPreimage(make([]byte, 0, preimageSize)))
}

func (l *LeaseRow) appendPreimage(b []byte, pool string, identity bool) []byte {
	if identity {
		b = addDomain(b, "identity")
	} else {
		b = addDomain(b, "lease")
	}
	b = addSlots(addText(b, pool), l.Slots)
	if !identity {
		b = addText(b, l.Status.String())
	}
	b = addInt(b, int64(l.Epoch))
	b = addBytes(b, l.ID[:])
	b = addText(b, l.Attempt)
	b = append(addHead(b, len(l.Params.Group)), l.Params.Group...)
	b = addInt(b, int64(l.Params.Units))
	params := l.Params.Fingerprint().sum
	b = addBytes(b, params[:])
	b = addBytes(b, l.Holder.Incarnation[:])
	b = textOrAbsent(b, l.Holder.Host)
	b = textOrAbsent(b, l.Holder.Boot)
	b = textOrAbsent(b, l.Holder.Namespace)
	b = intOrAbsent(b, l.Holder.PID)
	b = intOrAbsent(b, l.Holder.Start)
	b = addInt(b, l.AcquiredUS)
	b = addInt(b, l.TTLUS)
	if !identity {
		b = addInt(b, l.ExpiresUS)
	}
	b = addInt(b, l.MaxUS)
	if !identity {
		b = addInt(b, l.RenewSeq)
	}
	return b
}

// Evidence is the fingerprint of all that a decision about the lease rests on.
func (l *LeaseRow) Evidence(pool string) Fingerprint {
	return fingerprint(kindEvidence, l.appendPreimage(make([]byte, 0, preimageSize), pool, false))
}

// Identity is the fingerprint of what stays the same for the life of the lease.
func (l *LeaseRow) Identity(pool string) Fingerprint {
	return fingerprint(kindIdentity, l.appendPreimage(make([]byte, 0, preimageSize), pool, true))
}

func (s *SlotRow) appendPreimage(b []byte, pool string) []byte {
	b = addText(addDomain(b, "slot"), pool)
	b = addText(addInt(b, int64(s.Index)), s.Status.String())
	b = addInt(b, int64(s.Epoch))
	if s.Status == SlotCooling {
		return addInt(b, s.CoolUS)
	}
	return append(b, absent)
}

// Evidence is the fingerprint of a slot without a lease.
func (s *SlotRow) Evidence(pool string) Fingerprint {
	return fingerprint(kindEvidence, s.appendPreimage(make([]byte, 0, preimageSize), pool))
}

func (r *Raw) appendPreimage(b []byte, pool string) []byte {
	b = addText(addText(addDomain(b, "raw"), pool), r.Table)
	b = addText(b, r.Key)
	for _, c := range r.Columns {
		b = addText(addText(b, c.Name), c.Type)
		if c.Type == "null" {
			b = append(b, absent)
			continue
		}
		b = addBytes(b, c.Value)
	}
	return b
}

// Evidence is the fingerprint of the stored bytes of a row that can't be read.
func (r *Raw) Evidence(pool string) Fingerprint {
	return fingerprint(kindEvidence, r.appendPreimage(nil, pool))
}

// GroupKey is the canonical form of a tuple of names: ("a::b", "c") is not ("a", "b::c"). "" is not a key.
type GroupKey string

// KeyOf returns the key of a group. It does not check the names.
func KeyOf(names ...string) GroupKey {
	if len(names) == 0 {
		return "\x00"
	}
	b := binary.AppendUvarint(make([]byte, 0, 64), uint64(len(names)))
	for _, n := range names {
		b = addText(b, n)
	}
	return GroupKey(b)
}

// Names returns the tuple, and false if k is not a key.
func (k GroupKey) Names() ([]string, bool) {
	b := []byte(k)
	n, size := binary.Uvarint(b)
	if size <= 0 || n > maxGroupParts {
		return nil, false
	}
	b = b[size:]
	names := make([]string, 0, n)
	for range n {
		if len(b) == 0 || b[0] != 1 {
			return nil, false
		}
		l, size := binary.Uvarint(b[1:])
		if size <= 0 || l > uint64(len(b)-1-size) {
			return nil, false
		}
		b = b[1+size:]
		names, b = append(names, string(b[:l])), b[l:]
	}
	return names, len(b) == 0 && KeyOf(names...) == k
}

// String lists the names for people.
func (k GroupKey) String() string {
	names, ok := k.Names()
	if !ok {
		return fmt.Sprintf("GroupKey(%x)", string(k))
	}
	return fmt.Sprintf("%q", names)
}
