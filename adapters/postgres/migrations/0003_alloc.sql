-- Times are Unix microseconds in UTC, durations microseconds. Columns that have a DEFAULT are left out where they are zero, which is also what is absent:
-- '' and 0 but for "max". What a number stands for (state, end_reason, owner) is in the documentation of package allocator, in the order of its constants, from 1 on
-- (owner: from 0 on).

-- Ids are taken in blocks.
CREATE SEQUENCE {schema}.alloc_ids INCREMENT BY 1000;

CREATE TABLE {schema}.alloc_pool (
	id bigint PRIMARY KEY,
	name text COLLATE "C" NOT NULL UNIQUE,
	version bigint NOT NULL CHECK (version > 0),
	capacity bigint NOT NULL DEFAULT 0 CHECK (capacity BETWEEN 0 AND 10000),
	state bigint NOT NULL CHECK (state BETWEEN 1 AND 3),
	drain_us bigint NOT NULL DEFAULT 0,
	ttl_us bigint NOT NULL CHECK (ttl_us > 0),
	max_lease_us bigint NOT NULL CHECK (max_lease_us >= ttl_us),
	cooling_us bigint NOT NULL DEFAULT 0 CHECK (cooling_us >= 0),
	fenced boolean NOT NULL DEFAULT false,
	open_groups boolean NOT NULL DEFAULT false,
	keep_us bigint NOT NULL CHECK (keep_us > 0),
	jump_guard_us bigint NOT NULL CHECK (jump_guard_us > 0),
	epoch_seq bigint NOT NULL DEFAULT 0 CHECK (epoch_seq >= 0), -- the last epoch given out
	ticket_seq bigint NOT NULL DEFAULT 0 CHECK (ticket_seq >= 0),
	rev bigint NOT NULL DEFAULT 0 CHECK (rev >= 0),
	purged_rev bigint NOT NULL DEFAULT 0 CHECK (purged_rev BETWEEN 0 AND rev),
	seen_us bigint NOT NULL DEFAULT 0, -- time of the last step that wrote
	jump_us bigint NOT NULL DEFAULT 0,
	blocked boolean NOT NULL DEFAULT false,
	slots bigint NOT NULL DEFAULT 0 CHECK (slots >= 0),
	used bigint NOT NULL DEFAULT 0 CHECK (used >= 0),
	cooling bigint NOT NULL DEFAULT 0 CHECK (cooling >= 0),
	offered bigint NOT NULL DEFAULT 0 CHECK (offered >= 0),
	waiting bigint NOT NULL DEFAULT 0 CHECK (waiting >= 0),
	groups bigint NOT NULL DEFAULT 0 CHECK (groups >= 0),
	admin_id text NOT NULL DEFAULT '', -- of the last call by an operator
	admin_digest text NOT NULL DEFAULT '',
	admin_answer text NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

CREATE TABLE {schema}.alloc_group (
	gkey bytea NOT NULL,
	pool_id bigint NOT NULL REFERENCES {schema}.alloc_pool,
	names text NOT NULL, -- what gkey says, as a JSON array, for people
	listed boolean NOT NULL DEFAULT false,
	weight bigint NOT NULL CHECK (weight > 0),
	min bigint NOT NULL DEFAULT 0 CHECK (min >= 0),
	max bigint CHECK (max >= 0), -- NULL: none
	used bigint NOT NULL DEFAULT 0 CHECK (used >= 0),
	waiting bigint NOT NULL DEFAULT 0 CHECK (waiting >= 0),
	rev bigint NOT NULL DEFAULT 0,
	PRIMARY KEY (gkey, pool_id)
) WITH (fillfactor = 50);
-- The condition, which holds for all, keeps a plan for a list of groups from reading all that the pool has.
CREATE INDEX alloc_group_pool ON {schema}.alloc_group (pool_id, gkey) WHERE weight > 0;

CREATE TABLE {schema}.alloc_slot (
	idx bigint NOT NULL DEFAULT 0 CHECK (idx BETWEEN 0 AND 9999),
	pool_id bigint NOT NULL REFERENCES {schema}.alloc_pool,
	attrs text NOT NULL DEFAULT '', -- a JSON object
	state bigint NOT NULL CHECK (state BETWEEN 1 AND 4),
	epoch bigint NOT NULL DEFAULT 0 CHECK (epoch > 0 OR epoch = 0 AND state <> 2), -- of its last grant: where it is leased, of its lease
	cool_us bigint NOT NULL DEFAULT 0 CHECK (cool_us > 0 AND state = 3 OR cool_us = 0 AND state <> 3),
	rev bigint NOT NULL DEFAULT 0,
	PRIMARY KEY (idx, pool_id)
) WITH (fillfactor = 80);
CREATE INDEX alloc_slot_free ON {schema}.alloc_slot (pool_id, idx) WHERE state = 1;
CREATE INDEX alloc_slot_cooling ON {schema}.alloc_slot (pool_id, cool_us, idx) WHERE state = 3;

-- Lists are surely looked up by the first column of an index alone, so what is looked for in lists comes first in the keys.
-- No foreign keys from here on: each would be looked up for every row of the hot tables. A lease's key is its epoch.
CREATE TABLE {schema}.alloc_lease (
	epoch bigint NOT NULL CHECK (epoch > 0),
	pool_id bigint NOT NULL,
	lease_id bytea NOT NULL CHECK (length(lease_id) = 16),
	slots text NOT NULL, -- indexes, as a JSON array
	attempt text COLLATE "C" NOT NULL,
	gkey bytea NOT NULL,
	units bigint NOT NULL CHECK (units > 0),
	asked_ttl_us bigint NOT NULL DEFAULT 0,
	asked_max_us bigint NOT NULL DEFAULT 0,
	owner bigint NOT NULL DEFAULT 0,
	labels text NOT NULL DEFAULT '', -- a JSON object
	incarnation bytea NOT NULL CHECK (length(incarnation) = 16),
	host text COLLATE "C" NOT NULL DEFAULT '',
	boot text COLLATE "C" NOT NULL DEFAULT '',
	pidns text COLLATE "C" NOT NULL DEFAULT '',
	pid bigint NOT NULL DEFAULT 0,
	pid_start bigint NOT NULL DEFAULT 0,
	state bigint NOT NULL CHECK (state BETWEEN 1 AND 3),
	acquired_us bigint NOT NULL DEFAULT 0 CHECK (acquired_us >= 0),
	ttl_us bigint NOT NULL CHECK (ttl_us > 0),
	expires_us bigint NOT NULL DEFAULT 0 CHECK (expires_us BETWEEN 0 AND max_us),
	max_us bigint NOT NULL DEFAULT 0,
	renew_seq bigint NOT NULL DEFAULT 0 CHECK (renew_seq >= 0),
	renew_expires_us bigint NOT NULL DEFAULT 0, -- the answer to that renewal
	renew_left_us bigint NOT NULL DEFAULT 0,
	renew_lapsed boolean NOT NULL DEFAULT false,
	end_reason bigint NOT NULL DEFAULT 0 CHECK (end_reason BETWEEN 1 AND 6 AND state = 3 OR end_reason = 0 AND state <> 3),
	end_us bigint NOT NULL DEFAULT 0,
	end_by text NOT NULL DEFAULT '',
	end_evidence text NOT NULL DEFAULT '',
	rev bigint NOT NULL DEFAULT 0,
	PRIMARY KEY (epoch, pool_id)
) WITH (fillfactor = 80);
-- The sum keeps a plan from reading the index below in place of this one.
CREATE UNIQUE INDEX alloc_lease_attempt ON {schema}.alloc_lease (attempt, pool_id) WHERE state + 0 IN (1, 2);
CREATE INDEX alloc_lease_expiry ON {schema}.alloc_lease (pool_id, state, expires_us, epoch) WHERE state IN (1, 2);
CREATE INDEX alloc_lease_age ON {schema}.alloc_lease (pool_id, acquired_us, epoch) WHERE state = 2;
CREATE INDEX alloc_lease_boot ON {schema}.alloc_lease (boot, pidns, pool_id, epoch) WHERE state = 2;
CREATE INDEX alloc_lease_host ON {schema}.alloc_lease (host, pool_id, epoch) WHERE state = 2 AND host <> '';
CREATE INDEX alloc_lease_end ON {schema}.alloc_lease (pool_id, end_us, epoch) WHERE state = 3;
-- What ended never changes again, so that this is no index of what changes often.
CREATE INDEX alloc_lease_ended_rev ON {schema}.alloc_lease (pool_id, rev) WHERE state NOT IN (1, 2);

CREATE TABLE {schema}.alloc_ticket (
	seq bigint NOT NULL CHECK (seq > 0),
	pool_id bigint NOT NULL,
	attempt text COLLATE "C" NOT NULL,
	gkey bytea NOT NULL,
	units bigint NOT NULL CHECK (units > 0),
	asked_ttl_us bigint NOT NULL DEFAULT 0,
	asked_max_us bigint NOT NULL DEFAULT 0,
	owner bigint NOT NULL DEFAULT 0,
	labels text NOT NULL DEFAULT '', -- a JSON object
	incarnation bytea NOT NULL CHECK (length(incarnation) = 16),
	host text NOT NULL DEFAULT '',
	boot text NOT NULL DEFAULT '',
	pidns text NOT NULL DEFAULT '',
	pid bigint NOT NULL DEFAULT 0,
	pid_start bigint NOT NULL DEFAULT 0,
	deadline_us bigint NOT NULL DEFAULT 0,
	rev bigint NOT NULL DEFAULT 0,
	PRIMARY KEY (seq, pool_id)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX alloc_ticket_attempt ON {schema}.alloc_ticket (attempt, pool_id);
CREATE INDEX alloc_ticket_queue ON {schema}.alloc_ticket (pool_id, gkey, seq);
CREATE INDEX alloc_ticket_deadline ON {schema}.alloc_ticket (pool_id, deadline_us, seq);
