package graph

import (
	"context"
	"sync"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Closure is everything that tips reach. It is safe for concurrent use.
type Closure struct {
	g       *Graph
	tips    []object.ID
	commits *CommitSet

	mu      sync.Mutex
	objects *ObjectSet // of all types; nil until it is needed
}

// Closure returns everything that tips reach. Commits are walked now, other
// objects when they are first asked for.
func (g *Graph) Closure(ctx context.Context, tips []object.ID) (*Closure, error) {
	c := &Closure{g: g, tips: tips, commits: g.NewCommitSet()}
	roots, err := g.peelAll(ctx, tips)
	if err != nil {
		return nil, err
	}
	return c, g.Reach(ctx, roots, nil, c.commits)
}

// peelAll returns the commits that tips are or that tags among them lead to.
func (g *Graph) peelAll(ctx context.Context, tips []object.ID) ([]Node, error) {
	roots := make([]Node, 0, len(tips))
	for _, id := range tips {
		n, ok := g.Node(id)
		if !ok {
			peeled, err := g.Peel(ctx, id)
			if err != nil {
				return nil, err
			}
			if n, ok = g.Node(peeled); !ok {
				continue
			}
		}
		roots = append(roots, n)
	}
	return roots, nil
}

// Peel follows tags, and returns what the last one names.
func (g *Graph) Peel(ctx context.Context, id object.ID) (object.ID, error) {
	for {
		if _, ok := g.Node(id); ok {
			return id, nil
		}
		t, err := g.db.Type(ctx, id)
		if err != nil || t != object.Tag {
			return id, err
		}
		_, data, err := g.db.Get(ctx, id)
		if err != nil {
			return object.Zero, err
		}
		if id, _, err = object.TagTarget(data); err != nil {
			return object.Zero, err
		}
	}
}

// Extend returns the closure of c's tips and further ones in g, which was opened
// near c's Graph. It costs what is new. The objects of exact packs are taken as
// a whole.
func (c *Closure) Extend(ctx context.Context, g *Graph, tips []object.ID) (*Closure, error) {
	if g.arena != c.g.arena || !c.g.covers(g.db) {
		return g.Closure(ctx, append(c.tips[:len(c.tips):len(c.tips)], tips...))
	}
	out := &Closure{g: g, tips: append(c.tips[:len(c.tips):len(c.tips)], tips...), commits: c.commits.grown(g)}
	roots, err := g.peelAll(ctx, tips)
	if err != nil {
		return nil, err
	}
	if err := g.Reach(ctx, roots, nil, out.commits); err != nil {
		return nil, err
	}
	c.mu.Lock()
	known := c.objects
	c.mu.Unlock()
	if known == nil {
		return out, nil
	}
	s := &selector{g: g, ctx: ctx, q: &Query{Wants: tips, Whole: true}, set: known.grown(g.db), had: NewObjectSet(g.db), explicit: map[object.ID]bool{}}
	if _, err := s.split(tips); err != nil {
		return nil, err
	}
	s.send, s.have = g.NewCommitSet(), c.commits
	for n := range out.commits.Each {
		if !c.commits.Has(n) {
			s.send.Add(n)
		}
	}
	if _, err := s.run(); err != nil {
		return nil, err
	}
	out.objects = s.set
	return out, nil
}

// Tips returns what the closure was computed from. It must not be modified.
func (c *Closure) Tips() []object.ID { return c.tips }

// HasCommit reports whether the closure has a commit of its Graph.
func (c *Closure) HasCommit(n Node) bool { return c.commits.Has(n) }

// Commits returns the commits of the closure. It must not be modified.
func (c *Closure) Commits() *CommitSet { return c.commits }

// Contains reports whether the closure has an object. The first object that is
// no commit lists all objects.
func (c *Closure) Contains(ctx context.Context, id object.ID) (bool, error) {
	if n, ok := c.g.Node(id); ok {
		return c.commits.Has(n), nil
	}
	loc, ok := c.g.db.Find(id)
	if !ok {
		return false, nil
	}
	objects, err := c.Objects(ctx)
	return err == nil && objects.Has(loc), err
}

// Objects returns all objects of the closure. It must not be modified.
func (c *Closure) Objects(ctx context.Context) (*ObjectSet, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects == nil {
		sel, err := c.g.Select(ctx, Query{Wants: c.tips, Whole: true})
		if err != nil {
			return nil, err
		}
		c.objects = sel.Objects
	}
	return c.objects, nil
}

// Bytes estimates the memory of the closure.
func (c *Closure) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := int64(len(c.commits.words))*8 + int64(len(c.tips))*20
	if c.objects != nil {
		n += c.objects.Bytes()
	}
	return n
}
