package poolsql

import (
	"strconv"

	"github.com/stint-go/stint/adapters/internal/sqlrow"
	"github.com/stint-go/stint/allocator"
)

// kind is a table with all reasons to read its rows, which are named r. A statement is for the reasons that a step has.
type kind struct {
	table *sqlrow.Table
	// why has what stands behind FROM. What a reason depends on has a name, as $epochs. @pool is the pool's id, @now the time of the step; a
	// lease is too old that was taken before @born, and forgotten when it ended before @before. @by names the index where a plan may take another
	// one, and so does @mine, a test for the pool; a partial one can be used only where its condition is written as in the table. A LIMIT that is a parameter alone would make SQLite prepare anew for each value.
	why []string
}

// reasons is a set of them, a bit for each.
type reasons uint

func (w *reasons) add(reason int, when bool) {
	if when {
		*w |= 1 << reason
	}
}

// Reasons to read a lease.
const (
	leaseOfAttempt = iota
	leaseOfEpoch
	leaseUntaken
	leaseLapsed
	leaseOld
	leaseOfHolder
	leaseHeld
	leaseOfSlot
	leaseNextOffer
	leaseNextLive
	leaseForgotten
	pageHeld
	pageLeases
	pageHere
	pageHost
	pageMoved
	pageEnded
)

// Reasons to read a slot.
const (
	slotNamed = iota
	slotFree
	slotCooled
	slotNext
	slotAll
	slotOfEpoch
	pageSlots
)

// Reasons to read a ticket.
const (
	ticketOfAttempt = iota
	ticketLate
	ticketFirst
	ticketOfHolder
	ticketAll
	pageTickets
)

// Reasons to read a group.
const (
	groupNamed = iota
	groupAll
	groupOfEpoch
	pageGroups
)

const heldLeases = "{lease} r @by(lease_expiry) WHERE r.pool_id = @pool AND r.state IN (1, 2) "

var most = strconv.Itoa(allocator.MaxTimely)

var leaseKind = &kind{leases, []string{
	leaseOfAttempt: "{lease} r @by(lease_attempt) WHERE r.attempt @in($attempts) AND @mine AND r.state + 0 IN (1, 2)",
	leaseOfEpoch:   "{lease} r WHERE r.epoch @in($epochs) AND r.pool_id = @pool",
	leaseUntaken:   heldLeases + "AND r.state = 1 AND r.expires_us < @now ORDER BY r.expires_us, r.epoch LIMIT " + most,
	leaseLapsed:    heldLeases + "AND r.state = 2 AND r.expires_us < @now ORDER BY r.expires_us, r.epoch LIMIT $due + 0",
	leaseOld:       "{lease} r @by(lease_age) WHERE r.pool_id = @pool AND r.state = 2 AND r.acquired_us < @born ORDER BY r.acquired_us, r.epoch LIMIT $due + 0",
	leaseOfHolder:  heldLeases + "AND r.incarnation = $incarnation",
	leaseHeld:      heldLeases,
	leaseOfSlot:    "{lease} r WHERE r.epoch @any[SELECT s.epoch FROM {slot} s WHERE s.idx @in($slots) AND s.pool_id = @pool AND s.state = 2] AND r.pool_id = @pool",
	leaseNextOffer: heldLeases + "AND r.state = 1 ORDER BY r.expires_us, r.epoch LIMIT 1",
	leaseNextLive:  heldLeases + "AND r.state = 2 ORDER BY r.expires_us, r.epoch LIMIT 1",
	leaseForgotten: "{lease} r @by(lease_end) WHERE r.pool_id = @pool AND r.state = 3 AND r.end_us < @before ORDER BY r.end_us, r.epoch LIMIT $purge + 0",

	// The plus keeps a plan from going through all leases that ended, only because they are in order.
	pageHeld:   heldLeases + "AND +r.epoch > $after ORDER BY +r.epoch LIMIT $max + 0",
	pageLeases: "{lease} r WHERE r.pool_id = @pool AND r.epoch > $after AND r.epoch <= @last ORDER BY r.epoch LIMIT $max + 0",
	pageHere:   "{lease} r @by(lease_boot) WHERE r.boot = $boot AND r.pidns = $pidns AND r.pool_id = @pool AND r.state = 2 AND r.epoch > $after ORDER BY r.epoch LIMIT $max + 0",
	pageHost:   "{lease} r @by(lease_host) WHERE r.host = $host AND r.pool_id = @pool AND r.state = 2 AND r.host <> '' AND r.epoch > $after ORDER BY r.epoch LIMIT $max + 0",
	pageMoved:  heldLeases + "AND r.rev > $after AND $after < @rev ORDER BY r.rev LIMIT $max + 0",
	pageEnded:  "{lease} r @by(lease_ended_rev) WHERE r.pool_id = @pool AND r.state NOT IN (1, 2) AND r.rev > $after ORDER BY r.rev LIMIT $max + 0",
}}

