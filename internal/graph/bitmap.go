package graph

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"
	"sync"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
)

// The bitmaps of a pack, version 1, follow the commit table in the same file.
// They are there for packs that hold all that their commits reach. Integers are
// big endian.
//
//	"CBMP", version, objects of the pack n, bitmaps b     4 x 4 bytes
//	two sets: the pack's blobs, its trees
//	b bitmaps, a commit after those it reaches: record in the commit table (4),
//	    number + 1 of an earlier bitmap of a commit that it reaches, or 0 (4),
//	    the set of what it reaches and that one does not
//	CRC-32C of all before (4)
//
// A set is its length in bytes (4), and the lengths of runs of objects that are
// not and that are in it, alternating, as varints. Objects are in the order in
// which they lie in the pack.
const (
	bitmapMagic   = "CBMP"
	bitmapVersion = 1
	bitmapHeader  = 16
)

// bitmaps are what some commits of a pack reach. They are immutable.
type bitmaps struct {
	n            int // objects of the pack
	blobs, trees []byte
	commits      []bitmap

	once  sync.Once
	kinds [2][]uint64 // blobs and trees by index position
}

// bitmap is what one commit reaches.
type bitmap struct {
	record int32
	base   int32 // number of another bitmap, or -1
	runs   []byte
}

// parseBitmaps reads bitmaps, keeping data. It checks all that lookups rely on;
// errors wrap ErrFormat.
func parseBitmaps(data []byte, t *Table) (*bitmaps, error) {
	if len(data) < bitmapHeader+4 || string(data[:4]) != bitmapMagic {
		return nil, fmt.Errorf("%w: no bitmaps begin after it", ErrFormat)
	}
	if v := be32(data, 1); v != bitmapVersion {
		return nil, fmt.Errorf("%w: version %d of bitmaps is not known", ErrFormat, v)
	}
	end := len(data) - 4
	if crc32.Checksum(data[:end], castagnoli) != binary.BigEndian.Uint32(data[end:]) {
		return nil, fmt.Errorf("%w: checksum of bitmaps does not match", ErrFormat)
	}
	b := &bitmaps{n: int(be32(data, 2))}
	count := int(be32(data, 3))
	r := setReader{rest: data[bitmapHeader:end], n: b.n}
	b.blobs, b.trees = r.set(), r.set()
	for i := 0; i < count && r.err == nil; i++ {
		m := bitmap{record: int32(r.uint32()), base: int32(r.uint32()) - 1}
		m.runs = r.set()
		if m.record < 0 || int(m.record) >= t.n || m.base < -1 || int(m.base) >= i {
			return nil, fmt.Errorf("%w: bitmap %d names what is not there", ErrFormat, i)
		}
		b.commits = append(b.commits, m)
	}
	if r.err == nil && len(r.rest) > 0 {
		r.err = fmt.Errorf("%w: data follows the bitmaps", ErrFormat)
	}
	return b, r.err
}

// setReader reads the parts of bitmaps.
type setReader struct {
	rest []byte
	n    int
	err  error
}

func (r *setReader) uint32() uint32 {
	if len(r.rest) < 4 {
		r.err = fmt.Errorf("%w: bitmaps are cut short", ErrFormat)
		return 0
	}
	v := binary.BigEndian.Uint32(r.rest)
	r.rest = r.rest[4:]
	return v
}

// set reads a set and checks that it stays within the pack.
func (r *setReader) set() []byte {
	size := uint64(r.uint32())
	if r.err != nil || size > uint64(len(r.rest)) {
		r.err = fmt.Errorf("%w: bitmaps are cut short", ErrFormat)
		return nil
	}
	runs := r.rest[:size]
	r.rest = r.rest[size:]
	at := uint64(0)
	for b := runs; len(b) > 0; {
		v, k := binary.Uvarint(b)
		if k <= 0 || v > uint64(r.n) || at+v > uint64(r.n) {
			r.err = fmt.Errorf("%w: a bitmap reaches beyond its pack", ErrFormat)
			return nil
		}
		at, b = at+v, b[k:]
	}
	return runs
}

// appendSet appends the set of ascending places.
func appendSet(out []byte, places []uint32) []byte {
	at := len(out)
	out = append(out, 0, 0, 0, 0)
	next := uint32(0)
	for i := 0; i < len(places); {
		first := places[i]
		end := first
		for i < len(places) && places[i] == end {
			end, i = end+1, i+1
		}
		out = binary.AppendUvarint(out, uint64(first-next))
		out = binary.AppendUvarint(out, uint64(end-first))
		next = end
	}
	binary.BigEndian.PutUint32(out[at:], uint32(len(out)-at-4))
	return out
}

