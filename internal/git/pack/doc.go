// Package pack reads, writes and indexes Git packs (versions 2 and 3, SHA-1)
// and their version 2 indexes. Whatever it reads may be hostile: sizes are
// checked before memory is taken, and chains of deltas are followed without
// recursion.
package pack

import (
	"encoding/binary"

	"github.com/cairnstate/cairn/internal/git/object"
)

// Entry types beside the four object types.
const (
	OFSDelta object.Type = 6 // a delta against the entry at an earlier offset
	REFDelta object.Type = 7 // a delta against the object with an ID
)

const (
	headerLen  = 12          // magic, version, count
	trailerLen = object.Size // SHA-1 of all that comes before
	magic      = "PACK"

	// maxEntryHeader is the longest entry header: a size of 64 bits in 10
	// bytes, then an ID.
	maxEntryHeader = 10 + object.Size
)

// appendHeader appends the header of a version 2 pack of count objects.
func appendHeader(dst []byte, count uint32) []byte {
	dst = append(dst, magic...)
	dst = binary.BigEndian.AppendUint32(dst, 2)
	return binary.BigEndian.AppendUint32(dst, count)
}

// parseHeader returns the object count of the pack header b, which has
// headerLen bytes. The fault, if any, is returned as text.
func parseHeader(b []byte) (count uint32, fault string) {
	if string(b[:4]) != magic {
		return 0, "does not start with PACK"
	}
	if v := binary.BigEndian.Uint32(b[4:]); v != 2 && v != 3 {
		return 0, "pack version is neither 2 nor 3"
	}
	return binary.BigEndian.Uint32(b[8:]), ""
}

// isDelta reports whether entries of type t are deltas.
func isDelta(t object.Type) bool { return t == OFSDelta || t == REFDelta }

// AppendEntryHeader appends the type and inflated size that begin an entry.
// For deltas AppendOfs or the base's ID follows.
func AppendEntryHeader(dst []byte, t object.Type, size uint64) []byte {
	c := byte(t)<<4 | byte(size&0x0f)
	for size >>= 4; size > 0; size >>= 7 {
		dst = append(dst, c|0x80)
		c = byte(size & 0x7f)
	}
	return append(dst, c)
}

// AppendOfs appends the distance in bytes from an OFSDelta entry back to its
// base.
func AppendOfs(dst []byte, distance uint64) []byte {
	var b [10]byte
	at := len(b) - 1
	b[at] = byte(distance & 0x7f)
	for distance >>= 7; distance > 0; distance >>= 7 {
		distance--
		at--
		b[at] = byte(distance&0x7f) | 0x80
	}
	return append(dst, b[at:]...)
}

// rawHeader is an entry header as it stands in a pack.
type rawHeader struct {
	typ      object.Type
	size     uint64    // inflated size of the entry's own data
	distance uint64    // OFSDelta: bytes back to the base
	base     object.ID // REFDelta: the base
	length   int       // bytes of the header itself
}

// parseEntryHeader decodes the header at the start of b. If b ends too early
// short is true; any other fault is returned as text.
func parseEntryHeader(b []byte) (h rawHeader, short bool, fault string) {
	if len(b) == 0 {
		return h, true, ""
	}
	c := b[0]
	h.typ = object.Type(c >> 4 & 7)
	h.size = uint64(c & 0x0f)
	n := 1
	for shift := uint(4); c&0x80 != 0; shift += 7 {
		if n >= len(b) {
			return h, true, ""
		}
		c = b[n]
		n++
		if shift > 57 && (shift > 63 || (c&0x7f)>>(64-shift) != 0) {
			return h, false, "entry size is over 64 bits"
		}
		h.size |= uint64(c&0x7f) << shift
	}
	switch h.typ {
	case object.Commit, object.Tree, object.Blob, object.Tag:
	case OFSDelta:
		used, short, fault := h.parseOfs(b[n:])
		if short || fault != "" {
			return h, short, fault
		}
		n += used
	case REFDelta:
		if len(b)-n < object.Size {
			return h, true, ""
		}
		n += copy(h.base[:], b[n:])
	default:
		return h, false, "entry type is unknown"
	}
	h.length = n
	return h, false, ""
}

// parseOfs decodes the distance of an OFSDelta and returns its length.
func (h *rawHeader) parseOfs(b []byte) (n int, short bool, fault string) {
	for {
		if n >= len(b) {
			return n, true, ""
		}
		c := b[n]
		n++
		h.distance |= uint64(c & 0x7f)
		if c&0x80 == 0 {
			return n, false, ""
		}
		h.distance++
		if h.distance > 1<<55 {
			return n, false, "delta base offset is over 62 bits"
		}
		h.distance <<= 7
	}
}
