package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// makeWorktrees makes a repository with one commit, and n worktrees of it.
func makeWorktrees(ctx context.Context, dir string, n int) ([]string, error) {
	repo := filepath.Join(dir, "repo")
	if err := os.Mkdir(repo, 0o700); err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"init", "-q"}, {"commit", "-q", "--allow-empty", "-m", "begin"}} {
		if err := git(ctx, repo, args...); err != nil {
			return nil, err
		}
	}
	var paths []string
	for i := range n {
		path := filepath.Join(dir, fmt.Sprint("worktree-", i))
		if err := git(ctx, repo, "worktree", "add", "-q", "--detach", path); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// commit writes a file in a worktree and commits it.
func commit(ctx context.Context, path, name, text string) error {
	if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o600); err != nil {
		return err
	}
	if err := git(ctx, path, "add", name); err != nil {
		return err
	}
	return git(ctx, path, "commit", "-q", "-m", text)
}

// git runs git in a folder, with no settings of the user or the system.
func git(ctx context.Context, dir string, args ...string) error {
	_, err := gitOutput(ctx, dir, args...)
	return err
}

func gitOutput(ctx context.Context, dir string, args ...string) (string, error) {
	settings := []string{"-c", "user.name=worker", "-c", "user.email=worker@localhost", "-c", "commit.gpgsign=false", "-c", "core.hooksPath=" + os.DevNull}
	cmd := exec.CommandContext(ctx, "git", append(settings, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