// addRuns adds a set to words, which count by index position.
func addRuns(words []uint64, runs []byte, order []uint32) {
	at := uint64(0)
	for set := false; len(runs) > 0; set = !set {
		v, k := binary.Uvarint(runs)
		runs = runs[k:]
		if set {
			for _, pos := range order[at : at+v] {
				words[pos>>6] |= 1 << (pos & 63)
			}
		}
		at += v
	}
}

// add adds to words what the commit of a bitmap reaches.
func (b *bitmaps) add(words []uint64, number int32, idx *pack.Index) {
	for order := idx.OffsetOrder(); number >= 0; number = b.commits[number].base {
		addRuns(words, b.commits[number].runs, order)
	}
}

// kindWords returns the blobs and the trees of the pack by index position.
func (b *bitmaps) kindWords(idx *pack.Index) (blobs, trees []uint64) {
	b.once.Do(func() {
		for i, runs := range [...][]byte{b.blobs, b.trees} {
			b.kinds[i] = make([]uint64, (b.n+63)/64)
			addRuns(b.kinds[i], runs, idx.OffsetOrder())
		}
	})
	return b.kinds[0], b.kinds[1]
}

func hasBit(words []uint64, pos int32) bool { return words[pos>>6]&(1<<(pos&63)) != 0 }

// addWords puts the objects of a pack whose bits are set into the set.
func (s *ObjectSet) addWords(place int32, words []uint64) {
	if s.whole[place] {
		return
	}
	if s.bits[place] == nil {
		s.bits[place] = make([]uint64, (s.db.Pack(place).Index().Count()+63)/64)
	}
	for i, w := range words {
		fresh := w &^ s.bits[place][i]
		s.count += bits.OnesCount64(fresh)
		s.bits[place][i] |= fresh
	}
}

// fromBitmaps selects what the bitmaps of packs say that commits to send reach,
// and returns the commits that this covers. It is for clients that have nothing,
// and filters that do not go by depth or type.
func (s *selector) fromBitmaps() *CommitSet {
	f := &s.q.Filter
	if len(s.q.Haves)+len(s.q.WantCut)+len(s.q.HaveCut)+len(s.q.Unshallow) > 0 || f.HasTreeDepth || f.HasBlobLimit && f.BlobLimit > 0 {
		return nil
	}
	var covered *CommitSet
	for i, p := range s.g.db.Packs() {
		place, t := int32(i), s.g.tables[i]
		if t.bitmaps == nil || !s.g.db.Exact(place) || s.set.Whole(place) {
			continue
		}
		words := s.reached(place)
		if words == nil {
			continue
		}
		if covered == nil {
			covered = s.g.NewCommitSet()
		}
		lo, _ := s.g.PackNodes(place)
		for r := range t.n {
			if hasBit(words, t.pos(r)) {
				covered.Add(lo + Node(r))
			}
		}
		blobs, trees := t.bitmaps.kindWords(p.Index())
		for w := range words {
			switch {
			case f.Type == object.Blob:
				words[w] &= blobs[w]
			case f.Type == object.Tree:
				words[w] &= trees[w]
			case f.Type == object.Commit:
				words[w] &^= blobs[w] | trees[w]
			case f.Type == object.Tag:
				words[w] = 0 // commits reach none
			}
			if f.HasBlobLimit {
				words[w] &^= blobs[w]
			}
		}
		s.set.addWords(place, words)
	}
	for id := range s.explicit {
		if n, ok := s.g.Node(id); ok && covered.Has(n) {
			s.set.Add(s.g.nodes[n].loc) // whatever the filter says
		}
	}
	return covered
}

// reached returns what the bitmaps of a pack say of commits to send, by index
// position; nil when none of them has one.
func (s *selector) reached(place int32) []uint64 {
	t, idx := s.g.tables[place], s.g.db.Pack(place).Index()
	lo, _ := s.g.PackNodes(place)
	var words []uint64
	for k := len(t.bitmaps.commits) - 1; k >= 0; k-- {
		r := int(t.bitmaps.commits[k].record)
		if !s.send.Has(lo+Node(r)) || words != nil && hasBit(words, t.pos(r)) {
			continue
		}
		if words == nil {
			words = make([]uint64, (idx.Count()+63)/64)
		}
		t.bitmaps.add(words, int32(k), idx)
	}
	return words
}
