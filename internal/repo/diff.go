package repo

import (
	"context"
	"fmt"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/patch"
)

// DiffQuery asks how commits differ.
type DiffQuery struct {
	Ref       string // a revision
	Ephemeral bool
	// Base is the revision that Ref is compared with; "" is the first parent of a
	// commit, and the default branch of a branch.
	Base          string
	BaseEphemeral bool
	Paths         []string // files and directories; none is everything
	Exact         bool     // as patch.Comparison has it
}

// FileDiff is how one file differs.
type FileDiff = patch.File

// Diff is how a commit differs from another one, or from nothing.
type Diff struct {
	*patch.Diff
	Commit object.ID
	// Base is the commit it is compared with. Zero: there is none.
	Base object.ID
}

// CommitDiff compares a commit with another one. Refusals are *NotFoundError and
// *LimitError.
func (v *View) CommitDiff(ctx context.Context, q DiffQuery) (Diff, error) {
	at, err := v.Resolve(ctx, q.Ref, q.Ephemeral)
	if err != nil {
		return Diff{}, err
	}
	d := Diff{Commit: at.ID}
	if q.Base != "" {
		base, err := v.Resolve(ctx, q.Base, q.BaseEphemeral)
		if err != nil {
			return Diff{}, err
		}
		d.Base = base.ID
		return d, v.compare(ctx, &d, q)
	}
	g, err := v.Graph(ctx)
	if err != nil {
		return Diff{}, err
	}
	if n, ok := g.Node(at.ID); ok {
		if parents := g.Parents(n); len(parents) > 0 {
			d.Base = g.ID(parents[0])
		}
	}
	return d, v.compare(ctx, &d, q)
}

// BranchDiff compares a branch with the last commit that it has in common with its
// base, which is Base in the answer: what the base did since plays no part.
// Refusals are those of CommitDiff.
func (v *View) BranchDiff(ctx context.Context, q DiffQuery) (Diff, error) {
	at, err := v.Resolve(ctx, q.Ref, q.Ephemeral)
	if err != nil {
		return Diff{}, err
	}
	base, err := v.Resolve(ctx, q.Base, q.BaseEphemeral)
	if err != nil {
		return Diff{}, err
	}
	g, err := v.Graph(ctx)
	if err != nil {
		return Diff{}, err
	}
	bases, err := g.MergeBases(ctx, base.ID, at.ID)
	if err != nil {
		return Diff{}, err
	}
	d := Diff{Commit: at.ID}
	if len(bases) > 0 {
		d.Base = bases[0]
	}
	return d, v.compare(ctx, &d, q)
}

// compare compares the trees of two commits.
func (v *View) compare(ctx context.Context, d *Diff, q DiffQuery) error {
	g, err := v.Graph(ctx)
	if err != nil {
		return err
	}
	var trees [2]object.ID
	for i, id := range []object.ID{d.Base, d.Commit} {
		if id.IsZero() {
			continue
		}
		c, ok := g.Commit(id)
		if !ok {
			return fmt.Errorf("commit %s is not in the graph that named it", id)
		}
		trees[i] = c.Tree
	}
	d.Diff, err = patch.Compare(ctx, patch.Comparison{
		DB: g.DB(), Old: trees[0], New: trees[1], Paths: q.Paths, Exact: q.Exact,
		Git: v.engine.cfg.Tasks, Room: v.engine.room,
	})
	return err
}
