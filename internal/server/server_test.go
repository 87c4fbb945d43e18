package server

import (
	"bytes"
	"context"
	"crypto"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/config"
	"github.com/cairnstate/cairn/internal/obs"
	"github.com/cairnstate/cairn/internal/service"
)

// logBuffer collects the log of a server. It is safe for concurrent use.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// running is a server that answers, with the org "acme".
type running struct {
	*Server
	log    *logBuffer
	served chan error
	key    crypto.Signer
}

// start runs a server with the given settings, which name no data directory when
// a new one is to be used.
func start(t *testing.T, flags map[string]string, opts ...Option) *running {
	t.Helper()
	all := map[string]string{"data": t.TempDir(), "listen": "127.0.0.1:0", "log-level": "debug"}
	for k, v := range flags {
		all[k] = v
	}
	cfg, err := config.Load(config.Source{Flags: all})
	if err != nil {
		t.Fatal(err)
	}
	r := &running{log: &logBuffer{}, served: make(chan error, 1)}
	log, err := obs.NewLogger(r.log, cfg.LogLevel, "text")
	if err != nil {
		t.Fatal(err)
	}
	if r.Server, err = New(t.Context(), cfg, log, "v0-test", opts...); err != nil {
		t.Fatal(err)
	}
	if err := r.Listen(); err != nil {
		t.Fatal(err)
	}
	r.key = org(t, r.Server)
	go func() { r.served <- r.Serve() }()
	t.Cleanup(func() {
		r.Close()
		if t.Failed() {
			t.Logf("the server's log:\n%s", r.log)
		}
	})
	return r
}

