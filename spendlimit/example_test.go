package spendlimit_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/stint-go/stint/adapters/memory"
	"github.com/stint-go/stint/spendlimit"
)

// The smallest useful program: one limit, one call inside it, one refusal.
func Example() {
	ctx, usd := context.Background(), spendlimit.USD.MustParse
	led, err := spendlimit.New(memory.New(nil).Spend(), spendlimit.Config{Unit: spendlimit.USD})
	if err != nil {
		log.Fatal(err)
	}
	limit := spendlimit.Limit{Account: "acme", Name: "daily", Kind: spendlimit.Day, Amount: usd("1.00")}
	if _, err := led.SetLimit(ctx, limit, ""); err != nil {
		log.Fatal(err)
	}
	hold, err := led.Reserve(ctx, spendlimit.Request{Key: "run-1", Accounts: []string{"acme"}, Amount: usd("0.80")})
	if err != nil {
		log.Fatal(err)
	}
	defer hold.Close(ctx) // if we get no further: what may have been spent stays charged
	if err := hold.Dispatch(ctx); err != nil {
		log.Fatal(err) // don't send the paid call
	}
	receipt, err := hold.Settle(ctx, spendlimit.Total(usd("0.35"))) // the call's true cost
	fmt.Println("returned:", spendlimit.USD.Format(receipt.Returned), err)

	_, err = led.Reserve(ctx, spendlimit.Request{Key: "run-2", Accounts: []string{"acme"}, Amount: usd("0.70")})
	if denied := (*spendlimit.DeniedError)(nil); errors.As(err, &denied) {
		fmt.Println("denied:", denied.Reason, "- free:", spendlimit.USD.Format(denied.Binding.Available))
	}
	// Output:
	// returned: 0.45 <nil>
	// denied: spent - free: 0.65
}
