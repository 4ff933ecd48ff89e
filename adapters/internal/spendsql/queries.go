package spendsql

import (
	"cmp"
	"math"
	"strconv"
	"sync"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/spendlimit"
)

// Queries are the statements for one database, made once, and what is known of it.
type Queries struct {
	d     *sqlrow.Dialect
	known *sync.Map // name of a ledger → ledgerRec; nil: nothing is kept
	hints *hints

	ledger, accounts, accountsSeen, accountsByID, dropAccounts string
	ownersBelow, ownersLive, ownersDue                         string
	due, dueOn, expiring, members, on, below, prunable         string
	holdsByKey, holdsByID                                      string
	state, limitsByID, around, periodsByID, periodsOf          string
	usages, usagesOf, journal, oldest                          string
	dropEntries, dropOwners, dropUsages, dropHolds             string
	listHolds, listHoldsOn, listDue, listEntries               string
}

// From is FROM clauses of a dialect that must have others: Usages are the rows of {usage}, named u, of no hold with an id in $2,
// UsagesOf those of pairs of a hold's key in $2 and an id at the same place in $3, and Members the live rows of {owner}, named o, of
// accounts in $1 and groups in $2.
type From struct{ Usages, UsagesOf, Members string }

// NewQueries makes the statements.
func NewQueries(d *sqlrow.Dialect, from From) *Queries {
	hold := "SELECT " + holds.List("h") + " FROM {hold} h WHERE "
	account := "SELECT " + accounts.List("a") + " FROM {account} a WHERE "
	entry := "SELECT " + entries.List("e") + " FROM {entry} e WHERE e.account_id = $1 AND "
	// The accounts of a step, by name and by id, each by an index of its own: no plan may read all accounts of the ledger.
	const these = "(a.ledger_id = $1 AND a.name @in($2) OR a.id @in($3))"
	among := "m.account_id @any[SELECT a.id FROM {account} a WHERE " + these + "]"
	if !d.Shared { // they are known by then
		among = "m.account_id @in($1)"
	}
	q := &Queries{
		d:      d,
		known:  new(sync.Map),
		hints:  new(hints),
		ledger: "SELECT " + ledgers.List("l") + " FROM {ledger} l WHERE l.name = $1",
		// Whatever the accounts are found by, they are locked in the order of their names.
		accounts:     account + these + " ORDER BY a.name @lock",
		accountsSeen: account + these + " ORDER BY a.name",
		accountsByID: account + "a.id @in($1)",
		dropAccounts: "DELETE FROM {account} WHERE id @in($1)",

		// The limits in force of these accounts, each with the end of the account's hold that ends first and with its own newest
		// period, if there are any.
		state: "SELECT coalesce((SELECT min(o.expires_us) FROM {owner} o WHERE o.account_id = m.account_id AND o.live), " + strconv.FormatInt(math.MaxInt64, 10) + "), " +
			limits.List("m") + ", p.id, " + periods.ListOrNone("p") + " FROM {limit} m LEFT JOIN {period} p ON p.id = " +
			"(SELECT b.id FROM {period} b WHERE b.limit_id = m.id ORDER BY b.start_us DESC LIMIT 1) WHERE " + among +
			" AND m.gen = (SELECT max(r.gen) FROM {limit} r WHERE r.account_id = m.account_id AND r.name = m.name) ORDER BY m.account_id, m.name",

		ownersBelow: below + "SELECT h.owners FROM {hold} h WHERE h.id @any[SELECT id FROM tree] AND h.state @in($3)",
		ownersLive: "SELECT h.owners FROM {account} a JOIN {owner} o ON o.account_id = a.id AND o.live JOIN {hold} h ON h.id = o.hold_id " +
			"WHERE a.ledger_id = $1 AND a.name @in($2)",
		ownersDue: "SELECT h.owners FROM {owner} o JOIN {hold} h ON h.id = o.hold_id WHERE o.account_id @in($1) AND o.live AND o.expires_us < $2",

		// A number as the limit, because SQLite prepares a statement anew whenever a parameter there is bound.
		due:      live + "AND o.expires_us < $2 ORDER BY o.expires_us, h.key LIMIT " + strconv.Itoa(spendlimit.MaxDue+1),
		dueOn:    "SELECT l.value FROM @each($1, bigint) WHERE EXISTS (SELECT 1 FROM {owner} o WHERE o.account_id = l.value AND o.live AND o.expires_us < $2)",
		expiring: live + "ORDER BY o.expires_us, h.key LIMIT " + strconv.Itoa(spendlimit.MaxExpiring),
		members:  "SELECT o.account_id, o.hold_id, o.split_group FROM " + cmp.Or(from.Members, members),
		on:       "SELECT o.hold_id FROM {owner} o WHERE o.account_id = $1 ORDER BY o.hold_id",
		below:    below + "SELECT h.id FROM {hold} h WHERE h.id @any[SELECT id FROM tree] AND h.state @in($3) ORDER BY h.expires_us, h.key",
		prunable: "SELECT h.id FROM {owner} o JOIN {hold} h ON h.id = o.hold_id WHERE o.account_id = $1 AND NOT o.live AND h.ended_us < $2 " +
			"AND h.marks = 0 AND NOT EXISTS (SELECT 1 FROM {hold} c WHERE c.parent_id = h.id) ORDER BY h.key LIMIT $3",

		holdsByKey: hold + "h.ledger_id = $1 AND h.key @in($2)",
		holdsByID:  hold + "h.id @in($1)",

		limitsByID: "SELECT " + limits.List("m") + " FROM {limit} m WHERE m.id @in($1)",
		around: "SELECT " + periods.List("p") + " FROM {period} p WHERE p.id IN (" +
			"SELECT (SELECT b.id FROM {period} b WHERE b.limit_id = m.id AND b.start_us <= $2 ORDER BY b.start_us DESC LIMIT 1)" + newest +
			"UNION ALL SELECT (SELECT n.id FROM {period} n WHERE n.limit_id = m.id AND n.start_us > $2 ORDER BY n.start_us LIMIT 1)" + newest + ")",
		periodsByID: "SELECT " + periods.List("p") + " FROM {period} p WHERE p.id @in($1)",
		periodsOf: "SELECT " + periods.List("p") + " FROM {period} p JOIN {limit} m ON m.id = p.limit_id WHERE m.account_id = $1 " +
			"ORDER BY m.name, m.gen, p.start_us",

		usages:   "SELECT " + usages.List("u") + ", '' FROM " + cmp.Or(from.Usages, "{usage} u WHERE u.ledger_id = $1 AND u.hold_id = 0 AND u.id @in($2)"),
		usagesOf: "SELECT " + usages.List("u") + ", (SELECT h.key FROM {hold} h WHERE h.id = u.hold_id) FROM " + cmp.Or(from.UsagesOf, usagesOf),
		journal:  entry + "e.at_us >= $2 ORDER BY e.seq",
		oldest:   entry + "e.at_us < $2 ORDER BY e.seq LIMIT $3",

		dropEntries: "DELETE FROM {entry} WHERE account_id = $1 AND seq <= $2",
		dropOwners:  "DELETE FROM {owner} WHERE account_id @in($1) AND hold_id @in($2)",
		dropUsages:  "DELETE FROM {usage} WHERE ledger_id = $1 AND hold_id @in($2)",
		dropHolds:   "DELETE FROM {hold} WHERE id @in($1)",

		listHolds: "SELECT h.key FROM {hold} h JOIN {ledger} l ON l.id = h.ledger_id WHERE l.name = $1 AND h.key > $2 AND (h.state @in($5) OR NOT $3) ORDER BY h.key LIMIT $4",
		listHoldsOn: "SELECT h.key FROM {account} a JOIN {ledger} l ON l.id = a.ledger_id JOIN {owner} o ON o.account_id = a.id JOIN {hold} h ON h.id = o.hold_id " +
			"WHERE l.name = $1 AND h.key > $2 AND (o.live OR NOT $3) AND a.name = $5 ORDER BY h.key LIMIT $4",
		listDue: "SELECT DISTINCT o.expires_us, h.key FROM {ledger} l JOIN {account} a ON a.ledger_id = l.id JOIN {owner} o ON o.account_id = a.id AND o.live " +
			"AND o.expires_us < CASE WHEN a.last_us > $2 THEN a.last_us ELSE $2 END JOIN {hold} h ON h.id = o.hold_id WHERE l.name = $1 ORDER BY o.expires_us, h.key LIMIT $3",
		listEntries: "SELECT a.id, " + entries.List("e") + " FROM {account} a JOIN {ledger} l ON l.id = a.ledger_id JOIN {entry} e ON e.account_id = a.id " +
			"WHERE l.name = $1 AND a.name = $2 AND e.seq > $3 ORDER BY e.seq LIMIT $4",
	}
	for _, text := range q.all() {
		*text = d.Text(set, *text)
	}
	return q
}

