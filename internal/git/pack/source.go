package pack

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/zlib"
)

// source is the pack being received. What is consumed of it is hashed and
// written to the storage when the buffer is refilled.
type source struct {
	ctx   context.Context
	r     io.Reader
	w     io.Writer
	limit int64 // most bytes of the pack

	buf     []byte
	pos     int   // next byte to consume
	flushed int   // buf[flushed:pos] is neither hashed nor written
	marked  int   // buf[marked:pos] is not yet in crc
	before  int64 // offset in the pack of buf[0]
	crc     uint32
	sum     hash.Hash
	part    []byte // for inflateStream
	err     error  // what r or w failed with; io.EOF at r's end
}

// sourceBuffer is the size of a source's buffer.
const sourceBuffer = 256 << 10

var sourceBuffers = sync.Pool{New: func() any { return new([sourceBuffer]byte) }}

func newSource(ctx context.Context, r io.Reader, w io.Writer, limit int64) (s *source, release func()) {
	array := sourceBuffers.Get().(*[sourceBuffer]byte)
	s = &source{ctx: ctx, r: r, w: w, limit: limit, buf: array[:0], sum: sha1.New()}
	return s, func() { sourceBuffers.Put(array) }
}

// offset returns where in the pack the next byte stands.
func (s *source) offset() int64 { return s.before + int64(s.pos) }

// available returns what can be consumed without reading.
func (s *source) available() []byte { return s.buf[s.pos:] }

func (s *source) advance(n int) { s.pos += n }

// flush hashes and writes what was consumed.
func (s *source) flush() error {
	part := s.buf[s.flushed:s.pos]
	s.crc = crc32.Update(s.crc, crc32.IEEETable, s.buf[s.marked:s.pos])
	s.flushed, s.marked = s.pos, s.pos
	s.sum.Write(part)
	if _, err := s.w.Write(part); err != nil {
		s.err = &IOError{"write pack", err}
		return s.err
	}
	return nil
}

// more reads at least one more byte behind those available. At the end of the
// input the error is io.EOF.
func (s *source) more() error {
	if s.err != nil {
		return s.err
	}
	if s.err = s.ctx.Err(); s.err != nil {
		return s.err
	}
	if err := s.flush(); err != nil {
		return err
	}
	s.before += int64(s.pos)
	n := copy(s.buf[:cap(s.buf)], s.buf[s.pos:])
	s.buf, s.pos, s.flushed, s.marked = s.buf[:n], 0, 0, 0
	for range 100 {
		n, err := s.r.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+n]
		if size := s.before + int64(len(s.buf)); size > s.limit {
			s.err = &LimitError{"pack size in bytes", uint64(size), uint64(s.limit)}
			return s.err
		}
		if n > 0 {
			return nil // an error comes again
		}
		if err == io.EOF {
			s.err = io.EOF
			return s.err
		}
		if err != nil {
			s.err = &IOError{"read pack", err}
			return s.err
		}
	}
	s.err = &IOError{"read pack", io.ErrNoProgress}
	return s.err
}

// need makes n bytes available; n is at most the buffer's size.
func (s *source) need(n int) error {
	for len(s.buf)-s.pos < n {
		if err := s.more(); err != nil {
			return s.fault(err)
		}
	}
	return nil
}

// fault names what went wrong while the pack was read: a failure of the input
// or storage as it is, anything else as a fault of the pack.
func (s *source) fault(err error) error {
	if s.err != nil && s.err != io.EOF {
		return s.err
	}
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) || err == errShort {
		return &FormatError{s.offset(), "pack is cut short"}
	}
	return &FormatError{s.offset(), err.Error()}
}

// startEntry begins a CRC.
func (s *source) startEntry() { s.crc, s.marked = 0, s.pos }

// endEntry returns the CRC of what was consumed since startEntry.
func (s *source) endEntry() uint32 {
	s.crc = crc32.Update(s.crc, crc32.IEEETable, s.buf[s.marked:s.pos])
	s.marked = s.pos
	return s.crc
}

// ReadByte consumes a byte, for the streaming decoder.
func (s *source) ReadByte() (byte, error) {
	if s.pos == len(s.buf) {
		if err := s.more(); err != nil {
			return 0, err
		}
	}
	c := s.buf[s.pos]
	s.pos++
	return c, nil
}

// Read consumes bytes, for the streaming decoder.
func (s *source) Read(p []byte) (int, error) {
	if s.pos == len(s.buf) {
		if err := s.more(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.buf[s.pos:])
	s.pos += n
	return n, nil
}

// inflateTo consumes a zlib stream that must fill dst exactly.
func (s *source) inflateTo(dst []byte) error {
	n, err := inflate(dst, s.available())
	if err == nil {
		s.advance(n)
		return nil
	}
	if err != errShort {
		return s.fault(err)
	}
	return s.inflateStream(int64(len(dst)), func(part []byte) error {
		dst = dst[copy(dst, part):]
		return nil
	})
}

// streamPart is the most that inflateStream inflates at a time.
const streamPart = 128 << 10

// inflateStream consumes a zlib stream of exactly size bytes and passes it on
// part by part. A part is valid only during the call.
func (s *source) inflateStream(size int64, yield func(part []byte) error) error {
	z := zlibReaders.Get().(*zlibReader)
	defer func() {
		// Let go of s before the decoder waits in the pool.
		z.src.Reset(strings.NewReader(emptyZlib))
		if z.Reset() == nil {
			zlibReaders.Put(z)
		}
	}()
	if err := z.r.(zlib.Resetter).Reset(s, nil); err != nil {
		return s.fault(err)
	}
	if room := int(min(size, streamPart-1) + 1); len(s.part) < room {
		s.part = make([]byte, room)
	}
	for left := size; ; {
		n, err := z.r.Read(s.part)
		if left -= int64(n); left < 0 || err == io.EOF && left > 0 {
			return s.fault(errSize)
		}
		if n > 0 {
			if err := yield(s.part[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return s.fault(err)
		}
	}
}

// trailing reports whether anything follows the pack.
func (s *source) trailing() (bool, error) {
	if len(s.available()) > 0 {
		return true, nil
	}
	err := s.more()
	if err == io.EOF {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for data after the pack: %w", err)
	}
	return true, nil
}
