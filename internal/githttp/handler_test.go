package githttp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/git/wire/wiretest"
	"github.com/cairnstate/cairn/internal/githttp"
)

var (
	errBadToken = errors.New("bad token")
	errScope    = errors.New("scope missing")
	errNoRepo   = errors.New("no such repository")
)

func errorStatus(err error) (int, string) {
	switch {
	case errors.Is(err, errBadToken):
		return http.StatusUnauthorized, "invalid or expired token"
	case errors.Is(err, errScope):
		return http.StatusForbidden, "scope git:write missing"
	case errors.Is(err, errNoRepo):
		return http.StatusNotFound, "repository not found"
	}
	return http.StatusInternalServerError, "internal error"
}

// backend knows the repository "r" and the tokens "rw" and "ro".
type backend struct {
	repo  *wiretest.Repo
	mu    sync.Mutex
	kinds []githttp.Kind
	fault error
	up    wire.Uploader // instead of repo
}

var _ githttp.Backend = (*backend)(nil)

func (b *backend) open(cred githttp.Credential, repo string, kind githttp.Kind, write bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kinds = append(b.kinds, kind)
	switch {
	case b.fault != nil:
		return b.fault
	case cred.Token != "rw" && cred.Token != "ro":
		return fmt.Errorf("open %q: %w", repo, errBadToken)
	case repo != "r":
		return errNoRepo
	case write && cred.Token == "ro":
		return errScope
	}
	return nil
}

func (b *backend) Upload(_ context.Context, cred githttp.Credential, repo string, kind githttp.Kind) (wire.Uploader, error) {
	if b.up != nil {
		return b.up, b.open(cred, repo, kind, false)
	}
	return b.repo, b.open(cred, repo, kind, false)
}

func (b *backend) Receive(_ context.Context, cred githttp.Credential, repo string, kind githttp.Kind) (wire.Receiver, error) {
	return b.repo, b.open(cred, repo, kind, true)
}

// server is a running handler.
type server struct {
	*httptest.Server
	handler *githttp.Handler
	backend *backend
	logs    *syncBuffer

	mu   sync.Mutex
	seen []string // a note on every request
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start serves repo with a handler that changes adjust.
func start(t testing.TB, repo *wiretest.Repo, change ...func(*githttp.Handler)) *server {
	t.Helper()
	s := &server{backend: &backend{repo: repo}, logs: &syncBuffer{}}
	s.handler = &githttp.Handler{
		Backend: s.backend, ErrorStatus: errorStatus,
		Log:  slog.New(slog.NewTextHandler(s.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Wire: wire.Server{Agent: "cairn/test"},
	}
	for _, f := range change {
		f(s.handler)
	}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP notes how requests arrive before it hands them on.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	note := fmt.Sprintf("HTTP/%d %s %s encoding=%s chunked=%v", r.ProtoMajor, r.Method, r.URL.Path, r.Header.Get("Content-Encoding"), r.ContentLength < 0)
	s.mu.Lock()
	s.seen = append(s.seen, note)
	s.mu.Unlock()
	s.handler.ServeHTTP(w, r)
}

// count is the number of requests whose note contains all of the parts.
func (s *server) count(parts ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, note := range s.seen {
		if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(note, part) }) {
			n++
		}
	}
	return n
}

// url is a remote URL with a token.
func (s *server) url(token, name string) string {
	return strings.Replace(s.URL, "http://", "http://t:"+token+"@", 1) + "/" + name + ".git"
}

// request sends one request; a token "" stands for none.
func (s *server) request(t testing.TB, method, path, token string, body io.Reader, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.SetBasicAuth("t", token)
	}
	if service := path[strings.LastIndex(path, "/")+1:]; method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-"+service+"-request")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := s.Client().Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func text(t testing.TB, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the response: %v", err)
	}
	return string(b)
}

const (
	lsRefs = "0014command=ls-refs\n00010000"
	refs   = "/r.git/info/refs?service="
)

