package graph_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/repo/repotest"
)

// withBitmaps loads a history into one pack, gives it bitmaps of some commits,
// and returns its graphs without and with them, and the commit table with them.
// newer commits come in packs of their own.
func withBitmaps(tb testing.TB, origin *repotest.Git, newer int, tips func(all []object.ID) []object.ID) (plain, fast *graph.Graph, table []byte) {
	tb.Helper()
	ctx := context.Background()
	s := repotest.NewStore(tb, 1)
	id := s.Create()
	s.Import(origin, id, newer, 3, false)
	packs, err := s.Meta.PackSet(ctx, s.Row(id).PackSet)
	if err != nil {
		tb.Fatal(err)
	}
	db, err := s.ODB.Open(ctx, s.Row(id).PackSet)
	if err != nil {
		tb.Fatal(err)
	}
	if plain, err = graph.Open(ctx, db, nil); err != nil {
		tb.Fatal(err)
	}
	table, err = db.Pack(0).GraphData(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	empty, err := s.ODB.Open(ctx, 0)
	if err != nil {
		tb.Fatal(err)
	}
	solo, err := graph.Open(ctx, empty.With(db.Pack(0)), nil)
	if err != nil {
		tb.Fatal(err)
	}
	var all []object.ID
	for n := range solo.Len() {
		all = append(all, solo.ID(graph.Node(n)))
	}
	maps, err := graph.EncodeBitmaps(ctx, solo, tips(all))
	if err != nil {
		tb.Fatal(err)
	}
	table = append(slices.Clone(table), maps...)
	replaceBlob(tb, s, packs[0].Pack, table)
	s.ODB = odb.New(odb.Config{Meta: s.Meta, Blobs: s.Blobs, Scratch: tb.TempDir(), Process: "test", InlineLimit: 1})
	if db, err = s.ODB.Open(ctx, s.Row(id).PackSet); err != nil {
		tb.Fatal(err)
	}
	if fast, err = graph.Open(ctx, db, nil); err != nil {
		tb.Fatal(err)
	}
	return plain, fast, table
}

func replaceBlob(tb testing.TB, s *repotest.Store, p meta.Pack, data []byte) {
	tb.Helper()
	key := blob.Key(p.Key + odb.GraphSuffix)
	if err := s.Blobs.Delete(context.Background(), key); err != nil {
		tb.Fatal(err)
	}
	if err := s.Blobs.Put(context.Background(), key, bytes.NewReader(data), int64(len(data))); err != nil {
		tb.Fatal(err)
	}
}

// listed returns the ids of a set in order.
func listed(set *graph.ObjectSet) []object.ID {
	var ids []object.ID
	for i, p := range set.DB().Packs() {
		for pos := range p.Index().Count() {
			if set.Has(odb.Loc{Pack: int32(i), Pos: int32(pos)}) {
				ids = append(ids, p.Index().ID(pos))
			}
		}
	}
	slices.SortFunc(ids, object.ID.Compare)
	return ids
}

// TestBitmapsEqualWalks selects with and without bitmaps, and compares with git.
func TestBitmapsEqualWalks(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 61, 120)
	r := rand.New(rand.NewPCG(61, 1))
	plain, fast, _ := withBitmaps(t, origin, 12, func(all []object.ID) []object.ID {
		var tips []object.ID
		for range 14 {
			tips = append(tips, all[r.IntN(len(all))])
		}
		return tips
	})
	commits := origin.IDs("rev-list", "--all")
	others := []object.ID{origin.ID("refs/tags/of-tag"), origin.ID("refs/tags/of-tree"), origin.ID("refs/tags/of-blob"), origin.ID("main^{tree}")}
	filters := []graph.Filter{
		{}, {HasBlobLimit: true}, {HasBlobLimit: true, BlobLimit: 100}, {Type: object.Commit}, {Type: object.Tree}, {Type: object.Blob},
		{Type: object.Tag}, {HasTreeDepth: true, TreeDepth: 1}, {HasBlobLimit: true, Type: object.Tree},
	}
	used := 0
	for i := range 120 {
		q := graph.Query{Filter: filters[i%len(filters)], Whole: i%2 == 0}
		for range 1 + r.IntN(3) {
			q.Wants = append(q.Wants, commits[r.IntN(len(commits))])
		}
		if i%3 == 0 {
			q.Wants = append(q.Wants, others[r.IntN(len(others))])
		}
		a, err := plain.Select(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		b, err := fast.Select(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(listed(a.Objects), listed(b.Objects)) || b.Objects.Len() != len(listed(b.Objects)) {
			t.Fatalf("query %+v: %d objects with bitmaps, %d without", q, b.Objects.Len(), a.Objects.Len())
		}
		n, err := graph.Covered(ctx, fast, q)
		if err != nil {
			t.Fatal(err)
		}
		used += n
	}
	if used < 1000 {
		t.Errorf("bitmaps told of %d commits in all", used)
	}
	tips := []object.ID{origin.ID("main"), origin.ID("topic/1")}
	closure, err := fast.Closure(ctx, tips)
	if err != nil {
		t.Fatal(err)
	}
	got, err := closure.Objects(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := origin.IDs("rev-list", "--objects", tips[0].String(), tips[1].String())
	slices.SortFunc(want, object.ID.Compare)
	if !slices.Equal(listed(got), want) {
		t.Errorf("a closure has %d objects, git lists %d", got.Len(), len(want))
	}
}

// TestListEqualsGit lists closures, whole and upon what is known.
func TestListEqualsGit(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 62, 80)
	g := open(t, origin, 64<<10, 20, 3, true)
	refs := origin.IDs("for-each-ref", "--format=%(objectname)")
	set := graph.NewObjectSet(g.DB())
	for _, tips := range [][]object.ID{refs[:3], refs[:6], refs} {
		var types []object.Type
		err := g.List(ctx, tips, set, func(o graph.Listed) error {
			types = append(types, o.Type)
			if g.DB().ID(o.Loc) != o.ID {
				t.Errorf("%s is not at its place", o.ID)
			}
			if kind, err := g.DB().Type(ctx, o.ID); err != nil || kind != o.Type {
				t.Errorf("%s is listed as a %s: %v", o.ID, o.Type, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(types) == 0 || types[0] != object.Commit && slices.Contains(types, object.Commit) {
			t.Errorf("%d objects are listed, the first a %s", len(types), types[0])
		}
		args := []string{"rev-list", "--objects"}
		for _, id := range tips {
			args = append(args, id.String())
		}
		want := origin.IDs(args...)
		slices.SortFunc(want, object.ID.Compare)
		if !slices.Equal(listed(set), want) {
			t.Errorf("%d objects are listed in all, git lists %d", set.Len(), len(want))
		}
	}
}

func TestDamagedBitmaps(t *testing.T) {
	origin := repotest.History(t, 63, 20)
	_, _, table := withBitmaps(t, origin, 0, func(all []object.ID) []object.ID { return all[:4] })
	bare := bytes.Index(table, []byte("CBMP"))
	for n := bare; n < len(table); n++ {
		if _, err := graph.Parse(table[:n]); n > bare && !errors.Is(err, graph.ErrFormat) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
		bad := slices.Clone(table)
		bad[n] ^= 0x40
		if _, err := graph.Parse(bad); !errors.Is(err, graph.ErrFormat) {
			t.Fatalf("byte %d changed: %v", n, err)
		}
	}
}

func FuzzBitmaps(f *testing.F) {
	origin := repotest.History(f, 64, 20)
	_, fast, table := withBitmaps(f, origin, 0, func(all []object.ID) []object.ID { return all[:4] })
	bare := bytes.Index(table, []byte("CBMP"))
	idx := fast.DB().Pack(0).Index()
	if t, err := graph.Parse(table); err != nil || graph.ExerciseBitmaps(t, idx) != 4 {
		f.Fatalf("the bitmaps are not there: %v", err)
	}
	f.Add(table[bare:])
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 8 {
			return
		}
		parsed, err := graph.Parse(append(slices.Clone(table[:bare]), reseal(slices.Clone(data))...))
		if (err == nil) != (parsed != nil) {
			t.Fatalf("table %v, error %v", parsed, err)
		}
		if err == nil {
			graph.ExerciseBitmaps(parsed, idx)
		}
	})
}
