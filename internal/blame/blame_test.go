package blame_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/blame"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/repo/repotest"
	"github.com/cairnstate/cairn/internal/testkit"
)

var program = gitcmd.New(gitcmd.Config{})

func load(t *testing.T, g *repotest.Git) *graph.Graph {
	t.Helper()
	s := repotest.NewStore(t, 4<<10)
	id := s.Create()
	s.Import(g, id, 20, 5, true)
	ctx := context.Background()
	db, err := s.ODB.Open(ctx, s.Row(id).PackSet)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := graph.Open(ctx, db, nil)
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// theirs returns what git says of each line.
func theirs(t *testing.T, g *repotest.Git, tip object.ID, path string, options ...string) ([]blame.Line, error) {
	t.Helper()
	out, err := g.Try(nil, append(append([]string{"-c", "core.quotePath=false", "blame", "--line-porcelain"}, options...), tip.String(), "--", path)...)
	if err != nil {
		return nil, err
	}
	var lines []blame.Line
	var l blame.Line
	for text := range strings.Lines(string(out)) {
		text = strings.TrimSuffix(text, "\n")
		key, value, _ := strings.Cut(text, " ")
		switch {
		case strings.HasPrefix(text, "\t"):
			lines = append(lines, l)
		case len(key) == 40:
			l = blame.Line{Commit: repotest.ParseIDs(t, key)[0]}
			if _, err := fmt.Sscan(value, &l.Original, &l.Number); err != nil {
				t.Fatal(err)
			}
		case key == "previous":
			l.Previous = repotest.ParseIDs(t, value[:40])[0]
		case key == "filename":
			l.Path = value
		}
	}
	return lines, nil
}

// compare holds an answer to git's.
func compare(t *testing.T, g *repotest.Git, have *graph.Graph, q blame.Query) (ok bool) {
	t.Helper()
	var options []string
	for _, r := range q.Ranges {
		options = append(options, "-L"+r)
	}
	if q.Moves {
		options = append(options, "-M", "-C", "-C")
	}
	want, gitErr := theirs(t, g, q.Commit, q.Path, options...)
	got, err := blame.Blame(context.Background(), program, have, newRoom(t), q)
	if (gitErr == nil) != (err == nil) {
		t.Errorf("%+v: %v, git says %v", q, err, gitErr)
		return false
	}
	if !slices.Equal(got, want) {
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Errorf("%s of %s, ranges %q, moves %t: %d lines, git has %d; line %d is %+v, git has %+v",
					q.Path, q.Commit, q.Ranges, q.Moves, len(got), len(want), i+1, got[i:min(i+1, len(got))], want[i:min(i+1, len(want))])
				return false
			}
		}
	}
	return true
}

// evolving makes a history of a few files of lines: they are edited, moved with and
// without edits, split, copied, removed and made anew, change their mode and kind;
// branches fork, merge with either side's lines or both, and cross.
func evolving(t *testing.T, r *rand.Rand, commits int) (g *repotest.Git, paths map[int][]string) {
	g = repotest.NewGit(t)
	type file struct {
		mode string
		text []string
	}
	names := []string{"a", "b", "dir/a", "dir/b", "dir/sub/a", "dir/sub/c", "é x", "dir"}
	var in strings.Builder
	trees := make([]map[string]file, 0, commits)
	paths = map[int][]string{}
	word := func() string { return fmt.Sprintf("line %d of words", r.IntN(300)) }
	heads := []int{}
	for c := range commits {
		var parents []int
		if c > 0 {
			parents = []int{heads[r.IntN(len(heads))]}
			for r.IntN(3) == 0 && len(parents) < 3 {
				if other := heads[r.IntN(len(heads))]; !slices.Contains(parents, other) {
					parents = append(parents, other)
				}
			}
		}
		now := map[string]file{}
		for _, name := range names {
			if len(parents) == 0 {
				break
			}
			if what, ok := trees[parents[r.IntN(len(parents))]][name]; ok {
				now[name] = what
				if other, ok := trees[parents[len(parents)-1]][name]; ok && r.IntN(2) == 0 && what.mode == other.mode && what.mode != "120000" { // lines of both
					cut, at := r.IntN(len(what.text)+1), r.IntN(len(other.text)+1)
					now[name] = file{what.mode, append(slices.Clone(what.text[:cut]), other.text[at:]...)}
				}
			}
		}
		for range 1 + r.IntN(3) {
			name := names[r.IntN(len(names))]
			was, ok := now[name]
			text := slices.Clone(was.text)
			switch n := r.IntN(14); {
			case !ok && n < 8:
				for range 3 + r.IntN(12) {
					text = append(text, word())
				}
				now[name] = file{"100644", text}
			case !ok:
			case n < 5 && len(text) > 0:
				for range 1 + r.IntN(3) {
					text[r.IntN(len(text))] = word()
				}
				now[name] = file{was.mode, text}
			case n < 7:
				at := r.IntN(len(text) + 1)
				now[name] = file{was.mode, slices.Insert(text, at, word(), word())}
			case n == 7 && len(text) > 4: // lines move
				at := r.IntN(len(text) - 3)
				block := slices.Clone(text[at : at+3])
				now[name] = file{was.mode, append(slices.Delete(text, at, at+3), block...)}
			case n == 8:
				delete(now, name)
			case n == 9:
				now[name] = file{[]string{"100644", "100755", "120000"}[r.IntN(3)], text}
			default: // it is renamed, perhaps onto another, and perhaps changed
				to := names[r.IntN(len(names))]
				if n == 10 {
					text = slices.Insert(text, r.IntN(len(text)+1), word())
				}
				if n != 11 { // a copy stays
					delete(now, name)
				}
				now[to] = file{was.mode, text}
			}
		}
		if r.IntN(2) == 0 {
			delete(now, "dir")
		}
		if _, ok := now["dir"]; ok {
			for name := range now {
				if strings.HasPrefix(name, "dir/") {
					delete(now, name)
				}
			}
		}
		trees = append(trees, now)
		fmt.Fprintf(&in, "commit refs/heads/b%d\nmark :%d\ncommitter C <c@example.com> %d +0000\ndata 1\nm\n", c, c+1, 1_700_000_000+c/3)
		for i, p := range parents {
			fmt.Fprintf(&in, "%s :%d\n", []string{"from", "merge", "merge"}[i], p+1)
		}
		in.WriteString("deleteall\n")
		for name, what := range now {
			content := strings.Join(what.text, "\n") + []string{"\n", ""}[c%2]
			if what.mode == "120000" && content == "" {
				content = "x"
			}
			fmt.Fprintf(&in, "M %s inline %s\ndata %d\n%s\n", what.mode, name, len(content), content)
			paths[c] = append(paths[c], name)
		}
		slices.Sort(paths[c])
		if len(heads) < 4 {
			heads = append(heads, c)
		} else {
			heads[r.IntN(len(heads))] = c
		}
	}
	g.Feed([]byte(in.String()), "fast-import", "--quiet")
	return g, paths
}

