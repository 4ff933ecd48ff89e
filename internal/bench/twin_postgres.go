package bench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/stint-go/stint/spendlimit"
)

// PostgresTwin is what twins on Postgres have in common: a pool of connections that are all open, and whose statements
// are prepared.
type PostgresTwin struct {
	pool   *pgxpool.Pool
	schema string
	ledger int64
}

// NewPostgresTwin returns a twin over so many connections, on a schema in which a [Ledger] has made a pair on each account.
func NewPostgresTwin(ctx context.Context, dsn, schema string, connections int) (*PostgresTwin, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(connections)
	config.ConnConfig.RuntimeParams["enable_seqscan"] = "off" // plans are made while the tables are small
	t := &PostgresTwin{schema: pgx.Identifier{schema}.Sanitize()}
	if t.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	if err = t.pool.QueryRow(ctx, t.text("SELECT id FROM {ledger}")).Scan(&t.ledger); err != nil {
		t.pool.Close()
	}
	return t, err
}

// Close closes the connections.
func (t *PostgresTwin) Close() error {
	t.pool.Close()
	return nil
}

func (t *PostgresTwin) text(template string) string {
	return tableMark.ReplaceAllString(template, strings.ReplaceAll(t.schema, "$", "$$")+".spend_$1")
}

// ForUpdate makes a transaction of every call that locks the account first. It takes two round trips: one to lock and
// read, one to write and commit.
type ForUpdate struct {
	*PostgresTwin
	texts     *twinTexts
	lock, ids string
}

// NewForUpdate returns a twin over the connections of t.
func NewForUpdate(t *PostgresTwin) ForUpdate {
	texts := newTwinTexts(t.text)
	return ForUpdate{t, texts, texts.lock + " FOR UPDATE", t.text("SELECT nextval('{ids}')")}
}

// Pair implements Subject.
func (t ForUpdate) Pair(ctx context.Context, key string, accounts []string) error {
	err := t.transaction(ctx, func(x *postgresCall) error { return t.reserve(x, key, accounts[0]) })
	if err == nil {
		err = t.transaction(ctx, func(x *postgresCall) error { return t.settle(x, key, accounts[0]) })
	}
	return err
}

// postgresCall is a transaction whose statements wait to be sent together.
type postgresCall struct {
	ctx   context.Context
	conn  *pgxpool.Conn
	batch pgx.Batch
}

func (x *postgresCall) get(text string, args []any, into ...any) {
	x.batch.Queue(text, args...).QueryRow(func(r pgx.Row) error { return r.Scan(into...) })
}

func (x *postgresCall) send() error {
	err := x.conn.SendBatch(x.ctx, &x.batch).Close()
	x.batch = pgx.Batch{}
	return err
}

func (t ForUpdate) transaction(ctx context.Context, f func(*postgresCall) error) error {
	conn, err := t.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	x := &postgresCall{ctx: ctx, conn: conn}
	x.batch.Queue("BEGIN")
	if err = f(x); err == nil {
		x.batch.Queue("COMMIT")
		err = x.send()
	}
	if err != nil {
		_, _ = conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
	}
	return err
}

const clock = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

func (t ForUpdate) reserve(x *postgresCall, key, name string) error {
	var account, seq, last, now, period, room, hold int64
	x.get(t.lock, []any{t.ledger, name}, &account, &seq, &last)
	x.get(clock, nil, &now)
	x.get(t.texts.room, []any{t.ledger, name, time.Now().UnixMicro()}, &period, &room)
	x.get(t.ids, nil, &hold)
	if err := x.send(); err != nil {
		return err
	}
	if room < amount {
		return spendlimit.ErrDenied
	}
	seq, now = seq+1, max(now, last)
	expires := now + ttl.Microseconds()
	x.batch.Queue(t.texts.account, account, seq, now)
	x.batch.Queue(t.texts.held, period, amount)
	x.batch.Queue(t.texts.hold, hold, t.ledger, key, ids(account), amount, now, seq, expires, ids(period))
	x.batch.Queue(t.texts.owner, account, hold, expires)
	x.batch.Queue(t.texts.entry, account, seq, now, reserved, key, postings(now, 0, amount, period))
	return nil
}

func (t ForUpdate) settle(x *postgresCall, key, name string) error {
	var account, seq, last, now, hold, state, own, born, period int64
	x.get(t.lock, []any{t.ledger, name}, &account, &seq, &last)
	x.get(clock, nil, &now)
	x.get(t.texts.open, []any{t.ledger, key}, &hold, &state, &own, &born, &period)
	if err := x.send(); err != nil {
		return err
	}
	if state != int64(spendlimit.Open) || own < cost {
		return spendlimit.ErrInvalid
	}
	seq, now = seq+1, max(now, last)
	x.batch.Queue(t.texts.account, account, seq, now)
	x.batch.Queue(t.texts.spent, period, own, cost)
	x.batch.Queue(t.texts.ended, hold, cost, own-cost, now, settledReceipt(seq))
	x.batch.Queue(t.texts.done, account, hold)
	x.batch.Queue(t.texts.entry, account, seq, now, settled, key, postings(born, cost, -own, period))
	return nil
}

// OneStatement makes one statement of every call, which commits by itself: a single round trip.
type OneStatement struct {
	*PostgresTwin
	reserve, settle string
}

