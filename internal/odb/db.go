package odb

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/meta"
)

// DB is the packs of one set, in the order of the set. It is immutable and safe
// for concurrent use.
type DB struct {
	store *Store
	packs []*Pack
	segs  []segment // in the order of the set
	// shared marks the exact packs that hold an object which an earlier one has.
	shared []bool
}

// Loc is where an object lies: the pack's place in the set and the position in
// its index. An object that several packs hold has the Loc of the first.
type Loc struct{ Pack, Pos int32 }

// segment finds the objects of consecutive packs: of one by its index, of
// several small ones by a merged table.
type segment struct {
	lo, hi int32 // packs [lo, hi) of the set
	one    *pack.Index
	table  []located // sorted by id, without repetitions
}

type located struct {
	id  object.ID
	loc Loc
}

// locatedBytes is the size of one located.
const locatedBytes = object.Size + 8

// mergeMax is the number of objects up to which segments are merged.
const mergeMax = 1 << 17

// bytes is about what a DB takes in memory beside its packs. Tables that it
// shares with the DB it grew from count for both.
func (db *DB) bytes() int64 {
	n := int64(256 + 17*len(db.packs))
	for i := range db.segs {
		n += int64(len(db.segs[i].table)) * locatedBytes
	}
	return n
}

func (s *segment) count() int {
	if s.one != nil {
		return s.one.Count()
	}
	return len(s.table)
}

func (s *segment) find(id object.ID) (Loc, bool) {
	if s.one != nil {
		pos, ok := s.one.Lookup(id)
		return Loc{s.lo, int32(pos)}, ok
	}
	return lookup(s.table, id)
}