// org makes the org "acme" with a new key, or adds the key to it.
func org(t *testing.T, s *Server) crypto.Signer {
	t.Helper()
	private, err := auth.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	public, err := auth.ParsePublicKey("", private)
	if err != nil {
		t.Fatal(err)
	}
	op := &service.Operator{Meta: s.Storage().Meta}
	if _, err = op.Org(t.Context(), "acme"); err == nil {
		_, err = op.AddKey(t.Context(), "acme", "", []byte(public.PublicPEM))
	} else {
		_, err = op.CreateOrg(t.Context(), "acme", "", []byte(public.PublicPEM))
	}
	if err != nil {
		t.Fatal(err)
	}
	key, err := auth.ParsePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// token allows everything in one repository for a minute.
func (r *running) token(t *testing.T, repo string) string {
	t.Helper()
	now := time.Now().Unix()
	text, err := auth.Mint(r.key, "", auth.Claims{
		Org: "acme", Repo: repo, Scopes: []auth.Scope{auth.GitRead, auth.GitWrite, auth.RepoWrite}, IssuedAt: now, Expires: now + 60,
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ask sends one request with a token of the repository and returns status and
// body. It may be called from any goroutine.
func (r *running) ask(client *http.Client, token, method, path string, body io.Reader) (int, string, error) {
	req, err := http.NewRequest(method, r.URL()+path, body)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func (r *running) get(t *testing.T, path string) (int, string) {
	t.Helper()
	status, body, err := r.ask(http.DefaultClient, "", http.MethodGet, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

// handle lets the main handler answer without a connection.
func (r *running) handle(path string) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	r.main.Handler.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec
}

func TestShutdownLetsARequestFinish(t *testing.T) {
	s := start(t, nil)
	if status := s.handle("/readyz").Code; status != http.StatusOK {
		t.Fatalf("/readyz answered %d", status)
	}
	body, send := io.Pipe()
	type answer struct {
		status int
		text   string
		err    error
	}
	answered := make(chan answer, 1)
	token := s.token(t, "r")
	go func() {
		var a answer
		a.status, a.text, a.err = s.ask(&http.Client{Transport: &http.Transport{}}, token, http.MethodPost, "/api/repos", body)
		answered <- a
	}()
	// The second write returns when the transport has sent the first.
	for _, part := range []string{`{"default_branch"`, `:"trunk"`} {
		if _, err := io.WriteString(send, part); err != nil {
			t.Fatal(err)
		}
	}
	until(t, func() bool { return strings.Contains(s.handle("/metrics").Body.String(), "cairn_requests_in_flight 2") })

	ended := make(chan error, 1)
	go func() { ended <- s.Shutdown(context.Background()) }()
	until(t, func() bool { return s.handle("/readyz").Code == http.StatusServiceUnavailable })
	until(t, func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	select {
	case err := <-ended:
		t.Fatalf("Shutdown returned %v while a request was under way", err)
	default:
	}
	if _, err := io.WriteString(send, "}"); err != nil {
		t.Fatal(err)
	}
	send.Close()
	if a := <-answered; a.err != nil || a.status != http.StatusCreated || !strings.Contains(a.text, `"r"`) {
		t.Errorf("the request under way got %d %q, %v", a.status, a.text, a.err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-s.served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// until waits for a condition that another goroutine brings about.
func until(t *testing.T, done func() bool) {
	t.Helper()
	for range 1000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("what was waited for did not come about")
}

func TestShutdownGivesUpInTheEnd(t *testing.T) {
	s := start(t, nil)
	body, send := io.Pipe()
	failed := make(chan error, 1)
	token := s.token(t, "r")
	go func() {
		_, _, err := s.ask(&http.Client{Transport: &http.Transport{}}, token, http.MethodPost, "/api/repos", body)
		failed <- err
	}()
	if _, err := io.WriteString(send, `{"default_branch"`); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return strings.Contains(s.handle("/metrics").Body.String(), "cairn_requests_in_flight 2") })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v, want that of its context", err)
	}
	send.Close()
	if err := <-failed; err == nil {
		t.Error("the request was answered after all")
	}
}

func TestHealthAsksTheDatabase(t *testing.T) {
	s := start(t, nil)
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, body := s.get(t, path); status != http.StatusOK || body != `{"status":"ok"}`+"\n" {
			t.Errorf("%s answered %d %q", path, status, body)
		}
	}
	if err := s.Storage().Meta.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, body := s.get(t, path); status != http.StatusServiceUnavailable || strings.Contains(body, "sql") {
			t.Errorf("%s without a database answered %d %q", path, status, body)
		}
	}
	if !strings.Contains(s.log.String(), "health check failed") {
		t.Error("the log does not say why")
	}
}

// routeLabel matches the route of one series.
var routeLabel = regexp.MustCompile(`cairn_requests_total\{route="([^"]*)"`)

func TestMetricsAreBounded(t *testing.T) {
	s := start(t, nil)
	for i := range 30 {
		for _, path := range []string{
			"/secret-%d", "/secret-%d.git/info/refs?service=git-upload-pack", "/secret-%d+ephemeral.git/git-receive-pack",
			"/api/secret-%d", "/api/repos/secret-%d", "/api/v1/repos/secret-%d/branches", "//api//secret-%d", "/healthz/secret-%d",
		} {
			s.handle(fmt.Sprintf(path, i))
		}
	}
	_, text := s.get(t, "/metrics")
	if strings.Contains(text, "secret") {
		t.Error("the metrics name paths of requests")
	}
	routes := map[string]bool{}
	for _, m := range routeLabel.FindAllStringSubmatch(text, -1) {
		routes[m[1]] = true
	}
	if len(routes) < 4 || len(routes) > 8 {
		t.Errorf("240 paths of 8 forms gave the routes %v", routes)
	}
	for _, want := range []string{`cairn_build_info{version="v0-test"} 1`, "cairn_corruption_total 0", `cairn_requests_total{route="none",status="404"} `} {
		if !strings.Contains(text, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestMetricsForTheOperatorOnly(t *testing.T) {
	s := start(t, map[string]string{"admin-listen": "127.0.0.1:0"})
	if status, _ := s.get(t, "/metrics"); status != http.StatusNotFound {
		t.Errorf("/metrics on the main address answered %d", status)
	}
	resp, err := http.Get("http://" + s.adminLn.Addr().String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || !bytes.Contains(text, []byte("cairn_build_info")) {
		t.Errorf("/metrics on the operator's address answered %d, %v", resp.StatusCode, err)
	}
}

func TestClientAddress(t *testing.T) {
	s := start(t, map[string]string{"trusted-proxy": "10.0.0.0/8,fd00::/8"})
	for _, tc := range []struct {
		name, peer string
		forwarded  []string
		want       string
	}{
		{"no proxy", "192.0.2.1:9", nil, "192.0.2.1"},
		{"a client that claims another address", "192.0.2.1:9", []string{"198.51.100.7"}, "192.0.2.1"},
		{"a trusted proxy", "10.1.1.1:9", []string{"198.51.100.7"}, "198.51.100.7"},
		{"a claim before the trusted proxy", "10.1.1.1:9", []string{"203.0.113.9, 198.51.100.7"}, "198.51.100.7"},
		{"two trusted proxies", "10.1.1.1:9", []string{"203.0.113.9, 198.51.100.7, 10.2.2.2"}, "198.51.100.7"},
		{"two headers", "10.1.1.1:9", []string{"203.0.113.9", "198.51.100.7"}, "198.51.100.7"},
		{"IPv6", "[fd00::1]:9", []string{"2001:db8::7"}, "2001:db8::7"},
		{"IPv4 in IPv6", "[::ffff:10.1.1.1]:9", []string{"198.51.100.7"}, "198.51.100.7"},
		{"not an address", "10.1.1.1:9", []string{"evil\" x"}, "10.1.1.1"},
		{"nothing", "10.1.1.1:9", []string{""}, "10.1.1.1"},
		{"proxies only", "10.1.1.1:9", []string{"10.2.2.2"}, "10.2.2.2"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = tc.peer
		r.Header["X-Forwarded-For"] = tc.forwarded
		if got := s.remote(r); got != tc.want {
			t.Errorf("%s: the client is %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestPanicIsAnswered(t *testing.T) {
	s := start(t, nil)
	late := false
	h := s.observed(func(*http.Request) (string, http.Handler) {
		return "broken", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if late {
				io.WriteString(w, "half an ans")
			}
			panic("a fault")
		})
	})
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	if rec.Code != http.StatusInternalServerError || strings.Contains(rec.Body.String(), "a fault") {
		t.Errorf("answered %d %q", rec.Code, rec.Body)
	}
	if log := s.log.String(); !strings.Contains(log, "a fault") || !strings.Contains(log, "server_test.go") {
		t.Error("the log does not say what and where")
	}
	if text := s.handle("/metrics").Body.String(); !strings.Contains(text, `cairn_requests_total{route="broken",status="500"} 1`) {
		t.Error("the metrics do not count the failure")
	}
	late = true
	front := httptest.NewServer(h)
	defer front.Close()
	resp, err := http.Get(front.URL)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if err == nil {
		t.Error("an answer that broke in the middle looks complete")
	}
}

func TestLogHoldsNoCredential(t *testing.T) {
	s := start(t, nil)
	token := s.token(t, "r")
	basic := base64.StdEncoding.EncodeToString([]byte("t:" + token))
	for _, path := range []string{
		"/r.git/info/refs?service=git-upload-pack", "/api/repos?token=" + token, "/" + token + ".git/info/refs", "/api/" + token,
	} {
		req, err := http.NewRequest(http.MethodGet, s.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Basic "+basic)
		req.Header.Set("User-Agent", "agent "+token)
		req.Header.Set("X-Forwarded-For", token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	log := s.log.String()
	if strings.Count(log, "msg=request ") < 4 {
		t.Errorf("the log lacks requests:\n%s", log)
	}
	for _, secret := range []string{token, strings.Split(token, ".")[2], basic} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds a credential:\n%s", log)
		}
	}
}

// TestLostBytesAreLoud removes the bytes of a pack that the metadata names.
func TestLostBytesAreLoud(t *testing.T) {
	data := t.TempDir()
	s := start(t, map[string]string{"data": data, "inline-pack": "0"})
	token := s.token(t, "r")
	commit := `{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"n","email":"n@example.com"},"files":[{"path":"f","content_id":"1"}]}}
{"blob_chunk":{"content_id":"1","data":"YQ==","eof":true}}
`
	for _, step := range []struct{ path, body string }{{"/api/repos", "{}"}, {"/api/repos/r/commit-pack", commit}} {
		if status, body, err := s.ask(http.DefaultClient, token, http.MethodPost, step.path, strings.NewReader(step.body)); err != nil || status != http.StatusCreated {
			t.Fatalf("%s: %d %s, %v", step.path, status, body, err)
		}
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	removed := 0
	err := filepath.WalkDir(filepath.Join(data, "blobs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			removed++
			err = os.Remove(path)
		}
		return err
	})
	if err != nil || removed == 0 {
		t.Fatalf("removed %d files, %v", removed, err)
	}
	s = start(t, map[string]string{"data": data})
	status, body, err := s.ask(http.DefaultClient, s.token(t, "r"), http.MethodGet, "/api/repos/r/file?path=f", nil)
	if err != nil || status != http.StatusInternalServerError {
		t.Errorf("a file whose bytes are lost: %d %s, %v", status, body, err)
	}
	if _, text := s.get(t, "/metrics"); strings.Contains(text, "cairn_corruption_total 0") || !strings.Contains(text, "cairn_corruption_total ") {
		t.Error("the loss is not counted")
	}
	if !strings.Contains(s.log.String(), "level=ERROR") {
		t.Error("the log does not say so")
	}
}
