package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

// poolers are the modes that work behind a pooler of transactions, and how many prepared statements it has to keep.
var poolers = []struct {
	mode     pgx.QueryExecMode
	prepared int
}{
	{pgx.QueryExecModeExec, 0}, {pgx.QueryExecModeCacheDescribe, 0}, {pgx.QueryExecModeSimpleProtocol, 0}, {pgx.QueryExecModeCacheStatement, 100},
}

// bounced is a new database behind a pgbouncer: DSNs that lead there directly and through it, and whether it keeps
// prepared statements.
type bounced struct {
	direct, dsn string
	prepares    bool
}

// behindPgBouncer skips under the race detector: what is new here happens in another program.
func behindPgBouncer(t testing.TB, prepared int) bounced {
	t.Helper()
	if raceDetector {
		t.Skip("runs without -race")
	}
	b := bounced{direct: testdb.Postgres(t)}
	b.dsn, b.prepares = testdb.PgBouncer(t, b.direct, prepared)
	pool := newPool(t, b.direct) // which is loose by its database: the pooler refuses settings that come with a connection
	sql(t, pool, "ALTER DATABASE "+pool.Config().ConnConfig.Database+" SET synchronous_commit = off")
	return b
}

// pool is a pool in a mode of up to n connections to the pooler.
func (b bounced) pool(t testing.TB, mode pgx.QueryExecMode, n int32) *pgxpool.Pool {
	t.Helper()
	return newPool(t, b.dsn, func(cfg *pgxpool.Config) {
		cfg.MaxConns = n
		cfg.ConnConfig.DefaultQueryExecMode = mode
	})
}

func TestPgBouncer_Conformance(t *testing.T) {
	s := &schemas{pool: behindPgBouncer(t, 0).pool(t, pgx.QueryExecModeExec, 20)}
	spendlimittest.Run(t, s.open)
}

