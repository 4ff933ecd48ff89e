// Package sqlite keeps everything in one SQLite file, for one machine: several processes may use it. It takes the
// caller's *sql.DB and imports no driver; package embedded opens a file with everything set right.
//
// The tables (stint_…) live beside the caller's own. Create them with [Migrate], once per release of this library. With
// [DB.WithTx] the caller's own rows and the money for them are one commit.
package sqlite
