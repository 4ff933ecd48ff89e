package postgres

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stint-go/stint/allocator/allocatortest"
)

// childShares takes slots and gives them back: it is told a folder and a name.
func childShares(t *testing.T, dsn, arg string) {
	dir, name, _ := strings.Cut(arg, " ")
	db, err := New(t.Context(), newPool(t, dsn), nil)
	if err != nil {
		t.Fatal("error", err)
	}
	p, err := allocatortest.SharedPool(t.Context(), db.Pools())
	if err == nil {
		err = allocatortest.Share(t.Context(), p, dir, name, 1000)
	}
	if err != nil {
		t.Fatal("error", err)
	}
}

// Processes that are killed at random leave no slot in two hands, and none lost.
func TestT26_KilledHolders(t *testing.T) {
	slow(t)
	r := newRoom(t)
	p, err := allocatortest.SharedPool(t.Context(), r.DB.Pools())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	allocatortest.KillHolders(t, fighting(), func(name string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.count=1")
		cmd.Env = append(os.Environ(), childJob+"=shares", childDSN+"="+r.pool.Config().ConnString(), childArg+"="+dir+" "+name)
		return cmd
	})
	if leases, err := allocatortest.CheckShared(t.Context(), p); err != nil || leases < 5 {
		t.Errorf("%d leases, %v", leases, err)
	}
}
