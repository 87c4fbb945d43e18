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

// Bytes below minCompress are sent raw, and those that lose less than a sixteenth.
const minCompress = 128

var encoders = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true),
		zstd.WithAllLitEntropyCompression(true))
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

// Encoded is an object as it crosses the wire. Nothing says that its bytes are
// those that its digest names.
type Encoded struct {
	Digest   tree.Digest
	Kind     tree.Kind
	Encoding byte
	Length   int // of the object
	Bytes    []byte
}

var scratch = sync.Pool{New: func() any { return new([]byte) }}

// Append appends the frame of o.
func Append(b []byte, o tree.Object) []byte {
	e := Encoded{Digest: o.Digest, Kind: o.Kind, Encoding: Raw, Length: len(o.Bytes), Bytes: o.Bytes}
	if len(o.Bytes) < minCompress {
		return AppendEncoded(b, e)
	}
	small := scratch.Get().(*[]byte)
	defer scratch.Put(small)
	*small = encoders().EncodeAll(o.Bytes, (*small)[:0])
	if len(*small) < len(o.Bytes)-len(o.Bytes)/16 {
		e.Encoding, e.Bytes = Zstd, *small
	}
	return AppendEncoded(b, e)
}

// AppendEncoded appends the frame of an object that is encoded already.
func AppendEncoded(b []byte, e Encoded) []byte {
	b = append(b, e.Digest[:]...)
	b = append(b, byte(e.Kind), e.Encoding)
	b = binary.AppendUvarint(b, uint64(e.Length))
	b = binary.AppendUvarint(b, uint64(len(e.Bytes)))
	return append(b, e.Bytes...)
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
	if o, err = r.Unchecked(); err == nil && tree.Sum(o.Bytes) != o.Digest {
		err = &tree.CorruptError{Digest: o.Digest}
	}
	return o, err
}

// Unchecked is Next for a caller that compares bytes and digest itself.
func (r *Reader) Unchecked() (o tree.Object, err error) {
	e, err := r.Encoded()
	if err != nil {
		return o, err
	}
	o = tree.Object{Kind: e.Kind, Digest: e.Digest}
	o.Bytes, err = r.decode(e)
	return o, err
}

// Encoded returns the next object as it came. What it says of itself is within the
// limits of its kind; nothing else was looked at.
func (r *Reader) Encoded() (e Encoded, err error) {
	if _, err := io.ReadFull(r.r, e.Digest[:]); err != nil {
		return e, err
	}
	kind, err := r.r.ReadByte()
	if err != nil {
		return e, cut(err)
	}
	if e.Encoding, err = r.r.ReadByte(); err != nil {
		return e, cut(err)
	}
	if e.Kind = tree.Kind(kind); e.Kind < tree.Chunk || e.Kind > tree.Root {
		return e, fmt.Errorf("%w: kind %d", ErrInvalid, kind)
	}
	length, err := binary.ReadUvarint(r.r)
	if err != nil {
		return e, cut(err)
	}
	size, err := binary.ReadUvarint(r.r)
	if err != nil {
		return e, cut(err)
	}
	if most := uint64(tree.MaxBytes(e.Kind)); length > most || size > most {
		return e, fmt.Errorf("%w: an object of %d bytes, at most %d are allowed", ErrInvalid, max(length, size), most)
	}
	e.Length = int(length)
	if r.encoded, err = fill(r.r, r.encoded, int(size)); err != nil {
		return e, cut(err)
	}
	e.Bytes = r.encoded
	return e, nil
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

func (r *Reader) decode(e Encoded) ([]byte, error) {
	switch e.Encoding {
	case Raw:
		if len(e.Bytes) != e.Length {
			return nil, fmt.Errorf("%w: raw bytes of another length", ErrInvalid)
		}
		return e.Bytes, nil
	case Zstd:
		// The header bounds what is decoded: a bomb is refused before it goes off.
		var h zstd.Header
		if err := h.Decode(e.Bytes); err != nil || !h.HasFCS || h.FrameContentSize != uint64(e.Length) {
			return nil, fmt.Errorf("%w: compressed bytes of another length", ErrInvalid)
		}
		b, err := decoders().DecodeAll(e.Bytes, r.decoded[:0])
		if err != nil || len(b) != e.Length {
			return nil, fmt.Errorf("%w: bytes that cannot be decompressed", ErrInvalid)
		}
		r.decoded = b
		return b, nil
	}
	return nil, fmt.Errorf("%w: encoding %d", ErrInvalid, e.Encoding)
}