// Forgetful returns the queries for a transaction that may be rolled back after a step in it: what a step has read there may
// never have been.
func (q *Queries) Forgetful() *Queries {
	f := *q
	f.known = nil
	return &f
}

// Forget drops what is known of the database, which may be another one now.
func (q *Queries) Forget() { q.known.Clear() }

const (
	// It also finds the ids of other holds.
	usagesOf = "{usage} u WHERE u.ledger_id = $1 AND u.hold_id @any[SELECT h.id FROM {hold} h WHERE h.ledger_id = $1 AND h.key @in($2)] AND u.id @in($3)"
	members  = "{owner} o WHERE o.account_id @in($1) AND o.live = true AND o.split_group <> '' AND o.split_group @in($2)"
	live     = "SELECT o.hold_id FROM {owner} o JOIN {hold} h ON h.id = o.hold_id WHERE o.account_id = $1 AND o.live "
	// The newest generation of every limit of accounts.
	newest = " FROM {limit} m WHERE m.account_id @in($1) AND NOT EXISTS (SELECT 1 FROM {limit} r " +
		"WHERE r.account_id = m.account_id AND r.name = m.name AND r.gen > m.gen) "
	// The descendants of holds.
	below = "WITH RECURSIVE tree (id) AS (SELECT c.id FROM {hold} t JOIN {hold} c ON c.parent_id = t.id WHERE t.ledger_id = $1 AND t.key @in($2) " +
		"UNION ALL SELECT c.id FROM tree JOIN {hold} c ON c.parent_id = tree.id) "
)

