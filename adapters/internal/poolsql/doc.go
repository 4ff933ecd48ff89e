// Package poolsql keeps the rows of allocator in SQL tables: what sqlite and postgres have in common. It knows how rows are taken
// apart into columns, which rows a step needs, and the statements for both. It decides nothing about leases. A database brings
// its transactions, its clock, its locks and its dialect, in the terms of package sqlrow.
package poolsql
