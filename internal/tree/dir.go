package tree

import "encoding/binary"

// A directory of up to maxWhole entries and maxBytes is one object. A larger one
// has pages: a page ends after an entry whose name's hash says so, one in 512, so
// that an added name changes the pages around it only.
const (
	maxWhole  = 1024
	maxBytes  = 1 << 20
	pageShift = 64 - 9
)

// Page is one page of a large directory.
type Page struct {
	First   string // the first name in it
	Digest  Digest
	Summary Summary // of the page's entries
}

// EncodeIndex encodes pages.
func EncodeIndex(pages []Page) ([]byte, error) {
	b := header(nil, magicIndex)
	b = binary.AppendUvarint(b, uint64(len(pages)))
	for _, p := range pages {
		b = appendString(b, p.First)
		b = append(b, p.Digest[:]...)
		b = appendSummary(b, p.Summary)
	}
	if len(b) > MaxList {
		return nil, invalid("a directory of %d pages", len(pages))
	}
	return b, nil
}

// endsPage reports whether a page ends after name: FNV-1a, mixed as murmur3 does.
func endsPage(name string) bool {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return (h^h>>33)>>pageShift == 0
}

// Builder makes the objects of one directory from its entries. The zero value
// with Emit set is ready. It holds what one object needs.
type Builder struct {
	// Emit takes each finished object. Its bytes are valid during the call only.
	Emit func(o Object) error

	last    string
	page    []byte   // encoded entries not emitted yet
	ends    []ending // of the entries in page
	pages   []Page
	paged   bool
	total   Summary
	scratch []byte
}

// ending is where an entry in a page ends, and what is known of it.
type ending struct {
	name   string
	end    int
	counts Summary
}

// Add adds e, whose name must follow that of the entry before.
func (b *Builder) Add(e *Entry) error {
	if err := e.Check(); err != nil {
		return err
	}
	b.scratch = AppendEntry(b.scratch[:0], e)
	return b.AddEncoded(e.Name, b.scratch, e.Counts())
}

// AddEncoded adds an entry that AppendEntry encoded earlier.
func (b *Builder) AddEncoded(name string, encoded []byte, counts Summary) error {
	if name <= b.last {
		return invalid("%q is added after %q", name, b.last)
	}
	if len(encoded) > maxEntry {
		return invalid("the entry %q has %d bytes, at most %d are allowed", name, len(encoded), maxEntry)
	}
	b.last = name
	b.page = append(b.page, encoded...)
	b.ends = append(b.ends, ending{name, len(b.page), counts})
	b.total = b.total.Plus(counts)
	if b.paged {
		if b.pageEnds(len(b.ends)-1, 0) {
			return b.cut(len(b.ends))
		}
		return nil
	}
	if len(b.ends) <= maxWhole && len(b.page) <= maxBytes {
		return nil
	}
	b.paged = true
	return b.cutAll()
}

// pageEnds reports whether the page whose first byte is at start ends after the
// i-th entry of those held.
func (b *Builder) pageEnds(i, start int) bool {
	return endsPage(b.ends[i].name) || i+1 == MaxPage || b.ends[i].end-start >= maxBytes
}

// cutAll cuts what had gathered when the directory was found to be large.
func (b *Builder) cutAll() error {
	for i := 0; i < len(b.ends); i++ {
		if b.pageEnds(i, 0) {
			if err := b.cut(i + 1); err != nil {
				return err
			}
			i = -1
		}
	}
	return nil
}

// cut emits the first n entries as a page and keeps the rest.
func (b *Builder) cut(n int) error {
	end := b.ends[n-1].end
	d, err := b.emitDir(b.page[:end], n)
	if err != nil {
		return err
	}
	p := Page{First: b.ends[0].name, Digest: d}
	for _, e := range b.ends[:n] {
		p.Summary = p.Summary.Plus(e.counts)
	}
	b.pages = append(b.pages, p)
	b.page = append(b.page[:0], b.page[end:]...)
	b.ends = append(b.ends[:0], b.ends[n:]...)
	for i := range b.ends {
		b.ends[i].end -= end
	}
	return nil
}

func (b *Builder) emitDir(entries []byte, n int) (Digest, error) {
	o := header(make([]byte, 0, len(entries)+16), magicDir)
	o = binary.AppendUvarint(o, uint64(n))
	o = append(o, entries...)
	d := Sum(o)
	return d, b.Emit(Object{Kind: Dir, Digest: d, Bytes: o})
}

// Finish emits what is left and returns what the directory's entry says of it.
func (b *Builder) Finish() (d Digest, paged bool, s Summary, err error) {
	if !b.paged {
		d, err = b.emitDir(b.page, len(b.ends))
		return d, false, b.total, err
	}
	if len(b.ends) > 0 {
		if err := b.cut(len(b.ends)); err != nil {
			return d, true, s, err
		}
	}
	o, err := EncodeIndex(b.pages)
	if err != nil {
		return d, true, s, err
	}
	d = Sum(o)
	return d, true, b.total, b.Emit(Object{Kind: Index, Digest: d, Bytes: o})
}
