-- Money is in the smallest steps of the ledger's unit, times are Unix microseconds in UTC.
-- Columns that have a DEFAULT are left out where they are zero. What a number stands for (kind, state, mode …) is in the documentation of package spendlimit, in the order of its constants.

CREATE TABLE stint_spend_ledger (
	id INTEGER PRIMARY KEY,
	name TEXT NOT NULL UNIQUE,
	unit TEXT NOT NULL DEFAULT '',
	scale INTEGER NOT NULL DEFAULT 0 CHECK (scale BETWEEN 0 AND 12)
) STRICT;

CREATE TABLE stint_spend_account (
	id INTEGER PRIMARY KEY,
	ledger_id INTEGER NOT NULL REFERENCES stint_spend_ledger,
	name TEXT NOT NULL,
	seq INTEGER NOT NULL DEFAULT 0 CHECK (seq >= 0), -- of its last entry
	last_us INTEGER NOT NULL DEFAULT 0,
	pruned INTEGER NOT NULL DEFAULT 0 CHECK (pruned BETWEEN 0 AND seq),
	UNIQUE (ledger_id, name)
) STRICT;

-- One row for each generation of a limit: one that is removed and made again is another.
CREATE TABLE stint_spend_limit (
	id INTEGER PRIMARY KEY,
	account_id INTEGER NOT NULL REFERENCES stint_spend_account,
	name TEXT NOT NULL,
	gen INTEGER NOT NULL CHECK (gen > 0),
	kind INTEGER NOT NULL DEFAULT 0,
	week_start INTEGER NOT NULL DEFAULT 0 CHECK (week_start BETWEEN 0 AND 6),
	anchor INTEGER NOT NULL DEFAULT 0 CHECK (anchor BETWEEN 0 AND 28),
	zone TEXT NOT NULL DEFAULT '',
	amount INTEGER NOT NULL DEFAULT 0 CHECK (amount >= 0),
	mode INTEGER NOT NULL DEFAULT 0,
	on_unpriced INTEGER NOT NULL DEFAULT 0,
	carry_holds INTEGER NOT NULL DEFAULT 0 CHECK (carry_holds IN (0, 1)),
	carry_unused INTEGER NOT NULL DEFAULT 0 CHECK (carry_unused >= 0),
	thresholds TEXT NOT NULL DEFAULT '',
	raise_by INTEGER NOT NULL DEFAULT 0 CHECK (raise_by >= 0),
	raise_until_us INTEGER,
	rev INTEGER NOT NULL DEFAULT 0,
	print TEXT NOT NULL DEFAULT '',
	prev TEXT NOT NULL DEFAULT '',
	since_us INTEGER NOT NULL DEFAULT 0,
	pin_us INTEGER NOT NULL DEFAULT 0,
	held_all INTEGER NOT NULL DEFAULT 0 CHECK (held_all >= 0),
	removed INTEGER NOT NULL DEFAULT 0 CHECK (removed IN (0, 1)),
	UNIQUE (account_id, name, gen)
) STRICT;

CREATE TABLE stint_spend_period (
	id INTEGER PRIMARY KEY,
	limit_id INTEGER NOT NULL REFERENCES stint_spend_limit,
	start_us INTEGER NOT NULL DEFAULT 0,
	end_us INTEGER NOT NULL DEFAULT 0 CHECK (end_us > start_us),
	label TEXT NOT NULL DEFAULT '',
	mode INTEGER NOT NULL DEFAULT 0,
	in_force INTEGER NOT NULL DEFAULT 0,
	raised INTEGER NOT NULL DEFAULT 0 CHECK (raised >= 0),
	raised_until_us INTEGER NOT NULL DEFAULT 0,
	spent INTEGER NOT NULL DEFAULT 0 CHECK (spent >= 0),
	held INTEGER NOT NULL DEFAULT 0 CHECK (held >= 0),
	overrun INTEGER NOT NULL DEFAULT 0 CHECK (overrun >= 0),
	cut INTEGER NOT NULL DEFAULT 0 CHECK (cut >= 0),
	carry_in INTEGER NOT NULL DEFAULT 0 CHECK (carry_in >= 0),
	carry_out INTEGER NOT NULL DEFAULT 0 CHECK (carry_out >= 0),
	assumed INTEGER NOT NULL DEFAULT 0 CHECK (assumed >= 0),
	unpriced INTEGER NOT NULL DEFAULT 0 CHECK (unpriced >= 0),
	fired TEXT NOT NULL DEFAULT '',
	base_spent INTEGER NOT NULL DEFAULT 0,
	base_held INTEGER NOT NULL DEFAULT 0,
	base_overrun INTEGER NOT NULL DEFAULT 0,
	UNIQUE (limit_id, start_us)
) STRICT;

