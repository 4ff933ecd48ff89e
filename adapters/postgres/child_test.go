package postgres

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit"
)

// What a child process does, and on which database.
const (
	childJob = "STINT_POSTGRES_TEST_CHILD"
	childDSN = "STINT_POSTGRES_TEST_DSN"
	childArg = "STINT_POSTGRES_TEST_ARG"
)

// child is another process with the test binary.
type child struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

func startChild(t *testing.T, job, dsn, arg string) child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), childJob+"="+job, childDSN+"="+dsn, childArg+"="+arg)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	return child{cmd, lines}
}

// result waits for a child and returns what follows a word on a line of its output.
func (c child) result(t *testing.T, word string) string {
	t.Helper()
	found, all := "", ""
	for c.out.Scan() {
		all += c.out.Text() + "\n"
		if rest, ok := strings.CutPrefix(c.out.Text(), word+" "); ok {
			found = rest
		}
	}
	if err := c.cmd.Wait(); err != nil || found == "" {
		t.Fatalf("child: %v\n%s", err, all)
	}
	return found
}

func TestChild(t *testing.T) {
	dsn, arg := os.Getenv(childDSN), os.Getenv(childArg)
	switch os.Getenv(childJob) {
	case "fights":
		childFights(t, dsn, arg)
	case "shares":
		childShares(t, dsn, arg)
	case "is killed":
		childIsKilled(t, dsn)
	case "has another clock":
		childHasAnotherClock(t, dsn, arg)
	}
}

// fighting is how long processes work against each other: STINT_TEST_LOAD=20s makes it last longer.
func fighting() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("STINT_TEST_LOAD")); err == nil {
		return d
	}
	return 2 * time.Second
}

const shared = 1024 // accounts

func sharedAccount(i int) string { return fmt.Sprintf("a%04d", i) }

