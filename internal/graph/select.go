package graph

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/odb"
)

// Filter leaves objects out that a Query does not name itself. Conditions that
// are set must all hold for an object to stay.
type Filter struct {
	// BlobLimit leaves out blobs of at least this many bytes.
	HasBlobLimit bool
	BlobLimit    int64
	// TreeDepth leaves out trees and blobs at or below this depth; a root tree
	// has depth 0.
	HasTreeDepth bool
	TreeDepth    int
	// Type keeps only objects of one type when it is not Invalid.
	Type object.Type
}

// Query asks for what a client lacks: closure(Wants) minus closure(Haves).
type Query struct {
	Wants []object.ID // of any type
	Haves []object.ID // commits
	// WantCut are commits whose parents the client shall not get, HaveCut those
	// whose parents it does not have: both are shallow boundaries.
	WantCut []object.ID
	HaveCut []object.ID
	// Unshallow are commits of HaveCut whose parents are wanted now.
	Unshallow []object.ID
	Filter    Filter
	// Whole allows packs to be selected whole.
	Whole bool
}

// Selection is the answer to a Query.
type Selection struct {
	// Objects is what the client lacks.
	Objects *ObjectSet
	// Commits are the commits that the client lacks.
	Commits *CommitSet
	// Had are objects that the client has, as far as they were met: bases for
	// thin packs.
	Had *ObjectSet
}

// MaxTreeDepth is how deep directories may be nested where their paths are
// needed. Selections have no such limit.
const MaxTreeDepth = 4096

// maxNested is how many trees of a path are walked on one another; those below
// wait until the walk is back.
const maxNested = 1024

// Select answers q. Every object it selects is reachable from a want, and with
// the client's own objects the selection is complete, but for the filter.
func (g *Graph) Select(ctx context.Context, q Query) (*Selection, error) {
	s := &selector{g: g, ctx: ctx, q: &q, set: NewObjectSet(g.db), had: NewObjectSet(g.db), explicit: map[object.ID]bool{}}
	roots, err := s.split(q.Wants)
	if err != nil {
		return nil, err
	}
	for _, n := range g.Nodes(q.Unshallow) {
		roots = append(roots, g.Parents(n)...)
	}
	s.wantCut = g.cutSet(q.WantCut)
	if err := s.paint(roots, g.cutSet(q.HaveCut)); err != nil {
		return nil, err
	}
	return s.run()
}

// Lacking returns the commits that wants reach and haves do not. The cost follows
// what is new, unless there are no haves.
func (g *Graph) Lacking(ctx context.Context, wants, haves []object.ID) (*CommitSet, error) {
	s := &selector{g: g, ctx: ctx, q: &Query{Haves: haves}}
	err := s.paint(g.Nodes(wants), nil)
	return s.send, err
}

type selector struct {
	g        *Graph
	ctx      context.Context
	q        *Query
	set      *ObjectSet
	had      *ObjectSet
	explicit map[object.ID]bool // wants, and what tags among them name
	trees    []object.ID        // explicit trees
	send     *CommitSet         // commits that the client lacks
	have     *CommitSet         // commits that it has, as far as known
	wantCut  *CommitSet
	depths   map[odb.Loc]int // where a depth filter is set: the least depth of a tree met
	steps    int
	covered  *CommitSet  // commits of which bitmaps told everything
	nested   int         // trees that are being walked
	waiting  []treeVisit // trees that lie too deep below them
}

// treeVisit is a tree that is still to be walked.
type treeVisit struct {
	id    object.ID
	olds  []oldTree
	depth int
}

func (g *Graph) cutSet(ids []object.ID) *CommitSet {
	if len(ids) == 0 {
		return nil
	}
	set := g.NewCommitSet()
	for _, n := range g.Nodes(ids) {
		set.Add(n)
	}
	return set
}

// split returns the commits among the wants and those that wanted tags lead
// to, and selects the others, which no filter leaves out.
func (s *selector) split(wants []object.ID) ([]Node, error) {
	var roots []Node
	for _, id := range wants {
		for !s.explicit[id] {
			s.explicit[id] = true
			if n, ok := s.g.Node(id); ok {
				roots = append(roots, n)
				break
			}
			t, err := s.g.db.Type(s.ctx, id)
			if err != nil {
				return nil, err
			}
			loc, _ := s.g.db.Find(id)
			s.set.Add(loc)
			if t == object.Tree {
				s.trees = append(s.trees, id)
			}
			if t != object.Tag {
				break
			}
			_, data, err := s.g.db.Get(s.ctx, id)
			if err != nil {
				return nil, err
			}
			if id, _, err = object.TagTarget(data); err != nil {
				return nil, fmt.Errorf("tag: %w", err)
			}
		}
	}
	return roots, nil
}

