package main

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cairnstate/cairn/tests/harness"
)

// fixture is one repository, in a directory for git http-backend and pushed to
// Cairn.
type fixture struct {
	name string
	tip  string // of main
}

// git runs git in dir and returns what it printed.
func git(dir, input string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, harness.GitEnv(dir), strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// words makes text that compresses and differs as source code does.
type words struct {
	*rand.Rand
	vocabulary []string
}

func newWords(seed uint64) words {
	r := rand.New(rand.NewPCG(seed, 1))
	w := words{Rand: r}
	for range 4000 {
		b := make([]byte, 2+r.IntN(9))
		for i := range b {
			b[i] = byte('a' + r.IntN(26))
		}
		w.vocabulary = append(w.vocabulary, string(b))
	}
	return w
}

func (w words) line() string {
	var b strings.Builder
	for range 3 + w.IntN(9) {
		b.WriteString(w.vocabulary[w.IntN(len(w.vocabulary))])
		b.WriteByte(' ')
	}
	b.WriteByte('\n')
	return b.String()
}

// stream writes a history for git fast-import: a first commit with files, then
// commits that change one file each.
func stream(seed uint64, files, commits int) string {
	w := newWords(seed)
	var out strings.Builder
	contents := make([][]string, files)
	put := func(i int) {
		text := strings.Join(contents[i], "")
		fmt.Fprintf(&out, "M 100644 inline src/d%02d/e%02d/file%04d.txt\ndata %d\n%s\n", i%20, i/20%20, i, len(text), text)
	}
	head := func(n int) {
		message := "Commit " + w.line()
		fmt.Fprintf(&out, "commit refs/heads/main\ncommitter Agent <agent@example.com> %d +0000\ndata %d\n%s\n", 1600000000+n*60, len(message), message)
	}
	head(0)
	for i := range files {
		for range 5 + w.IntN(120) {
			contents[i] = append(contents[i], w.line())
		}
		put(i)
	}
	for n := range commits {
		head(n + 1)
		i := w.IntN(files)
		contents[i][w.IntN(len(contents[i]))] = w.line()
		put(i)
	}
	return out.String()
}

// makeFixture makes a repository with git, in the shape that serves git best, and
// pushes it to Cairn.
func makeFixture(b *bench, name string, files, commits int) (fixture, error) {
	f := fixture{name: name}
	if _, err := git(b.root, "", "init", "-q", "--bare", name+".git"); err != nil {
		return f, err
	}
	dir := filepath.Join(b.root, name+".git")
	steps := [][]string{
		{"fast-import", "--quiet"},
		{"repack", "-adq", "--write-bitmap-index"},
		{"commit-graph", "write", "--reachable"},
		{"pack-refs", "--all"},
	}
	input := stream(uint64(files), files, commits)
	for _, args := range steps {
		if _, err := git(dir, input, args...); err != nil {
			return f, err
		}
		input = ""
	}
	var err error
	if f.tip, err = git(dir, "", "rev-parse", "refs/heads/main"); err != nil {
		return f, err
	}
	if err := b.cairn.CreateRepo(name); err != nil {
		return f, err
	}
	_, err = git(dir, "", "push", "-q", b.cairn.Remote(harness.Grant{Repo: name}, ""), "main")
	return f, err
}
