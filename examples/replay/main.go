// Replay runs a trace of LLM calls through a spend ledger, and shows what a limit does to it. Without flags it takes a
// trace, prices and a limit of its own:
//
//	go run ./examples/replay
//	go run ./examples/replay -trace calls.csv -prices prices.json -model gpt-4o-mini -limit 10 -zone Asia/Kolkata
//	go run ./examples/replay -store sqlite:replay.db
//	go run ./examples/replay -store postgres://localhost/test
//
// The ledger's clock follows the trace and never goes back: a call that is stamped earlier than the one before it is taken
// as made at the same time. Bad input is one line on stderr and exit status 2.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	_ "time/tzdata" // zones work on machines that have no time zone data

	"github.com/schollz/progressbar/v3"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(2)
	}
}

func run(args []string, stdout, stderr *os.File) error {
	ctx := context.Background()
	cfg, err := parseFlags(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil // it was printed
	}
	if err != nil {
		return err
	}
	r, err := newReplay(ctx, cfg)
	if err != nil {
		return err
	}
	rep, err := r.play(ctx, stderr)
	if err = errors.Join(err, r.close()); err != nil {
		return err
	}
	if place := cfg.store.where(); place != "" {
		fmt.Fprintf(stderr, "replay: ledger %s is in %s\n", r.name, place)
	}
	if cfg.json {
		return rep.writeJSON(stdout)
	}
	return rep.writeTable(stdout, r)
}

// play makes all calls and reports.
func (r *replay) play(ctx context.Context, stderr *os.File) (*report, error) {
	step, done := progress(stderr, len(r.calls))
	err := r.run(ctx, step)
	done()
	if err != nil {
		return nil, err
	}
	return r.report(ctx)
}

// progress shows how far a replay of n calls is, if stderr is a terminal. step is safe for concurrent use.
func progress(stderr *os.File, n int) (step, done func()) {
	info, err := stderr.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 || n == 0 {
		return func() {}, func() {}
	}
	return showBar(stderr, n)
}

func showBar(w io.Writer, n int) (step, done func()) {
	bar := progressbar.NewOptions(n,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("replaying"),
		progressbar.OptionSetWidth(40),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("calls"),
		progressbar.OptionThrottle(50*time.Millisecond),
	)
	return func() { _ = bar.Add(1) }, func() { fmt.Fprint(w, "\n\n") }
}