func (q *Queries) all() []*string {
	return []*string{
		&q.ledger, &q.accounts, &q.accountsSeen, &q.accountsByID, &q.dropAccounts, &q.ownersBelow, &q.ownersLive, &q.ownersDue, &q.due, &q.dueOn, &q.expiring,
		&q.members, &q.on, &q.below, &q.prunable, &q.holdsByKey, &q.holdsByID, &q.state, &q.limitsByID, &q.around, &q.periodsByID, &q.periodsOf,
		&q.usages, &q.usagesOf, &q.journal, &q.oldest, &q.dropEntries, &q.dropOwners, &q.dropUsages, &q.dropHolds,
		&q.listHolds, &q.listHoldsOn, &q.listDue, &q.listEntries,
	}
}

// Texts lists the statements.
func (q *Queries) Texts() []string {
	var list []string
	for _, s := range q.all() {
		list = append(list, *s)
	}
	return list
}

// hints says which accounts a hold was on when it was last seen. They never change, but a hold may be pruned and its key used
// for another, or never have been committed, so that its ids may even be another ledger's by now, if the server has crashed. What
// a hint leaves out is found out later, at the price of another try; what it has too many is locked in vain.
type hints struct {
	mu     sync.Mutex
	owners map[nameOf][]int64
}

const maxHints = 16384 // it begins anew when it is full

func (h *hints) add(n nameOf, owners []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owners == nil || len(h.owners) >= maxHints {
		h.owners = map[nameOf][]int64{}
	}
	h.owners[n] = owners
}

func (h *hints) of(n nameOf) []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.owners[n]
}
