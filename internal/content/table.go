package content

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/lru"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/tree"
)

// A table is a sorted list of digests, with places in packs or without. It begins
// with what is kept in memory; blocks of records follow, each with its own sum, so
// that a look-up reads one.
const (
	indexMagic = "CIX2" // records with places
	listMagic  = "CDL1" // digests alone

	tableHeader = 16 // magic, flags, three zeros, number of packs, number of records
	digestSize  = len(tree.Digest{})
	packIDSize  = len(meta.ContentID{})
	placeSize   = 25 // six numbers of 4 bytes, kind and encoding
	blockLen    = 256
	anchorSize  = 8
	sumSize     = 4

	maxTablePacks   = 1 << 20
	maxTableRecords = 1<<32 - 1
)

// place is where an object lies: in a group of objects.
type place struct {
	pack   uint32 // number in the table
	offset uint32 // of the group's stored bytes
	length uint32 // of them
	total  uint32 // bytes of the group when it is decoded
	at     uint32 // where the object begins in those
	raw    uint32 // length of the object
	kind   tree.Kind
	enc    byte // of the group
}

// possible reports whether an object can lie there.
func (p *place) possible() bool {
	return p.total <= tree.MaxList && uint64(p.at)+uint64(p.raw) <= uint64(p.total) && p.kind >= tree.Chunk && p.kind <= tree.Root &&
		frame.CheckEncoding(p.enc, int(p.length), int(p.total)) == nil
}

// lies reports whether two places of one pack are the same.
func (p *place) lies(o *place) bool {
	a, b := *p, *o
	a.pack, b.pack = 0, 0
	return a == b
}

// share is what the object takes of the stored bytes of its group.
func (p *place) share() int64 {
	if p.total == 0 {
		return 0
	}
	return int64(uint64(p.length) * uint64(p.raw) / uint64(p.total))
}

// record is one line of a table.
type record struct {
	digest tree.Digest
	place
}

func (r *record) compare(o *record) int {
	if c := bytes.Compare(r.digest[:], o.digest[:]); c != 0 {
		return c
	}
	return int(int64(r.pack) - int64(o.pack))
}

func appendPlace(b []byte, p *place) []byte {
	for _, n := range [...]uint32{p.pack, p.offset, p.length, p.total, p.at, p.raw} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return append(b, byte(p.kind)|p.enc<<4)
}

func placeAt(b []byte) place {
	number := func(i int) uint32 { return binary.BigEndian.Uint32(b[4*i:]) }
	return place{
		pack: number(0), offset: number(1), length: number(2), total: number(3), at: number(4), raw: number(5),
		kind: tree.Kind(b[24] & 15), enc: b[24] >> 4,
	}
}

// layout is where the parts of a table lie.
type layout struct {
	packs, records int
	width          int // of a record
}

func (l layout) blocks() int { return (l.records + blockLen - 1) / blockLen }

// head is the length of what comes before the blocks.
func (l layout) head() int {
	return tableHeader + l.packs*packIDSize + l.blocks()*anchorSize + sumSize
}

func (l layout) size() int64 {
	return int64(l.head()) + int64(l.records)*int64(l.width) + int64(l.blocks())*sumSize
}

// block returns where a block lies and how many records it has.
func (l layout) block(i int) (at int64, n int) {
	at = int64(l.head()) + int64(i)*int64(blockLen*l.width+sumSize)
	return at, min(blockLen, l.records-i*blockLen)
}

// writeTable writes a table of the records that each gives, in order. It is asked
// twice, and gives the same both times. packs is nil for a list of digests.
func writeTable(w io.Writer, packs []meta.ContentID, each func(fn func(r *record) error) error) (l layout, err error) {
	l = layout{packs: len(packs), width: digestSize}
	magic := listMagic
	if packs != nil {
		magic, l.width = indexMagic, digestSize+placeSize
	}
	var anchors []byte
	err = each(func(r *record) error {
		if l.records%blockLen == 0 {
			anchors = append(anchors, r.digest[:anchorSize]...)
		}
		l.records++
		return nil
	})
	if err != nil {
		return l, err
	}
	if l.packs > maxTablePacks || int64(l.records) > maxTableRecords {
		return l, fmt.Errorf("a table of %d packs and %d objects is too large", l.packs, l.records)
	}
	head := append(make([]byte, 0, l.head()), magic...)
	head = append(head, 0, 0, 0, 0)
	head = binary.BigEndian.AppendUint32(head, uint32(l.packs))
	head = binary.BigEndian.AppendUint32(head, uint32(l.records))
	for _, id := range packs {
		head = append(head, id[:]...)
	}
	head = append(head, anchors...)
	head = binary.BigEndian.AppendUint32(head, checksum(head))
	if _, err := w.Write(head); err != nil {
		return l, err
	}
	block := make([]byte, 0, blockLen*l.width+sumSize)
	i := 0
	return l, each(func(r *record) error {
		block = append(block, r.digest[:]...)
		if packs != nil {
			block = appendPlace(block, &r.place)
		}
		if i++; i%blockLen != 0 && i != l.records {
			return nil
		}
		block = binary.BigEndian.AppendUint32(block, checksum(block))
		_, err := w.Write(block)
		block = block[:0]
		return err
	})
}

