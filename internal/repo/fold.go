package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

const (
	// foldAt is how many packs that are rows a repository may have before they
	// are put together.
	foldAt = 48
	// foldBytes bounds the pack that folding makes.
	foldBytes = 32 << 20
	// foldTimeout bounds one fold.
	foldTimeout = time.Minute
)

// folds are the repositories whose packs this process is putting together.
type folds struct {
	mu      sync.Mutex
	running map[meta.RepoID]bool
}

// begin reports whether the caller is to fold a repository now.
func (f *folds) begin(id meta.RepoID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running[id] {
		return false
	}
	if f.running == nil {
		f.running = make(map[meta.RepoID]bool)
	}
	f.running[id] = true
	return true
}

func (f *folds) end(id meta.RepoID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.running, id)
}

// foldIfDue puts the small packs of a repository together when it has gathered
// many. The writer who finds them does it after its own change is durable; it
// holds up nobody else. Its failure changes nothing, so it is only reported.
func (e *Engine) foldIfDue(ctx context.Context, v *View) {
	db, err := v.DB(ctx)
	if err != nil {
		return
	}
	small := 1 // the writer's own
	for _, p := range db.Packs() {
		if p.Info().Inline && !inherited(v.repo, p.Info()) {
			small++
		}
	}
	if small < foldAt || !e.folds.begin(v.repo.ID) {
		return
	}
	defer e.folds.end(v.repo.ID)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), foldTimeout)
	defer cancel()
	if err := e.fold(ctx, v.repo.ID); err != nil {
		e.report(fmt.Errorf("fold packs of repository %d: %w", v.repo.ID, err))
	}
}

// inherited reports whether a fork has the pack from its source: those stay as
// they are, shared.
func inherited(r meta.Repo, p *meta.Pack) bool {
	return r.Source != 0 && !p.CreatedAt.After(r.CreatedAt)
}

// fold replaces small packs by one.
func (e *Engine) fold(ctx context.Context, id meta.RepoID) error {
	r, err := e.row(ctx, id)
	if err != nil {
		return err
	}
	v, err := e.View(ctx, r)
	if err != nil {
		return err
	}
	db, err := v.DB(ctx)
	if err != nil {
		return err
	}
	f := folding{db: db, places: foldable(v.repo, db), file: e.cfg.ODB.NewPack(meta.PackFolded)}
	if len(f.places) < 2 {
		return nil
	}
	defer f.file.Abort(ctx) // does nothing once it is published
	if err := f.write(); err != nil {
		return err
	}
	var table []byte
	if f.file.Large() {
		if table, err = f.table(ctx, v); err != nil {
			return err
		}
	}
	row, err := f.file.Finish(ctx, f.index, table, f.contents())
	if err != nil {
		return err
	}
	c := meta.Change{Org: v.repo.Org, Repo: id, ReplacePacks: &meta.PackReplace{Add: []meta.PackWrite{*row}}}
	for _, place := range f.places {
		c.ReplacePacks.Remove = append(c.ReplacePacks.Remove, db.Pack(place).Info().ID)
	}
	verdict, err := e.cfg.Meta.Apply(ctx, c)
	switch {
	case err != nil && !errors.Is(err, meta.ErrNotApplied):
		f.file.Leave()
	case err == nil && verdict.Applied:
		e.rules.applied(id, verdict.Version, false)
		f.file.Published(f.index)
	}
	return err
}

// foldable returns the places of the packs that are put together: the small
// ones, and folded ones as long as they are not much larger than what is added
// to them, so that each object is copied a few times only.
func foldable(r meta.Repo, db *odb.DB) []int32 {
	var places []int32
	var sum int64
	for i := int32(len(db.Packs())) - 1; i >= 0; i-- {
		p := db.Pack(i).Info()
		grow := p.Class == meta.PackFolded && p.Bytes <= 2*sum && p.Bytes+sum <= foldBytes
		if (p.Inline || grow) && !inherited(r, p) {
			places, sum = append(places, i), sum+p.Bytes
		}
	}
	slices.Reverse(places)
	return places
}

