package allocator_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/allocator"
)

// vectorLease is lease L of docs/formats.md.
func vectorLease() *allocator.LeaseRow {
	l := &allocator.LeaseRow{
		Epoch: 7, Slots: []int{0}, Status: allocator.LeaseLive, Attempt: "run-1",
		Params:     allocator.Params{Group: allocator.KeyOf("github.com", "acme/widgets"), Units: 1},
		Holder:     allocator.Holder{Host: "host-a", Boot: "boot-1", Namespace: "4026531836", PID: 4242, Start: 123456},
		AcquiredUS: 1750000000000000, TTLUS: 60000000, ExpiresUS: 1750000060000000, MaxUS: 1750021600000000,
	}
	for i := range 16 {
		l.ID[i] = byte(i)
		l.Holder.Incarnation[i] = 0xf0 + byte(i)
	}
	return l
}

func TestT25_Vectors(t *testing.T) {
	t.Parallel()
	l := vectorLease()
	slot := &allocator.SlotRow{Index: 3, Status: allocator.SlotFree, Epoch: 9}
	have := map[string]allocator.Fingerprint{
		"params P": l.Params.Fingerprint(), "lease L": l.Evidence("worktrees"), "identity of L": l.Identity("worktrees"), "slot 3": slot.Evidence("worktrees"),
	}
	file, err := os.ReadFile("testdata/fingerprints-v1.txt") // a change is a new version
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(file)) {
		what, want, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if have[what].String() != want {
			t.Errorf("%s: %s, want %s", what, have[what], want)
		}
		again, err := allocator.ParseFingerprint(want)
		if err != nil || again != have[what] {
			t.Errorf("%s: parsed %v, %v", what, again, err)
		}
		n++
	}
	if n != len(have) {
		t.Errorf("%d vectors, want %d", n, len(have))
	}
}

func TestT25_TuplesAreNotJoined(t *testing.T) {
	t.Parallel()
	keys := []allocator.GroupKey{
		allocator.KeyOf(), allocator.KeyOf("ab", "c"), allocator.KeyOf("a", "bc"), allocator.KeyOf("abc"), allocator.KeyOf("a::b", "c"), allocator.KeyOf("a", "b::c"),
	}
	seen := map[allocator.Fingerprint]allocator.GroupKey{}
	for _, k := range keys {
		p := allocator.Params{Group: k, Units: 1}
		if other, ok := seen[p.Fingerprint()]; ok {
			t.Errorf("%v and %v have one fingerprint", k, other)
		}
		seen[p.Fingerprint()] = k
		if names, ok := k.Names(); !ok || allocator.KeyOf(names...) != k {
			t.Errorf("%x: %q, %v", string(k), names, ok)
		}
	}
	for _, k := range []allocator.GroupKey{"", "\x01", "\x01\x00", "\x01\x01\x05a", "\x00x", "\x81\x00\x01\x00"} {
		if names, ok := k.Names(); ok {
			t.Errorf("%x is read as %q", string(k), names)
		}
	}
}

func TestT37_ParseFingerprint(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("ab", 32)
	for _, c := range []struct {
		text string
		want error
	}{
		{"e2:" + digits, allocator.ErrFingerprintVersion},
		{"i17:" + digits, allocator.ErrFingerprintVersion},
		{"E1:" + digits, allocator.ErrInvalid},
		{"e1:" + strings.ToUpper(digits), allocator.ErrInvalid},
		{"e1:" + digits[1:], allocator.ErrInvalid},
		{"e1:" + digits + "0", allocator.ErrInvalid},
		{"e1" + digits, allocator.ErrInvalid},
		{"e01:" + digits, allocator.ErrInvalid},
		{"x1:" + digits, allocator.ErrInvalid},
		{"", allocator.ErrInvalid},
	} {
		if f, err := allocator.ParseFingerprint(c.text); !errors.Is(err, c.want) || !f.IsZero() {
			t.Errorf("%q: %v, %v, want %v", c.text, f, err, c.want)
		}
	}
}

