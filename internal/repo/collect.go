package repo

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/gitcmd"
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
	if c.view, err = e.current(ctx, id); err != nil {
		return nil, err
	}
	if c.db, err = c.view.DB(ctx); err != nil {
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

// repacked makes the packs that take the place of the own ones: branches and
// tags, what else is live, and what is lost. They must be ended.
func (c *collection) repacked(ctx context.Context) (made []*madePack, err error) {
	defer func() {
		if err != nil {
			abortAll(ctx, made)
		}
	}()
	if c.parts[0].n+c.parts[1].n > 0 {
		dir, err := c.materialise(ctx)
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		for i := range c.parts {
			m, err := c.pack(ctx, dir, i)
			if err != nil {
				return made, err
			}
			if m != nil {
				made = append(made, m)
			}
		}
	}
	if c.lost.Len() > 0 && c.engine.cfg.GarbageGrace > 0 {
		m, err := c.engine.copyPack(ctx, c.view, meta.PackGarbage, c.lost)
		if err != nil {
			return made, err
		}
		made = append(made, m)
	}
	return made, nil
}

func abortAll(ctx context.Context, made []*madePack) {
	for _, m := range made {
		m.file.Abort(ctx) // what remains, the sweep removes
	}
}

// scattered is over how many packs the objects of one folded pack are spread for
// git, which tries no deltas between objects that lie whole in the same pack.
const scattered = 8

// materialise gives git the own packs as files.
func (c *collection) materialise(ctx context.Context) (*gitcmd.Dir, error) {
	dir, err := gitcmd.NewDir(c.engine.cfg.Scratch)
	if err != nil {
		return nil, err
	}
	for _, place := range c.own {
		p := c.db.Pack(place)
		switch {
		case p.Index().Count() == 0:
		case p.Info().Class == meta.PackFolded:
			err = c.scatter(ctx, dir, place)
		default:
			err = dir.AddPack(p.Index().PackChecksum(), p, p.Index().Bytes())
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			dir.Close()
			return nil, err
		}
	}
	return dir, nil
}

// scatter gives git one pack as several.
func (c *collection) scatter(ctx context.Context, dir *gitcmd.Dir, place int32) error {
	for k := range scattered {
		set := graph.NewObjectSet(c.db)
		for pos := k; pos < c.db.Pack(place).Index().Count(); pos += scattered {
			set.Add(odb.Loc{Pack: place, Pos: int32(pos)})
		}
		if set.Len() == 0 {
			continue
		}
		made, err := c.engine.copyObjects(ctx, meta.PackFolded, set)
		if err != nil {
			return err
		}
		pending, err := made.file.Pending(made.index)
		if err == nil {
			err = dir.AddPack(made.index.PackChecksum(), pending, made.index.Bytes())
		}
		if err := errors.Join(err, made.file.Abort(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// repackTimeout bounds one run of git pack-objects.
const repackTimeout = 2 * time.Hour

// pack has git make the pack of one part; nil when there is nothing in it. What
// git wrote is indexed and checked as if it had been pushed, and must be exactly
// what was asked for.
func (c *collection) pack(ctx context.Context, dir *gitcmd.Dir, i int) (*madePack, error) {
	p := &c.parts[i]
	if p.n == 0 {
		return nil, nil
	}
	made := &madePack{file: c.engine.cfg.ODB.NewPack(meta.PackCompact)}
	err := c.packObjects(ctx, dir, p, made)
	if err == nil {
		err = c.asked(p, made.index)
	}
	if err == nil && made.file.Large() {
		made.table, err = commitTable(ctx, c.view, made.index)
	}
	if err == nil {
		made.contents, err = c.contents(ctx, i)
	}
	if err == nil && made.file.Large() && made.contents.Exact && len(made.contents.Boundary) == 0 {
		err = c.addBitmaps(ctx, made)
	}
	if err != nil {
		made.file.Abort(ctx)
		return nil, err
	}
	return made, nil
}

// addBitmaps puts bitmaps behind the commit table of a pack that needs no other.
// Making them walks all of it once more, in the pack alone.
func (c *collection) addBitmaps(ctx context.Context, made *madePack) error {
	pending, err := made.file.Pending(made.index)
	if err != nil {
		return err
	}
	g, err := graph.Solo(ctx, c.engine.cfg.ODB, pending, made.table)
	if err != nil {
		return fmt.Errorf("open the new pack: %w", err)
	}
	maps, err := graph.EncodeBitmaps(ctx, g, made.contents.Tips)
	made.table = append(made.table, maps...)
	return err
}

// packObjects runs git and takes in what it writes.
func (c *collection) packObjects(ctx context.Context, dir *gitcmd.Dir, p *part, made *madePack) error {
	r, w := io.Pipe()
	ran := make(chan error, 1)
	go func() {
		err := c.engine.cfg.Git.Run(ctx, dir, gitcmd.Command{
			Name:    gitcmd.PackObjects,
			Options: []string{"--stdout", "-q", "--delta-base-offset", "--threads=1"},
			In:      io.NewSectionReader(p.list, 0, p.list.size), Out: w,
			Timeout: repackTimeout, MaxOutput: 1 << 50,
		})
		w.CloseWithError(err)
		ran <- err
	}()
	res, err := pack.Receive(ctx, r, made.file, pack.Options{
		RefuseTrailing: true, Scratch: func() (pack.Scratch, error) { return newScratch(c.engine.cfg.Scratch) },
	})
	r.CloseWithError(errors.New("the pack was refused"))
	if failed := <-ran; failed != nil && err != nil {
		return fmt.Errorf("repack: %w", failed)
	}
	if err != nil {
		return fmt.Errorf("take in the pack that git made: %w", err)
	}
	var idx bytes.Buffer
	idx.Grow(indexOverhead + indexPerObject*res.Count())
	if err := res.WriteIndex(&idx); err != nil {
		return fmt.Errorf("index pack: %w", err)
	}
	made.index, err = pack.ParseIndex(idx.Bytes())
	return err
}

// asked checks that a pack holds exactly what its list says.
func (c *collection) asked(p *part, idx *pack.Index) error {
	if idx.Count() != p.n {
		return fmt.Errorf("git packed %d objects where %d were asked for", idx.Count(), p.n)
	}
	lines := bufio.NewReaderSize(io.NewSectionReader(p.list, 0, p.list.size), 64<<10)
	for range p.n {
		line, err := lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("read the list of objects: %w", err)
		}
		id, perr := object.ParseID(string(line[:2*object.Size]))
		if perr != nil {
			return fmt.Errorf("read the list of objects: %w", perr)
		}
		if _, ok := idx.Lookup(id); !ok {
			return fmt.Errorf("git left out object %s", id)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = lines.ReadSlice('\n')
		}
	}
	return nil
}

// contents says what the pack of a part is: closure(tips) without what is in the
// packs that a fork shares and in the parts before.
func (c *collection) contents(ctx context.Context, i int) (odb.Contents, error) {
	var none odb.Contents
	var boundary []object.ID
	for _, place := range c.shared {
		if !c.db.Exact(place) {
			return none, nil
		}
		boundary = append(boundary, c.db.Pack(place).Info().Tips...)
	}
	for _, p := range c.parts[:i] {
		boundary = append(boundary, p.tips...)
	}
	tips, err := c.outermost(ctx, c.parts[i].tips)
	if err != nil {
		return none, err
	}
	commits := len(c.graph.Nodes(tips)) == len(tips)
	for k, id := range boundary {
		// Where no tag is among the tips, no tag of the boundary can be missed.
		if boundary[k], err = c.graph.Peel(ctx, id); err != nil {
			return none, err
		}
		if _, ok := c.graph.Node(boundary[k]); !ok || id != boundary[k] && !commits {
			return none, nil
		}
	}
	boundary, err = c.outermost(ctx, boundary)
	if err != nil || len(tips) > maxTips || len(boundary) > maxTips {
		return none, err
	}
	return odb.Contents{Exact: true, Tips: tips, Boundary: boundary}, nil
}

// outermost returns the ids without repetitions and without the commits that
// others among them reach.
func (c *collection) outermost(ctx context.Context, ids []object.ID) ([]object.ID, error) {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, object.ID.Compare)
	ids = slices.Compact(ids)
	var parents []graph.Node
	for _, n := range c.graph.Nodes(ids) {
		parents = append(parents, c.graph.Parents(n)...)
	}
	inner := c.graph.NewCommitSet()
	if err := c.graph.Reach(ctx, parents, nil, inner); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ids, func(id object.ID) bool {
		n, ok := c.graph.Node(id)
		return ok && inner.Has(n)
	}), nil
}
