package pack

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Written says where an entry stands in the pack being written.
type Written struct {
	Offset int64  // where the entry begins
	CRC    uint32 // CRC-32 of the entry's bytes, header included
}

// Writer writes a pack entry by entry and holds no more than a fixed buffer.
// After an error every call returns it. It is not safe for concurrent use.
type Writer struct {
	w      io.Writer
	buf    []byte             // not yet written
	first  *[firstBuffer]byte // what buf began in, nil once it is given back
	sum    hash.Hash          // nil when known has the result
	known  object.ID
	offset int64  // of the next byte
	crc    uint32 // of the current entry
	hold   int    // bytes at the start of buf that crc covers already
	left   uint32 // objects to come
	err    error
}

// The size of a Writer's buffer, and of that for a pack's first bytes: most
// packs are smaller than the first.
const (
	writerBuffer = 64 << 10
	firstBuffer  = 4 << 10
)

// errClosed is what readers and writers return after Close.
var errClosed = errors.New("pack reader or writer is closed")

var (
	zlibWriters = sync.Pool{New: func() any { return zlib.NewWriter(nil) }}
	storing     = sync.Pool{New: func() any {
		z, err := zlib.NewWriterLevel(nil, zlib.NoCompression)
		if err != nil {
			panic(err) // the level is one of the library's
		}
		return z
	}}
)

// firstBuffers hold the bytes of packs that are small.
var firstBuffers = sync.Pool{New: func() any { return new([firstBuffer]byte) }}

// NewWriter begins a pack of exactly count objects.
func NewWriter(w io.Writer, count uint32) *Writer {
	first := firstBuffers.Get().(*[firstBuffer]byte)
	p := &Writer{w: w, buf: first[:0], first: first, sum: sha1.New(), left: count}
	p.buf = appendHeader(p.buf, count)
	p.offset = headerLen
	p.hold = headerLen
	return p
}

// Expect tells the writer, before the first entry, which checksum the whole pack
// will have, so that it is not computed.
func (p *Writer) Expect(checksum object.ID) { p.sum, p.known = nil, checksum }

// Offset returns where the next entry will begin.
func (p *Writer) Offset() int64 { return p.offset }

// smallTree is the size in bytes up to which a tree is not compressed: half of it
// are IDs, and to make and read the codes of a stream takes longer than all else
// that is done with it.
const smallTree = 512

// Add compresses and writes one object. Small trees are stored.
func (p *Writer) Add(t object.Type, content []byte) (Written, error) {
	r := bytes.NewReader(content)
	if t == object.Tree && len(content) <= smallTree {
		return p.AddStored(t, int64(len(content)), r)
	}
	return p.AddStream(t, int64(len(content)), r)
}

// AddStream compresses and writes an object of size bytes, which are all of
// content.
func (p *Writer) AddStream(t object.Type, size int64, content io.Reader) (Written, error) {
	return p.stream(&zlibWriters, t, size, content)
}

// AddStored is AddStream without compressing: for a pack that is read once,
// where it was written.
func (p *Writer) AddStored(t object.Type, size int64, content io.Reader) (Written, error) {
	return p.stream(&storing, t, size, content)
}

func (p *Writer) stream(writers *sync.Pool, t object.Type, size int64, content io.Reader) (Written, error) {
	var h [maxEntryHeader]byte
	return p.entry(AppendEntryHeader(h[:0], t, uint64(size)), func() error {
		z := writers.Get().(*zlib.Writer)
		defer writers.Put(z)
		z.Reset((*compressed)(p))
		if n, err := io.Copy(z, content); err != nil {
			return err
		} else if n != size {
			return fmt.Errorf("object of %d bytes has %d", size, n)
		}
		return z.Close()
	})
}

// AddCompressed writes an object of size bytes whose zlib stream is all of raw.
func (p *Writer) AddCompressed(t object.Type, size int64, raw io.Reader) (Written, error) {
	var h [maxEntryHeader]byte
	return p.entry(AppendEntryHeader(h[:0], t, uint64(size)), func() error { return p.copy(raw, -1) })
}

// AddOfsDelta writes a delta of size bytes, whose zlib stream is all of raw,
// against the entry that begins at base in this pack.
func (p *Writer) AddOfsDelta(base, size int64, raw io.Reader) (Written, error) {
	if p.err == nil && (base < headerLen || base >= p.offset) {
		p.err = fmt.Errorf("delta base offset %d does not lie before the entry at %d", base, p.offset)
	}
	var h [maxEntryHeader]byte
	b := AppendEntryHeader(h[:0], OFSDelta, uint64(size))
	return p.entry(AppendOfs(b, uint64(p.offset-base)), func() error { return p.copy(raw, -1) })
}