// TestHeaders checks header bytes: JGit refuses a content type with a charset,
// proxies must not store or hold back anything.
func TestHeaders(t *testing.T) {
	s := start(t, wiretest.New(t))
	rows := []struct{ method, path, body, contentType, start string }{
		{"GET", refs + "git-upload-pack", "", "application/x-git-upload-pack-advertisement", ""},
		{"GET", refs + "git-receive-pack", "", "application/x-git-receive-pack-advertisement", "001f# service=git-receive-pack\n0000"},
		{"POST", "/r.git/git-upload-pack", lsRefs, "application/x-git-upload-pack-result", ""},
		{"POST", "/r.git/git-receive-pack", "0000", "application/x-git-receive-pack-result", ""},
	}
	starts := map[string]string{"": "001e# service=git-upload-pack\n0000", "version=1": "001e# service=git-upload-pack\n0000000eversion 1\n", "version=2": "000eversion 2\n"}
	for _, row := range rows {
		for _, version := range []string{"", "version=1", "version=2"} {
			body := row.body
			if body == lsRefs && version != "version=2" {
				body = "0000"
			}
			resp := s.request(t, row.method, row.path, "rw", strings.NewReader(body), "Git-Protocol", version, "Accept-Encoding", "gzip")
			got := text(t, resp)
			want := map[string]string{
				"Content-Type": row.contentType, "Cache-Control": "no-cache, max-age=0, must-revalidate",
				"Expires": "Fri, 01 Jan 1980 00:00:00 GMT", "Pragma": "no-cache", "X-Accel-Buffering": "no", "Content-Encoding": "",
			}
			for name, value := range want {
				if have := strings.Join(resp.Header.Values(name), "|"); have != value {
					t.Errorf("%s %s %s: %s is %q, want %q", row.method, row.path, version, name, have, value)
				}
			}
			begin := row.start
			if begin == "" && row.method == "GET" {
				begin = starts[version]
			}
			if resp.StatusCode != 200 || !strings.HasPrefix(got, begin) {
				t.Errorf("%s %s %s: %d %q", row.method, row.path, version, resp.StatusCode, got)
			}
		}
	}
}

// TestCredentialMatrix checks who is told what. Without credentials the answer
// is the same whether or not the repository exists.
func TestCredentialMatrix(t *testing.T) {
	s := start(t, wiretest.New(t))
	type outcome struct {
		status    int
		body      string
		challenge string
	}
	challenge := `Basic realm="Git Repository"`
	anonymous := outcome{401, "authentication required\n", challenge}
	bad := outcome{401, "invalid or expired token\n", challenge}
	missing := outcome{404, "repository not found\n", ""}
	scope := outcome{403, "scope git:write missing\n", ""}
	for _, endpoint := range []struct {
		method, path string
		write        bool
	}{
		{"GET", "info/refs?service=git-upload-pack", false},
		{"GET", "info/refs?service=git-receive-pack", true},
		{"POST", "git-upload-pack", false},
		{"POST", "git-receive-pack", true},
	} {
		for _, repo := range []string{"r", "none", "r+ephemeral", "none+import"} {
			for _, token := range []string{"", "garbage", "rw", "ro"} {
				want := outcome{status: 200}
				switch {
				case token == "":
					want = anonymous
				case repo == "none+import" && !endpoint.write:
					want = outcome{403, "the +import remote is write-only: push to it, and read from the repository's own URL\n", ""}
				case token == "garbage":
					want = bad
				case strings.HasPrefix(repo, "none"):
					want = missing
				case token == "ro" && endpoint.write:
					want = scope
				}
				resp := s.request(t, endpoint.method, "/"+repo+".git/"+endpoint.path, token, strings.NewReader("0000"))
				got := outcome{resp.StatusCode, text(t, resp), resp.Header.Get("WWW-Authenticate")}
				if want.status == 200 {
					got.body = ""
				} else if resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" || resp.Header.Get("Date") == "" {
					t.Errorf("headers of an error: %v", resp.Header)
				}
				if got != want {
					t.Errorf("%s %s of %s as %q: got %+v, want %+v", endpoint.method, endpoint.path, repo, token, got, want)
				}
			}
		}
	}
	if strings.Contains(s.logs.String(), "garbage") {
		t.Error("a token is in the log")
	}
}

