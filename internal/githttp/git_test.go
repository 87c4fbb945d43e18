package githttp_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/git/wire/wiretest"
	"github.com/cairnstate/cairn/internal/githttp"
)

// git runs the git client with one protocol version.
type git struct {
	t       testing.TB
	dir     string
	version int
}

func (g git) try(args ...string) (string, error) {
	return wiretest.Git(g.dir, append([]string{"-c", fmt.Sprintf("protocol.version=%d", g.version), "-c", "advice.detachedHead=false"}, args...)...)
}

func (g git) run(args ...string) string {
	g.t.Helper()
	out, err := g.try(args...)
	if err != nil {
		g.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

// refuse runs a command that must fail and mention text.
func (g git) refuse(text string, args ...string) {
	g.t.Helper()
	if out, err := g.try(args...); err == nil || !strings.Contains(out, text) {
		g.t.Errorf("git %s: %v, want a failure with %q\n%s", strings.Join(args, " "), err, text, out)
	}
}

func (g git) commit(name, content string) {
	g.t.Helper()
	if err := os.WriteFile(filepath.Join(g.dir, name), []byte(content), 0o644); err != nil {
		g.t.Fatal(err)
	}
	g.run("add", ".")
	g.run("commit", "-q", "-m", name)
}

// everyVersion runs f with a fresh server and a working folder for each version.
func everyVersion(t *testing.T, f func(t *testing.T, s *server, g git)) {
	for version := range 3 {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			f(t, start(t, wiretest.New(t)), git{t, t.TempDir(), version})
		})
	}
}

// seed clones the empty repository to work, pushes n commits to main, and
// returns the working copy.
func seed(s *server, g git, n int) git {
	g.t.Helper()
	g.run("clone", "-q", s.url("rw", "r"), "work")
	w := git{g.t, filepath.Join(g.dir, "work"), g.version}
	if head := w.run("symbolic-ref", "HEAD"); g.version == 2 && head != "refs/heads/main" {
		g.t.Errorf("HEAD of an empty clone is %s", head)
	}
	w.run("checkout", "-q", "-B", "main")
	for i := range n {
		w.commit(fmt.Sprint("f", i), strings.Repeat(fmt.Sprintln("line", i), 300))
	}
	w.run("push", "-q", "origin", "main")
	return w
}

// TestGitClient takes the stock git client through its day.
func TestGitClient(t *testing.T) {
	everyVersion(t, func(t *testing.T, s *server, g git) {
		w := seed(s, g, 4)
		tip := w.run("rev-parse", "main")
		g.run("clone", "-q", s.url("ro", "r"), "full")
		full := git{t, filepath.Join(g.dir, "full"), g.version}
		if got := full.run("rev-parse", "HEAD"); got != tip || full.run("symbolic-ref", "HEAD") != "refs/heads/main" {
			t.Errorf("clone at %s, want %s", got, tip)
		}
		full.run("fsck", "--full", "--strict")
		full.refuse("scope git:write missing", "push", "-q", "origin", "main:x")

		w.commit("later", "later\n")
		w.run("tag", "-a", "-m", "t", "v1")
		out := w.run("push", "origin", "main", "v1", "main:side/branch")
		if !strings.Contains(out, "remote: hello from the server") {
			t.Errorf("push says %s", out)
		}
		full.run("fetch", "-q", "origin")
		if full.run("rev-parse", "v1^{}") != w.run("rev-parse", "main") {
			t.Error("the tag did not follow the fetch")
		}
		full.run("fsck", "--full", "--strict")
		if full.run("fetch", "origin"); full.run("rev-parse", "origin/side/branch") != w.run("rev-parse", "main") {
			t.Error("fetch of a new branch")
		}

		// Any reachable id can be fetched, no other.
		full.run("fetch", "-q", "--depth=1", "origin", w.run("rev-parse", "main~2"))
		full.refuse("not our ref 1234", "fetch", "-q", "origin", "1234567890123456789012345678901234567890")

		w.run("push", "-q", "origin", ":side/branch")
		if refs := w.run("ls-remote", "origin", "refs/heads/*"); strings.Count(refs, "\n") != 0 || !strings.HasSuffix(refs, "refs/heads/main") {
			t.Errorf("after the deletion: %s", refs)
		}
		w.run("commit", "-q", "--amend", "-m", "other")
		w.refuse("rejected", "push", "-q", "origin", "main")
		w.run("push", "-q", "--force", "origin", "main")
	})
}

