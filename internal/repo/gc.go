package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// CollectOptions say how far a collection goes.
type CollectOptions struct {
	// Full repacks whatever is due.
	Full bool
	// DryRun finds out what would be done and writes nothing.
	DryRun bool
	// Progress, if set, is told each step before it begins.
	Progress func(step string)
}

// CollectResult is what a collection found and did.
type CollectResult struct {
	// Did is one of the words below; in a dry run what would be done.
	Did string
	// Packs and bytes of the repository's own packs, those that others hold too
	// left out.
	PacksBefore, PacksAfter int
	BytesBefore, BytesAfter int64
	// SharedPacks and SharedBytes are what others hold too, forks and their
	// source; it stays as it is.
	SharedPacks int
	SharedBytes int64
	// Objects that are reachable and in own packs, and their stored bytes, each
	// counted once.
	Objects     int64
	UniqueBytes int64
	// GarbageObjects and GarbageBytes are stored and not reachable; those of
	// garbage packs included.
	GarbageObjects int64
	GarbageBytes   int64
	// ReclaimableBytes are stored twice, or garbage whose grace is over.
	ReclaimableBytes int64
	// Tidy says that all that is stored is reachable, garbage packs left out.
	Tidy bool
}

// What a collection does.
const (
	DidNothing = "nothing"
	DidRepack  = "repack" // made all packs of the repository anew
	DidFold    = "fold"   // put the last packs together
	DidDrop    = "drop"   // dropped garbage whose grace was over
	DidTidy    = "tidy"   // noted that all is reachable
)

// BusyError says that a repository is being repacked by this process.
type BusyError struct{ Repo meta.RepoID }

func (e *BusyError) Error() string { return fmt.Sprintf("repository %d is being repacked", e.Repo) }

// collectTries is how often a collection begins anew when another process
// replaced the packs that it worked on.
const collectTries = 3

// Collect compacts a repository, and parts what nothing reaches from it: what is
// due, or all of it. It runs beside reads and writes. Refusals are *GoneError
// and *BusyError.
func (e *Engine) Collect(ctx context.Context, id meta.RepoID, o CollectOptions) (CollectResult, error) {
	ctx, done, err := e.Begin(ctx)
	if err != nil {
		return CollectResult{}, err
	}
	defer done()
	for range collectTries {
		res, ok, err := e.collect(ctx, id, o)
		if err != nil || ok {
			return res, err
		}
	}
	return CollectResult{}, &ConflictError{Ref: "the packs"}
}

// repack is Collect as background work does it.
func (e *Engine) repack(ctx context.Context, id meta.RepoID) (bool, error) {
	res, ok, err := e.collect(ctx, id, CollectOptions{})
	var busy *BusyError
	if errors.As(err, &busy) {
		return false, nil
	}
	return ok && res.Did != DidNothing, err
}

// collect tries once; false when another process was faster.
func (e *Engine) collect(ctx context.Context, id meta.RepoID, o CollectOptions) (res CollectResult, ok bool, err error) {
	progress := o.Progress
	if progress == nil {
		progress = func(string) {}
	}
	if res, ok, err = e.clearlyIdle(ctx, id, o); ok || err != nil {
		return res, ok, err
	}
	progress("find what is reachable")
	c, err := e.look(ctx, id)
	if err != nil {
		return res, false, err
	}
	defer c.end()
	shared, err := c.allReached(ctx)
	if err != nil {
		return res, false, err
	}
	res = c.figures()
	res.Did = c.what(o)
	res.Tidy = shared && !c.passing && (c.lost.Len() == 0 || res.Did == DidRepack)
	if res.Did == DidNothing && res.Tidy && !c.view.repo.Tidy {
		res.Did = DidTidy
	}
	switch {
	case o.DryRun || res.Did == DidNothing:
		return res, true, nil
	case res.Did == DidFold:
		ok, err = e.fold(ctx, id)
	default:
		ok, err = c.apply(ctx, &res, progress)
	}
	if err != nil || !ok {
		return res, false, err
	}
	return res, true, c.after(ctx, &res)
}

// clearlyIdle reports whether the rows of a repository alone tell that there is
// nothing to be done.
func (e *Engine) clearlyIdle(ctx context.Context, id meta.RepoID, o CollectOptions) (CollectResult, bool, error) {
	if o.Full || o.DryRun {
		return CollectResult{}, false, nil
	}
	r, err := e.row(ctx, id)
	if err != nil || !r.Tidy {
		return CollectResult{}, false, err
	}
	res := CollectResult{Did: DidNothing, Tidy: true}
	packs, err := e.cfg.Meta.PackSet(ctx, r.PackSet)
	if errors.Is(err, meta.ErrNotFound) { // it has another set by now
		return res, false, nil
	}
	if err != nil {
		return res, false, fmt.Errorf("read pack set: %w", err)
	}
	listed, held := make([]*meta.Pack, len(packs)), heldOf(r, packs)
	e.jobs.noteHeld(r, packs, held)
	for i := range packs {
		listed[i] = &packs[i].Pack
		if held[packs[i].ID] {
			res.SharedPacks++
			res.SharedBytes += packs[i].Bytes
			continue
		}
		res.PacksBefore++
		res.BytesBefore += packs[i].Bytes
	}
	res.PacksAfter, res.BytesAfter = res.PacksBefore, res.BytesBefore
	return res, e.due(r, listed, func(p *meta.Pack) bool { return held[p.ID] }) == dues{}, nil
}

