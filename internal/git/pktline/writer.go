package pktline

import (
	"errors"
	"fmt"
	"io"
)

// ErrTooLong means that a payload does not fit into one packet.
var ErrTooLong = errors.New("pkt-line payload is too long")

// Writer writes packets, each with a single Write. It keeps nothing back: to
// gather small packets, give it a buffered output.
type Writer struct {
	out io.Writer
	buf []byte
}

// NewWriter returns a Writer of packets to out.
func NewWriter(out io.Writer) *Writer {
	return &Writer{out: out, buf: make([]byte, 4, 512)}
}

// WriteData writes p as one data packet, as it is. The error is ErrTooLong
// when p is longer than MaxData; errors of the output are returned as they are.
func (w *Writer) WriteData(p []byte) error {
	w.buf = append(w.buf[:4], p...)
	return w.send()
}

// WriteString writes s as one data packet, with a newline added if it does not
// end in one.
func (w *Writer) WriteString(s string) error {
	w.buf = append(w.buf[:4], s...)
	return w.sendLine()
}

// Printf writes formatted text as WriteString does.
func (w *Writer) Printf(format string, args ...any) error {
	w.buf = fmt.Appendf(w.buf[:4], format, args...)
	return w.sendLine()
}

// Flush writes a flush packet, the end of a message.
func (w *Writer) Flush() error { return w.marker("0000") }

// Delim writes a delimiter packet, the end of a section.
func (w *Writer) Delim() error { return w.marker("0001") }

// ResponseEnd writes a response-end packet.
func (w *Writer) ResponseEnd() error { return w.marker("0002") }

// sendLine ends the gathered payload with a newline and sends it.
func (w *Writer) sendLine() error {
	if n := len(w.buf); n == 4 || w.buf[n-1] != '\n' {
		w.buf = append(w.buf, '\n')
	}
	return w.send()
}

// send writes the packet whose payload stands in buf behind four free bytes.
func (w *Writer) send() error {
	if len(w.buf) > MaxPacket {
		err := fmt.Errorf("%w: %d bytes, at most %d", ErrTooLong, len(w.buf)-4, MaxData)
		w.buf = make([]byte, 4, 512)
		return err
	}
	putLength(w.buf, len(w.buf))
	_, err := w.out.Write(w.buf)
	return err
}

// marker writes a packet without payload.
func (w *Writer) marker(digits string) error {
	w.buf = append(w.buf[:0], digits...)
	_, err := w.out.Write(w.buf)
	return err
}

// putLength writes the length of a whole packet to its first four bytes.
func putLength(packet []byte, size int) {
	const digits = "0123456789abcdef"
	packet[0], packet[1] = digits[size>>12&15], digits[size>>8&15]
	packet[2], packet[3] = digits[size>>4&15], digits[size&15]
}
