package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
)

// collect collects a repository, which must succeed, and checks it.
func (w *world) collect(id meta.RepoID, o CollectOptions) CollectResult {
	w.t.Helper()
	res, err := w.engine.Collect(context.Background(), id, o)
	if err != nil {
		w.t.Fatalf("collect: %v", err)
	}
	w.fsck(id)
	return res
}

// classes counts a repository's packs by class.
func (w *world) classes(id meta.RepoID) map[meta.PackClass]int {
	w.t.Helper()
	out := map[meta.PackClass]int{}
	for _, p := range w.db(id).Packs() {
		out[p.Info().Class]++
	}
	return out
}

// answer returns the whole answer to a clone that wants the given objects.
func (w *world) answer(id meta.RepoID, wants ...object.ID) []byte {
	w.t.Helper()
	var b bytes.Buffer
	u := w.view(id).Uploader(Normal)
	if err := u.CheckWants(context.Background(), wants); err != nil {
		w.t.Fatal(err)
	}
	if err := u.Send(context.Background(), &b, &wire.Fetch{Wants: wants, OfsDelta: true}, wire.ShallowUpdate{}, nil); err != nil {
		w.t.Fatal(err)
	}
	return b.Bytes()
}

// clone has git take the answer to a clone and check it, and returns what git
// lists as reachable.
func (w *world) clone(id meta.RepoID, wants ...object.ID) string {
	w.t.Helper()
	g := newGitDir(w.t)
	g.in(w.answer(id, wants...), "index-pack", "--stdin", "--strict")
	for i, want := range wants {
		g.run("update-ref", fmt.Sprint("refs/want/", i), want.String())
	}
	g.run("fsck", "--full", "--strict")
	return g.run("rev-list", "--objects", "--no-object-names", "--all")
}

// TestRepack repacks a repository with branches, tags, other refs and objects
// that nothing reaches.
func TestRepack(t *testing.T) {
	onEngines(t, func(t *testing.T, o options) {
		o.garbage = time.Hour
		w := newWorld(t, o)
		r := w.create("repo")
		g := newGitDir(t)
		commits := g.history("main", 60)
		side := g.history("side", 20)
		lost := g.history("lost", 30)
		main, tip, gone := commits[59], side[19], lost[29]
		tag := g.put("tag", fmt.Sprintf("object %s\ntype commit\ntag v1\ntagger T <t@example.com> 1700000000 +0000\n\nm\n", commits[40]))
		push := func(ref string, old, new object.ID, revs ...string) {
			t.Helper()
			var data []byte
			if len(revs) > 0 {
				data = g.packRevs(revs...)
			}
			wantStatus(t, w.push(r.ID, data, wire.Command{Ref: ref, Old: old, New: new}), map[string]string{ref: ""})
		}
		push("refs/heads/main", object.Zero, commits[30], commits[30].String())
		push("refs/heads/main", commits[30], main, main.String(), "^"+commits[30].String())
		push("refs/tags/v1", object.Zero, tag, tag.String(), "^"+commits[40].String())
		push("refs/notes/n", object.Zero, tip, tip.String())
		push("refs/heads/lost", object.Zero, gone, gone.String())
		push("refs/heads/lost", gone, lost[5])
		push("refs/heads/lost", lost[5], object.Zero)
		before := w.state(r.ID)
		dry := w.collect(r.ID, CollectOptions{Full: true, DryRun: true})
		if w.state(r.ID) != before {
			t.Error("a dry run changed something")
		}
		if dry.Did != DidRepack || dry.GarbageObjects != 90 || dry.GarbageBytes < 1000 || dry.PacksBefore != 5 {
			t.Errorf("dry run: %+v", dry)
		}
		res := w.collect(r.ID, CollectOptions{Full: true})
		if res.Did != DidRepack || res.PacksAfter != 3 || !res.Tidy || res.GarbageObjects != dry.GarbageObjects || res.BytesAfter > res.BytesBefore {
			t.Errorf("repack: %+v", res)
		}
		if c := w.classes(r.ID); c[meta.PackCompact] != 2 || c[meta.PackGarbage] != 1 {
			t.Errorf("classes %v", c)
		}
		db := w.db(r.ID)
		if !db.Exact(0) || !db.Exact(1) || len(db.Pack(0).Info().Tips) != 2 {
			t.Errorf("packs are exact: %v, %v, with tips %v", db.Exact(0), db.Exact(1), db.Pack(0).Info().Tips)
		}
		if db.Has(gone) {
			t.Error("what is garbage is found")
		}
		w.export(r.ID)
		// A clone of branches and tags is the first pack, byte for byte.
		var stored bytes.Buffer
		if _, err := db.Pack(0).WriteTo(&stored); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(w.answer(r.ID, main, tag), stored.Bytes()) {
			t.Error("a clone is not a copy of the compacted pack")
		}
		for _, wants := range [][]object.ID{{main}, {tip}, {main, tip, tag}, {commits[10]}} {
			args := []string{"rev-list", "--objects", "--no-object-names"}
			for _, id := range wants {
				args = append(args, id.String())
			}
			if got, want := w.clone(r.ID, wants...), g.run(args...); len(got) != len(want) {
				t.Errorf("a clone of %v has %d bytes of ids, git lists %d", wants, len(got), len(want))
			}
		}
		// A push that needs it again brings it again.
		push("refs/heads/again", object.Zero, gone, gone.String())
		w.fsck(r.ID)
		w.clone(r.ID, gone)
		res = w.collect(r.ID, CollectOptions{Full: true})
		if !res.Tidy || res.Objects != dry.Objects+90 {
			t.Errorf("repack with what came again: %+v", res)
		}
		// When its grace is over garbage goes, and nothing else.
		w.engine.cfg.Clock = func() time.Time { return time.Now().Add(2 * time.Hour) }
		res = w.collect(r.ID, CollectOptions{})
		if res.Did != DidDrop || res.PacksAfter != 2 || !res.Tidy {
			t.Errorf("drop: %+v", res)
		}
		if res = w.collect(r.ID, CollectOptions{}); res.Did != DidNothing {
			t.Errorf("nothing is due: %+v", res)
		}
		w.export(r.ID)
	})
}

