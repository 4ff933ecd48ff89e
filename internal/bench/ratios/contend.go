package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/bench"
)

// dsnVariable tells the second process the database; a DSN may have a password, which arguments show to everyone.
const dsnVariable = "STINT_RATIOS_DSN"

// deadlocks counts the pairs that failed while two processes shared accounts. Nothing is denied here, so that each
// failure counts, deadlocks among them.
func (s *stores) deadlocks(ctx context.Context) (_ []float64, err error) {
	o, schema, err := s.schema(ctx, bench.Accounts(many))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	second := exec.CommandContext(ctx, self, "-contend", schema)
	second.Env = append(os.Environ(), dsnVariable+"="+s.dsn)
	second.Stderr = os.Stderr
	var out strings.Builder
	second.Stdout = &out
	if err := second.Start(); err != nil {
		return nil, err
	}
	own := contend(ctx, o, "first")
	if err := second.Wait(); err != nil {
		return nil, err
	}
	other, err := strconv.Atoi(strings.TrimSpace(out.String()))
	return []float64{float64(own + other)}, err
}

// contendAsked is the second process. It prints its failures.
func contendAsked(schema string) (status int) {
	ctx := context.Background()
	db, err := bench.JoinPostgres(ctx, os.Getenv(dsnVariable), schema, bench.Accounts(many))
	if err != nil {
		return fail(err)
	}
	fmt.Println(contend(ctx, db, "second"))
	if err := db.Close(); err != nil {
		return fail(err)
	}
	return within
}

// contend counts the pairs that fail.
func contend(ctx context.Context, s bench.Subject, name string) (failures int) {
	f := &counted{Subject: s}
	_, _ = bench.Load{Callers: 64, Accounts: many}.During(ctx, f, name, lasting/2)
	return int(f.failures.Load())
}

// counted is a Subject whose pairs never fail, but are counted.
type counted struct {
	bench.Subject
	failures atomic.Int64
}

// Pair implements bench.Subject.
func (c *counted) Pair(ctx context.Context, key string, accounts []string) error {
	if err := c.Subject.Pair(ctx, key, accounts); err != nil {
		if c.failures.Add(1) == 1 {
			fmt.Fprintln(os.Stderr, err)
		}
		time.Sleep(time.Millisecond) // a store that is gone
	}
	return nil
}
