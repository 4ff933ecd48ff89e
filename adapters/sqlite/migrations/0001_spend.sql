-- Money is in the smallest steps of the ledger's unit, times are Unix microseconds in UTC.
-- What a number stands for (kind, state, mode …) is in the documentation of package spendlimit, in the order of its constants.

CREATE TABLE stint_spend_ledger (
	id INTEGER PRIMARY KEY,
	name TEXT NOT NULL UNIQUE,
	unit TEXT NOT NULL,
	scale INTEGER NOT NULL CHECK (scale BETWEEN 0 AND 12)
) STRICT;

CREATE TABLE stint_spend_account (
	id INTEGER PRIMARY KEY,
	ledger_id INTEGER NOT NULL REFERENCES stint_spend_ledger,
	name TEXT NOT NULL,
	seq INTEGER NOT NULL CHECK (seq >= 0), -- of its last entry
	last_us INTEGER NOT NULL,
	pruned INTEGER NOT NULL CHECK (pruned BETWEEN 0 AND seq),
	UNIQUE (ledger_id, name)
) STRICT;

-- One row for each generation of a limit: one that is removed and made again is another.
CREATE TABLE stint_spend_limit (
	id INTEGER PRIMARY KEY,
	account_id INTEGER NOT NULL REFERENCES stint_spend_account,
	name TEXT NOT NULL,
	gen INTEGER NOT NULL CHECK (gen > 0),
	kind INTEGER NOT NULL,
	week_start INTEGER NOT NULL CHECK (week_start BETWEEN 0 AND 6),
	anchor INTEGER NOT NULL CHECK (anchor BETWEEN 0 AND 28),
	zone TEXT NOT NULL,
	amount INTEGER NOT NULL CHECK (amount >= 0),
	mode INTEGER NOT NULL,
	on_unpriced INTEGER NOT NULL,
	carry_holds INTEGER NOT NULL CHECK (carry_holds IN (0, 1)),
	carry_unused INTEGER NOT NULL CHECK (carry_unused >= 0),
	thresholds TEXT NOT NULL,
	raise_by INTEGER NOT NULL CHECK (raise_by >= 0),
	raise_until_us INTEGER,
	rev INTEGER NOT NULL,
	print TEXT NOT NULL,
	prev TEXT NOT NULL,
	since_us INTEGER NOT NULL,
	pin_us INTEGER NOT NULL,
	held_all INTEGER NOT NULL CHECK (held_all >= 0),
	removed INTEGER NOT NULL CHECK (removed IN (0, 1)),
	UNIQUE (account_id, name, gen)
) STRICT;

