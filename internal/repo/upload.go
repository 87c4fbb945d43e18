package repo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/refname"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/meta"
)

// uploader serves fetches of one namespace from a view.
type uploader struct {
	v  *View
	ns Namespace
}

var _ wire.Uploader = (*uploader)(nil)

// Uploader returns the view as fetches through one namespace see it.
func (v *View) Uploader(ns Namespace) wire.Uploader { return &uploader{v, ns} }

// Refs implements wire.Uploader.
func (u *uploader) Refs(ctx context.Context, prefixes []string, yield func(wire.Ref) error) error {
	prefixes = disjoint(prefixes)
	head, ok := u.head()
	if ok && selects(prefixes, head.Name) {
		if err := yield(head); err != nil {
			return err
		}
	}
	for _, prefix := range prefixes {
		var err error
		n := 0
		u.v.each(u.ns, prefix, func(r meta.Ref) bool {
			if n++; n%1024 == 0 {
				err = ctx.Err()
			}
			if err == nil {
				err = yield(wire.Ref{Name: r.Name, ID: r.ID, Peeled: r.Peeled})
			}
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// head returns HEAD. The ephemeral namespace has none while its default branch
// does not exist.
func (u *uploader) head() (wire.Ref, bool) {
	target := refname.Branch(u.v.repo.DefaultBranch)
	stored, _ := u.ns.Stored(target)
	r, ok := u.v.refs.get(stored)
	return wire.Ref{Name: "HEAD", ID: r.ID, Symref: target}, ok || u.ns == Normal
}

// disjoint sorts prefixes and drops those that others cover. None stands for
// the one that selects all.
func disjoint(prefixes []string) []string {
	if len(prefixes) == 0 {
		return []string{""}
	}
	sorted := slices.Clone(prefixes)
	slices.Sort(sorted)
	out := sorted[:1]
	for _, p := range sorted[1:] {
		if !strings.HasPrefix(p, out[len(out)-1]) {
			out = append(out, p)
		}
	}
	return out
}

func selects(prefixes []string, name string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// CheckWants implements wire.Uploader.
func (u *uploader) CheckWants(ctx context.Context, ids []object.ID) error {
	missing, err := u.v.Reachable(ctx, ids...)
	if err == nil && !missing.IsZero() {
		err = &wire.NotOurRefError{ID: missing}
	}
	return err
}

// Common implements wire.Uploader. Haves are commits; others help nobody.
func (u *uploader) Common(ctx context.Context, ids []object.ID) ([]object.ID, error) {
	g, err := u.v.Graph(ctx)
	if err != nil {
		return nil, err
	}
	var common []object.ID
	var reached func(object.ID) (bool, error)
	for _, id := range ids {
		if _, ok := g.Node(id); !ok {
			continue
		}
		if u.v.refs.isTip(id) {
			common = append(common, id)
			continue
		}
		if reached == nil {
			if reached, err = u.v.reacher(ctx); err != nil {
				return nil, err
			}
		}
		ok, err := reached(id)
		if err != nil {
			return nil, err
		}
		if ok {
			common = append(common, id)
		}
	}
	return common, nil
}

// Ready implements wire.Uploader.
func (u *uploader) Ready(ctx context.Context, wants, common []object.ID) (bool, error) {
	g, err := u.v.Graph(ctx)
	if err != nil {
		return false, err
	}
	roots, err := commitsOf(ctx, g, wants)
	if err != nil {
		return false, err
	}
	targets := g.NewCommitSet()
	for _, n := range g.Nodes(common) {
		targets.Add(n)
	}
	return g.AllReachAny(ctx, roots, targets)
}

// commitsOf returns the commits that ids are, or that tags among them lead to.
func commitsOf(ctx context.Context, g *graph.Graph, ids []object.ID) ([]graph.Node, error) {
	nodes := make([]graph.Node, 0, len(ids))
	for _, id := range ids {
		peeled, err := g.Peel(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("peel %s: %w", id, err)
		}
		if n, ok := g.Node(peeled); ok {
			nodes = append(nodes, n)
		}
	}
	return nodes, nil
}
