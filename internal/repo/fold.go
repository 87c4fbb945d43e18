package repo

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

const (
	// foldAt is how many packs may gather in a repository behind its compacted
	// ones before they are put together.
	foldAt = 48
	// foldShare says which packs are left as they are: those that are at least
	// that fraction of all later ones together. Each object is copied a few times
	// only, for its pack grows by several times, and what is left over are few
	// packs.
	foldShare = 4
	// maxTips bounds the tips, and the boundary, of a pack that is called exact.
	maxTips = 1 << 12
)

// inTail reports whether a pack of a repository is one that folding may take.
func inTail(p *meta.Pack, stays bool) bool {
	return p.Class != meta.PackCompact && p.Class != meta.PackGarbage && !stays
}

// foldable returns the range [lo, hi) of places of the packs that are put
// together: of the last packs of the set the small ones. Packs in held and in
// pinned are left alone.
func foldable(db *odb.DB, held, pinned map[meta.PackID]bool) (lo, hi int32) {
	hi = int32(len(db.Packs()))
	lo = hi
	for lo > 0 {
		p := db.Pack(lo - 1).Info()
		if !inTail(p, held[p.ID] || pinned[p.ID]) {
			break
		}
		lo--
	}
	last := make([]*meta.Pack, hi-lo)
	for i := range last {
		last[i] = db.Pack(lo + int32(i)).Info()
	}
	return lo + int32(smallTail(last)), hi
}

// fold replaces the last packs of a repository by one. It reports whether it
// did.
func (e *Engine) fold(ctx context.Context, id meta.RepoID) (bool, error) {
	v, err := e.current(ctx, id)
	if err != nil {
		return false, err
	}
	db, err := v.DB(ctx)
	if err != nil {
		return false, err
	}
	held, err := e.held(ctx, id)
	if err != nil {
		return false, err
	}
	lo, hi := foldable(db, held, e.jobs.pinned(id))
	if hi-lo < 2 {
		return false, nil
	}
	f := folding{db: db, lo: lo, hi: hi}
	made, err := e.foldPacks(ctx, v, &f)
	if err != nil {
		return false, err
	}
	defer made.file.Abort(ctx) // does nothing once it is published
	replace := &meta.PackReplace{}
	for _, p := range db.Packs()[lo:hi] {
		replace.Remove = append(replace.Remove, p.Info().ID)
	}
	return e.replace(ctx, v, db, replace, []*madePack{made}, false)
}

func (e *Engine) foldPacks(ctx context.Context, v *View, f *folding) (*madePack, error) {
	set, err := f.objects(ctx)
	if err != nil {
		return nil, err
	}
	made, err := e.copyObjects(ctx, meta.PackFolded, set)
	if err != nil {
		return nil, err
	}
	if made.file.Large() {
		// The history as a whole is only looked at where the tables of the packs
		// do not suffice.
		made.table, err = graph.Join(ctx, f.db, f.lo, f.hi, made.index)
		if err == nil && made.table == nil {
			made.table, err = commitTable(ctx, v, made.index)
		}
		if err != nil {
			made.file.Abort(ctx)
			return nil, err
		}
	}
	made.contents = f.contents(made.index)
	return made, nil
}

// folding is one pack made of those at the places [lo, hi).
type folding struct {
	db     *odb.DB
	lo, hi int32
	// whole says that no object is in two of the packs.
	whole bool
}

