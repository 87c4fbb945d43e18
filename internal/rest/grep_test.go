package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/repo"
)

// found spells the lines of an answer.
func found(r api.GrepResult) string {
	var out []string
	for _, m := range r.Matches {
		for _, l := range m.Lines {
			out = append(out, fmt.Sprintf("%s:%d:%s:%s", m.Path, l.LineNumber, l.Type, l.Text))
		}
	}
	return strings.Join(out, " ")
}

func TestGrep(t *testing.T) {
	s := newStack(t)
	s.create("r")
	token := s.full("r")
	for _, path := range pathsOf("r", "grep") {
		s.refused(http.StatusNotFound, api.NotFound, "POST", path, token, `{"query":{"pattern":"a"}}`)
	}
	ack := s.commit("r", nil, map[string]string{
		"README.md": "Hello\nworld\n", "src/a.js": "one\ntwo\nthree\nfour\n", "src/b.ts": "two\n", "bin": "two\x00", "vendor/c.js": "two",
	})
	s.commit("r", map[string]any{"target_branch": "side", "base_branch": "main", "ephemeral": true}, map[string]string{"x": "only here"})
	for _, path := range pathsOf("r", "grep") {
		for body, want := range map[string]string{
			`{"query":{"pattern":"hello"}}`:                                                     "",
			`{"query":{"pattern":"hello","case_sensitive":false}}`:                              "README.md:1:match:Hello",
			`{"query":{"pattern":"^two$"},"rev":"main","file_filters":{},"x":1}`:                "src/a.js:2:match:two src/b.ts:1:match:two vendor/c.js:1:match:two",
			`{"query":{"pattern":"two"},"ref":"main","paths":["src"]}`:                          "src/a.js:2:match:two src/b.ts:1:match:two",
			`{"query":{"pattern":"two"},"ref":"HEAD","rev":"none","limits":{}}`:                 "src/a.js:2:match:two src/b.ts:1:match:two vendor/c.js:1:match:two",
			`{"query":{"pattern":"two"},"context":{"before":1,"after":9},"paths":["src/a.js"]}`: "src/a.js:1:context:one src/a.js:2:match:two src/a.js:3:context:three src/a.js:4:context:four",
			`{"query":{"pattern":"o"},"limits":{"max_matches_per_file":1,"max_lines":9},"file_filters":{"extension_filters":[".js"],"exclude_globs":["vendor/**"]},"pagination":{}}`: "src/a.js:1:match:one",
			`{"query":{"pattern":"."},"file_filters":{"include_globs":["README.md"]},"context":{}}`:                                                                                  "README.md:1:match:Hello README.md:2:match:world",
			`{"query":{"pattern":"only"},"ref":"side","ephemeral":true}`:                                                                                                             "x:1:match:only here",
		} {
			for _, state := range []string{"MISS", "HIT"} {
				a := s.do("POST", path, token, body)
				var got api.GrepResult
				a.json(t, &got)
				if found(got) != want || got.HasMore || got.NextCursor != "" || got.Matches == nil {
					t.Errorf("%s finds %q, want %q", body, found(got), want)
				}
				if path == pathsOf("r", "grep")[0] && a.header.Get("X-Cache") != state {
					t.Errorf("%s: X-Cache is %q, want %s", body, a.header.Get("X-Cache"), state)
				}
			}
		}
		var got api.GrepResult
		s.want(http.StatusOK, "POST", path, token, `{"query":{"pattern":"two","case_sensitive":true}}`, &got)
		if got.Query.Pattern != "two" || !got.Query.CaseSensitive || got.Repo.Ref != "main" || got.Repo.Commit != ack.Commit.CommitSHA {
			t.Errorf("the answer is about %+v %+v", got.Query, got.Repo)
		}
		for _, body := range []string{
			``, `{}`, `{"query":{}}`, `{"query":{"pattern":""}}`, `{"query":{"pattern":"("}}`, `{"query":{"pattern":"(a{1000}){1000}"}}`, `{"query":{"pattern":7}}`,
			`{"query":{"pattern":"a"},"limits":{"max_lines":0}}`, `{"query":{"pattern":"a"},"limits":{"max_matches_per_file":-1}}`,
			`{"query":{"pattern":"a"},"pagination":{"limit":0}}`, `{"query":{"pattern":"a"},"context":{"before":-1}}`,
			`{"query":{"pattern":"a"},"pagination":{"cursor":"x"}}`, `{"query":{"pattern":"a"},"file_filters":{"include_globs":["["]}}`,
			`{"query":{"pattern":"a"},"paths":[":(top)a"]}`, `{"query":{"pattern":"a"},"file_filters":{"exclude_globs":["` + strings.Repeat(`a","`, 100_000) + `"]}}`,
		} {
			s.refused(http.StatusBadRequest, api.Invalid, "POST", path, token, body)
		}
		for _, ref := range []string{"none", "side", s.absent()} {
			s.refused(http.StatusNotFound, api.NotFound, "POST", path, token, map[string]any{"query": map[string]any{"pattern": "a"}, "ref": ref})
		}
		s.refused(http.StatusForbidden, api.ScopeMissing, "POST", path, s.token("r", auth.RepoWrite), `{"query":{"pattern":"a"}}`)
	}
}

