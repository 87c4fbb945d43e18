package pack

import (
	"iter"
	"slices"
	"sync/atomic"

	"github.com/cairnstate/cairn/internal/git/object"
)

// rowsPerChunk is how many objects a chunk of the table holds. Chunks keep
// growth from copying, and a claimed count from costing more than 2 MiB.
const rowsPerChunk = 1 << 14

// chunk holds some objects of a pack, column by column: 34 bytes each, and 8 more
// where there are deltas.
type chunk struct {
	id      []object.ID // for a REFDelta that is not resolved, its base
	offset  []int64
	crc     []uint32
	kind    []object.Type // of the entry
	typ     []object.Type // of the object; object.Invalid until its ID is known
	child   []uint32      // the last delta at an offset against this object, plus one; nil while there is none
	sibling []uint32      // the previous delta against the same base, plus one; nil while there is none
}

// table holds the objects of a pack in the order of their entries. Rows may be
// read and changed concurrently, and while add appends expected rows.
type table struct {
	chunks []*chunk
	count  int
	hint   int // how many objects are expected
}

func newTable(expected int) *table {
	return &table{hint: expected, chunks: make([]*chunk, (expected+rowsPerChunk-1)/rowsPerChunk)}
}

// add appends a row. Only rows beyond the expected ones move others.
func (t *table) add(offset int64, kind object.Type) uint32 {
	i, k, at := uint32(t.count), t.count/rowsPerChunk, t.count%rowsPerChunk
	if k == len(t.chunks) {
		t.chunks = append(t.chunks, nil)
	}
	if t.chunks[k] == nil {
		t.chunks[k] = new(chunk)
		t.chunks[k].resize(max(1, min(rowsPerChunk, t.hint-t.count)))
	} else if at == len(t.chunks[k].id) {
		t.chunks[k].resize(min(rowsPerChunk, 2*at))
	}
	t.count++
	t.chunks[k].offset[at] = offset
	t.chunks[k].kind[at] = kind
	return i
}

func (c *chunk) resize(n int) {
	c.id = append(c.id, make([]object.ID, n-len(c.id))...)
	c.offset = append(c.offset, make([]int64, n-len(c.offset))...)
	c.crc = append(c.crc, make([]uint32, n-len(c.crc))...)
	c.kind = append(c.kind, make([]object.Type, n-len(c.kind))...)
	c.typ = append(c.typ, make([]object.Type, n-len(c.typ))...)
	for _, links := range []*[]uint32{&c.child, &c.sibling} {
		if *links != nil {
			*links = append(*links, make([]uint32, n-len(*links))...)
		}
	}
}

func (t *table) id(i uint32) *object.ID    { return &t.chunks[i/rowsPerChunk].id[i%rowsPerChunk] }
func (t *table) offset(i uint32) int64     { return t.chunks[i/rowsPerChunk].offset[i%rowsPerChunk] }
func (t *table) crc(i uint32) *uint32      { return &t.chunks[i/rowsPerChunk].crc[i%rowsPerChunk] }
func (t *table) kind(i uint32) object.Type { return t.chunks[i/rowsPerChunk].kind[i%rowsPerChunk] }
func (t *table) typ(i uint32) *object.Type { return &t.chunks[i/rowsPerChunk].typ[i%rowsPerChunk] }

func (t *table) child(i uint32) uint32 {
	if c := t.chunks[i/rowsPerChunk].child; c != nil {
		return c[i%rowsPerChunk]
	}
	return 0
}

func (t *table) sibling(i uint32) uint32 {
	if s := t.chunks[i/rowsPerChunk].sibling; s != nil {
		return s[i%rowsPerChunk]
	}
	return 0
}

// setChild and setSibling may not be called beside readers of the same rows.
func (t *table) setChild(i, delta uint32) {
	c := t.chunks[i/rowsPerChunk]
	if c.child == nil {
		c.child = make([]uint32, len(c.id))
	}
	c.child[i%rowsPerChunk] = delta
}

func (t *table) setSibling(i, delta uint32) {
	c := t.chunks[i/rowsPerChunk]
	if c.sibling == nil {
		c.sibling = make([]uint32, len(c.id))
	}
	c.sibling[i%rowsPerChunk] = delta
}

// dropLinks forgets which deltas are against what.
func (t *table) dropLinks() {
	for _, c := range t.chunks {
		c.child, c.sibling = nil, nil
	}
}

// at returns the object whose entry begins at offset.
func (t *table) at(offset int64) (uint32, bool) {
	lo, hi := 0, t.count
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if t.offset(uint32(mid)) < offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return uint32(lo), lo < t.count && t.offset(uint32(lo)) == offset
}

// sortByID returns count objects in order of ID. Beyond small packs it first
// deals them out by the first 16 bits, so that comparisons stay within a few cache
// lines. It goes through objs twice.
func (t *table) sortByID(count int, objs iter.Seq[uint32]) []uint32 {
	compare := func(a, b uint32) int { return t.id(a).Compare(*t.id(b)) }
	if count < 1<<12 {
		return slices.SortedFunc(objs, compare)
	}
	bucket := func(i uint32) int { id := t.id(i); return int(id[0])<<8 | int(id[1]) }
	var ends [1 << 16]uint32
	for i := range objs {
		ends[bucket(i)]++
	}
	sum := uint32(0)
	for b := range ends {
		n := ends[b]
		ends[b] = sum
		sum += n
	}
	sorted := make([]uint32, count)
	for i := range objs {
		b := bucket(i)
		sorted[ends[b]] = i
		ends[b]++
	}
	start := uint32(0)
	for _, end := range ends {
		slices.SortFunc(sorted[start:end], compare)
		start = end
	}
	return sorted
}

// all yields every object.
func (t *table) all(yield func(uint32) bool) {
	for i := range uint32(t.count) {
		if !yield(i) {
			return
		}
	}
}

// refDeltas yields the REFDelta entries.
func (t *table) refDeltas(yield func(uint32) bool) {
	for i := range t.all {
		if t.kind(i) == REFDelta && !yield(i) {
			return
		}
	}
}

// refGroup is the list of all REFDelta entries against one base.
type refGroup struct {
	base  object.ID
	first atomic.Uint32 // the list, as in chunk.child; 0 once it is taken
}

// groupRefs links every REFDelta to those against the same base and returns
// the groups in order of base.
func (t *table) groupRefs(count int) []refGroup {
	if count == 0 {
		return nil
	}
	refs := t.sortByID(count, t.refDeltas)
	bases := 1
	for i := 1; i < len(refs); i++ {
		if *t.id(refs[i]) != *t.id(refs[i-1]) {
			bases++
		}
	}
	groups := make([]refGroup, bases)
	g := -1
	for i, r := range refs {
		if i == 0 || *t.id(r) != *t.id(refs[i-1]) {
			g++
			groups[g].base = *t.id(r)
		}
		t.setSibling(r, groups[g].first.Load())
		groups[g].first.Store(r + 1)
	}
	return groups
}

// findGroup returns the group of a base, or nil.
func findGroup(groups []refGroup, base *object.ID) *refGroup {
	lo, hi := 0, len(groups)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch groups[mid].base.Compare(*base) {
		case 0:
			return &groups[mid]
		case -1:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return nil
}
