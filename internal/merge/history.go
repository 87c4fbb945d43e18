package merge

import (
	"cmp"
	"context"
	"slices"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/task"
)

// maxHistory bounds the commits that a merge needs: git merges several merge bases
// with each other, and so on.
const maxHistory = 128

// history gives git the history that it needs, and with it the files, and returns
// what stands in for ours and theirs.
//
// It is the two commits, their merge bases, the merge bases of these, and so on;
// each has as parents those of the others that it descends from. The merge bases
// of any of them are the same as in the whole history: every common ancestor is
// one of the best, or behind one, and these are all there.
func history(ctx context.Context, t *task.Task, r Request) (tips [2]object.ID, err error) {
	bases, err := ancestry(ctx, r)
	if err != nil {
		return tips, err
	}
	commits := []object.ID{r.Ours, r.Theirs}
	if len(bases) < 2 {
		err = gather(ctx, t, treeOf(r, bases), treeOf(r, commits[:1]), treeOf(r, commits[1:]))
	} else {
		err = gatherAll(ctx, t, r, append(bases, commits...))
	}
	if err != nil {
		return tips, err
	}
	standIns := make(map[object.ID]object.ID)
	for i, id := range append(bases, commits...) {
		c, _ := r.Graph.Commit(id)
		older := bases[:min(i, len(bases))]
		parents, err := parents(ctx, r.Graph, id, older)
		if err != nil {
			return tips, err
		}
		for k, p := range parents {
			parents[k] = standIns[p]
		}
		standIns[id] = t.StandIn(id, c.Tree, parents, c.Time)
	}
	return [2]object.ID{standIns[r.Ours], standIns[r.Theirs]}, nil
}

// treeOf returns the tree of the one commit, zero for none.
func treeOf(r Request, commits []object.ID) object.ID {
	if len(commits) == 0 {
		return object.Zero
	}
	c, _ := r.Graph.Commit(commits[0])
	return c.Tree
}

// ancestry returns the merge bases, those of each two of them, and so on,
// ancestors first.
func ancestry(ctx context.Context, r Request) ([]object.ID, error) {
	known := map[object.ID]bool{}
	var all []object.ID
	seen := map[[2]object.ID]bool{}
	for group := r.Bases; len(group) > 0; {
		for _, id := range group {
			if !known[id] {
				known[id], all = true, append(all, id)
			}
		}
		if len(all) > maxHistory {
			return nil, &task.LimitError{What: "merge bases", Limit: maxHistory}
		}
		var next []object.ID
		for i, a := range group {
			for _, b := range group[:i] {
				pair := [2]object.ID{a, b}
				if a.Compare(b) > 0 {
					pair = [2]object.ID{b, a}
				}
				if seen[pair] {
					continue
				}
				seen[pair] = true
				found, err := r.Graph.MergeBases(ctx, a, b)
				if err != nil {
					return nil, err
				}
				next = append(next, found...)
			}
		}
		slices.SortFunc(next, object.ID.Compare)
		group = slices.Compact(next)
	}
	generation := func(id object.ID) uint32 {
		c, _ := r.Graph.Commit(id)
		return c.Generation
	}
	slices.SortStableFunc(all, func(a, b object.ID) int { return cmp.Compare(generation(a), generation(b)) })
	return all, nil
}

// parents returns those of the older commits, ancestors first, that id descends
// from and none of the others does that it descends from, latest first.
func parents(ctx context.Context, g *graph.Graph, id object.ID, older []object.ID) ([]object.ID, error) {
	var out []object.ID
	for _, p := range slices.Backward(older) {
		ok, err := g.IsAncestor(ctx, p, id)
		if err != nil {
			return nil, err
		}
		for _, nearer := range out {
			if !ok || err != nil {
				break
			}
			var behind bool
			behind, err = g.IsAncestor(ctx, p, nearer)
			ok = !behind
		}
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, p)
		}
	}
	return out, nil
}