// apply repacks if that is to be done, drops what is to be dropped, and says so
// if all is tidy then.
func (c *collection) apply(ctx context.Context, res *CollectResult, progress func(string)) (bool, error) {
	e := c.engine
	unpin, ok := e.jobs.pin(c.view.repo.ID, c.ids(c.own))
	if !ok {
		return false, &BusyError{Repo: c.view.repo.ID}
	}
	defer unpin()
	expired := c.expired()
	replace := &meta.PackReplace{Remove: c.ids(expired), Keep: c.ids(c.shared), Tidy: res.Tidy, AtVersion: c.view.repo.Version}
	// The new packs hold only what the shared ones do not.
	all := c.lost.Len() == 0 && len(c.shared) == 0
	var made []*madePack
	if res.Did == DidRepack {
		progress("repack")
		var err error
		if made, err = c.repacked(ctx); err != nil {
			return false, err
		}
		defer abortAll(ctx, made) // does nothing once they are published
		replace.Remove = append(replace.Remove, c.ids(c.own)...)
	}
	progress("store")
	if ok, err := e.replace(ctx, c.view, c.db, replace, made, all); err != nil || !ok {
		return false, err
	}
	if res.Did == DidRepack {
		lost := &e.figures.garbageBytes
		if e.cfg.GarbageGrace < 0 {
			lost = &e.figures.droppedBytes
		}
		lost.Add(c.bytesOf(c.lost))
	}
	for _, place := range expired {
		e.figures.droppedBytes.Add(c.db.Pack(place).Info().Bytes)
	}
	return true, nil
}

// what decides what is done.
func (c *collection) what(o CollectOptions) string {
	packs := make([]*meta.Pack, len(c.db.Packs()))
	for i, p := range c.db.Packs() {
		packs[i] = p.Info()
	}
	d := c.engine.due(c.view.repo, packs, func(p *meta.Pack) bool { return c.held[p.ID] })
	switch {
	case len(c.own) > 0 && (o.Full || d.repack || c.lost.Len() > 0):
		return DidRepack
	case d.drop:
		return DidDrop
	case d.fold:
		return DidFold
	}
	return DidNothing
}

// figures says what the packs hold.
func (c *collection) figures() CollectResult {
	res := CollectResult{PacksBefore: len(c.own) + len(c.garbage), SharedPacks: len(c.shared)}
	for _, place := range c.shared {
		res.SharedBytes += c.db.Pack(place).Info().Bytes
	}
	expired := c.expired()
	for _, place := range c.garbage {
		p := c.db.Pack(place).Info()
		res.BytesBefore += p.Bytes
		res.GarbageBytes += p.Bytes
		res.GarbageObjects += p.Objects
		if slices.Contains(expired, place) {
			res.ReclaimableBytes += p.Bytes
		}
	}
	for _, place := range c.own {
		res.BytesBefore += c.db.Pack(place).Info().Bytes
		c.eachEntry(place, func(at odb.Loc, bytes int64) {
			switch {
			case c.live.Has(at):
				res.Objects++
				res.UniqueBytes += bytes
			case c.lost.Has(at):
				res.GarbageObjects++
				res.GarbageBytes += bytes
			default: // another pack has it
				res.ReclaimableBytes += bytes
			}
		})
	}
	res.PacksAfter, res.BytesAfter = res.PacksBefore, res.BytesBefore
	return res
}

// eachEntry yields the objects of a pack with the bytes that each takes.
func (c *collection) eachEntry(place int32, yield func(odb.Loc, int64)) {
	idx := c.db.Pack(place).Index()
	order := idx.OffsetOrder()
	for i, pos := range order {
		end := c.db.Pack(place).File().Size() - packTrailer
		if i+1 < len(order) {
			end = idx.Offset(int(order[i+1]))
		}
		yield(odb.Loc{Pack: place, Pos: int32(pos)}, end-idx.Offset(int(pos)))
	}
}

// bytesOf returns the stored bytes of objects of own packs.
func (c *collection) bytesOf(set *graph.ObjectSet) int64 {
	var sum int64
	for _, place := range c.own {
		if set.CountIn(place) == 0 {
			continue
		}
		c.eachEntry(place, func(at odb.Loc, bytes int64) {
			if set.Has(at) {
				sum += bytes
			}
		})
	}
	return sum
}

// after reads the packs that there are now.
func (c *collection) after(ctx context.Context, res *CollectResult) error {
	v, err := c.engine.current(ctx, c.view.repo.ID)
	if err != nil {
		return err
	}
	db, err := v.DB(ctx)
	if err != nil {
		return err
	}
	res.PacksAfter, res.BytesAfter = 0, 0
	for _, p := range db.Packs() {
		if !c.held[p.Info().ID] {
			res.PacksAfter++
			res.BytesAfter += p.Info().Bytes
		}
	}
	res.Tidy = v.repo.Tidy
	return nil
}

// ids returns the packs at places.
func (c *collection) ids(places []int32) []meta.PackID {
	out := make([]meta.PackID, len(places))
	for i, place := range places {
		out[i] = c.db.Pack(place).Info().ID
	}
	return out
}
