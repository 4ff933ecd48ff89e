package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stores are what the service runs on, each empty.
func stores() map[string]func(t *testing.T) string {
	return map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "service.db") },
		"postgres": func(t *testing.T) string { return "postgres:" + testdb.Postgres(t) },
	}
}

func onEach(t *testing.T, test func(t *testing.T, store string)) {
	t.Parallel()
	for name, store := range stores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, store(t))
		})
	}
}

// client talks to a service of its own.
type client struct {
	t    *testing.T
	url  string
	http *http.Client
	db   database
	log  *buffer
	stop func() error // waits until it has ended
}

// buffer is a log that may be read while it is written.
type buffer struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written *sync.Cond
}

func newBuffer() *buffer {
	b := new(buffer)
	b.written = sync.NewCond(&b.mu)
	return b
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.written.Broadcast()
	return b.text.Write(p)
}

// wait returns when the log has a text.
func (b *buffer) wait(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !strings.Contains(b.text.String(), text) {
		b.written.Wait()
	}
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// start starts a service as the program does, on a free port of 127.0.0.1.
func start(t *testing.T, store string, args ...string) *client {
	t.Helper()
	cfg, err := parseFlags(append([]string{"-store", store}, args...), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	db, err := open(t.Context(), cfg.store)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &client{t: t, url: "http://" + l.Addr().String(), http: &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}, db: db, log: newBuffer()}
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, cfg, db, slog.New(slog.NewJSONHandler(c.log, nil))) }()
	c.stop = sync.OnceValue(func() error {
		cancel()
		c.http.CloseIdleConnections()
		return errors.Join(<-ended, db.Close())
	})
	t.Cleanup(func() {
		if err := c.stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// answer is what the service answered.
type answer struct {
	status int
	header http.Header
	text   string
}

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(a.text), &m); err != nil {
		t.Errorf("%q: %v", a.text, err)
	}
	return m
}

// request is one to a service, of a method, a path, a body, and headers with their values.
type request struct {
	method, path, body string
	header             []string
}

