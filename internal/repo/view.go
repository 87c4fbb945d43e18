package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// Limits bound what one request may cost. A field that is zero has the default
// stated.
type Limits struct {
	// MaxObject bounds an object that must be in memory as a whole, in bytes; the
	// object database's limit.
	MaxObject int64
	// MaxPack bounds a received pack in bytes; no limit.
	MaxPack int64
}

// View is a repository at one version. It is immutable and safe for concurrent
// use; what it holds is loaded when it is first needed.
type View struct {
	engine *Engine
	repo   meta.Repo
	refs   *refTable

	mu      sync.Mutex
	db      *odb.DB
	graph   *graph.Graph
	near    *graph.Graph // of an earlier version
	closure *graph.Closure
	// base is a closure of an earlier version, and moves what refs did since.
	base  *graph.Closure
	moves []meta.RefLogEntry
	// later says that db belongs to a later version: it may hold what no ref of
	// this one reaches. untidy says that that version is not tidy.
	later, untidy bool
}

// NotFoundError says that what a request names is not there.
type NotFoundError struct {
	What string // for example "ref", "path", "commit"
	Name string
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("%s %q not found", e.What, e.Name) }

// maxMoves is how many moves of refs a closure is extended over.
const maxMoves = 1024

// inherit takes over what an earlier view has loaded.
func (v *View) inherit(near *View, entries []meta.RefLogEntry) {
	near.mu.Lock()
	defer near.mu.Unlock()
	v.near = near.near
	if near.graph != nil {
		v.near = near.graph
	}
	if near.repo.PackSet == v.repo.PackSet {
		v.db, v.graph, v.later, v.untidy = near.db, near.graph, near.later, near.untidy
	}
	switch {
	case near.closure != nil:
		v.base, v.moves = near.closure, entries
	case near.base != nil && len(near.moves)+len(entries) <= maxMoves:
		v.base = near.base
		v.moves = append(near.moves[:len(near.moves):len(near.moves)], entries...)
	}
}

// bytes estimates the memory of the view. It is called with v.mu held, or before
// anybody else has the view.
func (v *View) bytes() int64 {
	n := 1024 + v.refs.bytes()
	for _, g := range []*graph.Graph{v.near, v.graph} {
		if g != nil {
			n += g.Bytes()
		}
	}
	for _, c := range []*graph.Closure{v.base, v.closure} {
		if c != nil {
			n += c.Bytes()
		}
	}
	return n
}

// Repo returns the repository's row at the view's version.
func (v *View) Repo() meta.Repo { return v.repo }

// Ref returns the ref with a full stored name; false when there is none.
func (v *View) Ref(_ context.Context, full string) (meta.Ref, bool, error) {
	r, ok := v.refs.get(full)
	return r, ok, nil
}

// Refs calls yield for the refs whose stored names begin with prefix, in byte
// order, until it returns an error, which Refs returns.
func (v *View) Refs(ctx context.Context, prefix string, yield func(meta.Ref) error) error {
	var err error
	n := 0
	v.refs.each(prefix, "", func(r meta.Ref) bool {
		if n++; n%1024 == 0 {
			err = ctx.Err()
		}
		if err == nil {
			err = yield(r)
		}
		return err == nil
	})
	return err
}

// RefCount returns the number of refs.
func (v *View) RefCount() int { return v.refs.len() }

// DB returns the objects of the repository.
func (v *View) DB(ctx context.Context) (*odb.DB, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.loadDB(ctx)
}

func (v *View) loadDB(ctx context.Context) (*odb.DB, error) {
	if v.db != nil {
		return v.db, nil
	}
	for set := v.repo.PackSet; ; {
		db, err := v.engine.cfg.ODB.Open(ctx, set)
		if err == nil {
			v.db = db
			return db, nil
		}
		if !errors.Is(err, meta.ErrNotFound) {
			return nil, err
		}
		// The repository has another set by now, and nothing points to this one
		// any more. The new one holds what the view's refs reach as well.
		r, lost := v.engine.row(ctx, v.repo.ID)
		if lost != nil {
			return nil, lost
		}
		if r.PackSet == set {
			return nil, fmt.Errorf("repository %d points to a pack set that does not exist: %w: %w", v.repo.ID, meta.ErrCorrupt, err)
		}
		set = r.PackSet
		v.later, v.untidy = true, v.untidy || !r.Tidy
	}
}

// tidy reports whether being listed in the packs proves being reachable. The
// packs are loaded.
func (v *View) tidy() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.repo.Tidy && !v.untidy
}

// exactDB returns the packs of the view's own version, false when they are
// another's by now.
func (v *View) exactDB(ctx context.Context) (*odb.DB, bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	db, err := v.loadDB(ctx)
	return db, !v.later, err
}

// Graph returns the history of the repository.
func (v *View) Graph(ctx context.Context) (*graph.Graph, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.loadGraph(ctx)
}

func (v *View) loadGraph(ctx context.Context) (*graph.Graph, error) {
	if v.graph == nil {
		db, err := v.loadDB(ctx)
		if err != nil {
			return nil, err
		}
		g, err := graph.Open(ctx, db, v.near)
		if err != nil {
			return nil, fmt.Errorf("open commit graph: %w", err)
		}
		v.graph, v.near = g, nil
		v.engine.weigh(v)
	}
	return v.graph, nil
}