func TestBlameEqualsGit(t *testing.T) {
	seed := testkit.Seed(t)
	rounds := 3
	if testkit.Soaking() {
		rounds = 200
	}
	blamed := 0
	for round := range rounds {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		const commits = 120
		g, paths := evolving(t, r, commits)
		have := load(t, g)
		for c := commits - 1; c > 0; c -= 7 {
			tip := g.ID(fmt.Sprintf("b%d", c))
			for _, path := range paths[c] {
				q := blame.Query{Commit: tip, Path: path}
				if blamed++; blamed%3 == 0 {
					q.Ranges = []string{[]string{"2,4", "1,+2", "/line 1/,+3", "3", ",2", "/words/,/line 2/", ":line", "4,-2"}[r.IntN(8)], "1,1"}[:1+r.IntN(2)]
				}
				if !compare(t, g, have, q) {
					t.Fatalf("round %d, b%d", round, c)
				}
				if blamed%10 == 0 {
					q.Moves = true
					if !compare(t, g, have, q) {
						t.Fatalf("round %d, b%d", round, c)
					}
				}
			}
		}
	}
	if blamed < 100 {
		t.Errorf("only %d files were blamed", blamed)
	}
}

func TestBlameRefusals(t *testing.T) {
	g := repotest.NewGit(t)
	var in strings.Builder
	in.WriteString("commit refs/heads/main\nmark :1\ncommitter C <c@example.com> 1700000000 +0000\ndata 1\nm\n")
	for path, text := range map[string]string{"f": "one\ntwo\n", "empty": "", "bin": "a\x00b", "d/f": "x", "-h": "dash\n", ":x": "colon\n", "many": strings.Repeat("\n", blame.MaxLines+1)} {
		fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", path, len(text), text)
	}
	in.WriteString("M 160000 0123456789012345678901234567890123456789 sub\n")
	g.Feed([]byte(in.String()), "fast-import", "--quiet")
	have := load(t, g)
	tip := g.ID("main")
	ask := func(q blame.Query) ([]blame.Line, error) {
		q.Commit = tip
		return blame.Blame(context.Background(), program, have, newRoom(t), q)
	}
	for path, lines := range map[string]int{"f": 2, "empty": 0, "-h": 1, ":x": 1, "d/f": 1} {
		for _, moves := range []bool{false, true} {
			if got, err := ask(blame.Query{Path: path, Moves: moves}); err != nil || len(got) != lines {
				t.Errorf("%q has %d lines, %v", path, len(got), err)
			}
		}
	}
	for _, path := range []string{"none", "d", "sub", "f/x", ""} {
		var missing *blame.NotFoundError
		if _, err := ask(blame.Query{Path: path}); !errors.As(err, &missing) {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, ranges := range [][]string{
		{"3,4"}, {"x"}, {""}, {"--help"}, {"-M"}, {"1,2\n"}, {"/none/"}, {"/[/"}, {":none"}, {"1,2,3"}, {"0"}, slices.Repeat([]string{"1"}, 17), {"1", "99"},
		{`/\(a\)\1/`}, {`/\(\(a\{200\}\)\{200\}\)/`}, {`/a\{2000\}/`}, {`/a\{1,x\}/`}, {"/" + strings.Repeat("a", 300) + "/"},
	} {
		var invalid *blame.InvalidError
		if got, err := ask(blame.Query{Path: "f", Ranges: ranges}); !errors.As(err, &invalid) {
			t.Errorf("range %.60q: %+v, %v", ranges, got, err)
		}
	}
	var invalid *blame.InvalidError
	if _, err := ask(blame.Query{Path: "bin"}); !errors.As(err, &invalid) {
		t.Errorf("a binary file: %v", err)
	}
	var limit *blame.LimitError
	if _, err := ask(blame.Query{Path: "many"}); !errors.As(err, &limit) {
		t.Errorf("very many lines: %v", err)
	}
	if got, err := ask(blame.Query{Path: "many", Ranges: []string{"5,+2"}}); err != nil || len(got) != 2 || got[0].Number != 5 {
		t.Errorf("a part of very many lines: %+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := blame.Blame(ctx, program, have, newRoom(t), blame.Query{Commit: tip, Path: "f"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func newRoom(t *testing.T) *gitcmd.Room {
	t.Helper()
	room := gitcmd.NewRoom(t.TempDir())
	t.Cleanup(func() {
		if err := room.Close(); err != nil {
			t.Error(err)
		}
	})
	return room
}
