package gitcmd

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/cairnstate/cairn/internal/git/object"
)

// maxHeader is the length in bytes of the longest header of an object that git
// wrote, its NUL included.
const maxHeader = 32

// Written returns an object that git wrote into the view, as a stream, which must
// be closed. An object that git did not write is fs.ErrNotExist.
func (d *Dir) Written(id object.ID) (object.Type, int64, io.ReadCloser, error) {
	name := id.String()
	f, err := os.Open(filepath.Join(d.path, name[:2], name[2:]))
	if err != nil {
		return object.Invalid, 0, nil, fmt.Errorf("read what git wrote: %w", err)
	}
	t, size, content, err := readHeader(f)
	if err != nil {
		return object.Invalid, 0, nil, errors.Join(fmt.Errorf("read object %s that git wrote: %w", id, err), f.Close())
	}
	return t, size, &writtenObject{content, f}, nil
}

// readHeader reads the header of an object and returns its content.
func readHeader(r io.Reader) (object.Type, int64, io.Reader, error) {
	z, err := zlib.NewReader(r)
	if err != nil {
		return object.Invalid, 0, nil, err
	}
	content := bufio.NewReaderSize(z, 4<<10)
	var header []byte
	for len(header) < maxHeader {
		b, err := content.ReadByte()
		if err != nil {
			return object.Invalid, 0, nil, err
		}
		if b == 0 {
			break
		}
		header = append(header, b)
	}
	word, digits, _ := bytes.Cut(header, []byte(" "))
	size, err := strconv.ParseInt(string(digits), 10, 64)
	for _, t := range []object.Type{object.Commit, object.Tree, object.Blob, object.Tag} {
		if err == nil && size >= 0 && t.String() == string(word) {
			return t, size, content, nil
		}
	}
	return object.Invalid, 0, nil, fmt.Errorf("its header %q is malformed", header)
}

type writtenObject struct {
	io.Reader
	io.Closer
}
