package patch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/patch"
	"github.com/cairnstate/cairn/internal/task"
	"github.com/cairnstate/cairn/internal/testkit"
)

// applied applies a patch and returns what it changes, in lines.
func (w *world) applied(t *testing.T, tree object.ID, text string) ([]string, error) {
	t.Helper()
	ctx := context.Background()
	scratch := t.TempDir()
	room := gitcmd.NewRoom(scratch)
	a, err := patch.Apply(ctx, patch.Application{DB: w.db, Tree: tree, Patch: strings.NewReader(text), Git: program, Room: room})
	defer func() {
		if err := room.Close(); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
			t.Fatalf("left behind: %v, %v", left, err)
		}
	}()
	if err != nil {
		return nil, err
	}
	defer a.Close()
	var lines []string
	for _, c := range a.Changes {
		lines = append(lines, fmt.Sprintf("%s %s %q", c.Now.Mode, c.Now.ID, c.Path))
		if c.Now.Mode == 0 || c.Now.Mode == object.ModeSubmodule || !a.Wrote(c.Now.ID) {
			continue
		}
		size, content, err := a.Content(ctx, c.Now.ID)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(content)
		if err := errors.Join(err, content.Close()); err != nil {
			t.Fatal(err)
		}
		if int64(len(data)) != size || object.Hash(object.Blob, data) != c.Now.ID {
			t.Fatalf("content %s has another hash", c.Now.ID)
		}
	}
	slices.Sort(lines)
	return lines, nil
}

// differs lists what git says differs.
func (w *world) differs(t *testing.T, a, b string) []string {
	t.Helper()
	out, err := w.git.Try(nil, "diff-tree", "-r", "-z", "--raw", "--no-renames", a, b)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	fields := strings.Split(string(out), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		head := strings.Fields(fields[i])
		lines = append(lines, fmt.Sprintf("%s %s %q", head[1], head[3], fields[i+1]))
	}
	slices.Sort(lines)
	return lines
}

// cached is what git apply --cached makes of a tree.
func (w *world) cached(t *testing.T, tree object.ID, text string) (string, error) {
	t.Helper()
	index := "GIT_INDEX_FILE=" + filepath.Join(t.TempDir(), "index")
	git := func(in string, args ...string) (string, error) {
		out, err := w.git.Try([]byte(in), append([]string{"-c", "alias.x=!f() { " + index + " git \"$@\"; }; f", "x"}, args...)...)
		return strings.TrimSpace(string(out)), err
	}
	if _, err := git("", "read-tree", tree.String()); err != nil {
		t.Fatal(err)
	}
	if _, err := git(text, "apply", "--cached", "--binary", "--whitespace=nowarn"); err != nil {
		return "", err
	}
	return git("", "write-tree")
}

// damage changes something of a patch.
func (r maker) damage(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for range 1 + r.IntN(2) {
		at := r.IntN(len(lines))
		switch r.IntN(7) {
		case 0:
			lines = slices.Delete(lines, at, min(len(lines), at+1+r.IntN(3)))
		case 1:
			lines = slices.Insert(lines, at, lines[r.IntN(len(lines))])
		case 2:
			lines = lines[:at]
		case 3:
			to := r.IntN(len(lines))
			lines[at], lines[to] = lines[to], lines[at]
		case 4:
			if n := len(lines[at]); n > 0 {
				b := []byte(lines[at])
				b[r.IntN(n)] = " +-@\\/a\n\t9"[r.IntN(10)]
				lines[at] = string(b)
			}
		case 5:
			lines = append(lines, lines...)
		default:
			lines = slices.Insert(lines, at, "some words\n", "\n")
		}
		if len(lines) == 0 {
			return ""
		}
	}
	return strings.Join(lines, "")
}

