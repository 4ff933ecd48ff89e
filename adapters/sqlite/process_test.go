package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/spendlimit"
)

// childEnv makes the test binary a process of its own: what it does, the driver, the file and a name.
const childEnv = "STINT_TEST_CHILD"

// loadEnv is how long TestT48 keeps two processes busy.
const loadEnv = "STINT_TEST_LOAD"

func child() {
	ctx := context.Background()
	var what, driver, path, name string
	_, err := fmt.Sscan(os.Getenv(childEnv), &what, &driver, &path, &name)
	if err == nil {
		err = func() error {
			pool, err := pool(driver, path, settings("full")...)
			if err != nil {
				return err
			}
			if err := sqlite.Migrate(ctx, pool); err != nil {
				return err
			}
			db, err := sqlite.New(ctx, pool, nil)
			if err != nil {
				return err
			}
			led, err := spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.Requests})
			switch {
			case err != nil:
				return err
			case what == "work":
				return work(ctx, led, name)
			case what == "share":
				return share(ctx, db, path, name)
			case what == "load":
				spent, err := load(ctx, led, name, loadTime())
				fmt.Println(spent)
				return err
			}
			return nil // the tables are all
		}()
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

func childCommand(ctx context.Context, what, driver, path, name string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join([]string{what, driver, path, name}, " "))
	return cmd
}

// work spends 1 again and again, until it is killed. It says so before it begins, and again when it was told that it has.
func work(ctx context.Context, led *spendlimit.Ledger, name string) error {
	var all sync.WaitGroup
	errs := make(chan error, 4)
	for worker := range cap(errs) {
		all.Go(func() {
			for n := 0; ; n++ {
				key := fmt.Sprintf("%s/%d/%d", name, worker, n)
				fmt.Println("begin", key)
				if err := spend(ctx, led, key); err != nil {
					errs <- err
					return
				}
				fmt.Println("done", key)
			}
		})
	}
	all.Wait()
	return <-errs
}

// spend reserves and settles 1. It may be called again with the same key.
func spend(ctx context.Context, led *spendlimit.Ledger, key string) error {
	_, err := led.Reserve(ctx, spendlimit.Request{Key: key, Accounts: []string{"acme"}, Amount: 1, TTL: time.Hour})
	if err != nil && !errors.Is(err, spendlimit.ErrSettled) {
		return err
	}
	_, err = led.Settle(ctx, key, spendlimit.Total(1))
	return err
}

// A process that is killed at any moment has stored all that it was told, and nothing by halves; whoever calls again with
// the same key ends up with one.
func TestC6_Killed(t *testing.T) {
	kills := 100
	if raceDetector {
		kills = 5
	}
	onDrivers(t, func(t *testing.T, driver, path string) {
		pool := must1(pool(driver, path, settings("full")...))(t)
		defer pool.Close()
		must(t, sqlite.Migrate(t.Context(), pool))
		db := must1(sqlite.New(t.Context(), pool, nil))(t)
		defer db.Close()
		led := must1(spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.Requests}))(t)
		must1(led.SetLimit(t.Context(), spendlimit.Limit{Account: "acme", Name: "all", Kind: spendlimit.AllTime, Amount: 1 << 40}, ""))(t)
		dice := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
		begun, cut := 0, 0
		for kill := range kills {
			n, open := killed(t, led, childCommand(t.Context(), "work", driver, path, fmt.Sprint("p", kill)), time.Duration(dice.IntN(20_000))*time.Microsecond)
			begun, cut = begun+n, cut+open
		}
		t.Logf("%d calls, %d of them cut off", begun, cut)
		if cut == 0 {
			t.Error("no call was cut off")
		}
		for b, err := range led.Balances(t.Context(), "acme", time.Time{}) {
			must(t, err)
			if b.Spent != spendlimit.Amount(begun) || b.Held != 0 {
				t.Errorf("spent %d and held %d after %d calls of 1", b.Spent, b.Held, begun)
			}
		}
	})
}

// killed runs a child, kills it some time after its first word, checks what it said, and does what it has begun again.
func killed(t *testing.T, led *spendlimit.Ledger, cmd *exec.Cmd, after time.Duration) (begun, open int) {
	t.Helper()
	out := must1(cmd.StdoutPipe())(t)
	must(t, cmd.Start())
	said := map[string]bool{} // key → done
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if len(said) == 0 {
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
		word, key, ok := strings.Cut(lines.Text(), " ")
		if !ok || word != "begin" && word != "done" {
			t.Fatal(lines.Text())
		}
		said[key] = word == "done"
	}
	_ = cmd.Wait()
	diffs, err := led.Verify(t.Context(), "acme")
	must(t, err)
	if len(diffs) > 0 {
		t.Fatalf("differences %v", diffs)
	}
	for key, done := range said {
		if h, err := led.Hold(t.Context(), key); done && (err != nil || h.State != spendlimit.Settled) {
			t.Fatalf("%s was acknowledged, and is %v, error %v", key, h, err)
		}
		if !done {
			open++
			must(t, spend(t.Context(), led, key))
		}
	}
	return len(said), open
}

