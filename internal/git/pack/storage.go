package pack

import (
	"errors"
	"io"
)

// Storage is where Receive puts the pack it receives: a file opened for reading
// and writing but not for appending, or a Buffer. Receive writes it in sequence
// and reads back what it wrote; WriteAt is used only to change the header.
type Storage interface {
	io.Writer
	io.ReaderAt
	io.WriterAt
}

// Scratch is a temporary file that disappears when it is closed.
type Scratch interface {
	io.Writer
	io.ReaderAt
	io.Closer
}

// Buffer is a Storage in memory, for small packs. Its zero value is empty.
type Buffer struct {
	data []byte
}

var _ Storage = (*Buffer)(nil)

// Bytes returns what was written. It is valid until the next write.
func (b *Buffer) Bytes() []byte { return b.data }

// Write appends p. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.data = append(b.data, p...)
	return len(p), nil
}

// errOutside is a write outside of what was written before.
var errOutside = errors.New("position lies outside the buffer")

// ReadAt reads what was written.
func (b *Buffer) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errOutside
	}
	if off >= int64(len(b.data)) {
		return 0, io.EOF
	}
	n := copy(p, b.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt replaces bytes that were written before.
func (b *Buffer) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > int64(len(b.data)) {
		return 0, errOutside
	}
	return copy(b.data[off:], p), nil
}