// Two processes with more connections to the pooler than it has to the server: limits hold, and the sums are exact.
func TestPgBouncer_Load(t *testing.T) {
	for _, p := range poolers {
		t.Run(p.mode.String(), func(t *testing.T) {
			t.Parallel()
			b := behindPgBouncer(t, p.prepared)
			if p.prepared > 0 && !b.prepares {
				t.Skip("this pgbouncer is older than 1.21")
			}
			if err := Migrate(t.Context(), b.pool(t, p.mode, 1), nil); err != nil {
				t.Fatal(err)
			}
			const limit, callers, calls = 100, 8, 6 // 192 if all were admitted
			var all sync.WaitGroup
			var spent atomic.Int64
			for process := range 2 {
				d := newDB(t, b.pool(t, p.mode, callers), nil)
				for caller := range callers {
					led := ledgerOn(t, d.Spend(), spendlimit.Config{Defaults: func(string) []spendlimit.Limit {
						return []spendlimit.Limit{{Name: "all", Kind: spendlimit.AllTime, Amount: limit}}
					}})
					all.Go(func() {
						for n := range calls {
							key := fmt.Sprint(process, caller, n)
							if _, err := led.Reserve(t.Context(), hold(key, 3, "shared")); refused(t, err) {
								continue
							}
							if _, err := led.Settle(t.Context(), key, spendlimit.Total(2)); err != nil {
								t.Error(err)
							}
							spent.Add(2)
						}
					})
				}
			}
			all.Wait()
			d := newDB(t, b.pool(t, p.mode, 2), nil)
			led := ledgerOn(t, d.Spend(), spendlimit.Config{})
			wants(t, led, "shared", 0)
			for balance, err := range led.Balances(t.Context(), "shared", time.Time{}) {
				if err != nil || int64(balance.Spent) != spent.Load() || balance.Spent > limit || balance.Spent == 0 {
					t.Errorf("spent %d of %d, settled %d, error %v", balance.Spent, limit, spent.Load(), err)
				}
			}
			// Inside the caller's own transaction.
			setLimit(t, led, "own", 10)
			for _, keep := range []bool{false, true} {
				tx := begin(t, d, pgx.TxOptions{})
				reserve(t, in(t, d, tx), "run", 5, "own")
				if keep {
					commit(t, tx)
				} else if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			wants(t, led, "own", 5)
		})
	}
}

// In pgx's own default a connection finds the statements of another one: a pooler that keeps none refuses loudly.
func TestPgBouncer_PreparedStatements(t *testing.T) {
	t.Parallel()
	b := behindPgBouncer(t, 0)
	if err := Migrate(t.Context(), newPool(t, b.direct), nil); err != nil {
		t.Fatal(err)
	}
	newDB(t, b.pool(t, pgx.QueryExecModeCacheStatement, 1), nil)
	_, err := New(t.Context(), b.pool(t, pgx.QueryExecModeCacheStatement, 1), nil)
	is(t, err, spendlimit.ErrUnavailable)
	if code(err) != "42P05" {
		t.Errorf("error %v", err)
	}
}

// A pooler that loses its servers at any moment tells no lies, and does nothing twice.
func TestPgBouncer_LosesItsServers(t *testing.T) {
	t.Parallel()
	b := behindPgBouncer(t, 0)
	if err := Migrate(t.Context(), newPool(t, b.direct), nil); err != nil {
		t.Fatal(err)
	}
	direct := newPool(t, b.direct, func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	truth := newLedger(t, direct, nil)
	setLimit(t, truth, "big", 1_000_000)
	led := newLedger(t, b.pool(t, pgx.QueryExecModeExec, 4), nil)
	var all sync.WaitGroup
	end := time.Now().Add(500 * time.Millisecond)
	all.Go(func() {
		for time.Now().Before(end) {
			time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
			_, err := direct.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
			if err != nil {
				t.Error(err)
			}
		}
	})
	var failed atomic.Int64
	var calls atomic.Int64
	for caller := range 4 {
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				key := fmt.Sprint(caller, n)
				calls.Add(1)
				for {
					_, err := led.Reserve(t.Context(), hold(key, 1, "big"))
					if err == nil {
						break
					}
					if !errors.Is(err, spendlimit.ErrUnavailable) && !errors.Is(err, spendlimit.ErrUncertain) {
						t.Error(err)
						return
					}
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	if failed.Load() == 0 {
		t.Error("no call failed")
	}
	wants(t, truth, "big", spendlimit.Amount(calls.Load()))
}

// Whether it waits for a lock on the server or for a connection to it, a call ends with its context, and leaves nothing
// behind.
func TestPgBouncer_Deadlines(t *testing.T) {
	t.Parallel()
	b := behindPgBouncer(t, 0)
	direct := newPool(t, b.direct)
	if err := Migrate(t.Context(), direct, nil); err != nil {
		t.Fatal(err)
	}
	setLimit(t, newLedger(t, direct, nil), "a", 10)
	pool := b.pool(t, pgx.QueryExecModeExec, 8)
	d := newDB(t, pool, nil)
	led := ledgerOn(t, d.Spend(), spendlimit.Config{})
	late := func(key string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := led.Reserve(ctx, hold(key, 1, "a"))
		if !errors.Is(err, spendlimit.ErrUnavailable) && !errors.Is(err, spendlimit.ErrUncertain) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("took %v", took)
		}
	}
	lock := begin(t, newDB(t, direct, nil), pgx.TxOptions{})
	txExec(t, lock, "SELECT FROM stint.spend_account WHERE name = 'a' FOR UPDATE")
	late("behind a lock")
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	quiet(t, direct)
	var busy []pgx.Tx
	for range 4 { // as many as the pooler has
		tx := begin(t, d, pgx.TxOptions{})
		txExec(t, tx, "SELECT 1")
		busy = append(busy, tx)
	}
	late("without a connection")
	for _, tx := range busy {
		commit(t, tx)
	}
	quiet(t, direct)
	for _, key := range []string{"behind a lock", "without a connection"} { // may have been applied all the same
		reserve(t, led, key, 1, "a")
	}
	wants(t, led, "a", 2)
}
