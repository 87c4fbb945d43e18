package tree

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstate/cairn/internal/testkit"
)

var update = flag.Bool("update", false, "write the fixtures anew")

func digestOf(s string) Digest { return Sum([]byte(s)) }

// samples has every field of every type of entry.
func samples() []Entry {
	red := []Redaction{{Name: "API_KEY", Length: 6, Offsets: []uint64{0, 3, 100}}, {Name: "OTHER", Length: 8, Offsets: []uint64{40}}}
	chunked := Content{Size: 9 << 20, Digest: digestOf("recipe"), Chunked: true, Sum: digestOf("whole")}
	one := Content{Size: 200, Digest: digestOf("one"), Sum: digestOf("one")}
	return []Entry{
		{Name: "\x01\xff\n\\", Type: File, Mode: 0o644, Mtime: Time{-5, 999_999_999}},
		{Name: "dir", Type: Directory, Mode: 0o755, Dir: digestOf("dir"), Summary: Summary{3, 2, 1}, Xattrs: []Xattr{{Name: "user.a", Value: "x\x00y"}}},
		{Name: "file", Type: File, Mode: 0o4755, UID: 1000, GID: 4294967295, Mtime: Time{1, 2}, Content: one, Redactions: red, Mixed: true},
		{Name: "large", Type: File, Content: chunked, Holes: []Range{{0, 4096}, {8192, 5 << 20}}},
		{Name: "link", Type: Symlink, Mode: 0o777, Target: "to/\x00\x00\x00\x00\x00\x00", Redactions: []Redaction{{Name: "T", Length: 6, Offsets: []uint64{3}}}},
		{Name: "many", Type: Directory, Paged: true, Dir: digestOf("index"), Summary: Summary{100_000, 1, 1 << 62}},
		{Name: "x", Type: File, Xattrs: []Xattr{{Name: "user.a", Value: "\x00\x00\x00\x00\x00\x00b", Redactions: []Redaction{{Name: "S", Length: 6, Offsets: []uint64{0}}}}, {Name: "user.b"}}},
	}
}