func TestRefusedRequests(t *testing.T) {
	s := start(t, wiretest.New(t))
	post := "/r.git/git-upload-pack"
	rows := []struct {
		method, path string
		body         string
		header       []string
		status       int
	}{
		{"GET", "/r.git/info/refs", "", nil, 403},
		{"GET", "/r.git/HEAD", "", nil, 403},
		{"GET", "/r.git/objects/info/packs", "", nil, 403},
		{"GET", refs + "git-upload-archive", "", nil, 403},
		{"GET", "/elsewhere", "", nil, 404},
		{"GET", post, "", nil, 405},
		{"POST", refs + "git-upload-pack", "", nil, 405},
		{"POST", post, lsRefs, []string{"Content-Type", "text/plain"}, 415},
		{"POST", post, lsRefs, []string{"Content-Type", "application/x-git-receive-pack-request"}, 415},
		{"POST", post, lsRefs, []string{"Content-Encoding", "br"}, 415},
		{"POST", post, lsRefs, []string{"Content-Encoding", "gzip"}, 400},
		{"POST", post, "00zz", nil, 400},
		{"POST", post, "", nil, 400},
		{"POST", post, "0014command=ls-refs\n", []string{"Git-Protocol", "version=2"}, 400},
		{"POST", "/r.git/git-receive-pack", "0008abcd", nil, 400},
	}
	for _, row := range rows {
		resp := s.request(t, row.method, row.path, "rw", strings.NewReader(row.body), row.header...)
		if got := text(t, resp); resp.StatusCode != row.status || strings.Count(got, "\n") != 1 {
			t.Errorf("%s %s %q %q: got %d %q, want %d", row.method, row.path, row.body, row.header, resp.StatusCode, got, row.status)
		}
	}
	s.backend.fault = errors.New("the disk at 10.0.0.7 burns")
	resp := s.request(t, "GET", refs+"git-upload-pack", "rw", nil)
	if got := text(t, resp); resp.StatusCode != 500 || got != "internal error\n" || !strings.Contains(s.logs.String(), "level=ERROR") {
		t.Errorf("fault: %d %q, log %s", resp.StatusCode, got, s.logs.String())
	}
}

func zip(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestGzipBody(t *testing.T) {
	s := start(t, wiretest.New(t))
	for _, encoding := range []string{"gzip", "x-gzip", "GZIP"} {
		resp := s.request(t, "POST", "/r.git/git-upload-pack", "rw", bytes.NewReader(zip(t, []byte(lsRefs))),
			"Content-Encoding", encoding, "Git-Protocol", "version=2")
		if got := text(t, resp); resp.StatusCode != 200 || got != "0000" {
			t.Errorf("%s: %d %q", encoding, resp.StatusCode, got)
		}
	}
	whole := zip(t, []byte(lsRefs))
	resp := s.request(t, "POST", "/r.git/git-upload-pack", "rw", bytes.NewReader(whole[:len(whole)/2]),
		"Content-Encoding", "gzip", "Git-Protocol", "version=2")
	if got := text(t, resp); resp.StatusCode != 400 || !strings.Contains(got, "not valid gzip") {
		t.Errorf("truncated: %d %q", resp.StatusCode, got)
	}
}

// endless yields pkt-lines without end.
type endless struct{ line string }

func (e endless) Read(p []byte) (int, error) {
	n := 0
	for n+len(e.line) <= len(p) {
		n += copy(p[n:], e.line)
	}
	return n, nil
}

// TestGzipBomb sends 5 MB that inflate to 5 GB. They are cut off soon, and what
// they inflate to is never held.
func TestGzipBomb(t *testing.T) {
	s := start(t, wiretest.New(t))
	for path, line := range map[string]string{
		"/r.git/git-upload-pack":  fmt.Sprintf("0032want %040d\n", 0),
		"/r.git/git-receive-pack": fmt.Sprintf("0035shallow %040d\n", 0),
	} {
		bomb := bytes.Repeat(zip(t, bytes.Repeat([]byte(line), 200_000)), 200)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		resp := s.request(t, "POST", path, "rw", bytes.NewReader(bomb), "Content-Encoding", "gzip")
		got := text(t, resp)
		runtime.ReadMemStats(&after)
		if resp.StatusCode != 413 || got != "the compressed request body is too large\n" {
			t.Errorf("%s: %d %q", path, resp.StatusCode, got)
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
			t.Errorf("%s: %d bytes were allocated for a bomb of %d", path, grown, len(bomb))
		}
	}
}

// push is the head of a push that creates a branch.
var push = func() string {
	line := strings.Repeat("0", 40) + " " + strings.Repeat("1", 40) + " refs/heads/a\x00 report-status side-band-64k object-format=sha1"
	return fmt.Sprintf("%04x%s0000", len(line)+4, line)
}()

// TestEarlyRefusal: a push that is refused before its pack was read is drained,
// so that the client sees why.
func TestEarlyRefusal(t *testing.T) {
	repo := wiretest.New(t)
	repo.Early = "over quota"
	s := start(t, repo)
	body := &watchedReader{Reader: io.MultiReader(strings.NewReader(push), io.LimitReader(endless{"PACK"}, 64<<20))}
	resp := s.request(t, "POST", "/r.git/git-receive-pack", "rw", body)
	if got := body.bytes(); got < 64<<20 {
		t.Errorf("only %d bytes were taken before the answer", got)
	}
	if got := text(t, resp); resp.StatusCode != 200 || !strings.Contains(got, "unpack over quota") || !strings.Contains(got, "ng refs/heads/a unpacker error") {
		t.Errorf("got %d %q", resp.StatusCode, got)
	}
}

// TestExpectContinue: a client that waits for "100 Continue" is refused before
// it sends anything, and is let on when it may push.
func TestExpectContinue(t *testing.T) {
	s := start(t, wiretest.New(t))
	s.Client().Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	for token, want := range map[string]int{"": 401, "garbage": 401, "ro": 403, "rw": 200} {
		body := &watchedReader{Reader: strings.NewReader("0000")}
		resp := s.request(t, "POST", "/r.git/git-receive-pack", token, body, "Expect", "100-continue")
		text(t, resp)
		if resp.StatusCode != want || (body.bytes() > 0) != (want == 200) {
			t.Errorf("%q: %d, %d bytes of the body were read", token, resp.StatusCode, body.bytes())
		}
	}
}

// watchedReader counts what is read of it.
type watchedReader struct {
	io.Reader
	read atomic.Int64
}

func (w *watchedReader) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.read.Add(int64(n))
	return n, err
}

