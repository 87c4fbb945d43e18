package rest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/service"
)

// pathsOf are the legacy and the preferred form of a path below a repository.
func pathsOf(repo, rest string) [2]string {
	return [2]string{"/api/v1/repos/" + rest, repoPath(repo, rest)}
}

func TestTags(t *testing.T) {
	s := newStack(t)
	populate(s)
	token := s.full(populated)
	old, head := s.repoBranch("old"), s.repoBranch("main")
	rows := []struct {
		name, body, sha string
	}{
		{"v1.0", `{"name":"v1.0","ref":"main"}`, head},
		{"rel/1", `{"name":"refs/tags/rel/1","ref":"main~1"}`, old},
		{"by-sha", fmt.Sprintf(`{"name":"by-sha","target":%q}`, old), old},
		{"both", fmt.Sprintf(`{"name":"both","target":%q,"ref":"main"}`, old), head},
		{"of-tag", `{"name":"of-tag","ref":"v1^{commit}"}`, old},
		{"weird +%é", `{"name":"weird-+%é","ref":"refs/heads/main"}`, head},
	}
	for i, row := range rows {
		name := strings.ReplaceAll(row.name, " ", "-")
		var made api.CreatedTag
		s.want(http.StatusOK, "POST", pathsOf(populated, "tags")[i%2], token, row.body, &made)
		if made.Name != name || made.SHA != row.sha || made.Message != "tag created" {
			t.Errorf("%s: %+v", row.body, made)
		}
		var got api.TagInfo
		s.want(http.StatusOK, "GET", pathsOf(populated, "tag?name="+url.QueryEscape(name))[i%2], token, nil, &got)
		if got.Tag.Name != name || got.Tag.SHA != row.sha {
			t.Errorf("tag %q is %+v", name, got)
		}
		s.refused(http.StatusConflict, api.AlreadyExists, "POST", pathsOf(populated, "tags")[i%2], token, row.body)
		var gone api.DeletedTag
		if i%2 == 0 {
			s.want(http.StatusOK, "DELETE", repoPath(populated, "tags/"+url.PathEscape(name)), token, nil, &gone)
		} else {
			s.want(http.StatusOK, "DELETE", "/api/v1/repos/tags", token, map[string]string{"name": name}, &gone)
		}
		if gone.Name != name || gone.Message != "tag deleted" {
			t.Errorf("deleted %+v", gone)
		}
		s.refused(http.StatusNotFound, api.NotFound, "DELETE", repoPath(populated, "tags/"+url.PathEscape(name)), token, nil)
	}
	for _, path := range pathsOf(populated, "tags") {
		for body, want := range map[string]int{
			`{"ref":"main"}`:                              400,
			`{"name":"x"}`:                                400,
			`{"name":"a..b","ref":"main"}`:                400,
			`{"name":"-x","ref":"main"}`:                  400,
			`{"name":"refs/tags/","ref":"main"}`:          400,
			`{"name":"refs/heads/x","ref":"main"}`:        400,
			`{"name":"x","target":"main"}`:                400,
			`{"name":"x","target":"` + old[:39] + `"}`:    400,
			`{"name":"x","ref":"none"}`:                   404,
			`{"name":"x","ref":"session"}`:                404, // is ephemeral
			`{"name":"x","target":"` + s.absent() + `"}`:  404,
			`{"name":"v1/below","ref":"main"}`:            409, // v1 is a tag
			`{"name":"` + strings.Repeat("x", 5000) + `"`: 400,
		} {
			if a := s.do("POST", path, token, body); a.status != want {
				t.Errorf("%s: %d, want %d: %s", body, a.status, want, a.body)
			} else if e := a.error(t); len(e.Message) > 1000 {
				t.Errorf("%s: a message of %d bytes", body, len(e.Message))
			}
		}
	}
	s.refused(http.StatusBadRequest, api.Invalid, "GET", "/api/v1/repos/tag", token, nil)
	s.refused(http.StatusNotFound, api.NotFound, "GET", "/api/v1/repos/tag?name=none", token, nil)
	s.refused(http.StatusBadRequest, api.Invalid, "DELETE", "/api/v1/repos/tags", token, nil)
	s.refused(http.StatusBadRequest, api.Invalid, "DELETE", repoPath(populated, "tags/a..b"), token, nil)

	reader := s.token(populated, auth.GitRead)
	s.refused(http.StatusForbidden, api.ScopeMissing, "POST", "/api/v1/repos/tags", reader, rows[0].body)
	s.refused(http.StatusForbidden, api.ScopeMissing, "DELETE", "/api/v1/repos/tags", reader, `{"name":"v1"}`)
	guarded := s.mint(s.key, auth.Claims{Org: "acme", Repo: populated, Scopes: []auth.Scope{auth.GitWrite}, Policies: policy.List{rule(t, "refs/tags/*", policy.NoPush)}})
	if e := s.refused(http.StatusForbidden, api.Denied, "POST", "/api/v1/repos/tags", guarded, rows[0].body); !strings.Contains(e.Message, "denied by policy") {
		t.Errorf("refusal is %q", e.Message)
	}
	s.refused(http.StatusForbidden, api.Denied, "DELETE", "/api/v1/repos/tags", guarded, `{"name":"v1"}`)
	kept := s.mint(s.key, auth.Claims{Org: "acme", Repo: populated, Scopes: []auth.Scope{auth.GitWrite}, Policies: policy.List{rule(t, "refs/tags/*", policy.NoForcePush)}})
	s.refused(http.StatusForbidden, api.Denied, "DELETE", "/api/v1/repos/tags", kept, `{"name":"v1"}`)
}

