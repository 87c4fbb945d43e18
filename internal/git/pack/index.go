package pack

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Layout of a version 2 index: header, fanout, IDs, CRCs, offsets, large
// offsets, then the checksums of the pack and of the index.
const (
	idxMagic   = "\xfftOc"
	idxHeader  = 8
	fanoutLen  = 256 * 4
	idxNames   = idxHeader + fanoutLen
	largeFlag  = 1 << 31
	entryWidth = object.Size + 4 + 4
)

// Index is a version 2 pack index. Positions count objects in order of ID. It
// is safe for concurrent use.
type Index struct {
	data  []byte
	count int

	orderOnce sync.Once
	order     []uint32
}

// ParseIndex reads an index, keeping data, which must not change afterwards.
// It checks everything that lookups rely on to stay inside data, in constant
// time; Verify checks the content. Any fault is a *FormatError.
func ParseIndex(data []byte) (*Index, error) {
	if len(data) < idxNames+2*trailerLen {
		return nil, &FormatError{int64(len(data)), "index is cut short"}
	}
	if string(data[:4]) != idxMagic || binary.BigEndian.Uint32(data[4:]) != 2 {
		return nil, &FormatError{0, "index is not of version 2"}
	}
	prev := uint32(0)
	for i := range 256 {
		n := binary.BigEndian.Uint32(data[idxHeader+4*i:])
		if n < prev {
			return nil, &FormatError{int64(idxHeader + 4*i), "index fanout is not ascending"}
		}
		prev = n
	}
	rest := int64(len(data)) - idxNames - 2*trailerLen - int64(prev)*entryWidth
	if rest < 0 || rest%8 != 0 || rest/8 > int64(prev) {
		return nil, &FormatError{int64(len(data)), fmt.Sprintf("index has the wrong length for %d objects", prev)}
	}
	return &Index{data: data, count: int(prev)}, nil
}

// ReadIndex reads an index of size bytes into memory and parses it.
func ReadIndex(r io.ReaderAt, size int64) (*Index, error) {
	const most = idxNames + 2*trailerLen + int64(1<<32-1)*(entryWidth+8)
	if size < 0 || size > most {
		return nil, &FormatError{0, "index has an impossible length"}
	}
	data := make([]byte, size)
	if _, err := r.ReadAt(data, 0); err != nil && err != io.EOF {
		return nil, &IOError{"read pack index", err}
	}
	return ParseIndex(data)
}

// Verify checks the whole index: its checksum, the order of IDs, the fanout
// and the large offsets. Any fault is a *FormatError.
func (x *Index) Verify() error {
	sum := sha1.Sum(x.data[:len(x.data)-trailerLen])
	if !bytes.Equal(sum[:], x.data[len(x.data)-trailerLen:]) {
		return &FormatError{int64(len(x.data) - trailerLen), "index checksum does not match"}
	}
	for i := range x.count {
		id := x.ID(i)
		lo, hi := x.bucket(id[0])
		if i < lo || i >= hi {
			return &FormatError{int64(idxHeader + 4*int(id[0])), "index fanout does not match its IDs"}
		}
		if i > 0 && x.ID(i-1).Compare(id) >= 0 {
			return &FormatError{int64(idxNames + i*object.Size), "index IDs are not ascending"}
		}
		if x.Offset(i) < headerLen {
			return &FormatError{int64(x.offsets() + 4*i), "index offset lies outside any pack"}
		}
	}
	return nil
}

// Count returns the number of objects.
func (x *Index) Count() int { return x.count }

// Bytes returns the index as it was parsed. It must not be modified.
func (x *Index) Bytes() []byte { return x.data }

// PackChecksum returns the checksum of the pack that is indexed.
func (x *Index) PackChecksum() object.ID {
	return object.ID(x.data[len(x.data)-2*trailerLen:][:object.Size])
}

// bucket returns the range of positions whose IDs begin with b.
func (x *Index) bucket(b byte) (lo, hi int) {
	if b > 0 {
		lo = int(binary.BigEndian.Uint32(x.data[idxHeader+4*(int(b)-1):]))
	}
	return lo, int(binary.BigEndian.Uint32(x.data[idxHeader+4*int(b):]))
}

func (x *Index) name(pos int) []byte {
	at := idxNames + pos*object.Size
	return x.data[at : at+object.Size]
}