// TestGrepPages reads an answer page by page while the branch moves: it stays that
// of the commit it began with.
func TestGrepPages(t *testing.T) {
	s := newStack(t)
	s.create("r")
	token := s.full("r")
	files := map[string]string{}
	for i := range 20 {
		files[fmt.Sprintf("d%d/f%02d", i%3, i)] = strings.Repeat("match\nbetween\n", 1+i%5)
	}
	first := s.commit("r", nil, files)
	path := repoPath("r", "grep")
	all := func(query string, move bool) (lines []string, pages int) {
		cursor := ""
		for {
			var page api.GrepResult
			s.want(http.StatusOK, "POST", path, token, fmt.Sprintf(query, cursor), &page)
			if page.Repo.Commit != first.Commit.CommitSHA {
				t.Fatalf("a page is of %s", page.Repo.Commit)
			}
			lines = append(lines, strings.Fields(found(page))...)
			pages++
			if cursor = page.NextCursor; !page.HasMore {
				return lines, pages
			}
			if cursor == "" {
				t.Fatal("there is more, and no cursor")
			}
			if move {
				s.commit("r", nil, map[string]string{fmt.Sprintf("d0/g%d", pages): "match\n"})
			}
		}
	}
	whole, _ := all(`{"query":{"pattern":"match"},"context":{"after":1},"pagination":{"cursor":%q,"limit":2000}}`, false)
	if len(whole) != 2*3*20 {
		t.Fatalf("%d lines are found", len(whole))
	}
	paged, pages := all(`{"query":{"pattern":"match"},"context":{"after":1},"pagination":{"cursor":%q,"limit":7}}`, true)
	if strings.Join(paged, "\n") != strings.Join(whole, "\n") || pages != 9 {
		t.Errorf("%d pages have %d lines, not %d", pages, len(paged), len(whole))
	}
	var page api.GrepResult
	s.want(http.StatusOK, "POST", path, token, `{"query":{"pattern":"match"},"pagination":{"limit":1}}`, &page)
	for _, body := range []string{
		`{"query":{"pattern":"other"},"pagination":{"cursor":%q}}`, `{"query":{"pattern":"match"},"paths":["d0"],"pagination":{"cursor":%q}}`,
		`{"query":{"pattern":"match"},"pagination":{"cursor":"%sAA="}}`,
	} {
		s.refused(http.StatusBadRequest, api.Invalid, "POST", path, token, fmt.Sprintf(body, page.NextCursor))
	}
	// A cursor of a commit that this repository does not reach.
	q, _, err := grepQuery(api.Grep{Query: api.GrepPattern{Pattern: "match"}})
	if err != nil {
		t.Fatal(err)
	}
	foreign := afterMatch(object.ID{1}, q, repo.GrepPosition{Path: "a"})
	s.refused(http.StatusBadRequest, api.Invalid, "POST", path, token, fmt.Sprintf(`{"query":{"pattern":"match"},"pagination":{"cursor":%q}}`, foreign))
}
