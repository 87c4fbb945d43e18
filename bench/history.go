package main

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/tests/harness"
)

// history is one repository with a history, in a directory for git http-backend
// and pushed to the shared server.
type history struct {
	name    string
	tip     string // of main
	dir     string // the peer's
	objects int
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

// filePath is where a history has its file number i.
func filePath(i int) string { return fmt.Sprintf("src/d%02d/e%02d/file%04d.txt", i%20, i/20%20, i) }

// stream writes a history for git fast-import: a first commit with files, then
// commits that change one file each.
func stream(seed uint64, files, commits int) string {
	w := newWords(seed)
	var out strings.Builder
	contents := make([][]string, files)
	put := func(i int) {
		text := strings.Join(contents[i], "")
		fmt.Fprintf(&out, "M 100644 inline %s\ndata %d\n%s\n", filePath(i), len(text), text)
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

// tiny is a repository of a few files.
func (b *bench) tiny() (history, error) { return b.history("tiny", 3, 1) }

// large is a repository of 4,000 files and, in a whole run, 100,000 objects.
func (b *bench) large() (history, error) { return b.history("large", 4000, b.size(19000, 2000)) }

// history makes a repository with git the first time that it is asked for.
func (b *bench) history(name string, files, commits int) (history, error) {
	if h, ok := b.histories[name]; ok {
		return h, nil
	}
	h := history{name: name, dir: filepath.Join(b.root, name+".git")}
	if _, err := git(b.root, "", "init", "-q", "--bare", name+".git"); err != nil {
		return h, err
	}
	if _, err := git(h.dir, stream(uint64(files), files, commits), "fast-import", "--quiet"); err != nil {
		return h, err
	}
	err := b.publish(&h)
	b.histories[name] = h
	return h, err
}

// publish brings the peer's repository into the shape that serves git best and
// pushes it to the shared server.
func (b *bench) publish(h *history) error {
	if err := tidy(h.dir); err != nil {
		return err
	}
	var err error
	if h.tip, err = git(h.dir, "", "rev-parse", "refs/heads/main"); err != nil {
		return err
	}
	count, err := git(h.dir, "", "rev-list", "--all", "--objects", "--count")
	if err != nil {
		return err
	}
	if h.objects, err = strconv.Atoi(count); err != nil {
		return err
	}
	s, err := b.cairn()
	if err != nil {
		return err
	}
	if err := s.CreateRepo(h.name); err != nil {
		return err
	}
	_, err = git(h.dir, "", "push", "-q", s.Remote(harness.Grant{Repo: h.name}, ""), "main")
	return err
}

// tidy brings a repository into the shape that serves git best.
func tidy(dir string) error {
	for _, args := range [][]string{
		{"repack", "-adq", "--write-bitmap-index"},
		{"commit-graph", "write", "--reachable"},
		{"pack-refs", "--all"},
	} {
		if _, err := git(dir, "", args...); err != nil {
			return err
		}
	}
	return nil
}