CREATE TABLE stint_spend_period (
	id INTEGER PRIMARY KEY,
	limit_id INTEGER NOT NULL REFERENCES stint_spend_limit,
	start_us INTEGER NOT NULL,
	end_us INTEGER NOT NULL CHECK (end_us > start_us),
	label TEXT NOT NULL,
	mode INTEGER NOT NULL,
	in_force INTEGER NOT NULL,
	raised INTEGER NOT NULL CHECK (raised >= 0),
	raised_until_us INTEGER NOT NULL,
	spent INTEGER NOT NULL CHECK (spent >= 0),
	held INTEGER NOT NULL CHECK (held >= 0),
	overrun INTEGER NOT NULL CHECK (overrun >= 0),
	cut INTEGER NOT NULL CHECK (cut >= 0),
	carry_in INTEGER NOT NULL CHECK (carry_in >= 0),
	carry_out INTEGER NOT NULL CHECK (carry_out >= 0),
	assumed INTEGER NOT NULL CHECK (assumed >= 0),
	unpriced INTEGER NOT NULL CHECK (unpriced >= 0),
	fired TEXT NOT NULL,
	base_spent INTEGER NOT NULL,
	base_held INTEGER NOT NULL,
	base_overrun INTEGER NOT NULL,
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
	amount INTEGER NOT NULL CHECK (amount >= 0),
	min INTEGER NOT NULL CHECK (min >= 0),
	rest INTEGER NOT NULL CHECK (rest IN (0, 1)),
	free INTEGER NOT NULL CHECK (free IN (0, 1)),
	split_group TEXT NOT NULL,
	slots INTEGER NOT NULL CHECK (slots >= 0),
	ttl_us INTEGER NOT NULL,
	labels TEXT NOT NULL,
	price TEXT NOT NULL,
	state INTEGER NOT NULL CHECK (state > 0),
	granted INTEGER NOT NULL CHECK (granted >= 0),
	grown INTEGER NOT NULL CHECK (grown >= 0),
	received INTEGER NOT NULL CHECK (received >= 0),
	own INTEGER NOT NULL CHECK (own >= 0),
	recorded INTEGER NOT NULL CHECK (recorded >= 0),
	carved INTEGER NOT NULL CHECK (carved >= 0),
	covered INTEGER NOT NULL,
	returned INTEGER NOT NULL CHECK (returned >= 0),
	assumed INTEGER NOT NULL CHECK (assumed >= 0),
	end_own INTEGER NOT NULL CHECK (end_own >= 0),
	end_charge INTEGER NOT NULL CHECK (end_charge >= 0),
	open_usages INTEGER NOT NULL CHECK (open_usages >= 0),
	marks INTEGER NOT NULL CHECK (marks >= 0),
	children INTEGER NOT NULL CHECK (children >= 0),
	depth INTEGER NOT NULL CHECK (depth > 0),
	expires_us INTEGER NOT NULL,
	born_us INTEGER NOT NULL,
	ended_us INTEGER NOT NULL,
	seq INTEGER NOT NULL,
	bound_account TEXT NOT NULL,
	bound_limit TEXT NOT NULL,
	bound_parent TEXT NOT NULL,
	receipt TEXT NOT NULL, -- of the call that ended it
	part_us INTEGER NOT NULL,
	part_left INTEGER NOT NULL CHECK (part_left >= 0),
	periods TEXT NOT NULL, -- ids of those that its first part counts against
	more_parts TEXT NOT NULL,
	assumes TEXT NOT NULL,
	UNIQUE (ledger_id, key)
) STRICT;
CREATE INDEX stint_spend_hold_parent ON stint_spend_hold (parent_id) WHERE parent_id IS NOT NULL;

-- The accounts that pay for a hold, its ancestors' included.
CREATE TABLE stint_spend_owner (
	hold_id INTEGER NOT NULL,
	account_id INTEGER NOT NULL,
	live INTEGER NOT NULL CHECK (live IN (0, 1)),
	expires_us INTEGER NOT NULL,
	split_group TEXT NOT NULL,
	PRIMARY KEY (account_id, hold_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX stint_spend_owner_expiry ON stint_spend_owner (account_id, expires_us) WHERE live;
CREATE INDEX stint_spend_owner_group ON stint_spend_owner (account_id, split_group) WHERE live AND split_group <> '';

CREATE TABLE stint_spend_usage (
	ledger_id INTEGER NOT NULL,
	hold_id INTEGER NOT NULL, -- 0: of no hold
	id TEXT NOT NULL,
	kind INTEGER NOT NULL,
	content BLOB NOT NULL CHECK (length(content) = 32),
	cost INTEGER NOT NULL,
	unpriced INTEGER NOT NULL CHECK (unpriced IN (0, 1)),
	receipt TEXT NOT NULL,
	PRIMARY KEY (ledger_id, hold_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE stint_spend_entry (
	account_id INTEGER NOT NULL,
	seq INTEGER NOT NULL CHECK (seq > 0),
	at_us INTEGER NOT NULL,
	kind INTEGER NOT NULL,
	ref TEXT NOT NULL,
	hold TEXT NOT NULL,
	reason TEXT NOT NULL,
	source INTEGER NOT NULL,
	labels TEXT NOT NULL,
	postings TEXT NOT NULL, -- what it changed: [id of a period, counts_us, spent, held, overrun] each; see stint_spend_posting
	PRIMARY KEY (account_id, seq)
) STRICT, WITHOUT ROWID;
