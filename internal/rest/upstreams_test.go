package rest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
)

func TestCredentials(t *testing.T) {
	const legacy = "/api/v1/repos/git-credentials"
	s := newStack(t)
	s.create("a/b")
	s.create("c")
	path := repoPath("a/b", "git-credentials")
	var made api.Credential
	a := s.do("POST", path, s.token("a/b", auth.RepoWrite), `{"username":"u","password":"hunter2"}`)
	a.json(t, &made)
	if a.status != http.StatusCreated || made.ID == "" || made.CreatedAt == "" || strings.Contains(string(a.body), "hunter2") {
		t.Fatalf("%d %s", a.status, a.body)
	}
	s.refused(409, api.AlreadyExists, "POST", path, s.full("a/b"), `{"password":"x"}`)
	s.refused(409, api.AlreadyExists, "POST", legacy, s.full("a/b"), `{"repo_id":"a/b","password":"x"}`)
	s.refused(404, api.RepositoryMissing, "POST", legacy, s.full("a/b"), `{"repo_id":"c","password":"x"}`)
	for _, body := range []string{``, `{}`, `{"username":"u"}`, `{"password":" "}`, `{"password":"a\nb"}`, `{"username":"a:b","password":"x"}`} {
		s.refused(400, api.Invalid, "POST", repoPath("c", "git-credentials"), s.full("c"), body)
		s.refused(400, api.Invalid, "PUT", path+"/"+made.ID, s.full("a/b"), body)
	}

	// Of another repository's credential nothing is told.
	own := repoPath("c", "git-credentials") + "/"
	for _, id := range []string{made.ID, "cred_0000000000000001", "x", "cred_1"} {
		s.refused(404, api.NotFound, "PUT", own+id, s.full("c"), `{"password":"x"}`)
		s.refused(404, api.NotFound, "DELETE", own+id, s.full("c"), nil)
		s.refused(404, api.NotFound, "PUT", legacy, s.full("c"), `{"id":"`+id+`","password":"x"}`)
	}
	s.refused(400, api.Invalid, "DELETE", legacy, s.full("org"), `{}`)
	s.refused(403, api.ScopeMissing, "DELETE", legacy, s.token("org", auth.GitWrite), `{"id":"`+made.ID+`"}`)
	s.refused(404, api.RepositoryMissing, "DELETE", legacy, s.full("none"), `{"id":"`+made.ID+`"}`)

	var updated api.Credential
	s.want(http.StatusOK, "PUT", legacy, s.token("org", auth.RepoWrite), `{"id":"`+made.ID+`","password":"new"}`, &updated)
	s.want(http.StatusOK, "PUT", legacy, s.full("a/b"), `{"id":"`+made.ID+`","username":"v","password":"new"}`, &updated)
	s.want(http.StatusOK, "PUT", path+"/"+made.ID, s.full("a/b"), `{"password":"new"}`, &updated)
	if updated != made {
		t.Errorf("%+v became %+v", made, updated)
	}
	s.want(http.StatusOK, "DELETE", path+"/"+made.ID, s.full("a/b"), nil, nil)
	s.refused(404, api.NotFound, "DELETE", path+"/"+made.ID, s.full("a/b"), nil)
	s.want(http.StatusCreated, "POST", legacy, s.full("c"), `{"repo_id":"c","password":"x"}`, &made)
	s.want(http.StatusOK, "DELETE", legacy, s.token("org", auth.RepoWrite), `{"id":"`+made.ID+`"}`, nil)
	s.want(http.StatusCreated, "POST", legacy, s.full("c"), `{"repo_id":"c","password":"x"}`, &made)
	s.want(http.StatusOK, "DELETE", repoPath("c", ""), s.full("c"), nil, nil)
	s.refused(404, api.NotFound, "DELETE", legacy, s.token("org", auth.RepoWrite), `{"id":"`+made.ID+`"}`)
	s.refused(404, api.RepositoryMissing, "POST", legacy, s.full("c"), `{"password":"x"}`)
}

