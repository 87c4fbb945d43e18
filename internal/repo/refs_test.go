package repo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/wire"
	"github.com/cairnstate/cairn/internal/meta"
	"github.com/cairnstate/cairn/internal/repo/repotest"
)

// TestRefTable moves refs at random and compares the table with a map.
func TestRefTable(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	id := func(n int) object.ID { return object.ID{byte(n >> 8), byte(n), 1} }
	model := map[string]meta.Ref{}
	var start []meta.Ref
	for i := range 3000 {
		ref := meta.Ref{Name: fmt.Sprintf("refs/heads/b%05d", r.IntN(100000)), ID: id(i), CreatedVersion: 1}
		if _, ok := model[ref.Name]; !ok {
			model[ref.Name] = ref
			start = append(start, ref)
		}
	}
	table := newRefTable(start)
	for version := int64(2); version < 600; version++ {
		var entries []meta.RefLogEntry
		for range 1 + r.IntN(8) {
			e := meta.RefLogEntry{Version: version, Name: fmt.Sprintf("refs/heads/b%05d", r.IntN(2000)), New: id(r.IntN(4000)), At: time.Unix(version, 0).UTC()}
			if r.IntN(3) == 0 {
				e.Name = fmt.Sprintf("refs/tags/t%d", r.IntN(50))
				e.Peeled = id(r.IntN(4000))
			}
			old, existed := model[e.Name]
			switch {
			case r.IntN(4) == 0:
				e.New, e.Peeled = object.Zero, object.Zero
				delete(model, e.Name)
			case existed:
				old.ID, old.Peeled = e.New, e.Peeled
				model[e.Name] = old
			default:
				model[e.Name] = meta.Ref{Name: e.Name, ID: e.New, Peeled: e.Peeled, CreatedAt: e.At, CreatedVersion: version}
			}
			entries = append(entries, e)
		}
		before, n := table, table.len()
		table = table.apply(entries)
		if before.len() != n {
			t.Fatal("apply changed the earlier table")
		}
		if version%40 == 0 {
			compareRefs(t, table, model, r)
		}
	}
	if table.base == newRefTable(start).base || len(table.over) > maxOver {
		t.Errorf("%d changes lie over the base", len(table.over))
	}
}

// TestNameList compares names, alike and not, with a sorted slice of them.
func TestNameList(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	for range 200 {
		seen := map[string]bool{}
		for range r.IntN(100) {
			name := strings.Repeat("refs/heads/", r.IntN(30)) + fmt.Sprint(r.IntN(300)) + strings.Repeat("\xff\x00"[:r.IntN(3)], r.IntN(3))
			seen[name] = true
		}
		names := slices.Sorted(maps.Keys(seen))
		var list nameList
		for _, name := range names {
			list.add(name)
		}
		list.clip()
		c := nameCursor{list: &list}
		for range 2 * len(names) {
			i := r.IntN(len(names))
			if got := c.at(i); got != names[i] {
				t.Fatalf("name %d is %q, want %q", i, got, names[i])
			}
		}
		for _, name := range append([]string{"", "refs", "zzz", "1", "refs/heads/1", strings.Repeat("refs/heads/", 12)}, names...) {
			want, found := slices.BinarySearch(names, name)
			if at, ok := list.find(name); at != want || ok != found {
				t.Fatalf("%q is found at %d, %v; want %d, %v of %q", name, at, ok, want, found, names)
			}
		}
	}
}

