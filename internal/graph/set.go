package graph

import (
	"math/bits"

	"github.com/cairnstate/cairn/internal/odb"
)

// CommitSet is a set of commits of a Graph.
type CommitSet struct{ words []uint64 }

// NewCommitSet returns an empty set for commits of g.
func (g *Graph) NewCommitSet() *CommitSet {
	return &CommitSet{make([]uint64, (len(g.nodes)+63)/64)}
}

// Has reports whether n is in the set; nil is empty.
func (s *CommitSet) Has(n Node) bool {
	if s == nil || int(n)>>6 >= len(s.words) {
		return false
	}
	return s.words[n>>6]&(1<<(n&63)) != 0
}

// Add puts n into the set and reports whether it was not there.
func (s *CommitSet) Add(n Node) bool {
	w, b := &s.words[n>>6], uint64(1)<<(n&63)
	fresh := *w&b == 0
	*w |= b
	return fresh
}

// meets reports whether some commit of [lo, hi) is in the set.
func (s *CommitSet) meets(lo, hi Node) bool {
	for n := lo; n < hi; {
		if w := s.words[n>>6] >> (n & 63); w != 0 {
			return n+Node(bits.TrailingZeros64(w)) < hi
		}
		n = (n>>6 + 1) << 6
	}
	return false
}

// covers reports whether all commits of [lo, hi) are in the set.
func (s *CommitSet) covers(lo, hi Node) bool {
	for n := lo; n < hi; {
		if w := ^s.words[n>>6] >> (n & 63); w != 0 {
			return n+Node(bits.TrailingZeros64(w)) >= hi
		}
		n = (n>>6 + 1) << 6
	}
	return true
}

// Each calls yield for every commit in order of their numbers.
func (s *CommitSet) Each(yield func(Node) bool) {
	for i, w := range s.words {
		for ; w != 0; w &= w - 1 {
			if !yield(Node(i<<6 + bits.TrailingZeros64(w))) {
				return
			}
		}
	}
}

// Len returns the number of commits.
func (s *CommitSet) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// grown returns a copy that has room for the commits of g.
func (s *CommitSet) grown(g *Graph) *CommitSet {
	out := g.NewCommitSet()
	copy(out.words, s.words)
	return out
}

// ObjectSet is a set of objects of a DB: for each pack nothing, everything, or
// a bit for each index position.
type ObjectSet struct {
	whole []bool
	bits  [][]uint64
	count int
	db    *odb.DB
}

// NewObjectSet returns an empty set of objects of db.
func NewObjectSet(db *odb.DB) *ObjectSet {
	n := len(db.Packs())
	return &ObjectSet{whole: make([]bool, n), bits: make([][]uint64, n), db: db}
}

// DB returns the database that the objects are of.
func (s *ObjectSet) DB() *odb.DB { return s.db }

// Has reports whether an object is in the set.
func (s *ObjectSet) Has(loc odb.Loc) bool {
	if int(loc.Pack) >= len(s.whole) {
		return false
	}
	if s.whole[loc.Pack] {
		return true
	}
	b := s.bits[loc.Pack]
	return b != nil && b[loc.Pos>>6]&(1<<(loc.Pos&63)) != 0
}

// Add puts an object into the set and reports whether it was not there.
func (s *ObjectSet) Add(loc odb.Loc) bool {
	if s.whole[loc.Pack] {
		return false
	}
	b := s.bits[loc.Pack]
	if b == nil {
		b = make([]uint64, (s.db.Pack(loc.Pack).Index().Count()+63)/64)
		s.bits[loc.Pack] = b
	}
	w, m := &b[loc.Pos>>6], uint64(1)<<(loc.Pos&63)
	if *w&m != 0 {
		return false
	}
	*w |= m
	s.count++
	return true
}

// Remove takes an object out of a set to which its pack was not added whole.
func (s *ObjectSet) Remove(loc odb.Loc) {
	if b := s.bits[loc.Pack]; b != nil && b[loc.Pos>>6]&(1<<(loc.Pos&63)) != 0 {
		b[loc.Pos>>6] &^= 1 << (loc.Pos & 63)
		s.count--
	}
}

// AddPack puts all objects of a pack into the set.
func (s *ObjectSet) AddPack(place int32) {
	if s.whole[place] {
		return
	}
	s.count += s.db.Pack(place).Index().Count() - s.countBits(place)
	s.whole[place], s.bits[place] = true, nil
}

func (s *ObjectSet) countBits(place int32) int {
	n := 0
	for _, w := range s.bits[place] {
		n += bits.OnesCount64(w)
	}
	return n
}

// Whole reports whether a pack was added whole.
func (s *ObjectSet) Whole(place int32) bool { return s.whole[place] }

// Len returns the number of objects.
func (s *ObjectSet) Len() int { return s.count }

// CountIn returns the number of objects of a pack.
func (s *ObjectSet) CountIn(place int32) int {
	if s.whole[place] {
		return s.db.Pack(place).Index().Count()
	}
	return s.countBits(place)
}

// EachIn calls yield for the index position of every object of a pack that was
// not added whole, in ascending order.
func (s *ObjectSet) EachIn(place int32, yield func(pos int32) bool) {
	for i, w := range s.bits[place] {
		for ; w != 0; w &= w - 1 {
			if !yield(int32(i<<6 + bits.TrailingZeros64(w))) {
				return
			}
		}
	}
}

// Bytes estimates the memory of the set.
func (s *ObjectSet) Bytes() int64 {
	n := int64(len(s.whole)) * 25
	for _, b := range s.bits {
		n += int64(len(b)) * 8
	}
	return n
}

// grown returns a copy for a DB that begins with the packs of s's.
func (s *ObjectSet) grown(db *odb.DB) *ObjectSet {
	out := NewObjectSet(db)
	copy(out.whole, s.whole)
	for i, b := range s.bits {
		out.bits[i] = append([]uint64(nil), b...)
	}
	out.count = s.count
	return out
}
