package repo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/internal/events"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
)

func TestCommitTargets(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	files := func(text string) map[string]string { return map[string]string{"f": text} }
	zero := object.Zero
	other := object.ID{1}

	_, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "main", Expected: &other}, files("1"))
	if stale, ok := errors.AsType[*StaleError](err); !ok || !stale.Current.IsZero() {
		t.Errorf("expected sha in an empty repository: %v", err)
	}
	first, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "main", Expected: &zero}, files("1"))
	if err != nil || !first.Old.IsZero() || first.Blobs != 1 || first.PackBytes == 0 {
		t.Fatalf("root commit: %+v %v", first, err)
	}
	if _, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "main", Expected: &zero}, files("2")); !isStaleAt(err, first.Commit) {
		t.Errorf("must not exist: %v", err)
	}
	second, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "main", BaseBranch: "nowhere", Expected: &first.Commit}, files("2"))
	if err != nil || second.Old != first.Commit {
		t.Fatalf("second commit: %+v %v", second, err)
	}
	if _, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "main", Expected: &first.Commit}, files("3")); !isStaleAt(err, second.Commit) {
		t.Errorf("stale: %v", err)
	}
	for _, req := range []CommitRequest{
		{TargetBranch: "new"},
		{TargetBranch: "new", TargetEphemeral: true},
		{TargetBranch: "new", BaseBranch: "nowhere"},
		{TargetBranch: "new", BaseBranch: "main", BaseEphemeral: true},
	} {
		_, err := w.tryCommit(r.ID, req, files("x"))
		if _, ok := errors.AsType[*NotFoundError](err); !ok {
			t.Errorf("%+v: %v, want not found", req, err)
		}
	}
	if _, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "new", BaseBranch: "main", Expected: &first.Commit}, files("x")); !isStaleAt(err, second.Commit) {
		t.Errorf("base at another commit: %v", err)
	}
	res, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "new", TargetEphemeral: true, BaseBranch: "main", Expected: &second.Commit}, files("x"))
	if err != nil || !res.Old.IsZero() {
		t.Fatalf("new ephemeral branch: %+v %v", res, err)
	}
	if got := w.ref(r.ID, "refs/namespaces/ephemeral/refs/heads/new"); got != res.Commit {
		t.Errorf("the ephemeral branch is at %s", got)
	}
	if _, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "main"}, files("2")); !isNoChange(err) {
		t.Errorf("the same bytes: %v", err)
	}
	if _, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "main/sub", BaseBranch: "main"}, files("y")); err == nil {
		t.Error("a branch below a branch was made")
	} else if p, ok := errors.AsType[*RefPathError](err); !ok || p.Other != "refs/heads/main" {
		t.Errorf("a branch below a branch: %v", err)
	}
	for _, name := range []string{"", "-x", "refs/heads/x", "a..b", "a b", "x.lock"} {
		_, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: name, BaseBranch: "main"}, files("y"))
		if _, ok := errors.AsType[*InvalidError](err); !ok {
			t.Errorf("branch %q: %v, want invalid", name, err)
		}
	}
	w.fsck(r.ID)
	w.export(r.ID)
}

func isStaleAt(err error, at object.ID) bool {
	e, ok := errors.AsType[*StaleError](err)
	return ok && e.Current == at
}

func isNoChange(err error) bool {
	_, ok := errors.AsType[*NoChangesError](err)
	return ok
}

