package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/internal/spendsql/spendsqltest"
	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit"
)

// proxy stands between a pool and the server, and has a hand in what passes.
type proxy struct {
	listener net.Listener
	dial     func() (net.Conn, error) // to the server
	rule     atomic.Pointer[rule]
	open     sync.WaitGroup
}

// rule says of bytes on their way to the server (up) or from it (down) which of them pass, and whether the connection
// is cut then.
type rule struct {
	up, down func(b []byte) (pass []byte, cut bool)
}

func pass(b []byte) ([]byte, bool) { return b, false }

// through makes a pool connect through a proxy, one connection at a time, with every statement in plain sight.
func through(t testing.TB) (*proxy, func(*pgxpool.Config)) {
	p := new(proxy)
	p.calm()
	var err error
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.listener.Close()
		p.open.Wait()
	})
	return p, func(cfg *pgxpool.Config) {
		cfg.MaxConns = 1
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		network, address := pgconn.NetworkAddress(cfg.ConnConfig.Host, cfg.ConnConfig.Port)
		p.dial = func() (net.Conn, error) { return net.Dial(network, address) }
		p.open.Go(p.accept)
		cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", p.listener.Addr().String())
		}
	}
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := p.dial()
		if err != nil {
			client.Close()
			continue
		}
		cut := func() {
			client.Close()
			server.Close()
		}
		p.open.Go(func() { p.copy(server, client, cut, func(r *rule) func([]byte) ([]byte, bool) { return r.up }) })
		p.open.Go(func() { p.copy(client, server, cut, func(r *rule) func([]byte) ([]byte, bool) { return r.down }) })
	}
}

func (p *proxy) copy(to, from net.Conn, cut func(), direction func(*rule) func([]byte) ([]byte, bool)) {
	defer cut()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		out, end := direction(p.rule.Load())(b[:n])
		if _, err := to.Write(out); err != nil || end {
			return
		}
	}
}

func (p *proxy) calm() { p.rule.Store(&rule{pass, pass}) }

// after cuts behind so many bytes.
func after(n int64) func(b []byte) ([]byte, bool) {
	var seen atomic.Int64
	return func(b []byte) ([]byte, bool) {
		over := seen.Add(int64(len(b))) - n
		if over < 0 {
			return b, false
		}
		return b[:max(0, int64(len(b))-over)], true
	}
}

// behindProxy is a room whose own ledger goes straight to the server, and another that goes through a proxy.
func behindProxy(t *testing.T) (room, *proxy, *spendlimit.Ledger) {
	r := newRoom(t)
	setLimit(t, r.led, "big", 1_000_000)
	p, way := through(t)
	pool := newPool(t, r.pool.Config().ConnString(), way)
	return r, p, newLedger(t, pool, nil)
}

// outcome checks an answer against what is in the database, and that asking again gives the truth.
func outcome(t *testing.T, r room, what, key string, err error) {
	t.Helper()
	for _, kind := range []error{spendlimit.ErrDenied, spendlimit.ErrClosed, spendlimit.ErrSchema, spendlimit.ErrInvalid} {
		isNot(t, err, kind)
	}
	_, find := r.led.Hold(t.Context(), key)
	if find != nil && !errors.Is(find, spendlimit.ErrNotFound) {
		t.Fatal(find)
	}
	there := find == nil
	switch uncertain, unavailable := errors.Is(err, spendlimit.ErrUncertain), errors.Is(err, spendlimit.ErrUnavailable); {
	case err == nil && !there:
		t.Fatalf("%s: granted, and not there", what)
	case err != nil && uncertain == unavailable:
		t.Fatalf("%s: neither uncertain nor unavailable, or both: %v", what, err)
	case unavailable && there:
		t.Fatalf("%s: said not to be applied, and it is there: %v", what, err)
	}
	h, err := r.led.Reserve(t.Context(), hold(key, 1, "big"))
	if err != nil {
		t.Fatalf("%s: asked again: %v", what, err)
	}
	if there && !h.Replayed {
		t.Fatalf("%s: asked again, it is a new hold", what)
	}
}

