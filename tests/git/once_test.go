package git_test

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

// TestAnswerLost commits with an Idempotency-Key, loses the answer with the
// server, and retries ten times at once after the restart.
func TestAnswerLost(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	if err := s.CreateRepo("r"); err != nil {
		t.Fatal(err)
	}
	token := s.Token(harness.Grant{Repo: "r"})
	send := func(key, text string) (harness.Answer, error) {
		body := harness.Commit{Repo: "r", Branch: "main", Message: "Save", Files: map[string]string{"f": text}}.Body()
		return s.DoWith(nil, http.MethodPost, harness.RepoPath("r")+"/commit-pack", token, body,
			http.Header{"Content-Type": {"application/x-ndjson"}, "Idempotency-Key": {key}})
	}
	for round := range 3 {
		key := fmt.Sprintf("key-%d", round)
		lost := make(chan error, 1)
		go func() { _, err := send(key, key); lost <- err }()
		if round > 0 {
			if err := <-lost; err != nil {
				t.Fatal(err)
			}
		}
		s.Kill() // in round 0 perhaps before, perhaps after the commit
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		answers := make([]harness.Answer, 10)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() {
				var err error
				if answers[i], err = send(key, key); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, a := range answers {
			if a.Status != http.StatusCreated || !bytes.Equal(a.Body, answers[0].Body) {
				t.Errorf("%d %s, and %d %s", a.Status, a.Body, answers[0].Status, answers[0].Body)
			}
		}
		if a, err := send(key, "other"); err != nil || a.Status != http.StatusConflict || a.Text("code") != "idempotency_mismatch" {
			t.Errorf("another body: %d %s %v", a.Status, a.Body, err)
		}
	}
	g := harness.NewGit(t)
	g.Run("clone", "-q", s.Remote(harness.Grant{Repo: "r", Scopes: []auth.Scope{auth.GitRead}}, ""), "clone")
	if n := g.In("clone").Run("rev-list", "--count", "HEAD"); n != "3" {
		t.Errorf("%s commits, want one for each key", n)
	}
	a, err := s.Do(nil, http.MethodGet, "/api/events", s.Token(harness.Grant{Repo: "r", Scopes: []auth.Scope{auth.OrgRead}}), "", nil)
	if events, _ := a.JSON("events").([]any); err != nil || a.Status != http.StatusOK || len(events) != 3 {
		t.Errorf("%d %s %v, want one event for each key", a.Status, a.Body, err)
	}
}
