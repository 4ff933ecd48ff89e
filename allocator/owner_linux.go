package allocator

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// system is Linux.
type system struct {
	proc string // where procfs is mounted
	kill func(pid int, signal syscall.Signal) error
}

func newSystem() system { return system{proc: "/proc", kill: syscall.Kill} }

// self returns what is known of this process, without an incarnation.
func (s system) self() Holder {
	proc, ok := s.open()
	if !ok {
		return Holder{}
	}
	defer func() { _ = proc.Close() }()
	h := Holder{Boot: bootID(proc), Namespace: namespace(proc, "pid"), PID: int64(os.Getpid())}
	if stat, err := proc.ReadFile("self/stat"); err == nil && h.Namespace != "" {
		h.Start = readStat(proc, stat, h.PID).Start
	}
	return h
}

// Process implements [OwnerProber] (R11).
func (s system) Process(ctx context.Context, pid int64) Process {
	if ctx.Err() != nil || pid <= 0 || pid > math.MaxInt32 { // which kill would take for a group, or cut off
		return Process{}
	}
	proc, ok := s.open()
	if !ok {
		return Process{}
	}
	defer func() { _ = proc.Close() }()
	dir := strconv.FormatInt(pid, 10)
	// State and start must be those of one process although the pid may be reused at any time. They are: an open stat file
	// belongs to the task, not to its number, and all of its text is made by the first read.
	stat, err := proc.ReadFile(dir + "/stat")
	if err == nil {
		return readStat(proc, stat, pid)
	}
	// Absent takes both: /proc alone may hide the processes of others (hidepid), and kill alone may be answered by a filter.
	// The pid may be reused between the two, which the second then sees; and if it is reused later, the pid was still free
	// once after the holder had written its row, which is all that has to be proved.
	if err := s.kill(int(pid), 0); !errors.Is(err, syscall.ESRCH) {
		return Process{}
	}
	if _, err := proc.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return Process{}
	}
	return Process{Presence: Absent}
}

// open opens procfs, if it is that of this process's own pid namespace: a container may have its host's, where pids are
// others. It does not do to compare self with Getpid, as the two numbers may be equal by chance. NSpid lists the pid in every
// namespace from that of the mount down to the innermost: there must be one. Not all that looks like Linux has it.
//
// Everything is read below the one that was opened, so a mount that changes meanwhile mixes nothing up.
func (s system) open() (*os.Root, bool) {
	proc, err := os.OpenRoot(s.proc)
	if err != nil {
		return nil, false
	}
	status, err := proc.ReadFile("self/status") // a newline in the name is escaped
	if err == nil {
		for line := range strings.Lines(string(status)) {
			if pids, ok := strings.CutPrefix(line, "NSpid:"); ok && strings.TrimSpace(pids) == strconv.Itoa(os.Getpid()) {
				return proc, true
			}
		}
	}
	_ = proc.Close()
	return nil, false
}

// bootID returns the random id of this boot, or "" if there is nothing that looks like one.
func bootID(proc *os.Root) string {
	text, err := proc.ReadFile("sys/kernel/random/boot_id")
	id := strings.TrimSuffix(string(text), "\n")
	if err != nil || len(id) != 36 || strings.Trim(id, "0123456789abcdef-") != "" || strings.Trim(id, "0-") == "" {
		return ""
	}
	return id
}

// namespace returns the inode of this process's namespace of a kind, or "".
//
// The inode of a pid namespace may be reused within a boot, but only when the old one is gone with all of its processes:
// that a pid is absent, or another process's, in the new one is true of the old one too.
func namespace(proc *os.Root, kind string) string {
	link, _ := proc.Readlink("self/ns/" + kind)
	inode, ok := strings.CutPrefix(link, kind+":[")
	inode, closed := strings.CutSuffix(inode, "]")
	if n, err := strconv.ParseUint(inode, 10, 64); !ok || !closed || err != nil || n == 0 {
		return ""
	}
	return inode
}

// initialTime is the inode of the initial time namespace, which is fixed.
const initialTime = "4026531834"

// comparableStarts tells whether start times mean the same as to other processes: the kernel shifts them by the offset of the reader's
// time namespace. Old kernels have none.
func comparableStarts(proc *os.Root) bool {
	_, err := proc.Lstat("self/ns/time")
	return errors.Is(err, fs.ErrNotExist) || namespace(proc, "time") == initialTime
}

// Fields of stat, counted from the state, which is the first after the name.
const (
	statState = 0
	statStart = 19 // ticks from boot
)

// readStat reads a stat file.
//
// The pid may be that of a thread, whose directory exists though it is not listed. A holder's pid is never one, so its
// process is gone then, and the file tells the thread's own start. A thread that started in the same tick as the holder is taken
// for it, as is a process that did: that only keeps a lease until its time is over.
func readStat(proc *os.Root, stat []byte, pid int64) Process {
	text := string(stat)
	end := strings.LastIndexByte(text, ')') // the name before it may hold anything
	if end < 0 || !strings.HasPrefix(text, strconv.FormatInt(pid, 10)+" (") {
		return Process{}
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) <= statStart {
		return Process{}
	}
	switch fields[statState] {
	case "Z", "X", "x": // a zombie may be a main thread that ended before the others
		return Process{}
	}
	start, err := strconv.ParseInt(fields[statStart], 10, 64)
	if err != nil || start < 0 {
		return Process{}
	}
	if !comparableStarts(proc) {
		start = 0
	}
	return Process{Presence: Present, Start: start}
}