// NewOneStatement returns a twin over the connections of t.
func NewOneStatement(t *PostgresTwin) OneStatement {
	return OneStatement{t, t.text(reserveOnce), t.text(settleOnce)}
}

var (
	// $1 to $4: ledger, account, key, amount. Each part takes its rows from the one that holds the account's lock.
	reserveOnce = `WITH a AS (` + advance + `), p AS (
	UPDATE {period} p SET held = p.held + $4 FROM a, {limit} m
	WHERE m.account_id = a.id AND NOT m.removed AND p.limit_id = m.id AND p.start_us <= a.last_us AND p.end_us > a.last_us
		AND p.spent + p.held + $4 <= p.in_force
	RETURNING p.id, a.id AS account, a.seq, a.last_us
), h AS (
	INSERT INTO {hold} (` + holdColumns + `)
	SELECT nextval('{ids}'), $1::bigint, $3::text, ` + newHold("'[' || p.account || ']'", "$4::bigint", "p.last_us", "p.last_us + "+ttlText, "p.seq", "'[' || p.id || ']'") + ` FROM p
	RETURNING id, expires_us
), o AS (
	INSERT INTO {owner} (account_id, hold_id, live, expires_us, split_group) SELECT p.account, h.id, true, h.expires_us, '' FROM h, p
), e AS (
	INSERT INTO {entry} (account_id, seq, at_us, kind, ref, hold, reason, source, labels, postings)
	SELECT p.account, p.seq, p.last_us, 1, $3, '', '', 0, '', format('[[0,%s,0,%s,0],[%s,0,0,%2$s,0]]', p.last_us, $4::bigint, p.id)
	FROM p
) SELECT 1 FROM h`

	settleOnce = `WITH a AS (` + advance + `), h AS (
	UPDATE {hold} h SET state = 3, own = 0, recorded = $4, covered = $4, returned = h.own - $4, end_own = h.own - $4, ended_us = a.last_us,
		part_left = 0, receipt = '{"cost":' || $4::bigint || ',"returned":' || h.own - $4 || ',"revision":' || a.seq || '}'
	FROM a WHERE h.ledger_id = $1 AND h.key = $3 AND h.state = 1 AND h.own >= $4
	RETURNING h.id, h.granted, h.part_us, h.periods, a.id AS account, a.seq, a.last_us
), o AS (
	UPDATE {owner} o SET live = false FROM h WHERE o.account_id = h.account AND o.hold_id = h.id
), p AS (
	UPDATE {period} p SET held = p.held - h.granted, spent = p.spent + $4 FROM h WHERE p.id = trim(h.periods, '[]')::bigint
	RETURNING p.id
), e AS (
	INSERT INTO {entry} (account_id, seq, at_us, kind, ref, hold, reason, source, labels, postings)
	SELECT h.account, h.seq, h.last_us, 4, $3, '', '', 0, '',
		format('[[0,%s,%s,-%s,0],[%s,0,%2$s,-%3$s,0]]', h.part_us, $4::bigint, h.granted, p.id)
	FROM h, p
) SELECT 1 FROM h`
)

// advance locks the account and takes its next entry.
const advance = `
	UPDATE {account} SET seq = seq + 1, last_us = greatest(last_us, floor(extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
	WHERE ledger_id = $1 AND name = $2 RETURNING id, seq, last_us
`

// Pair implements Subject.
func (t OneStatement) Pair(ctx context.Context, key string, accounts []string) error {
	var done int
	err := t.pool.QueryRow(ctx, t.reserve, t.ledger, accounts[0], key, amount).Scan(&done)
	if err == nil {
		err = t.pool.QueryRow(ctx, t.settle, t.ledger, accounts[0], key, cost).Scan(&done)
	}
	return err
}

// Bare makes two updates of one row, with neither hold nor journal.
type Bare struct {
	*PostgresTwin
	up, down string
}

// NewBare returns a twin over the connections of t, with rows of its own.
func NewBare(ctx context.Context, t *PostgresTwin, accounts []string) (Bare, error) {
	_, err := t.pool.Exec(ctx, t.text(`CREATE TABLE {bare} (
	name text PRIMARY KEY, in_force bigint NOT NULL, held bigint NOT NULL CHECK (held >= 0), spent bigint NOT NULL CHECK (spent >= 0)
) WITH (fillfactor = 50)`))
	if err == nil {
		_, err = t.pool.Exec(ctx, t.text("INSERT INTO {bare} SELECT name, $2, 0, 0 FROM unnest($1::text[]) AS name"), accounts, int64(Limit))
	}
	return Bare{
		t,
		t.text("UPDATE {bare} SET held = held + $2 WHERE name = $1 AND spent + held + $2 <= in_force"),
		t.text("UPDATE {bare} SET held = held - $2, spent = spent + $3 WHERE name = $1"),
	}, err
}

// Pair implements Subject.
func (t Bare) Pair(ctx context.Context, _ string, accounts []string) error {
	for _, st := range []struct {
		text string
		args []any
	}{{t.up, []any{accounts[0], amount}}, {t.down, []any{accounts[0], amount, cost}}} {
		tag, err := t.pool.Exec(ctx, st.text, st.args...)
		if err != nil {
			return err
		}
		if tag.RowsAffected() != 1 {
			return fmt.Errorf("%w: %s", spendlimit.ErrDenied, accounts[0])
		}
	}
	return nil
}
