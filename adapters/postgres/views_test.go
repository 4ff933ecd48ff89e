package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/stint-go/stint/adapters/internal/spendsql/spendsqltest"
	"github.com/stint-go/stint/internal/testdb"
)

func TestViews(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testdb.Postgres(t))
	clock := spendsqltest.NewClock(time.Date(2026, time.March, 2, 12, 0, 0, 1_000, time.UTC))
	o := &Options{Schema: "a \"schema\"", Clock: clock.Now}
	if err := Migrate(t.Context(), pool, o); err != nil {
		t.Fatal(err)
	}
	d, err := New(t.Context(), pool, o)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	views := spendsqltest.Views{
		Store: d.Spend(), Clock: clock, SQL: db, Balance: `"a ""schema""".spend_balance`, OpenHold: `"a ""schema""".spend_open_hold`,
		Time: func(column string) string {
			return fmt.Sprintf(`to_char(date_trunc('second', %s AT TIME ZONE 'UTC'), 'YYYY-MM-DD"T"HH24:MI:SS"Z"')`, column)
		},
		JSON: func(column string) string { return "to_json(" + column + ")::text" },
	}
	spendsqltest.CheckViews(t, views)
	spendsqltest.CheckUntouched(t, views)

	// Timestamps are exact, to the microsecond.
	var wrong int
	err = pool.QueryRow(t.Context(), `SELECT
		(SELECT count(*) FROM "a ""schema""".spend_balance WHERE extract(epoch FROM start_at) * 1000000 <> start_us OR extract(epoch FROM end_at) * 1000000 <> end_us) +
		(SELECT count(*) FROM "a ""schema""".spend_open_hold WHERE extract(epoch FROM born_at) * 1000000 <> born_us OR extract(epoch FROM expires_at) * 1000000 <> expires_us)`,
	).Scan(&wrong)
	if err != nil || wrong > 0 {
		t.Errorf("%d rows with a time that is not exact, error %v", wrong, err)
	}
}
