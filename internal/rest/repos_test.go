package rest

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
)

func TestCreateRepo(t *testing.T) {
	s := newStack(t)
	var made api.CreatedRepo
	s.want(http.StatusCreated, "POST", "/api/v1/repos", s.token("team/app", auth.RepoWrite), `{"repo_name":"team/app","id":"ignored","default_branch":"trunk"}`, &made)
	if !regexp.MustCompile(`^repo_[0-9a-f]{16}$`).MatchString(made.RepoID) || made.RepoName != "team/app" ||
		made.HTTPURL != "https://git.example.com/team/app.git" || made.Message != "repository created" {
		t.Errorf("created %+v", made)
	}
	var got api.Repo
	a := s.want(http.StatusOK, "GET", "/api/v1/repo", s.token("team/app", auth.GitRead), nil, &got)
	if got.RepoID != made.RepoID || got.URL != "team/app" || got.RepoName != "team/app" || got.DefaultBranch != "trunk" {
		t.Errorf("got %s", a.body)
	}
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`).MatchString(got.CreatedAt) {
		t.Errorf("created_at is %q", got.CreatedAt)
	}
	s.want(http.StatusCreated, "POST", "/api/repos?default_branch=q", s.full("by-query"), nil, nil)
	s.want(http.StatusOK, "GET", repoPath("by-query", ""), s.full("by-query"), nil, &got)
	if got.DefaultBranch != "q" {
		t.Errorf("default branch is %q", got.DefaultBranch)
	}
	rows := []struct {
		name, body string
		status     int
		code       api.Code
	}{
		{"team/app", "", 409, api.AlreadyExists},
		{"x", `{"repo_name":"y"}`, 400, api.Invalid},
		{"x", `{"default_branch":"a..b"}`, 400, api.Invalid},
		{"x", `{"default_branch":7}`, 400, api.Invalid},
		{"x", `{"initial_commit":{"message":"m"}}`, 400, api.Invalid},
		{"x", `{`, 400, api.Invalid},
		{"x", `{} {}`, 400, api.Invalid},
		{"x", `[]`, 400, api.Invalid},
		{"x", `{"x":"` + strings.Repeat("x", maxJSON) + `"}`, 413, api.TooLarge},
		{"x", `{"base_repo":{"provider":"github","owner":"o","name":"n"}}`, 412, api.Precondition},
		{"x", `{"base_repo":{"owner":"o","name":"n"}}`, 412, api.Precondition},
		{"x", `{"base_repo":{"provider":"github","owner":"o","name":"n","auth":{"auth_type":"token"}}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"github","owner":"o","name":"n","upstream_host":"evil.example","auth":{"auth_type":"public"}}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"gitlab","owner":"o","name":"n","operation":"fork"}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"gitlab","owner":"o","name":"n","ref":"main"}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"gitlab","owner":"o","name":"n"},"initial_commit":{}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"gitlab","owner":"../o","name":"n"}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"gitea","owner":"o","name":"n"}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"gitea","owner":"o","name":"n","upstream_host":"127.0.0.1"}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"gitea","owner":"o","name":"n","upstream_host":"169.254.169.254"}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"gitea","owner":"o","name":"n","upstream_host":"[::1]:443"}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"gitea","owner":"o","name":"n","upstream_host":"u:p@git.example.com"}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"gitea","owner":"o","name":"n","upstream_host":"git.example.com/x"}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"code.storage","name":"team/app","operation":"snapshot"},"initial_commit":{}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"code.storage","name":"team/app","operation":"snapshot","auth":{"token":"t"}}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"cvs","name":"n"}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"code","name":"team/app","operation":"fork"}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"code","operation":"fork","auth":{"token":"t"}}}`, 400, api.Invalid},
		{"x", `{"base_repo":{"provider":"code","name":"team/app","auth":{"token":"t"}}}`, 400, api.Invalid},
		{"org", "", 403, api.ScopeMissing},
		{"", "", 403, api.ScopeMissing},
		{"a b", "", 400, api.Invalid},
		{"a$(id)", "", 400, api.Invalid},
		{"/a", "", 400, api.Invalid},
		{"a/", "", 400, api.Invalid},
		{"a//b", "", 400, api.Invalid},
		{"a/../b", "", 400, api.Invalid},
		{"a\\b", "", 400, api.Invalid},
		{"a.git", "", 400, api.Invalid},
		{"a+ephemeral", "", 400, api.Invalid},
		{"a+import", "", 400, api.Invalid},
		{"ü", "", 400, api.Invalid},
		{strings.Repeat("x", 256), "", 400, api.Invalid},
	}
	for _, row := range rows {
		e := s.refused(row.status, row.code, "POST", "/api/repos", s.full(row.name), row.body)
		if row.name == "team/app" && e.Message != "repository already exists: team/app" {
			t.Errorf("message is %q", e.Message)
		}
	}
}

func TestDeleteRepo(t *testing.T) {
	s := newStack(t)
	s.create("a/b")
	s.commit("a/b", nil, map[string]string{"f": "1"})
	token := s.full("a/b")
	s.refused(http.StatusNotFound, api.RepositoryMissing, "DELETE", repoPath("never", ""), s.full("never"), nil)
	var gone api.DeletedRepo
	s.want(http.StatusOK, "DELETE", repoPath("a/b", ""), token, nil, &gone)
	if gone.RepoName != "a/b" || gone.RepoID == "" || gone.Message == "" {
		t.Errorf("deleted %+v", gone)
	}
	for _, r := range routes() {
		if !r.ofRepo() || r.name == "repos.delete" || r.name == "repos.undelete" {
			continue
		}
		a := s.do(r.method, with(r.paths("a/b")[0], samples[r.name][0].query), token, samples[r.name][0].body)
		checkRefusal(t, r, a, http.StatusNotFound, api.RepositoryMissing)
	}
	s.refused(http.StatusConflict, api.RepositoryDeleted, "DELETE", "/api/v1/repos/delete", token, nil)
	s.refused(http.StatusConflict, api.RepositoryDeleted, "POST", "/api/v1/repos", token, nil)
}

func TestFork(t *testing.T) {
	s := newStack(t)
	populate(s)
	fork := func(name, token, more string) answer {
		body := fmt.Sprintf(`{"base_repo":{"provider":"code","owner":"acme","name":%q,"operation":"fork","auth":{"token":%q}%s}}`, populated, token, more)
		return s.do("POST", "/api/v1/repos", s.full(name), body)
	}
	read := s.token(populated, auth.GitRead)
	if a := fork("copy", read, ""); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	var branches, ephemeral api.BranchList
	s.want(http.StatusOK, "GET", repoPath("copy", "branches"), s.full("copy"), nil, &branches)
	s.want(http.StatusOK, "GET", repoPath("copy", "branches?ephemeral=true"), s.full("copy"), nil, &ephemeral)
	if len(branches.Branches) != 2 || len(ephemeral.Branches) != 0 || s.file("copy", "path=README.md") != "hello again\n" {
		t.Errorf("fork has %+v and %+v", branches, ephemeral)
	}
	if a := fork("narrow", read, `,"ref":"old"`); a.status != http.StatusCreated {
		t.Fatalf("%d %s", a.status, a.body)
	}
	if got := s.file("narrow", "path=README.md"); got != "hello\n" {
		t.Errorf("the narrow fork has %q", got)
	}
	// The parent's other branches are not obtainable through it.
	var tip api.BranchInfo
	s.want(http.StatusOK, "GET", repoPath(populated, "branch?name=main"), s.full(populated), nil, &tip)
	s.refused(http.StatusNotFound, api.NotFound, "GET", repoPath("narrow", "file?path=README.md&ref="+tip.Branch.HeadSHA), s.full("narrow"), nil)
	other := newKey(t)
	s.org("globex", other)
	for name, row := range map[string]struct {
		token, more string
		status      int
		code        api.Code
	}{
		"bad token":      {"x.y.z", "", 403, api.ScopeMissing},
		"other token":    {s.token("team/other", auth.GitRead), "", 404, api.NotFound},
		"no scope":       {s.token(populated, auth.RepoWrite), "", 403, api.ScopeMissing},
		"other org":      {s.mint(other, auth.Claims{Org: "globex", Repo: populated, Scopes: []auth.Scope{auth.GitRead}}), "", 404, api.NotFound},
		"unknown branch": {read, `,"ref":"none"`, 404, api.NotFound},
		"unknown commit": {read, `,"sha":"` + strings.Repeat("ab", 20) + `"`, 404, api.NotFound},
	} {
		a := fork("f2", row.token, row.more)
		if e := a.error(t); a.status != row.status || e.Code != row.code {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	// An empty repository forks too.
	a := s.do("POST", "/api/repos", s.full("f3"), fmt.Sprintf(`{"base_repo":{"provider":"code.storage","name":"team/other","operation":"fork","auth":{"token":%q}}}`, s.token("team/other", auth.GitRead)))
	if a.status != http.StatusCreated {
		t.Errorf("fork of an empty repository: %d %s", a.status, a.body)
	}
}

func TestBranches(t *testing.T) {
	s := newStack(t)
	populate(s)
	token := s.full(populated)
	path := func(p string) string { return repoPath(populated, p) }
	var made api.CreatedBranch
	s.want(http.StatusOK, "POST", path("branches/create"), token, `{"target_branch":"refs/heads/feature/x","base_branch":"none","base_ref":"main~1","base_is_ephemeral":false,"target_is_ephemeral":false}`, &made)
	if made.TargetBranch != "feature/x" || made.TargetIsEphemeral || made.Message != "branch created" || len(made.CommitSHA) != 40 {
		t.Errorf("made %+v", made)
	}
	var info api.BranchInfo
	s.want(http.StatusOK, "GET", path("branch?name=feature/x"), token, nil, &info)
	if info.Branch.HeadSHA != made.CommitSHA || info.Branch.Name != "feature/x" || !strings.HasSuffix(info.Branch.CreatedAt, "Z") {
		t.Errorf("info %+v", info)
	}
	s.refused(http.StatusNotFound, api.NotFound, "GET", path("branch?name=feature/x&ephemeral=true"), token, nil)
	s.refused(http.StatusNotFound, api.NotFound, "GET", path("branch?name=session"), token, nil)
	s.refused(http.StatusBadRequest, api.Invalid, "GET", path("branch"), token, nil)
	// Promotion: the same name in the other namespace.
	s.want(http.StatusOK, "POST", path("branches/create"), token, `{"target_branch":"session","base_ref":"session","base_is_ephemeral":true}`, &made)
	rows := []struct {
		body   string
		status int
		code   api.Code
	}{
		{`{"base_ref":"main"}`, 400, api.Invalid},
		{`{"target_branch":"y"}`, 400, api.Invalid},
		{`{"target_branch":"a..b","base_ref":"main"}`, 400, api.Invalid},
		{`{"target_branch":"refs/tags/x","base_ref":"main"}`, 400, api.Invalid},
		{`{"target_branch":"y","base_ref":"none"}`, 404, api.NotFound},
		{`{"target_branch":"y","base_ref":"` + strings.Repeat("ab", 20) + `"}`, 404, api.NotFound},
		{`{"target_branch":"old","base_ref":"old"}`, 409, api.AlreadyExists},
		{`{"target_branch":"feature","base_ref":"main"}`, 409, api.Conflict},
		{`{"target_branch":"old/x","base_ref":"main"}`, 409, api.Conflict},
		{`{"target_branch":"main","base_ref":"old","force":true}`, 409, api.DefaultBranch},
		{`{"target_branch":"y","base_ref":"main","force":"yes"}`, 400, api.Invalid},
	}
	for _, row := range rows {
		s.refused(row.status, row.code, "POST", path("branches/create"), token, row.body)
	}
	e := s.refused(http.StatusConflict, api.AlreadyExists, "POST", path("branches/create"), token, `{"target_branch":"old","base_ref":"main"}`)
	if e.Message != "branch already exists: old" {
		t.Errorf("message is %q", e.Message)
	}
	s.want(http.StatusOK, "POST", path("branches/create"), token, `{"target_branch":"old","base_ref":"main","force":true}`, nil)

	var gone api.DeletedBranch
	s.want(http.StatusOK, "DELETE", path("branches"), token, `{"target_branch":"session","ephemeral":true}`, &gone)
	if gone != (api.DeletedBranch{Name: "session", TargetBranch: "session", Message: "branch deleted", Ephemeral: true}) {
		t.Errorf("gone %+v", gone)
	}
	s.want(http.StatusOK, "GET", path("branch?name=session"), token, nil, nil)
	s.refused(http.StatusNotFound, api.NotFound, "DELETE", path("branches"), token, `{"target_branch":"session","ephemeral":true}`)
	s.refused(http.StatusConflict, api.DefaultBranch, "DELETE", path("branches"), token, `{"name":"main"}`)
	s.refused(http.StatusBadRequest, api.Invalid, "DELETE", path("branches"), token, nil)
	var empty api.BranchList
	a := s.want(http.StatusOK, "GET", repoPath("team/other", "branches"), s.full("team/other"), nil, &empty)
	if !strings.Contains(string(a.body), `"branches":[]`) || empty.HasMore {
		t.Errorf("empty repository: %s", a.body)
	}
}

func TestProtections(t *testing.T) {
	s := newStack(t)
	populate(s)
	token, path := s.full(populated), repoPath(populated, "protections")
	a := s.want(http.StatusOK, "GET", path, s.token(populated, auth.GitRead), nil, nil)
	if strings.TrimSpace(string(a.body)) != `{"protections":[]}` {
		t.Errorf("no rules: %s", a.body)
	}
	var rules api.Protections
	s.want(http.StatusOK, "PUT", path, token, `{"protections":[{"pattern":"main","ops":["no-update"]},{"pattern":"refs/tags/*","ops":["no-delete","no-force-push"]}]}`, &rules)
	s.want(http.StatusOK, "GET", path, token, nil, &rules)
	if fmt.Sprint(rules) != "{[{refs/heads/main [no-update]} {refs/tags/* [no-delete no-force-push]}]}" {
		t.Errorf("rules are %v", rules)
	}
	denied := s.pack(populated, commitBody(nil, map[string]string{"f": "1"}))
	if e := denied.error(t); denied.status != http.StatusForbidden || e.Result.Status != "forbidden" || !strings.Contains(e.Message, "denied by policy") {
		t.Errorf("protected: %d %s", denied.status, denied.body)
	}
	for _, body := range []string{"", `{}`, `{"protections":null}`, `{"protections":[{"pattern":"main","ops":["no-fun"]}]}`, `{"protections":[{"pattern":"main","ops":[]}]}`,
		`{"protections":[{"pattern":"a*b","ops":["no-push"]}]}`, `{"protections":[{"pattern":"main","ops":["no-push"],"until":"x"}]}`, `{"protections":{}}`} {
		s.refused(http.StatusBadRequest, api.Invalid, "PUT", path, token, body)
	}
	s.refused(http.StatusForbidden, api.ScopeMissing, "PUT", path, s.token(populated, auth.GitRead, auth.GitWrite), `{"protections":[]}`)
	s.want(http.StatusOK, "PUT", path, token, `{"protections":[]}`, nil)
	s.commit(populated, nil, map[string]string{"f": "1"})
}
