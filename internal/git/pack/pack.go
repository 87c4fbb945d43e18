package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/zlib"

	"github.com/cairnstate/cairn/internal/git/delta"
	"github.com/cairnstate/cairn/internal/git/object"
)

// Pack reads objects from a stored pack through its index. It is safe for
// concurrent use if the reader given to Open is.
type Pack struct {
	*packData
	cache *Cache
}

type packData struct {
	r    io.ReaderAt
	mem  []byte // the whole pack, when it is in memory
	size int64
	idx  *Index
}

// Entry is one entry of a pack.
type Entry struct {
	Offset     int64       // where the entry begins
	End        int64       // where the next entry, or the trailer, begins
	HeaderLen  int         // bytes before the zlib stream
	Type       object.Type // an object type, OFSDelta or REFDelta
	Size       int64       // inflated size of the entry's own data
	BaseOffset int64       // OFSDelta: where the base begins
	BaseID     object.ID   // REFDelta: the base
}

// Limits bound what reading one object may cost. A field that is zero has the
// default stated.
type Limits struct {
	MaxObject int64 // bytes of an object, or a base, in memory; 256 MiB
	MaxDepth  int   // deltas between an object and its whole base; 4096
	// Scratch makes a temporary file for a large object that is stored as a
	// delta, when it is read as a stream. Nil means that it is held in memory.
	Scratch func() (Scratch, error)
}

// Defaults of Limits.
const (
	defaultMaxObject = 256 << 20
	defaultMaxDepth  = 4096
)

func (l Limits) withDefaults() Limits {
	if l.MaxObject == 0 {
		l.MaxObject = defaultMaxObject
	}
	if l.MaxDepth == 0 {
		l.MaxDepth = defaultMaxDepth
	}
	return l
}

// Open returns the pack of size bytes that r holds and idx describes. It reads
// the pack's header and trailer; if they do not fit the index the error is a
// *CorruptError.
func Open(r io.ReaderAt, size int64, idx *Index) (*Pack, error) {
	p := &Pack{packData: &packData{r: r, size: size, idx: idx}}
	return p, p.check()
}

// OpenBytes is Open for a pack in memory, which must not change afterwards.
func OpenBytes(data []byte, idx *Index) (*Pack, error) {
	p := &Pack{packData: &packData{r: bytes.NewReader(data), mem: data, size: int64(len(data)), idx: idx}}
	return p, p.check()
}

// WithCache returns the same pack, keeping delta bases in c.
func (p *Pack) WithCache(c *Cache) *Pack { return &Pack{p.packData, c} }

// Index returns the pack's index.
func (p *Pack) Index() *Index { return p.idx }

// Size returns the pack's length in bytes.
func (p *Pack) Size() int64 { return p.size }

func (p *Pack) check() error {
	if p.size < headerLen+trailerLen {
		return p.corrupt(0, "is cut short")
	}
	head, err := p.read(make([]byte, headerLen), 0)
	if err != nil {
		return err
	}
	count, fault := parseHeader(head)
	if fault != "" {
		return p.corrupt(0, fault)
	}
	if int64(count) != int64(p.idx.Count()) {
		return p.corrupt(8, fmt.Sprintf("has %d objects, but its index %d", count, p.idx.Count()))
	}
	tail, err := p.read(make([]byte, trailerLen), p.size-trailerLen)
	if err != nil {
		return err
	}
	if object.ID(tail) != p.idx.PackChecksum() {
		return p.corrupt(p.size-trailerLen, "trailer is not the checksum in its index")
	}
	return nil
}

func (p *packData) corrupt(offset int64, reason string) error {
	return &CorruptError{p.idx.PackChecksum(), offset, reason}
}

// read returns the bytes at off, up to len(buf) and the end of the pack. They
// are buf, or the pack's own memory.
func (p *packData) read(buf []byte, off int64) ([]byte, error) {
	n := min(int64(len(buf)), p.size-off)
	if off < 0 || n < 0 {
		return nil, p.corrupt(off, "offset lies outside the pack")
	}
	if p.mem != nil {
		return p.mem[off : off+n], nil
	}
	got, err := p.r.ReadAt(buf[:n], off)
	if int64(got) < n {
		if err == io.EOF {
			return nil, p.corrupt(off, "is cut short")
		}
		return nil, &IOError{fmt.Sprintf("read pack %s", p.idx.PackChecksum()), err}
	}
	return buf[:n], nil
}

