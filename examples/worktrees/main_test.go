package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerName) != "" { // begun by the test
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestStory(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil && os.Getenv("CI") == "true" {
		t.Fatal(err)
	} else if err != nil {
		t.Skip("there is no git")
	}
	if runtime.GOOS == "windows" {
		t.Skip("a process can't be stopped here")
	}
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	if err := run(context.Background(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	t.Log(out.String())
	for _, line := range []string{
		`ben +is killed, with worktree \d`,
		`cleo is stopped, with worktree \d`,
		`cleo was refused worktree \d with epoch \d+: stale, the epoch is \d+`,
		`epoch +\d+  ben-0 .* dead owner`,
		`epoch +\d+  cleo-\d .* expired`,
		`no worktree was ever held by two at once`,
	} {
		if !regexp.MustCompile(line).Match(out.Bytes()) {
			t.Errorf("no line like %s in\n%s", line, &out)
		}
	}
	left, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
