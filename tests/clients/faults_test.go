package clients_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

// noise is n bytes that do not compress.
func noise(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return string(b)
}

// faulty answers all below "/STATUS/" with that status: 500 and 503 in the form
// of a Cairn that fails, 502 as proxies say it. A GET of "/asked" says how many
// requests there were.
func faulty(t *testing.T) *httptest.Server {
	t.Helper()
	var mu sync.Mutex
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/asked" {
			fmt.Fprint(w, asked)
			return
		}
		asked++
		first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		status, err := strconv.Atoi(first)
		if err != nil {
			t.Errorf("asked for %s", r.URL.Path)
		}
		if status == http.StatusBadGateway {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			fmt.Fprint(w, "<html><body>502 Bad Gateway</body></html>")
			return
		}
		label := map[int]string{500: "internal", 503: "unavailable"}[status]
		body := map[string]any{"error": "the server says " + label, "code": label, "status": status, "title": http.StatusText(status), "detail": "the server says " + label, "type": "about:blank"}
		for _, route := range []string{"commit-pack", "diff-commit", "restore-commit"} {
			if strings.HasSuffix(rest, route) {
				body["result"] = map[string]any{"success": false, "status": label, "message": "the server says " + label}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "5")
		}
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(body); err != nil && r.Context().Err() == nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// narrow is a server with room for 64 KiB in the two repositories that there are,
// of which one has 40 KiB that do not compress, and without custom notes refs.
func narrow(t *testing.T) *harness.Server {
	t.Helper()
	s := harness.Serve(t, harness.Options{Args: []string{"--default-notes-only"}})
	for name, file := range map[string]string{"narrow": "x", "full": noise(40 << 10)} {
		if err := s.CreateRepo(name); err != nil {
			t.Fatal(err)
		}
		a, err := s.Commit(s.HTTP(), harness.Commit{Repo: name, Branch: "main", Message: "First", Token: s.Token(harness.Grant{Repo: name}), Files: map[string]string{"f": file}})
		if err != nil || a.Status != http.StatusCreated {
			t.Fatalf("%v: %d %s", err, a.Status, a.Body)
		}
	}
	if out, err := s.Operate("org", "quota", harness.Org, "--bytes", "64KiB", "--repos", "2"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return s
}

// TestRateLimit: who asks too often gets 429 with Retry-After, over REST and from
// Git, and an answer after waiting for that long; others are not held up.
func TestRateLimit(t *testing.T) {
	s := harness.Serve(t, harness.Options{Args: []string{"--rate-limit", "2"}})
	if err := s.CreateRepo("r"); err != nil {
		t.Fatal(err)
	}
	g := harness.NewGit(t)
	subject := func(name string) harness.Grant {
		return harness.Grant{Repo: "r", Subject: name, Scopes: []auth.Scope{auth.GitRead, auth.GitWrite}}
	}
	for name, path := range map[string]string{"rest": "/api/v1/repos/branches", "git": "/r.git/info/refs?service=git-upload-pack"} {
		token := s.Token(subject(name))
		ask := func() harness.Answer {
			t.Helper()
			header := http.Header{}
			if name == "git" {
				header.Set("Git-Protocol", "version=2")
			}
			a, err := s.DoWith(s.HTTP(), http.MethodGet, path, token, nil, header)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		var limited harness.Answer
		for range 50 {
			if limited = ask(); limited.Status != http.StatusOK {
				break
			}
		}
		wait, err := strconv.Atoi(limited.Header.Get("Retry-After"))
		if limited.Status != http.StatusTooManyRequests || err != nil || wait < 1 || wait > 60 {
			t.Fatalf("%s: %d, Retry-After %q: %s", name, limited.Status, limited.Header.Get("Retry-After"), limited.Body)
		}
		time.Sleep(time.Duration(wait) * time.Second)
		if a := ask(); a.Status != http.StatusOK {
			t.Errorf("%s: %d after %d s", name, a.Status, wait)
		}
	}
	remote := s.Remote(subject("program"), "")
	said := ""
	for range 50 {
		out, err := g.Try("ls-remote", remote)
		if err != nil {
			said = out
			break
		}
	}
	if !strings.Contains(said, "429") {
		t.Errorf("git says %q of too many requests", said)
	}
	if out, err := g.Try("ls-remote", s.Remote(subject("somebody else"), "")); err != nil {
		t.Errorf("another subject is held up: %v: %s", err, out)
	}
}
