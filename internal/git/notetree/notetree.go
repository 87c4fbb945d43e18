// Package notetree reads and changes the trees in which Git keeps notes: a blob
// for each annotated object, under the object's id in hexadecimal, spread over
// directories of two digits each when there are many. It spreads them exactly as
// Git does.
package notetree

import (
	"errors"
	"fmt"

	"github.com/cairnstate/cairn/internal/git/object"
)

// ErrMalformed says that a tree cannot be read as notes.
var ErrMalformed = errors.New("malformed notes tree")

// MaxEntries bounds the entries that one Tree reads.
const MaxEntries = 1 << 20

// Source is where trees are read from.
type Source struct {
	// Tree returns the content of a tree that another names.
	Tree func(object.ID) ([]byte, error)
	// Join returns the blob for an object that has two notes: the texts of both.
	Join func(first, second object.ID) (object.ID, error)
}

// Tree is the notes of one ref. Only the directories that are needed are read. It
// is not safe for concurrent use; after an error it must not be used any more.
type Tree struct {
	src    Source
	root   *inner
	others map[string]other // by path: what is no note, and kept
	read   int              // entries
}

// slot is what the trie has for some digits: nil, *inner, *note, or *directory.
type slot any

// inner is a node of the trie for two or more notes: one slot for each digit.
type inner struct{ slots [16]slot }

type note struct{ key, blob object.ID }

// directory is a part of the tree that was not read yet: the notes whose keys
// begin with the first n bytes of prefix, of which the others are zero.
type directory struct {
	prefix object.ID
	n      int
	id     object.ID
}

func (d *directory) covers(key object.ID) bool {
	return string(d.prefix[:d.n]) == string(key[:d.n])
}

// other is an entry that is no note.
type other struct {
	mode object.Mode
	id   object.ID
}

// Open returns the notes in a tree; zero is an empty one.
func Open(root object.ID, src Source) (*Tree, error) {
	t := &Tree{src: src, root: new(inner), others: map[string]other{}}
	if root.IsZero() {
		return t, nil
	}
	return t, t.load(&directory{id: root}, t.root, 0)
}

// Get returns the blob of an object's note; false when it has none.
func (t *Tree) Get(key object.ID) (object.ID, bool, error) {
	at, err := t.search(t.root, 0, key)
	if err != nil {
		return object.Zero, false, err
	}
	n, ok := (*at.slot).(*note)
	if !ok || n.key != key {
		return object.Zero, false, nil
	}
	return n.blob, true, nil
}

// Set gives an object a note, in place of the one it has.
func (t *Tree) Set(key, blob object.ID) error {
	replace := func(_, second object.ID) (object.ID, error) { return second, nil }
	return t.insert(t.root, 0, &note{key, blob}, replace)
}

// Remove takes an object's note away, and reports whether it had one.
func (t *Tree) Remove(key object.ID) (bool, error) {
	at, err := t.search(t.root, 0, key)
	if err != nil {
		return false, err
	}
	n, ok := (*at.slot).(*note)
	if !ok || n.key != key {
		return false, nil
	}
	*at.slot = nil
	t.fold(key, at.depth)
	return true, nil
}

// fold replaces the nodes above a note that was removed from a depth where no
// more than one note is left below them.
func (t *Tree) fold(key object.ID, depth int) {
	path := make([]*inner, depth+1)
	path[0] = t.root
	for i := range depth {
		path[i+1] = path[i].slots[digit(key, i)].(*inner)
	}
	for i := depth; i > 0; i-- {
		var only slot
		for _, s := range path[i].slots {
			if s == nil {
				continue
			}
			if only != nil {
				return
			}
			only = s
		}
		if _, isNote := only.(*note); only != nil && !isNote {
			return
		}
		path[i-1].slots[digit(key, i-1)] = only
	}
}

// digit returns hexadecimal digit i of an id.
func digit(id object.ID, i int) int {
	if i%2 == 0 {
		return int(id[i/2] >> 4)
	}
	return int(id[i/2] & 15)
}

// place is where a key belongs.
type place struct {
	node  *inner
	depth int // digits above node
	slot  *slot
}

// search finds the place of a key below a node, reading directories on the way.
func (t *Tree) search(node *inner, depth int, key object.ID) (place, error) {
	for depth < 2*object.Size {
		at := &node.slots[digit(key, depth)]
		// A directory whose prefix has no digit left stands in the first slot.
		for _, s := range []*slot{&node.slots[0], at} {
			if d, ok := (*s).(*directory); ok && d.covers(key) {
				*s = nil
				if err := t.load(d, node, depth); err != nil {
					return place{}, err
				}
				at = nil
				break
			}
		}
		if at == nil {
			continue
		}
		next, ok := (*at).(*inner)
		if !ok {
			return place{node, depth, at}, nil
		}
		node, depth = next, depth+1
	}
	return place{}, fmt.Errorf("%w: two notes share all digits of %s", ErrMalformed, key)
}

type joiner func(first, second object.ID) (object.ID, error)

// insert puts a *note or *directory below a node.
func (t *Tree) insert(node *inner, depth int, s slot, join joiner) error {
	var key object.ID
	switch s := s.(type) {
	case *note:
		key = s.key
	case *directory:
		key = s.prefix
	}
	at, err := t.search(node, depth, key)
	if err != nil {
		return err
	}
	switch old := (*at.slot).(type) {
	case nil:
		*at.slot = s
		return nil
	case *note:
		switch s := s.(type) {
		case *note:
			if old.key == s.key {
				if old.blob != s.blob {
					old.blob, err = join(old.blob, s.blob)
				}
				return err
			}
		case *directory:
			if s.covers(old.key) {
				return t.load(s, at.node, at.depth)
			}
		}
	}
	// Two that differ in a later digit.
	old := *at.slot
	below := new(inner)
	if err := t.insert(below, at.depth+1, old, join); err != nil {
		return err
	}
	*at.slot = below
	return t.insert(below, at.depth+1, s, join)
}

// load reads a directory into a node.
func (t *Tree) load(d *directory, node *inner, depth int) error {
	if d.n >= object.Size || 2*d.n < depth {
		return fmt.Errorf("%w: tree %s is out of place", ErrMalformed, d.id)
	}
	data, err := t.src.Tree(d.id)
	if err != nil {
		return err
	}
	it := object.TreeEntries(data)
	for e, ok := it.Next(); ok; e, ok = it.Next() {
		if t.read++; t.read > MaxEntries {
			return fmt.Errorf("%w: it has more than %d entries", ErrMalformed, MaxEntries)
		}
		s := entrySlot(d, e)
		if s == nil {
			t.others[otherPath(d, string(e.Name))] = other{e.Mode, e.ID}
			continue
		}
		if err := t.insert(node, depth, s, t.src.Join); err != nil {
			return err
		}
	}
	return it.Err()
}

// entrySlot returns what an entry of a directory is in the trie, nil when it has
// nothing to do with notes.
func entrySlot(d *directory, e object.Entry) slot {
	key := d.prefix
	switch {
	case len(e.Name) == 2*(object.Size-d.n) && e.Mode.Canonical().Type() == object.Blob && e.Mode.Canonical() != object.ModeSymlink:
		if !fromHex(key[d.n:], e.Name) {
			return nil
		}
		return &note{key, e.ID}
	case len(e.Name) == 2 && e.Mode.IsDir():
		if !fromHex(key[d.n:d.n+1], e.Name) {
			return nil
		}
		return &directory{key, d.n + 1, e.ID}
	}
	return nil
}
