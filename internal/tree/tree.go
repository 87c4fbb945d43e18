// Package tree holds the objects that a checkpoint's files are made of: chunks of
// contents, recipes that join chunks, directories as Merkle nodes, and the root.
// An object is named by the SHA-256 of its bytes, each value has one encoding,
// and a decoder refuses every other. docs/format.md has the bytes.
package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
)

// Digest is the SHA-256 of an object's bytes.
type Digest [sha256.Size]byte

// Sum returns the digest of b.
func Sum(b []byte) Digest { return sha256.Sum256(b) }

// String returns the digest in lower-case hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest reads the form that String writes.
func ParseDigest(s string) (Digest, error) {
	var d Digest
	if len(s) != hex.EncodedLen(len(d)) {
		return d, invalid("a digest of %d characters, want %d", len(s), hex.EncodedLen(len(d)))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil || d.String() != s {
		return Digest{}, invalid("a digest that is not lower-case hex")
	}
	return d, nil
}

// Kind says what the bytes of an object are. The digest does not depend on it: a
// file may hold the bytes of a directory object, and both are the same object.
type Kind uint8

// The kinds of objects. The numbers are stored and sent.
const (
	Chunk  Kind = 1 // contents as they are
	Recipe Kind = 2 // the chunks of a large file in order
	Dir    Kind = 3 // the entries of a directory, or of one page of it
	Index  Kind = 4 // the pages of a large directory
	Root   Kind = 5 // the named roots of a checkpoint
)

// Object is an object with its name.
type Object struct {
	Kind   Kind
	Digest Digest
	Bytes  []byte
}

// Limits that encoders keep and decoders enforce.
const (
	MaxChunk     = 4 << 20  // bytes of a chunk
	MaxDir       = 4 << 20  // bytes of a directory object
	MaxList      = 16 << 20 // bytes of a recipe or an index
	MaxRoot      = 4 << 20  // bytes of a root
	MaxLinks     = 64 << 20 // bytes of a table of hard links
	MaxPage      = 4096     // entries of one directory object
	MaxName      = 255      // bytes of a name
	MaxTarget    = 4095     // bytes of a link target
	MaxXattrs    = 256 << 10
	maxLinked    = 1 << 20 // paths in a table of hard links
	MaxRedacted  = 1 << 16 // redacted ranges of an entry
	MaxHoles     = 1024    // holes of a file
	MaxDepth     = 2048    // directories between a root and an entry
	MaxRoots     = 64
	MaxPolicy    = 1 << 20
	maxEntry     = 2 << 20
	maxSecret    = 128      // bytes of the name of a secret
	maxXattr     = 64 << 10 // bytes of one value
	maxFileBytes = 1<<63 - 1
)

// MaxBytes returns how long an object of kind k may be.
func MaxBytes(k Kind) int {
	switch k {
	case Chunk:
		return MaxChunk
	case Dir:
		return MaxDir
	case Root:
		return MaxRoot
	default:
		return MaxList
	}
}

// ErrInvalid is matched by every error about bytes or values that no encoder of
// this package writes.
var ErrInvalid = errors.New("invalid checkpoint object")

// invalidError says what is wrong with an object.
type invalidError struct{ what string }

func (e *invalidError) Error() string        { return "invalid checkpoint object: " + e.what }
func (e *invalidError) Is(target error) bool { return target == ErrInvalid }

func invalid(format string, args ...any) error {
	return &invalidError{what: fmt.Sprintf(format, args...)}
}

// MissingError reports objects that a Source does not have.
type MissingError struct{ Digests []Digest }

func (e *MissingError) Error() string {
	if len(e.Digests) == 1 {
		return fmt.Sprintf("object %s is missing", e.Digests[0])
	}
	return fmt.Sprintf("%d objects are missing, %s is the first", len(e.Digests), e.Digests[0])
}

// CorruptError reports an object whose bytes are not those that its digest names.
type CorruptError struct{ Digest Digest }

func (e *CorruptError) Error() string { return fmt.Sprintf("object %s is corrupt", e.Digest) }
