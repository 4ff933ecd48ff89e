package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/allocator"
)

// story is what happens, and what was seen.
type story struct {
	start time.Time
	print sync.Mutex
	out   io.Writer

	mu     sync.Mutex
	events []event
	more   chan struct{} // closed, and made anew, with each event
}

func newStory(out io.Writer) *story {
	return &story{out: out, start: time.Now(), more: make(chan struct{})}
}

func (s *story) tell(format string, args ...any) {
	s.print.Lock()
	defer s.print.Unlock()
	fmt.Fprintf(s.out, "%5.1f s  %s\n", time.Since(s.start).Seconds(), fmt.Sprintf(format, args...))
}

// saw takes an event.
func (s *story) saw(e event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	note := ""
	if e.Note != "" {
		note = ": " + e.Note
	}
	s.tell("%-4s %s worktree %d with epoch %d%s", e.Worker, e.What, e.Slot, e.Epoch, note)
	close(s.more)
	s.more = make(chan struct{})
}

// until waits for an event, an earlier one too.
func (s *story) until(ctx context.Context, what func(event) bool) (event, error) {
	for {
		s.mu.Lock()
		at := slices.IndexFunc(s.events, what)
		more := s.more
		var e event
		if at >= 0 {
			e = s.events[at]
		}
		s.mu.Unlock()
		if at >= 0 {
			return e, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return event{}, ctx.Err()
		}
	}
}

// process is a worker that runs.
type process struct {
	cmd  *exec.Cmd
	read sync.WaitGroup
}

// begin starts a worker: this program again.
func (s *story) begin(ctx context.Context, name, db string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), workerName+"="+name, workerDB+"="+db)
	p.cmd.Stderr = os.Stderr
	lines, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.read.Go(func() {
		for in := bufio.NewScanner(lines); in.Scan(); {
			var e event
			if json.Unmarshal(in.Bytes(), &e) == nil {
				s.saw(e)
			}
		}
	})
	return p, nil
}

// end waits for a worker. Only then is a killed one gone: before, the system still knows its pid.
func (p *process) end() error {
	p.read.Wait()
	return p.cmd.Wait()
}

// play starts the workers, kills one, and stops another for longer than its lease lives.
func (s *story) play(ctx context.Context, db string) (err error) {
	all := map[string]*process{}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		for _, w := range all {
			_ = w.end()
		}
	}()
	for _, name := range workers {
		if all[name], err = s.begin(ctx, name, db); err != nil {
			delete(all, name)
			return err
		}
	}
	var troubles sync.WaitGroup
	var errs [2]error
	troubles.Go(func() { errs[0] = s.kill(ctx, all[killed]) })
	troubles.Go(func() { errs[1] = s.pause(ctx, all[stopped]) })
	troubles.Wait()
	delete(all, killed)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	for _, name := range workers {
		if w := all[name]; w != nil {
			delete(all, name)
			err = errors.Join(err, w.end())
		}
	}
	return err
}

func (s *story) kill(ctx context.Context, w *process) error {
	e, err := s.until(ctx, func(e event) bool { return e.Worker == killed && e.What == took })
	if err != nil {
		return err
	}
	if err := w.cmd.Process.Kill(); err != nil {
		return err
	}
	s.tell("%-4s is killed, with worktree %d in its hands", killed, e.Slot)
	_ = w.end()
	return nil
}

// pause stops a worker until its lease is over and another one has the worktree.
func (s *story) pause(ctx context.Context, w *process) error {
	e, err := s.until(ctx, func(e event) bool { return e.Worker == stopped && e.What == took })
	if err != nil {
		return err
	}
	if err := signalStop(w.cmd.Process); err != nil {
		return err
	}
	s.tell("%-4s is stopped, with worktree %d in its hands, and does not know it", stopped, e.Slot)
	if _, err := s.until(ctx, func(o event) bool { return o.Slot == e.Slot && o.Epoch > e.Epoch && o.What == took }); err != nil {
		return errors.Join(err, signalContinue(w.cmd.Process))
	}
	s.tell("%-4s goes on", stopped)
	return signalContinue(w.cmd.Process)
}

// report prints who held what, and checks it.
func (s *story) report(ctx context.Context, p *allocator.Pool, dir string) error {
	bySlot := make([][]allocator.LeaseState, worktrees)
	for l, err := range p.Leases(ctx, true) {
		if err != nil {
			return err
		}
		bySlot[l.Slots[0]] = append(bySlot[l.Slots[0]], l)
	}
	var wrong []error
	for i, list := range bySlot {
		fmt.Fprintf(s.out, "\nworktree %d\n", i)
		wrong = append(wrong, s.list(list))
	}
	wrong = append(wrong, s.checkRefusal(), checkCommits(ctx, dir))
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	fmt.Fprintln(s.out, "\nno worktree was ever held by two at once, and what came late was refused")
	return nil
}

// list prints the leases of one worktree, by epoch, and finds two at once.
func (s *story) list(list []allocator.LeaseState) error {
	var until time.Time
	for _, l := range list {
		if l.Status != allocator.LeaseEnded {
			return fmt.Errorf("%s still has its lease", l.Attempt)
		}
		fmt.Fprintf(s.out, "  epoch %2d  %-6s  %5.1f s to %5.1f s  %s\n",
			l.Epoch, l.Attempt, l.AcquiredAt.Sub(s.start).Seconds(), l.End.At.Sub(s.start).Seconds(), l.End.Reason)
		if l.AcquiredAt.Before(until) {
			return fmt.Errorf("%s got the worktree before the one before gave it back", l.Attempt)
		}
		until = l.End.At
	}
	return nil
}

func (s *story) checkRefusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.events, func(e event) bool { return e.Worker == stopped && e.What == refused }) {
		return errors.New("the late commit was not refused")
	}
	return nil
}

// checkCommits looks into each worktree's log: the epochs only rise.
func checkCommits(ctx context.Context, dir string) error {
	for i := range worktrees {
		log, err := gitOutput(ctx, fmt.Sprintf("%s/worktree-%d", dir, i), "log", "--reverse", "--format=%s")
		if err != nil {
			return err
		}
		last := uint64(0)
		for line := range strings.Lines(log) {
			var attempt string
			var epoch uint64
			if n, _ := fmt.Sscanf(line, "%s with epoch %d", &attempt, &epoch); n < 2 {
				continue // the first commit
			}
			if epoch <= last {
				return fmt.Errorf("worktree %d: epoch %d was committed after %d", i, epoch, last)
			}
			last = epoch
		}
	}
	return nil
}
