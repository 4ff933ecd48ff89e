package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/postgres"
	"github.com/stint-go/stint/adapters/sqlite/embedded"
	"github.com/stint-go/stint/internal/bench"
	"github.com/stint-go/stint/spendlimit"
)

func main() {
	which := flag.String("store", "sqlite", "")
	accounts := flag.Int("accounts", 1, "")
	secs := flag.Float64("s", 2, "")
	prof := flag.String("prof", "", "")
	flag.Parse()
	if *prof != "" {
		f, _ := os.Create(*prof)
		pprof.StartCPUProfile(f)
		defer pprof.StopCPUProfile()
	}
	ctx := context.Background()
	var store spendlimit.Store
	if *which == "sqlite" {
		dir, _ := os.MkdirTemp("", "zz5")
		defer os.RemoveAll(dir)
		db, err := embedded.Open(ctx, filepath.Join(dir, "x.db"), nil)
		if err != nil { panic(err) }
		store = db.Spend()
	} else {
		pool, err := pgxpool.New(ctx, os.Getenv("PGDSN"))
		if err != nil { panic(err) }
		o := &postgres.Options{Schema: fmt.Sprint("bench", time.Now().UnixNano())}
		if err := postgres.Migrate(ctx, pool, o); err != nil { panic(err) }
		db, err := postgres.New(ctx, pool, o)
		if err != nil { panic(err) }
		defer pool.Exec(ctx, "drop schema "+o.Schema+" cascade")
		store = db.Spend()
	}
	names := bench.Accounts(*accounts)
	led, err := bench.NewLedger(ctx, store, names, 1)
	if err != nil { panic(err) }
	n := 0
	for _, mode := range []string{"lib", "naive"} {
		for _, callers := range []int{1, 8, 64} {
			var mu sync.Mutex
			total := 0
			var wg sync.WaitGroup
			start := time.Now()
			for c := range callers {
				n++
				id := n
				wg.Go(func() {
					l := led
					if mode == "naive" {
						x, err := spendlimit.New(store, spendlimit.Config{Unit: spendlimit.USD})
						if err != nil { panic(err) }
						l = bench.Ledger{x}
					}
					k := 0
					for time.Since(start).Seconds() < *secs {
						a := (c*7919 + k*31) % len(names)
						if err := l.Pair(ctx, fmt.Sprint("c", id, "/", k), names[a:a+1]); err != nil { panic(err) }
						k++
					}
					mu.Lock(); total += k; mu.Unlock()
				})
			}
			wg.Wait()
			fmt.Printf("%s accounts=%d callers=%d %s: %.0f pairs/s\n", *which, *accounts, callers, mode, float64(total)/time.Since(start).Seconds())
		}
	}
}
