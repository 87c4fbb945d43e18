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

// kinds counts what there was to merge: what git says that it met, by its own
// short names, and how files differ between a merge base and a side.
type kinds map[string]int

// mustMeet are the kinds that histories have to lead to.
var mustMeet = []string{
	"Auto-merging", "CONFLICT (contents)", "CONFLICT (binary)", "CONFLICT (modify/delete)", "CONFLICT (rename/delete)", "CONFLICT (rename/rename)",
	"CONFLICT (file/directory)", "CONFLICT (distinct modes)", "CONFLICT (directory rename suggested)", "CONFLICT (submodule not initialized)",
	"renamed", "mode changed", "submodule changed", "binary changed", "type changed",
}

// missing are those of mustMeet that were not counted.
func (k kinds) missing() []string {
	return slices.DeleteFunc(slices.Clone(mustMeet), func(kind string) bool { return k[kind] > 0 })
}

// met counts what git says of a merge: after an empty field, for each message the
// number of its paths, the paths, the kind and the text.
func (k kinds) met(messages string) {
	parts := strings.Split(messages, "\x00")
	for len(parts) > 1 {
		var n int
		fmt.Sscan(parts[0], &n)
		k[parts[1+n]]++
		parts = parts[3+n:]
	}
}

// differ counts how files differ between two commits.
func (k kinds) differ(g *repotest.Git, base, side object.ID) {
	for line := range strings.Lines(g.Run("diff-tree", "-r", "-M", "--numstat", "--raw", base.String(), side.String())) {
		f := strings.Fields(line)
		switch {
		case f[0] == "-":
			k["binary changed"]++
		case !strings.HasPrefix(line, ":"):
		case strings.HasPrefix(f[4], "R"):
			k["renamed"]++
		case f[4] == "T":
			k["type changed"]++
		case f[4] == "M" && f[1] == "160000":
			k["submodule changed"]++
		case f[4] == "M" && f[0] != ":"+f[1]:
			k["mode changed"]++
		}
	}
}

// oracle merges with git in the whole repository.
func (w *world) oracle(tb testing.TB, ours, theirs object.ID, met kinds) outcome {
	tb.Helper()
	out, err := w.git.Try(nil, "merge-tree", "--write-tree", "-z", "--messages", "--allow-unrelated-histories", ours.String(), theirs.String())
	if err != nil && strings.Contains(err.Error(), "signal: aborted") {
		return outcome{tree: crashed}
	}
	if err != nil && !strings.Contains(err.Error(), "exit status 1\n") {
		tb.Fatal(err)
	}
	head, messages, _ := strings.Cut(string(out), "\x00\x00")
	met.met(messages)
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
func (w *world) compare(tb testing.TB, ours, theirs object.ID, met kinds) (started, conflicted, missed bool) {
	tb.Helper()
	got, given, misses := w.cairn(tb, ours, theirs)
	want := w.oracle(tb, ours, theirs, met)
	if got.tree != want.tree || !slices.Equal(got.conflicts, want.conflicts) {
		tb.Errorf("merge %s and %s:\ngot  %s %q\nwant %s %q", ours, theirs, got.tree, got.conflicts, want.tree, want.conflicts)
	}
	return given > 0, len(want.conflicts) > 0, misses > 0
}

// submodules makes two commits that move a submodule apart; chance leads to that
// too seldom.
func submodules(g *repotest.Git) (ours, theirs object.ID) {
	blob := strings.TrimSpace(g.Feed([]byte("text\n"), "hash-object", "-w", "--stdin"))
	commit := func(digit string, parents ...string) string {
		tree := g.Feed(fmt.Appendf(nil, "100644 blob %s\tfile\n160000 commit %s\tsub\n", blob, strings.Repeat(digit, 40)), "mktree", "--missing")
		args := []string{"-c", "user.name=A", "-c", "user.email=a@example.com", "commit-tree", "-m", digit, strings.TrimSpace(tree)}
		for _, parent := range parents {
			args = append(args, "-p", parent)
		}
		return strings.TrimSpace(g.Run(args...))
	}
	base := commit("1")
	for i, digit := range []string{"2", "3"} {
		g.Run("update-ref", fmt.Sprintf("refs/heads/submodule-%d", i), commit(digit, base))
	}
	return g.ID("refs/heads/submodule-0"), g.ID("refs/heads/submodule-1")
}

// TestLikeGit merges what was merged, and other commits, as git does.
func TestLikeGit(t *testing.T) {
	seed := testkit.Seed(t)
	rounds, pairs := 2, 60
	if testkit.Soaking() {
		rounds, pairs = 20, 400
	}
	met := kinds{}
	// Chance may leave a kind out of a round, but not out of ten more.
	for round := 0; round < rounds || round < rounds+10 && len(met.missing()) > 0; round++ {
		g := repotest.History(t, seed+uint64(round), 150)
		if round%2 == 1 {
			g = renames(t, seed+uint64(round), 150)
		}
		ours, theirs := submodules(g)
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
			started, conflicted, missed := w.compare(t, ours, theirs, met)
			bases, err := w.graph.MergeBases(ctx, ours, theirs)
			if err != nil {
				t.Fatal(err)
			}
			for _, base := range bases {
				met.differ(g, base, ours)
				met.differ(g, base, theirs)
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
		try(ours, theirs)
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
	t.Logf("met %v", met)
	if missing := met.missing(); len(missing) > 0 {
		t.Errorf("no merge met %q", missing)
	}
}
