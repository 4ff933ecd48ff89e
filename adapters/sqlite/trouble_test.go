package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/sqlite"
	"github.com/stint-go/stint/spendlimit"
)

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }

// says checks the kind of an error, that it says what to do, and that it came soon.
func says(t *testing.T, what string, began time.Time, err, kind error, hint string) {
	t.Helper()
	if !errors.Is(err, kind) || !contains(err, hint) {
		t.Errorf("%s: error %v, want %v with %q", what, err, kind, hint)
	}
	if d := time.Since(began); d > 20*time.Second {
		t.Errorf("%s: took %v", what, d)
	}
}

// What is busy is waited for up to the context, with and without a busy timeout of the connection.
func TestBusy(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		for _, timeout := range []string{"0", "30000"} {
			w := newWorld(t, driver, path, "_txlock=immediate", "_pragma=busy_timeout("+timeout+")", "_pragma=journal_mode(wal)", "_pragma=foreign_keys(on)")
			other := must1(pool(driver, path, "_txlock=immediate"))(t)
			defer other.Close()
			tx := must1(other.Begin())(t)
			led := w.usd(w.db.Spend())
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			began := time.Now()
			// The step itself, for the ledger would leave it behind.
			err := w.db.Spend().Step(ctx, spendlimit.Need{Ledger: "usd"}, func(int64, *spendlimit.Work) error {
				t.Error("a step beside another writer")
				return nil
			})
			cancel()
			is(t, err, spendlimit.ErrUnavailable, context.DeadlineExceeded)
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("waited %v for 100 ms", d)
			}
			time.AfterFunc(200*time.Millisecond, func() { _ = tx.Rollback() })
			must1(led.Reserve(t.Context(), ask("k"+timeout, 1)))(t)
			w.clean()
		}
	})
}

// T8: a context that ends anywhere in a step leaves no connection inside a transaction, no lock and no token.
func TestT8_CancelledAnywhere(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		w := newWorld(t, driver, path, "_pragma=busy_timeout(0)", "_pragma=journal_mode(wal)", "_pragma=synchronous(off)", "_pragma=foreign_keys(on)")
		calls := 60
		if raceDetector {
			calls = 15
		}
		other := must1(pool(driver, path, "_txlock=immediate", "_pragma=busy_timeout(10000)"))(t)
		defer other.Close()
		stop := make(chan struct{})
		var rival, all sync.WaitGroup
		rival.Go(func() { // takes the place of the writer at times
			for {
				select {
				case <-stop:
					return
				case <-time.After(2 * time.Millisecond):
					if tx, err := other.Begin(); err == nil {
						time.Sleep(time.Millisecond)
						_ = tx.Rollback()
					}
				}
			}
		})
		cut := make([]int, 8)
		for caller := range cut {
			all.Go(func() {
				dice := rand.New(rand.NewPCG(uint64(caller), 0))
				led := w.usd(hasty{w.db.Spend(), func() time.Duration { return time.Duration(dice.IntN(8000)) * time.Microsecond }})
				for n := range calls {
					_, err := led.Reserve(t.Context(), spendlimit.Request{Key: fmt.Sprint(caller, "/", n), Accounts: []string{"acme"}, Free: true})
					if err == nil {
						continue
					}
					cut[caller]++
					if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, spendlimit.ErrUnavailable) && !errors.Is(err, spendlimit.ErrUncertain) {
						t.Errorf("error %v", err)
					}
				}
			})
		}
		all.Wait()
		close(stop)
		rival.Wait()
		t.Logf("cut off: %v", cut)
		led := w.usd(w.db.Spend())
		for caller := range cut {
			for n := range calls {
				_, err := led.Reserve(t.Context(), spendlimit.Request{Key: fmt.Sprint(caller, "/", n), Accounts: []string{"acme"}, Free: true})
				must(t, err)
			}
		}
		w.has(0, 0, 0)
		w.clean()
	})
}

// hasty gives every step a context that ends soon.
type hasty struct {
	spendlimit.Store
	next func() time.Duration
}

