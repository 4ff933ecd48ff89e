package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/stint-go/stint/adapters/sqlite/embedded"
	"github.com/stint-go/stint/allocator"
)

// The environment of a worker.
const (
	workerName = "WORKTREES_WORKER"
	workerDB   = "WORKTREES_DB"
)

// event is a line that a worker writes.
type event struct {
	Worker string
	What   string
	Slot   int
	Epoch  uint64
	Note   string `json:",omitempty"`
}

// The events.
const (
	took      = "took"
	committed = "committed"
	refused   = "was refused"
	gaveBack  = "gave back"
	lostIt    = "lost"
)

// work is the life of a worker: some jobs, each in a worktree of its own.
func work(ctx context.Context, name, path string, out io.Writer) error {
	db, err := embedded.Open(ctx, path, nil)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	p, err := allocator.New(db.Pools(), pool, allocator.Options{})
	if err != nil {
		return err
	}
	lines := json.NewEncoder(out)
	for i := range jobs {
		say := func(l *allocator.Lease, what, note string) error {
			return lines.Encode(event{Worker: name, What: what, Slot: l.Slots()[0].Index, Epoch: l.Epoch(), Note: note})
		}
		if err := job(ctx, p, fmt.Sprintf("%s-%d", name, i), say); err != nil {
			return err
		}
	}
	return nil
}

func job(ctx context.Context, p *allocator.Pool, attempt string, say func(l *allocator.Lease, what, note string) error) (err error) {
	l, err := p.AcquireWait(ctx, allocator.Request{Attempt: attempt, Units: 1, Labels: map[string]string{"job": attempt}})
	if err != nil {
		return err
	}
	// Kept by a goroutine of its own, so that the work can't hold it up.
	kept := make(chan error, 1)
	keeping, stop := context.WithCancel(ctx)
	go func() { kept <- l.Keep(keeping) }()
	defer func() {
		stop()
		if lost := <-kept; err == nil && lost != nil && !errors.Is(lost, allocator.ErrLost) && !errors.Is(lost, allocator.ErrLapsed) {
			err = lost // else the work has found out by itself
		}
	}()
	if err := say(l, took, ""); err != nil {
		return err
	}
	time.Sleep(time.Second + rand.N(time.Second)) // the agent thinks
	if err := commitWith(ctx, p, l, attempt, say); err != nil {
		return err
	}
	_, err = l.Release(ctx)
	switch {
	case err == nil:
		return say(l, gaveBack, "")
	case errors.Is(err, allocator.ErrStale):
		return say(l, lostIt, "somebody else took it meanwhile")
	}
	return err
}

// commitWith commits in the worktree of a lease, if its epoch is the one that may. Nothing is trusted that is not asked for at the very end: a
// process that was stopped does not know that it was.
func commitWith(ctx context.Context, p *allocator.Pool, l *allocator.Lease, attempt string, say func(l *allocator.Lease, what, note string) error) error {
	slot := l.Slots()[0]
	v, err := p.Verify(ctx, slot.Index, l.Epoch())
	switch {
	case errors.Is(err, allocator.ErrStale), errors.Is(err, allocator.ErrLapsed):
		return say(l, refused, fmt.Sprintf("%v, the epoch is %d", v.Status, v.Current))
	case err != nil:
		return err
	}
	if err := commit(ctx, slot.Attrs["path"], "work.txt", fmt.Sprintf("%s with epoch %d", attempt, l.Epoch())); err != nil {
		return err
	}
	return say(l, committed, "")
}
