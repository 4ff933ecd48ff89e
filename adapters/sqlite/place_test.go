package sqlite

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	ncruces "github.com/ncruces/go-sqlite3/driver"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/spendlimit"
)

// Two stores of one DB share its connection. What one of them writes is counted, so that what the other knows of its own rows still
// holds; what nobody has counted is noticed.
func TestKnown_AnotherStore(t *testing.T) {
	t.Parallel()
	for driver, open := range map[string]func(string) (*sql.DB, error){
		"ncruces": func(source string) (*sql.DB, error) { return ncruces.Open(source) },
		"modernc": func(source string) (*sql.DB, error) { return sql.Open("sqlite", source) },
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			db, err := open("file:" + filepath.ToSlash(filepath.Join(t.TempDir(), "file")) + "?_pragma=journal_mode(wal)&_pragma=synchronous(off)")
			check(t, err)
			defer db.Close()
			db.SetMaxOpenConns(1)
			check(t, Migrate(ctx, db))
			_, err = db.ExecContext(ctx, "CREATE TABLE other (n INTEGER)")
			check(t, err)
			d, err := New(ctx, db, nil)
			check(t, err)
			defer d.Close()
			led, err := spendlimit.New(d.Spend(), spendlimit.Config{Unit: spendlimit.Requests})
			check(t, err)
			_, err = led.SetLimit(ctx, spendlimit.Limit{Account: "a", Name: "all", Kind: spendlimit.AllTime, Amount: 100}, "")
			check(t, err)
			reserve := func(key string) {
				t.Helper()
				_, err := led.Reserve(ctx, spendlimit.Request{Key: key, Accounts: []string{"a"}, Amount: 1})
				check(t, err)
			}
			// holds tells whether the next writer may use what is known.
			holds := func() bool {
				t.Helper()
				before := d.seen
				check(t, d.write(ctx, (*conn).recall))
				return before == d.seen
			}
			other := func(f func(c *conn) error) error { return d.write(ctx, f) }
			add := sqlrow.Stmt{SQL: "INSERT INTO other VALUES (?), (?)", Args: []any{int64(1), int64(2)}}

			reserve("first")
			check(t, other(func(c *conn) error { return c.Run(ctx, add, add) }))
			if !holds() {
				t.Error("what is known is given up because another store has written")
			}
			reserve("second")

			undone := errors.New("undone")
			if err := other(func(c *conn) error { return errors.Join(c.Run(ctx, add), undone) }); !errors.Is(err, undone) {
				t.Error(err)
			}
			if holds() {
				t.Error("what is known outlives a step that was taken back")
			}
			reserve("third")

			for _, text := range []string{"UPDATE stint_spend_period SET spent = spent + 10", "UPDATE stint_spend_period SET spent = spent + 20"} {
				check(t, other(func(c *conn) error {
					_, err := c.tx.ExecContext(ctx, text) // behind the back of the count
					return err
				}))
				reserve(text)
			}
			for b, err := range led.Balances(ctx, "a", time.Time{}) {
				check(t, err)
				if b.Spent != 30 || b.Held != 5 {
					t.Errorf("spent %d, held %d, want 30 and 5", b.Spent, b.Held)
				}
			}
			_, err = led.Reserve(ctx, spendlimit.Request{Key: "too much", Accounts: []string{"a"}, Amount: 66})
			if !errors.Is(err, spendlimit.ErrDenied) {
				t.Errorf("error %v, want ErrDenied", err)
			}
		})
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