func (h hasty) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	ctx, cancel := context.WithTimeout(ctx, h.next())
	defer cancel()
	return h.Store.Step(ctx, n, f)
}

// A pool of one connection is enough, in memory too; in memory it is all that makes sense.
func TestPoolOfOne(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		for _, file := range []string{path, ":memory:"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			one := must1(pool(driver, file, settings("off")...))(t)
			defer one.Close()
			if file == ":memory:" {
				_, err := sqlite.New(ctx, one, nil)
				says(t, "a pool in memory", time.Now(), err, spendlimit.ErrInvalid, "SetMaxOpenConns(1)")
			}
			one.SetMaxOpenConns(1)
			must(t, sqlite.Migrate(ctx, one))
			db := must1(sqlite.New(ctx, one, nil))(t)
			led := must1(spendlimit.New(db.Spend(), spendlimit.Config{Unit: spendlimit.USD}))(t)
			must1(led.SetLimit(ctx, spendlimit.Limit{Account: "acme", Name: "day", Kind: spendlimit.Day, Amount: 10}, ""))(t)
			cut, stop := context.WithCancel(ctx)
			err := db.Spend().Step(cut, spendlimit.Need{Ledger: "default", Accounts: []string{"acme"}}, func(int64, *spendlimit.Work) error {
				stop()
				return context.Canceled
			})
			is(t, err, context.Canceled)
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					_, err := led.Reserve(ctx, ask(fmt.Sprint(i), 1))
					if err != nil {
						t.Error(err)
					}
					for h, err := range led.Holds(ctx, spendlimit.HoldFilter{}) {
						if err == nil {
							_, err = led.Hold(ctx, h.Key) // a call while a list is read
						}
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
		}
	})
}

func TestT76_Closed(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		w := newWorld(t, driver, path)
		must(t, w.sql.Close())
		_, err := w.usd(w.db.Spend()).Reserve(t.Context(), ask("k", 1))
		says(t, "reserve", time.Now(), err, spendlimit.ErrClosed, "closed")
		_, err = w.usd(w.db.Spend()).Hold(t.Context(), "k")
		says(t, "hold", time.Now(), err, spendlimit.ErrClosed, "closed")
		says(t, "migrate", time.Now(), sqlite.Migrate(t.Context(), w.sql), spendlimit.ErrClosed, "closed")
		_, err = sqlite.New(t.Context(), w.sql, nil)
		says(t, "new", time.Now(), err, spendlimit.ErrClosed, "closed")
		_, err = sqlite.New(t.Context(), nil, nil)
		says(t, "no pool", time.Now(), err, spendlimit.ErrInvalid, "no database")
		says(t, "no pool", time.Now(), sqlite.Migrate(t.Context(), nil), spendlimit.ErrInvalid, "no database")
	})
}

func TestT76_Schema(t *testing.T) {
	// Each leaves the tables as no release has them.
	wrong := map[string]struct {
		change  []string
		migrate error // what Migrate makes of it
	}{
		"missing": {[]string{"DROP TABLE stint_migration"}, spendlimit.ErrSchema},
		"newer":   {[]string{"INSERT INTO stint_migration SELECT max(version) + 1, 'more.sql', 'x' FROM stint_migration"}, spendlimit.ErrSchema},
		"altered": {[]string{"UPDATE stint_migration SET checksum = 'x'"}, spendlimit.ErrSchema},
		"dropped": {[]string{"DROP TABLE stint_spend_entry"}, nil},
		"column":  {[]string{"ALTER TABLE stint_spend_entry DROP COLUMN reason"}, nil},
	}
	onDrivers(t, func(t *testing.T, driver, path string) {
		for name, c := range wrong {
			path := path + name
			w := newWorld(t, driver, path)
			for _, text := range c.change {
				must1(w.sql.ExecContext(t.Context(), text))(t)
			}
			_, err := sqlite.New(t.Context(), w.sql, nil)
			is(t, err, spendlimit.ErrSchema)
			if err := sqlite.Migrate(t.Context(), w.sql); !errors.Is(err, c.migrate) {
				t.Errorf("%s: migrate: %v", name, err)
			}
		}
		w := newWorld(t, driver, path)
		for _, text := range []string{"PRAGMA foreign_keys=off", "DROP TABLE stint_spend_account"} {
			must1(w.sql.ExecContext(t.Context(), text))(t)
		}
		_, err := w.usd(w.db.Spend()).Reserve(t.Context(), ask("k", 1))
		says(t, "dropped under its feet", time.Now(), err, spendlimit.ErrSchema, "altered")

		empty := must1(pool(driver, path+"empty", settings("off")...))(t)
		defer empty.Close()
		_, err = sqlite.New(t.Context(), empty, nil)
		says(t, "never migrated", time.Now(), err, spendlimit.ErrSchema, "call Migrate")
		old := must1(pool(driver, path+"old", "_pragma=journal_mode(delete)"))(t)
		defer old.Close()
		must(t, sqlite.Migrate(t.Context(), old))
		_, err = sqlite.New(t.Context(), old, nil)
		says(t, "another journal", time.Now(), err, spendlimit.ErrInvalid, "journal_mode(wal)")
	})
}

