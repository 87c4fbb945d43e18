package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
)

// forks makes a repository with branches to merge: topic, which merges into main,
// clash, which does not, and session, an ephemeral one.
func (s *stack) forks(name string) {
	s.t.Helper()
	s.create(name)
	commit := func(branch string, ephemeral bool, files map[string]string) {
		s.t.Helper()
		s.commit(name, map[string]any{"target_branch": branch, "base_branch": "main", "target_is_ephemeral": ephemeral}, files)
	}
	s.commit(name, nil, map[string]string{"f": "1\n2\n3\n", "g": "1\n"})
	s.want(http.StatusOK, "POST", repoPath(name, "branches/create"), s.full(name), `{"target_branch":"old","base_ref":"main"}`, nil)
	commit("topic", false, map[string]string{"t": "topic\n"})
	commit("clash", false, map[string]string{"f": "1\nclash\n3\n", "g": "clash\n"})
	commit("session", true, map[string]string{"s": "session\n"})
	s.commit(name, nil, map[string]string{"f": "1\nmain\n3\n", "g": "main\n"})
}

// tip returns what a branch points to.
func (s *stack) tip(name, branch string, ephemeral bool) string {
	s.t.Helper()
	q := "branch?name=" + branch
	if ephemeral {
		q += "&ephemeral=true"
	}
	var b api.BranchInfo
	s.want(http.StatusOK, "GET", repoPath(name, q), s.full(name), nil, &b)
	return b.Branch.HeadSHA
}

// merges are the two paths of a route.
func mergePaths(name, rest string) []string {
	return []string{repoPath(name, "merge"+rest), "/api/v1/repos/merge" + rest}
}

// TestMergeRoute merges on both paths in both vocabularies.
func TestMergeRoute(t *testing.T) {
	s := newStack(t)
	for i, source := range []string{`"source_ref":"topic","source_branch":"nothing"`, `"source_branch":"topic"`} {
		name := "team/m" + string(rune('0'+i))
		s.forks(name)
		main, topic := s.tip(name, "main", false), s.tip(name, "topic", false)
		var m api.Merged
		body := `{` + source + `,"target_branch":"refs/heads/main","strategy":"merge","expected_target_sha":"` + main + `"}`
		s.want(http.StatusOK, "POST", mergePaths(name, "")[i], s.full(name), body, &m)
		want := api.Merged{
			Result: "merge_commit", CommitSHA: s.tip(name, "main", false), TreeSHA: m.TreeSHA,
			Source: api.MergeSource{Branch: "topic", Ref: "topic", SHA: topic}, Target: api.MergeTarget{Branch: "main", OldSHA: main, NewSHA: m.CommitSHA},
			MergeBaseSHA: m.MergeBaseSHA, PromotedCommits: 2,
		}
		if m != want || len(m.TreeSHA) != 40 || len(m.MergeBaseSHA) != 40 {
			t.Errorf("merged: %+v", m)
		}
		if s.file(name, "path=t") != "topic\n" || s.file(name, "path=g") != "main\n" {
			t.Error("the files are not merged")
		}
		var c api.CommitDetails
		s.want(http.StatusOK, "GET", repoPath(name, "commit?ref=main"), s.full(name), nil, &c)
		if c.Commit.AuthorName != "tester" || c.Commit.AuthorEmail != "tester@users.noreply.acme" || c.Commit.CommitterName != "tester" || strings.TrimSpace(c.Commit.Message) != "Merge topic into main" {
			t.Errorf("defaults: %+v", c.Commit)
		}
	}
}

// TestMergeOptions squashes, moves forward, and takes what the request says of the
// commit.
func TestMergeOptions(t *testing.T) {
	s := newStack(t)
	s.forks("r")
	merge := func(body string) (m api.Merged) {
		t.Helper()
		s.want(http.StatusOK, "POST", mergePaths("r", "")[0], s.full("r"), body, &m)
		return m
	}
	m := merge(`{"source_ref":"session","source_is_ephemeral":true,"target_branch":"main","strategy":"merge","squash":true,
		"commit_message":"  Take the session\n","author":{"name":"A","email":"a@example.com","date":"2026-01-02T03:04:05+02:00"}}`)
	if m.Result != "squash" || !m.Source.Ephemeral || m.Target.Ephemeral || m.PromotedCommits != 1 || m.Source.SHA != s.tip("r", "session", true) {
		t.Errorf("squash: %+v", m)
	}
	var c api.CommitDetails
	s.want(http.StatusOK, "GET", repoPath("r", "commit?ref=main"), s.full("r"), nil, &c)
	if c.Commit.AuthorName != "A" || c.Commit.CommitterEmail != "a@example.com" || strings.TrimSpace(c.Commit.Message) != "Take the session" {
		t.Errorf("the commit: %+v", c.Commit)
	}
	m = merge(`{"source_ref":"main~1","target_branch":"topic","strategy":"ff_prefer","committer":{"name":"C","email":"c@example.com"}}`)
	if m.Result != "merge_commit" || m.Source.Ref != "main~1" {
		t.Errorf("a revision: %+v", m)
	}
	m = merge(`{"source_ref":"main","target_branch":"session","target_is_ephemeral":true,"strategy":"merge"}`)
	if m.Result != "merge_commit" || !m.Target.Ephemeral || m.CommitSHA != s.tip("r", "session", true) {
		t.Errorf("into the session: %+v", m)
	}
	m = merge(`{"source_ref":"session","source_is_ephemeral":true,"target_branch":"main","strategy":"ff_only"}`)
	if m.Result != "fast_forward" || m.Target.NewSHA != m.Source.SHA || m.CommitSHA != m.Source.SHA || m.PromotedCommits != 2 {
		t.Errorf("forward: %+v", m)
	}
	m = merge(`{"source_ref":"session","source_is_ephemeral":true,"target_branch":"main","strategy":"merge"}`)
	if m.Result != "no_op" || m.Target.OldSHA != m.Target.NewSHA || m.CommitSHA != m.Target.OldSHA || m.PromotedCommits != 0 || len(m.TreeSHA) != 40 {
		t.Errorf("again: %+v", m)
	}
}