func TestGitShallow(t *testing.T) {
	everyVersion(t, func(t *testing.T, s *server, g git) {
		w := seed(s, g, 6)
		count := func(c git) string { return c.run("rev-list", "--count", "HEAD") }
		g.run("clone", "-q", "--depth=1", "--no-checkout", s.url("ro", "r"), "shallow")
		c := git{t, filepath.Join(g.dir, "shallow"), g.version}
		for _, step := range []struct {
			args, want string
		}{
			{"fetch -q --depth=2", "2"},
			{"fetch -q --deepen=2", "4"},
			{"fetch -q --unshallow", "6"},
			{"fetch -q --depth=1", "1"},
			{"fetch -q --no-tags --shallow-exclude=v3", "3"},
			{"fetch -q --no-tags --shallow-since=1600000000", "6"},
		} {
			if strings.Contains(step.args, "exclude") {
				w.run("push", "-q", "origin", "main~3:refs/tags/v3")
			}
			c.run(strings.Fields(step.args)...)
			if got := count(c); got != step.want {
				t.Errorf("after %s: %s commits, want %s", step.args, got, step.want)
			}
			c.run("fsck", "--full")
		}
		// A push from a shallow clone.
		g.run("clone", "-q", "--depth=1", s.url("rw", "r"), "again")
		c = git{t, filepath.Join(g.dir, "again"), g.version}
		c.commit("from shallow", "x")
		c.run("push", "-q", "origin", "main")
		pushes := s.backend.repo.Pushes()
		if last := pushes[len(pushes)-1]; len(last.Shallow) != 1 {
			t.Errorf("a push from a shallow clone names %d boundary commits", len(last.Shallow))
		}
		// New work is fetched into a shallow clone.
		c.run("fetch", "-q", "origin")
	})
}

func TestGitPartialClone(t *testing.T) {
	everyVersion(t, func(t *testing.T, s *server, g git) {
		seed(s, g, 5)
		for _, filter := range []string{"blob:none", "blob:limit=1k", "tree:0", "combine:blob:none+tree:1", "object:type=commit"} {
			dir := strings.Map(func(r rune) rune {
				if r == ':' || r == '+' || r == '=' {
					return '-'
				}
				return r
			}, filter)
			g.run("clone", "-q", "--no-checkout", "--filter="+filter, s.url("ro", "r"), dir)
			c := git{t, filepath.Join(g.dir, dir), g.version}
			if missing := c.run("rev-list", "--objects", "--all", "--missing=print"); !strings.Contains(missing, "\n?") {
				t.Errorf("%s leaves nothing out", filter)
			}
			c.run("checkout", "-q", "main") // lazy fetches
			c.run("fsck")
		}
	})
}

func TestGitPush(t *testing.T) {
	everyVersion(t, func(t *testing.T, s *server, g git) {
		w := seed(s, g, 2)
		s.backend.repo.Deny = func(c wire.Command) string {
			if c.Ref == "refs/heads/no" {
				return "push denied by policy"
			}
			return ""
		}
		w.refuse("denied by policy", "push", "origin", "main:no", "main:yes")
		w.refuse("atomic push failure", "push", "--atomic", "origin", "main:no", "main:also")
		refs := w.run("ls-remote", "origin")
		if !strings.Contains(refs, "refs/heads/yes") || strings.Contains(refs, "refs/heads/no") || strings.Contains(refs, "refs/heads/also") {
			t.Errorf("refs %s", refs)
		}
		w.run("push", "-q", "-o", "ci.skip", "-o", "a=b c", "origin", "main:opts")
		pushes := s.backend.repo.Pushes()
		if last := pushes[len(pushes)-1]; strings.Join(last.Options, "|") != "ci.skip|a=b c" {
			t.Errorf("push options %q", last.Options)
		}
		w.refuse("does not support --signed", "push", "--signed", "origin", "main:signed")
		w.run("push", "-q", "origin", "main:main") // up to date
		w.run("push", "-q", "origin", ":opts", ":yes")

		id, err := object.ParseID(w.run("rev-parse", "main"))
		if err != nil {
			t.Fatal(err)
		}
		s.backend.repo.Haves = []object.ID{id}
		w.run("push", "-q", "origin", "main:with-haves")
	})
}

