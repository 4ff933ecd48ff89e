// Package names checks names that callers give to things.
package names

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Max bounds every name, in bytes.
const Max = 256

// Check says why s is no name, or "" if it is one: valid UTF-8 of 1 to Max bytes without control characters.
func Check(s string) string {
	switch {
	case s == "":
		return "empty"
	case len(s) > Max:
		return fmt.Sprintf("%d bytes, at most %d", len(s), Max)
	}
	if plain(s) {
		return ""
	}
	if !utf8.ValidString(s) {
		return "not valid UTF-8"
	}
	for i, r := range s {
		if unicode.IsControl(r) {
			return fmt.Sprintf("has a control character at byte %d", i)
		}
	}
	return ""
}

// plain tells whether s is printable ASCII, as nearly all names are. It looks at eight bytes at once.
func plain(s string) bool {
	const high, spaces, deletes = 0x8080808080808080, 0x2020202020202020, 0x0101010101010101
	for len(s) >= 8 {
		x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		// While no byte has its high bit, adding 1 gives that bit to 0x7f only, and taking a space away to what is below it only.
		if (x|(x+deletes)|(((x|high)-spaces)^high))&high != 0 {
			return false
		}
		s = s[8:]
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' {
			return false
		}
	}
	return true
}