// TestLargeView: a view that is larger than the cache for views is kept beside it,
// and neither drives out the other.
func TestLargeView(t *testing.T) {
	s := repotest.NewStore(t, 64<<10)
	small, large := s.Create(), s.Create()
	var refs []meta.RefWrite
	for i := range 2000 {
		refs = append(refs, meta.RefWrite{Name: fmt.Sprintf("refs/heads/b%d", i), New: object.ID{byte(i >> 8), byte(i), 1}})
	}
	s.Apply(meta.Change{Org: s.Org, Repo: large, Refs: refs})
	e := New(Config{Meta: s.Meta, ODB: s.ODB, CacheBytes: 64 << 10})
	view := func(id meta.RepoID) *View {
		t.Helper()
		v, err := e.View(t.Context(), s.Row(id))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	a, b := view(large), view(small)
	if a.bytes() <= 64<<10 {
		t.Fatalf("the view takes %d bytes, which is not large", a.bytes())
	}
	if view(large) != a || view(small) != b || view(large) != a {
		t.Error("a view was loaded again")
	}
	// One that has become small moves to the others, and back.
	for _, v := range []*View{{repo: a.repo, refs: newRefTable(nil)}, a} {
		e.views.put(v)
		if got, ok := e.views.get(large); !ok || got != v || (e.views.large.Bytes() > 0) != (v == a) {
			t.Errorf("a view of %d refs: kept %v, %d bytes of large ones", v.RefCount(), got == v, e.views.large.Bytes())
		}
	}
}

func compareRefs(t *testing.T, table *refTable, model map[string]meta.Ref, r *rand.Rand) {
	t.Helper()
	want := slices.SortedFunc(maps.Values(model), func(a, b meta.Ref) int { return cmp.Compare(a.Name, b.Name) })
	values, annotated := map[object.ID]bool{}, 0
	for _, ref := range want {
		values[ref.ID] = true
		if !ref.Peeled.IsZero() {
			values[ref.Peeled] = true
			annotated++
		}
	}
	if table.len() != len(want) || table.annotated != annotated {
		t.Fatalf("table has %d refs, %d annotated; want %d, %d", table.len(), table.annotated, len(want), annotated)
	}
	for _, prefix := range []string{"", "refs/heads/", "refs/tags/t1", "refs/x"} {
		from := fmt.Sprintf("refs/heads/b%05d", r.IntN(2000))
		var got []meta.Ref
		table.each(prefix, from, func(ref meta.Ref) bool {
			got = append(got, ref)
			return true
		})
		expect := slices.DeleteFunc(slices.Clone(want), func(ref meta.Ref) bool { return !strings.HasPrefix(ref.Name, prefix) || ref.Name < from })
		if !slices.Equal(got, expect) {
			t.Fatalf("%d refs with prefix %q from %q, want %d", len(got), prefix, from, len(expect))
		}
	}
	for n := range 4000 {
		id := object.ID{byte(n >> 8), byte(n), 1}
		if table.isTip(id) != values[id] {
			t.Fatalf("%s is a tip: %v", id, !values[id])
		}
	}
}

// TestViewFollowsLog compares views that follow the ref log with views that are
// loaded anew.
func TestViewFollowsLog(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 71, 30)
	s := repotest.NewStore(t, 64<<10)
	id := s.Create()
	s.Import(origin, id, 10, 1, false)
	e := New(Config{Meta: s.Meta, ODB: s.ODB})
	ids := origin.IDs("rev-list", "--all")
	r := rand.New(rand.NewPCG(71, 1))
	for step := range 60 {
		name := fmt.Sprintf("refs/heads/r%d", r.IntN(8))
		w := meta.RefWrite{Name: name, AnyOld: true, New: ids[r.IntN(len(ids))]}
		if r.IntN(5) == 0 {
			w.New = object.Zero
		}
		s.Apply(meta.Change{Org: s.Org, Repo: id, Refs: []meta.RefWrite{w}})
		if r.IntN(3) == 0 {
			continue
		}
		row := s.Row(id)
		v, err := e.View(ctx, row)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := New(Config{Meta: s.Meta, ODB: s.ODB}).View(ctx, row)
		if err != nil {
			t.Fatal(err)
		}
		if v.Repo() != fresh.Repo() {
			t.Fatalf("step %d: view of %+v, want %+v", step, v.Repo(), fresh.Repo())
		}
		a, b := allRefs(t, v), allRefs(t, fresh)
		if !slices.Equal(a, b) {
			t.Fatalf("step %d: refs are %v, want %v", step, a, b)
		}
		for range 5 {
			want := ids[r.IntN(len(ids))]
			x, err1 := v.Reachable(ctx, want)
			y, err2 := fresh.Reachable(ctx, want)
			if x != y || err1 != nil || err2 != nil {
				t.Fatalf("step %d: first unreachable is %s, %v; anew %s, %v", step, x, err1, y, err2)
			}
		}
		if again, err := e.View(ctx, row); err != nil || again != v {
			t.Fatal("the same version was loaded twice")
		}
	}
}

