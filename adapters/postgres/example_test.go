package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/postgres"
	"github.com/stint-go/stint/spendlimit"
)

// A service inserts its own row of a run and reserves the run's budget in one commit: there is never one without the other.
func ExampleDB_WithTx() {
	ctx := context.Background()
	pool, drop := postgres.PoolForExample() // pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	defer drop()
	if err := postgres.Migrate(ctx, pool, nil); err != nil {
		log.Fatal(err)
	}
	db, err := postgres.New(ctx, pool, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE run (id text PRIMARY KEY)"); err != nil {
		log.Fatal(err)
	}
	dollars := spendlimit.Config{Name: "usd", Unit: spendlimit.USD}
	ledger, err := spendlimit.New(db.Spend(), dollars)
	if err != nil {
		log.Fatal(err)
	}
	day := spendlimit.Limit{Account: "acme", Name: "day", Kind: spendlimit.Day, Amount: 10_000_000_000}
	if _, err := ledger.SetLimit(ctx, day, ""); err != nil {
		log.Fatal(err)
	}

	start := func(run string, budget spendlimit.Amount) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }() // does nothing after the commit
		if _, err := tx.Exec(ctx, "INSERT INTO run VALUES ($1)", run); err != nil {
			return err
		}
		inside, err := spendlimit.New(db.WithTx(tx).Spend(), dollars)
		if err != nil {
			return err
		}
		_, err = inside.Reserve(ctx, spendlimit.Request{Key: run, Accounts: []string{"acme"}, Amount: budget, TTL: time.Hour})
		if err != nil {
			return err
		}
		return tx.Commit(ctx)
	}
	fmt.Println("run-1:", start("run-1", 8_000_000_000))
	fmt.Println("run-2 denied:", errors.Is(start("run-2", 8_000_000_000), spendlimit.ErrDenied))
	fmt.Println("runs:", count(ctx, pool))
	for hold, err := range ledger.Holds(ctx, spendlimit.HoldFilter{}) {
		fmt.Println("hold:", hold.Key, err)
	}
	// Output:
	// run-1: <nil>
	// run-2 denied: true
	// runs: 1
	// hold: run-1 <nil>
}

func count(ctx context.Context, pool *pgxpool.Pool) (n int) {
	if err := pool.QueryRow(ctx, "SELECT count(*) FROM run").Scan(&n); err != nil {
		log.Fatal(err)
	}
	return n
}
