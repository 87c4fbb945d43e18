package repo

import (
	"container/heap"
	"context"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/graph"
)

// lastKey and lastValue cache which commit last touched a path.
type lastKey struct {
	commit object.ID
	path   string
}

type lastValue = object.ID

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

// LastCommits is LastCommit for many paths in one walk. Paths that history does
// not know are left out.
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
	if err := w.run(n); err != nil {
		return nil, err
	}
	for i, p := range open {
		if w.found[i] < 0 {
			continue
		}
		out[p] = g.ID(w.found[i])
		cache.Put(lastKey{commit, p}, out[p], int64(len(p)+64))
	}
	return out, nil
}

// pathWalk finds for each of some paths the commit that last touched it. As git
// simplifies history, a path that is the same in some parent is followed there
// alone, into the first such parent; where it differs from all parents, that
// commit is the answer.
type pathWalk struct {
	ctx   context.Context
	g     *graph.Graph
	root  *pathNode
	found []graph.Node // -1: not yet
	// waiting are the paths to be looked for from a commit on.
	waiting map[graph.Node][]int32
	queue   nodeQueue
}

// pathNode is a directory of the paths' trie.
type pathNode struct {
	children map[string]*pathNode
	paths    []int32 // that end here
}

func newPathWalk(ctx context.Context, g *graph.Graph, paths []string) *pathWalk {
	w := &pathWalk{ctx: ctx, g: g, root: &pathNode{}, found: make([]graph.Node, len(paths)), waiting: map[graph.Node][]int32{}}
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

// wait queues paths at a commit.
func (w *pathWalk) wait(n graph.Node, paths []int32) {
	if len(paths) == 0 {
		return
	}
	if _, queued := w.waiting[n]; !queued {
		heap.Push(&w.queue, n)
	}
	w.waiting[n] = append(w.waiting[n], paths...)
}

func (w *pathWalk) run(from graph.Node) error {
	all := make([]int32, len(w.found))
	for i := range all {
		all[i] = int32(i)
	}
	w.wait(from, all)
	differs := make([]bool, len(w.found))
	for w.queue.Len() > 0 {
		if err := w.ctx.Err(); err != nil {
			return err
		}
		n := heap.Pop(&w.queue).(graph.Node)
		paths := w.waiting[n]
		delete(w.waiting, n)
		parents := w.g.Parents(n)
		for _, p := range parents {
			clear(differs)
			if err := w.compare(w.root, w.g.Tree(n), w.g.Tree(p), differs); err != nil {
				return err
			}
			var same, rest []int32
			for _, i := range paths {
				if differs[i] {
					rest = append(rest, i)
				} else {
					same = append(same, i)
				}
			}
			w.wait(p, same)
			if paths = rest; len(paths) == 0 {
				break
			}
		}
		if len(parents) == 0 {
			clear(differs)
			if err := w.compare(w.root, w.g.Tree(n), object.Zero, differs); err != nil {
				return err
			}
		}
		for _, i := range paths {
			if differs[i] {
				w.found[i] = n
			}
		}
	}
	return nil
}

// compare marks the paths at and below a trie node that differ between two
// trees; zero stands for nothing.
func (w *pathWalk) compare(at *pathNode, a, b object.ID, differs []bool) error {
	if a == b {
		return nil
	}
	for _, i := range at.paths {
		differs[i] = true
	}
	if len(at.children) == 0 {
		return nil
	}
	inA, err := w.children(at, a)
	if err != nil {
		return err
	}
	inB, err := w.children(at, b)
	if err != nil {
		return err
	}
	for name, child := range at.children {
		x, y := inA[name], inB[name]
		if x == y {
			continue
		}
		for _, i := range child.paths {
			differs[i] = true
		}
		if err := w.compare(child, x.tree(), y.tree(), differs); err != nil {
			return err
		}
	}
	return nil
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

// children returns the entries of a tree that the trie node knows.
func (w *pathWalk) children(at *pathNode, tree object.ID) (map[string]child, error) {
	if tree.IsZero() {
		return nil, nil
	}
	data, err := w.g.DB().Tree(w.ctx, tree)
	if err != nil {
		return nil, err
	}
	out := make(map[string]child, len(at.children))
	it := object.TreeEntries(data)
	for e, ok := it.Next(); ok && len(out) < len(at.children); e, ok = it.Next() {
		if _, asked := at.children[string(e.Name)]; asked {
			out[string(e.Name)] = child{e.Mode.Canonical(), e.ID}
		}
	}
	return out, it.Err()
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