// absent is an id that no object has.
func (s *stack) absent() string { return strings.Repeat("0badc0de", 5) }

// repoBranch is the tip of a branch of the populated repository.
func (s *stack) repoBranch(name string) string {
	s.t.Helper()
	var b api.BranchInfo
	s.want(http.StatusOK, "GET", repoPath(populated, "branch?name="+name), s.full(populated), nil, &b)
	return b.Branch.HeadSHA
}

func TestTagPages(t *testing.T) {
	s := newStack(t)
	s.create("r")
	token := s.full("r")
	var empty api.TagList
	s.want(http.StatusOK, "GET", "/api/v1/repos/tags", token, nil, &empty)
	if empty.Tags == nil || len(empty.Tags) > 0 || empty.HasMore {
		t.Errorf("an empty repository has %+v", empty)
	}
	s.commit("r", nil, map[string]string{"f": "1"})
	add := func(name string) {
		s.want(http.StatusOK, "POST", "/api/v1/repos/tags", token, map[string]string{"name": name, "ref": "main"}, nil)
	}
	const n = 25
	for i := range n {
		add(fmt.Sprintf("v%02d", (i*7)%n))
	}
	var names []string
	cursor := ""
	for page := 0; ; page++ {
		var list api.TagList
		s.want(http.StatusOK, "GET", repoPath("r", "tags?limit=10&cursor="+cursor), token, nil, &list)
		for _, tag := range list.Tags {
			names = append(names, tag.Name)
		}
		if page == 0 { // one before the page, one after it, and the last of it goes
			add("a")
			add("v99")
			s.want(http.StatusOK, "DELETE", "/api/v1/repos/tags", token, `{"name":"v09"}`, nil)
		}
		if cursor = list.NextCursor; !list.HasMore {
			break
		}
		if cursor != list.Tags[len(list.Tags)-1].Cursor {
			t.Errorf("next is %q", cursor)
		}
	}
	if len(names) != n+1 || names[0] != "v00" || names[n] != "v99" {
		t.Errorf("tags are %v", names)
	}
	for _, q := range []string{"limit=0", "limit=x", "cursor=%21", "cursor=" + afterBranch(service.Branch{Name: "main"}), "cursor=" + afterName('t', "nothing")} {
		s.refused(http.StatusBadRequest, api.Invalid, "GET", "/api/v1/repos/tags?"+q, token, nil)
	}
}

