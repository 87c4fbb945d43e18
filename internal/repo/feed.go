package repo

import (
	"sync"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// maxAhead bounds the Changes of one repository that wait for an earlier one.
const maxAhead = 256

// feed lays the Changes of this process over cached views, so that a busy
// repository is not read again after each. What becomes known before the Change
// of the version before it waits. It is safe for concurrent use.
type feed struct {
	mu       sync.Mutex
	ahead    map[meta.RepoID]map[int64]*applied // by version
	underway map[meta.RepoID]*underway
}

// underway are Changes of a repository that are being written, or were and are
// not laid over the cached view yet.
type underway struct {
	n     int
	ended chan struct{} // closed when the next of them ends; nil when nobody waits
}

// begin notes that a Change of a repository is written; end must be called once
// it was laid over the cached view, or was not applied.
func (f *feed) begin(id meta.RepoID) (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.underway[id]
	if u == nil {
		if f.underway == nil {
			f.underway = make(map[meta.RepoID]*underway)
		}
		u = new(underway)
		f.underway[id] = u
	}
	u.n++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if u.ended != nil {
			close(u.ended)
			u.ended = nil
		}
		if u.n--; u.n == 0 {
			delete(f.underway, id)
		}
	}
}

// next returns a channel that is closed when a Change that is under way ends; nil
// when none is.
func (f *feed) next(id meta.RepoID) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	u := f.underway[id]
	if u == nil {
		return nil
	}
	if u.ended == nil {
		u.ended = make(chan struct{})
	}
	return u.ended
}

// applied is what a Change did to a repository.
type applied struct {
	entries []meta.RefLogEntry
	untidy  bool
	tidy    bool
	removed []meta.PackID // added stand in their place, or behind all others
	added   []*odb.Pack
	upon    *odb.DB // has no object of added; nil says nothing
}

// appliedBy describes a Change of refs with the pack that it added, nil for none.
func appliedBy(c *meta.Change, verdict meta.Verdict, added *odb.Pack) *applied {
	did := &applied{entries: make([]meta.RefLogEntry, 0, len(c.Refs)), untidy: c.Untidy}
	if added != nil {
		did.added = []*odb.Pack{added}
	}
	for _, w := range c.Refs {
		if w.VerifyOnly {
			continue
		}
		did.entries = append(did.entries, meta.RefLogEntry{
			Version: verdict.Version, Name: w.Name, Old: w.Old, New: w.New, Peeled: w.Peeled, At: verdict.At,
		})
	}
	return did
}

// advance keeps the view that an applied Change makes of the one before. v is
// any view of the repository, version the one that the Change got.
func (e *Engine) advance(v *View, version int64, did *applied) {
	id := v.repo.ID
	f := &e.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	ahead := f.ahead[id]
	if ahead == nil || len(ahead) >= maxAhead {
		if f.ahead == nil {
			f.ahead = make(map[meta.RepoID]map[int64]*applied)
		}
		ahead = make(map[int64]*applied)
		f.ahead[id] = ahead
	}
	ahead[version] = did
	now := e.newest(v)
	at := now
	for next := ahead[at.repo.Version+1]; next != nil; next = ahead[at.repo.Version+1] {
		made := at.after(next)
		if made == nil {
			break
		}
		at = made
	}
	if at != now {
		e.views.put(at)
	}
	for later := range ahead {
		if later <= at.repo.Version {
			delete(ahead, later)
		}
	}
	if len(ahead) == 0 {
		delete(f.ahead, id)
	}
}

// after returns the view that a Change made of v, nil when v has not loaded
// what that takes.
func (v *View) after(did *applied) *View {
	next := &View{engine: v.engine, repo: v.repo, refs: v.refs.apply(did.entries)}
	next.repo.Version++
	next.repo.Tidy = did.tidy || v.repo.Tidy && !did.untidy
	if len(did.added)+len(did.removed) == 0 {
		next.inherit(v, did.entries)
		return next
	}
	v.mu.Lock()
	db, later := v.db, v.later
	v.mu.Unlock()
	if db == nil || later {
		return nil
	}
	if len(did.removed) == 0 && len(did.added) == 1 {
		db = db.WithNew(did.added[0], did.upon)
	} else {
		var ok bool
		if db, ok = db.Replaced(did.removed, did.added); !ok {
			return nil
		}
	}
	next.repo.PackSet = -next.repo.Version // its id was not read
	next.inherit(v, did.entries)
	next.db = db
	v.engine.cfg.ODB.Remember(next.db)
	return next
}
