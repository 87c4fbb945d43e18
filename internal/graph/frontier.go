package graph

import "container/heap"

// What a frontier knows of a commit.
const (
	isWanted uint8 = 1 << iota
	isHad
)

// frontier visits commits in order of generation, every commit after all of its
// descendants.
type frontier struct {
	queue  generationQueue
	colour map[Node]uint8
	// wanted counts the queued commits that are wanted and not had.
	wanted int
}

func newFrontier(g *Graph) *frontier {
	return &frontier{queue: generationQueue{g: g}, colour: map[Node]uint8{}}
}

// push queues a commit, or adds to what is known of a queued one.
func (f *frontier) push(n Node, c uint8) {
	old, known := f.colour[n]
	f.colour[n] = old | c
	if !known {
		heap.Push(&f.queue, n)
	}
	before, after := known && old == isWanted, old|c == isWanted
	switch {
	case after && !before:
		f.wanted++
	case before && !after:
		f.wanted--
	}
}

// pop returns the next commit and what is known of it.
func (f *frontier) pop() (Node, uint8) {
	n := heap.Pop(&f.queue).(Node)
	c := f.colour[n]
	if c == isWanted {
		f.wanted--
	}
	return n, c
}
