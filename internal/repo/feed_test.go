package repo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/cairnstate/cairn/internal/meta"
)

// TestFeed checks that the views that writers of many branches, and folds beside
// them, leave in the cache are what a process that reads everything anew sees.
func TestFeed(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, options{})
	id := w.create("r").ID
	w.commit(id, "first", map[string]string{"a": "1"})
	const writers, commits = 6, 20
	var wg sync.WaitGroup
	for n := range writers {
		wg.Go(func() {
			for i := range commits {
				req := CommitRequest{TargetBranch: fmt.Sprint("b", n), BaseBranch: "main", Message: "m"}
				if _, err := w.tryCommit(id, req, map[string]string{"f": fmt.Sprint(n, i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var folds int64
	for range 5 {
		folded, err := w.engine.fold(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if folded {
			folds++
		}
	}
	wg.Wait()
	if folded, err := w.engine.fold(ctx, id); err != nil || !folded {
		t.Fatalf("fold: %v, %v", folded, err)
	}
	folds++
	w.commit(id, "last", map[string]string{"a": "2"})
	fed, ok := w.engine.views.get(id)
	if !ok || fed.repo.Version != 1+1+writers*commits+folds+1 {
		t.Fatalf("the cached view is %+v, want all versions in it", fed)
	}
	row, err := w.meta.Repo(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	read, err := New(w.engine.cfg).View(ctx, row)
	if err != nil {
		t.Fatal(err)
	}
	list := func(v *View) (refs []meta.Ref) {
		v.Refs(ctx, "", func(r meta.Ref) error { refs = append(refs, r); return nil })
		return refs
	}
	if got, want := list(fed), list(read); len(want) != writers+1 || !slices.Equal(got, want) {
		t.Errorf("fed refs\n%+v\nread\n%+v", got, want)
	}
	want, err := w.meta.PackIDs(ctx, row.PackSet)
	if err != nil {
		t.Fatal(err)
	}
	var got []meta.PackID
	for _, p := range fed.db.Packs() {
		got = append(got, p.Info().ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("fed packs %v, the set has %v", got, want)
	}
	db, err := read.DB(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for place, p := range db.Packs() {
		if fed.db.Exact(int32(place)) != db.Exact(int32(place)) {
			t.Errorf("pack %d of %d is exact: %t as it was fed", place, len(want), fed.db.Exact(int32(place)))
		}
		for pos := range p.Index().Count() {
			id := p.Index().ID(pos)
			was, _ := db.Find(id)
			if loc, ok := fed.db.Find(id); !ok || loc != was {
				t.Errorf("object %s is at %v as it was fed, and at %v as it is read", id, loc, was)
			}
		}
	}
}

// TestFeedWaits lays Changes over a view that become known in reverse.
func TestFeedWaits(t *testing.T) {
	w := newWorld(t, options{})
	id := w.create("r").ID
	first := w.commit(id, "first", map[string]string{"a": "1"})
	v := w.view(id)
	branch := func(n int64) meta.RefWrite {
		return meta.RefWrite{Name: fmt.Sprint("refs/heads/b", n), New: first}
	}
	for n := int64(5); n > 0; n-- {
		c := meta.Change{Repo: id, Refs: []meta.RefWrite{branch(n)}}
		verdict := meta.Verdict{Applied: true, Version: v.repo.Version + n}
		w.engine.advance(v, verdict.Version, appliedBy(&c, verdict, nil))
		if now := w.engine.newest(v); n > 1 && now != v {
			t.Fatalf("version %d was reached without those between", now.repo.Version)
		}
	}
	now := w.engine.newest(v)
	if now.repo.Version != v.repo.Version+5 || now.RefCount() != 6 {
		t.Errorf("version %d with %d refs", now.repo.Version, now.RefCount())
	}
	if len(w.engine.feed.ahead) != 0 {
		t.Errorf("%d repositories still wait", len(w.engine.feed.ahead))
	}
}