func loadTime() time.Duration {
	if d, err := time.ParseDuration(os.Getenv(loadEnv)); err == nil {
		return d
	}
	return 3 * time.Second
}

// load keeps 25 writers busy, and tells what they have spent. On "wide" they spend, on "narrow" they only hold.
func load(ctx context.Context, led *spendlimit.Ledger, name string, long time.Duration) (spendlimit.Amount, error) {
	var all sync.WaitGroup
	end := time.Now().Add(long)
	var mu sync.Mutex
	var spent spendlimit.Amount
	var errs []error
	for writer := range 25 {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(writer), 0))
			for n := 0; time.Now().Before(end); n++ {
				key := fmt.Sprintf("%s/%d/%d", name, writer, n)
				account, cost := "wide", spendlimit.Amount(dice.IntN(5)) // at times more than was held
				if dice.IntN(2) == 0 {
					account, cost = "narrow", 0
				}
				_, err := led.Reserve(ctx, spendlimit.Request{Key: key, Accounts: []string{account}, Amount: 3, TTL: time.Hour})
				if errors.Is(err, spendlimit.ErrDenied) && account == "narrow" {
					continue
				}
				if err == nil {
					_, err = led.Settle(ctx, key, spendlimit.Total(cost))
				}
				mu.Lock()
				if err != nil {
					errs = append(errs, err)
				}
				spent += cost
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return spent, errors.Join(errs...)
}

// Two processes with 25 writers each on one file. STINT_TEST_LOAD=20s makes it last longer.
func TestT48_TwoProcesses(t *testing.T) {
	// One driver after the other, and alone on the machine: this is a test of patience.
	for driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "stint.db")
			pool := must1(pool(driver, path, settings("full")...))(t)
			defer pool.Close()
			must(t, sqlite.Migrate(t.Context(), pool))
			db := must1(sqlite.New(t.Context(), pool, nil))(t)
			defer db.Close()
			led := must1(spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.Requests}))(t)
			for account, n := range map[string]spendlimit.Amount{"wide": 1 << 40, "narrow": 30} {
				must1(led.SetLimit(t.Context(), spendlimit.Limit{Account: account, Name: "all", Kind: spendlimit.AllTime, Amount: n}, ""))(t)
			}
			cmd := childCommand(t.Context(), "load", driver, path, "child")
			out := must1(cmd.StdoutPipe())(t)
			must(t, cmd.Start())
			done := make(chan struct{})
			var watch sync.WaitGroup
			watch.Go(func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(20 * time.Millisecond):
						for b, err := range led.Balances(t.Context(), "narrow", time.Time{}) {
							if err != nil || b.Held > 30 || b.Spent != 0 {
								t.Errorf("narrow: held %d, spent %d, error %v", b.Held, b.Spent, err)
							}
						}
					}
				}
			})
			spent, err := load(t.Context(), led, "parent", loadTime())
			close(done)
			watch.Wait()
			must(t, err)
			var theirs spendlimit.Amount
			if _, err := fmt.Fscan(out, &theirs); err != nil || theirs == 0 {
				t.Fatalf("the child spent %d, %v", theirs, err)
			}
			must(t, cmd.Wait())
			t.Logf("spent %d here and %d there", spent, theirs)
			for account, want := range map[string]spendlimit.Amount{"wide": spent + theirs, "narrow": 0} {
				diffs, err := led.Verify(t.Context(), account)
				must(t, err)
				for b, err := range led.Balances(t.Context(), account, time.Time{}) {
					must(t, err)
					if b.Spent != want || b.Held != 0 || b.Overrun != 0 || len(diffs) > 0 {
						t.Errorf("%s: %+v, want %d spent; differences %v", account, b, want, diffs)
					}
				}
			}
		})
	}
}

// Several processes, and several callers in one, may migrate a new file at once.
func TestC9_MigrateAtOnce(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		var all sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			all.Go(func() {
				if i < 2 {
					out, err := childCommand(t.Context(), "migrate", driver, path, "child").CombinedOutput()
					if err != nil {
						errs[i] = fmt.Errorf("%w: %s", err, out)
					}
					return
				}
				pool, err := pool(driver, path, settings("full")...)
				if err == nil {
					defer pool.Close()
					err = sqlite.Migrate(t.Context(), pool)
				}
				errs[i] = err
			})
		}
		all.Wait()
		must(t, errors.Join(errs...))
		newWorld(t, driver, path).has(0, 0, 0)
	})
}
