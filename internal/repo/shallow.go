package repo

import (
	"context"
	"math"
	"slices"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/graph"
)

// infiniteDepth is what clients send to have all history.
const infiniteDepth = math.MaxInt32

// Shallow implements wire.Uploader, with the boundaries that git gives.
func (u *uploader) Shallow(ctx context.Context, f *wire.Fetch) (wire.ShallowUpdate, error) {
	var out wire.ShallowUpdate
	g, err := u.v.Graph(ctx)
	if err != nil {
		return out, err
	}
	client, err := u.clientShallow(ctx, g, f.ClientShallow)
	if err != nil {
		return out, err
	}
	roots, err := commitsOf(ctx, g, f.Wants)
	if err != nil {
		return out, err
	}
	inside, border := g.NewCommitSet(), []graph.Node(nil)
	switch {
	case f.DeepenSince != 0 || len(f.DeepenNot) > 0:
		border, err = u.bounded(ctx, g, roots, f, inside)
	case f.Depth >= infiniteDepth:
		for _, n := range client {
			inside.Add(n)
		}
	case f.DeepenRelative:
		// As for git, all boundaries move, not only those below the wants.
		border, err = layers(ctx, g, client, f.Depth+1, inside)
	default:
		border, err = layers(ctx, g, roots, f.Depth, inside)
	}
	if err != nil {
		return out, err
	}
	for _, n := range border {
		if !slices.Contains(client, n) {
			out.Shallow = append(out.Shallow, g.ID(n))
		}
	}
	for _, n := range client {
		if inside.Has(n) {
			out.Unshallow = append(out.Unshallow, g.ID(n))
		}
	}
	return out, nil
}

// clientShallow returns the client's boundary commits that the repository has
// and may speak of.
func (u *uploader) clientShallow(ctx context.Context, g *graph.Graph, ids []object.ID) ([]graph.Node, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	known, err := u.Common(ctx, ids)
	return g.Nodes(known), err
}

// layers adds to inside the commits less than depth-1 steps from roots and
// returns those that are exactly so far away.
func layers(ctx context.Context, g *graph.Graph, roots []graph.Node, depth int, inside *graph.CommitSet) ([]graph.Node, error) {
	seen := g.NewCommitSet()
	var layer []graph.Node
	for _, n := range roots {
		if seen.Add(n) {
			layer = append(layer, n)
		}
	}
	for d := 1; d < depth && len(layer) > 0; d++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		var next []graph.Node
		for _, n := range layer {
			inside.Add(n)
			for _, p := range g.Parents(n) {
				if seen.Add(p) {
					next = append(next, p)
				}
			}
		}
		layer = next
	}
	return layer, nil
}

// bounded adds to inside the commits that are not older than DeepenSince and not
// reachable from DeepenNot, and returns those that have a parent which is.
func (u *uploader) bounded(ctx context.Context, g *graph.Graph, roots []graph.Node, f *wire.Fetch, inside *graph.CommitSet) ([]graph.Node, error) {
	excluded := g.NewCommitSet()
	for _, name := range f.DeepenNot {
		id, ok := u.expand(name)
		if !ok {
			return nil, &wire.RefusalError{Reason: "deepen-not: " + name + " is not a ref"}
		}
		tips, err := commitsOf(ctx, g, []object.ID{id})
		if err != nil {
			return nil, err
		}
		if err := g.Reach(ctx, tips, nil, excluded); err != nil {
			return nil, err
		}
	}
	chosen := g.NewCommitSet()
	var order []graph.Node
	for stack := roots; len(stack) > 0; {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if excluded.Has(n) || f.DeepenSince != 0 && g.Time(n) < f.DeepenSince || !chosen.Add(n) {
			continue
		}
		order = append(order, n)
		stack = append(stack, g.Parents(n)...)
	}
	if len(order) == 0 {
		return nil, &wire.RefusalError{Reason: "no commits selected for shallow requests"}
	}
	var border []graph.Node
	for _, n := range order {
		if slices.ContainsFunc(g.Parents(n), func(p graph.Node) bool { return !chosen.Has(p) }) {
			border = append(border, n)
			continue
		}
		inside.Add(n)
	}
	return border, nil
}

// expand finds a ref by a full or short name, as git's own rules do.
func (u *uploader) expand(name string) (object.ID, bool) {
	for _, prefix := range []string{"", "refs/", refname.TagsPrefix, refname.HeadsPrefix} {
		if stored, ok := u.ns.Stored(prefix + name); ok {
			if r, ok := u.v.refs.get(stored); ok {
				return r.ID, true
			}
		}
	}
	return object.Zero, false
}