// Every field, and every bit of it, counts.
func TestT25_EveryFieldCounts(t *testing.T) {
	t.Parallel()
	const pool = "worktrees"
	first := vectorLease()
	evidence, identity := first.Evidence(pool), first.Identity(pool)
	for _, c := range []struct {
		field    string
		identity bool // it is part of the identity too
		change   func(*allocator.LeaseRow)
	}{
		{"slots", true, func(l *allocator.LeaseRow) { l.Slots = []int{1} }},
		{"more slots", true, func(l *allocator.LeaseRow) { l.Slots = []int{0, 1} }},
		{"status", false, func(l *allocator.LeaseRow) { l.Status = allocator.LeaseOffered }},
		{"epoch", true, func(l *allocator.LeaseRow) { l.Epoch++ }},
		{"id", true, func(l *allocator.LeaseRow) { l.ID[15] ^= 1 }},
		{"attempt", true, func(l *allocator.LeaseRow) { l.Attempt += "x" }},
		{"group", true, func(l *allocator.LeaseRow) { l.Params.Group = allocator.KeyOf("github.com") }},
		{"units", true, func(l *allocator.LeaseRow) { l.Params.Units++ }},
		{"asked ttl", true, func(l *allocator.LeaseRow) { l.Params.TTLUS = l.TTLUS }},
		{"asked max", true, func(l *allocator.LeaseRow) { l.Params.MaxUS = 1 }},
		{"owner", true, func(l *allocator.LeaseRow) { l.Params.Owner = allocator.OwnerNone }},
		{"labels", true, func(l *allocator.LeaseRow) { l.Params.Labels = []allocator.Label{{Key: "a", Value: ""}} }},
		{"incarnation", true, func(l *allocator.LeaseRow) { l.Holder.Incarnation[0] ^= 0x80 }},
		{"host", true, func(l *allocator.LeaseRow) { l.Holder.Host = "" }},
		{"boot", true, func(l *allocator.LeaseRow) { l.Holder.Boot = "boot-2" }},
		{"namespace", true, func(l *allocator.LeaseRow) { l.Holder.Namespace = "" }},
		{"pid", true, func(l *allocator.LeaseRow) { l.Holder.PID = 0 }},
		{"start", true, func(l *allocator.LeaseRow) { l.Holder.Start++ }},
		{"acquired", true, func(l *allocator.LeaseRow) { l.AcquiredUS++ }},
		{"ttl", true, func(l *allocator.LeaseRow) { l.TTLUS++ }},
		{"expires", false, func(l *allocator.LeaseRow) { l.ExpiresUS++ }},
		{"max", true, func(l *allocator.LeaseRow) { l.MaxUS-- }},
		{"renewals", false, func(l *allocator.LeaseRow) { l.RenewSeq++ }},
	} {
		l := vectorLease()
		c.change(l)
		if l.Evidence(pool) == evidence {
			t.Errorf("%s does not count as evidence", c.field)
		}
		if (l.Identity(pool) != identity) != c.identity {
			t.Errorf("%s: part of the identity: %v", c.field, !c.identity)
		}
	}
	if first.Evidence("worktree") == evidence || first.Identity("worktree") == identity {
		t.Error("the pool does not count")
	}
}

func TestRef(t *testing.T) {
	t.Parallel()
	l := vectorLease()
	for _, r := range []allocator.Ref{
		{Pool: "worktrees", ID: l.ID, Epoch: 7, Identity: l.Identity("worktrees")},
		{Pool: "p", ID: l.ID, Epoch: 1},
	} {
		text := r.String()
		again, err := allocator.ParseRef(text)
		if err != nil || again != r {
			t.Errorf("%s: %+v, %v", text, again, err)
		}
		for _, bad := range []string{text[:len(text)-1], text + "A", text[1:], text + "=", strings.ToUpper(text), text[:len(text)-2] + "!!"} {
			if _, err := allocator.ParseRef(bad); !errors.Is(err, allocator.ErrInvalid) {
				t.Errorf("%s: %v", bad, err)
			}
		}
	}
	if _, err := allocator.ParseRef(allocator.Ref{Pool: "p", Epoch: 1}.String()); !errors.Is(err, allocator.ErrInvalid) {
		t.Errorf("no id: %v", err)
	}
	if _, err := allocator.ParseRef(allocator.Ref{Pool: "p", ID: l.ID}.String()); !errors.Is(err, allocator.ErrInvalid) {
		t.Errorf("no epoch: %v", err)
	}
}

// Two rows that differ in one bit of one field differ in their evidence, and in their identity where the field is part of it.
func TestT25_EveryBitCounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		l := drawLease(r)
		changed := *l
		changed.Slots, changed.Params.Labels = slices.Clone(l.Slots), slices.Clone(l.Params.Labels)
		fields := bitsOf(&changed)
		f := rapid.SampledFrom(slices.Sorted(maps.Keys(fields))).Draw(r, "field")
		fields[f](uint(rapid.IntRange(0, 62).Draw(r, "bit")))
		if l.Evidence("p") == changed.Evidence("p") {
			t.Errorf("%s is no evidence: %+v, %+v", f, l, changed)
		}
		life := f == "expires" || f == "renewals"
		if (l.Identity("p") == changed.Identity("p")) != life {
			t.Errorf("%s: part of the identity is %t", f, life)
		}
		same := *l
		same.Rev, same.End, same.Renewed = 7, allocator.EndRow{AtUS: 1}, allocator.RenewRow{LeftUS: 1}
		if same.Evidence("p") != l.Evidence("p") || same.Identity("p") != l.Identity("p") {
			t.Error("what is no evidence counts")
		}
	})
}

