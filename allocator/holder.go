package allocator

import "encoding/hex"

// Incarnation is the random id of one life of a process: 16 bytes, never all zero.
type Incarnation [16]byte

func (i Incarnation) String() string { return hex.EncodeToString(i[:]) }

// MarshalText is String.
func (i Incarnation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (i *Incarnation) UnmarshalText(text []byte) error { return unhex("incarnation", i[:], text) }

// LeaseID is the random id of a lease.
type LeaseID [16]byte

func (i LeaseID) String() string { return hex.EncodeToString(i[:]) }

// MarshalText is String.
func (i LeaseID) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (i *LeaseID) UnmarshalText(text []byte) error { return unhex("lease id", i[:], text) }

func unhex(field string, to, text []byte) error {
	if len(text) != hex.EncodedLen(len(to)) {
		return invalid(field, "%d characters, want %d", len(text), hex.EncodedLen(len(to)))
	}
	if _, err := hex.Decode(to, text); err != nil {
		return invalid(field, "%v", err)
	}
	return nil
}

// Holder is who holds a lease: one incarnation of a process, and what is needed to tell later whether that process is still
// there. A field that is not known is empty or 0, which proves nothing.
type Holder struct {
	Incarnation Incarnation
	Host        string // as the operator named it; see Options.HostID
	Boot        string // random id of the kernel's boot
	Namespace   string // of pids
	PID         int64
	Start       int64 // of the process, in the units of its system; with PID only
}

// Process is what a system says of a pid.
type Process struct {
	Presence Presence
	Start    int64 // 0: not known
}

// Presence tells whether there is a process with a pid.
type Presence uint8

// The answers. Not permitted, not readable and a zombie are PresenceUnknown.
const (
	PresenceUnknown Presence = iota
	Absent                   // proved
	Present
)

// judgeOwner is the rule of the owner probe (R11). me is who looks; hostGiven says that an operator named me.Host; p is what the
// system says of h.PID, if it was asked. Only VerdictDead shortens a lease.
func judgeOwner(h, me Holder, hostGiven bool, owner Owner, p Process) Verdict {
	switch {
	case owner != OwnerSelf || h.Boot == "" || me.Boot == "":
		return VerdictUnknown
	case h.Boot != me.Boot:
		if hostGiven && me.Host != "" && h.Host == me.Host {
			return VerdictDead
		}
		return VerdictUnknown
	case !askable(h, me):
		return VerdictUnknown
	case p.Presence == Absent: // whatever its start was
		return VerdictDead
	case p.Presence != Present || p.Start <= 0 || h.Start <= 0:
		return VerdictUnknown
	case p.Start != h.Start:
		return VerdictDead
	}
	return VerdictLive
}

// askable tells whether the system that me is on knows h's process.
func askable(h, me Holder) bool {
	return h.Boot != "" && h.Boot == me.Boot && h.Namespace != "" && h.Namespace == me.Namespace && h.PID > 0
}
