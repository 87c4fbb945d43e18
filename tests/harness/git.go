package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Git runs stock git in one directory with nothing of the machine's own
// configuration.
type Git struct {
	Dir string
	Env []string // NAME=value, after the clean ones
	tb  testing.TB
}

// GitEnv is a clean environment for git with home as its home directory.
func GitEnv(home string) []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "LC_ALL=C",
		"GIT_AUTHOR_NAME=Sandbox worker", "GIT_AUTHOR_EMAIL=worker@example.com", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=Sandbox worker", "GIT_COMMITTER_EMAIL=worker@example.com", "GIT_COMMITTER_DATE=1700000000 +0000",
		"GIT_CONFIG_COUNT=4", "GIT_CONFIG_KEY_0=init.defaultBranch", "GIT_CONFIG_VALUE_0=main",
		"GIT_CONFIG_KEY_1=gc.auto", "GIT_CONFIG_VALUE_1=0", "GIT_CONFIG_KEY_2=advice.detachedHead", "GIT_CONFIG_VALUE_2=false",
		"GIT_CONFIG_KEY_3=protocol.version", "GIT_CONFIG_VALUE_3=2",
	}
}

// NewGit returns a runner in a fresh directory.
func NewGit(tb testing.TB, env ...string) Git {
	tb.Helper()
	dir := tb.TempDir()
	return Git{Dir: dir, Env: append(GitEnv(dir), env...), tb: tb}
}

// In returns a runner in another directory: absolute, or below this one.
func (g Git) In(dir string) Git {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(g.Dir, dir)
	}
	g.Dir = dir
	return g
}

// With returns a runner with further variables.
func (g Git) With(env ...string) Git {
	g.Env = append(slices.Clone(g.Env), env...)
	return g
}

// Protocol returns a runner that speaks a version of the protocol.
func (g Git) Protocol(version int) Git {
	return g.With(fmt.Sprintf("GIT_CONFIG_VALUE_3=%d", version))
}

// Try runs git and returns what it printed on both outputs.
func (g Git) Try(args ...string) (string, error) {
	return g.TryInput("", args...)
}

// TryInput is Try with a standard input.
func (g Git) TryInput(input string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = g.Dir, g.Env, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Run runs git, which must succeed, and returns its standard output without the
// space around it.
func (g Git) Run(args ...string) string {
	g.tb.Helper()
	return g.Input("", args...)
}

// Input is Run with a standard input.
func (g Git) Input(input string, args ...string) string {
	g.tb.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = g.Dir, g.Env, strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		g.tb.Fatalf("git %s: %v\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// Shell runs lines with sh -e in the runner's directory and environment; vars are
// further variables. It returns both outputs.
func (g Git) Shell(lines string, vars ...string) (string, error) {
	cmd := exec.Command("/bin/sh", "-ec", lines)
	cmd.Dir, cmd.Env = g.Dir, append(slices.Clone(g.Env), vars...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Write makes a file below the runner's directory.
func (g Git) Write(path, content string) {
	g.tb.Helper()
	full := filepath.Join(g.Dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		g.tb.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		g.tb.Fatal(err)
	}
}

// Save writes a file, commits it and returns the commit.
func (g Git) Save(path, content string) string {
	g.tb.Helper()
	g.Write(path, content)
	g.Run("add", "--", path)
	g.Run("commit", "-q", "-m", "Change "+path)
	return g.Run("rev-parse", "HEAD")
}

// Refs lists refs and their objects, one "object name" a line, sorted by name.
func (g Git) Refs(patterns ...string) []string {
	g.tb.Helper()
	out := g.Run(append([]string{"for-each-ref", "--format=%(objectname) %(refname)"}, patterns...)...)
	if out == "" {
		return nil
	}
	return strings.Split(out, "\n")
}

// Objects lists every object in the repository, loose or packed, sorted.
func (g Git) Objects() []string {
	g.tb.Helper()
	out := g.Run("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype) %(objectsize)")
	if out == "" {
		return nil
	}
	return strings.Split(out, "\n")
}

// Fsck runs the strictest check of the whole repository.
func (g Git) Fsck() {
	g.tb.Helper()
	if out, err := g.Try("fsck", "--full", "--strict", "--no-dangling"); err != nil {
		g.tb.Fatalf("git fsck in %s: %v\n%s", g.Dir, err, out)
	}
}
