// Package graph answers questions about history: which commits and which
// objects are reachable from where. Commits are never inflated for it: each
// pack has a table of its commits.
package graph

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/odb"
)

// Node is a commit of a Graph. Numbers of one Graph mean the same in a Graph
// that was opened near it.
type Node int32

// Graph is the commits of a DB. It is immutable and safe for concurrent use.
type Graph struct {
	db     *odb.DB
	arena  *arena
	tables []*Table
	base   []int32 // of each pack, the node of its first commit
	count  int     // commits in the packs
	nodes  []node
	links  []Node // parents of all nodes
}

// node is a commit. Its parents are links[first : first+parents].
type node struct {
	loc     odb.Loc
	time    int64
	gen     uint32
	first   uint32
	parents uint32
	tree    object.ID
}

// arena holds the nodes of Graphs that grew from each other. It only grows, so
// that a Graph may read its part without a lock.
type arena struct {
	mu    sync.Mutex
	nodes []node
	links []Node
}

// slack is how many unused nodes an arena may have before a Graph gets its own.
const slack = 4096

// Open returns the Graph of db. near, if not nil, is a Graph of a DB like it: if
// db begins with all its packs, only the further ones are read. A parent that is
// missing is a *MissingParentError.
func Open(ctx context.Context, db *odb.DB, near *Graph) (*Graph, error) {
	g := &Graph{db: db, arena: new(arena)}
	if near != nil && near.covers(db) {
		*g = *near
		g.db = db
	}
	packs := db.Packs()[len(g.base):]
	fresh := make([]*Table, len(packs))
	for i, p := range packs {
		t, err := tableOf(ctx, p)
		if err != nil {
			return nil, err
		}
		fresh[i] = t
		g.count += t.n
	}
	if len(packs) == 0 {
		return g, nil
	}
	if len(g.nodes) > 2*g.count+slack {
		return Open(ctx, db, nil)
	}
	return g, g.grow(fresh)
}

// covers reports whether db begins with the packs of g.
func (g *Graph) covers(db *odb.DB) bool {
	packs := db.Packs()
	if len(g.base) > len(packs) {
		return false
	}
	for i, p := range g.db.Packs() {
		if p != packs[i] && (p.Info().ID == 0 || p.Info().ID != packs[i].Info().ID) {
			return false
		}
	}
	return true
}

// grow adds the commits of the packs after those that g has.
func (g *Graph) grow(fresh []*Table) error {
	a := g.arena
	a.mu.Lock()
	defer a.mu.Unlock()
	begin := len(a.nodes)
	old := len(g.tables)
	g.tables = append(g.tables[:old:old], fresh...)
	g.base = g.base[:old:old]
	for i, t := range fresh {
		g.base = append(g.base, int32(len(a.nodes)))
		for r := range t.n {
			rec := t.record(r)
			lo, hi := t.span(r)
			a.nodes = append(a.nodes, node{
				loc: odb.Loc{Pack: int32(old + i), Pos: t.pos(r)}, tree: object.ID(rec[4:24]), time: int64(binary.BigEndian.Uint64(rec[24:])),
				gen: binary.BigEndian.Uint32(rec[32:]), first: uint32(len(a.links)) + lo, parents: hi - lo,
			})
		}
		for range len(t.parents) / 4 {
			a.links = append(a.links, 0)
		}
	}
	g.nodes, g.links = a.nodes, a.links
	err := g.resolve(fresh, old)
	if err != nil {
		// Nothing refers to the new nodes.
		a.nodes, a.links = a.nodes[:begin], a.links[:g.linkStart(begin)]
		return err
	}
	g.fillGenerations(begin)
	return nil
}

func (g *Graph) linkStart(n int) uint32 {
	if n < len(g.nodes) {
		return g.nodes[n].first
	}
	return uint32(len(g.links))
}

