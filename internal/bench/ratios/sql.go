package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/internal/bench"
	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit"
)

// How long a load runs in a turn: a disk gives no more than some hundred commits a second, so that the number of pairs
// can't be fixed.
const (
	while    = 400 * time.Millisecond
	forP99   = time.Second // a hundredth of the slower side's pairs has to be some
	lasting  = 10 * time.Second
	sqlTurns = 2
)

// stores are places for the stores in SQL.
type stores struct {
	dir  string // for files
	dsn  string // "": there is no Postgres
	drop func() error
	made int
}

func newStores() (*stores, error) {
	s := &stores{drop: func() error { return nil }}
	dsn, drop, err := testdb.Open()
	switch {
	case err == nil:
		s.dsn, s.drop = dsn, drop
	case !errors.Is(err, testdb.ErrMissing):
		return nil, err
	}
	s.dir, err = os.MkdirTemp("", "stint-ratios-")
	return s, err
}

func (s *stores) close() error { return errors.Join(s.drop(), os.RemoveAll(s.dir)) }

func (s *stores) name() string {
	s.made++
	return fmt.Sprint("ratios", s.made)
}

// figures lists what to measure on SQLite and Postgres. Where more is better, it is pairs per time.
func (s *stores) figures() []figure {
	var list []figure
	add := func(names string, subject, per prepare, bar *bar) {
		list = append(list, figure{names: names, measure: versus(subject, per, sqlTurns), bar: bar})
	}
	load := func(callers, accounts int) bench.Load { return bench.Load{Callers: callers, Accounts: accounts} }

	add("S1 X3/64", rate(load(64, 1), s.sqlite), rate(load(64, 1), s.sqliteTwin), atLeast(8, 18))
	add("X3/8", rate(load(8, 1), s.sqlite), rate(load(8, 1), s.sqliteTwin), atLeast(2.5, 4))
	add("S2 X3/1", rate(load(1, 1), s.sqlite), rate(load(1, 1), s.sqliteTwin), atLeast(0.7, 0.9))
	add("S3", rate(load(64, many), s.sqlite), rate(load(64, many), s.sqliteTwin), atLeast(6, 12))
	add("X4/p99", p99(load(64, 1), s.sqlite), p99(load(64, 1), s.sqliteTwin), atMost(0.25, 0.1))
	add("X4/normal", rate(load(64, 1), s.normal), rate(load(64, 1), s.normalTwin), atLeast(4, 7))
	list = append(list, figure{"G1/sqlite", versus(beside(openHolds, s.sqlite), beside(10, s.sqlite), turns), atMost(1.5, 1.1), 1})

	forUpdate, once, bare := s.forUpdate, s.oneStatement, s.bare
	add("P1 X5/64", rate(load(64, 1), s.postgres), rate(load(64, 1), forUpdate), atLeast(12, 35))
	add("X5/8", rate(load(8, 1), s.postgres), rate(load(8, 1), forUpdate), atLeast(2.5, 4))
	add("P2 X6/64-over-4", rate(load(64, 1), s.postgres), rate(load(64, 1), once(4)), atLeast(4, 10))
	add("X6/64-over-64", rate(load(64, 1), s.postgres), rate(load(64, 1), once(64)), atLeast(10, 24))
	add("P3 X6/1", rate(load(1, 1), s.postgres), rate(load(1, 1), once(1)), atLeast(0.5, 0.9))
	add("X7", rate(load(64, 1), s.postgres), rate(load(64, 1), bare(64)), atLeast(7, 17))
	add("X7/over-4", rate(load(64, 1), s.postgres), rate(load(64, 1), bare(4)), nil)
	add("P4 X8/1024", rate(load(64, many), s.postgres), rate(load(64, many), forUpdate), atLeast(3, 6))
	add("L1 X9/64", rate(load(64, 1), s.lease(1000)), rate(load(64, 1), once(4)), atLeast(100, 1000))
	add("X9/1", rate(load(1, 1), s.lease(1000)), rate(load(1, 1), once(1)), atLeast(100, 900))
	add("X9/100", rate(load(1, 1), s.lease(100)), rate(load(1, 1), once(1)), atLeast(50, 150))
	add("X8/p99", p99(load(64, 1), s.postgres), p99(load(64, 1), forUpdate), atMost(0.1, 0.03))
	return append(list,
		figure{names: "P5", measure: s.sustained, bar: atLeast(0.6, 0.85), rounds: 3},
		figure{names: "P6 X12", measure: s.deadlocks, bar: atMost(0, 0), rounds: 1},
		figure{"G1/postgres", versus(beside(openHolds, s.postgres), beside(10, s.postgres), turns), atMost(1.5, 1.1), 1})
}

// opened is a store with what closes it.
type opened struct {
	bench.Subject
	close func() error
}

// open makes a store or a twin, with a pair on each account.
type open func(ctx context.Context, accounts []string) (opened, error)

func rate(l bench.Load, o open) prepare { return during(l, o, while, bench.Tally.Rate) }
func p99(l bench.Load, o open) prepare  { return during(l, o, forP99, bench.Tally.P99) }

func during(l bench.Load, o open, while time.Duration, value func(bench.Tally) int64) prepare {
	return func(ctx context.Context, _ int) (trial, error) {
		s, err := o(ctx, bench.Accounts(l.Accounts))
		if err == nil { // opens connections, prepares statements
			_, err = l.During(ctx, s, "warm", while/4)
		}
		return trial{func(ctx context.Context, turn int) (int64, error) {
			t, err := l.During(ctx, s, fmt.Sprint("turn-", turn), while)
			return value(t), err
		}, s.close}, err
	}
}