// try returns an answer that came whole.
func (c *client) try(q request) (answer, error) {
	r, err := http.NewRequestWithContext(c.t.Context(), q.method, c.url+q.path, strings.NewReader(q.body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(q.header); i += 2 {
		r.Header.Set(q.header[i], q.header[i+1])
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text)}, err
}

func (c *client) must(q request) answer {
	c.t.Helper()
	a, err := c.try(q)
	if err != nil {
		c.t.Error(err)
	}
	return a
}

func (c *client) do(method, path, body string, header ...string) answer {
	c.t.Helper()
	return c.must(request{method, path, body, header})
}

const mediaType, keyHeader = "Content-Type", "Idempotency-Key"

func posting(key, account, estimate string) request {
	body := fmt.Sprintf(`{"account":%q,"estimated_cost":%q}`, account, estimate)
	return request{"POST", "/runs", body, []string{mediaType, "application/json", keyHeader, key}}
}

func settling(id, cost string) request {
	return request{"POST", "/runs/" + id + "/settle", fmt.Sprintf(`{"cost":%q}`, cost), []string{mediaType, "application/json; charset=utf-8"}}
}

func (c *client) post(key, account, estimate string) answer {
	c.t.Helper()
	return c.must(posting(key, account, estimate))
}

func (c *client) settle(id, cost string) answer {
	c.t.Helper()
	return c.must(settling(id, cost))
}

// balance is the one limit of an account.
func (c *client) balance(account string) map[string]any {
	c.t.Helper()
	list, _ := c.do("GET", "/accounts/"+account+"/balances", "").json(c.t)["balances"].([]any)
	if len(list) != 1 {
		c.t.Fatalf("balances %v", list)
	}
	return list[0].(map[string]any)
}

// used checks what an account has spent, holds and has left.
func (c *client) used(account, spent, held, available string) {
	c.t.Helper()
	b := c.balance(account)
	got := []any{b["spent"], b["held"], b["available"]}
	if diff := cmp.Diff([]any{spent, held, available}, got); diff != "" {
		c.t.Errorf("spent, held, available: %s", diff)
	}
}

func TestLifeOfARun(t *testing.T) {
	onEach(t, func(t *testing.T, store string) {
		c := start(t, store, "-limit", "1")
		c.used("acme", "0", "0", "1")
		first := c.post("a", "acme", "0.80")
		run := first.json(t)
		id, _ := run["id"].(string)
		want := map[string]any{"id": id, "account": "acme", "state": "running", "estimated_cost": "0.8", "cost": nil, "created_at": run["created_at"]}
		if diff := cmp.Diff(want, run); diff != "" || first.status != 201 || id == "" || first.header.Get("Location") != "/runs/"+id {
			t.Errorf("%+v: %s", first, diff)
		}
		c.used("acme", "0", "0.8", "0.2")

		// Once it was answered, time alone does not give the money back.
		led, err := spendlimit.New(c.db.Spend(), spendlimit.Config{Unit: spendlimit.USD})
		if err != nil {
			t.Fatal(err)
		}
		if h, err := led.Hold(t.Context(), holdOf("a")); err != nil || h.State != spendlimit.Dispatched || h.ExpiresAt.Sub(h.CreatedAt) != time.Hour {
			t.Errorf("hold %+v, error %v", h, err)
		}

		// The same request again is the same run, and holds nothing more.
		if again := c.post("a", "acme", "0.8"); again.status != 201 || again.text != first.text {
			t.Errorf("again: %+v", again)
		}
		c.used("acme", "0", "0.8", "0.2")
		for _, other := range []answer{c.post("a", "acme", "0.7"), c.post("a", "other", "0.8")} {
			if p := other.json(t); other.status != 422 || p["type"] != typeKeyUsed {
				t.Errorf("the key of another run: %+v", other)
			}
		}

		settled := c.settle(id, "0.35")
		got := settled.json(t)
		want["state"], want["cost"] = "settled", "0.35"
		if diff := cmp.Diff(map[string]any{"run": want, "returned": "0.45", "overrun": "0"}, got); diff != "" || settled.status != 200 {
			t.Errorf("%+v: %s", settled, diff)
		}
		if again := c.settle(id, "0.35"); again.status != 200 || again.text != settled.text {
			t.Errorf("settled again: %+v", again)
		}
		if other := c.settle(id, "0.36"); other.status != 409 || other.json(t)["type"] != typeEnded {
			t.Errorf("settled otherwise: %+v", other)
		}
		c.used("acme", "0.35", "0", "0.65")
		if diff := cmp.Diff(want, c.post("a", "acme", "0.80").json(t)); diff != "" {
			t.Errorf("the run afterwards: %s", diff)
		}

		// A true cost is booked whatever it is.
		id = c.post("b", "acme", "0.65").json(t)["id"].(string)
		if over := c.settle(id, "0.7").json(t); over["overrun"] != "0.05" || over["returned"] != "0" {
			t.Errorf("a cost above the limit: %v", over)
		}
		c.used("acme", "1.05", "0", "-0.05")
	})
}

func TestRefusal(t *testing.T) {
	onEach(t, func(t *testing.T, store string) {
		c := start(t, store, "-limit", "1")
		id := c.post("a", "acme", "0.6").json(t)["id"].(string)
		refused := c.post("b", "acme", "0.5")
		p := refused.json(t)
		detail, _ := p["detail"].(string)
		want := map[string]any{
			"type": typeNoRoom, "title": "No room in the budget", "status": 429.0, "detail": detail, "account": "acme", "limit_name": "daily",
			"period": p["period"], "limit": "1", "spent": "0", "held": "0.6", "available": "0.4", "unit": "USD", "reset_at": p["reset_at"],
		}
		if diff := cmp.Diff(want, p); diff != "" || refused.status != 429 || refused.header.Get("Content-Type") != "application/problem+json" || detail == "" {
			t.Errorf("%+v: %s", refused, diff)
		}
		if n, err := strconv.Atoi(refused.header.Get("Retry-After")); err != nil || n < 1 || n > 24*60*60 {
			t.Errorf("Retry-After: %q", refused.header.Get("Retry-After"))
		}
		if about := c.do("GET", p["type"].(string), ""); about.status != 200 || about.text == "" {
			t.Errorf("%s: %+v", p["type"], about)
		}
		// A refusal is not remembered: with room, the same request is admitted.
		c.settle(id, "0.5")
		if again := c.post("b", "acme", "0.5"); again.status != 201 {
			t.Errorf("with room: %+v", again)
		}
		// More than the limit never fits: there is no time after which to ask again.
		if never := c.post("c", "acme", "2"); never.status != 429 || never.header.Get("Retry-After") != "" {
			t.Errorf("more than the limit: %+v", never)
		}
		if other := c.post("d", "other", "1"); other.status != 201 {
			t.Errorf("another account: %+v", other)
		}
	})
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	c := start(t, stores()["sqlite"](t))
	const good = `{"account":"acme","estimated_cost":"1"}`
	with := func(pairs ...string) []string { return pairs }
	jsonWithKey := with(mediaType, "application/json", keyHeader, "k")
	for name, r := range map[string]struct {
		path, body string
		header     []string
		status     int
	}{
		"no JSON":           {"/runs", "account=acme", jsonWithKey, 400},
		"nothing":           {"/runs", "", jsonWithKey, 400},
		"a list":            {"/runs", "[]", jsonWithKey, 400},
		"two bodies":        {"/runs", good + good, jsonWithKey, 400},
		"unknown field":     {"/runs", `{"account":"acme","estimated_cost":"1","estimate":"2"}`, jsonWithKey, 400},
		"a number":          {"/runs", `{"account":"acme","estimated_cost":1.0}`, jsonWithKey, 400},
		"no estimate":       {"/runs", `{"account":"acme"}`, jsonWithKey, 400},
		"null estimate":     {"/runs", `{"account":"acme","estimated_cost":null}`, jsonWithKey, 400},
		"estimate 0":        {"/runs", `{"account":"acme","estimated_cost":"0"}`, jsonWithKey, 400},
		"estimate below 0":  {"/runs", `{"account":"acme","estimated_cost":"-1"}`, jsonWithKey, 400},
		"estimate too fine": {"/runs", `{"account":"acme","estimated_cost":"0.0000000001"}`, jsonWithKey, 400},
		"estimate too big":  {"/runs", `{"account":"acme","estimated_cost":"99999999999"}`, jsonWithKey, 400},
		"no account":        {"/runs", `{"estimated_cost":"1"}`, jsonWithKey, 400},
		"account too long":  {"/runs", `{"account":"` + strings.Repeat("a", 257) + `","estimated_cost":"1"}`, jsonWithKey, 400},
		"control in name":   {"/runs", `{"account":"a\u0000","estimated_cost":"1"}`, jsonWithKey, 400},
		"no key":            {"/runs", good, with(mediaType, "application/json"), 400},
		"key with a blank":  {"/runs", good, with(mediaType, "application/json", keyHeader, "a b"), 400},
		"key too long":      {"/runs", good, with(mediaType, "application/json", keyHeader, strings.Repeat("k", maxKey+1)), 400},
		"no media type":     {"/runs", good, with(keyHeader, "k"), 415},
		"a form":            {"/runs", good, with(mediaType, "application/x-www-form-urlencoded", keyHeader, "k"), 415},
		"too large":         {"/runs", `{"account":"` + strings.Repeat("a", maxBody) + `"}`, jsonWithKey, 413},
		"header too large":  {"/runs", good, append(with("X-Large", strings.Repeat("x", 3*maxHeader)), jsonWithKey...), 431},
		"settle: no cost":   {"/runs/x/settle", "{}", jsonWithKey, 400},
		"settle: below 0":   {"/runs/x/settle", `{"cost":"-1"}`, jsonWithKey, 400},
		"settle: no run":    {"/runs/x/settle", `{"cost":"1"}`, jsonWithKey, 404},
		"settle: odd run":   {"/runs/" + "%27%20OR%201=1--" + "/settle", `{"cost":"1"}`, jsonWithKey, 404},
		"no such path":      {"/run", good, jsonWithKey, 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := c.do("POST", r.path, r.body, r.header...)
			if a.status != r.status {
				t.Errorf("%+v, want status %d", a, r.status)
			}
			if r.status == 431 || name == "no such path" {
				return // net/http answers by itself
			}
			p := a.json(t)
			if a.header.Get("Content-Type") != "application/problem+json" || p["status"] != float64(r.status) || p["title"] == "" || p["type"] == "" {
				t.Errorf("%+v is no problem as it should be", a)
			}
		})
	}
	t.Run("nothing was held", func(t *testing.T) {
		if got := c.do("GET", "/runs", ""); got.status != 405 {
			t.Errorf("GET /runs: %+v", got)
		}
		if got := c.do("GET", "/problems/none", ""); got.status != 404 {
			t.Errorf("GET /problems/none: %+v", got)
		}
	})
}

