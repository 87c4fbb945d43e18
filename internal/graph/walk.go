package graph

import (
	"container/heap"
	"context"

	"github.com/cairnstate/cairn/internal/git/object"
)

// checkEvery is after how many steps a walk looks at its context.
const checkEvery = 1 << 12

// Reach adds to set all commits that roots reach, roots included. Parents of
// commits in cut are not followed; nil cuts nothing. Commits that are in set
// already are taken to have their history there too.
func (g *Graph) Reach(ctx context.Context, roots []Node, cut, set *CommitSet) error {
	stack := make([]Node, 0, 64)
	for _, n := range roots {
		if set.Add(n) {
			stack = append(stack, n)
		}
	}
	for steps := 0; len(stack) > 0; steps++ {
		if steps%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if cut.Has(n) {
			continue
		}
		for _, p := range g.Parents(n) {
			if set.Add(p) {
				stack = append(stack, p)
			}
		}
	}
	return nil
}

// IsAncestor reports whether new reaches old. A commit reaches itself. Both
// must be commits of g, else the answer is false.
func (g *Graph) IsAncestor(ctx context.Context, old, new object.ID) (bool, error) {
	o, ok1 := g.Node(old)
	n, ok2 := g.Node(new)
	if !ok1 || !ok2 {
		return false, nil
	}
	return g.reachesAny(ctx, n, func(x Node) bool { return x == o }, g.nodes[o].gen, map[Node]bool{})
}

// Reaches reports for each of ids whether some tip reaches it. What is not a
// commit of g is not reached.
func (g *Graph) Reaches(ctx context.Context, tips, ids []object.ID) ([]bool, error) {
	set := g.NewCommitSet()
	if err := g.Reach(ctx, g.Nodes(tips), nil, set); err != nil {
		return nil, err
	}
	out := make([]bool, len(ids))
	for i, id := range ids {
		n, ok := g.Node(id)
		out[i] = ok && set.Has(n)
	}
	return out, nil
}

// Nodes returns the commits among ids.
func (g *Graph) Nodes(ids []object.ID) []Node {
	out := make([]Node, 0, len(ids))
	for _, id := range ids {
		if n, ok := g.Node(id); ok {
			out = append(out, n)
		}
	}
	return out
}

// AllReachAny reports whether each of the roots reaches some commit of targets.
func (g *Graph) AllReachAny(ctx context.Context, roots []Node, targets *CommitSet) (bool, error) {
	lowest := ^uint32(0)
	targets.Each(func(n Node) bool {
		lowest = min(lowest, g.nodes[n].gen)
		return true
	})
	// The commits that are known to reach none.
	barren := map[Node]bool{}
	for _, r := range roots {
		ok, err := g.reachesAny(ctx, r, targets.Has, lowest, barren)
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// reachesAny walks from a commit until hit says yes. Commits of a generation
// below lowest and those in seen are left out; what was walked in vain is added
// to seen.
func (g *Graph) reachesAny(ctx context.Context, from Node, hit func(Node) bool, lowest uint32, seen map[Node]bool) (bool, error) {
	if seen[from] || g.nodes[from].gen < lowest {
		return false, nil
	}
	walked := []Node{from}
	mine := map[Node]bool{from: true}
	for steps := 0; steps < len(walked); steps++ {
		if steps%checkEvery == 0 && ctx.Err() != nil {
			return false, ctx.Err()
		}
		n := walked[steps]
		if hit(n) {
			return true, nil
		}
		for _, p := range g.Parents(n) {
			if g.nodes[p].gen >= lowest && !mine[p] && !seen[p] {
				mine[p] = true
				walked = append(walked, p)
			}
		}
	}
	for _, n := range walked {
		seen[n] = true
	}
	return false, nil
}

// Newest walks commits from roots newest first, as git log does by date: of all
// commits that are not yet given and whose child was, the one with the latest
// date. It stops when yield returns false.
func (g *Graph) Newest(ctx context.Context, roots []Node, yield func(Node) bool) error {
	w := g.NewWalk()
	for _, n := range roots {
		w.Push(g, n)
	}
	for steps := 0; ; steps++ {
		if steps%checkEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		n, ok := w.Next()
		if !ok || !yield(n) {
			return nil
		}
		for _, p := range g.Parents(n) {
			w.Push(g, p)
		}
	}
}

// MergeBases returns the best common ancestors of two commits: those that no
// other common ancestor reaches, latest first.
func (g *Graph) MergeBases(ctx context.Context, a, b object.ID) ([]object.ID, error) {
	na, err := g.mustNode(a)
	if err != nil {
		return nil, err
	}
	nb, err := g.mustNode(b)
	if err != nil {
		return nil, err
	}
	bases, err := g.paintDown(ctx, na, nb)
	if err != nil {
		return nil, err
	}
	ids := make([]object.ID, len(bases))
	for i, n := range bases {
		ids[i] = g.ID(n)
	}
	return ids, nil
}

// Ahead returns how many commits a reaches and b does not.
func (g *Graph) Ahead(ctx context.Context, a, b object.ID) (int, error) {
	na, err := g.mustNode(a)
	if err != nil {
		return 0, err
	}
	nb, err := g.mustNode(b)
	if err != nil {
		return 0, err
	}
	q := newFrontier(g)
	q.push(na, isWanted)
	q.push(nb, isHad)
	count := 0
	for steps := 0; q.wanted > 0; steps++ {
		if steps%checkEvery == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		n, c := q.pop()
		if c == isWanted {
			count++
		}
		for _, p := range g.Parents(n) {
			q.push(p, c)
		}
	}
	return count, nil
}

// The colours of paintDown.
const (
	fromA uint8 = 1 << iota
	fromB
	stale // an ancestor of a common ancestor
)

// paintDown walks from both commits in order of generation, which gives every
// commit after all its descendants, until only stale ones are left.
func (g *Graph) paintDown(ctx context.Context, a, b Node) ([]Node, error) {
	q := &generationQueue{g: g}
	colour := map[Node]uint8{}
	live := 0 // queued commits that are not stale
	paint := func(n Node, c uint8) {
		old, queued := colour[n]
		colour[n] = old | c
		switch {
		case !queued:
			heap.Push(q, n)
			if c&stale == 0 {
				live++
			}
		case old&stale == 0 && c&stale != 0:
			live--
		}
	}
	paint(a, fromA)
	paint(b, fromB)
	var bases []Node
	for steps := 0; live > 0; steps++ {
		if steps%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		n := heap.Pop(q).(Node)
		c := colour[n]
		if c&stale == 0 {
			live--
			if c&(fromA|fromB) == fromA|fromB {
				bases = append(bases, n)
				c |= stale
			}
		}
		for _, p := range g.Parents(n) {
			paint(p, c)
		}
	}
	return bases, nil
}

// generationQueue is a heap with the highest generation first, then the latest
// date.
type generationQueue struct {
	g     *Graph
	items []Node
}

func (q *generationQueue) Len() int { return len(q.items) }
func (q *generationQueue) Less(i, j int) bool {
	a, b := &q.g.nodes[q.items[i]], &q.g.nodes[q.items[j]]
	if a.gen != b.gen {
		return a.gen > b.gen
	}
	return a.time > b.time
}
func (q *generationQueue) Swap(i, j int) { q.items[i], q.items[j] = q.items[j], q.items[i] }
func (q *generationQueue) Push(x any)    { q.items = append(q.items, x.(Node)) }
func (q *generationQueue) Pop() any {
	last := q.items[len(q.items)-1]
	q.items = q.items[:len(q.items)-1]
	return last
}