// build makes the objects of a directory.
func build(t testing.TB, m *Memory, entries []Entry) Entry {
	t.Helper()
	b := &Builder{Emit: func(o Object) error { return m.Put(t.Context(), o) }}
	for i := range entries {
		if err := b.Add(&entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	d, paged, s, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return Entry{Name: "r", Type: Directory, Mode: 0o755, Dir: d, Paged: paged, Summary: s}
}

// TestFixtures holds the encodings: stored objects must stay readable, and equal
// values must keep their digests.
func TestFixtures(t *testing.T) {
	m := &Memory{}
	dir := build(t, m, samples())
	dirBytes, err := FetchOne(t.Context(), m, dir.Dir)
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := EncodeRecipe([]Part{{1 << 20, digestOf("a")}, {300, digestOf("b")}})
	if err != nil {
		t.Fatal(err)
	}
	index, err := EncodeIndex([]Page{{"a", digestOf("a"), Summary{600, 1, 2}}, {"k", digestOf("k"), Summary{500, 500, 1 << 40}}})
	if err != nil {
		t.Fatal(err)
	}
	links, err := EncodeLinks([][]string{{"r/a", "r/b/c"}, {"r/d", "s/d"}})
	if err != nil {
		t.Fatal(err)
	}
	root, err := EncodeRoot(&Tree{Roots: []Entry{dir}, Policy: []byte("policy"), Links: Content{Size: uint64(len(links)), Digest: Sum(links), Sum: Sum(links)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"dir": dirBytes, "recipe": recipe, "index": index, "links": links, "root": root} {
		file := filepath.Join("testdata", "v1", name+".hex")
		if *update {
			if err := os.WriteFile(file, []byte(hex.EncodeToString(b)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(b); got != strings.TrimSpace(string(want)) {
			t.Errorf("%s is encoded as\n%s\nwant\n%s", name, got, want)
		}
		if again, err := reencode(t, b); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s does not survive decoding: %v", name, err)
		}
		for i := range b {
			if _, err := reencode(t, b[:i]); !errors.Is(err, ErrInvalid) {
				t.Errorf("the first %d bytes of %s decode: %v", i, name, err)
			}
		}
		if _, err := reencode(t, append(bytes.Clone(b), 0)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s with a byte more decodes: %v", name, err)
		}
		for _, flags := range []byte{0x80, 1} {
			other := bytes.Clone(b)
			other[4] = flags
			if _, err := reencode(t, other); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s with flags %#x decodes: %v", name, flags, err)
			}
		}
	}
}

// reencode decodes b by its magic and encodes what it found.
func reencode(t testing.TB, b []byte) ([]byte, error) {
	if len(b) < 4 {
		_, err := DecodeDir(b)
		return nil, err
	}
	switch string(b[:4]) {
	case magicRecipe:
		parts, err := DecodeRecipe(b)
		if err != nil {
			return nil, err
		}
		return EncodeRecipe(parts)
	case magicIndex:
		pages, err := DecodeIndex(b)
		if err != nil {
			return nil, err
		}
		return EncodeIndex(pages)
	case magicLinks:
		groups, err := DecodeLinks(b)
		if err != nil {
			return nil, err
		}
		return EncodeLinks(groups)
	case magicRoot:
		tr, err := DecodeRoot(b)
		if err != nil {
			return nil, err
		}
		return EncodeRoot(tr)
	}
	entries, err := DecodeDir(b)
	if err != nil {
		return nil, err
	}
	bd := &Builder{Emit: func(Object) error { return nil }}
	for i := range entries {
		if err := entries[i].Check(); err != nil {
			t.Errorf("a decoded entry does not pass: %v", err)
		}
		b := AppendEntry(nil, &entries[i])
		bd.page = append(bd.page, b...)
	}
	var out []byte
	bd.Emit = func(o Object) error { out = o.Bytes; return nil }
	_, err = bd.emitDir(bd.page, len(entries))
	return out, err
}

// FuzzDecode holds that whatever decodes has one encoding, and that nothing else
// than ErrInvalid comes of bad bytes.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/v1/*.hex")
	if err != nil || len(files) < 5 {
		f.Fatalf("%d fixtures: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		b, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("CDR1\x00\xff\xff\xff\xff\x0f"))
	f.Add([]byte("CDR1\x00\x80\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		again, err := reencode(t, b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("another error: %v", err)
			}
			return
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x decodes and is encoded as %x", b, again)
		}
	})
}

func TestHostileEntriesAreRefused(t *testing.T) {
	good := func() Entry {
		return Entry{Name: "f", Type: File, Content: Content{Size: 10, Digest: digestOf("x"), Sum: digestOf("x")}}
	}
	link := func(target string, rs ...Redaction) Entry {
		return Entry{Name: "l", Type: Symlink, Target: target, Redactions: rs}
	}
	with := func(change func(*Entry)) Entry { e := good(); change(&e); return e }
	bad := map[string]Entry{
		"no name":                   with(func(e *Entry) { e.Name = "" }),
		"dot":                       with(func(e *Entry) { e.Name = "." }),
		"dot dot":                   with(func(e *Entry) { e.Name = ".." }),
		"slash":                     with(func(e *Entry) { e.Name = "a/b" }),
		"NUL":                       with(func(e *Entry) { e.Name = "a\x00" }),
		"long name":                 with(func(e *Entry) { e.Name = strings.Repeat("n", 256) }),
		"type":                      with(func(e *Entry) { e.Type = 4 }),
		"mode":                      with(func(e *Entry) { e.Mode = 0o10000 }),
		"nanoseconds":               with(func(e *Entry) { e.Mtime.Nsec = 1e9 }),
		"file with a target":        with(func(e *Entry) { e.Target = "x" }),
		"empty file with an object": with(func(e *Entry) { e.Content.Size = 0 }),
		"chunk too large":           with(func(e *Entry) { e.Content.Size = MaxChunk + 1 }),
		"sum of one chunk":          with(func(e *Entry) { e.Content.Sum = digestOf("y") }),
		"hole past the end":         with(func(e *Entry) { e.Holes = []Range{{5, 6}} }),
		"hole that wraps":           with(func(e *Entry) { e.Holes = []Range{{5, 1<<64 - 2}} }),
		"holes that touch":          with(func(e *Entry) { e.Holes = []Range{{0, 2}, {2, 2}} }),
		"redaction past the end":    with(func(e *Entry) { e.Redactions = []Redaction{{"s", 6, []uint64{5}}} }),
		"redaction without ranges":  with(func(e *Entry) { e.Redactions = []Redaction{{"s", 6, nil}} }),
		"redactions out of order":   with(func(e *Entry) { e.Redactions = []Redaction{{"t", 6, []uint64{1}}, {"s", 6, []uint64{1}}} }),
		"system attribute":          with(func(e *Entry) { e.Xattrs = []Xattr{{Name: "security.capability"}} }),
		"attributes out of order":   with(func(e *Entry) { e.Xattrs = []Xattr{{Name: "user.b"}, {Name: "user.a"}} }),
		"attributes too large": with(func(e *Entry) {
			for i := range 5 {
				e.Xattrs = append(e.Xattrs, Xattr{Name: fmt.Sprintf("user.%d", i), Value: strings.Repeat("v", 60<<10)})
			}
		}),
		"empty target":              link(""),
		"target with NUL":           link("a\x00b"),
		"target with NUL elsewhere": link("\x00\x00a", Redaction{"s", 1, []uint64{0}}),
		"long target":               link(strings.Repeat("t", 4096)),
		"directory with contents":   {Name: "d", Type: Directory, Content: Content{Size: 1}},
	}
	for name, e := range bad {
		if err := e.Check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if got, _, err := DecodeEntry(AppendEntry(nil, &e)); err == nil && reflect.DeepEqual(got, e) {
			t.Errorf("%s: decodes", name)
		}
	}
	e := good()
	if err := e.Check(); err != nil {
		t.Errorf("the good entry: %v", err)
	}
}

func numbered(n int) []Entry {
	entries := make([]Entry, n)
	for i := range entries {
		name := fmt.Sprintf("file-%06d.txt", i)
		entries[i] = Entry{Name: name, Type: File, Mode: 0o644, Mtime: Time{int64(i), 1}, Content: Content{Size: 5, Digest: digestOf(name), Sum: digestOf(name)}}
	}
	return entries
}

func digests(m *Memory) map[Digest]bool {
	all := map[Digest]bool{}
	m.Each(func(d Digest, _ []byte) { all[d] = true })
	return all
}

func TestOneChangeInALargeDirectoryIsOnePageAndTheIndex(t *testing.T) {
	m := &Memory{}
	entries := numbered(100_000)
	dir := build(t, m, entries)
	had := digests(m)
	if len(had) < 100 || len(had) > 400 {
		t.Errorf("100,000 entries made %d objects", len(had))
	}
	entries[54_321].Mtime.Sec++
	changed := build(t, m, entries)
	if fresh := len(digests(m)) - len(had); fresh != 2 {
		t.Errorf("one change made %d objects, want a page and the index", fresh)
	}
	added := build(t, m, slices.Insert(entries, 10_000, Entry{Name: "file-009999.txt2", Type: File}))
	if fresh := len(digests(m)) - len(had); fresh > 5 {
		t.Errorf("one more entry made %d objects", fresh-2)
	}
	var changes []string
	for _, after := range []Entry{changed, added} {
		if err := Diff(t.Context(), m, &Tree{Roots: []Entry{dir}}, &Tree{Roots: []Entry{after}}, "", func(c Change) error {
			changes = append(changes, c.Path)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"r", "r/file-054321.txt", "r", "r/file-009999.txt2", "r/file-054321.txt"}; !slices.Equal(changes, want) {
		t.Errorf("changes %q, want %q", changes, want)
	}
	for _, name := range []string{"file-000000.txt", "file-054321.txt", "file-099999.txt"} {
		e, err := Lookup(t.Context(), m, &Tree{Roots: []Entry{changed}}, "r/"+name)
		if err != nil || e == nil || e.Name != name {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
	if e, err := Lookup(t.Context(), m, &Tree{Roots: []Entry{changed}}, "r/nothing"); e != nil || err != nil {
		t.Errorf("an absent name: %v, %v", e, err)
	}
}

// model is a tree as paths.
type model map[string]Entry

func (md model) entry(t testing.TB, m *Memory, path string) Entry {
	e := md[path]
	if e.Type != Directory {
		return e
	}
	var kids []Entry
	for p := range md {
		if rest, ok := strings.CutPrefix(p, path+"/"); ok && !strings.Contains(rest, "/") {
			kids = append(kids, md.entry(t, m, p))
		}
	}
	slices.SortFunc(kids, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	built := build(t, m, kids)
	e.Dir, e.Paged, e.Summary = built.Dir, built.Paged, built.Summary
	return e
}

func (md model) mutate(rng *rand.Rand, n int) {
	for range n {
		paths := slices.Sorted(maps.Keys(md))
		at := paths[rng.IntN(len(paths))]
		switch {
		case rng.IntN(3) == 0 && at != "r":
			for p := range md {
				if p == at || strings.HasPrefix(p, at+"/") {
					delete(md, p)
				}
			}
		case md[at].Type == Directory:
			name := fmt.Sprint(rng.IntN(30))
			if _, ok := md[at+"/"+name]; !ok {
				e := Entry{Name: name, Type: File, Mode: uint16(rng.IntN(0o1000))}
				if rng.IntN(3) == 0 {
					e.Type = Directory
				}
				md[at+"/"+name] = e
			}
		default:
			e := md[at]
			e.Mtime.Sec = rng.Int64N(1000)
			md[at] = e
		}
	}
}

// checkResumes goes on with a comparison after each of its changes.
func checkResumes(t *testing.T, src Source, before, after *Tree) {
	t.Helper()
	changes := func(from string) (paths []string) {
		if err := Diff(t.Context(), src, before, after, from, func(c Change) error {
			paths = append(paths, c.Path)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return paths
	}
	all := changes("")
	byNames := func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }
	if !slices.IsSortedFunc(all, byNames) {
		t.Fatalf("changes are not in order: %q", all)
	}
	for i, path := range all {
		if rest := changes(path); !slices.Equal(rest, all[i+1:]) {
			t.Fatalf("after %q come %q, want %q", path, rest, all[i+1:])
		}
	}
}

// TestWalkAndDiffAgreeWithAModel compares both with maps of paths.
func TestWalkAndDiffAgreeWithAModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(testkit.Seed(t), 1))
	m := &Memory{}
	md := model{"r": {Name: "r", Type: Directory}}
	for range 60 {
		before := maps.Clone(md)
		md.mutate(rng, 1+rng.IntN(40))
		was, is := before.entry(t, m, "r"), md.entry(t, m, "r")

		seen := 1
		if err := Walk(t.Context(), m, []Node{NodeOf("r", &is)}, func(dir Node, entries []Entry, descend func(*Entry)) error {
			for i := range entries {
				want, ok := md[dir.Path+"/"+entries[i].Name]
				if !ok || want.Type != entries[i].Type || want.Mtime != entries[i].Mtime {
					t.Errorf("%s/%s is %+v, want %+v", dir.Path, entries[i].Name, entries[i], want)
				}
				seen++
				if entries[i].Type == Directory {
					descend(&entries[i])
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if seen != len(md) || is.Summary.Entries != uint64(len(md)-1) {
			t.Errorf("walked %d, summary %d, want %d", seen, is.Summary.Entries+1, len(md))
		}

		checkResumes(t, m, &Tree{Roots: []Entry{was}}, &Tree{Roots: []Entry{is}})
		got := maps.Clone(before)
		if err := Diff(t.Context(), m, &Tree{Roots: []Entry{was}}, &Tree{Roots: []Entry{is}}, "", func(c Change) error {
			for p := range got {
				if c.New == nil && (p == c.Path || strings.HasPrefix(p, c.Path+"/")) || c.New != nil && c.New.Type != Directory && strings.HasPrefix(p, c.Path+"/") {
					delete(got, p)
				}
			}
			if c.New != nil {
				got[c.Path] = *c.New
			}
			if c.New != nil && c.New.Type == Directory && (c.Old == nil || c.Old.Type != Directory) {
				return Walk(t.Context(), m, []Node{NodeOf(c.Path, c.New)}, func(dir Node, entries []Entry, descend func(*Entry)) error {
					for i := range entries {
						got[dir.Path+"/"+entries[i].Name] = entries[i]
						if entries[i].Type == Directory {
							descend(&entries[i])
						}
					}
					return nil
				})
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(got) != len(md) {
			t.Fatalf("the changes lead to %d paths, want %d", len(got), len(md))
		}
		for p, want := range md {
			if g := got[p]; g.Type != want.Type || g.Mtime != want.Mtime || g.Mode != want.Mode {
				t.Fatalf("the changes lead to %s as %+v, want %+v", p, g, want)
			}
		}
	}
}

// TestTreesThatLieAreRefused walks trees whose objects are well formed and whose
// links between them are not.
func TestTreesThatLieAreRefused(t *testing.T) {
	m := &Memory{}
	put := func(kind Kind, b []byte) Digest {
		d := Sum(b)
		if err := m.Put(t.Context(), Object{kind, d, b}); err != nil {
			t.Fatal(err)
		}
		return d
	}
	inner := build(t, m, numbered(3))
	pages := func(ps ...Page) Entry {
		b, err := EncodeIndex(ps)
		if err != nil {
			t.Fatal(err)
		}
		e := Entry{Name: "r", Type: Directory, Dir: put(Index, b), Paged: true}
		for _, p := range ps {
			e.Summary = e.Summary.Plus(p.Summary)
		}
		return e
	}
	walk := func(e Entry) error {
		return Walk(t.Context(), m, []Node{NodeOf("r", &e)}, func(_ Node, es []Entry, descend func(*Entry)) error {
			for i := range es {
				if es[i].Type == Directory {
					descend(&es[i])
				}
			}
			return nil
		})
	}
	lying := inner
	lying.Summary.Bytes++
	huge := inner
	huge.Summary = Summary{1<<64 - 1, 1<<64 - 1, 1<<64 - 1}
	deep := build(t, m, nil)
	for range MaxDepth + 1 {
		deep.Name = "d"
		deep = build(t, m, []Entry{deep})
	}
	index := inner
	index.Paged = true
	for name, e := range map[string]Entry{
		"other counts":            lying,
		"counts that overflow":    build(t, m, []Entry{huge}),
		"too deep":                deep,
		"a directory as an index": index,
		"a page under two names":  pages(Page{"file-000000.txt", inner.Dir, inner.Summary}, Page{"file-000001.txt", inner.Dir, inner.Summary}),
		"a page of another name":  pages(Page{"b", inner.Dir, inner.Summary}),
	} {
		if err := walk(e); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var missing *MissingError
	if err := walk(Entry{Name: "r", Type: Directory, Dir: digestOf("absent")}); !errors.As(err, &missing) || missing.Digests[0] != digestOf("absent") {
		t.Errorf("a missing directory: %v", err)
	}
	m.objects[inner.Dir][7] ^= 1
	var corrupt *CorruptError
	if err := walk(inner); !errors.As(err, &corrupt) {
		t.Errorf("a corrupt directory: %v", err)
	}
}

func TestCopyChecksWhatItWrites(t *testing.T) {
	m := &Memory{}
	a, b := bytes.Repeat([]byte("a"), 1000), bytes.Repeat([]byte("b"), 50)
	parts := []Part{{1000, Sum(a)}, {50, Sum(b)}}
	recipe, err := EncodeRecipe(parts)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range [][]byte{a, b, recipe} {
		if err := m.Put(t.Context(), Object{Chunk, Sum(o), o}); err != nil {
			t.Fatal(err)
		}
	}
	whole := append(bytes.Clone(a), b...)
	c := Content{Size: 1050, Digest: Sum(recipe), Chunked: true, Sum: Sum(whole)}
	var out bytes.Buffer
	if err := Copy(t.Context(), m, c, &out); err != nil || !bytes.Equal(out.Bytes(), whole) {
		t.Errorf("%d bytes: %v", out.Len(), err)
	}
	for name, c := range map[string]Content{
		"size":          {Size: 1051, Digest: c.Digest, Chunked: true, Sum: c.Sum},
		"sum":           {Size: 1050, Digest: c.Digest, Chunked: true, Sum: Sum(a)},
		"size of one":   {Size: 999, Digest: Sum(a), Sum: Sum(a)},
		"chunk as list": {Size: 1000, Digest: Sum(a), Chunked: true, Sum: Sum(a)},
	} {
		if err := Copy(context.Background(), m, c, &out); !errors.Is(err, ErrInvalid) {
			t.Errorf("another %s: %v", name, err)
		}
	}
}
