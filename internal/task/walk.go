package task

import (
	"bytes"
	"context"
	"fmt"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Visit is called for a path at which trees differ. At[i] is the entry that tree
// i has there; one without a Name is absent. The entries that are present are
// either all directories or all something else: a name that is a file in one tree
// and a directory in another is two visits. For directories the answer says
// whether to go into them. Nothing may be kept of path and at without copying.
type Visit func(path []byte, at []object.Entry) (descend bool, err error)

// Trees reads trees.
type Trees func(ctx context.Context, id object.ID) ([]byte, error)

// emptyTree is the tree without entries, which git knows without being given it.
var emptyTree = object.Hash(object.Tree, nil)

// maxVisits bounds the paths at which trees may differ, and maxDepth how deep
// they lie: small trees can stand for any number of paths.
const (
	maxVisits = 1 << 20
	maxDepth  = 2048
)

// Walk visits the paths at which trees differ (a zero id is an empty tree), in the
// order of trees, a directory before what is in it. What all of them share is not
// read. Trees that stand for absurdly many paths are a *LimitError.
func Walk(ctx context.Context, read Trees, trees []object.ID, visit Visit) error {
	w := walker{ctx: ctx, read: read, visit: visit}
	return w.level(trees, 0)
}

type walker struct {
	ctx    context.Context
	read   Trees
	visit  Visit
	path   []byte
	visits int
}

// level walks the trees of one directory.
func (w *walker) level(trees []object.ID, depth int) error {
	if depth > maxDepth {
		return &LimitError{What: "directories within each other", Limit: maxDepth}
	}
	data := make([][]byte, len(trees))
	for i, id := range trees {
		if id.IsZero() || id == emptyTree {
			continue
		}
		var err error
		if data[i], err = w.read(w.ctx, id); err != nil {
			return err
		}
	}
	head := sharedHead(data)
	cursors := make([]cursor, len(trees))
	for i := range data {
		cursors[i].it = object.TreeEntries(data[i][head:])
		cursors[i].next()
	}
	tail := sharedTail(data)
	at := make([]object.Entry, len(trees))
	for !onlyShared(cursors, tail) && least(cursors, at) {
		if equal(at) {
			continue
		}
		if err := w.entry(at, depth); err != nil {
			return err
		}
	}
	for i := range cursors {
		if err := cursors[i].it.Err(); err != nil {
			return fmt.Errorf("read tree %s: %w", trees[i], err)
		}
	}
	return nil
}

// entry visits one name and, if it is a directory, what is in it.
func (w *walker) entry(at []object.Entry, depth int) error {
	if w.visits++; w.visits > maxVisits {
		return &LimitError{What: "paths that differ", Limit: maxVisits}
	}
	if err := w.ctx.Err(); err != nil {
		return err
	}
	length := len(w.path)
	defer func() { w.path = w.path[:length] }()
	if length > 0 {
		w.path = append(w.path, '/')
	}
	below := make([]object.ID, len(at))
	named, dir := false, false
	for i := range at {
		if at[i].Name == nil {
			continue
		}
		if !named {
			w.path, named = append(w.path, at[i].Name...), true
		}
		if dir = at[i].Mode.IsDir(); dir {
			below[i] = at[i].ID
		}
	}
	descend, err := w.visit(w.path, at)
	if err != nil || !dir || !descend {
		return err
	}
	return w.level(below, depth+1)
}

// sharedHead is how many bytes of whole entries all trees begin with.
func sharedHead(data [][]byte) int {
	same := len(data[0])
	for _, other := range data[1:] {
		same = min(same, len(other))
		n := 0
		for n+chunk <= same && bytes.Equal(data[0][n:n+chunk], other[n:n+chunk]) {
			n += chunk
		}
		for n < same && data[0][n] == other[n] {
			n++
		}
		same = n
	}
	it := object.TreeEntries(data[0][:same])
	for left := same; ; left = it.Left() {
		if _, ok := it.Next(); !ok {
			return same - left
		}
	}
}

// sharedTail is how many bytes all trees end with.
func sharedTail(data [][]byte) int {
	a := data[0]
	same := len(a)
	for _, b := range data[1:] {
		same = min(same, len(b))
		n := 0
		for n+chunk <= same && bytes.Equal(a[len(a)-n-chunk:len(a)-n], b[len(b)-n-chunk:len(b)-n]) {
			n += chunk
		}
		for n < same && a[len(a)-n-1] == b[len(b)-n-1] {
			n++
		}
		same = n
	}
	return same
}

// chunk is how many bytes of trees are compared at once.
const chunk = 256

// onlyShared reports whether all cursors have come to the same place of what the
// trees end with.
func onlyShared(cursors []cursor, tail int) bool {
	left := cursors[0].left
	for i := range cursors {
		if cursors[i].left != left {
			return false
		}
	}
	return left <= tail
}

// cursor stands at an entry of a tree.
type cursor struct {
	it   object.TreeIter
	at   object.Entry
	ok   bool
	left int // bytes from the entry to the end
}

func (c *cursor) next() {
	c.left = c.it.Left()
	c.at, c.ok = c.it.Next()
}

// least fills at with the entries that come first in the order of trees, moves
// their cursors on, and reports whether there was any.
func least(cursors []cursor, at []object.Entry) bool {
	first := -1
	for i := range cursors {
		if cursors[i].ok && (first < 0 || object.CompareEntries(cursors[i].at, cursors[first].at) < 0) {
			first = i
		}
	}
	if first < 0 {
		return false
	}
	key := cursors[first].at
	for i := range cursors {
		at[i] = object.Entry{}
		if cursors[i].ok && object.CompareEntries(cursors[i].at, key) == 0 {
			at[i] = cursors[i].at
			cursors[i].next()
		}
	}
	return true
}

// equal reports whether all entries are the same.
func equal(at []object.Entry) bool {
	for i := range at[1:] {
		if !Same(at[0], at[i+1]) {
			return false
		}
	}
	return true
}

// Same reports whether two entries of one path have the same content and mode, or
// are both absent.
func Same(a, b object.Entry) bool {
	return (a.Name == nil) == (b.Name == nil) && a.ID == b.ID && a.Mode == b.Mode
}
