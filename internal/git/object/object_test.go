package object

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pjbgf/sha1cd"
)

func TestHashAgainstGit(t *testing.T) {
	r := newRepo(t)
	for _, content := range []string{"", "hello\n", strings.Repeat("0123456789", 50_000)} {
		want := r.git(content, "hash-object", "--stdin")
		if got := Hash(Blob, []byte(content)); got.String() != want {
			t.Errorf("Hash of %d bytes = %s, want %s", len(content), got, want)
		}
		h := NewHasher(Tree, 7)
		h.Write([]byte("unrelated"))
		h.Reset(Blob, int64(len(content)))
		for rest := []byte(content); len(rest) > 0; {
			n, _ := h.Write(rest[:min(len(rest), 4097)])
			rest = rest[n:]
		}
		for range 2 {
			if got, err := h.Sum(); err != nil || got.String() != want {
				t.Errorf("Hasher of %d bytes = %s, %v, want %s", len(content), got, err, want)
			}
		}
	}
}

func TestHasherSize(t *testing.T) {
	for _, size := range []int64{0, 2, 4} {
		h := NewHasher(Blob, size)
		h.Write([]byte("abc"))
		if id, err := h.Sum(); !errors.Is(err, ErrSize) || !id.IsZero() {
			t.Errorf("3 bytes announced as %d: %s, %v", size, id, err)
		}
	}
}

// TestHasherCollision feeds the first published collision: 320 bytes that begin
// shattered-1.pdf. It works on the bare bytes, because the attack was computed
// for a file without Git's header in front.
func TestHasherCollision(t *testing.T) {
	shattered, err := os.ReadFile("testdata/shattered-320.bin")
	if err != nil {
		t.Fatal(err)
	}
	h := &Hasher{h: sha1cd.New().(sha1cd.CollisionResistantHash), left: int64(len(shattered))}
	h.Write(shattered)
	if id, err := h.Sum(); !errors.Is(err, ErrCollision) || !id.IsZero() {
		t.Errorf("Sum = %s, %v, want ErrCollision", id, err)
	}
	h.Reset(Blob, 0)
	if id, err := h.Sum(); err != nil || id.String() != "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391" {
		t.Errorf("after Reset: %s, %v", id, err)
	}
}

// fakeGPG signs everything alike and records what it is asked to verify.
const fakeGPG = `#!/bin/sh
case "$*" in
*--verify*) cat >"$HOME/payload"; printf '\n[GNUPG:] GOODSIG 0123456789ABCDEF Ann\n' ;;
*) cat >/dev/null; echo "[GNUPG:] SIG_CREATED " >&2
   printf -- '-----BEGIN PGP SIGNATURE-----\n\niQ==\n-----END PGP SIGNATURE-----\n' ;;
esac
`