// TestGitLargePush: a push beyond http.postBuffer comes in chunks of unknown
// total length, after a probe.
func TestGitLargePush(t *testing.T) {
	everyVersion(t, func(t *testing.T, s *server, g git) {
		w := seed(s, g, 1)
		noise := make([]byte, 3<<20)
		if _, err := rand.Read(noise); err != nil {
			t.Fatal(err)
		}
		w.commit("noise", string(noise))
		w.run("push", "-q", "origin", "main")
		w.commit("more", string(noise[1:]))
		w.run("-c", "http.extraHeader=Expect: 100-continue", "push", "-q", "origin", "main")
		if n := s.count("git-receive-pack", "chunked=true"); n < 2 {
			t.Errorf("%d chunked pushes", n)
		}
		g.run("clone", "-q", s.url("ro", "r"), "back")
		if got, err := os.ReadFile(filepath.Join(g.dir, "back", "noise")); err != nil || !bytes.Equal(got, noise) {
			t.Errorf("%d bytes came back, %v", len(got), err)
		}
		s.backend.repo.Early = "over quota"
		w.commit("third", string(noise[2:]))
		w.refuse("over quota", "push", "origin", "main")
	})
}

// TestGitManyTags: with many refs git compresses what it wants.
func TestGitManyTags(t *testing.T) {
	everyVersion(t, func(t *testing.T, s *server, g git) {
		w := seed(s, g, 1)
		tip := w.run("rev-parse", "main")
		var mk strings.Builder
		for i := range 500 {
			fmt.Fprintf(&mk, "tag t%d\nfrom %s\ntagger A <a@example.com> 1700000000 +0000\ndata 1\n%d\n", i, tip, i%10)
		}
		fastImport(t, w.dir, mk.String())
		w.run("push", "-q", "--tags", "origin")
		g.run("clone", "-q", s.url("ro", "r"), "many")
		c := git{t, filepath.Join(g.dir, "many"), g.version}
		if got := len(strings.Fields(c.run("tag"))); got != 500 {
			t.Errorf("%d tags", got)
		}
		if s.count("git-upload-pack", "encoding=gzip") == 0 {
			t.Error("no request was compressed")
		}
		c.run("fsck", "--full")
	})
}

// TestGitNegotiation fetches into a clone with hundreds of commits of its own,
// so that client and server go through several rounds.
func TestGitNegotiation(t *testing.T) {
	everyVersion(t, func(t *testing.T, s *server, g git) {
		w := seed(s, g, 3)
		g.run("clone", "-q", s.url("ro", "r"), "busy")
		c := git{t, filepath.Join(g.dir, "busy"), g.version}
		var stream strings.Builder
		for i := range 400 {
			fmt.Fprintf(&stream, "commit refs/heads/own\ncommitter C <c@example.com> %d +0000\ndata 1\nx\n", 1700000001+i)
			if i == 0 {
				fmt.Fprintf(&stream, "from %s\n", c.run("rev-parse", "HEAD~1"))
			}
		}
		fastImport(t, c.dir, stream.String())
		w.commit("new", "new")
		w.run("push", "-q", "origin", "main")
		before := s.count("POST", "git-upload-pack")
		c.run("fetch", "-q", "origin")
		if rounds := s.count("POST", "git-upload-pack") - before; rounds < 3 {
			t.Errorf("%d rounds", rounds)
		}
		if c.run("rev-parse", "origin/main") != w.run("rev-parse", "main") {
			t.Error("the new commit did not arrive")
		}
		c.run("fsck", "--full")
	})
}

