package graph

import (
	"context"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
)

// Exercise does every lookup that a graph does of a table.
func Exercise(t *Table) {
	for i := range t.n {
		lo, hi := t.span(i)
		for k := lo; k < hi; k++ {
			if v := be32(t.parents, int(k)); v >= uint32(t.n) {
				t.outsideID(v - uint32(t.n))
			}
		}
		if r, ok := t.find(t.pos(i)); !ok || r != i {
			panic("a record is not found by its position")
		}
	}
}

// Covered returns how many commits of a selection bitmaps told everything of.
func Covered(ctx context.Context, g *Graph, q Query) (int, error) {
	s := &selector{g: g, ctx: ctx, q: &q, set: NewObjectSet(g.db), had: NewObjectSet(g.db), explicit: map[object.ID]bool{}}
	roots, err := s.split(q.Wants)
	if err == nil {
		err = s.paint(roots, nil)
	}
	covered := s.fromBitmaps()
	if err != nil || covered == nil {
		return 0, err
	}
	return covered.Len(), nil
}

// ExerciseBitmaps does every lookup that a selection does of bitmaps.
func ExerciseBitmaps(t *Table, idx *pack.Index) int {
	if t.bitmaps == nil || t.bitmaps.n != idx.Count() {
		return 0
	}
	for i := range t.bitmaps.commits {
		t.bitmaps.add(make([]uint64, (idx.Count()+63)/64), int32(i), idx)
	}
	t.bitmaps.kindWords(idx)
	return len(t.bitmaps.commits)
}
