CREATE TABLE stint_migration (
	version INTEGER PRIMARY KEY,
	name TEXT NOT NULL,
	checksum TEXT NOT NULL
) STRICT;
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
INSERT INTO stint_migration VALUES (1, '0001_spend.sql', 'a09f8347a02cf019ce0e10ab77dd0e65943277e24cb135b62a6f6c854597ce97');
INSERT INTO stint_spend_ledger VALUES (1, 'default', 'USD', 9);
INSERT INTO stint_spend_account VALUES (1, 1, 'acme', 8, 1777636800000000, 0);
INSERT INTO stint_spend_limit VALUES (1, 1, 'day', 1, 1, 0, 1, 'UTC', 10000000000, 0, 0, 0, 0, '[{"Percent":50,"Of":0}]', 0, NULL, 1, '91eec842674c525826bbb7064a0c0673b8bdb79e08d9acc98573f7ab9ce270d9', '', 1777636800000000, -62135596800000000, 0, 0);
INSERT INTO stint_spend_period VALUES (1, 1, 1777593600000000, 1777680000000000, '2026-05-01', 0, 10000000000, 0, 0, 1750000000, 4000000000, 0, 0, 0, 0, 0, 0, '[{"Percent":50,"Of":0}]', 0, 0, 0);
INSERT INTO stint_spend_hold VALUES (1, 1, 'open', NULL, '[1]', '[1]', 2000000000, 0, 0, 0, '', 0, 3600000000, '[{"Key":"run","Value":"7"}]', '', 1, 2000000000, 0, 0, 2000000000, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1777640400000000, 1777636800000000, 0, 2, '', '', '', '', 1777636800000000, 2000000000, '[1]', '', '');
INSERT INTO stint_spend_hold VALUES (2, 1, 'dispatched', NULL, '[1]', '[1]', 3000000000, 0, 0, 0, '', 0, 3600000000, '[{"Key":"run","Value":"7"}]', '', 2, 3000000000, 0, 0, 2000000000, 1000000000, 0, 1000000000, 0, 0, 0, 0, 0, 0, 0, 1, 1777640400000000, 1777636800000000, 0, 3, '', '', '', '', 1777636800000000, 2000000000, '[1]', '', '');
INSERT INTO stint_spend_hold VALUES (3, 1, 'settled', NULL, '[1]', '[1]', 1000000000, 0, 0, 0, '', 0, 3600000000, '[{"Key":"run","Value":"7"}]', '', 3, 1000000000, 0, 0, 0, 500000000, 0, 500000000, 500000000, 0, 500000000, 0, 0, 0, 0, 1, 1777640400000000, 1777636800000000, 1777636800000000, 4, '', '', '', '{"cost":500000000,"returned":500000000,"revision":7}', 1777636800000000, 0, '[1]', '', '');
INSERT INTO stint_spend_owner VALUES (1, 1, 1, 1777640400000000, '');
INSERT INTO stint_spend_owner VALUES (2, 1, 1, 1777640400000000, '');
INSERT INTO stint_spend_owner VALUES (3, 1, 0, 1777640400000000, '');
INSERT INTO stint_spend_usage VALUES (1, 0, 'bill', 12, X'F47CD4989989261119E4D8AE9AB7FF38305492DDB75C5CBDC8694D608669FA68', 0, 0, '{"cost":250000000,"revision":8}');
INSERT INTO stint_spend_usage VALUES (1, 2, 'call', 3, X'EB19B19F3A33BE3734E0D9589B531336F9C3FB02F39A3EB56EB8111DAFFA2B11', 1000000000, 0, '{"cost":1000000000,"own":2000000000,"revision":6}');
INSERT INTO stint_spend_entry VALUES (1, 1, 1777636800000000, 14, 'day', '', 'set', 0, '', '[]');
INSERT INTO stint_spend_entry VALUES (1, 2, 1777636800000000, 1, 'open', '', '', 0, '[{"Key":"run","Value":"7"}]', '[[0,1777636800000000,0,2000000000,0],[1,0,0,2000000000,0]]');
INSERT INTO stint_spend_entry VALUES (1, 3, 1777636800000000, 1, 'dispatched', '', '', 0, '[{"Key":"run","Value":"7"}]', '[[0,1777636800000000,0,3000000000,0],[1,0,0,3000000000,0]]');
INSERT INTO stint_spend_entry VALUES (1, 4, 1777636800000000, 1, 'settled', '', '', 0, '[{"Key":"run","Value":"7"}]', '[[0,1777636800000000,0,1000000000,0],[1,0,0,1000000000,0]]');
INSERT INTO stint_spend_entry VALUES (1, 5, 1777636800000000, 2, 'dispatched', '', '', 0, '', '[]');
INSERT INTO stint_spend_entry VALUES (1, 6, 1777636800000000, 3, 'call', 'dispatched', '', 0, '', '[[0,1777636800000000,1000000000,-1000000000,0],[1,0,1000000000,-1000000000,0]]');
INSERT INTO stint_spend_entry VALUES (1, 7, 1777636800000000, 4, 'settled', '', '', 0, '', '[[0,1777636800000000,500000000,-1000000000,0],[1,0,500000000,-1000000000,0]]');
INSERT INTO stint_spend_entry VALUES (1, 8, 1777636800000000, 12, 'bill', '', '', 0, '', '[[0,1777636800000000,250000000,0,0],[1,0,250000000,0,0]]');
