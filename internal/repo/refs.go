package repo

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
)

// refTable is the refs of one version, sorted by name: a base that many
// versions share, and a few changes laid over it. It is immutable.
type refTable struct {
	base *refBase
	over []*override // sorted by name
	n    int
	// annotated counts the tags that have a peeled value.
	annotated int
}

// refBase is a sorted list of refs with an index by value, in little memory: a
// repository may have hundreds of thousands.
type refBase struct {
	names   nameList
	ids     []object.ID
	created []creation
	peeled  map[int32]object.ID // by place

	once sync.Once
	byID []int32 // places, sorted by value; that of a peeled value is ^place
}

// creation says when a ref was created.
type creation struct {
	at      int64 // Unix microseconds; 0 when it is not known
	version int64
}

// override is a ref that differs from the base, or is gone.
type override struct {
	ref  meta.Ref
	gone bool
}

// maxOver is how many changes are laid over a base before a new base is made, or
// one for so many refs of a large base.
const (
	maxOver     = 1024
	refsPerOver = 64
)

func newRefTable(refs []meta.Ref) *refTable {
	if !slices.IsSortedFunc(refs, func(a, b meta.Ref) int { return cmp.Compare(a.Name, b.Name) }) {
		slices.SortFunc(refs, func(a, b meta.Ref) int { return cmp.Compare(a.Name, b.Name) })
	}
	b := newRefBase(len(refs))
	for i := range refs {
		b.add(&refs[i])
	}
	return b.table()
}

func newRefBase(expected int) *refBase {
	return &refBase{
		ids: make([]object.ID, 0, expected), created: make([]creation, 0, expected), peeled: make(map[int32]object.ID),
	}
}

// add appends a ref, whose name sorts after all others.
func (b *refBase) add(r *meta.Ref) {
	c := creation{version: r.CreatedVersion}
	if !r.CreatedAt.IsZero() {
		c.at = r.CreatedAt.UnixMicro()
	}
	if !r.Peeled.IsZero() {
		b.peeled[int32(len(b.ids))] = r.Peeled
	}
	b.names.add(r.Name)
	b.ids, b.created = append(b.ids, r.ID), append(b.created, c)
}

// table returns the table of a base that is complete.
func (b *refBase) table() *refTable {
	b.names.clip()
	return &refTable{base: b, n: len(b.ids), annotated: len(b.peeled)}
}

// ref returns the ref at a place.
func (b *refBase) ref(i int, name string) meta.Ref {
	r := meta.Ref{Name: name, ID: b.ids[i], CreatedVersion: b.created[i].version}
	if at := b.created[i].at; at != 0 {
		r.CreatedAt = time.UnixMicro(at).UTC()
	}
	if len(b.peeled) > 0 {
		r.Peeled = b.peeled[int32(i)]
	}
	return r
}

// len returns the number of refs.
func (t *refTable) len() int { return t.n }

// bytes estimates the memory of the table. A base that others share counts for
// each.
func (t *refTable) bytes() int64 {
	b := t.base
	return b.names.bytes() + int64(cap(b.ids))*(object.Size+16+4) + int64(len(b.peeled))*64 + int64(len(t.over))*250
}

func (t *refTable) findOver(name string) (int, bool) {
	return sort.Find(len(t.over), func(i int) int { return strings.Compare(name, t.over[i].ref.Name) })
}

// get returns the ref with a full stored name.
func (t *refTable) get(name string) (meta.Ref, bool) {
	if i, ok := t.findOver(name); ok {
		return t.over[i].ref, !t.over[i].gone
	}
	if i, ok := t.base.names.find(name); ok {
		return t.base.ref(i, name), true
	}
	return meta.Ref{}, false
}

// each calls yield for the refs whose names begin with prefix and do not sort
// before from, in order, until it returns false.
func (t *refTable) each(prefix, from string, yield func(meta.Ref) bool) {
	from = max(from, prefix)
	i, _ := t.base.names.find(from)
	j := sort.Search(len(t.over), func(j int) bool { return t.over[j].ref.Name >= from })
	names := nameCursor{list: &t.base.names}
	for {
		var base string
		hasBase := i < t.base.names.n
		if hasBase {
			base = names.at(i)
			hasBase = strings.HasPrefix(base, prefix)
		}
		hasOver := j < len(t.over) && strings.HasPrefix(t.over[j].ref.Name, prefix)
		if !hasBase && !hasOver {
			return
		}
		if hasOver && (!hasBase || t.over[j].ref.Name <= base) {
			o := t.over[j]
			if hasBase && o.ref.Name == base {
				i++
			}
			j++
			if !o.gone && !yield(o.ref) {
				return
			}
			continue
		}
		if !yield(t.base.ref(i, base)) {
			return
		}
		i++
	}
}

// isTip reports whether some ref has the value id, or a tag's peeled value is id.
func (t *refTable) isTip(id object.ID) bool {
	for i := range t.over {
		if o := t.over[i]; !o.gone && (o.ref.ID == id || o.ref.Peeled == id) {
			return true
		}
	}
	b := t.base
	b.once.Do(b.index)
	names := nameCursor{list: &b.names}
	i := sort.Search(len(b.byID), func(i int) bool { return b.value(b.byID[i]).Compare(id) >= 0 })
	for ; i < len(b.byID) && b.value(b.byID[i]) == id; i++ {
		ref := b.byID[i]
		if ref < 0 {
			ref = ^ref
		}
		if _, changed := t.findOver(names.at(int(ref))); !changed {
			return true
		}
	}
	return false
}

// index sorts the values.
func (b *refBase) index() {
	b.byID = make([]int32, 0, len(b.ids)+len(b.peeled))
	for i := range b.ids {
		b.byID = append(b.byID, int32(i))
	}
	for i := range b.peeled {
		b.byID = append(b.byID, ^i)
	}
	slices.SortFunc(b.byID, func(x, y int32) int { return b.value(x).Compare(b.value(y)) })
}

func (b *refBase) value(i int32) object.ID {
	if i < 0 {
		return b.peeled[^i]
	}
	return b.ids[i]
}

// apply returns the table after the entries of the ref log.
func (t *refTable) apply(entries []meta.RefLogEntry) *refTable {
	if len(entries) == 0 {
		return t
	}
	out := &refTable{base: t.base, over: slices.Clone(t.over), n: t.n, annotated: t.annotated}
	for i := range entries {
		out.set(&entries[i])
	}
	if len(out.over) > max(maxOver, len(t.base.ids)/refsPerOver) {
		b := newRefBase(out.n)
		out.each("", "", func(r meta.Ref) bool {
			b.add(&r)
			return true
		})
		return b.table()
	}
	return out
}

// set applies one entry to a table that nobody else has yet.
func (t *refTable) set(e *meta.RefLogEntry) {
	old, existed := t.get(e.Name)
	o := &override{ref: meta.Ref{Name: e.Name, ID: e.New, Peeled: e.Peeled, CreatedAt: e.At, CreatedVersion: e.Version}, gone: e.New.IsZero()}
	if existed {
		o.ref.CreatedAt, o.ref.CreatedVersion = old.CreatedAt, old.CreatedVersion
		t.n--
		if !old.Peeled.IsZero() {
			t.annotated--
		}
	}
	if !o.gone {
		t.n++
		if !o.ref.Peeled.IsZero() {
			t.annotated++
		}
	}
	i, found := t.findOver(e.Name)
	if found {
		t.over[i] = o
		return
	}
	t.over = slices.Insert(t.over, i, o)
}
