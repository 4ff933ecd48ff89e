package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/stint-go/stint/adapters/sqlite/embedded"
	"github.com/stint-go/stint/spendlimit"
)

// A service stores its own row and reserves the money for it in one commit: there is no job without money, and no money held
// for a job that is not there.
func Example_ownTransaction() {
	dir, err := os.MkdirTemp("", "stint")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	db, err := embedded.Open(ctx, filepath.Join(dir, "service.db"), nil)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.SQL().ExecContext(ctx, "CREATE TABLE job (id TEXT PRIMARY KEY)"); err != nil {
		panic(err)
	}
	usd := spendlimit.Config{Name: "usd", Unit: spendlimit.USD}
	led, err := spendlimit.New(db.Spend(), usd)
	if err != nil {
		panic(err)
	}
	_, err = led.SetLimit(ctx, spendlimit.Limit{Account: "acme", Name: "day", Kind: spendlimit.Day, Amount: spendlimit.USD.MustParse("1")}, "")
	if err != nil {
		panic(err)
	}

	start := func(id, amount string) error {
		tx, err := db.SQL().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() // nothing, after the commit
		if _, err := tx.ExecContext(ctx, "INSERT INTO job VALUES (?)", id); err != nil {
			return err
		}
		led, err := spendlimit.New(db.WithTx(tx).Spend(), usd)
		if err != nil {
			return err
		}
		_, err = led.Reserve(ctx, spendlimit.Request{
			Key: id, Accounts: []string{"acme"}, Amount: spendlimit.USD.MustParse(amount), TTL: time.Minute,
		})
		if err != nil {
			return err
		}
		return tx.Commit() // from here on both are there
	}
	fmt.Println(start("first", "0.75"))
	fmt.Println(errors.Is(start("second", "0.75"), spendlimit.ErrDenied))

	var jobs int
	if err := db.SQL().QueryRowContext(ctx, "SELECT count(*) FROM job").Scan(&jobs); err != nil {
		panic(err)
	}
	fmt.Println(jobs, "job")
	// Output:
	// <nil>
	// true
	// 1 job
}
