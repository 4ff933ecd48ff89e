package main

import (
	"errors"
	"strings"
	"testing"
)

func TestFigures_WithoutPostgres(t *testing.T) {
	t.Parallel()
	skips := 0
	for _, f := range (&stores{}).figures() {
		sqlite := strings.HasPrefix(f.names, "S") || strings.HasPrefix(f.names, "X3") || strings.HasPrefix(f.names, "X4") || f.names == "G1/sqlite"
		if sqlite {
			continue
		}
		skips++
		if _, err := f.measure(t.Context()); !errors.Is(err, errSkipped) || err.Error() != "skipped: no Postgres" {
			t.Errorf("%s: %v", f.names, err)
		}
	}
	if skips == 0 {
		t.Error("no figure needs Postgres")
	}
}
