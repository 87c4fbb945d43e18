package tree

import (
	"encoding/binary"
	"math"
)

// Head is what an encoded entry says that the file system tells of it too.
type Head struct {
	Name     []byte // lies in the encoding
	Type     Type
	Mode     uint16
	Mtime    Time
	UID, GID uint32
	Mixed    bool
	Counts   Summary // what the entry adds to the summary of its directory
}

// DecodeHead reads the head of an entry that AppendEntry encoded. It takes no
// memory and looks at nothing behind the head: it is for encodings that one's own
// process has kept. It is not ok if b is cut off.
func DecodeHead(b []byte) (h Head, ok bool) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > MaxName || uint64(len(b)-k) < n+2 {
		return h, false
	}
	h.Name, b = b[k:k+int(n)], b[k+int(n):]
	h.Type = Type(b[0])
	h.Mixed = b[1]&flagMixed != 0
	b = b[2:]
	var v [5]uint64 // mode, seconds, nanoseconds, owner, group
	for i := range v {
		if v[i], k = binary.Uvarint(b); k <= 0 {
			return h, false
		}
		b = b[k:]
	}
	if v[0] > 0o7777 || v[2] > math.MaxUint32 || v[3] > math.MaxUint32 || v[4] > math.MaxUint32 {
		return h, false
	}
	h.Mode = uint16(v[0])
	h.Mtime = Time{Sec: int64(v[1]>>1) ^ -int64(v[1]&1), Nsec: uint32(v[2])}
	h.UID, h.GID = uint32(v[3]), uint32(v[4])
	h.Counts.Entries = 1
	switch h.Type {
	case File:
		h.Counts.Files = 1
		h.Counts.Bytes, k = binary.Uvarint(b)
		return h, k > 0
	case Directory:
		if len(b) < len(Digest{}) {
			return h, false
		}
		b = b[len(Digest{}):]
		var sum [3]uint64
		for i := range sum {
			if sum[i], k = binary.Uvarint(b); k <= 0 {
				return h, false
			}
			b = b[k:]
		}
		h.Counts = h.Counts.Plus(Summary{sum[0], sum[1], sum[2]})
	}
	return h, true
}
