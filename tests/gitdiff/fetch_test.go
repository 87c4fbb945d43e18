package gitdiff_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/testkit"
	"github.com/cairnstate/cairn/tests/harness"
)

// transfer is a sequence of git commands; URL stands for the server's, and MIDDLE
// for a commit in the middle of the history, SINCE for its date. They run in the
// directory work once it is there.
type transfer struct {
	name     string
	commands []string
	atLeast  bool // git leaves out more or less, by the order in which it meets objects
}

var transfers = []transfer{
	{"full", []string{"clone -q URL work"}, false},
	{"mirror", []string{"clone -q --mirror URL work"}, false},
	{"depth 1", []string{"clone -q --depth 1 URL work"}, false},
	{"depth n", []string{"clone -q --depth 4 --no-single-branch URL work"}, false},
	{"deepen", []string{"clone -q --depth 2 --no-single-branch URL work", "fetch -q --deepen 3", "fetch -q --deepen 2"}, false},
	{"unshallow", []string{"clone -q --depth 3 --no-single-branch URL work", "fetch -q --unshallow"}, false},
	{"make shallow", []string{"clone -q URL work", "fetch -q --depth 2"}, false},
	{"shallow since", []string{"clone -q --shallow-since=SINCE --no-single-branch URL work"}, false},
	{"shallow exclude", []string{"clone -q --shallow-exclude=light URL work"}, false},
	{"shallow exclude a tag", []string{"clone -q --depth 1 URL work", "fetch -q --shallow-exclude=refs/tags/light"}, false},
	{"by commit", []string{"init -q work", "fetch -q URL MIDDLE:refs/heads/middle", "fetch -q URL refs/heads/*:refs/remotes/origin/*"}, false},
	{"by commit, shallow", []string{"clone -q --depth 1 --no-checkout URL work", "fetch -q --depth 1 origin MIDDLE", "fetch -q origin MIDDLE"}, false},
	{"no tags", []string{"clone -q --no-tags --single-branch URL work", "fetch -q --tags"}, false},
	{"blob:none", []string{"clone -q --no-checkout --filter=blob:none URL work"}, false},
	{"blob:limit", []string{"clone -q --no-checkout --filter=blob:limit=200 URL work"}, false},
	{"blob:limit=0", []string{"clone -q --no-checkout --filter=blob:limit=0 URL work"}, false},
	{"tree:0", []string{"clone -q --no-checkout --filter=tree:0 URL work"}, false},
	{"tree:2", []string{"clone -q --no-checkout --filter=tree:2 URL work"}, false},
	{"object:type=commit", []string{"clone -q --no-checkout --filter=object:type=commit URL work"}, false},
	{"object:type=tree", []string{"clone -q --no-checkout --filter=object:type=tree URL work"}, false},
	{"object:type=blob", []string{"clone -q --no-checkout --filter=object:type=blob URL work"}, false},
	{"object:type=tag", []string{"clone -q --no-checkout --filter=object:type=tag URL work"}, false},
	{"combined filters", []string{"clone -q --no-checkout --filter=blob:limit=200 --filter=tree:3 URL work"}, true},
	{"shallow and filtered", []string{"clone -q --no-checkout --depth 2 --filter=blob:none URL work", "fetch -q --deepen 2", "checkout -q main"}, false},
	{"lazy blobs", []string{"clone -q --filter=blob:none URL work", "log -p -n 6 --all", "fetch -q"}, false},
	{"lazy trees", []string{"clone -q --no-checkout --filter=tree:0 URL work", "checkout -q main", "log --stat -n 3 main"}, false},
}

// run runs a transfer against one server and returns where the client ended.
func (tr transfer) run(g harness.Git, url string, middle, since string) (harness.Git, error) {
	replace := strings.NewReplacer("URL", url, "MIDDLE", middle, "SINCE", since)
	for _, command := range tr.commands {
		args := strings.Fields(command)
		for i := range args {
			args[i] = replace.Replace(args[i])
		}
		at := g
		if args[0] != "clone" && args[0] != "init" {
			at = g.In("work")
		}
		if out, err := at.Try(args...); err != nil {
			return g.In("work"), fmt.Errorf("git %s: %w: %s", args[0], err, out)
		}
	}
	return g.In("work"), nil
}

// compare runs every transfer in a version of the protocol.
func compare(t *testing.T, p pair, protocol int, middle, since string) {
	for _, tr := range transfers {
		t.Run(fmt.Sprintf("v%d %s", protocol, tr.name), func(t *testing.T) {
			t.Parallel()
			ours, err := tr.run(harness.NewGit(t).Protocol(protocol), p.cairn, middle, since)
			theirs, peerErr := tr.run(harness.NewGit(t).Protocol(protocol), p.peer, middle, since)
			got, want := read(ours, err), read(theirs, peerErr)
			if tr.atLeast {
				if lost := missing(want.objects, got.objects); len(lost) > 0 {
					t.Errorf("only from git http-backend: %q", lost)
				}
				got.objects = want.objects
			}
			same(t, got, want)
			if t.Failed() {
				t.Logf("from Cairn: %v; from git http-backend: %v", err, peerErr)
			}
			if err == nil {
				ours.Fsck()
			}
		})
	}
}

func TestGeneratedHistories(t *testing.T) {
	s := serve(t)
	seeds, size := uint64(2), 60
	if testkit.Soaking() {
		seeds, size = 30, 400
	}
	for seed := range seeds {
		p, h := s.generated(t, 100+seed, size)
		middle := h.Git.Run("rev-parse", "refs/tags/light")
		since := h.Git.Run("log", "-1", "--format=%ct", middle)
		for protocol := range 3 {
			if seed > 0 && !testkit.Soaking() && protocol != 2 {
				continue // the first history went through all versions
			}
			compare(t, p, protocol, middle, since)
		}
	}
}

func TestOwnHistory(t *testing.T) {
	s := serve(t)
	p, repo := s.own(t)
	middle := repo.Run("rev-list", "--max-count=1", "--skip=5", "main")
	if middle == "" {
		middle = repo.Run("rev-parse", "main")
	}
	repo.Run("tag", "-f", "light", middle)
	repo.Run("push", "-q", "--force", p.cairn, "refs/tags/light")
	compare(t, p, 2, middle, repo.Run("log", "-1", "--format=%ct", middle))
}

// TestFork compares a fork with a copy of its parent's branches and tags.
func TestFork(t *testing.T) {
	s := serve(t)
	p, h := s.generated(t, 200, 50)
	tip := h.Git.Run("rev-parse", "main")
	// What the parent has beside branches and tags is not the fork's.
	h.Git.Run("push", "-q", s.cairn.Remote(harness.Grant{Repo: "generated-200"}, "+ephemeral"), tip+":refs/heads/session")
	if err := s.cairn.Fork("fork", "generated-200"); err != nil {
		t.Fatal(err)
	}
	p.cairn = s.cairn.Remote(harness.Grant{Repo: "fork"}, "")
	middle := h.Git.Run("rev-parse", "refs/tags/light")
	compare(t, p, 2, middle, h.Git.Run("log", "-1", "--format=%ct", middle))
	if refs := h.Git.Run("ls-remote", s.cairn.Remote(harness.Grant{Repo: "fork"}, "+ephemeral")); refs != "" {
		t.Errorf("the fork has ephemeral refs:\n%s", refs)
	}
}
