package notetree_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/notetree"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/testkit"
)

// gitDir is a repository of git's own.
type gitDir struct {
	t   testing.TB
	dir string
}

func newGit(t testing.TB) *gitDir {
	t.Helper()
	g := &gitDir{t, t.TempDir()}
	g.run("", "init", "-q", "--bare")
	return g
}

func (g *gitDir) run(input string, args ...string) string {
	g.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = g.dir
	cmd.Stdin = strings.NewReader(input)
	cmd.Env = append(os.Environ(), "GIT_DIR="+g.dir, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_INDEX_FILE="+g.dir+"/index",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		g.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return strings.TrimSuffix(string(out), "\n")
}

func (g *gitDir) id(rev string) object.ID {
	g.t.Helper()
	id, err := object.ParseID(g.run("", "rev-parse", rev))
	if err != nil {
		g.t.Fatal(err)
	}
	return id
}

// source reads trees from g, and those that this package wrote.
func (g *gitDir) source(made map[object.ID][]byte) notetree.Source {
	return notetree.Source{
		Tree: func(id object.ID) ([]byte, error) {
			if data, ok := made[id]; ok {
				return data, nil
			}
			cmd := exec.Command("git", "cat-file", "tree", id.String())
			cmd.Dir = g.dir
			return cmd.Output()
		},
		Join: func(first, _ object.ID) (object.ID, error) {
			return first, fmt.Errorf("two notes where there is one")
		},
	}
}

// key makes an id; many share their first digits.
func key(r *rand.Rand) object.ID {
	var id object.ID
	for i := range id {
		id[i] = byte(r.Uint32())
	}
	switch r.IntN(4) {
	case 0:
		id[0] = 0xab
	case 1:
		id[0], id[1] = 0xab, 0xcd
	case 2:
		id[0], id[1] = 0, byte(r.IntN(2))
	}
	return id
}

// TestEqualsGit makes the same changes with git notes and with this package,
// always from the tree that git wrote last: the trees must be the same, from the
// first note to many and back.
func TestEqualsGit(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	g := newGit(t)
	first := key(r)
	g.run("", "notes", "add", "-m", "text", first.String())
	blob := g.id("refs/notes/commits:" + first.String())
	keys := []object.ID{first}
	fanout := map[int]int{}
	rounds := 90
	if testkit.Soaking() {
		rounds = 1500
	}
	// Where chance did not bring enough notes for two levels, more rounds do.
	for round := 0; round < rounds || fanout[2] == 0 && round < 5*rounds; round++ {
		before := g.id("refs/notes/commits^{tree}")
		made := map[object.ID][]byte{}
		tree, err := notetree.Open(before, g.source(made))
		if err != nil {
			t.Fatal(err)
		}
		growing := round%60 < 35 || round >= rounds
		var input strings.Builder
		n := 1 + r.IntN(4)*r.IntN(20)
		if round >= rounds {
			n += 300
		}
		if growing == (r.IntN(5) > 0) {
			for range n {
				k := key(r)
				fmt.Fprintf(&input, "%s %s\n", first, k)
				keys = append(keys, k)
				if err := tree.Set(k, blob); err != nil {
					t.Fatal(err)
				}
			}
			// Git looks the first up in between; that reads what we have not read.
			if _, ok, err := tree.Get(first); !ok || err != nil {
				t.Fatalf("the first note is %v, %v", ok, err)
			}
			g.run(input.String(), "notes", "copy", "--stdin")
		} else {
			for range min(n, len(keys)-1) {
				i := 1 + r.IntN(len(keys)-1)
				fmt.Fprintln(&input, keys[i])
				if ok, err := tree.Remove(keys[i]); !ok || err != nil {
					t.Fatalf("note of %s removed: %v, %v", keys[i], ok, err)
				}
				keys = slices.Delete(keys, i, i+1)
			}
			if ok, err := tree.Remove(key(r)); ok || err != nil {
				t.Fatalf("a note that is not there was removed: %v, %v", ok, err)
			}
			g.run(input.String(), "notes", "remove", "--stdin")
		}
		got, err := tree.Write(func(id object.ID, data []byte) error { made[id] = data; return nil })
		if err != nil {
			t.Fatal(err)
		}
		want := g.id("refs/notes/commits^{tree}")
		if repeats(g.run("", "ls-tree", "--name-only", want.String())) {
			// Git wrote a tree that git fsck refuses: a directory of notes beside
			// one of other files with its name. The notes have to be the same.
			notes := g.run("", "notes", "list")
			for _, data := range made {
				g.run(string(data), "hash-object", "-t", "tree", "-w", "--stdin")
			}
			g.run("", "update-ref", "refs/notes/commits", g.run("", "commit-tree", "-m", "ours", got.String()))
			if ours := g.run("", "notes", "list"); ours != notes {
				t.Fatalf("round %d: the notes are\n%s\ngit's\n%s", round, ours, notes)
			}
			want = got
		}
		if got != want {
			t.Fatalf("round %d, %d notes: the tree is %s, git's %s\n%s\nours\n%q", round, len(keys), got, want, g.run("", "ls-tree", want.String()), made[got])
		}
		for _, path := range strings.Fields(g.run("", "ls-tree", "-r", "--name-only", want.String())) {
			fanout[strings.Count(path, "/")]++
		}
		if round%20 == 7 { // something that is no note
			g.run("", "read-tree", want.String())
			for _, path := range []string{"README", "ab/README", "ab/cd/x/y", "zz/" + first.String()} {
				g.run("", "update-index", "--add", "--cacheinfo", "100755,"+blob.String()+","+path)
			}
			commit := g.run("", "commit-tree", "-m", "odd", g.run("", "write-tree"))
			g.run("", "update-ref", "refs/notes/commits", commit)
		}
	}
	if fanout[0] == 0 || fanout[1] == 0 || fanout[2] == 0 {
		t.Errorf("notes below as many directories: %v: the test did not reach far enough", fanout)
	}
}

// repeats reports whether a name stands twice among lines.
func repeats(names string) bool {
	lines := strings.Split(names, "\n")
	slices.Sort(lines)
	return len(slices.Compact(lines)) < strings.Count(names, "\n")+1
}

// trees builds trees for tests.
type trees map[object.ID][]byte

func (tt trees) add(entries ...object.Entry) object.ID {
	data := object.EncodeTree(entries)
	id := object.Hash(object.Tree, data)
	tt[id] = data
	return id
}

func entry(mode object.Mode, name string, id object.ID) object.Entry {
	return object.Entry{Mode: mode, Name: []byte(name), ID: id}
}

func (tt trees) source() notetree.Source {
	return notetree.Source{
		Tree: func(id object.ID) ([]byte, error) {
			if data, ok := tt[id]; ok {
				return data, nil
			}
			return nil, errors.New("no such tree")
		},
		Join: func(first, second object.ID) (object.ID, error) {
			return object.Hash(object.Blob, append(first[:], second[:]...)), nil
		},
	}
}

// TestTwoNotesOfOneObject reads an object's notes from two directories.
func TestTwoNotesOfOneObject(t *testing.T) {
	tt := trees{}
	id := object.ID{0xab, 0xcd, 1}
	hex := id.String()
	inner := tt.add(entry(object.ModeRegular, hex[2:], object.ID{1}))
	root := tt.add(entry(object.ModeDir, "ab", inner), entry(object.ModeRegular, hex, object.ID{2}))
	src := tt.source()
	tree, err := notetree.Open(root, src)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := src.Join(object.ID{1}, object.ID{2})
	if blob, ok, err := tree.Get(id); !ok || err != nil || blob != want {
		t.Errorf("the note is %s, %v, %v; want %s", blob, ok, err, want)
	}
	// Digits of either case are the same object.
	root = tt.add(entry(object.ModeRegular, strings.ToUpper(hex), object.ID{2}))
	if tree, err = notetree.Open(root, src); err != nil {
		t.Fatal(err)
	}
	if blob, ok, err := tree.Get(id); !ok || err != nil || blob != (object.ID{2}) {
		t.Errorf("the note is %s, %v, %v", blob, ok, err)
	}
}

// FuzzOpen holds that any tree is read, changed and written or refused, and that
// what was written reads as what was there.
func FuzzOpen(f *testing.F) {
	id := object.ID{0xab, 0xcd, 1}
	tt := trees{}
	inner := tt.add(entry(object.ModeRegular, id.String()[2:], object.ID{1}), entry(object.ModeDir, "cd", object.ID{3}))
	f.Add(tt[tt.add(entry(object.ModeDir, "ab", inner), entry(object.ModeRegular, "README", id))], tt[inner], []byte{1, 2})
	f.Add(tt[tt.add(entry(object.ModeDir, "00", inner), entry(object.ModeDir, "0", inner))], []byte("40000 00\x00"+strings.Repeat("\x00", 20)), []byte{0, 0})
	f.Fuzz(func(t *testing.T, root, sub, keys []byte) {
		tt := trees{}
		tt[object.ID{9}] = root
		src := tt.source()
		src.Tree = func(id object.ID) ([]byte, error) {
			if data, ok := tt[id]; ok {
				return data, nil
			}
			return sub, nil
		}
		tree, err := notetree.Open(object.ID{9}, src)
		if err != nil {
			return
		}
		want := map[object.ID]object.ID{}
		for _, b := range keys {
			k := object.ID{b & 0xf0, b << 4}
			if err := tree.Set(k, object.ID{b}); err != nil {
				return
			}
			want[k] = object.ID{b}
		}
		out, err := tree.Write(func(id object.ID, data []byte) error { tt[id] = data; return nil })
		if err != nil {
			return
		}
		again, err := notetree.Open(out, src)
		if err != nil {
			t.Fatalf("what was written does not open: %v", err)
		}
		for _, k := range slices.SortedFunc(maps.Keys(want), object.ID.Compare) {
			if blob, ok, err := again.Get(k); err == nil && (!ok || blob != want[k]) {
				t.Fatalf("the note of %s is %s, %v", k, blob, ok)
			}
		}
	})
}
