package rest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/api"
	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/blob/mem"
	"github.com/cairnstate/cairn/internal/checkpoint"
	objects "github.com/cairnstate/cairn/internal/content"
	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/meta/sqlstore"
	"github.com/cairnstate/cairn/internal/netguard"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/internal/repo"
	"github.com/cairnstate/cairn/internal/secret"
	"github.com/cairnstate/cairn/internal/service"
	"github.com/cairnstate/cairn/internal/upstream"
)

// stack is a server on stores of its own, with the org "acme".
type stack struct {
	t       testing.TB
	meta    meta.Store
	handler *Handler
	server  *httptest.Server
	key     *ecdsa.PrivateKey

	credential string // what "{credential}" in paths and bodies stands for
	event      string // likewise "{event}"

	owner, fence string // likewise "{owner}" and "{fence}": of a lease
}

func newStack(t testing.TB) *stack {
	t.Helper()
	ctx := t.Context()
	store, err := sqlstore.OpenSQLite(ctx, filepath.Join(t.TempDir(), "meta.db"), sqlstore.SQLiteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	blobs := mem.New()
	feed := events.NewFeed(store)
	engine := repo.New(repo.Config{
		Meta: feed, Blobs: blobs, Process: "test", Scratch: t.TempDir(),
		ODB: odb.New(odb.Config{Meta: store, Blobs: blobs, Scratch: t.TempDir(), Process: "test"}),
	})
	verifier, err := auth.NewVerifier(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &stack{t: t, meta: store, key: newKey(t)}
	s.org("acme", s.key)
	secrets, err := secret.Parse(secret.Generate())
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := netguard.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	svc := service.New(service.Config{
		Meta: feed, Feed: feed, Engine: engine, Verifier: verifier, Secrets: secrets,
		Checkpoints: checkpoint.New(checkpoint.Config{
			Meta: store, Process: "test", Content: objects.New(objects.Config{Meta: store, Blobs: blobs, Process: "test", Begin: engine.Begin}),
		}),
		Upstreams: upstream.New(upstream.Config{Meta: store, Engine: engine, Secrets: secrets, Hosts: hosts}), // not running
	})
	s.handler = New(Config{Service: svc, PublicURL: func() string { return "https://git.example.com" }})
	s.server = httptest.NewServer(s.handler)
	t.Cleanup(s.server.Close)
	return s
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (s *stack) org(name string, key *ecdsa.PrivateKey) {
	s.t.Helper()
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		s.t.Fatal(err)
	}
	o := service.Operator{Meta: s.meta}
	if _, err := o.CreateOrg(context.Background(), name, "", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})); err != nil {
		s.t.Fatal(err)
	}
}

// follow makes a repository that follows an upstream which is never asked.
func (s *stack) follow(repo string) {
	s.t.Helper()
	s.want(http.StatusCreated, "POST", "/api/repos", s.full(repo),
		`{"base_repo":{"provider":"gitea","upstream_host":"git.example.com","owner":"o","name":"n"}}`, nil)
}

// token mints a token of acme for a repository.
func (s *stack) token(repo string, scopes ...auth.Scope) string {
	return s.mint(s.key, auth.Claims{Org: "acme", Repo: repo, Scopes: scopes})
}

// full mints a token that may do everything with a repository.
func (s *stack) full(repo string) string {
	return s.token(repo, auth.GitRead, auth.GitWrite, auth.RepoWrite, auth.OrgRead, auth.OrgAdmin)
}

