package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// incoming is a pushed pack in quarantine: complete, checked, and seen by nobody
// until a Change names it.
type incoming struct {
	file  *odb.PackFile
	space odb.Space // that the pack takes up, nil where there are no limits
	index *pack.Index
	conn  *connection
	// pending is the pack as the repository would read it.
	pending *odb.Pack
	table   []byte                 // its commit table
	write   *meta.PackWrite        // set by row
	bases   map[object.ID]struct{} // objects of the repository that completed it
}

// receivePack stores and checks a pack. Refusals are told by unpackRefusal.
// Either publish or abort must follow.
func (e *Engine) receivePack(ctx context.Context, w Writer, v *View, src io.Reader) (*incoming, error) {
	in := &incoming{file: e.cfg.ODB.NewPack(meta.PackReceive), space: e.space(w, v.Repo().ID), bases: make(map[object.ID]struct{})}
	if in.space != nil {
		src = &spacedReader{ctx: ctx, src: src, space: in.space}
	}
	err := in.receive(ctx, e, v, src)
	in.file.Within(in.space)
	if err != nil {
		return nil, errors.Join(err, in.file.Abort(ctx))
	}
	return in, nil
}

func (in *incoming) receive(ctx context.Context, e *Engine, v *View, src io.Reader) error {
	c := collector{links: linkLog{scratch: e.cfg.Scratch}}
	defer c.links.Close()
	db, err := v.DB(ctx)
	if err != nil {
		return err
	}
	var types []object.Type
	in.index, types, err = e.receiveIndexed(ctx, src, in.file, pack.Options{
		MaxPackSize:    e.cfg.Limits.MaxPack,
		MaxObjectSize:  e.cfg.Limits.MaxObject,
		RefuseTrailing: true,
		Visit:          c.visit,
		Base:           in.base(ctx, v, db),
		Scratch:        func() (pack.Scratch, error) { return newScratch(e.cfg.Scratch) },
	})
	if err != nil {
		return err
	}
	if types, err = in.strip(ctx, e, types); err != nil {
		return err
	}
	if in.conn, err = connect(ctx, v, db, in.index, types, &c.links); err != nil {
		return err
	}
	if err := in.open(ctx, v, c.commits); err != nil {
		return err
	}
	return in.checkModules(ctx, e)
}

// stripMax is the size in bytes up to which a completed pack is made without the
// bases that completed it.
const stripMax = 8 << 20

// strip takes the bases out of a pack that was thin: what was a delta upon one
// is stored whole. The pack then holds what is new and nothing else, so that it
// may be exact. It returns the types by the new index.
func (in *incoming) strip(ctx context.Context, e *Engine, types []object.Type) ([]object.Type, error) {
	if len(in.bases) == 0 || in.file.Size() > stripMax {
		return types, nil
	}
	pending, err := in.file.Pending(in.index)
	if err != nil {
		return nil, fmt.Errorf("open received pack: %w", err)
	}
	empty, err := e.cfg.ODB.Open(ctx, 0)
	if err != nil {
		return nil, err
	}
	set := graph.NewObjectSet(empty.With(pending))
	left := types[:0:0]
	for pos, t := range types {
		if _, base := in.bases[in.index.ID(pos)]; !base {
			set.Add(odb.Loc{Pos: int32(pos)})
			left = append(left, t)
		}
	}
	made, err := e.copyObjects(ctx, meta.PackReceive, set)
	if err != nil {
		return nil, err
	}
	if err := in.file.Abort(ctx); err != nil {
		return nil, err
	}
	in.file, in.index = made.file, made.index
	clear(in.bases)
	return left, nil
}

// base returns what deltas of a thin pack may be against: what the repository
// may speak of, and nothing else that its packs hold.
func (in *incoming) base(ctx context.Context, v *View, db *odb.DB) pack.BaseFunc {
	return func(id object.ID) (object.Type, int64, io.ReadCloser, error) {
		missing, err := v.Reachable(ctx, id)
		if err != nil {
			return object.Invalid, 0, nil, err
		}
		if !missing.IsZero() {
			return object.Invalid, 0, nil, &MissingError{ID: id}
		}
		in.bases[id] = struct{}{}
		return db.Stream(ctx, id)
	}
}

