package odb

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cairnstate/cairn/internal/git/delta"
	"github.com/cairnstate/cairn/internal/git/object"
	"github.com/cairnstate/cairn/internal/git/pack"
)

// rawEntry is one entry of a small pack while it is indexed.
type rawEntry struct {
	offset  int
	crc     uint32
	typ     object.Type
	base    int       // OFSDelta: offset of the base
	baseID  object.ID // REFDelta
	data    []byte    // own data, then content
	id      object.ID
	settled bool
}

// indexBytes computes the index of a complete pack in memory that Cairn wrote.
func indexBytes(data []byte, maxObject int64) (*pack.Index, error) {
	entries, err := scanPack(data, maxObject)
	if err != nil {
		return nil, err
	}
	if err := settle(entries, maxObject); err != nil {
		return nil, err
	}
	list := make([]pack.IndexEntry, len(entries))
	for i, e := range entries {
		list[i] = pack.IndexEntry{ID: e.id, Offset: int64(e.offset), CRC: e.crc}
	}
	return pack.ParseIndex(pack.BuildIndex(list, object.ID(data[len(data)-object.Size:])))
}

// scanPack reads all entries in order.
func scanPack(data []byte, maxObject int64) ([]rawEntry, error) {
	const header = 12
	if len(data) < header+object.Size || string(data[:4]) != "PACK" {
		return nil, fmt.Errorf("small pack of %d bytes has no header", len(data))
	}
	body := data[:len(data)-object.Size]
	count := int(binary.BigEndian.Uint32(data[8:]))
	if count > len(body) {
		return nil, fmt.Errorf("small pack of %d bytes claims %d objects", len(data), count)
	}
	entries := make([]rawEntry, count)
	at := header
	var z io.ReadCloser
	for i := range entries {
		e := &entries[i]
		e.offset = at
		size, n, err := e.parse(body[at:])
		if err != nil {
			return nil, err
		}
		if size > uint64(maxObject) {
			return nil, fmt.Errorf("entry at byte %d has %d bytes, over the limit of %d", at, size, maxObject)
		}
		src := bytes.NewReader(body[at+n:])
		if z == nil {
			z, err = zlib.NewReader(src)
		} else {
			err = z.(zlib.Resetter).Reset(src, nil)
		}
		if err == nil {
			var buf bytes.Buffer
			_, err = io.Copy(&buf, io.LimitReader(z, int64(size)+1))
			e.data = buf.Bytes()
		}
		if err != nil || uint64(len(e.data)) != size {
			return nil, fmt.Errorf("entry at byte %d does not inflate to its size: %w", at, err)
		}
		end := len(body) - src.Len()
		e.crc = crc32.ChecksumIEEE(body[at:end])
		at = end
	}
	if at != len(body) {
		return nil, fmt.Errorf("small pack has %d bytes after its last entry", len(body)-at)
	}
	return entries, nil
}

// parse decodes an entry's header and returns its size and length.
func (e *rawEntry) parse(b []byte) (size uint64, n int, err error) {
	bad := fmt.Errorf("entry at byte %d has a malformed header", e.offset)
	if len(b) == 0 {
		return 0, 0, bad
	}
	c := b[0]
	e.typ, size, n = object.Type(c>>4&7), uint64(c&15), 1
	for shift := 4; c&0x80 != 0; shift += 7 {
		if n == len(b) || shift > 56 {
			return 0, 0, bad
		}
		c = b[n]
		size |= uint64(c&0x7f) << shift
		n++
	}
	switch e.typ {
	case pack.OFSDelta:
		distance := 0
		for {
			if n == len(b) || distance > e.offset {
				return 0, 0, bad
			}
			c = b[n]
			n++
			distance |= int(c & 0x7f)
			if c&0x80 == 0 {
				break
			}
			distance = (distance + 1) << 7
		}
		e.base = e.offset - distance
	case pack.REFDelta:
		if len(b) < n+object.Size {
			return 0, 0, bad
		}
		n += copy(e.baseID[:], b[n:])
	case object.Commit, object.Tree, object.Blob, object.Tag:
	default:
		return 0, 0, bad
	}
	return size, n, nil
}

// settle resolves deltas and computes ids.
func settle(entries []rawEntry, maxObject int64) error {
	byOffset := make(map[int]*rawEntry, len(entries))
	byID := make(map[object.ID]*rawEntry, len(entries))
	for left := len(entries); left > 0; {
		before := left
		for i := range entries {
			e := &entries[i]
			if e.settled {
				continue
			}
			if e.typ == pack.OFSDelta || e.typ == pack.REFDelta {
				base := byOffset[e.base]
				if e.typ == pack.REFDelta {
					base = byID[e.baseID]
				}
				if base == nil {
					continue
				}
				content, err := delta.Apply(nil, base.data, e.data, maxObject)
				if err != nil {
					return fmt.Errorf("entry at byte %d: %w", e.offset, err)
				}
				e.typ, e.data = base.typ, content
			}
			e.id, e.settled = object.Hash(e.typ, e.data), true
			byOffset[e.offset], byID[e.id] = e, e
			left--
		}
		if left == before {
			return fmt.Errorf("%d deltas have no base in the pack", left)
		}
	}
	return nil
}
