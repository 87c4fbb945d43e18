package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// Compaction has two parts. Folding puts the packs that writes leave behind
// together, geometrically, entries copied as they are: it is cheap and keeps
// their number small. Repacking makes one pack with deltas of all that is
// reachable and parts the rest from it. Both run beside reads and writes: a new
// pack is durable before one Change puts it in the place of others.

const (
	// maxDue bounds how many repositories wait for work; one that is left out is
	// found again at its next write.
	maxDue = 1 << 12
	// repackAt is how many bytes must gather behind the largest pack before a
	// repository is repacked on its own.
	repackAt = 8 << 20
	// foldRest is how long a repository is left alone after a fold. Under a
	// steady load packs gather meanwhile, and a fold of many costs little more
	// than one of few.
	foldRest = 250 * time.Millisecond
	// untidyFor is how long unreachable objects may lie about before a
	// repository that is written to is repacked on its own.
	untidyFor = 24 * time.Hour
)

// jobs is the background work of an Engine: what is due, and what is being done.
// Work waits until Run runs. It is safe for concurrent use.
type jobs struct {
	folds, repacks queue

	mu   sync.Mutex
	pins map[meta.RepoID]map[meta.PackID]bool
	held map[meta.RepoID]meta.PackID // the last pack that was held
}

// queue holds the repositories for which one kind of work is due.
type queue struct {
	mu      sync.Mutex
	due     map[meta.RepoID]bool
	resting map[meta.RepoID]bool // not taken now, due or not
	wake    chan struct{}        // has a value when something was added
}

func newQueue() queue {
	return queue{due: make(map[meta.RepoID]bool), resting: make(map[meta.RepoID]bool), wake: make(chan struct{}, 1)}
}

// add notes that a repository has work due.
func (q *queue) add(id meta.RepoID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.due) < maxDue {
		q.due[id] = true
	}
	if !q.resting[id] {
		q.signal()
	}
}

// waits reports whether a repository has work due.
func (q *queue) waits(id meta.RepoID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.due[id]
}

// signal wakes work up. It is called with q.mu held.
func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns one of the repositories, false when there is none.
func (q *queue) take() (meta.RepoID, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id := range q.due {
		if !q.resting[id] {
			delete(q.due, id)
			return id, true
		}
	}
	return 0, false
}

// rest keeps a repository from being taken for a time; what becomes due
// meanwhile waits.
func (q *queue) rest(id meta.RepoID, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.resting[id] = true
	time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		delete(q.resting, id)
		if q.due[id] {
			q.signal()
		}
	})
}

// work does what is due until ctx ends.
func (q *queue) work(ctx context.Context, do func(meta.RepoID)) {
	for ctx.Err() == nil {
		if id, ok := q.take(); ok {
			do(id)
			continue
		}
		select {
		case <-ctx.Done():
		case <-q.wake:
		}
	}
}

// pin keeps folding from the packs that are being repacked.
func (j *jobs) pin(id meta.RepoID, packs []meta.PackID) (unpin func(), ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.pins[id] != nil {
		return nil, false
	}
	set := make(map[meta.PackID]bool, len(packs))
	for _, p := range packs {
		set[p] = true
	}
	if j.pins == nil {
		j.pins = make(map[meta.RepoID]map[meta.PackID]bool)
	}
	j.pins[id] = set
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.pins, id)
	}, true
}

// pinned returns the packs of a repository that are being repacked. It must not
// be modified.
func (j *jobs) pinned(id meta.RepoID) map[meta.PackID]bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.pins[id]
}

// BackgroundFigures count the background work of an Engine since it was made.
type BackgroundFigures struct {
	Folds, Repacks, Failures int64
	// PacksReplaced and BytesReplaced are what was replaced, PacksMade and
	// BytesMade what it was replaced by.
	PacksReplaced, BytesReplaced int64
	PacksMade, BytesMade         int64
	// GarbageBytes were found unreachable, DroppedBytes were removed as such
	// after their grace.
	GarbageBytes, DroppedBytes int64
	// SweptUploads and SweptPacks are blobs that sweeps removed, by key.
	SweptUploads, SweptPacks int64
	// PrunedEvents were kept long enough.
	PrunedEvents int64
}

// figures is BackgroundFigures while they grow.
type figures struct {
	folds, repacks, failures     atomic.Int64
	packsReplaced, bytesReplaced atomic.Int64
	packsMade, bytesMade         atomic.Int64
	garbageBytes, droppedBytes   atomic.Int64
	sweptUploads, sweptPacks     atomic.Int64
	prunedEvents                 atomic.Int64
}

