package repo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
)

// Files .gitmodules that Git takes and refuses.
const (
	goodModules = "[submodule \"lib\"]\n\tpath = lib\n\turl = https://example.com/lib.git\n"
	badURL      = "[submodule \"lib\"]\n\tpath = lib\n\turl = --upload-pack=touch /tmp/x\n"
	badName     = "[submodule \"../../hooks\"]\n\tpath = lib\n\turl = https://example.com/lib.git\n"
	badPath     = "[submodule \"lib\"]\n\tpath = -lib\n"
	badUpdate   = "[submodule \"lib\"]\n\tupdate = !touch /tmp/x\n"
)

// accepts reports whether git takes a push of a commit to an empty repository
// that checks what it receives.
func (g *gitDir) accepts(id object.ID) bool {
	g.t.Helper()
	to := newGitDir(g.t)
	to.run("config", "transfer.fsckObjects", "true")
	cmd := exec.Command("git", "push", "-q", to.dir, id.String()+":refs/heads/main")
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "unpack") {
		g.t.Fatalf("git push: %v\n%s", err, out)
	}
	return err == nil
}

// TestPushedGitmodules pushes the same commits here and to a git that checks
// them: both take them or neither.
func TestPushedGitmodules(t *testing.T) {
	w, accepting := newWorld(t, options{}), newWorld(t, options{})
	g := newGitDir(t)
	good, sub := g.put("blob", goodModules), g.commit("sub", g.tree(nil))
	entry := func(mode, name string, id object.ID) object.ID {
		return g.put("tree", mode+" "+name+"\x00"+rawID(id))
	}
	trees := map[string]object.ID{
		"none": g.tree(map[string]object.ID{"f": good}),
	}
	for _, text := range []string{goodModules, badURL, badName, badPath, badUpdate, "", "[", badURL + "[", "[" + badURL, "[submodule \"\"]\n\tx\n"} {
		blob := g.put("blob", text)
		for _, name := range []string{".gitmodules", ".GitModules", "gitmod~1", "GI7EBA~1", ".gitmodules. ", `x\.gitmodules`, ".gitmodule", "gitmodules", ".git\u200cmodules"} {
			trees[fmt.Sprintf("%q as %s", text, name)] = entry("100644", name, blob)
		}
		trees[fmt.Sprintf("%q in a directory", text)] = entry("40000", "d", entry("100755", ".gitmodules", blob))
	}
	trees["a link"] = entry("120000", ".gitmodules", good)
	trees["a directory"] = entry("40000", ".gitmodules", g.tree(map[string]object.ID{"f": good}))
	trees["a submodule"] = entry("160000", ".gitmodules", sub)
	trees["a submodule that is not there"] = entry("160000", ".gitmodules", object.Hash(object.Commit, nil))
	taken := map[bool]int{}
	r := w.create("repo")
	before := w.state(r.ID)
	for name, tree := range trees {
		id := g.commit(name, tree)
		want := g.accepts(id)
		taken[want]++
		to, at := w, r.ID
		if want {
			at = accepting.create(fmt.Sprintf("r%d", taken[true])).ID
			to = accepting
		}
		res := to.push(at, g.packRevs(id.String()), wire.Command{Ref: "refs/heads/main", New: id})
		if got := res.Unpack == ""; got != want {
			t.Errorf("%s: unpacked %q, and git takes it: %v", name, res.Unpack, want)
		}
		if !want && !strings.Contains(res.Unpack, "gitmodules") {
			t.Errorf("%s: unpacked %q", name, res.Unpack)
		}
		if want {
			to.fsck(at)
		}
	}
	if after := w.state(r.ID); after != before {
		t.Errorf("refused pushes left something:\n%s\nbefore:\n%s", after, before)
	}
	if taken[true] < 30 || taken[false] < 30 {
		t.Errorf("git took %v", taken)
	}
}

