// Package signature verifies the signatures of commits and tags against
// registered public keys: OpenPGP ones, as gpg makes them, and SSH ones, as
// `ssh-keygen -Y sign` does.
package signature

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Bounds in bytes on what is parsed.
const (
	maxKey       = 256 << 10
	maxSignature = 16 << 10
)

// Kind is a system of signatures.
type Kind string

// The kinds of keys and signatures.
const (
	OpenPGP Kind = "openpgp"
	SSH     Kind = "ssh"
)

// ErrKey is wrapped by every error about a public key that cannot be used.
var ErrKey = errors.New("unusable signing key")

// Error says why a signature does not count, as the end of a sentence that
// begins with what was signed.
type Error struct{ Reason string }

func (e *Error) Error() string { return e.Reason }

func refuse(format string, args ...any) *Error { return &Error{fmt.Sprintf(format, args...)} }

// Key is a public key. Make one with ParseKey.
type Key struct {
	Kind Kind
	// Fingerprint names the key as gpg and ssh-keygen print it: upper-case
	// hexadecimal, or "SHA256:" and base64.
	Fingerprint string
	// Text is the public key: an armoured block, or a line of authorized_keys
	// without its comment.
	Text string
	// Owner is what the key says of whose it is: its first user id, or the
	// comment. It proves nothing.
	Owner string

	verifier verifier
}

// verifier checks what claims to be a signature by one key over a payload.
type verifier interface {
	verify(payload []byte, s *parsed, now time.Time) error
}

// ParseKey reads one public key: an armoured OpenPGP block with one key, or one
// SSH public key as in a .pub file. Errors wrap ErrKey and hold no key.
func ParseKey(text []byte) (Key, error) {
	if len(text) > maxKey {
		return Key{}, fmt.Errorf("%w: it has more than %d bytes", ErrKey, maxKey)
	}
	trimmed := strings.TrimSpace(string(text))
	if strings.Contains(trimmed, "PRIVATE KEY") {
		return Key{}, fmt.Errorf("%w: it is a private key: register the public one, and take this one for leaked", ErrKey)
	}
	if strings.HasPrefix(trimmed, "-----BEGIN PGP") {
		return parseOpenPGP(trimmed)
	}
	return parseSSH(trimmed)
}

// Trusted is a key together with when what it signs counts.
type Trusted struct {
	Key
	// NotBefore and NotAfter bound the dates of commits and tags that the key
	// may sign; zero is no bound. The date is the one that the object states.
	NotBefore, NotAfter time.Time
}

// Ring is a set of keys. It is immutable and safe for concurrent use.
type Ring struct {
	keys map[string]Trusted // by what a signature names: see parsed.issuer
}

// NewRing returns a Ring of keys.
func NewRing(keys []Trusted) *Ring {
	r := &Ring{keys: make(map[string]Trusted)}
	for _, k := range keys {
		for _, issuer := range k.issuers() {
			r.keys[issuer] = k
		}
	}
	return r
}

// Empty reports whether no key can sign.
func (r *Ring) Empty() bool { return len(r.keys) == 0 }

// parsed is a signature that has been read but not verified.
type parsed struct {
	// issuer names the key that the signature claims to be made with.
	issuer string
	pgp    *packet.Signature
	ssh    *sshSignature
}

// Verify checks that sig is a signature of payload by a key of the ring which
// may sign what states the date made. now decides whether an OpenPGP key has
// expired. It returns the fingerprint of the key, or an *Error.
func (r *Ring) Verify(payload []byte, sig string, made, now time.Time) (fingerprint string, err error) {
	var p *parsed
	switch text := strings.TrimSpace(sig); {
	case text == "":
		return "", refuse("is not signed")
	case len(text) > maxSignature:
		return "", refuse("has a signature of more than %d bytes", maxSignature)
	case strings.HasPrefix(text, beginSSH):
		p, err = readSSH(text)
	case strings.HasPrefix(text, "-----BEGIN PGP SIGNATURE-----"):
		p, err = readOpenPGP(text)
	default:
		return "", refuse("has a signature that is neither OpenPGP nor SSH")
	}
	if err != nil {
		return "", err
	}
	key, ok := r.keys[p.issuer]
	if !ok {
		return "", refuse("is signed with a key that is not registered")
	}
	if err := key.verifier.verify(payload, p, now); err != nil {
		return "", err
	}
	switch {
	case !key.NotBefore.IsZero() && made.Before(key.NotBefore):
		return "", refuse("is dated before its signing key counts")
	case !key.NotAfter.IsZero() && made.After(key.NotAfter):
		return "", refuse("is dated after its signing key has ceased to count")
	}
	return key.Fingerprint, nil
}