// TestMergeRefused refuses what the contract says it refuses; nothing changes.
func TestMergeRefused(t *testing.T) {
	s := newStack(t)
	s.forks("r")
	before := s.tip("r", "main", false)
	base := `"target_branch":"main","strategy":"merge"`
	for _, row := range []struct {
		body   string
		status int
		code   api.Code
		kind   string // of the conflict
	}{
		{``, 400, api.Invalid, ""},
		{`{"source_ref":"topic",`, 400, api.Invalid, ""},
		{`{` + base + `}`, 400, api.Invalid, ""},
		{`{"source_ref":"topic","strategy":"merge"}`, 400, api.Invalid, ""},
		{`{"source_ref":"topic","target_branch":"main"}`, 400, api.Invalid, ""},
		{`{"source_ref":"topic","target_branch":"main","strategy":"rebase"}`, 400, api.Invalid, ""},
		{`{"source_ref":"topic","target_branch":"main","strategy":"ff_only","squash":true}`, 400, api.Invalid, ""},
		{`{"source_ref":"topic",` + base + `,"expected_target_sha":"abc"}`, 400, api.Invalid, ""},
		{`{"source_ref":"topic",` + base + `,"author":{"name":"A"}}`, 400, api.Invalid, ""},
		{`{"source_ref":"topic",` + base + `,"committer":{"name":"A","email":"<"}}`, 400, api.Invalid, ""},
		{`{"source_ref":"topic",` + base + `,"commit_message":"a\u0000b"}`, 400, api.Invalid, ""},
		{`{"source_ref":"nothing",` + base + `}`, 404, api.NotFound, ""},
		{`{"source_ref":"session",` + base + `}`, 404, api.NotFound, ""},
		{`{"source_ref":"topic","target_branch":"nothing","strategy":"merge"}`, 404, api.NotFound, ""},
		{`{"source_ref":"topic","target_branch":"main","target_is_ephemeral":true,"strategy":"merge"}`, 404, api.NotFound, ""},
		{`{"source_ref":"topic","target_branch":"main","strategy":"ff_only"}`, 409, api.Conflict, ""},
		{`{"source_ref":"topic",` + base + `,"expected_target_sha":"` + strings.Repeat("ab", 20) + `"}`, 409, api.Stale, "target_moved"},
		{`{"source_ref":"clash",` + base + `}`, 409, api.MergeConflict, "merge_conflict"},
	} {
		for i, path := range mergePaths("r", "") {
			e := s.refused(row.status, row.code, "POST", path, s.full("r"), row.body)
			got := ""
			if e.MergeRefusal != nil {
				got = e.ConflictType
			}
			if got != row.kind || e.Result != nil {
				t.Errorf("%d %s: %+v", i, row.body, e)
			}
			if row.kind == "merge_conflict" && (e.Message != "merge conflict" || !slices.Equal(e.ConflictPaths, []string{"f", "g"}) || len(e.MergeBaseSHA) != 40) {
				t.Errorf("the conflict: %+v", e.MergeRefusal)
			}
		}
	}
	if now := s.tip("r", "main", false); now != before {
		t.Errorf("main went from %s to %s", before, now)
	}
	s.refused(http.StatusForbidden, api.ScopeMissing, "POST", mergePaths("r", "")[0], s.token("r", auth.GitRead), `{"source_ref":"topic",`+base+`}`)
}

