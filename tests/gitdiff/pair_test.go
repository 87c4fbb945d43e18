package gitdiff_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// pair is one repository on both servers.
type pair struct {
	cairn, peer string // URLs
}

// servers are a Cairn and a git http-backend.
type servers struct {
	cairn *harness.Server
	peer  *harness.Backend
	root  string // of the peer's repositories
}

func serve(t *testing.T) *servers {
	t.Helper()
	root := t.TempDir()
	return &servers{cairn: harness.Serve(t, harness.Options{Args: []string{"--log-level", "warn"}}), peer: harness.ServeBackend(t, root), root: root}
}

// offer pushes a bare repository of the peer to Cairn.
func (s *servers) offer(t *testing.T, name string, repo harness.Git) pair {
	t.Helper()
	if err := s.cairn.CreateRepo(name); err != nil {
		t.Fatal(err)
	}
	p := pair{s.cairn.Remote(harness.Grant{Repo: name}, ""), s.peer.URL + "/" + name + ".git"}
	repo.Run("push", "-q", p.cairn, "refs/heads/*:refs/heads/*", "refs/tags/*:refs/tags/*")
	return p
}

// generated offers a generated history.
func (s *servers) generated(t *testing.T, seed uint64, size int) (pair, harness.History) {
	t.Helper()
	name := fmt.Sprintf("generated-%d", seed)
	h := harness.Generate(t, s.root, name+".git", seed, size)
	return s.offer(t, name, h.Git), h
}

// own offers the history of this project. Where only a part of it was cloned, the
// oldest commits that are there become its first ones.
func (s *servers) own(t *testing.T) (pair, harness.Git) {
	t.Helper()
	project, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	g := harness.NewGit(t, "GIT_CONFIG_COUNT=5", "GIT_CONFIG_KEY_4=safe.directory", "GIT_CONFIG_VALUE_4=*")
	repo := g.In(filepath.Join(s.root, "own.git"))
	g.In(s.root).Run("init", "-q", "--bare", "own.git")
	repo.Input(g.In(project).Run("fast-export", "--signed-tags=strip", "HEAD")+"\n", "fast-import", "--quiet")
	tip := repo.Run("for-each-ref", "--format=%(objectname)", "--count=1")
	for _, ref := range repo.Refs() {
		repo.Run("update-ref", "-d", strings.Fields(ref)[1])
	}
	repo.Run("update-ref", "refs/heads/main", tip)
	repo.Run("tag", "light", tip+"~0")
	return s.offer(t, "own", repo), repo
}

// state is everything that a client has after it spoke to a server.
type state struct {
	failed  bool
	refs    []string
	shallow []string
	objects []string
}

func read(g harness.Git, err error) state {
	s := state{failed: err != nil}
	if _, err := os.Stat(g.Dir); err != nil {
		return s
	}
	s.refs = strings.Split(g.Run("for-each-ref", "--format=%(objectname) %(refname) %(symref)"), "\n")
	s.objects = g.Objects()
	if text, err := os.ReadFile(filepath.Join(g.Dir, g.Run("rev-parse", "--git-path", "shallow"))); err == nil {
		s.shallow = strings.Fields(string(text))
		slices.Sort(s.shallow)
	}
	return s
}

// missing lists what a has and b has not.
func missing(a, b []string) []string {
	var out []string
	for _, x := range a {
		if !slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	if len(out) > 5 {
		out = append(out[:5], fmt.Sprintf("and %d more", len(out)-5))
	}
	return out
}

// same reports every difference between what Cairn and the peer gave.
func same(t *testing.T, cairn, peer state) {
	t.Helper()
	if cairn.failed != peer.failed {
		t.Errorf("failed is %v from Cairn and %v from git http-backend", cairn.failed, peer.failed)
	}
	for _, part := range []struct {
		name        string
		cairn, peer []string
	}{{"refs", cairn.refs, peer.refs}, {"shallow commits", cairn.shallow, peer.shallow}, {"objects", cairn.objects, peer.objects}} {
		if !slices.Equal(part.cairn, part.peer) {
			t.Errorf("%s differ: %d from Cairn, %d from git http-backend; only from Cairn %q; only from the other %q", part.name,
				len(part.cairn), len(part.peer), missing(part.cairn, part.peer), missing(part.peer, part.cairn))
		}
	}
}
