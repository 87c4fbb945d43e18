package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
)

// Mint signs a token that says what c says, with the algorithm that belongs to key: ES256, ES384, ES512, RS256 or EdDSA.
// key is one that ParsePrivateKey returned; kid may be empty. Org and a lifetime are required.
func Mint(key crypto.Signer, kid string, c Claims) (string, error) {
	if c.Org == "" {
		return "", fmt.Errorf("mint token: no organisation")
	}
	if c.Expires <= c.IssuedAt || c.IssuedAt < 0 {
		return "", fmt.Errorf("mint token: it would expire at %d, not after its issue at %d", c.Expires, c.IssuedAt)
	}
	method, err := methodFor(key)
	if err != nil {
		return "", fmt.Errorf("mint token: %w", err)
	}
	head, err := encodePart(header{Algorithm: method.Alg(), Type: json.RawMessage(`"JWT"`), KeyID: kid})
	if err != nil {
		return "", fmt.Errorf("mint token: %w", err)
	}
	expires := seconds(c.Expires)
	body, err := encodePart(payload{
		Issuer: c.Org, Subject: c.Subject, Repo: c.Repo, Thread: c.Thread, Session: c.Session, Scopes: c.Scopes,
		IssuedAt: seconds(c.IssuedAt), Expires: &expires, Refs: c.Policies,
	})
	if err != nil {
		return "", fmt.Errorf("mint token: %w", err)
	}
	signed := head + "." + body
	signature, err := method.Sign(signed, key)
	if err != nil {
		return "", fmt.Errorf("mint token: sign: %w", err)
	}
	raw := signed + "." + encoding.EncodeToString(signature)
	if len(raw) > MaxTokenSize {
		return "", fmt.Errorf("mint token: %d bytes is longer than the limit of %d: name fewer refs", len(raw), MaxTokenSize)
	}
	return raw, nil
}

func methodFor(key crypto.Signer) (jwt.SigningMethod, error) {
	switch key.(type) {
	case *ecdsa.PrivateKey, *rsa.PrivateKey, ed25519.PrivateKey:
	default:
		return nil, fmt.Errorf("%w: %T cannot sign tokens", ErrKey, key)
	}
	fam, err := familyOf(key.Public())
	if err != nil {
		return nil, err
	}
	return map[family]jwt.SigningMethod{
		familyRSA:     jwt.SigningMethodRS256,
		familyP256:    jwt.SigningMethodES256,
		familyP384:    jwt.SigningMethodES384,
		familyP521:    jwt.SigningMethodES512,
		familyEd25519: jwt.SigningMethodEdDSA,
	}[fam], nil
}

func encodePart(v any) (string, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return encoding.EncodeToString(data), nil
}