func (s *stack) mint(key *ecdsa.PrivateKey, c auth.Claims) string {
	s.t.Helper()
	c.Subject = "tester"
	if c.IssuedAt == 0 {
		c.IssuedAt = time.Now().Unix()
	}
	if c.Expires == 0 {
		c.Expires = c.IssuedAt + 3600
	}
	token, err := auth.Mint(key, "", c)
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

func rule(t testing.TB, pattern string, ops ...policy.Op) policy.Rule {
	t.Helper()
	r, err := policy.NewRule(pattern, ops)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// answer is what the server said.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// json decodes the body.
func (a answer) json(t testing.TB, into any) {
	t.Helper()
	if ct := a.header.Get("Content-Type"); ct != "application/json" {
		t.Fatalf("content type %q, body %.200s", ct, a.body)
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		t.Fatalf("%v in %.300s", err, a.body)
	}
}

func (a answer) error(t testing.TB) api.Error {
	t.Helper()
	var e api.Error
	a.json(t, &e)
	if e.Message == "" || e.Message != e.Detail || e.Status != a.status || e.Type != "about:blank" || e.Title != http.StatusText(a.status) || e.Code == "" {
		t.Errorf("error body of %d is %s", a.status, a.body)
	}
	return e
}

// filled puts names of what the stack made in the place of "{credential}" and
// "{event}".
func (s *stack) filled(text string) string {
	return strings.NewReplacer("{credential}", s.credential, "{event}", s.event, "{owner}", s.owner, "{fence}", s.fence).Replace(text)
}

// do sends a request; body is nil, a string, or something for JSON.
func (s *stack) do(method, path, token string, body any, headers ...string) answer {
	s.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(s.filled(b))
	default:
		data, err := json.Marshal(b)
		if err != nil {
			s.t.Fatal(err)
		}
		in = bytes.NewReader(data)
	}
	path = s.filled(path)
	if before, after, ok := strings.Cut(path, "{id}"); ok {
		path = before + service.RepoID(s.repo(populated).ID) + after
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, in)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{
		Transport:     &http.Transport{DisableCompression: true, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: read answer: %v", method, path, err)
	}
	a := answer{resp.StatusCode, resp.Header, data}
	if err := a.described(s.handler, method, req.URL.EscapedPath()); err != nil {
		s.t.Errorf("%s %s: the answer is not what the document says: %v", method, path, err)
	}
	return a
}

// want sends a request and decodes the answer, which has a status.
func (s *stack) want(status int, method, path, token string, body, into any) answer {
	s.t.Helper()
	a := s.do(method, path, token, body)
	if a.status != status {
		s.t.Fatalf("%s %s: %d, want %d: %.400s", method, path, a.status, status, a.body)
	}
	if into != nil {
		a.json(s.t, into)
	}
	return a
}

// refused sends a request that is refused with a status and a code.
func (s *stack) refused(status int, code api.Code, method, path, token string, body any) api.Error {
	s.t.Helper()
	a := s.do(method, path, token, body)
	if a.status != status {
		s.t.Fatalf("%s %s: %d, want %d: %.400s", method, path, a.status, status, a.body)
	}
	e := a.error(s.t)
	if e.Code != code {
		s.t.Fatalf("%s %s: code %q, want %q: %s", method, path, e.Code, code, e.Message)
	}
	return e
}

// repo is the row of a repository of acme.
func (s *stack) repo(name string) meta.Repo {
	s.t.Helper()
	gate, err := s.meta.Gate(s.t.Context(), meta.GateQuery{Org: "acme", Repo: name})
	if err != nil {
		s.t.Fatal(err)
	}
	return gate.Repo
}

func repoPath(name, rest string) string {
	p := "/api/repos/" + url.PathEscape(name)
	if rest != "" {
		p += "/" + rest
	}
	return p
}

func (s *stack) create(name string) {
	s.t.Helper()
	s.want(http.StatusCreated, "POST", "/api/repos", s.full(name), nil, nil)
}

// commitBody makes the lines of a commit-pack: meta is laid over what is
// required, and files maps paths to contents.
func commitBody(meta map[string]any, files map[string]string) string {
	m := map[string]any{
		"target_branch": "main", "commit_message": "change", "author": map[string]any{"name": "A", "email": "a@example.com"},
	}
	var list []map[string]any
	var chunks strings.Builder
	n := 0
	for path, content := range files {
		n++
		id := fmt.Sprintf("c%d", n)
		list = append(list, map[string]any{"path": path, "content_id": id})
		chunks.WriteString(chunkLine(id, content, true))
	}
	m["files"] = list
	for k, v := range meta {
		m[k] = v
	}
	head, err := json.Marshal(map[string]any{"metadata": m})
	if err != nil {
		panic(err)
	}
	return string(head) + "\n" + chunks.String()
}

func chunkLine(id, content string, eof bool) string {
	return fmt.Sprintf("{\"blob_chunk\":{\"content_id\":%q,\"data\":%q,\"eof\":%t}}\n", id, base64.StdEncoding.EncodeToString([]byte(content)), eof)
}

// commit writes a commit and returns its answer.
func (s *stack) commit(repo string, meta map[string]any, files map[string]string) api.CommitAck {
	s.t.Helper()
	var ack api.CommitAck
	s.want(http.StatusCreated, "POST", repoPath(repo, "commit-pack"), s.full(repo), commitBody(meta, files), &ack)
	return ack
}
