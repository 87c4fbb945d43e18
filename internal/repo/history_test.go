package repo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/repo/repotest"
	"github.com/cairnstate/cairn/internal/testkit"
)

// history returns all commits that Cairn lists for a path, in pages.
func history(t *testing.T, v *repo.View, tip object.ID, path string, limit int) []string {
	t.Helper()
	var out []string
	for {
		ids, more, err := v.Commits(context.Background(), repo.CommitsQuery{Tip: tip, Path: path, Skip: len(out), Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			out = append(out, id.String())
		}
		if !more {
			return out
		}
		if len(ids) != limit {
			t.Fatalf("a page of %d commits where %d were asked for", len(ids), limit)
		}
	}
}

// tangled makes a history whose branches fork, merge and cross: files change,
// move, turn into directories and links and back, change their mode, come back
// to what they were; merges take one side, both or neither. Many commits have
// equal dates.
func tangled(t *testing.T, r *rand.Rand, commits int) *repotest.Git {
	g := repotest.NewGit(t)
	var in strings.Builder
	type tree map[string]string // path to mode and content
	trees := []tree{}
	names := []string{"a", "b", "dir/a", "dir/b", "dir/sub/c", "dir/sub/d", "e"}
	date := 1_700_000_000
	heads := []int{}
	for c := range commits {
		date += r.IntN(3) * r.IntN(2)
		var parents []int
		if c > 0 {
			parents = []int{heads[r.IntN(len(heads))]}
			for r.IntN(3) == 0 && len(parents) < 3 {
				if other := heads[r.IntN(len(heads))]; !slices.Contains(parents, other) {
					parents = append(parents, other)
				}
			}
		}
		now := tree{}
		for _, name := range names {
			if len(parents) > 0 { // each file comes from some parent
				if what, ok := trees[parents[r.IntN(len(parents))]][name]; ok {
					now[name] = what
				}
			}
		}
		if len(parents) < 2 || r.IntN(3) == 0 {
			for range 1 + r.IntN(2) {
				name := names[r.IntN(len(names))]
				switch r.IntN(6) {
				case 0:
					delete(now, name)
				case 1:
					now[name] = "100755 x"
				case 2:
					now[name] = "120000 target"
				case 3: // a rename
					to := names[r.IntN(len(names))]
					if what, ok := now[name]; ok {
						delete(now, name)
						now[to] = what
					}
				default:
					now[name] = fmt.Sprintf("100644 %d", r.IntN(4))
				}
			}
		}
		if r.IntN(12) == 0 { // a directory becomes a file
			for name := range now {
				if strings.HasPrefix(name, "dir/") {
					delete(now, name)
				}
			}
			now["dir"] = "100644 file"
		} else if len(now) == 0 || r.IntN(2) == 0 {
			delete(now, "dir")
		}
		if _, file := now["dir"]; file {
			for name := range now {
				if strings.HasPrefix(name, "dir/") {
					delete(now, name)
				}
			}
		}
		trees = append(trees, now)
		fmt.Fprintf(&in, "commit refs/heads/b%d\nmark :%d\ncommitter C <c@example.com> %d +0000\ndata 1\nm\n", c, c+1, date)
		for i, p := range parents {
			fmt.Fprintf(&in, "%s :%d\n", []string{"from", "merge", "merge"}[i], p+1)
		}
		in.WriteString("deleteall\n")
		for name, what := range now {
			mode, content, _ := strings.Cut(what, " ")
			fmt.Fprintf(&in, "M %s inline %s\ndata %d\n%s\n", mode, name, len(content), content)
		}
		if len(heads) < 4 {
			heads = append(heads, c)
		} else {
			heads[r.IntN(len(heads))] = c
		}
	}
	fmt.Fprintf(&in, "reset refs/heads/main\nfrom :%d\n", commits)
	g.Feed([]byte(in.String()), "fast-import", "--quiet")
	return g
}

func TestHistoryEqualsGit(t *testing.T) {
	seed := testkit.Seed(t)
	rounds := 4
	if testkit.Soaking() {
		rounds = 100
	}
	for round := range rounds {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		g := tangled(t, r, 150)
		_, _, v := serve(t, g, layouts[1])
		tip := g.ID("main")
		for _, path := range []string{"", "a", "e", "dir", "dir/a", "dir/sub", "dir/sub/c", "dir/sub/d", "none", "a/below"} {
			args := []string{"--literal-pathspecs", "log", "--format=%H", tip.String(), "--"}
			if path != "" {
				args = append(args, path)
			}
			want := strings.Fields(g.Run(args...))
			for _, limit := range []int{1, 7, 1000} {
				if got := history(t, v, tip, path, limit); !slices.Equal(got, want) {
					t.Fatalf("round %d, path %q, pages of %d: %d commits, git has %d", round, path, limit, len(got), len(want))
				}
			}
			if path == "" || len(want) == 0 {
				continue
			}
			if last, err := v.LastCommit(context.Background(), tip, path); err != nil || last.String() != want[0] {
				t.Errorf("round %d: %q was last touched by %s, %v; git says %s", round, path, last, err, want[0])
			}
		}
		// Many at once, from an early commit on and then from a later one.
		paths := []string{"a", "b", "e", "dir", "dir/a", "dir/b", "dir/sub", "dir/sub/c", "none"}
		for _, branch := range []string{"b70", "b110", "main"} {
			found, err := v.LastCommits(context.Background(), g.ID(branch), paths)
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range paths {
				want := g.Run("--literal-pathspecs", "log", "-1", "--format=%H", branch, "--", path)
				if id, ok := found[path]; ok != (want != "") || ok && id.String() != want {
					t.Errorf("round %d: %q of %s was last touched by %s, git says %q", round, path, branch, id, want)
				}
			}
		}
	}
}

func TestHistoryRefusals(t *testing.T) {
	ctx := context.Background()
	g := repotest.History(t, 51, 30)
	_, _, v := serve(t, g, layouts[1])
	tip := g.ID("main")
	var missing *repo.NotFoundError
	if _, _, err := v.Commits(ctx, repo.CommitsQuery{Tip: object.ID{1}, Limit: 5}); !errors.As(err, &missing) {
		t.Errorf("a tip that is not there: %v", err)
	}
	var invalid *repo.InvalidError
	if _, _, err := v.Commits(ctx, repo.CommitsQuery{Tip: tip, Skip: 1 << 30, Limit: 5}); !errors.As(err, &invalid) {
		t.Errorf("beyond the end: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := v.Commits(ended, repo.CommitsQuery{Tip: tip, Path: "d0", Limit: 5}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	want := strings.Fields(g.Run("log", "--format=%H", "main", "--", "d0"))
	if got := history(t, v, tip, "d0", 3); !slices.Equal(got, want) {
		t.Errorf("after a cancelled call: %d commits, git has %d", len(got), len(want))
	}
}