// Lookup returns the position of an object.
func (x *Index) Lookup(id object.ID) (pos int, ok bool) {
	lo, hi := x.bucket(id[0])
	names := x.data[idxNames : idxNames+x.count*object.Size]
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch object.ID(names[mid*object.Size:]).Compare(id) {
		case 0:
			return mid, true
		case -1:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return 0, false
}

// Prefix returns the range of positions [lo, hi) whose IDs begin with the
// first digits hexadecimal digits of id.
func (x *Index) Prefix(id object.ID, digits int) (lo, hi int) {
	digits = min(digits, 2*object.Size)
	least, most := id, id
	for i := digits; i < 2*object.Size; i++ {
		shift := 4 * (1 - i%2)
		least[i/2] &^= 0x0f << shift
		most[i/2] |= 0x0f << shift
	}
	lo = sort.Search(x.count, func(i int) bool { return bytes.Compare(x.name(i), least[:]) >= 0 })
	hi = lo + sort.Search(x.count-lo, func(i int) bool { return bytes.Compare(x.name(lo+i), most[:]) > 0 })
	return lo, hi
}

// ID returns the ID at a position.
func (x *Index) ID(pos int) object.ID { return object.ID(x.name(pos)) }

// CRC returns the CRC-32 of the entry at a position, header included.
func (x *Index) CRC(pos int) uint32 {
	return binary.BigEndian.Uint32(x.data[idxNames+x.count*object.Size+4*pos:])
}

func (x *Index) offsets() int { return idxNames + x.count*(object.Size+4) }

// Offset returns where in the pack the entry at a position begins, or -1 if
// the index is corrupt there.
func (x *Index) Offset(pos int) int64 {
	v := binary.BigEndian.Uint32(x.data[x.offsets()+4*pos:])
	if v&largeFlag == 0 {
		return int64(v)
	}
	large := idxNames + x.count*entryWidth
	at := large + 8*int(v&^largeFlag)
	if at+8 > len(x.data)-2*trailerLen {
		return -1
	}
	off := binary.BigEndian.Uint64(x.data[at:])
	if off > 1<<62 {
		return -1
	}
	return int64(off)
}

// OffsetOrder returns all positions sorted by offset. The first call takes
// time; the result is shared and must not be modified.
func (x *Index) OffsetOrder() []uint32 {
	x.orderOnce.Do(func() {
		type place struct {
			offset int64
			pos    uint32
		}
		places := make([]place, x.count)
		for i := range places {
			places[i] = place{x.Offset(i), uint32(i)}
		}
		slices.SortFunc(places, func(a, b place) int {
			switch {
			case a.offset < b.offset:
				return -1
			case a.offset > b.offset:
				return 1
			}
			return 0
		})
		x.order = make([]uint32, x.count)
		for i, p := range places {
			x.order[i] = p.pos
		}
	})
	return x.order
}

// PosByOffset returns the position of the entry that begins at an offset.
func (x *Index) PosByOffset(offset int64) (pos int, ok bool) {
	order := x.OffsetOrder()
	i := sort.Search(len(order), func(i int) bool { return x.Offset(int(order[i])) >= offset })
	if i == len(order) || x.Offset(int(order[i])) != offset {
		return 0, false
	}
	return int(order[i]), true
}

// next returns the lowest entry offset above offset, or false after the last.
func (x *Index) next(offset int64) (int64, bool) {
	order := x.OffsetOrder()
	i := sort.Search(len(order), func(i int) bool { return x.Offset(int(order[i])) > offset })
	if i == len(order) {
		return 0, false
	}
	return x.Offset(int(order[i])), true
}

// IndexEntry is what an index holds about one object.
type IndexEntry struct {
	ID     object.ID
	Offset int64  // where the entry begins in the pack
	CRC    uint32 // CRC-32 of the entry's bytes, header included
}

// BuildIndex returns the index of a pack, the same bytes that git would write.
// It sorts entries by ID in place.
func BuildIndex(entries []IndexEntry, packChecksum object.ID) []byte {
	slices.SortFunc(entries, func(a, b IndexEntry) int { return a.ID.Compare(b.ID) })
	var w bytes.Buffer
	w.Grow(idxNames + len(entries)*entryWidth + 2*trailerLen)
	// A bytes.Buffer never fails.
	_ = WriteIndex(&w, len(entries), func(i int) IndexEntry { return entries[i] }, packChecksum)
	return w.Bytes()
}

// WriteIndex writes the index of a pack with count objects, which at returns
// in order of ID; it is called several times for each. Errors are w's.
func WriteIndex(w io.Writer, count int, at func(i int) IndexEntry, packChecksum object.ID) error {
	hash := sha1.New()
	out := &indexWriter{w: io.MultiWriter(w, hash), buf: make([]byte, 0, min(idxNames+count*entryWidth+trailerLen, indexBuffer+object.Size))}
	out.buf = append(out.buf, idxMagic...)
	out.uint32(2)
	i := 0
	for b := range 256 {
		for i < count && int(at(i).ID[0]) <= b {
			i++
		}
		out.uint32(uint32(i))
	}
	for i := range count {
		id := at(i).ID
		out.bytes(id[:])
	}
	for i := range count {
		out.uint32(at(i).CRC)
	}
	var large []int64
	for i := range count {
		off := at(i).Offset
		if off >= largeFlag {
			large = append(large, off)
			off = largeFlag | int64(len(large)-1)
		}
		out.uint32(uint32(off))
	}
	for _, off := range large {
		out.uint32(uint32(off >> 32))
		out.uint32(uint32(off))
	}
	out.bytes(packChecksum[:])
	out.flush()
	if out.err != nil {
		return out.err
	}
	_, err := w.Write(hash.Sum(nil))
	return err
}

// indexBuffer is how many bytes an indexWriter gathers.
const indexBuffer = 32 << 10

// indexWriter buffers small writes and keeps the first error.
type indexWriter struct {
	w   io.Writer
	buf []byte
	err error
}

func (o *indexWriter) uint32(v uint32) {
	o.buf = binary.BigEndian.AppendUint32(o.buf, v)
	o.flushFull()
}

func (o *indexWriter) bytes(b []byte) {
	o.buf = append(o.buf, b...)
	o.flushFull()
}

func (o *indexWriter) flushFull() {
	if len(o.buf) >= indexBuffer {
		o.flush()
	}
}

func (o *indexWriter) flush() {
	if o.err == nil {
		_, o.err = o.w.Write(o.buf)
	}
	o.buf = o.buf[:0]
}
