package repo

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
)

func TestFold(t *testing.T) {
	w := newWorld(t, options{})
	report := func(err error) { t.Errorf("reported: %v", err) }
	w.engine.reporter.Store(&report)
	ctx := context.Background()
	r := w.create("repo")
	for i := range 400 {
		w.commit(r.ID, fmt.Sprint("commit ", i), map[string]string{"same": "same", fmt.Sprint("dir", i%5, "/file", i%50): fmt.Sprint(i)})
		w.background()
		if i == 200 {
			if folded, exact := w.folded(r.ID); folded == 0 || exact != folded {
				t.Errorf("of %d packs folded from a plain chain %d are exact", folded, exact)
			}
			// The same content twice, in packs that know nothing of each other.
			g := newGitDir(t)
			c := g.commit("stranger", g.tree(map[string]object.ID{"same": g.put("blob", "same"), "own": g.put("blob", "own")}))
			wantStatus(t, w.push(r.ID, g.packOf(g.newIn(c)...), wire.Command{Ref: "refs/heads/stranger", New: c}), map[string]string{"refs/heads/stranger": ""})
		}
	}
	db, err := w.view(r.ID).DB(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if folded, _ := w.folded(r.ID); len(db.Packs()) > foldAt+10 || folded == 0 {
		t.Errorf("%d packs, %d of them folded", len(db.Packs()), folded)
	}
	w.fsck(r.ID)
	if got := w.export(r.ID).run("rev-list", "--count", "main"); got != "400" {
		t.Errorf("git sees %s commits, want 400", got)
	}
	// A fresh reader sees the same.
	w.engine = New(w.engine.cfg)
	w.engine.cfg.ODB = freshODB(w)
	w.fsck(r.ID)

	fork, err := w.engine.Fork(ctx, w.writer, w.view(r.ID), ForkRequest{CreateRequest: CreateRequest{Name: "fork"}})
	if err != nil {
		t.Fatal(err)
	}
	shared := db.Packs()
	for i := range 2 * foldAt {
		w.commit(fork.ID, fmt.Sprint("fork ", i), map[string]string{"f": fmt.Sprint(i)})
		w.background()
	}
	db, err = w.view(fork.ID).DB(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range shared {
		if db.Packs()[i].Info().ID != p.Info().ID {
			t.Fatalf("the fork does not share pack %d with its parent any more", i)
		}
	}
	w.fsck(fork.ID)
	w.fsck(r.ID)
}

// folded counts the folded packs of a repository, and the exact ones of them.
func (w *world) folded(id meta.RepoID) (folded, exact int) {
	w.t.Helper()
	db, err := w.view(id).DB(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for i, p := range db.Packs() {
		if p.Info().Class != meta.PackFolded {
			continue
		}
		folded++
		if db.Exact(int32(i)) {
			exact++
		}
	}
	return folded, exact
}

// TestFoldTables checks that the commit table of a folded pack is the same
// whether it is joined from those of the packs or made from the whole history.
func TestFoldTables(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, options{inlineLimit: 4 << 10})
	id := w.create("r").ID
	joined := 0
	for round := range 4 {
		for i := range 20 {
			w.commit(id, fmt.Sprint("commit ", round, i), map[string]string{"f": fmt.Sprint(round, i), "same": fmt.Sprint(i % 3)})
		}
		v := w.view(id)
		db, err := v.DB(ctx)
		if err != nil {
			t.Fatal(err)
		}
		held, err := w.engine.held(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		lo, hi := foldable(db, held, nil)
		made, err := w.engine.foldPacks(ctx, v, &folding{db: db, lo: lo, hi: hi})
		if err != nil {
			t.Fatal(err)
		}
		want, err := commitTable(ctx, v, made.index)
		if err != nil {
			t.Fatal(err)
		}
		got, err := graph.Join(ctx, db, lo, hi, made.index)
		if err != nil {
			t.Fatal(err)
		}
		if got != nil {
			joined++
			if !bytes.Equal(got, want) {
				t.Errorf("round %d: joined table\n%x\nwant\n%x", round, got, want)
			}
		}
		made.file.Abort(ctx)
		if folded, err := w.engine.fold(ctx, id); err != nil || !folded {
			t.Fatalf("fold: %v, %v", folded, err)
		}
	}
	if joined < 3 {
		t.Errorf("%d of 4 tables could be joined", joined)
	}
}
