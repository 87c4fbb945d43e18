// Package frame puts objects together in groups that are compressed as one, and
// reads and writes streams of groups as they cross the wire. Small files are much
// alike: together they take half of what they take apart.
//
// A group on the wire is a version (1 byte), the encoding (1), the number of its
// objects (uvarint), for each the digest (32), the kind (1) and the length
// (uvarint), then the length of what follows (uvarint), and the bytes of all
// objects, one after the other, so encoded: as they are, or as one zstd frame whose
// header states their length.
package frame

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cairnstate/cairn/internal/tree"
)

// Version of the stream.
const Version = 1

// Encodings of the bytes of a group. The numbers are sent and stored.
const (
	Raw  byte = 0
	Zstd byte = 1
)

// Limits of a group. One object may be larger than MaxGroup; it is alone then.
const (
	MaxGroup   = 1 << 20 // bytes of a group of several objects
	MaxObjects = 4096
)

// ErrInvalid is matched by errors about streams that no Writer wrote.
var ErrInvalid = errors.New("invalid stream of objects")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// Member is an object of a group.
type Member struct {
	Digest tree.Digest
	Kind   tree.Kind
	Length int
}

// Group are objects that are encoded together, in their order. Nothing says that
// their bytes are those that their digests name.
type Group struct {
	Members  []Member
	Encoding byte
	Length   int    // of all objects
	Bytes    []byte // so encoded
}

// Check reports what is impossible about a group, without a look at its bytes.
func (g *Group) Check() error {
	if n := len(g.Members); n < 1 || n > MaxObjects {
		return invalid("a group of %d objects", n)
	}
	total := 0
	for i := range g.Members {
		m := &g.Members[i]
		if m.Kind < tree.Chunk || m.Kind > tree.Root {
			return invalid("kind %d", m.Kind)
		}
		if m.Length < 0 || m.Length > tree.MaxBytes(m.Kind) {
			return invalid("an object of %d bytes, at most %d are allowed", m.Length, tree.MaxBytes(m.Kind))
		}
		total += m.Length
	}
	if total != g.Length || len(g.Members) > 1 && total > MaxGroup {
		return invalid("a group of %d bytes", total)
	}
	return CheckEncoding(g.Encoding, len(g.Bytes), total)
}

// CheckEncoding reports whether bytes of a length can have been stored in so many.
func CheckEncoding(encoding byte, stored, length int) error {
	switch {
	case encoding == Raw && stored == length, encoding == Zstd && stored > 0 && stored < length:
		return nil
	case encoding > Zstd:
		return invalid("encoding %d", encoding)
	}
	return invalid("%d bytes in %d", length, stored)
}

// AppendGroup appends a group as it crosses the wire.
func AppendGroup(b []byte, g *Group) []byte {
	b = append(b, Version, g.Encoding)
	b = binary.AppendUvarint(b, uint64(len(g.Members)))
	for i := range g.Members {
		m := &g.Members[i]
		b = append(b, m.Digest[:]...)
		b = append(b, byte(m.Kind))
		b = binary.AppendUvarint(b, uint64(m.Length))
	}
	b = binary.AppendUvarint(b, uint64(len(g.Bytes)))
	return append(b, g.Bytes...)
}

// Reader reads a stream. It holds one group, and trusts nothing.
type Reader struct {
	r     *bufio.Reader
	group Group
	plain []byte
	next  int // of the members of group
	at    int // where it begins in plain
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next object, whose bytes are those that its digest names and
// valid until the call after. It returns io.EOF at the end of the stream,
// io.ErrUnexpectedEOF where it is cut off, and *tree.CorruptError for an object
// with other bytes, after which the one behind it may be read.
func (r *Reader) Next() (o tree.Object, err error) {
	if r.next == len(r.group.Members) {
		g, err := r.Group()
		if err != nil {
			return o, err
		}
		if r.plain, err = Decompress(r.plain[:0], g.Encoding, g.Bytes, g.Length); err != nil {
			r.group.Members, r.next = r.group.Members[:0], 0
			return o, err
		}
		r.next, r.at = 0, 0
	}
	m := r.group.Members[r.next]
	o = tree.Object{Kind: m.Kind, Digest: m.Digest, Bytes: r.plain[r.at : r.at+m.Length]}
	r.next, r.at = r.next+1, r.at+m.Length
	if tree.Sum(o.Bytes) != o.Digest {
		return o, &tree.CorruptError{Digest: o.Digest}
	}
	return o, nil
}

// Group returns the next group as it came, valid until the call after. What it says
// of itself is possible; nothing else was looked at.
func (r *Reader) Group() (*Group, error) {
	g := &r.group
	g.Members, r.next = g.Members[:0], 0
	err := r.read(g)
	if err != nil {
		g.Members = g.Members[:0]
		return nil, err
	}
	r.next = len(g.Members) // Next goes on behind it
	return g, nil
}

func (r *Reader) read(g *Group) error {
	version, err := r.r.ReadByte()
	if err != nil {
		return err
	}
	if version != Version {
		return invalid("a group of version %d, this program knows version %d", version, Version)
	}
	if g.Encoding, err = r.r.ReadByte(); err != nil {
		return cut(err)
	}
	count, err := r.number(MaxObjects)
	if err != nil {
		return err
	}
	g.Length = 0
	for range count {
		var m Member
		if _, err := io.ReadFull(r.r, m.Digest[:]); err != nil {
			return cut(err)
		}
		kind, err := r.r.ReadByte()
		if err != nil {
			return cut(err)
		}
		m.Kind = tree.Kind(kind)
		if m.Length, err = r.number(tree.MaxList); err != nil {
			return err
		}
		g.Length += m.Length
		g.Members = append(g.Members, m)
	}
	stored, err := r.number(tree.MaxList)
	if err != nil {
		return err
	}
	// A group that is impossible is refused before its bytes are read.
	g.Bytes = g.Bytes[:0]
	if err := CheckEncoding(g.Encoding, stored, g.Length); err != nil {
		return err
	}
	if g.Bytes, err = fill(r.r, g.Bytes, stored); err != nil {
		return cut(err)
	}
	return g.Check()
}

// number reads a number that is not larger than most.
func (r *Reader) number(most int) (int, error) {
	n, err := binary.ReadUvarint(r.r)
	if err != nil {
		return 0, cut(err)
	}
	if n > uint64(most) {
		return 0, invalid("a length of %d, at most %d are allowed", n, most)
	}
	return int(n), nil
}

// cut says that a stream ends within a group. A number that does not end is no
// stream at all.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// step is how much room is made for what is announced before it arrives.
const step = 1 << 20

// fill reads n bytes into b, which grows with what arrives.
func fill(r io.Reader, b []byte, n int) ([]byte, error) {
	for len(b) < n {
		at := len(b)
		if to := min(n, at+step); to <= cap(b) {
			b = b[:to]
		} else {
			b = append(b, make([]byte, to-at)...)
		}
		if _, err := io.ReadFull(r, b[at:]); err != nil {
			return b, err
		}
	}
	return b, nil
}