// paint finds the commits to send: those that roots reach and haves do not.
// Without haves it is a plain walk; with haves, commits are visited in order of
// generation until only common ones are left, so that the cost follows what is
// new and not the length of history.
func (s *selector) paint(roots []Node, haveCut *CommitSet) error {
	g := s.g
	s.send, s.have = g.NewCommitSet(), g.NewCommitSet()
	haves := g.Nodes(s.q.Haves)
	if len(haves) == 0 {
		return g.Reach(s.ctx, roots, s.wantCut, s.send)
	}
	q := newFrontier(g)
	for _, n := range haves {
		q.push(n, isHad)
	}
	for _, n := range roots {
		q.push(n, isWanted)
	}
	for steps := 0; q.wanted > 0; steps++ {
		if steps%checkEvery == 0 && s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		n, c := q.pop()
		if c&isHad != 0 {
			s.have.Add(n)
		} else {
			s.send.Add(n)
		}
		for _, p := range g.Parents(n) {
			pass := c
			if haveCut.Has(n) {
				pass &^= isHad
			}
			if c&isHad != 0 || s.wantCut.Has(n) {
				pass &^= isWanted
			}
			if pass != 0 {
				q.push(p, pass)
			}
		}
	}
	for n, c := range q.colour {
		if c&isHad != 0 {
			s.have.Add(n)
		}
	}
	return nil
}

// run selects everything.
func (s *selector) run() (*Selection, error) {
	f := &s.q.Filter
	if f.HasTreeDepth {
		s.depths = map[odb.Loc]int{}
	}
	if s.q.Whole && *f == (Filter{}) {
		s.wholePacks()
	}
	s.covered = s.fromBitmaps()
	cut := len(s.q.WantCut)+len(s.q.HaveCut) > 0
	if cut && len(s.q.Haves) > 0 {
		if err := s.expandHad(); err != nil {
			return nil, err
		}
	}
	strangers, err := s.commits()
	if err != nil {
		return nil, err
	}
	if strangers > maxStrangers && !cut {
		if err := s.expandHad(); err != nil {
			return nil, err
		}
		s.subtractHad()
	}
	for _, id := range s.trees {
		// What a wanted tree holds has the depth of a root tree.
		if err := s.whole(treeVisit{id: id, depth: -1}); err != nil {
			return nil, err
		}
	}
	return &Selection{Objects: s.set, Commits: s.send, Had: s.had}, nil
}

// wholePacks selects the exact packs of which everything is to be sent. What
// their contents refer to beyond themselves is reachable from their boundary,
// whose history must then be complete on the client's side too.
func (s *selector) wholePacks() {
	cut := len(s.q.WantCut)+len(s.q.HaveCut) > 0
	for i, p := range s.g.db.Packs() {
		place := int32(i)
		info := p.Info()
		if !s.g.db.Exact(place) || len(info.Tips) == 0 || cut && len(info.Boundary) > 0 {
			continue
		}
		if lo, hi := s.g.PackNodes(place); s.send.covers(lo, hi) && s.allSent(info.Tips) && s.allKnown(info.Boundary) {
			s.set.AddPack(place)
		}
	}
}

// allSent reports whether all ids are sent: commits, or wants of other types.
func (s *selector) allSent(ids []object.ID) bool {
	for _, id := range ids {
		if n, ok := s.g.Node(id); ok && s.send.Has(n) {
			continue
		} else if ok || !s.explicit[id] {
			return false
		}
	}
	return true
}

// allKnown reports whether the client will have all ids, commits, with their
// history.
func (s *selector) allKnown(ids []object.ID) bool {
	for _, id := range ids {
		n, ok := s.g.Node(id)
		if !ok || !s.send.Has(n) && !s.have.Has(n) {
			return false
		}
	}
	return true
}

// maxStrangers is the number of selected objects from packs that hold commits
// the client has up to which it does not matter that it may have them.
const maxStrangers = 64

// commits selects the commits to send that no whole pack has, with what their
// trees have and their parents' trees lack. strangers is the number of objects
// that lie in packs with no commit to send.
func (s *selector) commits() (strangers int, err error) {
	g, f := s.g, &s.q.Filter
	noTrees := f.HasTreeDepth && f.TreeDepth <= 0 || f.Type == object.Commit || f.Type == object.Tag
	var olds []oldTree
	for _, n := range s.enumerated() {
		loc := g.nodes[n].loc
		if f.Type == object.Invalid || f.Type == object.Commit || s.explicit[g.ID(n)] {
			s.set.Add(loc)
		}
		if noTrees {
			continue
		}
		olds = olds[:0]
		if !s.wantCut.Has(n) {
			for _, p := range g.Parents(n) {
				olds = append(olds, oldTree{g.nodes[p].tree, s.have.Has(p)})
			}
		}
		if err := s.root(g.nodes[n].tree, olds); err != nil {
			return 0, err
		}
	}
	if len(s.q.Haves) == 0 {
		return 0, nil
	}
	for i := range g.db.Packs() {
		if lo, hi := g.PackNodes(int32(i)); !s.send.meets(lo, hi) {
			strangers += s.set.CountIn(int32(i))
		}
	}
	return strangers, nil
}

