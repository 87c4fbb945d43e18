package rest

import (
	"context"
	"crypto/rand"
	"net/http"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/service"
)

func (s *stack) quota(q meta.OrgQuota) {
	s.t.Helper()
	o := service.Operator{Meta: s.meta}
	if err := o.SetQuota(context.Background(), "acme", q); err != nil {
		s.t.Fatal(err)
	}
}

// noise is n bytes that no deflate makes smaller.
func noise(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return string(b)
}

// overfull asks for a commit that does not fit and returns what was told.
func (s *stack) overfull(status int, code api.Code, repo string, size int) api.Error {
	s.t.Helper()
	e := s.refused(status, code, "POST", repoPath(repo, "commit-pack"), s.full(repo), commitBody(nil, map[string]string{"f": noise(size)}))
	if e.Limit == nil || e.Used == nil || e.Reserved == nil || e.Needed == nil || e.Result == nil || e.Result.Success {
		s.t.Fatalf("refused with %+v", e)
	}
	return e
}

// TestQuota: what has no room is refused with the figures, small or large, and
// leaves nothing; usage tells the same figures.
func TestQuota(t *testing.T) {
	s := newStack(t)
	s.create("a")
	s.create("b")
	if err := s.meta.Heartbeat(t.Context(), meta.Process{ID: "test", Lease: 1e12}); err != nil {
		t.Fatal(err)
	}
	s.quota(meta.OrgQuota{Bytes: 400_000, RepoBytes: 300_000, Repos: 2})
	usage := func(repo string) (u api.Usage) {
		t.Helper()
		path := "/api/usage"
		if repo != "" {
			path = repoPath(repo, "usage")
		}
		s.want(http.StatusOK, "GET", path, s.full("a"), nil, &u)
		return u
	}
	s.commit("a", nil, map[string]string{"f": noise(20_000)})
	s.commit("a", nil, map[string]string{"g": noise(200_000)})
	before := usage("")
	if before.Packs != 2 || before.Bytes < 200_000 || before.LimitBytes != 400_000 || before.LimitRepositories != 2 ||
		before.Repositories != 2 || before.ReservedBytes != 0 || before.Refs != (api.RefCounts{Branches: 1}) || before.Events != 2 {
		t.Errorf("usage %+v", before)
	}
	if u := usage("a"); u.Bytes != before.Bytes || u.LimitBytes != 300_000 || u.Repositories != 1 {
		t.Errorf("usage of the repository %+v", u)
	}
	// Larger than the repository may ever be, large, and small.
	if e := s.overfull(http.StatusRequestEntityTooLarge, api.TooLarge, "a", 350_000); *e.Limit != 300_000 || *e.Needed <= 300_000 {
		t.Errorf("limit %d, needed %d", *e.Limit, *e.Needed)
	}
	if e := s.overfull(http.StatusInsufficientStorage, api.QuotaExceeded, "a", 120_000); *e.Limit != 300_000 || *e.Used != before.Bytes {
		t.Errorf("limit %d, used %d", *e.Limit, *e.Used)
	}
	if e := s.overfull(http.StatusInsufficientStorage, api.QuotaExceeded, "b", 250_000); *e.Limit != 400_000 || *e.Used != before.Bytes {
		t.Errorf("limit %d, used %d", *e.Limit, *e.Used)
	}
	s.quota(meta.OrgQuota{Bytes: before.Bytes + 1000, Repos: 2})
	if e := s.overfull(http.StatusInsufficientStorage, api.QuotaExceeded, "b", 20_000); *e.Limit != before.Bytes+1000 || *e.Used != before.Bytes {
		t.Errorf("limit %d, used %d", *e.Limit, *e.Used)
	}
	if after := usage(""); after.Bytes != before.Bytes || after.Packs != 2 || after.ReservedBytes != 0 {
		t.Errorf("refused commits left %+v of %+v", after, before)
	}
	if rows, err := s.meta.Reservations(t.Context()); err != nil || len(rows) != 0 {
		t.Errorf("refused commits left reservations %+v, %v", rows, err)
	}
	e := s.refused(http.StatusInsufficientStorage, api.QuotaExceeded, "POST", "/api/repos", s.full("c"), nil)
	if *e.Limit != 2 || *e.Used != 2 || *e.Needed != 1 {
		t.Errorf("refused with %+v", e)
	}
	// Room is there again when the limit rises.
	s.quota(meta.OrgQuota{})
	s.commit("b", nil, map[string]string{"f": noise(300_000)})
	if u := usage(""); u.LimitBytes != 0 || u.Bytes < before.Bytes+300_000 {
		t.Errorf("usage %+v", u)
	}
}

func TestUndelete(t *testing.T) {
	s := newStack(t)
	s.create("a")
	s.commit("a", nil, map[string]string{"f": "kept\n"})
	token, path := s.full("a"), repoPath("a", "undelete")
	s.refused(http.StatusNotFound, api.RepositoryMissing, "POST", repoPath("never", "undelete"), s.full("never"), nil)
	s.refused(http.StatusConflict, api.Conflict, "POST", path, token, nil)
	s.want(http.StatusOK, "DELETE", repoPath("a", ""), token, nil, nil)
	s.quota(meta.OrgQuota{Repos: 1})
	s.create("b")
	s.refused(http.StatusInsufficientStorage, api.QuotaExceeded, "POST", path, token, nil)
	s.quota(meta.OrgQuota{Repos: 2})
	var back api.UndeletedRepo
	s.want(http.StatusOK, "POST", path, token, nil, &back)
	if back.RepoName != "a" || s.file("a", "path=f") != "kept\n" {
		t.Errorf("back is %+v", back)
	}
	s.commit("a", nil, map[string]string{"g": "new\n"})
}
