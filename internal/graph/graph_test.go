package graph_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/repo/repotest"
)

// open imports a history and returns its graph.
func open(tb testing.TB, g *repotest.Git, inline int64, recent, step int, mixed bool) *graph.Graph {
	tb.Helper()
	ctx := context.Background()
	s := repotest.NewStore(tb, inline)
	id := s.Create()
	s.Import(g, id, recent, step, mixed)
	db, err := s.ODB.Open(ctx, s.Row(id).PackSet)
	if err != nil {
		tb.Fatal(err)
	}
	out, err := graph.Open(ctx, db, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func TestCommitsEqualGit(t *testing.T) {
	origin := repotest.History(t, 51, 70)
	for _, inline := range []int64{1, 64 << 10} {
		g := open(t, origin, inline, 20, 3, true)
		generation := map[object.ID]uint32{}
		for _, id := range origin.IDs("rev-list", "--all", "--topo-order", "--reverse") {
			c, ok := g.Commit(id)
			if !ok {
				t.Fatalf("commit %s is not in the graph", id)
			}
			text, err := origin.Try(nil, "cat-file", "commit", id.String())
			if err != nil {
				t.Fatal(err)
			}
			tree, parents, when, err := object.CommitLinks(text, nil)
			if err != nil || c.Tree != tree || c.Time != when || !slices.Equal(c.Parents, parents) {
				t.Errorf("commit %s is %+v, want tree %s, time %d, parents %v: %v", id, c, tree, when, parents, err)
			}
			want := uint32(0)
			for _, p := range parents {
				want = max(want, generation[p])
			}
			generation[id] = want + 1
			if c.Generation != want+1 {
				t.Errorf("commit %s has generation %d, want %d", id, c.Generation, want+1)
			}
		}
		if _, ok := g.Commit(origin.ID("main^{tree}")); ok {
			t.Error("a tree is a commit")
		}
	}
}

func TestAncestryEqualsGit(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 52, 80)
	g := open(t, origin, 64<<10, 30, 2, false)
	ids := origin.IDs("rev-list", "--all")
	r := rand.New(rand.NewPCG(52, 1))
	for range 60 {
		a, b := ids[r.IntN(len(ids))], ids[r.IntN(len(ids))]
		_, err := origin.Try(nil, "merge-base", "--is-ancestor", a.String(), b.String())
		got, fault := g.IsAncestor(ctx, a, b)
		if fault != nil || got != (err == nil) {
			t.Errorf("is %s an ancestor of %s: %v, %v; git says %v", a, b, got, fault, err)
		}
		text, err := origin.Try(nil, "merge-base", "--all", a.String(), b.String())
		want := []object.ID(nil)
		if err == nil {
			want = repotest.ParseIDs(t, string(text))
		}
		bases, err := g.MergeBases(ctx, a, b)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(bases, object.ID.Compare)
		slices.SortFunc(want, object.ID.Compare)
		if !slices.Equal(bases, want) {
			t.Errorf("merge bases of %s and %s are %v, git says %v", a, b, bases, want)
		}
	}
	tips := ids[:3]
	reached, err := g.Reaches(ctx, tips, ids)
	if err != nil {
		t.Fatal(err)
	}
	want := origin.IDs("rev-list", tips[0].String(), tips[1].String(), tips[2].String())
	for i, id := range ids {
		if reached[i] != slices.Contains(want, id) {
			t.Errorf("%s reached: %v", id, reached[i])
		}
	}
	var order []object.ID
	main := origin.ID("main")
	n, _ := g.Node(main)
	err = g.Newest(ctx, []graph.Node{n}, func(n graph.Node) bool {
		order = append(order, g.ID(n))
		return true
	})
	if err != nil || !slices.Equal(order, origin.IDs("rev-list", main.String())) {
		t.Errorf("newest first differs from rev-list: %v", err)
	}
}

// TestGrowing opens graphs one on the other as packs are added, in two lines
// that part, and compares each with one that is opened anew.
func TestGrowing(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 53, 60)
	s := repotest.NewStore(t, 64<<10)
	id := s.Create()
	s.Import(origin, id, 40, 1, false)
	whole, err := s.ODB.Open(ctx, s.Row(id).PackSet)
	if err != nil {
		t.Fatal(err)
	}
	empty, err := s.ODB.Open(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	ids := origin.IDs("rev-list", "--all")
	lines := []*graph.Graph{nil, nil}
	dbs := []*odb.DB{empty, empty}
	for i, p := range whole.Packs() {
		for line := range lines {
			// The second line grows by two packs at a time.
			dbs[line] = dbs[line].With(p)
			if line == 1 && i%2 == 0 {
				continue
			}
			g, err := graph.Open(ctx, dbs[line], lines[line])
			if err != nil {
				t.Fatal(err)
			}
			fresh, err := graph.Open(ctx, dbs[line], nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				a, okA := g.Commit(id)
				b, okB := fresh.Commit(id)
				if okA != okB || a.Generation != b.Generation || a.Tree != b.Tree || !slices.Equal(a.Parents, b.Parents) {
					t.Fatalf("after %d packs commit %s is %+v, anew %+v", i, id, a, b)
				}
			}
			lines[line] = g
			if i == 10 {
				lines[1] = lines[0]
				dbs[1] = dbs[0]
			}
		}
	}
	last := whole.Packs()[len(whole.Packs())-2]
	_, err = graph.Open(ctx, empty.With(last), nil)
	var missing *graph.MissingParentError
	if !errors.As(err, &missing) {
		t.Errorf("a graph without a commit's parent: %v", err)
	}
}

// TestClosure compares closures, and closures that were extended, with git's.
func TestClosure(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 54, 60)
	all := origin.IDs("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
	for _, mixed := range []bool{false, true} {
		g := open(t, origin, 64<<10, 30, 1, mixed)
		one := []object.ID{origin.ID("topic/0"), origin.ID("refs/tags/of-tree")}
		two := []object.ID{origin.ID("topic/3"), origin.ID("refs/tags/of-tag")}
		first, err := g.Closure(ctx, one)
		if err != nil {
			t.Fatal(err)
		}
		compare := func(c *graph.Closure, tips []object.ID) {
			t.Helper()
			args := []string{"rev-list", "--objects"}
			for _, id := range tips {
				args = append(args, id.String())
			}
			want := map[object.ID]bool{}
			for _, id := range origin.IDs(args...) {
				want[id] = true
			}
			for _, id := range all {
				if got, err := c.Contains(ctx, id); err != nil || got != want[id] {
					t.Fatalf("closure has %s: %v, %v; git says %v", id, got, err, want[id])
				}
			}
		}
		early, err := first.Extend(ctx, g, two)
		if err != nil {
			t.Fatal(err)
		}
		compare(first, one)
		late, err := first.Extend(ctx, g, two)
		if err != nil {
			t.Fatal(err)
		}
		compare(early, append(one, two...))
		compare(late, append(one, two...))
	}
}

// reseal makes the checksum of a changed table match.
func reseal(data []byte) []byte {
	end := len(data) - 4
	binary.BigEndian.PutUint32(data[end:], crc32.Checksum(data[:end], crc32.MakeTable(crc32.Castagnoli)))
	return data
}

// someTable returns a table of three commits, one with a parent outside.
func someTable(tb testing.TB) []byte {
	tb.Helper()
	var commits []graph.Commit
	var entries []pack.IndexEntry
	for i := range 3 {
		c := graph.Commit{ID: object.ID{byte(i + 1)}, Tree: object.ID{9}, Time: int64(i)}
		if i > 0 {
			c.Parents = []object.ID{{byte(i)}, {77}}
		}
		commits = append(commits, c)
		entries = append(entries, pack.IndexEntry{ID: c.ID, Offset: int64(12 + i)})
	}
	idx, err := pack.ParseIndex(pack.BuildIndex(entries, object.ID{}))
	if err != nil {
		tb.Fatal(err)
	}
	data, err := graph.Encode(idx, commits, func(id object.ID) (uint32, bool) { return 5, id == object.ID{77} })
	if err != nil {
		tb.Fatal(err)
	}
	_, err = graph.Encode(idx, commits, func(object.ID) (uint32, bool) { return 0, false })
	var missing *graph.MissingParentError
	if !errors.As(err, &missing) || missing.Parent != (object.ID{77}) {
		tb.Fatalf("a parent that is nowhere: %v", err)
	}
	return data
}

func TestDamagedTable(t *testing.T) {
	data := someTable(t)
	if table, err := graph.Parse(data); err != nil || table.Len() != 3 {
		t.Fatalf("parse: %v", err)
	}
	for n := range len(data) {
		if _, err := graph.Parse(data[:n]); !errors.Is(err, graph.ErrFormat) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
		bad := slices.Clone(data)
		bad[n] ^= 0x40
		if _, err := graph.Parse(bad); !errors.Is(err, graph.ErrFormat) {
			t.Fatalf("byte %d changed: %v", n, err)
		}
	}
	for name, at := range map[string]int{"order": 20 + 3, "first parent": 20 + 40 + 36, "parent": 20 + 3*40} {
		bad := slices.Clone(data)
		bad[at] = 0xee
		if _, err := graph.Parse(reseal(bad)); !errors.Is(err, graph.ErrFormat) {
			t.Errorf("wrong %s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(someTable(f))
	f.Add([]byte("CGRF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 24 {
			data = reseal(slices.Clone(data))
		}
		table, err := graph.Parse(data)
		if (err == nil) != (table != nil) {
			t.Fatalf("table %v, error %v", table, err)
		}
		if err == nil {
			graph.Exercise(table)
		}
	})
}

// TestRevertedTrees selects a history in which a directory comes back again and
// again: each time it is new against the parent and known from before.
func TestRevertedTrees(t *testing.T) {
	ctx := context.Background()
	origin := repotest.NewGit(t)
	var in strings.Builder
	for i := range 40 {
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter C <c@example.com> %d +0000\ndata 1\nm\n", 1700000000+i)
		fmt.Fprintf(&in, "M 100644 inline d%d/keep\ndata 4\nkeep\nM 100644 inline d%d/flip\ndata 1\n%d\n", i%3, i%3, i%2)
		fmt.Fprintf(&in, "M 100644 inline d%d/e/f\ndata 1\n%d\n", i%2, i%5)
	}
	origin.Feed([]byte(in.String()), "fast-import", "--quiet")
	g := open(t, origin, 64<<10, 40, 1, true)
	main := origin.ID("main")
	for back := range 39 {
		old := origin.ID(fmt.Sprintf("main~%d", back+1))
		sel, err := g.Select(ctx, graph.Query{Wants: []object.ID{main}, Haves: []object.ID{old}})
		if err != nil {
			t.Fatal(err)
		}
		known := map[object.ID]bool{}
		for _, id := range origin.IDs("rev-list", "--objects", old.String()) {
			known[id] = true
		}
		for _, id := range origin.IDs("rev-list", "--objects", main.String()) {
			loc, _ := g.DB().Find(id)
			if !known[id] && !sel.Objects.Has(loc) {
				t.Errorf("from main~%d: object %s is missing", back+1, id)
			}
		}
	}
	all, err := g.Select(ctx, graph.Query{Wants: []object.ID{main}})
	if err != nil || all.Objects.Len() != len(origin.IDs("rev-list", "--objects", "main")) {
		t.Errorf("%d objects selected: %v", all.Objects.Len(), err)
	}
}

// TestCommitsInTwoPacks lists and selects a history whose beginning two packs
// hold, as when two clients push it at once: each object comes once.
func TestCommitsInTwoPacks(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 63, 30)
	main, old := origin.ID("main"), origin.ID("main~3")
	s := repotest.NewStore(t, 64<<10)
	id := s.Create()
	s.Load(origin, id, repotest.Pack{Tips: []object.ID{old}, Inexact: true})
	s.Load(origin, id, repotest.Pack{Tips: []object.ID{main}, Inexact: true})
	db, err := s.ODB.Open(ctx, s.Row(id).PackSet)
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.Open(ctx, db, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := len(origin.IDs("rev-list", "--objects", main.String()))
	seen := map[object.ID]int{}
	err = g.List(ctx, []object.ID{main, old}, graph.NewObjectSet(db), func(o graph.Listed) error {
		if seen[o.ID]++; seen[o.ID] > 1 {
			t.Errorf("%s is listed again", o.ID)
		}
		return nil
	})
	if err != nil || len(seen) != want {
		t.Errorf("%d objects are listed, git lists %d: %v", len(seen), want, err)
	}
	sel, err := g.Select(ctx, graph.Query{Wants: []object.ID{main, old}})
	if err != nil || sel.Objects.Len() != want {
		t.Errorf("%d objects are selected, git lists %d: %v", sel.Objects.Len(), want, err)
	}
}
