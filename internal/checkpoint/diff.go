package checkpoint

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// Comparison asks for what differs from a checkpoint, nil for nothing, to another
// one.
type Comparison struct {
	From, To *Checkpoint
	// Root is the one of a native checkpoint that a manifest is compared with; "" where
	// there is one, or for the one that is called workspace.
	Root string
	// After is the path of the last change that is known, "" for none.
	After string
}

// Diff calls fn for what differs, in order of paths, name by name. A directory that
// was added to or removed from a native checkpoint is one change, and nothing is told
// of what lies beneath those that are Deep. A manifest has files, links and empty
// directories, and says of them no more than what they hold: that is compared between a
// manifest and a native checkpoint, and paths are those of To. fn may return
// ErrStop.
func (e *Engine) Diff(ctx context.Context, org meta.OrgID, c Comparison, fn func(tree.Change) error) error {
	var err error
	switch {
	case c.To.Kind == Native && (c.From == nil || c.From.Kind == Native):
		err = e.diffTrees(ctx, org, c, fn)
	case c.From == nil || c.From.Kind == c.To.Kind:
		err = e.diffManifests(ctx, org, c, fn)
	default:
		err = e.diffKinds(ctx, org, c, fn)
	}
	if errors.Is(err, ErrStop) {
		return nil
	}
	return Damage(err)
}

func (e *Engine) diffTrees(ctx context.Context, org meta.OrgID, c Comparison, fn func(tree.Change) error) error {
	after, err := e.Tree(ctx, org, c.To)
	if err != nil {
		return err
	}
	before := new(tree.Tree)
	if c.From != nil {
		if before, err = e.Tree(ctx, org, c.From); err != nil {
			return err
		}
	}
	return tree.Diff(ctx, e.Source(org), before, after, c.After, func(change tree.Change) error {
		if err := fn(change); err != nil || len(change.Path) <= MaxPath {
			return err
		}
		return tree.ErrSkip
	})
}

func (e *Engine) diffManifests(ctx context.Context, org meta.OrgID, c Comparison, fn func(tree.Change) error) error {
	var sides [2]iter.Seq2[string, *tree.Entry]
	for i, cp := range []*Checkpoint{c.From, c.To} {
		var list []item
		if cp != nil {
			var err error
			if list, err = e.items(ctx, org, cp); err != nil {
				return err
			}
		}
		sides[i] = leaves(itemsAfter(list, c.After))
	}
	return mergeLeaves(sides[0], sides[1], tree.Equal, fn)
}

func leaves(list []item) iter.Seq2[string, *tree.Entry] {
	return func(yield func(string, *tree.Entry) bool) {
		for i := range list {
			if !yield(list[i].path, list[i].entry()) {
				return
			}
		}
	}
}

// diffKinds compares a manifest with a native checkpoint.
func (e *Engine) diffKinds(ctx context.Context, org meta.OrgID, c Comparison, fn func(tree.Change) error) error {
	native, other := c.To, c.From
	if c.From.Kind == Native {
		native, other = c.From, c.To
	}
	root, err := e.comparedRoot(ctx, org, native, c.Root)
	if err != nil {
		return err
	}
	prefix := root + "/"
	after := c.After
	if c.To == native && after != "" {
		var ok bool
		if after, ok = strings.CutPrefix(after, prefix); !ok {
			return &PathError{c.After}
		}
	}
	list, err := e.items(ctx, org, other)
	if err != nil {
		return err
	}
	resume := ""
	if after != "" {
		resume = prefix + after
	}
	var failed error
	files := func(yield func(string, *tree.Entry) bool) {
		failed = e.Walk(ctx, org, native, root, resume, func(path string, entry *tree.Entry) error {
			if entry.Type == tree.Directory && entry.Summary.Entries > 0 && !Deep(path, entry) {
				return nil
			}
			if !yield(path[len(prefix):], entry) {
				return ErrStop
			}
			return nil
		})
	}
	listed := leaves(itemsAfter(list, after))
	if c.To == other {
		err = mergeLeaves(files, listed, alike, fn)
	} else {
		err = mergeLeaves(listed, files, alike, func(change tree.Change) error {
			change.Path = prefix + change.Path
			return fn(change)
		})
	}
	if failed != nil {
		return failed
	}
	return err
}

// comparedRoot returns the root of a native checkpoint that a manifest is compared
// with.
func (e *Engine) comparedRoot(ctx context.Context, org meta.OrgID, c *Checkpoint, name string) (string, error) {
	t, err := e.Tree(ctx, org, c)
	if err != nil {
		return "", err
	}
	switch {
	case name == "" && len(t.Roots) == 1:
		return t.Roots[0].Name, nil
	case name == "":
		name = "workspace"
	}
	if !slices.ContainsFunc(t.Roots, func(e tree.Entry) bool { return e.Name == name }) {
		return "", refuse(InvalidEntry, "the checkpoint has no root %.200q: name the one to compare with a manifest", name)
	}
	return name, nil
}

// alike reports whether two entries hold the same, so far as a manifest tells.
func alike(a, b *tree.Entry) bool {
	switch {
	case a.Type != b.Type:
		return false
	case a.Type == tree.Symlink:
		return a.Target == b.Target
	case a.Type == tree.Directory:
		return a.Summary.Entries == b.Summary.Entries
	case a.Content.Size == 0 || b.Content.Size == 0:
		return a.Content.Size == b.Content.Size
	}
	return a.Content.Sum == b.Content.Sum
}

// mergeLeaves calls fn for what differs between two lists in order of paths.
func mergeLeaves(before, after iter.Seq2[string, *tree.Entry], equal func(a, b *tree.Entry) bool, fn func(tree.Change) error) error {
	nextOld, stopOld := iter.Pull2(before)
	defer stopOld()
	nextNew, stopNew := iter.Pull2(after)
	defer stopNew()
	oldPath, old, hasOld := nextOld()
	newPath, now, hasNew := nextNew()
	for hasOld || hasNew {
		order := 0
		switch {
		case !hasOld:
			order = 1
		case !hasNew:
			order = -1
		default:
			order = comparePaths(oldPath, newPath)
		}
		var c tree.Change
		if order <= 0 {
			c.Path, c.Old = oldPath, old
			oldPath, old, hasOld = nextOld()
		}
		if order >= 0 {
			c.Path, c.New = newPath, now
			newPath, now, hasNew = nextNew()
		}
		if c.Old != nil && c.New != nil && equal(c.Old, c.New) {
			continue
		}
		if err := fn(c); err != nil {
			return err
		}
	}
	return nil
}
