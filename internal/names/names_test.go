package names

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a": "", "run 7/é": "", strings.Repeat("n", Max): "",
		"": "empty", strings.Repeat("n", Max+1): "257 bytes, at most 256", "a\xff": "not valid UTF-8",
		"a\n": "has a control character at byte 1", "ab\u0085": "has a control character at byte 2",
	} {
		if got := Check(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.SliceOfN(rapid.ByteRange(' ', '~'), 1, 20).Draw(t, "bytes")
		i := rapid.IntRange(0, len(bytes)-1).Draw(t, "at")
		bytes[i] = rapid.SampledFrom([]byte{' ', '~', 0, 0x1f, 0x7f, 0x80, 0xff}).Draw(t, "byte")
		want := !slices.ContainsFunc(bytes, func(b byte) bool { return b < ' ' || b > '~' })
		if got := plain(string(bytes)); got != want {
			t.Errorf("plain(%q) = %v", bytes, got)
		}
	})
}
