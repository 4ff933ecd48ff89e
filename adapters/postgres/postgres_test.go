package postgres

import (
	"context"
	"crypto/rand"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/stint-go/stint/adapters/internal/poolsql"
	"github.com/stint-go/stint/adapters/internal/spendsql"
	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(childJob) == "" {
		fewerChecks()
		skipExamples()
	}
	goleak.VerifyTestMain(m)
}

// fewerChecks makes less of CheckModel, unless it is told how much: here each command is several round trips.
func fewerChecks() {
	told := false
	flag.Visit(func(f *flag.Flag) { told = told || f.Name == "rapid.checks" })
	if !told {
		_ = flag.Set("rapid.checks", "15")
	}
}

// skipExamples leaves them out where there is no Postgres, for an example can't skip itself.
func skipExamples() {
	t := new(exampleTB)
	defer t.end()
	if t.database() == "" {
		_ = flag.Set("test.skip", strings.TrimPrefix(flag.Lookup("test.skip").Value.String()+"|^Example", "|"))
	}
}

func newPool(t testing.TB, dsn string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(cfg)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// loose leaves out the wait for the disk, for tests in which nothing crashes.
func loose(cfg *pgxpool.Config) {
	cfg.MaxConns = 20
	cfg.ConnConfig.RuntimeParams["synchronous_commit"] = "off"
}

func sql(t testing.TB, pool *pgxpool.Pool, text string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(context.Background(), text, args...); err != nil {
		t.Fatal(err)
	}
}

func ask[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) (v T) {
	t.Helper()
	if err := pool.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// schemas lends empty schemas, and takes them back: to make the tables of one takes longer than most tests.
type schemas struct {
	pool *pgxpool.Pool
	mu   sync.Mutex
	free []string
}

func (s *schemas) lend(t testing.TB) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var name string
	if n := len(s.free); n > 0 {
		name, s.free = s.free[n-1], s.free[:n-1]
	} else {
		name = `Test "` + rand.Text()
		if err := Migrate(t.Context(), s.pool, &Options{Schema: name}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		tables := slices.Concat(spendsql.Tables(), poolsql.Tables())
		for i := range tables { // children first
			table := tables[len(tables)-1-i]
			sql(t, s.pool, "DELETE FROM "+dialectOf(name).Name(table.Set, table.Name))
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.free = append(s.free, name)
	})
	return name
}

// open opens stores, each in a schema that is empty.
func (s *schemas) open(t testing.TB, clock func() time.Time) spendlimittest.Handle {
	o := &Options{Schema: s.lend(t), Clock: clock}
	var handle func(t testing.TB) spendlimittest.Handle
	handle = func(t testing.TB) spendlimittest.Handle {
		d := newDB(t, s.pool, o)
		return spendlimittest.Handle{Store: d.Spend(), Close: d.Close, Again: handle}
	}
	return handle(t)
}

func newDB(t testing.TB, pool *pgxpool.Pool, o *Options) *DB {
	t.Helper()
	d, err := New(t.Context(), pool, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func inMode(t testing.TB, mode pgx.QueryExecMode) spendlimittest.Open {
	return schemasInMode(t, mode).open
}

func schemasInMode(t testing.TB, mode pgx.QueryExecMode) *schemas {
	return &schemas{pool: newPool(t, testdb.Postgres(t), loose, func(cfg *pgxpool.Config) { cfg.ConnConfig.DefaultQueryExecMode = mode })}
}

// modes are all of pgx; the first is its default.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// The modes differ inside pgx: under the race detector, which is slow, the two that differ most are enough.
func TestConformance(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			if raceDetector && mode != pgx.QueryExecModeCacheStatement && mode != pgx.QueryExecModeSimpleProtocol {
				t.Skip("runs without -race")
			}
			spendlimittest.Run(t, inMode(t, mode))
		})
	}
}

func TestT8_EveryFaultHeals(t *testing.T) { spendlimittest.CheckFaults(t, inMode(t, modes[0])) }

func TestModel(t *testing.T) { spendlimittest.CheckModel(t, inMode(t, modes[0])) }

func TestLinearizable(t *testing.T) { spendlimittest.CheckLinearizable(t, inMode(t, modes[0])) }

// newLedger returns a ledger of requests on a new handle.
func newLedger(t testing.TB, pool *pgxpool.Pool, o *Options) *spendlimit.Ledger {
	t.Helper()
	return ledgerOn(t, newDB(t, pool, o).Spend(), spendlimit.Config{})
}

func ledgerOn(t testing.TB, s spendlimit.Store, cfg spendlimit.Config) *spendlimit.Ledger {
	t.Helper()
	if cfg.Unit == (spendlimit.Unit{}) {
		cfg.Unit = spendlimit.Requests
	}
	led, err := spendlimit.New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return led
}
