package allocator

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const fakeBoot = "0b6f6f0e-2c5e-4c39-9a53-5e2b0c6d7f10"

// fakeProc is a directory with files and links as in /proc: a name that ends in @ is a link, one in / a directory.
func fakeProc(t *testing.T, changes map[string]string) string {
	t.Helper()
	self := strconv.Itoa(os.Getpid())
	tree := map[string]string{
		"self@":                     self,
		self + "/status":            "Name:\tx\nNStgid:\t" + self + "\nNSpid:\t" + self + "\nNSpgid:\t1\n",
		self + "/stat":              stat(self, "x", "S", "77"),
		self + "/ns/pid@":           "pid:[4026531836]",
		self + "/ns/time@":          "time:[" + initialTime + "]",
		"sys/kernel/random/boot_id": fakeBoot + "\n",
	}
	for name, text := range changes {
		name = strings.Replace(name, "self/", self+"/", 1)
		if text == "" {
			delete(tree, name)
		} else {
			tree[name] = text
		}
	}
	root := t.TempDir()
	for name, text := range tree {
		file := filepath.Join(root, strings.TrimRight(name, "@/"))
		err := os.MkdirAll(filepath.Dir(file), 0o700)
		switch {
		case err != nil:
		case strings.HasSuffix(name, "@"):
			err = os.Symlink(text, file)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(file, 0o700)
		default:
			err = os.WriteFile(file, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// stat is the text of a stat file up to the field after the start.
func stat(pid, name, state, start string) string {
	return fmt.Sprintf("%s (%s) %s 1 2 3 0 -1 4194304 5 6 7 8 9 10 11 12 20 0 1 0 %s 4096\n", pid, name, state, start)
}

func TestSystem_FakeProc(t *testing.T) {
	t.Parallel()
	const (
		pid   = "4242"
		other = "4026532999"
		there = syscall.Errno(0)
	)
	self := strconv.Itoa(os.Getpid())
	for _, x := range []struct {
		name    string
		changes map[string]string
		kill    syscall.Errno
		want    Process
	}{
		{"present", map[string]string{pid + "/stat": stat(pid, "a) b (c", "R", "123456")}, there, Process{Present, 123456}},
		{"present, another user's", map[string]string{pid + "/stat": stat(pid, "x", "S", "123456")}, syscall.EPERM, Process{Present, 123456}},
		{"looks like a zombie by its name", map[string]string{pid + "/stat": stat(pid, "x) Z 1 (", "S", "123456")}, there, Process{Present, 123456}},
		{"newline in the name", map[string]string{pid + "/stat": stat(pid, "a\n) Z", "S", "123456")}, there, Process{Present, 123456}},
		{"started in the first tick", map[string]string{pid + "/stat": stat(pid, "x", "S", "0")}, there, Process{Present, 0}},
		{"absent", nil, syscall.ESRCH, Process{Absent, 0}},
		{"zombie", map[string]string{pid + "/stat": stat(pid, "x", "Z", "123456")}, there, Process{}},
		{"dead", map[string]string{pid + "/stat": stat(pid, "x", "X", "123456")}, there, Process{}},

		{"hidepid", nil, syscall.EPERM, Process{}},
		{"hidepid, own user", nil, there, Process{}},
		{"kill is filtered", nil, syscall.ENOSYS, Process{}},
		{"kill is filtered as if there were none", map[string]string{pid + "/": "-"}, syscall.ESRCH, Process{}},
		{"unreadable", map[string]string{pid + "/stat/": "-"}, there, Process{}},
		{"unreadable, permission denied", map[string]string{pid + "/stat/": "-"}, syscall.EPERM, Process{}},
		{"stat is empty", map[string]string{pid + "/stat": "\n"}, there, Process{}},
		{"stat is cut", map[string]string{pid + "/stat": pid + " (x) S 1 2 3"}, there, Process{}},
		{"stat without a name", map[string]string{pid + "/stat": pid + " x S 1"}, there, Process{}},
		{"stat of another pid", map[string]string{pid + "/stat": stat("42", "x", "S", "123456")}, there, Process{}},
		{"start is no number", map[string]string{pid + "/stat": stat(pid, "x", "S", "soon")}, there, Process{}},
		{"start is negative", map[string]string{pid + "/stat": stat(pid, "x", "S", "-5")}, there, Process{}},
		{"start is too large", map[string]string{pid + "/stat": stat(pid, "x", "S", "9223372036854775808")}, there, Process{}},

		{"not mounted", map[string]string{"self@": ""}, syscall.ESRCH, Process{}},
		{"of another namespace", map[string]string{"self/status": "NSpid:\t31999\t" + self + "\n"}, syscall.ESRCH, Process{}},
		{"of another namespace, equal pids", map[string]string{"self/status": "NSpid:\t" + self + "\t" + self + "\n"}, syscall.ESRCH, Process{}},
		{"of another process", map[string]string{"self/status": "NSpid:\t0\n"}, syscall.ESRCH, Process{}},
		{"without NSpid", map[string]string{"self/status": "Pid:\t" + self + "\n"}, syscall.ESRCH, Process{}},

		{"other time namespace", map[string]string{pid + "/stat": stat(pid, "x", "S", "123456"), "self/ns/time@": "time:[" + other + "]"}, there, Process{Present, 0}},
		{"other time namespace, absent", map[string]string{"self/ns/time@": "time:[" + other + "]"}, syscall.ESRCH, Process{Absent, 0}},
		{"no time namespaces", map[string]string{pid + "/stat": stat(pid, "x", "S", "123456"), "self/ns/time@": ""}, there, Process{Present, 123456}},
		{"unreadable time namespace", map[string]string{pid + "/stat": stat(pid, "x", "S", "123456"), "self/ns/time@": "", "self/ns/time": "-"}, there, Process{Present, 0}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := system{proc: fakeProc(t, x.changes), kill: func(have int, signal syscall.Signal) error {
				if have != 4242 || signal != 0 {
					t.Errorf("kill(%d, %d)", have, signal)
				}
				if x.kill == there {
					return nil
				}
				return x.kill
			}}
			if got := s.Process(t.Context(), 4242); got != x.want {
				t.Errorf("%+v, want %+v", got, x.want)
			}
		})
	}
}

func TestSystem_FakeSelf(t *testing.T) {
	t.Parallel()
	all := Holder{Boot: fakeBoot, Namespace: "4026531836", PID: int64(os.Getpid()), Start: 77}
	with := func(change func(*Holder)) Holder {
		h := all
		change(&h)
		return h
	}
	noBoot := with(func(h *Holder) { h.Boot = "" })
	noStart := with(func(h *Holder) { h.Start = 0 })
	noNamespace := with(func(h *Holder) { h.Namespace, h.Start = "", 0 })
	for _, x := range []struct {
		name    string
		changes map[string]string
		want    Holder
	}{
		{"all", nil, all},
		{"no boot id", map[string]string{"sys/kernel/random/boot_id": ""}, noBoot},
		{"empty boot id", map[string]string{"sys/kernel/random/boot_id": "\n"}, noBoot},
		{"boot id of zeros", map[string]string{"sys/kernel/random/boot_id": "00000000-0000-0000-0000-000000000000\n"}, noBoot},
		{"boot id is a time", map[string]string{"sys/kernel/random/boot_id": "1750000000\n"}, noBoot},
		{"no namespaces", map[string]string{"self/ns/pid@": ""}, noNamespace},
		{"namespace of another kind", map[string]string{"self/ns/pid@": "net:[4026531836]"}, noNamespace},
		{"namespace is no number", map[string]string{"self/ns/pid@": "pid:[x]"}, noNamespace},
		{"namespace is cut", map[string]string{"self/ns/pid@": "pid:[40265"}, noNamespace},
		{"no stat", map[string]string{"self/stat": ""}, noStart},
		{"other time namespace", map[string]string{"self/ns/time@": "time:[4026532999]"}, noStart},
		{"foreign", map[string]string{"self/status": "NSpid:\t31999\t1\n"}, Holder{}},
		{"not mounted", map[string]string{"self@": ""}, Holder{}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			if got := (system{proc: fakeProc(t, x.changes)}).self(); got != x.want {
				t.Errorf("%+v, want %+v", got, x.want)
			}
		})
	}
	if got := (system{proc: filepath.Join(t.TempDir(), "none")}).self(); got != (Holder{}) {
		t.Errorf("no directory: %+v", got)
	}
}
