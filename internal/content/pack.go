package content

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/cairnstate/cairn/internal/tree"
)

// A pack is a header, objects, a table of them, and a trailer.
const (
	packMagic   = "CPK1"
	packHeader  = 8  // magic, flags, three zeros
	packTrailer = 16 // where the table begins, CRC-32C of that, magic
	entryHeader = 2 + 2*binary.MaxVarintLen32

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

// appendEntry appends an object as it is stored: its header, then its bytes.
func appendEntry(b []byte, e *encoded) []byte {
	b = append(b, byte(e.kind), byte(e.enc))
	b = binary.AppendUvarint(b, uint64(e.raw))
	b = binary.AppendUvarint(b, uint64(len(e.bytes)))
	return append(b, e.bytes...)
}

// parseEntry reads the header of an object and returns how many bytes the object
// is stored in, and where they begin.
func parseEntry(b []byte) (e encoded, length, begins int, err error) {
	if len(b) < 2 || encoding(b[1]) > encZstd || b[0] < byte(tree.Chunk) || b[0] > byte(tree.Root) {
		return e, 0, 0, damaged("an object without a header")
	}
	e.kind, e.enc = tree.Kind(b[0]), encoding(b[1])
	raw, n := binary.Uvarint(b[2:])
	if n <= 0 || raw > tree.MaxList {
		return e, 0, 0, damaged("an object with a wrong length")
	}
	stored, m := binary.Uvarint(b[2+n:])
	if m <= 0 || stored > 2*tree.MaxList || e.enc == encRaw && raw != stored {
		return e, 0, 0, damaged("an object with a wrong length")
	}
	e.raw = int(raw)
	return e, int(stored), 2 + n + m, nil
}

// encoded is an object as it is stored.
type encoded struct {
	digest tree.Digest
	kind   tree.Kind
	enc    encoding
	raw    int
	bytes  []byte
}

const (
	sampleFrom = 16 << 10 // from this size on a sample is tried first
	sampleSize = 4 << 10
	samples    = 3
)

// codec compresses and decompresses. Its methods may be called by one goroutine.
type codec struct {
	enc    *zstd.Encoder
	dec    *zstd.Decoder
	sample []byte
	plain  []byte
}

var codecs = sync.Pool{New: func() any {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true), zstd.WithAllLitEntropyCompression(true),
		zstd.WithSingleSegment(true))
	if err != nil {
		panic(fmt.Sprintf("content: %v", err)) // the options are constants
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(tree.MaxLinks), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(fmt.Sprintf("content: %v", err))
	}
	return &codec{enc: enc, dec: dec}
}}

// pays reports whether so much was saved that reading is worth the work.
func pays(stored, raw int) bool { return stored <= raw-raw/16 }

// compress appends b to dst in the encoding in which it is stored. Large objects
// are tried on a sample, so that what cannot be compressed costs little.
func (c *codec) compress(dst, b []byte) ([]byte, encoding) {
	if len(b) >= sampleFrom && !c.promising(b) {
		return append(dst, b...), encRaw
	}
	start := len(dst)
	dst = c.enc.EncodeAll(b, dst)
	if pays(len(dst)-start, len(b)) {
		return dst, encZstd
	}
	return append(dst[:start], b...), encRaw
}

func (c *codec) promising(b []byte) bool {
	total := 0
	for i := range samples {
		at := (len(b) - sampleSize) / (samples - 1) * i
		c.sample = c.enc.EncodeAll(b[at:at+sampleSize], c.sample[:0])
		total += len(c.sample)
		if pays(len(c.sample), sampleSize) {
			return true
		}
	}
	return pays(total, samples*sampleSize)
}

// errLength says that an object does not have the length that was said.
var errLength = errors.New("its length is not the one that is stored")

// decompress appends the raw bytes of e to dst.
func (c *codec) decompress(dst []byte, e *encoded) ([]byte, error) {
	if e.enc == encRaw {
		if len(e.bytes) != e.raw {
			return dst, errLength
		}
		return append(dst, e.bytes...), nil
	}
	start := len(dst)
	dst = slices.Grow(dst, e.raw)
	// No more than the announced length is ever written.
	out, err := c.dec.DecodeAll(e.bytes, dst[:start:start+e.raw])
	if err != nil {
		return dst, err
	}
	if len(out)-start != e.raw {
		return dst, errLength
	}
	return out, nil
}
