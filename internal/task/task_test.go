package task_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/repo/repotest"
	"github.com/cairnstate/cairn/internal/task"
	"github.com/cairnstate/cairn/internal/testkit"
)

var program = gitcmd.New(gitcmd.Config{})

// world is a repository as git has it and as Cairn does.
type world struct {
	git *repotest.Git
	db  *odb.DB
}

func load(t *testing.T, g *repotest.Git) world {
	t.Helper()
	s := repotest.NewStore(t, 4<<10)
	id := s.Create()
	s.Import(g, id, 20, 5, true)
	db, err := s.ODB.Open(context.Background(), s.Row(id).PackSet)
	if err != nil {
		t.Fatal(err)
	}
	return world{g, db}
}

// newRoom makes a room, and checks at the end that it leaves nothing behind.
func newRoom(t *testing.T) *gitcmd.Room {
	t.Helper()
	scratch := t.TempDir()
	room := gitcmd.NewRoom(scratch)
	t.Cleanup(func() {
		if err := room.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
			t.Errorf("%v are left behind, %v", left, err)
		}
	})
	return room
}

func (w world) task(t *testing.T, limits task.Limits) *task.Task {
	t.Helper()
	k, err := task.New(w.db, newRoom(t), limits)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// stream writes a history of commits, each of which has all of its files.
type stream struct {
	bytes.Buffer
	marks int
}

func (s *stream) commit(branch string, parents []string, files map[string]string) string {
	s.marks++
	name := fmt.Sprintf(":%d", s.marks)
	fmt.Fprintf(s, "commit refs/heads/%s\nmark %s\ncommitter C <c@example.com> %d +0000\ndata 1\nm\n", branch, name, 1700000000+s.marks)
	for i, p := range parents {
		fmt.Fprintf(s, "%s %s\n", []string{"from", "merge"}[min(i, 1)], p)
	}
	for path, text := range files {
		fmt.Fprintf(s, "M 100644 inline %s\ndata %d\n%s\n", path, len(text), text)
	}
	return name
}

func (s *stream) make(t *testing.T) *repotest.Git {
	t.Helper()
	g := repotest.NewGit(t)
	g.Feed(s.Bytes(), "fast-import", "--quiet")
	return g
}

// wide is a repository of 4,000 files in 100 directories with two branches, each
// of which changes one of them, at different ends.
func wide(t *testing.T) world {
	var s stream
	files := map[string]string{}
	for i := range 4000 {
		files[fmt.Sprintf("d%d/e%d/f%d", i%10, i/10%10, i)] = fmt.Sprintf("1\n2\n3\n4\n5\n6\n7\n8\n%d\n", i)
	}
	base := s.commit("main", nil, files)
	s.commit("ours", []string{base}, map[string]string{"d3/e4/f3043": "one\n2\n3\n4\n5\n6\n7\n8\n3043\n"})
	s.commit("theirs", []string{base}, map[string]string{"d3/e4/f3043": "1\n2\n3\n4\n5\n6\n7\neight\n3043\n"})
	return load(t, s.make(t))
}

// TestMerge merges with git, which is given only what differs.
func TestMerge(t *testing.T) {
	ctx := context.Background()
	w := wide(t)
	k := w.task(t, task.Limits{})
	names := []string{"main", "ours", "theirs"}
	trees := make([]object.ID, 3)
	for i, n := range names {
		trees[i] = w.git.ID(n + "^{tree}")
	}
	var seen []string
	err := k.Walk(ctx, trees, func(path []byte, at []object.Entry) (bool, error) {
		seen = append(seen, string(path))
		if at[0].Mode.IsDir() {
			return true, nil
		}
		return false, k.Add(at[0].ID, at[1].ID, at[2].ID)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(seen, " "); got != "d3 d3/e4 d3/e4/f3043" {
		t.Errorf("visited %q", got)
	}
	// Three trees on each of three levels, three blobs.
	if n, _ := k.Objects(); n != 12 {
		t.Errorf("git is given %d objects", n)
	}
	base := k.StandIn(w.git.ID("main"), trees[0], nil, 1)
	ours := k.StandIn(w.git.ID("ours"), trees[1], []object.ID{base}, 2)
	theirs := k.StandIn(w.git.ID("theirs"), trees[2], []object.ID{base}, 3)
	var out bytes.Buffer
	err = k.Run(ctx, program, task.Command{
		Name: gitcmd.MergeTree, Options: []string{"--write-tree", "-z", "--messages"},
		Args: []string{ours.String(), theirs.String()}, MaxOutput: 1 << 20,
	}, &out)
	if err != nil {
		t.Fatal(err)
	}
	want := w.git.Run("merge-tree", "--write-tree", "ours", "theirs")
	if got := out.String(); !strings.HasPrefix(got, want+"\x00") {
		t.Errorf("merged to %q, want %s", got, want)
	}
	if n, missed := k.Objects(); n != 15 || missed != 0 {
		t.Errorf("git was given %d objects and missed some %d times", n, missed)
	}
	compareTrees(t, w, k, want)
}

// compareTrees reads a tree that git wrote, entry by entry.
func compareTrees(t *testing.T, w world, k *task.Task, tree string) {
	t.Helper()
	ctx := context.Background()
	id, err := object.ParseID(tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"d3", "e4", "f3043"} {
		if w.db.Has(id) {
			t.Fatalf("%s is not new", id)
		}
		data, err := k.Tree(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		e, ok, err := object.Find(data, step)
		if err != nil || !ok {
			t.Fatalf("%s is not in tree %s: %v", step, id, err)
		}
		id = e.ID
	}
	typ, size, content, err := k.Object(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	if want := "one\n2\n3\n4\n5\n6\n7\neight\n3043\n"; err != nil || typ != object.Blob || size != int64(len(want)) || string(text) != want {
		t.Errorf("%s of %d bytes: %q, %v", typ, size, text, err)
	}
	if object.Hash(object.Blob, text) != id {
		t.Error("the blob has another id")
	}
}

// TestMiss lets git miss an object: it is given it, and what was spared.
func TestMiss(t *testing.T) {
	ctx := context.Background()
	w := wide(t)
	for _, spare := range []bool{false, true} {
		k := w.task(t, task.Limits{})
		trees := []object.ID{w.git.ID("main^{tree}"), w.git.ID("ours^{tree}"), w.git.ID("theirs^{tree}")}
		err := k.Walk(ctx, trees, func(_ []byte, at []object.Entry) (bool, error) {
			if spare && !at[0].Mode.IsDir() {
				k.Spare(at[0].ID, at[1].ID, at[2].ID)
			}
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		base := k.StandIn(w.git.ID("main"), trees[0], nil, 1)
		ours := k.StandIn(w.git.ID("ours"), trees[1], []object.ID{base}, 2)
		theirs := k.StandIn(w.git.ID("theirs"), trees[2], []object.ID{base}, 3)
		var out bytes.Buffer
		err = k.Run(ctx, program, task.Command{
			Name: gitcmd.MergeTree, Options: []string{"--write-tree", "-z"}, Args: []string{ours.String(), theirs.String()}, MaxOutput: 1 << 20,
		}, &out)
		if want := w.git.Run("merge-tree", "--write-tree", "ours", "theirs"); err != nil || out.String() != want+"\x00" {
			t.Errorf("merged to %q, want %s: %v", out.String(), want, err)
		}
		want := 3
		if spare {
			want = 1
		}
		if n, missed := k.Objects(); n != 15 || missed != want {
			t.Errorf("git was given %d objects and missed some %d times, want %d", n, missed, want)
		}
	}
}

// TestAbsent asks git for what nobody has.
func TestAbsent(t *testing.T) {
	w := wide(t)
	k := w.task(t, task.Limits{})
	lost := object.Hash(object.Blob, []byte("nowhere"))
	var out bytes.Buffer
	err := k.Run(context.Background(), program, task.Command{
		Name: gitcmd.PackObjects, Options: []string{"--stdout", "-q"}, In: strings.NewReader(lost.String() + " x\n"), MaxOutput: 1 << 20,
	}, &out)
	var exit *gitcmd.ExitError
	if _, missed := k.Objects(); !errors.As(err, &exit) || missed != 0 {
		t.Errorf("%v after %d misses", err, missed)
	}
	if err := k.Add(lost); err != nil {
		t.Fatal(err)
	}
	var corrupt *odb.CorruptError
	err = k.Run(context.Background(), program, task.Command{Name: gitcmd.PackObjects, Options: []string{"--stdout", "-q"}, MaxOutput: 1 << 20}, &out)
	if !errors.As(err, &corrupt) {
		t.Errorf("adding what the repository lacks: %v", err)
	}
	if _, _, _, err := k.Object(context.Background(), lost); !errors.As(err, &corrupt) {
		t.Errorf("reading what nobody has: %v", err)
	}
}

// TestShallow gives git a history that ends early.
func TestShallow(t *testing.T) {
	ctx := context.Background()
	w := load(t, repotest.History(t, 7, 60))
	k := w.task(t, task.Limits{})
	ids := w.git.IDs("rev-list", "--first-parent", "main")
	cut := ids[min(3, len(ids)-1)]
	for _, id := range ids[:min(4, len(ids))] {
		tree := w.git.ID(id.String() + "^{tree}")
		if err := k.Add(id); err != nil {
			t.Fatal(err)
		}
		if err := k.Walk(ctx, []object.ID{tree, object.Zero}, func([]byte, []object.Entry) (bool, error) { return true, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Shallow(cut); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	// The merge of a commit with its ancestor needs the history between them.
	err := k.Run(ctx, program, task.Command{
		Name: gitcmd.MergeTree, Options: []string{"--write-tree", "-z"}, Args: []string{ids[0].String(), cut.String()}, MaxOutput: 1 << 20,
	}, &out)
	if want := w.git.Run("rev-parse", ids[0].String()+"^{tree}"); err != nil || out.String() != want+"\x00" {
		t.Errorf("%q, %v; want %s", out.String(), err, want)
	}
}

// TestLimits refuses tasks that are too large, and leaves nothing behind.
func TestLimits(t *testing.T) {
	ctx := context.Background()
	w := wide(t)
	whole := func(k *task.Task) error {
		return k.Walk(ctx, []object.ID{w.git.ID("main^{tree}"), object.Zero}, func(_ []byte, at []object.Entry) (bool, error) {
			return true, k.Add(at[0].ID)
		})
	}
	var limit *task.LimitError
	if err := whole(w.task(t, task.Limits{Objects: 100})); !errors.As(err, &limit) || limit.Limit != 100 {
		t.Errorf("objects: %v", err)
	}
	k, err := task.New(w.db, newRoom(t), task.Limits{Bytes: 10000})
	if err != nil {
		t.Fatal(err)
	}
	if err := whole(k); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = k.Run(ctx, program, task.Command{Name: gitcmd.PackObjects, Options: []string{"--stdout", "-q"}, MaxOutput: 1 << 20}, &out)
	if !errors.As(err, &limit) || limit.What != "bytes" {
		t.Errorf("bytes: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestWalkLikeGit compares the paths that differ with those of git diff-tree.
func TestWalkLikeGit(t *testing.T) {
	ctx := context.Background()
	w := load(t, repotest.History(t, testkit.Seed(t), 120))
	ids := w.git.IDs("rev-list", "--all")
	for i := range ids[1:] {
		a, b := ids[i].String(), ids[i+1].String()
		want := map[string]bool{}
		for path := range strings.SplitSeq(w.git.Run("diff-tree", "-r", "-z", "--name-only", "--no-renames", a, b), "\x00") {
			if path != "" {
				want[path] = true
			}
		}
		got := map[string]bool{}
		trees := []object.ID{w.git.ID(a + "^{tree}"), w.git.ID(b + "^{tree}")}
		err := task.Walk(ctx, w.db.Tree, trees, func(path []byte, at []object.Entry) (bool, error) {
			present := at[0]
			if present.Name == nil {
				present = at[1]
			}
			if !present.Mode.IsDir() {
				got[string(path)] = true
			}
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Errorf("%s..%s: %d paths, git has %d", a, b, len(got), len(want))
		}
		for path := range want {
			if !got[path] {
				t.Errorf("%s..%s: %q was not visited", a, b, path)
			}
		}
	}
}

// TestHostileTrees walks trees that stand for more paths than there can be, and
// trees that are in no order.
func TestHostileTrees(t *testing.T) {
	ctx := context.Background()
	trees := map[object.ID][]byte{}
	read := func(_ context.Context, id object.ID) ([]byte, error) { return trees[id], nil }
	put := func(entries ...object.Entry) object.ID {
		data := object.EncodeTree(entries)
		id := object.Hash(object.Tree, data)
		trees[id] = data
		return id
	}
	inside := func([]byte, []object.Entry) (bool, error) { return true, nil }
	var limit *task.LimitError

	bomb := put(object.Entry{Mode: object.ModeRegular, Name: []byte("f"), ID: object.Hash(object.Blob, nil)})
	for range 12 {
		var entries []object.Entry
		for i := range 10 {
			entries = append(entries, object.Entry{Mode: object.ModeDir, Name: fmt.Appendf(nil, "d%d", i), ID: bomb})
		}
		bomb = put(entries...)
	}
	if err := task.Walk(ctx, read, []object.ID{bomb, {}}, inside); !errors.As(err, &limit) {
		t.Errorf("a bomb: %v", err)
	}
	deep := put(object.Entry{Mode: object.ModeRegular, Name: []byte("f"), ID: object.Hash(object.Blob, nil)})
	for range 5000 {
		deep = put(object.Entry{Mode: object.ModeDir, Name: []byte("d"), ID: deep})
	}
	if err := task.Walk(ctx, read, []object.ID{deep, {}}, inside); !errors.As(err, &limit) {
		t.Errorf("a deep one: %v", err)
	}
	cut := object.Hash(object.Tree, []byte("cut"))
	trees[cut] = []byte("100644 name")
	if err := task.Walk(ctx, read, []object.ID{cut, {}}, inside); !errors.Is(err, object.ErrMalformed) {
		t.Errorf("a tree that is cut short: %v", err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := task.Walk(ended, read, []object.ID{bomb, {}}, inside); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits: %v", err)
	}
}

func FuzzWalk(f *testing.F) {
	f.Add([]byte("100644 a\x0001234567890123456789"), []byte("40000 a\x0001234567890123456789"))
	f.Add([]byte("100644 b\x0001234567890123456789100644 a\x0001234567890123456789"), []byte(""))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		ids := []object.ID{object.Hash(object.Tree, a), object.Hash(object.Tree, b)}
		read := func(_ context.Context, id object.ID) ([]byte, error) {
			switch id {
			case ids[0]:
				return a, nil
			case ids[1]:
				return b, nil
			}
			return nil, nil
		}
		n := 0
		err := task.Walk(context.Background(), read, ids, func(path []byte, at []object.Entry) (bool, error) {
			if n++; len(path) == 0 || task.Same(at[0], at[1]) {
				t.Errorf("visited %q with %v", path, at)
			}
			return true, nil
		})
		if err == nil && n > len(a)+len(b) {
			t.Errorf("%d visits", n)
		}
	})
}
