package merge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/merge"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/repo/repotest"
	"github.com/cairnstate/cairn/internal/testkit"
)

var program = gitcmd.New(gitcmd.Config{})

// world is a repository as git has it and as Cairn does.
type world struct {
	git   *repotest.Git
	db    *odb.DB
	graph *graph.Graph
	room  *gitcmd.Room
}

func newRoom(tb testing.TB) *gitcmd.Room {
	tb.Helper()
	room := gitcmd.NewRoom(tb.TempDir())
	tb.Cleanup(func() {
		if err := room.Close(); err != nil {
			tb.Error(err)
		}
	})
	return room
}

func load(tb testing.TB, g *repotest.Git) *world {
	tb.Helper()
	ctx := context.Background()
	s := repotest.NewStore(tb, 4<<10)
	id := s.Create()
	s.Import(g, id, 20, 5, true)
	db, err := s.ODB.Open(ctx, s.Row(id).PackSet)
	if err != nil {
		tb.Fatal(err)
	}
	gr, err := graph.Open(ctx, db, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return &world{g, db, gr, newRoom(tb)}
}

// merge merges two commits with Cairn; nil when git breaks at it.
func (w *world) merge(tb testing.TB, ours, theirs object.ID) *merge.Merged {
	tb.Helper()
	ctx := context.Background()
	bases, err := w.graph.MergeBases(ctx, ours, theirs)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := merge.Merge(ctx, merge.Request{
		DB: w.db, Graph: w.graph, Ours: ours, Theirs: theirs, Bases: bases, Git: program, Room: w.room,
	})
	if _, crashed := errors.AsType[*merge.CrashError](err); crashed {
		return nil
	}
	if err != nil {
		tb.Fatalf("merge %s and %s: %v", ours, theirs, err)
	}
	tb.Cleanup(func() { m.Close() })
	return m
}

// crashed is the tree of merges at which git breaks.
const crashed = "none: git crashed"

// outcome is a merge as it is compared.
type outcome struct {
	tree      string // "" when there are conflicts
	conflicts []string
}

func (w *world) cairn(tb testing.TB, ours, theirs object.ID) (outcome, int, int) {
	m := w.merge(tb, ours, theirs)
	if m == nil {
		return outcome{tree: crashed}, 0, 0
	}
	given, missed := m.Given()
	var o outcome
	for _, c := range m.Conflicts {
		for i, s := range []merge.Side{c.Base, c.Ours, c.Theirs} {
			if s.Mode != 0 {
				s.ID = w.renamed(tb, m, s, ours, theirs)
				o.conflicts = append(o.conflicts, fmt.Sprintf("%06o %s %d %s", s.Mode, s.ID, i+1, c.Path))
			}
		}
		if c.Base.Mode|c.Ours.Mode|c.Theirs.Mode == 0 {
			o.conflicts = append(o.conflicts, "message "+c.Path)
		}
	}
	if len(o.conflicts) == 0 {
		o.tree = m.Tree.String()
	}
	slices.Sort(o.conflicts)
	return o, given, missed
}

// renamed returns the id that a text of git's has with the labels that git has in
// the whole repository.
func (w *world) renamed(tb testing.TB, m *merge.Merged, s merge.Side, ours, theirs object.ID) object.ID {
	if s.Mode == object.ModeSubmodule || !m.Wrote(s.ID) {
		return s.ID
	}
	typ, _, content, err := m.Object(context.Background(), s.ID)
	if err != nil {
		tb.Fatal(err)
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	if err != nil {
		tb.Fatal(err)
	}
	return object.Hash(typ, m.Relabel(text, ours.String(), theirs.String()))
}

// oracle merges with git in the whole repository.
func (w *world) oracle(tb testing.TB, ours, theirs object.ID) outcome {
	tb.Helper()
	out, err := w.git.Try(nil, "merge-tree", "--write-tree", "-z", "--messages", "--allow-unrelated-histories", ours.String(), theirs.String())
	if err != nil && strings.Contains(err.Error(), "signal: aborted") {
		return outcome{tree: crashed}
	}
	if err != nil && !strings.Contains(err.Error(), "exit status 1\n") {
		tb.Fatal(err)
	}
	head, messages, _ := strings.Cut(string(out), "\x00\x00")
	lines := strings.Split(strings.TrimSuffix(head, "\x00"), "\x00")
	var o outcome
	if err == nil {
		o.tree = lines[0]
		return o
	}
	for _, l := range lines[1:] {
		info, path, _ := strings.Cut(l, "\t")
		for _, id := range []object.ID{ours, theirs} {
			path, _, _ = strings.Cut(path, "~"+id.String())
		}
		o.conflicts = append(o.conflicts, info+" "+path)
	}
	if len(lines) == 1 {
		seen := map[string]bool{}
		parts := strings.Split(messages, "\x00")
		for len(parts) > 1 {
			var n int
			fmt.Sscan(parts[0], &n)
			for _, p := range parts[1 : 1+n] {
				if strings.HasPrefix(parts[1+n], "CONFLICT") && !seen[p] {
					seen[p] = true
					o.conflicts = append(o.conflicts, "message "+p)
				}
			}
			parts = parts[3+n:]
		}
	}
	slices.Sort(o.conflicts)
	return o
}

// compare merges both ways and reports whether git was started, the result has
// conflicts, and git missed an object.
func (w *world) compare(tb testing.TB, ours, theirs object.ID) (started, conflicted, missed bool) {
	tb.Helper()
	got, given, misses := w.cairn(tb, ours, theirs)
	want := w.oracle(tb, ours, theirs)
	if got.tree != want.tree || !slices.Equal(got.conflicts, want.conflicts) {
		tb.Errorf("merge %s and %s:\ngot  %s %q\nwant %s %q", ours, theirs, got.tree, got.conflicts, want.tree, want.conflicts)
	}
	return given > 0, len(want.conflicts) > 0, misses > 0
}

// TestLikeGit merges what was merged, and other commits, as git does.
func TestLikeGit(t *testing.T) {
	seed := testkit.Seed(t)
	rounds, pairs := 2, 60
	if testkit.Soaking() {
		rounds, pairs = 20, 400
	}
	for round := range rounds {
		g := repotest.History(t, seed+uint64(round), 150)
		if round%2 == 1 {
			g = renames(t, seed+uint64(round), 150)
		}
		w := load(t, g)
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		var count struct{ all, started, conflicted, missed, several, unrelated int }
		try := func(ours, theirs object.ID) {
			ctx := context.Background()
			for _, p := range [][2]object.ID{{ours, theirs}, {theirs, ours}} {
				if ok, err := w.graph.IsAncestor(ctx, p[0], p[1]); ok || err != nil {
					return // a fast-forward, which is not this package's
				}
			}
			started, conflicted, missed := w.compare(t, ours, theirs)
			bases, err := w.graph.MergeBases(ctx, ours, theirs)
			if err != nil {
				t.Fatal(err)
			}
			count.all++
			for n, yes := range map[*int]bool{
				&count.started: started, &count.conflicted: conflicted, &count.missed: missed,
				&count.several: len(bases) > 1, &count.unrelated: len(bases) == 0,
			} {
				if yes {
					*n++
				}
			}
		}
		for line := range strings.Lines(g.Run("rev-list", "--all", "--min-parents=2", "--max-parents=2", "--parents")) {
			ids := repotest.ParseIDs(t, strings.ReplaceAll(strings.TrimSpace(line), " ", "\n"))
			try(ids[1], ids[2])
		}
		all := g.IDs("rev-list", "--all")
		for range pairs {
			try(all[r.IntN(len(all))], all[r.IntN(len(all))])
		}
		t.Logf("round %d: %+v", round, count)
		if count.all < pairs/4 || count.conflicted == 0 || count.started == count.conflicted {
			t.Errorf("the merges are too few or too alike: %+v", count)
		}
	}
}