// Entry returns the entry at an index position.
func (p *Pack) Entry(pos int) (Entry, error) {
	e, err := p.EntryAt(p.idx.Offset(pos))
	if err != nil {
		return Entry{}, err
	}
	e.End = p.size - trailerLen
	if next, ok := p.idx.next(e.Offset); ok {
		e.End = next
	}
	if e.End < e.Offset+int64(e.HeaderLen) || e.End > p.size-trailerLen {
		return Entry{}, p.corrupt(e.Offset, "index offsets do not fit the entry")
	}
	return e, nil
}

// EntryAt returns the entry that begins at an offset, leaving its End zero.
func (p *Pack) EntryAt(offset int64) (Entry, error) {
	var buf [maxEntryHeader]byte
	b, err := p.read(buf[:], offset)
	if err != nil {
		return Entry{}, err
	}
	return p.parse(b, offset)
}

// parse decodes the entry header at the start of b.
func (p *packData) parse(b []byte, offset int64) (Entry, error) {
	h, short, fault := parseEntryHeader(b)
	e := Entry{Offset: offset, HeaderLen: h.length, Type: h.typ, Size: int64(h.size), BaseID: h.base}
	switch {
	case short:
		return e, p.corrupt(offset, "entry header is cut short")
	case fault != "":
		return e, p.corrupt(offset, fault)
	case offset < headerLen || offset+int64(h.length) > p.size-trailerLen:
		return e, p.corrupt(offset, "entry lies outside the pack")
	case e.Size < 0:
		return e, p.corrupt(offset, "entry size is over 63 bits")
	}
	if h.typ == OFSDelta {
		e.BaseOffset = offset - int64(h.distance)
		if h.distance == 0 || e.BaseOffset < headerLen {
			return e, p.corrupt(offset, "delta base offset lies outside the pack")
		}
	}
	return e, nil
}

// Raw returns the zlib stream of an entry that Entry returned.
func (p *Pack) Raw(e Entry) *io.SectionReader {
	at := e.Offset + int64(e.HeaderLen)
	return io.NewSectionReader(p.r, at, e.End-at)
}

// Run returns the bytes of the pack from one offset to another, for copying
// whole entries.
func (p *Pack) Run(from, to int64) *io.SectionReader {
	return io.NewSectionReader(p.r, from, to-from)
}

// probeLen is how much of an entry is read at first: most are smaller.
const probeLen = 4 << 10

// wholeLen is the inflated size up to which an entry is inflated in one step.
const wholeLen = 1 << 20

var (
	probes    = sync.Pool{New: func() any { return new([probeLen]byte) }}
	scratches = sync.Pool{New: func() any { return new([]byte) }}
)

// Inflate returns the own data of an entry, for a delta its instructions. It
// reuses dst's capacity. A size over limit is a *LimitError.
func (p *Pack) Inflate(dst []byte, e Entry, limit int64) ([]byte, error) {
	return p.inflate(dst, e, nil, limit)
}

// inflate is Inflate; head holds what was read of the entry so far.
func (p *packData) inflate(dst []byte, e Entry, head []byte, limit int64) ([]byte, error) {
	if e.Size > limit {
		return nil, &LimitError{"object size in bytes", uint64(e.Size), uint64(limit)}
	}
	at := e.Offset + int64(e.HeaderLen)
	if room := p.size - trailerLen - at; e.Size/maxRatio > room {
		return nil, p.corrupt(e.Offset, "entry size is more than its bytes can hold")
	}
	if int64(cap(dst)) < e.Size {
		dst = make([]byte, e.Size)
	}
	dst = dst[:e.Size]
	if p.mem != nil {
		head = p.mem[e.Offset : p.size-trailerLen]
	}
	if len(head) > e.HeaderLen {
		if done, err := p.inflateWhole(dst, head[e.HeaderLen:], e); done || err != nil {
			return dst, err
		}
	}
	if e.Size <= wholeLen {
		buf := scratches.Get().(*[]byte)
		defer scratches.Put(buf)
		need := int(e.Size + e.Size/512 + 64)
		*buf = slices.Grow((*buf)[:0], need)[:need]
		src, err := p.read(*buf, at)
		if err != nil {
			return nil, err
		}
		if done, err := p.inflateWhole(dst, src, e); done || err != nil {
			return dst, err
		}
	}
	z := p.stream(e)
	defer z.Close()
	if _, err := io.ReadFull(z, dst); err != nil {
		return nil, err
	}
	// Reaching the end checks the length and the checksum.
	if _, err := io.Copy(io.Discard, z); err != nil {
		return nil, err
	}
	return dst, nil
}

