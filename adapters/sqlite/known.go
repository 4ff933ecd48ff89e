package sqlite

import (
	"database/sql/driver"
	"reflect"

	"github.com/stint-go/stint/adapters/internal/spendsql"
	"github.com/stint-go/stint/adapters/internal/sqlrow"
)

// known is what a step need not read, because this process has read or written it before, and nobody has written since. SQLite
// tells: a connection's data_version changes when another connection has committed, whichever process it is of, and its
// total_changes() when it has changed a row itself, for whomever. Rows that it has put in place by other means, a backup that was
// restored or a table that was renamed, change the schema_version. All are looked at inside of the transaction, when it is the
// only writer. What was found on one connection tells nothing about another.
type known struct {
	cache   spendsql.Cache
	conn    driver.Conn // also keeps its address from being used again
	version int64
	schema  int64
	changes int64
}

const (
	dataVersion   = "PRAGMA data_version"
	schemaVersion = "PRAGMA schema_version"
	totalChanges  = "SELECT total_changes()"
)

// recall gives the transaction what is known, if it still is.
func (d *DB) recall(c *conn) error {
	if d.queries == nil || d.inMemory { // or there are no tables yet
		return nil
	}
	var now known
	if err := c.conn.Raw(func(one any) error { now.conn, _ = one.(driver.Conn); return nil }); err != nil {
		return d.failed(err)
	}
	if now.conn == nil || reflect.TypeOf(now.conn).Kind() != reflect.Pointer { // can't be told from another
		return nil
	}
	number := func(text string, into *int64) sqlrow.Stmt {
		return sqlrow.Stmt{SQL: text, Each: func(r sqlrow.Row) error { return r.Scan(into) }}
	}
	list := []sqlrow.Stmt{number(dataVersion, &now.version), number(schemaVersion, &now.schema), number(totalChanges, &now.changes)}
	if err := c.Run(c.ctx, list...); err != nil {
		return err
	}
	k := &d.known
	if k.conn != now.conn || k.version != now.version || k.schema != now.schema || k.changes != now.changes {
		k.cache.Drop()
		if k.schema != now.schema {
			d.queries.Forget()
		}
		k.conn, k.version, k.schema, k.changes = now.conn, now.version, now.schema, now.changes
	}
	c.cache = &k.cache
	return nil
}

// retain keeps what a transaction has read and written, once it is committed. After a failure nothing is known.
func (d *DB) retain(c *conn, err error) {
	if c.cache == nil {
		return
	}
	if err != nil {
		d.known.cache.Drop()
		d.known.conn = nil
		return
	}
	d.known.changes += c.changed
	if c.done != nil {
		c.done()
	}
}
