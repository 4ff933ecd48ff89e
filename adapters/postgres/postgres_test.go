package postgres

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

func newPool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// open returns a handle on tables in a schema of their own.
func open(pool func(testing.TB) *pgxpool.Pool) spendlimittest.Open {
	return func(t testing.TB, clock func() time.Time) spendlimittest.Handle {
		p := pool(t)
		o := &Options{Schema: "test " + rand.Text(), clock: clock}
		if err := Migrate(t.Context(), p, o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, err := p.Exec(context.Background(), "DROP SCHEMA "+pgx.Identifier{o.Schema}.Sanitize()+" CASCADE")
			if err != nil {
				t.Error(err)
			}
		})
		var handle func(t testing.TB) spendlimittest.Handle
		handle = func(t testing.TB) spendlimittest.Handle {
			d, err := New(t.Context(), p, o)
			if err != nil {
				t.Fatal(err)
			}
			return spendlimittest.Handle{Store: d.Spend(), Close: d.Close, Again: handle}
		}
		return handle(t)
	}
}

func onPool(t *testing.T) spendlimittest.Open {
	pool := newPool(t, testdb.Postgres(t)+" pool_max_conns=20")
	return open(func(testing.TB) *pgxpool.Pool { return pool })
}

func TestConformance(t *testing.T) { spendlimittest.Run(t, onPool(t)) }

func TestT8_EveryFaultHeals(t *testing.T) { spendlimittest.CheckFaults(t, onPool(t)) }

func TestModel(t *testing.T) { spendlimittest.CheckModel(t, onPool(t)) }

func TestLinearizable(t *testing.T) { spendlimittest.CheckLinearizable(t, onPool(t)) }
