package allocator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	firstRetry = 250 * time.Millisecond
	// A renewal is sent when this part of the time left has passed.
	renewPart = 3
)

// Keep renews the lease until ctx ends or the lease does, and closes Done when it does. Run it in a goroutine of its own, never behind
// the work: it is what makes Done close in time. It returns nil when ctx ended or the lease was released; else ErrLapsed
// when the time is over here, or a [LostError]. The end of ctx does not release.
func (l *Lease) Keep(ctx context.Context) error {
	if ctx == nil {
		return wrap("keep", invalid("ctx", "nil"))
	}
	l.mu.Lock()
	busy := l.keeping
	l.keeping = true
	l.mu.Unlock()
	if busy {
		return wrap("keep", invalid("Keep", "runs already"))
	}
	defer func() {
		l.mu.Lock()
		l.keeping = false
		l.mu.Unlock()
	}()
	return wrap("keep", l.keep(ctx))
}

func (l *Lease) keep(ctx context.Context) error {
	var last error // of a renewal
	retry := firstRetry
	timer := time.NewTimer(l.pause())
	defer timer.Stop()
	// A renewal may be on its way for longer than the lease lasts.
	end := newAlarm(l)
	defer end.stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.Done():
			return l.Err()
		case <-timer.C:
		}
		left := l.Left()
		if left == 0 {
			l.lapse(last)
			return l.Err()
		}
		if l.oldest() {
			timer.Reset(left)
			continue
		}
		limited, cancel := context.WithTimeout(ctx, left)
		_, err := l.renew(limited)
		cancel()
		switch {
		case err == nil:
			last, retry = nil, firstRetry
			end.because(nil)
			timer.Reset(l.pause())
		case errors.Is(err, ErrLost):
			return l.Err()
		default:
			last = err
			end.because(err)
			// Twice as often as the time left needs, so that a store that is back in time is asked in time.
			timer.Reset(min(retry, max(l.Left()/2, firstRetry), l.Left()))
			retry = min(2*retry, max(firstRetry, micros(l.row.TTLUS)/10))
		}
	}
}

// lapse closes Done when the time is over here.
func (l *Lease) lapse(why error) {
	if why == nil {
		l.finish(ErrLapsed)
		return
	}
	l.finish(fmt.Errorf("%w: %w", ErrLapsed, why))
}

// alarm closes Done of a lease in time.
type alarm struct {
	lease *Lease
	mu    sync.Mutex
	why   error       // of the last renewal
	timer *time.Timer // nil: stopped
}

func newAlarm(l *Lease) *alarm {
	a := &alarm{lease: l}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = time.AfterFunc(l.Left(), a.ring)
	return a
}

func (a *alarm) ring() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer == nil {
		return
	}
	if left := a.lease.Left(); left > 0 { // it was renewed
		a.timer.Reset(left)
		return
	}
	a.lease.lapse(a.why)
}

func (a *alarm) because(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.why = err
}

func (a *alarm) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer.Stop()
	a.timer = nil
}

// pause is how long to wait before the next renewal.
func (l *Lease) pause() time.Duration {
	left := l.Left()
	return min(left, l.pool.spread(left/renewPart))
}

// oldest tells that no renewal can prolong the lease: it is as old as it may get.
func (l *Lease) oldest() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.expires >= l.most
}
