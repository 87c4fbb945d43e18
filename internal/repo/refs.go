package repo

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"sync"

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

// refBase is a sorted list of refs with an index by value.
type refBase struct {
	refs []meta.Ref

	once sync.Once
	byID []int32 // places in refs, sorted by value
}

// override is a ref that differs from the base, or is gone.
type override struct {
	ref  meta.Ref
	gone bool
}

// maxOver is how many changes are laid over a base before a new base is made.
const maxOver = 1024

func newRefTable(refs []meta.Ref) *refTable {
	if !slices.IsSortedFunc(refs, func(a, b meta.Ref) int { return cmp.Compare(a.Name, b.Name) }) {
		slices.SortFunc(refs, func(a, b meta.Ref) int { return cmp.Compare(a.Name, b.Name) })
	}
	t := &refTable{base: &refBase{refs: refs}, n: len(refs)}
	for i := range refs {
		if !refs[i].Peeled.IsZero() {
			t.annotated++
		}
	}
	return t
}

// len returns the number of refs.
func (t *refTable) len() int { return t.n }

// bytes estimates the memory of the table.
func (t *refTable) bytes() int64 { return int64(len(t.base.refs)+len(t.over)) * 200 }

func (b *refBase) find(name string) (int, bool) {
	return sort.Find(len(b.refs), func(i int) int { return strings.Compare(name, b.refs[i].Name) })
}

func (t *refTable) findOver(name string) (int, bool) {
	return sort.Find(len(t.over), func(i int) int { return strings.Compare(name, t.over[i].ref.Name) })
}

// get returns the ref with a full stored name.
func (t *refTable) get(name string) (meta.Ref, bool) {
	if i, ok := t.findOver(name); ok {
		return t.over[i].ref, !t.over[i].gone
	}
	if i, ok := t.base.find(name); ok {
		return t.base.refs[i], true
	}
	return meta.Ref{}, false
}

// each calls yield for the refs whose names begin with prefix and do not sort
// before from, in order, until it returns false.
func (t *refTable) each(prefix, from string, yield func(meta.Ref) bool) {
	begins := func(name string) bool { return name >= prefix && name >= from }
	i := sort.Search(len(t.base.refs), func(i int) bool { return begins(t.base.refs[i].Name) })
	j := sort.Search(len(t.over), func(j int) bool { return begins(t.over[j].ref.Name) })
	for {
		hasBase := i < len(t.base.refs) && strings.HasPrefix(t.base.refs[i].Name, prefix)
		hasOver := j < len(t.over) && strings.HasPrefix(t.over[j].ref.Name, prefix)
		if !hasBase && !hasOver {
			return
		}
		if hasOver && (!hasBase || t.over[j].ref.Name <= t.base.refs[i].Name) {
			o := t.over[j]
			if hasBase && o.ref.Name == t.base.refs[i].Name {
				i++
			}
			j++
			if !o.gone && !yield(o.ref) {
				return
			}
			continue
		}
		if !yield(t.base.refs[i]) {
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
	i := sort.Search(len(b.byID), func(i int) bool { return b.value(b.byID[i]).Compare(id) >= 0 })
	for ; i < len(b.byID) && b.value(b.byID[i]) == id; i++ {
		ref := b.byID[i]
		if ref < 0 {
			ref = ^ref
		}
		if _, changed := t.findOver(b.refs[ref].Name); !changed {
			return true
		}
	}
	return false
}

// index sorts the values; the peeled value of ref i stands as ^i.
func (b *refBase) index() {
	b.byID = make([]int32, 0, len(b.refs))
	for i := range b.refs {
		b.byID = append(b.byID, int32(i))
		if !b.refs[i].Peeled.IsZero() {
			b.byID = append(b.byID, ^int32(i))
		}
	}
	slices.SortFunc(b.byID, func(x, y int32) int { return b.value(x).Compare(b.value(y)) })
}

func (b *refBase) value(i int32) object.ID {
	if i < 0 {
		return b.refs[^i].Peeled
	}
	return b.refs[i].ID
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
	if len(out.over) > maxOver {
		refs := make([]meta.Ref, 0, out.n)
		out.each("", "", func(r meta.Ref) bool {
			refs = append(refs, r)
			return true
		})
		return newRefTable(refs)
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
