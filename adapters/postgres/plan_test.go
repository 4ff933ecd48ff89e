package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/internal/spendsql/spendsqltest"
	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit"
)

// A step reads the rows that it needs, however many others there are. The plans are made while the tables are empty, which is
// when a database chooses to read all of them.
func TestPlans_ReadWhatIsNeeded(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testdb.Postgres(t), func(cfg *pgxpool.Config) { cfg.MaxConns = 1 })
	if err := Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	clock := spendsqltest.NewClock(time.Now())
	led := newLedger(t, pool, &Options{Clock: clock.Now})
	work := func(account, key string) {
		t.Helper()
		r := hold(key, 3, account)
		r.Split = spendlimit.Split{Group: "wave", Slots: 2}
		for _, r := range []spendlimit.Request{r, hold(key+" alone", 2, account)} {
			if _, err := led.Reserve(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if _, err := led.Record(t.Context(), spendlimit.Usage{Hold: r.Key, ID: "u", Cost: spendlimit.Total(1)}); err != nil {
				t.Fatal(err)
			}
			if _, err := led.Settle(t.Context(), r.Key, spendlimit.Total(2)); err != nil {
				t.Fatal(err)
			}
		}
		r = hold(key+" lapses", 1, account)
		r.TTL = time.Second
		if _, err := led.Reserve(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		clock.Advance(2 * time.Second)
		if _, err := led.Charge(t.Context(), spendlimit.Expense{ID: key, Accounts: []string{account}, Cost: spendlimit.Total(1)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, account := range []string{"a", "b"} {
		setLimit(t, led, account, 1000)
		work(account, "warm "+account)
	}
	// The rows of b, 10,000 times, and as many ended holds and entries on a.
	const many = "generate_series(1, 10000) AS n"
	for _, text := range []string{
		"INSERT INTO stint.spend_account SELECT a.id + n * 1000000::bigint, ledger_id, a.name || n, seq, last_us, pruned FROM stint.spend_account a, " + many + " WHERE a.name = 'b'",
		"INSERT INTO stint.spend_limit (id, account_id, name, gen, kind, amount) SELECT m.id + n * 1000000::bigint, account_id + n * 1000000::bigint, m.name, gen, kind, amount FROM stint.spend_limit m, " + many + " WHERE account_id IN (SELECT id FROM stint.spend_account WHERE name = 'b')",
		"INSERT INTO stint.spend_period (id, limit_id, start_us, end_us, in_force) SELECT p.id + n * 1000000::bigint, limit_id + n * 1000000::bigint, start_us, end_us, in_force FROM stint.spend_period p, " + many + " WHERE limit_id + n * 1000000::bigint IN (SELECT id FROM stint.spend_limit)",
		"INSERT INTO stint.spend_hold (id, ledger_id, key, owners, accounts, state, depth, periods) SELECT h.id + n * 1000000::bigint, ledger_id, key || n, owners, accounts, state, depth, periods FROM stint.spend_hold h, " + many + " WHERE key = 'warm a'",
		"INSERT INTO stint.spend_owner SELECT hold_id + n * 1000000::bigint, account_id, live, expires_us, split_group FROM stint.spend_owner, " + many + " WHERE hold_id IN (SELECT id FROM stint.spend_hold WHERE key = 'warm a')",
		"INSERT INTO stint.spend_usage SELECT ledger_id, hold_id, id || n, kind, content, cost, unpriced, receipt FROM stint.spend_usage u, " + many + " WHERE hold_id = 0 OR hold_id = (SELECT id FROM stint.spend_hold WHERE key = 'warm a')",
		"INSERT INTO stint.spend_entry (account_id, seq, postings) SELECT account_id, seq + n, '[]' FROM (SELECT account_id, max(seq) AS seq FROM stint.spend_entry GROUP BY account_id) e, " + many + " WHERE account_id IN (SELECT id FROM stint.spend_account WHERE name = 'a')",
		"UPDATE stint.spend_account a SET seq = (SELECT max(seq) FROM stint.spend_entry e WHERE e.account_id = a.id) WHERE name = 'a'",
	} {
		sql(t, pool, text)
	}
	read := func() int {
		t.Helper()
		sql(t, pool, "SELECT pg_stat_force_next_flush()") // the statistics are this connection's
		return ask[int](t, pool, "SELECT ((SELECT sum(seq_tup_read) FROM pg_stat_user_tables) + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes))::bigint")
	}
	before := read()
	const times = 10
	for i := range times {
		work("a", string(rune('a'+i)))
	}
	// 8 steps a time, each on one account with one limit, one period and one hold.
	if n := (read() - before) / times; n < 8 || n > 250 {
		t.Errorf("%d rows were read for 8 steps; by index, in all: %s", n, ask[string](t, pool, "SELECT string_agg(indexrelname || ' ' || idx_tup_read, ', ' ORDER BY idx_tup_read DESC) FROM pg_stat_user_indexes"))
	} else {
		t.Logf("%d rows for 8 steps", n)
	}
}