func allRefs(t *testing.T, v *View) []meta.Ref {
	t.Helper()
	var out []meta.Ref
	if err := v.Refs(context.Background(), "", func(r meta.Ref) error {
		out = append(out, r)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestNamespaces lists a repository through both remotes.
func TestNamespaces(t *testing.T) {
	ctx := context.Background()
	origin := repotest.History(t, 72, 20)
	s := repotest.NewStore(t, 64<<10)
	id := s.Create()
	e := New(Config{Meta: s.Meta, ODB: s.ODB})
	list := func(ns Namespace, prefixes ...string) string {
		t.Helper()
		v, err := e.View(ctx, s.Row(id))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		err = v.Uploader(ns).Refs(ctx, prefixes, func(r wire.Ref) error {
			if r.Symref != "" {
				r.Name += "->" + r.Symref
			}
			if r.ID.IsZero() {
				r.Name += " unborn"
			}
			if !r.Peeled.IsZero() {
				r.Name += "^{}"
			}
			names = append(names, r.Name)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(names, " ")
	}
	expect := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("listed %q, want %q", got, want)
		}
	}
	expect(list(Normal), "HEAD->refs/heads/main unborn")
	expect(list(EphemeralNS), "")
	main := origin.ID("main")
	s.Load(origin, id, repotest.Pack{Tips: []object.ID{origin.ID("refs/tags/annotated")}},
		repotest.SetRef(origin, "refs/heads/main", main),
		repotest.SetRef(origin, "refs/tags/annotated", origin.ID("refs/tags/annotated")),
		repotest.SetRef(origin, "refs/namespaces0", main),
		repotest.SetRef(origin, "refs/notes/commits", main),
		repotest.SetRef(origin, "refs/heads/a", main),
		repotest.SetRef(origin, "refs/namespaces/ephemeral/refs/heads/s1", main),
		repotest.SetRef(origin, "refs/namespaces/ephemeral/refs/tags/t", main),
	)
	expect(list(Normal), "HEAD->refs/heads/main refs/heads/a refs/heads/main refs/namespaces0 refs/notes/commits refs/tags/annotated^{}")
	expect(list(Normal, "refs/heads/m", "refs/tags/", "refs/heads/main"), "refs/heads/main refs/tags/annotated^{}")
	expect(list(Normal, "HEAD"), "HEAD->refs/heads/main")
	expect(list(Normal, "refs/namespaces/"), "")
	expect(list(EphemeralNS), "refs/heads/s1 refs/tags/t")
	s.Apply(meta.Change{Org: s.Org, Repo: id, Refs: []meta.RefWrite{{Name: "refs/namespaces/ephemeral/refs/heads/main", New: main}}})
	expect(list(EphemeralNS, "HEAD", "refs/heads/s"), "HEAD->refs/heads/main refs/heads/s1")
	for client, ok := range map[string]bool{"refs/heads/x": true, "refs/namespaces/ephemeral/refs/heads/x": false} {
		for _, ns := range []Namespace{Normal, EphemeralNS} {
			stored, allowed := ns.Stored(client)
			if allowed != ok {
				t.Errorf("%q may be written: %v", client, allowed)
			}
			if back, visible := ns.Client(stored); ok && (back != client || !visible) {
				t.Errorf("%q is seen as %q, %v", stored, back, visible)
			}
		}
	}
}

// BenchmarkManyRefs lists one of 100,000 refs, and moves one.
func BenchmarkManyRefs(b *testing.B) {
	refs := make([]meta.Ref, 100000)
	for i := range refs {
		refs[i] = meta.Ref{Name: fmt.Sprintf("refs/namespaces/ephemeral/refs/heads/session-%06d", i), ID: object.ID{byte(i >> 16), byte(i >> 8), byte(i)}}
	}
	v := &View{refs: newRefTable(refs), repo: meta.Repo{DefaultBranch: "main"}}
	b.Run("listing of one", func(b *testing.B) {
		for b.Loop() {
			n := 0
			err := v.Uploader(EphemeralNS).Refs(context.Background(), []string{"refs/heads/session-054321"}, func(wire.Ref) error { n++; return nil })
			if err != nil || n != 1 {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("move", func(b *testing.B) {
		table := v.refs
		for i := 0; b.Loop(); i++ {
			table = table.apply([]meta.RefLogEntry{{Version: int64(i), Name: refs[i*7919%len(refs)].Name, New: object.ID{1, 2, byte(i)}}})
		}
	})
}
