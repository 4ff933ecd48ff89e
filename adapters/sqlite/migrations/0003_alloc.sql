-- Times are Unix microseconds in UTC, durations microseconds. Columns that have a DEFAULT are left out where they are zero, which is also what is absent:
-- '' and 0 but for "max". What a number stands for (state, end_reason, owner) is in the documentation of package allocator, in the order of its constants, from 1 on
-- (owner: from 0 on).

CREATE TABLE stint_alloc_pool (
	id INTEGER PRIMARY KEY,
	name TEXT NOT NULL UNIQUE,
	version INTEGER NOT NULL CHECK (version > 0),
	capacity INTEGER NOT NULL DEFAULT 0 CHECK (capacity BETWEEN 0 AND 10000),
	state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 3),
	drain_us INTEGER NOT NULL DEFAULT 0,
	ttl_us INTEGER NOT NULL CHECK (ttl_us > 0),
	max_lease_us INTEGER NOT NULL CHECK (max_lease_us >= ttl_us),
	cooling_us INTEGER NOT NULL DEFAULT 0 CHECK (cooling_us >= 0),
	fenced INTEGER NOT NULL DEFAULT 0 CHECK (fenced IN (0, 1)),
	open_groups INTEGER NOT NULL DEFAULT 0 CHECK (open_groups IN (0, 1)),
	keep_us INTEGER NOT NULL CHECK (keep_us > 0),
	jump_guard_us INTEGER NOT NULL CHECK (jump_guard_us > 0),
	epoch_seq INTEGER NOT NULL DEFAULT 0 CHECK (epoch_seq >= 0), -- the last epoch given out
	ticket_seq INTEGER NOT NULL DEFAULT 0 CHECK (ticket_seq >= 0),
	rev INTEGER NOT NULL DEFAULT 0 CHECK (rev >= 0),
	purged_rev INTEGER NOT NULL DEFAULT 0 CHECK (purged_rev BETWEEN 0 AND rev),
	seen_us INTEGER NOT NULL DEFAULT 0, -- time of the last step that wrote
	jump_us INTEGER NOT NULL DEFAULT 0,
	blocked INTEGER NOT NULL DEFAULT 0 CHECK (blocked IN (0, 1)),
	slots INTEGER NOT NULL DEFAULT 0 CHECK (slots >= 0),
	used INTEGER NOT NULL DEFAULT 0 CHECK (used >= 0),
	cooling INTEGER NOT NULL DEFAULT 0 CHECK (cooling >= 0),
	offered INTEGER NOT NULL DEFAULT 0 CHECK (offered >= 0),
	waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0),
	groups INTEGER NOT NULL DEFAULT 0 CHECK (groups >= 0),
	admin_id TEXT NOT NULL DEFAULT '', -- of the last call by an operator
	admin_digest TEXT NOT NULL DEFAULT '',
	admin_answer TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE stint_alloc_group (
	gkey BLOB NOT NULL,
	pool_id INTEGER NOT NULL REFERENCES stint_alloc_pool,
	names TEXT NOT NULL, -- what gkey says, as a JSON array, for people
	listed INTEGER NOT NULL DEFAULT 0 CHECK (listed IN (0, 1)),
	weight INTEGER NOT NULL CHECK (weight > 0),
	min INTEGER NOT NULL DEFAULT 0 CHECK (min >= 0),
	max INTEGER CHECK (max >= 0), -- NULL: none
	used INTEGER NOT NULL DEFAULT 0 CHECK (used >= 0),
	waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0),
	rev INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (pool_id, gkey)
) STRICT, WITHOUT ROWID;
CREATE TABLE stint_alloc_slot (
	idx INTEGER NOT NULL DEFAULT 0 CHECK (idx BETWEEN 0 AND 9999),
	pool_id INTEGER NOT NULL REFERENCES stint_alloc_pool,
	attrs TEXT NOT NULL DEFAULT '', -- a JSON object
	state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4),
	epoch INTEGER NOT NULL DEFAULT 0 CHECK (epoch > 0 OR epoch = 0 AND state <> 2), -- of its last grant: where it is leased, of its lease
	cool_us INTEGER NOT NULL DEFAULT 0 CHECK (cool_us > 0 AND state = 3 OR cool_us = 0 AND state <> 3),
	rev INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (pool_id, idx)
) STRICT, WITHOUT ROWID;
CREATE INDEX stint_alloc_slot_free ON stint_alloc_slot (pool_id, idx) WHERE state = 1;
CREATE INDEX stint_alloc_slot_cooling ON stint_alloc_slot (pool_id, cool_us, idx) WHERE state = 3;

