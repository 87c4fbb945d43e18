package merge

import (
	"context"
	"fmt"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/task"
)

// gather gives git what a merge of three trees reads: the trees on all paths that
// differ, and blobs by these rules.
//
//   - Where a file is in all three, it is merged by content only if no two are the
//     same: git takes the side that changed.
//   - Where both sides have a file that the base has not, both contents are read
//     if they differ.
//   - A file that a side lacks and one that it adds may be a rename. Their contents
//     are compared if the side has both kinds left once those with the same content
//     are paired.
//
// All other blobs are spare: git reads one of them only after unusual chains of
// renames, and is then given them.
func gather(ctx context.Context, t *task.Task, base, ours, theirs object.ID) error {
	g := gatherer{task: t}
	for i := range g.sides {
		g.sides[i].balance = make(map[object.ID]int)
	}
	if err := t.Walk(ctx, []object.ID{base, ours, theirs}, g.visit); err != nil {
		return err
	}
	for i := range g.sides {
		if err := g.renames(&g.sides[i]); err != nil {
			return err
		}
	}
	return nil
}

type gatherer struct {
	task  *task.Task
	sides [2]sideChanges
}

// sideChanges are the files that a side lacks and those that it adds.
type sideChanges struct {
	gone, fresh []candidate
	// balance counts for each content how often it is gone less how often it is
	// fresh.
	balance map[object.ID]int
}

// candidate is a file that may have been renamed. Other is what the other side
// made of it, zero for nothing.
type candidate struct {
	id, other object.ID
	regular   bool
}

// blob returns the content of a file or link, zero for what has none here.
func blob(e object.Entry) object.ID {
	if e.Name == nil || e.Mode.Type() != object.Blob {
		return object.Zero
	}
	return e.ID
}

func (g *gatherer) visit(path []byte, at []object.Entry) (bool, error) {
	base, ours, theirs := at[0], at[1], at[2]
	if dir, err := look(path, at); dir || err != nil {
		return dir, err
	}
	inBase, inOurs, inTheirs := base.Name != nil, ours.Name != nil, theirs.Name != nil
	switch {
	case inBase && inOurs && inTheirs:
		if base.ID == ours.ID || base.ID == theirs.ID || ours.ID == theirs.ID {
			return false, nil
		}
		return false, g.add(blob(base), blob(ours), blob(theirs))
	case !inBase && inOurs && inTheirs && ours.ID != theirs.ID:
		if err := g.add(blob(ours), blob(theirs)); err != nil {
			return false, err
		}
	}
	for i, side := range []object.Entry{ours, theirs} {
		s := &g.sides[i]
		other := at[2-i]
		switch {
		case inBase && side.Name == nil:
			s.gone = append(s.gone, candidate{blob(base), blob(other), isRegular(base)})
			s.balance[base.ID]++
		case !inBase && side.Name != nil:
			s.fresh = append(s.fresh, candidate{blob(side), object.Zero, isRegular(side)})
			s.balance[side.ID]--
		}
	}
	return false, nil
}

// PathError refuses to merge trees that git cannot read.
type PathError struct{ Path string }

func (e *PathError) Error() string {
	return fmt.Sprintf("path %.200q names the object of forty zeros: commit something else there first", e.Path)
}

// look reports whether entries are directories. A null id, at which git gives up,
// is refused.
func look(path []byte, at []object.Entry) (dir bool, err error) {
	for _, e := range at {
		switch {
		case e.Name == nil:
		case e.ID.IsZero():
			return false, &PathError{string(path)}
		case e.Mode.IsDir():
			dir = true
		}
	}
	return dir, nil
}

func isRegular(e object.Entry) bool {
	m := e.Mode.Canonical()
	return m == object.ModeRegular || m == object.ModeExecutable
}

func (g *gatherer) add(ids ...object.ID) error {
	for _, id := range ids {
		if id.IsZero() {
			continue
		}
		if err := g.task.Add(id); err != nil {
			return err
		}
	}
	return nil
}

// renames gives git the candidates of one side, or spares them.
func (g *gatherer) renames(s *sideChanges) error {
	gone, fresh := s.left(s.gone), s.left(s.fresh)
	compared := len(gone) > 0 && len(fresh) > 0
	for _, list := range [][]candidate{s.gone, s.fresh} {
		for _, c := range list {
			if compared && s.unpaired(c) {
				if err := g.add(c.id, c.other); err != nil {
					return err
				}
				continue
			}
			for _, id := range []object.ID{c.id, c.other} {
				if !id.IsZero() {
					g.task.Spare(id)
				}
			}
		}
	}
	return nil
}

// unpaired reports whether a candidate remains once those with the same content
// are paired.
func (s *sideChanges) unpaired(c candidate) bool { return !c.regular || s.balance[c.id] != 0 }

func (s *sideChanges) left(list []candidate) []candidate {
	var out []candidate
	for _, c := range list {
		if s.unpaired(c) {
			out = append(out, c)
		}
	}
	return out
}

// gatherAll gives git what differs between the trees of several commits, all of
// it: what git merges of them in between is not known beforehand.
func gatherAll(ctx context.Context, t *task.Task, r Request, commits []object.ID) error {
	trees := make([]object.ID, len(commits))
	for i, id := range commits {
		trees[i] = treeOf(r, []object.ID{id})
	}
	g := gatherer{task: t}
	return t.Walk(ctx, trees, func(path []byte, at []object.Entry) (bool, error) {
		if dir, err := look(path, at); dir || err != nil {
			return dir, err
		}
		for _, e := range at {
			if err := g.add(blob(e)); err != nil {
				return false, err
			}
		}
		return false, nil
	})
}
