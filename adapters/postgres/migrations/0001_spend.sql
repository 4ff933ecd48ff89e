-- Money is in the smallest steps of the ledger's unit, times are Unix microseconds in UTC.
-- Columns that have a DEFAULT are left out where they are zero. What a number stands for (kind, state, mode …) is in the documentation of package spendlimit, in the order of its constants.

-- Ids are taken in blocks.
CREATE SEQUENCE {schema}.spend_ids INCREMENT BY 1000;

CREATE TABLE {schema}.spend_ledger (
	id bigint PRIMARY KEY,
	name text COLLATE "C" NOT NULL UNIQUE,
	unit text NOT NULL DEFAULT '',
	scale bigint NOT NULL DEFAULT 0 CHECK (scale BETWEEN 0 AND 12)
);

CREATE TABLE {schema}.spend_account (
	id bigint PRIMARY KEY,
	ledger_id bigint NOT NULL REFERENCES {schema}.spend_ledger,
	name text COLLATE "C" NOT NULL,
	seq bigint NOT NULL DEFAULT 0 CHECK (seq >= 0), -- of its last entry
	last_us bigint NOT NULL DEFAULT 0,
	pruned bigint NOT NULL DEFAULT 0 CHECK (pruned BETWEEN 0 AND seq),
	UNIQUE (name, ledger_id)
) WITH (fillfactor = 50);

-- One row for each generation of a limit: one that is removed and made again is another.
CREATE TABLE {schema}.spend_limit (
	id bigint PRIMARY KEY,
	account_id bigint NOT NULL REFERENCES {schema}.spend_account,
	name text COLLATE "C" NOT NULL,
	gen bigint NOT NULL CHECK (gen > 0),
	kind bigint NOT NULL DEFAULT 0,
	week_start bigint NOT NULL DEFAULT 0 CHECK (week_start BETWEEN 0 AND 6),
	anchor bigint NOT NULL DEFAULT 0 CHECK (anchor BETWEEN 0 AND 28),
	zone text NOT NULL DEFAULT '',
	amount bigint NOT NULL DEFAULT 0 CHECK (amount >= 0),
	mode bigint NOT NULL DEFAULT 0,
	on_unpriced bigint NOT NULL DEFAULT 0,
	carry_holds boolean NOT NULL DEFAULT false,
	carry_unused bigint NOT NULL DEFAULT 0 CHECK (carry_unused >= 0),
	thresholds text NOT NULL DEFAULT '',
	raise_by bigint NOT NULL DEFAULT 0 CHECK (raise_by >= 0),
	raise_until_us bigint,
	rev bigint NOT NULL DEFAULT 0,
	print text NOT NULL DEFAULT '',
	prev text NOT NULL DEFAULT '',
	since_us bigint NOT NULL DEFAULT 0,
	pin_us bigint NOT NULL DEFAULT 0,
	held_all bigint NOT NULL DEFAULT 0 CHECK (held_all >= 0),
	removed boolean NOT NULL DEFAULT false,
	UNIQUE (account_id, name, gen)
) WITH (fillfactor = 50);

CREATE TABLE {schema}.spend_period (
	id bigint PRIMARY KEY,
	limit_id bigint NOT NULL REFERENCES {schema}.spend_limit,
	start_us bigint NOT NULL DEFAULT 0,
	end_us bigint NOT NULL DEFAULT 0 CHECK (end_us > start_us),
	label text NOT NULL DEFAULT '',
	mode bigint NOT NULL DEFAULT 0,
	in_force bigint NOT NULL DEFAULT 0,
	raised bigint NOT NULL DEFAULT 0 CHECK (raised >= 0),
	raised_until_us bigint NOT NULL DEFAULT 0,
	spent bigint NOT NULL DEFAULT 0 CHECK (spent >= 0),
	held bigint NOT NULL DEFAULT 0 CHECK (held >= 0),
	overrun bigint NOT NULL DEFAULT 0 CHECK (overrun >= 0),
	cut bigint NOT NULL DEFAULT 0 CHECK (cut >= 0),
	carry_in bigint NOT NULL DEFAULT 0 CHECK (carry_in >= 0),
	carry_out bigint NOT NULL DEFAULT 0 CHECK (carry_out >= 0),
	assumed bigint NOT NULL DEFAULT 0 CHECK (assumed >= 0),
	unpriced bigint NOT NULL DEFAULT 0 CHECK (unpriced >= 0),
	fired text NOT NULL DEFAULT '',
	base_spent bigint NOT NULL DEFAULT 0,
	base_held bigint NOT NULL DEFAULT 0,
	base_overrun bigint NOT NULL DEFAULT 0,
	UNIQUE (limit_id, start_us)
) WITH (fillfactor = 50);

