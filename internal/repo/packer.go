package repo

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"sort"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/graph"
	"github.com/cairnstate/cairn/internal/lru"
	"github.com/cairnstate/cairn/internal/odb"
)

// packer writes a set of objects as one pack. Whole packs are copied; of the
// others, entries are copied compressed as they are, in the order in which they
// lie there. Packs are written in the order of the set, so that a delta comes
// after its base.
type packer struct {
	ctx context.Context
	db  *odb.DB
	set *graph.ObjectSet
	had *graph.ObjectSet // bases that the client has; nil when it takes no thin pack
	ofs bool             // the client reads deltas against offsets
	// joins remembers the checksums of packs that are others put together; nil
	// remembers nothing.
	joins *lru.Cache[answerKey, []byte]
	// index collects where the entries stand, if it is not nil.
	index []pack.IndexEntry

	out  *pack.Writer
	sent []placed // of the current pack, in order of offset
}

// placed says where an entry of a stored pack stands in the pack being written.
type placed struct{ from, to int64 }

// write writes the pack and returns its checksum.
func (p *packer) write(w io.Writer) (object.ID, error) {
	count := p.set.Len()
	if count > math.MaxUint32 {
		return object.Zero, fmt.Errorf("answer of %d objects is more than a pack can hold", count)
	}
	packs := p.db.Packs()
	for i, stored := range packs {
		if p.index == nil && p.set.Whole(int32(i)) && stored.Index().Count() == count {
			_, err := stored.WriteTo(w)
			return stored.Index().PackChecksum(), err
		}
	}
	p.out = pack.NewWriter(w, uint32(count))
	key, joined := p.joinKey()
	if joined {
		if sum, ok := p.joins.Get(key); ok {
			p.out.Expect(object.ID(sum))
		}
	}
	for i, stored := range packs {
		var err error
		switch n := p.set.CountIn(int32(i)); {
		case n == 0:
		case p.set.Whole(int32(i)):
			err = p.whole(stored.File())
		default:
			err = p.part(int32(i), n)
		}
		if err != nil {
			return object.Zero, err
		}
	}
	sum, err := p.out.Close()
	if err == nil && joined {
		p.joins.Put(key, sum[:], object.Size)
	}
	return sum, err
}

// joinKey identifies the pack to be written, true when it is whole stored packs
// one after another: their ids, for what has an id never changes. To compute its
// checksum takes longer than to copy it.
func (p *packer) joinKey() (answerKey, bool) {
	if p.joins == nil {
		return answerKey{}, false
	}
	h := sha256.New()
	h.Write([]byte("joined packs"))
	var b [8]byte
	for i, stored := range p.db.Packs() {
		if p.set.CountIn(int32(i)) == 0 {
			continue
		}
		id := stored.Info().ID
		if id == 0 || !p.set.Whole(int32(i)) {
			return answerKey{}, false
		}
		binary.BigEndian.PutUint64(b[:], uint64(id))
		h.Write(b[:])
	}
	return answerKey(h.Sum(nil)), true
}

// Sizes of what surrounds the entries of a pack.
const (
	packHeader  = 12
	packTrailer = object.Size
)

// whole copies all entries of a pack. Their deltas stay valid, because all
// distances stay the same.
func (p *packer) whole(f *pack.Pack) error {
	n := f.Size() - packHeader - packTrailer
	if p.index != nil {
		idx, shift := f.Index(), p.out.Offset()-packHeader
		for pos := range idx.Count() {
			p.index = append(p.index, pack.IndexEntry{ID: idx.ID(pos), Offset: idx.Offset(pos) + shift, CRC: idx.CRC(pos)})
		}
	}
	return p.out.CopyRun(&contextReader{p.ctx, f.Run(packHeader, packHeader+n)}, n, uint32(f.Index().Count()))
}

// contextReader ends with the context's error once it is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// part copies the n selected entries of the pack with the given place.
func (p *packer) part(place int32, n int) error {
	stored := p.db.Pack(place)
	entries := p.entries(place, n)
	win, err := readAhead(stored, entries)
	if err != nil {
		return err
	}
	p.sent = slices.Grow(p.sent[:0], n)
	run := run{out: p.out, file: win}
	for i, e := range entries {
		if i%1024 == 0 && p.ctx.Err() != nil {
			return p.ctx.Err()
		}
		entry, err := win.EntryAt(e.offset)
		if err != nil {
			return stored.Fault(int(e.pos), err)
		}
		entry.End = e.end
		at := run.next()
		crc := uint32(0)
		if p.verbatim(&entry, at) {
			if err := run.add(e.offset, e.end); err != nil {
				return err
			}
			if p.index != nil {
				crc = stored.Index().CRC(int(e.pos))
			}
		} else {
			if err := run.flush(); err != nil {
				return err
			}
			made, err := p.entry(stored, win, e.pos, entry)
			if err != nil {
				return err
			}
			crc = made.CRC
		}
		if p.index != nil {
			p.index = append(p.index, pack.IndexEntry{ID: stored.Index().ID(int(e.pos)), Offset: at, CRC: crc})
		}
		p.sent = append(p.sent, placed{e.offset, at})
	}
	return run.flush()
}

// selected is an entry to be copied.
type selected struct {
	pos         int32
	offset, end int64
}

