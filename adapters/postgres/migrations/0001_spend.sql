-- Money is in the smallest steps of the ledger's unit, times are Unix microseconds in UTC.
-- What a number stands for (kind, state, mode …) is in the documentation of package spendlimit, in the order of its constants.

-- Ids are taken in blocks.
CREATE SEQUENCE {schema}.spend_ids INCREMENT BY 1000;

CREATE TABLE {schema}.spend_ledger (
	id bigint PRIMARY KEY,
	name text COLLATE "C" NOT NULL UNIQUE,
	unit text NOT NULL,
	scale bigint NOT NULL CHECK (scale BETWEEN 0 AND 12)
);

CREATE TABLE {schema}.spend_account (
	id bigint PRIMARY KEY,
	ledger_id bigint NOT NULL REFERENCES {schema}.spend_ledger,
	name text COLLATE "C" NOT NULL,
	seq bigint NOT NULL CHECK (seq >= 0), -- of its last entry
	last_us bigint NOT NULL,
	pruned bigint NOT NULL CHECK (pruned BETWEEN 0 AND seq),
	UNIQUE (name, ledger_id)
) WITH (fillfactor = 50);

-- One row for each generation of a limit: one that is removed and made again is another.
CREATE TABLE {schema}.spend_limit (
	id bigint PRIMARY KEY,
	account_id bigint NOT NULL REFERENCES {schema}.spend_account,
	name text COLLATE "C" NOT NULL,
	gen bigint NOT NULL CHECK (gen > 0),
	kind bigint NOT NULL,
	week_start bigint NOT NULL CHECK (week_start BETWEEN 0 AND 6),
	anchor bigint NOT NULL CHECK (anchor BETWEEN 0 AND 28),
	zone text NOT NULL,
	amount bigint NOT NULL CHECK (amount >= 0),
	mode bigint NOT NULL,
	on_unpriced bigint NOT NULL,
	carry_holds boolean NOT NULL,
	carry_unused bigint NOT NULL CHECK (carry_unused >= 0),
	thresholds text NOT NULL,
	raise_by bigint NOT NULL CHECK (raise_by >= 0),
	raise_until_us bigint,
	rev bigint NOT NULL,
	print text NOT NULL,
	prev text NOT NULL,
	since_us bigint NOT NULL,
	pin_us bigint NOT NULL,
	held_all bigint NOT NULL CHECK (held_all >= 0),
	removed boolean NOT NULL,
	UNIQUE (account_id, name, gen)
) WITH (fillfactor = 50);

CREATE TABLE {schema}.spend_period (
	id bigint PRIMARY KEY,
	limit_id bigint NOT NULL REFERENCES {schema}.spend_limit,
	start_us bigint NOT NULL,
	end_us bigint NOT NULL CHECK (end_us > start_us),
	label text NOT NULL,
	mode bigint NOT NULL,
	in_force bigint NOT NULL,
	raised bigint NOT NULL CHECK (raised >= 0),
	raised_until_us bigint NOT NULL,
	spent bigint NOT NULL CHECK (spent >= 0),
	held bigint NOT NULL CHECK (held >= 0),
	overrun bigint NOT NULL CHECK (overrun >= 0),
	cut bigint NOT NULL CHECK (cut >= 0),
	carry_in bigint NOT NULL CHECK (carry_in >= 0),
	carry_out bigint NOT NULL CHECK (carry_out >= 0),
	assumed bigint NOT NULL CHECK (assumed >= 0),
	unpriced bigint NOT NULL CHECK (unpriced >= 0),
	fired text NOT NULL,
	base_spent bigint NOT NULL,
	base_held bigint NOT NULL,
	base_overrun bigint NOT NULL,
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
	amount bigint NOT NULL CHECK (amount >= 0),
	min bigint NOT NULL CHECK (min >= 0),
	rest boolean NOT NULL,
	free boolean NOT NULL,
	split_group text NOT NULL,
	slots bigint NOT NULL CHECK (slots >= 0),
	ttl_us bigint NOT NULL,
	labels text NOT NULL,
	price text NOT NULL,
	state bigint NOT NULL CHECK (state > 0),
	granted bigint NOT NULL CHECK (granted >= 0),
	grown bigint NOT NULL CHECK (grown >= 0),
	received bigint NOT NULL CHECK (received >= 0),
	own bigint NOT NULL CHECK (own >= 0),
	recorded bigint NOT NULL CHECK (recorded >= 0),
	carved bigint NOT NULL CHECK (carved >= 0),
	covered bigint NOT NULL,
	returned bigint NOT NULL CHECK (returned >= 0),
	assumed bigint NOT NULL CHECK (assumed >= 0),
	end_own bigint NOT NULL CHECK (end_own >= 0),
	end_charge bigint NOT NULL CHECK (end_charge >= 0),
	open_usages bigint NOT NULL CHECK (open_usages >= 0),
	marks bigint NOT NULL CHECK (marks >= 0),
	children bigint NOT NULL CHECK (children >= 0),
	depth bigint NOT NULL CHECK (depth > 0),
	expires_us bigint NOT NULL,
	born_us bigint NOT NULL,
	ended_us bigint NOT NULL,
	seq bigint NOT NULL,
	bound_account text NOT NULL,
	bound_limit text NOT NULL,
	bound_parent text NOT NULL,
	receipt text NOT NULL, -- of the call that ended it
	part_us bigint NOT NULL,
	part_left bigint NOT NULL CHECK (part_left >= 0),
	periods text NOT NULL, -- ids of those that its first part counts against
	more_parts text NOT NULL,
	assumes text NOT NULL,
	UNIQUE (key, ledger_id) -- so that no plan can read a whole ledger to find some keys
) WITH (fillfactor = 80);
CREATE INDEX spend_hold_parent ON {schema}.spend_hold (parent_id) WHERE parent_id IS NOT NULL;

-- The accounts that pay for a hold, its ancestors' included.
CREATE TABLE {schema}.spend_owner (
	hold_id bigint NOT NULL,
	account_id bigint NOT NULL,
	live boolean NOT NULL,
	expires_us bigint NOT NULL,
	split_group text NOT NULL,
	PRIMARY KEY (hold_id, account_id)
) WITH (fillfactor = 80);
CREATE INDEX spend_owner_account ON {schema}.spend_owner (account_id, hold_id);
CREATE INDEX spend_owner_expiry ON {schema}.spend_owner (account_id, expires_us) WHERE live;
CREATE INDEX spend_owner_group ON {schema}.spend_owner (account_id, split_group) WHERE live AND split_group <> '';

CREATE TABLE {schema}.spend_usage (
	ledger_id bigint NOT NULL,
	hold_id bigint NOT NULL, -- 0: of no hold
	id text COLLATE "C" NOT NULL,
	kind bigint NOT NULL,
	content bytea NOT NULL CHECK (length(content) = 32),
	cost bigint NOT NULL,
	unpriced boolean NOT NULL,
	receipt text NOT NULL,
	PRIMARY KEY (ledger_id, hold_id, id)
);

CREATE TABLE {schema}.spend_entry (
	account_id bigint NOT NULL,
	seq bigint NOT NULL CHECK (seq > 0),
	at_us bigint NOT NULL,
	kind bigint NOT NULL,
	ref text NOT NULL,
	hold text NOT NULL,
	reason text NOT NULL,
	source bigint NOT NULL,
	labels text NOT NULL,
	postings text NOT NULL, -- what it changed: [id of a period, counts_us, spent, held, overrun] each; see spend_posting
	PRIMARY KEY (account_id, seq)
);
