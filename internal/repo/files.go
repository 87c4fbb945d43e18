package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/odb"
)

// Entry is what a path of a commit holds.
type Entry struct {
	Path string // from the root, without slashes at its ends; "" for the root
	Mode object.Mode
	ID   object.ID
}

// rootTree returns the tree of a commit of the view.
func (v *View) rootTree(ctx context.Context, commit object.ID) (*graph.Graph, object.ID, error) {
	g, err := v.Graph(ctx)
	if err != nil {
		return nil, object.Zero, err
	}
	n, ok := g.Node(commit)
	if !ok {
		return nil, object.Zero, &NotFoundError{What: "commit", Name: commit.String()}
	}
	return g, g.Tree(n), nil
}

// Entry returns what a commit, which the caller has resolved, holds at a path. A
// path that does not exist is a *NotFoundError.
func (v *View) Entry(ctx context.Context, commit object.ID, path string) (Entry, error) {
	g, tree, err := v.rootTree(ctx, commit)
	if err != nil {
		return Entry{}, err
	}
	at, ok, err := lookup(ctx, g.DB(), tree, path)
	if err == nil && !ok {
		err = &NotFoundError{What: "path", Name: clip(path)}
	}
	return at, err
}

// Commit returns a commit of the view, which the caller has resolved.
func (v *View) Commit(ctx context.Context, id object.ID) (*object.CommitData, error) {
	db, err := v.DB(ctx)
	if err != nil {
		return nil, err
	}
	t, data, err := db.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if t != object.Commit {
		return nil, &NotFoundError{What: "commit", Name: id.String()}
	}
	c, err := object.ParseCommit(data)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", id, err)
	}
	return c, nil
}

// lookup finds a path below a tree.
func lookup(ctx context.Context, db *odb.DB, tree object.ID, path string) (Entry, bool, error) {
	at := Entry{Path: path, Mode: object.ModeDir, ID: tree}
	for rest := path; rest != ""; {
		if !at.Mode.IsDir() {
			return Entry{}, false, nil
		}
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		data, err := db.Tree(ctx, at.ID)
		if err != nil {
			return Entry{}, false, err
		}
		e, ok, err := object.Find(data, name)
		if err != nil || !ok {
			return Entry{}, false, err
		}
		at.Mode, at.ID = e.Mode.Canonical(), e.ID
	}
	return at, !strings.HasSuffix(path, "/"), nil
}

// Tree returns the entries of a tree of the view, in Git's order. What is no
// reachable tree is a *NotFoundError.
func (v *View) Tree(ctx context.Context, id object.ID) ([]object.Entry, error) {
	t, data, err := v.Object(ctx, id)
	if err != nil {
		return nil, err
	}
	if t != object.Tree {
		return nil, &NotFoundError{What: "tree", Name: id.String()}
	}
	var out []object.Entry
	it := object.TreeEntries(data)
	for e, ok := it.Next(); ok; e, ok = it.Next() {
		out = append(out, e)
	}
	return out, it.Err()
}

// BlobRange returns n bytes of a blob from an offset on; the caller has found
// the blob through a path and knows its size.
func (v *View) BlobRange(ctx context.Context, id object.ID, off, n int64) (io.ReadCloser, error) {
	_, r, err := v.Blob(ctx, id)
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, r, off); err != nil {
		r.Close()
		return nil, fmt.Errorf("skip %d bytes of blob %s: %w", off, id, err)
	}
	return &limited{io.LimitReader(r, n), r}, nil
}

// limited is a part of a stream.
type limited struct {
	io.Reader
	io.Closer
}

// BlobSize returns the size of a blob that the caller has found through a path.
func (v *View) BlobSize(ctx context.Context, id object.ID) (int64, error) {
	db, err := v.DB(ctx)
	if err != nil {
		return 0, err
	}
	return db.Size(ctx, id)
}

// FilesQuery asks for a page of a commit's files.
type FilesQuery struct {
	Commit object.ID // the caller has resolved it
	// Path is the directory to list, "" for the root.
	Path      string
	Recursive bool
	// Trees lists directories too.
	Trees bool
	// After is the position of the entry before the page: FilesPage.Next, or any
	// path.
	After string
	// Limit bounds the page, and Bytes those of its paths; 0 means no bound.
	Limit, Bytes int
}

// FilesPage is a page of entries in the byte order of their paths, where a
// directory counts as its path and a slash.
type FilesPage struct {
	Entries []Entry
	// Next is the position to go on from; "" at the end.
	Next string
}

// Files lists files. A path that is no directory is a *NotFoundError.
func (v *View) Files(ctx context.Context, q FilesQuery) (FilesPage, error) {
	dir, err := v.Entry(ctx, q.Commit, q.Path)
	if err != nil {
		return FilesPage{}, err
	}
	if !dir.Mode.IsDir() {
		return FilesPage{}, &NotFoundError{What: "directory", Name: clip(q.Path)}
	}
	db, err := v.DB(ctx)
	if err != nil {
		return FilesPage{}, err
	}
	l := lister{ctx: ctx, db: db, q: &q}
	prefix := ""
	if q.Path != "" {
		prefix = q.Path + "/"
	}
	if err := l.tree(dir.ID, prefix, 0); err != nil && err != errFull {
		return FilesPage{}, err
	}
	return l.page, nil
}

// errFull ends a listing whose page is full.
var errFull = errors.New("page is full")

// tooDeep refuses to name the paths below a tree.
func tooDeep(id object.ID) error {
	return invalid("tree %s is nested deeper than %d: its paths are not listed", id, graph.MaxTreeDepth)
}

type lister struct {
	ctx   context.Context
	db    *odb.DB
	q     *FilesQuery
	page  FilesPage
	bytes int // of the paths on the page
}

func (l *lister) tree(id object.ID, prefix string, depth int) error {
	if depth >= graph.MaxTreeDepth {
		return tooDeep(id)
	}
	data, err := l.db.Tree(l.ctx, id)
	if err != nil {
		return err
	}
	it := object.TreeEntries(data)
	for e, ok := it.Next(); ok; e, ok = it.Next() {
		at := Entry{Path: prefix + string(e.Name), Mode: e.Mode.Canonical(), ID: e.ID}
		if !e.Mode.IsDir() {
			if at.Path > l.q.After {
				if err := l.add(at); err != nil {
					return err
				}
			}
			continue
		}
		key := at.Path + "/"
		if l.q.Trees && key > l.q.After {
			if err := l.add(at); err != nil {
				return err
			}
		}
		if l.q.Recursive && (key > l.q.After || strings.HasPrefix(l.q.After, key)) {
			if err := l.tree(e.ID, key, depth+1); err != nil {
				return err
			}
		}
	}
	return it.Err()
}

// add puts an entry on the page, or finds it full.
func (l *lister) add(e Entry) error {
	if n := len(l.page.Entries); l.q.Limit > 0 && n == l.q.Limit || l.q.Bytes > 0 && l.bytes > l.q.Bytes {
		last := l.page.Entries[n-1]
		l.page.Next = last.Path
		if last.Mode.IsDir() {
			l.page.Next += "/"
		}
		return errFull
	}
	l.page.Entries = append(l.page.Entries, e)
	l.bytes += len(e.Path)
	return nil
}
