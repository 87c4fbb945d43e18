package repo

import (
	"context"
	"fmt"
	"io"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/merge"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/task"
)

// pack writes the commit and what the merged tree has that is new into a pack.
func (m *merging) pack(ctx context.Context, v *View, merged *merge.Merged, b *built) (*freshPack, error) {
	f := &freshPack{file: m.engine.newPack(m.writer, v.repo.ID, meta.PackInsert), exact: true}
	fresh, err := m.fresh(ctx, v, merged, f)
	if err != nil {
		return f, err
	}
	w := pack.NewWriter(f.file, uint32(1+len(fresh)))
	f.note(b.id)(w.Add(object.Commit, b.data))
	for _, id := range fresh {
		if err := copyObject(ctx, w, merged, f, id); err != nil {
			return f, err
		}
	}
	return f, f.close(w)
}

func copyObject(ctx context.Context, w *pack.Writer, merged *merge.Merged, f *freshPack, id object.ID) error {
	typ, size, content, err := merged.Object(ctx, id)
	if err != nil {
		return err
	}
	defer content.Close()
	f.note(id)(w.AddStream(typ, size, content))
	return nil
}

// fresh lists what the merged tree has and neither side has at the same path,
// trees before what is in them. What is stored already is left out, unless it
// might be stored without being reachable.
func (m *merging) fresh(ctx context.Context, v *View, merged *merge.Merged, f *freshPack) ([]object.ID, error) {
	db, err := v.DB(ctx)
	if err != nil {
		return nil, err
	}
	var ids []object.ID
	seen := make(map[object.ID]bool)
	tidy := v.tidy()
	take := func(id object.ID) bool {
		stored := db.Has(id)
		f.exact = f.exact && !stored
		if stored && tidy {
			return false
		}
		if !seen[id] {
			seen[id] = true
			ids = append(ids, id)
		}
		return true
	}
	same := func(a, b object.Entry) bool { return b.Name != nil && a.ID == b.ID }
	root := merged.Tree
	if root == merged.Trees[0] || root == merged.Trees[1] {
		f.exact = f.exact && (!m.req.Squash || root == merged.Trees[0])
		return nil, nil
	}
	if !take(root) {
		return nil, nil
	}
	err = task.Walk(ctx, merged.ReadTree, []object.ID{root, merged.Trees[0], merged.Trees[1]}, func(_ []byte, at []object.Entry) (bool, error) {
		switch e := at[0]; {
		case e.Name == nil || e.Mode.Type() == object.Commit || same(e, at[1]):
			return false, nil
		case same(e, at[2]):
			// A squashed commit does not have the source as its parent.
			f.exact = f.exact && !m.req.Squash
			return false, nil
		case e.Mode.Type() == object.Blob && object.IsGitmodules(e.Name):
			content := func() (int64, io.ReadCloser, error) {
				_, size, src, err := merged.Object(ctx, e.ID)
				return size, src, err
			}
			if err := checkModulesAt(string(e.Name), e.Mode.Canonical(), content); err != nil {
				return false, err
			}
			return take(e.ID), nil
		default:
			return take(e.ID), nil
		}
	})
	if err != nil {
		return nil, fmt.Errorf("look for what the merge brings: %w", err)
	}
	return ids, nil
}
