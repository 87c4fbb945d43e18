package hostile_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"sync"
)

// bomb is the size of what bombs inflate to: more than the server may take.
const bomb = 320 << 20

// deflatedBomb is bomb zero bytes.
var deflatedBomb = sync.OnceValue(func() []byte { return zeros(bomb) })

// zeros deflates size zero bytes.
func zeros(size int64) []byte {
	var b bytes.Buffer
	deflater.Reset(&b)
	io.Copy(deflater, io.LimitReader(nothing{}, size))
	deflater.Close()
	return b.Bytes()
}

type nothing struct{}

func (nothing) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// entry is a raw entry whose head may lie.
func entry(kind int, claimed uint64, between []byte, deflated []byte) []byte {
	out := append(entryHead(kind, claimed), between...)
	return append(out, deflated...)
}

func raw(count uint32, entries ...[]byte) []byte {
	body := packHead(count)
	for _, e := range entries {
		body = append(body, e...)
	}
	return sealed(body)
}

func back(n uint64) []byte { // the offset of an ofs-delta
	out := []byte{byte(n & 0x7f)}
	for n >>= 7; n > 0; n >>= 7 {
		n--
		out = append([]byte{byte(n&0x7f) | 0x80}, out...)
	}
	return out
}

// copies is a delta of a base of size bytes that copies its first n bytes times times.
func copies(size, n, times uint64, claim uint64) []byte {
	d := append(varint(size), varint(claim)...)
	for range times {
		d = append(d, 0x80|0x10|0x20|0x40, byte(n), byte(n>>8), byte(n>>16))
	}
	return d
}

func doubling(levels int) []byte {
	base := bytes.Repeat([]byte("x"), 1<<16)
	entries := [][]byte{entry(blobEntry, 1<<16, nil, deflate(base))}
	size := uint64(1 << 16)
	at := len(entries[0])
	for range levels {
		d := append(varint(size), varint(2*size)...)
		for range 2 {
			for off := uint64(0); off < size; {
				n := min(size-off, 0xffffff)
				d = append(d, 0x80|0x7f, byte(off), byte(off>>8), byte(off>>16), byte(off>>24), byte(n), byte(n>>8), byte(n>>16))
				off += n
			}
		}
		e := entry(ofsEntry, uint64(len(d)), back(uint64(at)), deflate(d))
		entries = append(entries, e)
		at = len(e)
		size *= 2
	}
	return raw(uint32(len(entries)), entries...)
}

func chain(depth int) []byte {
	base := "start"
	entries := [][]byte{entry(blobEntry, uint64(len(base)), nil, deflate([]byte(base)))}
	at, size := len(entries[0]), len(base)
	for i := range depth {
		text := fmt.Sprintf("%08x", i)
		d := append(varint(uint64(size)), varint(uint64(len(text)))...)
		d = append(d, byte(len(text)))
		d = append(d, text...)
		size = len(text)
		e := entry(ofsEntry, uint64(len(d)), back(uint64(at)), deflate(d))
		entries = append(entries, e)
		at = len(e)
	}
	return raw(uint32(len(entries)), entries...)
}

func deepTrees(depth int) ([]byte, string) {
	b := blob("bottom")
	body := packHead(uint32(depth + 2))
	add := func(o object) {
		body = append(body, entryHead(o.kind, uint64(len(o.data)))...)
		body = append(body, deflate(o.data)...)
	}
	add(b)
	id, mode := b.id(), "100644 f"
	for range depth {
		t := tree(mode, id)
		add(t)
		id, mode = t.id(), "40000 d"
	}
	c := commit(id)
	add(c)
	return sealed(body), c.id()
}

// whole is an object as an entry.
func whole(o object) []byte { return entry(o.kind, uint64(len(o.data)), nil, deflate(o.data)) }

// zeroBlob is the id of a blob of size zero bytes.
func zeroBlob(size int64) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", size)
	io.Copy(h, io.LimitReader(nothing{}, size))
	return hex.EncodeToString(h.Sum(nil))
}