// untidied makes a repository with commits, of which some are lost, in packs
// that are blobs.
func untidied(w *world) (r meta.Repo, keep object.ID) {
	w.t.Helper()
	r = w.create("repo")
	for i := range 5 {
		keep = w.commit(r.ID, fmt.Sprint("commit ", i), map[string]string{"a": fmt.Sprint(i), fmt.Sprint("d/", i): "x"})
	}
	_, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "lost", BaseBranch: "main"}, map[string]string{"lost": "lost"})
	if err == nil {
		_, err = w.engine.DeleteBranch(context.Background(), w.writer, w.view(r.ID), "lost", false)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return r, keep
}

// TestCollectFaults fails each write of a collection in turn, before or after it
// took effect, or ends the collection there.
func TestCollectFaults(t *testing.T) {
	for _, mode := range []string{"early", "late", "cancelled"} {
		for n := 1; ; n++ {
			f, late := &faulty{left: -1}, mode == "late"
			w := newWorld(t, options{
				inlineLimit: 1, garbage: time.Hour,
				blobs: func(s blob.Store) blob.Store { return faultyBlobs{s, f} },
				meta:  func(s meta.Store) meta.Store { return faultyMeta{s, f, &late} },
			})
			r, keep := untidied(w)
			objects := w.clone(r.ID, keep)
			before := w.db(r.ID)
			ctx, cancel := context.WithCancel(context.Background())
			if mode == "cancelled" {
				f.instead = cancel
			}
			f.left = n
			res, err := w.engine.Collect(ctx, r.ID, CollectOptions{Full: true})
			f.left = -1
			cancel()
			if f.hit && mode != "cancelled" && !errors.Is(err, errFault) || !f.hit && (err != nil || res.Did != DidRepack) {
				t.Errorf("%s fault %d: %+v, %v", mode, n, res, err)
			}
			w.engine.cfg.Clock = func() time.Time { return time.Now().Add(time.Minute) }
			if _, err := w.engine.Sweep(context.Background()); err != nil {
				t.Errorf("%s fault %d: sweep: %v", mode, n, err)
			}
			w.fsck(r.ID) // reports blobs that nothing names too
			if uploads, err := w.meta.Uploads(context.Background()); err != nil || len(uploads) > 0 {
				t.Errorf("%s fault %d: uploads are left: %v %v", mode, n, uploads, err)
			}
			if err := w.engine.Close(); err != nil {
				t.Errorf("%s fault %d: %v", mode, n, err)
			}
			if left, _ := filepath.Glob(filepath.Join(w.engine.cfg.Scratch, "*")); len(left) > 0 {
				t.Errorf("%s fault %d: scratch files are left: %v", mode, n, left)
			}
			if got := len(w.db(r.ID).Packs()); got != 2 && got != len(before.Packs()) {
				t.Errorf("%s fault %d: %d packs, neither before nor after", mode, n, got)
			}
			if got := w.clone(r.ID, keep); got != objects {
				t.Errorf("%s fault %d: a clone has other objects", mode, n)
			}
			if res := w.collect(r.ID, CollectOptions{Full: true}); res.PacksAfter != 2 || !res.Tidy {
				t.Errorf("%s fault %d: the next collection: %+v", mode, n, res)
			}
			if !f.hit {
				if n < 9 {
					t.Errorf("only %d calls wrote something", n-1)
				}
				break
			}
		}
	}
}