func TestC6_CutAtAnyByte(t *testing.T) {
	t.Parallel()
	r, p, led := behindProxy(t)
	var ups, downs atomic.Int64
	count := func(n *atomic.Int64) func([]byte) ([]byte, bool) {
		return func(b []byte) ([]byte, bool) { n.Add(int64(len(b))); return b, false }
	}
	reserve(t, led, "warm", 1, "big")
	p.rule.Store(&rule{count(&ups), count(&downs)})
	reserve(t, led, "counted", 1, "big")
	p.calm()
	keys := spendlimit.Amount(2)
	certain, uncertain := 0, 0
	try := func(what string, cut *rule) {
		key := fmt.Sprint("k", keys)
		keys++
		for range 3 { // the pool may still have a connection that was cut
			if _, err := led.Check(t.Context(), hold("warm up", 1, "big")); err == nil {
				break
			}
		}
		p.rule.Store(cut)
		_, err := led.Reserve(t.Context(), hold(key, 1, "big"))
		p.calm()
		outcome(t, r, what, key, err)
		if errors.Is(err, spendlimit.ErrUncertain) {
			uncertain++
		} else if err != nil {
			certain++
		}
	}
	const few = 25
	for i := range int64(few) {
		at := ups.Load() * i / few
		try(fmt.Sprintf("up at %d", at), &rule{after(at), pass})
		at = downs.Load() * i / few
		try(fmt.Sprintf("down at %d", at), &rule{pass, after(at)})
	}
	for i := range int64(few) { // around COMMIT and its answer
		try(fmt.Sprintf("up at %d from the end", i), &rule{after(ups.Load() - 2*i), pass})
		try(fmt.Sprintf("down at %d from the end", i), &rule{pass, after(downs.Load() - i)})
	}
	if certain == 0 || uncertain == 0 {
		t.Errorf("%d times not applied, %d times uncertain", certain, uncertain)
	}
	wants(t, r.led, "big", keys)
}

func seesCommit(b []byte) bool { return bytes.Contains(b, []byte("COMMIT\x00")) }

func TestC6_CutAtCommit(t *testing.T) {
	t.Parallel()
	r, p, led := behindProxy(t)
	shutdown, err := (&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01", Message: "terminating connection"}).Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	lost, err := (&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "08P01", Message: "server conn crashed?"}).Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, test := range []struct {
		name    string
		up      func([]byte) ([]byte, bool)
		down    func([]byte) ([]byte, bool)
		want    error
		applied bool
	}{
		{"before it leaves", func(b []byte) ([]byte, bool) {
			if seesCommit(b) {
				return nil, true
			}
			return b, false
		}, pass, spendlimit.ErrUncertain, false},
		{"before its answer", pass, func(b []byte) ([]byte, bool) {
			if seesCommit(b) {
				return nil, true
			}
			return b, false
		}, spendlimit.ErrUncertain, true},
		{"a pooler lost the server", pass, func(b []byte) ([]byte, bool) {
			if seesCommit(b) {
				return lost, true
			}
			return b, false
		}, spendlimit.ErrUncertain, true},
		{"shutdown behind its answer", pass, func(b []byte) ([]byte, bool) {
			if i := bytes.Index(b, []byte("COMMIT\x00")); i >= 0 {
				return append(bytes.Clone(b[:i+len("COMMIT\x00")]), shutdown...), true
			}
			return b, false
		}, nil, true},
	} {
		key := fmt.Sprint("k", i)
		for range 3 {
			if _, err := led.Check(t.Context(), hold("warm up", 1, "big")); err == nil {
				break
			}
		}
		p.rule.Store(&rule{test.up, test.down})
		_, err := led.Reserve(t.Context(), hold(key, 1, "big"))
		p.calm()
		if !errors.Is(err, test.want) {
			t.Errorf("%s: error %v, want %v", test.name, err, test.want)
		}
		if _, find := r.led.Hold(t.Context(), key); (find == nil) != test.applied {
			t.Errorf("%s: %v, want it applied: %v", test.name, find, test.applied)
		}
		outcome(t, r, test.name, key, err)
	}
}

// COMMIT of a transaction that had failed is answered with ROLLBACK, and with no error.
func TestC6_CommitAnsweredWithRollback(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	for _, list := range []string{"", "SELECT 1/0"} {
		c, err := r.begin(t.Context(), beginWriting)
		if err != nil {
			t.Fatal(err)
		}
		is(t, c.Run(t.Context(), stmt("SELECT 1/0")), spendlimit.ErrUnavailable)
		if list == "" {
			err = c.commit(t.Context(), nil)
		} else {
			err = c.commit(t.Context(), append(c.wait, stmt(list)))
		}
		is(t, err, spendlimit.ErrUnavailable)
		isNot(t, err, spendlimit.ErrUncertain)
		c.end(t.Context())
	}
}

