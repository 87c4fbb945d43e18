package pack

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zlib"
)

// zlibReader is a streaming zlib decoder that can be used again.
type zlibReader struct {
	src *bufio.Reader
	r   io.ReadCloser
}

// emptyZlib is the zlib stream of no bytes.
const emptyZlib = "\x78\x9c\x03\x00\x00\x00\x00\x01"

var zlibReaders = sync.Pool{New: func() any {
	z := &zlibReader{src: bufio.NewReaderSize(nil, 16<<10)}
	z.src.Reset(strings.NewReader(emptyZlib))
	r, err := zlib.NewReader(z.src)
	if err != nil {
		panic("pack: the empty zlib stream is malformed: " + err.Error())
	}
	z.r = r
	return z
}}

// Reset starts a new stream from src.
func (z *zlibReader) Reset() error {
	return z.r.(zlib.Resetter).Reset(z.src, nil)
}

// isFlateError reports whether err is about the compressed data itself.
func isFlateError(err error) bool {
	var corrupt flate.CorruptInputError
	var internal flate.InternalError
	return errors.As(err, &corrupt) || errors.As(err, &internal)
}
