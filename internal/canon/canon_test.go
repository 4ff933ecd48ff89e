package canon_test

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/internal/canon"
)

// Lists of fields that differ never encode alike.
func TestDifferentFieldsEncodeDifferently(t *testing.T) {
	t.Parallel()
	field := rapid.OneOf(
		rapid.Custom(func(t *rapid.T) any { return rapid.StringMatching(`[ist\x00\x01]{0,3}`).Draw(t, "text") }),
		rapid.Custom(func(t *rapid.T) any { return rapid.Int64Range(-2, 2).Draw(t, "number") }),
		rapid.Custom(func(t *rapid.T) any { return rapid.Bool().Draw(t, "truth") }),
	)
	fields := rapid.SliceOfN(field, 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		a, b := fields.Draw(t, "a"), fields.Draw(t, "b")
		if same := bytes.Equal(encode(a), encode(b)); same != slices.Equal(a, b) {
			t.Fatalf("%#v and %#v: encoded alike is %v", a, b, same)
		}
	})
}

func encode(fields []any) []byte {
	var e canon.Encoder
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			e.String(f)
		case int64:
			e.Int(f)
		case bool:
			e.Bool(f)
		}
	}
	return e.Bytes()
}
