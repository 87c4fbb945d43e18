package patch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/patch"
	"github.com/cairnstate/cairn/internal/testkit"
)

func (w *world) compare(t *testing.T, c patch.Comparison) *patch.Diff {
	t.Helper()
	scratch := t.TempDir()
	c.DB, c.Git, c.Room = w.db, program, gitcmd.NewRoom(scratch)
	d, err := patch.Compare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Room.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Fatalf("left behind: %v, %v", left, err)
	}
	return d
}

// all is the patch of all files.
func all(d *patch.Diff) string {
	var b strings.Builder
	for _, f := range d.Files {
		b.Write(f.Patch)
	}
	return b.String()
}

// apply applies a patch in a working tree and returns the tree that it makes.
func (w *world) apply(t *testing.T, old object.ID, patch string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	git := func(input string, args ...string) (string, error) {
		cmd := exec.Command("git", append([]string{"--git-dir=" + w.git.Dir, "--work-tree=" + dir, "-c", "core.bare=false"}, args...)...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_INDEX_FILE=" + filepath.Join(w.git.Dir, "test-index"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"}
		cmd.Stdin = strings.NewReader(input)
		out, err := cmd.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("git %v: %w\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out)), err
	}
	for _, step := range [][]string{{"read-tree", old.String()}, {"checkout-index", "-a", "-f"}, {"update-index", "-q", "--refresh"}} {
		if _, err := git("", step...); err != nil {
			t.Fatal(err)
		}
	}
	if patch != "" {
		if _, err := git(patch, "apply", "--index", "--whitespace=nowarn", "-"); err != nil {
			return "", err
		}
	}
	return git("", "write-tree")
}

// counts spells a diff as git diff --numstat does, in the order of paths.
func counts(d *patch.Diff) []string {
	var lines []string
	for _, list := range [][]patch.File{d.Files, d.Filtered} {
		for _, f := range list {
			line := fmt.Sprintf("%d\t%d", f.Additions, f.Deletions)
			if f.Binary {
				line = "-\t-"
			}
			lines = append(lines, fmt.Sprintf("%s\t%q %q", line, f.Old, f.Path))
		}
	}
	slices.Sort(lines)
	return lines
}

// numstat is what git counts.
func (w *world) numstat(t *testing.T, a, b object.ID, options ...string) []string {
	t.Helper()
	out, err := w.git.Try(nil, append(append([]string{"diff-tree", "-r", "-z", "-C", "--numstat"}, options...), a.String(), b.String())...)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	fields := strings.Split(string(out), "\x00")
	for i := 0; i+1 < len(fields); i++ {
		n := strings.LastIndexByte(fields[i][:strings.IndexByte(fields[i], '\t')+1+strings.IndexByte(fields[i][strings.IndexByte(fields[i], '\t')+1:], '\t')+1], '\t')
		head, path, old := fields[i][:n], fields[i][n+1:], ""
		if path == "" {
			old, path = fields[i+1], fields[i+2]
			i += 2
		}
		lines = append(lines, fmt.Sprintf("%s\t%q %q", head, old, path))
	}
	slices.Sort(lines)
	return lines
}

// TestRandomPairs compares trees at random: what is made for applying makes the
// other tree, and the counts are git's.
func TestRandomPairs(t *testing.T) {
	pairs := 150
	if testkit.Soaking() {
		pairs = 1000
	}
	seed := testkit.Seed(t)
	r := maker{rand.New(rand.NewPCG(seed, 1))}
	var trees []tree
	for range pairs {
		old, now := r.pair()
		trees = append(trees, old, now)
	}
	w := load(t, trees)
	states := map[byte]int{}
	for i := range pairs {
		a, b := w.trees[2*i], w.trees[2*i+1]
		d := w.compare(t, patch.Comparison{Old: a, New: b, Exact: true})
		text := all(d)
		if len(d.Filtered) > 0 || !utf8.ValidString(text) {
			t.Fatalf("pair %d: filtered %v", i, d.Filtered)
		}
		for _, f := range d.Files {
			states[f.State[0]]++
		}
		got, err := w.apply(t, a, text)
		if err != nil || got != b.String() {
			t.Fatalf("pair %d: made %s, want %s: %v\n%.4000q", i, got, b, err, text)
		}
		plain := w.compare(t, patch.Comparison{Old: a, New: b})
		if got, want := counts(plain), w.numstat(t, a, b, "-b"); !slices.Equal(got, want) {
			t.Fatalf("pair %d: counts\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if plain.Stats.Files != len(plain.Files)+len(plain.Filtered) {
			t.Fatalf("pair %d: %+v", i, plain.Stats)
		}
		want := w.git.Run("diff-tree", "-r", "-p", "-C", "--full-index", "--binary", a.String(), b.String())
		if utf8.ValidString(want) && want != strings.TrimSpace(text) {
			t.Fatalf("pair %d: the patch is\n%q\nwant\n%q", i, text, want)
		}
	}
	for _, s := range "AMDRCT" {
		if states[byte(s)] == 0 {
			t.Errorf("no file of state %c in %v", s, states)
		}
	}
	t.Logf("states %v", states)
}
