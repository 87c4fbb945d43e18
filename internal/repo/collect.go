package repo

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// collection is one look at a repository: what is reachable in it, and what the
// packs hold besides. Everything that refs of both namespaces reach is live, and
// what tips reach that left a ref so lately that an operation may still use it.
type collection struct {
	engine *Engine
	view   *View
	db     *odb.DB
	graph  *graph.Graph

	own     []int32 // places of packs that may be made anew
	shared  []int32 // places of packs that others hold, and which stay
	garbage []int32 // places of garbage packs
	held    map[meta.PackID]bool
	closed  map[int32]bool // shared packs that need no others than each other
	// live is all that stays: what is reachable, the closed packs, and what other
	// shared packs build on.
	live  *graph.ObjectSet
	parts [3]part // of live what no shared pack holds
	// lost is what is not reachable.
	lost *graph.ObjectSet
	// passing says that something is live only for its grace.
	passing bool
}

// part is the contents of one new pack.
type part struct {
	tips []object.ID
	list *scratch // one line for each object, as git pack-objects reads it
	n    int
	gaps bool // some of what tips reach is in shared packs that are not closed
}

// The parts, in the order in which they are listed.
const (
	partNeeded   = iota // what shared packs build on
	partBranches        // what branches and tags reach, which is what most clones want
	partOthers          // what else is live
)

// look finds out what is reachable. end must be called.
func (e *Engine) look(ctx context.Context, id meta.RepoID) (*collection, error) {
	// Before the refs are read: who begins later sees them, or newer ones.
	since, err := e.unused(ctx)
	if err != nil {
		return nil, err
	}
	c := &collection{engine: e}
	if err := c.open(ctx, id); err != nil {
		return nil, err
	}
	if c.graph, err = c.view.Graph(ctx); err != nil {
		return nil, err
	}
	if c.held, err = e.held(ctx, id); err != nil {
		return nil, err
	}
	c.live, c.lost = graph.NewObjectSet(c.db), graph.NewObjectSet(c.db)
	for i, p := range c.db.Packs() {
		switch {
		case p.Info().Class == meta.PackGarbage:
			c.garbage = append(c.garbage, int32(i))
		case c.held[p.Info().ID]:
			c.shared = append(c.shared, int32(i))
		default:
			c.own = append(c.own, int32(i))
		}
	}
	c.closed = closedPacks(c.db, c.shared)
	for place := range c.closed {
		c.live.AddPack(place) // no walk need go through it
	}
	if err := c.walk(ctx, since); err != nil {
		c.end()
		return nil, err
	}
	c.findLost()
	return c, nil
}

// open takes a view with the packs of its own version: later ones hold objects
// whose refs it does not have, and would part those as lost.
func (c *collection) open(ctx context.Context, id meta.RepoID) (err error) {
	for range maxAttempts {
		if c.view, err = c.engine.current(ctx, id); err != nil {
			return err
		}
		var exact bool
		if c.db, exact, err = c.view.exactDB(ctx); err != nil || exact {
			return err
		}
	}
	return &ConflictError{Ref: "the packs"}
}

// unused returns the time from which on tips that left a ref may be in use by an
// operation that is running anywhere.
func (e *Engine) unused(ctx context.Context) (time.Time, error) {
	since := e.cfg.Clock()
	live, err := e.cfg.Meta.Processes(ctx)
	if err != nil {
		return since, fmt.Errorf("read processes: %w", err)
	}
	for _, p := range live {
		if t := oldestOperation(p); t.Before(since) {
			since = t
		}
	}
	if t := e.operations.oldest(); !t.IsZero() && t.Before(since) {
		since = t
	}
	return since.Add(-e.cfg.Grace - e.skew), nil
}

