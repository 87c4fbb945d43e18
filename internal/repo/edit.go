package repo

import (
	"context"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
)

// edit is a set of changes of paths, arranged as the tree they apply to. Of
// several changes of one path the last wins, as if they were made in turn.
type edit struct {
	children map[string]*edit
	// cut says that whatever the base has at this path is gone.
	cut bool
	// dir says that something was put below this path, so that a file which the
	// base has here makes way.
	dir bool
	// leaf is what the path holds; nil for a directory, and for nothing.
	leaf *leaf
}

// leaf is a file, link or submodule to be put somewhere. Mode 0 keeps the mode
// that the path has, or takes object.ModeRegular.
type leaf struct {
	mode object.Mode
	id   object.ID
}

// put lays l at path, which object.CheckPath accepts, and returns how many
// names that adds to e.
func (e *edit) put(path string, l leaf) (added int) {
	name, rest, deeper := strings.Cut(path, "/")
	c, added := e.child(name)
	if deeper {
		if c.leaf != nil {
			c.leaf, c.cut = nil, true
		}
		c.dir = true
		return added + c.put(rest, l)
	}
	if l.mode == 0 && (c.cut || c.dir) {
		l.mode = object.ModeRegular
		if c.leaf != nil {
			l.mode = c.leaf.mode
		}
	}
	*c = edit{cut: true, leaf: &l}
	return added
}

// remove takes away path and all below it, and returns how many names that adds
// to e.
func (e *edit) remove(path string) (added int) {
	name, rest, deeper := strings.Cut(path, "/")
	c, added := e.child(name)
	switch {
	case !deeper:
		*c = edit{cut: true}
	case c.leaf == nil:
		return added + c.remove(rest)
	}
	return added
}

// child returns what changes below name, and how many names that adds to e.
func (e *edit) child(name string) (c *edit, added int) {
	c, ok := e.children[name]
	if !ok {
		c = new(edit)
		if e.children == nil {
			e.children = make(map[string]*edit)
		}
		e.children[name] = c
		added = 1
	}
	return c, added
}

// treeMaker applies an edit, reading and writing only the trees along changed
// paths.
type treeMaker struct {
	// read returns the content of a tree of the base.
	read func(ctx context.Context, id object.ID) ([]byte, error)
	// made takes each tree that differs from the base's at its path, children
	// before parents. Its error ends the work.
	made func(id object.ID, data []byte) error
	// kept is told the entries of the base's trees that were read: they are
	// known to be part of the base.
	kept func(object.ID)
}

// apply returns the tree that e makes of base (zero for the empty tree), and
// its number of entries.
func (m *treeMaker) apply(ctx context.Context, base object.ID, e *edit) (object.ID, int, error) {
	var old []byte
	if !base.IsZero() {
		var err error
		if old, err = m.read(ctx, base); err != nil {
			return object.Zero, 0, err
		}
	}
	fresh, err := m.changed(ctx, old, e)
	if err != nil {
		return object.Zero, 0, err
	}
	data, n, err := mergeTree(old, e.children, fresh)
	if err != nil {
		return object.Zero, 0, err
	}
	id := object.Hash(object.Tree, data)
	if id != base && n > 0 {
		err = m.made(id, data)
	}
	return id, n, err
}

// changed returns the entries of the paths that e names, sorted, leaving out
// those that are gone.
func (m *treeMaker) changed(ctx context.Context, old []byte, e *edit) ([]object.Entry, error) {
	before := make(map[string]object.Entry, len(e.children))
	it := object.TreeEntries(old)
	for {
		entry, ok := it.Next()
		if !ok {
			break
		}
		m.kept(entry.ID)
		if _, named := e.children[string(entry.Name)]; named {
			before[string(entry.Name)] = entry
		}
	}
	if err := it.Err(); err != nil {
		return nil, err
	}
	fresh := make([]object.Entry, 0, len(e.children))
	for name, c := range e.children {
		entry, exists := before[name]
		entry, exists, err := m.entry(ctx, name, entry, exists, c)
		if err != nil {
			return nil, err
		}
		if exists {
			fresh = append(fresh, entry)
		}
	}
	slices.SortFunc(fresh, object.CompareEntries)
	return fresh, nil
}

// entry returns what one name of a tree becomes.
func (m *treeMaker) entry(ctx context.Context, name string, old object.Entry, exists bool, c *edit) (object.Entry, bool, error) {
	if c.leaf != nil {
		mode := c.leaf.mode
		if mode == 0 {
			mode = object.ModeRegular
			if exists && old.Mode.Type() == object.Blob {
				mode = old.Mode.Canonical()
			}
		}
		return object.Entry{Mode: mode, Name: []byte(name), ID: c.leaf.id}, true, nil
	}
	isDir := exists && old.Mode.IsDir()
	if exists && !isDir && !c.cut && !c.dir {
		return old, true, nil // only absent paths below a file were removed
	}
	base := object.Zero
	if isDir && !c.cut {
		base = old.ID
	}
	if base.IsZero() && len(c.children) == 0 {
		return object.Entry{}, false, nil
	}
	id, n, err := m.apply(ctx, base, c)
	if err != nil {
		return object.Entry{}, false, err
	}
	if n == 0 {
		return object.Entry{}, false, nil // a directory without entries does not exist
	}
	return object.Entry{Mode: object.ModeDir, Name: []byte(name), ID: id}, true, nil
}

// mergeTree returns old without the named entries and with the fresh ones, and
// the number of entries. Both are in Git's order; untouched entries are copied
// as they are.
func mergeTree(old []byte, named map[string]*edit, fresh []object.Entry) ([]byte, int, error) {
	entries := make([]object.Entry, 0, len(old)/32+len(fresh))
	it := object.TreeEntries(old)
	for {
		entry, ok := it.Next()
		if !ok {
			break
		}
		if _, gone := named[string(entry.Name)]; gone {
			continue
		}
		for len(fresh) > 0 && object.CompareEntries(fresh[0], entry) < 0 {
			entries = append(entries, fresh[0])
			fresh = fresh[1:]
		}
		entries = append(entries, entry)
	}
	if err := it.Err(); err != nil {
		return nil, 0, err
	}
	entries = append(entries, fresh...)
	return object.EncodeTree(entries), len(entries), nil
}