func TestCommitModesAndPaths(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	edit := func(files ...FileEdit) error {
		_, err := w.engine.Commit(context.Background(), w.writer, w.view(r.ID), CommitRequest{TargetBranch: "main", Message: "m", Author: someone, Committer: someone, Files: files})
		return err
	}
	c := w.engine.NewContents(context.Background(), Writer{}, meta.Repo{})
	defer c.Close()
	with := func(path, text string, mode object.Mode) FileEdit {
		f := w.file(c, path, text)
		f.Mode = mode
		return f
	}
	sub := strings.Repeat("1", 40)
	if err := edit(with("run", "1", object.ModeExecutable), with("link", ".git/config", object.ModeSymlink), with("sub", sub+"\n", object.ModeSubmodule), with("dir/a", "a", 0), with("dir/b", "b", 0)); err != nil {
		t.Fatal(err)
	}
	// Modes stay when none is given; a path through a link replaces the link.
	if err := edit(with("run", "2", 0), with("dir", "now a file", 0), with("link/x", "x", 0)); err != nil {
		t.Fatal(err)
	}
	g := w.export(r.ID)
	listed := g.run("ls-tree", "-r", "--format=%(objectmode) %(path)", "main")
	if want := "100644 dir\n100644 link/x\n100755 run\n160000 sub"; listed != want {
		t.Errorf("tree:\n%s\nwant:\n%s", listed, want)
	}
	if first := g.run("ls-tree", "-r", "--format=%(objectmode) %(path)", "main^"); first != "100644 dir/a\n100644 dir/b\n120000 link\n100755 run\n160000 sub" {
		t.Errorf("first tree:\n%s", first)
	}
	for _, bad := range []FileEdit{
		with("a/../b", "", 0), with("/a", "", 0), with("", "", 0), with("a//b", "", 0), with(".git/config", "", 0), with("x/.GIT/y", "", 0),
		with("git~1", "", 0), with("a\x00b", "", 0), with("a\\b", "", 0), {Path: "../x", Delete: true},
		with("l", "", object.ModeSymlink), with("a/.gitmodules", "x", object.ModeSymlink), with("l", "a\x00b", object.ModeSymlink), with("s", "short", object.ModeSubmodule),
		with("s", strings.Repeat("0", 40), object.ModeSubmodule), with("m", "", 0o100600), with("m", "", object.ModeDir),
	} {
		if _, ok := errors.AsType[*InvalidError](edit(bad)); !ok {
			t.Errorf("path %q mode %s was not refused as invalid", bad.Path, bad.Mode)
		}
	}
	if err := edit(FileEdit{Path: "absent", Delete: true}, FileEdit{Path: "dir/below/a/file", Delete: true}); !isNoChange(err) {
		t.Errorf("deletes of absent paths: %v", err)
	}
	all := []string{"dir", "link", "run", "sub"}
	var gone []FileEdit
	for _, p := range all {
		gone = append(gone, FileEdit{Path: p, Delete: true})
	}
	if err := edit(gone...); err != nil {
		t.Fatalf("delete everything: %v", err)
	}
	w.fsck(r.ID)
	if tree := w.export(r.ID).id("main^{tree}").String(); tree != "4b825dc642cb6eb9a060e54bf8d69288fbee4904" {
		t.Errorf("the tree without files is %s", tree)
	}
}

