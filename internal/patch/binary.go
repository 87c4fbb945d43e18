package patch

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"io"
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
		head, err := s.content()
		if err != nil {
			return err
		}
		made := int64(size)
		if kind == "delta" {
			result, err := deltaResult(head)
			if err != nil {
				return malformed("the binary patch before line %d is broken", s.number)
			}
			if made += result; made < 0 || result < 0 {
				made = maxInflated + 1
			}
		}
		if made > maxInflated || s.inflated > maxInflated-made {
			return &task.LimitError{What: "bytes in binary files", Limit: maxInflated}
		}
		s.inflated += made
		s.cur.bytes += made
	}
	return nil
}

// content reads lines to the blank one at their end and returns the beginning of
// what they decode to.
func (s *scanner) content() ([]byte, error) {
	const most = 4 << 10
	var head []byte
	for {
		line, err := s.line()
		if errors.Is(err, io.EOF) {
			return nil, malformed("it ends in the middle of a binary file, after line %d", s.number)
		}
		if err != nil {
			return nil, err
		}
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(line) == 0 {
			return head, nil
		}
		if len(head) < most {
			var ok bool
			if head, ok = base85(head, line); !ok {
				return nil, malformed("line %d is no binary content", s.number)
			}
		}
	}
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

// deltaResult returns the length in bytes of what a delta makes, whose beginning
// is given, compressed.
func deltaResult(head []byte) (int64, error) {
	z, err := zlib.NewReader(bytes.NewReader(head))
	if err != nil {
		return 0, err
	}
	r := bufio.NewReader(z)
	if _, err := binary.ReadUvarint(r); err != nil {
		return 0, err
	}
	n, err := binary.ReadUvarint(r)
	return int64(n), err
}