// childFights works on all accounts, several at a time, and prints what it has spent on each.
func childFights(t *testing.T, dsn, name string) {
	led := ledgerOn(t, newDB(t, newPool(t, dsn, loose), nil).Spend(), spendlimit.Config{Defaults: func(string) []spendlimit.Limit {
		return []spendlimit.Limit{{Name: "all", Kind: spendlimit.AllTime, Amount: 22}}
	}})
	var mu sync.Mutex
	spent := map[string]spendlimit.Amount{}
	var all sync.WaitGroup
	end := time.Now().Add(fighting())
	for caller := range 32 {
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				key := fmt.Sprintf("%s %d %d", name, caller, n)
				var accounts []string
				for _, i := range rand.Perm(shared)[:2+rand.IntN(4)] {
					accounts = append(accounts, sharedAccount(i))
				}
				_, err := led.Reserve(t.Context(), hold(key, 1+rand.N(spendlimit.Amount(20)), accounts...))
				if refused(t, err) {
					continue
				}
				cost := spendlimit.Amount(1)
				if n%5 == 4 {
					cost = 0
					_, err = led.Release(t.Context(), key)
				} else {
					_, err = led.Settle(t.Context(), key, spendlimit.Total(cost))
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, a := range accounts {
					spent[a] += cost
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	numbers := map[string]int64{}
	for a, n := range spent {
		numbers[a] = int64(n)
	}
	text, err := json.Marshal(numbers)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("SPENT %s\n", text)
}

func refused(t *testing.T, err error) bool {
	if err != nil && !errors.Is(err, spendlimit.ErrDenied) {
		t.Error(err)
	}
	return err != nil
}

// Two processes on 1,024 accounts that are new to both, with several accounts per hold: no deadlock, limits hold, and
// the sums are exact.
func TestX12_TwoProcesses(t *testing.T) {
	dsn := testdb.Postgres(t)
	pool := newPool(t, dsn)
	if err := Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	children := []child{startChild(t, "fights", dsn, "one"), startChild(t, "fights", dsn, "two")}
	want := map[string]int64{}
	for _, c := range children {
		var spent map[string]int64
		if err := json.Unmarshal([]byte(c.result(t, "SPENT")), &spent); err != nil {
			t.Fatal(err)
		}
		if len(spent) < 50 {
			t.Errorf("a process worked on %d accounts only", len(spent))
		}
		for a, n := range spent {
			want[a] += n
		}
	}
	rows, err := pool.Query(t.Context(), "SELECT a.name, p.spent, p.held, p.overrun, p.cut, p.in_force FROM stint.spend_account a "+
		"JOIN stint.spend_limit m ON m.account_id = a.id JOIN stint.spend_period p ON p.limit_id = m.id")
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var names []string
	var spent, held, overrun, cut, limit, total int64
	for rows.Next() {
		if err := rows.Scan(&name, &spent, &held, &overrun, &cut, &limit); err != nil {
			t.Fatal(err)
		}
		if spent != want[name] || held != 0 || overrun != 0 || cut != 0 || spent > limit {
			t.Errorf("%s: spent %d, want %d; held %d, overrun %d, cut %d of %d", name, spent, want[name], held, overrun, cut, limit)
		}
		total += spent
		delete(want, name)
		names = append(names, name)
	}
	for a, n := range want {
		if n != 0 {
			t.Errorf("%s: spent %d, not there", a, n)
		}
	}
	led := newLedger(t, pool, nil)
	for i := range 8 {
		wants(t, led, names[i], 0)
	}
	time.Sleep(100 * time.Millisecond) // the server's statistics come late
	if n := ask[int](t, pool, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
	t.Logf("spent %d", total)
}

// childIsKilled works until it is killed. It says what it is about to do, and what was done.
func childIsKilled(t *testing.T, dsn string) {
	led := newLedger(t, newPool(t, dsn), nil)
	say := func(what, key string) { fmt.Printf("%s %s\n", what, key) } // one write each
	for range 4 {
		go func() {
			for {
				key := strconv.FormatUint(rand.Uint64(), 36)
				say("TRY", key)
				if _, err := led.Reserve(t.Context(), hold(key, 2, "big")); err != nil {
					panic(err)
				}
				say("HELD", key)
				if _, err := led.Settle(t.Context(), key, spendlimit.Total(1)); err != nil {
					panic(err)
				}
				say("SETTLED", key)
			}
		}()
	}
	select {}
}

// A process that is killed at any moment has done all that it said, and what it had not said heals when it is done again.
func TestC6_KilledAnywhere(t *testing.T) {
	r := newRoom(t)
	setLimit(t, r.led, "big", 1_000_000)
	most := 100
	if raceDetector {
		most = 20
	}
	var tried, kills int
	for ; kills < most; kills++ {
		c := startChild(t, "is killed", r.pool.Config().ConnString(), "")
		done := map[string]string{}
		kill := func() { _ = c.cmd.Process.Kill() }
		for c.out.Scan() {
			what, key, ok := strings.Cut(c.out.Text(), " ")
			if !ok || what != "TRY" && what != "HELD" && what != "SETTLED" {
				continue
			}
			if len(done) == 0 {
				time.AfterFunc(rand.N(100*time.Millisecond), kill)
			}
			done[key] = what
		}
		_ = c.cmd.Wait()
		if len(done) == 0 {
			t.Fatal("a child did nothing")
		}
		for key, said := range done {
			heal(t, r.led, key, said)
		}
		tried += len(done)
	}
	quiet(t, r.pool)
	wants(t, r.led, "big", 0)
	spent := ask[int](t, r.pool, "SELECT p.spent FROM stint.spend_period p JOIN stint.spend_limit m ON m.id = p.limit_id JOIN stint.spend_account a ON a.id = m.account_id WHERE a.name = 'big'")
	if spent != tried {
		t.Errorf("spent %d by %d keys", spent, tried)
	}
	t.Logf("%d kills, %d keys", kills, tried)
}

// heal does again what a process was about to do, and checks what it said it had done.
func heal(t *testing.T, led *spendlimit.Ledger, key, said string) {
	t.Helper()
	h, err := led.Reserve(t.Context(), hold(key, 2, "big"))
	switch {
	case err == nil && said == "SETTLED":
		t.Errorf("%s was settled, and is held", key)
	case err == nil && said == "HELD" && !h.Replayed:
		t.Errorf("%s was held, and is new", key)
	case err != nil && said == "TRY", err != nil && !errors.Is(err, spendlimit.ErrSettled):
		t.Errorf("%s: %v", key, err)
	}
	rc, err := led.Settle(t.Context(), key, spendlimit.Total(1))
	if err != nil || said == "SETTLED" && !rc.Replayed {
		t.Errorf("%s: %+v, %v", key, rc, err)
	}
}

// childHasAnotherClock makes a hold under a clock of its own, and prints its day.
func childHasAnotherClock(t *testing.T, dsn, arg string) {
	key, offset, _ := strings.Cut(arg, " ")
	d, err := time.ParseDuration(offset)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(d)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(now)) // from the year 2000 on
		led := newLedger(t, newPool(t, dsn), nil)
		_, refusal := led.Reserve(t.Context(), hold(key, 6, "clock"))
		for b, err := range led.Balances(t.Context(), "clock", time.Time{}) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Printf("CLOCK %s, %v, held %d on %s\n", time.Now().UTC().Format(time.DateTime), errors.Is(refusal, spendlimit.ErrDenied), b.Held, b.Period)
		}
	})
}

// Two processes whose clocks are two hours apart, on both sides of midnight, are on the server's day: the one that
// comes second finds what the first holds, and sees no hold lapse early.
func TestC5_ClocksApart(t *testing.T) {
	r := newRoom(t)
	hour := ask[int](t, r.pool, "SELECT extract(hour FROM clock_timestamp() AT TIME ZONE 'UTC')::int")
	zone := fmt.Sprintf("Etc/GMT%+d", hour-23) // where it is 23 hours and some minutes; these names have the sign turned round
	if hour < 9 {
		zone = fmt.Sprintf("Etc/GMT%+d", hour+1)
	}
	_, err := r.led.SetLimit(t.Context(), spendlimit.Limit{Account: "clock", Name: "day", Kind: spendlimit.Day, Zone: zone, Amount: 10}, "")
	if err != nil {
		t.Fatal(err)
	}
	label := func() string {
		for b, err := range r.led.Balances(t.Context(), "clock", time.Time{}) {
			if err != nil {
				t.Fatal(err)
			}
			return b.Period
		}
		return ""
	}
	var day, first, second string
	for try := range 2 { // midnight can't come in between twice
		day = label()
		first = startChild(t, "has another clock", r.pool.Config().ConnString(), fmt.Sprintf("k1/%d -1h", try)).result(t, "CLOCK")
		second = startChild(t, "has another clock", r.pool.Config().ConnString(), fmt.Sprintf("k2/%d 1h", try)).result(t, "CLOCK")
		if label() == day {
			break
		}
	}
	for said, want := range map[string]string{first: "false, held 6 on " + day, second: "true, held 6 on " + day} {
		if !strings.HasSuffix(said, want) {
			t.Errorf("%q, want %q", said, want)
		}
	}
	t.Logf("%s; %s", first, second)
}
