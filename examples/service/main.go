// Service admits runs of paid work by budget, over HTTP. It keeps its runs and its ledger in one database, and needs no
// set-up:
//
//	go run ./examples/service
//	curl -i -H 'Content-Type: application/json' -H 'Idempotency-Key: a1' -d '{"account":"acme","estimated_cost":"0.80"}' localhost:8080/runs
//	curl -i -H 'Content-Type: application/json' -d '{"cost":"0.35"}' localhost:8080/runs/RUN/settle
//	curl -i localhost:8080/accounts/acme/balances
//
// It has no authentication: put it behind something that has. Bad flags are one line on stderr and exit status 2.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // zones work on machines that have no time zone data

	"github.com/stint-go/stint/spendlimit"
)

func main() {
	// After the first signal another one ends the program at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	cfg, err := parseFlags(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return // it was printed
	}
	if err == nil {
		err = run(ctx, cfg, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "service:", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(2)
	}
}

// config is what the flags say.
type config struct {
	addr  string
	store storeName
	limit spendlimit.Amount // of each account and day
	zone  string
	ttl   time.Duration
}

// parseFlags prints help on stdout, when asked for it.
func parseFlags(args []string, stdout io.Writer) (config, error) {
	var cfg config
	var store, limit string
	fs := flag.NewFlagSet("service", flag.ContinueOnError)
	fs.SetOutput(io.Discard) // errors are printed once, by main
	fs.StringVar(&cfg.addr, "addr", "127.0.0.1:8080", "`address` to listen on")
	fs.StringVar(&store, "store", "sqlite:service.db", "`place` of the runs and the ledger: sqlite:FILE or postgres:DSN")
	fs.StringVar(&limit, "limit", "5", "`USD` per day that an account may spend; for accounts that are new")
	fs.StringVar(&cfg.zone, "zone", "UTC", "IANA `name` of the time zone whose midnights count; for accounts that are new")
	fs.DurationVar(&cfg.ttl, "ttl", time.Hour, "`time` after which a run that was not settled counts at its estimate, 1s to 24h")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stdout, "Usage of service:")
			fs.SetOutput(stdout)
			fs.PrintDefaults()
		}
		return cfg, err
	}
	if fs.NArg() > 0 {
		return cfg, errors.New("unexpected argument: a value with spaces needs quotes") // no word of it: it may be of a DSN, and a password
	}
	var err error
	if cfg.store, err = parseStore(store); err != nil {
		return cfg, err
	}
	if cfg.limit, err = spendlimit.USD.Parse(limit); err != nil || cfg.limit < 0 {
		return cfg, fmt.Errorf("-limit: %.40q is not an amount in USD", limit)
	}
	if _, err := time.LoadLocation(cfg.zone); err != nil {
		return cfg, fmt.Errorf("-zone: %.40q is unknown", cfg.zone)
	}
	if cfg.ttl < time.Second || cfg.ttl > 24*time.Hour {
		return cfg, fmt.Errorf("-ttl: %v is outside 1s..24h", cfg.ttl)
	}
	return cfg, nil
}

// storeName is what -store says.
type storeName struct{ kind, place string }

// parseStore reads the value of -store. Its messages have nothing of it: anywhere in a DSN may be a password.
func parseStore(text string) (storeName, error) {
	kind, place, _ := strings.Cut(text, ":")
	switch {
	case kind == "postgres" && strings.HasPrefix(place, "//"):
		return storeName{kind, text}, nil // a URL is a DSN as it is
	case (kind == "sqlite" || kind == "postgres") && place != "":
		return storeName{kind, place}, nil
	case kind == "sqlite":
		return storeName{}, errors.New("-store: sqlite needs a file, want sqlite:FILE")
	case kind == "postgres":
		return storeName{}, errors.New("-store: postgres needs a DSN, want postgres:DSN")
	}
	return storeName{}, errors.New("-store: unknown, want sqlite:FILE or postgres:DSN")
}

// run serves until ctx ends, and then until the requests that have begun are answered.
func run(ctx context.Context, cfg config, log *slog.Logger) error {
	db, err := open(ctx, cfg.store)
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.addr)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	return errors.Join(serve(ctx, l, cfg, db, log), db.Close())
}