func TestUpdateRepo(t *testing.T) {
	s := newStack(t)
	populate(s)
	token := s.full(populated)
	for i, path := range []string{"/api/v1/repo", repoPath(populated, "")} {
		branch := []string{"old", "main"}[i]
		var got api.UpdatedRepo
		s.want(http.StatusOK, "PATCH", path, token, map[string]any{"default_branch": branch}, &got)
		if got.DefaultBranch != branch || got.RepoName != populated || got.RepoID != service.RepoID(s.repo(populated).ID) {
			t.Errorf("updated to %+v", got)
		}
		var now api.Repo
		s.want(http.StatusOK, "GET", path, token, nil, &now)
		if now.DefaultBranch != branch {
			t.Errorf("the default branch is %q", now.DefaultBranch)
		}
		s.want(http.StatusOK, "PATCH", path, token, map[string]any{"default_branch": "refs/heads/" + branch}, nil)
		s.want(http.StatusOK, "PATCH", path, token, nil, &got)
		if got.DefaultBranch != branch {
			t.Errorf("nothing to change gives %+v", got)
		}
		s.refused(http.StatusConflict, api.DefaultBranch, "DELETE", "/api/v1/repos/branches", token, map[string]any{"name": branch})
		s.refused(http.StatusNotFound, api.NotFound, "PATCH", path, token, `{"default_branch":"none"}`)
		s.refused(http.StatusNotFound, api.NotFound, "PATCH", path, token, `{"default_branch":"session"}`)
		s.refused(http.StatusBadRequest, api.Invalid, "PATCH", path, token, `{"default_branch":"a..b"}`)
		s.refused(http.StatusBadRequest, api.Unsupported, "PATCH", path, token, `{"deployment":{"region":"eu"}}`)
		s.refused(http.StatusForbidden, api.ScopeMissing, "PATCH", path, s.token(populated, auth.GitWrite), `{"default_branch":"main"}`)
	}
	var empty api.UpdatedRepo
	s.want(http.StatusOK, "PATCH", repoPath("team/other", ""), s.full("team/other"), `{"default_branch":"trunk"}`, &empty)
	s.want(http.StatusOK, "DELETE", repoPath("team/other", ""), s.full("team/other"), nil, nil)
	if empty.DefaultBranch != "trunk" {
		t.Errorf("an empty repository: %+v", empty)
	}
	s.refused(http.StatusNotFound, api.RepositoryMissing, "PATCH", repoPath("team/other", ""), s.full("team/other"), `{"default_branch":"x"}`)
}

func TestLookUpRepo(t *testing.T) {
	s := newStack(t)
	populate(s)
	r := s.repo(populated)
	org := s.token("org", auth.OrgRead)
	var got api.RepoURL
	s.want(http.StatusOK, "GET", "/api/repo-urls/"+service.RepoID(r.ID), org, nil, &got)
	if got.URL != populated || got.RepoName != populated || got.HTTPURL != "https://git.example.com/team/app.git" || got.DefaultBranch != "main" {
		t.Errorf("found %+v", got)
	}
	gone := service.RepoID(s.repo("team/other").ID)
	s.want(http.StatusOK, "DELETE", repoPath("team/other", ""), s.full("team/other"), nil, nil)
	foreignKey := newKey(t)
	s.org("foreign", foreignKey)
	foreign := s.mint(foreignKey, auth.Claims{Org: "foreign", Repo: "org", Scopes: []auth.Scope{auth.OrgRead}})
	absent := s.do("GET", "/api/repo-urls/"+service.RepoID(meta.RepoID(12345)), org, nil)
	for name, a := range map[string]answer{
		"foreign":   s.do("GET", "/api/repo-urls/{id}", foreign, nil),
		"deleted":   s.do("GET", "/api/repo-urls/"+gone, org, nil),
		"malformed": s.do("GET", "/api/repo-urls/repo_12", org, nil),
		"no id":     s.do("GET", "/api/repo-urls/team%2Fapp", org, nil),
		"capitals":  s.do("GET", "/api/repo-urls/"+strings.ToUpper(service.RepoID(r.ID)), org, nil),
	} {
		if a.status != http.StatusNotFound || string(a.body) != string(absent.body) {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	s.refused(http.StatusForbidden, api.ScopeMissing, "GET", "/api/repo-urls/{id}", s.token(populated, auth.GitRead), nil)
}
