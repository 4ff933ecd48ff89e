// Package migrate is what SQL adapters share of their migrations: the files, and whether a database has had them.
package migrate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"

	"github.com/stint-go/stint/internal/fault"
)

// File is one file of a folder migrations/: they are numbered from 1 on, and never change once released.
type File struct{ Name, Text, Checksum string }

// Files reads migrations/*.sql, in order of their names. It panics where these are not embedded.
func Files(from fs.FS) []File {
	paths, err := fs.Glob(from, "migrations/*.sql")
	if err != nil {
		panic(err)
	}
	list := make([]File, len(paths))
	for i, p := range paths {
		text, err := fs.ReadFile(from, p)
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(text)
		list[i] = File{path.Base(p), string(text), hex.EncodeToString(sum[:])}
	}
	return list
}

// Rows are version, name and checksum of the migrations that a database has had, by version.
type Rows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
}

// Applied counts them. One that is not ours, and more than ours, are ErrSchema.
func Applied(rows Rows, ours []File) (int, error) {
	have := 0
	for rows.Next() {
		var version int
		var f File
		if err := rows.Scan(&version, &f.Name, &f.Checksum); err != nil {
			return 0, err
		}
		have++
		if version != have || have <= len(ours) && (f.Name != ours[have-1].Name || f.Checksum != ours[have-1].Checksum) {
			return 0, fmt.Errorf("%w: migration %d (%s) is not the one of this release", fault.ErrSchema, version, f.Name)
		}
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if have > len(ours) {
		return 0, &fault.SchemaError{Have: have, Want: len(ours)}
	}
	return have, nil
}

// Complete is an error unless a database has had all of ours.
func Complete(have int, ours []File) error {
	if want := len(ours); have != want {
		return fmt.Errorf("%w: call Migrate first", &fault.SchemaError{Have: have, Want: want})
	}
	return nil
}