// However many ask at once, those that are admitted fit into the limit together, and a key makes one run.
func TestConcurrentRuns(t *testing.T) {
	onEach(t, func(t *testing.T, store string) {
		c := start(t, store, "-limit", "1")
		const callers, keys = 48, 24
		var mu sync.Mutex
		admitted, ids := 0, map[string]string{}
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				key := fmt.Sprint("key-", i%keys)
				a := c.post(key, "acme", "0.15")
				mu.Lock()
				defer mu.Unlock()
				switch id, _ := a.json(t)["id"].(string); {
				case a.status == 429:
				case a.status != 201:
					t.Errorf("%s: %+v, log %s", key, a, c.log)
				case ids[key] != "" && ids[key] != id:
					t.Errorf("%s made two runs", key)
				case ids[key] == "":
					admitted++
					ids[key] = id
				}
			})
		}
		wg.Wait()
		if admitted != 6 {
			t.Errorf("%d runs of 0.15 were admitted to a limit of 1", admitted)
		}
		c.used("acme", "0", "0.9", "0.1")
	})
}

// A service that starts on the file of another one, or beside it, goes on with its runs and its budget.
func TestRestart(t *testing.T) {
	onEach(t, func(t *testing.T, store string) {
		c := start(t, store, "-limit", "1")
		first := c.post("a", "acme", "0.8")
		if err := c.stop(); err != nil {
			t.Fatal(err)
		}
		c = start(t, store, "-limit", "1")
		beside := start(t, store, "-limit", "1")
		c.used("acme", "0", "0.8", "0.2")
		for _, s := range []*client{c, beside} {
			if again := s.post("a", "acme", "0.8"); again.text != first.text {
				t.Errorf("again: %+v", again)
			}
			if more := s.post("b", "acme", "0.3"); more.status != 429 {
				t.Errorf("more than is left: %+v", more)
			}
		}
		if a := beside.settle(first.json(t)["id"].(string), "0.1"); a.status != 200 {
			t.Errorf("settled: %+v", a)
		}
		c.used("acme", "0.1", "0", "0.9")
	})
}

