package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// A pack that other sets or other repositories list too is held: to make it anew
// would not let it go, it would store its contents once more. So folding and
// repacking leave it as it is, whoever made it, and pack what is not in such
// packs around them.

const (
	// maxHeldOwn is how many held packs of its own making a repository keeps. With
	// more, those are put together that folding would take: a repository that is
	// written to and forked in turn keeps few packs, and each object is copied a
	// few times only.
	maxHeldOwn = 128
	// maxHeld is that for all held packs, as those that a fork of many forks has.
	maxHeld = 512
)

// inherited reports whether a fork has the pack from its source. Times would not
// tell it: clocks differ.
func inherited(r meta.Repo, p *meta.Pack) bool {
	return p.Repo != 0 && p.Repo != r.ID
}

// held returns which packs of a repository are to stay as they are, as of now.
func (e *Engine) held(ctx context.Context, id meta.RepoID) (map[meta.PackID]bool, error) {
	for range maxAttempts {
		r, err := e.row(ctx, id)
		if err != nil {
			return nil, err
		}
		packs, err := e.cfg.Meta.PackSet(ctx, r.PackSet)
		if err == nil {
			held := heldOf(r, packs)
			e.jobs.noteHeld(r, packs, held)
			return held, nil
		}
		if !errors.Is(err, meta.ErrNotFound) { // it has another set by now
			return nil, fmt.Errorf("read pack set: %w", err)
		}
	}
	return nil, &ConflictError{Ref: "the packs"}
}

// heldOf returns which packs of a repository's set are to stay as they are.
func heldOf(r meta.Repo, packs []meta.ListedPack) map[meta.PackID]bool {
	held := make(map[meta.PackID]bool)
	var own, all []*meta.Pack
	for i := range packs {
		p := &packs[i].Pack
		if !packs[i].Shared || p.Class == meta.PackGarbage {
			continue
		}
		held[p.ID] = true
		all = append(all, p)
		if !inherited(r, p) {
			own = append(own, p)
		}
	}
	var many []*meta.Pack
	switch {
	case len(own) > maxHeldOwn:
		many = own
	case len(all) > maxHeld:
		many = all
	}
	for _, p := range many[smallTail(many):] {
		delete(held, p.ID)
	}
	return held
}

// smallTail returns from which one on packs are put together: the first one that
// is less than a foldShare of all that follow.
func smallTail(packs []*meta.Pack) int {
	lo := len(packs)
	var sum int64
	for i := len(packs) - 1; i >= 0; i-- {
		if foldShare*packs[i].Bytes < sum || sum == 0 {
			lo = i
		}
		sum += packs[i].Bytes
	}
	return lo
}

// noteHeld remembers up to which pack a repository's are held.
func (j *jobs) noteHeld(r meta.Repo, packs []meta.ListedPack, held map[meta.PackID]bool) {
	var last meta.PackID
	for i := range packs {
		if p := &packs[i].Pack; held[p.ID] && !inherited(r, p) {
			last = max(last, p.ID)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if last == 0 {
		delete(j.held, r.ID)
		return
	}
	if j.held == nil || len(j.held) >= maxDue {
		j.held = make(map[meta.RepoID]meta.PackID)
	}
	j.held[r.ID] = last
}

// perhapsHeld returns the test for packs that were held when that was last read,
// without reading it: ids grow with time, and a fork lists all that there is.
func (j *jobs) perhapsHeld(r meta.Repo) func(*meta.Pack) bool {
	j.mu.Lock()
	last := j.held[r.ID]
	j.mu.Unlock()
	return func(p *meta.Pack) bool { return p.ID <= last || inherited(r, p) }
}

// closedPacks returns which of the packs at the places given hold, together with
// the others returned, all that their objects refer to: exact ones whose boundary
// lies in earlier ones of them.
func closedPacks(db *odb.DB, places []int32) map[int32]bool {
	in := make(map[int32]bool)
	within := func(id object.ID) bool {
		if at, ok := db.Find(id); ok && in[at.Pack] {
			return true
		}
		for place := range in {
			if _, ok := db.Pack(place).Index().Lookup(id); ok {
				return true
			}
		}
		return false
	}
	for _, place := range places {
		info := db.Pack(place).Info()
		whole := info.Exact
		for _, id := range info.Boundary {
			whole = whole && within(id)
		}
		if whole {
			in[place] = true
		}
	}
	return in
}

// needed returns what the shared packs that are not closed build on, reachable or
// not: it stays as long as they do, or their commits would lack parents.
func (c *collection) needed() []object.ID {
	var out []object.ID
	for _, place := range c.shared {
		info := c.db.Pack(place).Info()
		switch {
		case c.closed[place]:
		case info.Exact:
			for _, id := range info.Boundary {
				if c.db.Has(id) {
					out = append(out, id)
				}
			}
		default:
			lo, hi := c.graph.PackNodes(place)
			for n := lo; n < hi; n++ {
				for _, p := range c.graph.Parents(n) {
					if c.graph.Loc(p).Pack != place {
						out = append(out, c.graph.ID(p))
					}
				}
			}
		}
	}
	slices.SortFunc(out, object.ID.Compare)
	return slices.Compact(out)
}
