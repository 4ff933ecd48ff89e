// Package spendsql keeps the rows of spendlimit in SQL tables: what sqlite and postgres have in common. It knows how rows
// are taken apart into columns and linked again, which rows a step needs, and the statements for both. It decides
// nothing about money. A database brings its transactions, its clock, its locks and its dialect, in the terms of package sqlrow.
package spendsql
