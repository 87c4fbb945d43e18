package git_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/tests/harness"
)

// unobtainable tries to get an object from a repository in every way there is.
func unobtainable(t *testing.T, s *harness.Server, repo, what, commit, blob, path string) {
	t.Helper()
	grant := harness.Grant{Repo: repo}
	for protocol := range 3 {
		for _, id := range []string{commit, blob} {
			for _, suffix := range []string{"", "+ephemeral"} {
				g := harness.NewGit(t).Protocol(protocol)
				g.Run("init", "-q")
				if out, err := g.Try("fetch", s.Remote(grant, suffix), id); err == nil {
					t.Errorf("%s: protocol v%d fetched %s from %q: %s", what, protocol, id, repo+suffix, out)
				}
				if _, err := g.Try("cat-file", "-e", id); err == nil {
					t.Errorf("%s: protocol v%d sent %s from %q", what, protocol, id, repo+suffix)
				}
			}
		}
	}
	g := harness.NewGit(t)
	for _, suffix := range []string{"", "+ephemeral"} {
		dir := "mirror" + suffix
		g.Run("clone", "-q", "--mirror", s.Remote(grant, suffix), dir)
		for _, id := range []string{commit, blob} {
			if _, err := g.In(dir).Try("cat-file", "-e", id); err == nil {
				t.Errorf("%s: a mirror clone of %q holds %s", what, repo+suffix, id)
			}
		}
	}
	token := s.Token(grant)
	base := harness.RepoPath(repo)
	for _, call := range []string{
		"/file?path=" + url.QueryEscape(path) + "&ref=" + commit,
		"/file?path=" + url.QueryEscape(path) + "&ephemeral=true&ref=" + commit,
		"/files?ref=" + commit,
		"/archive?ref=" + commit,
	} {
		a, err := s.Do(nil, http.MethodGet, base+call, token, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if a.Status != http.StatusNotFound {
			t.Errorf("%s: GET %s answered %d %.200s, want 404", what, call, a.Status, a.Body)
		}
	}
	body := fmt.Sprintf(`{"target_branch":"grab","base_ref":%q}`, commit)
	a, err := s.Do(nil, http.MethodPost, base+"/branches/create", token, "application/json", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != http.StatusNotFound {
		t.Errorf("%s: a branch from the commit answered %d %s, want 404", what, a.Status, a.Body)
	}
}

// pushedWithoutObjects points a branch at a commit that the server should not have, by pushing
// an empty pack.
func pushedWithoutObjects(t *testing.T, s *harness.Server, repo, what, commit string) {
	t.Helper()
	line := fmt.Sprintf("%040d %s refs/heads/grab\x00 report-status", 0, commit)
	const emptyPack = "PACK\x00\x00\x00\x02\x00\x00\x00\x00\x02\x9d\x08\x82\x3b\xd8\xa8\xea\xb5\x10\xad\x6a\xc7\x5c\x82\x3c\xfd\x3e\xd3\x1e"
	body := fmt.Sprintf("%04x%s0000%s", len(line)+4, line, emptyPack)
	a, err := s.Do(nil, http.MethodPost, "/"+repo+".git/git-receive-pack", s.Token(harness.Grant{Repo: repo}), "application/x-git-receive-pack-request", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != http.StatusOK || !strings.Contains(string(a.Body), "ng refs/heads/grab") {
		t.Errorf("%s: a push of the bare id answered %d %q, want ng", what, a.Status, a.Body)
	}
}

// TestNothingUnreachableIsObtainable takes away what a secret is reachable from and
// tries to get it back.
func TestNothingUnreachableIsObtainable(t *testing.T) {
	s := harness.Serve(t, harness.Options{Args: []string{"--unseen-grace", "0s"}})
	seeded(t, s, "my-project")
	remote := s.Remote(harness.Grant{Repo: "my-project"}, "")
	g := harness.NewGit(t)
	g.Run("clone", "-q", remote, "work")
	work := g.In("work")
	before := g.Run("ls-remote", remote)

	secret := func(name string) (commit, blob string) {
		work.Run("checkout", "-q", "-B", name, "origin/main")
		commit = work.Save(name+".key", "secret of "+name+"\n")
		return commit, work.Run("rev-parse", "HEAD:"+name+".key")
	}
	tried := func(what, name, commit, blob string) {
		t.Helper()
		unobtainable(t, s, "my-project", what, commit, blob, name+".key")
		pushedWithoutObjects(t, s, "my-project", what, commit)
	}

	commit, blob := secret("forced")
	work.Run("push", "-q", "origin", "forced")
	work.Run("push", "-q", "--force", "origin", "origin/main:refs/heads/forced")
	tried("forced away", "forced", commit, blob)
	work.Run("push", "-q", "origin", ":forced")

	commit, blob = secret("deleted")
	work.Run("push", "-q", "origin", "deleted")
	work.Run("push", "-q", "origin", ":deleted")
	tried("deleted", "deleted", commit, blob)

	commit, blob = secret("denied")
	confined := s.Remote(harness.Grant{Repo: "my-project", Policies: policy.List{{Pattern: "*", Ops: []policy.Op{policy.NoPush}}}}, "")
	refused(t, work, confined, "denied")
	tried("in a refused push", "denied", commit, blob)

	if after := g.Run("ls-remote", remote); after != before {
		t.Errorf("refs are\n%s\nwant\n%s", after, before)
	}
}

// TestForkKnowsOnlyItsOwn keeps a parent's other branches, and what came after,
// from a fork of one branch, and the fork's work from the parent.
func TestForkKnowsOnlyItsOwn(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	seeded(t, s, "parent")
	g := harness.NewGit(t)
	g.Run("clone", "-q", s.Remote(harness.Grant{Repo: "parent"}, ""), "work")
	work := g.In("work")
	work.Run("checkout", "-q", "-b", "private")
	private := work.Save("private.key", "secret of private\n")
	privateBlob := work.Run("rev-parse", "HEAD:private.key")
	work.Run("push", "-q", s.Remote(harness.Grant{Repo: "parent"}, "+ephemeral"), "private")
	if err := s.Fork("fork", "parent"); err != nil {
		t.Fatal(err)
	}
	unobtainable(t, s, "fork", "the parent's ephemeral branch", private, privateBlob, "private.key")

	work.Run("checkout", "-q", "-b", "later", "origin/main")
	later := work.Save("later.key", "secret of later\n")
	work.Run("push", "-q", "origin", "later")
	unobtainable(t, s, "fork", "the parent's later branch", later, work.Run("rev-parse", "HEAD:later.key"), "later.key")

	work.Run("checkout", "-q", "-b", "own", "origin/main")
	own := work.Save("own.key", "secret of own\n")
	work.Run("push", "-q", s.Remote(harness.Grant{Repo: "fork"}, ""), "own")
	unobtainable(t, s, "parent", "the fork's branch", own, work.Run("rev-parse", "HEAD:own.key"), "own.key")
	if _, err := s.Client("repo", "delete", "parent"); err != nil {
		t.Fatal(err)
	}
	g.Run("clone", "-q", "--mirror", s.Remote(harness.Grant{Repo: "fork"}, ""), "alone")
	g.In("alone").Fsck()
}

// TestForeignAndAbsentLookTheSame asks with one repository's token for another one
// and for one that is not there.
func TestForeignAndAbsentLookTheSame(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	seeded(t, s, "mine")
	seeded(t, s, "foreign")
	token := s.Token(harness.Grant{Repo: "mine", Scopes: []auth.Scope{auth.GitRead, auth.GitWrite, auth.RepoWrite}})
	for _, call := range [][2]string{
		{http.MethodGet, "/api/repos/%s"}, {http.MethodDelete, "/api/repos/%s"}, {http.MethodGet, "/api/repos/%s/branches"},
		{http.MethodGet, "/api/repos/%s/file?path=a"}, {http.MethodGet, "/%s.git/info/refs?service=git-upload-pack"},
		{http.MethodGet, "/%s.git/info/refs?service=git-receive-pack"},
	} {
		var got [2]harness.Answer
		for i, name := range []string{"foreign", "absentx"} {
			a, err := s.Do(nil, call[0], fmt.Sprintf(call[1], name), token, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			a.Header.Del("Date")
			got[i] = a
		}
		body := strings.ReplaceAll(string(got[0].Body), "foreign", "absentx")
		if got[0].Status != got[1].Status || body != string(got[1].Body) || fmt.Sprint(got[0].Header) != fmt.Sprint(got[1].Header) {
			t.Errorf("%s %s: foreign %d %v %s; absent %d %v %s", call[0], call[1], got[0].Status, got[0].Header, got[0].Body, got[1].Status, got[1].Header, got[1].Body)
		}
		if got[0].Status != http.StatusNotFound {
			t.Errorf("%s %s answered %d, want 404", call[0], call[1], got[0].Status)
		}
	}
}
