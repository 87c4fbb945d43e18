package upstream

import (
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// world is an upstream host with the repository team/app, and a Cairn that may
// reach it.
type world struct {
	testing.TB
	host   string // of the front
	root   string // of the upstream's repositories
	origin harness.Git
	cairn  *harness.Server
	client *http.Client

	mu     sync.Mutex
	change func(http.Handler) http.Handler // what the front does, nil for passing on
	asked  []string
}

func newWorld(t *testing.T, opts harness.Options) *world {
	t.Helper()
	w := &world{TB: t, root: t.TempDir()}
	bare := filepath.Join(w.root, "team", "app.git")
	git := harness.NewGit(t)
	git.Run("init", "-q", "--bare", "--initial-branch=trunk", bare)
	w.origin = git.In(bare)
	backend, err := url.Parse(harness.ServeBackend(t, w.root).URL)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(backend)
	pass.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		change := w.change
		w.asked = append(w.asked, r.Method+" "+r.URL.String())
		w.mu.Unlock()
		var h http.Handler = pass
		if change != nil {
			h = change(pass)
		}
		h.ServeHTTP(rw, r)
	}))
	t.Cleanup(front.Close)
	w.host = front.Listener.Addr().String()
	opts.Args = append(opts.Args, "--log-level", "debug")
	if !contains(opts.Args, "--closed") {
		opts.Args = append(opts.Args, "--allow-host", w.host, "--upstream-plain", w.host)
	}
	opts.Args = without(opts.Args, "--closed")
	w.cairn = harness.Serve(t, opts)
	w.client = w.cairn.HTTP()
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

func contains(list []string, word string) bool { return len(without(list, word)) != len(list) }

func without(list []string, word string) []string {
	var out []string
	for _, l := range list {
		if l != word {
			out = append(out, l)
		}
	}
	return out
}

// front sets what the front does with requests.
func (w *world) front(change func(pass http.Handler) http.Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.change = change
}

// always makes a front that answers everything alike.
func always(f http.HandlerFunc) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler { return f }
}

// commit writes a commit upon a branch of the upstream and returns its id.
func (w *world) commit(branch, parent, path, content string) string {
	w.Helper()
	script := "blob\nmark :1\ndata <<EOT\n" + content + "\nEOT\n\ncommit refs/heads/" + branch +
		"\ncommitter T <t@example.com> 1700000000 +0000\ndata <<EOT\nchange " + path + "\nEOT\n"
	if parent != "" {
		script += "from " + parent + "\n"
	}
	script += "M 100644 :1 " + path + "\n\n"
	w.origin.Input(script, "fast-import", "--quiet", "--force")
	return strings.TrimSpace(w.origin.Run("rev-parse", "refs/heads/"+branch))
}

var everything = []auth.Scope{auth.GitRead, auth.GitWrite, auth.RepoWrite, auth.OrgRead}

// do asks Cairn and fails the test on another status.
func (w *world) do(status int, method, path, repo, body string) harness.Answer {
	w.Helper()
	a, err := w.cairn.Do(w.client, method, path, w.cairn.Token(harness.Grant{Repo: repo, Scopes: everything}), "application/json", []byte(body))
	if err != nil {
		w.Fatal(err)
	}
	if a.Status != status {
		w.Fatalf("%s %s: %d, want %d: %s", method, path, a.Status, status, a.Body)
	}
	return a
}

// follow makes a repository that follows the upstream.
func (w *world) follow(repo string) {
	w.Helper()
	w.do(http.StatusCreated, "POST", "/api/repos", repo,
		`{"base_repo":{"provider":"gitea","upstream_host":"`+w.host+`","owner":"team","name":"app"}}`)
}

func (w *world) pull(repo string) {
	w.Helper()
	w.do(http.StatusAccepted, "POST", harness.RepoPath(repo)+"/pull-upstream", repo, "")
}

// status returns the state of a repository's sync and why it failed.
func (w *world) status(repo string) (state, reason, at string) {
	w.Helper()
	a := w.do(http.StatusOK, "GET", harness.RepoPath(repo), repo, "")
	return a.Text("base_repo", "sync_status"), a.Text("base_repo", "sync_error"), a.Text("default_branch")
}

// settled bounds how long a test waits for a sync.
const settled = 60 * time.Second

// until waits until a condition holds.
func (w *world) until(what string, holds func() bool) {
	w.Helper()
	for deadline := time.Now().Add(settled); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("%s: not within %s", what, settled)
		}
	}
}

// synced waits until the refs of the repository are those wanted, in the form
// "name id".
func (w *world) synced(repo string, want ...string) {
	w.Helper()
	var got string
	w.until("refs "+strings.Join(want, ", "), func() bool {
		state, _, _ := w.status(repo)
		got = strings.Join(w.refs(repo), "\n")
		if state != "importing" && got == strings.Join(want, "\n") {
			return true
		}
		return false
	})
}

// refs lists what git sees of a repository.
func (w *world) refs(repo string) []string {
	w.Helper()
	out, err := harness.NewGit(w).Try("ls-remote", "--refs", w.cairn.Remote(harness.Grant{Repo: repo}, ""))
	if err != nil {
		return []string{"error"}
	}
	var refs []string
	for line := range strings.Lines(out) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		refs = append(refs, name+" "+id)
	}
	return refs
}

// failed waits until the last sync of a repository failed and returns why.
func (w *world) failed(repo string) string {
	w.Helper()
	var reason string
	w.until("a failed sync", func() bool {
		var state string
		state, reason, _ = w.status(repo)
		return state == "failed" || reason != ""
	})
	return reason
}

// hangUp breaks a connection without an answer.
func hangUp(rw http.ResponseWriter, _ *http.Request) {
	conn, _, err := http.NewResponseController(rw).Hijack()
	if err == nil {
		conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}
}

// noisy is text of n letters that compresses badly and follows from seed.
func noisy(seed, n int) string {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
	text := make([]byte, n)
	for i := range text {
		text[i] = byte('A' + r.IntN(58))
	}
	return string(text)
}