// resolve sets the parents of the nodes of fresh tables, the first of which
// belongs to the pack with the given place.
func (g *Graph) resolve(fresh []*Table, place int) error {
	for i, t := range fresh {
		outside := make([]Node, len(t.outside)/object.Size)
		for o := range outside {
			outside[o] = -1
		}
		base := g.base[place+i]
		for r := range t.n {
			lo, hi := t.span(r)
			at := g.nodes[int(base)+r].first
			for k := lo; k < hi; k++ {
				v := be32(t.parents, int(k))
				if v < uint32(t.n) {
					g.links[at+k-lo] = g.first(place+i, Node(base)+Node(v))
					continue
				}
				o := v - uint32(t.n)
				if outside[o] < 0 {
					n, ok := g.Node(t.outsideID(o))
					if !ok {
						return &MissingParentError{Commit: g.ID(Node(int(base) + r)), Parent: t.outsideID(o)}
					}
					outside[o] = n
				}
				g.links[at+k-lo] = outside[o]
			}
		}
	}
	return nil
}

// first returns the node that stands for a commit of the pack with the given
// place: an earlier pack may have the commit as well.
func (g *Graph) first(place int, n Node) Node {
	if place > 0 {
		if earlier, ok := g.Node(g.ID(n)); ok {
			return earlier
		}
	}
	return n
}

// fillGenerations computes the generations that tables do not know.
func (g *Graph) fillGenerations(begin int) {
	var stack []Node
	for i := begin; i < len(g.nodes); i++ {
		if g.nodes[i].gen != 0 {
			continue
		}
		for stack = append(stack[:0], Node(i)); len(stack) > 0; {
			at := stack[len(stack)-1]
			gen, ready := uint32(0), true
			for _, p := range g.Parents(at) {
				if g.nodes[p].gen == 0 {
					stack, ready = append(stack, p), false
				}
				gen = max(gen, g.nodes[p].gen)
			}
			if ready {
				g.nodes[at].gen = gen + 1
				stack = stack[:len(stack)-1]
			}
		}
	}
}

// DB returns the database that the commits are in.
func (g *Graph) DB() *odb.DB { return g.db }

// Len returns the number of commits.
func (g *Graph) Len() int { return g.count }

// Bytes estimates the memory of g, shared parts included.
func (g *Graph) Bytes() int64 { return int64(len(g.nodes))*56 + int64(len(g.links))*4 }

// Node returns the commit with an id; false when there is no such commit.
func (g *Graph) Node(id object.ID) (Node, bool) {
	loc, ok := g.db.Find(id)
	if !ok || int(loc.Pack) >= len(g.tables) {
		return 0, false
	}
	r, ok := g.tables[loc.Pack].find(loc.Pos)
	return Node(g.base[loc.Pack]) + Node(r), ok
}

// ID returns the id of a commit.
func (g *Graph) ID(n Node) object.ID { return g.db.ID(g.nodes[n].loc) }

// Loc returns where a commit lies.
func (g *Graph) Loc(n Node) odb.Loc { return g.nodes[n].loc }

// Tree returns the root tree of a commit.
func (g *Graph) Tree(n Node) object.ID { return g.nodes[n].tree }

// Time returns the committer date of a commit in Unix seconds.
func (g *Graph) Time(n Node) int64 { return g.nodes[n].time }

// Generation returns 1 for a root, else one more than the highest of the
// parents'.
func (g *Graph) Generation(n Node) uint32 { return g.nodes[n].gen }

// Parents returns the parents of a commit in their order. The slice is shared
// and must not be modified.
func (g *Graph) Parents(n Node) []Node {
	x := &g.nodes[n]
	return g.links[x.first : x.first+x.parents]
}

// PackNodes returns the range of nodes [lo, hi) that a pack holds.
func (g *Graph) PackNodes(place int32) (lo, hi Node) {
	lo = Node(g.base[place])
	return lo, lo + Node(g.tables[place].n)
}

// Commit returns a commit by id; false when there is no such commit.
func (g *Graph) Commit(id object.ID) (Commit, bool) {
	n, ok := g.Node(id)
	if !ok {
		return Commit{}, false
	}
	c := Commit{ID: id, Tree: g.Tree(n), Generation: g.Generation(n), Time: g.Time(n)}
	for _, p := range g.Parents(n) {
		c.Parents = append(c.Parents, g.ID(p))
	}
	return c, true
}

// mustNode returns the node of a commit that the caller knows to exist.
func (g *Graph) mustNode(id object.ID) (Node, error) {
	n, ok := g.Node(id)
	if !ok {
		return 0, fmt.Errorf("object %s is not a commit of this repository", id)
	}
	return n, nil
}
