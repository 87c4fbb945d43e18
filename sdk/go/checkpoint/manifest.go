package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/cairnstate/cairn/internal/chunk"
	"github.com/cairnstate/cairn/internal/ignore"
	"github.com/cairnstate/cairn/internal/tree"
)

// Modes of what a list of files does not tell the modes of.
const (
	listedFile = 0o644
	listedDir  = 0o755
)

// listed makes the objects of a checkpoint that was written as a list, so that it can be restored as others are. Contents of
// one chunk stay where they are; those of larger files are read into a temporary file.
type listed struct {
	ctx    context.Context
	blobs  Blobs
	at     Scope
	rest   tree.Source
	made   tree.Memory
	file   *os.File // contents of large files
	size   int64
	chunks map[Digest]piece
}

// fromList returns a source of the objects of c and its root, and what removes the temporary file.
func fromList(ctx context.Context, blobs Blobs, c *Checkpoint, told func(Fetched)) (tree.Source, Digest, func(), error) {
	if c.External {
		return nil, Digest{}, nil, errorf(ErrInvalid, "checkpoint %q was written by an application that keeps the bytes of its files elsewhere, and can restore it", c.ID)
	}
	at := Scope{Thread: c.Thread}
	l := &listed{ctx: ctx, blobs: blobs, at: at, rest: &source{blobs: blobs, at: at, told: told}, chunks: map[Digest]piece{}}
	root, err := l.root(c)
	if err != nil {
		l.close()
		return nil, root, nil, err
	}
	return l, root, l.close, nil
}

func (l *listed) close() {
	if l.file != nil {
		l.file.Close()
	}
}

// root makes every directory, those within before those around them.
func (l *listed) root(c *Checkpoint) (root Digest, err error) {
	if err := checkFiles(c.Files); err != nil {
		return root, &Error{Code: ErrInvalidPath, Message: err.Error(), Err: err}
	}
	mtime := tree.Time{Sec: c.CreatedAt.Unix(), Nsec: uint32(c.CreatedAt.Nanosecond())}
	dirs := map[string]map[string]*tree.Entry{"": {}}
	var open func(dir string) map[string]*tree.Entry
	open = func(dir string) map[string]*tree.Entry {
		if dirs[dir] == nil {
			dirs[dir] = map[string]*tree.Entry{}
			open(parentOf(dir))[path.Base(dir)] = &tree.Entry{Name: path.Base(dir), Type: tree.Directory, Mode: listedDir, Mtime: mtime}
		}
		return dirs[dir]
	}
	for _, f := range c.Files {
		if f.Kind == "dir" {
			open(f.Path)
			continue
		}
		e := &tree.Entry{Name: path.Base(f.Path), Type: tree.File, Mode: listedFile, Mtime: mtime}
		if e.Content, err = l.content(f); err != nil {
			return root, fmt.Errorf("read %q of checkpoint %q: %w", f.Path, c.ID, err)
		}
		open(parentOf(f.Path))[e.Name] = e
	}
	top := tree.Entry{Name: DefaultRootName, Type: tree.Directory, Mode: listedDir, Mtime: mtime}
	if err := l.dir(dirs, "", &top); err != nil {
		return root, err
	}
	policy, err := Policy{Base: ignore.Default}.Encode()
	if err != nil {
		return root, err
	}
	b, err := tree.EncodeRoot(&tree.Tree{Roots: []tree.Entry{top}, Policy: policy})
	if err != nil {
		return root, err
	}
	root = tree.Sum(b)
	return root, l.made.Put(l.ctx, tree.Object{Kind: tree.Root, Digest: root, Bytes: b})
}

// parentOf returns the directory that p lies in, "" at the top.
func parentOf(p string) string {
	if dir := path.Dir(p); dir != "." {
		return dir
	}
	return ""
}

func (l *listed) dir(dirs map[string]map[string]*tree.Entry, at string, e *tree.Entry) (err error) {
	b := tree.Builder{Emit: func(o tree.Object) error { return l.made.Put(l.ctx, o) }}
	names := make([]string, 0, len(dirs[at]))
	for name := range dirs[at] {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		k := dirs[at][name]
		if k.Type == tree.Directory {
			if err := l.dir(dirs, strings.TrimPrefix(at+"/"+name, "/"), k); err != nil {
				return err
			}
		}
		if err := b.Add(k); err != nil {
			return &Error{Code: ErrInvalidPath, Message: err.Error(), Err: err}
		}
	}
	e.Dir, e.Paged, e.Summary, err = b.Finish()
	return err
}

// wholeReader is Blobs that give the contents of a key, however large, and not as objects.
type wholeReader interface {
	whole(ctx context.Context, at Scope, d Digest, w io.Writer) error
}

// content returns the contents of a file as a tree has them.
func (l *listed) content(f File) (c tree.Content, err error) {
	sum, err := tree.ParseDigest(strings.TrimPrefix(f.BlobKey, keyPrefix))
	if err != nil || f.Size == 0 {
		return c, err
	}
	c = tree.Content{Size: uint64(f.Size), Digest: sum, Sum: sum}
	if f.Size < chunk.NormalSize {
		return c, nil
	}
	if l.file == nil {
		if l.file, err = os.CreateTemp("", "cairn-restore-*"); err != nil {
			return c, err
		}
		if err := os.Remove(l.file.Name()); err != nil { // it lives as long as it is open
			return c, err
		}
	}
	out, in := io.Pipe()
	go func() { in.CloseWithError(l.fetch(sum, in)) }()
	var parts []tree.Part
	err = chunk.Split(out, func(b []byte) error {
		p := tree.Part{Length: uint64(len(b)), Digest: tree.Sum(b)}
		parts = append(parts, p)
		l.chunks[p.Digest] = piece{l.size, uint32(len(b))}
		n, err := l.file.WriteAt(b, l.size)
		l.size += int64(n)
		return err
	})
	out.CloseWithError(err)
	if err != nil {
		return c, err
	}
	if len(parts) > 1 {
		b, err := tree.EncodeRecipe(parts)
		if err != nil {
			return c, err
		}
		c.Digest, c.Chunked = tree.Sum(b), true
		return c, l.made.Put(l.ctx, tree.Object{Kind: tree.Recipe, Digest: c.Digest, Bytes: b})
	}
	return c, nil
}

func (l *listed) fetch(d Digest, w io.Writer) error {
	if r, ok := l.blobs.(wholeReader); ok {
		return r.whole(l.ctx, l.at, d, w)
	}
	return l.blobs.Fetch(l.ctx, l.at, []Digest{d}, func(_ Digest, b []byte) error {
		_, err := w.Write(b)
		return err
	})
}

// Get gives objects. See tree.Source.
func (l *listed) Get(ctx context.Context, digests []tree.Digest, fn func(tree.Digest, []byte) error) error {
	var rest []tree.Digest
	for _, d := range digests {
		p, large := l.chunks[d]
		switch {
		case l.made.Has(d):
			if err := l.made.Get(ctx, []tree.Digest{d}, fn); err != nil {
				return err
			}
		case large:
			b := make([]byte, p.n)
			if _, err := l.file.ReadAt(b, p.at); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if err := fn(d, b); err != nil {
				return err
			}
		default:
			rest = append(rest, d)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return l.rest.Get(ctx, rest, fn)
}
