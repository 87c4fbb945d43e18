package repo

import (
	"context"
	"fmt"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// background does what writes noted as due, as Run would.
func (w *world) background() {
	w.t.Helper()
	ctx := context.Background()
	for id, ok := w.engine.jobs.folds.take(); ok; id, ok = w.engine.jobs.folds.take() {
		if _, err := w.engine.fold(ctx, id); err != nil {
			w.t.Errorf("fold: %v", err)
		}
	}
	for id, ok := w.engine.jobs.repacks.take(); ok; id, ok = w.engine.jobs.repacks.take() {
		if _, err := w.engine.repack(ctx, id); err != nil {
			w.t.Errorf("repack: %v", err)
		}
	}
}

func (w *world) db(id meta.RepoID) *odb.DB {
	w.t.Helper()
	db, err := w.view(id).DB(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return db
}

// deltas counts the entries of a repository's packs that are deltas.
func (w *world) deltas(id meta.RepoID) int {
	w.t.Helper()
	n := 0
	for _, p := range w.db(id).Packs() {
		for pos := range p.Index().Count() {
			e, err := p.File().Entry(pos)
			if err != nil {
				w.t.Fatal(err)
			}
			if e.Type == pack.OFSDelta || e.Type == pack.REFDelta {
				n++
			}
		}
	}
	return n
}

// TestFoldPushes folds pushes with deltas: rows and blobs, plain and repeating
// each other's objects.
func TestFoldPushes(t *testing.T) {
	w := newWorld(t, options{inlineLimit: 2 << 10})
	r := w.create("repo")
	g := newGitDir(t)
	commits := g.history("main", 160)
	for n := 4; n <= len(commits); n += 2 {
		tip, old := commits[n-1], object.Zero
		revs := []string{tip.String()}
		if n > 4 {
			old = commits[n-3]
			revs = append(revs, "^"+old.String())
		}
		data := g.packRevs(revs...)
		if n%20 == 0 {
			data = g.packOf(g.newIn(tip)...) // all of it once more
		}
		wantStatus(t, w.push(r.ID, data, wire.Command{Ref: "refs/heads/main", Old: old, New: tip}), map[string]string{"refs/heads/main": ""})
		if db := w.db(r.ID); n%20 != 0 && !db.Exact(int32(len(db.Packs())-1)) {
			t.Fatalf("the pack of a thin push of %s is not exact", tip)
		}
	}
	before := w.db(r.ID)
	if len(before.Packs()) < foldAt {
		t.Fatalf("%d packs are too few for the test", len(before.Packs()))
	}
	unique := len(g.newIn(commits[len(commits)-1]))
	w.background()
	db := w.db(r.ID)
	objects, sum := 0, int64(0)
	for i := len(db.Packs()) - 1; i >= 0; i-- {
		p := db.Packs()[i].Info()
		if foldShare*p.Bytes < sum {
			t.Errorf("pack %d of %d has %d bytes, those after it %d", i, len(db.Packs()), p.Bytes, sum)
		}
		objects += int(p.Objects)
		sum += p.Bytes
	}
	if objects != unique {
		t.Errorf("%d objects are stored, the history has %d", objects, unique)
	}
	if w.deltas(r.ID) < 20 {
		t.Errorf("%d deltas are left", w.deltas(r.ID))
	}
	w.fsck(r.ID)
	if got := w.export(r.ID).run("rev-list", "--count", "main"); got != fmt.Sprint(len(commits)) {
		t.Errorf("git sees %s commits", got)
	}
	// A reader that read nothing yet, and one that read all before.
	w.engine.cfg.ODB = freshODB(w)
	w.fsck(r.ID)
	for _, p := range before.Packs() {
		if p.Info().Inline {
			continue
		}
		if _, _, err := p.Get(0); err != nil {
			t.Errorf("a pack that was open before cannot be read: %v", err)
		}
	}
}
