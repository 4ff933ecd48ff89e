package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// program is the built service on a file, and what a client knows of the runs that it asked for.
type program struct {
	*client
	path  string // of the executable
	file  string
	args  []string
	cmd   *exec.Cmd
	ended chan struct{} // closed when all of its log is read

	mu   sync.Mutex
	runs map[string]*asked // by key
}

// asked is a run as its caller sees it.
type asked struct {
	account string
	id      string // "" until it was answered
	refused bool   // for lack of room, which is not remembered
	cost    string // "" until the caller began to settle it
	settled bool   // was answered
}

// What each run reserves, what it costs, and what an account may spend.
const (
	estimate = "0.03"
	cost     = "0.01"
	dayLimit = "0.3"
)

func newProgram(t *testing.T) *program {
	t.Helper()
	dir := t.TempDir()
	p := &program{path: filepath.Join(dir, "service"), file: filepath.Join(dir, "service.db"), runs: map[string]*asked{}}
	if runtime.GOOS == "windows" {
		p.path += ".exe"
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", p.path, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// A zone where it is noon: no midnight comes in between.
	zone := fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-12)
	p.args = []string{"-addr", "127.0.0.1:0", "-store", "sqlite:" + p.file, "-limit", dayLimit, "-zone", zone}
	p.client = &client{t: t, http: &http.Client{Transport: new(http.Transport), Timeout: 10 * time.Second}}
	t.Cleanup(p.kill)
	return p
}

// start returns when the program listens.
func (p *program) start() {
	p.t.Helper()
	p.ended = nil
	p.cmd = exec.CommandContext(p.t.Context(), p.path, p.args...)
	log, err := p.cmd.StderrPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.t.Fatal(err)
	}
	lines := bufio.NewReader(log)
	first, _ := lines.ReadBytes('\n')
	var said struct{ Msg, Addr string }
	if err := json.Unmarshal(first, &said); err != nil || said.Msg != "listening" {
		p.t.Fatalf("the program says %q", first)
	}
	p.url = "http://" + said.Addr
	p.ended = make(chan struct{})
	go func() {
		defer close(p.ended)
		_, _ = io.Copy(io.Discard, lines)
	}()
}

// kill does what kill -9 does, if it was not done yet.
func (p *program) kill() {
	if p.cmd == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	if p.ended != nil {
		<-p.ended
	}
	_ = p.cmd.Wait()
	p.http.CloseIdleConnections()
}

// work asks for runs of two accounts in turn, and settles every other one, until it has asked for so many or the program
// is gone. All that it begins it writes down before.
func (p *program) work(name string, calls int, accounts [2]string, answered func()) {
	for n := range calls {
		key := fmt.Sprintf("%s-%d", name, n)
		run := &asked{account: accounts[n%2]}
		p.mu.Lock()
		p.runs[key] = run
		p.mu.Unlock()
		if p.admit(key, run) != nil {
			return
		}
		answered()
		if run.refused || n%4 > 1 {
			continue
		}
		run.cost = cost
		if p.book(run) != nil {
			return
		}
	}
}

// admit asks for a run. An answer for one that was answered before must be the same.
func (p *program) admit(key string, run *asked) error {
	a, err := p.try(posting(key, run.account, estimate))
	if err != nil {
		return err
	}
	var got struct{ ID string }
	_ = json.Unmarshal([]byte(a.text), &got)
	switch {
	case a.status == http.StatusTooManyRequests && run.id == "":
		run.refused = true
	case a.status != http.StatusCreated || got.ID == "" || run.id != "" && run.id != got.ID:
		p.t.Errorf("%s, which was %+v: %+v", key, *run, a)
	default:
		run.id, run.refused = got.ID, false
	}
	return nil
}

// book settles a run. It may have been settled before.
func (p *program) book(run *asked) error {
	a, err := p.try(settling(run.id, run.cost))
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		p.t.Errorf("%+v: %+v", *run, a)
	}
	run.settled = true
	return nil
}

