package postgres

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/adapters/internal/migrate"
	"github.com/stint-go/stint/allocator"
	"github.com/stint-go/stint/internal/testdb"
	"github.com/stint-go/stint/spendlimit"
	"github.com/stint-go/stint/spendlimit/spendlimittest"
)

// Whatever a schema is called, the suite passes in it, and nothing lands elsewhere.
func TestSchema_AnyName(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testdb.Postgres(t), loose)
	for _, name := range []string{
		"", "Upper Case", `quo"te's`, "semi;colon--", "dollar$1", "@lock @in($1) {hold}", `back\slash`, "naïve ☃", "select", " ", strings.Repeat("x", 63), "public",
	} {
		o := &Options{Schema: name}
		if err := Migrate(t.Context(), pool, o); err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		led := newLedger(t, pool, o)
		setLimit(t, led, "a", 10)
		reserve(t, led, "k", 4, "a")
		wants(t, led, "a", 4)
		tx := begin(t, newDB(t, pool, o), pgx.TxOptions{})
		reserve(t, in(t, newDB(t, pool, o), tx), "k2", 4, "a")
		commit(t, tx)
		wants(t, led, "a", 8)
		p, err := allocator.New(newDB(t, pool, o).Pools(), "p", allocator.Options{})
		if err == nil {
			_, err = p.Create(t.Context(), allocator.Spec{Capacity: 2})
		}
		if err == nil {
			_, err = p.Acquire(t.Context(), allocator.Request{Attempt: "k", Units: 2})
		}
		if err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{strings.Repeat("x", 64), "pg_mine", "nul\x00", "tab\t", "bad\xff"} {
		o := &Options{Schema: name}
		is(t, Migrate(t.Context(), pool, o), spendlimit.ErrInvalid)
		_, err := New(t.Context(), pool, o)
		is(t, err, spendlimit.ErrInvalid)
	}
	is(t, Migrate(t.Context(), nil, nil), spendlimit.ErrInvalid)
	_, err := New(t.Context(), nil, nil)
	is(t, err, spendlimit.ErrInvalid)
}

// next is the migrations of a later release.
func next() []migrate.File {
	return append(migrations(), migrate.File{Name: "9999_next.sql", Text: "CREATE TABLE {schema}.next (n bigint)", Checksum: "sum"})
}

func TestC9_MissingOlderNewerAltered(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testdb.Postgres(t))
	ours := len(migrations())
	schema := func(want spendlimit.SchemaError, list []migrate.File) {
		t.Helper()
		err := check(t.Context(), pool, defaultSchema, list)
		var got *spendlimit.SchemaError
		if !errors.Is(err, spendlimit.ErrSchema) || !errors.As(err, &got) || *got != want {
			t.Errorf("error %v, want %v", err, &want)
		}
	}
	schema(spendlimit.SchemaError{Have: 0, Want: ours}, migrations())
	if _, err := New(t.Context(), pool, nil); !errors.Is(err, spendlimit.ErrSchema) {
		t.Error(err)
	}
	sql(t, pool, "CREATE SCHEMA stint") // by somebody who may
	for range 2 {
		if err := Migrate(t.Context(), pool, nil); err != nil {
			t.Fatal(err)
		}
	}
	schema(spendlimit.SchemaError{Have: ours, Want: ours + 1}, next()) // older than a later release
	if err := applyAll(t.Context(), pool, nil, next()); err != nil {
		t.Fatal(err)
	}
	schema(spendlimit.SchemaError{Have: ours + 1, Want: ours}, migrations())
	is(t, Migrate(t.Context(), pool, nil), spendlimit.ErrSchema)
	for _, altered := range []string{"checksum = 'x'", "name = 'x'", "version = version + 5"} {
		sql(t, pool, "BEGIN; CREATE TABLE kept AS TABLE stint.migration; UPDATE stint.migration SET "+altered+" WHERE version = 1; COMMIT")
		is(t, Migrate(t.Context(), pool, nil), spendlimit.ErrSchema)
		is(t, check(t.Context(), pool, defaultSchema, migrations()), spendlimit.ErrSchema)
		sql(t, pool, "BEGIN; DELETE FROM stint.migration; INSERT INTO stint.migration TABLE kept; DROP TABLE kept; COMMIT")
	}
	sql(t, pool, "ALTER TABLE stint.migration RENAME COLUMN checksum TO other") // somebody else's table
	is(t, Migrate(t.Context(), pool, nil), spendlimit.ErrSchema)
}

// A migration that fails leaves nothing of itself, nor of those before it.
func TestC9_AllOrNothing(t *testing.T) {
	t.Parallel()
	pool := newPool(t, testdb.Postgres(t))
	list := append(next(), migrate.File{Name: "bad.sql", Text: "CREATE TABLE {schema}.half (n bigint); SELECT 1/0", Checksum: "sum"})
	err := applyAll(t.Context(), pool, nil, list)
	is(t, err, spendlimit.ErrUnavailable)
	if n := ask[int](t, pool, "SELECT count(*) FROM pg_namespace WHERE nspname = 'stint'"); n != 0 {
		t.Error("the schema is there")
	}
	quiet(t, pool)
}

func TestC9_MigrateAtOnce(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "serializable"} {
		pool := newPool(t, testdb.Postgres(t), func(cfg *pgxpool.Config) {
			cfg.MaxConns = 8
			cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = isolation
			cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
		})
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := Migrate(t.Context(), pool, nil); err != nil {
					t.Errorf("%s: %v", isolation, err)
				}
			})
		}
		all.Wait()
		led := newLedger(t, pool, nil)
		setLimit(t, led, "a", 1)
		reserve(t, led, "k", 1, "a")
	}
}