// TestMergePolicies lets a confined token merge into its own branch alone.
func TestMergePolicies(t *testing.T) {
	s := newStack(t)
	s.forks("r")
	confined := s.mint(s.key, auth.Claims{Org: "acme", Repo: "r", Scopes: []auth.Scope{auth.GitRead, auth.GitWrite}, Policies: policy.List{
		rule(t, "refs/namespaces/ephemeral/refs/heads/session", policy.NoForcePush), rule(t, "*", policy.NoPush),
	}})
	before := []string{s.tip("r", "main", false), s.tip("r", "topic", false)}
	for _, target := range []string{"main", "topic", "clash"} {
		for _, rest := range []string{`"strategy":"merge"`, `"strategy":"ff_prefer"`, `"strategy":"merge","squash":true`, `"strategy":"ff_only"`} {
			for _, path := range mergePaths("r", "") {
				for _, source := range []string{`"source_ref":"session","source_is_ephemeral":true`, `"source_ref":"clash"`, `"source_ref":"main~1"`} {
					e := s.refused(http.StatusForbidden, api.Denied, "POST", path, confined, `{`+source+`,"target_branch":"`+target+`",`+rest+`}`)
					if e.MergeRefusal != nil || !strings.Contains(e.Message, "denied by policy") {
						t.Errorf("refused with %+v", e)
					}
				}
			}
		}
	}
	if now := []string{s.tip("r", "main", false), s.tip("r", "topic", false)}; !slices.Equal(now, before) {
		t.Errorf("branches went from %v to %v", before, now)
	}
	var m api.Merged
	s.want(http.StatusOK, "POST", mergePaths("r", "")[0], confined, `{"source_ref":"topic","target_branch":"session","target_is_ephemeral":true,"strategy":"merge"}`, &m)
	if m.Result != "merge_commit" {
		t.Errorf("its own branch: %+v", m)
	}
	signed := s.mint(s.key, auth.Claims{Org: "acme", Repo: "r", Scopes: []auth.Scope{auth.GitRead, auth.GitWrite}, Policies: policy.List{rule(t, "main", policy.VerifySig)}})
	s.refused(http.StatusForbidden, api.Denied, "POST", mergePaths("r", "")[0], signed, `{"source_ref":"topic","target_branch":"main","strategy":"merge"}`)
}

// TestMergePreviewRoute previews on both paths.
func TestMergePreviewRoute(t *testing.T) {
	s := newStack(t)
	s.forks("r")
	main := s.tip("r", "main", false)
	for _, path := range mergePaths("r", "/preview?") {
		get := func(query string) (p api.MergePreview) {
			t.Helper()
			a := s.want(http.StatusOK, "GET", path+query, s.full("r"), nil, &p)
			if strings.Contains(string(a.body), "null") {
				t.Errorf("%s: %s", query, a.body)
			}
			return p
		}
		p := get("source_branch=topic&target_branch=main")
		if p.Status != "clean" || p.Result != "merge_commit" || p.SourceTipSHA != s.tip("r", "topic", false) || p.TargetTipSHA != main || len(p.MergeBaseSHA) != 40 || p.SourceBranch != "topic" || p.TargetBranch != "main" {
			t.Errorf("clean: %+v", p)
		}
		if p = get("source_ref=main~1&target_branch=main"); p.Result != "no_op" || p.Status != "clean" {
			t.Errorf("nothing to do: %+v", p)
		}
		if p = get("source_branch=session&source_is_ephemeral=true&target_branch=session&target_is_ephemeral=true"); p.Result != "no_op" {
			t.Errorf("itself: %+v", p)
		}
		if p = get("source_branch=main&target_branch=old"); p.Result != "fast_forward" {
			t.Errorf("forward: %+v", p)
		}
		p = get("source_branch=clash&target_branch=main&include_content=true")
		if p.Status != "conflicted" || !slices.Equal(p.ConflictPaths, []string{"f", "g"}) || len(p.Conflicts) != 2 || len(p.FilteredConflicts) != 0 {
			t.Fatalf("conflicts: %+v", p)
		}
		f := p.Conflicts[0]
		if f.Path != "f" || f.Base.Content != "1\n2\n3\n" || f.Ours.Content != "1\nmain\n3\n" || f.Theirs.Content != "1\nclash\n3\n" || len(f.Ours.OID) != 40 ||
			f.Result.Content != "1\n<<<<<<< main\nmain\n=======\nclash\n>>>>>>> clash\n3\n" {
			t.Errorf("f: %+v", f)
		}
		if p = get("source_branch=clash&target_branch=main"); p.Conflicts[0].Ours.Content != "" || p.Conflicts[0].Ours.OID != f.Ours.OID {
			t.Errorf("without content: %+v", p.Conflicts[0])
		}
		for query, want := range map[string]int{
			"target_branch=main": 400, "source_branch=topic": 400, "source_branch=nothing&target_branch=main": 404, "source_branch=topic&target_branch=nothing": 404,
			"source_branch=topic&target_branch=main&include_content=1": 400, "source_branch=session&target_branch=main": 404,
			"source_branch=topic&target_branch=" + url.QueryEscape("a..b"): 400,
		} {
			if a := s.do("GET", path+query, s.full("r"), nil); a.status != want {
				t.Errorf("%s: %d %s", query, a.status, a.body)
			}
		}
	}
	if now := s.tip("r", "main", false); now != main {
		t.Errorf("main went from %s to %s", main, now)
	}
}