// A constraint that is looked at when the transaction commits refuses it then.
func TestC6_CommitRefused(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	sql(t, r.pool, "ALTER TABLE stint.spend_hold ADD CONSTRAINT late UNIQUE (granted) DEFERRABLE INITIALLY DEFERRED")
	reserve(t, r.led, "k1", 1, "a")
	_, err := r.led.Reserve(t.Context(), hold("k2", 1, "a"))
	is(t, err, spendlimit.ErrUnavailable)
	isNot(t, err, spendlimit.ErrUncertain)
	wants(t, r.led, "a", 1)
}

// steered changes the context of steps.
type steered struct {
	spendlimit.Store
	ctx func(context.Context) context.Context
}

func (s steered) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	return s.Store.Step(s.ctx(ctx), n, f)
}

// quiet waits until no connection of the database is inside a transaction, and fails when that takes long.
func quiet(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	const busy = "SELECT count(*) FROM pg_stat_activity a WHERE datname = current_database() AND pid <> pg_backend_pid() AND (xact_start IS NOT NULL " +
		"OR EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid AND l.mode <> 'ExclusiveLock'))"
	for end := time.Now().Add(10 * time.Second); ask[int](t, pool, busy) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a connection is still inside a transaction")
		}
	}
}

func TestC6_CancelledAnywhere(t *testing.T) {
	t.Parallel()
	r, p, led := behindProxy(t)
	reserve(t, led, "warm", 1, "big")
	var ups atomic.Int64
	p.rule.Store(&rule{func(b []byte) ([]byte, bool) { ups.Add(int64(len(b))); return b, false }, pass})
	reserve(t, led, "counted", 1, "big")
	p.calm()
	d := newDB(t, newPool(t, r.pool.Config().ConnString(), func(cfg *pgxpool.Config) {
		cfg.MaxConns = 1
		cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
		cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", p.listener.Addr().String())
		}
	}), nil)
	keys := spendlimit.Amount(2)
	for i := range int64(30) {
		ctx, cancel := context.WithCancel(t.Context())
		at := ups.Load() * i / 30
		var seen atomic.Int64
		p.rule.Store(&rule{func(b []byte) ([]byte, bool) {
			if seen.Add(int64(len(b))) >= at {
				cancel()
			}
			return b, false
		}, pass})
		key := fmt.Sprint("k", i)
		keys++
		_, err := ledgerOn(t, steered{d.Spend(), func(context.Context) context.Context { return ctx }}, spendlimit.Config{}).Reserve(t.Context(), hold(key, 1, "big"))
		cancel()
		p.calm()
		quiet(t, r.pool)
		outcome(t, r, fmt.Sprintf("cancelled at %d", at), key, err)
	}
	wants(t, r.led, "big", keys)
}

// A step that waits for a lock ends with its context, and leaves nobody waiting on the server.
func TestC6_DeadlineWhileItWaitsForALock(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	lock := begin(t, r.DB, pgx.TxOptions{})
	txExec(t, lock, "SELECT FROM stint.spend_account WHERE name = 'a' FOR UPDATE")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := r.led.Reserve(ctx, hold("k", 1, "a"))
	if !errors.Is(err, spendlimit.ErrUnavailable) && !errors.Is(err, spendlimit.ErrUncertain) {
		t.Errorf("error %v", err)
	}
	for end := time.Now().Add(5 * time.Second); ask[int](t, r.pool, waiting) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a connection still waits for the lock")
		}
	}
}

