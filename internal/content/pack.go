package content

import (
	"encoding/binary"

	"github.com/cairnstate/cairn/internal/frame"
	"github.com/cairnstate/cairn/internal/tree"
)

// A pack is a header, groups of objects, a table of the objects, and a trailer.
const (
	packMagic   = "CPK2"
	packHeader  = 8  // magic, flags, three zeros
	packTrailer = 16 // where the table begins, CRC-32C of that, magic

	packTarget  = 64 << 20 // bytes after which a pack is full
	packObjects = 1 << 17  // objects after which it is
)

// header begins a pack. Bit 7 of the flags is kept for encrypted packs.
func header() []byte { return append([]byte(packMagic), 0, 0, 0, 0) }

func trailer(tableAt int64) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(tableAt))
	b = binary.BigEndian.AppendUint32(b, checksum(b))
	return append(b, packMagic...)
}

// parseTrailer returns where the table of a pack of size bytes begins.
func parseTrailer(b []byte, size int64) (int64, error) {
	if len(b) != packTrailer || string(b[12:]) != packMagic || binary.BigEndian.Uint32(b[8:]) != checksum(b[:8]) {
		return 0, damaged("a pack without a trailer")
	}
	at := binary.BigEndian.Uint64(b)
	if at < packHeader || at > uint64(size-packTrailer) {
		return 0, damaged("a pack of %d bytes with its table at %d", size, at)
	}
	return int64(at), nil
}

// appendGroup appends a group as it is stored: the encoding, the number of its
// objects, the kind and length of each, the length of what follows, and that. The
// digests are in the table, and in the bytes.
func appendGroup(b []byte, g *frame.Group) []byte {
	b = append(b, g.Encoding)
	b = binary.AppendUvarint(b, uint64(len(g.Members)))
	for i := range g.Members {
		b = append(b, byte(g.Members[i].Kind))
		b = binary.AppendUvarint(b, uint64(g.Members[i].Length))
	}
	b = binary.AppendUvarint(b, uint64(len(g.Bytes)))
	return append(b, g.Bytes...)
}

// groupHeader is up to how long what comes before the bytes of a group is.
const groupHeader = 1 + 2*binary.MaxVarintLen32 + frame.MaxObjects*(1+binary.MaxVarintLen32)

// parseGroup reads what comes before the bytes of a group, whose objects have no
// digests then, and returns how many bytes follow, and where they begin.
func parseGroup(b []byte) (g frame.Group, stored, begins int, err error) {
	bad := func() (frame.Group, int, int, error) { return g, 0, 0, damaged("a group without a header") }
	if len(b) == 0 {
		return bad()
	}
	g.Encoding = b[0]
	at := 1
	number := func(most uint64) (int, bool) {
		n, size := binary.Uvarint(b[at:])
		if size <= 0 || n > most {
			return 0, false
		}
		at += size
		return int(n), true
	}
	count, ok := number(frame.MaxObjects)
	if !ok || count == 0 {
		return bad()
	}
	for range count {
		if at == len(b) {
			return bad()
		}
		m := frame.Member{Kind: tree.Kind(b[at])}
		at++
		if m.Length, ok = number(tree.MaxList); !ok || m.Kind < tree.Chunk || m.Kind > tree.Root {
			return bad()
		}
		g.Members = append(g.Members, m)
		g.Length += m.Length
	}
	if stored, ok = number(tree.MaxList); !ok {
		return bad()
	}
	// Only the length of the bytes is looked at.
	if len(g.Members) > 1 && g.Length > frame.MaxGroup || frame.CheckEncoding(g.Encoding, stored, g.Length) != nil {
		return bad()
	}
	return g, stored, at, nil
}

const (
	// keepFrom is how many bytes a group must have to be kept as it came: smaller ones
	// are put together with others.
	keepFrom = 64 << 10
	// keepShare is how much of a group, as 1 of so many bytes, may be there in vain when
	// it is kept as it came.
	keepShare = 16
)

// keeps reports whether a group of which so many bytes are wanted is kept as it is.
// Otherwise what is wanted is taken out and put together anew.
func keeps(encoding byte, stored, length, wanted int) bool {
	return encoding == frame.Zstd && length >= keepFrom && length-wanted <= length/keepShare && frame.Pays(stored, length)
}