func (w *watchedReader) bytes() int64 { return w.read.Load() }

// TestIdleClient: a client that stops sending is cut off with a status; one that
// stops taking the answer frees the handler.
func TestIdleClient(t *testing.T) {
	s := start(t, wiretest.New(t), func(h *githttp.Handler) { h.Limits.Idle = 50 * time.Millisecond })
	stalled, hold := io.Pipe()
	defer hold.Close()
	resp := s.request(t, "POST", "/r.git/git-upload-pack", "rw", io.MultiReader(strings.NewReader("0014"), stalled))
	if got := text(t, resp); resp.StatusCode != 408 || got != "the request body stopped arriving\n" {
		t.Errorf("stalled upload: %d %q", resp.StatusCode, got)
	}

	sent := make(chan error, 1)
	s.backend.up = &flood{Uploader: s.backend.repo, done: sent}
	want := "0032want 1111111111111111111111111111111111111111\n"
	s.request(t, "POST", "/r.git/git-upload-pack", "rw", strings.NewReader("0012command=fetch\n0001"+want+"0009done\n0000"), "Git-Protocol", "version=2")
	if err := <-sent; err == nil {
		t.Error("a client that takes nothing was sent everything")
	}
}

// TestSlowProgress: a request may take much longer than the idle limit as long
// as it gets on.
func TestSlowProgress(t *testing.T) {
	const idle = time.Second
	s := start(t, wiretest.New(t), func(h *githttp.Handler) { h.Limits.Idle = idle })
	in, out := io.Pipe()
	go func() {
		for _, c := range lsRefs {
			time.Sleep(idle / 16)
			if _, err := io.WriteString(out, string(c)); err != nil {
				return
			}
		}
		out.Close()
	}()
	resp := s.request(t, "POST", "/r.git/git-upload-pack", "rw", in, "Git-Protocol", "version=2")
	if got := text(t, resp); resp.StatusCode != 200 || got != "0000" {
		t.Errorf("got %d %q", resp.StatusCode, got)
	}
}

// flood sends a pack without end.
type flood struct {
	wire.Uploader
	done chan error
}

func (f *flood) CheckWants(context.Context, []object.ID) error { return nil }

func (f *flood) Send(ctx context.Context, w io.Writer, _ *wire.Fetch, _ wire.ShallowUpdate, _ func(string)) error {
	_, err := io.CopyN(w, endless{"PACK"}, 1<<30)
	f.done <- err
	return err
}

// TestBrokenPack: a pack that fails midway never looks complete.
func TestBrokenPack(t *testing.T) {
	s := start(t, wiretest.New(t))
	s.backend.up = &failing{Uploader: s.backend.repo}
	want := "0032want 1111111111111111111111111111111111111111\n"
	resp := s.request(t, "POST", "/r.git/git-upload-pack", "rw", strings.NewReader(want+"00000009done\n"))
	if b, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("bare pack: %d bytes and a clean end", len(b))
	}
	resp = s.request(t, "POST", "/r.git/git-upload-pack", "rw", strings.NewReader("0012command=fetch\n0001"+want+"0009done\n0000"), "Git-Protocol", "version=2")
	if got := text(t, resp); !strings.HasSuffix(got, "\x03upload-pack: the server failed while it made the pack\n") {
		t.Errorf("side-band: ends with %q", got[max(0, len(got)-80):])
	}
}

type failing struct{ wire.Uploader }

func (f *failing) CheckWants(context.Context, []object.ID) error { return nil }

func (f *failing) Send(_ context.Context, w io.Writer, _ *wire.Fetch, _ wire.ShallowUpdate, _ func(string)) error {
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		return err
	}
	return errors.New("the disk at 10.0.0.7 burns")
}
