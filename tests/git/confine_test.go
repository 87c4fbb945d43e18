package git_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/auth"
	"github.com/cairnstate/cairn/internal/policy"
	"github.com/cairnstate/cairn/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const session = "sessions/42"

// recipe is the guide's, word for word.
const recipe = `git clone --depth 1 --single-branch --no-checkout "$READ_URL" work
cd work
git fetch origin "$BASE_SHA"
git remote set-url --push origin "$WRITE_URL"
git switch -c "$SESSION_BRANCH" "$BASE_SHA"
`

// seeded makes a repository with a history worth not sending again, and returns
// the tip of its main branch.
func seeded(t *testing.T, s *harness.Server, name string) string {
	t.Helper()
	if err := s.CreateRepo(name); err != nil {
		t.Fatal(err)
	}
	h := harness.Generate(t, t.TempDir(), "seed.git", 11, 40)
	h.Git.Run("push", "-q", s.Remote(harness.Grant{Repo: name}, ""), "refs/heads/main:refs/heads/main", "refs/tags/*:refs/tags/*")
	return h.Git.Run("rev-parse", "main")
}

// variables runs `cairn url --confine` and returns what it prints.
func variables(t *testing.T, s *harness.Server, repo, branch, sha string, flags ...string) []string {
	t.Helper()
	out, err := s.Client(append([]string{"url", "--repo", repo, "--confine", branch, "--sha", sha}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(out), "\n")
}

func value(vars []string, name string) string {
	for _, v := range vars {
		if rest, ok := strings.CutPrefix(v, name+"="); ok {
			return rest
		}
	}
	return ""
}

// sandbox runs the recipe and returns git in the work tree.
func sandbox(t *testing.T, vars []string) harness.Git {
	t.Helper()
	g := harness.NewGit(t)
	if out, err := g.Shell(recipe, vars...); err != nil {
		t.Fatalf("the recipe failed: %v\n%s", err, out)
	}
	return g.In("work")
}

// refused runs a push that the server must refuse by policy.
func refused(t *testing.T, g harness.Git, args ...string) {
	t.Helper()
	out, err := g.Try(append([]string{"push"}, args...)...)
	if err == nil {
		t.Errorf("git push %s succeeded, want a refusal", strings.Join(args, " "))
	}
	if !strings.Contains(out, "denied by policy") {
		t.Errorf("git push %s printed %q, want \"denied by policy\"", strings.Join(args, " "), out)
	}
}

func TestConfinedSandbox(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	base := seeded(t, s, "my-project")
	vars := variables(t, s, "my-project", session, base)
	work := sandbox(t, vars)

	if got := work.Run("rev-parse", "HEAD"); got != base {
		t.Fatalf("the sandbox starts at %s, want %s", got, base)
	}
	if depth := work.Run("rev-list", "--count", "HEAD"); depth != "1" {
		t.Fatalf("the sandbox has %s commits, want a shallow clone", depth)
	}

	all := harness.NewGit(t)
	refs := func() string { return all.Run("ls-remote", s.Remote(harness.Grant{Repo: "my-project"}, "")) }
	ephemeral := func() string {
		return all.Run("ls-remote", s.Remote(harness.Grant{Repo: "my-project"}, "+ephemeral"))
	}
	before := refs()

	work.Save("notes.txt", "first\n")
	pushed := pushPack(t, work, "origin", session)
	// A commit, its root tree and a blob.
	if pushed.objects > 3 || pushed.bytes > 16<<10 {
		t.Errorf("the first push sent %d objects in %d bytes, want only the 3 that are new", pushed.objects, pushed.bytes)
	}
	second := work.Save("src/more.txt", "second\n")
	if pushed := pushPack(t, work, "origin", session); pushed.objects > 4 {
		t.Errorf("the second push sent %d objects, want only the 4 that are new", pushed.objects)
	}
	if want := second + "\trefs/heads/" + session; !strings.Contains(ephemeral(), want) {
		t.Errorf("the session branch is not at %s:\n%s", second, ephemeral())
	}

	work.Run("tag", "v9")
	refused(t, work, "origin", "main")
	refused(t, work, "origin", "HEAD:refs/heads/sessions/43")
	refused(t, work, "origin", "HEAD:refs/heads/sessions/42/below")
	refused(t, work, "origin", "v9")
	refused(t, work, "origin", ":"+session)
	refused(t, work, "origin", session, "main")
	work.Run("commit", "-q", "--amend", "-m", "Replace what was pushed")
	refused(t, work, "--force", "origin", session)
	refused(t, work, "origin", "+HEAD:refs/heads/"+session)
	if out, err := work.Try("push", "origin", session); err == nil {
		t.Errorf("a push that is no fast-forward succeeded: %s", out)
	}

	if after := refs(); after != before {
		t.Errorf("normal refs are now\n%s\nwant\n%s", after, before)
	}
	if want := second + "\trefs/heads/" + session; ephemeral() != want {
		t.Errorf("ephemeral refs are\n%s\nwant\n%s", ephemeral(), want)
	}

	// The URL for reading writes nowhere.
	for _, target := range []string{"main", session} {
		if out, err := work.Try("push", value(vars, "READ_URL"), "HEAD:refs/heads/"+target); err == nil || !strings.Contains(out, "403") {
			t.Errorf("a push with the read URL: %v, %q; want 403", err, out)
		}
	}
	if refs() != before {
		t.Error("the read URL changed refs")
	}
}

// sent is what a push put on the wire.
type sent struct{ objects, bytes int }

// pushPack pushes and measures the pack from git's own account of it.
func pushPack(t *testing.T, g harness.Git, args ...string) sent {
	t.Helper()
	out, err := g.Try(append([]string{"push", "--progress"}, args...)...)
	if err != nil {
		t.Fatalf("git push %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	// "Total 3 (delta 1), reused 0 (delta 0), pack-reused 0"
	_, rest, ok := strings.Cut(out, "Total ")
	if !ok {
		t.Fatalf("git push did not say what it sent:\n%s", out)
	}
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	bytes := 0
	if _, line, ok := strings.Cut(out, "Writing objects: 100%"); ok {
		if _, size, ok := strings.Cut(line, "), "); ok {
			fields := strings.Fields(size)
			amount, err := strconv.ParseFloat(fields[0], 64)
			if err != nil {
				t.Fatalf("size of the push in %q: %v", size, err)
			}
			unit := map[string]float64{"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20}[fields[1]]
			bytes = int(amount * unit)
		}
	}
	return sent{n, bytes}
}

func TestExpiredURLIsRefused(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	seeded(t, s, "my-project")
	g := harness.NewGit(t)
	expired := harness.Grant{Repo: "my-project", Scopes: []auth.Scope{auth.GitRead}, Issued: time.Now().Add(-time.Hour), TTL: time.Hour - time.Minute}
	for _, call := range [][]string{{"GET", "/my-project.git/info/refs?service=git-upload-pack"}, {"POST", "/my-project.git/git-upload-pack"}} {
		a, err := s.Do(nil, call[0], call[1], s.Token(expired), "application/x-git-upload-pack-request", nil)
		if err != nil {
			t.Fatal(err)
		}
		if a.Status != http.StatusUnauthorized || !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Basic") {
			t.Errorf("%s %s with an expired token: %d, challenge %q; want 401 and Basic", call[0], call[1], a.Status, a.Header.Get("WWW-Authenticate"))
		}
	}
	if out, err := g.Try("clone", s.Remote(expired, ""), "work"); err == nil || !strings.Contains(out, "Authentication failed") {
		t.Errorf("a clone with an expired URL: %v\n%s", err, out)
	}
}

// slow forwards TCP connections to address and, while held, passes at most a few
// KiB of each answer on.
type slow struct {
	net.Listener
	release chan struct{}
	passed  atomic.Int64
}

func newSlow(t *testing.T, address string, free int64) *slow {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &slow{Listener: l, release: make(chan struct{})}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				client.Close()
				return
			}
			go func() { io.Copy(server, client); server.Close() }()
			go func() { p.answer(client, server, free); client.Close(); server.Close() }()
		}
	}()
	return p
}

