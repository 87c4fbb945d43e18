package graph

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"sort"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/odb"
)

// The commit table of a pack, version 1. Integers are big endian.
//
//	"CGRF", version, commits n, parents p, outside m      5 x 4 bytes
//	n records in order of the pack's index: position in the index (4), tree (20),
//	    committer time (8, signed), generation (4), first parent (4)
//	p parents (4): below n a record, from n on n + the number of an outside commit
//	m ids (20) of commits outside the pack
//	CRC-32C of all before (4)
//
// A record's parents reach up to the first parent of the next. The generation
// of a root is 1, else one more than the highest of the parents; 0 when unknown.
const (
	tableMagic   = "CGRF"
	tableVersion = 1
	tableHeader  = 20
	recordLen    = 40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrFormat says that a commit table is malformed.
var ErrFormat = errors.New("malformed commit table")

// Table is the commits of one pack. It is immutable.
type Table struct {
	records []byte
	parents []byte
	outside []byte
	n       int
	bitmaps *bitmaps // nil when the pack has none
}

// Commit is what walks need to know of a commit.
type Commit struct {
	ID         object.ID
	Tree       object.ID
	Parents    []object.ID
	Generation uint32 // 1 for a root, else one more than the highest parent's
	Time       int64  // committer date, Unix seconds
}

// MissingParentError says that a commit's parent is in no pack.
type MissingParentError struct{ Commit, Parent object.ID }

func (e *MissingParentError) Error() string {
	return fmt.Sprintf("commit %s has the parent %s, which the repository lacks", e.Commit, e.Parent)
}

// Parse reads a commit table, and the bitmaps behind it if there are any, keeping
// data. It checks everything that lookups rely on; errors wrap ErrFormat.
func Parse(data []byte) (*Table, error) {
	if len(data) < tableHeader+4 || string(data[:4]) != tableMagic {
		return nil, fmt.Errorf("%w: it does not begin with %q", ErrFormat, tableMagic)
	}
	if v := binary.BigEndian.Uint32(data[4:]); v != tableVersion {
		return nil, fmt.Errorf("%w: version %d is not known", ErrFormat, v)
	}
	n, p, m := uint64(be32(data, 2)), uint64(be32(data, 3)), uint64(be32(data, 4))
	want := tableHeader + n*recordLen + p*4 + m*object.Size + 4
	if uint64(len(data)) < want {
		return nil, fmt.Errorf("%w: %d bytes where its header says %d", ErrFormat, len(data), want)
	}
	behind := data[want:]
	data = data[:want]
	end := len(data) - 4
	if crc32.Checksum(data[:end], castagnoli) != binary.BigEndian.Uint32(data[end:]) {
		return nil, fmt.Errorf("%w: checksum does not match", ErrFormat)
	}
	t := &Table{n: int(n), records: data[tableHeader:]}
	t.parents = t.records[n*recordLen : n*recordLen+p*4]
	t.outside = t.records[n*recordLen+p*4 : n*recordLen+p*4+m*object.Size]
	t.records = t.records[:n*recordLen]
	if err := t.check(n + m); err != nil {
		return nil, err
	}
	if len(behind) == 0 {
		return t, nil
	}
	var err error
	if t.bitmaps, err = parseBitmaps(behind, t); err != nil {
		return nil, err
	}
	return t, nil
}

// check verifies the order of records and that links stay inside the table.
func (t *Table) check(links uint64) error {
	for i := range t.n {
		if t.pos(i) < 0 || i > 0 && t.pos(i-1) >= t.pos(i) {
			return fmt.Errorf("%w: record %d is out of order", ErrFormat, i)
		}
		lo, hi := t.span(i)
		if lo > hi || int(hi) > len(t.parents)/4 || i == 0 && lo != 0 {
			return fmt.Errorf("%w: parents of record %d lie outside", ErrFormat, i)
		}
	}
	if t.n == 0 && len(t.parents) > 0 {
		return fmt.Errorf("%w: parents without commits", ErrFormat)
	}
	for i := range len(t.parents) / 4 {
		if uint64(be32(t.parents, i)) >= links {
			return fmt.Errorf("%w: parent %d does not exist", ErrFormat, i)
		}
	}
	return nil
}

func be32(b []byte, i int) uint32 { return binary.BigEndian.Uint32(b[4*i:]) }

// Len returns the number of commits.
func (t *Table) Len() int { return t.n }

func (t *Table) record(i int) []byte { return t.records[i*recordLen : (i+1)*recordLen] }

// pos returns the index position of a record.
func (t *Table) pos(i int) int32 { return int32(binary.BigEndian.Uint32(t.record(i))) }

// span returns the range of a record's parents.
func (t *Table) span(i int) (lo, hi uint32) {
	lo = binary.BigEndian.Uint32(t.record(i)[36:])
	if i+1 < t.n {
		return lo, binary.BigEndian.Uint32(t.record(i + 1)[36:])
	}
	return lo, uint32(len(t.parents) / 4)
}

// outsideID returns the id of an outside commit.
func (t *Table) outsideID(i uint32) object.ID {
	return object.ID(t.outside[i*object.Size:][:object.Size])
}

// find returns the record of an index position.
func (t *Table) find(pos int32) (int, bool) {
	i := sort.Search(t.n, func(i int) bool { return t.pos(i) >= pos })
	return i, i < t.n && t.pos(i) == pos
}

// Encode returns the commit table of a pack that holds the given commits.
// outside returns the generation of a commit that is not among them; when it
// does not know one the error is *MissingParentError. A nil outside leaves
// generations unknown. Commits need no Generation; the slice is sorted by ID.
func Encode(idx *pack.Index, commits []Commit, outside func(object.ID) (uint32, bool)) ([]byte, error) {
	slices.SortFunc(commits, func(a, b Commit) int { return a.ID.Compare(b.ID) })
	e := encoder{commits: commits, outside: outside, number: make(map[object.ID]uint32, len(commits))}
	for i := range commits {
		e.number[commits[i].ID] = uint32(i)
	}
	if err := e.link(); err != nil {
		return nil, err
	}
	if outside != nil {
		e.generations()
	}
	out := append(make([]byte, 0, tableHeader+recordLen*len(commits)+24*len(e.parents)), tableMagic...)
	for _, v := range []int{tableVersion, len(commits), len(e.parents), len(e.ids)} {
		out = binary.BigEndian.AppendUint32(out, uint32(v))
	}
	for i := range commits {
		c := &commits[i]
		pos, ok := idx.Lookup(c.ID)
		if !ok {
			return nil, fmt.Errorf("commit %s is not in the pack whose table is made", c.ID)
		}
		out = binary.BigEndian.AppendUint32(out, uint32(pos))
		out = append(out, c.Tree[:]...)
		out = binary.BigEndian.AppendUint64(out, uint64(c.Time))
		out = binary.BigEndian.AppendUint32(out, c.Generation)
		out = binary.BigEndian.AppendUint32(out, e.first[i])
	}
	for _, p := range e.parents {
		out = binary.BigEndian.AppendUint32(out, p)
	}
	for _, id := range e.ids {
		out = append(out, id[:]...)
	}
	return binary.BigEndian.AppendUint32(out, crc32.Checksum(out, castagnoli)), nil
}

type encoder struct {
	commits []Commit
	outside func(object.ID) (uint32, bool)
	number  map[object.ID]uint32
	first   []uint32
	parents []uint32
	ids     []object.ID // outside commits
	gens    []uint32    // theirs
}

// link numbers all parents.
func (e *encoder) link() error {
	n := uint32(len(e.commits))
	e.first = make([]uint32, n)
	for i := range e.commits {
		e.first[i] = uint32(len(e.parents))
		for _, p := range e.commits[i].Parents {
			number, ok := e.number[p]
			if !ok {
				number = n + uint32(len(e.ids))
				gen := uint32(0)
				if e.outside != nil {
					if gen, ok = e.outside(p); !ok {
						return &MissingParentError{Commit: e.commits[i].ID, Parent: p}
					}
				}
				e.number[p] = number
				e.ids, e.gens = append(e.ids, p), append(e.gens, gen)
			}
			e.parents = append(e.parents, number)
		}
	}
	return nil
}

// generations computes the generation of every commit, without recursion.
func (e *encoder) generations() {
	n := uint32(len(e.commits))
	for i := range e.commits {
		e.commits[i].Generation = 0
	}
	of := func(p uint32) uint32 {
		if p >= n {
			return e.gens[p-n]
		}
		return e.commits[p].Generation
	}
	var stack []uint32
	for i := range n {
		for stack = append(stack[:0], i); len(stack) > 0; {
			at := stack[len(stack)-1]
			hi := uint32(len(e.parents))
			if at+1 < n {
				hi = e.first[at+1]
			}
			gen, ready := uint32(0), true
			for _, p := range e.parents[e.first[at]:hi] {
				g := of(p)
				if g == 0 && p < n {
					stack, ready = append(stack, p), false
				}
				gen = max(gen, g)
			}
			if ready {
				e.commits[at].Generation = gen + 1
				stack = stack[:len(stack)-1]
			}
		}
	}
}

// Scan reads all commits of a pack. It looks at every object: it is for small
// packs, and for packs whose stored table was lost.
func Scan(ctx context.Context, p *odb.Pack) ([]Commit, error) {
	var commits []Commit
	idx := p.Index()
	for pos := range idx.Count() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t, err := p.Type(pos)
		if err != nil {
			return nil, err
		}
		if t != object.Commit {
			continue
		}
		_, data, err := p.Get(pos)
		if err != nil {
			return nil, err
		}
		c := Commit{ID: idx.ID(pos)}
		if c.Tree, c.Parents, c.Time, err = object.CommitLinks(data, nil); err != nil {
			return nil, fmt.Errorf("commit %s: %w", c.ID, err)
		}
		commits = append(commits, c)
	}
	return commits, nil
}

