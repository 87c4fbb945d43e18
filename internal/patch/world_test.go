package patch_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/repo/repotest"
)

var program = gitcmd.New(gitcmd.Config{})

// file is what a tree has at a path.
type file struct{ mode, text string }

type tree map[string]file

// names are file names at random, among them those that break programs.
var odd = []string{"a b", "ünïcode", "-dash", "tab\tname", "quo\"te", "back\\slash", "new\nline", "x.", "a-", "a.", "*", "%2e", "[x]", "\xffbytes", "b/b", "diff --git a b"}

type maker struct{ *rand.Rand }

func (r maker) path() string {
	var parts []string
	for range r.IntN(3) {
		parts = append(parts, fmt.Sprintf("d%d", r.IntN(3)))
	}
	name := fmt.Sprintf("f%d", r.IntN(15))
	if r.IntN(6) == 0 {
		name = odd[r.IntN(len(odd))]
	}
	return strings.Join(append(parts, name), "/")
}

// lines is text, sometimes with a few bytes of another encoding, other line
// endings, or without a last line break.
func (r maker) lines(n int) string {
	var b strings.Builder
	end := "\n"
	if r.IntN(8) == 0 {
		end = "\r\n"
	}
	for range n {
		fmt.Fprintf(&b, "%*s%d%s", r.IntN(3), "", r.IntN(40), end)
		if r.IntN(60) == 0 {
			b.WriteString("-- a/x\n++ b/x\ndiff --git a/x b/x\n")
		}
		if r.IntN(80) == 0 {
			b.WriteString("gr\xfcn \xc3\xbc\n")
		}
	}
	if r.IntN(6) == 0 {
		return strings.TrimSuffix(b.String(), end)
	}
	return b.String()
}

func (r maker) binary() string {
	b := make([]byte, 1+r.IntN(3000))
	for i := range b {
		b[i] = byte(r.IntN(200))
	}
	b[0] = 0
	return string(b)
}

func (r maker) file() file {
	switch r.IntN(12) {
	case 0:
		return file{"120000", fmt.Sprintf("../target%d", r.IntN(5))}
	case 1, 2:
		return file{"100644", r.binary()}
	case 3:
		return file{"100755", r.lines(r.IntN(30))}
	case 4:
		return file{"100644", ""}
	}
	return file{"100644", r.lines(r.IntN(60))}
}

// put lays a file at a path; what is in its way goes.
func (t tree) put(path string, f file) {
	for p := range t {
		if strings.HasPrefix(p, path+"/") || strings.HasPrefix(path, p+"/") {
			delete(t, p)
		}
	}
	t[path] = f
}

// edit changes some of a text.
func (r maker) edit(f file) file {
	if f.mode == "120000" {
		return file{f.mode, f.text + "x"}
	}
	if strings.HasPrefix(f.text, "\x00") {
		b := []byte(f.text)
		for range 3 {
			b[r.IntN(len(b))] = byte(r.IntN(256))
		}
		return file{f.mode, string(b) + r.binary()[:1]}
	}
	lines := strings.SplitAfter(f.text, "\n")
	for range 1 + r.IntN(3) {
		at := r.IntN(len(lines))
		switch r.IntN(4) {
		case 0:
			lines[at] = fmt.Sprintf("edited %d\n", r.IntN(1000))
		case 1:
			lines[at] = strings.Replace(lines[at], "\n", "  \n", 1)
		case 2:
			lines = slices.Insert(lines, at, fmt.Sprintf("added %d\n", r.IntN(1000)))
		case 3:
			lines = slices.Delete(lines, at, min(len(lines), at+r.IntN(3)))
			if len(lines) == 0 {
				lines = []string{"all is new\n"}
			}
		}
	}
	return file{f.mode, strings.Join(lines, "")}
}

// pair makes two trees.
func (r maker) pair() (old, now tree) {
	old = tree{}
	for range 1 + r.IntN(25) {
		old.put(r.path(), r.file())
	}
	now = maps.Clone(old)
	for range 1 + r.IntN(12) {
		paths := slices.Sorted(maps.Keys(now))
		if len(paths) == 0 {
			break
		}
		path := paths[r.IntN(len(paths))]
		f := now[path]
		switch r.IntN(10) {
		case 0:
			delete(now, path)
		case 1:
			delete(now, path)
			now.put(r.path(), f)
		case 2:
			delete(now, path)
			now.put(r.path(), r.edit(f))
		case 3:
			now.put(r.path(), r.edit(f))
		case 4:
			f.mode = map[string]string{"100644": "100755", "100755": "100644", "120000": "100644"}[f.mode]
			now[path] = f
		case 5:
			now.put(r.path(), r.file())
		case 6:
			now.put(path+"/below", r.file())
		case 7:
			now[path] = r.file()
		default:
			now[path] = r.edit(f)
		}
	}
	return old, now
}

// world is a repository as git has it and as Cairn does.
type world struct {
	git   *repotest.Git
	db    *odb.DB
	trees []object.ID
}

// load makes a repository with trees.
func load(t *testing.T, trees []tree) *world {
	t.Helper()
	g := repotest.NewGit(t)
	var out bytes.Buffer
	for i, files := range trees {
		fmt.Fprintf(&out, "commit refs/heads/t%d\ncommitter C <c@example.com> %d +0000\ndata 1\nm\n", i, 1700000000+i)
		for path, f := range files {
			if f.mode == "160000" {
				fmt.Fprintf(&out, "M %s %s %s\n", f.mode, f.text, quoted(path))
				continue
			}
			fmt.Fprintf(&out, "M %s inline %s\ndata %d\n%s\n", f.mode, quoted(path), len(f.text), f.text)
		}
	}
	g.Feed(out.Bytes(), "fast-import", "--quiet")
	w := &world{git: g}
	s := repotest.NewStore(t, 64<<10)
	id := s.Create()
	s.Import(g, id, 1<<20, 1, false)
	db, err := s.ODB.Open(context.Background(), s.Row(id).PackSet)
	if err != nil {
		t.Fatal(err)
	}
	w.db = db
	for i := range trees {
		w.trees = append(w.trees, g.ID(fmt.Sprintf("refs/heads/t%d^{tree}", i)))
	}
	return w
}

func quoted(path string) string {
	return `"` + strings.NewReplacer("\\", `\\`, "\"", `\"`, "\n", `\n`, "\t", `\t`).Replace(path) + `"`
}