// table is an open table. It is safe for concurrent use.
type table struct {
	layout
	id      meta.ContentID
	ids     []meta.ContentID // of packs, in order
	anchors []byte
	read    func(ctx context.Context, p []byte, off int64) error
	blocks  *lru.Cache[blockKey, []byte]
	filter  filtered
}

type blockKey struct {
	table meta.ContentID
	block int
}

// TableError says that a table is damaged.
type TableError struct{ what string }

func (e *TableError) Error() string { return "damaged table of objects: " + e.what }

func damaged(format string, args ...any) error { return &TableError{fmt.Sprintf(format, args...)} }

// parseHeader reads the first tableHeader bytes of a table.
func parseHeader(b []byte, magic string) (layout, error) {
	l := layout{width: digestSize + placeSize}
	if magic == listMagic {
		l.width = digestSize
	}
	if len(b) < tableHeader || string(b[:4]) != magic {
		return l, damaged("it does not begin with %q", magic)
	}
	if [4]byte(b[4:]) != [4]byte{} {
		return l, damaged("flags %x are not known", b[4:8])
	}
	l.packs, l.records = int(binary.BigEndian.Uint32(b[8:])), int(binary.BigEndian.Uint32(b[12:]))
	if l.packs > maxTablePacks || magic == listMagic && l.packs != 0 {
		return l, damaged("it names %d packs", l.packs)
	}
	return l, nil
}

// openTable reads the head of a table of size bytes through read, which fills p
// from an offset in the table.
func openTable(ctx context.Context, id meta.ContentID, magic string, size int64, blocks *lru.Cache[blockKey, []byte],
	read func(ctx context.Context, p []byte, off int64) error) (*table, error) {
	if size < tableHeader+sumSize {
		return nil, damaged("it has %d bytes", size)
	}
	var first [tableHeader]byte
	if err := read(ctx, first[:], 0); err != nil {
		return nil, err
	}
	l, err := parseHeader(first[:], magic)
	if err != nil {
		return nil, err
	}
	if l.size() != size {
		return nil, damaged("it has %d bytes where its header says %d", size, l.size())
	}
	head := make([]byte, l.head())
	if err := read(ctx, head, 0); err != nil {
		return nil, err
	}
	body, sum := head[:len(head)-sumSize], binary.BigEndian.Uint32(head[len(head)-sumSize:])
	if checksum(body) != sum {
		return nil, damaged("its head has another sum")
	}
	t := &table{layout: l, id: id, read: read, blocks: blocks, ids: make([]meta.ContentID, l.packs)}
	b := body[tableHeader:]
	for i := range t.ids {
		t.ids[i] = meta.ContentID(b[:packIDSize])
		b = b[packIDSize:]
		if i > 0 && bytes.Compare(t.ids[i-1][:], t.ids[i][:]) >= 0 {
			return nil, damaged("its packs are not in order")
		}
	}
	t.anchors = slices.Clone(b)
	return t, nil
}

// weight is what the table takes in memory.
func (t *table) weight() int64 {
	n := int64(len(t.anchors)+len(t.ids)*packIDSize) + 512
	if t.records <= maxFiltered {
		n += 3 * int64(t.records) // its filter
	}
	return n
}

// load returns the records of a block, from memory if they are there.
func (t *table) load(ctx context.Context, i int) ([]byte, error) {
	if t.blocks == nil {
		return t.fetch(ctx, i)
	}
	key := blockKey{t.id, i}
	if b, ok := t.blocks.Get(key); ok {
		return b, nil
	}
	b, err := t.fetch(ctx, i)
	if err == nil {
		t.blocks.Put(key, b, int64(len(b)))
	}
	return b, err
}

