CREATE SCHEMA stint;
CREATE TABLE stint.migration (version bigint PRIMARY KEY, name text NOT NULL, checksum text NOT NULL);
-- Money is in the smallest steps of the ledger's unit, times are Unix microseconds in UTC.
-- Columns that have a DEFAULT are left out where they are zero. What a number stands for (kind, state, mode …) is in the documentation of package spendlimit, in the order of its constants.

-- Ids are taken in blocks.
CREATE SEQUENCE stint.spend_ids INCREMENT BY 1000;

CREATE TABLE stint.spend_ledger (
	id bigint PRIMARY KEY,
	name text COLLATE "C" NOT NULL UNIQUE,
	unit text NOT NULL DEFAULT '',
	scale bigint NOT NULL DEFAULT 0 CHECK (scale BETWEEN 0 AND 12)
);

CREATE TABLE stint.spend_account (
	id bigint PRIMARY KEY,
	ledger_id bigint NOT NULL REFERENCES stint.spend_ledger,
	name text COLLATE "C" NOT NULL,
	seq bigint NOT NULL DEFAULT 0 CHECK (seq >= 0), -- of its last entry
	last_us bigint NOT NULL DEFAULT 0,
	pruned bigint NOT NULL DEFAULT 0 CHECK (pruned BETWEEN 0 AND seq),
	UNIQUE (name, ledger_id)
) WITH (fillfactor = 50);