// Background returns the figures of the background work so far.
func (e *Engine) Background() BackgroundFigures {
	f := &e.figures
	return BackgroundFigures{
		Folds: f.folds.Load(), Repacks: f.repacks.Load(), Failures: f.failures.Load(),
		PacksReplaced: f.packsReplaced.Load(), BytesReplaced: f.bytesReplaced.Load(),
		PacksMade: f.packsMade.Load(), BytesMade: f.bytesMade.Load(),
		GarbageBytes: f.garbageBytes.Load(), DroppedBytes: f.droppedBytes.Load(),
		SweptUploads: f.sweptUploads.Load(), SweptPacks: f.sweptPacks.Load(), PrunedEvents: f.prunedEvents.Load(),
	}
}

// noteDue looks at the packs of a repository that was written to and notes what
// they need.
func (e *Engine) noteDue(ctx context.Context, v *View) {
	db, err := v.DB(ctx)
	if err != nil {
		return
	}
	n := len(db.Packs())
	if n > 0 && db.Packs()[n-1].Info().Inline && e.jobs.folds.waits(v.repo.ID) {
		return // one small pack more: the first write after the fold looks at all
	}
	packs := make([]*meta.Pack, n)
	for i, p := range db.Packs() {
		packs[i] = p.Info()
	}
	d := e.due(v.repo, packs, e.jobs.perhapsHeld(v.repo))
	if d.fold {
		e.jobs.folds.add(v.repo.ID)
	}
	if d.repack || d.drop {
		e.jobs.repacks.add(v.repo.ID)
	}
}

// dues are what the packs of a repository need.
type dues struct {
	fold   bool // many packs have gathered
	repack bool // they are large, or something has been unreachable for long
	drop   bool // the grace of garbage is over
}

// due says what the packs of a repository need, of which some are held.
func (e *Engine) due(r meta.Repo, packs []*meta.Pack, held func(*meta.Pack) bool) (d dues) {
	var tail int
	var behind int64
	var largest *meta.Pack // what the others are measured by, whatever it is
	now := e.cfg.Clock()
	for _, p := range packs {
		age := now.Sub(p.CreatedAt)
		if p.Class == meta.PackGarbage {
			d.drop = d.drop || age > e.cfg.GarbageGrace
			continue
		}
		if inTail(p, held(p)) {
			tail++
			behind += p.Bytes
			d.repack = d.repack || !r.Tidy && age > untidyFor
		}
		if largest == nil || p.Bytes > largest.Bytes {
			largest = p
		}
	}
	if largest != nil && inTail(largest, held(largest)) {
		behind -= largest.Bytes
	}
	d.fold = tail >= foldAt
	d.repack = d.repack || behind > repackAt && 2*behind > largest.Bytes
	return d
}

// background does one piece of work as an operation of this process.
func (e *Engine) background(ctx context.Context, what string, id meta.RepoID, count *atomic.Int64, do func(context.Context, meta.RepoID) (bool, error)) {
	did, err := e.operate(ctx, id, do)
	var gone *GoneError
	switch {
	case err == nil && did:
		count.Add(1)
	case err != nil && ctx.Err() == nil && !errors.As(err, &gone):
		e.figures.failures.Add(1)
		e.report(fmt.Errorf("%s repository %d: %w", what, id, err))
	}
}

func (e *Engine) operate(ctx context.Context, id meta.RepoID, do func(context.Context, meta.RepoID) (bool, error)) (bool, error) {
	ctx, done, err := e.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	return do(ctx, id)
}

// compact does the work that writes note as due, until ctx ends: folds one after
// the other, and beside them one repack at a time.
func (e *Engine) compact(ctx context.Context) {
	var both sync.WaitGroup
	both.Go(func() {
		e.jobs.folds.work(ctx, func(id meta.RepoID) {
			e.background(ctx, "fold packs of", id, &e.figures.folds, e.fold)
			e.jobs.folds.rest(id, foldRest)
		})
	})
	both.Go(func() {
		e.jobs.repacks.work(ctx, func(id meta.RepoID) { e.background(ctx, "repack", id, &e.figures.repacks, e.repack) })
	})
	both.Wait()
}

// current returns a view of a repository as it is now.
func (e *Engine) current(ctx context.Context, id meta.RepoID) (*View, error) {
	r, err := e.row(ctx, id)
	if err != nil {
		return nil, err
	}
	return e.View(ctx, r)
}

