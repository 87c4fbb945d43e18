package repo

import (
	"bytes"
	"container/heap"
	"context"
	"fmt"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/graph"
)

// lastKey and lastValue cache which commit last touched a path. The path "" says
// that many paths of the commit are there.
type lastKey struct {
	commit object.ID
	path   string
}

type lastValue = object.ID

// fewPaths is how many paths are looked for in the cache at every commit of a
// walk; more are only where the cache has many.
const fewPaths = 4

// LastCommit returns the newest commit in the history of commit, which the
// caller has resolved, that touched a path: what git log -1 -- path shows. A
// path that history does not know is a *NotFoundError.
func (v *View) LastCommit(ctx context.Context, commit object.ID, path string) (object.ID, error) {
	found, err := v.LastCommits(ctx, commit, []string{path})
	if err != nil {
		return object.Zero, err
	}
	id, ok := found[path]
	if !ok {
		return object.Zero, &NotFoundError{What: "path", Name: clip(path)}
	}
	return id, nil
}

// LastCommits is LastCommit for many paths in one walk, which ends where an
// earlier one began. Paths that history does not know are left out.
func (v *View) LastCommits(ctx context.Context, commit object.ID, paths []string) (map[string]object.ID, error) {
	cache := v.engine.last
	out := make(map[string]object.ID, len(paths))
	var open []string
	for _, p := range paths {
		if id, ok := cache.Get(lastKey{commit, p}); ok {
			out[p] = id
		} else {
			open = append(open, p)
		}
	}
	if len(open) == 0 {
		return out, nil
	}
	g, err := v.Graph(ctx)
	if err != nil {
		return nil, err
	}
	n, ok := g.Node(commit)
	if !ok {
		return nil, &NotFoundError{What: "commit", Name: commit.String()}
	}
	w := newPathWalk(ctx, g, open)
	w.cached = func(n graph.Node, path string) (graph.Node, bool) {
		id, ok := cache.Get(lastKey{g.ID(n), path})
		if !ok {
			return 0, false
		}
		return g.Node(id)
	}
	if err := w.run(n); err != nil {
		return nil, err
	}
	for i, p := range open {
		if w.found[i] < 0 {
			continue
		}
		out[p] = g.ID(w.found[i])
		cache.Put(lastKey{commit, p}, out[p], int64(len(p)+lastBytes))
	}
	if len(open) > fewPaths {
		cache.Put(lastKey{commit, ""}, commit, lastBytes)
	}
	return out, nil
}

// lastBytes is what the cache needs for a path beside its name.
const lastBytes = 200

// pathWalk finds for each of some paths the commit that last touched it. As git
// simplifies history, a path that is the same in some parent is followed there
// alone, into the first such parent; where it differs from all parents, that
// commit is the answer. Paths that wait at one commit move on together: a step
// costs what differs there, however many they are.
type pathWalk struct {
	ctx   context.Context
	g     *graph.Graph
	names []string
	root  *pathNode
	found []graph.Node // -1: not yet
	// cached tells what an earlier walk found for a path from a commit on.
	cached func(n graph.Node, path string) (graph.Node, bool)

	where   []int32 // the group of a path; -1: it is no longer looked for
	groups  []pathGroup
	waiting map[graph.Node]int32 // the group that looks on from a commit
	queue   nodeQueue

	differs []int32 // of the last comparison
	marked  []uint32
	round   uint32
}

// pathGroup is paths that wait at one commit. Members may have left for another
// group.
type pathGroup struct {
	members []int32
	count   int // that have not left
}

// pathNode is a directory of the paths' trie.
type pathNode struct {
	children map[string]*pathNode
	paths    []int32 // that end here
}

func newPathWalk(ctx context.Context, g *graph.Graph, paths []string) *pathWalk {
	w := &pathWalk{
		ctx: ctx, g: g, names: paths, root: &pathNode{}, found: make([]graph.Node, len(paths)), waiting: map[graph.Node]int32{},
		where: make([]int32, len(paths)), marked: make([]uint32, len(paths)),
	}
	w.queue.g = g
	for i, p := range paths {
		w.found[i] = -1
		at := w.root
		for rest := p; rest != ""; {
			var name string
			name, rest, _ = strings.Cut(rest, "/")
			next := at.children[name]
			if next == nil {
				next = &pathNode{}
				if at.children == nil {
					at.children = map[string]*pathNode{}
				}
				at.children[name] = next
			}
			at = next
		}
		at.paths = append(at.paths, int32(i))
	}
	return w
}

// group makes a group of paths.
func (w *pathWalk) group(members []int32) int32 {
	id := int32(len(w.groups))
	w.groups = append(w.groups, pathGroup{members, len(members)})
	for _, i := range members {
		w.where[i] = id
	}
	return id
}

// wait lets a group look on from a commit.
func (w *pathWalk) wait(n graph.Node, id int32) {
	other, queued := w.waiting[n]
	if !queued {
		w.waiting[n] = id
		heap.Push(&w.queue, n)
		return
	}
	if w.groups[other].count < w.groups[id].count {
		id, other = other, id
	}
	w.waiting[n] = other
	into := &w.groups[other]
	for _, i := range w.groups[id].members {
		if w.where[i] == id {
			w.where[i] = other
			into.members = append(into.members, i)
			into.count++
		}
	}
	w.groups[id] = pathGroup{}
}

func (w *pathWalk) run(from graph.Node) error {
	all := make([]int32, len(w.names))
	for i := range all {
		all[i] = int32(i)
	}
	w.wait(from, w.group(all))
	for w.queue.Len() > 0 {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		n := heap.Pop(&w.queue).(graph.Node)
		id := w.waiting[n]
		delete(w.waiting, n)
		w.recall(n, id)
		if err := w.step(n, id); err != nil {
			return err
		}
	}
	return nil
}

