package sqlite

import (
	"database/sql/driver"
	"reflect"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
)

// seen is how the database was left by the last transaction that wrote here. What a step of a store need not read, because this process
// has read or written it before, holds as long as nobody else has written since. SQLite tells: a connection's data_version changes
// when another connection has committed, whichever process it is of, and its total_changes() when it has changed a row itself, for
// whomever; the stores of one DB count theirs, and leave each other's tables alone. Rows that it has put in place by other means, a
// backup that was restored or a table that was renamed, change the schema_version. All are looked at inside of the transaction, when
// it is the only writer. What was found on one connection tells nothing about another.
type seen struct {
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

// recall finds out whether what the stores know still holds. In the transaction they may use it, and add to it. It is for a step that
// writes, of a store that knows anything.
func (c *conn) recall() error {
	d := c.d
	if d.inMemory {
		return nil
	}
	now := seen{conn: c.driver()}
	if now.conn == nil {
		return nil
	}
	number := func(text string, into *int64) sqlrow.Stmt {
		return sqlrow.Stmt{SQL: text, Each: func(r sqlrow.Row) error { return r.Scan(into) }}
	}
	list := []sqlrow.Stmt{number(dataVersion, &now.version), number(schemaVersion, &now.schema), number(totalChanges, &now.changes)}
	if err := c.Run(c.ctx, list...); err != nil {
		return err
	}
	if d.seen != now {
		d.forget(d.seen.schema != now.schema)
		d.seen = now
	}
	c.knows = true
	return nil
}

// driver is the driver's connection, or nil where it can't be told from another one, or is inside a transaction of the caller.
func (c *conn) driver() (one driver.Conn) {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Raw(func(raw any) error { one, _ = raw.(driver.Conn); return nil })
	if err != nil || one == nil || reflect.TypeOf(one).Kind() != reflect.Pointer {
		return nil
	}
	return one
}

// retain keeps what a transaction has read and written, once it is committed. After a failure nothing is known.
func (d *DB) retain(c *conn, err error) {
	switch {
	case c.knows:
	case err == nil && d.seen.conn != nil && d.seen.conn == c.driver(): // by a store that knows nothing
		d.seen.changes += c.changed
		return
	default:
		return
	}
	if err != nil {
		d.forget(false)
		d.seen.conn = nil
		return
	}
	d.seen.changes += c.changed
	if c.done != nil {
		c.done()
	}
}

// forget drops the rows that the stores know; with all, what they know of the database too, which may be another one now.
func (d *DB) forget(all bool) {
	d.spend.cache.Drop()
	if all {
		d.spend.queries.Forget()
	}
}