// inflateWhole inflates an entry whose zlib stream begins at src. It reports
// false if src may be too short to hold all of it.
func (p *packData) inflateWhole(dst, src []byte, e Entry) (bool, error) {
	_, err := inflate(dst, src)
	if err == errShort {
		return false, nil
	}
	if err != nil {
		return false, p.corrupt(e.Offset, err.Error())
	}
	return true, nil
}

// maxRatio is the most bytes that one byte of a zlib stream can inflate to.
const maxRatio = 1032

// Get returns the type and content of the object at an index position. The
// content must not be modified; it is checked as zlib and deltas allow, but not
// hashed.
func (p *Pack) Get(pos int, limits Limits) (object.Type, []byte, error) {
	limits.Scratch = nil
	t, c, err := p.resolve(pos, limits.withDefaults())
	return t, c.mem, err
}

// resolve returns the object at an index position, in memory or, when that is
// large and limits has scratch files, in one of them.
func (p *Pack) resolve(pos int, limits Limits) (object.Type, content, error) {
	probe := probes.Get().(*[probeLen]byte)
	defer probes.Put(probe)

	var chain []Entry
	for offset := p.idx.Offset(pos); ; {
		if t, data, found := p.cache.get(cacheKey{p.packData, offset}); found {
			return p.applyChain(chain, t, content{mem: data, size: int64(len(data))}, limits)
		}
		head, err := p.read(probe[:], offset)
		if err != nil {
			return 0, content{}, err
		}
		e, err := p.parse(head, offset)
		if err != nil {
			return 0, content{}, err
		}
		if !isDelta(e.Type) {
			root, err := p.root(e, head, limits)
			if err != nil {
				return 0, content{}, err
			}
			if len(chain) > 0 && root.mem != nil {
				p.cache.put(cacheKey{p.packData, offset}, e.Type, root.mem)
			}
			return p.applyChain(chain, e.Type, root, limits)
		}
		if len(chain) == limits.MaxDepth {
			return 0, content{}, p.corrupt(offset, fmt.Sprintf("delta chain is longer than %d", limits.MaxDepth))
		}
		chain = append(chain, e)
		if e.Type == OFSDelta {
			offset = e.BaseOffset
		} else if pos, ok := p.idx.Lookup(e.BaseID); ok {
			offset = p.idx.Offset(pos)
		} else {
			return 0, content{}, p.corrupt(e.Offset, fmt.Sprintf("delta base %s is missing", e.BaseID))
		}
	}
}

// applyChain applies the deltas of chain, the last one first, to made.
func (p *Pack) applyChain(chain []Entry, t object.Type, made content, limits Limits) (object.Type, content, error) {
	var own []byte
	for i := len(chain) - 1; i >= 0; i-- {
		next, err := p.applyOne(chain[i], made, &own, limits)
		if made.file != nil {
			// Nothing was written that matters any more.
			_ = made.file.Close()
		}
		if err != nil {
			return 0, content{}, err
		}
		made = next
		if i > 0 && made.mem != nil {
			p.cache.put(cacheKey{p.packData, chain[i].Offset}, t, made.mem)
		}
	}
	return t, made, nil
}

