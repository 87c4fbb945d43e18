package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/netguard"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/secret"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/webhook"
)

// unkept are the routes that are no GET and keep no answers, and why.
var unkept = map[string]string{
	"archive.post": "it changes nothing",
	"grep":         "it changes nothing",
}

// writesOnce lists the routes that take an Idempotency-Key.
func writesOnce(t *testing.T) []*route {
	var list []*route
	for _, r := range routes() {
		switch {
		case r.method == http.MethodGet || r.method == http.MethodHead:
			if r.once {
				t.Errorf("%s takes a key and is a %s", r.name, r.method)
			}
		case r.once:
			list = append(list, r)
		case unkept[r.name] == "":
			t.Errorf("%s changes something and keeps no answers: set once, and have the answer recorded with its Change (see branches.create)", r.name)
		}
	}
	return list
}

// events counts what was written to the outbox.
func (s *stack) events() int {
	s.t.Helper()
	gate, err := s.meta.Gate(s.t.Context(), meta.GateQuery{Org: "acme"})
	if err != nil {
		s.t.Fatal(err)
	}
	rows, err := s.meta.Events(s.t.Context(), gate.Org.ID, 0, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	return len(rows)
}

// TestEachRouteOnce sends a sample of each changing route ten times at once, and
// once more later, all with one key.
func TestEachRouteOnce(t *testing.T) {
	for _, r := range writesOnce(t) {
		for i, q := range samples[r.name] {
			t.Run(fmt.Sprintf("%s/%d", r.name, i), func(t *testing.T) {
				s := newStack(t)
				populate(s)
				repo := populated
				switch r.name {
				case "repos.create":
					repo = "team/new"
				case "credentials.create":
					repo = "team/other" // the populated one has a credential
				}
				path, token := with(r.paths(repo)[0], q.query), s.full(repo)
				if r.ofThread() {
					token = r.tokenFor(s)
				}
				s.lease(r)
				if r.name == "repos.undelete" {
					s.want(http.StatusOK, "DELETE", repoPath(repo, ""), token, nil, nil)
				}
				before := s.events()
				answers := make([]answer, 10)
				var all sync.WaitGroup
				for n := range answers {
					all.Go(func() { answers[n] = s.do(r.method, path, token, q.body, keyHeader, "key-1") })
				}
				all.Wait()
				after, state := s.events(), s.state()
				answers = append(answers, s.do(r.method, path, token, q.body, keyHeader, "key-1"))
				if answers[0].status >= 300 && (i > 0 || r.name == "upstream.pull") && s.events() == before {
					return // a sample of a refusal, which is not kept
				}
				first := 0
				for _, a := range answers {
					if a.status >= 300 || a.status != answers[0].status || !bytes.Equal(a.body, answers[0].body) {
						t.Errorf("%d %s, and %d %s", a.status, a.body, answers[0].status, answers[0].body)
					}
					if a.header.Get(replayedHeader) == "" {
						first++
					}
				}
				if first != 1 {
					t.Errorf("%d requests were made, want one", first)
				}
				if after-before > 1 || s.events() != after || s.state() != state {
					t.Errorf("%d events, then %d; state\n%s\nthen\n%s", after-before, s.events()-after, state, s.state())
				}
				// Another body, or another query, is another request.
				join := "?"
				if strings.Contains(path, "?") {
					join = "&"
				}
				other := s.do(r.method, path+join+"x=y", token, q.body, keyHeader, "key-1")
				checkRefusal(t, r, other, http.StatusConflict, api.KeyReused)
				if s.state() != state {
					t.Error("a refused key has changed something")
				}
			})
		}
	}
}

// TestSentOnce: what an endpoint gets at a request with a key it gets once, though
// the request comes ten times at once, at two servers.
func TestSentOnce(t *testing.T) {
	for name, body := range map[string]string{"ping": "", "redeliver": `{"event_id":"{event}"}`} {
		t.Run(name, func(t *testing.T) {
			s := newStack(t)
			populate(s)
			var got atomic.Int32
			r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				got.Add(1)
				time.Sleep(50 * time.Millisecond)
				w.WriteHeader(http.StatusTeapot)
			}))
			defer r.Close()
			hosts, err := netguard.New([]string{"127.0.0.1"})
			if err != nil {
				t.Fatal(err)
			}
			s.handler.Service.Endpoints.Guard, s.handler.Service.Endpoints.Sender = hosts, webhook.NewSender(nil, hosts, nil)
			hook := "/api/webhooks/" + webhook.PublicID(sampleWebhook)
			token := s.token(populated, auth.RepoWrite)
			s.want(http.StatusOK, "PATCH", hook, token, map[string]any{"url": r.URL}, nil)
			path := hook + "/" + name
			second := httptest.NewServer(New(s.handler.Config))
			defer second.Close()
			first := s.server
			answers := make([]answer, 10)
			var all sync.WaitGroup
			for n := range answers {
				at := *s
				at.server = []*httptest.Server{first, second}[n%2]
				all.Go(func() { answers[n] = at.do("POST", path, token, body, keyHeader, "key-1") })
			}
			all.Wait()
			for _, a := range answers {
				if a.status != http.StatusOK || !bytes.Equal(a.body, answers[0].body) || !bytes.Contains(a.body, []byte(`"status":418`)) {
					t.Errorf("%d %s, and %d %s", a.status, a.body, answers[0].status, answers[0].body)
				}
			}
			if n := got.Load(); n != 1 {
				t.Errorf("the endpoint got %d requests", n)
			}
			s.want(http.StatusOK, "POST", path, token, body, nil)
			if n := got.Load(); n != 2 {
				t.Errorf("the endpoint got %d requests, of which one had no key", n)
			}
			if a := s.do("POST", hook+"/"+map[string]string{"ping": "redeliver", "redeliver": "ping"}[name], token, `{"event_id":"{event}"}`, keyHeader, "key-1"); a.status != http.StatusConflict {
				t.Errorf("the key at another route: %d %s", a.status, a.body)
			}
			// Whoever claimed a key and died keeps nobody from it for long.
			a, err := s.handler.Service.OpenPart(t.Context(), token, auth.RepoWrite)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				err = s.handler.Service.Claim(ctx, a, "dead", [32]byte{1})
				cancel()
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a key that somebody claimed: %v", err)
			}
			if err := s.handler.Service.Claim(t.Context(), a, "dead", [32]byte{2}); !isReplay(err) {
				t.Errorf("a key that somebody claimed for another request: %v", err)
			}
		})
	}
}