// open makes the pack readable together with the repository.
func (in *incoming) open(ctx context.Context, v *View, commits []graph.Commit) error {
	near, err := v.Graph(ctx)
	if err != nil {
		return err
	}
	for id := range in.bases {
		if c, ok := near.Commit(id); ok {
			commits = append(commits, c)
		}
	}
	in.table, err = graph.Encode(in.index, commits, generations(near))
	if err != nil {
		return fmt.Errorf("make commit table: %w", err)
	}
	if in.pending, err = in.file.Pending(in.index); err != nil {
		return fmt.Errorf("open received pack: %w", err)
	}
	_, err = in.pending.Memo(func() (any, error) { return graph.Parse(in.table) })
	return err
}

// row makes the pack durable, once, and returns its row for a Change.
func (in *incoming) row(ctx context.Context, c odb.Contents) (*meta.PackWrite, error) {
	if in.write == nil {
		w, err := in.file.Finish(ctx, in.index, in.table, c)
		if err != nil {
			return nil, err
		}
		in.write = w
	}
	in.write.Exact, in.write.Tips, in.write.Boundary = c.Exact, c.Tips, c.Boundary
	return in.write, nil
}

// holds reports whether the pack has an object.
func (in *incoming) holds(id object.ID) bool {
	_, ok := in.index.Lookup(id)
	return ok
}

// contents says what the pack is to a repository whose refs move to the tips.
func (in *incoming) contents(ctx context.Context, tips map[object.ID]struct{}) (c odb.Contents, untidy bool, err error) {
	untidy = !in.conn.reachedBy(tips, in.bases)
	if untidy || in.conn.countless || len(in.bases) > 0 || in.conn.anyKnown() {
		return odb.Contents{}, untidy, nil
	}
	db := in.conn.db.With(in.pending)
	explained, err := in.conn.explain(ctx, func(ctx context.Context, id object.ID) ([]byte, error) {
		_, data, err := db.Get(ctx, id)
		return data, err
	})
	if err != nil || !explained {
		return odb.Contents{}, untidy, err
	}
	c.Exact = true
	for id := range tips {
		if in.holds(id) {
			c.Tips = append(c.Tips, id)
		}
	}
	for id := range in.conn.boundary {
		c.Boundary = append(c.Boundary, id)
	}
	return c, untidy, nil
}

// collector checks the objects of a pack as they become known and notes what
// is needed of them later. It is safe for concurrent use.
type collector struct {
	mu      sync.Mutex
	links   linkLog
	commits []graph.Commit
}

func (c *collector) visit(o pack.Object) error {
	if o.Type == object.Blob {
		return nil
	}
	if err := object.Check(o.Type, o.Data); err != nil {
		return &BadObjectError{ID: o.ID, Err: err}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.Type == object.Commit {
		commit := graph.Commit{ID: o.ID}
		var err error
		if commit.Tree, commit.Parents, commit.Time, err = object.CommitLinks(o.Data, nil); err != nil {
			return &BadObjectError{ID: o.ID, Err: err}
		}
		c.commits = append(c.commits, commit)
	}
	return c.links.add(o.Type, o.Data)
}

// BadObjectError refuses a pack that holds an object which Git would not accept.
type BadObjectError struct {
	ID  object.ID
	Err error
}

func (e *BadObjectError) Error() string { return fmt.Sprintf("object %s: %v", e.ID, e.Err) }

// Unwrap returns what is wrong with the object.
func (e *BadObjectError) Unwrap() error { return e.Err }

// unpackRefusal returns the sentence for the client when err is the fault of the
// pack that it sent.
func unpackRefusal(err error) (string, bool) {
	var (
		format  *pack.FormatError
		limit   *pack.LimitError
		base    *pack.MissingBaseError
		missing *MissingError
		link    *LinkError
		bad     *BadObjectError
	)
	var full *QuotaError
	switch {
	case errors.As(err, &full):
		return full.Error(), true
	case errors.As(err, &base):
		return (&MissingError{ID: base.ID}).Error(), true
	case errors.As(err, &missing):
		return missing.Error(), true
	case errors.As(err, &link):
		return link.Error(), true
	case errors.As(err, &bad):
		return bad.Error(), true
	case errors.As(err, &limit):
		return limit.Error(), true
	case errors.As(err, &format):
		return format.Error(), true
	case errors.Is(err, object.ErrCollision):
		return object.ErrCollision.Error(), true
	}
	return "", false
}
