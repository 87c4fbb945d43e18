package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// ErrStop ends a walk without an error.
var ErrStop = errors.New("enough")

// MaxPath is how long the path of a directory may be in bytes, so that what lies
// beneath it is told by its path. No system call takes a longer one, and a tree of many
// such would have more bytes of paths than of anything else.
const MaxPath = 4096

// Deep reports whether what lies beneath a directory is left out of walks and
// comparisons because its path is too long.
func Deep(path string, entry *tree.Entry) bool {
	return len(path) > MaxPath && entry.Type == tree.Directory && entry.Summary.Entries > 0
}

// PathError says that a checkpoint has nothing, or something else, at a path.
type PathError struct{ Path string }

func (e *PathError) Error() string { return fmt.Sprintf("the checkpoint has no such file: %q", e.Path) }

// DepthError says that a directory's path is too long for what lies beneath it to be
// named.
type DepthError struct{ Path string }

func (e *DepthError) Error() string {
	return fmt.Sprintf("what lies beneath %.200q has paths of more than %d bytes: capture it as a root of its own, or restore the checkpoint", e.Path, MaxPath)
}

// Tree returns the root object of a native checkpoint.
func (e *Engine) Tree(ctx context.Context, org meta.OrgID, c *Checkpoint) (*tree.Tree, error) {
	root, ok := c.RootDigest()
	if !ok {
		return nil, fmt.Errorf("checkpoint %q has no root: %w", c.ID, meta.ErrCorrupt)
	}
	b, err := tree.FetchOne(ctx, e.Source(org), root)
	if err != nil {
		return nil, Damage(err)
	}
	return tree.DecodeRoot(b)
}

// Damage says of an error of a read that an object which a checkpoint names is missing.
func Damage(err error) error {
	if _, ok := errors.AsType[*tree.MissingError](err); ok {
		return fmt.Errorf("%w: %w", meta.ErrCorrupt, err)
	}
	return err
}

// Walk calls fn for the entries of a checkpoint beneath a path, "" for all, in order
// of their paths, name by name and a directory before what is in it, strictly after
// a path. Paths of native checkpoints begin with the name of a root. fn may return
// ErrStop, and tree.ErrSkip for a directory of which nothing more is wanted. Nothing
// lies beneath those that are Deep.
func (e *Engine) Walk(ctx context.Context, org meta.OrgID, c *Checkpoint, beneath, after string, fn func(path string, entry *tree.Entry) error) error {
	err := e.walk(ctx, org, c, beneath, after, fn)
	if errors.Is(err, ErrStop) {
		return nil
	}
	return Damage(err)
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
		return w.entries(&held[tree.Entry]{list: t.Roots}, names(after))
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
	w.path = append(w.path, beneath+"/"...)
	return w.dir(at.Dir, at.Paged, names(rest))
}

func names(path string) []string {
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// walker walks a tree in order.
type walker struct {
	ctx  context.Context
	src  tree.Source
	fn   func(path string, entry *tree.Entry) error
	path []byte // of the directory where it is, with a slash at its end
	held int    // bytes of the lists on the way there
}

// maxHeld bounds the lists that a walk keeps on its way down. The others are read
// again on the way back.
const maxHeld = 16 << 20

// held is a list of a directory that is being walked. It is read when it is needed.
type held[T any] struct {
	digest tree.Digest
	decode func([]byte) ([]T, error)
	list   []T
	size   int // in memory, about
}

// at returns the i-th of the list, nil behind its end.
func (h *held[T]) at(w *walker, i int) (*T, error) {
	if h.list == nil {
		b, err := tree.FetchOne(w.ctx, w.src, h.digest)
		if err != nil {
			return nil, err
		}
		if h.list, err = h.decode(b); err != nil {
			return nil, err
		}
		h.size = len(b) + len(h.list)*entrySize
	}
	if i >= len(h.list) {
		return nil, nil
	}
	return &h.list[i], nil
}

// entrySize is about what an entry takes in memory beside its names and values.
const entrySize = 256

// during runs fn, which goes further down, and keeps the list if there is room.
func (h *held[T]) during(w *walker, fn func() error) error {
	if w.held+h.size > maxHeld {
		h.list = nil
		return fn()
	}
	w.held += h.size
	defer func() { w.held -= h.size }()
	return fn()
}

// dir walks what is in a directory, after some names.
func (w *walker) dir(d tree.Digest, paged bool, after []string) error {
	if !paged {
		return w.entries(&held[tree.Entry]{digest: d, decode: tree.DecodeDir}, after)
	}
	pages := &held[tree.Page]{digest: d, decode: tree.DecodeIndex}
	for i := 0; ; i++ {
		p, err := pages.at(w, i)
		if p == nil || err != nil {
			return err
		}
		if next, _ := pages.at(w, i+1); len(after) > 0 && next != nil && next.First <= after[0] {
			continue
		}
		page := &held[tree.Entry]{digest: p.Digest, decode: tree.DecodeDir}
		if err := pages.during(w, func() error { return w.entries(page, after) }); err != nil {
			return err
		}
	}
}

func (w *walker) entries(list *held[tree.Entry], after []string) error {
	for i := 0; ; i++ {
		e, err := list.at(w, i)
		if e == nil || err != nil {
			return err
		}
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
		n := len(w.path)
		w.path = append(w.path, e.Name...)
		if len(after) == 0 {
			if err := w.fn(string(w.path), e); errors.Is(err, tree.ErrSkip) {
				w.path = w.path[:n]
				continue
			} else if err != nil {
				return err
			}
		}
		if e.Type == tree.Directory && e.Summary.Entries > 0 && len(w.path) <= MaxPath {
			w.path = append(w.path, '/')
			d, paged := e.Dir, e.Paged
			if err := list.during(w, func() error { return w.dir(d, paged, within) }); err != nil {
				return err
			}
		}
		w.path = w.path[:n]
	}
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
	return entry, Damage(err)
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
	entry := list[i].entry()
	return entry, e.resolve(ctx, org, c, entry)
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