func TestCommitsOfGit(t *testing.T) {
	r := newRepo(t)
	gpg := filepath.Join(r.dir, "gpg")
	if err := os.WriteFile(gpg, []byte(fakeGPG), 0o777); err != nil {
		t.Fatal(err)
	}
	r.git("", "config", "gpg.program", gpg)
	tree := r.git("", "mktree")
	first := r.git("first\n\nbody\n", "commit-tree", tree)
	second := r.git("no newline at the end", "commit-tree", "-p", first, tree)
	merge := r.git("merge", "commit-tree", "-p", first, "-p", second, "-p", first[:8], tree)
	latin := r.git("caf\xe9", "-c", "i18n.commitEncoding=ISO-8859-1", "commit-tree", tree)
	signed := r.git("signed\n", "commit-tree", "-S", "-p", first, tree)
	empty := r.git("", "commit-tree", tree)

	for _, name := range []string{first, second, merge, latin, signed, empty} {
		data := r.content(Commit, name)
		c, err := ParseCommit(data)
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		again, err := EncodeCommit(c)
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("EncodeCommit(ParseCommit(%q)) = %q, %v", data, again, err)
		}
		format := r.git("", "log", "-1", "--encoding=none", "--format=%T %P|%an|%ae|%at|%cn|%ce|%ct", name)
		var parents []string
		for _, p := range c.Parents {
			parents = append(parents, p.String())
		}
		ours := c.Tree.String() + " " + strings.Join(parents, " ") + "|Ann|ann@example.com|1700000000|Bo|bo@example.com|1700000001"
		if format != ours || c.Author.Zone != "+0130" || c.Committer.Zone != "-0800" {
			t.Errorf("git reads  %q\nwe read %q, %+v", format, ours, c)
		}
		scratch := make([]ID, 0, 8)
		gotTree, gotParents, when, err := CommitLinks(data, scratch)
		if err != nil || gotTree != c.Tree || !slices.Equal(gotParents, c.Parents) || when != 1700000001 {
			t.Errorf("CommitLinks = %s %s %d %v", gotTree, gotParents, when, err)
		}
	}

	c, err := ParseCommit(r.content(Commit, signed))
	if err != nil {
		t.Fatal(err)
	}
	if want := "-----BEGIN PGP SIGNATURE-----\n\niQ==\n-----END PGP SIGNATURE-----"; c.Signature != want {
		t.Errorf("Signature = %q, want %q", c.Signature, want)
	}
	r.git("", "verify-commit", signed)
	if payload, err := os.ReadFile(filepath.Join(r.dir, "payload")); err != nil || !bytes.Equal(payload, c.Payload) {
		t.Errorf("git verifies %q, %v; Payload = %q", payload, err, c.Payload)
	}
	if c, err = ParseCommit(r.content(Commit, latin)); err != nil || c.Encoding != "ISO-8859-1" || c.Message != "caf\xe9\n" && c.Message != "caf\xe9" {
		t.Errorf("encoding: %+v, %v", c, err)
	}

	r.git("", "tag", "-s", "-m", "release", "v1", first)
	data := r.content(Tag, "v1")
	tag, err := ParseTag(data)
	if err != nil {
		t.Fatal(err)
	}
	r.git("", "verify-tag", "v1")
	payload, err := os.ReadFile(filepath.Join(r.dir, "payload"))
	if err != nil || !bytes.Equal(payload, tag.Payload) || !strings.HasPrefix(tag.Signature, "-----BEGIN PGP") {
		t.Errorf("git verifies %q, %v; Payload = %q, Signature = %q", payload, err, tag.Payload, tag.Signature)
	}
	if again, err := EncodeTag(tag); err != nil || !bytes.Equal(again, data) {
		t.Errorf("EncodeTag(ParseTag(%q)) = %q, %v", data, again, err)
	}
	if id, typ, err := TagTarget(data); id.String() != first || typ != Commit || err != nil {
		t.Errorf("TagTarget = %s %s %v, want %s", id, typ, err, first)
	}
	if tag.Name != "v1" || tag.Message != "release\n" || tag.Tagger == nil || tag.Tagger.Name != "Bo" {
		t.Errorf("tag = %+v", tag)
	}
}