// walk lists what is live.
func (c *collection) walk(ctx context.Context, since time.Time) error {
	c.parts[partNeeded].tips = c.needed()
	err := c.view.Refs(ctx, "", func(r meta.Ref) error {
		p := &c.parts[partOthers]
		if strings.HasPrefix(r.Name, refname.HeadsPrefix) || strings.HasPrefix(r.Name, refname.TagsPrefix) {
			p = &c.parts[partBranches]
		}
		p.tips = append(p.tips, r.ID)
		return nil
	})
	if err != nil {
		return err
	}
	for i := range c.parts {
		if err := c.list(ctx, &c.parts[i], c.parts[i].tips); err != nil {
			return err
		}
	}
	left, err := c.engine.cfg.Meta.LeftTips(ctx, c.view.repo.ID, since)
	if err != nil {
		return fmt.Errorf("read tips that left their refs: %w", err)
	}
	// What was collected before, or is older than this repository, is no object.
	left = slices.DeleteFunc(left, func(id object.ID) bool { return !c.db.Has(id) })
	others := &c.parts[partOthers]
	before := others.n
	if err := c.list(ctx, others, left); err != nil {
		return err
	}
	others.tips = append(others.tips, left...)
	c.passing = others.n > before
	return nil
}

// list adds what tips reach to a part.
func (c *collection) list(ctx context.Context, p *part, tips []object.ID) error {
	if p.list == nil {
		f, err := newScratch(c.engine.cfg.Scratch)
		if err != nil {
			return err
		}
		p.list = f
	}
	w := bufio.NewWriterSize(p.list, 64<<10)
	err := c.graph.List(ctx, tips, c.live, func(o graph.Listed) error {
		if c.stays(o) {
			p.gaps = true
			return nil
		}
		p.n++
		fmt.Fprintf(w, "%s ", o.ID)
		for _, b := range o.Name {
			if b == '\n' || b == 0 {
				b = ' '
			}
			w.WriteByte(b)
		}
		return w.WriteByte('\n')
	})
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return fmt.Errorf("list reachable objects: %w", err)
	}
	return nil
}

// stays reports whether a shared pack holds an object.
func (c *collection) stays(o graph.Listed) bool {
	for _, place := range c.shared {
		if place < o.Loc.Pack { // it would have been found there
			continue
		}
		if place == o.Loc.Pack {
			return true
		}
		if _, ok := c.db.Pack(place).Index().Lookup(o.ID); ok {
			return true
		}
	}
	return false
}

// findLost finds what own packs hold and nothing reaches.
func (c *collection) findLost() {
	for _, place := range c.own {
		idx := c.db.Pack(place).Index()
		for pos := range idx.Count() {
			at := odb.Loc{Pack: place, Pos: int32(pos)}
			if c.live.Has(at) {
				continue
			}
			if loc, _ := c.db.Find(idx.ID(pos)); loc == at {
				c.lost.Add(at)
			}
		}
	}
}

// end releases the lists.
func (c *collection) end() {
	for i := range c.parts {
		if f := c.parts[i].list; f != nil {
			f.Close()
			c.parts[i].list = nil
		}
	}
}

// expired returns the garbage packs whose grace is over.
func (c *collection) expired() []int32 {
	var out []int32
	now := c.engine.cfg.Clock()
	for _, place := range c.garbage {
		if now.Sub(c.db.Pack(place).Info().CreatedAt) > c.engine.cfg.GarbageGrace {
			out = append(out, place)
		}
	}
	return out
}

// allReached reports whether refs reach everything in the shared packs, and what
// those build on.
func (c *collection) allReached(ctx context.Context) (bool, error) {
	if len(c.shared) == 0 || c.view.repo.Tidy {
		return true, nil
	}
	closure, err := c.view.Closure(ctx)
	if err != nil {
		return false, err
	}
	reached, err := closure.Objects(ctx)
	if err != nil {
		return false, err
	}
	for _, place := range c.shared {
		idx := c.db.Pack(place).Index()
		if reached.CountIn(place) == idx.Count() {
			continue
		}
		for pos := range idx.Count() {
			if loc, _ := c.db.Find(idx.ID(pos)); !reached.Has(loc) {
				return false, ctx.Err()
			}
		}
	}
	for _, id := range c.parts[partNeeded].tips {
		if loc, _ := c.db.Find(id); !reached.Has(loc) {
			return false, ctx.Err()
		}
	}
	return true, ctx.Err()
}
