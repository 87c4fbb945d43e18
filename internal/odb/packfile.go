package odb

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cairnstate/cairn/internal/blob"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/meta"
)

// PackFile is a pack while it is written: in memory up to the inline limit,
// beyond that in a file of the scratch directory. Nothing of it is visible
// until a Change names what Finish returns. It ends in Published or Abort. It
// is not safe for concurrent use, but for ReadAt beside ReadAt.
type PackFile struct {
	store *Store
	class meta.PackClass
	space Space // nil where there are no limits
	mem   []byte
	file  *os.File // nil while in memory
	size  int64

	info    meta.Pack
	graph   []byte // what Finish stored beside a large pack
	pending *Pack
	stored  *Pack  // what Reopen opened
	key     string // what BeginUpload named; "" when nothing was uploaded
	ended   bool
}

var (
	_ io.Writer   = (*PackFile)(nil)
	_ io.ReaderAt = (*PackFile)(nil)
	_ io.WriterAt = (*PackFile)(nil)
)

// NewPack begins a pack of the given provenance.
func (s *Store) NewPack(class meta.PackClass) *PackFile { return &PackFile{store: s, class: class} }

// Space is the room that a request may take up where there are limits.
type Space interface {
	// Grow keeps room for so many bytes in all, or refuses.
	Grow(ctx context.Context, bytes int64) error
	// Reservation is what a Change that adds the pack uses up, "" for nothing.
	Reservation() string
	// Used says that such a Change was applied.
	Used()
	// End gives the room up. It may be called more than once.
	End(ctx context.Context) error
}

// Within has Finish ask for room for the pack; nil asks nobody.
func (f *PackFile) Within(space Space) *PackFile {
	f.space = space
	return f
}

// Reservation is what the Change that adds the pack uses up, "" for nothing.
func (f *PackFile) Reservation() string {
	if f.space == nil {
		return ""
	}
	return f.space.Reservation()
}

// Large reports whether the pack has outgrown the inline limit, so that Finish
// stores it as blobs.
func (f *PackFile) Large() bool { return f.file != nil }

// Size returns the number of bytes written so far.
func (f *PackFile) Size() int64 { return f.size }

// Write appends b.
func (f *PackFile) Write(b []byte) (int, error) {
	if f.file == nil && f.size+int64(len(b)) > f.store.cfg.InlineLimit {
		if err := f.spill(); err != nil {
			return 0, err
		}
	}
	if f.file == nil {
		f.mem = append(f.mem, b...)
		f.size = int64(len(f.mem))
		return len(b), nil
	}
	n, err := f.file.WriteAt(b, f.size)
	f.size += int64(n)
	return n, err
}

// spill moves the pack from memory to a file.
func (f *PackFile) spill() error {
	file, err := os.CreateTemp(f.store.cfg.Scratch, "pack-*")
	if err != nil {
		return fmt.Errorf("create scratch file for a pack: %w", err)
	}
	f.file = file
	if _, err := file.WriteAt(f.mem, 0); err != nil {
		return fmt.Errorf("write scratch file of a pack: %w", err)
	}
	f.mem = nil
	return nil
}

// ReadAt reads what was written.
func (f *PackFile) ReadAt(b []byte, off int64) (int, error) {
	if f.file != nil {
		return f.file.ReadAt(b, off)
	}
	return bytes.NewReader(f.mem).ReadAt(b, off)
}

// WriteAt changes bytes that were written before, such as the header's count.
func (f *PackFile) WriteAt(b []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(b)) > f.size {
		return 0, fmt.Errorf("write at byte %d of a pack: it has %d bytes", off, f.size)
	}
	if f.file != nil {
		return f.file.WriteAt(b, off)
	}
	return copy(f.mem[off:], b), nil
}

// Truncate drops what comes after the first size bytes.
func (f *PackFile) Truncate(size int64) error {
	if size < 0 || size > f.size {
		return fmt.Errorf("truncate a pack to %d bytes: it has %d", size, f.size)
	}
	f.size = size
	if f.file != nil {
		return f.file.Truncate(size)
	}
	f.mem = f.mem[:size]
	return nil
}

// Pending opens the complete pack with its index before it is published, to
// lay it over a DB with DB.With. It must not be used after Abort.
func (f *PackFile) Pending(idx *pack.Index) (*Pack, error) {
	file, err := f.open(idx)
	if err != nil {
		return nil, err
	}
	f.pending = &Pack{store: f.store, file: file, info: meta.Pack{Class: f.class, Inline: f.file == nil, Bytes: f.size, Objects: int64(idx.Count())}}
	return f.pending, nil
}

func (f *PackFile) open(idx *pack.Index) (*pack.Pack, error) {
	if f.file == nil {
		return pack.OpenBytes(f.mem, idx)
	}
	file, err := pack.Open(f.file, f.size, idx)
	if err != nil {
		return nil, err
	}
	return file.WithCache(f.store.bases), nil
}

// Contents says what is in a pack; see meta.Pack.
type Contents struct {
	Exact    bool
	Tips     []object.ID
	Boundary []object.ID
}

