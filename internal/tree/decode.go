package tree

import (
	"encoding/binary"
	"math"
	"strings"
)

// reader takes values from the front of b. The first fault stays in err; what is
// read after it is zero.
type reader struct {
	b   string
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = invalid(format, args...)
	}
	r.b = ""
}

func (r *reader) bytes(n uint64) string {
	if n > uint64(len(r.b)) {
		r.fail("it ends within a value")
		return ""
	}
	s := r.b[:n]
	r.b = r.b[n:]
	return s
}

func (r *reader) byte() byte {
	if s := r.bytes(1); s != "" {
		return s[0]
	}
	return 0
}

// uvarint takes a number in its shortest form.
func (r *reader) uvarint() uint64 {
	var v uint64
	for i := 0; i < len(r.b) && i < binary.MaxVarintLen64; i++ {
		c := r.b[i]
		if i == 9 && c > 1 {
			break
		}
		v |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if c == 0 && i > 0 {
				break
			}
			r.b = r.b[i+1:]
			return v
		}
	}
	r.fail("a number that is cut off, too large or not in its shortest form")
	return 0
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	v := int64(u >> 1)
	if u&1 != 0 {
		v = ^v
	}
	return v
}

// upTo takes a number of at most most.
func (r *reader) upTo(most uint64, what string) uint64 {
	v := r.uvarint()
	if v > most {
		r.fail("%s is %d, at most %d is allowed", what, v, most)
		return 0
	}
	return v
}

// count takes the length of a list whose elements have at least min bytes.
func (r *reader) count(most, min int, what string) int {
	n := r.upTo(uint64(most), what)
	if n*uint64(min) > uint64(len(r.b)) {
		r.fail("%s is %d, more than there is room for", what, n)
		return 0
	}
	return int(n)
}

func (r *reader) string(most int, what string) string {
	return r.bytes(r.upTo(uint64(most), what))
}

func (r *reader) digest() (d Digest) {
	copy(d[:], r.bytes(uint64(len(d))))
	return d
}

func (r *reader) header(magic string) {
	got := r.bytes(uint64(len(magic)))
	flags := r.byte()
	switch {
	case r.err != nil:
	case got != magic:
		r.fail("it begins with %q, want %q: another kind of object, or of a newer version", got, magic)
	case flags&0x80 != 0:
		r.fail("it is encrypted, which this version cannot read")
	case flags != 0:
		r.fail("it has flags %#x, which this version does not know", flags)
	}
}

// finish reports the first fault, or bytes that are left.
func (r *reader) finish() error {
	if r.err == nil && r.b != "" {
		r.fail("%d bytes follow its end", len(r.b))
	}
	return r.err
}

func open(b []byte, most int, magic string) *reader {
	r := &reader{}
	if len(b) > most {
		r.fail("%d bytes, at most %d are allowed", len(b), most)
		return r
	}
	r.b = string(b)
	r.header(magic)
	return r
}

func (r *reader) entry() (e Entry) {
	before := len(r.b)
	e.Name = r.string(MaxName, "the length of a name")
	e.Type = Type(r.byte())
	flags := r.byte()
	if flags&^flagsKnown != 0 {
		r.fail("flags %#x of an entry", flags)
	}
	e.Mode = uint16(r.upTo(0o7777, "a mode"))
	e.Mtime.Sec = r.varint()
	e.Mtime.Nsec = uint32(r.upTo(999_999_999, "nanoseconds"))
	e.UID = uint32(r.upTo(math.MaxUint32, "an owner"))
	e.GID = uint32(r.upTo(math.MaxUint32, "a group"))
	switch e.Type {
	case File:
		e.Mixed = flags&flagMixed != 0
		e.Content = r.content(flags&flagChunked != 0)
		if flags&flagHoles != 0 {
			e.Holes = r.holes()
		}
	case Directory:
		e.Paged = flags&flagChunked != 0
		e.Dir = r.digest()
		e.Summary = r.summary()
	case Symlink:
		e.Target = r.string(MaxTarget, "the length of a target")
	}
	if flags&flagRedacted != 0 {
		e.Redactions = r.redactions(1)
	}
	if flags&flagXattrs != 0 {
		e.Xattrs = r.xattrs()
	}
	if r.err == nil && e.flags() != flags {
		r.fail("flags %#x of %q, which has nothing for them", flags, e.Name)
	}
	if before-len(r.b) > maxEntry {
		r.fail("an entry of more than %d bytes", maxEntry)
	}
	if r.err == nil {
		r.err = e.Check()
	}
	return e
}