// fetch reads the records of a block and checks them.
func (t *table) fetch(ctx context.Context, i int) ([]byte, error) {
	at, n := t.block(i)
	b := make([]byte, n*t.width+sumSize)
	if err := t.read(ctx, b, at); err != nil {
		return nil, err
	}
	b, sum := b[:n*t.width], binary.BigEndian.Uint32(b[n*t.width:])
	if checksum(b) != sum {
		return nil, damaged("block %d has another sum", i)
	}
	return b, t.check(i, b)
}

// check makes sure that a block is in order and names packs that there are.
func (t *table) check(i int, b []byte) error {
	if !bytes.Equal(b[:anchorSize], t.anchors[i*anchorSize:(i+1)*anchorSize]) {
		return damaged("block %d does not begin as its anchor", i)
	}
	var last record
	for at := 0; at < len(b); at += t.width {
		r := record{digest: tree.Digest(b[at : at+digestSize])}
		if t.width > digestSize {
			r.place = placeAt(b[at+digestSize : at+t.width])
			if int(r.pack) >= t.packs || !r.possible() {
				return damaged("block %d has an impossible place", i)
			}
		}
		if at > 0 && last.compare(&r) >= 0 {
			return damaged("block %d is not in order", i)
		}
		last = r
	}
	return nil
}

// find calls fn with the position of each record of d, until it returns false.
func (t *table) find(ctx context.Context, d tree.Digest, fn func(pos int, p place) bool) error {
	if t.filter.excludes(ctx, t, &d) {
		return nil
	}
	blocks := t.layout.blocks()
	// The first block whose anchor is not below d may follow one with it.
	i := sort.Search(blocks, func(i int) bool {
		return bytes.Compare(t.anchors[i*anchorSize:(i+1)*anchorSize], d[:anchorSize]) >= 0
	})
	for i = max(0, i-1); i < blocks; i++ {
		if bytes.Compare(t.anchors[i*anchorSize:(i+1)*anchorSize], d[:anchorSize]) > 0 {
			return nil
		}
		b, err := t.load(ctx, i)
		if err != nil {
			return err
		}
		n := len(b) / t.width
		k := sort.Search(n, func(k int) bool { return bytes.Compare(b[k*t.width:k*t.width+digestSize], d[:]) >= 0 })
		for ; k < n; k++ {
			rec := b[k*t.width : (k+1)*t.width]
			if [digestSize]byte(rec) != d {
				return nil
			}
			var p place
			if t.width > digestSize {
				p = placeAt(rec[digestSize:])
			}
			if !fn(i*blockLen+k, p) {
				return nil
			}
		}
	}
	return nil
}

// has reports whether the table has d.
func (t *table) has(ctx context.Context, d tree.Digest) (found bool, err error) {
	err = t.find(ctx, d, func(int, place) bool { found = true; return false })
	return found, err
}

// cursor goes through the records of a table in order. It reads each block once
// and keeps none.
type cursor struct {
	table *table
	block int
	rest  []byte
	record
	pos int // of the record
}

// walk returns a cursor before the first record.
func (t *table) walk() *cursor { return &cursor{table: t, pos: -1} }

// next goes to the next record and reports whether there is one.
func (c *cursor) next(ctx context.Context) (bool, error) {
	if len(c.rest) == 0 {
		if c.block == c.table.layout.blocks() {
			return false, nil
		}
		var err error
		if c.rest, err = c.table.fetch(ctx, c.block); err != nil {
			return false, err
		}
		c.block++
	}
	last := c.record
	c.digest = tree.Digest(c.rest[:digestSize])
	if c.table.width > digestSize {
		c.place = placeAt(c.rest[digestSize:c.table.width])
	}
	c.rest = c.rest[c.table.width:]
	if c.pos++; c.pos > 0 && last.compare(&c.record) >= 0 {
		return false, damaged("record %d is not in order", c.pos)
	}
	return true, nil
}

// each calls fn with all records in order.
func (t *table) each(ctx context.Context, fn func(pos int, r *record) error) error {
	c := t.walk()
	for {
		ok, err := c.next(ctx)
		if !ok || err != nil {
			return err
		}
		if err := fn(c.pos, &c.record); err != nil {
			return err
		}
	}
}