// TestEditsLikeGit makes random edits and compares the trees with those of
// git's index.
func TestEditsLikeGit(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	g := newGitDir(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	names := []string{"a", "a.b", "a-b", "a0", "b", "c", "dir", "dir.x"}
	path := func() string {
		parts := []string{names[rnd.IntN(len(names))]}
		for rnd.IntN(3) > 0 && len(parts) < 4 {
			parts = append(parts, names[rnd.IntN(len(names))])
		}
		return strings.Join(parts, "/")
	}
	have := map[string]bool{} // what git's index has
	for step := range 40 {
		c := w.engine.NewContents(context.Background(), Writer{}, meta.Repo{})
		var files []FileEdit
		for range 1 + rnd.IntN(8) {
			p := path()
			if rnd.IntN(4) == 0 {
				files = append(files, FileEdit{Path: p, Delete: true})
				for h := range have {
					if h == p || strings.HasPrefix(h, p+"/") {
						g.in([]byte("0 "+object.Zero.String()+"\t"+h+"\n"), "update-index", "--index-info")
						delete(have, h)
					}
				}
				continue
			}
			text := fmt.Sprintf("%d %s", rnd.IntN(5), p)
			f := w.file(c, p, text)
			f.Mode = []object.Mode{object.ModeRegular, object.ModeExecutable, object.ModeSymlink}[rnd.IntN(3)]
			files = append(files, f)
			for h := range have {
				if strings.HasPrefix(h, p+"/") || strings.HasPrefix(p, h+"/") {
					delete(have, h)
				}
			}
			have[p] = true
			g.run("update-index", "--add", "--replace", "--cacheinfo", fmt.Sprintf("%s,%s,%s", f.Mode, g.put("blob", text), p))
		}
		res, err := w.engine.Commit(context.Background(), w.writer, w.view(r.ID), CommitRequest{TargetBranch: "main", Message: fmt.Sprint(step), Author: someone, Committer: someone, Files: files})
		c.Close()
		want := g.run("write-tree")
		if isNoChange(err) {
			if w.ref(r.ID, "refs/heads/main").IsZero() {
				continue
			}
			if last := g.run("rev-parse", "--verify", "-q", "refs/expected"); last != want {
				t.Fatalf("step %d: no changes, but git has another tree", step)
			}
			continue
		}
		if err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if res.Tree.String() != want {
			t.Fatalf("step %d: tree %s, git has %s", step, res.Tree, want)
		}
		g.run("update-ref", "refs/expected", want)
	}
	w.fsck(r.ID)
}

func TestCommitRemembersAndEvents(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	req := CommitRequest{TargetBranch: "main", Record: func(res CommitResult) *meta.Idempotency {
		return &meta.Idempotency{Key: "k", Status: 201, Body: []byte(res.Commit.String())}
	}}
	first, err := w.tryCommit(r.ID, req, map[string]string{"f": "1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.tryCommit(r.ID, req, map[string]string{"f": "2"})
	if replay, ok := errors.AsType[*ReplayError](err); !ok || string(replay.Recorded.Body) != first.Commit.String() {
		t.Errorf("second use of the key: %v", err)
	}
	if got := w.ref(r.ID, "refs/heads/main"); got != first.Commit {
		t.Errorf("main moved to %s", got)
	}
	rows, err := w.meta.Events(context.Background(), w.org, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	var e events.Push
	if len(rows) != 1 || rows[0].Type != "push" || json.Unmarshal(rows[0].Body, &e) != nil {
		t.Fatalf("events: %+v", rows)
	}
	e.PushedAt = ""
	want := events.Push{Repository: events.Repository{ID: PublicID(r.ID), URL: "repo", RepoName: "repo"}, Ref: "refs/heads/main", Before: object.Zero.String(), After: first.Commit.String(), CustomerID: "acme", Org: "acme"}
	if e != want {
		t.Errorf("event %+v, want %+v", e, want)
	}
}

func TestCommitFloors(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	first := w.commit(r.ID, "one", map[string]string{"f": "1"})
	v, err := w.meta.Apply(context.Background(), meta.Change{Org: w.org, RaiseFloors: []meta.Floor{{Kind: meta.FloorRef, Repo: r.ID, Target: "refs/heads/main", NotBefore: 100}}})
	if err != nil || !v.Applied {
		t.Fatal(v, err)
	}
	w.writer.Token = &meta.TokenStamp{IssuedAt: 100}
	_, err = w.tryCommit(r.ID, CommitRequest{TargetBranch: "main"}, map[string]string{"f": "2"})
	if _, ok := errors.AsType[*SupersededError](err); !ok {
		t.Errorf("a token at the floor: %v", err)
	}
	w.writer.Token = &meta.TokenStamp{IssuedAt: 101}
	second := w.commit(r.ID, "two", map[string]string{"f": "2"})
	if second == first {
		t.Error("nothing was committed")
	}
}

func TestOneOfManyWins(t *testing.T) {
	onEngines(t, func(t *testing.T, o options) {
		w := newWorld(t, o)
		r := w.create("repo")
		base := w.commit(r.ID, "base", map[string]string{"f": "0"})
		var mu sync.Mutex
		var won []object.ID
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				res, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "main", Expected: &base}, map[string]string{"f": fmt.Sprint("writer ", i)})
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					won = append(won, res.Commit)
				} else if _, ok := errors.AsType[*StaleError](err); !ok {
					t.Errorf("writer %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 || w.ref(r.ID, "refs/heads/main") != won[0] {
			t.Errorf("%d of 64 writers won, main is at %s", len(won), w.ref(r.ID, "refs/heads/main"))
		}
		w.fsck(r.ID)
	})
}

func TestManyWritersOfOneBranch(t *testing.T) {
	onEngines(t, func(t *testing.T, o options) {
		w := newWorld(t, o)
		r := w.create("repo")
		w.commit(r.ID, "base", map[string]string{"f": "0"})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for n := range 8 {
					if _, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "main"}, map[string]string{fmt.Sprint("f", i): fmt.Sprint(n)}); err != nil {
						t.Errorf("writer %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
		if got := w.export(r.ID).run("rev-list", "--count", "main"); got != "65" {
			t.Errorf("main has %s commits, want 65", got)
		}
		w.fsck(r.ID)
	})
}

func TestManyBranches(t *testing.T) {
	onEngines(t, func(t *testing.T, o options) {
		w := newWorld(t, o)
		r := w.create("repo")
		w.commit(r.ID, "base", map[string]string{"f": "0"})
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				for n := range 3 {
					req := CommitRequest{TargetBranch: fmt.Sprint("b", i), BaseBranch: "main"}
					if _, err := w.tryCommit(r.ID, req, map[string]string{"f": fmt.Sprint(i, n)}); err != nil {
						t.Errorf("branch %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
		for i := range 100 {
			if w.ref(r.ID, fmt.Sprint("refs/heads/b", i)).IsZero() {
				t.Errorf("branch %d is missing", i)
			}
		}
		w.fsck(r.ID)
	})
}

func TestLargeContentsInterleave(t *testing.T) {
	w := newWorld(t, options{})
	r := w.create("repo")
	c := w.engine.NewContents(context.Background(), Writer{}, meta.Repo{})
	defer c.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	sizes := []int{0, 1, 300, 4096, 1 << 20, 3 << 20, 700_000}
	want := make([][]byte, len(sizes))
	contents := make([]*Content, len(sizes))
	for i, n := range sizes {
		contents[i] = c.New()
		want[i] = make([]byte, n)
		for k := range want[i] {
			want[i][k] = byte(rnd.Uint32())
		}
	}
	left := slices.Clone(want)
	for open := true; open; {
		open = false
		for i := range left {
			n := min(len(left[i]), 1+rnd.IntN(100_000))
			if _, err := contents[i].Write(left[i][:n]); err != nil {
				t.Fatal(err)
			}
			left[i] = left[i][n:]
			open = open || len(left[i]) > 0
		}
	}
	var files []FileEdit
	for i := range contents {
		if err := contents[i].Close(); err != nil {
			t.Fatal(err)
		}
		if id := object.Hash(object.Blob, want[i]); contents[i].ID() != id {
			t.Errorf("content %d has the id %s, want %s", i, contents[i].ID(), id)
		}
		files = append(files, FileEdit{Path: fmt.Sprint("f", i), Content: contents[i]})
	}
	if c.raw != 0 || c.packed > packedInMemory {
		t.Errorf("%d raw and %d packed bytes are in memory", c.raw, c.packed)
	}
	if _, err := contents[0].Write([]byte("x")); err == nil {
		t.Error("a closed content took more")
	}
	res, err := w.engine.Commit(context.Background(), w.writer, w.view(r.ID), CommitRequest{TargetBranch: "main", Message: "m", Author: someone, Committer: someone, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	db, err := w.view(r.ID).DB(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if p := db.Packs()[0].Info(); p.Inline || p.Bytes != res.PackBytes || !p.Exact {
		t.Errorf("pack %+v, want a large exact one of %d bytes", p, res.PackBytes)
	}
	w.fsck(r.ID)
	g := w.export(r.ID)
	for i := range want {
		if got := g.raw("", "cat-file", "blob", fmt.Sprintf("main:f%d", i)); got != string(want[i]) {
			t.Errorf("file %d differs", i)
		}
	}
	c.Close()
	entries, err := os.ReadDir(w.engine.cfg.Scratch)
	if err != nil || len(entries) > 0 {
		t.Errorf("scratch files are left: %v %v", entries, err)
	}
}

// TestDamageIsFound changes one byte of a stored pack.
func TestDamageIsFound(t *testing.T) {
	w := newWorld(t, options{inlineLimit: 64})
	r := w.create("repo")
	w.commit(r.ID, "one", map[string]string{"f": strings.Repeat("text ", 100)})
	db, err := w.view(r.ID).DB(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	key := db.Packs()[0].Info().Key
	found := func() (kinds []FindingKind) {
		w2 := New(w.engine.cfg)
		report := func(f Finding) { kinds = append(kinds, f.Kind) }
		row, err := w.meta.Repo(context.Background(), r.ID)
		if err != nil {
			t.Fatal(err)
		}
		w2.cfg.ODB = freshODB(w)
		if err := w2.Fsck(context.Background(), row, report); err != nil {
			t.Fatal(err)
		}
		if err := w2.FsckBlobs(context.Background(), report); err != nil {
			t.Fatal(err)
		}
		return kinds
	}
	if kinds := found(); len(kinds) > 0 {
		t.Fatalf("a sound repository: %v", kinds)
	}
	rewrite(t, w.blobs, key+".pack", func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	if kinds := found(); !slices.Contains(kinds, FindPack) || !slices.Contains(kinds, FindObject) {
		t.Errorf("a flipped bit: %v", kinds)
	}
	if err := w.blobs.Delete(context.Background(), blobKey(key+".pack")); err != nil {
		t.Fatal(err)
	}
	if kinds := found(); !slices.Contains(kinds, FindPack) || !slices.Contains(kinds, FindBlob) {
		t.Errorf("a missing blob: %v", kinds)
	}
	if err := w.blobs.Put(context.Background(), blobKey("packs/stray.pack"), strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	if kinds := found(); !slices.Contains(kinds, FindUnreferenced) {
		t.Errorf("a stray blob: %v", kinds)
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, writers := range []int{1, 8} {
		b.Run(fmt.Sprintf("writers %d", writers), func(b *testing.B) {
			w := newWorld(b, options{})
			r := w.create("repo")
			w.commit(r.ID, "base", map[string]string{"f": "0"})
			var next int
			var mu sync.Mutex
			var wg sync.WaitGroup
			b.ResetTimer()
			for i := range writers {
				wg.Go(func() {
					for {
						mu.Lock()
						n := next
						next++
						mu.Unlock()
						if n >= b.N {
							return
						}
						req := CommitRequest{TargetBranch: fmt.Sprint("b", i), BaseBranch: "main"}
						if _, err := w.tryCommit(r.ID, req, map[string]string{"f": fmt.Sprint(n), "dir/g": fmt.Sprint(n, "g"), "h": "h" + fmt.Sprint(n)}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}