func (r *reader) content(chunked bool) (c Content) {
	c.Size, c.Chunked = r.uvarint(), chunked
	if c.Size > 0 {
		c.Digest = r.digest()
		c.Sum = c.Digest
	}
	if chunked {
		c.Sum = r.digest()
	}
	return c
}

func (r *reader) summary() Summary {
	return Summary{Entries: r.uvarint(), Files: r.uvarint(), Bytes: r.uvarint()}
}

func (r *reader) holes() []Range {
	n := r.count(MaxHoles, 2, "the number of holes")
	holes := make([]Range, 0, n)
	end := uint64(0)
	for range n {
		gap := r.uvarint()
		h := Range{Offset: end + gap, Length: r.uvarint()}
		if h.Offset < end || h.Offset+h.Length < h.Offset {
			r.fail("a hole that wraps around")
		}
		end = h.Offset + h.Length
		holes = append(holes, h)
	}
	return holes
}

func (r *reader) redactions(least int) []Redaction {
	n := r.count(MaxRedacted, 5, "the number of redacted names")
	if n < least {
		r.fail("an empty list of redactions")
	}
	var rs []Redaction
	for range n {
		red := Redaction{Name: r.string(maxSecret, "the length of a secret's name"), Length: r.uvarint()}
		m := r.count(MaxRedacted, 1, "the number of redacted ranges")
		red.Offsets = make([]uint64, 0, m)
		last := uint64(0)
		for range m {
			off := last + r.uvarint()
			if off < last {
				r.fail("a redacted range that wraps around")
			}
			red.Offsets = append(red.Offsets, off)
			last = off
		}
		rs = append(rs, red)
	}
	return rs
}

func (r *reader) xattrs() []Xattr {
	n := r.count(MaxXattrs/6, 8, "the number of attributes")
	xs := make([]Xattr, 0, n)
	for range n {
		xs = append(xs, Xattr{
			Name:       r.string(MaxName, "the length of an attribute's name"),
			Value:      r.string(maxXattr, "the length of an attribute"),
			Redactions: r.redactions(0),
		})
	}
	return xs
}

// DecodeEntry decodes the entry at the front of b and returns the bytes after it.
func DecodeEntry(b []byte) (Entry, []byte, error) {
	r := &reader{b: string(b)}
	e := r.entry()
	if r.err != nil {
		return Entry{}, nil, r.err
	}
	return e, b[len(b)-len(r.b):], nil
}

