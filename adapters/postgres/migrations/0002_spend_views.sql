-- Views for people. They show what is stored, with simple differences, and decide nothing: what no step has touched yet is
-- shown as it was. A period whose raise has ended still shows the raise; a hold whose time is over is still there, until the
-- next step on its account, or a sweep, ends it. Numbers of money are in the smallest steps of the ledger's unit: with
-- scale 9, divide by 1e9. Columns …_us are Unix microseconds, …_at the same instants.

-- The periods that the parts of holds count against.
CREATE VIEW {schema}.spend_line AS
SELECT h.id AS hold_id, 0 AS part, l.n - 1 AS n, l.id::bigint AS period_id
FROM {schema}.spend_hold h, json_array_elements_text(h.periods::json) WITH ORDINALITY l (id, n)
UNION ALL
SELECT h.id, p.n, l.n - 1, l.id::bigint
FROM {schema}.spend_hold h, json_array_elements(nullif(h.more_parts, '')::json) WITH ORDINALITY p (value, n),
	json_array_elements_text(p.value -> 'periods') WITH ORDINALITY l (id, n);

-- What an entry changed: in a period, or, without one, in the account's own total, counted at an instant.
CREATE VIEW {schema}.spend_posting AS
SELECT e.account_id, e.seq, p.n - 1 AS n, nullif((p.value ->> 0)::bigint, 0) AS period_id, (p.value ->> 1)::bigint AS counts_us,
	(p.value ->> 2)::bigint AS spent, (p.value ->> 3)::bigint AS held, (p.value ->> 4)::bigint AS overrun
FROM {schema}.spend_entry e, json_array_elements(e.postings::json) WITH ORDINALITY p (value, n);

-- One row for each stored period of each limit. A period that nobody has used is not stored. The first and the last instant
-- of an all-time limit are those of the calendar, the years 1 and 9999.
CREATE VIEW {schema}.spend_balance AS
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
	-- In two parts: the product of an interval with a large number is not exact.
	timestamptz 'epoch' + p.start_us / 1000000 * interval '1 second' + p.start_us % 1000000 * interval '1 microsecond' AS start_at,
	timestamptz 'epoch' + p.end_us / 1000000 * interval '1 second' + p.end_us % 1000000 * interval '1 microsecond' AS end_at,
	p.in_force,
	p.spent,
	p.held,
	-- A limit that carries holds counts those of all its periods. What is out of range is shown as its end.
	greatest(p.in_force::numeric - p.spent - CASE WHEN m.carry_holds THEN m.held_all ELSE p.held END, -9223372036854775808)::bigint AS available,
	p.overrun,
	p.cut,
	p.assumed,
	p.unpriced,
	p.raised,
	p.raised_until_us
FROM {schema}.spend_period p
JOIN {schema}.spend_limit m ON m.id = p.limit_id
JOIN {schema}.spend_account a ON a.id = m.account_id
JOIN {schema}.spend_ledger l ON l.id = a.ledger_id;

-- One row for each hold that still holds money. seconds_left is below 0 for one whose time is over. Ages are by the server's
-- clock, as all times.
CREATE VIEW {schema}.spend_open_hold AS
SELECT
	l.name AS ledger,
	l.unit,
	l.scale,
	h.key,
	CASE h.state WHEN 1 THEN 'open' WHEN 2 THEN 'dispatched' END AS state,
	h.born_us,
	h.expires_us,
	timestamptz 'epoch' + h.born_us / 1000000 * interval '1 second' + h.born_us % 1000000 * interval '1 microsecond' AS born_at,
	timestamptz 'epoch' + h.expires_us / 1000000 * interval '1 second' + h.expires_us % 1000000 * interval '1 microsecond' AS expires_at,
	floor(extract(epoch FROM clock_timestamp()))::bigint - h.born_us / 1000000 AS age_seconds,
	h.expires_us / 1000000 - floor(extract(epoch FROM clock_timestamp()))::bigint AS seconds_left,
	-- Its own accounts (none for a child that brought none), and all that pay, its ancestors' too.
	ARRAY(
		SELECT a.name FROM json_array_elements_text(h.accounts::json) e (id) JOIN {schema}.spend_account a ON a.id = e.id::bigint ORDER BY a.name
	) AS accounts,
	ARRAY(
		SELECT a.name FROM json_array_elements_text(h.owners::json) e (id) JOIN {schema}.spend_account a ON a.id = e.id::bigint ORDER BY a.name
	) AS payers,
	h.granted,
	h.own,
	h.recorded,
	h.assumed,
	h.split_group AS "group",
	h.slots,
	up.key AS parent,
	-- The periods that it counts in: those of its own accounts. A child without any counts in its ancestors'.
	coalesce((
		SELECT jsonb_agg(jsonb_build_object('account', c.account, 'limit', c."limit", 'period', c.period) ORDER BY c.account, c."limit", c.period)
		FROM (
			SELECT DISTINCT a.name AS account, m.name AS "limit", p.label AS period
			FROM {schema}.spend_period p
			JOIN {schema}.spend_limit m ON m.id = p.limit_id
			JOIN {schema}.spend_account a ON a.id = m.account_id
			-- An array is expected to be short. As a join it would be expected to be so long that all periods are read instead.
			WHERE p.id = ANY (ARRAY(SELECT n.period_id FROM {schema}.spend_line n WHERE n.hold_id = h.id))
		) c
	), '[]') AS periods
FROM {schema}.spend_hold h
JOIN {schema}.spend_ledger l ON l.id = h.ledger_id
LEFT JOIN {schema}.spend_hold up ON up.id = h.parent_id
WHERE h.id IN (SELECT o.hold_id FROM {schema}.spend_owner o WHERE o.live);
