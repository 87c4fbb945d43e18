// Package chunk cuts the contents of large files into pieces at places that the
// contents decide, so that an insertion changes the pieces around it and no
// others. Cut points are part of what is stored: testdata holds golden ones.
package chunk

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	chunkers "github.com/PlakarKorp/go-cdc-chunkers"
	_ "github.com/PlakarKorp/go-cdc-chunkers/chunkers/fastcdc" // registers the algorithm
)

// Sizes of chunks in bytes. Only the last chunk of a file may be shorter than
// MinSize. A file below NormalSize is one chunk.
const (
	MinSize    = 512 << 10
	NormalSize = 1 << 20
	MaxSize    = 4 << 20
)

// algorithm is the versioned one: the plain name cuts just after MinSize.
const algorithm = "fastcdc-v1.0.0"

// scanner is what one Split needs: the beginning of the file, to know whether it
// is a small one, and the buffer of 2 MaxSize in which the library scans.
type scanner struct {
	head    [NormalSize]byte
	chunker *chunkers.Chunker
}

// scanners is a pool, so that memory follows the number of files read at a time.
var scanners = sync.Pool{New: func() any {
	c, err := chunkers.NewChunker(algorithm, nil, &chunkers.ChunkerOpts{MinSize: MinSize, NormalSize: NormalSize, MaxSize: MaxSize})
	if err != nil {
		panic(fmt.Sprintf("chunk: %v", err)) // the sizes above are valid for the algorithm
	}
	return &scanner{chunker: c}
}}

// Split reads r to its end and calls fn for each chunk in order. The bytes are
// valid during the call only. Nothing is cut from an empty r. An error of r or
// of fn ends it and is returned as it is.
func Split(r io.Reader, fn func(b []byte) error) error {
	s := scanners.Get().(*scanner)
	defer scanners.Put(s)
	// io.ReadFull would not tell the end of r from an io.ErrUnexpectedEOF of r.
	n, err := 0, error(nil)
	for n < len(s.head) && err == nil {
		var more int
		more, err = r.Read(s.head[n:])
		n += more
	}
	switch {
	case err != nil && err != io.EOF:
		return err
	case n == 0:
		return nil
	case n < len(s.head):
		return fn(s.head[:n])
	}
	s.chunker.Reset(io.MultiReader(bytes.NewReader(s.head[:]), r))
	defer s.chunker.Reset(nil)
	for {
		b, err := s.chunker.Next()
		if err != nil && err != io.EOF {
			return err
		}
		if len(b) > 0 {
			if err := fn(b); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}
