package frame

import (
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/cairnstate/cairn/internal/tree"
)

const (
	minCompress = 128      // fewer bytes stay as they are
	sampleFrom  = 16 << 10 // from this size on a sample is tried first
	sampleSize  = 4 << 10
	samples     = 3
)

// The fastest level: on groups of source files the next one saves a twentieth and
// takes half as long again.
var encoders = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true),
		zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true), zstd.WithAllLitEntropyCompression(true))
	if err != nil {
		panic(fmt.Sprintf("frame: %v", err)) // the options are constants
	}
	return e
})

var decoders = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(tree.MaxList), zstd.WithDecoderConcurrency(0), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(fmt.Sprintf("frame: %v", err))
	}
	return d
})

// Pays reports whether so much was saved that reading is worth the work: a sixteenth.
func Pays(stored, length int) bool { return stored > 0 && stored <= length-length/16 }

// Compress appends b to dst, compressed if that pays, and returns how. What cannot be
// compressed costs little: a sample is tried first.
func Compress(dst, b []byte) ([]byte, byte) {
	if len(b) < minCompress || len(b) >= sampleFrom && !promising(b) {
		return append(dst, b...), Raw
	}
	start := len(dst)
	dst = encoders().EncodeAll(b, dst)
	if Pays(len(dst)-start, len(b)) {
		return dst, Zstd
	}
	return append(dst[:start], b...), Raw
}

var sampled = sync.Pool{New: func() any { return new([]byte) }}

func promising(b []byte) bool {
	s := sampled.Get().(*[]byte)
	defer sampled.Put(s)
	total := 0
	for i := range samples {
		at := (len(b) - sampleSize) / (samples - 1) * i
		*s = encoders().EncodeAll(b[at:at+sampleSize], (*s)[:0])
		total += len(*s)
		if Pays(len(*s), sampleSize) {
			return true
		}
	}
	return Pays(total, samples*sampleSize)
}

// Decompress appends the length bytes that b encodes to dst. It never writes more, so
// that a bomb does not go off; anything but exactly that is ErrInvalid.
func Decompress(dst []byte, encoding byte, b []byte, length int) ([]byte, error) {
	if err := CheckEncoding(encoding, len(b), length); err != nil {
		return dst, err
	}
	if encoding == Raw {
		return append(dst, b...), nil
	}
	var h zstd.Header
	if err := h.Decode(b); err != nil || h.Skippable || !h.HasFCS || h.FrameContentSize != uint64(length) || length > tree.MaxList || !one(b, &h) {
		return dst, invalid("compressed bytes of another length")
	}
	start := len(dst)
	dst = slices.Grow(dst, length)
	out, err := decoders().DecodeAll(b, dst[:start:start+length])
	if err != nil || len(out)-start != length {
		return dst, invalid("bytes that cannot be decompressed")
	}
	return out, nil
}

// one reports whether b is one zstd frame and nothing behind it: a decoder would go
// on with what follows.
func one(b []byte, h *zstd.Header) bool {
	for at := h.HeaderSize; at+3 <= len(b); {
		block := int(b[at]) | int(b[at+1])<<8 | int(b[at+2])<<16
		size := block >> 3
		if block>>1&3 == 1 { // one byte, again and again
			size = 1
		}
		if at += 3 + size; block&1 == 0 {
			continue
		}
		if h.HasCheckSum {
			at += 4
		}
		return at == len(b)
	}
	return false
}