var slotKind = &kind{slots, []string{
	slotNamed:   "{slot} r WHERE r.idx @in($slots) AND r.pool_id = @pool",
	slotFree:    "{slot} r @by(slot_free) WHERE r.pool_id = @pool AND r.state = 1 ORDER BY r.idx LIMIT $free + 0",
	slotCooled:  "{slot} r @by(slot_cooling) WHERE r.pool_id = @pool AND r.state = 3 AND r.cool_us < @now ORDER BY r.cool_us, r.idx LIMIT " + most,
	slotNext:    "{slot} r @by(slot_cooling) WHERE r.pool_id = @pool AND r.state = 3 ORDER BY r.cool_us, r.idx LIMIT 1",
	slotAll:     "{slot} r WHERE @all AND r.pool_id = @pool",
	slotOfEpoch: "{slot} r WHERE @ofepochs AND r.pool_id = @pool",
	pageSlots:   "{slot} r WHERE @all AND r.pool_id = @pool AND r.rev > $after AND $after < @rev ORDER BY r.rev LIMIT $max + 0",
}}

var ticketKind = &kind{tickets, []string{
	ticketOfAttempt: "{ticket} r @by(ticket_attempt) WHERE r.attempt @in($attempts) AND @mine",
	ticketLate:      "{ticket} r @by(ticket_deadline) WHERE r.pool_id = @pool AND r.deadline_us < @now ORDER BY r.deadline_us, r.seq LIMIT " + most,
	// The groups that have tickets, with one look into the index for each.
	ticketFirst: "(WITH RECURSIVE q (gkey) AS (SELECT (SELECT t.gkey FROM {ticket} t WHERE t.pool_id = @pool ORDER BY t.gkey LIMIT 1) UNION ALL " +
		"SELECT (SELECT t.gkey FROM {ticket} t WHERE t.pool_id = @pool AND t.gkey > q.gkey ORDER BY t.gkey LIMIT 1) FROM q WHERE q.gkey IS NOT NULL) " +
		"SELECT q.gkey FROM q WHERE q.gkey IS NOT NULL) AS k @heads",
	ticketOfHolder: "{ticket} r WHERE r.pool_id = @pool AND r.incarnation = $incarnation",
	ticketAll:      "{ticket} r WHERE r.pool_id = @pool",
	pageTickets:    "{ticket} r WHERE r.pool_id = @pool AND r.seq > $after ORDER BY r.seq LIMIT $max + 0",
}}

var groupKind = &kind{groups, []string{
	groupNamed:   "{group} r WHERE r.gkey @inbytes($groups) AND r.pool_id = @pool",
	groupAll:     "{group} r WHERE r.pool_id = @pool AND r.weight > 0",
	groupOfEpoch: "{group} r WHERE r.gkey @any[SELECT l.gkey FROM {lease} l WHERE l.epoch @in($epochs) AND l.pool_id = @pool] AND r.pool_id = @pool",
	pageGroups:   "{group} r WHERE r.pool_id = @pool AND r.weight > 0 AND r.gkey > $group ORDER BY r.gkey LIMIT $max + 0",
}}
