package poolsql

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
)

// Queries are the statements for one database. Those that read rows for several reasons are made when they are needed.
type Queries struct {
	d      *sqlrow.Dialect
	from   From
	marks  *strings.Replacer
	made   sync.Map // of statementKey
	atOnce bool     // the database has the clock, so that all rows can come along with the pool's own: nothing is known of it but its name

	pool, poolSeen                                                       string
	dropGroups, dropTickets, dropLeases, dropLease, dropSlot, dropTicket *statement
}

// From is what a dialect must say in its own way. All is a test that a row of {slot}, named r, is of any pool; OfEpochs one that it is
// in the list of a lease with an epoch in $epochs, for a dialect with Shared. Heads joins the first $heads rows of {ticket}, named
// r, of each gkey of k. Mine is a test that a row named r is of the pool, where no index that begins with the pool should be used. By
// makes a plan use an index.
type From struct {
	All, OfEpochs, Heads, Mine string
	By                         func(index string) string
}

// NewQueries makes the statements.
func NewQueries(d *sqlrow.Dialect, from From) *Queries {
	q := &Queries{d: d, from: from, atOnce: d.Now != ""}
	pool, now, by := "$pool", "$now", "p.id"
	if q.atOnce {
		by = "p.name"
	}
	of := func(what string) string { return "(SELECT " + what + " FROM {pool} p WHERE " + by + " = $pool)" }
	if q.atOnce {
		pool, now = of("p.id"), of("greatest(p.seen_us, ("+d.Now+"))")
	}
	q.marks = strings.NewReplacer("@pool", pool, "@now", now, "@born", now+" - "+of("p.max_lease_us"), "@before", now+" - "+of("p.keep_us"),
		"@last", of("p.epoch_seq"), "@rev", of("p.rev"))
	text := "SELECT " + pools.List("a") + " FROM {pool} a WHERE a.name = $1"
	q.poolSeen, q.pool = d.Text(set, text), d.Text(set, text+" @lock")
	q.dropGroups = q.statement("DELETE FROM {group} AS r WHERE r.gkey @inbytes($keys) AND r.pool_id = @pool AND r.rev @in($revs)")
	q.dropTickets = q.statement("DELETE FROM {ticket} AS r WHERE r.seq @in($keys) AND @mine AND r.rev @in($revs)")
	q.dropLeases = q.statement("DELETE FROM {lease} AS r WHERE r.epoch @in($keys) AND r.pool_id = @pool AND r.rev @in($revs)")
	q.dropLease = q.statement("DELETE FROM {lease} AS r WHERE r.epoch = $keys AND r.pool_id = @pool")
	q.dropSlot = q.statement("DELETE FROM {slot} AS r WHERE r.idx = $keys AND r.pool_id = @pool")
	q.dropTicket = q.statement("DELETE FROM {ticket} AS r WHERE r.seq = $keys AND r.pool_id = @pool")
	return q
}

// statement is a text with the names of its parameters.
type statement struct {
	text  string
	names []string
}

type statementKey struct {
	of  *kind
	why reasons
}

// read is the statement that reads rows for these reasons: the reason, and then the columns.
func (q *Queries) read(k *kind, why reasons) *statement {
	key := statementKey{k, why}
	if st, ok := q.made.Load(key); ok {
		return st.(*statement)
	}
	var list []string
	for reason, from := range k.why {
		if why&(1<<reason) != 0 {
			list = append(list, fmt.Sprintf("SELECT * FROM (SELECT %d AS why, %s FROM %s) AS x", reason, k.table.List("r"), from))
		}
	}
	st, _ := q.made.LoadOrStore(key, q.statement(strings.Join(list, " UNION ALL ")))
	return st.(*statement)
}

var (
	named = regexp.MustCompile(`\$[a-z]+`)
	by    = regexp.MustCompile(`@by\(([a-z_]+)\)`)
)

// statement gives the parameters of a template their numbers.
func (q *Queries) statement(template string) *statement {
	st := new(statement)
	text := by.ReplaceAllStringFunc(template, func(mark string) string { return q.from.By(by.FindStringSubmatch(mark)[1]) })
	text = strings.NewReplacer("@all", q.from.All, "@ofepochs", q.from.OfEpochs, "@heads", q.from.Heads, "@mine", q.from.Mine).Replace(text)
	text = named.ReplaceAllStringFunc(q.marks.Replace(text), func(name string) string {
		at := slices.Index(st.names, name[1:])
		if at < 0 {
			at, st.names = len(st.names), append(st.names, name[1:])
		}
		return fmt.Sprint("$", at+1)
	})
	st.text = q.d.Text(set, text)
	return st
}

// Texts lists the statements, those that read rows for each reason by itself.
func (q *Queries) Texts() []string {
	list := []string{q.pool, q.poolSeen}
	for _, st := range []*statement{q.dropGroups, q.dropTickets, q.dropLeases, q.dropLease, q.dropSlot, q.dropTicket} {
		list = append(list, st.text)
	}
	for _, k := range []*kind{leaseKind, slotKind, ticketKind, groupKind} {
		for reason, from := range k.why {
			if q.atOnce || !strings.Contains(from, "@ofepochs") { // for those that read ahead
				list = append(list, q.read(k, 1<<reason).text)
			}
		}
	}
	return list
}