-- No foreign keys from here on: each would be looked up for every row of the hot tables. For the same reason what a row always has
-- a few of is a JSON array in it; the views spend_line and spend_posting have a row for each.
CREATE TABLE {schema}.spend_hold (
	id bigint PRIMARY KEY,
	ledger_id bigint NOT NULL,
	key text COLLATE "C" NOT NULL,
	parent_id bigint,
	owners text NOT NULL, -- ids of the accounts that pay: its own, and its ancestors'
	accounts text NOT NULL, -- its own
	amount bigint NOT NULL DEFAULT 0 CHECK (amount >= 0),
	min bigint NOT NULL DEFAULT 0 CHECK (min >= 0),
	rest boolean NOT NULL DEFAULT false,
	free boolean NOT NULL DEFAULT false,
	split_group text NOT NULL DEFAULT '',
	slots bigint NOT NULL DEFAULT 0 CHECK (slots >= 0),
	ttl_us bigint NOT NULL DEFAULT 0,
	labels text NOT NULL DEFAULT '',
	price text NOT NULL DEFAULT '',
	state bigint NOT NULL CHECK (state > 0),
	granted bigint NOT NULL DEFAULT 0 CHECK (granted >= 0),
	grown bigint NOT NULL DEFAULT 0 CHECK (grown >= 0),
	received bigint NOT NULL DEFAULT 0 CHECK (received >= 0),
	own bigint NOT NULL DEFAULT 0 CHECK (own >= 0),
	recorded bigint NOT NULL DEFAULT 0 CHECK (recorded >= 0),
	carved bigint NOT NULL DEFAULT 0 CHECK (carved >= 0),
	covered bigint NOT NULL DEFAULT 0,
	returned bigint NOT NULL DEFAULT 0 CHECK (returned >= 0),
	assumed bigint NOT NULL DEFAULT 0 CHECK (assumed >= 0),
	end_own bigint NOT NULL DEFAULT 0 CHECK (end_own >= 0),
	end_charge bigint NOT NULL DEFAULT 0 CHECK (end_charge >= 0),
	open_usages bigint NOT NULL DEFAULT 0 CHECK (open_usages >= 0),
	marks bigint NOT NULL DEFAULT 0 CHECK (marks >= 0),
	children bigint NOT NULL DEFAULT 0 CHECK (children >= 0),
	depth bigint NOT NULL CHECK (depth > 0),
	expires_us bigint NOT NULL DEFAULT 0,
	born_us bigint NOT NULL DEFAULT 0,
	ended_us bigint NOT NULL DEFAULT 0,
	seq bigint NOT NULL DEFAULT 0,
	bound_account text NOT NULL DEFAULT '',
	bound_limit text NOT NULL DEFAULT '',
	bound_parent text NOT NULL DEFAULT '',
	receipt text NOT NULL DEFAULT '', -- of the call that ended it
	part_us bigint NOT NULL DEFAULT 0,
	part_left bigint NOT NULL DEFAULT 0 CHECK (part_left >= 0),
	periods text NOT NULL, -- ids of those that its first part counts against
	more_parts text NOT NULL DEFAULT '',
	assumes text NOT NULL DEFAULT '',
	UNIQUE (key, ledger_id) -- so that no plan can read a whole ledger to find some keys
) WITH (fillfactor = 80);
CREATE INDEX spend_hold_parent ON {schema}.spend_hold (parent_id) WHERE parent_id IS NOT NULL;

-- The accounts that pay for a hold, its ancestors' included.
CREATE TABLE {schema}.spend_owner (
	hold_id bigint NOT NULL,
	account_id bigint NOT NULL,
	live boolean NOT NULL DEFAULT false,
	expires_us bigint NOT NULL DEFAULT 0,
	split_group text NOT NULL DEFAULT '',
	PRIMARY KEY (hold_id, account_id)
) WITH (fillfactor = 80);
CREATE INDEX spend_owner_account ON {schema}.spend_owner (account_id, hold_id);
CREATE INDEX spend_owner_expiry ON {schema}.spend_owner (account_id, expires_us) WHERE live;
CREATE INDEX spend_owner_group ON {schema}.spend_owner (split_group, account_id) WHERE live AND split_group <> '';

CREATE TABLE {schema}.spend_usage (
	ledger_id bigint NOT NULL,
	hold_id bigint NOT NULL, -- 0: of no hold
	id text COLLATE "C" NOT NULL,
	kind bigint NOT NULL DEFAULT 0,
	content bytea NOT NULL CHECK (length(content) = 32),
	cost bigint NOT NULL DEFAULT 0,
	unpriced boolean NOT NULL DEFAULT false,
	receipt text NOT NULL DEFAULT '',
	PRIMARY KEY (hold_id, id, ledger_id) -- lists are surely looked up by the first column of an index alone
);

CREATE TABLE {schema}.spend_entry (
	account_id bigint NOT NULL,
	seq bigint NOT NULL CHECK (seq > 0),
	at_us bigint NOT NULL DEFAULT 0,
	kind bigint NOT NULL DEFAULT 0,
	ref text NOT NULL DEFAULT '',
	hold text NOT NULL DEFAULT '',
	reason text NOT NULL DEFAULT '',
	source bigint NOT NULL DEFAULT 0,
	labels text NOT NULL DEFAULT '',
	postings text NOT NULL, -- what it changed: [id of a period, counts_us, spent, held, overrun] each; see spend_posting
	PRIMARY KEY (account_id, seq)
);