func drawLease(r *rapid.T) *allocator.LeaseRow {
	text := func(name string) string { return rapid.StringN(1, 6, -1).Draw(r, name) }
	number := func(name string) int64 { return rapid.Int64Range(0, math.MaxInt64).Draw(r, name) }
	l := &allocator.LeaseRow{
		Epoch: uint64(number("epoch")), Slots: []int{rapid.IntRange(0, 9999).Draw(r, "slot")}, Status: allocator.LeaseLive, Attempt: text("attempt"),
		AcquiredUS: number("acquired"), TTLUS: number("ttl"), ExpiresUS: number("expires"), MaxUS: number("max"), RenewSeq: number("renewals"),
	}
	copy(l.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, "id"))
	copy(l.Holder.Incarnation[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(r, "incarnation"))
	l.Holder.Host, l.Holder.Boot, l.Holder.Namespace = text("host"), text("boot"), text("namespace")
	l.Holder.PID, l.Holder.Start = number("pid"), number("start")
	l.Params = allocator.Params{
		Group: allocator.KeyOf(text("group"), text("group")), Units: rapid.IntRange(1, 9).Draw(r, "units"), TTLUS: number("asked ttl"),
		MaxUS: number("asked max"), Labels: []allocator.Label{{Key: text("key"), Value: text("value")}},
	}
	return l
}

// bitsOf returns functions that flip one bit of a field each.
func bitsOf(l *allocator.LeaseRow) map[string]func(bit uint) {
	text := func(s *string) func(uint) {
		return func(bit uint) {
			b := []byte(*s)
			b[int(bit/8)%len(b)] ^= 1 << (bit % 8)
			*s = string(b)
		}
	}
	number := func(n *int64) func(uint) { return func(bit uint) { *n ^= 1 << bit } }
	bytes := func(b []byte) func(uint) { return func(bit uint) { b[bit/8] ^= 1 << (bit % 8) } }
	return map[string]func(uint){
		"epoch": func(bit uint) { l.Epoch ^= 1 << bit }, "slots": func(bit uint) { l.Slots[0] ^= 1 << (bit % 13) },
		"id": bytes(l.ID[:]), "attempt": text(&l.Attempt), "group": text((*string)(&l.Params.Group)),
		"units": func(bit uint) { l.Params.Units ^= 1 << (bit % 13) }, "asked ttl": number(&l.Params.TTLUS), "asked max": number(&l.Params.MaxUS),
		"owner": func(uint) { l.Params.Owner ^= 1 }, "key": text(&l.Params.Labels[0].Key), "value": text(&l.Params.Labels[0].Value),
		"incarnation": bytes(l.Holder.Incarnation[:]), "host": text(&l.Holder.Host), "boot": text(&l.Holder.Boot),
		"namespace": text(&l.Holder.Namespace), "pid": number(&l.Holder.PID), "start": number(&l.Holder.Start),
		"acquired": number(&l.AcquiredUS), "ttl": number(&l.TTLUS), "expires": number(&l.ExpiresUS), "max": number(&l.MaxUS), "renewals": number(&l.RenewSeq),
	}
}

// What goes out as JSON comes back whole.
func TestText_JSON(t *testing.T) {
	t.Parallel()
	l := vectorLease()
	type all struct {
		Fingerprint, None allocator.Fingerprint
		Ref, NoRef        allocator.Ref
		ID                allocator.LeaseID
		Incarnation       allocator.Incarnation
	}
	x := all{
		Fingerprint: l.Evidence("worktrees"), Ref: allocator.Ref{Pool: "worktrees", ID: l.ID, Epoch: 7, Identity: l.Identity("worktrees")},
		ID: l.ID, Incarnation: l.Holder.Incarnation,
	}
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	var back all
	if err := json.Unmarshal(text, &back); err != nil || back != x {
		t.Errorf("%s: %+v, %v", text, back, err)
	}
	for _, bad := range []string{
		`{"Fingerprint":"e2:00"}`, `{"Fingerprint":"x"}`, `{"Ref":"r1.x"}`, `{"ID":""}`, `{"ID":"000102030405060708090a0b0c0d0e0g"}`, `{"Incarnation":"00"}`,
	} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}
