package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// ErrStop ends a walk without an error.
var ErrStop = errors.New("enough")

// PathError says that a checkpoint has nothing, or something else, at a path.
type PathError struct{ Path string }

func (e *PathError) Error() string { return fmt.Sprintf("the checkpoint has no such file: %q", e.Path) }

// Tree returns the root object of a native checkpoint.
func (e *Engine) Tree(ctx context.Context, org meta.OrgID, c *Checkpoint) (*tree.Tree, error) {
	root, ok := c.RootDigest()
	if !ok {
		return nil, fmt.Errorf("checkpoint %q has no root: %w", c.ID, meta.ErrCorrupt)
	}
	b, err := tree.FetchOne(ctx, e.Source(org), root)
	if err != nil {
		return nil, corrupt(err)
	}
	return tree.DecodeRoot(b)
}

// corrupt says that an object which a checkpoint names is missing.
func corrupt(err error) error {
	if _, ok := errors.AsType[*tree.MissingError](err); ok {
		return fmt.Errorf("%w: %w", meta.ErrCorrupt, err)
	}
	return err
}

// Walk calls fn for the entries of a checkpoint beneath a path, "" for all, in order
// of their paths, name by name and a directory before what is in it, strictly after
// a path. Paths of native checkpoints begin with the name of a root. fn may return
// ErrStop.
func (e *Engine) Walk(ctx context.Context, org meta.OrgID, c *Checkpoint, beneath, after string, fn func(path string, entry *tree.Entry) error) error {
	err := e.walk(ctx, org, c, beneath, after, fn)
	if errors.Is(err, ErrStop) {
		return nil
	}
	return corrupt(err)
}

func (e *Engine) walk(ctx context.Context, org meta.OrgID, c *Checkpoint, beneath, after string, fn func(path string, entry *tree.Entry) error) error {
	if beneath != "" && tree.CheckPath(beneath) != nil {
		return &PathError{beneath}
	}
	if c.Kind == Manifest {
		return e.walkManifest(ctx, org, c, beneath, after, fn)
	}
	t, err := e.Tree(ctx, org, c)
	if err != nil {
		return err
	}
	w := walker{ctx: ctx, src: e.Source(org), fn: fn}
	if beneath == "" {
		return w.entries("", t.Roots, names(after))
	}
	at, err := tree.Lookup(ctx, w.src, t, beneath)
	if err != nil {
		return err
	}
	if at == nil || at.Type != tree.Directory {
		return &PathError{beneath}
	}
	rest := ""
	if after != "" {
		var ok bool
		if rest, ok = strings.CutPrefix(after, beneath+"/"); !ok {
			return &PathError{after}
		}
	}
	return w.dir(beneath+"/", at, names(rest))
}

func names(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// walker walks a tree in order.
type walker struct {
	ctx context.Context
	src tree.Source
	fn  func(path string, entry *tree.Entry) error
}

// dir walks what is in a directory, after some names.
func (w *walker) dir(prefix string, at *tree.Entry, after []string) error {
	b, err := tree.FetchOne(w.ctx, w.src, at.Dir)
	if err != nil {
		return err
	}
	if !at.Paged {
		entries, err := tree.DecodeDir(b)
		if err != nil {
			return err
		}
		return w.entries(prefix, entries, after)
	}
	pages, err := tree.DecodeIndex(b)
	if err != nil {
		return err
	}
	for i, p := range pages {
		if len(after) > 0 && i+1 < len(pages) && pages[i+1].First <= after[0] {
			continue
		}
		b, err := tree.FetchOne(w.ctx, w.src, p.Digest)
		if err != nil {
			return err
		}
		entries, err := tree.DecodeDir(b)
		if err != nil {
			return err
		}
		if err := w.entries(prefix, entries, after); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) entries(prefix string, entries []tree.Entry, after []string) error {
	for i := range entries {
		e := &entries[i]
		var within []string
		if len(after) > 0 {
			switch strings.Compare(e.Name, after[0]) {
			case -1:
				continue
			case 0:
				within = after[1:]
			default:
				after = nil
			}
		}
		if len(after) == 0 {
			if err := w.fn(prefix+e.Name, e); err != nil {
				return err
			}
		}
		if e.Type == tree.Directory {
			if err := w.dir(prefix+e.Name+"/", e, within); err != nil {
				return err
			}
		}
	}
	return nil
}

// item is a file of a manifest.
type item struct {
	path  string
	entry tree.Entry
}

// items reads the files of a manifest, in order of their paths.
func (e *Engine) items(ctx context.Context, org meta.OrgID, c *Checkpoint) ([]item, error) {
	b, err := e.read(ctx, org, c.Files)
	if err != nil {
		return nil, err
	}
	var raw []map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("files of checkpoint %q: %w: %w", c.ID, err, meta.ErrCorrupt)
	}
	list := make([]item, 0, len(raw))
	for _, fields := range raw {
		var i item
		i.path, _ = jsonString(fields["path"]) // they were checked when they came in
		kind, _ := jsonString(fields["kind"])
		i.entry.Name = i.path[strings.LastIndexByte(i.path, '/')+1:]
		switch kind {
		case "dir":
			i.entry.Type, i.entry.Mode = tree.Directory, 0o755
		case "symlink":
			i.entry.Type, i.entry.Mode = tree.Symlink, 0o777
			i.entry.Target, _ = jsonString(fields["target"])
		default:
			k, size, _ := blobOf(fields, Files)
			i.entry.Type, i.entry.Mode = tree.File, 0o644
			i.entry.Content = tree.Content{Size: size, Digest: k.Sum, Sum: k.Sum}
		}
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b item) int { return comparePaths(a.path, b.path) })
	return list, nil
}

