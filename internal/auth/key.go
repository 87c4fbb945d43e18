package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"sync"
)

// Sizes of RSA keys, in bits: below is weak, above lets a stranger buy much work with one request.
const (
	minRSABits = 2048
	maxRSABits = 8192
)

// ErrKey is wrapped by every error about a key that cannot be read or used. No such error contains key material.
var ErrKey = errors.New("unusable key")

// Key is a public key that an organisation has registered. Make one with ParsePublicKey.
type Key struct {
	KID       string // may be empty
	PublicPEM string // PKIX, canonical
	public    crypto.PublicKey
	family    family
}

// family is a kind of key; each algorithm is for exactly one.
type family string

const (
	familyRSA     family = "RSA"
	familyP256    family = "P-256"
	familyP384    family = "P-384"
	familyP521    family = "P-521"
	familyEd25519 family = "Ed25519"
)

// Type names the kind of key: RSA, P-256, P-384, P-521 or Ed25519.
func (k Key) Type() string { return string(k.family) }

// ParsePublicKey reads a PEM public key (PKIX or PKCS#1) or certificate. From a private key in any form that ParsePrivateKey
// reads it takes the public half.
func ParsePublicKey(kid string, pemText []byte) (Key, error) {
	block, err := decodePEM(pemText)
	if err != nil {
		return Key{}, err
	}
	var public crypto.PublicKey
	switch block.Type {
	case "PUBLIC KEY":
		public, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		public, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var cert *x509.Certificate
		if cert, err = x509.ParseCertificate(block.Bytes); err == nil {
			public = cert.PublicKey
		}
	default:
		var signer crypto.Signer
		if signer, err = ParsePrivateKey(pemText); err != nil {
			return Key{}, err
		}
		public = signer.Public()
	}
	if err != nil {
		return Key{}, fmt.Errorf("%w: parse %q block: %w", ErrKey, block.Type, err)
	}
	return newKey(kid, public)
}

// ParsePrivateKey reads a PEM private key: PKCS#8, SEC1 (EC) or PKCS#1 (RSA). Line ends may be written as the two
// characters \n, as environment variables often have them. It is an *ecdsa.PrivateKey, *rsa.PrivateKey or
// ed25519.PrivateKey that Mint can use.
func ParsePrivateKey(pemText []byte) (crypto.Signer, error) {
	block, err := decodePEM(pemText)
	if err != nil {
		return nil, err
	}
	var key any
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("%w: %q block is not a private key: want PKCS#8, SEC1 or PKCS#1", ErrKey, block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: parse %q block: %w", ErrKey, block.Type, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%w: a %T cannot sign", ErrKey, key)
	}
	if _, err := newKey("", signer.Public()); err != nil {
		return nil, err
	}
	return signer, nil
}

// GenerateKey makes a P-256 private key as PKCS#8 PEM.
func GenerateKey() (pemText []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func newKey(kid string, public crypto.PublicKey) (Key, error) {
	fam, err := familyOf(public)
	if err != nil {
		return Key{}, err
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return Key{}, fmt.Errorf("%w: encode: %w", ErrKey, err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return Key{KID: kid, PublicPEM: string(text), public: public, family: fam}, nil
}

func familyOf(public crypto.PublicKey) (family, error) {
	switch p := public.(type) {
	case *rsa.PublicKey:
		if bits := p.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return "", fmt.Errorf("%w: RSA key has %d bits: want %d to %d", ErrKey, bits, minRSABits, maxRSABits)
		}
		return familyRSA, nil
	case *ecdsa.PublicKey:
		switch p.Curve {
		case elliptic.P256():
			return familyP256, nil
		case elliptic.P384():
			return familyP384, nil
		case elliptic.P521():
			return familyP521, nil
		}
		return "", fmt.Errorf("%w: curve %s: want P-256, P-384 or P-521", ErrKey, p.Curve.Params().Name)
	case ed25519.PublicKey:
		return familyEd25519, nil
	}
	return "", fmt.Errorf("%w: %T: want RSA, EC or Ed25519", ErrKey, public)
}

// nobodys holds a public key of each family whose private half nobody has: verifying with it costs what verifying with an
// organisation's key does.
var nobodys = sync.OnceValue(func() map[family]crypto.PublicKey {
	keys := make(map[family]crypto.PublicKey)
	for fam, curve := range map[family]elliptic.Curve{familyP256: elliptic.P256(), familyP384: elliptic.P384(), familyP521: elliptic.P521()} {
		// Generating a key cannot fail: crypto/rand does not.
		if key, err := ecdsa.GenerateKey(curve, rand.Reader); err == nil {
			keys[fam] = &key.PublicKey
		}
	}
	if public, _, err := ed25519.GenerateKey(rand.Reader); err == nil {
		keys[familyEd25519] = public
	}
	// Any odd modulus serves; finding primes would take long.
	modulus := make([]byte, minRSABits/8)
	rand.Read(modulus)
	modulus[0] |= 0x80
	modulus[len(modulus)-1] |= 1
	keys[familyRSA] = &rsa.PublicKey{N: new(big.Int).SetBytes(modulus), E: 65537}
	return keys
})

// decodePEM returns the first block that is a key. Files written by openssl ecparam begin with the parameters of the curve.
func decodePEM(text []byte) (*pem.Block, error) {
	text = bytes.ReplaceAll(text, []byte(`\r`), nil)
	text = bytes.ReplaceAll(text, []byte(`\n`), []byte("\n"))
	text = bytes.TrimLeft(text, " \t\r\n\"'")
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, fmt.Errorf("%w: no PEM block found", ErrKey)
		}
		if block.Type == "ENCRYPTED PRIVATE KEY" || block.Headers["Proc-Type"] != "" {
			return nil, fmt.Errorf("%w: the private key is encrypted: decrypt it first", ErrKey)
		}
		if block.Type != "EC PARAMETERS" {
			return block, nil
		}
		text = rest
	}
}
