// Package pktline reads and writes Git's pkt-line framing and multiplexes a
// response into side bands.
package pktline

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Limits of the format, in bytes.
const (
	MaxPacket = 65520         // a whole packet with its four-digit length
	MaxData   = MaxPacket - 4 // the payload of a packet
)

// Kind says what a packet is.
type Kind uint8

// The kinds of packet. All but Data are bare four-digit markers.
const (
	Data        Kind = iota // length 0004 and up: a payload, perhaps empty
	Flush                   // 0000: the end of a message
	Delim                   // 0001: the end of a section
	ResponseEnd             // 0002: the end of a stateless response
)

// String names the kind for error texts.
func (k Kind) String() string {
	switch k {
	case Data:
		return "data"
	case Flush:
		return "flush"
	case Delim:
		return "delimiter"
	case ResponseEnd:
		return "response end"
	}
	return "invalid"
}

// Packet is one packet as read.
type Packet struct {
	Kind Kind
	Data []byte // the payload of a Data packet; valid until the next call of Next
}

// Line returns the payload without its final newline, if it has one.
func (p Packet) Line() []byte { return bytes.TrimSuffix(p.Data, []byte("\n")) }

// ErrTruncated means that the input ended inside a packet, or inside a message:
// after a data or delimiter packet and before a flush or response-end packet.
var ErrTruncated = errors.New("pkt-line input ends too early")

// LengthError is a length field that the format does not allow: not four
// hexadecimal digits, 0003, or more than MaxPacket.
type LengthError struct{ Field [4]byte }

// Error says which field was refused.
func (e *LengthError) Error() string {
	return fmt.Sprintf("invalid pkt-line length %q, want four hexadecimal digits of at most %d", e.Field[:], MaxPacket)
}

// Reader reads packets. It never reads past the packet that it returns, so
// what follows the packets can be read from the same input; give it a buffered
// input when single reads are expensive.
type Reader struct {
	in   io.Reader
	buf  []byte
	open bool // a message has begun and not ended
}

// NewReader returns a Reader of the packets in in.
func NewReader(in io.Reader) *Reader { return &Reader{in: in} }

// Next reads one packet. At the end of the input it returns io.EOF between
// messages and ErrTruncated elsewhere; *LengthError tells a bad length.
// Errors of the input are wrapped.
func (r *Reader) Next() (Packet, error) {
	var field [4]byte
	if cap(r.buf) < len(field) {
		r.buf = make([]byte, 0, 512)
	}
	head := r.buf[:len(field)]
	if n, err := io.ReadFull(r.in, head); err != nil {
		if err == io.EOF && n == 0 && !r.open {
			return Packet{}, io.EOF
		}
		return Packet{}, readError(err)
	}
	copy(field[:], head)
	size, ok := parseLength(field)
	if !ok || size == 3 || size > MaxPacket {
		return Packet{}, &LengthError{field}
	}
	if size < len(field) {
		kind := [...]Kind{Flush, Delim, ResponseEnd}[size]
		r.open = kind == Delim
		return Packet{Kind: kind}, nil
	}
	size -= len(field)
	if cap(r.buf) < size {
		r.buf = make([]byte, 0, min(2*size, MaxData))
	}
	data := r.buf[:size]
	if _, err := io.ReadFull(r.in, data); err != nil {
		return Packet{}, readError(err)
	}
	r.open = true
	return Packet{Kind: Data, Data: data}, nil
}

// readError turns an early end into ErrTruncated and wraps other errors.
func readError(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return ErrTruncated
	}
	return fmt.Errorf("read pkt-line: %w", err)
}

// parseLength reads four hexadecimal digits of either case.
func parseLength(field [4]byte) (size int, ok bool) {
	for _, c := range field {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		size = size<<4 | int(c)
	}
	return size, true
}