// recall takes from a group what an earlier walk found.
func (w *pathWalk) recall(n graph.Node, id int32) {
	if _, many := w.cached(n, ""); !many && w.groups[id].count > fewPaths {
		return
	}
	for _, i := range w.groups[id].members {
		if w.where[i] != id {
			continue
		}
		if last, ok := w.cached(n, w.names[i]); ok {
			w.found[i], w.where[i] = last, -1
			w.groups[id].count--
		}
	}
}

// step sends a group on from a commit to its parents. What differs from all of
// them is found.
func (w *pathWalk) step(n graph.Node, id int32) error {
	if w.groups[id].count == 0 {
		return nil
	}
	parents := w.g.Parents(n)
	for _, p := range parents {
		rest, err := w.changed(id, w.g.Tree(n), w.g.Tree(p))
		if err != nil {
			return err
		}
		if len(rest) == w.groups[id].count {
			continue
		}
		same := id
		w.groups[same].count -= len(rest)
		if len(rest) > 0 {
			id = w.group(rest)
		}
		w.wait(p, same)
		if len(rest) == 0 {
			return nil
		}
	}
	members := w.groups[id].members
	if len(parents) == 0 {
		var err error
		if members, err = w.changed(id, w.g.Tree(n), object.Zero); err != nil {
			return err
		}
	}
	for _, i := range members {
		if w.where[i] == id {
			w.found[i], w.where[i] = n, -1
		}
	}
	w.groups[id] = pathGroup{}
	return nil
}

// changed returns the paths of a group that differ between two trees; zero stands
// for nothing.
func (w *pathWalk) changed(id int32, a, b object.ID) ([]int32, error) {
	w.differs = w.differs[:0]
	w.round++
	if a != b {
		w.mark(w.root)
	}
	if err := w.compare(w.root, a, b); err != nil {
		return nil, err
	}
	var of []int32
	for _, i := range w.differs {
		if w.where[i] == id {
			of = append(of, i)
		}
	}
	return of, nil
}

// mark notes that the paths which end at a trie node differ.
func (w *pathWalk) mark(at *pathNode) {
	for _, i := range at.paths {
		if w.marked[i] != w.round {
			w.marked[i] = w.round
			w.differs = append(w.differs, i)
		}
	}
}

// compare marks the paths below a trie node that differ between two trees.
func (w *pathWalk) compare(at *pathNode, a, b object.ID) error {
	if a == b || len(at.children) == 0 {
		return nil
	}
	inA, err := w.tree(a)
	if err != nil {
		return err
	}
	inB, err := w.tree(b)
	if err != nil {
		return err
	}
	return eachDifference(inA, inB, func(name []byte, x, y child) error {
		next := at.children[string(name)]
		if next == nil || x == y {
			return nil
		}
		w.mark(next)
		return w.compare(next, x.tree(), y.tree())
	})
}

func (w *pathWalk) tree(id object.ID) ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	return w.g.DB().Tree(w.ctx, id)
}

// child is an entry of a tree; zero when it does not exist.
type child struct {
	mode object.Mode
	id   object.ID
}

// tree returns the id of a directory, zero for anything else.
func (c child) tree() object.ID {
	if c.mode.IsDir() {
		return c.id
	}
	return object.Zero
}

// eachDifference yields the entries that are not the same in two trees. A name
// that is a directory in one and not in the other may come twice.
func eachDifference(a, b []byte, yield func(name []byte, x, y child) error) error {
	for len(a) > 0 || len(b) > 0 {
		if end := bytes.IndexByte(a, 0) + 1 + object.Size; end > object.Size && end <= len(a) && bytes.HasPrefix(b, a[:end]) {
			a, b = a[end:], b[end:]
			continue
		}
		x, restA, err := cutEntry(a)
		if err != nil {
			return err
		}
		y, restB, err := cutEntry(b)
		if err != nil {
			return err
		}
		order := 0
		switch {
		case len(a) == 0:
			order = 1
		case len(b) == 0:
			order = -1
		default:
			order = object.CompareEntries(x, y)
		}
		switch {
		case order < 0:
			a, err = restA, yield(x.Name, childOf(x), child{})
		case order > 0:
			b, err = restB, yield(y.Name, child{}, childOf(y))
		default:
			a, b, err = restA, restB, yield(x.Name, childOf(x), childOf(y))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func childOf(e object.Entry) child { return child{e.Mode.Canonical(), e.ID} }

// cutEntry reads the first entry of a tree; nothing of an empty one.
func cutEntry(tree []byte) (e object.Entry, rest []byte, err error) {
	if len(tree) == 0 {
		return e, nil, nil
	}
	it := object.TreeEntries(tree)
	e, ok := it.Next()
	if !ok {
		return e, nil, fmt.Errorf("read tree: %w", it.Err())
	}
	return e, it.Rest(), nil
}

// nodeQueue is a heap of commits with the highest generation first.
type nodeQueue struct {
	g     *graph.Graph
	items []graph.Node
}

func (q *nodeQueue) Len() int { return len(q.items) }
func (q *nodeQueue) Less(i, j int) bool {
	return q.g.Generation(q.items[i]) > q.g.Generation(q.items[j])
}
func (q *nodeQueue) Swap(i, j int) { q.items[i], q.items[j] = q.items[j], q.items[i] }
func (q *nodeQueue) Push(x any)    { q.items = append(q.items, x.(graph.Node)) }
func (q *nodeQueue) Pop() any {
	last := q.items[len(q.items)-1]
	q.items = q.items[:len(q.items)-1]
	return last
}
