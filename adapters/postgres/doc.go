// Package postgres keeps everything in one Postgres database, for a fleet: any number of processes may use it. It takes the
// caller's *pgxpool.Pool, and works in every query mode of pgx, behind a transaction pooler too.
//
// A service that writes rows of its own beside a hold uses [DB.WithTx], and commits both at once.
//
// The tables live in a schema of their own. Create them with [Migrate], once per release of this library. Time is the
// server's, unless [Options] has another clock.
package postgres