// TestCollectionSparesOperations collects without any grace while an operation
// runs that began before refs moved.
func TestCollectionSparesOperations(t *testing.T) {
	w := newWorld(t, options{inlineLimit: 1, garbage: -1})
	ctx := context.Background()
	r, keep := untidied(w)
	op, done, err := w.engine.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	old := w.view(r.ID) // reads its packs later
	old.db, old.graph = nil, nil
	tip, err := w.tryCommit(r.ID, CommitRequest{TargetBranch: "short", BaseBranch: "main"}, map[string]string{"s": "s"})
	if err != nil {
		t.Fatal(err)
	}
	second := w.view(r.ID)
	second.db, second.graph = nil, nil
	if _, err := w.engine.DeleteBranch(ctx, w.writer, w.view(r.ID), "short", false); err != nil {
		t.Fatal(err)
	}
	if res := w.collect(r.ID, CollectOptions{Full: true}); res.Tidy || res.PacksAfter != 2 {
		t.Errorf("under an operation: %+v", res)
	}
	for view, want := range map[*View]object.ID{old: keep, second: tip.Commit} {
		var b bytes.Buffer
		if err := view.Uploader(Normal).Send(op, &b, &wire.Fetch{Wants: []object.ID{want}}, wire.ShallowUpdate{}, nil); err != nil {
			t.Fatalf("a clone from a view of before: %v", err)
		}
		g := newGitDir(t)
		g.in(b.Bytes(), "index-pack", "--stdin", "--strict")
		g.run("update-ref", "refs/heads/x", want.String())
		g.run("fsck", "--full", "--strict")
	}
	done()
	time.Sleep(time.Millisecond)
	if res := w.collect(r.ID, CollectOptions{}); !res.Tidy || res.PacksAfter != 1 || w.db(r.ID).Has(tip.Commit) {
		t.Errorf("without operations: %+v", res)
	}
}

// TestBitmapsServe asks a repacked repository, on which more was pushed, for
// what no pack answers as a whole.
func TestBitmapsServe(t *testing.T) {
	w := newWorld(t, options{inlineLimit: 1, garbage: time.Hour})
	r := w.create("repo")
	g := newGitDir(t)
	main, more := g.history("main", 40), g.history("more", 12)
	ok := map[string]string{"refs/heads/main": ""}
	wantStatus(t, w.push(r.ID, g.packRevs(main[39].String()), wire.Command{Ref: "refs/heads/main", New: main[39]}), ok)
	w.collect(r.ID, CollectOptions{Full: true})
	table, err := w.db(r.ID).Pack(0).GraphData(context.Background())
	if err != nil || !bytes.Contains(table, []byte("CBMP")) {
		t.Fatalf("the pack has no bitmaps: %v", err)
	}
	wantStatus(t, w.push(r.ID, g.packRevs(more[11].String()), wire.Command{Ref: "refs/heads/more", New: more[11]}), map[string]string{"refs/heads/more": ""})
	wantStatus(t, w.push(r.ID, nil, wire.Command{Ref: "refs/heads/main", Old: main[39], New: main[20]}), ok)
	for _, id := range []object.ID{main[20], main[39], more[11]} {
		bad, err := w.view(r.ID).Reachable(context.Background(), id, g.id(id.String()+"^{tree}"))
		if err != nil || bad.IsZero() != (id != main[39]) {
			t.Errorf("%s is not reachable: %s, %v", id, bad, err)
		}
	}
	for _, want := range []object.ID{main[20], more[11]} {
		if got, list := w.clone(r.ID, want), g.run("rev-list", "--objects", "--no-object-names", want.String()); len(got) != len(list) {
			t.Errorf("a clone has %d bytes of ids, git lists %d", len(got), len(list))
		}
	}
}

// betweenReads runs a function once, before a pack set is read.
type betweenReads struct {
	meta.Store
	hook func()
}

func (b *betweenReads) PackIDs(ctx context.Context, set int64) ([]meta.PackID, error) {
	if hook := b.hook; hook != nil {
		b.hook = nil
		hook()
	}
	return b.Store.PackIDs(ctx, set)
}

// TestCollectionKeepsWhatComesBetween commits, as another server would, between
// the moment when a collection reads the refs and that when it reads the packs:
// what the new commit brought is not lost.
func TestCollectionKeepsWhatComesBetween(t *testing.T) {
	between := &betweenReads{}
	w := newWorld(t, options{garbage: -1, meta: func(m meta.Store) meta.Store { between.Store = m; return between }})
	r := w.create("repo")
	w.commit(r.ID, "first", map[string]string{"f": "1"})
	other := *w
	other.engine = New(w.engine.cfg)
	other.engine.cfg.ODB = freshODB(w)
	w.engine.cfg.ODB = freshODB(w)
	w.engine.views = newViewCache(w.engine.cfg.CacheBytes)
	ran := false
	between.hook = func() {
		ran = true
		other.commit(r.ID, "between", map[string]string{"f": "2"})
	}
	w.collect(r.ID, CollectOptions{Full: true})
	if !ran {
		t.Fatal("nothing came between")
	}
	w.engine.cfg.ODB = freshODB(w)
	w.engine.views = newViewCache(w.engine.cfg.CacheBytes)
	w.clone(r.ID, w.ref(r.ID, "refs/heads/main"))
	w.export(r.ID)
}
