package checkpoint

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// Format is how an archive is packed.
type Format string

// The formats.
const (
	Tar     Format = "tar"
	TarGzip Format = "tar.gz"
	TarZstd Format = "tar.zst"
)

// compressor wraps w in what a format needs.
func (f Format) compressor(w io.Writer) (io.WriteCloser, error) {
	switch f {
	case TarGzip:
		return gzip.NewWriterLevel(w, gzip.BestSpeed)
	case TarZstd:
		return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	}
	return plain{w}, nil
}

// plain is a writer that needs no end.
type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// Archive writes the entries of a checkpoint beneath a path, or a file, to w as a tar
// archive. Names are paths of the checkpoint; attributes and times are in PAX
// records, and links among the names are hard links. A *DepthError says that the
// archive cannot have all. After an error what was written is part of an archive.
func (e *Engine) Archive(ctx context.Context, org meta.OrgID, c *Checkpoint, path string, f Format, w io.Writer) error {
	packed, err := f.compressor(w)
	if err != nil {
		return fmt.Errorf("pack an archive: %w", err)
	}
	a := archiver{engine: e, ctx: ctx, org: org, of: c, out: tar.NewWriter(packed)}
	if err := a.run(path); err != nil {
		return err
	}
	if err := a.out.Close(); err != nil {
		return fmt.Errorf("end an archive: %w", err)
	}
	return packed.Close()
}

// archiver writes one archive. Small files are read some at a time.
type archiver struct {
	engine *Engine
	ctx    context.Context
	org    meta.OrgID
	of     *Checkpoint
	out    *tar.Writer
	links  map[string]string // by path: the first of its group
	sent   map[string]bool   // firsts of groups that are in the archive

	held  []heldEntry
	bytes uint64
}

// heldEntry is an entry that is still to be written.
type heldEntry struct {
	path  string
	entry tree.Entry
}

// Bounds of the files that are read at once.
const (
	heldFiles = 256
	heldBytes = 8 << 20
)

func (a *archiver) run(path string) error {
	if err := a.readLinks(); err != nil {
		return err
	}
	if path != "" {
		at, err := a.engine.Lookup(a.ctx, a.org, a.of, path)
		if err != nil && (a.of.Kind != Manifest || !isPath(err)) {
			return err
		}
		if at != nil {
			if err := a.hold(path, at); err != nil {
				return err
			}
			if at.Type != tree.Directory {
				return a.flush()
			}
		}
	}
	if err := a.engine.Walk(a.ctx, a.org, a.of, path, "", a.hold); err != nil {
		return err
	}
	return a.flush()
}

func isPath(err error) bool {
	_, ok := err.(*PathError)
	return ok
}

// readLinks reads which paths are one file.
func (a *archiver) readLinks() error {
	if a.of.Kind == Manifest {
		return nil
	}
	t, err := a.engine.Tree(a.ctx, a.org, a.of)
	if err != nil || t.Links.Size == 0 {
		return err
	}
	var b sink
	if err := tree.Copy(a.ctx, a.engine.Source(a.org), t.Links, &b); err != nil {
		return Damage(err)
	}
	groups, err := tree.DecodeLinks(b)
	if err != nil {
		return err
	}
	a.links, a.sent = make(map[string]string), make(map[string]bool)
	for _, g := range groups {
		for _, path := range g {
			a.links[path] = g[0]
		}
	}
	return nil
}

// hold takes the next entry.
func (a *archiver) hold(path string, at *tree.Entry) error {
	if Deep(path, at) {
		return &DepthError{path}
	}
	a.held = append(a.held, heldEntry{path, at.Clone()})
	e := &a.held[len(a.held)-1].entry
	if err := a.engine.resolve(a.ctx, a.org, a.of, e); err != nil {
		return err
	}
	a.bytes += uint64(len(path)+e.Room()) + min(e.Content.Size, heldBytes)
	if len(a.held) < heldFiles && a.bytes < heldBytes {
		return nil
	}
	return a.flush()
}

// flush writes what is held.
func (a *archiver) flush() error {
	src := a.engine.Source(a.org)
	chunks := make(map[tree.Digest][]byte)
	var small []tree.Digest
	for i := range a.held {
		e := &a.held[i].entry
		if e.Type == tree.File && e.Content.Size > 0 && !e.Content.Chunked {
			small = append(small, e.Content.Digest)
		}
	}
	err := tree.Fetch(a.ctx, src, small, func(d tree.Digest, b []byte) error {
		chunks[d] = append([]byte(nil), b...)
		return nil
	})
	if err != nil {
		return Damage(err)
	}
	for i := range a.held {
		if err := a.write(src, &a.held[i], chunks); err != nil {
			return err
		}
	}
	a.held, a.bytes = a.held[:0], 0
	return nil
}

func (a *archiver) write(src tree.Source, it *heldEntry, chunks map[tree.Digest][]byte) error {
	e := &it.entry
	h := &tar.Header{
		Name: it.path, Mode: int64(e.Mode), Uid: int(e.UID), Gid: int(e.GID), Format: tar.FormatPAX, ModTime: time.Unix(e.Mtime.Sec, int64(e.Mtime.Nsec)),
	}
	for _, x := range e.Xattrs {
		if strings.Contains(x.Name, "=") {
			continue // no record can have such a name
		}
		if h.PAXRecords == nil {
			h.PAXRecords = make(map[string]string)
		}
		h.PAXRecords["SCHILY.xattr."+x.Name] = x.Value
	}
	first := a.links[it.path]
	switch {
	case e.Type == tree.Directory:
		h.Typeflag, h.Name = tar.TypeDir, it.path+"/"
	case e.Type == tree.Symlink:
		// Where a secret was are zeros, which no archive can have there.
		h.Typeflag, h.Linkname = tar.TypeSymlink, strings.ReplaceAll(e.Target, "\x00", "_")
	case first != "" && a.sent[first]:
		h.Typeflag, h.Linkname, h.PAXRecords = tar.TypeLink, first, nil
	default:
		h.Typeflag, h.Size = tar.TypeReg, int64(e.Content.Size)
		if first == it.path {
			a.sent[first] = true
		}
	}
	if err := a.out.WriteHeader(h); err != nil {
		return fmt.Errorf("archive %q: %w", it.path, err)
	}
	if h.Typeflag != tar.TypeReg || h.Size == 0 {
		return nil
	}
	if b, ok := chunks[e.Content.Digest]; ok && !e.Content.Chunked {
		if uint64(len(b)) != e.Content.Size {
			return &tree.CorruptError{Digest: e.Content.Digest}
		}
		_, err := a.out.Write(b)
		return err
	}
	return Damage(tree.Copy(a.ctx, src, e.Content, a.out))
}