// TestGitHTTP2 runs the essentials over HTTP/2.
func TestGitHTTP2(t *testing.T) {
	s := start(t, wiretest.New(t))
	s.Close()
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Server.Close)
	g := git{t, t.TempDir(), 2}
	remote := strings.Replace(s.URL, "https://", "https://t:rw@", 1) + "/r.git"
	g.run("-c", "http.sslVerify=false", "clone", "-q", remote, "work")
	w := git{t, filepath.Join(g.dir, "work"), 2}
	w.run("config", "http.sslVerify", "false")
	noise := make([]byte, 2<<20)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	w.commit("noise", string(noise))
	w.run("push", "-q", "origin", "HEAD:main")
	g.run("-c", "http.sslVerify=false", "clone", "-q", remote, "back")
	git{t, filepath.Join(g.dir, "back"), 2}.run("fsck", "--full")
	s.backend.repo.Early = "over quota"
	w.commit("more", string(noise[1:]))
	w.refuse("over quota", "push", "origin", "HEAD:main")
	if s.count("HTTP/2 POST", "git-receive-pack", "chunked=true") == 0 {
		t.Error("no push came over HTTP/2")
	}
}

// TestGitKinds checks that the kinds of remote reach the backend, and that a
// read of +import is refused in words.
func TestGitKinds(t *testing.T) {
	everyVersion(t, func(t *testing.T, s *server, g git) {
		w := seed(s, g, 1)
		for suffix, want := range map[string]githttp.Kind{"": githttp.Normal, "+ephemeral": githttp.Ephemeral, "+import": githttp.Import} {
			s.backend.mu.Lock()
			s.backend.kinds = nil
			s.backend.mu.Unlock()
			w.run("push", "-q", s.url("rw", "r"+suffix), "main:to"+want.String())
			s.backend.mu.Lock()
			kinds := s.backend.kinds
			s.backend.mu.Unlock()
			if len(kinds) < 2 || slices.ContainsFunc(kinds, func(k githttp.Kind) bool { return k != want }) {
				t.Errorf("a push to r%s reached the backend as %v", suffix, kinds)
			}
		}
		g.refuse("write-only", "ls-remote", s.url("rw", "r+import"))
		g.refuse("repository not found", "ls-remote", s.url("rw", "none"))
		g.refuse("could not read Username", "ls-remote", s.URL+"/r.git")
		g.refuse("Authentication failed", "ls-remote", s.url("garbage", "r"))
	})
}

// impatientProxy stands between client and server and drops a connection when
// the server is silent for two seconds.
func impatientProxy(t *testing.T, s *server) *httptest.Server {
	t.Helper()
	target, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return impatientConn{c}, err
		},
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	return front
}

type impatientConn struct{ net.Conn }

func (c impatientConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// TestGitSlowServer: keepalives hold a proxy that gives up on silence, and
// without them it does give up.
func TestGitSlowServer(t *testing.T) {
	for _, row := range []struct {
		version   int
		keepalive time.Duration
	}{{0, 50 * time.Millisecond}, {2, 50 * time.Millisecond}, {2, time.Hour}} {
		t.Run(fmt.Sprintf("v%d every %s", row.version, row.keepalive), func(t *testing.T) {
			t.Parallel() // it mostly waits
			repo := wiretest.New(t)
			s := start(t, repo, func(h *githttp.Handler) { h.Wire.Keepalive = row.keepalive })
			g := git{t, t.TempDir(), row.version}
			w := seed(s, g, 1)
			repo.Hold = func(ctx context.Context) {
				select {
				case <-time.After(3 * time.Second):
				case <-ctx.Done():
				}
			}
			remote := strings.Replace(impatientProxy(t, s).URL, "http://", "http://t:rw@", 1) + "/r.git"
			w.commit("x", "x")
			if row.keepalive == time.Hour {
				g.refuse("RPC failed", "clone", remote, "slow")
				w.refuse("RPC failed", "push", remote, "main")
				return
			}
			g.run("clone", "-q", remote, "slow")
			w.run("push", "-q", remote, "main")
		})
	}
}

// fastImport feeds git fast-import.
func fastImport(t *testing.T, dir, stream string) {
	t.Helper()
	cmd := exec.Command("git", "fast-import", "--quiet")
	cmd.Dir, cmd.Env, cmd.Stdin = dir, wiretest.Env(dir), strings.NewReader(stream)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git fast-import: %v\n%s", err, out)
	}
}
