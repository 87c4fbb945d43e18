package patch

import (
	"context"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/odb"
	"github.com/cairnstate/cairn/internal/task"
)

// change is a path at which two trees differ.
type change struct {
	path     string
	old, now Side
}

// scope is the paths that a comparison is about; nil is all of them.
type scope map[string]struct{}

func scopeOf(paths []string) scope {
	if len(paths) == 0 {
		return nil
	}
	s := make(scope, len(paths))
	for _, p := range paths {
		s[p] = struct{}{}
	}
	return s
}

// named reports whether a path is one of the scope's, not just below one.
func (s scope) named(path string) bool {
	_, ok := s[path]
	return ok
}

// covers reports whether a path is in the scope.
func (s scope) covers(path string) bool {
	for s != nil {
		if s.named(path) {
			return true
		}
		i := strings.LastIndexByte(path, '/')
		if i < 0 {
			return false
		}
		path = path[:i]
	}
	return true
}

// leads reports whether a directory is in the scope, or holds what is.
func (s scope) leads(dir string) bool {
	if s.covers(dir) {
		return true
	}
	for p := range s {
		if strings.HasPrefix(p, dir) && p[len(dir)] == '/' {
			return true
		}
	}
	return false
}

// maxChanges is at how many paths trees may differ to be compared.
const maxChanges = 100_000

// changes lists the paths in a scope at which two trees differ, in the order of
// trees.
func changes(ctx context.Context, db *odb.DB, old, now object.ID, in scope) ([]change, error) {
	var list []change
	err := task.Walk(ctx, db.Tree, []object.ID{old, now}, func(path []byte, at []object.Entry) (bool, error) {
		c := change{old: sideOf(at[0]), now: sideOf(at[1])}
		if c.old.Mode.IsDir() || c.now.Mode.IsDir() {
			return in == nil || in.leads(string(path)), nil
		}
		if c.old == c.now {
			return false, nil // git knows fewer modes than trees hold
		}
		if c.path = string(path); !in.covers(c.path) {
			return false, nil
		}
		if len(list) == maxChanges {
			return false, &task.LimitError{What: "files that differ", Limit: maxChanges}
		}
		list = append(list, c)
		return false, nil
	})
	return list, err
}
