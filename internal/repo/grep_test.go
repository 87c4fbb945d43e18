package repo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/repo/repotest"
	"github.com/cairnstate/cairn/internal/testkit"
)

// searched makes a commit of many files: text of few words, binary files, links,
// files without a last line break, empty ones, large ones.
func searched(t *testing.T, r *rand.Rand) *repotest.Git {
	g := repotest.NewGit(t)
	words := []string{"alpha", "beta", "Gamma", "foo_bar", "x1", "42", "(a)", "", "\t", "kilo", "café", "end"}
	var in strings.Builder
	in.WriteString("commit refs/heads/main\ncommitter C <c@example.com> 1700000000 +0000\ndata 1\nm\n")
	put := func(mode, path, text string) {
		fmt.Fprintf(&in, "M %s inline %s\ndata %d\n%s\n", mode, path, len(text), text)
	}
	for i := range 120 {
		var b strings.Builder
		for range r.IntN(40) {
			for range r.IntN(5) {
				b.WriteString(words[r.IntN(len(words))])
				b.WriteString([]string{" ", "-", ""}[r.IntN(3)])
			}
			b.WriteString([]string{"\n", "\n", "\n", "\r\n"}[r.IntN(4)])
		}
		if r.IntN(5) == 0 {
			b.WriteString("end")
		}
		if r.IntN(12) == 0 {
			b.WriteString("\x00")
		}
		dir := []string{"", "src/", "src/deep/", "src.d/", "docs/a b/"}[r.IntN(5)]
		put([]string{"100644", "100755"}[r.IntN(2)], fmt.Sprintf("%sf%d%s", dir, i, []string{".go", ".txt", ""}[r.IntN(3)]), b.String())
	}
	put("120000", "link", "alpha")
	put("100644", "late-binary", strings.Repeat("alpha\n", 2000)+"beta\x00")
	put("100644", "large", strings.Repeat("no match here\n", 10_000)+"alpha at the end\n")
	g.Feed([]byte(in.String()), "fast-import", "--quiet")
	return g
}

// lines returns all that is found, page by page, as git grep -n prints it.
func lines(t *testing.T, v *repo.View, q repo.GrepQuery) []string {
	t.Helper()
	var out []string
	var at repo.GrepPosition
	for {
		page, _, err := v.Grep(context.Background(), q, at)
		if err != nil {
			t.Fatal(err)
		}
		count := 0
		for _, f := range page.Files {
			count += len(f.Lines)
			for _, l := range f.Lines {
				mark := "-"
				if l.Match {
					mark = ":"
				}
				out = append(out, fmt.Sprintf("%s%s%d%s%s", f.Path, mark, l.Number, mark, l.Text))
			}
		}
		if page.Next == nil {
			return out
		}
		if count > q.Lines {
			t.Fatalf("a page has %d lines", count)
		}
		at = *page.Next
	}
}

func TestGrepEqualsGit(t *testing.T) {
	r := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	g := searched(t, r)
	_, _, v := serve(t, g, layouts[1])
	tip := g.ID("main")
	// Where nothing is left after the last line break, git finds "^$" in it.
	for _, pattern := range []string{
		"alpha", "^alpha", "end$", "^.$", "(alpha|beta)[- ]?Gamma", "[0-9]{2}", "foo_bar.*kilo", `\(a\)`, "x1|42", "^[^a]+$", "k", "is not there", `\bfoo`, "caf.",
	} {
		for n, q := range []repo.GrepQuery{
			{CaseSensitive: true}, {}, {CaseSensitive: true, Before: 2, Behind: 1}, {CaseSensitive: true, Before: 1, Behind: 3, PerFile: 2},
			{CaseSensitive: true, Paths: []string{"src"}}, {CaseSensitive: true, Paths: []string{"src/deep/", "*.txt"}, Before: 1},
		} {
			q.Commit, q.Pattern, q.Limit, q.Lines = tip, pattern, 1+r.IntN(300), 50+r.IntN(1000)
			args := []string{"-c", "core.quotePath=false", "grep", "-E", "-n", "-I", "--no-color", "--full-name"}
			if !q.CaseSensitive {
				args = append(args, "-i")
			}
			if q.PerFile == 0 {
				q.PerFile = 1 << 20
			} else {
				args = append(args, fmt.Sprintf("--max-count=%d", q.PerFile))
			}
			args = append(args, fmt.Sprintf("-B%d", q.Before), fmt.Sprintf("-A%d", q.Behind), "-e", pattern, tip.String(), "--")
			args = append(args, q.Paths...)
			printed, _ := g.Try(nil, args...) // it fails where nothing matches
			var want []string
			for line := range strings.SplitSeq(strings.TrimSuffix(string(printed), "\n"), "\n") {
				if line != "" && line != "--" {
					want = append(want, line[len(tip.String())+1:])
				}
			}
			if got := lines(t, v, q); !slices.Equal(got, want) {
				i := 0
				for i < min(len(got), len(want)) && got[i] == want[i] {
					i++
				}
				t.Errorf("%q, query %d: %d lines, git has %d; from %d on %q, git %q", pattern, n, len(got), len(want), i, got[i:min(i+3, len(got))], want[i:min(i+3, len(want))])
			}
		}
	}
}

