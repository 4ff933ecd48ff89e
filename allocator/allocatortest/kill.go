package allocatortest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"
)

// KillHolders runs eight processes that each [Share] a pool, and kills one of them at random, every 100 ms or so; another one takes its place,
// until the time is over. begin makes the command of a process of this name, which is to exit with an error if
// Share returns one. The processes are all gone when it returns.
func KillHolders(t *testing.T, long time.Duration, begin func(name string) *exec.Cmd) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("this system gives no lock to be a witness, and tells nothing of processes")
	}
	const processes = 8
	end := time.Now().Add(long)
	var all sync.WaitGroup
	var kills, finished [processes]int
	for i := range processes {
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				killed, err := holder(begin(fmt.Sprintf("p%d.%d", i, n)), end)
				switch {
				case err != nil:
					t.Error(err)
					return
				case killed:
					kills[i]++
				default:
					finished[i]++
				}
			}
		})
	}
	all.Wait()
	killed, whole := 0, 0
	for i := range processes {
		killed, whole = killed+kills[i], whole+finished[i]
	}
	t.Logf("%d processes were killed, %d came to their end", killed, whole)
	if killed == 0 {
		t.Error("none was killed")
	}
}

// holder runs one process to its end, or kills it: each lives for 800 ms on average, of which it takes some to begin.
func holder(cmd *exec.Cmd, end time.Time) (killed bool, err error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return false, err
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	timer := time.NewTimer(min(200*time.Millisecond+rand.N(1200*time.Millisecond), time.Until(end)))
	defer timer.Stop()
	select {
	case err := <-gone:
		if err != nil {
			err = fmt.Errorf("%w: %s", err, &out)
		}
		return false, err
	case <-timer.C:
		_ = cmd.Process.Kill()
		<-gone // only then the system knows no such process any more
		if bytes.Contains(out.Bytes(), []byte("error")) {
			return true, fmt.Errorf("a process said: %s", &out)
		}
		return true, nil
	}
}