-- No foreign keys from here on: each would be looked up for every row of the hot tables. For the same reason what a row always has
-- a few of is a JSON array in it; the views stint_spend_line and stint_spend_posting have a row for each.
CREATE TABLE stint_spend_hold (
	id INTEGER PRIMARY KEY,
	ledger_id INTEGER NOT NULL,
	key TEXT NOT NULL,
	parent_id INTEGER,
	owners TEXT NOT NULL, -- ids of the accounts that pay: its own, and its ancestors'
	accounts TEXT NOT NULL, -- its own
	amount INTEGER NOT NULL DEFAULT 0 CHECK (amount >= 0),
	min INTEGER NOT NULL DEFAULT 0 CHECK (min >= 0),
	rest INTEGER NOT NULL DEFAULT 0 CHECK (rest IN (0, 1)),
	free INTEGER NOT NULL DEFAULT 0 CHECK (free IN (0, 1)),
	split_group TEXT NOT NULL DEFAULT '',
	slots INTEGER NOT NULL DEFAULT 0 CHECK (slots >= 0),
	ttl_us INTEGER NOT NULL DEFAULT 0,
	labels TEXT NOT NULL DEFAULT '',
	price TEXT NOT NULL DEFAULT '',
	state INTEGER NOT NULL CHECK (state > 0),
	granted INTEGER NOT NULL DEFAULT 0 CHECK (granted >= 0),
	grown INTEGER NOT NULL DEFAULT 0 CHECK (grown >= 0),
	received INTEGER NOT NULL DEFAULT 0 CHECK (received >= 0),
	own INTEGER NOT NULL DEFAULT 0 CHECK (own >= 0),
	recorded INTEGER NOT NULL DEFAULT 0 CHECK (recorded >= 0),
	carved INTEGER NOT NULL DEFAULT 0 CHECK (carved >= 0),
	covered INTEGER NOT NULL DEFAULT 0,
	returned INTEGER NOT NULL DEFAULT 0 CHECK (returned >= 0),
	assumed INTEGER NOT NULL DEFAULT 0 CHECK (assumed >= 0),
	end_own INTEGER NOT NULL DEFAULT 0 CHECK (end_own >= 0),
	end_charge INTEGER NOT NULL DEFAULT 0 CHECK (end_charge >= 0),
	open_usages INTEGER NOT NULL DEFAULT 0 CHECK (open_usages >= 0),
	marks INTEGER NOT NULL DEFAULT 0 CHECK (marks >= 0),
	children INTEGER NOT NULL DEFAULT 0 CHECK (children >= 0),
	depth INTEGER NOT NULL CHECK (depth > 0),
	expires_us INTEGER NOT NULL DEFAULT 0,
	born_us INTEGER NOT NULL DEFAULT 0,
	ended_us INTEGER NOT NULL DEFAULT 0,
	seq INTEGER NOT NULL DEFAULT 0,
	bound_account TEXT NOT NULL DEFAULT '',
	bound_limit TEXT NOT NULL DEFAULT '',
	bound_parent TEXT NOT NULL DEFAULT '',
	receipt TEXT NOT NULL DEFAULT '', -- of the call that ended it
	part_us INTEGER NOT NULL DEFAULT 0,
	part_left INTEGER NOT NULL DEFAULT 0 CHECK (part_left >= 0),
	periods TEXT NOT NULL, -- ids of those that its first part counts against
	more_parts TEXT NOT NULL DEFAULT '',
	assumes TEXT NOT NULL DEFAULT '',
	UNIQUE (ledger_id, key)
) STRICT;
CREATE INDEX stint_spend_hold_parent ON stint_spend_hold (parent_id) WHERE parent_id IS NOT NULL;

-- The accounts that pay for a hold, its ancestors' included.
CREATE TABLE stint_spend_owner (
	hold_id INTEGER NOT NULL,
	account_id INTEGER NOT NULL,
	live INTEGER NOT NULL DEFAULT 0 CHECK (live IN (0, 1)),
	expires_us INTEGER NOT NULL DEFAULT 0,
	split_group TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (account_id, hold_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX stint_spend_owner_expiry ON stint_spend_owner (account_id, expires_us) WHERE live;
CREATE INDEX stint_spend_owner_group ON stint_spend_owner (account_id, split_group, live) WHERE split_group <> '';

CREATE TABLE stint_spend_usage (
	ledger_id INTEGER NOT NULL,
	hold_id INTEGER NOT NULL, -- 0: of no hold
	id TEXT NOT NULL,
	kind INTEGER NOT NULL DEFAULT 0,
	content BLOB NOT NULL CHECK (length(content) = 32),
	cost INTEGER NOT NULL DEFAULT 0,
	unpriced INTEGER NOT NULL DEFAULT 0 CHECK (unpriced IN (0, 1)),
	receipt TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (ledger_id, hold_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE stint_spend_entry (
	account_id INTEGER NOT NULL,
	seq INTEGER NOT NULL CHECK (seq > 0),
	at_us INTEGER NOT NULL DEFAULT 0,
	kind INTEGER NOT NULL DEFAULT 0,
	ref TEXT NOT NULL DEFAULT '',
	hold TEXT NOT NULL DEFAULT '',
	reason TEXT NOT NULL DEFAULT '',
	source INTEGER NOT NULL DEFAULT 0,
	labels TEXT NOT NULL DEFAULT '',
	postings TEXT NOT NULL, -- what it changed: [id of a period, counts_us, spent, held, overrun] each; see stint_spend_posting
	PRIMARY KEY (account_id, seq)
) STRICT, WITHOUT ROWID;