// objects returns everything in the packs, each object once: in the first pack
// that has it.
func (f *folding) objects(ctx context.Context) (*graph.ObjectSet, error) {
	type held struct {
		id  object.ID
		loc odb.Loc
	}
	var all []held
	for place := f.lo; place < f.hi; place++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		idx := f.db.Pack(place).Index()
		all = slices.Grow(all, idx.Count())
		for pos := range idx.Count() {
			all = append(all, held{idx.ID(pos), odb.Loc{Pack: place, Pos: int32(pos)}})
		}
	}
	slices.SortFunc(all, func(a, b held) int { return cmp.Or(a.id.Compare(b.id), cmp.Compare(a.loc.Pack, b.loc.Pack)) })
	again := make(map[int32]map[int32]bool) // positions in packs of what earlier ones have
	for i := 1; i < len(all); i++ {
		if loc := all[i].loc; all[i].id == all[i-1].id {
			if again[loc.Pack] == nil {
				again[loc.Pack] = make(map[int32]bool)
			}
			again[loc.Pack][loc.Pos] = true
		}
	}
	f.whole = len(again) == 0
	set := graph.NewObjectSet(f.db)
	for place := f.lo; place < f.hi; place++ {
		left := again[place]
		if left == nil {
			set.AddPack(place)
			continue
		}
		for pos := range int32(f.db.Pack(place).Index().Count()) {
			if !left[pos] {
				set.Add(odb.Loc{Pack: place, Pos: pos})
			}
		}
	}
	return set, nil
}

// contents says what the new pack is. Exact packs that follow each other make
// an exact one: what one of them has as its boundary is in another, or older
// than all of them.
func (f *folding) contents(index *pack.Index) odb.Contents {
	if !f.whole {
		return odb.Contents{}
	}
	boundary := make(map[object.ID]bool) // true: it is in another of the packs
	c := odb.Contents{Exact: true}
	for place := f.lo; place < f.hi; place++ {
		if !f.db.Exact(place) {
			return odb.Contents{}
		}
		for _, id := range f.db.Pack(place).Info().Boundary {
			if _, known := boundary[id]; known {
				continue
			}
			_, inner := index.Lookup(id)
			boundary[id] = inner
			if !inner {
				c.Boundary = append(c.Boundary, id)
			}
		}
	}
	for place := f.lo; place < f.hi; place++ {
		for _, id := range f.db.Pack(place).Info().Tips {
			if !boundary[id] {
				c.Tips = append(c.Tips, id)
			}
		}
	}
	if len(c.Tips) > maxTips || len(c.Boundary) > maxTips {
		return odb.Contents{}
	}
	return c
}

// madePack is a new pack that is not visible yet.
type madePack struct {
	file     *odb.PackFile
	index    *pack.Index
	table    []byte // its commit table; nil for one that becomes a row
	contents odb.Contents
}

// copyPack makes a pack of stored objects, compressed as they are.
func (e *Engine) copyPack(ctx context.Context, v *View, class meta.PackClass, set *graph.ObjectSet) (*madePack, error) {
	made, err := e.copyObjects(ctx, class, set)
	if err == nil && made.file.Large() {
		if made.table, err = commitTable(ctx, v, made.index); err != nil {
			made.file.Abort(ctx)
		}
	}
	return made, err
}

// copyObjects is copyPack without the commit table.
func (e *Engine) copyObjects(ctx context.Context, class meta.PackClass, set *graph.ObjectSet) (*madePack, error) {
	made := &madePack{file: e.cfg.ODB.NewPack(class)}
	out := packer{ctx: ctx, db: set.DB(), set: set, ofs: true, index: make([]pack.IndexEntry, 0, set.Len())}
	sum, err := out.write(made.file)
	if err == nil {
		made.index, err = pack.ParseIndex(pack.BuildIndex(out.index, sum))
	}
	if err != nil {
		made.file.Abort(ctx)
		return nil, fmt.Errorf("copy packs: %w", err)
	}
	return made, nil
}

// commitTable makes the commit table of a pack whose commits the view has.
func commitTable(ctx context.Context, v *View, index *pack.Index) ([]byte, error) {
	g, err := v.Graph(ctx)
	if err != nil {
		return nil, err
	}
	var commits []graph.Commit
	for pos := range index.Count() {
		if c, ok := g.Commit(index.ID(pos)); ok {
			commits = append(commits, c)
		}
	}
	return graph.Encode(index, commits, generations(g))
}