func (p *slow) answer(client io.Writer, server io.Reader, free int64) {
	buf := make([]byte, 32<<10)
	in := bufio.NewReader(server)
	for {
		n, err := in.Read(buf)
		if p.passed.Add(int64(n)) > free {
			<-p.release
		}
		if _, werr := client.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

// TestCloneUnderWayOutlivesItsToken holds a clone back until its token has
// expired, and lets it finish then.
func TestCloneUnderWayOutlivesItsToken(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	seeded(t, s, "my-project")
	random := make([]byte, 24<<20) // more than the buffers of the connections hold
	if f, err := os.Open("/dev/urandom"); err != nil {
		t.Fatal(err)
	} else if _, err := io.ReadFull(f, random); err != nil {
		t.Fatal(err)
	} else {
		f.Close()
	}
	author := harness.NewGit(t)
	author.Run("clone", "-q", s.Remote(harness.Grant{Repo: "my-project"}, ""), "work")
	author.In("work").Save("large.bin", string(random))
	author.In("work").Run("push", "-q", "origin", "main")

	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := newSlow(t, u.Host, 64<<10)
	short := harness.Grant{Repo: "my-project", Scopes: []auth.Scope{auth.GitRead}, TTL: 3 * time.Second}
	expires := time.Now().Add(short.TTL + time.Second)
	remote := strings.Replace(s.Remote(short, ""), u.Host, proxy.Addr().String(), 1)
	g := harness.NewGit(t)
	done := make(chan error, 1)
	var out string
	go func() {
		var err error
		out, err = g.Try("clone", "-q", remote, "work")
		done <- err
	}()
	for proxy.passed.Load() <= 64<<10 {
		select {
		case err := <-done:
			t.Fatalf("the clone ended before it was held: %v\n%s", err, out)
		case <-time.After(10 * time.Millisecond):
		}
	}
	time.Sleep(time.Until(expires))
	if out, err := g.Try("ls-remote", strings.Replace(remote, proxy.Addr().String(), u.Host, 1)); err == nil {
		t.Errorf("the token is still accepted for a new request:\n%s", out)
	}
	close(proxy.release)
	if err := <-done; err != nil {
		t.Fatalf("the clone under way did not finish: %v\n%s", err, out)
	}
	g.In("work").Fsck()
}

func TestRevokedURLIsRefusedAtOnce(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	base := seeded(t, s, "my-project")
	vars := variables(t, s, "my-project", session, base)
	work := sandbox(t, vars)
	work.Save("notes.txt", "first\n")
	work.Run("push", "-q", "origin", session)
	work.Save("notes.txt", "second\n")
	if _, err := s.Operate("token", "revoke", "--org", harness.Org, "--repo", "my-project"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"push", "origin", session}, {"fetch", "origin"}} {
		if out, err := work.Try(args...); err == nil || !strings.Contains(out, "Authentication failed") {
			t.Errorf("git %s after the revocation: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	a, err := s.Do(nil, http.MethodGet, harness.RepoPath("my-project"), s.Token(harness.Grant{Repo: "my-project", Issued: time.Now().Add(-time.Minute)}), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Status != http.StatusUnauthorized || a.Text("code") != "token_superseded" {
		t.Errorf("REST with a revoked token: %d %s, want 401 token_superseded", a.Status, a.Body)
	}
	// Another repository's tokens are as good as before.
	if err := s.CreateRepo("other"); err != nil {
		t.Fatal(err)
	}
	harness.NewGit(t).Run("ls-remote", s.Remote(harness.Grant{Repo: "other", Issued: time.Now().Add(-time.Minute)}, ""))
}

// TestProtectionIsStricterThanTheToken protects a branch by a rule of the
// repository, which an unrestricted token cannot pass.
func TestProtectionIsStricterThanTheToken(t *testing.T) {
	s := harness.Serve(t, harness.Options{})
	seeded(t, s, "my-project")
	if _, err := s.Client("repo", "protect", "my-project", "--rule", "refs/heads/main=no-force-push"); err != nil {
		t.Fatal(err)
	}
	g := harness.NewGit(t)
	g.Run("clone", "-q", s.Remote(harness.Grant{Repo: "my-project"}, ""), "work")
	work := g.In("work")
	work.Save("a.txt", "a\n")
	work.Run("push", "-q", "origin", "main")
	work.Run("commit", "-q", "--amend", "-m", "Rewrite")
	refused(t, work, "--force", "origin", "main")
	open := s.Remote(harness.Grant{Repo: "my-project", Policies: policy.List{{Pattern: "*"}}}, "")
	refused(t, work, "--force", open, "main")
	work.Run("push", "-q", "--force", open, "HEAD:refs/heads/elsewhere")
}