// plain takes away what only git writes.
func plain(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "diff --git ") && !strings.HasPrefix(line, "index ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestRandomApplications applies patches, whole and damaged, as git does.
func TestRandomApplications(t *testing.T) {
	pairs := 50
	if testkit.Soaking() {
		pairs = 1000
	}
	r := maker{rand.New(rand.NewPCG(testkit.Seed(t), 2))}
	var trees []tree
	for range pairs {
		old, now := r.pair()
		trees = append(trees, old, now)
	}
	w := load(t, trees)
	same, refused := 0, 0
	for i := range pairs {
		a, b := w.trees[2*i], w.trees[2*i+1]
		text := all(w.compare(t, patch.Comparison{Old: a, New: b, Exact: true}))
		if text == "" {
			continue
		}
		got, err := w.applied(t, a, text)
		if want := w.differs(t, a.String(), b.String()); err != nil || !slices.Equal(got, want) {
			t.Fatalf("pair %d: %v\n%s\nwant\n%s\n%q", i, err, strings.Join(got, "\n"), strings.Join(want, "\n"), text)
		}
		for k := range 3 {
			broken := r.damage(text)
			if k == 2 {
				broken = plain(text)
			}
			got, err := w.applied(t, a, broken)
			tree, lost := w.cached(t, a, broken)
			if err != nil && lost == nil && strings.Contains(err.Error(), "binary") {
				continue // git takes broken binary contents for none
			}
			if (err == nil) != (lost == nil) {
				t.Fatalf("pair %d: %v; git says %v\n%q", i, err, lost, broken)
			}
			if err != nil {
				refused++
				if !isRefusal(err) {
					t.Fatalf("pair %d: %v", i, err)
				}
				continue
			}
			same++
			if want := w.differs(t, a.String(), tree); !slices.Equal(got, want) {
				t.Fatalf("pair %d:\n%s\nwant\n%s\n%q", i, strings.Join(got, "\n"), strings.Join(want, "\n"), broken)
			}
		}
	}
	if same < pairs/10 || refused < pairs/10 {
		t.Errorf("%d damaged patches applied and %d did not", same, refused)
	}
	t.Logf("damaged patches: %d applied, %d refused", same, refused)
}

func isRefusal(err error) bool {
	var (
		bad      *patch.MalformedError
		path     *patch.PathError
		conflict *patch.ConflictError
		limit    *task.LimitError
	)
	return errors.As(err, &bad) || errors.As(err, &path) || errors.As(err, &conflict) || errors.As(err, &limit)
}

// TestBrokenBinary breaks the content of a binary file: git passes over the file
// and all that follow it, and applies those before. Here nothing is applied.
func TestBrokenBinary(t *testing.T) {
	blob := "\x00binary " + strings.Repeat("content ", 40)
	w := load(t, []tree{
		{"a": {"100644", "1\n"}, "b": {"100644", blob}, "c": {"100644", "1\n"}},
		{"a": {"100644", "2\n"}, "b": {"100644", blob + "more"}, "c": {"100644", "2\n"}},
	})
	text := all(w.compare(t, patch.Comparison{Old: w.trees[0], New: w.trees[1], Exact: true}))
	if got, err := w.applied(t, w.trees[0], text); err != nil || len(got) != 3 {
		t.Fatalf("whole: %q, %v\n%s", got, err, text)
	}
	begin := strings.Index(text, "GIT binary patch\n")
	end := begin + strings.Index(text[begin:], "diff --git a/c")
	partly := 0
	for at := begin + len("GIT binary patch\n"); at < end; at++ {
		broken := []byte(text)
		if broken[at]++; text[at] == '\n' {
			continue
		}
		got, err := w.applied(t, w.trees[0], string(broken))
		tree, lost := w.cached(t, w.trees[0], string(broken))
		if err == nil && (lost != nil || !slices.Equal(got, w.differs(t, w.trees[0].String(), tree))) {
			t.Errorf("byte %d: applied to %q, and git says %v", at, got, lost)
		}
		if err != nil && !isRefusal(err) {
			t.Errorf("byte %d: %v", at, err)
		}
		if err == nil && len(got) < 3 {
			t.Errorf("byte %d: applied to %q only", at, got)
		}
		if err != nil && lost == nil {
			partly++
		}
	}
	if partly == 0 {
		t.Error("git applied none of the broken patches in part")
	}
}