// A client that stops in the middle of a step, as one that froze or that the network took, keeps its locks no longer than
// the step had time.
func TestC6_AFrozenClientKeepsNoLock(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	other := newDB(t, newPool(t, r.pool.Config().ConnString()), nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := r.Spend().Step(ctx, spendlimit.Need{Ledger: "default", Accounts: []string{"a"}}, func(int64, *spendlimit.Work) error {
		start := time.Now()
		if _, err := ledgerOn(t, other.Spend(), spendlimit.Config{}).Reserve(context.Background(), hold("k", 1, "a")); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d < 500*time.Millisecond || d > 5*time.Second {
			t.Errorf("waited %v", d)
		}
		return nil
	})
	if err != nil {
		is(t, err, spendlimit.ErrUnavailable)
	}
}

func TestC6_APoolOfOne(t *testing.T) {
	t.Parallel()
	r := newRoom(t, func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	setLimit(t, r.led, "big", 1_000_000)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			led := ledgerOn(t, r.Spend(), spendlimit.Config{Defaults: oneLimit})
			for n := range 5 {
				key := fmt.Sprintf("k%d-%d", i, n)
				if _, err := led.Reserve(ctx, hold(key, 1, "big", key)); err != nil {
					t.Error(err)
				}
				for _, err := range led.Entries(ctx, "big", 0) {
					if err != nil {
						t.Error(err)
					}
					if _, err := led.Settle(ctx, key, spendlimit.Total(1)); err != nil {
						t.Error(err)
					}
					break
				}
			}
		})
	}
	all.Wait()
	wants(t, r.led, "big", 0)
	tx := begin(t, r.DB, pgx.TxOptions{}) // has the connection
	reserve(t, in(t, r.DB, tx), "in", 1, "big")
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := r.Spend().Step(short, spendlimit.Need{Ledger: "default"}, func(int64, *spendlimit.Work) error { return nil })
	is(t, err, spendlimit.ErrUnavailable)
	is(t, err, context.DeadlineExceeded)
	commit(t, tx)
	wants(t, r.led, "big", 1)
}

func oneLimit(account string) []spendlimit.Limit {
	return []spendlimit.Limit{{Account: account, Name: "all", Kind: spendlimit.AllTime, Amount: 50}}
}

func TestT76_NoServer(t *testing.T) {
	t.Parallel()
	r, p, _ := behindProxy(t)
	const password = "correct-horse-battery-staple"
	way := func(cfg *pgxpool.Config) {
		cfg.ConnConfig.Password = password
		cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", p.listener.Addr().String())
		}
	}
	refused, err := (&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "28P01", Message: "password authentication failed"}).Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	silent := &rule{func([]byte) ([]byte, bool) { return nil, false }, pass}
	for _, test := range []struct {
		name   string
		change func(*pgxpool.Pool)
	}{
		{"wrong password", func(*pgxpool.Pool) { p.rule.Store(&rule{pass, func([]byte) ([]byte, bool) { return refused, true }}) }},
		{"silent server", func(*pgxpool.Pool) { p.rule.Store(silent) }},
		{"silent server, connected", func(pool *pgxpool.Pool) {
			_ = pool.Ping(t.Context())
			p.rule.Store(silent)
		}},
		{"closed pool", func(pool *pgxpool.Pool) { pool.Close() }},
		{"nobody listens", func(pool *pgxpool.Pool) { p.listener.Close() }},
	} {
		p.calm()
		pool := newPool(t, r.pool.Config().ConnString(), way)
		d := newDB(t, pool, nil)
		pool.Reset()
		test.change(pool)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		start := time.Now()
		_, err := ledgerOn(t, d.Spend(), spendlimit.Config{}).Check(ctx, hold("k", 1, "a"))
		errs := []error{
			err,
			d.Spend().Step(ctx, spendlimit.Need{Ledger: "default", Accounts: []string{"a"}}, func(int64, *spendlimit.Work) error { return nil }),
			Migrate(ctx, pool, nil),
		}
		_, err = New(ctx, pool, nil)
		errs = append(errs, err)
		cancel()
		for i, err := range errs {
			if !errors.Is(err, spendlimit.ErrUnavailable) || errors.Is(err, spendlimit.ErrUncertain) || errors.Is(err, spendlimit.ErrDenied) {
				t.Errorf("%s: error %d is %v", test.name, i, err)
			}
			if err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("%s: error %d has the password", test.name, i)
			}
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("%s: took %v", test.name, took)
		}
	}
	p.calm()
}

