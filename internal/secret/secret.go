// Package secret encrypts what must not be readable in a database or a backup
// of it: credentials of upstreams, keys of webhooks. A sealed value is
//
//	version 1 (1 byte) | key id (8 bytes) | nonce (12 bytes) | AES-256-GCM text and tag
//
// and is bound to the row it belongs to: moved to another row it does not open.
package secret

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
)

// Errors of a Keyring.
var (
	// ErrNoKey says that the server was given no key for secrets.
	ErrNoKey = errors.New("no key for secrets is configured: give --secret-key-file")
	// ErrUnknownKey says that a value was sealed with a key that is not in the
	// ring.
	ErrUnknownKey = errors.New("the secret was sealed with a key that is not configured: add the old key to the key file")
	// ErrDamaged says that a sealed value was changed, cut, or belongs to another
	// row.
	ErrDamaged = errors.New("the sealed secret is damaged or belongs to another row")
)

const (
	version   = 1
	keySize   = 32 // bytes
	idSize    = 8
	nonceSize = 12
	prefix    = 1 + idSize
	maxKeys   = 64
	// MaxPlain bounds what Seal takes, in bytes.
	MaxPlain = 64 << 10
)

// Keyring seals with its first key and opens with any. The nil Keyring has no
// keys: it seals and opens nothing. It is safe for concurrent use.
type Keyring struct {
	keys []key
}

type key struct {
	id   [idSize]byte
	aead cipher.AEAD
}

// Generate returns the text of a key file with one new key.
func Generate() []byte {
	raw := make([]byte, keySize)
	rand.Read(raw)
	return append(base64.StdEncoding.AppendEncode(nil, raw), '\n')
}

// Parse reads a key file: one key of 32 bytes in base64 on each line, the key to
// seal with first, older keys after it. Empty lines and lines that begin with
// "#" are passed over. Errors name the line, never its text.
func Parse(text []byte) (*Keyring, error) {
	ring := &Keyring{}
	line := 0
	for l := range bytes.SplitSeq(text, []byte{'\n'}) {
		line++
		l = bytes.TrimSpace(l)
		if len(l) == 0 || l[0] == '#' {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(string(l))
		if err != nil || len(raw) != keySize {
			return nil, fmt.Errorf("line %d is not a key: want %d bytes in base64, as `openssl rand -base64 32` prints", line, keySize)
		}
		k, err := newKey(raw)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(ring.keys, func(o key) bool { return o.id == k.id }) {
			return nil, fmt.Errorf("line %d repeats a key", line)
		}
		if len(ring.keys) == maxKeys {
			return nil, fmt.Errorf("there are more than %d keys", maxKeys)
		}
		ring.keys = append(ring.keys, k)
	}
	if len(ring.keys) == 0 {
		return nil, errors.New("there is no key: want 32 bytes in base64, as `openssl rand -base64 32` prints")
	}
	return ring, nil
}

func newKey(raw []byte) (key, error) {
	block, err := aes.NewCipher(raw)
	if err != nil {
		return key{}, fmt.Errorf("make the cipher: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return key{}, fmt.Errorf("make the cipher: %w", err)
	}
	k := key{aead: aead}
	sum := sha256.Sum256(append([]byte("cairn secret key id\x00"), raw...))
	copy(k.id[:], sum[:])
	return k, nil
}

// Seal encrypts plain for a row. row names table and row, for example
// "credential/17"; Open must be given the same.
func (r *Keyring) Seal(row string, plain []byte) ([]byte, error) {
	if r == nil {
		return nil, ErrNoKey
	}
	if len(plain) > MaxPlain {
		return nil, fmt.Errorf("the secret has %d bytes, more than %d", len(plain), MaxPlain)
	}
	k := r.keys[0]
	sealed := make([]byte, prefix+nonceSize, prefix+nonceSize+len(plain)+k.aead.Overhead())
	sealed[0] = version
	copy(sealed[1:], k.id[:])
	nonce := sealed[prefix:]
	rand.Read(nonce)
	return k.aead.Seal(sealed, nonce, plain, bound(sealed[:prefix], row)), nil
}

// Open decrypts what Seal made for the same row.
func (r *Keyring) Open(row string, sealed []byte) ([]byte, error) {
	if r == nil {
		return nil, ErrNoKey
	}
	if len(sealed) < prefix+nonceSize || sealed[0] != version {
		return nil, ErrDamaged
	}
	for _, k := range r.keys {
		if !bytes.Equal(k.id[:], sealed[1:prefix]) {
			continue
		}
		plain, err := k.aead.Open(nil, sealed[prefix:prefix+nonceSize], sealed[prefix+nonceSize:], bound(sealed[:prefix], row))
		if err != nil {
			return nil, ErrDamaged
		}
		return plain, nil
	}
	return nil, ErrUnknownKey
}

// Current reports whether a sealed value was sealed with the first key, so that
// the older keys are not needed for it.
func (r *Keyring) Current(sealed []byte) bool {
	return r != nil && len(sealed) >= prefix && sealed[0] == version && bytes.Equal(r.keys[0].id[:], sealed[1:prefix])
}

// bound is the associated data of a sealed value.
func bound(head []byte, row string) []byte {
	return append(slices.Clone(head), row...)
}
