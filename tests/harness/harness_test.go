package harness_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// TestHistoriesAreDeterministic also proves that the generator makes what it
// promises and that git finds nothing wrong with it.
func TestHistoriesAreDeterministic(t *testing.T) {
	a := harness.Generate(t, t.TempDir(), "a.git", 7, 60)
	b := harness.Generate(t, t.TempDir(), "b.git", 7, 60)
	c := harness.Generate(t, t.TempDir(), "c.git", 8, 60)
	if !slices.Equal(a.Git.Refs(), b.Git.Refs()) {
		t.Error("the same seed made different refs")
	}
	if slices.Equal(a.Git.Refs(), c.Git.Refs()) {
		t.Error("different seeds made the same refs")
	}
	a.Git.Fsck()
	parents := a.Git.Run("rev-list", "--all", "--parents")
	octopus := false
	for line := range strings.Lines(parents) {
		octopus = octopus || len(strings.Fields(line)) > 3
	}
	if !octopus {
		t.Error("the history has no octopus merge")
	}
	if kind := a.Git.Run("for-each-ref", "--format=%(*objecttype)", "refs/tags/last-again"); kind != "tag" {
		t.Errorf("refs/tags/last-again is a tag of a %q", kind)
	}
}

// TestBackendServes clones from git http-backend and pushes to it.
func TestBackendServes(t *testing.T) {
	root := t.TempDir()
	h := harness.Generate(t, root, "h.git", 3, 30)
	backend := harness.ServeBackend(t, root)
	g := harness.NewGit(t)
	g.Run("clone", "-q", "--mirror", backend.URL+"/h.git", "copy.git")
	if got, want := g.In("copy.git").Refs(), h.Git.Refs(); !slices.Equal(got, want) {
		t.Errorf("cloned refs %q, want %q", got, want)
	}
	g.Run("clone", "-q", "--filter=blob:none", "--no-checkout", backend.URL+"/h.git", "work")
	g.In("work").Run("push", "-q", "origin", "HEAD:refs/heads/pushed")
	if h.Git.Run("rev-parse", "refs/heads/pushed") != h.Git.Run("rev-parse", "refs/heads/main") {
		t.Error("the pushed branch is not there")
	}
}
