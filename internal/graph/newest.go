package graph

import (
	"container/heap"
	"weak"

	"github.com/cairnstate/cairn/internal/meta"
)

// Walk gives commits newest first, each once: of all that were pushed and not
// given yet the one with the latest date, of equal dates the one pushed first.
// It holds no Graph, and may go on in one that continues the one it began in.
type Walk struct {
	queue dateQueue
	seen  *CommitSet
}

// NewWalk returns a Walk over the history of commits of g.
func (g *Graph) NewWalk() *Walk { return &Walk{seen: g.NewCommitSet()} }

// Push adds a commit, and reports whether it was new to the walk.
func (w *Walk) Push(g *Graph, n Node) bool {
	if !w.seen.Add(n) {
		return false
	}
	heap.Push(&w.queue, dated{n: n, time: g.nodes[n].time, order: w.queue.next})
	w.queue.next++
	return true
}

// Next takes the next commit; false when there is none.
func (w *Walk) Next() (Node, bool) {
	if w.queue.Len() == 0 {
		return 0, false
	}
	return heap.Pop(&w.queue).(dated).n, true
}

// Bytes estimates the memory of the walk.
func (w *Walk) Bytes() int64 { return int64(len(w.seen.words))*8 + int64(cap(w.queue.items))*24 }

// dateQueue is a heap with the latest date first; equal dates keep their order.
type dateQueue struct {
	items []dated
	next  int
}

type dated struct {
	n     Node
	time  int64
	order int
}

func (q *dateQueue) Len() int { return len(q.items) }
func (q *dateQueue) Less(i, j int) bool {
	if a, b := q.items[i].time, q.items[j].time; a != b {
		return a > b
	}
	return q.items[i].order < q.items[j].order
}
func (q *dateQueue) Swap(i, j int) { q.items[i], q.items[j] = q.items[j], q.items[i] }
func (q *dateQueue) Push(x any)    { q.items = append(q.items, x.(dated)) }
func (q *dateQueue) Pop() any {
	last := q.items[len(q.items)-1]
	q.items = q.items[:len(q.items)-1]
	return last
}

// Origin says in which Graph some nodes were numbered, without holding it.
type Origin struct {
	arena weak.Pointer[arena]
	packs []meta.PackID
}

// Origin returns what later tells whether nodes of g mean the same elsewhere.
func (g *Graph) Origin() Origin {
	o := Origin{arena: weak.Make(g.arena), packs: make([]meta.PackID, len(g.base))}
	for i, p := range g.db.Packs()[:len(g.base)] {
		o.packs[i] = p.Info().ID
	}
	return o
}

// Continues reports whether g certainly has all nodes of the Graph that o is of,
// with the same numbers.
func (g *Graph) Continues(o Origin) bool {
	if o.arena != weak.Make(g.arena) || len(o.packs) > len(g.base) {
		return false
	}
	for i, id := range o.packs {
		if id == 0 || id != g.db.Pack(int32(i)).Info().ID {
			return false
		}
	}
	return true
}