// DecodeDir decodes a directory object, or a page of one: entries in strict order
// of their names' bytes.
func DecodeDir(b []byte) ([]Entry, error) {
	r := open(b, MaxDir, magicDir)
	n := r.count(MaxPage, 9, "the number of entries")
	entries := make([]Entry, 0, n)
	for i := range n {
		entries = append(entries, r.entry())
		if i > 0 && r.err == nil && entries[i-1].Name >= entries[i].Name {
			r.fail("%q follows %q", entries[i].Name, entries[i-1].Name)
		}
		if r.err != nil {
			break
		}
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	return entries, nil
}

// DecodeIndex decodes the pages of a large directory.
func DecodeIndex(b []byte) ([]Page, error) {
	r := open(b, MaxList, magicIndex)
	n := r.count(MaxList, 36, "the number of pages")
	if n == 0 {
		r.fail("an index without pages")
	}
	pages := make([]Page, 0, n)
	for i := range n {
		p := Page{First: r.string(MaxName, "the length of a name"), Digest: r.digest(), Summary: r.summary()}
		if err := CheckName(p.First); err != nil && r.err == nil {
			r.err = err
		}
		if i > 0 && pages[i-1].First >= p.First {
			r.fail("page %q follows %q", p.First, pages[i-1].First)
		}
		if r.err != nil {
			break
		}
		pages = append(pages, p)
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	return pages, nil
}

// DecodeRecipe decodes the chunks of a file.
func DecodeRecipe(b []byte) ([]Part, error) {
	r := open(b, MaxList, magicRecipe)
	total := r.uvarint()
	n := r.count(MaxList, 33, "the number of chunks")
	if n < 2 {
		r.fail("a recipe of %d chunks", n)
	}
	parts := make([]Part, 0, n)
	sum := uint64(0)
	for range n {
		p := Part{Length: r.upTo(MaxChunk, "the length of a chunk"), Digest: r.digest()}
		if p.Length == 0 {
			r.fail("an empty chunk")
		}
		sum += p.Length
		parts = append(parts, p)
	}
	if r.err == nil && sum != total {
		r.fail("chunks of %d bytes for a file of %d", sum, total)
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	return parts, nil
}

// DecodeRoot decodes a root object.
func DecodeRoot(b []byte) (*Tree, error) {
	r := open(b, MaxRoot, magicRoot)
	n := r.count(MaxRoots, 40, "the number of roots")
	if n == 0 {
		r.fail("no roots")
	}
	t := &Tree{}
	for i := range n {
		e := r.entry()
		if r.err == nil && (e.Type != Directory || i > 0 && t.Roots[i-1].Name >= e.Name) {
			r.fail("root %q is no directory or out of order", e.Name)
		}
		t.Roots = append(t.Roots, e)
	}
	if p := r.string(MaxPolicy, "the length of the policy"); p != "" {
		t.Policy = []byte(p)
	}
	chunked := r.byte()
	if chunked > 1 {
		r.fail("flags %#x of the table of links", chunked)
	}
	t.Links = r.content(chunked == 1)
	if t.Links.Size > MaxLinks {
		r.fail("a table of links of %d bytes", t.Links.Size)
	}
	if r.err == nil {
		r.err = t.Links.Check()
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	return t, nil
}

// DecodeLinks decodes a table of hard links. Every path is in one group.
func DecodeLinks(b []byte) ([][]string, error) {
	r := open(b, MaxLinks, magicLinks)
	n := r.count(maxLinked/2, 5, "the number of groups")
	seen := map[string]bool{}
	groups := make([][]string, 0, n)
	for i := range n {
		m := r.count(maxLinked-len(seen), 2, "the number of paths")
		if m < 2 {
			r.fail("a group of %d paths", m)
		}
		g := make([]string, 0, m)
		for j := range m {
			path := r.string(MaxLinks, "the length of a path")
			if r.err != nil {
				break
			}
			if r.err = CheckPath(path); r.err == nil && (j > 0 && g[j-1] >= path || seen[path]) {
				r.fail("%q is out of order or there twice", path)
			}
			seen[path] = true
			g = append(g, path)
		}
		if r.err != nil {
			break
		}
		groups = append(groups, g)
		if i > 0 && groups[i-1][0] >= g[0] {
			r.fail("group %q is out of order", g[0])
		}
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	return groups, nil
}

// CheckPath reports whether path consists of names with slashes between them.
func CheckPath(path string) error {
	depth := 0
	for name := range strings.SplitSeq(path, "/") {
		if err := CheckName(name); err != nil {
			return err
		}
		if depth++; depth > MaxDepth+1 {
			return invalid("a path of more than %d names", MaxDepth+1)
		}
	}
	return nil
}