-- No foreign keys from here on: each would be looked up for every row of the hot tables. A lease's key is its epoch.
CREATE TABLE stint_alloc_lease (
	epoch INTEGER NOT NULL CHECK (epoch > 0),
	pool_id INTEGER NOT NULL,
	lease_id BLOB NOT NULL CHECK (length(lease_id) = 16),
	slots TEXT NOT NULL, -- indexes, as a JSON array
	attempt TEXT NOT NULL,
	gkey BLOB NOT NULL,
	units INTEGER NOT NULL CHECK (units > 0),
	asked_ttl_us INTEGER NOT NULL DEFAULT 0,
	asked_max_us INTEGER NOT NULL DEFAULT 0,
	owner INTEGER NOT NULL DEFAULT 0,
	labels TEXT NOT NULL DEFAULT '', -- a JSON object
	incarnation BLOB NOT NULL CHECK (length(incarnation) = 16),
	host TEXT NOT NULL DEFAULT '',
	boot TEXT NOT NULL DEFAULT '',
	pidns TEXT NOT NULL DEFAULT '',
	pid INTEGER NOT NULL DEFAULT 0,
	pid_start INTEGER NOT NULL DEFAULT 0,
	state INTEGER NOT NULL CHECK (state BETWEEN 1 AND 3),
	acquired_us INTEGER NOT NULL DEFAULT 0 CHECK (acquired_us >= 0),
	ttl_us INTEGER NOT NULL CHECK (ttl_us > 0),
	expires_us INTEGER NOT NULL DEFAULT 0 CHECK (expires_us BETWEEN 0 AND max_us),
	max_us INTEGER NOT NULL DEFAULT 0,
	renew_seq INTEGER NOT NULL DEFAULT 0 CHECK (renew_seq >= 0),
	renew_expires_us INTEGER NOT NULL DEFAULT 0, -- the answer to that renewal
	renew_left_us INTEGER NOT NULL DEFAULT 0,
	renew_lapsed INTEGER NOT NULL DEFAULT 0 CHECK (renew_lapsed IN (0, 1)),
	end_reason INTEGER NOT NULL DEFAULT 0 CHECK (end_reason BETWEEN 1 AND 6 AND state = 3 OR end_reason = 0 AND state <> 3),
	end_us INTEGER NOT NULL DEFAULT 0,
	end_by TEXT NOT NULL DEFAULT '',
	end_evidence TEXT NOT NULL DEFAULT '',
	rev INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (pool_id, epoch)
) STRICT, WITHOUT ROWID;
-- The sum keeps a plan from reading the index below in place of this one.
CREATE UNIQUE INDEX stint_alloc_lease_attempt ON stint_alloc_lease (pool_id, attempt) WHERE state + 0 IN (1, 2);
CREATE INDEX stint_alloc_lease_expiry ON stint_alloc_lease (pool_id, state, expires_us, epoch) WHERE state IN (1, 2);
CREATE INDEX stint_alloc_lease_age ON stint_alloc_lease (pool_id, acquired_us, epoch) WHERE state = 2;
CREATE INDEX stint_alloc_lease_boot ON stint_alloc_lease (pool_id, boot, pidns, epoch) WHERE state = 2;
CREATE INDEX stint_alloc_lease_host ON stint_alloc_lease (pool_id, host, epoch) WHERE state = 2 AND host <> '';
CREATE INDEX stint_alloc_lease_end ON stint_alloc_lease (pool_id, end_us, epoch) WHERE state = 3;
-- What ended never changes again, so that this is no index of what changes often.
CREATE INDEX stint_alloc_lease_ended_rev ON stint_alloc_lease (pool_id, rev) WHERE state NOT IN (1, 2);

CREATE TABLE stint_alloc_ticket (
	seq INTEGER NOT NULL CHECK (seq > 0),
	pool_id INTEGER NOT NULL,
	attempt TEXT NOT NULL,
	gkey BLOB NOT NULL,
	units INTEGER NOT NULL CHECK (units > 0),
	asked_ttl_us INTEGER NOT NULL DEFAULT 0,
	asked_max_us INTEGER NOT NULL DEFAULT 0,
	owner INTEGER NOT NULL DEFAULT 0,
	labels TEXT NOT NULL DEFAULT '', -- a JSON object
	incarnation BLOB NOT NULL CHECK (length(incarnation) = 16),
	host TEXT NOT NULL DEFAULT '',
	boot TEXT NOT NULL DEFAULT '',
	pidns TEXT NOT NULL DEFAULT '',
	pid INTEGER NOT NULL DEFAULT 0,
	pid_start INTEGER NOT NULL DEFAULT 0,
	deadline_us INTEGER NOT NULL DEFAULT 0,
	rev INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (pool_id, seq)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX stint_alloc_ticket_attempt ON stint_alloc_ticket (pool_id, attempt);
CREATE INDEX stint_alloc_ticket_queue ON stint_alloc_ticket (pool_id, gkey, seq);
CREATE INDEX stint_alloc_ticket_deadline ON stint_alloc_ticket (pool_id, deadline_us, seq);