// entries returns the selected entries of a pack in order of offset.
func (p *packer) entries(place int32, n int) []selected {
	idx := p.db.Pack(place).Index()
	end := p.db.Pack(place).File().Size() - packTrailer
	order := idx.OffsetOrder()
	out := make([]selected, 0, n)
	if n >= len(order)/32 {
		for i, pos := range order {
			if !p.set.Has(odb.Loc{Pack: place, Pos: int32(pos)}) {
				continue
			}
			s := selected{int32(pos), idx.Offset(int(pos)), end}
			if i+1 < len(order) {
				s.end = idx.Offset(int(order[i+1]))
			}
			out = append(out, s)
		}
		return out
	}
	p.set.EachIn(place, func(pos int32) bool {
		s := selected{pos, idx.Offset(int(pos)), end}
		i := sort.Search(len(order), func(i int) bool { return idx.Offset(int(order[i])) > s.offset })
		if i < len(order) {
			s.end = idx.Offset(int(order[i]))
		}
		out = append(out, s)
		return true
	})
	slices.SortFunc(out, func(a, b selected) int { return int(a.offset - b.offset) })
	return out
}

// verbatim reports whether an entry may be copied with its header to the given
// offset.
func (p *packer) verbatim(e *pack.Entry, at int64) bool {
	if e.Type != pack.OFSDelta {
		return e.Type != pack.REFDelta
	}
	to, ok := p.sentAt(e.BaseOffset)
	return ok && p.ofs && at-to == e.Offset-e.BaseOffset
}

// sentAt returns where an entry of the current pack was written.
func (p *packer) sentAt(offset int64) (int64, bool) {
	i, ok := slices.BinarySearchFunc(p.sent, offset, func(s placed, offset int64) int {
		switch {
		case s.from < offset:
			return -1
		case s.from > offset:
			return 1
		}
		return 0
	})
	if !ok {
		return 0, false
	}
	return p.sent[i].to, true
}

// entry writes a delta with a new reference to its base, or, when the client
// would not find the base, the whole object.
func (p *packer) entry(stored *odb.Pack, win *pack.Pack, pos int32, e pack.Entry) (pack.Written, error) {
	base := e.BaseID
	offset := e.BaseOffset
	idx := stored.Index()
	if e.Type == pack.OFSDelta {
		i, ok := idx.PosByOffset(e.BaseOffset)
		if !ok {
			return pack.Written{}, stored.Corrupt(fmt.Errorf("delta at byte %d has no base at byte %d", e.Offset, e.BaseOffset))
		}
		base = idx.ID(i)
	} else if i, ok := idx.Lookup(base); ok {
		offset = idx.Offset(i)
	}
	if to, ok := p.sentAt(offset); ok && p.ofs {
		return p.out.AddOfsDelta(to, e.Size, win.Raw(e))
	}
	if loc, ok := p.db.Find(base); ok && (p.set.Has(loc) || p.had != nil && p.had.Has(loc)) {
		return p.out.AddRefDelta(base, e.Size, win.Raw(e))
	}
	t, size, content, err := stored.Stream(int(pos))
	if err != nil {
		return pack.Written{}, err
	}
	defer content.Close()
	return p.out.AddStream(t, size, content)
}

// run joins entries that follow each other and are copied as they are.
type run struct {
	out      *pack.Writer
	file     *pack.Pack
	from, to int64
	count    uint32
}

// next returns where the next entry will be written.
func (r *run) next() int64 { return r.out.Offset() + r.to - r.from }

func (r *run) add(from, to int64) error {
	if r.count > 0 && r.to != from {
		if err := r.flush(); err != nil {
			return err
		}
	}
	if r.count == 0 {
		r.from = from
	}
	r.to = to
	r.count++
	return nil
}

func (r *run) flush() error {
	if r.count == 0 {
		return nil
	}
	err := r.out.CopyRun(r.file.Run(r.from, r.to), r.to-r.from, r.count)
	r.from, r.to, r.count = 0, 0, 0
	return err
}

// How much of a pack is read at once while entries are copied: much where they
// lie close together, else about one entry.
const (
	denseWindow  = 128 << 10
	sparseWindow = 4 << 10
)

// window reads a pack in pieces, for one goroutine that goes forward.
type window struct {
	r    io.ReaderAt
	size int64
	want int64 // length of a piece
	buf  []byte
	at   int64
}

// readAhead returns the pack as it is best read to copy the entries, which are
// in order of offset.
func readAhead(stored *odb.Pack, entries []selected) (*pack.Pack, error) {
	f := stored.File()
	if stored.Info().Inline || len(entries) < 2 {
		return f, nil
	}
	w := &window{r: f.Run(0, f.Size()), size: f.Size(), want: denseWindow}
	if span := entries[len(entries)-1].end - entries[0].offset; span/int64(len(entries)) > sparseWindow {
		w.want = sparseWindow
	}
	return pack.Open(w, f.Size(), f.Index())
}

// ReadAt implements io.ReaderAt.
func (w *window) ReadAt(b []byte, off int64) (int, error) {
	if off >= w.at && off+int64(len(b)) <= w.at+int64(len(w.buf)) {
		return copy(b, w.buf[off-w.at:]), nil
	}
	if int64(len(b)) >= w.want || off+int64(len(b)) > w.size {
		return w.r.ReadAt(b, off)
	}
	n := min(w.want, w.size-off)
	if int64(cap(w.buf)) < n {
		w.buf = make([]byte, w.want)
	}
	w.buf = w.buf[:n]
	got, err := w.r.ReadAt(w.buf, off)
	w.buf, w.at = w.buf[:got], off
	if got < len(b) {
		return copy(b, w.buf), err // ReadAt gave a reason for reading too little
	}
	return copy(b, w.buf), nil
}