// A role that may not create a schema can make the tables in one that it was given.
func TestC9_AGivenSchema(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t)
	admin := newPool(t, dsn)
	role := "stint_test_" + strings.ToLower(ask[string](t, admin, "SELECT current_database()")[11:])
	sql(t, admin, "CREATE ROLE "+role)
	sql(t, admin, "CREATE SCHEMA stint AUTHORIZATION "+role)
	t.Cleanup(func() { sql(t, admin, "DROP OWNED BY "+role+" CASCADE; DROP ROLE "+role) })
	pool := newPool(t, dsn, func(cfg *pgxpool.Config) {
		cfg.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "SET ROLE "+role)
			return err
		}
	})
	if err := Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	setLimit(t, newLedger(t, pool, nil), "a", 1)
	is(t, Migrate(t.Context(), pool, &Options{Schema: "other"}), spendlimit.ErrUnavailable)
}

var write = flag.Bool("write", false, "write testdata/version*: the tables of this release with rows in them; once per release")

// firstRows is what the first release wrote into its tables.
func firstRows(t *testing.T, led *spendlimit.Ledger) {
	limit := spendlimit.Limit{
		Account: "a", Name: "day", Kind: spendlimit.Day, Zone: "Europe/Berlin", Amount: 100, CarryHolds: true, CarryUnused: 5,
		Thresholds: []spendlimit.Threshold{{Percent: 1}},
	}
	if _, err := led.SetLimit(t.Context(), limit, ""); err != nil {
		t.Fatal(err)
	}
	setLimit(t, led, "a", 1000)
	setLimit(t, led, "b", 50)
	reserve(t, led, "open", 7, "a", "b")
	r := hold("labelled", 9, "a")
	r.Labels, r.Price = map[string]string{"team": "x"}, `{"rate":"1"}`
	if _, err := led.Reserve(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r = hold("child", 3, "b")
	r.Parent = "labelled"
	if _, err := led.Reserve(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	reserve(t, led, "done", 5, "b")
	_, err := led.Record(t.Context(), spendlimit.Usage{Hold: "done", ID: "u", Cost: spendlimit.Total(1)})
	_, err2 := led.Settle(t.Context(), "done", spendlimit.Total(2))
	_, err3 := led.Charge(t.Context(), spendlimit.Expense{ID: "c", Accounts: []string{"a"}, Cost: spendlimit.Total(4)})
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
}

// The rows of every release are read by this one as they were written. Rows of version 1 are of the first release.
func TestC9_Upgrade(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/version*.sql")
	if err != nil || len(files) == 0 && !*write {
		t.Fatalf("%v, %v", files, err)
	}
	if *write {
		writeVersion(t)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(file, "sql") + "rows")
		if err != nil {
			t.Fatal(err)
		}
		pool := newPool(t, testdb.Postgres(t))
		sql(t, pool, string(text))
		if err := Migrate(t.Context(), pool, nil); err != nil {
			t.Fatal(err)
		}
		d := newDB(t, pool, nil)
		got, err := spendlimittest.Dump(t.Context(), d.Spend(), "default", "a", "b")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
		led := ledgerOn(t, d.Spend(), spendlimit.Config{})
		rc, err := led.Settle(t.Context(), "done", spendlimit.Total(2))
		if err != nil || !rc.Replayed {
			t.Errorf("%s: %+v, %v", file, rc, err)
		}
		// The open ones may have lapsed long ago: then this is late, and still counts.
		if _, err := led.Settle(t.Context(), "child", spendlimit.Total(1)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if diffs, err := led.Verify(t.Context(), "b"); err != nil || len(diffs) > 0 {
			t.Errorf("%s: %v, %v", file, diffs, err)
		}
	}
}

// writeVersion writes the migrations of this release and the rows of firstRows as statements.
func writeVersion(t *testing.T) {
	pool := newPool(t, testdb.Postgres(t))
	if err := Migrate(t.Context(), pool, nil); err != nil {
		t.Fatal(err)
	}
	d := newDB(t, pool, nil)
	firstRows(t, ledgerOn(t, d.Spend(), spendlimit.Config{}))
	var text strings.Builder
	text.WriteString("CREATE SCHEMA stint;\nCREATE TABLE stint.migration (version bigint PRIMARY KEY, name text NOT NULL, checksum text NOT NULL);\n")
	for _, m := range migrations() {
		text.WriteString(strings.ReplaceAll(m.Text, "{schema}", "stint"))
	}
	names, err := pool.Query(t.Context(), "SELECT relname FROM pg_class WHERE relnamespace = 'stint'::regnamespace AND relkind = 'r' ORDER BY oid")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(names, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		rows, err := pool.Query(t.Context(), "SELECT format('INSERT INTO stint.%I SELECT * FROM json_populate_record(NULL::stint.%I, %L);', $1::text, $1::text, row_to_json(t)) FROM stint."+table+" t ORDER BY 1", table)
		if err != nil {
			t.Fatal(err)
		}
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString("\n" + strings.Join(list, "\n"))
	}
	text.WriteString("\nSELECT setval('stint.spend_ids', " + ask[string](t, pool, "SELECT last_value::text FROM stint.spend_ids") + ");\n")
	dump, err := spendlimittest.Dump(t.Context(), d.Spend(), "default", "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("testdata", "version"+ask[string](t, pool, "SELECT max(version)::text FROM stint.migration"))
	err = errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(name+".sql", []byte(text.String()), 0o600), os.WriteFile(name+".rows", []byte(dump), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}