func TestFollowing(t *testing.T) {
	s := newStack(t)
	s.create("plain")
	s.refused(400, api.Invalid, "POST", repoPath("plain", "pull-upstream"), s.full("plain"), nil)
	for range 2 {
		var done api.Done
		s.want(http.StatusOK, "DELETE", repoPath("plain", "base"), s.full("plain"), nil, &done)
		if done.Message != "repository detached" {
			t.Errorf("%+v", done)
		}
	}
	s.follow("m")
	s.refused(409, api.AlreadyExists, "POST", "/api/repos", s.full("m"), `{"base_repo":{"provider":"gitlab","owner":"o","name":"n"}}`)
	var r api.Repo
	s.want(http.StatusOK, "GET", repoPath("m", ""), s.full("m"), nil, &r)
	want := api.Origin{Provider: "gitea", Owner: "o", Name: "n", UpstreamHost: "git.example.com", SyncStatus: "importing"}
	if r.BaseRepo == nil || *r.BaseRepo != want {
		t.Errorf("%+v", r.BaseRepo)
	}
	var list api.RepoList
	s.want(http.StatusOK, "GET", "/api/repos", s.full("org"), nil, &list)
	if len(list.Repos) != 2 || list.Repos[0].BaseRepo == nil || list.Repos[1].BaseRepo != nil {
		t.Errorf("%+v", list.Repos)
	}

	// Before the first import has ended nothing is read or written.
	e := s.refused(409, api.Syncing, "GET", repoPath("m", "branches"), s.full("m"), nil)
	if !strings.Contains(e.Message, "repository sync in progress") {
		t.Errorf("message %q", e.Message)
	}
	s.refused(409, api.Syncing, "GET", repoPath("m", "file")+"?path=x", s.full("m"), nil)
	e = s.refused(409, api.Syncing, "POST", repoPath("m", "commit-pack"), s.full("m"), commitBody(nil, map[string]string{"a": "b"}))
	if e.Result == nil || e.Result.Status != "conflict" {
		t.Errorf("%+v", e.Result)
	}
	for range 20 { // equal ones that wait are one
		var done api.Done
		s.want(http.StatusAccepted, "POST", "/api/v1/repos/pull-upstream", s.token("m", auth.GitWrite), nil, &done)
		if done.Message != "Repository sync initiated successfully" {
			t.Errorf("%+v", done)
		}
	}
	s.want(http.StatusOK, "DELETE", "/api/v1/repos/base", s.token("m", auth.GitWrite), nil, nil)
	s.refused(400, api.Invalid, "POST", repoPath("m", "pull-upstream"), s.full("m"), nil)
	var branches api.BranchList
	s.want(http.StatusOK, "GET", repoPath("m", "branches"), s.full("m"), nil, &branches)
	var detached api.Repo
	s.want(http.StatusOK, "GET", repoPath("m", ""), s.full("m"), nil, &detached)
	if detached.BaseRepo != nil {
		t.Errorf("%+v", detached.BaseRepo)
	}
}

func TestSnapshot(t *testing.T) {
	s := newStack(t)
	s.create("src")
	first := s.commit("src", nil, map[string]string{"secret.txt": "old", "a/b.txt": "1"}).Commit.CommitSHA
	second := s.commit("src", nil, map[string]string{"a/b.txt": "2"}).Commit.CommitSHA
	body := `{"base_repo":{"provider":"code.storage","owner":"acme","name":"src","operation":"snapshot","ref":"main","auth":{"token":"` +
		s.token("src", auth.GitRead) + `"}},"initial_commit":{"message":"Start here","author":{"name":"Ada","email":"ada@example.com"}}}`
	s.want(http.StatusCreated, "POST", "/api/repos", s.full("snap"), body, nil)
	var c struct{ Commit api.Commit }
	s.want(http.StatusOK, "GET", repoPath("snap", "commit")+"?ref=main", s.full("snap"), nil, &c)
	if len(c.Commit.ParentSHAs) != 0 || strings.TrimSpace(c.Commit.Message) != "Start here" || c.Commit.AuthorName != "Ada" {
		t.Errorf("%+v", c.Commit)
	}
	if a := s.do("GET", repoPath("snap", "file")+"?path=a/b.txt", s.full("snap"), nil); string(a.body) != "2" {
		t.Errorf("%d %s", a.status, a.body)
	}
	// The history is not there, by whatever name.
	for _, ref := range []string{first, second, first[:10], "main~1", c.Commit.SHA + "~1"} {
		s.refused(404, api.NotFound, "GET", repoPath("snap", "commit")+"?ref="+ref, s.full("snap"), nil)
	}
	s.want(http.StatusOK, "DELETE", repoPath("src", ""), s.full("src"), nil, nil)
	if a := s.do("GET", repoPath("snap", "file")+"?path=secret.txt", s.full("snap"), nil); string(a.body) != "old" {
		t.Errorf("after the source's deletion: %d %s", a.status, a.body)
	}
}
