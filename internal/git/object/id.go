// Package object knows Git's objects: identifiers, types, the commit, tree and
// tag formats, and what makes an object acceptable.
package object

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Size is the length of an object identifier in bytes (SHA-1).
const Size = 20

// ID names an object: the SHA-1 of its type, length and content.
// The zero ID names nothing; on the wire it stands for "no object".
type ID [Size]byte

// Zero is the ID that names nothing.
var Zero ID

// ParseID reads an ID from exactly 40 hexadecimal digits.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*Size {
		return Zero, fmt.Errorf("object id %q: want %d hexadecimal digits", s, 2*Size)
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return Zero, fmt.Errorf("object id %q: want %d hexadecimal digits", s, 2*Size)
	}
	return id, nil
}

// String returns the ID as 40 lowercase hexadecimal digits.
func (id ID) String() string {
	var text [2 * Size]byte
	hex.Encode(text[:], id[:])
	return string(text[:])
}

// IsZero reports whether the ID names nothing.
func (id ID) IsZero() bool { return id == Zero }

// Compare orders IDs by their bytes. The first bytes of two IDs decide almost
// always.
func (id ID) Compare(other ID) int {
	a, b := binary.BigEndian.Uint64(id[:]), binary.BigEndian.Uint64(other[:])
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return bytes.Compare(id[8:], other[8:])
}

// Type is the type of an object, with the numbers that packs use.
type Type uint8

// The four object types.
const (
	Invalid Type = 0
	Commit  Type = 1
	Tree    Type = 2
	Blob    Type = 3
	Tag     Type = 4
)

// String returns the name that Git writes in object headers.
func (t Type) String() string {
	switch t {
	case Commit:
		return "commit"
	case Tree:
		return "tree"
	case Blob:
		return "blob"
	case Tag:
		return "tag"
	}
	return "invalid"
}
