package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/allocator"
	"github.com/stint-go/stint/internal/bench"
)

// poolFigures lists what to measure of package allocator in memory. One hot pool, if nothing else is said.
func poolFigures() []figure {
	var list []figure
	add := func(names string, subject, per prepare, bar *bar) {
		list = append(list, figure{names: names, measure: versus(subject, per, turns), bar: bar})
	}
	for _, callers := range []int{1, 8, 64} {
		pair, renew := atMost(90, 8), atMost(60, 5) // docs/decisions.md says why not 20 and 12, 15 and 10
		add(fmt.Sprintf("pool/memory/%d", callers), timed(load(callers, 1), slots), often(load(callers, 1), slotTwin), pair)
		add(fmt.Sprintf("renew/memory/%d", callers), timed(load(callers, 1), renewals), often(load(callers, 1), renewTwin), renew)
	}
	add("pool/memory/64÷1", timed(load(64, 1), slots), timed(load(1, 1), slots), atMost(6, 1))
	add("pool/memory/allocations", allocated(slots), one, atMost(9.5, 6))
	add("pool/memory/10000-slots", p50(slotsBeside(10_000)), p50(slotsBeside(10)), atMost(1.5, 1.1))
	add("sweep/memory/10000-slots÷reading", few(idleSweep), few(reading), atMost(5, 1))
	return list
}

func slots(ctx context.Context) (bench.Subject, error) { return freshPools(ctx, bench.Slots) }

func slotTwin(context.Context) (bench.Subject, error) { return bench.NewSlotTwin(bench.Slots), nil }

func renewals(ctx context.Context) (bench.Subject, error) {
	p, err := freshPools(ctx, bench.Slots)
	if err != nil {
		return nil, err
	}
	return bench.NewRenewals(ctx, p.Pool(hotPool), 64)
}

func renewTwin(context.Context) (bench.Subject, error) { return bench.NewRenewTwin(64), nil }

var hotPool = bench.Accounts(1)[0]

func freshPools(ctx context.Context, slots int) (bench.Pools, error) {
	return bench.NewPools(ctx, memory.New(nil).Pools(), bench.Accounts(1), slots)
}

// often is for twins: they take their load often, to be timed for about as long as the library.
func often(l bench.Load, s setup) prepare {
	return measured(l, s, func(ctx context.Context, p bench.Plan, s bench.Subject) (int64, error) { return p.Time(ctx, s, 20) })
}

func allocated(s setup) prepare {
	return measured(load(1, 1), s, func(ctx context.Context, p bench.Plan, s bench.Subject) (int64, error) { return p.Allocations(ctx, s) })
}

// few is p50 of what takes long.
func few(s setup) prepare {
	return measured(bench.Load{Callers: 1, Accounts: 1, Pairs: 20 * turns}, s, func(ctx context.Context, p bench.Plan, s bench.Subject) (int64, error) {
		return p.P50(ctx, s)
	})
}

// slotsBeside is a pool with so many live slots, and some free ones.
func slotsBeside(n int) setup {
	return func(ctx context.Context) (bench.Subject, error) {
		p, err := freshPools(ctx, min(n+8, 10_000))
		if err == nil {
			err = p.Hold(ctx, hotPool, min(n, 10_000-8))
		}
		return p, err
	}
}

// each is a Subject that calls a function.
type each func(ctx context.Context) error

func (f each) Pair(ctx context.Context, _ string, _ []string) error { return f(ctx) }

// idleSweep sweeps 10,000 slots where there is nothing to do.
func idleSweep(ctx context.Context) (bench.Subject, error) {
	p, err := slotsBeside(10_000)(ctx)
	if err != nil {
		return nil, err
	}
	pool := p.(bench.Pools).Pool(hotPool)
	return each(func(ctx context.Context) error {
		s, err := pool.Sweep(ctx, 10_000)
		if err == nil && s.Reclaimed+s.Thawed+s.Purged > 0 {
			err = fmt.Errorf("the sweep had something to do: %+v", s)
		}
		return err
	}), nil
}