// T76: a row that can't be read is no row, but no answer either.
func TestT76_DamagedRow(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		w := newWorld(t, driver, path)
		must1(w.sql.ExecContext(t.Context(), "UPDATE stint_spend_limit SET thresholds = '{'"))(t)
		_, err := w.usd(w.db.Spend()).Reserve(t.Context(), ask("k", 1))
		is(t, err, spendlimit.ErrUnavailable)
		w.clean()
	})
}

func TestBadFiles(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		fails := func(what, file, hint string, parameters ...string) {
			t.Helper()
			p := must1(pool(driver, file, parameters...))(t)
			defer p.Close()
			began := time.Now()
			says(t, what+": migrate", began, sqlite.Migrate(t.Context(), p), spendlimit.ErrUnavailable, hint)
		}
		dir := filepath.Dir(path)
		fails("a directory", dir, "see whether it", settings("off")...)
		fails("a missing directory", filepath.Join(dir, "none", "stint.db"), "see whether it", settings("off")...)

		text := bytes.Repeat([]byte("this is not a database\n"), 400)
		must(t, os.WriteFile(path+"text", text, 0o600))
		fails("a text", path+"text", "not a SQLite database", settings("off")...)
		if now := must1(os.ReadFile(path + "text"))(t); !bytes.Equal(now, text) {
			t.Error("the text was changed")
		}

		w := newWorld(t, driver, path)
		must(t, w.db.Close())
		must(t, w.sql.Close())
		before := must1(os.ReadFile(path))(t)
		readOnly := must1(pool(driver, path, "mode=ro", "_pragma=busy_timeout(10000)"))(t)
		defer readOnly.Close()
		db := must1(sqlite.New(t.Context(), readOnly, nil))(t)
		defer db.Close()
		_, err := w.usd(db.Spend()).Reserve(t.Context(), ask("k", 1))
		says(t, "read only: reserve", time.Now(), err, spendlimit.ErrUnavailable, "can't be written")
		for b, err := range w.usd(db.Spend()).Balances(t.Context(), "acme", time.Time{}) {
			must(t, err)
			if b.Available != 10 {
				t.Errorf("read only: %+v", b)
			}
		}
		if !bytes.Equal(must1(os.ReadFile(path))(t), before) {
			t.Error("a read-only file was changed")
		}
	})
}