func TestT76_ShutdownInTheMiddle(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	setLimit(t, r.led, "big", 1_000_000)
	admin := newPool(t, r.pool.Config().ConnString(), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	pid := ask[int](t, admin, "SELECT pg_backend_pid()")
	var all sync.WaitGroup
	all.Go(func() {
		for range 40 {
			_, _ = admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> $1", pid)
			time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
		}
	})
	failed := 0
	calls := spendlimit.Amount(0)
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); calls++ {
		key := fmt.Sprint("k", calls)
		for {
			_, err := r.led.Reserve(t.Context(), hold(key, 1, "big"))
			if err == nil {
				break
			}
			if !errors.Is(err, spendlimit.ErrUnavailable) && !errors.Is(err, spendlimit.ErrUncertain) {
				t.Fatal(err)
			}
			failed++
		}
	}
	all.Wait()
	if failed == 0 {
		t.Error("no call failed")
	}
	wants(t, newLedger(t, admin, nil), "big", calls)
}

func TestT76_DamagedRowsAndMissingTables(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	reserve(t, r.led, "k", 4, "a")
	if _, err := r.led.Record(t.Context(), spendlimit.Usage{Hold: "k", ID: "u", Cost: spendlimit.Total(1)}); err != nil {
		t.Fatal(err)
	}
	for _, damage := range []string{
		"UPDATE stint.spend_hold SET periods = '[999999999]'",
		"UPDATE stint.spend_hold SET periods = ''",
		"UPDATE stint.spend_hold SET periods = substr(periods, 2)",
		"UPDATE stint.spend_hold SET more_parts = '[{\"at\":1,\"left\":1,\"periods\":[999999999]}]'",
		"ALTER TABLE stint.spend_period DROP CONSTRAINT spend_period_limit_id_fkey; UPDATE stint.spend_period SET limit_id = 999999999",
		"UPDATE stint.spend_hold SET accounts = '[999999999]'",
		"UPDATE stint.spend_hold SET accounts = '{'",
		"UPDATE stint.spend_hold SET parent_id = 999999999",
		"UPDATE stint.spend_usage SET receipt = '[]x'",
	} {
		restore := keepRows(t, r.pool)
		sql(t, r.pool, damage)
		_, err := r.led.Record(t.Context(), spendlimit.Usage{Hold: "k", ID: "u", Cost: spendlimit.Total(1)})
		if !errors.Is(err, spendlimit.ErrUnavailable) || errors.Is(err, spendlimit.ErrUncertain) {
			t.Errorf("%s: %v", damage, err)
		}
		restore(t)
	}
	sql(t, r.pool, "ALTER TABLE stint.spend_owner RENAME TO elsewhere")
	_, err := r.led.Reserve(t.Context(), hold("k2", 1, "a"))
	is(t, err, spendlimit.ErrSchema)
	sql(t, r.pool, "DROP SCHEMA stint CASCADE")
	_, err = r.led.Reserve(t.Context(), hold("k2", 1, "a"))
	is(t, err, spendlimit.ErrSchema)
	_, err = r.led.Check(t.Context(), hold("k2", 1, "a"))
	is(t, err, spendlimit.ErrSchema)
	if _, err = New(t.Context(), r.pool, nil); !errors.Is(err, spendlimit.ErrSchema) {
		t.Error(err)
	}
	_ = r.Close()
	_, err = r.led.Reserve(t.Context(), hold("k2", 1, "a"))
	is(t, err, spendlimit.ErrClosed)
}

// keepRows returns what puts the rows of tables that are damaged back.
func keepRows(t testing.TB, pool *pgxpool.Pool) func(testing.TB) {
	names := []string{"period", "hold", "usage"}
	for _, n := range names {
		sql(t, pool, "DROP TABLE IF EXISTS kept_"+n)
		sql(t, pool, "CREATE TABLE kept_"+n+" AS TABLE stint.spend_"+n)
	}
	return func(t testing.TB) {
		for _, n := range names {
			sql(t, pool, "DELETE FROM stint.spend_"+n)
			sql(t, pool, "INSERT INTO stint.spend_"+n+" TABLE kept_"+n)
		}
	}
}

// waiting counts the connections that wait for a lock.
const waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

func waitForWaiter(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ask[int](t, pool, waiting) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody waits for a lock")
		}
	}
}

