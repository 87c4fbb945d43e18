package object

import (
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/pjbgf/sha1cd"
)

// ErrCollision means that content was made to collide with other content under
// SHA-1, so that its ID cannot be trusted.
var ErrCollision = errors.New("object content is part of a SHA-1 collision attack")

// ErrSize means that an object's content is not as long as its header says.
var ErrSize = errors.New("object size mismatch")

// Hash returns the ID of an object that Cairn itself makes. It does not look
// for collisions, which makes it about twice as fast as a Hasher (measured:
// 1.35 against 0.76 GB/s a core); content from outside goes through a Hasher.
func Hash(t Type, content []byte) (id ID) {
	var buf [32]byte
	h := sha1.New()
	h.Write(appendHeader(buf[:0], t, int64(len(content))))
	h.Write(content)
	h.Sum(id[:0])
	return id
}

// Hasher computes the ID of an object received from outside, and detects
// content made for a SHA-1 collision as git's own SHA-1 does.
type Hasher struct {
	h    sha1cd.CollisionResistantHash
	left int64 // content bytes still to come
	size int64
	buf  [32]byte
}

var _ io.Writer = (*Hasher)(nil)

// NewHasher returns a Hasher for an object of the given type and size in bytes.
func NewHasher(t Type, size int64) *Hasher {
	h := &Hasher{h: sha1cd.New().(sha1cd.CollisionResistantHash)}
	h.Reset(t, size)
	return h
}

// Reset prepares the Hasher for another object.
func (h *Hasher) Reset(t Type, size int64) {
	h.h.Reset()
	h.h.Write(appendHeader(h.buf[:0], t, size))
	h.left, h.size = size, size
}

// Write adds content. It never fails; Sum reports content of a wrong size.
func (h *Hasher) Write(p []byte) (int, error) {
	h.left -= int64(len(p))
	return h.h.Write(p)
}

// Sum returns the ID of the object. The error is ErrCollision, or ErrSize when
// not exactly the announced size was written.
func (h *Hasher) Sum() (id ID, err error) {
	if h.left != 0 {
		return Zero, fmt.Errorf("%w: got %d bytes, want %d", ErrSize, h.size-h.left, h.size)
	}
	sum, collides := h.h.CollisionResistantSum(h.buf[:0])
	if collides {
		return Zero, ErrCollision
	}
	return ID(sum), nil
}

// appendHeader appends what Git hashes before the content.
func appendHeader(b []byte, t Type, size int64) []byte {
	b = append(append(b, t.String()...), ' ')
	return append(strconv.AppendInt(b, size, 10), 0)
}
