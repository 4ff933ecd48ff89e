// Package allocator leases exclusive things: worktrees, ports, run places. A pool has slots, and gives each to at most one holder at
// a time. It gets a slot back when the holder releases it, is proved gone, or lets its time run out.
//
//	p, err := allocator.New(db.Pools(), "worktrees", allocator.Options{})
//	_, err = p.Create(ctx, allocator.Spec{Capacity: 2, Attrs: map[int]map[string]string{0: {"path": "/srv/a"}, 1: {"path": "/srv/b"}}})
//	lease, err := p.AcquireWait(ctx, allocator.Request{Attempt: "run-1", Units: 1})
//	go lease.Keep(ctx)            // renews; never behind the work
//	select {
//	case <-lease.Done():          // the lease is over: stop
//	case result := <-work(lease.Slots()[0].Attrs["path"], lease.Epoch()):
//		_, err = lease.Release(ctx)
//	}
//
// # The promise
//
// Never two live leases on one slot, in the order of the store's commits; and no decision that was made on old evidence changes new
// state: a Reclaim names the fingerprint of exactly what was seen, and proves its reason again in the step that ends the lease.
// Every failure leans towards a slot that is busy for longer than it had to be. Unknown is never taken for dead.
//
// # What it does not promise
//
// A holder that is paused, or whose clock jumps, may go on working for a moment after its lease is over, because nobody can tell it. So
// every grant has an epoch, which is higher than those of all grants before it in the pool. The resource that the work changes checks it: it calls
// Verify, or keeps the highest epoch that it has seen and refuses lower ones (docs/operations.md). Where no resource can check, let the pool
// cool its slots (Policy.Cooling): a slot that was taken back stays out of use for a while.
//
// # Files
//
// types.go, state.go, holder.go, errors.go: what users say and hear. core*.go: the rules, pure; the numbers behind R are those of the rules
// that the comments name. fingerprint.go: the canonical bytes of evidence. pool.go, acquire.go, lease.go, handles.go, keep.go, reclaim.go, list.go: the
// service. store.go, set.go: what a store does. owner*.go: what a system says of a process. Amounts are not leased here: package
// spendlimit does that.
package allocator
