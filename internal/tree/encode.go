package tree

import "encoding/binary"

// Every object but a chunk begins with four letters, the last a version, and a
// byte of flags. Bit 7 of the flags is kept for encrypted objects: bytes with it,
// or with any flag that is not known, are refused.
const (
	magicRecipe = "CRC1"
	magicDir    = "CDR1"
	magicIndex  = "CDX1"
	magicRoot   = "CRT1"
	magicLinks  = "CHL1"
)

// Flags of an entry.
const (
	flagChunked = 1 << iota // a file with a recipe, a directory with pages
	flagHoles
	flagRedacted
	flagXattrs
	flagMixed
	flagsKnown = 1<<iota - 1
)

func header(b []byte, magic string) []byte { return append(append(b, magic...), 0) }

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (e *Entry) flags() byte {
	f := 0
	if e.Content.Chunked || e.Paged {
		f |= flagChunked
	}
	if len(e.Holes) > 0 {
		f |= flagHoles
	}
	if len(e.Redactions) > 0 {
		f |= flagRedacted
	}
	if len(e.Xattrs) > 0 {
		f |= flagXattrs
	}
	if e.Mixed {
		f |= flagMixed
	}
	return byte(f)
}

// AppendEntry appends the encoding of e, which must pass Check.
func AppendEntry(b []byte, e *Entry) []byte {
	b = appendString(b, e.Name)
	b = append(b, byte(e.Type), e.flags())
	b = binary.AppendUvarint(b, uint64(e.Mode))
	b = binary.AppendVarint(b, e.Mtime.Sec)
	b = binary.AppendUvarint(b, uint64(e.Mtime.Nsec))
	b = binary.AppendUvarint(b, uint64(e.UID))
	b = binary.AppendUvarint(b, uint64(e.GID))
	switch e.Type {
	case File:
		b = appendContent(b, &e.Content)
		if len(e.Holes) > 0 {
			b = appendHoles(b, e.Holes)
		}
	case Directory:
		b = append(b, e.Dir[:]...)
		b = appendSummary(b, e.Summary)
	case Symlink:
		b = appendString(b, e.Target)
	}
	if len(e.Redactions) > 0 {
		b = appendRedactions(b, e.Redactions)
	}
	if len(e.Xattrs) > 0 {
		b = binary.AppendUvarint(b, uint64(len(e.Xattrs)))
		for _, x := range e.Xattrs {
			b = appendString(b, x.Name)
			b = appendString(b, x.Value)
			b = appendRedactions(b, x.Redactions)
		}
	}
	return b
}

func appendContent(b []byte, c *Content) []byte {
	b = binary.AppendUvarint(b, c.Size)
	if c.Size > 0 {
		b = append(b, c.Digest[:]...)
	}
	if c.Chunked {
		b = append(b, c.Sum[:]...)
	}
	return b
}

func appendSummary(b []byte, s Summary) []byte {
	b = binary.AppendUvarint(b, s.Entries)
	b = binary.AppendUvarint(b, s.Files)
	return binary.AppendUvarint(b, s.Bytes)
}

func appendHoles(b []byte, holes []Range) []byte {
	b = binary.AppendUvarint(b, uint64(len(holes)))
	end := uint64(0)
	for _, h := range holes {
		b = binary.AppendUvarint(b, h.Offset-end)
		b = binary.AppendUvarint(b, h.Length)
		end = h.Offset + h.Length
	}
	return b
}

func appendRedactions(b []byte, rs []Redaction) []byte {
	b = binary.AppendUvarint(b, uint64(len(rs)))
	for _, r := range rs {
		b = appendString(b, r.Name)
		b = binary.AppendUvarint(b, r.Length)
		b = binary.AppendUvarint(b, uint64(len(r.Offsets)))
		last := uint64(0)
		for _, off := range r.Offsets {
			b = binary.AppendUvarint(b, off-last)
			last = off
		}
	}
	return b
}

// Part is one chunk of a large file.
type Part struct {
	Length uint64
	Digest Digest
}

// EncodeRecipe encodes the chunks of a file, at least two. It fails where the
// file has too many of them.
func EncodeRecipe(parts []Part) ([]byte, error) {
	total := uint64(0)
	for _, p := range parts {
		total += p.Length
	}
	b := header(nil, magicRecipe)
	b = binary.AppendUvarint(b, total)
	b = binary.AppendUvarint(b, uint64(len(parts)))
	for _, p := range parts {
		b = binary.AppendUvarint(b, p.Length)
		b = append(b, p.Digest[:]...)
	}
	if len(b) > MaxList || len(parts) < 2 {
		return nil, invalid("a file of %d chunks", len(parts))
	}
	return b, nil
}

// Tree is the content of a root object.
type Tree struct {
	Roots  []Entry // directories by name; the names are those of the roots
	Policy []byte  // how paths were chosen, as internal/ignore stores it
	Links  Content // the encoded table of hard links; empty where there are none
}

// EncodeRoot encodes t.
func EncodeRoot(t *Tree) ([]byte, error) {
	b := header(nil, magicRoot)
	b = binary.AppendUvarint(b, uint64(len(t.Roots)))
	for i := range t.Roots {
		if err := t.Roots[i].Check(); err != nil {
			return nil, err
		}
		b = AppendEntry(b, &t.Roots[i])
	}
	b = appendString(b, string(t.Policy))
	chunked := byte(0)
	if t.Links.Chunked {
		chunked = 1
	}
	b = append(b, chunked)
	b = appendContent(b, &t.Links)
	if _, err := DecodeRoot(b); err != nil {
		return nil, err
	}
	return b, nil
}

// EncodeLinks encodes groups of paths that are one file each. A path begins with
// the name of its root and has slashes between names. A group has at least two
// paths, in order; groups are in order of their first.
func EncodeLinks(groups [][]string) ([]byte, error) {
	b := header(nil, magicLinks)
	b = binary.AppendUvarint(b, uint64(len(groups)))
	for _, g := range groups {
		b = binary.AppendUvarint(b, uint64(len(g)))
		for _, path := range g {
			b = appendString(b, path)
		}
	}
	if _, err := DecodeLinks(b); err != nil {
		return nil, err
	}
	return b, nil
}
