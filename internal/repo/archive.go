package repo

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/odb"
)

// ArchiveQuery asks for a commit's files as a tar.gz.
type ArchiveQuery struct {
	Commit object.ID // the caller has resolved it
	// Include and Exclude are globs: ** crosses slashes, * does not; one without
	// a slash also matches the last part of a path. Without Include all files are
	// taken. Exclude is applied last.
	Include, Exclude []string
	// MaxBlob leaves out larger files, in bytes; nil takes all.
	MaxBlob *int64
	// Prefix is put before all paths, with a slash between.
	Prefix string
}

// Archive writes files as tar.gz. The bytes depend on nothing but the commit and
// the query. Submodules are left out; files keep whether they are executable. A
// bad glob or prefix is an *InvalidError, and nothing is written then.
func (v *View) Archive(ctx context.Context, w io.Writer, q ArchiveQuery) error {
	prefix, err := q.check()
	if err != nil {
		return err
	}
	g, tree, err := v.rootTree(ctx, q.Commit)
	if err != nil {
		return err
	}
	c, _ := g.Commit(q.Commit)
	zip, err := gzip.NewWriterLevel(w, gzip.DefaultCompression)
	if err != nil {
		return err
	}
	a := &archiver{ctx: ctx, db: g.DB(), q: &q, prefix: prefix, when: time.Unix(c.Time, 0).UTC(), out: tar.NewWriter(zip)}
	if err := a.tree(tree, "", 0); err != nil {
		return err
	}
	if err := a.out.Close(); err != nil {
		return err
	}
	return zip.Close()
}

// check returns the prefix as it is put before paths.
func (q *ArchiveQuery) check() (string, error) {
	if err := checkGlobs(q.Include, q.Exclude); err != nil {
		return "", err
	}
	prefix := strings.TrimSuffix(q.Prefix, "/")
	if prefix == "" && q.Prefix == "" {
		return "", nil
	}
	bad := len(prefix) > maxGlobLen || strings.ContainsAny(prefix, "\\\x00")
	for part := range strings.SplitSeq(prefix, "/") {
		bad = bad || part == "" || part == "." || part == ".."
	}
	if bad {
		return "", invalid("archive prefix %q must be a relative path without %q, %q and backslashes", clip(q.Prefix), ".", "..")
	}
	return prefix + "/", nil
}

type archiver struct {
	ctx    context.Context
	db     *odb.DB
	q      *ArchiveQuery
	prefix string
	when   time.Time
	out    *tar.Writer
}

// tree writes the files below a tree.
func (a *archiver) tree(id object.ID, dir string, depth int) error {
	if depth >= graph.MaxTreeDepth {
		return tooDeep(id)
	}
	data, err := a.db.Tree(a.ctx, id)
	if err != nil {
		return err
	}
	it := object.TreeEntries(data)
	for e, ok := it.Next(); ok; e, ok = it.Next() {
		name := dir + string(e.Name)
		switch mode := e.Mode.Canonical(); {
		case mode == object.ModeSubmodule:
		case mode.IsDir():
			err = a.tree(e.ID, name+"/", depth+1)
		case a.wants(name):
			err = a.file(name, mode, e.ID)
		}
		if err != nil {
			return err
		}
	}
	return it.Err()
}

// wants reports whether the globs select a file.
func (a *archiver) wants(name string) bool {
	if len(a.q.Include) > 0 && !matchesAny(a.q.Include, name) {
		return false
	}
	return !matchesAny(a.q.Exclude, name)
}

// file writes one file or symbolic link.
func (a *archiver) file(name string, mode object.Mode, id object.ID) error {
	if a.q.MaxBlob != nil {
		size, err := a.db.Size(a.ctx, id)
		if err != nil || size > *a.q.MaxBlob {
			return err
		}
	}
	_, size, r, err := a.db.Stream(a.ctx, id)
	if err != nil {
		return err
	}
	defer r.Close()
	h := &tar.Header{Typeflag: tar.TypeReg, Name: a.prefix + name, Size: size, Mode: 0o644, ModTime: a.when, Uname: "root", Gname: "root"}
	switch mode {
	case object.ModeExecutable:
		h.Mode = 0o755
	case object.ModeSymlink:
		if size > object.MaxPath {
			return invalid("the target of the symbolic link %q has %d bytes: more than %d are not archived", clip(name), size, object.MaxPath)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		h.Typeflag, h.Mode, h.Size, h.Linkname = tar.TypeSymlink, 0o777, 0, string(text)
	}
	if err := a.out.WriteHeader(h); err != nil {
		return fmt.Errorf("archive %q: %w", name, err)
	}
	if h.Typeflag == tar.TypeReg {
		_, err = io.Copy(a.out, r)
	}
	return err
}
