package githttp_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
		c.run("fsck", "--full")
	})
}

// TestGitKinds checks that the kinds of remote reach the backend, and that a
// read of +import is refused in words.
func TestGitKinds(t *testing.T) {
	everyVersion(t, func(t *testing.T, s *server, g git) {
		w := seed(s, g, 1)
		w.run("push", "-q", s.url("rw", "r+ephemeral"), "main:e")
		w.run("push", "-q", s.url("rw", "r+import"), "main:i")
		s.backend.mu.Lock()
		kinds := s.backend.kinds[len(s.backend.kinds)-2:]
		s.backend.mu.Unlock()
		if kinds[0] != githttp.Import && kinds[1] != githttp.Import {
			t.Errorf("kinds %v", kinds)
		}
		g.refuse("write-only", "ls-remote", s.url("rw", "r+import"))
		g.refuse("repository not found", "ls-remote", s.url("rw", "none"))
		g.refuse("could not read Username", "ls-remote", s.URL+"/r.git")
		g.refuse("Authentication failed", "ls-remote", s.url("garbage", "r"))
	})
}

// TestGitSlowServer: keepalives hold a client that would give up on silence.
func TestGitSlowServer(t *testing.T) {
	everyVersion(t, func(t *testing.T, _ *server, g git) {
		repo := wiretest.New(t)
		s := start(t, repo, func(h *githttp.Handler) { h.Wire.Keepalive = 10 * time.Millisecond })
		w := seed(s, g, 1)
		repo.Hold = func(ctx context.Context) {
			select {
			case <-time.After(1500 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		// curl gives up when less than this arrives for a second.
		impatient := []string{"-c", "http.lowSpeedLimit=100", "-c", "http.lowSpeedTime=1"}
		g.run(append(impatient, "clone", "-q", s.url("ro", "r"), "slow")...)
		w.commit("x", "x")
		w.run(append(impatient, "push", "-q", "origin", "main")...)
	})
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
