package patch

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/cairnstate/cairn/internal/task"
)

// binary reads the contents of a binary file, for applying and perhaps for taking
// back, and counts what git makes of them: few bytes can stand for very many.
func (s *scanner) binary() error {
	for i := range 2 {
		line, err := s.line()
		if errors.Is(err, io.EOF) && i == 1 {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		kind, digits, _ := strings.Cut(string(line), " ")
		size, err := strconv.ParseUint(digits, 10, 63)
		if kind != "literal" && kind != "delta" || err != nil {
			if i == 1 {
				s.held = bytes.Clone(line)
				return nil
			}
			return malformed("line %d is no binary patch", s.number)
		}
		if size > maxInflated || s.inflated > maxInflated-int64(size) {
			return &task.LimitError{What: "bytes in binary files", Limit: maxInflated}
		}
		result, err := s.content(int64(size), kind == "delta")
		if err != nil {
			return err
		}
		made := int64(size) + result
		if result > maxInflated || s.inflated > maxInflated-made {
			return &task.LimitError{What: "bytes in binary files", Limit: maxInflated}
		}
		s.inflated += made
		s.cur.bytes += made
	}
	return nil
}

// content reads a binary content, to the blank line at its end. It has to inflate
// to size bytes: where one does not, git reads no further and applies what came
// before. result is the length in bytes of what a delta makes.
func (s *scanner) content(size int64, delta bool) (result int64, err error) {
	src := &contentReader{s: s}
	result, err = inflate(src, size, delta)
	if src.err == nil {
		_, _ = io.Copy(io.Discard, src) // git passes over what follows the stream
	}
	switch {
	case src.err != io.EOF:
		return 0, src.err
	case err != nil:
		return 0, malformed("the binary content before line %d is broken", s.number)
	}
	return result, nil
}

func inflate(src io.Reader, size int64, delta bool) (result int64, err error) {
	z, err := zlib.NewReader(src)
	if err != nil {
		return 0, err
	}
	counted := &countedReader{src: io.LimitReader(z, size+1)}
	r := bufio.NewReader(counted)
	if delta {
		if result, err = deltaResult(r); err != nil {
			return 0, err
		}
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return 0, err
	}
	if counted.n != size {
		return 0, errors.New("the content has another length")
	}
	return result, nil
}

// countedReader counts what is read.
type countedReader struct {
	src io.Reader
	n   int64
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.src.Read(p)
	r.n += int64(n)
	return n, err
}

// contentReader decodes the lines of a binary content; io.EOF is the blank one.
type contentReader struct {
	s    *scanner
	left []byte
	err  error
}

func (r *contentReader) Read(p []byte) (int, error) {
	for len(r.left) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		line, err := r.s.line()
		line = bytes.TrimSuffix(line, []byte("\r"))
		switch ok := true; {
		case errors.Is(err, io.EOF):
			r.err = malformed("it ends in the middle of a binary file, after line %d", r.s.number)
		case err != nil:
			r.err = err
		case len(line) == 0:
			r.err = io.EOF
		default:
			if r.left, ok = base85(r.left[:0], line); !ok {
				r.left, r.err = nil, malformed("line %d is no binary content", r.s.number)
			}
		}
	}
	n := copy(p, r.left)
	r.left = r.left[n:]
	return n, nil
}

// digits85 are the digits of git's base 85, by value.
const digits85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

// base85 appends what a line decodes to: a letter for its length, and groups of
// five digits for four bytes.
func base85(out, line []byte) ([]byte, bool) {
	n := 0
	switch c := line[0]; {
	case 'A' <= c && c <= 'Z':
		n = int(c-'A') + 1
	case 'a' <= c && c <= 'z':
		n = int(c-'a') + 27
	}
	line = line[1:]
	if n == 0 || len(line) != (n+3)/4*5 {
		return nil, false
	}
	for ; len(line) > 0; line = line[5:] {
		var v uint64
		for _, c := range line[:5] {
			d := strings.IndexByte(digits85, c)
			if d < 0 {
				return nil, false
			}
			v = v*85 + uint64(d)
		}
		if v > 1<<32-1 {
			return nil, false
		}
		group := binary.BigEndian.AppendUint32(nil, uint32(v))
		out = append(out, group[:min(n, 4)]...)
		n -= 4
	}
	return out, true
}

// deltaResult returns the length in bytes of what a delta makes.
func deltaResult(r io.ByteReader) (int64, error) {
	if _, err := binary.ReadUvarint(r); err != nil {
		return 0, err
	}
	n, err := binary.ReadUvarint(r)
	if n > math.MaxInt64 {
		n = math.MaxInt64
	}
	return int64(n), err
}
