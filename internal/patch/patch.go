// Package patch makes patches from trees and applies them to trees. git does
// both, on trees that hold nothing but the paths which matter: what a comparison
// costs follows what differs, and what an application costs follows the patch.
package patch

import (
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Side is what a tree has at a path. Mode 0 says nothing.
type Side struct {
	Mode object.Mode // canonical
	ID   object.ID
}

func sideOf(e object.Entry) Side {
	if e.Name == nil {
		return Side{}
	}
	return Side{e.Mode.Canonical(), e.ID}
}

// blob returns the content that a side has as a file or link, zero for none.
func (s Side) blob() object.ID {
	if s.Mode.Type() != object.Blob {
		return object.Zero
	}
	return s.ID
}

// sparse is a tree that is put together of single paths.
type sparse struct {
	entries []object.Entry
	dirs    map[string]*sparse
}

// put adds a path, which it does not have yet.
func (s *sparse) put(path string, at Side) {
	for {
		name, rest, deeper := strings.Cut(path, "/")
		if !deeper {
			s.entries = append(s.entries, object.Entry{Mode: at.Mode, Name: []byte(name), ID: at.ID})
			return
		}
		below, ok := s.dirs[name]
		if !ok {
			if s.dirs == nil {
				s.dirs = make(map[string]*sparse)
			}
			below = new(sparse)
			s.dirs[name] = below
		}
		s, path = below, rest
	}
}

// write gives the trees to made, which returns the id of an object of that type
// and content, and returns the root's.
func (s *sparse) write(made func(object.Type, []byte) object.ID) object.ID {
	for name, below := range s.dirs {
		s.entries = append(s.entries, object.Entry{Mode: object.ModeDir, Name: []byte(name), ID: below.write(made)})
	}
	return made(object.Tree, object.EncodeTree(s.entries))
}
