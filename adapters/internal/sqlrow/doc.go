// Package sqlrow is what any set of SQL tables needs, whichever package's rows they have: tables and columns, the spelling of
// statements, a connection inside a transaction, and a writer that stores only what a step has changed. It knows no row. A database
// brings its dialect and its transactions; package spendsql, beside this one, brings tables and rows.
package sqlrow
