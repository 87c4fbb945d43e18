package graph

import (
	"cmp"
	"context"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"slices"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/odb"
)

const (
	// bitmapEvery is how many generations apart commits have bitmaps, besides
	// tips.
	bitmapEvery = 200
	// maxBitmapTips is the number of tips up to which each has a bitmap.
	maxBitmapTips = 512
)

// EncodeBitmaps returns the bitmaps of the one pack of g, which holds all that
// its commits reach, to be written behind its commit table. tips are commits
// whose reach will be asked for.
func EncodeBitmaps(ctx context.Context, g *Graph, tips []object.ID) ([]byte, error) {
	idx := g.db.Pack(0).Index()
	b := &bitmapBuilder{
		ctx: ctx, g: g, made: bitmaps{n: idx.Count()}, number: map[Node]int32{}, types: make([]object.Type, idx.Count()),
		order: idx.OffsetOrder(), place: make([]uint32, idx.Count()),
	}
	for place, pos := range b.order {
		b.place[pos] = uint32(place)
	}
	for _, n := range b.choose(tips) {
		if err := b.commit(n); err != nil {
			return nil, err
		}
	}
	return b.encode()
}

type bitmapBuilder struct {
	ctx    context.Context
	g      *Graph
	made   bitmaps
	number map[Node]int32 // of commits that have a bitmap
	types  []object.Type  // by index position, as far as known
	order  []uint32
	place  []uint32 // in the pack, by index position

	last  Node // whose reach is in words
	words []uint64
}

// choose returns the commits that get bitmaps, those that others reach first.
func (b *bitmapBuilder) choose(tips []object.ID) []Node {
	g := b.g
	chosen := g.NewCommitSet()
	for n := range Node(g.count) {
		if g.nodes[n].gen%bitmapEvery == 0 {
			chosen.Add(n)
		}
	}
	heads := g.Nodes(tips)
	slices.SortFunc(heads, func(a, b Node) int { return cmp.Compare(g.nodes[b].time, g.nodes[a].time) })
	for _, n := range heads[:min(len(heads), maxBitmapTips)] {
		chosen.Add(n)
	}
	nodes := slices.Collect(chosen.Each)
	slices.SortStableFunc(nodes, func(a, b Node) int { return cmp.Compare(g.nodes[a].gen, g.nodes[b].gen) })
	return nodes
}

// commit makes the bitmap of one commit: that of another which it reaches, and
// what it reaches besides.
func (b *bitmapBuilder) commit(n Node) error {
	between, known := b.history(n)
	base := int32(-1)
	if len(known) > 0 {
		newest := slices.MaxFunc(known, func(x, y Node) int { return cmp.Compare(b.g.nodes[x].gen, b.g.nodes[y].gen) })
		if base = b.number[newest]; b.words == nil || b.last != newest {
			b.words = b.reach(base)
		}
	} else {
		b.words = b.reach(-1)
	}
	var fresh []uint32
	for _, k := range known {
		if b.number[k] != base && !hasBit(b.words, b.g.nodes[k].loc.Pos) {
			fresh = b.merge(fresh, b.reach(b.number[k]))
		}
	}
	set := NewObjectSet(b.g.db)
	set.bits[0] = b.words
	l := &lister{g: b.g, ctx: b.ctx, set: set, yield: func(o Listed) error {
		b.types[o.Loc.Pos] = o.Type
		fresh = append(fresh, b.place[o.Loc.Pos])
		return nil
	}}
	var beside object.ID
	if len(known) > 0 {
		beside = b.g.nodes[known[0]].tree
	}
	// The oldest first: each tree is compared with one like it.
	for _, m := range slices.Backward(between) {
		loc := b.g.nodes[m].loc
		if set.Add(loc) {
			b.types[loc.Pos] = object.Commit
			fresh = append(fresh, b.place[loc.Pos])
		}
		var err error
		if beside, err = l.root(b.g.nodes[m].tree, beside); err != nil {
			return err
		}
	}
	slices.Sort(fresh)
	b.number[n] = int32(len(b.made.commits))
	b.made.commits = append(b.made.commits, bitmap{record: int32(n), base: base, runs: appendSet(nil, fresh)[4:]})
	b.last = n
	return b.ctx.Err()
}

// history returns the commits that n reaches without passing one that has a
// bitmap, and those that have.
func (b *bitmapBuilder) history(n Node) (between, known []Node) {
	seen := map[Node]bool{n: true}
	between = []Node{n}
	for i := 0; i < len(between); i++ {
		for _, p := range b.g.Parents(between[i]) {
			if seen[p] {
				continue
			}
			seen[p] = true
			if _, ok := b.number[p]; ok {
				known = append(known, p)
			} else {
				between = append(between, p)
			}
		}
	}
	return between, known
}

// reach returns what a bitmap says, -1 for nothing.
func (b *bitmapBuilder) reach(number int32) []uint64 {
	words := make([]uint64, (b.made.n+63)/64)
	b.made.add(words, number, b.g.db.Pack(0).Index())
	return words
}

// merge adds other to words and appends the places of what was not there.
func (b *bitmapBuilder) merge(fresh []uint32, other []uint64) []uint32 {
	for i, w := range other {
		for w &^= b.words[i]; w != 0; w &= w - 1 {
			pos := i<<6 + bits.TrailingZeros64(w)
			b.words[i] |= w & -w
			fresh = append(fresh, b.place[pos])
		}
	}
	return fresh
}

// encode writes everything.
func (b *bitmapBuilder) encode() ([]byte, error) {
	var blobs, trees []uint32
	for pos, t := range b.types {
		if t == object.Invalid { // only a tag, or nothing with a bitmap, reaches it
			var err error
			if t, err = b.g.db.Pack(0).Type(pos); err != nil {
				return nil, err
			}
		}
		switch t {
		case object.Blob:
			blobs = append(blobs, b.place[pos])
		case object.Tree:
			trees = append(trees, b.place[pos])
		}
	}
	slices.Sort(blobs)
	slices.Sort(trees)
	out := []byte(bitmapMagic)
	for _, v := range []int{bitmapVersion, b.made.n, len(b.made.commits)} {
		out = binary.BigEndian.AppendUint32(out, uint32(v))
	}
	out = appendSet(appendSet(out, blobs), trees)
	for _, m := range b.made.commits {
		out = binary.BigEndian.AppendUint32(out, uint32(m.record))
		out = binary.BigEndian.AppendUint32(out, uint32(m.base+1))
		out = binary.BigEndian.AppendUint32(out, uint32(len(m.runs)))
		out = append(out, m.runs...)
	}
	return binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli)), nil
}

// Solo returns the graph of one pack that holds all that its commits reach and
// whose commit table is given.
func Solo(ctx context.Context, store *odb.Store, p *odb.Pack, table []byte) (*Graph, error) {
	if _, err := p.Memo(func() (any, error) { return Parse(table) }); err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, 0)
	if err != nil {
		return nil, err
	}
	return Open(ctx, db.With(p), nil)
}