// reading reads 10,000 slots.
func reading(ctx context.Context) (bench.Subject, error) {
	p, err := slotsBeside(10_000)(ctx)
	if err != nil {
		return nil, err
	}
	pool := p.(bench.Pools).Pool(hotPool)
	return each(func(ctx context.Context) error {
		for from := 0; from < 10_000; from += 1000 {
			if _, err := pool.Probes(ctx, from, 1000); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

// poolFigures lists what to measure of package allocator on SQLite and Postgres.
func (s *stores) poolFigures() []figure {
	var list []figure
	add := func(names string, subject, per prepare, bar *bar) {
		list = append(list, figure{names, versus(subject, per, sqlTurns), bar, 3})
	}
	load := func(callers int) bench.Load { return bench.Load{Callers: callers, Accounts: 1} }
	spread := bench.Load{Callers: 64, Accounts: 64}
	// Told, not judged: docs/decisions.md says why.
	add("pool/sqlite/64-pools", rate(spread, s.sqlitePools(bench.OpenSQLite, 0)), rate(spread, s.sqlitePoolTwin(bench.OpenSQLite, 0)), nil)
	add("pool/postgres/64-pools", rate(spread, s.postgresPools(0)), rate(spread, s.postgresPoolTwin(0)), nil)
	add("hand-over/sqlite", rate(load(64), s.handOver(s.sqliteStore, true)), rate(load(64), s.handOver(s.sqliteStore, false)), nil)
	add("hand-over/postgres", rate(load(64), s.handOver(s.postgresStore, true)), rate(load(64), s.handOver(s.postgresStore, false)), nil)
	for callers, floors := range map[int][3]*bar{
		1:  {atLeast(0.7, 0.9), atLeast(0.7, 0.9), atLeast(0.7, 0.9)},
		8:  {atLeast(3, 4), atLeast(2, 3), atLeast(2.5, 5)},
		64: {atLeast(8, 18), atLeast(4, 8), atLeast(12, 35)},
	} {
		for kind, leases := range map[string]int{"pool": 0, "renew": 64} {
			add(fmt.Sprintf("%s/sqlite/%d", kind, callers), rate(load(callers), s.sqlitePools(bench.OpenSQLite, leases)), rate(load(callers), s.sqlitePoolTwin(bench.OpenSQLite, leases)), floors[0])
			add(fmt.Sprintf("%s/postgres/%d", kind, callers), rate(load(callers), s.postgresPools(leases)), rate(load(callers), s.postgresPoolTwin(leases)), floors[2])
		}
		add(fmt.Sprintf("pool/sqlite-normal/%d", callers), rate(load(callers), s.sqlitePools(bench.OpenSQLiteNormal, 0)), rate(load(callers), s.sqlitePoolTwin(bench.OpenSQLiteNormal, 0)), floors[1])
	}
	slices.SortFunc(list, func(a, b figure) int { return strings.Compare(a.names, b.names) })
	return list
}

// subjectOn makes pools on a store, with a pair made in each, or renewals in the first.
func subjectOn(ctx context.Context, store allocator.Store, names []string, leases int) (bench.Subject, error) {
	p, err := bench.NewPools(ctx, store, names, bench.Slots)
	if err == nil {
		err = bench.Touch(ctx, p, names)
	}
	if err != nil || leases == 0 {
		return p, err
	}
	return bench.NewRenewals(ctx, p.Pool(hotPool), leases)
}

func (s *stores) sqlitePools(make openFile, leases int) open {
	return func(ctx context.Context, names []string) (opened, error) {
		db, gone, err := s.poolFile(ctx, make)
		if err != nil {
			return opened{}, err
		}
		subject, err := subjectOn(ctx, db.Store.Pools(), names, leases)
		return opened{subject, gone}, err
	}
}

func (s *stores) sqlitePoolTwin(make openFile, leases int) open {
	return func(ctx context.Context, names []string) (opened, error) {
		db, gone, err := s.poolFile(ctx, make)
		if err != nil {
			return opened{}, err
		}
		if _, err := subjectOn(ctx, db.Store.Pools(), names, 0); err != nil {
			return opened{}, errors.Join(err, gone())
		}
		t, err := bench.NewSQLitePoolTwin(ctx, db.DB, names, leases)
		return opened{t, func() error { return errors.Join(t.Close(), gone()) }}, err
	}
}

func (s *stores) poolFile(ctx context.Context, make openFile) (*bench.SQLite, func() error, error) {
	path := filepath.Join(s.dir, s.name())
	db, err := make(ctx, path, nil)
	return db, func() error { return errors.Join(db.Close(), os.Remove(path)) }, err
}

func (s *stores) postgresPools(leases int) open {
	return func(ctx context.Context, names []string) (opened, error) {
		o, _, err := s.schema(ctx, nil)
		if err != nil {
			return o, err
		}
		subject, err := subjectOn(ctx, o.Subject.(*bench.Postgres).Store.Pools(), names, leases)
		return opened{subject, o.close}, err
	}
}

func (s *stores) postgresPoolTwin(leases int) open {
	return func(ctx context.Context, names []string) (opened, error) {
		o, schema, err := s.schema(ctx, nil)
		if err != nil {
			return o, err
		}
		if _, err := subjectOn(ctx, o.Subject.(*bench.Postgres).Store.Pools(), names, 0); err != nil {
			return o, err
		}
		t, err := bench.NewPostgresPoolTwin(ctx, s.dsn, schema, names, leases)
		return opened{t, func() error { return errors.Join(t.Close(), o.close()) }}, err
	}
}

// storeOf opens a store in a place of its own.
type storeOf func(ctx context.Context) (allocator.Store, func() error, error)

func (s *stores) sqliteStore(ctx context.Context) (allocator.Store, func() error, error) {
	db, gone, err := s.poolFile(ctx, bench.OpenSQLite)
	if err != nil {
		return nil, nil, err
	}
	return db.Store.Pools(), gone, nil
}

func (s *stores) postgresStore(ctx context.Context) (allocator.Store, func() error, error) {
	o, _, err := s.schema(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	return o.Subject.(*bench.Postgres).Store.Pools(), o.close, nil
}

// handOver passes one slot on among all callers: waiting for it, or asking every 100 ms.
func (s *stores) handOver(of storeOf, waiting bool) open {
	return func(ctx context.Context, names []string) (opened, error) {
		store, gone, err := of(ctx)
		if err != nil {
			return opened{}, err
		}
		p, err := bench.NewPools(ctx, store, names, 1)
		return opened{bench.HandOver{Pools: p, Waiting: waiting}, gone}, err
	}
}
