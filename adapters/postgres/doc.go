// Package postgres keeps everything in one Postgres database, for a fleet: any number of processes may use it. It takes the
// caller's *pgxpool.Pool, and works in every query mode of pgx.
//
// A service that writes rows of its own beside a hold uses [DB.WithTx], and commits both at once.
//
// The tables live in a schema of their own. Create them with [Migrate], once per release of this library. Time is the
// server's, unless [Options] has another clock.
//
// # Behind a pooler
//
// A pooler that lends its connections by session changes nothing. One that lends them by transaction (pgbouncer with
// pool_mode = transaction) is fine too, for [Migrate] and [DB.WithTx] as well, in these query modes of the pool:
//
//   - exec, the plain choice: default_query_exec_mode=exec in the DSN, or
//     ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec. cache_describe and simple_protocol work as well.
//   - cache_statement, which is pgx's default, only if the pooler keeps the prepared statements of its clients: pgbouncer from
//     1.21 on with max_prepared_statements above 0, which it is by default from 1.24 on. Without, calls fail with
//     [spendlimit.ErrUnavailable] and the server's words: a prepared statement "already exists" (42P05) or "does not exist" (26000).
//   - Not describe_exec: it describes a statement in one round trip and runs it in the next, perhaps on another connection.
//
// A pooler refuses settings that come with a connection (synchronous_commit=off in the DSN): give them to the role or the
// database. The adapter's own settings end with their transaction. One that lends connections by statement can't be used.
package postgres
