package allocator_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stint-go/stint/allocator"
)

const patience = 20 * time.Second

// within fails the test if f takes longer than any sound machine would.
func within(t *testing.T, what string, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	case <-time.After(patience):
		t.Fatalf("%s: not done after %v", what, patience)
	}
}

// child is a process that lives until its input is closed.
type child struct {
	*exec.Cmd
	input io.Closer
}

// startChild starts cat under a name of ours, and returns when it runs.
func startChild(t *testing.T, name string) *child {
	t.Helper()
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.Symlink(cat, file); err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: file, Args: []string{"cat"}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	within(t, "start of a child", func() error {
		if _, err := io.WriteString(in, "x\n"); err != nil {
			return err
		}
		_, err := bufio.NewReader(out).ReadString('\n')
		return err
	})
	return &child{cmd, in}
}

func (c *child) pid() int64 { return int64(c.Process.Pid) }

// thisProcess skips the test where /proc tells nothing.
func thisProcess(t *testing.T) allocator.Holder {
	t.Helper()
	me, err := allocator.ThisProcess(nil)
	if err != nil {
		t.Fatal(err)
	}
	if me.Start == 0 {
		t.Skip("this system tells nothing of its processes")
	}
	return me
}

func TestThisProcess(t *testing.T) {
	t.Parallel()
	me := thisProcess(t)
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Fatal(err)
	}
	if fields := strings.Fields(string(stat)); fields[21] != strconv.FormatInt(me.Start, 10) { // our name has no spaces
		t.Errorf("start %d, want %s", me.Start, fields[21])
	}
	if me.PID != int64(os.Getpid()) {
		t.Errorf("pid %d, want %d", me.PID, os.Getpid())
	}
	if !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(me.Boot) {
		t.Errorf("boot id %q", me.Boot)
	}
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	if inode := info.Sys().(*syscall.Stat_t).Ino; me.Namespace != strconv.FormatUint(inode, 10) {
		t.Errorf("namespace %q, want %d", me.Namespace, inode)
	}
	if p := allocator.System().Process(t.Context(), me.PID); p != (allocator.Process{Presence: allocator.Present, Start: me.Start}) {
		t.Errorf("%+v, want present since %d", p, me.Start)
	}
}

func TestSystem_Child(t *testing.T) {
	t.Parallel()
	me := thisProcess(t)
	c := startChild(t, "child")
	if p := allocator.System().Process(t.Context(), c.pid()); p.Presence != allocator.Present || p.Start < me.Start {
		t.Errorf("it runs: %+v, want present since %d or later", p, me.Start)
	}
	c.input.Close()
	within(t, "end of a child", c.Wait)
	if p := allocator.System().Process(t.Context(), c.pid()); p.Presence != allocator.Absent {
		t.Errorf("it was waited for: %+v, want absent", p)
	}
}

// Its own children may still use what it held.
func TestSystem_Zombie(t *testing.T) {
	t.Parallel()
	thisProcess(t)
	c := startChild(t, "zombie")
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, "death of a child", func() error { return awaitDeath(c.Process.Pid) })
	if p := allocator.System().Process(t.Context(), c.pid()); p != (allocator.Process{}) {
		t.Errorf("%+v, want unknown", p)
	}
	_ = c.Wait()
	if p := allocator.System().Process(t.Context(), c.pid()); p.Presence != allocator.Absent {
		t.Errorf("it was waited for: %+v, want absent", p)
	}
}

// awaitDeath waits for a child and leaves it a zombie.
func awaitDeath(pid int) error {
	const (
		byPID   = 1
		exited  = 4
		noReap  = 0x01000000
		atLeast = 128 // bytes of siginfo
	)
	var info [atLeast / 8]uint64
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, byPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), exited|noReap, 0, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return errno
		}
	}
}

func TestSystem_NameWithParentheses(t *testing.T) {
	t.Parallel()
	me := thisProcess(t)
	const name = "a) b (c"
	c := startChild(t, name)
	comm, err := os.ReadFile("/proc/" + strconv.FormatInt(c.pid(), 10) + "/comm")
	if err != nil || string(comm) != name+"\n" {
		t.Fatalf("the name is %q, %v", comm, err)
	}
	if p := allocator.System().Process(t.Context(), c.pid()); p.Presence != allocator.Present || p.Start < me.Start {
		t.Errorf("%+v, want present since %d or later", p, me.Start)
	}
}

// A thread's id is in use, so it is not absent.
func TestSystem_Thread(t *testing.T) {
	t.Parallel()
	me := thisProcess(t)
	p, tid := processOfThread(t)
	if p.Presence != allocator.Present || p.Start < me.Start {
		t.Errorf("thread %d: %+v, want present since %d or later", tid, p, me.Start)
	}
}

// processOfThread asks about a thread that is not the main one, while it runs.
func processOfThread(t *testing.T) (p allocator.Process, tid int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if tid = syscall.Gettid(); tid != os.Getpid() {
		return allocator.System().Process(t.Context(), int64(tid)), tid
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p, tid = processOfThread(t)
	}()
	<-done
	return p, tid
}

// Every namespace has a process 1. It may be another user's; whether it can be seen is up to the system.
func TestSystem_OtherUser(t *testing.T) {
	t.Parallel()
	if p := allocator.System().Process(t.Context(), 1); p.Presence == allocator.Absent {
		t.Errorf("%+v", p)
	}
}

// foreignProc is the environment variable that makes TestSystem_ForeignProc the process in another namespace.
const foreignProc = "STINT_TEST_FOREIGN_PROC"

type answers struct {
	PID        int // its own
	Me         allocator.Holder
	Self, Free allocator.Process
}

// A process in a new pid namespace that still has the /proc of ours.
func TestSystem_ForeignProc(t *testing.T) {
	if os.Getenv(foreignProc) != "" {
		a := answers{PID: os.Getpid()}
		var err error
		if a.Me, err = allocator.ThisProcess(nil); err != nil {
			t.Fatal(err)
		}
		a.Self = allocator.System().Process(t.Context(), int64(os.Getpid()))
		a.Free = allocator.System().Process(t.Context(), 1<<22) // above the highest pid
		if err := json.NewEncoder(os.Stderr).Encode(a); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Parallel()
	thisProcess(t)
	if p := allocator.System().Process(t.Context(), 1<<22); p.Presence != allocator.Absent {
		t.Errorf("a pid that can't be: %+v, want absent", p)
	}
	var out strings.Builder
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSystem_ForeignProc$", "-test.timeout="+patience.String())
	cmd.Env = append(os.Environ(), foreignProc+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	if err := cmd.Start(); err != nil {
		t.Skipf("can't make a pid namespace: %v", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	var a answers
	if err := json.Unmarshal([]byte(out.String()), &a); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	a.Me.Incarnation = allocator.Incarnation{}
	if want := (answers{PID: 1}); a != want {
		t.Errorf("%+v, want %+v", a, want)
	}
}
