package rest

import (
	"context"
	"crypto/rand"
	"net/http"
	"testing"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
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

// TestCheckpointQuotas limits an org and its threads while checkpoints come in.
func TestCheckpointQuotas(t *testing.T) {
	s := newStack(t)
	token := s.threadToken("t")
	one, four, five := noise(1<<20), noise(1<<20), noise(1<<20)
	usage := func() api.Usage {
		var u api.Usage
		s.want(http.StatusOK, "GET", "/api/usage", s.token("org", auth.OrgRead), nil, &u)
		return u
	}
	s.quota(meta.OrgQuota{Bytes: 4 << 20})
	small := newWorkspace(t, map[string]string{"a": one})
	s.capture("t", small)
	used := usage()
	if used.CheckpointBytes < 1<<20 || used.CheckpointBytes > 2<<20 || used.Bytes != used.CheckpointBytes || used.Threads != 1 || used.Checkpoints != 1 {
		t.Errorf("%+v", used)
	}
	// What does not fit is refused while it arrives, and nothing of it stays.
	for _, mib := range []int{3, 7} {
		large := newWorkspace(t, map[string]string{"a": noise(mib << 19), "b": noise(mib << 19)})
		a := s.do("POST", threadPath("t", "blobs?upload=l"), token, large.stream())
		e := a.error(t)
		if a.status != http.StatusInsufficientStorage || e.Code != api.QuotaExceeded || e.Limit == nil || *e.Limit != 4<<20 || e.Needed == nil || *e.Needed == 0 {
			t.Errorf("%d MiB: %d %s", mib, a.status, a.body)
		}
		if now := usage(); now.Bytes != used.Bytes || now.ReservedBytes != 0 {
			t.Errorf("%d MiB: %+v, and before %+v", mib, now, used)
		}
	}
	s.quota(meta.OrgQuota{ThreadBytes: 3<<20 + 9000})
	two := newWorkspace(t, map[string]string{"a": one, "b": four})
	s.capture("t", two)
	three := newWorkspace(t, map[string]string{"a": one, "b": four, "c": five, "d": noise(20000)})
	s.want(http.StatusOK, "POST", threadPath("t", "blobs?upload=u"), token, three.stream(), nil)
	body := map[string]any{"root": three.root.String(), "upload": "u", "onto": "head"}
	e := s.refused(http.StatusInsufficientStorage, api.QuotaExceeded, "POST", threadPath("t", "checkpoints"), token, body)
	if e.Limit == nil || *e.Limit != 3<<20+9000 || *e.Used < 2<<20 || *e.Needed < 1<<20 {
		t.Errorf("%+v", e)
	}
	// Another thread has room of its own, and a lost lease comes before the limit.
	s.capture("other", two)
	s.want(http.StatusOK, "POST", threadPath("t", "blobs?upload=u"), token, three.stream(), nil)
	body["lease"] = map[string]any{"owner_token": "x", "fence": 1}
	s.refused(http.StatusConflict, api.WriterLost, "POST", threadPath("t", "checkpoints"), token, body)
	s.quota(meta.OrgQuota{ThreadBytes: 2 << 20})
	s.refused(http.StatusInsufficientStorage, api.QuotaExceeded, "POST", threadPath("t", "blobs?upload=v"), token, small.stream())
	s.quota(meta.OrgQuota{})
	s.capture("t", three)
}