// replace makes packs durable and puts them in the place of others. When some of
// those were replaced by another process, or are held by now, it reports false and
// writes nothing; but where the new packs hold all that the old ones do, what is
// left of those is replaced, as long as that is most of them. The packs are ended
// unless the caller is to abort them.
func (e *Engine) replace(ctx context.Context, v *View, db *odb.DB, p *meta.PackReplace, made []*madePack, all bool) (bool, error) {
	for _, m := range made {
		row, err := m.file.Finish(ctx, m.index, m.table, m.contents)
		if err != nil {
			return false, err
		}
		p.Add = append(p.Add, *row)
		if err := m.file.Reopen(ctx, m.index); err != nil {
			return false, err
		}
	}
	r, uploads := v.repo, 1
	// A fork that came since would keep what is replaced.
	held, err := e.held(ctx, r.ID)
	if err != nil || slices.ContainsFunc(p.Remove, func(id meta.PackID) bool { return held[id] }) {
		return false, err
	}
	for range maxAttempts {
		if !e.holdsLease() {
			return false, ErrLeaseLost
		}
		verdict, err := e.cfg.Meta.Apply(ctx, meta.Change{Org: r.Org, Repo: r.ID, ReplacePacks: p})
		if err != nil {
			if !errors.Is(err, meta.ErrNotApplied) {
				for _, m := range made {
					m.file.Leave() // its bytes may be visible
				}
			}
			return false, fmt.Errorf("replace packs: %w", err)
		}
		if verdict.Applied {
			e.rules.applied(r.ID, verdict.Version, false)
			did := &applied{removed: p.Remove, tidy: p.Tidy && p.AtVersion == verdict.Version-1}
			for _, m := range made {
				did.added = append(did.added, m.file.Published(m.index, r.ID, verdict.At))
			}
			if !slices.Contains(did.added, nil) {
				e.advance(v, verdict.Version, did)
			}
			e.countReplaced(db, p)
			return true, nil
		}
		if verdict.Conflict.Kind == meta.ConflictUpload && uploads < maxUploads {
			uploads++
			if err := uploadAgain(ctx, p, made); err != nil {
				return false, err
			}
			continue
		}
		if verdict.Conflict.Kind != meta.ConflictPackSet {
			return false, refusal(meta.Change{Repo: r.ID}, verdict.Conflict)
		}
		if !all {
			return false, nil
		}
		if most, err := e.stillListed(ctx, r.ID, db, p); err != nil || !most {
			return false, err
		}
	}
	return false, nil
}

// uploadAgain stores large packs under other keys, for their uploads were taken
// away.
func uploadAgain(ctx context.Context, p *meta.PackReplace, made []*madePack) error {
	for i, m := range made {
		if p.Add[i].Inline {
			continue
		}
		var err error
		if p.Add[i].Key, err = m.file.Again(ctx, m.index); err != nil {
			return err
		}
	}
	return nil
}

// stillListed takes from p what the repository does not list any more, and
// reports whether most of the bytes are left. Who replaced the others kept what
// refs reach of them, and may have copied more: nothing of that may go.
func (e *Engine) stillListed(ctx context.Context, id meta.RepoID, db *odb.DB, p *meta.PackReplace) (bool, error) {
	now, err := e.row(ctx, id)
	if err != nil {
		return false, err
	}
	listed, err := e.cfg.Meta.PackIDs(ctx, now.PackSet)
	if err != nil && !errors.Is(err, meta.ErrNotFound) {
		return false, fmt.Errorf("read pack set: %w", err)
	}
	var all, left int64
	remove := p.Remove[:0:0]
	for _, old := range db.Packs() {
		if info := old.Info(); slices.Contains(p.Remove, info.ID) {
			all += info.Bytes
			if slices.Contains(listed, info.ID) {
				left += info.Bytes
				remove = append(remove, info.ID)
			}
		}
	}
	p.Remove, p.Tidy = remove, false
	return len(remove) > 0 && 2*left > all, nil
}

func (e *Engine) countReplaced(db *odb.DB, p *meta.PackReplace) {
	gone := make(map[meta.PackID]bool, len(p.Remove))
	for _, id := range p.Remove {
		gone[id] = true
	}
	for _, old := range db.Packs() {
		if gone[old.Info().ID] {
			e.figures.packsReplaced.Add(1)
			e.figures.bytesReplaced.Add(old.Info().Bytes)
		}
	}
	for i := range p.Add {
		e.figures.packsMade.Add(1)
		e.figures.bytesMade.Add(p.Add[i].Bytes)
	}
}
