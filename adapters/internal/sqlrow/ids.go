package sqlrow

import (
	"fmt"
	"slices"
)

// Missing lists the ids that have no record yet, each once.
func Missing[T any](records map[int64]T, ids []int64) []int64 {
	var out []int64
	for _, id := range ids {
		if _, ok := records[id]; !ok {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Dangling is an error if ids are left that are pointed at but not stored.
func Dangling(what string, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	return fmt.Errorf("%s %d is pointed at but not stored", what, ids[0])
}