// folding is one pack made of several.
type folding struct {
	db     *odb.DB
	places []int32 // in order
	file   *odb.PackFile

	index   *pack.Index
	entries []pack.IndexEntry
	whole   bool // no object was in two of the packs
}

// write copies the packs, their entries as they are.
func (f *folding) write() error {
	count := make(map[object.ID]int)
	for _, place := range f.places {
		idx := f.db.Pack(place).Index()
		for pos := range idx.Count() {
			count[idx.ID(pos)]++
		}
	}
	f.whole = true
	w := pack.NewWriter(f.file, uint32(len(count)))
	for _, place := range f.places {
		p := f.db.Pack(place)
		var err error
		if f.repeats(p, count) {
			f.whole = false
			err = f.copyObjects(w, p, count)
		} else {
			err = f.copyEntries(w, p)
		}
		if err != nil {
			return fmt.Errorf("copy pack %d: %w", p.Info().ID, err)
		}
	}
	sum, err := w.Close()
	if err != nil {
		return err
	}
	f.index, err = pack.ParseIndex(pack.BuildIndex(f.entries, sum))
	return err
}

// repeats reports whether another pack has an object of p too.
func (f *folding) repeats(p *odb.Pack, count map[object.ID]int) bool {
	for pos := range p.Index().Count() {
		if count[p.Index().ID(pos)] != 1 {
			return true
		}
	}
	return false
}

// copyEntries copies a pack in one run: offsets to delta bases are relative.
func (f *folding) copyEntries(w *pack.Writer, p *odb.Pack) error {
	shift := w.Offset() - packHeader
	idx, end := p.Index(), p.File().Size()-packTrailer
	if err := w.CopyRun(p.File().Run(packHeader, end), end-packHeader, uint32(idx.Count())); err != nil {
		return err
	}
	for pos := range idx.Count() {
		f.entries = append(f.entries, pack.IndexEntry{ID: idx.ID(pos), Offset: idx.Offset(pos) + shift, CRC: idx.CRC(pos)})
	}
	return nil
}

// copyObjects copies the objects of a pack that no earlier one brought, each
// stored whole: their bases may not come along.
func (f *folding) copyObjects(w *pack.Writer, p *odb.Pack, count map[object.ID]int) error {
	for pos := range p.Index().Count() {
		id := p.Index().ID(pos)
		if count[id] == 0 {
			continue
		}
		count[id] = 0
		t, data, err := p.Get(pos)
		if err != nil {
			return err
		}
		at, err := w.Add(t, data)
		if err != nil {
			return err
		}
		f.entries = append(f.entries, pack.IndexEntry{ID: id, Offset: at.Offset, CRC: at.CRC})
	}
	return nil
}

// table makes the commit table of the new pack.
func (f *folding) table(ctx context.Context, v *View) ([]byte, error) {
	g, err := v.Graph(ctx)
	if err != nil {
		return nil, err
	}
	var commits []graph.Commit
	for pos := range f.index.Count() {
		if c, ok := g.Commit(f.index.ID(pos)); ok {
			commits = append(commits, c)
		}
	}
	return graph.Encode(f.index, commits, generations(g))
}

// contents says what the new pack is. Exact packs that follow each other make
// an exact one: what one of them has as its boundary is in another, or older
// than all of them.
func (f *folding) contents() odb.Contents {
	first, last := f.places[0], f.places[len(f.places)-1]
	if !f.whole || int(last-first) != len(f.places)-1 {
		return odb.Contents{}
	}
	inner := make(map[object.ID]bool)
	c := odb.Contents{Exact: true}
	for _, place := range f.places {
		if !f.db.Exact(place) {
			return odb.Contents{}
		}
		for _, id := range f.db.Pack(place).Info().Boundary {
			if _, ok := f.index.Lookup(id); ok {
				inner[id] = true
			} else if !slices.Contains(c.Boundary, id) {
				c.Boundary = append(c.Boundary, id)
			}
		}
	}
	for _, place := range f.places {
		for _, id := range f.db.Pack(place).Info().Tips {
			if !inner[id] {
				c.Tips = append(c.Tips, id)
			}
		}
	}
	return c
}