// A full disk stops the writer at some page; what was acknowledged is there, and it goes on when there is room.
func TestFullDisk(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		w := newWorld(t, driver, path)
		w.sql.SetMaxOpenConns(1)
		var pages int
		must(t, w.sql.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages))
		must(t, w.sql.QueryRowContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count(%d)", pages+4)).Scan(&pages))
		led := w.usd(w.db.Spend())
		free := func(n int) error {
			_, err := led.Reserve(t.Context(), spendlimit.Request{Key: fmt.Sprint("k", n), Accounts: []string{"acme"}, Free: true, Price: strings.Repeat("x", 2000)})
			return err
		}
		full := 0
		for err := error(nil); err == nil && full < 1000; {
			if err = free(full); err == nil {
				full++
				continue
			}
			says(t, "a full disk", time.Now(), err, spendlimit.ErrUnavailable, "no room is left")
		}
		if full == 0 || full == 1000 {
			t.Fatalf("full after %d holds", full)
		}
		_, err := led.Hold(t.Context(), fmt.Sprint("k", full))
		is(t, err, spendlimit.ErrNotFound)

		// In a transaction of the caller it either stays as it was, or is at an end.
		tx := w.begin()
		must1(tx.ExecContext(t.Context(), "DELETE FROM job"))(t)
		_, err = w.usd(w.db.WithTx(tx).Spend()).Reserve(t.Context(), spendlimit.Request{
			Key: "in tx", Accounts: []string{"acme"}, Free: true, Price: strings.Repeat("x", 4000),
		})
		is(t, err, spendlimit.ErrUnavailable)
		if _, err := tx.ExecContext(t.Context(), "SELECT 1"); err == nil {
			must(t, tx.Commit())
		} else {
			is(t, err, sql.ErrTxDone)
			_ = tx.Rollback()
		}
		must1(w.sql.ExecContext(t.Context(), "PRAGMA max_page_count(100000)"))(t)
		must(t, free(full))
		must1(led.Hold(t.Context(), "k0"))(t)
		w.has(0, 0, 0)
		w.clean()
	})
}

// resultCode is an error as a driver has it.
type resultCode int

func (c resultCode) Error() string { return fmt.Sprintf("result code %d", int(c)) }
func (c resultCode) Code() int     { return int(c) }

// C6: what a failed commit means depends on how it failed.
func TestC6_FailedCommit(t *testing.T) {
	onDrivers(t, func(t *testing.T, name, path string) {
		w := newWorld(t, name, path)
		for i, c := range []struct {
			err            error
			applied        bool // before the failure
			open           bool // the driver leaves the transaction open
			want           error
			granted, again bool // in the end; f runs again
		}{
			{err: resultCode(5), granted: true, again: true},
			{err: resultCode(5 | 2<<8), granted: true, again: true},
			{err: resultCode(5), open: true, granted: true, again: true},
			{err: resultCode(13), want: spendlimit.ErrUnavailable},
			{err: resultCode(19 | 3<<8), want: spendlimit.ErrUnavailable},
			{err: resultCode(10 | 4<<8), want: spendlimit.ErrUncertain},
			{err: resultCode(10 | 4<<8), applied: true, want: spendlimit.ErrUncertain, granted: true},
			{err: errors.New("no code"), open: true, want: spendlimit.ErrUncertain},
			{err: errors.New("no code"), applied: true, want: spendlimit.ErrUncertain, granted: true},
		} {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				fail := &failing{driver: w.sql.Driver(), name: "file:" + path + "?" + strings.Join(settings("off"), "&")}
				pool := sql.OpenDB(fail)
				defer pool.Close()
				db := must1(sqlite.New(t.Context(), pool, nil))(t)
				defer db.Close()
				warm := fmt.Sprint("warm", i) // so that the step that fails begins with what is known
				must1(w.usd(db.Spend()).Reserve(t.Context(), ask(warm, 1)))(t)
				must1(w.usd(db.Spend()).Release(t.Context(), warm))(t)
				fail.commit = func(tx driver.Tx) error {
					fail.commit = nil
					switch {
					case c.applied:
						must(t, tx.Commit())
					case !c.open:
						must(t, tx.Rollback())
					}
					return c.err
				}
				key, runs := fmt.Sprint("k", i), 0
				counting := counted{db.Spend(), &runs}
				_, err := w.usd(counting).Reserve(t.Context(), ask(key, 1))
				if c.want == nil {
					must(t, err)
				} else {
					is(t, err, c.want)
				}
				if (runs > 1) != c.again {
					t.Errorf("judged %d times", runs)
				}
				_, err = w.usd(w.db.Spend()).Hold(t.Context(), key)
				if (err == nil) != c.granted {
					t.Errorf("hold: error %v", err)
				}
				h := must1(w.usd(db.Spend()).Reserve(t.Context(), ask(key, 1)))(t)
				if h.Replayed != c.granted {
					t.Errorf("again: %+v", h)
				}
				must1(w.usd(db.Spend()).Release(t.Context(), key))(t)
				(&world{t, pool, db}).clean()
			})
		}
		w.has(0, 0, 0)
	})
}

