// Worktrees shows how several processes share a few git worktrees. It needs no set-up but git, and cleans up after itself:
//
//	go run ./examples/worktrees
//
// Five workers share three worktrees of a repository that is made in a temporary folder, by way of a pool in a SQLite file. Each
// takes a worktree, works in it for a while, and commits, after it has asked whether its epoch is still the one that may use
// the worktree. One worker is killed in the middle of its work; another is stopped, as a laptop that sleeps, until its lease is long over and
// somebody else works there, and goes on then. At the end it prints who held which worktree when, checks that no two ever
// did at once, and that the late commit was refused. Exit status 1 if any of that is not so.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/stint-go/stint/adapters/sqlite/embedded"
	"github.com/stint-go/stint/allocator"
)

const (
	pool      = "worktrees"
	worktrees = 3
	jobs      = 4 // of each worker
)

// workers are the processes, each with what becomes of it.
var workers = [...]string{"ann", "ben", "cleo", "dan", "eve"}

const (
	killed  = "ben"
	stopped = "cleo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if name := os.Getenv(workerName); name != "" {
		if err := work(ctx, name, os.Getenv(workerDB), os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			os.Exit(1)
		}
		return
	}
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worktrees:", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
}

// run tells the whole story.
func run(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "worktrees-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	paths, err := makeWorktrees(ctx, dir, worktrees)
	if err != nil {
		return err
	}
	db, err := embedded.Open(ctx, filepath.Join(dir, "pool.db"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	p, err := makePool(ctx, db.Pools(), paths)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d workers share %d worktrees; a lease lives %v without a renewal\n\n", len(workers), worktrees, ttl)
	s := newStory(out)
	if err := s.play(ctx, filepath.Join(dir, "pool.db")); err != nil {
		return err
	}
	return s.report(ctx, p, dir)
}

// Short, so that the story is: a lease lives for a minute by default.
const ttl = 5 * time.Second

// makePool makes the pool: each slot is a worktree.
func makePool(ctx context.Context, store allocator.Store, paths []string) (*allocator.Pool, error) {
	p, err := allocator.New(store, pool, allocator.Options{})
	if err != nil {
		return nil, err
	}
	policy := allocator.DefaultPolicy()
	policy.TTL = ttl
	policy.Fenced = true // whoever commits asks for the epoch before, so that no worktree needs to cool
	spec := allocator.Spec{Capacity: len(paths), Policy: &policy, Attrs: map[int]map[string]string{}}
	for i, path := range paths {
		spec.Attrs[i] = map[string]string{"path": path}
	}
	_, err = p.Create(ctx, spec)
	return p, err
}