// lookup finds an object in a sorted table. Ids are spread evenly, so it looks
// around the place where id would lie; any others cost a logarithm as well.
func lookup(table []located, id object.ID) (Loc, bool) {
	lo := int(uint64(binary.BigEndian.Uint32(id[:])) * uint64(len(table)) >> 32)
	hi := lo
	for step := 16; lo > 0 && table[lo].id.Compare(id) > 0; step *= 4 {
		hi, lo = lo, max(lo-step, 0)
	}
	for step := 16; hi < len(table) && table[hi].id.Compare(id) <= 0; step *= 4 {
		lo, hi = hi, min(hi+step, len(table))
	}
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := table[mid].id.Compare(id); {
		case c == 0:
			return table[mid].loc, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return Loc{}, false
}

// entries returns the table of a segment.
func (s *segment) entries() []located {
	if s.one == nil {
		return s.table
	}
	table := make([]located, s.one.Count())
	for i := range table {
		table[i] = located{s.one.ID(i), Loc{s.lo, int32(i)}}
	}
	return table
}

// mergeSegments returns one segment for two neighbours; a comes first in the
// set, and its locations win.
func mergeSegments(a, b *segment) segment {
	x, y := a.entries(), b.entries()
	table := make([]located, 0, len(x)+len(y))
	for len(x) > 0 && len(y) > 0 {
		switch c := x[0].id.Compare(y[0].id); {
		case c < 0:
			table, x = append(table, x[0]), x[1:]
		case c > 0:
			table, y = append(table, y[0]), y[1:]
		default:
			table, x, y = append(table, x[0]), x[1:], y[1:]
		}
	}
	table = append(append(table, x...), y...)
	return segment{lo: a.lo, hi: b.hi, table: table}
}

// With returns a DB that has p after the packs of db. Its cost does not grow
// with the number of objects, on average over many packs. What only garbage
// packs hold is not found by ID: for a DB it does not exist.
func (db *DB) With(p *Pack) *DB { return db.WithNew(p, nil) }

// WithNew is With for a pack of which no object is in upon, an earlier DB of the
// same repository; nil says nothing.
func (db *DB) WithNew(p *Pack, upon *DB) *DB {
	n := int32(len(db.packs))
	// Copies: the next DB must not write into this one's arrays.
	out := &DB{store: db.store, packs: make([]*Pack, n+1), shared: make([]bool, n+1)}
	copy(out.packs, db.packs)
	copy(out.shared, db.shared)
	out.packs[n] = p
	if p.info.Class == meta.PackGarbage {
		out.shared[n], out.segs = true, db.segs
		return out
	}
	out.shared[n] = p.info.Exact && db.hasAny(p.file.Index(), upon)
	out.segs = append(slices.Clone(db.segs), segment{lo: n, hi: n + 1, one: p.file.Index()})
	for len(out.segs) > 1 {
		a, b := &out.segs[len(out.segs)-2], &out.segs[len(out.segs)-1]
		if a.count() > 3*b.count() || a.count()+b.count() > mergeMax {
			break
		}
		merged := mergeSegments(a, b)
		out.segs = append(out.segs[:len(out.segs)-2], merged)
	}
	return out
}

// Replaced returns a DB in which the packs of added stand where the first of the
// removed ones stood, or behind all others when none is removed. It returns false
// when db lacks a removed one.
func (db *DB) Replaced(removed []meta.PackID, added []*Pack) (*DB, bool) {
	gone := make(map[meta.PackID]bool, len(removed))
	for _, id := range removed {
		gone[id] = true
	}
	at := slices.IndexFunc(db.packs, func(p *Pack) bool { return gone[p.info.ID] })
	if at < 0 {
		at = len(db.packs)
	}
	out, found := db.first(int32(at)), 0
	for _, p := range added {
		out = out.With(p)
	}
	for _, p := range db.packs[at:] {
		if gone[p.info.ID] {
			found++
			continue
		}
		out = out.With(p)
	}
	return out, found == len(gone)
}

// first returns the DB of the first n packs.
func (db *DB) first(n int32) *DB {
	out := &DB{store: db.store, packs: db.packs[:n:n], shared: db.shared[:n:n]}
	for _, s := range db.segs {
		if s.lo < n && s.hi > n {
			// What several packs have is located in the first of them.
			s.hi = n
			s.table = slices.DeleteFunc(slices.Clone(s.table), func(l located) bool { return l.loc.Pack >= n })
		}
		if s.lo < n {
			out.segs = append(out.segs, s)
		}
	}
	return out
}

// Exact reports whether the pack with the given place is exact here: its row
// says so, and no earlier pack has an object of it. Two writers at once may each
// have made a pack that was exact upon what it saw.
func (db *DB) Exact(place int32) bool { return db.packs[place].info.Exact && !db.shared[place] }

// hasAny reports whether db has an object of idx; upon, if it is not nil, has none.
func (db *DB) hasAny(idx *pack.Index, upon *DB) bool {
	has := db.Has
	if upon != nil && len(db.packs) >= len(upon.packs) && slices.Equal(db.packs[:len(upon.packs)], upon.packs) {
		later := db.packs[len(upon.packs):]
		has = func(id object.ID) bool {
			return slices.ContainsFunc(later, func(p *Pack) bool {
				_, ok := p.Index().Lookup(id)
				return ok && p.info.Class != meta.PackGarbage
			})
		}
	}
	for i := range idx.Count() {
		if has(idx.ID(i)) {
			return true
		}
	}
	return false
}

// Packs returns the packs in the order of the set. It must not be modified.
func (db *DB) Packs() []*Pack { return db.packs }

// Pack returns the pack with the given place in the set.
func (db *DB) Pack(place int32) *Pack { return db.packs[place] }

// Find returns where an object lies.
func (db *DB) Find(id object.ID) (Loc, bool) {
	for i := range db.segs {
		if loc, ok := db.segs[i].find(id); ok {
			return loc, true
		}
	}
	return Loc{}, false
}

// Has reports whether some pack holds an object.
func (db *DB) Has(id object.ID) bool {
	_, ok := db.Find(id)
	return ok
}

// ID returns the object at a location.
func (db *DB) ID(loc Loc) object.ID { return db.packs[loc.Pack].file.Index().ID(int(loc.Pos)) }

// promised finds an object that must exist.
func (db *DB) promised(ctx context.Context, id object.ID) (*Pack, int, error) {
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	loc, ok := db.Find(id)
	if !ok {
		return nil, 0, db.store.corrupt(&CorruptError{Object: id})
	}
	return db.packs[loc.Pack], int(loc.Pos), nil
}

// Get returns the type and content of an object that is known to exist; absence
// is a *CorruptError. The content must not be modified.
func (db *DB) Get(ctx context.Context, id object.ID) (object.Type, []byte, error) {
	p, pos, err := db.promised(ctx, id)
	if err != nil {
		return object.Invalid, nil, err
	}
	return p.get(pos)
}

// Tree returns the content of a tree that is known to exist. The content is
// cached and must not be modified.
func (db *DB) Tree(ctx context.Context, id object.ID) ([]byte, error) {
	p, pos, err := db.promised(ctx, id)
	if err != nil {
		return nil, err
	}
	key := treeKey{p.info.ID, int32(pos)}
	if data, ok := db.store.trees.Get(key); ok {
		return data, nil
	}
	t, data, err := p.get(pos)
	if err != nil {
		return nil, err
	}
	if t != object.Tree {
		return nil, db.store.corrupt(&CorruptError{Object: id, Pack: p.info.ID, Err: fmt.Errorf("it is a %s where a tree is named", t)})
	}
	if p.info.ID != 0 {
		db.store.trees.Put(key, data, int64(len(data)))
	}
	return data, nil
}

// Type returns the type of an object that is known to exist.
func (db *DB) Type(ctx context.Context, id object.ID) (object.Type, error) {
	p, pos, err := db.promised(ctx, id)
	if err != nil {
		return object.Invalid, err
	}
	return p.Type(pos)
}

// Size returns the size in bytes of an object that is known to exist.
func (db *DB) Size(ctx context.Context, id object.ID) (int64, error) {
	p, pos, err := db.promised(ctx, id)
	if err != nil {
		return 0, err
	}
	return p.Size(pos)
}

// Stream returns an object that is known to exist as a stream, which must be
// closed; memory does not grow with the object.
func (db *DB) Stream(ctx context.Context, id object.ID) (object.Type, int64, io.ReadCloser, error) {
	p, pos, err := db.promised(ctx, id)
	if err != nil {
		return object.Invalid, 0, nil, err
	}
	t, size, r, err := p.file.Stream(pos, p.store.limits)
	return t, size, r, p.fault(pos, err)
}