// A slow account delays no other: another process that works on it has its own connection, and no lock is over both.
func TestT66_ASlowAccount(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	setLimit(t, r.led, "b", 10)
	lock := begin(t, r.DB, pgx.TxOptions{})
	txExec(t, lock, "SELECT FROM stint.spend_account WHERE name = 'a' FOR UPDATE")
	done := make(chan error)
	go func() {
		_, err := r.led.Reserve(t.Context(), hold("slow", 1, "a"))
		done <- err
	}()
	waitForWaiter(t, r.pool)
	other := ledgerOn(t, r.Spend(), spendlimit.Config{})
	reserve(t, other, "fast", 1, "b")
	reserve(t, other, "new", 1, "b")
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Two processes make the same ledger and the same accounts at once.
func TestC3_NewAccountsAtOnce(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testdb.Postgres(t), loose)
	if err := Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	dbs := []*DB{newDB(t, pool, nil), newDB(t, pool, nil), newDB(t, pool, nil)}
	for round := range 15 {
		name := fmt.Sprint("ledger ", round)
		start := make(chan struct{})
		var all sync.WaitGroup
		for i, d := range dbs {
			led := ledgerOn(t, d.Spend(), spendlimit.Config{Name: name, Defaults: oneLimit})
			all.Go(func() {
				<-start
				for n := range 3 {
					accounts := []string{fmt.Sprint("x", n), fmt.Sprint("x", n+1), fmt.Sprint("x", n+2)}
					if i%2 == 0 {
						accounts[0], accounts[2] = accounts[2], accounts[0]
					}
					if _, err := led.Reserve(t.Context(), hold(fmt.Sprint("k", i, n), 1, accounts...)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		close(start)
		all.Wait()
		wants(t, ledgerOn(t, dbs[0].Spend(), spendlimit.Config{Name: name}), "x2", 9)
	}
}

// Two tenants at full rate, in the strictest isolation that a database may have as its default.
func TestT49_TwoTenants(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testdb.Postgres(t), loose, func(cfg *pgxpool.Config) {
		cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	})
	if err := Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var settled [2]atomic.Int64
	end := time.Now().Add(time.Second)
	for process := range 2 {
		d := newDB(t, pool, nil)
		for tenant := range 2 {
			led := ledgerOn(t, d.Spend(), spendlimit.Config{Defaults: func(string) []spendlimit.Limit {
				return []spendlimit.Limit{{Name: "all", Kind: spendlimit.AllTime, Amount: 1_000_000}}
			}})
			for caller := range 8 {
				all.Go(func() {
					for n := 0; time.Now().Before(end); n++ {
						key := fmt.Sprint(process, tenant, caller, n)
						if _, err := led.Reserve(t.Context(), hold(key, 3, fmt.Sprint("tenant ", tenant))); err != nil {
							t.Error(err)
							return
						}
						if _, err := led.Settle(t.Context(), key, spendlimit.Total(2)); err != nil {
							t.Error(err)
							return
						}
						settled[tenant].Add(2)
					}
				})
			}
		}
	}
	all.Wait()
	led := newLedger(t, pool, nil)
	for tenant := range 2 {
		name := fmt.Sprint("tenant ", tenant)
		wants(t, led, name, 0)
		spent := ask[int64](t, pool, "SELECT p.spent FROM stint.spend_period p JOIN stint.spend_limit m ON m.id = p.limit_id JOIN stint.spend_account a ON a.id = m.account_id WHERE a.name = $1", name)
		if spent != settled[tenant].Load() || spent == 0 {
			t.Errorf("%s: spent %d, settled %d", name, spent, settled[tenant].Load())
		}
	}
	t.Logf("%d and %d pairs in a second", settled[0].Load()/2, settled[1].Load()/2)
}

// Holds that are due lead from account to account, while the step also has an account to make. It is alone, so it never gives up.
func TestC2_DueHoldsLeadFarAway(t *testing.T) {
	t.Parallel()
	const far = 7
	r := newRoom(t, loose)
	clock := spendsqltest.NewClock(time.Now())
	o := &Options{Clock: clock.Now}
	led := newLedger(t, r.pool, o)
	chain := func(prefix string, i int) string { return fmt.Sprint(prefix, " ", i) }
	for _, prefix := range []string{"one", "two", "three"} {
		setLimit(t, led, chain(prefix, 0), 10)
		for i := range far {
			setLimit(t, led, chain(prefix, i+1), 10)
			reserve(t, led, chain(prefix, i), 1, chain(prefix, i), chain(prefix, i+1))
		}
	}
	clock.Advance(2 * time.Hour)
	led = ledgerOn(t, newDB(t, r.pool, o).Spend(), spendlimit.Config{Defaults: oneLimit})
	reserve(t, led, "with a new account", 1, chain("one", 0), "new")
	if _, err := led.Release(t.Context(), chain("two", 0)); err != nil {
		t.Error(err)
	}
	tx := begin(t, r.DB, pgx.TxOptions{})
	led = ledgerOn(t, newDB(t, r.pool, o).WithTx(tx).Spend(), spendlimit.Config{Defaults: oneLimit})
	reserve(t, led, "in a transaction", 1, chain("three", 0), "newer")
	commit(t, tx)
	for _, prefix := range []string{"one", "two", "three"} {
		wants(t, newLedger(t, r.pool, o), chain(prefix, far), 0)
	}
}

// A server that crashed may give out ids again of which nothing was committed. What a process remembers of them is then about
// rows of others, of another ledger even.
func TestC7_IDsGivenOutAgain(t *testing.T) {
	t.Parallel()
	r := newRoom(t, loose)
	second := newDB(t, r.pool, nil)
	other := ledgerOn(t, second.Spend(), spendlimit.Config{Name: "other"})
	setLimit(t, other, "b", 10)
	last := ask[int64](t, r.pool, "SELECT last_value FROM stint.spend_ids")
	third := newDB(t, r.pool, nil)
	tx := begin(t, third, pgx.TxOptions{})
	setLimit(t, in(t, third, tx), "lost", 10)
	reserve(t, in(t, third, tx), "k", 1, "lost")
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	sql(t, r.pool, "SELECT setval('stint.spend_ids', $1::bigint)", last)
	fourth := ledgerOn(t, newDB(t, r.pool, nil).Spend(), spendlimit.Config{Name: "other"})
	setLimit(t, fourth, "a", 10)
	for range 10 {
		led := ledgerOn(t, third.Spend(), spendlimit.Config{})
		_, err := led.Hold(t.Context(), "k")
		is(t, err, spendlimit.ErrNotFound)
		err = third.Spend().Step(t.Context(), spendlimit.Need{Ledger: "default", Accounts: []string{"a"}, Holds: []string{"k"}}, func(_ int64, w *spendlimit.Work) error {
			if a := w.Account("a"); a.Seq != 1 || len(a.Limits) != 1 || a.Limits[0].Account != a {
				t.Errorf("account %+v", a)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	reserve(t, ledgerOn(t, third.Spend(), spendlimit.Config{}), "k", 3, "a")
	wants(t, r.led, "a", 3)
	wants(t, fourth, "a", 0)
}

func stmt(sql string) sqlrow.Stmt { return sqlrow.Stmt{SQL: sql} }

// A step locks its accounts by name, whatever order they were made in, and keeps them until it ends.
func TestC3_LocksByName(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	names := []string{"e", "B", "é", "d", "b", "c"} // in bytes: B a b c d e é
	for _, name := range names {
		setLimit(t, r.led, name, 10)
	}
	free := func(account string) bool {
		_, err := r.pool.Exec(t.Context(), "SELECT FROM stint.spend_account WHERE name = $1 FOR UPDATE NOWAIT", account)
		if err != nil && code(err) != "55P03" {
			t.Fatal(err)
		}
		return err == nil
	}
	need := spendlimit.Need{Ledger: "default", Accounts: append(names, "a")}
	for range 5 {
		lock := begin(t, r.DB, pgx.TxOptions{})
		txExec(t, lock, "SELECT FROM stint.spend_account WHERE name = 'c' FOR UPDATE")
		done := make(chan error)
		go func() {
			done <- r.Spend().Step(t.Context(), need, func(int64, *spendlimit.Work) error {
				for _, name := range need.Accounts {
					if free(name) {
						t.Errorf("%s is not locked in the step", name)
					}
				}
				return nil
			})
		}()
		waitForWaiter(t, r.pool)
		for name, want := range map[string]bool{"B": false, "a": false, "b": false, "d": true, "e": true, "é": true} {
			if free(name) != want {
				t.Errorf("while it waits for c: %s is free: %v, want %v", name, !want, want)
			}
		}
		if err := lock.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}