// enumerated returns the commits to send that no whole pack or bitmap has, parents before
// children. The order is needed: a tree that was selected counts as complete, and
// it is only because what it shares with the parents' trees was selected before.
// It also brings trees that resemble each other together.
func (s *selector) enumerated() []Node {
	g := s.g
	var nodes []Node
	for n := range s.send.Each {
		if !s.set.Whole(g.nodes[n].loc.Pack) && !s.covered.Has(n) {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b Node) int { return cmp.Compare(g.nodes[a].gen, g.nodes[b].gen) })
	return nodes
}

// root selects a commit's root tree and what it has beyond the parents' trees.
func (s *selector) root(id object.ID, olds []oldTree) error {
	for _, o := range olds {
		if o.id == id {
			return nil
		}
	}
	loc, ok := s.g.db.Find(id)
	if !ok {
		return s.missing(id)
	}
	if !s.enter(loc, 0) {
		return nil
	}
	return s.whole(treeVisit{id, olds, 0})
}

// whole walks a tree and all below it, however deep.
func (s *selector) whole(v treeVisit) error {
	for {
		if err := s.tree(v); err != nil {
			return err
		}
		if len(s.waiting) == 0 {
			return nil
		}
		v = s.waiting[len(s.waiting)-1]
		s.waiting = s.waiting[:len(s.waiting)-1]
	}
}

// oldTree is a tree at the same path in a parent; had says that the client has
// it, otherwise it is sent.
type oldTree struct {
	id  object.ID
	had bool
}

// missing returns the error for an object that no pack has.
func (s *selector) missing(id object.ID) error {
	_, err := s.g.db.Type(s.ctx, id)
	return err
}

// enter selects the tree at loc, which lies at the given depth, and reports
// whether its entries must be looked at.
func (s *selector) enter(loc odb.Loc, depth int) bool {
	f := &s.q.Filter
	if f.Type == object.Commit || f.Type == object.Tag {
		return false
	}
	if f.HasTreeDepth {
		if depth >= f.TreeDepth {
			return false
		}
		if d, ok := s.depths[loc]; ok && d <= depth {
			return false
		}
		s.depths[loc] = depth
		if f.Type == object.Invalid || f.Type == object.Tree {
			s.set.Add(loc)
		}
		return true
	}
	if s.had.Has(loc) {
		return false
	}
	if f.Type == object.Blob {
		// The tree is not sent, but must be walked once.
		if s.depths == nil {
			s.depths = map[odb.Loc]int{}
		}
		_, ok := s.depths[loc]
		s.depths[loc] = depth
		return !ok
	}
	return s.set.Add(loc)
}

// tree selects what a tree at a depth has and none of its olds has at the same
// path.
func (s *selector) tree(v treeVisit) error {
	if s.nested == maxNested {
		s.waiting = append(s.waiting, v)
		return nil
	}
	s.nested++
	defer func() { s.nested-- }()
	if s.steps++; s.steps%256 == 0 && s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	data, err := s.g.db.Tree(s.ctx, v.id)
	if err != nil {
		return err
	}
	beside := make([]cursor, len(v.olds))
	for i, o := range v.olds {
		old, err := s.g.db.Tree(s.ctx, o.id)
		if err != nil {
			return err
		}
		beside[i] = newCursor(old, o.had)
	}
	it := object.TreeEntries(data)
	var buf [4]oldTree
	for e, ok := it.Next(); ok; e, ok = it.Next() {
		same, below := false, buf[:0]
		for i := range beside {
			old, ok := beside[i].seek(e)
			if !ok {
				continue
			}
			if same = same || old.ID == e.ID; same {
				break
			}
			if e.Mode.IsDir() {
				below = append(below, oldTree{old.ID, beside[i].had})
			}
			if beside[i].had {
				s.note(old)
			}
		}
		if same {
			continue
		}
		if err := s.entry(e, below, v.depth+1); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("tree %s: %w", v.id, err)
	}
	return nil
}

// entry selects one entry of a tree, which lies at the given depth.
func (s *selector) entry(e object.Entry, below []oldTree, depth int) error {
	t := e.Mode.Type()
	if t == object.Commit {
		return nil
	}
	loc, ok := s.g.db.Find(e.ID)
	if !ok {
		return s.missing(e.ID)
	}
	if t == object.Tree {
		if !s.enter(loc, depth) {
			return nil
		}
		return s.tree(treeVisit{e.ID, slices.Clone(below), depth})
	}
	f := &s.q.Filter
	if s.set.Has(loc) || s.had.Has(loc) || f.HasTreeDepth && depth >= f.TreeDepth || f.Type != object.Invalid && f.Type != object.Blob {
		return nil
	}
	if f.HasBlobLimit {
		if f.BlobLimit <= 0 {
			return nil
		}
		size, err := s.g.db.Pack(loc.Pack).Size(int(loc.Pos))
		if err != nil || size >= f.BlobLimit {
			return err
		}
	}
	s.set.Add(loc)
	return nil
}