func TestGrepSelection(t *testing.T) {
	g := repotest.NewGit(t)
	var in strings.Builder
	in.WriteString("commit refs/heads/main\ncommitter C <c@example.com> 1700000000 +0000\ndata 1\nm\n")
	for _, path := range []string{"a.js", "a/b.js", "a/b/c.ts", "a/b/d.test.ts", "ab/x.js", "vendor/a/y.js", "z[1].js"} {
		fmt.Fprintf(&in, "M 100644 inline %s\ndata 2\nm\n\n", path)
	}
	fmt.Fprintf(&in, "M 100644 inline huge\ndata %d\nm\n%s\n", repo.GrepMaxFile+2, strings.Repeat("x", repo.GrepMaxFile))
	g.Feed([]byte(in.String()), "fast-import", "--quiet")
	_, _, v := serve(t, g, layouts[0])
	base := repo.GrepQuery{Commit: g.ID("main"), Pattern: "m", CaseSensitive: true, PerFile: 1, Limit: 100, Lines: 100}
	for want, change := range map[string]func(*repo.GrepQuery){
		"a.js a/b.js a/b/c.ts a/b/d.test.ts ab/x.js vendor/a/y.js z[1].js": func(*repo.GrepQuery) {},
		"a/b.js a/b/c.ts a/b/d.test.ts":                                    func(q *repo.GrepQuery) { q.Paths = []string{"/a/"} },
		"a.js a/b/c.ts a/b/d.test.ts":                                      func(q *repo.GrepQuery) { q.Paths = []string{"a/b", "./a.js"} },
		"a/b/c.ts ab/x.js":                                                 func(q *repo.GrepQuery) { q.Paths = []string{"a/*/c*", "ab/*.js"} },
		"a/b.js a/b/c.ts a/b/d.test.ts vendor/a/y.js":                      func(q *repo.GrepQuery) { q.Paths = []string{"[a]"} },
		"a/b/c.ts": func(q *repo.GrepQuery) { q.Extensions, q.Exclude = []string{".ts"}, []string{"*.test.ts"} },
		"a/b.js vendor/a/y.js": func(q *repo.GrepQuery) {
			q.Extensions, q.Include = []string{"js"}, []string{"a/**", "vendor/**"}
		},
		"z[1].js": func(q *repo.GrepQuery) { q.Paths = []string{`z\[1\].js`} },
		"":        func(q *repo.GrepQuery) { q.Paths = []string{"b.js", "none/", "a.js/x"} },
	} {
		q := base
		change(&q)
		page, _, err := v.Grep(context.Background(), q, repo.GrepPosition{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range page.Files {
			got = append(got, f.Path)
		}
		if strings.Join(got, " ") != want || page.Next != nil {
			t.Errorf("selected %q, want %q", got, want)
		}
	}
	for name, change := range map[string]func(*repo.GrepQuery){
		"pattern":         func(q *repo.GrepQuery) { q.Pattern = "(" },
		"many globs":      func(q *repo.GrepQuery) { q.Include = make([]string, 100_000) },
		"many extensions": func(q *repo.GrepQuery) { q.Extensions = make([]string, 100_000) },
		"empty extension": func(q *repo.GrepQuery) { q.Extensions = []string{""} },
		"many paths":      func(q *repo.GrepQuery) { q.Paths = slices.Repeat([]string{"a"}, 100_000) },
		"long globs":      func(q *repo.GrepQuery) { q.Exclude = slices.Repeat([]string{strings.Repeat("a*", 1000)}, 100) },
		"malformed glob":  func(q *repo.GrepQuery) { q.Include = []string{"["} },
		"malformed path":  func(q *repo.GrepQuery) { q.Paths = []string{"a/["} },
		"magic":           func(q *repo.GrepQuery) { q.Paths = []string{":(exclude)a"} },
	} {
		q := base
		change(&q)
		var invalid *repo.InvalidError
		if _, _, err := v.Grep(context.Background(), q, repo.GrepPosition{}); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := v.Grep(ctx, base, repo.GrepPosition{Path: "a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
