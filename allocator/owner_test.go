package allocator_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"testing"

	"github.com/stint-go/stint/allocator"
)

func TestThisProcess_Incarnation(t *testing.T) {
	t.Parallel()
	first, err := allocator.ThisProcess(nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := allocator.ThisProcess(nil)
	if err != nil {
		t.Fatal(err)
	}
	if first.Incarnation == (allocator.Incarnation{}) || first.Incarnation == second.Incarnation {
		t.Errorf("incarnations %v and %v", first.Incarnation, second.Incarnation)
	}
	second.Incarnation = first.Incarnation
	if first != second {
		t.Errorf("%+v, then %+v of one process", first, second)
	}
	if first.Host != "" {
		t.Errorf("host %q was not given", first.Host)
	}

	given := []byte("0123456789abcdef")
	h, err := allocator.ThisProcess(bytes.NewReader(given))
	if err != nil || !bytes.Equal(h.Incarnation[:], given) {
		t.Errorf("%q, %v, want the bytes of random", h.Incarnation[:], err)
	}
	if h, err := allocator.ThisProcess(bytes.NewReader(given[:15])); !errors.Is(err, io.ErrUnexpectedEOF) || h != (allocator.Holder{}) {
		t.Errorf("15 bytes: %+v, %v", h, err)
	}
	if h, err := allocator.ThisProcess(bytes.NewReader(make([]byte, 16))); err == nil || h != (allocator.Holder{}) {
		t.Errorf("zero bytes: %+v, %v", h, err)
	}
}

func TestSystem_Unknown(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	me, err := allocator.ThisProcess(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name string
		ctx  context.Context
		pid  int64
	}{
		{"no pid", t.Context(), 0},
		{"group", t.Context(), -1},
		{"least", t.Context(), math.MinInt64},
		{"more than a pid has bits", t.Context(), 1<<32 + 1<<22}, // cut off, it is free
		{"most", t.Context(), math.MaxInt64},
		{"context has ended", ended, max(me.PID, 1)},
	} {
		if p := allocator.System().Process(x.ctx, x.pid); p != (allocator.Process{}) {
			t.Errorf("%s: %+v, want unknown", x.name, p)
		}
	}
}
