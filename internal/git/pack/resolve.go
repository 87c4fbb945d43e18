package pack

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"

	"github.com/cairnstate/cairn/internal/git/object"
)

const (
	// maxHeld is the largest blob that is held in memory while deltas are
	// resolved; larger ones go to scratch files.
	maxHeld = 16 << 20

	// maxHeldDelta is the largest delta that is held in memory.
	maxHeldDelta = 4 << 20

	// heldBases is how many bytes of bases each resolver keeps for later
	// deltas, beside the one in use. What it drops is made again.
	heldBases = 16 << 20
)

// holdLimit is the largest object of a type that is held in memory.
func holdLimit(t object.Type) int64 {
	if t == object.Blob {
		return maxHeld
	}
	return MaxStructured
}

// content is an object that deltas are applied to.
type content struct {
	mem  []byte
	file Scratch // instead of mem, for large objects
	size int64
}

func (c *content) present() bool { return c.mem != nil || c.file != nil }

// section returns the content to be read from its beginning.
func (c *content) section() io.Reader { return io.NewSectionReader(c.readerAt(), 0, c.size) }

func (c *content) readerAt() io.ReaderAt {
	if c.file != nil {
		return c.file
	}
	return bytes.NewReader(c.mem)
}

// tree is an object whose deltas, and theirs, are to be resolved.
type tree struct {
	obj   uint32
	typ   object.Type
	base  content // absent for an object stored whole, which can be read again
	depth int
}

// resolve names every delta whose base is in the pack.
func (x *indexer) resolve() error {
	x.groups = x.rows.groupRefs(x.refs)
	q := &queue{x: x, resolvers: workers()}
	q.cond.L = &q.mu
	if x.rows.count < 64 {
		q.resolvers = 1
	}
	var wg sync.WaitGroup
	for range q.resolvers - 1 {
		wg.Go(func() { q.work(newResolver(x, q)) })
	}
	q.work(newResolver(x, q))
	wg.Wait()
	return q.err
}

// hasDeltas reports whether deltas against an object wait for it.
func (x *indexer) hasDeltas(obj uint32) bool {
	if x.rows.child(obj) != 0 {
		return true
	}
	g := findGroup(x.groups, x.rows.id(obj))
	return g != nil && g.first.Load() != 0
}

// queue hands out the trees of a pack. Resolvers that run out of work get
// parts of the others' trees.
type queue struct {
	x         *indexer
	resolvers int

	mu   sync.Mutex
	cond sync.Cond
	next uint32 // first object that no resolver has searched
	gift []tree
	idle atomic.Int32 // resolvers that wait
	err  error
}

// work resolves trees until there are none, or one fails.
func (q *queue) work(r *resolver) {
	for {
		t, ok := r.nextWhole()
		if !ok {
			if t, ok = q.take(r); !ok {
				return
			}
		}
		if err := r.resolve(t); err != nil {
			q.mu.Lock()
			if q.err == nil {
				q.err = err
			}
			q.mu.Unlock()
			q.cond.Broadcast()
			return
		}
	}
}

// searchStep is how many objects a resolver searches for trees at a time.
const searchStep = 1024

// take returns another resolver's tree, waiting while one may come, unless
// there are objects left to search.
func (q *queue) take(r *resolver) (tree, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.err == nil {
		if n := len(q.gift); n > 0 {
			t := q.gift[n-1]
			q.gift = q.gift[:n-1]
			return t, true
		}
		if count := uint32(q.x.rows.count); q.next < count {
			r.next, r.last = q.next, min(count, q.next+searchStep)
			q.next = r.last
			q.mu.Unlock()
			t, ok := r.nextWhole()
			q.mu.Lock()
			if ok {
				return t, true
			}
			continue
		}
		if q.idle.Add(1) == int32(q.resolvers) {
			q.cond.Broadcast()
			return tree{}, false
		}
		q.cond.Wait()
		if q.idle.Load() == int32(q.resolvers) {
			return tree{}, false
		}
		q.idle.Add(-1)
	}
	return tree{}, false
}

// wanted reports whether a resolver may be waiting for a gift.
func (q *queue) wanted() bool { return q.idle.Load() > 0 }

// give hands a tree to a resolver that waits, if there is one.
func (q *queue) give(t tree) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.gift) >= int(q.idle.Load()) {
		return false
	}
	q.gift = append(q.gift, t)
	q.cond.Signal()
	return true
}
