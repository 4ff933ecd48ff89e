package bench

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint/allocator"
)

// The SQL twins of pools write the rows that the library writes for the same calls, into the same tables, in a transaction for
// each call. They know less than the library: one group, one slot, no queue, no lease whose time is over, no look at what was read.

// poolTexts are the statements of a twin.
type poolTexts struct {
	pool, held, free, group, live string
	setPool, setGroup, take, give string
	insert, end, renew            string
}

func newPoolTexts(of func(template string) string) *poolTexts {
	return &poolTexts{
		pool:  of("SELECT epoch_seq, used, rev, seen_us FROM {pool} WHERE id = $1"),
		held:  of("SELECT count(*) FROM {lease} WHERE pool_id = $1 AND attempt = $2 AND state IN (1, 2)"),
		free:  of("SELECT idx FROM {slot} WHERE pool_id = $1 AND state = 1 ORDER BY idx LIMIT 1"),
		group: of("SELECT used FROM {group} WHERE pool_id = $1 AND gkey = $2"),
		live:  of("SELECT state, renew_seq, CAST(trim(slots, '[]') AS bigint) FROM {lease} WHERE pool_id = $1 AND epoch = $2"),

		setPool:  of("UPDATE {pool} SET epoch_seq = $2, used = $3, rev = $4, seen_us = $5 WHERE id = $1"),
		setGroup: of("UPDATE {group} SET used = $3, rev = $4 WHERE pool_id = $1 AND gkey = $2"),
		take:     of("UPDATE {slot} SET state = 2, epoch = $3, rev = $4 WHERE pool_id = $1 AND idx = $2"),
		give:     of("UPDATE {slot} SET state = 1, rev = $3 WHERE pool_id = $1 AND idx = $2"),
		insert: of("INSERT INTO {lease} (pool_id, epoch, lease_id, slots, attempt, gkey, units, incarnation, boot, pidns, pid, pid_start, state, acquired_us, " +
			"ttl_us, expires_us, max_us, rev) VALUES ($1, $2, $3, $4, $5, $6, 1, $3, 'boot', '4026531836', 4242, 123456, 2, $7, $8, $9, $10, $11)"),
		end: of("UPDATE {lease} SET state = 3, end_reason = 1, end_us = $3, rev = $4 WHERE pool_id = $1 AND epoch = $2"),
		renew: of("UPDATE {lease} SET expires_us = $3, renew_seq = $4, renew_expires_us = $3, renew_left_us = $5, rev = $6 " +
			"WHERE pool_id = $1 AND epoch = $2"),
	}
}

// poolNow is a pool as a twin has read it.
type poolNow struct{ epoch, used, rev, seen, groupUsed int64 }

// next is one more revision.
func (p *poolNow) next() int64 {
	p.rev++
	return p.rev
}

// poolCall is a transaction.
type poolCall interface {
	get(text string, args []any, into ...any)
	exec(text string, args ...any)
	// read ends what was asked for until now.
	read() error
}

var errTwin = errors.New("the twin's pool is not as it should be")

var noGroup = []byte(allocator.KeyOf())

// begin reads the pool.
func (x *poolTexts) begin(c poolCall, pool int64, p *poolNow) {
	c.get(x.pool, []any{pool}, &p.epoch, &p.used, &p.rev, &p.seen)
	c.get(x.group, []any{pool, noGroup}, &p.groupUsed)
}

func (x *poolTexts) finish(c poolCall, pool int64, p *poolNow, now int64) {
	c.exec(x.setGroup, pool, noGroup, p.groupUsed, p.next())
	c.exec(x.setPool, pool, p.epoch, p.used, p.next(), now)
}

func (x *poolTexts) acquire(c poolCall, pool int64, attempt string) (epoch int64, err error) {
	var p poolNow
	var held, slot int64
	x.begin(c, pool, &p)
	c.get(x.held, []any{pool, attempt}, &held)
	c.get(x.free, []any{pool}, &slot)
	if err := c.read(); err != nil {
		return 0, err
	}
	if held > 0 || p.used >= Slots {
		return 0, errTwin
	}
	now := max(p.seen, time.Now().UnixMicro())
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	p.epoch++
	p.used++
	p.groupUsed++
	policy := allocator.DefaultPolicy()
	ttl := policy.TTL.Microseconds()
	c.exec(x.insert, pool, p.epoch, id, fmt.Sprintf("[%d]", slot), attempt, noGroup, now, ttl, now+ttl, now+policy.MaxLease.Microseconds(), p.next())
	c.exec(x.take, pool, slot, p.epoch, p.next())
	x.finish(c, pool, &p, now)
	return p.epoch, nil
}

func (x *poolTexts) release(c poolCall, pool, epoch int64) error {
	var p poolNow
	var state, seq, slot int64
	x.begin(c, pool, &p)
	c.get(x.live, []any{pool, epoch}, &state, &seq, &slot)
	if err := c.read(); err != nil {
		return err
	}
	if state != int64(allocator.LeaseLive) {
		return errTwin
	}
	now := max(p.seen, time.Now().UnixMicro())
	p.used--
	p.groupUsed--
	c.exec(x.end, pool, epoch, now, p.next())
	c.exec(x.give, pool, slot, p.next())
	x.finish(c, pool, &p, now)
	return nil
}

func (x *poolTexts) prolong(c poolCall, pool, epoch int64) error {
	var p poolNow
	var state, seq, slot int64
	x.begin(c, pool, &p)
	c.get(x.live, []any{pool, epoch}, &state, &seq, &slot)
	if err := c.read(); err != nil {
		return err
	}
	if state != int64(allocator.LeaseLive) {
		return errTwin
	}
	now, ttl := max(p.seen, time.Now().UnixMicro()), allocator.DefaultPolicy().TTL.Microseconds()
	c.exec(x.renew, pool, epoch, now+ttl, seq+1, ttl, p.next())
	c.exec(x.setPool, pool, p.epoch, p.used, p.next(), now)
	return nil
}
