package auth

import (
	"crypto"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	leeway   = 60 * time.Second // for iat and nbf
	maxGrace = 60 * time.Second

	defaultCacheSize = 4096
	maxCachedToken   = 4 << 10 // bytes; bounds the cache together with its size
)

// algorithms maps every accepted algorithm to the only family of keys that it may be used with. None and HMAC are not here,
// so that a public key is never taken for a shared secret.
var algorithms = map[string]family{
	"RS256": familyRSA, "RS384": familyRSA, "RS512": familyRSA,
	"PS256": familyRSA, "PS384": familyRSA, "PS512": familyRSA,
	"ES256": familyP256, "ES384": familyP384, "ES512": familyP521,
	"EdDSA": familyEd25519,
}

// OrgKeys is what an organisation's tokens are verified against. Version must change whenever any other field does, because
// verified tokens are remembered under it. An organisation that does not exist is one without keys.
type OrgKeys struct {
	Name    string
	Version int64
	Keys    []Key
	MaxTTL  time.Duration // longest exp - iat; zero means no limit
}

// Options configures a Verifier.
type Options struct {
	Grace     time.Duration // how long after its exp a token is still accepted, 0 to 60 s
	CacheSize int           // verified tokens remembered; 0 means 4096
	Strict    bool          // git:write does not imply git:read
}

// Verifier verifies tokens and remembers those that it accepted. It is safe for concurrent use.
type Verifier struct {
	grace  time.Duration
	strict bool
	cache  *cache
}

// NewVerifier makes a Verifier, or fails when an option is out of its range.
func NewVerifier(o Options) (*Verifier, error) {
	if o.Grace < 0 || o.Grace > maxGrace {
		return nil, fmt.Errorf("token grace %s is out of range: want 0 to %s", o.Grace, maxGrace)
	}
	if o.CacheSize < 0 {
		return nil, fmt.Errorf("token cache size %d is negative", o.CacheSize)
	}
	if o.CacheSize == 0 {
		o.CacheSize = defaultCacheSize
	}
	return &Verifier{grace: o.Grace, strict: o.Strict, cache: newCache(o.CacheSize)}, nil
}

// Peek reads the claims by which a token's keys and floors are found. They are unverified: nothing may be granted or told
// on their word. Errors are *TokenError.
func (v *Verifier) Peek(raw string) (org, repo, thread, sub string, err error) {
	if p := v.cache.peek(sha256.Sum256([]byte(raw))); p != nil {
		return p.Org, p.Repo, p.Thread, p.Subject, nil
	}
	t, bad := parse(raw)
	if bad != nil {
		return "", "", "", "", bad
	}
	p := &t.payload
	return p.Issuer, p.Repo, p.Thread, p.Subject, nil
}

// Verify checks raw against the keys of org at the time now and returns who it speaks for, or a *TokenError. Floors are
// checked by the caller, with Floor.
func (v *Verifier) Verify(raw string, org OrgKeys, now time.Time) (*Principal, error) {
	sum := sha256.Sum256([]byte(raw))
	if p := v.cache.get(sum, org.Name, org.Version); p != nil {
		if err := v.checkExpiry(p.Expires, now); err != nil {
			return nil, err
		}
		return p, nil
	}
	t, err := parse(raw)
	if err != nil {
		return nil, err
	}
	key, err := verifySignature(t, org)
	if err != nil {
		return nil, err
	}
	claims, err := t.claims()
	if err != nil {
		return nil, err
	}
	if err := v.checkTimes(t, claims, org, now); err != nil {
		return nil, err
	}
	p := &Principal{Claims: claims, KeyID: key.KID, Strict: v.strict}
	if len(raw) <= maxCachedToken {
		v.cache.put(sum, org.Name, org.Version, p)
	}
	return p, nil
}

// verifySignature returns the key of org that signed t. Why a signature does not count is not told, and costs one
// verification at least: whether an organisation exists, and which keys it has, is nothing that a forged token may find out.
func verifySignature(t *token, org OrgKeys) (*Key, *TokenError) {
	alg := t.header.Algorithm
	want, known := algorithms[alg]
	if !known {
		return nil, &TokenError{TokenAlgorithm,
			fmt.Sprintf("token algorithm %.32q is not accepted: use RS, PS, ES or EdDSA", alg)}
	}
	method := jwt.GetSigningMethod(alg)
	verifies := func(public crypto.PublicKey) bool { return method.Verify(t.signed, t.signature, public) == nil }
	tried := false
	if t.payload.Issuer == org.Name {
		candidates := candidateKeys(t.header.KeyID, org.Keys)
		for i := range candidates {
			key := &candidates[i]
			if key.family != want {
				continue
			}
			tried = true
			if verifies(key.public) {
				return key, nil
			}
		}
	}
	if !tried {
		verifies(nobodys()[want])
	}
	return nil, &TokenError{TokenSignature,
		"token is not signed with a key that its issuer has registered: check its iss, its kid and the private key"}
}

// candidateKeys applies the rules of kid: a registered one selects its keys, an unknown one those registered without a kid,
// none at all selects every key.
func candidateKeys(kid string, keys []Key) []Key {
	if kid == "" {
		return keys
	}
	var named, unnamed []Key
	for _, k := range keys {
		switch k.KID {
		case kid:
			named = append(named, k)
		case "":
			unnamed = append(unnamed, k)
		}
	}
	if len(named) > 0 {
		return named
	}
	return unnamed
}

func (v *Verifier) checkTimes(t *token, c Claims, org OrgKeys, now time.Time) *TokenError {
	limit := now.Add(leeway).Unix()
	for _, claim := range []struct {
		name string
		at   int64
	}{{"iat", c.IssuedAt}, {"nbf", int64(t.payload.NotBefore)}} {
		if claim.at > limit {
			return &TokenError{TokenNotYetValid, fmt.Sprintf(
				"token is not valid yet: its %s is %s and the server's time %s: check the clock of the minting machine",
				claim.name, stamp(time.Unix(claim.at, 0)), stamp(now))}
		}
	}
	if err := v.checkExpiry(c.Expires, now); err != nil {
		return err
	}
	if org.MaxTTL <= 0 {
		return nil
	}
	if c.IssuedAt == 0 {
		return &TokenError{TokenLifetime, "token has no iat claim, and its organisation limits lifetimes"}
	}
	if lifetime := c.Expires - c.IssuedAt; lifetime > int64(org.MaxTTL/time.Second) {
		return &TokenError{TokenLifetime, fmt.Sprintf(
			"token lives %d s and its organisation allows %d s at most", lifetime, int64(org.MaxTTL/time.Second))}
	}
	return nil
}

func (v *Verifier) checkExpiry(expires int64, now time.Time) *TokenError {
	since := now.Sub(time.Unix(expires, 0))
	if since < v.grace {
		return nil
	}
	return &TokenError{TokenExpired, fmt.Sprintf("token expired at %s, %s ago: get a new one",
		stamp(time.Unix(expires, 0)), since.Truncate(time.Second))}
}
