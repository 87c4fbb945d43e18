package sqlstore

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/meta"
)

// storedID returns an object id as it is stored; the zero id is empty.
func storedID(id object.ID) []byte {
	if id.IsZero() {
		return []byte{}
	}
	return id[:]
}

// idOf reads a stored object id.
func idOf(b []byte) (object.ID, error) {
	var id object.ID
	if len(b) != 0 && len(b) != len(id) {
		return id, fmt.Errorf("stored object id %x has %d bytes: %w", b, len(b), meta.ErrCorrupt)
	}
	copy(id[:], b)
	return id, nil
}

// storedIDs packs object ids: a length byte, then ids of that length.
func storedIDs(ids []object.ID) []byte {
	if len(ids) == 0 {
		return []byte{}
	}
	b := make([]byte, 1, 1+len(ids)*object.Size)
	b[0] = object.Size
	for _, id := range ids {
		b = append(b, id[:]...)
	}
	return b
}

// idsOf unpacks object ids.
func idsOf(b []byte) ([]object.ID, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != object.Size || (len(b)-1)%object.Size != 0 {
		return nil, fmt.Errorf("stored list of object ids (%d bytes) is malformed: %w", len(b), meta.ErrCorrupt)
	}
	ids := make([]object.ID, (len(b)-1)/object.Size)
	for i := range ids {
		copy(ids[i][:], b[1+i*object.Size:])
	}
	return ids, nil
}

// storedPacks packs the pack ids of a set, 8 bytes each, big endian.
func storedPacks(ids []meta.PackID) []byte {
	b := make([]byte, 0, 8*len(ids))
	for _, id := range ids {
		b = binary.BigEndian.AppendUint64(b, uint64(id))
	}
	return b
}

// packsOf unpacks the pack ids of a set.
func packsOf(b []byte) ([]meta.PackID, error) {
	if len(b)%8 != 0 {
		return nil, fmt.Errorf("stored pack set has %d bytes: %w", len(b), meta.ErrCorrupt)
	}
	ids := make([]meta.PackID, len(b)/8)
	for i := range ids {
		ids[i] = meta.PackID(binary.BigEndian.Uint64(b[8*i:]))
	}
	return ids, nil
}

// spaceOf hashes the first two components of a ref name ("refs/heads/"). ok is
// false for a prefix that does not fix both.
func spaceOf(name string) (space int64, ok bool) {
	first := strings.IndexByte(name, '/')
	second := strings.IndexByte(name[first+1:], '/')
	if first < 0 || second < 0 {
		return 0, false
	}
	return int64(crc32.ChecksumIEEE([]byte(name[:first+1+second+1])) & 0x7fff), true
}

// kindNumber is a floor's kind as it is stored.
var kindNumber = map[meta.FloorKind]int64{
	meta.FloorOrg: 1, meta.FloorRepo: 2, meta.FloorRef: 3, meta.FloorThread: 4, meta.FloorSubject: 5,
}

// kindOf is the inverse of kindNumber.
var kindOf = map[int64]meta.FloorKind{
	1: meta.FloorOrg, 2: meta.FloorRepo, 3: meta.FloorRef, 4: meta.FloorThread, 5: meta.FloorSubject,
}

// prefixEnd returns the least string that sorts after every string with the
// prefix, and false when there is none.
func prefixEnd(prefix string) (string, bool) {
	b := []byte(prefix)
	for len(b) > 0 {
		if b[len(b)-1] < 0xff {
			b[len(b)-1]++
			return string(b), true
		}
		b = b[:len(b)-1]
	}
	return "", false
}

// maxIn is the largest number of values of one IN list.
const maxIn = 512

// inList returns placeholders for n values that begin at $first, and the number
// of placeholders: n rounded up, so that few statements need preparing. The
// caller repeats its last value.
func inList(first, n int) (string, int) {
	size := 1
	for size < n {
		size *= 4
	}
	var b strings.Builder
	for i := range size {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "$%d", first+i)
	}
	return b.String(), size
}

// inArgs appends values to args, repeating the last up to size.
func inArgs[T any](args []any, values []T, size int) []any {
	for i := range size {
		args = append(args, values[min(i, len(values)-1)])
	}
	return args
}