// Finish makes a large pack durable, with its index and its commit table (the
// graph file; not used for a small pack), and returns the row for a Change.
func (f *PackFile) Finish(ctx context.Context, idx *pack.Index, graph []byte, c Contents) (*meta.PackWrite, error) {
	f.info = meta.Pack{
		ID: meta.PackID(meta.NewID(time.Now())), Class: f.class, Inline: f.file == nil, Bytes: f.size, Objects: int64(idx.Count()),
		Exact: c.Exact, Tips: c.Tips, Boundary: c.Boundary,
	}
	if f.file == nil {
		return &meta.PackWrite{Pack: f.info, Data: f.mem}, nil
	}
	if f.space != nil {
		if err := f.space.Grow(ctx, f.size); err != nil {
			return nil, err
		}
	}
	f.graph = graph
	if err := f.upload(ctx, idx); err != nil {
		return nil, err
	}
	return &meta.PackWrite{Pack: f.info}, nil
}

// Again stores a large pack anew, under another key, for a Change that was
// refused with meta.ConflictUpload, and returns the key.
func (f *PackFile) Again(ctx context.Context, idx *pack.Index) (key string, err error) {
	// Who retired the upload has removed what was there by then.
	if err := f.removeBlobs(ctx); err != nil {
		return "", err
	}
	err = f.upload(ctx, idx)
	return f.key, err
}

func (f *PackFile) upload(ctx context.Context, idx *pack.Index) error {
	var name [16]byte
	rand.Read(name[:])
	key := KeyPrefix + hex.EncodeToString(name[:])
	if err := f.store.cfg.Meta.BeginUpload(ctx, meta.Upload{Key: key, Process: f.store.cfg.Process}); err != nil {
		return fmt.Errorf("name the upload of a pack: %w", err)
	}
	f.key, f.info.Key = key, key
	parts := []struct {
		suffix string
		r      io.Reader
		size   int64
	}{
		{PackSuffix, io.NewSectionReader(f.file, 0, f.size), f.size},
		{IndexSuffix, bytes.NewReader(idx.Bytes()), int64(len(idx.Bytes()))},
		{GraphSuffix, bytes.NewReader(f.graph), int64(len(f.graph))},
	}
	for _, p := range parts {
		if err := f.store.cfg.Blobs.Put(ctx, blob.Key(key+p.suffix), p.r, p.size); err != nil {
			return fmt.Errorf("store pack: %w", err)
		}
	}
	return nil
}

// Reopen opens what Finish has stored of a large pack, so that Published returns
// it as well, and the first who reads it need not wait. It does nothing for a
// small one.
func (f *PackFile) Reopen(ctx context.Context, idx *pack.Index) error {
	if f.file == nil {
		return nil
	}
	var err error
	f.stored, err = f.store.openIndexed(ctx, f.info, idx)
	return err
}

// Published ends a pack whose Change was applied, at that time and by that
// repository: what is known of it stays cached, as its row says it; the scratch
// file goes. It returns the pack as it is opened from then on; nil for a large
// one that was not reopened.
func (f *PackFile) Published(idx *pack.Index, repo meta.RepoID, at time.Time) *Pack {
	if f.space != nil {
		f.space.Used()
	}
	f.info.Repo, f.info.CreatedAt = repo, at
	p := f.stored
	if f.file == nil {
		// It was opened before, so that it opens now; else it is read again.
		p, _ = f.store.adopt(f.info, f.mem, idx)
	} else if p != nil {
		p.info = f.info // nobody else has it yet
		f.store.keepLarge(p)
	}
	f.key = ""
	f.end()
	return p
}

// Leave ends a pack of whose Change the outcome is unknown: the blobs stay,
// for the sweep to judge.
func (f *PackFile) Leave() {
	f.key = ""
	f.end()
}

// Abort drops the pack. It does nothing after Published or Leave. The error
// says that blobs or the upload's row remain, which the sweep removes later.
func (f *PackFile) Abort(ctx context.Context) error {
	if f.ended {
		return nil
	}
	defer f.end()
	var err error
	if f.space != nil {
		err = f.space.End(ctx)
	}
	if f.key == "" {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if err := f.removeBlobs(ctx); err != nil {
		return err
	}
	return errors.Join(err, f.store.cfg.Meta.EndUpload(ctx, f.key))
}

// removeBlobs removes what was uploaded.
func (f *PackFile) removeBlobs(ctx context.Context) error {
	var errs []error
	for _, suffix := range []string{PackSuffix, IndexSuffix, GraphSuffix} {
		errs = append(errs, f.store.cfg.Blobs.Delete(ctx, blob.Key(f.key+suffix)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the blobs of a pack that was not published: %w", err)
	}
	return nil
}

// end releases the scratch file.
func (f *PackFile) end() {
	if f.file != nil && !f.ended {
		name := f.file.Name()
		f.file.Close()
		os.Remove(name)
	}
	f.ended, f.mem = true, nil
}