// Without its row a run holds no money.
func TestBothOrNeither(t *testing.T) {
	onEach(t, func(t *testing.T, store string) {
		c := start(t, store, "-limit", "1")
		id := c.post("a", "acme", "0.1").json(t)["id"].(string)
		led, err := spendlimit.New(c.db.Spend(), spendlimit.Config{Unit: spendlimit.USD})
		if err != nil {
			t.Fatal(err)
		}
		err = c.db.commit(t.Context(), func(spendlimit.Store) (statement, error) {
			return statement{text: "ALTER TABLE runs RENAME TO jobs"}, nil
		})
		if err == nil { // can be read as before, but not be written
			err = c.db.commit(t.Context(), func(spendlimit.Store) (statement, error) {
				return statement{text: "CREATE VIEW runs AS SELECT DISTINCT * FROM jobs"}, nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []answer{c.post("b", "acme", "0.2"), c.settle(id, "0.1")} {
			if a.status != 503 {
				t.Errorf("%+v", a)
			}
		}
		if h, err := led.Hold(t.Context(), holdOf("b")); !errors.Is(err, spendlimit.ErrNotFound) {
			t.Errorf("hold %+v, error %v", h, err)
		}
		c.used("acme", "0", "0.1", "0.9")
	})
}

// A hold without its run, as after a backup of one table, gets one by the same request again.
func TestHoldWithoutRun(t *testing.T) {
	onEach(t, func(t *testing.T, store string) {
		c := start(t, store, "-limit", "1")
		led, err := spendlimit.New(c.db.Spend(), spendlimit.Config{Unit: spendlimit.USD})
		if err != nil {
			t.Fatal(err)
		}
		c.balance("acme")
		limit := spendlimit.Limit{Account: "acme", Name: "daily", Kind: spendlimit.Day, Amount: spendlimit.USD.MustParse("1")}
		if _, err := led.SetLimit(t.Context(), limit, ""); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b"} {
			_, err = led.Reserve(t.Context(), spendlimit.Request{
				Key: holdOf(key), Accounts: []string{"acme"}, Amount: spendlimit.USD.MustParse("0.4"), TTL: time.Hour,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if a := c.post("a", "acme", "0.4"); a.status != 201 {
			t.Errorf("%+v", a)
		}
		if a := c.post("b", "acme", "0.3"); a.status != 422 {
			t.Errorf("another estimate: %+v", a)
		}
		if _, err := led.Release(t.Context(), holdOf("b")); err != nil {
			t.Fatal(err)
		}
		if a := c.post("b", "acme", "0.4"); a.status != 409 || a.json(t)["type"] != typeEnded {
			t.Errorf("a hold that has ended: %+v", a)
		}
		c.used("acme", "0", "0.4", "0.6")
	})
}

func TestHealth(t *testing.T) {
	onEach(t, func(t *testing.T, store string) {
		c := start(t, store)
		if a := c.do("GET", "/healthz", ""); a.status != 200 || a.text != "{\"status\":\"ok\"}\n" {
			t.Errorf("%+v", a)
		}
		if err := c.db.Close(); err != nil {
			t.Fatal(err)
		}
		for _, a := range []answer{c.do("GET", "/healthz", ""), c.post("secret-key", "acme", "1"), c.do("GET", "/accounts/acme/balances", "")} {
			if a.status != 503 || a.header.Get("Retry-After") != "1" || a.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("without a database: %+v", a)
			}
		}
		if log := c.log.String(); strings.Contains(log, "secret-key") || !strings.Contains(log, `"status":503`) {
			t.Errorf("the log: %s", log)
		}
	})
}

// A request that has begun when the service is told to stop is answered.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	c := start(t, stores()["sqlite"](t))
	body, end := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), "POST", c.url+"/runs", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(mediaType, "application/json")
	r.Header.Set(keyHeader, "a")
	r.Header.Set("Expect", "100-continue") // so that the body leaves when the service reads it
	status := make(chan int, 1)
	go func() {
		resp, err := c.http.Do(r)
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		resp.Body.Close()
		status <- resp.StatusCode
	}()
	fmt.Fprint(end, `{"account":"acme",`)
	stopped := make(chan error, 1)
	go func() { stopped <- c.stop() }()
	c.log.wait("stopping")
	fmt.Fprint(end, `"estimated_cost":"1"}`)
	end.Close()
	if s := <-status; s != 201 {
		t.Errorf("status %d", s)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", strings.TrimPrefix(c.url, "http://")); err == nil {
		t.Error("the port is still open")
	}
}

func TestBadFlags(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-store redis://u:secret@h":              "-store: unknown, want sqlite:FILE or postgres:DSN",
		"-store password=secret":                 "-store: unknown, want sqlite:FILE or postgres:DSN",
		"-store sqlite":                          "-store: sqlite needs a file, want sqlite:FILE",
		"-store postgres:":                       "-store: postgres needs a DSN, want postgres:DSN",
		"-limit -1":                              "-limit: \"-1\" is not an amount in USD",
		"-limit 1e3":                             "-limit: \"1e3\" is not an amount in USD",
		"-zone Mars/Olympus":                     "-zone: \"Mars/Olympus\" is unknown",
		"-ttl 1ms":                               "-ttl: 1ms is outside 1s..24h",
		"-ttl 25h":                               "-ttl: 25h0m0s is outside 1s..24h",
		"-speed 3":                               "flag provided but not defined: -speed",
		"extra":                                  "unexpected argument",
		"-store postgres:user=u password=secret": "unexpected argument",
		"postgres://u:secret@h/d":                "unexpected argument",
		"-store postgres://u:1/secret@h/d":       "-store: the DSN of Postgres can't be read",
		"-store postgres://u:secret@h:bad/d":     "-store: the DSN of Postgres can't be read",
		"-store sqlite:none/service.db":          "-store: embedded: open \"none/service.db\": unavailable",
		"-store sqlite:a.db -addr 1.2.3.4:bad":   "listen tcp: ",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			args := strings.Split(strings.ReplaceAll(args, "a.db", filepath.Join(t.TempDir(), "a.db")), " ")
			cfg, err := parseFlags(args, io.Discard)
			if err == nil {
				err = run(t.Context(), cfg, slog.New(slog.DiscardHandler))
			}
			if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

func TestStoreNames(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]storeName{
		"sqlite:a:b.db":         {"sqlite", "a:b.db"},
		"postgres:dbname=a":     {"postgres", "dbname=a"},
		"postgres:postgres://h": {"postgres", "postgres://h"},
		"postgres://h/d":        {"postgres", "postgres://h/d"},
	} {
		if got, err := parseStore(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}
