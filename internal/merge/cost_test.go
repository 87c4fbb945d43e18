package merge_test

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/repo/repotest"
)

// counting counts what is read of stored bytes.
type counting struct {
	blob.Store
	bytes atomic.Int64
}

func (c *counting) Open(ctx context.Context, key blob.Key) (blob.Object, error) {
	o, err := c.Store.Open(ctx, key)
	return &countedObject{o, c}, err
}

type countedObject struct {
	blob.Object
	in *counting
}

func (o *countedObject) ReadAt(b []byte, off int64) (int, error) {
	n, err := o.Object.ReadAt(b, off)
	o.in.bytes.Add(int64(n))
	return n, err
}

// sized is a repository of some number of objects with two branches that changed a
// file each, and one file both, in different directories. Beside them the root has
// wide more directories.
func sized(tb testing.TB, objects, wide int) (w *world, ours, theirs object.ID, read *counting) {
	tb.Helper()
	var out bytes.Buffer
	write := func(branch, from string, files map[string]string) {
		fmt.Fprintf(&out, "commit refs/heads/%s\ncommitter C <c@example.com> 1700000000 +0000\ndata 1\nm\n%s", branch, from)
		for path, text := range files {
			fmt.Fprintf(&out, "M 100644 inline %s\ndata %d\n%s\n", path, len(text), text)
		}
	}
	files := map[string]string{"both/f": "1\n2\n3\n4\n5\n"}
	for i := range objects {
		files[fmt.Sprintf("d%d/e%d/f%d", i/2500, i/50%50, i)] = fmt.Sprintf("a file with the number %d\n", i)
	}
	for i := range wide {
		files[fmt.Sprintf("w%d/f", i)] = fmt.Sprint(i)
	}
	write("main", "", files)
	write("ours", "from refs/heads/main\n", map[string]string{"both/f": "one\n2\n3\n4\n5\n", "d0/e0/f0": "ours\n"})
	write("theirs", "from refs/heads/main\n", map[string]string{"both/f": "1\n2\n3\n4\nfive\n", "d1/e1/f2550": "theirs\n"})
	g := repotest.NewGit(tb)
	g.Feed(out.Bytes(), "fast-import", "--quiet")
	s := repotest.NewStore(tb, 4<<10)
	id := s.Create()
	s.Import(g, id, 0, 1, false)
	read = &counting{Store: s.Blobs}
	store := odb.New(odb.Config{Meta: s.Meta, Blobs: read, Scratch: tb.TempDir(), Process: "count"})
	db, err := store.Open(context.Background(), s.Row(id).PackSet)
	if err != nil {
		tb.Fatal(err)
	}
	gr, err := graph.Open(context.Background(), db, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return &world{g, db, gr, newRoom(tb)}, g.ID("ours"), g.ID("theirs"), read
}

// TestCost merges in repositories of 10,000 and of 100,000 objects: what is read
// and what git is given is the same.
func TestCost(t *testing.T) {
	var given, bytes [2]int64
	for i, objects := range []int{10_000, 100_000} {
		w, ours, theirs, read := sized(t, objects, 0)
		read.bytes.Store(0)
		m := w.merge(t, ours, theirs)
		bytes[i] = read.bytes.Load()
		n, missed := m.Given()
		given[i] = int64(n)
		if missed != 0 || m.Tree.String() != w.git.Run("merge-tree", "--write-tree", "ours", "theirs") {
			t.Errorf("%d objects: tree %s, %d missed", objects, m.Tree, missed)
		}
		t.Logf("%d objects: git was given %d, %d bytes were read", objects, n, bytes[i])
	}
	// Root, both, d0, d0/e0, d1 and d1/e1 as they are in the three commits; three
	// texts; three commits.
	if given[0] != 20 || given[1] != given[0] {
		t.Errorf("git was given %d and %d objects", given[0], given[1])
	}
	if bytes[1] > 2*bytes[0] {
		t.Errorf("%d and %d bytes were read", bytes[0], bytes[1])
	}
}

// BenchmarkMerge merges in repositories of two sizes, and with roots of three; the
// peer is git in a whole repository on a local disk.
func BenchmarkMerge(b *testing.B) {
	for _, size := range []struct{ objects, wide int }{{10_000, 0}, {100_000, 0}, {10_000, 1000}, {10_000, 10_000}} {
		w, ours, theirs, _ := sized(b, size.objects, size.wide)
		name := fmt.Sprintf("%d+%d", size.objects, size.wide)
		b.Run("cairn/"+name, func(b *testing.B) {
			for b.Loop() {
				w.merge(b, ours, theirs).Close()
			}
		})
		b.Run("git/"+name, func(b *testing.B) {
			for b.Loop() {
				w.git.Run("merge-tree", "--write-tree", "ours", "theirs")
			}
		})
	}
}