// beside takes the median time of a lone pair beside n open holds.
func beside(n int, o open) prepare {
	const some = 100
	return func(ctx context.Context, turns int) (trial, error) {
		accounts := bench.Accounts(1)
		s, err := o(ctx, accounts)
		if err == nil {
			err = s.Subject.(interface {
				Hold(ctx context.Context, account string, n int) error
			}).Hold(ctx, accounts[0], n)
		}
		plans := bench.Load{Callers: 1, Accounts: 1, Pairs: some * turns}.Plans(turns)
		return trial{func(ctx context.Context, turn int) (int64, error) { return plans[turn].P50(ctx, s) }, s.close}, err
	}
}

func (s *stores) sqlite(ctx context.Context, accounts []string) (opened, error) {
	return s.file(ctx, accounts, bench.OpenSQLite, false)
}

func (s *stores) sqliteTwin(ctx context.Context, accounts []string) (opened, error) {
	return s.file(ctx, accounts, bench.OpenSQLite, true)
}

func (s *stores) normal(ctx context.Context, accounts []string) (opened, error) {
	return s.file(ctx, accounts, bench.OpenSQLiteNormal, false)
}

func (s *stores) normalTwin(ctx context.Context, accounts []string) (opened, error) {
	return s.file(ctx, accounts, bench.OpenSQLiteNormal, true)
}

type openFile func(ctx context.Context, path string, accounts []string) (*bench.SQLite, error)

func (s *stores) file(ctx context.Context, accounts []string, open openFile, twin bool) (opened, error) {
	path := filepath.Join(s.dir, s.name())
	db, err := open(ctx, path, accounts)
	if err != nil {
		return opened{}, err
	}
	gone := func() error { return errors.Join(os.Remove(path)) }
	if !twin {
		return opened{db, func() error { return errors.Join(db.Close(), gone()) }}, nil
	}
	t, err := bench.NewSQLiteTwin(ctx, db.DB)
	return opened{t, func() error { return errors.Join(t.Close(), db.Close(), gone()) }}, err
}

var errNoPostgres = fmt.Errorf("%w: no Postgres", errSkipped)

func (s *stores) postgres(ctx context.Context, accounts []string) (opened, error) {
	o, _, err := s.schema(ctx, accounts)
	return o, err
}

func (s *stores) schema(ctx context.Context, accounts []string) (opened, string, error) {
	if s.dsn == "" {
		return opened{}, "", errNoPostgres
	}
	name := s.name()
	db, err := bench.OpenPostgres(ctx, s.dsn, name, accounts)
	if err != nil {
		return opened{}, "", err
	}
	return opened{db, func() error {
		return errors.Join(db.Close(), bench.DropSchema(context.WithoutCancel(ctx), s.dsn, name))
	}}, name, nil
}

// postgresTwin makes a twin on the tables of a ledger that has done its part.
func (s *stores) postgresTwin(connections int, of func(context.Context, *bench.PostgresTwin, []string) (bench.Subject, error)) open {
	return func(ctx context.Context, accounts []string) (opened, error) {
		made, schema, err := s.schema(ctx, accounts)
		if err != nil {
			return made, err
		}
		p, err := bench.NewPostgresTwin(ctx, s.dsn, schema, connections)
		if err != nil {
			return made, err
		}
		twin, err := of(ctx, p, accounts)
		return opened{twin, func() error { return errors.Join(p.Close(), made.close()) }}, err
	}
}

func (s *stores) forUpdate(ctx context.Context, accounts []string) (opened, error) {
	return s.postgresTwin(64, func(_ context.Context, p *bench.PostgresTwin, _ []string) (bench.Subject, error) {
		return bench.NewForUpdate(p), nil
	})(ctx, accounts)
}

func (s *stores) oneStatement(connections int) open {
	return s.postgresTwin(connections, func(_ context.Context, p *bench.PostgresTwin, _ []string) (bench.Subject, error) {
		return bench.NewOneStatement(p), nil
	})
}

func (s *stores) bare(connections int) open {
	return s.postgresTwin(connections, func(ctx context.Context, p *bench.PostgresTwin, accounts []string) (bench.Subject, error) {
		return bench.NewBare(ctx, p, accounts)
	})
}

// lease makes pairs inside a lease of so many, which takes its room from Postgres as it goes.
func (s *stores) lease(holds int) open {
	return func(ctx context.Context, accounts []string) (opened, error) {
		made, _, err := s.schema(ctx, accounts)
		if err != nil {
			return made, err
		}
		local := func() spendlimit.Store { return memory.New(nil).Spend() }
		l, err := bench.NewLease(ctx, made.Subject.(*bench.Postgres).Ledger, accounts[0], holds, local)
		if err != nil {
			return made, err
		}
		ran := make(chan error, 1)
		go func() { ran <- l.Run(ctx) }()
		return opened{l, func() error { return errors.Join(l.Close(ctx), <-ran, made.close()) }}, nil
	}
}

// sustained compares the last of some seconds of load with the first.
func (s *stores) sustained(ctx context.Context) (_ []float64, err error) {
	o, err := s.postgres(ctx, bench.Accounts(1))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	l := bench.Load{Callers: 64, Accounts: 1}
	if _, err := l.During(ctx, o, "warm", while); err != nil {
		return nil, err
	}
	t, err := l.During(ctx, o, "turn", lasting)
	var first, last float64
	for _, end := range t.Ends {
		switch {
		case end <= time.Second:
			first++
		case end > lasting-time.Second && end <= lasting:
			last++
		}
	}
	return []float64{last / first}, err
}
