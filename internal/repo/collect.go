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

	own     []int32 // places of packs that are the repository's own
	shared  []int32 // places of packs that a fork shares with its source
	garbage []int32 // places of garbage packs
	// shed says that most of what is shared is dead to the fork, and is given up:
	// shared is empty then, and own has all.
	shed bool
	// live is all that is reachable, and all of the packs that a fork shares.
	live  *graph.ObjectSet
	parts [2]part // of live what own packs hold
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
}

// look finds out what is reachable. With shed, a fork gives up the packs that it
// shares when most of their bytes are dead to it. end must be called.
func (e *Engine) look(ctx context.Context, id meta.RepoID, shed bool) (*collection, error) {
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
	c.live, c.lost = graph.NewObjectSet(c.db), graph.NewObjectSet(c.db)
	for i, p := range c.db.Packs() {
		switch {
		case p.Info().Class == meta.PackGarbage:
			c.garbage = append(c.garbage, int32(i))
		case inherited(c.view.repo, p.Info()):
			c.shared = append(c.shared, int32(i))
		default:
			c.own = append(c.own, int32(i))
		}
	}
	if shed {
		if err := c.shedDead(ctx); err != nil {
			return nil, err
		}
	}
	for _, place := range c.shared {
		c.live.AddPack(place)
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

// walk lists what is live: what branches and tags reach, which is what most
// clones want, then the rest.
func (c *collection) walk(ctx context.Context, since time.Time) error {
	err := c.view.Refs(ctx, "", func(r meta.Ref) error {
		p := &c.parts[1]
		if strings.HasPrefix(r.Name, refname.HeadsPrefix) || strings.HasPrefix(r.Name, refname.TagsPrefix) {
			p = &c.parts[0]
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
	before := c.parts[1].n
	if err := c.list(ctx, &c.parts[1], left); err != nil {
		return err
	}
	c.parts[1].tips = append(c.parts[1].tips, left...)
	c.passing = c.parts[1].n > before
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

// findLost finds what own packs hold and nothing reaches. What a fork had from
// its source is the source's to keep.
func (c *collection) findLost() {
	for _, place := range c.own {
		if inherited(c.view.repo, c.db.Pack(place).Info()) {
			continue
		}
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

// reachedShared returns the bytes of the packs that a fork shares, and those of
// objects in them that its refs reach; of each object one copy counts.
func (c *collection) reachedShared(ctx context.Context) (all, reached int64, err error) {
	closure, err := c.view.Closure(ctx)
	if err != nil {
		return 0, 0, err
	}
	objects, err := closure.Objects(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, place := range c.shared {
		c.eachEntry(place, func(at odb.Loc, bytes int64) {
			if loc, _ := c.db.Find(c.db.ID(at)); loc != at {
				return
			}
			all += bytes
			if objects.Has(at) {
				reached += bytes
			}
		})
	}
	return all, reached, ctx.Err()
}

// sharedReached reports whether refs reach everything in the packs that a fork
// shares. The packs of no fork hold nothing else.
func (c *collection) sharedReached(ctx context.Context) (bool, error) {
	if len(c.shared) == 0 || c.view.repo.Tidy {
		return true, nil
	}
	all, reached, err := c.reachedShared(ctx)
	return all == reached, err
}

// shedDead decides whether the shared packs are given up: all or none, because
// what is left must hold all that it names.
func (c *collection) shedDead(ctx context.Context) error {
	if len(c.shared) == 0 || c.view.repo.Tidy {
		return nil
	}
	all, reached, err := c.reachedShared(ctx)
	if err == nil && 2*reached < all {
		c.shed = true
		c.own, c.shared = append(c.shared, c.own...), nil
	}
	return err
}
