package combine

import (
	"context"
	"testing"
	"time"
)

// Somebody still looks at the context of an old batch while another one runs: the innocent batch is not over for that.
func TestBatchContext_LookedAtAfterItsBatch(t *testing.T) {
	t.Parallel()
	stale := func(look func(context.Context)) {
		batches, looked := 0, make(chan struct{})
		lane := New(1, time.Minute, func(ctx context.Context, _ []int) error {
			if batches++; batches == 1 {
				go func() {
					for range 1000 {
						look(ctx)
					}
					close(looked)
				}()
			}
			return nil
		})
		for i := range 2000 {
			ctx, cancel := context.Background(), context.CancelFunc(func() {})
			if i%2 == 0 {
				ctx, cancel = context.WithTimeout(ctx, time.Minute)
			}
			if err := lane.Do(ctx, i); err != nil {
				t.Error(err)
			}
			cancel()
		}
		<-looked
	}
	stale(func(ctx context.Context) { ctx.Deadline() })
	stale(func(ctx context.Context) { _ = ctx.Err() })
	stale(func(ctx context.Context) { ctx.Done() })
}

// The same where a schedule rarely goes: the look comes while the next batch begins.
func TestBatchContext_LookedAtWhileTheNextBegins(t *testing.T) {
	t.Parallel()
	for step := range 2 {
		c := new(batchContext)
		c.begin(bound{at: time.Now().Add(-time.Second)}, time.Minute) // over already
		c.end()
		if step == 0 { // before
			c.Deadline()
		}
		if !c.begin(bound{}, time.Minute) {
			c = new(batchContext)
			c.begin(bound{}, time.Minute)
		}
		if step == 1 { // after
			c.Deadline()
		}
		for range 3 {
			if err := c.Err(); err != nil {
				t.Errorf("step %d: a batch without a deadline begins with %v", step, err)
			}
		}
	}
}