// Know tells the commits of a pack, all of them, where its maker has them at hand,
// so that they need not be read from it.
func Know(p *odb.Pack, commits []Commit) {
	// What fails here fails again, and is told, when the table is asked for.
	_, _ = p.Memo(func() (any, error) {
		data, err := Encode(p.Index(), commits, nil)
		if err != nil {
			return nil, err
		}
		return Parse(data)
	})
}

// tableOf returns the commit table of a pack, stored or computed. A garbage
// pack's commits are not part of history.
func tableOf(ctx context.Context, p *odb.Pack) (*Table, error) {
	if p.Info().Class == meta.PackGarbage {
		return new(Table), nil
	}
	v, err := p.Memo(func() (any, error) {
		data, err := p.GraphData(ctx)
		if err != nil {
			return nil, err
		}
		if data == nil {
			commits, err := Scan(ctx, p)
			if err != nil {
				return nil, err
			}
			if data, err = Encode(p.Index(), commits, nil); err != nil {
				return nil, err
			}
		}
		t, err := Parse(data)
		if err != nil {
			return nil, p.Corrupt(err)
		}
		if t.bitmaps != nil && t.bitmaps.n != p.Index().Count() {
			return nil, p.Corrupt(fmt.Errorf("%w: its bitmaps are of another pack", ErrFormat))
		}
		for i := range t.n {
			if int(t.pos(i)) >= p.Index().Count() {
				return nil, p.Corrupt(fmt.Errorf("%w: record %d lies outside the pack", ErrFormat, i))
			}
		}
		return t, nil
	})
	if err != nil {
		return nil, fmt.Errorf("commit table of pack %d: %w", p.Info().ID, err)
	}
	return v.(*Table), nil
}
