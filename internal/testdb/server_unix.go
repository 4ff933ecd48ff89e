//go:build unix

package testdb

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// script makes a cluster in the directory $1 with the programs in $2, and runs it until descriptor 3 is at its end: the
// test process alone holds the other end, and loses it however it ends. Then server and directory go. Clients prove who
// they are by the method $3; the password is in the file input.
//
// The server may just have been started then. Before it handles signals, TERM ends it, while QUIT is ignored, as by all
// that a shell runs in the background; afterwards QUIT ends it without waiting for its clients. If it has ended by
// itself, the directory is gone, and its number may be another process's.
const script = `
if "$2/initdb" -D "$1/data" -U postgres -A "$3" --pwfile=input -E UTF8 --locale=C --no-sync; then
	"$2/postgres" -D "$1/data" -k "$1" -p 5432 -c listen_addresses= 3<&- &
	server=$!
	{ read -r _; [ -d "$1" ] && kill -TERM $server && kill -QUIT $server; } <&3 &
	wait $server
fi
rm -rf "$1"
`

const (
	trust    = "trust"
	scram    = "scram-sha-256"
	password = "correct-horse-battery-staple" // of the user postgres, on a server that asks for one
)

// start starts a server that only this user and root can reach, through a socket in a directory of its own. debian is
// where to look for its programs besides PATH, auth how it wants its clients to prove who they are.
//
// Most of its second is initdb. To copy a directory made once takes a tenth of that, but it would have to be kept, and
// kept from other versions, users and processes.
func start(debian, auth string) (server, error) {
	bin, err := programs(debian)
	if err != nil {
		return server{}, err
	}
	c, err := launch(script, password, bin, auth)
	if err != nil {
		return server{}, fmt.Errorf("testdb: start Postgres: %w", err)
	}
	s := server{c.dsn(5432) + " dbname=postgres password=" + password, c}
	if err := c.answers(s); err != nil {
		return server{}, fmt.Errorf("testdb: start Postgres: %w", err)
	}
	return s, nil
}

// programs returns the directory of initdb and postgres: on PATH, else the newest in the pattern of Debian.
func programs(debian string) (string, error) {
	installed, _ := filepath.Glob(debian)
	major := func(dir string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		return n
	}
	slices.SortFunc(installed, func(a, b string) int { return cmp.Compare(major(b), major(a)) })
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), installed...) {
		_, err := exec.LookPath(filepath.Join(dir, "initdb"))
		_, err2 := exec.LookPath(filepath.Join(dir, "postgres"))
		if filepath.IsAbs(dir) && err == nil && err2 == nil {
			return dir, nil
		}
	}
	return "", ErrMissing
}

// run is a run of a script that starts a server.
type run struct {
	dir       string
	log, life *os.File
	shell     *exec.Cmd
}

// launch begins to run a script in a new directory, which is its first argument. Its user may be another one than that of
// this process. input is in the file of that name.
func launch(script, input string, args ...string) (_ *run, err error) {
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	parent := "" // the temporary directory
	if as != nil {
		parent = "/tmp" // open to every user
	}
	c := new(run)
	if c.dir, err = os.MkdirTemp(parent, "stint-postgres-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(c.dir)
		}
	}()
	if err := os.WriteFile(filepath.Join(c.dir, "input"), []byte(input), 0o644); err != nil { // the directory is closed to others
		return nil, err
	}
	if as != nil {
		if err := os.Chown(c.dir, int(as.Uid), int(as.Gid)); err != nil {
			return nil, err
		}
	}
	if c.log, err = os.Create(filepath.Join(c.dir, "log")); err != nil {
		return nil, err
	}
	end, life, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer end.Close()
	c.life = life
	c.shell = exec.Command("/bin/sh", "-c", script, "testdb", c.dir)
	c.shell.Args = append(c.shell.Args, args...)
	c.shell.Dir, c.shell.Stdout, c.shell.Stderr, c.shell.ExtraFiles = c.dir, c.log, c.log, []*os.File{end}
	c.shell.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PG") }), "LC_ALL=C")
	c.shell.SysProcAttr = &syscall.SysProcAttr{Credential: as, Setsid: true} // a session of its own: ^C is not for it
	return c, c.shell.Start()
}

// unprivileged is the user to run a server as, which refuses root; nil is the user of this process.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, err := strconv.ParseUint(u.Uid, 10, 32)
			gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err, err2)
		}
	}
	return nil, errors.New("it refuses root, and there is neither a user postgres nor nobody")
}

// dsn is that of a server with its socket in the run's directory, and of no database.
func (c *run) dsn(port int) string {
	host := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(c.dir)
	return fmt.Sprintf("host='%s' port=%d user=postgres sslmode=disable", host, port)
}

// answers waits until the server answers. It ends the run if the server does not.
func (c *run) answers(s server) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := s.exec("")
		if err == nil {
			return c.log.Close()
		}
		if _, gone := os.Stat(c.dir); gone != nil || time.Now().After(end) {
			return fmt.Errorf("%w\n%s", err, c.stop())
		}
	}
}

// Close ends the run.
func (c *run) Close() error {
	c.stop()
	return nil
}

// stop ends the run and returns what it wrote.
func (c *run) stop() []byte {
	defer c.log.Close()
	c.life.Close()
	_ = c.shell.Wait()
	_, _ = c.log.Seek(0, io.SeekStart)
	text, _ := io.ReadAll(c.log)
	return text
}
