package blob

import (
	"errors"
	"fmt"
	"strings"
)

// MaxKeyLen is the greatest length of a Key in bytes. It leaves room for a
// key to be one file name.
const MaxKeyLen = 200

// ErrInvalidKey says that a string does not have the form of a Key.
var ErrInvalidKey = errors.New("invalid blob key")

// Key names an object: segments of [a-z0-9._-] joined by slashes. A segment
// starts with a letter or a digit. Keys are random or derived from content and
// are never used a second time, not even after Delete. A key that is another
// key's directory ("a" beside "a/b") may be refused by a store.
type Key string

// ParseKey returns s as a Key, or an error wrapping ErrInvalidKey.
func ParseKey(s string) (Key, error) {
	key := Key(s)
	return key, key.Validate()
}

// Validate returns an error wrapping ErrInvalidKey when k lacks the form of a
// key. Stores call it; a caller that builds keys from parts need not.
func (k Key) Validate() error {
	if len(k) == 0 || len(k) > MaxKeyLen {
		return fmt.Errorf("%w %q: want 1 to %d bytes, got %d", ErrInvalidKey, clip(string(k)), MaxKeyLen, len(k))
	}
	for segment := range strings.SplitSeq(string(k), "/") {
		if segment == "" || !isAlnum(segment[0]) {
			return fmt.Errorf("%w %q: segment %q must start with a letter or digit", ErrInvalidKey, string(k), segment)
		}
		for i := range len(segment) {
			if c := segment[i]; !isAlnum(c) && c != '.' && c != '_' && c != '-' {
				return fmt.Errorf("%w %q: segment %q holds something else than a-z, 0-9, '.', '_' and '-'", ErrInvalidKey, string(k), segment)
			}
		}
	}
	return nil
}

func isAlnum(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }

func clip(s string) string {
	if len(s) > MaxKeyLen {
		return s[:MaxKeyLen] + "..."
	}
	return s
}
