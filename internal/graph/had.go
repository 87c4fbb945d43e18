package graph

import (
	"cmp"
	"slices"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/odb"
)

// note records that the client has an entry's object.
func (s *selector) note(e object.Entry) {
	if e.Mode.Type() == object.Commit {
		return
	}
	if loc, ok := s.g.db.Find(e.ID); ok {
		s.had.Add(loc)
	}
}

// maxExpanded bounds how many commits' trees are listed to learn what a client
// has.
const maxExpanded = 32

// expandHad adds to had everything in the trees of the newest commits at the
// edge of what the client has.
func (s *selector) expandHad() error {
	g := s.g
	edge := map[Node]bool{}
	for _, n := range g.Nodes(s.q.Haves) {
		edge[n] = true
	}
	for _, n := range g.Nodes(s.q.HaveCut) {
		if s.have.Has(n) {
			edge[n] = true
		}
	}
	for n := range s.send.Each {
		for _, p := range g.Parents(n) {
			if s.have.Has(p) {
				edge[p] = true
			}
		}
	}
	listed := NewObjectSet(g.db)
	newest := make([]Node, 0, len(edge))
	for n := range edge {
		newest = append(newest, n)
	}
	slices.SortFunc(newest, func(a, b Node) int { return cmp.Compare(g.nodes[b].time, g.nodes[a].time) })
	for _, n := range newest[:min(len(newest), maxExpanded)] {
		if err := s.list(g.nodes[n].tree, listed, 0); err != nil {
			return err
		}
	}
	return nil
}

// list adds a tree and everything below it to had, leaving out what is listed.
func (s *selector) list(id object.ID, listed *ObjectSet, depth int) error {
	loc, ok := s.g.db.Find(id)
	if !ok {
		return s.missing(id)
	}
	if !listed.Add(loc) || depth >= MaxTreeDepth {
		return nil
	}
	s.had.Add(loc)
	if s.steps++; s.steps%256 == 0 && s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	data, err := s.g.db.Tree(s.ctx, id)
	if err != nil {
		return err
	}
	it := object.TreeEntries(data)
	for e, ok := it.Next(); ok; e, ok = it.Next() {
		if e.Mode.IsDir() {
			if err := s.list(e.ID, listed, depth+1); err != nil {
				return err
			}
			continue
		}
		s.note(e)
	}
	return it.Err()
}

// subtractHad takes out of the selection what the client turned out to have,
// but for what it names.
func (s *selector) subtractHad() {
	for i := range s.had.bits {
		place := int32(i)
		if s.set.Whole(place) {
			continue
		}
		s.had.EachIn(place, func(pos int32) bool {
			loc := odb.Loc{Pack: place, Pos: pos}
			if s.set.Has(loc) && !s.explicit[s.g.db.ID(loc)] {
				s.set.Remove(loc)
			}
			return true
		})
	}
}
