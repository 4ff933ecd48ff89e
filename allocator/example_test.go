package allocator_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/allocator"
)

func Example() {
	ctx := context.Background()
	p, err := allocator.New(memory.New(nil).Pools(), "worktrees", allocator.Options{})
	if err != nil {
		log.Fatal(err)
	}
	paths := map[int]map[string]string{0: {"path": "/srv/worktrees/0"}}
	if _, err := p.Create(ctx, allocator.Spec{Capacity: 1, Attrs: paths}); err != nil {
		log.Fatal(err)
	}
	lease, err := p.Acquire(ctx, allocator.Request{Attempt: "run-1", Units: 1})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("work in", lease.Slots()[0].Attrs["path"], "with epoch", lease.Epoch())

	_, err = p.Acquire(ctx, allocator.Request{Attempt: "run-2", Units: 1})
	if full := (*allocator.FullError)(nil); errors.As(err, &full) {
		fmt.Println("refused:", full.Reason)
	}
	if _, err := p.Verify(ctx, 0, lease.Epoch()); err == nil {
		fmt.Println("the epoch may still commit")
	}
	if _, err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	_, err = p.Verify(ctx, 0, lease.Epoch())
	fmt.Println("after the release:", errors.Is(err, allocator.ErrStale))
	// Output:
	// work in /srv/worktrees/0 with epoch 1
	// refused: capacity
	// the epoch may still commit
	// after the release: true
}

// A resource that can't ask keeps the highest epoch that it has seen beside what it guards.
func ExampleLease_Epoch() {
	highest := uint64(0)
	write := func(epoch uint64, text string) error {
		if epoch < highest {
			return fmt.Errorf("epoch %d is over, %d has written", epoch, highest)
		}
		highest = epoch
		return nil
	}
	fmt.Println(write(7, "by the new holder"))
	fmt.Println(write(6, "by one that was paused"))
	// Output:
	// <nil>
	// epoch 6 is over, 7 has written
}