// Type returns the type of the object at an index position. It reads only the
// entry headers of its delta chain.
func (p *Pack) Type(pos int, limits Limits) (object.Type, error) {
	limits = limits.withDefaults()
	offset := p.idx.Offset(pos)
	for depth := 0; ; depth++ {
		e, err := p.EntryAt(offset)
		switch {
		case err != nil:
			return 0, err
		case !isDelta(e.Type):
			return e.Type, nil
		case depth == limits.MaxDepth:
			return 0, p.corrupt(offset, fmt.Sprintf("delta chain is longer than %d", limits.MaxDepth))
		case e.Type == OFSDelta:
			offset = e.BaseOffset
			continue
		}
		pos, ok := p.idx.Lookup(e.BaseID)
		if !ok {
			return 0, p.corrupt(offset, fmt.Sprintf("delta base %s is missing", e.BaseID))
		}
		offset = p.idx.Offset(pos)
	}
}

// ObjectSize returns the size in bytes of the object at an index position. It
// inflates no more than the first bytes of its delta, if it is one.
func (p *Pack) ObjectSize(pos int) (int64, error) {
	e, err := p.EntryAt(p.idx.Offset(pos))
	if err != nil || !isDelta(e.Type) {
		return e.Size, err
	}
	z := p.stream(e)
	defer z.Close()
	var head [20]byte
	n, err := io.ReadFull(z, head[:min(20, e.Size)])
	if err != nil {
		return 0, err
	}
	_, size, err := delta.Sizes(head[:n])
	if err != nil {
		return 0, p.corrupt(e.Offset, err.Error())
	}
	if size > 1<<62 {
		return 0, p.corrupt(e.Offset, "object size is over 62 bits")
	}
	return int64(size), nil
}

// Stream returns the type, size and content of the object at an index
// position, which must be closed. Objects stored whole are inflated while they
// are read; deltas are resolved first, large ones in scratch files, so that
// memory does not depend on the size. Reading to the end verifies the length.
func (p *Pack) Stream(pos int, limits Limits) (object.Type, int64, io.ReadCloser, error) {
	e, err := p.EntryAt(p.idx.Offset(pos))
	if err != nil {
		return 0, 0, nil, err
	}
	if !isDelta(e.Type) {
		return e.Type, e.Size, p.stream(e), nil
	}
	t, c, err := p.resolve(pos, limits.withDefaults())
	if err != nil {
		return 0, 0, nil, err
	}
	return t, c.size, c.reader(), nil
}

// entryReader inflates one entry. Its errors are *CorruptError or *IOError.
type entryReader struct {
	p    *packData
	e    Entry
	z    *zlibReader
	left int64 // bytes still to come
	err  error
}

func (p *packData) stream(e Entry) *entryReader {
	at := e.Offset + int64(e.HeaderLen)
	z := zlibReaders.Get().(*zlibReader)
	r := &entryReader{p: p, e: e, z: z, left: e.Size}
	z.src.Reset(io.NewSectionReader(p.r, at, p.size-trailerLen-at))
	r.fail(z.Reset())
	return r
}

// fail keeps the first error, in terms of the pack.
func (r *entryReader) fail(err error) {
	switch {
	case err == nil || r.err != nil:
	case err == io.EOF:
		r.err = err
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, zlib.ErrHeader) || errors.Is(err, zlib.ErrChecksum) || isFlateError(err):
		r.err = r.p.corrupt(r.e.Offset, "compressed data is malformed: "+err.Error())
	default:
		r.err = &IOError{fmt.Sprintf("read pack %s", r.p.idx.PackChecksum()), err}
	}
}

// Read inflates up to len(b) bytes.
func (r *entryReader) Read(b []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	if len(b) == 0 {
		return 0, nil
	}
	n, err := r.z.r.Read(b)
	if int64(n) > r.left || err == io.EOF && int64(n) < r.left {
		r.err = r.p.corrupt(r.e.Offset, errSize.Error())
		return 0, r.err
	}
	r.left -= int64(n)
	r.fail(err)
	return n, r.err
}

// Close releases the decoder; later reads fail.
func (r *entryReader) Close() error {
	if r.z != nil {
		r.z.src.Reset(nil)
		zlibReaders.Put(r.z)
		r.z = nil
		r.err = errClosed
	}
	return nil
}