// TestGitmodulesOfBefore pushes trees that call .gitmodules what is there already.
func TestGitmodulesOfBefore(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	g := newGitDir(t)
	bad, good := g.put("blob", badURL), g.put("blob", goodModules)
	base := g.commit("base", g.tree(map[string]object.ID{"a": bad, "b": good}))
	wantStatus(t, w.push(r.ID, g.packRevs(base.String()), wire.Command{Ref: "refs/heads/main", New: base}), map[string]string{"refs/heads/main": ""})
	before := w.state(r.ID)
	evil := g.commit("evil", g.tree(map[string]object.ID{".gitmodules": bad, "a": bad, "b": good}), base)
	pack := g.packRevs(evil.String(), "^"+base.String())
	if res := w.push(r.ID, pack, wire.Command{Ref: "refs/heads/main", Old: base, New: evil}); !strings.Contains(res.Unpack, "gitmodulesUrl") || !strings.Contains(res.Unpack, bad.String()) {
		t.Errorf("unpacked %q", res.Unpack)
	}
	if after := w.state(r.ID); after != before {
		t.Errorf("a refused push left something:\n%s\nbefore:\n%s", after, before)
	}
	next := g.commit("next", g.tree(map[string]object.ID{".gitmodules": good, "a": bad, "b": good}), base)
	wantStatus(t, w.push(r.ID, g.packRevs(next.String(), "^"+base.String()), wire.Command{Ref: "refs/heads/main", Old: base, New: next}), map[string]string{"refs/heads/main": ""})
}

// TestGitmodulesOverREST makes .gitmodules files in each way that makes files.
func TestGitmodulesOverREST(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, options{})
	r := w.create("repo")
	w.commit(r.ID, "base", map[string]string{"bad": badURL, ".gitmodules": goodModules, "f": "1\n"})
	before := w.state(r.ID)
	refused := func(name string, err error, part string) {
		t.Helper()
		var bad *InvalidError
		if !errors.As(err, &bad) || !strings.Contains(bad.Reason, part) {
			t.Errorf("%s: %v, want it refused with %q", name, err, part)
		}
		if after := w.state(r.ID); after != before {
			t.Errorf("%s left something:\n%s\nbefore:\n%s", name, after, before)
		}
	}
	for text, part := range map[string]string{
		badURL: "gitmodulesUrl", badName: "gitmodulesName", badPath: "gitmodulesPath", badUpdate: "gitmodulesUpdate",
		strings.Repeat("# a long comment\n", object.MaxGitmodules/16): "gitmodulesLarge",
	} {
		for _, path := range []string{".gitmodules", "d/.GITMODULES", "gitmod~1"} {
			_, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "main"}, map[string]string{path: text})
			refused(path, err, part)
		}
	}
	_, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "main"}, map[string]string{".gitmodules/f": "x"})
	refused("a directory", err, "has to be a file")
	for _, mode := range []object.Mode{object.ModeSubmodule, object.ModeSymlink} {
		c := w.engine.NewContents(ctx, Writer{}, r)
		defer c.Close()
		edit := w.file(c, "d/.gitmodules", strings.Repeat("1", 40))
		edit.Mode = mode
		_, err := w.engine.Commit(ctx, w.writer, w.view(r.ID), CommitRequest{TargetBranch: "main", Message: "m", Author: someone, Committer: someone, Files: []FileEdit{edit}, Contents: c})
		refused(mode.String(), err, "has to be a file")
	}

	patch := func(text string) error {
		p := w.engine.NewPatch()
		defer p.Close()
		p.Write([]byte(text))
		_, err := w.engine.CommitPatch(ctx, w.writer, w.view(r.ID), CommitRequest{TargetBranch: "main", Message: "m", Author: someone, Committer: someone}, p)
		return err
	}
	edited := "--- a/.gitmodules\n+++ b/.gitmodules\n@@ -1,3 +1,3 @@\n [submodule \"lib\"]\n \tpath = lib\n-\turl = https://example.com/lib.git\n+\turl = %s\n"
	refused("a patch", patch(fmt.Sprintf(edited, "-x")), "gitmodulesUrl")
	refused("a rename", patch("diff --git a/bad b/d/.gitmodules\nsimilarity index 100%\nrename from bad\nrename to d/.gitmodules\n"), "gitmodulesUrl")
	if err := patch(fmt.Sprintf(edited, "../lib.git")); err != nil {
		t.Errorf("a good patch: %v", err)
	}

	// A merge whose sides are good each: what both leave out is all before "-x".
	modules := func(first, last string) map[string]string {
		return map[string]string{".gitmodules": "[submodule \"lib\"]\n\turl = \\\n" + first + "\\\n\\\n\\\n\\\n" + last + "\\\n-x\n"}
	}
	w.commit(r.ID, "long", modules("a", "b"))
	w.branch(r.ID, "side", "main", modules("", "b"))
	w.commit(r.ID, "ours", modules("a", ""))
	before = w.state(r.ID)
	_, err = w.merge(r.ID, MergeRequest{Source: "side"})
	refused("a merge", err, "gitmodulesUrl")
	w.fsck(r.ID)
	w.export(r.ID)
}
