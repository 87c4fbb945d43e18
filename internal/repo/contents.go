package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// Bounds of what Contents keep in memory; the rest lies in a scratch file.
const (
	rawInMemory    = 256 << 10 // bytes as they arrive
	packedInMemory = 256 << 10 // compressed bytes of whole contents
	minRawSpill    = 512       // bytes of one content that are worth an extent
	minPackedSpill = 32 << 10  // compressed bytes that are worth a write
	headLen        = 64        // bytes kept of each content, enough for a submodule's commit
)

// Contents take the files of one commit while they arrive, in any order and
// interleaved, in bounded memory. They are not safe for concurrent use. Close
// must be called.
type Contents struct {
	scratch string // directory
	raw     int    // bytes in memory that are not compressed yet
	packed  int    // bytes in memory that are
	file    *scratch

	ctx   context.Context // of the request, for space
	space odb.Space       // nil where there are no limits
	taken int64           // compressed bytes of closed contents
}

// NewContents returns an empty collection of contents for a commit to a
// repository.
func (e *Engine) NewContents(ctx context.Context, w Writer, r meta.Repo) *Contents {
	return &Contents{scratch: e.cfg.Scratch, ctx: ctx, space: e.space(w, r.ID)}
}

// New begins another content.
func (c *Contents) New() *Content { return &Content{in: c} }

// Close releases everything. Contents cannot be used afterwards.
func (c *Contents) Close() error {
	var err error
	if c.space != nil {
		err = c.space.End(c.ctx)
	}
	if c.file != nil {
		err = errors.Join(err, c.file.Close())
		c.file = nil
	}
	return err
}

// spill appends b to the scratch file.
func (c *Contents) spill(b []byte) (extent, error) {
	if c.file == nil {
		f, err := newScratch(c.scratch)
		if err != nil {
			return extent{}, err
		}
		c.file = f
	}
	x := extent{at: c.file.size, n: int64(len(b))}
	_, err := c.file.Write(b)
	return x, err
}

// extent is a piece of the scratch file.
type extent struct{ at, n int64 }

// Content is one file's content. Write it, then Close it.
type Content struct {
	in      *Contents
	size    int64
	extents []extent // raw bytes, before buf
	buf     []byte
	head    []byte
	hasNUL  bool

	closed bool
	id     object.ID
	packed []byte // the zlib stream, or
	spool  extent // where it lies
}

// Write appends to the content.
func (b *Content) Write(p []byte) (int, error) {
	if b.closed {
		return 0, errors.New("content is closed")
	}
	if room := headLen - len(b.head); room > 0 {
		b.head = append(b.head, p[:min(room, len(p))]...)
	}
	b.hasNUL = b.hasNUL || bytes.IndexByte(p, 0) >= 0
	b.size += int64(len(p))
	b.buf = append(b.buf, p...)
	if b.in.raw += len(p); b.in.raw <= rawInMemory || len(b.buf) < minRawSpill {
		return len(p), nil
	}
	x, err := b.in.spill(b.buf)
	if err != nil {
		return 0, err
	}
	if n := len(b.extents); n > 0 && b.extents[n-1].at+b.extents[n-1].n == x.at {
		b.extents[n-1].n += x.n
	} else {
		b.extents = append(b.extents, x)
	}
	b.in.raw -= len(b.buf)
	b.buf = b.buf[:0]
	return len(p), nil
}

// Close ends the content: it is hashed and compressed. An error that wraps
// object.ErrCollision refuses the content, as does a *QuotaError.
func (b *Content) Close() error {
	if b.closed {
		return nil
	}
	h := object.NewHasher(object.Blob, b.size)
	z := compressors.Get().(*compressor)
	defer compressors.Put(z)
	z.reset(b.in)
	err := b.writeTo(io.MultiWriter(h, z))
	if err != nil {
		return fmt.Errorf("compress content: %w", err)
	}
	if b.packed, b.spool, err = z.finish(); err != nil {
		return fmt.Errorf("compress content: %w", err)
	}
	if b.id, err = h.Sum(); err != nil {
		return fmt.Errorf("content refused: %w", err)
	}
	b.in.raw -= len(b.buf)
	b.buf, b.extents, b.closed = nil, nil, true
	b.in.taken += int64(len(b.packed)) + b.spool.n
	if b.in.space == nil {
		return nil
	}
	return b.in.space.Grow(b.in.ctx, b.in.taken)
}

// Size is the number of bytes written so far.
func (b *Content) Size() int64 { return b.size }

// ID is the ID of the blob, once the content is closed.
func (b *Content) ID() object.ID { return b.id }

// writeTo writes the raw bytes to w.
func (b *Content) writeTo(w io.Writer) error {
	for _, x := range b.extents {
		if _, err := io.Copy(w, io.NewSectionReader(b.in.file, x.at, x.n)); err != nil {
			return err
		}
	}
	_, err := w.Write(b.buf)
	return err
}

// stream returns the zlib stream of a closed content.
func (b *Content) stream() io.Reader {
	if b.packed != nil {
		return bytes.NewReader(b.packed)
	}
	return io.NewSectionReader(b.in.file, b.spool.at, b.spool.n)
}

// compressor makes one zlib stream, in memory or, when that is full, in the
// scratch file.
type compressor struct {
	in    *Contents
	z     *zlib.Writer
	buf   bytes.Buffer
	spool extent
}

var compressors = sync.Pool{New: func() any { return &compressor{z: zlib.NewWriter(nil)} }}

func (c *compressor) reset(in *Contents) {
	c.in, c.spool = in, extent{}
	c.buf.Reset()
	c.z.Reset((*spiller)(c))
}

// Write compresses p.
func (c *compressor) Write(p []byte) (int, error) { return c.z.Write(p) }

// spiller is where a compressor's output goes.
type spiller compressor

// Write keeps p in memory or moves what there is to the scratch file.
func (s *spiller) Write(p []byte) (int, error) {
	s.buf.Write(p)
	if s.buf.Len() < minPackedSpill || !(*compressor)(s).full() {
		return len(p), nil
	}
	return len(p), (*compressor)(s).flush()
}

// full reports whether the stream must not stay in memory.
func (c *compressor) full() bool { return c.spool.n > 0 || c.in.packed+c.buf.Len() > packedInMemory }

func (c *compressor) flush() error {
	x, err := c.in.spill(c.buf.Bytes())
	if err != nil {
		return err
	}
	if c.spool.n == 0 {
		c.spool.at = x.at
	}
	c.spool.n += x.n
	c.buf.Reset()
	return nil
}

// finish ends the stream and says where it is.
func (c *compressor) finish() (packed []byte, spool extent, err error) {
	if err := c.z.Close(); err != nil {
		return nil, extent{}, err
	}
	if c.full() {
		err := c.flush()
		return nil, c.spool, err
	}
	c.in.packed += c.buf.Len()
	return bytes.Clone(c.buf.Bytes()), extent{}, nil
}