-- One row for each generation of a limit: one that is removed and made again is another.
CREATE TABLE stint.spend_limit (
	id bigint PRIMARY KEY,
	account_id bigint NOT NULL REFERENCES stint.spend_account,
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

CREATE TABLE stint.spend_period (
	id bigint PRIMARY KEY,
	limit_id bigint NOT NULL REFERENCES stint.spend_limit,
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
CREATE TABLE stint.spend_hold (
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
CREATE INDEX spend_hold_parent ON stint.spend_hold (parent_id) WHERE parent_id IS NOT NULL;

-- The accounts that pay for a hold, its ancestors' included.
CREATE TABLE stint.spend_owner (
	hold_id bigint NOT NULL,
	account_id bigint NOT NULL,
	live boolean NOT NULL DEFAULT false,
	expires_us bigint NOT NULL DEFAULT 0,
	split_group text NOT NULL DEFAULT '',
	PRIMARY KEY (hold_id, account_id)
) WITH (fillfactor = 80);
CREATE INDEX spend_owner_account ON stint.spend_owner (account_id, hold_id);
CREATE INDEX spend_owner_expiry ON stint.spend_owner (account_id, expires_us) WHERE live;
CREATE INDEX spend_owner_group ON stint.spend_owner (split_group, account_id) WHERE live AND split_group <> '';

CREATE TABLE stint.spend_usage (
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

CREATE TABLE stint.spend_entry (
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

INSERT INTO stint.migration SELECT * FROM json_populate_record(NULL::stint.migration, '{"version":1,"name":"0001_spend.sql","checksum":"943be0408139deb4c3d8562ee00a6a90308dba4a85b93b52fbacea30bfd77d2a"}');
INSERT INTO stint.spend_ledger SELECT * FROM json_populate_record(NULL::stint.spend_ledger, '{"id":1,"name":"default","unit":"requests","scale":0}');
INSERT INTO stint.spend_account SELECT * FROM json_populate_record(NULL::stint.spend_account, '{"id":2,"ledger_id":1,"name":"a","seq":6,"last_us":1796001113468236,"pruned":0}');
INSERT INTO stint.spend_account SELECT * FROM json_populate_record(NULL::stint.spend_account, '{"id":5,"ledger_id":1,"name":"b","seq":6,"last_us":1796001113465934,"pruned":0}');
INSERT INTO stint.spend_limit SELECT * FROM json_populate_record(NULL::stint.spend_limit, '{"id":4,"account_id":2,"name":"all","gen":1,"kind":4,"week_start":0,"anchor":1,"zone":"UTC","amount":1000,"mode":0,"on_unpriced":0,"carry_holds":false,"carry_unused":0,"thresholds":"","raise_by":0,"raise_until_us":null,"rev":1,"print":"38267d851b219e48bc9768d8988d542e8f6c512801b06409bdeb6ab3c3177eca","prev":"","since_us":1796001113414792,"pin_us":-62135596800000000,"held_all":0,"removed":false}');
INSERT INTO stint.spend_limit SELECT * FROM json_populate_record(NULL::stint.spend_limit, '{"id":6,"account_id":5,"name":"all","gen":1,"kind":4,"week_start":0,"anchor":1,"zone":"UTC","amount":50,"mode":0,"on_unpriced":0,"carry_holds":false,"carry_unused":0,"thresholds":"","raise_by":0,"raise_until_us":null,"rev":1,"print":"2271488d8ce67a20e46c9d87ab2cecc0e65bf65ab14f85110150e800a60db6d6","prev":"","since_us":1796001113424860,"pin_us":-62135596800000000,"held_all":0,"removed":false}');
INSERT INTO stint.spend_limit SELECT * FROM json_populate_record(NULL::stint.spend_limit, E'{"id":3,"account_id":2,"name":"day","gen":1,"kind":1,"week_start":0,"anchor":1,"zone":"Europe/Berlin","amount":100,"mode":0,"on_unpriced":0,"carry_holds":true,"carry_unused":5,"thresholds":"[{\\"Percent\\":1,\\"Of\\":0}]","raise_by":0,"raise_until_us":null,"rev":1,"print":"59b35836d9cc530afc24d7e389ee61336438350e6ddf8c0732870d60bbc19684","prev":"","since_us":1796001113404453,"pin_us":-62135596800000000,"held_all":16,"removed":false}');
INSERT INTO stint.spend_period SELECT * FROM json_populate_record(NULL::stint.spend_period, '{"id":7,"limit_id":4,"start_us":-62135596800000000,"end_us":253402300799000000,"label":"total","mode":0,"in_force":1000,"raised":0,"raised_until_us":0,"spent":4,"held":16,"overrun":0,"cut":0,"carry_in":0,"carry_out":0,"assumed":0,"unpriced":0,"fired":"","base_spent":0,"base_held":0,"base_overrun":0}');
INSERT INTO stint.spend_period SELECT * FROM json_populate_record(NULL::stint.spend_period, '{"id":9,"limit_id":6,"start_us":-62135596800000000,"end_us":253402300799000000,"label":"total","mode":0,"in_force":50,"raised":0,"raised_until_us":0,"spent":2,"held":10,"overrun":0,"cut":0,"carry_in":0,"carry_out":0,"assumed":0,"unpriced":0,"fired":"","base_spent":0,"base_held":0,"base_overrun":0}');
INSERT INTO stint.spend_period SELECT * FROM json_populate_record(NULL::stint.spend_period, E'{"id":8,"limit_id":3,"start_us":1795993200000000,"end_us":1796079600000000,"label":"2026-11-30","mode":0,"in_force":100,"raised":0,"raised_until_us":0,"spent":4,"held":16,"overrun":0,"cut":0,"carry_in":0,"carry_out":0,"assumed":0,"unpriced":0,"fired":"[{\\"Percent\\":1,\\"Of\\":0}]","base_spent":0,"base_held":0,"base_overrun":0}');
INSERT INTO stint.spend_hold SELECT * FROM json_populate_record(NULL::stint.spend_hold, '{"id":10,"ledger_id":1,"key":"open","parent_id":null,"owners":"[2,5]","accounts":"[2,5]","amount":7,"min":0,"rest":false,"free":false,"split_group":"","slots":0,"ttl_us":3600000000,"labels":"","price":"","state":1,"granted":7,"grown":0,"received":0,"own":7,"recorded":0,"carved":0,"covered":0,"returned":0,"assumed":0,"end_own":0,"end_charge":0,"open_usages":0,"marks":0,"children":0,"depth":1,"expires_us":1796004713427624,"born_us":1796001113427624,"ended_us":0,"seq":3,"bound_account":"","bound_limit":"","bound_parent":"","receipt":"","part_us":1796001113427624,"part_left":7,"periods":"[7,8,9]","more_parts":"","assumes":""}');
INSERT INTO stint.spend_hold SELECT * FROM json_populate_record(NULL::stint.spend_hold, '{"id":12,"ledger_id":1,"key":"child","parent_id":11,"owners":"[5,2]","accounts":"[5]","amount":3,"min":0,"rest":false,"free":false,"split_group":"","slots":0,"ttl_us":3600000000,"labels":"","price":"","state":1,"granted":3,"grown":0,"received":0,"own":3,"recorded":0,"carved":0,"covered":0,"returned":0,"assumed":0,"end_own":0,"end_charge":0,"open_usages":0,"marks":0,"children":0,"depth":2,"expires_us":1796004713450003,"born_us":1796001113450003,"ended_us":0,"seq":5,"bound_account":"","bound_limit":"","bound_parent":"","receipt":"","part_us":1796001113450003,"part_left":3,"periods":"[9]","more_parts":"","assumes":""}');
INSERT INTO stint.spend_hold SELECT * FROM json_populate_record(NULL::stint.spend_hold, E'{"id":11,"ledger_id":1,"key":"labelled","parent_id":null,"owners":"[2]","accounts":"[2]","amount":9,"min":0,"rest":false,"free":false,"split_group":"","slots":0,"ttl_us":3600000000,"labels":"[{\\"Key\\":\\"team\\",\\"Value\\":\\"x\\"}]","price":"{\\"rate\\":\\"1\\"}","state":1,"granted":9,"grown":0,"received":0,"own":6,"recorded":0,"carved":3,"covered":0,"returned":0,"assumed":0,"end_own":0,"end_charge":0,"open_usages":0,"marks":0,"children":1,"depth":1,"expires_us":1796004713443320,"born_us":1796001113443320,"ended_us":0,"seq":4,"bound_account":"","bound_limit":"","bound_parent":"","receipt":"","part_us":1796001113443320,"part_left":9,"periods":"[7,8]","more_parts":"","assumes":""}');
INSERT INTO stint.spend_hold SELECT * FROM json_populate_record(NULL::stint.spend_hold, E'{"id":13,"ledger_id":1,"key":"done","parent_id":null,"owners":"[5]","accounts":"[5]","amount":5,"min":0,"rest":false,"free":false,"split_group":"","slots":0,"ttl_us":3600000000,"labels":"","price":"","state":3,"granted":5,"grown":0,"received":0,"own":0,"recorded":2,"carved":0,"covered":2,"returned":3,"assumed":0,"end_own":3,"end_charge":0,"open_usages":0,"marks":0,"children":0,"depth":1,"expires_us":1796004713457756,"born_us":1796001113457756,"ended_us":1796001113465934,"seq":4,"bound_account":"","bound_limit":"","bound_parent":"","receipt":"{\\"cost\\":2,\\"returned\\":3,\\"revision\\":6}","part_us":1796001113457756,"part_left":0,"periods":"[9]","more_parts":"","assumes":""}');
INSERT INTO stint.spend_owner SELECT * FROM json_populate_record(NULL::stint.spend_owner, '{"hold_id":10,"account_id":2,"live":true,"expires_us":1796004713427624,"split_group":""}');
INSERT INTO stint.spend_owner SELECT * FROM json_populate_record(NULL::stint.spend_owner, '{"hold_id":10,"account_id":5,"live":true,"expires_us":1796004713427624,"split_group":""}');
INSERT INTO stint.spend_owner SELECT * FROM json_populate_record(NULL::stint.spend_owner, '{"hold_id":11,"account_id":2,"live":true,"expires_us":1796004713443320,"split_group":""}');
INSERT INTO stint.spend_owner SELECT * FROM json_populate_record(NULL::stint.spend_owner, '{"hold_id":12,"account_id":2,"live":true,"expires_us":1796004713450003,"split_group":""}');
INSERT INTO stint.spend_owner SELECT * FROM json_populate_record(NULL::stint.spend_owner, '{"hold_id":12,"account_id":5,"live":true,"expires_us":1796004713450003,"split_group":""}');
INSERT INTO stint.spend_owner SELECT * FROM json_populate_record(NULL::stint.spend_owner, '{"hold_id":13,"account_id":5,"live":false,"expires_us":1796004713457756,"split_group":""}');
INSERT INTO stint.spend_usage SELECT * FROM json_populate_record(NULL::stint.spend_usage, E'{"ledger_id":1,"hold_id":0,"id":"c","kind":12,"content":"\\\\x601dd1019015b83cae5cf7c5b6c3cdfe6b83a2d03c48a211854190ddc6c1f503","cost":0,"unpriced":false,"receipt":"{\\"cost\\":4,\\"revision\\":6}"}');
INSERT INTO stint.spend_usage SELECT * FROM json_populate_record(NULL::stint.spend_usage, E'{"ledger_id":1,"hold_id":13,"id":"u","kind":3,"content":"\\\\xeb19b19f3a33be3734e0d9589b531336f9c3fb02f39a3eb56eb8111daffa2b11","cost":1,"unpriced":false,"receipt":"{\\"cost\\":1,\\"own\\":4,\\"revision\\":5}"}');
INSERT INTO stint.spend_entry SELECT * FROM json_populate_record(NULL::stint.spend_entry, '{"account_id":2,"seq":1,"at_us":1796001113404453,"kind":14,"ref":"day","hold":"","reason":"set","source":0,"labels":"","postings":"[]"}');
INSERT INTO stint.spend_entry SELECT * FROM json_populate_record(NULL::stint.spend_entry, '{"account_id":2,"seq":2,"at_us":1796001113414792,"kind":14,"ref":"all","hold":"","reason":"set","source":0,"labels":"","postings":"[]"}');
INSERT INTO stint.spend_entry SELECT * FROM json_populate_record(NULL::stint.spend_entry, '{"account_id":2,"seq":3,"at_us":1796001113427624,"kind":1,"ref":"open","hold":"","reason":"","source":0,"labels":"","postings":"[[0,1796001113427624,0,7,0],[7,0,0,7,0],[8,0,0,7,0]]"}');
INSERT INTO stint.spend_entry SELECT * FROM json_populate_record(NULL::stint.spend_entry, '{"account_id":2,"seq":5,"at_us":1796001113450003,"kind":1,"ref":"child","hold":"","reason":"","source":0,"labels":"","postings":"[]"}');
INSERT INTO stint.spend_entry SELECT * FROM json_populate_record(NULL::stint.spend_entry, '{"account_id":2,"seq":6,"at_us":1796001113468236,"kind":12,"ref":"c","hold":"","reason":"","source":0,"labels":"","postings":"[[0,1796001113468236,4,0,0],[7,0,4,0,0],[8,0,4,0,0]]"}');
INSERT INTO stint.spend_entry SELECT * FROM json_populate_record(NULL::stint.spend_entry, '{"account_id":5,"seq":1,"at_us":1796001113424860,"kind":14,"ref":"all","hold":"","reason":"set","source":0,"labels":"","postings":"[]"}');
INSERT INTO stint.spend_entry SELECT * FROM json_populate_record(NULL::stint.spend_entry, '{"account_id":5,"seq":2,"at_us":1796001113427624,"kind":1,"ref":"open","hold":"","reason":"","source":0,"labels":"","postings":"[[0,1796001113427624,0,7,0],[9,0,0,7,0]]"}');
INSERT INTO stint.spend_entry SELECT * FROM json_populate_record(NULL::stint.spend_entry, '{"account_id":5,"seq":3,"at_us":1796001113450003,"kind":1,"ref":"child","hold":"","reason":"","source":0,"labels":"","postings":"[[0,1796001113450003,0,3,0],[9,0,0,3,0]]"}');
INSERT INTO stint.spend_entry SELECT * FROM json_populate_record(NULL::stint.spend_entry, '{"account_id":5,"seq":4,"at_us":1796001113457756,"kind":1,"ref":"done","hold":"","reason":"","source":0,"labels":"","postings":"[[0,1796001113457756,0,5,0],[9,0,0,5,0]]"}');
INSERT INTO stint.spend_entry SELECT * FROM json_populate_record(NULL::stint.spend_entry, '{"account_id":5,"seq":5,"at_us":1796001113460528,"kind":3,"ref":"u","hold":"done","reason":"","source":0,"labels":"","postings":"[[0,1796001113457756,1,-1,0],[9,0,1,-1,0]]"}');
INSERT INTO stint.spend_entry SELECT * FROM json_populate_record(NULL::stint.spend_entry, '{"account_id":5,"seq":6,"at_us":1796001113465934,"kind":4,"ref":"done","hold":"","reason":"","source":0,"labels":"","postings":"[[0,1796001113457756,1,-4,0],[9,0,1,-4,0]]"}');
INSERT INTO stint.spend_entry SELECT * FROM json_populate_record(NULL::stint.spend_entry, E'{"account_id":2,"seq":4,"at_us":1796001113443320,"kind":1,"ref":"labelled","hold":"","reason":"","source":0,"labels":"[{\\"Key\\":\\"team\\",\\"Value\\":\\"x\\"}]","postings":"[[0,1796001113443320,0,9,0],[7,0,0,9,0],[8,0,0,9,0]]"}');
SELECT setval('stint.spend_ids', 1);