// The writers of one process stand in line, and do not fight for the file.
func TestOneWriterAtATime(t *testing.T) {
	onDrivers(t, func(t *testing.T, name, path string) {
		w := newWorld(t, name, path)
		watched := &failing{driver: w.sql.Driver(), name: "file:" + path + "?" + strings.Join(settings("off"), "&")}
		pool := sql.OpenDB(watched)
		defer pool.Close()
		db := must1(sqlite.New(t.Context(), pool, nil))(t)
		defer db.Close()
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				led := w.usd(db.Spend()) // of its own, so that nothing is batched
				for n := range 5 {
					if _, err := led.Reserve(t.Context(), spendlimit.Request{Key: fmt.Sprint(i, "/", n), Accounts: []string{"acme"}, Free: true}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if n := watched.most.Load(); n != 1 {
			t.Errorf("%d writers at the same time", n)
		}
	})
}

// A driver that is interrupted while it opens a connection need not say by what: the step does.
func TestContextEndsWhileAConnectionOpens(t *testing.T) {
	onDrivers(t, func(t *testing.T, driver, path string) {
		plain := must1(pool(driver, path, settings("off")...))(t)
		defer plain.Close()
		must(t, sqlite.Migrate(t.Context(), plain))
		f := &failing{driver: plain.Driver(), name: "file:" + path + "?" + strings.Join(settings("off"), "&")}
		slow := sql.OpenDB(f)
		defer slow.Close()
		slow.SetMaxIdleConns(-1)
		db := must1(sqlite.New(t.Context(), slow, nil))(t)
		defer db.Close()
		f.open = func(ctx context.Context) error {
			<-ctx.Done()
			return errors.New("interrupted")
		}
		for _, readOnly := range []bool{false, true} {
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err := db.Spend().Step(ctx, spendlimit.Need{Ledger: "default", ReadOnly: readOnly}, func(int64, *spendlimit.Work) error { return nil })
			stop()
			is(t, err, spendlimit.ErrUnavailable)
			is(t, err, context.DeadlineExceeded)
		}
	})
}

type counted struct {
	spendlimit.Store
	runs *int
}

func (s counted) Step(ctx context.Context, n spendlimit.Need, f func(int64, *spendlimit.Work) error) error {
	return s.Store.Step(ctx, n, func(now int64, w *spendlimit.Work) error {
		*s.runs++
		return f(now, w)
	})
}

// failing opens connections whose commits go through a function, while there is one.
type failing struct {
	driver driver.Driver
	name   string
	commit func(driver.Tx) error
	open   func(context.Context) error

	writing, most atomic.Int32 // transactions that write, or wait for it: now, and at the same time
}

func (f *failing) Connect(ctx context.Context) (driver.Conn, error) {
	if f.open != nil {
		return nil, f.open(ctx)
	}
	c, err := f.driver.Open(f.name)
	return &failingConn{c, f}, err
}

func (f *failing) Driver() driver.Driver { return f.driver }

// failingConn has its methods on a pointer, so that it is told from another: else nothing is known from one step to the next.
type failingConn struct {
	driver.Conn
	f *failing
}

func (c *failingConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	f := c.f
	if o.ReadOnly {
		f = &failing{}
	}
	if n := f.writing.Add(1); n > f.most.Load() {
		f.most.Store(n)
	}
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	if err != nil {
		f.writing.Add(-1)
	}
	return failingTx{tx, f}, err
}

func (c *failingConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, text)
}

type failingTx struct {
	driver.Tx
	f *failing
}

func (tx failingTx) Rollback() error {
	tx.f.writing.Add(-1)
	return tx.Tx.Rollback()
}

func (tx failingTx) Commit() error {
	tx.f.writing.Add(-1)
	if tx.f.commit != nil {
		return tx.f.commit(tx.Tx)
	}
	return tx.Tx.Commit()
}
