package repo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/gitcmd"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// repacked makes the packs that take the place of the own ones: one of each part,
// and what is lost. They must be ended.
func (c *collection) repacked(ctx context.Context) (made []*madePack, err error) {
	defer func() {
		if err != nil {
			abortAll(ctx, made)
		}
	}()
	if slices.ContainsFunc(c.parts[:], func(p part) bool { return p.n > 0 }) {
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
	dir, err := c.engine.room.NewDir()
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
	var err error
	made.index, _, err = c.engine.receiveIndexed(ctx, r, made.file, pack.Options{
		RefuseTrailing: true, Scratch: func() (pack.Scratch, error) { return newScratch(c.engine.cfg.Scratch) },
	})
	r.CloseWithError(errors.New("the pack was refused"))
	if failed := <-ran; failed != nil && err != nil {
		return fmt.Errorf("repack: %w", failed)
	}
	if err != nil {
		return fmt.Errorf("take in the pack that git made: %w", err)
	}
	return nil
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
// shared packs and in the parts before. What shared packs build on comes before
// those that are not closed, and makes them so.
func (c *collection) contents(ctx context.Context, i int) (odb.Contents, error) {
	var none odb.Contents
	var boundary []object.ID
	for _, place := range c.shared {
		switch {
		case c.closed[place]:
		case i == partNeeded && !c.parts[i].gaps:
			continue
		case i == partNeeded || !c.db.Pack(place).Info().Exact:
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
