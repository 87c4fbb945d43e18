// Package frame reads and writes streams of objects as they cross the wire: one
// frame for each, with its digest, kind and bytes, compressed where that helps.
//
// A frame is the digest (32 bytes), the kind (1), the encoding (1), the length of
// the bytes and that of what follows (uvarints), and the bytes so encoded: as they
// are, or as one zstd frame whose header states their length.
package frame

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/cairnstate/cairn/internal/tree"
)

// Encodings of bytes. The numbers are sent.
const (
	Raw  byte = 0
	Zstd byte = 1
)

// ErrInvalid is matched by errors about streams that no Writer wrote.
var ErrInvalid = errors.New("invalid stream of objects")

// Bytes below minCompress are sent raw, and those that lose less than an eighth.
const minCompress = 128

var encoders = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return e
})

var decoders = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(tree.MaxList), zstd.WithDecoderConcurrency(0))
	if err != nil {
		panic(err)
	}
	return d
})

// Append appends the frame of o.
func Append(b []byte, o tree.Object) []byte {
	b = append(b, o.Digest[:]...)
	encoding, data := Raw, o.Bytes
	if len(data) >= minCompress {
		if small := encoders().EncodeAll(data, nil); len(small) < len(data)-len(data)/8 {
			encoding, data = Zstd, small
		}
	}
	b = append(b, byte(o.Kind), encoding)
	b = binary.AppendUvarint(b, uint64(len(o.Bytes)))
	b = binary.AppendUvarint(b, uint64(len(data)))
	return append(b, data...)
}

// Reader reads a stream. It holds one object, and trusts nothing.
type Reader struct {
	r       *bufio.Reader
	encoded []byte
	decoded []byte
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next object, whose bytes are those that its digest names and
// valid until the call after. It returns io.EOF at the end of the stream,
// io.ErrUnexpectedEOF where it is cut off, and *tree.CorruptError for an object
// with other bytes.
func (r *Reader) Next() (o tree.Object, err error) {
	if _, err := io.ReadFull(r.r, o.Digest[:]); err != nil {
		return o, err
	}
	kind, err := r.r.ReadByte()
	if err != nil {
		return o, cut(err)
	}
	encoding, err := r.r.ReadByte()
	if err != nil {
		return o, cut(err)
	}
	if o.Kind = tree.Kind(kind); o.Kind < tree.Chunk || o.Kind > tree.Root {
		return o, fmt.Errorf("%w: kind %d", ErrInvalid, kind)
	}
	length, err := binary.ReadUvarint(r.r)
	if err != nil {
		return o, cut(err)
	}
	size, err := binary.ReadUvarint(r.r)
	if err != nil {
		return o, cut(err)
	}
	if most := uint64(tree.MaxBytes(o.Kind)); length > most || size > most {
		return o, fmt.Errorf("%w: an object of %d bytes, at most %d are allowed", ErrInvalid, max(length, size), most)
	}
	if r.encoded, err = fill(r.r, r.encoded, int(size)); err != nil {
		return o, cut(err)
	}
	if o.Bytes, err = r.decode(encoding, length); err != nil {
		return o, err
	}
	if tree.Sum(o.Bytes) != o.Digest {
		return o, &tree.CorruptError{Digest: o.Digest}
	}
	return o, nil
}

// cut says that a stream ends within a frame.
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
	b = b[:0]
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

func (r *Reader) decode(encoding byte, length uint64) ([]byte, error) {
	switch encoding {
	case Raw:
		if uint64(len(r.encoded)) != length {
			return nil, fmt.Errorf("%w: raw bytes of another length", ErrInvalid)
		}
		return r.encoded, nil
	case Zstd:
		// The header bounds what is decoded: a bomb is refused before it goes off.
		var h zstd.Header
		if err := h.Decode(r.encoded); err != nil || !h.HasFCS || h.FrameContentSize != length {
			return nil, fmt.Errorf("%w: compressed bytes of another length", ErrInvalid)
		}
		b, err := decoders().DecodeAll(r.encoded, r.decoded[:0])
		if err != nil || uint64(len(b)) != length {
			return nil, fmt.Errorf("%w: bytes that cannot be decompressed", ErrInvalid)
		}
		r.decoded = b
		return b, nil
	}
	return nil, fmt.Errorf("%w: encoding %d", ErrInvalid, encoding)
}