// AddRefDelta writes a delta of size bytes, whose zlib stream is all of raw,
// against the object with the ID base.
func (p *Writer) AddRefDelta(base object.ID, size int64, raw io.Reader) (Written, error) {
	var h [maxEntryHeader]byte
	b := AppendEntryHeader(h[:0], REFDelta, uint64(size))
	return p.entry(append(b, base[:]...), func() error { return p.copy(raw, -1) })
}

// CopyRun writes n bytes of r as they are. They must be count whole entries
// whose bases, where they are at offsets, lie in the same run.
func (p *Writer) CopyRun(r io.Reader, n int64, count uint32) error {
	if p.err == nil && count > p.left {
		p.err = fmt.Errorf("pack has more objects than its header says")
	}
	if p.err == nil {
		p.err = p.copy(r, n)
		p.left -= count
	}
	return p.err
}

// entry writes one entry: its header, then what body writes.
func (p *Writer) entry(header []byte, body func() error) (Written, error) {
	if p.err == nil && p.left == 0 {
		p.err = fmt.Errorf("pack has more objects than its header says")
	}
	if p.err != nil {
		return Written{}, p.err
	}
	at := Written{Offset: p.offset}
	p.left--
	p.hold, p.crc = len(p.buf), 0
	if err := p.write(header); err != nil {
		return Written{}, err
	}
	if err := body(); err != nil {
		p.err = err
		return Written{}, err
	}
	at.CRC = crc32.Update(p.crc, crc32.IEEETable, p.buf[p.hold:])
	return at, nil
}

// compressed is the Writer as the target of a compressor.
type compressed Writer

// Write appends compressed bytes to the current entry.
func (c *compressed) Write(b []byte) (int, error) {
	if err := (*Writer)(c).write(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// write appends b to the pack.
func (p *Writer) write(b []byte) error {
	for len(b) > 0 {
		if err := p.makeRoom(); err != nil {
			return err
		}
		n := copy(p.buf[len(p.buf):cap(p.buf)], b)
		p.buf = p.buf[:len(p.buf)+n]
		p.offset += int64(n)
		b = b[n:]
	}
	return nil
}

// copy appends n bytes of r, or all of it if n is negative.
func (p *Writer) copy(r io.Reader, n int64) error {
	for n != 0 {
		if err := p.makeRoom(); err != nil {
			return err
		}
		room := p.buf[len(p.buf):cap(p.buf)]
		if n > 0 && int64(len(room)) > n {
			room = room[:n]
		}
		got, err := r.Read(room)
		p.buf = p.buf[:len(p.buf)+got]
		p.offset += int64(got)
		if n > 0 {
			n -= int64(got)
		}
		if err == io.EOF && n > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err == io.EOF {
			return nil
		}
		if err != nil && n != 0 {
			return &IOError{"read pack entry", err}
		}
	}
	return nil
}

// makeRoom enlarges or flushes the buffer when it is full.
func (p *Writer) makeRoom() error {
	if len(p.buf) < cap(p.buf) {
		return nil
	}
	if cap(p.buf) < writerBuffer {
		p.buf = append(make([]byte, 0, writerBuffer), p.buf...)
		p.release()
		return nil
	}
	return p.flush()
}

func (p *Writer) flush() error {
	p.crc = crc32.Update(p.crc, crc32.IEEETable, p.buf[p.hold:])
	if p.sum != nil {
		p.sum.Write(p.buf)
	}
	if _, err := p.w.Write(p.buf); err != nil {
		p.err = &IOError{"write pack", err}
		return p.err
	}
	p.buf, p.hold = p.buf[:0], 0
	return nil
}

// release gives the first buffer back; p.buf must not lie in it any more.
func (p *Writer) release() {
	if p.first != nil {
		firstBuffers.Put(p.first)
		p.first = nil
	}
}

// Close writes the trailer and returns the pack's checksum. It is an error if
// fewer objects were written than the header says. It does not close the
// underlying writer.
func (p *Writer) Close() (object.ID, error) {
	if p.err == nil && p.left > 0 {
		p.err = fmt.Errorf("pack lacks %d of the objects that its header says", p.left)
	}
	if p.err != nil {
		return object.Zero, p.err
	}
	checksum := p.known
	if p.sum != nil {
		p.sum.Write(p.buf)
		p.sum.Sum(checksum[:0])
	}
	// With the trailer in it, a small pack is a single write.
	if _, err := p.w.Write(append(p.buf, checksum[:]...)); err != nil {
		p.err = &IOError{"write pack", err}
		return object.Zero, p.err
	}
	p.err, p.buf = errClosed, nil
	p.release()
	return checksum, nil
}