// Closure returns everything that the refs of both namespaces reach.
func (v *View) Closure(ctx context.Context) (*graph.Closure, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closure != nil {
		return v.closure, nil
	}
	g, err := v.loadGraph(ctx)
	if err != nil {
		return nil, err
	}
	c, err := v.extended(ctx, g)
	if err != nil {
		return nil, err
	}
	if c == nil {
		tips := make([]object.ID, 0, v.refs.len())
		v.refs.each("", "", func(r meta.Ref) bool {
			tips = append(tips, r.ID)
			return true
		})
		if c, err = g.Closure(ctx, tips); err != nil {
			return nil, err
		}
	}
	v.closure, v.base, v.moves = c, nil, nil
	v.engine.weigh(v)
	return c, nil
}

// extended returns the closure made from that of an earlier version, nil when
// refs did more since than appear and move forward.
func (v *View) extended(ctx context.Context, g *graph.Graph) (*graph.Closure, error) {
	if v.base == nil || len(v.base.Tips()) > 2*v.refs.len()+maxMoves {
		return nil, nil
	}
	tips := make([]object.ID, 0, len(v.moves))
	for i := range v.moves {
		m := &v.moves[i]
		if m.New.IsZero() {
			return nil, nil
		}
		if !m.Old.IsZero() {
			forward, err := g.IsAncestor(ctx, m.Old, m.New)
			if err != nil || !forward {
				return nil, err
			}
		}
		tips = append(tips, m.New)
	}
	return v.base.Extend(ctx, g, tips)
}

// Reachable returns the first of ids that no ref reaches and that no ref reached
// within the grace, or zero. What does not exist is not reachable.
func (v *View) Reachable(ctx context.Context, ids ...object.ID) (object.ID, error) {
	var reached func(object.ID) (bool, error)
	for _, id := range ids {
		if v.refs.isTip(id) {
			continue
		}
		if reached == nil {
			var err error
			if reached, err = v.reacher(ctx); err != nil {
				return object.Zero, err
			}
		}
		if ok, err := reached(id); err != nil || !ok {
			return id, err
		}
	}
	return object.Zero, nil
}

// reacher returns the test for objects that are no tips.
func (v *View) reacher(ctx context.Context) (func(object.ID) (bool, error), error) {
	db, err := v.DB(ctx)
	if err != nil {
		return nil, err
	}
	if v.tidy() {
		return func(id object.ID) (bool, error) { return db.Has(id), nil }, nil
	}
	closure, err := v.Closure(ctx)
	if err != nil {
		return nil, err
	}
	var recent *graph.Closure
	return func(id object.ID) (bool, error) {
		if !db.Has(id) {
			return false, nil
		}
		if ok, err := closure.Contains(ctx, id); ok || err != nil {
			return ok, err
		}
		if recent == nil {
			if recent, err = v.recent(ctx, closure); err != nil {
				return false, err
			}
		}
		return recent.Contains(ctx, id)
	}, nil
}

// recent returns the closure with the tips that left a ref within the grace.
func (v *View) recent(ctx context.Context, closure *graph.Closure) (*graph.Closure, error) {
	tips, err := v.engine.cfg.Meta.RecentTips(ctx, v.repo.ID, v.engine.since())
	if err != nil {
		return nil, fmt.Errorf("read recent tips: %w", err)
	}
	db, err := v.DB(ctx)
	if err != nil {
		return nil, err
	}
	// A tip may have left after this view was made, and its pack may be newer.
	known := tips[:0]
	for _, id := range tips {
		if db.Has(id) {
			known = append(known, id)
		}
	}
	if len(known) == 0 {
		return closure, nil
	}
	g, err := v.Graph(ctx)
	if err != nil {
		return nil, err
	}
	return closure.Extend(ctx, g, known)
}

// Object returns the type and content of a reachable object; anything else is a
// *NotFoundError. The content must not be modified.
func (v *View) Object(ctx context.Context, id object.ID) (object.Type, []byte, error) {
	if err := v.mustReach(ctx, id); err != nil {
		return object.Invalid, nil, err
	}
	return v.db.Get(ctx, id)
}

// Blob returns the size and content of a reachable blob as a stream.
func (v *View) Blob(ctx context.Context, id object.ID) (int64, io.ReadCloser, error) {
	if err := v.mustReach(ctx, id); err != nil {
		return 0, nil, err
	}
	t, size, r, err := v.db.Stream(ctx, id)
	if err != nil {
		return 0, nil, err
	}
	if t != object.Blob {
		r.Close()
		return 0, nil, &NotFoundError{What: "blob", Name: id.String()}
	}
	return size, r, nil
}

func (v *View) mustReach(ctx context.Context, id object.ID) error {
	if _, err := v.DB(ctx); err != nil {
		return err
	}
	missing, err := v.Reachable(ctx, id)
	if err == nil && !missing.IsZero() {
		err = &NotFoundError{What: "object", Name: id.String()}
	}
	return err
}
