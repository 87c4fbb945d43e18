package patch

import (
	"context"
	"fmt"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/task"
)

// base is what a tree has at the paths that a patch may touch.
type base struct {
	names node
	files map[string]Side      // files, also those that a path leads through
	dirs  map[string]object.ID // directories at whole paths
}

// node is a directory of names.
type node struct {
	below map[string]*node
	end   bool // a path ends here
}

func newBase(sections []section) *base {
	b := &base{files: make(map[string]Side), dirs: make(map[string]object.ID)}
	for _, s := range sections {
		for _, path := range s.names {
			at := &b.names
			for name := range strings.SplitSeq(path, "/") {
				next, ok := at.below[name]
				if !ok {
					if at.below == nil {
						at.below = make(map[string]*node)
					}
					next = new(node)
					at.below[name] = next
				}
				at = next
			}
			at.end = true
		}
	}
	return b
}

// find looks up the paths in a tree.
func (b *base) find(ctx context.Context, db *odb.DB, tree object.ID) error {
	if tree.IsZero() {
		return nil
	}
	return b.look(ctx, db, tree, &b.names, "")
}

func (b *base) look(ctx context.Context, db *odb.DB, tree object.ID, at *node, prefix string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	data, err := db.Tree(ctx, tree)
	if err != nil {
		return err
	}
	it := object.TreeEntries(data)
	for {
		e, ok := it.Next()
		if !ok {
			break
		}
		next, named := at.below[string(e.Name)]
		if !named {
			continue
		}
		path := prefix + string(e.Name)
		if !e.Mode.IsDir() {
			b.files[path] = sideOf(e)
			continue
		}
		if next.end {
			b.dirs[path] = e.ID
		}
		if next.below == nil {
			continue
		}
		if err := b.look(ctx, db, e.ID, next, path+"/"); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("read tree %s: %w", tree, err)
	}
	return nil
}

// fits refuses changes that put a file where a directory remains.
func (b *base) fits(ctx context.Context, db *odb.DB, changes []Change) error {
	gone := make(map[string]bool)
	for _, c := range changes {
		if c.Now.Mode == 0 {
			gone[c.Path] = true
		}
	}
	for _, c := range changes {
		dir, ok := b.dirs[c.Path]
		if !ok || c.Now.Mode == 0 {
			continue
		}
		err := task.Walk(ctx, db.Tree, []object.ID{object.Zero, dir}, func(path []byte, at []object.Entry) (bool, error) {
			if at[1].Mode.IsDir() {
				return true, nil
			}
			if !gone[c.Path+"/"+string(path)] {
				return false, &ConflictError{fmt.Sprintf("%q is a directory", c.Path)}
			}
			return false, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
