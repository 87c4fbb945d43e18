package delta

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// Stream applies a delta that is read bit by bit to a base that is read where
// the delta says, so that neither they nor the result need memory.
type Stream struct {
	base     io.ReaderAt
	baseSize int64
	d        *bufio.Reader
	read     int // bytes of the delta read so far
	result   uint64
	buf      []byte
}

// streamBuffer is how much of the base is copied at a time.
const streamBuffer = 64 << 10

// NewStream reads the header of the delta d, made for base. Errors of the delta
// are *Error; others are d's.
func NewStream(base io.ReaderAt, baseSize int64, d *bufio.Reader) (*Stream, error) {
	s := &Stream{base: base, baseSize: baseSize, d: d, buf: make([]byte, streamBuffer)}
	want, err := s.size()
	if err != nil {
		return nil, err
	}
	if want != uint64(baseSize) {
		return nil, &Error{0, fmt.Sprintf("made for a base of %d bytes, but the base has %d", want, baseSize)}
	}
	s.result, err = s.size()
	return s, err
}

// ResultSize returns the length of the result that the delta's header states.
func (s *Stream) ResultSize() uint64 { return s.result }

// next reads one byte of the delta.
func (s *Stream) next() (byte, error) {
	c, err := s.d.ReadByte()
	if err == nil {
		s.read++
	}
	return c, err
}

// cut turns the end of the delta into an *Error.
func (s *Stream) cut(err error, what string) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &Error{s.read, what + " is cut short"}
	}
	return err
}

func (s *Stream) size() (uint64, error) {
	var head [10]byte
	for i := range head {
		c, err := s.next()
		if err != nil {
			return 0, s.cut(err, "header")
		}
		head[i] = c
		if c&0x80 == 0 {
			v, _, err := size(head[:i+1], 0)
			return v, err
		}
	}
	return 0, &Error{s.read, "length is over 64 bits"}
}

// WriteResult writes the result to w. Errors of the delta are *Error; others
// are those of the base, the delta's reader or w.
func (s *Stream) WriteResult(w io.Writer) error {
	left := s.result
	for {
		start := s.read
		op, err := s.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		var src io.Reader
		var length int
		switch {
		case op&0x80 != 0:
			off, n, err := s.copyArgs(op)
			if err != nil {
				return err
			}
			if int64(off)+int64(n) > s.baseSize {
				return &Error{start, fmt.Sprintf("copies bytes %d to %d of a base of %d", off, off+n, s.baseSize)}
			}
			src, length = io.NewSectionReader(s.base, int64(off), int64(n)), n
		case op != 0:
			src, length = s.d, int(op)
			s.read += length
		default:
			return &Error{start, "reserved instruction 0"}
		}
		if uint64(length) > left {
			return &Error{start, "result is longer than the header says"}
		}
		left -= uint64(length)
		if err := s.transfer(w, src, length); err != nil {
			return err
		}
	}
	if left > 0 || s.read < minLen {
		return &Error{s.read, fmt.Sprintf("result has %d bytes, but the header says %d", s.result-left, s.result)}
	}
	return nil
}

// copyArgs reads the arguments of the copy opcode op.
func (s *Stream) copyArgs(op byte) (off, length int, err error) {
	var args [7]byte
	n := 0
	for bit := range 7 {
		if op&(1<<bit) == 0 {
			continue
		}
		if args[n], err = s.next(); err != nil {
			return 0, 0, s.cut(err, "copy instruction")
		}
		n++
	}
	off, length, _, _ = copyArgs(args[:n], 0, op)
	return off, length, nil
}

// transfer moves length bytes from src to w.
func (s *Stream) transfer(w io.Writer, src io.Reader, length int) error {
	for length > 0 {
		part := s.buf[:min(length, len(s.buf))]
		if _, err := io.ReadFull(src, part); err != nil {
			return s.cut(err, "copied data")
		}
		if _, err := w.Write(part); err != nil {
			return err
		}
		length -= len(part)
	}
	return nil
}
