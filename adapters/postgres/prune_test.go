package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/internal/spendsql/spendsqltest"
	"github.com/stint-go/stint/spendlimit"
)

// between is called once, after a batch that has a statement with this text.
type between struct {
	text string
	seen bool
	call func()
}

func (b *between) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (b *between) TraceBatchQuery(_ context.Context, _ *pgx.Conn, q pgx.TraceBatchQueryData) {
	b.seen = b.seen || strings.Contains(q.SQL, b.text)
}

func (b *between) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {
	if call := b.call; b.seen && call != nil {
		b.call = nil
		call()
	}
}

func (b *between) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (b *between) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// An ended hold may be pruned by way of one of its accounts, while a step on another one looks at it.
func TestR76_PrunedByTwo(t *testing.T) {
	t.Parallel()
	r := newRoom(t, loose)
	clock := spendsqltest.NewClock(time.Now())
	o := &Options{Clock: clock.Now}
	led := newLedger(t, r.pool, o)
	setLimit(t, led, "b", 10)
	other := &between{}
	pool := newPool(t, r.pool.Config().ConnString(), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = other })
	both := newLedger(t, pool, o)
	prune := func(led *spendlimit.Ledger, account string) {
		t.Helper()
		if err := led.Prune(t.Context(), account, clock.Now().AddDate(0, 0, -40)); err != nil {
			t.Error(account, err)
		}
	}
	for name, text := range map[string]string{"prune": "marks = 0", "backfill": "ORDER BY o.hold_id"} {
		t.Run(name, func(t *testing.T) {
			reserve(t, led, name, 1, "a", "b")
			if _, err := led.Release(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			clock.Advance(50 * 24 * time.Hour)
			other.text, other.seen, other.call = text, false, func() { prune(led, "a") }
			if name == "prune" {
				prune(both, "b")
			} else if _, err := both.SetLimit(t.Context(), spendlimit.Limit{Account: "b", Name: "day", Kind: spendlimit.Day, Amount: 5}, "", spendlimit.Backfill); err != nil {
				t.Error(err)
			}
			if other.call != nil {
				t.Error("nobody came between")
			}
		})
	}
}
