package bench

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/stint-go/stint/spendlimit"
)

// The SQL twins write the rows that the library writes for the same pairs, with the same content, into the same tables.
// What they lack is the batching. They know less than the library and so do less: one account with one limit, no due
// holds to sweep, no second look at a key, no answer to a denial but an error.

// twinTexts are the statements of a twin that makes a transaction of every call.
type twinTexts struct {
	lock, room, open            string
	account, held, spent, ended string
	hold, owner, entry, done    string
}

// newTwinTexts makes them of templates: {hold} is a table, $1 a parameter.
func newTwinTexts(of func(template string) string) *twinTexts {
	return &twinTexts{
		lock: of("SELECT id, seq, last_us FROM {account} WHERE ledger_id = $1 AND name = $2"),
		room: of("SELECT p.id, p.in_force - p.spent - p.held FROM {account} a JOIN {limit} m ON m.account_id = a.id JOIN {period} p ON p.limit_id = m.id " +
			"WHERE a.ledger_id = $1 AND a.name = $2 AND NOT m.removed AND p.start_us <= $3 AND p.end_us > $3"),
		open: of("SELECT h.id, h.state, h.own, h.part_us, p.id FROM {hold} h " +
			"JOIN {period} p ON p.id = CAST(trim(h.periods, '[]') AS bigint) WHERE h.ledger_id = $1 AND h.key = $2"),

		account: of("UPDATE {account} SET seq = $2, last_us = $3 WHERE id = $1"),
		held:    of("UPDATE {period} SET held = held + $2 WHERE id = $1"),
		spent:   of("UPDATE {period} SET held = held - $2, spent = spent + $3 WHERE id = $1"),
		ended: of("UPDATE {hold} SET state = 3, own = 0, recorded = $2, covered = $2, returned = $3, end_own = $3, ended_us = $4, part_left = 0, " +
			"receipt = $5 WHERE id = $1"),
		done: of("UPDATE {owner} SET live = false WHERE account_id = $1 AND hold_id = $2"),

		// $1 to $7: id, ledger, key, owners, amount, time, seq; $8 is the time of expiry, $9 are the periods.
		hold:  of("INSERT INTO {hold} (" + holdColumns + ") VALUES ($1, $2, $3, " + newHold("$4", "$5", "$6", "$8", "$7", "$9") + ")"),
		owner: of("INSERT INTO {owner} (account_id, hold_id, live, expires_us, split_group) VALUES ($1, $2, true, $3, '')"),
		entry: of("INSERT INTO {entry} (account_id, seq, at_us, kind, ref, hold, reason, source, labels, postings) VALUES ($1, $2, $3, $4, $5, '', '', 0, '', $6)"),
	}
}

var tableMark = regexp.MustCompile(`\{([a-z]+)\}`)

const holdColumns = "id, ledger_id, key, owners, accounts, amount, min, rest, free, split_group, slots, ttl_us, labels, price, state, granted, grown, " +
	"received, own, recorded, carved, covered, returned, assumed, end_own, end_charge, open_usages, marks, children, depth, expires_us, born_us, " +
	"ended_us, seq, bound_account, bound_limit, bound_parent, receipt, part_us, part_left, periods, more_parts, assumes"

// newHold is the values of holdColumns, from owners on.
func newHold(owners, amount, now, expires, seq, periods string) string {
	return strings.NewReplacer("owners", owners, "amount", amount, "now", now, "expires", expires, "seq", seq, "ttl", ttlText, "parts", periods).Replace(
		"owners, owners, amount, 0, false, false, '', 0, ttl, '', '', 1, amount, 0, 0, amount, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, expires, now, 0, seq, " +
			"'', '', '', '', now, amount, parts, '', ''")
}

// ttl is how long a hold lives if the request does not say.
const ttl = 10 * time.Minute

var ttlText = fmt.Sprint(ttl.Microseconds())

// Kinds of entries.
const (
	reserved = spendlimit.EntryReserve
	settled  = spendlimit.EntrySettle
)

// ids is a list of one.
func ids(one int64) string { return fmt.Sprintf("[%d]", one) }

// postings is what an entry changes: the account's own total, at an instant, and the period.
func postings(at, spent, held, period int64) string {
	return fmt.Sprintf("[[0,%d,%d,%d,0],[%d,0,%d,%d,0]]", at, spent, held, period, spent, held)
}

func settledReceipt(revision int64) string {
	return fmt.Sprintf(`{"cost":%d,"returned":%d,"revision":%d}`, cost, amount-cost, revision)
}
