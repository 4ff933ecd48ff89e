// Package combine turns concurrent calls into batches without a goroutine of its own.
//
// A caller that finds a [Lane] without a leader becomes the leader and runs its command at once. Callers that come
// meanwhile wait in order of arrival; when the batch is done the first of them becomes the next leader and runs all who
// wait in one batch. So a lone caller pays a few dozen nanoseconds, and under load the cost of one run (a lock, a
// transaction, a disk flush) is shared by everybody who waited for it.
//
//	type deposit struct {
//		amount, balance int64 // in, out
//		err             error // this deposit's own refusal
//	}
//	lane := combine.New(512, 10*time.Second, func(ctx context.Context, batch []*deposit) error {
//		return store.Step(ctx, func(balance int64) int64 {
//			for _, d := range batch {
//				balance += d.amount
//				d.balance = balance
//			}
//			return balance
//		})
//	})
//	d := deposit{amount: 5}
//	err := lane.Do(ctx, &d)
//
// What a Lane promises: a command runs at most once; it runs exactly once if Do returns what run returned; it never runs
// if Do returns [ErrNotStarted]; no caller waits for a lane that has nobody to run it, whatever is cancelled or panics.
package combine
