package memory

import "math/bits"

// bitmap is a set of small numbers that finds its lowest members fast: a bit for each number, and a bit for each word
// that has some.
type bitmap struct{ words, some []uint64 }

func (b *bitmap) add(i int) {
	for len(b.words) <= i/64 {
		b.words = append(b.words, 0)
	}
	for len(b.some) <= i/4096 {
		b.some = append(b.some, 0)
	}
	b.words[i/64] |= 1 << (i % 64)
	b.some[i/4096] |= 1 << (i / 64 % 64)
}

func (b *bitmap) remove(i int) {
	if b.words[i/64] &^= 1 << (i % 64); b.words[i/64] == 0 {
		b.some[i/4096] &^= 1 << (i / 64 % 64)
	}
}

// lowest hands out the n lowest members, in order.
func (b *bitmap) lowest(n int, f func(int)) {
	for i, some := range b.some {
		for ; some != 0; some &= some - 1 {
			at := i*64 + bits.TrailingZeros64(some)
			for word := b.words[at]; word != 0; word &= word - 1 {
				if n--; n < 0 {
					return
				}
				f(at*64 + bits.TrailingZeros64(word))
			}
		}
	}
}