func TestParseCommitHeaders(t *testing.T) {
	data := commit("tree "+hexTree, "author "+ident, "committer "+ident,
		"mergetag object "+hexParent, " type commit", " ", " text", "gpgsig one", " two", "gpgsig-sha256 three", " four", "odd", "", "message\n")
	c, err := ParseCommit([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	extra := []Header{{"mergetag", "object " + hexParent + "\ntype commit\n\ntext"}, {"gpgsig-sha256", "three\nfour"}, {"odd", ""}}
	if !reflect.DeepEqual(c.Extra, extra) || c.Signature != "one\ntwo" || c.Message != "message\n" {
		t.Errorf("got %+v", c)
	}
	payload := strings.Replace(data, "gpgsig one\n two\ngpgsig-sha256 three\n four\n", "", 1)
	if string(c.Payload) != payload {
		t.Errorf("Payload = %q, want %q", c.Payload, payload)
	}
}

func TestParseLenient(t *testing.T) {
	rows := map[string]Signature{
		"A B <a@b> 12 -0500":        {"A B", "a@b", 12, "-0500"},
		"<a@b> 12 +0000":            {"", "a@b", 12, "+0000"},
		"A":                         {"A", "", 0, "+0000"},
		"":                          {"", "", 0, "+0000"},
		"A <a@b":                    {"A", "a@b", 0, "+0000"},
		"A <a@b> x":                 {"A", "a@b", 0, "+0000"},
		"A <a@b> 5":                 {"A", "a@b", 5, "+0000"},
		"A <a@b> 5 EST":             {"A", "a@b", 5, "+0000"},
		"A <a>b> 5 +0100":           {"A", "a", 5, "+0100"},
		"A <a> 9223372036854775808": {"A", "a", 0, "+0000"},
	}
	for line, want := range rows {
		data := commit("tree "+hexTree, "author "+line, "committer "+line, "", "")
		c, err := ParseCommit([]byte(data))
		if err != nil || c.Author != want || c.Committer != want {
			t.Errorf("%q: %+v, %v; want %+v", line, c, err, want)
		}
		if _, _, when, err := CommitLinks([]byte(data), nil); err != nil || when != want.When {
			t.Errorf("%q: CommitLinks date %d, %v; want %d", line, when, err, want.When)
		}
	}
}

func TestMalformed(t *testing.T) {
	for _, data := range []string{
		"", "tree", "tree " + hexTree, "tree " + hexTree[1:] + "g\n", "author " + ident + "\n",
		commit("tree "+hexTree, "parent x", ""), commit("tree "+hexTree, "author "+ident, "", "committer "+ident, ""),
	} {
		if _, err := ParseCommit([]byte(data)); !errors.Is(err, ErrMalformed) {
			t.Errorf("ParseCommit(%q): %v", data, err)
		}
		if _, _, _, err := CommitLinks([]byte(data), nil); !errors.Is(err, ErrMalformed) {
			t.Errorf("CommitLinks(%q): %v", data, err)
		}
	}
	for _, data := range []string{"", "object " + hexTree + "\n", "object x\ntype commit\n", "object " + hexTree + "\ntype x\ntag y\n", "object " + hexTree + "\ntype tree"} {
		if _, err := ParseTag([]byte(data)); !errors.Is(err, ErrMalformed) {
			t.Errorf("ParseTag(%q): %v", data, err)
		}
		if _, _, err := TagTarget([]byte(data)); !errors.Is(err, ErrMalformed) {
			t.Errorf("TagTarget(%q): %v", data, err)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	good := Signature{"Ann", "ann@example.com", 1, "+0000"}
	if _, err := EncodeCommit(&CommitData{Author: good, Committer: good, Message: "m\n"}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []Signature{
		{"Ann <", "a", 1, "+0000"},
		{"Ann\ncommitter Eve", "a", 1, "+0000"},
		{"Ann", "a> 1 +0000\n", 1, "+0000"},
		{"Ann", "a\x00", 1, "+0000"},
		{"Ann", "a", -1, "+0000"},
		{"Ann", "a", 1, ""},
		{"Ann", "a", 1, "Z"},
		{"Ann", "a", 1, "+00:00"},
	} {
		for _, c := range []CommitData{{Author: bad, Committer: good}, {Author: good, Committer: bad}} {
			if data, err := EncodeCommit(&c); err == nil {
				t.Errorf("EncodeCommit wrote %q", data)
			}
		}
		if data, err := EncodeTag(&TagData{Object: ID{1}, Type: Commit, Name: "v1", Tagger: &bad}); err == nil {
			t.Errorf("EncodeTag wrote %q", data)
		}
	}
	for _, extra := range []Header{{"", "x"}, {"parent", hexParent}, {"gpgsig", "x"}, {"a b", "x"}, {"a\nb", "x"}, {"a", "\x00"}} {
		if data, err := EncodeCommit(&CommitData{Author: good, Committer: good, Extra: []Header{extra}}); err == nil {
			t.Errorf("EncodeCommit wrote %q", data)
		}
	}
	if data, err := EncodeCommit(&CommitData{Author: good, Committer: good, Message: "a\x00b"}); err == nil {
		t.Errorf("EncodeCommit wrote %q", data)
	}
	for _, tag := range []TagData{{Type: Commit}, {Type: Commit, Name: "a\nb"}, {Name: "v1"}} {
		if data, err := EncodeTag(&tag); err == nil {
			t.Errorf("EncodeTag wrote %q", data)
		}
	}
	// A newline in a header's value stays inside that header.
	data, err := EncodeCommit(&CommitData{Author: good, Committer: good, Extra: []Header{{"note", "a\n\nparent " + hexParent}}})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := ParseCommit(data); err != nil || len(c.Parents) != 0 || c.Extra[0].Value != "a\n\nparent "+hexParent || c.Message != "" {
		t.Errorf("read back %+v, %v", c, err)
	}
}

func TestTreeAgainstGit(t *testing.T) {
	r := newRepo(t)
	blob, err := ParseID(r.git("x", "hash-object", "-w", "--stdin"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := ParseID(r.git("", "mktree"))
	if err != nil {
		t.Fatal(err)
	}
	entries := []Entry{
		{ModeDir, []byte("a"), dir},
		{ModeRegular, []byte("a.c"), blob},
		{ModeExecutable, []byte("a0"), blob},
		{ModeSymlink, []byte("a-b"), blob},
		{ModeSubmodule, []byte("z"), ID{9}},
		{ModeRegular, []byte("ab"), blob},
		{ModeDir, []byte("a-"), dir},
		{ModeRegular, []byte("\xff"), blob},
	}
	var listing strings.Builder
	for _, e := range entries {
		listing.WriteString(e.Mode.String() + " " + e.Mode.Type().String() + " " + e.ID.String() + "\t" + string(e.Name) + "\x00")
	}
	want := r.content(Tree, r.git(listing.String(), "mktree", "-z"))
	data := EncodeTree(entries)
	if !bytes.Equal(data, want) {
		t.Fatalf("EncodeTree = %q\ngit mktree   %q", data, want)
	}
	if string(entries[0].Name) != "a" {
		t.Error("EncodeTree changed its argument")
	}
	if err := Check(Tree, data); err != nil {
		t.Error(err)
	}
	var lines []string
	it := TreeEntries(data)
	for e, ok := it.Next(); ok; e, ok = it.Next() {
		lines = append(lines, e.Mode.String()+" "+e.Mode.Type().String()+" "+e.ID.String()+"\t"+string(e.Name))
	}
	if got, want := strings.Join(lines, "\x00")+"\x00", r.git("", "ls-tree", "-z", Hash(Tree, data).String()); got != want || it.Err() != nil {
		t.Errorf("entries, %v:\n%q\ngit ls-tree:\n%q", it.Err(), got, want)
	}
	for _, e := range entries {
		if got, ok, err := Find(data, string(e.Name)); !ok || err != nil || got.ID != e.ID || got.Mode != e.Mode {
			t.Errorf("Find(%q) = %+v, %t, %v", e.Name, got, ok, err)
		}
	}
	if _, ok, err := Find(data, "nothing"); ok || err != nil {
		t.Errorf("Find of a missing name = %t, %v", ok, err)
	}
	if _, _, err := Find(data[:len(data)-1], "nothing"); !errors.Is(err, ErrMalformed) {
		t.Errorf("Find in half a tree: %v", err)
	}
}

func TestMode(t *testing.T) {
	rows := []struct {
		mode, canonical Mode
		typ             Type
		text            string
	}{
		{ModeRegular, ModeRegular, Blob, "100644"},
		{ModeExecutable, ModeExecutable, Blob, "100755"},
		{ModeSymlink, ModeSymlink, Blob, "120000"},
		{ModeSubmodule, ModeSubmodule, Commit, "160000"},
		{ModeDir, ModeDir, Tree, "040000"},
		{0o100664, ModeRegular, Blob, "100664"},
		{0o100711, ModeExecutable, Blob, "100711"},
		{0o040755, ModeDir, Tree, "040755"},
		{0o644, ModeSubmodule, Commit, "000644"},
	}
	for _, row := range rows {
		if row.mode.Canonical() != row.canonical || row.mode.Type() != row.typ || row.mode.String() != row.text {
			t.Errorf("%o: %s, %s, %q", uint32(row.mode), row.mode.Canonical(), row.mode.Type(), row.mode)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	data := []byte(commit("tree "+hexTree, "parent "+hexParent, "author "+ident, "committer "+ident, "", "m"))
	parents := make([]ID, 0, 4)
	tree := EncodeTree([]Entry{{ModeRegular, []byte("a"), ID{1}}, {ModeDir, []byte("b"), ID{2}}})
	for name, f := range map[string]func(){
		"CommitLinks": func() { CommitLinks(data, parents) },
		"TreeIter": func() {
			it := TreeEntries(tree)
			for _, ok := it.Next(); ok; _, ok = it.Next() {
			}
		},
		"Find":         func() { Find(tree, "b") },
		"Check commit": func() { Check(Commit, data) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range allCandidates() {
		f.Add([]byte(c.content))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// Parsers hold on any input, and what they read can be written and
		// read again to the same value when the writer accepts it.
		if c, err := ParseCommit(data); err == nil {
			if again, err := EncodeCommit(c); err == nil {
				c2, err := ParseCommit(again)
				if err != nil {
					t.Fatalf("ParseCommit(%q): %v", again, err)
				}
				c.Payload, c2.Payload = nil, nil
				if !reflect.DeepEqual(c, c2) {
					t.Fatalf("read again: %+v\nfirst: %+v", c2, c)
				}
			}
		}
		if tag, err := ParseTag(data); err == nil && len(tag.Payload)+len(tag.Signature) != len(data) {
			t.Fatalf("tag payload %q and signature %q of %q", tag.Payload, tag.Signature, data)
		}
		for it := TreeEntries(data); ; {
			e, ok := it.Next()
			if !ok {
				break
			}
			if len(e.Name) == 0 {
				t.Fatal("an empty name")
			}
		}
	})
}

var sink ID

func BenchmarkHash(b *testing.B) {
	data := make([]byte, 1<<20)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		sink = Hash(Blob, data)
	}
}

func BenchmarkHashSmall(b *testing.B) {
	data := make([]byte, 250)
	b.ReportAllocs()
	for b.Loop() {
		sink = Hash(Blob, data)
	}
}

func BenchmarkHasher(b *testing.B) {
	data := make([]byte, 1<<20)
	h := NewHasher(Blob, 0)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		h.Reset(Blob, int64(len(data)))
		h.Write(data)
		sink, _ = h.Sum()
	}
}

func BenchmarkHasherSmall(b *testing.B) {
	data := make([]byte, 250)
	h := NewHasher(Blob, 0)
	b.ReportAllocs()
	for b.Loop() {
		h.Reset(Blob, int64(len(data)))
		h.Write(data)
		sink, _ = h.Sum()
	}
}

func BenchmarkCommitLinks(b *testing.B) {
	data := []byte(commit("tree "+hexTree, "parent "+hexParent, "author "+ident, "committer "+ident, "", "message"))
	parents := make([]ID, 0, 4)
	b.ReportAllocs()
	for b.Loop() {
		sink, _, _, _ = CommitLinks(data, parents)
	}
}

func BenchmarkCheckTree(b *testing.B) {
	var entries []Entry
	for i := range 100 {
		entries = append(entries, Entry{ModeRegular, []byte("file-" + string(rune('a'+i/26)) + string(rune('a'+i%26)) + ".go"), ID{1}})
	}
	data := EncodeTree(entries)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Check(Tree, data); err != nil {
			b.Fatal(err)
		}
	}
}
