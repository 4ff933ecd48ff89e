-- Views for people. They show what is stored, with simple differences, and decide nothing: what no step has touched yet is
-- shown as it was. A period whose raise has ended still shows the raise; a hold whose time is over is still there, until the
-- next step on its account, or a sweep, ends it. Numbers of money are in the smallest steps of the ledger's unit: with
-- scale 9, divide by 1e9. Columns …_us are Unix microseconds, …_at the same in UTC, to the second.

-- The periods that the parts of holds count against.
CREATE VIEW stint_spend_line AS
SELECT h.id AS hold_id, 0 AS part, l.key AS n, l.value AS period_id
FROM stint_spend_hold h, json_each(h.periods) l
UNION ALL
SELECT h.id, p.key + 1, l.key, l.value
FROM stint_spend_hold h, json_each(nullif(h.more_parts, '')) p, json_each(p.value, '$.periods') l;

-- What an entry changed: in a period, or, without one, in the account's own total, counted at an instant.
CREATE VIEW stint_spend_posting AS
SELECT e.account_id, e.seq, p.key AS n, nullif(p.value ->> 0, 0) AS period_id, p.value ->> 1 AS counts_us, p.value ->> 2 AS spent,
	p.value ->> 3 AS held, p.value ->> 4 AS overrun
FROM stint_spend_entry e, json_each(e.postings) p;

-- One row for each stored period of each limit. A period that nobody has used is not stored. The first and the last instant
-- of an all-time limit are those of the calendar, the years 1 and 9999.
CREATE VIEW stint_spend_balance AS
SELECT
	l.name AS ledger,
	l.unit,
	l.scale,
	a.name AS account,
	m.name AS "limit",
	m.gen AS generation,
	m.removed,
	CASE m.kind WHEN 1 THEN 'day' WHEN 2 THEN 'week' WHEN 3 THEN 'month' WHEN 4 THEN 'total' END AS kind,
	CASE p.mode WHEN 0 THEN 'hard' WHEN 1 THEN 'soft' END AS mode,
	p.label AS period,
	p.start_us,
	p.end_us,
	strftime('%Y-%m-%dT%H:%M:%SZ', p.start_us / 1000000, 'unixepoch') AS start_at,
	strftime('%Y-%m-%dT%H:%M:%SZ', p.end_us / 1000000, 'unixepoch') AS end_at,
	p.in_force,
	p.spent,
	p.held,
	-- A limit that carries holds counts those of all its periods. What is out of range is shown as its end.
	CAST(p.in_force - p.spent - CASE m.carry_holds WHEN 0 THEN p.held ELSE m.held_all END AS INTEGER) AS available,
	p.overrun,
	p.cut,
	p.assumed,
	p.unpriced,
	p.raised,
	p.raised_until_us
FROM stint_spend_period p
JOIN stint_spend_limit m ON m.id = p.limit_id
JOIN stint_spend_account a ON a.id = m.account_id
JOIN stint_spend_ledger l ON l.id = a.ledger_id;

-- One row for each hold that still holds money. seconds_left is below 0 for one whose time is over. Ages are by the clock of
-- this machine.
CREATE VIEW stint_spend_open_hold AS
SELECT
	l.name AS ledger,
	l.unit,
	l.scale,
	h.key,
	CASE h.state WHEN 1 THEN 'open' WHEN 2 THEN 'dispatched' END AS state,
	h.born_us,
	h.expires_us,
	strftime('%Y-%m-%dT%H:%M:%SZ', h.born_us / 1000000, 'unixepoch') AS born_at,
	strftime('%Y-%m-%dT%H:%M:%SZ', h.expires_us / 1000000, 'unixepoch') AS expires_at,
	unixepoch() - h.born_us / 1000000 AS age_seconds,
	h.expires_us / 1000000 - unixepoch() AS seconds_left,
	-- JSON arrays of names: its own accounts (none for a child that brought none), and all that pay, its ancestors' too.
	(SELECT json_group_array(name) FROM (
		SELECT a.name FROM json_each(h.accounts) e JOIN stint_spend_account a ON a.id = e.value ORDER BY a.name
	)) AS accounts,
	(SELECT json_group_array(name) FROM (
		SELECT a.name FROM json_each(h.owners) e JOIN stint_spend_account a ON a.id = e.value ORDER BY a.name
	)) AS payers,
	h.granted,
	h.own,
	h.recorded,
	h.assumed,
	h.split_group AS "group",
	h.slots,
	up.key AS parent,
	-- A JSON array of the periods that it counts in: those of its own accounts. A child without any counts in its ancestors'.
	(SELECT json_group_array(json_object('account', account, 'limit', "limit", 'period', period)) FROM (
		SELECT DISTINCT a.name AS account, m.name AS "limit", p.label AS period
		FROM ( -- not stint_spend_line: SQLite would make the lines of all holds to find these
			SELECT value AS period_id FROM json_each(h.periods)
			UNION
			SELECT n.value FROM json_each(nullif(h.more_parts, '')) part, json_each(part.value, '$.periods') n
		) n
		JOIN stint_spend_period p ON p.id = n.period_id
		JOIN stint_spend_limit m ON m.id = p.limit_id
		JOIN stint_spend_account a ON a.id = m.account_id
		ORDER BY a.name, m.name, p.label
	)) AS periods
FROM stint_spend_hold h
JOIN stint_spend_ledger l ON l.id = h.ledger_id
LEFT JOIN stint_spend_hold up ON up.id = h.parent_id
WHERE h.id IN (SELECT o.hold_id FROM stint_spend_owner o WHERE o.live);