func (e *Engine) walkManifest(ctx context.Context, org meta.OrgID, c *Checkpoint, beneath, after string, fn func(path string, entry *tree.Entry) error) error {
	list, err := e.items(ctx, org, c)
	if err != nil {
		return err
	}
	found := beneath == ""
	for i := range list {
		if beneath != "" && !strings.HasPrefix(list[i].path, beneath+"/") {
			found = found || list[i].path == beneath && list[i].entry.Type == tree.Directory
			continue
		}
		if found = true; after != "" && comparePaths(list[i].path, after) <= 0 {
			continue
		}
		if err := fn(list[i].path, &list[i].entry); err != nil {
			return err
		}
	}
	if !found {
		return &PathError{beneath}
	}
	return nil
}

// Lookup returns the entry at a path of a checkpoint, and a *PathError where there
// is none. The content of a file is one that Source has.
func (e *Engine) Lookup(ctx context.Context, org meta.OrgID, c *Checkpoint, path string) (*tree.Entry, error) {
	if tree.CheckPath(path) != nil {
		return nil, &PathError{path}
	}
	if c.Kind == Manifest {
		return e.lookupItem(ctx, org, c, path)
	}
	t, err := e.Tree(ctx, org, c)
	if err != nil {
		return nil, err
	}
	entry, err := tree.Lookup(ctx, e.Source(org), t, path)
	if err == nil && entry == nil {
		err = &PathError{path}
	}
	return entry, corrupt(err)
}

func (e *Engine) lookupItem(ctx context.Context, org meta.OrgID, c *Checkpoint, path string) (*tree.Entry, error) {
	list, err := e.items(ctx, org, c)
	if err != nil {
		return nil, err
	}
	i, ok := slices.BinarySearchFunc(list, path, func(i item, path string) int { return comparePaths(i.path, path) })
	if !ok {
		return nil, &PathError{path}
	}
	return &list[i].entry, e.resolve(ctx, org, c, &list[i].entry)
}

// resolve finds what the content of a manifest's file is made of. Its size is that of
// the bytes, whatever the manifest says.
func (e *Engine) resolve(ctx context.Context, org meta.OrgID, c *Checkpoint, entry *tree.Entry) error {
	if c.Kind != Manifest || entry.Type != tree.File {
		return nil
	}
	if entry.Content.Sum == emptySum {
		entry.Content = tree.Content{}
		return nil
	}
	if c.External {
		return &Error{Code: MissingObject, What: "the bytes of the checkpoint's files are kept by the application"}
	}
	found, err := e.blobs(ctx, org, []tree.Digest{entry.Content.Sum})
	if err != nil {
		return err
	}
	b, ok := found[entry.Content.Sum]
	if !ok {
		return fmt.Errorf("blob %s of checkpoint %q is missing: %w", entry.Content.Sum, c.ID, meta.ErrCorrupt)
	}
	if entry.Content = b.Content; b.Content.Chunked {
		return nil
	}
	length, err := e.cfg.Content.Lengths(ctx, org, []tree.Digest{b.Content.Digest})
	if err == nil && length[0] < 0 {
		err = fmt.Errorf("blob %s of checkpoint %q is missing: %w", entry.Content.Sum, c.ID, meta.ErrCorrupt)
	}
	if err == nil {
		entry.Content.Size = uint64(length[0])
	}
	return err
}

// Diff calls fn for what differs from a checkpoint, nil for nothing, to another one
// of the same kind. A directory that was added or removed is one change. fn may
// return ErrStop.
func (e *Engine) Diff(ctx context.Context, org meta.OrgID, from, to *Checkpoint, fn func(tree.Change) error) error {
	if from != nil && from.Kind != to.Kind {
		return refuse(InvalidEntry, "a checkpoint of kind %s cannot be compared with one of kind %s", to.Kind, from.Kind)
	}
	var err error
	if to.Kind == Manifest {
		err = e.diffManifests(ctx, org, from, to, fn)
	} else {
		err = e.diffTrees(ctx, org, from, to, fn)
	}
	if errors.Is(err, ErrStop) {
		return nil
	}
	return corrupt(err)
}

func (e *Engine) diffTrees(ctx context.Context, org meta.OrgID, from, to *Checkpoint, fn func(tree.Change) error) error {
	after, err := e.Tree(ctx, org, to)
	if err != nil {
		return err
	}
	before := new(tree.Tree)
	if from != nil {
		if before, err = e.Tree(ctx, org, from); err != nil {
			return err
		}
	}
	return tree.Diff(ctx, e.Source(org), before, after, fn)
}

func (e *Engine) diffManifests(ctx context.Context, org meta.OrgID, from, to *Checkpoint, fn func(tree.Change) error) error {
	after, err := e.items(ctx, org, to)
	if err != nil {
		return err
	}
	var before []item
	if from != nil {
		if before, err = e.items(ctx, org, from); err != nil {
			return err
		}
	}
	for len(before) > 0 || len(after) > 0 {
		var c tree.Change
		order := 0
		switch {
		case len(before) == 0:
			order = 1
		case len(after) == 0:
			order = -1
		default:
			order = comparePaths(before[0].path, after[0].path)
		}
		if order <= 0 {
			c.Path, c.Old, before = before[0].path, &before[0].entry, before[1:]
		}
		if order >= 0 {
			c.Path, c.New, after = after[0].path, &after[0].entry, after[1:]
		}
		if c.Old != nil && c.New != nil && tree.Equal(c.Old, c.New) {
			continue
		}
		if err := fn(c); err != nil {
			return err
		}
	}
	return nil
}
