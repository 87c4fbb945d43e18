package repo

import (
	"context"
	"fmt"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/odb"
)

// objects reads what an update would make visible together with what is: a
// view's packs, and one that is not published yet.
type objects struct {
	db   *odb.DB
	near func(context.Context) (*graph.Graph, error) // of the view
}

// objects returns v with pending (nil: nothing) laid over it.
func (v *View) objects(ctx context.Context, pending *odb.Pack) (*objects, error) {
	db, err := v.DB(ctx)
	if err != nil {
		return nil, err
	}
	if pending != nil {
		db = db.With(pending)
	}
	return &objects{db: db, near: v.Graph}, nil
}

// isAncestor reports whether new reaches old; both are commits.
func (o *objects) isAncestor(ctx context.Context, old, new object.ID) (bool, error) {
	g, err := o.graph(ctx)
	if err != nil {
		return false, err
	}
	return g.IsAncestor(ctx, old, new)
}

// graph returns the commits of the packs.
func (o *objects) graph(ctx context.Context) (*graph.Graph, error) {
	near, err := o.near(ctx)
	if err != nil {
		return nil, err
	}
	return graph.Open(ctx, o.db, near)
}

// maxTagDepth bounds the chain of tags that a ref may point through.
const maxTagDepth = 64

// peel follows annotated tags from id to what they finally name.
func (o *objects) peel(ctx context.Context, id object.ID) (object.ID, object.Type, error) {
	for range maxTagDepth {
		t, err := o.db.Type(ctx, id)
		if err != nil || t != object.Tag {
			return id, t, err
		}
		_, data, err := o.db.Get(ctx, id)
		if err != nil {
			return id, t, err
		}
		next, _, err := object.TagTarget(data)
		if err != nil {
			return id, t, fmt.Errorf("read tag %s: %w", id, err)
		}
		id = next
	}
	return id, object.Invalid, invalid("tag %s leads through more than %d tags", id, maxTagDepth)
}
