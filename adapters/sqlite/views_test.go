package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stint-go/stint/adapters/internal/spendsql/spendsqltest"
)

func TestViews(t *testing.T) {
	t.Parallel()
	for name, driver := range drivers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "stint.db")
			clock := spendsqltest.NewClock(time.Date(2026, time.March, 2, 12, 0, 0, 1_000, time.UTC))
			h := handle(t, driver, file, clock.Now)
			db, err := driver(file)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			same := func(column string) string { return column }
			views := spendsqltest.Views{Store: h.Store, Clock: clock, SQL: db, Balance: "stint_spend_balance", OpenHold: "stint_spend_open_hold", Time: same, JSON: same}
			spendsqltest.CheckViews(t, views)
			spendsqltest.CheckUntouched(t, views)
		})
	}
}
