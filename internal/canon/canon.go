// Package canon encodes values so that different values never encode alike: every field has a type byte, and
// text carries its length. Digests and fingerprints are taken over this form.
package canon

import "encoding/binary"

// Encoder appends fields. The zero value is ready; methods return it for chaining. Not safe for concurrent use.
type Encoder struct{ buf []byte }

// String appends text.
func (e *Encoder) String(s string) *Encoder {
	e.buf = append(e.buf, 's')
	e.buf = binary.AppendUvarint(e.buf, uint64(len(s)))
	e.buf = append(e.buf, s...)
	return e
}

// Int appends a number.
func (e *Encoder) Int(n int64) *Encoder {
	e.buf = append(e.buf, 'i')
	e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(n))
	return e
}

// Bool appends a truth value.
func (e *Encoder) Bool(b bool) *Encoder {
	c := byte('f')
	if b {
		c = 't'
	}
	e.buf = append(e.buf, c)
	return e
}

// Bytes returns what was appended; it is valid until the next append.
func (e *Encoder) Bytes() []byte { return e.buf }