func isReplay(err error) bool {
	_, ok := errors.AsType[*repo.ReplayError](err)
	return ok
}

// TestRecordedSecret: an answer that holds a secret is kept encrypted, and given
// again as long as its key is there.
func TestRecordedSecret(t *testing.T) {
	s := newStack(t)
	create := func() answer {
		return s.do("POST", "/api/webhooks", s.token("org", auth.RepoWrite), `{"url":"https://hooks.example.com/x"}`, keyHeader, "key-1")
	}
	first := create()
	var made api.Webhook
	first.json(t, &made)
	if first.status != http.StatusCreated || made.Secret == "" {
		t.Fatalf("%d %s", first.status, first.body)
	}
	if again := create(); !bytes.Equal(again.body, first.body) || again.header.Get(replayedHeader) == "" {
		t.Errorf("%d %s", again.status, again.body)
	}
	var read api.Webhook
	s.want(http.StatusOK, "GET", "/api/webhooks/"+made.ID, s.token("org", auth.RepoWrite), nil, &read)
	if read.Secret = made.Secret; !reflect.DeepEqual(read, made) {
		t.Errorf("told %+v, stored %+v", made, read)
	}
	gate, err := s.meta.Gate(t.Context(), meta.GateQuery{Org: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	access := service.Access{Principal: new(auth.Principal)}
	access.Principal.Repo, access.Principal.Subject = "org", "tester"
	row, err := s.meta.Idempotency(t.Context(), gate.Org.ID, access.IdempotencyKey("key-1"))
	if err != nil || bytes.Contains(row.Body, []byte(made.Secret)) || bytes.Contains(row.Body, []byte("hooks")) {
		t.Errorf("recorded %q, %v", row.Body, err)
	}
	other, err := secret.Parse(secret.Generate())
	if err != nil {
		t.Fatal(err)
	}
	s.handler.Service.Secrets = other
	if a := create(); a.status != http.StatusPreconditionFailed {
		t.Errorf("with another key: %d %s", a.status, a.body)
	}
}

// TestNoKeyForSecrets: a server without a key refuses what it could not keep
// encrypted, and does all else.
func TestNoKeyForSecrets(t *testing.T) {
	s := newStack(t)
	s.create("r")
	svc := s.handler.Service
	svc.Secrets, svc.Endpoints.Secrets = nil, nil
	for path, body := range map[string]string{
		"/api/webhooks": `{"url":"https://hooks.example.com/x"}`, repoPath("r", "git-credentials"): `{"password":"x"}`,
	} {
		for _, key := range []string{"", "key-1"} {
			var header []string
			if key != "" {
				header = []string{keyHeader, key}
			}
			a := s.do("POST", path, s.full("r"), body, header...)
			if a.status != http.StatusBadRequest || !strings.Contains(string(a.body), "--secret-key-file") {
				t.Errorf("%s: %d %s", path, a.status, a.body)
			}
		}
	}
	var list api.WebhookList
	s.want(http.StatusOK, "GET", "/api/webhooks", s.full("r"), nil, &list)
	if len(list.Webhooks) != 0 {
		t.Errorf("%+v", list)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	s := newStack(t)
	s.create("a/b")
	s.create("a/c")
	token := s.full("a/b")
	commit := func(token, key, text string) answer {
		return s.do("POST", "/api/v1/repos/commit-pack", token, commitBody(nil, map[string]string{"f": text}), keyHeader, key)
	}
	for _, key := range []string{"", " ", "a b", "é", strings.Repeat("x", 256)} {
		a := commit(token, key, "1")
		if a.status != http.StatusBadRequest {
			t.Errorf("key %q: %d %s", key, a.status, a.body)
		}
	}
	long := strings.Repeat("x", 255)
	first := commit(token, long, "1")
	if first.status != http.StatusCreated || first.header.Get(replayedHeader) != "" {
		t.Fatalf("%d %s", first.status, first.body)
	}
	// A later token of the same subject is the same client.
	fresh := s.mint(s.key, auth.Claims{Org: "acme", Repo: "a/b", IssuedAt: 1_700_000_000, Expires: 4_000_000_000, Scopes: []auth.Scope{auth.GitWrite}})
	again := commit(fresh, long, "1")
	if again.header.Get(replayedHeader) != "true" || !bytes.Equal(again.body, first.body) || again.status != first.status {
		t.Errorf("%d %s, want %s", again.status, again.body, first.body)
	}
	again.header.Del(replayedHeader)
	for _, h := range []http.Header{again.header, first.header} {
		h.Del("Date")
	}
	if !reflect.DeepEqual(again.header, first.header) {
		t.Errorf("headers %v, want %v", again.header, first.header)
	}
	if a := commit(token, long, "2"); a.status != http.StatusConflict || a.error(t).Code != api.KeyReused || a.error(t).Result.Status != "conflict" {
		t.Errorf("another body: %d %s", a.status, a.body)
	}
	// Another subject's and another repository's keys are others.
	for name, claims := range map[string]auth.Claims{"repository": {Repo: "a/c"}, "thread": {Repo: "a/b", Thread: "t"}} {
		claims.Org, claims.Scopes = "acme", []auth.Scope{auth.GitWrite}
		if a := commit(s.mint(s.key, claims), long, "of another "+name); a.status != http.StatusCreated || a.header.Get(replayedHeader) != "" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	// Refusals are not kept.
	stale := commitBody(map[string]any{"expected_head_sha": strings.Repeat("1", 40)}, map[string]string{"f": "3"})
	for range 2 {
		a := s.do("POST", "/api/v1/repos/commit-pack", token, stale, keyHeader, "stale")
		if a.status != http.StatusConflict || a.header.Get(replayedHeader) != "" {
			t.Errorf("stale: %d %s", a.status, a.body)
		}
	}
	if a := commit(token, "stale", "3"); a.status != http.StatusCreated {
		t.Errorf("a key of refusals: %d %s", a.status, a.body)
	}
	// A recorded answer is for whoever may ask.
	if a := commit(s.token("a/b", auth.GitRead), long, "1"); a.status != http.StatusForbidden {
		t.Errorf("without the scope: %d %s", a.status, a.body)
	}
	// Reads take no notice of it.
	if a := s.do("GET", repoPath("a/b", ""), token, nil, keyHeader, long); a.status != http.StatusOK || a.header.Get(replayedHeader) != "" {
		t.Errorf("a read: %d %s", a.status, a.body)
	}
	if a := s.do("GET", repoPath("a/b", ""), token, nil, keyHeader, "a b"); a.status != http.StatusOK {
		t.Errorf("a read with a bad key: %d", a.status)
	}
}

// TestRetryAfterSuccess retries requests that would be refused by then.
func TestRetryAfterSuccess(t *testing.T) {
	s := newStack(t)
	populate(s)
	token := s.full(populated)
	for _, q := range []struct{ method, path, body string }{
		{"POST", "branches/create", `{"target_branch":"once","base_ref":"main"}`},
		{"DELETE", "branches", `{"name":"once"}`},
		{"DELETE", "", ``},
	} {
		var first answer
		for n := range 3 {
			a := s.do(q.method, repoPath(populated, q.path), token, q.body, keyHeader, q.method+q.path)
			if n == 0 {
				first = a
			}
			if a.status != http.StatusOK || !bytes.Equal(a.body, first.body) || (a.header.Get(replayedHeader) == "true") != (n > 0) {
				t.Errorf("%s %s, time %d: %d %v %s", q.method, q.path, n, a.status, a.header, a.body)
			}
		}
	}
	// What was not there leaves no record.
	s.create("x/y")
	for range 2 {
		a := s.do("DELETE", repoPath("x/y", "branches"), s.full("x/y"), `{"name":"never"}`, keyHeader, "never")
		if a.status != http.StatusNotFound {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

// TestAudit reads who did what, by pages.
func TestAudit(t *testing.T) {
	s := newStack(t)
	populate(s)
	admin := s.token("org", auth.OrgAdmin)
	s.do("POST", "/api/repos", s.full("team/agent"), `{}`, "Code-Storage-Agent", "code-storage-sdk/1.2.3")
	var all []api.AuditEntry
	for cursor := ""; ; {
		var page api.AuditPage
		s.want(http.StatusOK, "GET", "/api/audit?limit=2&cursor="+cursor, admin, nil, &page)
		all = append(all, page.Entries...)
		if cursor = page.NextCursor; !page.HasMore {
			break
		}
	}
	if len(all) < 8 || all[0].Action != "repo.create" || all[0].RepoName != "team/agent" || all[0].Agent != "code-storage-sdk/1.2.3" || all[0].Subject != "tester" {
		t.Fatalf("%d entries, the first is %+v", len(all), all[0])
	}
	refs := 0
	for _, e := range all {
		if e.Action == "ref" {
			refs++
			if e.Ref == "" || e.NewSHA == "" || e.RepoName != populated || e.Subject != "tester" || e.Route == "" || e.Agent == "" {
				t.Errorf("entry %+v", e)
			}
		}
	}
	if refs < 4 {
		t.Errorf("%d changes of refs", refs)
	}
	s.refused(http.StatusForbidden, api.ScopeMissing, "GET", "/api/audit", s.token("org", auth.OrgRead), nil)
	s.refused(http.StatusBadRequest, api.Invalid, "GET", "/api/audit?cursor=xx", admin, nil)
	s.refused(http.StatusBadRequest, api.Invalid, "GET", "/api/audit?since=yesterday", admin, nil)
	s.refused(http.StatusNotFound, api.RepositoryMissing, "GET", "/api/audit?repo=never", admin, nil)
}