// heal checks that all is there that was answered, and asks again for what was not: twice, with the same end. It returns
// how many answers had been cut off.
func (p *program) heal() (cut int) {
	p.t.Helper()
	for key, run := range p.runs {
		if run.refused {
			continue
		}
		if run.id == "" || run.cost != "" && !run.settled {
			cut++
		}
		for range 2 {
			err := p.admit(key, run)
			if err == nil && run.cost != "" {
				err = p.book(run)
			}
			if err != nil {
				p.t.Fatal(err)
			}
		}
	}
	return cut
}

// sums checks what the accounts have spent and hold against what the caller was told.
func (p *program) sums() {
	p.t.Helper()
	usd := spendlimit.USD
	spent, held := map[string]spendlimit.Amount{}, map[string]spendlimit.Amount{}
	for _, run := range p.runs {
		if run.refused {
			continue
		}
		held[run.account] += 0 // there is such an account
		if run.settled {
			spent[run.account] += usd.MustParse(run.cost)
		} else {
			held[run.account] += usd.MustParse(estimate)
		}
	}
	for account := range held {
		left := usd.MustParse(dayLimit) - spent[account] - held[account]
		if left < 0 {
			p.t.Errorf("%s: beyond its limit by %s", account, usd.Format(-left))
		}
		p.used(account, usd.Format(spent[account]), usd.Format(held[account]), usd.Format(left))
	}
}

// live is one life of the service: it checks what the one before left behind, and works until it is killed. The last one
// works for long enough to come to the limit, and checks what it did itself.
func (p *program) live(life int, last bool) (cut int) {
	p.t.Helper()
	p.start()
	defer p.kill()
	if left, err := spendlimit.USD.Parse(p.balance("shared")["available"].(string)); err != nil || left < 0 {
		p.t.Errorf("shared: %d left, error %v", left, err)
	}
	cut = p.heal()
	p.sums()
	accounts := [2]string{"shared", fmt.Sprint("life-", life)}
	if last {
		p.work("last", 60, accounts, func() {})
		p.sums()
		return cut
	}
	process := p.cmd.Process
	answered := sync.OnceFunc(func() { // the first call of this life
		time.AfterFunc(rand.N(150*time.Millisecond), func() { _ = process.Kill() })
	})
	var all sync.WaitGroup
	for caller := range 4 {
		all.Go(func() { p.work(fmt.Sprint(life, "-", caller), 500, accounts, answered) })
	}
	all.Wait()
	return cut
}

// A service that is killed at any moment, again and again, has all the runs that it answered, and never lets an account
// spend more than its limit. Whoever got no answer asks again with the same key, and ends up with one run, or none.
func TestKilled(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	cut := 0
	const kills = 12
	for life := range kills + 1 {
		cut += p.live(life, life == kills)
	}

	db, err := open(t.Context(), storeName{"sqlite", p.file})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	led, err := spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.USD})
	if err != nil {
		t.Fatal(err)
	}
	admitted, rows := 0, 0
	accounts := map[string]bool{}
	for _, run := range p.runs {
		accounts[run.account] = true
		if !run.refused {
			admitted++
		}
	}
	for account := range accounts {
		if diffs, err := led.Verify(t.Context(), account); err != nil || len(diffs) > 0 {
			t.Errorf("%s: %v, %v", account, err, diffs)
		}
	}
	if err := db.find(t.Context(), "SELECT count(*) FROM runs WHERE $1 = 'x'", "x", &rows); err != nil || rows != admitted {
		t.Errorf("%d rows for %d runs, error %v", rows, admitted, err)
	}
	t.Logf("%d runs were admitted, %d refused, and %d cut off", admitted, len(p.runs)-admitted, cut)
	if cut == 0 || admitted == len(p.runs) {
		t.Error("it was never killed while it worked, or the limit was never reached")
	}
}
